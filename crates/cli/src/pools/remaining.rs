//! A pool of which slots are missing, or can't be used: what remains, for who only reads.
//!
//! A slot is left out where it is not given, damaged or cut off, of another pool, or older than the others. Where
//! slots of two pools are given, the pool is that of most of them, and of the first given where as many are of
//! each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use novale_core::{SlotSeen, inspect, look_at_slot};
use novale_pm::{Pm, SlotSpec};
use serde::Serialize;
use uuid::Uuid;

use crate::pools::slots::{self, Found};

/// A slot that is not used, and why.
#[derive(Debug, Clone)]
pub(crate) struct LeftOut {
    /// Its number, where that is known.
    pub(crate) slot: Option<u8>,
    pub(crate) path: Option<PathBuf>,
    pub(crate) state: SlotState,
    why: String,
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
        Ok(Some(found)) if found.paths.len() < found.places.len() && found.has_first() => {
            let left_out: Vec<String> = found.left_out.iter().map(ToString::to_string).collect();
            error.context(format!(
                "{}; mount it with -o ro to see what remains",
                left_out.join("; ")
            ))
        }
        Ok(_) | Err(_) => error,
    })
}

/// A slot as it was given.
type Given = (PathBuf, SlotSeen);

fn what_remains(given: &[PathBuf]) -> Result<Option<Found>> {
    let given = slots::absolute(given)?;
    slots::refuse_twice(&given)?;
    let (mut seen, mut left_out): (Vec<Given>, Vec<LeftOut>) = (vec![], vec![]);
    for path in &given {
        match look(path) {
            Ok(slot) => seen.push((path.clone(), slot)),
            Err(error) => left_out.push(LeftOut {
                slot: None,
                path: Some(path.clone()),
                state: SlotState::Damaged,
                why: format!("{error:#}"),
            }),
        }
    }
    let Some(pool) = pool_of_most(&seen) else { return Ok(None) };
    let (ours, foreign): (Vec<Given>, Vec<Given>) =
        seen.into_iter().partition(|(_, slot)| slot.pool == pool);
    left_out.extend(foreign.into_iter().map(|(path, slot)| LeftOut {
        slot: None,
        path: Some(path),
        state: SlotState::Foreign,
        why: format!("it belongs to another pool, {}", Uuid::from_bytes(slot.pool)),
    }));
    let count = ours.iter().find_map(|(_, slot)| slot.slot_count);
    let count = count.context("neither the first nor the last slot of the pool is there")?;
    let mut places: Vec<Option<PathBuf>> = vec![None; count.into()];
    let newest = newest_session(&ours);
    for (path, slot) in ours {
        let stale = |why: String| LeftOut {
            slot: Some(slot.index),
            path: Some(path.clone()),
            state: SlotState::Stale,
            why,
        };
        let Some(place) = places.get_mut(usize::from(slot.index)) else {
            bail!(
                "{}: slot {} of {count}: it was taken out, or not added whole; leave it out",
                path.display(),
                slot.index
            )
        };
        if is_stale(&slot, newest) {
            let session = slot.session;
            left_out.push(stale(format!(
                "it is of session {session}, the pool of session {newest}: an old copy"
            )));
        } else if let Some(first) = place {
            bail!("{} and {} are both slot {}", first.display(), path.display(), slot.index);
        } else {
            *place = Some(path);
        }
    }
    give_numbers(&mut left_out, &places);
    found(given, places, left_out).map(Some)
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

/// The session that the pool is in: as its first slot says, unless others are further on than one that was cut
/// off in beginning the next.
fn newest_session(slots: &[Given]) -> u64 {
    let newest = slots.iter().map(|(_, slot)| slot.session).max().unwrap_or(0);
    let first = slots.iter().find_map(|(_, slot)| slot.pool_session).map(u64::from);
    first.filter(|first| first + 1 >= newest).unwrap_or(newest)
}

fn is_stale(slot: &SlotSeen, newest: u64) -> bool {
    slot.session < newest
        || slot.pool_session.is_some_and(|session| u64::from(session) + 1 < newest)
}

/// Numbers for those that do not say which they are, where only one place is left for them; the places for which
/// nothing was given are missing.
fn give_numbers(left_out: &mut Vec<LeftOut>, places: &[Option<PathBuf>]) {
    let told: Vec<u8> = left_out.iter().filter_map(|slot| slot.slot).collect();
    let empty =
        (0_u8..).zip(places).filter(|(index, place)| place.is_none() && !told.contains(index));
    let empty: Vec<u8> = empty.map(|(index, _)| index).collect();
    let unknown = left_out.iter().filter(|slot| slot.slot.is_none()).count();
    if let ([only], 1) = (empty.as_slice(), unknown) {
        for slot in left_out.iter_mut().filter(|slot| slot.slot.is_none()) {
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
