//! The oracle of Novale's tests: a file system in plain collections, obviously right rather than
//! fast. It depends on nothing, so that no mistake of the product can be shared by it, and keeps no
//! promise about crashes: it is the state that a strict file system shows after each operation.
//!
//! [`Model`] runs operations by inode number, as the product's library does; [`Tree`] is a snapshot
//! of all that a user can see, comparable, with a readable difference.

mod buffered;
mod contents;
mod files;
mod invariants;
mod loose;
mod mapped;
mod names;
mod rename;
mod state;
mod tree;
mod types;
mod xattr;

pub use contents::{Contents, PAGE_BYTES};
pub use state::Model;
pub use tree::{Node, Tree};
pub use types::{
    Atime, Attr, Error, Ino, Kind, MAX_FILE_BYTES, NAME_BYTES_MAX, NewInode, RangeOp, RenameMode,
    Result, SetAttr, XattrMode,
};
