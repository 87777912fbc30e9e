//! Which files the kernel may have mapped, of a shared file system.
//!
//! A mapping lives no longer than the open file that it was made of, whose end the kernel tells. A page
//! of a mapping is read without an owner, by the page cache, as nothing else is where files bypass it:
//! so a file is marked before its first page is handed out, no matter who maps it, and the mark goes when
//! the last open file has ended. Where the pool is mounted elsewhere too, that kernel's files are not
//! known here, and the mark stays until nobody holds the inode.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use novale_core::{Ctx, Fs, Ino, Result};

/// How many open files the kernel has of each inode.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles(Mutex<HashMap<u64, u64>>);

impl OpenFiles {
    fn counts(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more was opened.
    pub(crate) fn opened(&self, ino: Ino) {
        *self.counts().entry(ino.get()).or_default() += 1;
    }

    /// One has ended, and with it the mappings made of it.
    pub(crate) fn ended(&self, fs: &Fs, ctx: &Ctx, ino: Ino) -> Result<()> {
        // Nobody opens the file until the mark is gone: who does, sets it anew.
        let mut counts = self.counts();
        let Some(count) = counts.get_mut(&ino.get()) else { return Ok(()) };
        *count -= 1;
        if *count > 0 {
            return Ok(());
        }
        counts.remove(&ino.get());
        // What a kernel wanted that has no open file any more, it wants no longer.
        if fs.mounts() == 1 { fs.set_mapped(ctx, ino, false) } else { Ok(()) }
    }
}
