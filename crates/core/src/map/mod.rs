//! Where the current bytes of a file are: reading, direct mappings, and the pages that they hold.
//!
//! In: an inode and a range of it. Out: bytes, or addresses of pages that stay in place while they are
//! mapped. Called by `write` for the old bytes around a partial page, and by callers that map files.
//!
//! Never here: a decision about how to write.

pub(crate) mod fill;
pub(crate) mod flush;
pub(crate) mod hold;
pub(crate) mod kernel_mapped;
pub(crate) mod read;
pub(crate) mod resolve;
pub(crate) mod slots;
pub(crate) mod stores;
pub(crate) mod unpair;
pub(crate) mod write_back;
