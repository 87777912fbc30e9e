//! The superblock, the slots' headers, and the state lines: each copy, and which of them stands.

use novale_layout::{
    LINE, PAGE, POOL_STATE_OFFSETS, PmAddr, PoolState, SLOT_HEADER_BYTES, SLOT_HEADER_OFFSET,
    SLOT_STATE_OFFSETS, SUPERBLOCK_BYTES, Seed, SlotHeader, SlotState, Structure, Superblock,
    WearLine,
};
use novale_pm::Pm;

use crate::offline::dump::Dump;
use crate::offline::dump::shown::Shown;

/// What a pool says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolDump {
    /// The superblock in the first slot, and its replica in the last one.
    pub superblocks: Vec<Shown>,
    /// The pool's two state lines.
    pub states: Vec<Shown>,
}

/// What a slot says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotDump {
    /// Its number.
    pub index: u8,
    /// Bytes of it that are there; 0 where it is missing.
    pub bytes: u64,
    /// Its header, and the replica.
    pub headers: Vec<Shown>,
    /// Its two state lines.
    pub states: Vec<Shown>,
    /// The wear lines that were ever written.
    pub wear: Vec<Shown>,
}

const BOTH_STAND: &str = "stands: both copies say the same";

/// The last page of a slot by its own header, else by its length.
fn last_page(pm: &Pm, slot: u8) -> u64 {
    let pages = pm.slot_len(slot) / PAGE;
    let header = header_at(pm, PmAddr::new(slot, SLOT_HEADER_OFFSET));
    header.map_or(pages, |header| header.pages.min(pages)).saturating_sub(1)
}

fn header_at(pm: &Pm, at: PmAddr) -> Option<SlotHeader> {
    let mut bytes = [0; SLOT_HEADER_BYTES];
    pm.load(at, &mut bytes).ok()?;
    SlotHeader::decode(&bytes).ok()
}

/// Where the superblock and its replica lie.
fn superblock_places(pm: &Pm) -> [PmAddr; 2] {
    let last = pm.slot_count().saturating_sub(1);
    [PmAddr::new(0, 0), PmAddr::new(last, last_page(pm, last) * PAGE)]
}

fn read_superblock(pm: &Pm, at: PmAddr) -> Option<Superblock> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    pm.load(at, &mut bytes).ok()?;
    Superblock::decode(&bytes).ok()
}

/// The superblock that stands.
pub(super) fn superblock(pm: &Pm, remarks: &mut Vec<String>) -> Option<Superblock> {
    let [first, replica] = superblock_places(pm).map(|at| read_superblock(pm, at));
    if first.is_none() && replica.is_some() {
        remarks.push("the first copy of the superblock is refused: its replica is used".to_owned());
    }
    let found = first.or(replica);
    if found.is_none() {
        remarks.push(
            "both copies of the superblock are refused: tables are looked for in their places"
                .to_owned(),
        );
    }
    found
}

/// The pool's UUID as a slot's header names it.
pub(super) fn uuid_of_slots(pm: &Pm, remarks: &mut Vec<String>) -> Option<[u8; 16]> {
    let places = (0..pm.slot_count()).flat_map(|slot| {
        [0, last_page(pm, slot)].map(|page| PmAddr::new(slot, page * PAGE + SLOT_HEADER_OFFSET))
    });
    let found = places.into_iter().find_map(|at| header_at(pm, at));
    if found.is_none() {
        remarks.push("no slot header stands either: every checksum will be refused".to_owned());
    }
    found.map(|header| header.pool_uuid)
}

/// The pool's state line that stands.
pub(super) fn state(pm: &Pm, seed: Seed) -> Option<PoolState> {
    let lines = POOL_STATE_OFFSETS.map(|offset| pm.load_line(PmAddr::new(0, offset)).ok());
    let states = lines.into_iter().flatten().filter_map(|line| PoolState::decode(&line, seed).ok());
    states.max_by_key(|state| state.seq)
}

impl Dump<'_> {
    /// The superblock and the pool's state lines.
    #[must_use]
    pub fn pool(&self) -> PoolDump {
        let mut superblocks = Vec::new();
        let mut found = Vec::new();
        for at in superblock_places(self.pm) {
            let mut bytes = [0; SUPERBLOCK_BYTES];
            let shown = match self.pm.load(at, &mut bytes) {
                Ok(()) => {
                    let judged = Superblock::decode(&bytes);
                    found.extend(judged.ok());
                    Shown::new(Structure::Superblock, at, &bytes, &judged)
                }
                Err(error) => Shown::unreadable(Structure::Superblock, at, error),
            };
            superblocks.push(shown);
        }
        say_which_copy(&mut superblocks, found.windows(2).all(|pair| pair.first() == pair.last()));
        let mut lines: Vec<(Shown, Option<u64>)> = POOL_STATE_OFFSETS
            .iter()
            .map(|offset| {
                let at = PmAddr::new(0, *offset);
                let (shown, state) =
                    self.line(Structure::PoolState, at, |line| PoolState::decode(line, self.seed));
                (shown, state.map(|state| state.seq))
            })
            .collect();
        say_which_line(&mut lines);
        if let Some(state) = self.state {
            let said = if self.is_clean() { "closed clean" } else { "not closed clean" };
            let standing = lines.iter_mut().find(|(_, seq)| *seq == Some(state.seq));
            standing.map(|(shown, _)| shown.note(said)).unwrap_or_default();
        }
        PoolDump { superblocks, states: lines.into_iter().map(|(shown, _)| shown).collect() }
    }

    /// Each slot, the missing ones too.
    #[must_use]
    pub fn slots(&self) -> Vec<SlotDump> {
        (0..self.pm.slot_count()).map(|slot| self.slot(slot)).collect()
    }

    /// The wear lines that were ever written.
    fn wear(&self, slot: u8) -> Vec<Shown> {
        let seed = self.seed.addr(PmAddr::new(slot, 0));
        let line = |turn| {
            let at = WearLine::addr(slot, turn);
            if self.pm.load_line(at).is_ok_and(|line| line == [0; 64]) {
                return None;
            }
            let (shown, wear) = self.line(Structure::Wear, at, |line| WearLine::decode(line, seed));
            Some((shown, wear.map(|wear| wear.seq)))
        };
        let mut lines: Vec<(Shown, Option<u64>)> = (0..WearLine::TURNS).filter_map(line).collect();
        say_which_line(&mut lines);
        lines.into_iter().map(|(shown, _)| shown).collect()
    }

    fn slot(&self, slot: u8) -> SlotDump {
        let mut headers = Vec::new();
        let mut found = Vec::new();
        for page in [0, last_page(self.pm, slot)] {
            let at = PmAddr::new(slot, page * PAGE + SLOT_HEADER_OFFSET);
            let mut bytes = [0; SLOT_HEADER_BYTES];
            let shown = match self.pm.load(at, &mut bytes) {
                Ok(()) => {
                    let judged = SlotHeader::decode(&bytes);
                    found.extend(judged.ok());
                    Shown::new(Structure::SlotHeader, at, &bytes, &judged)
                }
                Err(error) => Shown::unreadable(Structure::SlotHeader, at, error),
            };
            headers.push(shown);
        }
        say_which_copy(&mut headers, found.windows(2).all(|pair| pair.first() == pair.last()));
        let mut lines: Vec<(Shown, Option<u64>)> = SLOT_STATE_OFFSETS
            .iter()
            .map(|offset| {
                debug_assert!(offset.is_multiple_of(LINE));
                let seed = self.seed.addr(PmAddr::new(slot, 0));
                let at = PmAddr::new(slot, *offset);
                let (shown, state) =
                    self.line(Structure::SlotState, at, |line| SlotState::decode(line, seed));
                (shown, state.map(|state| state.seq))
            })
            .collect();
        say_which_line(&mut lines);
        let states = lines.into_iter().map(|(shown, _)| shown).collect();
        let wear = self.wear(slot);
        SlotDump { index: slot, bytes: self.pm.slot_len(slot), headers, states, wear }
    }
}

/// Of what is kept twice the first copy stands where it validates, else the replica.
fn say_which_copy(copies: &mut [Shown], same: bool) {
    let valid = copies.iter().filter(|copy| copy.refused.is_none()).count();
    if valid == copies.len() && same {
        return copies.iter_mut().for_each(|copy| copy.note(BOTH_STAND));
    }
    let mut taken = false;
    for copy in copies.iter_mut().filter(|copy| copy.refused.is_none()) {
        let said = if taken { "says something else: it is rewritten" } else { "stands" };
        copy.note(said);
        taken = true;
    }
}

/// Of state lines, and of wear lines, the one of the greater `seq` stands.
fn say_which_line(lines: &mut [(Shown, Option<u64>)]) {
    let newest = lines.iter().filter_map(|(_, seq)| *seq).max();
    for (shown, seq) in lines.iter_mut() {
        match seq {
            Some(_) if *seq == newest => shown.note("stands"),
            Some(_) => shown.note("older"),
            None => {}
        }
    }
}
