//! The shards: one a thread and pool, found by a thread-local pointer.
//!
//! A store that a fence waits for costs about 2 ns more for each counter changed before the fence,
//! so the common calls change one each: whole lines are counted as lines, their bytes follow.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::Counters;
use crate::{LINE, Purpose, lines_touched};

/// A count that only its own thread changes; others read it.
#[derive(Debug, Default)]
struct Count(AtomicU64);

impl Count {
    /// Not an atomic addition: there is one writer.
    #[inline(always)]
    fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed) + n, Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Stores of one manner: those of whole lines, and the others.
#[derive(Debug, Default)]
struct Stores {
    whole_lines: Count,
    part_lines: Count,
    part_bytes: Count,
}

impl Stores {
    #[inline(always)]
    fn add(&self, byte: u64, len: u64) {
        if (byte | len).is_multiple_of(LINE) {
            self.whole_lines.add(len / LINE);
        } else {
            self.part_lines.add(lines_touched(byte, len));
            self.part_bytes.add(len);
        }
    }

    fn lines(&self) -> u64 {
        self.whole_lines.get() + self.part_lines.get()
    }

    fn bytes(&self) -> u64 {
        self.whole_lines.get() * LINE + self.part_bytes.get()
    }
}

/// What one thread did to one slot for one purpose: a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Tally {
    plain: Stores,
    streamed: Stores,
    write_backs: Count,
}

const _: () = assert!(size_of::<Tally>() == 64);

/// One thread's counts for one pool.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Shard {
    /// Twice the fences that had something pending; the lowest bit: something is pending now.
    fences_with_pending: Count,
    fences_without: Count,
    fences_before_commits: Count,
    /// By slot and purpose.
    tallies: Box<[[Tally; Purpose::ALL.len()]]>,
}

impl Shard {
    fn new(slots: usize) -> Self {
        Self {
            fences_with_pending: Count::default(),
            fences_without: Count::default(),
            fences_before_commits: Count::default(),
            tallies: (0..slots).map(|_| Default::default()).collect(),
        }
    }

    /// The counts of `slot` and `purpose`; there is always one, as the access was checked.
    #[inline(always)]
    fn tally(&self, slot: u8, purpose: Purpose) -> Option<&Tally> {
        self.tallies.get(usize::from(slot))?.get(purpose as usize)
    }

    /// A plain store of `len` bytes from byte `byte` of `slot`.
    #[inline(always)]
    pub(crate) fn stored(&self, purpose: Purpose, slot: u8, byte: u64, len: u64) {
        if let Some(tally) = self.tally(slot, purpose) {
            tally.plain.add(byte, len);
        }
    }

    /// A streaming store of `len` bytes from byte `byte` of `slot`.
    #[inline(always)]
    pub(crate) fn streamed(&self, purpose: Purpose, slot: u8, byte: u64, len: u64) {
        if let Some(tally) = self.tally(slot, purpose) {
            tally.streamed.add(byte, len);
        }
        self.pend();
    }

    /// `lines` lines of `slot` are written back.
    #[inline(always)]
    pub(crate) fn written_back(&self, purpose: Purpose, slot: u8, lines: u64) {
        if let Some(tally) = self.tally(slot, purpose) {
            tally.write_backs.add(lines);
        }
        self.pend();
    }

    #[inline(always)]
    fn pend(&self) {
        let word = &self.fences_with_pending.0;
        word.store(word.load(Relaxed) | 1, Relaxed);
    }

    /// A fence.
    #[inline(always)]
    pub(crate) fn fenced(&self) {
        let pending = self.fences_with_pending.get() & 1;
        if pending == 1 {
            // Clears the bit and carries one fence.
            self.fences_with_pending.add(1);
        } else {
            self.fences_without.add(1);
        }
    }

    /// The last fence was one that a commit waited for before it stores its line.
    #[inline(always)]
    pub(crate) fn fenced_before_commit(&self) {
        self.fences_before_commits.add(1);
    }

    /// Adds the counts so far to `sum`; `eadr`: what is stored reaches the slot.
    pub(crate) fn add_to(&self, sum: &mut Counters, eadr: bool) {
        for (of_slot, slot_lines) in self.tallies.iter().zip(&mut sum.slot_lines) {
            for (tally, purpose) in of_slot.iter().zip(&mut sum.purposes) {
                let (plain, streamed) = (tally.plain.lines(), tally.streamed.lines());
                let write_backs = tally.write_backs.get();
                purpose.lines += plain + streamed;
                purpose.lines_streamed += streamed;
                purpose.write_backs += write_backs;
                purpose.bytes += tally.plain.bytes() + tally.streamed.bytes();
                *slot_lines += streamed + write_backs + if eadr { plain } else { 0 };
            }
        }
        let with_pending = self.fences_with_pending.get() / 2;
        sum.fences += with_pending + self.fences_without.get();
        sum.fences_with_pending += with_pending;
        sum.fences_before_commits += self.fences_before_commits.get();
    }
}

/// All shards of one pool.
#[derive(Debug)]
pub(crate) struct Registry {
    /// Never reused in this process, so that a thread's stale pointer matches no other pool.
    id: u64,
    /// Slots of the pool.
    slots: usize,
    /// What is stored reaches the slot.
    eadr: bool,
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
    eadr: bool,
    registry: Weak<Mutex<Inner>>,
    shard: Arc<Shard>,
}

impl Drop for Held {
    fn drop(&mut self) {
        // The pointer in CURRENT may be to this shard: the next use looks it up again.
        CURRENT.set((0, ptr::null()));
        if let Some(registry) = self.registry.upgrade() {
            let mut inner = registry.lock().unwrap_or_else(PoisonError::into_inner);
            self.shard.add_to(&mut inner.retired, self.eadr);
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
    pub(crate) fn new(slots: usize, eadr: bool) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Self { id: NEXT_ID.fetch_add(1, Relaxed), slots, eadr, inner: Arc::default() }
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
            held.borrow().iter().find(|h| h.id == self.id).map(|h| Arc::as_ptr(&h.shard))
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
        let shard = Arc::new(Shard::new(self.slots));
        let pointer = Arc::as_ptr(&shard);
        self.lock().live.push(Arc::clone(&shard));
        if until_thread_ends {
            let registry = Arc::downgrade(&self.inner);
            HELD.with(|held| {
                let mut all = held.borrow_mut();
                all.retain(|h| h.registry.strong_count() > 0);
                all.push(Held { id: self.id, eadr: self.eadr, registry, shard });
            });
        }
        pointer
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts of all threads.
    pub(crate) fn counters(&self) -> Counters {
        let inner = self.lock();
        let mut sum = inner.retired.clone();
        for shard in &inner.live {
            shard.add_to(&mut sum, self.eadr);
        }
        sum
    }

    /// The counts of the calling thread.
    pub(crate) fn thread_counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.shard().add_to(&mut sum, self.eadr);
        sum
    }
}
