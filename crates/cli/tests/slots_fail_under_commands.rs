//! Promise: a command that reads a pool says so where a slot's memory goes away meanwhile, and ends with its own code; it
//! was ended by SIGBUS without a word.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]

mod support;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use support::{Scratch, novale};
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

/// Takes the memory of a slot away behind its first pages, in a file system that has none to give: each access there
/// fails as one behind a file's end does.
fn take_memory(slot: &Path) {
    let file = OpenOptions::new().write(true).open(slot).unwrap();
    let (from, end) = (4 * 4096, file.metadata().unwrap().len() - 4096);
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
    take_memory(&slot);
    let said = ["a slot was cut off, or its memory failed, while it was read"];
    novale(&["check", path]).refused(8, &said);
    novale(&["check", "--repair", "--yes", path]).refused(8, &said);
    novale(&["info", path]).refused(1, &said);
    novale(&["dump", path, "lanes"]).refused(1, &said);
    let told = novale(&["check", "--json", path]);
    let told: serde_json::Value = serde_json::from_str(&told.out).unwrap();
    assert!(told["error"].as_str().unwrap().contains("a slot was cut off"), "{told}");
}
