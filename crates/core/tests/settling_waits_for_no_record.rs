//! The client that settles for the dead gets on, though all operation records are waited in.
//!
//! To free the inode that a dead operation had taken the last name of, settling took a record like
//! any operation; when the threads that waited for the dead one's locks had all of them, it slept for
//! one of theirs, and they for it.

#![allow(clippy::unwrap_used, clippy::wildcard_imports, reason = "a test panics")]

mod support;

use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use novale_arena::{Arena, PidInfo};
use novale_core::*;
use novale_layout::PmAddr;
use novale_pm::{Observer, Pm, PmOptions, Purpose, SlotLock, SlotSpec, StoreEvent};
use support::MB;
use tempfile::NamedTempFile;

/// Three times the records of a client.
const THREADS: u32 = 200;
/// Calls hang when not one of them comes back for so long, however busy the machine is.
const STILL: Duration = Duration::from_secs(60);

/// Stops a client for ever at its first fence.
#[derive(Default)]
struct Stop {
    on: AtomicBool,
    there: AtomicBool,
}

impl Observer for Stop {
    fn store(&self, _: StoreEvent<'_>) {}
    fn write_back(&self, _: PmAddr, _: u64, _: Purpose, _: &'static Location<'static>) {}
    fn fence(&self, _: &'static Location<'static>) {
        if self.on.load(Ordering::Relaxed) {
            self.there.store(true, Ordering::SeqCst);
            loop {
                std::thread::park();
            }
        }
    }
}

fn file() -> NewInode<'static> {
    NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" }
}

/// A client that dies while it removes a file, with the locks of directory and file.
fn dies_removing(pm: Pm, stop: &Stop, (arena, dead): (&Arena, PidInfo), dir: Node) {
    let dying = Fs::attach(pm, arena, &OpenOptions::default(), dead).unwrap();
    stop.on.store(true, Ordering::SeqCst);
    let ctx = Ctx { now_ns: 1, hint: 0 };
    std::thread::spawn(move || dying.unlink(&ctx, dir, b"victim").unwrap());
    let deadline = Instant::now() + STILL;
    while !stop.there.load(Ordering::SeqCst) {
        assert!(Instant::now() < deadline, "it did not come to its fence");
        std::thread::yield_now();
    }
}

/// How many of the creates come back that wait for `deaths` clients, each of them in a directory of
/// its own, which die when all are waiting.
fn creates_that_come_back(deaths: u32) -> u32 {
    // Lanes for those that die and for those that wait, or the former would wait for each other.
    let slot = NamedTempFile::new_in("/dev/shm").unwrap();
    slot.as_file().set_len(64 * MB).unwrap();
    let pm = |lock, observer| {
        let options = PmOptions { lock, observer, ..PmOptions::default() };
        Pm::open(&[SlotSpec::new(slot.path())], &options).unwrap()
    };
    mkfs(&pm(SlotLock::Exclusive, None), &MkfsOptions::numbered(1, 4)).unwrap();
    let arena = Arena::anonymous(64 * MB).unwrap();
    let options = OpenOptions::default();
    let fs = Fs::open(pm(SlotLock::Held, None), arena.clone(), &options, &Serial, &|_| ()).unwrap();
    let ctx = Ctx { now_ns: 1, hint: 0 };
    let new_dir = NewInode { kind: FileKind::Directory, mode: 0o755, ..file() };
    let mut dirs = Vec::new();
    for death in 0..deaths {
        let name = format!("d{death}");
        let dir = fs.create(&ctx, Node::ROOT, name.as_bytes(), &new_dir).unwrap().node();
        let made = fs.create(&ctx, dir, b"victim", &file()).unwrap();
        fs.write(&ctx, made.ino, 0, &[1; 5000]).unwrap();
        dirs.push(dir);
    }
    for (dir, start_time) in dirs.iter().zip(1 << 60..) {
        let stop = Arc::new(Stop::default());
        let dead = PidInfo { start_time, ..PidInfo::current() };
        let pm = pm(SlotLock::Held, Some(stop.clone() as Arc<dyn Observer>));
        dies_removing(pm, &stop, (&arena, dead), *dir);
    }
    let lives = Arc::new(AtomicBool::new(true));
    let probe = lives.clone();
    assert!(arena.set_alive_probe(Box::new(move |_| probe.load(Ordering::SeqCst))));
    let fs = Arc::new(fs);
    let (done, next) = channel();
    let barrier = Arc::new(Barrier::new(THREADS as usize + 1));
    for (hint, dir) in (0..THREADS).zip(dirs.into_iter().cycle()) {
        let (fs, done, barrier) = (fs.clone(), done.clone(), barrier.clone());
        std::thread::spawn(move || {
            barrier.wait();
            let name = format!("f{hint}");
            fs.create(&Ctx { now_ns: 2, hint }, dir, name.as_bytes(), &file()).unwrap();
            done.send(()).unwrap_or_default();
        });
    }
    barrier.wait();
    // All records are waited in by then.
    std::thread::sleep(Duration::from_millis(300));
    lives.store(false, Ordering::SeqCst);
    let back = (0..THREADS).take_while(|_| next.recv_timeout(STILL).is_ok()).count();
    u32::try_from(back).unwrap()
}

#[test]
fn one_dead_client_is_settled_for() {
    assert_eq!(creates_that_come_back(1), THREADS);
}

#[test]
fn several_dead_clients_are_settled_for() {
    assert_eq!(creates_that_come_back(3), THREADS);
}
