//! Promise: under `novale run --map=dax` a mapping that is longer than its file shows what the file gets
//! later, no matter who makes it longer, and gives SIGBUS after the file's last page. Also without that option it shows
//! all of the length that the program was told.
//!
//! Such mappings were the kernel's. LMDB maps as much as its database may ever hold, and then writes to
//! the file: each of its transactions went through the daemon several times.
//!
//! Each test runs this very program again, directly or through the mount, to do one of the tasks below.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
#![allow(clippy::indexing_slicing, reason = "what is missing is a failure")]

mod harness;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use harness::support::{Scratch, program};
use harness::{PLACE, block_all_signals, is_whole, library, mounted};

const PAGE: usize = 4096;
/// What is mapped of a file of two pages.
const LONG: usize = 256 << 20;

/// A task in a process of its own, which says what it has come to and waits to be told to go on.
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
            command.args(["run", "--strict", "--map=dax", "--mount", &scratch.dir(), "--"]);
            command.arg(own);
        }
        command.args(["--exact", &format!("tasks::{name}"), "--ignored", "--nocapture"]);
        command.env(PLACE, scratch.dir());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        Self { child, says }
    }

    /// Waits until it says a word.
    fn heard(&mut self, word: &str) {
        let mut line = String::new();
        while !line.contains(word) {
            line.clear();
            assert!(self.says.read_line(&mut line).unwrap() > 0, "it ended before it said {word}");
        }
    }

    fn tell(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn succeeds(mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It has ended, or a test has failed.
        self.child.kill().unwrap_or_default();
    }
}

/// A mount with a file of two pages of sevens.
fn with_file(test: &str) -> Option<(Scratch, String)> {
    let (scratch, slot) = mounted(test)?;
    fs::write(scratch.in_dir("file"), [7; 2 * PAGE]).unwrap();
    Some((scratch, slot))
}

/// Runs a task alone.
fn alone(name: &str) {
    let Some((scratch, slot)) = with_file(name) else { return };
    Peer::start(&scratch, true, name).succeeds();
    is_whole(&scratch, &slot);
}

/// The end of the opening before took back that the kernel maps the file, who was not told then that it is longer, and
/// gave SIGBUS in what it has got.
#[test]
fn a_file_that_was_open_just_now_grows() {
    alone("was_open_just_now");
}

#[test]
fn the_file_grows_by_calls_of_the_same_process() {
    alone("grows_it_itself");
}

/// A call of the kernel's takes what it is handed in such a mapping: the pages are there before.
#[test]
fn threads_grow_and_map_at_once() {
    alone("threads_grow_it");
}

#[test]
fn behind_the_end_is_sigbus_and_the_programs_own() {
    alone("touches_what_is_behind");
}

#[test]
fn children_see_it_grow_too() {
    alone("child_sees_it_grow");
}

#[test]
fn parts_are_unmapped_moved_and_protected() {
    alone("changes_parts");
}

/// By another direct process, and then by one that has the mount alone.
#[test]
fn the_file_grows_by_others() {
    let Some((scratch, slot)) = with_file("grows_by_others") else { return };
    let mut maps = Peer::start(&scratch, true, "reads_as_it_grows");
    maps.heard("mapped");
    for pages in [3_usize, 4, 600] {
        let direct = pages != 4;
        let mut grows = Peer::start(&scratch, direct, "adds_a_page");
        grows.child.stdin.as_mut().unwrap().write_all(format!("{pages}\n").as_bytes()).unwrap();
        grows.heard("added");
        grows.succeeds();
        maps.child.stdin.as_mut().unwrap().write_all(format!("{pages}\n").as_bytes()).unwrap();
        maps.heard("seen");
    }
    maps.succeeds();
    is_whole(&scratch, &slot);
}

/// The kernel knew a shorter file when it was mapped: beyond its end the mapping that took the place of
/// the file's own pages gave SIGBUS.
#[test]
fn it_gives_way_with_all_that_the_file_has_got() {
    let Some((scratch, slot)) = with_file("gives_way_long") else { return };
    let mut maps = Peer::start(&scratch, true, "gives_way");
    maps.heard("mapped");
    let mut reader = Peer::start(&scratch, false, "maps_by_kernel");
    reader.heard("mapped");
    // It has it open, and not touched yet.
    maps.tell();
    maps.heard("grown");
    reader.tell();
    reader.heard("touched");
    maps.tell();
    maps.heard("still there");
    reader.tell();
    reader.heard("seen");
    maps.succeeds();
    reader.succeeds();
    is_whole(&scratch, &slot);
}

/// More pieces than a mapping may have, and more holes than are filled.
#[test]
fn what_grows_in_too_many_pieces_becomes_the_kernels() {
    alone("grows_in_pieces");
}

/// The length was the pool's, of which the kernel knew when its own write was back: the program got SIGBUS, or zeros.
#[test]
fn all_of_a_length_that_was_told_is_there() {
    let Some((scratch, slot)) = mounted("all_of_a_length_that_was_told_is_there") else { return };
    harness::succeeds(&harness::task(&scratch, "told_lengths").output().unwrap());
    is_whole(&scratch, &slot);
}

/// A process whose children get numbers of their own has no thread to give way: its mappings became the kernel's, who
/// knew neither how long the file was by then nor how long the process made it after that.
#[test]
fn what_becomes_the_kernels_unasked_is_as_long_as_the_file() {
    alone("unshares_numbers");
}

/// A child without a free descriptor can't hold what its parent has mapped: its mapping is the kernel's, who did not know
/// how long the file was.
#[test]
fn a_child_without_descriptors_sees_all_of_the_file() {
    alone("has_no_descriptor_left");
}

/// Who confines itself is shown all of a file that it has no descriptor of any more.
#[test]
fn who_has_confined_itself_sees_all_of_the_file() {
    alone("locks_all_memory");
}

mod tasks {
    use super::harness::exits_with;
    use super::*;

    const READS: i32 = libc::PROT_READ;
    const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;

    fn path() -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap()).join("file")
    }

    fn open() -> File {
        File::options().read(true).write(true).open(path()).unwrap()
    }

    /// How long a file is: as std asks, by its descriptor, by its path, and by its end.
    const LENGTHS: [fn(&File) -> i64; 4] = [
        |file| file.metadata().unwrap().len().cast_signed(),
        |file| {
            let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
            assert_eq!(unsafe { libc::fstat(file.as_raw_fd(), found.as_mut_ptr()) }, 0);
            unsafe { found.assume_init() }.st_size
        },
        |_| fs::metadata(path()).unwrap().len().cast_signed(),
        |file| unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_END) },
    ];

    #[test]
    #[ignore = "a task of another test"]
    fn told_lengths() {
        const RECORD: [u8; 512] = [b'x'; 512];
        const RECORDS: usize = 1500;
        for length in LENGTHS {
            let file =
                File::options().read(true).write(true).create_new(true).open(path()).unwrap();
            let map = Map::of(&file, READS, libc::MAP_SHARED);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut other = File::options().append(true).open(path()).unwrap();
                    (0..RECORDS).for_each(|_| other.write_all(&RECORD).unwrap());
                });
                let mut seen = 0;
                while seen < RECORDS * RECORD.len() {
                    let end = usize::try_from(length(&file)).unwrap();
                    assert!((seen..end).step_by(RECORD.len()).all(|at| map.get(at) == b'x'));
                    seen = end;
                }
            });
            map.unmap();
            fs::remove_file(path()).unwrap();
        }
    }

    /// A mapping, byte by byte.
    #[derive(Clone, Copy)]
    struct Map(usize);

    impl Map {
        fn of(file: &File, access: i32, flags: i32) -> Self {
            let none = std::ptr::null_mut();
            let at = unsafe { libc::mmap(none, LONG, access, flags, file.as_raw_fd(), 0) };
            assert_ne!(at, libc::MAP_FAILED);
            Self(at as usize)
        }

        fn shared(file: &File) -> Self {
            Self::of(file, BOTH, libc::MAP_SHARED)
        }

        fn get(self, at: usize) -> u8 {
            unsafe { ((self.0 + at) as *const u8).read_volatile() }
        }

        fn set(self, at: usize, byte: u8) {
            unsafe { ((self.0 + at) as *mut u8).write_volatile(byte) };
        }

        fn unmap(self) {
            assert_eq!(unsafe { libc::munmap(self.0 as *mut _, LONG) }, 0);
        }

        /// Whose pages a piece shows.
        fn shown(self, at: usize) -> &'static str {
            let maps = fs::read_to_string("/proc/self/maps").unwrap();
            let line = maps.lines().find(|line| {
                let (start, rest) = line.split_once('-').unwrap();
                let [start, end] = [start, rest.split_once(' ').unwrap().0]
                    .map(|address| usize::from_str_radix(address, 16).unwrap());
                (start..end).contains(&(self.0 + at))
            });
            match line.unwrap() {
                line if line.contains("/memfd:novale") => "nothing",
                line if line.ends_with("/pool") => "own",
                _ => "kernel",
            }
        }
    }

    static CAUGHT: AtomicUsize = AtomicUsize::new(0);

    /// Puts a page of zeros where it was touched.
    extern "C" fn on_bus(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        let at = unsafe { (*info).si_addr() } as usize;
        CAUGHT.store(at, Ordering::Relaxed);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let page = (at / PAGE * PAGE) as *mut _;
        unsafe { libc::mmap(page, PAGE, BOTH, flags, -1, 0) };
    }

    /// Whether the kernel takes a byte there, by a call that is not Novale's.
    fn kernel_takes(map: Map, at: usize) -> bool {
        let mut ends = [0; 2];
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            let taken = libc::write(ends[1], (map.0 + at) as *const _, 1);
            for end in ends {
                assert_eq!(libc::close(end), 0);
            }
            taken == 1
        }
    }

    fn told() -> String {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    #[test]
    #[ignore = "a task of another test"]
    fn was_open_just_now() {
        for _ in 0..40 {
            let before = open();
            before.set_len(2 * PAGE as u64).unwrap();
            assert_eq!(unsafe { libc::flock(before.as_raw_fd(), libc::LOCK_SH) }, 0);
            drop(before);
            let again = open();
            // It is the kernel's.
            let map = Map::of(&again, BOTH, libc::MAP_PRIVATE);
            open().set_len(LONG as u64).unwrap();
            assert_eq!((map.get(PAGE), map.get(LONG - 1)), (7, 0));
            map.unmap();
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn grows_it_itself() {
        let file = open();
        let (map, reads) = (Map::shared(&file), Map::of(&file, READS, libc::MAP_SHARED));
        let private = Map::of(&File::open(path()).unwrap(), READS, libc::MAP_PRIVATE);
        let all = [map, reads, private];
        for one in all {
            assert_eq!((one.shown(0), one.shown(2 * PAGE)), ("own", "nothing"));
        }
        assert!(!kernel_takes(map, 2 * PAGE));
        // Within the last page it is zeros up to its end.
        let mut page = 2;
        let mut is_there = |grow: &dyn Fn(u64)| {
            grow((page * PAGE) as u64);
            for one in all {
                assert_eq!((one.shown(page * PAGE), kernel_takes(one, page * PAGE)), ("own", true));
                assert_eq!(one.shown((page + 1) * PAGE), "nothing");
            }
            let byte = u8::try_from(page).unwrap();
            map.set(page * PAGE, byte);
            let mut read = [0];
            file.read_exact_at(&mut read, (page * PAGE) as u64).unwrap();
            assert_eq!((reads.get(page * PAGE), private.get(page * PAGE)), (byte, byte));
            assert_eq!(read, [byte]);
            page += 1;
        };
        is_there(&|end| file.write_all_at(&[1; 100], end).unwrap());
        is_there(&|end| file.set_len(end + 10).unwrap());
        is_there(&|end| {
            let end = i64::try_from(end).unwrap();
            let fd = file.as_raw_fd();
            assert_eq!(unsafe { libc::fallocate(fd, 0, end, 5) }, 0);
        });
        is_there(&|_| {
            let end = file.metadata().unwrap().len().next_multiple_of(PAGE as u64);
            file.set_len(end).unwrap();
            let mut appends = File::options().append(true).open(path()).unwrap();
            appends.write_all(b"x").unwrap();
        });
        is_there(&|end| {
            let path = std::ffi::CString::new(path().to_str().unwrap()).unwrap();
            let end = i64::try_from(end + 1).unwrap();
            assert_eq!(unsafe { libc::truncate(path.as_ptr(), end) }, 0);
        });
        is_there(&|end| {
            let (fd, mut from, mut to) = (file.as_raw_fd(), 0, i64::try_from(end).unwrap());
            let copied =
                unsafe { libc::copy_file_range(fd, &raw mut from, fd, &raw mut to, 100, 0) };
            assert_eq!(copied, 100);
        });
        // Cut off, and the same pages again.
        map.set(PAGE, 44);
        file.set_len(100).unwrap();
        file.set_len(40 * PAGE as u64).unwrap();
        assert_eq!((map.get(PAGE), map.get(39 * PAGE)), (0, 0));
        map.set(39 * PAGE, 3);
        assert_eq!((reads.get(39 * PAGE), private.get(39 * PAGE)), (3, 3));
        assert_eq!(unsafe { libc::msync(map.0 as *mut _, LONG, libc::MS_SYNC) }, 0);
        file.sync_data().unwrap();
        all.into_iter().for_each(Map::unmap);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn threads_grow_it() {
        let file = open();
        let (end, done) = (AtomicUsize::new(2), AtomicBool::new(false));
        let first = Map::shared(&file);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let known = end.load(Ordering::Acquire);
                        let map = Map::shared(&file);
                        assert_eq!(
                            (map.get(known * PAGE - 1), first.get(known * PAGE - 1)),
                            (7, 7)
                        );
                        assert!(kernel_takes(map, known * PAGE - 1));
                        map.unmap();
                    }
                });
            }
            for page in 2..300 {
                file.write_all_at(&[7; PAGE], (page * PAGE) as u64).unwrap();
                end.store(page + 1, Ordering::Release);
            }
            done.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    #[ignore = "a task of another test"]
    fn touches_what_is_behind() {
        let file = open();
        let map = Map::shared(&file);
        // Without a handler it ends the process.
        for at in [2 * PAGE, LONG - 1] {
            let child = unsafe { libc::fork() };
            if child == 0 {
                map.set(at, 1);
                unsafe { libc::_exit(0) };
            }
            let status = exits_with(child);
            assert_eq!(libc::WTERMSIG(status), libc::SIGBUS);
        }
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_bus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(
            unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) },
            0
        );
        for _ in 0..3 {
            let at = LONG - PAGE + 5;
            assert_eq!(map.get(at), 0);
            assert_eq!(CAUGHT.swap(0, Ordering::Relaxed), map.0 + at);
            // What the handler has put there is the program's, and stays.
            file.set_len(8 << 20).unwrap();
            map.set(at, 5);
            assert_eq!((map.get(at), CAUGHT.load(Ordering::Relaxed)), (5, 0));
            file.set_len(2 * PAGE as u64).unwrap();
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            let fd = file.as_raw_fd();
            let again = unsafe { libc::mmap(map.0 as *mut _, LONG, BOTH, flags, fd, 0) };
            assert_eq!(again as usize, map.0);
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn child_sees_it_grow() {
        let file = open();
        let map = Map::shared(&file);
        let mut ends = [0; 2];
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        let child = unsafe { libc::fork() };
        let mut byte = 0_u8;
        if child == 0 {
            unsafe { libc::read(ends[0], (&raw mut byte).cast(), 1) };
            let seen = (map.get(2 * PAGE), map.get(9 * PAGE));
            file.write_all_at(&[10; PAGE], 10 * PAGE as u64).unwrap();
            map.set(10 * PAGE + 1, 11);
            let good = seen == (8, 9) && map.shown(10 * PAGE) == "own";
            unsafe { libc::_exit(i32::from(!good)) };
        }
        file.write_all_at(&[8; PAGE], 2 * PAGE as u64).unwrap();
        file.write_all_at(&[9; PAGE], 9 * PAGE as u64).unwrap();
        let mut status = 1;
        unsafe {
            libc::write(ends[1], (&raw const byte).cast(), 1);
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        }
        assert_eq!(status, 0);
        assert_eq!((map.get(10 * PAGE), map.get(10 * PAGE + 1)), (10, 11));
        // A call that fails leaves it as it was.
        Command::new("/no/such/program").status().unwrap_err();
        file.write_all_at(&[12; PAGE], 12 * PAGE as u64).unwrap();
        assert_eq!((map.get(12 * PAGE), map.shown(13 * PAGE)), (12, "nothing"));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn changes_parts() {
        let file = open();
        let at = |map: Map, at: usize| (map.0 + at) as *mut libc::c_void;
        let map = Map::shared(&file);
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        unsafe {
            // A page beyond the end unmapped, one covered, one made to be read alone.
            assert_eq!(libc::munmap(at(map, 4 * PAGE), PAGE), 0);
            assert_eq!(
                libc::mmap(at(map, 5 * PAGE), PAGE, BOTH, anonymous, -1, 0),
                at(map, 5 * PAGE)
            );
            assert_eq!(libc::mprotect(at(map, 6 * PAGE), PAGE, READS), 0);
        }
        map.set(5 * PAGE, 55);
        file.write_all_at(&vec![6; 8 * PAGE], 2 * PAGE as u64).unwrap();
        assert_eq!([2, 3, 5, 6, 9].map(|page| map.get(page * PAGE)), [6, 6, 55, 6, 6]);
        assert!(!kernel_takes(map, 4 * PAGE));
        let mut read = [0];
        file.read_exact_at(&mut read, 5 * PAGE as u64).unwrap();
        assert_eq!(read, [6]);
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.starts_with(&format!("{:x}-", map.0 + 6 * PAGE)));
        assert!(line.unwrap().contains(" r--s "), "{line:?}");
        // The rest moved, and longer.
        let moved = unsafe {
            let flags = libc::MREMAP_MAYMOVE;
            libc::mremap(at(map, 8 * PAGE), LONG - 8 * PAGE, LONG, flags)
        };
        assert_ne!(moved, libc::MAP_FAILED);
        let moved = Map(moved as usize - 8 * PAGE);
        file.write_all_at(&[11; PAGE], 11 * PAGE as u64).unwrap();
        moved.set(11 * PAGE + 1, 12);
        assert_eq!([9, 11].map(|page| moved.get(page * PAGE)), [6, 11]);
        assert_eq!(moved.shown(12 * PAGE), "nothing");
        // A private one that becomes writable keeps what it shows to itself.
        let private = Map::of(&file, READS, libc::MAP_PRIVATE);
        assert_eq!(unsafe { libc::mprotect(private.0 as *mut _, LONG, BOTH) }, 0);
        private.set(PAGE, 99);
        assert_eq!((private.get(PAGE), moved.get(11 * PAGE + 1)), (99, 12));
        file.read_exact_at(&mut read, PAGE as u64).unwrap();
        assert_eq!(read, [7]);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn reads_as_it_grows() {
        // A page is shown where it is touched also where the program takes no signal.
        block_all_signals();
        let file = open();
        let map = Map::of(&file, READS, libc::MAP_SHARED);
        println!("mapped");
        loop {
            let line = told();
            let Ok(pages) = line.parse::<usize>() else { break };
            // Touched first; then asked for, and handed to a call; then handed to the kernel's.
            if pages == 4 {
                let into = File::create(path().with_file_name("into")).unwrap();
                let bytes =
                    unsafe { std::slice::from_raw_parts((map.0 + 3 * PAGE) as *const u8, PAGE) };
                into.write_all_at(bytes, 0).unwrap();
            } else if pages == 600 {
                assert_eq!(file.metadata().unwrap().len(), 600 * PAGE as u64);
                assert!(kernel_takes(map, 600 * PAGE - 1));
            }
            assert_eq!(map.get(pages * PAGE - 1), u8::try_from(pages % 251).unwrap());
            assert_eq!((map.shown(pages * PAGE - 1), map.shown(pages * PAGE)), ("own", "nothing"));
            println!("seen");
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn adds_a_page() {
        let pages: usize = told().parse().unwrap();
        let byte = u8::try_from(pages % 251).unwrap();
        open().write_all_at(&[byte; PAGE], ((pages - 1) * PAGE) as u64).unwrap();
        println!("added");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn gives_way() {
        let file = open();
        let map = Map::shared(&file);
        println!("mapped");
        told();
        file.write_all_at(&vec![9; 40 * PAGE], 2 * PAGE as u64).unwrap();
        map.set(41 * PAGE, 10);
        println!("grown");
        told();
        let until = Instant::now() + Duration::from_secs(30);
        while map.shown(0) != "kernel" && Instant::now() < until {
            std::thread::yield_now();
        }
        assert_eq!((map.shown(0), map.shown(LONG - PAGE)), ("kernel", "kernel"));
        assert_eq!([0, 2, 40, 41].map(|page| map.get(page * PAGE)), [7, 9, 9, 10]);
        map.set(41 * PAGE + 1, 20);
        println!("still there");
        told();
    }

    #[test]
    #[ignore = "a task of another test"]
    fn maps_by_kernel() {
        let file = open();
        let map = Map::of(&file, READS, libc::MAP_SHARED);
        println!("mapped");
        told();
        assert_eq!(map.get(PAGE), 7);
        println!("touched");
        told();
        assert_eq!(file.metadata().unwrap().len(), 42 * PAGE as u64);
        assert_eq!((map.get(41 * PAGE), map.get(41 * PAGE + 1)), (10, 20));
        println!("seen");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn grows_in_pieces() {
        let file = open();
        let map = Map::shared(&file);
        // Pages that are taken one by one lie one before the other in the pool.
        let mut page = 2;
        while page < 12_000 && map.shown(0) == "own" {
            for page in page..page + 400 {
                let byte = u8::try_from(page % 251).unwrap();
                file.write_all_at(&[byte; PAGE], (page * PAGE) as u64).unwrap();
                assert_eq!(map.get(page * PAGE), byte);
            }
            page += 400;
        }
        assert_eq!((map.shown(0), map.shown(LONG - PAGE)), ("kernel", "kernel"));
        assert_eq!(map.get((page - 1) * PAGE), u8::try_from((page - 1) % 251).unwrap());
        map.set((page - 1) * PAGE + 1, 77);
        let (small, sparse) = (path().with_file_name("small"), path().with_file_name("sparse"));
        for path in [&small, &sparse] {
            fs::write(path, [5; PAGE]).unwrap();
        }
        let sparse = File::options().read(true).write(true).open(&sparse).unwrap();
        let holes = Map::shared(&sparse);
        assert_eq!(holes.shown(0), "own");
        // Holes take no pages where they are many.
        sparse.set_len(LONG as u64).unwrap();
        assert_eq!((holes.get(0), holes.get(LONG - 1), holes.shown(LONG - 1)), (5, 0, "kernel"));
        holes.set(LONG - 1, 3);
        let mut read = [0];
        sparse.read_exact_at(&mut read, LONG as u64 - 1).unwrap();
        assert_eq!(read, [3]);
        file.read_exact_at(&mut read, ((page - 1) * PAGE + 1) as u64).unwrap();
        assert_eq!(read, [77]);
    }

    /// Makes the file a page longer in one of several ways, and returns where that page is.
    fn one_more(file: &File, how: u64) -> usize {
        let end = file.metadata().unwrap().len().next_multiple_of(PAGE as u64);
        let longer = (end + 1).cast_signed();
        match how {
            0 => file.write_all_at(&[1; 10], end).unwrap(),
            1 => file.set_len(end + 10).unwrap(),
            2 => assert_eq!(unsafe { libc::fallocate(file.as_raw_fd(), 0, longer, 5) }, 0),
            3 => {
                file.set_len(end).unwrap();
                let mut appends = File::options().append(true).open(path()).unwrap();
                appends.write_all(b"x").unwrap();
            }
            _ => {
                let path = std::ffi::CString::new(path().to_str().unwrap()).unwrap();
                assert_eq!(unsafe { libc::truncate(path.as_ptr(), longer) }, 0);
            }
        }
        usize::try_from(end).unwrap()
    }

    #[test]
    #[ignore = "a task of another test"]
    fn unshares_numbers() {
        let file = open();
        let map = Map::shared(&file);
        let before: Vec<usize> = (0..5).map(|how| one_more(&file, how)).collect();
        assert_eq!((map.shown(0), map.shown(before[4])), ("own", "own"));
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0);
        assert_eq!(map.shown(0), "kernel");
        for at in before {
            map.set(at + 1, 3);
        }
        for at in (0..5).map(|how| one_more(&file, how)) {
            map.set(at + 1, 3);
            assert_eq!(map.get(at + 1), 3);
        }
    }

    /// Opens files until there is no descriptor left, of few.
    fn use_up_descriptors() -> Vec<File> {
        let few = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few) }, 0);
        std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
    }

    #[test]
    #[ignore = "a task of another test"]
    fn has_no_descriptor_left() {
        let file = open();
        let map = Map::shared(&file);
        let (mut here, mut there) = std::os::unix::net::UnixStream::pair().unwrap();
        let used = use_up_descriptors();
        let before = one_more(&file, 0);
        let child = unsafe { libc::fork() };
        let mut byte = [0];
        if child == 0 {
            let seen = map.get(before);
            there.write_all(&[seen]).unwrap();
            std::io::Read::read_exact(&mut there, &mut byte).unwrap();
            let is_there = map.get(before + PAGE) == 1;
            unsafe { libc::_exit(i32::from(!is_there)) };
        }
        drop(there);
        std::io::Read::read_exact(&mut here, &mut byte).unwrap();
        assert_eq!((byte[0], one_more(&file, 0)), (1, before + PAGE));
        here.write_all(b"x").unwrap();
        assert_eq!(exits_with(child), 0);
        drop(used);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn locks_all_memory() {
        let file = open();
        let map = Map::shared(&file);
        let at = one_more(&file, 0);
        drop(file);
        let flags = libc::MCL_CURRENT | libc::MCL_ONFAULT;
        assert_eq!(unsafe { libc::mlockall(flags) }, 0);
        assert_eq!((map.shown(at), map.get(at)), ("kernel", 1));
    }
}
