//! The shards: one a thread and pool, found by a thread-local pointer.
//!
//! Their words are this process' own, or where others may read them: what counts then in words that an
//! earlier thread, or an earlier process, has left goes on from there.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::words::{self, HEAD_LINES, LINE_WORDS, Line, Row, Shard};
use super::{CountSource, CountWords, Counters};

/// A line of a process' own.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct OwnLine(Line);

const _: () = assert!(size_of::<OwnLine>() == size_of::<Line>());

/// Words of a process' own.
struct OwnWords(Box<[OwnLine]>);

impl AsRef<[AtomicU64]> for OwnWords {
    fn as_ref(&self) -> &[AtomicU64] {
        let words = self.0.len() * LINE_WORDS;
        // SAFETY: a line is eight words and nothing else.
        unsafe { slice::from_raw_parts(self.0.as_ptr().cast(), words) }
    }
}

/// Words of a shard.
struct Block {
    /// In `words`, and as long as these.
    first: *const Line,
    /// Has as many lines as the pool needs, which are never handed out for changing.
    _words: CountWords,
    /// What they said when this process got them.
    base: Box<[u64]>,
    /// Whether a thread counts in them.
    in_use: bool,
}

// SAFETY: the pointer is to words that the block keeps, which are atomic.
unsafe impl Send for Block {}

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

#[derive(Default)]
struct Inner {
    source: Option<CountSource>,
    blocks: Vec<Block>,
    /// The block in which all threads count that have dropped what they hold already, as they end: none of
    /// them could give one back. Two that end at once may lose each other's counts.
    of_ending: Option<usize>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("blocks", &self.blocks.len()).finish_non_exhaustive()
    }
}

/// A thread's hold on its shard; when the thread ends another one may count on in it.
#[derive(Debug)]
struct Held {
    id: u64,
    registry: Weak<Mutex<Inner>>,
    first: *const Line,
    /// What the words said when the thread got them.
    base: Box<[u64]>,
}

impl Drop for Held {
    fn drop(&mut self) {
        // The pointer in CURRENT may be to this shard: the next use looks it up again.
        CURRENT.set((0, ptr::null()));
        if let Some(registry) = self.registry.upgrade() {
            let mut inner = registry.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(own) = inner.blocks.iter_mut().find(|block| block.first == self.first) {
                own.in_use = false;
            }
        }
    }
}

thread_local! {
    /// The registry used last by this thread and its shard there. It has no destructor, so it can
    /// be read as long as the thread runs.
    static CURRENT: Cell<(u64, *const Line)> = const { Cell::new((0, ptr::null())) };
    /// All shards of this thread.
    static HELD: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) };
}

impl Registry {
    pub(crate) fn new(slots: usize, eadr: bool) -> Self {
        Self::with(slots, eadr, None)
    }

    fn with(slots: usize, eadr: bool, source: Option<CountSource>) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let inner = Arc::new(Mutex::new(Inner { source, ..Inner::default() }));
        Self { id: NEXT_ID.fetch_add(1, Relaxed), slots, eadr, inner }
    }

    /// The same, counting on in other words; the calling thread's get what was counted so far.
    pub(crate) fn moved(&self, source: Option<CountSource>) -> Self {
        let moved = Self::with(self.slots, self.eadr, source);
        for block in &self.lock().blocks {
            let now = self.shard_at(block.first).snapshot();
            moved.shard().add_all(&words::since(&now, &block.base));
        }
        moved
    }

    /// The calling thread's shard.
    #[inline(always)]
    pub(crate) fn shard(&self) -> Shard<'_> {
        let (id, first) = CURRENT.get();
        self.shard_at(if id == self.id { first } else { self.find() })
    }

    /// The shard whose words begin there.
    #[inline(always)]
    fn shard_at(&self, first: *const Line) -> Shard<'_> {
        // SAFETY: a pointer in CURRENT is to words of a block of the registry with that id, as `find`
        // and the blocks themselves have them; a block stays as long as its registry, here `self`, and
        // has `lines_for(self.slots)` lines.
        let head = unsafe { &*first.cast::<[Line; HEAD_LINES]>() };
        let rows = first.wrapping_add(HEAD_LINES).cast::<Row>();
        // SAFETY: as above: so many rows follow the head.
        let rows = unsafe { slice::from_raw_parts(rows, self.slots) };
        Shard { head, rows }
    }

    /// Looks up or makes the calling thread's shard and remembers it in CURRENT.
    #[cold]
    #[inline(never)]
    fn find(&self) -> *const Line {
        let known = HELD.try_with(|held| {
            held.borrow().iter().find(|held| held.id == self.id).map(|held| held.first)
        });
        let first = match known {
            Ok(Some(first)) => first,
            Ok(None) => self.register(),
            Err(_) => self.of_ending(),
        };
        CURRENT.set((self.id, first));
        first
    }

    /// Words for the calling thread until it ends.
    fn register(&self) -> *const Line {
        let (first, _) = self.take(&mut self.lock());
        let shard = self.shard_at(first);
        shard.begin(self.eadr);
        let registry = Arc::downgrade(&self.inner);
        let base = shard.snapshot();
        HELD.with(|held| {
            let mut all = held.borrow_mut();
            all.retain(|held| held.registry.strong_count() > 0);
            all.push(Held { id: self.id, registry, first, base });
        });
        first
    }

    /// Words for a thread that ends, and has dropped what it holds.
    fn of_ending(&self) -> *const Line {
        let mut inner = self.lock();
        if let Some(block) = inner.of_ending.and_then(|index| inner.blocks.get(index)) {
            return block.first;
        }
        let (first, index) = self.take(&mut inner);
        inner.of_ending = Some(index);
        self.shard_at(first).begin(self.eadr);
        first
    }

    /// Words in which nobody else counts: those of a thread that ended, or more; and which block they are.
    fn take(&self, inner: &mut Inner) -> (*const Line, usize) {
        if let Some(index) = inner.blocks.iter().position(|block| !block.in_use)
            && let Some(left) = inner.blocks.get_mut(index)
        {
            left.in_use = true;
            return (left.first, index);
        }
        let lines = words::lines_for(self.slots);
        let given = inner.source.as_ref().and_then(|source| source(lines * LINE_WORDS));
        let given = given.filter(|words| (**words).as_ref().len() >= lines * LINE_WORDS);
        let words = given.unwrap_or_else(|| {
            let own = std::iter::repeat_with(OwnLine::default).take(lines).collect();
            Box::new(OwnWords(own))
        });
        let first = (*words).as_ref().as_ptr().cast();
        let base = self.shard_at(first).snapshot();
        inner.blocks.push(Block { first, _words: words, base, in_use: true });
        (first, inner.blocks.len() - 1)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts of all threads.
    pub(crate) fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for block in &self.lock().blocks {
            let now = self.shard_at(block.first).snapshot();
            sum += &words::counters(&words::since(&now, &block.base));
        }
        sum
    }

    /// The counts of the calling thread.
    pub(crate) fn thread_counters(&self) -> Counters {
        let now = self.shard().snapshot();
        let counted = HELD.try_with(|held| {
            let held = held.borrow();
            let own = held.iter().find(|held| held.id == self.id);
            own.map(|own| words::counters(&words::since(&now, &own.base)))
        });
        counted.ok().flatten().unwrap_or_else(|| words::counters(&now))
    }
}
