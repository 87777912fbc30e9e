//! Memory that is taken back: pages of logs whose entries are dead, and views of inodes that were not
//! used lately.
//!
//! In: a locked inode, or a hint that the arena is short of memory. Out: free pages. Called at the end of
//! operations that grew a log, and at the begin of any operation under memory pressure.
//!
//! Never here: freeing of file data; the commit that replaces data frees it.

pub(crate) mod collect;
pub(crate) mod forget;
mod needed;
