//! Promise: in a mount with a mode a file's writes are durable when they return, or with its next `fsync`, as
//! the nearest choice says; and unmounting keeps everything.

#![allow(clippy::unwrap_used, reason = "a test panics")]

mod support;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::process::Signal;
use support::{Scratch, alone, ends, facts, novale, signal_daemon};

/// The mode of a file by its own choice, and by its mount's.
fn modes(path: &Path) -> (Option<String>, Option<String>) {
    let said = novale(&["info", "--json", path.to_str().unwrap()]).ok();
    let all: Vec<serde_json::Value> = serde_json::from_str(&said).unwrap();
    let word = |key: &str| all.first().unwrap().get(key).unwrap().as_str().map(str::to_owned);
    (word("own_mode"), word("mount_mode"))
}

fn write(file: &mut File) {
    file.write_all(&[7; 10_000]).unwrap();
}

/// A daemon that is killed is the power cut of what was only buffered.
#[test]
fn what_was_not_asked_for_goes_with_the_daemon() {
    let Some(scratch) = Scratch::for_mount("what_was_not_asked_for") else { return };
    let _alone = alone();
    let slot = scratch.slot("pool");
    novale(&["mkfs", "--size", "32M", &slot]).ok();
    novale(&["mount", "-o", "mode=buffered,buffer=8M", &slot, &scratch.dir()]).ok();
    assert!(facts(&slot)["mode"].as_str().unwrap().starts_with("buffered; a buffer of 7."));
    let create = |name: &str| File::create(scratch.in_dir(name)).unwrap();
    write(&mut create("buffered"));
    let mut synced = create("synced");
    write(&mut synced);
    synced.sync_all().unwrap();
    let mut options = File::options();
    let syncs = rustix::fs::OFlags::DSYNC.bits().cast_signed();
    options.write(true).create(true).custom_flags(syncs);
    write(&mut options.open(scratch.in_dir("dsync")).unwrap());
    let own = scratch.in_dir("own");
    drop(create("own"));
    novale(&["set", "--mode", "strict", own.to_str().unwrap()]).ok();
    assert_eq!(modes(&own), (Some("strict".into()), Some("buffered".into())));
    fs::write(&own, [7; 10_000]).unwrap();
    let names = ["buffered", "synced", "dsync", "own"];
    let all = || names.map(|name| fs::read(scratch.in_dir(name)).unwrap().len());
    assert_eq!(all(), [10_000; 4]);
    assert!(ends(signal_daemon(&slot, Signal::KILL)));
    novale(&["mount", "-o", "mode=buffered", &slot, &scratch.dir()]).ok();
    assert_eq!(all(), [0, 10_000, 10_000, 10_000]);
    // A mount that ends in order keeps all, and the next one needs no mode for that.
    fs::write(scratch.in_dir("buffered"), [7; 10_000]).unwrap();
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    assert_eq!(all(), [10_000; 4]);
    assert!(facts(&slot)["mode"].is_null());
    assert_eq!(modes(&own), (Some("strict".into()), Some("strict".into())));
    novale(&["umount", &scratch.dir()]).ok();
}

#[test]
fn programs_that_share_a_pool_have_no_mode() {
    let Some(scratch) = Scratch::for_mount("programs_that_share_a_pool") else { return };
    let _alone = alone();
    let slot = scratch.slot("pool");
    novale(&["mkfs", "--size", "32M", &slot]).ok();
    let words = ["mount", "-o", "direct,mode=buffered", &slot, &scratch.dir()];
    novale(&words).refused(2, &["--mode", "--direct"]);
    novale(&["mount", "-o", "mode=lazy", &slot, &scratch.dir()]).refused(1, &["strict, buffered"]);
}
