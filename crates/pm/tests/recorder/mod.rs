//! An observer that keeps what it is told.

use std::panic::Location;
use std::sync::{Arc, Mutex};

use novale_layout::PmAddr;
use novale_pm::{Observer, Pm, PmOptions, Purpose, StoreEvent, StoreKind};

/// What an observer was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Store { addr: PmAddr, bytes: Vec<u8>, kind: StoreKind, purpose: Purpose, line: u32 },
    WriteBack { addr: PmAddr, len: u64, purpose: Purpose, line: u32 },
    Fence { line: u32 },
}

/// Keeps every event, in order.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    events: Mutex<Vec<Event>>,
}

impl Recorder {
    /// The events since the last call.
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().unwrap())
    }

    fn keep(&self, site: &Location<'_>, event: Event) {
        assert!(!site.file().contains("/src/"), "the caller's place, not this crate's: {site}");
        self.events.lock().unwrap().push(event);
    }
}

impl Observer for Recorder {
    fn store(&self, event: StoreEvent<'_>) {
        let StoreEvent { addr, bytes, kind, purpose, site } = event;
        let (bytes, line) = (bytes.to_vec(), site.line());
        self.keep(site, Event::Store { addr, bytes, kind, purpose, line });
    }

    fn write_back(
        &self,
        addr: PmAddr,
        len: u64,
        purpose: Purpose,
        site: &'static Location<'static>,
    ) {
        self.keep(site, Event::WriteBack { addr, len, purpose, line: site.line() });
    }

    fn fence(&self, site: &'static Location<'static>) {
        self.keep(site, Event::Fence { line: site.line() });
    }
}

/// A pool of private memory that a recorder watches.
pub(crate) fn recorded(lens: &[u64], eadr: bool) -> (Pm, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let observer: Arc<dyn Observer> = recorder.clone();
    let options = PmOptions { observer: Some(observer), eadr: Some(eadr), ..PmOptions::default() };
    (Pm::anonymous(lens, &options).unwrap(), recorder)
}
