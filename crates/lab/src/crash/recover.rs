//! One crash image, recovered and judged.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use novale_core::Form;
use novale_model::Tree;
use novale_pm::PmOptions;

use super::hardware::{Hardware, LINE_BYTES, LineKey};
use super::images::Image;
use super::probe::probe;
use super::record::{Event, Recorder};
use crate::diff::{CoreMachine, Machine, check_opened, open_pool, panic_text, snapshot};
use crate::pool_file::PoolFile;

/// What a user may find after a crash: one of these states.
#[derive(Debug, Clone)]
pub struct Allowed {
    /// The state's name, its tree and its number of inodes.
    pub states: Vec<(&'static str, Arc<Tree>, u64)>,
}

/// How deep an image is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Recovered, checked, compared.
    Once,
    /// Shown read-only before; the same again after a death right behind the recovery, then used in
    /// every way.
    Used,
}

/// A pool in which images are laid out and recovered; between them it holds the durable bytes.
#[derive(Debug)]
pub struct Bench {
    pool: PoolFile,
    form: Form,
    /// Recovers at this time.
    now_ns: i64,
}

impl Bench {
    /// A bench with the durable bytes of this memory.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(hardware: &Hardware, form: Form, now_ns: i64) -> Result<Self, String> {
        let lens: Vec<u64> = hardware.durable().iter().map(|slot| slot.len() as u64).collect();
        let pool = PoolFile::zeroed(&lens).map_err(|why| why.to_string())?;
        for (slot, bytes) in (0..).zip(hardware.durable()) {
            pool.put(slot, 0, bytes).map_err(|why| why.to_string())?;
        }
        Ok(Self { pool, form, now_ns })
    }

    /// Takes over lines that have become durable.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn update(&self, hardware: &Hardware, lines: &[LineKey]) -> Result<(), String> {
        let bytes = |key: &LineKey| hardware.durable_line(*key);
        lines.iter().try_for_each(|key| self.put(*key, &bytes(key)))
    }

    /// Recovers the image and judges it; returns what recovery did to the pool.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn judge(
        &self,
        hardware: &Hardware,
        image: &Image,
        allowed: &Allowed,
        depth: Depth,
    ) -> Result<Vec<Event>, String> {
        image.lines.iter().try_for_each(|(key, line)| self.put(*key, line))?;
        let recorder = Arc::new(Recorder::default());
        let judged = catch_unwind(AssertUnwindSafe(|| self.recover(&recorder, allowed, depth)));
        let judged = judged.unwrap_or_else(|payload| Err(panic_text(payload.as_ref())));
        let touched = recorder.stored_lines();
        let lines: Vec<LineKey> = touched.into_iter().chain(image.lines.keys().copied()).collect();
        self.update(hardware, &lines)?;
        judged
    }

    fn recover(
        &self,
        recorder: &Arc<Recorder>,
        allowed: &Allowed,
        depth: Depth,
    ) -> Result<Vec<Event>, String> {
        let shown = match depth {
            Depth::Once => None,
            Depth::Used => Some(self.look_read_only(allowed)?),
        };
        let mut machine = self.open(recorder)?;
        let recovery = recorder.copy();
        let found = look(&mut machine, allowed, self.now_ns)?;
        if let Some(shown) = shown.filter(|shown| *shown != found) {
            return Err(format!("shown read-only as {shown}, recovered as {found}"));
        }
        if depth == Depth::Used {
            drop(machine);
            let mut machine = self.open(recorder).map_err(|why| format!("second time: {why}"))?;
            let again = look(&mut machine, allowed, self.now_ns)
                .map_err(|why| format!("second time: {why}"))?;
            if again != found {
                return Err(format!("recovered as {found}, then as {again}"));
            }
            probe(&mut machine, self.now_ns).map_err(|why| format!("in use afterwards: {why}"))?;
        }
        Ok(recovery)
    }

    /// What a mount shows that may not recover: the mapping can't be written.
    fn look_read_only<'a>(&self, allowed: &'a Allowed) -> Result<&'a str, String> {
        let look = || {
            let pm = self.pool.open(&PmOptions { read_only: true, ..PmOptions::default() })?;
            let fs = open_pool(pm, self.form, self.now_ns)?;
            check_opened(&fs)?;
            look(&mut CoreMachine::around(fs), allowed, self.now_ns)
        };
        look().map_err(|why| format!("read-only: {why}"))
    }

    fn open(&self, recorder: &Arc<Recorder>) -> Result<CoreMachine, String> {
        let observer = Some(recorder.clone() as Arc<dyn novale_pm::Observer>);
        let pm = self.pool.open(&PmOptions { observer, ..PmOptions::default() })?;
        let fs = open_pool(pm, self.form, self.now_ns)?;
        check_opened(&fs)?;
        Ok(CoreMachine::around(fs))
    }

    fn put(&self, key: LineKey, line: &[u8]) -> Result<(), String> {
        let byte = key.line * LINE_BYTES as u64;
        self.pool.put(key.slot, byte, line).map_err(|why| why.to_string())
    }
}

/// Which of the allowed states it is.
pub(super) fn look(
    machine: &mut CoreMachine,
    allowed: &Allowed,
    now_ns: i64,
) -> Result<&'static str, String> {
    let found = snapshot(machine, now_ns)?;
    let inodes = machine.inode_count();
    let mut differences = Vec::new();
    for (name, tree, count) in &allowed.states {
        if **tree == found {
            if inodes != Some(*count) {
                return Err(format!("as {name}, but {inodes:?} inodes are in use, not {count}"));
            }
            return Ok(name);
        }
        differences.push(format!("not {name}:\n{}", tree.difference(&found, (name, "found"))));
    }
    Err(differences.join("\n"))
}
