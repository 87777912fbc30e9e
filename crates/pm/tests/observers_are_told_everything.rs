//! An observer is told every store, write-back and fence, with the place in the caller's source.
#![allow(clippy::unwrap_used, reason = "a test")]

mod recorder;

use novale_layout::PmAddr;
use novale_pm::{Flushed, Purpose, StoreKind};
use recorder::{Event, recorded};

fn store(at: u64, bytes: &[u8], kind: StoreKind, line: u32) -> Event {
    let (addr, bytes) = (PmAddr::new(0, at), bytes.to_vec());
    Event::Store { addr, bytes, kind, purpose: Purpose::Commit, line }
}

fn write_back(at: u64, len: u64, line: u32) -> Event {
    Event::WriteBack { addr: PmAddr::new(0, at), len, purpose: Purpose::Commit, line }
}

#[test]
fn stores_write_backs_and_fences_are_told_in_order_with_their_line() {
    let (pm, recorder) = recorded(&[8192], false);
    let line = [9; 64];
    let before = line!();
    let word = pm.store_u64(PmAddr::new(0, 72), 0x0102_0304_0506_0708, Purpose::Commit);
    let flushed = pm.write_back(word);
    let whole = pm.store_line(PmAddr::new(0, 128), &line, Purpose::Commit);
    let flushed = flushed.and(pm.write_back(whole));
    let bulk = pm.store(PmAddr::new(0, 3), b"plain", Purpose::Commit);
    let flushed = flushed.and(pm.write_back(bulk));
    pm.fence(flushed).end();
    let expected = vec![
        store(72, &[8, 7, 6, 5, 4, 3, 2, 1], StoreKind::Ordered, before + 1),
        write_back(72, 8, before + 2),
        store(128, &line, StoreKind::Ordered, before + 3),
        write_back(128, 64, before + 4),
        store(3, b"plain", StoreKind::Plain, before + 5),
        write_back(3, 5, before + 6),
        Event::Fence { line: before + 7 },
    ];
    assert_eq!(recorder.take(), expected);
}

#[test]
fn a_stream_is_told_by_its_parts() {
    let (pm, recorder) = recorded(&[8192], false);
    let bytes: Vec<u8> = (0..150).collect();
    let before = line!();
    let uneven = pm.stream(PmAddr::new(0, 61), &bytes, Purpose::Commit);
    let words = pm.stream(PmAddr::new(0, 1016), &bytes[..80], Purpose::Commit);
    pm.fence(uneven.and(words)).end();
    let expected = vec![
        store(61, &bytes[..3], StoreKind::Plain, before + 1),
        write_back(61, 3, before + 1),
        store(64, &bytes[3..131], StoreKind::Streaming, before + 1),
        store(192, &bytes[131..], StoreKind::Plain, before + 1),
        write_back(192, 19, before + 1),
        store(1016, &bytes[..8], StoreKind::Streaming, before + 2),
        store(1024, &bytes[8..72], StoreKind::Streaming, before + 2),
        store(1088, &bytes[72..80], StoreKind::Streaming, before + 2),
        Event::Fence { line: before + 3 },
    ];
    assert_eq!(recorder.take(), expected);
}

#[test]
fn zeros_and_copies_are_told_with_their_bytes_a_page_at_a_time() {
    let (pm, recorder) = recorded(&[65536], false);
    let source: Vec<u8> = (0..8192_u32).map(|at| u8::try_from(at % 255).unwrap()).collect();
    pm.fence(pm.stream(PmAddr::new(0, 32768), &source, Purpose::Data)).end();
    recorder.take();
    let before = line!();
    let zeros = pm.stream_zero(PmAddr::new(0, 4032), 128, Purpose::Commit);
    let (to, from) = (PmAddr::new(0, 12224), PmAddr::new(0, 32771));
    let copied = pm.stream_copy(to, from, 128, Purpose::Commit).unwrap();
    pm.fence(zeros.and(copied)).end();
    let expected = vec![
        store(4032, &[0; 64], StoreKind::Streaming, before + 1),
        store(4096, &[0; 64], StoreKind::Streaming, before + 1),
        store(12224, &source[3..67], StoreKind::Streaming, before + 3),
        store(12288, &source[67..131], StoreKind::Streaming, before + 3),
        Event::Fence { line: before + 4 },
    ];
    assert_eq!(recorder.take(), expected);
}

#[test]
fn nothing_is_told_of_nothing() {
    let (pm, recorder) = recorded(&[4096], false);
    let addr = PmAddr::new(0, 4096);
    let flushed = pm
        .stream(addr, &[], Purpose::Data)
        .and(pm.stream_zero(addr, 0, Purpose::Data))
        .and(pm.write_back(pm.store(addr, &[], Purpose::Data)))
        .and(pm.write_back_range(addr, 0, Purpose::Data))
        .and(Flushed::none());
    assert_eq!(recorder.take(), vec![]);
    pm.fence(flushed).end();
    let counters = pm.counters();
    assert_eq!((counters.fences, counters.fences_with_pending, counters.lines()), (1, 0, 0));
}
