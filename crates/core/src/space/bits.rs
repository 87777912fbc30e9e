//! Runs of clear bits in the 512-bit map of a range.

use std::ops::RangeInclusive;

/// Words of a range's bitmap.
pub(super) const WORDS: usize = 8;
/// Pages of a range.
pub(super) const RANGE_PAGES: u64 = 512;

/// A range's bitmap; a set bit is a page in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bits(pub(super) [u64; WORDS]);

impl Bits {
    /// Number of clear bits.
    pub(super) fn free(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_zeros())).sum()
    }

    /// Position of the first bit at or after `from` that is set (`true`) or clear.
    fn next(&self, from: u64, set: bool) -> u64 {
        let mut at = from;
        while let Some(word) = usize::try_from(at / 64).ok().and_then(|index| self.0.get(index)) {
            let word = if set { *word } else { !word } >> (at % 64);
            if word != 0 {
                return at + u64::from(word.trailing_zeros());
            }
            at = (at / 64 + 1) * 64;
        }
        RANGE_PAGES
    }

    /// The runs of clear bits as (first, length), in order.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let first = self.next(at, false);
            if first >= RANGE_PAGES {
                return None;
            }
            at = self.next(first, true);
            Some((first, at - first))
        })
    }

    /// Length of the run of clear bits that the `count` clear bits from `first` are part of.
    pub(super) fn run_around(&self, first: u64, count: u64) -> u64 {
        self.next(first + count, true) - self.end_of_set(first)
    }

    /// Position after the last set bit before `to`.
    fn end_of_set(&self, to: u64) -> u64 {
        let mut to = to.min(RANGE_PAGES);
        while to > 0 {
            let base = (to - 1) / 64 * 64;
            let word = usize::try_from(base / 64)
                .ok()
                .and_then(|index| self.0.get(index))
                .map_or(0, |word| word & (u64::MAX >> (63 - (to - 1 - base))));
            if word != 0 {
                return base + 64 - u64::from(word.leading_zeros());
            }
            to = base;
        }
        0
    }

    /// The first run of at least `want` bits, else the longest one.
    pub(super) fn best_run(&self, want: u64) -> Option<(u64, u64)> {
        let mut best: Option<(u64, u64)> = None;
        for run in self.runs() {
            if best.is_none_or(|(_, length)| run.1 > length) {
                best = Some(run);
            }
            if run.1 >= want {
                break;
            }
        }
        best
    }

    /// The words that `count` bits from `first` lie in, at least one bit.
    pub(super) fn words(first: u64, count: u64) -> RangeInclusive<usize> {
        let word = |bit: u64| usize::try_from(bit / 64).unwrap_or(WORDS);
        word(first)..=word(first + count.max(1) - 1)
    }

    /// The bits of word `index` that belong to `count` bits from `first`.
    pub(super) fn mask(index: usize, first: u64, count: u64) -> u64 {
        let word = index as u64 * 64;
        let from = first.max(word);
        let to = (first + count).min(word + 64);
        if from >= to {
            return 0;
        }
        let ones = to - from;
        let low = if ones == 64 { u64::MAX } else { (1 << ones) - 1 };
        low << (from - word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_set(bits: &Bits, at: u64) -> bool {
        bits.0[usize::try_from(at / 64).unwrap()] >> (at % 64) & 1 == 1
    }

    fn naive(bits: &Bits) -> Vec<(u64, u64)> {
        let mut runs = Vec::new();
        let mut first = None;
        for at in 0..=RANGE_PAGES {
            let free = at < RANGE_PAGES && !is_set(bits, at);
            match (free, first) {
                (true, None) => first = Some(at),
                (false, Some(start)) => {
                    runs.push((start, at - start));
                    first = None;
                }
                _ => {}
            }
        }
        runs
    }

    #[test]
    fn runs_match_a_bit_by_bit_scan() {
        let mut random = fastrand::Rng::with_seed(1);
        for round in 0..500 {
            let mut bits = Bits([0; WORDS]);
            for word in &mut bits.0 {
                *word = match round % 3 {
                    0 => random.u64(..),
                    1 => random.u64(..) & random.u64(..) & random.u64(..),
                    _ => [0, u64::MAX][random.usize(..2)],
                };
            }
            assert_eq!(bits.runs().collect::<Vec<_>>(), naive(&bits));
            for (first, length) in bits.runs() {
                let part = random.u64(0..length);
                let count = random.u64(1..=length - part);
                assert_eq!(bits.run_around(first + part, count), length);
            }
            assert_eq!(bits.free(), naive(&bits).iter().map(|run| run.1).sum::<u64>());
        }
    }

    #[test]
    fn masks_cover_just_the_bits_named() {
        for (first, count) in [(0, 512), (0, 1), (63, 2), (100, 200), (511, 1)] {
            let bits = Bits(std::array::from_fn(|index| Bits::mask(index, first, count)));
            let touched: Vec<usize> = (0..WORDS).filter(|index| bits.0[*index] != 0).collect();
            assert!(Bits::words(first, count).eq(touched), "{count} from {first}");
            for at in 0..RANGE_PAGES {
                let set = is_set(&bits, at);
                assert_eq!(set, (first..first + count).contains(&at));
            }
        }
    }
}
