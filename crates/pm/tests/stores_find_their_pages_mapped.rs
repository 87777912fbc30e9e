//! A store to a page that is new to the process does not wait for the kernel to map this page alone.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::os::unix::fs::MetadataExt;

use novale_layout::{PAGE, PmAddr};
use novale_pm::{Pm, PmOptions, Purpose, SlotSpec};

const PAGES: u64 = 1024;

/// Pages that the kernel has mapped for this thread so far, one by one or 16 at a time.
fn faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // The program's name, which may hold blanks, ends with the last bracket.
    let fields = stat.rsplit_once(") ").unwrap().1;
    fields.split(' ').nth(7).unwrap().parse().unwrap()
}

/// Faults of storing a word to each page of a mapping that nobody has touched.
fn faults_of_stores(pm: &Pm) -> u64 {
    let before = faults();
    for page in 0..PAGES {
        let stored = pm.store_u64(PmAddr::new(0, page * PAGE), page + 1, Purpose::Data);
        pm.fence(pm.write_back(stored)).end();
    }
    faults() - before
}

fn file_in_memory(bytes: u64) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    file.as_file().set_len(bytes).unwrap();
    file
}

#[test]
fn a_new_file_in_memory_gets_large_pages_for_all_who_map_it() {
    // The end of it has no whole 2 MB.
    let file = file_in_memory((PAGES + 3) * PAGE);
    let slots = [SlotSpec::new(file.path())];
    let new = PmOptions { hugepages: true, ..PmOptions::default() };
    drop(Pm::open(&slots, &new).unwrap());
    assert_eq!(file.as_file().metadata().unwrap().blocks() * 512, (PAGES + 3) * PAGE);
    assert!(std::fs::read(file.path()).unwrap().iter().all(|byte| *byte == 0));
    let pm = Pm::open(&slots, &PmOptions::default()).unwrap();
    let found = faults_of_stores(&pm);
    if found >= PAGES {
        eprintln!("skipped: a_new_file_in_memory_gets_large_pages: the kernel refuses them");
        return;
    }
    assert!(found <= 2 + 8, "{found} faults");
    // What is stored is kept where the file is opened so again.
    drop(pm);
    let pm = Pm::open(&slots, &new).unwrap();
    for page in 0..PAGES {
        assert_eq!(pm.load_u64(PmAddr::new(0, page * PAGE)).unwrap(), page + 1);
    }
}

#[test]
fn where_stores_are_expected_the_kernel_is_asked_for_16_pages_at_once() {
    let file = file_in_memory(PAGES * PAGE);
    let slots = [SlotSpec::new(file.path())];
    let open = || Pm::open(&slots, &PmOptions::default()).unwrap();
    let alone = faults_of_stores(&open());
    if alone < PAGES {
        eprintln!(
            "skipped: where_stores_are_expected: this kernel maps more than the page stored to"
        );
        return;
    }
    let pm = open();
    let before = faults();
    // Whole, then page by page, then again: pages are asked for once.
    pm.expect_stores(PmAddr::new(0, 5 * PAGE), (PAGES / 2) * PAGE);
    for page in 0..PAGES {
        pm.expect_stores(PmAddr::new(0, page * PAGE), PAGE);
    }
    let expected = faults() - before;
    assert!(expected <= PAGES / 16 + 8, "{expected} faults ahead");
    let left = faults_of_stores(&pm);
    assert!(left <= 8, "{left} faults are left");
    assert_eq!(pm.load_u64(PmAddr::new(0, 7 * PAGE)).unwrap(), 8);
}

#[test]
fn whatever_is_expected_nothing_changes() {
    let file = file_in_memory(PAGE);
    let pm = Pm::open(&[SlotSpec::new(file.path())], &PmOptions::default()).unwrap();
    // Outside, over the end, none, unaligned at the last byte, no such slot.
    for (addr, len) in [
        (PmAddr::new(0, PAGE), 1),
        (PmAddr::new(0, 0), 2 * PAGE),
        (PmAddr::new(0, PAGE), 0),
        (PmAddr::new(0, PAGE - 1), 1),
        (PmAddr::new(3, 0), PAGE),
    ] {
        pm.expect_stores(addr, len);
    }
    assert!(std::fs::read(file.path()).unwrap().iter().all(|byte| *byte == 0));
    let anonymous = Pm::anonymous(&[PAGE], &PmOptions::default()).unwrap();
    anonymous.expect_stores(PmAddr::new(0, 0), PAGE);
}
