//! Tries mutants: each is given to the killers that reach it, until one fails.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::accepted::Accepted;
use super::child::{End, run};
use super::killers::Killer;
use super::mutant::Mutant;
use super::results::{Fate, Known, Results};
use super::tree::Sources;

/// CPU time that a killer may take with a mutant: so much more than without is a hang.
fn cpu_max(killer: &Killer) -> Duration {
    killer.cost * 5 + Duration::from_secs(2)
}

pub(super) struct Hunt<'a> {
    pub(super) sources: &'a Sources,
    pub(super) killers: &'a [Killer],
    pub(super) accepted: &'a Accepted,
    pub(super) results: &'a Results,
    pub(super) scratch: &'a Path,
    /// CPU time that one mutant may take.
    pub(super) each: Duration,
    /// None is begun later.
    pub(super) until: Instant,
    pub(super) threads: usize,
}

/// How often killers have killed: in a function (its file and name), in a file, in all.
#[derive(Default)]
struct Kills<'a>(BTreeMap<[&'a str; 2], BTreeMap<String, u32>>);

impl<'a> Kills<'a> {
    fn add(&mut self, mutant: &'a Mutant, killer: &str) {
        for place in places(mutant) {
            *self.0.entry(place).or_default().entry(killer.to_owned()).or_default() += 1;
        }
    }

    /// What it may take until this killer kills the mutant: less where it evaluates it often, and where
    /// it did so before, near by above all. A process costs something by itself.
    fn weight(&self, mutant: &'a Mutant, killer: &Killer, level: u8) -> Duration {
        let of = |place: [&str; 2]| self.0.get(&place).and_then(|at| at.get(&killer.name)).copied();
        let [here, file, all] = places(mutant).map(|place| of(place).unwrap_or(0));
        let often = u32::from(level).pow(2);
        killer.cost.max(Duration::from_millis(100)) * 4 / often / (4 + 32 * here + 8 * file + all)
    }
}

fn places(mutant: &Mutant) -> [[&str; 2]; 3] {
    [[&mutant.path, &mutant.function], [&mutant.path, ""], ["", ""]]
}

impl<'a> Hunt<'a> {
    /// Tries the mutants `ids`; those that time does not allow keep what was known of them.
    pub(super) fn run(&self, ids: &[usize]) -> anyhow::Result<BTreeMap<usize, Fate>> {
        let mut kills = Kills::default();
        for mutant in &self.sources.mutants {
            if let Some(Known::Caught(by)) = self.results.known(&self.sources.key(mutant)) {
                kills.add(mutant, by.rsplit_once(" (").map_or(by, |(name, _)| name));
            }
        }
        let (next, kills) = (AtomicUsize::new(0), Mutex::new(kills));
        let fates = Mutex::new(BTreeMap::new());
        let worker = |number: usize| -> anyhow::Result<()> {
            let scratch = self.scratch.join(number.to_string());
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(id) = ids.get(at) else { break };
                let Some(mutant) = self.sources.mutant(*id) else { break };
                let Some(fate) = self.fate(*id, mutant, &kills, &scratch)? else { continue };
                if !matches!(fate, Fate::Caught(_) | Fate::Accepted) {
                    eprintln!("{}/{}: {mutant}: {fate:?}", at + 1, ids.len());
                }
                fates.lock().unwrap_or_else(PoisonError::into_inner).insert(*id, fate);
            }
            Ok(())
        };
        let worker = &worker;
        std::thread::scope(|scope| {
            let workers: Vec<_> =
                (0..self.threads).map(|number| scope.spawn(move || worker(number))).collect();
            workers.into_iter().try_for_each(|worker| {
                worker.join().unwrap_or_else(|_| anyhow::bail!("a worker panicked"))
            })
        })?;
        Ok(fates.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// What becomes of a mutant; none where nothing is known and the time is up.
    fn fate(
        &self,
        id: usize,
        mutant: &'a Mutant,
        kills: &Mutex<Kills<'a>>,
        scratch: &Path,
    ) -> anyhow::Result<Option<Fate>> {
        let key = self.sources.key(mutant);
        let mut passed = match self.results.known(&key) {
            Some(Known::Caught(by)) => return Ok(Some(Fate::Caught(by.clone()))),
            Some(Known::Passed(by)) => by.clone(),
            Some(Known::Untyped) | None => BTreeSet::new(),
        };
        if self.accepted.has(mutant) {
            return Ok(Some(Fate::Accepted));
        }
        let order = self.order(id, mutant, kills);
        if order.is_empty() {
            return Ok(Some(Fate::Unreached));
        }
        let open = |passed: &BTreeSet<String>| {
            order.iter().filter(|killer| !passed.contains(&killer.short)).count()
        };
        if open(&passed) == 0 {
            return Ok(Some(Fate::Survived));
        }
        if Instant::now() >= self.until {
            return Ok((!passed.is_empty()).then_some(Fate::Undecided));
        }
        let mut left = self.each;
        for killer in &order {
            if passed.contains(&killer.short) || left < killer.cost {
                continue;
            }
            let mut command = killer.command();
            command.env("NOVALE_MUTANT", id.to_string()).env("NOVALE_LAB_AS_FOUND", "1");
            let (end, cost) = run(&mut command, scratch, cpu_max(killer))?;
            left = left.saturating_sub(cost);
            let by = match end {
                End::Passed => {
                    passed.insert(killer.short.clone());
                    continue;
                }
                End::Undecided => continue,
                End::Failed(how) => format!("{} ({how})", killer.name),
                End::Hung(how) => format!("{} ({how})", killer.name),
            };
            kills.lock().unwrap_or_else(PoisonError::into_inner).add(mutant, &killer.name);
            self.results.keep(&key, &Known::Caught(by.clone()))?;
            return Ok(Some(Fate::Caught(by)));
        }
        let fate = if open(&passed) == 0 { Fate::Survived } else { Fate::Undecided };
        self.results.keep(&key, &Known::Passed(passed))?;
        Ok(Some(fate))
    }

    /// The killers that reach a mutant, the most promising first.
    fn order(&self, id: usize, mutant: &'a Mutant, kills: &Mutex<Kills<'a>>) -> Vec<&'a Killer> {
        let kills = kills.lock().unwrap_or_else(PoisonError::into_inner);
        let reaching = |killer: &'a Killer| Some((*killer.reached.get(&id)?, killer));
        let mut order: Vec<(u8, &Killer)> = self.killers.iter().filter_map(reaching).collect();
        order.sort_by_cached_key(|(level, killer)| kills.weight(mutant, killer, *level));
        order.into_iter().map(|(_, killer)| killer).collect()
    }
}
