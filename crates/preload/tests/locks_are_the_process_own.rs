//! Promise: a lock of the process (`F_SETLK`) is there as long as it would be elsewhere: another program that the
//! process runs has it still, and it goes when any descriptor of its file is closed.
//!
//! The library opened a file for the kernel and closed it again, and the kernel gave up the lock which the process
//! had brought from the program before: two wrote that each believed to be alone. And what the kernel had
//! not open, it did not see closed.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]

#[macro_use]
mod harness;

use harness::runs_with_the_daemon;

promises! {
    a_lock_outlasts_its_program: runs_with_the_daemon locks_and_runs_another;
    a_lock_goes_with_any_descriptor: runs_with_the_daemon closes_another;
}

mod tasks {
    use std::fs::{self, File};
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::os::unix::process::CommandExt;
    use std::path::PathBuf;
    use std::process::Command;

    use super::harness::PLACE;

    const LOCKED: &str = "NOVALE_TEST_LOCKED";

    fn path() -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap()).join("locked")
    }

    fn locks(fd: i32) -> bool {
        let (l_type, l_whence) = (libc::F_WRLCK, libc::SEEK_SET);
        let (l_type, l_whence) = (l_type.try_into().unwrap(), l_whence.try_into().unwrap());
        let lock = libc::flock { l_type, l_whence, l_start: 0, l_len: 10, l_pid: 0 };
        unsafe { libc::fcntl(fd, libc::F_SETLK, &raw const lock) == 0 }
    }

    /// Whether this process has the lock: a child of its can't take it.
    fn is_held(fd: i32) -> bool {
        let child = unsafe { libc::fork() };
        if child == 0 {
            unsafe { libc::_exit(i32::from(locks(fd))) };
        }
        let mut status = 0;
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        status == 0
    }

    #[test]
    #[ignore = "a task of another test"]
    fn locks_and_runs_another() {
        let fd = File::create(path()).unwrap().into_raw_fd();
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }, 0);
        assert!(locks(fd) && is_held(fd));
        let mut other = Command::new(std::env::current_exe().unwrap());
        other.args(["--exact", "tasks::has_lock_still", "--ignored", "--nocapture"]);
        panic!("{}", other.env(LOCKED, fd.to_string()).exec());
    }

    #[test]
    #[ignore = "a task of another test"]
    fn has_lock_still() {
        let Ok(fd) = std::env::var(LOCKED) else { return };
        let fd = fd.parse().unwrap();
        let file = File::open(path()).unwrap();
        // A fork has the kernel open the file, and so has a mapping.
        assert!(is_held(fd));
        let (access, share) = (libc::PROT_READ, libc::MAP_SHARED);
        let mapped =
            unsafe { libc::mmap(std::ptr::null_mut(), 1, access, share, file.as_raw_fd(), 0) };
        assert_ne!(mapped, libc::MAP_FAILED);
        assert!(is_held(fd));
        drop(file);
        assert!(!is_held(fd));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn closes_another() {
        let fd = File::create(path()).unwrap().into_raw_fd();
        let elsewhere = fs::File::open("/dev/null").unwrap();
        let ways: [&dyn Fn(File); 4] = [
            &drop,
            &|file| {
                let fd = file.into_raw_fd();
                assert_eq!(unsafe { libc::dup2(elsewhere.as_raw_fd(), fd) }, fd);
            },
            &|file| {
                let fd = file.into_raw_fd().try_into().unwrap();
                assert_eq!(unsafe { libc::close_range(fd, fd, 0) }, 0);
            },
            &|file| {
                drop(file.try_clone().unwrap());
                drop(file);
            },
        ];
        for (way, close) in ways.into_iter().enumerate() {
            assert!(locks(fd) && is_held(fd), "{way}");
            close(File::open(path()).unwrap());
            assert!(!is_held(fd), "{way}");
        }
    }
}
