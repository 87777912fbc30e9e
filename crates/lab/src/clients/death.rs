//! A client that dies at each store, write-back and fence of one operation, and another one that
//! settles for it; then the power may fail at each fence of the settling.
//!
//! The dying client is a thread that stops for ever in the middle of its operation, attached in the
//! name of a process that has ended: all that it held stays as it was, as after a SIGKILL.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use fastrand::Rng;
use novale_arena::{Arena, PidInfo};
use novale_core::{Atime, Form, Fs, OpenOptions, Serial};
use novale_layout::PmAddr;
use novale_model::{Model, Tree};
use novale_pm::{Observer, PmOptions, Purpose, StoreEvent};
use std::panic::Location;

use crate::crash::{Allowed, Bench, Depth, Effort, Hardware, Recorder, State, What, images, probe};
use crate::diff::{CoreMachine, CoreOptions, Machine, OnFs, check_pool, make_pool, now_ns_at};
use crate::diff::{check_opened, open_pool, snapshot};
use crate::pool_file::PoolFile;
use crate::workload::{Outcome, Session, Step, run_step};

/// Bytes that the view may take.
const ARENA_BYTES: u64 = 64 << 20;
/// Points in one operation at most.
const POINTS_MAX: u64 = 10_000;

/// What to try.
#[derive(Debug, Clone)]
pub struct DeathOptions {
    /// The pool.
    pub core: CoreOptions,
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
    /// Images of power failures while a survivor settled, or behind it.
    pub images: u64,
    /// Deaths whose operation was found done.
    pub done: u64,
    /// Pages that the allocator lost track of until the pool was opened again, over all deaths.
    pub pages_lost: u64,
}

impl std::ops::AddAssign for DeathSummary {
    fn add_assign(&mut self, other: Self) {
        self.deaths += other.deaths;
        self.images += other.images;
        self.done += other.done;
        self.pages_lost += other.pages_lost;
    }
}

/// Lets a client die at each event of `victim`, one after the other, behind `setup`.
///
/// # Errors
/// The point of the first death that was not settled rightly, and what was wrong.
pub fn die_everywhere(
    setup: &[Step],
    victim: &Step,
    options: &DeathOptions,
) -> Result<DeathSummary, String> {
    let mut summary = DeathSummary::default();
    for point in 0..POINTS_MAX {
        let death = Death::new(setup, options)?;
        match death.run(victim, point, options) {
            Ok(Some(found)) => summary += found,
            Ok(None) => return Ok(summary),
            Err(why) => return Err(format!("{victim}: death before event {point}: {why}")),
        }
    }
    Err(format!("{victim}: more than {POINTS_MAX} events"))
}

/// Stops the thread that causes the `stop_at`th event, for ever.
struct Parker {
    recorder: Arc<Recorder>,
    count: AtomicU64,
    stop_at: u64,
    stopped: Mutex<Sender<bool>>,
}

impl Parker {
    fn event(&self) {
        if self.count.fetch_add(1, Ordering::Relaxed) == self.stop_at {
            let _told = self.stopped.lock().unwrap_or_else(PoisonError::into_inner).send(true);
            loop {
                std::thread::park();
            }
        }
    }
}

impl Observer for Parker {
    fn store(&self, event: StoreEvent<'_>) {
        self.event();
        self.recorder.store(event);
    }

    fn write_back(&self, addr: PmAddr, len: u64, what: Purpose, site: &'static Location<'static>) {
        self.event();
        self.recorder.write_back(addr, len, what, site);
    }

    fn fence(&self, site: &'static Location<'static>) {
        self.event();
        self.recorder.fence(site);
    }
}

/// What a user may see.
pub(super) struct Shown {
    pub(super) name: &'static str,
    tree: Tree,
    inodes: u64,
}

impl Shown {
    pub(super) fn state(&self) -> State {
        State::new(self.name, self.tree.clone(), self.inodes)
    }
}

/// A pool with one client in good health.
pub(super) struct Death {
    pool: PoolFile,
    arena: Arena,
    pub(super) recorder: Arc<Recorder>,
    pub(super) hardware: Hardware,
    pub(super) machine: CoreMachine,
    pub(super) model: Model,
    model_session: Session,
    form: Form,
    steps: usize,
}

impl Death {
    pub(super) fn new(setup: &[Step], options: &DeathOptions) -> Result<Self, String> {
        let recorder = Arc::new(Recorder::default());
        let pool = PoolFile::zeroed(&options.core.slots).map_err(|why| why.to_string())?;
        let observer = || Some(recorder.clone() as Arc<dyn Observer>);
        let open = || pool.open(&PmOptions { observer: observer(), ..PmOptions::default() });
        make_pool(&open()?, options.core.lanes)?;
        let arena = Arena::anonymous(ARENA_BYTES).map_err(|why| why.to_string())?;
        let form = options.core.form;
        let fs = Fs::open(open()?, arena.clone(), &open_options(form), &Serial, &|_| ())
            .map_err(|why| why.to_string())?;
        let mut this = Self {
            hardware: Hardware::zeroed(&options.core.slots),
            machine: CoreMachine::around(fs),
            model: Model::new(0o755, 0, 0, now_ns_at(0), novale_model::Atime::Noatime),
            model_session: Session::default(),
            steps: setup.len(),
            pool,
            arena,
            recorder,
            form,
        };
        let mut session = Session::default();
        for (index, step) in setup.iter().enumerate() {
            let now_ns = now_ns_at(index + 1);
            let found = run_step(&mut this.machine, &mut session, step, now_ns);
            let expected = run_step(&mut this.model, &mut this.model_session, step, now_ns);
            if matches!(found, Outcome::Failed(_)) || matches!(expected, Outcome::Failed(_)) {
                return Err(format!("setup {step}: {found:?}, model {expected:?}"));
            }
        }
        this.recorded();
        Ok(this)
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
        point: u64,
        options: &DeathOptions,
    ) -> Result<Option<DeathSummary>, String> {
        let now_ns = now_ns_at(self.steps + 1);
        let stopped = self.start(victim, point, now_ns)?;
        if !stopped.recv().map_err(|why| why.to_string())? {
            return Ok(None);
        }
        let mut summary = DeathSummary { deaths: 1, ..DeathSummary::default() };
        let allowed = self.allowed(victim, now_ns)?;
        self.recorded();
        self.hardware.forget_threads();
        let shown = self.look(&allowed).map_err(|why| format!("before settling: {why}"))?;
        self.settle(&allowed, options, &mut summary)?;
        let found = self.look(&allowed).map_err(|why| format!("settled: {why}"))?;
        if shown == "after" && found == "before" {
            return Err("a reader saw what was taken back".to_owned());
        }
        summary.done = u64::from(found == "after");
        self.use_all(&mut summary)?;
        Ok(Some(summary))
    }

    /// Starts the operation of the client that is to die; the receiver tells whether it stopped or
    /// came to its end.
    pub(super) fn start(
        &self,
        victim: &Step,
        point: u64,
        now_ns: i64,
    ) -> Result<Receiver<bool>, String> {
        let (sender, receiver) = channel();
        let parker = Parker {
            recorder: self.recorder.clone(),
            count: AtomicU64::new(0),
            stop_at: point,
            stopped: Mutex::new(sender.clone()),
        };
        let options = PmOptions { observer: Some(Arc::new(parker)), ..PmOptions::default() };
        let pm = self.pool.open(&options)?;
        let fs = Fs::attach(pm, &self.arena, &open_options(self.form), ended_process()?)
            .map_err(|why| format!("attach: {why}"))?;
        let victim = victim.clone();
        std::thread::Builder::new()
            .stack_size(512 << 10)
            .spawn(move || {
                let mut machine = CoreMachine::around(fs);
                let outcome = run_step(&mut machine, &mut Session::default(), &victim, now_ns);
                if matches!(outcome, Outcome::Failed(_)) {
                    // Nobody waits any more for a receiver that fails.
                    drop(sender);
                    return;
                }
                let _told = sender.send(false);
            })
            .map_err(|why| why.to_string())?;
        Ok(receiver)
    }

    pub(super) fn allowed(&mut self, victim: &Step, now_ns: i64) -> Result<Vec<Shown>, String> {
        let shown = |name, model: &Model| -> Result<Shown, String> {
            let tree = Tree::of(model).map_err(|why| why.to_string())?;
            Ok(Shown { name, tree, inodes: model.inode_count() as u64 })
        };
        let before = shown("before", &self.model)?;
        let outcome = run_step(&mut self.model, &mut self.model_session, victim, now_ns);
        if matches!(outcome, Outcome::Failed(_)) {
            return Err(format!("the model refuses it: {outcome:?}"));
        }
        Ok(vec![before, shown("after", &self.model)?])
    }

    /// Which state the survivor sees.
    pub(super) fn look(&mut self, allowed: &[Shown]) -> Result<&'static str, String> {
        let found = snapshot(&mut self.machine, now_ns_at(self.steps + 2))?;
        if let Some(same) = allowed.iter().find(|shown| shown.tree == found) {
            return Ok(same.name);
        }
        let difference = |shown: &Shown| {
            format!("not {}:\n{}", shown.name, shown.tree.difference(&found, (shown.name, "found")))
        };
        Err(allowed.iter().map(difference).collect::<Vec<_>>().join("\n"))
    }

    /// Settles, with the power failing at each fence of it if asked for.
    fn settle(
        &mut self,
        allowed: &[Shown],
        options: &DeathOptions,
        summary: &mut DeathSummary,
    ) -> Result<(), String> {
        let fs = self.machine.fs().map_err(|why| format!("{why:?}"))?;
        let settled = fs.settle_dead().map_err(|why| format!("settling: {why}"))?;
        if settled != 1 {
            return Err(format!("{settled} clients were settled for"));
        }
        if !options.power {
            self.recorded();
            return Ok(());
        }
        let events = self.recorder.take();
        let both = Allowed { states: allowed.iter().map(Shown::state).collect() };
        let mut bench = Bench::new(&self.hardware, self.form, now_ns_at(1 << 20))?;
        let mut random = Rng::with_seed(options.seed);
        for event in &events {
            if matches!(event.what, What::Fence) {
                let place = format!("power failure in settling, at {}", event.site);
                self.cut(&mut bench, &both, &mut random, summary)
                    .map_err(|why| format!("{place}: {why}"))?;
            }
            let changed = self.hardware.apply(event);
            bench.update(&self.hardware, &changed)?;
        }
        let found = self.look(allowed)?;
        let found = allowed.iter().filter(|shown| shown.name == found);
        let states = found.map(Shown::state).collect();
        self.cut(&mut bench, &Allowed { states }, &mut random, summary)
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
    fn use_all(mut self, summary: &mut DeathSummary) -> Result<(), String> {
        let now_ns = now_ns_at(self.steps + 3);
        probe(&mut self.machine, now_ns).map_err(|why| format!("in use afterwards: {why}"))?;
        let free = self.machine.bytes_available().unwrap_or(0);
        self.machine.close()?;
        let pm = self.pool.open(&PmOptions::default())?;
        check_pool(&pm).map_err(|why| format!("closed: {why}"))?;
        let fs = open_pool(pm, self.form, now_ns)?;
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

fn open_options(form: Form) -> OpenOptions {
    // In one form a client dies while it drops views, too.
    let index_bytes = (form == Form::Single).then_some(0);
    let now_ns = now_ns_at(0);
    OpenOptions { atime: Atime::Noatime, form, now_ns, index_bytes, ..OpenOptions::default() }
}

/// A process that has ended.
fn ended_process() -> Result<PidInfo, String> {
    let quiet = Stdio::null;
    let mut child = Command::new("true")
        .stdin(quiet())
        .stdout(quiet())
        .spawn()
        .map_err(|why| format!("true: {why}"))?;
    let process = PidInfo { pid: child.id(), start_time: u64::MAX };
    child.wait().map_err(|why| why.to_string())?;
    Ok(process)
}
