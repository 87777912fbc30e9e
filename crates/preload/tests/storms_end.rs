//! Promise: a program of many threads that forks, starts other programs, and has signal handlers which
//! open files, comes to its end, with all of its files right.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

#[allow(unused_macros, reason = "its tests are written out")]
mod harness;

use std::fs;
use std::process::Stdio;

use harness::support::{Daemon, Scratch, eventually, facts, is_stopped, novale};
use harness::{is_whole, mounted, succeeds, task};
use rustix::process::{Pid, Signal, kill_process};

/// Memory of the program's was asked for inside the library, whose lock a thread had that a signal
/// had interrupted; and a child waited for a thread that only its parent had.
#[test]
fn threads_signals_forks_and_programs_at_once() {
    let Some((scratch, slot)) = mounted("threads_signals_forks_and_programs") else { return };
    let mut storm = task(&scratch, "storm");
    let mut running = storm.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let ended = eventually(|| running.try_wait().unwrap().is_some());
    if !ended {
        running.kill().unwrap();
    }
    let output = running.wait_with_output().unwrap();
    assert!(ended, "it waits for itself");
    succeeds(&output);
    is_whole(&scratch, &slot);
}

/// A process made by `clone` with the memory of its parent, which does not wait for it, has the parent's
/// thread-local values too: by what the library keeps there a signal of the parent's came while it was in
/// the middle of a call. It was put off for good, and all others with it.
#[test]
fn a_process_beside_its_parent_in_one_memory() {
    let Some((scratch, slot)) = mounted("a_process_beside_its_parent") else { return };
    let mut beside = task(&scratch, "beside");
    let running = beside.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    succeeds(&running.wait_with_output().unwrap());
    is_whole(&scratch, &slot);
}

/// A child was killed at work and waited for; what it had done last came behind its parent's first look.
#[test]
fn who_has_waited_for_a_killed_child_finds_what_it_has_done() {
    let Some((scratch, slot)) = mounted("who_has_waited_for_a_killed") else { return };
    let mut kills = task(&scratch, "kills");
    succeeds(&kills.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap());
    is_whole(&scratch, &slot);
}

/// The kernel says ESTALE of a directory that was moved elsewhere since it saw it, where another directory is on its
/// way at that moment: it does not wait to take note of the move. The program was told.
#[test]
fn who_comes_to_directories_that_are_moved_is_told_of_no_stale_ones() {
    let Some((scratch, slot)) = mounted("who_comes_to_directories") else { return };
    let Some(other) = Scratch::for_mount("who_comes_to_directories") else { return };
    let daemon = Daemon::start("direct", &[&slot], &other.dir());
    for dir in ["a", "a/moved", "a/moved/full", "b", "0", "1", "2"] {
        fs::create_dir(scratch.in_dir(dir)).unwrap();
    }
    let mut comes = task(&scratch, "comes_to_what_is_moved");
    let mut running = comes.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (here, there) = (other.in_dir("a/moved"), other.in_dir("b/moved"));
    while running.try_wait().unwrap().is_none() {
        fs::rename(&here, &there).and_then(|()| fs::rename(&there, &here)).unwrap();
    }
    succeeds(&running.wait_with_output().unwrap());
    daemon.umount();
    is_whole(&scratch, &slot);
}

/// A name meant for a directory landed in another one, which had got the number of the first between the
/// walk and the call.
#[test]
fn programs_replace_directories_and_no_name_shows_up_in_a_foreign_one() {
    let Some((scratch, slot)) = mounted("programs_replace_directories") else { return };
    let start = |seed: u8| {
        let mut program = task(&scratch, "replace");
        program.env("NOVALE_TEST_SEED", seed.to_string());
        program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let programs: Vec<_> = (0..3).map(start).collect();
    let outputs: Vec<_> =
        programs.into_iter().map(|program| program.wait_with_output().unwrap()).collect();
    for output in &outputs {
        succeeds(output);
    }
    is_whole(&scratch, &slot);
}

/// The second of two signals that came at once during a call was handled in the middle of it, on files that
/// the call had locked, or took the place of the first.
#[test]
fn of_signals_that_come_at_once_each_is_handled_outside_of_calls() {
    let Some((scratch, slot)) = mounted("signals_that_come_at_once") else { return };
    succeeds(&task(&scratch, "at_once").output().unwrap());
    is_whole(&scratch, &slot);
}

/// A signal that comes in the middle of a call is queued again. Where others had taken its place in the queue it was lost.
#[test]
fn of_signals_at_the_limit_of_queued_ones_each_is_handled() {
    let Some((scratch, slot)) = mounted("of_signals_at_the_limit") else { return };
    succeeds(&task(&scratch, "at_the_limit").output().unwrap());
    is_whole(&scratch, &slot);
}

/// A signal that came just before the kernel's part of `execve` was put off, and the next program found all
/// signals blocked.
#[test]
fn programs_started_in_a_storm_have_their_mask() {
    let Some((scratch, slot)) = mounted("programs_started_in_a_storm") else { return };
    succeeds(&task(&scratch, "starts_in_a_storm").output().unwrap());
    is_whole(&scratch, &slot);
}

/// A signal that came to the parent while it forked came to the child once more.
#[test]
fn signals_of_a_parent_do_not_come_to_its_children() {
    let Some((scratch, slot)) = mounted("signals_of_a_parent") else { return };
    succeeds(&task(&scratch, "forks_in_a_storm").output().unwrap());
    is_whole(&scratch, &slot);
}

/// Who starts a program in its own memory blocks all signals before, and the child sets its mask by calls of the
/// kernel's: what was noted for the parent was blocked in the program.
#[test]
fn programs_started_in_borrowed_memory_have_their_mask() {
    let Some((scratch, slot)) = mounted("programs_started_in_borrowed") else { return };
    succeeds(&task(&scratch, "spawns").output().unwrap());
    is_whole(&scratch, &slot);
}

/// Who waits with a mask of its own (`sigsuspend`, `ppoll`) has it in the handler, too.
#[test]
fn handlers_have_the_mask_of_who_waits() {
    let Some((scratch, slot)) = mounted("handlers_have_the_mask") else { return };
    succeeds(&task(&scratch, "waits").output().unwrap());
    is_whole(&scratch, &slot);
}

/// What a handler wrote was served on the program's alternate stack, which is as small as the kernel lets
/// it be: it ran over what lay below. Where the program had the former one stored over the new one, signals came over
/// the frames of a handler that was in a call.
#[test]
fn handlers_on_small_stacks_write() {
    let Some((scratch, slot)) = mounted("handlers_on_small_stacks") else { return };
    succeeds(&task(&scratch, "alternate").output().unwrap());
    is_whole(&scratch, &slot);
}

/// Others waited for it without a word.
#[test]
fn of_a_program_that_is_stopped_in_the_middle_others_are_told() {
    let Some((scratch, slot)) = mounted("stopped_in_the_middle") else { return };
    let mut busy = task(&scratch, "busy").stdout(Stdio::null()).spawn().unwrap();
    let pid = Pid::from_child(&busy);
    let stopped = || facts(&slot).get("stopped").cloned().unwrap();
    let is_told = eventually(|| {
        kill_process(pid, Signal::STOP).unwrap();
        assert!(eventually(|| is_stopped(busy.id().into())));
        let is_told = stopped() == serde_json::json!([busy.id()]);
        if !is_told {
            kill_process(pid, Signal::CONT).unwrap();
        }
        is_told
    });
    assert!(is_told, "it is never in the middle");
    let text = novale(&["info", &slot]).out;
    assert!(text.contains(&format!("(kill -CONT {}) or ends", busy.id())), "{text}");
    busy.kill().unwrap();
    busy.wait().unwrap();
    assert_eq!(stopped(), serde_json::json!([]));
    is_whole(&scratch, &slot);
}

mod tasks {
    use std::ffi::CString;
    use std::fs::{self, OpenOptions};
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::FileExt;
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

    use super::harness::PLACE;
    use super::harness::signals::keep_from_main_thread;

    const THREADS: usize = 40;
    const TURNS: usize = 40;
    const CHILDREN: usize = 12;

    /// The file that the handler adds a byte to.
    static ADDED_TO: OnceLock<CString> = OnceLock::new();

    extern "C" fn add(_: i32) {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;
        if let Some(path) = ADDED_TO.get() {
            let fd = unsafe { libc::open(path.as_ptr(), flags, 0o644) };
            if fd >= 0 {
                unsafe { libc::write(fd, c"s".as_ptr().cast(), 1) };
                unsafe { libc::close(fd) };
            }
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn kills() {
        let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
        let paths = ["a", "b"].map(|name| place.join(name));
        let [a, b] =
            paths.each_ref().map(|path| CString::new(path.as_os_str().as_bytes()).unwrap());
        fs::write(&paths[0], "").unwrap();
        let names = || paths.each_ref().map(|path| path.exists());
        let other = place.join("other");
        for round in 0..1000 {
            let child = unsafe { libc::fork() };
            if child == 0 {
                loop {
                    unsafe { libc::rename(a.as_ptr(), b.as_ptr()) };
                    unsafe { libc::rename(b.as_ptr(), a.as_ptr()) };
                }
            }
            // It is at work, and a little later.
            while names() != [false, true] {}
            (0..round % 50).for_each(|_| _ = names());
            assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0);
            assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
            let found = names();
            // Who changes something in the folder settles in any case.
            fs::write(&other, "").unwrap();
            fs::remove_file(&other).unwrap();
            assert_eq!(names(), found, "round {round}");
            if found != [true, false] {
                fs::rename(&paths[1], &paths[0]).unwrap();
            }
        }
    }

    /// Until it is killed.
    #[test]
    #[ignore = "a task of another test"]
    fn busy() {
        let path = Path::new(&std::env::var_os(PLACE).unwrap()).join("busy");
        let file = OpenOptions::new().write(true).create_new(true).open(path).unwrap();
        let bytes = vec![1; 1 << 20];
        loop {
            file.write_all_at(&bytes, 0).unwrap();
        }
    }

    /// Has a signal come all the time, to whichever thread, in microseconds.
    fn signal_each(time: i64) {
        let each = libc::timeval { tv_sec: 0, tv_usec: time };
        let timer = libc::itimerval { it_interval: each, it_value: each };
        let set =
            unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
        assert_eq!(set, 0);
    }

    fn write_and_read(place: &Path, thread: usize) {
        let path = place.join(format!("thread {thread}"));
        for turn in 0..TURNS {
            let bytes = vec![u8::try_from((turn + thread) % 251).unwrap(); 1 + turn * 120];
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(true);
            let mut file = options.open(&path).unwrap();
            file.write_all(&bytes).unwrap();
            let mut found = vec![0; bytes.len()];
            file.try_clone().unwrap().read_exact_at(&mut found, 0).unwrap();
            assert!(found == bytes, "{}", path.display());
            if turn % 7 == 0 {
                fs::remove_file(&path).unwrap();
            }
        }
    }

    /// A child that uses files, and another program.
    fn child(place: &Path, number: usize) {
        let path =
            CString::new(place.join(format!("child {number}")).as_os_str().as_bytes()).unwrap();
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // Memory is not to be asked for here: another thread may have been about to.
            let fd = unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CREAT, 0o644) };
            let written = unsafe { libc::write(fd, c"x".as_ptr().cast(), 1) };
            unsafe { libc::unlink(path.as_ptr()) };
            unsafe { libc::_exit(i32::from(written != 1)) };
        }
        let mut status = 0;
        while unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid {}
        assert_eq!(status, 0);
        assert_eq!(Command::new("sh").args(["-c", "exit 3"]).status().unwrap().code(), Some(3));
    }

    /// Steps of a program on directories that others replace at the same time.
    const STEPS: usize = 120_000;
    const DIRECTORIES: u8 = 3;

    /// One step on a directory whose number is `own`: all names made in it begin with that number.
    fn replace_step(place: &Path, random: &mut fastrand::Rng) -> std::io::Result<()> {
        let own = random.u8(0..DIRECTORIES);
        let dir = place.join(format!("d{own}"));
        let [one, other] = [(); 2].map(|()| dir.join(format!("{own} {}", random.u8(0..3))));
        match random.u8(0..11) {
            0 | 1 => fs::create_dir(&dir),
            2 | 3 => fs::remove_dir(&dir),
            4 => OpenOptions::new().write(true).create_new(true).open(&one).map(drop),
            5 => OpenOptions::new().write(true).create(true).truncate(true).open(&one).map(drop),
            6 => fs::create_dir(&one),
            7 => fs::hard_link(&one, &other),
            8 => fs::rename(&one, &other),
            9 => fs::remove_file(&one).or_else(|_| fs::remove_dir(&one)),
            _ => {
                for entry in fs::read_dir(&dir)? {
                    let name = entry?.file_name().into_string().unwrap();
                    assert!(name.starts_with(&format!("{own} ")), "d{own} has {name}");
                }
                Ok(())
            }
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn replace() {
        let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
        let seed = std::env::var("NOVALE_TEST_SEED").unwrap().parse().unwrap();
        let mut random = fastrand::Rng::with_seed(seed);
        // What the others may have done to the names explains these.
        let expected =
            [libc::ENOENT, libc::EEXIST, libc::ENOTEMPTY, libc::EISDIR, libc::ENOTDIR, libc::EPERM];
        for _ in 0..STEPS {
            if let Err(error) = replace_step(&place, &mut random) {
                let errno = error.raw_os_error().unwrap();
                assert!(expected.contains(&errno), "{error}");
            }
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn comes_to_what_is_moved() {
        let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
        let is_over = AtomicBool::new(false);
        let expected = [libc::ENOENT, libc::ENOTEMPTY].map(Some);
        let is_wrong = |error: &std::io::Error| !expected.contains(&error.raw_os_error());
        // What the kernel knows it moves and removes itself.
        let is_known = |open: &fs::File| unsafe { libc::fchdir(open.as_raw_fd()) } == 0;
        std::thread::scope(|scope| {
            for own in ["0", "1", "2"].map(|own| place.join(own)) {
                let open = fs::File::open(&own).unwrap();
                assert!(is_known(&open));
                let (is_over, to) = (&is_over, place.join("b").join(own.file_name().unwrap()));
                scope.spawn(move || {
                    let _open = open;
                    while !is_over.load(Ordering::Relaxed) {
                        fs::rename(&own, &to).and_then(|()| fs::rename(&to, &own)).unwrap();
                    }
                });
            }
            let moved = ["a/moved", "b/moved"].map(|path| place.join(path));
            let mut opened = moved.iter().cycle().filter_map(|path| fs::File::open(path).ok());
            // It is handed over by its path, which it may just have left.
            let _open = opened.find(is_known);
            let all = (0..1000).flat_map(|_| &moved).map(fs::remove_dir);
            let wrong: Vec<_> = all.map(Result::unwrap_err).filter(is_wrong).collect();
            is_over.store(true, Ordering::Relaxed);
            assert!(
                wrong.iter().all(|error| error.kind() == std::io::ErrorKind::NotFound),
                "{wrong:?}"
            );
        });
    }

    #[test]
    #[ignore = "a task of another test"]
    fn storm() {
        let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
        let added_to = CString::new(place.join("added").as_os_str().as_bytes()).unwrap();
        ADDED_TO.set(added_to).unwrap();
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = add as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        let set =
            unsafe { libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) };
        assert_eq!(set, 0);
        keep_from_main_thread(libc::SIGALRM);
        signal_each(700);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let place = &place;
                scope.spawn(move || write_and_read(place, thread));
            }
            for number in 0..CHILDREN {
                child(&place, number);
            }
        });
        signal_each(0);
        assert!(fs::metadata(place.join("added")).unwrap().len() > 0);
    }

    /// How often each of the signals that are queued at once came.
    static QUEUED: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];

    /// Counts a signal if its handler finds an open file.
    extern "C" fn finds_its_file(signal: i32) {
        let (mut byte, file) = (0_u8, LOG.load(Ordering::Relaxed));
        if unsafe { libc::pread(file, (&raw mut byte).cast(), 1, 0) } == 1 {
            let number = usize::try_from(signal - libc::SIGRTMIN()).unwrap();
            QUEUED.get(number).unwrap().fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Has all threads of the process run on one processor: while one runs all others stand somewhere.
    fn share_a_processor() {
        let mut all: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        let bytes = size_of::<libc::cpu_set_t>();
        assert_eq!(unsafe { libc::sched_getaffinity(0, bytes, &raw mut all) }, 0);
        let first = (0..1024).find(|number| unsafe { libc::CPU_ISSET(*number, &all) }).unwrap();
        let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        unsafe { libc::CPU_SET(first, &mut one) };
        assert_eq!(unsafe { libc::sched_setaffinity(0, bytes, &raw const one) }, 0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn at_once() {
        share_a_processor();
        assert_eq!(came_of(&[0, 1], 200, std::time::Duration::from_micros(100)), [200, 200]);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn at_the_limit() {
        // It counts what the user's other processes have queued, too.
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let queued = status.lines().find_map(|line| line.strip_prefix("SigQ:")).unwrap();
        let queued: u64 = queued.split('/').next().unwrap().trim().parse().unwrap();
        let limit = libc::rlimit { rlim_cur: queued + 5, rlim_max: queued + 5 };
        let set = unsafe { libc::setrlimit(libc::RLIMIT_SIGPENDING, &raw const limit) };
        assert_eq!(set, 0);
        assert_eq!(came_of(&[0], 5000, std::time::Duration::ZERO), [5000, 0]);
    }

    /// Sends signals of these numbers, each so often, to this thread, which writes; how many came.
    fn came_of(numbers: &[i32], times: u32, between: std::time::Duration) -> [u32; 2] {
        let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
        fs::write(place.join("read"), b"x").unwrap();
        let read = fs::File::open(place.join("read")).unwrap();
        LOG.store(read.as_raw_fd(), Ordering::Relaxed);
        let written = fs::File::create(place.join("written")).unwrap();
        let signals = || numbers.iter().map(|number| libc::SIGRTMIN() + number);
        for signal in signals() {
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = finds_its_file as *const () as usize;
            let set = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
            assert_eq!(set, 0);
        }
        let (to, is_over) = (unsafe { libc::pthread_self() }, AtomicBool::new(false));
        let send = || {
            for _ in 0..times {
                for signal in signals() {
                    let value = libc::sigval { sival_ptr: std::ptr::null_mut() };
                    while unsafe { libc::pthread_sigqueue(to, signal, value) } == libc::EAGAIN {}
                }
                std::thread::sleep(between);
            }
            is_over.store(true, Ordering::Relaxed);
        };
        std::thread::scope(|scope| {
            scope.spawn(send);
            while !is_over.load(Ordering::Relaxed) {
                written.write_all_at(&[1; 5000], 0).unwrap();
            }
        });
        // What is left comes at the latest with the end of a call.
        written.write_all_at(&[1; 5000], 0).unwrap();
        QUEUED.each_ref().map(|times| times.load(Ordering::Relaxed))
    }

    const STARTS: u32 = 60;
    const FORKS: u32 = 300;

    /// Has a handler called in this process, and what it forks.
    fn handle(signal: i32, handler: extern "C" fn(i32)) {
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        let set = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
        assert_eq!(set, 0);
    }

    /// Becomes a program that is not served and tells the mask that it has from the kernel.
    fn tells_its_mask(output: i32) -> ! {
        let words = [c"grep", c"SigBlk", c"/proc/self/status"];
        let words = [words[0].as_ptr(), words[1].as_ptr(), words[2].as_ptr(), std::ptr::null()];
        let environment = [c"NOVALE_DIRECT=".as_ptr(), std::ptr::null()];
        unsafe { libc::dup2(output, 1) };
        for path in [c"/bin/grep", c"/usr/bin/grep"] {
            unsafe { libc::execve(path.as_ptr(), words.as_ptr(), environment.as_ptr()) };
        }
        unsafe { libc::_exit(127) }
    }

    /// Whether a signal has come.
    static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

    extern "C" fn begins(_: i32) {
        HAS_BEGUN.store(true, Ordering::Relaxed);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn starts_in_a_storm() {
        let path = PathBuf::from(std::env::var_os(PLACE).unwrap()).join("said");
        let mut random = fastrand::Rng::with_seed(1);
        // Such that the next program ignores, whenever they come.
        let signals = [libc::SIGURG, libc::SIGWINCH];
        for signal in signals {
            handle(signal, begins);
        }
        for _ in 0..STARTS {
            let said = fs::File::create(&path).unwrap();
            HAS_BEGUN.store(false, Ordering::Relaxed);
            let child = unsafe { libc::fork() };
            if child == 0 {
                while !HAS_BEGUN.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                tells_its_mask(said.as_raw_fd());
            }
            let mut status = 0;
            while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
                unsafe { libc::kill(child, signals[random.usize(..2)]) };
                // Signals without a pause keep the child from getting far.
                (0..random.u16(..1000)).for_each(|_| std::hint::spin_loop());
            }
            let said = fs::read_to_string(&path).unwrap();
            assert_eq!((status, said.as_str()), (0, "SigBlk:\t0000000000000000\n"));
        }
    }

    static PARENT: AtomicU32 = AtomicU32::new(0);
    /// Signals that came to another process than they were sent to.
    static ASTRAY: AtomicU32 = AtomicU32::new(0);

    extern "C" fn is_the_parents(_: i32) {
        let astray = std::process::id() != PARENT.load(Ordering::Relaxed);
        ASTRAY.fetch_add(u32::from(astray), Ordering::Relaxed);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn forks_in_a_storm() {
        PARENT.store(std::process::id(), Ordering::Relaxed);
        handle(libc::SIGURG, is_the_parents);
        let (to, is_over) = (unsafe { libc::pthread_self() }, AtomicBool::new(false));
        let send = || {
            while !is_over.load(Ordering::Relaxed) {
                unsafe { libc::pthread_kill(to, libc::SIGURG) };
                std::thread::yield_now();
            }
        };
        let mut astray = 0;
        std::thread::scope(|scope| {
            scope.spawn(send);
            for _ in 0..FORKS {
                let child = unsafe { libc::fork() };
                if child == 0 {
                    let astray = ASTRAY.load(Ordering::Relaxed);
                    unsafe { libc::_exit(i32::from(astray != 0)) };
                }
                let mut status = 0;
                while unsafe { libc::waitpid(child, &raw mut status, 0) } != child {}
                astray += status;
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(astray, 0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn spawns() {
        for blocked in [0, libc::SIGUSR1] {
            let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
            unsafe { libc::sigaddset(&raw mut set, blocked) };
            let none = std::ptr::null_mut();
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, none) };
            // By `posix_spawn`, which sets the mask that the caller had.
            let mut attributes = std::mem::MaybeUninit::uninit();
            unsafe { libc::posix_spawnattr_init(attributes.as_mut_ptr()) };
            let path = PathBuf::from(std::env::var_os(PLACE).unwrap()).join("said");
            let path = CString::new(path.as_os_str().as_bytes()).unwrap();
            let mut actions = std::mem::MaybeUninit::uninit();
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
            unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) };
            let (to, name) = (actions.as_mut_ptr(), path.as_ptr());
            unsafe { libc::posix_spawn_file_actions_addopen(to, 1, name, flags, 0o644) };
            let words =
                [c"grep", c"SigBlk", c"/proc/self/status"].map(|word| word.as_ptr().cast_mut());
            let words = [words[0], words[1], words[2], std::ptr::null_mut()];
            let environment = [c"NOVALE_DIRECT=".as_ptr().cast_mut(), std::ptr::null_mut()];
            let (mut child, mut status) = (0, 0);
            let spawned = unsafe {
                libc::posix_spawnp(
                    &raw mut child,
                    c"grep".as_ptr(),
                    actions.as_ptr(),
                    attributes.as_ptr(),
                    words.as_ptr(),
                    environment.as_ptr(),
                )
            };
            assert_eq!(spawned, 0);
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            let said = fs::read_to_string(path.to_str().unwrap()).unwrap();
            let mask = if blocked == 0 { 0 } else { 1_u64 << (blocked - 1) };
            assert_eq!((status, said), (0, format!("SigBlk:\t{mask:016x}\n")));
        }
    }

    /// Whether SIGUSR2 was blocked in the handler of SIGUSR1.
    static IS_BLOCKED: AtomicI32 = AtomicI32::new(-1);

    extern "C" fn looks(_: i32) {
        let mut now: libc::sigset_t = unsafe { std::mem::zeroed() };
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut now) };
        IS_BLOCKED
            .store(unsafe { libc::sigismember(&raw const now, libc::SIGUSR2) }, Ordering::Relaxed);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn waits() {
        unsafe { libc::signal(libc::SIGUSR1, looks as *const () as libc::sighandler_t) };
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        unsafe { libc::sigaddset(&raw mut set, libc::SIGUSR1) };
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        unsafe { libc::raise(libc::SIGUSR1) };
        unsafe { libc::sigfillset(&raw mut set) };
        unsafe { libc::sigdelset(&raw mut set, libc::SIGUSR1) };
        assert_eq!(unsafe { libc::sigsuspend(&raw const set) }, -1);
        assert_eq!(IS_BLOCKED.load(Ordering::Relaxed), 1);
    }

    static IS_OVER: AtomicBool = AtomicBool::new(false);

    extern "C" fn reads(file: *mut libc::c_void) -> i32 {
        let mut byte = 0_u8;
        while !IS_OVER.load(Ordering::Relaxed) {
            let got = unsafe { libc::pread(file as i32, (&raw mut byte).cast(), 1, 0) };
            if (got, byte) != (1, b'x') {
                return 1;
            }
        }
        0
    }

    extern "C" fn nothing(_: i32) {}

    #[test]
    #[ignore = "a task of another test"]
    fn beside() {
        let path = PathBuf::from(std::env::var_os(PLACE).unwrap()).join("beside");
        fs::write(&path, b"x").unwrap();
        let file = fs::File::open(&path).unwrap();
        unsafe { libc::signal(libc::SIGUSR1, nothing as *const () as libc::sighandler_t) };
        let mut stack = vec![0_u8; 1 << 20];
        let flags = libc::CLONE_VM | libc::CLONE_FILES | libc::SIGCHLD;
        let argument = usize::try_from(file.as_raw_fd()).unwrap() as *mut libc::c_void;
        let top = stack.as_mut_ptr_range().end;
        let child = unsafe { libc::clone(reads, top.cast(), flags, argument) };
        assert!(child > 0);
        let mut blocked = 0;
        for _ in 0..20_000 {
            unsafe { libc::raise(libc::SIGUSR1) };
            let mut mask = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
            let none = std::ptr::null();
            unsafe { libc::sigprocmask(libc::SIG_BLOCK, none, mask.as_mut_ptr()) };
            blocked += unsafe { libc::sigismember(mask.as_ptr(), libc::SIGUSR1) };
        }
        IS_OVER.store(true, Ordering::Relaxed);
        let mut status = 0;
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, libc::__WALL) }, child);
        assert_eq!((status, blocked), (0, 0));
    }

    static WRITTEN: AtomicU32 = AtomicU32::new(0);
    static LOG: AtomicI32 = AtomicI32::new(-1);
    const TIMER_TURNS: u32 = 2500;
    /// Signals of the timer in a turn.
    const TIMER_SIGNALS: u32 = 4;
    /// Signals of the timer that are still to come in this turn.
    static LEFT: AtomicU32 = AtomicU32::new(0);
    /// Signals of the timer that came.
    static CAME: AtomicU32 = AtomicU32::new(0);
    /// Microseconds from one signal of the timer to the next.
    static APART: AtomicI32 = AtomicI32::new(1);

    /// Has the timer's signal come once.
    fn signal_in(time: i32) {
        let zero = libc::timeval { tv_sec: 0, tv_usec: 0 };
        let value = libc::timeval { tv_sec: 0, tv_usec: i64::from(time) };
        let timer = libc::itimerval { it_interval: zero, it_value: value };
        unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
    }

    extern "C" fn logs(signal: i32) {
        // A timer that goes by itself may be faster than its handler on a busy machine, and nothing else would
        // come to run: each turn has so many of its signals, however long a call takes.
        if signal == libc::SIGALRM {
            CAME.fetch_add(1, Ordering::Relaxed);
            if LEFT
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_ok()
            {
                signal_in(APART.load(Ordering::Relaxed));
            }
        }
        let written =
            unsafe { libc::write(LOG.load(Ordering::Relaxed), c"line\n".as_ptr().cast(), 5) };
        WRITTEN.fetch_add(u32::from(written == 5), Ordering::Relaxed);
        // More calls, and so more moments for another signal.
        for _ in 0..8 {
            unsafe { libc::lseek(LOG.load(Ordering::Relaxed), 0, libc::SEEK_CUR) };
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn alternate() {
        const GUARD: usize = 64 << 10;
        let path = PathBuf::from(std::env::var_os(PLACE).unwrap()).join("alternate");
        let file = OpenOptions::new().append(true).create(true).open(&path).unwrap();
        LOG.store(file.as_raw_fd(), Ordering::Relaxed);
        // Two frames of the kernel's fit: a signal of the other kind may come in the handler.
        let least = usize::try_from(unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) }).unwrap();
        let bytes = (2 * least + 4096).next_multiple_of(4096);
        let memory = |access, at, bytes| {
            let fixed = if at == 0 { 0 } else { libc::MAP_FIXED };
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
            unsafe { libc::mmap(at as *mut libc::c_void, bytes, access, flags, -1, 0) }
        };
        let guard = memory(libc::PROT_NONE, 0, GUARD + bytes);
        let start = memory(libc::PROT_READ | libc::PROT_WRITE, guard as usize + GUARD, bytes);
        let mut stack = libc::stack_t { ss_sp: start, ss_flags: 0, ss_size: bytes };
        assert_eq!(unsafe { libc::sigaltstack(&raw const stack, &raw mut stack) }, 0);
        for signal in [libc::SIGUSR1, libc::SIGALRM] {
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = logs as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
            let set = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
            assert_eq!(set, 0);
        }
        keep_from_main_thread(libc::SIGALRM);
        // Often enough, and in turns far enough apart, to come at each step of a call that a handler makes.
        for turn in 0..TIMER_TURNS {
            let apart = 1 + i32::try_from(turn % 50).unwrap();
            LEFT.store(TIMER_SIGNALS - 1, Ordering::Relaxed);
            APART.store(apart, Ordering::Relaxed);
            signal_in(apart);
            while CAME.load(Ordering::Relaxed) < (turn + 1) * TIMER_SIGNALS {
                unsafe { libc::raise(libc::SIGUSR1) };
            }
        }
        let lines = fs::read_to_string(&path).unwrap();
        assert_eq!(
            lines.lines().count(),
            usize::try_from(WRITTEN.load(Ordering::Relaxed)).unwrap()
        );
        assert!(lines.lines().all(|line| line == "line"));
        let mut now = stack;
        assert_eq!(unsafe { libc::sigaltstack(std::ptr::null(), &raw mut now) }, 0);
        assert_eq!((now.ss_sp, now.ss_flags, now.ss_size), (start, 0, bytes));
    }
}
