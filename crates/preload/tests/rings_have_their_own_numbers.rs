//! Promise: a number leads to the file that a ring (`io_uring`) has put there, though no call tells of that.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
#![allow(clippy::cast_possible_truncation, reason = "numbers and flags of calls")]
#![allow(clippy::indexing_slicing, reason = "what is missing is a failure")]

#[macro_use]
mod harness;

use harness::{is_whole, mounted, succeeds, task};

/// A ring closed a file and opened another one, which got its number: what the program read, wrote and cut by
/// that number was the first file.
#[test]
fn a_number_is_the_file_that_a_ring_has_opened() {
    let Some((scratch, slot)) = mounted("numbers_of_rings") else { return };
    let said = succeeds(&task(&scratch, "reuses").output().unwrap());
    said.lines().filter(|line| line.starts_with("skipped")).for_each(|line| println!("{line}"));
    is_whole(&scratch, &slot);
}

/// What a program with a ring had made longer by its path had its old end to the kernel, which has it open: a page of a
/// mapping behind that was SIGBUS, nothing was copied from there, and the position behind an append was too low.
#[test]
fn the_kernel_knows_the_length_of_what_it_has_open() {
    let Some((scratch, slot)) = mounted("lengths_of_rings") else { return };
    let said = succeeds(&task(&scratch, "makes_longer").output().unwrap());
    said.lines().filter(|line| line.starts_with("skipped")).for_each(|line| println!("{line}"));
    is_whole(&scratch, &slot);
}

mod tasks {
    use std::ffi::CString;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Calls that a ring makes (`IORING_OP_`).
    const OPENAT: u64 = 18;
    const CLOSE: u64 = 19;
    /// Where a ring's memory is mapped from (`IORING_OFF_`).
    const QUEUES: libc::off_t = 0;
    const ENTRIES: libc::off_t = 0x1000_0000;
    const GETEVENTS: u32 = 1;
    const BYTES: usize = 4096;

    /// A ring for one call at a time.
    struct Ring {
        fd: i32,
        /// Words of `struct io_uring_params`: from 10 on where the queue of calls has what, from 20 on that
        /// of answers.
        said: [u32; 30],
        queues: *mut u8,
        entry: *mut [u64; 8],
    }

    impl Ring {
        fn new() -> std::io::Result<Self> {
            let mut said = [0; 30];
            let fd =
                unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, said.as_mut_ptr()) } as i32;
            if fd < 0 {
                return Err(std::io::Error::last_os_error());
            }
            let map = |from| {
                let (rights, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
                let at = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, rights, how, fd, from) };
                assert_ne!(at, libc::MAP_FAILED);
                at
            };
            Ok(Self { fd, said, queues: map(QUEUES).cast(), entry: map(ENTRIES).cast() })
        }

        fn word(&self, at: u32) -> &AtomicU32 {
            unsafe { &*self.queues.add(at as usize).cast() }
        }

        /// Makes a call: its number and the descriptor, what it is about, and flags.
        fn call(&self, operation: u64, fd: i32, address: u64, flags: u32) -> i32 {
            let first = operation | u64::from(fd.cast_unsigned()) << 32;
            unsafe { *self.entry = [first, 0, address, u64::from(flags) << 32, 0, 0, 0, 0] };
            self.word(self.said[16]).store(0, Ordering::Relaxed);
            self.word(self.said[11]).fetch_add(1, Ordering::Release);
            let none = std::ptr::null::<u8>();
            let enter = libc::SYS_io_uring_enter;
            assert_eq!(unsafe { libc::syscall(enter, self.fd, 1, 1, GETEVENTS, none, 0) }, 1);
            let head = self.word(self.said[20]);
            let turn =
                head.load(Ordering::Relaxed) & self.word(self.said[22]).load(Ordering::Relaxed);
            let answer = self.word(self.said[25] + turn * 16 + 8).load(Ordering::Acquire);
            head.fetch_add(1, Ordering::Release);
            answer.cast_signed()
        }

        fn open(&self, path: &std::path::Path) -> i32 {
            let path = CString::new(path.as_os_str().as_bytes()).unwrap();
            self.call(OPENAT, libc::AT_FDCWD, path.as_ptr() as u64, libc::O_RDWR as u32)
        }

        fn close(&self, fd: i32) {
            assert_eq!(self.call(CLOSE, fd, 0, 0), 0);
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn reuses() {
        use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
        let place = PathBuf::from(std::env::var_os(super::harness::PLACE).unwrap());
        let path = |name| place.join(name);
        let open = || fs::File::options().read(true).write(true).open(path("first")).unwrap();
        fs::write(path("first"), b"of the first").unwrap();
        let before = open();
        let ring = match Ring::new() {
            Ok(ring) => ring,
            Err(why) => return println!("skipped: a_number_is_the_file_of_a_ring: {why}"),
        };
        // Opened before there was a ring, and since.
        let mut kept = Vec::new();
        for first in [before, open()] {
            fs::write(path("second"), b"of the second").unwrap();
            // The library knows it by now, if it ever does.
            assert_eq!(first.metadata().unwrap().len(), 12);
            let number = first.into_raw_fd();
            ring.close(number);
            assert_eq!(ring.open(&path("second")), number);
            let second = unsafe { fs::File::from_raw_fd(number) };
            assert_eq!(second.as_raw_fd(), number);
            assert_eq!(second.metadata().unwrap().len(), 13);
            let mut read = [0; 6];
            second.read_exact_at(&mut read, 7).unwrap();
            assert_eq!(&read, b"second");
            second.write_all_at(b"ON", 0).unwrap();
            second.set_len(6).unwrap();
            kept.push(second);
            assert_eq!(fs::read(path("first")).unwrap(), b"of the first");
            assert_eq!(fs::read(path("second")).unwrap(), b"ON the");
        }
    }

    /// Makes a file longer by its path: here, in a child, and in another program.
    fn make_longer(how: usize, path: &std::path::Path, len: u64) {
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        let longer = || unsafe { libc::truncate(name.as_ptr(), len.cast_signed()) };
        let failed = match how {
            0 => longer(),
            1 => match unsafe { libc::fork() } {
                0 => unsafe { libc::_exit(longer()) },
                child => super::harness::exits_with(child),
            },
            _ => {
                let mut program = std::process::Command::new("truncate");
                program.arg("-s").arg(len.to_string()).arg(path);
                i32::from(!program.status().unwrap().success())
            }
        };
        assert_eq!(failed, 0, "{how}");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn makes_longer() {
        use std::io::{Seek, Write};
        use std::os::fd::AsRawFd;
        const PAGE: usize = 4096;
        let place = PathBuf::from(std::env::var_os(super::harness::PLACE).unwrap());
        if let Err(why) = Ring::new() {
            return println!("skipped: the_kernel_knows_the_length_of_a_file: {why}");
        }
        for (how, kind) in
            (0..3).flat_map(|how| [libc::MAP_SHARED, libc::MAP_PRIVATE].map(|kind| (how, kind)))
        {
            let path = place.join(format!("file {how} {kind}"));
            fs::write(&path, [1; 2 * PAGE]).unwrap();
            let open = || fs::File::options().read(true).write(true).open(&path).unwrap();
            let (file, mut appends) =
                (open(), fs::File::options().append(true).open(&path).unwrap());
            let (access, none) = (libc::PROT_READ | libc::PROT_WRITE, std::ptr::null_mut());
            let map = unsafe { libc::mmap(none, 9 * PAGE, access, kind, file.as_raw_fd(), 0) };
            assert_ne!(map, libc::MAP_FAILED);
            make_longer(how, &path, 8 * PAGE as u64);
            // Before anything has the kernel ask.
            let byte = |at: usize| unsafe { map.cast::<u8>().add(at).read_volatile() };
            assert_eq!([0, 2, 7].map(|page| byte(page * PAGE)), [1, 0, 0]);
            let (mut from, other) =
                ((3 * PAGE).try_into().unwrap(), fs::File::create(place.join("copy")).unwrap());
            let (fd, to) = (file.as_raw_fd(), other.as_raw_fd());
            let copied = unsafe {
                libc::copy_file_range(fd, &raw mut from, to, std::ptr::null_mut(), PAGE, 0)
            };
            assert_eq!(usize::try_from(copied), Ok(PAGE));
            appends.write_all(b"x").unwrap();
            assert_eq!(appends.stream_position().unwrap(), 8 * PAGE as u64 + 1);
            assert_eq!(unsafe { libc::munmap(map, 9 * PAGE) }, 0);
        }
    }
}
