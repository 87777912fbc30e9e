//! Allocations and reads that are refused: each allocation that an operation makes, of memory or of
//! pages, alone or with all that follow, and each read of the pool. The operation must be done, or
//! refused with nothing changed and nothing stored that no fence has completed; and what comes after it
//! finds a file system in order, with every page.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use novale_core::{Atime, Fs, OpenOptions, Serial};
use novale_layout::PmAddr;
use novale_model::{Error, Model, Tree};
use novale_pm::{Observer, PmOptions, Purpose, StoreEvent};

use crate::crash::probe;
use crate::diff::{
    CoreMachine, CoreOptions, Machine, check_opened, check_pool, make_pool, new_arena, now_ns_at,
    open_pool, snapshot,
};
use crate::pool_file::PoolFile;
use crate::workload::{Failure, Outcome, Session, Step, run_step};

/// Allocations or reads of one operation at most.
const ASKED_MAX: u64 = 10_000;

/// What is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Memory of the arena, or pages of the pool.
    Allocations,
    /// Reads of the pool.
    Reads,
}

/// What was tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RefusalSummary {
    /// Refusals.
    pub refusals: u64,
    /// Operations that were refused for it.
    pub refused: u64,
    /// Operations that were done all the same.
    pub done: u64,
}

sums!(RefusalSummary: refusals refused done);

/// Which allocation or read is refused next.
#[derive(Debug)]
struct Refusal {
    what: Refused,
    /// How many were asked for while this counts.
    asked: AtomicU64,
    /// The first one that is refused, and the one after the last.
    from: AtomicU64,
    to: AtomicU64,
    /// Stores and write-backs since the last fence.
    unfenced: AtomicU64,
}

impl Refusal {
    fn of(what: Refused) -> Self {
        let [asked, from, to, unfenced] = [0; 4].map(AtomicU64::new);
        Self { what, asked, from, to, unfenced }
    }

    fn grants(&self) -> bool {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        number < self.from.load(Ordering::Relaxed) || number >= self.to.load(Ordering::Relaxed)
    }

    fn arm(&self, from: u64, to: u64) {
        self.asked.store(0, Ordering::Relaxed);
        self.unfenced.store(0, Ordering::Relaxed);
        self.from.store(from, Ordering::Relaxed);
        self.to.store(to, Ordering::Relaxed);
    }

    /// Refuses nothing any more; returns how many were asked for.
    fn disarm(&self) -> u64 {
        let asked = self.asked.load(Ordering::Relaxed);
        self.arm(0, 0);
        asked
    }
}

impl Observer for Refusal {
    fn store(&self, _: StoreEvent<'_>) {
        self.unfenced.fetch_add(1, Ordering::Relaxed);
    }

    fn write_back(&self, _: PmAddr, _: u64, _: Purpose, _: &'static Location<'static>) {
        self.unfenced.fetch_add(1, Ordering::Relaxed);
    }

    fn fence(&self, _: &'static Location<'static>) {
        self.unfenced.store(0, Ordering::Relaxed);
    }

    fn load(&self, _: PmAddr, _: u64) -> bool {
        self.what != Refused::Reads || self.grants()
    }
}

/// Refuses each allocation or read of `victim`, one after the other, after `setup`; with `reopened`,
/// after closing and opening the pool as well, so that what it meets has to be loaded.
///
/// # Errors
/// The first refusal that did harm, and what was wrong.
pub fn refuse_everywhere(
    setup: &[Step],
    victim: &Step,
    what: Refused,
    options: &CoreOptions,
    reopened: bool,
) -> Result<RefusalSummary, String> {
    let mut summary = RefusalSummary::default();
    // A place that can't be read is one place.
    let lasts = if what == Refused::Reads { &[false][..] } else { &[false, true] };
    for lasting in lasts.iter().copied() {
        for number in 0..ASKED_MAX {
            let refusal = Arc::new(Refusal::of(what));
            let to = if lasting { u64::MAX } else { number + 1 };
            let tried = refuse(setup, victim, &refusal, (options, reopened), (number, to));
            let at = || {
                format!(
                    "{victim}: {what:?}, number {number}, lasting {lasting}, reopened {reopened}"
                )
            };
            match tried.map_err(|why| format!("{}: {why}", at()))? {
                Some(found) => summary += found,
                None => break,
            }
        }
    }
    Ok(summary)
}

/// Refuses a part of them; `None` if there are fewer.
fn refuse(
    setup: &[Step],
    victim: &Step,
    refusal: &Arc<Refusal>,
    (options, reopened): (&CoreOptions, bool),
    (from, to): (u64, u64),
) -> Result<Option<RefusalSummary>, String> {
    let pool = PoolFile::zeroed(&options.slots).map_err(|why| why.to_string())?;
    make_pool(&pool.open(&PmOptions::default())?, options.lanes)?;
    let mut machine = CoreMachine::around(open(&pool, options, refusal)?);
    let mut model = Model::new(0o755, 0, 0, now_ns_at(0), novale_model::Atime::Noatime);
    let (mut session, mut model_session) = (Session::default(), Session::default());
    for (index, step) in setup.iter().enumerate() {
        let now_ns = now_ns_at(index + 1);
        let found = run_step(&mut machine, &mut session, step, now_ns);
        let expected = run_step(&mut model, &mut model_session, step, now_ns);
        if failed(&found) || failed(&expected) {
            return Err(format!("setup {step}: {found:?}, model {expected:?}"));
        }
    }
    if reopened {
        machine.close()?;
        machine = CoreMachine::around(open(&pool, options, refusal)?);
    }
    let now_ns = now_ns_at(setup.len() + 1);
    let free = machine.bytes_available();
    refusal.arm(from, to);
    let found = run_step(&mut machine, &mut session, victim, now_ns);
    let unfenced = refusal.unfenced.load(Ordering::Relaxed);
    if refusal.disarm() <= from {
        return Ok(None);
    }
    let mut summary = RefusalSummary { refusals: 1, ..RefusalSummary::default() };
    if let Outcome::Failed(why) = &found {
        let is_right = match refusal.what {
            Refused::Allocations => {
                matches!(why, Failure::Error(Error::NoSpace | Error::NoMemory))
            }
            Refused::Reads => true,
        };
        let left = machine.bytes_available();
        // What nobody uses is dropped before the second try, with the pages that its logs had to spare.
        if !is_right || unfenced > 0 || left < free {
            return Err(format!(
                "{why:?}, {unfenced} stores or write-backs without a fence; {free:?} bytes were \
                 free, {left:?} are"
            ));
        }
        summary.refused = 1;
    } else {
        summary.done = 1;
        let expected = run_step(&mut model, &mut model_session, victim, now_ns);
        if failed(&expected) {
            return Err(format!("{found:?}, model {expected:?}"));
        }
        // A file without a name is gone once the pool is closed.
        if let Step::Unnamed { slot, .. } = victim {
            let release = Step::Release(*slot);
            run_step(&mut machine, &mut session, &release, now_ns);
            run_step(&mut model, &mut model_session, &release, now_ns);
        }
    }
    judge(machine, &pool, options, &model)?;
    Ok(Some(summary))
}

fn failed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(_))
}

fn open(pool: &PoolFile, options: &CoreOptions, refusal: &Arc<Refusal>) -> Result<Fs, String> {
    let arena = new_arena()?;
    let asked = refusal.clone();
    let grants = move || asked.what != Refused::Allocations || asked.grants();
    if !arena.set_grant_probe(Box::new(grants)) {
        return Err("somebody else decides on allocations".to_owned());
    }
    let options = OpenOptions { atime: Atime::Noatime, ..options.manner().options(now_ns_at(0)) };
    let observed = PmOptions { observer: Some(refusal.clone()), ..PmOptions::default() };
    Fs::open(pool.open(&observed)?, arena, &options, &Serial, &|_| ())
        .map_err(|why| why.to_string())
}

/// The tree is the model's now, and when the pool was closed and opened again; then everything is
/// used and removed, and every page is free.
fn judge(
    mut machine: CoreMachine,
    pool: &PoolFile,
    options: &CoreOptions,
    model: &Model,
) -> Result<(), String> {
    let now_ns = now_ns_at(1 << 20);
    let tree = Tree::of(model).map_err(|why| why.to_string())?;
    let same = |found: &Tree| {
        let differs = || tree.difference(found, ("expected", "found")).clone();
        if tree == *found { Ok(()) } else { Err(differs()) }
    };
    same(&snapshot(&mut machine, now_ns)?)?;
    machine.close()?;
    let pm = pool.open(&PmOptions::default())?;
    check_pool(&pm).map_err(|why| format!("closed: {why}"))?;
    let fs = open_pool(pm, options.form, now_ns)?;
    check_opened(&fs).map_err(|why| format!("opened again: {why}"))?;
    let mut again = CoreMachine::around(fs);
    same(&snapshot(&mut again, now_ns)?).map_err(|why| format!("opened again: {why}"))?;
    if again.inode_count() != Some(model.inode_count() as u64) {
        return Err(format!("opened again, it has {:?} inodes", again.inode_count()));
    }
    probe(&mut again, now_ns)
}
