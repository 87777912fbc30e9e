//! Promise: an inode without names stays as long as a client has it open, and goes with the client,
//! however that ends.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]

mod support;

use novale_arena::{Arena, PidInfo};
use novale_core::{
    Ctx, Error, FileKind, Fs, Ino, MkfsOptions, NewInode, Node, OpenOptions, Serial, SetAttr,
    Unnamed, mkfs,
};
use novale_pm::{Pm, PmOptions, SlotLock, SlotSpec};
use tempfile::NamedTempFile;

const CTX: Ctx = Ctx { now_ns: 1, hint: 0 };
const BYTES: u64 = 1 << 20;

/// A pool in a file, that several clients of this process map.
struct Bed {
    slot: NamedTempFile,
    arena: Arena,
    fs: Fs,
}

impl Bed {
    fn new() -> Self {
        let slot = NamedTempFile::new_in("/dev/shm").unwrap();
        slot.as_file().set_len(64 << 20).unwrap();
        let pm = |lock| {
            let options = PmOptions { lock, ..PmOptions::default() };
            Pm::open(&[SlotSpec::new(slot.path())], &options).unwrap()
        };
        mkfs(&pm(SlotLock::Exclusive), &MkfsOptions::numbered(1, 4)).unwrap();
        let arena = Arena::anonymous(64 << 20).unwrap();
        let pm = pm(SlotLock::Held);
        let fs = Fs::open(pm, arena.clone(), &OpenOptions::default(), &Serial, &|_| ()).unwrap();
        Self { slot, arena, fs }
    }

    /// Another client: this process, or one that has ended.
    fn client(&self, lives: bool) -> Fs {
        let me = PidInfo::current();
        let process = if lives { me } else { PidInfo { start_time: u64::MAX, ..me } };
        let options = PmOptions { lock: SlotLock::Held, ..PmOptions::default() };
        let pm = Pm::open(&[SlotSpec::new(self.slot.path())], &options).unwrap();
        Fs::attach(pm, &self.arena, &OpenOptions::default(), process).unwrap()
    }

    /// A file of 1 MB, by number and generation.
    fn file(&self, name: &[u8]) -> (Ino, u32) {
        let kind = FileKind::File;
        let new = NewInode { kind, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
        let made = self.fs.create(&CTX, Node::ROOT, name, &new).unwrap();
        let size = Some(BYTES);
        self.fs.setattr(&CTX, made.node(), &SetAttr { size, ..SetAttr::default() }).unwrap();
        self.fs.write(&CTX, made.ino, 0, &vec![7; usize::try_from(BYTES).unwrap()]).unwrap();
        (made.ino, made.generation)
    }

    fn free(&self) -> u64 {
        self.fs.statfs().unwrap().pages_free
    }
}

#[test]
fn a_released_file_goes_with_the_last_hold_of_whichever_client() {
    let bed = Bed::new();
    let before = bed.free();
    let (ino, generation) = bed.file(b"file");
    let other = bed.client(true);
    let [mine, theirs] =
        [&bed.fs, &other].map(|fs| fs.open_hold(&CTX, ino, generation).unwrap().unwrap());
    assert_eq!(other.open_hold(&CTX, ino, generation + 1).unwrap(), None);
    bed.fs.unlink(&CTX, Node::ROOT, b"file").unwrap();
    bed.fs.open_release(&CTX, mine).unwrap();
    assert_eq!(other.getattr(ino).unwrap().nlink, 0);
    other.open_release(&CTX, theirs).unwrap();
    assert!(matches!(other.getattr(ino), Err(Error::Stale)));
    assert_eq!(other.open_hold(&CTX, ino, generation).unwrap(), None);
    assert!(before.abs_diff(bed.free()) < BYTES / 4096 / 2);
    other.close().unwrap();
}

/// Nobody has to tell a kernel of what happens to a file that it has forgotten, nor asks it for the bytes.
#[test]
fn what_nobody_holds_no_kernel_knows_or_maps() {
    let bed = Bed::new();
    let (ino, _) = bed.file(b"file");
    let is_known = |fs: &Fs| fs.is_known_to_kernel(&CTX, ino).unwrap();
    assert!(!is_known(&bed.fs));
    bed.fs.hold(ino).unwrap();
    bed.fs.hold(ino).unwrap();
    bed.fs.set_mapped(&CTX, ino, true).unwrap();
    let other = bed.client(true);
    other.refuse_mapped();
    bed.fs.release(&CTX, ino, 1).unwrap();
    assert!(is_known(&other));
    assert!(matches!(other.write(&CTX, ino, 0, b"x"), Err(Error::Mapped)));
    bed.fs.release(&CTX, ino, 1).unwrap();
    assert!(!is_known(&other));
    other.write(&CTX, ino, 0, b"x").unwrap();
}

#[test]
fn a_file_that_is_open_as_it_is_made_goes_with_its_one_hold() {
    let bed = Bed::new();
    let kind = FileKind::File;
    let new = NewInode { kind, mode: 0o666, uid: 0, gid: 0, rdev: 0, target: b"" };
    let create = |name: &[u8]| bed.fs.create_held(&CTX, Node::ROOT, name, &new, 0o022);
    let (made, hold) = create(b"file").unwrap();
    assert_eq!((made.mode, made.nlink, hold.ino()), (0o644, 1, made.ino));
    assert!(matches!(create(b"file"), Err(Error::Exists)));
    bed.fs.unlink(&CTX, Node::ROOT, b"file").unwrap();
    bed.fs.write(&CTX, made.ino, 0, b"held").unwrap();
    bed.fs.open_release(&CTX, hold).unwrap();
    assert!(matches!(bed.fs.getattr(made.ino), Err(Error::Stale)));
    // The word of the one that was refused serves again.
    let (again, hold) = create(b"file").unwrap();
    bed.fs.open_release(&CTX, hold).unwrap();
    assert!(matches!(bed.fs.release(&CTX, again.ino, 1), Err(Error::Invalid(_))));
    bed.fs.close().unwrap();
}

#[test]
fn what_a_dead_client_had_open_is_closed_for_it() {
    let bed = Bed::new();
    let (named, nameless) = (bed.file(b"named"), bed.file(b"nameless"));
    let before = bed.free();
    let dead = bed.client(false);
    for (ino, generation) in [named, nameless, nameless] {
        dead.open_hold(&CTX, ino, generation).unwrap().unwrap();
    }
    let mine = bed.fs.open_hold(&CTX, named.0, named.1).unwrap().unwrap();
    bed.fs.unlink(&CTX, Node::ROOT, b"nameless").unwrap();
    assert!(bed.free() <= before);
    // As after SIGKILL: who holds something does not give its slot back.
    drop(dead);
    assert_eq!(bed.fs.clients(), 2);
    assert_eq!(bed.fs.settle_dead().unwrap(), 1);
    assert_eq!(bed.fs.settle_dead().unwrap(), 0, "nobody is left to be settled for");
    assert_eq!(bed.fs.clients(), 1);
    assert!(matches!(bed.fs.getattr(nameless.0), Err(Error::Stale)));
    assert!(bed.free() >= before + BYTES / 4096);
    // One hold is left of the other file, and it is the living one's.
    bed.fs.open_release(&CTX, mine).unwrap();
    assert!(matches!(bed.fs.open_release(&CTX, mine), Err(Error::Invalid(_))));
    assert!(matches!(bed.fs.release(&CTX, named.0, 1), Err(Error::Invalid(_))));
    bed.fs.close().unwrap();
}

/// A file without a name was held by nobody in particular until its client held it: one that died in between left it
/// there until all had left the pool.
#[test]
fn a_file_without_a_name_goes_with_its_one_hold() {
    let bed = Bed::new();
    let before = bed.free();
    let kind = FileKind::File;
    let new = NewInode { kind, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    let how = Unnamed { may_be_named: true, umask: 0o022 };
    let make = |fs: &Fs| {
        let (made, held) = fs.create_unnamed_held(&CTX, Node::ROOT, &new, how).unwrap();
        fs.write(&CTX, made.ino, 0, &vec![7; usize::try_from(BYTES).unwrap()]).unwrap();
        assert_eq!(fs.getattr(made.ino).unwrap().nlink, 0);
        (made.ino, held)
    };
    let (ino, held) = make(&bed.fs);
    bed.fs.open_release(&CTX, held).unwrap();
    assert!(matches!(bed.fs.getattr(ino), Err(Error::Stale)));
    let dead = bed.client(false);
    let (ino, _held) = make(&dead);
    drop(dead);
    assert_eq!(bed.fs.settle_dead().unwrap(), 1);
    assert!(matches!(bed.fs.getattr(ino), Err(Error::Stale)));
    assert!(before.abs_diff(bed.free()) < BYTES / 4096 / 2);
    bed.fs.close().unwrap();
}

#[test]
fn a_client_that_leaves_closes_what_it_has_open() {
    let bed = Bed::new();
    let (ino, generation) = bed.file(b"file");
    let other = bed.client(true);
    for _ in 0..1000 {
        other.open_hold(&CTX, ino, generation).unwrap().unwrap();
    }
    bed.fs.unlink(&CTX, Node::ROOT, b"file").unwrap();
    assert_eq!(bed.fs.getattr(ino).unwrap().nlink, 0);
    other.close().unwrap();
    assert!(matches!(bed.fs.getattr(ino), Err(Error::Stale)));
    drop(other);
    assert_eq!(bed.fs.clients(), 1);
}

/// The slot's next client takes the same words. A process that had left the pool and come again, or that was forked,
/// closed by what it had from before a file that it had opened since.
#[test]
fn a_hold_is_given_up_by_its_own_client_alone() {
    let bed = Bed::new();
    let (ino, generation) = bed.file(b"file");
    let left = bed.client(true);
    let old = left.open_hold(&CTX, ino, generation).unwrap().unwrap();
    left.close().unwrap();
    drop(left);
    let next = bed.client(true);
    let hold = next.open_hold(&CTX, ino, generation).unwrap().unwrap();
    bed.fs.unlink(&CTX, Node::ROOT, b"file").unwrap();
    assert!(matches!(next.open_release(&CTX, old), Err(Error::Invalid(_))));
    let beside = bed.client(true);
    assert!(matches!(beside.open_release(&CTX, hold), Err(Error::Invalid(_))));
    assert_eq!(bed.fs.getattr(ino).unwrap().nlink, 0);
    next.open_release(&CTX, hold).unwrap();
    assert!(matches!(bed.fs.getattr(ino), Err(Error::Stale)));
    beside.close().unwrap();
    next.close().unwrap();
}

/// Programs that are killed leave their slots to a client that needs one next.
#[test]
fn more_clients_come_than_there_is_room_for_when_others_have_died() {
    let bed = Bed::new();
    let (ino, generation) = bed.file(b"file");
    for _ in 0..500 {
        let dead = bed.client(false);
        dead.open_hold(&CTX, ino, generation).unwrap().unwrap();
        drop(dead);
    }
    let living: Vec<Fs> = (0..300).map(|_| bed.client(true)).collect();
    assert!(living.iter().all(|fs| fs.getattr(ino).is_ok()));
    bed.fs.settle_dead().unwrap();
    assert_eq!(bed.fs.clients(), 301);
    for fs in living {
        fs.close().unwrap();
    }
    assert!(matches!(bed.fs.release(&CTX, ino, 1), Err(Error::Invalid(_))));
}

#[test]
fn threads_hold_and_release_beside_each_other() {
    let bed = Bed::new();
    let files: Vec<_> = (0..4_u8).map(|index| bed.file(&[b'a' + index])).collect();
    let other = bed.client(true);
    std::thread::scope(|scope| {
        for (hint, fs) in (0..8_u32).zip([&bed.fs, &other].into_iter().cycle()) {
            let files = &files;
            scope.spawn(move || {
                let ctx = Ctx { now_ns: 1, hint };
                let mut held = Vec::new();
                for round in 0..2000_usize {
                    let (ino, generation) = files[round * 7 % files.len()];
                    held.push(fs.open_hold(&ctx, ino, generation).unwrap().unwrap());
                    if round % 3 == 2 {
                        fs.open_release(&ctx, held.swap_remove(round % held.len())).unwrap();
                    }
                }
                for hold in held {
                    fs.open_release(&ctx, hold).unwrap();
                }
            });
        }
    });
    for (ino, _) in files {
        assert!(matches!(bed.fs.release(&CTX, ino, 1), Err(Error::Invalid(_))));
    }
    other.close().unwrap();
}
