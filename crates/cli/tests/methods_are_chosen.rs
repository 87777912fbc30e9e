//! Promise: how files are written is chosen for a pool, a mount, a file and what is made in a directory, and
//! what is chosen nearest to a file holds.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test panics")]

mod support;

use std::fs;
use std::io::SeekFrom;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use novale_layout::{SUPERBLOCK_BYTES, Superblock};
use support::{Scratch, alone, facts, novale};

/// The method of a file by its own choice, and by its mount's.
fn methods(path: &Path) -> (Option<String>, String) {
    let said = novale(&["info", "--json", path.to_str().unwrap()]).ok();
    let all: Vec<serde_json::Value> = serde_json::from_str(&said).unwrap();
    let word = |key: &str| all.first().unwrap().get(key).unwrap().as_str().map(str::to_owned);
    (word("own_method"), word("mount_method").unwrap())
}

fn own(name: &str, mount: &str) -> (Option<String>, String) {
    (Some(name.to_owned()), mount.to_owned())
}

#[test]
fn the_nearest_choice_holds() {
    let Some(scratch) = Scratch::for_mount("the_nearest_choice_holds") else { return };
    let _alone = alone();
    let slot = scratch.slot("pool");
    novale(&["mkfs", "--size", "32M", "--method", "adl", &slot]).ok();
    assert_eq!(facts(&slot)["default_method"], "adl");
    novale(&["mount", &slot, &scratch.dir()]).ok();
    assert_eq!(facts(&slot)["method"], "adl");
    let dir = scratch.in_dir("d");
    fs::create_dir(&dir).unwrap();
    fs::write(scratch.in_dir("old"), b"made before").unwrap();
    let choose =
        |method: &str, path: &Path| novale(&["set", "--method", method, path.to_str().unwrap()]);
    choose("paired", &dir).ok();
    choose("finelog", &scratch.in_dir("old")).ok();
    // What is made in the directory has its choice, and may have another.
    for name in ["d/file", "d/other"] {
        fs::write(scratch.in_dir(name), b"new").unwrap();
    }
    fs::create_dir(scratch.in_dir("d/below")).unwrap();
    fs::write(scratch.in_dir("d/below/file"), b"new").unwrap();
    choose("none", &scratch.in_dir("d/other")).ok();
    let all = || {
        ["old", "d", "d/file", "d/other", "d/below/file"].map(|name| methods(&scratch.in_dir(name)))
    };
    let expected = |mount: &str| {
        let paired = own("paired", mount);
        let none = (None, mount.to_owned());
        [own("finelog", mount), paired.clone(), paired.clone(), none, paired]
    };
    assert_eq!(all(), expected("adl"));
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["mount", "-o", "method=cow", &slot, &scratch.dir()]).ok();
    assert_eq!(all(), expected("cow"));
    // Each is written by its own method, and read by all.
    for name in ["old", "d/file", "d/other"] {
        let file = fs::File::options().write(true).open(scratch.in_dir(name)).unwrap();
        file.write_all_at(b"NEW", 0).unwrap();
        assert!(fs::read(scratch.in_dir(name)).unwrap().starts_with(b"NEW"), "{name}");
    }
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["check", &slot]).ok();
}

#[test]
fn the_size_of_slots_is_told_of_who_chose_it_and_where_slots_are_written() {
    let Some(scratch) = Scratch::for_mount("the_size_of_slots_is_told") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    for (options, bytes, told) in [
        ("method=lawn,lawn_slot=256", 256, "writes    lawn; lawn in slots of 256 bytes"),
        ("lawn_slot=512", 512, "writes    auto; lawn in slots of 512 bytes"),
        ("method=auto", 64, "writes    auto\n"),
    ] {
        novale(&["mount", "-o", options, &slot, &scratch.dir()]).ok();
        assert_eq!(facts(&slot)["lawn_slot"], bytes, "{options}");
        let info = novale(&["info", &slot]).ok();
        assert!(info.contains(told), "{options}: {info}");
        novale(&["umount", &scratch.dir()]).ok();
    }
    assert!(facts(&slot)["lawn_slot"].is_null());
}

#[test]
fn others_do_not_choose() {
    let Some(scratch) = Scratch::for_mount("others_do_not_choose") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let file = scratch.in_dir("file");
    fs::write(&file, b"root's").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let by_another = |arguments: &[&str]| {
        let mut other = Command::new("setpriv");
        other.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).args(arguments);
        other.arg(&file).output().unwrap()
    };
    let setfattr = ["setfattr", "-n", "system.novale.method", "-v", "cow"];
    let refused = by_another(&setfattr);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    // Where setfattr is not installed there is nothing to see.
    if refused.status.code() == Some(127) {
        println!("skipped: others_do_not_choose: setfattr is missing");
        return;
    }
    assert!(!refused.status.success() && said.contains("not permitted"), "{said}");
    novale(&["set", "--method", "cow", file.to_str().unwrap()]).ok();
    assert!(!by_another(&["setfattr", "-x", "system.novale.method"]).status.success());
    assert_eq!(methods(&file), own("cow", "auto"));
    novale(&["umount", &scratch.dir()]).ok();
}

/// It mapped the file, as a slot, to see whether it is one: so it failed where somebody made the file shorter.
#[test]
fn a_file_that_changes_its_length_is_told_of() {
    let Some(scratch) = Scratch::for_mount("a_file_that_changes_its_length") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let path = scratch.in_dir("file");
    let file = fs::File::create(&path).unwrap();
    let (is_over, bytes) = (AtomicBool::new(false), vec![1; 200_000]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                file.set_len(0).unwrap();
                file.write_all_at(&bytes, 0).unwrap();
            }
        });
        let told: Vec<_> = (0..20).map(|_| novale(&["info", path.to_str().unwrap()])).collect();
        is_over.store(true, Ordering::Relaxed);
        for one in told {
            assert!(one.ok().contains("written by auto"));
        }
    });
    drop(file);
    novale(&["umount", &scratch.dir()]).ok();
}

/// A choice that only a newer program knows was shown as the one that is taken in its place.
#[test]
fn an_unknown_choice_of_a_pool_is_shown_as_unknown() {
    let scratch = Scratch::new();
    let slot = scratch.slot("pool");
    novale(&["mkfs", "--size", "32M", &slot]).ok();
    let said = || (facts(&slot)["default_method"].clone(), facts(&slot)["default_mode"].clone());
    assert_eq!(said(), ("auto".into(), "strict".into()));
    let head: [u8; SUPERBLOCK_BYTES] = support::head(&slot)[..SUPERBLOCK_BYTES].try_into().unwrap();
    let mut superblock = Superblock::decode(&head).unwrap();
    superblock.default_policy = 0b1110_1001;
    let bytes = superblock.encode();
    for at in [SeekFrom::Start(0), SeekFrom::End(-4096)] {
        support::patch(&slot, at, &bytes);
    }
    assert_eq!(said(), ("unknown method 41".into(), "unknown mode 3".into()));
    let told = novale(&["info", &slot]).ok();
    let words = "unknown method 41 is of a newer version: this one takes auto, strict";
    assert!(told.contains(words), "{told}");
}

#[test]
fn what_is_no_choice_is_refused() {
    let Some(scratch) = Scratch::for_mount("what_is_no_choice_is_refused") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    novale(&["set", "--method", "magic", &scratch.dir()]).refused(2, &["magic", "adl"]);
    novale(&["set", "--method", "adl", "/proc"]).refused(1, &["/proc: not in a Novale mount"]);
    let nothing = novale(&["set", &scratch.dir()]);
    nothing.refused(2, &["--method <METHOD|none>", "--mode <MODE|none>"]);
    let missing = scratch.in_dir("missing");
    novale(&["set", "--method", "adl", missing.to_str().unwrap()]).refused(1, &["No such file"]);
    // What is named behind those is chosen for all the same.
    let dir = scratch.dir();
    novale(&["set", "--method", "adl", "/proc", missing.to_str().unwrap(), &dir]).refused(
        1,
        &[
            "/proc: not in a Novale mount",
            "missing: how it is written can't be chosen",
            "No such file",
        ],
    );
    assert!(novale(&["info", &dir]).ok().contains("written by adl, its own choice"));
    // A bare EINVAL, before.
    let fifo = scratch.in_dir("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    novale(&["set", "--method", "adl", fifo.to_str().unwrap()])
        .refused(1, &["fifo: only files and directories have a choice"]);
    novale(&["info", fifo.to_str().unwrap()])
        .refused(1, &["fifo: only files and directories have a choice"]);
    // Beside a slot a file was taken for one that was cut off.
    let file = scratch.in_dir("file");
    fs::write(&file, b"of a mount").unwrap();
    for other in [file.to_str().unwrap(), &scratch.dir()] {
        novale(&["info", &slot, other]).refused(1, &["in a mount, and no slot", other]);
    }
    novale(&["umount", &scratch.dir()]).ok();
}
