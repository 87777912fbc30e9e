//! What is executed, by the instruction: each byte stored once, each line that was stored plainly
//! written back after its store, nothing else written back, then the fence.

use std::collections::BTreeSet;

use novale_layout::PmAddr;
use proptest::prelude::*;

use crate::cpu::traced::{Executed, traced};
use crate::{Pm, PmOptions, Purpose};

const POOL_BYTES: u64 = 32768;

/// A call that stores a range and returns when it is durable.
type Call = fn(&Pm, PmAddr, &[u8]);

const CALLS: [Call; 5] = [
    |pm, addr, bytes| {
        pm.fence(pm.stream(addr, bytes, Purpose::Data)).end();
    },
    |pm, addr, bytes| {
        let len = bytes.len() as u64;
        pm.fence(pm.stream_zero(addr, len, Purpose::Data)).end();
    },
    |pm, addr, bytes| {
        let source = PmAddr::new(0, POOL_BYTES / 2 + 5);
        let copied = pm.stream_copy(addr, source, bytes.len() as u64, Purpose::Data);
        pm.fence(copied.unwrap()).end();
    },
    |pm, addr, bytes| {
        pm.fence(pm.write_back(pm.store(addr, bytes, Purpose::Data))).end();
    },
    |pm, addr, bytes| {
        let (head, tail) = bytes.split_at(bytes.len() / 2);
        let first = pm.store(addr, head, Purpose::Data);
        let second = pm.store(addr.add(head.len() as u64), tail, Purpose::Data);
        pm.fence(pm.write_back(second.join(first))).end();
    },
];

/// Checks `trace` of a call that stored `len` bytes at address `at`.
fn check(trace: &[Executed], at: usize, len: usize, eadr: bool) {
    let mut bytes = Vec::new();
    let mut dirty = BTreeSet::new();
    for executed in trace {
        match *executed {
            Executed::Store { at, len } => {
                bytes.extend(at..at + len);
                dirty.extend((at..at + len).map(|byte| byte / 64));
            }
            Executed::Stream { at, len } => bytes.extend(at..at + len),
            Executed::WriteBack { at, len } => {
                for line in at / 64..(at + len) / 64 {
                    assert!(dirty.remove(&line), "a line written back without need: {trace:?}");
                }
            }
            Executed::Fence => {}
        }
    }
    bytes.sort_unstable();
    assert_eq!(bytes, (at..at + len).collect::<Vec<_>>(), "each byte once: {trace:?}");
    if !eadr {
        assert!(dirty.is_empty(), "stored and not written back: {dirty:?} of {trace:?}");
    }
    let fences = trace.iter().filter(|e| **e == Executed::Fence).count();
    assert_eq!((fences, trace.last()), (1, Some(&Executed::Fence)));
}

fn executed(call: impl FnOnce()) -> Vec<Executed> {
    traced(None, call).into_iter().map(|(executed, _)| executed).collect()
}

fn run(pm: &Pm, call: Call, offset: u64, len: usize) {
    let addr = PmAddr::new(0, offset);
    let at = pm.load_ptr(addr, 0).unwrap().addr();
    let trace = executed(|| call(pm, addr, &vec![1; len]));
    check(&trace, at, len, pm.write_back_kind().is_none());
}

#[test]
fn every_place_in_a_line_with_every_length_up_to_two() {
    for eadr in [false, true] {
        let options = PmOptions { eadr: Some(eadr), ..PmOptions::default() };
        let pm = Pm::anonymous(&[POOL_BYTES], &options).unwrap();
        for call in CALLS {
            for offset in 0..=64 {
                for len in 0..=130 {
                    run(&pm, call, offset, len);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn sampled_places_and_lengths(
        call in 0..CALLS.len(),
        offset in 0_u64..=130,
        len in 0_usize..=9000,
        eadr: bool,
    ) {
        let options = PmOptions { eadr: Some(eadr), ..PmOptions::default() };
        let pm = Pm::anonymous(&[POOL_BYTES], &options).unwrap();
        run(&pm, CALLS[call], offset, len);
    }
}

/// A crash keeps a prefix of a line's words only if they are stored in ascending order, each once.
#[test]
fn lines_and_words_are_stored_in_order() {
    let pm = Pm::anonymous(&[POOL_BYTES], &PmOptions::default()).unwrap();
    let addr = PmAddr::new(0, 192);
    let at = pm.load_ptr(addr, 0).unwrap().addr();
    let trace = executed(|| {
        let line = pm.store_line(addr, &[1; 64], Purpose::Commit);
        let flushed = pm.write_back(line);
        let word = pm.store_u64(addr.add(72), 1, Purpose::Commit);
        pm.fence(flushed.and(pm.write_back(word))).end();
    });
    let mut expected: Vec<Executed> =
        (0..8).map(|word| Executed::Store { at: at + word * 8, len: 8 }).collect();
    expected.extend([
        Executed::WriteBack { at, len: 64 },
        Executed::Store { at: at + 72, len: 8 },
        Executed::WriteBack { at: at + 64, len: 64 },
        Executed::Fence,
    ]);
    assert_eq!(trace, expected);
}

/// What another thread stored is written back again on request, line by line.
#[test]
fn a_range_is_written_back_whoever_stored_it() {
    let pm = Pm::anonymous(&[POOL_BYTES], &PmOptions::default()).unwrap();
    let base = pm.load_ptr(PmAddr::new(0, 0), 0).unwrap().addr();
    for (byte, len, first, lines) in [(0, 1, 0, 1), (63, 2, 0, 2), (100, 4096, 64, 65)] {
        let trace = executed(|| {
            pm.fence(pm.write_back_range(PmAddr::new(0, byte), len, Purpose::Other)).end();
        });
        let expected = Executed::WriteBack { at: base + first, len: lines * 64 };
        assert_eq!(trace, [expected, Executed::Fence], "{len} bytes from {byte}");
    }
}
