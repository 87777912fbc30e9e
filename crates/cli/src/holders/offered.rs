//! A file that a process offers by numbers: its own, and that of a descriptor. Both may be others' by the time that they
//! are looked at.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{Mode, OFlags, open};

use crate::holders::servers;

/// What stands in a descriptor's description before a lock, and how the kernel calls the one of `flock`.
const LOCK: &str = "lock:";
const FLOCK: &str = "FLOCK";

/// A process of the caller's user, which has a file open and locked.
pub(crate) struct Offered {
    /// Leads to nothing once the process has ended, whoever has its number then.
    process: OwnedFd,
    descriptor: u16,
}

impl Offered {
    /// Refused where the process is not the caller's in all, or has no such lock: the one that offered the file may have
    /// ended since, and another user's process may have its number.
    pub(crate) fn by(pid: u32, descriptor: u16) -> Result<Self> {
        let path = format!("/proc/{pid}");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let process = open(path.as_str(), flags, Mode::empty()).with_context(|| path.clone())?;
        let offered = Self { process, descriptor };
        if !servers::is_callers(&offered.place()) {
            bail!("process {pid}, which is to have the slot open, is another user's");
        }
        if !offered.is_locked() {
            bail!("process {pid} has no slot open and locked as its descriptor {descriptor}");
        }
        Ok(offered)
    }

    /// A path that leads to the file, and to no other one.
    pub(crate) fn path(&self) -> PathBuf {
        self.place().join("fd").join(self.descriptor.to_string())
    }

    fn is_locked(&self) -> bool {
        let described = self.place().join("fdinfo").join(self.descriptor.to_string());
        let described = fs::read_to_string(described).unwrap_or_default();
        described.lines().any(|line| line.starts_with(LOCK) && line.contains(FLOCK))
    }

    fn place(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.process.as_raw_fd().to_string())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test panics")]
mod tests {
    use std::fs::File;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use rustix::fs::{FlockOperation, flock};

    use super::Offered;

    const NOBODY: u32 = 65_534;

    /// Whether what a child of this user has open as its standard input is taken.
    fn is_taken(file: File, user: u32) -> bool {
        let mut child = Command::new("cat");
        child.uid(user).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        let mut child = child.spawn().unwrap();
        let taken = Offered::by(child.id(), 2);
        drop(child.stdin.take());
        child.wait().unwrap();
        taken.is_ok_and(|taken| {
            // It leads to nothing any more.
            assert!(taken.path().metadata().is_err());
            true
        })
    }

    #[test]
    fn a_file_is_taken_from_a_process_of_the_same_user_that_has_it_locked() {
        let folder = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        let path = folder.path().join("slot");
        let open = || File::options().read(true).append(true).create(true).open(&path).unwrap();
        assert!(!is_taken(open(), user), "not locked");
        let locked = open();
        flock(&locked, FlockOperation::LockShared).unwrap();
        assert!(is_taken(locked.try_clone().unwrap(), user));
        if user == 0 {
            assert!(!is_taken(locked, NOBODY));
        }
    }
}
