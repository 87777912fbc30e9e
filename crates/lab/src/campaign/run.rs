//! The campaign: workers take the next case, until the time is up.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::reduce::reduced;
use super::turns::{Turn, Turns};
use super::workloads::{Case, Workload};
use crate::crash::{CrashFailure, CrashSummary, Point, Tracker, explore_beside};
use crate::watchdog::Watchdog;

/// What to run.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// The workloads: each gets as much time as the others.
    pub workloads: Vec<Workload>,
    /// The first seed; the others follow.
    pub seed: u64,
    /// Sequences of each workload, at most; none: as many as the time has.
    pub sequences: Option<u64>,
    /// No image is judged later than this.
    pub time: Duration,
    /// Sequences beside each other.
    pub threads: usize,
    /// How deep images are judged, where that is not the workload's business.
    pub rates: Rates,
    /// It ends when it has found so much.
    pub violations_max: usize,
}

/// One in so many images is judged deeper; `None` leaves it to the workload, 0 is never.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rates {
    /// Recovered twice, used in every way and emptied.
    pub used_one_in: Option<u64>,
    /// Its recovery cut too.
    pub nested_one_in: Option<u64>,
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
    /// Crash states judged, each once: they differ where recovery, its check and a look at
    /// everything loaded something.
    pub crash_states: u64,
    /// The same by any byte: also where nothing looked.
    pub states_by_bytes: u64,
    /// Sequences run to their end.
    pub sequences: u64,
    /// What was tried in them.
    pub summary: CrashSummary,
    /// Cases and time of each workload.
    pub turns: Vec<Turn>,
    /// Places reached in the product: pairs of sites, and findings of recoveries.
    pub places: usize,
    /// Points in the product's source that were passed: stores, write-backs and fences.
    pub passed: BTreeSet<Point>,
    /// What was wrong.
    pub violations: Vec<Violation>,
}

/// No sequence takes so long, shrinking included, unless something hangs.
const PATIENCE: Duration = Duration::from_secs(900);

impl Report {
    /// Nothing was wrong, and what was to be seen was seen.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.idle().next().is_none()
    }

    /// Workloads whose sequences were not all run that were asked for.
    pub fn incomplete(&self) -> impl Iterator<Item = &Turn> {
        self.turns.iter().filter(|turn| turn.is_incomplete())
    }

    /// Workloads that were to see a collector at work and saw none.
    pub fn idle(&self) -> impl Iterator<Item = &Turn> {
        self.turns.iter().filter(|turn| turn.is_idle())
    }
}

impl Campaign {
    /// Runs it; `progress` is told what was seen so far, now and then.
    pub fn run(&self, progress: &(dyn Fn(&Report) + Sync)) -> Report {
        self.run_until(&Arc::default(), progress)
    }

    /// As [`Self::run`], but no longer than until `stop` is set, by whomever.
    pub fn run_until(&self, stop: &Arc<AtomicBool>, progress: &(dyn Fn(&Report) + Sync)) -> Report {
        let tracker = Tracker::until(Instant::now().checked_add(self.time)).stopped_by(stop);
        let turns = Turns::new(&self.workloads, self.seed, self.sequences);
        let report = Mutex::new(Report::default());
        std::thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| self.work(&tracker, &turns, &report, progress));
            }
        });
        let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
        note(&mut report, &tracker, &turns);
        report.passed = tracker.passed();
        report
    }

    fn work(
        &self,
        tracker: &Tracker,
        turns: &Turns,
        report: &Mutex<Report>,
        progress: &(dyn Fn(&Report) + Sync),
    ) {
        let watchdog = Watchdog::new(PATIENCE);
        while !tracker.is_over() {
            let Some(mut next) = turns.next() else { return };
            let options = &mut next.case.options;
            options.used_one_in = self.rates.used_one_in.unwrap_or(options.used_one_in);
            options.nested_one_in = self.rates.nested_one_in.unwrap_or(options.nested_one_in);
            watchdog.begin(format!("workload {}, seed {}", next.name, next.case.options.seed));
            let start = Instant::now();
            let explored = explore_beside(&next.case.steps, &next.case.options, tracker);
            turns.done(&next, start.elapsed(), explored.as_ref().ok());
            let explored = explored.map_err(|failure| {
                let (case, failure) = reduced(next.case, *failure);
                Violation { workload: next.name, case, failure }
            });
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
            match explored {
                Ok(summary) => {
                    report.sequences += 1 - summary.broken_off;
                    report.summary += summary;
                }
                Err(violation) => report.violations.push(violation),
            }
            note(&mut report, tracker, turns);
            progress(&report);
            if report.violations.len() >= self.violations_max {
                tracker.stop();
            }
        }
    }
}

fn note(report: &mut Report, tracker: &Tracker, turns: &Turns) {
    report.crash_states = tracker.distinct();
    report.states_by_bytes = tracker.noted();
    report.places = tracker.reached();
    report.turns = turns.so_far();
}
