//! Promise: under `novale run --map=atomic` what the kernel writes for the process by a position that it shares shows in
//! its mappings.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
#![allow(clippy::indexing_slicing, reason = "what is missing is a failure")]

#[macro_use]
mod harness;

use harness::replicas::runs;

promises! {
    /// It did not where another thread moved another position of the file's, and `msync` undid it.
    what_is_written_beside_another_position_shows: runs moves_another;
    /// Nor did what was copied from another place of the same file.
    what_is_copied_within_a_file_shows: runs copies_within;
    /// A signal's handler that wrote to a file while a call waited for what it was to write took away where that was: it
    /// did not show over stored bytes, and `msync` undid it.
    what_is_written_around_a_handler_shows: runs is_interrupted;
    /// What a call wrote did not show over what was stored while it waited, and `msync` undid it, where the process had
    /// mapped its first file meanwhile.
    what_waits_for_who_maps_the_file_shows: runs maps_meanwhile;
}

mod tasks {
    use std::fs::{self, File};
    use std::io::{PipeReader, Read, Write, pipe};
    use std::os::fd::AsRawFd;
    use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

    use super::harness::is_in_call;
    use super::harness::replicas::{PAGE, by_a_child, byte, map, mapped, path, publish, seek};

    #[test]
    #[ignore = "a task of another test"]
    fn moves_another() {
        let (file, map) = mapped(2);
        let other = File::open(path("file")).unwrap();
        by_a_child(|| true);
        let is_over = AtomicBool::new(false);
        let unseen = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    (&other).read_exact(&mut [0; 350]).unwrap();
                    seek(&other, 0);
                }
            });
            let is_unseen = |turn: &usize| {
                let written = u8::try_from(turn % 100).unwrap();
                map[100] = b's';
                seek(&file, 100);
                (&file).write_all(&[written]).unwrap();
                map[100] != written
            };
            let unseen = (0..2000).find(is_unseen);
            is_over.store(true, Ordering::Relaxed);
            unseen
        });
        assert_eq!(unseen, None);
        publish(map);
        assert_eq!(byte(&file, 100), map[100]);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn copies_within() {
        let (from, map) = mapped(2);
        let to = File::options().write(true).open(path("file")).unwrap();
        by_a_child(|| true);
        map[100..103].fill(b's');
        seek(&to, 100);
        let (from_fd, fd, none) = (from.as_raw_fd(), to.as_raw_fd(), std::ptr::null_mut());
        assert_eq!(unsafe { libc::copy_file_range(from_fd, none, fd, none, 4, 0) }, 4);
        assert_eq!(map[100..104], [7; 4]);
        publish(map);
        assert_eq!(byte(&from, 100), 7);
    }

    static HANDLERS_FILE: AtomicI32 = AtomicI32::new(0);

    extern "C" fn handles(_: i32) {
        let fd = HANDLERS_FILE.swap(-1, Ordering::Relaxed);
        unsafe { libc::write(fd, c"h".as_ptr().cast(), 1) };
    }

    /// Waits until a thread is in a call of the kernel's.
    fn wait_for_call(thread: i32, number: i64) {
        let is_in_it = |_: &usize| {
            std::thread::yield_now();
            is_in_call(thread, number)
        };
        assert!((0..1_000_000).find(is_in_it).is_some());
    }

    /// Waits for a byte from a pipe, and moves it to a file.
    fn move_byte(from: &PipeReader, to: &File) {
        let (from, to, nowhere) = (from.as_raw_fd(), to.as_raw_fd(), std::ptr::null_mut());
        assert_eq!(unsafe { libc::splice(from, nowhere, to, nowhere, 1, 0) }, 1);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn is_interrupted() {
        let (file, map) = mapped(1);
        let other = File::create(path("other")).unwrap();
        by_a_child(|| true);
        HANDLERS_FILE.store(other.as_raw_fd(), Ordering::Relaxed);
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handles as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        let taken =
            unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
        assert_eq!(taken, 0);
        let (out, mut into) = pipe().unwrap();
        map[100] = b's';
        seek(&file, 100);
        let thread = unsafe { libc::gettid() };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                wait_for_call(thread, libc::SYS_splice);
                let (call, process) = (libc::SYS_tgkill, std::process::id());
                assert_eq!(unsafe { libc::syscall(call, process, thread, libc::SIGUSR1) }, 0);
                while HANDLERS_FILE.load(Ordering::Relaxed) >= 0 {
                    std::thread::yield_now();
                }
                wait_for_call(thread, libc::SYS_splice);
                into.write_all(b"8").unwrap();
            });
            move_byte(&out, &file);
        });
        assert_eq!((map[100], fs::read(path("other")).unwrap()), (b'8', b"h".to_vec()));
        publish(map);
        assert_eq!(byte(&file, 100), b'8');
    }

    #[test]
    #[ignore = "a task of another test"]
    fn maps_meanwhile() {
        fs::write(path("file"), [7; PAGE]).unwrap();
        let file = File::options().read(true).write(true).open(path("file")).unwrap();
        by_a_child(|| true);
        seek(&file, 100);
        let (out, mut into) = pipe().unwrap();
        let thread = unsafe { libc::gettid() };
        let map = std::thread::scope(|scope| {
            let mapper = scope.spawn(|| {
                wait_for_call(thread, libc::SYS_splice);
                let map = map(&file, libc::MAP_SHARED, PAGE);
                map[100] = b's';
                into.write_all(b"8").unwrap();
                map
            });
            move_byte(&out, &file);
            mapper.join().unwrap()
        });
        assert_eq!(map[100], b'8');
        publish(map);
        assert_eq!(byte(&file, 100), b'8');
    }
}
