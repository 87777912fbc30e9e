//! What the explorations of a campaign know of each other: which crash states were judged already, and
//! how; which places in the product were reached; when to stop.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::record::Event;

/// A table of this many parts, so that threads rarely wait for each other.
const PARTS: usize = 256;

/// States that are remembered in all: beyond, states are judged but no longer counted.
const STATES_MAX: u64 = 200_000_000;

#[derive(Debug, Default)]
struct Part {
    /// By the hash of a state: the hash of what was recovered from it.
    recovered: HashMap<u64, u64, BuildHasherDefault<IsHash>>,
    /// The hashes of what was seen.
    seen: HashSet<u64, BuildHasherDefault<IsHash>>,
}

/// A place in the source: file and line.
pub type Point = (&'static str, u32);

/// Shared by explorations, one after the other or beside each other.
#[derive(Debug)]
pub struct Tracker {
    parts: Vec<Mutex<Part>>,
    noted: AtomicU64,
    distinct: AtomicU64,
    reached: Mutex<HashSet<u64>>,
    passed: Mutex<HashMap<usize, Point>>,
    end: Option<Instant>,
    stopped: Arc<AtomicBool>,
}

impl Default for Tracker {
    fn default() -> Self {
        Self::until(None)
    }
}

impl Tracker {
    /// Nothing known yet; explorations stop at `end`.
    #[must_use]
    pub fn until(end: Option<Instant>) -> Self {
        Self {
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            noted: AtomicU64::new(0),
            distinct: AtomicU64::new(0),
            reached: Mutex::default(),
            passed: Mutex::default(),
            end,
            stopped: Arc::default(),
        }
    }

    /// The same, where others may end them too.
    #[must_use]
    pub fn stopped_by(self, stop: &Arc<AtomicBool>) -> Self {
        Self { stopped: stop.clone(), ..self }
    }

    /// Crash states judged so far that differ in a line at which recovery, the check or the look
    /// after them looked.
    pub fn distinct(&self) -> u64 {
        self.distinct.load(Ordering::Relaxed)
    }

    /// Crash states judged so far that differ in any byte.
    pub fn noted(&self) -> u64 {
        self.noted.load(Ordering::Relaxed)
    }

    /// Places reached so far.
    pub fn reached(&self) -> usize {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Where stores, write-backs and fences were made so far.
    pub fn passed(&self) -> BTreeSet<Point> {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner).values().copied().collect()
    }

    /// Ends all explorations soon.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether to judge no more.
    pub fn is_over(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// What was recovered from a state, if it was judged before.
    pub(super) fn recovered(&self, state: u64) -> Option<u64> {
        let part = self.part(state)?.lock().unwrap_or_else(PoisonError::into_inner);
        part.recovered.get(&state).copied()
    }

    /// Notes what was recovered from a state.
    pub(super) fn note(&self, state: u64, recovered: u64) {
        if self.noted() >= STATES_MAX {
            return;
        }
        let Some(part) = self.part(state) else { return };
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        if part.recovered.insert(state, recovered).is_none() {
            self.noted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a state by what was seen of it.
    pub(super) fn count(&self, seen: u64) {
        if self.distinct() >= STATES_MAX {
            return;
        }
        let Some(part) = self.part(seen) else { return };
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        if part.seen.insert(seen) {
            self.distinct.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes places; returns how many of them are new.
    pub(super) fn reach(&self, places: impl Iterator<Item = u64>) -> u64 {
        let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        places.map(|place| u64::from(reached.insert(place))).sum()
    }

    /// Notes where events were made.
    pub(super) fn pass(&self, events: &[Event]) {
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        for Event { site, .. } in events {
            passed.entry(std::ptr::from_ref(*site).addr()).or_insert((site.file(), site.line()));
        }
    }

    fn part(&self, state: u64) -> Option<&Mutex<Part>> {
        self.parts.get(usize::try_from(state % PARTS as u64).ok()?)
    }
}

/// The keys are hashes: they are taken as they are, the bits that chose the part moved away.
#[derive(Debug, Default)]
struct IsHash(u64);

impl Hasher for IsHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let word = bytes.first_chunk().copied().unwrap_or_default();
        self.write_u64(u64::from_le_bytes(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word.rotate_right(PARTS.trailing_zeros());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_counts_once_and_keeps_its_verdict() {
        let tracker = Tracker::default();
        assert_eq!(tracker.recovered(5), None);
        for state in [5, 5 + PARTS as u64, 5] {
            tracker.note(state, state + 1);
        }
        assert_eq!((tracker.noted(), tracker.recovered(5)), (2, Some(6)));
        for seen in [7, 8, 7] {
            tracker.count(seen);
        }
        assert_eq!(tracker.distinct(), 2);
        assert_eq!(tracker.reach([1, 2, 1].into_iter()), 2);
        assert_eq!(tracker.reach([2, 3].into_iter()), 1);
    }

    #[test]
    fn it_is_over_when_the_time_is_up_or_somebody_stops_it() {
        assert!(Tracker::until(Some(Instant::now())).is_over());
        let tracker = Tracker::default();
        assert!(!tracker.is_over());
        tracker.stop();
        assert!(tracker.is_over());
    }
}
