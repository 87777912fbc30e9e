//! A workload as it runs: what each operation did to the pool, and what a crash may show of it.

use std::sync::Arc;

use novale_core::{Executor, Form, Fs, Mode, OpenOptions, UpdatePolicy};
use novale_model::{Atime, Error, Model, RangeOp, RenameMode};
use novale_pm::{Observer, Pm, PmOptions};

use super::key::Keyed;
use super::trial::Stretch;
use super::workloads::Plan;
use crate::clients::{DeathOptions, Points, settle_once};
use crate::crash::{
    Allowed, BYTES_ROOMY, Event, Hardware, Recorder, What, check_alike, visible_after_crash,
};
use crate::diff::{
    CoreMachine, check_no_space, make_pool, new_arena, now_ns_at, open_pool, panic_text,
};
use crate::pool_file::PoolFile;
use crate::workload::{
    Action, Failure, Outcome, Session, Step, StepKind, parse_steps, run_step, sequence,
};

/// What an image may show: one of these states.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    pub(super) states: Allowed,
    pub(super) pool: Pool,
}

/// What the pool is meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pool {
    /// An older one is cleared away.
    Cleared,
    /// It is being made; before it is, there is none.
    Made,
    /// In use; a damaged copy of what it keeps twice may have to be rewritten.
    Used,
    /// As in use, and being closed: what it saves for the next opening is seen by a close look alone.
    Closing,
    /// In use, and whole.
    Whole,
    /// As whole, but a process died as it stored the superblock: until somebody writes it anew, a power
    /// cut may tear its first copy, or leave the two different, and recovery writes one from the other
    /// (DESIGN.md section 4, features). Of slot headers, which no process in use stores, nothing changes.
    SuperblockLeft,
    /// Closed: opening it needs no scan.
    Closed,
}

/// One operation.
#[derive(Debug, Clone)]
pub(super) struct Act {
    /// Its text.
    pub(super) name: String,
    pub(super) keyed: Keyed,
    /// The process that did what came before has died without a power cut.
    pub(super) behind_death: bool,
    /// What an image in the middle may show, and one after it.
    pub(super) during: Expected,
    pub(super) after: Expected,
    /// The model before and after it.
    pub(super) models: [Arc<Model>; 2],
    pub(super) now_ns: i64,
}

/// A file system that runs and is recorded.
pub(super) struct Recording<'p> {
    plan: &'p Plan,
    recorder: Arc<Recorder>,
    live: PoolFile,
    machine: Option<CoreMachine>,
    sessions: [Session; 2],
    model: Model,
    died: bool,
    turn: usize,
}

impl<'p> Recording<'p> {
    /// Makes the pool, over an older one of the same name; returns the memory before, and what making
    /// and opening did.
    pub(super) fn begin(plan: &'p Plan) -> Result<(Self, Hardware, Vec<Act>), String> {
        let memory = older_pool(&plan.core.slots)?;
        let mut this = Self::on(plan, &memory)?;
        let atime = if plan.strict_atime { Atime::Strict } else { Atime::Noatime };
        this.model = Model::new(0o755, 0, 0, now_ns_at(0), atime)
            .buffering(plan.core.mode == Mode::Buffered)
            .overwriting_in_place(plan.core.update == UpdatePolicy::InPlace);
        this.died = false;
        make_pool(&this.open_pm()?, plan.core.lanes)?;
        let mut made = this.act("mkfs", "mkfs".into(), &this.model.clone(), now_ns_at(0))?;
        made.during.pool = Pool::Made;
        // What was there before goes with the first fence, whatever it was.
        let is_fence = |event: &Event| matches!(event.what, What::Fence);
        let first = made.keyed.events.iter().position(is_fence).map_or(0, |index| index + 1);
        let mut cleared = made.clone();
        let behind = cleared.keyed.events.split_off(first);
        cleared.keyed = Keyed::new(cleared.keyed.events, "mkfs", form_name(plan.core.form));
        made.keyed = Keyed::new(behind, "mkfs", form_name(plan.core.form));
        cleared.during.pool = Pool::Cleared;
        cleared.after = made.during.clone();
        let opened = this.open(now_ns_at(0))?;
        Ok((this, Hardware::with(memory), vec![cleared, made, opened]))
    }

    /// A recording that goes on from what a crash left: `memory` is what the process sees.
    pub(super) fn on(plan: &'p Plan, memory: &[Vec<u8>]) -> Result<Self, String> {
        let live = PoolFile::zeroed(&plan.core.slots).map_err(|why| why.to_string())?;
        for (slot, bytes) in (0..).zip(memory) {
            live.put(slot, 0, bytes).map_err(|why| why.to_string())?;
        }
        Ok(Self {
            plan,
            recorder: Arc::new(Recorder::default()),
            live,
            machine: None,
            sessions: [Session::default(), Session::default()],
            model: Model::new(0o755, 0, 0, 0, Atime::Noatime),
            died: true,
            turn: 0,
        })
    }

    fn open_pm(&self) -> Result<Pm, String> {
        let observer = Some(self.recorder.clone() as Arc<dyn Observer>);
        self.live.open(&PmOptions { observer, ..PmOptions::default() })
    }

    fn open_fs(&self, now_ns: i64) -> Result<Fs, String> {
        let strict = self.plan.strict_atime;
        let atime = if strict { novale_core::Atime::Strict } else { novale_core::Atime::Noatime };
        let options = OpenOptions { atime, ..self.plan.core.manner().options(now_ns) };
        Fs::open(self.open_pm()?, new_arena()?, &options, &Threads, &|_| ())
            .map_err(|why| format!("open: {why}"))
    }

    /// Opens it, and finds out by `choose` which model it shows.
    pub(super) fn recover(
        &mut self,
        during: &'static str,
        now_ns: i64,
        choose: impl FnOnce(&mut CoreMachine) -> Result<Model, String>,
    ) -> Result<Act, String> {
        let mut machine = CoreMachine::around(self.open_fs(now_ns)?);
        let events = self.recorder.take();
        self.model = choose(&mut machine)?;
        self.machine = Some(machine);
        let before = self.model.clone();
        let mut act = self.act(during, during.into(), &before, now_ns)?;
        act.keyed = Keyed::new(events, during, form_name(self.plan.core.form));
        Ok(act)
    }

    fn open(&mut self, now_ns: i64) -> Result<Act, String> {
        let during = if self.died { BEHIND_DEATH } else { "opening" };
        self.machine = Some(CoreMachine::around(self.open_fs(now_ns)?));
        let before = self.model.clone();
        self.act(during, during.into(), &before, now_ns)
    }

    /// Closes the pool.
    pub(super) fn close(&mut self, now_ns: i64) -> Result<Act, String> {
        if let Some(machine) = self.machine.take() {
            machine.close()?;
        }
        let before = self.model.clone();
        let mut closed = self.act("closing", "close".into(), &before, now_ns)?;
        closed.during.pool = Pool::Closing;
        closed.after.pool = Pool::Closed;
        Ok(closed)
    }

    /// Runs a step; returns what it did.
    pub(super) fn step(&mut self, step: &Step, now_ns: i64) -> Result<Vec<Act>, String> {
        match step.kind() {
            StepKind::Compares => Ok(Vec::new()),
            StepKind::Remounts => {
                let closed = self.close(now_ns)?;
                self.forget();
                Ok(vec![closed, self.open(now_ns)?])
            }
            StepKind::Dies => {
                drop(self.machine.take());
                self.forget();
                self.died = true;
                Ok(vec![self.open(now_ns)?])
            }
            StepKind::Operates => self.operate(step, now_ns),
        }
    }

    /// Runs a step of which no mutant is made; it goes on at once.
    pub(super) fn set_up(
        &mut self,
        step: &Step,
        now_ns: i64,
        hardware: &mut Hardware,
    ) -> Result<(), String> {
        self.run(step, now_ns)?;
        for event in self.recorder.take() {
            hardware.apply(&event);
        }
        Ok(())
    }

    fn operate(&mut self, step: &Step, now_ns: i64) -> Result<Vec<Act>, String> {
        let before = self.model.clone();
        self.run(step, now_ns)?;
        let act = self.act(kind_of(step), step.to_string(), &before, now_ns)?;
        Ok(if act.keyed.events.is_empty() { Vec::new() } else { vec![act] })
    }

    fn run(&mut self, step: &Step, now_ns: i64) -> Result<(), String> {
        self.turn += 1;
        let own_thread = self.plan.many_threads && !self.turn.is_multiple_of(3);
        let Some(machine) = &mut self.machine else { return Err("it is not open".into()) };
        let [of_machine, of_model] = &mut self.sessions;
        let mut run = || run_step(machine, of_machine, step, now_ns);
        let found = if own_thread {
            std::thread::scope(|scope| scope.spawn(run).join())
                .map_err(|payload| panic_text(payload.as_ref()))?
        } else {
            run()
        };
        if found == Outcome::Failed(Failure::Error(Error::NoSpace)) {
            return check_no_space(machine, step, BYTES_ROOMY)
                .map_err(|why| format!("{step}: {why}"));
        }
        let expected = run_step(&mut self.model, of_model, step, now_ns);
        check_alike(step, &expected, &found).map_err(|why| format!("{step}: {why}"))
    }

    fn forget(&mut self) {
        self.sessions.iter_mut().for_each(Session::forget_all);
        self.model.release_all();
    }

    fn act(
        &mut self,
        during: &'static str,
        name: String,
        before: &Model,
        now_ns: i64,
    ) -> Result<Act, String> {
        // What is mapped changes in place.
        let first = visible_after_crash(&before.becoming(&self.model))?;
        let then = visible_after_crash(&self.model)?.named("after");
        let form = if during == UNNAMED { Form::Single } else { self.plan.core.form };
        let (both, after) = (vec![first.named("before"), then.clone()], vec![then]);
        Ok(Act {
            name,
            keyed: Keyed::new(self.recorder.take(), during, form_name(form)),
            behind_death: std::mem::take(&mut self.died),
            during: Expected { states: Allowed { states: both }, pool: Pool::Used },
            after: Expected { states: Allowed { states: after }, pool: Pool::Whole },
            models: [Arc::new(before.clone()), Arc::new(self.model.clone())],
            now_ns,
        })
    }
}

/// A client's death at a point of `victim`: the memory then, and what a survivor did; `None` where there
/// is no such point.
pub(super) fn settled(
    plan: &Plan,
    victim: &str,
    (points, point): (Points, u64),
) -> Result<Option<(Stretch, Vec<Act>)>, String> {
    let victim = parse_steps(victim)?.pop().ok_or("no victim")?;
    let core = plan.core.clone();
    let options = DeathOptions { core, points, stride: 1, first: 0, power: false, seed: 1 };
    let Some(settled) = settle_once(&plan.setup, (&victim, point), &plan.steps, &options)? else {
        return Ok(None);
    };
    let mut before: Option<Arc<Model>> = None;
    let mut acts = Vec::new();
    for act in settled.acts {
        let during = if before.is_none() { "settling" } else { kind_of(&act.step) };
        let expected = |states, pool| Expected { states: Allowed { states }, pool };
        let model = Arc::new(act.model);
        let first = before.replace(model.clone()).unwrap_or_else(|| model.clone());
        acts.push(Act {
            name: format!("{during}, {}", act.step),
            keyed: Keyed::new(act.events, during, form_name(plan.core.form)),
            behind_death: false,
            during: expected(act.during, Pool::Used),
            after: expected(vec![act.after], Pool::Whole),
            models: [first, model],
            now_ns: now_ns_at(plan.setup.len() + 1),
        });
    }
    Ok(Some((Stretch::new(settled.before, plan.core.form)?, acts)))
}

/// The kinds of recovery: what a dead process stored is in the caches still, and may become durable; a
/// power cut leaves nothing to be written back.
pub(super) const BEHIND_DEATH: &str = "recovery behind a death";
pub(super) const BEHIND_CUT: &str = "recovery behind a power cut";
/// Creating a file without a name, which takes one fence in either form.
const UNNAMED: &str = "create unnamed";
/// A repair finds what a power cut left, and damage.
pub(super) const BEHIND_REPAIR: &str = "repair behind a power cut";

/// Each task on a thread of its own, one after the other: a fence completes its own thread's
/// write-backs only.
struct Threads;

impl Executor for Threads {
    fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        for index in 0..tasks {
            std::thread::scope(|scope| {
                scope.spawn(|| task(index));
            });
        }
    }
}

pub(super) fn form_name(form: Form) -> &'static str {
    match form {
        Form::Auto => "form that fits",
        Form::Single => "single-fence form",
        Form::Two => "two-fence form",
    }
}

/// What the slots held before: a pool of the same name with something in it, never closed, and rubbish
/// wherever it had zeros.
fn older_pool(slots: &[u64]) -> Result<Vec<Vec<u8>>, String> {
    let live = PoolFile::zeroed(slots).map_err(|why| why.to_string())?;
    make_pool(&live.open(&PmOptions::default())?, 3)?;
    let pm = live.open(&PmOptions::default())?;
    let mut machine = CoreMachine::around(open_pool(pm, Form::Auto, now_ns_at(0))?);
    let mut session = Session::default();
    for step in parse_steps(sequence("older"))? {
        run_step(&mut machine, &mut session, &step, now_ns_at(0));
    }
    let mut memory = Vec::new();
    for slot in (0..).take(slots.len()) {
        let mut bytes = live.contents(slot).map_err(|why| why.to_string())?;
        let blank = bytes.chunks_mut(4096).filter(|page| page.iter().all(|byte| *byte == 0));
        blank.for_each(|page| page.fill(0x5a));
        memory.push(bytes);
    }
    Ok(memory)
}

/// The kind of operation that a step is.
#[allow(clippy::wildcard_enum_match_arm, reason = "all others look")]
fn kind_of(step: &Step) -> &'static str {
    match step {
        Step::Create { .. } => "create",
        Step::Link { .. } => "link",
        Step::Unlink(_) => "unlink",
        Step::Rmdir(_) => "rmdir",
        Step::Rename { mode: RenameMode::Exchange, .. } => "exchange",
        Step::Rename { .. } => "rename",
        Step::Unnamed { .. } => UNNAMED,
        Step::Hold { .. } => "hold",
        Step::Map { .. } => "map",
        Step::Release(_) => "release",
        Step::Compare | Step::Remount | Step::Die => "opening",
        Step::Copy { .. } => "copy",
        Step::On { action, .. } => match action {
            Action::Write { .. } => "write",
            Action::Append { .. } => "append",
            Action::Store { .. } => "store",
            Action::Flush { .. } => "flush",
            Action::Scatter { .. } => "publish",
            Action::Allocate { .. } => "allocate",
            Action::Range { how: RangeOp::Punch, .. } => "punch",
            Action::Range { how: RangeOp::Zero | RangeOp::ZeroKeepSize, .. } => "zero",
            Action::Range { how: RangeOp::Collapse | RangeOp::Insert, .. } => "shift",
            Action::Set(set) if set.size.is_some() => "truncate",
            Action::Set(_) => "attributes",
            Action::SetXattr { .. } | Action::RemoveXattr(_) => "xattr",
            Action::Limit { .. } => "limit",
            Action::Leave { .. } => "leave",
            _ => "look",
        },
    }
}
