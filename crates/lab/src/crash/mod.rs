//! Power cuts. A run's stores, write-backs and fences are recorded; at each fence the images that
//! a crash could leave by the hardware model (DESIGN.md section 3) are built, recovered and compared
//! with the model before and after the operation. Comes in: steps. Goes out: the first image that
//! is neither. Called by the tests. Never in here: what the bytes mean.

mod cut_off;
mod explore;
mod explorer;
mod hardware;
mod images;
mod probe;
mod record;
mod recover;

pub use explore::{CrashFailure, CrashOptions, CrashSummary, explore, small_step};
pub use hardware::{Hardware, LINE_BYTES, LineBytes, LineKey, Pending};
pub use images::{Choice, Effort, Image, images};
pub use probe::probe;
pub use record::{Event, Recorder, What};
pub use recover::{Allowed, Bench, Depth};
