//! The code of what is loaded: where its system calls stand, and jumps in their place.
//!
//! Never here: what a call does.

pub(crate) mod data;
pub(crate) mod image;
pub(crate) mod kept;
pub(crate) mod objects;
pub(crate) mod patch;
pub(crate) mod sites;
