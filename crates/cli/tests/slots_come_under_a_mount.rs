//! Promise: `novale slot add` of a mounted pool gives it the slot beside programs that write, which have its room
//! at once; the pool has it from then on, whatever becomes of the daemon. Where a program uses the pool directly,
//! which would not have the slot, nothing is changed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at what fails")]

mod support;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use novale_posix::Pool;
use rustix::fs::statvfs;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{Scratch, alone, ends, novale};

fn slots_of(scratch: &Scratch) -> Value {
    serde_json::from_str(&novale(&["slot", "status", "--json", &scratch.dir()]).ok()).unwrap()
}

fn bytes(number: usize, round: usize) -> Vec<u8> {
    vec![u8::try_from((number + round) % 250).unwrap() + 1; 100_000]
}

/// Writes files anew in turn, and returns the last round of each.
fn write(dir: &Path, is_over: &AtomicBool) -> [usize; 20] {
    let mut rounds = [0; 20];
    for turn in 0.. {
        let number = turn % 20;
        rounds[number] += 1;
        fs::write(dir.join(number.to_string()), bytes(number, rounds[number])).unwrap();
        if turn > 60 && is_over.load(Ordering::Acquire) {
            return rounds;
        }
    }
    rounds
}

fn judge(dir: &Path, rounds: &[usize; 20]) {
    for (number, round) in rounds.iter().enumerate() {
        let found = fs::read(dir.join(number.to_string())).unwrap();
        assert!(found == bytes(number, *round), "file {number}");
    }
    let large = fs::read(dir.join("large")).unwrap();
    assert!(large == vec![7; 40 << 20]);
}

fn daemon(slots: &[&str]) -> u64 {
    let told = novale(&[&["info", "--json"], slots].concat()).ok();
    serde_json::from_str::<Value>(&told).unwrap()["used_by"].as_u64().unwrap()
}

fn work(options: &[&str], name: &str, is_killed: bool) {
    let Some(scratch) = Scratch::for_mount(name) else { return };
    let _alone = alone();
    let (slots, dir) = (["a", "b", "c"].map(|name| scratch.slot(name)), scratch.dir());
    let [a, b, c] = slots.each_ref().map(String::as_str);
    novale(&["mkfs", "--size", "16M", a, b]).ok();
    novale(&[&["mount"], options, &[a, b, &dir]].concat()).ok();
    let (at, is_over) = (scratch.in_dir(""), AtomicBool::new(false));
    let before = statvfs(&at).unwrap().f_blocks;
    let rounds = thread::scope(|scope| {
        let writer = scope.spawn(|| write(&at, &is_over));
        let added = novale(&["slot", "add", "--size", "64M", c, &dir]).ok();
        assert!(added.contains("added: slot 2 is"), "{added}");
        is_over.store(true, Ordering::Release);
        writer.join().unwrap()
    });
    assert!(statvfs(&at).unwrap().f_blocks > before + 15_000);
    // More than the two have.
    fs::write(at.join("large"), vec![7; 40 << 20]).unwrap();
    let told = slots_of(&scratch);
    assert_eq!(told["slots"][2]["path"], c, "{told}");
    assert_eq!(told["slots"][2]["state"], "ok", "{told}");
    assert!(told["slots"][2]["bytes_used"].as_u64().unwrap() > 10 << 20, "{told}");
    let again = novale(&["slot", "add", c, a, b]).ok();
    assert!(again.contains("already done"), "{again}");
    // Nobody takes it for a slot of his own.
    novale(&["mkfs", "--force", c]).refused(1, &["in use"]);
    let daemon = daemon(&[a, b, c]);
    if is_killed {
        kill_process(Pid::from_raw(i32::try_from(daemon).unwrap()).unwrap(), Signal::KILL).unwrap();
        assert!(ends(daemon));
        novale(&["umount", &dir]);
    } else {
        novale(&["umount", &dir]).ok();
    }
    novale(&["mount", a, b, &dir]).refused(1, &["missing: slot 2"]);
    novale(&["mount", a, b, c, &dir]).ok();
    judge(&at, &rounds);
    novale(&["umount", &dir]).ok();
    let checked = novale(&["check", a, b, c]).ok();
    assert!(checked.contains("no errors"), "{checked}");
}

#[test]
fn its_room_is_there_at_once() {
    work(&[], "its_room_is_there_at_once", false);
}

#[test]
fn and_after_the_daemon_is_killed() {
    work(&["-o", "mode=buffered"], "and_after_the_daemon_is_killed", true);
}

#[test]
fn of_a_mount_that_is_shared() {
    work(&["-o", "direct"], "of_a_mount_that_is_shared", false);
}

/// The middle one of three goes at the unmount, for one that came while the pool was in use.
fn replaced(name: &str, is_killed: bool) {
    let Some(scratch) = Scratch::for_mount(name) else { return };
    let _alone = alone();
    let (slots, dir) = (["a", "b", "c", "d"].map(|name| scratch.slot(name)), scratch.dir());
    let [a, b, c, d] = slots.each_ref().map(String::as_str);
    novale(&["mkfs", "--size", "16M", a, b, c]).ok();
    novale(&["mount", a, b, c, &dir]).ok();
    let (at, is_over) = (scratch.in_dir(""), AtomicBool::new(false));
    let rounds = thread::scope(|scope| {
        let writer = scope.spawn(|| write(&at, &is_over));
        novale(&["slot", "replace", "--size", "8M", b, d, &dir]).refused(1, &["needs at least"]);
        let told = novale(&["slot", "replace", "--size", "40M", b, d, &dir]).ok();
        assert!(told.contains("it takes the place of slot 1"), "{told}");
        let again = novale(&["slot", "replace", b, d, &dir]).ok();
        assert!(again.contains("it takes the place of slot 1"), "{again}");
        is_over.store(true, Ordering::Release);
        writer.join().unwrap()
    });
    let told = slots_of(&scratch);
    assert_eq!(told["slots"][3]["emptied_for"], 1, "{told}");
    let kept = novale(&["slot", "replace", "--cancel", b, d, &dir]).ok();
    assert!(kept.contains("kept: slot 3"), "{kept}");
    fs::write(at.join("huge"), vec![7; 60 << 20]).unwrap();
    novale(&["slot", "replace", b, d, &dir]).refused(1, &["no room"]);
    fs::remove_file(at.join("huge")).unwrap();
    novale(&["slot", "replace", b, d, &dir]).ok();
    if is_killed {
        let daemon = daemon(&[a, b, c, d]);
        kill_process(Pid::from_raw(i32::try_from(daemon).unwrap()).unwrap(), Signal::KILL).unwrap();
        assert!(ends(daemon));
        novale(&["umount", &dir]);
        let done = novale(&["slot", "replace", b, d, a, c]).ok();
        assert!(done.contains("replaced: slot 1 is"), "{done}");
    } else {
        novale(&["umount", &dir]).ok();
    }
    novale(&["mount", a, d, c, &dir]).ok();
    fs::write(at.join("large"), vec![7; 40 << 20]).unwrap();
    judge(&at, &rounds);
    let told = slots_of(&scratch);
    assert_eq!(told["slots"].as_array().unwrap().len(), 3, "{told}");
    assert_eq!(told["slots"][1]["path"], d, "{told}");
    novale(&["umount", &dir]).ok();
    let checked = novale(&["check", a, d, c]).ok();
    assert!(checked.contains("no errors"), "{checked}");
    // It is no slot any more.
    novale(&["slot", "add", "--force", b, a, d, c]).ok();
}

#[test]
fn one_takes_the_place_of_another_at_the_unmount() {
    replaced("one_takes_the_place_of_another_at_the_unmount", false);
}

#[test]
fn or_by_the_same_call_where_the_daemon_was_killed() {
    replaced("or_by_the_same_call_where_the_daemon_was_killed", true);
}

#[test]
fn a_program_that_would_not_have_it_keeps_it_away() {
    let name = "a_program_that_would_not_have_it_keeps_it_away";
    let Some(scratch) = Scratch::for_mount(name) else { return };
    let _alone = alone();
    let (slots, dir) = (["a", "b", "c"].map(|name| scratch.slot(name)), scratch.dir());
    let [a, b, c] = slots.each_ref().map(String::as_str);
    novale(&["mkfs", "--size", "16M", a, b]).ok();
    novale(&["mount", "-o", "direct", a, b, &dir]).ok();
    let pool = Pool::open(&[a, b]).unwrap();
    let me = std::process::id().to_string();
    novale(&["slot", "add", "--size", "16M", c, &dir]).refused(1, &["busy", &me]);
    assert!(!Path::new(c).exists());
    pool.close().unwrap();
    novale(&["slot", "add", "--size", "16M", c, &dir]).ok();
    // One that comes now has it, named by all slots or served by the mount.
    fs::write(scratch.in_dir("file"), vec![3; 20 << 20]).unwrap();
    let pool = Pool::open(&[a, b, c]).unwrap();
    assert!(pool.read_file("/file").unwrap() == vec![3; 20 << 20]);
    pool.close().unwrap();
    let copy = scratch.in_dir("copy").display().to_string();
    let file = scratch.in_dir("file").display().to_string();
    novale(&["run", "--strict", "cp", &file, &copy]).ok();
    assert!(fs::read(&copy).unwrap() == vec![3; 20 << 20]);
    // Behind a slot that leaves none can come.
    fs::remove_file(&copy).unwrap();
    fs::remove_file(&file).unwrap();
    novale(&["slot", "remove", c, &dir]).ok();
    let d = scratch.slot("d");
    novale(&["slot", "add", "--size", "16M", &d, &dir]).refused(1, &["slot 2 is leaving"]);
    novale(&["umount", &dir]).ok();
    let checked = novale(&["check", a, b]).ok();
    assert!(checked.contains("no errors"), "{checked}");
}

/// What the daemon could not add was left as a file that waits for a place, and a mount that is read-only since it
/// began was given slots.
#[test]
fn what_can_not_be_added_leaves_nothing() {
    let Some(scratch) = Scratch::for_mount("what_can_not_be_added_leaves_nothing") else { return };
    let _alone = alone();
    let slots = ["a", "b", "c", "d", "e", "f"].map(|name| scratch.slot(name));
    let [a, .., last] = slots.each_ref().map(String::as_str);
    let dir = scratch.dir();
    novale(&["mkfs", "--size", "16M", a]).ok();
    for options in [&["ro", a][..], &["remount,ro"]] {
        novale(&[&["mount", "-o"], options, &[dir.as_str()]].concat()).ok();
        novale(&["slot", "add", "--size", "16M", last, &dir]).refused(1, &["read-only"]);
        assert!(!Path::new(last).exists());
        novale(&["umount", &dir]).ok();
        novale(&["mount", a, &dir]).ok();
    }
    // A pool that has a slot in itself can neither be unmounted nor mounted again.
    let own = scratch.in_dir("own").display().to_string();
    novale(&["slot", "add", "--size", "2M", &own, &dir]).refused(1, &["in the pool itself"]);
    assert!(!Path::new(&own).exists());
    for slot in &slots[1..5] {
        novale(&["slot", "add", "--size", "2M", slot, &dir]).ok();
    }
    novale(&["slot", "add", "--size", "2M", last, &dir]).refused(1, &["as many slots were added"]);
    assert!(!Path::new(last).exists());
    novale(&["umount", &dir]).ok();
    let all: Vec<&str> = slots[..5].iter().map(String::as_str).collect();
    novale(&[&["mount"], &all[..], &[&dir]].concat()).ok();
    novale(&["slot", "add", "--size", "2M", last, &dir]).ok();
    novale(&["umount", &dir]).ok();
}
