//! Files that a kernel has mapped, through a mount.
//!
//! What a program stores in such a mapping is in the kernel's pages first, and what others write to the
//! pool is not in them. So from before a page is mapped until the last mapping is gone, a client that
//! would read or change the file's data without that kernel is refused, where it has asked for that
//! ([`Fs::refuse_mapped`]), and makes the call through the mount instead.
//!
//! The mark is in the inode's view and changes under its lock, with its counter odd: a reader that
//! was not refused had read before. It is nothing that a crash could leave behind: it goes with the
//! last hold, and with the arena.
//!
//! A kernel that is to map a file whose own pages programs have mapped (`map::fill`) comes first, where
//! they can give way: [`Fs::ask_to_map`] says in the view that it is wanted and wakes them; from then on
//! nobody takes a new hold of its pages, and with the last one that is given up the kernel's mark can be
//! set. One of them may find that it can't give way: it says so ([`Fs::map_hold_staying`]), and the kernel is
//! refused. Who asked, and dies or loses patience, leaves the word as it is: the next mapping is a kernel's,
//! which clears it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use novale_layout::{FileKind, Ino};

use crate::base::error::{Error, Result};
use crate::base::types::Ctx;
use crate::fs::Fs;
use crate::inode::view::View;
use crate::inode::words::{FIXED, KEPT, KNOWN, MAPPED, WANTED};
use crate::op::call::{Call, OpKind};
use crate::op::lock::{Locked, regular};

impl View<'_> {
    /// Notes that a kernel may know the inode; under the lock.
    pub(crate) fn set_known(&self) {
        let word = self.kind_word().load(Ordering::Relaxed);
        if word & KNOWN == 0 {
            self.kind_word().store(word | KNOWN, Ordering::Release);
        }
    }

    /// Whether a kernel has the file mapped.
    pub(crate) fn is_mapped(&self) -> bool {
        self.kind_word().load(Ordering::Relaxed) & MAPPED != 0
    }

    /// Whether a kernel is to map the file, or has it mapped: nobody else begins to then.
    pub(crate) fn is_kernels(&self) -> bool {
        self.kind_word().load(Ordering::Relaxed) & (MAPPED | WANTED) != 0
    }

    /// Whether a kernel waits for those who have the file's own pages mapped.
    pub(crate) fn is_wanted(&self) -> bool {
        self.kind_word().load(Ordering::Relaxed) & WANTED != 0
    }

    /// Notes that a mapping of the file's own pages begins, and whether it can give way; under the lock,
    /// before it counts. Where it is the only one, what was noted before is of nobody's. One that can't is waited for
    /// by nobody.
    pub(crate) fn note_fixed(&self, fixed: bool) {
        let word = self.kind_word().load(Ordering::Relaxed);
        let others = if self.is_dax() { word } else { word & !FIXED };
        let noted = if fixed { others & !WANTED | FIXED } else { others };
        if noted != word {
            self.kind_word().store(noted, Ordering::Release);
        }
    }

    /// Says whether a kernel has the file mapped; under the lock, with the counter odd.
    fn set_mapped(&self, mapped: bool) {
        let word = self.kind_word().load(Ordering::Relaxed) & !(MAPPED | WANTED);
        self.kind_word().store(if mapped { word | MAPPED } else { word }, Ordering::Release);
    }
}

impl Fs {
    /// From now on calls on data of a file that a kernel has mapped fail with [`Error::Mapped`]. For a
    /// client that can make them through that kernel; the kernel's own must not ask for it.
    pub fn refuse_mapped(&self) {
        self.refuses_mapped.store(true, Ordering::Relaxed);
    }

    /// Says that a kernel maps a file that the caller holds: before it does, and, with `false`, when
    /// nobody has it mapped any more.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what is no regular file; [`Error::Stale`]; [`Error::Pinned`] where a
    /// program has the file's own pages mapped ([`Fs::map_hold`]).
    pub fn set_mapped(&self, ctx: &Ctx, ino: Ino, mapped: bool) -> Result<()> {
        let is_so = self.read_view(ctx.hint, ino, |view, kind| {
            regular(kind).map(|()| view.is_mapped() == mapped && !view.is_wanted())
        })?;
        if is_so { Ok(()) } else { self.mark(ctx, ino, || Some(mapped)) }
    }

    /// Says once more that a kernel maps a file, which it has open by now: one that took the file's last opening for
    /// gone ([`Fs::end_mapped`]) may have taken that back, or be about to. It can't any more.
    ///
    /// # Errors
    /// As [`Fs::set_mapped`].
    pub fn keep_mapped(&self, ctx: &Ctx, ino: Ino) -> Result<()> {
        self.read_view(ctx.hint, ino, |_, kind| regular(kind))?;
        self.mark(ctx, ino, || Some(true))
    }

    /// As [`Fs::set_mapped`] with `false`, unless the file is open again. `is_over` is asked under the file's lock.
    ///
    /// # Errors
    /// As there.
    pub fn end_mapped(&self, ctx: &Ctx, ino: Ino, is_over: impl FnOnce() -> bool) -> Result<()> {
        let is_so = self.read_view(ctx.hint, ino, |view, kind| {
            regular(kind).map(|()| !view.is_mapped() && !view.is_wanted())
        })?;
        if is_so { Ok(()) } else { self.mark(ctx, ino, || is_over().then_some(false)) }
    }

    /// Says under the file's lock whether a kernel has it mapped, where that is known.
    fn mark(&self, ctx: &Ctx, ino: Ino, mapped: impl FnOnce() -> Option<bool>) -> Result<()> {
        let call = self.begin_read(OpKind::Load, ctx)?;
        let locked = self.lock(&call, ino)?;
        self.flush(&call, &locked)?;
        let Some(mapped) = mapped() else { return Ok(()) };
        if mapped && locked.view.is_dax() {
            return Err(Error::Pinned);
        }
        if locked.view.is_mapped() != mapped || locked.view.is_wanted() {
            locked.view.publish(|| locked.view.set_mapped(mapped));
        }
        Ok(())
    }

    /// As [`Fs::set_mapped`], and where programs have the file's own pages mapped has them give way:
    /// false until the last one has, for which [`Fs::wait_for_mappings`] waits.
    ///
    /// # Errors
    /// As [`Fs::set_mapped`]; [`Error::Pinned`] where one of them can't give way.
    pub fn ask_to_map(&self, ctx: &Ctx, ino: Ino) -> Result<bool> {
        match self.set_mapped(ctx, ino, true) {
            Err(Error::Pinned) => {}
            set => return set.map(|()| true),
        }
        let call = self.begin_read(OpKind::Load, ctx)?;
        let locked = self.lock(&call, ino)?;
        self.flush(&call, &locked)?;
        let word = locked.view.kind_word().load(Ordering::Relaxed);
        if !locked.view.is_dax() {
            locked.view.publish(|| locked.view.set_mapped(true));
            return Ok(true);
        }
        if word & FIXED != 0 {
            return Err(Error::Pinned);
        }
        locked.view.kind_word().store(word | WANTED, Ordering::Release);
        // Also where it was wanted before: who has said so may have died after that.
        self.arena().next_mappings_turn();
        Ok(false)
    }

    /// What has become of [`Fs::ask_to_map`], asking nobody again: true where the kernel maps the file now, false where
    /// it waits for others still.
    ///
    /// # Errors
    /// As there: one who was to give way may have found that it can't ([`Fs::map_hold_staying`]).
    pub fn has_way_to_map(&self, ctx: &Ctx, ino: Ino) -> Result<bool> {
        match self.set_mapped(ctx, ino, true) {
            Err(Error::Pinned) => {}
            set => return set.map(|()| true),
        }
        let is_fixed = self.read_view(ctx.hint, ino, |view, _| {
            Ok(view.is_dax() && view.kind_word().load(Ordering::Relaxed) & FIXED != 0)
        })?;
        if is_fixed { Err(Error::Pinned) } else { Ok(false) }
    }

    /// Whether a kernel waits for those to give way who have the file's own pages mapped.
    ///
    /// # Errors
    /// Those of reading the inode.
    pub fn is_wanted(&self, ctx: &Ctx, ino: Ino) -> Result<bool> {
        self.read_view(ctx.hint, ino, |view, _| Ok(view.is_wanted()))
    }

    /// What [`Fs::wait_for_mappings`] is to be told, before one looks at what one waits for.
    #[must_use]
    pub fn mappings_turn(&self) -> u32 {
        self.arena().mappings_turn()
    }

    /// Sleeps until a file is wanted, or the last who had one's own pages mapped has given way, since
    /// `turn`; `timeout` at most.
    pub fn wait_for_mappings(&self, turn: u32, timeout: Duration) {
        self.arena().wait_for_mappings(turn, timeout);
    }

    /// Wakes all who sleep in [`Fs::wait_for_mappings`]: one of them is to look at something else.
    pub fn wake_for_mappings(&self) {
        self.arena().next_mappings_turn();
    }

    /// Whether a kernel has a file mapped.
    ///
    /// # Errors
    /// As [`Fs::set_mapped`].
    pub fn is_mapped(&self, ctx: &Ctx, ino: Ino) -> Result<bool> {
        self.read_view(ctx.hint, ino, |view, kind| regular(kind).map(|()| view.is_mapped()))
    }

    /// Refuses what is no regular file, and what has to go through the kernel.
    #[inline]
    pub(crate) fn check_data(&self, view: &View<'_>, kind: FileKind) -> Result<()> {
        regular(kind)?;
        if view.is_mapped() && self.refuses_mapped.load(Ordering::Relaxed) {
            return Err(Error::Mapped);
        }
        Ok(())
    }

    pub(crate) fn check_file(&self, call: &Call<'_>, ino: Ino) -> Result<()> {
        regular(self.read_view(call, ino, |_, kind| Ok(kind))?)
    }

    /// Locks a regular file, and flushes it. It was one before, but without the lock: a number that was
    /// removed meanwhile may be a directory's by now, and its index would get file pages.
    pub(crate) fn lock_file<'a>(&'a self, call: &'a Call<'_>, ino: Ino) -> Result<Locked<'a>> {
        let locked = self.lock(call, ino)?;
        self.check_data(&locked.view, locked.kind)?;
        self.flush(call, &locked)?;
        Ok(locked)
    }

    /// Whether a kernel may know an inode. What it has to say of one that it does not know, such as that it is a
    /// mount point, nobody need ask. One that it knows it keeps by each name that it has met, until it looks for that
    /// name again: so a client that takes a name away without it makes it look, or the space comes back, when the
    /// last name is gone, only when the kernel is short of memory.
    ///
    /// # Errors
    /// Those of reading the inode, but for one that is gone.
    pub fn is_known_to_kernel(&self, ctx: &Ctx, ino: Ino) -> Result<bool> {
        // What is held has a view: one that is gone for good is not to be read again.
        let view = self.views.find(self.arena(), ino)?;
        if view.is_none_or(|view| view.kind().is_none()) {
            return Ok(false);
        }
        let known = self.read_view(ctx.hint, ino, |view, _| {
            Ok(view.kind_word().load(Ordering::Relaxed) & KNOWN != 0)
        });
        match known {
            Err(Error::Stale | Error::NotFound) => Ok(false),
            known => known,
        }
    }

    /// Nobody holds an inode any more: no kernel knows it, nor can have it mapped.
    pub(crate) fn unheld(view: &View<'_>) {
        let word = view.kind_word().load(Ordering::Relaxed);
        if word & KEPT != 0 {
            view.publish(|| view.kind_word().store(word & !KEPT, Ordering::Release));
        }
    }
}
