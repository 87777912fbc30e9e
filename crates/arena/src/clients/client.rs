//! Clients: who uses the segment, each with a slot and 64 operation records.
//!
//! A slot's first word names the process and the slot's epoch at once, so that a slot is free,
//! or says whose it is, at every instant. The epoch rises with each client, which makes lock words
//! of a client that left distinguishable from those of the slot's next one.

use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use crate::base::error::{ArenaError, BadOffset};
use crate::base::liveness::{ClientInfo, PidInfo};
use crate::base::off::{Off, at, high32, low32};
use crate::base::sync::{self, Owner};
use crate::base::word::AtomicU64;
use crate::clients::holds::FreeHolds;
use crate::clients::op::Op;
use crate::clients::record::{RECORD_WORDS, RECORDS, RecordWords};
use crate::memory::alloc::Class;
use crate::memory::arena::{Arena, CLIENT_WORDS, CLIENTS, CLIENTS_AT};
use crate::memory::segment::Pinned;

// Words of a client slot.
const SLOT_STATE: usize = 0;
const SLOT_START_TIME: usize = 1;
const SLOT_RECORDS: usize = 2;
const SLOT_WAITERS: usize = 3;
const SLOT_WAKEUPS: usize = 4;
const SLOT_RECOVERY: usize = 5;
const SLOT_HOLDS: usize = 6;
const SLOT_SERVES: usize = 7;
pub(crate) const SLOT_COUNTS: usize = 8;

/// In the first word, above the process number, until the start time is that process' too.
const CLAIMING: u64 = 1 << 31;

/// The record kept for settling.
const SETTLING: usize = RECORDS - 1;
/// The record kept for the operation that settling makes in its turn, to free what the dead one had
/// taken the last name of: all others may be waited in by threads that wait for this one.
const FREEING: usize = RECORDS - 2;
/// Records for operations that nobody else waits for.
const ORDINARY: usize = RECORDS - 2;

/// All records of a slot; made with the slot's first client, kept for all later ones.
const RECORDS_CLASS: Class = Class::internal(129, 64 * 96);
const _: () = assert!(RECORDS * RECORD_WORDS == 64 * 96);

/// How long one waits for a free record before looking again: the wake-up can be missed, as
/// a client that ends an operation does not pay for a fence.
const RECORD_WAIT: Duration = Duration::from_millis(1);

/// A client of the segment; dropping it gives its slot back. Threads share it; a forked child
/// attaches for itself.
#[derive(Debug)]
pub struct Client {
    arena: Arena,
    info: ClientInfo,
    records: Pinned<{ RECORDS * RECORD_WORDS }>,
    attached_by: u32,
    pub(crate) free_holds: FreeHolds,
}

impl Arena {
    /// Takes a client slot for the process `process`.
    ///
    /// # Errors
    /// [`ArenaError::NoClientSlot`], [`ArenaError::Full`], [`ArenaError::Poisoned`];
    /// [`ArenaError::OutOfRange`] for process number 0, or one from 2^31 on.
    pub fn attach(&self, process: PidInfo) -> Result<Client, ArenaError> {
        if self.is_poisoned() {
            return Err(ArenaError::Poisoned);
        }
        // A slot whose process is 0 is free; numbers are below 2^22.
        if process.pid == 0 || u64::from(process.pid) & CLAIMING != 0 {
            let (least, greatest) = (1, CLAIMING - 1);
            return Err(ArenaError::OutOfRange {
                what: "pid",
                found: process.pid.into(),
                least,
                greatest,
            });
        }
        self.attach_in(process, 0..CLIENTS - 1)
    }

    /// As [`Arena::attach`], in a slot that is kept for a client that finds all others taken, perhaps by
    /// clients that died: to settle for those, and leave.
    ///
    /// # Errors
    /// As [`Arena::attach`].
    pub fn attach_to_settle(&self, process: PidInfo) -> Result<Client, ArenaError> {
        self.attach_in(process, CLIENTS - 1..CLIENTS)
    }

    fn attach_in(&self, process: PidInfo, slots: Range<usize>) -> Result<Client, ArenaError> {
        let count = slots.len();
        for index in slots {
            let slot = self.slot(index);
            let Some(epoch) = slot.claim(process) else {
                continue;
            };
            return match self.records_of(slot) {
                Ok(records) => {
                    let info = ClientInfo { slot: index_u32(index), epoch, process };
                    let attached_by = std::process::id();
                    let free_holds = FreeHolds::default();
                    Ok(Client { arena: self.clone(), info, records, attached_by, free_holds })
                }
                Err(e) => {
                    slot.release();
                    Err(e)
                }
            };
        }
        Err(ArenaError::NoClientSlot(index_u32(count)))
    }

    /// The client in a slot, if there is one.
    #[must_use]
    pub fn client(&self, slot: u32) -> Option<ClientInfo> {
        let index = usize::try_from(slot).ok().filter(|s| *s < CLIENTS)?;
        let words = self.slot(index);
        let state = words.word(SLOT_STATE).load(Acquire);
        // One that is just coming is known by its number alone: the other word is of the one before.
        let claiming = state & CLAIMING != 0;
        let start_time = if claiming { 0 } else { words.word(SLOT_START_TIME).load(Acquire) };
        let process = PidInfo { pid: low32(state & !CLAIMING), start_time };
        (process.pid != 0).then_some(ClientInfo { slot, epoch: high32(state), process })
    }

    /// All clients, dead ones included.
    pub fn clients(&self) -> impl Iterator<Item = ClientInfo> + '_ {
        (0..index_u32(CLIENTS)).filter_map(|slot| self.client(slot))
    }

    /// True if the client that `owner` names has ended without giving back what it holds.
    #[must_use]
    pub fn is_dead(&self, owner: Owner) -> bool {
        let Some(client) = self.client(owner.slot()) else {
            return true;
        };
        client.epoch != owner.epoch() || self.is_dead_client(&client)
    }

    /// As [`Arena::is_dead`], for who has slept so many times for something of the owner's, with nobody who gave it up
    /// meanwhile.
    pub(crate) fn is_dead_to_waiter(&self, owner: Owner, slept: u32) -> bool {
        let client = self.client(owner.slot());
        let of_owner = client.filter(|client| client.epoch == owner.epoch());
        !of_owner.is_some_and(|client| client.process.needs_no_look(slept)) && self.is_dead(owner)
    }

    /// True if the client's process is gone and the probe, where one is set, agrees. A process in
    /// another pid namespace looks gone: only a probe can tell that it lives.
    #[must_use]
    pub fn is_dead_client(&self, client: &ClientInfo) -> bool {
        !client.process.is_alive() && !self.is_said_alive(client)
    }

    /// As [`Arena::is_dead_client`], without a descriptor, as [`PidInfo::may_have_ended`] says.
    #[must_use]
    pub fn may_have_ended(&self, client: &ClientInfo) -> bool {
        client.process.may_have_ended() && !self.is_said_alive(client)
    }

    /// As [`Arena::is_dead_client`], by fewer calls: one that is being killed may be taken for one that
    /// lives.
    #[must_use]
    pub fn is_gone_client(&self, client: &ClientInfo) -> bool {
        !client.process.is_there() && !self.is_said_alive(client)
    }

    /// What the probe says, where one is set.
    fn is_said_alive(&self, client: &ClientInfo) -> bool {
        self.alive_probe().is_some_and(|alive| alive(client))
    }

    /// What a client has said that it serves ([`Client::set_serves`]); 0 if it has not, or is gone.
    #[must_use]
    pub fn serves(&self, client: &ClientInfo) -> u64 {
        let Ok(index) = usize::try_from(client.slot) else { return 0 };
        if index >= CLIENTS {
            return 0;
        }
        let word = self.slot(index).word(SLOT_SERVES).load(Acquire);
        // Of the slot's next client the epoch is another one.
        if self.client(client.slot).is_some_and(|now| now.epoch == client.epoch) { word } else { 0 }
    }

    /// Whether a client is in the middle of an operation.
    #[must_use]
    pub fn is_at_work(&self, client: &ClientInfo) -> bool {
        let is_of_one = |index| {
            let words = self.record_words(client.slot, index).ok().flatten();
            words.is_some_and(RecordWords::is_claimed)
        };
        (client.slot as usize) < CLIENTS && (0..index_u32(RECORDS)).any(is_of_one)
    }

    /// The kinds of a client's operations that are under way, 0 of one that is just beginning. One that is not found
    /// has ended, or loads what it loads sequentially consistent after what the caller has seen or stored so.
    pub fn kinds_at_work(&self, client: &ClientInfo) -> impl Iterator<Item = u32> + '_ {
        let slot = client.slot;
        (0..index_u32(RECORDS)).filter_map(move |index| {
            let words = self.record_words(slot, index).ok().flatten()?;
            words.kind_at_work()
        })
    }

    fn slot(&self, index: usize) -> Slot<'_> {
        Slot { all: self.client_slots(), first: index * CLIENT_WORDS }
    }

    /// The words of a record; none if the slot never had a client.
    pub(crate) fn record_words(
        &self,
        slot: u32,
        index: u32,
    ) -> Result<Option<RecordWords<'_>>, BadOffset> {
        let first = self.slot(slot as usize).word(SLOT_RECORDS).load(Acquire);
        if first == 0 {
            return Ok(None);
        }
        let all = self.block::<{ RECORDS * RECORD_WORDS }>(Off::from_raw(first))?;
        let (records, _) = all.as_chunks::<RECORD_WORDS>();
        Ok(records.get(index as usize).map(RecordWords::new))
    }

    /// The lasting word ([`Op::lasting_word`]) of a record that a lock word names; none if its slot
    /// never had a client.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    pub fn lasting_word(&self, owner: Owner) -> Result<Option<&AtomicU64>, BadOffset> {
        if owner.slot() as usize >= CLIENTS {
            return Ok(None);
        }
        let words = self.record_words(owner.slot(), owner.record())?;
        Ok(words.map(RecordWords::lasting))
    }

    /// Visits the lasting words of all records that there are.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    pub fn lasting_words(&self, visit: &mut dyn FnMut(&AtomicU64)) -> Result<(), BadOffset> {
        for slot in 0..index_u32(CLIENTS) {
            for record in 0..index_u32(RECORDS) {
                let Some(words) = self.record_words(slot, record)? else { break };
                visit(words.lasting());
            }
        }
        Ok(())
    }

    /// The first block of words that a client's holds are in.
    pub(crate) fn holds_word(&self, client: &ClientInfo) -> &AtomicU64 {
        self.slot(client.slot as usize).word(SLOT_HOLDS)
    }

    /// The lock under which a slot's dead client is settled.
    pub(crate) fn recovery_lock(client: &ClientInfo) -> Off {
        let word = client.slot as usize * CLIENT_WORDS + SLOT_RECOVERY;
        Off::from_raw(CLIENTS_AT as u64).word(word as u64)
    }

    /// Gives the slot of a settled client back.
    pub(crate) fn release_slot(&self, client: &ClientInfo) {
        self.slot(client.slot as usize).release();
    }

    fn records_of(&self, slot: Slot<'_>) -> Result<Pinned<{ RECORDS * RECORD_WORDS }>, ArenaError> {
        let known = slot.word(SLOT_RECORDS).load(Acquire);
        if known != 0 {
            return Ok(Pinned::new(self.segment(), known)?);
        }
        let made = self.alloc(RECORDS_CLASS)?;
        slot.word(SLOT_RECORDS).store(made.raw(), Release);
        Ok(Pinned::new(self.segment(), made.raw())?)
    }
}

impl Client {
    /// The segment that this is a client of.
    #[must_use]
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Slot, epoch and process.
    #[must_use]
    pub fn info(&self) -> ClientInfo {
        self.info
    }

    /// Says for all to see what the client serves beside its own calls; 0 for nothing. A word of the
    /// caller's own meaning.
    pub fn set_serves(&self, what: u64) {
        self.slot().word(SLOT_SERVES).store(what, Release);
    }

    /// Starts an operation: takes a free record, sleeping while all 62 are in use. Threads that
    /// pass different hints use different records. A thread has one such operation at a time: one
    /// that waited for a second with the first in hand could wait for others that do the same.
    #[inline]
    #[must_use]
    pub fn op(&self, kind: u32, hint: u32) -> Op<'_> {
        self.arena().segment().map_ahead();
        let first = (hint as usize) % ORDINARY;
        self.try_op(kind, first).unwrap_or_else(|| self.wait_op(kind, first))
    }

    #[inline]
    fn try_op(&self, kind: u32, first: usize) -> Option<Op<'_>> {
        let (records, _) = self.records.words().as_chunks::<RECORD_WORDS>();
        for step in 0..ORDINARY {
            let index = (first + step) % ORDINARY;
            let owner = Owner::new(self.info.slot, index_u32(index), self.info.epoch);
            if let Some(op) = Op::claim(self, RecordWords::new(records.get(index)?), owner, kind) {
                return Some(op);
            }
        }
        None
    }

    /// The operation of a thread that settles for a dead client, which may wait in the middle of
    /// another of its own; none while another thread of this client has it.
    #[must_use]
    pub fn settling_op(&self, kind: u32) -> Option<Op<'_>> {
        self.kept_op(kind, SETTLING)
    }

    /// The operation by which the thread that settles frees an inode; none while another thread of
    /// this client has it, which only one that settles may.
    #[must_use]
    pub fn freeing_op(&self, kind: u32) -> Option<Op<'_>> {
        self.kept_op(kind, FREEING)
    }

    fn kept_op(&self, kind: u32, index: usize) -> Option<Op<'_>> {
        let (records, _) = self.records.words().as_chunks::<RECORD_WORDS>();
        let owner = Owner::new(self.info.slot, index_u32(index), self.info.epoch);
        Op::claim(self, RecordWords::new(records.get(index)?), owner, kind)
    }

    /// Ends when one of the client's own operations does.
    #[cold]
    fn wait_op(&self, kind: u32, first: usize) -> Op<'_> {
        let waiters = self.slot().word(SLOT_WAITERS);
        let wakeups = self.slot().word(SLOT_WAKEUPS);
        waiters.fetch_add(1, AcqRel);
        loop {
            let seen = wakeups.load(Acquire);
            if let Some(op) = self.try_op(kind, first) {
                waiters.fetch_sub(1, AcqRel);
                return op;
            }
            let _woken = sync::futex_wait(wakeups, low32(seen), RECORD_WAIT);
        }
    }

    /// Tells those who wait for a record that there is one.
    #[inline]
    pub(crate) fn record_freed(&self) {
        if self.slot().word(SLOT_WAITERS).load(Relaxed) != 0 {
            let wakeups = self.slot().word(SLOT_WAKEUPS);
            wakeups.fetch_add(1, AcqRel);
            sync::futex_wake(wakeups, 1);
        }
    }

    fn slot(&self) -> Slot<'_> {
        self.arena.slot(self.info.slot as usize)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // A forked child has a copy of the value, not of the slot. And a slot whose operations were
        // leaked, or that holds something, waits for its process to end, to be settled like a dead
        // one's.
        let holds = || self.arena.holds_of(&self.info).is_ok_and(|held| !held.is_empty());
        let (records, _) = self.records.words().as_chunks::<RECORD_WORDS>();
        let leaked = records.iter().any(|words| RecordWords::new(words).is_claimed());
        if std::process::id() == self.attached_by && !leaked && !holds() {
            self.slot().release();
        }
    }
}

/// The words of one client slot.
#[derive(Clone, Copy)]
struct Slot<'a> {
    all: &'a [AtomicU64; CLIENTS * CLIENT_WORDS],
    first: usize,
}

impl<'a> Slot<'a> {
    fn word(self, index: usize) -> &'a AtomicU64 {
        at(self.all, self.first + index)
    }

    /// Takes the slot if it is free, and gives its new epoch.
    fn claim(self, process: PidInfo) -> Option<u32> {
        let state = self.word(SLOT_STATE);
        let now = state.load(Acquire);
        if low32(now) != 0 {
            return None;
        }
        let epoch = high32(now).wrapping_add(1);
        let mine = u64::from(epoch) << 32 | u64::from(process.pid);
        state.compare_exchange(now, mine | CLAIMING, AcqRel, Relaxed).ok()?;
        self.word(SLOT_WAITERS).store(0, Relaxed);
        self.word(SLOT_SERVES).store(0, Relaxed);
        self.word(SLOT_START_TIME).store(process.start_time, Relaxed);
        state.store(mine, Release);
        Some(epoch)
    }

    /// Gives the slot back; its epoch stays.
    fn release(self) {
        let state = self.word(SLOT_STATE);
        state.store(state.load(Relaxed) & !u64::from(u32::MAX), Release);
    }
}

/// Slot and record numbers are small.
pub(crate) fn index_u32(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
