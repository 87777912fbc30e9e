//! What of a window is needed: pieces of writes that no later one says again, and holes on which something
//! depends.

use std::ops::Range;

use novale_layout::{PAGE, PmAddr};

use crate::base::error::Result;

/// A set of the pieces of writes in a window: open addressing, half full at most.
pub(super) struct Pieces {
    slots: Vec<Option<(u64, PmAddr, u32)>>,
}

impl Pieces {
    /// Room for `count` pieces.
    pub(super) fn for_count(count: usize) -> Self {
        Self { slots: vec![None; (count * 2).next_power_of_two()] }
    }

    /// Adds a piece; says whether it was not there.
    pub(super) fn insert(&mut self, piece: (u64, PmAddr, u32)) -> bool {
        let count = self.slots.len();
        // Fibonacci hashing of the page's number.
        let hash = (piece.1.raw() / PAGE).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let first = usize::try_from(hash).unwrap_or(0);
        for step in 0..count {
            match self.slots.get_mut((first + step) % count) {
                Some(slot @ None) => {
                    *slot = Some(piece);
                    return true;
                }
                Some(Some(other)) if *other == piece => return false,
                _ => {}
            }
        }
        true
    }
}

/// Whether a page of the hole is neither mapped nor in a later hole.
pub(super) fn depends_on(
    hole: &Range<u64>,
    later: &[Range<u64>],
    has_gap: impl Fn(u64, u64) -> Result<bool>,
) -> Result<bool> {
    let mut left = vec![hole.clone()];
    for other in later {
        left = left.into_iter().flat_map(|part| without(part, other)).collect();
    }
    for part in left {
        if has_gap(part.start, part.end)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What is left of a range without another.
fn without(range: Range<u64>, other: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let before = range.start..range.end.min(other.start);
    let behind = range.start.max(other.end)..range.end;
    [before, behind].into_iter().filter(|part| part.start < part.end)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_piece_is_in_the_set_once_it_was_added_and_no_other_is() {
        let mut random = fastrand::Rng::with_seed(3);
        let piece = |random: &mut fastrand::Rng| {
            (random.u64(0..4), PmAddr::new(0, random.u64(1..40) * PAGE), random.u32(1..3))
        };
        for count in 0..200 {
            let (mut pieces, mut known) = (Pieces::for_count(count), BTreeSet::new());
            for _ in 0..count {
                let (page, addr, pages) = piece(&mut random);
                let is_new = known.insert((page, addr.raw(), pages));
                assert_eq!(pieces.insert((page, addr, pages)), is_new);
            }
        }
    }

    #[test]
    fn a_hole_is_needed_as_long_as_one_of_its_pages_is_neither_mapped_nor_in_a_later_hole() {
        let mut random = fastrand::Rng::with_seed(5);
        let range = |random: &mut fastrand::Rng| {
            let start = random.u64(0..12);
            start..start + random.u64(1..6)
        };
        for _ in 0..2000 {
            let hole = range(&mut random);
            let later: Vec<Range<u64>> =
                (0..random.u64(0..4)).map(|_| range(&mut random)).collect();
            let mapped = random.u64(..);
            let is_gap = |page: u64| mapped >> page & 1 == 0;
            let found = depends_on(&hole, &later, |from, to| Ok((from..to).any(is_gap))).unwrap();
            let covered = |page: &u64| later.iter().any(|other| other.contains(page));
            assert_eq!(found, hole.clone().any(|page| is_gap(page) && !covered(&page)));
        }
    }
}
