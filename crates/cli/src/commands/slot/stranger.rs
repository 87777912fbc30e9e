//! Slots that are to go, and are none of the pool's: what they are instead. The others that were named are a whole
//! pool then, whether it is mounted or not.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use novale_core::was_slot_of;
use novale_posix::{OUR_FORMAT, what_it_holds};
use uuid::Uuid;

use crate::pools::slots::{self, Found, is_gone, reading, shown};

/// How a slot is known that is to go, and without which the pool is whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outside {
    /// It was one of the pool's, and was taken out.
    Gone,
    /// It says that it is the pool's: an earlier call has begun to take it out, or it is a copy.
    Ours,
}

/// Looks at a slot that is to go, where the others are a whole pool without it; refuses what was never in it.
pub(super) fn outside(old: &Path, others: &[PathBuf]) -> Result<Option<Outside>> {
    let Ok(found) = slots::find(others) else { return Ok(None) };
    let (name, pool) = (old.display(), shown(others));
    let whole = format!(
        "the pool is whole without it, with {pool}: name one of these (`novale slot status {pool}` shows them)"
    );
    if !old.exists() {
        bail!("{name} is not there, and nothing is to be done: {whole}");
    }
    let held = slots::identify(old);
    if let Ok((uuid, _)) = held {
        if uuid == found.info.uuid {
            return Ok(Some(Outside::Ours));
        }
        let (other, pool) = (Uuid::from_bytes(uuid), Uuid::from_bytes(found.info.uuid));
        bail!("{name} is a slot of another pool, {other}, and none of {pool}: {whole}");
    }
    if is_gone(old) && was_slot(old, &found).unwrap_or(false) {
        return Ok(Some(Outside::Gone));
    }
    let is_ours = slots::head(old).is_ok_and(|head| what_it_holds(&head) == Some(OUR_FORMAT));
    if is_ours && !is_gone(old) {
        return Ok(Some(Outside::Ours));
    }
    held.map(|_| None).with_context(|| format!("{name} is no slot of the pool; {whole}"))
}

fn was_slot(old: &Path, found: &Found) -> Result<bool> {
    let pm = slots::open(&[old.to_owned()], reading())?;
    Ok(was_slot_of(&pm, &found.info.uuid)?)
}
