//! Promise: under `novale run --map=dax` who syncs a file makes durable all that was stored to mappings of it before, by
//! whichever process, mapped still or not.
//!
//! What is durable can't be seen, but what is written back is counted: a task stores to all lines of a file.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
#![allow(clippy::indexing_slicing, reason = "what is missing is a failure")]

mod harness;

use std::fs::{self, File};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use harness::support::{Scratch, ends, novale, program, signal_daemon};
use harness::{PLACE, is_whole, library, mounted};
use rustix::process::Signal;

const PAGE: usize = 4096;
const BYTES: usize = 64 * PAGE;
const LINES: u64 = BYTES as u64 / 64;
/// What is unmapped in one thread while another one syncs: it takes a while to be written back.
const RACED_BYTES: usize = 1024 * PAGE;
const RACES: u64 = 12;
/// Which of the ways below a task goes.
const WAY: &str = "NOVALE_TEST_WAY";

/// How the one who has stored syncs itself, after what.
const BY_THE_PROGRAM: [&str; 10] = [
    "mapped",
    "mapped twice",
    "unmapped",
    "read only",
    "replaced",
    "moved",
    "cut off",
    "child",
    "all files",
    "half",
];
/// What becomes of the one who has stored; another one syncs, who knows of files alone.
const BY_ANOTHER: [&str; 3] = ["waits", "is killed", "is another program"];

/// Lines of data that are in the memory, as far as that is counted.
fn written(slot: &str) -> u64 {
    let stats: serde_json::Value =
        serde_json::from_str(&novale(&["stats", "--json", slot]).ok()).unwrap();
    let data = &stats["stored"]["data"];
    ["write_backs", "lines_streamed"].iter().map(|of| data[of].as_u64().unwrap()).sum()
}

/// A task that has mapped the file, and is to go a way with it.
fn begun(scratch: &Scratch, way: &str) -> Child {
    let mut task = started(scratch, "tasks::stores", way);
    wait_for(&mut task, "mapped");
    task
}

fn started(scratch: &Scratch, name: &str, way: &str) -> Child {
    let mut command = Command::new(program());
    command.env("NOVALE_PRELOAD", library()).env(PLACE, scratch.dir()).env(WAY, way);
    command.args(["run", "--strict", "--map=dax", "--mount", &scratch.dir(), "--"]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

fn wait_for(task: &mut Child, said: &str) {
    let (mut seen, said) = (Vec::new(), format!("{said}\n"));
    while !seen.ends_with(said.as_bytes()) {
        let mut byte = [0];
        task.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
        seen.extend(byte);
    }
}

fn tell(task: &mut Child) {
    std::io::Write::write_all(task.stdin.as_mut().unwrap(), b"\n").unwrap();
}

/// Each of them wrote nothing back.
#[test]
fn a_program_syncs_what_it_does_not_store_to_any_more() {
    let Some((scratch, slot)) = mounted("syncs_what_it_does_not") else { return };
    let mut few = Vec::new();
    for way in BY_THE_PROGRAM {
        let mut task = begun(&scratch, way);
        let before = written(&slot);
        tell(&mut task);
        wait_for(&mut task, "synced");
        let lines = written(&slot) - before;
        tell(&mut task);
        assert!(task.wait().unwrap().success(), "{way}");
        few.extend((lines < LINES).then_some((way, lines)));
        // Each page once.
        assert!(way != "mapped twice" || lines < 2 * LINES, "{lines} of {LINES} lines");
    }
    assert_eq!(few, [], "of {LINES} lines");
    is_whole(&scratch, &slot);
}

#[test]
fn another_program_syncs_what_was_stored() {
    let Some((scratch, slot)) = mounted("another_program_syncs") else { return };
    let mut few = Vec::new();
    for way in BY_ANOTHER {
        let mut task = begun(&scratch, way);
        let before = written(&slot);
        tell(&mut task);
        wait_for(&mut task, "stored");
        if way == "is killed" {
            task.kill().unwrap();
            task.wait().unwrap();
        }
        File::open(scratch.in_dir("file")).unwrap().sync_all().unwrap();
        let lines = written(&slot) - before;
        if way != "is killed" {
            tell(&mut task);
            assert!(task.wait().unwrap().success(), "{way}");
        }
        few.extend((lines < LINES).then_some((way, lines)));
    }
    assert_eq!(few, [], "of {LINES} lines");
    is_whole(&scratch, &slot);
}

/// Nobody settles for them: who opens the pool next does, whoever has taken the dead mount away.
#[test]
fn what_was_stored_by_one_who_was_killed_with_all_others_is_synced() {
    let Some((scratch, slot)) = mounted("killed_with_all_others") else { return };
    let dir = scratch.dir();
    let by_novale = || drop(novale(&["umount", &dir]).ok());
    let by_umount = || {
        assert!(Command::new("umount").args(["-l", &dir]).status().unwrap().success());
    };
    for take_away in [&by_novale as &dyn Fn(), &by_umount] {
        let mut task = begun(&scratch, "waits");
        // Recovery writes back what the newest operation may have stored: it is none that has stored pages.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(scratch.in_dir("file"), mode).unwrap();
        tell(&mut task);
        wait_for(&mut task, "stored");
        assert!(ends(signal_daemon(&slot, Signal::KILL)));
        task.kill().unwrap();
        task.wait().unwrap();
        take_away();
        novale(&["mount", "-o", "direct", &slot, &dir]).ok();
        File::open(scratch.in_dir("file")).unwrap().sync_all().unwrap();
        // The counters are this mount's.
        assert!(written(&slot) >= LINES, "{} of {LINES} lines", written(&slot));
    }
    is_whole(&scratch, &slot);
}

/// A thread unmaps what it has stored, another one syncs the file meanwhile, and stops the program then: what was
/// stored before is written back by that time, by the one or the other.
#[test]
fn a_sync_waits_for_what_another_thread_unmaps() {
    let Some((scratch, slot)) = mounted("a_sync_waits_for_what") else { return };
    let mut task = started(&scratch, "tasks::races", "");
    let (pid, mut few) = (i32::try_from(task.id()).unwrap(), Vec::new());
    for race in 0..RACES {
        wait_for(&mut task, "mapped");
        let before = written(&slot);
        tell(&mut task);
        let mut status = 0;
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, libc::WUNTRACED) }, pid);
        assert!(libc::WIFSTOPPED(status), "{status:#x}");
        let lines = written(&slot) - before;
        few.extend((lines < RACED_BYTES as u64 / 64).then_some((race, lines)));
        assert_eq!(unsafe { libc::kill(pid, libc::SIGCONT) }, 0);
    }
    assert!(task.wait().unwrap().success());
    assert_eq!(few, [], "of {} lines", RACED_BYTES / 64);
    is_whole(&scratch, &slot);
}

/// As on tmpfs: as long as a program may store to its pages, whoever has them mapped.
#[test]
fn a_program_that_is_stored_to_is_not_run() {
    let Some((scratch, slot)) = mounted("is_stored_to_is_not_run") else { return };
    for (way, is_busy) in [("waits", true), ("unmapped", false)] {
        let mut task = begun(&scratch, way);
        tell(&mut task);
        wait_for(&mut task, if is_busy { "stored" } else { "closed" });
        let path = scratch.in_dir("file");
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        // It has no form that could be run.
        let errno = Command::new(&path).spawn().unwrap_err().raw_os_error().unwrap();
        assert_eq!(errno == libc::ETXTBSY, is_busy, "{way}: {errno}");
        tell(&mut task);
        task.wait().unwrap();
    }
    is_whole(&scratch, &slot);
}

mod tasks {
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;

    use super::harness::exits_with;
    use super::*;

    const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;

    fn map_at(at: *mut libc::c_void, flags: i32, file: Option<&File>) -> *mut libc::c_void {
        map_bytes(BYTES, at, flags, file)
    }

    fn map_bytes(
        bytes: usize,
        at: *mut libc::c_void,
        flags: i32,
        file: Option<&File>,
    ) -> *mut libc::c_void {
        let fd = file.map_or(-1, AsRawFd::as_raw_fd);
        let mapped = unsafe { libc::mmap(at, bytes, BOTH, flags, fd, 0) };
        assert_ne!(mapped, libc::MAP_FAILED);
        mapped
    }

    /// Maps the file to be read, before a page where nothing is, and makes it writable by a call that fails there.
    fn map_and_fail(file: &File) -> *mut libc::c_void {
        let nothing = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let (len, fd) = (BYTES + PAGE, file.as_raw_fd());
        unsafe {
            let at = libc::mmap(std::ptr::null_mut(), len, 0, nothing, -1, 0);
            let shared = libc::MAP_SHARED | libc::MAP_FIXED;
            assert_eq!(libc::mmap(at, BYTES, libc::PROT_READ, shared, fd, 0), at);
            assert_eq!(libc::munmap(at.byte_add(BYTES), PAGE), 0);
            assert_eq!(libc::mprotect(at, len, BOTH), -1);
            at
        }
    }

    fn store(at: *mut libc::c_void) {
        unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), BYTES) }.fill(3);
    }

    fn wait() {
        assert_eq!(unsafe { libc::read(0, [0_u8].as_mut_ptr().cast(), 1) }, 1);
    }

    fn say(word: &str) {
        println!("{word}");
    }

    /// What is done with the mapping after all of it was stored to.
    fn go(way: &str, at: *mut libc::c_void) {
        let nothing = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        match way {
            "unmapped" => assert_eq!(unsafe { libc::munmap(at, BYTES) }, 0),
            "replaced" => assert_eq!(map_at(at, nothing | libc::MAP_FIXED, None), at),
            "cut off" => {
                let kept = unsafe { libc::mremap(at, BYTES, PAGE, 0) };
                assert_eq!(kept, at);
            }
            "read only" | "moved" => {
                assert_eq!(unsafe { libc::mprotect(at, BYTES, libc::PROT_READ) }, 0);
                if way == "moved" {
                    let to = map_at(std::ptr::null_mut(), nothing, None);
                    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                    assert_eq!(unsafe { libc::mremap(at, BYTES, BYTES, flags, to) }, to);
                }
            }
            _ => {}
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn stores() {
        let path = PathBuf::from(std::env::var_os(PLACE).unwrap()).join("file");
        let way = std::env::var(WAY).unwrap();
        fs::write(&path, vec![7; BYTES]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let map = || map_at(std::ptr::null_mut(), libc::MAP_SHARED, Some(&file));
        let at = match way.as_str() {
            "child" => std::ptr::null_mut(),
            "half" => map_and_fail(&file),
            "mapped twice" => {
                store(map());
                map()
            }
            _ => map(),
        };
        say("mapped");
        wait();
        if way == "child" {
            let child = unsafe { libc::fork() };
            if child == 0 {
                store(map());
                unsafe { libc::_exit(0) };
            }
            assert_eq!(exits_with(child), 0);
        } else {
            store(at);
        }
        if BY_ANOTHER.contains(&way.as_str()) {
            if way == "is another program" {
                let script = c"echo stored; read word";
                let words = [c"sh", c"-c", script].map(std::ffi::CStr::as_ptr);
                let words = [words[0], words[1], words[2], std::ptr::null()];
                unsafe { libc::execv(c"/bin/sh".as_ptr(), words.as_ptr()) };
            }
            say("stored");
            return wait();
        }
        go(&way, at);
        let synced = match way.as_str() {
            "all files" => unsafe { libc::syncfs(file.as_raw_fd()) },
            _ => unsafe { libc::fsync(file.as_raw_fd()) },
        };
        assert_eq!(synced, 0);
        drop(file);
        say("synced");
        say("closed");
        wait();
    }

    /// The other thread comes a little later in each race.
    #[test]
    #[ignore = "a task of another test"]
    fn races() {
        let path = PathBuf::from(std::env::var_os(PLACE).unwrap()).join("raced");
        fs::write(&path, vec![7; RACED_BYTES]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        for race in 0..RACES {
            let at = map_bytes(RACED_BYTES, std::ptr::null_mut(), libc::MAP_SHARED, Some(&file));
            say("mapped");
            wait();
            unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), RACED_BYTES) }.fill(3);
            let (begun, unmaps) = (AtomicBool::new(false), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    begun.store(true, Ordering::Release);
                    while !unmaps.load(Ordering::Acquire) {
                        std::hint::spin_loop();
                    }
                    (0..race * 2000).for_each(|_| std::hint::spin_loop());
                    assert_eq!(unsafe { libc::fsync(file.as_raw_fd()) }, 0);
                    assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) }, 0);
                });
                while !begun.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                unmaps.store(true, Ordering::Release);
                assert_eq!(unsafe { libc::munmap(at, RACED_BYTES) }, 0);
            });
        }
    }
}
