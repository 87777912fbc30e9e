//! The calls that are served here, by what they are about.
//!
//! Comes in: a call's arguments as registers, from [`crate::entry::dispatch`]. Goes out: its result, or nothing
//! where the kernel is to make the call. Never here: what another client of the library could use.

pub(super) mod attributes;
pub(super) mod data;
pub(super) mod descriptors;
pub(crate) mod directories;
pub(super) mod ioctls;
pub(super) mod maps;
pub(super) mod memory;
pub(super) mod names;
pub(super) mod open;
pub(super) mod pins;
pub(super) mod processes;
pub(super) mod space;
pub(super) mod transfer;
pub(super) mod written;
pub(super) mod xattrs;
