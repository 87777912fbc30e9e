//! Many threads at once: every read sees one write whole, and the pool that they leave is sound.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::wildcard_imports,
    reason = "a test panics"
)]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};

use novale_core::*;
use novale_pm::Pm;
use support::{MB, verify};

const THREADS: u32 = 6;
const STEPS: u32 = 4000;

fn pool() -> Pm {
    support::pool(&[48 * MB, 16 * MB], 3)
}

fn open(pm: Pm) -> Fs {
    support::open_as(pm, &OpenOptions::default())
}

fn ctx(hint: u32) -> Ctx {
    Ctx { now_ns: 1, hint }
}

fn new(kind: FileKind) -> NewInode<'static> {
    NewInode { kind, mode: 0o755, uid: 0, gid: 0, rdev: 0, target: b"" }
}

/// What a race may answer; anything else is a bug.
fn allowed<T>(result: Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(
            Error::NotFound
            | Error::Exists
            | Error::NotEmpty
            | Error::Stale
            | Error::IsDirectory
            | Error::NotDirectory
            | Error::NoSpace
            | Error::NotPermitted(_)
            | Error::Invalid(_),
        ) => None,
        Err(error) => panic!("{error}"),
    }
}

/// For steps of which only the errors matter.
fn race<T>(result: Result<T>) {
    allowed(result);
}

fn work(fs: &Fs, thread: u32, dirs: &[Ino]) {
    let mut random = fastrand::Rng::with_seed(u64::from(thread));
    for step in 0..STEPS {
        let ctx = Ctx { now_ns: i64::from(step), hint: thread };
        let dir = dirs[random.usize(..dirs.len())];
        let other = dirs[random.usize(..dirs.len())];
        let name = format!("n{}", random.u8(..12)).into_bytes();
        let second = format!("n{}", random.u8(..12)).into_bytes();
        let file = allowed(fs.lookup(&ctx, Node::current(dir), &name))
            .filter(|attr| attr.kind == FileKind::File);
        match random.u8(..16) {
            0..3 => race(fs.create(&ctx, Node::current(dir), &name, &new(FileKind::File))),
            3 => race(fs.create(&ctx, Node::current(dir), &name, &new(FileKind::Directory))),
            4 | 5 => race(fs.unlink(&ctx, Node::current(dir), &name)),
            6 => race(fs.rmdir(&ctx, Node::current(dir), &name)),
            7 => race(fs.rename(
                &ctx,
                Node::current(dir),
                &name,
                Node::current(other),
                &second,
                RenameMode::Replace,
            )),
            8 => race(fs.rename(
                &ctx,
                Node::current(dir),
                &name,
                Node::current(other),
                &second,
                RenameMode::Exchange,
            )),
            9 => {
                if let Some(file) = file {
                    race(fs.link(&ctx, file.node(), Node::current(other), &second));
                }
            }
            10 => {
                let mut count = 0;
                race(fs.readdir(&ctx, Node::current(dir), 0, &mut |_| {
                    count += 1;
                    count < 1000
                }));
                assert!(count <= 24, "{count} names");
            }
            _ => {
                if let Some(file) = file {
                    file_step(fs, &ctx, file.ino, &mut random);
                }
            }
        }
    }
}

/// Every write covers the whole file with one byte, so that a read which mixes two shows it.
fn file_step(fs: &Fs, ctx: &Ctx, ino: Ino, random: &mut fastrand::Rng) {
    if allowed(fs.hold(ino)).is_none() {
        return;
    }
    for _ in 0..4 {
        if random.bool() {
            let bytes = vec![random.u8(1..); 9000];
            allowed(fs.write(ctx, ino, 0, &bytes));
        } else {
            let mut bytes = vec![0; 9000];
            if let Some(count) = allowed(fs.read(ctx, ino, 0, &mut bytes)) {
                let first = bytes[0];
                assert!(bytes[..count].iter().all(|byte| *byte == first), "a torn read");
                assert!(count == 0 || count == 9000);
            }
        }
    }
    fs.release(ctx, ino, 1).unwrap();
}

#[test]
fn random_operations_on_shared_directories() {
    let fs = open(pool());
    let ctx = Ctx { now_ns: 0, hint: 0 };
    let mut dirs = vec![Ino::ROOT];
    for name in [b"d1", b"d2"] {
        dirs.push(fs.create(&ctx, Node::ROOT, name, &new(FileKind::Directory)).unwrap().ino);
    }
    dirs.push(
        fs.create(&ctx, Node::current(dirs[1]), b"d3", &new(FileKind::Directory)).unwrap().ino,
    );
    for dir in &dirs {
        fs.hold(*dir).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (fs, dirs) = (&fs, &dirs);
            scope.spawn(move || work(fs, thread, dirs));
        }
    });
    let fs = open(fs.into_pm());
    fs.close().unwrap();
    let pm = fs.into_pm();
    verify(&pm);
    let fs = open(pm);
    assert!(fs.opened().from_saved);
    verify(&fs.into_pm());
}

#[test]
fn appends_from_many_threads_are_whole_and_all_there() {
    let fs = open(pool());
    let ctx = Ctx { now_ns: 0, hint: 0 };
    let ino = fs.create(&ctx, Node::ROOT, b"log", &new(FileKind::File)).unwrap().ino;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u8)
            .map(|thread| {
                let fs = &fs;
                scope.spawn(move || {
                    let ctx = Ctx { now_ns: 1, hint: u32::from(thread) };
                    for _ in 0..300 {
                        fs.append(&ctx, ino, &[thread + 1; 100]).unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let mut bytes = vec![0; 200_000];
                let count = fs.read(&ctx, ino, 0, &mut bytes).unwrap();
                assert_eq!(count % 100, 0);
                assert!(
                    bytes[..count].chunks(100).all(|record| record.iter().all(|b| *b == record[0]))
                );
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    let mut bytes = vec![0; 200_000];
    let count = fs.read(&ctx, ino, 0, &mut bytes).unwrap();
    assert_eq!(count, 4 * 300 * 100);
    for thread in 1..=4 {
        let records = bytes[..count].chunks(100).filter(|record| record[0] == thread);
        assert_eq!(records.count(), 300);
    }
    verify(&fs.into_pm());
}

/// A name whose inode is not in use, or a directory that another names, is damage; a name that moves,
/// or comes and goes, is none, however the look-up and the move meet.
#[test]
fn a_name_on_the_move_is_never_called_damaged() {
    let fs = open(pool());
    let dir =
        |name: &[u8]| fs.create(&ctx(0), Node::ROOT, name, &new(FileKind::Directory)).unwrap().ino;
    let (left, right) = (dir(b"left"), dir(b"right"));
    for (parent, name) in [(left, b"a"), (right, b"b")] {
        fs.create(&ctx(0), Node::current(parent), name, &new(FileKind::Directory)).unwrap();
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (fs, over) = (&fs, &over);
            scope.spawn(move || {
                let names: [&[u8]; 3] = [b"a", b"b", b"c"];
                let places = names.iter().flat_map(|name| [(name, left), (name, right)]);
                while !over.load(Ordering::Relaxed) {
                    for (name, parent) in places.clone() {
                        race(fs.lookup(&ctx(thread), Node::current(parent), name));
                    }
                    let parent = [left, right][thread as usize % 2];
                    race(fs.rmdir(&ctx(thread), Node::current(parent), b"c"));
                }
            });
        }
        for turn in 0..STEPS * 10 {
            let (from, to) = if turn % 2 == 0 { (left, right) } else { (right, left) };
            let c = ctx(9);
            race(fs.rename(
                &c,
                Node::current(from),
                b"a",
                Node::current(to),
                b"a",
                RenameMode::Replace,
            ));
            race(fs.rename(
                &c,
                Node::current(left),
                b"b",
                Node::current(right),
                b"b",
                RenameMode::Exchange,
            ));
            race(fs.rename(
                &c,
                Node::current(to),
                b"b",
                Node::current(from),
                b"b",
                RenameMode::NoReplace,
            ));
            race(fs.create(&c, Node::current(from), b"c", &new(FileKind::Directory)));
            race(fs.rename(
                &c,
                Node::current(from),
                b"a",
                Node::current(to),
                b"c",
                RenameMode::Exchange,
            ));
        }
        over.store(true, Ordering::Relaxed);
    });
    fs.close().unwrap();
    assert_eq!(check(fs.pm(), &Serial, &|_| {}).unwrap().findings, []);
}

/// Each thread makes files in a directory of its own, and then removes those that another has made, so
/// that numbers go back through other lanes than they came from. Threads took the number of inodes in
/// use from one word once; now each lane has its own part of the count.
#[test]
fn inodes_are_counted_whoever_gives_them_back() {
    const FILES: u32 = 700;
    let fs = open(pool());
    let dirs: Vec<Ino> = (0..THREADS)
        .map(|thread| {
            let name = format!("dir {thread}");
            fs.create(&ctx(0), Node::ROOT, name.as_bytes(), &new(FileKind::Directory)).unwrap().ino
        })
        .collect();
    let inodes = || fs.statfs().unwrap().inodes;
    let before = inodes();
    let each = |step: &(dyn Fn(u32, Ino, &[u8]) + Sync), shift: u32| {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let dir = dirs[((thread + shift) % THREADS) as usize];
                scope.spawn(move || {
                    (0..FILES).for_each(|file| step(thread, dir, file.to_string().as_bytes()));
                });
            }
        });
    };
    for round in 0..3 {
        each(
            &|thread, dir, name| {
                fs.create(&ctx(thread), Node::current(dir), name, &new(FileKind::File)).unwrap();
            },
            0,
        );
        assert_eq!(inodes(), before + u64::from(THREADS * FILES), "round {round}");
        each(
            &|thread, dir, name| fs.unlink(&ctx(thread), Node::current(dir), name).unwrap(),
            round,
        );
        assert_eq!(inodes(), before, "round {round}");
    }
    fs.close().unwrap();
    let fs = open(fs.into_pm());
    assert_eq!(fs.statfs().unwrap().inodes, before);
    fs.close().unwrap();
    verify(&fs.into_pm());
}
