//! What a run did to the pool, in order: every store, write-back and fence with its thread.

use std::collections::BTreeSet;
use std::panic::Location;
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

use novale_layout::PmAddr;
use novale_pm::{Observer, Purpose, StoreEvent, StoreKind};

use super::hardware::{LineKey, lines_of};

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
}

impl Recorder {
    /// The events since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The events since the last [`Self::take`], which stay.
    #[must_use]
    pub fn copy(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The lines that those events store to.
    #[must_use]
    pub fn stored_lines(&self) -> BTreeSet<LineKey> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = |event: &Event| match &event.what {
            What::Store { addr, bytes, .. } => Some(lines_of(*addr, bytes.len() as u64)),
            What::WriteBack { .. } | What::Fence => None,
        };
        events.iter().filter_map(lines).flatten().collect()
    }

    fn push(&self, site: &'static Location<'static>, what: What) {
        let event = Event { thread: std::thread::current().id(), site, what };
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

impl Observer for Recorder {
    fn store(&self, event: StoreEvent<'_>) {
        let StoreEvent { addr, bytes, kind, purpose, site } = event;
        self.push(site, What::Store { addr, bytes: bytes.to_vec(), kind, purpose });
    }

    fn write_back(&self, addr: PmAddr, len: u64, _: Purpose, site: &'static Location<'static>) {
        self.push(site, What::WriteBack { addr, len });
    }

    fn fence(&self, site: &'static Location<'static>) {
        self.push(site, What::Fence);
    }
}
