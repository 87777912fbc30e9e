//! What a pool says of itself: superblock, slot headers, state lines. Comes in: mapped slots, all of a pool
//! or those that there are. Goes out: [`Pool`], for opening, mkfs, checks and repairs.
//!
//! Never here: what inodes, logs and lanes have.

pub(crate) mod copies;
pub(crate) mod marks;
mod seen;

use novale_layout::{
    LINE, LayoutError, PAGE, POOL_STATE_OFFSETS, PmAddr, PoolState, RoFeature, Roots,
    SEQ_RISE_LIMIT, SESSION_LIMIT, SLOT_STATE_OFFSETS, SUPERBLOCK_BYTES, Seed, SlotHeader,
    SlotState, Superblock,
};
use novale_pm::{Flushed, Health, Pm, Purpose};
use novale_policy::{Mode, UpdatePolicy};

use crate::base::error::{Error, Result};
use crate::pool::copies::BadCopy;
use crate::pool::marks::PageMarks;
pub use crate::pool::seen::{CUT_OFF, SlotSeen, going_slot, heir_of_slot, look_at_slot};
use crate::seeded::{self, Bug};

/// A pool's description, read and checked.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    pub(crate) superblock: Superblock,
    pub(crate) seed: Seed,
    pub(crate) state: PoolState,
    pub(crate) slots: Vec<(SlotHeader, SlotState)>,
    /// Copies of the superblock and of slot headers that do not say what stands, and newer state lines of slots
    /// that are damaged.
    pub(crate) bad_copies: Vec<BadCopy>,
}

/// A pool's description for people and programs.
#[derive(Debug, Clone)]
pub struct PoolInfo {
    /// The pool.
    pub uuid: [u8; 16],
    /// Version of the format.
    pub version: u32,
    /// Lanes.
    pub lanes: u32,
    /// When it was made, ns since 1970.
    pub created_ns: i64,
    /// Rises when it is opened for writing, closed, repaired, and when its slots change; 1 as it was made.
    pub session: u32,
    /// Closed in order and not opened for writing since.
    pub clean: bool,
    /// Each copy of the superblock or of a slot header that is damaged while its twin stands, and each newer
    /// state line of a slot while the older one stands, in words. Opening for writing rewrites them.
    pub bad_copies: Vec<String>,
    /// Feature words: compatible, compatible for reading, incompatible.
    pub features: [u64; 3],
    /// Which methods writes take where neither the file nor the one who opens the pool says so.
    pub update: Option<UpdatePolicy>,
    /// When writes become durable to files that don't say so themselves.
    pub mode: Option<Mode>,
    /// What the pool says of both, as it lies there: a newer program's choice is none that is known here.
    pub default_policy: u8,
    /// The slots, in order.
    pub slots: Vec<SlotInfo>,
    /// A slot that is lost, and whose place is being given to another.
    pub given_up: Option<u8>,
}

/// One slot of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotInfo {
    /// The slot.
    pub uuid: [u8; 16],
    /// Its number.
    pub index: u8,
    /// Pages of 4096 bytes.
    pub pages: u64,
    /// Writes that a cell endures, 0: unknown.
    pub endurance: u64,
    /// It is not there: nothing else is known of it but its number.
    pub is_absent: bool,
    /// It is being emptied, or replaced: no page is taken there.
    pub is_leaving: bool,
    /// Of one that is leaving, the number of the slot that is to go, where that is known.
    pub goes: Option<u8>,
    /// It was emptied, and goes when nobody uses the pool.
    pub is_emptied: bool,
    /// How the name begins of a slot that takes its place, or has taken it: only that one is written.
    pub heir: Option<[u8; 8]>,
}

/// Reads a pool's description.
///
/// # Errors
/// [`Error::BadPool`] that says what was found instead, and in which slot.
pub fn inspect(pm: &Pm) -> Result<PoolInfo> {
    let pool = Pool::read(pm)?;
    let superblock = &pool.superblock;
    Ok(PoolInfo {
        uuid: superblock.pool_uuid,
        version: novale_layout::FORMAT_VERSION,
        lanes: superblock.lane_count,
        created_ns: superblock.created_ns,
        session: pool.state.session,
        clean: pool.is_clean(),
        bad_copies: pool.bad_copies.iter().map(ToString::to_string).collect(),
        features: [
            superblock.features_compat,
            superblock.features_ro_compat,
            superblock.features_incompat,
        ],
        update: UpdatePolicy::numbered(Mode::without(superblock.default_policy)),
        mode: Mode::of_bits(superblock.default_policy),
        default_policy: superblock.default_policy,
        given_up: pool.given_up(),
        slots: pool
            .slots
            .iter()
            .map(|(header, state)| SlotInfo {
                uuid: header.slot_uuid,
                index: header.index,
                pages: header.pages,
                endurance: header.endurance,
                is_absent: pm.is_absent(header.index),
                is_leaving: state.evacuation_state != 0 && state.given_up().is_none(),
                goes: state.goes(),
                is_emptied: state.evacuation_state == SlotState::EMPTIED,
                heir: state.heir(),
            })
            .collect(),
    })
}

/// The header of one slot that was opened alone, to learn which slot of which pool it is.
///
/// # Errors
/// [`Error::BadPool`] when it is no slot of a Novale pool.
pub fn identify_slot(pm: &Pm, slot: u8) -> Result<([u8; 16], u8)> {
    let (header, _) = copies::slot_header(pm, slot)?;
    Ok((header.pool_uuid, header.index))
}

impl Pool {
    pub(crate) fn read(pm: &Pm) -> Result<Self> {
        let mut bad_copies = Vec::new();
        let mut headers = Vec::new();
        for slot in 0..pm.slot_count() {
            if pm.is_absent(slot) {
                headers.push(SlotHeader::absent(slot));
                continue;
            }
            let (header, bad) = copies::slot_header(pm, slot)?;
            bad_copies.extend(bad);
            headers.push(header);
        }
        check_lengths(pm, &headers)?;
        let (superblock, bad) = copies::superblock(pm, &headers)?;
        bad_copies.extend(bad);
        for header in headers.iter_mut().filter(|header| pm.is_absent(header.index)) {
            header.pool_uuid = superblock.pool_uuid;
        }
        check_slots(&superblock, &headers)?;
        let seed = Seed::pool(&superblock.pool_uuid);
        let state = match read_state(pm, seed) {
            Err(Error::Lost(_)) => state_by_slots(pm, seed)?,
            state => state?,
        };
        let mut slots = Vec::new();
        for header in headers {
            let slot_state = if pm.is_absent(header.index) {
                SlotState { session: state.session.into(), ..SlotState::default() }
            } else {
                let (slot_state, bad) = slot_state_in(pm, seed, header.index, state.session)?;
                bad_copies.extend(bad);
                slot_state
            };
            slots.push((header, slot_state));
        }
        refuse_old_copies(pm, state.session, &slots)?;
        Ok(Self { superblock, seed, state, slots, bad_copies })
    }

    /// The slots that are there.
    pub(crate) fn slots_there(&self) -> impl Iterator<Item = &(SlotHeader, SlotState)> {
        self.slots.iter().filter(|(header, _)| header.pages > 0)
    }

    /// A bit for each page of each slot, none of them marked.
    pub(crate) fn no_pages(&self) -> PageMarks {
        PageMarks::new(self.slots.iter().map(|(header, _)| header.pages).collect())
    }

    /// Which methods writes take to files that don't say so themselves, where one who opens the pool
    /// says `opener`.
    pub(crate) fn update(&self, opener: Option<UpdatePolicy>) -> UpdatePolicy {
        let own = Mode::without(self.superblock.default_policy);
        opener.or(UpdatePolicy::numbered(own)).unwrap_or_default()
    }

    /// When writes become durable to files that don't say so themselves, where one who opens the pool says
    /// `opener`.
    pub(crate) fn mode(&self, opener: Option<Mode>) -> Option<Mode> {
        opener.or(Mode::of_bits(self.superblock.default_policy))
    }

    /// A bit for each slot that is being emptied.
    pub(crate) fn leaving(&self) -> u64 {
        let is_leaving =
            |state: &SlotState| state.evacuation_state != 0 && state.given_up().is_none();
        let leaving = self.slots.iter().filter(|(_, state)| is_leaving(state));
        leaving.fold(0, |bits, (header, _)| bits | 1 << (header.index % 64))
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.state.flags & PoolState::CLEAN != 0
    }

    /// Refuses to write a pool with features that a writer must know, without a session left, or with a slot
    /// whose place another one takes.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if let Some(lost) = self.given_up() {
            return Err(Error::BadPool(format!(
                "slot {lost} is lost, and its place is being given to another: end that by the same call of `novale \
                 slot replace --lost`; until then the pool can be mounted read-only"
            )));
        }
        let handed_on = self.slots.iter().find(|(_, state)| state.heir().is_some());
        match handed_on {
            Some((header, _)) => Err(Error::BadPool(format!(
                "slot {} is being replaced, and the slot that takes its place may have it already: end that by \
                 the same call of `novale slot replace` (or `remove`), or take it back with `novale slot replace \
                 --cancel`; until then the pool can be mounted read-only",
                header.index
            ))),
            None => self.check_features(),
        }
    }

    /// The lost slot of which the others are being rid.
    pub(crate) fn given_up(&self) -> Option<u8> {
        self.slots.iter().find_map(|(_, state)| state.given_up())
    }

    /// The same, for who ends that, or takes it back.
    pub(crate) fn check_features(&self) -> Result<()> {
        // One for an opening that was cut off, one for this one, one for the closing.
        if self.state.session + 3 >= SESSION_LIMIT {
            return Err(Error::BadPool(format!(
                "the pool is of session {}, as many as its format counts: mount it read-only, and copy \
                 what it holds to another",
                self.state.session
            )));
        }
        let unknown = self.superblock.features_ro_compat & !RoFeature::KNOWN;
        if unknown == 0 {
            return Ok(());
        }
        Err(Error::BadPool(format!(
            "the pool uses features that this program can't write ({unknown:#x}): mount it \
             read-only, or use a newer release"
        )))
    }

    /// Refuses a pool whose own lines have a number that can't be counted on from.
    pub(crate) fn check_numbers(&self) -> Result<()> {
        let pool = (PmAddr::new(0, turn(POOL_STATE_OFFSETS, self.state.seq)), self.state.seq);
        let slots = self.slots.iter().map(|(header, state)| {
            (PmAddr::new(header.index, turn(SLOT_STATE_OFFSETS, state.seq)), state.seq)
        });
        match slots.chain([pool]).find(|(_, seq)| *seq >= SEQ_RISE_LIMIT) {
            Some((at, seq)) => {
                Err(Error::damaged("state line", at, format!("seq {seq:#x}: all used up")))
            }
            None => Ok(()),
        }
    }

    /// Rewrites the copies that do not say what stands, durably: the other copies, and the older state lines, change
    /// after it. Their places follow from the slots' headers, so the caller has seen that no inode has a page there.
    pub(crate) fn repair_copies(&mut self, pm: &Pm) {
        if self.bad_copies.is_empty() {
            return;
        }
        let bad = self.bad_copies.drain(..);
        pm.fence(bad.fold(Flushed::none(), |pending, bad| pending.and(bad.rewrite(pm)))).end();
    }

    /// Rewrites the newer state lines of slots that are damaged, durably: the next one goes over the older line.
    pub(crate) fn repair_state_lines(&self, pm: &Pm) {
        for bad in self.bad_copies.iter().filter(|bad| bad.is_state_line()) {
            pm.fence(bad.rewrite(pm)).end();
        }
    }

    /// Sets a feature's bit durably, where it is not set. Crash points: (1) the first copy as it is seen, or
    /// what a death cut off rewritten. (2) The replica with the bit; the first copy stands without it. (3) The
    /// first copy; where it is torn the replica stands, with the bit. A bit too many only keeps programs from
    /// writing that need not be kept from it.
    pub(crate) fn set_feature(&mut self, pm: &Pm, feature: RoFeature) {
        // A client that stored the first copy may have died before its fence: neither may its bit be
        // believed then, nor may the replica change, while a crash could tear the first copy, too.
        self.repair_copies(pm);
        pm.fence(first_copy_seen(pm)).end();
        if self.superblock.features_ro_compat & feature.bit() != 0 {
            return;
        }
        self.superblock.features_ro_compat |= feature.bit();
        self.write_superblock(pm);
    }

    /// As [`Pool::set_feature`], where slots have failed that are not slot 0, by their bits: only the copies in
    /// the others say so. Where the replica is lost, a crash that tears the first copy leaves what the
    /// restored slot has, and nothing has used the feature by then.
    pub(crate) fn set_feature_without(pm: &Pm, failed: u64, feature: RoFeature) -> Result<()> {
        let mut superblock = copies::first_superblock(pm)?;
        superblock.features_ro_compat |= feature.bit();
        let bytes = superblock.encode();
        pm.fence(first_copy_seen(pm)).end();
        let last = pm.slot_count().saturating_sub(1);
        if failed >> last & 1 == 0 {
            let replica = replica_of(&copies::slot_header(pm, last)?.0);
            pm.fence(pm.stream(replica, &bytes, Purpose::Other)).end();
        }
        pm.fence(pm.stream(PmAddr::new(0, 0), &bytes, Purpose::Other)).end();
        Ok(())
    }

    /// Makes the superblock name the tables that there are, durably.
    pub(crate) fn set_roots(&mut self, pm: &Pm) {
        self.superblock.roots = Roots::fixed();
        self.write_superblock(pm);
    }

    /// Writes the superblock: the replica, then the first copy. All of it, for the checksum covers what
    /// another program may have left in the reserved bytes.
    pub(crate) fn write_superblock(&self, pm: &Pm) {
        let bytes = self.superblock.encode();
        let last = self.slots.last().filter(|(header, _)| header.pages > 0);
        let replica = last.map(|(header, _)| replica_of(header));
        for at in replica.into_iter().chain([PmAddr::new(0, 0)]) {
            let stored = pm.stream(at, &bytes, Purpose::Other);
            if at.byte() == 0 || !seeded::is_on(Bug::FeatureCopiesTogether) {
                pm.fence(stored).end();
            }
        }
    }

    /// Writes the state lines and the superblock's features back, no matter who stored them.
    pub(crate) fn write_back(&self, pm: &Pm) -> Flushed {
        let slots = self.slots.iter().flat_map(|(header, _)| {
            SLOT_STATE_OFFSETS.map(|offset| PmAddr::new(header.index, offset))
        });
        let lines = slots.chain(POOL_STATE_OFFSETS.map(|offset| PmAddr::new(0, offset)));
        let lines = lines.chain([PmAddr::new(0, 0)]);
        lines.fold(Flushed::none(), |pending, at| {
            pending.and(pm.write_back_range(at, LINE, Purpose::Other))
        })
    }

    /// Starts the next session of a pool that is opened for writing, behind what recovery stored (`pending`).
    ///
    /// # Errors
    /// As [`Pool::next_session`].
    pub(crate) fn raise_session(&mut self, pm: &Pm, pending: Flushed) -> Result<()> {
        let state = PoolState {
            flags: 0,
            saved_root: PmAddr::NULL,
            saved_bytes: 0,
            saved_crc: 0,
            ..self.state
        };
        self.next_session(pm, pending, state)
    }

    /// Starts the next session, in which the pool has `state`, behind what was stored before (`pending`). One that
    /// was begun and cut off is gone through first: its number is in a slot already, of which there may be a copy.
    ///
    /// # Errors
    /// [`Error::Lost`]: a slot has failed meanwhile. It can come back as it was then, as one that a crash cut off.
    pub(crate) fn next_session(
        &mut self,
        pm: &Pm,
        mut pending: Flushed,
        state: PoolState,
    ) -> Result<()> {
        self.repair_state_lines(pm);
        self.bad_copies.retain(|bad| !bad.is_state_line());
        let session = u64::from(self.state.session);
        if self.slots_there().any(|(_, of)| of.session > session) {
            self.begin_session(pm, std::mem::replace(&mut pending, Flushed::none()), state)?;
        }
        self.begin_session(pm, pending, state)
    }

    /// Starts the next session alone.
    ///
    /// Crash points, each durable before the next: (1) slot 0's line; (2) those of the other slots; (3) the
    /// pool's line, with which the session counts. Before (3) a slot may be one ahead of the pool, and another
    /// one only if slot 0 is: so an old copy of slot 0, which has the pool's line too, is told. What fails before one
    /// of these is durable stops it: the slot would be behind the pool when it comes back, an old copy of itself.
    fn begin_session(&mut self, pm: &Pm, mut pending: Flushed, state: PoolState) -> Result<()> {
        let (health, session) = (pm.health(), self.state.session + 1);
        for (header, state) in self.slots.iter_mut().filter(|(header, _)| header.pages > 0) {
            state.seq += 1;
            state.session = u64::from(session);
            pending = pending.and(store_slot_state(pm, self.seed, header.index, state));
            if header.index == 0 && !seeded::is_on(Bug::FirstSlotWithOthers) {
                pm.fence(std::mem::replace(&mut pending, Flushed::none())).end();
                nothing_lost(pm, health)?;
            }
        }
        if seeded::is_on(Bug::StateLinesTogether) {
            drop(pending);
        } else {
            pm.fence(pending).end();
        }
        nothing_lost(pm, health)?;
        let state = if seeded::is_on(Bug::CleanMarkStays) { self.state } else { state };
        self.write_state(pm, PoolState { session, ..state });
        Ok(())
    }

    /// Writes the pool's state durably, to the line that does not stand.
    pub(crate) fn write_state(&mut self, pm: &Pm, state: PoolState) {
        self.state = PoolState { seq: self.state.seq + 1, ..state };
        pm.fence(store_pool_state(pm, self.seed, &self.state)).end();
    }
}

/// Refuses to go on where something was lost since the slots were found so.
pub(crate) fn nothing_lost(pm: &Pm, before: Health) -> Result<()> {
    let now = pm.health();
    if now == before {
        return Ok(());
    }
    let new = now.failed & !before.failed;
    let slot = if new == 0 { now.failed | pm.lacking() } else { new }.trailing_zeros();
    Err(Error::Lost(PmAddr::new(u8::try_from(slot).unwrap_or(0), 0)))
}

/// Makes the first copy of the superblock, of a pool that is to have so many slots, one that has them: from the last
/// one's replica, which was durable before. Nobody else stores there.
pub(crate) fn confirm_superblock(pm: &Pm, slots: u64) -> Result<Flushed> {
    if copies::first_superblock(pm).is_ok_and(|found| u64::from(found.slot_count) == slots) {
        return Ok(first_copy_seen(pm));
    }
    let last = pm.slot_count().saturating_sub(1);
    let mut bytes = [0; SUPERBLOCK_BYTES];
    pm.load(replica_of(&copies::slot_header(pm, last)?.0), &mut bytes)?;
    let replica = Superblock::decode(&bytes);
    if !replica.is_ok_and(|replica| u64::from(replica.slot_count) == slots) {
        return Err(Error::BadPool(format!("slot {last} has no superblock of {slots} slots")));
    }
    Ok(pm.stream(PmAddr::new(0, 0), &bytes, Purpose::Other))
}

/// Writes the superblock's first copy back, no matter who stored it.
fn first_copy_seen(pm: &Pm) -> Flushed {
    pm.write_back_range(PmAddr::new(0, 0), SUPERBLOCK_BYTES as u64, Purpose::Other)
}

/// Where the superblock's replica lies, by the header of the last slot.
fn replica_of(header: &SlotHeader) -> PmAddr {
    PmAddr::new(header.index, (header.pages - 1) * PAGE)
}

/// The place of a line by its sequence number: the two lines are written in turn.
fn turn(offsets: [u64; 2], seq: u64) -> u64 {
    let [first, second] = offsets;
    if seq.is_multiple_of(2) && !seeded::is_on(Bug::StateInPlace) { first } else { second }
}

pub(crate) fn store_pool_state(pm: &Pm, seed: Seed, state: &PoolState) -> Flushed {
    let at = PmAddr::new(0, turn(POOL_STATE_OFFSETS, state.seq));
    pm.stream(at, &state.encode(seed), Purpose::Other)
}

/// Where in a slot the state line with a number lies: the next one goes to the other place.
pub(crate) fn slot_state_place(seq: u64) -> u64 {
    turn(SLOT_STATE_OFFSETS, seq)
}

pub(crate) fn store_slot_state(pm: &Pm, seed: Seed, slot: u8, state: &SlotState) -> Flushed {
    let at = PmAddr::new(slot, slot_state_place(state.seq));
    pm.stream(at, &state.encode(seed.addr(PmAddr::new(slot, 0))), Purpose::Other)
}

fn read_state(pm: &Pm, seed: Seed) -> Result<PoolState> {
    let mut best: Option<PoolState> = None;
    let mut why = String::new();
    for offset in POOL_STATE_OFFSETS {
        match PoolState::decode(&pm.load_line(PmAddr::new(0, offset))?, seed) {
            Ok(state) if best.is_none_or(|best| state.seq > best.seq) => best = Some(state),
            Ok(_) => {}
            Err(error) => why = error.to_string(),
        }
    }
    best.ok_or_else(|| {
        Error::BadPool(format!(
            "the pool's two state lines are damaged ({why}): restore slot 0 from a copy"
        ))
    })
}

/// What the state of a pool is whose slot 0 is not there, as far as its other slots say: of which session they
/// are, and not whether it was closed.
fn state_by_slots(pm: &Pm, seed: Seed) -> Result<PoolState> {
    let there = (0..pm.slot_count()).filter(|slot| !pm.is_absent(*slot));
    let sessions =
        there.map(|slot| Ok(newest_slot_state(pm, seed, slot)?.map_or(0, |state| state.session)));
    let sessions = sessions.collect::<Result<Vec<u64>>>()?;
    let newest = sessions.iter().max().copied().unwrap_or(0);
    // Those that the beginning of a session had not come to are one behind.
    let session = sessions.iter().filter(|session| **session + 1 >= newest).min().copied();
    Ok(PoolState {
        seq: 0,
        session: u32::try_from(session.unwrap_or(0)).unwrap_or(u32::MAX),
        flags: 0,
        saved_root: PmAddr::NULL,
        saved_bytes: 0,
        saved_crc: 0,
        wear_summary: 0,
    })
}

fn newest_slot_state(pm: &Pm, seed: Seed, slot: u8) -> Result<Option<SlotState>> {
    let mut best: Option<SlotState> = None;
    for offset in SLOT_STATE_OFFSETS {
        let line = pm.load_line(PmAddr::new(slot, offset))?;
        if let Ok(state) = SlotState::decode(&line, seed.addr(PmAddr::new(slot, 0)))
            && best.is_none_or(|best| state.seq > best.seq)
        {
            best = Some(state);
        }
    }
    Ok(best)
}

/// What a slot says of itself, whatever there is of the others.
pub(crate) fn read_slot_state(pm: &Pm, seed: Seed, slot: u8) -> Result<SlotState> {
    newest_slot_state(pm, seed, slot)?.ok_or_else(|| {
        Error::BadPool(format!(
            "slot {slot}: its two state lines are damaged: restore the slot from a copy"
        ))
    })
}

/// What a slot says of itself in a pool of this session, and its newer line where that is damaged. With the line of
/// the session before it stands what it said: a session begins with a line that changes nothing else, in the place of
/// which the older one shows, and no crash tears it any more once the pool is of its session.
fn slot_state_in(
    pm: &Pm,
    seed: Seed,
    slot: u8,
    session: u32,
) -> Result<(SlotState, Option<BadCopy>)> {
    let state = read_slot_state(pm, seed, slot)?;
    if state.session + 1 != u64::from(session) {
        return Ok((state, None));
    }
    Ok(match damaged_behind(pm, slot, seed, (slot, &state))? {
        Some((at, error)) => {
            let next = SlotState { seq: state.seq + 1, session: session.into(), ..state };
            let bytes = next.encode(seed.addr(PmAddr::new(slot, 0)));
            (next, Some(BadCopy::of_state(at, error, &bytes)))
        }
        None => (state, None),
    })
}

/// The place of a state line that may have come after `state`, of the slot of that number, and is refused, and why.
/// The slot was opened in the place `slot`.
fn damaged_behind(
    pm: &Pm,
    slot: u8,
    seed: Seed,
    (index, state): (u8, &SlotState),
) -> Result<Option<(PmAddr, LayoutError)>> {
    let seed = seed.addr(PmAddr::new(index, 0));
    let at = PmAddr::new(slot, slot_state_place(state.seq + 1));
    let line = pm.load_line(at)?;
    // The pool's own line lies in slot 0, and its session began with that slot's line.
    let may_precede = index == 0 || state.may_precede(&line);
    let refused = SlotState::decode(&line, seed).err().filter(|_| may_precede);
    Ok(refused.map(|error| (at, error)))
}

/// Refuses slots that were not last used together, in a pool that is in `session`: which ones may be one ahead
/// of it follows from the steps of [`Pool::next_session`].
fn refuse_old_copies(pm: &Pm, session: u32, slots: &[(SlotHeader, SlotState)]) -> Result<()> {
    let session = u64::from(session);
    let first = slots.first().filter(|_| !pm.is_absent(0)).map(|(_, state)| state.session);
    let slots = || slots.iter().map(|(header, state)| (header.index, state.session));
    if let Some(first) = first
        && let Some((slot, of)) = slots().find(|(_, of)| *of > first)
    {
        return Err(Error::BadPool(format!(
            "slot 0 is of session {first}, slot {slot} of session {of}: slot 0 is an old copy; give the slots \
             that were last used together"
        )));
    }
    match slots().find(|(_, of)| *of != session && *of != session + 1) {
        Some((slot, of)) => Err(Error::BadPool(format!(
            "slot {slot} is of session {of}, the pool of session {session}: it is an old copy; give the slots \
             that were last used together"
        ))),
        None => Ok(()),
    }
}

/// No slot that is there is shorter than it was made.
fn check_lengths(pm: &Pm, headers: &[SlotHeader]) -> Result<()> {
    for (index, header) in (0..).zip(headers).filter(|(index, _)| !pm.is_absent(*index)) {
        let pages = pm.slot_len(index) / PAGE;
        if pages < header.pages {
            return Err(Error::BadPool(format!(
                "slot {index} has {pages} pages of the {} that it was made with: it was cut off; {}",
                header.pages, CUT_OFF
            )));
        }
    }
    Ok(())
}

fn check_slots(superblock: &Superblock, headers: &[SlotHeader]) -> Result<()> {
    let expected = usize::from(superblock.slot_count);
    for (index, header) in headers.iter().enumerate() {
        if header.pool_uuid != superblock.pool_uuid {
            return Err(Error::BadPool(format!("slot {index} belongs to another pool")));
        }
        if usize::from(header.index) != index {
            return Err(Error::BadPool(format!(
                "slot {} of the pool was given in place {index}: give each slot once, in order",
                header.index
            )));
        }
    }
    if headers.len() > expected {
        return Err(Error::BadPool(format!(
            "the pool has {expected} slots, and slot {expected} is none of them: it was not added \
             whole, or is being removed; leave it out, or go on with `novale slot`"
        )));
    }
    if headers.len() != expected {
        let missing: Vec<String> = (headers.len()..expected).map(|slot| slot.to_string()).collect();
        return Err(Error::BadPool(format!(
            "the pool has {expected} slots, missing: slot {}: name all of them",
            missing.join(", slot ")
        )));
    }
    if superblock.features_incompat != 0 {
        return Err(Error::BadPool(format!(
            "the pool uses features that this program does not know ({:#x}): use a newer release",
            superblock.features_incompat
        )));
    }
    Ok(())
}
