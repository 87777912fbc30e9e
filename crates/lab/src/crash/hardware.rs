//! The memory's side of a run (DESIGN.md section 3): what is durable, and what may or may not be.
//!
//! A crash keeps of each line, independently: a prefix of its ordered 8-byte stores since they were
//! last durable, and any subset of the 8-byte units of its bulk and streaming stores. A fence makes
//! durable what its own thread wrote back or streamed before it, and nothing else. Where caches
//! persist (eADR), stores are durable in the order of the program, streaming ones with their fence.

use std::collections::BTreeMap;
use std::panic::Location;
use std::thread::ThreadId;

use novale_layout::PmAddr;
use novale_pm::{Pm, Purpose, StoreKind};

use super::durable::{Durable, StateHash};
use super::record::{Event, What};

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;

const LINE: u64 = LINE_BYTES as u64;

/// Bytes of a unit, which is there whole or not at all.
const UNIT_BYTES: usize = 8;
const UNIT: u64 = UNIT_BYTES as u64;

/// A line: slot, and byte in the slot divided by 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineKey {
    /// The slot.
    pub slot: u8,
    /// The line's number in it.
    pub line: u64,
}

impl LineKey {
    /// Its first byte.
    #[must_use]
    pub fn addr(self) -> PmAddr {
        PmAddr::new(self.slot, self.line * LINE)
    }
}

/// The bytes of one line.
pub type LineBytes = [u8; LINE_BYTES];

/// What a power cut does to the caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Caches {
    /// They are lost.
    #[default]
    Lost,
    /// They persist (eADR).
    Kept,
}

/// Part of one store: at most 8 bytes within a unit.
#[derive(Debug, Clone, Copy)]
struct Unit {
    /// First byte in the line.
    at: usize,
    len: usize,
    bytes: [u8; UNIT_BYTES],
}

/// Part of one store that is not durable yet.
#[derive(Debug, Clone)]
pub struct Pending {
    sequence: u64,
    /// Which call stored it, in the order of calls.
    pub call: u64,
    unit: Unit,
    /// Persists only with all ordered ones of the line before it.
    pub ordered: bool,
    /// Whose fence completes it with no write-back.
    streamed_by: Option<ThreadId>,
    /// What it is for.
    pub purpose: Purpose,
    /// The call that stored it.
    pub site: &'static Location<'static>,
}

/// The pool's memory: durable bytes, and the stores that are not.
#[derive(Debug, Clone)]
pub struct Hardware {
    durable: Durable,
    caches: Caches,
    pending: BTreeMap<LineKey, Vec<Pending>>,
    written_back: BTreeMap<LineKey, Vec<(ThreadId, u64)>>,
    sequence: u64,
    calls: u64,
}

impl Hardware {
    /// Zeroed slots of these lengths in bytes.
    #[must_use]
    pub fn zeroed(lens: &[u64]) -> Self {
        Self::filled(lens, 0)
    }

    /// Slots of these lengths in bytes as somebody else has left them. In zeroed slots a store of
    /// zeros that is lost would not be missed.
    #[must_use]
    pub fn used_before(lens: &[u64]) -> Self {
        Self::filled(lens, 0x5a)
    }

    fn filled(lens: &[u64], byte: u8) -> Self {
        let slot = |len: &u64| vec![byte; usize::try_from(*len).unwrap_or(0)];
        Self::with(lens.iter().map(slot).collect())
    }

    /// Slots that hold these bytes, durably.
    #[must_use]
    pub fn with(slots: Vec<Vec<u8>>) -> Self {
        Self::of(Durable::new(slots), Caches::Lost)
    }

    fn of(durable: Durable, caches: Caches) -> Self {
        Self {
            durable,
            caches,
            pending: BTreeMap::new(),
            written_back: BTreeMap::new(),
            sequence: 0,
            calls: 0,
        }
    }

    /// The same memory with these caches.
    #[must_use]
    pub fn with_caches(self, caches: Caches) -> Self {
        Self { caches, ..self }
    }

    /// What a power cut does to its caches.
    pub fn caches(&self) -> Caches {
        self.caches
    }

    /// This memory after a power cut that kept these lines, to go its own way: costs no copy.
    #[must_use]
    pub fn after_cut(&self, kept: &[(LineKey, LineBytes)]) -> Self {
        let mut durable = self.durable.fork();
        for (key, line) in kept {
            durable.set(*key, *line);
        }
        Self::of(durable, self.caches)
    }

    /// The durable bytes of each slot; of [`Self::after_cut`], those before the cut.
    pub fn durable(&self) -> &[Vec<u8>] {
        self.durable.slots()
    }

    /// A copy of the durable bytes of each slot; of [`Self::after_cut`], those after the cut.
    pub fn durable_copy(&self) -> Vec<Vec<u8>> {
        self.durable.copy()
    }

    /// All durable bytes in one number.
    pub fn state(&self) -> StateHash {
        self.durable.hash()
    }

    /// The lines with stores that are not durable.
    pub fn pending(&self) -> &BTreeMap<LineKey, Vec<Pending>> {
        &self.pending
    }

    /// Lets an event happen; returns the lines whose durable bytes it changes.
    pub fn apply(&mut self, event: &Event) -> Vec<LineKey> {
        match &event.what {
            What::Store { kind, .. }
                if self.caches == Caches::Kept && *kind != StoreKind::Streaming =>
            {
                return self.store_durably(event, usize::MAX);
            }
            What::Store { addr, bytes, kind, purpose } => {
                self.store(event, *addr, bytes, *kind, *purpose);
            }
            What::WriteBack { addr, len } => {
                let mark = (event.thread, self.sequence);
                let lines = lines_of(*addr, *len).filter(|key| self.pending.contains_key(key));
                lines.for_each(|key| self.written_back.entry(key).or_default().push(mark));
            }
            What::Fence => return self.fence(event.thread),
        }
        Vec::new()
    }

    /// What an event's first `units` units make of the durable lines, if caches persist.
    pub fn torn(&self, event: &Event, units: usize) -> Vec<(LineKey, LineBytes)> {
        let mut torn = self.after_cut(&[]);
        let lines = torn.store_durably(event, units).into_iter();
        lines.map(|key| (key, torn.durable_line(key))).collect()
    }

    /// The first byte of a pool that differs from what its memory shows, every store done.
    ///
    /// # Errors
    /// What `Pm` says of addresses.
    pub fn first_unrecorded(&self, pm: &Pm) -> Result<Option<PmAddr>, String> {
        const STEP: usize = 64 << 10;
        let mut memory = vec![0; STEP];
        for (slot, bytes) in (0..).zip(self.durable.slots()) {
            for (step, expected) in (0..).zip(bytes.chunks(STEP)) {
                let at = PmAddr::new(slot, step * STEP as u64);
                let found = memory.get_mut(..expected.len()).unwrap_or_default();
                pm.load(at, found).map_err(|why| why.to_string())?;
                if found == expected {
                    continue;
                }
                let (lines, _) = found.as_chunks::<LINE_BYTES>();
                for (line, found) in (at.byte() / LINE..).zip(lines) {
                    let key = LineKey { slot, line };
                    if self.line_with(key, |_| true) != *found {
                        return Ok(Some(key.addr()));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Stores all durable bytes to a zeroed pool.
    pub(super) fn lay_out(&self, pm: &Pm) {
        for (slot, bytes) in (0..).zip(self.durable.slots()) {
            let (lines, _) = bytes.as_chunks::<LINE_BYTES>();
            for line in (0..).take(lines.len()) {
                let key = LineKey { slot, line };
                let bytes = self.durable_line(key);
                if bytes != [0; LINE_BYTES] {
                    drop(pm.store_line(key.addr(), &bytes, Purpose::Other));
                }
            }
        }
    }

    /// Stores to a zeroed pool what the caches show, durable or not.
    pub fn show(&self, pm: &Pm) {
        self.lay_out(pm);
        for key in self.pending.keys() {
            let line = self.line_with(*key, |_| true);
            drop(pm.store_line(key.addr(), &line, Purpose::Other));
        }
    }

    /// Puts whole lines, durably.
    pub fn set_durable(&mut self, lines: &[(LineKey, LineBytes)]) {
        for (key, bytes) in lines {
            self.durable.set(*key, *bytes);
        }
    }

    /// The power is gone: what was not durable is lost.
    pub fn lose_pending(&mut self) {
        self.pending.clear();
        self.written_back.clear();
    }

    /// The process has died: no fence of its threads comes any more. What another process writes
    /// back and fences becomes durable all the same. If caches persist, what was streamed is
    /// durable now: the kernel has drained the processor's buffers on the way. Returns the lines
    /// that this changes. Where a thread is named, the process has this one alone.
    pub fn forget(&mut self, only: Option<ThreadId>) -> Vec<LineKey> {
        let is_gone = |thread: ThreadId| only.is_none_or(|only| only == thread);
        self.written_back.values_mut().for_each(|marks| marks.retain(|(by, _)| !is_gone(*by)));
        let stores = self.pending.values_mut().flatten();
        let gone = stores.filter(|store| store.streamed_by.is_some_and(is_gone));
        gone.for_each(|store| store.streamed_by = None);
        if self.caches == Caches::Lost {
            return Vec::new();
        }
        // Nothing is pending there but what was streamed.
        self.complete(|_, store| store.streamed_by.is_none())
    }

    /// A line's bytes if the crash keeps the pending stores that `keep` says (by their index).
    pub fn line_with(&self, key: LineKey, keep: impl Fn(usize) -> bool) -> LineBytes {
        let mut line = self.durable_line(key);
        let pending = self.pending.get(&key).map(Vec::as_slice).unwrap_or_default();
        for (_, store) in pending.iter().enumerate().filter(|(index, _)| keep(*index)) {
            store.unit.put(&mut line);
        }
        line
    }

    /// A line's durable bytes.
    pub fn durable_line(&self, key: LineKey) -> LineBytes {
        self.durable.line(key)
    }

    /// Stores the first `count` units at once; returns the lines changed.
    fn store_durably(&mut self, event: &Event, count: usize) -> Vec<LineKey> {
        let What::Store { addr, bytes, .. } = &event.what else { return Vec::new() };
        let mut changed = Vec::new();
        for (key, unit) in units(*addr, bytes).take(count) {
            let mut line = self.durable_line(key);
            unit.put(&mut line);
            self.durable.set(key, line);
            // What was streamed to the same bytes before can't come back over it.
            if let Some(stores) = self.pending.get_mut(&key) {
                stores.retain(|older| !older.unit.is_within(&unit));
            }
            if changed.last() != Some(&key) {
                changed.push(key);
            }
        }
        changed
    }

    fn store(
        &mut self,
        event: &Event,
        addr: PmAddr,
        bytes: &[u8],
        kind: StoreKind,
        purpose: Purpose,
    ) {
        self.calls += 1;
        for (key, unit) in units(addr, bytes) {
            self.sequence += 1;
            self.pending.entry(key).or_default().push(Pending {
                sequence: self.sequence,
                call: self.calls,
                unit,
                ordered: kind == StoreKind::Ordered,
                streamed_by: (kind == StoreKind::Streaming).then_some(event.thread),
                purpose,
                site: event.site,
            });
        }
    }

    fn fence(&mut self, thread: ThreadId) -> Vec<LineKey> {
        let mut done: BTreeMap<LineKey, u64> = BTreeMap::new();
        for (key, marks) in &mut self.written_back {
            let own = marks.extract_if(.., |(by, _)| *by == thread);
            done.extend(own.map(|(_, up_to)| up_to).max().map(|up_to| (*key, up_to)));
        }
        self.written_back.retain(|_, marks| !marks.is_empty());
        self.complete(|key, store| match store.streamed_by {
            Some(by) => by == thread,
            None => store.sequence <= done.get(key).copied().unwrap_or(0),
        })
    }

    /// Makes durable what `is_done` says; returns the lines that this changes.
    fn complete(&mut self, is_done: impl Fn(&LineKey, &Pending) -> bool) -> Vec<LineKey> {
        let mut changed = Vec::new();
        for (key, stores) in &mut self.pending {
            let completed: Vec<Pending> =
                stores.extract_if(.., |store| is_done(key, store)).collect();
            if completed.is_empty() {
                continue;
            }
            let mut line = self.durable.line(*key);
            for store in &completed {
                store.unit.put(&mut line);
                // An older store of the same bytes can't come back over it.
                stores.retain(|older| {
                    older.sequence > store.sequence || !older.unit.is_within(&store.unit)
                });
            }
            self.durable.set(*key, line);
            changed.push(*key);
        }
        self.pending.retain(|_, stores| !stores.is_empty());
        changed
    }
}

impl Unit {
    /// Whether the other one stores all the bytes that this one does.
    fn is_within(&self, other: &Self) -> bool {
        self.at >= other.at && self.at + self.len <= other.at + other.len
    }

    fn put(&self, line: &mut LineBytes) {
        let place = line.get_mut(self.at..self.at + self.len);
        if let (Some(place), Some(bytes)) = (place, self.bytes.get(..self.len)) {
            place.copy_from_slice(bytes);
        }
    }
}

impl Event {
    /// Into so many units of memory it stores.
    pub fn units(&self) -> usize {
        match &self.what {
            What::Store { addr, bytes, .. } => units(*addr, bytes).count(),
            What::WriteBack { .. } | What::Fence => 0,
        }
    }

    /// The same of a store's first `count` units alone: a process that dies in the middle of it.
    #[must_use]
    pub fn first_units(&self, count: usize) -> Self {
        let mut part = self.clone();
        if let What::Store { addr, bytes, .. } = &mut part.what {
            let len = units(*addr, bytes).take(count).map(|(_, unit)| unit.len).sum();
            bytes.truncate(len);
        }
        part
    }
}

/// A store's parts by the units of memory.
fn units(addr: PmAddr, bytes: &[u8]) -> impl Iterator<Item = (LineKey, Unit)> {
    let (mut at, mut rest) = (addr.byte(), bytes);
    std::iter::from_fn(move || {
        let room = usize::try_from(UNIT - at % UNIT).unwrap_or(1).min(rest.len());
        let (part, after) = rest.split_at_checked(room).filter(|(part, _)| !part.is_empty())?;
        let key = LineKey { slot: addr.slot(), line: at / LINE };
        let mut unit = Unit {
            at: usize::try_from(at % LINE).unwrap_or(0),
            len: part.len(),
            bytes: [0; UNIT_BYTES],
        };
        unit.bytes.get_mut(..part.len())?.copy_from_slice(part);
        (at, rest) = (at + part.len() as u64, after);
        Some((key, unit))
    })
}

pub(super) fn lines_of(addr: PmAddr, len: u64) -> impl Iterator<Item = LineKey> + use<> {
    let first = addr.byte() / LINE;
    let end = if len == 0 { first } else { (addr.byte() + len).div_ceil(LINE) };
    (first..end).map(move |line| LineKey { slot: addr.slot(), line })
}
