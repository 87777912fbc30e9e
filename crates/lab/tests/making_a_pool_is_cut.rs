//! The promise: a pool that is being made is there, empty and whole, or it is not. After a power cut at
//! any fence of mkfs, and after the death of its process between any two stores, mkfs makes it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test panics and tells")]

use std::sync::Arc;

use fastrand::Rng;
use novale_core::Form;
use novale_lab::crash::{Effort, Event, Hardware, Recorder, What, images};
use novale_lab::diff::{CoreMachine, check_opened, make_pool, open_pool, snapshot};
use novale_lab::pool_file::PoolFile;
use novale_pm::{Observer, Pm, PmOptions};

const SLOTS: [u64; 2] = [4 << 20, 3 << 20];

fn memory(slots: &[Vec<u8>]) -> (PoolFile, Arc<Recorder>) {
    let lens: Vec<u64> = slots.iter().map(|slot| slot.len() as u64).collect();
    let pool = PoolFile::zeroed(&lens).unwrap();
    for (slot, bytes) in (0..).zip(slots) {
        pool.put(slot, 0, bytes).unwrap();
    }
    (pool, Arc::new(Recorder::default()))
}

fn opened(pool: &PoolFile, recorder: &Arc<Recorder>) -> Pm {
    let observer = Some(recorder.clone() as Arc<dyn Observer>);
    pool.open(&PmOptions { observer, ..PmOptions::default() }).unwrap()
}

/// Opens it, if it is a pool: it is empty then.
fn open(pm: Pm) -> Result<(), String> {
    let fs = open_pool(pm, Form::Auto, 1)?;
    check_opened(&fs)?;
    let nodes = snapshot(&mut CoreMachine::around(fs), 1)?.nodes().count();
    if nodes == 1 { Ok(()) } else { panic!("{nodes} nodes in a new pool") }
}

/// What mkfs does to memory that was used before.
fn made() -> (Hardware, Vec<Event>) {
    let hardware = Hardware::used_before(&SLOTS);
    let (pool, recorder) = memory(&hardware.durable_copy());
    make_pool(&opened(&pool, &recorder), 2).unwrap();
    (hardware, recorder.take())
}

/// A pool, or none; in either case one can be made there.
fn judge(left: &[Vec<u8>], place: &str) -> bool {
    let (pool, recorder) = memory(left);
    let is_pool = match open(opened(&pool, &recorder)) {
        Ok(()) => true,
        Err(why) if why.contains("make one with mkfs") => false,
        Err(why) => panic!("{place}: {why}"),
    };
    let (pool, recorder) = memory(left);
    make_pool(&opened(&pool, &recorder), 2).unwrap_or_else(|why| panic!("{place}: {why}"));
    open(opened(&pool, &recorder)).unwrap_or_else(|why| panic!("{place}, made anew: {why}"));
    is_pool
}

#[test]
fn a_cut_leaves_an_empty_pool_or_none() {
    let (mut hardware, events) = made();
    let effort =
        Effort { subset_lines_max: 3, data_lines_max: 1, pairs: 1, random: 1, at_stores: false };
    let mut random = Rng::with_seed(1);
    let mut fences = 0;
    for event in &events {
        if matches!(event.what, What::Fence) && !hardware.pending().is_empty() {
            fences += 1;
            let mut some = images(&hardware, effort, &mut random);
            random.shuffle(&mut some);
            for image in some.into_iter().take(4) {
                let left = hardware.after_cut(&image.lines).durable_copy();
                judge(&left, &format!("cut at fence {fences}, keeping {}", image.choice));
            }
        }
        hardware.apply(event);
    }
    assert!(fences >= 2, "{fences} fences");
    hardware.lose_pending();
    assert!(judge(&hardware.durable_copy(), "after mkfs"), "what mkfs has made is not durable");
}

#[test]
fn a_death_leaves_an_empty_pool_or_none() {
    let (before, events) = made();
    let stride = events.len().div_ceil(24).max(1);
    for end in (0..=events.len()).step_by(stride).chain([events.len()]) {
        let mut hardware = before.clone();
        events.iter().take(end).for_each(|event| drop(hardware.apply(event)));
        let shown: Vec<_> = hardware
            .pending()
            .keys()
            .map(|key| (*key, hardware.line_with(*key, |_| true)))
            .collect();
        let left = hardware.after_cut(&shown).durable_copy();
        let place = format!("death before event {end} of {}", events.len());
        let is_pool = judge(&left, &place);
        assert!(is_pool || end < events.len(), "{place}: no pool");
        // The next process makes it where the caches of the dead one are, and the power goes after.
        let (pool, recorder) = memory(&left);
        make_pool(&opened(&pool, &recorder), 2).unwrap();
        hardware.forget(None);
        recorder.take().iter().for_each(|event| drop(hardware.apply(event)));
        hardware.lose_pending();
        assert!(judge(&hardware.durable_copy(), &place), "{place}: made anew, it is not durable");
    }
}
