//! Where a pool's arena is, the DRAM that its clients share.
//!
//! The name has the pool's UUID, the boot, and the file of slot 0: a copy of a pool has the same UUID
//! and may be open beside it. The file is its owner's alone, with mode 0600: clients trust what they
//! read there.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use novale_arena::{Arena, ArenaError, Identity};
use novale_core::{ARENA_ABI, live_clients};
use novale_pm::Pm;
use rustix::fs::{Mode, OFlags};

use super::JoinError;

const FOLDER: &str = "/dev/shm";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// What nobody but the owner may do with an arena.
const OTHERS: u32 = 0o077;

/// The name of a pool's arena. Whoever makes or removes the file holds the locks of the pool.
#[derive(Debug, Clone)]
pub struct ArenaFile {
    path: PathBuf,
    pool_uuid: [u8; 16],
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
        let (device, ino) = (slot.dev(), slot.ino());
        let name = format!("novale-{}-{boot}-{device:x}-{ino}", hyphenated(pool_uuid));
        Ok(Self { path: Path::new(FOLDER).join(name), pool_uuid })
    }

    /// The arena at a path that was noted.
    #[must_use]
    pub fn at(path: PathBuf, pool_uuid: [u8; 16]) -> Self {
        Self { path, pool_uuid }
    }

    /// The pool that it belongs to.
    #[must_use]
    pub fn pool_uuid(&self) -> [u8; 16] {
        self.pool_uuid
    }

    /// The arena of a mapped pool.
    pub(super) fn of(pm: &Pm, pool_uuid: [u8; 16]) -> Result<Self, JoinError> {
        let slot = pm.slot_file(0).map(File::metadata).transpose();
        let slot = slot.map_err(|source| JoinError::io("slot 0", source))?;
        let missing = || JoinError::io("slot 0", std::io::ErrorKind::NotFound.into());
        Self::new(pool_uuid, &slot.ok_or_else(missing)?)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn identity(&self) -> Identity {
        Identity { pool_uuid: self.pool_uuid, abi: ARENA_ABI }
    }

    /// Makes the arena, of at most `bytes`. One that is there belonged to clients that were killed:
    /// the caller has the pool's locks and has looked at [`ArenaFile::live_clients`].
    ///
    /// # Errors
    /// Those of [`Arena::create`]; [`JoinError::Io`] where another user's file can't be removed.
    pub fn create(&self, bytes: u64) -> Result<Arena, JoinError> {
        self.remove()?;
        Ok(Arena::create(&self.path, bytes, self.identity())?)
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
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = match rustix::fs::open(&self.path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::NOENT) => return Err(JoinError::NotOpen),
            Err(rustix::io::Errno::ACCESS) => return Err(self.foreign()),
            Err(error) => return Err(JoinError::io("the arena", error.into())),
        };
        let metadata = file.metadata().map_err(|source| JoinError::io("the arena", source))?;
        let own = metadata.uid() == rustix::process::geteuid().as_raw();
        if !own || metadata.mode() & OTHERS != 0 {
            return Err(self.foreign());
        }
        let file = match i32::try_from(from) {
            Ok(from) if from > 0 => {
                let moved = rustix::io::fcntl_dupfd_cloexec(&file, from);
                moved.map_err(|error| JoinError::io("the arena", error.into()))?.into()
            }
            _ => file,
        };
        Ok(Arena::open_file(file, self.identity())?)
    }

    fn foreign(&self) -> JoinError {
        JoinError::Foreign { path: self.path.clone() }
    }

    /// The processes that live and have the pool open in this arena; none where it can't be opened.
    /// Their locks on the slots say so too, unless a program has closed descriptors that were not its
    /// own.
    #[must_use]
    pub fn live_clients(&self) -> Vec<u32> {
        let clients = self.open().map(|arena| live_clients(&arena)).unwrap_or_default();
        clients.into_iter().map(|process| process.pid).collect()
    }

    /// Removes the file, if it is there; those who have it open keep it.
    ///
    /// # Errors
    /// [`JoinError::Io`]: another user's, say.
    pub fn remove(&self) -> Result<(), JoinError> {
        match Arena::remove(&self.path) {
            Ok(()) | Err(ArenaError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A UUID as it is written: its first byte first.
fn hyphenated(uuid: [u8; 16]) -> String {
    let hex: Vec<String> = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let groups = [0..4, 4..6, 6..8, 8..10, 10..16];
    groups.map(|group| hex.get(group).unwrap_or_default().concat()).join("-")
}

#[cfg(test)]
mod tests {
    use super::hyphenated;

    #[test]
    fn a_uuid_is_written_as_everywhere() {
        let uuid = [0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0xff];
        assert_eq!(hyphenated(uuid), "deadbeef-0102-0304-0506-0708090a0bff");
    }
}
