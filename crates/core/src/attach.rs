//! Several clients, of several processes, on one arena: where its tables are, who comes and goes.
//!
//! The client that opens the pool writes the places of all tables into the arena's root block, and
//! the word that says so last. Coming and going are serialised by a lock, so that exactly the last
//! client to leave closes the pool.

use std::sync::atomic::{self, AtomicBool, AtomicU8, Ordering};

use novale_arena::{Arena, AtomicU64, ClientInfo, Off, PidInfo};
use novale_layout::PmAddr;
use novale_pm::Pm;
use novale_policy::Spread;

use crate::alloc::Allocator;
use crate::alloc::inodes::Inodes;
use crate::error::{Error, Result};
use crate::fs::{Fs, OpKind, OpenOptions};
use crate::gc::GcCounters;
use crate::pool::Pool;
use crate::quota::Projects;
use crate::recover::OpenReport;
use crate::recover::unrecovered::Unrecovered;
use crate::types::Ctx;
use crate::view::Views;

// Words of the arena's root block.
const STAGE: usize = 0;
const SESSION: usize = 1;
const PLACES: usize = 2;
const PLACES_END: usize = PLACES + 11;
/// Dead clients that were settled for.
const SETTLED: usize = 16;
/// A bit for each client slot whose client has left.
const LEFT: usize = 20;

/// Values of the word [`STAGE`].
const FRESH: u64 = 0;
const BEGUN: u64 = 1;
const OPEN: u64 = 2;
const CLOSED: u64 = 3;

/// Claims a fresh arena for a pool that is being opened.
pub(crate) fn begin(arena: &Arena) -> Result<()> {
    let stage = &arena.root()[STAGE];
    match stage.compare_exchange(FRESH, BEGUN, Ordering::AcqRel, Ordering::Relaxed) {
        Ok(_) => Ok(()),
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

fn has_left(arena: &Arena, client: ClientInfo) -> bool {
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

impl Fs {
    /// Joins the clients of a pool that one of them has opened in `arena`. `pm` maps the same pool
    /// for writing, with shared locks ([`SlotLock::Shared`](novale_pm::SlotLock::Shared)); the client
    /// that opened it has shared its own ([`Pm::share`]). When `process` is gone, others settle for
    /// this client: it is the caller's own, but for tests.
    ///
    /// # Errors
    /// [`Error::BadArena`] when no pool is open in it, or another one; [`Error::BadPool`].
    pub fn attach(pm: Pm, arena: &Arena, options: &OpenOptions, process: PidInfo) -> Result<Self> {
        let pool = Pool::read(&pm)?;
        let root = arena.root();
        let word = |index: usize| root.get(index).map_or(0, |word| word.load(Ordering::Relaxed));
        match root[STAGE].load(Ordering::Acquire) {
            OPEN => {}
            CLOSED => return Err(Error::BadArena("its pool has been closed".into())),
            _ => return Err(Error::BadArena("no pool is open in it".into())),
        }
        if word(SESSION) != u64::from(pool.state.session) {
            let found = format!("it is of session {}", word(SESSION));
            return Err(Error::BadArena(format!("{found}, the pool's is {}", pool.state.session)));
        }
        let pages: Vec<u64> = pool.slots.iter().map(|(header, _)| header.pages).collect();
        let places = [0, 1, 2, 3, 4, 5].map(|index| word(PLACES + index));
        let client = arena.attach(process)?;
        let fs = Self {
            pm,
            allocator: Allocator::attach(&pages, places, Box::new(Spread)),
            inodes: Inodes::attach(word(PLACES + 6), PmAddr::from_raw(word(PLACES + 7))),
            views: Views::attach(word(PLACES + 8)),
            rename_lock: Off::from_raw(word(PLACES + 9)),
            projects: Projects::attach(word(PLACES + 10)),
            client,
            seed: pool.seed,
            session: pool.state.session,
            options: *options,
            policy: Self::default_policy(),
            unrecovered: Unrecovered::default(),
            report: OpenReport { clean: true, ..OpenReport::default() },
            gc: GcCounters::default(),
            closed: AtomicBool::new(false),
            atime: AtomicU8::new(options.atime as u8),
            // What the superblock says need not be durable.
            features: atomic::AtomicU64::new(0),
            settling: std::sync::Mutex::new(()),
        };
        {
            let call = fs.begin_read(OpKind::Manage, &Ctx { now_ns: 0, hint: 0 })?;
            let _coming = call.op.lock(fs.clients_lock())?;
            if root[STAGE].load(Ordering::Acquire) != OPEN {
                return Err(Error::BadArena("its pool has been closed".into()));
            }
            set_left(arena, fs.client.info(), false);
        }
        Ok(fs)
    }

    /// Clients attached, this one and dead ones that nobody has settled for included.
    #[must_use]
    pub fn clients(&self) -> u32 {
        u32::try_from(self.arena().clients().count()).unwrap_or(u32::MAX)
    }

    /// Says where everything is, for clients to come.
    pub(crate) fn announce(&self) {
        let root = self.arena().root();
        let places = self.allocator.places().into_iter().chain([
            self.inodes.place(),
            self.inodes.directory().raw(),
            self.views.place(),
            self.rename_lock.raw(),
            self.projects.place(),
        ]);
        for (word, place) in root.iter().take(PLACES_END).skip(PLACES).zip(places) {
            word.store(place, Ordering::Relaxed);
        }
        root[SESSION].store(u64::from(self.session), Ordering::Relaxed);
        set_left(self.arena(), self.client.info(), false);
        root[STAGE].store(OPEN, Ordering::Release);
    }

    /// The lock under which clients come and go: the word behind the one for renaming.
    fn clients_lock(&self) -> Off {
        self.rename_lock.add(8)
    }

    /// Whether the operation of settling must leave a lock to its dead owner until all else is done.
    pub(crate) fn is_lasting_lock(&self, lock: Off) -> bool {
        lock == self.rename_lock || lock == self.clients_lock()
    }

    /// Whether a client has died, so that the allocator may have lost track of pages.
    pub(crate) fn has_settled(&self) -> bool {
        self.arena().root()[SETTLED].load(Ordering::Relaxed) != 0
    }

    /// Leaves; says whether this was the last client, and the pool is to be closed.
    pub(crate) fn leave(&self) -> Result<bool> {
        self.settle_dead()?;
        let call = self.call(OpKind::Manage, &Ctx { now_ns: 0, hint: 0 });
        let _going = call.op.lock(self.clients_lock())?;
        let arena = self.arena();
        let me = self.client.info();
        let others = arena.clients().any(|other| other != me && !has_left(arena, other));
        set_left(arena, me, true);
        if !others {
            arena.root()[STAGE].store(CLOSED, Ordering::Release);
        }
        Ok(!others)
    }
}
