//! Descriptors: numbers for open files, the lowest free one first.

use std::fmt;
use std::sync::{PoisonError, RwLock};

use crate::{Error, File, Result};

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

/// The descriptors of one [`crate::Files`].
#[derive(Default)]
pub(crate) struct Table {
    entries: RwLock<Vec<Option<File>>>,
}

impl Table {
    pub(crate) fn insert(&self, file: File) -> Result<Fd> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let index = entries.iter().position(Option::is_none).unwrap_or(entries.len());
        if index >= OPEN_MAX {
            return Err(Error::TooManyOpen(OPEN_MAX));
        }
        let fd = u32::try_from(index).map_err(|_| Error::TooManyOpen(OPEN_MAX))?;
        match entries.get_mut(index) {
            Some(entry) => *entry = Some(file),
            None => entries.push(Some(file)),
        }
        Ok(Fd(fd))
    }

    pub(crate) fn get(&self, fd: Fd) -> Result<File> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let index = usize::try_from(fd.0).map_err(|_| Error::BadDescriptor(fd))?;
        entries.get(index).cloned().flatten().ok_or(Error::BadDescriptor(fd))
    }

    pub(crate) fn remove(&self, fd: Fd) -> Result<File> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let index = usize::try_from(fd.0).map_err(|_| Error::BadDescriptor(fd))?;
        entries.get_mut(index).and_then(Option::take).ok_or(Error::BadDescriptor(fd))
    }
}
