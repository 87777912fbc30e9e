//! A slot whose memory goes away while it is mapped: no access to it ends the process, and whoever asks
//! is told that it was lost.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test panics")]
#![allow(unsafe_code, reason = "a thread of a test blocks a signal")]

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use novale_layout::PmAddr;
use novale_pm::{Pm, PmOptions, Purpose, SlotSpec, survive_failing_slots};
use rustix::fs::{MemfdFlags, memfd_create};

const SLOT: u64 = 1 << 20;

fn slots(dir: &Path) -> [PathBuf; 2] {
    ["a", "b"].map(|name| dir.join(name))
}

fn open(dir: &Path) -> Pm {
    survive_failing_slots().unwrap();
    for path in slots(dir) {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap();
        file.set_len(SLOT).unwrap();
    }
    let specs = slots(dir).map(|path| SlotSpec { path });
    let pm = Pm::open(&specs, &PmOptions::default()).unwrap();
    for slot in 0..2 {
        for page in 0..SLOT / 4096 {
            pm.fence(pm.stream(PmAddr::new(slot, page * 4096), &[7; 64], Purpose::Data)).end();
        }
    }
    pm
}

fn cut(dir: &Path, len: u64) {
    OpenOptions::new().write(true).open(&slots(dir)[1]).unwrap().set_len(len).unwrap();
}

#[test]
fn a_load_from_a_slot_that_was_cut_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let pm = open(dir.path());
    let sound = pm.health();
    assert_eq!(pm.load_u64(PmAddr::new(1, 8192)), Ok(0x0707_0707_0707_0707));
    cut(dir.path(), 4096);
    assert_eq!(pm.health(), sound, "nobody has touched it");
    let _zeros = pm.load_u64(PmAddr::new(1, 8192));
    assert_ne!(pm.health(), sound);
    assert_eq!(pm.health().failed, 0b10);
    let lost = pm.load_u64(PmAddr::new(1, 0)).unwrap_err();
    assert!(lost.is_lost, "also where the file still has bytes");
    assert!(lost.to_string().contains("slot 1 has failed"), "{lost}");
    assert_eq!(pm.load_u64(PmAddr::new(0, 8192)), Ok(0x0707_0707_0707_0707));
}

#[test]
fn a_store_to_a_slot_that_was_cut_is_counted_as_lost() {
    let dir = tempfile::tempdir().unwrap();
    let pm = open(dir.path());
    let sound = pm.health();
    cut(dir.path(), 0);
    pm.fence(pm.stream(PmAddr::new(1, 4096), &[1; 9000], Purpose::Data)).end();
    let failed = pm.health();
    assert_ne!(failed, sound);
    // To the other slot nothing is lost, to this one everything.
    let word = |slot| pm.write_back(pm.store_u64(PmAddr::new(slot, 64), 5, Purpose::Data));
    pm.fence(word(0)).end();
    assert_eq!(pm.health(), failed);
    pm.fence(word(1)).end();
    assert_ne!(pm.health(), failed);
    assert_eq!(pm.load_u64(PmAddr::new(0, 64)), Ok(5));
}

/// A process that was started with SIGBUS blocked was ended by the kernel.
#[test]
fn a_thread_that_had_faults_blocked_goes_on() {
    let ran = std::thread::spawn(|| {
        let dir = tempfile::tempdir().unwrap();
        // SAFETY: all bits zero are a value of it.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: it lives here.
        unsafe { libc::sigaddset(&raw mut set, libc::SIGBUS) };
        // SAFETY: as above.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        let pm = open(dir.path());
        cut(dir.path(), 0);
        // A thread that it starts.
        std::thread::scope(|threads| {
            threads.spawn(|| _ = pm.load_u64(PmAddr::new(1, 0)));
        });
        assert_eq!(pm.health().failed, 0b10);
    });
    ran.join().unwrap();
}

/// What was put in the place of a page was as long as other files' pages are, which the kernel refuses: the
/// process ended.
#[test]
fn a_slot_of_huge_pages_fails_as_others_do() {
    const HUGE: u64 = 2 << 20;
    survive_failing_slots().unwrap();
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let Ok(file) = memfd_create("slot", flags).map(File::from) else {
        println!("skipped: a_slot_of_huge_pages_fails_as_others_do: the kernel has none");
        return;
    };
    file.set_len(2 * HUGE).unwrap();
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let Ok(pm) = Pm::open(&[SlotSpec { path }], &PmOptions::default()) else {
        println!("skipped: a_slot_of_huge_pages_fails_as_others_do: no two are free");
        return;
    };
    let store = |at| pm.fence(pm.stream(PmAddr::new(0, at), &[7; 64], Purpose::Data)).end();
    [0, HUGE].into_iter().for_each(store);
    file.set_len(HUGE).unwrap();
    let _zeros = pm.load_u64(PmAddr::new(0, HUGE + 8192));
    assert_eq!(pm.health().failed, 1);
    assert!(pm.load_u64(PmAddr::new(0, 0)).unwrap_err().is_lost);
}

#[test]
fn each_pool_of_a_process_has_slots_of_its_own() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [one, other] = [0, 1].map(|index| open(dirs[index].path()));
    cut(dirs[0].path(), 0);
    let _zeros = one.load_u64(PmAddr::new(1, 0));
    assert_eq!((one.health().failed, other.health().failed), (0b10, 0));
    drop(one);
    // Whoever comes next finds slots that are sound.
    let next = open(dirs[0].path());
    assert_eq!(next.health().failed, 0);
    assert_eq!(other.load_u64(PmAddr::new(1, 0)), Ok(0x0707_0707_0707_0707));
}

#[test]
fn a_slot_that_another_process_found_failed_is_read_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let pm = open(dir.path());
    pm.set_failed(0b10);
    assert!(pm.load_u64(PmAddr::new(1, 0)).unwrap_err().is_lost);
    assert!(pm.load_u64(PmAddr::new(0, 0)).is_ok());
}

/// One thread stores while another finds, at any moment of that, that the slot has failed.
#[test]
fn a_slot_fails_in_the_middle_of_a_check() {
    let pms: Vec<Pm> =
        (0..200).map(|_| Pm::anonymous(&[4096], &PmOptions::default()).unwrap()).collect();
    let at = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let storing = scope.spawn(|| {
            for (index, pm) in pms.iter().enumerate() {
                at.store(index + 1, Ordering::Release);
                let sound = pm.health();
                while pm.health() == sound {
                    let zero = PmAddr::new(0, 0);
                    pm.fence(pm.stream(zero, &[7; 64], Purpose::Data)).end();
                }
            }
        });
        for (index, pm) in pms.iter().enumerate() {
            while at.load(Ordering::Acquire) <= index && !storing.is_finished() {
                std::thread::yield_now();
            }
            (0..index % 64).for_each(|_| std::hint::spin_loop());
            pm.set_failed(1);
        }
    });
}
