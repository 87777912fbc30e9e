//! The file of a daemon's arena, for the commands that find the daemon dead.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use novale_posix::join::ArenaFile;
use serde::{Deserialize, Serialize};

use crate::slots::Found;

/// The arena of a pool that was found.
pub(crate) fn arena_of(found: &Found) -> Result<ArenaFile> {
    let first = found.paths.first().context("a pool has a slot")?;
    let slot = fs::metadata(first).with_context(|| first.display().to_string())?;
    Ok(ArenaFile::new(found.info.uuid, &slot)?)
}

/// The file of an arena, as the record of a mount knows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct KeptArena {
    path: PathBuf,
    ino: u64,
    #[serde(default)]
    pool_uuid: [u8; 16],
}

impl KeptArena {
    /// The file as it is now, if it is there.
    pub(crate) fn of(arena: &ArenaFile) -> Option<Self> {
        let path = arena.path().to_owned();
        let ino = fs::metadata(&path).ok()?.ino();
        Some(Self { path, ino, pool_uuid: arena.pool_uuid() })
    }

    /// The processes that have the pool open in it.
    pub(crate) fn clients(&self) -> Vec<u32> {
        ArenaFile::at(self.path.clone(), self.pool_uuid).live_clients()
    }

    /// Removes the file of a daemon that is gone; the next daemon of its pool has made another one
    /// of the same name, and programs that use the pool beside it stay.
    pub(crate) fn remove(&self) {
        let is_it = fs::metadata(&self.path).is_ok_and(|file| file.ino() == self.ino);
        if is_it && self.clients().is_empty() {
            fs::remove_file(&self.path).unwrap_or_default();
        }
    }
}
