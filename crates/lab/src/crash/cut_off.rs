//! An operation that is cut off for good: the sequence goes on with what is recovered.
//!
//! Two ways to go: the power fails at some event of the operation, and memory keeps one of the images
//! of that point; or the process dies there, and memory shows all that it stored, of which nothing
//! more becomes durable but by others.

use std::collections::BTreeSet;
use std::sync::Arc;

use novale_model::{Model, Tree};

use super::explorer::{Explorer, Wrong, open_recorded, visible_after_crash};
use super::hardware::{LINE_BYTES, LineKey, lines_of};
use super::images::images;
use super::record::{Event, What};
use super::recover::{Allowed, look};
use crate::diff::{CoreMachine, open_pool};

impl Explorer<'_> {
    /// Goes back to some event of the operation that has just run, lets the cut happen there, and
    /// opens the pool again: it must show the state before or behind the operation.
    pub(super) fn cut_off(
        &mut self,
        before: Model,
        after: (Arc<Tree>, u64),
        now_ns: i64,
    ) -> Result<(), Wrong> {
        self.summary.cut_off += 1;
        let states = [("before", self.state.clone()), ("after", after)];
        let allowed = Allowed {
            states: states.iter().map(|(name, state)| (*name, state.0.clone(), state.1)).collect(),
        };
        drop(self.machine.take());
        let events = self.recorder.take();
        let (done, undone) = events.split_at(self.random.usize(0..=events.len()));
        self.cut_events(done, &allowed, "the operation")?;
        let how = if self.random.bool() { self.die(undone) } else { self.lose_power(undone) };
        let how = how.map_err(|why| ("in cutting off".to_owned(), why))?;
        let at =
            |what: &str| format!("{what} behind event {} of {}, {how}", done.len(), events.len());

        self.check_recording().map_err(|why| (at("cut off"), why))?;
        let opened = open_recorded(&self.live, &self.recorder)
            .and_then(|pm| open_pool(pm, self.options.core.form, now_ns))
            .map(CoreMachine::around)
            .and_then(|mut machine| Ok((look(&mut machine, &allowed, now_ns)?, machine)));
        let (found, machine) = opened.map_err(|why| (at("recovery"), why))?;
        self.machine = Some(machine);
        let recovery = self.recorder.take();
        self.cut_events(&recovery, &allowed, &at("the recovery"))?;
        // It has been seen now: nothing else may be seen any more.
        if found == "before" {
            self.model = before;
        }
        self.model.release_all();
        self.machine_session.forget_all();
        self.model_session.forget_all();
        self.state =
            visible_after_crash(&self.model).map_err(|why| ("in the model".into(), why))?;
        let (tree, inodes) = self.state.clone();
        self.cut(&at("behind the recovery"), &Allowed { states: vec![(found, tree, inodes)] })
    }

    /// The process dies: what it stored stays in the caches.
    fn die(&mut self, undone: &[Event]) -> Result<String, String> {
        self.hardware.forget_threads();
        self.rewind(undone)?;
        Ok("by the death of the process".to_owned())
    }

    /// The power goes: memory keeps one of the images.
    fn lose_power(&mut self, undone: &[Event]) -> Result<String, String> {
        let images = images(&self.hardware, self.options.effort, &mut self.random);
        let chosen = self.random.usize(0..images.len().max(1));
        let Some(image) = images.into_iter().nth(chosen) else { return self.die(undone) };
        let pending: Vec<LineKey> = self.hardware.pending().keys().copied().collect();
        self.hardware.lose_pending();
        self.hardware.set_durable(&image.lines);
        let kept: Vec<LineKey> = image.lines.keys().copied().collect();
        self.bench.update(&self.hardware, &kept)?;
        self.put_lines(pending.into_iter())?;
        self.rewind(undone)?;
        Ok(format!("by a power cut that kept {}", image.choice))
    }

    /// Takes back what the operation stored behind the cut.
    fn rewind(&mut self, undone: &[Event]) -> Result<(), String> {
        let lines: BTreeSet<LineKey> = undone
            .iter()
            .filter_map(|event| match &event.what {
                What::Store { addr, bytes, .. } => Some(lines_of(*addr, bytes.len() as u64)),
                What::WriteBack { .. } | What::Fence => None,
            })
            .flatten()
            .collect();
        self.put_lines(lines.into_iter())
    }

    /// Makes the live pool's lines what the hardware shows.
    fn put_lines(&self, lines: impl Iterator<Item = LineKey>) -> Result<(), String> {
        for key in lines {
            let line = self.hardware.line_with(key, |_| true);
            let byte = key.line * LINE_BYTES as u64;
            self.live.put(key.slot, byte, &line).map_err(|why| why.to_string())?;
        }
        Ok(())
    }
}
