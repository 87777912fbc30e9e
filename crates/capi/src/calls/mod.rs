//! The calls, by what they are about.
//!
//! Never here: a rule that a Rust user of `novale-posix` would want as well.

pub(crate) mod attributes;
pub(crate) mod directory;
pub(crate) mod file;
pub(crate) mod map;
pub(crate) mod method;
pub(crate) mod names;
pub(crate) mod pool;
pub(crate) mod xattr;
