//! What a daemon writes down of its mount, for the commands that meet the mount later.
//!
//! `umount`, `remount` and `info` start from a mount and need its daemon, also when the pool's files
//! were moved or removed meanwhile. So each daemon keeps a file in `/dev/shm` named after the mount's
//! device number, and an flock(2) lock on it as long as it lives: the lock proves that the daemon
//! lives, and names it. The daemon removes the file when it has closed the pool. One that is still
//! there when its daemon has ended says that the pool was not closed.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use novale_fuse::{Atime, KIND, MountTable};
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::holder::{self, Process};
use crate::kept_arena::KeptArena;

const FOLDER: &str = "/dev/shm";
const PREFIX: &str = "novale-mount-";
/// More than any record has.
const BYTES_MAX: u64 = 1 << 20;

/// How a mount was made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) target: PathBuf,
    pub(crate) slots: Vec<PathBuf>,
    pub(crate) read_only: bool,
    /// As the mount option is called.
    pub(crate) atime: String,
    pub(crate) threads: usize,
    pub(crate) grace_seconds: u64,
    /// The words of `-o` that ask for what the daemon runs with.
    pub(crate) daemon_words: Vec<String>,
    /// For whoever finds the daemon dead, and the pool perhaps moved.
    #[serde(default)]
    pub(crate) arena: Option<KeptArena>,
}

/// The name of the mount option.
pub(crate) fn atime_word(atime: Atime) -> &'static str {
    match atime {
        Atime::Relative => "relatime",
        Atime::Never => "noatime",
        Atime::Always => "strictatime",
    }
}

/// This daemon's record, locked.
#[derive(Debug)]
pub(crate) struct Kept {
    path: PathBuf,
    file: File,
}

impl Kept {
    /// Writes the record of a mount; it is there whole and locked, or not at all.
    pub(crate) fn write(device: (u32, u32), record: &Record) -> Result<Self> {
        remove_stale();
        let path = path(device);
        let shown = || format!("the record of the mount, {}", path.display());
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(FOLDER, flags, Mode::from_raw_mode(0o644));
        let mut file = File::from(file.with_context(shown)?);
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).with_context(shown)?;
        file.write_all(&serde_json::to_vec(record)?).with_context(shown)?;
        let source = format!("/proc/self/fd/{}", file.as_raw_fd());
        let link = || rustix::fs::linkat(CWD, &source, CWD, &path, AtFlags::SYMLINK_FOLLOW);
        if link() == Err(rustix::io::Errno::EXIST) {
            // A dead daemon's: the mount with this number is ours.
            fs::remove_file(&path).with_context(shown)?;
            link().with_context(shown)?;
        }
        Ok(Self { path, file })
    }

    /// The pool is closed.
    pub(crate) fn remove(self) {
        // The kernel gives the number away as soon as the mount is gone, and whoever has got it meanwhile
        // has put its own record in this one's place.
        if self.file.metadata().is_ok_and(|metadata| metadata.nlink() == 0) {
            return;
        }
        if let Err(error) = fs::remove_file(&self.path) {
            remark!("novale: {}: {error}", self.path.display());
        }
    }
}

/// A record that was found, perhaps a dead daemon's.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) record: Record,
    pub(crate) device: (u32, u32),
    file: File,
}

impl Seen {
    fn read(path: &Path) -> Option<Self> {
        let device = device(path)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
        // Anybody may make files there: only root's and one's own are believed, and root looks at all.
        let (owner, me) = (file.metadata().ok()?.uid(), rustix::process::geteuid().as_raw());
        if me != 0 && owner != 0 && owner != me {
            return None;
        }
        let mut text = String::new();
        (&file).take(BYTES_MAX).read_to_string(&mut text).ok()?;
        Some(Self { record: serde_json::from_str(&text).ok()?, device, file })
    }

    /// The daemon, if it lives.
    pub(crate) fn daemon(&self) -> Option<Process> {
        holder::holder_of(&self.file.metadata().ok()?)
    }

    /// Whether the daemon has closed the pool.
    pub(crate) fn is_closed(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
    }
}

/// The record of a mount.
pub(crate) fn of_device(device: (u32, u32)) -> Option<Seen> {
    Seen::read(&path(device))
}

/// The record of a mount that is out of the tree already, while its daemon closes the pool.
pub(crate) fn of_target(target: &Path) -> Option<Seen> {
    all().find(|seen| seen.record.target == target && seen.daemon().is_some())
}

/// Removes the record of a mount whose daemon is gone.
pub(crate) fn forget(device: (u32, u32)) {
    // It need not be there, and another user's is not ours to remove.
    fs::remove_file(path(device)).unwrap_or_default();
}

/// The device numbers of the mounts that a process serves.
pub(crate) fn devices_of(pid: u32) -> Vec<(u32, u32)> {
    let serves = |seen: &Seen| seen.daemon().is_some_and(|daemon| daemon.pid == pid);
    all().filter(serves).map(|seen| seen.device).collect()
}

fn all() -> impl Iterator<Item = Seen> {
    let files = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    files.filter_map(|entry| Seen::read(&entry.path()))
}

/// Removes records of daemons that were killed and whose mounts are gone.
fn remove_stale() {
    // Only looked at: a lock taken here would pass for the daemon's.
    let dead: Vec<Seen> = all().filter(|seen| seen.daemon().is_none()).collect();
    // Read behind them: a mount is there before its record is.
    let Ok(table) = MountTable::read() else { return };
    let mounted = |seen: &Seen| table.of_kind(KIND).any(|entry| entry.device == seen.device);
    // A new mount may have the number by now, and with it a record that is not the one seen.
    for seen in dead.iter().filter(|seen| !mounted(seen) && !seen.is_closed()) {
        forget(seen.device);
    }
}

fn path((major, minor): (u32, u32)) -> PathBuf {
    Path::new(FOLDER).join(format!("{PREFIX}{major}.{minor}"))
}

fn device(path: &Path) -> Option<(u32, u32)> {
    let numbers = path.file_name()?.to_str()?.strip_prefix(PREFIX)?;
    let (major, minor) = numbers.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A daemon that was still closing its pool removed the record of a new mount that had got the number
    /// of its own: programs were told that the new one is not shared.
    #[test]
    fn a_record_of_a_mount_with_the_same_number_is_not_removed() {
        let record = Record {
            target: PathBuf::from("/nowhere"),
            slots: Vec::new(),
            read_only: false,
            atime: atime_word(Atime::Never).to_owned(),
            threads: 1,
            grace_seconds: 1,
            daemon_words: Vec::new(),
            arena: None,
        };
        // No mount has such a number.
        let device = (4_000_000_000, std::process::id());
        let first = Kept::write(device, &record).unwrap();
        let second = Kept::write(device, &record).unwrap();
        first.remove();
        assert!(of_device(device).is_some());
        second.remove();
        assert!(of_device(device).is_none());
    }
}
