//! Exact counts of what was stored, written back and fenced, kept a thread each and summed.
//!
//! A thread adds to its own shard with plain loads and stores (2 to 3 ns a call). When it ends another
//! one counts on in its shard, so no count is ever lost. The shards may lie in memory that other
//! processes read ([`Pm::set_count_source`](crate::Pm::set_count_source)), and which stays when this
//! process dies.

mod shard;
mod words;

use std::ops::{AddAssign, Sub};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

pub(crate) use shard::Registry;

use crate::Purpose;

/// Slots that a pool can have.
pub(crate) const SLOTS_MAX: usize = 64;

/// Kinds that [`Pm::count_asked`](crate::Pm::count_asked) tells apart.
pub const ASKED_KINDS: usize = 20;

/// Words for a thread's counts: always the same ones, and nobody else changes them meanwhile.
pub type CountWords = Box<dyn AsRef<[AtomicU64]> + Send + Sync>;

/// Gives so many words for the counts of one thread more: zeros, or as an earlier thread of the same pool
/// has left them. Where there are none a thread counts where nobody else sees it.
pub type CountSource = Box<dyn Fn(usize) -> Option<CountWords> + Send + Sync>;

/// What was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked {
    /// How often.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
}

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
    /// What the callers of who stores have asked for, by a number of its own meaning.
    pub asked: [Asked; ASKED_KINDS],
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
            asked: [Asked::default(); ASKED_KINDS],
            fences: 0,
            fences_with_pending: 0,
            fences_before_commits: 0,
        }
    }
}

impl Counters {
    /// What the words of one thread's counts say ([`CountWords`]), also while it goes on.
    #[must_use]
    pub fn of_words(words: &[AtomicU64]) -> Self {
        let now: Vec<u64> = words.iter().map(|word| word.load(Relaxed)).collect();
        words::counters(&now)
    }

    /// Adds to each slot the lines that were sent to it, as the words of one thread's counts say.
    pub fn add_slot_lines(words: &[AtomicU64], sent: &mut [u64]) {
        words::add_slot_lines(words, sent);
    }

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

impl Counters {
    /// Changes each count by the same one of another's.
    fn each(&mut self, other: &Self, change: impl Fn(u64, u64) -> u64) {
        let all = |one: &mut u64, other: u64| *one = change(*one, other);
        for (mine, theirs) in self.purposes.iter_mut().zip(&other.purposes) {
            all(&mut mine.lines, theirs.lines);
            all(&mut mine.lines_streamed, theirs.lines_streamed);
            all(&mut mine.write_backs, theirs.write_backs);
            all(&mut mine.bytes, theirs.bytes);
        }
        for (mine, theirs) in self.slot_lines.iter_mut().zip(&other.slot_lines) {
            all(mine, *theirs);
        }
        for (mine, theirs) in self.asked.iter_mut().zip(&other.asked) {
            all(&mut mine.count, theirs.count);
            all(&mut mine.bytes, theirs.bytes);
        }
        all(&mut self.fences, other.fences);
        all(&mut self.fences_with_pending, other.fences_with_pending);
        all(&mut self.fences_before_commits, other.fences_before_commits);
    }
}

/// The counts of both.
impl AddAssign<&Self> for Counters {
    fn add_assign(&mut self, other: &Self) {
        self.each(other, |mine, theirs| mine + theirs);
    }
}

/// The counts between two moments: later minus earlier.
impl Sub<&Counters> for &Counters {
    type Output = Counters;

    fn sub(self, earlier: &Counters) -> Counters {
        let mut left = self.clone();
        left.each(earlier, |later, earlier| later - earlier);
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
