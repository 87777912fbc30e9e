//! Reading what a dead client left, and giving back what it held.
//!
//! A finder takes the dead client's recovery lock, looks at each operation that was in flight, does
//! for it what its phase demands (the caller's part), marks its progress in the dead record itself,
//! since a settler may die too, and only then lets the locks go and frees the record and the slot.

use std::sync::atomic::Ordering;

use crate::base::error::{BadOffset, LockError};
use crate::base::liveness::ClientInfo;
use crate::base::off::Off;
use crate::base::sync::{self, Owner};
use crate::clients::client::index_u32;
use crate::clients::op::{LockGuard, Op};
use crate::clients::record::{Phase, RECORDS, Record, RecordWords};
use crate::memory::arena::Arena;

impl Arena {
    /// Whether the operation of a dead client that `owner` names has ended: its locks are free.
    #[must_use]
    pub fn has_ended(&self, owner: Owner) -> bool {
        let there = self.client(owner.slot()).is_some_and(|client| client.epoch == owner.epoch());
        let words = self.record_words(owner.slot(), owner.record());
        !there || words.is_ok_and(|words| words.is_none_or(|words| !words.is_claimed()))
    }

    /// Copies the records of a client's operations in flight. Those of a living client change
    /// while they are read.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    pub fn records(&self, client: &ClientInfo) -> Result<Vec<Record>, BadOffset> {
        let mut found = Vec::new();
        for index in 0..index_u32(RECORDS) {
            let Some(words) = self.record_words(client.slot, index)? else {
                continue;
            };
            found.extend(words.read(self, Owner::new(client.slot, index, client.epoch))?);
        }
        Ok(found)
    }

    /// Takes the recovery lock of a client that has died, in the name of the operation `by`. None
    /// if there is nothing to settle: it lives, has left, or somebody else has settled it.
    ///
    /// # Errors
    /// [`LockError::OwnerDead`] names a settler that died itself: settle it first.
    pub fn recover<'o>(
        &self,
        by: &'o Op<'o>,
        client: ClientInfo,
    ) -> Result<Option<Recovery<'o>>, LockError> {
        let is_there = || self.client(client.slot).is_some_and(|now| now.epoch == client.epoch);
        if !self.is_dead_client(&client) || !is_there() {
            return Ok(None);
        }
        let guard = by.lock(Arena::recovery_lock(&client))?;
        // Another settler may have been faster.
        Ok(is_there().then(|| Recovery { arena: by.arena(), client, _guard: guard }))
    }
}

/// The exclusive right to settle for a dead client; dropping it before [`Recovery::finish`] leaves
/// the rest to another.
#[derive(Debug)]
pub struct Recovery<'o> {
    arena: &'o Arena,
    client: ClientInfo,
    _guard: LockGuard<'o>,
}

impl Recovery<'_> {
    /// The dead client.
    #[must_use]
    pub fn client(&self) -> ClientInfo {
        self.client
    }

    /// The operations still to be settled.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    pub fn records(&self) -> Result<Vec<Record>, BadOffset> {
        self.arena.records(&self.client)
    }

    /// Records in the dead client's record how far its operation has come by the settler's work.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    pub fn set_phase(&self, record: &Record, phase: Phase) -> Result<(), BadOffset> {
        if let Some(words) = self.words_of(record)? {
            words.set_phase(record.kind, phase);
        }
        Ok(())
    }

    /// Notes a word in the dead client's record, as its operation would have.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    pub fn note_word(&self, record: &Record, index: usize, value: u64) -> Result<(), BadOffset> {
        if let Some(words) = self.words_of(record)? {
            words.note_word(index, value);
        }
        Ok(())
    }

    /// Whether the dead client's operation holds the lock at `off`.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    pub fn holds(&self, record: &Record, off: Off) -> Result<bool, BadOffset> {
        let word = self.arena.word(off)?.load(Ordering::Acquire);
        Ok(Owner::of_lock_word(word) == Some(record.owner))
    }

    /// Releases one lock that the dead client's operation holds.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    pub fn release(&self, record: &Record, off: Off) -> Result<(), BadOffset> {
        sync::unlock(self.arena.word(off)?, record.owner);
        Ok(())
    }

    /// Ends a settled operation: releases the locks that it holds, then frees its record. It says so first: what
    /// one lock protects can't be settled once more without it, where this client dies between two of them.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    pub fn end(&self, record: &Record) -> Result<(), BadOffset> {
        let Some(words) = self.words_of(record)? else {
            return Ok(());
        };
        words.set_phase(record.kind, Phase::Settled);
        for lock in &record.locks {
            // An intent on a lock that another has, or nobody, changes nothing.
            sync::unlock(self.arena.word(*lock)?, record.owner);
        }
        words.forget_intents();
        words.end(self.arena);
        Ok(())
    }

    /// The segment.
    pub(crate) fn arena(&self) -> &Arena {
        self.arena
    }

    /// Frees the dead client's slot, if all its operations have ended and it holds nothing; says
    /// whether.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    pub fn finish(self) -> Result<bool, BadOffset> {
        let all_ended = self.records()?.is_empty() && self.holds_left()?.is_empty();
        if all_ended {
            self.arena.release_slot(&self.client);
        }
        Ok(all_ended)
    }

    fn words_of(&self, record: &Record) -> Result<Option<RecordWords<'_>>, BadOffset> {
        self.arena.record_words(self.client.slot, record.owner.record())
    }
}
