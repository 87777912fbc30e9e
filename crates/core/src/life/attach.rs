//! Several clients, of several processes, on one arena: where its tables are, who comes and goes.
//!
//! The client that opens the pool writes the places of all tables into the arena's root block, and
//! the word that says so last. Coming and going are serialised by a lock, so that exactly the last
//! client to leave closes the pool.

use std::sync::atomic::{self, AtomicBool, AtomicU8, Ordering};

use novale_arena::{Arena, ArenaError, AtomicU64, Client, ClientInfo, Off, PidInfo};
use novale_layout::PmAddr;
use novale_pm::{Pm, SPARE_SLOTS};
use novale_policy::{CommitCosts, Form, Mode, Placement, SlotLines, UpdatePolicy};

use crate::base::error::{Error, Result};
use crate::base::types::{Ctx, GcCounters, OpenReport};
use crate::fs::{Atime, Fs, InVain, OpenOptions, Passes};
use crate::inode::buffer::WriteBuffer;
use crate::inode::numbers::Inodes;
use crate::inode::view::Views;
use crate::life::{device, wear};
use crate::op::call::{Call, OpKind};
use crate::op::quota::Projects;
use crate::op::unrecovered::Unrecovered;
use crate::pool::{Pool, PoolInfo};
use crate::space::Allocator;
use crate::space::failed::failed_slots;
use crate::space::leaving::{slots_to_know, tell_leaving, tell_slots};
use crate::space::ranges::Ranges;

/// Rises when anything that clients share gets another meaning: a word of the arena, its place, or the
/// order in which words change. `cargo xtask tidy` asks for it where declarations of words changed
/// (`xtask/src/tidy/shared.rs`); what `novale-arena` itself keeps has a number of its own.
const SHARED: u64 = 21;

/// What programs that share an arena must have in common, so that one with another idea of its contents,
/// or of the pool's, is refused.
pub const ARENA_ABI: u64 = SHARED << 32 | novale_layout::FORMAT_VERSION as u64;

// Words of the arena's root block; from 28 on they are those of `room`, `inode/pairs` and `device`.
const STAGE: usize = 0;
const SESSION: usize = 1;
const PLACES: usize = 2;
const PLACES_END: usize = PLACES + 14;
/// Where the write buffer's table is, among the places.
const BUFFER_PLACE: usize = 11;
/// Where the wear of the slots is counted.
pub(crate) const WEAR_PLACE: usize = PLACES + 12;
/// Where it is said which slots were added since the pool was opened.
const ADDED_PLACE: usize = PLACES + 13;
/// Dead clients that were settled for.
const SETTLED: usize = 16;
/// How the one who opened the pool treats access times, commits and default ACLs.
const MANNERS: usize = 17;
/// Mounts of the pool, those whose daemon was killed included.
const MOUNTS: usize = 18;
/// Which files the slots are ([`Pm::files`]), of all who have the pool open.
const FILES: usize = 19;
/// Of that word: a slot is being added.
const CHANGING: u64 = u64::MAX;
/// A bit for each client slot whose client has left: eight words.
const LEFT: usize = 20;

/// Values of the word [`STAGE`].
const FRESH: u64 = 0;
const BEGUN: u64 = 1;
const OPEN: u64 = 2;
const CLOSED: u64 = 3;

/// Claims a fresh arena for a pool that is being opened, with slots that are being emptied, by their bits.
pub(crate) fn begin(arena: &Arena, leaving: u64) -> Result<()> {
    let stage = &arena.root()[STAGE];
    match stage.compare_exchange(FRESH, BEGUN, Ordering::AcqRel, Ordering::Relaxed) {
        Ok(_) => {
            tell_leaving(arena, leaving);
            Ok(())
        }
        Err(_) => Err(Error::BadArena("a file system is open in it already".into())),
    }
}

/// Which dead clients' operations were settled; the allocator may have lost track of pages then.
pub(crate) fn count_settled(arena: &Arena) {
    arena.root()[SETTLED].fetch_add(1, Ordering::Relaxed);
}

fn slot_bit(arena: &Arena, client: ClientInfo) -> Option<(&AtomicU64, u64)> {
    let word = arena.root().get(LEFT + usize::try_from(client.slot / 64).ok()?)?;
    Some((word, 1 << (client.slot % 64)))
}

pub(crate) fn has_left(arena: &Arena, client: ClientInfo) -> bool {
    slot_bit(arena, client).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

fn set_left(arena: &Arena, client: ClientInfo, left: bool) {
    if let Some((word, bit)) = slot_bit(arena, client) {
        if left {
            word.fetch_or(bit, Ordering::Relaxed);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// The processes that live and have the pool open in `arena`.
#[must_use]
pub fn live_clients(arena: &Arena) -> Vec<PidInfo> {
    let there = arena.clients().filter(|client| !has_left(arena, *client));
    there.filter(|client| !arena.is_dead_client(client)).map(|client| client.process).collect()
}

/// The numbers of the processes that were stopped in the middle of an operation: others wait for what they have locked.
#[must_use]
pub fn stopped_clients(arena: &Arena) -> Vec<u32> {
    let there = arena.clients().filter(|client| !has_left(arena, *client));
    let at_work = there.filter(|client| arena.is_at_work(client));
    at_work.filter(|client| client.process.is_stopped()).map(|client| client.process.pid).collect()
}

/// Whether a pool is open in `arena`, by clients that live or that died with it.
pub(crate) fn is_open(arena: &Arena) -> bool {
    arena.root()[STAGE].load(Ordering::Acquire) == OPEN
}

/// The session that is open in `arena`, and where its inodes and their views are.
pub(crate) fn tables(arena: &Arena) -> (u64, Inodes, Views) {
    let root = arena.root();
    let word = |index: usize| root.get(index).map_or(0, |word| word.load(Ordering::Relaxed));
    let inodes = Inodes::attach(word(PLACES + 6), PmAddr::from_raw(word(PLACES + 7)));
    (word(SESSION), inodes, Views::attach(word(PLACES + 8)))
}

/// Rounds in which the last client to leave settles for dead ones.
const LEAVE_TRIES: usize = 8;

/// How often a slot is sought while another process settles for the dead that have them: 0.1 s.
const SLOT_TRIES: usize = 200_000;

/// Says which files the slots of a pool are that nobody has open but who opens it now.
pub(crate) fn tell_files(pm: &Pm, arena: &Arena) {
    arena.root()[FILES].store(pm.files(), Ordering::Relaxed);
}

/// Says that a slot is being added: nobody joins before [`tell_files`] says which files they are then.
fn tell_changing(arena: &Arena) {
    arena.root()[FILES].store(CHANGING, Ordering::Relaxed);
}

/// Refuses another file in the place of a slot's: a copy of it, say, which would be stored to in its stead.
fn check_files(pm: &Pm, arena: &Arena) -> Result<()> {
    match arena.root()[FILES].load(Ordering::Relaxed) {
        CHANGING => return Err(Error::Closed),
        // One was added since the pool's slots were found.
        _ if slots_to_know(arena) != u64::from(pm.slot_count()) => return Err(Error::Closed),
        files if files == pm.files() => return Ok(()),
        _ => {}
    }
    let found = "a slot's file is not the one that the others have open";
    Err(Error::BadArena(format!("{found}: put that one in its place again")))
}

/// A client slot; where all are taken the one for settling, and true.
fn take_slot(arena: &Arena, process: PidInfo) -> Result<(Client, bool)> {
    for _ in 0..SLOT_TRIES {
        match arena.attach(process) {
            Err(ArenaError::NoClientSlot(_)) => {}
            client => return Ok((client?, false)),
        }
        match arena.attach_to_settle(process) {
            Err(ArenaError::NoClientSlot(_)) => std::hint::spin_loop(),
            client => return Ok((client?, true)),
        }
    }
    Err(Error::TooManyClients)
}

/// Blocks of the write buffer that are in use in `arena`, and how many there may be; none while nobody has
/// a file system open there.
///
/// # Errors
/// [`Error::BadArena`]: damage.
pub fn buffer_use_of(arena: &Arena) -> Result<Option<(u64, u64)>> {
    let place = arena.root()[PLACES + BUFFER_PLACE].load(Ordering::Acquire);
    if place == 0 {
        return Ok(None);
    }
    WriteBuffer::attach(arena, place)?.usage(arena).map(Some)
}

/// Free pages of each slot of a pool that is open in `arena`, but for those that lanes have in hand; none
/// where it is being opened or closed.
///
/// # Errors
/// [`Error::BadArena`] when the arena is damaged.
pub fn live_free(arena: &Arena, info: &PoolInfo) -> Result<Option<Vec<u64>>> {
    let root = arena.root();
    if root[STAGE].load(Ordering::Acquire) != OPEN {
        return Ok(None);
    }
    let pages: Vec<u64> = info.slots.iter().map(|slot| slot.pages).collect();
    let word = |index: usize| root.get(index).map_or(0, |word| word.load(Ordering::Relaxed));
    let places = [PLACES + 3, PLACES + 4, PLACES + 5, ADDED_PLACE].map(word);
    Ranges::attach(arena, &pages, places)?.free_by_slot(arena).map(Some)
}

/// Where it is said which slots were added.
pub(crate) fn added_place(arena: &Arena) -> Off {
    Off::from_raw(arena.root()[ADDED_PLACE].load(Ordering::Acquire))
}

/// Whether a slot more can be added to a pool that is open in `arena` and has so many, before it is opened next: its
/// tables have room for a few ([`SPARE_SLOTS`]).
#[must_use]
pub fn can_add_slot(arena: &Arena, slots: usize) -> bool {
    let opened_with = arena.word(added_place(arena));
    let opened_with = opened_with.map_or(0, |word| word.load(Ordering::Acquire));
    (slots as u64) < opened_with + SPARE_SLOTS as u64
}

/// A bit for each slot that has failed since the pool was opened in `arena`.
#[must_use]
pub fn live_failed(arena: &Arena) -> u64 {
    failed_slots(arena)
}

impl OpenOptions {
    /// The options of those who have the pool open in `arena`, for one who joins them.
    #[must_use]
    pub fn of_arena(arena: &Arena) -> Self {
        let word = arena.root()[MANNERS].load(Ordering::Relaxed);
        let byte = |shift: u32| u8::try_from(word >> shift & 0xff).unwrap_or(0);
        let half = |shift: u32| u16::try_from(word >> shift & 0xffff).unwrap_or(0);
        let forms = [Form::Auto, Form::Single, Form::Two];
        Self {
            atime: Atime::numbered(byte(0)),
            form: forms.into_iter().find(|known| *known as u8 == byte(8)).unwrap_or(Form::Auto),
            update: UpdatePolicy::numbered(Mode::without(byte(24))),
            mode: Mode::of_bits(byte(24)),
            costs: (word >> 17 & 1 != 0)
                .then_some(CommitCosts { fence_ns: half(32), page_sum_ns: half(48) }),
            ignore_default_acls: word >> 16 & 1 != 0,
            placement: Placement::numbered(byte(18) & 0b11).unwrap_or_default(),
            slot_lines: SlotLines::numbered(byte(20) & 0b1111).unwrap_or_default(),
            ..Self::default()
        }
    }
}

/// How a client leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// Others have the pool open.
    Others,
    /// It was the last one: the pool is to be closed.
    Last,
    /// It was the last one, and bytes are buffered for a slot that has failed: they stay in the arena, as of clients that
    /// were all killed.
    Waiting,
}

impl Fs {
    /// Joins the clients of a pool that one of them has opened in `arena`. `pm` maps the same pool
    /// for writing, with shared locks ([`SlotLock::Shared`](novale_pm::SlotLock::Shared)); the client
    /// that opened it has shared its own ([`Pm::share`]). When `process` is gone, others settle for
    /// this client: it is the caller's own, but for tests.
    ///
    /// # Errors
    /// [`Error::Closed`] while its pool is being opened or closed, [`Error::BadArena`] when another one
    /// is open in it, or another file than the others' has come to lie in a slot's place;
    /// [`Error::BadPool`].
    pub fn attach(
        mut pm: Pm,
        arena: &Arena,
        options: &OpenOptions,
        process: PidInfo,
    ) -> Result<Self> {
        let pool = Pool::read(&pm)?;
        let root = arena.root();
        let word = |index: usize| root.get(index).map_or(0, |word| word.load(Ordering::Relaxed));
        match root[STAGE].load(Ordering::Acquire) {
            OPEN => {}
            // Being closed, or being opened.
            _ => return Err(Error::Closed),
        }
        if word(SESSION) != u64::from(pool.state.session) {
            let found = format!("it is of session {}", word(SESSION));
            return Err(Error::BadArena(format!("{found}, the pool's is {}", pool.state.session)));
        }
        check_files(&pm, arena)?;
        device::join(&mut pm, arena)?;
        let pages: Vec<u64> = pool.slots.iter().map(|(header, _)| header.pages).collect();
        let places = [0, 1, 2, 3, 4, 5, ADDED_PLACE - PLACES].map(|index| word(PLACES + index));
        let wear = wear::attach(arena, &pool, options.placement);
        let allocator = Allocator::attach(arena, &pages, places, wear)?;
        let (client, is_full) = take_slot(arena, process)?;
        let mut fs = Self {
            passes: Passes::knowing(pm.slot_count()),
            pm,
            allocator,
            inodes: Inodes::attach(word(PLACES + 6), PmAddr::from_raw(word(PLACES + 7))),
            views: Views::attach(word(PLACES + 8)),
            rename_lock: Off::from_raw(word(PLACES + 9)),
            projects: Projects::attach(word(PLACES + 10)),
            client,
            seed: pool.seed,
            session: pool.state.session,
            options: *options,
            update: pool.update(options.update),
            mode: pool.mode(options.mode),
            buffer: WriteBuffer::attach(arena, word(PLACES + BUFFER_PLACE))?,
            summed_bytes_max: options.summed_bytes_max(),
            unrecovered: Unrecovered::default(),
            report: OpenReport { clean: true, ..OpenReport::default() },
            gc: GcCounters::default(),
            closed: AtomicBool::new(false),
            atime: AtomicU8::new(options.atime as u8),
            // What the superblock says need not be durable.
            features: atomic::AtomicU64::new(0),
            refuses_mapped: AtomicBool::new(false),
            in_vain: InVain::default(),
            settling: std::sync::Mutex::new(()),
            writing_back: std::sync::Mutex::new(()),
        };
        if is_full {
            fs.settle_dead()?;
            fs.client = match arena.attach(process) {
                Err(ArenaError::NoClientSlot(_)) => return Err(Error::TooManyClients),
                client => client?,
            };
        }
        fs.count_for_all();
        {
            let call = fs.begin_read(OpKind::Manage, &Ctx { now_ns: 0, hint: 0 })?;
            let _coming = call.op.lock(fs.clients_lock())?;
            // A slot may have been added since.
            if root[STAGE].load(Ordering::Acquire) != OPEN || check_files(&fs.pm, arena).is_err() {
                return Err(Error::Closed);
            }
            set_left(arena, fs.client.info(), false);
        }
        Ok(fs)
    }

    /// As [`stopped_clients`], of this pool's.
    #[must_use]
    pub fn stopped_clients(&self) -> Vec<u32> {
        stopped_clients(self.arena())
    }

    /// Clients attached, this one and dead ones that nobody has settled for included.
    #[must_use]
    pub fn clients(&self) -> u32 {
        u32::try_from(self.arena().clients().count()).unwrap_or(u32::MAX)
    }

    /// Says where everything is, for clients to come.
    pub(crate) fn announce(&self) {
        let root = self.arena().root();
        let [lanes, lane_count, free, table, summaries, groups, added] = self.allocator.places();
        let places = [lanes, lane_count, free, table, summaries, groups].into_iter().chain([
            self.inodes.place(),
            self.inodes.directory().raw(),
            self.views.place(),
            self.rename_lock.raw(),
            self.projects.place(),
            self.buffer.place(),
            self.allocator.wear.place(),
            added,
        ]);
        for (word, place) in root.iter().take(PLACES_END).skip(PLACES).zip(places) {
            word.store(place, Ordering::Relaxed);
        }
        root[SESSION].store(u64::from(self.session), Ordering::Relaxed);
        tell_files(&self.pm, self.arena());
        let slots = self.pm.slot_count();
        self.passes.meeting.known.store(slots.into(), Ordering::Release);
        tell_slots(self.arena(), slots.into());
        self.announce_manners();
        set_left(self.arena(), self.client.info(), false);
        root[STAGE].store(OPEN, Ordering::Release);
    }

    /// Says how access times, commits, writes and default ACLs are treated, for clients to come.
    pub(crate) fn announce_manners(&self) {
        let (atime, form) = (self.atime() as u64, self.options.form as u64);
        let acls = u64::from(self.options.ignore_default_acls);
        let costs = self.options.costs.map_or(0, |costs| {
            u64::from(costs.page_sum_ns) << 48 | u64::from(costs.fence_ns) << 32 | 1 << 17
        });
        let update = u64::from(self.update.number() | self.mode.map_or(0, Mode::bits));
        let placement = self.placement() as u64;
        let slot = u64::from(self.options.slot_lines.number());
        let manners = placement << 18 | acls << 16 | form << 8 | atime;
        let word = costs | update << 24 | slot << 20 | manners;
        self.arena().root()[MANNERS].store(word, Ordering::Relaxed);
    }

    /// The lock under which clients come and go: the word after the one for renaming.
    fn clients_lock(&self) -> Off {
        self.rename_lock.add(8)
    }

    /// Has nobody else come or go while `change` adds a slot, which is told whether this client is alone; none where
    /// it is not, and the others, of those that live, may not be beside it.
    ///
    /// # Errors
    /// Those of `change`, which has not changed the pool then.
    pub(crate) fn among<T>(
        &self,
        call: &Call<'_>,
        may: &dyn Fn(&[PidInfo]) -> bool,
        change: impl FnOnce(bool) -> Result<T>,
    ) -> Result<Option<T>> {
        let (arena, me) = (self.arena(), self.client.info());
        let _coming = call.op.lock(self.clients_lock())?;
        let others = || arena.clients().filter(|other| *other != me && !has_left(arena, *other));
        let is_alone = others().next().is_none();
        let living = others().filter(|other| !arena.is_dead_client(other));
        if !is_alone && !may(&living.map(|other| other.process).collect::<Vec<_>>()) {
            return Ok(None);
        }
        tell_changing(arena);
        let changed = change(is_alone);
        tell_files(&self.pm, arena);
        changed.map(Some)
    }

    /// The lock under which wear is saved: the word after that.
    pub(crate) fn wear_lock(&self) -> Off {
        self.rename_lock.add(16)
    }

    /// The lock under which slots begin to leave, and stay after all: the word after that.
    pub(crate) fn slots_lock(&self) -> Off {
        self.rename_lock.add(24)
    }

    /// Whether the operation of settling must leave a lock to its dead owner until all else is done.
    pub(crate) fn is_lasting_lock(&self, lock: Off) -> bool {
        [self.rename_lock, self.clients_lock(), self.slots_lock()].contains(&lock)
    }

    /// Whether a client has died, so that the allocator may have lost track of pages.
    pub(crate) fn has_settled(&self) -> bool {
        self.arena().root()[SETTLED].load(Ordering::Relaxed) != 0
    }

    /// Counts a mount that the caller serves; returns how many there are with it.
    pub fn add_mount(&self) -> u64 {
        self.arena().root()[MOUNTS].fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Mounts of the pool that were ever counted: one that was killed is not taken off.
    #[must_use]
    pub fn mounts(&self) -> u64 {
        self.arena().root()[MOUNTS].load(Ordering::Acquire)
    }

    /// Whether the pool has been closed: the last client has left, and the arena is of no use.
    #[must_use]
    pub fn is_pool_closed(&self) -> bool {
        self.arena().root()[STAGE].load(Ordering::Acquire) == CLOSED
    }

    /// Leaves as one that was killed where it lacks a slot: what it can't read it can't close, and the next opening
    /// does. Says whether it does.
    fn leaves_lacking(&self) -> bool {
        self.meet_slots();
        let is_lacking = self.pm.lacking() != 0;
        if is_lacking {
            set_left(self.arena(), self.client.info(), true);
        }
        is_lacking
    }

    /// Leaves, and says how.
    pub(crate) fn leave(&self) -> Result<Leaving> {
        let arena = self.arena();
        let me = self.client.info();
        // Pages that are held no more can be other files'. Where one stays mapped, all of them stay held.
        self.pm.end_windows().map_err(|_| Error::NoMemory)?;
        let given_back = self.give_back_own_holds(&me);
        if self.pm.lacking() == 0 {
            given_back?;
        }
        for _ in 0..LEAVE_TRIES {
            let call = self.call(OpKind::Manage, &Ctx { now_ns: 0, hint: 0 });
            if self.leaves_lacking() {
                return Ok(Leaving::Others);
            }
            let going = call.op.lock(self.clients_lock())?;
            // One may have been added before it was free.
            if self.leaves_lacking() {
                return Ok(Leaving::Others);
            }
            let others =
                || arena.clients().filter(|other| *other != me && !has_left(arena, *other));
            // Looking ends at the first who lives: that one settles for the dead. One that is being
            // killed counts as such: it might as well be killed when this client has left.
            let is_last = others().next().is_none();
            if is_last || others().any(|other| !arena.is_gone_client(&other)) {
                // As long as the arena is open what is buffered outlives this client; nobody comes now.
                let has_failed = self.failed_slots() != 0;
                let waits = is_last && has_failed && self.has_buffered()?;
                if is_last && !has_failed {
                    self.flush_all(&call)?;
                }
                set_left(arena, me, true);
                if is_last && !waits {
                    arena.root()[STAGE].store(CLOSED, Ordering::Release);
                }
                return Ok(match (is_last, waits) {
                    (false, _) => Leaving::Others,
                    (true, false) => Leaving::Last,
                    (true, true) => Leaving::Waiting,
                });
            }
            drop(going);
            drop(call);
            self.settle_dead()?;
        }
        Ok(Leaving::Others)
    }
}
