//! Promise: a slot whose memory goes away under a program that runs directly does not end it: its calls say
//! `EIO` where they need the slot, also in a thread that has all signals blocked. What it does on SIGBUS
//! itself, it still does.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

#[allow(unused_macros, reason = "its tests are written out")]
mod harness;

use harness::support::{Scratch, eventually, novale};
use harness::{succeeds, task};

const SLOT: &str = "NOVALE_TEST_SLOT";

#[test]
fn calls_fail_and_the_program_goes_on() {
    let Some(scratch) = Scratch::for_mount("calls_fail_and_the_program_goes_on") else { return };
    let (a, b, dir) = (scratch.slot("a"), scratch.slot("b"), scratch.dir());
    novale(&["mkfs", "--size", "32M", &a, &b]).ok();
    novale(&["mount", "-o", "direct,placement=single", &a, &b, &dir]).ok();
    for number in 0..8 {
        std::fs::create_dir(scratch.in_dir(&format!("d{number}"))).unwrap();
    }
    // The first slot is used up first: what lies in the second one are the last of these.
    std::fs::create_dir(scratch.in_dir("big")).unwrap();
    for number in 0..40 {
        std::fs::write(scratch.in_dir(&format!("big/{number}")), vec![9; 1 << 20]).unwrap();
    }
    let free = || rustix::fs::statvfs(dir.as_str()).unwrap().f_bfree;
    let before = free();
    for number in 0..10 {
        std::fs::remove_file(scratch.in_dir(&format!("big/{number}"))).unwrap();
    }
    // The kernel lets go of what it has of a file later, and until then the first slot is full.
    assert!(eventually(|| free() >= before + (10 << 20) / 4096));
    let told = succeeds(&task(&scratch, "loses_a_slot").env(SLOT, &b).output().unwrap());
    assert!(told.contains("went on"), "{told}");
    // The daemon knows what the program has met.
    let info = novale(&["info", &a, &b]).ok();
    assert!(info.contains(&format!("{b}  has failed")), "{info}");
    novale(&["umount", &dir]).refused(1, &["slot 1 has failed", "not closed clean"]);
}

/// It was ENODEV, by which programs take the file system for one that can't map.
#[test]
fn a_file_that_is_not_mapped_for_a_slot_says_so() {
    let Some(scratch) = Scratch::for_mount("a_file_that_is_not_mapped_for_a_slot") else { return };
    let (a, b, dir) = (scratch.slot("a"), scratch.slot("b"), scratch.dir());
    novale(&["mkfs", "--size", "32M", "--mode", "buffered", &a, &b]).ok();
    novale(&["mount", "-o", "direct,eager=0,age=3600", &a, &b, &dir]).ok();
    let told = succeeds(&task(&scratch, "maps_beside_a_lost_slot").env(SLOT, &b).output().unwrap());
    assert!(told.contains("went on"), "{told}");
    novale(&["umount", &dir]).refused(1, &["slot 1 has failed", "not closed clean"]);
}

mod tasks {
    use std::fs::{self, OpenOptions};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::SLOT;
    use super::harness::{PLACE, block_all_signals};

    /// Faults that were the program's own.
    static OWN: AtomicU32 = AtomicU32::new(0);

    extern "C" fn own(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        OWN.fetch_add(1, Ordering::Relaxed);
        // A page where there was none, so that the program goes on.
        let at = unsafe { (*info).si_addr() }.map_addr(|at| at & !4095);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        unsafe { libc::mmap(at, 4096, libc::PROT_READ, flags, -1, 0) };
    }

    fn handle() {
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = own as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(
            unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) },
            0
        );
    }

    /// Loads from a mapping beyond the end of a file.
    fn fault_of_its_own() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let (flags, fd) = (libc::MAP_SHARED, file.as_raw_fd());
        let at = unsafe { libc::mmap(std::ptr::null_mut(), 8192, libc::PROT_READ, flags, fd, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(unsafe { at.cast::<u8>().add(5000).read_volatile() }, 0);
    }

    fn bytes(number: usize) -> Vec<u8> {
        vec![u8::try_from(number % 250).unwrap() + 1; 9000]
    }

    fn path(place: &Path, number: usize) -> PathBuf {
        place.join(format!("d{}/f{number}", number % 8))
    }

    #[test]
    #[ignore = "a task of another test"]
    fn maps_beside_a_lost_slot() {
        let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
        for number in 0..8 {
            fs::create_dir(place.join(format!("d{number}"))).unwrap();
        }
        let make = |number: usize| {
            let path = path(&place, number);
            fs::write(&path, vec![9; 20_000]).unwrap();
            OpenOptions::new().read(true).write(true).open(path).unwrap()
        };
        let files: Vec<fs::File> = (0..80).map(make).collect();
        for file in &files {
            file.sync_all().unwrap();
        }
        for file in &files {
            file.write_all_at(&[7; 100], 100).unwrap();
        }
        let slot = std::env::var_os(SLOT).unwrap();
        OpenOptions::new().write(true).open(slot).unwrap().set_len(0).unwrap();
        let mut lost = 0;
        for file in files {
            let is_lost = file.sync_all().is_err();
            let (flags, fd) = (libc::MAP_SHARED, file.as_raw_fd());
            let at =
                unsafe { libc::mmap(std::ptr::null_mut(), 8192, libc::PROT_READ, flags, fd, 0) };
            if is_lost && at == libc::MAP_FAILED {
                lost += 1;
                assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EIO));
            }
        }
        assert!(lost > 0);
        println!("went on");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn loses_a_slot() {
        let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
        handle();
        let mut whole = Vec::new();
        for number in 0..60 {
            fs::write(path(&place, number), bytes(number)).unwrap();
            whole.push(number);
        }
        let slot = std::env::var_os(SLOT).unwrap();
        OpenOptions::new().write(true).open(slot).unwrap().set_len(0).unwrap();
        let unblocked = block_all_signals();
        let (mut read, mut lost) = (0, 0);
        for number in 10..40 {
            let found = fs::read(place.join(format!("big/{number}")));
            *if found.is_ok() { &mut read } else { &mut lost } += 1;
        }
        assert!(lost > 0, "nothing lay in the slot");
        for number in 60..200 {
            match fs::write(path(&place, number), bytes(number)) {
                Ok(()) => whole.push(number),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
                    lost += 1;
                }
            }
        }
        for number in whole {
            match fs::read(path(&place, number)) {
                Ok(found) => {
                    assert!(found == bytes(number), "file {number}");
                    read += 1;
                }
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}"),
            }
        }
        // The small files' directories may lie in the slot as well, by which thread of the daemon made them.
        assert!(read > 10 && lost > 0, "{read} read, {lost} lost");
        assert_eq!(
            OWN.load(Ordering::Relaxed),
            0,
            "the library's faults are none of the program's"
        );
        let mask = libc::SIG_SETMASK;
        unsafe { libc::pthread_sigmask(mask, &raw const unblocked, std::ptr::null_mut()) };
        fault_of_its_own();
        assert_eq!(OWN.load(Ordering::Relaxed), 1);
        println!("went on");
    }
}
