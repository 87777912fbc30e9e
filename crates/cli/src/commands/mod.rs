//! The other commands, a file each.
//!
//! Never here: what a user of the libraries would want.

pub(crate) mod check;
pub(crate) mod dump;
pub(crate) mod failing;
pub(crate) mod info;
pub(crate) mod install;
pub(crate) mod manual;
pub(crate) mod mkfs;
pub(crate) mod quota;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod set;
pub(crate) mod slot;
pub(crate) mod stats;
pub(crate) mod wear;
