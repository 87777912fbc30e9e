//! A word by which clients tell each other that mappings of files change hands.
//!
//! It says nothing itself: who sees it change looks at what it waits for. It only rises, so that a death
//! after any store leaves it as good as it was; a wake-up that a dead client owed is made good by the
//! sleeper's own time-out.

use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::time::Duration;

use crate::base::off::low32;
use crate::base::sync;
use crate::base::word::AtomicU64;
use crate::memory::arena::Arena;

/// Sleeps while the low half of a word says `seen`; `timeout` at most, and less now and then.
pub fn sleep_while(word: &AtomicU64, seen: u32, timeout: Duration) {
    let _woken = sync::futex_wait(word, seen, timeout);
}

/// Wakes all who sleep on a word, once it has changed.
pub fn wake_all(word: &AtomicU64) {
    sync::futex_wake(word, i32::MAX);
}

impl Arena {
    /// What the word says, before one looks at what one waits for.
    #[must_use]
    pub fn mappings_turn(&self) -> u32 {
        low32(self.mappings_word().load(Acquire))
    }

    /// Wakes all who wait for a mapping to change hands, once it is there to be seen.
    pub fn next_mappings_turn(&self) {
        self.mappings_word().fetch_add(1, AcqRel);
        sync::futex_wake(self.mappings_word(), i32::MAX);
    }

    /// Sleeps until the word has changed since it said `turn`, `timeout` at most.
    pub fn wait_for_mappings(&self, turn: u32, timeout: Duration) {
        let _woken = sync::futex_wait(self.mappings_word(), turn, timeout);
    }
}
