//! Promise: what the kernel moves from a file for a program under `novale run`, to a pipe or a socket, is all
//! that the file has.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

#[macro_use]
mod harness;

use harness::runs_with_the_daemon;

promises! {
    /// The kernel moves no further than to the end that it knew of when it was handed the file.
    a_file_that_has_grown_is_sent_whole: runs_with_the_daemon grows;
    nothing_is_sent_to_what_takes_nothing: runs_with_the_daemon nowhere;
}

mod tasks {
    use std::fs::{File, OpenOptions};
    use std::io::{Error, Read, Seek, pipe};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{FileExt, OpenOptionsExt};
    use std::path::PathBuf;

    use super::harness::PLACE;

    const LEN: usize = 3000;
    const LEN_I64: i64 = 3000;

    fn at(name: &str) -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap()).join(name)
    }

    fn open_new(name: &str) -> File {
        OpenOptions::new().read(true).write(true).create_new(true).open(at(name)).unwrap()
    }

    #[test]
    #[ignore = "a task of another test"]
    fn grows() {
        let (mut file, copy) = (open_new("file"), open_new("copy"));
        // By a lock the kernel has it.
        file.lock().unwrap();
        let (mut out, into) = pipe().unwrap();
        let (fd, to, none) = (file.as_raw_fd(), into.as_raw_fd(), std::ptr::null_mut());
        let mut took = |moved: isize| {
            assert_eq!(usize::try_from(moved).unwrap(), LEN, "{}", Error::last_os_error());
            out.read_exact(&mut [0; LEN]).unwrap();
        };
        for turn in 0..3 {
            let start = turn * LEN_I64;
            file.write_all_at(&[1; LEN], start.cast_unsigned()).unwrap();
            let mut from = start;
            took(unsafe { libc::sendfile(to, fd, &raw mut from, LEN) });
            from = start;
            took(unsafe { libc::splice(fd, &raw mut from, to, none, LEN, 0) });
            file.seek(std::io::SeekFrom::Start(start.cast_unsigned())).unwrap();
            took(unsafe { libc::sendfile(to, fd, none, LEN) });
            (from, _) = (start, file.lock());
            let copied =
                unsafe { libc::copy_file_range(fd, &raw mut from, copy.as_raw_fd(), none, LEN, 0) };
            assert_eq!(usize::try_from(copied).unwrap(), LEN);
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn nowhere() {
        let file = open_new("file");
        let name = tempfile::NamedTempFile::new().unwrap();
        let send = |to: &File| {
            let mut from = 0;
            let sent =
                unsafe { libc::sendfile(to.as_raw_fd(), file.as_raw_fd(), &raw mut from, 9) };
            (sent, Error::last_os_error().raw_os_error().unwrap())
        };
        let path = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(name.path());
        assert_eq!(send(&path.unwrap()), (-1, libc::EBADF));
        assert_eq!(send(&File::open(name.path()).unwrap()), (-1, libc::EBADF));
        let appends = OpenOptions::new().append(true).open(name.path()).unwrap();
        assert_eq!(send(&appends), (-1, libc::EINVAL));
    }
}
