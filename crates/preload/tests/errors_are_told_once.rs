//! Promise: under `novale run` an error that the kernel says once, of what was stored before, comes to the program,
//! and the call that it came of is not made again.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

#[macro_use]
mod harness;

use harness::{maps_own_pages, runs_with_the_daemon};

promises! {
    /// `close` was made again, by a number that was free by then: EBADF came in place of ENOSPC, and what another
    /// thread had opened meanwhile was closed.
    a_close_that_finds_no_room_says_so: runs_with_the_daemon closed_without_room;
    /// The second time the kernel has nothing to say: it was 0.
    an_msync_that_finds_no_room_says_so: maps_own_pages synced_without_room;
}

mod tasks {
    use std::fs::{self, File, OpenOptions};
    use std::io::{Error, Write};
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::path::PathBuf;

    use super::harness::PLACE;

    const PAGE: usize = 4096;
    const LEN: usize = 1 << 20;
    const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;

    fn at(name: &str) -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap()).join(name)
    }

    fn open_new(name: &str) -> File {
        OpenOptions::new().read(true).write(true).create_new(true).open(at(name)).unwrap()
    }

    /// Leaves no room in the pool.
    fn fill() {
        let mut filler = open_new("filler");
        for bytes in [1 << 20, 1 << 16, PAGE] {
            while filler.write(&vec![1; bytes]).is_ok_and(|taken| taken == bytes) {}
        }
    }

    fn map(file: &File, to: *mut libc::c_void, access: i32, len: usize) -> *mut libc::c_void {
        let flags = libc::MAP_SHARED | if to.is_null() { 0 } else { libc::MAP_FIXED };
        let mapped = unsafe { libc::mmap(to, len, access, flags, file.as_raw_fd(), 0) };
        assert_ne!(mapped, libc::MAP_FAILED, "{}", Error::last_os_error());
        mapped
    }

    fn store_to_all(mapped: *mut libc::c_void) {
        for page in 0..LEN / PAGE {
            unsafe { mapped.cast::<u8>().add(page * PAGE).write_volatile(7) };
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn closed_without_room() {
        let file = open_new("sparse");
        file.set_len(LEN as u64).unwrap();
        let mapped = map(&file, std::ptr::null_mut(), BOTH, LEN);
        fill();
        store_to_all(mapped);
        let fd = file.into_raw_fd();
        assert_eq!(unsafe { libc::close(fd) }, -1);
        assert_eq!(Error::last_os_error().raw_os_error(), Some(libc::ENOSPC));
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFD) }, -1);
        assert_eq!(unsafe { libc::munmap(mapped, LEN) }, 0);
        fs::remove_file(at("filler")).unwrap();
    }

    #[test]
    #[ignore = "a task of another test"]
    fn synced_without_room() {
        let (own, sparse) = (open_new("own"), open_new("sparse"));
        own.set_len(PAGE as u64).unwrap();
        sparse.set_len(LEN as u64).unwrap();
        // What may be executed is the kernel's, beside a page of the pool's.
        let (none, private) = (std::ptr::null_mut(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let both = unsafe { libc::mmap(none, PAGE + LEN, BOTH, private, -1, 0) };
        map(&own, both, BOTH, PAGE);
        let by_kernel = unsafe { both.byte_add(PAGE) };
        map(&sparse, by_kernel, BOTH | libc::PROT_EXEC, LEN);
        fill();
        store_to_all(by_kernel);
        assert_eq!(unsafe { libc::msync(both, PAGE + LEN, libc::MS_SYNC) }, -1);
        assert_eq!(Error::last_os_error().raw_os_error(), Some(libc::ENOSPC));
        assert_eq!(unsafe { libc::munmap(both, PAGE + LEN) }, 0);
        fs::remove_file(at("filler")).unwrap();
    }
}
