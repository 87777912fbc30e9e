//! The files of slots looked at, made and resized for mkfs and for slots that are added, and put back when
//! that cannot be done.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use novale_layout::PmAddr;
use novale_posix::{SlotFile, what_it_holds};

use crate::base::size::show_size;
use crate::pools::locked::{self, PoolLock};
use crate::pools::slots;

/// Said of a slot that anybody may have put there.
pub(crate) const ANOTHERS: &str = "belongs to another user, who could read and write all that is in the pool: \
     name another slot, or give --force";
/// Where a name that was mistyped would become a file in memory.
const DEVICES: &str = "/dev";
/// The bytes of a file that tell what it holds.
const HEAD_BYTES: u64 = 2 << 20;
/// What a slot's mode may have of another's: nothing that acts when it is run.
const MODE: u32 = 0o777;

/// What the slots of one file system need of it.
struct Need {
    device: u64,
    bytes: u64,
}

/// Whether a path is a symbolic link that another user may have lead anywhere.
pub(crate) fn is_link_of_another(path: &Path) -> bool {
    let link = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_symlink);
    link.is_some_and(|link| ![0, rustix::process::geteuid().as_raw()].contains(&link.uid()))
}

/// Refuses what can be no slot, before anything is done with it.
pub(crate) fn check_kind(path: &Path) -> Result<()> {
    if is_link_of_another(path) {
        bail!(
            "{} is a symbolic link of another user's, who may have it lead anywhere: name the file or \
             device itself",
            path.display()
        );
    }
    if path.exists() {
        return slots::head(path).map(drop);
    }
    if let Ok(leads) = std::fs::read_link(path) {
        bail!(
            "{} is a symbolic link that leads nowhere (to {}): name another slot, or make that file",
            path.display(),
            leads.display()
        );
    }
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    if folder.as_deref() == Some(Path::new(DEVICES)) {
        bail!(
            "{} is no device, and a file is not made in {DEVICES}: name a device that there is, or \
             a file elsewhere, such as /dev/shm",
            path.display()
        );
    }
    Ok(())
}

/// Refuses a slot that holds something, or is another user's: what is locked, whatever has come to its path
/// since.
pub(crate) fn check_held(path: &Path, lock: &PoolLock, force: bool) -> Result<()> {
    if force {
        return Ok(());
    }
    let file = lock.file(path)?;
    let metadata = file.metadata()?;
    let head = if metadata.is_file() { head_of(file)? } else { slots::head(path)? };
    if let Some(found) = what_it_holds(&head) {
        bail!("{} holds {found}: give --force to overwrite it, or another slot", path.display());
    }
    if metadata.is_file() && metadata.uid() != rustix::process::geteuid().as_raw() {
        bail!("{}: {ANOTHERS}", path.display());
    }
    Ok(())
}

/// The first bytes of a file.
pub(crate) fn head_of(file: &File) -> Result<Vec<u8>> {
    let len = usize::try_from(file.metadata()?.len().min(HEAD_BYTES)).unwrap_or_default();
    let mut head = vec![0; len];
    file.read_exact_at(&mut head, 0)?;
    Ok(head)
}

/// Refuses files that their file systems have no room for, before one is changed. `lens` are the
/// bytes that they are to have.
pub(crate) fn check_room(paths: &[PathBuf], lens: &[u64]) -> Result<()> {
    let mut needs: Vec<Need> = Vec::new();
    for (path, len) in paths.iter().zip(lens) {
        if *len > PmAddr::SLOT_BYTES_MAX {
            bail!(
                "{}: {} is more than a slot may have, {}: give a smaller --size, and name more slots",
                path.display(),
                show_size(*len),
                show_size(PmAddr::SLOT_BYTES_MAX)
            );
        }
        let there = fs::metadata(path).ok();
        if there.as_ref().is_some_and(|file| !file.is_file()) {
            continue;
        }
        let has = there.map_or(0, |file| file.blocks().saturating_mul(512));
        // One that is not there yet is told of when it is created, if its folder is missing.
        let place = if path.exists() { Some(path.as_path()) } else { path.parent() };
        let Some(place) = place.filter(|place| place.exists()) else { continue };
        let shown = || place.display().to_string();
        let device = fs::metadata(place).with_context(shown)?.dev();
        let at = needs.iter().position(|need| need.device == device).unwrap_or(needs.len());
        if at == needs.len() {
            needs.push(Need { device, bytes: 0 });
        }
        let Some(need) = needs.get_mut(at) else { continue };
        need.bytes = need.bytes.saturating_add(len.saturating_sub(has));
        let room = rustix::fs::statvfs(place).with_context(shown)?;
        let available = room.f_bavail.saturating_mul(room.f_frsize);
        // A file system of 0 blocks is a tmpfs without limit.
        if room.f_blocks > 0 && need.bytes > available {
            bail!(
                "{}: no room for {}: its file system has {} available, and {} are missing; give a \
                 smaller --size, or free space",
                path.display(),
                show_size(*len),
                show_size(available),
                show_size(need.bytes)
            );
        }
    }
    Ok(())
}

/// Gives a new slot the owner and the mode of another one of its pool, so that who may use the pool still may.
/// Both are files that were opened: to what has come to their paths since, nothing is done.
pub(crate) fn share_as(new: &File, other: &File) -> Result<()> {
    let shown = || "the owner and mode of the other slots";
    let like = other.metadata().with_context(shown)?;
    if !like.is_file() {
        return Ok(());
    }
    let has = new.metadata().with_context(shown)?;
    if (has.uid(), has.gid()) != (like.uid(), like.gid()) {
        fchown(new, Some(like.uid()), Some(like.gid())).with_context(shown)?;
    }
    let mode = fs::Permissions::from_mode(like.permissions().mode() & MODE);
    new.set_permissions(mode).with_context(shown)
}

/// What was done to files, undone when this is dropped before [`Changed::keep`].
#[derive(Debug, Default)]
pub(crate) struct Changed {
    created: Vec<(PathBuf, SlotFile)>,
    /// The files that were made are locked, and may be stored to.
    are_own: bool,
    /// Files that were made longer, and the bytes that they had.
    grown: Vec<(PathBuf, File, u64)>,
}

impl Changed {
    /// Makes a file of zeroes, the owner's alone, in the folder that its path leads to by no other user's link. Nothing
    /// may have come to its path since it was looked at.
    pub(crate) fn create(&mut self, path: &Path, bytes: u64) -> Result<()> {
        let shown = || format!("creating {}", path.display());
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            bail!("{} is no name of a file", path.display());
        };
        if !parent.exists() {
            bail!("{}: its directory is missing: make it first", shown());
        }
        match SlotFile::make_in(locked::follow(parent)?, name, bytes).with_context(shown)? {
            Some(file) => self.created.push((path.to_owned(), file)),
            None => bail!("{} has been made by somebody else just now", path.display()),
        }
        Ok(())
    }

    /// The file that was made last.
    pub(crate) fn last(&self) -> Option<&File> {
        self.created.last().map(|(_, made)| made.file())
    }

    /// File systems and inodes of the files that are locked or were made, which are locked by now too: they are
    /// stored to. Refused where somebody else has stored to one before.
    pub(crate) fn files_with(&mut self, lock: &PoolLock) -> Result<Vec<(u64, u64)>> {
        for (path, made) in &self.created {
            if let Some(found) = what_it_holds(&head_of(made.file())?) {
                bail!("{} holds {found}, which somebody else has made just now", path.display());
            }
        }
        self.are_own = true;
        let mut files = lock.files()?;
        for (path, made) in &self.created {
            files.push(locked::identity(path, made.file())?);
        }
        Ok(files)
    }

    /// Gives files a size. What is cut off cannot be put back, so all that may fail comes first.
    pub(crate) fn resize<'a>(
        &mut self,
        paths: impl Iterator<Item = &'a PathBuf>,
        lock: &PoolLock,
        bytes: u64,
    ) -> Result<()> {
        let mut longer = Vec::new();
        for path in paths {
            let shown = || format!("setting the size of {}", path.display());
            let file = OpenOptions::new().write(true).open(path).with_context(shown)?;
            if locked::identity(path, &file)? != locked::identity(path, lock.file(path)?)? {
                bail!("{} has become another file just now", path.display());
            }
            let before = file.metadata().with_context(shown)?.len();
            if before < bytes {
                self.grown.push((path.clone(), file.try_clone().with_context(shown)?, before));
                set_len(path, &file, bytes)?;
            } else {
                longer.push((path, file));
            }
        }
        longer.iter().try_for_each(|(path, file)| set_len(path, file, bytes))
    }

    /// The pool is made.
    pub(crate) fn keep(&mut self) {
        self.created.clear();
        self.grown.clear();
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        for (path, made) in &self.created {
            let removed = if self.are_own { made.remove() } else { made.remove_unused() };
            if let Err(error) = removed {
                remark!("novale: {} was created and cannot be removed: {error}", path.display());
            }
        }
        for (path, file, before) in &self.grown {
            if let Err(error) = file.set_len(*before) {
                remark!("novale: {} cannot get its size back: {error}", path.display());
            }
        }
    }
}

fn set_len(path: &Path, file: &File, bytes: u64) -> Result<()> {
    file.set_len(bytes).with_context(|| format!("setting the size of {}", path.display()))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// Who owned the folder put another one there, with a link or a file of the same name: that was removed.
    #[test]
    fn what_has_come_to_a_made_files_path_is_not_removed() {
        let dir = TempDir::new().unwrap();
        let [folder, away] = ["folder", "away"].map(|name| dir.path().join(name));
        fs::create_dir(&folder).unwrap();
        let mut changed = Changed::default();
        for name in ["moved", "replaced"] {
            changed.create(&folder.join(name), 4096).unwrap();
        }
        fs::rename(&folder, &away).unwrap();
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("moved"), b"another's").unwrap();
        fs::rename(folder.join("moved"), away.join("replaced")).unwrap();
        fs::write(folder.join("moved"), b"another's").unwrap();
        drop(changed);
        assert!(!away.join("moved").exists());
        for left in [folder.join("moved"), away.join("replaced")] {
            assert_eq!(fs::read(left).unwrap(), b"another's");
        }
    }

    /// Somebody else who found the file made a pool there before it was locked here: the pool was overwritten, or
    /// removed.
    #[test]
    fn a_made_file_that_another_one_has_stored_to_is_not_removed() {
        let dir = TempDir::new().unwrap();
        let mut changed = Changed::default();
        for name in ["used", "unused"] {
            changed.create(&dir.path().join(name), 4096).unwrap();
        }
        fs::write(dir.path().join("used"), b"another's").unwrap();
        assert!(changed.files_with(&PoolLock::new(Vec::new())).is_err());
        drop(changed);
        assert_eq!(fs::read(dir.path().join("used")).unwrap(), b"another's");
        assert!(!dir.path().join("unused").exists());
    }
}
