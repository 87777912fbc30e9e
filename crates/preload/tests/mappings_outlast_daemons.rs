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
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use harness::support::{Scratch, ends, eventually, novale, program, signal_daemon};
use harness::{PLACE, is_whole, library, mounted};
use rustix::process::{Pid, Signal, kill_process};

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

/// Whether a thread of a process waits in a function of the kernel's.
fn waits_in(process: u32, function: &str) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    // One may have ended by now.
    let places = threads.map(|it| fs::read_to_string(it.path().join("wchan")).unwrap_or_default());
    places.into_iter().any(|place| place.contains(function))
}

/// The file by its number, whatever generation it is of.
fn by_number(scratch: &Scratch) -> PathBuf {
    let ino = fs::metadata(scratch.in_dir("file")).unwrap().ino();
    let mut names = (0..).map(|it| scratch.in_dir(&format!(".novale/{ino}.{it}")));
    names.find(|name| name.exists()).unwrap()
}

/// A program wants a page that a stopped one has to give back. Another one cuts the file, and has its lock in the kernel
/// until that is so. A third one removes a name of the file by number, and has the folder's lock until it gets the
/// file's. Returns the stopped one and those who wait, once the daemon was to have the kernel forget that name, for which
/// it needs the folder's lock; none where the page was refused meanwhile, after five seconds.
fn wait_for_a_page(scratch: &Scratch) -> Option<([Peer; 3], Child)> {
    let [mut wants, mut cuts] =
        ["opens_first", "cuts"].map(|task| Peer::start(scratch, false, task));
    wants.heard("opened");
    cuts.heard("opened");
    let mut holder = Peer::start(scratch, true, "maps_first");
    assert_eq!(holder.heard("mapped"), "own");
    let by_number = by_number(scratch);
    kill_process(Pid::from_child(&holder.child), Signal::STOP).unwrap();
    wants.tell();
    wants.heard("mapped");
    wants.tell();
    let (wanting, cutting) = (wants.child.id(), cuts.child.id());
    let mut is_over = || wants.child.try_wait().unwrap().is_some();
    let mut wait =
        |process, function| eventually(|| waits_in(process, function) || is_over()) && !is_over();
    let two_wait = wait(wanting, "folio") && {
        cuts.tell();
        wait(cutting, "folio")
    };
    let removes = Command::new("rm").arg(by_number).spawn().unwrap();
    let all_wait = two_wait && wait(removes.id(), "vfs_unlink");
    // A name is left to who has looked it up for a second, and each second those are looked at that are as old.
    std::thread::sleep(Duration::from_millis(2200));
    (all_wait && !is_over()).then_some(([holder, wants, cuts], removes))
}

/// It waited, killed, for the folder's lock, and all that it had not answered waited for its end.
#[test]
fn a_killed_daemon_ends_while_a_page_is_waited_for() {
    let Some((scratch, slot)) = with_file("a_killed_daemon_ends") else { return };
    let waiting = (0..5).find_map(|_| wait_for_a_page(&scratch));
    let ([holder, mut wants, mut cuts], mut removes) = waiting.unwrap();
    assert!(ends(signal_daemon(&slot, Signal::KILL)));
    for waits in [&mut wants.child, &mut cuts.child, &mut removes] {
        assert!(eventually(|| waits.try_wait().unwrap().is_some()));
    }
    drop(holder);
    assert!(Command::new("umount").args(["-l", &scratch.dir()]).status().unwrap().success());
    novale(&["check", &slot]).ok();
}

mod tasks {
    use std::fs::File;
    use std::os::fd::AsRawFd;

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
    fn cuts() {
        let file = open();
        println!("opened");
        assert!(is_told());
        file.set_len(0).unwrap();
    }

    #[test]
    #[ignore = "a task of another test"]
    fn stores_once() {
        let at = map(&open());
        unsafe { at.write_volatile(100) };
        sync(at);
    }
}
