//! Pools in plain memory, and the file system on them.
//!
//! What comes in is a test's wish: slots' lengths, options, an event at which a client stops ([`stop`]) or a slot fails
//! ([`failing`]). The tests of this folder's parent call it, each a part. What a test promises is never judged here, but
//! that a check of a pool finds nothing.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "each test uses a part, and fails by panicking"
)]

pub(crate) mod failing;
pub(crate) mod stop;
pub(crate) mod tables;

use novale_arena::Arena;
use novale_core::{
    Ctx, Form, Fs, Ino, MkfsOptions, NewInode, Node, OpenOptions, Serial, SetAttr, SetXattr,
    UpdatePolicy, XattrMode, check, mkfs,
};
use novale_layout::FileKind;
use novale_pm::{Pm, PmOptions};

pub(crate) const MB: u64 = 1 << 20;

/// An empty pool of slots of these lengths, in bytes.
pub(crate) fn pool(lens: &[u64], lanes: u32) -> Pm {
    let pm = Pm::anonymous(lens, &PmOptions::default()).unwrap();
    mkfs(&pm, &MkfsOptions::numbered(lens.len(), lanes)).unwrap();
    pm
}

/// The file system on a pool, with an arena for the views of some ten thousand inodes.
pub(crate) fn open(pm: Pm, form: Form) -> Fs {
    open_as(pm, &OpenOptions { form, now_ns: 2, ..OpenOptions::default() })
}

pub(crate) fn open_as(pm: Pm, options: &OpenOptions) -> Fs {
    Fs::open(pm, Arena::anonymous(256 * MB).unwrap(), options, &Serial, &|_| {}).unwrap()
}

/// Fails where a check of the pool finds anything.
#[track_caller]
pub(crate) fn verify(pm: &Pm) {
    assert_eq!(check(pm, &Serial, &|_| {}).unwrap().findings, []);
}

/// Makes a file, a directory or a link.
pub(crate) fn make(fs: &Fs, ctx: &Ctx, dir: Ino, name: &str, kind: FileKind) -> Ino {
    let target: &[u8] = if kind == FileKind::Symlink { b"over there" } else { b"" };
    let new = NewInode { kind, mode: 0o755, uid: 0, gid: 0, rdev: 0, target };
    fs.create(ctx, Node::current(dir), name.as_bytes(), &new).unwrap().ino
}

/// Writes a file, and over it in pieces of 700 bytes: in slots of shared pages, where `by_lawn` says so.
pub(crate) fn write_over(fs: &Fs, ctx: &Ctx, file: Ino, contents: &[u8], by_lawn: bool) {
    fs.write(ctx, file, 0, &vec![9; contents.len()]).unwrap();
    let update = Some(by_lawn.then_some(UpdatePolicy::Lawn));
    fs.setattr(ctx, Node::current(file), &SetAttr { update, ..SetAttr::default() }).unwrap();
    for (at, bytes) in (0..).step_by(700).zip(contents.chunks(700)) {
        fs.write(ctx, file, at, bytes).unwrap();
    }
}

/// Gives a file an attribute that takes pages of its own.
pub(crate) fn set_long_attribute(fs: &Fs, ctx: &Ctx, file: Ino) {
    let (mode, clear_set_gid) = (XattrMode::Any, false);
    let long = SetXattr { name: b"user.long", value: &[3; 9000], mode, clear_set_gid };
    fs.setxattr(ctx, Node::current(file), &long).unwrap();
}
