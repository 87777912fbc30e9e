//! Promise: a program that begins to map a file's own pages gives way to a program that only has the mount and maps the
//! same file at that moment. Threads that map a file, in any way, and one that changes the inode wait for each other no
//! longer than they must.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

#[allow(unused_macros, reason = "its test is written out")]
mod harness;

use std::fs::File;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use harness::support::{Scratch, eventually, program};
use harness::{PLACE, is_whole, library, mounted, succeeds, task};

const PAGE: usize = 4096;
/// Each in a piece of its own, so that to map them takes a while.
const PAGES: usize = 1000;
const ROUNDS: u32 = 24;
/// Somebody who is waited for in vain is given up after five seconds.
const LONG: Duration = Duration::from_secs(3);

/// Maps a file's first page, or all of it.
fn map(file: &File, pages: usize) -> *mut libc::c_void {
    let (none, fd) = (std::ptr::null_mut(), file.as_raw_fd());
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let at = unsafe { libc::mmap(none, pages * PAGE, access, libc::MAP_SHARED, fd, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at
}

fn unmap(at: *mut libc::c_void, pages: usize) {
    assert_eq!(unsafe { libc::munmap(at, pages * PAGE) }, 0);
}

/// Makes a file whose pages lie apart from each other in the pool.
fn make_in_pieces(scratch: &Scratch) {
    let [file, between] =
        ["file", "between"].map(|name| File::create(scratch.in_dir(name)).unwrap());
    for page in 0..PAGES {
        for file in [&file, &between] {
            file.write_all_at(&[1; PAGE], (page * PAGE) as u64).unwrap();
        }
    }
}

/// A task that runs directly.
struct Direct {
    child: Child,
    tells: ChildStdin,
    says: Lines<BufReader<ChildStdout>>,
}

impl Direct {
    fn start(scratch: &Scratch, task: &str) -> Self {
        let mut command = Command::new(program());
        command.env("NOVALE_PRELOAD", library()).env(PLACE, scratch.dir());
        command.args(["run", "--strict", "--map=dax", "--mount", &scratch.dir(), "--"]);
        command.arg(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("tasks::{task}"), "--ignored", "--nocapture"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let tells = child.stdin.take().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, tells, says }
    }

    fn tell(&mut self) {
        self.tells.write_all(b"\n").unwrap();
    }

    /// Waits until it says a word; returns what it says after it.
    fn heard(&mut self, word: &str) -> String {
        let mut lines = self.says.by_ref().map(Result::unwrap);
        lines.find_map(|line| Some(line.split_once(word)?.1.trim().to_owned())).unwrap()
    }

    fn succeeds(mut self) {
        drop(self.tells);
        assert!(self.child.wait().unwrap().success());
    }
}

/// In each round a task is told to map the file, and at some time after it has said `begins` its first page is wanted
/// through the mount.
fn is_let_in(test: &str, task: &str) {
    let Some((scratch, slot)) = mounted(test) else { return };
    make_in_pieces(&scratch);
    let mut direct = Direct::start(&scratch, task);
    let mut took = Duration::ZERO;
    for round in 0..ROUNDS {
        // It is opened before the other maps it: to open it later is to wait for its pages.
        let file = File::options().read(true).write(true).open(scratch.in_dir("file")).unwrap();
        let at = map(&file, 1);
        direct.tell();
        direct.heard("begins");
        let until = Instant::now() + took * round / ROUNDS;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        let start = Instant::now();
        let is_there = unsafe { libc::madvise(at, PAGE, libc::MADV_POPULATE_WRITE) } == 0;
        let waited = start.elapsed();
        took = Duration::from_micros(direct.heard("took").parse().unwrap());
        unmap(at, 1);
        drop(file);
        direct.tell();
        direct.heard("ended");
        assert!(is_there && waited < LONG, "round {round}: {is_there}, after {waited:?}");
    }
    direct.succeeds();
    is_whole(&scratch, &slot);
}

/// The thread that gives way looked for the mapping when the file was held, and the mapping not known yet. It slept for
/// ten seconds then, and who had the mount alone ended by SIGBUS after five.
#[test]
fn who_is_asked_as_it_begins_to_map_gives_way() {
    is_let_in("asked_as_it_begins", "maps_when_told");
}

/// Another thread had the kernel open the file, which waited for the page that was wanted, and kept its own process from
/// giving way.
#[test]
fn who_waits_in_the_kernel_for_the_same_page_gives_way() {
    is_let_in("waits_for_the_same_page", "locks_when_told");
}

/// Of two threads that begin to map the file at once, the second had the kernel open and map it when the first had it
/// mapped already.
#[test]
fn two_threads_that_begin_at_once_give_way() {
    is_let_in("two_that_begin_at_once", "both_map_when_told");
}

/// One that had the file's lock needed memory, and so the table of mappings. A page fault of the file kept that table,
/// and waited for the file's lock.
#[test]
fn threads_that_map_a_file_and_one_that_gives_it_names_go_on() {
    let Some((scratch, slot)) = mounted("threads_that_map_a_file") else { return };
    let mut task = task(&scratch, "names_and_maps");
    let mut running = task.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let ended = eventually(|| running.try_wait().unwrap().is_some());
    if !ended {
        running.kill().unwrap();
    }
    let output = running.wait_with_output().unwrap();
    assert!(ended, "it waits for itself");
    succeeds(&output);
    is_whole(&scratch, &slot);
}

mod tasks {
    use std::fs::{self, File};
    use std::os::fd::AsRawFd;
    use std::path::{Path, PathBuf};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::harness::{PLACE, support};
    use super::{PAGE, PAGES, map, unmap};

    const SOME_PAGES: usize = 64;

    fn is_told() -> bool {
        std::io::stdin().read_line(&mut String::new()).unwrap() > 0
    }

    fn open(path: &Path) -> File {
        File::options().read(true).write(true).open(path).unwrap()
    }

    /// Whether a mapping of the file is one of its own pages.
    fn is_own(path: &Path) -> bool {
        let file = open(path);
        let at = map(&file, 1);
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let start = format!("{:x}-", at.addr());
        let line = maps.lines().find(|line| line.starts_with(&start)).unwrap();
        let is_own = !line.ends_with("/file") && !line.contains("/.novale/");
        unmap(at, 1);
        is_own
    }

    /// The file is the kernel's until the daemon has met the end of all that was open through the mount: before it is opened
    /// there again, since it stays so otherwise.
    #[allow(clippy::print_stdout, reason = "it says what it has come to")]
    fn ends(path: &Path) {
        assert!(support::eventually(|| is_own(path)));
        println!("ended");
    }

    #[test]
    #[ignore = "a task of another test"]
    #[allow(clippy::print_stdout, reason = "it says what it has come to")]
    fn maps_when_told() {
        let path = PathBuf::from(std::env::var_os(PLACE).unwrap()).join("file");
        while is_told() {
            let file = open(&path);
            println!("begins");
            let start = Instant::now();
            let at = map(&file, PAGES);
            println!("took {}", start.elapsed().as_micros());
            is_told();
            unmap(at, PAGES);
            drop(file);
            ends(&path);
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    #[allow(clippy::print_stdout, reason = "it says what it has come to")]
    fn both_map_when_told() {
        let path = PathBuf::from(std::env::var_os(PLACE).unwrap()).join("file");
        while is_told() {
            let both = Barrier::new(2);
            let begins = || {
                let file = open(&path);
                if both.wait().is_leader() {
                    println!("begins");
                }
                let start = Instant::now();
                (map(&file, PAGES).expose_provenance(), start.elapsed(), file)
            };
            let mapped = std::thread::scope(|scope| {
                let other = scope.spawn(begins);
                [begins(), other.join().unwrap()]
            });
            println!("took {}", mapped[0].1.as_micros());
            is_told();
            for (at, _, file) in mapped {
                unmap(std::ptr::with_exposed_provenance_mut(at), PAGES);
                drop(file);
            }
            ends(&path);
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    #[allow(clippy::print_stdout, reason = "it says what it has come to")]
    fn locks_when_told() {
        let path = PathBuf::from(std::env::var_os(PLACE).unwrap()).join("file");
        while is_told() {
            let file = open(&path);
            let at = map(&file, 1);
            println!("begins\ntook 0");
            // Each opening is another one, which the kernel has to lock.
            let mut told = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
            while unsafe { libc::poll(&raw mut told, 1, 0) } == 0 {
                assert_eq!(unsafe { libc::flock(open(&path).as_raw_fd(), libc::LOCK_SH) }, 0);
            }
            is_told();
            unmap(at, 1);
            drop(file);
            ends(&path);
        }
    }

    /// Maps a file, stores to its pages, and unmaps it, over and over.
    fn map_and_unmap(path: &Path, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            let file = open(path);
            let at = map(&file, SOME_PAGES);
            for page in (0..SOME_PAGES).step_by(7) {
                unsafe { at.cast::<u8>().add(page * PAGE).write_volatile(1) };
            }
            unmap(at, SOME_PAGES);
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn names_and_maps() {
        let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
        let (file, is_over) = (place.join("file"), AtomicBool::new(false));
        fs::write(&file, vec![0; SOME_PAGES * PAGE]).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| map_and_unmap(&file, &is_over));
            }
            // Long ones, which take memory that all programs share.
            for number in 0..150_000 {
                fs::hard_link(&file, place.join(format!("{number:0>200}"))).unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
