//! Promise: under `novale run --map=atomic` what the kernel writes for the process by a position that it shares shows in
//! its mappings, and what is stored elsewhere stays, whatever another thread does to that position.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
#![allow(clippy::indexing_slicing, reason = "what is missing is a failure")]

#[macro_use]
mod harness;

use std::process::Stdio;

use harness::support::program;
use harness::{PLACE, is_whole, library, mounted, succeeds};

const PAGE: usize = 4096;

/// Runs a task directly, with atomic mappings.
fn runs(name: &str) {
    let Some((scratch, slot)) = mounted(name) else { return };
    let mut command = std::process::Command::new(program());
    command.env("NOVALE_PRELOAD", library()).env(PLACE, scratch.dir()).stdin(Stdio::null());
    command.args(["run", "--strict", "--map", "atomic", "--mount", &scratch.dir(), "--"]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("tasks::{name}"), "--ignored", "--nocapture"]);
    let output = command.output().unwrap();
    succeeds(&output);
    is_whole(&scratch, &slot);
}

promises! {
    /// Where another thread was about to move a position when a write by it began, that was not seen: what was stored
    /// between the two places was lost where another process had written.
    what_is_stored_stays_where_positions_move: runs moves_while_it_writes;
    what_is_stored_stays_where_inherited_positions_move: runs hands_on;
    /// A signal's handler that wrote to a file while a call waited for what it was to write took away where that was: it
    /// did not show over stored bytes, and `msync` undid it.
    what_is_written_around_a_handler_shows: runs is_interrupted;
}

mod tasks {
    use std::fs::{self, File};
    use std::io::{Read, Write};
    use std::mem::ManuallyDrop;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::fs::FileExt;
    use std::os::unix::process::parent_id;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

    use super::harness::{PLACE, exits_with};
    use super::*;

    fn path(name: &str) -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap()).join(name)
    }

    fn map<'a>(file: &File, kind: i32, len: usize) -> &'a mut [u8] {
        let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, fd, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        unsafe { std::slice::from_raw_parts_mut(at.cast(), len) }
    }

    /// A file of so many pages of sevens, and a shared mapping of it.
    fn mapped<'a>(pages: usize) -> (File, &'a mut [u8]) {
        fs::write(path("file"), vec![7; pages * PAGE]).unwrap();
        let file = File::options().read(true).write(true).open(path("file")).unwrap();
        let map = map(&file, libc::MAP_SHARED, pages * PAGE);
        (file, map)
    }

    fn publish(map: &mut [u8]) {
        assert_eq!(unsafe { libc::msync(map.as_mut_ptr().cast(), map.len(), libc::MS_SYNC) }, 0);
    }

    fn byte(file: &File, at: usize) -> u8 {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at as u64).unwrap();
        byte[0]
    }

    /// Has a child do something.
    fn by_a_child(work: impl FnOnce() -> bool) {
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_done = work();
            unsafe { libc::_exit(i32::from(!is_done)) };
        }
        assert_eq!(exits_with(child), 0);
    }

    fn seek(file: &File, to: usize) {
        let to = to.cast_signed() as i64;
        assert_eq!(unsafe { libc::lseek(file.as_raw_fd(), to, libc::SEEK_SET) }, to);
    }

    /// A word that children share.
    fn shared_flag() -> &'static AtomicBool {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let flags = flags | libc::MAP_ANONYMOUS;
        let at = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, access, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        unsafe { AtomicBool::from_ptr(at.cast()) }
    }

    /// Has a child write other bytes all the time to a place of a file.
    fn while_another_writes(file: &File, at: u64, work: impl FnOnce()) {
        let (is_over, parent) = (shared_flag(), std::process::id());
        let child = unsafe { libc::fork() };
        if child == 0 {
            let goes_on = |_: &u8| !is_over.load(Ordering::Relaxed) && parent_id() == parent;
            let mut turns = (0..100).cycle().take_while(goes_on);
            let is_good = turns.all(|turn| file.write_all_at(&[turn], at).is_ok());
            unsafe { libc::_exit(i32::from(!is_good)) };
        }
        work();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(exits_with(child), 0);
    }

    /// Writes by a position that another thread moves on, over what is stored in between.
    fn writes_while_it_moves(file: &File, moves_on: impl Fn() + Sync) {
        let map = map(file, libc::MAP_SHARED, 2 * PAGE);
        map[300] = b's';
        let is_over = AtomicBool::new(false);
        let lost = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    moves_on();
                }
            });
            let is_lost = |turn: &usize| {
                seek(file, 50);
                let mut file = file;
                file.write_all(&[u8::try_from(100 + turn % 100).unwrap(); 4]).unwrap();
                map[300] != b's'
            };
            let lost = (0..2000).find(is_lost);
            is_over.store(true, Ordering::Relaxed);
            lost
        });
        assert_eq!(lost, None);
        let differs = |at: &usize| *at != 300 && map[*at] != byte(file, *at);
        assert_eq!((0..2 * PAGE).find(differs), None);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn moves_while_it_writes() {
        let (file, _) = mapped(2);
        while_another_writes(&file, 300, || {
            writes_while_it_moves(&file, || seek(&file, 400));
            writes_while_it_moves(&file, || _ = (&file).read(&mut [0; 350]).unwrap());
        });
    }

    #[test]
    #[ignore = "a task of another test"]
    fn hands_on() {
        let (file, _) = mapped(2);
        let mut task = std::process::Command::new(std::env::current_exe().unwrap());
        task.args(["--exact", "tasks::has_inherited", "--ignored", "--nocapture"]);
        task.stdin(file.try_clone().unwrap()).stderr(file.try_clone().unwrap());
        while_another_writes(&file, 300, || assert!(task.status().unwrap().success()));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn has_inherited() {
        let [one, other] = [0, 2].map(|fd| ManuallyDrop::new(unsafe { File::from_raw_fd(fd) }));
        writes_while_it_moves(&one, || seek(&other, 400));
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
            let call = fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).unwrap();
            call.starts_with(&format!("{number} "))
        };
        assert!((0..1_000_000).find(is_in_it).is_some());
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
        let mut ends = [0; 2];
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
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
                assert_eq!(unsafe { libc::write(ends[1], c"8".as_ptr().cast(), 1) }, 1);
            });
            let nowhere = std::ptr::null_mut::<i64>();
            let moved = unsafe { libc::splice(ends[0], nowhere, file.as_raw_fd(), nowhere, 1, 0) };
            assert_eq!(moved, 1);
        });
        assert_eq!((map[100], fs::read(path("other")).unwrap()), (b'8', b"h".to_vec()));
        publish(map);
        assert_eq!(byte(&file, 100), b'8');
    }
}
