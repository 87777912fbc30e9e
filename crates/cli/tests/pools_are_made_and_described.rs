//! Promise: mkfs overwrites nothing unasked, and every command says what it found instead of a pool.

mod support;

use std::fs::{self, File};
use std::io::SeekFrom;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use support::{Scratch, facts, head, novale, patch};

const LAST_PAGE: i64 = -4096;

#[test]
fn a_missing_slot_is_created_and_an_existing_one_keeps_its_size() {
    let scratch = Scratch::new();
    let slot = scratch.slot("new");
    let said = novale(&["mkfs", "--size", "16M", &slot]).ok();
    assert!(said.contains(&slot) && said.contains("16.0 MiB"), "{said}");
    let metadata = fs::metadata(&slot).unwrap();
    assert_eq!((metadata.len(), metadata.permissions().mode() & 0o777), (16 << 20, 0o600));
    novale(&["mkfs", "--force", &slot]).ok();
    assert_eq!(fs::metadata(&slot).unwrap().len(), 16 << 20);
    let said = novale(&["mkfs", "--json", "--force", "--size", "32M", &slot]).ok();
    let made: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(fs::metadata(&slot).unwrap().len(), 32 << 20);
    let found = facts(&slot);
    assert_eq!((&found["slots"][0]["bytes"], &found["uuid"]), (&(32 << 20).into(), &made["uuid"]));
}

#[test]
fn what_holds_data_is_refused_untouched_unless_forced() {
    let scratch = Scratch::new();
    let slot = scratch.pool();
    let before = head(&slot);
    novale(&["mkfs", &slot]).refused(1, &[&slot, "holds a Novale pool", "--force"]);
    assert_eq!(head(&slot), before);
    let file = scratch.slot("file");
    File::create(&file).unwrap().set_len(16 << 20).unwrap();
    patch(&file, SeekFrom::Start((2 << 20) - 1), b"x");
    novale(&["mkfs", &file]).refused(1, &["data of an unknown format", "--force"]);
    novale(&["mkfs", "--force", &file]).ok();
    let image = scratch.slot("ext4");
    File::create(&image).unwrap().set_len(16 << 20).unwrap();
    patch(&image, SeekFrom::Start(1080), &[0x53, 0xef]);
    novale(&["mkfs", &image]).refused(1, &["ext", "--force"]);
    let empty = scratch.slot("empty");
    File::create(&empty).unwrap().set_len(16 << 20).unwrap();
    novale(&["mkfs", &empty]).ok();
}

#[test]
fn a_pool_that_cannot_be_made_leaves_no_file_behind() {
    let scratch = Scratch::new();
    let slots = [scratch.slot("a"), scratch.slot("b")];
    let small = ["mkfs", "--size", "512K", &slots[0], &slots[1]];
    novale(&small).refused(1, &[&slots[0], "512.0 KiB", "at least 2.0 MiB", "--size"]);
    novale(&["mkfs", "--size", "16M", &slots[0], "/no/such/folder/slot"])
        .refused(1, &["/no/such/folder", "make it first"]);
    assert!(!slots.iter().any(|slot| fs::exists(slot).unwrap()));
}

#[test]
fn slots_are_taken_in_any_order_and_only_together() {
    let scratch = Scratch::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| scratch.slot(name));
    novale(&["mkfs", "--size", "16M", &a, &b, &c]).ok();
    let said = novale(&["info", "--json", &c, &a, &b]).ok();
    let facts: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(facts["slots"][0]["path"], a.as_str());
    assert_eq!(facts["slots"][2]["path"], c.as_str());
    novale(&["check", &b, &c, &a]).ok();
    novale(&["wear", &a, &b]).refused(1, &["3 slots", "missing: slot 2"]);
    novale(&["wear", &a]).refused(1, &["missing: slot 1, slot 2"]);
    novale(&["info", &a, &b, &c, &c]).refused(1, &[&c, "named twice"]);
    novale(&["wear", &a, &c]).refused(1, &["slot 1", "is missing"]);
    novale(&["wear", &b, &c]).refused(1, &["slot 0", "is missing"]);
    fs::copy(&a, scratch.slot("copy")).unwrap();
    novale(&["info", &a, &scratch.slot("copy"), &b, &c]).refused(1, &["both slot 0"]);
    let other = scratch.pool();
    novale(&["wear", &a, &b, &other]).refused(1, &["belongs to pool", &other]);
}

#[test]
fn what_is_no_pool_is_called_what_it_is() {
    let scratch = Scratch::new();
    let file = scratch.slot("file");
    for (command, code) in [("info", 1), ("check", 8)] {
        let run = || novale(&[command, &file]);
        fs::remove_file(&file).unwrap_or_default();
        run().refused(code, &[&file, "does not exist"]);
        File::create(&file).unwrap().set_len(16 << 20).unwrap();
        run().refused(code, &[&file, "only zeroes", "novale mkfs"]);
        patch(&file, SeekFrom::Start(5), b"words");
        run().refused(code, &[&file, "data of an unknown format"]);
        fs::write(&file, b"tiny").unwrap();
        run().refused(code, &[&file, "4 bytes"]);
        novale(&[command, "/dev"]).refused(code, &["a directory"]);
        novale(&[command, "/dev/null"]).refused(code, &["/dev/null"]);
        // Ordinary files, as they say, of no bytes; this one has as many as there are addresses.
        novale(&[command, "/proc/self/pagemap"]).refused(code, &["0 bytes"]);
    }
}

#[test]
fn a_damaged_header_is_read_from_its_replica_and_two_are_named() {
    let scratch = Scratch::new();
    let slot = scratch.pool();
    patch(&slot, SeekFrom::Start(2048 + 60), b"damage");
    let told = facts(&slot)["bad_copies"][0].as_str().unwrap_or_default().to_owned();
    assert!(told.starts_with("slot 0: the first copy of the slot header is damaged"), "{told}");
    assert!(novale(&["info", &slot]).ok().contains(&told));
    let checked = novale(&["check", &slot]);
    assert!(checked.code == 4 && checked.out.contains(&told), "{}", checked.out);
    patch(&slot, SeekFrom::End(LAST_PAGE + 2048 + 60), b"damage");
    novale(&["info", &slot]).refused(1, &[&slot, "header is damaged", "replica", "from a copy"]);
}

#[test]
fn a_pool_of_another_version_is_refused_by_version() {
    let scratch = Scratch::new();
    let slot = scratch.pool();
    for start in [SeekFrom::Start(2048 + 8), SeekFrom::End(LAST_PAGE + 2048 + 8)] {
        patch(&slot, start, &[9]);
    }
    novale(&["info", &slot]).refused(1, &["format version 9", "knows version 1", "release"]);
}

/// mkfs waited for itself: it had locked the first of the two.
#[test]
fn a_slot_that_is_named_twice_is_called_that() {
    let scratch = Scratch::new();
    let [a, link] = [scratch.slot("a"), scratch.slot("link")];
    let dotted = a.replace("/a", "/./a");
    for other in [&a, &dotted] {
        novale(&["mkfs", "--size", "16M", &a, other]).refused(1, &[&a, "twice"]);
    }
    assert!(!fs::exists(&a).unwrap());
    novale(&["mkfs", "--size", "16M", &a]).ok();
    std::os::unix::fs::symlink(&a, &link).unwrap();
    novale(&["mkfs", "--force", &a, &link]).refused(1, &[&a, &link, "are the same"]);
    novale(&["check", &link, &a]).refused(8, &[&a, &link, "are the same"]);
}

/// A device's name that was mistyped became a file of a gigabyte, in memory.
#[test]
fn no_file_is_made_among_the_devices() {
    let missing = format!("/dev/novale-test-{}", std::process::id());
    let refused = novale(&["mkfs", "--size", "16M", &missing]);
    let made = fs::remove_file(&missing).is_ok();
    refused.refused(1, &[&missing, "is no device", "/dev/shm"]);
    assert!(!made);
}

/// A text file was to be made larger, as if that made it a pool.
#[test]
fn a_short_file_is_no_pool_and_mkfs_sees_that_it_holds_something() {
    let scratch = Scratch::new();
    let file = scratch.slot("file");
    for len in [6, 292 << 10] {
        fs::write(&file, vec![b'x'; len]).unwrap();
        for (command, code) in [("info", 1), ("check", 8)] {
            let words = [&file, "holds no pool", "data of an unknown format", "1.0 MiB"];
            novale(&[command, &file]).refused(code, &words);
        }
        novale(&["mkfs", "--size", "16M", &file]).refused(1, &["unknown format", "--force"]);
        assert_eq!(fs::read(&file).unwrap().len(), len);
    }
    novale(&["mkfs", "--size", "16M", "--force", &file]).ok();
}

#[test]
fn failures_are_json_too_where_json_is_wanted() {
    let scratch = Scratch::new();
    let none = scratch.slot("none");
    let calls = [
        (["info", "--json", &none], 1),
        (["check", "--json", &none], 8),
        (["mkfs", "--json", "/"], 1),
    ];
    for (call, code) in calls {
        let failed = novale(&call);
        let said: serde_json::Value = serde_json::from_str(&failed.out).unwrap();
        let error = said["error"].as_str().unwrap();
        assert!(
            failed.code == code && failed.err.contains(error),
            "{call:?}: {said} {}",
            failed.err
        );
    }
}

#[test]
fn a_closed_pool_tells_its_free_space_and_inodes() {
    let scratch = Scratch::new();
    let slot = scratch.pool();
    // A new pool has no saved allocator yet.
    assert!(facts(&slot)["bytes_free"].is_null());
    if Scratch::for_mount("a_closed_pool_tells_its_free_space").is_none() {
        return;
    }
    novale(&["mount", &slot, &scratch.dir()]).ok();
    fs::write(scratch.in_dir("file"), vec![1; 1 << 20]).unwrap();
    novale(&["umount", &scratch.dir()]).ok();
    let closed = facts(&slot);
    assert_eq!(closed["inodes"], 2);
    assert!(closed["bytes_free"].as_u64().is_some_and(|free| free > 50 << 20 && free < 63 << 20));
    assert!(novale(&["info", &slot]).ok().contains(" of 64.0 MiB, 2 inodes in use"));
}

#[test]
fn a_slot_that_was_cut_off_is_refused() {
    let scratch = Scratch::new();
    let slot = scratch.pool();
    File::options().write(true).open(&slot).unwrap().set_len(32 << 20).unwrap();
    novale(&["info", &slot]).refused(1, &["cut off", "from a copy"]);
}

#[test]
fn check_tells_clean_damaged_and_unreadable_by_its_exit_code() {
    let scratch = Scratch::new();
    let slot = scratch.pool();
    let said = novale(&["check", "--json", &slot]).ok();
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((report["inodes"].as_u64(), report["clean"].as_bool()), (Some(1), Some(true)));
    assert_eq!(report["errors"].as_array().map(Vec::len), Some(0));
    // The identity line of the root: inode 1 of the chunk after the first free page.
    patch(&slot, SeekFrom::Start((8 + 2) * 4096 + 256 + 8), b"damage");
    let damaged = novale(&["check", "--json", &slot]);
    let report: serde_json::Value = serde_json::from_str(&damaged.out).unwrap();
    assert_eq!(damaged.code, 4, "{}", damaged.err);
    assert!(report["errors"][0]["what"].as_str().is_some_and(|what| !what.is_empty()));
    assert_eq!(novale(&["check", &scratch.slot("none")]).code, 8);
    assert_eq!(novale(&["check"]).code, 16);
}

#[test]
fn every_command_explains_itself() {
    for command in ["mkfs", "mount", "umount", "info", "check", "dump", "install-helper"] {
        let help = novale(&[command, "--help"]).ok();
        assert!(help.contains("Examples:") && help.contains("novale "), "{help}");
        assert!(novale(&[command, "--no-such-flag"]).code > 0);
    }
    // It was no subcommand.
    for word in ["--help", "-h"] {
        assert_eq!(novale(&["help", word]).ok(), novale(&["help"]).ok());
        for words in [["help", "mount"], ["help", "quota"], ["quota", "help"]] {
            assert_eq!(novale(&[&words[..], &[word]].concat()).ok(), novale(&words).ok());
        }
    }
    let help = novale(&["mount", "--help"]).ok();
    assert!(help.contains("[default: 10]") && help.contains("allow_other"), "{help}");
}

#[test]
fn the_helper_is_linked_where_it_is_wanted_and_replaces_nothing_unasked() {
    let scratch = Scratch::new();
    let folder = scratch.slot("sbin");
    fs::create_dir(&folder).unwrap();
    // It was said to work from anywhere.
    let said = novale(&["install-helper", "--dir", &folder]).ok();
    assert!(said.contains("does not look in") && !said.contains("now works"), "{said}");
    let link = format!("{folder}/mount.fuse.novale");
    assert_eq!(fs::read_link(&link).unwrap().to_str(), Some(env!("CARGO_BIN_EXE_novale")));
    novale(&["install-helper", "--dir", &folder]).ok();
    fs::remove_file(&link).unwrap();
    fs::write(&link, b"#!/bin/sh").unwrap();
    novale(&["install-helper", "--dir", &folder]).refused(1, &[&link, "--force"]);
    novale(&["install-helper", "--dir", &folder, "--force"]).ok();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
}

/// The file was cut off first, and the lanes refused then.
#[test]
fn a_refused_mkfs_leaves_the_size_as_it_was() {
    let scratch = Scratch::new();
    let (keep, slot) = (scratch.slot("keep"), scratch.pool());
    File::create(&keep).unwrap().set_len(3 << 20).unwrap();
    let lanes = |slot: &str| novale(&["mkfs", "--force", "--size", "2M", "--lanes", "512", slot]);
    for (slot, len) in [(&keep, 3 << 20), (&slot, 64 << 20)] {
        lanes(slot).refused(1, &["512 lanes", "larger"]);
        assert_eq!(fs::metadata(slot).unwrap().len(), len);
    }
    novale(&["check", &slot]).ok();
}

/// The file had its new length of 100 TB already when there was no room for it, and kept that.
#[test]
fn a_pool_without_room_leaves_the_size_as_it_was() {
    let scratch = Scratch::new();
    let slot = scratch.pool();
    let vast = || ["mkfs", "--force", "--size", "100000G"];
    novale(&[&vast()[..], &[&slot]].concat()).refused(1, &[&slot, "no room", "--size"]);
    assert_eq!(fs::metadata(&slot).unwrap().len(), 64 << 20);
    novale(&["check", &slot]).ok();
    let new = scratch.slot("new");
    novale(&[&vast()[..], &[&new]].concat()).refused(1, &[&new, "no room", "--size"]);
    assert!(!fs::exists(&new).unwrap());
    // What fails after that, here the mapping, puts the length back too.
    let limited = "ulimit -v 400000; exec \"$0\" mkfs --force --size 512M \"$1\"";
    let program = env!("CARGO_BIN_EXE_novale");
    let run = Command::new("sh").args(["-c", limited, program, &slot]).output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.code() == Some(1) && said.contains("cannot be mapped"), "{said}");
    let metadata = fs::metadata(&slot).unwrap();
    assert!(metadata.len() == 64 << 20 && metadata.blocks() * 512 <= 64 << 20);
}

/// It was said to be "map: Cannot allocate memory", and nothing else.
#[test]
fn a_slot_longer_than_the_address_space_is_called_that() {
    let scratch = Scratch::new();
    let slot = scratch.slot("vast");
    File::create(&slot).unwrap().set_len(200 << 40).unwrap();
    novale(&["info", &slot]).refused(1, &[&slot, "cannot be mapped", "make it smaller"]);
}

/// It was "No such file or directory", of a name that was there.
#[test]
fn a_link_that_leads_nowhere_is_called_that() {
    let scratch = Scratch::new();
    let [a, link] = [scratch.slot("a"), scratch.slot("link")];
    std::os::unix::fs::symlink("a", &link).unwrap();
    novale(&["mkfs", "--size", "16M", &link]).refused(1, &[&link, "leads nowhere"]);
    // The file that the one made was the other's too: mkfs waited for itself.
    novale(&["mkfs", "--size", "16M", &a, &link]).refused(1, &[&a, &link, "are the same"]);
    assert!(!fs::exists(&a).unwrap());
}

#[test]
fn the_version_is_the_programs() {
    let said = novale(&["--version"]).ok();
    assert_eq!(said.trim(), format!("novale {}", env!("CARGO_PKG_VERSION")));
}

/// A pool in memory looked like one that survives power cuts.
#[test]
fn what_a_pool_survives_is_said() {
    let scratch = Scratch::new();
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let on_medium = folder.path().join("slot").to_str().unwrap().to_owned();
    for slot in [scratch.slot("slot"), on_medium] {
        let made = novale(&["mkfs", "--size", "16M", &slot]);
        let magic = rustix::fs::statfs(&*slot).unwrap().f_type;
        let [word, warning] = match magic {
            0x0102_1994 => ["tmpfs", "not a power cut"],
            _ => {
                ["page-cache", "in the kernel's page cache: the pool survives killed programs; of"]
            }
        };
        assert!(made.err.contains(&slot) && made.err.contains(warning), "{}", made.err);
        assert_eq!(made.err.lines().count(), 1, "{}", made.err);
        let found = facts(&slot);
        assert_eq!(found["slots"][0]["memory"], word);
        assert_eq!(found["survives_power_cuts"], false);
        assert!(novale(&["info", &slot]).ok().contains(&format!("  {word}\n")));
        let quiet = novale(&["mkfs", "--quiet", "--force", "--json", &slot]);
        assert_eq!(quiet.err, "");
        let made: serde_json::Value = serde_json::from_str(&quiet.ok()).unwrap();
        assert_eq!(made["slots"][0]["memory"], word);
    }
}
