//! Promise: who syncs a file makes durable what any client has stored to its own pages by a mapping, whether that
//! client lives, has died, or has left.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]

mod support;

use novale_arena::{Arena, PidInfo};
use novale_core::{
    Ctx, FileKind, Fs, HoldId, Ino, MkfsOptions, NewInode, Node, OpenOptions, Serial, mkfs,
};
use novale_layout::{LINE, PAGE};
use novale_pm::{Pm, PmOptions, Purpose, SlotLock, SlotSpec};
use support::{MB, verify};
use tempfile::NamedTempFile;

const CTX: Ctx = Ctx { now_ns: 1, hint: 0 };
const PAGES: u64 = 16;
/// All lines of the file.
const LINES: u64 = PAGES * PAGE / LINE;

/// A pool with a file of some pages, and two clients.
struct Bed {
    slot: NamedTempFile,
    arena: Arena,
    fs: Fs,
    file: (Ino, u32),
}

impl Bed {
    fn new() -> Self {
        let slot = NamedTempFile::new_in("/dev/shm").unwrap();
        slot.as_file().set_len(16 * MB).unwrap();
        mkfs(&pm(&slot, SlotLock::Exclusive), &MkfsOptions::numbered(1, 2)).unwrap();
        let arena = Arena::anonymous(64 * MB).unwrap();
        let (held, options) = (pm(&slot, SlotLock::Held), OpenOptions::default());
        let fs = Fs::open(held, arena.clone(), &options, &Serial, &|_| ()).unwrap();
        let kind = FileKind::File;
        let new = NewInode { kind, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
        let made = fs.create(&CTX, Node::ROOT, b"file", &new).unwrap();
        fs.write(&CTX, made.ino, 0, &vec![7; usize::try_from(PAGES * PAGE).unwrap()]).unwrap();
        Self { slot, arena, fs, file: (made.ino, made.generation) }
    }

    /// Another client: this process, or one that has ended.
    fn client(&self, lives: bool) -> Fs {
        let me = PidInfo::current();
        let process = if lives { me } else { PidInfo { start_time: u64::MAX, ..me } };
        let held = pm(&self.slot, SlotLock::Held);
        Fs::attach(held, &self.arena, &OpenOptions::default(), process).unwrap()
    }

    /// A hold of the file's pages.
    fn map(&self, fs: &Fs) -> HoldId {
        fs.map_hold(&CTX, self.file.0, self.file.1).unwrap().unwrap()
    }

    /// One by which its client may store to them.
    fn map_to_store(&self, fs: &Fs) -> HoldId {
        fs.hold_to_write(self.map(fs)).unwrap()
    }

    /// Lines of data that a client writes back in what it does.
    fn written_back(&self, does: impl FnOnce(&Fs)) -> u64 {
        written_back(&self.fs, does)
    }

    fn sync(&self) -> u64 {
        self.written_back(|fs| fs.sync(&CTX, self.file.0).unwrap())
    }

    fn ends(self) {
        self.fs.close().unwrap();
        verify(&self.fs.into_pm());
    }
}

fn pm(slot: &NamedTempFile, lock: SlotLock) -> Pm {
    let options = PmOptions { lock, ..PmOptions::default() };
    Pm::open(&[SlotSpec::new(slot.path())], &options).unwrap()
}

fn written_back(fs: &Fs, does: impl FnOnce(&Fs)) -> u64 {
    let count = || fs.pm().counters().of(Purpose::Data).write_backs;
    let before = count();
    does(fs);
    count() - before
}

#[test]
fn what_a_living_client_may_store_is_written_back_by_who_syncs() {
    let bed = Bed::new();
    let other = bed.client(true);
    assert_eq!(bed.sync(), 0, "nobody has it mapped");
    let hold = bed.map(&other);
    assert_eq!(bed.sync(), 0, "it can't be stored to");
    assert!(!bed.fs.is_held_to_write(bed.file.0).unwrap());
    let hold = other.hold_to_write(hold).unwrap();
    assert!(bed.fs.is_held_to_write(bed.file.0).unwrap(), "a program that is stored to");
    let mtime = bed.fs.getattr(bed.file.0).unwrap().mtime_ns;
    assert_eq!(bed.sync(), LINES);
    assert_eq!(bed.written_back(|fs| fs.sync_all(&CTX).unwrap()), LINES);
    assert_eq!(bed.fs.getattr(bed.file.0).unwrap().mtime_ns, mtime, "who syncs knows no time");
    // The one who has it mapped may know which pages it has stored to.
    let own = |sync: fn(&Fs, Ino)| written_back(&other, |fs| sync(fs, bed.file.0));
    assert_eq!(own(|fs, ino| fs.sync_beside(&CTX, ino).unwrap()), 0);
    assert_eq!(own(|fs, ino| fs.sync(&CTX, ino).unwrap()), LINES);
    assert_eq!(own(|fs, _| fs.sync_all(&CTX).unwrap()), LINES);
    // It has written back itself.
    let hold = other.hold_to_read(hold).unwrap();
    assert_eq!(bed.sync(), 0);
    assert!(!bed.fs.is_held_to_write(bed.file.0).unwrap());
    other.open_release(&CTX, hold).unwrap();
    other.close().unwrap();
    drop(other);
    bed.ends();
}

#[test]
fn what_a_dead_client_has_stored_is_written_back_before_its_hold_ends() {
    for settles_first in [false, true] {
        let bed = Bed::new();
        let dead = bed.client(false);
        bed.map_to_store(&dead);
        // As after SIGKILL: who holds something does not give its slot back.
        drop(dead);
        if !settles_first {
            assert_eq!(bed.sync(), LINES);
        }
        assert_eq!(bed.written_back(|fs| assert!(fs.settle_dead().unwrap() > 0)), LINES);
        assert_eq!(bed.sync(), 0, "nothing is left to be written back");
        bed.ends();
    }
}

#[test]
fn what_a_client_has_stored_is_written_back_as_it_leaves() {
    let bed = Bed::new();
    let leaves = bed.client(true);
    bed.map_to_store(&leaves);
    assert_eq!(written_back(&leaves, |fs| fs.close().unwrap()), LINES);
    drop(leaves);
    assert_eq!(bed.sync(), 0);
    bed.ends();
}
