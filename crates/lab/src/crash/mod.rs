//! Power cuts. A run's stores, write-backs and fences are recorded; at each fence the images that
//! a crash could leave by the hardware model (DESIGN.md section 3) are built, recovered and compared
//! with the model before and after the operation. Comes in: steps. Goes out: the first image that
//! is neither. Called by the tests. Never in here: what the bytes mean.

mod cut_off;
mod durable;
mod dying;
mod explore;
mod explorer;
mod flight;
mod hardware;
mod images;
mod judge;
mod probe;
mod record;
mod recover;
mod schedule;
mod sight;
mod tracker;

pub use durable::StateHash;
pub(crate) use dying::{Act, die, place, settling};
pub use explore::{CrashFailure, CrashOptions, CrashSummary, explore, explore_beside, small_step};
pub(crate) use explorer::{check_alike, visible_after_crash};
pub use hardware::{Caches, Hardware, LINE_BYTES, LineBytes, LineKey, Pending};
pub use images::{
    Choice, Effort, Image, images, images_at_store, images_by_units, images_in_store,
};
pub use probe::{BYTES_ROOMY, probe, probe_below};
pub use record::{Event, Recorder, What};
pub use recover::{Allowed, Bench, Depth, Judged, State};
pub(crate) use recover::{look_at_names, take_out};
pub use schedule::Points;
pub use tracker::{Point, Tracker};
