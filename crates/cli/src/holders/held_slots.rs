//! The slots that a process has open, held on to: wherever their files are moved, and when they are
//! removed, it is seen by them what became of the pool.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use crate::holders::facts::SlotFile;
use crate::holders::holder::{self, Process};
use crate::pools::slots;

/// The access mode in the flags of a descriptor, and reading and writing.
const ACCESS: u32 = 3;
const READ_WRITE: u32 = 2;

/// Slots of one pool, opened a second time.
#[derive(Debug)]
pub(crate) struct HeldSlots(Vec<File>);

impl HeldSlots {
    /// The slots that a daemon of the caller's, or of root's, has locked and writes; none where they
    /// can't be seen. One that only reads leaves the pool as it was.
    pub(crate) fn of(process: &Process) -> Option<Self> {
        let folder = format!("/proc/{}/fd", process.pid);
        let mut held: Vec<(SlotFile, File)> = Vec::new();
        for link in fs::read_dir(folder).ok()?.flatten() {
            // Only what is locked, and so a file in memory or on a device: others may be in mounts that
            // do not answer.
            let description = format!("/proc/{}/fdinfo", process.pid);
            let description = PathBuf::from(description).join(link.file_name());
            if !is_written_slot(&fs::read_to_string(description).unwrap_or_default()) {
                continue;
            }
            let Ok(file) = File::open(link.path()) else { continue };
            let Ok(metadata) = file.metadata() else { continue };
            let which = SlotFile::of(&metadata);
            if !held.iter().any(|(known, _)| *known == which) {
                held.push((which, file));
            }
        }
        let held = Self(held.into_iter().map(|(_, file)| file).collect());
        slots::find(&held.paths()).ok().map(|_| held)
    }

    /// Whether nobody has the pool open and it was not closed clean.
    pub(crate) fn is_left_open(&self) -> bool {
        let paths = self.paths();
        let is_used = paths.iter().any(|path| holder::holder(path).is_some());
        !is_used && slots::find(&paths).is_ok_and(|found| !found.info.clean)
    }

    fn paths(&self) -> Vec<PathBuf> {
        let path = |file: &File| format!("/proc/self/fd/{}", file.as_raw_fd()).into();
        self.0.iter().map(path).collect()
    }
}

/// Whether a description is of a descriptor for writing that has an flock(2) lock, by lines like
/// `flags: 0100002`, in octal, and `lock: 1: FLOCK  ADVISORY  WRITE 811 00:1b:9 0 EOF`.
fn is_written_slot(described: &str) -> bool {
    let flags = described.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    let is_locked = |line: &str| line.starts_with("lock:") && line.contains("FLOCK");
    flags.is_some_and(|flags| flags & ACCESS == READ_WRITE) && described.lines().any(is_locked)
}

#[cfg(test)]
mod tests {
    use super::is_written_slot;

    #[test]
    fn slots_that_are_written_are_locked_and_open_for_it() {
        let lock = "lock:\t1: FLOCK  ADVISORY  WRITE 811 00:1b:9 0 EOF\n";
        assert!(is_written_slot(&format!("pos:\t0\nflags:\t02104002\nmnt_id:\t26\n{lock}")));
        assert!(!is_written_slot(&format!("pos:\t0\nflags:\t02104000\nmnt_id:\t26\n{lock}")));
        assert!(!is_written_slot("pos:\t0\nflags:\t02104002\nmnt_id:\t26\n"));
    }
}
