//! Whether a file's writes had better be buffered: the Buffer Benefit Model of `HiNFS` (3.2).
//!
//! The paper compares, for a block and the time between two syncs, lines written to DRAM and then flushed
//! with lines written to the memory at once: `Ncw * Ldram + Ncf * Lnvmm < Ncw * Lnvmm`. Here a file is
//! flushed as a whole, so its lines are added up; and each side has its commits beside its lines: one for
//! each write that is made directly, one for a flush, however many writes it has.

/// What was written to a file between two syncs, and what a flush of it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Lines written, each as often as it was (the paper's `Ncw`).
    pub lines_written: u64,
    /// Lines that the sync flushes, or would if all of it had been buffered (`Ncf`).
    pub lines_flushed: u64,
    /// Writes.
    pub writes: u64,
}

/// What the memory takes, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferCosts {
    /// A line that is written to the pool (`Lnvmm`).
    pub line_ns: u64,
    /// A fence that waits for one.
    pub fence_ns: u64,
}

/// A line that is copied to DRAM (`Ldram`), ns.
const DRAM_LINE_NS: u64 = 5;
/// A line that a flush copies from there, ns.
const FETCH_LINE_NS: u64 = 3;
/// What a buffered write takes in software beyond what a direct one does, its blocks' way back included, ns.
const WRITE_NS: u64 = 90;
/// Lines of a commit: an entry and the commit line.
const COMMIT_LINES: u64 = 2;
/// Fences of a flush, which takes the two-fence form.
const FLUSH_FENCES: u64 = 2;
/// What a flush takes besides, ns: finding its blocks, and giving them back.
const FLUSH_NS: u64 = 1000;

impl BufferCosts {
    /// Those where nobody has measured any: the machine's own memory.
    pub const OWN: Self = Self { line_ns: 5, fence_ns: 100 };

    /// Whether buffering takes less time than writing directly; so it does where the sync found nothing to
    /// flush.
    #[must_use]
    pub const fn favours_buffering(self, tally: Tally) -> bool {
        let Self { line_ns, fence_ns } = self;
        let Tally { lines_written, lines_flushed, writes } = tally;
        if lines_flushed == 0 {
            return true;
        }
        let buffered = writes * WRITE_NS
            + lines_written * DRAM_LINE_NS
            + lines_flushed * FETCH_LINE_NS
            + (lines_flushed + COMMIT_LINES) * line_ns
            + FLUSH_FENCES * fence_ns
            + FLUSH_NS;
        let direct = (lines_written + COMMIT_LINES * writes) * line_ns + writes * fence_ns;
        buffered < direct
    }
}

/// How many of a directory's newest files were synced soon, as a score: new ones begin as the others did.
///
/// It falls by an eighth with each file that is made, and rises with each whose first sync says that
/// buffering did not pay. So it gets to above 240 where all do, and to half of that where every other one
/// does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SyncedSoon(u8);

impl SyncedSoon {
    const STEP: u8 = 31;
    /// From here on new files are taken for such: two of three were.
    const ENOUGH: u8 = 160;

    /// The score that a number stands for.
    #[must_use]
    pub const fn of(score: u8) -> Self {
        Self(score)
    }

    /// Its number.
    #[must_use]
    pub const fn score(self) -> u8 {
        self.0
    }

    /// A file was made.
    #[must_use]
    pub const fn made(self) -> Self {
        Self(self.0 - self.0.div_ceil(8))
    }

    /// A new file was synced, and had better not been buffered.
    #[must_use]
    pub const fn synced(self) -> Self {
        Self(self.0.saturating_add(Self::STEP))
    }

    /// Whether a new file is to be written directly.
    #[must_use]
    pub const fn is_likely(self) -> bool {
        self.0 >= Self::ENOUGH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: BufferCosts = BufferCosts { line_ns: 200, fence_ns: 300 };

    fn tally(lines_written: u64, lines_flushed: u64, writes: u64) -> Tally {
        Tally { lines_written, lines_flushed, writes }
    }

    #[test]
    fn what_is_written_once_and_synced_goes_directly_and_what_is_overwritten_does_not() {
        for costs in [SLOW, BufferCosts::OWN] {
            for lines in [1, 2, 64, 256, 4096] {
                assert!(!costs.favours_buffering(tally(lines, lines, 1)), "{costs:?} {lines}");
            }
        }
        // A page that was written ten times, or was flushed by others before the sync.
        assert!(SLOW.favours_buffering(tally(640, 64, 10)));
        assert!(SLOW.favours_buffering(tally(1, 0, 1)));
        // Where a line costs what it costs in DRAM, a copy more is a copy too many.
        assert!(!BufferCosts::OWN.favours_buffering(tally(640, 640, 1)));
    }

    #[test]
    fn many_small_appends_share_the_commit_of_a_flush() {
        assert!(!SLOW.favours_buffering(tally(4, 4, 2)));
        assert!(SLOW.favours_buffering(tally(40, 20, 20)));
    }

    /// What buffering itself takes was left out: 20 appends of 100 bytes to a sync were buffered on the
    /// machine's own memory, where they took 1.2 times as long.
    #[test]
    fn on_memory_as_fast_as_the_buffer_a_line_is_to_be_written_often() {
        let costs = BufferCosts::OWN;
        assert!(!costs.favours_buffering(tally(51, 32, 20)));
        assert!(!costs.favours_buffering(tally(1024, 1024, 16)));
        assert!(costs.favours_buffering(tally(100, 1, 100)));
    }

    #[test]
    fn new_files_follow_two_of_three_before_them() {
        let after = |files: &[bool]| {
            files.iter().cycle().take(60).fold(SyncedSoon::default(), |score, synced| {
                let made = score.made();
                if *synced { made.synced() } else { made }
            })
        };
        assert!(after(&[true]).score() > 240);
        assert!(after(&[true]).made().is_likely());
        assert!(!after(&[true, false]).is_likely());
        assert_eq!(after(&[false]).score(), 0);
    }
}
