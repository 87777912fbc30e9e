//! Steps run through system calls in a directory, to compare what a user sees on a mount with what
//! the machine's own file system shows. Comes in: steps and two directories. Goes out: the first
//! difference, in words. Called by the tests. Never in here: how a pool is mounted.

mod directory;
mod look;
mod run;

pub use directory::{RealDirectory, Seen};
pub use look::{Meta, Shown, look_at_all};
pub use run::{Difference, compare_directories};
