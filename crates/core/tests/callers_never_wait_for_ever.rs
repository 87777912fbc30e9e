//! However many threads call at once, all of them get on.

#![allow(clippy::unwrap_used, clippy::wildcard_imports, reason = "a test panics")]

mod support;

use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::Duration;

use novale_core::*;
use novale_layout::PmAddr;
use novale_pm::{Observer, Pm, PmOptions, Purpose, StoreEvent};

/// Many times the 64 operation records.
use support::MB;

const THREADS: u32 = 600;
/// Calls hang when not one of them comes back for so long. All of them take seconds on a quiet
/// machine; on a busy one they take longer, but go on coming back.
const STILL: Duration = Duration::from_secs(60);

/// Fences that take a millisecond, one at a time, as if their threads had been preempted there: all
/// records are in use for long enough that every caller gets to want one.
#[derive(Default)]
struct SlowFences {
    on: AtomicBool,
    one_at_a_time: Mutex<()>,
}

impl Observer for SlowFences {
    fn store(&self, _: StoreEvent<'_>) {}
    fn write_back(&self, _: PmAddr, _: u64, _: Purpose, _: &'static Location<'static>) {}
    fn fence(&self, _: &'static Location<'static>) {
        if self.on.load(Ordering::Relaxed) {
            let _one = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn open(pm: Pm) -> Fs {
    let options = OpenOptions { now_ns: 2, ..OpenOptions::default() };
    support::open_as(pm, &options)
}

/// A pool with a file for each thread, none of them loaded.
fn pool_of_files(slow: &Arc<SlowFences>) -> (Fs, Vec<Ino>) {
    let options = PmOptions { observer: Some(slow.clone()), ..PmOptions::default() };
    let pm = Pm::anonymous(&[32 * MB], &options).unwrap();
    mkfs(&pm, &MkfsOptions::numbered(1, 64)).unwrap();
    let fs = open(pm);
    let new = NewInode { kind: FileKind::File, mode: 0o755, uid: 1, gid: 2, rdev: 0, target: b"" };
    let ctx = Ctx { now_ns: 1, hint: 0 };
    let create =
        |number| fs.create(&ctx, Node::ROOT, format!("file{number}").as_bytes(), &new).unwrap().ino;
    let files = (0..THREADS).map(create).collect();
    fs.close().unwrap();
    (open(fs.into_pm()), files)
}

/// A write to a file that was not loaded took a second operation record while it held one: as many
/// writers as there are records waited for each other.
#[test]
fn more_threads_than_operation_records_write_to_cold_files() {
    let slow = Arc::new(SlowFences::default());
    let (fs, files) = pool_of_files(&slow);
    let (fs, barrier) = (Arc::new(fs), Arc::new(Barrier::new(files.len())));
    slow.on.store(true, Ordering::Relaxed);
    let (done, next_done) = channel();
    for (hint, file) in (0..).zip(files) {
        let (fs, barrier, done) = (fs.clone(), barrier.clone(), done.clone());
        let write = move || {
            barrier.wait();
            let wrote = fs.write(&Ctx { now_ns: 1, hint }, file, 0, b"x");
            done.send(wrote).unwrap_or_default();
        };
        // Not joined: threads that hang end with the process, after the failure was told.
        std::thread::Builder::new().stack_size(256 << 10).spawn(write).unwrap();
    }
    for number in 0..THREADS {
        let wrote = next_done.recv_timeout(STILL);
        let wrote = wrote.unwrap_or_else(|_| panic!("{number} of {THREADS} writes came back"));
        assert_eq!(wrote.unwrap(), 1);
    }
}
