//! Power cuts. A run's stores, write-backs and fences are recorded; at each fence the images that
//! a crash could leave by the hardware model (DESIGN.md section 3) are built, recovered and compared
//! with the model before and after the operation. Comes in: steps. Goes out: the first image that
//! is neither. Called by the tests. Never in here: what the bytes mean.

mod hardware;
mod images;
mod record;

pub use hardware::{Hardware, LINE_BYTES, LineBytes, LineKey, Pending};
pub use images::{Choice, Effort, Image, images};
pub use record::{Event, Recorder, What};
