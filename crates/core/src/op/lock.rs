//! Locks of inodes, and reads of views without them.
//!
//! A writer locks the view of an inode and makes sure that it is loaded. A reader takes no lock: it reads
//! the view, and again where somebody published meanwhile; after some tries it takes the lock.

use arrayvec::ArrayVec;
use novale_arena::LockGuard;
use novale_layout::{FileKind, Ino};

use crate::base::error::{Error, Result};
use crate::base::types::{Ctx, Node};
use crate::fs::Fs;
use crate::inode::media;
use crate::inode::state::{InodePlace, LogId, State};
use crate::inode::view::View;
use crate::log::Appended;
use crate::op::call::{By, Call, OpKind};
use crate::op::load;
use crate::seeded::{self, Bug};

/// Inodes that an operation locks at once.
const LOCKED_MAX: usize = 4;

/// How often a reader tries without the lock before it takes it.
const READ_TRIES: usize = 8;

/// How often a view is sought that others drop each time before it is locked.
const LOCK_TRIES: usize = 1 << 16;

/// An inode whose lock is held.
pub(crate) struct Locked<'a> {
    pub(crate) view: View<'a>,
    pub(crate) place: InodePlace,
    pub(crate) id: LogId,
    pub(crate) kind: FileKind,
    pub(crate) session: u32,
    pub(crate) _guard: LockGuard<'a>,
}

/// Refuses what is no regular file.
pub(crate) fn regular(kind: FileKind) -> Result<()> {
    if kind == FileKind::File {
        Ok(())
    } else if kind == FileKind::Directory {
        Err(Error::IsDirectory)
    } else {
        Err(Error::Invalid("not a regular file"))
    }
}

impl Fs {
    pub(crate) fn log_id(&self, ino: Ino, generation: u32) -> LogId {
        LogId::new(self.seed, ino, generation)
    }

    /// Where an inode lies on media.
    pub(crate) fn place(&self, ino: Ino) -> Result<InodePlace> {
        let addr = self.inodes.addr(self.arena(), ino)?;
        let addr = addr.ok_or_else(|| self.unrecovered.no_place(ino))?;
        Ok(self.unrecovered.place(InodePlace::new(self.seed, ino, addr)))
    }

    /// Locks an inode in use and makes sure that its view is loaded.
    pub(crate) fn lock<'a>(&'a self, call: &'a Call<'_>, ino: Ino) -> Result<Locked<'a>> {
        let found = self.views.find(self.arena(), ino)?;
        self.lock_found(call, ino, found)
    }

    /// As [`Fs::lock`], of one use of the number.
    pub(crate) fn lock_node<'a>(&'a self, call: &'a Call<'_>, node: Node) -> Result<Locked<'a>> {
        let locked = self.lock(call, node.ino)?;
        locked.check_is(node)?;
        Ok(locked)
    }

    /// As [`Fs::lock`], with the view that the inode was found to have.
    pub(crate) fn lock_found<'a>(
        &'a self,
        call: &'a Call<'_>,
        ino: Ino,
        found: Option<View<'a>>,
    ) -> Result<Locked<'a>> {
        let (view, guard) = self.lock_view(call, ino, found, false)?;
        self.loaded(call, ino, view, guard)
    }

    /// As [`Fs::lock`], of an inode that has a view; none where somebody has it locked.
    pub(crate) fn try_lock<'a>(
        &'a self,
        call: &'a Call<'_>,
        ino: Ino,
    ) -> Result<Option<Locked<'a>>> {
        let Some(view) = self.views.find(self.arena(), ino)? else { return Ok(None) };
        match call.op.try_lock(view.lock_off())? {
            Some(guard) if view.is_of(ino) => self.loaded(call, ino, view, guard).map(Some),
            _ => Ok(None),
        }
    }

    /// An inode whose view is locked, made sure to be loaded.
    pub(crate) fn loaded<'a>(
        &'a self,
        call: &Call<'_>,
        ino: Ino,
        view: View<'a>,
        guard: LockGuard<'a>,
    ) -> Result<Locked<'a>> {
        if view.place().is_null() {
            view.note_place(self.place(ino)?.addr);
        }
        let place = self.unrecovered.place(InodePlace::new(self.seed, ino, view.place()));
        if view.kind().is_none() {
            self.unrecovered.check(ino)?;
            let id_of = |generation| self.log_id(ino, generation);
            let loaded =
                load::load(&self.pm, self.arena(), &view, &place, &self.unrecovered, &id_of);
            if let Err(lost) = self.check_slots(call) {
                // Of zeros.
                load::forget(self.arena(), &view)?;
                return Err(lost);
            }
            loaded?;
        }
        let Some(kind) = view.kind() else { return Err(Error::Stale) };
        if call.kind.counts_on() {
            media::check_numbers(ino, &place, view.op_seq(), view.tail_page_seq())?;
        }
        let id = LogId::in_place(ino, view.generation(), &place);
        Ok(Locked { view, place, id, kind, session: self.session, _guard: guard })
    }

    /// Locks the view of an inode, made where there is none, if the number has a place, which the
    /// caller may know already. One that was dropped before it was locked is sought again.
    pub(crate) fn lock_view<'a>(
        &'a self,
        call: &'a Call<'_>,
        ino: Ino,
        mut found: Option<View<'a>>,
        has_place: bool,
    ) -> Result<(View<'a>, LockGuard<'a>)> {
        for _ in 0..LOCK_TRIES {
            let view = match found.take() {
                Some(view) => view,
                None => self.find_or_make_view(call, ino, has_place)?,
            };
            let guard = call.op.lock_while(view.lock_off(), &|| view.is_of(ino))?;
            if let Some(guard) = guard
                && view.is_of(ino)
            {
                return Ok((view, guard));
            }
        }
        Err(Error::BadArena(format!("the view of inode {} is dropped all the time", ino.get())))
    }

    pub(crate) fn find_or_make_view(
        &self,
        call: &Call<'_>,
        ino: Ino,
        has_place: bool,
    ) -> Result<View<'_>> {
        if let Some(view) = self.views.find(self.arena(), ino)? {
            return Ok(view);
        }
        // A number without a place gets no view.
        if !has_place {
            self.place(ino)?;
        }
        self.views.find_or_make(self.arena(), &call.op, ino)
    }

    /// Locks several inodes in the order of their numbers; the result is in the order asked for,
    /// a number given twice being locked once and left out the second time.
    pub(crate) fn lock_all<'a>(
        &'a self,
        call: &'a Call<'_>,
        inos: &[Ino],
    ) -> Result<ArrayVec<Locked<'a>, LOCKED_MAX>> {
        let mut order: ArrayVec<Ino, LOCKED_MAX> = inos.iter().copied().collect();
        order.sort_unstable();
        let mut locks: ArrayVec<Locked<'a>, LOCKED_MAX> = ArrayVec::new();
        for ino in order {
            if locks.last().is_none_or(|last| last.id.ino != ino) {
                locks.push(self.lock(call, ino)?);
            }
        }
        Ok(locks)
    }

    /// Reads an inode's view without its lock: `read` may see it in the middle of a change, and
    /// runs again then; after some tries it runs under the lock.
    ///
    /// An operation hands itself in, and its record serves for the lock: with a second one each, as
    /// many callers as there are records would wait for each other for ever.
    pub(crate) fn read_view<'c, T>(
        &self,
        by: impl Into<By<'c>>,
        ino: Ino,
        mut read: impl FnMut(&View<'_>, FileKind) -> Result<T>,
    ) -> Result<T> {
        if let Some(result) = self.read_unlocked(ino, &mut read)? {
            return Ok(result);
        }
        match by.into() {
            By::Call(call) => {
                let locked = self.lock(call, ino)?;
                let found = read(&locked.view, locked.kind);
                self.check_slots(call)?;
                found
            }
            By::Hint(hint) => self.with_memory(|| {
                let call = self.begin_read(OpKind::Load, &Ctx { now_ns: 0, hint })?;
                let locked = self.lock(&call, ino)?;
                let found = read(&locked.view, locked.kind);
                self.check_slots(&call)?;
                found
            }),
        }
    }

    /// As [`Fs::read_view`], of one use of the number: what is read is of it alone.
    pub(crate) fn read_node<'c, T>(
        &self,
        by: impl Into<By<'c>>,
        node: Node,
        mut read: impl FnMut(&View<'_>, FileKind) -> Result<T>,
    ) -> Result<T> {
        self.read_view(by, node.ino, |view, kind| {
            if node.is_of(view.generation()) { read(view, kind) } else { Err(Error::Stale) }
        })
    }

    /// Reads an inode's view without its lock; `None` where that did not succeed in some tries, or
    /// the view is not loaded.
    pub(crate) fn read_unlocked<T>(
        &self,
        ino: Ino,
        read: &mut impl FnMut(&View<'_>, FileKind) -> Result<T>,
    ) -> Result<Option<T>> {
        self.check_open()?;
        let Some(view) = self.views.find(self.arena(), ino)? else { return Ok(None) };
        self.read_of(&view, ino, read)
    }

    /// As [`Fs::read_unlocked`], of the view itself.
    pub(crate) fn read_of<T>(
        &self,
        view: &View<'_>,
        ino: Ino,
        read: &mut impl FnMut(&View<'_>, FileKind) -> Result<T>,
    ) -> Result<Option<T>> {
        for _ in 0..READ_TRIES {
            let Some(begun) = view.read_begin() else {
                std::hint::spin_loop();
                continue;
            };
            let Some(kind) = view.kind().filter(|_| view.ino() == ino) else { break };
            let health = self.pm.health();
            let result = read(view, kind);
            if view.read_valid(begun) && self.pm.health() == health {
                if result.is_err() && self.has_slots_to_meet() {
                    // It may lead to one of them, which an operation meets as it begins.
                    break;
                }
                return result.map(Some);
            }
        }
        Ok(None)
    }
}

impl Locked<'_> {
    /// Refuses another use of the inode's number.
    pub(crate) fn check_is(&self, node: Node) -> Result<()> {
        if node.is_of(self.id.generation) { Ok(()) } else { Err(Error::Stale) }
    }

    /// The state that the next commit goes on from, under the next op_seq.
    pub(crate) fn next_state(&self) -> State {
        let state = self.view.state();
        if seeded::is_on(Bug::SameNumber) && state.op_seq > 0 {
            return state;
        }
        State { op_seq: state.next_op_seq(self.session), flags: 0, ..state }
    }

    /// Takes over the log's new ends.
    pub(crate) fn apply_log(next: &mut State, appended: &Appended) {
        next.log_head = appended.head;
        next.log_tail = appended.tail;
    }
}
