//! Promise: pages of a file that is mapped under `novale run --map=dax`, and that a call has the kernel keep (in a pipe,
//! in a message, as buffers of a ring), are that file's as long as the kernel keeps them.
//!
//! They were the file's own pages in the pool, which are another file's soon when the file is removed and unmapped: who
//! read the pipe was given that one's bytes, and what a ring read went to it.
//!
//! Each test runs this very program again, directly, to do one of the tasks below.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

#[macro_use]
mod harness;

use harness::maps_own_pages;

promises! {
    /// Nobody holds the file while its pages are in the pipe.
    a_pipe_keeps_the_pages_of_a_file_that_is_gone: maps_own_pages splices;

    /// A message with `MSG_ZEROCOPY` is its sender's memory until it has been sent.
    messages_keep_pages: maps_own_pages sends;

    /// A ring has what it was given before, too, and whatever is mapped later: what it is handed no call tells.
    a_ring_has_no_own_pages: maps_own_pages makes_a_ring;

    /// So has what `io_setup` makes.
    asynchronous_calls_have_no_own_pages: maps_own_pages makes_a_context;
}

mod tasks {
    use std::fs::{self, File};
    use std::io::Read;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::net::UnixDatagram;
    use std::path::PathBuf;

    use super::harness::PLACE;

    const PAGE: usize = 4096;
    const PAGES: usize = 4;
    const ALL: usize = PAGES * PAGE;
    /// What the pages of other files have.
    const OTHERS: u8 = b'S';
    /// Bytes of a `struct io_uring_params`.
    const PARAMETERS: usize = 120;

    fn path(name: &str) -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap()).join(name)
    }

    /// A file of sevens.
    fn made(name: &str) -> File {
        fs::write(path(name), [7; ALL]).unwrap();
        File::options().read(true).write(true).open(path(name)).unwrap()
    }

    /// A mapping of a file.
    struct Map(usize);

    impl Map {
        fn of(file: &File) -> Self {
            let (none, access) = (std::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
            let at =
                unsafe { libc::mmap(none, ALL, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
            assert_ne!(at, libc::MAP_FAILED);
            Self(at as usize)
        }

        /// Whether it shows the file's own pages.
        fn is_own(&self) -> bool {
            let maps = fs::read_to_string("/proc/self/maps").unwrap();
            let start = format!("{:x}-", self.0);
            maps.lines().find(|line| line.starts_with(&start)).unwrap().ends_with("/pool")
        }

        /// A piece of it that begins and ends within pages.
        fn piece(&self) -> libc::iovec {
            libc::iovec { iov_base: (self.0 + PAGE + 10) as *mut _, iov_len: 100 }
        }
    }

    impl Drop for Map {
        fn drop(&mut self) {
            assert_eq!(unsafe { libc::munmap(self.0 as *mut _, ALL) }, 0);
        }
    }

    /// Has all free pages of the pool given to other files.
    fn fill() {
        let bytes = vec![OTHERS; 1 << 20];
        let mut count = 0;
        while fs::write(path(&format!("other{count}")), &bytes).is_ok() {
            count += 1;
        }
        (0..=count).for_each(|at| fs::remove_file(path(&format!("other{at}"))).unwrap());
    }

    #[test]
    #[ignore = "a task of another test"]
    fn splices() {
        let file = made("file");
        let map = Map::of(&file);
        assert!(map.is_own());
        let mut ends = [0; 2];
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        let [mut read, write] = ends.map(|end| unsafe { File::from_raw_fd(end) });
        // Out of a pipe bytes are copied: nothing is kept.
        let piece = map.piece();
        let splice =
            |end: &File| unsafe { libc::vmsplice(end.as_raw_fd(), &raw const piece, 1, 0) };
        assert_eq!(
            unsafe { libc::write(write.as_raw_fd(), [9_u8; 100].as_ptr().cast(), 100) },
            100
        );
        assert_eq!((splice(&read), map.is_own()), (100, true));
        assert_eq!((splice(&write), map.is_own()), (100, false));
        drop((map, file));
        fs::remove_file(path("file")).unwrap();
        fill();
        let mut kept = [0; 100];
        read.read_exact(&mut kept).unwrap();
        assert_eq!(kept, [9; 100]);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn sends() {
        let (from, to) = UnixDatagram::pair().unwrap();
        let fd = from.as_raw_fd();
        let send = |how: usize, piece: &mut libc::iovec, flags: i32| {
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            (message.msg_iov, message.msg_iovlen) = (&raw mut *piece, 1);
            let mut messages = libc::mmsghdr { msg_hdr: message, msg_len: 0 };
            match how {
                0 => unsafe { libc::send(fd, piece.iov_base, piece.iov_len, flags) },
                1 => unsafe { libc::sendmsg(fd, &raw const message, flags) },
                _ => {
                    let sent = unsafe { libc::sendmmsg(fd, &raw mut messages, 1, flags) };
                    if sent == 1 { 100 } else { -1 }
                }
            }
        };
        for how in 0..3 {
            let file = made(&format!("file{how}"));
            let map = Map::of(&file);
            for (flags, is_own) in [(0, true), (libc::MSG_ZEROCOPY, false)] {
                assert_eq!((send(how, &mut map.piece(), flags), map.is_own()), (100, is_own));
                let mut received = [0; 200];
                assert_eq!(to.recv(&mut received).unwrap(), 100);
                assert!(received.starts_with(&[7; 100]));
            }
        }
    }

    /// What was mapped before is the kernel's, and what is mapped from now on.
    fn have_given_way(before: &Map, file: &File) {
        assert!(!before.is_own());
        assert!(!Map::of(file).is_own());
        let opened = made("third");
        assert!(!Map::of(&opened).is_own());
    }

    #[test]
    #[ignore = "a task of another test"]
    fn makes_a_ring() {
        let (file, other) = (made("file"), made("other"));
        let map = Map::of(&file);
        assert!(map.is_own());
        let mut said = [0_u8; PARAMETERS];
        let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, said.as_mut_ptr()) };
        if ring < 0 {
            return println!("skipped: a_ring_has_no_own_pages: no ring");
        }
        have_given_way(&map, &other);
        // The kernel may refuse it, and keeps the file's pages else.
        let piece = map.piece();
        unsafe { libc::syscall(libc::SYS_io_uring_register, ring, 0, &raw const piece, 1) };
        assert!(!map.is_own());
    }

    #[test]
    #[ignore = "a task of another test"]
    fn makes_a_context() {
        let (file, other) = (made("file"), made("other"));
        let map = Map::of(&file);
        assert!(map.is_own());
        let mut context = 0_u64;
        let made = unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut context) };
        if made < 0 {
            return println!("skipped: asynchronous_calls_have_no_own_pages: no context");
        }
        have_given_way(&map, &other);
    }
}
