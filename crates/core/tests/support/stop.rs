//! An observer that stops its client for ever, as a death does.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use novale_layout::PmAddr;
use novale_pm::{Observer, Purpose, StoreEvent};

/// Stops its client for ever before one of its stores, write-backs and fences.
pub(crate) struct StopAt {
    events_left: AtomicU64,
    has_ended: AtomicBool,
}

impl StopAt {
    /// Before the event behind so many.
    pub(crate) fn new(event: u64) -> Arc<Self> {
        Arc::new(Self { events_left: event.into(), has_ended: false.into() })
    }

    /// The same from now on.
    pub(crate) fn set(&self, event: u64) {
        self.events_left.store(event, Ordering::SeqCst);
    }

    /// Waits until the client has stopped, in a thread, or that has come through: false then.
    pub(crate) fn stops(&self, thread: &JoinHandle<()>) -> bool {
        while !self.has_ended.load(Ordering::SeqCst) {
            if thread.is_finished() {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    fn event(&self) {
        let counted = |left: u64| left.checked_sub(1);
        if self.events_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, counted).is_err() {
            self.has_ended.store(true, Ordering::SeqCst);
            loop {
                std::thread::park();
            }
        }
    }
}

impl Observer for StopAt {
    fn store(&self, _: StoreEvent<'_>) {
        self.event();
    }
    fn write_back(&self, _: PmAddr, _: u64, _: Purpose, _: &'static Location<'static>) {
        self.event();
    }
    fn fence(&self, _: &'static Location<'static>) {
        self.event();
    }
}
