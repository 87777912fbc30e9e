//! Promise: a mount ends in order: nothing new is opened, what is open may finish, the rest is cut.

mod support;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use novale_fuse::{ShutDown, Unmount, find, unmount};
use rustix::fs::{Mode, OFlags, openat};
use support::{Mount, eventually};

/// How often a mount ends; one in about 100 is told so while it has a request half read.
const ROUNDS: u32 = 300;

#[test]
fn what_is_open_may_finish_within_the_grace_time_and_nothing_new_is_opened() {
    let test = "what_is_open_may_finish_within_the_grace_time";
    let Some(mount) = Mount::new(test, "") else { return };
    let mut file = File::create_new(mount.path("f")).unwrap();
    let directory = File::open(mount.root()).unwrap();
    let root = mount.root().to_owned();
    let writer = std::thread::spawn(move || {
        assert!(eventually(|| !root.join("f").exists()), "the tree is still there");
        let opened = openat(&directory, "f", OFlags::RDONLY, Mode::empty());
        assert_eq!(opened.err(), Some(rustix::io::Errno::SHUTDOWN));
        let flags = OFlags::CREATE | OFlags::WRONLY;
        let made = openat(&directory, "new", flags, Mode::RUSR);
        assert_eq!(made.err(), Some(rustix::io::Errno::SHUTDOWN));
        file.write_all(b"last words").unwrap();
    });
    let fs = mount.fs.clone();
    assert_eq!(mount.end(Duration::from_secs(30)), ShutDown::Finished);
    writer.join().unwrap();
    assert!(matches!(fs.close(), Err(novale_core::Error::Closed)));
}

#[test]
fn a_file_that_stays_open_is_cut_off_after_the_grace_time() {
    let Some(mount) = Mount::new("a_file_that_stays_open_is_cut_off", "") else {
        return;
    };
    fs::write(mount.path("f"), b"x").unwrap();
    let mut file = File::open(mount.path("f")).unwrap();
    let start = Instant::now();
    assert_eq!(mount.end(Duration::from_millis(200)), ShutDown::CutOff);
    assert!(start.elapsed() >= Duration::from_millis(200));
    assert!(start.elapsed() < Duration::from_secs(10));
    assert!(file.read(&mut [0; 1]).is_err());
}

/// The last close ends the mount, and the kernel tells the thread that takes it so in words of its own.
#[test]
fn the_last_close_may_end_the_mount() {
    for _ in 0..ROUNDS {
        let Some(mount) = Mount::new("the_last_close_may_end_the_mount", "") else { return };
        let file = File::create_new(mount.path("f")).unwrap();
        let root = mount.root().to_owned();
        let last = std::thread::spawn(move || {
            assert!(eventually(|| !root.join("f").exists()), "the tree is still there");
            drop(file);
        });
        assert_eq!(mount.end(Duration::from_secs(30)), ShutDown::Finished);
        last.join().unwrap();
    }
}

#[test]
fn unmounting_is_refused_while_busy_unless_forced() {
    let Some(mount) = Mount::new("unmounting_is_refused_while_busy", "") else {
        return;
    };
    let mut file = File::create_new(mount.path("f")).unwrap();
    let busy = unmount(&find(mount.root()).unwrap(), Unmount::Politely);
    assert!(matches!(busy, Err(novale_fuse::MountError::Busy { .. })), "{busy:?}");
    file.write_all(b"works on").unwrap();
    let was = find(mount.root()).unwrap();
    unmount(&was, Unmount::ByForce).unwrap();
    assert_eq!(was.kind, "fuse.novale");
    assert!(file.write_all(b"cut").is_err());
    assert_eq!(mount.end(Duration::from_secs(10)), ShutDown::Finished);
}

#[test]
fn what_is_no_novale_mount_is_not_unmounted() {
    let directory = tempfile::TempDir::new().unwrap();
    let refused = find(directory.path());
    assert!(matches!(refused, Err(novale_fuse::MountError::NotMounted { other: None, .. })));
    let refused = find(std::path::Path::new("/proc"));
    let text = refused.err().map(|error| error.to_string());
    assert_eq!(text.as_deref(), Some("/proc is not a Novale mount, but one of type proc"));
}
