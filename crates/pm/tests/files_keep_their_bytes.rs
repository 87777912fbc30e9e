//! What is stored is what is loaded, and nothing else changes.
#![allow(clippy::unwrap_used, reason = "a test")]

use novale_layout::PmAddr;
use novale_pm::{Flushed, Pm, PmOptions, Purpose, SlotKind, SlotSpec};

#[test]
fn a_file_keeps_what_was_stored_through_its_mapping() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let slots = [SlotSpec::new(file.path())];
    let pm = Pm::open(&slots, &PmOptions { populate: true, ..PmOptions::default() }).unwrap();
    assert_eq!(pm.slot_kind(0), SlotKind::File);
    assert_eq!(pm.slot_len(0), 1 << 20);
    let mut flushed = Flushed::none();
    flushed = flushed.and(pm.stream(PmAddr::new(0, 4099), b"streamed, unaligned", Purpose::Data));
    let dirty = pm.store(PmAddr::new(0, 70_001), b"stored", Purpose::Data);
    flushed = flushed.and(pm.write_back(dirty));
    let dirty = pm.store_u64(PmAddr::new(0, 8), 7, Purpose::Other);
    flushed = flushed.and(pm.write_back(dirty));
    pm.fence(flushed).end();
    let before = pm.counters();
    drop(pm);

    let bytes = std::fs::read(file.path()).unwrap();
    assert_eq!(&bytes[4099..4118], b"streamed, unaligned");
    assert_eq!(&bytes[70_001..70_007], b"stored");
    assert_eq!(bytes.iter().filter(|&&b| b != 0).count(), 19 + 6 + 1);
    assert_eq!(before.of(Purpose::Data).lines, 2);
    assert_eq!(before.fences_with_pending, 1);

    let options = PmOptions { read_only: true, populate: true, ..PmOptions::default() };
    let pm = Pm::open(&slots, &options).unwrap();
    assert_eq!(pm.load_u64(PmAddr::new(0, 8)), Ok(7));
    assert_eq!(&pm.load_line(PmAddr::new(0, 4096)).unwrap()[3..22], b"streamed, unaligned");
    assert_eq!(pm.counters().fences, 0);
}

/// With a filter that takes mapped files the core file of a program had all that was in memory of the pool.
#[test]
fn core_files_have_nothing_of_a_slot() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let _pm = Pm::open(&[SlotSpec::new(file.path())], &PmOptions::default()).unwrap();
    let all = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (_, of_slot) = all.split_once(file.path().to_str().unwrap()).unwrap();
    let flags = of_slot.lines().find_map(|line| line.strip_prefix("VmFlags:")).unwrap();
    assert!(flags.contains(" dd"), "{flags}");
}

#[test]
fn a_scratch_mapping_stores_nothing_to_its_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let slots = [SlotSpec::new(file.path())];
    let pm = Pm::open(&slots, &PmOptions { scratch: true, ..PmOptions::default() }).unwrap();
    let at = PmAddr::new(0, 4096);
    pm.fence(pm.stream(at, b"seen by this process alone", Purpose::Data)).end();
    assert_eq!(&pm.load_line(at).unwrap()[..4], b"seen");
    let other = Pm::open(&slots, &PmOptions { read_only: true, ..PmOptions::default() }).unwrap();
    assert_eq!(other.load_line(at).unwrap(), [0; 64]);
    drop(pm);
    assert!(std::fs::read(file.path()).unwrap().iter().all(|byte| *byte == 0));
}

/// In a program that knows nothing of the pool, another thread may write to a number that was closed
/// before, and that the kernel has given to the slot for a moment: it wrote over the superblock.
#[test]
fn what_a_program_writes_to_a_wrong_number_is_not_in_the_slot() {
    use std::io::Write;
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let slots = [SlotSpec::new(file.path())];
    let pm =
        Pm::open(&slots, &PmOptions { descriptors_from: 500, ..PmOptions::default() }).unwrap();
    let mut number = pm.slot_file(0).unwrap();
    number.write_all(b"a line for a log").unwrap();
    rustix::io::pwrite(number, b"another", 0).unwrap();
    assert_eq!(pm.load_line(PmAddr::new(0, 0)).unwrap(), [0; 64]);
}
