//! Promise: a call whose buffer lies in a mapping of a file elsewhere, which others cut short meanwhile, tells so by
//! `EFAULT`, or by how much it has moved, as the kernel's. No signal comes.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

#[macro_use]
mod harness;

use harness::{maps_own_pages, runs_with_the_daemon, runs_without_the_daemon};

promises! {
    /// SIGBUS ended the program, or a handler of the program's ran in the middle of the call.
    buffers_may_be_cut: runs_without_the_daemon cut_meanwhile;
    buffers_may_have_moved: runs_without_the_daemon moved_elsewhere;
    buffers_of_the_mount_may_be_cut: runs_with_the_daemon of_the_mount;
    buffers_that_are_mapped_twice_may_be_cut: maps_own_pages mapped_twice;
    buffers_that_have_become_the_kernels_may_have_moved: maps_own_pages of_the_kernel;
}

mod tasks {
    use std::ffi::{CString, c_void};
    use std::fs::{File, OpenOptions};
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::harness::PLACE;

    const LEN: usize = 1 << 20;

    fn place() -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap())
    }

    fn open(path: &Path) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).open(path).unwrap()
    }

    /// A file of a file system in memory.
    fn elsewhere() -> File {
        let fd = unsafe { libc::memfd_create(c"elsewhere".as_ptr(), 0) };
        assert!(fd >= 0);
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(LEN as u64).unwrap();
        file
    }

    fn map(file: &File, len: usize) -> usize {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let (none, fd) = (std::ptr::null_mut(), file.as_raw_fd());
        let at = unsafe { libc::mmap(none, len, access, kind, fd, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        at as usize
    }

    /// What a call has moved, or none where it has failed with `EFAULT`.
    fn moved(answer: isize) -> Option<usize> {
        let failed = std::io::Error::last_os_error();
        let moved = usize::try_from(answer).ok();
        assert!(moved.is_some() || failed.raw_os_error() == Some(libc::EFAULT), "{failed}");
        moved
    }

    /// Makes calls by a buffer while another thread cuts what it is of, and mends it again.
    fn each_call(file: &File, at: usize, cut: &File, (calls, pause): (usize, Duration)) {
        static ENDS: AtomicBool = AtomicBool::new(false);
        let cut = cut.try_clone().unwrap();
        let cutting = std::thread::spawn(move || {
            for round in (0..).take_while(|_| !ENDS.load(Ordering::Relaxed)) {
                // Large parts of it, so that calls come to where it is cut.
                cut.set_len((round % 4 * LEN / 4) as u64).unwrap();
                cut.set_len(LEN as u64).unwrap();
                // Calls are to come to their copying now and then, and not just to a look at the buffer.
                std::thread::sleep(pause * u32::try_from(round % 16).unwrap());
            }
        });
        let (fd, name) = (file.as_raw_fd(), c"user.name");
        let pointer = |from: usize| std::ptr::with_exposed_provenance_mut::<c_void>(at + from);
        let piece = |from, iov_len| libc::iovec { iov_base: pointer(from), iov_len };
        let pieces = [piece(0, LEN / 2), piece(LEN / 2, LEN / 2)];
        let value = pointer(LEN - 3000);
        let link = CString::new(place().join("link").to_str().unwrap()).unwrap();
        let folder = File::open(place()).unwrap();
        for _ in 0..calls {
            moved(unsafe { libc::pwrite(fd, pointer(0), LEN, 0) });
            moved(unsafe { libc::pread(fd, pointer(0), LEN, 0) });
            moved(unsafe { libc::pwritev(fd, pieces.as_ptr(), 2, 0) });
            moved(unsafe { libc::preadv(fd, pieces.as_ptr(), 2, 0) });
            for _ in 0..20 {
                moved(unsafe { libc::pwrite(fd, pointer(LEN - 100), 100, 50) });
                moved(unsafe { libc::fsetxattr(fd, name.as_ptr(), value, 2000, 0) } as isize);
                moved(unsafe { libc::fgetxattr(fd, name.as_ptr(), value, 2000) });
                moved(unsafe { libc::fstat(fd, value.cast()) } as isize);
                moved(unsafe { libc::readlink(link.as_ptr(), value.cast(), 100) });
                unsafe { libc::lseek(folder.as_raw_fd(), 0, libc::SEEK_SET) };
                let list = libc::SYS_getdents64;
                let listed = unsafe { libc::syscall(list, folder.as_raw_fd(), value, 3000) };
                moved(isize::try_from(listed).unwrap());
            }
        }
        ENDS.store(true, Ordering::Relaxed);
        cutting.join().unwrap();
    }

    /// Once nobody cuts it, all is moved.
    fn all_is_moved(file: &File, at: usize) {
        let buffer = std::ptr::with_exposed_provenance_mut::<u8>(at);
        let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, LEN) };
        bytes.iter_mut().zip((0..251).cycle()).for_each(|(to, byte)| *to = byte);
        let given = bytes.to_vec();
        let fd = file.as_raw_fd();
        assert_eq!(moved(unsafe { libc::pwrite(fd, buffer.cast(), LEN, 0) }), Some(LEN));
        bytes.fill(0);
        assert_eq!(moved(unsafe { libc::pread(fd, buffer.cast(), LEN, 0) }), Some(LEN));
        assert!(bytes == given);
    }

    fn prepared() -> File {
        let file = open(&place().join("file"));
        file.set_len(LEN as u64).unwrap();
        let (name, value) = (c"user.name".as_ptr(), [7_u8; 2000]);
        let at = value.as_ptr().cast();
        assert_eq!(unsafe { libc::fsetxattr(file.as_raw_fd(), name, at, value.len(), 0) }, 0);
        std::os::unix::fs::symlink("somewhere", place().join("link")).unwrap();
        file
    }

    #[test]
    #[ignore = "a task of another test"]
    fn cut_meanwhile() {
        let (file, other) = (prepared(), elsewhere());
        let at = map(&other, LEN);
        each_call(&file, at, &other, (60, Duration::ZERO));
        all_is_moved(&file, at);
    }

    /// A mapping that has moved, to where memory of the program's own was.
    #[test]
    #[ignore = "a task of another test"]
    fn moved_elsewhere() {
        let (file, other) = (prepared(), elsewhere());
        let at = map(&other, LEN / 2) as *mut c_void;
        let (access, kind) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let to = unsafe { libc::mmap(std::ptr::null_mut(), LEN, access, kind, -1, 0) };
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let moved = unsafe { libc::mremap(at, LEN / 2, LEN, flags, to) };
        assert_eq!(moved, to);
        each_call(&file, to as usize, &other, (60, Duration::ZERO));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn of_the_mount() {
        let (file, other) = (prepared(), open(&place().join("other")));
        other.set_len(LEN as u64).unwrap();
        let at = map(&other, LEN);
        each_call(&file, at, &other, (60, Duration::from_millis(1)));
        all_is_moved(&file, at);
    }

    /// A private mapping that can be read alone, which stays known when it becomes the kernel's.
    #[test]
    #[ignore = "a task of another test"]
    fn of_the_kernel() {
        let (file, other) = (prepared(), open(&place().join("other")));
        other.set_len(LEN as u64).unwrap();
        let (none, private, fd) = (std::ptr::null_mut(), libc::MAP_PRIVATE, other.as_raw_fd());
        let (reads, both) = (libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE);
        let to = unsafe { libc::mmap(none, LEN, reads, private | libc::MAP_ANONYMOUS, -1, 0) };
        let at = unsafe { libc::mmap(none, LEN, reads, private, fd, 0) };
        assert_ne!(unsafe { libc::mmap(none, LEN, both, private, fd, 0) }, libc::MAP_FAILED);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        assert_eq!(unsafe { libc::mremap(at, LEN, LEN, flags, to) }, to);
        each_call(&file, to as usize, &other, (60, Duration::from_millis(1)));
    }

    /// The first thing that is the kernel's, which it becomes by the call.
    #[test]
    #[ignore = "a task of another test"]
    fn mapped_twice() {
        let (file, other) = (prepared(), open(&place().join("other")));
        other.set_len(LEN as u64).unwrap();
        let at = map(&other, LEN) as *mut c_void;
        let again = unsafe { libc::mremap(at, 0, LEN, libc::MREMAP_MAYMOVE) };
        assert_ne!(again, libc::MAP_FAILED);
        each_call(&file, again as usize, &other, (60, Duration::from_millis(1)));
    }
}
