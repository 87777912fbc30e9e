//! A worker of `novale-lab images`: tries one image after the other under a limit of its memory, and
//! says on standard output what it does, an object of JSON a line.

use std::time::{Duration, Instant};

use novale_lab::images::{Hunt, Recipe};
use serde::{Deserialize, Serialize};

use super::Verdict;
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};

/// Address space of a worker: the view of an image, its slots twice over, and as much again.
const MEMORY_BYTES: u64 = 1 << 30;

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Word {
    /// It tries this recipe now.
    Try(String),
    /// The image could be opened for writing.
    Opened,
    /// The image could be opened read-only.
    Shown,
    /// A message that it has not met before.
    Message(String),
    /// The recipe reached something new.
    Kept(String),
    /// So many branches ran until now.
    Edges(u64),
    /// The recipe's answer was wrong: how.
    Wrong(String, String),
}

impl Word {
    fn say(&self) {
        // Of strings and numbers there is always a text.
        say!("{}", serde_json::to_string(self).unwrap_or_default());
    }

    /// What a line says; `None` for one that is none of a worker's.
    pub(super) fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }
}

/// Tries the recipes given, then `images` others, or until the time is up. As a canary it takes more
/// memory than it may, at the first.
pub(super) fn run(
    (seconds, seed): (u64, u64),
    images: Option<u64>,
    given: Vec<Recipe>,
    canary: bool,
) -> anyhow::Result<Verdict> {
    // Nobody is left behind, however the program that started this one ends.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let limit = Rlimit { current: Some(MEMORY_BYTES), maximum: Some(MEMORY_BYTES) };
    setrlimit(Resource::As, limit)?;
    let (start, time) = (Instant::now(), Duration::from_secs(seconds));
    let given_count = given.len() as u64;
    let mut hunt = Hunt::new(seed, given);
    let mut known = 0;
    for tried in 0.. {
        let is_late = start.elapsed() >= time;
        match images {
            Some(images) if tried >= given_count + images => break,
            Some(_) if is_late => return Ok(Verdict::Incomplete),
            None if is_late && tried >= given_count => break,
            _ => {}
        }
        let recipe = hunt.next_recipe();
        Word::Try(recipe.to_string()).say();
        if canary {
            let too_much = vec![1_u8; usize::try_from(MEMORY_BYTES)?];
            anyhow::bail!("a worker has {} bytes that it may not have", too_much.len());
        }
        let (outcome, is_new) = hunt.try_recipe(&recipe).map_err(anyhow::Error::msg)?;
        if outcome.opened {
            Word::Opened.say();
        }
        if outcome.shown {
            Word::Shown.say();
        }
        if is_new {
            Word::Kept(recipe.to_string()).say();
            Word::Edges(hunt.tally().edges).say();
        }
        if hunt.tally().messages.len() > known {
            known = hunt.tally().messages.len();
            outcome.messages.into_iter().map(Word::Message).for_each(|word| word.say());
        }
        if let Some(what) = outcome.wrong.first() {
            let what = format!("{what}\n  done to it: {}", outcome.wounds.join("; "));
            Word::Wrong(hunt.shrunk(&recipe).to_string(), what).say();
        }
    }
    Ok(Verdict::Clean)
}
