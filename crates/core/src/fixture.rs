//! A small pool in plain memory for the tests inside this crate.

use novale_arena::Arena;
use novale_layout::{FileKind, Ino};
use novale_pm::{Pm, PmOptions};

use crate::base::exec::Serial;
use crate::base::types::{Ctx, NewInode, Node};
use crate::fs::{Fs, OpenOptions};
use crate::{MkfsOptions, mkfs};

pub(crate) const CTX: Ctx = Ctx { now_ns: 1, hint: 0 };
pub(crate) const FILE: NewInode<'static> =
    NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
pub(crate) const MB: u64 = 1 << 20;

/// The file system on a pool.
pub(crate) fn open(pm: Pm) -> Fs {
    let arena = Arena::anonymous(16 * MB).unwrap();
    Fs::open(pm, arena, &OpenOptions::default(), &Serial, &|_| {}).unwrap()
}

/// An empty file system with so many lanes.
pub(crate) fn empty(lanes: u32) -> Fs {
    let pm = Pm::anonymous(&[8 * MB], &PmOptions::default()).unwrap();
    mkfs(&pm, &MkfsOptions::numbered(1, lanes)).unwrap();
    open(pm)
}

/// A file system of one lane with an empty file `f`.
pub(crate) fn with_file() -> (Fs, Ino) {
    let fs = empty(1);
    let ino = fs.create(&CTX, Node::ROOT, b"f", &FILE).unwrap().ino;
    (fs, ino)
}
