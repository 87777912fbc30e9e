//! Exact counts of what was stored, written back and fenced, kept a thread each and summed.
//!
//! A thread adds to its own shard with plain loads and stores (2 to 3 ns a call). A shard's
//! counts move to the pool's total when its thread ends, so no count is ever lost.

mod shard;

use std::ops::Sub;

pub(crate) use shard::Registry;

use crate::Purpose;

/// Slots that a pool can have.
pub(crate) const SLOTS_MAX: usize = 64;

/// What was stored for one purpose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PurposeCounters {
    /// Distinct lines touched, summed over the store calls.
    pub lines: u64,
    /// Those of them that were stored by streaming stores and need no write-back.
    pub lines_streamed: u64,
    /// Lines written back.
    pub write_backs: u64,
    /// Bytes stored.
    pub bytes: u64,
}

/// What was stored, written back and fenced since the pool was opened.
///
/// Subtract two to count an interval. Totals of other threads may lag by the call in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters {
    purposes: [PurposeCounters; Purpose::ALL.len()],
    slot_lines: [u64; SLOTS_MAX],
    /// Fences executed.
    pub fences: u64,
    /// Fences with a write-back or streaming store of their thread before them: the ones that cost.
    pub fences_with_pending: u64,
    /// Those of them that a commit waited for before it stored its line: commits in the two-fence form.
    pub fences_before_commits: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            purposes: [PurposeCounters::default(); Purpose::ALL.len()],
            slot_lines: [0; SLOTS_MAX],
            fences: 0,
            fences_with_pending: 0,
            fences_before_commits: 0,
        }
    }
}

impl Counters {
    /// What was stored for `purpose`.
    #[must_use]
    pub fn of(&self, purpose: Purpose) -> PurposeCounters {
        self.purposes.get(purpose as usize).copied().unwrap_or_default()
    }

    /// What was stored for all purposes.
    #[must_use]
    pub fn total(&self) -> PurposeCounters {
        self.purposes.iter().fold(PurposeCounters::default(), |sum, p| PurposeCounters {
            lines: sum.lines + p.lines,
            lines_streamed: sum.lines_streamed + p.lines_streamed,
            write_backs: sum.write_backs + p.write_backs,
            bytes: sum.bytes + p.bytes,
        })
    }

    /// Lines stored, all purposes.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.total().lines
    }

    /// Lines written back, all purposes; streamed lines are not among them.
    #[must_use]
    pub fn write_backs(&self) -> u64 {
        self.total().write_backs
    }

    /// Bytes stored, all purposes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.total().bytes
    }

    /// Lines that were sent to `slot`: written back or streamed; under eADR, stored.
    ///
    /// This is the wear of WASA, counted in lines where the paper counts calls.
    #[must_use]
    pub fn slot_lines(&self, slot: u8) -> u64 {
        self.slot_lines.get(usize::from(slot)).copied().unwrap_or_default()
    }
}

/// The counts between two moments: later minus earlier.
impl Sub<&Counters> for &Counters {
    type Output = Counters;

    fn sub(self, earlier: &Counters) -> Counters {
        let mut left = self.clone();
        for (mine, theirs) in left.purposes.iter_mut().zip(&earlier.purposes) {
            mine.lines -= theirs.lines;
            mine.lines_streamed -= theirs.lines_streamed;
            mine.write_backs -= theirs.write_backs;
            mine.bytes -= theirs.bytes;
        }
        for (mine, theirs) in left.slot_lines.iter_mut().zip(&earlier.slot_lines) {
            *mine -= theirs;
        }
        left.fences -= earlier.fences;
        left.fences_with_pending -= earlier.fences_with_pending;
        left.fences_before_commits -= earlier.fences_before_commits;
        left
    }
}

/// The counts between two moments: later minus earlier.
impl Sub for Counters {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        &self - &earlier
    }
}
