//! All mutants over all workloads, on several threads, until the time is up or all are caught.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::fork::{End, fork};
use super::kept::Kept;
use super::key::{Key, Mutant};
use super::needless;
use super::pm::{PmReport, try_pm};
use super::recording::{Act, BEHIND_DEATH, Pool, Recording, settled};
use super::repairs;
use super::sites::Reach;
use super::trial::{Outcome, Stretch};
use super::workloads::{Ends, FIXED_COUNT, Plan, plan};
use crate::clients::Points;
use crate::diff::now_ns_at;
use crate::images::Pools;
use crate::workload::sequence;

/// Acts after the mutated one in which its consequences may show.
const ACTS_AHEAD: usize = 10;
/// Places of one run at which a mutant is tried, those in its recoveries included.
const TRIES_A_RUN: u32 = 6;
/// Places of one run and its recoveries at which a mutant is tried before only the run itself is.
const TRIES_IN_RECOVERIES: u32 = 3;
/// Places at which a mutant is tried before it counts as a survivor.
const TRIES_MAX: u32 = 40;
/// The same for one of which it is known why it may survive.
const NEEDLESS_TRIES_MAX: u32 = 6;
/// Places at which a mutant made no difference before it is taken for the original.
pub const ALIKE_MAX: u32 = 100;
/// One in so many acts is judged unchanged: no image of it may be wrong.
const UNCHANGED_ONE_IN: u32 = 24;

/// After the fixed runs those are made again in which open mutants were met, but for one in so many.
const SEEKS_NOTHING_ONE_IN: usize = 4;

/// How often it is told how far it has come.
const TOLD_EVERY: Duration = Duration::from_secs(1);
/// Where clients die whose settling is mutated, at one of so many of these points: most of what they
/// store to the arena lies between two stores to the pool.
const POINTS: [(Points, u64); 2] = [(Points::Pool, 3), (Points::Arena, 60)];

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// No run starts later than this.
    pub time: Duration,
    /// Runs beside each other.
    pub threads: usize,
    /// It ends behind so many trials, which are the same each time if there is one thread.
    pub trials_max: u64,
    /// Seed of the random runs and images.
    pub seed: u64,
    /// A part of the names of the fixed runs to be made, over and over; else all.
    pub only: Option<String>,
    /// What was caught in earlier runs.
    pub kept: Kept,
}

/// What came of a mutant in the runs of one plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Met {
    tries: u32,
    /// The seeds of runs in which it was tried.
    seeds: BTreeSet<u64>,
}

/// How a mutant fared.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fate {
    /// Places at which it was tried and made a difference to the memory.
    pub tries: u32,
    /// Places at which it made none.
    pub alike: u32,
    /// It is known why it may survive.
    pub is_needless: bool,
    /// The run in which it was caught, the cut and what was wrong.
    pub caught: Option<[String; 3]>,
    /// It was caught in an earlier run.
    pub is_kept: bool,
    /// The turns of the plans in which it was met.
    pub(super) met: BTreeMap<usize, Met>,
}

impl Fate {
    /// It is worth another try. One that makes a difference now and then is looked at longer than one
    /// that never did.
    fn is_open(&self) -> bool {
        let tries_max = if self.is_needless { NEEDLESS_TRIES_MAX } else { TRIES_MAX };
        let alike_max = ALIKE_MAX.saturating_mul(1 + self.tries);
        self.caught.is_none() && self.tries < tries_max && self.alike < alike_max
    }

    /// How often it is tried in all in runs of one plan: where it was met in several, one of them can't
    /// use up all tries.
    fn tries_a_plan(&self) -> u32 {
        (2 * TRIES_MAX / u32::try_from(self.met.len()).unwrap_or(1).max(1)).max(TRIES_A_RUN)
    }

    /// Of a plan in which it was met that has not used up its share the turn, and the seed of a run in
    /// which it was tried.
    fn sought(&self, random: &mut Rng) -> Option<(usize, Option<u64>)> {
        let left: Vec<_> =
            self.met.iter().filter(|(_, met)| met.tries < self.tries_a_plan()).collect();
        let (turn, met) = random.choice(left)?;
        Some((*turn, random.choice(&met.seeds).copied()))
    }

    /// The memory was never in a state that the original can't be in.
    fn is_original(&self) -> bool {
        self.tries == 0 && self.alike >= ALIKE_MAX
    }
}

/// Figures on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Score {
    /// Mutants met.
    pub mutants: usize,
    /// Of them caught.
    pub caught: usize,
    /// Of these caught in an earlier run.
    pub kept: usize,
    /// Survivors that are proved needless.
    pub needless: usize,
    /// Places at which a mutant was replayed.
    pub trials: u64,
}

/// What came out.
#[derive(Debug, Default)]
pub struct Report {
    /// The figures.
    pub score: Score,
    /// Each mutant.
    pub fates: BTreeMap<Mutant, Fate>,
    /// Survivors that nothing explains.
    pub survivors: Vec<Mutant>,
    /// Mutants that were neither caught nor looked at often enough when the time was up.
    pub undecided: Vec<Mutant>,
    /// Mutants that made no difference to the memory at [`ALIKE_MAX`] places: what they take away was
    /// always done by something else as well.
    pub original: Vec<Mutant>,
    /// Survivors with the proof that nothing needs what they lack.
    pub explained: Vec<(Mutant, &'static str)>,
    /// What the runs reached of the source of `core`.
    pub reach: Reach,
    /// What was wrong without any mutant.
    pub broken: Vec<String>,
    /// The mutants of `pm` itself.
    pub pm: PmReport,
    /// It was ended before its time.
    pub stopped: bool,
    /// There was time for all runs that are always the same.
    pub all_runs: bool,
}

impl Report {
    /// Nothing survived unexplained, nothing was left unreached by all runs, nothing was caught that is
    /// explained as needless, and the product was right.
    pub fn is_clean(&self) -> bool {
        let unreached = self.all_runs && !self.reach.unreached.is_empty();
        let violated = !self.broken.is_empty() || self.wrongly_explained().next().is_some();
        self.survivors.is_empty() && !unreached && !violated && self.pm.is_clean()
    }

    /// Every mutant is decided, and there was time for all runs.
    pub fn is_complete(&self) -> bool {
        self.all_runs && !self.stopped && self.undecided.is_empty()
    }

    /// Mutants that were caught although they are said to be needless.
    pub fn wrongly_explained(&self) -> impl Iterator<Item = (&Mutant, &Fate)> {
        self.fates
            .iter()
            .filter(|(mutant, fate)| fate.caught.is_some() && needless::is_proved(mutant))
    }
}

/// Tries all mutants, no longer than until `stop` is set, by whomever; `progress` hears of the figures
/// now and then.
pub fn run_until(
    stop: &AtomicBool,
    options: &Options,
    progress: &(dyn Fn(Score) + Sync),
) -> Report {
    let pm = try_pm();
    let shared = Shared {
        options: options.clone(),
        deadline: Instant::now().checked_add(options.time),
        next: AtomicUsize::new(0),
        trials: AtomicU64::new(0),
        state: Mutex::new(State::default()),
        progress,
        told: Mutex::new(Instant::now()),
        stop,
    };
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| shared.work());
        }
    });
    let state = shared.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    Report { pm, stopped: stop.load(Ordering::Relaxed), ..report(state) }
}

fn report(state: State) -> Report {
    let all_runs = state.runs >= FIXED_COUNT;
    let (score, broken) = (state.score(), state.broken);
    let mut report = Report { score, broken, all_runs, ..Report::default() };
    for (mutant, fate) in state.fates.iter().filter(|(_, fate)| fate.caught.is_none()) {
        match needless::why(mutant) {
            Some(why) => report.explained.push((*mutant, why)),
            None if fate.is_original() => report.original.push(*mutant),
            None if fate.is_open() => report.undecided.push(*mutant),
            None => report.survivors.push(*mutant),
        }
    }
    report.score.needless = report.explained.len();
    let sites = state.fates.keys().map(|mutant| mutant.key.site);
    match Reach::of(sites.map(|site| (site.file, site.line))) {
        Ok(reach) => report.reach = reach,
        Err(why) => report.broken.push(format!("the source of core: {why}")),
    }
    report.fates = state.fates;
    report
}

#[derive(Debug, Default)]
struct State {
    fates: BTreeMap<Mutant, Fate>,
    broken: Vec<String>,
    trials: u64,
    /// Runs that came to their end.
    runs: usize,
}

impl State {
    fn score(&self) -> Score {
        Score {
            mutants: self.fates.len(),
            caught: self.fates.values().filter(|fate| fate.caught.is_some()).count(),
            kept: self.fates.values().filter(|fate| fate.is_kept).count(),
            needless: 0,
            trials: self.trials,
        }
    }

    /// The mutants met so far that are neither caught, nor explained, nor tried often enough.
    fn open(&self) -> impl Iterator<Item = (&Mutant, &Fate)> {
        self.fates.iter().filter(|(mutant, fate)| {
            fate.is_open() && (fate.tries + fate.alike == 0 || needless::why(mutant).is_none())
        })
    }
}

struct Shared<'p> {
    options: Options,
    deadline: Option<Instant>,
    next: AtomicUsize,
    trials: AtomicU64,
    state: Mutex<State>,
    progress: &'p (dyn Fn(Score) + Sync),
    /// When it was called last.
    told: Mutex<Instant>,
    stop: &'p AtomicBool,
}

impl Shared<'_> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        let is_late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let is_enough = self.trials.load(Ordering::Relaxed) >= self.options.trials_max;
        is_enough || is_late || self.stop.load(Ordering::Relaxed)
    }

    /// Takes one run after the other.
    fn work(&self) {
        while !self.is_over() {
            let turn = self.next.fetch_add(1, Ordering::Relaxed);
            let mut random = Rng::with_seed(self.options.seed ^ turn as u64);
            let state = self.state();
            let open: Vec<_> = state.open().filter(|_| turn >= FIXED_COUNT).collect();
            if turn >= FIXED_COUNT + 2 && open.is_empty() {
                break;
            }
            let only = self.options.only.as_deref();
            let seed = self.options.seed ^ turn as u64;
            let (mut met, mut places) = (only.map_or(turn, |_| turn % FIXED_COUNT), seed);
            let sought = random.choice(open).filter(|_| !turn.is_multiple_of(SEEKS_NOTHING_ONE_IN));
            if let Some((turn, seed)) = sought.and_then(|(_, fate)| fate.sought(&mut random)) {
                met = turn;
                // What was met in a recovery is met in the same one again; elsewhere, by chance.
                places = seed.filter(|_| random.bool()).unwrap_or(places);
            }
            let sought = sought.map(|(mutant, _)| *mutant);
            drop(state);
            let plan = plan(met, self.options.seed);
            if only.is_some_and(|only| !plan.name.contains(only)) {
                continue;
            }
            let mut worker = Worker {
                shared: self,
                plan: &plan,
                turn: met,
                seed: places,
                places: Rng::with_seed(places),
                sought,
                random,
                tries: BTreeMap::new(),
                forks: BTreeMap::new(),
            };
            if let Err(why) = worker.run() {
                self.state().broken.push(format!("{}: {why}", plan.name));
            }
            self.state().runs += usize::from(!self.is_over());
            self.tell();
        }
    }

    /// Says how far it has come, about once a second.
    fn tell(&self) {
        let Ok(mut told) = self.told.try_lock() else { return };
        if told.elapsed() >= TOLD_EVERY {
            *told = Instant::now();
            (self.progress)(self.state().score());
        }
    }
}

/// One run and its mutants.
struct Worker<'s, 'p> {
    shared: &'s Shared<'p>,
    plan: &'s Plan,
    turn: usize,
    /// Of where it is recovered, or clients die.
    seed: u64,
    places: Rng,
    /// It is made for this mutant, and all others that are open are tried at each place, too.
    sought: Option<Mutant>,
    random: Rng,
    tries: BTreeMap<Mutant, u32>,
    /// Acts from which recoveries may have been made, by what they do.
    forks: BTreeMap<Key, u32>,
}

impl Worker<'_, '_> {
    fn run(&mut self) -> Result<(), String> {
        match self.plan.ends {
            Ends::Settled => return self.run_settling(),
            Ends::Repaired => return self.run_repairs(),
            Ends::Never | Ends::Recovered => {}
        }
        let (mut recording, memory, acts) = Recording::begin(self.plan)?;
        let mut stretch = Stretch::new(memory, self.plan.core.form)?;
        let mut window = VecDeque::from(acts);
        if !self.plan.setup.is_empty() {
            self.finish(&mut stretch, &mut window)?;
            for (index, step) in (1..).zip(&self.plan.setup) {
                recording.set_up(step, now_ns_at(index), &mut stretch.hardware)?;
            }
            stretch = Stretch::new(stretch.hardware, self.plan.core.form)?;
        }
        for (index, step) in (1 + self.plan.setup.len()..).zip(&self.plan.steps) {
            window.extend(recording.step(step, now_ns_at(index))?);
            while window.len() > ACTS_AHEAD {
                self.take_front(&mut stretch, &mut window)?;
            }
            if self.shared.is_over() {
                return Ok(());
            }
        }
        self.finish(&mut stretch, &mut window)
    }

    /// Clients die here and there in their operations; the mutants are of what a survivor does.
    fn run_settling(&mut self) -> Result<(), String> {
        let all = sequence("settled: victims")
            .lines()
            .flat_map(|victim| POINTS.map(|points| (victim, points)));
        for (victim, (points, between)) in all {
            let mut point = self.places.u64(0..between);
            while let Some((mut stretch, acts)) = settled(self.plan, victim, (points, point))? {
                let mut window = VecDeque::from(acts);
                self.finish(&mut stretch, &mut window)?;
                point += self.places.u64(1..=between);
                if self.shared.is_over() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Damaged pools are repaired, in any order.
    fn run_repairs(&mut self) -> Result<(), String> {
        let (mut tasks, mut pools) = (repairs::tasks()?, Pools::default());
        self.places.shuffle(&mut tasks);
        for task in tasks {
            if self.shared.is_over() {
                break;
            }
            let Some((mut stretch, act)) = repairs::record(&task, &mut pools)? else { continue };
            self.try_mutants(&mut stretch, &VecDeque::from([act]), TRIES_A_RUN)?;
        }
        Ok(())
    }

    fn finish(&mut self, stretch: &mut Stretch, window: &mut VecDeque<Act>) -> Result<(), String> {
        while !window.is_empty() && !self.shared.is_over() {
            self.take_front(stretch, window)?;
        }
        Ok(())
    }

    /// Tries the mutants of the first act and of recoveries from it, and lets it happen.
    fn take_front(
        &mut self,
        stretch: &mut Stretch,
        window: &mut VecDeque<Act>,
    ) -> Result<(), String> {
        self.try_mutants(stretch, window, TRIES_A_RUN)?;
        let Some(act) = window.pop_front() else { return Ok(()) };
        for _ in 0..self.forks_of(&act) {
            for end in [End::PowerCut, End::Death] {
                let (hardware, random) = (&stretch.hardware, &mut self.places);
                let (mut stretch, acts) = fork(self.plan, hardware, &act, end, random)
                    .map_err(|why| format!("{}, {end:?}: {why}", act.name))?;
                let mut acts = VecDeque::from(acts);
                while !acts.is_empty() {
                    self.try_mutants(&mut stretch, &acts, TRIES_IN_RECOVERIES)?;
                    acts.pop_front().map_or(Ok(()), |act| stretch.advance(&act))?;
                }
            }
        }
        stretch.advance(&act)
    }

    /// How many pairs of recoveries are made from this act: the more, the rarer what it does. None where a
    /// mutant is sought that is met without.
    fn forks_of(&mut self, act: &Act) -> u32 {
        let is_used = matches!(act.during.pool, Pool::Used | Pool::Closing);
        let is_sought = self.sought.is_none_or(|mutant| mutant.key.during.starts_with("recovery"));
        if !is_used || self.plan.ends != Ends::Recovered || !is_sought {
            return 0;
        }
        let mut seldom = u32::MAX;
        for key in &act.keyed.keys {
            let count = self.forks.entry(*key).or_default();
            *count += 1;
            seldom = seldom.min(*count);
        }
        let opens = ["opening", BEHIND_DEATH, "closing"];
        let often = act.keyed.keys.first().is_some_and(|key| opens.contains(&key.during));
        match seldom {
            0..=6 if often => 3,
            0..=3 => 1,
            _ => u32::from(self.places.u32(0..16) == 0),
        }
    }

    fn try_mutants(
        &mut self,
        stretch: &mut Stretch,
        acts: &VecDeque<Act>,
        tries_max: u32,
    ) -> Result<(), String> {
        let Some(act) = acts.front() else { return Ok(()) };
        self.shared.tell();
        if self.random.u32(0..UNCHANGED_ONE_IN) == 0
            && let Outcome::Caught { cut, what } =
                stretch.catch(None, acts.iter(), &mut self.random)?
        {
            self.shared.state().broken.push(format!("{}: {cut}: {what}", self.plan.name));
        }
        for mutant in act.keyed.mutants() {
            if !self.is_wanted(&mutant, tries_max) {
                continue;
            }
            let outcome = stretch.catch(Some(&mutant), acts.iter(), &mut self.random)?;
            self.shared.trials.fetch_add(1, Ordering::Relaxed);
            let mut state = self.shared.state();
            state.trials += 1;
            let fate = state.fates.entry(mutant).or_default();
            match outcome {
                Outcome::NoDifference => {
                    fate.alike += 1;
                    continue;
                }
                Outcome::Survived => {}
                Outcome::Caught { cut, what } => {
                    fate.caught.get_or_insert([self.plan.name.clone(), cut, what]);
                }
            }
            fate.tries += 1;
            let met = fate.met.entry(self.turn).or_default();
            met.tries += 1;
            met.seeds.insert(self.seed);
            drop(state);
            *self.tries.entry(mutant).or_default() += 1;
        }
        Ok(())
    }

    fn is_wanted(&self, mutant: &Mutant, tries_max: u32) -> bool {
        let mut state = self.shared.state();
        let new = || self.shared.options.kept.fate(mutant);
        let fate = state.fates.entry(*mutant).or_insert_with(new);
        let of_plan = fate.met.entry(self.turn).or_default().tries;
        let is_due = match self.sought {
            Some(_) => of_plan < fate.tries_a_plan(),
            None => self.tries.get(mutant).is_none_or(|tries| *tries < tries_max),
        };
        !self.shared.is_over() && is_due && fate.is_open()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_can_not_show_a_mutant_does_not_use_up_its_tries() {
        let mut random = Rng::with_seed(1);
        let mut fate = Fate::default();
        fate.met.insert(3, Met { tries: TRIES_MAX - 1, seeds: BTreeSet::from([7]) });
        assert_eq!(fate.sought(&mut random), Some((3, Some(7))));
        let others = [(8, Met::default()), (9, Met { tries: 1, seeds: BTreeSet::from([5]) })];
        fate.met.extend(others);
        let sought: BTreeSet<_> = (0..50).filter_map(|_| fate.sought(&mut random)).collect();
        assert_eq!(sought, BTreeSet::from([(8, None), (9, Some(5))]));
    }
}
