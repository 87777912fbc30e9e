//! Every stored line is written back or streamed, and only those; every byte of the range is
//! stored, and only those.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod recorder;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use novale_layout::PmAddr;
use novale_pm::{Pm, PmOptions, Purpose, StoreKind};
use proptest::prelude::*;
use recorder::{Event, Recorder, recorded};

/// Bytes of the pool under test: room for every place and length drawn, and as much to copy from.
const POOL_BYTES: u64 = 32768;
/// Where the sources of copies begin.
const SOURCE: u64 = 16384;

/// What the pool holds before each case: no byte is like its neighbours.
fn background() -> Vec<u8> {
    (0..POOL_BYTES).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

fn fill(pm: &Pm) {
    pm.fence(pm.stream(PmAddr::new(0, 0), &background(), Purpose::Other)).end();
}

fn contents(pm: &Pm) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(POOL_BYTES).unwrap()];
    pm.load(PmAddr::new(0, 0), &mut bytes).unwrap();
    bytes
}

/// The lines, as (slot, line), that `len` bytes from `addr` touch.
fn lines(addr: PmAddr, len: u64) -> impl Iterator<Item = (u8, u64)> {
    let last = if len == 0 { 0 } else { (addr.byte() + len - 1) / 64 + 1 };
    (addr.byte() / 64..last).map(move |line| (addr.slot(), line))
}

/// The lines that were stored, and those that are on their way to the media.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lines {
    stored: BTreeSet<(u8, u64)>,
    sent: BTreeSet<(u8, u64)>,
    streamed: u64,
    written_back: u64,
}

impl Lines {
    fn of(events: &[Event]) -> Self {
        let mut all = Self::default();
        for event in events {
            match event {
                Event::Store { addr, bytes, kind, .. } => {
                    let touched = || lines(*addr, bytes.len() as u64);
                    all.stored.extend(touched());
                    if *kind == StoreKind::Streaming {
                        all.sent.extend(touched());
                        all.streamed += touched().count() as u64;
                    }
                }
                Event::WriteBack { addr, len, .. } => {
                    all.sent.extend(lines(*addr, *len));
                    all.written_back += lines(*addr, *len).count() as u64;
                }
                Event::Fence { .. } => {}
            }
        }
        all
    }
}

/// The ways to store a range and start its way to the media.
#[derive(Debug, Clone, Copy)]
enum Way {
    Stream,
    Zero,
    Copy,
    StoreAndWriteBack,
}

/// Stores `len` bytes at `offset` by `way`; returns what must be there afterwards.
fn act(pm: &Pm, way: Way, offset: u64, len: u64, skew: u64) -> Vec<u8> {
    let addr = PmAddr::new(0, offset);
    let count = usize::try_from(len).unwrap();
    let data: Vec<u8> = (0..count).map(|at| u8::try_from(at * 7 % 253).unwrap()).collect();
    let (flushed, expected) = match way {
        Way::Stream => (pm.stream(addr, &data, Purpose::Data), data),
        Way::Zero => (pm.stream_zero(addr, len, Purpose::Data), vec![0; count]),
        Way::Copy => {
            let source = PmAddr::new(0, SOURCE + skew);
            let start = usize::try_from(SOURCE + skew).unwrap();
            let expected = background()[start..start + count].to_vec();
            (pm.stream_copy(addr, source, len, Purpose::Data).unwrap(), expected)
        }
        Way::StoreAndWriteBack => (pm.write_back(pm.store(addr, &data, Purpose::Data)), data),
    };
    pm.fence(flushed).end();
    expected
}

/// Runs one case and checks events, contents and counters.
fn check(pm: &Pm, recorder: &Recorder, way: Way, place: (u64, u64, u64)) {
    let (offset, len, skew) = place;
    fill(pm);
    recorder.take();
    let before = pm.counters();
    let expected = act(pm, way, offset, len, skew);
    let counted = &pm.counters() - &before;
    let events = recorder.take();

    let mut model = background();
    let start = usize::try_from(offset).unwrap();
    model[start..start + expected.len()].copy_from_slice(&expected);
    assert!(contents(pm) == model, "contents after {way:?} {place:?}");

    let seen = Lines::of(&events);
    let wanted = lines(PmAddr::new(0, offset), len).collect();
    assert_eq!(seen.stored, wanted, "lines stored by {way:?} {place:?}");
    assert_eq!(seen.sent, wanted, "lines sent by {way:?} {place:?}");

    let stored: u64 = events
        .iter()
        .map(|event| match event {
            Event::Store { bytes, .. } => bytes.len() as u64,
            Event::WriteBack { .. } | Event::Fence { .. } => 0,
        })
        .sum();
    assert_eq!(stored, len, "each byte is told once: {way:?} {place:?}");
    let data = counted.of(Purpose::Data);
    assert_eq!((data.bytes, data.lines), (len, wanted.len() as u64), "{way:?} {place:?}");
    assert_eq!(data.lines_streamed, seen.streamed, "{way:?} {place:?}");
    assert_eq!(data.write_backs, seen.written_back, "{way:?} {place:?}");
    assert_eq!(counted.slot_lines(0), wanted.len() as u64, "{way:?} {place:?}");
    assert_eq!((counted.fences, counted.fences_with_pending), (1, u64::from(len > 0)));
    assert_eq!(data, counted.total(), "nothing for another purpose");

    let unwatched = Pm::anonymous(&[POOL_BYTES], &PmOptions::default()).unwrap();
    fill(&unwatched);
    let before = unwatched.counters();
    act(&unwatched, way, offset, len, skew);
    assert!(contents(&unwatched) == model, "contents after {way:?} {place:?}, unwatched");
    let counted_unwatched = &unwatched.counters() - &before;
    // A watched copy goes by private memory; it must count as the one that does not.
    assert_eq!(counted_unwatched, counted, "{way:?} {place:?}");
}

fn ways() -> impl Strategy<Value = Way> {
    prop_oneof![Just(Way::Stream), Just(Way::Zero), Just(Way::Copy), Just(Way::StoreAndWriteBack)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn sampled_places_and_lengths(
        way in ways(),
        offset in 0_u64..=130,
        len in prop_oneof![0_u64..=300, 0_u64..=9000],
        skew in 0_u64..=64,
    ) {
        let (pm, recorder) = recorded(&[POOL_BYTES], false);
        check(&pm, &recorder, way, (offset, len, skew));
    }
}

#[test]
fn every_place_with_every_length_around_one_line() {
    let (pm, recorder) = recorded(&[POOL_BYTES], false);
    for way in [Way::Stream, Way::Zero, Way::Copy, Way::StoreAndWriteBack] {
        for offset in 0..=64 {
            for len in 0..=130 {
                check(&pm, &recorder, way, (offset, len, offset % 9));
            }
        }
    }
}

/// With caches that persist nothing is written back, and what is stored is the same.
#[test]
fn under_eadr_the_bytes_are_the_same_and_nothing_is_written_back() {
    let (pm, recorder) = recorded(&[POOL_BYTES], true);
    for way in [Way::Stream, Way::Zero, Way::Copy, Way::StoreAndWriteBack] {
        for (offset, len) in [(0, 64), (3, 200), (64, 8), (1, 9000), (0, 8192), (7, 0)] {
            fill(&pm);
            recorder.take();
            let before = pm.counters();
            let expected = act(&pm, way, offset, len, 3);
            let counted = &pm.counters() - &before;
            let start = usize::try_from(offset).unwrap();
            let end = start + usize::try_from(len).unwrap();
            assert_eq!(contents(&pm)[start..end], expected, "{way:?} {offset} {len}");
            assert_eq!(contents(&pm)[end..], background()[end..], "{way:?} {offset} {len}");
            let seen = Lines::of(&recorder.take());
            assert_eq!(seen.stored, lines(PmAddr::new(0, offset), len).collect());
            assert_eq!((seen.written_back, counted.write_backs()), (0, 0));
            assert_eq!(counted.slot_lines(0), seen.stored.len() as u64);
        }
    }
}

/// Lines are counted in the slot that they belong to, and a store beside another leaves it alone
/// also when another thread stores there meanwhile: no store reads its neighbours and puts them
/// back.
#[test]
fn neighbours_stored_by_another_thread_are_never_put_back() {
    let pm = Pm::anonymous(&[4096], &PmOptions::default()).unwrap();
    let done = AtomicBool::new(false);
    // Bytes 64+13..64+13+70 belong to this thread, the byte on each side to the other.
    let (left, right) = (PmAddr::new(0, 76), PmAddr::new(0, 147));
    std::thread::scope(|scope| {
        let neighbour = scope.spawn(|| {
            let mut rounds = 0_u64;
            while rounds < 1000 || !done.load(Ordering::Relaxed) {
                let byte = [u8::try_from(rounds % 256).unwrap()];
                for addr in [left, right] {
                    pm.fence(pm.write_back(pm.store(addr, &byte, Purpose::Other))).end();
                }
                std::hint::spin_loop();
                for addr in [left, right] {
                    let mut now = [0];
                    pm.load(addr, &mut now).unwrap();
                    assert_eq!(now, byte, "byte at {addr} after {rounds} rounds");
                }
                rounds += 1;
            }
        });
        for round in 0..200_000_u32 {
            let bytes = [u8::try_from(round % 256).unwrap(); 70];
            let addr = PmAddr::new(0, 77);
            let flushed = if round % 2 == 0 {
                pm.stream(addr, &bytes, Purpose::Data)
            } else {
                pm.write_back(pm.store(addr, &bytes, Purpose::Data))
            };
            pm.fence(flushed).end();
            if neighbour.is_finished() {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}
