//! What a store still owes before it survives power loss, as types.
//!
//! Only [`Pm`](crate::Pm) makes these, and only its `write_back` and `fence` change one into the
//! next. They stay on their thread: a fence completes only its own thread's write-backs.

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
        Self {
            addr,
            len,
            purpose,
            not_send: PhantomData,
        }
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
            return Self {
                purpose: self.purpose,
                ..other
            };
        }
        let (low, high) = if self.addr <= other.addr {
            (&self, &other)
        } else {
            (&other, &self)
        };
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
        Self {
            not_send: PhantomData,
        }
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
        Self {
            not_send: PhantomData,
        }
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
