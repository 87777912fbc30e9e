//! Times of operations, histograms of a round, and what a run says of its rounds.

use std::time::Instant;

use anyhow::Result;
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

/// Longest time that is told from longer ones, in ns.
const NS_MAX: u64 = 100_000_000_000;
/// Groups are recorded in tenths of a nanosecond.
const TENTHS: u64 = 10;
const CLOCK_SAMPLES: usize = 20_000;

/// Operations timed together where each takes little: clocks tick in steps of some 10 ns, and a
/// fence leaves work to whatever comes next, so single times of short operations say little.
const GROUP: u64 = 16;
/// From this duration on each operation is timed for itself.
const LONG_NS: u64 = 20_000;

/// One round's times of one operation, without the clock's own share.
///
/// Three quarters of the operations are timed in groups; the rest one by one.
#[derive(Debug)]
pub(crate) struct Timer {
    groups: Histogram<u64>,
    singles: Histogram<u64>,
    clock_ns: u64,
    /// Operations left that are timed in groups.
    grouped: u64,
    begun: Instant,
    in_group: u64,
}

impl Timer {
    /// A timer for `count` operations.
    pub(crate) fn new(clock_ns: u64, count: u64) -> Result<Self> {
        Ok(Self {
            groups: Histogram::new_with_bounds(1, NS_MAX * TENTHS, 3)?,
            singles: Histogram::new_with_bounds(1, NS_MAX, 3)?,
            clock_ns,
            grouped: count * 3 / 4 / GROUP * GROUP,
            begun: Instant::now(),
            in_group: 0,
        })
    }

    /// One that times each operation for itself, since others come between them.
    pub(crate) fn single(clock_ns: u64) -> Result<Self> {
        Self::new(clock_ns, 0)
    }

    /// Runs and times one operation.
    #[inline]
    pub(crate) fn time<T>(&mut self, operation: impl FnOnce() -> T) -> T {
        if self.in_group == 0 {
            self.begun = Instant::now();
        }
        let value = operation();
        self.in_group += 1;
        if self.grouped == 0 || self.in_group == GROUP {
            self.record();
        }
        value
    }

    fn record(&mut self) {
        let ns = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(NS_MAX);
        let ns = ns.saturating_sub(self.clock_ns).max(1);
        if self.grouped == 0 {
            self.singles.saturating_record(ns);
        } else {
            self.groups.saturating_record(ns * TENTHS / self.in_group);
            self.grouped -= self.in_group;
        }
        self.in_group = 0;
    }

    /// The round's figures.
    pub(crate) fn finish(&self) -> Round {
        let grouped = self.groups.value_at_quantile(0.5) / TENTHS;
        let alone = self.singles.value_at_quantile(0.5);
        let long = self.groups.is_empty() || grouped >= LONG_NS;
        Round {
            ns: if long { alone } else { grouped },
            alone,
            p99: self.singles.value_at_quantile(0.99),
        }
    }
}

/// What this thread has run on a CPU so far, in ns: other processes' turns do not count.
pub(crate) fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap_or(0)
}

/// What reading the clock twice takes, in ns: the median.
pub(crate) fn clock_ns() -> u64 {
    let mut times: Vec<u64> = (0..CLOCK_SAMPLES)
        .map(|_| {
            let begun = Instant::now();
            u64::try_from(begun.elapsed().as_nanos()).unwrap_or(0)
        })
        .collect();
    times.sort_unstable();
    times.get(CLOCK_SAMPLES / 2).copied().unwrap_or(0)
}

/// One round's figures, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Round {
    /// An operation among others of its kind: the median of the groups' means.
    pub(crate) ns: u64,
    /// The median of those timed one by one. A fence leaves part of its wait to whatever is next,
    /// which these do not see.
    pub(crate) alone: u64,
    /// The 99th percentile of those.
    pub(crate) p99: u64,
}

impl Round {
    /// A round that was timed as a whole.
    pub(crate) fn whole(ns: u64) -> Self {
        Self { ns, alone: ns, p99: ns }
    }
}

/// The rounds of one operation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rounds(Vec<Round>);

impl Rounds {
    pub(crate) fn push(&mut self, round: Round) {
        self.0.push(round);
    }

    /// The medians over the rounds, figure by figure.
    pub(crate) fn median(&self) -> Round {
        let of = |figure: fn(&Round) -> u64| median(self.0.iter().map(figure));
        Round {
            ns: of(|round| round.ns),
            alone: of(|round| round.alone),
            p99: of(|round| round.p99),
        }
    }

    /// The least and the greatest `ns` of all rounds.
    pub(crate) fn spread(&self) -> (u64, u64) {
        let ns = || self.0.iter().map(|round| round.ns);
        (ns().min().unwrap_or(0), ns().max().unwrap_or(0))
    }

    /// The median of the ratios, round by round, of this `ns` to another's.
    pub(crate) fn ratio(&self, other: &Self) -> f64 {
        let mut ratios: Vec<f64> = self
            .0
            .iter()
            .zip(&other.0)
            .map(|(mine, theirs)| float(mine.ns) / float(theirs.ns.max(1)))
            .collect();
        ratios.sort_unstable_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or(0.0)
    }
}

/// The middle one; the upper of two.
pub(crate) fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// As a number with a fraction: exact below 2^53.
#[allow(clippy::cast_precision_loss, reason = "times and counts of a run are far below 2^53")]
pub(crate) fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(all: &[u64]) -> Rounds {
        Rounds(all.iter().map(|ns| Round { ns: *ns, alone: 1, p99: 9 }).collect())
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        // The second round was slow for both: the ratio does not see it.
        let (ours, limit) = (rounds(&[20, 200, 21]), rounds(&[10, 100, 10]));
        assert!((ours.ratio(&limit) - 2.0).abs() < 1e-9);
        assert_eq!(ours.median().ns, 21);
        assert_eq!(ours.spread(), (20, 200));
    }

    #[test]
    fn the_clock_is_taken_off_but_no_time_is_zero() {
        let mut timer = Timer::new(NS_MAX, 4).unwrap();
        timer.time(|| ());
        assert_eq!(timer.finish().ns, 1);
    }
}
