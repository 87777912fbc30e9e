//! The promise: a slot is added beside other clients, which have it from their next operation on. Nothing is taken
//! there as long as an operation is under way that began before, at whatever store it sleeps. Who dies in the adding
//! leaves a pool that the others go on with; who can't map the slot loses what lies there, and harms none.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at what fails"
)]

mod support;

use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use novale_arena::{Arena, ClientInfo, PidInfo};
use novale_core::{
    Beside, ComingSlot, Ctx, Error, Fs, Ino, MkfsOptions, NewInode, NewSlot, Node, OpenOptions,
    Placement, RenameMode, Result, Serial, SetAttr, awaited_clients, inspect, live_free, mkfs,
    slot_waits,
};
use novale_layout::{FileKind, PmAddr};
use novale_pm::{
    Observer, Pm, PmOptions, Purpose, SlotLock, SlotSpec, StoreEvent, survive_failing_slots,
};
use support::{MB, set_long_attribute, verify};
use tempfile::TempDir;

const CTX: Ctx = Ctx { now_ns: 5, hint: 0 };
const OTHER: Ctx = Ctx { now_ns: 6, hint: 1 };

/// Slots in files; the first two are the pool.
struct Slots {
    dir: TempDir,
    arena: Arena,
    /// Who of those that are not this process lives, by their start.
    living: Arc<Mutex<BTreeSet<u64>>>,
}

impl Slots {
    fn new(lens: &[u64]) -> Self {
        let dir = tempfile::Builder::new().prefix("novale-slb.").tempdir_in("/dev/shm").unwrap();
        for (slot, len) in lens.iter().enumerate() {
            let file = std::fs::File::create(dir.path().join(slot.to_string())).unwrap();
            file.set_len(*len).unwrap();
        }
        let (arena, living) = (Arena::anonymous(64 * MB).unwrap(), Arc::<Mutex<_>>::default());
        let lives: Arc<Mutex<BTreeSet<u64>>> = living.clone();
        let probe = Box::new(move |client: &ClientInfo| {
            lives.lock().unwrap().contains(&client.process.start_time)
        });
        assert!(arena.set_alive_probe(probe));
        let slots = Self { dir, arena, living };
        mkfs(&slots.map(0..2), &MkfsOptions::numbered(2, 4)).unwrap();
        slots
    }

    fn path(&self, slot: usize) -> PathBuf {
        self.dir.path().join(slot.to_string())
    }

    fn map_as(&self, slots: std::ops::Range<usize>, observer: Option<Arc<dyn Observer>>) -> Pm {
        let paths: Vec<PathBuf> = slots.map(|slot| self.path(slot)).collect();
        let specs: Vec<SlotSpec> = paths.iter().map(SlotSpec::new).collect();
        let lock = SlotLock::Held;
        Pm::open(&specs, &PmOptions { lock, observer, ..PmOptions::default() }).unwrap()
    }

    fn map(&self, slots: std::ops::Range<usize>) -> Pm {
        self.map_as(slots, None)
    }

    fn open(&self) -> Fs {
        let options =
            OpenOptions { placement: Placement::Lanes, now_ns: 2, ..OpenOptions::default() };
        Fs::open(self.map(0..2), self.arena.clone(), &options, &Serial, &|_| ()).unwrap()
    }

    /// A client of a process of its own, which lives until it is told otherwise; it can map what comes.
    fn join(&self, number: u64, observer: Option<Arc<dyn Observer>>) -> Fs {
        let fs = self.join_without(number, observer);
        fs.set_slot_opener(Box::new(open_coming));
        fs
    }

    fn join_without(&self, number: u64, observer: Option<Arc<dyn Observer>>) -> Fs {
        let options = OpenOptions::of_arena(&self.arena);
        let count = inspect_count(&self.map(0..1));
        self.living.lock().unwrap().insert(number);
        let process = PidInfo { start_time: number, ..PidInfo::current() };
        Fs::attach(self.map_as(0..count, observer), &self.arena, &options, process).unwrap()
    }

    fn add(&self, fs: &Fs, ctx: &Ctx, slot: usize) -> Result<Option<u8>> {
        self.add_as(fs, ctx, slot, None, None)
    }

    fn add_as(
        &self,
        fs: &Fs,
        ctx: &Ctx,
        slot: usize,
        goes: Option<u8>,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<Option<u8>> {
        let new = NewSlot { pm: &self.map(slot..slot + 1), uuid: [7; 16], endurance: 0 };
        slot_waits(&self.map(0..slot), &new).unwrap();
        let path = self.path(slot);
        let beside = Beside { path: &path, may: &|_| true };
        fs.add_slot_beside(ctx, self.map_as(slot..slot + 1, observer), goes, &beside)
    }

    fn free(&self, count: usize) -> Vec<u64> {
        let info = inspect(&self.map(0..count)).unwrap();
        live_free(&self.arena, &info).unwrap().unwrap()
    }

    /// The same files, as a crash leaves them.
    fn copy(&self, lens: &[u64]) -> Self {
        let copy = Self::new(lens);
        for slot in 0..lens.len() {
            std::fs::copy(self.path(slot), copy.path(slot)).unwrap();
        }
        copy
    }
}

fn inspect_count(first: &Pm) -> usize {
    usize::from(novale_core::look_at_slot(first).unwrap().slot_count.unwrap())
}

fn open_coming(coming: &ComingSlot) -> Option<Pm> {
    let options =
        PmOptions { lock: SlotLock::Held, only: vec![coming.file], ..PmOptions::default() };
    Pm::open(&[SlotSpec::new(&coming.path)], &options).ok()
}

fn make(fs: &Fs, ctx: &Ctx, dir: Ino, name: &str, kind: FileKind) -> Result<Ino> {
    let new = NewInode { kind, mode: 0o755, uid: 0, gid: 0, rdev: 0, target: b"" };
    Ok(fs.create(ctx, Node::current(dir), name.as_bytes(), &new)?.ino)
}

fn read(fs: &Fs, ino: Ino) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(fs.getattr(ino)?.size).unwrap()];
    fs.read(&CTX, ino, 0, &mut bytes)?;
    Ok(bytes)
}

const LENS: [u64; 3] = [8 * MB, 8 * MB, 32 * MB];

#[test]
fn the_others_have_it_from_their_next_operation_on() {
    let slots = Slots::new(&LENS);
    let fs = slots.open();
    let (other, third) = (slots.join(1, None), slots.join(2, None));
    let ino = make(&fs, &CTX, Ino::ROOT, "f", FileKind::File).unwrap();
    fs.write(&CTX, ino, 0, &vec![7; 100_000]).unwrap();
    assert_eq!(slots.add(&fs, &CTX, 2).unwrap(), Some(2));
    assert_eq!(awaited_clients(&slots.arena), Some(vec![]));
    let before = fs.statfs().unwrap().pages_free;
    assert!(fs.open_slots(&CTX).unwrap());
    assert!(fs.statfs().unwrap().pages_free > before + 8000);
    assert_eq!(awaited_clients(&slots.arena), None);
    // More than the two had.
    other.write(&OTHER, ino, 0, &vec![8; 25 << 20]).unwrap();
    assert!(slots.free(3)[2] < 8000, "{:?}", slots.free(3));
    assert!(read(&fs, ino).unwrap() == vec![8; 25 << 20]);
    // One that reads without an operation has had none since.
    assert!(read(&third, ino).unwrap() == vec![8; 25 << 20]);
    assert_eq!(third.slots_added(), [slots.path(2)]);
    assert!(other.wear().unwrap()[2] > 8 * MB / 64, "{:?}", other.wear());
    let copy = slots.copy(&LENS);
    fs.close().unwrap();
    other.close().unwrap();
    third.close().unwrap();
    drop((fs, other, third));
    verify(&slots.map(0..3));
    let options = OpenOptions { now_ns: 2, ..OpenOptions::default() };
    let again = Fs::open(copy.map(0..3), copy.arena.clone(), &options, &Serial, &|_| ()).unwrap();
    assert!(read(&again, ino).unwrap() == vec![8; 25 << 20]);
    again.close().unwrap();
    drop(again);
    verify(&copy.map(0..3));
}

#[test]
fn one_that_comes_for_another_gets_nothing_beside_others_either() {
    let slots = Slots::new(&LENS);
    let fs = slots.open();
    let other = slots.join(1, None);
    assert_eq!(slots.add_as(&fs, &CTX, 2, Some(1), None).unwrap(), Some(2));
    assert!(fs.open_slots(&CTX).unwrap());
    assert_eq!(fs.leaving_slot(), Some(2));
    let (free, all) = (slots.free(3)[2], fs.statfs().unwrap().pages_free);
    let ino = make(&other, &OTHER, Ino::ROOT, "f", FileKind::File).unwrap();
    let written =
        (0..40).take_while(|at| other.write(&OTHER, ino, at * MB, &vec![7; 1 << 20]).is_ok());
    assert!((8..16).contains(&written.count()));
    assert_eq!(slots.free(3)[2], free);
    assert!(all < 4096, "{all}");
    other.close().unwrap();
    fs.close().unwrap();
    drop((fs, other));
    verify(&slots.map(0..3));
}

/// What is free there was counted once more by each try, as a slot that fails can't be asked what it is.
#[test]
fn its_free_pages_count_once_where_another_slot_has_failed_since() {
    survive_failing_slots().unwrap();
    let slots = Slots::new(&LENS);
    let fs = slots.open();
    let _other = slots.join(1, None);
    let ino = make(&fs, &CTX, Ino::ROOT, "f", FileKind::File).unwrap();
    fs.write(&CTX, ino, 0, &vec![7; 10 << 20]).unwrap();
    assert_eq!(slots.add(&fs, &CTX, 2).unwrap(), Some(2));
    std::fs::OpenOptions::new().write(true).open(slots.path(1)).unwrap().set_len(0).unwrap();
    assert!(matches!(read(&fs, ino), Err(Error::Lost(_))));
    assert_eq!(fs.failed_slots(), 0b10);
    let before = fs.statfs().unwrap().pages_free;
    let tries = [(); 3].map(|()| fs.open_slots(&CTX).is_ok_and(|is_open| is_open));
    let come = fs.statfs().unwrap().pages_free - before;
    assert_eq!(come, LENS[2] / novale_layout::PAGE - novale_layout::FIRST_FREE_PAGE - 1);
    assert_eq!(tries, [true; 3]);
}

/// Sleeps at one of its stores until it is woken.
struct Sleeper {
    stores: AtomicU64,
    is_counting: AtomicBool,
    at: u64,
    asleep: mpsc::SyncSender<()>,
    awake: Mutex<mpsc::Receiver<()>>,
}

impl Observer for Sleeper {
    fn store(&self, _event: StoreEvent<'_>) {
        if self.is_counting.load(Ordering::SeqCst)
            && self.stores.fetch_add(1, Ordering::SeqCst) + 1 == self.at
        {
            self.asleep.send(()).unwrap();
            self.awake.lock().unwrap().recv().unwrap();
        }
    }

    fn write_back(&self, _: PmAddr, _: u64, _: Purpose, _: &'static Location<'static>) {}

    fn fence(&self, _: &'static Location<'static>) {}
}

/// Operations of each kind in a directory; what its file has then.
fn work(fs: &Fs, ctx: &Ctx, dir: Ino) -> Result<Vec<u8>> {
    let ino = make(fs, ctx, dir, "f", FileKind::File)?;
    fs.write(ctx, ino, 0, &[1; 9000])?;
    fs.write(ctx, ino, 100, &[2; 64])?;
    fs.write(ctx, ino, 9000, &[3; 30])?;
    fs.write(ctx, ino, 4096, &[4; 8192])?;
    let size = SetAttr { size: Some(10_000), ..SetAttr::default() };
    fs.setattr(ctx, Node::current(ino), &size)?;
    let node = Node::current(dir);
    fs.link(ctx, Node::current(ino), node, b"g")?;
    fs.unlink(ctx, node, b"f")?;
    fs.rename(ctx, node, b"g", node, b"f", RenameMode::Replace)?;
    let mut bytes = vec![1; 10_000];
    bytes[100..164].fill(2);
    bytes[4096..].fill(4);
    Ok(bytes)
}

/// Whether the sequence has so many stores: one is asleep at this one while a slot comes.
fn sleeps_at(at: u64) -> bool {
    let lens = [2 * MB, 2 * MB, 4 * MB];
    let slots = Slots::new(&lens);
    let fs = slots.open();
    let (asleep, is_asleep) = mpsc::sync_channel(1);
    let (wake, awake) = mpsc::sync_channel(1);
    let sleeper = Arc::new(Sleeper {
        stores: AtomicU64::new(0),
        is_counting: AtomicBool::new(false),
        at,
        asleep,
        awake: Mutex::new(awake),
    });
    let other = slots.join(1, Some(sleeper.clone()));
    // The features are said by then, for which it has the lock that who adds needs.
    for (name, fs, ctx) in [("a", &fs, &CTX), ("b", &other, &OTHER)] {
        let dir = make(fs, ctx, Ino::ROOT, name, FileKind::Directory).unwrap();
        work(fs, ctx, dir).unwrap();
    }
    let dir = make(&other, &OTHER, Ino::ROOT, "c", FileKind::Directory).unwrap();
    sleeper.is_counting.store(true, Ordering::SeqCst);
    let slept = thread::scope(|scope| {
        let done = scope.spawn(|| {
            let found = work(&other, &OTHER, dir).unwrap();
            // Nobody waits for who does not come.
            sleeper.asleep.send(()).unwrap();
            found
        });
        is_asleep.recv().unwrap();
        let slept = sleeper.stores.load(Ordering::SeqCst) >= at && !done.is_finished();
        let before = fs.statfs().unwrap().pages_free;
        assert_eq!(slots.add(&fs, &CTX, 2).unwrap(), Some(2));
        let mine = make(&fs, &CTX, Ino::ROOT, "d", FileKind::Directory).unwrap();
        if sleeper.stores.load(Ordering::SeqCst) == at {
            assert!(!fs.open_slots(&CTX).unwrap(), "store {at}");
            assert_eq!(awaited_clients(&slots.arena), Some(vec![std::process::id()]));
            assert!(fs.statfs().unwrap().pages_free <= before);
            let wanted = work(&fs, &CTX, mine).unwrap();
            let ino = fs.lookup(&CTX, Node::current(mine), b"f").unwrap().ino;
            assert!(read(&fs, ino).unwrap() == wanted);
            assert_eq!(slots.free(3)[2], 1024 - novale_layout::FIRST_FREE_PAGE - 1);
            wake.send(()).unwrap();
            is_asleep.recv().unwrap();
        }
        let wanted = done.join().unwrap();
        let ino = fs.lookup(&CTX, Node::current(dir), b"f").unwrap().ino;
        assert!(read(&fs, ino).unwrap() == wanted, "store {at}");
        slept
    });
    assert!(fs.open_slots(&CTX).unwrap());
    sleeper.is_counting.store(false, Ordering::SeqCst);
    let large = make(&other, &OTHER, dir, "large", FileKind::File).unwrap();
    other.write(&OTHER, large, 0, &vec![9; 5 << 20]).unwrap();
    assert!(read(&fs, large).unwrap() == vec![9; 5 << 20]);
    fs.close().unwrap();
    other.close().unwrap();
    drop((fs, other));
    verify(&slots.map(0..3));
    slept && sleeper.stores.load(Ordering::SeqCst) >= at
}

#[test]
fn who_sleeps_in_an_operation_meets_nothing_new() {
    let mut at = 1;
    while sleeps_at(at) {
        at += 1;
    }
    assert!(at > 30, "{at} stores");
}

/// Is gone from one of its stores on.
struct Dying {
    stores: AtomicU64,
    at: u64,
    number: u64,
    living: Arc<Mutex<BTreeSet<u64>>>,
    died: mpsc::SyncSender<bool>,
}

impl Observer for Dying {
    fn store(&self, _event: StoreEvent<'_>) {
        if self.stores.fetch_add(1, Ordering::SeqCst) + 1 == self.at {
            self.living.lock().unwrap().remove(&self.number);
            self.died.send(true).unwrap();
            loop {
                thread::park();
            }
        }
    }

    fn write_back(&self, _: PmAddr, _: u64, _: Purpose, _: &'static Location<'static>) {}

    fn fence(&self, _: &'static Location<'static>) {}
}

/// One adds a slot and dies at this store of it; says whether there is such a one. The other one goes on.
fn dies_at(at: u64, goes: Option<u8>) -> bool {
    let lens = [2 * MB, 2 * MB, 4 * MB];
    let slots = Arc::new(Slots::new(&lens));
    let first = slots.open();
    first.set_slot_opener(Box::new(open_coming));
    let dir = make(&first, &CTX, Ino::ROOT, "a", FileKind::Directory).unwrap();
    let wanted = work(&first, &CTX, dir).unwrap();
    let fs = slots.join(1, None);
    let (died, has_died) = mpsc::sync_channel(1);
    let living = slots.living.clone();
    let dying =
        Arc::new(Dying { stores: AtomicU64::new(0), at, number: 2, living, died: died.clone() });
    let adder = slots.join(2, Some(dying.clone()));
    let (of_adder, dying) = (slots.clone(), dying as Arc<dyn Observer>);
    thread::spawn(move || {
        let adder = ManuallyDrop::new(adder);
        let slot = of_adder.add_as(&adder, &OTHER, 2, goes, Some(dying));
        assert_eq!(slot.unwrap(), Some(2));
        of_adder.living.lock().unwrap().remove(&2);
        died.send(false).unwrap();
    });
    let has_died = has_died.recv().unwrap();
    // It waits for the root's lock, and settles.
    let more = make(&fs, &CTX, Ino::ROOT, "b", FileKind::Directory).unwrap();
    assert!(work(&fs, &CTX, more).unwrap() == wanted);
    let count = inspect_count(&slots.map(0..1));
    assert_eq!(inspect(&slots.map(0..count)).unwrap().slots.len(), count, "store {at}");
    if count == 2 {
        assert_eq!(slots.add_as(&fs, &CTX, 2, goes, None).unwrap(), Some(2), "store {at}");
    }
    assert!(fs.open_slots(&CTX).unwrap(), "store {at}");
    assert_eq!(fs.leaving_slot(), goes.map(|_| 2));
    // What came is there for both, and who comes now has it, too.
    let third = slots.join(3, None);
    let large = make(&third, &CTX, Ino::ROOT, "large", FileKind::File).unwrap();
    if goes.is_none() {
        third.write(&CTX, large, 0, &vec![9; 5 << 20]).unwrap();
        assert!(read(&first, large).unwrap() == vec![9; 5 << 20]);
    }
    let copy = slots.copy(&lens);
    for fs in [first, third, fs] {
        fs.close().unwrap();
    }
    verify(&slots.map(0..3));
    let options = OpenOptions { now_ns: 2, ..OpenOptions::default() };
    let again = Fs::open(copy.map(0..3), copy.arena.clone(), &options, &Serial, &|_| ()).unwrap();
    let ino = again.lookup(&CTX, Node::current(dir), b"f").unwrap().ino;
    assert!(read(&again, ino).unwrap() == wanted);
    again.close().unwrap();
    // The thread of who died never lets go of it.
    std::fs::remove_dir_all(slots.dir.path()).unwrap();
    has_died
}

#[test]
fn who_dies_in_the_adding_leaves_it_to_the_others() {
    for goes in [None, Some(1)] {
        let mut at = 1;
        while dies_at(at, goes) {
            at += 1;
        }
        assert!(at > 5, "{at} stores");
    }
}

/// Files of every kind, of which the second client has made some when the slot was there: in it lie their data, their
/// logs, themselves.
fn scattered(fs: &Fs, ctx: &Ctx, dir: Ino, first: u8) -> Vec<Ino> {
    let made = |number: u8| {
        let ino = make(fs, ctx, dir, &format!("f{number}"), FileKind::File).unwrap();
        fs.write(ctx, ino, 0, &vec![number; 20_000]).unwrap();
        fs.write(ctx, ino, 50, &[number; 100]).unwrap();
        if number.is_multiple_of(4) {
            set_long_attribute(fs, ctx, ino);
        }
        ino
    };
    (first..first + 40).map(made).collect()
}

/// Operations of the one who lacks a slot.
#[derive(Default)]
struct Told {
    done: usize,
    lost: usize,
}

impl Told {
    /// Whether it was done: else what it needs is lost, or there is no room elsewhere.
    fn tell<T>(&mut self, result: Result<T>, what: &str) -> bool {
        let is_done = result.is_ok();
        match result {
            Ok(_) => self.done += 1,
            Err(Error::NoSpace) => self.lost += 1,
            Err(Error::Lost(place)) if place.slot() == 2 => self.lost += 1,
            Err(error) => panic!("{what}: {error}"),
        }
        is_done
    }
}

/// Changes a file by the one who lacks a slot: others find all of a change that was done, and nothing of another.
fn change_beside(fs: &Fs, other: &Fs, ino: Ino, told: &mut Told) {
    let end = before_of(fs, ino).len();
    for (at, len) in [(0, 100), (4096, 4096), (end, 300), (9000, 9000), (10, 3)] {
        let (old, bytes) = (before_of(fs, ino), vec![99; len]);
        let mut after = old.clone();
        after.resize(after.len().max(at + len), 0);
        after[at..at + len].copy_from_slice(&bytes);
        let is_done = told.tell(other.write(&OTHER, ino, at as u64, &bytes), "write");
        let wanted = if is_done { after } else { old };
        assert!(before_of(fs, ino) == wanted, "file {ino:?}: {len} bytes at {at}");
    }
    let size = SetAttr { size: Some(7000), ..SetAttr::default() };
    let is_cut = told.tell(other.setattr(&OTHER, Node::current(ino), &size), "setattr");
    assert_eq!(fs.getattr(ino).unwrap().size == 7000, is_cut, "file {ino:?}");
}

/// The same of its names.
fn name_beside(fs: &Fs, other: &Fs, (dir, number): (Ino, usize), told: &mut Told) {
    let (node, name, new) = (Node::current(dir), format!("f{number}"), format!("new{number}"));
    let is_there = |name: &str| fs.lookup(&CTX, node, name.as_bytes()).is_ok();
    let renamed = other.rename(&OTHER, node, name.as_bytes(), node, b"x", RenameMode::Replace);
    let is_done = told.tell(renamed, "rename");
    assert_eq!([is_there("x"), is_there(&name)], [is_done, !is_done], "file {number}");
    if is_done {
        fs.rename(&CTX, node, b"x", node, name.as_bytes(), RenameMode::Replace).unwrap();
    }
    if number % 3 == 0 {
        let is_unlinked = told.tell(other.unlink(&OTHER, node, name.as_bytes()), "unlink");
        assert_eq!(is_there(&name), !is_unlinked, "file {number}");
    }
    let is_made = told.tell(make(other, &OTHER, dir, &new, FileKind::File), "create");
    assert_eq!(is_there(&new), is_made, "file {number}");
}

#[test]
fn who_lacks_it_loses_what_lies_there_and_harms_none() {
    let slots = Slots::new(&[4 * MB, 4 * MB, 16 * MB]);
    let fs = slots.open();
    let other = slots.join_without(1, None);
    let dir = make(&fs, &CTX, Ino::ROOT, "a", FileKind::Directory).unwrap();
    let mut files = scattered(&fs, &CTX, dir, 0);
    assert_eq!(slots.add(&fs, &CTX, 2).unwrap(), Some(2));
    assert!(fs.open_slots(&CTX).unwrap());
    // The two others are full then, but for a little.
    let fill = make(&fs, &CTX, Ino::ROOT, "fill", FileKind::File).unwrap();
    let mut at = 0;
    while slots.free(3)[..2].iter().sum::<u64>() > 120 {
        fs.write(&CTX, fill, at, &vec![5; 65536]).unwrap();
        at += 65536;
    }
    files.extend(scattered(&fs, &CTX, dir, 40));
    for ino in files.iter().step_by(2) {
        fs.write(&CTX, *ino, 4096, &[200; 5000]).unwrap();
    }
    let mut told = Told::default();
    for (number, ino) in files.iter().enumerate() {
        if let Ok(found) = read(&other, *ino) {
            assert!(found == before_of(&fs, *ino), "file {number}");
        }
        change_beside(&fs, &other, *ino, &mut told);
        name_beside(&fs, &other, (dir, number), &mut told);
    }
    let Told { done, lost } = told;
    assert!(done > 40 && lost > 50, "{done} done, {lost} lost");
    assert_eq!((other.lacking_slots(), fs.lacking_slots()), (0b100, 0));
    assert_eq!((other.failed_slots(), fs.failed_slots()), (0, 0));
    other.settle_dead().unwrap();
    other.begin_leaving(&OTHER, 2, Some(2)).unwrap_err();
    other.close().unwrap();
    let again = slots.join(2, None);
    for ino in &files {
        if let Ok(attr) = fs.getattr(*ino) {
            assert_eq!(read(&again, *ino).unwrap().len() as u64, attr.size);
        }
    }
    fs.close().unwrap();
    again.close().unwrap();
    drop((fs, other, again));
    verify(&slots.map(0..3));
}

fn before_of(fs: &Fs, ino: Ino) -> Vec<u8> {
    read(fs, ino).unwrap()
}

/// It would have closed what it could not read.
#[test]
fn who_lacks_it_and_is_the_last_leaves_the_pool_to_the_next_opening() {
    let lens = [4 * MB, 4 * MB, 16 * MB];
    let slots = Slots::new(&lens);
    let fs = slots.open();
    let other = slots.join_without(1, None);
    assert_eq!(slots.add(&fs, &CTX, 2).unwrap(), Some(2));
    assert!(fs.open_slots(&CTX).unwrap());
    let ino = make(&fs, &CTX, Ino::ROOT, "f", FileKind::File).unwrap();
    fs.write(&CTX, ino, 0, &vec![9; 9 << 20]).unwrap();
    read(&other, ino).unwrap_err();
    fs.close().unwrap();
    other.close().unwrap();
    assert!(!other.is_pool_closed());
    drop((fs, other));
    let again = slots.copy(&lens);
    let options = OpenOptions { now_ns: 2, ..OpenOptions::default() };
    let fs = Fs::open(again.map(0..3), again.arena.clone(), &options, &Serial, &|_| ()).unwrap();
    assert!(!fs.opened().clean);
    assert!(read(&fs, ino).unwrap() == vec![9; 9 << 20]);
    fs.close().unwrap();
    drop(fs);
    verify(&again.map(0..3));
}

#[test]
fn who_may_not_be_beside_it_keeps_it_away() {
    let slots = Slots::new(&LENS);
    let fs = slots.open();
    let _other = slots.join(1, None);
    let new = NewSlot { pm: &slots.map(2..3), uuid: [7; 16], endurance: 0 };
    slot_waits(&slots.map(0..2), &new).unwrap();
    let asked = |others: &[PidInfo]| {
        assert_eq!(others.len(), 1);
        false
    };
    let beside = Beside { path: Path::new("/nowhere"), may: &asked };
    assert_eq!(fs.add_slot_beside(&CTX, slots.map(2..3), None, &beside).unwrap(), None);
    assert_eq!(inspect_count(&slots.map(0..1)), 2);
    assert_eq!(awaited_clients(&slots.arena), None);
}
