//! Places that are never freed: a handler of signals, or the child of a fork, finds them without a lock, and while
//! another thread gives one up. Who has one says so in it, and another takes it over.

use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

struct Place<T: 'static> {
    place: T,
    next: Option<&'static Self>,
}

/// The places of one kind.
pub(super) struct Places<T: 'static>(AtomicPtr<Place<T>>);

impl<T: Sync + 'static> Places<T> {
    pub(super) const fn none() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    fn first(&self) -> Option<&'static Place<T>> {
        // SAFETY: what is linked here is never freed.
        unsafe { self.0.load(Acquire).as_ref() }
    }

    /// All that there are, the newest first.
    pub(super) fn all(&self) -> impl Iterator<Item = &'static T> {
        std::iter::successors(self.first(), |found| found.next).map(|found| &found.place)
    }

    /// Makes one more.
    pub(super) fn add(&self, place: T) -> &'static T {
        let new = Box::leak(Box::new(Place { place, next: None }));
        loop {
            let next = self.first();
            new.next = next;
            let expected = next.map_or(ptr::null_mut(), |next| ptr::from_ref(next).cast_mut());
            if self.0.compare_exchange(expected, new, Release, Acquire).is_ok() {
                return &new.place;
            }
        }
    }
}
