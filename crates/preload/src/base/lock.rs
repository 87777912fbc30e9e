//! A lock for this library's own tables: no allocation, and it can be held across a fork.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::base::sys::sys;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const WAITED_FOR: u32 = 2;
/// Looks at a lock before its thread sleeps: most are held for as long as a few of them take.
const LOOKS: u32 = 200;

/// A value that one thread at a time may use. Holders are inside the library, so no signal handler
/// of the program interrupts them.
pub(crate) struct Lock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by the one who has the lock, one thread at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    pub(crate) fn lock(&self) -> Held<'_, T> {
        self.take();
        Held(self)
    }

    /// Takes the lock without a guard, for what [`Lock::give`] ends in the child of a fork too.
    pub(crate) fn take(&self) {
        let free = || {
            self.word.load(Ordering::Relaxed) == FREE
                && self
                    .word
                    .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        };
        for _ in 0..LOOKS {
            if free() {
                return;
            }
            std::hint::spin_loop();
        }
        self.wait();
    }

    #[cold]
    fn wait(&self) {
        while self.word.swap(WAITED_FOR, Ordering::Acquire) != FREE {
            let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
            sys!(libc::SYS_futex, self.word.as_ptr(), wait, WAITED_FOR, 0);
        }
    }

    /// Stores the value without a look at the lock.
    ///
    /// # Safety
    /// No other thread has a way to the lock.
    pub(crate) unsafe fn set_alone(&self, value: T) {
        // SAFETY: nobody else reaches it.
        unsafe { *self.value.get() = value };
    }

    /// Makes the lock free, no matter who has it; the value stays.
    ///
    /// # Safety
    /// There is no other thread: who has it does not exist in this process, a child made by fork.
    pub(crate) unsafe fn reset(&self) {
        self.word.store(FREE, Ordering::Relaxed);
    }

    pub(crate) fn give(&self) {
        if self.word.swap(FREE, Ordering::Release) == WAITED_FOR {
            let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
            sys!(libc::SYS_futex, self.word.as_ptr(), wake, 1);
        }
    }
}

impl<T> Lock<Option<T>> {
    /// Takes the value without a look at the lock.
    ///
    /// # Safety
    /// As for [`Lock::set_alone`].
    pub(crate) unsafe fn take_alone(&self) -> Option<T> {
        // SAFETY: nobody else reaches it.
        let value = unsafe { &mut *self.value.get() };
        value.take()
    }
}

pub(crate) struct Held<'a, T>(&'a Lock<T>);

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held for as long as `self` lives.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.0.give();
    }
}
