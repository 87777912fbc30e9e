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
    /// What was put there before the kernel refused more stayed: pages of a file that nobody held any more.
    own_pages_do_not_stay_where_more_fails: maps_own_pages meets_a_sealed_page;
    replicas_do_not_stay_where_more_fails: runs meets_a_sealed_page;
    /// What was to be replaced was gone when the call failed, or half of it was replaced.
    what_replicas_can_not_replace_stays: runs locks_too_much;
    what_own_pages_can_not_replace_stays: maps_own_pages locks_too_much;
    /// Bits of the access that the kernel passes over, and a mapping that is locked and can't be touched, were refused by
    /// calls that the library makes, and it was the kernel's.
    any_access_has_a_replica: runs passes_over_bits;
    any_access_has_own_pages: maps_own_pages passes_over_bits;
    /// What was written to the file went into memory that `mremap` had mapped twice, the second time in a mapping's
    /// place, or `shmat`; what the file got showed there, and when the file was made the kernel's all of it did.
    what_is_in_a_replicas_place_is_left_alone: runs puts_others_there;
    what_is_in_own_pages_place_is_left_alone: maps_own_pages puts_others_there;
    /// A segment in the place of a private mapping was replaced by the file again when it was protected.
    segments_are_no_private_mappings: maps_own_pages protects_a_segment;
    /// The kernel read the file with a lock held that who gives way needs: the program waited for itself.
    what_the_kernel_has_opened_takes_own_pages_place: maps_own_pages maps_by_the_kernel;
    /// The file system had the program's memory copied while nobody could give way: the call failed after seconds.
    what_the_kernel_maps_can_be_written_from: maps_own_pages writes_from_the_kernels;
    /// A replica could not be moved, since its file could not be read for another one.
    replicas_move_while_the_kernel_has_the_file: runs moves_replicas;
}

mod tasks {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::harness::replicas::{PAGE, byte, map, mapped, path, publish};

    const ACCESS: i32 = libc::PROT_READ | libc::PROT_WRITE;

    /// So many pages of memory.
    fn memory<'a>(pages: usize) -> &'a mut [u8] {
        let (none, flags) = (std::ptr::null_mut(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let at = unsafe { libc::mmap(none, pages * PAGE, ACCESS, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        let memory = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), pages * PAGE) };
        memory.fill(b'm');
        memory
    }

    /// Maps a file over memory; the error that this was.
    fn map_over(file: &File, over: &[u8], flags: i32) -> Option<i32> {
        let (at, flags) =
            (over.as_ptr().cast_mut().cast(), libc::MAP_SHARED | libc::MAP_FIXED | flags);
        let put = unsafe { libc::mmap(at, over.len(), ACCESS, flags, file.as_raw_fd(), 0) };
        let failed = std::io::Error::last_os_error().raw_os_error();
        assert!(put == at || put == libc::MAP_FAILED);
        failed.filter(|_| put != at)
    }

    /// A segment of so many pages, attached, or put in the place of a mapping.
    fn attach<'a>(over: Option<&mut [u8]>, pages: usize) -> &'a mut [u8] {
        unsafe {
            let id = libc::shmget(libc::IPC_PRIVATE, pages * PAGE, libc::IPC_CREAT | 0o600);
            let flags = if over.is_some() { libc::SHM_REMAP } else { 0 };
            let at = over.map_or(std::ptr::null(), |over| over.as_ptr());
            let put = libc::shmat(id, at.cast(), flags);
            assert_eq!(libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()), 0);
            assert!(put.addr().cast_signed() > 0, "{}", std::io::Error::last_os_error());
            std::slice::from_raw_parts_mut(put.cast(), pages * PAGE)
        }
    }

    /// Two pages of memory are in the place of a mapping of three, of a file that has two: neither is seen in the other,
    /// whatever becomes of the file, and the third page is the file's.
    fn is_left_alone(file: &File, there: &mut [u8]) {
        there[..2 * PAGE].fill(b'm');
        file.write_all_at(b"w", 100).unwrap();
        file.write_all_at(&[9; 2 * PAGE], 2 * PAGE as u64).unwrap();
        there[200] = b'm';
        publish(there);
        assert!(there[..2 * PAGE].iter().all(|byte| *byte == b'm'));
        assert_eq!((there[2 * PAGE], there[3 * PAGE - 1]), (9, 9));
        // The kernel's from here on, where it was the file's own.
        let private = map(file, libc::MAP_PRIVATE, PAGE);
        private[0] = 1;
        assert!(there[..2 * PAGE].iter().all(|byte| *byte == b'm'));
        there[PAGE] = b'n';
        assert_eq!((byte(file, 100), byte(file, 200), byte(file, PAGE)), (b'w', 7, 7));
        for map in [private, there] {
            assert_eq!(unsafe { libc::munmap(map.as_mut_ptr().cast(), map.len()) }, 0);
        }
    }

    /// A file of two pages, and a longer mapping of it.
    fn longer<'a>() -> (File, &'a mut [u8]) {
        let (file, short) = mapped(2);
        assert_eq!(unsafe { libc::munmap(short.as_mut_ptr().cast(), short.len()) }, 0);
        let map = map(&file, libc::MAP_SHARED, 3 * PAGE);
        (file, map)
    }

    #[test]
    #[ignore = "a task of another test"]
    fn puts_others_there() {
        let memory = attach(None, 2);
        let (file, map) = longer();
        let (from, to) = (memory.as_mut_ptr().cast(), map.as_mut_ptr().cast::<libc::c_void>());
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        assert_eq!(unsafe { libc::mremap(from, 0, 2 * PAGE, flags, to) }, to);
        is_left_alone(&file, map);
        assert_eq!((memory[0], memory[PAGE]), (b'm', b'n'));
        let (file, map) = longer();
        attach(Some(&mut *map), 2);
        is_left_alone(&file, map);
        // What is refused changes nothing.
        let (file, map) = longer();
        let to = map.as_mut_ptr().cast::<libc::c_void>();
        assert_eq!(
            unsafe { libc::mremap(from, 0, 2 * PAGE, flags, to.byte_add(1)) },
            libc::MAP_FAILED
        );
        file.write_all_at(b"w", 100).unwrap();
        assert_eq!(map[100], b'w');
    }

    #[test]
    #[ignore = "a task of another test"]
    fn protects_a_segment() {
        let (file, _) = mapped(2);
        let protect = |map: &[u8], access| unsafe {
            assert_eq!(libc::mprotect(map.as_ptr().cast_mut().cast(), map.len(), access), 0);
        };
        let (len, fd) = (2 * PAGE, file.as_raw_fd());
        let map = unsafe {
            let none = std::ptr::null_mut();
            let at = libc::mmap(none, len, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0);
            assert_ne!(at, libc::MAP_FAILED);
            std::slice::from_raw_parts_mut(at.cast::<u8>(), len)
        };
        let segment = attach(Some(map), 2);
        segment.fill(b'm');
        protect(segment, libc::PROT_READ);
        protect(segment, ACCESS);
        assert_eq!((segment[0], segment[PAGE]), (b'm', b'm'));
    }

    /// A file that the library does not know, since the kernel opens it in another namespace.
    fn open_by_kernel() -> File {
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0);
        File::options().read(true).write(true).open(path("file")).unwrap()
    }

    /// Ends the program where it waits for itself.
    fn hurry() {
        unsafe { libc::alarm(20) };
    }

    #[test]
    #[ignore = "a task of another test"]
    fn maps_by_the_kernel() {
        let (_file, map) = mapped(4);
        map[0] = 8;
        let file = open_by_kernel();
        hurry();
        assert_eq!(map_over(&file, &map[PAGE..], libc::MAP_POPULATE), None);
        assert_eq!((map[0], map[PAGE], map[2 * PAGE]), (8, 8, 7));
        map[PAGE] = 9;
        assert_eq!(map[0], 9);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn writes_from_the_kernels() {
        let (_file, own) = mapped(4);
        own[0] = 8;
        let other = File::create(path("other")).unwrap();
        let file = open_by_kernel();
        let map = map(&file, libc::MAP_SHARED, 4 * PAGE);
        other.write_all_at(map, 0).unwrap();
        assert_eq!((map[0], map[PAGE]), (8, 7));
    }

    /// Has the kernel have pages of a file, for as long as it is open.
    fn give_to_a_pipe(file: &File) {
        let (mut ends, mut from) = ([0; 2], 0);
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            let (fd, nowhere) = (file.as_raw_fd(), std::ptr::null_mut());
            assert_eq!(libc::splice(fd, &raw mut from, ends[1], nowhere, 1, 0), 1);
            for end in ends {
                assert_eq!(libc::close(end), 0);
            }
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn moves_replicas() {
        let (file, shared) = mapped(3);
        let private = map(&file, libc::MAP_PRIVATE, 3 * PAGE);
        give_to_a_pipe(&file);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // All of it, and not the last page.
        let moved = [(shared, 3), (private, 2)].map(|(map, pages)| {
            map[PAGE + 100] = b's';
            let (from, to) = (map.as_mut_ptr().cast(), memory(pages));
            let at = to.as_mut_ptr().cast();
            let put = unsafe { libc::mremap(from, map.len(), pages * PAGE, flags, at) };
            assert_eq!(put, at, "{}", std::io::Error::last_os_error());
            let mut there = 0;
            assert_eq!(unsafe { libc::mincore(from, map.len(), &raw mut there) }, -1);
            assert_eq!((to[0], to[PAGE + 100], to[2 * PAGE - 1]), (7, b's', 7));
            to
        });
        drop(file);
        let [shared, private] = moved;
        hurry();
        let (at, len) = (shared.as_mut_ptr().cast::<libc::c_void>(), shared.len());
        let msync = || unsafe { libc::msync(at, len, libc::MS_SYNC) };
        // Until the kernel has closed it.
        while msync() != 0 {
            assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBUSY));
            std::thread::yield_now();
        }
        let file = File::options().read(true).write(true).open(path("file")).unwrap();
        assert_eq!(byte(&file, PAGE + 100), b's');
        file.write_all_at(b"w", 200).unwrap();
        assert_eq!([shared[200], private[200]], [b'w'; 2]);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn meets_a_sealed_page() {
        let (file, _) = mapped(1);
        let over = memory(2);
        let last = over[PAGE..].as_ptr();
        if unsafe { libc::syscall(libc::SYS_mseal, last, PAGE, 0) } != 0 {
            // Before Linux 6.10.
            assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOSYS));
            return;
        }
        assert_eq!(map_over(&file, over, 0), Some(libc::EPERM));
        let (first, mut there) = (over.as_mut_ptr(), 0);
        let is_there = unsafe { libc::mincore(first.cast(), PAGE, &raw mut there) } == 0;
        assert!(!is_there || over[0] == b'm');
        assert_eq!(over[PAGE], b'm');
    }

    #[test]
    #[ignore = "a task of another test"]
    fn passes_over_bits() {
        let (file, _) = mapped(1);
        let grows = libc::PROT_GROWSDOWN | libc::PROT_GROWSUP;
        for (access, flags) in [(ACCESS | 16, 0), (ACCESS | grows, 0), (0, libc::MAP_LOCKED)] {
            let (none, flags) = (std::ptr::null_mut(), libc::MAP_SHARED | flags);
            // Longer than the file.
            let at = unsafe { libc::mmap(none, 2 * PAGE, access, flags, file.as_raw_fd(), 0) };
            assert_ne!(at, libc::MAP_FAILED);
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let start = format!("{:x}-", at.addr());
            let line = maps.lines().find(|line| line.starts_with(&start)).unwrap();
            assert!(!line.contains(path("").to_str().unwrap()), "{access:x}: {line}");
        }
    }

    /// Locks no more than so many bytes from here on.
    fn may_lock(bytes: u64) {
        let most = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const most) }, 0);
        // Version 3, of the calling thread, and no capabilities.
        let (header, none) = ([0x2008_0522_u32, 0], [0_u32; 6]);
        let set = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) };
        assert_eq!(set, 0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn locks_too_much() {
        let (file, _) = mapped(2);
        let over = memory(3);
        may_lock(2 * PAGE as u64);
        assert_eq!(map_over(&file, over, libc::MAP_LOCKED), Some(libc::EAGAIN));
        assert!(over.iter().all(|byte| *byte == b'm'));
        let over = &over[PAGE..];
        assert_eq!(map_over(&file, over, libc::MAP_LOCKED), None);
        assert_eq!((over[0], over[PAGE]), (7, 7));
    }

    /// Says that it is done, in any case.
    struct Done<'a>(&'a AtomicBool);

    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn maps_anew() {
        let (file, _) = mapped(4);
        let map = memory(5);
        assert_eq!(map_over(&file, map, 0), None);
        let (at, is_done) = (map.as_mut_ptr() as usize, AtomicBool::new(false));
        std::thread::scope(|scope| {
            let reads = || {
                let page = std::ptr::with_exposed_provenance::<u8>(at + 2 * PAGE);
                while !is_done.load(Ordering::Relaxed) {
                    assert_eq!(unsafe { page.read_volatile() }, 7);
                }
            };
            let readers = [scope.spawn(reads), scope.spawn(reads)];
            let done = Done(&is_done);
            for round in 0..2000 {
                if round % 2 == 0 {
                    // Not all of it is there, then.
                    let last = map[4 * PAGE..].as_mut_ptr();
                    assert_eq!(unsafe { libc::munmap(last.cast(), PAGE) }, 0);
                }
                assert_eq!(map_over(&file, map, 0), None);
            }
            drop(done);
            for reader in readers {
                reader.join().unwrap();
            }
        });
    }
}
