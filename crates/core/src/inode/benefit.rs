//! What the Buffer Benefit Model (`HiNFS`) knows of a file: hints alone, on which nothing depends but whether
//! a write goes to the buffer.
//!
//! Two words of the view: a tally of what was written since the last sync, and what that sync said. A file
//! is eager or lazy as a whole, since it is flushed as a whole. The *ghost buffer* has for pages of eager
//! files the lines that the buffer would have, without their bytes: a table of tags, two words a page, in
//! which the newest page of a place stands. A directory has, in the same word, how its new files fared.
//!
//! Readers and writers take no lock. Words that two change at the same moment say something else than
//! either meant, and the next sync goes by that.

use std::sync::atomic::Ordering::Relaxed;

use novale_arena::{Arena, AtomicU64, Off};
use novale_layout::{INO_LIMIT, Ino, LINE, PAGE};
use novale_policy::{SyncedSoon, Tally};

use crate::base::error::Result;
use crate::base::lines::line_mask;
use crate::inode::view::View;

// Words of the view's last line, beside those of [`crate::inode::buffer`]. They are stored without the lock, also while
// somebody takes the view away: so none of them is the last word, which links the blocks that are free.
/// What [`Verdict`] says; of a directory, how its new files fared, and in the lowest byte the score.
const VERDICT: usize = 5;
/// Writes in the lowest 14 bits, then lines to be flushed and lines written, 18 each, and above how many
/// verdicts there were.
const TALLY: usize = 6;

const WRITES_BITS: u32 = 14;
/// As many as the lines that the buffer has of a file.
const LINES_BITS: u32 = 18;
const LINES_MAX: u64 = (1 << LINES_BITS) - 1;
const WRITES_MAX: u64 = (1 << WRITES_BITS) - 1;
const VERDICTS_SHIFT: u32 = WRITES_BITS + 2 * LINES_BITS;
/// The lowest bit above each of the three numbers, into which it overflows.
const OVERFLOWS: u64 = 1 << WRITES_BITS | 1 << (WRITES_BITS + LINES_BITS) | 1 << VERDICTS_SHIFT;

/// In the word of a file: its writes go past the buffer.
const EAGER: u64 = 1;
/// In the same word: it was synced, at the time above; else above is the number of its directory.
const SYNCED: u64 = 2;
const BITS: u64 = EAGER | SYNCED;
const SCORE: u64 = 0xff;

/// Words of the ghost buffer for a page.
const GHOST_WORDS: usize = 2;
const LINE_WORDS: usize = 8;
const _: () = assert!(VERDICT < LINE_WORDS - 1 && TALLY < LINE_WORDS - 1);
/// By which pages are spread over the words that are mixed: the golden ratio's.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
const PAGES_A_LINE: u64 = (LINE_WORDS / GHOST_WORDS) as u64;
/// Pages that it has at most, as a power of two: 1 MB.
const GHOST_PAGES_MAX_LOG2: u32 = 16;

/// What the last sync of a file said, or else its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was synced at this time.
    Synced { is_eager: bool, at_ns: i64 },
    /// It was not; it is new in this directory.
    New { is_eager: bool, directory: Ino },
}

impl Verdict {
    fn word(self) -> u64 {
        match self {
            Self::Synced { is_eager, at_ns } => {
                at_ns.cast_unsigned() & !BITS | SYNCED | u64::from(is_eager)
            }
            Self::New { is_eager, directory } => {
                (directory.get() % INO_LIMIT) << BITS.count_ones() | u64::from(is_eager)
            }
        }
    }

    fn of(word: u64) -> Self {
        let is_eager = word & EAGER != 0;
        if word & SYNCED != 0 {
            Self::Synced { is_eager, at_ns: (word & !BITS).cast_signed() }
        } else {
            Self::New { is_eager, directory: Ino::new(word >> BITS.count_ones()) }
        }
    }

    pub(crate) fn is_eager(self) -> bool {
        let (Self::Synced { is_eager, .. } | Self::New { is_eager, .. }) = self;
        is_eager
    }
}

/// What does not fit is halved with all else: it is their ratios that decide.
fn tally_word(mut tally: Tally) -> u64 {
    while tally.lines_written.max(tally.lines_flushed) > LINES_MAX || tally.writes > WRITES_MAX {
        tally.lines_written /= 2;
        tally.lines_flushed /= 2;
        tally.writes /= 2;
    }
    tally.lines_written << (WRITES_BITS + LINES_BITS)
        | tally.lines_flushed << WRITES_BITS
        | tally.writes
}

/// The word with a write more.
#[inline]
fn added(was: u64, lines_written: u64, lines_flushed: u64) -> u64 {
    let more = lines_written << (WRITES_BITS + LINES_BITS) | lines_flushed << WRITES_BITS | 1;
    let sum = was.wrapping_add(more);
    if lines_written.max(lines_flushed) <= LINES_MAX && (was ^ more ^ sum) & OVERFLOWS == 0 {
        return sum;
    }
    let tally = tally_of(was);
    let sum = Tally {
        lines_written: tally.lines_written + lines_written,
        lines_flushed: tally.lines_flushed + lines_flushed,
        writes: tally.writes + 1,
    };
    was >> VERDICTS_SHIFT << VERDICTS_SHIFT | tally_word(sum)
}

fn tally_of(word: u64) -> Tally {
    Tally {
        lines_written: word >> (WRITES_BITS + LINES_BITS) & LINES_MAX,
        lines_flushed: word >> WRITES_BITS & LINES_MAX,
        writes: word & WRITES_MAX,
    }
}

impl View<'_> {
    fn hint(&self, index: usize) -> Option<&AtomicU64> {
        self.buffer_words().get(index)
    }

    /// What was written since the last sync.
    pub(crate) fn tally(&self) -> Tally {
        tally_of(self.hint(TALLY).map_or(0, |word| word.load(Relaxed)))
    }

    /// A write of so many lines, of which so many are to be flushed.
    #[inline]
    pub(crate) fn add_to_tally(&self, lines_written: u64, lines_flushed: u64) {
        let Some(word) = self.hint(TALLY) else { return };
        let was = word.load(Relaxed);
        word.store(added(was, lines_written, lines_flushed), Relaxed);
    }

    /// Nothing is written that the next sync has to do with.
    pub(crate) fn restart_tally(&self) {
        if let Some(word) = self.hint(TALLY) {
            word.store(self.verdicts() << VERDICTS_SHIFT, Relaxed);
        }
    }

    /// How many verdicts there were, in 14 bits: more than come within a tick of a coarse clock (4 ms).
    fn verdicts(&self) -> u64 {
        self.hint(TALLY).map_or(0, |word| word.load(Relaxed)) >> VERDICTS_SHIFT
    }

    /// What was said of the file last.
    pub(crate) fn verdict(&self) -> Verdict {
        Verdict::of(self.hint(VERDICT).map_or(0, |word| word.load(Relaxed)))
    }

    /// What is said of the file from now on; nothing is written since.
    pub(crate) fn set_verdict(&self, verdict: Verdict) {
        let [.., said, tally, _] = self.buffer_words();
        // Clocks may stand still between two syncs.
        tally.store(self.verdicts().wrapping_add(1) << VERDICTS_SHIFT, Relaxed);
        said.store(verdict.word(), Relaxed);
    }

    /// Nothing is known of the file, or of the directory's new files.
    pub(crate) fn forget_verdict(&self) {
        let [.., said, tally, _] = self.buffer_words();
        tally.store(0, Relaxed);
        said.store(0, Relaxed);
    }

    /// Whether writes to the file go past the buffer, which a verdict says for so long.
    #[inline]
    pub(crate) fn is_eager(&self, now_ns: i64, eager_ns: i64) -> bool {
        let verdict = self.verdict();
        verdict.is_eager() && {
            let said_ns = match verdict {
                Verdict::Synced { at_ns, .. } => at_ns,
                Verdict::New { .. } => self.birth_ns(),
            };
            now_ns.saturating_sub(said_ns) < eager_ns
        }
    }

    /// Of a directory: how its new files fared, and when the last of them was synced.
    pub(crate) fn synced_soon(&self) -> (SyncedSoon, i64) {
        let word = self.hint(VERDICT).map_or(0, |word| word.load(Relaxed));
        let score = u8::try_from(word & SCORE).unwrap_or(0);
        (SyncedSoon::of(score), (word & !SCORE).cast_signed())
    }

    pub(crate) fn set_synced_soon(&self, score: SyncedSoon, at_ns: i64) {
        if let Some(word) = self.hint(VERDICT) {
            word.store(at_ns.cast_unsigned() & !SCORE | u64::from(score.score()), Relaxed);
        }
    }
}

/// The ghost buffer: the table, and how many pages it has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ghost {
    table: Off,
    pages: u64,
}

impl Ghost {
    /// Without any page.
    pub(crate) const NONE: Self = Self { table: Off::NULL, pages: 0 };

    /// One for a buffer of so many blocks: less than 1 % of it.
    pub(crate) fn create(arena: &Arena, blocks: u64) -> Result<Self> {
        let log2 = blocks.max(8).ilog2().min(GHOST_PAGES_MAX_LOG2);
        let table = arena.alloc_table(log2 + GHOST_WORDS.ilog2())?;
        Ok(Self { table, pages: 1 << log2 })
    }

    /// As two words.
    pub(crate) fn words(self) -> [u64; 2] {
        [self.table.raw(), self.pages]
    }

    pub(crate) fn of_words([table, pages]: [u64; 2]) -> Self {
        Self { table: Off::from_raw(table), pages }
    }

    /// Notes lines of a page that were written directly; returns those that it did not have since the sync
    /// that `verdict` is of.
    #[inline]
    fn note(self, arena: &Arena, view: &View<'_>, page: u64, mask: u64) -> Result<u64> {
        if self.pages == 0 {
            return Ok(mask);
        }
        let since = view.hint(VERDICT).map_or(0, |word| word.load(Relaxed)) ^ view.verdicts();
        // Each of the three by itself leads elsewhere: an odd factor loses nothing of the page.
        let tag = mixed(view.ino().get() ^ since.rotate_left(24) ^ page.wrapping_mul(SPREAD));
        let place = tag & (self.pages - 1);
        let line = self.table.word(place / PAGES_A_LINE * LINE_WORDS as u64);
        let (pairs, _) = arena.block::<LINE_WORDS>(line)?.as_chunks::<GHOST_WORDS>();
        let pair = pairs.get(usize::try_from(place % PAGES_A_LINE).unwrap_or(0));
        let Some([tag_word, mask_word]) = pair else { return Ok(0) };
        let had = if tag_word.load(Relaxed) == tag {
            mask_word.load(Relaxed)
        } else {
            tag_word.store(tag, Relaxed);
            0
        };
        mask_word.store(had | mask, Relaxed);
        Ok(mask & !had)
    }

    /// As [`Ghost::note`], of all that a write covers; returns how many lines it writes, and how many of them
    /// are new.
    #[inline]
    pub(crate) fn note_write(
        self,
        arena: &Arena,
        view: &View<'_>,
        offset: u64,
        len: u64,
    ) -> Result<(u64, u64)> {
        let (mut at, end) = (offset, offset.saturating_add(len));
        let (mut lines, mut new) = (0, 0);
        while at < end {
            let from = at % PAGE;
            let to = (from + end - at).min(PAGE);
            let mask = line_mask(&(from..to));
            let count = (to - 1) / LINE - from / LINE + 1;
            lines += count;
            // Mostly all or none; to count bits takes longer than all else where there is no instruction.
            new += match self.note(arena, view, at / PAGE, mask)? {
                0 => 0,
                all if all == mask => count,
                some => u64::from(some.count_ones()),
            };
            at += to - from;
        }
        Ok((lines, new))
    }
}

/// A number that looks like none of its neighbours (the end of `splitmix64`).
fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_what_was_put_into_them() {
        let verdicts = [
            Verdict::Synced { is_eager: true, at_ns: 1 << 60 },
            Verdict::Synced { is_eager: false, at_ns: 4 },
            Verdict::New { is_eager: true, directory: Ino::new(INO_LIMIT - 1) },
            Verdict::New { is_eager: false, directory: Ino::new(0) },
        ];
        for verdict in verdicts {
            assert_eq!(Verdict::of(verdict.word()), verdict);
        }
        let tally = Tally { lines_written: 1 << 17, lines_flushed: 77, writes: 12 };
        assert_eq!(tally_of(tally_word(tally)), tally);
        let more = Tally { lines_written: 1 << 30, lines_flushed: 1 << 28, writes: 1 << 20 };
        let halved = Tally { lines_written: 1 << 17, lines_flushed: 1 << 15, writes: 1 << 7 };
        assert_eq!(tally_of(tally_word(more)), halved);
    }

    #[test]
    fn a_write_is_added_whether_the_numbers_have_room_for_it_or_not() {
        let verdicts = 77 << VERDICTS_SHIFT;
        let sum_of = |tally: Tally, written, flushed| {
            let word = added(verdicts | tally_word(tally), written, flushed);
            assert_eq!(word & u64::MAX << VERDICTS_SHIFT, verdicts);
            tally_of(word)
        };
        let tally =
            |lines_written, lines_flushed, writes| Tally { lines_written, lines_flushed, writes };
        assert_eq!(sum_of(tally(5, 4, 3), 64, 2), tally(69, 6, 4));
        assert_eq!(sum_of(tally(LINES_MAX - 1, 7, 1), 1, 0), tally(LINES_MAX, 7, 2));
        assert_eq!(sum_of(tally(LINES_MAX, 8, 1), 1, 0), tally(1 << 17, 4, 1));
        assert_eq!(sum_of(tally(8, LINES_MAX, 1), 0, 1), tally(4, 1 << 17, 1));
        assert_eq!(sum_of(tally(64, 8, WRITES_MAX), 0, 0), tally(32, 4, 1 << 13));
        assert_eq!(sum_of(tally(0, 0, 0), 1 << 20, 0), tally(1 << 17, 0, 0));
    }

    #[test]
    fn the_ghost_buffer_counts_a_line_once_between_two_syncs() {
        let (fs, ino) = crate::fixture::with_file();
        let ghost = Ghost::create(fs.arena(), 64).unwrap();
        let view = fs.views.find(fs.arena(), ino).unwrap().unwrap();
        let note = |offset, len| ghost.note_write(fs.arena(), &view, offset, len).unwrap();
        assert_eq!(note(0, 4096), (64, 64));
        assert_eq!(note(100, 64), (2, 0));
        assert_eq!(note(4000, 200), (4, 2));
        // The clock stands still.
        for _ in 0..3 {
            view.set_verdict(Verdict::Synced { is_eager: true, at_ns: 8 });
            assert_eq!(note(4000, 200), (4, 4));
            assert_eq!(note(4000, 200), (4, 0));
        }
    }
}
