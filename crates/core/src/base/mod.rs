//! Plain values that every room uses: errors, the types of the interface, extents, ACLs, and the
//! executor that a caller hands in.
//!
//! In: nothing but their own arguments. Out: values. Called by all rooms and, where public, by callers.
//!
//! Never here: the pool, the arena, locks, or any decision about a file.

pub(crate) mod acl;
pub(crate) mod error;
pub(crate) mod exec;
pub(crate) mod extent;
pub(crate) mod lines;
pub(crate) mod types;
