//! What a client holds beyond its operations: a word for each thing held, so that the client that settles
//! for it, when it is dead, can give just that back.
//!
//! The words lie in blocks that belong to a client slot, in a chain, as its records do: made when they
//! are needed, kept for the slot's next client. A word is 0 or a key of the caller's; it changes
//! under a lock of the caller's choice, so a settler that has the lock finds it as it is. Which words
//! are free a client knows by itself: nobody else takes one of them.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::base::error::{BadOffset, Full};
use crate::base::liveness::ClientInfo;
use crate::base::off::Off;
use crate::base::word::AtomicU64;
use crate::clients::client::Client;
use crate::clients::settle::Recovery;
use crate::memory::alloc::Class;
use crate::memory::arena::Arena;

/// Words of a block: 63 to hold something, and the next block.
const BLOCK_WORDS: usize = 64;
const NEXT: usize = BLOCK_WORDS - 1;
const BLOCK_CLASS: Class = Class::internal(133, 64);

/// Blocks of one slot, at most: 64 million words.
const BLOCKS_MAX: usize = 1 << 20;

/// Threads that pass different hints take words from different lists.
const LISTS: usize = 16;

/// A word of a client's that can hold something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldSlot(Off);

impl HoldSlot {
    /// The word at an offset that was noted.
    #[must_use]
    pub fn at(off: Off) -> Self {
        Self(off)
    }

    /// Where the word is, to be noted in an operation's record.
    #[must_use]
    pub fn off(self) -> Off {
        self.0
    }
}

/// The words of a client that are free.
#[derive(Debug, Default)]
pub(crate) struct FreeHolds {
    lists: [Mutex<Vec<HoldSlot>>; LISTS],
    /// Whether the blocks of the slot's earlier clients were taken over.
    found: Mutex<bool>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FreeHolds {
    fn list(&self, hint: u32) -> MutexGuard<'_, Vec<HoldSlot>> {
        locked(self.lists.get(hint as usize % LISTS).unwrap_or(&self.lists[0]))
    }
}

impl Client {
    /// Takes a word that is free, for a thread with this hint. It is 0, and the caller's alone until
    /// [`Client::give_hold_slot`].
    ///
    /// # Errors
    /// [`Full`] if there is no room for another block.
    pub fn take_hold_slot(&self, hint: u32) -> Result<HoldSlot, Full> {
        let mut list = self.free_holds.list(hint);
        if let Some(slot) = list.pop() {
            return Ok(slot);
        }
        self.find_holds(&mut list)?;
        if list.is_empty() {
            let made = self.make_holds()?;
            list.extend((0..NEXT as u64).map(|word| HoldSlot(made.word(word))));
        }
        let (used, limit) = (self.arena().used_bytes(), self.arena().max_bytes());
        list.pop().ok_or(Full { asked: BLOCK_CLASS.bytes(), used, limit })
    }

    /// Gives a word back that is 0 again.
    pub fn give_hold_slot(&self, slot: HoldSlot, hint: u32) {
        self.free_holds.list(hint).push(slot);
    }

    /// Takes over, once, what the slot's earlier clients have left: all of it is free.
    fn find_holds(&self, list: &mut Vec<HoldSlot>) -> Result<(), Full> {
        let mut found = locked(&self.free_holds.found);
        if !*found {
            *found = true;
            let (used, limit) = (self.arena().used_bytes(), self.arena().max_bytes());
            let none = Full { asked: 0, used, limit };
            let each = &mut |slot, _: &AtomicU64| list.push(slot);
            self.arena().visit_holds(&self.info(), each).map_err(|_| none)?;
        }
        Ok(())
    }

    /// Makes a block and chains it to the others. A death in between loses it.
    #[cold]
    fn make_holds(&self) -> Result<Off, Full> {
        let arena = self.arena();
        let made = arena.alloc(BLOCK_CLASS)?;
        let full = |_| Full { asked: BLOCK_CLASS.bytes(), used: 0, limit: arena.max_bytes() };
        let block = arena.block::<BLOCK_WORDS>(made).map_err(full)?;
        let first = arena.holds_word(&self.info());
        let mut now = first.load(Acquire);
        loop {
            block[NEXT].store(now, Relaxed);
            match first.compare_exchange(now, made.raw(), AcqRel, Acquire) {
                Ok(_) => return Ok(made),
                // Another thread of this client has chained one: one of them gets through each time.
                Err(other) => now = other,
            }
        }
    }
}

impl Arena {
    /// The word of a hold slot.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    #[inline]
    pub fn hold_word(&self, slot: HoldSlot) -> Result<&AtomicU64, BadOffset> {
        self.word(slot.0)
    }

    /// Says that a word holds `key`, or with 0 that it holds nothing any more.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    pub fn set_hold(&self, slot: HoldSlot, key: u64) -> Result<(), BadOffset> {
        self.hold_word(slot)?.store(key, Release);
        Ok(())
    }

    /// Visits all words that a client has, held or not.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    pub fn visit_holds(
        &self,
        client: &ClientInfo,
        visit: &mut dyn FnMut(HoldSlot, &AtomicU64),
    ) -> Result<(), BadOffset> {
        let mut next = self.holds_word(client).load(Acquire);
        for _ in 0..BLOCKS_MAX {
            if next == 0 {
                break;
            }
            let off = Off::from_raw(next);
            let block = self.block::<BLOCK_WORDS>(off)?;
            for (word, index) in block.iter().take(NEXT).zip(0..) {
                visit(HoldSlot(off.word(index)), word);
            }
            next = block[NEXT].load(Acquire);
        }
        Ok(())
    }

    /// The keys that a client holds, each with its word.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    pub fn holds_of(&self, client: &ClientInfo) -> Result<Vec<(HoldSlot, u64)>, BadOffset> {
        let mut held = Vec::new();
        self.visit_holds(client, &mut |slot, word| {
            let key = word.load(Acquire);
            if key != 0 {
                held.push((slot, key));
            }
        })?;
        Ok(held)
    }
}

impl Recovery<'_> {
    /// The keys that the dead client holds, each with its word.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    pub fn holds_left(&self) -> Result<Vec<(HoldSlot, u64)>, BadOffset> {
        self.arena().holds_of(&self.client())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PidInfo;

    #[test]
    fn words_are_taken_over_by_the_slots_next_client() {
        let arena = Arena::anonymous(4 << 20).unwrap();
        let client = arena.attach(PidInfo::current()).unwrap();
        let mut taken: Vec<HoldSlot> =
            (0..200).map(|i| client.take_hold_slot(i).unwrap()).collect();
        for (slot, key) in taken.iter().zip(1..) {
            arena.set_hold(*slot, key).unwrap();
        }
        let mut keys: Vec<u64> =
            arena.holds_of(&client.info()).unwrap().into_iter().map(|(_, key)| key).collect();
        keys.sort_unstable();
        assert_eq!(keys, (1..=200).collect::<Vec<u64>>());
        taken.sort_by_key(|slot| slot.off().raw());
        taken.dedup();
        assert_eq!(taken.len(), 200, "a word is taken once");
        let used = arena.used_bytes();
        for slot in taken {
            arena.set_hold(slot, 0).unwrap();
        }
        drop(client);
        let next = arena.attach(PidInfo::current()).unwrap();
        for _ in 0..200 {
            next.take_hold_slot(3).unwrap();
        }
        assert_eq!(arena.used_bytes(), used);
    }

    #[test]
    fn a_client_that_holds_something_keeps_its_slot() {
        let arena = Arena::anonymous(4 << 20).unwrap();
        let client = arena.attach(PidInfo::current()).unwrap();
        let (info, slot) = (client.info(), client.take_hold_slot(0).unwrap());
        arena.set_hold(slot, 7).unwrap();
        drop(client);
        assert_eq!(arena.client(info.slot), Some(info));
    }
}
