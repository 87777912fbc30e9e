//! The words of the segment: the machine's atomic ones, and where the lab asks for it, ones that tell
//! of each store before it happens.
//!
//! Only the feature `watched-stores`, which nothing but the lab asks for, makes them tell. Without it
//! the type is the standard library's.

#[cfg(not(feature = "watched-stores"))]
pub use std::sync::atomic::AtomicU64;

/// Whether a copy of bytes into the segment happens.
#[cfg(not(feature = "watched-stores"))]
#[inline]
pub(crate) const fn copy_happens() -> bool {
    true
}

#[cfg(feature = "watched-stores")]
pub use watched::{AtomicU64, Watcher, watch_stores};
#[cfg(feature = "watched-stores")]
pub(crate) use watched::{happens as copy_happens, sleeps};

/// Words without whoever watches them.
pub(crate) fn machine_words(words: &[AtomicU64]) -> &[std::sync::atomic::AtomicU64] {
    let first = words.as_ptr().cast();
    // SAFETY: the type is the machine's, or a transparent wrapper of it.
    unsafe { std::slice::from_raw_parts(first, words.len()) }
}

/// The same of one.
pub(crate) fn machine_word(word: &AtomicU64) -> &std::sync::atomic::AtomicU64 {
    let machine: *const std::sync::atomic::AtomicU64 = std::ptr::from_ref(word).cast();
    // SAFETY: as above.
    unsafe { &*machine }
}

/// Asks for the line that a word is in to be brought into the cache.
#[inline(always)]
pub(crate) fn prefetch(word: &AtomicU64) {
    let at: *const AtomicU64 = word;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _none = at;
}

/// Whether the calling thread is to sleep until another one changes a word.
#[cfg(not(feature = "watched-stores"))]
pub(crate) const fn sleeps() -> bool {
    true
}

#[cfg(feature = "watched-stores")]
mod watched {
    use std::cell::{Cell, RefCell};
    use std::sync::atomic::Ordering::{self, Relaxed};

    /// Told of what its thread is about to do with words of any segment. Each may let other threads run
    /// meanwhile.
    pub trait Watcher {
        /// A store; says whether it happens. It may unwind, and then refuses all that is stored on the
        /// way out: so a client dies between two stores.
        fn stores(&self) -> bool;

        /// A sleep until another thread changes a word; says whether it happens: one that does not is
        /// over at once.
        fn sleeps(&self) -> bool;
    }

    thread_local! {
        static IS_WATCHED: Cell<bool> = const { Cell::new(false) };
        static WATCHER: RefCell<Option<Box<dyn Watcher>>> = const { RefCell::new(None) };
    }

    /// Sets, or takes away, who watches the stores of the calling thread to words of any segment.
    pub fn watch_stores(watcher: Option<Box<dyn Watcher>>) {
        IS_WATCHED.set(watcher.is_some());
        WATCHER.set(watcher);
    }

    #[inline]
    pub(crate) fn happens() -> bool {
        !IS_WATCHED.get() || ask(|watcher| watcher.stores())
    }

    /// Whether the calling thread is to sleep until another one changes a word.
    pub(crate) fn sleeps() -> bool {
        !IS_WATCHED.get() || ask(|watcher| watcher.sleeps())
    }

    #[cold]
    fn ask(what: impl Fn(&dyn Watcher) -> bool) -> bool {
        WATCHER.with_borrow(|watcher| watcher.as_deref().is_none_or(what))
    }

    /// A word of the segment. Of a store that the watcher refuses the caller is told that it happened.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub struct AtomicU64(std::sync::atomic::AtomicU64);

    macro_rules! changes {
        ($($name:ident)*) => {$(
            /// As the standard library's.
            #[inline]
            pub fn $name(&self, value: u64, order: Ordering) -> u64 {
                if happens() { self.0.$name(value, order) } else { self.0.load(Relaxed) }
            }
        )*};
    }

    macro_rules! exchanges {
        ($($name:ident)*) => {$(
            /// As the standard library's.
            ///
            /// # Errors
            /// The value, where it is another one than `current`.
            #[inline]
            pub fn $name(
                &self,
                current: u64,
                new: u64,
                success: Ordering,
                failure: Ordering,
            ) -> Result<u64, u64> {
                if happens() { self.0.$name(current, new, success, failure) } else { Ok(current) }
            }
        )*};
    }

    impl AtomicU64 {
        /// As the standard library's.
        #[must_use]
        pub const fn new(value: u64) -> Self {
            Self(std::sync::atomic::AtomicU64::new(value))
        }

        /// As the standard library's.
        #[inline]
        pub fn load(&self, order: Ordering) -> u64 {
            self.0.load(order)
        }

        /// As the standard library's.
        #[inline]
        pub fn store(&self, value: u64, order: Ordering) {
            if happens() {
                self.0.store(value, order);
            }
        }

        changes! { swap fetch_add fetch_sub fetch_and fetch_or fetch_max }
        exchanges! { compare_exchange compare_exchange_weak }

        /// As the standard library's.
        ///
        /// # Errors
        /// The value, where `change` gave none.
        #[inline]
        pub fn fetch_update(
            &self,
            success: Ordering,
            failure: Ordering,
            change: impl FnMut(u64) -> Option<u64>,
        ) -> Result<u64, u64> {
            if happens() {
                self.0.fetch_update(success, failure, change)
            } else {
                Ok(self.0.load(Relaxed))
            }
        }

        /// As the standard library's.
        #[inline]
        #[must_use]
        pub const fn as_ptr(&self) -> *mut u64 {
            self.0.as_ptr()
        }
    }
}
