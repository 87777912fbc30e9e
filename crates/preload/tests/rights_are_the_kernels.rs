//! Promise: a program under `novale run` may do what the kernel would let it, also where its user is
//! the administrator and its rights are not.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

mod harness;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use harness::{PLACE, is_whole, mounted, succeeds, task};

const OTHER: u32 = 1001;

/// Runs a task through another program, beside a file that is closed to all but its owner, and a folder
/// that is open to all.
fn runs(name: &str, owner: u32, through: &[&str]) {
    let Some((scratch, slot)) = mounted(name) else { return };
    let (closed, open) = (scratch.in_dir("closed"), scratch.in_dir("open"));
    fs::write(&closed, b"secret").unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o600)).unwrap();
    chown(&closed, Some(owner), Some(owner)).unwrap();
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
    let task = task(&scratch, name);
    let mut words =
        through.iter().map(OsStr::new).chain([task.get_program()]).chain(task.get_args());
    let mut command = Command::new(words.next().unwrap());
    command.args(words).envs(task.get_envs().map(|(name, value)| (name, value.unwrap())));
    succeeds(&command.output().unwrap());
    is_whole(&scratch, &slot);
}

/// A server that acts for its users, by the user that the kernel takes for files alone, was given all
/// that the administrator may see, and what it made was the administrator's.
#[test]
fn for_whom_a_thread_acts() {
    runs("acts", 0, &[]);
}

/// The administrator of a container has user 0 and no capabilities.
#[test]
fn what_user_0_has_no_capability_for() {
    runs("bounded", OTHER, &["setpriv", "--bounding-set=-all", "--inh-caps=-all"]);
}

mod tasks {
    use std::fs::{self, File};
    use std::io::{ErrorKind, Write};
    use std::os::unix::fs::{MetadataExt, chown};
    use std::path::PathBuf;

    use super::{OTHER, PLACE};

    fn at(name: &str) -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap()).join(name)
    }

    #[test]
    #[ignore = "a task of another test"]
    fn acts() {
        assert_eq!(fs::read(at("closed")).unwrap(), b"secret");
        unsafe {
            libc::setfsgid(OTHER);
            libc::setfsuid(OTHER);
        }
        assert_eq!(File::open(at("closed")).unwrap_err().kind(), ErrorKind::PermissionDenied);
        File::create(at("open/own")).unwrap().write_all(b"own").unwrap();
        fs::create_dir(at("open/folder")).unwrap();
        unsafe {
            libc::setfsuid(0);
            libc::setfsgid(0);
        }
        for name in ["open/own", "open/folder"] {
            let found = fs::metadata(at(name)).unwrap();
            assert_eq!((found.uid(), found.gid()), (OTHER, OTHER), "{name}");
        }
        assert_eq!(fs::read(at("closed")).unwrap(), b"secret");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn bounded() {
        assert_eq!(File::open(at("closed")).unwrap_err().kind(), ErrorKind::PermissionDenied);
        fs::write(at("open/own"), b"own").unwrap();
        assert_eq!(fs::read(at("open/own")).unwrap(), b"own");
        let refused = chown(at("open/own"), Some(OTHER), None).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    }
}
