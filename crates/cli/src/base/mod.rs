//! What all commands share: arguments, words, sizes, progress, what is printed.
//!
//! Never here: pools, mounts.

pub(crate) mod args;
pub(crate) mod buffer;
pub(crate) mod full;
pub(crate) mod out;
pub(crate) mod progress;
pub(crate) mod size;
pub(crate) mod target;
pub(crate) mod voice;
pub(crate) mod words;
