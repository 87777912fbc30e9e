//! An address outside of the pool is an error to a load and a bug to a store.
#![allow(clippy::unwrap_used, reason = "a test")]

use novale_layout::PmAddr;
use novale_pm::{OutOfRange, Pm, PmOptions, Purpose};

/// Two slots, of one and of two pages.
fn pool() -> Pm {
    Pm::anonymous(&[4096, 8192], &PmOptions::default()).unwrap()
}

/// Addresses of which `len` bytes are not all in one slot of `pool`.
fn outside(len: u64) -> Vec<PmAddr> {
    vec![
        PmAddr::new(0, 4096 - len + 8),
        PmAddr::new(0, 4096),
        PmAddr::new(1, 8192 - len + 8),
        PmAddr::new(2, 0),
        PmAddr::new(63, 0),
        PmAddr::new(64, 0),
        PmAddr::new(255, 0),
        PmAddr::new(0, (1 << 48) - 8),
        // Reserved bits set.
        PmAddr::from_raw(1 << 48),
        PmAddr::from_raw(u64::MAX),
    ]
}

#[test]
fn loads_outside_of_the_pool_are_errors() {
    let pm = pool();
    for addr in outside(8) {
        assert_eq!(pm.load_u64(addr), Err(OutOfRange { addr, len: 8, is_lost: false }), "{addr}");
        assert!(!pm.contains(addr, 8), "{addr}");
        pm.prefetch(addr);
    }
    for addr in outside(64) {
        assert_eq!(pm.load_line(addr), Err(OutOfRange { addr, len: 64, is_lost: false }), "{addr}");
    }
    for addr in outside(100) {
        let mut into = [7; 100];
        assert_eq!(
            pm.load(addr, &mut into),
            Err(OutOfRange { addr, len: 100, is_lost: false }),
            "{addr}"
        );
        assert_eq!(into, [7; 100], "unchanged by a load that failed");
        let to = PmAddr::new(1, 0);
        let copied = pm.stream_copy(to, addr, 100, Purpose::Data).map(|_| ());
        assert_eq!(copied, Err(OutOfRange { addr, len: 100, is_lost: false }), "{addr}");
    }
    assert_eq!(pm.counters().lines(), 0, "a copy that failed stored nothing");
    let message = pm.load_u64(PmAddr::new(2, 64)).unwrap_err().to_string();
    assert_eq!(message, "8 bytes at 2:0x40 are not within a slot of the pool, or not aligned");
}

#[test]
fn unaligned_words_and_lines_are_errors() {
    let pm = pool();
    let addr = PmAddr::new(0, 12);
    assert_eq!(pm.load_u64(addr), Err(OutOfRange { addr, len: 8, is_lost: false }));
    let addr = PmAddr::new(0, 72);
    assert_eq!(pm.load_line(addr), Err(OutOfRange { addr, len: 64, is_lost: false }));
}

#[test]
fn the_last_bytes_of_each_slot_are_reachable_and_lengths_do_not_wrap() {
    let pm = pool();
    for (slot, end) in [(0, 4096), (1, 8192)] {
        assert!(pm.contains(PmAddr::new(slot, end), 0));
        assert!(pm.contains(PmAddr::new(slot, 0), end));
        assert!(!pm.contains(PmAddr::new(slot, 0), end + 1));
        assert!(!pm.contains(PmAddr::new(slot, 1), u64::MAX));
        assert!(!pm.contains(PmAddr::new(slot, 64), u64::MAX - 63));
        let word = PmAddr::new(slot, end - 8);
        let flushed = pm.write_back(pm.store_u64(word, u64::from(slot) + 1, Purpose::Data));
        pm.fence(flushed).end();
        assert_eq!(pm.load_u64(word), Ok(u64::from(slot) + 1));
    }
    assert_eq!(
        (pm.slot_count(), pm.slot_len(0), pm.slot_len(1), pm.slot_len(2)),
        (2, 4096, 8192, 0)
    );
}

#[test]
fn lines_and_words_come_back_as_stored() {
    let pm = pool();
    let line: [u8; 64] = std::array::from_fn(|at| u8::try_from(at).unwrap() ^ 0xa5);
    let addr = PmAddr::new(1, 4096);
    let flushed = pm.write_back(pm.store_line(addr, &line, Purpose::Commit));
    assert_eq!(pm.load_line(addr), Ok(line));
    assert_eq!(pm.load_u64(addr.add(8)), Ok(u64::from_le_bytes(line[8..16].try_into().unwrap())));
    let dirty = pm.store_u64(addr.add(8), 0x0807_0605_0403_0201, Purpose::Commit);
    let mut bytes = [0; 8];
    pm.load(addr.add(8), &mut bytes).unwrap();
    assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8], "words are little-endian on the media");
    pm.fence(flushed.and(pm.write_back(dirty))).end();
}

/// Whether `action` panics with a message that contains `message`.
fn panics(message: &str, action: impl FnOnce() + std::panic::UnwindSafe) {
    let payload = std::panic::catch_unwind(action).unwrap_err();
    let said = payload.downcast_ref::<String>().unwrap();
    assert!(said.contains(message), "{said:?} should contain {message:?}");
}

#[test]
fn stores_outside_of_the_pool_name_the_address_and_the_slot() {
    for addr in outside(64) {
        for store in [
            |pm: &Pm, addr| drop(pm.store(addr, &[0; 64], Purpose::Data)),
            |pm: &Pm, addr| drop(pm.store_line(addr, &[0; 64], Purpose::Data)),
            |pm: &Pm, addr| drop(pm.stream(addr, &[0; 64], Purpose::Data)),
            |pm: &Pm, addr| drop(pm.stream_zero(addr, 64, Purpose::Data)),
            |pm: &Pm, addr| drop(pm.stream_copy(addr, PmAddr::new(0, 0), 64, Purpose::Data)),
            |pm: &Pm, addr| drop(pm.write_back_range(addr, 64, Purpose::Data)),
        ] {
            panics(&format!("64 bytes at {addr} (raw"), move || store(&pool(), addr));
        }
    }
    panics("slot 0 of 2 has 4096 bytes", || {
        drop(pool().store_u64(PmAddr::new(0, 4096), 0, Purpose::Data));
    });
}

#[test]
fn unaligned_stores_and_overlapping_copies_are_bugs() {
    panics("0:0xc is not aligned to 8 bytes", || {
        drop(pool().store_u64(PmAddr::new(0, 12), 0, Purpose::Data));
    });
    panics("0:0x48 is not aligned to 64 bytes", || {
        drop(pool().store_line(PmAddr::new(0, 72), &[0; 64], Purpose::Data));
    });
    panics("0:0x48 is not aligned to 64 bytes", || {
        drop(pool().stream_line(PmAddr::new(0, 72), &[0; 64], Purpose::Data));
    });
    panics("the ranges overlap", || {
        let (to, from) = (PmAddr::new(0, 100), PmAddr::new(0, 163));
        drop(pool().stream_copy(to, from, 64, Purpose::Data));
    });
    let (to, from) = (PmAddr::new(0, 100), PmAddr::new(0, 164));
    let pm = pool();
    pm.fence(pm.stream_copy(to, from, 64, Purpose::Data).unwrap()).end();
    panics("the pool has no slot 2", || println!("{:?}", pool().slot_kind(2)));
}

#[test]
fn a_read_only_pool_is_loaded_and_never_stored() {
    fn read_only() -> Pm {
        let options = PmOptions { read_only: true, populate: true, ..PmOptions::default() };
        Pm::anonymous(&[4096], &options).unwrap()
    }
    let pm = read_only();
    assert!(pm.is_read_only());
    assert_eq!(pm.load_u64(PmAddr::new(0, 4088)), Ok(0));
    pm.fence(pm.write_back_range(PmAddr::new(0, 0), 4096, Purpose::Other)).end();
    for store in [
        |pm: &Pm| drop(pm.store(PmAddr::new(0, 0), &[0], Purpose::Data)),
        |pm: &Pm| drop(pm.store_u64(PmAddr::new(0, 0), 0, Purpose::Data)),
        |pm: &Pm| drop(pm.stream(PmAddr::new(0, 0), &[0; 64], Purpose::Data)),
    ] {
        panics("the pool is mapped read-only", move || store(&read_only()));
    }
}

#[test]
fn bytes_of_a_page_are_loaded_from_within_it_alone() {
    let pm = Pm::anonymous(&[3 * 4096], &PmOptions::default()).unwrap();
    let page = PmAddr::new(0, 4096);
    let stored = pm.store(page.add(4090), b"at the end", Purpose::Data);
    pm.fence(pm.write_back(stored)).end();
    let mut bytes = [0xff; 6];
    pm.load_in_page(page, 4090, &mut bytes).unwrap();
    assert_eq!(&bytes, b"at the");
    pm.load_in_page(page, 4096, &mut []).unwrap();
    for (page, from) in
        [(page, 4091), (page, 4097), (PmAddr::new(0, 3 * 4096), 0), (page, u64::MAX)]
    {
        let refused = pm.load_in_page(page, from, &mut [0; 6]);
        assert!(refused.is_err(), "{page} {from}");
    }
}
