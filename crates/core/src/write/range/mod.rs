//! Operations on ranges of a file: punch, shift, allocate, copy, scattered writes.
//!
//! In: an inode and a range. Out: one commit that moves, drops or maps whole pages, after the edges inside
//! a page were copied.
//!
//! Never here: writes of a caller's bytes to one range; those are the methods in the folder above.

pub(crate) mod allocate;
pub(crate) mod copy;
pub(crate) mod punch;
pub(crate) mod scattered;
pub(crate) mod shift;
