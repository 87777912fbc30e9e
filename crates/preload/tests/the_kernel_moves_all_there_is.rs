//! Promise: what the kernel moves from a file for a program under `novale run`, to a pipe or a socket, is all
//! that the file has.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

#[macro_use]
mod harness;

use harness::{maps_own_pages, runs_with_the_daemon};

promises! {
    /// The kernel moves no further than to the end that it knew of when it was handed the file.
    a_file_that_has_grown_is_sent_whole: runs_with_the_daemon grows;
    nothing_is_sent_to_what_takes_nothing: runs_with_the_daemon nowhere;
    /// A pipe that was opened to append was refused, as a file is.
    a_pipe_has_no_end_to_append_to: maps_own_pages appended;
    /// Of a file elsewhere that is open with `O_DIRECT` the buffer has to lie on a page: it was EINVAL.
    files_that_want_whole_pages_are_sent_them: runs_with_the_daemon aligned;
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
        // What can't be read is looked at before what can't be written there.
        let appended = OpenOptions::new().append(true).open(at("file")).unwrap();
        let mut from = 0;
        let (to, fd) = (appended.as_raw_fd(), appends.as_raw_fd());
        assert_eq!(unsafe { libc::sendfile(to, fd, &raw mut from, 9) }, -1);
        assert_eq!(Error::last_os_error().raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn appended() {
        let file = open_new("file");
        file.write_all_at(b"sent", 0).unwrap();
        let (mut out, into) = pipe().unwrap();
        let (to, from) = (into.as_raw_fd(), file.as_raw_fd());
        assert_eq!(unsafe { libc::fcntl(to, libc::F_SETFL, libc::O_APPEND) }, 0);
        let mut at = 0;
        let sent = unsafe { libc::sendfile(to, from, &raw mut at, 4) };
        assert_eq!((sent, at), (4, 4), "{}", Error::last_os_error());
        let mut got = [0; 4];
        out.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"sent");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn aligned() {
        const PAGES: usize = 64 << 10;
        let (file, name) = (open_new("file"), tempfile::NamedTempFile::new().unwrap());
        let bytes = vec![7; PAGES];
        file.write_all_at(&bytes, 0).unwrap();
        let open = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).clone();
        let Ok(whole) = open.open(name.path()) else {
            println!("skipped: aligned: {} takes no O_DIRECT", name.path().display());
            return;
        };
        let copy = open_new("copy");
        for (from, to) in [(&file, &whole), (&whole, &copy)] {
            let mut at = 0;
            let sent =
                unsafe { libc::sendfile(to.as_raw_fd(), from.as_raw_fd(), &raw mut at, PAGES) };
            assert_eq!(usize::try_from(sent), Ok(PAGES), "{}", Error::last_os_error());
        }
        let mut got = vec![0; PAGES];
        copy.read_exact_at(&mut got, 0).unwrap();
        assert!(got == bytes);
    }
}
