//! Helpers over whole branches of the tree: made with all parents, removed with all that is below.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use novale_core::{Error as FsError, FileKind};

use crate::{Entry, Error, Files, Result};

impl Files {
    /// Makes a directory and every missing one above it, as `mkdir -p`.
    ///
    /// # Errors
    /// `ENOTDIR` where something else is in the way, and those of [`Files::create_dir`].
    pub fn create_dir_all(&self, path: impl AsRef<OsStr>, mode: u32) -> Result<()> {
        let path = path.as_ref().as_bytes();
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in ends.skip_while(|end| *end == 0).chain([path.len()]) {
            let Some(prefix) = path.get(..end) else {
                continue;
            };
            match self.create_dir(OsStr::from_bytes(prefix), mode) {
                Ok(_) | Err(Error::Fs(FsError::Exists)) => {}
                Err(error) => return Err(error),
            }
        }
        let there = self.stat(OsStr::from_bytes(path))?;
        if there.kind == FileKind::Directory { Ok(()) } else { Err(FsError::NotDirectory.into()) }
    }

    /// Removes a directory and everything below it, as `rm -r`; symbolic links are not followed.
    ///
    /// # Errors
    /// Those of the walk, and of the removals: what was removed before stays removed.
    pub fn remove_dir_all(&self, path: impl AsRef<OsStr>) -> Result<()> {
        let mut pending = vec![(path.as_ref().to_owned(), false)];
        while let Some((directory, emptied)) = pending.pop() {
            if emptied {
                self.remove_dir(&directory)?;
                continue;
            }
            let (below, files): (Vec<_>, Vec<_>) =
                self.read_dir(&directory)?.into_iter().partition(is_directory);
            for file in files {
                self.remove_file(join(&directory, &file.name))?;
            }
            let below = below.iter().map(|entry| (join(&directory, &entry.name), false));
            let below: Vec<_> = below.collect();
            pending.push((directory, true));
            pending.extend(below);
        }
        Ok(())
    }
}

fn is_directory(entry: &Entry) -> bool {
    entry.kind == FileKind::Directory
}

fn join(directory: &OsStr, name: &OsStr) -> OsString {
    let mut path = directory.to_owned();
    path.push("/");
    path.push(name);
    path
}
