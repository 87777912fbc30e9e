//! The promise: one of several clients that dies while it adds a slot, at whatever store to the arena, leaves a pool
//! that has the slot or has not, and that the others go on with: who is next in its way settles, also where that one
//! dies of it, and the slot comes, or is added again.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at what fails, and tells"
)]

use std::cell::Cell;
use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;

use novale_arena::{Arena, ClientInfo, PidInfo, Watcher, watch_stores};
use novale_core::{
    Beside, Ctx, FileKind, Fs, Ino, MkfsOptions, NewInode, NewSlot, Node, OpenOptions, Placement,
    Serial, check, inspect, look_at_slot, mkfs, slot_waits,
};
use novale_pm::{Pm, PmOptions, SlotLock, SlotSpec};
use tempfile::TempDir;

const MB: u64 = 1 << 20;
const CTX: Ctx = Ctx { now_ns: 5, hint: 0 };

struct Slots {
    dir: TempDir,
    arena: Arena,
    living: Arc<Mutex<BTreeSet<u64>>>,
}

fn map(paths: &[PathBuf]) -> Pm {
    let specs: Vec<SlotSpec> = paths.iter().map(SlotSpec::new).collect();
    Pm::open(&specs, &PmOptions { lock: SlotLock::Held, ..PmOptions::default() }).unwrap()
}

impl Slots {
    fn new() -> Self {
        let dir =
            tempfile::Builder::new().prefix("novale-lab-come.").tempdir_in("/dev/shm").unwrap();
        for (slot, len) in [2 * MB, 2 * MB, 4 * MB].into_iter().enumerate() {
            let file = std::fs::File::create(dir.path().join(slot.to_string())).unwrap();
            file.set_len(len).unwrap();
        }
        let (arena, living) = (Arena::anonymous(32 * MB).unwrap(), Arc::<Mutex<_>>::default());
        let lives: Arc<Mutex<BTreeSet<u64>>> = living.clone();
        let probe = Box::new(move |client: &ClientInfo| {
            lives.lock().unwrap().contains(&client.process.start_time)
        });
        assert!(arena.set_alive_probe(probe));
        let slots = Self { dir, arena, living };
        mkfs(&slots.map(0..2), &MkfsOptions::numbered(2, 2)).unwrap();
        slots
    }

    fn map(&self, slots: Range<usize>) -> Pm {
        map(&slots.map(|slot| self.dir.path().join(slot.to_string())).collect::<Vec<_>>())
    }

    fn count(&self) -> usize {
        look_at_slot(&self.map(0..1)).unwrap().slot_count.unwrap().into()
    }

    fn open(&self) -> Fs {
        let options =
            OpenOptions { placement: Placement::Lanes, now_ns: 2, ..OpenOptions::default() };
        let fs = Fs::open(self.map(0..2), self.arena.clone(), &options, &Serial, &|_| ()).unwrap();
        fs.set_slot_opener(Box::new(|coming| Some(map(std::slice::from_ref(&coming.path)))));
        fs
    }

    fn join(&self, number: u64) -> Fs {
        self.living.lock().unwrap().insert(number);
        let process = PidInfo { start_time: number, ..PidInfo::current() };
        let options = OpenOptions::of_arena(&self.arena);
        let fs = Fs::attach(self.map(0..self.count()), &self.arena, &options, process).unwrap();
        fs.set_slot_opener(Box::new(|coming| Some(map(std::slice::from_ref(&coming.path)))));
        fs
    }

    fn add(&self, fs: &Fs, goes: Option<u8>) {
        let new = NewSlot { pm: &self.map(2..3), uuid: [7; 16], endurance: 0 };
        slot_waits(&self.map(0..2), &new).unwrap();
        let path = self.dir.path().join("2");
        let beside = Beside { path: &path, may: &|_| true };
        assert_eq!(fs.add_slot_beside(&CTX, self.map(2..3), goes, &beside).unwrap(), Some(2));
    }

    /// Acts in the name of a client that dies before its store to the arena of this number; says whether there was
    /// one.
    fn dies_at(&self, number: u64, fs: Fs, at: u64, act: impl FnOnce(&Fs) + Send) -> bool {
        let fs = ManuallyDrop::new(fs);
        let died = thread::scope(|scope| {
            let act = || {
                watch_stores(Some(Box::new(Dies {
                    left: Cell::new(at),
                    is_dead: Cell::new(false),
                })));
                let done = catch_unwind(AssertUnwindSafe(|| act(&fs)));
                watch_stores(None);
                match done {
                    Ok(()) => false,
                    Err(why) if why.is::<Died>() => true,
                    Err(why) => resume_unwind(why),
                }
            };
            scope.spawn(act).join().unwrap()
        });
        self.living.lock().unwrap().remove(&number);
        died
    }
}

struct Died;

/// Dies before one of its stores.
struct Dies {
    left: Cell<u64>,
    is_dead: Cell<bool>,
}

impl Watcher for Dies {
    fn stores(&self) -> bool {
        if self.is_dead.get() {
            return false;
        }
        if self.left.get() == 0 {
            self.is_dead.set(true);
            resume_unwind(Box::new(Died));
        }
        self.left.set(self.left.get() - 1);
        true
    }

    fn sleeps(&self) -> bool {
        !self.is_dead.get()
    }
}

fn make(fs: &Fs, name: &str, bytes: &[u8]) -> Ino {
    let new = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    let ino = fs.create(&CTX, Node::ROOT, name.as_bytes(), &new).unwrap().ino;
    fs.write(&CTX, ino, 0, bytes).unwrap();
    ino
}

fn judge(fs: &Fs, ino: Ino, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    fs.read(&CTX, ino, 0, &mut read).unwrap();
    assert!(read == bytes);
}

/// One adds a slot and dies at this store; the one who settles dies at that one, where it is given.
fn die(at: u64, settler_at: Option<u64>, goes: Option<u8>) -> [bool; 2] {
    let slots = Slots::new();
    let first = slots.open();
    let before = make(&first, "before", &[1; 16_000]);
    let fs = slots.join(1);
    // While the list of slots changes nobody joins, and who died in that leaves it so.
    let [who_adds, settler] = [2, 3].map(|number| slots.join(number));
    let added = slots.dies_at(2, who_adds, at, |fs| {
        slots.add(fs, goes);
        assert!(fs.open_slots(&CTX).unwrap());
    });
    let settled = settler_at.is_some_and(|at| {
        slots.dies_at(3, settler, at, |fs| {
            fs.settle_dead().unwrap();
        })
    });
    // It waits for the root's lock.
    let while_dead = make(&fs, "while", &[2; 16_000]);
    fs.settle_dead().unwrap();
    let count = slots.count();
    assert_eq!(inspect(&slots.map(0..count)).unwrap().slots.len(), count);
    if count == 2 {
        slots.add(&fs, goes);
    }
    assert!(fs.open_slots(&CTX).unwrap());
    assert_eq!(fs.leaving_slot(), goes.map(|_| 2));
    let third = slots.join(4);
    let (room, large) = (third.statfs().unwrap().pages_available, vec![9; 5 << 20]);
    assert_eq!(room > 1500, goes.is_none(), "store {at}: {room} pages");
    assert!((600..2000).contains(&room), "store {at}: {room} pages");
    let ino = goes.is_none().then(|| make(&third, "large", &large));
    if let Some(ino) = ino {
        judge(&first, ino, &large);
    }
    for fs in [&first, &third, &fs] {
        judge(fs, before, &[1; 16_000]);
        judge(fs, while_dead, &[2; 16_000]);
        fs.close().unwrap();
    }
    drop((first, third, fs));
    assert!(check(&slots.map(0..3), &Serial, &|_| ()).unwrap().findings.is_empty());
    let again = Slots { arena: Arena::anonymous(32 * MB).unwrap(), ..slots };
    let options = OpenOptions { now_ns: 2, ..OpenOptions::default() };
    let fs = Fs::open(again.map(0..3), again.arena.clone(), &options, &Serial, &|_| ()).unwrap();
    judge(&fs, before, &[1; 16_000]);
    if let Some(ino) = ino {
        judge(&fs, ino, &large);
    }
    fs.close().unwrap();
    [added, settled]
}

#[test]
fn the_others_go_on_at_each_store() {
    for goes in [None, Some(1)] {
        let mut at = 0;
        while die(at, None, goes) == [true, false] {
            at += 1;
        }
        println!("died at {at} stores, {goes:?}");
        assert!(at > 50, "{at} stores");
    }
}

/// At some of them: how many there are differs.
#[test]
fn also_where_the_settler_dies() {
    let mut random = fastrand::Rng::with_seed(17);
    let mut died = 0;
    for _ in 0..150 {
        let [_, settled] = die(random.u64(0..200), Some(random.u64(0..60)), None);
        died += u32::from(settled);
    }
    println!("{died} settlers died");
    assert!(died > 20, "{died}");
}
