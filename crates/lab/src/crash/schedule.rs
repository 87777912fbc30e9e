//! Threads of which one runs at a time, as a seed says: before each store, write-back and fence of the
//! pool, and each store to the arena, it may become another one's turn. So operations of several
//! clients are in flight together, and are so again from the same seed.
//!
//! A thread that waits for another one, at a lock, is not chosen until another has stored something.
//! One may die at a point: it unwinds, what it would store to the arena on the way out is refused, and
//! nothing stores to the pool there, as after a SIGKILL.

use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;
use novale_arena::{PidInfo, Watcher, watch_stores};

use crate::diff::panic_text;

/// At one in so many points of the pool, and of the arena, it is another one's turn. Those of the arena
/// are many, and few of them lie between a store to the pool and its fence.
const SWITCH_ONE_IN: [(u32, u32); 5] = [(2, 2), (8, 30), (3, 200), (6, 200), (12, 400)];

/// So often all wait, each after another look, before that is a deadlock.
const IDLE_MAX: u32 = 3;

thread_local! {
    /// What the calling thread is part of.
    static PART: RefCell<Option<Part>> = const { RefCell::new(None) };
}

/// Where clients die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Points {
    /// Before each store, write-back and fence of the pool.
    Pool,
    /// Before each store to the arena, and after the last one.
    Arena,
}

/// Which thread dies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Doom {
    pub(crate) thread: usize,
    /// At which points; at any where none are named.
    pub(crate) points: Option<Points>,
    /// Before it comes to so many of them.
    pub(crate) left: u64,
}

/// Whose turn it is.
pub(crate) struct Schedule {
    turns: Mutex<Turns>,
    turned: Condvar,
    /// A bit for each thread that has died.
    dead: Arc<AtomicU64>,
}

struct Turns {
    random: Rng,
    switch_one_in: (u32, u32),
    now: usize,
    threads: Vec<Standing>,
    doom: Option<Doom>,
    idle: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Ready,
    Waiting,
    Ended,
}

/// A thread of a schedule.
#[derive(Clone)]
struct Part {
    schedule: Arc<Schedule>,
    me: usize,
}

/// What unwinds a thread that dies.
struct Died(Backtrace);

/// A point of the calling thread, if it is part of a schedule.
pub(crate) fn point(of: Points) {
    if let Some(part) = PART.with_borrow(Clone::clone) {
        part.schedule.meet(part.me, of);
    }
}

/// Whether the calling thread shares a schedule with others.
pub(super) fn is_shared() -> bool {
    PART.with_borrow(|part| part.as_ref().is_some_and(|p| p.schedule.lock().threads.len() > 1))
}

impl Schedule {
    /// Of so many threads, in the order that a seed says.
    pub(crate) fn new(
        threads: usize,
        seed: u64,
        doom: Option<Doom>,
        dead: &Arc<AtomicU64>,
    ) -> Arc<Self> {
        let mut random = Rng::with_seed(seed);
        let switch_one_in = random.choice(SWITCH_ONE_IN).unwrap_or((1, 1));
        let now = random.usize(0..threads.max(1));
        let threads = vec![Standing::Ready; threads];
        let turns = Mutex::new(Turns { random, switch_one_in, now, threads, doom, idle: 0 });
        dead.store(0, Ordering::SeqCst);
        Arc::new(Self { turns, turned: Condvar::new(), dead: dead.clone() })
    }

    /// Acts on the calling thread in its turns; where it dies, says at which point, and does `buried`
    /// while it is its turn still.
    pub(crate) fn run(
        self: &Arc<Self>,
        me: usize,
        act: impl FnOnce() -> Result<(), String>,
        buried: impl FnOnce(),
    ) -> Result<Option<Backtrace>, String> {
        let part = Part { schedule: self.clone(), me };
        PART.set(Some(part.clone()));
        watch_stores(Some(Box::new(part)));
        let done = catch_unwind(AssertUnwindSafe(|| {
            drop(self.in_turn(self.lock(), me));
            act().map(|()| None)
        }));
        watch_stores(None);
        PART.set(None);
        let done = done.unwrap_or_else(|payload| match payload.downcast::<Died>() {
            Ok(died) => {
                buried();
                Ok(Some(died.0))
            }
            Err(payload) => Err(panic_text(payload.as_ref())),
        });
        let mut turns = self.lock();
        turns.put(me, Standing::Ended);
        turns.stored();
        turns.choose(me);
        self.turned.notify_all();
        done
    }

    fn lock(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_dead(&self, me: usize) -> bool {
        self.dead.load(Ordering::SeqCst) >> me & 1 == 1
    }

    /// Comes to a point. A second death, on the way out of the first, ends the process.
    fn meet(&self, me: usize, of: Points) {
        let mut turns = self.lock();
        if self.is_dead(me) || turns.dies(me, of) {
            drop(turns);
            self.die(me);
        }
        turns.stored();
        let (in_pool, in_arena) = turns.switch_one_in;
        let one_in = if of == Points::Pool { in_pool } else { in_arena };
        if turns.random.u32(..).is_multiple_of(one_in) {
            turns.choose(me);
        }
        drop(self.in_turn(turns, me));
    }

    /// The calling thread dies.
    pub(crate) fn die(&self, me: usize) -> ! {
        self.dead.fetch_or(1 << me, Ordering::SeqCst);
        resume_unwind(Box::new(Died(Backtrace::force_capture())));
    }

    /// Sleeps until it is the thread's turn.
    fn in_turn<'t>(&'t self, mut turns: MutexGuard<'t, Turns>, me: usize) -> MutexGuard<'t, Turns> {
        self.turned.notify_all();
        while turns.now != me && turns.idle <= IDLE_MAX {
            turns = self.turned.wait(turns).unwrap_or_else(PoisonError::into_inner);
        }
        if turns.idle > IDLE_MAX {
            drop(turns);
            resume_unwind(Box::new("a deadlock: each client waits for another one".to_owned()));
        }
        turns
    }
}

impl Watcher for Part {
    fn stores(&self) -> bool {
        let lives = !self.schedule.is_dead(self.me);
        if lives {
            self.schedule.meet(self.me, Points::Arena);
        }
        lives
    }

    fn sleeps(&self) -> bool {
        if !self.schedule.is_dead(self.me) {
            let mut turns = self.schedule.lock();
            turns.put(self.me, Standing::Waiting);
            turns.choose(self.me);
            drop(self.schedule.in_turn(turns, self.me));
        }
        false
    }
}

impl Turns {
    fn put(&mut self, me: usize, standing: Standing) {
        if let Some(thread) = self.threads.get_mut(me) {
            *thread = standing;
        }
    }

    /// Something has changed: those who wait look again.
    fn stored(&mut self) {
        self.idle = 0;
        self.wake();
    }

    fn wake(&mut self) {
        let waiting = self.threads.iter_mut().filter(|thread| **thread == Standing::Waiting);
        waiting.for_each(|thread| *thread = Standing::Ready);
    }

    fn dies(&mut self, me: usize, of: Points) -> bool {
        let is_its = |doom: &&mut Doom| doom.thread == me && doom.points.is_none_or(|p| p == of);
        let Some(doom) = self.doom.as_mut().filter(is_its) else { return false };
        let dies = doom.left == 0;
        doom.left = doom.left.saturating_sub(1);
        dies
    }

    /// Whose turn it is next: another one's that does not wait, if there is one.
    fn choose(&mut self, me: usize) {
        if !self.threads.contains(&Standing::Ready) {
            self.idle += 1;
            self.wake();
        }
        let threads = self.threads.iter().enumerate();
        let ready = threads.filter(|(_, thread)| **thread == Standing::Ready).map(|(at, _)| at);
        let others: Vec<usize> = ready.filter(|at| *at != me).collect();
        self.now = self.random.choice(others).unwrap_or(me);
    }
}

/// The process of a client on a schedule: one that has ended long ago, but for [`lives`].
pub(super) fn process(me: usize) -> PidInfo {
    PidInfo { start_time: u64::MAX - me as u64, ..PidInfo::current() }
}

/// Whether a client of [`process`] lives.
pub(super) fn lives(dead: &AtomicU64, process: PidInfo) -> bool {
    let me = u64::MAX - process.start_time;
    me < u64::from(u64::BITS) && dead.load(Ordering::SeqCst) >> me & 1 == 0
}
