//! Promise: who finds a mount full while a removed file is on its way out gets the room, and who finds
//! it full otherwise is told so.
//!
//! The kernel gives up a removed file behind the back of its program: one that filled a file system,
//! closed and removed the file, and wrote the next one at once, failed with ENOSPC now and then.

#![allow(clippy::unwrap_used, reason = "a test panics")]

mod support;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use support::Mount;

const MB: u64 = 1 << 20;
/// The most that the test's pool has room for but once.
const MOST: u64 = 150 * MB;

/// Makes a file with room for so many bytes.
fn reserve(path: &Path, bytes: u64) -> Result<File, Errno> {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path);
    let file = file.map_err(|error| Errno::from_io_error(&error).unwrap())?;
    fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
    Ok(file)
}

#[test]
fn room_that_a_file_gives_up_meanwhile_is_had() {
    let Some(mount) = Mount::new("room_that_a_file_gives_up", "") else { return };
    let old = reserve(&mount.path("old"), MOST).unwrap();
    fs::remove_file(mount.path("old")).unwrap();
    std::thread::scope(|scope| {
        // More than there are serving threads, which must be there for the file's end.
        let waiting: Vec<_> = (0..12)
            .map(|index| {
                let path = mount.path(&format!("new {index}"));
                scope.spawn(move || {
                    let mut file = reserve(&path, MOST / 12)?;
                    file.write_all(&[1; 5000]).map_err(|_| Errno::IO)
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(100));
        drop(old);
        for one in waiting {
            assert_eq!(one.join().unwrap(), Ok(()));
        }
    });
}

#[test]
fn what_is_closed_and_removed_leaves_its_room_at_once() {
    let Some(mount) = Mount::new("what_is_closed_and_removed", "") else { return };
    let path = mount.path("file");
    for round in 0..100 {
        let file = reserve(&path, MOST).unwrap_or_else(|error| panic!("round {round}: {error}"));
        if round % 2 == 0 {
            drop(file);
            fs::remove_file(&path).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
    }
}

#[test]
fn where_none_comes_nobody_waits_again() {
    let Some(mount) = Mount::new("where_none_comes", "") else { return };
    let fails = || assert_eq!(reserve(&mount.path("new"), MOST).err(), Some(Errno::NOSPC));
    let _stays = reserve(&mount.path("open"), MOST).unwrap();
    fails();
    fs::remove_file(mount.path("open")).unwrap();
    assert!(mount.fs.room_turn().is_some());
    fails();
    assert_eq!(mount.fs.room_turn(), None, "one has waited in vain");
    fails();
}
