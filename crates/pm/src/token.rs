//! What a store still owes before it survives power loss, as types.
//!
//! Only [`Pm`](crate::Pm) makes these, and only its `write_back` and `fence` change one into the
//! next. They stay on their thread: a fence completes only its own thread's write-backs.
//!
//! Each pair below differs by one step; without it the program does not compile. `publish` stands
//! for what makes bytes reachable.
//!
//! ```
//! # use novale_pm::{Durable, Pm, PmError, PmOptions, Purpose};
//! # use novale_layout::PmAddr;
//! # fn publish(_prerequisite: Durable) {}
//! # let pm = Pm::anonymous(&[4096], &PmOptions::default())?;
//! # let addr = PmAddr::new(0, 64);
//! let dirty = pm.store(addr, b"entry", Purpose::Log);
//! let flushed = pm.write_back(dirty);
//! publish(pm.fence(flushed));
//! # Ok::<(), PmError>(())
//! ```
//!
//! The write-back forgotten:
//!
//! ```compile_fail,E0308
//! # use novale_pm::{Durable, Pm, PmError, PmOptions, Purpose};
//! # use novale_layout::PmAddr;
//! # fn publish(_prerequisite: Durable) {}
//! # let pm = Pm::anonymous(&[4096], &PmOptions::default())?;
//! # let addr = PmAddr::new(0, 64);
//! let dirty = pm.store(addr, b"entry", Purpose::Log);
//! let flushed = dirty;
//! publish(pm.fence(flushed));
//! # Ok::<(), PmError>(())
//! ```
//!
//! The fence forgotten:
//!
//! ```compile_fail,E0308
//! # use novale_pm::{Durable, Pm, PmError, PmOptions, Purpose};
//! # use novale_layout::PmAddr;
//! # fn publish(_prerequisite: Durable) {}
//! # let pm = Pm::anonymous(&[4096], &PmOptions::default())?;
//! # let addr = PmAddr::new(0, 64);
//! let dirty = pm.store(addr, b"entry", Purpose::Log);
//! let flushed = pm.write_back(dirty);
//! publish(flushed);
//! # Ok::<(), PmError>(())
//! ```
//!
//! A label is spent once; a second write-back of the same store is a range's:
//!
//! ```
//! # use novale_pm::{Flushed, Pm, PmError, PmOptions, Purpose};
//! # use novale_layout::PmAddr;
//! # let pm = Pm::anonymous(&[4096], &PmOptions::default())?;
//! # let addr = PmAddr::new(0, 64);
//! let flushed = pm.stream(addr, &[1; 64], Purpose::Data);
//! pm.fence(flushed).end();
//! pm.fence(Flushed::none()).end();
//! # Ok::<(), PmError>(())
//! ```
//!
//! ```compile_fail,E0382
//! # use novale_pm::{Flushed, Pm, PmError, PmOptions, Purpose};
//! # use novale_layout::PmAddr;
//! # let pm = Pm::anonymous(&[4096], &PmOptions::default())?;
//! # let addr = PmAddr::new(0, 64);
//! let flushed = pm.stream(addr, &[1; 64], Purpose::Data);
//! pm.fence(flushed).end();
//! pm.fence(flushed).end();
//! # Ok::<(), PmError>(())
//! ```
//!
//! Another thread's fence does not complete this thread's stores:
//!
//! ```
//! # use novale_pm::{Pm, PmError, PmOptions, Purpose};
//! # use novale_layout::PmAddr;
//! # let pm = Pm::anonymous(&[4096], &PmOptions::default())?;
//! # let addr = PmAddr::new(0, 64);
//! std::thread::scope(|scope| {
//!     let flushed = pm.stream(addr, &[1; 64], Purpose::Data);
//!     pm.fence(flushed).end();
//!     scope.spawn(|| ());
//! });
//! # Ok::<(), PmError>(())
//! ```
//!
//! ```compile_fail,E0277
//! # use novale_pm::{Pm, PmError, PmOptions, Purpose};
//! # use novale_layout::PmAddr;
//! # let pm = Pm::anonymous(&[4096], &PmOptions::default())?;
//! # let addr = PmAddr::new(0, 64);
//! std::thread::scope(|scope| {
//!     let flushed = pm.stream(addr, &[1; 64], Purpose::Data);
//!     scope.spawn(|| pm.fence(flushed).end());
//! });
//! # Ok::<(), PmError>(())
//! ```
//!
//! A label that is dropped is a warning, and an error where `unused_must_use` is denied, as in
//! all of Novale:
//!
//! ```
//! #![deny(unused_must_use)]
//! # use novale_pm::{Flushed, Pm, PmError, PmOptions, Purpose};
//! # use novale_layout::PmAddr;
//! # let pm = Pm::anonymous(&[4096], &PmOptions::default())?;
//! # let addr = PmAddr::new(0, 64);
//! let flushed = pm.write_back(pm.store(addr, b"entry", Purpose::Log));
//! # pm.fence(flushed).end();
//! # Ok::<(), PmError>(())
//! ```
//!
//! ```compile_fail
//! #![deny(unused_must_use)]
//! # use novale_pm::{Flushed, Pm, PmError, PmOptions, Purpose};
//! # use novale_layout::PmAddr;
//! # let pm = Pm::anonymous(&[4096], &PmOptions::default())?;
//! # let addr = PmAddr::new(0, 64);
//! let flushed = Flushed::none(); pm.store(addr, b"entry", Purpose::Log);
//! # pm.fence(flushed).end();
//! # Ok::<(), PmError>(())
//! ```

use std::marker::PhantomData;

use novale_layout::PmAddr;

use crate::{LINE, Purpose};

/// Keeps a label on the thread that made it.
type NotSend = PhantomData<*const ()>;

/// Bytes that are stored and may still be in the cache only: a write-back and a fence are owed.
#[must_use = "stored bytes are lost at power loss until they are written back and fenced"]
#[derive(Debug)]
pub struct Dirty {
    pub(crate) addr: PmAddr,
    pub(crate) len: u64,
    pub(crate) purpose: Purpose,
    not_send: NotSend,
}

impl Dirty {
    #[inline(always)]
    pub(crate) fn new(addr: PmAddr, len: u64, purpose: Purpose) -> Self {
        Self { addr, len, purpose, not_send: PhantomData }
    }

    /// One label for two stores whose lines are the same or adjoin, so that each line is written
    /// back once. The purpose is that of `self`.
    ///
    /// # Panics
    /// When a line that neither stored lies between them: joining would write it back too.
    #[track_caller]
    pub fn join(self, other: Self) -> Self {
        if other.len == 0 {
            return self;
        }
        if self.len == 0 {
            return Self { purpose: self.purpose, ..other };
        }
        let (low, high) = if self.addr <= other.addr { (&self, &other) } else { (&other, &self) };
        let low_end = low.addr.byte() + low.len;
        assert!(
            low.addr.slot() == high.addr.slot()
                && high.addr.byte() / LINE <= low_end.div_ceil(LINE),
            "joined stores at {} and {} have lines between them",
            low.addr,
            high.addr
        );
        let end = low_end.max(high.addr.byte() + high.len);
        Self::new(low.addr, end - low.addr.byte(), self.purpose)
    }
}

/// Bytes that are on their way to the media: this thread's next fence makes them durable.
#[must_use = "written-back bytes are lost at power loss until a fence"]
#[derive(Debug)]
pub struct Flushed {
    not_send: NotSend,
}

impl Flushed {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { not_send: PhantomData }
    }

    /// Nothing was stored: the start of a batch.
    #[inline(always)]
    pub fn none() -> Self {
        Self::new()
    }

    /// Both, to be completed by one fence.
    #[inline(always)]
    pub fn and(self, _other: Self) -> Self {
        self
    }
}

/// Bytes that survive power loss.
#[must_use = "what depends on these bytes takes this label as its proof"]
#[derive(Debug)]
pub struct Durable {
    not_send: NotSend,
}

impl Durable {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { not_send: PhantomData }
    }

    /// Both.
    #[inline(always)]
    pub fn and(self, _other: Self) -> Self {
        self
    }

    /// Ends the label: the operation returns and nothing else depends on it.
    #[inline(always)]
    pub fn end(self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirty(byte: u64, len: u64) -> Dirty {
        Dirty::new(PmAddr::new(0, byte), len, Purpose::Log)
    }

    #[test]
    fn joined_stores_cover_both_and_no_line_between() {
        for (first, second, expected) in [
            ((64, 8), (72, 8), (64, 16)),
            ((64, 8), (120, 8), (64, 64)),
            ((120, 8), (64, 8), (64, 64)),
            ((60, 8), (128, 64), (60, 132)),
            ((64, 64), (80, 8), (64, 64)),
            ((64, 0), (4096, 8), (4096, 8)),
            ((4096, 8), (64, 0), (4096, 8)),
        ] {
            let joined = dirty(first.0, first.1).join(dirty(second.0, second.1));
            assert_eq!((joined.addr.byte(), joined.len), expected, "{first:?} {second:?}");
        }
    }

    #[test]
    #[should_panic(expected = "joined stores at 0:0x40 and 0:0xc0 have lines between them")]
    fn stores_with_a_line_between_them_do_not_join() {
        let _joined = dirty(64, 64).join(dirty(192, 8));
    }

    #[test]
    #[should_panic(expected = "have lines between them")]
    fn stores_of_different_slots_do_not_join() {
        let other = Dirty::new(PmAddr::new(1, 64), 8, Purpose::Log);
        let _joined = dirty(64, 8).join(other);
    }
}
