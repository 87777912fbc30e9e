//! What processes that work on one pool share: a folder with the pool's file and the arena's, and a
//! file for each worker, in which it counts what it has begun and done.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use novale_arena::{Arena, Identity, PidInfo};
use novale_core::{Atime, Fs, Ino, OpenOptions, Serial};
use novale_pm::{Pm, PmOptions, SlotLock, SlotSpec};
use novale_posix::join::ABI;

use super::failed::Failed;
use crate::diff::{Mappings, OnFs, make_pool, now_ns_at};
use crate::workload::Failure;

/// Bytes of the pool: it must never be full, and each run leaves little of it in use.
const POOL_BYTES: u64 = 512 << 20;
const ARENA_BYTES: u64 = 512 << 20;
/// Bytes of it that views may take before they are dropped.
const INDEX_BYTES: u64 = 256 << 10;
/// Of these so much may be used.
const ROOM_BYTES: u64 = 128 << 20;

/// The folder, by its path.
#[derive(Debug, Clone)]
pub(super) struct Field {
    folder: PathBuf,
}

impl Field {
    pub(super) fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn slot(&self) -> PathBuf {
        self.folder.join("slot")
    }

    /// Where the daemon mounts the pool.
    pub(super) fn mount(&self) -> PathBuf {
        self.folder.join("mount")
    }

    /// The arena, or a link that leads to it.
    pub(super) fn arena_name(&self) -> PathBuf {
        self.folder.join("arena")
    }

    /// Removes what an earlier round left.
    pub(super) fn clear(&self) -> Result<(), String> {
        for path in [self.arena_name(), self.slot(), self.stop()] {
            match std::fs::remove_file(path) {
                Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why.to_string()),
                _ => {}
            }
        }
        Ok(())
    }

    /// There once the workers are to stop.
    pub(super) fn stop(&self) -> PathBuf {
        self.folder.join("stop")
    }

    /// The pool, mapped.
    pub(super) fn pm(&self, options: &PmOptions) -> Result<Pm, String> {
        let slot = SlotSpec::new(self.slot());
        Pm::open(&[slot], options).map_err(|why| why.to_string())
    }

    /// Says whether there is memory for the pool and the arena of a hunt: who writes where there is
    /// none is killed by the kernel.
    pub(super) fn has_room(&self) -> Result<(), Failed> {
        let room = rustix::fs::statvfs(&self.folder)
            .map_err(|why| Failed::Unable(format!("{}: {why}", self.folder.display())))?;
        let free = room.f_bavail.saturating_mul(room.f_frsize);
        if free >= ROOM_BYTES {
            return Ok(());
        }
        let (folder, free, needed) = (self.folder.display(), free >> 20, ROOM_BYTES >> 20);
        Err(Failed::Unable(format!("{folder} has {free} MB left, and {needed} MB are needed")))
    }

    /// Makes a pool and opens it, as the first client.
    pub(super) fn open(&self, lanes: u32) -> Result<Fs, String> {
        let text = |why: io::Error| why.to_string();
        self.clear()?;
        let slot = File::create_new(self.slot()).map_err(text)?;
        slot.set_len(POOL_BYTES).map_err(text)?;
        make_pool(&self.pm(&PmOptions::default())?, lanes)?;
        let pm = self.pm(&PmOptions::default())?;
        let arena = Arena::create(&self.arena_name(), ARENA_BYTES, identity(&pm)?);
        let arena = arena.map_err(|why| why.to_string())?;
        let fs =
            Fs::open(pm, arena, &options(), &Serial, &|_| ()).map_err(|why| why.to_string())?;
        fs.pm().share().map_err(|why| why.to_string())?;
        Ok(fs)
    }

    /// Joins those who have the pool open.
    pub(super) fn attach(&self, options_of_pm: PmOptions) -> Result<Fs, String> {
        let pm = self.pm(&PmOptions { lock: SlotLock::Shared, ..options_of_pm })?;
        let name = self.arena_name();
        let path = std::fs::read_link(&name).unwrap_or(name);
        let arena = Arena::open(&path, identity(&pm)?).map_err(|why| why.to_string())?;
        Fs::attach(pm, &arena, &options(), PidInfo::current()).map_err(|why| why.to_string())
    }
}

/// What the arena of a pool says of itself.
pub(super) fn identity(pm: &Pm) -> Result<Identity, String> {
    let pool = novale_core::inspect(pm).map_err(|why| why.to_string())?;
    Ok(Identity { pool_uuid: pool.uuid, abi: ABI })
}

/// Copies the pool that a hunt worked on, without the holes of its file.
///
/// # Errors
/// What the file systems say.
pub fn keep_pool(folder: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (File::open(Field::at(folder).slot())?, File::create(to)?);
    let len = from.metadata()?.len();
    to.set_len(len)?;
    let mut page = [0; 4096];
    for at in (0..len / 4096).map(|index| index * 4096) {
        from.read_exact_at(&mut page, at)?;
        if page != [0; 4096] {
            to.write_all_at(&page, at)?;
        }
    }
    Ok(())
}

fn options() -> OpenOptions {
    // Less than the views of its files take: some are dropped all the time.
    let index_bytes = Some(INDEX_BYTES);
    let now_ns = now_ns_at(0);
    OpenOptions { atime: Atime::Noatime, now_ns, index_bytes, ..OpenOptions::default() }
}

/// A directory as a worker's root.
pub(super) struct Home<'f> {
    fs: &'f Fs,
    root: Ino,
    mappings: Mappings,
}

impl<'f> Home<'f> {
    pub(super) fn new(fs: &'f Fs, root: Ino) -> Self {
        Self { fs, root, mappings: Mappings::default() }
    }
}

impl OnFs for Home<'_> {
    fn fs(&self) -> Result<&Fs, Failure> {
        Ok(self.fs)
    }

    fn root(&self) -> Ino {
        self.root
    }

    fn mappings(&mut self) -> &mut Mappings {
        &mut self.mappings
    }
}

/// What a worker has begun and done, in a file that outlives it.
#[derive(Debug)]
pub(super) struct Count {
    file: File,
}

impl Count {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        let this = Self { file };
        this.begin(0)?;
        this.done(0)?;
        Ok(this)
    }

    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::options().read(true).write(true).open(path)? })
    }

    pub(super) fn begin(&self, count: u64) -> io::Result<()> {
        self.file.write_all_at(&count.to_le_bytes(), 0)
    }

    pub(super) fn done(&self, count: u64) -> io::Result<()> {
        self.file.write_all_at(&count.to_le_bytes(), 8)
    }

    /// Begun, and done.
    pub(super) fn read(&self) -> io::Result<(u64, u64)> {
        let mut word = [0; 8];
        self.file.read_exact_at(&mut word, 0)?;
        let begun = u64::from_le_bytes(word);
        self.file.read_exact_at(&mut word, 8)?;
        Ok((begun, u64::from_le_bytes(word)))
    }
}
