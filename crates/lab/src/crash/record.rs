//! What a run did to the pool, in order: every store, write-back and fence with its thread.

use std::collections::BTreeSet;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

use novale_layout::PmAddr;
use novale_pm::{Observer, Purpose, StoreEvent, StoreKind};

use super::hardware::{LineKey, lines_of};
use super::schedule::{Points, is_shared, point};
use super::sight::Watch;

/// One event, told before it happens.
#[derive(Debug, Clone)]
pub struct Event {
    /// Who.
    pub thread: ThreadId,
    /// The call that caused it.
    pub site: &'static Location<'static>,
    /// What.
    pub what: What,
}

/// What happens to the pool.
#[derive(Debug, Clone)]
pub enum What {
    /// Bytes are stored.
    Store {
        /// Where.
        addr: PmAddr,
        /// What.
        bytes: Vec<u8>,
        /// How they may persist in part.
        kind: StoreKind,
        /// What for.
        purpose: Purpose,
    },
    /// The lines of a range are written back.
    WriteBack {
        /// From here.
        addr: PmAddr,
        /// So many bytes.
        len: u64,
    },
    /// The thread's write-backs and streaming stores are completed.
    Fence,
}

/// Collects events; given to `Pm` as its observer.
#[derive(Debug, Default)]
pub struct Recorder {
    events: Mutex<Vec<Event>>,
    is_deaf: AtomicBool,
    /// The lines that are loaded, where somebody asks.
    watch: Watch,
}

impl Recorder {
    /// A recorder that can also say which lines of slots of these lengths (bytes) are loaded.
    #[must_use]
    pub(super) fn watching(lens: &[u64]) -> Self {
        Self { watch: Watch::over(lens), ..Self::default() }
    }

    /// Which lines of the pool are loaded.
    pub(super) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Does something unheard.
    pub fn unheard<T>(&self, act: impl FnOnce() -> T) -> T {
        self.is_deaf.store(true, Ordering::Relaxed);
        let done = act();
        self.is_deaf.store(false, Ordering::Relaxed);
        done
    }

    /// The events since the last call.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many events there were since the last [`Self::take`].
    #[must_use]
    pub(super) fn count(&self) -> usize {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The events since the last [`Self::take`], which stay.
    pub fn copy(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets all events and returns the lines that they stored to.
    pub fn take_stored_lines(&self) -> BTreeSet<LineKey> {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = events.iter().flat_map(Event::stored_lines).collect();
        events.clear();
        lines
    }

    fn push(&self, site: &'static Location<'static>, what: impl FnOnce() -> What) {
        if self.is_deaf.load(Ordering::Relaxed) {
            return;
        }
        // The parts of a streamed copy are told before the first of them is stored: clients that are in
        // flight together change turns, and die, before all of them.
        let me = std::thread::current().id();
        let is_part = |last: &Event| last.thread == me && std::ptr::eq(last.site, site);
        let events = || self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if !(is_shared() && events().last().is_some_and(is_part)) {
            point(Points::Pool);
        }
        events().push(Event { thread: me, site, what: what() });
    }
}

impl Event {
    /// The lines that it stores to.
    pub fn stored_lines(&self) -> impl Iterator<Item = LineKey> + use<> {
        let (addr, len) = match &self.what {
            What::Store { addr, bytes, .. } => (*addr, bytes.len() as u64),
            What::WriteBack { addr, .. } => (*addr, 0),
            What::Fence => (PmAddr::NULL, 0),
        };
        lines_of(addr, len)
    }
}

impl Observer for Recorder {
    fn store(&self, event: StoreEvent<'_>) {
        let StoreEvent { addr, bytes, kind, purpose, site } = event;
        self.push(site, || What::Store { addr, bytes: bytes.to_vec(), kind, purpose });
    }

    fn write_back(&self, addr: PmAddr, len: u64, _: Purpose, site: &'static Location<'static>) {
        self.push(site, || What::WriteBack { addr, len });
    }

    fn fence(&self, site: &'static Location<'static>) {
        self.push(site, || What::Fence);
    }

    fn load(&self, addr: PmAddr, len: u64) -> bool {
        self.watch.loaded(addr, len);
        true
    }
}
