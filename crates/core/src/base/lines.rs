//! Lines of a page that has two copies: which copy has which, told by a word of a bit a line.

use std::ops::Range;

use novale_layout::{LINE, Partner, PmAddr};

/// Adjacent bytes of a page that lie in the same copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LineRun {
    /// They lie in the partner, and not at home.
    pub(crate) in_partner: bool,
    /// From and to, in bytes from the start of the page.
    pub(crate) bytes: Range<u64>,
}

/// The first run of some bytes of a page, at least one: in the copy that `word` names, a set bit is the
/// partner.
#[inline]
fn first_run(word: u64, Range { start, end }: Range<u64>) -> LineRun {
    let rest = word >> (start / LINE);
    let in_partner = rest & 1 == 1;
    let lines = if in_partner { rest.trailing_ones() } else { rest.trailing_zeros() };
    let to = (start / LINE + u64::from(lines)).min(64) * LINE;
    LineRun { in_partner, bytes: start..end.min(to) }
}

/// The bytes of a page in runs, each in the copy that `word` names: a set bit is the partner.
pub(crate) fn line_runs(word: u64, bytes: Range<u64>) -> impl Iterator<Item = LineRun> {
    let Range { start: mut at, end } = bytes;
    std::iter::from_fn(move || {
        let run = (at < end).then(|| first_run(word, at..end))?;
        at = run.bytes.end;
        Some(run)
    })
}

/// Where the current bytes of a page lie, in order: at `home`, or in the partner, as `word` says; each run
/// with the place of its first byte.
#[inline]
pub(crate) fn places(
    home: PmAddr,
    partner: Partner,
    word: u64,
    bytes: Range<u64>,
) -> impl Iterator<Item = (PmAddr, Range<u64>)> {
    let Range { start: mut at, end } = bytes;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let LineRun { in_partner, bytes } = first_run(word, at..end);
        let (copy, from, to) = if in_partner {
            // Slots go round the end of their page.
            let (from, room) = partner.place(at);
            (partner.page(), from, bytes.end.min(at + room))
        } else {
            (home, at, bytes.end)
        };
        let bytes = at..to;
        at = to;
        Some((copy.add(from), bytes))
    })
}

/// The runs of lines of a page whose bits are set, in bytes from its start.
pub(crate) fn set_runs(lines: u64) -> impl Iterator<Item = Range<u64>> {
    line_runs(lines, 0..64 * LINE).filter(|run| run.in_partner).map(|run| run.bytes)
}

/// The bits of the lines that bytes of a page touch; at least one.
pub(crate) fn line_mask(bytes: &Range<u64>) -> u64 {
    let (first, last) = (bytes.start / LINE, (bytes.end - 1) / LINE);
    u64::MAX >> (63 - (last - first)) << first
}

/// Whether bytes of a page, at least one, lie in one copy, and in which: `Some(true)` is the partner.
#[inline]
pub(crate) fn one_copy(word: u64, bytes: &Range<u64>) -> Option<bool> {
    let mask = line_mask(bytes);
    let in_partner = word & mask;
    (in_partner == 0 || in_partner == mask).then_some(in_partner != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_follow_the_bits_and_cover_all_bytes() {
        let runs = |word, bytes| {
            let runs: Vec<(bool, Range<u64>)> =
                line_runs(word, bytes).map(|run| (run.in_partner, run.bytes)).collect();
            runs
        };
        assert_eq!(runs(0, 0..4096), [(false, 0..4096)]);
        assert_eq!(runs(u64::MAX, 0..4096), [(true, 0..4096)]);
        assert_eq!(runs(1 << 63, 100..4096), [(false, 100..4032), (true, 4032..4096)]);
        assert_eq!(runs(0b110, 10..200), [(false, 10..64), (true, 64..192), (false, 192..200)]);
        assert_eq!(runs(0b10, 70..80), [(true, 70..80)]);
        assert_eq!(runs(7, 64..64), []);
        assert_eq!(one_copy(0b110, &(10..65)), None);
        assert_eq!(one_copy(0b110, &(64..192)), Some(true));
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..1000 {
            let (word, start) = (random.u64(..), random.u64(0..4096));
            let end = random.u64(start..4097);
            let mut at = start;
            for run in line_runs(word, start..end) {
                assert_eq!(run.bytes.start, at);
                assert_eq!(one_copy(word, &run.bytes), Some(run.in_partner));
                assert!(
                    (run.bytes.start..run.bytes.end)
                        .all(|byte| (word >> (byte / LINE) & 1 == 1) == run.in_partner)
                );
                at = run.bytes.end;
            }
            assert_eq!(at, end.max(start));
        }
    }

    #[test]
    fn slots_go_round_the_end_of_their_page() {
        let [home, page] = [8, 9].map(|at| PmAddr::new(0, at * 4096));
        let found = |partner, word, bytes| {
            let found: Vec<_> = places(home, partner, word, bytes)
                .map(|(at, bytes)| (at.byte(), bytes.start, bytes.end))
                .collect();
            found
        };
        let slots = Partner::slots(page, 62);
        assert_eq!(slots.slots_of(0b1101), 0b11 | 1 << 62);
        let [home, page] = [home, page].map(PmAddr::byte);
        assert_eq!(
            found(slots, 0b10, 0..200),
            [(home, 0, 64), (page + 63 * 64, 64, 128), (home + 128, 128, 200)]
        );
        let round = [(page + 62 * 64 + 10, 10, 128), (page, 128, 180)];
        assert_eq!(found(slots, 0b111, 10..180), round);
        assert_eq!(found(Partner::own(PmAddr::new(0, page)), !0, 10..180), [(page + 10, 10, 180)]);
        assert_eq!(set_runs(0b1011).collect::<Vec<_>>(), [0..128, 192..256]);
    }

    #[test]
    fn a_mask_has_the_lines_that_are_touched() {
        assert_eq!(line_mask(&(0..1)), 1);
        assert_eq!(line_mask(&(63..65)), 3);
        assert_eq!(line_mask(&(0..4096)), u64::MAX);
        assert_eq!(line_mask(&(4095..4096)), 1 << 63);
        assert_eq!(line_mask(&(128..192)), 4);
    }
}
