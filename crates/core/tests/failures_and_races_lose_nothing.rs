//! What fails or loses a race gives everything back, and only one of several wins.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_imports,
    clippy::cast_possible_truncation,
    reason = "a test panics"
)]

mod support;

use novale_core::*;
use novale_pm::{Observer, Pm, PmOptions, Purpose, StoreEvent};
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use support::{MB, pool};
fn ctx(now_ns: i64) -> Ctx {
    Ctx { now_ns, hint: 0 }
}
fn pool_with(lens: &[u64], lanes: u32, options: &PmOptions) -> Pm {
    let pm = Pm::anonymous(lens, options).unwrap();
    mkfs(&pm, &MkfsOptions::numbered(lens.len(), lanes)).unwrap();
    pm
}
fn open(pm: Pm) -> Fs {
    support::open(pm, Form::Auto)
}
fn new(kind: FileKind) -> NewInode<'static> {
    NewInode { kind, mode: 0o755, uid: 1, gid: 2, rdev: 0, target: b"" }
}
fn findings(pm: &Pm) -> Vec<String> {
    check(pm, &Serial, &|_| {}).unwrap().findings.into_iter().map(|f| f.what).collect()
}

/// The number went back to generation 1, and to the access time of an earlier life.
#[test]
fn a_failed_create_keeps_the_numbers_generation() {
    let fs = open(pool(&[16 * MB], 1));
    let d = fs.create(&ctx(10), Node::ROOT, b"d", &new(FileKind::Directory)).unwrap();
    let f = fs.create(&ctx(10), Node::ROOT, b"f", &new(FileKind::File)).unwrap();
    fs.write(&ctx(10), f.ino, 0, b"x").unwrap();
    let mut byte = [0];
    fs.read(&ctx(5_000), f.ino, 0, &mut byte).unwrap(); // atime 5000, generation 1
    fs.unlink(&ctx(20), Node::ROOT, b"f").unwrap();
    fs.close().unwrap();
    let fs = open(fs.into_pm());
    let g = fs.create(&ctx(21), Node::ROOT, b"g", &new(FileKind::File)).unwrap();
    assert_eq!((g.ino, g.generation), (f.ino, 2));
    fs.unlink(&ctx(22), Node::ROOT, b"g").unwrap();
    fs.close().unwrap();
    let fs = open(fs.into_pm());
    // A create that fails after the taking of the number.
    fs.hold(d.ino).unwrap();
    fs.rmdir(&ctx(30), Node::ROOT, b"d").unwrap();
    assert!(matches!(
        fs.create(&ctx(31), d.node(), b"x", &new(FileKind::File)),
        Err(Error::NotFound)
    ));
    let mut h = f;
    for index in 0..200 {
        h = fs
            .create(&ctx(6_000), Node::ROOT, format!("h{index}").as_bytes(), &new(FileKind::File))
            .unwrap();
        if h.ino == f.ino {
            break;
        }
    }
    println!(
        "f {} {}; h {} {} atime {}",
        f.ino.get(),
        f.generation,
        h.ino.get(),
        h.generation,
        h.atime_ns
    );
    assert_eq!(h.ino, f.ino);
    fs.close().unwrap();
    let fs = open(fs.into_pm());
    let again = fs.getattr(h.ino).unwrap();
    assert!(h.generation == 3 && again.atime_ns == h.atime_ns);
}

struct Hook {
    on: AtomicBool,
    run: OnceLock<Box<dyn Fn() + Send + Sync>>,
}
impl Observer for Hook {
    fn store(&self, event: StoreEvent<'_>) {
        if event.purpose == Purpose::Data && self.on.swap(false, Ordering::Relaxed) {
            self.run.get().unwrap()();
        }
    }
    fn write_back(
        &self,
        _: novale_layout::PmAddr,
        _: u64,
        _: Purpose,
        _: &'static Location<'static>,
    ) {
    }
    fn fence(&self, _: &'static Location<'static>) {}
}
/// The file goes away between the storing of the data and the lock.
#[test]
fn an_append_to_a_file_that_goes_away_gives_its_pages_back() {
    let hook = Arc::new(Hook { on: AtomicBool::new(false), run: OnceLock::new() });
    let pm = pool_with(
        &[16 * MB],
        1,
        &PmOptions { observer: Some(hook.clone()), ..PmOptions::default() },
    );
    let fs: &'static Fs = Box::leak(Box::new(open(pm)));
    let f = fs.create(&ctx(10), Node::ROOT, b"f", &new(FileKind::File)).unwrap();
    let unlink = move || fs.unlink(&ctx(11), Node::ROOT, b"f").unwrap();
    assert!(hook.run.set(Box::new(unlink)).is_ok());
    fs.create(&ctx(10), Node::ROOT, b"g", &new(FileKind::File)).unwrap();
    hook.on.store(true, Ordering::Relaxed);
    assert!(matches!(fs.append(&ctx(12), f.ino, &vec![1; 8 * 4096]), Err(Error::Stale)));
    fs.close().unwrap();
    assert_eq!(findings(fs.pm()), Vec::<String>::new());
}

/// A write found a file, and stored its pages before it took the lock. By then the number was a
/// directory's, whose index of names got the pages: listing it told of damage.
#[test]
fn a_write_to_a_number_that_becomes_a_directorys_is_refused() {
    for appends in [false, true] {
        let hook = Arc::new(Hook { on: AtomicBool::new(false), run: OnceLock::new() });
        let pm = pool_with(
            &[16 * MB],
            1,
            &PmOptions { observer: Some(hook.clone()), ..PmOptions::default() },
        );
        let fs: &'static Fs = Box::leak(Box::new(open(pm)));
        let file = fs.create(&ctx(10), Node::ROOT, b"f", &new(FileKind::File)).unwrap().ino;
        let reuse = move || {
            fs.unlink(&ctx(11), Node::ROOT, b"f").unwrap();
            let mut directories = (0..200).map(|index| {
                let name = format!("d{index}");
                fs.create(&ctx(11), Node::ROOT, name.as_bytes(), &new(FileKind::Directory)).unwrap()
            });
            assert!(directories.any(|made| made.ino == file));
        };
        assert!(hook.run.set(Box::new(reuse)).is_ok());
        hook.on.store(true, Ordering::Relaxed);
        let data = vec![1; 8 * 4096];
        let refused = if appends {
            fs.append(&ctx(12), file, &data).err()
        } else {
            fs.write(&ctx(12), file, 0, &data).err()
        };
        assert!(matches!(refused, Some(Error::IsDirectory)), "{refused:?}");
        assert!(!hook.on.load(Ordering::Relaxed), "the number was used again meanwhile");
        fs.readdir(&ctx(13), Node::current(file), 0, &mut |entry| {
            panic!("{entry:?} in an empty directory")
        })
        .unwrap();
        fs.close().unwrap();
        assert_eq!(findings(fs.pm()), Vec::<String>::new());
    }
}

/// Two look-ups without a lock, one before and one after the other's rename, looked like two names
/// of one inode, which is nothing to do and no error.
#[test]
fn one_of_two_renames_of_a_name_wins() {
    let fs = open(pool(&[64 * MB], 2));
    let mut twice = 0;
    for _ in 0..3000 {
        fs.create(&ctx(1), Node::ROOT, b"a", &new(FileKind::File)).unwrap();
        let barrier = Barrier::new(2);
        let won = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for hint in 0..2 {
                let (fs, barrier, won) = (&fs, &barrier, &won);
                scope.spawn(move || {
                    barrier.wait();
                    if fs
                        .rename(
                            &Ctx { now_ns: 2, hint },
                            Node::ROOT,
                            b"a",
                            Node::ROOT,
                            b"b",
                            RenameMode::Replace,
                        )
                        .is_ok()
                    {
                        won.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        if won.load(Ordering::Relaxed) != 1 {
            twice += 1;
        }
        fs.unlink(&ctx(3), Node::ROOT, b"b").unwrap();
    }
    assert_eq!(twice, 0, "both said that they had moved it");
}

/// A lane's word of free numbers was overwritten when two threads refilled it at once.
#[test]
fn no_inode_number_is_lost_when_numbers_run_out() {
    let fs = open(pool(&[8 * MB], 1));
    // No room for a second chunk.
    let fill = fs.create(&ctx(1), Node::ROOT, b"fill", &new(FileKind::File)).unwrap();
    fs.fallocate(&ctx(1), fill.ino, Fallocate::Extend, 0, 900 * 4096).unwrap();
    let mut count = 0;
    while fs
        .create(&ctx(2), Node::ROOT, format!("n{count}").as_bytes(), &new(FileKind::File))
        .is_ok()
    {
        count += 1;
    }
    let stop = AtomicBool::new(false);
    let made: Mutex<Vec<String>> = Mutex::new((0..300).map(|i| format!("n{i}")).collect());
    std::thread::scope(|scope| {
        for thread in 0..3_u32 {
            let (fs, stop, made) = (&fs, &stop, &made);
            scope.spawn(move || {
                let mut k = 0;
                while !stop.load(Ordering::Relaxed) {
                    k += 1;
                    let name = format!("c{thread}_{k}");
                    if fs
                        .create(
                            &Ctx { now_ns: 3, hint: thread },
                            Node::ROOT,
                            name.as_bytes(),
                            &new(FileKind::File),
                        )
                        .is_ok()
                    {
                        made.lock().unwrap().push(name);
                    }
                }
            });
        }
        let begun = std::time::Instant::now();
        let mut unlinked = Ok(());
        while unlinked.is_ok() && begun.elapsed().as_secs() < 2 {
            let list = std::mem::take(&mut *made.lock().unwrap());
            unlinked = list.iter().try_for_each(|name| {
                fs.unlink(&Ctx { now_ns: 4, hint: 9 }, Node::ROOT, name.as_bytes())
            });
        }
        // The other threads end before this one may panic.
        stop.store(true, Ordering::Relaxed);
        unlinked.unwrap();
    });
    fs.close().unwrap();
    assert_eq!(findings(fs.pm()), Vec::<String>::new());
}
