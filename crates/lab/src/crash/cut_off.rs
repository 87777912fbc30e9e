//! An operation, an opening or a closing that is cut off for good: the sequence goes on with what is
//! recovered.
//!
//! Two ways to go: the power fails at some event of it, and memory keeps one of the images
//! of that point; or the process dies there, and memory shows all that it stored, of which nothing
//! more becomes durable but by others.

use std::collections::BTreeSet;

use novale_model::{Model, Tree};

use super::explorer::{Explorer, Live};
use super::hardware::LineKey;
use super::images::{images, images_by_units};
use super::judge::Wrong;
use super::record::{Event, What};
use super::recover::{Allowed, State, look, put_lines};

/// What came of something that was cut off, once it was recovered.
struct CutOff {
    /// Whether it is the state before.
    is_before: bool,
    /// What was found.
    found: Tree,
    /// Whether the power has gone, and with it what was in the caches.
    is_lost: bool,
    /// Where it was cut off, and how.
    place: String,
}

impl Explorer<'_> {
    /// Goes back to some event of the operation that has just run, lets the cut happen there, and
    /// opens the pool again: it must show the state before or after the operation.
    pub(super) fn cut_off_operation(
        &mut self,
        events: &[Event],
        before: &Model,
        after: &State,
        now_ns: i64,
    ) -> Result<(), Wrong> {
        let allowed = Allowed { states: vec![self.state()?.named("before"), after.named("after")] };
        let cut = self.cut_off(events, "the operation", &allowed, now_ns)?;
        if cut.is_before {
            self.model = before.becoming(&self.model);
        }
        self.go_on(&cut)
    }

    /// The same of an opening or a closing, which changes nothing that a user sees.
    pub(super) fn cut_off_life(
        &mut self,
        events: &[Event],
        during: &str,
        allowed: &Allowed,
        now_ns: i64,
    ) -> Result<(), Wrong> {
        let cut = self.cut_off(events, during, allowed, now_ns)?;
        self.go_on(&cut)
    }

    /// What was found has been seen now: nothing else may be seen any more, but for what a process
    /// stored to mapped pages, which its death leaves in the caches.
    fn go_on(&mut self, cut: &CutOff) -> Result<(), Wrong> {
        self.model.turn_out(&cut.found, cut.is_lost);
        self.model.release_all();
        self.machine_session.forget_all();
        self.model_session.forget_all();
        self.state = None;
        let states = vec![self.state()?.named("found")];
        self.cut(&format!("after the recovery, {}", cut.place), &Allowed { states })
    }

    /// Cuts it off at some event. The recovery of one in four is itself cut off, and so on.
    fn cut_off(
        &mut self,
        events: &[Event],
        during: &str,
        allowed: &Allowed,
        now_ns: i64,
    ) -> Result<CutOff, Wrong> {
        self.judge.summary.cut_off += 1;
        self.live.give_up().map_err(|why| ("in dying".to_owned(), why))?;
        let (done, undone) = events.split_at(self.end_of(events));
        self.cut_events(done, allowed, during)?;
        let dies = !self.options.by_units && self.random.bool();
        if let Some(part) = undone.first().filter(|_| dies).and_then(|next| self.part_of(next)) {
            self.let_happen(&[part])?;
        }
        let how = if dies { self.die(undone) } else { self.lose_power(undone) };
        let how = how.map_err(|why| ("in cutting off".to_owned(), why))?;
        let place =
            format!("{during} cut off after event {} of {}, {how}", done.len(), events.len());
        let at = |what: &str| format!("{what}, {place}");

        self.check_recording().map_err(|why| (at("cut off"), why))?;
        let (is_before, found) =
            self.reopen_as(allowed, now_ns).map_err(|why| (at("recovery"), why))?;
        let recovery = self.recorder.take();
        if !recovery.is_empty() && self.random.u32(..).is_multiple_of(4) {
            let again = self.cut_off(&recovery, &at("the recovery"), allowed, now_ns)?;
            return Ok(CutOff { is_lost: again.is_lost || !dies, ..again });
        }
        self.cut_events(&recovery, allowed, &at("the recovery"))?;
        Ok(CutOff { is_before, found, is_lost: !dies, place })
    }

    /// How many events happen before the end.
    fn end_of(&mut self, events: &[Event]) -> usize {
        if self.options.by_units {
            let fences = (0..).zip(events).filter(|(_, event)| matches!(event.what, What::Fence));
            let fences: Vec<usize> = fences.map(|(index, _)| index).collect();
            return self.random.choice(fences).unwrap_or(events.len());
        }
        self.random.usize(0..=events.len())
    }

    /// The first units of a store, in the middle of which one process in three dies.
    fn part_of(&mut self, event: &Event) -> Option<Event> {
        let units = event.units();
        let in_part = units > 1 && self.random.u32(..).is_multiple_of(3);
        in_part.then(|| event.first_units(self.random.usize(1..units)))
    }

    /// Whether it is the state before, and what was found.
    fn reopen_as(&mut self, allowed: &Allowed, now_ns: i64) -> Result<(bool, Tree), String> {
        self.live.open(self.options, now_ns)?;
        let seen = look(self.live.machine()?, allowed, now_ns)?;
        Ok((seen.state.name == "before", seen.tree))
    }

    /// The process dies: what it stored stays in the caches.
    fn die(&mut self, undone: &[Event]) -> Result<String, String> {
        self.forget(None)?;
        self.rewind(undone)?;
        Ok("by the death of the process".to_owned())
    }

    /// The power goes: memory keeps one of the images.
    fn lose_power(&mut self, undone: &[Event]) -> Result<String, String> {
        let images = if self.options.by_units {
            images_by_units(&self.hardware)
        } else {
            images(&self.hardware, self.options.effort, &mut self.random)
        };
        let chosen = self.random.usize(0..images.len().max(1));
        let Some(image) = images.into_iter().nth(chosen) else { return self.die(undone) };
        let pending: Vec<LineKey> = self.hardware.pending().keys().copied().collect();
        self.hardware.lose_pending();
        self.hardware.set_durable(&image.lines);
        let kept: Vec<LineKey> = image.lines.iter().map(|(key, _)| *key).collect();
        self.judge.bench.update(&self.hardware, &kept)?;
        self.put_shown(pending.into_iter())?;
        self.rewind(undone)?;
        Ok(format!("by a power cut that kept {}", image.choice))
    }

    /// Takes back what the operation stored after the cut.
    fn rewind(&mut self, undone: &[Event]) -> Result<(), String> {
        let lines: BTreeSet<LineKey> = undone.iter().flat_map(Event::stored_lines).collect();
        self.put_shown(lines.into_iter())
    }

    /// Makes the live pool's lines what the hardware shows.
    fn put_shown(&self, lines: impl Iterator<Item = LineKey>) -> Result<(), String> {
        let Live::Closed(pm, _) = &self.live else { return Err("it is open".to_owned()) };
        let lines = lines.map(|key| (key, self.hardware.line_with(key, |_| true)));
        self.recorder.unheard(|| put_lines(pm, lines));
        Ok(())
    }
}
