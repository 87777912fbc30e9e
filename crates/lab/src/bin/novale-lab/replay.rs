//! `novale-lab replay`: a failure's sequence, once more.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use novale_lab::campaign::parse_replay;
use novale_lab::crash::explore;

use super::Verdict;

/// Run the sequence of a file that `run` left, with the same power cuts.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The file.
    file: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let name = args.file.display();
    let text = std::fs::read_to_string(&args.file).with_context(|| format!("read {name}"))?;
    let case = parse_replay(&text).map_err(|why| anyhow!("{name}: {why}"))?;
    match explore(&case.steps, &case.options) {
        Ok(summary) => {
            println!("no violation in {} crash states", summary.images);
            Ok(Verdict::Clean)
        }
        Err(failure) => {
            println!("{failure}");
            Ok(Verdict::Violated)
        }
    }
}
