//! Mutation score: is each store, write-back and fence of the product needed, and noticed when gone.
//!
//! A workload runs once and is recorded; a mutant is the recording with the events of one place left
//! out, left in the cache, or swapped with the next ones. The memory's model replays it beside the
//! original, and where the two differ the images that only the mutant can leave are recovered and
//! judged. A wrong one catches the mutant. Nothing is compiled again, and the recorded process is the
//! sound one: it still sees its own stores, as a process sees what its caches hold.
//!
//! - `key` names places and makes mutants, `recording` runs workloads, `fork` their recoveries, `repairs`
//!   repairs of damaged pools.
//! - `trial` replays one mutant, `judge` judges its images, `score` tries all of them; `workloads` says on
//!   what.
//! - `pm` does the same for the instructions in `pm`, which have no recovery to be seen by.
//! - `sites` compares what was reached with the source; `needless` holds the explained survivors, `kept`
//!   what earlier runs caught.
//!
//! Called by `novale-lab mutants` and its test. Never here: what the bytes mean.

mod fork;
mod judge;
mod kept;
mod key;
mod needless;
mod pm;
mod recording;
mod repairs;
mod score;
mod sites;
mod trial;
mod workloads;

pub use kept::Kept;
pub use key::{Does, How, Key, Mutant, Site};
pub use pm::{PmMutant, PmReport, try_pm};
pub use score::{ALIKE_MAX, Fate, Options, Report, Score, run_until};
pub use sites::{Call, Reach, calls_in_core};
