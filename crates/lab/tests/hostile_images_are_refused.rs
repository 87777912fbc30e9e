//! The promise: whatever a pool holds, the answer is an error that names structure and place: no
//! panic, no hang, no more memory than its view may take. The recipes of `corpus/images.txt` come
//! first, which between them reached every message so far; then others, more of them for
//! `NOVALE_LAB_SECONDS`.

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
/// Kinds of messages that the corpus reaches at least, whatever becomes of single recipes.
const MESSAGES_MIN: usize = 400;
/// What the search must have met, by what is said of it.
const MET: [(&str, &str); 12] = [
    ("a log in a circle", "log page at #:#x: page number # behind"),
    ("a directory below itself", "which lies above it"),
    ("a directory of two names", "names already"),
    ("a slot cut off", "it was cut off"),
    ("a slot of no length", "has # bytes, a slot needs at least"),
    ("random bytes for a superblock", "superblock: magic: expected"),
    ("a zeroed log page", "log page at #:#x: blank"),
    ("an address outside the pool", "a page that is not in the pool"),
    ("an extent beyond its slot", "pages beyond the slot's #"),
    ("an extent of absurd length", "write entry: count: expected"),
    ("a tail out of its log", "it ends before its tail"),
    ("a page of two files", "a page that has another owner too"),
];

#[test]
fn by_errors_that_name_structure_and_place() {
    let recipes: Vec<Recipe> = CORPUS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.parse().unwrap())
        .collect();
    let budget = Budget::from_env(800, 0);
    let (watchdog, given, start) = (Watchdog::new(PATIENCE), recipes.len(), Instant::now());
    let mut hunt = Hunt::new(budget.seed, recipes);
    let mut wrong = Vec::new();
    let mut tried = 0;
    while tried < given || budget.goes_on((tried - given) as u64, start) {
        let recipe = hunt.next_recipe();
        watchdog.begin(recipe.to_string());
        let (outcome, _) = hunt.try_recipe(&recipe).unwrap();
        wrong.extend(outcome.wrong.first().map(|what| format!("{recipe}: {what}")));
        tried += 1;
        if tried == given {
            let messages = hunt.tally().messages.len();
            assert!(messages >= MESSAGES_MIN, "the corpus reaches {messages} messages only");
            for (what, text) in MET {
                let met = hunt.tally().messages.iter().any(|message| message.contains(text));
                assert!(met, "the corpus has not {what} any more: no `{text}`");
            }
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
