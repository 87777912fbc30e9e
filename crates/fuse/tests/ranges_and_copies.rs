//! Promise: holes are punched, ranges zeroed, bytes copied within the kernel, and files reach 2^47
//! bytes, through the mount as on other file systems.

#![allow(clippy::unwrap_used, reason = "helpers of a test fail as the test does")]

mod support;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::{Command, Stdio};

use rustix::fs::{FallocateFlags, SeekFrom as From, copy_file_range, fallocate, seek, sendfile};
use rustix::io::Errno;
use support::Mount;

const PAGE: u64 = 4096;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at % 251).unwrap() + 1).collect()
}

fn new_file(mount: &Mount, name: &str) -> File {
    File::options().read(true).write(true).create_new(true).open(mount.path(name)).unwrap()
}

#[test]
fn a_hole_gives_its_pages_back_and_reads_as_zeros() {
    let Some(mount) = Mount::new("a_hole_gives_its_pages_back_and_reads_as_zeros", "") else {
        return;
    };
    let (file, mut bytes) = (new_file(&mount, "f"), pattern(80_000));
    file.write_all_at(&bytes, 0).unwrap();
    let blocks = file.metadata().unwrap().blocks();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // A reading descriptor has the pages in its cache.
    assert_eq!(fs::read(mount.path("f")).unwrap(), bytes);
    fallocate(&file, punch, 5000, 30_000).unwrap();
    bytes[5000..35_000].fill(0);
    assert_eq!(fs::read(mount.path("f")).unwrap(), bytes);
    assert_eq!(blocks - file.metadata().unwrap().blocks(), 6 * PAGE / 512);
    assert_eq!(seek(&file, From::Hole(0)), Ok(2 * PAGE));
    assert_eq!(seek(&file, From::Data(2 * PAGE)), Ok(8 * PAGE));
    fallocate(&file, punch, 79_000, 1 << 20).unwrap();
    bytes[79_000..].fill(0);
    assert_eq!(fs::read(mount.path("f")).unwrap(), bytes);
    fallocate(&file, FallocateFlags::ZERO_RANGE, 3 * PAGE, 100_000).unwrap();
    bytes.resize(3 * 4096 + 100_000, 0);
    bytes[3 * 4096..].fill(0);
    assert_eq!(fs::read(mount.path("f")).unwrap(), bytes);
    assert_eq!(seek(&file, From::Hole(3 * PAGE)), Ok(bytes.len() as u64), "zeros have pages");
    let keep = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, keep, 0, 1 << 20).unwrap();
    assert_eq!(fs::read(mount.path("f")).unwrap(), vec![0; bytes.len()]);
    for refused in [
        FallocateFlags::COLLAPSE_RANGE,
        FallocateFlags::INSERT_RANGE,
        FallocateFlags::UNSHARE_RANGE,
        FallocateFlags::PUNCH_HOLE,
    ] {
        assert_eq!(fallocate(&file, refused, 0, PAGE), Err(Errno::OPNOTSUPP), "{refused:?}");
    }
    assert_eq!(fallocate(&file, punch, 0, 0), Err(Errno::INVAL));
}

#[test]
fn the_kernel_copies_within_a_mount_and_between_two() {
    let name = "the_kernel_copies_within_a_mount_and_between_two";
    let (Some(mount), Some(other)) = (Mount::new(name, ""), Mount::new(name, "")) else { return };
    let bytes = pattern(300_000);
    fs::write(mount.path("from"), &bytes).unwrap();
    let from = File::open(mount.path("from")).unwrap();
    for (mount, file) in [(&mount, "to"), (&other, "far")] {
        let to = new_file(mount, file);
        let (mut at, mut place) = (100, 5000);
        while at < 300_000 {
            assert!(
                copy_file_range(&from, Some(&mut at), &to, Some(&mut place), 1 << 20).unwrap() > 0
            );
        }
        let end = copy_file_range(&from, Some(&mut at), &to, Some(&mut place), 10).unwrap();
        assert_eq!(end, 0, "at the end of the source");
        let copied = fs::read(mount.path(file)).unwrap();
        assert_eq!(copied[..5000], [0; 5000]);
        assert!(copied[5000..] == bytes[100..], "{file} differs");
    }
    let (mut at, mut place) = (0, 1000);
    let file = File::options().read(true).write(true).open(mount.path("to")).unwrap();
    let overlap = copy_file_range(&file, Some(&mut at), &file, Some(&mut place), 2000);
    assert_eq!(overlap, Err(Errno::INVAL));
    assert_eq!(copy_file_range(&file, Some(&mut at), &file, Some(&mut place), 1000), Ok(1000));
}

/// `sendfile` and `splice`: to a file, to a pipe, from a pipe.
#[test]
fn bytes_are_sent_and_spliced_without_a_buffer() {
    let Some(mount) = Mount::new("bytes_are_sent_and_spliced_without_a_buffer", "") else {
        return;
    };
    let bytes = pattern(200_000);
    fs::write(mount.path("from"), &bytes).unwrap();
    let (from, to) = (File::open(mount.path("from")).unwrap(), new_file(&mount, "sent"));
    let mut at = 0;
    while at < 200_000 {
        assert!(sendfile(&to, &from, Some(&mut at), 1 << 20).unwrap() > 0);
    }
    assert!(fs::read(mount.path("sent")).unwrap() == bytes);
    // The standard library splices between files and pipes.
    let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut pipe_in, mut pipe_out) = (cat.stdin.take().unwrap(), cat.stdout.take().unwrap());
    let reader = std::thread::spawn({
        let mut to = new_file(&mount, "spliced");
        move || std::io::copy(&mut pipe_out, &mut to).unwrap()
    });
    assert_eq!(std::io::copy(&mut &from, &mut pipe_in).unwrap(), 200_000);
    pipe_in.flush().unwrap();
    drop(pipe_in);
    assert_eq!(reader.join().unwrap(), 200_000);
    cat.wait().unwrap();
    assert!(fs::read(mount.path("spliced")).unwrap() == bytes);
}

#[test]
fn a_file_of_two_to_the_47_bytes_is_written_at_its_end() {
    const END: u64 = 1 << 47;
    let Some(mount) = Mount::new("a_file_of_two_to_the_47_bytes_is_written_at_its_end", "") else {
        return;
    };
    let file = new_file(&mount, "f");
    file.write_all_at(b"last", END - 4).unwrap();
    assert_eq!(file.metadata().unwrap().len(), END);
    assert!(file.metadata().unwrap().blocks() <= 4 * PAGE / 512);
    let too_far = file.write_at(b"x", END).unwrap_err();
    assert_eq!(Errno::from_io_error(&too_far), Some(Errno::FBIG));
    let mut read = [0; 4];
    file.read_exact_at(&mut read, END - 4).unwrap();
    assert_eq!(&read, b"last");
    // Past the cache of a reading descriptor, too.
    let mut reader = File::open(mount.path("f")).unwrap();
    std::io::Seek::seek(&mut reader, std::io::SeekFrom::Start(END - 2)).unwrap();
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"st");
    assert_eq!(seek(&file, From::Data(0)), Ok(END - PAGE));
    assert_eq!(seek(&file, From::Hole(END - PAGE)), Ok(END));
    file.set_len(END - 2).unwrap();
    file.set_len(END).unwrap();
    file.read_exact_at(&mut read, END - 4).unwrap();
    assert_eq!(&read, b"la\0\0");
    assert_eq!(Errno::from_io_error(&file.set_len(END + 1).unwrap_err()), Some(Errno::FBIG));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 0, END).unwrap();
    assert_eq!(seek(&file, From::Data(0)), Err(Errno::NXIO));
    file.set_len(0).unwrap();
    assert_eq!(file.metadata().unwrap().blocks(), PAGE / 512, "its log alone");
}
