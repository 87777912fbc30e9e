//! What the paper's workloads run on: the library in this process, or a folder of any mounted file
//! system. Both are used by path and by open file, so that they do the same work.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use novale_core::Form;
use novale_posix::{Fd, Files, OpenOptions};
use tempfile::{TempDir, TempPath};

use crate::place::{Place, Pool};

/// A file system to work on, emptied when dropped.
#[derive(Debug)]
pub(crate) enum Target {
    /// Through `novale-posix`, without a system call.
    Library {
        /// Its paths and descriptors.
        files: Files,
        /// What the caller calls it.
        name: String,
        /// The slot's file, where it has one.
        _slot: Option<TempPath>,
    },
    /// Through system calls.
    Folder {
        /// Where the folder is, and what the caller calls it.
        folder: TempDir,
        name: String,
    },
}

/// An open file of a [`Target`].
#[derive(Debug)]
pub(crate) enum Handle {
    Library(Fd),
    Folder(File),
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Open {
    /// It is new; read and written, at its end.
    New,
    /// It is there; read, and written at its end.
    Append,
    /// It is there and only read.
    Read,
    /// It is there and written at places of its own.
    Write,
}

/// A new folder in `dir`, removed with all that is in it when dropped.
pub(crate) fn new_folder(dir: &Path) -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix("novale-bench-")
        .tempdir_in(dir)
        .with_context(|| format!("no folder can be made in {}", dir.display()))
}

impl Target {
    /// The library on a pool of `bytes` bytes.
    pub(crate) fn library(place: &Place, bytes: u64, lanes: u32) -> Result<Self> {
        Ok(Self::of(place.pool(bytes, lanes, Form::Auto)?))
    }

    /// The library on this pool.
    pub(crate) fn of(pool: Pool) -> Self {
        Self::named("library", pool)
    }

    /// The library on this pool, as the caller calls it.
    pub(crate) fn named(name: &str, pool: Pool) -> Self {
        let (fs, slot) = pool.into_parts();
        Self::Library { files: Files::new(Arc::new(fs)), name: name.to_owned(), _slot: slot }
    }

    /// A new folder in `dir`.
    pub(crate) fn folder(dir: &Path) -> Result<Self> {
        let folder = new_folder(dir)?;
        Ok(Self::Folder { folder, name: dir.display().to_string() })
    }

    /// The library, where that is wanted, and a folder in each of `dirs`.
    pub(crate) fn all(library: Option<(&Place, u64, u32)>, dirs: &[PathBuf]) -> Result<Vec<Self>> {
        let library = library.map(|(place, bytes, lanes)| Self::library(place, bytes, lanes));
        library.into_iter().chain(dirs.iter().map(|dir| Self::folder(dir))).collect()
    }

    /// What a report calls it.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Library { name, .. } | Self::Folder { name, .. } => name,
        }
    }

    pub(crate) fn make_dir(&self, path: &str) -> Result<()> {
        match self {
            Self::Library { files, .. } => files.create_dir(path, 0o755).map(drop)?,
            Self::Folder { folder, .. } => std::fs::create_dir(folder.path().join(path))?,
        }
        Ok(())
    }

    pub(crate) fn remove_dir(&self, path: &str) -> Result<()> {
        match self {
            Self::Library { files, .. } => files.remove_dir(path)?,
            Self::Folder { folder, .. } => std::fs::remove_dir(folder.path().join(path))?,
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn open(&self, path: &str, how: Open) -> Result<Handle> {
        Ok(match self {
            Self::Library { files, .. } => {
                let options = OpenOptions::new();
                let options = match how {
                    Open::New => options.create_new(true).read(true).append(true).mode(0o644),
                    Open::Append => options.read(true).append(true),
                    Open::Read => options.read(true),
                    Open::Write => options.write(true),
                };
                Handle::Library(files.open(path, &options)?)
            }
            Self::Folder { folder, .. } => {
                let mut options = File::options();
                match how {
                    Open::New => options.create_new(true).read(true).append(true).mode(0o644),
                    Open::Append => options.read(true).append(true),
                    Open::Read => options.read(true),
                    Open::Write => options.write(true),
                };
                Handle::Folder(options.open(folder.path().join(path))?)
            }
        })
    }

    #[inline]
    pub(crate) fn close(&self, handle: Handle) -> Result<()> {
        match (self, handle) {
            (Self::Library { files, .. }, Handle::Library(fd)) => files.close(fd)?,
            (_, handle) => drop(handle),
        }
        Ok(())
    }

    /// Writes all of it at the end of the file.
    #[inline]
    pub(crate) fn append(&self, handle: &Handle, data: &[u8]) -> Result<()> {
        match (self, handle) {
            (Self::Library { files, .. }, Handle::Library(fd)) => files.write_all(*fd, data)?,
            (_, Handle::Folder(file)) => std::io::Write::write_all(&mut &*file, data)?,
            _ => anyhow::bail!("a file of another target"),
        }
        Ok(())
    }

    /// Writes all of it at `offset`.
    #[inline]
    pub(crate) fn write_at(&self, handle: &Handle, offset: u64, data: &[u8]) -> Result<()> {
        match (self, handle) {
            (Self::Library { files, .. }, Handle::Library(fd)) => {
                let written = files.write_at(*fd, offset, data)?;
                anyhow::ensure!(written == data.len(), "{written} of {} bytes written", data.len());
            }
            (_, Handle::Folder(file)) => file.write_all_at(data, offset)?,
            _ => anyhow::bail!("a file of another target"),
        }
        Ok(())
    }

    /// Reads what is there at `offset`; 0 at the end.
    #[inline]
    pub(crate) fn read_at(&self, handle: &Handle, offset: u64, into: &mut [u8]) -> Result<usize> {
        Ok(match (self, handle) {
            (Self::Library { files, .. }, Handle::Library(fd)) => {
                files.read_at(*fd, offset, into)?
            }
            (_, Handle::Folder(file)) => file.read_at(into, offset)?,
            _ => anyhow::bail!("a file of another target"),
        })
    }

    #[inline]
    pub(crate) fn sync(&self, handle: &Handle) -> Result<()> {
        match (self, handle) {
            (Self::Library { files, .. }, Handle::Library(fd)) => files.sync(*fd)?,
            (_, Handle::Folder(file)) => file.sync_all()?,
            _ => anyhow::bail!("a file of another target"),
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn remove(&self, path: &str) -> Result<()> {
        match self {
            Self::Library { files, .. } => files.remove_file(path)?,
            Self::Folder { folder, .. } => std::fs::remove_file(folder.path().join(path))?,
        }
        Ok(())
    }

    /// The file's length, found by its path.
    #[inline]
    pub(crate) fn size(&self, path: &str) -> Result<u64> {
        Ok(match self {
            Self::Library { files, .. } => files.stat(path)?.size,
            Self::Folder { folder, .. } => std::fs::metadata(folder.path().join(path))?.len(),
        })
    }

    /// The library's file system, where this is one.
    pub(crate) fn fs(&self) -> Option<&novale_core::Fs> {
        match self {
            Self::Library { files, .. } => Some(files.fs()),
            Self::Folder { .. } => None,
        }
    }
}
