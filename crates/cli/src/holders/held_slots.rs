//! The slots that a process has open, held on to: wherever their files are moved, and when they are
//! removed, it is seen by them what became of the pool.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::holders::facts::SlotFile;
use crate::holders::holder::{self, Process};
use crate::holders::in_time;
use crate::pools::slots;

/// The access mode in the flags of a descriptor, and reading and writing.
const ACCESS: u32 = 3;
const READ_WRITE: u32 = 2;

/// Where a process finds what it has open.
const DESCRIPTORS: &str = "/proc/self/fd";

/// How a pool was left that is not known to be closed clean.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LeftOpen {
    NotClean {
        /// Whether bytes that were only buffered are not in it yet.
        has_buffered: bool,
    },
    /// Its slots can't be read as one pool any more.
    NotReadable,
}

impl LeftOpen {
    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Self::NotClean { has_buffered: true } => {
                "not closed clean, and bytes that were only buffered may not be in it: the next mount writes them \
                 there, unless the machine is restarted before"
            }
            Self::NotClean { has_buffered: false } => {
                "not closed clean: the next mount recovers it"
            }
            Self::NotReadable => {
                "changed under the mount, or a slot of it was cut, and can't be read now: name its slots to `novale \
                 check`, which says why. What was only buffered is kept until the machine is restarted, and the next \
                 mount that can read the pool writes it there"
            }
        }
    }
}

/// Slots of one pool, opened a second time.
#[derive(Debug)]
pub(crate) struct HeldSlots(Vec<File>);

impl HeldSlots {
    /// The slots that a daemon of the caller's, or of root's, has locked, writes and has mapped; none where they
    /// can't be seen. One that only reads leaves the pool as it was. What it has locked besides it was started with.
    pub(crate) fn of(process: &Process) -> Option<Self> {
        let folder = PathBuf::from(format!("/proc/{}", process.pid));
        let described = |name: &OsStr| {
            let text = fs::read_to_string(folder.join("fdinfo").join(name)).unwrap_or_default();
            Described::of(&text)
        };
        let names = fs::read_dir(folder.join("fd")).ok()?.flatten().map(|link| link.file_name());
        let all: Vec<(OsString, Described)> =
            names.map(|name| (name.clone(), described(&name))).collect();
        // A mount that is alone locks a slot by a descriptor of its own, which only reads.
        let is_written =
            |place: (u64, u64)| all.iter().any(|(_, other)| other.is_written_at(place));
        let mapped = mapped_inodes(process.pid);
        let mut held: Vec<(SlotFile, File)> = Vec::new();
        // Only what is locked is opened, and so a file in memory or on a device: others may be in mounts that do not
        // answer.
        let is_slot = |slot: &Described| {
            slot.is_locked && is_written(slot.place) && mapped.contains(&slot.place.1)
        };
        let slots = all.iter().filter(|(_, slot)| is_slot(slot));
        for (name, _) in slots {
            let Ok(file) = File::open(folder.join("fd").join(name)) else { continue };
            let Ok(metadata) = file.metadata() else { continue };
            let which = SlotFile::of(&metadata);
            if !held.iter().any(|(known, _)| *known == which) {
                held.push((which, file));
            }
        }
        let held = Self(held.into_iter().map(|(_, file)| file).collect());
        // Whatever has been stored into them since: what else it locks is no pool.
        held.paths().iter().any(|path| slots::identify(path).is_ok()).then_some(held)
    }

    /// What became of the pool, where nobody has it open any more and it was not closed clean.
    pub(crate) fn left_open(&self) -> Option<LeftOpen> {
        // The own root may have been the mount: all that is below has gone with it.
        if !Path::new(DESCRIPTORS).exists() {
            return None;
        }
        let mut paths = self.paths();
        if paths.iter().any(|path| holder::holder(path).is_some()) {
            return None;
        }
        // A slot that was to leave has been erased as the pool was closed.
        paths.retain(|path| !slots::is_gone(path));
        let Ok(found) = slots::find(&paths) else { return Some(LeftOpen::NotReadable) };
        (!found.info.clean)
            .then(|| LeftOpen::NotClean { has_buffered: found.may_have_left_behind() })
    }

    fn paths(&self) -> Vec<PathBuf> {
        let path = |file: &File| Path::new(DESCRIPTORS).join(file.as_raw_fd().to_string());
        self.0.iter().map(path).collect()
    }
}

/// The inodes of what a process has mapped; none where that is not told in time.
fn mapped_inodes(pid: u32) -> Vec<u64> {
    let maps = in_time::each(vec![pid], |pid| in_time::read(pid, "maps"));
    let inodes = |(_, maps): (u32, Vec<u8>)| -> Vec<u64> {
        String::from_utf8_lossy(&maps).lines().filter_map(mapped_inode).collect()
    };
    maps.into_iter().flat_map(inodes).collect()
}

/// The inode of a line like `7f00-7f80 rw-s 00000000 00:1b 9 /dev/shm/slot`, which is 0 where there is no file.
fn mapped_inode(line: &str) -> Option<u64> {
    line.split_ascii_whitespace().nth(4)?.parse().ok()
}

/// What the kernel says of a descriptor, by lines like `flags: 0100002`, in octal, `mnt_id: 26`, `ino: 9`, and
/// `lock: 1: FLOCK  ADVISORY  WRITE 811 00:1b:9 0 EOF`.
#[derive(Debug, Clone, Copy)]
struct Described {
    is_written: bool,
    is_locked: bool,
    /// The mount and the inode of its file.
    place: (u64, u64),
}

impl Described {
    fn of(text: &str) -> Self {
        let word = |name: &str| {
            text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim())).unwrap_or_default()
        };
        let flags = u32::from_str_radix(word("flags:"), 8).unwrap_or_default();
        let number = |name| word(name).parse().unwrap_or_default();
        Self {
            is_written: flags & ACCESS == READ_WRITE,
            // A line for each of its locks.
            is_locked: text.lines().any(|l| l.starts_with("lock:") && l.contains("FLOCK")),
            place: (number("mnt_id:"), number("ino:")),
        }
    }

    fn is_written_at(&self, place: (u64, u64)) -> bool {
        self.is_written && self.place == place
    }
}

#[cfg(test)]
mod tests {
    use super::Described;

    #[test]
    fn slots_are_locked_and_written_by_one_descriptor_or_two() {
        let lock = "lock:\t1: FLOCK  ADVISORY  WRITE 811 00:1b:9 0 EOF\n";
        let of = |flags: &str, ino: u64, lock: &str| {
            Described::of(&format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t26\nino:\t{ino}\n{lock}"))
        };
        let locked = of("02104000", 9, lock);
        assert!(locked.is_locked && !locked.is_written_at(locked.place));
        assert!(of("02104002", 9, "").is_written_at(locked.place));
        assert!(!of("02104002", 8, "").is_written_at(locked.place));
        let more = "lock:\t1: POSIX  ADVISORY  READ 811 00:1b:9 0 0\n";
        let both = of("02104002", 9, &format!("{more}{lock}"));
        assert!(both.is_locked && both.is_written_at(locked.place));
    }
}
