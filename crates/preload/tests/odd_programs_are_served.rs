//! Promise: what few programs do has the results that it has elsewhere: flags of reads and writes that are new,
//! a first thread that ends before the others, a process beside its parent in one memory or with its descriptors,
//! handlers that look at the stack.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]
#![allow(
    deprecated,
    reason = "what vfork does is tried here, by a child that only writes and ends"
)]

#[macro_use]
mod harness;

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::path::PathBuf;

use harness::{PLACE, runs_with_the_daemon};

promises! {
    /// A flag that the library does not know left the position to the kernel, which knew of none: a read from the
    /// position began at 0, and a write there went over the file's first bytes.
    a_read_with_a_new_flag_begins_at_the_position: runs_with_the_daemon new_flags;
    /// `RWF_NOAPPEND` of an `O_APPEND` file was left to the mount, which is not told of it, and appended.
    a_write_that_is_not_to_append_does_not: runs_with_the_daemon not_appended;
    /// A child of `vfork` appends by the kernel, which moved the position that both have to where it knew the end
    /// to be.
    a_child_that_is_waited_for_appends: runs_with_the_daemon appended_by_child;
    /// A directory that `/proc/self/fd` leads to was the kernel's, which found the placeholder: EXDEV.
    a_directory_gets_no_second_name: runs_with_the_daemon linked_directory;
    /// A read of a file that is open with `O_NOATIME` was an access.
    a_read_that_is_no_access_is_not_recorded: runs_with_the_daemon no_access;
    /// A process that shared the descriptors closed one, and what got its number led to the file still: its bytes
    /// were the file's.
    a_process_may_share_the_descriptors: runs_with_the_daemon closed_by_a_process;
    /// A handler that is used once took the flags and the mask that it was set with along.
    a_handler_that_is_used_once_leaves_its_flags: runs_with_the_daemon used_once;
    /// Of a process whose first thread has ended `/proc/self` shows nothing: its children and what it started did
    /// not know their namespaces, and were left to the mount, or ended under `--strict`.
    a_process_goes_on_without_its_first_thread: runs_with_the_daemon without_first;
    /// All calls of a thread that had made a process beside it were the kernel's. The handlers that it set were
    /// not known, and ran in other threads in the middle of calls.
    handlers_set_beside_another_process_run_outside_of_calls: runs_with_the_daemon set_beside;
    /// A fault of a program that ignores such signals came again for ever; so did one of the library's own, where the
    /// program's stack for handlers has no room for more than the kernel needs.
    faults_end_who_has_nothing_for_them: runs_with_the_daemon faults;
    /// What unwinds from a handler, as `pthread_cancel` does, found no way out of the library's own code: no
    /// destructor ran, and locks were left as they were.
    a_handler_sees_who_waits_in_the_kernel: runs_with_the_daemon seen_waiting;
    a_handler_sees_who_made_a_call: runs_with_the_daemon seen_calling;
    /// Of signals that come at once the first to be handled lies on another one whose handler has not begun: what
    /// unwound from it stopped there, and a thread that was cancelled then ended the program.
    a_thread_is_cancelled_beside_another_signal: runs_with_the_daemon cancelled_with_another;
    /// Two threads that got a signal at once both ran the handler that is used once, or one of them lost its signal.
    a_handler_that_is_used_once_runs_once: runs_with_the_daemon once_by_two;
    /// The place that a handler sees had been overwritten: a program that goes on there later, as schedulers of
    /// threads do, was ended, or had another result of its call.
    a_program_goes_on_where_a_handler_saw_it: runs_with_the_daemon goes_on_as_seen;
    a_program_goes_on_where_it_was_seen_waiting: runs_with_the_daemon goes_on_as_seen_waiting;
    /// Threads that were made with the block of the one that made them had one stack in the library.
    threads_may_have_one_block: runs_with_the_daemon of_one_block;
    /// In a block that libc has not made there is no room for the library's: it stored to what was there.
    threads_may_have_blocks_that_are_not_libcs: runs_with_the_daemon of_own_blocks;
    /// So did a thread that took such a block later.
    a_thread_may_take_another_block: runs_with_the_daemon takes_a_block;
}

mod tasks {
    use super::harness::exits_with;
    use super::*;

    use std::backtrace::Backtrace;
    use std::fs::{File, OpenOptions};
    use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
    use std::os::unix::thread::JoinHandleExt;
    use std::process::Command;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

    /// Not at the end, whatever the file was opened with (Linux 6.9).
    const RWF_NOAPPEND: i32 = 0x20;
    /// Without SIGPIPE (Linux 6.18), or unknown.
    const RWF_NOSIGNAL: i32 = 0x100;

    fn place() -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap())
    }

    fn opened(name: &str, append: bool) -> File {
        let mut how = OpenOptions::new();
        how.read(true).create(true).append(append).write(!append);
        how.open(place().join(name)).unwrap()
    }

    fn write(file: &File, bytes: &[u8], offset: i64, flags: i32) -> isize {
        let piece =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        unsafe { libc::pwritev2(file.as_raw_fd(), &raw const piece, 1, offset, flags) }
    }

    fn refused() -> bool {
        std::io::Error::last_os_error().raw_os_error() == Some(libc::EOPNOTSUPP)
    }

    #[test]
    #[ignore = "a task of another test"]
    fn new_flags() {
        let mut file = opened("flags", false);
        file.write_all(b"0123456789").unwrap();
        file.seek(SeekFrom::Start(4)).unwrap();
        let mut byte = 0_u8;
        let piece = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        // Flags of writes are nothing to a read; which others there are is the kernel's to say.
        for flag in [libc::RWF_APPEND, RWF_NOSIGNAL, RWF_NOAPPEND] {
            let before = file.stream_position().unwrap();
            let got = unsafe { libc::preadv2(file.as_raw_fd(), &raw const piece, 1, -1, flag) };
            assert!(got == 1 || got == -1 && refused(), "{flag:#x}: {got}");
            let read = u64::from(got == 1);
            assert_eq!(file.stream_position().unwrap(), before + read);
            assert!(got != 1 || u64::from(byte - b'0') == before, "{flag:#x}");
        }
        file.seek(SeekFrom::Start(2)).unwrap();
        let written = write(&file, b"x", -1, RWF_NOSIGNAL);
        assert!(written == 1 || written == -1 && refused());
        let expected: &[u8] = if written == 1 { b"01x3456789" } else { b"0123456789" };
        assert_eq!(fs::read(place().join("flags")).unwrap(), expected);
        assert_eq!(file.stream_position().unwrap(), if written == 1 { 3 } else { 2 });
        // What the kernel appends goes behind what it has not seen.
        assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH) }, 0);
        file.write_all_at(b"more", 10).unwrap();
        let appended = write(&file, b"!", 0, libc::RWF_APPEND | RWF_NOSIGNAL) == 1;
        let expected = [expected, b"more", if appended { b"!" } else { b"" }].concat();
        assert_eq!(fs::read(place().join("flags")).unwrap(), expected);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn not_appended() {
        let mut file = opened("log", true);
        file.write_all(b"0123456789").unwrap();
        file.seek(SeekFrom::Start(6)).unwrap();
        assert_eq!(write(&file, b"ab", 2, RWF_NOAPPEND), 2);
        assert_eq!(write(&file, b"cd", -1, RWF_NOAPPEND), 2);
        assert_eq!(file.stream_position().unwrap(), 8);
        let refusal = |file: &File, offset: i64| {
            assert_eq!(write(file, b"!", offset, RWF_NOAPPEND | libc::RWF_APPEND), -1);
            std::io::Error::last_os_error().raw_os_error()
        };
        assert_eq!(refusal(&file, 0), Some(libc::EINVAL));
        let file_to_read = File::open(place().join("log")).unwrap();
        assert_eq!(refusal(&file_to_read, 0), Some(libc::EBADF));
        assert_eq!(refusal(&file_to_read, -2), Some(libc::EINVAL));
        assert_eq!(write(&file, b"e", 0, 0), 1);
        assert_eq!(fs::read(place().join("log")).unwrap(), b"01ab45cd89e");
        // The mount would append what has a flag that the library leaves to it, and all of a file that is mapped.
        assert_eq!(write(&file, b"!", 0, RWF_NOAPPEND | RWF_NOSIGNAL), -1);
        assert!(refused());
        let (access, share) = (libc::PROT_READ, libc::MAP_SHARED);
        let fd = file.as_raw_fd();
        let mapped = unsafe { libc::mmap(std::ptr::null_mut(), 1, access, share, fd, 0) };
        assert_ne!(mapped, libc::MAP_FAILED);
        assert_eq!(unsafe { mapped.cast::<u8>().read() }, b'0');
        for offset in [0, -1] {
            assert_eq!(write(&file, b"!", offset, RWF_NOAPPEND), -1);
            assert!(refused());
        }
        assert_eq!(fs::read(place().join("log")).unwrap(), b"01ab45cd89e");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn no_access() {
        let path = place().join("read");
        let read = |flags: i32| {
            fs::write(&path, b"some").unwrap();
            let past = libc::timespec { tv_sec: 1000, tv_nsec: 0 };
            let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
            let times = [past, past];
            let set = unsafe { libc::utimensat(libc::AT_FDCWD, name.as_ptr(), times.as_ptr(), 0) };
            assert_eq!(set, 0);
            let file = OpenOptions::new().read(true).custom_flags(flags).open(&path).unwrap();
            assert_eq!(file.read_at(&mut [0; 2], 1).unwrap(), 2);
            let program = ["-c", "cat <&0 >/dev/null", "sh"];
            let passed_on = Command::new("sh").args(program).stdin(file).status().unwrap();
            assert!(passed_on.success());
            fs::metadata(&path).unwrap().atime() != 1000
        };
        assert!(read(0));
        assert!(!read(libc::O_NOATIME));
        let copy = |flags: i32| {
            let from = OpenOptions::new().read(true).custom_flags(flags).open(&path).unwrap();
            let past = std::time::SystemTime::UNIX_EPOCH;
            from.set_times(fs::FileTimes::new().set_accessed(past)).unwrap();
            let to = File::create(place().join("copied")).unwrap();
            let (fds, none) = ((from.as_raw_fd(), to.as_raw_fd()), std::ptr::null_mut());
            let copied = unsafe { libc::copy_file_range(fds.0, none, fds.1, none, 4, 0) };
            assert_eq!(copied, 4);
            fs::metadata(&path).unwrap().atime() != 0
        };
        assert!(copy(0));
        assert!(!copy(libc::O_NOATIME));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn appended_by_child() {
        let mut file = opened("shared", true);
        let number = file.as_raw_fd();
        for turn in 1..=20_u64 {
            file.write_all(&[1; 1000]).unwrap();
            let child = unsafe { libc::vfork() };
            if child == 0 {
                unsafe { libc::write(number, b"xy".as_ptr().cast(), 2) };
                unsafe { libc::_exit(0) };
            }
            assert_eq!(exits_with(child), 0);
            assert_eq!(file.metadata().unwrap().len(), turn * 1002);
            assert_eq!(file.stream_position().unwrap(), turn * 1002);
        }
    }

    /// How a child ends that does this, within a minute.
    fn ends_by(act: impl FnOnce()) -> i32 {
        let child = unsafe { libc::fork() };
        if child == 0 {
            unsafe { libc::alarm(60) };
            act();
            unsafe { libc::_exit(0) };
        }
        exits_with(child)
    }

    extern "C" fn does_nothing(_: i32) {}

    #[test]
    #[ignore = "a task of another test"]
    fn faults() {
        drop(opened("faults", false));
        let touch_nothing = || {
            unsafe { libc::signal(libc::SIGSEGV, libc::SIG_IGN) };
            unsafe { std::ptr::without_provenance::<u8>(8).read_volatile() };
        };
        assert_eq!(libc::WTERMSIG(ends_by(touch_nothing)), libc::SIGSEGV);
        let least = usize::try_from(unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) }).unwrap();
        for more in [0, 256, 512, 8192] {
            let handle = || {
                let mut room = vec![0_u8; 2 * 4096 + least + more];
                let guard = room.as_mut_ptr().map_addr(|at| at.next_multiple_of(4096));
                unsafe { libc::mprotect(guard.cast(), 4096, libc::PROT_NONE) };
                let stack = libc::stack_t {
                    ss_sp: guard.wrapping_add(4096).cast(),
                    ss_flags: 0,
                    ss_size: least + more,
                };
                assert_eq!(unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) }, 0);
                let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
                action.sa_sigaction = does_nothing as *const () as usize;
                action.sa_flags = libc::SA_ONSTACK;
                unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
                unsafe { libc::raise(libc::SIGUSR1) };
            };
            let status = ends_by(handle);
            assert!(
                status == 0 || more < 8192 && libc::WTERMSIG(status) == libc::SIGSEGV,
                "{more}"
            );
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn linked_directory() {
        fs::create_dir(place().join("d")).unwrap();
        let directory = File::open(place().join("d")).unwrap();
        let link = |name: &str| {
            let from = std::ffi::CString::new(format!("/proc/self/fd/{}", directory.as_raw_fd()));
            let to = std::ffi::CString::new(place().join(name).to_str().unwrap()).unwrap();
            let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
            let from = from.unwrap();
            let made = unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), follow) };
            assert_eq!(made, -1);
            std::io::Error::last_os_error().raw_os_error()
        };
        assert_eq!(link("new"), Some(libc::EPERM));
        assert_eq!(link("d"), Some(libc::EEXIST));
    }

    /// In a child, of which the first thread is the only one.
    fn goes_on() -> ! {
        std::thread::spawn(|| {
            let first = format!("/proc/{}/stat", std::process::id());
            // Until the first thread has ended: nothing else tells.
            while !fs::read_to_string(&first).unwrap().contains(") Z ") {
                std::thread::yield_now();
            }
            fs::write(place().join("by-thread"), "x").unwrap();
            let copied = Command::new("cp")
                .arg(place().join("by-thread"))
                .arg(place().join("by-program"))
                .status()
                .unwrap();
            let child = unsafe { libc::fork() };
            if child == 0 {
                let made = fs::write(place().join("by-child"), "x");
                unsafe { libc::_exit(i32::from(made.is_err())) };
            }
            let good = copied.success() && exits_with(child) == 0;
            unsafe { libc::_exit(if good { 7 } else { 1 }) };
        });
        unsafe { libc::syscall(libc::SYS_exit, 0) };
        unreachable!("the thread has ended")
    }

    #[test]
    #[ignore = "a task of another test"]
    fn without_first() {
        let child = unsafe { libc::fork() };
        if child == 0 {
            goes_on();
        }
        assert_eq!(libc::WEXITSTATUS(exits_with(child)), 7);
        for name in ["by-thread", "by-program", "by-child"] {
            assert_eq!(fs::read(place().join(name)).unwrap(), b"x", "{name}");
        }
    }

    static OVER: AtomicBool = AtomicBool::new(false);
    static HANDLED: AtomicU32 = AtomicU32::new(0);
    static FAILED: AtomicI32 = AtomicI32::new(0);

    extern "C" fn opens(_: i32) {
        let path = c"handled";
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o600) };
        if fd < 0 {
            FAILED.store(1, Ordering::Relaxed);
        }
        unsafe { libc::close(fd) };
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }

    extern "C" fn ends(_: *mut libc::c_void) -> i32 {
        0
    }

    #[test]
    #[ignore = "a task of another test"]
    fn set_beside() {
        std::env::set_current_dir(place()).unwrap();
        let busy = std::thread::spawn(|| {
            while !OVER.load(Ordering::Relaxed) {
                fs::write("handled", vec![1; 8192]).unwrap();
                fs::rename("handled", "renamed").unwrap();
            }
        });
        let mut stack = vec![0_u8; 1 << 20];
        let top = stack.as_mut_ptr_range().end;
        let flags = libc::CLONE_VM | libc::SIGCHLD;
        let child = unsafe { libc::clone(ends, top.cast(), flags, std::ptr::null_mut()) };
        assert_eq!(exits_with(child), 0);
        unsafe { libc::signal(libc::SIGUSR1, opens as *const () as libc::sighandler_t) };
        let thread = busy.as_pthread_t();
        while HANDLED.load(Ordering::Relaxed) < 300 {
            unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
            std::thread::yield_now();
        }
        OVER.store(true, Ordering::Relaxed);
        busy.join().unwrap();
        assert_eq!(FAILED.load(Ordering::Relaxed), 0);
    }

    extern "C" fn closes(fd: *mut libc::c_void) -> i32 {
        unsafe { libc::close(i32::try_from(fd.addr()).unwrap()) }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn closed_by_a_process() {
        let ways = [0, libc::CLONE_VM | libc::CLONE_VFORK];
        for flags in ways {
            let file = opened("closed", false);
            let fd = file.into_raw_fd();
            let mut stack = vec![0_u8; 1 << 20];
            let top = stack.as_mut_ptr_range().end.cast();
            let flags = flags | libc::CLONE_FILES | libc::SIGCHLD;
            let argument = usize::try_from(fd).unwrap() as *mut libc::c_void;
            let child = unsafe { libc::clone(closes, top, flags, argument) };
            assert_eq!(exits_with(child), 0);
            // What gets the number is no file of the mount.
            let mut elsewhere = tempfile::tempfile().unwrap();
            assert_eq!(elsewhere.as_raw_fd(), fd);
            elsewhere.write_all(b"sent").unwrap();
            assert_eq!(elsewhere.metadata().unwrap().len(), 4);
            assert_eq!(fs::metadata(place().join("closed")).unwrap().len(), 0);
        }
    }

    /// Memory of a thread that libc has not made.
    #[repr(C, align(4096))]
    struct Block {
        in_front: [u8; 4096],
        own: [usize; 512],
    }

    impl Block {
        fn new() -> Box<Self> {
            let mut block = Box::new(Self { in_front: [0; 4096], own: [0; 512] });
            let own = (&raw const block.own).addr();
            // As libc's begins, but for the table of thread-local values.
            (block.own[0], block.own[2]) = (own, own);
            block
        }
    }

    static RIGHT: AtomicU32 = AtomicU32::new(0);
    static WRONG: AtomicU32 = AtomicU32::new(0);

    /// Writes to the file and reads it, with nothing that is a thread's own: a call that fails stores its error there.
    fn writes(fd: usize) {
        let (mut bytes, mut read) = ([0_u8; 4096], [0_u8; 4096]);
        for round in 0..500 {
            bytes.fill(u8::try_from((fd + round) % 251).unwrap());
            let calls =
                [(libc::SYS_pwrite64, bytes.as_mut_ptr()), (libc::SYS_pread64, read.as_mut_ptr())];
            let done = calls.map(|(call, page)| unsafe { libc::syscall(call, fd, page, 4096, 0) });
            let result = if done == [4096; 2] && read == bytes { &RIGHT } else { &WRONG };
            result.fetch_add(1, Ordering::Relaxed);
        }
    }

    extern "C" fn writes_and_ends(fd: *mut libc::c_void) -> i32 {
        writes(fd.addr());
        let (exit, code) = (libc::SYS_exit, 0);
        unsafe {
            std::arch::asm!("syscall", in("rax") exit, in("rdi") code, options(noreturn));
        }
    }

    /// Four threads, each with a file; with what libc has not made as their own memory, or what is their maker's.
    fn threads_write(blocks: Option<&[Box<Block>]>) {
        // One that waits for itself would do so for ever.
        unsafe { libc::alarm(60) };
        let files = [0, 1, 2, 3].map(|at| opened(&format!("thread{at}"), false));
        let flags = libc::CLONE_VM
            | libc::CLONE_FS
            | libc::CLONE_FILES
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM
            | blocks.map_or(0, |_| libc::CLONE_SETTLS);
        for (at, file) in files.iter().enumerate() {
            // One whose thread has written may be on its way out still.
            let stack = Box::leak(vec![0_u8; 1 << 16].into_boxed_slice());
            let top = stack.as_mut_ptr_range().end.cast();
            let fd = usize::try_from(file.as_raw_fd()).unwrap() as *mut libc::c_void;
            let block = blocks.and_then(|blocks| blocks.get(at));
            let block = block.map_or(std::ptr::null(), |block| &raw const block.own);
            let none = std::ptr::null::<i32>();
            let made = unsafe { libc::clone(writes_and_ends, top, flags, fd, none, block, none) };
            assert!(made > 0);
        }
        while RIGHT.load(Ordering::Relaxed) + WRONG.load(Ordering::Relaxed) < 2000 {
            std::thread::yield_now();
        }
        assert_eq!(WRONG.load(Ordering::Relaxed), 0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn of_one_block() {
        threads_write(None);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn of_own_blocks() {
        let blocks = [(); 4].map(|()| Block::new());
        threads_write(Some(&blocks));
        assert!(blocks.iter().all(|block| block.in_front == [0; 4096]));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn takes_a_block() {
        const SET: libc::c_long = 0x1002;
        const GET: libc::c_long = 0x1003;
        let file = opened("taken", false);
        let block = Block::new();
        let (mut libcs, own) = (0_usize, &raw const block.own);
        let fd = usize::try_from(file.as_raw_fd()).unwrap();
        let got = unsafe { libc::syscall(libc::SYS_arch_prctl, GET, &raw mut libcs) };
        let set = unsafe { libc::syscall(libc::SYS_arch_prctl, SET, own) };
        writes(fd);
        let set_back = unsafe { libc::syscall(libc::SYS_arch_prctl, SET, libcs) };
        assert_eq!([got, set, set_back], [0; 3]);
        assert_eq!((RIGHT.load(Ordering::Relaxed), WRONG.load(Ordering::Relaxed)), (500, 0));
        assert_eq!(block.in_front, [0; 4096]);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn used_once() {
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = ends as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
        unsafe { libc::sigaddset(&raw mut action.sa_mask, libc::SIGUSR1) };
        let none = std::ptr::null_mut();
        assert_eq!(unsafe { libc::sigaction(libc::SIGUSR2, &raw const action, none) }, 0);
        unsafe { libc::raise(libc::SIGUSR2) };
        let mut after: libc::sigaction = unsafe { std::mem::zeroed() };
        let asked = unsafe { libc::sigaction(libc::SIGUSR2, std::ptr::null(), &raw mut after) };
        assert_eq!((asked, after.sa_sigaction), (0, libc::SIG_DFL));
        assert_eq!(after.sa_flags & action.sa_flags, action.sa_flags);
        assert_eq!(unsafe { libc::sigismember(&raw const after.sa_mask, libc::SIGUSR1) }, 1);
    }

    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    const SIGNALS_MAX: u32 = 100_000;

    extern "C" fn looks(_: i32) {
        SEEN.lock().unwrap().push(Backtrace::force_capture().to_string());
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }

    #[inline(never)]
    fn waits_for_a_byte(pipe: i32) -> isize {
        let mut byte = 0_u8;
        std::hint::black_box(unsafe { libc::read(pipe, (&raw mut byte).cast(), 1) })
    }

    #[test]
    #[ignore = "a task of another test"]
    fn seen_waiting() {
        let _file = opened("any", false);
        let action = looks as *const () as libc::sighandler_t;
        unsafe { libc::signal(libc::SIGUSR1, action) };
        let mut pipe = [0; 2];
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        let [from, to] = pipe;
        let waiting = std::thread::spawn(move || waits_for_a_byte(from));
        let thread = waiting.as_pthread_t();
        // Some come before it waits, on a busy machine all of the first.
        let is_waiting = |seen: &String| seen.contains("waits_for_a_byte");
        for _ in 0..SIGNALS_MAX {
            let seen = SEEN.lock().unwrap().last().is_some_and(is_waiting);
            if seen && HANDLED.load(Ordering::Relaxed) >= 50 {
                break;
            }
            unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
            std::thread::yield_now();
        }
        assert_eq!(unsafe { libc::write(to, [0_u8].as_ptr().cast(), 1) }, 1);
        assert_eq!(waiting.join().unwrap(), 1);
        let seen = SEEN.lock().unwrap();
        let last = seen.last().unwrap();
        assert!(is_waiting(last), "{last}");
    }

    unsafe extern "C-unwind" {
        fn syscall(number: libc::c_long, ...) -> libc::c_long;
    }

    unsafe extern "C" {
        fn pthread_setcanceltype(kind: i32, before: *mut i32) -> i32;
        fn pthread_create(
            thread: *mut libc::pthread_t,
            attributes: *const libc::pthread_attr_t,
            start: extern "C-unwind" fn(*mut libc::c_void) -> *mut libc::c_void,
            argument: *mut libc::c_void,
        ) -> i32;
        fn pthread_cancel(thread: libc::pthread_t) -> i32;
    }

    /// libc's word for a thread that may be cancelled at any moment.
    const ASYNCHRONOUS: i32 = 1;

    /// Waits with all signals blocked until it is cancelled and has got another signal, and has both come at once.
    extern "C-unwind" fn is_cancelled(_: *mut libc::c_void) -> *mut libc::c_void {
        let (all, none) = (u64::MAX, 0_u64);
        let change = |mask: &u64| unsafe {
            syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, std::ptr::from_ref(mask), 0, 8)
        };
        unsafe { pthread_setcanceltype(ASYNCHRONOUS, std::ptr::null_mut()) };
        change(&all);
        COME.store(1, Ordering::Release);
        while COME.load(Ordering::Acquire) == 1 {
            std::hint::spin_loop();
        }
        change(&none);
        std::ptr::null_mut()
    }

    #[test]
    #[ignore = "a task of another test"]
    fn cancelled_with_another() {
        let _file = opened("any", false);
        unsafe { libc::signal(libc::SIGUSR1, counts as *const () as libc::sighandler_t) };
        let mut thread = 0;
        let none = std::ptr::null_mut();
        let made = unsafe { pthread_create(&raw mut thread, none, is_cancelled, none.cast()) };
        assert_eq!(made, 0);
        while COME.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
        assert_eq!(unsafe { pthread_cancel(thread) }, 0);
        COME.store(2, Ordering::Release);
        let mut result = none.cast();
        assert_eq!(unsafe { libc::pthread_join(thread, &raw mut result) }, 0);
        // What it says of one that was cancelled.
        assert_eq!(result.addr(), usize::MAX);
    }

    #[inline(never)]
    fn writes_again(file: &File) {
        let bytes = vec![1_u8; 1 << 16];
        COME.store(1, Ordering::Release);
        while !OVER.load(Ordering::Relaxed) {
            file.write_all_at(&bytes, 0).unwrap();
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn seen_calling() {
        let file = opened("written", false);
        let action = looks as *const () as libc::sighandler_t;
        unsafe { libc::signal(libc::SIGUSR1, action) };
        let writing = std::thread::spawn(move || writes_again(&file));
        let thread = writing.as_pthread_t();
        while COME.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        for turn in 1..=100 {
            unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
            while HANDLED.load(Ordering::Relaxed) < turn {
                std::thread::yield_now();
            }
        }
        OVER.store(true, Ordering::Relaxed);
        writing.join().unwrap();
        let seen = SEEN.lock().unwrap();
        // Some may come in the few instructions before the call is served, or after it; of all it was so before.
        let unseen: Vec<_> = seen.iter().filter(|seen| !seen.contains("writes_again")).collect();
        assert!(unseen.len() <= 10, "{} of {}: {unseen:?}", unseen.len(), seen.len());
    }

    extern "C" fn counts(_: i32) {
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }

    fn is_used_once(signal: i32, handler: extern "C" fn(i32)) {
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_RESETHAND;
        let none = std::ptr::null_mut();
        assert_eq!(unsafe { libc::sigaction(signal, &raw const action, none) }, 0);
    }

    /// Waits until both threads have come to a turn.
    fn meets(turn: u32) {
        COME.fetch_add(1, Ordering::AcqRel);
        while COME.load(Ordering::Acquire) < 2 * turn {
            std::thread::yield_now();
        }
    }

    static COME: AtomicU32 = AtomicU32::new(0);

    /// By default nothing comes of SIGWINCH.
    #[test]
    #[ignore = "a task of another test"]
    fn once_by_two() {
        const TURNS: u32 = 20_000;
        let turns = |sets: bool| {
            for turn in 0..TURNS {
                if sets {
                    assert_eq!(HANDLED.load(Ordering::Relaxed), turn);
                    is_used_once(libc::SIGWINCH, counts);
                }
                meets(2 * turn + 1);
                unsafe { libc::raise(libc::SIGWINCH) };
                meets(2 * turn + 2);
            }
        };
        let other = std::thread::spawn(move || turns(false));
        turns(true);
        other.join().unwrap();
        assert_eq!(HANDLED.load(Ordering::Relaxed), TURNS);
    }

    /// Registers, mask, and what else a signal's frame has of the processor, with its size.
    type Seen = ([libc::greg_t; 23], u64, Vec<u8>);
    static SAW: Mutex<Option<Seen>> = Mutex::new(None);

    /// The processor's other registers, in a signal's frame: bytes 464 on say how many there are.
    unsafe fn others(context: *mut libc::ucontext_t) -> (*mut u8, usize) {
        let start = unsafe { (*context).uc_mcontext.fpregs }.cast::<u8>();
        let size = unsafe { start.add(464 + 4).cast::<u32>().read_unaligned() };
        (start, size as usize)
    }

    extern "C" fn sees(_: i32, _: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
        let mask = unsafe { (&raw const (*context).uc_sigmask).cast::<u64>().read() };
        let (start, size) = unsafe { others(context) };
        let rest = unsafe { std::slice::from_raw_parts(start, size) }.to_vec();
        *SAW.lock().unwrap() = Some((unsafe { (*context).uc_mcontext.gregs }, mask, rest));
        HANDLED.fetch_add(1, Ordering::Relaxed);
        unsafe { libc::raise(libc::SIGUSR2) };
        unreachable!("the thread goes on where it was seen");
    }

    extern "C" fn goes_there(_: i32, _: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
        let (registers, mask, rest) = SAW.lock().unwrap().take().unwrap();
        unsafe { (*context).uc_mcontext.gregs = registers };
        unsafe { (&raw mut (*context).uc_sigmask).cast::<u64>().write(mask) };
        let (start, size) = unsafe { others(context) };
        assert_eq!(size, rest.len());
        unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), start, size) };
    }

    type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::ucontext_t);

    fn has_handlers() {
        for (signal, handler) in [(libc::SIGUSR1, sees as Handler), (libc::SIGUSR2, goes_there)] {
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = handler as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO;
            let none = std::ptr::null_mut();
            assert_eq!(unsafe { libc::sigaction(signal, &raw const action, none) }, 0);
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn goes_on_as_seen() {
        let file = opened("written", false);
        has_handlers();
        let writing = std::thread::spawn(move || {
            let mut bytes = [1_u8; 5000];
            // The handler allocates, and nothing from here on does.
            COME.store(1, Ordering::Release);
            while !OVER.load(Ordering::Relaxed) {
                let number = file.as_raw_fd();
                let (start, len) = (bytes.as_mut_ptr().cast(), bytes.len());
                assert_eq!(unsafe { libc::pwrite(number, start, len, 0) }, 5000);
                assert_eq!(unsafe { libc::pread(number, start, len, 1) }, 4999);
                assert_eq!(unsafe { libc::pwrite(-1, start, len, 0) }, -1);
            }
        });
        let thread = writing.as_pthread_t();
        while COME.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        for turn in 1..=500 {
            unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
            while HANDLED.load(Ordering::Relaxed) < turn {
                std::thread::yield_now();
            }
        }
        OVER.store(true, Ordering::Relaxed);
        writing.join().unwrap();
    }

    #[test]
    #[ignore = "a task of another test"]
    fn goes_on_as_seen_waiting() {
        let _file = opened("any", false);
        has_handlers();
        let mut pipe = [0; 2];
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        let [from, to] = pipe;
        let waiting = std::thread::spawn(move || {
            COME.store(1, Ordering::Release);
            loop {
                let got = waits_for_a_byte(from);
                let errno = std::io::Error::last_os_error().raw_os_error();
                if got != -1 || errno != Some(libc::EINTR) {
                    return got;
                }
            }
        });
        let thread = waiting.as_pthread_t();
        while COME.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        for turn in 1..=50 {
            unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
            while HANDLED.load(Ordering::Relaxed) < turn {
                std::thread::yield_now();
            }
        }
        assert_eq!(unsafe { libc::write(to, [0_u8].as_ptr().cast(), 1) }, 1);
        assert_eq!(waiting.join().unwrap(), 1);
    }
}
