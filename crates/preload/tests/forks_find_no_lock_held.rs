//! Promise: a child of fork does with files whatever its parent could, while the parent's threads were in the
//! middle of anything: what they had locked, they have not locked in the child.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

#[allow(unused_macros, reason = "its tests are written out")]
mod harness;

use harness::support::{Scratch, novale};
use harness::{is_whole, mounted, succeeds, task};

/// A thread was appending to a file, with its position locked, when another one forked: the child waited for
/// ever for a thread that only its parent had.
#[test]
fn children_of_a_storm_do_everything() {
    let Some((scratch, slot)) = mounted("children_of_a_storm") else { return };
    succeeds(&task(&scratch, "storm").output().unwrap());
    is_whole(&scratch, &slot);
}

/// The thread that forks or starts a program gave up after so many yields, an instant where nobody else wants
/// the processor: `execve` was EAGAIN.
#[test]
fn a_program_is_started_in_the_middle_of_a_long_write() {
    let Some(scratch) = Scratch::for_mount("in_the_middle_of_a_long_write") else { return };
    let slot = scratch.pool();
    novale(&["mount", "-o", "direct,device=dram:write=8000", &slot, &scratch.dir()]).ok();
    let said = succeeds(&task(&scratch, "starts_in_a_write").output().unwrap());
    assert!(said.contains("the next program"), "{said}");
    is_whole(&scratch, &slot);
}

/// On a handler's own stack all signals are blocked, which was taken for one that had come: the call began anew for ever.
#[test]
fn a_handler_on_a_stack_of_its_own_starts_a_program() {
    let Some((scratch, slot)) = mounted("a_handler_starts_a_program") else { return };
    succeeds(&task(&scratch, "starts_in_a_handler").output().unwrap());
    is_whole(&scratch, &slot);
}

/// What the process had left before each program that could not be started stayed with it: descriptors, the whole
/// pool once more in its address space, and a place among the clients, of which there are 512.
#[test]
fn what_starts_no_program_keeps_what_it_has() {
    let Some((scratch, slot)) = mounted("what_starts_no_program") else { return };
    succeeds(&task(&scratch, "starts_none").output().unwrap());
    is_whole(&scratch, &slot);
}

/// A file that was opened with `O_NONBLOCK` is handed to the kernel for the child, which refused to open it so: both lost
/// it for as long as the other process had its lease.
#[test]
fn a_child_has_a_file_that_another_process_has_a_lease_on() {
    let Some((scratch, slot)) = mounted("a_child_has_a_leased_file") else { return };
    succeeds(&task(&scratch, "leased").output().unwrap());
    is_whole(&scratch, &slot);
}

/// Such a child has its parent's descriptors until it uses a mount itself: where the parent was killed and the daemon
/// gone, nobody could open the pool for as long as it lived.
#[test]
fn a_child_that_outlives_its_parent_keeps_no_slot_locked() {
    let Some((scratch, slot)) = mounted("a_child_outlives_its_parent") else { return };
    let mut parent = task(&scratch, "is_outlived").stdin(Stdio::piped()).spawn().unwrap();
    // The child ends with it.
    let lives = parent.stdin.take();
    assert_eq!(parent.wait().unwrap().signal(), Some(libc::SIGKILL));
    novale(&["umount", "--force", &scratch.dir()]).ok();
    let checked = novale(&["check", &slot]);
    drop(lives);
    checked.ok();
}

mod tasks {
    use std::ffi::{CStr, CString};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::FileExt;
    use std::os::unix::process::CommandExt;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::harness::PLACE;

    const CHILDREN: usize = 16;
    /// Seconds after which a child that still runs is ended by a signal.
    const PATIENCE: u32 = 30;

    #[test]
    #[ignore = "a task of another test"]
    fn is_outlived() {
        std::fs::write(PathBuf::from(std::env::var_os(PLACE).unwrap()).join("file"), b"").unwrap();
        if unsafe { libc::fork() } == 0 {
            let mut byte = 0_u8;
            unsafe { libc::read(0, (&raw mut byte).cast(), 1) };
            unsafe { libc::_exit(0) };
        }
        unsafe { libc::raise(libc::SIGKILL) };
    }

    /// Whether a thread of the parent waits for a lease that is to be given back.
    fn parent_waits() -> bool {
        let threads = format!("/proc/{}/task", std::os::unix::process::parent_id());
        let waits = |thread: std::fs::DirEntry| {
            let at = std::fs::read_to_string(thread.path().join("wchan"));
            at.is_ok_and(|at| at.contains("lease"))
        };
        std::fs::read_dir(threads).unwrap().any(|thread| thread.is_ok_and(waits))
    }

    /// Takes a lease on a file when it is told to, says so, and gives it back when its parent waits for that, or tells it
    /// to.
    fn takes_lease(path: &CStr, [told, says]: [i32; 2]) -> ! {
        unsafe {
            let mut broken: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&raw mut broken, libc::SIGIO);
            libc::sigprocmask(libc::SIG_BLOCK, &raw const broken, std::ptr::null_mut());
            let mut byte = 0_u8;
            libc::read(told, (&raw mut byte).cast(), 1);
            let fd = libc::open(path.as_ptr(), libc::O_RDONLY);
            byte = u8::from(libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) == 0);
            libc::write(says, (&raw const byte).cast(), 1);
            let mut told = libc::pollfd { fd: told, events: libc::POLLIN, revents: 0 };
            while !parent_waits() && libc::poll(&raw mut told, 1, 1) == 0 {}
            libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK);
            libc::_exit(0);
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn leased() {
        let path = PathBuf::from(std::env::var_os(PLACE).unwrap()).join("leased");
        std::fs::write(&path, "hello").unwrap();
        let path = CString::new(path.into_os_string().into_encoded_bytes()).unwrap();
        let [go, taken] = [(); 2].map(|()| {
            let mut pair = [0; 2];
            assert_eq!(unsafe { libc::pipe(pair.as_mut_ptr()) }, 0);
            pair
        });
        let leaser = unsafe { libc::fork() };
        if leaser == 0 {
            takes_lease(&path, [go[0], taken[1]]);
        }
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_NONBLOCK) };
        let mut has_taken = 0_u8;
        unsafe {
            libc::write(go[1], b"x".as_ptr().cast(), 1);
            libc::read(taken[0], (&raw mut has_taken).cast(), 1);
        }
        let mut found = [0; 5];
        let mut reads = || unsafe {
            libc::pread(fd, found.as_mut_ptr().cast(), 5, 0) == 5 && found == *b"hello"
        };
        let child = unsafe { libc::fork() };
        if child == 0 {
            unsafe { libc::_exit(i32::from(!reads())) };
        }
        let mut status = 0;
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        let is_read = reads();
        unsafe {
            libc::write(go[1], b"x".as_ptr().cast(), 1);
            libc::waitpid(leaser, std::ptr::null_mut(), 0);
        }
        assert!(status == 0 && is_read, "{status} {is_read}");
        assert_eq!(flags & libc::O_NONBLOCK, libc::O_NONBLOCK);
        if has_taken == 0 {
            println!("skipped: a_child_has_a_leased_file: the kernel gives no lease");
        }
    }

    extern "C" fn starts_true(_: i32) {
        let (words, none) = ([c"true".as_ptr().cast_mut(), std::ptr::null_mut()], std::ptr::null());
        let (name, mut child) = (c"true".as_ptr(), 0);
        let (words, empty) = (words.as_ptr(), [std::ptr::null_mut()]);
        let made = unsafe {
            libc::posix_spawnp(&raw mut child, name, none, none.cast(), words, empty.as_ptr())
        };
        let mut status = 1;
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if (made, ended, status) != (0, child, 0) {
            unsafe { libc::_exit(1) };
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn starts_in_a_handler() {
        unsafe { libc::alarm(PATIENCE) };
        std::fs::write(PathBuf::from(std::env::var_os(PLACE).unwrap()).join("file"), b"").unwrap();
        let mut room = vec![0_u8; 64 << 10];
        let stack =
            libc::stack_t { ss_sp: room.as_mut_ptr().cast(), ss_flags: 0, ss_size: room.len() };
        assert_eq!(unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) }, 0);
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = starts_true as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
        for _ in 0..3 {
            unsafe { libc::raise(libc::SIGUSR1) };
        }
        // What was blocked there is not so behind it.
        let mut mask: libc::sigset_t = unsafe { std::mem::zeroed() };
        unsafe { libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask) };
        assert_eq!(unsafe { libc::sigismember(&raw const mask, libc::SIGTERM) }, 0);
    }

    /// What all threads and children have open, and names of each one's own.
    struct Files {
        log: i32,
        data: i32,
        big: Vec<u8>,
    }

    impl Files {
        /// Who appends empties the log now and then.
        fn empty_log(&self, kind: usize, turn: usize) {
            if kind == 0 && turn.is_multiple_of(50) {
                unsafe { libc::ftruncate(self.log, 0) };
            }
        }
    }

    fn open(path: &CStr, flags: i32) -> i32 {
        unsafe { libc::open(path.as_ptr(), flags | libc::O_CREAT, 0o644) }
    }

    /// One of all kinds of calls; false where it has failed.
    fn call(kind: usize, files: &Files, own: &[CString; 3]) -> bool {
        let (at, [one, other, folder]) = (files.big.as_ptr().cast(), own);
        let (mut buffer, mut start) = ([0_u8; 512], 0_i64);
        let to = buffer.as_mut_ptr().cast();
        let none = std::ptr::null_mut();
        unsafe {
            match kind % 16 {
                // Long ones are locked for long.
                0 => libc::write(files.log, at, files.big.len()) > 0,
                1 => libc::write(files.log, at, 6) == 6,
                2 => libc::pwrite(files.data, at, 4096, 8192) == 4096,
                3 => libc::pread(files.data, to, 512, 8192) >= 0,
                4 => libc::lseek(files.data, 0, libc::SEEK_END) >= 0,
                5 => libc::write(files.data, at, 100) == 100,
                6 => libc::lseek(files.data, 0, libc::SEEK_SET) == 0,
                7 => {
                    let made = libc::dup(files.log);
                    made >= 0 && libc::write(made, at, 6) == 6 && libc::close(made) == 0
                }
                8 => {
                    let fd = open(one, libc::O_RDWR);
                    let done = fd >= 0 && libc::write(fd, at, 5000) == 5000;
                    let from = &raw mut start;
                    let copied = libc::copy_file_range(files.data, from, fd, none, 4096, 0);
                    libc::close(fd);
                    done && copied >= 0
                }
                9 => {
                    libc::close(open(one, libc::O_RDWR));
                    libc::rename(one.as_ptr(), other.as_ptr()) == 0
                        && libc::unlink(other.as_ptr()) == 0
                }
                10 => {
                    let made = libc::mkdir(folder.as_ptr(), 0o755) == 0;
                    made && libc::rmdir(folder.as_ptr()) == 0
                }
                11 => {
                    let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
                    libc::fstat(files.data, found.as_mut_ptr()) == 0
                }
                12 => libc::ftruncate(files.data, 16384) == 0 && libc::fsync(files.data) == 0,
                13 => {
                    let name = c"user.storm".as_ptr();
                    libc::fsetxattr(files.data, name, at, 8, 0) == 0
                        && libc::fgetxattr(files.data, name, to, 512) == 8
                }
                14 => {
                    let dir = libc::open(c"/proc/self/fd".as_ptr(), libc::O_DIRECTORY);
                    libc::close(dir) == 0
                }
                _ => libc::sendfile(files.data, files.data, &raw mut start, 100) >= 0,
            }
        }
    }

    fn own(place: &std::path::Path, who: &str) -> [CString; 3] {
        ["one", "other", "folder"].map(|name| {
            CString::new(place.join(format!("{who} {name}")).as_os_str().as_bytes()).unwrap()
        })
    }

    #[test]
    #[ignore = "a task of another test"]
    fn storm() {
        static OVER: AtomicBool = AtomicBool::new(false);
        let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
        let path = |name: &str| CString::new(place.join(name).as_os_str().as_bytes()).unwrap();
        let files = Files {
            log: open(&path("log"), libc::O_WRONLY | libc::O_APPEND),
            data: open(&path("data"), libc::O_RDWR),
            big: vec![b'a'; 128 << 10],
        };
        let of_child = own(&place, "child");
        std::thread::scope(|scope| {
            for kind in 0..16 {
                let (files, own) = (&files, own(&place, &format!("thread {kind}")));
                scope.spawn(move || {
                    let more = || !OVER.load(Ordering::Relaxed);
                    for turn in (1..).take_while(|_| more()) {
                        let done = call(kind, files, &own);
                        assert!(done, "call {kind}: {}", std::io::Error::last_os_error());
                        files.empty_log(kind, turn);
                    }
                });
            }
            // Threads that begin and end all the time.
            scope.spawn(|| {
                while !OVER.load(Ordering::Relaxed) {
                    let brief = || scope.spawn(|| call(1, &files, &of_child)).join().unwrap();
                    assert!(brief());
                }
            });
            for number in 0..CHILDREN {
                let pid = unsafe { libc::fork() };
                if pid == 0 {
                    unsafe { libc::alarm(PATIENCE) };
                    let bad = (0..16).find(|kind| !call(*kind, &files, &of_child));
                    unsafe {
                        libc::_exit(bad.map_or(0, |kind| i32::try_from(kind + 1).unwrap_or(99)))
                    };
                }
                let mut status = 0;
                while unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid {}
                if status != 0 {
                    OVER.store(true, Ordering::Relaxed);
                }
                assert_eq!(status, 0, "child {number}");
            }
            OVER.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    #[ignore = "a task of another test"]
    fn starts_in_a_write() {
        static BEGUN: AtomicBool = AtomicBool::new(false);
        let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
        let file = std::fs::File::create_new(place.join("long")).unwrap();
        std::thread::spawn(move || {
            let bytes = vec![b'a'; 6 << 20];
            BEGUN.store(true, Ordering::Relaxed);
            file.write_all_at(&bytes, 0).unwrap();
        });
        while !BEGUN.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        let mut next = std::process::Command::new("echo");
        panic!("{}", next.arg("the next program").exec());
    }

    #[test]
    #[ignore = "a task of another test"]
    fn starts_none() {
        let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
        let file = std::fs::File::create(place.join("file")).unwrap();
        let path = place.join("none");
        std::fs::write(&path, b"not a program").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let has = || {
            let lines = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
            (std::fs::read_dir("/proc/self/fd").unwrap().count(), lines)
        };
        let paths = [&path, &place.join("nothing")];
        let paths = paths.map(|path| CString::new(path.as_os_str().as_bytes()).unwrap());
        let start = |path: &CString| {
            let words = [path.as_ptr(), std::ptr::null()];
            assert_eq!(unsafe { libc::execv(path.as_ptr(), words.as_ptr()) }, -1);
            file.write_all_at(b"goes on", 0).unwrap();
        };
        paths.iter().for_each(start);
        let before = has();
        for _ in 0..20 {
            paths.iter().for_each(start);
        }
        // The allocator's own mappings come and go beside them, one or two.
        let after = has();
        assert!(after.0 == before.0 && after.1 < before.1 + 10, "{before:?} {after:?}");
    }
}
