//! Descriptors and the open file descriptions behind them.
//!
//! Invariant: a description holds its inode from open to the drop of the last descriptor, so that a
//! file without a name stays readable while it is open.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use novale_core::Ino;

use crate::files::Shared;
use crate::{Error, Result};

/// Descriptors that may be open at once.
const OPEN_MAX: usize = 1 << 20;

/// A descriptor, the lowest free number from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fd(pub(crate) u32);

impl fmt::Display for Fd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An open file: what `open` made and `dup` shares.
pub(crate) struct Description {
    pub(crate) ino: Ino,
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
    offset: Mutex<u64>,
    shared: Arc<Shared>,
}

impl Description {
    /// Takes over one hold of the inode.
    pub(crate) fn new(shared: Arc<Shared>, ino: Ino, options: &crate::OpenOptions) -> Self {
        Self {
            ino,
            read: options.read,
            write: options.write,
            append: options.append,
            offset: Mutex::new(0),
            shared,
        }
    }

    /// The position in bytes, locked as long as a sequential call runs.
    pub(crate) fn offset(&self) -> MutexGuard<'_, u64> {
        self.offset.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        // Nobody is left to be told; what can fail here, damage and a closed pool, fails everywhere.
        self.shared.fs.release(&self.shared.ctx(), self.ino, 1).unwrap_or_default();
    }
}

/// The descriptors of one [`crate::Files`].
#[derive(Default)]
pub(crate) struct Table {
    entries: RwLock<Vec<Option<Arc<Description>>>>,
}

impl Table {
    pub(crate) fn insert(&self, description: Arc<Description>) -> Result<Fd> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let index = entries.iter().position(Option::is_none).unwrap_or(entries.len());
        if index >= OPEN_MAX {
            return Err(Error::TooManyOpen(OPEN_MAX));
        }
        let fd = u32::try_from(index).map_err(|_| Error::TooManyOpen(OPEN_MAX))?;
        match entries.get_mut(index) {
            Some(entry) => *entry = Some(description),
            None => entries.push(Some(description)),
        }
        Ok(Fd(fd))
    }

    pub(crate) fn get(&self, fd: Fd) -> Result<Arc<Description>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let index = usize::try_from(fd.0).map_err(|_| Error::BadDescriptor(fd))?;
        entries.get(index).cloned().flatten().ok_or(Error::BadDescriptor(fd))
    }

    pub(crate) fn remove(&self, fd: Fd) -> Result<Arc<Description>> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let index = usize::try_from(fd.0).map_err(|_| Error::BadDescriptor(fd))?;
        entries.get_mut(index).and_then(Option::take).ok_or(Error::BadDescriptor(fd))
    }
}
