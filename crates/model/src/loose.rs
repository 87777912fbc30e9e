//! What a crash may leave of a file's bytes that were stored through a mapping: of each unit of eight
//! bytes what it was before, until it is flushed or written over.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::contents::{Contents, PAGE_BYTES};

/// Bytes that a crash keeps together.
const UNIT: u64 = 8;
const PAGE: u64 = PAGE_BYTES as u64;

type Unit = [u8; 8];

impl Contents {
    /// Puts `bytes` at `offset` as a store to a mapping does, none beyond the end: a crash may bring
    /// back what was there.
    pub fn store(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset.saturating_add(bytes.len() as u64).min(self.size());
        let Some(len) = end.checked_sub(offset).and_then(|len| usize::try_from(len).ok()) else {
            return;
        };
        let units = offset / UNIT..end.div_ceil(UNIT);
        for unit in units.clone() {
            let old = self.unit(unit);
            self.loose.entry(unit).or_default().insert(old);
        }
        self.put(offset, bytes.get(..len).unwrap_or_default());
        // A part of a unit may be kept without what was stored to the rest of it before.
        for unit in units {
            let now = self.unit(unit);
            let olds = self.loose.get(&unit).into_iter().flatten();
            let kept: Vec<Unit> = olds.map(|old| overlaid(unit, *old, now, offset..end)).collect();
            self.loose.entry(unit).or_default().extend(kept);
        }
    }

    /// The bytes `from..to` are durable as they are now.
    pub fn settle(&mut self, from: u64, to: u64) {
        let units: Vec<u64> =
            self.loose.range(from / UNIT..to.div_ceil(UNIT)).map(|(unit, _)| *unit).collect();
        for unit in units {
            let now = self.unit(unit);
            let olds = self.loose.remove(&unit).unwrap_or_default().into_iter();
            let olds = olds.map(|old| overlaid(unit, old, now, from..to));
            let olds: BTreeSet<Unit> = olds.filter(|old| *old != now).collect();
            if !olds.is_empty() {
                self.loose.insert(unit, olds);
            }
        }
    }

    /// Whether a crash may leave these contents of what was to be `self`.
    #[must_use]
    pub fn allows(&self, found: &Self) -> bool {
        if self == found {
            return true;
        }
        if self.loose.is_empty() || self.size() != found.size() {
            return false;
        }
        let mut found = found.clone();
        for (unit, olds) in &self.loose {
            if olds.contains(&found.unit(*unit)) {
                found.put_unit(*unit, self.unit(*unit));
            }
        }
        *self == found
    }

    /// A crash may leave of each unit also what `after` has there, for it is being changed in place.
    pub fn may_become(&mut self, after: &Self) {
        let stop = self.size().min(after.size());
        let mut units: BTreeSet<u64> = after.loose.keys().copied().collect();
        for page in self.page_numbers().chain(after.page_numbers()) {
            let first = page * PAGE / UNIT;
            let differs = |unit: &u64| self.unit(*unit) != after.unit(*unit);
            units.extend((first..first + PAGE / UNIT).filter(differs));
        }
        for unit in units.into_iter().take_while(|unit| unit * UNIT < stop) {
            let mut olds = after.loose.get(&unit).cloned().unwrap_or_default();
            olds.insert(after.unit(unit));
            let now = self.unit(unit);
            for old in olds {
                let new = overlaid(unit, now, old, 0..stop);
                if new != now {
                    self.loose.entry(unit).or_default().insert(new);
                }
            }
        }
    }

    /// The bytes turned out to be these. With `durable` nothing else comes back any more.
    pub fn turn_out(&mut self, found: &Self, durable: bool) {
        let mut loose = std::mem::take(&mut self.loose);
        for (unit, olds) in &mut loose {
            olds.insert(self.unit(*unit));
            // Bytes that were written behind the end that it has now are not there in what comes back either.
            let inside = |old: &Unit| overlaid(*unit, [0; 8], *old, 0..found.size());
            *olds = olds.iter().map(inside).collect();
        }
        self.clone_from(found);
        self.loose = if durable { BTreeMap::new() } else { loose };
    }

    fn unit(&self, unit: u64) -> Unit {
        let mut bytes = [0; 8];
        for (byte, found) in bytes.iter_mut().zip(self.read(unit * UNIT, 8)) {
            *byte = found;
        }
        bytes
    }

    fn put_unit(&mut self, unit: u64, bytes: Unit) {
        let len = usize::try_from(self.size().saturating_sub(unit * UNIT)).unwrap_or(8).min(8);
        self.put(unit * UNIT, bytes.get(..len).unwrap_or_default());
    }
}

/// A unit of one kind with the bytes of another in a range of the file.
fn overlaid(unit: u64, mut under: Unit, over: Unit, range: Range<u64>) -> Unit {
    for ((under, over), at) in under.iter_mut().zip(over).zip(unit * UNIT..) {
        *under = if range.contains(&at) { over } else { *under };
    }
    under
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(bytes: &[u8]) -> Contents {
        let mut contents = Contents::default();
        contents.write(0, bytes);
        contents
    }

    #[test]
    fn what_is_lost_behind_a_store_comes_back_with_no_old_bytes() {
        let mut file = contents(&[1; 20]);
        file.store(16, &[2; 4]);
        let found = file.clone();
        file.write(20, &[3; 10]);
        file.turn_out(&found, false);
        assert!(file.allows(&contents(&[1; 20])) && file.allows(&found));
        file.turn_out(&found, true);
        assert!(!file.allows(&contents(&[1; 20])));
    }

    #[test]
    fn each_unit_of_a_store_is_the_old_or_the_new_one() {
        let mut file = contents(&[1; 20]);
        file.store(4, &[2; 100]);
        assert_eq!(file.size(), 20);
        let mut expected = [2; 20];
        expected[..4].fill(1);
        assert!(file.allows(&contents(&expected)));
        expected[8..16].fill(1);
        assert!(file.allows(&contents(&expected)));
        expected[16..].fill(1);
        assert!(file.allows(&contents(&expected)));
        expected[9] = 2;
        assert!(!file.allows(&contents(&expected)));
    }

    #[test]
    fn what_is_flushed_written_or_cut_off_does_not_come_back() {
        let old = contents(&[1; 24]);
        let mut file = old.clone();
        file.store(0, &[2; 24]);
        let mut flushed = file.clone();
        flushed.settle(0, 4096);
        assert!(file.allows(&old) && !flushed.allows(&old));
        // Of a unit the rest stays loose.
        file.write(0, &[3; 12]);
        let mut bytes = [1; 24];
        bytes[..12].fill(3);
        assert!(file.allows(&contents(&bytes)));
        bytes[8..12].fill(1);
        assert!(!file.allows(&contents(&bytes)));
        file.truncate(14);
        file.truncate(24);
        let mut bytes = [0; 24];
        bytes[..12].fill(3);
        bytes[12..14].fill(1);
        assert!(file.allows(&contents(&bytes)));
        bytes[14] = 1;
        assert!(!file.allows(&contents(&bytes)));
    }

    #[test]
    fn a_change_in_place_shows_in_any_part_below_both_ends() {
        let mut before = contents(&[1; 20]);
        let after = contents(&[2; 10]);
        before.may_become(&after);
        let mut found = [1; 20];
        found[..10].fill(2);
        assert!(before.allows(&contents(&found)));
        found[10] = 2;
        assert!(!before.allows(&contents(&found)));
    }

    #[test]
    fn what_moves_takes_along_what_is_loose() {
        let mut file = contents(&[1; 8192]);
        file.store(4096, &[2; 8]);
        file.insert(0, 4096);
        let mut found = file.clone();
        found.write(8192, &[1; 8]);
        assert!(file.allows(&found));
        file.collapse(4096, 4096);
        found.collapse(4096, 4096);
        assert!(file.allows(&found));
        file.collapse(4096, 4096);
        assert!(file.loose.is_empty());
    }

    #[test]
    fn what_turned_out_is_there_and_may_go_again_unless_it_is_durable() {
        let old = contents(&[1; 8]);
        let mut file = old.clone();
        file.store(0, &[2; 8]);
        let new = file.clone();
        for durable in [false, true] {
            let mut found = file.clone();
            found.turn_out(&old, durable);
            assert_eq!(found, old);
            assert_eq!(found.allows(&new), !durable);
        }
    }
}
