//! Write-back: flushing what is buffered without being asked for it by who wrote it.
//!
//! A pass looks at all views for files that have something in the buffer, and flushes them, the least
//! recently written first, until so many blocks are free as are wanted; then those that have waited too
//! long. A file is flushed as a whole, so the order is of files and not of blocks; it is found in the moment
//! in which it is needed, and no list is kept up by each write, nor left behind by a death. Any client can
//! make a pass: a mount's daemon does, and one that finds no block left. Passes that run at once share the
//! work: a file that somebody has locked is passed by, and left to the next pass. Who syncs all waits for it.

use std::sync::TryLockError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use novale_layout::Ino;
use novale_policy::BufferRules;

use crate::base::error::{Error, Result};
use crate::base::types::Ctx;
use crate::fs::Fs;

/// How full the write buffer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BufferUse {
    /// Blocks of a page in use.
    pub blocks: u64,
    /// Blocks that there may be.
    pub blocks_max: u64,
    /// Pages of the pool that are reserved for them.
    pub pages_reserved: u64,
}

/// What a pass is to write back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteBack {
    /// Files in the order of their last write, until of a hundred blocks so many are free.
    pub free_percent: u64,
    /// Then files with something in the buffer since before this time, ns since 1970.
    pub since_before_ns: i64,
    /// Those too that others have locked, who may be stopped.
    pub waits: bool,
}

impl WriteBack {
    /// All that nobody has locked.
    pub(crate) const ALL: Self =
        Self { free_percent: 100, since_before_ns: i64::MAX, waits: false };
}

/// What a pass has written back.
#[derive(Debug, Clone, Default)]
pub struct WrittenBack {
    /// Files that were flushed.
    pub files: u64,
    /// Why the first one was not that could not be. It stays buffered.
    pub failure: Option<Error>,
}

impl WrittenBack {
    /// What came of flushing a file.
    fn count(&mut self, flushed: Result<bool>) {
        match flushed {
            // Others were faster, or it is removed since.
            Ok(false) | Err(Error::Stale | Error::NotFound) => {}
            Err(error) => drop(self.failure.get_or_insert(error)),
            Ok(true) => self.files += 1,
        }
    }
}

/// A file with something in the buffer.
struct BufferedFile {
    ino: Ino,
    since_ns: i64,
    written_ns: i64,
}

impl Fs {
    /// How full the write buffer is.
    ///
    /// # Errors
    /// [`Error::BadArena`]: damage.
    pub fn buffer_use(&self) -> Result<BufferUse> {
        let (blocks, blocks_max) = self.buffer.usage(self.arena())?;
        let pages_reserved = self.allocator.pages_reserved(self.arena())?;
        Ok(BufferUse { blocks, blocks_max, pages_reserved })
    }

    /// Pages that writing back takes where files are small: a file's first block has a log page beside it.
    /// What is reserved covers the longest log of each file, six pages for one block; who finds no room
    /// for that has all written back first.
    pub(crate) fn pages_awaited(&self) -> Result<u64> {
        let BufferUse { blocks, pages_reserved, .. } = self.buffer_use()?;
        Ok(pages_reserved.min(2 * blocks))
    }

    /// The rules by which the write buffer is emptied, which are the same for all clients.
    #[must_use]
    pub fn buffer_rules(&self) -> BufferRules {
        self.buffer.rules
    }

    /// Writes back what the rules say at this moment: what is too old, and more where few blocks are free.
    ///
    /// # Errors
    /// As [`Fs::write_back`].
    pub fn write_back_by_rules(&self, ctx: &Ctx) -> Result<WrittenBack> {
        let rules = self.buffer.rules;
        let is_low = !self.has_free(rules.low_percent.into())?;
        let what = WriteBack {
            free_percent: if is_low { rules.high_percent.into() } else { 0 },
            since_before_ns: ctx.now_ns.saturating_sub(i64::from(rules.age_ms) * 1_000_000),
            waits: false,
        };
        self.write_back(ctx, what)
    }

    /// Makes all durable that was written to any file, or stored to pages of it that are mapped, by any client.
    ///
    /// # Errors
    /// Why the first file was not that could not be flushed; the others are.
    pub fn sync_all(&self, ctx: &Ctx) -> Result<()> {
        let WrittenBack { failure, .. } =
            self.write_back(ctx, WriteBack { waits: true, ..WriteBack::ALL })?;
        let stored = if self.options.read_only { Ok(()) } else { self.sync_all_stores(ctx) };
        failure.map_or(stored, Err)
    }

    /// Writes back what is old, and what others need the room of.
    ///
    /// # Errors
    /// [`Error::BadArena`]: damage.
    pub fn write_back(&self, ctx: &Ctx, what: WriteBack) -> Result<WrittenBack> {
        let mut written = WrittenBack::default();
        self.check_open()?;
        if self.options.read_only {
            return Ok(written);
        }
        let mut files = self.buffered_files()?;
        files.sort_unstable_by_key(|file| (file.written_ns, file.ino));
        // A round begins and ends in the same shard of views.
        files.dedup_by_key(|file| file.ino);
        let mut locked = Vec::new();
        for file in files {
            if self.is_due(&file, what)? {
                match self.flush_early(ctx, file.ino, false) {
                    Ok(false) => locked.push(file),
                    flushed => written.count(flushed),
                }
            }
        }
        for file in locked.into_iter().filter(|_| what.waits) {
            if self.is_due(&file, what)? {
                written.count(self.flush_early(ctx, file.ino, true));
            }
        }
        Ok(written)
    }

    /// Whether a pass has to write this file back.
    fn is_due(&self, file: &BufferedFile, what: WriteBack) -> Result<bool> {
        Ok(file.since_ns < what.since_before_ns || !self.has_free(what.free_percent)?)
    }

    /// Whether of a hundred blocks so many are free.
    fn has_free(&self, percent: u64) -> Result<bool> {
        let BufferUse { blocks, blocks_max, .. } = self.buffer_use()?;
        Ok(blocks_max.saturating_sub(blocks) * 100 >= blocks_max * percent)
    }

    fn buffered_files(&self) -> Result<Vec<BufferedFile>> {
        let mut files = Vec::new();
        self.views.visit_some(self.arena(), usize::MAX, &mut |view| {
            if view.is_buffered() {
                let (since_ns, written_ns) = view.buffer_times();
                files.push(BufferedFile { ino: view.ino(), since_ns, written_ns });
            }
            false
        })?;
        Ok(files)
    }

    /// Makes room for so many blocks in the buffer, for a client that has no lock and finds none: one thread
    /// as much as the one that writes back does, others meanwhile until there are not few any more.
    pub(crate) fn make_room_in_buffer(&self, ctx: &Ctx, blocks: u64) -> Result<()> {
        let first = match self.writing_back.try_lock() {
            Ok(first) => Some(first),
            Err(TryLockError::Poisoned(first)) => Some(first.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if !self.buffer.has_room(self.arena(), blocks)? {
            let (_, blocks_max) = self.buffer.usage(self.arena())?;
            let rules = self.buffer.rules;
            let wanted = if first.is_some() { rules.high_percent } else { rules.low_percent };
            let free_percent = (blocks * 100).div_ceil(blocks_max.max(1)).max(wanted.into());
            let what = WriteBack { free_percent, since_before_ns: i64::MIN, waits: false };
            self.write_back(ctx, what)?;
        }
        Ok(())
    }

    /// Wakes who writes back, where few blocks are left.
    pub(crate) fn tell_if_low(&self) -> Result<()> {
        if !self.has_free(self.buffer.rules.low_percent.into())? {
            let low = self.buffer.low_word(self.arena())?;
            if low.load(Ordering::Relaxed) & 1 == 0 {
                low.fetch_or(1, Ordering::AcqRel);
                novale_arena::wake_all(low);
            }
        }
        Ok(())
    }

    /// Sleeps until few blocks are left, `timeout` at most: for who calls [`Fs::write_back`] then.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::BadArena`]: damage.
    pub fn wait_for_low_buffer(&self, timeout: Duration) -> Result<()> {
        self.check_open()?;
        let low = self.buffer.low_word(self.arena())?;
        // From here on somebody sets it again.
        let now = low.fetch_and(!1, Ordering::AcqRel);
        if now & 1 == 0 && self.has_free(self.buffer.rules.low_percent.into())? {
            novale_arena::sleep_while(low, 0, timeout);
        }
        Ok(())
    }
}
