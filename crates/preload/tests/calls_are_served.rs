//! Promise: a program under `novale run` has its file calls served in its own process, with the
//! results that the kernel gives, and in accord with the mount and with its children.
//!
//! Each test runs this very program again, directly, to do one of the tasks below. That no call went
//! to the daemon is seen by stopping it meanwhile.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
#![allow(clippy::indexing_slicing, reason = "what is missing is a failure")]

#[macro_use]
mod harness;

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use harness::support::{self, facts};
use harness::{
    PLACE, direct, is_whole, mounted, runs_with_the_daemon, runs_without_the_daemon, succeeds, task,
};

promises! {
    data_is_read_and_written_without_the_daemon: runs_without_the_daemon data;
    names_and_attributes_change_without_the_daemon: runs_without_the_daemon names;
    threads_share_files_without_the_daemon: runs_without_the_daemon threads;
    /// The first call of a thread ran on the program's stack, where glibc's asynchronous writes leave 20
    /// KB.
    threads_with_small_stacks_write: runs_without_the_daemon small_stacks;
    /// What a name led to went before it was used: `link` said that it is stale, which no program
    /// expects.
    names_may_go_at_any_time: runs_without_the_daemon going;
    signal_handlers_may_write: runs_without_the_daemon signals;
    /// A thread that had a file locked took memory of the program's, and waited there for a thread that a
    /// signal had interrupted, whose handler waited for the file.
    signals_may_interrupt_what_takes_memory: runs_without_the_daemon memory;
    /// The call that ends a process was made on the way out of the library, after a door that was shut
    /// for good: a handler that ran there and wrote waited for ever.
    signals_do_not_keep_a_process_from_ending: runs_without_the_daemon ends;
    descriptors_keep_the_kernels_rules: runs_with_the_daemon descriptors;
    numbers_are_the_lowest_free_ones: runs_with_the_daemon numbers;
    a_number_is_one_threads_at_a_time: runs_without_the_daemon numbers_of_threads;
    /// A program without a free number took all other clients for dead, since it could not open what says
    /// that they live: it closed the pool and removed the arena under them. What it had open was not
    /// handed to its children.
    who_has_all_its_numbers_in_use_can_fork: runs_with_the_daemon limit;
    children_share_positions: runs_with_the_daemon children;
    /// What one of them had set the other did not see: it wrote over what it was to append to.
    children_share_flags: runs_with_the_daemon flags;
    programs_inherit_descriptors: runs_with_the_daemon programs;
    locks_are_seen_by_others: runs_with_the_daemon locks;
    files_are_mapped: runs_with_the_daemon mapping;
    directories_are_read_and_entered: runs_with_the_daemon directories;
}

/// The library opened a FIFO itself, with all signals blocked: the one who waited for a partner that
/// never came could be ended by SIGKILL alone.
#[test]
fn who_waits_at_a_fifo_can_be_interrupted() {
    let Some((scratch, slot)) = mounted("who_waits_at_a_fifo") else { return };
    let fifo = scratch.in_dir("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    symlink(&fifo, scratch.in_dir("link")).unwrap();
    for name in ["fifo", "link"] {
        let mut waiting = direct(&scratch, Path::new("timeout"));
        waiting.args(["--kill-after", "20", "0.2", "cat"]).arg(scratch.in_dir(name));
        // What timeout says of a program that the first signal has ended.
        assert_eq!(waiting.status().unwrap().code(), Some(124), "{name}");
    }
    let script = format!("cat {0} & echo through > {0}; wait", fifo.display());
    let mut both = direct(&scratch, Path::new("sh"));
    assert_eq!(succeeds(&both.args(["-c", &script]).output().unwrap()), "through\n");
    is_whole(&scratch, &slot);
}

#[test]
fn mount_and_direct_program_see_one_file_system() {
    let Some((scratch, slot)) = mounted("mount_and_direct_program") else { return };
    let cat = |program: &str, arguments: &[&str]| {
        let mut command = direct(&scratch, Path::new(program));
        succeeds(&command.args(arguments).output().unwrap())
    };
    let file = scratch.in_dir("file");
    let path = file.to_str().unwrap();
    for turn in 0..20 {
        let text = format!("{turn}{}", "x".repeat(turn * 500));
        fs::write(&file, &text).unwrap();
        assert_eq!(cat("cat", &[path]), text);
        let text = format!("{turn} again{}", "y".repeat(turn * 300));
        cat("sh", &["-c", &format!("printf %s '{text}' > {path}.new && mv {path}.new {path}")]);
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        assert_eq!(fs::metadata(&file).unwrap().size(), text.len() as u64);
        assert!(!fs::exists(scratch.in_dir("file.new")).unwrap());
    }
    is_whole(&scratch, &slot);
}

/// The kernel kept the inodes, and their space, until it was short of memory.
#[test]
fn what_a_program_removes_gives_its_space_back_also_where_the_kernel_knew_it() {
    let Some((scratch, slot)) = mounted("what_a_program_removes") else { return };
    for name in ["removed", "replaced", "renamed", "linked"] {
        fs::write(scratch.in_dir(name), vec![1; 2 << 20]).unwrap();
    }
    fs::write(scratch.in_dir("other"), b"").unwrap();
    let free = || facts(&slot)["bytes_free"].as_u64().unwrap();
    let before = free();
    succeeds(&task(&scratch, "removes").output().unwrap());
    assert!(support::eventually(|| free() >= before + (8 << 20)));
    is_whole(&scratch, &slot);
}

/// The name by which the kernel had opened the file stayed in its memory, and kept the inode.
#[test]
fn what_a_program_has_handed_to_the_kernel_gives_its_space_back_when_it_is_removed() {
    let Some((scratch, slot)) = mounted("what_a_program_has_handed") else { return };
    let free = || facts(&slot)["bytes_free"].as_u64().unwrap();
    let before = free();
    succeeds(&task(&scratch, "locks_and_removes").output().unwrap());
    fs::remove_file(scratch.in_dir("left")).unwrap();
    assert!(support::eventually(|| free() + (1 << 20) >= before));
    is_whole(&scratch, &slot);
}

mod tasks {
    use super::harness::exits_with;
    use super::harness::signals::keep_from_main_thread;
    use super::*;

    #[test]
    #[ignore = "a task of another test"]
    fn locks_and_removes() {
        for name in ["removed", "left"] {
            let mut file = File::create(place().join(name)).unwrap();
            assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) }, 0);
            file.write_all(&vec![1; 4 << 20]).unwrap();
            assert_eq!(file.metadata().unwrap().nlink(), 1);
        }
        fs::remove_file(place().join("removed")).unwrap();
    }

    #[test]
    #[ignore = "a task of another test"]
    fn removes() {
        fs::remove_file(place().join("removed")).unwrap();
        fs::rename(place().join("other"), place().join("replaced")).unwrap();
        // Names that the kernel has met, and others that it has not.
        fs::rename(place().join("renamed"), place().join("new name")).unwrap();
        fs::remove_file(place().join("new name")).unwrap();
        fs::hard_link(place().join("linked"), place().join("second name")).unwrap();
        for name in ["linked", "second name"] {
            fs::remove_file(place().join(name)).unwrap();
        }
    }

    fn c_path(path: &Path) -> CString {
        CString::new(path.as_os_str().as_bytes()).unwrap()
    }

    fn place() -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap())
    }

    fn pattern(seed: usize, len: usize) -> Vec<u8> {
        (0..len).map(|at| u8::try_from((at * 7 + seed * 131 + at / 256) % 251).unwrap()).collect()
    }

    #[test]
    #[ignore = "a task of another test"]
    fn data() {
        let path = place().join("file");
        let mut file =
            OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        let mut expected = Vec::new();
        for (index, len) in [1, 64, 4095, 4096, 4097, 100, 70_000, 1].into_iter().enumerate() {
            let bytes = pattern(index, len);
            file.write_all(&bytes).unwrap();
            expected.extend_from_slice(&bytes);
        }
        let bytes = pattern(40, 5000);
        file.write_all_at(&bytes, 1000).unwrap();
        expected[1000..6000].copy_from_slice(&bytes);
        let pieces = [pattern(1, 10), pattern(2, 3000), pattern(3, 8)];
        let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        assert_eq!(file.write_vectored(&slices).unwrap(), 3018);
        expected.extend(pieces.concat());
        assert_eq!(file.metadata().unwrap().size(), expected.len() as u64);
        assert_eq!(fs::read(&path).unwrap(), expected);
        assert_eq!(file.stream_position().unwrap(), expected.len() as u64);

        assert_eq!(file.seek(SeekFrom::Start(5)).unwrap(), 5);
        let (mut one, mut two) = ([0; 7], [0; 4000]);
        let slices = &mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
        assert_eq!(file.read_vectored(slices).unwrap(), 4007);
        assert_eq!([&one[..], &two[..]].concat(), expected[5..4012]);
        assert_eq!(file.seek(SeekFrom::Current(-2)).unwrap(), 4010);
        assert_eq!(file.seek(SeekFrom::End(-3)).unwrap(), expected.len() as u64 - 3);
        assert_eq!(file.read(&mut two).unwrap(), 3);
        assert_eq!(file.read(&mut two).unwrap(), 0);
        assert_eq!(file.seek(SeekFrom::Current(-1_000_000)).unwrap_err().raw_os_error(), Some(22));

        let mut end = OpenOptions::new().append(true).open(&path).unwrap();
        end.write_all(b"at the end").unwrap();
        expected.extend(b"at the end");
        file.set_len(expected.len() as u64 + 10_000).unwrap();
        expected.resize(expected.len() + 10_000, 0);
        assert_eq!(fs::read(&path).unwrap(), expected);
        file.set_len(123).unwrap();
        expected.truncate(123);
        file.sync_all().unwrap();
        assert_eq!(fs::read(&path).unwrap(), expected);
        assert_eq!(end.read(&mut two).unwrap_err().raw_os_error(), Some(9));
        let advise = |len, advice| unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, len, advice) };
        assert_eq!(
            (advise(0, libc::POSIX_FADV_DONTNEED), advise(9, libc::POSIX_FADV_NOREUSE)),
            (0, 0)
        );
        assert_eq!((advise(0, 99), advise(-1, libc::POSIX_FADV_NORMAL)), (22, 22));
        assert_eq!(unsafe { libc::readahead(end.as_raw_fd(), 0, 9) }, -1);
        drop(OpenOptions::new().write(true).truncate(true).open(&path).unwrap());
        assert_eq!(file.metadata().unwrap().size(), 0);

        // What has no name is there as long as it is open.
        file.write_all_at(b"nameless", 0).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        let mut read = [0; 8];
        file.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(&read, b"nameless");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn names() {
        let at = |name: &str| place().join("d").join(name);
        fs::create_dir(at("sub")).unwrap();
        fs::write(at("one"), b"1").unwrap();
        fs::rename(at("one"), at("sub/two")).unwrap();
        assert_eq!(fs::metadata(at("one")).unwrap_err().kind(), ErrorKind::NotFound);
        fs::hard_link(at("sub/two"), at("three")).unwrap();
        assert_eq!(fs::metadata(at("three")).unwrap().nlink(), 2);
        symlink("sub/two", at("link")).unwrap();
        assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("sub/two"));
        assert_eq!(fs::read(at("link")).unwrap(), b"1");
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        fs::set_permissions(at("three"), fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(fs::metadata(at("sub/../sub/./two")).unwrap().mode(), 0o100_640);
        let error = fs::create_dir(at("sub")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::remove_dir(at("sub")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
        let exclusive = OpenOptions::new().write(true).create_new(true).open(at("three"));
        assert_eq!(exclusive.unwrap_err().kind(), ErrorKind::AlreadyExists);
        let file = File::open(at("three")).unwrap();
        let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::new(1_000_000, 5);
        let file_times = fs::FileTimes::new().set_modified(old);
        OpenOptions::new().write(true).open(at("three")).unwrap().set_times(file_times).unwrap();
        assert_eq!(file.metadata().unwrap().modified().unwrap(), old);
        for name in ["link", "three", "sub/two"] {
            fs::remove_file(at(name)).unwrap();
        }
        fs::remove_dir(at("sub")).unwrap();
        assert_eq!(fs::metadata(at("gone/far")).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn threads() {
        const WRITERS: usize = 4;
        const TURNS: usize = 300;
        let path = place().join("shared");
        // A call that succeeds leaves it, the first one of the pool's, too.
        let errno = || unsafe { &mut *libc::__errno_location() };
        *errno() = libc::EXDEV;
        let shared = OpenOptions::new().read(true).append(true).create(true).open(&path).unwrap();
        assert_eq!(*errno(), libc::EXDEV);
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (mut shared, path) = (&shared, path.with_extension(writer.to_string()));
                scope.spawn(move || {
                    for turn in 0..TURNS {
                        *errno() = libc::EXDEV;
                        shared.write_all(&pattern(writer, 100)).unwrap();
                        assert_eq!(*errno(), libc::EXDEV);
                        let mut own = File::create(&path).unwrap();
                        own.write_all(&pattern(turn, 300)).unwrap();
                        assert_eq!(fs::read(&path).unwrap(), pattern(turn, 300));
                    }
                });
            }
        });
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), WRITERS * TURNS * 100);
        for writer in 0..WRITERS {
            let own = pattern(writer, 100);
            assert_eq!(bytes.chunks_exact(100).filter(|chunk| **chunk == own).count(), TURNS);
        }
    }

    static IN_HANDLER: AtomicI32 = AtomicI32::new(-1);
    static HANDLED: AtomicU32 = AtomicU32::new(0);

    extern "C" fn handler(_: i32) {
        let fd = IN_HANDLER.load(Ordering::Relaxed);
        let written = unsafe { libc::write(fd, b"signal".as_ptr().cast(), 6) };
        HANDLED.fetch_add(u32::from(written == 6), Ordering::Relaxed);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn signals() {
        let path = place().join("signals");
        let file = OpenOptions::new().append(true).create(true).open(&path).unwrap();
        IN_HANDLER.store(file.as_raw_fd(), Ordering::Relaxed);
        let handler: extern "C" fn(i32) = handler;
        unsafe { libc::signal(libc::SIGALRM, handler as libc::sighandler_t) };
        keep_from_main_thread(libc::SIGALRM);
        let every = libc::timeval { tv_sec: 0, tv_usec: 100 };
        let timer = libc::itimerval { it_interval: every, it_value: every };
        assert_eq!(
            unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) },
            0
        );
        let mut writes = 0u64;
        while HANDLED.load(Ordering::Relaxed) < 500 {
            (&file).write_all(b"normal").unwrap();
            writes += 1;
        }
        let none = libc::timeval { tv_sec: 0, tv_usec: 0 };
        let timer = libc::itimerval { it_interval: none, it_value: none };
        assert_eq!(
            unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) },
            0
        );
        let of = |bytes: &[u8], word: &[u8]| {
            bytes.chunks_exact(6).filter(|chunk| *chunk == word).count() as u64
        };
        let bytes = fs::read(&path).unwrap();
        assert_eq!(of(&bytes, b"signal"), u64::from(HANDLED.load(Ordering::Relaxed)));
        assert_eq!(of(&bytes, b"normal"), writes);
        assert_eq!(bytes.len() as u64 / 6, of(&bytes, b"normal") + of(&bytes, b"signal"));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn memory() {
        let path = place().join("memory");
        let file = OpenOptions::new().append(true).create(true).open(&path).unwrap();
        IN_HANDLER.store(file.as_raw_fd(), Ordering::Relaxed);
        let handler: extern "C" fn(i32) = handler;
        unsafe { libc::signal(libc::SIGALRM, handler as libc::sighandler_t) };
        let set_timer = |tv_usec| {
            let every = libc::timeval { tv_sec: 0, tv_usec };
            let timer = libc::itimerval { it_interval: every, it_value: every };
            let none = std::ptr::null_mut();
            assert_eq!(unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, none) }, 0);
        };
        keep_from_main_thread(libc::SIGALRM);
        set_timer(100);
        // Each thread is new to libc's memory and to the library.
        for _ in 0..30 {
            std::thread::scope(|scope| {
                for thread in 0..40 {
                    let (mut file, path) = (&file, path.with_extension(thread.to_string()));
                    scope.spawn(move || {
                        file.write_all(b"normal").unwrap();
                        fs::write(path, pattern(thread, 5000)).unwrap();
                    });
                }
            });
        }
        set_timer(0);
        assert_eq!(fs::read(&path).unwrap().len() % 6, 0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn ends() {
        let handler: extern "C" fn(i32) = handler;
        unsafe { libc::signal(libc::SIGALRM, handler as libc::sighandler_t) };
        let every = libc::timeval { tv_sec: 0, tv_usec: 50 };
        let timer = libc::itimerval { it_interval: every, it_value: every };
        for turn in 0..100 {
            let child = unsafe { libc::fork() };
            if child == 0 {
                let file = File::create(place().join(format!("ends{turn}"))).unwrap();
                IN_HANDLER.store(file.into_raw_fd(), Ordering::Relaxed);
                unsafe {
                    libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
                    libc::_exit(7);
                }
            }
            let mut status = 0;
            let mut ended =
                || unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == child;
            if !support::eventually(&mut ended) {
                unsafe { libc::kill(child, libc::SIGKILL) };
            }
            assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 7));
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn limit() {
        let path = place().join("limit");
        fs::write(&path, b"seen").unwrap();
        let first = File::open(&path).unwrap();
        let most = u64::try_from(first.as_raw_fd()).unwrap() + 8;
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
        let mut open = vec![first];
        while let Ok(file) = File::open(&path) {
            open.push(file);
        }
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut bytes = [0u8; 4];
            let read = open.iter().all(|file| {
                let read = unsafe {
                    libc::pread(file.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), 0)
                };
                read == 4 && &bytes == b"seen"
            });
            unsafe { libc::_exit(i32::from(!read)) };
        }
        let mut status = -1;
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn descriptors() {
        let path = place().join("descriptors");
        let mut file =
            OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        let mut other = file.try_clone().unwrap();
        file.write_all(b"first ").unwrap();
        other.write_all(b"second").unwrap();
        assert_eq!(file.stream_position().unwrap(), 12);
        let fd = file.as_raw_fd();
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        assert_eq!(flags & libc::O_ACCMODE, libc::O_RDWR);
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFD) }, libc::FD_CLOEXEC);
        // The number is the lowest free one, and another file's once closed.
        drop(other);
        drop(file);
        let elsewhere = File::open("/proc/self/status").unwrap();
        assert_eq!(elsewhere.as_raw_fd(), fd);
        let mut text = String::new();
        (&elsewhere).read_to_string(&mut text).unwrap();
        assert!(text.starts_with("Name:"));
        // A number that was this file's is the other one's after dup2.
        let mut file = File::options().read(true).write(true).open(&path).unwrap();
        let fd = file.as_raw_fd();
        assert_eq!(unsafe { libc::dup2(elsewhere.as_raw_fd(), fd) }, fd);
        assert!(fs::read_link(format!("/proc/self/fd/{fd}")).unwrap().ends_with("status"));
        text.clear();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("Name:"));
        // Everything closed at once, as daemons do.
        let file = File::open(&path).unwrap();
        let first = u32::try_from(file.as_raw_fd()).unwrap();
        unsafe { libc::close_range(first, u32::MAX, 0) };
        let mut byte = [0; 1];
        let closed = unsafe { libc::read(file.as_raw_fd(), byte.as_mut_ptr().cast(), 1) };
        assert_eq!((closed, std::io::Error::last_os_error().raw_os_error()), (-1, Some(9)));
        let _closed = file.into_raw_fd();
        assert_eq!(fs::read(&path).unwrap(), b"first second");
    }

    /// Numbers that the program has open, as it sees it.
    fn open_numbers() -> BTreeSet<i32> {
        (0..200).filter(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0).collect()
    }

    #[test]
    #[ignore = "a task of another test"]
    fn numbers() {
        let (file, elsewhere) = (c_path(&place().join("numbers")), c_path(Path::new("/dev/null")));
        fs::write(place().join("numbers"), "ours").unwrap();
        let mut open = open_numbers();
        let first = *open.iter().next_back().unwrap() + 1;
        let mut random = fastrand::Rng::with_seed(5);
        let lowest = |open: &BTreeSet<i32>| (0..200).find(|fd| !open.contains(fd)).unwrap();
        for step in 0..20_000 {
            let some = open.range(first..).nth(random.usize(..16)).copied();
            let made = match (random.u8(..16), some) {
                (0..4, _) if open.len() < 24 => {
                    let flags = if random.bool() { libc::O_CLOEXEC } else { 0 };
                    Some(unsafe { libc::open(file.as_ptr(), libc::O_RDONLY | flags) })
                }
                (4, _) => Some(unsafe { libc::open(elsewhere.as_ptr(), libc::O_RDONLY) }),
                (5, _) => Some(unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0) }),
                (6, Some(fd)) => Some(unsafe { libc::dup(fd) }),
                (7, Some(fd)) => {
                    let to = random.i32(first..first + 24);
                    assert_eq!(unsafe { libc::dup2(fd, to) }, to);
                    open.insert(to);
                    None
                }
                (8, Some(fd)) => {
                    unsafe { libc::close_range(fd.cast_unsigned(), u32::MAX, 0) };
                    open.retain(|other| *other < fd);
                    None
                }
                (9, _) => {
                    assert_eq!(open_numbers(), open, "step {step}");
                    None
                }
                (10, _) => {
                    let closed = lowest(&open);
                    assert_eq!(unsafe { libc::fchdir(closed) }, -1);
                    let path = c".".as_ptr();
                    assert_eq!(unsafe { libc::openat(closed, path, libc::O_RDONLY) }, -1);
                    assert_eq!(unsafe { libc::close(closed) }, -1);
                    None
                }
                (_, Some(fd)) => {
                    assert_eq!(unsafe { libc::close(fd) }, 0);
                    open.remove(&fd);
                    None
                }
                _ => None,
            };
            if let Some(made) = made {
                assert_eq!(made, lowest(&open), "step {step}");
                open.insert(made);
            }
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn numbers_of_threads() {
        let taken = [const { AtomicU32::new(0) }; 64];
        std::thread::scope(|scope| {
            for thread in 1..5 {
                let path = c_path(&place().join(thread.to_string()));
                fs::write(place().join(thread.to_string()), [thread]).unwrap();
                let taken = &taken;
                scope.spawn(move || {
                    let files = [(path.as_c_str(), thread), (c"/dev/zero", 0)];
                    (0..3000).for_each(|turn| opens(files[usize::from(turn % 5 == 0)], taken));
                });
            }
        });
    }

    /// Opens a file under a number that nobody else has meanwhile, and reads its first byte.
    fn opens((path, first): (&CStr, u8), taken: &[AtomicU32]) {
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        let number = &taken[usize::try_from(fd).unwrap()];
        assert_eq!(number.swap(1, Ordering::SeqCst), 0, "{fd} is two files' number");
        let mut byte = [9];
        let got = unsafe { libc::read(fd, byte.as_mut_ptr().cast(), 1) };
        assert_eq!((got, byte[0]), (1, first));
        number.store(0, Ordering::SeqCst);
        assert_eq!(unsafe { libc::close(fd) }, 0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn small_stacks() {
        extern "C" fn write(file: *mut libc::c_void) -> *mut libc::c_void {
            let written =
                unsafe { libc::pwrite(file as i32, [7_u8; 100].as_ptr().cast(), 100, 50) };
            written as *mut libc::c_void
        }
        let file = File::create(place().join("small-stacks")).unwrap();
        // A thread of the standard library's makes calls of its own before.
        let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
        let (mut thread, mut written) = (0, std::ptr::null_mut());
        unsafe {
            assert_eq!(libc::pthread_attr_init(&raw mut attributes), 0);
            assert_eq!(libc::pthread_attr_setstacksize(&raw mut attributes, 20 << 10), 0);
            let fd = usize::try_from(file.as_raw_fd()).unwrap();
            let argument = fd as *mut libc::c_void;
            let made =
                libc::pthread_create(&raw mut thread, &raw const attributes, write, argument);
            assert_eq!(made, 0);
            assert_eq!(libc::pthread_join(thread, &raw mut written), 0);
        }
        assert_eq!(written as usize, 100);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn children() {
        let path = place().join("children");
        let mut file =
            OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all(b"parent ").unwrap();
        for turn in 0..5 {
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                let text = format!("child{turn} ");
                let good = file.write_all(text.as_bytes()).is_ok()
                    && fs::write(path.with_extension(turn.to_string()), &text).is_ok();
                unsafe { libc::_exit(i32::from(!good)) };
            }
            assert_eq!(exits_with(pid), 0);
            file.write_all(b"parent ").unwrap();
            let made = fs::read_to_string(path.with_extension(turn.to_string())).unwrap();
            assert_eq!(made, format!("child{turn} "));
        }
        let expected: String =
            (0..5).map(|turn| format!("child{turn} parent ")).collect::<Vec<_>>().concat();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("parent {expected}"));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn flags() {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(place().join("f"));
        let file = file.unwrap();
        file.write_all_at(b"first", 0).unwrap();
        let shown = || unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) } & libc::O_APPEND;
        for (flag, text) in [(libc::O_APPEND, &b"first2"[..]), (0, b"2irst2")] {
            let child = unsafe { libc::fork() };
            if child == 0 {
                let set = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flag) };
                unsafe { libc::_exit(set) };
            }
            let status = exits_with(child);
            assert_eq!((status, shown()), (0, flag));
            file.write_all_at(b"2", 0).unwrap();
            assert_eq!(fs::read(place().join("f")).unwrap(), text);
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn going() {
        let (name, other) = (place().join("d/name"), place().join("d/other"));
        let is_over = AtomicU32::new(0);
        let may_be_absent = |done: std::io::Result<()>| {
            assert!(
                done.as_ref().is_err_and(|why| why.kind() == ErrorKind::NotFound) || done.is_ok()
            );
            done.is_ok()
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    fs::write(&name, b"x").unwrap();
                    fs::remove_file(&name).unwrap();
                }
                is_over.store(1, Ordering::Relaxed);
            });
            while is_over.load(Ordering::Relaxed) == 0 {
                if may_be_absent(fs::hard_link(&name, &other)) {
                    fs::remove_file(&other).unwrap();
                }
                may_be_absent(fs::set_permissions(&name, fs::Permissions::from_mode(0o600)));
                may_be_absent(File::open(&name).map(drop));
            }
        });
    }

    #[test]
    #[ignore = "a task of another test"]
    fn programs() {
        let path = place().join("programs");
        let file = File::create(&path).unwrap();
        let run = |script: &str| {
            let child = Command::new("sh")
                .args(["-c", script])
                .current_dir(place())
                .stdout(file.try_clone().unwrap())
                .status()
                .unwrap();
            assert!(child.success(), "{script}");
        };
        run("echo one; echo two >&1");
        run("echo three; cat < programs > copy; wc -l < copy");
        run("exec 5>by-shell; echo five >&5; (echo sub >&5); cat by-shell");
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "one\ntwo\nthree\n3\nfive\nsub\n");
        assert_eq!(fs::read_to_string(place().join("copy")).unwrap(), "one\ntwo\nthree\n");
        // The command that is not there is said to be not there.
        let missing = Command::new("/no/such/program").status().unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn locks() {
        let path = place().join("locks");
        let file = File::create(&path).unwrap();
        file.lock().unwrap();
        let mut held = Command::new("flock");
        held.args(["-n", "-E", "9"]).arg(&path).arg("true");
        assert_eq!(held.status().unwrap().code(), Some(9));
        held.env_remove("LD_PRELOAD");
        assert_eq!(held.status().unwrap().code(), Some(9));
        file.unlock().unwrap();
        assert_eq!(held.status().unwrap().code(), Some(0));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn mapping() {
        let path = place().join("mapping");
        let bytes = pattern(9, 3 * 4096);
        fs::write(&path, &bytes).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let map = |access, flags| unsafe {
            let at =
                libc::mmap(std::ptr::null_mut(), bytes.len(), access, flags, file.as_raw_fd(), 0);
            assert_ne!(at, libc::MAP_FAILED);
            std::slice::from_raw_parts_mut(at.cast::<u8>(), bytes.len())
        };
        let private = map(libc::PROT_READ, libc::MAP_PRIVATE);
        assert_eq!(private, bytes);
        let shared = map(libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        shared[100] = 1;
        assert_eq!(
            unsafe { libc::msync(shared.as_mut_ptr().cast(), shared.len(), libc::MS_SYNC) },
            0
        );
        assert_eq!(fs::read(&path).unwrap()[100], 1);
        // Another description, and another process, of the file that is mapped.
        shared[101] = 2;
        let other = File::options().read(true).write(true).open(&path).unwrap();
        other.write_all_at(&[3], 200).unwrap();
        let mut read = [0; 200];
        other.read_exact_at(&mut read, 1).unwrap();
        assert_eq!((read[100], read[199], shared[200]), (2, 3, 3));
        let script = "printf x | dd of=mapping bs=1 seek=300 conv=notrunc status=none; \
                      head -c 102 mapping | tail -c 1 | od -An -tu1";
        let shell = Command::new("sh").args(["-c", script]).current_dir(place()).output();
        assert_eq!(String::from_utf8(shell.unwrap().stdout).unwrap().trim(), "2");
        assert_eq!(shared[300], b'x');
    }

    #[test]
    #[ignore = "a task of another test"]
    fn directories() {
        let dir = place().join("dir");
        fs::create_dir(&dir).unwrap();
        std::env::set_current_dir(&dir).unwrap();
        for index in 0..50 {
            fs::write(format!("file{index}"), index.to_string()).unwrap();
        }
        let mut names: Vec<String> = fs::read_dir(".")
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names.len(), 50);
        assert_eq!(fs::read_to_string("../dir/file7").unwrap(), "7");
        let open = File::open(".").unwrap();
        let fd = unsafe {
            libc::openat(open.as_raw_fd(), c"file9".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC)
        };
        assert!(fd >= 0);
        std::env::set_current_dir("..").unwrap();
        assert_eq!(fs::read_to_string("dir/file8").unwrap(), "8");
        // What is wrong with the new name is said before what is wrong with the old one.
        let onto_dot = fs::rename("dir/none", "dir/.").unwrap_err();
        assert_eq!(onto_dot.raw_os_error(), Some(libc::EBUSY));
        assert!(fs::exists("../dir/../dir").is_ok());
        fs::remove_dir_all("dir").unwrap();
        assert!(!fs::exists(&dir).unwrap());
    }
}
