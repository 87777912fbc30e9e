//! Paths, descriptors and errno on top of `novale-core`.
//!
//! Comes in: byte paths and descriptors of a library user ([`Files`]), or inode numbers of a shim
//! that wants only the error numbers ([`errno`]) and safe look-ups ([`lookup_held`]).
//! Called by: the FUSE shim, tests, benchmarks, programs that embed a pool.
//! Never here: FUSE, media layout, update methods.
//!
//! Library users are trusted as the owner of the pool is: this crate checks how a descriptor was
//! opened, but no permission bits. The kernel checks those for users of a mount. Set-id bits fall as
//! for the user given with [`Files::owner`]; user 0 keeps them alive.
//!
//! ```
//! use std::sync::Arc;
//! use novale_arena::Arena;
//! use novale_core::{Fs, MkfsOptions, OpenOptions, Serial, mkfs};
//! use novale_pm::{Pm, PmOptions};
//! use novale_posix::Files;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pm = Pm::anonymous(&[64 << 20], &PmOptions::default())?; // or Pm::open, of files
//! let made = MkfsOptions {
//!     lanes: 4, pool_uuid: [1; 16], slot_uuids: vec![[2; 16]], now_ns: 0,
//!     root_uid: 0, root_gid: 0, root_mode: 0o755,
//! };
//! mkfs(&pm, &made)?;
//! let arena = Arena::anonymous(256 << 20)?;
//! let fs = Arc::new(Fs::open(pm, arena, &OpenOptions::default(), &Serial, &|_| ())?);
//!
//! let files = Files::new(fs.clone());
//! files.create_dir_all("/a/b", 0o755)?;
//! files.write_file("/a/b/c", b"durable once this returns")?;
//! assert_eq!(files.read_file("/a/b/c")?.len(), 25);
//! fs.close()?;
//! # Ok(()) }
//! ```

mod caller;
mod errno;
mod error;
mod file;
mod files;
mod flags;
mod hold;
mod io;
pub mod join;
mod open;
mod owner;
mod set_id;
mod shared;
mod table;
mod tree;
mod vectored;
mod walk;
mod xattr;

pub use caller::{thread_hint, wall_clock_ns};
pub use errno::errno;
pub use error::{Error, Result};
pub use file::{File, Whence};
pub use files::{Entry, Files};
pub use flags::fallocate_mode;
pub use hold::{hold_same, lookup_held};
pub use open::OpenOptions;
pub use set_id::{drop_set_id, set_id_to_clear, set_id_to_clear_with_owner};
pub use table::Fd;
pub use xattr::At;
