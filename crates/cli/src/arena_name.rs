//! Where a pool's arena is, the DRAM that its daemon keeps indexes in.
//!
//! The name has the pool's UUID, the boot, and the file of slot 0: a copy of a pool has the same UUID
//! and may be mounted beside it. The file is root's, or the user's, own, with mode 0600: the daemon
//! trusts what it reads there.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use novale_arena::{Arena, Identity};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::slots::Found;

const FOLDER: &str = "/dev/shm";
/// The layout of what the core keeps in the arena. Nobody but this daemon opens it yet.
const ABI: u64 = 1;

/// The name of an arena. Whoever makes or removes it holds the locks of the pool.
#[derive(Debug)]
pub(crate) struct ArenaName {
    path: PathBuf,
    pool_uuid: [u8; 16],
}

impl ArenaName {
    pub(crate) fn new(found: &Found) -> Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").context("the boot id")?;
        let boot = boot.split('-').next().unwrap_or_default().trim().to_owned();
        let first = found.paths.first().context("a pool has a slot")?;
        let slot = fs::metadata(first).with_context(|| first.display().to_string())?;
        let pool_uuid = found.info.uuid;
        let name = format!(
            "novale-{}-{boot}-{:x}-{}",
            Uuid::from_bytes(pool_uuid),
            slot.dev(),
            slot.ino()
        );
        Ok(Self { path: Path::new(FOLDER).join(name), pool_uuid })
    }

    /// Makes the arena. One that is there belonged to a daemon that was killed: this process has the
    /// pool's lock, and daemons are the only clients.
    pub(crate) fn create(&self, bytes: u64) -> Result<Arena> {
        self.remove();
        let identity = Identity { pool_uuid: self.pool_uuid, abi: ABI };
        Arena::create(&self.path, bytes, identity)
            .with_context(|| format!("the arena {}", self.path.display()))
    }

    /// The file that [`ArenaName::create`] has made.
    pub(crate) fn file(&self) -> Option<ArenaFile> {
        let ino = fs::metadata(&self.path).ok()?.ino();
        Some(ArenaFile { path: self.path.clone(), ino })
    }

    pub(crate) fn remove(&self) {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                remark!("novale: {}: {error}", self.path.display());
            }
            _ => {}
        }
    }
}

/// The file of an arena, as the record of a mount knows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ArenaFile {
    path: PathBuf,
    ino: u64,
}

impl ArenaFile {
    /// Removes the file of a daemon that is gone; the next daemon of its pool has made another one
    /// of the same name.
    pub(crate) fn remove(&self) {
        if fs::metadata(&self.path).is_ok_and(|file| file.ino() == self.ino) {
            fs::remove_file(&self.path).unwrap_or_default();
        }
    }
}

/// An arena that goes away with its daemon.
#[derive(Debug)]
pub(crate) struct Removed(pub(crate) ArenaName);

impl Drop for Removed {
    fn drop(&mut self) {
        self.0.remove();
    }
}
