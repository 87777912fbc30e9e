//! A small pool in plain memory for the tests inside this crate.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use novale_arena::{Arena, AtomicU64};
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

/// No allocation is refused.
pub(crate) const NONE: u64 = u64::MAX;

/// The file system on a pool; behind as many allocations as `granted` says one is refused, or all are where that lasts.
pub(crate) fn open_refusing(pm: Pm, granted: &Arc<AtomicU64>, lasts: bool) -> Fs {
    let arena = Arena::anonymous(16 * MB).unwrap();
    let granted = granted.clone();
    let grants = move || match granted.load(Relaxed) {
        NONE => true,
        0 => {
            granted.store(if lasts { 0 } else { NONE }, Relaxed);
            false
        }
        left => {
            granted.store(left - 1, Relaxed);
            true
        }
    };
    assert!(arena.set_grant_probe(Box::new(grants)));
    Fs::open(pm, arena, &OpenOptions::default(), &Serial, &|_| ()).unwrap()
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
