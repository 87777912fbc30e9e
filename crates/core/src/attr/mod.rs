//! Attributes of inodes: modes, owners, times, sizes, extended attributes and the ACLs among them.
//!
//! In: an inode and what is to change. Out: an attributes entry in its log, committed. Called through the
//! public methods of [`crate::Fs`].
//!
//! Never here: permission checks of a caller; those are made above `core`.

pub(crate) mod setattr;
pub(crate) mod xattr;
