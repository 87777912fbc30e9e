//! Many seeds, one after the other, until the time is up or a difference is found and shrunk.

use std::fmt;
use std::time::{Duration, Instant};

use super::run::{Machine, Mismatch, NoSpace, Summary, compare_run};
use super::shrink::shrink;
use crate::workload::{Flavor, Generator, Step, print_steps};

/// How long and from where to search.
#[derive(Debug, Clone)]
pub struct Budget {
    /// The first sequence's seed; the others follow.
    pub seed: u64,
    /// No sequence starts later than this.
    pub time: Duration,
    /// Steps a sequence.
    pub steps: usize,
    /// Steps that come first in each.
    pub setup: Vec<Step>,
}

/// Runs that find a shrunk sequence at most.
const SHRINK_RUNS_MAX: usize = 3_000;

impl Budget {
    /// The budget that the environment names (`NOVALE_LAB_SECONDS`, `NOVALE_LAB_SEED`), or these
    /// seconds and a seed that is the same every day.
    #[must_use]
    pub fn from_env(seconds: u64, steps: usize) -> Self {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
        Self {
            seed: number("NOVALE_LAB_SEED").unwrap_or(1),
            time: Duration::from_secs(number("NOVALE_LAB_SECONDS").unwrap_or(seconds)),
            steps,
            setup: Vec::new(),
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
    for seed in budget.seed.. {
        if start.elapsed() >= budget.time && summary.steps > 0 {
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
