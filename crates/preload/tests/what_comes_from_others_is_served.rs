//! Promise: a descriptor of a mount's file that a program inherits, or that comes over a socket, is served
//! in the program's own process as far as that needs no position, and leads where it did otherwise; and one
//! that it hands on leads those who get it to all that it wrote.
//!
//! It stayed the kernel's for good: a log that a shell had opened took the daemon's way for each line.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "one message is made of many")]
#![allow(deprecated, reason = "what vfork does is tried here, by a child that only looks and ends")]

mod harness;

use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use harness::support::{self, Scratch, Stopped};
use harness::{direct, is_whole, mounted, succeeds, task};

fn log(scratch: &Scratch) -> File {
    let mut how = OpenOptions::new();
    how.read(true).append(true).create(true).open(scratch.in_dir("log")).unwrap()
}

/// Runs a task while the daemon is stopped, between its word that it is ready and the next one: it has its
/// descriptors by then.
fn without_the_daemon(scratch: &Scratch, slot: &str, running: &mut Command, begin: impl FnOnce()) {
    let above = PathBuf::from(scratch.dir()).parent().unwrap().to_owned();
    let [ready, go, done] = ["ready", "go", "done"].map(|name| above.join(name));
    for fifo in [&ready, &go] {
        assert!(Command::new("mkfifo").arg(fifo).status().unwrap().success());
    }
    let running = running.stderr(Stdio::piped()).spawn().unwrap();
    begin();
    fs::read(&ready).unwrap();
    let daemon = Stopped::daemon_of(slot);
    fs::write(&go, "go on").unwrap();
    // The kernel, which has the file open, asks the daemon at its end.
    let served = support::eventually(|| done.exists());
    drop(daemon);
    succeeds(&running.wait_with_output().unwrap());
    assert!(served, "it waits for the daemon");
    let written = fs::read_to_string(scratch.in_dir("log")).unwrap();
    assert_eq!(written, "one\nline\n".repeat(100));
}

#[test]
fn what_is_inherited_needs_no_daemon() {
    let Some((scratch, slot)) = mounted("what_is_inherited") else { return };
    let mut running = task(&scratch, "inherits");
    without_the_daemon(&scratch, &slot, running.stdin(log(&scratch)), || ());
    drop(running);
    is_whole(&scratch, &slot);
}

#[test]
fn what_a_message_brings_needs_no_daemon() {
    let Some((scratch, slot)) = mounted("what_a_message_brings") else { return };
    let (here, there) = UnixStream::pair().unwrap();
    let mut running = task(&scratch, "receives");
    running.stdin(OwnedFd::from(there)).stdout(Stdio::piped());
    let send = || {
        tasks::send(here.as_raw_fd(), log(&scratch).as_raw_fd());
    };
    without_the_daemon(&scratch, &slot, &mut running, send);
    drop(running);
    is_whole(&scratch, &slot);
}

/// The position stays one that all have.
#[test]
fn programs_that_share_a_descriptor_share_its_position() {
    let Some((scratch, slot)) = mounted("share_a_descriptor") else { return };
    let run = |script: &str| {
        let mut shell = direct(&scratch, Path::new("sh"));
        succeeds(&shell.current_dir(scratch.dir()).args(["-ec", script]).output().unwrap())
    };
    run("(echo a; /bin/echo b; sh -c 'echo c; /bin/echo d') > f; echo e >> f");
    assert_eq!(run("cat f"), "a\nb\nc\nd\ne\n");
    assert_eq!(run("(head -c 2 >/dev/null; sh -c 'read x; echo $x'; cat) < f"), "b\nc\nd\ne\n");
    assert_eq!(run("exec 5<f; read x <&5; (read y <&5; echo $x$y); cat <&5"), "ab\nc\nd\ne\n");
    // Over its own number, and back.
    let over = "exec 7>&1 1>>f; echo g; /bin/echo h; exec 1>&7 7>&-; exec 6>>f; /bin/echo i >&6; tail -3 f";
    assert_eq!(run(over), "g\nh\ni\n");
    let truncated = "exec 5<>f; /bin/echo zz >&5; sh -c ': >f; /bin/echo yy >&5'; od -An -c f";
    assert_eq!(run(truncated).split_whitespace().collect::<String>(), r"\0\0\0yy\n");
    is_whole(&scratch, &slot);
}

/// The kernel judges by the length that it learned last which pages of a mapping there are: those who had a
/// descriptor from a program that had made its file longer were ended by SIGBUS.
#[test]
fn who_is_sent_a_file_can_map_all_of_it() {
    let Some((scratch, slot)) = mounted("who_is_sent_a_file") else { return };
    let (here, there) = UnixStream::pair().unwrap();
    let running = task(&scratch, "sends").stdin(OwnedFd::from(there)).spawn().unwrap();
    let file = unsafe { File::from_raw_fd(tasks::received(here.as_raw_fd())) };
    let child = unsafe { libc::fork() };
    if child == 0 {
        unsafe { libc::_exit(i32::from(!tasks::maps(file.as_raw_fd()))) };
    }
    assert_eq!(harness::exits_with(child), 0);
    drop((file, here));
    succeeds(&running.wait_with_output().unwrap());
    is_whole(&scratch, &slot);
}

/// A child of `vfork` has no more of the library than one that is executed without it.
#[test]
fn who_is_started_with_a_file_can_map_all_of_it() {
    let Some((scratch, slot)) = mounted("who_is_started_with_a_file") else { return };
    succeeds(&task(&scratch, "starts").output().unwrap());
    is_whole(&scratch, &slot);
}

mod tasks {
    use std::fs::{self, File, OpenOptions};
    use std::io::Write;
    use std::mem::ManuallyDrop;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::fs::FileExt;
    use std::path::{Path, PathBuf};

    use super::harness::{PLACE, exits_with};

    /// Room for the control message of one descriptor.
    #[repr(align(8))]
    pub(super) struct Control([u8; 24]);

    impl Control {
        pub(super) fn new() -> Self {
            Self([0; 24])
        }

        pub(super) fn message(&mut self, part: *mut libc::iovec) -> libc::msghdr {
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            (message.msg_iov, message.msg_iovlen) = (part, 1);
            (message.msg_control, message.msg_controllen) = (self.0.as_mut_ptr().cast(), 24);
            message
        }
    }

    /// The descriptor that a message brings.
    pub(super) fn received(socket: i32) -> i32 {
        let mut byte = [0u8];
        let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        let mut control = Control::new();
        unsafe {
            let mut message = control.message(&raw mut part);
            assert_eq!(libc::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC), 1);
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            assert!(!header.is_null());
            libc::CMSG_DATA(header).cast::<i32>().read_unaligned()
        }
    }

    /// Sends a descriptor.
    pub(super) fn send(socket: i32, fd: i32) {
        let mut byte = *b"x";
        let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        let mut control = Control::new();
        unsafe {
            let message = control.message(&raw mut part);
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
            libc::CMSG_DATA(header).cast::<i32>().write_unaligned(fd);
            assert_eq!(libc::sendmsg(socket, &raw const message, 0), 1);
        }
    }

    /// A file that the kernel came to know while it was empty, and with bytes since.
    fn grown() -> File {
        let path = Path::new(&std::env::var_os(PLACE).unwrap()).join("grown");
        let how = OpenOptions::new().read(true).write(true).create_new(true).open(path);
        let file = how.unwrap();
        let child = unsafe { libc::fork() };
        if child == 0 {
            unsafe { libc::_exit(0) };
        }
        assert_eq!(exits_with(child), 0);
        file.write_all_at(b"grown", 0).unwrap();
        file
    }

    /// Whether a mapping of that file shows its bytes.
    pub(super) fn maps(fd: i32) -> bool {
        let (access, how) = (libc::PROT_READ, libc::MAP_SHARED);
        let bytes = unsafe { libc::mmap(std::ptr::null_mut(), 5, access, how, fd, 0) };
        bytes != libc::MAP_FAILED
            && unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), 5) } == b"grown"
    }

    #[test]
    #[ignore = "a task of another test"]
    fn sends() {
        send(0, grown().as_raw_fd());
        // Until it has been looked at.
        assert_eq!(unsafe { libc::read(0, [0u8].as_mut_ptr().cast(), 1) }, 0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn starts() {
        let file = grown();
        let fd = file.as_raw_fd();
        let child = unsafe { libc::vfork() };
        if child == 0 {
            unsafe { libc::_exit(i32::from(!maps(fd))) };
        }
        assert_eq!(exits_with(child), 0);
    }

    /// Appends to a log, and reads what is there.
    fn appends(fd: i32) {
        let above = PathBuf::from(std::env::var_os(PLACE).unwrap()).parent().unwrap().to_owned();
        let file = unsafe { File::from_raw_fd(fd) };
        // Closing asks the daemon.
        let mut file = ManuallyDrop::new(file);
        fs::write(above.join("ready"), "").unwrap();
        fs::read(above.join("go")).unwrap();
        for round in 0..100 {
            file.write_all(b"one\n").unwrap();
            file.write_all(b"line\n").unwrap();
            let mut read = [0; 9];
            file.read_exact_at(&mut read, round * 9).unwrap();
            assert_eq!(&read, b"one\nline\n");
        }
        file.sync_data().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 900);
        fs::write(above.join("done"), "").unwrap();
    }

    #[test]
    #[ignore = "a task of another test"]
    fn inherits() {
        appends(0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn receives() {
        appends(received(0));
    }
}
