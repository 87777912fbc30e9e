//! Memories that are emulated: delays and limits of bandwidth, as the papers' set-ups have them.
//!
//! - `spec` says what a memory takes; the presets.
//! - `calibrate` measures this machine's own memory, and refuses what it is too slow for.
//! - `clock` counts time: the processor's counter, of which all processes see the same.
//! - `model` delays; its words may be shared, so that all clients of a pool share one memory's bandwidth.
//!
//! Called by [`Pm`](crate::Pm) by way of the observer of stores, so that nobody pays who emulates
//! nothing. Never here: what is stored.

mod calibrate;
mod clock;
mod model;
mod spec;

pub use model::{MODEL_WORDS, Model};
pub use spec::{Bandwidth, Device, DeviceError};
