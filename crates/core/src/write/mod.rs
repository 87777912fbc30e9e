//! Changes of file contents: `plan` says how a write is made, and each write method has a file; `range`
//! changes where bytes stand.
//!
//! In: an inode, a range and its new bytes. Out: a durable commit, or an error and nothing changed. Each
//! public operation begins a call, locks the inode and chooses the method that suits the range.
//!
//! Never here: the commit protocol itself (`op`), or the search for current bytes (`map`).

pub(crate) mod append;
pub(crate) mod benefit;
pub(crate) mod buffered;
pub(crate) mod cow;
pub(crate) mod fine_log;
pub(crate) mod in_place;
pub(crate) mod lawn;
mod paired;
pub(crate) mod plan;
pub(crate) mod range;
pub(crate) mod small;
pub(crate) mod source;
pub(crate) mod undo;
