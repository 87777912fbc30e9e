//! Of a client that leaves with a file open that can't be read any more.

use novale_arena::{Arena, PidInfo};
use novale_core::*;
use novale_pm::{Pm, PmOptions, SlotLock, SlotSpec};
use tempfile::NamedTempFile;

use crate::pools::*;

/// Two clients of one pool, whose views go as soon as nobody needs them, and the pool's memory.
fn two_clients() -> (Fs, Fs, Pm) {
    let slot = NamedTempFile::new_in("/dev/shm").unwrap();
    slot.as_file().set_len(16 * MB).unwrap();
    let pm = || {
        let options = PmOptions { lock: SlotLock::Held, ..PmOptions::default() };
        Pm::open(&[SlotSpec::new(slot.path())], &options).unwrap()
    };
    let options = MkfsOptions { pool_uuid: UUID, ..MkfsOptions::numbered(1, 1) };
    mkfs(&pm(), &options).unwrap();
    fill(pm());
    let arena = Arena::anonymous(16 * MB).unwrap();
    let options = OpenOptions { index_bytes: Some(0), ..OpenOptions::default() };
    let one = Fs::open(pm(), arena.clone(), &options, &Serial, &|_| ()).unwrap();
    let other = Fs::attach(pm(), &arena, &options, PidInfo::current()).unwrap();
    (one, other, pm())
}

fn hold(fs: &Fs, ino: Ino) -> HoldId {
    let generation = fs.getattr(ino).unwrap().generation;
    fs.open_hold(&ctx(), ino, generation).unwrap().unwrap()
}

fn damage(fs: &Fs, pm: &Pm, ino: Ino) {
    for other in 0..200 {
        // Its view goes with those of others.
        fs.create(&ctx(), Node::ROOT, format!("{other}").as_bytes(), &new(FileKind::File)).unwrap();
    }
    put(pm, place(pm, ino), &[0x5A; 256]);
    assert!(matches!(fs.getattr(ino), Err(Error::Damaged { .. })));
}

/// It kept all that the client had open beside it, and the pool from being closed: each opening from then
/// on was a recovery, which refuses a pool with damage.
#[test]
fn who_has_it_open_gives_all_else_back_and_closes_the_pool() {
    let (fs, other, pm) = two_clients();
    let gone = fs.create(&ctx(), Node::ROOT, b"gone", &new(FileKind::File)).unwrap().ino;
    for fs in [&fs, &other] {
        hold(fs, FILE);
    }
    hold(&other, gone);
    fs.unlink(&ctx(), Node::ROOT, b"gone").unwrap();
    assert_eq!(fs.getattr(gone).unwrap().nlink, 0);
    damage(&fs, &pm, FILE);
    other.close().unwrap();
    assert!(matches!(fs.getattr(gone), Err(Error::Stale)));
    fs.close().unwrap();
    // Closed clean: it is opened for writing with the damage.
    drop((fs, other));
    let fs = try_open(pm).unwrap();
    assert!(matches!(fs.getattr(FILE), Err(Error::Damaged { .. })));
}
