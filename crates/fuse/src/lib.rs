//! The mount: a Novale file system for every program and user, through FUSE.
//!
//! Comes in: requests of the kernel, by a [`Transport`]; mount options; an open `novale_core::Fs`.
//! Called by: the `novale` program, tests.
//! Never here: paths, policies, media layout, the command line.
//!
//! A request takes three steps, each in its own file: a [`Transport`] (`fuser_transport.rs`) turns
//! bytes of `/dev/fuse` into a call of the [`Service`] trait; [`Novale`] (`novale.rs`) looks up, calls
//! the core once and returns a plain result; `cache.rs` says what the kernel may keep of it. Another
//! transport, FUSE over `io_uring` say, takes `fuser_transport.rs`'s place and nothing else changes.
//! [`Server`] ties a mount to a transport and ends both in order.

mod aside;
mod asking;
mod by_number;
mod cache;
mod calling;
mod follow;
mod fuser_convert;
mod fuser_drops;
mod fuser_names;
mod fuser_transport;
mod fuser_writes;
mod fusermount;
mod gate;
mod groups;
mod holes;
mod late;
mod locked;
mod looked;
mod mapped;
mod method;
mod mount;
mod mount_table;
mod novale;
mod options;
mod place;
mod readdir;
mod room;
mod server;
mod service;
mod stores;
mod threads;
mod transport;
mod tree;
mod unmount;
mod wire;

pub use cache::Atime;
pub use fuser_transport::FuserTransport;
pub use mount::{KIND, MountError, Mounted, cut, detach_dead, find, mount, mount_again, remount};
pub use mount_table::{MountEntry, MountTable};
pub use novale::{FACTS, Novale, SLOTS, Settings};
pub use options::{MountOptions, UnknownOption};
pub use server::{EndError, Server, ServerConfig, ShutDown};
pub use service::{
    Caller, Changes, Errno, Listed, OpenRequest, Opened, ReadFrom, Reply, Service, Sought, Time,
};
pub use threads::start_thread;
pub use transport::{Connection, Transport};
pub use unmount::{Unmount, unmount};
