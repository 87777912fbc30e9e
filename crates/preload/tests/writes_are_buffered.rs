//! Promise: in a shared mount in mode buffered the bytes that programs write directly are in the buffer, seen
//! by all, flushed by anybody's fsync, durable at once where that is asked for, and nobody's death loses them.
//!
//! Each test runs this very program again, directly, to do one of the tasks below.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
#![allow(clippy::indexing_slicing, reason = "what is missing is a failure")]

mod harness;

use std::fs::{self, File};
use std::io::IoSlice;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;

use harness::support::{Scratch, novale};
use harness::{PLACE, is_whole, succeeds, task};

/// Everything is buffered, and nothing is written back before somebody asks for it.
const WORDS: &str = "direct,mode=buffered,buffer=8M,eager=0,write_back=3600,age=86400";

fn mounted(test: &str, more: &str) -> Option<(Scratch, String)> {
    let scratch = Scratch::for_mount(test)?;
    let slot = scratch.pool();
    novale(&["mount", "-o", &format!("{WORDS}{more}"), &slot, &scratch.dir()]).ok();
    Some((scratch, slot))
}

/// Blocks in the buffer, of which nothing is told where none was ever used.
fn blocks(slot: &str) -> u64 {
    let stats = novale(&["stats", "--json", slot]).ok();
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    stats["buffer"]["blocks"].as_u64().unwrap_or(0)
}

fn bytes() -> Vec<u8> {
    (0..10_000_u32).map(|at| (at % 251) as u8).collect()
}

#[test]
fn anybodys_fsync_flushes_what_a_program_wrote() {
    let Some((scratch, slot)) = mounted("anybodys_fsync_flushes", "") else { return };
    succeeds(&task(&scratch, "plain").output().unwrap());
    assert_eq!(blocks(&slot), 3);
    assert_eq!(fs::read(scratch.in_dir("f")).unwrap(), bytes());
    // Through the mount, by the daemon.
    File::open(scratch.in_dir("f")).unwrap().sync_all().unwrap();
    assert_eq!(blocks(&slot), 0);
    // And the other way round.
    fs::write(scratch.in_dir("f"), &bytes()[1..]).unwrap();
    assert_eq!(blocks(&slot), 3);
    succeeds(&task(&scratch, "syncs").output().unwrap());
    assert_eq!(blocks(&slot), 0);
    is_whole(&scratch, &slot);
}

/// `O_SYNC` of programs that run directly was not looked at.
#[test]
fn what_is_to_be_durable_goes_directly() {
    let Some((scratch, slot)) = mounted("what_is_to_be_durable", "") else { return };
    succeeds(&task(&scratch, "durable").output().unwrap());
    assert_eq!(blocks(&slot), 0);
    for name in ["dsync", "sync", "append", "pwritev2", "handed"] {
        assert_eq!(fs::read(scratch.in_dir(name)).unwrap(), bytes(), "{name}");
    }
    is_whole(&scratch, &slot);
}

/// A mount's word `sync` came to nothing, directly and through the mount.
#[test]
fn in_a_mount_with_sync_everything_goes_directly() {
    let Some((scratch, slot)) = mounted("in_a_mount_with_sync", ",sync") else { return };
    succeeds(&task(&scratch, "plain").output().unwrap());
    assert_eq!(blocks(&slot), 0);
    fs::write(scratch.in_dir("through"), bytes()).unwrap();
    assert_eq!(blocks(&slot), 0);
    is_whole(&scratch, &slot);
}

#[test]
fn who_is_killed_loses_nothing() {
    let Some((scratch, slot)) = mounted("who_is_killed", "") else { return };
    let killed = task(&scratch, "killed").output().unwrap();
    assert_eq!(killed.status.signal().or(killed.status.code()), Some(libc::SIGKILL));
    assert_eq!(blocks(&slot), 3);
    assert_eq!(fs::read(scratch.in_dir("f")).unwrap(), bytes());
    is_whole(&scratch, &slot);
}

/// With the program's mappings in the kernel's pages, and in the file's own.
#[test]
fn all_calls_see_what_is_buffered() {
    for more in ["", ",map=dax"] {
        let Some((scratch, slot)) = mounted("all_calls_see", more) else { return };
        succeeds(&task(&scratch, "calls").output().unwrap());
        assert_eq!(fs::read(scratch.in_dir("renamed")).unwrap(), &bytes()[..6000]);
        is_whole(&scratch, &slot);
    }
}

mod tasks {
    use super::*;

    fn at(name: &str) -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap()).join(name)
    }

    fn made(name: &str) -> File {
        File::options().read(true).write(true).create(true).truncate(true).open(at(name)).unwrap()
    }

    fn made_with(name: &str, flags: i32) -> File {
        let mut options = File::options();
        options.write(true).create(true).custom_flags(flags).open(at(name)).unwrap()
    }

    #[test]
    #[ignore = "a task of another test"]
    fn plain() {
        made("f").write_all_at(&bytes(), 0).unwrap();
    }

    #[test]
    #[ignore = "a task of another test"]
    fn syncs() {
        assert_eq!(fs::read(at("f")).unwrap(), &bytes()[1..]);
        let file = File::open(at("f")).unwrap();
        file.sync_data().unwrap();
        made("g").write_all_at(&bytes(), 0).unwrap();
        assert_eq!(unsafe { libc::syncfs(file.as_raw_fd()) }, 0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn killed() {
        plain();
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }

    #[test]
    #[ignore = "a task of another test"]
    fn durable() {
        made_with("dsync", libc::O_DSYNC).write_all_at(&bytes(), 0).unwrap();
        made_with("sync", libc::O_SYNC).write_all_at(&bytes(), 0).unwrap();
        let file = made_with("append", libc::O_DSYNC | libc::O_APPEND);
        std::io::Write::write_all(&mut &file, &bytes()).unwrap();
        let (file, bytes) = (made("pwritev2"), bytes());
        let pieces = IoSlice::new(&bytes[4000..]);
        // What was buffered before is durable with it.
        file.write_all_at(&bytes[..4000], 0).unwrap();
        let at = (&raw const pieces).cast();
        let written = unsafe { libc::pwritev2(file.as_raw_fd(), at, 1, 4000, libc::RWF_DSYNC) };
        assert_eq!(written, 6000);
        // By sendfile, to a file that the kernel has, too.
        let (from, to) =
            (made_with("handed", libc::O_DSYNC), File::open(self::at("dsync")).unwrap());
        let mut start = 0;
        let sent =
            unsafe { libc::sendfile(from.as_raw_fd(), to.as_raw_fd(), &raw mut start, 10_000) };
        assert_eq!(sent, 10_000);
    }

    /// Changes a file in all ways, with its last bytes in the buffer each time.
    #[test]
    #[ignore = "a task of another test"]
    fn calls() {
        let file = made("f");
        let mut all = bytes();
        file.write_all_at(&all, 0).unwrap();
        let is_so = |all: &[u8]| assert_eq!(fs::read(at("f")).unwrap(), all);
        // A child that shares the descriptor, and one that opens the file.
        let shown = Command::new("cat").stdin(File::open(at("f")).unwrap()).output().unwrap();
        assert_eq!(shown.stdout, all);
        let script = "head -c 5 f; printf child | dd of=f bs=1 seek=7 conv=notrunc status=none";
        let folder = at("f").parent().unwrap().to_owned();
        let shown = Command::new("sh").args(["-c", script]).current_dir(folder).output().unwrap();
        assert_eq!(shown.stdout, &all[..5]);
        all[7..12].copy_from_slice(b"child");
        is_so(&all);
        file.write_all_at(b"back", 7).unwrap();
        all.splice(7..11, *b"back");
        file.set_len(9000).unwrap();
        all.truncate(9000);
        is_so(&all);
        // A copy within the file, and a hole.
        file.write_all_at(b"again", 100).unwrap();
        all.splice(100..105, *b"again");
        let (mut from, mut to) = (100, 5000);
        let fd = file.as_raw_fd();
        let copied = unsafe { libc::copy_file_range(fd, &raw mut from, fd, &raw mut to, 50, 0) };
        assert_eq!(copied, 50);
        all.copy_within(100..150, 5000);
        is_so(&all);
        file.write_all_at(b"once more", 4096).unwrap();
        all.splice(4096..4105, *b"once more");
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        assert_eq!(unsafe { libc::fallocate(fd, punch, 4090, 10) }, 0);
        all[4090..4100].fill(0);
        assert_eq!(unsafe { libc::fallocate(fd, 0, 0, 20_000) }, 0);
        all.resize(20_000, 0);
        is_so(&all);
        mapped(&file, &mut all);
        is_so(&all);
        // A file that is replaced, and one that is removed, while they are open.
        let other = made("other");
        other.write_all_at(&bytes()[..6000], 0).unwrap();
        file.write_all_at(b"replaced", 0).unwrap();
        fs::rename(at("other"), at("f")).unwrap();
        let mut start = [0; 8];
        file.read_exact_at(&mut start, 0).unwrap();
        assert_eq!(&start, b"replaced");
        fs::rename(at("f"), at("renamed")).unwrap();
        let gone = made("gone");
        gone.write_all_at(&bytes(), 0).unwrap();
        fs::remove_file(at("gone")).unwrap();
        gone.write_all_at(b"unseen", 9000).unwrap();
        gone.sync_all().unwrap();
        gone.read_exact_at(&mut start[..6], 9000).unwrap();
        assert_eq!(&start[..6], b"unseen");
    }

    /// Bytes that were written before a mapping and while it is there are seen in it, and its own by all.
    fn mapped(file: &File, all: &mut [u8]) {
        file.write_all_at(b"before", 300).unwrap();
        all[300..306].copy_from_slice(b"before");
        let map = |access, flags| unsafe {
            let fd = file.as_raw_fd();
            let at = libc::mmap(std::ptr::null_mut(), all.len(), access, flags, fd, 0);
            assert_ne!(at, libc::MAP_FAILED);
            std::slice::from_raw_parts_mut(at.cast::<u8>(), all.len())
        };
        let private = map(libc::PROT_READ, libc::MAP_PRIVATE);
        assert_eq!(&private[300..306], b"before");
        let shared = map(libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        file.write_all_at(b"within", 310).unwrap();
        assert_eq!(&shared[300..316], [&all[300..310], b"within"].concat());
        shared[320..326].copy_from_slice(b"stored");
        let len = shared.len();
        assert_eq!(unsafe { libc::msync(shared.as_mut_ptr().cast(), len, libc::MS_SYNC) }, 0);
        all[310..316].copy_from_slice(b"within");
        all[320..326].copy_from_slice(b"stored");
        for map in [private, shared] {
            assert_eq!(unsafe { libc::munmap(map.as_mut_ptr().cast(), len) }, 0);
        }
    }
}
