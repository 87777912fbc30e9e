//! The promise: whatever a pool holds, the answer is an error that names structure and place: no
//! panic, no hang, no more memory than its view may take. The recipes of `corpus/images.txt` come
//! first, which between them reached every message so far; then others for `NOVALE_LAB_SECONDS`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test speaks, and fails where it is wrong"
)]

use std::time::{Duration, Instant};

use novale_lab::diff::Budget;
use novale_lab::images::{Hunt, Recipe};
use novale_lab::watchdog::Watchdog;

const CORPUS: &str = include_str!("../corpus/images.txt");
/// No image takes longer than this, but for a hang.
const PATIENCE: Duration = Duration::from_secs(60);
/// Messages that the corpus reaches at least, whatever becomes of single recipes.
const MESSAGES_MIN: usize = 200;

#[test]
fn by_errors_that_name_structure_and_place() {
    let recipes: Vec<Recipe> = CORPUS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.parse().unwrap())
        .collect();
    let budget = Budget::from_env(15, 0);
    let (watchdog, given, start) = (Watchdog::new(PATIENCE), recipes.len(), Instant::now());
    let mut hunt = Hunt::new(budget.seed, recipes);
    let mut wrong = Vec::new();
    let mut tried = 0;
    while tried < given || start.elapsed() < budget.time {
        let recipe = hunt.next_recipe();
        watchdog.begin(recipe.to_string());
        let (outcome, _) = hunt.try_recipe(&recipe).unwrap();
        wrong.extend(outcome.wrong.first().map(|what| format!("{recipe}: {what}")));
        tried += 1;
        if tried == given {
            let messages = hunt.tally().messages.len();
            assert!(messages >= MESSAGES_MIN, "the corpus reaches {messages} messages only");
        }
    }
    let tally = hunt.tally();
    println!(
        "{} images, {} opened for writing, {} read-only, {} messages",
        tally.images,
        tally.opened,
        tally.shown,
        tally.messages.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
