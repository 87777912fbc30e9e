//! The search: recipes that reached something new are kept, and changed further.

use std::collections::{BTreeSet, HashSet};

use fastrand::Rng;

use super::pools::Pools;
use super::recipe::Recipe;
use super::try_one::{Outcome, try_recipe};

/// One in so many recipes starts afresh.
const FRESH_ONE_IN: u32 = 5;
/// So many of those kept count as new.
const NEWEST: usize = 64;

/// What a search has met.
#[derive(Debug, Default, Clone)]
pub struct Tally {
    /// Images tried.
    pub images: u64,
    /// Of those, how many could be opened for writing.
    pub opened: u64,
    /// How many could be opened read-only.
    pub shown: u64,
    /// Branches that ran, where they are counted.
    pub edges: u64,
    /// Messages met, without their numbers.
    pub messages: BTreeSet<String>,
}

/// A search through images.
#[derive(Debug)]
pub struct Hunt {
    random: Rng,
    pools: Pools,
    /// Recipes to be tried first.
    given: Vec<Recipe>,
    kept: Vec<Recipe>,
    reached: HashSet<u64>,
    /// For each branch a bit for each of how often it ran.
    edges: Vec<u8>,
    tally: Tally,
}

impl Hunt {
    /// A search that starts from recipes and goes on by the random numbers of a seed.
    #[must_use]
    pub fn new(seed: u64, given: Vec<Recipe>) -> Self {
        Self {
            random: Rng::with_seed(seed),
            pools: Pools::default(),
            given,
            kept: Vec::new(),
            reached: HashSet::new(),
            edges: vec![0; novale_edges::count()],
            tally: Tally::default(),
        }
    }

    /// The recipe to try next.
    pub fn next_recipe(&mut self) -> Recipe {
        if let Some(given) = self.given.pop() {
            return given;
        }
        // Half of the time what was kept last, which was changed least so far.
        let first = if self.random.bool() { self.kept.len().saturating_sub(NEWEST) } else { 0 };
        if self.random.u32(0..FRESH_ONE_IN) != 0
            && let Some(kept) = self.random.choice(self.kept.get(first..).unwrap_or_default())
        {
            return kept.changed(&mut self.random);
        }
        Recipe::any(&mut self.random)
    }

    /// Tries a recipe, and says whether it reached anything new.
    ///
    /// # Errors
    /// The machine has not what it takes.
    pub fn try_recipe(&mut self, recipe: &Recipe) -> Result<(Outcome, bool), String> {
        let outcome = try_recipe(&mut self.pools, recipe)?;
        self.tally.images += 1;
        self.tally.opened += u64::from(outcome.opened);
        self.tally.shown += u64::from(outcome.shown);
        self.tally.messages.extend(outcome.messages.iter().cloned());
        let known = self.reached.len();
        self.reached.extend(&outcome.reached);
        let is_new = self.met_edges(&outcome.edges) | (self.reached.len() > known);
        if is_new {
            self.kept.push(recipe.clone());
        }
        Ok((outcome, is_new))
    }

    /// Takes in which branches ran; whether one never had, or never so often.
    fn met_edges(&mut self, ran: &[(usize, u8)]) -> bool {
        let mut is_new = false;
        for (edge, times) in ran {
            let Some(met) = self.edges.get_mut(*edge) else { continue };
            let often = match times {
                0 | 1 => 1,
                2..=15 => 2,
                _ => 4,
            };
            self.tally.edges += u64::from(*met == 0);
            is_new |= *met & often == 0;
            *met |= often;
        }
        is_new
    }

    /// Leaves out wounds for as long as something is wrong.
    pub fn shrunk(&mut self, recipe: &Recipe) -> Recipe {
        let mut best = recipe.clone();
        let mut at = 0;
        while at < best.wounds.len() {
            let mut fewer = best.clone();
            fewer.wounds.remove(at);
            match try_recipe(&mut self.pools, &fewer) {
                Ok(outcome) if !outcome.wrong.is_empty() => best = fewer,
                _ => at += 1,
            }
        }
        best
    }

    /// What was met so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }
}
