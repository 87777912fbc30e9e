//! Names: directories, and the operations that add, move and remove names.
//!
//! In: directories and names. Out: one commit of all inodes that change, through the journal of a lane
//! ([`crate::name::transaction`]). Called through the public methods of [`crate::Fs`].
//!
//! Never here: paths; a caller walks them.

pub(crate) mod create;
pub(crate) mod dir;
pub(crate) mod parent;
pub(crate) mod rename;
pub(crate) mod transaction;
pub(crate) mod tree;
pub(crate) mod unnamed;
