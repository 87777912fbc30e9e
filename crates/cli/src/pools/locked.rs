//! What is locked: files, and no longer paths, by which somebody else may put other files.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{Mode, OFlags, openat, readlinkat};
use rustix::process::geteuid;

/// Links that a path may go through, as in the kernel.
const LINKS_MAX: u32 = 40;

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

    /// File systems and inodes of what is locked ([`novale_pm::PmOptions::only`]), to be written to. Refused
    /// is what another user's link has led to, who would choose the pool that is changed.
    pub(crate) fn files(&self) -> Result<Vec<(u64, u64)>> {
        let file = |(path, file): &(PathBuf, File)| {
            let found = identity(path, file)?;
            if found != identity(path, &follow(path)?)? {
                bail!("{} leads to another file by now", path.display());
            }
            Ok(found)
        };
        self.slots.iter().map(file).collect()
    }
}

/// What an absolute path leads to by no links but the caller's own and the administrator's.
pub(crate) fn follow(path: &Path) -> Result<File> {
    let open = |folder: &File, name: &Path| -> Result<File> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(folder, name, flags, Mode::empty());
        Ok(opened.with_context(|| path.display().to_string())?.into())
    };
    let names_of = |path: &Path| -> Vec<OsString> {
        path.components().rev().map(|name| name.as_os_str().to_owned()).collect()
    };
    let mut at = File::open("/").context("/")?;
    let (mut names, mut links) = (names_of(path), 0);
    while let Some(name) = names.pop() {
        let found = open(&at, Path::new(&name))?;
        let facts = found.metadata().with_context(|| path.display().to_string())?;
        if !facts.is_symlink() {
            at = found;
            continue;
        }
        links += 1;
        if ![0, geteuid().as_raw()].contains(&facts.uid()) || links > LINKS_MAX {
            bail!(
                "{}: {} is a symbolic link of another user's, who may have it lead anywhere: name the file or \
                 device itself",
                path.display(),
                name.display()
            );
        }
        let leads =
            readlinkat(&found, "", Vec::new()).with_context(|| path.display().to_string())?;
        names.extend(names_of(Path::new(OsStr::from_bytes(leads.as_bytes()))));
    }
    Ok(at)
}

/// File system and inode.
pub(crate) fn identity(path: &Path, file: &File) -> Result<(u64, u64)> {
    let found = file.metadata().with_context(|| path.display().to_string())?;
    Ok((found.dev(), found.ino()))
}
