//! `novale-lab replay`: a failure's sequence, once more.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use novale_lab::campaign::parse_replay;
use novale_lab::crash::explore;

use super::Verdict;
use super::run::switch_bug;

/// Run the sequence of a file that `run` left, with the same power cuts.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The file.
    file: PathBuf,
    /// Switch a seeded bug on, as `bugs` names it.
    #[arg(long, value_name = "NAME")]
    bug: Option<String>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let name = args.file.display();
    let text = std::fs::read_to_string(&args.file).with_context(|| format!("read {name}"))?;
    let case = parse_replay(&text).map_err(|why| anyhow!("{name}: {why}"))?;
    switch_bug(args.bug.as_deref())?;
    match explore(&case.steps, &case.options) {
        Ok(summary) => {
            say!("no violation in {} crash states", summary.images);
            Ok(Verdict::Clean)
        }
        Err(failure) => {
            say!("{failure}");
            Ok(Verdict::Violated)
        }
    }
}
