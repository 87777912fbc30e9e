//! Futex, locks that know their owner, and sequence counters.
//!
//! A lock is one word: the low half is the futex (0 free, else owner id and the contended bit), the
//! high half the owner's epoch. Orderings: taking a lock acquires what the last owner released,
//! and releases the intent noted before; [`SeqCount`] documents its own.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::fence;
use std::time::{Duration, Instant};

use crate::base::off::{high32, low32};
use crate::base::word::{self, AtomicU64};

/// Set in a lock word while somebody may sleep on it.
const CONTENDED: u64 = 1 << 31;

/// How often a taken lock is looked at before sleeping: about a microsecond, longer than most
/// operations hold one.
const SPINS: u32 = 100;

/// Sleepers look this often whether the owner still lives. In this module's own tests hardly ever,
/// so that a lost wake-up is not made good by it.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(if cfg!(test) { 60_000 } else { 10 });

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
        write!(f, "Owner(slot {}, record {}, epoch {})", self.slot(), self.record(), self.epoch())
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

/// Whether an owner is dead, for whom the caller has slept so many times, one after the other, as far as it knows with
/// nobody who gave the lock up meanwhile.
pub(crate) type IsDead<'a> = &'a dyn Fn(Owner, u32) -> bool;

/// Takes the lock; sleeps while a living owner has it.
#[inline]
pub(crate) fn lock(word: &AtomicU64, owner: Owner, is_dead: IsDead<'_>) -> Result<(), Refused> {
    if try_lock(word, owner) { Ok(()) } else { lock_contended(word, owner, is_dead) }
}

/// The loops end when the lock is free or its owner dead; until then somebody alive works under it.
#[cold]
fn lock_contended(word: &AtomicU64, owner: Owner, is_dead: IsDead<'_>) -> Result<(), Refused> {
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
    // A client that has slept cannot know whether others still do, so it takes the lock as contended:
    // its own unlock then wakes the next. One wake-up too many is possible, one too few is not.
    let mut mine = owner.0;
    let (mut slept, mut slept_for) = (0_u32, owner);
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
        if now != contended && word.compare_exchange(now, contended, Relaxed, Relaxed).is_err() {
            continue;
        }
        let woken = wait_out(word, low32(contended), LIVENESS_INTERVAL);
        mine = owner.0 | CONTENDED;
        slept = if woken {
            0
        } else if holder == slept_for {
            slept.wrapping_add(1)
        } else {
            1
        };
        slept_for = holder;
        if !woken && is_dead(holder, slept) && word.load(Relaxed) == contended {
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
    let held = word.compare_exchange(owner.0 | CONTENDED, 0, Release, Relaxed).is_ok();
    if held {
        futex_wake(word, 1);
    }
    held
}

/// How a sleep on a word ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slept {
    /// Somebody woke the sleeper, or the word was another one already.
    Woken,
    /// A signal came.
    Interrupted,
    /// The time is up.
    TimeUp,
}

/// Sleeps as [`futex_wait`] does, and on where signals come: they say nothing of the word. False: the
/// time is up.
fn wait_out(word: &AtomicU64, expected: u32, timeout: Duration) -> bool {
    let mut left = timeout;
    let mut began = None;
    while !left.is_zero() {
        // Most sleeps are shorter than it takes to ask for the time: asked is from the first signal on.
        match futex_wait(word, expected, left) {
            Slept::Woken => return true,
            Slept::TimeUp => return false,
            Slept::Interrupted => {
                let began = began.get_or_insert_with(Instant::now);
                left = timeout.saturating_sub(began.elapsed());
            }
        }
    }
    false
}

/// Sleeps while the low half of `word` is `expected`, at most `timeout`.
pub(crate) fn futex_wait(word: &AtomicU64, expected: u32, timeout: Duration) -> Slept {
    if !word::sleeps() {
        return Slept::TimeUp;
    }
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
    if result == 0 {
        return Slept::Woken;
    }
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::ETIMEDOUT) => Slept::TimeUp,
        Some(libc::EINTR) => Slept::Interrupted,
        _ => Slept::Woken,
    }
}

/// Wakes up to `count` sleepers on `word`.
pub(crate) fn futex_wake(word: &AtomicU64, count: i32) {
    // SAFETY: the kernel uses the address as a key only; nothing is written.
    let woken = unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count, 0_usize, 0_usize, 0)
    };
    debug_assert!(woken >= 0, "futex wake failed: {}", std::io::Error::last_os_error());
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
    /// odd it changes nothing, so that the client that settles for it goes through the same two calls.
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const NEVER: IsDead<'_> = &|_, _| false;

    /// Adds one under the lock, for longer than others spin.
    fn count_slowly(word: &AtomicU64, count: &AtomicU64, owner: Owner, turn: u64) {
        lock(word, owner, NEVER).unwrap();
        let before = count.load(Relaxed);
        if turn.is_multiple_of(3) {
            std::thread::yield_now();
        }
        for _ in 0..turn % 512 {
            std::hint::spin_loop();
        }
        count.store(before + 1, Relaxed);
        assert!(unlock(word, owner));
    }

    /// Most of the threads sleep at any time; each sleeper must be woken by an unlock, as nothing
    /// else would wake it.
    #[test]
    fn no_wake_up_is_lost() {
        const THREADS: u32 = 6;
        const TURNS: u64 = 3000;
        let start = Instant::now();
        let words = [const { AtomicU64::new(0) }; 2];
        let counts = [const { AtomicU64::new(0) }; 2];
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (words, counts) = (&words, &counts);
                let owner = Owner::new(3, thread, 9);
                scope.spawn(move || {
                    (0..TURNS).for_each(|turn| {
                        let which = usize::from(turn % 7 == 0);
                        count_slowly(&words[which], &counts[which], owner, turn);
                    });
                });
            }
        });
        let sum: u64 = counts.iter().map(|count| count.load(Relaxed)).sum();
        assert_eq!(sum, u64::from(THREADS) * TURNS, "two threads were in at once");
        assert!(start.elapsed() < LIVENESS_INTERVAL, "a sleeper was woken by the clock");
    }

    #[test]
    fn a_sleeper_marks_the_lock_and_the_unlock_wakes_it() {
        let word = AtomicU64::new(0);
        let (first, second) = (Owner::new(0, 0, 1), Owner::new(0, 1, 1));
        assert!(try_lock(&word, first));
        assert!(!try_lock(&word, second));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| lock(&word, second, NEVER));
            while word.load(Relaxed) & CONTENDED == 0 {
                std::thread::yield_now();
            }
            assert_eq!(Owner::of_lock_word(word.load(Relaxed)), Some(first));
            assert!(!unlock(&word, second), "only the owner unlocks");
            assert!(unlock(&word, first));
            assert_eq!(sleeper.join().unwrap(), Ok(()));
        });
        assert_eq!(Owner::of_lock_word(word.load(Relaxed)), Some(second));
        assert!(unlock(&word, second));
        assert_eq!(word.load(Relaxed), 0);
    }

    #[test]
    fn owners_are_told_apart_and_never_look_free() {
        for owner in [Owner::new(0, 0, 0), Owner::new(255, 63, u32::MAX), Owner::new(7, 5, 1)] {
            assert_eq!(Owner::of_lock_word(owner.0 | CONTENDED), Some(owner));
            assert_eq!(owner, Owner::new(owner.slot(), owner.record(), owner.epoch()));
            assert_ne!(low32(owner.0), 0);
        }
        assert_ne!(Owner::new(1, 0, 0), Owner::new(0, 63, 0));
    }

    /// Three words written together; a client that validates must have read them together.
    #[test]
    fn a_valid_read_is_a_whole_one() {
        const WRITES: u64 = 200_000;
        let count = AtomicU64::new(0);
        let data = [const { AtomicU64::new(0) }; 3];
        let done = AtomicU64::new(0);
        let seq = SeqCount::new(&count);
        let read = || {
            let Some(start) = seq.read_begin() else { return };
            let seen = [0, 1, 2].map(|i: usize| data[i].load(Relaxed));
            if seq.read_valid(start) {
                assert_eq!(seen, [start / 2, start, start * 3]);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while done.load(Relaxed) == 0 {
                        read();
                    }
                });
            }
            for write in 1..=WRITES {
                seq.write_begin();
                data[0].store(write, Relaxed);
                data[1].store(write * 2, Relaxed);
                data[2].store(write * 6, Relaxed);
                seq.write_end();
            }
            done.store(1, Relaxed);
        });
        assert_eq!(count.load(Relaxed), 2 * WRITES);
    }

    #[test]
    fn a_counter_that_a_dead_writer_left_odd_becomes_even_again() {
        let count = AtomicU64::new(0);
        let seq = SeqCount::new(&count);
        seq.write_begin();
        assert_eq!(seq.read_begin(), None);
        seq.write_begin();
        seq.write_end();
        let start = seq.read_begin().unwrap();
        assert!(start > 0 && seq.read_valid(start));
    }
}
