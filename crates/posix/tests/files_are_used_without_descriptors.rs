//! Promise: an open file serves its user by itself, with several buffers or positions as one operation.

mod support;

use std::io::{IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};

use novale_core::FileKind;
use novale_posix::{Error, OpenOptions, Whence};
use support::files;

fn errno_of<T>(result: Result<T, Error>) -> Option<i32> {
    result.err().map(|error| error.errno())
}

fn both() -> OpenOptions {
    OpenOptions::new().read(true).write(true).create(true)
}

#[test]
fn several_buffers_cost_one_commit() {
    let files = files();
    let file = files.open_file("/f", &both()).unwrap();
    file.write(b"one buffer").unwrap();
    // Says the feature.
    file.write_at(0, b"one").unwrap();
    let before = files.fs().counters().fences;
    file.write_at(20, b"one buffer").unwrap();
    let of_one = files.fs().counters().fences - before;
    let pieces = [b"four ".as_slice(), b"", b"buff", b"ers"].map(IoSlice::new);
    let before = files.fs().counters().fences;
    assert_eq!(file.write_vectored_at(10, &pieces).unwrap(), 12);
    assert_eq!(files.fs().counters().fences - before, of_one);
    assert_eq!(files.read_file("/f").unwrap(), b"one bufferfour bufferse buffer");
}

#[test]
fn several_buffers_are_filled_in_order_and_to_the_end_of_the_file() {
    let files = files();
    files.write_file("/f", b"abcdefgh").unwrap();
    let file = files.open_file("/f", &both()).unwrap();
    let (mut first, mut none, mut second, mut third) = ([0; 3], [0; 0], [0; 4], *b"xyz");
    let mut bufs = [&mut first[..], &mut none, &mut second, &mut third].map(IoSliceMut::new);
    assert_eq!(file.read_vectored(&mut bufs).unwrap(), 8);
    assert_eq!((&first, &second, &third), (b"abc", b"defg", b"hyz"), "no byte behind the end");
    assert_eq!(file.seek(Whence::Current(0)).unwrap(), 8);
    assert_eq!(file.read_vectored_at(9, &mut [IoSliceMut::new(&mut first)]).unwrap(), 0);
}

#[test]
fn a_copy_moves_the_positions_that_it_is_not_given() {
    let files = files();
    files.write_file("/from", b"0123456789").unwrap();
    let (from, to) = (files.open_file("/from", &both()).unwrap(), files.open_file("/to", &both()));
    let to = to.unwrap();
    from.seek(Whence::Start(2)).unwrap();
    assert_eq!(from.copy_range(None, (&to, None), 3).unwrap(), 3);
    assert_eq!(from.copy_range(Some(0), (&to, None), 2).unwrap(), 2);
    assert_eq!(from.copy_range(None, (&to, Some(0)), 1).unwrap(), 1);
    assert_eq!(files.read_file("/to").unwrap(), b"53401");
    assert_eq!(from.seek(Whence::Current(0)).unwrap(), 6);
    assert_eq!(to.seek(Whence::Current(0)).unwrap(), 5);
    // A clone has the same position: waiting for it twice would never end.
    let clone = from.clone();
    assert_eq!(errno_of(from.copy_range(None, (&clone, None), 1)), Some(libc::EINVAL));
    let other = support::files();
    let elsewhere = other.open_file("/to", &both()).unwrap();
    assert_eq!(errno_of(from.copy_range(None, (&elsewhere, None), 1)), Some(libc::EXDEV));
}

#[test]
fn threads_that_copy_in_both_directions_do_not_wait_for_each_other_for_ever() {
    let files = files();
    files.write_file("/a", b"a").unwrap();
    files.write_file("/b", b"b").unwrap();
    let (a, b) = (files.open_file("/a", &both()).unwrap(), files.open_file("/b", &both()).unwrap());
    let copy = |from: &novale_posix::File, to: &novale_posix::File| {
        for _ in 0..500 {
            from.copy_range(None, (to, None), 1).unwrap();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| copy(&a, &b));
        scope.spawn(|| copy(&b, &a));
    });
}

/// Whatever std makes of a stream.
fn play(mut stream: impl Read + Write + Seek) -> std::io::Result<String> {
    write!(stream, "{} and {}", 1, 2)?;
    stream.seek(SeekFrom::Start(2))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    assert_eq!(stream.seek(SeekFrom::End(-1))?, 6);
    Ok(text)
}

#[test]
fn it_is_a_reader_a_writer_and_a_seeker_of_std() {
    let files = files();
    assert_eq!(play(&files.open_file("/f", &both()).unwrap()).unwrap(), "and 2");
    let reader = files.open_file("/f", &OpenOptions::new().read(true)).unwrap();
    assert_eq!(play(&reader).unwrap_err().raw_os_error(), Some(libc::EBADF));
}

#[test]
fn a_directory_is_listed_on_from_a_cookie() {
    let files = files();
    files.create_dir("/d", 0o755).unwrap();
    for name in ["/d/a", "/d/b", "/d/c"] {
        files.write_file(name, b"").unwrap();
    }
    let directory = files.open_file("/d", &OpenOptions::new().directory(true)).unwrap();
    let mut seen = Vec::new();
    let mut after = 0;
    loop {
        let before = seen.len();
        directory
            .read_dir(after, |entry, cookie| {
                assert_eq!(entry.kind, FileKind::File);
                seen.push(entry.name);
                after = cookie;
                false
            })
            .unwrap();
        if seen.len() == before {
            break;
        }
    }
    assert_eq!(seen, ["a", "b", "c"]);
}

/// `link_file` took the number of the file's inode, which in another pool is another file's.
#[test]
fn a_file_gets_no_name_in_another_pool() {
    let (here, elsewhere) = (files(), files());
    let file = here.open_file("/here", &both()).unwrap();
    elsewhere.write_file("/elsewhere", b"of the same number").unwrap();
    assert_eq!(elsewhere.stat("/elsewhere").unwrap().ino, file.attr().unwrap().ino);
    assert_eq!(errno_of(elsewhere.link_file(&file, "/name")), Some(libc::EXDEV));
    assert_eq!(elsewhere.stat("/elsewhere").unwrap().nlink, 1);
}
