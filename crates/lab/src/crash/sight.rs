//! What a recovery saw of a crash image: the lines that it, the check and the look after it loaded.
//!
//! All of them are a function of these lines' bytes alone. An image that agrees in them with one that
//! was judged is recovered alike, whatever its other lines hold (pages that nothing names, the rest of
//! a page after a tail): it need not be judged, and is no crash state of its own.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use novale_layout::PmAddr;

use super::durable::StateHash;
use super::hardware::{Hardware, LineBytes, LineKey, lines_of};
use super::images::Image;

/// Different sets of lines that are remembered for one memory.
const SIGHTS_MAX: usize = 24;

const WORD_BITS: u64 = 64;

/// A set of a pool's lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Lines {
    /// A bit for each line of each slot.
    slots: Vec<Vec<u64>>,
}

impl Lines {
    pub(super) fn contains(&self, key: LineKey) -> bool {
        let (word, bit) = place(key);
        let word = self.slots.get(usize::from(key.slot)).and_then(|words| words.get(word));
        word.is_some_and(|word| word & bit != 0)
    }

    fn iter(&self) -> impl Iterator<Item = LineKey> + '_ {
        (0..).zip(&self.slots).flat_map(|(slot, words)| {
            let set = (0..).zip(words).filter(|(_, word)| **word != 0);
            set.flat_map(move |(index, word): (u64, &u64)| {
                let bits = (0..WORD_BITS).filter(move |bit| word >> bit & 1 == 1);
                bits.map(move |bit| LineKey { slot, line: index * WORD_BITS + bit })
            })
        })
    }
}

/// The word and the bit in it of a line.
fn place(key: LineKey) -> (usize, u64) {
    (usize::try_from(key.line / WORD_BITS).unwrap_or(usize::MAX), 1 << (key.line % WORD_BITS))
}

/// Notes the lines that are loaded.
#[derive(Debug, Default)]
pub(super) struct Watch {
    slots: Vec<Vec<AtomicU64>>,
    is_on: AtomicBool,
}

impl Watch {
    /// Over slots of these lengths in bytes.
    pub(super) fn over(lens: &[u64]) -> Self {
        let words = |len: &u64| (0..len.div_ceil(64 * WORD_BITS)).map(|_| AtomicU64::new(0));
        Self { slots: lens.iter().map(|len| words(len).collect()).collect(), ..Self::default() }
    }

    /// Begins anew.
    pub(super) fn begin(&self) {
        for word in self.slots.iter().flatten() {
            word.store(0, Ordering::Relaxed);
        }
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Notes no more; what was noted stays until the next beginning.
    pub(super) fn end(&self) {
        self.is_on.store(false, Ordering::Relaxed);
    }

    pub(super) fn loaded(&self, addr: PmAddr, len: u64) {
        if !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        for key in lines_of(addr, len) {
            let (word, bit) = place(key);
            let word = self.slots.get(usize::from(key.slot)).and_then(|words| words.get(word));
            if let Some(word) = word.filter(|word| word.load(Ordering::Relaxed) & bit == 0) {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    /// The lines loaded between the last beginning and its end.
    pub(super) fn lines(&self) -> Lines {
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Lines { slots: self.slots.iter().map(|slot| slot.iter().map(word).collect()).collect() }
    }
}

/// What an image changes of its memory: each line, with what it added and what it adds now.
#[derive(Debug)]
pub(super) struct Changes(Vec<(LineKey, StateHash, StateHash)>);

impl Changes {
    pub(super) fn of(hardware: &Hardware, image: &Image) -> Self {
        let change = |(key, bytes): &(LineKey, LineBytes)| {
            let durable = StateHash::of_line(*key, &hardware.durable_line(*key));
            (*key, durable, StateHash::of_line(*key, bytes))
        };
        Self(image.lines.iter().map(change).collect())
    }
}

/// What recoveries from images of one memory saw and found.
#[derive(Debug, Default)]
pub(super) struct Sights {
    /// The memory's durable bytes.
    base: StateHash,
    sights: VecDeque<Sight>,
}

/// Images of which the same lines were seen.
#[derive(Debug)]
struct Sight {
    lines: Lines,
    /// What the durable bytes of these lines add up to.
    durable: StateHash,
    /// What was found, by what an image changes of them.
    found: HashMap<StateHash, u64>,
}

impl Sights {
    /// Images are of this memory now.
    pub(super) fn begin(&mut self, hardware: &Hardware) {
        if self.base != hardware.state() {
            self.sights.clear();
            self.base = hardware.state();
        }
    }

    /// What was found in an image that differs from this one only where nothing looked.
    pub(super) fn found(&self, changes: &Changes) -> Option<u64> {
        self.sights.iter().find_map(|sight| sight.found.get(&sight.changed(changes)).copied())
    }

    /// Notes what was seen and found in an image; returns the lines seen in one number, which is that
    /// of every image that looks the same.
    pub(super) fn note(
        &mut self,
        hardware: &Hardware,
        changes: &Changes,
        lines: Lines,
        found: u64,
    ) -> StateHash {
        let known = self.sights.iter().position(|sight| sight.lines == lines);
        let mut sight = match known.and_then(|at| self.sights.remove(at)) {
            Some(sight) => sight,
            None => Sight::new(hardware, lines),
        };
        let part = sight.changed(changes);
        sight.found.insert(part, found);
        let seen = sight.durable.with(StateHash::default(), part);
        self.sights.push_front(sight);
        self.sights.truncate(SIGHTS_MAX);
        seen
    }
}

impl Sight {
    fn new(hardware: &Hardware, lines: Lines) -> Self {
        let nothing = StateHash::default();
        let durable = lines.iter().fold(nothing, |sum, key| {
            sum.with(nothing, StateHash::of_line(key, &hardware.durable_line(key)))
        });
        Self { lines, durable, found: HashMap::new() }
    }

    /// What an image changes of these lines.
    fn changed(&self, changes: &Changes) -> StateHash {
        let seen = changes.0.iter().filter(|(key, ..)| self.lines.contains(*key));
        seen.fold(StateHash::default(), |sum, (_, durable, new)| sum.with(*durable, *new))
    }
}

#[cfg(test)]
mod tests {
    use super::super::images::Choice;
    use super::*;

    fn key(line: u64) -> LineKey {
        LineKey { slot: 0, line }
    }

    fn image(lines: &[(u64, u8)]) -> Image {
        let lines = lines.iter().map(|(line, byte)| (key(*line), [*byte; 64])).collect();
        Image { lines, state: StateHash::default(), choice: Choice::RANDOM }
    }

    /// The lines that loading these bytes sees.
    fn seen(loads: &[(u64, u64)]) -> Lines {
        let watch = Watch::over(&[8192]);
        watch.loaded(PmAddr::new(0, 4096), 1);
        watch.begin();
        for (byte, len) in loads {
            watch.loaded(PmAddr::new(0, *byte), *len);
        }
        watch.end();
        watch.loaded(PmAddr::new(0, 4096), 1);
        watch.lines()
    }

    #[test]
    fn a_load_sees_each_line_that_it_touches_and_no_other() {
        let lines: Vec<LineKey> = seen(&[(8, 8), (127, 2), (4095, 0), (8128, 64)]).iter().collect();
        assert_eq!(lines, [0, 1, 2, 127].map(key));
        assert!(seen(&[(127, 2)]).contains(key(2)) && !seen(&[(127, 2)]).contains(key(3)));
    }

    #[test]
    fn images_that_differ_where_nothing_looked_are_alike_and_no_others() {
        let hardware = Hardware::with(vec![vec![7; 8192]]);
        let changes = |lines: &[(u64, u8)]| Changes::of(&hardware, &image(lines));
        let mut sights = Sights::default();
        sights.begin(&hardware);
        assert_eq!(sights.found(&changes(&[])), None);
        let first = changes(&[(1, 9), (5, 9)]);
        let number = sights.note(&hardware, &first, seen(&[(0, 128)]), 42);
        assert_eq!(sights.found(&changes(&[(1, 9), (5, 8), (6, 1)])), Some(42));
        for other in [changes(&[(5, 9)]), changes(&[(1, 8)]), changes(&[(0, 9), (1, 9)])] {
            assert_eq!(sights.found(&other), None, "{other:?}");
        }
        // Another set of lines beside the first, and the same number for the same sight of another
        // memory.
        let further = sights.note(&hardware, &changes(&[(0, 1)]), seen(&[(0, 64)]), 43);
        assert_eq!(sights.found(&changes(&[(0, 1), (1, 77)])), Some(43));
        assert_ne!(number, further);
        let mut later = hardware.clone();
        later.set_durable(&[(key(1), [9; 64]), (key(9), [1; 64])]);
        sights.begin(&later);
        assert_eq!(sights.found(&first), None);
        let again = sights.note(&later, &Changes::of(&later, &image(&[])), seen(&[(0, 128)]), 42);
        assert_eq!(again, number);
    }
}
