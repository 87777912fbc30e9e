//! What the pointers stand for that C programs hold: pools, files, directories.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use novale_posix::{File, Map, Pool as OpenPool, Replica};

use crate::border::forks;
use crate::border::listing::Listing;

/// The first word of a handle: what it is, as long as it is open, and in which process.
///
/// It comes first in each of them: of a handle of another kind no more may be there to be looked at.
/// It finds mistakes, such as a file that is given where a directory belongs, or closed twice, and
/// makes nothing safe that the caller must not do.
pub(crate) struct Seal {
    tag: AtomicU64,
    forks: u32,
}

impl Seal {
    fn new(tag: u64) -> Self {
        Self { tag: AtomicU64::new(tag), forks: forks::count() }
    }

    pub(crate) fn is(&self, tag: u64) -> bool {
        self.tag.load(Ordering::Relaxed) == tag
    }

    pub(crate) fn is_of_this_process(&self) -> bool {
        self.forks == forks::count()
    }

    /// Ends it; says whether it was whole.
    pub(crate) fn break_open(&self, tag: u64) -> bool {
        self.tag.compare_exchange(tag, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// Something that a C program has a pointer to.
pub(crate) trait Handle {
    /// Tells its kind from the others.
    const TAG: u64;
    fn seal(&self) -> &Seal;
}

/// An open pool.
#[repr(C)]
pub struct Pool {
    seal: Seal,
    pub(crate) pool: OpenPool,
}

/// An open file or directory.
#[repr(C)]
pub struct OpenFile {
    seal: Seal,
    pub(crate) file: File,
}

/// A directory that is being listed.
#[repr(C)]
pub struct Directory {
    seal: Seal,
    pub(crate) listing: Mutex<Listing>,
}

/// What is mapped.
pub(crate) enum Mapped {
    Own(Map),
    Replica(Mutex<Replica>),
}

/// A mapping of a file.
#[repr(C)]
pub struct Mapping {
    seal: Seal,
    pub(crate) mapped: Mapped,
}

impl Mapping {
    pub(crate) fn new(mapped: Mapped) -> Self {
        Self { seal: Seal::new(Self::TAG), mapped }
    }
}

impl Handle for Mapping {
    const TAG: u64 = u64::from_le_bytes(*b"nv map\0\0");

    fn seal(&self) -> &Seal {
        &self.seal
    }
}

impl Pool {
    pub(crate) fn new(pool: OpenPool) -> Self {
        Self { seal: Seal::new(Self::TAG), pool }
    }
}

impl OpenFile {
    pub(crate) fn new(file: File) -> Self {
        Self { seal: Seal::new(Self::TAG), file }
    }
}

impl Directory {
    pub(crate) fn new(listing: Listing) -> Self {
        Self { seal: Seal::new(Self::TAG), listing: Mutex::new(listing) }
    }
}

impl Handle for Pool {
    const TAG: u64 = u64::from_le_bytes(*b"nv pool\0");

    fn seal(&self) -> &Seal {
        &self.seal
    }
}

impl Handle for OpenFile {
    const TAG: u64 = u64::from_le_bytes(*b"nv file\0");

    fn seal(&self) -> &Seal {
        &self.seal
    }
}

impl Handle for Directory {
    const TAG: u64 = u64::from_le_bytes(*b"nv list\0");

    fn seal(&self) -> &Seal {
        &self.seal
    }
}
