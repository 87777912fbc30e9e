//! Promise: memory of a program that can't be touched is an error of the call, and what lies before it is
//! moved, as by the kernel; nor does a call need memory that the kernel does not need, or take a number that
//! is none of the program's. A thread may have the signals of faults blocked meanwhile, and finds them as
//! blocked as it had them.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
#![allow(clippy::indexing_slicing, reason = "what is missing is a failure")]

#[macro_use]
mod harness;

use std::process::Command;

use harness::{is_whole, mounted, runs_with_the_daemon, runs_without_the_daemon, task};

promises! {
    bad_pointers_are_errors: runs_without_the_daemon pointers;
    /// The first one ended the process.
    bad_pointers_are_errors_with_all_signals_blocked: runs_without_the_daemon blocked_pointers;
    /// Room for all bytes of such a call was taken from the program's memory, and where there was none the
    /// program ended.
    vectors_need_no_memory: runs_with_the_daemon vectors;
    /// A read of several pieces, a copy and `sendfile` looked at no more than where they begin; and an address was
    /// looked at before.
    ends_beyond_all_offsets_are_errors: runs_without_the_daemon ends;
    blocked_faults_stay_blocked: runs_with_the_daemon blocked_faults;
    /// Who only asked for a limit was taken to give one at address 0. The fault ended a program that has its handler on
    /// a stack which is not there.
    a_limit_is_asked_for_without_a_fault: runs_with_the_daemon asks_for_a_limit;
    /// Calls about signals and programs that children start were served on the program's stack, and took 10 and 30 KB of
    /// it in a build with checks.
    small_stacks_are_enough: runs_with_the_daemon small_stacks;
    /// A handler of the program's ran in the middle of the call. It could jump out of it, and the thread's files were
    /// other ones from then on.
    no_handler_runs_in_the_middle_of_a_call: runs_with_the_daemon taken_away;
}

/// What little a call takes was asked of the kernel, and a program that had a limit was ended; one whose limit
/// left some could open nothing.
#[test]
fn limits_of_memory_end_no_program() {
    let Some((scratch, slot)) = mounted("memory") else { return };
    let output = task(&scratch, "little_memory").current_dir(scratch.dir()).output().unwrap();
    let said = harness::succeeds(&output) + &String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no memory is left for direct access"), "{said}");
    is_whole(&scratch, &slot);
}

/// The same in a program that the library is not in.
#[test]
fn blocked_faults_stay_blocked_in_the_kernel() {
    let mut task = Command::new(std::env::current_exe().unwrap());
    task.args(["--exact", "tasks::blocked_faults", "--ignored", "--nocapture"]);
    harness::succeeds(&task.output().unwrap());
}

/// Numbers that are none of the program's are errors too. `ftruncate`, `fchmod` and others took this library's own, and a
/// program that used a wrong number could cut the pool short.
#[test]
fn this_librarys_numbers_are_nobodys() {
    let Some((scratch, slot)) = mounted("this_librarys_numbers") else { return };
    harness::succeeds(&task(&scratch, "librarys_numbers").output().unwrap());
    is_whole(&scratch, &slot);
}

mod tasks {
    use std::ffi::{CStr, CString};
    use std::fs::{self, File, OpenOptions};
    use std::mem::zeroed;
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::harness::{PLACE, block_all_signals, exits_with};

    fn place() -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap())
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|at| u8::try_from((at * 7 + at / 256) % 251).unwrap()).collect()
    }

    #[test]
    #[ignore = "a task of another test"]
    fn librarys_numbers() {
        let file = File::create(place().join("wrong")).unwrap();
        let listed = fs::read_dir("/proc/self/fd").unwrap();
        let numbers: Vec<i32> = listed
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
            .filter(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } == -1)
            .collect();
        // The number that listed them is closed; beside it there are the pool's and the mount's.
        assert!(numbers.len() > 2, "{numbers:?}");
        let failed = || std::io::Error::last_os_error().raw_os_error();
        let nowhere = std::ptr::null_mut();
        let at = c"".as_ptr();
        let mine = file.as_raw_fd();
        for fd in numbers {
            let answers = unsafe {
                [
                    ("ftruncate", i64::from(libc::ftruncate(fd, -1)), failed()),
                    ("fallocate", i64::from(libc::fallocate(fd, 0, -1, 1)), failed()),
                    ("pwrite", libc::pwrite(fd, at.cast(), 0, 0) as i64, failed()),
                    ("read", libc::read(fd, nowhere, 0) as i64, failed()),
                    ("fsync", i64::from(libc::fsync(fd)), failed()),
                    ("fchmod", i64::from(libc::fchmod(fd, 0o600)), failed()),
                    ("futimens", i64::from(libc::futimens(fd, std::ptr::null())), failed()),
                    ("sendfile", libc::sendfile(mine, fd, nowhere.cast(), 1) as i64, failed()),
                    (
                        "mmap",
                        libc::mmap(nowhere, 4096, libc::PROT_READ, libc::MAP_SHARED, fd, 0) as i64,
                        failed(),
                    ),
                ]
            };
            for (call, answer, error) in answers {
                assert_eq!((answer, error), (-1, Some(libc::EBADF)), "{call} of {fd}");
            }
        }
        assert_eq!(file.metadata().unwrap().len(), 0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn pointers() {
        let path = place().join("pointers");
        fs::write(&path, pattern(9000)).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let fd = file.as_raw_fd();
        let efault = |result: isize| {
            assert_eq!(result, -1);
            assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EFAULT));
        };
        let bad = std::ptr::without_provenance_mut::<libc::c_void>(8);
        efault(unsafe { libc::read(fd, bad, 100) });
        efault(unsafe { libc::write(fd, bad, 100) });
        efault(unsafe { libc::pwrite(fd, bad, 5000, 10) });
        let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
        efault(unsafe { libc::stat(bad.cast(), stat.as_mut_ptr()) } as isize);
        efault(unsafe { libc::fstat(fd, bad.cast()) } as isize);
        assert_eq!(fs::read(&path).unwrap(), pattern(9000));
        part_of_a_buffer(&file);
        part_of_a_listing();
    }

    #[test]
    #[ignore = "a task of another test"]
    fn ends() {
        let path = place().join("ends");
        fs::write(&path, b"hello world").unwrap();
        let open = || OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let (file, other) = (open(), File::create(place().join("other")).unwrap());
        let (fd, to, last) = (file.as_raw_fd(), other.as_raw_fd(), i64::MAX);
        let is = |answer: isize, expected: Result<isize, i32>| {
            let error = std::io::Error::last_os_error().raw_os_error().unwrap();
            assert_eq!(if answer < 0 { Err(error) } else { Ok(answer) }, expected);
        };
        let mut room = [0_u8; 50];
        let at = room.as_mut_ptr().cast();
        let piece = |iov_len| libc::iovec { iov_base: at, iov_len };
        let (two, none) = ([piece(50), piece(20)], [piece(0), piece(0)]);
        let two = two.as_ptr();
        let bad = std::ptr::without_provenance_mut::<libc::c_void>(8);
        is(unsafe { libc::preadv(fd, two, 2, last - 69) }, Err(libc::EINVAL));
        is(unsafe { libc::preadv(fd, two, 2, last - 70) }, Ok(0));
        is(unsafe { libc::pwrite(fd, bad, 4, last) }, Err(libc::EINVAL));
        let both = libc::RWF_APPEND | 0x20;
        is(unsafe { libc::pwritev2(fd, none.as_ptr(), 2, 0, both) }, Ok(0));
        is(unsafe { libc::pwritev2(fd, two, 2, 0, both) }, Err(libc::EINVAL));
        let send = |mut from: i64| unsafe { libc::sendfile(to, fd, &raw mut from, 5) };
        is(send(last - 4), Err(libc::EINVAL));
        is(send(last - 5), Ok(0));
        let copy = |mut from: i64, mut at: i64, len| unsafe {
            libc::copy_file_range(fd, &raw mut from, to, &raw mut at, len, 0)
        };
        is(copy(0, last, 0), Err(libc::EFBIG));
        is(copy(last, 0, 5), Ok(0));
        is(copy(11, last - 2, 5), Ok(0));
        is(copy(0, 0, usize::MAX >> 1), Ok(11));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn blocked_pointers() {
        block_all_signals();
        pointers();
    }

    static HANDLED: AtomicU32 = AtomicU32::new(0);

    extern "C" fn counts(signal: i32) {
        HANDLED.fetch_add(u32::from(is_blocked(signal)), Ordering::Relaxed);
    }

    fn is_blocked(signal: i32) -> bool {
        let mut mask: libc::sigset_t = unsafe { zeroed() };
        let none = std::ptr::null();
        assert_eq!(unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, none, &raw mut mask) }, 0);
        unsafe { libc::sigismember(&raw const mask, signal) == 1 }
    }

    /// What a child says that has both signals blocked.
    fn child_says(what: impl FnOnce()) -> i32 {
        let child = unsafe { libc::fork() };
        if child == 0 {
            let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core) };
            what();
            unsafe { libc::_exit(99) };
        }
        exits_with(child)
    }

    #[test]
    #[ignore = "a task of another test"]
    fn blocked_faults() {
        let faults = [libc::SIGSEGV, libc::SIGBUS];
        for signal in faults {
            handle(signal, counts);
        }
        let before = block_all_signals();
        assert_eq!(faults.map(is_blocked), [true; 2]);
        // One that is sent waits.
        for signal in faults {
            assert_eq!(unsafe { libc::raise(signal) }, 0);
        }
        let mut waiting: libc::sigset_t = unsafe { zeroed() };
        assert_eq!(unsafe { libc::sigpending(&raw mut waiting) }, 0);
        assert_eq!(faults.map(|of| unsafe { libc::sigismember(&raw const waiting, of) }), [1; 2]);
        assert_eq!(HANDLED.load(Ordering::Relaxed), 0);
        // Its own fault ends a process, also where there is a handler.
        let at = std::ptr::without_provenance_mut::<u8>(8);
        let status = child_says(|| unsafe { at.write_volatile(1) });
        assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
        // The next program begins with them blocked.
        let own = CString::new(std::env::current_exe().unwrap().to_str().unwrap()).unwrap();
        let words = [c"test", c"--exact", c"tasks::begins_blocked", c"--ignored"];
        let mut words = words.map(CStr::as_ptr).to_vec();
        words.push(std::ptr::null());
        let status = child_says(|| _ = unsafe { libc::execv(own.as_ptr(), words.as_ptr()) });
        assert_eq!(status, 0);
        // Let in, each is handled once, with its own signal blocked meanwhile.
        let mask = libc::SIG_SETMASK;
        let mut full: libc::sigset_t = unsafe { zeroed() };
        assert_eq!(unsafe { libc::pthread_sigmask(mask, &raw const before, &raw mut full) }, 0);
        assert_eq!(faults.map(|of| unsafe { libc::sigismember(&raw const full, of) }), [1; 2]);
        assert_eq!(HANDLED.load(Ordering::Relaxed), 2);
        assert_eq!(faults.map(is_blocked), [false; 2]);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn begins_blocked() {
        assert!(is_blocked(libc::SIGSEGV) && is_blocked(libc::SIGBUS));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn asks_for_a_limit() {
        File::create(place().join("file")).unwrap();
        let len = 1 << 16;
        let (access, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let nowhere = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
        let stack = libc::stack_t { ss_sp: nowhere, ss_flags: 0, ss_size: len };
        assert_eq!(unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) }, 0);
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = leaves as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        let none = std::ptr::null_mut();
        assert_eq!(unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, none) }, 0);
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
        assert!(limit.rlim_cur > 0);
    }

    /// Memory for a stack, behind a page that nobody can touch.
    fn stack_of(bytes: usize) -> *mut libc::c_void {
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let len = 4096 + bytes;
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(unsafe { libc::mprotect(at, 4096, libc::PROT_NONE) }, 0);
        at.wrapping_byte_add(4096)
    }

    extern "C" fn blocks(_: i32) {
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        unsafe { libc::sigaddset(&raw mut set, libc::SIGUSR2) };
        unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    }

    extern "C" fn starts_true(_: *mut libc::c_void) -> i32 {
        let (path, end) = (c"/bin/true".as_ptr(), std::ptr::null());
        unsafe { libc::execv(path, [path, end].as_ptr()) };
        1
    }

    #[test]
    #[ignore = "a task of another test"]
    fn small_stacks() {
        File::create(place().join("file")).unwrap();
        let least = usize::try_from(unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) }).unwrap();
        let bytes = (least + 4096).next_multiple_of(4096);
        let handle = || {
            let stack = libc::stack_t { ss_sp: stack_of(bytes), ss_flags: 0, ss_size: bytes };
            assert_eq!(unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) }, 0);
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = blocks as *const () as usize;
            action.sa_flags = libc::SA_ONSTACK;
            unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
            unsafe { libc::raise(libc::SIGUSR1) };
        };
        assert_eq!(libc::WEXITSTATUS(child_says(handle)), 99);
        let top = stack_of(8192).wrapping_byte_add(8192);
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let child = unsafe { libc::clone(starts_true, top, flags, std::ptr::null_mut()) };
        assert_eq!(exits_with(child), 0);
    }

    extern "C" fn leaves(_: i32) {
        unsafe { libc::_exit(77) };
    }

    fn handle(signal: i32, handler: extern "C" fn(i32)) {
        let mut action: libc::sigaction = unsafe { zeroed() };
        action.sa_sigaction = handler as *const () as usize;
        let done = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
        assert_eq!(done, 0);
    }

    /// Memory that another thread takes away and gives back all the time.
    #[test]
    #[ignore = "a task of another test"]
    fn taken_away() {
        const LEN: usize = 1 << 20;
        let status = child_says(|| {
            let file = File::create(place().join("taken")).unwrap();
            handle(libc::SIGSEGV, leaves);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let (kind, none) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, std::ptr::null_mut());
            let at = unsafe { libc::mmap(none, LEN, access, kind, -1, 0) } as usize;
            std::thread::spawn(move || {
                let page = std::ptr::with_exposed_provenance_mut(at + LEN / 2);
                loop {
                    unsafe { libc::mprotect(page, 4096, libc::PROT_NONE) };
                    unsafe { libc::mprotect(page, 4096, access) };
                }
            });
            for _ in 0..1_000_000 {
                unsafe { libc::pwrite(file.as_raw_fd(), at as *const _, LEN, 0) };
            }
        });
        assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV, "{status:x}");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn vectors() {
        const LEN: usize = 300_000;
        let [one, other] = ["one", "other"].map(|name| {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .open(place().join(name))
                .unwrap()
        });
        let (fd, to) = (one.as_raw_fd(), other.as_raw_fd());
        let (given, mut read) = (pattern(LEN), vec![0_u8; LEN]);
        let half = |at: *const u8| libc::iovec { iov_base: at.cast_mut().cast(), iov_len: LEN / 2 };
        let pieces = |bytes: &[u8]| [half(bytes.as_ptr()), half(bytes[LEN / 2..].as_ptr())];
        let (from, into) = (pieces(&given), pieces(&read));
        let limit = |bytes| {
            let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
        };
        limit(1);
        let moved = unsafe {
            [
                libc::pwritev(fd, from.as_ptr(), 2, 0),
                libc::preadv(fd, into.as_ptr(), 2, 0),
                libc::sendfile(to, fd, std::ptr::null_mut(), LEN),
            ]
        };
        limit(libc::RLIM_INFINITY);
        assert_eq!(moved, [LEN.cast_signed(); 3]);
        read.truncate(LEN);
        assert!(read == given && fs::read(place().join("other")).unwrap() == given);
    }

    /// Limits the memory of a child to what it has and a little more, before it comes to the mount and once it
    /// has joined, and has it make files.
    #[test]
    #[ignore = "a task of another test"]
    fn little_memory() {
        for (resource, more) in [(libc::RLIMIT_AS, 0), (libc::RLIMIT_DATA, 0)]
            .into_iter()
            .chain([(libc::RLIMIT_DATA, 1 << 20), (libc::RLIMIT_DATA, 16 << 20)])
        {
            for joins_before in [false, true] {
                let child = unsafe { libc::fork() };
                if child == 0 {
                    let made = joins_before.then(|| makes(0));
                    limit_to_used(resource, more);
                    let all = made.unwrap_or(true) && (1..40).all(makes);
                    unsafe { libc::_exit(i32::from(!all)) };
                }
                let status = exits_with(child);
                assert_eq!(status, 0, "{resource} {more} {joins_before}");
            }
        }
    }

    fn makes(number: u8) -> bool {
        let name = [b'a' + number / 26, b'a' + number % 26, 0];
        let flags = libc::O_CREAT | libc::O_RDWR;
        let fd = unsafe { libc::open(name.as_ptr().cast(), flags, 0o644) };
        fd >= 0 && unsafe { libc::write(fd, name.as_ptr().cast(), 3) } == 3
    }

    fn limit_to_used(resource: libc::__rlimit_resource_t, more: u64) {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let field = if resource == libc::RLIMIT_AS { "VmSize:" } else { "VmData:" };
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        let used: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
        drop(status);
        let used = if more == 0 { 1 } else { used * 1024 + more };
        let limit = libc::rlimit { rlim_cur: used, rlim_max: libc::RLIM_INFINITY };
        assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0);
    }

    /// Two pages, of which the second is not there: the first one.
    fn page_before_nothing() -> *mut libc::c_void {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = unsafe { libc::mmap(std::ptr::null_mut(), 8192, access, flags, -1, 0) };
        assert_eq!(unsafe { libc::munmap(page.byte_add(4096), 4096) }, 0);
        page
    }

    /// A buffer of which a part can be touched: so much is moved. It was an error as a whole.
    fn part_of_a_buffer(file: &File) {
        let fd = file.as_raw_fd();
        let page = page_before_nothing();
        let last = page.wrapping_byte_add(4000);
        unsafe { page.cast::<u8>().write_bytes(b'w', 4096) };
        let answer = |result: isize| {
            let error = std::io::Error::last_os_error().raw_os_error().unwrap();
            if result < 0 { -isize::try_from(error).unwrap() } else { result }
        };
        let efault = -isize::try_from(libc::EFAULT).unwrap();
        file.set_len(0).unwrap();
        assert_eq!(answer(unsafe { libc::pwrite(fd, last, 500, 100) }), 96);
        assert_eq!(answer(unsafe { libc::write(fd, last, 1 << 20) }), 96);
        assert_eq!(file.metadata().unwrap().len(), 196);
        let piece = |at: *mut libc::c_void, len| libc::iovec { iov_base: at, iov_len: len };
        let pieces = [piece(page, 50), piece(last, 500), piece(page, 50)];
        assert_eq!(answer(unsafe { libc::writev(fd, pieces.as_ptr(), 3) }), 50 + 96);
        assert_eq!(answer(unsafe { libc::pwritev(fd, pieces[1..].as_ptr(), 2, 0) }), 96);
        assert_eq!(unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) }, 242);
        file.set_len(9000).unwrap();
        for len in [500, 1 << 20, 1 << 30] {
            assert_eq!(answer(unsafe { libc::pread(fd, last, len, 10) }), 96, "{len}");
        }
        // Beyond all addresses that there may be.
        for len in [1 << 62, usize::MAX] {
            assert_eq!(answer(unsafe { libc::pread(fd, last, len, 10) }), efault, "{len}");
            assert_eq!(answer(unsafe { libc::pwrite(fd, last, len, 10) }), efault, "{len}");
        }
        // The file has no more than fits.
        assert_eq!(answer(unsafe { libc::pread(fd, last, 500, 8950) }), 50);
        assert_eq!(answer(unsafe { libc::pread(fd, last, 500, 9000) }), 0);
        assert_eq!(answer(unsafe { libc::read(fd, last, 500) }), 96);
        assert_eq!(answer(unsafe { libc::readv(fd, pieces.as_ptr(), 3) }), 50 + 96);
        assert_eq!(answer(unsafe { libc::preadv(fd, pieces[1..].as_ptr(), 2, 0) }), 96);
        assert_eq!(unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) }, 242 + 242);
    }

    /// The same of a folder's listing.
    fn part_of_a_listing() {
        let folder = place().join("many");
        fs::create_dir(&folder).unwrap();
        (0..100)
            .for_each(|index| _ = File::create(folder.join(format!("name-{index:03}"))).unwrap());
        let folder = File::open(&folder).unwrap();
        let list = |at: *mut libc::c_void, len: usize| unsafe {
            libc::syscall(libc::SYS_getdents64, folder.as_raw_fd(), at, len)
        };
        let page = page_before_nothing();
        let listed = list(page.wrapping_byte_add(4000), 32768);
        assert!((24..=96).contains(&listed), "{listed}");
        assert_eq!(list(page.wrapping_byte_add(4090), 32768), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EFAULT));
        assert!(list(page, 4096) > 3000);
    }
}
