//! Which files the kernel may have mapped, of a shared file system.
//!
//! A mapping lives no longer than the open file that it was made of, whose end the kernel tells. A page
//! of a mapping is read without an owner, by the page cache, as nothing else is where files bypass it:
//! so a file is marked before its first page is handed out, no matter who maps it, and the mark goes when
//! the last open file has ended. Where the pool is mounted elsewhere too, that kernel's files are not
//! known here, and the mark stays until nobody holds the inode.
//!
//! To take the mark away the inode's lock is waited for, which a client may have that was stopped: so nothing that
//! other files need is locked then. Who opens the file meanwhile does not wait, and who maps it waits until the
//! mark is gone, to set it anew: nobody's mark is taken away behind his back. A client that sets it for a mapping to
//! come does so once more, under the lock, when the kernel has the file open: it stays then.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use novale_core::{Ctx, Fs, Ino, Result};

use crate::locked::locked;

/// What the kernel has of a file.
#[derive(Debug, Default)]
struct File {
    /// How many open files.
    open: u64,
    /// A thread takes the mark away, since the last one has ended.
    ends: bool,
    /// Another one was the last since that thread has begun.
    again: bool,
}

/// The files that the kernel has open, by their inodes.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    files: Mutex<HashMap<u64, File>>,
    /// A mark was taken away.
    end: Condvar,
}

impl OpenFiles {
    fn files(&self) -> MutexGuard<'_, HashMap<u64, File>> {
        locked(&self.files)
    }

    /// One more was opened.
    pub(crate) fn opened(&self, ino: Ino) {
        self.files().entry(ino.get()).or_default().open += 1;
    }

    /// A page is to be mapped: waits until nobody is about to take the mark away, before it is set.
    pub(crate) fn before_mapping(&self, ino: Ino) {
        let ends =
            |files: &mut HashMap<u64, File>| files.get(&ino.get()).is_some_and(|file| file.ends);
        drop(self.end.wait_while(self.files(), ends).unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether at most one is open.
    pub(crate) fn is_last(&self, ino: Ino) -> bool {
        self.files().get(&ino.get()).is_none_or(|file| file.open <= 1)
    }

    /// One has ended, and with it the mappings made of it.
    pub(crate) fn ended(&self, fs: &Fs, ctx: &Ctx, ino: Ino) -> Result<()> {
        if !self.begins_end(ino) {
            return Ok(());
        }
        loop {
            // What a kernel wanted that has no open file any more, it wants no longer.
            let is_over = || self.files().get(&ino.get()).is_none_or(|file| file.open == 0);
            let done = if fs.mounts() == 1 { fs.end_mapped(ctx, ino, is_over) } else { Ok(()) };
            if self.is_end(ino) {
                return done;
            }
        }
    }

    /// Counts one less; says whether the caller is to take the mark away.
    fn begins_end(&self, ino: Ino) -> bool {
        let mut files = self.files();
        let Some(file) = files.get_mut(&ino.get()) else { return false };
        file.open = file.open.saturating_sub(1);
        if file.open > 0 {
            return false;
        }
        file.again = file.ends;
        !std::mem::replace(&mut file.ends, true)
    }

    /// The mark is gone; says whether it needn't be taken away once more.
    fn is_end(&self, ino: Ino) -> bool {
        let mut files = self.files();
        let Some(file) = files.get_mut(&ino.get()) else { return true };
        if std::mem::take(&mut file.again) && file.open == 0 {
            return false;
        }
        file.ends = false;
        if file.open == 0 {
            files.remove(&ino.get());
        }
        self.end.notify_all();
        true
    }
}
