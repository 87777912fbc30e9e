//! Promise: what takes the place of a mapping is there as the kernel would put it: a thread finds the one or the other,
//! and what is no file's of the mount any more is left alone from then on.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
#![allow(clippy::indexing_slicing, reason = "what is missing is a failure")]

#[macro_use]
mod harness;

use harness::maps_own_pages;
use harness::replicas::runs;

promises! {
    /// A thread that read a mapping while it was mapped anew found zeros there, or nothing, and was ended.
    replicas_are_there_all_the_time: runs maps_anew;
    own_pages_are_there_all_the_time: maps_own_pages maps_anew;
}

mod tasks {
    use std::os::fd::AsRawFd;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::harness::replicas::{PAGE, mapped};

    const ACCESS: i32 = libc::PROT_READ | libc::PROT_WRITE;

    #[test]
    #[ignore = "a task of another test"]
    fn maps_anew() {
        let (file, map) = mapped(4);
        let (at, is_done) = (map.as_mut_ptr() as usize, AtomicBool::new(false));
        let fd = file.as_raw_fd();
        std::thread::scope(|scope| {
            let reads = || {
                let page = std::ptr::with_exposed_provenance::<u8>(at + 2 * PAGE);
                while !is_done.load(Ordering::Relaxed) {
                    assert_eq!(unsafe { page.read_volatile() }, 7);
                }
            };
            let readers = [scope.spawn(reads), scope.spawn(reads)];
            for _ in 0..2000 {
                let over = std::ptr::with_exposed_provenance_mut(at);
                let flags = libc::MAP_SHARED | libc::MAP_FIXED;
                let put = unsafe { libc::mmap(over, 4 * PAGE, ACCESS, flags, fd, 0) };
                assert_eq!(put, over);
            }
            is_done.store(true, Ordering::Relaxed);
            for reader in readers {
                reader.join().unwrap();
            }
        });
    }
}
