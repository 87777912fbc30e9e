//! Promise: a descriptor leads to the file that it was made for, whatever other threads close and open
//! meanwhile; what counts from its position or from the end of its file does so, no matter who serves it;
//! and what can be refused or moved without the kernel is.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
#![allow(clippy::indexing_slicing, reason = "what is missing is a failure")]

#[macro_use]
mod harness;

use std::io::{Seek, SeekFrom};
use std::sync::atomic::Ordering;

use harness::{
    direct, is_whole, mounted, runs_with_the_daemon, runs_without_the_daemon, succeeds, task,
};

promises! {
    /// The number was looked up, closed and opened again by another thread, and only then duplicated: the
    /// duplicate led to a description that had ended, and to the next one that was put there.
    duplicates_lead_where_their_originals_did: runs_with_the_daemon duplicates;
    /// The kernel counted from a position that it did not know.
    locks_count_from_the_position_and_the_end: runs_with_the_daemon locks;
    /// A clone request, which no file of a mount can fulfil, had the kernel open the file, and so had
    /// each copy by the kernel.
    copies_are_made_and_clones_refused_without_the_daemon: runs_without_the_daemon copies;
    /// Placeholders are duplicates of one descriptor, and all were said to be one file.
    questions_about_descriptors_are_answered: runs_with_the_daemon queries;
    /// Where paths had come to mean something else nothing could be handed over any more: a directory was no
    /// place to start from, a lock was refused, and a child had nothing of what its parent had open.
    what_is_open_outlasts_its_path: runs_with_the_daemon moves;
    /// A program that lets itself open nothing more could lock nothing that was open, and its children had
    /// none of it.
    what_is_open_outlasts_a_limit: runs_with_the_daemon limited;
    /// An opening here broke no lease.
    openings_break_leases: runs_with_the_daemon leases;
    /// A number was one file's in all threads: what one wrote went to the file that another one had opened.
    threads_may_have_descriptors_of_their_own: runs_with_the_daemon own_table;
    the_same_by_close_range: runs_with_the_daemon own_table_by_range;
    /// The flag was kept before the kernel had refused it, and shown from then on.
    who_may_not_have_a_flag_has_it_not: runs_with_the_daemon flags_of_owners;
    /// The words of the lowest numbers lie apart from those of all others, which have memory when one is set.
    numbers_are_alike: runs_without_the_daemon high_numbers;
    /// What a program takes from itself by pidfd was a placeholder, which can do nothing.
    one_taken_from_the_process_itself: runs_with_the_daemon takes;
    /// A child that shares the working directory moved its parent, whose names were looked for where it had been.
    a_child_may_move_its_parent: runs_with_the_daemon moves_parent;
    /// Positions whose sum with the length is no position were too far, or wrong, instead of the other.
    farthest_positions: runs_without_the_daemon farthest;
}

/// The kernel drops what it is told of a file's length when it has been told something else in the
/// meantime: a position from the end lay before records that had been written, which were overwritten.
#[test]
fn the_end_of_a_file_is_where_it_is() {
    let Some((scratch, slot)) = mounted("the_end_of_a_file") else { return };
    succeeds(&task(&scratch, "ends").output().unwrap());
    is_whole(&scratch, &slot);
}

/// One program writes directly, and another one asks by the mount where the file ends: never before what was
/// written when it asked. (Two that ask at the same moment, one of them by `stat`, the kernel may mislead.)
#[test]
fn the_end_by_the_mount_is_not_before_what_was_written() {
    let Some((scratch, slot)) = mounted("the_end_by_the_mount") else { return };
    let shared = tempfile::NamedTempFile::new().unwrap();
    shared.as_file().set_len(told::BYTES).unwrap();
    let [written, rounds] = told::map(shared.as_file());
    let early = std::fs::File::create(scratch.in_dir("told")).unwrap();
    let mut writer = task(&scratch, "appends");
    let mut writer = writer.env(told::SHARED, shared.path()).spawn().unwrap();
    let (mut behind, mut amid) = (0, 0);
    while writer.try_wait().unwrap().is_none() {
        let late = std::fs::File::open(scratch.in_dir("told")).unwrap();
        for mut file in [&early, &late] {
            let least = written.load(Ordering::Acquire);
            let end = file.seek(SeekFrom::End(0)).unwrap();
            behind += u32::from(end < least);
            amid += u32::from(least > 0 && least < told::ALL);
        }
        rounds.fetch_add(1, Ordering::Release);
    }
    assert!(writer.wait().unwrap().success());
    assert_eq!(behind, 0, "of {amid} amid the writes");
    assert!(amid >= 100, "{amid}");
    drop(early);
    is_whole(&scratch, &slot);
}

/// What a writer tells who looks.
mod told {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::sync::atomic::AtomicU64;

    pub(crate) const SHARED: &str = "NOVALE_TEST_SHARED";
    /// The writer waits to be looked at after so many.
    pub(crate) const RECORDS: u64 = 20;
    pub(crate) const RECORD: [u8; 100] = [7; 100];
    pub(crate) const ALL: u64 = 100 * RECORDS * RECORD.len() as u64;
    pub(crate) const BYTES: u64 = 16;

    /// Bytes that were written, and how often somebody has looked.
    pub(crate) fn map(file: &File) -> &'static [AtomicU64; 2] {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (none, fd) = (std::ptr::null_mut(), file.as_raw_fd());
        let at = unsafe { libc::mmap(none, 16, access, libc::MAP_SHARED, fd, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        unsafe { &*at.cast() }
    }
}

/// This library's own descriptors were among the last that a program may have.
#[test]
fn all_numbers_below_the_limit_are_the_programs() {
    let Some((scratch, slot)) = mounted("all_numbers_below_the_limit") else { return };
    for limit in [40, 300] {
        let mut shell = direct(&scratch, std::path::Path::new("sh"));
        let itself = std::env::current_exe().unwrap();
        let script = format!(
            "ulimit -Sn {limit}; exec {} --exact tasks::numbers --ignored --nocapture",
            itself.display()
        );
        shell.args(["-c", &script]).env("NOVALE_TEST_LIMIT", limit.to_string());
        succeeds(&shell.output().unwrap());
    }
    is_whole(&scratch, &slot);
}

/// A thread that closes numbers which it has not opened closed this library's, on which it joined a pool
/// and had files handed over: the program ended, or its file was nobody's.
#[test]
fn who_closes_all_numbers_closes_none_of_this_librarys() {
    let Some((scratch, slot)) = mounted("who_closes_all_numbers") else { return };
    succeeds(&task(&scratch, "closers").output().unwrap());
    is_whole(&scratch, &slot);
}

mod tasks {
    use std::ffi::CString;
    use std::fs::{File, OpenOptions};
    use std::io::{Read, Seek, SeekFrom, Write};
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{FileExt, PermissionsExt};
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
    use std::time::{Duration, Instant};

    use super::harness::{PLACE, exits_with};
    use super::told;

    const FICLONE: u64 = 0x4004_9409;

    fn place() -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap())
    }

    fn name(path: &str) -> CString {
        CString::new(place().join(path).as_os_str().as_bytes()).unwrap()
    }

    fn open_new(path: &str) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).open(place().join(path)).unwrap()
    }

    fn failed() -> i32 {
        std::io::Error::last_os_error().raw_os_error().unwrap()
    }

    fn inode(fd: i32) -> Option<u64> {
        let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
        let got = unsafe { libc::fstat(fd, found.as_mut_ptr()) };
        (got == 0).then(|| unsafe { found.assume_init() }.st_ino)
    }

    /// Uses what is open in every way for which the kernel must have it.
    fn use_what_is_open(file: &File, folder: &File) {
        let fd = file.as_raw_fd();
        assert_eq!(unsafe { libc::flock(fd, libc::LOCK_EX) }, 0);
        let (folder, name) = (folder.as_raw_fd(), c"file".as_ptr());
        let again = unsafe { libc::openat(folder, name, libc::O_RDONLY) };
        assert!(again >= 0, "{}", failed());
        assert_eq!(inode(again), inode(fd));
        let child = unsafe { libc::fork() };
        if child == 0 {
            let has_it = file.read_at(&mut [0; 9], 0).is_ok_and(|len| len == 4)
                && unsafe { libc::faccessat(folder, name, libc::R_OK, 0) } == 0;
            unsafe { libc::_exit(i32::from(!has_it)) };
        }
        let status = exits_with(child);
        assert_eq!(status, 0, "what a child has of it");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn moves() {
        open_new("file").write_all(b"text").unwrap();
        let target = name("");
        let others: [fn(&CString) -> i32; 4] = [
            |_| unsafe { libc::chroot(c"/proc".as_ptr()) },
            |_| unsafe { libc::unshare(libc::CLONE_NEWNS) },
            |target| unsafe {
                let (none, flags) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
                libc::unshare(libc::CLONE_NEWNS)
                    | libc::mount(none, c"/".as_ptr(), none, flags, none.cast())
                    | libc::mount(none, target.as_ptr(), c"tmpfs".as_ptr(), 0, none.cast())
            },
            |target| unsafe {
                let (none, flags) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
                libc::unshare(libc::CLONE_NEWNS)
                    | libc::mount(none, c"/".as_ptr(), none, flags, none.cast())
                    | libc::umount2(target.as_ptr(), libc::MNT_DETACH)
            },
        ];
        for (index, other) in others.iter().enumerate() {
            let child = unsafe { libc::fork() };
            if child == 0 {
                let ran = std::panic::catch_unwind(|| {
                    let file = File::open(place().join("file")).unwrap();
                    let folder = File::open(place()).unwrap();
                    assert_eq!(other(&target), 0, "{}", failed());
                    use_what_is_open(&file, &folder);
                });
                unsafe { libc::_exit(i32::from(ran.is_err())) };
            }
            let status = exits_with(child);
            assert_eq!(status, 0, "way {index}");
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn limited() {
        for most in [0, 4] {
            let child = unsafe { libc::fork() };
            if child == 0 {
                let ran = std::panic::catch_unwind(|| {
                    let mut file = open_new("file");
                    file.write_all(b"text").unwrap();
                    let fd = file.as_raw_fd();
                    assert!(fd >= 3);
                    let limit = libc::rlimit { rlim_cur: most, rlim_max: 1000 };
                    assert_eq!(
                        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) },
                        0
                    );
                    let opened = unsafe { libc::open(name("file").as_ptr(), libc::O_RDONLY) };
                    assert!(opened < 0 && failed() == libc::EMFILE, "{opened}");
                    assert_eq!(unsafe { libc::flock(fd, libc::LOCK_EX) }, 0);
                    let child = unsafe { libc::fork() };
                    if child == 0 {
                        let read = file.read_at(&mut [0; 9], 0);
                        unsafe { libc::_exit(i32::from(!read.is_ok_and(|len| len == 4))) };
                    }
                    let status = exits_with(child);
                    assert_eq!(status, 0, "what a child has of it");
                });
                unsafe { libc::_exit(i32::from(ran.is_err())) };
            }
            let status = exits_with(child);
            assert_eq!(status, 0, "a limit of {most}");
        }
    }

    /// Opens and locks a file, which the kernel opens for that, and writes to it, while another thread closes
    /// what is not its own; says whether all of it led to the file.
    fn used_beside_closing(path: &CString, ranges: bool) -> bool {
        static OVER: AtomicBool = AtomicBool::new(false);
        let close_all = |from: i32| {
            while !OVER.load(Ordering::Relaxed) {
                if ranges {
                    unsafe { libc::syscall(libc::SYS_close_range, from, u32::MAX, 0) };
                }
                // The library's own are above, or the last ones below a limit that is far away.
                for number in from..5000 {
                    unsafe { libc::close(number) };
                }
            }
        };
        let lowest = unsafe { libc::dup(0) };
        let once = |_| {
            unsafe { libc::close(lowest) };
            let file = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o644) };
            let locked = unsafe { libc::flock(file, libc::LOCK_EX) };
            let written = unsafe { libc::pwrite(file, path.as_ptr().cast(), 6, 0) };
            let done = file == lowest && locked == 0 && written == 6;
            if !done {
                println!("{file} for {lowest}, {locked}, {written}");
            }
            done
        };
        std::thread::scope(|scope| {
            scope.spawn(|| close_all(lowest + 1));
            let all = (0..20).all(once);
            OVER.store(true, Ordering::Relaxed);
            all
        })
    }

    /// Each child joins the pool anew.
    #[test]
    #[ignore = "a task of another test"]
    fn closers() {
        for child in 0..60 {
            let pid = unsafe { libc::fork() };
            assert!(pid >= 0);
            if pid == 0 {
                let path = name(&format!("closed {child}"));
                let done = used_beside_closing(&path, child % 2 == 0);
                unsafe { libc::_exit(i32::from(!done)) };
            }
            let status = exits_with(pid);
            assert_eq!(status, 0, "child {child}");
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn duplicates() {
        static OVER: AtomicBool = AtomicBool::new(false);
        static CURRENT: AtomicI32 = AtomicI32::new(-1);
        let files: Vec<CString> = (0..4).map(|file| name(&format!("dup {file}"))).collect();
        let open = |file: &CString| unsafe {
            libc::open(file.as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o644)
        };
        CURRENT.store(open(&files[0]), Ordering::Relaxed);
        let known: Vec<u64> = files.iter().map(|file| inode(open(file)).unwrap()).collect();
        std::thread::scope(|scope| {
            for file in &files[1..] {
                scope.spawn(move || {
                    while !OVER.load(Ordering::Relaxed) {
                        unsafe { libc::close(open(file)) };
                    }
                });
            }
            for how in 0..3 {
                let known = &known;
                scope.spawn(move || {
                    while !OVER.load(Ordering::Relaxed) {
                        duplicate(CURRENT.load(Ordering::Relaxed), how, known);
                    }
                });
            }
            scope.spawn(|| {
                while !OVER.load(Ordering::Relaxed) {
                    unsafe { libc::close(CURRENT.load(Ordering::Relaxed)) };
                    CURRENT.store(open(&files[0]), Ordering::Relaxed);
                    std::hint::spin_loop();
                }
            });
            std::thread::sleep(Duration::from_secs(4));
            OVER.store(true, Ordering::Relaxed);
        });
    }

    /// Duplicates a descriptor that another thread may close meanwhile: what is got leads to one inode.
    fn duplicate(from: i32, how: u32, known: &[u64]) {
        let made = match how {
            0 => unsafe { libc::dup(from) },
            1 => unsafe { libc::fcntl(from, libc::F_DUPFD, 3) },
            _ => unsafe { libc::dup2(from, 200) },
        };
        if made < 0 {
            return;
        }
        let first = inode(made);
        let good = first.is_some_and(|first| known.contains(&first));
        assert!(good, "by way {how} inode {first:?} of {known:?}");
        for _ in 0..8 {
            std::thread::yield_now();
            assert_eq!(inode(made), first, "by way {how}");
        }
        unsafe { libc::close(made) };
    }

    /// A constant as `struct flock` has it.
    fn short(constant: i32) -> i16 {
        i16::try_from(constant).unwrap()
    }

    /// What another descriptor of the file finds locked.
    fn locked(file: &File) -> Option<(i64, i64)> {
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = short(libc::F_WRLCK);
        let got = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
        assert_eq!(got, 0);
        (lock.l_type != short(libc::F_UNLCK)).then_some((lock.l_start, lock.l_len))
    }

    #[test]
    #[ignore = "a task of another test"]
    fn locks() {
        let mut file = open_new("locks");
        let other = File::open(place().join("locks")).unwrap();
        file.write_all(&[1; 100]).unwrap();
        let fd = file.as_raw_fd();
        let mut at = |position: u64, whence: i32, start: i64, command: i32| {
            file.seek(SeekFrom::Start(position)).unwrap();
            let mut lock: libc::flock = unsafe { std::mem::zeroed() };
            (lock.l_type, lock.l_whence) = (short(libc::F_WRLCK), short(whence));
            (lock.l_start, lock.l_len) = (start, 5);
            assert_eq!(unsafe { libc::fcntl(fd, command, &raw const lock) }, 0);
            let found = locked(&other);
            lock.l_type = short(libc::F_UNLCK);
            assert_eq!(unsafe { libc::fcntl(fd, command, &raw const lock) }, 0);
            assert_eq!(locked(&other), None);
            found
        };
        for command in [libc::F_SETLK, libc::F_SETLKW, libc::F_OFD_SETLK, libc::F_OFD_SETLKW] {
            assert_eq!(at(50, libc::SEEK_CUR, 0, command), Some((50, 5)));
            assert_eq!(at(70, libc::SEEK_CUR, -10, command), Some((60, 5)));
            assert_eq!(at(7, libc::SEEK_END, -10, command), Some((90, 5)));
            assert_eq!(at(7, libc::SEEK_SET, 3, command), Some((3, 5)));
        }
        // The file grows where the kernel does not see it.
        file.write_all_at(&[2; 100], 100).unwrap();
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        (lock.l_type, lock.l_whence, lock.l_len) = (short(libc::F_WRLCK), short(libc::SEEK_END), 5);
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETLK, &raw const lock) }, 0);
        file.seek(SeekFrom::Start(20)).unwrap();
        assert_eq!(unsafe { libc::lockf(fd, libc::F_TLOCK, 10) }, 0);
        assert_eq!(locked(&other), Some((20, 10)));
        assert_eq!(unsafe { libc::lockf(fd, libc::F_ULOCK, 10) }, 0);
        assert_eq!(locked(&other), Some((200, 5)));
        // The position is where it was.
        assert_eq!(file.stream_position().unwrap(), 20);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn ends() {
        static OVER: AtomicBool = AtomicBool::new(false);
        let file = open_new("ends");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let path = place().join("ends");
                let mut size = 0;
                while !OVER.load(Ordering::Relaxed) {
                    let open = || OpenOptions::new().read(true).write(true).open(&path).unwrap();
                    let mut others: Vec<File> = (0..12).map(|_| open()).collect();
                    for turn in 0..400 {
                        file.write_all_at(&[1; 64], size).unwrap();
                        size += 64;
                        let other = others.get_mut(turn % 12).unwrap();
                        assert_eq!(other.seek(SeekFrom::End(0)).unwrap(), size);
                    }
                    if size > 10_000_000 {
                        file.set_len(0).unwrap();
                        size = 0;
                    }
                }
            });
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(5) {
                let pid = unsafe { libc::fork() };
                if pid == 0 {
                    unsafe { libc::_exit(0) };
                }
                while unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) } != pid {}
            }
            OVER.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    #[ignore = "a task of another test"]
    fn appends() {
        let shared = std::env::var_os(told::SHARED).unwrap();
        let shared = OpenOptions::new().read(true).write(true).open(shared).unwrap();
        let [written, rounds] = told::map(&shared);
        let file = OpenOptions::new().write(true).open(place().join("told")).unwrap();
        let (mut size, record) = (0, told::RECORD.len() as u64);
        while size < told::ALL {
            file.write_all_at(&told::RECORD, size).unwrap();
            size += record;
            let before = rounds.load(Ordering::Acquire);
            written.store(size, Ordering::Release);
            while size.is_multiple_of(told::RECORDS * record)
                && rounds.load(Ordering::Acquire) == before
            {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn high_numbers() {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
        limit.rlim_cur = limit.rlim_max.min(20_000);
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
        let numbers = [4351_i32, 4352, 9000, 19_999].into_iter();
        let numbers =
            || numbers.clone().filter(|number| u64::from(number.cast_unsigned()) < limit.rlim_cur);
        let (file, other) = (open_new("high"), File::open("/dev/null").unwrap());
        let write = |fd: i32, at| unsafe { libc::pwrite(fd, c"high".as_ptr().cast(), 4, at) };
        // Before any of them is set; and a file that is none of a mount's.
        for fd in numbers() {
            assert_eq!((write(fd, 0), failed()), (-1, libc::EBADF));
            assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), fd) }, fd);
            assert_eq!((write(fd, 0), failed()), (-1, libc::EBADF), "open for reading");
        }
        for (fd, at) in numbers().zip([0, 4, 8, 12]) {
            assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), fd) }, fd);
            assert_eq!(write(fd, at), 4, "{fd}");
            assert_eq!(inode(fd), inode(file.as_raw_fd()));
        }
        let above = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD, 4352) };
        assert_eq!((above, write(above, 0)), (4353, 4));
        for fd in numbers().chain([above]) {
            assert_eq!(unsafe { libc::close(fd) }, 0);
            assert_eq!((write(fd, 0), failed()), (-1, libc::EBADF));
        }
        let written = numbers().count() * 4;
        assert_eq!(std::fs::read(place().join("high")).unwrap(), b"highhighhighhigh"[..written]);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn copies() {
        let bytes: Vec<u8> = (0..700_000_u32).map(|at| (at % 251) as u8).collect();
        let mut from = open_new("from");
        from.write_all(&bytes).unwrap();
        let (outside, mut to) = (tempfile::tempfile().unwrap(), open_new("to"));
        outside.write_all_at(&bytes, 0).unwrap();
        // No file of the mount shares data; one of another file system can't.
        for (source, error) in [(&from, libc::EOPNOTSUPP), (&outside, libc::EXDEV)] {
            let done = unsafe { libc::ioctl(to.as_raw_fd(), FICLONE, source.as_raw_fd()) };
            assert_eq!((done, failed()), (-1, error));
        }
        let done = unsafe { libc::ioctl(to.as_raw_fd(), FICLONE, -1) };
        assert_eq!((done, failed()), (-1, libc::EBADF));
        let mut rest = 0_i32;
        from.seek(SeekFrom::Start(699_990)).unwrap();
        assert_eq!(unsafe { libc::ioctl(from.as_raw_fd(), libc::FIONREAD, &raw mut rest) }, 0);
        assert_eq!(rest, 10);
        // A copy at given places leaves the positions, one at them moves both.
        let (mut one, mut other) = (100_i64, 5_i64);
        let (source, target) = (from.as_raw_fd(), to.as_raw_fd());
        let copied =
            unsafe { libc::copy_file_range(source, &raw mut one, target, &raw mut other, 1000, 0) };
        assert_eq!((copied, one, other), (1000, 1100, 1005));
        assert_eq!((from.stream_position().unwrap(), to.stream_position().unwrap()), (699_990, 0));
        let none = std::ptr::null_mut();
        let copied = unsafe { libc::copy_file_range(source, none, target, none, 1000, 0) };
        assert_eq!(copied, 10);
        assert_eq!((from.stream_position().unwrap(), to.stream_position().unwrap()), (700_000, 10));
        let mut found = [0; 1005];
        to.read_exact_at(&mut found, 0).unwrap();
        assert_eq!((&found[..10], &found[10..]), (&bytes[699_990..], &bytes[105..1100]));
        let copied =
            unsafe { libc::copy_file_range(outside.as_raw_fd(), none, target, none, 1000, 0) };
        assert_eq!((copied, failed()), (-1, libc::EXDEV));
        // From outside at a given place, as languages copy, and out again.
        to.set_len(0).unwrap();
        to.rewind().unwrap();
        let mut start = 1000_i64;
        let sent = unsafe { libc::sendfile(target, outside.as_raw_fd(), &raw mut start, 1 << 20) };
        assert_eq!((sent, start), (699_000, 700_000));
        let mut all = Vec::new();
        to.rewind().unwrap();
        to.read_to_end(&mut all).unwrap();
        assert!(all == bytes[1000..]);
        let mut back = tempfile::tempfile().unwrap();
        to.rewind().unwrap();
        let sent = unsafe { libc::sendfile(back.as_raw_fd(), target, none, 1 << 20) };
        assert_eq!((sent, to.stream_position().unwrap()), (699_000, 699_000));
        all.clear();
        back.rewind().unwrap();
        back.read_to_end(&mut all).unwrap();
        assert!(all == bytes[1000..]);
        let appends = OpenOptions::new().append(true).open(place().join("to")).unwrap();
        let sent = unsafe { libc::sendfile(appends.as_raw_fd(), source, none, 1) };
        assert_eq!((sent, failed()), (-1, libc::EINVAL));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn queries() {
        const DUPFD_QUERY: i32 = 1027;
        const CREATED_QUERY: i32 = 1028;
        let made = open_new("queries");
        let again = open_new("queries");
        let ask = |command, file: &File, argument: i32| unsafe {
            libc::fcntl(file.as_raw_fd(), command, argument)
        };
        // Kernels of before 6.10 and 6.12 don't know them.
        if ask(DUPFD_QUERY, &made, made.as_raw_fd()) >= 0 {
            let duplicate = made.try_clone().unwrap();
            assert_eq!(ask(DUPFD_QUERY, &made, duplicate.as_raw_fd()), 1);
            assert_eq!(ask(DUPFD_QUERY, &made, again.as_raw_fd()), 0);
            assert_eq!(ask(DUPFD_QUERY, &made, 0), 0);
            assert_eq!((ask(DUPFD_QUERY, &made, 199), failed()), (-1, libc::EBADF));
        }
        if ask(CREATED_QUERY, &made, 0) >= 0 {
            assert_eq!((ask(CREATED_QUERY, &made, 0), ask(CREATED_QUERY, &again, 0)), (1, 0));
        }
        let pid = i64::from(unsafe { libc::getpid() });
        let compared = |one: &File, other: &File| unsafe {
            libc::syscall(libc::SYS_kcmp, pid, pid, 0, one.as_raw_fd(), other.as_raw_fd())
        };
        if compared(&made, &made) == 0 {
            assert_ne!(compared(&made, &again), 0);
            assert_eq!(compared(&made, &made.try_clone().unwrap()), 0);
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn takes() {
        let mut file = open_new("takes");
        file.write_all(b"hello").unwrap();
        let pid = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
        let taken = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pid, file.as_raw_fd(), 0) };
        if taken < 0 {
            println!("no descriptor can be taken on this kernel: {}", failed());
            return;
        }
        let mut taken = unsafe { File::from_raw_fd(i32::try_from(taken).unwrap()) };
        taken.write_all(b"!").unwrap();
        assert_eq!(file.stream_position().unwrap(), 6, "it is one position");
        assert_eq!(std::fs::read(place().join("takes")).unwrap(), b"hello!");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn moves_parent() {
        std::fs::create_dir_all(place().join("moved/below")).unwrap();
        std::env::set_current_dir(place().join("moved")).unwrap();
        std::fs::write("before", b"b").unwrap();
        let shared = libc::c_long::from(libc::CLONE_FS | libc::SIGCHLD);
        let pid = unsafe { libc::syscall(libc::SYS_clone, shared, 0, 0, 0, 0) };
        if pid == 0 {
            let moved = unsafe { libc::chdir(c"below".as_ptr()) };
            unsafe { libc::umask(0o777) };
            unsafe { libc::_exit(moved) };
        }
        let mut status = 0;
        let pid = i32::try_from(pid).unwrap();
        while unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid {}
        assert_eq!(status, 0);
        drop(File::create("after").unwrap());
        let found = std::fs::metadata(place().join("moved/below/after")).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn farthest() {
        let mut file = open_new("farthest");
        file.seek(SeekFrom::Start(i64::MAX as u64)).unwrap();
        assert_eq!(file.write(b"x").unwrap_err().raw_os_error(), Some(libc::EINVAL));
        let (fd, mut last, mut first) = (file.as_raw_fd(), -1_i64, 0_i64);
        let mut copy =
            |len| unsafe { libc::copy_file_range(fd, &raw mut last, fd, &raw mut first, len, 0) };
        assert_eq!((copy(1), failed()), (-1, libc::EOVERFLOW));
    }

    static BROKEN: AtomicBool = AtomicBool::new(false);

    extern "C" fn breaks(_: i32) {
        BROKEN.store(true, Ordering::Relaxed);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn leases() {
        let (file, path) = (open_new("leases"), name("leases"));
        let lease = |kind: i32| unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) };
        unsafe { libc::signal(libc::SIGIO, breaks as *const () as libc::sighandler_t) };
        let other = File::open(place().join("leases")).unwrap();
        assert_eq!((lease(libc::F_WRLCK), failed()), (-1, libc::EAGAIN));
        drop(other);
        if lease(libc::F_WRLCK) != 0 {
            println!("there are no leases on this kernel: {}", failed());
            return;
        }
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let flags = libc::O_RDONLY | libc::O_NONBLOCK;
            let opened = unsafe { libc::open(path.as_ptr(), flags) };
            unsafe { libc::_exit(if opened < 0 { *libc::__errno_location() } else { 0 }) };
        }
        let mut status = 0;
        while unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid {}
        assert_eq!(libc::WEXITSTATUS(status), libc::EWOULDBLOCK);
        assert!(BROKEN.load(Ordering::Relaxed));
        assert_eq!(lease(libc::F_UNLCK), 0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn numbers() {
        let limit: i32 = std::env::var("NOVALE_TEST_LIMIT").unwrap().parse().unwrap();
        let file = open_new("numbers");
        let first = unsafe { libc::dup(file.as_raw_fd()) };
        let mut last = first;
        loop {
            let next = unsafe { libc::dup(file.as_raw_fd()) };
            if next < 0 {
                break;
            }
            last = next;
        }
        assert_eq!((failed(), last), (libc::EMFILE, limit - 1));
        for fd in first..limit {
            // One of the library's own is none that the program can close.
            assert_eq!(unsafe { libc::close(fd) }, 0, "{fd}");
        }
    }

    /// Writes to a number in one thread while it is another file's in a thread that has its own numbers.
    fn with_own_table(leave: fn(i32)) {
        let mine = open_new("mine");
        (&mine).write_all(b"begin ").unwrap();
        let fd = mine.as_raw_fd();
        let turn = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                leave(fd);
                let others = open_new("others");
                assert_eq!(others.as_raw_fd(), fd);
                (&others).write_all(b"thread ").unwrap();
                turn.wait();
                turn.wait();
                (&others).write_all(b"again").unwrap();
            });
            turn.wait();
            (&mine).write_all(b"main ").unwrap();
            turn.wait();
        });
        (&mine).write_all(b"end").unwrap();
        let read = |name| std::fs::read(place().join(name)).unwrap();
        assert_eq!(
            (read("mine"), read("others")),
            (b"begin main end".into(), b"thread again".into())
        );
    }

    #[test]
    #[ignore = "a task of another test"]
    fn own_table() {
        with_own_table(|fd| {
            assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
            assert_eq!(unsafe { libc::close(fd) }, 0);
        });
    }

    #[test]
    #[ignore = "a task of another test"]
    fn own_table_by_range() {
        with_own_table(|fd| {
            let (fd, flags) = (fd.cast_unsigned(), libc::CLOSE_RANGE_UNSHARE);
            assert_eq!(unsafe { libc::syscall(libc::SYS_close_range, fd, fd, flags) }, 0);
        });
    }

    #[test]
    #[ignore = "a task of another test"]
    fn flags_of_owners() {
        let files = ["of-kernel", "served"].map(open_new);
        // A lock is the kernel's, and so is the file from then on.
        assert_eq!(unsafe { libc::flock(files[0].as_raw_fd(), libc::LOCK_SH) }, 0);
        let control = tempfile::tempfile().unwrap();
        for (file, on) in files.iter().chain([&control]).flat_map(|file| [(file, 1), (file, 0)]) {
            let fd = file.as_raw_fd();
            assert_eq!(unsafe { libc::ioctl(fd, libc::FIONBIO, &raw const on) }, 0);
            let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
            assert_eq!(flags & libc::O_NONBLOCK != 0, on == 1);
        }
        assert_eq!(unsafe { libc::seteuid(1) }, 0);
        for file in files.iter().chain([&control]) {
            let fd = file.as_raw_fd();
            let asked = libc::O_NOATIME | libc::O_APPEND;
            assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFL, asked) }, -1);
            let error = std::io::Error::last_os_error().raw_os_error();
            assert_eq!(error, Some(libc::EPERM));
            let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
            assert_eq!(flags & asked, 0);
        }
        assert_eq!(unsafe { libc::seteuid(0) }, 0);
        for file in files.iter().chain([&control]) {
            let fd = file.as_raw_fd();
            assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NOATIME) }, 0);
            assert_ne!(unsafe { libc::fcntl(fd, libc::F_GETFL) } & libc::O_NOATIME, 0);
        }
    }
}
