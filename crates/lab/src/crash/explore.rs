//! A sequence with a power cut at every fence and after every operation.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use novale_core::{Atime, Form};

use super::explorer::Explorer;
use super::hardware::Caches;
use super::images::Effort;
use super::tracker::Tracker;
use crate::diff::{CoreOptions, now_ns_at, panic_text};
use crate::workload::Step;

/// What to explore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrashOptions {
    /// The pool.
    pub core: CoreOptions,
    /// When reads change the access time.
    pub atime: Atime,
    /// What a power cut does to the caches.
    pub caches: Caches,
    /// Index of the first step that is cut: what comes before only sets the scene.
    pub from_step: usize,
    /// Images at each point.
    pub effort: Effort,
    /// One in so many images is recovered twice, put to use and emptied; 0: none.
    pub used_one_in: u64,
    /// One in so many recoveries is itself cut at each of its fences, some of those recoveries too;
    /// 0: none.
    pub nested_one_in: u64,
    /// One in so many operations, openings and closings is cut off for good, by a power cut or by the
    /// death of the process between two stores, and the sequence goes on with what is recovered then;
    /// 0: none.
    pub cut_off_one_in: u32,
    /// Whether what is cut off for good is so by a power cut at a fence, that tears a line of metadata by
    /// a unit or leaves a unit of it alone; what is not is cut so, too.
    pub by_units: bool,
    /// Whether operations are done by several threads in turn, some of which never fence again.
    pub many_threads: bool,
    /// Clients that are in flight together: the steps after a comparison are dealt out to so many, as
    /// far as they can be, up to the next one. 1: each step is run alone.
    pub clients: usize,
    /// In one of so many of these flights a client dies at a store; 0: in none.
    pub dies_one_in: u32,
    /// Seed of all that is drawn.
    pub seed: u64,
}

impl Default for CrashOptions {
    /// One small slot, one lane, some dozen images at a fence.
    fn default() -> Self {
        Self {
            core: CoreOptions::new(vec![4 << 20], 1, Form::Auto),
            atime: Atime::Noatime,
            caches: Caches::Lost,
            from_step: 0,
            effort: Effort::default(),
            used_one_in: 24,
            nested_one_in: 97,
            cut_off_one_in: 8,
            by_units: false,
            many_threads: false,
            clients: 1,
            dies_one_in: 0,
            seed: 1,
        }
    }
}

/// What an exploration without a failure saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct CrashSummary {
    /// Steps run.
    pub steps: u64,
    /// Points at which the power was cut.
    pub points: u64,
    /// Images recovered, those of nested cuts included.
    pub images: u64,
    /// Images that had been recovered before.
    pub known: u64,
    /// Images that differ from one that was recovered only in lines at which nothing looked.
    pub alike: u64,
    /// Recoveries that were cut themselves.
    pub recoveries_cut: u64,
    /// Operations cut off for good.
    pub cut_off: u64,
    /// Operations that were in flight together with others.
    pub together: u64,
    /// Clients that died in the middle of others' operations.
    pub deaths: u64,
    /// Those of them that a client settled for in the middle of an operation of its own.
    pub settled_in_flight: u64,
    /// Clients that died as they settled for one.
    pub settlers_died: u64,
    /// Log pages that operations which were cut reclaimed, by the fast collector.
    pub collected_fast: u64,
    /// The same, by the thorough one.
    pub collected_thorough: u64,
    /// Sequences that the end of the time broke off.
    pub broken_off: u64,
    /// Places in the product, or findings of recoveries, that nothing before had reached.
    pub new_places: u64,
}

/// An image that is neither the state before the operation nor the one after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrashFailure {
    /// Index of the step.
    pub index: usize,
    /// The step.
    pub step: Step,
    /// Where the power was cut, and what the memory kept.
    pub cut: String,
    /// What was wrong.
    pub what: String,
}

impl fmt::Display for CrashFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {} ({}): {}:\n{}", self.index, self.step, self.cut, self.what)
    }
}

sums!(
    CrashSummary:
    steps points images known alike recoveries_cut cut_off together deaths
    settled_in_flight settlers_died collected_fast collected_thorough broken_off new_places
);

/// Runs the steps and cuts the power at each fence of each.
///
/// # Errors
/// The first image that is wrong.
pub fn explore(steps: &[Step], options: &CrashOptions) -> Result<CrashSummary, Box<CrashFailure>> {
    explore_beside(steps, options, &Tracker::default())
}

/// As [`explore`], leaving out what others have judged, until the tracker says that it is over.
///
/// # Errors
/// The first image that is wrong.
pub fn explore_beside(
    steps: &[Step],
    options: &CrashOptions,
    tracker: &Tracker,
) -> Result<CrashSummary, Box<CrashFailure>> {
    let failure = |index: usize, step: &Step, (cut, what): (String, String)| {
        Box::new(CrashFailure { index, step: step.clone(), cut, what })
    };
    let mut explorer = Explorer::new(options, tracker)
        .map_err(|why| failure(0, &Step::Die, ("at first".into(), why)))?;
    let mut index = 0;
    while let Some(step) = steps.get(index).filter(|_| !tracker.is_over()) {
        let cuts = index >= options.from_step;
        let count = if cuts { explorer.together(steps, index) } else { 1 };
        let end = index + count;
        let run = || match steps.get(index..end) {
            Some(flight) if count > 1 => explorer.fly(flight, index),
            _ => explorer.step(step, cuts, now_ns_at(index + 1)),
        };
        catch_unwind(AssertUnwindSafe(run))
            .unwrap_or_else(|payload| Err(("in running".into(), panic_text(payload.as_ref()))))
            .map_err(|why| failure(end - 1, step, why))?;
        index = end;
    }
    if tracker.is_over() {
        return Ok(CrashSummary { broken_off: 1, ..explorer.summary() });
    }
    let last = steps.len().saturating_sub(1);
    explorer.finish().map_err(|why| failure(last, steps.last().unwrap_or(&Step::Die), why))
}

/// Writes beyond this many bytes only cost time.
const WRITE_BYTES_MAX: u64 = 20_001;
/// Likewise of a piece of what is published at once, and of the pieces.
const PIECE_BYTES_MAX: u64 = 5000;
const PIECES_MAX: u64 = 4;

/// The step with its lengths cut to what a power cut can say something about.
#[allow(clippy::needless_pass_by_value, reason = "it takes the step's place")]
pub fn small_step(step: Step) -> Step {
    step.with_numbers(|verb, key, number| match (verb, key) {
        // Nothing is stored in these.
        ("read" | "punch" | "collapse" | "insert", _) => number,
        ("scatter", "len") => number.min(PIECE_BYTES_MAX),
        (_, "len") => number.min(WRITE_BYTES_MAX),
        (_, "count") => number.min(PIECES_MAX),
        _ => number,
    })
}
