//! Whose turn it is: the workload that had least time so far, and its next case. Cases that reached new
//! places are kept, to be varied.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;

use super::vary::vary;
use super::workloads::{Case, How, Workload};
use crate::crash::CrashSummary;

/// Kept cases at most; then a new one takes the place of any.
const KEPT_MAX: usize = 2000;

/// A varied case does not grow beyond this.
const STEPS_MAX: usize = 400;

/// How far a workload is.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Turn {
    /// Its name.
    pub name: &'static str,
    /// Cases begun.
    pub begun: u64,
    /// Cases run to their end, or to a violation.
    pub cases: u64,
    /// Of so many in all, if there is an end to them.
    pub cases_in_all: Option<u64>,
    /// So many are asked for, whatever time they take.
    pub wanted: Option<u64>,
    /// Time that they took, on all threads together.
    pub time: Duration,
    /// Log pages reclaimed in what was cut, by either collector.
    pub collected: u64,
    /// It is there to see a collector at work.
    pub collects: bool,
}

/// Of so many cases that are there to see a collector at work, one has to.
const CASES_IDLE_MAX: u64 = 12;

impl Turn {
    /// It was to see a collector at work, and in all its cases none was.
    pub fn is_idle(&self) -> bool {
        self.collects && self.cases >= CASES_IDLE_MAX && self.collected == 0
    }

    /// The time was up before all had been run that were asked for.
    pub fn is_incomplete(&self) -> bool {
        self.wanted.is_some_and(|wanted| self.cases < wanted)
    }
}

/// The next case.
#[derive(Debug)]
pub(super) struct Next {
    workload: usize,
    pub(super) name: &'static str,
    pub(super) case: Case,
}

#[derive(Debug)]
struct Inner {
    turns: Vec<Turn>,
    kept: Vec<Case>,
    random: Rng,
}

#[derive(Debug)]
pub(super) struct Turns {
    workloads: Vec<Workload>,
    seed: u64,
    inner: Mutex<Inner>,
}

impl Turns {
    pub(super) fn new(workloads: &[Workload], seed: u64, sequences: Option<u64>) -> Self {
        let turn = |workload: &Workload| {
            let cases_in_all = match workload.how {
                How::Each(make) => Some(make(0).1),
                How::Drawn(_) | How::Guided(_) => None,
            };
            Turn {
                name: workload.name,
                begun: 0,
                cases: 0,
                cases_in_all,
                wanted: sequences.map(|most| cases_in_all.map_or(most, |count| count.min(most))),
                time: Duration::ZERO,
                collected: 0,
                collects: workload.collects,
            }
        };
        let turns = workloads.iter().map(turn).collect();
        let inner = Inner { turns, kept: Vec::new(), random: Rng::with_seed(seed) };
        Self { workloads: workloads.to_vec(), seed, inner: Mutex::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn so_far(&self) -> Vec<Turn> {
        self.lock().turns.clone()
    }

    /// The next case; none when all that there are have been run.
    pub(super) fn next(&self) -> Option<Next> {
        let mut inner = self.lock();
        let has_more = |turn: &Turn| {
            turn.wanted.or(turn.cases_in_all).is_none_or(|in_all| turn.begun < in_all)
        };
        let open = inner.turns.iter().enumerate().filter(|(_, turn)| has_more(turn));
        // Those that have just begun wait for a time to be known.
        let (index, turn) = open.min_by_key(|(_, turn)| (turn.time, turn.begun))?;
        let (number, count, wanted) = (turn.begun, turn.cases_in_all, turn.wanted);
        let workload = self.workloads.get(index)?;
        if let Some(turn) = inner.turns.get_mut(index) {
            turn.begun += 1;
            // Until it is known, so that not all threads take this one.
            turn.time += Duration::from_nanos(1);
        }
        let seed = self.seed.wrapping_add(number);
        // Which case was the first at a new place is chance where several run beside each other: of what
        // is to be the same on any machine those are varied that the seed draws.
        let mut guide = |far: u64| match (workload.how, wanted) {
            (How::Guided(make), Some(_)) => Some(make(seed.wrapping_add(far))),
            (How::Guided(_), None) => inner.guide(),
            (How::Each(..) | How::Drawn(_), _) => None,
        };
        let guide = guide(0).map(|first| (first, guide(1 << 32)));
        drop(inner);
        let case = match (workload.how, guide) {
            (How::Each(make), _) => {
                let (mut case, _) = make(spread(number, self.seed, count.unwrap_or(1)));
                case.options.seed = self.seed;
                case
            }
            (How::Drawn(make), _) | (How::Guided(make), None) => make(seed),
            (How::Guided(_), Some((guide, other))) => vary(guide, other.as_ref(), seed),
        };
        Some(Next { workload: index, name: workload.name, case })
    }

    /// Notes what a case took, and keeps it if it reached something new.
    pub(super) fn done(&self, next: &Next, time: Duration, seen: Option<&CrashSummary>) {
        let mut inner = self.lock();
        if let Some(turn) = inner.turns.get_mut(next.workload) {
            turn.time += time;
            turn.cases += u64::from(seen.is_none_or(|seen| seen.broken_off == 0));
            turn.collected += seen.map_or(0, |seen| seen.collected_fast + seen.collected_thorough);
        }
        let is_new = seen.is_some_and(|seen| seen.new_places > 0);
        if !is_new || next.case.steps.len() > STEPS_MAX {
            return;
        }
        if inner.kept.len() < KEPT_MAX {
            inner.kept.push(next.case.clone());
        } else {
            let index = inner.random.usize(0..KEPT_MAX);
            if let Some(place) = inner.kept.get_mut(index) {
                *place = next.case.clone();
            }
        }
    }
}

impl Inner {
    /// One of the kept cases; now and then none, for something fresh.
    fn guide(&mut self) -> Option<Case> {
        if self.random.u32(0..8) == 0 {
            return None;
        }
        let index = self.random.usize(0..self.kept.len().max(1));
        self.kept.get(index).cloned()
    }
}

/// A place in an order of `count` numbers that a seed makes: each comes once.
fn spread(number: u64, seed: u64, count: u64) -> u64 {
    let count = count.max(1);
    // A step without a common divisor visits all; count + 1 is one.
    let step = (count / 3 * 2..=2 * count).find(|step| divisor(*step, count) == 1).unwrap_or(1);
    let at = u128::from(number) * u128::from(step) + u128::from(seed);
    u64::try_from(at % u128::from(count)).unwrap_or(0)
}

fn divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::campaign::WORKLOADS;

    #[test]
    fn each_number_comes_once_whatever_the_seed() {
        for count in [1, 2, 7, 188, 4418] {
            for seed in [0, 1, 99] {
                let all: HashSet<u64> = (0..count).map(|n| spread(n, seed, count)).collect();
                assert_eq!(all.len() as u64, count);
                assert!(all.iter().all(|n| *n < count));
            }
        }
    }

    #[test]
    fn the_workload_that_had_least_time_is_next_and_one_that_ends_is_left_out() {
        let names = ["names", "random"];
        let workloads: Vec<Workload> =
            names.iter().map(|name| Workload::named(name).unwrap()).collect();
        let turns = Turns::new(&workloads, 1, None);
        let first = turns.next().unwrap();
        assert_eq!(first.name, "names");
        turns.done(&first, Duration::from_secs(5), None);
        let second = turns.next().unwrap();
        assert_eq!(second.name, "random");
        turns.done(&second, Duration::from_secs(1), None);
        assert_eq!(turns.next().unwrap().name, "random");
        let only = Turns::new(&workloads[..1], 1, None);
        let in_all = only.so_far()[0].cases_in_all.unwrap();
        for _ in 0..in_all {
            assert!(only.next().is_some());
        }
        assert!(only.next().is_none());
    }

    #[test]
    fn names_of_workloads_differ() {
        let names: HashSet<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
        assert_eq!(names.len(), WORKLOADS.len());
    }
}
