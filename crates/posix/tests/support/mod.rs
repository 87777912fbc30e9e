//! A file system of the test's own, in private memory.

#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]

use std::sync::Arc;

use novale_arena::Arena;
use novale_core::{Fs, MkfsOptions, OpenOptions, Serial, mkfs};
use novale_pm::{Pm, PmOptions};
use novale_posix::Files;

pub(crate) fn files() -> Files {
    Files::new(fs(64 << 20))
}

/// One of so many bytes.
pub(crate) fn fs(bytes: u64) -> Arc<Fs> {
    let pm = Pm::anonymous(&[bytes], &PmOptions::default()).unwrap();
    mkfs(&pm, &MkfsOptions::numbered(1, 4)).unwrap();
    let arena = Arena::anonymous(256 << 20).unwrap();
    Arc::new(Fs::open(pm, arena, &OpenOptions::default(), &Serial, &|_| ()).unwrap())
}
