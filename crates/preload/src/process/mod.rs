//! What becomes of the process as a whole: the programs that it starts, rules that it lays on itself, its
//! signals.
//!
//! Never here: what a call does to a file.

pub(crate) mod confined;
pub(crate) mod exec;
pub(crate) mod exec_call;
pub(crate) mod handed;
pub(crate) mod masks;
pub(crate) mod numbered;
mod place;
pub(crate) mod signals;
