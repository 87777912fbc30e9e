//! Campaigns: many sequences under power cuts, on every core, until the time is up. `workloads` says
//! which sequences there are (`shapes` count them off, `drawn` and `flights` draw them, `vary` grows them), `turns`
//! whose turn it is, `run` runs them beside each other, `reduce` makes a failure short, `replay` is
//! the file that it leaves. Comes in: a seed and a time. Goes out: what was tried, and the failures.
//! Called by `novale-lab` and the tests. Never in here: what a crash image is (`crash`).

mod drawn;
mod flights;
mod reduce;
mod replay;
mod run;
mod shapes;
mod turns;
mod vary;
mod workloads;

pub use replay::{parse_replay, print_replay};
pub use run::{Campaign, Rates, Report, Violation};
pub use turns::Turn;
pub use workloads::{Case, How, WORKLOADS, Workload};
