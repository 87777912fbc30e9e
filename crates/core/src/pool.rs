//! What a pool says of itself: superblock, slot headers, state lines.

use novale_layout::{
    LayoutError, PAGE, POOL_STATE_OFFSETS, PmAddr, PoolState, SESSION_LIMIT, SLOT_HEADER_BYTES,
    SLOT_HEADER_OFFSET, SLOT_STATE_OFFSETS, SUPERBLOCK_BYTES, Seed, SlotHeader, SlotState,
    Superblock,
};
use novale_pm::{Flushed, Pm, Purpose};

use crate::error::{Error, Result};

/// A pool's description, read and checked.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    pub(crate) superblock: Superblock,
    pub(crate) seed: Seed,
    pub(crate) state: PoolState,
    pub(crate) slots: Vec<(SlotHeader, SlotState)>,
    /// The superblock or a slot header was read from its replica.
    pub(crate) from_replica: bool,
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
    /// Number of mounts for writing so far.
    pub session: u32,
    /// Closed in order and not opened for writing since.
    pub clean: bool,
    /// A superblock or slot header is damaged, and its replica was used.
    pub from_replica: bool,
    /// Feature words: compatible, compatible for reading, incompatible.
    pub features: [u64; 3],
    /// The slots, in order.
    pub slots: Vec<SlotInfo>,
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
        from_replica: pool.from_replica,
        features: [
            superblock.features_compat,
            superblock.features_ro_compat,
            superblock.features_incompat,
        ],
        slots: pool
            .slots
            .iter()
            .map(|(header, _)| SlotInfo {
                uuid: header.slot_uuid,
                index: header.index,
                pages: header.pages,
            })
            .collect(),
    })
}

/// The header of one slot that was opened alone, to learn which slot of which pool it is.
///
/// # Errors
/// [`Error::BadPool`] when it is no slot of a Novale pool.
pub fn identify_slot(pm: &Pm, slot: u8) -> Result<([u8; 16], u8)> {
    let (header, _) = read_header(pm, slot)?;
    Ok((header.pool_uuid, header.index))
}

impl Pool {
    pub(crate) fn read(pm: &Pm) -> Result<Self> {
        let mut from_replica = false;
        let mut headers = Vec::new();
        for slot in 0..pm.slot_count() {
            let (header, replica) = read_header(pm, slot)?;
            from_replica |= replica;
            headers.push(header);
        }
        check_lengths(pm, &headers)?;
        let (superblock, replica) = read_superblock(pm, &headers)?;
        from_replica |= replica;
        check_slots(&superblock, &headers)?;
        let seed = Seed::pool(&superblock.pool_uuid);
        let state = read_state(pm, seed)?;
        let mut slots = Vec::new();
        for header in headers {
            let slot_state = read_slot_state(pm, seed, header.index, state.session)?;
            slots.push((header, slot_state));
        }
        Ok(Self { superblock, seed, state, slots, from_replica })
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.state.flags & PoolState::CLEAN != 0
    }

    /// Refuses to write a pool with features that a writer must know, or without a session left.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.state.session + 1 >= SESSION_LIMIT {
            return Err(Error::BadPool(format!(
                "the pool was opened for writing {} times, as often as its format counts: mount it \
                 read-only, and copy what it holds to another",
                self.state.session
            )));
        }
        let unknown = self.superblock.features_ro_compat;
        if unknown == 0 {
            return Ok(());
        }
        Err(Error::BadPool(format!(
            "the pool uses features that this program can't write ({unknown:#x}): mount it read-only, \
             or use a newer release"
        )))
    }

    /// Starts the next session: the slots' lines first, then the pool's, each durable before the
    /// next; a crash in between leaves a slot one ahead, which counts as current.
    pub(crate) fn raise_session(&mut self, pm: &Pm) {
        let session = self.state.session + 1;
        let mut pending = Flushed::none();
        for (header, state) in &mut self.slots {
            state.seq += 1;
            state.session = u64::from(session);
            pending = pending.and(store_slot_state(pm, self.seed, header.index, state));
        }
        pm.fence(pending).end();
        let state = PoolState {
            session,
            flags: 0,
            saved_root: PmAddr::NULL,
            saved_bytes: 0,
            saved_crc: 0,
            ..self.state
        };
        self.write_state(pm, state);
    }

    /// Writes the pool's state durably, to the line that does not stand.
    pub(crate) fn write_state(&mut self, pm: &Pm, state: PoolState) {
        self.state = PoolState { seq: self.state.seq + 1, ..state };
        pm.fence(store_pool_state(pm, self.seed, &self.state)).end();
    }
}

/// The place of a line by its sequence number: the two lines are written in turn.
fn turn(offsets: [u64; 2], seq: u64) -> u64 {
    let [first, second] = offsets;
    if seq.is_multiple_of(2) { first } else { second }
}

pub(crate) fn store_pool_state(pm: &Pm, seed: Seed, state: &PoolState) -> Flushed {
    let at = PmAddr::new(0, turn(POOL_STATE_OFFSETS, state.seq));
    pm.stream(at, &state.encode(seed), Purpose::Other)
}

pub(crate) fn store_slot_state(pm: &Pm, seed: Seed, slot: u8, state: &SlotState) -> Flushed {
    let at = PmAddr::new(slot, turn(SLOT_STATE_OFFSETS, state.seq));
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
    best.ok_or_else(|| Error::BadPool(format!("the pool's two state lines are damaged ({why})")))
}

fn read_slot_state(pm: &Pm, seed: Seed, slot: u8, session: u32) -> Result<SlotState> {
    let mut best: Option<SlotState> = None;
    for offset in SLOT_STATE_OFFSETS {
        let line = pm.load_line(PmAddr::new(slot, offset))?;
        if let Ok(state) = SlotState::decode(&line, seed.addr(PmAddr::new(slot, 0)))
            && best.is_none_or(|best| state.seq > best.seq)
        {
            best = Some(state);
        }
    }
    let state = best
        .ok_or_else(|| Error::BadPool(format!("slot {slot}: its two state lines are damaged")))?;
    let session = u64::from(session);
    if state.session != session && state.session != session + 1 {
        return Err(Error::BadPool(format!(
            "slot {slot} is of session {}, the pool of session {session}: it is an old copy, or the \
             others are; give the slots that were last used together",
            state.session
        )));
    }
    Ok(state)
}

fn header_at(pm: &Pm, slot: u8, page: u64) -> Result<Result<SlotHeader, LayoutError>> {
    let mut bytes = [0; SLOT_HEADER_BYTES];
    pm.load(PmAddr::new(slot, page * PAGE + SLOT_HEADER_OFFSET), &mut bytes)?;
    Ok(SlotHeader::decode(&bytes))
}

/// A slot's header, or its replica (`true`) where the header is damaged.
fn read_header(pm: &Pm, slot: u8) -> Result<(SlotHeader, bool)> {
    let pages = pm.slot_len(slot) / PAGE;
    let first = header_at(pm, slot, 0)?;
    if let Ok(header) = first {
        return Ok((header, false));
    }
    if let Ok(header) = header_at(pm, slot, pages.saturating_sub(1))? {
        return Ok((header, true));
    }
    let found = match first {
        Err(LayoutError::Blank) => "blank where its header should be".to_owned(),
        Err(error) => error.to_string(),
        Ok(_) => String::new(),
    };
    Err(Error::BadPool(format!(
        "slot {slot} is no slot of a Novale pool: {found}; make one with mkfs"
    )))
}

fn superblock_at(pm: &Pm, slot: u8, page: u64) -> Result<Result<Superblock, LayoutError>> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    pm.load(PmAddr::new(slot, page * PAGE), &mut bytes)?;
    Ok(Superblock::decode(&bytes))
}

fn read_superblock(pm: &Pm, headers: &[SlotHeader]) -> Result<(Superblock, bool)> {
    let first = match superblock_at(pm, 0, 0)? {
        Ok(superblock) => return Ok((superblock, false)),
        Err(error) => error,
    };
    if let Some(last) = headers.last()
        && let Ok(superblock) = superblock_at(pm, last.index, last.pages.saturating_sub(1))?
    {
        return Ok((superblock, true));
    }
    if headers.first().is_some_and(|header| header.index != 0) {
        return Err(Error::BadPool("the first slot given is not slot 0 of its pool".into()));
    }
    Err(Error::BadPool(format!("the superblock is damaged ({first}), and so is its replica")))
}

/// No slot is shorter than it was made.
fn check_lengths(pm: &Pm, headers: &[SlotHeader]) -> Result<()> {
    for (index, header) in (0..).zip(headers) {
        let pages = pm.slot_len(index) / PAGE;
        if pages < header.pages {
            return Err(Error::BadPool(format!(
                "slot {index} has {pages} pages of the {} that it was made with: it was cut off",
                header.pages
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
    if headers.len() != expected {
        return Err(Error::BadPool(format!(
            "the pool has {expected} slots, {} were given: name all of them",
            headers.len()
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
