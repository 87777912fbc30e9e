//! Pools in plain memory, and the file system on them.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part, and fails by panicking")]

pub(crate) mod stop;

use novale_arena::Arena;
use novale_core::{Form, Fs, MkfsOptions, OpenOptions, Serial, check, mkfs};
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
