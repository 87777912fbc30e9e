//! Slots of which one is too many, where a call of `novale slot` was cut off: which files are the pool, and by
//! what the call is ended.

use std::path::{Path, PathBuf};

use anyhow::{Error, Result, anyhow};
use novale_core::{SlotSeen, heir_of_slot, inspect, look_at_slot, slot_header};

use crate::pools::slots::{self, shown, without};

/// What a slot is called, and how the name begins of the one that takes its place.
type Named = ([u8; 16], Option<[u8; 8]>);

fn name(path: &Path) -> Result<Named> {
    let pm = slots::open(&[path.to_owned()], slots::reading())?;
    Ok((slot_header(&pm)?.slot_uuid, heir_of_slot(&pm)?))
}

/// The slot whose place another of these takes, and that one.
fn handed_on(paths: &[PathBuf]) -> Option<(&PathBuf, &PathBuf)> {
    let named: Vec<(&PathBuf, Named)> =
        paths.iter().filter_map(|path| Some((path, name(path).ok()?))).collect();
    let heir_of = |heir: [u8; 8]| named.iter().find(move |(_, (uuid, _))| uuid.starts_with(&heir));
    named.iter().find_map(|(old, (_, heir))| Some((*old, heir_of((*heir)?)?.0)))
}

/// Why a slot waits that has no place in the pool.
pub(crate) fn why_waiting(path: &Path, given: &[PathBuf]) -> String {
    match handed_on(given).filter(|(_, new)| new.as_path() == path) {
        Some((old, _)) => format!(
            "it waits to take the place of {}, for a call of `novale slot` was cut off: `novale slot remove {} \
             {}` ends it; until then the pool is only read",
            old.display(),
            old.display(),
            shown(&without(given, old))
        ),
        None => "it has no place in the pool, for a call of `novale slot` was cut off, which the same call ends"
            .to_owned(),
    }
}

/// Why one of two slots with one number is the pool's no more.
pub(crate) fn why_replaced(path: &Path, given: &[PathBuf]) -> Option<String> {
    let (old, new) = handed_on(given).filter(|(old, _)| old.as_path() == path)?;
    Some(format!(
        "{} has taken its place, and the call of `novale slot` that did it was cut off: leave it out; `novale slot \
         remove {} {}` ends that call",
        new.display(),
        old.display(),
        shown(&without(given, old))
    ))
}

/// Says so where two slots have one place, since one takes that of the other.
pub(crate) fn replaced(paths: &[PathBuf]) -> Option<Error> {
    let (old, new) = handed_on(paths)?;
    let others = shown(&without(paths, old));
    let (old, new) = (old.display(), new.display());
    Some(anyhow!(
        "{new} has taken the place of {old}, and the call of `novale slot` that did it was cut off: leave {old} \
         out, the pool is {others}; `novale slot remove {old} {others}` ends that call"
    ))
}

/// Says so where slot 0 is an old copy, from before another slot was added: one that waits for a place, or was taken
/// out, is of no session that slot 0 is not in.
pub(crate) fn first_is_old(paths: &[PathBuf]) -> Option<Error> {
    let look =
        |path| look_at_slot(&slots::open(std::slice::from_ref(path), slots::reading()).ok()?).ok();
    let seen: Vec<(&PathBuf, SlotSeen)> =
        paths.iter().filter_map(|path| Some((path, look(path)?))).collect();
    let (path, first) = seen.iter().find(|(_, slot)| slot.index == 0)?;
    let is_newer = |slot: &SlotSeen| {
        slot.pool == first.pool
            && first.slot_count.is_some_and(|count| slot.index >= count)
            && slot.session > first.session
    };
    let (newer_path, newer) = seen.iter().find(|(_, slot)| is_newer(slot))?;
    Some(anyhow!(
        "slot 0, {}: it is of session {}, slot {}, {}, of session {}: an old copy, from before that slot was added; \
         give the slots that were last used together",
        path.display(),
        first.session,
        newer.index,
        newer_path.display(),
        newer.session
    ))
}

/// Says so where the last slot has no place in the pool, which is whole without it.
pub(crate) fn without_place(paths: &[PathBuf]) -> Option<Error> {
    if let Some(old) = first_is_old(paths) {
        return Some(old);
    }
    let (last, others) = paths.split_last()?;
    let pm = slots::open(others, slots::reading()).ok()?;
    inspect(&pm).ok()?;
    let (others, last) = (shown(others), last.display());
    Some(match handed_on(paths) {
        Some((old, _)) => anyhow!(
            "{last} is to take the place of {}, and the call of `novale slot` that does it was cut off: `novale \
             slot remove {} {}` ends it; until then the pool is {others}, read-only",
            old.display(),
            old.display(),
            shown(&without(paths, old))
        ),
        None => anyhow!(
            "{last} has no place in the pool: a call of `novale slot` was cut off. Leave it out, the pool is \
             {others}. The same call once more ends it; for a removal that is `novale slot remove OLD` with \
             the other ones of {others} {last}; `novale slot remove {last} {others}` gives up {last}"
        ),
    })
}
