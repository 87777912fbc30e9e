//! Campaigns: many sequences under power cuts, on every core, until the time is up. `workloads` says
//! which sequences there are, `run` runs them beside each other, `replay` is the file that a failure
//! leaves. Comes in: a seed and a time. Goes out: what was tried, and each failure shrunk. Called by
//! `novale-lab` and the tests. Never in here: what a crash image is (`crash`).

mod replay;
mod run;
mod workloads;

pub use replay::{parse_replay, print_replay};
pub use run::{Campaign, Report, Violation};
pub use workloads::{Case, WORKLOADS, Workload};
