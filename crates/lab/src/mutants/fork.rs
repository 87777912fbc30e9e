//! Recoveries of a run: from an act of it the power goes, or the process dies, and what is recovered
//! is used a little and closed.

use std::collections::BTreeMap;

use fastrand::Rng;
use novale_layout::{PAGE, SLOT_HEADER_OFFSET, SUPERBLOCK_BYTES};
use novale_model::Model;

use super::key::Site;
use super::recording::{Act, BEHIND_CUT, BEHIND_DEATH, Pool, Recording};
use super::trial::Stretch;
use super::workloads::Plan;
use crate::crash::{
    Effort, Event, Hardware, LINE_BYTES, LineKey, What, images, visible_after_crash,
};
use crate::diff::{CoreMachine, Machine, snapshot};
use crate::workload::{parse_steps, sequence};

/// The end of a run's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The power goes.
    PowerCut,
    /// The process dies; what it stored stays in the caches.
    Death,
}

/// A recovery and what follows, with the memory before it.
pub(super) fn fork(
    plan: &Plan,
    before: &Hardware,
    act: &Act,
    end: End,
    random: &mut Rng,
) -> Result<(Stretch, Vec<Act>), String> {
    let mut hardware = before.clone();
    if act.behind_death {
        hardware.forget(None);
    }
    let events = &act.keyed.events;
    let done = events_done(events, random);
    for event in events.iter().take(done) {
        hardware.apply(event);
    }
    let copies_stand = !is_superblock_under_way(&hardware);
    match end {
        End::Death => drop(hardware.forget(None)),
        End::PowerCut => {
            let images = images(&hardware, Effort::default(), random);
            let image = random.choice(images);
            hardware.lose_pending();
            hardware.set_durable(&image.map(|image| image.lines).unwrap_or_default());
        }
    }
    if end == End::PowerCut && random.u8(0..5) == 0 && copies_stand {
        damage_a_copy(&mut hardware, random);
    }
    let mut run = Recording::on(plan, &visible(&hardware))?;
    let during = if end == End::Death { BEHIND_DEATH } else { BEHIND_CUT };
    let mut recovery = run.recover(during, act.now_ns, |machine| which(machine, act, end))?;
    // Cut off it shows nothing yet; what it decided may still be lost.
    recovery.during = if done < events.len() { act.during.clone() } else { act.after.clone() };
    recovery.during.pool = Pool::Used;
    let mut acts = vec![recovery];
    for step in parse_steps(sequence("recovered"))? {
        acts.extend(run.step(&step, act.now_ns + 1)?);
    }
    acts.push(run.close(act.now_ns + 2)?);
    Ok((Stretch::new(hardware, plan.core.form)?, acts))
}

/// Whether a copy of the superblock is being stored, and may be torn: then the other one must stand.
fn is_superblock_under_way(hardware: &Hardware) -> bool {
    hardware.pending().keys().any(|key| {
        let (page, byte) = (key.addr().byte() / PAGE, key.addr().byte() % PAGE);
        let slot = hardware.durable().get(usize::from(key.slot));
        let last = slot.map_or(0, Vec::len) as u64 / PAGE - 1;
        byte < SUPERBLOCK_BYTES as u64 && (page == 0 || page == last)
    })
}

/// Spoils one of the two copies of what a pool keeps twice.
fn damage_a_copy(hardware: &mut Hardware, random: &mut Rng) {
    let slot = random.usize(0..hardware.durable().len());
    let last = hardware.durable().get(slot).map_or(0, Vec::len) as u64 / PAGE - 1;
    let page = if random.bool() { 0 } else { last };
    let offset = if random.bool() { 0 } else { SLOT_HEADER_OFFSET };
    let slot = u8::try_from(slot).unwrap_or(0);
    let key = LineKey { slot, line: (page * PAGE + offset) / LINE_BYTES as u64 };
    hardware.set_durable(&[(key, [0x5a; LINE_BYTES])]);
}

/// How many of an act's events happen before the end: rather all before a fence, and of all calls that
/// fence each as often, however many tasks make it.
fn events_done(events: &[Event], random: &mut Rng) -> usize {
    let mut fences: BTreeMap<Site, Vec<usize>> = BTreeMap::new();
    for (index, event) in events.iter().enumerate() {
        if matches!(event.what, What::Fence) {
            fences.entry(event.site.into()).or_default().push(index);
        }
    }
    let of_one = random.choice(fences.values()).and_then(|of_one| random.choice(of_one));
    match of_one {
        Some(index) if random.u8(0..4) > 0 => *index,
        _ => random.usize(0..=events.len()),
    }
}

/// What a process sees: every store, durable or not.
fn visible(hardware: &Hardware) -> Vec<Vec<u8>> {
    let mut memory = hardware.durable().to_vec();
    for key in hardware.pending().keys() {
        let LineKey { slot, line } = *key;
        let start = usize::try_from(line).unwrap_or(usize::MAX).saturating_mul(LINE_BYTES);
        let slot = memory.get_mut(usize::from(slot));
        if let Some(place) = slot.and_then(|slot| slot.get_mut(start..start + LINE_BYTES)) {
            place.copy_from_slice(&hardware.line_with(*key, |_| true));
        }
    }
    memory
}

/// Which model was recovered. What was stored to mapped pages a power cut has decided, a death has not.
fn which(machine: &mut CoreMachine, act: &Act, end: End) -> Result<Model, String> {
    let inodes = machine.inode_count().unwrap_or(0);
    let found = snapshot(machine, act.now_ns)?;
    let [before, after] = &act.models;
    for mut model in [before.becoming(after), Model::clone(after)] {
        if visible_after_crash(&model)?.allows(&found, inodes) {
            model.turn_out(&found, end == End::PowerCut);
            model.release_all();
            return Ok(model);
        }
    }
    Err(format!("{}: recovered as neither state of the original", act.name))
}
