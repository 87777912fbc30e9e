//! Pools made by programs, without the command.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use novale_core::{MkfsOptions, Mode, UpdatePolicy, mkfs, slot_header};
use novale_layout::{PmAddr, known_signature};
use novale_pm::{Pm, PmError, PmOptions, SlotSpec, survive_failing_slots, unlock_in_children};
use rustix::fs::{AtFlags, FlockOperation, OFlags};
use rustix::io::Errno;
use uuid::Uuid;

use crate::errno::{errno, pm_errno};
use crate::join::ArenaFile;
use crate::{process_owner, wall_clock_ns};

/// How much of a slot is looked at to tell what it holds: where the marks of all known formats are.
const HEAD_BYTES: u64 = 2 << 20;
/// What [`what_it_holds`] says of a slot of this format.
pub const OUR_FORMAT: &str = "a Novale pool";
const LANES_MIN: usize = 4;
const LANES_MAX: usize = 512;

/// How [`make_pool`] makes one.
#[derive(Debug, Clone, Copy, Default)]
pub struct MakePool {
    /// Bytes of each slot that is not there yet: 2 MiB at least for the first, 1 MiB for others.
    pub slot_bytes: Option<u64>,
    /// Make the pool over what the slots hold.
    pub overwrite: bool,
    /// Lanes, 1 to 512; one for each CPU and 4 at least where nothing is said.
    pub lanes: Option<u32>,
    /// The write methods of files that choose none; none: the default of who opens the pool.
    pub method: Option<UpdatePolicy>,
    /// When writes become durable to files that don't choose.
    pub mode: Option<Mode>,
}

/// Why a pool was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MakeError {
    /// A slot holds something that would be lost.
    #[error("{}: holds {holds}: name another slot, or ask for it to be overwritten", path.display())]
    Holds {
        /// The slot.
        path: PathBuf,
        /// What it holds.
        holds: &'static str,
    },
    /// A slot's file belongs to another user, who could read and write the pool's bytes.
    #[error("{}: belongs to another user: name another slot, or ask for it to be overwritten", path.display())]
    Foreign {
        /// The slot.
        path: PathBuf,
    },
    /// A slot is not there, and nothing says how large it is to be.
    #[error("{}: is not there, and no size was given to make it", path.display())]
    NoSize {
        /// The slot.
        path: PathBuf,
    },
    /// A slot could not be made.
    #[error("{}: {source}", path.display())]
    Io {
        /// The slot.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The slots can't be used.
    #[error(transparent)]
    Pm(#[from] PmError),
    /// They can't be a pool.
    #[error(transparent)]
    Core(#[from] novale_core::Error),
}

impl MakeError {
    /// The errno that stands for this error, positive as in `<errno.h>`.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Holds { .. } => libc::EEXIST,
            Self::Foreign { .. } => libc::EPERM,
            Self::NoSize { .. } | Self::Core(novale_core::Error::BadPool(_)) => libc::EINVAL,
            Self::Io { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            Self::Pm(error) => pm_errno(error),
            Self::Core(error) => errno(error),
        }
    }
}

/// The files that were made, removed again unless the pool is.
#[derive(Default)]
struct Made {
    files: Vec<SlotFile>,
    /// They were locked, and may have been stored to.
    are_own: bool,
}

impl Drop for Made {
    fn drop(&mut self) {
        for made in &self.files {
            let removed = if self.are_own { made.remove() } else { made.remove_unused() };
            // The failure that led here is what the caller is told of.
            removed.unwrap_or_default();
        }
    }
}

/// The file of a slot that was made, with the folder that it was made in: another one may come to that one's path.
#[derive(Debug)]
pub struct SlotFile {
    folder: File,
    name: OsString,
    file: File,
}

impl SlotFile {
    /// Makes the file of a slot that is not there, of zeros, its owner's alone, in a folder that is open. `None` where
    /// something is there.
    ///
    /// # Errors
    /// The kernel's; nothing is made then.
    pub fn make_in(folder: File, name: &OsStr, bytes: u64) -> io::Result<Option<Self>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&folder, name, flags, 0o600.into()) {
            Ok(file) => File::from(file),
            Err(Errno::EXIST) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let made = Self { folder, name: name.to_owned(), file };
        match made.file.set_len(bytes) {
            Ok(()) => Ok(Some(made)),
            Err(error) => {
                made.remove().unwrap_or_default();
                Err(error)
            }
        }
    }

    /// The file, to be written to.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Removes it, unless somebody else has found it meanwhile, who has it locked or has stored something there. For
    /// who has not had it locked.
    ///
    /// # Errors
    /// As [`SlotFile::remove`], and the kernel's of reading it.
    pub fn remove_unused(&self) -> io::Result<()> {
        match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(()),
            locked => locked?,
        }
        let len = usize::try_from(self.file.metadata()?.len().min(HEAD_BYTES)).unwrap_or_default();
        let mut head = vec![0; len];
        self.file.read_exact_at(&mut head, 0)?;
        if what_it_holds(&head).is_some() { Ok(()) } else { self.remove() }
    }

    /// Removes it. What has come in its place stays.
    ///
    /// # Errors
    /// The kernel's; ENOENT where it is not there any more.
    pub fn remove(&self) -> io::Result<()> {
        let own = self.file.metadata()?;
        let there = rustix::fs::statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        if (there.st_dev, there.st_ino) != (own.dev(), own.ino()) {
            return Err(Errno::NOENT.into());
        }
        Ok(rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty())?)
    }
}

/// The first slot that is a file of another user's than the calling process' effective one, of whom it would
/// be in his power. Anybody may make a file in a folder for all, with the name of a pool to come.
#[must_use]
pub fn foreign_slot(pm: &Pm) -> Option<u8> {
    let own = rustix::process::geteuid().as_raw();
    let is_foreign = |slot: &u8| {
        let file = pm.slot_file(*slot).and_then(|file| file.metadata().ok());
        file.is_some_and(|file| file.is_file() && file.uid() != own)
    };
    (0..pm.slot_count()).find(is_foreign)
}

/// Makes an empty pool of slots, in this order. One that is not there becomes a file of
/// [`MakePool::slot_bytes`], its owner's alone; one that is there, file or device, keeps its length.
/// The root directory is the calling process's effective user's and group's, mode 0755. SIGBUS is handled from then
/// on where a slot fails ([`survive_failing_slots`]): one that is cut off meanwhile is an error.
///
/// # Errors
/// [`MakeError`]; files that were made are removed then, and the others hold what they held, unless
/// the system fails in the middle.
pub fn make_pool(slots: &[impl AsRef<Path>], how: &MakePool) -> Result<(), MakeError> {
    let paths: Vec<&Path> = slots.iter().map(AsRef::as_ref).collect();
    // A process that can't handle it ends where a slot fails.
    survive_failing_slots().unwrap_or_default();
    unlock_in_children();
    let mut made = Made::default();
    for path in &paths {
        made.files.extend(make_slot(path, how.slot_bytes)?);
    }
    let specs: Vec<SlotSpec> = paths.iter().map(|path| SlotSpec::new(*path)).collect();
    let pm = Pm::open(&specs, &PmOptions { hugepages: true, ..PmOptions::default() })?;
    (0..).zip(&paths).try_for_each(|(slot, path)| check_place(&pm, slot, path))?;
    if !how.overwrite {
        if let Some(slot) = foreign_slot(&pm) {
            let path = paths.get(usize::from(slot)).map_or_else(PathBuf::new, PathBuf::from);
            return Err(MakeError::Foreign { path });
        }
        for (slot, path) in (0..).zip(&paths) {
            if let Some(holds) = what_it_holds(&slot_head(&pm, slot)?) {
                return Err(MakeError::Holds { path: (*path).to_owned(), holds });
            }
        }
    }
    let MakePool { lanes, method, mode, .. } = *how;
    made.are_own = true;
    mkfs_over(&pm, &MkfsOptions { update: method, mode, ..mkfs_options(lanes, paths.len()) })?;
    made.files.clear();
    Ok(())
}

/// Makes a pool of mapped slots, as [`mkfs`] does. Where they were another pool, the arena goes that its
/// clients left when they were killed. The caller has the slots' locks.
///
/// # Errors
/// Those of [`mkfs`].
pub fn mkfs_over(pm: &Pm, options: &MkfsOptions) -> Result<(), novale_core::Error> {
    let older = slot_header(pm).ok().and_then(|header| ArenaFile::of(pm, header.pool_uuid).ok());
    mkfs(pm, options)?;
    // The pool is made, whatever becomes of memory that nobody uses.
    older.map_or(Ok(()), |arena| arena.remove()).unwrap_or(());
    Ok(())
}

/// Refuses a slot that was removed, or that another one has come in the place of, before it was locked.
fn check_place(pm: &Pm, slot: u8, path: &Path) -> Result<(), MakeError> {
    let failed = |source| MakeError::Io { path: path.to_owned(), source };
    let there = path.metadata().map_err(failed)?;
    let Some(file) = pm.slot_file(slot) else { return Ok(()) };
    let own = file.metadata().map_err(failed)?;
    let is_same = (there.dev(), there.ino()) == (own.dev(), own.ino());
    if is_same { Ok(()) } else { Err(failed(Errno::NOENT.into())) }
}

/// Makes a slot that is not there.
fn make_slot(path: &Path, bytes: Option<u64>) -> Result<Option<SlotFile>, MakeError> {
    let failed = |source| MakeError::Io { path: path.to_owned(), source };
    let Some(bytes) = bytes else {
        let there = path.try_exists().map_err(failed)?;
        return if there { Ok(None) } else { Err(MakeError::NoSize { path: path.to_owned() }) };
    };
    let name = path.file_name().ok_or(Errno::ISDIR).map_err(|error| failed(error.into()))?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, 0.into());
    let folder = folder.map_err(|error| failed(error.into()))?;
    SlotFile::make_in(folder.into(), name, bytes).map_err(failed)
}

/// The bytes of a slot that tell what it holds: its first 2 MB.
///
/// # Errors
/// Where there is no such slot.
pub fn slot_head(pm: &Pm, slot: u8) -> Result<Vec<u8>, novale_core::Error> {
    let len = usize::try_from(pm.slot_len(slot).min(HEAD_BYTES)).unwrap_or_default();
    let mut head = vec![0; len];
    pm.load(PmAddr::new(slot, 0), &mut head)?;
    Ok(head)
}

/// What the first bytes of a slot show, in words; none for zeros.
#[must_use]
pub fn what_it_holds(head: &[u8]) -> Option<&'static str> {
    match known_signature(head) {
        Some("Novale") => Some(OUR_FORMAT),
        None => head.iter().any(|byte| *byte != 0).then_some("data of an unknown format"),
        known => known,
    }
}

/// What a new pool of so many slots is: new identities, the caller's root directory, and as many lanes
/// as are asked for, or one for each CPU and 4 at least.
#[must_use]
pub fn mkfs_options(lanes: Option<u32>, slots: usize) -> MkfsOptions {
    let cpus = std::thread::available_parallelism().map_or(LANES_MIN, std::num::NonZero::get);
    let by_cpus = u32::try_from(cpus.clamp(LANES_MIN, LANES_MAX)).unwrap_or(u32::MAX);
    let owner = process_owner();
    MkfsOptions {
        lanes: lanes.unwrap_or(by_cpus),
        pool_uuid: Uuid::new_v4().into_bytes(),
        slot_uuids: (0..slots).map(|_| Uuid::new_v4().into_bytes()).collect(),
        now_ns: wall_clock_ns(),
        root_uid: owner.0,
        root_gid: owner.1,
        root_mode: 0o755,
        update: None,
        mode: None,
        endurance: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another process that found the file had made a pool there, or was making one: it lost the file.
    #[test]
    fn a_file_that_another_one_uses_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let made = || {
            let make = |name| make_slot(&path(name), Some(8 << 20)).unwrap().unwrap();
            Made { files: ["pool", "locked", "unused"].map(make).into(), are_own: false }
        };
        let failed = made();
        make_pool(&[path("pool")], &MakePool::default()).unwrap();
        let locked = File::open(path("locked")).unwrap();
        rustix::fs::flock(&locked, FlockOperation::LockExclusive).unwrap();
        drop(failed);
        assert!(path("pool").exists() && path("locked").exists() && !path("unused").exists());
        drop(locked);
        for name in ["pool", "locked"] {
            std::fs::remove_file(path(name)).unwrap();
        }
        let mut own = made();
        own.are_own = true;
        std::fs::write(path("pool"), b"begun").unwrap();
        drop(own);
        assert!(["pool", "locked", "unused"].iter().all(|name| !path(name).exists()));
    }
}
