//! A file system of the test's own, in private memory.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]

use std::sync::Arc;

use novale_arena::Arena;
use novale_core::{Fs, MkfsOptions, OpenOptions, Serial, mkfs};
use novale_pm::{Pm, PmOptions};
use novale_posix::Files;

pub(crate) fn files() -> Files {
    let pm = Pm::anonymous(&[64 << 20], &PmOptions::default()).unwrap();
    mkfs(&pm, &MkfsOptions::numbered(1, 4)).unwrap();
    let arena = Arena::anonymous(256 << 20).unwrap();
    let fs = Fs::open(pm, arena, &OpenOptions::default(), &Serial, &|_| ()).unwrap();
    Files::new(Arc::new(fs))
}
