//! A slot fails at one load in five of a sequence (`NOVALE_LAB_EACH=1`: at each), and comes back as it was at that
//! moment, once all clients are dead. What is read of it meanwhile are zeros: no operation that is acknowledged has taken these for a file's bytes, in
//! the pool or in the write buffer.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a test panics and tells"
)]

mod support;

use std::fs;
use std::mem::ManuallyDrop;
use std::os::unix::fs::FileExt;
use std::panic::Location;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use novale_arena::{Arena, ClientInfo, PidInfo};
use novale_core::{
    BufferRules, Ctx, Error, Fallocate, FileKind, Fs, Ino, MkfsOptions, Mode, NewInode, Node,
    OpenOptions, Place, Placement, RenameMode, Result, Serial, SetAttr, SetXattr, UpdatePolicy,
    XattrMode, has_left_behind, mkfs,
};
use novale_layout::PmAddr;
use novale_pm::{
    Observer, Pm, PmOptions, Purpose, SlotLock, SlotSpec, StoreEvent, survive_failing_slots,
};
use support::one_in;
use tempfile::NamedTempFile;

const CTX: Ctx = Ctx { now_ns: 5, hint: 0 };
const SLOT_BYTES: u64 = 2 << 20;
const ARENA_BYTES: u64 = 64 << 20;
const LEN: usize = 9000;
const PAGE: usize = 4096;
/// When the process began that is killed.
const OTHER: u64 = 1 << 60;

/// Cuts a slot's file to nothing before one load.
#[derive(Default)]
struct FailingLoad {
    slot: PathBuf,
    /// The load at which it fails; from 1.
    at: u64,
    loads: AtomicU64,
    is_on: AtomicBool,
    /// What the slot had then.
    had: Mutex<Option<Vec<u8>>>,
}

impl Observer for FailingLoad {
    fn store(&self, _: StoreEvent<'_>) {}

    fn write_back(&self, _: PmAddr, _: u64, _: Purpose, _: &'static Location<'static>) {}

    fn fence(&self, _: &'static Location<'static>) {}

    fn load(&self, _: PmAddr, _: u64) -> bool {
        if self.is_on.load(Ordering::Relaxed)
            && self.loads.fetch_add(1, Ordering::Relaxed) + 1 == self.at
        {
            *self.had.lock().unwrap() = Some(fs::read(&self.slot).unwrap());
            fs::File::options().write(true).open(&self.slot).unwrap().set_len(0).unwrap();
        }
        true
    }
}

/// How the pool is used.
#[derive(Debug, Clone, Copy)]
struct Way {
    mode: Mode,
    update: UpdatePolicy,
    placement: Placement,
    /// Whether the buffer has whole pages.
    by_pages: bool,
}

impl Way {
    fn options(self) -> OpenOptions {
        let rules = BufferRules::default();
        let buffer_rules = BufferRules { has_model: false, by_lines: !self.by_pages, ..rules };
        let (mode, update) = (Some(self.mode), Some(self.update));
        let placement = self.placement;
        OpenOptions { mode, update, placement, buffer_rules, now_ns: 2, ..OpenOptions::default() }
    }
}

fn map(slots: &[NamedTempFile; 2], observer: Option<Arc<dyn Observer>>) -> Pm {
    let options = PmOptions { lock: SlotLock::Held, observer, ..PmOptions::default() };
    Pm::open(&slots.each_ref().map(|slot| SlotSpec::new(slot.path())), &options).unwrap()
}

fn arena() -> Arena {
    Arena::anonymous(ARENA_BYTES).unwrap()
}

/// What a file is: its bytes, its attribute, and which of its two names it has.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    bytes: Vec<u8>,
    attribute: Vec<u8>,
    names: [bool; 2],
}

impl Seen {
    /// Before its change.
    fn first(number: usize) -> Self {
        let bytes = (0..LEN).map(|at| u8::try_from((at / 64 + number) % 200).unwrap() + 10);
        Self { bytes: bytes.collect(), attribute: vec![3; 2000], names: [true, false] }
    }

    fn of(fs: &Fs, number: usize, ino: Ino) -> Result<Self> {
        let mut names = [false; 2];
        let root = Node::ROOT;
        fs.readdir(&CTX, root, 0, &mut |entry| {
            names[0] |= entry.name == name('f', number).as_bytes();
            names[1] |= entry.name == name('g', number).as_bytes();
            true
        })?;
        for (first, listed) in ['f', 'g'].into_iter().zip(names) {
            match fs.lookup(&CTX, root, name(first, number).as_bytes()) {
                Ok(found) => assert!(listed && found.ino == ino, "{first}{number}: {names:?}"),
                Err(Error::NotFound) => assert!(!listed, "{first}{number}: {names:?}"),
                Err(error) => return Err(error),
            }
        }
        if names == [false; 2] {
            return Ok(Self { bytes: vec![], attribute: vec![], names });
        }
        let mut bytes = vec![0; usize::try_from(fs.getattr(ino)?.size).unwrap()];
        fs.read(&CTX, ino, 0, &mut bytes)?;
        let attribute = fs.getxattr(Node::current(ino), ATTRIBUTE)?;
        Ok(Self { bytes, attribute, names })
    }
}

const ATTRIBUTE: &[u8] = b"user.a";

fn set(value: &[u8]) -> SetXattr<'_> {
    SetXattr { name: ATTRIBUTE, value, mode: XattrMode::Any, clear_set_gid: false }
}

fn name(first: char, number: usize) -> String {
    format!("{first}{number}")
}

/// One change of a file, or a look at it.
#[derive(Debug, Clone, Copy)]
enum Change {
    Write(usize, usize),
    Synced(usize, usize),
    Size(usize),
    Punch(usize, usize),
    Zero(usize, usize),
    /// One page.
    Collapse(usize),
    Insert(usize),
    /// From, to, and how many bytes.
    Copy(usize, usize, usize),
    /// The same from the file before it, in another slot, to one whose own pages are mapped: in place, so that an error
    /// may leave a part.
    CopyMapped(usize, usize, usize),
    Attribute,
    Link,
    Rename,
    Unlink,
    Nothing,
}

/// Each write begins or ends in the middle of a line, or has whole ones.
const CHANGES: [Change; 22] = [
    Change::Write(4990, 10),
    Change::Write(8960, 10),
    Change::Nothing,
    Change::Write(100, 3000),
    Change::Write(4096, 4096),
    Change::Write(LEN, 26),
    Change::Synced(300, 5),
    Change::Size(4000),
    Change::Size(9500),
    Change::Punch(100, 5000),
    Change::Zero(300, 4000),
    Change::Collapse(4096),
    Change::Insert(4096),
    Change::Copy(50, 5000, 2000),
    Change::Nothing,
    Change::CopyMapped(50, 5000, 2000),
    Change::Nothing,
    Change::CopyMapped(8000, 0, 900),
    Change::Attribute,
    Change::Link,
    Change::Rename,
    Change::Unlink,
];

fn allocate(fs: &Fs, ino: Ino, how: Fallocate, at: usize, len: usize) -> Result<()> {
    fs.fallocate(&CTX, ino, how, at as u64, len as u64)
}

fn copy(fs: &Fs, from: (Ino, usize), to: (Ino, usize), len: usize) -> Result<()> {
    let place = |(ino, offset)| Place { ino, offset: offset as u64 };
    fs.copy_range(&CTX, place(from), place(to), len as u64).map(drop)
}

impl Change {
    fn make(self, fs: &Fs, number: usize, files: &[Ino]) -> Result<()> {
        let ino = files[number];
        let (root, node) = (Node::ROOT, Node::current(ino));
        let (old, new) = (name('f', number), name('g', number));
        match self {
            Self::Write(at, len) => fs.write(&CTX, ino, at as u64, &vec![2; len]).map(drop),
            Self::Synced(at, len) => {
                fs.write(&CTX, ino, at as u64, &vec![2; len])?;
                // Where it is refused the write stays acknowledged.
                match fs.sync(&CTX, ino) {
                    Err(Error::Lost(_)) => Ok(()),
                    synced => synced,
                }
            }
            Self::Size(size) => {
                let change = SetAttr { size: Some(size as u64), ..SetAttr::default() };
                fs.setattr(&CTX, node, &change).map(drop)
            }
            Self::Punch(at, len) => allocate(fs, ino, Fallocate::PunchHole, at, len),
            Self::Zero(at, len) => allocate(fs, ino, Fallocate::ZeroRange, at, len),
            Self::Collapse(at) => allocate(fs, ino, Fallocate::CollapseRange, at, PAGE),
            Self::Insert(at) => allocate(fs, ino, Fallocate::InsertRange, at, PAGE),
            Self::Copy(from, to, len) => copy(fs, (ino, from), (ino, to), len),
            Self::CopyMapped(from, to, len) => copy(fs, (files[number - 1], from), (ino, to), len),
            Self::Attribute => fs.setxattr(&CTX, node, &set(&[4; 90])),
            Self::Link => fs.link(&CTX, node, root, new.as_bytes()).map(drop),
            Self::Rename => {
                let mode = RenameMode::NoReplace;
                fs.rename(&CTX, root, old.as_bytes(), root, new.as_bytes(), mode)
            }
            Self::Unlink => fs.unlink(&CTX, root, old.as_bytes()),
            Self::Nothing => {
                assert!(Seen::of(fs, number, ino)? == Seen::first(number), "{number}: zeros");
                Ok(())
            }
        }
    }

    /// What a file is behind it.
    fn of(self, number: usize) -> Seen {
        let mut seen = Seen::first(number);
        let bytes = &mut seen.bytes;
        match self {
            Self::Write(at, len) | Self::Synced(at, len) => {
                bytes.resize(bytes.len().max(at + len), 0);
                bytes[at..at + len].fill(2);
            }
            Self::Size(size) => bytes.resize(size, 0),
            Self::Punch(at, len) | Self::Zero(at, len) => bytes[at..at + len].fill(0),
            Self::Collapse(at) => drop(bytes.drain(at..at + PAGE)),
            Self::Insert(at) => drop(bytes.splice(at..at, [0; PAGE])),
            Self::Copy(from, to, len) => bytes.copy_within(from..from + len, to),
            Self::CopyMapped(from, to, len) => {
                let source = Seen::first(number - 1).bytes;
                bytes[to..to + len].copy_from_slice(&source[from..from + len]);
            }
            Self::Attribute => seen.attribute = vec![4; 90],
            Self::Link => seen.names = [true; 2],
            Self::Rename => seen.names = [false, true],
            Self::Unlink => seen = Seen { bytes: vec![], attribute: vec![], names: [false; 2] },
            Self::Nothing => {}
        }
        seen
    }
}

/// A pool with a file for each change, closed: what its slots have, and the files.
fn pool(way: Way) -> ([Vec<u8>; 2], Vec<Ino>) {
    let slots = [(); 2].map(|()| NamedTempFile::new().unwrap());
    for slot in &slots {
        slot.as_file().set_len(SLOT_BYTES).unwrap();
    }
    mkfs(&map(&slots, None), &MkfsOptions::numbered(2, 2)).unwrap();
    let fs = Fs::open(map(&slots, None), arena(), &way.options(), &Serial, &|_| ()).unwrap();
    let make = |number: usize| {
        let kind = FileKind::File;
        let new = NewInode { kind, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
        // Of lanes in turn, whose pages of inodes are in both slots.
        let ctx = Ctx { hint: u32::try_from(number % 2).unwrap(), ..CTX };
        let ino = fs.create(&ctx, Node::ROOT, name('f', number).as_bytes(), &new).unwrap().ino;
        let Seen { bytes, attribute, .. } = Seen::first(number);
        fs.write(&ctx, ino, 0, &bytes).unwrap();
        fs.setxattr(&CTX, Node::current(ino), &set(&attribute)).unwrap();
        fs.sync(&CTX, ino).unwrap();
        ino
    };
    let files = (0..CHANGES.len()).map(make).collect();
    fs.close().unwrap();
    (slots.each_ref().map(|slot| fs::read(slot.path()).unwrap()), files)
}

/// Fails a slot at one load of the changes; says whether there were so many, and how many changes failed.
fn fail_at(
    at: u64,
    slot: usize,
    way: Way,
    (left, files): &([Vec<u8>; 2], Vec<Ino>),
) -> (bool, usize) {
    let slots = [(); 2].map(|()| NamedTempFile::new().unwrap());
    slots.iter().zip(left).for_each(|(slot, bytes)| fs::write(slot.path(), bytes).unwrap());
    let path = slots[slot].path().to_owned();
    let failing = Arc::new(FailingLoad { slot: path, at, ..FailingLoad::default() });
    let (arena, lives) = (arena(), Arc::new(AtomicBool::new(true)));
    let probe = lives.clone();
    let is_alive = move |client: &ClientInfo| {
        client.process.start_time != OTHER || probe.load(Ordering::SeqCst)
    };
    assert!(arena.set_alive_probe(Box::new(is_alive)));
    let opener = Fs::open(map(&slots, None), arena.clone(), &way.options(), &Serial, &|_| ());
    let pm = map(&slots, Some(failing.clone()));
    let process = PidInfo { start_time: OTHER, ..PidInfo::current() };
    // It is going to be killed.
    let fs = ManuallyDrop::new(Fs::attach(pm, &arena, &way.options(), process).unwrap());
    opener.unwrap().close().unwrap();
    for (change, ino) in CHANGES.iter().zip(files) {
        if matches!(change, Change::CopyMapped(..)) {
            let generation = fs.getattr(*ino).unwrap().generation;
            fs.map_hold(&CTX, *ino, generation).unwrap().unwrap();
        }
    }
    failing.is_on.store(true, Ordering::Relaxed);
    let changes = || CHANGES.iter().zip(files).enumerate();
    let made: Vec<Result<()>> =
        changes().map(|(number, (change, _))| change.make(&fs, number, files)).collect();
    failing.is_on.store(false, Ordering::Relaxed);
    let Some(had) = failing.had.lock().unwrap().take() else { return (false, 0) };
    slots[slot].as_file().write_all_at(&had, 0).unwrap();
    let what = format!("{way:?}, slot {slot} at load {at}");
    lives.store(false, Ordering::SeqCst);
    if has_left_behind(&arena) {
        let ended = Fs::end_session_of_dead(map(&slots, None), &arena, 11, PidInfo::current());
        assert!(ended.unwrap(), "{what}: given up");
    }
    let arena = Arena::anonymous(ARENA_BYTES).unwrap();
    let fs = Fs::open(map(&slots, None), arena, &way.options(), &Serial, &|_| ()).unwrap();
    for ((number, (change, ino)), made) in changes().zip(&made) {
        let found = Seen::of(&fs, number, *ino).unwrap();
        let (old, new) = (Seen::first(number), change.of(number));
        let is_right = match made {
            Ok(()) => found == new,
            Err(Error::Lost(_)) if matches!(change, Change::CopyMapped(..)) => {
                let mut both = old.bytes.iter().zip(&new.bytes).zip(&found.bytes);
                both.all(|((old, new), found)| found == old || found == new)
            }
            Err(Error::Lost(_)) => found == old || found == new,
            Err(error) => panic!("{what}: {change:?}: {error}"),
        };
        assert!(is_right, "{what}: {change:?} was {made:?}, and is {:?}", found.names);
    }
    (true, made.iter().filter(|made| made.is_err()).count())
}

#[test]
fn zeros_in_its_place_are_never_handed_on() {
    survive_failing_slots().unwrap();
    let mut first = 0;
    let (auto, adl) = (UpdatePolicy::Auto, UpdatePolicy::Adl);
    for (mode, update, placement, by_pages) in [
        (Mode::Strict, auto, Placement::Spread, false),
        (Mode::Strict, adl, Placement::Lanes, false),
        (Mode::Buffered, auto, Placement::Spread, false),
        (Mode::Buffered, auto, Placement::Lanes, false),
        (Mode::Buffered, auto, Placement::Spread, true),
    ] {
        let way = Way { mode, update, placement, by_pages };
        let pool = pool(way);
        for slot in [0, 1] {
            first = first % one_in(5) + 1;
            let points = (first as u64..5000).step_by(one_in(5));
            let failed = points.map(|at| fail_at(at, slot, way, &pool));
            let failed: Vec<usize> =
                failed.take_while(|found| found.0).map(|found| found.1).collect();
            let (count, failures) = (failed.len(), failed.iter().sum::<usize>());
            println!("{way:?}, slot {slot}: {count} loads, {failures} failures");
            assert!(count > 20 && failures > count, "{way:?}: {count} loads, {failures} failures");
        }
    }
}
