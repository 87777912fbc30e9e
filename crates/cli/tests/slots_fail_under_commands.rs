//! Promise: a command that reads a pool says so where a slot's memory goes away meanwhile, and ends with its own code; it
//! was ended by SIGBUS without a word.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]

mod support;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use support::{Outcome, Scratch, eventually, novale, program};
use tempfile::TempDir;

/// A small file system, which is gone with it.
struct Small(TempDir);

impl Small {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), Some(c"size=12m")).unwrap();
        Self(dir)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        unmount(self.0.path(), UnmountFlags::DETACH).unwrap();
    }
}

/// Takes the memory of a slot away behind its first pages and before the last ones, in a file system that has none to
/// give: each access there fails as one behind a file's end does.
fn take_memory(slot: &Path, last: u64) {
    let file = OpenOptions::new().write(true).open(slot).unwrap();
    let (from, end) = (4 * 4096, file.metadata().unwrap().len() - last * 4096);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, from, end - from).unwrap();
    let other = File::create(slot.with_extension("other")).unwrap();
    let take = |bytes: u64| {
        let len = other.metadata().unwrap().len();
        fallocate(&other, FallocateFlags::empty(), len, bytes).is_ok()
    };
    while take(1 << 20) || take(4096) {}
    assert!(file.metadata().unwrap().blocks() * 512 < 8 * 4096);
}

#[test]
fn they_say_so_and_end() {
    let Some(_scratch) = Scratch::for_mount("they_say_so_and_end") else { return };
    let small = Small::new();
    let slot = small.0.path().join("slot");
    let path = slot.to_str().unwrap();
    novale(&["mkfs", "--size", "8M", path]).ok();
    take_memory(&slot, 1);
    let said = ["a slot was cut off, or its memory failed, while it was read"];
    novale(&["check", path]).refused(8, &said);
    novale(&["check", "--repair", "--yes", path]).refused(8, &said);
    novale(&["info", path]).refused(1, &said);
    novale(&["dump", path, "lanes"]).refused(1, &said);
    let told = novale(&["check", "--json", path]);
    let told: serde_json::Value = serde_json::from_str(&told.out).unwrap();
    assert!(told["error"].as_str().unwrap().contains("a slot was cut off"), "{told}");
}

/// Those that deal with mounts have more to do than to read the slot: `mount` and `umount` were ended by SIGBUS.
#[test]
fn what_deals_with_mounts_outlives_it() {
    let Some(scratch) = Scratch::for_mount("what_deals_with_mounts_outlives_it") else { return };
    let small = Small::new();
    let slot = small.0.path().join("slot");
    let path = slot.to_str().unwrap();
    novale(&["mkfs", "--size", "8M", path]).ok();
    novale(&["mount", path, &scratch.dir()]).ok();
    take_memory(&slot, 0);
    novale(&["umount", &scratch.dir()]).refused(1, &["novale: "]);
    assert!(!scratch.is_mounted());
    novale(&["mount", path, &scratch.dir()]).refused(1, &["slot 0"]);
    novale(&["mount", "-o", "ro", path, &scratch.dir()]).refused(1, &["slot 0"]);
}

/// A slot's file that is cut off while a pool is made there ended the command by SIGBUS.
#[test]
fn mkfs_says_so_and_makes_no_pool() {
    let Some(scratch) = Scratch::for_mount("mkfs_says_so_and_makes_no_pool") else { return };
    let slot = scratch.slot("slot");
    // Often the pool is made before.
    let is_told = (0..50).any(|_| {
        File::create(&slot).unwrap().set_len(64 << 20).unwrap();
        let mut mkfs = Command::new(program());
        mkfs.args(["mkfs", "--quiet", &slot]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut mkfs = mkfs.spawn().unwrap();
        let maps = format!("/proc/{}/maps", mkfs.id());
        // To be written to; it is looked at before.
        let is_it = |line: &str| line.contains("rw-s") && line.ends_with(&slot);
        let is_mapped = || fs::read_to_string(&maps).is_ok_and(|maps| maps.lines().any(is_it));
        assert!(eventually(|| is_mapped() || mkfs.try_wait().unwrap().is_some()));
        OpenOptions::new().write(true).open(&slot).unwrap().set_len(0).unwrap();
        let done = Outcome::of(&mkfs.wait_with_output().unwrap());
        let is_told = done.code == 1 && done.err.contains("no pool was made");
        assert!(is_told || done.code == 0, "{}", done.err);
        is_told
    });
    assert!(is_told);
}
