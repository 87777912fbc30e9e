//! Paths, descriptors and errno on top of `novale-core`.
//!
//! Comes in: byte paths and descriptors of a library user ([`Files`]), or inode numbers of a shim
//! that wants only the error numbers ([`errno`]) and safe look-ups ([`lookup_held`]).
//! Called by: the FUSE shim, tests, benchmarks, programs that embed a pool.
//! Never here: FUSE, media layout, update methods.
//!
//! Library users are trusted as the owner of the pool is: this crate checks how a descriptor was
//! opened, but no permission bits. The kernel checks those for users of a mount.

mod caller;
mod description;
mod errno;
mod error;
mod files;
mod hold;
mod io;
mod open;
mod tree;
mod walk;

pub use caller::{thread_hint, wall_clock_ns};
pub use description::Fd;
pub use errno::errno;
pub use error::{Error, Result};
pub use files::{Entry, Files};
pub use hold::{hold_same, lookup_held};
pub use io::Whence;
pub use open::OpenOptions;
