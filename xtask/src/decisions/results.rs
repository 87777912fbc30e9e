//! What is known of mutants from earlier runs, by function: a change of one costs its own mutants alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;

/// What became of a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// By this killer.
    Caught(String),
    /// By none of those that reach it.
    Survived,
    /// No killer reaches it.
    Unreached,
    /// Not all that reach it were run: the time that it may take was up.
    Undecided,
    /// It need not be caught, and was not tried.
    Accepted,
}

/// A file with a line for each mutant: its key, then the killer, or those that passed. The last line of a
/// key counts.
pub(super) struct Results {
    known: BTreeMap<String, Known>,
    file: Mutex<File>,
}

/// What is known of a mutant.
pub(super) enum Known {
    Caught(String),
    Untyped,
    /// These killers, in short, did not notice it.
    Passed(BTreeSet<String>),
}

impl Results {
    /// With `again` it is forgotten who did not notice what: tests may have changed.
    pub(super) fn open(path: &Path, again: bool) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut known = BTreeMap::new();
        for line in text.lines() {
            let Some((key, rest)) = line.split_once('\t') else { continue };
            let found = match rest.split_once('\t').unwrap_or((rest, "")) {
                ("caught", by) => Known::Caught(by.to_owned()),
                ("untyped", _) => Known::Untyped,
                ("passed", by) if !again => {
                    Known::Passed(by.split(' ').map(str::to_owned).collect())
                }
                _ => continue,
            };
            known.insert(key.to_owned(), found);
        }
        let file = OpenOptions::new().create(true).append(true).open(path).context("results")?;
        Ok(Self { known, file: Mutex::new(file) })
    }

    pub(super) fn known(&self, key: &str) -> Option<&Known> {
        self.known.get(key)
    }

    /// Keeps a result, at once: a run that is ended loses nothing.
    pub(super) fn keep(&self, key: &str, found: &Known) -> anyhow::Result<()> {
        let line = match found {
            Known::Caught(by) => format!("{key}\tcaught\t{by}\n"),
            Known::Untyped => format!("{key}\tuntyped\n"),
            Known::Passed(by) => {
                let by: Vec<&str> = by.iter().map(String::as_str).collect();
                format!("{key}\tpassed\t{}\n", by.join(" "))
            }
        };
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes()).context("keep a result")
    }

    /// Those that the compiler refused.
    pub(super) fn untyped(&self) -> BTreeSet<&str> {
        let untyped = self.known.iter().filter(|(_, known)| matches!(known, Known::Untyped));
        untyped.map(|(key, _)| key.as_str()).collect()
    }
}
