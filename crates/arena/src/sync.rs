//! Futex, locks that know their owner, and sequence counters.
//!
//! A lock is one word: the low half is the futex (0 free, else owner id and the contended bit), the
//! high half the owner's epoch. Orderings: taking a lock acquires what the last owner released,
//! and releases the intent noted before; [`SeqCount`] documents its own.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};
use std::time::Duration;

use crate::off::{high32, low32};

/// Set in a lock word while somebody may sleep on it.
const CONTENDED: u64 = 1 << 31;

/// How often a taken lock is looked at before sleeping: about a microsecond, longer than most
/// operations hold one.
const SPINS: u32 = 100;

/// Sleepers look this often whether the owner still lives.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(10);

/// Bits of the record index in an owner id.
const RECORD_BITS: u32 = 6;

/// Who holds a lock: a client slot, one of its operation records, and the client's epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner(u64);

impl Owner {
    pub(crate) fn new(slot: u32, record: u32, epoch: u32) -> Self {
        Self(u64::from(epoch) << 32 | u64::from(((slot + 1) << RECORD_BITS) | record))
    }

    /// The owner named by a lock word; none if it is free.
    #[must_use]
    pub fn of_lock_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self(word & !CONTENDED))
    }

    /// The client slot; a damaged word gives one that does not exist.
    #[must_use]
    pub fn slot(self) -> u32 {
        (low32(self.0) >> RECORD_BITS).wrapping_sub(1)
    }

    /// The operation record in that slot.
    #[must_use]
    pub fn record(self) -> u32 {
        low32(self.0) & ((1 << RECORD_BITS) - 1)
    }

    /// Tells successive clients of one slot apart.
    #[must_use]
    pub fn epoch(self) -> u32 {
        high32(self.0)
    }
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Owner(slot {}, record {}, epoch {})",
            self.slot(),
            self.record(),
            self.epoch()
        )
    }
}

/// Why [`lock`] gave up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The owner is dead.
    Dead(Owner),
    /// The caller is the owner.
    Held,
}

/// Takes the lock if it is free.
#[inline]
pub(crate) fn try_lock(word: &AtomicU64, owner: Owner) -> bool {
    word.compare_exchange(0, owner.0, AcqRel, Relaxed).is_ok()
}

/// Takes the lock; sleeps while a living owner has it.
#[inline]
pub(crate) fn lock(
    word: &AtomicU64,
    owner: Owner,
    is_dead: &dyn Fn(Owner) -> bool,
) -> Result<(), Refused> {
    if try_lock(word, owner) {
        Ok(())
    } else {
        lock_contended(word, owner, is_dead)
    }
}

/// The loops end when the lock is free or its owner dead; until then somebody alive works under it.
#[cold]
fn lock_contended(
    word: &AtomicU64,
    owner: Owner,
    is_dead: &dyn Fn(Owner) -> bool,
) -> Result<(), Refused> {
    for _ in 0..SPINS {
        let now = word.load(Relaxed);
        if now == 0 && try_lock(word, owner) {
            return Ok(());
        }
        if now & CONTENDED != 0 {
            break;
        }
        std::hint::spin_loop();
    }
    // Whoever has slept cannot know whether others still do, so it takes the lock as contended:
    // its own unlock then wakes the next. One wake-up too many is possible, one too few is not.
    let mut mine = owner.0;
    loop {
        let now = word.load(Relaxed);
        let Some(holder) = Owner::of_lock_word(now) else {
            if word.compare_exchange(0, mine, AcqRel, Relaxed).is_ok() {
                return Ok(());
            }
            continue;
        };
        if holder == owner {
            return Err(Refused::Held);
        }
        let contended = now | CONTENDED;
        if now != contended
            && word
                .compare_exchange(now, contended, Relaxed, Relaxed)
                .is_err()
        {
            continue;
        }
        let woken = futex_wait(word, low32(contended), LIVENESS_INTERVAL);
        mine = owner.0 | CONTENDED;
        if !woken && is_dead(holder) && word.load(Relaxed) == contended {
            return Err(Refused::Dead(holder));
        }
    }
}

/// Releases the lock if `owner` has it; wakes a sleeper. Says whether it had it.
#[inline]
pub(crate) fn unlock(word: &AtomicU64, owner: Owner) -> bool {
    word.compare_exchange(owner.0, 0, Release, Relaxed).is_ok() || unlock_contended(word, owner)
}

#[cold]
fn unlock_contended(word: &AtomicU64, owner: Owner) -> bool {
    // The contended bit is never taken off a held lock, so a second failure means that the lock
    // is not the caller's (any more: it was settled as dead's).
    let held = word
        .compare_exchange(owner.0 | CONTENDED, 0, Release, Relaxed)
        .is_ok();
    if held {
        futex_wake(word, 1);
    }
    held
}

/// Sleeps while the low half of `word` is `expected`, at most `timeout`. False: the time is up.
pub(crate) fn futex_wait(word: &AtomicU64, expected: u32, timeout: Duration) -> bool {
    let limit = libc::timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    // SAFETY: the kernel reads 4 bytes at the word's address, its low half, and the timespec; both
    // outlive the call. Not FUTEX_PRIVATE: other processes map the word too.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            &raw const limit,
            std::ptr::null::<u32>(),
            0_u32,
        )
    };
    result == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ETIMEDOUT)
}

/// Wakes up to `count` sleepers on `word`.
pub(crate) fn futex_wake(word: &AtomicU64, count: i32) {
    // SAFETY: the kernel uses the address as a key only; nothing is written.
    let woken = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE,
            count,
            0_usize,
            0_usize,
            0,
        )
    };
    debug_assert!(
        woken >= 0,
        "futex wake failed: {}",
        std::io::Error::last_os_error()
    );
}

/// A sequence counter: lets readers see whether what they read without a lock belongs together.
///
/// Odd while a writer changes what it guards. Writers hold a lock. A reader takes [`read_begin`],
/// reads words (relaxed is enough), and believes them only if [`read_valid`] then agrees.
///
/// Why the orderings suffice: a reader that sees any word written after `write_begin` has, by the
/// release fence there and the acquire fence in `read_valid`, the odd value before its second look
/// at the counter; a reader whose first look saw `write_end`'s value has acquired all it covers.
///
/// [`read_begin`]: SeqCount::read_begin
/// [`read_valid`]: SeqCount::read_valid
#[derive(Debug, Clone, Copy)]
pub struct SeqCount<'a>(&'a AtomicU64);

impl<'a> SeqCount<'a> {
    /// The counter in this word; 0 is a fresh one.
    #[must_use]
    pub fn new(word: &'a AtomicU64) -> Self {
        Self(word)
    }

    /// Starts reading; none while a writer is at work.
    #[inline]
    #[must_use]
    pub fn read_begin(self) -> Option<u64> {
        let start = self.0.load(Acquire);
        (start & 1 == 0).then_some(start)
    }

    /// True if nothing has changed since `read_begin` gave `start`.
    #[inline]
    #[must_use]
    pub fn read_valid(self, start: u64) -> bool {
        fence(Acquire);
        self.0.load(Relaxed) == start
    }

    /// Starts a change: the counter is odd until `write_end`. On a counter that a dead writer left
    /// odd it changes nothing, so that whoever settles for it goes through the same two calls.
    #[inline]
    pub fn write_begin(self) {
        let now = self.0.load(Relaxed);
        self.0.store(now | 1, Relaxed);
        fence(Release);
    }

    /// Ends a change.
    #[inline]
    pub fn write_end(self) {
        let now = self.0.load(Relaxed);
        self.0.store((now | 1).wrapping_add(1), Release);
    }
}
