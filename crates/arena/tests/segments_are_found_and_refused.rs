//! A named segment is made once, opened by those whom it fits, grows for all who map it, and fails
//! as an error where its file system is full.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(unsafe_code, reason = "a thread of a test enters a mount namespace")]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use novale_arena::{Arena, ArenaError, Class, Identity, Off, PidInfo};
use tempfile::TempDir;

const IDENTITY: Identity = Identity { pool_uuid: *b"0123456789abcdef", abi: 42 };
const LARGE: Class = Class::new(1, 1 << 15);

fn place() -> (TempDir, PathBuf) {
    let folder = TempDir::with_prefix_in("novale-arena-test-", "/dev/shm").unwrap();
    let path = folder.path().join("arena");
    (folder, path)
}

#[test]
fn what_one_handle_writes_another_reads() {
    let (_folder, path) = place();
    let made = Arena::create(&path, 64 << 20, IDENTITY).unwrap();
    made.root()[63].store(5, Relaxed);
    let opened = Arena::open(&path, IDENTITY).unwrap();
    assert_eq!(opened.max_bytes(), 64 << 20);
    assert_eq!(opened.root()[63].load(Relaxed), 5);
    assert_eq!(opened.generation(), 1);
    made.set_generation(2);
    assert_eq!(opened.generation(), 2);
    // All hash names alike, and those of another segment otherwise.
    let another = Arena::create(&path.with_extension("another"), 64 << 20, IDENTITY).unwrap();
    assert_eq!(opened.hash_seed(), made.hash_seed());
    assert!(![0, another.hash_seed()].contains(&made.hash_seed()), "drawn");
    // A client of the one is one of the other.
    let client = made.attach(PidInfo::current()).unwrap();
    assert_eq!(opened.clients().collect::<Vec<_>>(), [client.info()]);
}

/// With a filter that takes mapped files the core file of a program had all of it.
#[test]
fn core_files_have_nothing_of_a_segment() {
    let (_folder, path) = place();
    drop(Arena::create(&path, 64 << 20, IDENTITY).unwrap());
    let opened = Arena::open(&path, IDENTITY).unwrap();
    while opened.alloc(LARGE).unwrap().raw() < 20 << 20 {}
    let all = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let of_segment: Vec<&str> = all.split(path.to_str().unwrap()).skip(1).collect();
    assert!(!of_segment.is_empty());
    for mapping in of_segment {
        let flags = mapping.lines().find_map(|line| line.strip_prefix("VmFlags:")).unwrap();
        assert!(flags.contains(" dd"), "{flags}");
    }
}

#[test]
fn growth_by_one_handle_reaches_the_other() {
    let (_folder, path) = place();
    let made = Arena::create(&path, 64 << 20, IDENTITY).unwrap();
    let opened = Arena::open(&path, IDENTITY).unwrap();
    let mut last = Off::NULL;
    while last.raw() < 20 << 20 {
        last = made.alloc(LARGE).unwrap();
    }
    made.slice(last, 1 << 15).unwrap()[7].store(9, Relaxed);
    assert_eq!(opened.slice(last, 1 << 15).unwrap()[7].load(Relaxed), 9);
    // What nobody has allocated yet is out of bounds for both.
    for arena in [&made, &opened] {
        assert!(arena.word(Off::from_raw(60 << 20)).is_err());
    }
}

/// Bytes of a file that this process has mapped.
fn mapped(path: &Path) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let ino = std::fs::metadata(path).unwrap().ino().to_string();
    let of_file = maps.lines().filter(|line| line.split(' ').nth(4) == Some(ino.as_str()));
    let len = |line: &str| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        number(end)?.checked_sub(number(start)?)
    };
    of_file.map(|line| len(line).unwrap()).sum()
}

/// A checker of memory that looks at all that is mapped (valgrind's, for leaks) meets a bus error at each page beyond the
/// file's end, and went on for minutes where all of the arena was mapped.
#[test]
fn little_more_is_mapped_than_there_is() {
    const AHEAD: u64 = 32 << 20;
    let (_folder, path) = place();
    let made = Arena::create(&path, 64 << 20, IDENTITY).unwrap();
    let first = std::fs::metadata(&path).unwrap().len();
    assert_eq!(mapped(&path), first + AHEAD);
    while made.alloc(LARGE).unwrap().raw() < 20 << 20 {}
    assert_eq!(mapped(&path), first + AHEAD);
    // An operation begins.
    let client = made.attach(PidInfo::current()).unwrap();
    drop(client.op(1, 0));
    let now = std::fs::metadata(&path).unwrap().len();
    assert!(now > first + AHEAD / 2);
    assert_eq!(mapped(&path), now + AHEAD);
}

#[test]
fn offsets_are_checked() {
    let (_folder, path) = place();
    let small = 2 << 20;
    for arena in [Arena::create(&path, small, IDENTITY).unwrap(), Arena::anonymous(small).unwrap()]
    {
        let good = arena.alloc(Class::new(2, 64)).unwrap();
        while arena.alloc(Class::new(3, 8)).is_ok() {}
        assert!(arena.block::<64>(good).is_ok());
        assert!(arena.slice(good, 64).is_ok());
        assert!(arena.word(good.word(63)).is_ok());
        assert!(arena.word(Off::from_raw(small - 8)).is_ok(), "the last word");
        assert!(arena.block::<8>(Off::from_raw(small - 64)).is_ok(), "the last line");
        assert!(arena.slice(Off::from_raw(small - 64), 8).is_ok());
        for bad in [0, small, small + 64, !63, 1 << 63] {
            let bad = Off::from_raw(bad);
            assert_eq!(arena.block::<8>(bad).unwrap_err().off, bad.raw());
            assert!(arena.slice(bad, 8).is_err());
            assert!(arena.word(bad).is_err());
        }
        assert!(arena.block::<8>(good.add(8)).is_err(), "not on a line");
        assert!(arena.slice(good.add(32), 8).is_err(), "not on a line");
        assert!(arena.word(good.add(4)).is_err(), "not on a word");
        assert!(arena.block::<16>(Off::from_raw(small - 64)).is_err(), "over the end");
        for words in [small / 8, u64::MAX / 8, u64::MAX] {
            assert!(arena.slice(good, words).is_err(), "{words} words");
        }
    }
}

#[test]
fn a_segment_is_made_once() {
    let (_folder, path) = place();
    let _made = Arena::create(&path, 2 << 20, IDENTITY).unwrap();
    let again = Arena::create(&path, 2 << 20, IDENTITY);
    assert!(matches!(again, Err(ArenaError::Exists { .. })), "{again:?}");
    Arena::remove(&path).unwrap();
    assert!(matches!(Arena::remove(&path), Err(ArenaError::NotFound { .. })));
    assert!(matches!(Arena::open(&path, IDENTITY), Err(ArenaError::NotFound { .. })));
    Arena::create(&path, 2 << 20, IDENTITY).unwrap();
}

#[test]
fn a_failed_creation_leaves_no_file() {
    let (folder, path) = place();
    for bytes in [0, (2 << 20) - 1, (256 << 30) + 1, u64::MAX] {
        let outcome = Arena::create(&path, bytes, IDENTITY);
        let Err(ArenaError::BadSize { found, least, greatest }) = outcome else {
            panic!("{bytes}: {outcome:?}")
        };
        assert_eq!((found, least, greatest), (bytes, 2 << 20, 256 << 30));
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    assert!(Arena::create(Path::new("/nowhere/arena"), 2 << 20, IDENTITY).is_err());
}

#[test]
fn strangers_are_refused() {
    let (_folder, path) = place();
    let made = Arena::create(&path, 2 << 20, IDENTITY).unwrap();
    let other_build = Identity { abi: 43, ..IDENTITY };
    let outcome = Arena::open(&path, other_build);
    assert!(matches!(outcome, Err(ArenaError::OtherBuild { .. })), "{outcome:?}");
    let other_pool = Identity { pool_uuid: *b"0123456789abcdeF", ..IDENTITY };
    let outcome = Arena::open(&path, other_pool).unwrap_err();
    let text = "arena of another pool: 30313233343536373839616263646566, \
                expected 30313233343536373839616263646546";
    assert_eq!(outcome.to_string(), text);
    assert!(!made.is_poisoned());
    made.poison();
    assert!(matches!(Arena::open(&path, IDENTITY), Err(ArenaError::Poisoned)));
    assert!(matches!(made.attach(PidInfo::current()), Err(ArenaError::Poisoned)));
}

#[test]
fn files_that_are_no_segment_are_refused() {
    let (_folder, path) = place();
    for content in [vec![], vec![0; 63], vec![0; 4 << 20], vec![0xff; 4096]] {
        File::create(&path).unwrap().write_all(&content).unwrap();
        let outcome = Arena::open(&path, IDENTITY);
        assert!(matches!(outcome, Err(ArenaError::NotArena { .. })), "{outcome:?}");
    }
    // A true header with an absurd size, and one of a file that lost its end.
    std::fs::remove_file(&path).unwrap();
    drop(Arena::create(&path, 2 << 20, IDENTITY).unwrap());
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(4096).unwrap();
    let reopened = Arena::open(&path, IDENTITY).unwrap();
    assert!(reopened.alloc(LARGE).is_ok(), "the missing part is allocated again");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 8], 32).unwrap();
    let outcome = Arena::open(&path, IDENTITY);
    assert!(matches!(outcome, Err(ArenaError::BadSize { .. })), "{outcome:?}");
}

/// In a mount namespace of this thread's own, which ends with it; only root may have one.
#[test]
fn a_full_file_system_is_an_error_and_no_signal() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root to mount a small file system");
        return;
    }
    std::thread::spawn(|| {
        use rustix::mount::{MountFlags, MountPropagationFlags};
        use rustix::thread::UnshareFlags;
        // SAFETY: this thread shares no file system state that another relies on.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS | UnshareFlags::NEWNS) }.unwrap();
        let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
        rustix::mount::mount_change("/", private).unwrap();
        let folder = TempDir::with_prefix_in("novale-arena-test-", "/dev/shm").unwrap();
        let options = c"size=6m";
        rustix::mount::mount("none", folder.path(), "tmpfs", MountFlags::empty(), options).unwrap();
        fill_up(&folder.path().join("arena"));
        rustix::mount::unmount(folder.path(), rustix::mount::UnmountFlags::empty()).unwrap();
    })
    .join()
    .unwrap();
}

fn fill_up(path: &Path) {
    let arena = Arena::create(path, 64 << 20, IDENTITY).unwrap();
    let mut blocks = 0;
    let full = loop {
        match arena.alloc(LARGE) {
            // Touched all over, which must not fault.
            Ok(off) => arena.slice(off, 1 << 15).unwrap().iter().for_each(|w| w.store(1, Relaxed)),
            Err(full) => break full,
        }
        blocks += 1;
    };
    assert_eq!(full.limit, 64 << 20);
    assert!((20..24).contains(&blocks), "{blocks} blocks of 256 KB in 6 MB");
    let other = path.with_extension("other");
    std::fs::write(path.with_extension("filler"), vec![1; 1 << 20]).unwrap_err();
    let outcome = Arena::create(&other, 2 << 20, IDENTITY);
    assert!(matches!(outcome, Err(ArenaError::Full(_))), "{outcome:?}");
    assert!(!other.exists());
}
