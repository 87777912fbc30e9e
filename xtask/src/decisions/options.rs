//! What the command is asked for.

use std::collections::BTreeSet;

use anyhow::{Context, bail};

use super::tree::Sources;

pub(crate) const USAGE: &str = "\
Usage: cargo xtask decisions [--room ROOM]... [--file PART]... [--function PART]... [--operator NAME]...
           [--sample N] [--seed S] [--seconds N] [--each N] [--threads N]
           [--killer N] [--by PART]... [--again]

Change one decision of core and arena at a time, and run what should notice, the cheapest first.

--room, --file, --function, --operator   only mutants of these; several of one kind add up
--sample N --seed S                      so many of them, drawn
--seconds N                              begin none later than this [600]; with 0, tell what is known
--each N                                 CPU seconds that one mutant may take before it is undecided [60]
--threads N                              killers beside each other [2]
--killer N                               leave out killers of more CPU seconds [10]
--by PART                                only killers with this in their names; several add up
--again                                  forget which killers did not notice what";

/// The command line.
#[derive(Debug)]
pub(crate) struct Options {
    rooms: Vec<String>,
    files: Vec<String>,
    functions: Vec<String>,
    operators: Vec<String>,
    sample: Option<usize>,
    seed: u64,
    pub(super) seconds: u64,
    pub(super) each: u64,
    pub(super) threads: usize,
    pub(super) killer: u64,
    by: Vec<String>,
    pub(super) again: bool,
}

impl Options {
    /// Reads the words after the command.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let (rooms, files, functions, operators) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (sample, seed, seconds, each, threads, killer, again) =
            (None, 1, 600, 60, 2, 10, false);
        let mut options = Self {
            rooms,
            files,
            functions,
            operators,
            sample,
            seed,
            seconds,
            each,
            threads,
            killer,
            by: Vec::new(),
            again,
        };
        while let Some(word) = words.next() {
            if word == "--again" {
                options.again = true;
                continue;
            }
            let value = words.next().with_context(|| format!("{word} needs a value"))?;
            let number = || value.parse::<u64>().with_context(|| format!("{word} {value}"));
            match word.as_str() {
                "--room" => options.rooms.push(value),
                "--file" => options.files.push(value),
                "--function" => options.functions.push(value),
                "--operator" => options.operators.push(value),
                "--sample" => options.sample = Some(usize::try_from(number()?)?),
                "--seed" => options.seed = number()?,
                "--seconds" => options.seconds = number()?,
                "--each" => options.each = number()?,
                "--by" => options.by.push(value),
                "--killer" => options.killer = number()?,
                "--threads" => options.threads = usize::try_from(number()?)?.max(1),
                _ => bail!("no such option: {word}\n\n{USAGE}"),
            }
        }
        Ok(options)
    }

    /// Whether a killer of this name is asked for.
    pub(super) fn asks(&self, killer: &str) -> bool {
        self.by.is_empty() || self.by.iter().any(|part| killer.contains(part.as_str()))
    }

    /// The mutants that are asked for, by number, in the order in which they are tried: mixed, so that
    /// a run that ends early has seen some of everything.
    pub(super) fn chosen(&self, sources: &Sources, untyped: &BTreeSet<&str>) -> Vec<usize> {
        let among = |names: &[String], text: &str| {
            names.is_empty() || names.iter().any(|name| text.contains(name.as_str()))
        };
        let same = |names: &[String], text: &str| {
            names.is_empty() || names.iter().any(|name| name == text)
        };
        let mut chosen = Vec::new();
        for (id, mutant) in (1..).zip(&sources.mutants) {
            if same(&self.rooms, mutant.room())
                && among(&self.files, &mutant.path)
                && among(&self.functions, &mutant.function)
                && same(&self.operators, mutant.operator)
                && !untyped.contains(sources.key(mutant).as_str())
            {
                chosen.push(id);
            }
        }
        fastrand::Rng::with_seed(self.seed).shuffle(&mut chosen);
        chosen.truncate(self.sample.unwrap_or(usize::MAX));
        chosen
    }
}
