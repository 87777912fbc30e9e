//! Paths, descriptors and errno on top of `novale-core`.
//!
//! Comes in: byte paths and descriptors of a library user ([`Pool`], [`Files`]), or inode numbers of a
//! shim that wants only the error numbers ([`errno`]) and safe look-ups ([`lookup_held`]).
//! Called by: the FUSE shim, tests, benchmarks, programs that embed a pool.
//! Never here: FUSE, media layout, update methods.
//!
//! Library users are trusted as the owner of the pool is: this crate checks how a descriptor was
//! opened, but no permission bits. The kernel checks those for users of a mount. Set-id bits fall as
//! for the user given with [`Files::owner`]; user 0 keeps them alive.
//!
//! ```
//! use novale_posix::{MakePool, Pool, make_pool};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let slots = ["/dev/shm/pool"]; // all slots of the pool
//! # let slots = [folder.path().join("pool")];
//! make_pool(&slots, &MakePool { slot_bytes: Some(64 << 20), ..MakePool::default() })?;
//! let pool = Pool::open(&slots)?; // alone, or beside those who share it
//! pool.create_dir_all("/a/b", 0o755)?;
//! pool.write_file("/a/b/c", b"durable once this returns")?;
//! assert_eq!(pool.read_file("/a/b/c")?.len(), 25);
//! pool.close()?;
//! # Ok(()) }
//! ```
//!
//! With memory, clocks or threads of one's own, [`Files::new`] puts the same on any open
//! [`novale_core::Fs`].

pub mod by_number;
mod caller;
pub mod confinement;
mod costs;
mod errno;
mod error;
mod file;
mod files;
mod flags;
mod hold;
mod io;
pub mod join;
mod listing;
mod make;
mod map;
mod open;
mod owner;
mod pool;
mod position;
pub mod program;
pub mod report;
mod room;
mod set_id;
mod shared;
pub mod slots;
mod table;
mod threads;
mod tree;
mod vectored;
mod walk;
mod xattr;

pub use caller::{process_owner, thread_hint, wall_clock_ns};
pub use costs::measure_costs;
pub use errno::errno;
pub use error::{Error, Result};
pub use file::File;
pub use files::{Entry, Files};
pub use flags::{fallocate_mode, xattr_mode};
pub use hold::{hold_same, lookup_held};
pub use listing::{Span, after_dots, list, list_dots};
pub use make::{
    MakeError, MakePool, OUR_FORMAT, SlotFile, foreign_slot, make_pool, mkfs_options, mkfs_over,
    slot_head, what_it_holds,
};
pub use map::{Map, Replica};
pub use novale_pm::{slot_failed_at, survive_failing_slots};
pub use open::OpenOptions;
pub use pool::Pool;
pub use position::{Target, Whence, Written, sought, write, write_durable};
pub use room::{ROOM_PATIENCE, again_with_room};
pub use set_id::{Changer, SET_ID};
pub use table::Fd;
pub use threads::AllCpus;
pub use walk::{Found, Start, may_as_owner, walk_from, walk_own, walk_own_to_name, walk_to_name};
pub use xattr::At;

/// The README's example, compiled with the doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
