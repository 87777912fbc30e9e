//! The file system object: what its operations share.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use arrayvec::ArrayVec;
use novale_arena::{Arena, Client, LockGuard, Off, Op, Phase};
use novale_layout::{
    FileKind, INODES_PER_PAGE, Ino, JournalKind, LOG_ENTRY_LINES, PAGE, PmAddr, RoFeature, Seed,
};
use novale_pm::{Counters, Durable, Flushed, Pm};
use novale_policy::{Auto, Form, UpdatePolicy};

use crate::base::error::{Error, Result};
use crate::base::extent::{Extent, Extents};
use crate::base::types::{Attr, Ctx, GcCounters, IndexMemory, Node, OpenReport, StatFs};
use crate::inode::media;
use crate::inode::numbers::Inodes;
use crate::inode::state::{InodePlace, LogId, State};
use crate::inode::view::{View, Views};
use crate::inode::words::DAX_HOLD;
use crate::log::Appended;
use crate::op::commit::{Part, Rest};
use crate::op::quota::{Change, Counted, Projects};
use crate::op::unrecovered::Unrecovered;
use crate::op::xattr_set::Xattrs;
use crate::op::{commit, load};
use crate::pool::Pool;
use crate::seeded;
use crate::seeded::Bug;
use crate::space::lane::Lane;
use crate::space::{Allocator, Need, PageSource};

/// When reads change the access time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Atime {
    /// When it is older than the last change, or than a day.
    #[default]
    Relatime,
    /// Never.
    Noatime,
    /// At every read.
    Strict,
}

impl Atime {
    /// The one with this number.
    pub(crate) fn numbered(number: u8) -> Self {
        match number {
            _ if number == Self::Noatime as u8 => Self::Noatime,
            _ if number == Self::Strict as u8 => Self::Strict,
            _ => Self::Relatime,
        }
    }
}

/// How to open a pool.
#[derive(Debug, Clone, Copy)]
pub struct OpenOptions {
    /// Change nothing on media, not even by recovery: a pool that was not closed clean is shown as
    /// recovery would leave it, without what is damaged.
    pub read_only: bool,
    /// When reads change the access time.
    pub atime: Atime,
    /// The commit form.
    pub form: Form,
    /// Time of opening, ns since 1970.
    pub now_ns: i64,
    /// Bytes of the arena beyond which the views of inodes that nobody has used lately are dropped,
    /// by each operation that begins; three quarters of the arena where nothing is said. With 0 each
    /// operation drops what it can.
    pub index_bytes: Option<u64>,
    /// New inodes have nothing of their directory's default ACL, as if there were none.
    pub ignore_default_acls: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            atime: Atime::Relatime,
            form: Form::Auto,
            now_ns: 0,
            index_bytes: None,
            ignore_default_acls: false,
        }
    }
}

/// What an operation record says that its operation is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OpKind {
    Load = 1,
    Write,
    Truncate,
    Attributes,
    Create,
    Link,
    Unlink,
    Rename,
    Release,
    Atime,
    Manage,
    Settle,
}

impl OpKind {
    /// Whether it may give its inodes new numbers.
    fn counts_on(self) -> bool {
        match self {
            Self::Write
            | Self::Truncate
            | Self::Attributes
            | Self::Create
            | Self::Link
            | Self::Unlink
            | Self::Rename => true,
            Self::Load | Self::Release | Self::Atime | Self::Manage | Self::Settle => false,
        }
    }
}

/// A Novale file system, open on a pool.
///
/// All methods may be called from many threads at once. In strict mode (the only one so far) each
/// is durable when it returns, and all or nothing after a crash.
pub struct Fs {
    pub(crate) pm: Pm,
    pub(crate) client: Client,
    pub(crate) allocator: Allocator,
    pub(crate) inodes: Inodes,
    pub(crate) views: Views,
    pub(crate) projects: Projects,
    pub(crate) rename_lock: Off,
    pub(crate) seed: Seed,
    pub(crate) session: u32,
    pub(crate) options: OpenOptions,
    pub(crate) policy: Box<dyn UpdatePolicy>,
    pub(crate) report: OpenReport,
    pub(crate) unrecovered: Unrecovered,
    pub(crate) gc: GcCounters,
    pub(crate) closed: AtomicBool,
    /// An [`Atime`]; at first that of the options.
    pub(crate) atime: AtomicU8,
    /// The features of the superblock that this client knows to be durable there.
    pub(crate) features: AtomicU64,
    /// Whether data of files that a kernel has mapped is refused.
    pub(crate) refuses_mapped: AtomicBool,
    /// How many inodes had stayed without names when room was last waited for in vain.
    pub(crate) room_in_vain: AtomicU64,
    /// Held by the thread that settles for dead clients.
    pub(crate) settling: Mutex<()>,
}

impl std::fmt::Debug for Fs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fs")
            .field("session", &self.session)
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

/// A running operation: its record, and what the caller handed in.
pub(crate) struct Call<'a> {
    pub(crate) op: Op<'a>,
    pub(crate) kind: OpKind,
    pub(crate) now_ns: i64,
    pub(crate) hint: u32,
}

/// Who reads: an operation, or a caller without one, by its hint.
#[derive(Clone, Copy)]
pub(crate) enum By<'a> {
    Call(&'a Call<'a>),
    Hint(u32),
}

impl<'a> From<&'a Call<'_>> for By<'a> {
    fn from(call: &'a Call<'_>) -> Self {
        Self::Call(call)
    }
}

impl From<u32> for By<'_> {
    fn from(hint: u32) -> Self {
        Self::Hint(hint)
    }
}

/// An inode whose lock is held.
pub(crate) struct Locked<'a> {
    pub(crate) view: View<'a>,
    pub(crate) place: InodePlace,
    pub(crate) id: LogId,
    pub(crate) kind: FileKind,
    session: u32,
    _guard: LockGuard<'a>,
}

/// Pages freed at once of which a death may lose track, until the pool is opened again.
const UNNOTED_PAGES_MAX: u64 = 64;

/// Inodes that an operation locks at once.
const LOCKED_MAX: usize = 4;

/// How often a reader tries without the lock before it takes it.
const READ_TRIES: usize = 8;

/// How often a view is sought that others drop each time before it is locked.
const LOCK_TRIES: usize = 1 << 16;

impl Fs {
    pub(crate) fn default_policy() -> Box<dyn UpdatePolicy> {
        Box::new(Auto)
    }

    pub(crate) fn arena(&self) -> &Arena {
        self.client.arena()
    }

    /// Starts an operation that may change the pool.
    pub(crate) fn begin(&self, kind: OpKind, ctx: &Ctx) -> Result<Call<'_>> {
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        self.begin_read(kind, ctx)
    }

    /// Starts an operation that only needs locks.
    pub(crate) fn begin_read(&self, kind: OpKind, ctx: &Ctx) -> Result<Call<'_>> {
        self.check_open()?;
        if self.arena().pressure() > 0 {
            self.forget_some(ctx.hint);
        }
        Ok(self.call(kind, ctx))
    }

    /// An operation whether the file system is open or being closed.
    pub(crate) fn call(&self, kind: OpKind, ctx: &Ctx) -> Call<'_> {
        let mut op = self.client.op(kind as u32, ctx.hint);
        op.set_settler(self);
        Call { op, kind, now_ns: ctx.now_ns, hint: ctx.hint }
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    pub(crate) fn env<'a>(&'a self, call: &'a Call<'a>) -> PageSource<'a> {
        PageSource {
            arena: self.arena(),
            allocator: &self.allocator,
            op: &call.op,
            hint: call.hint,
        }
    }

    /// Makes sure that the superblock says of a feature that it is used, durably: before the first
    /// commit that uses it, and before the operation has any lock.
    pub(crate) fn use_feature(&self, ctx: &Ctx, feature: RoFeature) -> Result<()> {
        if self.features.load(Ordering::Relaxed) & feature.bit() != 0 {
            return Ok(());
        }
        let call = self.begin(OpKind::Manage, ctx)?;
        // Clients do it one after the other.
        let _root = self.lock(&call, Ino::ROOT)?;
        Pool::read(&self.pm)?.set_feature(&self.pm, feature);
        self.features.fetch_or(feature.bit(), Ordering::Relaxed);
        Ok(())
    }

    /// Exactly `pages` new pages, which the caller is going to store to.
    pub(crate) fn take_pages(&self, call: &Call<'_>, pages: u64, need: Need) -> Result<Extents> {
        let extents = self.allocator.take_all(self.arena(), &call.op, call.hint, pages, need)?;
        for extent in extents.iter() {
            self.pm.expect_stores(extent.addr, extent.pages * PAGE);
        }
        Ok(extents)
    }

    /// Frees pages that nothing durable names any more.
    pub(crate) fn give(&self, call: &Call<'_>, extents: &Extents) -> Result<()> {
        // One page goes by a single store: there is nothing to be gone on with.
        call.op.clear_notes();
        if extents.is_empty() || self.allocator.keep(self.arena(), &call.op, extents)? {
            return Ok(());
        }
        note_free(call, extents);
        self.give_noted(call, extents)?;
        call.op.set_phase(Phase::Published);
        Ok(())
    }

    fn give_noted(&self, call: &Call<'_>, extents: &Extents) -> Result<()> {
        let noted = extents.pages() > UNNOTED_PAGES_MAX;
        self.allocator.give_each(self.arena(), &call.op, call.hint, extents, |index| {
            if noted {
                call.op.note_word(GIVEN, index + 1);
            }
        })?;
        call.op.clear_notes();
        Ok(())
    }

    pub(crate) fn log_id(&self, ino: Ino, generation: u32) -> LogId {
        LogId::new(self.seed, ino, generation)
    }

    /// Where an inode lies on media.
    pub(crate) fn place(&self, ino: Ino) -> Result<InodePlace> {
        let addr = self.inodes.addr(self.arena(), ino)?;
        let addr = addr.ok_or_else(|| self.unrecovered.no_place(ino))?;
        Ok(InodePlace::new(self.seed, ino, addr))
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
        let (view, guard) = self.lock_view(call, ino, (found, false))?;
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
    fn loaded<'a>(
        &'a self,
        call: &Call<'_>,
        ino: Ino,
        view: View<'a>,
        guard: LockGuard<'a>,
    ) -> Result<Locked<'a>> {
        if view.place().is_null() {
            view.note_place(self.place(ino)?.addr);
        }
        let place = InodePlace::new(self.seed, ino, view.place());
        if view.kind().is_none() {
            self.unrecovered.check(ino)?;
            let from = (&place, &self.unrecovered);
            load::load(&self.pm, self.arena(), &view, from, &|generation| {
                self.log_id(ino, generation)
            })?;
        }
        let kind = view.kind().ok_or(Error::Stale)?;
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
        (mut found, has_place): (Option<View<'a>>, bool),
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

    fn find_or_make_view(&self, call: &Call<'_>, ino: Ino, has_place: bool) -> Result<View<'_>> {
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
                read(&locked.view, locked.kind)
            }
            By::Hint(hint) => {
                let call = self.begin_read(OpKind::Load, &Ctx { now_ns: 0, hint })?;
                let locked = self.lock(&call, ino)?;
                read(&locked.view, locked.kind)
            }
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
        Self::read_of(&view, ino, read)
    }

    /// As [`Fs::read_unlocked`], of the view itself.
    pub(crate) fn read_of<T>(
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
            let result = read(view, kind);
            if view.read_valid(begun) {
                return result.map(Some);
            }
        }
        Ok(None)
    }

    /// An inode's attributes.
    ///
    /// # Errors
    /// [`Error::Stale`] for an inode that is not in use.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.read_view(0, ino, |view, kind| Ok(view.attr(kind)))
    }

    /// As [`Fs::getattr`], of one use of the number.
    ///
    /// # Errors
    /// [`Error::Stale`] for an inode that is gone.
    pub fn getattr_of(&self, node: Node) -> Result<Attr> {
        self.read_node(0, node, |view, kind| Ok(view.attr(kind)))
    }

    /// Keeps an inode for as long as it is held: one that loses its last name meanwhile is gone
    /// only with the last [`Fs::release`].
    ///
    /// # Errors
    /// [`Error::Stale`] for an inode that is not in use.
    pub fn hold(&self, ino: Ino) -> Result<()> {
        let call = self.begin_read(OpKind::Load, &Ctx { now_ns: 0, hint: 0 })?;
        let locked = self.lock(&call, ino)?;
        locked.view.holds().fetch_add(1, Ordering::Relaxed);
        locked.view.set_known();
        Ok(())
    }

    /// Gives up `count` holds of an inode.
    ///
    /// # Errors
    /// [`Error::Stale`] for an inode that is not in use; [`Error::Invalid`] for more than are held.
    pub fn release(&self, ctx: &Ctx, ino: Ino, count: u64) -> Result<()> {
        let call = self.begin_read(OpKind::Release, ctx)?;
        let locked = self.lock(&call, ino)?;
        let holds = locked.view.holds();
        let held = holds.load(Ordering::Relaxed);
        let left = held.checked_sub(count).filter(|_| held % DAX_HOLD >= count);
        let left = left.ok_or(Error::Invalid("more releases than holds"))?;
        holds.store(left, Ordering::Relaxed);
        if left == 0 {
            Self::unheld(&locked.view);
        }
        if left == 0 && locked.view.nlink() == 0 {
            self.reclaim(&call, &locked)?;
            self.note_freed();
        }
        Ok(())
    }

    /// Waits until what this file's callers were told is durable. In strict mode it is already.
    ///
    /// # Errors
    /// [`Error::Stale`] for an inode that is not in use.
    pub fn sync(&self, _ctx: &Ctx, ino: Ino) -> Result<()> {
        self.getattr(ino).map(|_| ())
    }

    /// Space and inodes.
    ///
    /// # Errors
    /// [`Error::BadArena`] when the arena is damaged.
    pub fn statfs(&self) -> Result<StatFs> {
        let arena = self.arena();
        let pages_free = self.allocator.pages_free(arena)?;
        let pages_available = pages_free.saturating_sub(self.allocator.reserve());
        let inodes = self.inodes.used(arena, &self.allocator)?;
        let places = self.inodes.pages(arena)? * INODES_PER_PAGE;
        Ok(StatFs {
            pages: self.allocator.ranges.usable_pages(),
            pages_free,
            pages_available,
            inodes: inodes.saturating_sub(1),
            inodes_free: inodes_to_come(places.saturating_sub(inodes), pages_available),
        })
    }

    /// When reads change the access time from now on; also for clients that join from here on.
    pub fn set_atime(&self, atime: Atime) {
        self.atime.store(atime as u8, Ordering::Relaxed);
        self.announce_manners();
    }

    pub(crate) fn atime(&self) -> Atime {
        Atime::numbered(self.atime.load(Ordering::Relaxed))
    }

    /// How opening went: clean or by recovery, and what recovery did.
    #[must_use]
    pub fn opened(&self) -> &OpenReport {
        &self.report
    }

    /// What the view takes in the arena.
    #[must_use]
    pub fn index_memory(&self) -> IndexMemory {
        let arena = self.arena();
        IndexMemory {
            used_bytes: arena.used_bytes(),
            free_bytes: arena.free_bytes(),
            wanted_bytes: arena.wanted_bytes(),
            max_bytes: arena.max_bytes(),
        }
    }

    /// The pool's memory.
    #[must_use]
    pub fn pm(&self) -> &Pm {
        &self.pm
    }

    /// Drops the view without closing the pool, as the death of all clients does, and hands back
    /// the pool's memory.
    #[must_use]
    pub fn into_pm(self) -> Pm {
        self.into_parts().0
    }

    /// As [`Fs::into_pm`], with the arena that the view was in.
    #[must_use]
    pub fn into_parts(self) -> (Pm, Arena) {
        let arena = self.client.arena().clone();
        (self.pm, arena)
    }

    /// What reached the pool so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.pm.counters()
    }

    /// Commits one inode and publishes its new state; `publish` changes what else readers see.
    pub(crate) fn commit(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        mut next: State,
        rest: Rest,
        publish: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        call.op.note_commit(locked.id.ino.get(), next.op_seq, next.slot ^ 1);
        call.op.set_phase(Phase::Committing);
        if seeded::is_on(Bug::ShownEarly) {
            let slot = next.slot ^ 1;
            locked.view.publish(|| locked.view.set_state(&State { slot, ..next }));
        }
        commit::one(&self.pm, self.session, &locked.place, &mut next, rest).end();
        call.op.set_phase(Phase::Fenced);
        let before = Counted::of(&locked.view);
        let published = locked.view.publish(|| {
            locked.view.set_state(&next);
            publish()
        });
        // The pages are in the log and the index now.
        call.op.clear_notes();
        call.op.set_phase(Phase::Published);
        // Not by `and`, which moves an error's bytes where there is none: such a load of what was
        // stored lately in other pieces waits behind the fence for all that was streamed.
        published?;
        self.recount(before, &locked.view)
    }

    /// Commits several inodes through the journal; the caller publishes.
    pub(crate) fn commit_many(
        &self,
        (call, lane): (&Call<'_>, &Lane<'_>),
        kind: JournalKind,
        parts: &mut [Part],
        (pending, single): (Flushed, bool),
    ) -> Durable {
        for part in parts.iter() {
            call.op.note_commit(part.ino.get(), part.next.op_seq, part.next.slot ^ 1);
        }
        call.op.set_phase(Phase::Committing);
        let pool = (self.seed, self.session);
        let durable = commit::many(&self.pm, pool, lane, kind, parts, (pending, single));
        call.op.set_phase(Phase::Fenced);
        durable
    }

    /// Frees all that an inode without names and holds has, and its number. The commit that took
    /// its last name is durable, so nothing is stored.
    pub(crate) fn reclaim(&self, call: &Call<'_>, locked: &Locked<'_>) -> Result<()> {
        self.reclaim_view(call, &locked.view, &locked.id, locked.kind)
    }

    /// As [`Fs::reclaim`], for whoever has the lock in another way.
    pub(crate) fn reclaim_view(
        &self,
        call: &Call<'_>,
        view: &View<'_>,
        id: &LogId,
        kind: FileKind,
    ) -> Result<()> {
        let arena = self.arena();
        let state = view.state();
        let mut freed = Extents::default();
        if kind != FileKind::Directory {
            view.index().for_each(arena, &mut |_, addr| {
                freed.push_page(PmAddr::from_raw(addr));
            })?;
        }
        crate::log::pages(&self.pm, id, state.log_head, state.log_tail, &mut |page| {
            freed.push_page(page);
        })?;
        Xattrs::read(&self.pm, id, view.xattrs().root)?.for_each_page(&mut |extent| {
            freed.push(extent);
            Ok(())
        })?;
        // All that can be damaged was read.
        if kind != FileKind::Directory {
            self.take_parked(view, &mut freed)?;
        }
        let (spare, pages) = view.spare();
        if pages > 0 {
            freed.push(Extent { addr: spare, pages });
        }
        note_free(call, &freed);
        self.count(view.project(), Change::whole(view).back())?;
        view.publish(|| {
            view.set_unloaded();
            load::reset(arena, view)
        })?;
        self.give_noted(call, &freed)?;
        // The phase stays: whoever settles for a death from here on must not do this again while the
        // inode is locked. Its number is lost until the pool is opened again then.
        self.inodes.give(&self.env(call), view.ino())
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

/// Inodes that can be made from places in inode pages and from free pages: each takes a place, and
/// its name a line of a directory's log.
fn inodes_to_come(places: u64, pages: u64) -> u64 {
    let (a_page, lines) = (INODES_PER_PAGE, LOG_ENTRY_LINES);
    let named = pages.saturating_mul(lines);
    if named <= places {
        return named;
    }
    // All pages are used up at n names: n / lines + (n - places) / a_page = pages, rounded down.
    let whole = u128::from(pages) * u128::from(a_page) + u128::from(places);
    u64::try_from(whole * u128::from(lines) / u128::from(a_page + lines)).unwrap_or(u64::MAX)
}

/// Notes pages that are going to be freed, if they are many: whoever settles for this client, if it
/// dies, goes on where it stopped.
fn note_free(call: &Call<'_>, extents: &Extents) {
    call.op.clear_notes();
    if extents.pages() > UNNOTED_PAGES_MAX {
        for extent in extents.iter() {
            let pages = u32::try_from(extent.pages).unwrap_or(u32::MAX);
            // Without room in the arena a death loses the rest until the next opening.
            let _noted = call.op.note_free(extent.addr.raw(), pages);
        }
    }
    call.op.set_phase(Phase::Freeing);
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

/// What an operation wants its pages for: growth, unless all that it does is replace.
pub(crate) fn need(replaces: bool) -> Need {
    if replaces { Need::Release } else { Need::Growth }
}

/// The word of an operation's record that counts the extents of its list that it began to give.
pub(crate) const GIVEN: usize = 0;
