//! The promise: a slot of a pool that several clients use can be emptied beside their work. None of them takes
//! a page there from when it is said to leave, none of them misses a byte, and what then is left there are
//! pages of inodes and lanes alone. Said to stay, it is used as before.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at what fails")]

mod support;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use novale_arena::{Arena, PidInfo};
use novale_core::{
    BufferRules, Ctx, EmptyRound, Fs, Ino, MkfsOptions, Mode, NewInode, Node, OpenOptions,
    Placement, PoolInfo, Serial, SetXattr, UpdatePolicy, XattrMode, inspect, live_free, mkfs,
    remove_last_slot,
};
use novale_layout::{FileKind, PAGE};
use novale_pm::{Pm, PmOptions, SlotLock, SlotSpec};
use support::{MB, verify};
use tempfile::TempDir;

const CTX: Ctx = Ctx { now_ns: 5, hint: 0 };
const LAST: u8 = 2;

/// Slots in files, which several clients map.
struct Slots {
    dir: TempDir,
    arena: Arena,
    info: PoolInfo,
    options: OpenOptions,
}

impl Slots {
    fn new(lens: [u64; 3], update: UpdatePolicy, mode: Option<Mode>) -> Self {
        let dir = tempfile::Builder::new().prefix("slw.").tempdir_in("/dev/shm").unwrap();
        let buffer_rules = BufferRules { has_model: false, ..BufferRules::default() };
        let update = Some(update);
        let options = OpenOptions {
            placement: Placement::Lanes,
            update,
            mode,
            buffer_rules,
            now_ns: 2,
            ..OpenOptions::default()
        };
        for (slot, len) in lens.into_iter().enumerate() {
            let file = std::fs::File::create(dir.path().join(slot.to_string())).unwrap();
            file.set_len(len).unwrap();
        }
        let arena = Arena::anonymous(128 * MB).unwrap();
        let pm = map(&dir, 3);
        mkfs(&pm, &MkfsOptions::numbered(3, 6)).unwrap();
        Self { info: inspect(&pm).unwrap(), dir, arena, options }
    }

    /// One that opens the pool, and one that joins it.
    fn clients(&self) -> [Fs; 2] {
        let arena = self.arena.clone();
        let first = Fs::open(map(&self.dir, 3), arena, &self.options, &Serial, &|_| ()).unwrap();
        let me = PidInfo::current();
        let second = Fs::attach(map(&self.dir, 3), &self.arena, &self.options, me).unwrap();
        [first, second]
    }

    /// Free pages of the slot that leaves.
    fn free(&self) -> u64 {
        live_free(&self.arena, &self.info).unwrap().unwrap()[usize::from(LAST)]
    }
}

fn map(dir: &TempDir, slots: usize) -> Pm {
    let paths: Vec<PathBuf> = (0..slots).map(|slot| dir.path().join(slot.to_string())).collect();
    let specs: Vec<SlotSpec> = paths.iter().map(SlotSpec::new).collect();
    Pm::open(&specs, &PmOptions { lock: SlotLock::Held, ..PmOptions::default() }).unwrap()
}

fn ctx(number: u64) -> Ctx {
    Ctx { hint: u32::try_from(number).unwrap(), ..CTX }
}

fn make(fs: &Fs, number: u64, dir: Ino, name: &str, kind: FileKind) -> Ino {
    let new = NewInode { kind, mode: 0o755, uid: 0, gid: 0, rdev: 0, target: b"" };
    fs.create(&ctx(number), Node::current(dir), name.as_bytes(), &new).unwrap().ino
}

fn contents(number: u64, round: u64) -> Vec<u8> {
    let len = 1000 + number * 1700;
    (0..len).map(|at| u8::try_from((at * 7 + number + round * 13) % 251).unwrap()).collect()
}

/// Files that were written whole and then over in pieces, in directories, with extended attributes.
fn fill(fs: &Fs) -> Vec<Ino> {
    let file = |number| {
        let dir = make(fs, number, Ino::ROOT, &format!("d{number}"), FileKind::Directory);
        let ino = make(fs, number, dir, "file", FileKind::File);
        fs.write(&ctx(number), ino, 0, &vec![9; contents(number, 0).len()]).unwrap();
        write(fs, number, ino, 0);
        let value = &[3; 9000];
        let (mode, clear_set_gid) = (XattrMode::Any, false);
        let set = SetXattr { name: b"user.long", value, mode, clear_set_gid };
        fs.setxattr(&ctx(number), Node::current(ino), &set).unwrap();
        ino
    };
    (0..40).map(file).collect()
}

fn write(fs: &Fs, number: u64, ino: Ino, round: u64) {
    for (at, bytes) in (0..).step_by(700).zip(contents(number, round).chunks(700)) {
        fs.write(&ctx(number), ino, at, bytes).unwrap();
    }
}

fn judge(fs: &Fs, number: u64, ino: Ino, round: u64) {
    let mut read = vec![0; contents(number, round).len() + 1];
    let len = fs.read(&ctx(number), ino, 0, &mut read).unwrap();
    assert!(read[..len] == contents(number, round), "file {number}");
    let found = fs.lookup(&CTX, Node::ROOT, format!("d{number}").as_bytes()).unwrap().ino;
    assert_eq!(fs.lookup(&CTX, Node::current(found), b"file").unwrap().ino, ino);
    assert_eq!(fs.getxattr(Node::current(ino), b"user.long").unwrap(), [3; 9000]);
}

fn leave(fs: &Fs) {
    let room = fs.begin_leaving(&CTX, LAST, Some(LAST)).unwrap();
    assert!(room.is_enough(), "{room:?}");
}

/// Rounds until one moves nothing.
fn empty(fs: &Fs) -> (u64, EmptyRound) {
    let mut moved = 0;
    loop {
        let round = fs.empty_round(&CTX, LAST, &mut |_| true).unwrap();
        moved += round.moved;
        if round.moved == 0 && !fs.is_in_hand(LAST).unwrap() {
            return (moved, round);
        }
    }
}

/// Takes the slot out without a further look at any inode.
fn take_out(slots: &Slots, clients: [Fs; 2]) {
    let [first, second] = clients;
    second.close().unwrap();
    first.close().unwrap();
    drop((first, second));
    let pm = map(&slots.dir, 3);
    verify(&pm);
    remove_last_slot(&pm, &Serial, &|_| ()).unwrap();
    drop(pm);
    verify(&map(&slots.dir, 2));
}

#[test]
fn no_client_takes_a_page_there() {
    let slots = Slots::new([16 * MB, 8 * MB, 8 * MB], UpdatePolicy::Auto, None);
    let [first, second] = slots.clients();
    let files = fill(&second);
    let there = slots.free();
    leave(&first);
    let mut free = slots.free();
    assert!(free >= there && free < 8 * MB / PAGE);
    // Each record has a page at hand, and each lane pages that were freed before.
    for round in 1..4 {
        for (number, ino) in (0..).zip(&files) {
            let fs = if (number + round) % 2 == 0 { &first } else { &second };
            write(fs, number, *ino, round);
            make(fs, number, Ino::ROOT, &format!("new {round} {number}"), FileKind::File);
            assert!(slots.free() >= free, "taken there in round {round}");
            free = slots.free();
        }
    }
    let told = first.statfs().unwrap().pages_free;
    assert_eq!(told, second.statfs().unwrap().pages_free);
    let elsewhere: u64 = live_free(&slots.arena, &slots.info).unwrap().unwrap()[..2].iter().sum();
    assert!(told < elsewhere + 2000, "{told} pages are called free, {elsewhere} are");
    first.end_leaving(&CTX, LAST).unwrap();
    let large = make(&second, 5, Ino::ROOT, "large", FileKind::File);
    second.write(&ctx(5), large, 0, &vec![1; 4 << 20]).unwrap();
    assert!(slots.free() < free, "it stays, and is not used");
    second.unlink(&CTX, Node::ROOT, b"large").unwrap();
    leave(&second);
    empty(&second);
    (0..).zip(&files).for_each(|(number, ino)| judge(&first, number, *ino, 3));
    take_out(&slots, [first, second]);
}

/// Files whose numbers are all there is, each with a page in each slot.
#[test]
fn no_file_is_passed_by() {
    let slots = Slots::new([16 * MB, 8 * MB, 8 * MB], UpdatePolicy::Auto, None);
    let [first, second] = slots.clients();
    let numbers = (0..130).map(|number| {
        let ino = make(&first, 0, Ino::ROOT, &format!("f{number}"), FileKind::File);
        for lane in 0..6 {
            first.write(&ctx(lane), ino, lane * PAGE, &[1; 4096]).unwrap();
        }
        ino.get()
    });
    let numbers: BTreeSet<u64> = numbers.collect();
    let in_a_word = |number: &u64| (0..64).all(|bit| numbers.contains(&(number + bit)));
    assert!((64..4096).step_by(64).any(|number| in_a_word(&number)), "{numbers:?}");
    leave(&first);
    empty(&first);
    take_out(&slots, [first, second]);
}

/// Writes every other file anew, round by round, until it is over; the last round.
fn write_half(fs: &Fs, files: &[Ino], half: u64, is_over: &AtomicBool) -> u64 {
    let mut round = 1;
    loop {
        for (number, ino) in (0..).zip(files).filter(|(number, _)| number % 2 == half) {
            write(fs, number, *ino, round);
            judge(fs, number, *ino, round);
        }
        if is_over.load(Ordering::Acquire) {
            return round;
        }
        round += 1;
    }
}

#[test]
fn it_is_emptied_beside_other_clients_work() {
    for update in [UpdatePolicy::Auto, UpdatePolicy::Lawn, UpdatePolicy::FineLog] {
        let slots = Slots::new([16 * MB, 16 * MB, 8 * MB], update, None);
        let [first, second] = slots.clients();
        let files = fill(&second);
        let is_over = AtomicBool::new(false);
        leave(&first);
        let rounds = thread::scope(|scope| {
            let work = |half| {
                let (second, files, is_over) = (&second, &files, &is_over);
                move || write_half(second, files, half, is_over)
            };
            let workers = [0, 1].map(|half| scope.spawn(work(half)));
            let mut moved = 0;
            for _ in 0..3 {
                moved += first.empty_round(&CTX, LAST, &mut |_| true).unwrap().moved;
            }
            is_over.store(true, Ordering::Release);
            assert!(moved > 0);
            workers.map(|worker| worker.join().unwrap())
        });
        empty(&first);
        for (number, ino) in (0..).zip(&files) {
            judge(&first, number, *ino, rounds[usize::try_from(number % 2).unwrap()]);
        }
        take_out(&slots, [first, second]);
    }
}

#[test]
fn what_is_buffered_mapped_or_removed_is_kept() {
    let slots = Slots::new([16 * MB, 8 * MB, 8 * MB], UpdatePolicy::Auto, Some(Mode::Buffered));
    let [first, second] = slots.clients();
    let files = fill(&second);
    for (number, ino) in (0..).zip(&files) {
        second.sync(&ctx(number), *ino).unwrap();
    }
    // Mapped by a client: its pages stay where they are, and it is named by its count.
    let mapped = files[34];
    let generation = second.getattr(mapped).unwrap().generation;
    let map = second.map_hold(&CTX, mapped, generation).unwrap().unwrap();
    let runs = second.map_pages(&CTX, map, 0, 1000).unwrap();
    assert!(runs.iter().any(|run| run.addr.slot() == LAST), "none of it lies there");
    // Removed, and open.
    let removed = files[35];
    let generation = second.getattr(removed).unwrap().generation;
    let open = second.open_hold(&CTX, removed, generation).unwrap().unwrap();
    let dir = second.lookup(&CTX, Node::ROOT, b"d35").unwrap().ino;
    second.unlink(&CTX, Node::current(dir), b"file").unwrap();
    // Buffered beyond what the pool has of it.
    first.sync(&CTX, files[29]).unwrap();
    second.append(&CTX, files[29], &[8; 5000]).unwrap();
    leave(&first);
    let (moved, round) = empty(&first);
    assert!(moved > 0 && round.mapped == 1, "{moved} pages, {round:?}");
    assert_eq!(round.mapped_files, [mapped]);
    assert_eq!(first.mapped_by(mapped).unwrap(), [std::process::id()]);
    assert_eq!(first.mapped_by(removed).unwrap(), [], "it is open, and not mapped");
    assert_eq!(second.map_pages(&CTX, map, 0, 1000).unwrap(), runs);
    let mut read = vec![0; contents(35, 0).len()];
    second.read(&CTX, removed, 0, &mut read).unwrap();
    assert!(read == contents(35, 0));
    second.open_release(&CTX, open).unwrap();
    second.open_release(&CTX, map).unwrap();
    let (moved, round) = empty(&second);
    assert!(moved > 0 && round.mapped == 0, "{moved} pages, {round:?}");
    let mut read = vec![0; contents(29, 0).len() + 5000];
    first.read(&CTX, files[29], 0, &mut read).unwrap();
    assert!(read == [contents(29, 0), vec![8; 5000]].concat());
    for (number, ino) in (0..).zip(&files).filter(|(number, _)| ![29, 35].contains(number)) {
        judge(&first, number, *ino, 0);
    }
    take_out(&slots, [first, second]);
}

#[test]
fn where_the_others_have_no_room_it_stays() {
    let slots = Slots::new([4 * MB, MB, 16 * MB], UpdatePolicy::Auto, None);
    let [first, second] = slots.clients();
    let large = make(&second, 0, Ino::ROOT, "large", FileKind::File);
    second.write(&CTX, large, 0, &vec![1; 12 << 20]).unwrap();
    let room = first.begin_leaving(&CTX, LAST, Some(LAST)).unwrap();
    assert!(!room.is_enough() && room.free < room.used, "{room:?}");
    assert_eq!(first.leaving_slot(), None);
    assert!(!inspect(first.pm()).unwrap().slots[usize::from(LAST)].is_leaving);
    assert!(
        first.begin_leaving(&CTX, 1, None).is_err() && first.begin_leaving(&CTX, 3, None).is_err()
    );
    second.close().unwrap();
    first.close().unwrap();
}
