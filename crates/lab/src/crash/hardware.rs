//! The memory's side of a run (DESIGN.md section 3): what is durable, and what may or may not be.
//!
//! A crash keeps of each line, independently: a prefix of its ordered 8-byte stores since they were
//! last durable, and any subset of the 8-byte units of its bulk and streaming stores. A fence makes
//! durable what its own thread wrote back or streamed before it, and nothing else.

use std::collections::BTreeMap;
use std::panic::Location;
use std::thread::ThreadId;

use novale_layout::PmAddr;
use novale_pm::{Purpose, StoreKind};

use super::record::{Event, What};

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;

const LINE: u64 = LINE_BYTES as u64;
const UNIT: u64 = 8;

/// A line: slot, and byte in the slot divided by 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineKey {
    /// The slot.
    pub slot: u8,
    /// The line's number in it.
    pub line: u64,
}

/// The bytes of one line.
pub type LineBytes = [u8; LINE_BYTES];

/// Part of one store that is not durable yet: at most 8 bytes.
#[derive(Debug, Clone)]
pub struct Pending {
    sequence: u64,
    /// Which call stored it, in the order of calls.
    pub call: u64,
    /// First byte in the line.
    at: usize,
    bytes: Vec<u8>,
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
    durable: Vec<Vec<u8>>,
    pending: BTreeMap<LineKey, Vec<Pending>>,
    written_back: BTreeMap<LineKey, Vec<(ThreadId, u64)>>,
    sequence: u64,
    calls: u64,
}

impl Hardware {
    /// Zeroed slots of these lengths in bytes.
    #[must_use]
    pub fn zeroed(lens: &[u64]) -> Self {
        let slot = |len: &u64| vec![0; usize::try_from(*len).unwrap_or(0)];
        Self::with(lens.iter().map(slot).collect())
    }

    /// Slots that hold these bytes, durably.
    #[must_use]
    pub fn with(durable: Vec<Vec<u8>>) -> Self {
        Self {
            durable,
            pending: BTreeMap::new(),
            written_back: BTreeMap::new(),
            sequence: 0,
            calls: 0,
        }
    }

    /// The durable bytes of each slot.
    #[must_use]
    pub fn durable(&self) -> &[Vec<u8>] {
        &self.durable
    }

    /// The lines with stores that are not durable.
    #[must_use]
    pub fn pending(&self) -> &BTreeMap<LineKey, Vec<Pending>> {
        &self.pending
    }

    /// Lets an event happen; returns the lines whose durable bytes it changes.
    pub fn apply(&mut self, event: &Event) -> Vec<LineKey> {
        match &event.what {
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

    /// The first byte of a slot that differs from what its memory shows, every store done.
    #[must_use]
    pub fn first_unrecorded(&self, slot: u8, memory: &[u8]) -> Option<usize> {
        let mut expected = self.durable.get(usize::from(slot))?.clone();
        for key in self.pending.keys().filter(|key| key.slot == slot) {
            let line = self.line_with(*key, |_| true);
            let start = usize::try_from(key.line * LINE).ok()?;
            *expected.get_mut(start..)?.first_chunk_mut()? = line;
        }
        if expected == memory {
            return None;
        }
        expected.iter().zip(memory).position(|(expected, found)| expected != found)
    }

    /// Puts whole lines, durably.
    pub fn set_durable(&mut self, lines: &BTreeMap<LineKey, LineBytes>) {
        for (key, bytes) in lines {
            if let Some(line) = line_mut(&mut self.durable, *key) {
                *line = *bytes;
            }
        }
    }

    /// The power is gone: what was not durable is lost.
    pub fn lose_pending(&mut self) {
        self.pending.clear();
        self.written_back.clear();
    }

    /// The process has died: no fence of its threads comes any more. What another process writes
    /// back and fences becomes durable all the same.
    pub fn forget_threads(&mut self) {
        self.written_back.clear();
        let stores = self.pending.values_mut().flatten();
        stores.for_each(|store| store.streamed_by = None);
    }

    /// A line's bytes if the crash keeps the pending stores that `keep` says (by their index).
    #[must_use]
    pub fn line_with(&self, key: LineKey, keep: impl Fn(usize) -> bool) -> LineBytes {
        let mut line = self.durable_line(key);
        let pending = self.pending.get(&key).map(Vec::as_slice).unwrap_or_default();
        for (_, store) in pending.iter().enumerate().filter(|(index, _)| keep(*index)) {
            store.put(&mut line);
        }
        line
    }

    /// A line's durable bytes.
    #[must_use]
    pub fn durable_line(&self, key: LineKey) -> LineBytes {
        let start = usize::try_from(key.line * LINE).unwrap_or(usize::MAX);
        let slot = self.durable.get(usize::from(key.slot));
        let bytes = slot.and_then(|slot| slot.get(start..)?.first_chunk());
        bytes.copied().unwrap_or([0; LINE_BYTES])
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
        let mut at = addr.byte();
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = usize::try_from(UNIT - at % UNIT).unwrap_or(1).min(rest.len());
            let (unit, after) = rest.split_at(room);
            self.sequence += 1;
            let key = LineKey { slot: addr.slot(), line: at / LINE };
            self.pending.entry(key).or_default().push(Pending {
                sequence: self.sequence,
                call: self.calls,
                at: usize::try_from(at % LINE).unwrap_or(0),
                bytes: unit.to_vec(),
                ordered: kind == StoreKind::Ordered,
                streamed_by: (kind == StoreKind::Streaming).then_some(event.thread),
                purpose,
                site: event.site,
            });
            at += room as u64;
            rest = after;
        }
    }

    fn fence(&mut self, thread: ThreadId) -> Vec<LineKey> {
        let mut done: BTreeMap<LineKey, u64> = BTreeMap::new();
        for (key, marks) in &mut self.written_back {
            let own = marks.extract_if(.., |(by, _)| *by == thread);
            done.extend(own.map(|(_, up_to)| up_to).max().map(|up_to| (*key, up_to)));
        }
        self.written_back.retain(|_, marks| !marks.is_empty());
        let mut changed = Vec::new();
        for (key, stores) in &mut self.pending {
            let up_to = done.get(key).copied().unwrap_or(0);
            let completed: Vec<Pending> = stores
                .extract_if(.., |store| match store.streamed_by {
                    Some(by) => by == thread,
                    None => store.sequence <= up_to,
                })
                .collect();
            let line = line_mut(&mut self.durable, *key).filter(|_| !completed.is_empty());
            let Some(line) = line else { continue };
            for store in &completed {
                store.put(line);
                // An older store of the same bytes can't come back over it.
                stores.retain(|older| older.sequence > store.sequence || !older.is_within(store));
            }
            changed.push(*key);
        }
        self.pending.retain(|_, stores| !stores.is_empty());
        changed
    }
}

fn line_mut(slots: &mut [Vec<u8>], key: LineKey) -> Option<&mut LineBytes> {
    let start = usize::try_from(key.line * LINE).ok()?;
    slots.get_mut(usize::from(key.slot))?.get_mut(start..)?.first_chunk_mut()
}

impl Pending {
    /// Whether the other one stores all the bytes that this one does.
    fn is_within(&self, other: &Self) -> bool {
        self.at >= other.at && self.at + self.bytes.len() <= other.at + other.bytes.len()
    }

    fn put(&self, line: &mut LineBytes) {
        if let Some(place) = line.get_mut(self.at..self.at + self.bytes.len()) {
            place.copy_from_slice(&self.bytes);
        }
    }
}

pub(super) fn lines_of(addr: PmAddr, len: u64) -> impl Iterator<Item = LineKey> {
    let first = addr.byte() / LINE;
    let end = (addr.byte() + len).div_ceil(LINE);
    (first..end).map(move |line| LineKey { slot: addr.slot(), line })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use novale_pm::{Flushed, Pm, PmOptions};

    use super::super::record::Recorder;
    use super::*;

    const KEY: LineKey = LineKey { slot: 0, line: 2 };

    fn recorded(run: impl FnOnce(&Pm)) -> Hardware {
        let recorder = Arc::new(Recorder::default());
        let options = PmOptions { observer: Some(recorder.clone()), ..PmOptions::default() };
        run(&Pm::anonymous(&[8192], &options).unwrap());
        let mut hardware = Hardware::zeroed(&[8192]);
        recorder.take().iter().for_each(|event| drop(hardware.apply(event)));
        hardware
    }

    fn at(byte: u64) -> PmAddr {
        PmAddr::new(0, byte)
    }

    #[test]
    fn a_store_is_durable_after_write_back_and_fence_only() {
        let stored = recorded(|pm| drop(pm.store_u64(at(128), 7, Purpose::Data)));
        assert_eq!(stored.pending().len(), 1);
        let flushed = recorded(|pm| drop(pm.write_back(pm.store_u64(at(128), 7, Purpose::Data))));
        assert_eq!(flushed.pending().len(), 1);
        assert_eq!(flushed.durable_line(KEY)[0], 0);
        let durable = recorded(|pm| {
            let dirty = pm.store_u64(at(128), 7, Purpose::Data);
            pm.fence(pm.write_back(dirty)).end();
        });
        assert_eq!(durable.pending().len(), 0);
        assert_eq!(durable.durable_line(KEY)[0], 7);
    }

    #[test]
    fn a_fence_completes_its_own_threads_write_backs_only() {
        let hardware = recorded(|pm| {
            let dirty = pm.store_u64(at(128), 7, Purpose::Data);
            drop(pm.write_back(dirty));
            std::thread::scope(|scope| {
                scope.spawn(|| pm.fence(Flushed::none()).end());
            });
        });
        assert_eq!(hardware.pending().len(), 1);
    }

    #[test]
    fn a_store_behind_the_write_back_stays_pending() {
        let hardware = recorded(|pm| {
            let flushed = pm.write_back(pm.store_u64(at(128), 7, Purpose::Data));
            drop(pm.store_u64(at(136), 8, Purpose::Data));
            pm.fence(flushed).end();
        });
        assert_eq!(hardware.durable_line(KEY)[0], 7);
        assert_eq!(hardware.durable_line(KEY)[8], 0);
        assert_eq!(hardware.line_with(KEY, |_| true)[8], 8);
    }

    #[test]
    fn what_one_thread_left_pending_does_not_come_back_over_what_another_made_durable() {
        let hardware = recorded(|pm| {
            drop(pm.write_back(pm.store_line(at(128), &[1; 64], Purpose::Commit)));
            std::thread::scope(|scope| {
                scope.spawn(|| pm.fence(pm.stream(at(128), &[2; 64], Purpose::Commit)).end());
            });
        });
        assert_eq!(hardware.pending().len(), 0);
        assert_eq!(hardware.durable_line(KEY), [2; 64]);
    }

    #[test]
    fn streaming_stores_need_no_write_back() {
        let hardware = recorded(|pm| {
            let flushed = pm.stream(at(128), &[9; 64], Purpose::Data);
            drop(pm.stream(at(256), &[9; 64], Purpose::Data));
            pm.fence(flushed).end();
            drop(pm.stream(at(320), &[9; 64], Purpose::Data));
        });
        assert_eq!(hardware.durable_line(KEY), [9; 64]);
        let left: Vec<_> = hardware.pending().keys().map(|key| key.line).collect();
        assert_eq!(left, [5]);
    }

    #[test]
    fn the_ordered_stores_of_a_line_are_eight_in_ascending_order() {
        let hardware = recorded(|pm| drop(pm.store_line(at(128), &[3; 64], Purpose::Commit)));
        let stores = &hardware.pending()[&KEY];
        assert!(stores.iter().all(|store| store.ordered));
        let places: Vec<_> = stores.iter().map(|store| store.at).collect();
        assert_eq!(places, [0, 8, 16, 24, 32, 40, 48, 56]);
    }

    #[test]
    fn unaligned_bytes_fall_into_units_of_memory() {
        let hardware = recorded(|pm| drop(pm.store(at(189), &[1; 11], Purpose::Data)));
        let units: Vec<_> = hardware
            .pending()
            .iter()
            .flat_map(|(key, stores)| stores.iter().map(|s| (key.line, s.at, s.bytes.len())))
            .collect();
        assert_eq!(units, [(2, 61, 3), (3, 0, 8)]);
    }
}
