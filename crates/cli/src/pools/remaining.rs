//! A pool of which slots are missing, or can't be used: what remains, for who only reads.
//!
//! A slot is left out where it is not given, damaged or cut off, of another pool, or older than the others; and
//! where it has no place in the pool, for a call of `novale slot` was cut off. Where slots of two pools are given,
//! the pool is that of most of them, and of the first given where as many are of each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use novale_core::{CUT_OFF, SlotSeen, inspect, look_at_slot, slot_header};
use novale_layout::PAGE;
use novale_pm::{Pm, SlotSpec};
use serde::Serialize;
use uuid::Uuid;

use crate::pools::slots::{self, Found};
use crate::pools::unfinished;

/// Of a pool of which slots are missing.
const SHOWS_REST: &str = "mount it with -o ro to see what remains; if it is lost for good, `novale slot replace \
                          --lost` gives its place to another";
/// Of one in which an old copy was put.
const PUT_BACK: &str =
    "put the slot back that was last used with the others, in the place of the old copy";
/// Of one of which the first is missing.
const NEEDS_FIRST: &str = "without slot 0 nothing of the pool can be found";

/// A slot that is not used, and why.
#[derive(Debug, Clone)]
pub(crate) struct LeftOut {
    /// Its number, where that is known.
    pub(crate) slot: Option<u8>,
    pub(crate) path: Option<PathBuf>,
    pub(crate) state: SlotState,
    why: String,
}

impl LeftOut {
    fn at(path: &Path, state: SlotState, why: String) -> Self {
        Self { slot: None, path: Some(path.to_owned()), state, why }
    }

    /// Whether a part of the pool is lost with it.
    pub(crate) fn is_lost(&self) -> bool {
        !matches!(self.state, SlotState::Replaced | SlotState::Waiting)
    }
}

/// How a slot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SlotState {
    Ok,
    /// It has failed while the pool was open.
    Failed,
    /// A removal of it was cut off: no new pages are taken there.
    Leaving,
    /// Another one has taken its place, or is to take it.
    Replaced,
    /// It has no place in the pool: it was to come or to go.
    Waiting,
    Missing,
    Damaged,
    Stale,
    Foreign,
}

impl SlotState {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Leaving => "leaving",
            Self::Replaced => "replaced",
            Self::Waiting => "waiting",
            Self::Missing => "missing",
            Self::Damaged => "damaged",
            Self::Stale => "stale",
            Self::Foreign => "foreign",
        }
    }
}

impl std::fmt::Display for LeftOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.path, self.slot) {
            (Some(path), Some(slot)) => write!(f, "slot {slot}, {}: {}", path.display(), self.why),
            (Some(path), None) => write!(f, "{}: {}", path.display(), self.why),
            (None, slot) => write!(f, "slot {}: {}", slot.unwrap_or(0), self.why),
        }
    }
}

/// Says of a slot that it is lost, and that its place is being given to another.
pub(crate) fn say_given_up(lost: u8) -> Result<()> {
    say!(
        "given up  slot {lost}: another is to have its place; end that by the same call of `novale slot replace \
         --lost`, until then the pool is only read"
    )
}

/// As [`slots::find`], of a pool of which slots may be missing.
pub(crate) fn find(given: &[PathBuf]) -> Result<Found> {
    let whole = match slots::find(given) {
        Ok(found) => return Ok(found),
        Err(error) => error,
    };
    match what_remains(given) {
        Ok(Some(found)) => Ok(found),
        Ok(None) | Err(_) => Err(whole),
    }
}

/// As [`slots::find`], for who would write: says what could be read where that is not all.
pub(crate) fn find_whole(given: &[PathBuf]) -> Result<Found> {
    slots::find(given).map_err(|error| match what_remains(given) {
        Ok(Some(found)) if found.paths.len() < found.places.len() => {
            let left_out: Vec<String> = found.left_out.iter().map(ToString::to_string).collect();
            let left_out = left_out.join("; ");
            // What was given for each place is told with why it can't be used.
            let is_told = found.left_out.iter().all(|slot| slot.path.is_some());
            let has_copy = found.left_out.iter().any(|slot| slot.state == SlotState::Stale);
            let advice = match (found.has_first(), has_copy) {
                (true, true) => format!("{PUT_BACK}; else {SHOWS_REST}"),
                (true, false) => SHOWS_REST.to_owned(),
                (false, true) => PUT_BACK.to_owned(),
                (false, false) => NEEDS_FIRST.to_owned(),
            };
            match (found.has_first(), is_told) {
                (_, true) => anyhow!("{left_out}; {advice}"),
                (true, false) => error.context(format!("{left_out}; {advice}")),
                (false, false) if has_copy => anyhow!("{left_out}; {advice}"),
                (false, false) => error,
            }
        }
        Ok(_) | Err(_) => error,
    })
}

/// A slot as it was given.
type Given = (PathBuf, SlotSeen);

fn what_remains(given: &[PathBuf]) -> Result<Option<Found>> {
    let given = slots::absolute(given)?;
    slots::refuse_twice(&given)?;
    if let Some(old) = unfinished::first_is_old(&given) {
        return Err(old);
    }
    let (mut seen, mut damaged): (Vec<Given>, Vec<(PathBuf, String)>) = (vec![], vec![]);
    for path in &given {
        match look(path) {
            Ok(slot) => seen.push((path.clone(), slot)),
            Err(error) => damaged.push((path.clone(), why_damaged(path, &error))),
        }
    }
    let Some(pool) = pool_of_most(&seen) else { return Ok(None) };
    let (mut ours, foreign): (Vec<Given>, Vec<Given>) =
        seen.into_iter().partition(|(_, slot)| slot.pool == pool);
    // The first slot's word counts before that of one which was taken out of the end, and an old copy's last.
    let newest = newest_session(&ours);
    ours.sort_by_key(|(_, slot)| (!is_of(slot, newest), slot.index));
    let count = ours.iter().find_map(|(_, slot)| slot.slot_count);
    let count = count.context("neither the first nor the last slot of the pool is there")?;
    let mut left_out = without_place(&given, &mut ours, &mut damaged, (pool, count));
    left_out
        .extend(damaged.into_iter().map(|(path, why)| LeftOut::at(&path, SlotState::Damaged, why)));
    left_out.extend(foreign.into_iter().map(|(path, slot)| {
        let why = format!("it belongs to another pool, {}", Uuid::from_bytes(slot.pool));
        LeftOut::at(&path, SlotState::Foreign, why)
    }));
    let places = places(ours, count, &mut left_out)?;
    give_numbers(&mut left_out, &places);
    found(given, places, left_out).map(Some)
}

/// Takes out those that have no place in a pool of so many slots, for a call of `novale slot` was cut off.
fn without_place(
    given: &[PathBuf],
    ours: &mut Vec<Given>,
    damaged: &mut Vec<(PathBuf, String)>,
    (pool, count): ([u8; 16], u8),
) -> Vec<LeftOut> {
    let mut left_out = Vec::new();
    let mut waits = |path: &PathBuf| {
        let header = slots::open(std::slice::from_ref(path), slots::reading());
        let header = header.ok().and_then(|pm| slot_header(&pm).ok());
        let waits = header.is_some_and(|found| found.pool_uuid == pool && found.index >= count);
        if waits {
            let why = unfinished::why_waiting(path, given);
            left_out.push(LeftOut::at(path, SlotState::Waiting, why));
        }
        waits
    };
    ours.retain(|(path, slot)| slot.index < count || !waits(path));
    damaged.retain(|(path, _)| !waits(path));
    let indexes: Vec<u8> = ours.iter().map(|(_, slot)| slot.index).collect();
    ours.retain(|(path, slot)| {
        let is_twice = indexes.iter().filter(|index| **index == slot.index).nth(1).is_some();
        let why = if is_twice { unfinished::why_replaced(path, given) } else { None };
        let is_replaced = why.is_some();
        left_out.extend(why.map(|why| LeftOut::at(path, SlotState::Replaced, why)));
        !is_replaced
    });
    left_out
}

/// Those that are there by their numbers, less old copies.
fn places(
    ours: Vec<Given>,
    count: u8,
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<Option<PathBuf>>> {
    let mut places: Vec<Option<PathBuf>> = vec![None; count.into()];
    let newest = newest_session(&ours);
    for (path, slot) in ours {
        let Some(place) = places.get_mut(usize::from(slot.index)) else { continue };
        if !is_of(&slot, newest) {
            let session = slot.session;
            left_out.push(LeftOut {
                slot: Some(slot.index),
                path: Some(path),
                state: SlotState::Stale,
                why: format!(
                    "it is of session {session}, the pool of session {newest}: an old copy"
                ),
            });
        } else if let Some(first) = place {
            bail!("{} and {} are both slot {}", first.display(), path.display(), slot.index);
        } else {
            *place = Some(path);
        }
    }
    Ok(places)
}

/// Why a slot can't be used; of one that was erased, or has not even its header, not what it would have to hold.
fn why_damaged(path: &Path, error: &anyhow::Error) -> String {
    match slots::file_len(path).filter(|len| *len < PAGE) {
        Some(len) => {
            format!("it is no slot: it has {len} bytes; if it was one, {CUT_OFF}")
        }
        None if !path.exists() => "it is not there".to_owned(),
        None if slots::is_gone(path) => "it is no slot: it was erased".to_owned(),
        None => format!("{error:#}"),
    }
}

fn look(path: &Path) -> Result<SlotSeen> {
    Ok(look_at_slot(&slots::open(&[path.to_owned()], slots::reading())?)?)
}

fn pool_of_most(seen: &[Given]) -> Option<[u8; 16]> {
    let mut slots: BTreeMap<[u8; 16], usize> = BTreeMap::new();
    for (_, slot) in seen {
        *slots.entry(slot.pool).or_default() += 1;
    }
    let most = slots.values().max()?;
    let of_most = |slot: &&Given| slots.get(&slot.1.pool) == Some(most);
    seen.iter().find(of_most).map(|(_, slot)| slot.pool)
}

/// Whether a slot was in use when the pool was in its newest session.
fn is_of(slot: &SlotSeen, newest: u64) -> bool {
    slot.session >= newest || slot.may_be_newer && slot.session + 1 == newest
}

/// The session that the pool is in: as its first slot says, unless others are further on than that slot, with
/// which each session begins.
fn newest_session(slots: &[Given]) -> u64 {
    let newest = slots.iter().map(|(_, slot)| slot.session).max().unwrap_or(0);
    let first =
        slots.iter().map(|(_, slot)| slot).find(|slot| slot.session >= newest && slot.index == 0);
    first.and_then(|slot| slot.pool_session).map_or(newest, u64::from)
}

/// Numbers for those that do not say which they are, where only one place is left for them; the places for which
/// nothing was given are missing.
fn give_numbers(left_out: &mut Vec<LeftOut>, places: &[Option<PathBuf>]) {
    let told: Vec<u8> = left_out.iter().filter_map(|slot| slot.slot).collect();
    let empty =
        (0_u8..).zip(places).filter(|(index, place)| place.is_none() && !told.contains(index));
    let empty: Vec<u8> = empty.map(|(index, _)| index).collect();
    let is_unknown = |slot: &&mut LeftOut| slot.slot.is_none() && slot.is_lost();
    let unknown = left_out.iter_mut().filter(is_unknown).count();
    if let ([only], 1) = (empty.as_slice(), unknown) {
        for slot in left_out.iter_mut().filter(is_unknown) {
            slot.slot = Some(*only);
        }
        return;
    }
    left_out.extend(empty.into_iter().map(|slot| LeftOut {
        slot: Some(slot),
        path: None,
        state: SlotState::Missing,
        why: "it is missing".to_owned(),
    }));
}

fn found(
    given: Vec<PathBuf>,
    places: Vec<Option<PathBuf>>,
    left_out: Vec<LeftOut>,
) -> Result<Found> {
    let pm = open_some(&places)?;
    let info = inspect(&pm)?;
    let memory = (0_u8..).zip(&places).filter(|(_, place)| place.is_some());
    let memory = memory.map(|(slot, _)| pm.slot_memory(slot)).collect();
    let paths = places.iter().flatten().cloned().collect();
    Ok(Found { paths, places, left_out, info, memory, given })
}

/// Opens slots of which some are not there, read-only.
pub(crate) fn open_some(places: &[Option<PathBuf>]) -> Result<Pm> {
    let spec = |place: &Option<PathBuf>| place.as_ref().map(SlotSpec::new);
    Ok(Pm::open_some(&places.iter().map(spec).collect::<Vec<_>>())?)
}
