//! Runs a sequence with its bug switched on, and without.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use fastrand::Rng;
use novale_core::seeded::{Bug, switch};

use super::table::{By, SeededBug};
use crate::campaign::{Case, parse_replay};
use crate::clients::{DeathOptions, Points, die_everywhere, die_settling};
use crate::crash::explore;
use crate::diff::panic_text;
use crate::images::{CutRepair, Image, Pools, RepairTask};
use crate::watchdog::Watchdog;

/// No sequence takes so long, unless something hangs.
const PATIENCE: Duration = Duration::from_secs(300);
/// A client dies at one of so many stores to the arena: what repeats every few of them is met everywhere.
const ARENA_STRIDE: usize = 7;
/// The store to the arena that a client dies at whose settlers die: it has taken pages, and committed nothing.
const SETTLED_AT: u64 = 30;
/// Images of a cut that are repaired.
const IMAGES_AT_A_FENCE: usize = 20;

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
pub fn run_one(seeded: &SeededBug, sequence: &str) -> Tried {
    try_with(seeded, sequence, Some(seeded.bug))
}

/// Runs a sequence with no bug switched on, as if one were: it must be missed.
pub fn run_canary(seeded: &SeededBug, sequence: &str) -> Tried {
    try_with(seeded, sequence, None)
}

fn try_with(seeded: &SeededBug, sequence: &str, bug: Option<Bug>) -> Tried {
    let watchdog = Watchdog::new(PATIENCE);
    watchdog.begin(format!("seeded bug {}", seeded.name));
    let start = Instant::now();
    let mut crash_states = 0;
    let fate = match Subject::parse(seeded.by, sequence) {
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

/// What a seeded bug is tried on.
#[derive(Debug)]
pub(super) enum Subject {
    /// A sequence.
    Case(Case),
    /// The repair of a damaged pool.
    Repair(RepairTask),
}

impl Subject {
    /// Reads the file of a bug that is caught so.
    pub(super) fn parse(by: By, text: &str) -> Result<Self, String> {
        if by != By::Repair {
            return parse_replay(text).map(Self::Case);
        }
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let line = lines.next().ok_or("it has no repair")?;
        line.parse().map(Self::Repair)
    }
}

/// Runs a sequence with a bug switched on; returns how many crash states were judged.
pub(super) fn under(bug: Option<Bug>, by: By, subject: &Subject) -> Result<u64, String> {
    switch(bug);
    let found = catch_unwind(AssertUnwindSafe(|| run(by, subject)));
    switch(None);
    found.unwrap_or_else(|payload| Err(panic_text(payload.as_ref())))
}

fn run(by: By, subject: &Subject) -> Result<u64, String> {
    let (case, points) = match (subject, by) {
        (Subject::Repair(task), _) => return cut_repair(task),
        (Subject::Case(case), By::Death) => (case, Points::Pool),
        (Subject::Case(case), By::ArenaDeath | By::SettlerDeath) => (case, Points::Arena),
        (Subject::Case(case), By::PowerCut | By::Repair) => {
            let summary = explore(&case.steps, &case.options);
            return summary.map(|summary| summary.images).map_err(|failure| failure.to_string());
        }
    };
    let (victim, setup) = case.steps.split_last().ok_or("it has no steps")?;
    let (core, seed) = (case.options.core.clone(), case.options.seed);
    // Of the many stores to the arena some; and what is wrong there shows without a power cut.
    let (stride, power) = if points == Points::Arena { (ARENA_STRIDE, false) } else { (1, true) };
    let deaths = DeathOptions { core, points, stride, first: 0, power, seed };
    if by == By::SettlerDeath {
        return die_settling(setup, (victim, SETTLED_AT), &deaths).map(|summary| summary.images);
    }
    die_everywhere(setup, victim, &deaths).map(|summary| summary.images)
}

fn cut_repair(task: &RepairTask) -> Result<u64, String> {
    let slots = Image::new(&mut Pools::default(), &task.recipe)?.bytes()?;
    let repair = CutRepair::record(&slots, task.effort)?.ok_or("there is nothing to repair")?;
    let mut random = Rng::with_seed(1);
    repair.cut_at_fences(slots, IMAGES_AT_A_FENCE, &mut random).map(|cuts| cuts as u64)
}
