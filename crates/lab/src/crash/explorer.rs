//! A run with its memory: each event is let happen to the hardware's model as well, and at each point
//! the images that a cut could leave are judged.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::ThreadId;

use fastrand::Rng;
use novale_arena::Arena;
use novale_core::{Mode, UpdatePolicy};
use novale_model::{Atime, Error, Model, Tree};
use novale_pm::Pm;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::explore::{CrashOptions, CrashSummary};
use super::hardware::{Caches, Hardware};
use super::images::{Image, images, images_at_store, images_by_units, images_in_store};
use super::judge::{Judge, Wrong};
use super::probe::BYTES_ROOMY;
use super::record::{Event, Recorder, What};
use super::recover::{Allowed, Bench, State, look, recorded, recorded_memory};
use super::tracker::Tracker;
use crate::diff::{
    CoreMachine, check_no_space, make_pool, new_arena, now_ns_at, open_pool_in, panic_text,
};
use crate::pool_file::PoolFile;
use crate::workload::{Action, Failure, Outcome, Session, Step, StepKind, run_step};

/// A run that is being cut.
pub(super) struct Explorer<'o> {
    pub(super) options: &'o CrashOptions,
    pub(super) recorder: Arc<Recorder>,
    pub(super) live: Live,
    pub(super) machine_session: Session,
    pub(super) model: Model,
    pub(super) model_session: Session,
    /// The state after the last operation, as a crash shows it; `None` where nobody asked yet.
    pub(super) state: Option<State>,
    pub(super) hardware: Hardware,
    pub(super) judge: Judge<'o>,
    pub(super) random: Rng,
    /// Whether the power is cut at all.
    pub(super) cuts: bool,
    /// A thread that does some of the operations, if there are to be several.
    other_thread: Option<ThreadPool>,
    /// The live pool's slots, if several clients are to have it.
    pub(super) pool: Option<PoolFile>,
    /// Which of several clients have died, by bits.
    pub(super) dead: Arc<AtomicU64>,
}

pub(super) const CLOSED: &str = "it did not open";

/// The pool that operations run on: open, or its memory alone.
pub(super) enum Live {
    Open(Box<CoreMachine>, Arena),
    Closed(Pm, Arena),
    /// Between the two, and after a failure.
    Gone,
}

impl<'o> Explorer<'o> {
    /// Makes a pool and opens it, with cuts on the way.
    pub(super) fn new(options: &'o CrashOptions, tracker: &'o Tracker) -> Result<Self, String> {
        let recorder = Arc::new(Recorder::default());
        let (pool, pm) = match options.clients {
            0 | 1 => (None, recorded_memory(&options.core.slots, &recorder, options.caches)?),
            _ => {
                let pool = PoolFile::zeroed(&options.core.slots).map_err(|why| why.to_string())?;
                let pm = pool.open(&recorded(&recorder, options.caches))?;
                (Some(pool), pm)
            }
        };
        let mut hardware = Hardware::used_before(&options.core.slots).with_caches(options.caches);
        recorder.unheard(|| hardware.lay_out(&pm));
        make_pool(&pm, options.core.lanes)?;
        for event in recorder.take() {
            hardware.apply(&event);
        }
        if !hardware.pending().is_empty() {
            return Err(format!("mkfs left {} lines not durable", hardware.pending().len()));
        }
        let atime = match options.atime {
            novale_core::Atime::Noatime => Atime::Noatime,
            novale_core::Atime::Relatime => Atime::Relatime,
            novale_core::Atime::Strict => Atime::Strict,
        };
        let model = Model::new(0o755, 0, 0, now_ns_at(0), atime)
            .buffering(options.core.mode == Mode::Buffered)
            .overwriting_in_place(options.core.update == UpdatePolicy::InPlace);
        let bench = Bench::new(&hardware, options.core.manner(), now_ns_at(1 << 20))?;
        let one = || ThreadPoolBuilder::new().num_threads(1).build();
        let mut explorer = Self {
            judge: Judge::new(options, tracker, bench),
            state: None,
            options,
            recorder,
            live: Live::Closed(pm, new_arena()?),
            machine_session: Session::default(),
            model,
            model_session: Session::default(),
            hardware,
            random: Rng::with_seed(options.seed),
            cuts: options.from_step == 0,
            other_thread: options
                .many_threads
                .then(one)
                .transpose()
                .map_err(|why| why.to_string())?,
            pool,
            dead: Arc::default(),
        };
        explorer.open(now_ns_at(0)).map_err(|(cut, what)| format!("{cut}: {what}"))?;
        Ok(explorer)
    }

    /// Opens the live pool, with cuts on the way.
    fn open(&mut self, now_ns: i64) -> Result<(), Wrong> {
        self.live.open(self.options, now_ns).map_err(|why| ("in opening".to_owned(), why))?;
        self.cut_each_fence("the opening", now_ns)
    }

    /// What was seen so far.
    pub(super) fn summary(&self) -> CrashSummary {
        self.judge.summary
    }

    /// Says what was seen, if all of it was recorded.
    pub(super) fn finish(self) -> Result<CrashSummary, Wrong> {
        self.check_recording().map_err(|why| ("behind all".to_owned(), why))?;
        Ok(self.summary())
    }

    /// Runs a step, cutting the power at its fences if `cuts` says so.
    pub(super) fn step(&mut self, step: &Step, cuts: bool, now_ns: i64) -> Result<(), Wrong> {
        self.begin(std::slice::from_ref(step), cuts);
        match step.kind() {
            StepKind::Compares => Ok(()),
            StepKind::Remounts | StepKind::Dies => self.reopen(step, now_ns),
            StepKind::Operates => self.operate(step, now_ns),
        }
    }

    /// Begins steps that are run together. What is drawn for them does not depend on the steps before,
    /// so that these can be left out of a failing sequence.
    pub(super) fn begin(&mut self, steps: &[Step], cuts: bool) {
        self.judge.summary.steps += steps.len() as u64;
        self.cuts = cuts;
        let text: Vec<String> = steps.iter().map(ToString::to_string).collect();
        self.random = Rng::with_seed(self.options.seed ^ hash(text.join("\n").as_bytes()));
    }

    fn operate(&mut self, step: &Step, now_ns: i64) -> Result<(), Wrong> {
        let cut_off = self.cuts_off();
        if self.cuts {
            self.state()?;
        }
        // What is mapped changes in place.
        let before = (cut_off || self.model.changes_in_place()).then(|| self.model.clone());
        let machine = self.live.machine().map_err(|why| ("in running".to_owned(), why))?;
        let collected = machine.collected();
        // What looks at it between the steps leaves no trace.
        machine.set_atime(self.options.atime);
        let session = &mut self.machine_session;
        let mut run = || run_step(machine, session, step, now_ns);
        // Most operations are this thread's; some are another's, or of one that is never seen
        // again: its write-backs stay without a fence.
        let found = match (&self.other_thread, self.random.u32(0..4)) {
            (None, _) | (Some(_), 0 | 1) => run(),
            (Some(other), 2) => other.install(run),
            (Some(_), _) => std::thread::scope(|scope| scope.spawn(run).join())
                .map_err(|payload| ("in running".to_owned(), panic_text(payload.as_ref())))?,
        };
        machine.set_atime(novale_core::Atime::Noatime);
        if found == Outcome::Failed(Failure::Error(Error::NoSpace)) {
            // It changed nothing.
            check_no_space(machine, step, BYTES_ROOMY)
                .map_err(|why| ("in running".to_owned(), why))?;
        } else {
            let expected = run_step(&mut self.model, &mut self.model_session, step, now_ns);
            check_alike(step, &expected, &found).map_err(|what| ("in running".to_owned(), what))?;
        }
        if self.cuts {
            let now = machine.collected();
            let summary = &mut self.judge.summary;
            summary.collected_fast += now.fast_pages - collected.fast_pages;
            summary.collected_thorough += now.thorough_pages - collected.thorough_pages;
        }
        let events = self.recorder.take();
        self.note_places(&events);
        if events.is_empty() {
            if self.model.is_buffering() {
                // It may have written to the buffer alone.
                self.state = None;
            }
            return Ok(());
        }
        if !self.cuts {
            self.state = None;
            return self.let_happen(&events);
        }
        let in_model = |why| ("in the model".to_owned(), why);
        let after = visible_after_crash(&self.model).map_err(in_model)?;
        if let Some(before) = before.as_ref().filter(|before| before.changes_in_place()) {
            self.state =
                Some(visible_after_crash(&before.becoming(&self.model)).map_err(in_model)?);
        }
        match before.filter(|_| cut_off) {
            Some(before) => self.cut_off_operation(&events, &before, &after, now_ns),
            None => self.cut_between(&events, &after),
        }
    }

    fn reopen(&mut self, step: &Step, now_ns: i64) -> Result<(), Wrong> {
        if *step == Step::Remount {
            if let Live::Open(machine, _) = &self.live {
                machine.close().map_err(|why| ("in closing".to_owned(), why))?;
            }
            self.cut_each_fence("the closing", now_ns)?;
            self.model.sync_all();
        }
        self.live.give_up().map_err(|why| ("in dying".to_owned(), why))?;
        self.forget(None).map_err(|why| ("bench".to_owned(), why))?;
        self.machine_session.forget_all();
        self.model_session.forget_all();
        self.model.release_all();
        self.state = None;
        self.open(now_ns)?;
        if self.model.is_buffering() { self.take_found(now_ns) } else { Ok(()) }
    }

    /// What was buffered has gone with the process; what was found has been seen now.
    fn take_found(&mut self, now_ns: i64) -> Result<(), Wrong> {
        let allowed = Allowed { states: vec![self.state()?] };
        let Live::Open(machine, _) = &mut self.live else { return Ok(()) };
        let seen = look(machine, &allowed, now_ns).map_err(|why| ("in opening".to_owned(), why))?;
        // What is stored to a mapping is in the caches still.
        self.model.turn_out(&seen.tree, false);
        self.state = None;
        Ok(())
    }

    pub(super) fn note_places(&mut self, events: &[Event]) {
        self.judge.summary.new_places += self.judge.tracker.reach(places(events));
    }

    /// A thread has died, or all of them.
    pub(super) fn forget(&mut self, thread: Option<ThreadId>) -> Result<(), String> {
        let drained = self.hardware.forget(thread);
        self.judge.bench.update(&self.hardware, &drained)
    }

    /// Cuts at the points of an operation between two states, then after it, where only the second
    /// is allowed.
    fn cut_between(&mut self, events: &[Event], after: &State) -> Result<(), Wrong> {
        let before = self.state()?;
        self.state = Some(after.clone());
        let states = vec![before.named("before"), after.named("after")];
        self.cut_events(events, &Allowed { states }, "the operation")?;
        self.cut("behind the operation", &Allowed { states: vec![after.named("after")] })
    }

    /// Whether what has just run is cut off for good.
    fn cuts_off(&mut self) -> bool {
        let one_in = self.options.cut_off_one_in;
        one_in > 0 && self.random.u32(..).is_multiple_of(one_in) && self.cuts
    }

    /// What the recording says of the memory must be what is in it: no store went unseen.
    pub(super) fn check_recording(&self) -> Result<(), String> {
        let pm = match &self.live {
            Live::Open(machine, _) => machine.pm()?,
            Live::Closed(pm, _) => pm,
            Live::Gone => return Err(CLOSED.to_owned()),
        };
        match self.hardware.first_unrecorded(pm)? {
            Some(at) => Err(format!("{at} was stored unseen")),
            None => Ok(()),
        }
    }

    /// Cuts at the points of what changes nothing that a user sees.
    fn cut_each_fence(&mut self, during: &str, now_ns: i64) -> Result<(), Wrong> {
        let events = self.recorder.take();
        if !self.cuts {
            return self.let_happen(&events);
        }
        let allowed = Allowed { states: vec![self.state()?.named("unchanged")] };
        if self.cuts_off() && !events.is_empty() {
            return self.cut_off_life(&events, during, &allowed, now_ns);
        }
        self.cut_events(&events, &allowed, during)?;
        self.cut(&format!("after {during}"), &allowed)
    }

    /// The state after the last operation.
    pub(super) fn state(&mut self) -> Result<State, Wrong> {
        if let Some(state) = &self.state {
            return Ok(state.clone());
        }
        let state = visible_after_crash(&self.model).map_err(|why| ("in the model".into(), why))?;
        self.state = Some(state.clone());
        Ok(state)
    }

    /// Lets events happen to the memory, with no cut.
    pub(super) fn let_happen(&mut self, events: &[Event]) -> Result<(), Wrong> {
        self.judge.tracker.pass(events);
        for event in events {
            let changed = self.hardware.apply(event);
            let updated = self.judge.bench.update(&self.hardware, &changed);
            updated.map_err(|why| ("bench".to_owned(), why))?;
        }
        Ok(())
    }

    pub(super) fn cut_events(
        &mut self,
        events: &[Event],
        allowed: &Allowed,
        during: &str,
    ) -> Result<(), Wrong> {
        for event in events {
            let is_fence = matches!(event.what, What::Fence);
            let is_store = matches!(event.what, What::Store { .. });
            if is_fence {
                let place = format!("at the fence of {during} at {}", event.site);
                self.cut(&place, allowed)?;
            } else if is_store && self.options.caches == Caches::Kept {
                let images = images_in_store(&self.hardware, event, &mut self.random);
                let place = format!("in the store of {during} at {}", event.site);
                self.try_images(&images, &place, allowed)?;
            }
            self.let_happen(std::slice::from_ref(event))?;
            let effort = self.options.effort;
            if is_store && effort.at_stores && self.options.caches == Caches::Lost {
                let images = images_at_store(&self.hardware, event, effort, &mut self.random);
                let place = format!("behind the store of {during} at {}", event.site);
                self.try_images(&images, &place, allowed)?;
            }
        }
        Ok(())
    }

    /// Tries the images of this point.
    pub(super) fn cut(&mut self, place: &str, allowed: &Allowed) -> Result<(), Wrong> {
        let mut images = images(&self.hardware, self.options.effort, &mut self.random);
        if self.options.by_units {
            images.extend(images_by_units(&self.hardware));
        }
        self.try_images(&images, place, allowed)
    }

    fn try_images(
        &mut self,
        images: &[Image],
        place: &str,
        allowed: &Allowed,
    ) -> Result<(), Wrong> {
        self.judge.judge_all(&self.hardware, images, place, allowed)
    }
}

impl Live {
    /// Opens what is closed.
    pub(super) fn open(&mut self, options: &CrashOptions, now_ns: i64) -> Result<(), String> {
        let Self::Closed(pm, arena) = std::mem::replace(self, Self::Gone) else {
            return Err("it is open, or gone".to_owned());
        };
        let fs = open_pool_in(pm, arena.clone(), options.core.manner(), now_ns)?;
        *self = Self::Open(Box::new(CoreMachine::around(fs)), arena);
        Ok(())
    }

    /// The pool that is open.
    pub(super) fn machine(&mut self) -> Result<&mut CoreMachine, String> {
        if let Self::Open(machine, _) = self { Ok(machine) } else { Err(CLOSED.to_owned()) }
    }

    /// All but the memory is gone, as with the process.
    pub(super) fn give_up(&mut self) -> Result<(), String> {
        if let Self::Open(machine, arena) = std::mem::replace(self, Self::Gone) {
            drop(arena);
            let (pm, arena) = machine.into_parts()?;
            *self = Self::Closed(pm, arena);
        }
        Ok(())
    }
}

/// Pairs of sites that follow each other.
fn places(events: &[Event]) -> impl Iterator<Item = u64> + '_ {
    let site = |event: &Event| {
        let kind = u64::from(matches!(event.what, What::Store { .. }));
        let file = hash(event.site.file().as_bytes());
        file ^ (u64::from(event.site.line()) << 9 | u64::from(event.site.column()) << 1 | kind)
    };
    events.windows(2).filter_map(move |pair| match pair {
        [first, then] => Some(site(first).rotate_left(32) ^ site(then)),
        _ => None,
    })
}

/// Both sides must have done or refused it, or the two states are not comparable.
pub(crate) fn check_alike(step: &Step, expected: &Outcome, found: &Outcome) -> Result<(), String> {
    let failed = |outcome: &Outcome| matches!(outcome, Outcome::Failed(_));
    let broken = matches!(found, Outcome::Failed(Failure::Broken(_)));
    // The model does not tell data from holes.
    let seeks = matches!(step, Step::On { action: Action::Seek { .. }, .. });
    if broken || (failed(expected) != failed(found) && !seeks) {
        return Err(format!("model {expected:?}, found {found:?}"));
    }
    Ok(())
}

/// What is left of a model whose clients are all gone.
pub(crate) fn visible_after_crash(model: &Model) -> Result<State, String> {
    let mut model = model.clone();
    model.release_all();
    let tree = Tree::of(&model).map_err(|why| why.to_string())?;
    Ok(State::new("unchanged", tree, model.inode_count() as u64))
}

/// FNV-1a, 64 bits.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
