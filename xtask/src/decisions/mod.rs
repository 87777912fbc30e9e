//! `cargo xtask decisions`: mutants of the decisions in core and arena.
//!
//! `operators` finds them in the syntax tree, `tree` writes a copy of the workspace below
//! `target/decisions` with all of them behind one switch (`switch.rs`), `check` drops those that the
//! compiler refuses, `killers` lists what may catch one and what each reaches, `hunt` runs killers in
//! children with limits (`child`), `results` keeps what came of it, `report` tells. Never here: what a
//! correct file system does; the killers say that.

mod accepted;
mod check;
mod child;
mod hunt;
mod killers;
mod mutant;
mod operators;
mod options;
mod report;
mod results;
mod tree;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::Xxh3;

use self::accepted::Accepted;
use self::hunt::Hunt;
use self::killers::Killer;
use self::mutant::Mutant;
pub(crate) use self::options::{Options, USAGE};
use self::results::{Fate, Known, Results};
use self::tree::Sources;

/// Runs the command.
pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<()> {
    let start = Instant::now();
    let folder = root.join("target/decisions");
    std::fs::create_dir_all(&folder)?;
    let sources = Sources::read(root)?;
    let accepted = Accepted::read(root)?;
    for row in accepted.idle(&sources.mutants) {
        println!("no mutant is of the row: {row}");
    }
    let killers = prepared(root, &folder, &sources, options)?;
    let results = Results::open(&folder.join("results"), options.again)?;
    let chosen = options.chosen(&sources, &results.untyped());
    eprintln!(
        "{} s: {} killers, {} mutants",
        start.elapsed().as_secs(),
        killers.len(),
        chosen.len()
    );
    let hunt = Hunt {
        sources: &sources,
        killers: &killers,
        accepted: &accepted,
        results: &results,
        scratch: &folder.join("scratch"),
        each: Duration::from_secs(options.each),
        until: Instant::now() + Duration::from_secs(options.seconds),
        threads: options.threads,
    };
    let mut fates = hunt.run(&chosen)?;
    let told: Vec<(&Mutant, Fate)> =
        chosen.iter().filter_map(|id| Some((sources.mutant(*id)?, fates.remove(id)?))).collect();
    report::print(&told, &accepted);
    println!(
        "{} of {} chosen were not tried; {} s",
        chosen.len() - told.len(),
        chosen.len(),
        start.elapsed().as_secs()
    );
    Ok(())
}

/// The copy with its mutants, built, and its killers, measured.
fn prepared(
    root: &Path,
    folder: &Path,
    sources: &Sources,
    options: &Options,
) -> anyhow::Result<Vec<Killer>> {
    let tree = folder.join("tree");
    let results = Results::open(&folder.join("results"), false)?;
    let untyped = results.untyped();
    let numbered = || (1..).zip(&sources.mutants);
    let refused = numbered().filter(|(_, mutant)| untyped.contains(sources.key(mutant).as_str()));
    let known: BTreeSet<usize> = refused.map(|(id, _)| id).collect();
    let mut dropped = known.clone();
    check::drop_untyped(root, &tree, sources, &mut dropped)?;
    for (_, mutant) in numbered().filter(|(id, _)| dropped.contains(id) && !known.contains(id)) {
        results.keep(&sources.key(mutant), &Known::Untyped)?;
    }
    eprintln!(
        "{} mutants: {}",
        sources.mutants.len() - dropped.len(),
        check::by_operator(sources, &dropped)
    );
    // What killers reach is known for these mutants under these numbers, whatever tests stand beside.
    let mut build = Xxh3::new();
    for mutant in &sources.mutants {
        build.update(sources.key(mutant).as_bytes());
    }
    let killers = killers::built(&tree, options)?;
    killers::measured(&killers, sources.mutants.len(), build.digest(), folder, options)
}
