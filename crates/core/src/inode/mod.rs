//! One inode: its place and lines in the inode table, its number, its volatile view, and the index of
//! names in the view of a directory.
//!
//! In: a place in the pool or a block of the arena. Out: what stands there, checked. Readers of a view take
//! no lock; writers hold the lock of the inode, which `op` takes.
//!
//! Never here: commits. What stands on media changes in `op` alone.

pub(crate) mod benefit;
pub(crate) mod buffer;
pub(crate) mod chunks;
pub(crate) mod dir_index;
pub(crate) mod media;
pub(crate) mod numbers;
pub(crate) mod pairs;
pub(crate) mod slots;
pub(crate) mod state;
pub(crate) mod view;
pub(crate) mod words;
