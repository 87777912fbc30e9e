//! Promise: `novale dump` shows what lies in a pool, also one that is mounted, damaged, or lacks a
//! slot, and changes nothing.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at what fails")]

mod support;

use std::fs;
use std::io::SeekFrom;
use std::process::Command;

use support::{Scratch, novale, patch, program};

fn json(arguments: &[&str]) -> serde_json::Value {
    let arguments: Vec<&str> = ["dump", "--json"].iter().chain(arguments).copied().collect();
    serde_json::from_str(&novale(&arguments).ok()).unwrap()
}

#[test]
fn every_part_of_a_pool_has_its_words() {
    let scratch = Scratch::new();
    let slot = scratch.pool();
    let before = fs::read(&slot).unwrap();
    let said = novale(&["dump", &slot, "superblock"]).ok();
    assert!(
        said.contains("Superblock at 0:0x0: stands") && said.contains("closed clean"),
        "{said}"
    );
    let said = novale(&["dump", &slot, "slots"]).ok();
    assert!(said.contains("Slot header at 0:0x800") && said.contains("64.0 MiB"), "{said}");
    let said = novale(&["dump", &slot, "lanes"]).ok();
    assert!(said.contains("lane 0: page 0:0x") && said.contains("blank"), "{said}");
    let said = novale(&["dump", &slot, "saved"]).ok();
    assert!(said.contains("saved allocator: "), "{said}");
    let said = novale(&["dump", &slot, "path", "/"]).ok();
    assert!(said.contains("inode 1 at ") && said.contains("Directory in use"), "{said}");
    let said = novale(&["dump", "--hex", &slot, "page", "0:0x10"]).ok();
    assert!(said.contains("reserved: superblock") && said.contains("4e 6f 76 61 6c 65"), "{said}");
    let page = json(&[&slot, "page", "0:0x3ffe000"]);
    assert_eq!((&page["free"], &page["owners"]), (&true.into(), &serde_json::json!([])));
    let root = json(&[&slot, "inode", "1"]);
    assert_eq!(root["lines"][0]["fields"]["mode"], 0o40755);
    assert_eq!(fs::read(&slot).unwrap(), before);
    novale(&["dump", &slot]).refused(1, &["what is to be shown", "superblock", "page ADDRESS"]);
    novale(&["dump", &slot, "path", "/nothing"]).refused(1, &["has no name \"nothing\""]);
    novale(&["dump", &slot, "page", "7:0x8000"]).refused(1, &["7:0x8000"]);
}

#[test]
fn damage_is_shown_with_its_reason() {
    let scratch = Scratch::new();
    let slot = scratch.pool();
    patch(&slot, SeekFrom::Start(70), b"x");
    let said = novale(&["dump", &slot, "superblock"]).ok();
    for words in ["its replica is used", "refused: superblock: checksum", "0:0x3fff000: stands"] {
        assert!(said.contains(words), "'{words}' is missing in: {said}");
    }
    let lane = json(&[&slot, "lanes"])["lanes"][1]["page"].as_str().unwrap().to_owned();
    patch(&slot, SeekFrom::Start(4 * 4096 + 8), b"\x01");
    let said = novale(&["dump", &slot, "lanes"]).ok();
    assert!(said.contains("lane 1: refused: page of lane 1 at 0:0x4008"), "{lane}: {said}");
}

#[test]
fn a_missing_slot_hides_only_what_lies_there() {
    let scratch = Scratch::new();
    let slots = [scratch.slot("a"), scratch.slot("b"), scratch.slot("c")];
    novale(&["mkfs", "--size", "16M", &slots[0], &slots[1], &slots[2]]).ok();
    let said = novale(&["dump", &slots[0], "path", "/"]).ok();
    assert!(said.contains("slot 1 is missing") && said.contains("slot 2 is missing"), "{said}");
    assert!(said.contains("Directory in use"), "{said}");
    let said = novale(&["dump", &slots[2], "superblock"]).ok();
    assert!(said.contains("slot 0 is missing") && said.contains("2:0xfff000: stands"), "{said}");
    let said = json(&[&slots[2], &slots[0], "slots"]);
    let bytes: Vec<u64> = said["slots"]
        .as_array()
        .unwrap()
        .iter()
        .map(|slot| slot["bytes"].as_u64().unwrap())
        .collect();
    assert_eq!(bytes, [16 << 20, 0, 16 << 20]);
    let other = scratch.pool();
    novale(&["dump", &slots[0], &other, "slots"]).refused(1, &["belongs to pool"]);
}

#[test]
fn a_mounted_pool_is_looked_into_and_that_is_said() {
    let Some(scratch) = Scratch::for_mount("a_mounted_pool_is_looked_into_and_that_is_said") else {
        return;
    };
    let (slot, dir) = (scratch.pool(), scratch.dir());
    novale(&["mount", &slot, &dir]).ok();
    fs::write(scratch.in_dir("file"), [7; 5000]).unwrap();
    let said = novale(&["dump", &slot, "path", "/file"]).ok();
    assert!(said.contains("in use by process") && said.contains("may be changing"), "{said}");
    let file = json(&[&slot, "path", "/file"]);
    let standing = file["lines"].as_array().unwrap().iter().find(|l| l["notes"][0] == "stands");
    assert_eq!(standing.unwrap()["fields"]["size"], 5000);
    novale(&["umount", &dir]).ok();
}

/// As `novale dump ... | head -1` has it.
#[test]
fn a_reader_that_has_read_enough_is_no_failure_to_tell() {
    let scratch = Scratch::new();
    let slot = scratch.pool();
    for words in [vec!["dump", &slot, "superblock"], vec!["info", "--json", &slot]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let done = Command::new(program()).args(words).stdout(writer).output().unwrap();
        assert_eq!((done.status.code(), done.stderr.as_slice()), (Some(141), &[][..]));
    }
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let done = Command::new(program()).args(["info", &slot]).stdout(full).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(said.contains("writing to standard output: No space left"), "{said}");
}
