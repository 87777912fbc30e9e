//! Of a client that died: what it had locked and can't be read any more.

use std::sync::Arc;
use std::thread::spawn;

use novale_arena::{Arena, PidInfo};
use novale_core::*;
use novale_pm::{Observer, Pm, PmOptions, SlotLock, SlotSpec};
use tempfile::NamedTempFile;

use crate::pools::*;
use crate::stop::StopAt;

/// A client in good health, beside one that died in an append to `f`, and the pool's memory.
fn dies_in_an_append() -> (Fs, Pm) {
    let slot = NamedTempFile::new_in("/dev/shm").unwrap();
    slot.as_file().set_len(16 * MB).unwrap();
    let pm = |observer| {
        let options = PmOptions { lock: SlotLock::Held, observer, ..PmOptions::default() };
        Pm::open(&[SlotSpec::new(slot.path())], &options).unwrap()
    };
    let options = MkfsOptions { pool_uuid: UUID, ..MkfsOptions::numbered(1, 1) };
    mkfs(&pm(None), &options).unwrap();
    fill(pm(None));
    let (arena, options) = (Arena::anonymous(16 * MB).unwrap(), OpenOptions::default());
    let fs = Fs::open(pm(None), arena.clone(), &options, &Serial, &|_| ()).unwrap();
    let stop = StopAt::new(u64::MAX);
    let observer = Some(stop.clone() as Arc<dyn Observer>);
    let dead = PidInfo { start_time: u64::MAX, ..PidInfo::current() };
    let dying = Fs::attach(pm(observer), &arena, &options, dead).unwrap();
    // Two events say that the pool is in use, and lock nothing.
    stop.set(2);
    let thread = spawn(move || {
        dying.append(&ctx(), FILE, &[3; 100]).unwrap();
    });
    assert!(stop.stops(&thread));
    (fs, pm(None))
}

#[test]
fn an_inode_of_a_dead_client_is_told_each_time() {
    let (fs, pm) = dies_in_an_append();
    put(&pm, place(&pm, FILE), &[0x5A; 256]);
    for _ in 0..2 {
        let error = fs.settle_dead().unwrap_err();
        assert!(error.to_string().contains("inode 3 identity line"), "{error}");
    }
    // Other files have nothing to do with it.
    let x = fs.lookup(&ctx(), Node::current(DIR), b"x").unwrap();
    fs.append(&ctx(), x.ino, &[4; 100]).unwrap();
}

/// What did not arrive goes, and the client with it.
#[test]
fn without_damage_it_is_settled_for() {
    let (fs, _) = dies_in_an_append();
    assert_eq!(fs.settle_dead().unwrap(), 1);
    assert_eq!(fs.getattr(FILE).unwrap().size, 5000);
}
