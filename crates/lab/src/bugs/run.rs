//! Runs a sequence with its bug switched on, and without.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use novale_core::seeded::{Bug, switch};

use super::table::{By, SeededBug};
use crate::campaign::{Case, parse_replay};
use crate::clients::{DeathOptions, Points, die_everywhere};
use crate::crash::explore;
use crate::diff::panic_text;
use crate::watchdog::Watchdog;

/// No sequence takes so long, unless something hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// What came of a seeded bug.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Its sequence failed with the bug, and only then.
    Caught(String),
    /// Its sequence did not fail.
    Missed,
    /// Its sequence fails without the bug too, or is none.
    Broken(String),
}

/// A seeded bug that was tried.
#[derive(Debug, Clone)]
pub struct Tried {
    /// What came of it.
    pub fate: Fate,
    /// Crash states that were judged without the bug.
    pub crash_states: u64,
    /// How long it took.
    pub time: Duration,
}

/// Tries a bug on a sequence, the text of a replay file.
#[must_use]
pub fn run_one(seeded: &SeededBug, sequence: &str) -> Tried {
    try_with(seeded, sequence, Some(seeded.bug))
}

/// Runs a sequence with no bug switched on, as if one were: it must be missed.
#[must_use]
pub fn run_canary(seeded: &SeededBug, sequence: &str) -> Tried {
    try_with(seeded, sequence, None)
}

fn try_with(seeded: &SeededBug, sequence: &str, bug: Option<Bug>) -> Tried {
    let watchdog = Watchdog::new(PATIENCE);
    watchdog.begin(format!("seeded bug {}", seeded.name));
    let start = Instant::now();
    let mut crash_states = 0;
    let fate = match parse_replay(sequence) {
        Ok(case) => match (under(bug, seeded.by, &case), under(None, seeded.by, &case)) {
            (_, Err(why)) => Fate::Broken(why),
            (with, Ok(without)) => {
                crash_states = without;
                with.err().map_or(Fate::Missed, Fate::Caught)
            }
        },
        Err(why) => Fate::Broken(why),
    };
    Tried { fate, crash_states, time: start.elapsed() }
}

/// Runs a sequence with a bug switched on; returns how many crash states were judged.
pub(super) fn under(bug: Option<Bug>, by: By, case: &Case) -> Result<u64, String> {
    switch(bug);
    let found = catch_unwind(AssertUnwindSafe(|| run(by, case)));
    switch(None);
    found.unwrap_or_else(|payload| Err(panic_text(payload.as_ref())))
}

fn run(by: By, case: &Case) -> Result<u64, String> {
    match by {
        By::PowerCut => {
            let summary = explore(&case.steps, &case.options);
            summary.map(|summary| summary.images).map_err(|failure| failure.to_string())
        }
        By::Death => {
            let Some((victim, setup)) = case.steps.split_last() else {
                return Err("it has no steps".to_owned());
            };
            let options = &case.options;
            let (core, points) = (options.core.clone(), Points::Pool);
            let deaths = DeathOptions { core, points, stride: 1, power: true, seed: options.seed };
            die_everywhere(setup, victim, &deaths).map(|summary| summary.images)
        }
    }
}
