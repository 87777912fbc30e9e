//! The seam for the one who watches the stores: the crash lab's recorder, fault injection.

use std::panic::Location;
use std::sync::Arc;

use novale_layout::PmAddr;

use crate::Purpose;

/// How a store may persist in part (DESIGN.md section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreKind {
    /// A bulk copy: until written back and fenced, any subset of its 8-byte units may persist.
    Plain,
    /// 8-byte stores in ascending order: within a line, a prefix persists.
    Ordered,
    /// Streaming stores: any subset of the 8-byte units until the fence; no write-back is owed.
    Streaming,
}

/// One store, told just before it is executed.
#[derive(Debug, Clone, Copy)]
pub struct StoreEvent<'a> {
    /// First byte stored.
    pub addr: PmAddr,
    /// What is stored there.
    pub bytes: &'a [u8],
    /// How it may persist in part.
    pub kind: StoreKind,
    /// What it is for.
    pub purpose: Purpose,
    /// The call outside of this crate that stores.
    pub site: &'static Location<'static>,
}

/// Told of every store, write-back and fence, on the thread that executes it, just before.
///
/// A call of [`Pm`](crate::Pm) may arrive as several events (an unaligned stream has plain edges);
/// a line that a streaming event covers needs no write-back event.
pub trait Observer: Send + Sync {
    /// `event` is about to be stored.
    fn store(&self, event: StoreEvent<'_>);

    /// The lines that `len` bytes from `addr` touch are about to be written back.
    fn write_back(
        &self,
        addr: PmAddr,
        len: u64,
        purpose: Purpose,
        site: &'static Location<'static>,
    );

    /// A fence is about to complete this thread's write-backs and streaming stores.
    fn fence(&self, site: &'static Location<'static>);

    /// That fence has completed them.
    fn fenced(&self) {}

    /// Whether [`Observer::store`] is to be shown what a copy within the pool stores, which takes a copy
    /// of it; without, such a copy is told as a write-back of its lines alone.
    fn sees_bytes(&self) -> bool {
        true
    }

    /// `len` bytes from `addr` are about to be copied out; with `false` they can't be read, as those
    /// outside of the pool. Asked only where the feature `lab` is compiled in: without it a load costs
    /// no look for an observer.
    fn load(&self, addr: PmAddr, len: u64) -> bool {
        let _ = (addr, len);
        true
    }
}

/// Two who watch: the first one is told first.
pub struct Both(pub Arc<dyn Observer>, pub Arc<dyn Observer>);

impl std::fmt::Debug for Both {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Both").finish_non_exhaustive()
    }
}

impl Observer for Both {
    fn store(&self, event: StoreEvent<'_>) {
        self.0.store(event);
        self.1.store(event);
    }

    fn write_back(
        &self,
        addr: PmAddr,
        len: u64,
        purpose: Purpose,
        site: &'static Location<'static>,
    ) {
        self.0.write_back(addr, len, purpose, site);
        self.1.write_back(addr, len, purpose, site);
    }

    fn fence(&self, site: &'static Location<'static>) {
        self.0.fence(site);
        self.1.fence(site);
    }

    fn fenced(&self) {
        self.0.fenced();
        self.1.fenced();
    }

    fn sees_bytes(&self) -> bool {
        self.0.sees_bytes() || self.1.sees_bytes()
    }

    fn load(&self, addr: PmAddr, len: u64) -> bool {
        self.0.load(addr, len) && self.1.load(addr, len)
    }
}
