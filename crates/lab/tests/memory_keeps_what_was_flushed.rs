//! The promise: the lab's memory keeps what was flushed and fenced, loses the rest in any of the ways
//! that a power cut has, and makes images of all of them.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail as the test does")]

use std::sync::Arc;

use fastrand::Rng;
use novale_lab::crash::{
    Caches, Effort, Hardware, Image, LineBytes, LineKey, Recorder, images, images_in_store,
};
use novale_layout::PmAddr;
use novale_pm::{Flushed, Pm, PmOptions, Purpose};

const KEY: LineKey = LineKey { slot: 0, line: 2 };

const ONE_BY_ONE: Effort =
    Effort { subset_lines_max: 0, data_lines_max: 100, pairs: 0, random: 0, at_stores: false };

fn recorded(run: impl FnOnce(&Pm)) -> Hardware {
    let recorder = Arc::new(Recorder::default());
    let options = PmOptions { observer: Some(recorder.clone()), ..PmOptions::default() };
    run(&Pm::anonymous(&[8192], &options).unwrap());
    let mut hardware = Hardware::zeroed(&[8192]);
    recorder.take().iter().for_each(|event| drop(hardware.apply(event)));
    hardware
}

fn at(byte: u64) -> PmAddr {
    PmAddr::new(0, byte)
}

#[test]
fn a_store_is_durable_after_write_back_and_fence_only() {
    let stored = recorded(|pm| drop(pm.store_u64(at(128), 7, Purpose::Data)));
    assert_eq!(stored.pending().len(), 1);
    let flushed = recorded(|pm| drop(pm.write_back(pm.store_u64(at(128), 7, Purpose::Data))));
    assert_eq!(flushed.pending().len(), 1);
    assert_eq!(flushed.durable_line(KEY)[0], 0);
    let durable = recorded(|pm| {
        let dirty = pm.store_u64(at(128), 7, Purpose::Data);
        pm.fence(pm.write_back(dirty)).end();
    });
    assert_eq!(durable.pending().len(), 0);
    assert_eq!(durable.durable_line(KEY)[0], 7);
}

#[test]
fn a_fence_completes_its_own_threads_write_backs_only() {
    let hardware = recorded(|pm| {
        let dirty = pm.store_u64(at(128), 7, Purpose::Data);
        drop(pm.write_back(dirty));
        std::thread::scope(|scope| {
            scope.spawn(|| pm.fence(Flushed::none()).end());
        });
    });
    assert_eq!(hardware.pending().len(), 1);
}

#[test]
fn a_store_behind_the_write_back_stays_pending() {
    let hardware = recorded(|pm| {
        let flushed = pm.write_back(pm.store_u64(at(128), 7, Purpose::Data));
        drop(pm.store_u64(at(136), 8, Purpose::Data));
        pm.fence(flushed).end();
    });
    assert_eq!(hardware.durable_line(KEY)[0], 7);
    assert_eq!(hardware.durable_line(KEY)[8], 0);
    assert_eq!(hardware.line_with(KEY, |_| true)[8], 8);
}

#[test]
fn what_one_thread_left_pending_does_not_come_back_over_what_another_made_durable() {
    let hardware = recorded(|pm| {
        drop(pm.write_back(pm.store_line(at(128), &[1; 64], Purpose::Commit)));
        std::thread::scope(|scope| {
            scope.spawn(|| pm.fence(pm.stream(at(128), &[2; 64], Purpose::Commit)).end());
        });
    });
    assert_eq!(hardware.pending().len(), 0);
    assert_eq!(hardware.durable_line(KEY), [2; 64]);
}

#[test]
fn streaming_stores_need_no_write_back() {
    let hardware = recorded(|pm| {
        let flushed = pm.stream(at(128), &[9; 64], Purpose::Data);
        drop(pm.stream(at(256), &[9; 64], Purpose::Data));
        pm.fence(flushed).end();
        drop(pm.stream(at(320), &[9; 64], Purpose::Data));
    });
    assert_eq!(hardware.durable_line(KEY), [9; 64]);
    let left: Vec<_> = hardware.pending().keys().map(|key| key.line).collect();
    assert_eq!(left, [5]);
}

#[test]
fn the_stores_of_a_line_are_eight_and_ordered() {
    let hardware = recorded(|pm| drop(pm.store_line(at(128), &[3; 64], Purpose::Commit)));
    let stores = &hardware.pending()[&KEY];
    assert!(stores.len() == 8 && stores.iter().all(|store| store.ordered));
}

#[test]
fn unaligned_bytes_fall_into_units_of_memory() {
    let hardware = recorded(|pm| drop(pm.store(at(181), &[1; 19], Purpose::Data)));
    let mut units = Vec::new();
    for (key, stores) in hardware.pending() {
        for kept in 0..stores.len() {
            let line = hardware.line_with(*key, |index| index == kept);
            let first = line.iter().position(|byte| *byte == 1).unwrap();
            let last = line.iter().rposition(|byte| *byte == 1).unwrap();
            units.push((key.line, first, last + 1 - first));
        }
    }
    assert_eq!(units, [(2, 53, 3), (2, 56, 8), (3, 0, 8)]);
}

#[test]
fn an_ordered_line_breaks_at_each_word_and_nowhere_else() {
    let line: Vec<u8> = (1..=64).collect();
    let line: [u8; 64] = line.try_into().unwrap();
    let hardware = recorded(|pm| drop(pm.store_line(PmAddr::new(0, 0), &line, Purpose::Commit)));
    let images = images(&hardware, ONE_BY_ONE, &mut Rng::with_seed(1));
    let mut kept: Vec<usize> = images
        .iter()
        .map(|image| {
            let bytes = image.lines.first().map_or([0; 64], |(_, line)| *line);
            let kept = bytes.iter().take_while(|byte| **byte != 0).count();
            assert!(bytes.iter().skip(kept).all(|byte| *byte == 0));
            kept
        })
        .collect();
    kept.sort_unstable();
    assert_eq!(kept, [0, 8, 16, 24, 32, 40, 48, 56, 64]);
}

#[test]
fn lines_persist_alone_and_one_may_be_missing() {
    let hardware = recorded(|pm| drop(pm.stream(PmAddr::new(0, 0), &[1; 192], Purpose::Data)));
    let count = |image: &Image| image.lines.len();
    let is_whole = |image: &&Image| image.lines.iter().all(|(_, line)| *line == [1; 64]);
    let mut counts: Vec<_> = images(&hardware, ONE_BY_ONE, &mut Rng::with_seed(1))
        .iter()
        .filter(is_whole)
        .map(count)
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, [0, 1, 1, 1, 2, 2, 2, 3]);
    let all = Effort { subset_lines_max: 3, data_lines_max: 0, ..ONE_BY_ONE };
    assert_eq!(images(&hardware, all, &mut Rng::with_seed(1)).len(), 8);
}

#[test]
fn random_images_tear_streaming_stores_within_a_line() {
    let hardware = recorded(|pm| drop(pm.stream(PmAddr::new(0, 0), &[1; 64], Purpose::Data)));
    let effort = Effort { data_lines_max: 0, random: 20, ..ONE_BY_ONE };
    let images = images(&hardware, effort, &mut Rng::with_seed(1));
    let torn =
        |image: &Image| image.lines.iter().any(|(_, line)| line.contains(&0) && line.contains(&1));
    assert!(images.iter().filter(|image| torn(image)).count() > 2);
    let units_are_whole =
        |line: &LineBytes| line.chunks(8).all(|unit| unit.iter().all(|byte| byte == &unit[0]));
    assert!(images.iter().all(|image| image.lines.iter().all(|(_, line)| units_are_whole(line))));
}

#[test]
fn an_image_has_the_number_of_its_bytes() {
    let line = [7; 64];
    let store = |pm: &Pm| drop(pm.store_line(PmAddr::new(0, 64), &line, Purpose::Commit));
    let before = recorded(store);
    let all = images(&before, Effort::default(), &mut Rng::with_seed(1));
    let whole = all.iter().find(|image| image.lines.len() == 1 && image.lines[0].1 == line);
    let after = recorded(|pm| {
        let dirty = pm.store_line(PmAddr::new(0, 64), &line, Purpose::Commit);
        pm.fence(pm.write_back(dirty)).end();
    });
    assert_eq!(whole.unwrap().state, after.state());
    assert_eq!(before.after_cut(&whole.unwrap().lines).state(), after.state());
    assert_eq!(Hardware::with(after.durable().to_vec()).state(), after.state());
    assert_ne!(before.state(), after.state());
}

#[test]
fn where_caches_persist_a_store_is_cut_within_and_stays_behind() {
    let store = |pm: &Pm| drop(pm.store(PmAddr::new(0, 60), &[9; 24], Purpose::Log));
    let recorder = Arc::new(Recorder::default());
    let options =
        PmOptions { observer: Some(recorder.clone()), eadr: Some(true), ..PmOptions::default() };
    store(&Pm::anonymous(&[8192], &options).unwrap());
    let mut hardware = Hardware::zeroed(&[8192]).with_caches(Caches::Kept);
    let event = &recorder.take()[0];
    let images = images_in_store(&hardware, event, &mut Rng::with_seed(1));
    let stored = |image: &Image| -> usize {
        let lines = image.lines.iter().flat_map(|(_, line)| line);
        lines.filter(|byte| **byte == 9).count()
    };
    let counts: Vec<usize> = images.iter().map(stored).collect();
    assert_eq!(counts, [0, 4, 12, 20]);
    hardware.apply(event);
    assert!(hardware.pending().is_empty());
    assert_eq!(hardware.durable()[0][60..84], [9; 24]);
}

#[test]
fn each_unit_of_a_streamed_line_may_be_missing() {
    let hardware = recorded(|pm| drop(pm.stream(PmAddr::new(0, 0), &[1; 64], Purpose::Log)));
    let images = images(&hardware, ONE_BY_ONE, &mut Rng::with_seed(1));
    let gap = |image: &Image| image.lines.first()?.1.iter().position(|byte| *byte == 0);
    let mut gaps: Vec<_> = images.iter().filter_map(gap).collect();
    gaps.sort_unstable();
    assert_eq!(gaps, [0, 8, 16, 24, 32, 40, 48, 56]);
}
