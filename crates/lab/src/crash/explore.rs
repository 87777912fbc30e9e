//! A sequence with a power cut at every fence and behind every operation.

use std::fmt;

use super::explorer::Explorer;
use super::images::Effort;
use crate::diff::{CoreOptions, now_ns_at};
use crate::workload::{Action, Step};

/// What to explore.
#[derive(Debug, Clone)]
pub struct CrashOptions {
    /// The pool.
    pub core: CoreOptions,
    /// Index of the first step that is cut: what comes before only sets the scene.
    pub from_step: usize,
    /// Images at each point.
    pub effort: Effort,
    /// One in so many images is recovered twice and put to use.
    pub used_one_in: u64,
    /// One in so many recoveries is itself cut at each of its fences.
    pub nested_one_in: u64,
    /// One in so many operations is cut off for good, by a power cut or by the death of the process
    /// between two stores, and the sequence goes on with what is recovered then; 0: none.
    pub cut_off_one_in: u32,
    /// Whether about every second operation is done by a thread of its own, which never fences
    /// again.
    pub many_threads: bool,
    /// Seed of random images.
    pub seed: u64,
}

/// What an exploration without a failure saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CrashSummary {
    /// Steps run.
    pub steps: u64,
    /// Points at which the power was cut.
    pub points: u64,
    /// Images recovered, those of nested cuts included.
    pub images: u64,
    /// Operations cut off for good.
    pub cut_off: u64,
}

/// An image that is neither the state before the operation nor the one behind it.
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

impl std::ops::AddAssign for CrashSummary {
    fn add_assign(&mut self, other: Self) {
        self.steps += other.steps;
        self.points += other.points;
        self.images += other.images;
        self.cut_off += other.cut_off;
    }
}

/// Runs the steps and cuts the power at each fence of each.
///
/// # Errors
/// The first image that is wrong.
pub fn explore(steps: &[Step], options: &CrashOptions) -> Result<CrashSummary, Box<CrashFailure>> {
    let failure = |index: usize, step: &Step, (cut, what): (String, String)| {
        Box::new(CrashFailure { index, step: step.clone(), cut, what })
    };
    let mut explorer =
        Explorer::new(options).map_err(|why| failure(0, &Step::Die, ("at first".into(), why)))?;
    for (index, step) in steps.iter().enumerate() {
        let cuts = index >= options.from_step;
        explorer.step(step, cuts, now_ns_at(index + 1)).map_err(|why| failure(index, step, why))?;
    }
    Ok(explorer.summary())
}

/// Writes beyond this many bytes only cost time.
const WRITE_BYTES_MAX: u32 = 20_001;

/// The step with its lengths cut to what a power cut can say something about.
#[must_use]
pub fn small_step(mut step: Step) -> Step {
    if let Step::On { action, .. } = &mut step {
        match action {
            Action::Write { len, .. } | Action::Append { len, .. } => {
                *len = (*len).min(WRITE_BYTES_MAX);
            }
            Action::Allocate { len, .. } => *len = (*len).min(u64::from(WRITE_BYTES_MAX)),
            Action::Stat
            | Action::Set(_)
            | Action::Readlink
            | Action::Read { .. }
            | Action::Seek { .. }
            | Action::List { .. }
            | Action::Parent
            | Action::Sync => {}
        }
    }
    step
}
