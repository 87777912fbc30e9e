//! Promise: a slot whose memory goes away under a mount ends neither the daemon nor the mount. What lies
//! there gives `EIO`, all else goes on, and `novale info` says which slot it was.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at what fails")]

mod support;

use std::fs::{self, OpenOptions};
use std::io::Error;
use std::path::PathBuf;

use serde_json::Value;
use support::{Scratch, alone, novale};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// What a file has, by its number.
fn bytes(number: usize) -> Vec<u8> {
    vec![u8::try_from(number % 250).unwrap() + 1; 20_000]
}

fn path(scratch: &Scratch, number: usize) -> PathBuf {
    scratch.in_dir(&format!("d{}", number % 8)).join(format!("f{number}"))
}

/// Whether it went well; `EIO` is all that may come instead.
fn done<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(matches!(error.raw_os_error(), Some(EIO | ENOSPC)), "{error}");
            None
        }
    }
}

fn work(mount: &[&str], name: &str) {
    let Some(scratch) = Scratch::for_mount(name) else { return };
    let _alone = alone();
    let (a, b, dir) = (scratch.slot("a"), scratch.slot("b"), scratch.dir());
    novale(&["mkfs", "--size", "32M", &a, &b]).ok();
    novale(&[mount, &[&a, &b, &dir]].concat()).ok();
    for number in 0..8 {
        fs::create_dir(scratch.in_dir(&format!("d{number}"))).unwrap();
    }
    let mut whole: Vec<usize> = Vec::new();
    for number in 0..100 {
        fs::write(path(&scratch, number), bytes(number)).unwrap();
        whole.push(number);
    }
    // The first slot is used up first: what lies in the second one are the last of these.
    fs::create_dir(scratch.in_dir("big")).unwrap();
    let big = |number: usize| scratch.in_dir(&format!("big/{number}"));
    for number in 0..40 {
        fs::write(big(number), vec![9; 1 << 20]).unwrap();
    }
    OpenOptions::new().write(true).open(&b).unwrap().set_len(8192).unwrap();
    // The last one may be by another lane, which has an extent of the first slot still.
    let lost = (0..40).rev().find_map(|number| fs::read(big(number)).err()).unwrap();
    assert_eq!(lost.raw_os_error(), Some(EIO));
    for number in 0..10 {
        fs::remove_file(big(number)).unwrap();
    }
    let mut later = 0;
    for number in 100..300 {
        if done(fs::write(path(&scratch, number), bytes(number))).is_some() {
            whole.push(number);
            later += 1;
        }
    }
    assert!(later > 20, "{later} files made after the slot had failed");
    let told = novale(&["info", &a, &b]).ok();
    assert!(told.contains(&format!("{b}  has failed")), "{told}");
    let told: Value = serde_json::from_str(&novale(&["info", "--json", &a, &b]).ok()).unwrap();
    assert_eq!(
        (&told["slots"][0]["has_failed"], &told["slots"][1]["has_failed"]),
        (&false.into(), &true.into())
    );
    let mut read = 0;
    for number in whole {
        if let Some(found) = done(fs::read(path(&scratch, number))) {
            assert!(found == bytes(number), "file {number} has other bytes");
            read += 1;
        }
    }
    assert!(read > 20, "{read} files can be read");
    novale(&["umount", &dir]).refused(1, &["slot 1 has failed", "not closed clean", "check"]);
    novale(&["mount", &a, &b, &dir]).refused(1, &["slot 1", "cut off"]);
}

#[test]
fn files_on_the_other_slot_stay() {
    work(&["mount", "-o", "placement=single"], "files_on_the_other_slot_stay");
}

#[test]
fn a_mount_that_is_shared_goes_on_too() {
    work(&["mount", "-o", "direct,placement=single"], "a_mount_that_is_shared_goes_on_too");
}

/// A mount that ended in order gave up what was only buffered for a slot that had failed, and was back by the next
/// mount: the files were empty.
#[test]
fn what_is_buffered_for_a_slot_waits_until_it_is_back() {
    let Some(scratch) = Scratch::for_mount("buffered_for_a_slot") else { return };
    let _alone = alone();
    let (a, b, dir) = (scratch.slot("a"), scratch.slot("b"), scratch.dir());
    novale(&["mkfs", "--size", "24M", &a, &b]).ok();
    let lazy = "direct,mode=buffered,write_back=3600,age=3600";
    novale(&["mount", "-o", lazy, &a, &b, &dir]).ok();
    let file = |number: usize| scratch.in_dir(&format!("f{number}"));
    // A file that is synced by itself is buffered no more for a while.
    (0..40).for_each(|number| fs::write(file(number), bytes(number + 1)).unwrap());
    rustix::fs::syncfs(fs::File::open(&dir).unwrap()).unwrap();
    for number in 0..40 {
        fs::write(file(number), bytes(number)).unwrap();
    }
    let kept = scratch.in_dir("..").join("b.kept");
    fs::copy(&b, &kept).unwrap();
    let slot = OpenOptions::new().write(true).open(&b).unwrap();
    slot.set_len(0).unwrap();
    let synced = (0..40).map(|number| fs::File::open(file(number)).unwrap().sync_all());
    assert!(synced.filter_map(done).count() < 40);
    novale(&["umount", &dir]).refused(1, &["slot", "has failed", "only buffered is kept"]);
    std::io::copy(&mut fs::File::open(&kept).unwrap(), &mut { slot }).unwrap();
    novale(&["mount", &a, &b, &dir]).ok();
    for number in 0..40 {
        assert!(fs::read(file(number)).unwrap() == bytes(number), "file {number}");
    }
    novale(&["umount", &dir]).ok();
    novale(&["check", &a, &b]).ok();
}
