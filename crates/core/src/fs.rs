//! The file system object: what its operations share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use novale_arena::{Arena, Client, Off};
use novale_layout::{INODES_PER_PAGE, Ino, LOG_ENTRY_LINES, Seed};
use novale_pm::{Counters, Pm};
use novale_policy::{BufferRules, CommitCosts, Form, Mode, Placement, SlotLines, UpdatePolicy};

use crate::base::error::{Error, Result};
use crate::base::types::{Attr, Ctx, GcCounters, IndexMemory, Node, OpenReport, StatFs};
use crate::inode::buffer::WriteBuffer;
use crate::inode::numbers::Inodes;
use crate::inode::view::Views;
use crate::inode::words::DAX_HOLD;
use crate::op::call::OpKind;
use crate::op::quota::Projects;
use crate::op::unrecovered::Unrecovered;
use crate::space::Allocator;
use crate::space::ranges::ComingSlot;

/// What a client's passes over all inodes share.
#[derive(Debug, Default)]
pub(crate) struct Passes {
    /// Held by a thread for a step.
    pub(crate) step: Mutex<()>,
    /// The number of the inode at which the last move of cold pages ended.
    pub(crate) cold_at: AtomicU64,
    pub(crate) meeting: Meeting,
    /// Held by a thread that begins or ends a tree.
    pub(crate) tree: Mutex<()>,
}

/// How a client meets slots that others add.
#[derive(Default)]
pub(crate) struct Meeting {
    /// How many slots it knows: it has their tables, and has mapped them or lacks them.
    pub(crate) known: AtomicU32,
    /// Held by a thread that meets some, or adds one.
    pub(crate) one: Mutex<()>,
    /// Maps them.
    pub(crate) opener: OnceLock<Box<SlotOpener>>,
    /// The files of those that came.
    pub(crate) files: Mutex<Vec<PathBuf>>,
}

impl std::fmt::Debug for Meeting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meeting").field("known", &self.known).finish_non_exhaustive()
    }
}

impl Passes {
    /// Those of a client that joins others, knowing so many slots.
    pub(crate) fn knowing(slots: u8) -> Self {
        let meeting = Meeting { known: AtomicU32::new(slots.into()), ..Meeting::default() };
        Self { meeting, ..Self::default() }
    }
}

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
    /// Which methods writes take to files that don't say so themselves; `None`: the pool's
    /// ([`MkfsOptions::update`](crate::MkfsOptions::update)).
    pub update: Option<UpdatePolicy>,
    /// What [`UpdatePolicy::Lawn`] takes for a slot.
    pub slot_lines: SlotLines,
    /// When writes become durable to files that don't say so themselves; `None`: as the pool says
    /// ([`MkfsOptions::mode`](crate::MkfsOptions::mode)), and where that says nothing either, at once for
    /// all files, those included that are to be buffered.
    pub mode: Option<Mode>,
    /// Bytes of the arena that the write buffer may take; a quarter of it where nothing is said.
    pub buffer_bytes: Option<u64>,
    /// By which rules it is emptied, and what is not put into it; who joins others takes theirs.
    pub buffer_rules: BufferRules,
    /// What [`Form::Auto`] goes by, where somebody has measured it on this pool's memory.
    pub costs: Option<CommitCosts>,
    /// Time of opening, ns since 1970.
    pub now_ns: i64,
    /// Bytes of the arena beyond which the views of inodes that nobody has used lately are dropped,
    /// by each operation that begins; three quarters of the arena where nothing is said. With 0 each
    /// operation drops what it can.
    pub index_bytes: Option<u64>,
    /// New inodes have nothing of their directory's default ACL, as if there were none.
    pub ignore_default_acls: bool,
    /// How the slots are used, where there are several; who joins others takes theirs
    /// ([`OpenOptions::of_arena`]).
    pub placement: Placement,
}

impl OpenOptions {
    /// Bytes that a data checksum is of, at most, in [`Form::Auto`].
    pub(crate) fn summed_bytes_max(&self) -> u64 {
        self.costs.map_or(Form::SUMMED_BYTES_MAX, CommitCosts::summed_bytes_max)
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            atime: Atime::Relatime,
            form: Form::Auto,
            update: None,
            slot_lines: SlotLines::default(),
            mode: None,
            buffer_bytes: None,
            buffer_rules: BufferRules::default(),
            costs: None,
            now_ns: 0,
            index_bytes: None,
            ignore_default_acls: false,
            placement: Placement::Wasa,
        }
    }
}

/// Maps a slot that another client has added, alone; none where it can't.
pub type SlotOpener = dyn Fn(&ComingSlot) -> Option<Pm> + Send + Sync;

/// A Novale file system, open on a pool.
///
/// All methods may be called from many threads at once. In strict mode each is durable when it returns,
/// and all or nothing after a crash. Writes to files in buffered mode are durable after [`Fs::sync`].
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
    /// Which methods writes take to files that don't say so themselves.
    pub(crate) update: UpdatePolicy,
    /// When writes become durable, likewise; `None`: at once, whatever a file says.
    pub(crate) mode: Option<Mode>,
    pub(crate) buffer: WriteBuffer,
    /// Bytes that a data checksum is of, at most, in [`Form::Auto`].
    pub(crate) summed_bytes_max: u64,
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
    /// What has given no room.
    pub(crate) in_vain: InVain,
    /// Held by the thread that settles for dead clients.
    pub(crate) settling: Mutex<()>,
    /// Held by the thread that makes room in the write buffer.
    pub(crate) writing_back: Mutex<()>,
    /// Of emptying a slot, and of moving cold pages.
    pub(crate) passes: Passes,
}

/// What there was when it gave no room: nobody asks for it again while there is as much.
#[derive(Debug, Default)]
pub(crate) struct InVain {
    /// Inodes that had stayed without names.
    pub(crate) kept: AtomicU64,
    /// Pairs.
    pub(crate) pairs: AtomicU64,
    /// Pages that were reserved for the buffer.
    pub(crate) reserved: AtomicU64,
}

impl std::fmt::Debug for Fs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fs")
            .field("session", &self.session)
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

impl Fs {
    pub(crate) fn arena(&self) -> &Arena {
        self.client.arena()
    }

    /// An inode's attributes.
    ///
    /// # Errors
    /// [`Error::Stale`] for an inode that is not in use.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.read_view(0, ino, |view, kind| Ok(view.attr(kind)))
    }

    /// The permission, set-id and sticky bits of an inode, for who needs no more of what [`Fs::getattr`] tells.
    ///
    /// # Errors
    /// Those of [`Fs::getattr`].
    #[inline]
    pub fn mode_bits_of(&self, ino: Ino) -> Result<u32> {
        self.read_view(0, ino, |view, _| Ok(view.mode_bits()))
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

    /// Space and inodes.
    ///
    /// # Errors
    /// [`Error::BadArena`] when the arena is damaged.
    pub fn statfs(&self) -> Result<StatFs> {
        let arena = self.arena();
        let pages_free = self.allocator.pages_free(arena)?;
        let kept = self.allocator.reserve() + self.pages_awaited()?;
        let pages_available = pages_free.saturating_sub(kept);
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

    /// The commit form, and the costs that [`Form::Auto`] goes by where they were measured.
    #[must_use]
    pub fn commit_form(&self) -> (Form, Option<CommitCosts>) {
        (self.options.form, self.options.costs)
    }

    /// Which methods writes take to files that don't say so themselves.
    #[must_use]
    pub fn update_policy(&self) -> UpdatePolicy {
        self.update
    }

    /// What [`UpdatePolicy::Lawn`] takes for a slot.
    #[must_use]
    pub fn slot_lines(&self) -> SlotLines {
        self.options.slot_lines
    }

    /// The write methods that a file has of its own, or a directory for what is made in it; `None`:
    /// [`Fs::update_policy`] holds.
    ///
    /// # Errors
    /// Those of reading the inode.
    pub fn update_of(&self, ino: Ino) -> Result<Option<UpdatePolicy>> {
        self.read_view(0, ino, |view, _| Ok(view.policy()))
    }

    /// When writes become durable to files that don't say so themselves; `None`: at once, whatever a file
    /// says.
    #[must_use]
    pub fn mode_of_writes(&self) -> Option<Mode> {
        self.mode
    }

    /// The mode that a file has of its own, or a directory for what is made in it.
    ///
    /// # Errors
    /// Those of reading the inode.
    pub fn mode_of(&self, ino: Ino) -> Result<Option<Mode>> {
        self.read_view(0, ino, |view, _| Ok(view.mode()))
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
        let mut pm = self.pm;
        pm.set_count_source(None);
        (pm, arena)
    }

    /// What reached the pool so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.pm.counters()
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
