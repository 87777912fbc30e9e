//! What stands between C and Rust: arguments, handles, and what a call returns.
//!
//! Never here: what a call does.

pub(crate) mod args;
pub(crate) mod forks;
pub(crate) mod handle;
pub(crate) mod listing;
pub(crate) mod reply;
pub(crate) mod text;
pub(crate) mod version;
