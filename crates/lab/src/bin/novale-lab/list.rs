//! `novale-lab list`: the workloads by name.

use novale_lab::campaign::WORKLOADS;

use super::Verdict;

/// Name the workloads of `run` and say what each does.
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) fn run(_: &Args) -> Verdict {
    let width = WORKLOADS.iter().map(|workload| workload.name.len()).max().unwrap_or(0);
    for workload in WORKLOADS {
        say!("{:width$}  {}", workload.name, workload.what);
    }
    Verdict::Clean
}
