//! What programs have stored to mapped pages, and who makes it durable.
//!
//! A store to a mapping (`map::fill`) is seen by all clients at once, and is in the caches of the CPU until somebody
//! writes it back. Anyone can: the caches are one for all processes. Who syncs a file makes durable all that was
//! stored to it before, by whomever:
//! - *A client that has a file's own pages mapped, and may store to them, says so by its hold*
//!   ([`Fs::hold_to_write`]) before it does. As long as such a hold is there, who syncs writes back all pages of
//!   the file: which of them were stored to nobody knows.
//! - *A hold ends after what was stored under it is durable.* A client writes back before it gives a hold up, and
//!   who settles for a dead one, or leaves with holds of its own, before it gives these back. So without such a hold
//!   nothing is left to be done.
//!
//! Crash points. Writing back changes no byte: a crash in the middle leaves more of what was stored, or less.
//!
//! Death. A settler that dies between writing back and giving the hold back leaves the hold, and the next one writes
//! back again. Where all clients have died nobody settles: who opens the pool next reads their holds in their arena
//! ([`crate::stored_behind`]), and writes back ([`Fs::sync_left`]) before anybody can sync. One that dies in between, and takes
//! the next arena along, leaves what nobody knows of any more.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering;

use novale_arena::{Arena, ClientInfo};
use novale_layout::{Ino, PAGE, PmAddr};
use novale_pm::{Flushed, Purpose};

use crate::base::error::{Error, Result};
use crate::base::types::{Ctx, SetAttr};
use crate::fs::Fs;
use crate::op::call::{Call, OpKind};
use crate::op::lock::{Locked, regular};
use crate::seeded::{self, Bug};

/// The files to whose pages clients may store, or may have stored as long as they lived, but for one of them.
pub(crate) fn held_to_store(arena: &Arena, but: Option<ClientInfo>) -> Result<BTreeSet<Ino>> {
    let mut files = BTreeSet::new();
    for client in arena.clients().filter(|client| Some(*client) != but) {
        arena.visit_holds(&client, &mut |_, word| {
            files.extend(Fs::stored_to(word.load(Ordering::Acquire)));
        })?;
    }
    Ok(files)
}

impl Fs {
    /// Makes durable what was stored in mapped pages of a file, `pages` from `first` on; in pages that
    /// were cut off meanwhile there is nothing to keep. Sets the time of modification where `now` is
    /// later.
    ///
    /// # Errors
    /// Those of reading the inode; [`Error::Lost`] for pages in a slot that has failed, once the others are durable.
    pub fn map_flush(&self, ctx: &Ctx, ino: Ino, first: u64, pages: u64) -> Result<()> {
        let call = self.begin(OpKind::Attributes, ctx)?;
        let locked = self.lock(&call, ino)?;
        regular(locked.kind)?;
        self.write_back_pages(&call, &locked, first..first.saturating_add(pages))?;
        if locked.view.mtime_ns() < call.now_ns {
            let mtime_ns = Some(call.now_ns);
            self.set_locked(&call, &locked, &SetAttr { mtime_ns, ..SetAttr::default() }, None)?;
        }
        Ok(())
    }

    /// As [`Fs::map_flush`], by who does not know that anything was stored: times stay.
    ///
    /// # Errors
    /// As [`Fs::map_flush`].
    pub fn map_write_back(&self, ctx: &Ctx, ino: Ino, first: u64, pages: u64) -> Result<()> {
        let call = self.begin(OpKind::Attributes, ctx)?;
        let locked = self.lock(&call, ino)?;
        regular(locked.kind)?;
        self.write_back_pages(&call, &locked, first..first.saturating_add(pages))
    }

    /// Makes durable what lies in these pages of a file. Those that are lost keep no others from it.
    pub(crate) fn write_back_pages(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        pages: Range<u64>,
    ) -> Result<()> {
        let (arena, index) = (self.arena(), locked.view.index());
        let (mut pending, mut all) = (Flushed::none(), Ok(()));
        let mut next = index.next(arena, pages.start)?;
        while let Some((page, _)) = next.filter(|(page, _)| *page < pages.end) {
            let (addr, count) = index.run(arena, page, pages.end - page, PAGE)?;
            let addr = PmAddr::from_raw(addr);
            match self.checked(addr.add((count - 1) * PAGE)) {
                Ok(_) => {
                    let flushed = (count - u64::from(seeded::is_on(Bug::FlushRunShort))) * PAGE;
                    let flushed = self.pm.write_back_range(addr, flushed, Purpose::Data);
                    pending = pending.and(flushed);
                }
                Err(error) => all = all.and(Err(error)),
            }
            next = index.next(arena, page + count)?;
        }
        self.pm.fence(pending).end();
        all?;
        self.check_slots(call)
    }

    /// Makes durable what was stored to pages of a file, where a client has a hold by which it may have: another
    /// client, or with `own` this one.
    pub(crate) fn sync_stores(&self, ctx: &Ctx, ino: Ino, own: bool) -> Result<()> {
        let but = (!own).then(|| self.client.info());
        if held_to_store(self.arena(), but)?.contains(&ino) {
            self.write_back_held(ctx, ino, true)?;
        }
        Ok(())
    }

    /// The same of all files, by any client. Those that others have locked, who may be stopped, come last.
    pub(crate) fn sync_all_stores(&self, ctx: &Ctx) -> Result<()> {
        let (mut all, mut locked) = (Ok(()), Vec::new());
        for ino in held_to_store(self.arena(), None)? {
            match self.write_back_held(ctx, ino, false) {
                Ok(false) => locked.push(ino),
                written => all = all.and(written.map(drop)),
            }
        }
        for ino in locked {
            all = all.and(self.write_back_held(ctx, ino, true).map(drop));
        }
        all
    }

    /// Writes back what clients of another session may have stored to pages of these files ([`crate::stored_behind`]), as far as
    /// the files are there and can be read: who syncs the others fails by itself.
    pub fn sync_left(&self, ctx: &Ctx, files: &BTreeSet<Ino>) {
        for ino in files {
            self.write_back_held(ctx, *ino, true).unwrap_or_default();
        }
    }

    /// Writes back all pages of a file that was held so. False where somebody has it locked and this does not wait.
    fn write_back_held(&self, ctx: &Ctx, ino: Ino, waits: bool) -> Result<bool> {
        let call = self.begin(OpKind::Attributes, ctx)?;
        let locked =
            if waits { self.lock(&call, ino).map(Some) } else { self.try_lock(&call, ino) };
        match locked {
            Ok(Some(locked)) => self.write_back_pages(&call, &locked, 0..u64::MAX).map(|()| true),
            Ok(None) => Ok(false),
            // It is removed since.
            Err(Error::Stale | Error::NotFound) => Ok(true),
            Err(error) => Err(error),
        }
    }
}
