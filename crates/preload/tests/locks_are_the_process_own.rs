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
    a_lock_outlasts_its_program_beside_others: runs_with_the_daemon locks_and_runs_another_beside;
    a_lock_goes_with_what_execve_closes: runs_with_the_daemon has_execve_close_another;
    a_lock_by_a_high_number_outlasts_its_program: runs_with_the_daemon locks_by_a_high_number;
    a_lock_goes_with_any_descriptor: runs_with_the_daemon closes_another;
    a_lock_outlasts_what_fails: runs_with_the_daemon fails_to_replace_another;
    what_is_kept_open_goes_with_the_lock: runs_with_the_daemon replaces_many;
}

mod tasks {
    use std::fs::{self, File};
    use std::io::{Read, Write};
    use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::CommandExt;
    use std::path::PathBuf;
    use std::process::Command;

    use super::harness::{PLACE, exits_with};

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

    /// How many descriptors the kernel has of the file, this library's own among them.
    fn descriptors() -> usize {
        let file = fs::metadata(path()).unwrap();
        let leads = |number: PathBuf| {
            fs::metadata(number).is_ok_and(|at| (at.dev(), at.ino()) == (file.dev(), file.ino()))
        };
        let numbers = fs::read_dir("/proc/self/fd").unwrap();
        numbers.filter(|number| leads(number.as_ref().unwrap().path())).count()
    }

    /// Whether this process has the lock: a child of its can't take it.
    fn is_held(fd: i32) -> bool {
        let child = unsafe { libc::fork() };
        if child == 0 {
            unsafe { libc::_exit(i32::from(locks(fd))) };
        }
        exits_with(child) == 0
    }

    /// A descriptor that stays when another program is run.
    fn staying(file: File) -> RawFd {
        let fd = file.into_raw_fd();
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }, 0);
        fd
    }

    /// Runs the task in this process, which has a file open as `fd`; returns why that fails.
    fn run(task: &str, fd: RawFd) -> std::io::Error {
        let mut other = Command::new(std::env::current_exe().unwrap());
        other.args(["--exact", task, "--ignored", "--nocapture"]);
        other.env(LOCKED, fd.to_string()).exec()
    }

    #[test]
    #[ignore = "a task of another test"]
    fn locks_and_runs_another() {
        let fd = staying(File::create(path()).unwrap());
        assert!(locks(fd) && is_held(fd));
        panic!("{}", run("tasks::has_lock_still", fd));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn locks_and_runs_another_beside() {
        let fd = staying(File::create(path()).unwrap());
        assert!(locks(fd));
        // The library kept what it had opened to hand this one over, until the program was run.
        staying(File::open(path()).unwrap());
        assert!(is_held(fd));
        // A child has no lock to keep anything for.
        let child = unsafe { libc::fork() };
        if child == 0 {
            unsafe { libc::_exit(i32::from(descriptors() != 2)) };
        }
        assert_eq!(exits_with(child), 0);
        panic!("{}", run("tasks::has_lock_still", fd));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn has_execve_close_another() {
        let fd = staying(File::create(path()).unwrap());
        assert!(locks(fd));
        let another = File::open(path()).unwrap();
        assert!(is_held(fd));
        // One that fails closes nothing.
        let failed = Command::new("/dev/null").exec();
        assert!(is_held(fd), "{failed}");
        // On tmpfs too the kernel gives a process' locks up with any descriptor that `execve` closes.
        assert!(another.into_raw_fd() >= 0);
        panic!("{}", run("tasks::has_no_lock", fd));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn has_no_lock() {
        let Ok(fd) = std::env::var(LOCKED) else { return };
        assert!(!is_held(fd.parse().unwrap()));
        // What the library kept it has not left behind.
        assert_eq!(descriptors(), 1);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn locks_by_a_high_number() {
        let file = File::create(path()).unwrap();
        // Of numbers as high it is not looked whether they are from the parent.
        let fd = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD, 100) };
        drop(file);
        assert!(fd >= 100 && locks(fd) && is_held(fd));
        panic!("{}", run("tasks::has_lock_still", fd));
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
        let elsewhere = File::open("/dev/null").unwrap();
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

    #[test]
    #[ignore = "a task of another test"]
    fn fails_to_replace_another() {
        let fd = File::create(path()).unwrap().into_raw_fd();
        let elsewhere = File::open("/dev/null").unwrap();
        assert!(locks(fd) && is_held(fd));
        // A child sets the limit of its parent: what is above it stays open, and is not replaced. It begins
        // before the other descriptor is there, which a fork would hand over.
        let (mut begins, begin) = std::io::pipe().unwrap();
        let limits = unsafe { libc::fork() };
        if limits == 0 {
            begins.read_exact(&mut [0]).unwrap();
            let limit = libc::rlimit { rlim_cur: 100, rlim_max: 4096 };
            let (parent, none) = (unsafe { libc::getppid() }, std::ptr::null_mut());
            let set = unsafe { libc::prlimit(parent, libc::RLIMIT_NOFILE, &raw const limit, none) };
            unsafe { libc::_exit(set) };
        }
        let file = File::open(path()).unwrap();
        let another = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD, 200) };
        (&begin).write_all(&[1]).unwrap();
        assert_eq!(exits_with(limits), 0);
        assert_eq!(unsafe { libc::dup2(elsewhere.as_raw_fd(), another) }, -1);
        assert!(is_held(fd));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn replaces_many() {
        let fd = File::create(path()).unwrap().into_raw_fd();
        let elsewhere = File::open("/dev/null").unwrap();
        for round in 0..20 {
            assert!(locks(fd));
            let another = File::open(path()).unwrap().into_raw_fd();
            // A fork has the kernel open it.
            assert!(is_held(fd), "{round}");
            assert_eq!(unsafe { libc::dup2(elsewhere.as_raw_fd(), another) }, another);
            assert!(!is_held(fd), "{round}");
            assert_eq!(unsafe { libc::close(another) }, 0);
            assert_eq!(descriptors(), 1, "{round}");
        }
    }
}
