//! Promise: a thread that sleeps on a futex in a file's own pages is reached by who wakes it, however it sleeps, when
//! another program maps the file through the mount; and where a process can't look at its own threads, it has no
//! own pages mapped.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::indexing_slicing, reason = "what is missing is a failure")]

#[macro_use]
mod harness;

use std::process::Command;

use harness::support::program;
use harness::{PLACE, is_whole, library, maps_own_pages, mounted, succeeds};

promises! {
    /// The kernel refuses to wake who waits for a lock with priority inheritance, and its other calls were not known.
    who_sleeps_in_any_call_is_found: maps_own_pages sleeps;
    /// What a thread is sent so that it makes its call anew is no signal of the program's.
    nobody_sees_how: maps_own_pages sleeps_with_signals;
    /// The kernel shows a process that has changed its user nothing of its threads, so that none were woken.
    who_has_become_another_user_has_no_own_pages: maps_own_pages becomes_another_user;
    /// There is no `/proc`.
    who_has_another_root_has_no_own_pages: maps_own_pages changes_its_root;
}

#[test]
fn why_it_has_none_is_told() {
    let Some((scratch, slot)) = mounted("why_it_has_none") else { return };
    let mut command = Command::new(program());
    command.env("NOVALE_PRELOAD", library()).env(PLACE, scratch.dir());
    command.args(["run", "--strict", "--report", "--map=dax", "--mount", &scratch.dir(), "--"]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", "tasks::changes_its_root", "--ignored", "--nocapture"]);
    let output = command.output().unwrap();
    succeeds(&output);
    let said = String::from_utf8_lossy(&output.stderr);
    let is_told = |line: &str| line.starts_with("mmap") && line.ends_with("could not be found");
    assert!(said.lines().any(is_told), "{said}");
    is_whole(&scratch, &slot);
}

mod tasks {
    #![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
    #![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

    use std::fs::{self, File};
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};
    use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
    use std::thread::JoinHandle;

    use super::PLACE;
    use super::harness::support::eventually;
    use super::harness::{block_all_signals, is_in_call};

    const LEN: usize = 8192;
    /// Where the second word is, in another page.
    const SECOND: usize = 1024 + 8;
    const OTHER_USER: u32 = 1001;
    const FUTEX_LOCK_PI2: i32 = 13;
    const FUTEX_WAITV: i64 = 449;
    const FUTEX_WAIT: i64 = 455;
    /// Words of 32 bits.
    const FUTEX2_U32: u32 = 2;

    #[repr(C)]
    struct Waited {
        value: u64,
        at: u64,
        flags: u32,
        reserved: u32,
    }

    fn place() -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap())
    }

    /// A file of zeroes that anybody may use.
    fn made(name: &str) -> File {
        let path = place().join(name);
        fs::write(&path, [0; LEN]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        File::options().read(true).write(true).open(path).unwrap()
    }

    fn map(file: &File) -> &'static [AtomicU32] {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let none = std::ptr::null_mut();
        let at = unsafe { libc::mmap(none, LEN, access, flags, file.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED);
        unsafe { std::slice::from_raw_parts(at.cast(), LEN / 4) }
    }

    /// Whether a mapping shows the file's own pages.
    fn is_own(words: &[AtomicU32]) -> bool {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let start = format!("{:x}-", words.as_ptr() as usize);
        let line = maps.lines().find(|line| line.starts_with(&start)).unwrap();
        !line.contains(place().to_str().unwrap()) && !line.contains("/.novale/")
    }

    /// Another program, which is to map a file through the mount.
    struct Mapper(Child);

    impl Mapper {
        fn new(name: &str) -> Self {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.env("NOVALE_DIRECT", "").env("NOVALE_TEST_FILE", name);
            command.args(["--exact", "tasks::looks", "--ignored", "--nocapture"]);
            let pipes = command.stdin(Stdio::piped()).stdout(Stdio::null());
            Self(pipes.spawn().unwrap())
        }

        fn maps(mut self) {
            self.0.stdin.take().unwrap().write_all(b"\n").unwrap();
            assert!(self.0.wait().unwrap().success());
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn looks() {
        std::io::stdin().read_exact(&mut [0]).unwrap();
        let name = std::env::var("NOVALE_TEST_FILE").unwrap();
        let file = File::options().read(true).write(true).open(place().join(name)).unwrap();
        let words = map(&file);
        assert_eq!(words[1].load(Ordering::Relaxed), 0);
        assert!(!is_own(words));
    }

    /// A thread that does something, which ends in a call that sleeps.
    fn asleep<T: Send + 'static>(
        number: i64,
        sleeps: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        static THREAD: AtomicI32 = AtomicI32::new(0);
        THREAD.store(0, Ordering::Release);
        let sleeper = std::thread::spawn(move || {
            THREAD.store(unsafe { libc::gettid() }, Ordering::Release);
            sleeps()
        });
        let sleeps = || {
            let thread = THREAD.load(Ordering::Acquire);
            thread != 0 && is_in_call(thread, number)
        };
        assert!(eventually(sleeps));
        sleeper
    }

    fn ends<T>(sleeper: JoinHandle<T>, how: &str) -> T {
        assert!(eventually(|| sleeper.is_finished()), "{how}: it sleeps on");
        sleeper.join().unwrap()
    }

    fn futex(word: &AtomicU32, operation: i32, value: u32) -> i64 {
        let none = std::ptr::null::<libc::timespec>();
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, none) }
    }

    /// One that another thread has put to sleep on a word until it is not 0, by a call of the kernel's.
    fn waits(number: i64, words: &'static [AtomicU32]) {
        let (first, second) = (&words[0], &words[SECOND]);
        let listed = |word: &AtomicU32| {
            let at = word.as_ptr() as u64;
            Waited { value: 0, at, flags: FUTEX2_U32, reserved: 0 }
        };
        let sleeper = asleep(number, move || {
            let both = [listed(first), listed(second)];
            while second.load(Ordering::Acquire) == 0 {
                let (none, clock) = (std::ptr::null::<libc::timespec>(), libc::CLOCK_MONOTONIC);
                match number {
                    FUTEX_WAITV => unsafe {
                        libc::syscall(number, both.as_ptr(), both.len(), 0, none, clock)
                    },
                    FUTEX_WAIT => unsafe {
                        let flags = FUTEX2_U32;
                        libc::syscall(number, second.as_ptr(), 0_u64, 1_u64, flags, none, clock)
                    },
                    _ => futex(second, libc::FUTEX_WAIT, 0),
                };
            }
        });
        gives_way(words);
        second.store(1, Ordering::Release);
        futex(second, libc::FUTEX_WAKE, 1);
        ends(sleeper, &number.to_string());
    }

    /// One that waits for a lock with priority inheritance that this thread has.
    fn waits_for_lock(operation: i32, words: &'static [AtomicU32]) {
        let lock = &words[SECOND];
        assert_eq!(futex(lock, libc::FUTEX_LOCK_PI, 0), 0);
        let sleeper = asleep(libc::SYS_futex, move || {
            // As in a thread that is to handle none.
            block_all_signals();
            assert_eq!(futex(lock, operation, 0), 0);
            assert_eq!(futex(lock, libc::FUTEX_UNLOCK_PI, 0), 0);
        });
        gives_way(words);
        assert_eq!(futex(lock, libc::FUTEX_UNLOCK_PI, 0), 0);
        ends(sleeper, "lock");
        assert_eq!(lock.load(Ordering::Relaxed), 0);
    }

    /// One that waits for a condition with such a lock.
    fn waits_for_condition(words: &'static [AtomicU32]) {
        let (condition, lock) = (&words[SECOND], &words[SECOND + 8]);
        let call = |operation: i32, value: u32, third: usize, value3: u32| unsafe {
            let at = condition.as_ptr();
            libc::syscall(libc::SYS_futex, at, operation, value, third, lock.as_ptr(), value3)
        };
        let sleeper = asleep(libc::SYS_futex, move || call(libc::FUTEX_WAIT_REQUEUE_PI, 0, 0, 0));
        gives_way(words);
        // It may be on its way back.
        assert!(eventually(|| call(libc::FUTEX_CMP_REQUEUE_PI, 1, 0, 0) == 1));
        assert_eq!(ends(sleeper, "condition"), 0);
    }

    /// Has the mapping give way to another program's, and sees that it has.
    fn gives_way(words: &[AtomicU32]) {
        assert!(is_own(words));
        Mapper::new("file").maps();
        assert!(!is_own(words));
    }

    /// A mapping of a new file.
    fn anew() -> &'static [AtomicU32] {
        fs::remove_file(place().join("file")).unwrap_or_default();
        map(&made("file"))
    }

    /// Whether the kernel has a call: it finds an argument wrong.
    fn has(number: i64) -> bool {
        unsafe { libc::syscall(number, 0, 0, 0, u32::MAX, 0, 0) };
        std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS)
    }

    #[test]
    #[ignore = "a task of another test"]
    fn sleeps() {
        for number in [libc::SYS_futex, FUTEX_WAITV, FUTEX_WAIT] {
            if has(number) {
                waits(number, anew());
            }
        }
        waits_for_lock(libc::FUTEX_LOCK_PI, anew());
        waits_for_lock(FUTEX_LOCK_PI2, anew());
        waits_for_condition(anew());
    }

    #[test]
    #[ignore = "a task of another test"]
    fn sleeps_with_signals() {
        static COME: AtomicU32 = AtomicU32::new(0);
        extern "C" fn comes(_: i32) {
            COME.fetch_add(1, Ordering::Relaxed);
        }
        let handler = comes as *const () as libc::sighandler_t;
        assert_ne!(unsafe { libc::signal(libc::SIGBUS, handler) }, libc::SIG_ERR);
        waits_for_lock(libc::FUTEX_LOCK_PI, anew());
        assert_eq!(COME.load(Ordering::Relaxed), 0);
        // One that somebody has sent comes as ever.
        assert_eq!(unsafe { libc::raise(libc::SIGBUS) }, 0);
        assert_eq!(COME.load(Ordering::Relaxed), 1);
    }

    /// A thread sleeps through a call after which no thread can be looked at, and is woken after another program has
    /// mapped the file. Returns what is mapped later.
    fn is_woken_after(hides: impl FnOnce()) -> &'static [AtomicU32] {
        let (file, later) = (made("file"), made("later"));
        let words = map(&file);
        assert!(is_own(words));
        let mapper = Mapper::new("file");
        let word = &words[SECOND];
        let sleeper = asleep(libc::SYS_futex, move || {
            while word.load(Ordering::Acquire) == 0 {
                futex(word, libc::FUTEX_WAIT, 0);
            }
        });
        hides();
        mapper.maps();
        word.store(1, Ordering::Release);
        futex(word, libc::FUTEX_WAKE, 1);
        ends(sleeper, "hidden");
        let words = map(&later);
        assert_eq!(words[0].load(Ordering::Relaxed), 0);
        words
    }

    #[test]
    #[ignore = "a task of another test"]
    fn becomes_another_user() {
        let words = is_woken_after(|| unsafe {
            let user = OTHER_USER;
            assert_eq!(libc::setresgid(user, user, user), 0);
            assert_eq!(libc::setresuid(user, user, user), 0);
        });
        assert!(!is_own(words));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn changes_its_root() {
        let root = place().join("root");
        fs::create_dir(&root).unwrap();
        is_woken_after(|| std::os::unix::fs::chroot(&root).unwrap());
    }
}
