//! The promise: what one thread does is not disturbed by what others do at the same time. Each
//! thread runs random sequences in a directory of its own, beside a model of its own, while others
//! read everything; lanes, free lists, inode pages and the journal are shared. Afterwards the pool
//! checks, and a death loses nothing. `NOVALE_LAB_SECONDS` and `NOVALE_LAB_SEED` make it go on.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of a test fail and speak as the test does"
)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use novale_core::{Ctx, FileKind, Form, Fs, Ino as FsIno, NewInode, Node};
use novale_lab::diff::{
    Budget, CoreMachine, Machine, Mappings, NoSpace, OnFs, check_opened, compare_run, make_pool,
    now_ns_at, open_pool, snapshot,
};
use novale_lab::pool_file::PoolFile;
use novale_lab::watchdog::Watchdog;
use novale_lab::workload::{
    Action, Failure, Flavor, Generator, Outcome, Session, Step, Subject, print_steps, run_step,
};
use novale_model::{Error, Ino, Kind};
use novale_pm::PmOptions;

const MB: u64 = 1 << 20;
const THREADS: u64 = 4;

/// No round takes longer than this, but for a deadlock.
const PATIENCE: Duration = Duration::from_secs(60);

/// A thread's own directory.
struct Corner<'f> {
    fs: &'f Fs,
    directory: FsIno,
    mappings: Mappings,
}

impl<'f> Corner<'f> {
    fn new(fs: &'f Fs, directory: FsIno) -> Self {
        Self { fs, directory, mappings: Mappings::default() }
    }
}

impl OnFs for Corner<'_> {
    fn fs(&self) -> Result<&Fs, Failure> {
        Ok(self.fs)
    }

    fn root(&self) -> FsIno {
        self.directory
    }

    fn mappings(&mut self) -> &mut Mappings {
        &mut self.mappings
    }
}

impl Machine for Corner<'_> {
    fn remount(&mut self, _: i64) -> Result<(), String> {
        Err("other threads use it".to_owned())
    }

    fn die(&mut self, _: i64) -> Result<(), String> {
        Err("other threads use it".to_owned())
    }

    fn inode_count(&mut self) -> Option<u64> {
        None
    }

    fn bytes_available(&mut self) -> Option<u64> {
        None
    }

    fn generation(&mut self, ino: Ino) -> Option<u32> {
        Some(self.fs.getattr(FsIno::new(ino.0)).ok()?.generation)
    }
}

/// Runs a sequence in a new directory of the root.
fn work(fs: &Fs, thread: u64, seed: u64, steps: usize) -> Result<(), String> {
    let hint = u32::try_from(thread).unwrap();
    let new =
        NewInode { kind: FileKind::Directory, mode: 0o755, uid: 0, gid: 0, rdev: 0, target: b"" };
    let name = format!("thread{thread}");
    let ctx = Ctx { now_ns: now_ns_at(0), hint };
    let made = fs.create(&ctx, Node::current(FsIno::ROOT), name.as_bytes(), &new).unwrap();
    let seed = seed * THREADS + thread;
    let mut steps = Generator::mapping(seed, Flavor::of_seed(seed)).steps(steps, 60);
    steps.retain(|step| !matches!(step, Step::Remount | Step::Die));
    let mut corner = Corner::new(fs, made.ino);
    match compare_run(&mut corner, &steps, NoSpace::Wrong) {
        Ok(_) => Ok(()),
        Err(mismatch) => {
            steps.truncate(mismatch.index + 1);
            Err(format!("thread {thread}: {mismatch}\nin\n{}", print_steps(&steps)))
        }
    }
}

/// Reads everything over and over until `done`; what vanishes meanwhile is no mistake.
fn read_all(fs: &Fs, done: &AtomicBool, seen: &AtomicU64) -> Result<(), String> {
    let mut corner = Corner::new(fs, FsIno::ROOT);
    while !done.load(Ordering::Relaxed) {
        let mut waiting = vec![Ino::ROOT];
        while let Some(directory) = waiting.pop() {
            let list = Action::List { at_a_time: 5 };
            let listed = corner.on(directory, &list, 0).and_then(Outcome::entries);
            for entry in tolerate(listed)?.unwrap_or_default() {
                let stat = corner.on(entry.ino, &Action::Stat, 0).and_then(Outcome::attr);
                let Some(attr) = tolerate(stat)? else { continue };
                let read = Action::Read { offset: 0, len: 10_000 };
                seen.fetch_add(1, Ordering::Relaxed);
                match attr.kind {
                    Kind::Directory if waiting.len() < 10_000 => waiting.push(entry.ino),
                    Kind::File => drop(tolerate(corner.on(entry.ino, &read, 0))?),
                    Kind::Symlink => drop(tolerate(corner.on(entry.ino, &Action::Readlink, 0))?),
                    Kind::Directory
                    | Kind::Fifo
                    | Kind::Socket
                    | Kind::CharDevice
                    | Kind::BlockDevice => {}
                }
            }
        }
    }
    Ok(())
}

/// The number may by now be of nothing, or of another kind of inode.
fn tolerate<T>(result: Result<T, Failure>) -> Result<Option<T>, String> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(Failure::Error(
            Error::Stale
            | Error::NotFound
            | Error::Invalid
            | Error::IsDirectory
            | Error::NotDirectory,
        )) => Ok(None),
        Err(why) => Err(format!("reader: {why:?}")),
    }
}

/// Runs a sequence in the root, where the others run theirs: most steps find something else than
/// the generator thought, and none may find a contradiction.
fn meddle(fs: &Fs, thread: u64, seed: u64, steps: usize) -> Result<(), String> {
    let seed = seed * THREADS + thread;
    let mut steps = Generator::new(seed, Flavor::Names).steps(steps, 1000);
    steps.retain(|step| !matches!(step, Step::Remount | Step::Die));
    let mut corner = Corner::new(fs, FsIno::ROOT);
    let mut session = Session::default();
    for (index, step) in steps.iter().enumerate() {
        let outcome = run_step(&mut corner, &mut session, step, now_ns_at(index));
        if let Outcome::Failed(Failure::Broken(why)) = outcome {
            return Err(format!("thread {thread}, {step}: {why}"));
        }
    }
    for slot in session.slots().map(|(slot, _)| slot).collect::<Vec<_>>() {
        run_step(&mut corner, &mut session, &Step::Release(slot), 0);
    }
    Ok(())
}

type Work = fn(&Fs, u64, u64, usize) -> Result<(), String>;

/// One sequence on each thread; returns the number of inodes read meanwhile.
fn round(seed: u64, steps: usize, lanes: u32, form: Form, work: Work) -> u64 {
    let pool = PoolFile::zeroed(&[96 * MB]).unwrap();
    make_pool(&pool.open(&PmOptions::default()).unwrap(), lanes).unwrap();
    let fs = open_pool(pool.open(&PmOptions::default()).unwrap(), form, now_ns_at(0)).unwrap();
    let (done, inodes) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut wrong = Vec::new();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_all(&fs, &done, &inodes));
        let start = |thread| {
            let fs = &fs;
            scope.spawn(move || work(fs, thread, seed, steps))
        };
        let workers: Vec<_> = (0..THREADS).map(start).collect();
        for worker in workers {
            wrong.extend(worker.join().unwrap().err());
        }
        done.store(true, Ordering::Relaxed);
        wrong.extend(reader.join().unwrap().err());
    });
    assert!(wrong.is_empty(), "seed {seed}:\n{}", wrong.join("\n"));
    let mut machine = CoreMachine::around(fs);
    let before = snapshot(&mut machine, 0).unwrap();
    drop(machine);
    let fs = open_pool(pool.open(&PmOptions::default()).unwrap(), form, now_ns_at(1)).unwrap();
    check_opened(&fs).unwrap();
    let after = snapshot(&mut CoreMachine::around(fs), 0).unwrap();
    assert_eq!(before.difference(&after, ("before", "after death")), "", "seed {seed}");
    inodes.load(Ordering::Relaxed)
}

fn rounds(name: &str, lanes: u32, form: Form, work: Work) {
    let budget = Budget::from_env(25, 400);
    println!("{name}: first seed {}, {}", budget.seed, budget.length);
    let (watchdog, start) = (Watchdog::new(PATIENCE), Instant::now());
    let (mut count, mut inodes) = (0, 0);
    for seed in budget.seed.. {
        watchdog.begin(format!("{name}, seed {seed}"));
        inodes += round(seed, budget.steps, lanes, form, work);
        count += 1;
        if !budget.goes_on(count, start) {
            break;
        }
    }
    println!("{name}: {count} rounds, {inodes} inodes read beside");
}

#[test]
fn on_two_lanes() {
    rounds("two lanes", 2, Form::Auto, work);
}

#[test]
fn on_one_lane_in_the_two_fence_form() {
    rounds("one lane", 1, Form::Two, work);
}

#[test]
fn where_all_threads_change_the_same_names() {
    rounds("same names", 2, Form::Auto, meddle);
}

/// A write is seen whole or not at all, whatever its size and place.
#[test]
fn and_no_read_sees_half_a_write() {
    const WRITES: u32 = 3_000;
    let pool = PoolFile::zeroed(&[32 * MB]).unwrap();
    make_pool(&pool.open(&PmOptions::default()).unwrap(), 2).unwrap();
    let fs =
        open_pool(pool.open(&PmOptions::default()).unwrap(), Form::Auto, now_ns_at(0)).unwrap();
    let new = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    let ctx = Ctx { now_ns: 1, hint: 0 };
    let ino = fs.create(&ctx, Node::current(FsIno::ROOT), b"file", &new).unwrap().ino;
    // What each write covers, unaligned and over several pages.
    let (offset, len) = (1_000, 10_000);
    fs.write(&ctx, ino, offset, &vec![1; len]).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (fs, done) = (&fs, &done);
        let writers: Vec<_> = (0..2_u8)
            .map(|writer| {
                scope.spawn(move || {
                    for turn in 0..WRITES {
                        let fill = u8::try_from(turn % 100).unwrap() * 2 + writer + 1;
                        fs.write(&ctx, ino, offset, &vec![fill; len]).unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(move || {
            let mut bytes = vec![0; len];
            while !done.load(Ordering::Relaxed) {
                assert_eq!(fs.read(&ctx, ino, offset, &mut bytes).unwrap(), len);
                let first = bytes.first().copied().unwrap();
                let odd = bytes.iter().position(|byte| *byte != first);
                assert_eq!(odd, None, "a read saw two writes");
            }
        });
        let ended: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        for writer in ended {
            writer.unwrap();
        }
    });
}
