//! A slot that fails at one store, and what the caches have not lost of it.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{ThreadId, current};

use novale_core::Fs;
use novale_layout::PmAddr;
use novale_pm::{Observer, Pm, Purpose, StoreEvent, StoreKind};

const LINE: usize = 64;

/// What is durable of each slot by fences alone.
pub(crate) struct Durable(Mutex<State>);

struct State {
    /// With what is in the caches.
    stored: Vec<Vec<u8>>,
    durable: Vec<Vec<u8>>,
    /// What each thread's next fence completes.
    pending: HashMap<ThreadId, Vec<(PmAddr, Vec<u8>)>>,
}

fn put(slots: &mut [Vec<u8>], at: PmAddr, bytes: &[u8]) {
    let start = usize::try_from(at.byte()).unwrap();
    if let Some(slot) = slots.get_mut(usize::from(at.slot())) {
        slot[start..start + bytes.len()].copy_from_slice(bytes);
    }
}

impl Durable {
    /// Of slots that have these bytes.
    pub(crate) fn of(slots: Vec<Vec<u8>>) -> Self {
        let (stored, durable) = (slots.clone(), slots);
        Self(Mutex::new(State { stored, durable, pending: HashMap::new() }))
    }

    pub(crate) fn store(&self, event: &StoreEvent<'_>) {
        let state = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        put(&mut state.stored, event.addr, event.bytes);
        if event.kind == StoreKind::Streaming {
            let pending = state.pending.entry(current().id()).or_default();
            pending.push((event.addr, event.bytes.to_vec()));
        }
    }

    pub(crate) fn write_back(&self, addr: PmAddr, len: u64) {
        let state = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, len) = (usize::try_from(addr.byte()).unwrap(), usize::try_from(len).unwrap());
        let from = start / LINE * LINE;
        let Some(slot) = state.stored.get(usize::from(addr.slot())) else { return };
        let lines = slot[from..(start + len).next_multiple_of(LINE)].to_vec();
        let at = PmAddr::new(addr.slot(), u64::try_from(from).unwrap());
        state.pending.entry(current().id()).or_default().push((at, lines));
    }

    pub(crate) fn fenced(&self) {
        let state = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (at, bytes) in state.pending.remove(&current().id()).unwrap_or_default() {
            put(&mut state.durable, at, &bytes);
        }
    }

    /// A slot, as it is after a power cut.
    pub(crate) fn slot(&self, slot: u8) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).durable[usize::from(slot)].clone()
    }
}

/// Has a slot fail, and says what it had.
pub(crate) type Fail = Box<dyn Fn() -> Vec<u8> + Send + Sync>;

/// Fails a slot at one store.
#[derive(Default)]
pub(crate) struct Failing {
    pub(crate) fail: OnceLock<Fail>,
    /// Stores since it was said how it fails.
    stores: AtomicU64,
    /// The one at which the slot fails; from 1.
    pub(crate) at: u64,
    /// What the slot had then.
    had: Mutex<Vec<u8>>,
    /// What is there without the caches, where these are lost.
    durable: Option<Arc<Durable>>,
}

impl Failing {
    pub(crate) fn at(at: u64) -> Arc<Self> {
        Arc::new(Self { at, ..Self::default() })
    }

    /// At a store, and what has not been fenced by then does not come to the slot, of slots that have these bytes.
    pub(crate) fn without_caches_at(at: u64, slots: Vec<Vec<u8>>) -> Arc<Self> {
        Arc::new(Self { at, durable: Some(Arc::new(Durable::of(slots))), ..Self::default() })
    }

    /// The slot of an open file system is to fail from now on.
    pub(crate) fn begin(&self, fs: &Arc<Fs>, slot: u8) {
        let (fs, durable) = (Arc::downgrade(fs), self.durable.clone());
        let fail = move || {
            let Some(fs) = fs.upgrade() else { return Vec::new() };
            let had = left(durable.as_deref(), fs.pm(), slot);
            fs.pm().set_failed(1 << slot);
            had
        };
        assert!(self.fail.set(Box::new(fail)).is_ok());
    }

    /// It fails now, between two stores.
    pub(crate) fn fail_now(&self) {
        let had = self.fail.get().map(|fail| fail());
        *self.had.lock().unwrap() = had.unwrap_or_default();
    }

    pub(crate) fn had(&self) -> Vec<u8> {
        std::mem::take(&mut *self.had.lock().unwrap())
    }

    /// What a slot has that has not failed, after a power cut.
    pub(crate) fn left(&self, pm: &Pm, slot: u8) -> Vec<u8> {
        left(self.durable.as_deref(), pm, slot)
    }
}

fn left(durable: Option<&Durable>, pm: &Pm, slot: u8) -> Vec<u8> {
    durable.map_or_else(|| bytes_of(pm, slot), |durable| durable.slot(slot))
}

/// All bytes of a slot.
pub(crate) fn bytes_of(pm: &Pm, slot: u8) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(pm.slot_len(slot)).unwrap()];
    pm.load(PmAddr::new(slot, 0), &mut bytes).unwrap();
    bytes
}

impl Observer for Failing {
    fn store(&self, event: StoreEvent<'_>) {
        let fails = |_: &&Fail| self.stores.fetch_add(1, Ordering::Relaxed) + 1 == self.at;
        if let Some(fail) = self.fail.get().filter(fails) {
            *self.had.lock().unwrap() = fail();
        }
        if let Some(durable) = &self.durable {
            durable.store(&event);
        }
    }

    fn write_back(&self, addr: PmAddr, len: u64, _: Purpose, _: &'static Location<'static>) {
        if let Some(durable) = &self.durable {
            durable.write_back(addr, len);
        }
    }

    fn fence(&self, _: &'static Location<'static>) {}

    fn fenced(&self) {
        if let Some(durable) = &self.durable {
            durable.fenced();
        }
    }
}
