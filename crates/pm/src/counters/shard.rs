//! The shards: one a thread and pool, found by a thread-local pointer.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Counters, PurposeCounters, SLOTS_MAX};
use crate::Purpose;

/// A count that only its own thread changes; others read it.
#[derive(Debug)]
struct Count(AtomicU64);

impl Count {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Not an atomic addition: there is one writer.
    #[inline(always)]
    fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed) + n, Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The counts of one purpose.
#[derive(Debug)]
struct PurposeCounts {
    lines: Count,
    lines_streamed: Count,
    write_backs: Count,
    bytes: Count,
}

impl PurposeCounts {
    const fn new() -> Self {
        Self {
            lines: Count::new(),
            lines_streamed: Count::new(),
            write_backs: Count::new(),
            bytes: Count::new(),
        }
    }
}

/// One thread's counts for one pool, on lines of their own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Shard {
    purposes: [PurposeCounts; Purpose::ALL.len()],
    fences: Count,
    fences_with_pending: Count,
    /// 1 when this thread has written back or streamed since its last fence.
    pending: AtomicU64,
    slot_lines: [Count; SLOTS_MAX],
}

impl Shard {
    fn new() -> Self {
        Self {
            purposes: [const { PurposeCounts::new() }; Purpose::ALL.len()],
            fences: Count::new(),
            fences_with_pending: Count::new(),
            pending: AtomicU64::new(0),
            slot_lines: [const { Count::new() }; SLOTS_MAX],
        }
    }

    #[inline(always)]
    fn of(&self, purpose: Purpose) -> &PurposeCounts {
        let [data, log, commit, journal, inode, other] = &self.purposes;
        match purpose {
            Purpose::Data => data,
            Purpose::Log => log,
            Purpose::Commit => commit,
            Purpose::Journal => journal,
            Purpose::Inode => inode,
            Purpose::Other => other,
        }
    }

    /// `lines` lines are sent to `slot`.
    #[inline(always)]
    pub(crate) fn sent(&self, slot: u8, lines: u64) {
        if let Some(count) = self.slot_lines.get(usize::from(slot)) {
            count.add(lines);
        }
    }

    /// A plain store of `bytes` bytes on `lines` lines.
    #[inline(always)]
    pub(crate) fn stored(&self, purpose: Purpose, lines: u64, bytes: u64) {
        let counts = self.of(purpose);
        counts.lines.add(lines);
        counts.bytes.add(bytes);
    }

    /// A streaming store of `bytes` bytes on `lines` lines of `slot`.
    #[inline(always)]
    pub(crate) fn streamed(&self, purpose: Purpose, slot: u8, lines: u64, bytes: u64) {
        let counts = self.of(purpose);
        counts.lines.add(lines);
        counts.lines_streamed.add(lines);
        counts.bytes.add(bytes);
        self.sent(slot, lines);
        self.pending.store(1, Relaxed);
    }

    /// `lines` lines of `slot` are written back.
    #[inline(always)]
    pub(crate) fn written_back(&self, purpose: Purpose, slot: u8, lines: u64) {
        self.of(purpose).write_backs.add(lines);
        self.sent(slot, lines);
        self.pending.store(1, Relaxed);
    }

    /// A fence.
    #[inline(always)]
    pub(crate) fn fenced(&self) {
        self.fences.add(1);
        self.fences_with_pending.add(self.pending.load(Relaxed));
        self.pending.store(0, Relaxed);
    }

    /// The counts so far.
    pub(crate) fn counters(&self) -> Counters {
        Counters {
            purposes: self.purposes.each_ref().map(|p| PurposeCounters {
                lines: p.lines.get(),
                lines_streamed: p.lines_streamed.get(),
                write_backs: p.write_backs.get(),
                bytes: p.bytes.get(),
            }),
            slot_lines: self.slot_lines.each_ref().map(Count::get),
            fences: self.fences.get(),
            fences_with_pending: self.fences_with_pending.get(),
        }
    }
}

/// All shards of one pool.
#[derive(Debug)]
pub(crate) struct Registry {
    /// Never reused in this process, so that a thread's stale pointer matches no other pool.
    id: u64,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    live: Vec<Arc<Shard>>,
    /// The counts of threads that ended.
    retired: Counters,
}

/// A thread's hold on its shard; gives the counts to the pool when the thread ends.
#[derive(Debug)]
struct Held {
    id: u64,
    registry: Weak<Mutex<Inner>>,
    shard: Arc<Shard>,
}

impl Drop for Held {
    fn drop(&mut self) {
        // The pointer in CURRENT may be to this shard: the next use looks it up again.
        CURRENT.set((0, ptr::null()));
        if let Some(registry) = self.registry.upgrade() {
            let mut inner = registry.lock().unwrap_or_else(PoisonError::into_inner);
            inner.retired.add(&self.shard.counters());
            inner.live.retain(|shard| !Arc::ptr_eq(shard, &self.shard));
        }
    }
}

thread_local! {
    /// The registry used last by this thread and its shard there. It has no destructor, so it can
    /// be read as long as the thread runs.
    static CURRENT: Cell<(u64, *const Shard)> = const { Cell::new((0, ptr::null())) };
    /// All shards of this thread.
    static HELD: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) };
}

impl Registry {
    pub(crate) fn new() -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Self {
            id: NEXT_ID.fetch_add(1, Relaxed),
            inner: Arc::default(),
        }
    }

    /// The calling thread's shard.
    #[inline(always)]
    pub(crate) fn shard(&self) -> &Shard {
        let (id, shard) = CURRENT.get();
        let shard = if id == self.id { shard } else { self.find() };
        // SAFETY: a pointer in CURRENT is to a shard that HELD of this thread or, after HELD is
        // gone, the registry keeps alive; `Held::drop` clears CURRENT first. With the same id it
        // is this registry's, which `self` keeps alive, and HELD drops only dead registries'.
        unsafe { &*shard }
    }

    /// Looks up or makes the calling thread's shard and remembers it in CURRENT.
    #[cold]
    #[inline(never)]
    fn find(&self) -> *const Shard {
        let known = HELD.try_with(|held| {
            held.borrow()
                .iter()
                .find(|h| h.id == self.id)
                .map(|h| Arc::as_ptr(&h.shard))
        });
        let shard = match known {
            Ok(Some(shard)) => shard,
            Ok(None) => self.register(true),
            // The thread is ending: the pool keeps this shard until it is closed.
            Err(_) => self.register(false),
        };
        CURRENT.set((self.id, shard));
        shard
    }

    fn register(&self, until_thread_ends: bool) -> *const Shard {
        let shard = Arc::new(Shard::new());
        let pointer = Arc::as_ptr(&shard);
        self.lock().live.push(Arc::clone(&shard));
        if until_thread_ends {
            let registry = Arc::downgrade(&self.inner);
            HELD.with(|held| {
                let mut all = held.borrow_mut();
                all.retain(|h| h.registry.strong_count() > 0);
                all.push(Held {
                    id: self.id,
                    registry,
                    shard,
                });
            });
        }
        pointer
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts of all threads.
    pub(crate) fn counters(&self) -> Counters {
        let inner = self.lock();
        let mut sum = inner.retired.clone();
        for shard in &inner.live {
            sum.add(&shard.counters());
        }
        sum
    }
}
