//! Promise: under `novale run --map=dax` and `--map=atomic` a mapping keeps the locks of what it was made by (`flock`,
//! `F_OFD_SETLK`) when all descriptors of that are closed, as a mapping of the kernel's does, and no longer.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]

#[macro_use]
mod harness;

use std::process::Stdio;

use harness::support::program;
use harness::{PLACE, is_whole, library, mounted, succeeds};

/// Runs a task directly, with mappings of each kind.
fn runs(name: &str) {
    for map in ["kernel", "dax", "atomic"] {
        let Some((scratch, slot)) = mounted(&format!("{name}_{map}")) else { return };
        let mut command = std::process::Command::new(program());
        command.env("NOVALE_PRELOAD", library()).env(PLACE, scratch.dir()).stdin(Stdio::null());
        command.args(["run", "--strict", "--map", map, "--mount", &scratch.dir(), "--"]);
        command.arg(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("tasks::{name}"), "--ignored", "--nocapture"]);
        succeeds(&command.output().unwrap());
        is_whole(&scratch, &slot);
    }
}

promises! {
    /// A replica kept nothing open, and the file's own pages what the first descriptor led to that they were mapped by:
    /// the lock went with the last descriptor, and another program was given it.
    a_lock_lasts_as_long_as_the_mapping: runs keeps_the_lock;
    /// To close what was kept for that must not be to close a descriptor of the file, which ends the process' locks.
    the_end_of_a_mapping_ends_no_other_lock: runs keeps_the_others;
    /// Nor must another program's start be one.
    another_program_has_the_locks_of_what_is_mapped: runs keeps_over_exec;
}

mod tasks {
    use std::fs::{self, File};
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::os::unix::process::CommandExt;
    use std::path::PathBuf;
    use std::process::{Command, Stdio};

    use super::harness::{PLACE, exits_with};

    const PAGE: usize = 4096;

    fn path() -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap()).join("file")
    }

    fn open() -> File {
        File::options().read(true).write(true).open(path()).unwrap()
    }

    fn map(file: &File, pages: usize) -> usize {
        let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
        let (none, len) = (std::ptr::null_mut(), pages * PAGE);
        let at = unsafe { libc::mmap(none, len, access, libc::MAP_SHARED, fd, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        at.addr()
    }

    fn unmap(at: usize, pages: usize) {
        let at = std::ptr::without_provenance_mut(at);
        assert_eq!(unsafe { libc::munmap(at, pages * PAGE) }, 0);
    }

    /// Locks all of a file, in one of three ways, without waiting; whether that can be.
    fn locks(file: &File, command: i32) -> bool {
        if command == 0 {
            return unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0;
        }
        let (l_type, l_whence) = (libc::F_WRLCK, libc::SEEK_SET);
        let (l_type, l_whence) = (l_type.try_into().unwrap(), l_whence.try_into().unwrap());
        let lock = libc::flock { l_type, l_whence, l_start: 0, l_len: 0, l_pid: 0 };
        unsafe { libc::fcntl(file.as_raw_fd(), command, &raw const lock) == 0 }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn keeps_the_lock() {
        fs::write(path(), [7; 4 * PAGE]).unwrap();
        for case in 0..8 {
            let command = if case & 1 == 0 { 0 } else { libc::F_OFD_SETLK };
            let (is_locked_first, has_other) = (case & 2 == 0, case & 4 != 0);
            let (file, other) = (open(), open());
            let others = has_other.then(|| map(&other, 1));
            assert!(!is_locked_first || locks(&file, command));
            let at = map(&file, 3);
            assert!(is_locked_first || locks(&file, command));
            drop(file);
            let next = open();
            assert!(!locks(&next, command), "case {case}");
            unmap(at + PAGE, 1);
            unmap(at, 1);
            assert!(!locks(&next, command), "case {case}: a piece is mapped");
            unmap(at + 2 * PAGE, 1);
            assert!(locks(&next, command), "case {case}: nothing is mapped");
            if let Some(at) = others {
                unmap(at, 1);
            }
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn keeps_the_others() {
        fs::write(path(), [7; 4 * PAGE]).unwrap();
        let (file, other) = (open(), open());
        let others = map(&other, 1);
        assert!(locks(&file, 0) && locks(&file, libc::F_SETLK));
        let at = map(&file, 1);
        unmap(at, 1);
        unmap(others, 1);
        let child = unsafe { libc::fork() };
        if child == 0 {
            unsafe { libc::_exit(i32::from(locks(&open(), libc::F_SETLK))) };
        }
        assert_eq!(exits_with(child), 0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn keeps_over_exec() {
        fs::write(path(), [7; 4 * PAGE]).unwrap();
        let mut other = Command::new("cat");
        let map_locked = || {
            let file = open();
            assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) }, 0);
            assert!(locks(&file, 0) && locks(&file, libc::F_SETLK));
            map(&file, 1);
            // It stays open over the exec.
            let _number = file.into_raw_fd();
            Ok(())
        };
        unsafe { other.pre_exec(map_locked) };
        let mut other = other.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        assert!(!locks(&open(), libc::F_SETLK));
        drop(other.stdin.take());
        assert!(other.wait().unwrap().success());
        assert!(locks(&open(), libc::F_SETLK));
    }
}
