//! Promise: a program makes, opens and leaves a pool in a call each, alone or beside others.

use std::path::PathBuf;

use novale_posix::join::{self, JoinError, Opening};
use novale_posix::{AllCpus, MakeError, MakePool, OpenOptions, Pool, make_pool};

const SIZED: MakePool =
    MakePool { slot_bytes: Some(8 << 20), overwrite: false, lanes: None, method: None, mode: None };

fn slots(folder: &tempfile::TempDir, names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(|name| folder.path().join(name)).collect()
}

#[test]
fn what_was_written_is_there_after_closing_and_after_dropping() {
    let folder = tempfile::tempdir().unwrap();
    let slots = slots(&folder, &["pool"]);
    make_pool(&slots, &SIZED).unwrap();
    let pool = Pool::open(&slots).unwrap();
    pool.write_file("/closed", b"1").unwrap();
    pool.close().unwrap();
    let pool = Pool::open(&slots).unwrap();
    assert!(pool.fs().opened().clean);
    pool.write_file("/dropped", b"2").unwrap();
    drop(pool);
    let pool = Pool::open(&slots).unwrap();
    assert!(pool.fs().opened().clean, "dropping closes it in order");
    assert_eq!(pool.read_file("/closed").unwrap(), b"1");
    assert_eq!(pool.read_file("/dropped").unwrap(), b"2");
    let owner = rustix::process::geteuid().as_raw();
    assert_eq!(pool.stat("/closed").unwrap().uid, owner);
}

#[test]
fn slots_are_named_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut slots = slots(&folder, &["a", "b", "c"]);
    make_pool(&slots, &SIZED).unwrap();
    slots.rotate_left(1);
    Pool::open(&slots).unwrap().write_file("/f", b"x").unwrap();
    slots.reverse();
    assert!(Pool::open(&slots).unwrap().exists("/f"));
    slots.pop();
    assert!(Pool::open(&slots).is_err(), "a slot is missing");
}

/// Who joined by a copy of one of several slots stored to that, and the others to the file that they had:
/// both pools were damaged.
#[test]
fn a_copy_that_lies_in_the_place_of_a_slot_is_not_joined() {
    let folder = tempfile::tempdir().unwrap();
    let slots = slots(&folder, &["a", "b"]);
    make_pool(&slots, &SIZED).unwrap();
    let first = Pool::open(&slots).unwrap();
    let (kept, copy) = (folder.path().join("kept"), folder.path().join("copy"));
    std::fs::copy(&slots[1], &copy).unwrap();
    std::fs::rename(&slots[1], &kept).unwrap();
    std::fs::rename(&copy, &slots[1]).unwrap();
    let refused = Pool::open(&slots).unwrap_err().to_string();
    assert!(refused.contains("not the one that the others have open"), "{refused}");
    std::fs::rename(&kept, &slots[1]).unwrap();
    Pool::open(&slots).unwrap().write_file("/f", b"x").unwrap();
    assert_eq!(first.read_file("/f").unwrap(), b"x");
}

#[test]
fn who_comes_second_joins_and_who_stays_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let slots = slots(&folder, &["pool"]);
    make_pool(&slots, &SIZED).unwrap();
    let first = Pool::open(&slots).unwrap();
    let second = Pool::open(&slots).unwrap();
    first.write_file("/f", b"from the first").unwrap();
    assert_eq!(second.read_file("/f").unwrap(), b"from the first");
    first.close().unwrap();
    second.write_file("/g", b"from the second").unwrap();
    second.close().unwrap();
    assert_eq!(Pool::open(&slots).unwrap().read_file("/g").unwrap(), b"from the second");
}

#[test]
fn an_open_file_is_cut_off_when_its_pool_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let slots = slots(&folder, &["pool"]);
    make_pool(&slots, &SIZED).unwrap();
    let pool = Pool::open(&slots).unwrap();
    let file = pool.open_file("/f", &OpenOptions::new().write(true).create(true)).unwrap();
    pool.close().unwrap();
    assert_eq!(file.write(b"x").unwrap_err().errno(), libc::ESHUTDOWN);
    drop(file);
    assert_eq!(Pool::open(&slots).unwrap().stat("/f").unwrap().size, 0);
}

#[test]
fn making_overwrites_nothing_unasked_and_leaves_nothing_where_it_fails() {
    let folder = tempfile::tempdir().unwrap();
    let all = slots(&folder, &["a", "b"]);
    let no_size = make_pool(&all, &MakePool::default()).unwrap_err();
    assert!(matches!(no_size, MakeError::NoSize { .. }), "{no_size}");
    let small = make_pool(&all, &MakePool { slot_bytes: Some(1 << 20), ..SIZED }).unwrap_err();
    assert_eq!(small.errno(), libc::EINVAL, "{small}");
    assert!(!all[0].exists() && !all[1].exists());

    std::fs::write(&all[1], vec![7; 8 << 20]).unwrap();
    let holds = make_pool(&all, &SIZED).unwrap_err();
    assert_eq!(holds.errno(), libc::EEXIST, "{holds}");
    assert!(!all[0].exists());
    assert!(std::fs::read(&all[1]).unwrap().iter().all(|byte| *byte == 7));

    make_pool(&all, &MakePool { overwrite: true, ..SIZED }).unwrap();
    let pool = Pool::open(&all).unwrap();
    let busy = make_pool(&all, &MakePool { overwrite: true, ..SIZED }).unwrap_err();
    assert_eq!(busy.errno(), libc::EBUSY, "{busy}");
    pool.write_file("/f", b"still a pool").unwrap();
}

/// One in five of four processes that opened a pool at once, and closed it at once, was told that it
/// was in use, or that nobody had it open.
#[test]
fn many_open_and_close_it_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let slots = slots(&folder, &["pool"]);
    make_pool(&slots, &SIZED).unwrap();
    std::thread::scope(|scope| {
        for name in 0..4 {
            let slots = &slots;
            scope.spawn(move || {
                for round in 0..25 {
                    let pool = Pool::open(slots).unwrap();
                    pool.write_file(format!("/{name}-{round}"), b"x").unwrap();
                    pool.close().unwrap();
                }
            });
        }
    });
    let pool = Pool::open(&slots).unwrap();
    assert_eq!(pool.read_dir("/").unwrap().len(), 100);
}

/// How it went wrong: a pool that was closed before its files left them held, and nobody gave them back, since who had
/// them had left in order: once removed, they kept their pages until all had left.
#[test]
fn what_a_closed_pool_had_open_can_go() {
    let folder = tempfile::tempdir().unwrap();
    let slots = slots(&folder, &["pool"]);
    make_pool(&slots, &SIZED).unwrap();
    let first = Pool::open(&slots).unwrap();
    first.create_dir("/d", 0o755).unwrap();
    first.write_file("/d/made", b"").unwrap();
    first.remove_file("/d/made").unwrap();
    let used = || {
        let used = first.stat_fs().unwrap();
        (used.pages - used.pages_free, used.inodes)
    };
    let before = used();
    let options = OpenOptions::new().read(true).write(true);
    let (made, unnamed) = (options.create(true), options.unnamed(true));
    for closed_first in [false, true] {
        let second = Pool::open(&slots).unwrap();
        let files = [("/d/made", &made), ("/d/made", &made), ("/d", &unnamed)]
            .map(|(path, how)| second.open_file(path, how).unwrap());
        for file in &files {
            assert_eq!(file.write_at(0, &[7; 10_000]).unwrap(), 10_000);
        }
        if closed_first {
            drop(second);
            drop(files);
        } else {
            drop(files);
            second.close().unwrap();
        }
        first.remove_file("/d/made").unwrap();
        assert_eq!(used(), before, "closed first: {closed_first}");
    }
}

/// It was told as a pool that is not there (`ENOENT`), for which a program makes one.
#[test]
fn a_pool_that_somebody_has_locked_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let slots = slots(&folder, &["pool"]);
    make_pool(&slots, &SIZED).unwrap();
    let locked = std::fs::File::open(&slots[0]).unwrap();
    locked.lock_shared().unwrap();
    let open = || join::open(&slots, &Opening::default(), &AllCpus, &|_| ());
    let refused = open().unwrap_err();
    assert!(matches!(refused, JoinError::Changing), "{refused}");
    assert_eq!(refused.errno(), rustix::io::Errno::AGAIN.raw_os_error());
    drop(locked);
    open().unwrap().close().unwrap();
}
