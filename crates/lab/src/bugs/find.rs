//! Looks for a sequence that catches a bug, and makes it short.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use novale_core::Form;
use novale_core::seeded::{Bug, switch};

use super::run::{Subject, under};
use super::table::{By, SeededBug};
use crate::campaign::{Campaign, Case, print_replay};
use crate::crash::CrashOptions;
use crate::diff::{CoreOptions, shrink};
use crate::workload::{Step, parse_steps, sequence};

/// Shorter sequences that are tried at most where clients die.
const RUNS_MAX: usize = 40;

/// The text of a replay file of a sequence that catches the bug, if one is found in the time, and
/// before `stop` is set.
pub fn find(seeded: &SeededBug, campaign: &Campaign, stop: &Arc<AtomicBool>) -> Option<String> {
    match seeded.by {
        By::PowerCut => find_cut(seeded.bug, campaign, stop),
        By::Death | By::ArenaDeath | By::SettlerDeath => {
            let begun = Instant::now();
            let is_over = || begun.elapsed() >= campaign.time || stop.load(Ordering::Relaxed);
            find_death((seeded.bug, seeded.by), campaign.seed, &is_over)
        }
        // Its recipe is one of the corpus.
        By::Repair => None,
    }
}

fn find_cut(bug: Bug, campaign: &Campaign, stop: &Arc<AtomicBool>) -> Option<String> {
    switch(Some(bug));
    let report = campaign.run_until(stop, &|_| ());
    switch(None);
    let mut found = report.violations.into_iter().min_by_key(|found| found.case.steps.len())?;
    if found.case.steps.is_empty() {
        // It shows before the first step; a sequence has one.
        found.case.steps.push(Step::Remount);
    }
    Some(print_replay(&found.case, &found.failure.to_string()))
}

fn find_death((bug, by): (Bug, By), seed: u64, is_over: &dyn Fn() -> bool) -> Option<String> {
    let setup = parse_steps(sequence("settled: before")).ok()?;
    for form in [Form::Auto, Form::Two] {
        for victim in sequence("settled: victims").lines().take_while(|_| !is_over()) {
            let victim = parse_steps(victim).ok()?;
            let core = CoreOptions::new(vec![4 << 20], 1, form);
            let options = CrashOptions { core, seed, ..CrashOptions::default() };
            let with =
                |setup: &[_]| Case { steps: [setup, &victim].concat(), options: options.clone() };
            let run = |bug, setup: &[_]| under(bug, by, &Subject::Case(with(setup)));
            let fails = |setup: &[_]| run(Some(bug), setup).is_err() && run(None, setup).is_ok();
            if !fails(&setup) {
                continue;
            }
            let short = shrink(setup, RUNS_MAX, &mut |setup| fails(setup));
            let what = run(Some(bug), &short).err().unwrap_or_default();
            return Some(print_replay(&with(&short), &what));
        }
    }
    None
}
