//! Where a pool's arena is, the DRAM that its clients share.
//!
//! The name has the pool's UUID, the boot, and the file of slot 0, or the device, whatever node leads to it:
//! a copy of a pool has the same UUID and may be open beside it. The file is its owner's alone, with mode
//! 0600: clients trust what they read there.
//!
//! Anybody may make files in the folder, and so take a name before. Such a name is left to the one who
//! has it: the arena has a dot and a random number after its own then, and who looks for it finds it in a
//! pass through the folder, as long as that is, by its owner. Only then is the folder read.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use novale_arena::{Arena, ArenaError, Identity, PidInfo};
use novale_core::{
    ARENA_ABI, Fs, OpenOptions, has_left_behind, live_clients, mounts_served, stopped_clients,
    stored_behind,
};
use novale_layout::Ino;
use novale_pm::Pm;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::JoinError;
use crate::{by_number, wall_clock_ns};

const FOLDER: &str = "/dev/shm";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const PREFIX: &str = "novale-";
/// Characters of a UUID as it is written.
const UUID_CHARS: usize = 36;
/// What nobody but the owner may do with an arena.
const OTHERS: u32 = 0o077;
/// Random names that are tried: that one of them is taken, nobody can bring about.
const NAMES_MAX: u32 = 8;

/// What programs that share a pool have in common: what they keep in its arena, and the names by which
/// one asks another's mount for an inode.
pub const ABI: u64 = ARENA_ABI ^ by_number::VERSION << 56;

/// The name of a pool's arena. The one who makes or removes the file holds the locks of the pool.
#[derive(Debug, Clone)]
pub struct ArenaFile {
    /// The name that it has where nobody else has taken it.
    path: PathBuf,
    pool_uuid: [u8; 16],
}

/// What is at a path.
enum Seen {
    Nothing,
    /// The caller's own, and nobody else's to write.
    Own(File),
    Foreign,
}

impl ArenaFile {
    /// The arena of the pool with this UUID, of which `slot` is slot 0.
    ///
    /// # Errors
    /// [`JoinError::Io`] where the boot's number can't be read.
    pub fn new(pool_uuid: [u8; 16], slot: &Metadata) -> Result<Self, JoinError> {
        let boot = fs::read_to_string(BOOT_ID);
        let boot = boot.map_err(|source| JoinError::io("the boot id", source))?;
        let boot = boot.split('-').next().unwrap_or_default().trim();
        let (device, ino) = if slot.file_type().is_char_device() {
            (0, slot.rdev())
        } else {
            (slot.dev(), slot.ino())
        };
        let name = format!("{PREFIX}{}-{boot}-{device:x}-{ino}", hyphenated(pool_uuid));
        Ok(Self { path: Path::new(FOLDER).join(name), pool_uuid })
    }

    /// The arena of a mapped pool.
    pub(crate) fn of(pm: &Pm, pool_uuid: [u8; 16]) -> Result<Self, JoinError> {
        let slot = pm.slot_file(0).map(File::metadata).transpose();
        let slot = slot.map_err(|source| JoinError::io("slot 0", source))?;
        let missing = || JoinError::io("slot 0", std::io::ErrorKind::NotFound.into());
        Self::new(pool_uuid, &slot.ok_or_else(missing)?)
    }

    fn identity(&self) -> Identity {
        Identity { pool_uuid: self.pool_uuid, abi: ABI }
    }

    /// Makes the arena, of at most `bytes`. One that is there belonged to clients that were killed:
    /// the caller has the pool's locks and has looked at [`ArenaFile::live_clients`] and
    /// [`ArenaFile::has_left_behind`]. It goes once the new one is made.
    ///
    /// # Errors
    /// Those of [`Arena::create`]; [`JoinError::Foreign`] where all names are taken.
    pub fn create(&self, bytes: u64) -> Result<Arena, JoinError> {
        let made = || Arena::unnamed(Path::new(FOLDER), bytes, self.identity());
        let arena = match made() {
            Err(ArenaError::Full(_)) => {
                // It may be the old one that fills the folder.
                self.names().for_each(|path| remove_own(&path));
                made()?
            }
            made => made?,
        };
        self.names().for_each(|path| remove_own(&path));
        let mut path = self.path.clone();
        for _ in 0..NAMES_MAX {
            match arena.link_at(&path) {
                Err(ArenaError::Exists { .. }) => path = self.another_name(),
                named => return Ok(named.map(|()| arena)?),
            }
        }
        Err(self.foreign())
    }

    /// Opens the arena that others share.
    ///
    /// # Errors
    /// [`JoinError::NotOpen`], [`JoinError::Foreign`], and those of [`Arena::open`].
    pub fn open(&self) -> Result<Arena, JoinError> {
        self.open_from(0)
    }

    /// The same on a descriptor of at least a number.
    pub(super) fn open_from(&self, from: u32) -> Result<Arena, JoinError> {
        let (_, file) = self.find()?;
        let file = match i32::try_from(from) {
            Ok(from) if from > 0 => {
                let moved = rustix::io::fcntl_dupfd_cloexec(&file, from);
                moved.map_err(|error| JoinError::io("the arena", error.into()))?.into()
            }
            _ => file,
        };
        Ok(Arena::open_file(file, self.identity())?)
    }

    /// The file, and the name that it has.
    fn find(&self) -> Result<(PathBuf, File), JoinError> {
        let mut is_taken = match look(&self.path)? {
            Seen::Own(file) => return Ok((self.path.clone(), file)),
            Seen::Foreign => true,
            Seen::Nothing => false,
        };
        let others = self.other_names();
        for path in others.map_err(|error| JoinError::io("the arenas", error.into()))? {
            match look(&path)? {
                Seen::Own(file) => return Ok((path, file)),
                Seen::Foreign => is_taken = true,
                Seen::Nothing => {}
            }
        }
        Err(if is_taken { self.foreign() } else { JoinError::NotOpen })
    }

    /// The names that it may have: its own, and then those that are in the folder, as far as that can be read.
    fn names(&self) -> impl Iterator<Item = PathBuf> {
        let others = std::iter::once_with(|| self.other_names().unwrap_or_default()).flatten();
        std::iter::once(self.path.clone()).chain(others)
    }

    fn other_names(&self) -> rustix::io::Result<Vec<PathBuf>> {
        let prefix = [self.path.file_name().unwrap_or_default().as_bytes(), b"."].concat();
        list(Path::new(FOLDER), &prefix)
    }

    fn another_name(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        // Seeded by the kernel, for each of them anew.
        let random = RandomState::new().build_hasher().finish();
        name.push(format!(".{random:016x}"));
        name.into()
    }

    fn foreign(&self) -> JoinError {
        JoinError::Foreign { path: self.path.clone() }
    }

    /// The arena, if there is one that this program can ever use. What keeps it from that only now (no
    /// memory, no descriptor) is an error: such an arena may have what is nowhere else.
    ///
    /// # Errors
    /// What keeps it from being opened just now.
    pub fn usable(&self) -> Result<Option<Arena>, JoinError> {
        use ArenaError::{BadSize, NotArena, OtherBuild, OtherNamespace, OtherPool, Poisoned};
        match self.open() {
            Ok(arena) => Ok(Some(arena)),
            Err(
                JoinError::NotOpen
                | JoinError::Foreign { .. }
                | JoinError::Arena(
                    NotArena { .. }
                    | BadSize { .. }
                    | OtherBuild { .. }
                    | OtherPool { .. }
                    // The own one is 0 where it can't be seen.
                    | OtherNamespace { own: 1.., .. }
                    | Poisoned,
                ),
            ) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The processes that live and have the pool open in this arena; none where there is none of use.
    /// Their locks on the slots say so too, unless a program has closed descriptors that were not its
    /// own.
    ///
    /// # Errors
    /// What keeps it from being opened just now.
    pub fn live_clients(&self) -> Result<Vec<u32>, JoinError> {
        let clients = self.usable()?.map(|arena| live_clients(&arena)).unwrap_or_default();
        Ok(clients.into_iter().map(|process| process.pid).collect())
    }

    /// The processes that were stopped in the middle of an operation ([`novale_core::stopped_clients`]).
    ///
    /// # Errors
    /// As [`ArenaFile::live_clients`].
    pub fn stopped_clients(&self) -> Result<Vec<u32>, JoinError> {
        Ok(self.usable()?.map(|arena| stopped_clients(&arena)).unwrap_or_default())
    }

    /// Whether those who had the pool open may have left bytes here that the pool does not have. The caller knows that
    /// none of them lives: by its locks, or by [`ArenaFile::live_clients`].
    ///
    /// # Errors
    /// As [`ArenaFile::live_clients`].
    pub fn has_left_behind(&self) -> Result<bool, JoinError> {
        Ok(self.usable()?.is_some_and(|arena| has_left_behind(&arena)))
    }

    /// The files to whose pages those who had the pool open may have stored: [`Fs::sync_left`] is for who opens it next,
    /// for writing. The caller knows that none of them lives.
    ///
    /// # Errors
    /// As [`ArenaFile::live_clients`].
    pub fn stored_behind(&self) -> Result<BTreeSet<Ino>, JoinError> {
        Ok(self.usable()?.map(|arena| stored_behind(&arena)).unwrap_or_default())
    }

    /// Whether nobody needs it who opens the pool next. The caller knows that none of its clients lives.
    ///
    /// # Errors
    /// As [`ArenaFile::live_clients`].
    pub fn is_done_with(&self) -> Result<bool, JoinError> {
        let is_done = |arena| !has_left_behind(&arena) && stored_behind(&arena).is_empty();
        Ok(self.usable()?.is_none_or(is_done))
    }

    /// The arenas with what clients that were all killed had only buffered of a pool with this one's number, where another
    /// file was slot 0: a copy of a pool has its number.
    #[must_use]
    pub fn left_with_other_files(&self) -> Vec<PathBuf> {
        let is_left = |path: &PathBuf| {
            let Ok(Seen::Own(file)) = look(path) else { return false };
            let arena = Arena::open_file(file, self.identity());
            arena.is_ok_and(|it| live_clients(&it).is_empty() && has_left_behind(&it))
        };
        let prefix = format!("{PREFIX}{}-", hyphenated(self.pool_uuid));
        let mut all = list(Path::new(FOLDER), prefix.as_bytes()).unwrap_or_default();
        all.retain(|path| !is_name_of(path, &self.path) && is_left(path));
        all
    }

    /// Whether an arena is there that this program can never look at, since those who left it were of another pid or
    /// time namespace, or of another build. Who opens the pool removes it, and with it what they had only buffered.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        use ArenaError::{OtherBuild, OtherNamespace};
        let found = self.open();
        matches!(found, Err(JoinError::Arena(OtherBuild { .. } | OtherNamespace { .. })))
    }

    /// Writes back what clients that were all killed have left behind, closes the pool for them, and removes
    /// their arena; it is removed also where the pool is not as they left it, and says false then. `pm` maps
    /// the pool; the caller has its locks, and maps it anew after this.
    ///
    /// # Errors
    /// [`JoinError::LeftBehind`] and [`JoinError::LeftToWrite`], where the arena stays; those of [`ArenaFile::open`].
    pub fn end_session_of_dead(&self, pm: Pm, read_only: bool) -> Result<bool, JoinError> {
        let mut arena = self.open()?;
        let (path, _) = self.find()?;
        if read_only {
            return Err(JoinError::LeftToWrite { path });
        }
        // All who have it open are dead.
        if arena.is_short() {
            arena.raise_max();
            arena = self.open()?;
        }
        let ended = Fs::end_session_of_dead(pm, &arena, wall_clock_ns(), PidInfo::current());
        let ended = ended.map_err(|source| JoinError::LeftBehind { path, source })?;
        self.remove()?;
        Ok(ended)
    }

    /// Removes the file, if it is there and the caller's; those who have it open keep it.
    ///
    /// # Errors
    /// [`JoinError::Io`].
    pub fn remove(&self) -> Result<(), JoinError> {
        for path in self.names() {
            if is_own(&path) {
                return match Arena::remove(&path) {
                    Ok(()) | Err(ArenaError::NotFound { .. }) => Ok(()),
                    Err(error) => Err(error.into()),
                };
            }
        }
        Ok(())
    }
}

/// Removes the caller's arenas in which a client that died says that it serves the mount with a
/// device number, and in which nobody lives. The caller knows that the mount is dead: that daemon's
/// pool may have been moved, so that the mount leads to it no more. Those of a pool with a mode, which may have bytes
/// that the pool does not have, are left to who has its locks: a program may join the dead until then. So are those that
/// tell of stores to pages, which who opens the pool next writes back.
pub fn remove_arenas_of_dead(device: (u32, u32)) {
    for path in list(Path::new(FOLDER), PREFIX.as_bytes()).unwrap_or_default() {
        let Some(pool_uuid) = uuid_in(&path) else { continue };
        let Ok(Seen::Own(file)) = look(&path) else { continue };
        let Ok(arena) = Arena::open_file(file, Identity { pool_uuid, abi: ABI }) else {
            continue;
        };
        let served_it = mounts_served(&arena).any(|(_, served)| served.device == device);
        let may_buffer = OpenOptions::of_arena(&arena).mode.is_some();
        let has_stored = || !stored_behind(&arena).is_empty();
        if served_it && live_clients(&arena).is_empty() && !may_buffer && !has_stored() {
            remove_only(&path, &arena).unwrap_or_default();
        }
    }
}

/// Removes the name of one arena, without its pool's locks: the pool's next daemon may have put its own
/// in its place just now. So the file is moved to a name that is nobody's first, by which it is found
/// too, and back if it is another.
fn remove_only(path: &Path, arena: &Arena) -> rustix::io::Result<()> {
    let Some(file) = arena.file() else { return Ok(()) };
    let meant = rustix::fs::fstat(file)?;
    let aside = ArenaFile { path: path.to_owned(), pool_uuid: [0; 16] }.another_name();
    rustix::fs::renameat_with(CWD, path, CWD, &aside, RenameFlags::NOREPLACE)?;
    let moved = rustix::fs::statat(CWD, &aside, AtFlags::SYMLINK_NOFOLLOW)?;
    if (moved.st_dev, moved.st_ino) == (meant.st_dev, meant.st_ino) {
        return rustix::fs::unlink(&aside);
    }
    rustix::fs::renameat_with(CWD, &aside, CWD, path, RenameFlags::NOREPLACE)
}

/// What is at a path, opened if it is the caller's alone. Another user's is not waited for, whatever
/// it is. A thread of the program around that writes to the descriptor by mistake writes to its end.
fn look(path: &Path) -> Result<Seen, JoinError> {
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CLOEXEC;
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(Seen::Nothing),
        Err(Errno::ACCESS | Errno::LOOP | Errno::ISDIR | Errno::NXIO | Errno::AGAIN) => {
            return Ok(Seen::Foreign);
        }
        // A program that runs, or what nobody may change.
        Err(Errno::TXTBSY | Errno::PERM | Errno::BUSY) => return Ok(Seen::Foreign),
        Err(error) => return Err(JoinError::io("the arena", error.into())),
    };
    let metadata = file.metadata().map_err(|source| JoinError::io("the arena", source))?;
    let own = metadata.uid() == rustix::process::geteuid().as_raw() && metadata.is_file();
    let alone = metadata.mode() & OTHERS == 0;
    Ok(if own && alone { Seen::Own(file) } else { Seen::Foreign })
}

/// Whether a file is the caller's.
fn is_own(path: &Path) -> bool {
    rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|found| {
        found.st_uid == rustix::process::geteuid().as_raw()
            && FileType::from_raw_mode(found.st_mode).is_file()
    })
}

fn remove_own(path: &Path) {
    if is_own(path) {
        // One that stays takes a name that there are others for.
        rustix::fs::unlink(path).unwrap_or_default();
    }
}

/// The files in the folder whose names begin so; none where there is none that the caller may read. What keeps it from
/// being read only now (no memory, no descriptor) is an error.
fn list(folder: &Path, prefix: &[u8]) -> rustix::io::Result<Vec<PathBuf>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // Not by std, which would have libc take memory, of a program that libnovale is loaded into.
    let entries = match rustix::fs::open(folder, flags, Mode::empty()) {
        Ok(file) => Dir::new(file)?,
        Err(Errno::NOENT | Errno::ACCESS) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name.starts_with(prefix) {
            paths.push(folder.join(OsStr::from_bytes(name)));
        }
    }
    Ok(paths)
}

/// The pool that an arena's name speaks of.
fn uuid_in(path: &Path) -> Option<[u8; 16]> {
    let name = path.file_name()?.to_str()?.strip_prefix(PREFIX)?.get(..UUID_CHARS)?;
    let digits: Vec<u8> = name.bytes().filter(|character| *character != b'-').collect();
    let (pairs, _) = digits.as_chunks::<2>();
    let mut uuid = [0; 16];
    for (byte, pair) in uuid.iter_mut().zip(pairs) {
        *byte = u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()?;
    }
    (hyphenated(uuid) == name).then_some(uuid)
}

/// A UUID as it is written: its first byte first.
fn hyphenated(uuid: [u8; 16]) -> String {
    let hex: Vec<String> = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let groups = [0..4, 4..6, 6..8, 8..10, 10..16];
    groups.map(|group| hex.get(group).unwrap_or_default().concat()).join("-")
}

/// Whether a path is that of an arena, or another name of it. (It ends with a number, whose first digits are other ones.)
fn is_name_of(path: &Path, arena: &Path) -> bool {
    let rest = path.as_os_str().as_bytes().strip_prefix(arena.as_os_str().as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

    use super::{ArenaFile, hyphenated, is_name_of, list, uuid_in};

    /// An arena whose number began with the digits of the own one counted as the own one: of a copy of the pool it was not
    /// said that it goes without what was buffered.
    #[test]
    fn an_arena_whose_number_begins_as_the_own_one_is_anothers() {
        let is_own = |name: &str| is_name_of(Path::new(name), Path::new("/d/pool-8-12"));
        assert!(is_own("/d/pool-8-12") && is_own("/d/pool-8-12.00aa"));
        assert!(!is_own("/d/pool-8-120") && !is_own("/d/pool-8-120.00aa"));
        assert!(!is_own("/d/pool-8-1") && !is_own("/d/pool-9-12"));
    }

    /// Each of two nodes led to an arena of its own.
    #[test]
    fn a_device_has_one_arena_by_all_its_nodes() {
        let folder = tempfile::tempdir().unwrap();
        let node = |name: &str, minor| {
            let path = folder.path().join(name);
            mknodat(CWD, &path, FileType::CharacterDevice, Mode::RUSR, makedev(1, minor))?;
            fs::metadata(path)
        };
        let (Ok(one), Ok(other)) = (node("one", 3), node("other", 5)) else {
            println!("skipped: a_device_has_one_arena_by_all_its_nodes: only root makes nodes");
            return;
        };
        let arena = |slot: &fs::Metadata| ArenaFile::new([7; 16], slot).unwrap().path;
        assert_eq!(arena(&one), arena(&fs::metadata("/dev/null").unwrap()));
        assert_ne!(arena(&one), arena(&other));
    }

    /// An arena by another name than its own was not found where the folder could not be read for want of memory or a
    /// descriptor, and what was in it was given up.
    #[test]
    fn a_folder_that_is_not_read_is_not_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (folder.path().join("a.1"), folder.path().join("b"));
        fs::write(&file, "").unwrap();
        fs::write(&other, "").unwrap();
        assert_eq!(list(folder.path(), b"a.").unwrap(), [file]);
        assert!(list(&folder.path().join("none"), b"a.").unwrap().is_empty());
        // As good as any other error.
        assert!(list(&other, b"a.").is_err());
    }

    #[test]
    fn a_uuid_is_written_as_everywhere_and_read_again() {
        let uuid = [0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0xff];
        assert_eq!(hyphenated(uuid), "deadbeef-0102-0304-0506-0708090a0bff");
        let named = |name: &str| uuid_in(&Path::new("/dev/shm").join(name));
        assert_eq!(named("novale-deadbeef-0102-0304-0506-0708090a0bff-b-1-2.f"), Some(uuid));
        for other in ["novale-deadbeef", "novale-deadbeef0102-0304-0506-0708090a0b-ff-b", "x", ""] {
            assert_eq!(named(other), None, "{other}");
        }
    }
}
