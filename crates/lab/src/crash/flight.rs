//! Operations of several clients in flight together: run as a schedule says, recorded, and cut at each
//! fence, as one operation is.
//!
//! What a cut may show: all that had returned is done, each that was in flight is or is not, in some
//! order in which what returned before another one began comes first, and in which each that had
//! returned gives what it gave. A client that died in an operation stays in flight, until another one
//! has settled for it.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::thread::{ScopedJoinHandle, ThreadId};

use novale_core::{Fs, OpenOptions, UpdatePolicy};
use novale_model::Model;

use super::dying::{die, settling};
use super::explorer::{CLOSED, Explorer, Live, check_alike, visible_after_crash};
use super::judge::Wrong;
use super::recover::{Allowed, State, look, look_at_names, recorded};
use super::schedule::{Doom, Points, Schedule, lives, point, process};
use crate::diff::{CoreMachine, OnFs, now_ns_at, panic_text};
use crate::workload::{Action, Entry, Outcome, Path, Session, Step, StepKind, Target, run_step};

/// Operations in flight or behind each other at a time.
const CALLS_MAX: usize = 6;

/// What is compared of a file that is held.
const HELD_BYTES_MAX: u32 = 1 << 20;

/// A client dies at one of so many points, or has come to its end before; second, where a slot is emptied.
const DEATH_POINTS: (u64, u64) = (100, 3000);

/// One that settles for a dead client may die before each of so many stores; its number among the clients.
const SETTLING_POINTS: u64 = 100;
const SETTLER: usize = 63;

/// What happened in the order of events: behind so many of them.
struct Mark {
    behind: usize,
    what: Happened,
}

enum Happened {
    Begins(usize),
    Ends(usize, Outcome),
    Dies(ThreadId),
}

/// An operation of a client.
struct Call<'s> {
    step: &'s Step,
    now_ns: i64,
    /// The calls, by bits, that had returned when it began; none where it has not begun.
    behind: Option<u32>,
    ended: Option<Outcome>,
}

/// Whether a step can be one of several clients': it keeps nothing, and changes nothing in place.
fn joins(step: &Step) -> bool {
    let alone = matches!(
        step,
        Step::Hold { .. } | Step::Map { .. } | Step::Unnamed { .. } | Step::Release(_)
    );
    let in_place = matches!(
        step,
        Step::On { action: Action::Store { .. } | Action::Flush { .. } | Action::Limit { .. }, .. }
    );
    step.kind() == StepKind::Operates && !alone && !in_place
}

/// Whether the second one changes a name by which the first one finds what it acts upon.
fn meets(step: &Step, other: &Step) -> bool {
    let ((found, _), (_, named)) = (paths(step), paths(other));
    found.iter().any(|found| named.iter().any(|named| found.0.starts_with(&named.0)))
}

/// The paths by which a step finds what it acts upon, before it acts, and those that it names.
fn paths(step: &Step) -> (Vec<Path>, Vec<Path>) {
    // What a look says is what the name led to, whatever becomes of that.
    let looks = matches!(step, Step::On { action: Action::Stat, .. });
    let mut step = step.clone();
    let path = |target: &mut Target| match target {
        Target::Path(path) => Some(path.clone()),
        Target::Slot(_) => None,
    };
    let targets: Vec<Path> = step.targets_mut().into_iter().filter_map(path).collect();
    let all = step.paths_mut().into_iter().map(|path| path.clone());
    let (mut found, mut named): (Vec<_>, Vec<_>) =
        all.partition(|path| targets.contains(path) && !looks);
    found.extend(named.iter().filter_map(Path::split).map(|(directory, _)| directory));
    named.retain(|_| !looks);
    (found, named)
}

/// A call begins: what has returned by now comes first.
fn begin(calls: &mut [Call<'_>], at: usize) {
    let returned = calls.iter().enumerate().filter(|(_, call)| call.ended.is_some());
    let behind = returned.fold(0, |bits, (at, _)| bits | 1 << at);
    if let Some(call) = calls.get_mut(at) {
        call.behind = Some(behind);
    }
}

impl Explorer<'_> {
    /// How many of the steps from `index` on are in flight together: those after a comparison, as far
    /// as what each of them looks up by its path is left alone by the others.
    pub(super) fn together(&self, steps: &[Step], index: usize) -> usize {
        let is_met = index > 0 && steps.get(index - 1) == Some(&Step::Compare);
        if self.options.clients < 2 || !is_met || self.model.changes_in_place() {
            return 1;
        }
        let rest = steps.get(index..).unwrap_or_default().iter().take(CALLS_MAX);
        let is_mapping = self.options.core.update == UpdatePolicy::Zcl;
        let alone = |(at, step): (usize, &Step)| {
            let earlier = rest.clone().take(at);
            // A copy from a mapping: what another one writes to the file meanwhile changes in place.
            let maps = is_mapping && matches!(step, Step::Copy { .. });
            maps || !joins(step)
                || earlier.clone().any(|other| meets(step, other) || meets(other, step))
        };
        rest.clone().enumerate().position(alone).unwrap_or(rest.len()).max(1)
    }

    /// Runs steps together, of which the first is `index`, cutting the power at their fences.
    pub(super) fn fly(&mut self, steps: &[Step], index: usize) -> Result<(), Wrong> {
        self.begin(steps, true);
        let call = |(at, step)| Call { step, now_ns: now_ns_at(at), behind: None, ended: None };
        let mut calls: Vec<Call<'_>> = (index + 1..).zip(steps).map(call).collect();
        let running = |why| ("in running".to_owned(), why);
        let mut marks = self.run_together(&calls).map_err(running)?;
        self.settle(&mut marks).map_err(running)?;
        let events = self.recorder.take();
        self.note_places(&events);
        self.judge.summary.together += steps.len() as u64;
        let mut behind = 0;
        for mark in marks {
            let (_, allowed) = self.possible(&calls)?;
            let part = events.get(behind..mark.behind).unwrap_or_default();
            self.cut_events(part, &allowed, "operations in flight together")?;
            behind = mark.behind;
            match mark.what {
                Happened::Begins(at) => begin(&mut calls, at),
                Happened::Ends(at, outcome) => {
                    if let Some(call) = calls.get_mut(at) {
                        call.ended = Some(outcome);
                    }
                    let (_, allowed) = self.possible(&calls)?;
                    self.cut("behind one of several operations", &allowed)?;
                }
                Happened::Dies(thread) => self.forget(Some(thread)).map_err(running)?,
            }
        }
        let (models, allowed) = self.possible(&calls)?;
        let rest = events.get(behind..).unwrap_or_default();
        self.cut_events(rest, &allowed, "leaving and settling")?;
        self.land(models, &allowed, now_ns_at(index + steps.len()))
    }

    /// Runs the calls, each client's one after the other, and settles for one that died.
    fn run_together(&mut self, calls: &[Call<'_>]) -> Result<Vec<Mark>, String> {
        let count = self.options.clients.min(calls.len());
        let dies = self.random.u32(..).is_multiple_of(self.options.dies_one_in.max(1));
        let (one, several) = DEATH_POINTS;
        let points = if self.options.core.slots.len() > 1 { several } else { one };
        let (thread, left) = (self.random.usize(0..count), self.random.u64(..points));
        let doom = Some(Doom { thread, points: None, left })
            .filter(|_| dies && self.options.dies_one_in > 0);
        let schedule = Schedule::new(count, self.random.u64(..), doom, &self.dead);
        let Live::Open(_, arena) = &self.live else { return Err(CLOSED.to_owned()) };
        let dead = self.dead.clone();
        // The first probe of an arena counts: it is this one, whatever the flight.
        let _first = arena.set_alive_probe(Box::new(move |client| lives(&dead, client.process)));
        let marks = Mutex::new(Vec::new());
        let mark = |what| {
            let mut marks = marks.lock().unwrap_or_else(PoisonError::into_inner);
            marks.push(Mark { behind: self.recorder.count(), what });
        };
        let clients =
            (0..count).map(|client| self.attach(client)).collect::<Result<Vec<_>, _>>()?;
        let work = |client: usize, fs: Fs| {
            let mut session = self.machine_session.clone();
            let mut machine = CoreMachine::around(fs);
            for (at, call) in calls.iter().enumerate().skip(client).step_by(count) {
                // What stores nothing has no other points.
                point(Points::Arena);
                mark(Happened::Begins(at));
                let outcome = run_step(&mut machine, &mut session, call.step, call.now_ns);
                mark(Happened::Ends(at, outcome));
            }
            machine.close()
        };
        let (schedule, work, mark) = (&schedule, &work, &mark);
        let buried = || mark(Happened::Dies(std::thread::current().id()));
        std::thread::scope(|scope| {
            let start = |(client, fs)| {
                scope.spawn(move || schedule.run(client, || work(client, fs), buried))
            };
            let threads: Vec<_> = clients.into_iter().enumerate().map(start).collect();
            let mut ended = threads.into_iter().map(ScopedJoinHandle::join);
            ended.try_for_each(|ended| {
                ended.unwrap_or_else(|why| Err(panic_text(why.as_ref()))).map(drop)
            })
        })?;
        Ok(marks.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Another client of the pool, by its number.
    fn attach(&self, number: usize) -> Result<Fs, String> {
        let (Live::Open(_, arena), Some(pool)) = (&self.live, &self.pool) else {
            return Err(CLOSED.to_owned());
        };
        let pm = pool.open(&recorded(&self.recorder, self.options.caches))?;
        let fs = Fs::attach(pm, arena, &OpenOptions::of_arena(arena), process(number));
        fs.map_err(|why| format!("attach: {why}"))
    }

    /// Settles for a client that died, where no other one has; every other time behind one that dies as it settles.
    fn settle(&mut self, marks: &mut Vec<Mark>) -> Result<(), String> {
        let Live::Open(machine, _) = &self.live else { return Err(CLOSED.to_owned()) };
        let fs = machine.fs().map_err(|why| format!("{why:?}"))?;
        if self.dead.load(Ordering::SeqCst) != 0 {
            let is_settled = fs.clients() == 1;
            self.judge.summary.deaths += 1;
            self.judge.summary.settled_in_flight += u64::from(is_settled);
            if !is_settled && self.random.bool() {
                let at = (Points::Arena, Some(self.random.u64(..SETTLING_POINTS)));
                if let Some((thread, _)) = die(self.attach(SETTLER)?, settling(), at)? {
                    self.dead.fetch_or(1 << SETTLER, Ordering::SeqCst);
                    self.judge.summary.settlers_died += 1;
                    marks
                        .push(Mark { behind: self.recorder.count(), what: Happened::Dies(thread) });
                }
            }
            fs.settle_dead().map_err(|why| format!("settling: {why}"))?;
        }
        match fs.clients() {
            1 => Ok(()),
            count => Err(format!("{count} clients are left, not one")),
        }
    }

    /// What may have come of the calls so far: the model of each order, and all states.
    fn possible(&self, calls: &[Call<'_>]) -> Result<(Vec<(Model, State)>, Allowed), Wrong> {
        let mut found = Vec::new();
        let added = add_orders((&self.model, &self.model_session), calls, 0, &mut found);
        added.map_err(|why| ("in the model".to_owned(), why))?;
        let mut states: Vec<State> = Vec::new();
        for (_, state) in &found {
            if states.iter().all(|known| known.hash() != state.hash()) {
                states.push(state.clone());
            }
        }
        if !states.is_empty() {
            return Ok((found, Allowed { states }));
        }
        let told = calls.iter().filter_map(|call| Some((call.step, call.ended.as_ref()?)));
        let told: Vec<String> = told.map(|(step, found)| format!("{step}: {found:?}")).collect();
        let why = format!("these results have no order:\n{}", told.join("\n"));
        Err(("in running".to_owned(), why))
    }

    /// Goes on with what a client that is left sees: names, and what is held without one.
    fn land(
        &mut self,
        models: Vec<(Model, State)>,
        allowed: &Allowed,
        now_ns: i64,
    ) -> Result<(), Wrong> {
        let running = |why: &str| ("in running".to_owned(), why.to_owned());
        let machine = self.live.machine().map_err(|why| running(&why))?;
        // A death loses numbers of inodes until the pool is opened again; what is held without a name has one.
        let has_more = |(model, state): &(Model, State)| model.inode_count() as u64 > state.inodes;
        let is_uncounted = self.judge.summary.deaths > 0 || models.iter().any(has_more);
        let look = if is_uncounted { look_at_names } else { look };
        let seen = look(machine, allowed, now_ns).map_err(|why| running(&why))?;
        let read = |(slot, _)| {
            let (target, action) =
                (Target::Slot(slot), Action::Read { offset: 0, len: HELD_BYTES_MAX });
            Step::On { target, action }
        };
        let reads: Vec<Step> = self.machine_session.slots().map(read).collect();
        let session = &mut self.machine_session;
        let found = reads.iter().map(|step| run_step(machine, session, step, now_ns));
        let found: Vec<Outcome> = found.collect();
        let session = &mut self.model_session;
        let mut is_it = |(model, state): &mut (Model, State)| {
            let mut same = reads.iter().zip(&found);
            state.hash() == seen.state.hash()
                && same.all(|(step, found)| {
                    gives(step, &run_step(model, session, step, now_ns), found)
                })
        };
        let same = models.into_iter().find_map(|mut model| is_it(&mut model).then_some(model));
        let (model, state) = same.ok_or_else(|| running("what is held is of no order"))?;
        (self.model, self.state) = (model, Some(state.clone()));
        let allowed = Allowed { states: vec![state] };
        // Views that were dropped may have had pairs.
        let events = self.recorder.take();
        self.cut_events(&events, &allowed, "looking")?;
        self.cut("behind operations in flight together", &allowed)
    }
}

/// Adds what comes of the calls in each order, `done` of them being done already.
fn add_orders(
    (model, session): (&Model, &Session),
    calls: &[Call<'_>],
    done: u32,
    found: &mut Vec<(Model, State)>,
) -> Result<(), String> {
    let is_done = |at: usize| done >> at & 1 == 1;
    if calls.iter().enumerate().all(|(at, call)| call.ended.is_none() || is_done(at)) {
        found.push((model.clone(), visible_after_crash(model)?.named("possible")));
    }
    for (at, call) in calls.iter().enumerate() {
        let may_be_next = call.behind.is_some_and(|behind| behind & !done == 0);
        if is_done(at) || !may_be_next {
            continue;
        }
        let (mut next, mut session) = (model.clone(), session.clone());
        let outcome = run_step(&mut next, &mut session, call.step, call.now_ns);
        if call.ended.as_ref().is_none_or(|found| gives(call.step, &outcome, found)) {
            add_orders((&next, &session), calls, done | 1 << at, found)?;
        }
    }
    Ok(())
}

/// Whether an order in which the model gives one outcome explains the other.
fn gives(step: &Step, expected: &Outcome, found: &Outcome) -> bool {
    let is_same = match (expected, found) {
        (Outcome::Bytes(expected), Outcome::Bytes(found)) => expected == found,
        (Outcome::Entries(expected), Outcome::Entries(found)) => {
            let names = |entries: &[Entry]| -> Vec<_> {
                entries.iter().map(|entry| (entry.name.clone(), entry.kind)).collect()
            };
            names(expected) == names(found)
        }
        (Outcome::Number(expected), Outcome::Number(found)) => {
            expected == found || matches!(step, Step::On { action: Action::Seek { .. }, .. })
        }
        _ => true,
    };
    is_same && check_alike(step, expected, found).is_ok()
}
