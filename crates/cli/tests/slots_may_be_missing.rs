//! Promise: a pool of which a slot is missing, damaged, old or another pool's is mounted read-only, with all that
//! does not lie there. Every file is whole or gives `EIO`, and `novale check` names the latter.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at what fails")]

mod support;

use std::fs;
use std::os::unix::fs::FileExt;

use novale_arena::Arena;
use novale_core::repair::{Help, SavedPiece, give_up_slot};
use novale_core::{Ctx, Fs, NewInode, Node, OpenOptions, Serial};
use novale_layout::FileKind;
use novale_pm::{Pm, PmOptions, SlotSpec};
use serde_json::Value;
use support::{Scratch, alone, novale};

const EIO: i32 = 5;
const FILES: usize = 60;
const DIRS: usize = 6;

/// From less than a page to some 300 KB.
fn bytes(number: usize) -> Vec<u8> {
    (0..=number * number * 83)
        .map(|at| u8::try_from((at / 7 + number * 3) % 251).unwrap())
        .collect()
}

fn name(number: usize) -> String {
    format!("d{}/f{number}", number % DIRS)
}

fn with<'a>(first: &[&'a str], slots: &[&'a str], last: &[&'a str]) -> Vec<&'a str> {
    [first, slots, last].concat()
}

/// Pages from all slots in turn, whoever asks: by their wear, one slot may get all that the first thread writes.
const SPREAD: [&str; 3] = ["mount", "-o", "placement=spread"];

/// A pool of so many slots with a tree of files, unmounted.
fn filled(scratch: &Scratch, count: usize) -> Vec<String> {
    let slots: Vec<String> = (0..count).map(|slot| scratch.slot(&format!("s{slot}"))).collect();
    let named: Vec<&str> = slots.iter().map(String::as_str).collect();
    novale(&with(&["mkfs", "--size", "8M"], &named, &[])).ok();
    novale(&with(&SPREAD, &named, &[&scratch.dir()])).ok();
    // What is made in a row lies in one slot for the most part: each directory is followed by its files.
    for dir in 0..DIRS {
        fs::create_dir(scratch.in_dir(&format!("d{dir}"))).unwrap();
        for number in (dir..FILES).step_by(DIRS) {
            fs::write(scratch.in_dir(&name(number)), bytes(number)).unwrap();
        }
    }
    novale(&["umount", &scratch.dir()]).ok();
    slots
}

/// Reads all files of a mount; those that can be read are whole.
fn unreadable(scratch: &Scratch) -> Vec<String> {
    let mut lost = Vec::new();
    for number in 0..FILES {
        let name = name(number);
        match fs::read(scratch.in_dir(&name)) {
            Ok(found) => assert!(found == bytes(number), "{name} has other bytes"),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(EIO), "{name}: {error}");
                lost.push(name);
            }
        }
    }
    lost
}

fn json(args: &[&str], code: i32) -> Value {
    let outcome = novale(args);
    assert_eq!(outcome.code, code, "{}{}", outcome.out, outcome.err);
    serde_json::from_str(&outcome.out).unwrap()
}

/// What `check` says of a pool without one of its slots.
fn damage(there: &[&str], missing: usize) -> Vec<String> {
    let checked = json(&with(&["check", "--json"], there, &[]), 4);
    let errors = checked["errors"].as_array().unwrap().iter();
    let errors: Vec<String> =
        errors.map(|error| error["what"].as_str().unwrap().to_owned()).collect();
    assert!(errors.contains(&format!("slot {missing} is missing: what lies there is lost")));
    errors
}

/// Whether one of those is of a file or of the directory that it is in.
fn is_named(errors: &[String], file: &str) -> bool {
    let is_of = |path: &str| errors.iter().any(|error| error.starts_with(&format!("/{path} ")));
    is_of(file) || is_of(file.split('/').next().unwrap())
}

/// Each directory that can be read lists all its names, whatever lies behind them: the first one that could not be
/// read ended the listing.
fn list_all(scratch: &Scratch, errors: &[String]) {
    for dir in (0..DIRS).map(|dir| format!("d{dir}")) {
        let listed = fs::read_dir(scratch.in_dir(&dir));
        let names =
            listed.and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect());
        let names: std::io::Result<Vec<_>> = names;
        match names {
            Ok(names) => assert_eq!(names.len(), FILES / DIRS, "{dir}: {names:?}"),
            Err(error) => assert!(is_named(errors, &dir), "{dir}: {error}"),
        }
    }
}

/// A pool of which one slot is not given: how many files can't be read; `None` where it can't be shown.
fn without(scratch: &Scratch, slots: &[String], missing: usize) -> Option<usize> {
    // In another order than theirs.
    let there = slots.iter().enumerate().rev().filter(|(slot, _)| *slot != missing);
    let there: Vec<&str> = there.map(|(_, path)| path.as_str()).collect();
    let (dir, gap) = (scratch.dir(), format!("slot {missing}"));
    for command in [&["info", "--json"][..], &["slot", "status", "--json"]] {
        let said = json(&with(command, &there, &[]), 0);
        assert_eq!(said["slots"][missing]["state"], "missing", "{said}");
    }
    if missing == 0 {
        let words = ["slot 0 is missing"];
        novale(&with(&["mount", "-o", "ro"], &there, &[&dir])).refused(1, &words);
        return None;
    }
    novale(&with(&["mount"], &there, &[&dir])).refused(1, &[&gap, "missing", "-o ro"]);
    let errors = damage(&there, missing);
    let mount = novale(&with(&["mount", "-o", "ro"], &there, &[&dir]));
    if errors.iter().any(|error| error.starts_with("/ (inode 1)")) {
        mount.refused(1, &["lost"]);
        return None;
    }
    assert!(mount.err.contains(&gap), "{}", mount.err);
    mount.ok();
    list_all(scratch, &errors);
    let lost = unreadable(scratch);
    for number in 0..FILES {
        let name = name(number);
        assert_eq!(lost.contains(&name), is_named(&errors, &name), "{gap}, {name}: {errors:#?}");
    }
    let said = json(&["slot", "status", "--json", &dir], 0);
    assert_eq!(
        (&said["in_use"], &said["slots"][missing]["state"]),
        (&true.into(), &"missing".into())
    );
    assert!(fs::write(scratch.in_dir("new"), "x").is_err());
    novale(&["umount", &dir]).ok();
    Some(lost.len())
}

fn without_each(count: usize, test: &str) {
    let Some(scratch) = Scratch::for_mount(test) else { return };
    let _alone = alone();
    let slots = filled(&scratch, count);
    let before: Vec<Vec<u8>> = slots.iter().map(|slot| fs::read(slot).unwrap()).collect();
    // The directories may all be in one slot, without which no file is found.
    let lost: Vec<usize> =
        (0..count).filter_map(|missing| without(&scratch, &slots, missing)).collect();
    assert!(lost.iter().any(|lost| (1..FILES).contains(lost)), "{lost:?}");
    for (slot, before) in slots.iter().zip(&before) {
        assert!(&fs::read(slot).unwrap() == before, "{slot} was written");
    }
    let (all, dir): (Vec<&str>, _) = (slots.iter().map(String::as_str).collect(), scratch.dir());
    novale(&with(&["mount"], &all, &[&dir])).ok();
    assert!(unreadable(&scratch).is_empty());
    novale(&["umount", &dir]).ok();
}

#[test]
fn each_of_three_slots() {
    without_each(3, "each_of_three_slots");
}

#[test]
fn each_of_four_slots() {
    without_each(4, "each_of_four_slots");
}

/// Of a slot that was cut off to some bytes it was said that it is to be made larger, or that other slots are to
/// be named.
#[test]
fn a_slot_that_was_cut_off_is_to_be_restored() {
    let _alone = alone();
    let scratch = Scratch::new();
    let [a, b] = ["a", "b"].map(|name| scratch.slot(name));
    let (pool, dir) = ([&a[..], &b], scratch.dir());
    novale(&["mkfs", "--size", "4M", &a, &b]).ok();
    let copy = scratch.slot("copy");
    for (slot, number) in [(&a, 0), (&b, 1)] {
        fs::copy(slot, &copy).unwrap();
        for len in [2 << 20, 5000, 100, 0] {
            fs::File::options().write(true).open(slot).unwrap().set_len(len).unwrap();
            let before = pool.map(|slot| fs::read(slot).unwrap());
            let slot_is = format!("slot {number}, {slot}: it ");
            let words = [&slot_is[..], "restore all of it from a copy"];
            novale(&with(&["check", "--repair=safe", "--yes"], &pool, &[])).refused(8, &words);
            novale(&with(&["mount"], &pool, &[&dir])).refused(1, &words);
            let info = novale(&with(&["info"], &pool, &[])).ok();
            assert!(words.iter().all(|word| info.contains(word)), "{info}");
            assert_eq!(info.contains("state     closed clean"), number == 1, "{info}");
            novale(&with(&["mkfs"], &pool, &[])).refused(1, &[]);
            assert!(pool.map(|slot| fs::read(slot).unwrap()) == before, "{slot} of {len} bytes");
        }
        fs::copy(&copy, slot).unwrap();
        novale(&with(&["check"], &pool, &[])).ok();
    }
    fs::File::options().write(true).open(&a).unwrap().set_len(10_000).unwrap();
    novale(&["check", &a]).refused(8, &["was cut off", "restore all of it from a copy"]);
}

#[test]
fn slots_that_can_not_be_used_are_told() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (a, b, other) = (scratch.slot("a"), scratch.slot("b"), scratch.slot("other"));
    novale(&["mkfs", "--size", "32M", &a, &b]).ok();
    novale(&["mkfs", "--size", "32M", &other]).ok();
    let old = fs::read(&b).unwrap();
    let state = |slots: &[&str], expected: &str| {
        let said = json(&with(&["slot", "status", "--json"], slots, &[]), 0);
        assert_eq!(
            (&said["slots"][0]["state"], &said["slots"][1]["state"]),
            (&"ok".into(), &expected.into())
        );
        novale(&with(&["mount"], slots, &[&scratch.dir()])).refused(1, &[slots[1], "-o ro"]);
    };
    state(&[&a, &other], "foreign");
    for _ in 0..3 {
        novale_posix::Pool::open(&[&a, &b]).unwrap().close().unwrap();
    }
    let new = fs::read(&b).unwrap();
    fs::write(&b, &old).unwrap();
    state(&[&a, &b], "stale");
    fs::write(&b, vec![0; old.len()]).unwrap();
    state(&[&a, &b], "damaged");
    fs::write(&b, &new[..new.len() / 2]).unwrap();
    state(&[&a, &b], "damaged");
    fs::write(&b, &new).unwrap();
    novale(&["check", &a, &b]).ok();
}

/// What is left of a file whose slot was given up: nothing, or its bytes with zeros in the place of whole pages.
fn is_left_of(number: usize, found: std::io::Result<Vec<u8>>) -> bool {
    let Ok(found) = found else { return true };
    let pages = bytes(number);
    let pages = pages.chunks(4096).zip(found.chunks(4096));
    found.len() == bytes(number).len()
        && pages.into_iter().all(|(was, is)| was == is || is.iter().all(|byte| *byte == 0))
}

/// `novale info` said that the next mount recovers such a pool, which it refuses, and nothing of the slot.
#[test]
fn a_slot_that_is_being_given_up_is_told() {
    let _alone = alone();
    let scratch = Scratch::new();
    let slots = ["a", "b", "c"].map(|name| scratch.slot(name));
    let [a, b, c] = slots.each_ref().map(String::as_str);
    novale(&["mkfs", "--size", "16M", a, b, c]).ok();
    for command in [&["info", "--json"][..], &["slot", "status", "--json"]] {
        assert!(json(&with(command, &[a, b, c], &[]), 0)["given_up"].is_null());
    }
    let pm = Pm::open(&[a, b, c].map(SlotSpec::new), &PmOptions::default()).unwrap();
    let arena = Arena::anonymous(64 << 20).unwrap();
    let fs = Fs::open(pm, arena, &OpenOptions::default(), &Serial, &|_| ()).unwrap();
    let new = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    let ctx = Ctx { now_ns: 5, hint: 0 };
    let file = fs.create(&ctx, Node::ROOT, b"f", &new).unwrap().ino;
    // In all slots.
    fs.write(&ctx, file, 0, &vec![1; 24 << 20]).unwrap();
    drop(fs);
    // As calls leave it that are killed: one at once, one before the other slot has the place.
    let give_up = |keep: &mut dyn FnMut(&SavedPiece<'_>) -> Result<(), String>| {
        let there = [Some(a), None, Some(c)].map(|slot| slot.map(SlotSpec::new));
        let pm = Pm::open_there(&there, &PmOptions::default()).unwrap();
        let mut help = Help { exec: &Serial, progress: &|_| (), keep, now_ns: 7, owner: (0, 0) };
        give_up_slot(&pm, u64::MAX, &mut help)
    };
    give_up(&mut |_| Err("no room".to_owned())).unwrap_err();
    let said = novale(&["info", a, c]).ok();
    assert!(said.contains("state     not closed clean\ngiven up  slot 1: "), "{said}");
    give_up(&mut |_| Ok(())).unwrap();
    for slots in [&[a, c][..], &[a, b, c]] {
        for command in [&["info"][..], &["slot", "status"]] {
            let said = novale(&with(command, slots, &[])).ok();
            let told = "given up  slot 1: another is to have its place";
            assert!(said.contains(told) && said.contains("--lost"), "{said}");
            let said = json(&with(command, slots, &["--json"]), 0);
            assert_eq!(said["given_up"], 1, "{said}");
        }
    }
}

/// A pool with a slot lost could be read, and was never written again.
#[test]
fn a_slot_that_is_lost_is_replaced() {
    let Some(scratch) = Scratch::for_mount("a_slot_that_is_lost_is_replaced") else { return };
    let _alone = alone();
    let (slots, dir, new) = (filled(&scratch, 3), scratch.dir(), scratch.slot("new"));
    let [a, b, c] = [0, 1, 2].map(|slot| slots[slot].as_str());
    let replace = |size: &str| {
        novale(&["slot", "replace", "--lost", "--json", "--size", size, b, &new, a, c])
    };
    assert!(replace("8M").out.contains("can be read"), "a slot that is none of the lost");
    let copy = fs::read(b).unwrap();
    fs::File::options().write(true).open(b).unwrap().set_len(5000).unwrap();
    novale(&["mount", a, b, c, &dir]).refused(1, &["-o ro", "slot replace --lost"]);
    novale(&["mount", "-o", "ro", a, c, &dir]).ok();
    let lost = unreadable(&scratch);
    assert!(!lost.is_empty() && lost.len() < FILES, "{lost:?}");
    let refused = replace("8M");
    assert!(!refused.err.contains("has failed"), "{}", refused.err);
    refused.refused(1, &["is mounted without a part of it", "unmount it"]);
    novale(&["umount", &dir]).ok();
    let before = [a, c].map(|slot| fs::read(slot).unwrap());
    novale(&["slot", "replace", "--lost", "--size", "8M", a, &new, b, c]).refused(1, &["slot 0"]);
    assert!([a, c].map(|slot| fs::read(slot).unwrap()) == before);
    let told: Value = serde_json::from_str(&replace("8M").ok()).unwrap();
    assert_eq!((&told["done"], &told["slot"]), (&"replaced".into(), &1.into()));
    let named = told["lost"].as_array().unwrap().iter();
    let named: Vec<String> = named.map(|what| what.as_str().unwrap().to_owned()).collect();
    assert!(lost.iter().all(|file| is_named(&named, file)), "{lost:?}: {named:?}");
    assert_eq!(json(&["slot", "replace", "--lost", "--json", b, &new, a, c], 0)["already"], true);

    assert!(novale(&["check", a, &new, c]).ok().contains("no errors"));
    novale(&["mount", a, &new, c, &dir]).ok();
    for number in 0..FILES {
        let (name, found) = (name(number), fs::read(scratch.in_dir(&name(number))));
        if lost.contains(&name) {
            assert!(is_left_of(number, found), "{name}");
        } else {
            assert!(found.unwrap() == bytes(number), "{name}");
        }
    }
    fs::write(scratch.in_dir("after"), vec![7; 10 << 20]).unwrap();
    novale(&["umount", &dir]).ok();
    assert!(novale(&["check", a, &new, c]).ok().contains("no errors"));
    // The old one is found again, in the cupboard.
    fs::write(b, copy).unwrap();
    novale(&["mount", a, b, c, &dir]).refused(1, &["an old copy"]);
}

/// A value that lies in a lost slot, of attributes whose first page does not, was taken for a page of the pool's own: the
/// pool could never be written again.
#[test]
fn attributes_of_which_a_value_is_lost_are_given_up() {
    let Some(scratch) = Scratch::for_mount("attributes_of_which_a_value_is_lost") else { return };
    let _alone = alone();
    let [a, b, new] = ["a", "b", "new"].map(|name| scratch.slot(name));
    let (dir, names) = (scratch.dir(), ["user.a", "user.b", "user.c"]);
    novale(&["mkfs", "--size", "8M", &a, &b]).ok();
    novale(&with(&SPREAD, &[&a, &b], &[&dir])).ok();
    // As many as lie in both slots, each value apart from the file's others, of which some files have none.
    for (place, name) in names.into_iter().enumerate() {
        for number in (0..200).filter(|number| number % names.len() >= place) {
            let file = scratch.in_dir(&format!("f{number}"));
            fs::File::options().append(true).create(true).open(&file).unwrap();
            rustix::fs::setxattr(&file, name, &[7; 5000], rustix::fs::XattrFlags::empty()).unwrap();
        }
    }
    novale(&["umount", &dir]).ok();
    fs::remove_file(&b).unwrap();
    novale(&["slot", "replace", "--lost", "--size", "8M", &b, &new, &a]).ok();
    assert!(novale(&["check", &a, &new]).ok().contains("no errors"));
    novale(&["mount", &a, &new, &dir]).ok();
    let counts = (0..200).map(|number| {
        let file = scratch.in_dir(&format!("f{number}"));
        let value = |name: &&str| rustix::fs::getxattr(&file, *name, &mut [0u8; 6000][..]);
        let count =
            names.into_iter().filter(|name| value(name).is_ok_and(|len| len == 5000)).count();
        (count, count == number % names.len() + 1)
    });
    let counts: Vec<(usize, bool)> = counts.collect();
    let is_any = |wanted: fn(&(usize, bool)) -> bool| counts.iter().any(wanted);
    assert!(is_any(|(count, _)| *count == 0) && is_any(|(_, is_all)| *is_all), "{counts:?}");
    novale(&["umount", &dir]).ok();
}

/// Who unmounted was told nothing, and the next mount refused the pool.
#[test]
fn a_copy_stored_into_a_slot_under_the_mount_is_told_by_umount() {
    let test = "a_copy_stored_into_a_slot_under_the_mount_is_told_by_umount";
    let Some(scratch) = Scratch::for_mount(test) else { return };
    let _alone = alone();
    let [a, b] = ["a", "b"].map(|name| scratch.slot(name));
    let dir = scratch.dir();
    novale(&["mkfs", "--size", "8M", "--quiet", &a, &b]).ok();
    let older = fs::read(&b).unwrap();
    for _ in 0..2 {
        novale(&["mount", &a, &b, &dir]).ok();
        fs::write(scratch.in_dir("x"), "x").unwrap();
        novale(&["umount", &dir]).ok();
    }
    novale(&["mount", &a, &b, &dir]).ok();
    let slot = fs::File::options().write(true).open(&b).unwrap();
    slot.write_all_at(&older, 0).unwrap();
    novale(&["umount", &dir]).refused(1, &["can't be read now", "novale check"]);
    assert!(novale(&["check", &a, &b]).err.contains("old copy"));
}

/// Names of files were shown as they are: with line ends in them, as findings of their makers.
#[test]
fn a_name_makes_no_finding_of_its_own() {
    let Some(scratch) = Scratch::for_mount("a_name_makes_no_finding_of_its_own") else { return };
    let _alone = alone();
    let [first, second] = ["first", "second"].map(|slot| scratch.slot(slot));
    novale(&["mkfs", "--size", "16M", &first, &second]).ok();
    novale(&["mount", &first, &second, &scratch.dir()]).ok();
    for number in 0..20 {
        let name = scratch.in_dir(&format!("{number}\nerror: slot 7 is missing"));
        fs::write(name, vec![1; 300_000]).unwrap();
    }
    novale(&["umount", &scratch.dir()]).ok();
    let checked = novale(&["check", &first]);
    let said = format!("{}{}", checked.out, checked.err);
    assert_eq!(checked.code, 4, "{said}");
    assert!(said.contains("\\nerror: slot 7 is missing (inode"), "{said}");
    assert!(!said.contains("\nerror: slot 7"), "{said}");
}
