//! Promise: a program that has a file's own pages mapped goes on with them when the daemon is killed by whose mount
//! it has mapped the file, whoever maps that by the next mount.
//!
//! Its mapping became the dead mount's, which shows nothing: the next store ended the program.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]

mod harness;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use harness::support::{Scratch, ends, novale, program, signal_daemon};
use harness::{PLACE, is_whole, library, mounted};
use rustix::process::Signal;

const PAGE: usize = 4096;
const PAGES: usize = 4;

/// A task in a process of its own, that says what it has come to and waits to be told to go on.
struct Peer {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Peer {
    fn start(scratch: &Scratch, direct: bool, name: &str) -> Self {
        let own = std::env::current_exe().unwrap();
        let mut command = Command::new(if direct { program() } else { own.clone() });
        if direct {
            command.env("NOVALE_PRELOAD", library());
            command.args(["run", "--map=dax", "--mount", &scratch.dir(), "--"]).arg(own);
        }
        command.args(["--exact", &format!("tasks::{name}"), "--ignored", "--nocapture"]);
        command.env(PLACE, scratch.dir()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        Self { child, says }
    }

    /// Waits until it says a word; returns what it says after it.
    fn heard(&mut self, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let is_there = self.says.read_line(&mut line).unwrap() > 0;
            assert!(is_there, "it ended before it said {word}: {:?}", self.child.wait());
            // The line may begin with what the test's own frame has said.
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }

    fn tell(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn ended(mut self) -> ExitStatus {
        drop(self.child.stdin.take());
        self.child.wait().unwrap()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It has ended, or a test has failed.
        self.child.kill().unwrap_or_default();
    }
}

/// A mount with a file of zeros.
fn with_file(test: &str) -> Option<(Scratch, String)> {
    let (scratch, slot) = mounted(test)?;
    fs::write(scratch.in_dir("file"), vec![0; PAGES * PAGE]).unwrap();
    Some((scratch, slot))
}

/// Kills the daemon, and mounts the pool at the same place.
fn mount_again(scratch: &Scratch, slot: &str) {
    let (daemon, dir) = (signal_daemon(slot, Signal::KILL), scratch.dir());
    assert!(ends(daemon));
    assert!(Command::new("umount").args(["-l", &dir]).status().unwrap().success());
    novale(&["mount", "-o", "direct", slot, &dir]).ok();
}

/// A program that has the mount alone maps the file and stores to it.
fn other_stores(scratch: &Scratch) -> ExitStatus {
    Peer::start(scratch, false, "stores_once").ended()
}

fn first_bytes(scratch: &Scratch) -> Vec<u8> {
    let bytes = fs::read(scratch.in_dir("file")).unwrap();
    bytes.chunks(PAGE).map(|page| page.first().copied().unwrap()).collect()
}

#[test]
fn what_was_mapped_before_stays_and_others_are_refused() {
    let Some((scratch, slot)) = with_file("what_was_mapped_before") else { return };
    let mut holder = Peer::start(&scratch, true, "maps_first");
    assert_eq!(holder.heard("mapped"), "own");
    mount_again(&scratch, &slot);
    for turn in 1..3 {
        assert_eq!(other_stores(&scratch).signal(), Some(libc::SIGBUS));
        holder.tell();
        assert_eq!(holder.heard("shown"), "own");
        assert_eq!(first_bytes(&scratch), [turn; PAGES]);
    }
    assert!(holder.ended().success());
    assert!(other_stores(&scratch).success());
    assert_eq!(first_bytes(&scratch), [100, 2, 2, 2]);
    is_whole(&scratch, &slot);
}

/// The descriptor is the dead mount's, and so was what was to give way.
#[test]
fn what_is_mapped_later_gives_way_to_the_next_mount() {
    let Some((scratch, slot)) = with_file("what_is_mapped_later") else { return };
    let mut holder = Peer::start(&scratch, true, "opens_first");
    holder.heard("opened");
    mount_again(&scratch, &slot);
    holder.tell();
    assert_eq!(holder.heard("mapped"), "own");
    assert!(other_stores(&scratch).success());
    holder.tell();
    assert_eq!(holder.heard("shown"), "kernel");
    assert_eq!(first_bytes(&scratch), [1; PAGES]);
    assert!(holder.ended().success());
    is_whole(&scratch, &slot);
}

mod tasks {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;

    use super::*;

    fn open() -> File {
        let path = PathBuf::from(std::env::var_os(PLACE).unwrap()).join("file");
        File::options().read(true).write(true).open(path).unwrap()
    }

    fn map(file: &File) -> *mut u8 {
        let (len, access) = (PAGES * PAGE, libc::PROT_READ | libc::PROT_WRITE);
        let (none, fd) = (std::ptr::null_mut(), file.as_raw_fd());
        let at = unsafe { libc::mmap(none, len, access, libc::MAP_SHARED, fd, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        at.cast()
    }

    /// Whose pages a mapping shows.
    fn shown(at: *const u8) -> &'static str {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let start = format!("{:x}-", at as usize);
        let line = maps.lines().find(|line| line.starts_with(&start)).unwrap();
        if line.ends_with("/file") || line.contains("/.novale/") { "kernel" } else { "own" }
    }

    fn sync(at: *mut u8) {
        assert_eq!(unsafe { libc::msync(at.cast(), PAGES * PAGE, libc::MS_SYNC) }, 0);
    }

    fn is_told() -> bool {
        std::io::stdin().read_line(&mut String::new()).unwrap() > 0
    }

    /// Stores to all pages each time that it is told to.
    fn store(at: *mut u8) {
        println!("mapped {}", shown(at));
        for turn in (1..).take_while(|_| is_told()) {
            for page in 0..PAGES {
                let word = unsafe { at.add(page * PAGE) };
                unsafe { word.write_volatile(turn) };
            }
            sync(at);
            println!("shown {}", shown(at));
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn maps_first() {
        store(map(&open()));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn opens_first() {
        let file = open();
        // The descriptor is the kernel's, of this mount, from here on.
        assert_eq!(unsafe { libc::munmap(map(&file).cast(), PAGES * PAGE) }, 0);
        println!("opened");
        assert!(is_told());
        store(map(&file));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn stores_once() {
        let at = map(&open());
        unsafe { at.write_volatile(100) };
        sync(at);
    }
}
