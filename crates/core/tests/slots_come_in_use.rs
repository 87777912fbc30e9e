//! The promise: a slot is added to a pool that is in use, beside the work of its client's threads, and pages are
//! taken there at once. Who joins has it; while another client has the pool open, which would not, nothing is done.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at what fails")]

mod support;

use std::os::unix::fs::{FileExt, MetadataExt};
use std::panic::Location;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use novale_arena::{Arena, PidInfo};
use novale_core::{
    Ctx, EmptyState, Error, Fs, Ino, MkfsOptions, NewInode, NewSlot, Node, OfferedSlot,
    OpenOptions, Placement, Serial, SlotAsk, ask_of_slots, has_come, inspect, live_free, mkfs,
    room_to_leave, slot_waits, slots_asked, withdraw_slot_ask,
};
use novale_layout::{FileKind, PmAddr, SLOT_STATE_OFFSETS};
use novale_pm::{
    Observer, Pm, PmOptions, Purpose, SPARE_SLOTS, SlotLock, SlotSpec, StoreEvent,
    survive_failing_slots,
};
use support::{MB, verify};
use tempfile::TempDir;

const CTX: Ctx = Ctx { now_ns: 5, hint: 0 };

/// Slots in files; the first two are the pool.
struct Slots {
    dir: TempDir,
    arena: Arena,
}

impl Slots {
    fn new(count: usize) -> Self {
        let dir = tempfile::Builder::new().prefix("slc.").tempdir_in("/dev/shm").unwrap();
        for slot in 0..count {
            let file = std::fs::File::create(dir.path().join(slot.to_string())).unwrap();
            // More ranges than one group has, in the first that comes.
            file.set_len(if slot == 2 { 150 * MB } else { 8 * MB }).unwrap();
        }
        let slots = Self { dir, arena: Arena::anonymous(128 * MB).unwrap() };
        mkfs(&slots.map(0..2), &MkfsOptions::numbered(2, 6)).unwrap();
        slots
    }

    fn map(&self, slots: std::ops::Range<usize>) -> Pm {
        let path = |slot: usize| self.dir.path().join(slot.to_string());
        let paths: Vec<PathBuf> = slots.map(path).collect();
        let specs: Vec<SlotSpec> = paths.iter().map(SlotSpec::new).collect();
        Pm::open(&specs, &PmOptions { lock: SlotLock::Held, ..PmOptions::default() }).unwrap()
    }

    fn open(&self, count: usize, placement: Placement) -> Fs {
        let options = OpenOptions { placement, now_ns: 2, ..OpenOptions::default() };
        Fs::open(self.map(0..count), self.arena.clone(), &options, &Serial, &|_| ()).unwrap()
    }

    fn attach(&self, count: usize) -> Result<Fs, Error> {
        let options = OpenOptions::of_arena(&self.arena);
        Fs::attach(self.map(0..count), &self.arena, &options, PidInfo::current())
    }

    /// One that waits for its place, mapped alone.
    fn waiting(&self, count: usize) -> Pm {
        let pm = self.map(count..count + 1);
        let uuid = [u8::try_from(count).unwrap(); 16];
        slot_waits(&self.map(0..count), &NewSlot { pm: &pm, uuid, endurance: 0 }).unwrap();
        pm
    }

    fn add(&self, fs: &Fs, count: usize) -> Option<u8> {
        fs.add_slot(&CTX, self.waiting(count), None).unwrap()
    }

    fn free(&self, count: usize) -> Vec<u64> {
        let info = inspect(&self.map(0..count)).unwrap();
        live_free(&self.arena, &info).unwrap().unwrap()
    }
}

fn ctx(number: u64) -> Ctx {
    Ctx { hint: u32::try_from(number).unwrap(), ..CTX }
}

fn make(fs: &Fs, number: u64) -> Ino {
    let new = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    fs.create(&ctx(number), Node::ROOT, format!("f{number}").as_bytes(), &new).unwrap().ino
}

fn contents(number: u64, round: u64) -> Vec<u8> {
    (0..100_000u64).map(|at| u8::try_from((at * 7 + number + round * 13) % 251).unwrap()).collect()
}

fn judge(fs: &Fs, files: &[(Ino, u64, u64)]) {
    for (ino, number, round) in files {
        let mut read = vec![0; 100_001];
        let len = fs.read(&CTX, *ino, 0, &mut read).unwrap();
        assert!(read[..len] == contents(*number, *round), "file {number}");
    }
}

#[test]
fn threads_that_write_use_it_at_once() {
    for placement in [Placement::Wasa, Placement::Lanes] {
        let slots = Slots::new(3);
        let fs = slots.open(2, placement);
        let (before, is_over) = (fs.statfs().unwrap().pages, AtomicBool::new(false));
        let files: Vec<(Ino, u64, u64)> = thread::scope(|scope| {
            let work = |number: u64| {
                let (fs, is_over) = (&fs, &is_over);
                move || {
                    let (ino, mut round) = (make(fs, number), 0);
                    while round < 20 || !is_over.load(Ordering::Acquire) {
                        round += 1;
                        fs.write(&ctx(number), ino, 0, &contents(number, round)).unwrap();
                    }
                    (ino, number, round)
                }
            };
            let threads: Vec<_> = (0..4).map(|number| scope.spawn(work(number))).collect();
            assert_eq!(slots.add(&fs, 2), Some(2));
            is_over.store(true, Ordering::Release);
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        judge(&fs, &files);
        // More than the two had.
        let large = make(&fs, 9);
        for at in 0..100 {
            fs.write(&CTX, large, at * MB, &vec![u8::try_from(at).unwrap(); 1 << 20]).unwrap();
        }
        assert!(fs.statfs().unwrap().pages > before + 30_000);
        let free = slots.free(3);
        assert!(free[2] < 150 * 256 - 20_000, "{free:?}");
        assert!(fs.wear().unwrap()[2] > 50 * MB / 64, "{:?}", fs.wear());
        // As a crash leaves it.
        let copy = Slots::new(3);
        for slot in 0..3 {
            let [from, to] = [&slots, &copy].map(|of| of.dir.path().join(slot.to_string()));
            std::fs::copy(from, to).unwrap();
        }
        fs.close().unwrap();
        drop(fs);
        verify(&slots.map(0..3));
        let again = Slots { arena: Arena::anonymous(128 * MB).unwrap(), ..slots };
        for slots in [again, copy] {
            let fs = slots.open(3, placement);
            judge(&fs, &files);
            let mut read = vec![0; 1 << 20];
            fs.read(&CTX, large, 99 * MB, &mut read).unwrap();
            assert!(read == vec![99; 1 << 20]);
            fs.close().unwrap();
            drop(fs);
            verify(&slots.map(0..3));
        }
    }
}

/// Who has asked for it and has not heard how that ended, looks: what the pool has is not taken back.
#[test]
fn that_it_has_come_is_told_by_its_file() {
    let slots = Slots::new(3);
    let fs = slots.open(2, Placement::Lanes);
    let file = |slot: usize| {
        let found = std::fs::metadata(slots.dir.path().join(slot.to_string())).unwrap();
        (found.dev(), found.ino())
    };
    let has_come = |slot, file| has_come(&slots.arena, slot, file).unwrap();
    // One that has not come has no file.
    let none = (0, 0);
    assert!(!has_come(2, file(2)) && !has_come(2, none));
    assert_eq!(slots.add(&fs, 2), Some(2));
    assert!(has_come(2, file(2)) && !has_come(2, file(1)));
    assert!(!has_come(1, file(1)), "it was there when the pool was opened");
    assert!(!has_come(3, none));
}

#[test]
fn who_joins_has_it_and_is_not_overtaken() {
    let slots = Slots::new(4);
    let fs = slots.open(2, Placement::Lanes);
    let other = slots.attach(2).unwrap();
    assert_eq!(slots.add(&fs, 2), None, "another client has the pool open");
    assert_eq!(inspect(&slots.map(0..2)).unwrap().slots.len(), 2);
    other.close().unwrap();
    assert_eq!(slots.add(&fs, 2), Some(2));
    slots.attach(2).unwrap_err();
    let ino = make(&fs, 1);
    fs.write(&CTX, ino, 0, &vec![7; 20 << 20]).unwrap();
    let other = slots.attach(3).unwrap();
    let mut read = vec![0; 20 << 20];
    other.read(&CTX, ino, 0, &mut read).unwrap();
    assert!(read == vec![7; 20 << 20]);
    other.write(&ctx(3), ino, 0, &vec![8; 30 << 20]).unwrap();
    fs.read(&CTX, ino, 0, &mut read).unwrap();
    assert!(read == vec![8; 20 << 20]);
    assert_eq!(slots.add(&fs, 3), None);
    // The first one leaves, and the other goes on with what was added before it came.
    fs.close().unwrap();
    assert_eq!(slots.add(&other, 3), Some(3));
    other.write(&ctx(3), ino, 0, &vec![9; 30 << 20]).unwrap();
    other.close().unwrap();
    drop((fs, other));
    verify(&slots.map(0..4));
}

#[test]
fn what_can_not_be_added_is_refused() {
    let slots = Slots::new(3 + SPARE_SLOTS);
    let fs = slots.open(2, Placement::Lanes);
    let refused = fs.add_slot(&CTX, slots.map(2..3), None).unwrap_err();
    assert!(matches!(refused, Error::BadPool(_)), "{refused}");
    assert!(fs.begin_leaving(&CTX, 1, Some(1)).unwrap().is_enough());
    let refused = fs.add_slot(&CTX, slots.waiting(2), None).unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    fs.end_leaving(&CTX, 1).unwrap();
    for slot in 2..2 + SPARE_SLOTS {
        assert_eq!(slots.add(&fs, slot), Some(u8::try_from(slot).unwrap()));
    }
    let refused = fs.add_slot(&CTX, slots.waiting(2 + SPARE_SLOTS), None).unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    // One of those that came can leave again.
    let last = u8::try_from(1 + SPARE_SLOTS).unwrap();
    let ino = make(&fs, 1);
    fs.write(&CTX, ino, 0, &vec![7; 30 << 20]).unwrap();
    assert!(fs.begin_leaving(&CTX, last, Some(last)).unwrap().is_enough());
    while fs.empty_round(&CTX, last, &mut |_| true).unwrap().moved > 0 {}
    fs.close().unwrap();
    drop(fs);
    verify(&slots.map(0..2 + SPARE_SLOTS));
}

/// A slot that came for another to go was one as the others at first: a writer had filled it before it was told that
/// it leaves, and a death in between left the pool with one slot more.
#[test]
fn one_that_comes_for_another_gets_nothing() {
    let slots = Slots::new(3);
    let fs = slots.open(2, Placement::Wasa);
    let ino = make(&fs, 1);
    let len = |slot: usize| slots.dir.path().join(slot.to_string());
    let set_len = |slot, bytes| {
        let file = std::fs::OpenOptions::new().write(true).open(len(slot)).unwrap();
        file.set_len(bytes).unwrap();
    };
    set_len(2, 4 * MB);
    let refused = fs.add_slot(&CTX, slots.waiting(2), Some(1)).unwrap_err();
    assert!(matches!(refused, Error::BadPool(_)), "{refused}");
    set_len(2, 20 * MB);
    let before = fs.statfs().unwrap().pages_free;
    assert_eq!(fs.add_slot(&CTX, slots.waiting(2), Some(1)).unwrap(), Some(2));
    assert_eq!(fs.statfs().unwrap().pages_free, before);
    let free = slots.free(3)[2];
    let written = (0..40).take_while(|at| fs.write(&CTX, ino, at * MB, &vec![7; 1 << 20]).is_ok());
    let written = written.count();
    assert!((8..16).contains(&written), "{written}");
    assert_eq!(slots.free(3)[2], free);
    let copy = Slots::new(3);
    for slot in 0..3 {
        std::fs::copy(len(slot), copy.dir.path().join(slot.to_string())).unwrap();
    }
    let slot = &inspect(&copy.map(0..3)).unwrap().slots[2];
    assert_eq!((slot.is_emptied, slot.goes), (true, Some(1)));
    // And after the crash.
    let again = copy.open(3, Placement::Wasa);
    while fs_write(&again, ino).is_ok() {}
    assert_eq!(copy.free(3)[2], free);
    for (fs, slots) in [(again, copy), (fs, slots)] {
        fs.close().unwrap();
        drop(fs);
        verify(&slots.map(0..3));
        // Nothing has to be moved, so nothing keeps it from going, also where the others are full.
        let room = room_to_leave(&slots.map(0..3), &Serial, &|_| ()).unwrap();
        assert!(room.used == 0 && room.is_enough(), "{room:?}");
    }
}

fn fs_write(fs: &Fs, ino: Ino) -> Result<usize, Error> {
    let at = fs.getattr(ino)?.size;
    fs.write(&CTX, ino, at, &vec![7; 1 << 16])
}

/// The first state line of a slot that was added lay where the second one goes, by the closing or by its beginning to
/// leave. A power cut that tore that one left none, and the pool did not open.
#[test]
fn its_next_state_line_leaves_the_first_one() {
    let slots = Slots::new(3);
    let fs = slots.open(2, Placement::Lanes);
    assert_eq!(slots.add(&fs, 2), Some(2));
    let [second, _] = SLOT_STATE_OFFSETS;
    let file = std::fs::OpenOptions::new().write(true).open(slots.dir.path().join("2")).unwrap();
    file.write_all_at(&[0xa5; 64], second).unwrap();
    assert_eq!(inspect(&slots.map(0..3)).unwrap().slots.len(), 3);
}

/// Cuts a slot off when it is stored to.
#[derive(Debug)]
struct CutsOff(PathBuf);

impl Observer for CutsOff {
    fn store(&self, _event: StoreEvent<'_>) {
        std::fs::OpenOptions::new().write(true).open(&self.0).unwrap().set_len(MB).unwrap();
    }

    fn write_back(&self, _at: PmAddr, _len: u64, _why: Purpose, _site: &'static Location<'static>) {
    }

    fn fence(&self, _site: &'static Location<'static>) {}
}

/// It was to have a replica of the superblock, which was nowhere by then, and the pool did not open again.
#[test]
fn one_that_is_cut_off_meanwhile_stays_away() {
    survive_failing_slots().unwrap();
    let slots = Slots::new(3);
    let fs = slots.open(2, Placement::Wasa);
    drop(slots.waiting(2));
    let path = slots.dir.path().join("2");
    let observer = Some(Arc::new(CutsOff(path.clone())) as Arc<_>);
    let options = PmOptions { lock: SlotLock::Held, observer, ..PmOptions::default() };
    let new = Pm::open(&[SlotSpec::new(&path)], &options).unwrap();
    let refused = fs.add_slot(&CTX, new, None).unwrap_err();
    assert!(matches!(refused, Error::Lost(_)), "{refused}");
    let ino = make(&fs, 1);
    fs.write(&CTX, ino, 0, &[7; 5000]).unwrap();
    fs.close().unwrap();
    drop(fs);
    verify(&slots.map(0..2));
}

/// Who joined has all slots mapped as those that the pool was opened with, and counted from none: what it added
/// behind the fourth had tables past the end of those in the arena, and no pages, and the pool was not closed clean.
#[test]
fn as_many_come_whoever_adds_them() {
    let slots = Slots::new(3 + SPARE_SLOTS);
    let fs = slots.open(2, Placement::Lanes);
    for slot in 2..=SPARE_SLOTS {
        assert_eq!(slots.add(&fs, slot), Some(u8::try_from(slot).unwrap()));
    }
    let other = slots.attach(1 + SPARE_SLOTS).unwrap();
    fs.close().unwrap();
    let last = 1 + SPARE_SLOTS;
    assert_eq!(slots.add(&other, last), Some(u8::try_from(last).unwrap()));
    let refused = other.add_slot(&CTX, slots.waiting(2 + SPARE_SLOTS), None).unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    assert_eq!(inspect(&slots.map(0..2 + SPARE_SLOTS)).unwrap().slots.len(), 2 + SPARE_SLOTS);
    let ino = make(&other, 1);
    other.write(&CTX, ino, 0, &vec![7; 30 << 20]).unwrap();
    other.close().unwrap();
    drop((fs, other));
    verify(&slots.map(0..2 + SPARE_SLOTS));
}

/// Two daemons of a pool heard that a slot is to be added, and both did: the one that came later said that it is
/// refused, and the command took the slot back, which was the pool's by then.
#[test]
fn one_alone_adds_what_was_asked_for() {
    let slots = Slots::new(2);
    let fs = slots.open(2, Placement::Lanes);
    let ended = PidInfo { pid: (1 << 22) - 1, ..PidInfo::current() };
    let options = OpenOptions::of_arena(&slots.arena);
    let other = Fs::attach(slots.map(0..2), &slots.arena, &options, ended).unwrap();
    let ask = SlotAsk::Add(OfferedSlot::new(7, 900, None).unwrap());
    let turn = ask_of_slots(&slots.arena, ask).unwrap();
    for fs in [&fs, &other] {
        assert_eq!(fs.wait_for_slot_ask(0, Duration::ZERO).unwrap(), Some((turn, ask)));
    }
    assert!(fs.claim_slot_ask(turn) && !other.claim_slot_ask(turn) && !fs.claim_slot_ask(turn));
    assert_eq!(other.wait_for_slot_ask(0, Duration::ZERO).unwrap(), None);
    assert_eq!(slots_asked(&slots.arena, Some(turn)).state, EmptyState::Waiting);
    assert_eq!(ask_of_slots(&slots.arena, ask), None, "nothing else is asked meanwhile");
    fs.tell_emptying(turn, EmptyState::Refused);
    assert_eq!(slots_asked(&slots.arena, Some(turn)).state, EmptyState::Refused);
    let next = ask_of_slots(&slots.arena, ask).unwrap();
    // Of one who died with it nothing more is heard, and others may ask.
    assert!(other.claim_slot_ask(next) && !fs.claim_slot_ask(next));
    assert_eq!(slots_asked(&slots.arena, Some(next)).state, EmptyState::Failed);
    assert!(ask_of_slots(&slots.arena, ask).is_some());
    other.close().unwrap();
    fs.close().unwrap();
}

/// The command that had asked gave up, and the daemon that was stopped added, once it went on, what another process
/// had open by then under those numbers.
#[test]
fn what_is_taken_back_is_added_by_nobody() {
    let slots = Slots::new(2);
    let fs = slots.open(2, Placement::Lanes);
    let ask = SlotAsk::Add(OfferedSlot::new(7, 900, None).unwrap());
    let turn = ask_of_slots(&slots.arena, ask).unwrap();
    assert!(withdraw_slot_ask(&slots.arena, turn));
    assert_eq!(slots_asked(&slots.arena, Some(turn)).state, EmptyState::Refused);
    assert_eq!(fs.wait_for_slot_ask(0, Duration::ZERO).unwrap(), None);
    assert!(!fs.claim_slot_ask(turn));
    // Nor is taken back what one has begun with.
    let next = ask_of_slots(&slots.arena, ask).unwrap();
    assert!(fs.claim_slot_ask(next) && !withdraw_slot_ask(&slots.arena, next));
    fs.tell_emptying(next, EmptyState::Added);
    assert!(!withdraw_slot_ask(&slots.arena, next));
    assert_eq!(slots_asked(&slots.arena, Some(next)).state, EmptyState::Added);
    fs.close().unwrap();
}

/// A daemon that failed with something of its own took the place of what another one had answered.
#[test]
fn an_answer_stays_where_one_of_something_earlier_comes_late() {
    let slots = Slots::new(2);
    let fs = slots.open(2, Placement::Lanes);
    let ask = SlotAsk::Add(OfferedSlot::new(7, 900, None).unwrap());
    let first = ask_of_slots(&slots.arena, ask).unwrap();
    fs.tell_emptying(first, EmptyState::Refused);
    let second = ask_of_slots(&slots.arena, ask).unwrap();
    // Of what was asked last it is said as often as there is something new.
    for state in [EmptyState::Moving, EmptyState::Added] {
        fs.tell_emptying(second, state);
        fs.tell_emptying(first, EmptyState::Failed);
        // Nor does who takes back what was asked first, or comes to it late.
        assert!(!withdraw_slot_ask(&slots.arena, first) && !fs.claim_slot_ask(first));
        assert_eq!(slots_asked(&slots.arena, Some(second)).state, state);
    }
    fs.close().unwrap();
}

/// A mount that joined took the word of the last adding for a new one, and said at its start that it failed.
#[test]
fn what_was_added_is_asked_of_nobody_who_comes_later() {
    let slots = Slots::new(2);
    let fs = slots.open(2, Placement::Lanes);
    let ask = SlotAsk::Add(OfferedSlot::new(7, 900, Some(1)).unwrap());
    let turn = ask_of_slots(&slots.arena, ask).unwrap();
    // Until somebody has begun with that, nothing else is asked.
    assert_eq!(ask_of_slots(&slots.arena, SlotAsk::Cancel), None);
    assert_eq!(fs.wait_for_slot_ask(0, Duration::ZERO).unwrap(), Some((turn, ask)));
    fs.tell_emptying(turn, EmptyState::Added);
    let other = slots.attach(2).unwrap();
    assert_eq!(other.wait_for_slot_ask(0, Duration::ZERO).unwrap(), None);
    assert!(!other.claim_slot_ask(turn));
    let next = ask_of_slots(&slots.arena, ask).unwrap();
    assert_eq!(other.wait_for_slot_ask(0, Duration::ZERO).unwrap(), Some((next, ask)));
    other.close().unwrap();
    fs.close().unwrap();
}
