//! Promise: under `novale run --map=atomic` what a process has stored stays in its mapping until it is published, and is
//! its own: a child of fork has neither its parent's changes of after that, nor takes away what the other one writes.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
#![allow(clippy::indexing_slicing, reason = "what is missing is a failure")]

#[macro_use]
mod harness;

use harness::replicas::{runs, said};

promises! {
    /// `MADV_DONTNEED` took away what was not published, which a shared mapping keeps, and `msync` said that all of it
    /// was. Of what was kept from a child its table still had the addresses.
    advice_gives_up_nothing: runs gives_up;
    /// Both had the same base: what the one wrote by a descriptor was a change of the other's, which was undone when
    /// that one published.
    what_parent_and_child_write_stays: runs parts_ways;
    /// A program did not start, and meanwhile nobody held a file without a name: what was stored was published to the
    /// file that had its number by then, and what was written to that one showed.
    what_is_of_no_file_goes_to_no_other: runs outlives_its_file;
    /// What the program may not store to at the moment stayed as it was when it wrote to the file, and undid that at the
    /// next `msync`; what it had stored did not go with `mremap`, and was not published where it may not read it.
    access_is_for_the_program_alone: runs protects;
    /// What was written to the file, or published, came into what the program had stored to a private mapping.
    private_copies_stay_as_they_are: runs keeps_to_itself;
    /// A page that was cut off the file kept what was stored to its private copy, and the file's old bytes.
    private_copies_go_with_what_is_cut_off: runs cuts_off;
    /// What another thread wrote while the file was read for a mapping did not show there, and was undone when the
    /// page was published.
    what_is_written_during_mmap_shows: runs maps_while_it_is_written;
    /// One `msync` over two mappings of the same page published what the second had between its own changes over what
    /// was stored to the first there.
    mappings_of_one_page_are_published_together: runs maps_twice;
    /// What `msync` had open for a moment was free behind it, unknown to the library: a file that was opened got a number
    /// above it.
    numbers_are_the_lowest_after_msync: runs opens_meanwhile;
    /// What another process had written between two bytes of a page that this one changed was undone by `msync`, and by
    /// the first `msync` after `mremap`.
    what_others_write_between_changes_stays: runs changes_around;
    /// Once it had started another program, or limited its files' size, what a program wrote, which the kernel did for
    /// it then, did not show in its mappings.
    what_the_kernel_writes_for_the_program_shows: runs writes_by_the_kernel;
    /// `posix_fallocate` over a range of the file put the file's bytes over what was stored there, which was lost.
    what_is_stored_stays_where_room_is_made: runs makes_room;
    /// Of threads that wrote by one position, once it was shared, each looked for its bytes before where that was by then:
    /// some showed in no mapping.
    what_threads_write_by_one_position_shows: runs writes_by_one_position;
    /// While another thread moved any position that is shared, what was written over stored bytes did not show, and
    /// `msync` undid it.
    what_is_written_while_other_positions_move_shows: runs moves_others;
    /// Once the position of the one was shared, `sendfile` from the other left pages of that with the kernel: `msync` of
    /// it was EBUSY from then on, and what was written to it did not show.
    what_is_sent_to_another_file_can_be_published: runs sends;
    /// After a program had not started, what was stored to one mapping of a file without a name and published did not
    /// show in the other.
    mappings_of_a_file_that_is_gone_are_one: runs shares_what_is_gone;
    /// With `MAP_POPULATE` or `MAP_LOCKED`, and after `mlockall`, the kernel had copied the pages before they had the
    /// file's bytes: they showed zeros, and `msync` of a byte wrote those over the file.
    pages_that_are_there_at_once_have_the_files_bytes: runs populates;
    /// `msync` of a range of which something is not mapped published nothing.
    what_is_mapped_around_a_hole_is_published: runs publishes_around_a_hole;
}

/// That changes are lost was said before a call that failed, and not where a mapping came in the replica's place.
#[test]
fn what_is_lost_is_said() {
    let Some(said) = said("maps_over") else { return };
    let lost: Vec<&str> = said.lines().filter(|line| line.contains("discarded")).collect();
    assert!(matches!(lost[..], [line] if line.starts_with("novale: 2 pages")), "{said}");
}

/// What was stored to a mapping that `mremap` puts elsewhere, and makes shorter, went over what lies after it there. Of
/// what was put elsewhere its user was told that it was lost.
#[test]
fn what_moves_is_where_it_belongs() {
    let Some(said) = said("moves_on") else { return };
    let lost: Vec<&str> = said.lines().filter(|line| line.contains("discarded")).collect();
    assert!(matches!(lost[..], [line] if line.starts_with("novale: 1 pages")), "{said}");
}

mod tasks {
    use std::ffi::CString;
    use std::fs::{self, File};
    use std::io::Write;
    use std::os::fd::{AsFd, AsRawFd};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::harness::exits_with;
    use super::harness::replicas::{PAGE, by_a_child, byte, map, mapped, path, publish, seek};

    #[test]
    #[ignore = "a task of another test"]
    fn gives_up() {
        let (file, map) = mapped(3);
        let at = map.as_mut_ptr();
        let advise = |at: *mut u8, len, advice| unsafe { libc::madvise(at.cast(), len, advice) };
        map[PAGE] = b'x';
        assert_eq!(advise(at, 3 * PAGE, libc::MADV_DONTNEED), 0);
        assert_eq!(map[PAGE], b'x');
        let part = libc::iovec { iov_base: at.cast(), iov_len: 3 * PAGE };
        let myself = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
        for advice in [libc::MADV_DONTNEED, libc::MADV_DONTFORK] {
            let call = libc::SYS_process_madvise;
            assert_eq!(unsafe { libc::syscall(call, myself, &raw const part, 1, advice, 0) }, -1);
        }
        assert_eq!(map[PAGE], b'x');
        publish(map);
        assert_eq!(byte(&file, PAGE), b'x');
        assert_eq!(advise(at, PAGE, libc::MADV_DONTFORK), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
        // What lies beside it is given up.
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        let flags = flags | libc::MAP_ANONYMOUS;
        let other = unsafe { libc::mmap(std::ptr::null_mut(), 3 * PAGE, access, flags, -1, 0) };
        let other = other.cast::<u8>();
        unsafe { other.write_bytes(9, 3 * PAGE) };
        let (middle, to) = (unsafe { other.add(PAGE) }, libc::MAP_SHARED | libc::MAP_FIXED);
        let fd = file.as_raw_fd();
        unsafe { assert_eq!(libc::mmap(middle.cast(), PAGE, access, to, fd, 0), middle.cast()) };
        unsafe { middle.write(8) };
        assert_eq!(advise(other, 3 * PAGE, libc::MADV_DONTNEED), 0);
        let left = [0, PAGE, 2 * PAGE].map(|at| unsafe { other.add(at).read_volatile() });
        assert_eq!(left, [0, 8, 0]);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn parts_ways() {
        let (file, map) = mapped(3);
        map[0] = b'a';
        publish(map);
        map[2 * PAGE] = b'n';
        let child = unsafe { libc::fork() };
        if child == 0 {
            let written = file.write_all_at(b"X", 100).is_ok();
            let shows = (map[0], map[PAGE], map[100], map[2 * PAGE]) == (b'a', 7, b'X', b'n');
            unsafe { libc::_exit(i32::from(!written || !shows)) };
        }
        assert_eq!(exits_with(child), 0);
        map[1] = b'b';
        publish(map);
        assert_eq!([0, 1, 100].map(|at| byte(&file, at)), [b'a', b'b', b'X']);
        // The other way round: what the parent has written since is no change of the child's.
        let (mut ends, mut told) = ([0; 2], [0_u8]);
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        let child = unsafe { libc::fork() };
        if child == 0 {
            let told = unsafe { libc::read(ends[0], told.as_mut_ptr().cast(), 1) } == 1;
            map[PAGE + 1] = b'c';
            let synced = unsafe { libc::msync(map.as_mut_ptr().cast(), map.len(), libc::MS_SYNC) };
            unsafe { libc::_exit(i32::from(!told || synced != 0)) };
        }
        file.write_all_at(b"Y", PAGE as u64 + 200).unwrap();
        assert_eq!(unsafe { libc::write(ends[1], c"".as_ptr().cast(), 1) }, 1);
        assert_eq!(exits_with(child), 0);
        assert_eq!([PAGE + 1, PAGE + 200].map(|at| byte(&file, at)), [b'c', b'Y']);
    }

    /// A program that the kernel does not know.
    fn starts_in_vain() {
        let program = path("program");
        fs::write(&program, "no program").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let name = CString::new(program.as_os_str().as_bytes()).unwrap();
        let words = [name.as_ptr(), std::ptr::null()];
        assert_eq!(unsafe { libc::execv(name.as_ptr(), words.as_ptr()) }, -1);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn outlives_its_file() {
        let (file, map) = mapped(1);
        let number = file.metadata().unwrap().ino();
        drop(file);
        fs::remove_file(path("file")).unwrap();
        starts_in_vain();
        let made = |name: u32| {
            let other = path(&name.to_string());
            fs::write(&other, [8; PAGE]).unwrap();
            File::options().read(true).write(true).open(other).unwrap()
        };
        let mut others = (0..1000).map(made);
        let other = others.find(|file| file.metadata().unwrap().ino() == number).unwrap();
        other.write_all_at(b"o", 1).unwrap();
        assert_eq!((map[0], map[1]), (7, 7));
        map[0] = b'm';
        publish(map);
        assert_eq!((map[0], byte(&other, 0), byte(&other, 1)), (b'm', 8, b'o'));
    }

    fn protect(map: &[u8], access: i32) {
        let at = map.as_ptr().cast_mut().cast();
        assert_eq!(unsafe { libc::mprotect(at, map.len(), access) }, 0);
    }

    /// Gives a mapping another length, wherever it is then.
    fn moves<'a>(map: &mut [u8], len: usize) -> &'a mut [u8] {
        let (at, moves) = (map.as_mut_ptr().cast(), libc::MREMAP_MAYMOVE);
        let at = unsafe { libc::mremap(at, map.len(), len, moves) };
        assert_ne!(at, libc::MAP_FAILED);
        unsafe { std::slice::from_raw_parts_mut(at.cast(), len) }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn protects() {
        let all = libc::PROT_READ | libc::PROT_WRITE;
        let (file, map) = mapped(2);
        for access in [libc::PROT_READ, libc::PROT_NONE] {
            map[0] = b'a';
            publish(map);
            protect(map, access);
            file.write_all_at(b"b", 0).unwrap();
            publish(map);
            assert_eq!(byte(&file, 0), b'b');
            protect(map, all);
            assert_eq!(map[0], b'b');
            map[PAGE] = b'c';
            protect(map, access);
            publish(map);
            assert_eq!(byte(&file, PAGE), b'c');
            protect(map, all);
            file.write_all_at(&[7], PAGE as u64).unwrap();
            assert_eq!(map[PAGE], 7);
        }
        map[1] = b'm';
        protect(map, libc::PROT_READ);
        let map = moves(map, 3 * PAGE);
        assert_eq!((map[0], map[1]), (b'b', b'm'));
        publish(map);
        assert_eq!(byte(&file, 1), b'm');
    }

    #[test]
    #[ignore = "a task of another test"]
    fn moves_on() {
        let (file, map) = mapped(3);
        map[0] = b'a';
        map[2 * PAGE] = b'c';
        let map = moves(map, 4 * PAGE);
        assert_eq!((map[0], map[2 * PAGE]), (b'a', b'c'));
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        let flags = flags | libc::MAP_ANONYMOUS;
        let there = unsafe { libc::mmap(std::ptr::null_mut(), 4 * PAGE, access, flags, -1, 0) };
        let (at, flags) = (map.as_mut_ptr().cast(), libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
        assert_eq!(unsafe { libc::mremap(at, 4 * PAGE, PAGE, flags, there) }, there);
        let there = unsafe { std::slice::from_raw_parts_mut(there.cast::<u8>(), 4 * PAGE) };
        assert_eq!((there[0], there[2 * PAGE]), (b'a', 0));
        publish(&mut there[..PAGE]);
        assert_eq!([0, 2 * PAGE].map(|at| byte(&file, at)), [b'a', 7]);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn keeps_to_itself() {
        let (file, shared) = mapped(2);
        let own = map(&file, libc::MAP_PRIVATE, 2 * PAGE);
        own[0] = b'o';
        for at in [1, PAGE + 1] {
            file.write_all_at(b"w", at as u64).unwrap();
        }
        for at in [2, PAGE + 2] {
            shared[at] = b's';
        }
        publish(shared);
        assert_eq!([0, 1, 2].map(|at| own[at]), [b'o', 7, 7]);
        assert_eq!([0, 1, 2].map(|at| own[PAGE + at]), [7, b'w', b's']);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn cuts_off() {
        let (file, _) = mapped(3);
        let own = map(&file, libc::MAP_PRIVATE, 3 * PAGE);
        for is_locked in [false, true] {
            if is_locked {
                assert_eq!(unsafe { libc::mlock(own.as_ptr().cast(), own.len()) }, 0);
            }
            for page in 0..3 {
                own[page * PAGE + 200] = b'o';
            }
            file.set_len(PAGE as u64 + 100).unwrap();
            file.set_len(3 * PAGE as u64).unwrap();
            file.write_all_at(b"w", 2 * PAGE as u64).unwrap();
            let found = [200, PAGE + 200, 2 * PAGE, 2 * PAGE + 200].map(|at| own[at]);
            assert_eq!(found, [b'o', b'o', b'w', 0]);
            limits_sizes();
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn maps_while_it_is_written() {
        const LEN: usize = 256 * PAGE;
        let (file, first) = mapped(LEN / PAGE);
        let unmap = |map: &mut [u8]| unsafe { libc::munmap(map.as_mut_ptr().cast(), map.len()) };
        assert_eq!(unmap(first), 0);
        for round in 0..200 {
            if round == 100 {
                limits_sizes();
            }
            let (written, is_mapped) = (AtomicUsize::new(0), AtomicBool::new(false));
            let map = std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_mapped.load(Ordering::Relaxed) {
                        let turn = written.fetch_add(1, Ordering::Relaxed);
                        let byte = u8::try_from((round + turn * PAGE / LEN) % 256).unwrap();
                        file.write_all_at(&[byte], (turn * PAGE % LEN) as u64).unwrap();
                    }
                });
                while written.load(Ordering::Relaxed) < 2 {
                    std::thread::yield_now();
                }
                let map = map(&file, libc::MAP_SHARED, LEN);
                is_mapped.store(true, Ordering::Relaxed);
                map
            });
            let is_missed = |at: &usize| map[*at] != byte(&file, *at);
            assert_eq!((0..LEN).step_by(PAGE).find(is_missed), None);
            assert_eq!(unmap(map), 0);
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn populates() {
        let (file, first) = mapped(3);
        let shows = |flags: i32| {
            for kind in [libc::MAP_PRIVATE, libc::MAP_SHARED] {
                let map = map(&file, kind | flags, 4 * PAGE);
                assert!(map[..3 * PAGE].iter().all(|byte| *byte == 7), "{kind} {flags:x}");
                map[PAGE] = 8;
                assert_eq!(byte(&file, PAGE), 7, "no replica: {kind} {flags:x}");
                map[PAGE] = 7;
                publish(map);
                assert_eq!(fs::read(path("file")).unwrap(), [7; 3 * PAGE], "{kind} {flags:x}");
                unsafe { libc::munmap(map.as_mut_ptr().cast(), map.len()) };
            }
        };
        for flags in [0, libc::MAP_POPULATE, libc::MAP_LOCKED] {
            shows(flags);
            shows(flags | libc::MAP_NORESERVE);
        }
        // Behind the end of the file there is nothing to copy yet.
        for (page, flags) in [(4, libc::MAP_POPULATE), (6, libc::MAP_LOCKED)] {
            let map = map(&file, libc::MAP_PRIVATE | flags, 7 * PAGE);
            file.write_all_at(&[9; PAGE], (page * PAGE) as u64).unwrap();
            assert_eq!([(page - 1) * PAGE, page * PAGE].map(|at| map[at]), [0, 9]);
        }
        // With what is stored, too.
        first[2 * PAGE] = 8;
        assert_eq!(unsafe { libc::mlockall(libc::MCL_FUTURE) }, 0);
        let grown = moves(first, 5 * PAGE);
        assert_eq!([0, PAGE, 2 * PAGE, 4 * PAGE].map(|at| grown[at]), [7, 7, 8, 9]);
        publish(grown);
        assert_eq!([0, PAGE, 2 * PAGE].map(|at| byte(&file, at)), [7, 7, 8]);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn publishes_around_a_hole() {
        let (file, map) = mapped(3);
        let at = map.as_mut_ptr();
        assert_eq!(unsafe { libc::munmap(at.byte_add(PAGE).cast(), PAGE) }, 0);
        (map[5], map[2 * PAGE]) = (b'a', b'b');
        assert_eq!(unsafe { libc::msync(at.cast(), 3 * PAGE, libc::MS_SYNC) }, -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOMEM));
        assert_eq!([5, PAGE, 2 * PAGE].map(|at| byte(&file, at)), [b'a', 7, b'b']);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn maps_over() {
        let (file, map) = mapped(2);
        (map[0], map[PAGE]) = (b'a', b'b');
        let (at, access) = (map.as_mut_ptr().cast(), libc::PROT_READ | libc::PROT_WRITE);
        // Neither shared nor private.
        let flags = libc::MAP_FIXED | libc::MAP_ANONYMOUS;
        assert_eq!(unsafe { libc::mmap(at, PAGE, access, flags, -1, 0) }, libc::MAP_FAILED);
        let (flags, fd) = (libc::MAP_FIXED | libc::MAP_SHARED, file.as_raw_fd());
        assert_eq!(unsafe { libc::mmap(at, 2 * PAGE, access, flags, fd, 0) }, at);
        assert_eq!((map[0], map[PAGE]), (7, 7));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn maps_twice() {
        let (file, both) = mapped(2);
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        for page in both.chunks_mut(PAGE) {
            let (at, fd) = (page.as_mut_ptr().cast(), file.as_raw_fd());
            let mapped = unsafe { libc::mmap(at, PAGE, access, flags | libc::MAP_FIXED, fd, 0) };
            assert_eq!(mapped, at);
        }
        both[10] = b'a';
        both[PAGE] = b'b';
        both[PAGE + 20] = b'b';
        publish(both);
        assert_eq!([0, 10, 20].map(|at| byte(&file, at)), [b'b', b'a', b'b']);
        assert_eq!([0, 10, 20].map(|at| both[at]), [b'b', b'a', b'b']);
        assert_eq!([0, 10, 20].map(|at| both[PAGE + at]), [b'b', b'a', b'b']);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn changes_around() {
        let (file, map) = mapped(2);
        let around = |map: &mut [u8], byte: u8| {
            (map[50], map[150]) = (byte, byte);
            by_a_child(|| file.write_all_at(&[byte; 2], 100).is_ok());
        };
        around(map, b'a');
        publish(map);
        assert_eq!([50, 100, 101, 150].map(|at| byte(&file, at)), [b'a'; 4]);
        around(map, b'b');
        let map = moves(map, 3 * PAGE);
        assert_eq!([50, 100, 101, 150].map(|at| map[at]), [b'b'; 4]);
        publish(map);
        assert_eq!([50, 100, 101, 150].map(|at| byte(&file, at)), [b'b'; 4]);
    }

    /// Writes a byte at each place by one of the calls that have the position, or an offset.
    fn writes_in_each_way(file: &File, source: &File) {
        let (fd, from) = (file.as_raw_fd(), source.as_raw_fd());
        let nowhere = std::ptr::null_mut::<i64>();
        let part = libc::iovec { iov_base: c"8".as_ptr().cast_mut().cast(), iov_len: 1 };
        let ends = pipe_of(b"88");
        let (mut start, mut to) = (0_i64, 102_i64);
        unsafe {
            seek(file, 100);
            assert_eq!(libc::write(fd, part.iov_base, 1), 1);
            assert_eq!(libc::writev(fd, &raw const part, 1), 1);
            assert_eq!(libc::copy_file_range(from, &raw mut start, fd, &raw mut to, 1, 0), 1);
            seek(file, 103);
            assert_eq!(libc::copy_file_range(from, &raw mut start, fd, nowhere, 1, 0), 1);
            assert_eq!(libc::sendfile(fd, from, &raw mut start, 1), 1);
            assert_eq!(libc::splice(ends[0], nowhere, fd, nowhere, 1, 0), 1);
            to = 106;
            assert_eq!(libc::splice(ends[0], nowhere, fd, &raw mut to, 1, 0), 1);
            assert_eq!(libc::pwrite(fd, part.iov_base, 1, 107), 1);
            assert_eq!(libc::pwritev(fd, &raw const part, 1, 108), 1);
            for end in ends {
                assert_eq!(libc::close(end), 0);
            }
        }
    }

    /// A pipe with bytes in it.
    fn pipe_of(bytes: &[u8]) -> [i32; 2] {
        let mut ends = [0; 2];
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        let put = unsafe { libc::write(ends[1], bytes.as_ptr().cast(), bytes.len()) };
        assert_eq!(put, bytes.len().cast_signed());
        ends
    }

    #[test]
    #[ignore = "a task of another test"]
    fn writes_by_the_kernel() {
        let (file, _) = mapped(2);
        let map = map(&file, libc::MAP_SHARED, 3 * PAGE);
        fs::write(path("source"), [b'8'; 100]).unwrap();
        let source = File::open(path("source")).unwrap();
        let end = File::options().append(true).open(path("file")).unwrap();
        by_a_child(|| true);
        let (append, mut size) = (end.as_raw_fd(), 2 * PAGE);
        for round in 0..2 {
            map[105] = b'o';
            writes_in_each_way(&file, &source);
            assert_eq!(map[100..109], [b'8'; 9], "{round}");
            assert_eq!(unsafe { libc::write(append, c"8".as_ptr().cast(), 1) }, 1);
            assert_eq!(map[size], b'8', "{round}");
            size += 1;
            map[50] = b'a';
            map[150] = b'b';
            publish(map);
            assert_eq!((100..109).map(|at| byte(&file, at)).collect::<Vec<_>>(), [b'8'; 9]);
            file.write_all_at(&[7; 9], 100).unwrap();
            assert_eq!(map[100..109], [7; 9]);
            limits_sizes();
        }
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        assert_eq!(allocates(&file, punch, PAGE, 100), 0);
        assert_eq!((map[PAGE - 1], map[PAGE], map[PAGE + 99], map[PAGE + 100]), (7, 0, 0, 7));
        file.set_len(PAGE as u64 + 200).unwrap();
        assert_eq!((map[PAGE + 199], map[PAGE + 200], map[2 * PAGE]), (7, 0, 0));
    }

    /// From here on the kernel has a say in all that is written.
    fn limits_sizes() {
        let most = libc::rlimit { rlim_cur: 1 << 30, rlim_max: libc::RLIM_INFINITY };
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const most) }, 0);
    }

    fn allocates(file: &File, mode: i32, start: usize, len: usize) -> i32 {
        let [start, len] = [start, len].map(|place| place.cast_signed() as i64);
        unsafe { libc::fallocate(file.as_raw_fd(), mode, start, len) }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn makes_room() {
        const KEEPS: i32 = libc::FALLOC_FL_KEEP_SIZE;
        const PUNCHES: i32 = libc::FALLOC_FL_PUNCH_HOLE;
        let (file, _) = mapped(2);
        let map = map(&file, libc::MAP_SHARED, 6 * PAGE);
        let (fd, same) = (file.as_raw_fd(), File::open(path("file")).unwrap());
        for pages in [3, 5] {
            let stored = [100, PAGE + 50, PAGE + 200];
            for at in stored {
                map[at] = b's';
            }
            assert_eq!(allocates(&file, 0, 0, pages * PAGE), 0);
            assert_eq!(allocates(&file, KEEPS, 0, 2 * pages * PAGE), 0);
            assert_eq!(allocates(&file, PUNCHES, 0, PAGE), -1);
            file.set_len((pages + 1) as u64 * PAGE as u64).unwrap();
            let (mut from, mut to) = (1 << 20, 0);
            let (from, to) = (&raw mut from, &raw mut to);
            assert_eq!(
                unsafe { libc::copy_file_range(same.as_raw_fd(), from, fd, to, PAGE, 0) },
                0
            );
            assert_eq!(stored.map(|at| map[at]), [b's'; 3]);
            // What zeroes bytes takes those alone.
            assert_eq!(allocates(&file, PUNCHES | KEEPS, PAGE, 100), 0);
            assert_eq!(stored.map(|at| map[at]), [b's', 0, b's']);
            for moves in [libc::FALLOC_FL_COLLAPSE_RANGE, libc::FALLOC_FL_INSERT_RANGE] {
                assert_eq!(allocates(&file, moves, 0, PAGE), -1);
                assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBUSY));
            }
            publish(map);
            assert_eq!(stored.map(|at| byte(&file, at)), [b's', 0, b's']);
            file.write_all_at(&[7; 2 * PAGE], 0).unwrap();
            // What is cut off is gone.
            map[pages * PAGE] = b's';
            file.set_len((pages * PAGE) as u64).unwrap();
            file.set_len(((pages + 1) * PAGE) as u64).unwrap();
            assert_eq!(map[pages * PAGE], 0);
            file.set_len((pages * PAGE) as u64).unwrap();
            limits_sizes();
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn writes_by_one_position() {
        const WRITERS: u8 = 4;
        const TIMES: usize = 500;
        let (file, map) = mapped(4);
        by_a_child(|| true);
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let mut file = &file;
                scope.spawn(move || (0..TIMES).for_each(|_| file.write_all(&[writer; 8]).unwrap()));
            }
        });
        let differs = |at: &usize| map[*at] != byte(&file, *at);
        assert_eq!((0..4 * PAGE).find(differs), None);
        assert_eq!(byte(&file, 4 * TIMES * 8 - 1) / WRITERS, 0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn moves_others() {
        let (file, map) = mapped(2);
        fs::write(path("other"), [0; PAGE]).unwrap();
        let other = File::options().write(true).open(path("other")).unwrap();
        by_a_child(|| true);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    seek(&other, 100);
                    other.set_len(PAGE as u64).unwrap();
                    // Asked for it is not moved.
                    let fd = file.as_raw_fd();
                    assert!(unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) } >= 0);
                }
            });
            let is_missed = |turn: &usize| {
                let byte = u8::try_from(turn % 2).unwrap();
                map[100] = b's';
                seek(&file, 100);
                (&file).write_all(&[byte]).unwrap();
                map[100] != byte
            };
            let missed = (0..1000).filter(is_missed).count();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(missed, 0);
        });
    }

    #[test]
    #[ignore = "a task of another test"]
    fn sends() {
        let (file, from) = mapped(2);
        fs::write(path("other"), vec![0; 2 * PAGE]).unwrap();
        let other = File::options().read(true).write(true).open(path("other")).unwrap();
        let to = map(&other, libc::MAP_SHARED, 2 * PAGE);
        by_a_child(|| true);
        for round in 1..3 {
            seek(&other, 100 * round);
            let (out, fd, mut at) = (other.as_raw_fd(), file.as_raw_fd(), 0);
            assert_eq!(unsafe { libc::sendfile(out, fd, &raw mut at, 50) }, 50);
            let first = 100 * round;
            assert_eq!([0, 1, 50, 51].map(|at| to[first - 1 + at]), [0, 7, 7, 0]);
            file.write_all_at(b"w", 3000).unwrap();
            from[3001] = b's';
            publish(from);
            assert_eq!((from[3000], byte(&file, 3000), byte(&file, 3001)), (b'w', b'w', b's'));
            publish(to);
            limits_sizes();
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn shares_what_is_gone() {
        let (file, one) = mapped(1);
        let (other, own) =
            (map(&file, libc::MAP_SHARED, PAGE), map(&file, libc::MAP_PRIVATE, PAGE));
        drop(file);
        fs::remove_file(path("file")).unwrap();
        starts_in_vain();
        one[10] = b'a';
        other[20] = b'b';
        publish(one);
        assert_eq!((other[10], own[10]), (b'a', b'a'));
        publish(other);
        assert_eq!((one[20], own[20]), (b'b', b'b'));
        assert_eq!((one[10], other[20]), (b'a', b'b'));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn opens_meanwhile() {
        // Pages enough, and there, for the moment to be long.
        let (_file, map) = mapped(4096);
        assert!(map.iter().step_by(PAGE).all(|byte| *byte == 7));
        let open = || File::open(path("file")).unwrap();
        let lowest = open().as_raw_fd();
        let (begin, end) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..1000 {
                    begin.wait();
                    (0..round * 20).for_each(|_| std::hint::spin_loop());
                    drop(open());
                    end.wait();
                }
            });
            let differs = |_: &i32| {
                // No number is in stock from here on.
                drop(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
                begin.wait();
                publish(map);
                end.wait();
                open().as_raw_fd() != lowest
            };
            assert_eq!((0..1000).filter(differs).count(), 0);
        });
    }
}
