//! Seeded bugs: known ones of other file systems and the traps of this design, each switched on in the
//! product in turn (`novale_core::seeded`), and each found by a short sequence that is kept as a file.
//!
//! - `table` names them, says where they come from, and how each is caught.
//! - `run` runs a sequence with its bug and without; `find` looks for a new sequence.
//!
//! One bug at a time, for the switch holds for the whole process. Called by `novale-lab bugs`. Never
//! here: what the bugs do; that is in the product, where each is switched on.

mod find;
mod run;
mod table;

pub use find::find;
pub use run::{Fate, Tried, run_canary, run_one};
pub use table::{BUGS, By, SeededBug, named};
