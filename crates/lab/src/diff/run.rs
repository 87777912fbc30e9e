//! The run: each step on both sides, each result compared, whole trees at `compare`, `remount` and
//! `die`.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use novale_model::{Atime, Error, Ino, Model, RangeOp, Tree};

use super::judge::{Numbers, judge, judge_seek};
use super::snapshot::snapshot;
use crate::workload::{
    Action, Failure, Outcome, Session, Step, StepKind, Subject, Target, run_step,
};

/// A file system under test that can be closed, killed and opened again.
pub trait Machine: Subject {
    /// Closes and opens it, then checks what is stored.
    ///
    /// # Errors
    /// What went wrong, in words.
    fn remount(&mut self, now_ns: i64) -> Result<(), String>;

    /// Forgets all that is not stored, opens it, then checks what is stored.
    ///
    /// # Errors
    /// What went wrong, in words.
    fn die(&mut self, now_ns: i64) -> Result<(), String>;

    /// Inodes in use, the root and those without a name included, if it can tell.
    fn inode_count(&mut self) -> Option<u64>;

    /// Bytes that can still be written, if it can tell.
    fn bytes_available(&mut self) -> Option<u64>;

    /// Which use of its number an inode is, if it can tell.
    fn generation(&mut self, ino: Ino) -> Option<u32>;
}

/// What it means if the machine has no space left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoSpace {
    /// A mistake: there is plenty.
    Wrong,
    /// The step must have changed nothing. To remove, to cut, to change attributes or to look is
    /// never refused so.
    Allowed,
}

/// The first difference found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Index of the step in the sequence.
    pub index: usize,
    /// The step.
    pub step: Step,
    /// What differed.
    pub what: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {} ({}): {}", self.index, self.step, self.what)
    }
}

/// What an equal run saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Steps run.
    pub steps: u64,
    /// Those that succeeded.
    pub succeeded: u64,
    /// Those refused for lack of space.
    pub no_space: u64,
    /// Opens after a close or a death.
    pub opens: u64,
}

sums!(Summary: steps succeeded no_space opens);

/// The clock of all runs: the time at which the step of that index runs, ns since 1970.
pub fn now_ns_at(index: usize) -> i64 {
    const START_NS: i64 = 1_600_000_000_000_000_000;
    const STEP_NS: i64 = 1_000_000_007;
    START_NS + STEP_NS * i64::try_from(index).unwrap_or(0)
}

/// Runs the steps on a fresh machine, whose root has mode 755 and owner 0, made at
/// `now_ns_at(0)`; and once more compares all at the end.
///
/// # Errors
/// The first difference; a panic of the machine is one.
pub fn compare_run(
    machine: &mut impl Machine,
    steps: &[Step],
    no_space: NoSpace,
) -> Result<Summary, Box<Mismatch>> {
    let mut run = Run {
        machine,
        machine_session: Session::default(),
        model: Model::new(0o755, 0, 0, now_ns_at(0), Atime::Noatime),
        model_session: Session::default(),
        numbers: Numbers::with_root(),
        generations: BTreeMap::new(),
        no_space,
        summary: Summary::default(),
    };
    let last = Step::Compare;
    for (index, step) in steps.iter().chain([&last]).enumerate() {
        let result = catch_unwind(AssertUnwindSafe(|| run.step(step, now_ns_at(index + 1))));
        let result = result.unwrap_or_else(|payload| Err(panic_text(payload.as_ref())));
        result.map_err(|what| Box::new(Mismatch { index, step: step.clone(), what }))?;
    }
    Ok(run.summary)
}

/// No step needs more space than this.
const STEP_BYTES_MAX: u64 = 2 << 20;

/// Whether a step may be refused for lack of space where `bytes_max` bytes are enough for any.
///
/// # Errors
/// Why not.
pub fn check_no_space(
    machine: &mut impl Machine,
    step: &Step,
    bytes_max: u64,
) -> Result<(), String> {
    let only_looks = matches!(step, Step::On { action, .. } if action.only_looks());
    let frees = matches!(step, Step::Unlink(_) | Step::Rmdir(_))
        || matches!(
            step,
            Step::On {
                action: Action::Set(_)
                    | Action::RemoveXattr(_)
                    | Action::Range { how: RangeOp::Punch | RangeOp::Collapse, .. },
                ..
            }
        );
    if frees || only_looks {
        return Err("refused for lack of space".to_owned());
    }
    match machine.bytes_available() {
        Some(bytes) if bytes > bytes_max => {
            Err(format!("refused for lack of space, but {bytes} bytes are free"))
        }
        _ => Ok(()),
    }
}

struct Run<'m, M> {
    machine: &'m mut M,
    machine_session: Session,
    model: Model,
    model_session: Session,
    numbers: Numbers,
    /// By the machine's number: its latest generation, and the model's inode at that time.
    generations: BTreeMap<Ino, (u32, Ino)>,
    no_space: NoSpace,
    summary: Summary,
}

impl<M: Machine> Run<'_, M> {
    fn step(&mut self, step: &Step, now_ns: i64) -> Result<(), String> {
        self.summary.steps += 1;
        match step.kind() {
            StepKind::Compares => return self.compare(now_ns),
            StepKind::Remounts => self.machine.remount(now_ns)?,
            StepKind::Dies => self.machine.die(now_ns)?,
            StepKind::Operates => return self.operate(step, now_ns),
        }
        self.summary.opens += 1;
        self.machine_session.forget_all();
        self.model_session.forget_all();
        self.model.release_all();
        self.compare(now_ns)
    }

    fn operate(&mut self, step: &Step, now_ns: i64) -> Result<(), String> {
        let found = run_step(self.machine, &mut self.machine_session, step, now_ns);
        if found == Outcome::Failed(Failure::Error(Error::NoSpace)) {
            self.summary.no_space += 1;
            return self.judge_no_space(step);
        }
        let expected = run_step(&mut self.model, &mut self.model_session, step, now_ns);
        if let (Step::On { target, action: Action::Seek { offset, data } }, Outcome::Done) =
            (step, &expected)
        {
            return self.judge_seek(target, (*offset, *data), &found, now_ns);
        }
        let seeks = matches!(step, Step::On { action: Action::Seek { .. }, .. });
        let refused = |outcome: &Outcome| matches!(outcome, Outcome::Failed(Failure::Error(_)));
        if seeks && refused(&expected) {
            // What it means to seek in a directory, nobody says.
            return Ok(());
        }
        judge(&self.model, &mut self.numbers, &expected, &found)?;
        if let (Outcome::Attr(expected), Outcome::Attr(found)) = (&expected, &found) {
            self.check_generation(expected.ino, found.ino)?;
        }
        if !matches!(found, Outcome::Failed(_)) {
            self.summary.succeeded += 1;
        }
        Ok(())
    }

    fn judge_seek(
        &mut self,
        target: &Target,
        asked: (u64, bool),
        found: &Outcome,
        now_ns: i64,
    ) -> Result<(), String> {
        let stat = Step::On { target: target.clone(), action: Action::Stat };
        let shown = run_step(&mut self.model, &mut self.model_session, &stat, now_ns);
        let Outcome::Attr(attr) = shown else {
            return Err(format!("model {shown:?}"));
        };
        judge_seek(&self.model, attr.ino, asked, found)
    }

    fn judge_no_space(&mut self, step: &Step) -> Result<(), String> {
        if self.no_space == NoSpace::Wrong {
            return Err("refused for lack of space".to_owned());
        }
        check_no_space(self.machine, step, STEP_BYTES_MAX)
    }

    /// A number used again must show it by its generation, as file handles rely on that.
    fn check_generation(&mut self, expected: Ino, found: Ino) -> Result<(), String> {
        let Some(generation) = self.machine.generation(found) else {
            return Ok(());
        };
        match self.generations.insert(found, (generation, expected)) {
            Some((old, inode)) if inode == expected && old != generation => {
                Err(format!("inode {} changed its generation {old} to {generation}", found.0))
            }
            Some((old, inode)) if inode != expected && old >= generation => {
                Err(format!("inode {} is used again, generation {old}, {generation}", found.0))
            }
            _ => Ok(()),
        }
    }

    fn compare(&mut self, now_ns: i64) -> Result<(), String> {
        let expected = Tree::of(&self.model).map_err(|why| why.to_string())?;
        let found = snapshot(self.machine, now_ns)?;
        if expected != found {
            let lines = expected.difference(&found, ("model", "found"));
            return Err(format!("trees differ:\n{lines}"));
        }
        let expected = self.model.inode_count() as u64;
        match self.machine.inode_count() {
            Some(found) if found != expected => {
                Err(format!("{found} inodes are in use, the model has {expected}"))
            }
            _ => Ok(()),
        }
    }
}

/// What a panic said.
pub fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("of unknown kind"))
}
