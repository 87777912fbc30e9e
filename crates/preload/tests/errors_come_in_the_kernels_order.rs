//! Promise: where several things are wrong with a call, a program under `novale run` is told what the kernel finds
//! first.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

#[macro_use]
mod harness;

use harness::runs_with_the_daemon;

promises! {
    /// Random sequences of calls beside tmpfs found these.
    the_first_of_several_errors_is_told: runs_with_the_daemon orders;
    /// All kinds of names with all kinds of files, beside tmpfs, found these.
    so_it_is_of_attributes: runs_with_the_daemon attributes;
    /// A name that a program made beside the daemon's own was hidden from everybody else.
    what_the_daemon_has_alone_is_refused: runs_with_the_daemon daemons_own;
}

mod tasks {
    use std::ffi::CString;
    use std::fs::{self, File};
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::ptr;

    use super::harness::PLACE;

    fn c(path: &Path) -> CString {
        CString::new(path.as_os_str().as_bytes()).unwrap()
    }

    fn error(returned: i64) -> i32 {
        assert_eq!(returned, -1);
        std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
    }

    /// What each call is told in a folder.
    fn told(folder: &Path) -> Vec<(&'static str, i32)> {
        let at = |name: &str| c(&folder.join(name));
        fs::create_dir_all(folder.join("d/e")).unwrap();
        fs::write(folder.join("file"), [7; 100]).unwrap();
        fs::write(folder.join("d/e/below"), b"").unwrap();
        symlink("loop", folder.join("loop")).unwrap();
        symlink("loop/", folder.join("by_slash")).unwrap();
        symlink("anything", folder.join("d/link")).unwrap();
        let mut told = Vec::new();
        let mut buf = [0; 8];
        for name in ["absent", "file", "loop/x", "d/link"] {
            let got = unsafe { libc::readlink(at(name).as_ptr(), buf.as_mut_ptr(), 0) };
            told.push(("readlink without room", error(got as i64)));
        }
        let rename = |from: &str, to: &str, flags| {
            let (from, to) = (at(from), at(to));
            let here = libc::AT_FDCWD;
            i64::from(unsafe { libc::renameat2(here, from.as_ptr(), here, to.as_ptr(), flags) })
        };
        for from in ["d/link", "d/e/below", "file"] {
            told.push(("onto a directory", error(rename(from, "d", 0))));
        }
        told.push(("exchanged", error(rename("d/e/below", "d", libc::RENAME_EXCHANGE))));
        let made = unsafe { libc::open(at("by_slash").as_ptr(), libc::O_CREAT | libc::O_RDWR, 0) };
        told.push(("made by a slash", error(made.into())));
        let reads = File::open(folder.join("file")).unwrap();
        let writes = File::options().write(true).open(folder.join("file")).unwrap();
        let appends = File::options().append(true).open(folder.join("file")).unwrap();
        let [reads, writes, appends] = [&reads, &writes, &appends].map(AsRawFd::as_raw_fd);
        for (what, out, from, mut at, count) in [
            ("sent beyond all ends, to one that reads", reads, reads, i64::MAX - 2, 10),
            ("sent beyond all ends, to an end", appends, reads, i64::MAX - 2, 10),
            ("sent from before the start, to none", -1, reads, -1, 10),
            ("sent too much, to one that reads", reads, reads, 0, usize::MAX),
            ("sent from one that writes, to an end", appends, writes, 0, 10),
            ("sent to an end", appends, reads, 0, 10),
        ] {
            let sent = unsafe { libc::sendfile(out, from, &raw mut at, count) };
            told.push((what, error(sent as i64)));
        }
        for (out, from) in [(reads, writes), (appends, reads), (-1, reads), (writes, -1)] {
            let sent = unsafe { libc::sendfile(out, from, ptr::without_provenance_mut(1), 10) };
            told.push(("sent from what can't be read", error(sent as i64)));
        }
        told
    }

    #[test]
    #[ignore = "a task of another test"]
    fn orders() {
        let reference = tempfile::tempdir().unwrap();
        let place = std::path::PathBuf::from(std::env::var_os(PLACE).unwrap());
        assert_eq!(told(&place), told(reference.path()));
    }

    /// What each call for an attribute is told in a folder.
    fn told_of_attributes(folder: &Path) -> Vec<i32> {
        fs::write(folder.join("plain"), b"").unwrap();
        symlink("nowhere", folder.join("link")).unwrap();
        let (long, longest) = (format!("user.{:251}", ""), format!("user.{:250}", ""));
        let mut told = Vec::new();
        for path in ["link", "plain/", "plain", "absent/x"].map(|name| c(&folder.join(name))) {
            for name in ["", "user.", "trusted.", &long, &longest] {
                let name = CString::new(name).unwrap();
                let (path, name) = (path.as_ptr(), name.as_ptr());
                for call in [libc::getxattr, libc::lgetxattr] {
                    told.push(error(unsafe { call(path, name, ptr::null_mut(), 0) } as i64));
                }
                for call in [libc::removexattr, libc::lremovexattr] {
                    told.push(error(unsafe { call(path, name) }.into()));
                }
                for call in [libc::setxattr, libc::lsetxattr] {
                    told.push(error(unsafe { call(path, name, ptr::null(), 0, 9) }.into()));
                }
            }
        }
        told
    }

    #[test]
    #[ignore = "a task of another test"]
    fn attributes() {
        let reference = tempfile::tempdir().unwrap();
        let place = std::path::PathBuf::from(std::env::var_os(PLACE).unwrap());
        assert_eq!(told_of_attributes(&place), told_of_attributes(reference.path()));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn daemons_own() {
        let place = std::path::PathBuf::from(std::env::var_os(PLACE).unwrap());
        fs::write(place.join("file"), b"").unwrap();
        let file = place.join("file");
        for name in [".novale", ".novale/new", "./.novale"] {
            let name = place.join(name);
            for done in [
                File::create_new(&name).map(drop),
                fs::create_dir(&name),
                symlink("x", &name),
                fs::hard_link(&file, &name),
                fs::rename(&file, &name),
            ] {
                let told = done.unwrap_err().raw_os_error();
                // The last one of a file that would replace a directory.
                let known = matches!(told, Some(libc::EPERM | libc::EEXIST | libc::EISDIR));
                assert!(known, "{name:?}: {told:?}");
            }
        }
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1);
    }
}
