//! The bytes of the memory that no crash takes, and one number for all of them.
//!
//! The number is a sum over lines, so that a change of a few lines changes it at their cost; two
//! memories with one number are taken for the same state.

use std::collections::HashMap;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::hardware::{LINE_BYTES, LineBytes, LineKey};

/// What a whole memory holds, in one number: equal for equal bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct StateHash(u128);

impl StateHash {
    /// What a line adds; nothing if it is zeroed.
    #[must_use]
    pub fn of_line(key: LineKey, bytes: &LineBytes) -> Self {
        if *bytes == [0; LINE_BYTES] {
            return Self(0);
        }
        Self(xxh3_128_with_seed(bytes, u64::from(key.slot) << 56 | key.line))
    }

    /// The number when a line that added `old` adds `new`.
    #[must_use]
    pub fn with(self, old: Self, new: Self) -> Self {
        Self(self.0.wrapping_sub(old.0).wrapping_add(new.0))
    }

    /// Its lower half, as good as all of it for a table.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "half of a hash is a hash")]
    pub fn short(self) -> u64 {
        self.0 as u64
    }
}

/// The durable bytes of each slot.
#[derive(Debug, Clone)]
pub(super) struct Durable {
    slots: Arc<Vec<Vec<u8>>>,
    /// Lines that differ from `slots`, once there is a fork.
    over: HashMap<LineKey, LineBytes>,
    is_fork: bool,
    hash: StateHash,
}

impl Durable {
    /// These bytes.
    pub(super) fn new(slots: Vec<Vec<u8>>) -> Self {
        let mut hash = StateHash::default();
        for (slot, bytes) in (0..).zip(&slots) {
            let (lines, _) = bytes.as_chunks::<LINE_BYTES>();
            for (line, bytes) in (0..).zip(lines) {
                let added = StateHash::of_line(LineKey { slot, line }, bytes);
                hash = hash.with(StateHash::default(), added);
            }
        }
        Self { slots: Arc::new(slots), over: HashMap::new(), is_fork: false, hash }
    }

    /// The same bytes, to go their own way for a few lines: costs no copy.
    pub(super) fn fork(&self) -> Self {
        Self { is_fork: true, ..self.clone() }
    }

    /// The bytes of each slot; of a fork, those that it started from.
    pub(super) fn slots(&self) -> &[Vec<u8>] {
        &self.slots
    }

    /// A copy of the bytes of each slot; of a fork, with its own lines.
    pub(super) fn copy(&self) -> Vec<Vec<u8>> {
        let mut slots = self.slots.to_vec();
        for (key, line) in self.over.iter().filter(|_| self.is_fork) {
            put(&mut slots, *key, *line);
        }
        slots
    }

    pub(super) fn hash(&self) -> StateHash {
        self.hash
    }

    pub(super) fn line(&self, key: LineKey) -> LineBytes {
        if self.is_fork
            && let Some(line) = self.over.get(&key)
        {
            return *line;
        }
        let start = usize::try_from(key.line * LINE_BYTES as u64).unwrap_or(usize::MAX);
        let slot = self.slots.get(usize::from(key.slot));
        let bytes = slot.and_then(|slot| slot.get(start..)?.first_chunk());
        bytes.copied().unwrap_or([0; LINE_BYTES])
    }

    pub(super) fn set(&mut self, key: LineKey, line: LineBytes) {
        let old = StateHash::of_line(key, &self.line(key));
        self.hash = self.hash.with(old, StateHash::of_line(key, &line));
        if self.is_fork {
            self.over.insert(key, line);
            return;
        }
        let slots: &mut Vec<Vec<u8>> = Arc::make_mut(&mut self.slots);
        put(slots, key, line);
    }
}

fn put(slots: &mut [Vec<u8>], key: LineKey, line: LineBytes) {
    let start = usize::try_from(key.line * LINE_BYTES as u64).unwrap_or(usize::MAX);
    let slot = slots.get_mut(usize::from(key.slot));
    if let Some(place) = slot.and_then(|slot| slot.get_mut(start..)?.first_chunk_mut()) {
        *place = line;
    }
}
