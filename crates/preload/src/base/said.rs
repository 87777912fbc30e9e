//! A value that is said once, when the library starts, and only read from then on.
//!
//! What the standard library has for this comes with code of its own, whose page each program that
//! starts would touch.

use std::cell::UnsafeCell;

/// Nothing at first.
pub(crate) struct Said<T>(UnsafeCell<Option<T>>);

// SAFETY: it is written while there is one thread, and read from then on.
unsafe impl<T: Sync> Sync for Said<T> {}

impl<T> Said<T> {
    pub(crate) const fn new() -> Self {
        Self(UnsafeCell::new(None))
    }

    /// Says the value.
    ///
    /// # Safety
    /// No thread of the program runs yet, and nobody has what [`Said::get`] returned.
    pub(crate) unsafe fn say(&self, value: T) {
        // SAFETY: nobody else reaches it.
        unsafe { *self.0.get() = Some(value) };
    }

    /// What was said.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: nobody writes to it after the start.
        unsafe { &*self.0.get() }.as_ref()
    }
}
