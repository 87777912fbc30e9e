//! Clients that die. Comes in: what was done before, and an operation in the middle of which its
//! client dies; or how many processes are to be killed at any time. Goes out: what the survivors make
//! of it. Called by the tests and `novale-lab clients`. Never in here: how settling works.

mod calls;
mod child;
mod death;
mod failed;
mod field;
mod holding;
mod hunt;
mod judge;
mod mounted;
mod settled;
mod user;
mod worker;

pub use calls::{CallsReport, fail_calls};
pub use death::{DeathOptions, DeathSummary, die_everywhere, die_settling};
pub use failed::Failed;
pub use field::keep_pool;
pub use holding::{Holding, die_holding};
pub use hunt::{Hunt, HuntReport};
pub use settled::{Settled, SettledAct, settle_once};
pub use worker::{WorkerArgs, work};

pub use crate::crash::Points;
