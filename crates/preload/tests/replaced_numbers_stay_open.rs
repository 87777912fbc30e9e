//! Promise: who gets a descriptor while another thread replaces what is at its number gets an open file: a program
//! that begins, a child, who receives it by a socket.
//!
//! What another thread had opened since files were handed over was a placeholder, which is closed to others.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "one message is made of many")]

mod harness;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use harness::{is_whole, mounted, stop_holding, succeeds, task};
use rustix::process::{Pid, Signal, kill_process};

fn all_are_open(name: &str) {
    let Some((scratch, slot)) = mounted(name) else { return };
    succeeds(&task(&scratch, name).output().unwrap());
    is_whole(&scratch, &slot);
}

#[test]
fn a_program_that_begins_finds_it_open() {
    all_are_open("begins");
}

/// By `vfork`.
#[test]
fn a_program_that_is_spawned_finds_it_open() {
    all_are_open("spawns");
}

#[test]
fn who_receives_it_finds_it_open() {
    all_are_open("sends");
}

/// What the child of a child did was its parent's from then on: it left the pool, and all others waited for ever.
#[test]
fn a_child_has_a_child_of_its_own() {
    all_are_open("nests");
}

/// The same where a handler that came just before the call has made one.
#[test]
fn a_handler_has_a_child_of_its_own() {
    all_are_open("is_interrupted");
}

#[test]
fn a_child_with_memory_of_its_own_keeps_nobody_out() {
    all_are_open("is_waited_for");
}

/// It was sent in part, with success.
#[test]
fn a_long_message_with_it_is_sent_as_a_whole() {
    all_are_open("sends_much");
}

/// Whoever used the number while a file took the place of another's was refused, six times of ten in this storm; one
/// that is on its way to the kernel already still is.
#[test]
fn who_uses_the_number_meanwhile_is_seldom_refused() {
    all_are_open("writes_meanwhile");
}

/// The others may go on, though the child makes no call that could tell them so.
#[test]
fn a_child_that_only_computes_keeps_nobody_out() {
    all_are_open("computes");
}

/// Whether others are alive was looked up by `/proc`, at the lowest number that was free for a moment. A file that
/// another thread put there was closed. The one who has waited for a process looked so.
#[test]
fn a_number_is_free_while_another_thread_waits_for_a_process() {
    puts_files_beside("a_number_is_free_by_a_process", "waits", |_, _| ());
}

/// Who waits for a lock does, again and again.
#[test]
fn a_number_is_free_while_another_thread_waits_for_a_lock() {
    puts_files_beside("a_number_is_free_by_a_lock", "waits_for_a_lock", |busy, contended| {
        let mut waits = stop_holding(busy, contended);
        // A lock that nobody gives back is looked at a hundred times a second.
        std::thread::sleep(Duration::from_millis(200));
        kill_process(busy, Signal::CONT).unwrap();
        assert!(waits.wait().unwrap().success());
    });
}

/// The kernel closes what was there, here a socket whose peer has not read all yet: all calls that open, close or
/// duplicate waited for that.
#[test]
fn what_is_replaced_may_take_its_time_to_close() {
    all_are_open("replaces_what_lingers");
}

/// Has a program put files at free numbers, beside two that write, and disturbs the first of these meanwhile.
fn puts_files_beside(test: &str, name: &str, disturb: impl Fn(Pid, &Path)) {
    let Some((scratch, slot)) = mounted(test) else { return };
    let mut busy = [(); 2].map(|()| task(&scratch, "is_busy").spawn().unwrap());
    let mut puts = task(&scratch, name);
    let mut puts = puts.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while puts.try_wait().unwrap().is_none() {
        disturb(Pid::from_child(&busy[0]), &scratch.in_dir("contended"));
        std::thread::yield_now();
    }
    for other in &mut busy {
        other.kill().unwrap();
        other.wait().unwrap();
    }
    succeeds(&puts.wait_with_output().unwrap());
    is_whole(&scratch, &slot);
}

mod tasks {
    use std::fs::{self, OpenOptions};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::CommandExt;
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::Duration;

    use super::harness::{PLACE, signals, support};

    /// The number that is replaced, and by which path others open what is there.
    const NUMBER: i32 = 100;
    const OPEN: &str = "/proc/self/fd/100";
    const SENT: usize = 5000;
    static REPLACED: AtomicU32 = AtomicU32::new(0);
    static HANDLED: AtomicU32 = AtomicU32::new(0);

    fn file() -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap()).join("replaced")
    }

    fn contended() -> fs::File {
        let path = file().with_file_name("contended");
        OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap()
    }

    fn replace(path: &Path) -> u32 {
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), NUMBER) }, NUMBER);
        REPLACED.fetch_add(1, Ordering::Relaxed)
    }

    /// Replaces it by another thread, from before this returns until the process ends.
    fn replace_always() {
        let path = file();
        fs::write(&path, "text").unwrap();
        std::thread::spawn(move || while replace(&path) < u32::MAX {});
        while REPLACED.load(Ordering::Relaxed) < 20 {}
    }

    fn ends_well(child: i32) {
        let mut status = 0;
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn begins() {
        for _ in 0..100 {
            let child = unsafe { libc::fork() };
            if child == 0 {
                replace_always();
                _ = Command::new("/usr/bin/cmp").arg(OPEN).arg(file()).exec();
                unsafe { libc::_exit(127) };
            }
            ends_well(child);
        }
    }

    /// Until the other thread has replaced it so often.
    fn is_replaced(times: u32) {
        let before = REPLACED.load(Ordering::Relaxed);
        while REPLACED.load(Ordering::Relaxed) < before + times {}
    }

    /// By two threads beside each other.
    #[test]
    #[ignore = "a task of another test"]
    fn spawns() {
        replace_always();
        let compare = || Command::new("/usr/bin/cmp").arg(OPEN).arg(file()).status().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..50).for_each(|_| assert!(compare().success())));
            }
        });
        is_replaced(20);
    }

    /// A child that reads what is at the number.
    fn reads() -> i32 {
        let mut bytes = [0_u8; 4];
        #[allow(
            deprecated,
            reason = "what vfork does is tried here, by a child that only reads and ends"
        )]
        let child = unsafe { libc::vfork() };
        if child == 0 {
            let read = unsafe { libc::pread(NUMBER, bytes.as_mut_ptr().cast(), 4, 0) };
            unsafe { libc::_exit(i32::from(read != 4)) };
        }
        child
    }

    #[test]
    #[ignore = "a task of another test"]
    fn nests() {
        replace_always();
        for _ in 0..20 {
            #[allow(deprecated, reason = "as above")]
            let child = unsafe { libc::vfork() };
            if child == 0 {
                let mut status = 0;
                unsafe { libc::waitpid(reads(), &raw mut status, 0) };
                // By a number of its own.
                unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY) };
                unsafe { libc::_exit(status >> 8) };
            }
            ends_well(child);
        }
        is_replaced(20);
        assert_eq!(fs::read(file()).unwrap(), b"text");
    }

    extern "C" fn makes_a_child(_: i32) {
        let errno = unsafe { *libc::__errno_location() };
        ends_well(reads());
        HANDLED.fetch_add(1, Ordering::Relaxed);
        unsafe { *libc::__errno_location() = errno };
    }

    #[test]
    #[ignore = "a task of another test"]
    fn is_interrupted() {
        signals::keep_from_main_thread(libc::SIGALRM);
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = makes_a_child as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        let none = std::ptr::null_mut();
        assert_eq!(unsafe { libc::sigaction(libc::SIGALRM, &raw const action, none) }, 0);
        replace_always();
        for round in 0..500 {
            let after = libc::timeval { tv_sec: 0, tv_usec: 50 + round };
            let once =
                libc::itimerval { it_interval: unsafe { std::mem::zeroed() }, it_value: after };
            unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const once, std::ptr::null_mut()) };
            ends_well(reads());
        }
        is_replaced(20);
        assert_ne!(HANDLED.load(Ordering::Relaxed), 0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn writes_meanwhile() {
        let elsewhere = OpenOptions::new().append(true).open("/dev/null").unwrap();
        let here = OpenOptions::new().append(true).create(true).open(file()).unwrap();
        let replaces = |fd| assert_eq!(unsafe { libc::dup2(fd, NUMBER) }, NUMBER);
        replaces(elsewhere.as_raw_fd());
        std::thread::spawn(move || {
            loop {
                replaces(here.as_raw_fd());
                replaces(elsewhere.as_raw_fd());
            }
        });
        let write = || unsafe { libc::write(NUMBER, b"x".as_ptr().cast(), 1) };
        let refused = (0..500_000).filter(|_| write() != 1).count();
        assert!(refused < 100_000, "{refused}");
        assert!(fs::metadata(file()).unwrap().len() > 1000);
    }

    /// As `vfork` does, with memory of its own.
    #[test]
    #[ignore = "a task of another test"]
    fn is_waited_for() {
        replace_always();
        let mut ends = [0; 2];
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        std::thread::scope(|scope| {
            let child = scope.spawn(|| {
                let flags = i64::from(libc::CLONE_VFORK | libc::SIGCHLD);
                let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
                if child == 0 {
                    let read = unsafe { libc::read(ends[0], [0_u8].as_mut_ptr().cast(), 1) };
                    unsafe { libc::_exit(i32::from(read != 1)) };
                }
                ends_well(i32::try_from(child).unwrap());
            });
            is_replaced(200);
            assert_eq!(unsafe { libc::write(ends[1], b"x".as_ptr().cast(), 1) }, 1);
            child.join().unwrap();
        });
    }

    /// A stream that has not room for all of it.
    #[test]
    #[ignore = "a task of another test"]
    fn sends_much() {
        replace_always();
        let (here, mut there) = UnixStream::pair().unwrap();
        let bytes = &mut vec![1; 1 << 20];
        std::thread::scope(|scope| {
            let sent = scope.spawn(|| send(here.as_raw_fd(), bytes));
            let mut got = vec![0; 1 << 20];
            there.read_exact(&mut got).unwrap();
            assert_eq!(sent.join().unwrap(), 1 << 20);
        });
    }

    #[test]
    #[ignore = "a task of another test"]
    fn sends() {
        let mut ends = [0; 2];
        let made =
            unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, ends.as_mut_ptr()) };
        assert_eq!(made, 0);
        let child = unsafe { libc::fork() };
        if child == 0 {
            let all_are_open = (0..SENT).all(|_| receives(ends[1]));
            unsafe { libc::_exit(i32::from(!all_are_open)) };
        }
        // So that its end is seen here.
        unsafe { libc::close(ends[1]) };
        replace_always();
        for _ in 0..SENT {
            assert_eq!(send(ends[0], &mut [0]), 1);
            assert_eq!(unsafe { libc::read(ends[0], [0_u8].as_mut_ptr().cast(), 1) }, 1);
        }
        ends_well(child);
    }

    /// Whether what is received next is open. Who sends waits, so that nothing waits for room.
    fn receives(socket: i32) -> bool {
        let (mut bytes, mut control) = ([0_u8; 4], [0_u64; 3]);
        unsafe {
            let mut part = part(&mut bytes[..1]);
            let mut message = message(&raw mut part, &mut control);
            assert_eq!(libc::recvmsg(socket, &raw mut message, 0), 1);
            let fd = libc::CMSG_DATA(libc::CMSG_FIRSTHDR(&raw const message))
                .cast::<i32>()
                .read_unaligned();
            let is_read =
                libc::pread(fd, bytes.as_mut_ptr().cast(), 4, 0) == 4 && bytes == *b"text";
            libc::close(fd);
            libc::write(socket, bytes.as_ptr().cast(), 1) == 1 && is_read
        }
    }

    /// Sends the descriptor with some bytes, and says how many.
    fn send(socket: i32, bytes: &mut [u8]) -> isize {
        let mut control = [0_u64; 3];
        unsafe {
            let mut part = part(bytes);
            let message = message(&raw mut part, &mut control);
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
            libc::CMSG_DATA(header).cast::<i32>().write_unaligned(NUMBER);
            libc::sendmsg(socket, &raw const message, 0)
        }
    }

    fn part(bytes: &mut [u8]) -> libc::iovec {
        libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
    }

    /// A message of these bytes, with room for a descriptor.
    unsafe fn message(part: *mut libc::iovec, control: &mut [u64; 3]) -> libc::msghdr {
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(control);
        message
    }

    #[test]
    #[ignore = "a task of another test"]
    fn computes() {
        replace_always();
        #[allow(deprecated, reason = "what vfork does is tried here, by a child that only ends")]
        let child = unsafe { libc::vfork() };
        if child == 0 {
            // The memory is the parent's, whose other thread goes on.
            is_replaced(20);
            unsafe { libc::_exit(0) };
        }
        ends_well(child);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn is_busy() {
        let contended = contended();
        loop {
            contended.write_all_at(&[1; 10_000], 0).unwrap();
        }
    }

    extern "C" fn ends(_: *mut libc::c_void) -> i32 {
        0
    }

    #[test]
    #[ignore = "a task of another test"]
    fn waits() {
        let mut stack = vec![0_u8; 1 << 16];
        let top = stack.as_mut_ptr_range().end.addr();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        put_files_beside(|| {
            let (top, none) = (top as *mut libc::c_void, std::ptr::null_mut());
            ends_well(unsafe { libc::clone(ends, top, flags, none) });
        });
    }

    #[test]
    #[ignore = "a task of another test"]
    fn waits_for_a_lock() {
        let contended = contended();
        put_files_beside(|| assert_eq!(contended.write_at(b"text", 0).unwrap(), 4));
    }

    /// Puts a file at each free number, while another thread does something again and again.
    fn put_files_beside(again: impl Fn() + Sync) {
        let has_ended = AtomicBool::new(false);
        let file = fs::File::create(file()).unwrap();
        let from = file.as_raw_fd() + 1;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !has_ended.load(Ordering::Relaxed) {
                    again();
                }
            });
            for number in from..1000 {
                while unsafe { libc::dup2(file.as_raw_fd(), number) } != number {}
                std::thread::sleep(Duration::from_millis(2));
            }
            has_ended.store(true, Ordering::Relaxed);
        });
        let is_there = |number: &i32| Path::new(&format!("/proc/self/fdinfo/{number}")).exists();
        let lost: Vec<i32> = (from..1000).filter(|number| !is_there(number)).collect();
        assert!(lost.is_empty(), "{lost:?}");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn replaces_what_lingers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sends = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut reads, _) = listener.accept().unwrap();
        sends.set_nonblocking(true).unwrap();
        while (&sends).write(&[1; 4096]).is_ok() {}
        sends.set_nonblocking(false).unwrap();
        let linger = libc::linger { l_onoff: 1, l_linger: 3600 };
        let at = (&raw const linger).cast();
        let bytes = u32::try_from(size_of_val(&linger)).unwrap();
        let fd = sends.as_raw_fd();
        let set = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, at, bytes) };
        assert_eq!(set, 0);
        let (file, is_open) = (contended(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), fd) }, fd);
            });
            scope.spawn(|| {
                // Without an end, else.
                if !support::eventually(|| is_open.load(Ordering::Acquire)) {
                    std::process::exit(1);
                }
            });
            // The file is at its new number, and the socket is being closed.
            let is_there = || unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) } == 0;
            assert!(support::eventually(is_there));
            drop(contended().try_clone().unwrap());
            is_open.store(true, Ordering::Release);
            reads.read_to_end(&mut Vec::new()).unwrap();
        });
        drop(sends);
    }
}
