//! How a pool's slots are named and opened.

use std::path::PathBuf;
use std::sync::Arc;

use crate::{Observer, WriteBackKind};

/// Where a slot is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotSpec {
    /// An ordinary file, a file on a DAX file system, or a DAX character device.
    pub path: PathBuf,
}

impl SlotSpec {
    /// The slot at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }
}

/// What a slot was found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SlotKind {
    /// An ordinary file, mapped shared: durable as far as its memory is (tmpfs: until shutdown).
    File,
    /// A file on a DAX file system, mapped with `MAP_SYNC`.
    DaxFile,
    /// A DAX character device.
    DaxDevice,
    /// Private memory of this process.
    Anonymous,
}

/// What memory a slot's bytes are in, by the kernel's word: whether what is written back and fenced
/// survives a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SlotMemory {
    /// Of a file on a DAX file system: `MAP_SYNC` works. Survives.
    DaxFile,
    /// A DAX device's. Survives.
    DaxDevice,
    /// A virtio-pmem device's: what the machine's host has in its page cache. A store is durable there
    /// once the host was asked to flush, which a DAX device has no call for.
    VirtioPmem,
    /// Plain memory that the kernel was told to set aside (`memmap=512M!1G`), on a DAX device or below
    /// a file system: survives what leaves memory alone, such as kexec.
    SetAside,
    /// A tmpfs: what is in it survives the processes, not the machine's next start.
    Tmpfs,
    /// A ramfs: likewise.
    Ramfs,
    /// A hugetlbfs: likewise.
    Hugetlbfs,
    /// The kernel's page cache of an ordinary file, written to its medium by and by and in any order:
    /// survives the processes, and of a machine's crash what was written.
    PageCache,
    /// This process' own, gone with it.
    Private,
}

impl SlotMemory {
    /// Whether what is written back and fenced survives a power cut.
    #[must_use]
    pub fn survives_power_cuts(self) -> bool {
        matches!(self, Self::DaxFile | Self::DaxDevice)
    }
}

/// How slots are locked: two writers that do not know of each other would destroy the pool. The
/// locks go with the last descriptor of the slots' files, so a dead process holds none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SlotLock {
    /// For this opening alone; fails where anybody has a lock.
    #[default]
    Exclusive,
    /// Beside others that share one arena: to join them. Fails where somebody has the pool alone.
    Shared,
    /// The caller has seen to it.
    Held,
}

/// How to open a pool's slots.
#[derive(Clone, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct PmOptions {
    /// Map without write permission; every store is then a programmer error.
    pub read_only: bool,
    /// Map privately: stores are seen by this process alone and never reach the slots. A trial run.
    pub scratch: bool,
    /// Fault all pages in now, so that no access faults later.
    pub populate: bool,
    /// Ask for 2 MB pages; what the kernel refuses stays on 4 KB pages. A file of tmpfs that is new gets
    /// them for the one who maps it later as well.
    pub hugepages: bool,
    /// The write-back instruction; `None` takes the best that the CPU has.
    pub write_back: Option<WriteBackKind>,
    /// Caches persist (eADR): write-backs are left out, fences stay. `None` means no.
    pub eadr: Option<bool>,
    /// Told of every store, write-back and fence.
    pub observer: Option<Arc<dyn Observer>>,
    /// The flock(2) locks that opening for writing takes on the slots.
    pub lock: SlotLock,
    /// The least number that a slot's descriptor may get; 0 for any. A library inside a program that
    /// counts on the lowest numbers keeps out of its way.
    pub descriptors_from: u32,
    /// File systems and inodes: a slot that is a file must be one of these. Who has looked at files by their
    /// paths, and locked them, opens no others that have come there since. Empty for any.
    pub only: Vec<(u64, u64)>,
}

impl std::fmt::Debug for PmOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PmOptions")
            .field("read_only", &self.read_only)
            .field("scratch", &self.scratch)
            .field("populate", &self.populate)
            .field("hugepages", &self.hugepages)
            .field("write_back", &self.write_back)
            .field("eadr", &self.eadr)
            .field("observer", &self.observer.is_some())
            .field("lock", &self.lock)
            .field("descriptors_from", &self.descriptors_from)
            .field("only", &self.only)
            .finish()
    }
}
