//! What is locked: files, and no longer paths, by which somebody else may put other files.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The locks of a pool in use; dropping it gives them up.
#[derive(Debug)]
pub(crate) struct PoolLock {
    slots: Vec<(PathBuf, File)>,
}

impl PoolLock {
    /// Of files that are locked, by the paths by which they were opened.
    pub(crate) fn new(slots: Vec<(PathBuf, File)>) -> Self {
        Self { slots }
    }

    /// What is locked under a path, whatever has come there since.
    pub(crate) fn file(&self, slot: &Path) -> Result<&File> {
        let found = self.slots.iter().find(|(path, _)| path == slot);
        found.map(|(_, file)| file).with_context(|| format!("{} is not locked", slot.display()))
    }

    /// File systems and inodes of what is locked ([`novale_pm::PmOptions::only`]).
    pub(crate) fn files(&self) -> Result<Vec<(u64, u64)>> {
        self.slots.iter().map(|(path, file)| identity(path, file)).collect()
    }
}

/// File system and inode.
pub(crate) fn identity(path: &Path, file: &File) -> Result<(u64, u64)> {
    let found = file.metadata().with_context(|| path.display().to_string())?;
    Ok((found.dev(), found.ino()))
}
