//! What all operations share: the call and its operation record, locks, loading of a view, the standing
//! of an inode, the journal, the commit, quotas, and the attribute chains that a commit names.
//!
//! In: a view, new entries and new pages. Out: a durable commit. Called by every room above.
//!
//! Never here: what one kind of operation alone does.

pub(crate) mod call;
pub(crate) mod commit;
pub(crate) mod counted;
pub(crate) mod file_tx;
pub(crate) mod journal;
pub(crate) mod load;
pub(crate) mod lock;
pub(crate) mod pages;
pub(crate) mod quota;
pub(crate) mod standing;
pub(crate) mod unrecovered;
pub(crate) mod xattr_set;
