//! Clients that die. Comes in: what was done before, and an operation in the middle of which its
//! client dies. Goes out: what the survivors make of it. Called by the tests and `novale-lab
//! clients`. Never in here: how settling works.

mod death;

pub use death::{DeathOptions, DeathSummary, die_everywhere};
