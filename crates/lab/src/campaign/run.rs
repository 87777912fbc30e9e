//! The campaign: workers take the next sequence, until the time is up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::workloads::{Case, Workload};
use crate::crash::{CrashFailure, CrashSummary, Tracker, explore, explore_beside};
use crate::diff::shrink;
use crate::workload::Step;

/// What to run.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// The workloads, which take turns.
    pub workloads: Vec<Workload>,
    /// The first seed; the others follow.
    pub seed: u64,
    /// No sequence starts later than this.
    pub time: Duration,
    /// Sequences beside each other.
    pub threads: usize,
}

/// A sequence that some power cut breaks, made short.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The workload in which it was found.
    pub workload: &'static str,
    /// The sequence and how it is cut.
    pub case: Case,
    /// What was wrong.
    pub failure: CrashFailure,
}

/// What a campaign saw.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Sequences run.
    pub sequences: u64,
    /// Crash states judged, each once.
    pub crash_states: u64,
    /// What was tried in them.
    pub summary: CrashSummary,
    /// What was wrong.
    pub violations: Vec<Violation>,
}

/// Explorations that find a shrunk sequence at most.
const SHRINK_RUNS_MAX: usize = 150;

/// A campaign that has found so much ends.
const VIOLATIONS_MAX: usize = 10;

impl Campaign {
    /// Runs it; `progress` is told what was seen so far, now and then.
    pub fn run(&self, progress: &(dyn Fn(&Report) + Sync)) -> Report {
        let tracker = Tracker::until(Some(Instant::now() + self.time));
        let next = AtomicU64::new(0);
        let report = Mutex::new(Report::default());
        std::thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| self.work(&tracker, &next, &report, progress));
            }
        });
        report.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(
        &self,
        tracker: &Tracker,
        next: &AtomicU64,
        report: &Mutex<Report>,
        progress: &(dyn Fn(&Report) + Sync),
    ) {
        while !tracker.is_over() {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            let workload = usize::try_from(turn).unwrap_or(0) % self.workloads.len().max(1);
            let Some(workload) = self.workloads.get(workload) else { return };
            let case = (workload.make)(self.seed + turn / self.workloads.len() as u64);
            let explored = explore_beside(&case.steps, &case.options, tracker)
                .map_err(|failure| shrunk(workload.name, case, *failure));
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
            report.sequences += 1;
            report.crash_states = tracker.distinct();
            match explored {
                Ok(summary) => report.summary += summary,
                Err(violation) => report.violations.push(violation),
            }
            progress(&report);
            if report.violations.len() >= VIOLATIONS_MAX {
                return;
            }
        }
    }
}

fn shrunk(workload: &'static str, mut case: Case, mut failure: CrashFailure) -> Violation {
    case.steps.truncate(failure.index + 1);
    case.steps = shrink(case.steps, SHRINK_RUNS_MAX, &mut |candidate: &[Step]| {
        explore(candidate, &case.options).is_err_and(|found| {
            failure = *found;
            true
        })
    });
    Violation { workload, case, failure }
}
