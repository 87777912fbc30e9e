//! Promise: `/proc/self/fd/N` shows a program the path of what it has open, as it is at that moment, and leads there.
//!
//! It showed `.novale/INO.GENERATION`, a path that nothing is found at, so that `realpath` of a descriptor
//! failed.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]

#[macro_use]
mod harness;

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use harness::{
    PLACE, direct, is_whole, mounted, runs_with_the_daemon, runs_without_the_daemon, succeeds,
};

promises! {
    descriptors_show_paths_without_the_daemon: runs_without_the_daemon paths;
    what_the_kernel_has_shows_its_path_too: runs_with_the_daemon handed_over;
    calls_of_the_kernels_find_what_is_open: runs_with_the_daemon followed;
}

#[test]
fn programs_that_inherit_a_descriptor_find_its_path() {
    let Some((scratch, slot)) = mounted("programs_that_inherit") else { return };
    let script = "cd \"$0\"; echo text >'a:name'; exec 3<'a:name'; realpath -e /proc/self/fd/3 /dev/fd/3; \
                  realpath -e /dev/stdin <'a:name'; mv 'a:name' other; readlink /proc/self/fd/3; \
                  rm other; readlink /proc/self/fd/3; cat /proc/self/fd/3";
    let mut shell = direct(&scratch, Path::new("sh"));
    let shown = succeeds(&shell.args(["-c", script, &scratch.dir()]).output().unwrap());
    let (first, other) = (scratch.in_dir("a:name"), scratch.in_dir("other"));
    let [first, other] = [&first, &other].map(|path| path.to_str().unwrap());
    assert_eq!(
        shown.lines().collect::<Vec<_>>(),
        [first, first, first, other, &format!("{}/a:name (deleted)", scratch.dir()), "text"]
    );
    is_whole(&scratch, &slot);
}

/// `/proc/self/exe` was `.novale/INO.GENERATION:DIRECTORY:NAME (deleted)`, so that a loader found no library in `$ORIGIN`.
#[test]
fn a_program_started_by_a_descriptor_has_its_path() {
    let Some((scratch, slot)) = mounted("started_by_descriptor") else { return };
    // In subshells, which are made by fork: some shells start a plain command by vfork.
    let script = "cd \"$0\"; cp \"$(command -v readlink)\" one; exec 5<one; exe=/proc/self/exe; \
                  (exec /proc/self/fd/5 $exe); (exec /dev/fd/5 $exe); mv one two; (exec /proc/self/fd/5 $exe); \
                  rm two; (exec /proc/self/fd/5 -n $exe) >/dev/null && echo starts; \
                  printf '#!/bin/sh\necho a script\n' >three; chmod +x three; exec 6<three; (exec /proc/self/fd/6)";
    let mut shell = direct(&scratch, Path::new("sh"));
    let shown = succeeds(&shell.args(["-c", script, &scratch.dir()]).output().unwrap());
    let [one, two] = ["one", "two"].map(|name| format!("{}/{name}", scratch.dir()));
    assert_eq!(shown.lines().collect::<Vec<_>>(), [&one, &one, &two, "starts", "a script"]);
    is_whole(&scratch, &slot);
}

mod tasks {
    use super::*;

    fn place() -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap())
    }

    fn shown(file: &File) -> PathBuf {
        let fd = file.as_raw_fd();
        let link = |folder: String| fs::read_link(format!("{folder}/fd/{fd}")).unwrap();
        let shown = link("/proc/self".to_owned());
        for folder in ["/proc/thread-self".to_owned(), format!("/proc/{}", std::process::id())] {
            assert_eq!(link(folder), shown);
        }
        shown
    }

    fn deleted(path: &Path) -> PathBuf {
        format!("{} (deleted)", path.display()).into()
    }

    #[test]
    #[ignore = "a task of another test"]
    fn paths() {
        let at = |name: &str| place().join("d").join(name);
        let file = File::create(at("one")).unwrap();
        assert_eq!(shown(&file), at("one"));
        assert_eq!(shown(&file.try_clone().unwrap()), at("one"));
        fs::rename(at("one"), at("two")).unwrap();
        assert_eq!(shown(&file), at("two"));
        fs::rename(at("two"), place().join("three")).unwrap();
        assert_eq!(shown(&file), place().join("three"));
        // Another file has the name that it was opened by.
        let other = File::create(at("one")).unwrap();
        assert_eq!((shown(&file), shown(&other)), (place().join("three"), at("one")));
        fs::rename(at("one"), place().join("three")).unwrap();
        assert_eq!(shown(&file), deleted(&place().join("one")));
        assert_eq!(shown(&other), place().join("three"));

        let long = "n".repeat(255);
        assert_eq!(shown(&File::create(at(&long)).unwrap()), at(&long));
        fs::create_dir(at("sub")).unwrap();
        let (dir, below) = (File::open(at("sub")).unwrap(), File::create(at("sub/x")).unwrap());
        assert_eq!((shown(&dir), shown(&below)), (at("sub"), at("sub/x")));
        fs::rename(at("sub"), at("moved")).unwrap();
        assert_eq!((shown(&dir), shown(&below)), (at("moved"), at("moved/x")));
        fs::remove_file(at("moved/x")).unwrap();
        fs::remove_dir(at("moved")).unwrap();
        assert_eq!(shown(&dir), deleted(&at("sub")));
        assert_eq!(shown(&File::open(place()).unwrap()), place());

        let mut unnamed = OpenOptions::new();
        let unnamed = unnamed.write(true).custom_flags(libc::O_TMPFILE).open(at("")).unwrap();
        let path = shown(&unnamed);
        let text = path.to_str().unwrap();
        assert!(text.starts_with(&format!("{}/#", at("").to_str().unwrap().trim_end_matches('/'))));
        assert!(text.ends_with(" (deleted)"), "{text}");

        // As much as there is room for, and no room at all.
        let link = std::ffi::CString::new(format!("/proc/self/fd/{}", other.as_raw_fd())).unwrap();
        let mut room = [0u8; 4];
        let read = |len| unsafe { libc::readlink(link.as_ptr(), room.as_mut_ptr().cast(), len) };
        assert_eq!([4, 0].map(read), [4, -1]);
        assert_eq!(&room, &place().to_str().unwrap().as_bytes()[..4]);
    }

    /// Each is the first that the kernel hears of a file or a folder. Some said that all was well, and did nothing.
    #[test]
    #[ignore = "a task of another test"]
    fn followed() {
        let named = |file: &File| format!("/proc/self/fd/{}", file.as_raw_fd());
        let ended = |path: String| CString::new(path).unwrap();
        let here = libc::AT_FDCWD;
        let second = |tv_sec| [libc::timeval { tv_sec, tv_usec: 0 }; 2];
        let ways: [&dyn Fn(*const libc::c_char) -> i64; 4] = [
            &|path| unsafe { libc::syscall(libc::SYS_utimes, path, second(1000).as_ptr()) },
            &|path| unsafe { libc::syscall(libc::SYS_utime, path, [1000_i64, 1000].as_ptr()) },
            &|path| unsafe {
                libc::syscall(libc::SYS_futimesat, here, path, second(1000).as_ptr())
            },
            &|path| unsafe { libc::syscall(libc::SYS_utimes, path, second(1000).as_ptr()) },
        ];
        for (number, set) in (0..).zip(ways) {
            let file = File::create(place().join(format!("times {number}"))).unwrap();
            let folder = if number == 3 { "/dev/fd" } else { "/proc/self/fd" };
            let path = ended(format!("{folder}/{}", file.as_raw_fd()));
            assert_eq!(set(path.as_ptr()), 0);
            assert_eq!(file.metadata().unwrap().mtime(), 1000, "{number}");
        }
        let folder = |name: &str| {
            fs::create_dir(place().join(name)).unwrap();
            File::open(place().join(name)).unwrap()
        };
        let fifo = folder("fifo");
        let path = ended(format!("{}/made", named(&fifo)));
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        assert!(fs::metadata(place().join("fifo/made")).unwrap().file_type().is_fifo());
        // So a path that is too long for a socket's address is shortened.
        let bound = folder("bound");
        let listener = UnixListener::bind(format!("{}/socket", named(&bound))).unwrap();
        drop(bound);
        let again = File::open(place().join("bound")).unwrap();
        UnixStream::connect(format!("{}/socket", named(&again))).unwrap();
        drop(listener);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn handed_over() {
        let file = File::create(place().join("locked")).unwrap();
        file.lock().unwrap();
        assert_eq!(shown(&file), place().join("locked"));
        fs::rename(place().join("locked"), place().join("other")).unwrap();
        assert_eq!(shown(&file), place().join("other"));
        let again = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        fs::remove_file(place().join("other")).unwrap();
        for file in [&file, &again] {
            assert_eq!(shown(file), deleted(&place().join("locked")));
        }
    }
}
