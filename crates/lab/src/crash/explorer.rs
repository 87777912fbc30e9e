//! A run with its memory: each event is let happen to the hardware's model as well, and at each fence
//! the images that a cut could leave are tried.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use novale_core::Fs;
use novale_model::{Atime, Error, Model, Tree};
use novale_pm::{Observer, PmOptions};

use super::explore::{CrashOptions, CrashSummary};
use super::hardware::Hardware;
use super::images::{Choice, Effort, images};
use super::record::{Event, Recorder, What};
use super::recover::{Allowed, Bench, Depth};
use crate::diff::{CoreMachine, make_pool, now_ns_at, open_pool, panic_text};
use crate::pool_file::PoolFile;
use crate::workload::{Action, Failure, Outcome, Session, Step, run_step};

/// A run that is being cut.
pub(super) struct Explorer<'o> {
    pub(super) options: &'o CrashOptions,
    pub(super) recorder: Arc<Recorder>,
    pub(super) live: PoolFile,
    /// `None` only while it is being opened again.
    pub(super) machine: Option<CoreMachine>,
    pub(super) machine_session: Session,
    pub(super) model: Model,
    pub(super) model_session: Session,
    /// The state behind the last operation, as a crash shows it.
    pub(super) state: (Arc<Tree>, u64),
    pub(super) hardware: Hardware,
    pub(super) bench: Bench,
    pub(super) random: Rng,
    /// Whether the power is cut at all.
    pub(super) cuts: bool,
    pub(super) summary: CrashSummary,
}

/// Where the power was cut and what was wrong then.
pub(super) type Wrong = (String, String);

impl<'o> Explorer<'o> {
    /// Makes a pool and opens it, with cuts on the way.
    pub(super) fn new(options: &'o CrashOptions) -> Result<Self, String> {
        let recorder = Arc::new(Recorder::default());
        let live = PoolFile::zeroed(&options.core.slots).map_err(|why| why.to_string())?;
        make_pool(&open_recorded(&live, &recorder)?, options.core.lanes)?;
        let mut hardware = Hardware::zeroed(&options.core.slots);
        for event in recorder.take() {
            hardware.apply(&event);
        }
        if !hardware.pending().is_empty() {
            return Err(format!("mkfs left {} lines not durable", hardware.pending().len()));
        }
        let model = Model::new(0o755, 0, 0, now_ns_at(0), Atime::Noatime);
        let mut explorer = Self {
            bench: Bench::new(&hardware, options.core.form, now_ns_at(1 << 20))?,
            state: visible_after_crash(&model)?,
            options,
            recorder,
            live,
            machine: None,
            machine_session: Session::default(),
            model,
            model_session: Session::default(),
            hardware,
            random: Rng::with_seed(options.seed),
            cuts: options.from_step == 0,
            summary: CrashSummary::default(),
        };
        explorer.open(now_ns_at(0)).map_err(|(cut, what)| format!("{cut}: {what}"))?;
        Ok(explorer)
    }

    /// Opens the live pool, with cuts on the way.
    fn open(&mut self, now_ns: i64) -> Result<(), Wrong> {
        let opened = open_recorded(&self.live, &self.recorder)
            .and_then(|pm| open_pool(pm, self.options.core.form, now_ns));
        let fs: Fs = opened.map_err(|why| ("in opening".to_owned(), why))?;
        self.machine = Some(CoreMachine::around(fs));
        self.cut_each_fence("opening")
    }

    /// What was seen so far.
    pub(super) fn summary(&self) -> CrashSummary {
        self.summary
    }

    /// Runs a step, cutting the power at its fences if `cuts` says so.
    pub(super) fn step(&mut self, step: &Step, cuts: bool, now_ns: i64) -> Result<(), Wrong> {
        self.summary.steps += 1;
        self.cuts = cuts;
        // What is drawn for a step does not depend on the steps before, so that these can be left
        // out of a failing sequence.
        self.random = Rng::with_seed(self.options.seed ^ hash(&step.to_string()));
        match step {
            Step::Compare => Ok(()),
            Step::Remount | Step::Die => self.reopen(step, now_ns),
            Step::Create { .. }
            | Step::Link { .. }
            | Step::Unlink(_)
            | Step::Rmdir(_)
            | Step::Rename { .. }
            | Step::On { .. }
            | Step::Hold { .. }
            | Step::Release(_) => self.operate(step, now_ns),
        }
    }

    fn operate(&mut self, step: &Step, now_ns: i64) -> Result<(), Wrong> {
        let own_thread = self.options.many_threads && self.random.bool();
        let cut_off =
            self.cuts && self.random.u32(..).is_multiple_of(self.options.cut_off_one_in.max(1));
        let before = (self.options.cut_off_one_in > 0 && cut_off).then(|| self.model.clone());
        let Some(machine) = &mut self.machine else { return Ok(()) };
        let session = &mut self.machine_session;
        let mut run = || run_step(machine, session, step, now_ns);
        let found = if own_thread {
            std::thread::scope(|scope| scope.spawn(run).join())
                .map_err(|payload| ("in running".to_owned(), panic_text(payload.as_ref())))?
        } else {
            run()
        };
        // What was refused for lack of space changed nothing.
        if found != Outcome::Failed(Failure::Error(Error::NoSpace)) {
            let expected = run_step(&mut self.model, &mut self.model_session, step, now_ns);
            check_alike(step, &expected, &found).map_err(|what| ("in running".to_owned(), what))?;
        }
        let after = visible_after_crash(&self.model).map_err(|why| ("in the model".into(), why))?;
        match before {
            Some(before) => self.cut_off(before, after, now_ns),
            None => self.cut_between(after),
        }
    }

    fn reopen(&mut self, step: &Step, now_ns: i64) -> Result<(), Wrong> {
        let machine = self.machine.take();
        if *step == Step::Remount {
            let closed = machine.as_ref().map(CoreMachine::close);
            closed.transpose().map_err(|why| ("in closing".to_owned(), why))?;
            self.cut_each_fence("closing")?;
        }
        drop(machine);
        self.hardware.forget_threads();
        self.machine_session.forget_all();
        self.model_session.forget_all();
        self.model.release_all();
        self.open(now_ns)
    }

    /// Cuts at the fences of an operation between two states, then behind it, where only the
    /// second is allowed.
    fn cut_between(&mut self, after: (Arc<Tree>, u64)) -> Result<(), Wrong> {
        let before = std::mem::replace(&mut self.state, after.clone());
        let states = vec![("before", before.0, before.1), ("after", after.0.clone(), after.1)];
        let events = self.recorder.take();
        if events.is_empty() {
            return Ok(());
        }
        self.cut_events(&events, &Allowed { states }, "the operation")?;
        self.check_recording().map_err(|why| ("behind the operation".to_owned(), why))?;
        let allowed = Allowed { states: vec![("after", after.0, after.1)] };
        self.cut("behind the operation", &allowed)
    }

    /// What the recording says of the memory must be what is in it: no store went unseen.
    pub(super) fn check_recording(&self) -> Result<(), String> {
        for slot in (0..).take(self.options.core.slots.len()) {
            let memory = self.live.contents(slot).map_err(|why| why.to_string())?;
            if let Some(byte) = self.hardware.first_unrecorded(slot, &memory) {
                return Err(format!("slot {slot} byte {byte:#x} was stored unseen"));
            }
        }
        Ok(())
    }

    /// Cuts at the fences of what changes nothing that a user sees.
    fn cut_each_fence(&mut self, during: &str) -> Result<(), Wrong> {
        let events = self.recorder.take();
        let allowed = self.unchanged();
        self.cut_events(&events, &allowed, during)?;
        self.cut(&format!("behind {during}"), &allowed)
    }

    fn unchanged(&self) -> Allowed {
        Allowed { states: vec![("unchanged", self.state.0.clone(), self.state.1)] }
    }

    pub(super) fn cut_events(
        &mut self,
        events: &[Event],
        allowed: &Allowed,
        during: &str,
    ) -> Result<(), Wrong> {
        for event in events {
            if matches!(event.what, What::Fence) {
                let site = event.site;
                self.cut(&format!("at the fence of {during} at {site}"), allowed)?;
            }
            let changed = self.hardware.apply(event);
            self.bench.update(&self.hardware, &changed).map_err(|why| ("bench".to_owned(), why))?;
        }
        Ok(())
    }

    /// Tries the images of this point.
    pub(super) fn cut(&mut self, place: &str, allowed: &Allowed) -> Result<(), Wrong> {
        if !self.cuts {
            return Ok(());
        }
        self.summary.points += 1;
        for image in images(&self.hardware, self.options.effort, &mut self.random) {
            self.summary.images += 1;
            let used = self.random.u64(0..self.options.used_one_in) == 0;
            let depth = if used { Depth::Used } else { Depth::Once };
            let wrong = |what| (describe(place, &image.choice, &self.hardware), what);
            let recovery =
                self.bench.judge(&self.hardware, &image, allowed, depth).map_err(wrong)?;
            if self.random.u64(0..self.options.nested_one_in) == 0 {
                let count =
                    cut_recovery(&self.hardware, &image.lines, &recovery, allowed, self.options);
                self.summary.images += count.map_err(wrong)?;
            }
        }
        Ok(())
    }
}

/// Cuts a recovery at each of its fences; returns the number of images tried.
fn cut_recovery(
    hardware: &Hardware,
    lines: &BTreeMap<super::hardware::LineKey, super::hardware::LineBytes>,
    recovery: &[Event],
    allowed: &Allowed,
    options: &CrashOptions,
) -> Result<u64, String> {
    let mut hardware = Hardware::with(hardware.durable().to_vec());
    hardware.set_durable(lines);
    let bench = Bench::new(&hardware, options.core.form, now_ns_at(1 << 21))?;
    let effort = Effort { subset_lines_max: 2, data_lines_max: 1, random: 2 };
    let mut random = Rng::with_seed(options.seed);
    let mut count = 0;
    for event in recovery {
        if matches!(event.what, What::Fence) {
            for image in images(&hardware, effort, &mut random) {
                count += 1;
                bench.judge(&hardware, &image, allowed, Depth::Once).map_err(|why| {
                    let place = format!("then cut again in recovery at {}", event.site);
                    format!("{}:\n{why}", describe(&place, &image.choice, &hardware))
                })?;
            }
        }
        let changed = hardware.apply(event);
        bench.update(&hardware, &changed)?;
    }
    Ok(count)
}

/// Both sides must have done or refused it, or the two states are not comparable.
fn check_alike(step: &Step, expected: &Outcome, found: &Outcome) -> Result<(), String> {
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
pub(super) fn visible_after_crash(model: &Model) -> Result<(Arc<Tree>, u64), String> {
    let mut model = model.clone();
    model.release_all();
    let tree = Tree::of(&model).map_err(|why| why.to_string())?;
    Ok((Arc::new(tree), model.inode_count() as u64))
}

pub(super) fn open_recorded(
    pool: &PoolFile,
    recorder: &Arc<Recorder>,
) -> Result<novale_pm::Pm, String> {
    let observer = Some(recorder.clone() as Arc<dyn Observer>);
    pool.open(&PmOptions { observer, ..PmOptions::default() })
}

/// Where the power was cut and what was pending there.
pub(super) fn describe(place: &str, choice: &Choice, hardware: &Hardware) -> String {
    const LINES_SHOWN: usize = 12;
    let shown = hardware.pending().iter().take(LINES_SHOWN).filter_map(|(key, stores)| {
        let store = stores.first()?;
        let kind = if store.ordered { "ordered" } else { "bulk" };
        let (slot, byte, count, site) = (key.slot, key.line * 64, stores.len(), store.site);
        Some(format!("{slot}:{byte:#x} {count} {kind} of {:?} at {site}", store.purpose))
    });
    let more = hardware.pending().len().saturating_sub(LINES_SHOWN);
    let more = (more > 0).then(|| format!("and {more} lines more"));
    let lines: Vec<String> = shown.chain(more).collect();
    format!("power cut {place}, keeping {choice}; pending:\n  {}", lines.join("\n  "))
}

/// FNV-1a, 64 bits.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
