//! Promise: a program that has a file's own pages mapped gives way when a program that only has the mount
//! maps the same file: both go on, and no store of either is lost.
//!
//! Each test runs this very program again, directly or through the mount, to do one of the tasks below.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests stop at what fails"
)]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
#![allow(clippy::indexing_slicing, reason = "what is missing is a failure")]

mod harness;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use harness::support::{self, Scratch, is_stopped, program};
use harness::{PLACE, is_whole, library, mounted};
use rustix::process::{Pid, Signal, kill_process};

const PAGE: usize = 4096;
const PAGES: usize = 4;
/// Where in the file a task counts.
const SLOT: &str = "NOVALE_TEST_SLOT";

/// A task in a process of its own, that says what it has come to and waits to be told to go on.
struct Peer {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Peer {
    fn start(scratch: &Scratch, direct: bool, name: &str, slot: usize) -> Self {
        let own = std::env::current_exe().unwrap();
        let mut command = Command::new(if direct { program() } else { own.clone() });
        if direct {
            command.env("NOVALE_PRELOAD", library());
            command.args(["run", "--strict", "--map=dax", "--mount", &scratch.dir(), "--"]);
            command.arg(own);
        }
        command.args(["--exact", &format!("tasks::{name}"), "--ignored", "--nocapture"]);
        command.env(PLACE, scratch.dir()).env(SLOT, slot.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        Self { child, says }
    }

    /// Waits until it says a word; returns what it says after it.
    fn heard(&mut self, word: &str) -> String {
        self.heard_if_any(word).unwrap_or_else(|| panic!("it ended before it said {word}"))
    }

    /// The same, or nothing where it ends before it says the word.
    fn heard_if_any(&mut self, word: &str) -> Option<String> {
        let mut line = String::new();
        while self.says.read_line(&mut line).unwrap() > 0 {
            // The line may begin with what the test's own frame has said.
            if let Some((_, rest)) = line.split_once(word) {
                return Some(rest.trim().to_owned());
            }
            line.clear();
        }
        None
    }

    fn tell(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
        while signal == Signal::STOP && !is_stopped(u64::from(self.child.id())) {
            std::thread::yield_now();
        }
    }

    fn ended(mut self) -> ExitStatus {
        self.end()
    }

    fn end(&mut self) -> ExitStatus {
        drop(self.child.stdin.take());
        self.child.wait().unwrap()
    }

    fn succeeds(mut self) {
        let status = self.end();
        assert!(status.success(), "{status}");
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

fn count_at(scratch: &Scratch, slot: usize) -> u64 {
    let mut bytes = [0; 8];
    let file = File::open(scratch.in_dir("file")).unwrap();
    file.read_exact_at(&mut bytes, slot as u64).unwrap();
    u64::from_le_bytes(bytes)
}

/// Each counts in words of its own, in pages that all store to; `direct` of them have the file's own
/// pages mapped when the last comes, which only has the mount.
fn all_count(test: &str, direct: usize, task: &str) {
    let Some((scratch, slot)) = with_file(test) else { return };
    let mut peers: Vec<(usize, Peer)> =
        (0..direct).map(|at| (at * 64, Peer::start(&scratch, true, task, at * 64))).collect();
    for (_, peer) in &mut peers {
        assert_eq!(peer.heard("mapped"), "own");
    }
    let mut last = Peer::start(&scratch, false, "counts", 2048);
    assert_eq!(last.heard("mapped"), "kernel");
    // It counts, so it was let in.
    last.heard("going on");
    peers.push((2048, last));
    for (_, peer) in &mut peers {
        peer.tell();
    }
    let mut counted = Vec::new();
    for (at, mut peer) in peers {
        counted.push((at, peer.heard("counted").parse::<u64>().unwrap()));
        assert_eq!(peer.heard("shown"), "kernel");
        peer.succeeds();
    }
    for (at, count) in counted {
        assert_eq!(count_at(&scratch, at), count, "what was stored at {at}");
    }
    is_whole(&scratch, &slot);
}

#[test]
fn one_program_gives_way_and_loses_no_store() {
    all_count("one_gives_way", 1, "counts");
}

#[test]
fn two_programs_give_way_and_lose_no_store() {
    all_count("two_give_way", 2, "counts");
}

/// The parent has ended: what its child has inherited is the child's to give up.
#[test]
fn a_child_gives_way_with_what_it_has_inherited() {
    all_count("a_child_gives_way", 1, "child_counts");
}

#[test]
fn who_is_killed_while_others_wait_is_waited_for_no_longer() {
    let Some((scratch, slot)) = with_file("killed_while_wanted") else { return };
    let mut holder = Peer::start(&scratch, true, "counts", 0);
    assert_eq!(holder.heard("mapped"), "own");
    holder.signal(Signal::STOP);
    let mut reader = Peer::start(&scratch, false, "counts", 64);
    assert_eq!(reader.heard("mapped"), "kernel");
    holder.signal(Signal::KILL);
    reader.heard("going on");
    reader.tell();
    reader.heard("counted");
    reader.succeeds();
    assert_eq!(holder.ended().signal(), Some(libc::SIGKILL));
    is_whole(&scratch, &slot);
}

/// It read on in the arena, which was unmapped by then.
#[test]
fn who_waits_for_it_may_leave_the_pool() {
    let Some((scratch, slot)) = with_file("leaves_as_it_waits") else { return };
    let mut holder = Peer::start(&scratch, true, "counts", 0);
    assert_eq!(holder.heard("mapped"), "own");
    holder.signal(Signal::STOP);
    Peer::start(&scratch, true, "leaves_as_it_waits", 64).succeeds();
    holder.signal(Signal::KILL);
    assert_eq!(holder.ended().signal(), Some(libc::SIGKILL));
    is_whole(&scratch, &slot);
}

#[test]
fn who_is_stopped_keeps_others_out_and_gives_way_later() {
    let Some((scratch, slot)) = with_file("stopped_while_wanted") else { return };
    let mut holder = Peer::start(&scratch, true, "counts", 0);
    assert_eq!(holder.heard("mapped"), "own");
    holder.signal(Signal::STOP);
    let start = Instant::now();
    let mut reader = Peer::start(&scratch, false, "counts", 64);
    assert_eq!(reader.heard("mapped"), "kernel");
    assert_eq!(reader.ended().signal(), Some(libc::SIGBUS));
    assert!(start.elapsed() < Duration::from_secs(30));
    holder.signal(Signal::CONT);
    // For a while after somebody has waited in vain others do not wait: until the holder has given way they end as well.
    let mut reader = loop {
        let mut reader = Peer::start(&scratch, false, "counts", 64);
        if reader.heard_if_any("going on").is_some() {
            break reader;
        }
        assert_eq!(reader.ended().signal(), Some(libc::SIGBUS));
        assert!(start.elapsed() < Duration::from_secs(60));
    };
    [&mut holder, &mut reader].into_iter().for_each(Peer::tell);
    assert_eq!(
        holder.heard("counted").parse::<u64>().unwrap(),
        count_shown(&mut holder, &scratch, 0)
    );
    holder.succeeds();
    reader.succeeds();
    is_whole(&scratch, &slot);
}

/// What the file says at a slot when its mapping has become the kernel's.
fn count_shown(peer: &mut Peer, scratch: &Scratch, slot: usize) -> u64 {
    assert_eq!(peer.heard("shown"), "kernel");
    count_at(scratch, slot)
}

/// A write-ahead log's index is memory that processes share.
#[test]
fn sqlite_writes_from_both_sides_at_once() {
    const ROWS: usize = 200;
    let Some((scratch, slot)) = mounted("sqlite_from_both") else { return };
    let database = scratch.in_dir("db");
    let sqlite = |direct: bool, script: &str| {
        let mut command = Command::new(if direct { program() } else { PathBuf::from("sqlite3") });
        if direct {
            command.env("NOVALE_PRELOAD", library());
            command.args(["run", "--strict", "--map=dax", "--mount", &scratch.dir()]);
            command.args(["--", "sqlite3"]);
        }
        command.args(["-cmd", ".timeout 60000"]).arg(&database);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        spawned.map(|mut child| {
            child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
            child
        })
    };
    let output = |child: Child| {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let begin = "pragma journal_mode=wal; create table t(who, n);";
    let Ok(made) = sqlite(true, begin) else {
        println!("skipped: there is no sqlite3");
        return;
    };
    assert_eq!(output(made).trim(), "wal");
    let inserts = |who: &str| format!("insert into t values('{who}', 1);\n").repeat(ROWS);
    let writers = [(true, "a"), (false, "b"), (true, "c")]
        .map(|(direct, who)| sqlite(direct, &inserts(who)).unwrap());
    for writer in writers {
        output(writer);
    }
    for direct in [true, false] {
        let judged =
            output(sqlite(direct, "pragma integrity_check; select count(*) from t;").unwrap());
        assert_eq!(judged, format!("ok\n{}\n", 3 * ROWS));
    }
    is_whole(&scratch, &slot);
}

/// Who can't have a thread to give way by maps the kernel's pages from the start.
#[test]
fn without_a_helper_the_kernel_maps() {
    let Some((scratch, slot)) = with_file("without_a_helper") else { return };
    let mut maps = Peer::start(&scratch, true, "may_make_no_threads", 0);
    assert_eq!(maps.heard("mapped"), "kernel");
    let mut reader = Peer::start(&scratch, false, "counts", 64);
    reader.heard("going on");
    maps.succeeds();
    reader.succeeds();
    is_whole(&scratch, &slot);
}

/// The helper is none of the program's threads: it keeps no process from ending.
#[test]
fn a_process_ends_with_its_last_thread() {
    let Some((scratch, slot)) = with_file("last_thread") else { return };
    Peer::start(&scratch, true, "ends_its_last_thread", 0).succeeds();
    is_whole(&scratch, &slot);
}

/// A child counted its parent's helper until it joined the pool itself: the end of any of its threads was taken for the
/// end of the last one, and ended it with status 0.
#[test]
fn a_child_goes_on_when_one_of_its_threads_ends() {
    let Some((scratch, slot)) = with_file("child_thread") else { return };
    Peer::start(&scratch, true, "ends_threads_of_children", 0).succeeds();
    is_whole(&scratch, &slot);
}

/// A child whose parent was killed, or is not who made it to the kernel, lost all that it had mapped.
#[test]
fn a_child_keeps_its_mappings_whoever_its_parent_is() {
    let Some((scratch, slot)) = with_file("whoever_its_parent") else { return };
    Peer::start(&scratch, true, "makes_siblings", 0).succeeds();
    is_whole(&scratch, &slot);
}

/// A process whose children get numbers of their own can have no thread more: it never gave way again, and the child,
/// which can't hold the file itself, had SIGBUS after five seconds.
#[test]
fn who_can_have_no_helper_any_more_has_given_way() {
    let Some((scratch, slot)) = with_file("no_helper_any_more") else { return };
    let mut unshares = Peer::start(&scratch, true, "unshares_numbers", 0);
    assert_eq!(unshares.heard("shown"), "kernel");
    unshares.succeeds();
    is_whole(&scratch, &slot);
}

/// A private mapping shows the file before it is stored to, and keeps what is stored to itself.
#[test]
fn private_mappings_give_way_too() {
    let Some((scratch, slot)) = with_file("private_mappings") else { return };
    let mut maps = Peer::start(&scratch, true, "maps_privately", 0);
    assert_eq!(maps.heard("mapped"), "own");
    let mut reader = Peer::start(&scratch, false, "counts", 64);
    reader.heard("going on");
    maps.tell();
    maps.heard("done");
    reader.succeeds();
    assert_eq!((count_at(&scratch, 0), count_at(&scratch, PAGE)), (0, 0));
    maps.succeeds();
    is_whole(&scratch, &slot);
}

/// The kernel's mapping in its place is of the first descriptor, which was open for writing: it could be made writable.
#[test]
fn what_was_mapped_to_be_read_is_never_stored_to() {
    let Some((scratch, slot)) = with_file("mapped_to_be_read") else { return };
    let mut maps = Peer::start(&scratch, true, "maps_to_read", 0);
    assert_eq!(maps.heard("mapped"), "own");
    let mut reader = Peer::start(&scratch, false, "counts", 64);
    reader.heard("going on");
    maps.tell();
    maps.heard("done");
    reader.succeeds();
    maps.succeeds();
    is_whole(&scratch, &slot);
}

/// `mremap` put memory of the program's own over a mapping, which the file took when it gave way. A
/// second mapping of a first is the kernel's, since it may be longer, and would show what lies after in
/// the pool.
#[test]
fn what_mremap_has_made_of_mappings_is_known() {
    let Some((scratch, slot)) = with_file("remapped") else { return };
    let mut maps = Peer::start(&scratch, true, "remaps", 0);
    assert_eq!(maps.heard("mapped"), "own");
    let mut reader = Peer::start(&scratch, false, "counts", 64);
    reader.heard("going on");
    maps.tell();
    maps.heard("done");
    reader.succeeds();
    maps.succeeds();
    is_whole(&scratch, &slot);
}

/// A futex in a mapping is known by the file: the one who sleeps on it when that becomes another is
/// reached all the same.
#[test]
fn who_sleeps_in_the_mapping_can_still_be_woken() {
    let Some((scratch, slot)) = with_file("sleepers") else { return };
    let mut sleeper = Peer::start(&scratch, true, "sleeps", 0);
    assert_eq!(sleeper.heard("mapped"), "own");
    let mut reader = Peer::start(&scratch, false, "counts", 64);
    reader.heard("going on");
    sleeper.tell();
    sleeper.succeeds();
    reader.succeeds();
    is_whole(&scratch, &slot);
}

mod tasks {
    use super::harness::exits_with;
    use super::*;

    fn place() -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap())
    }

    fn slot() -> usize {
        std::env::var(SLOT).unwrap().parse().unwrap()
    }

    fn open(path: &Path) -> File {
        File::options().read(true).write(true).open(path).unwrap()
    }

    fn map(access: i32, flags: i32) -> *mut u64 {
        let file = open(&place().join("file"));
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), PAGES * PAGE, access, flags, file.as_raw_fd(), 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        at.cast()
    }

    fn map_shared() -> *mut u64 {
        map(libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED)
    }

    /// Whose pages a mapping shows.
    fn shown<T>(at: *const T) -> &'static str {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let start = format!("{:x}-", at as usize);
        let line = maps.lines().find(|line| line.starts_with(&start)).unwrap();
        if line.ends_with("/file") || line.contains("/.novale/") { "kernel" } else { "own" }
    }

    /// Whether somebody has written to standard input, or it has ended.
    fn is_told() -> bool {
        let mut stdin = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
        unsafe { libc::poll(&raw mut stdin, 1, 0) == 1 }
    }

    /// Counts in the mapping until it is told to end, and until the mapping is the kernel's; not for
    /// ever, if that does not come.
    fn count(map: *mut u64) {
        println!("mapped {}", shown(map));
        let word = unsafe { map.byte_add(slot()) };
        // A page that this one alone has stored to when it is shared.
        let other = unsafe { map.byte_add(PAGE + slot()) };
        let mut counted = 0_u64;
        unsafe { word.write_volatile(0) };
        println!("going on");
        let until = Instant::now() + Duration::from_secs(60);
        while !(counted.is_multiple_of(1000) && is_told() && shown(map) == "kernel")
            && Instant::now() < until
        {
            counted += 1;
            unsafe {
                word.write_volatile(counted);
                other.write_volatile(counted);
                assert_eq!((word.read_volatile(), other.read_volatile()), (counted, counted));
            }
        }
        println!("counted {counted}");
        println!("shown {}", shown(map));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn maps_to_read() {
        let writes = map_shared();
        let (file, len) = (File::open(place().join("file")).unwrap(), PAGES * PAGE);
        let (none, fd) = (std::ptr::null_mut(), file.as_raw_fd());
        let at = unsafe { libc::mmap(none, len, libc::PROT_READ, libc::MAP_SHARED, fd, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        println!("mapped {}", shown(at));
        std::io::stdin().read_line(&mut String::new()).unwrap();
        assert_eq!((shown(at), shown(writes)), ("kernel", "kernel"));
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let protect = |at, len, access| match unsafe { libc::mprotect(at, len, access) } {
            0 => 0,
            _ => std::io::Error::last_os_error().raw_os_error().unwrap(),
        };
        assert_eq!(protect(at, len, both), libc::EACCES);
        assert_eq!(protect(at, PAGE, libc::PROT_NONE), 0);
        assert_eq!(protect(at, PAGE, libc::PROT_READ), 0);
        // Wherever it is, and in each of its mappings.
        let moves = libc::MREMAP_MAYMOVE;
        let second = unsafe { libc::mremap(at, 0, PAGE, moves) };
        let third = unsafe { libc::mremap(at.byte_add(PAGE), PAGE, 2 * PAGE, moves) };
        for (at, len) in [(at, PAGE), (second, PAGE), (third, 2 * PAGE)] {
            assert_eq!(protect(at, len, both), libc::EACCES);
            assert_eq!(unsafe { libc::msync(at, len, libc::MS_SYNC) }, 0);
        }
        assert_eq!(protect(writes.cast(), len, both), 0);
        unsafe { writes.byte_add(PAGE + 8).write_volatile(5) };
        assert_eq!(unsafe { third.cast::<u64>().byte_add(8).read_volatile() }, 5);
        assert_eq!(unsafe { libc::msync(third, PAGE, libc::MS_SYNC) }, 0);
        // What comes in its place is the program's.
        for (at, len) in [(second, PAGE), (third, 2 * PAGE)] {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            assert_eq!(unsafe { libc::mmap(at, len, libc::PROT_READ, flags, -1, 0) }, at);
            assert_eq!(protect(at, len, both), 0);
        }
        println!("done");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn counts() {
        count(map_shared());
    }

    /// Whether a thread sleeps on a futex that processes share, as they do in the arena.
    fn sleeps_by_others(thread: i32) -> bool {
        const FUTEX: &str = "202";
        let at = format!("/proc/self/task/{thread}/syscall");
        let said = fs::read_to_string(at).unwrap_or_default();
        let mut words = said.split(' ');
        let (call, operation) = (words.next(), words.nth(1).unwrap_or_default());
        let operation = i32::from_str_radix(operation.trim_start_matches("0x"), 16);
        call == Some(FUTEX) && operation.is_ok_and(|said| said & libc::FUTEX_PRIVATE_FLAG == 0)
    }

    #[test]
    #[ignore = "a task of another test"]
    fn leaves_as_it_waits() {
        static WAITS: AtomicI32 = AtomicI32::new(0);
        // What may be executed is the kernel's.
        let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let waits = std::thread::spawn(move || {
            WAITS.store(unsafe { libc::gettid() }, Ordering::Release);
            map(access, libc::MAP_SHARED) as usize
        });
        let is_waiting = || {
            let thread = WAITS.load(Ordering::Acquire);
            thread != 0 && sleeps_by_others(thread)
        };
        assert!(support::eventually(is_waiting));
        // A filter that allows all. `mlockall` would read what the other maps meanwhile, and wait for the one who is stopped.
        let mut allow = libc::sock_filter { code: 6, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
        let filter = libc::sock_fprog { len: 1, filter: &raw mut allow };
        let (mode, how) = (libc::SECCOMP_SET_MODE_FILTER, &raw const filter);
        assert_eq!(unsafe { libc::syscall(libc::SYS_seccomp, mode, 0, how) }, 0);
        waits.join().unwrap();
    }

    #[test]
    #[ignore = "a task of another test"]
    fn child_counts() {
        let map = map_shared();
        assert_eq!(shown(map), "own");
        let child = unsafe { libc::fork() };
        if child == 0 {
            count(map);
            unsafe { libc::_exit(0) };
        }
        unsafe { libc::munmap(map.cast(), PAGES * PAGE) };
        assert_eq!(exits_with(child), 0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn makes_siblings() {
        let map = map_shared();
        unsafe { map.write_volatile(7) };
        let between = unsafe { libc::fork() };
        if between == 0 {
            let flags = libc::CLONE_PARENT | libc::SIGCHLD;
            let sibling = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
            if sibling == 0 {
                let seen = unsafe { map.read_volatile() };
                unsafe { map.add(1).write_volatile(seen + 1) };
                unsafe { libc::_exit(i32::from(shown(map) != "own")) };
            }
            unsafe { libc::_exit(i32::from(sibling < 0)) };
        }
        // Both are this one's.
        let (mut status, none) = (0, -1);
        for _ in 0..2 {
            assert!(unsafe { libc::waitpid(none, &raw mut status, 0) } > 0);
            assert_eq!(status, 0);
        }
        assert_eq!(unsafe { map.add(1).read_volatile() }, 8);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn unshares_numbers() {
        let map = map_shared();
        assert_eq!(shown(map), "own");
        unsafe { map.write_volatile(7) };
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0);
        println!("shown {}", shown(map));
        let child = unsafe { libc::fork() };
        if child == 0 {
            let seen = unsafe { map.read_volatile() };
            unsafe { map.add(1).write_volatile(seen + 1) };
            unsafe { libc::_exit(0) };
        }
        assert_eq!(exits_with(child), 0);
        assert_eq!(unsafe { map.add(1).read_volatile() }, 8);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn may_make_no_threads() {
        const NR: u32 = 0;
        let op = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
            code: u16::try_from(code).unwrap(),
            jt,
            jf,
            k,
        };
        let clone = u32::try_from(libc::SYS_clone).unwrap();
        let refuse = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap();
        let mut filter = [
            op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, NR),
            op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, clone),
            op(libc::BPF_RET | libc::BPF_K, 0, 0, refuse),
            op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let filter = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            assert_eq!(
                libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter),
                0
            );
        }
        let map = map_shared();
        unsafe { map.write_volatile(1) };
        println!("mapped {}", shown(map));
        std::io::stdin().read_line(&mut String::new()).unwrap();
    }

    #[test]
    #[ignore = "a task of another test"]
    fn ends_its_last_thread() {
        let map = map_shared();
        assert_eq!(shown(map), "own");
        // A process that stays has no thread that takes signals.
        unsafe { libc::alarm(60) };
        let goes_with_this_one = || unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        let child = unsafe { libc::fork() };
        if child == 0 {
            // The child's only thread, but for the helper.
            assert_eq!(fs::read_dir("/proc/self/task").unwrap().count(), 2);
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
        assert_eq!(exits_with(child), 0);
        // The first thread is counted until the process has ended: the last one was taken for one of two, and the helper
        // kept the process.
        let child = unsafe { libc::fork() };
        if child == 0 {
            assert_eq!(goes_with_this_one(), 0);
            unsafe { map.write_volatile(1) };
            let first = format!("/proc/self/task/{}/stat", std::process::id());
            std::thread::spawn(move || {
                while !fs::read_to_string(&first).unwrap().contains(") Z ") {
                    std::thread::yield_now();
                }
                unsafe { libc::syscall(libc::SYS_exit, 0) };
            });
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
        assert_eq!(exits_with(child), 0);
        // Two that ended at once saw each other, in one of sixty such processes.
        for _ in 0..400 {
            let child = unsafe { libc::fork() };
            if child == 0 {
                assert_eq!(goes_with_this_one(), 0);
                unsafe { map.write_volatile(1) };
                let both: &std::sync::Barrier = Box::leak(Box::new(std::sync::Barrier::new(2)));
                let ends = move || {
                    both.wait();
                    unsafe { libc::syscall(libc::SYS_exit, 0) };
                };
                std::thread::spawn(ends);
                ends();
            }
            assert_eq!(exits_with(child), 0);
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn ends_threads_of_children() {
        assert_eq!(shown(map_shared()), "own");
        // As libc has it, and past libc with a stack of its own.
        let makers: [fn(extern "C" fn(*mut libc::c_void) -> i32) -> i32; 2] = [
            |run| match unsafe { libc::fork() } {
                0 => unsafe { libc::_exit(run(std::ptr::null_mut())) },
                child => child,
            },
            |run| {
                let stack = vec![0_u128; 64 << 10].leak().as_mut_ptr_range().end;
                unsafe { libc::clone(run, stack.cast(), libc::SIGCHLD, std::ptr::null_mut()) }
            },
        ];
        for make in makers {
            let child = make(child_with_a_thread);
            assert!(child > 0);
            assert_eq!(exits_with(child), 7 << 8);
        }
    }

    extern "C" fn child_with_a_thread(_: *mut libc::c_void) -> i32 {
        std::thread::spawn(|| ()).join().unwrap();
        7
    }

    #[test]
    #[ignore = "a task of another test"]
    fn sleeps() {
        let map = map_shared();
        let word = map as usize;
        let sleeper = std::thread::spawn(move || {
            let word = word as *const u32;
            while unsafe { word.read_volatile() } == 0 {
                unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, 0, 0) };
            }
        });
        let sleeps = || {
            let tasks = fs::read_dir("/proc/self/task").unwrap();
            let call = |task: fs::DirEntry| fs::read_to_string(task.path().join("syscall"));
            let mut calls = tasks.map(|task| call(task.unwrap()).unwrap());
            calls.any(|call| call.starts_with(&format!("{} {word:#x} ", libc::SYS_futex)))
        };
        assert!(harness::support::eventually(sleeps));
        println!("mapped {}", shown(map));
        std::io::stdin().read_line(&mut String::new()).unwrap();
        assert_eq!(shown(map), "kernel");
        unsafe {
            map.write_volatile(1);
            libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, 1);
        }
        assert!(harness::support::eventually(|| sleeper.is_finished()));
        sleeper.join().unwrap();
    }

    #[test]
    #[ignore = "a task of another test"]
    fn remaps() {
        let (covered, doubled) = (map_shared(), map_shared());
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let moved = unsafe {
            let own = libc::mmap(std::ptr::null_mut(), PAGE, access, flags, -1, 0);
            own.cast::<u64>().write_volatile(7);
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            libc::mremap(own, PAGE, PAGE, flags, covered.cast::<libc::c_void>())
        };
        assert_eq!(moved, covered.cast());
        println!("mapped {}", shown(doubled));
        std::io::stdin().read_line(&mut String::new()).unwrap();
        while shown(doubled) != "kernel" {
            std::thread::yield_now();
        }
        let second = unsafe {
            let whole = (PAGES + 1) * PAGE;
            libc::mremap(doubled.cast(), 0, whole, libc::MREMAP_MAYMOVE)
        };
        assert_ne!(second, libc::MAP_FAILED);
        assert_eq!(
            (shown(second.cast::<u64>()), unsafe { covered.read_volatile() }),
            ("kernel", 7)
        );
        println!("done");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn maps_privately() {
        let (first, second) =
            (map(libc::PROT_READ, libc::MAP_PRIVATE), map(libc::PROT_READ, libc::MAP_PRIVATE));
        let both = libc::PROT_READ | libc::PROT_WRITE;
        println!("mapped {}", shown(first));
        std::io::stdin().read_line(&mut String::new()).unwrap();
        while shown(first) != "kernel" {
            std::thread::yield_now();
        }
        unsafe {
            // What others store may show, and does.
            while first.add(8).read_volatile() == 0 {
                std::thread::yield_now();
            }
            assert_eq!(libc::mprotect(first.cast(), PAGE, both), 0);
            first.write_volatile(9);
            assert_eq!(libc::mprotect(second.byte_add(PAGE).cast(), PAGE, both), 0);
            second.byte_add(PAGE).write_volatile(7);
            assert_eq!((first.read_volatile(), second.byte_add(PAGE).read_volatile()), (9, 7));
        }
        println!("done");
        std::io::stdin().read_line(&mut String::new()).unwrap();
    }
}
