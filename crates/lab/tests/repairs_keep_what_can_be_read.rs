//! The promise: a repair keeps all that can be read, says what it gives up, and leaves a sound pool;
//! run on the corpus of damaged pools, a sample for `NOVALE_LAB_SECONDS`, from `NOVALE_LAB_SEED` on.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a test stops at what fails, and says what it met"
)]

use std::collections::BTreeMap;
use std::time::Instant;

use fastrand::Rng;
use novale_core::repair::Effort;
use novale_lab::diff::Budget;
use novale_lab::images::{Image, Pools, Recipe, repaired};

const CORPUS: &str = include_str!("../corpus/images.txt");
/// Images that are tried at least.
const IMAGES_MIN: usize = 40;

#[test]
fn of_every_damaged_pool() {
    let mut recipes: Vec<Recipe> = CORPUS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.parse().unwrap())
        .collect();
    let budget = Budget::from_env(10, 0);
    Rng::with_seed(budget.seed).shuffle(&mut recipes);
    let (start, mut pools) = (Instant::now(), Pools::default());
    let (mut met, mut wrong): (BTreeMap<&str, u32>, Vec<String>) = Default::default();
    let goes_on =
        |(index, _): &(usize, Recipe)| *index < IMAGES_MIN || start.elapsed() < budget.time;
    for (_, recipe) in recipes.into_iter().enumerate().take_while(goes_on) {
        let slots = Image::new(&mut pools, &recipe).unwrap().bytes().unwrap();
        for effort in [Effort::Safe, Effort::Salvage] {
            let done = repaired(&slots, effort).unwrap();
            let what = match &done.report {
                None => "not begun",
                Some(report) if !report.beyond.is_empty() => "beyond repair",
                Some(report) if !report.needs_salvage.is_empty() => "need a salvage",
                Some(report) if report.changes.is_empty() => "sound",
                Some(_) if effort == Effort::Safe => "repaired",
                Some(_) => "salvaged",
            };
            *met.entry(what).or_default() += 1;
            let named = |what: String| format!("{recipe} ({effort:?}): {what}");
            wrong.extend(done.wrong.into_iter().map(named));
        }
    }
    println!("repairs_keep_what_can_be_read: {met:?}");
    assert!(
        wrong.is_empty(),
        "{} wrong, the first: {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(100)]
    );
    assert!(met.contains_key("repaired") && met.contains_key("salvaged"), "{met:?}");
}
