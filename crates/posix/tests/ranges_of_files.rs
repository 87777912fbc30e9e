//! Promise: the library's ranges, copies and set-id bits follow Linux, and files reach 2^47 bytes.

mod support;

use novale_core::{COPY_BYTES_MAX, Fallocate, SetAttr};
use novale_posix::{Error, OpenOptions, Whence, fallocate_mode};
use support::files;

const PAGE: u64 = 4096;

fn errno_of<T>(result: Result<T, Error>) -> Option<i32> {
    result.err().map(|error| error.errno())
}

#[test]
fn flags_of_fallocate_that_do_not_go_together_are_not_supported() {
    let keep = libc::FALLOC_FL_KEEP_SIZE;
    for (flags, mode) in [
        (0, Some(Fallocate::Extend)),
        (keep, Some(Fallocate::KeepSize)),
        (libc::FALLOC_FL_PUNCH_HOLE | keep, Some(Fallocate::PunchHole)),
        (libc::FALLOC_FL_ZERO_RANGE, Some(Fallocate::ZeroRange)),
        (libc::FALLOC_FL_ZERO_RANGE | keep, Some(Fallocate::ZeroRangeKeepSize)),
        (libc::FALLOC_FL_COLLAPSE_RANGE, Some(Fallocate::CollapseRange)),
        (libc::FALLOC_FL_INSERT_RANGE, Some(Fallocate::InsertRange)),
        (libc::FALLOC_FL_PUNCH_HOLE, None),
        (libc::FALLOC_FL_COLLAPSE_RANGE | keep, None),
        (libc::FALLOC_FL_INSERT_RANGE | keep, None),
        (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE | keep, None),
        (libc::FALLOC_FL_UNSHARE_RANGE, None),
        (1 << 20, None),
    ] {
        assert_eq!(fallocate_mode(flags).ok(), mode, "{flags:#x}");
    }
}

#[test]
fn pages_are_taken_out_and_put_in_by_whole_pages_alone() {
    use Fallocate::{CollapseRange, InsertRange};

    let files = files();
    let bytes: Vec<u8> = (0..20_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
    files.write_file("/f", &bytes).unwrap();
    let fd = files.open("/f", &OpenOptions::new().read(true).write(true)).unwrap();
    let change = |how, offset, len| errno_of(files.fallocate(fd, how, offset, len));
    assert_eq!(change(CollapseRange, PAGE, 2 * PAGE), None);
    let expected = [&bytes[..4096], &bytes[3 * 4096..]].concat();
    assert_eq!(files.read_file("/f").unwrap(), expected);
    assert_eq!(change(InsertRange, 2 * PAGE, PAGE), None);
    let expected = [&expected[..8192], &[0; 4096], &expected[8192..]].concat();
    assert_eq!(files.read_file("/f").unwrap(), expected);
    for (how, offset, len, errno) in [
        (CollapseRange, 1, PAGE, libc::EINVAL),
        (CollapseRange, 0, 100, libc::EINVAL),
        (CollapseRange, 0, 4 * PAGE, libc::EINVAL),
        (CollapseRange, 8 * PAGE, PAGE, libc::EINVAL),
        (InsertRange, 1, PAGE, libc::EINVAL),
        (InsertRange, 0, 1, libc::EINVAL),
        (InsertRange, 4 * PAGE, PAGE, libc::EINVAL),
        (InsertRange, 0, 1 << 47, libc::EFBIG),
        (CollapseRange, 0, 0, libc::EINVAL),
    ] {
        assert_eq!(change(how, offset, len), Some(errno), "{how:?} {offset} {len}");
    }
    assert_eq!(files.read_file("/f").unwrap(), expected);
}

#[test]
fn a_copy_needs_its_descriptors_and_is_as_long_as_it_says() {
    let files = files();
    let rw = OpenOptions::new().read(true).write(true).create(true);
    let (from, to) = (files.open("/from", &rw).unwrap(), files.open("/to", &rw).unwrap());
    files.write_at(from, 0, &[7; 10_000]).unwrap();
    assert_eq!(files.copy_range((from, 9000), (to, 3), 5000).unwrap(), 1000);
    assert_eq!(files.read_file("/to").unwrap(), [&[0; 3][..], &[7; 1000]].concat());
    assert_eq!(files.copy_range((from, 10_000), (to, 0), 1).unwrap(), 0);
    assert_eq!(errno_of(files.copy_range((from, 0), (from, 5), 10)), Some(libc::EINVAL));
    assert_eq!(files.copy_range((from, 0), (from, 10), 10).unwrap(), 10);
    files.truncate(from, 2 * COPY_BYTES_MAX).unwrap();
    assert_eq!(files.copy_range((from, 5), (to, 5), u64::MAX).unwrap(), COPY_BYTES_MAX);
    let reader = files.open("/from", &OpenOptions::new().read(true)).unwrap();
    let writer = files.open("/to", &OpenOptions::new().write(true)).unwrap();
    let appender = files.open("/to", &OpenOptions::new().append(true)).unwrap();
    for (from, to) in [(writer, to), (from, reader), (from, appender)] {
        assert_eq!(errno_of(files.copy_range((from, 0), (to, 0), 1)), Some(libc::EBADF));
    }
}

#[test]
fn set_id_bits_fall_for_all_users_but_root() {
    for (uid, gid, left) in [(0, 0, 0o6766), (7, 7, 0o766), (7, 5, 0o2766)] {
        let files = files().owner(uid, gid);
        files.write_file("/f", &[1; 9000]).unwrap();
        let owned = SetAttr { uid: Some(5), gid: Some(5), ..SetAttr::default() };
        files.set_attr("/f", &owned).unwrap();
        let fd = files.open("/f", &OpenOptions::new().read(true).write(true)).unwrap();
        let changes: [&dyn Fn() -> bool; 7] = [
            &|| files.write_at(fd, 0, b"x").is_ok(),
            &|| files.write(fd, b"x").is_ok(),
            &|| files.truncate(fd, 8000).is_ok(),
            &|| files.fallocate(fd, Fallocate::PunchHole, 0, 10).is_ok(),
            &|| files.fallocate(fd, Fallocate::CollapseRange, 0, PAGE).is_ok(),
            &|| files.copy_range((fd, 0), (fd, 2000), 1000).is_ok(),
            &|| files.open("/f", &OpenOptions::new().write(true).truncate(true)).is_ok(),
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let armed = SetAttr { mode: Some(0o6766), ..SetAttr::default() };
            files.set_attr("/f", &armed).unwrap();
            assert!(change(), "{index}");
            assert_eq!(files.stat("/f").unwrap().mode, left, "by {uid}:{gid}, change {index}");
        }
        let armed = SetAttr { mode: Some(0o6777), ..SetAttr::default() };
        files.set_attr("/f", &armed).unwrap();
        files.set_attr("/f", &owned).unwrap();
        assert_eq!(files.stat("/f").unwrap().mode, 0o777, "a change of owner by {uid}");
    }
}

#[test]
fn a_file_of_two_to_the_47_bytes_is_written_at_its_end() {
    const END: u64 = 1 << 47;
    let files = files();
    let options = OpenOptions::new().read(true).write(true).create(true);
    let fd = files.open("/f", &options).unwrap();
    files.write_at(fd, END - 4, b"last").unwrap();
    assert_eq!(errno_of(files.write_at(fd, END - 3, b"last")), Some(libc::EFBIG));
    let mut read = [1; 9];
    assert_eq!(files.read_at(fd, END - 6, &mut read).unwrap(), 6);
    assert_eq!(&read[..6], b"\0\0last");
    assert_eq!(files.seek(fd, Whence::Data(0)).unwrap(), END - PAGE);
    assert_eq!(files.seek(fd, Whence::Hole(END - 1)).unwrap(), END);
    assert_eq!(errno_of(files.fallocate(fd, Fallocate::InsertRange, 0, PAGE)), Some(libc::EFBIG));
    files.fallocate(fd, Fallocate::CollapseRange, 0, END / 2).unwrap();
    assert_eq!(files.seek(fd, Whence::Data(0)).unwrap(), END / 2 - PAGE);
    files.fallocate(fd, Fallocate::InsertRange, PAGE, END / 2).unwrap();
    assert_eq!(files.seek(fd, Whence::Data(0)).unwrap(), END - PAGE);
    files.truncate(fd, END - 2).unwrap();
    files.truncate(fd, END).unwrap();
    assert_eq!(files.read_at(fd, END - 4, &mut read).unwrap(), 4);
    assert_eq!(&read[..4], b"la\0\0");
    assert_eq!(errno_of(files.truncate(fd, END + 1)), Some(libc::EFBIG));
    files.fallocate(fd, Fallocate::PunchHole, 0, END).unwrap();
    assert_eq!(errno_of(files.seek(fd, Whence::Data(0))), Some(libc::ENXIO));
    assert_eq!(files.stat("/f").unwrap().size, END);
    files.fs().close().unwrap();
}
