//! Many seeds, one after the other, until the time is up or a difference is found and shrunk.

use std::fmt;
use std::time::{Duration, Instant};

use super::run::{Machine, Mismatch, NoSpace, Summary, compare_run};
use super::shrink::shrink;
use crate::workload::{Flavor, Generator, Step, print_steps};

/// How much to search, and from where.
#[derive(Debug, Clone)]
pub struct Budget {
    /// The first sequence's seed; the others follow.
    pub seed: u64,
    /// Where it ends.
    pub length: Length,
    /// Steps a sequence.
    pub steps: usize,
    /// Steps that come first in each.
    pub setup: Vec<Step>,
}

/// Where a search ends.
#[derive(Debug, Clone, Copy)]
pub enum Length {
    /// After so many sequences, however long they take: the same work on any machine.
    Sequences(u64),
    /// No sequence starts later than this.
    Time(Duration),
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sequences(count) => write!(f, "{count} sequences"),
            Self::Time(time) => write!(f, "{} s", time.as_secs()),
        }
    }
}

/// What is to be so many sequences ends here, and fails: what was not run is not sound.
const PATIENCE: Duration = Duration::from_secs(900);

/// Runs that find a shrunk sequence at most.
const SHRINK_RUNS_MAX: usize = 3_000;

impl Budget {
    /// So many sequences from a seed that is the same every day; where the environment says so, as
    /// many as `NOVALE_LAB_SECONDS` have time for, from `NOVALE_LAB_SEED` on.
    #[must_use]
    pub fn from_env(sequences: u64, steps: usize) -> Self {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
        let time = number("NOVALE_LAB_SECONDS").map(Duration::from_secs);
        Self {
            seed: number("NOVALE_LAB_SEED").unwrap_or(1),
            length: time.map_or(Length::Sequences(sequences), Length::Time),
            steps,
            setup: Vec::new(),
        }
    }

    /// Whether one more comes after `done`, the first of which began at `start`. The first always does.
    ///
    /// # Panics
    /// When so many sequences take longer than a quarter of an hour.
    pub fn goes_on(&self, done: u64, start: Instant) -> bool {
        match self.length {
            Length::Time(time) => done == 0 || start.elapsed() < time,
            Length::Sequences(count) => {
                let is_in_time = done >= count || start.elapsed() < PATIENCE;
                assert!(is_in_time, "incomplete: {done} of {count} sequences in {PATIENCE:?}");
                done < count
            }
        }
    }
}

/// A difference, as short as it could be made.
#[derive(Debug, Clone)]
pub struct Found {
    /// The seed of the sequence in which it was.
    pub seed: u64,
    /// The difference in the shrunk sequence.
    pub mismatch: Mismatch,
    /// The shrunk sequence.
    pub steps: Vec<Step>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# seed {}", self.seed)?;
        for line in self.mismatch.to_string().lines() {
            writeln!(f, "# {line}")?;
        }
        write!(f, "{}", print_steps(&self.steps))
    }
}

/// Runs sequences on machines that `make` makes, each of its seed.
///
/// # Errors
/// The first difference.
pub fn search<M: Machine>(
    budget: &Budget,
    no_space: NoSpace,
    mut make: impl FnMut(u64) -> M,
) -> Result<Summary, Box<Found>> {
    let start = Instant::now();
    let mut summary = Summary::default();
    for (done, seed) in (0..).zip(budget.seed..) {
        if !budget.goes_on(done, start) {
            break;
        }
        let make_steps = if seed % 2 == 0 { Generator::new } else { Generator::mapping };
        let random = make_steps(seed, Flavor::of_seed(seed)).steps(budget.steps, 40);
        let steps: Vec<Step> = budget.setup.iter().cloned().chain(random).collect();
        match compare_run(&mut make(seed), &steps, no_space) {
            Ok(seen) => summary += seen,
            Err(mismatch) => {
                return Err(Box::new(reduce(seed, steps, *mismatch, no_space, &mut make)));
            }
        }
    }
    Ok(summary)
}

fn reduce<M: Machine>(
    seed: u64,
    mut steps: Vec<Step>,
    first: Mismatch,
    no_space: NoSpace,
    make: &mut impl FnMut(u64) -> M,
) -> Found {
    steps.truncate(first.index + 1);
    let mut mismatch = first;
    let steps = shrink(steps, SHRINK_RUNS_MAX, &mut |candidate: &[Step]| match compare_run(
        &mut make(seed),
        candidate,
        no_space,
    ) {
        Ok(_) => false,
        Err(found) => {
            mismatch = *found;
            true
        }
    });
    Found { seed, mismatch, steps }
}
