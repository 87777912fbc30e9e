//! A client that dies at each point of one operation, and another one that settles for it; then the
//! power may fail at each fence of the settling.

use std::backtrace::Backtrace;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;
use novale_arena::{Arena, ClientInfo, Off, Owner, PidInfo};
use novale_core::{Atime, Form, Fs, Mode, OpenOptions, Serial, UpdatePolicy};
use novale_model::{Error, Ino, Model, Tree};
use novale_pm::{Observer, PmOptions};

use super::field::Home;
use crate::crash::{
    Act, Allowed, Bench, Depth, Effort, Hardware, Points, Recorder, State, What, die, images,
    look_at_names, place, probe, settling, take_out,
};
use crate::diff::{
    CoreMachine, CoreOptions, Machine, Manner, OnFs, check_pool, make_pool, now_ns_at,
};
use crate::diff::{check_opened, open_pool, snapshot};
use crate::pool_file::PoolFile;
use crate::watchdog::Watchdog;
use crate::workload::{Action, Failure, Outcome, Session, Step, Subject, Target, run_step};

/// Bytes that the view may take.
const ARENA_BYTES: u64 = 256 << 20;
/// Points in one operation at most.
const POINTS_MAX: u64 = 40_000;
/// No death takes longer, settling and judging included, but for a hang.
const PATIENCE: Duration = Duration::from_secs(120);
/// Clients that were in the dead one's slot before: what it locks is told from anything else in the
/// arena by that.
const EPOCH: u32 = 200;

/// What to try.
#[derive(Debug, Clone)]
pub struct DeathOptions {
    /// The pool.
    pub core: CoreOptions,
    /// Where clients die.
    pub points: Points,
    /// They die at one in so many of these points; 1: at each.
    pub stride: usize,
    /// The first point that they die at.
    pub first: u64,
    /// Whether the power fails at the fences of the settling as well.
    pub power: bool,
    /// Seed of the choice of images.
    pub seed: u64,
}

/// What was tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeathSummary {
    /// Deaths.
    pub deaths: u64,
    /// Images of power failures while a survivor settled, or after it.
    pub images: u64,
    /// Deaths whose operation was found done.
    pub done: u64,
    /// Pages that the allocator lost track of until the pool was opened again, over all deaths.
    pub pages_lost: u64,
    /// Deaths behind which pages are reserved for nobody, no page in particular.
    pub reserved_left: u64,
}

sums!(DeathSummary: deaths images done pages_lost reserved_left);

/// Lets a client die at each point of `victim`, one after the other, after `setup`.
///
/// # Errors
/// The point of the first death that was not settled rightly, and what was wrong.
pub fn die_everywhere(
    setup: &[Step],
    victim: &Step,
    options: &DeathOptions,
) -> Result<DeathSummary, String> {
    die_each(setup, victim, options, &|point| (point, None))
}

/// Lets a client die before point `at` of `victim`, and who settles for it before each store to the arena.
///
/// # Errors
/// As [`die_everywhere`].
pub fn die_settling(
    setup: &[Step],
    (victim, at): (&Step, u64),
    options: &DeathOptions,
) -> Result<DeathSummary, String> {
    die_each(setup, victim, options, &|point| (at, Some(point)))
}

fn die_each(
    setup: &[Step],
    victim: &Step,
    options: &DeathOptions,
    points: &dyn Fn(u64) -> (u64, Option<u64>),
) -> Result<DeathSummary, String> {
    let mut summary = DeathSummary::default();
    let watchdog = Watchdog::new(PATIENCE);
    for point in (options.first..POINTS_MAX).step_by(options.stride) {
        let points = points(point);
        let place = format!("{victim}: death before event {points:?} of {:?}", options.points);
        watchdog.begin(place.clone());
        let death = Death::new(setup, options)?;
        match death.run(victim, points, options) {
            Ok(Some(found)) => summary += found,
            Ok(None) => return Ok(summary),
            Err(why) => return Err(format!("{place}: {why}")),
        }
    }
    Err(format!("{victim}: more than {POINTS_MAX} events"))
}

/// A client that died.
pub(super) struct Dead {
    pub(super) client: ClientInfo,
    pub(super) at: Backtrace,
}

/// Pages that a client in the middle of giving pages back may have in hand; those of a lane; and blocks of the buffer.
const IN_HAND_MAX: (u64, u64, u64) = (1, 64, 2);

/// A pool with one client in good health.
pub(super) struct Death {
    pool: PoolFile,
    arena: Arena,
    pub(super) recorder: Arc<Recorder>,
    pub(super) hardware: Hardware,
    pub(super) machine: CoreMachine,
    pub(super) model: Model,
    session: Session,
    model_session: Session,
    manner: Manner,
    steps: usize,
}

impl Death {
    pub(super) fn new(setup: &[Step], options: &DeathOptions) -> Result<Self, String> {
        let recorder = Arc::new(Recorder::default());
        let pool = PoolFile::zeroed(&options.core.slots).map_err(|why| why.to_string())?;
        let observer = || Some(recorder.clone() as Arc<dyn Observer>);
        let open = || pool.open(&PmOptions { observer: observer(), ..PmOptions::default() });
        let hardware = Hardware::used_before(&options.core.slots);
        hardware.show(&pool.open(&PmOptions::default())?);
        make_pool(&open()?, options.core.lanes)?;
        let arena = Arena::anonymous(ARENA_BYTES).map_err(|why| why.to_string())?;
        let manner = options.core.manner();
        let fs = Fs::open(open()?, arena.clone(), &open_options(manner), &Serial, &|_| ())
            .map_err(|why| why.to_string())?;
        let mut this = Self {
            hardware,
            machine: CoreMachine::around(fs),
            model: Model::new(0o755, 0, 0, now_ns_at(0), novale_model::Atime::Noatime)
                .buffering(options.core.mode == Mode::Buffered)
                .overwriting_in_place(options.core.update == UpdatePolicy::InPlace),
            session: Session::default(),
            model_session: Session::default(),
            steps: setup.len(),
            pool,
            arena,
            recorder,
            manner,
        };
        for (index, step) in setup.iter().enumerate() {
            if *step == Step::Remount {
                this.remount()?;
                continue;
            }
            let now_ns = now_ns_at(index + 1);
            let found = run_step(&mut this.machine, &mut this.session, step, now_ns);
            let expected = run_step(&mut this.model, &mut this.model_session, step, now_ns);
            if matches!(found, Outcome::Failed(_)) || matches!(expected, Outcome::Failed(_)) {
                return Err(format!("setup {step}: {found:?}, model {expected:?}"));
            }
        }
        this.recorded();
        Ok(this)
    }

    /// Closes the pool and opens it in a new arena: nothing has a view.
    fn remount(&mut self) -> Result<(), String> {
        self.machine.close()?;
        self.session.forget_all();
        self.model_session.forget_all();
        self.model.sync_all();
        self.model.release_all();
        self.arena = Arena::anonymous(ARENA_BYTES).map_err(|why| why.to_string())?;
        let observer = Some(self.recorder.clone() as Arc<dyn Observer>);
        let pm = self.pool.open(&PmOptions { observer, ..PmOptions::default() })?;
        let options = open_options(self.manner);
        let fs = Fs::open(pm, self.arena.clone(), &options, &Serial, &|_| ());
        self.machine = CoreMachine::around(fs.map_err(|why| why.to_string())?);
        Ok(())
    }

    /// Lets what was recorded happen to the memory's model.
    pub(super) fn recorded(&mut self) {
        for event in self.recorder.take() {
            self.hardware.apply(&event);
        }
    }

    /// Runs the victim up to a point; `None` if the operation has no such point.
    fn run(
        mut self,
        victim: &Step,
        (point, settler): (u64, Option<u64>),
        options: &DeathOptions,
    ) -> Result<Option<DeathSummary>, String> {
        let now_ns = now_ns_at(self.steps + 1);
        let Some(dead) = self.start(victim, (options.points, point), now_ns)? else {
            return Ok(None);
        };
        let mut all = vec![dead.client];
        if let Some(point) = settler {
            self.recorded();
            self.hardware.forget(None);
            let Some(settler) = self.start_alive(settling(), point)? else { return Ok(None) };
            all.push(settler.client);
        }
        let settled = self.settle_and_use(victim, &all, now_ns, options);
        settled.map(Some).map_err(|why| format!("{why}\n  it died at {}", place(&dead.at)))
    }

    fn settle_and_use(
        mut self,
        victim: &Step,
        dead: &[ClientInfo],
        now_ns: i64,
        options: &DeathOptions,
    ) -> Result<DeathSummary, String> {
        let mut summary = DeathSummary { deaths: 1, ..DeathSummary::default() };
        let (before, opened) = (self.model.clone(), self.model_session.clone());
        let allowed = self.allowed(victim, now_ns)?;
        self.recorded();
        self.hardware.forget(None);
        // A look in the middle of which it is settled sees a part of each state; the next one may not.
        let exact = allowed.exact();
        let shown = self.look(&exact).or_else(|_| self.look(&exact));
        let shown = shown.map_err(|why| format!("before settling: {why}"))?;
        self.settle(&allowed, options, &mut summary)?;
        dead.iter().try_for_each(|client| self.is_forgotten(client))?;
        let found = self.look(&exact).map_err(|why| format!("settled: {why}"))?;
        if (shown.name, found.name) == ("after", "before") {
            return Err("a reader saw what was taken back".to_owned());
        }
        summary.done = u64::from(found.name == "after");
        // What it had taken is free again, and what its commit has freed, but for pages that a mapping
        // shows still, and what it had in hand between two stores to the arena. A flush before it is a
        // commit of its own, which may have happened.
        let undone = !self.model.is_buffering()
            && found.name == "before"
            && allowed
                .states
                .iter()
                .all(|state| state.name == "before" || state.tree != found.tree);
        let drains = matches!(victim, Step::On { action: Action::Leave { .. }, .. });
        let in_hand = if drains { IN_HAND_MAX.1 } else { IN_HAND_MAX.0 };
        let in_hand = if undone || options.points == Points::Pool { 0 } else { in_hand };
        let is_exact = self.session.mapped().next().is_none();
        let is_of = |mut model| close_files(&mut model, &mut opened.clone());
        let expected = [before, self.model.clone()].map(is_of);
        if is_exact && !expected.contains(&close_files(&mut self.machine, &mut self.session)) {
            return Err("what is open is neither as before nor as after".to_owned());
        }
        if self.machine.fs().is_ok_and(|fs| fs.leaving_slot().is_some()) {
            let gone_on = self.machine.on(Ino::ROOT, &Action::Leave { stays: 0 }, now_ns);
            gone_on.map_err(|why| format!("emptied by another: {why:?}"))?;
            self.look(&exact)?;
            take_out(self.machine.pm()?, self.manner, &allowed, now_ns)?;
        }
        self.use_all(&mut summary)?;
        // A settler says that it gives before it does: what it had not given nobody gives.
        if summary.pages_lost > in_hand && is_exact && dead.len() == 1 {
            return Err(format!("{} pages lost, {} the operation", summary.pages_lost, found.name));
        }
        Ok(summary)
    }

    /// Lets a client die at a point of the operation; none if it came to its end.
    pub(super) fn start(
        &self,
        victim: &Step,
        (points, point): (Points, u64),
        now_ns: i64,
    ) -> Result<Option<Dead>, String> {
        // What the survivor has open is open to this one.
        let (step, mut session) = (victim.clone(), self.session.clone());
        let act: Act = Box::new(move |fs| {
            let mut home = Home::new(fs, novale_core::Ino::ROOT);
            let outcome = run_step(&mut home, &mut session, &step, now_ns);
            // A pool that is full is no fault: nothing may have changed.
            let Outcome::Failed(why) = outcome else { return Ok(()) };
            if why == Failure::Error(Error::NoSpace) { Ok(()) } else { Err(format!("{why:?}")) }
        });
        self.start_act(act, (points, Some(point)), ended_process())
    }

    /// Lets a client of a process die at a point of what it does, or after all of it; none if there is
    /// no such point.
    pub(super) fn start_act(
        &self,
        act: Act,
        at: (Points, Option<u64>),
        process: PidInfo,
    ) -> Result<Option<Dead>, String> {
        for _ in 0..EPOCH {
            drop(self.arena.attach(process).map_err(|why| why.to_string())?);
        }
        let observer = Some(self.recorder.clone() as Arc<dyn Observer>);
        let pm = self.pool.open(&PmOptions { observer, ..PmOptions::default() })?;
        let before: Vec<ClientInfo> = self.arena.clients().collect();
        let fs = Fs::attach(pm, &self.arena, &open_options(self.manner), process)
            .map_err(|why| format!("attach: {why}"))?;
        let client = self.arena.clients().find(|client| !before.contains(client));
        let client = client.ok_or("the client is not there")?;
        Ok(die(fs, act, at)?.map(|(_, at)| Dead { client, at }))
    }

    /// As [`Death::start_act`], by a process that lives while it acts, or it would settle for itself.
    pub(super) fn start_alive(&self, act: Act, point: u64) -> Result<Option<Dead>, String> {
        let mut body =
            Command::new("cat").stdin(Stdio::piped()).spawn().map_err(|why| why.to_string())?;
        let process = PidInfo { pid: body.id(), start_time: 0 };
        let dead = self.start_act(act, (Points::Arena, Some(point)), process);
        body.kill().and_then(|()| body.wait()).map_err(|why| why.to_string())?;
        dead
    }

    /// Nobody is there but the survivor, and no word of the arena names a dead client as its owner.
    pub(super) fn is_forgotten(&self, dead: &ClientInfo) -> Result<(), String> {
        if let Some(client) = self.arena.client(dead.slot) {
            return Err(format!("{client:?} is there still"));
        }
        for at in (64..self.arena.used_bytes()).step_by(8).map(Off::from_raw) {
            let word = self.arena.word(at).map_err(|why| why.to_string())?;
            let owner = Owner::of_lock_word(word.load(Ordering::Relaxed));
            if owner.is_some_and(|owner| (owner.slot(), owner.epoch()) == (dead.slot, dead.epoch)) {
                return Err(format!("the lock at {at:?} is a dead client's: {owner:?}"));
            }
        }
        Ok(())
    }

    pub(super) fn allowed(&mut self, victim: &Step, now_ns: i64) -> Result<Allowed, String> {
        let before = self.model.clone();
        let outcome = run_step(&mut self.model, &mut self.model_session, victim, now_ns);
        if matches!(outcome, Outcome::Failed(_)) {
            return Err(format!("the model refuses it: {outcome:?}"));
        }
        // What somebody has mapped changes in place.
        let before = before.becoming(&self.model);
        Ok(Allowed { states: vec![shown("before", &before)?, shown("after", &self.model)?] })
    }

    /// Which state the survivor sees.
    pub(super) fn look(&mut self, allowed: &Allowed) -> Result<State, String> {
        let seen = look_at_names(&mut self.machine, allowed, now_ns_at(self.steps + 2))?;
        Ok(seen.state.clone())
    }

    /// Settles, with the power failing at each fence of it if asked for.
    fn settle(
        &mut self,
        allowed: &Allowed,
        options: &DeathOptions,
        summary: &mut DeathSummary,
    ) -> Result<(), String> {
        let fs = self.machine.fs().map_err(|why| format!("{why:?}"))?;
        // The one who needed a lock of its has settled for it already.
        fs.settle_dead().map_err(|why| format!("settling: {why}"))?;
        if !options.power {
            self.recorded();
            return Ok(());
        }
        let mut bench = Bench::new(&self.hardware, self.manner, now_ns_at(1 << 20))?;
        let mut random = Rng::with_seed(options.seed);
        for event in &self.recorder.take() {
            if matches!(event.what, What::Fence) {
                let place = format!("power failure in settling, at {}", event.site);
                self.cut(&mut bench, allowed, &mut random, summary)
                    .map_err(|why| format!("{place}: {why}"))?;
            }
            let changed = self.hardware.apply(event);
            bench.update(&self.hardware, &changed)?;
        }
        let found = self.look(&allowed.exact())?;
        let states = allowed.states.iter().filter(|state| state.name == found.name).cloned();
        self.cut(&mut bench, &Allowed { states: states.collect() }, &mut random, summary)
            .map_err(|why| format!("power failure behind settling: {why}"))
    }

    fn cut(
        &self,
        bench: &mut Bench,
        allowed: &Allowed,
        random: &mut Rng,
        summary: &mut DeathSummary,
    ) -> Result<(), String> {
        let effort = Effort {
            subset_lines_max: 4,
            data_lines_max: 1,
            pairs: 2,
            random: 2,
            at_stores: false,
        };
        for image in images(&self.hardware, effort, random) {
            summary.images += 1;
            bench
                .judge(&self.hardware, &image, allowed, Depth::Once)
                .map_err(|why| format!("keeping {}: {why}", image.choice))?;
        }
        Ok(())
    }

    /// Uses everything, closes the pool, and opens it again.
    pub(super) fn use_all(mut self, summary: &mut DeathSummary) -> Result<(), String> {
        let now_ns = now_ns_at(self.steps + 3);
        probe(&mut self.machine, now_ns).map_err(|why| format!("in use afterwards: {why}"))?;
        let fs = self.machine.fs().map_err(|why| format!("{why:?}"))?;
        let used = fs.buffer_use().map_err(|why| why.to_string())?;
        if used.blocks > IN_HAND_MAX.2 {
            return Err(format!("{} blocks of the write buffer are nobody's", used.blocks));
        }
        summary.reserved_left += u64::from(used.pages_reserved > 0);
        let free = self.machine.bytes_available().unwrap_or(0) + used.pages_reserved * 4096;
        self.machine.close()?;
        let pm = self.pool.open(&PmOptions::default())?;
        check_pool(&pm).map_err(|why| format!("closed: {why}"))?;
        let fs = open_pool(pm, self.manner, now_ns)?;
        check_opened(&fs).map_err(|why| format!("opened again: {why}"))?;
        let mut again = CoreMachine::around(fs);
        if snapshot(&mut again, now_ns)?.nodes().count() != 1 {
            return Err("opened again, it is not empty".to_owned());
        }
        let lost = again.bytes_available().unwrap_or(0).saturating_sub(free) / 4096;
        summary.pages_lost += lost;
        Ok(())
    }
}

/// The bytes of what is open, with a name or without; it is closed then.
fn close_files<S: Subject>(subject: &mut S, session: &mut Session) -> Vec<Outcome> {
    let slots: Vec<u8> = session.slots().map(|(slot, _)| slot).collect();
    let action = Action::Read { offset: 0, len: 1 << 20 };
    let read = |slot| Step::On { target: Target::Slot(slot), action: action.clone() };
    let steps = slots.into_iter().flat_map(|slot| [read(slot), Step::Release(slot)]);
    steps.map(|step| run_step(subject, session, &step, 0)).collect()
}

/// What a user sees of a model.
pub(super) fn shown(name: &'static str, model: &Model) -> Result<State, String> {
    let tree = Tree::of(model).map_err(|why| why.to_string())?;
    Ok(State::new(name, tree, model.inode_count() as u64))
}

fn open_options(manner: Manner) -> OpenOptions {
    // In one form a client dies while it drops views, too.
    let index_bytes = (manner.form == Form::Single).then_some(0);
    let placement = novale_core::Placement::Lanes;
    OpenOptions { atime: Atime::Noatime, index_bytes, placement, ..manner.options(now_ns_at(0)) }
}

/// A process that has ended: none was ever started so late.
pub(super) fn ended_process() -> PidInfo {
    PidInfo { start_time: u64::MAX, ..PidInfo::current() }
}
