//! Promise: a file that the library maps is the file itself; a replica is the file's only once it is
//! published.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at what fails")]

mod support;

use novale_core::{Serial, SetAttr, UpdatePolicy, check};
use novale_pm::{Pm, PmOptions, Purpose, SlotSpec};
use novale_posix::{Error, MakePool, OpenOptions, Pool, make_pool};
use support::files;

const PAGE: usize = 4096;

fn read_write() -> OpenOptions {
    OpenOptions::new().read(true).write(true).create(true)
}

#[test]
fn a_mapping_is_the_file_itself_and_stays_so_when_it_is_cut_and_removed() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let slots = [folder.path().join("pool")];
    make_pool(&slots, &MakePool { slot_bytes: Some(16 << 20), ..MakePool::default() }).unwrap();
    let pool = Pool::open(&slots).unwrap();
    pool.write_file("/f", &[7; 4 * PAGE]).unwrap();
    let file = pool.open_file("/f", &read_write()).unwrap();
    let map = file.map(PAGE as u64, 3 * PAGE as u64).unwrap();
    assert_eq!(map.len(), 3 * PAGE);
    map.store(10, b"stored").unwrap();
    map.flush(10..16).unwrap();
    file.write_at(2 * PAGE as u64, b"written").unwrap();
    let mut seen = [0; 7];
    map.load(PAGE, &mut seen).unwrap();
    assert_eq!(&seen, b"written");
    assert_eq!(&pool.read_file("/f").unwrap()[PAGE + 10..PAGE + 16], b"stored");
    assert!(map.store(3 * PAGE - 2, b"abc").is_err());
    let refused = [file.map(1, 10), file.map(4 * PAGE as u64, 1), file.map(0, 0)];
    assert!(refused.iter().all(|map| map.as_ref().err().map(Error::errno) == Some(libc::EINVAL)));
    file.set_len(10).unwrap();
    pool.remove_file("/f").unwrap();
    drop(file);
    // Space that is written to is none that is mapped.
    map.store(0, &[0x33; 3 * PAGE]).unwrap();
    pool.write_file("/g", &vec![0x44; 4 << 20]).unwrap();
    let mut all = [0; 3 * PAGE];
    map.load(0, &mut all).unwrap();
    assert!(all.iter().all(|byte| *byte == 0x33));
    assert!(pool.read_file("/g").unwrap().iter().all(|byte| *byte == 0x44));
    drop(map);
    pool.close().unwrap();
}

/// What was stored and not flushed was durable neither after a sync of the file nor after the mapping's end.
#[test]
fn what_is_stored_is_durable_once_the_file_is_synced_or_the_mapping_has_ended() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let slots = [folder.path().join("pool")];
    make_pool(&slots, &MakePool { slot_bytes: Some(16 << 20), ..MakePool::default() }).unwrap();
    let files = Pool::open(&slots).unwrap();
    files.write_file("/f", &[7; 4 * PAGE]).unwrap();
    let file = files.open_file("/f", &read_write()).unwrap();
    let count = || files.fs().pm().counters().of(Purpose::Data).write_backs;
    let map = file.map(PAGE as u64, 2 * PAGE as u64).unwrap();
    map.store(0, &[3; 2 * PAGE]).unwrap();
    let before = count();
    file.sync().unwrap();
    assert_eq!(count() - before, 4 * PAGE as u64 / 64);
    let (before, mtime) = (count(), file.attr().unwrap().mtime_ns);
    drop(map);
    assert_eq!(count() - before, 2 * PAGE as u64 / 64);
    assert_eq!(file.attr().unwrap().mtime_ns, mtime, "it need not have been stored to");
    let before = count();
    file.sync().unwrap();
    assert_eq!(count(), before, "nothing is left to be done");
    drop(file);
    files.close().unwrap();
}

#[test]
fn a_replica_is_published_at_once_or_not_at_all() {
    let files = files();
    files.write_file("/f", &[7; 10_000]).unwrap();
    let file = files.open_file("/f", &read_write()).unwrap();
    let mut replica = file.map_atomic(0, 12_000).unwrap();
    replica[5] = 1;
    replica[7] = 1;
    replica[9000] = 2;
    replica[11_000] = 3;
    assert_eq!(files.read_file("/f").unwrap(), [7; 10_000]);
    // Of another: not undone by what is published.
    file.write_at(6, &[9]).unwrap();
    replica.publish().unwrap();
    let bytes = files.read_file("/f").unwrap();
    assert_eq!((bytes.len(), &bytes[5..8], bytes[9000]), (10_000, &[1, 9, 1][..], 2));
    replica[0] = 4;
    drop(replica);
    assert_eq!(files.read_file("/f").unwrap()[0], 7);
}

/// Zero-copy logging: what is written from a mapping is stored once, where it goes.
#[test]
fn what_is_written_from_a_mapping_is_its_own_log() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let slots = [folder.path().join("pool")];
    make_pool(&slots, &MakePool { slot_bytes: Some(16 << 20), ..MakePool::default() }).unwrap();
    let files = Pool::open(&slots).unwrap();
    files.write_file("/buffer", &[7; 2 * PAGE]).unwrap();
    files.write_file("/f", &[1; 2 * PAGE]).unwrap();
    let zcl = SetAttr { update: Some(Some(UpdatePolicy::Zcl)), ..SetAttr::default() };
    files.set_attr("/f", &zcl).unwrap();
    let [buffer, file] =
        ["/buffer", "/f"].map(|path| files.open_file(path, &read_write()).unwrap());
    let map = buffer.map(0, 2 * PAGE as u64).unwrap();
    map.store(4000, &[9; 200]).unwrap();
    // Says the feature.
    file.write_from(0, &map, 0..10).unwrap();
    let before = files.fs().pm().counters();
    assert_eq!(file.write_from(3000, &map, 3900..4300).unwrap(), 400);
    let spent = files.fs().pm().counters() - before;
    // The bytes, entries for where they lie, the line and the certificate.
    assert!(spent.lines() <= 8 + 2 + 2, "{}", spent.lines());
    // They are the mapping's again.
    map.store(4000, &[3; 200]).unwrap();
    let expected = [vec![7; 100], vec![9; 200], vec![7; 100]].concat();
    assert_eq!(&files.read_file("/f").unwrap()[3000..3400], expected);
    assert!(file.write_from(0, &map, 2 * PAGE - 1..2 * PAGE + 1).is_err());
    drop(map);
    files.close().unwrap();
}

#[test]
fn what_is_too_long_is_refused_and_changes_nothing() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let slots = [folder.path().join("pool")];
    make_pool(&slots, &MakePool { slot_bytes: Some(16 << 20), ..MakePool::default() }).unwrap();
    let pool = Pool::open(&slots).unwrap();
    let file = pool.open_file("/f", &read_write()).unwrap();
    file.set_len(3 * PAGE as u64).unwrap();
    let number = |error: Error| error.errno();
    for (offset, len) in [(0, 3 * PAGE + 1), (2 * PAGE, 2 * PAGE), (PAGE, usize::MAX)] {
        let map = file.map(offset as u64, len as u64);
        assert_eq!(map.err().map(number), Some(libc::EINVAL));
    }
    assert_eq!(file.attr().unwrap().blocks, 0, "a hole has got a page");
    let replica = |len| file.map_atomic(0, len).err().map(number);
    assert_eq!(replica(1 << 46), Some(libc::ENOMEM));
    assert_eq!(replica(u64::MAX), Some(libc::EINVAL));
    let map = file.map(0, 3 * PAGE as u64).unwrap();
    for end in [1 << 46, usize::MAX] {
        let written = file.write_from(0, &map, 1..end);
        assert_eq!(written.err().map(number), Some(libc::EINVAL));
    }
    drop(map);
    file.set_len(1 << 47).unwrap();
    assert_eq!(pool.read_file("/f").err().map(number), Some(libc::ENOMEM));
    drop(file);
    pool.close().unwrap();
}

/// Once the pool is closed the pages are held no more, and can be other files'.
#[test]
fn a_mapping_ends_with_its_pool() {
    for ends_by_drop in [false, true] {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let slots = [folder.path().join("pool")];
        make_pool(&slots, &MakePool { slot_bytes: Some(16 << 20), ..MakePool::default() }).unwrap();
        let [first, second] = [(); 2].map(|()| Pool::open(&slots).unwrap());
        second.write_file("/a", &[1; PAGE]).unwrap();
        let map = first.open_file("/a", &read_write()).unwrap().map(0, PAGE as u64).unwrap();
        map.store(0, b"stored").unwrap();
        if ends_by_drop {
            drop(first);
        } else {
            first.close().unwrap();
        }
        assert_eq!(&second.read_file("/a").unwrap()[..6], b"stored");
        second.write_file("/a", &[2; PAGE]).unwrap();
        let other = second.open_file("/b", &read_write()).unwrap();
        while other.write(&[3; 4 * PAGE]).is_ok() {}
        let stored = map.store(0, &[4; PAGE]);
        assert!(second.read_file("/a").unwrap().iter().all(|byte| *byte == 2));
        assert!(second.read_file("/b").unwrap().iter().all(|byte| *byte == 3));
        drop(other);
        let calls = [stored, map.load(0, &mut [0; 8]), map.load(0, &mut []), map.flush(0..PAGE)];
        let refused = calls.map(|call| call.err().map(|error| error.errno()));
        assert_eq!(refused, [Some(libc::ESHUTDOWN); 4]);
        drop(map);
        second.close().unwrap();
        let pm = Pm::open(&slots.map(SlotSpec::new), &PmOptions::default()).unwrap();
        assert!(check(&pm, &Serial, &|_| ()).unwrap().findings.is_empty());
    }
}
