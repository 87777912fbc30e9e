//! A failing case made short: fewer steps, and cuts in the last one only where that is enough.

use std::time::{Duration, Instant};

use super::workloads::Case;
use crate::crash::{CrashFailure, explore};
use crate::diff::shrink;
use crate::workload::Step;

/// Explorations that find a shorter case at most.
const RUNS_MAX: usize = 300;

/// No further ones begin later than this.
const TIME_MAX: Duration = Duration::from_secs(60);

/// The shorter case, and what is wrong in it.
pub(super) fn reduced(mut case: Case, mut failure: CrashFailure) -> (Case, CrashFailure) {
    case.steps.truncate(failure.index + 1);
    let original = case.options.from_step;
    // Cuts in the last step alone are the least; but a step before may have to be cut off.
    let starts: [fn(usize, usize) -> usize; 3] =
        [|steps, _| steps.saturating_sub(1), |_, from| from, |_, _| 0];
    let mut fails = |steps: &[Step], from_step: usize, failure: &mut CrashFailure| {
        case.options.from_step = from_step;
        explore(steps, &case.options).is_err_and(|found| {
            *failure = *found;
            true
        })
    };
    let steps = std::mem::take(&mut case.steps);
    let start =
        starts.iter().find(|start| fails(&steps, start(steps.len(), original), &mut failure));
    let Some(start) = start else {
        // Not even the same again fails: what was left out as judged before must have made the
        // difference, and the sequence is told as it was.
        case.steps = steps;
        case.options.from_step = original;
        return (case, failure);
    };
    let from = |steps: usize| start(steps, original.min(steps.saturating_sub(1)));
    let begun = Instant::now();
    case.steps = shrink(steps, RUNS_MAX, &mut |steps: &[Step]| {
        begun.elapsed() < TIME_MAX && fails(steps, from(steps.len()), &mut failure)
    });
    case.options.from_step = from(case.steps.len());
    (case, failure)
}
