//! Judges the images of one point after the other: those known already by what is known, the others
//! by recovering them, some of them in depth, some with further cuts in their recovery.

use std::collections::HashSet;

use fastrand::Rng;

use super::explore::{CrashOptions, CrashSummary};
use super::hardware::{Caches, Hardware};
use super::images::{Choice, Effort, Image, images};
use super::record::{Event, What};
use super::recover::{Allowed, Bench, Depth, Judged};
use super::sight::{Changes, Sights};
use super::tracker::Tracker;

/// Where the power was cut and what was wrong then.
pub(super) type Wrong = (String, String);

/// Cuts within recoveries within recoveries go so deep.
const DEPTH_MAX: u32 = 2;

/// Of the images within a recovery, one in so many has its own recovery cut.
const DEEPER_ONE_IN: u64 = 24;

/// Of the images that differ from a known one only where nothing looked, one in so many is judged all
/// the same: it must be found as that one was.
const ALIKE_JUDGED_ONE_IN: u64 = 61;

/// The images within a recovery.
const NESTED_EFFORT: Effort =
    Effort { subset_lines_max: 3, data_lines_max: 1, pairs: 2, random: 2, at_stores: false };

pub(super) struct Judge<'o> {
    pub(super) options: &'o CrashOptions,
    pub(super) tracker: &'o Tracker,
    pub(super) bench: Bench,
    pub(super) summary: CrashSummary,
    /// What recoveries saw, by how many cuts came before.
    sights: [Sights; DEPTH_MAX as usize + 1],
    /// What is allowed, and what was found and is that, where bytes were not durable.
    allowed: Allowed,
    accepted: HashSet<u64>,
}

impl<'o> Judge<'o> {
    pub(super) fn new(options: &'o CrashOptions, tracker: &'o Tracker, bench: Bench) -> Self {
        let (summary, sights) = (CrashSummary::default(), Default::default());
        let (allowed, accepted) = (Allowed { states: Vec::new() }, HashSet::new());
        Self { options, tracker, bench, summary, sights, allowed, accepted }
    }

    /// Judges the images of a point.
    pub(super) fn judge_all(
        &mut self,
        hardware: &Hardware,
        images: &[Image],
        place: &str,
        allowed: &Allowed,
    ) -> Result<(), Wrong> {
        self.summary.points += 1;
        if !self.allowed.is_same(allowed) {
            self.allowed = allowed.clone();
            self.accepted.clear();
        }
        self.judge_level(hardware, images, allowed, 0)
            .map_err(|(choice, what)| (describe(place, &choice, hardware), what))
    }

    fn judge_level(
        &mut self,
        hardware: &Hardware,
        images: &[Image],
        allowed: &Allowed,
        level: u32,
    ) -> Result<(), (Choice, String)> {
        if let Some(sights) = self.sights(level) {
            sights.begin(hardware);
        }
        for image in images {
            if self.tracker.is_over() {
                return Ok(());
            }
            self.judge(hardware, image, allowed, level).map_err(|what| (image.choice, what))?;
        }
        Ok(())
    }

    fn judge(
        &mut self,
        hardware: &Hardware,
        image: &Image,
        allowed: &Allowed,
        level: u32,
    ) -> Result<(), String> {
        // The same bytes are recovered alike with the same options only.
        let core = &self.options.core;
        let form = (core.mode as u64) << 6 | (core.update as u64) << 2 | core.form as u64;
        let caches = u64::from(self.options.caches == Caches::Kept);
        let state = image.state.short() ^ (form << 1 | caches);
        if self.tracker.recovered(state).is_some_and(|found| self.is_allowed(found, allowed)) {
            self.summary.known += 1;
            return Ok(());
        }
        // Drawn by the state, so that what is left out as known changes no other image's depth.
        let drawn = Rng::with_seed(state ^ self.options.seed).u64(..);
        let is_one_in = |count: u64| count > 0 && drawn.is_multiple_of(count);
        let depth = if is_one_in(self.options.used_one_in) { Depth::Used } else { Depth::Once };
        let is_nested = match level {
            0 => is_one_in(self.options.nested_one_in),
            _ => level < DEPTH_MAX && is_one_in(DEEPER_ONE_IN),
        };
        let changes = Changes::of(hardware, image);
        // What goes deeper than one recovery may look elsewhere.
        let alike = self.sights(level).and_then(|sights| sights.found(&changes));
        let goes_deeper = depth == Depth::Used || is_nested || is_one_in(ALIKE_JUDGED_ONE_IN);
        if let Some(found) = alike.filter(|found| !goes_deeper && self.is_allowed(*found, allowed))
        {
            self.summary.alike += 1;
            self.tracker.note(state, found);
            return Ok(());
        }
        self.summary.images += 1;
        let judged = self.bench.judge(hardware, image, allowed, depth)?;
        if alike.is_some_and(|found| found != judged.found) {
            return Err(
                "an image that differs only where nothing looked is not so found".to_owned()
            );
        }
        self.summary.new_places += self.tracker.reach(recovery_places(&judged));
        self.tracker.pass(&judged.recovery);
        let lines = self.bench.seen();
        let seen = self.sights(level).map(|s| s.note(hardware, &changes, lines, judged.found));
        if is_nested {
            self.cut_recovery(hardware, image, &judged.recovery, allowed, level + 1)?;
        }
        self.accepted.insert(judged.found);
        self.tracker.note(state, judged.found);
        self.tracker.count(seen.unwrap_or_default().short() ^ (form << 1 | caches));
        Ok(())
    }

    /// Whether what was found is one of the states, or was accepted as one of the same states before.
    fn is_allowed(&self, found: u64, allowed: &Allowed) -> bool {
        allowed.states.iter().any(|state| state.hash() == found) || self.accepted.contains(&found)
    }

    fn sights(&mut self, level: u32) -> Option<&mut Sights> {
        self.sights.get_mut(level as usize)
    }

    /// Cuts a recovery at each of its fences.
    fn cut_recovery(
        &mut self,
        hardware: &Hardware,
        image: &Image,
        recovery: &[Event],
        allowed: &Allowed,
        level: u32,
    ) -> Result<(), String> {
        self.summary.recoveries_cut += 1;
        let mut memory = hardware.after_cut(&image.lines);
        let mut random = Rng::with_seed(self.options.seed);
        let mut changed: Vec<_> = image.lines.iter().map(|(key, _)| *key).collect();
        self.bench.update(&memory, &changed)?;
        for event in recovery {
            if matches!(event.what, What::Fence) {
                let images = images(&memory, NESTED_EFFORT, &mut random);
                self.judge_level(&memory, &images, allowed, level).map_err(|(choice, why)| {
                    let place = format!("then cut again in recovery at {}", event.site);
                    format!("{}:\n{why}", describe(&place, &choice, &memory))
                })?;
            }
            let lines = memory.apply(event);
            self.bench.update(&memory, &lines)?;
            changed.extend(lines);
        }
        self.bench.update(hardware, &changed)
    }
}

/// What a recovery found, as places that it went through.
fn recovery_places(judged: &Judged) -> impl Iterator<Item = u64> + use<> {
    let report = &judged.report;
    let few = |count: u64| count.min(3);
    let found = few(report.lines_installed)
        | few(report.lines_rejected) << 2
        | few(report.records_rejected) << 4
        | u64::from(report.from_saved) << 6;
    std::iter::once(found)
}

/// Where the power was cut and what was pending there.
fn describe(place: &str, choice: &Choice, hardware: &Hardware) -> String {
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
