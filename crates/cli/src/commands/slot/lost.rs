//! `novale slot replace --lost`: a slot in the place of one that is lost, of a pool that nobody has open. What lay
//! there is told before anything is changed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use novale_core::check;
use novale_posix::slots as changing;
use serde::Serialize;
use uuid::Uuid;

use crate::base::args::SlotReplaceArgs;
use crate::base::progress::{AllCpus, Bar};
use crate::commands::slot::change::{ComingSlot, one, place_in, tell, with};
use crate::commands::slot::{in_use, named};
use crate::holders::holder;
use crate::mounts::leaving::{settle, with_bar};
use crate::pools::remaining;
use crate::pools::slots::{self, Found, reading};

/// What was done, as JSON shows it.
#[derive(Debug, Serialize)]
struct Replaced {
    done: &'static str,
    already: bool,
    /// The number of the slot that came.
    slot: u8,
    path: String,
    /// What a check of the other slots said before.
    lost: Vec<String>,
    /// What was done to the pool.
    changes: Vec<String>,
}

pub(super) fn replace(args: &SlotReplaceArgs) -> Result<()> {
    let others = slots::absolute(&named(&args.slots)?)?;
    let (old, new) = (one(&args.old)?, one(&args.slot)?);
    slots::refuse_twice(&[old.clone(), new.clone()])?;
    let (before, after) = (with(&old, &others)?, with(&new, &others)?);
    slots::refuse_twice(&after)?;
    if in_use::find(&others)?.is_some() {
        bail!("the pool is mounted, and has no slot that is lost");
    }
    let already = || place_in(&at_end(&after)?, &new);
    if let Some(slot) = already() {
        return tell(args.new.json, "replaced", true, Some(slot), &new);
    }
    if at_end(&before).is_some() {
        bail!("{} can be read: replace it without --lost, which keeps what it has", old.display());
    }
    let found = remaining::find(&others)?;
    let lost = lost_slot(&found)?;
    refuse_another_pools(&old, &found)?;
    let lock = holder::lock(&found.paths)?;
    // Another call may have come to its end while the lock was waited for.
    if let Some(slot) = already() {
        return tell(args.new.json, "replaced", true, Some(slot), &new);
    }
    let found = remaining::find(&others)?;
    let mut coming = ComingSlot::new(&args.new, &new, None);
    coming.begun = found.info.given_up.filter(|given_up| *given_up == lost);
    let (mut made, lock_of_new) = coming.prepare_beside(&found.paths)?;
    let mut only = lock.files()?;
    only.extend(made.files_with(&lock_of_new)?);
    let told = what_is_lost(&found)?;
    if !args.new.json {
        told.iter().try_for_each(|what| say!("lost: {what}"))?;
    }
    let (endurance, force) = (args.new.endurance.unwrap_or(0), args.new.force);
    let (slot, changes) = with_bar(&only, |helpers| {
        Ok(changing::replace_lost(&found.places, &new, endurance, force, helpers)?)
    })?;
    made.keep();
    settle(&after, &only);
    let changes: Vec<String> = changes.into_iter().map(|change| change.what).collect();
    if !args.new.json {
        changes.iter().try_for_each(|what| say!("{what}"))?;
        return tell(false, "replaced", false, Some(slot), &new);
    }
    let path = new.display().to_string();
    let facts = Replaced { done: "replaced", already: false, slot, path, lost: told, changes };
    say!("{}", serde_json::to_string_pretty(&facts)?)
}

/// Refuses a slot of another pool, which is not the one that is lost.
fn refuse_another_pools(old: &Path, found: &Found) -> Result<()> {
    let Ok((pool, _)) = slots::identify(old) else { return Ok(()) };
    if pool != found.info.uuid {
        bail!(
            "{} is a slot of another pool, {}, and can be read: name the path of the one that is lost, also where \
             nothing is there any more",
            old.display(),
            Uuid::from_bytes(pool)
        );
    }
    Ok(())
}

/// The pool, if these are all of its slots and none is being given up.
fn at_end(pool: &[PathBuf]) -> Option<Found> {
    slots::find(pool).ok().filter(|found| found.info.given_up.is_none())
}

/// The number of the one slot that is not there.
fn lost_slot(found: &Found) -> Result<u8> {
    let mut lost = (0..).zip(&found.places).filter(|(_, place)| place.is_none());
    let (slot, _) = lost.next().context("no slot of the pool is lost")?;
    let left_out: Vec<String> = found.left_out.iter().map(ToString::to_string).collect();
    if slot == 0 {
        bail!("slot 0 can't be given up: without it nothing of the pool can be found");
    }
    if lost.next().is_some() {
        bail!("one slot alone can be given up, and several are lost: {}", left_out.join("; "));
    }
    Ok(slot)
}

/// What a check of the others says.
fn what_is_lost(found: &Found) -> Result<Vec<String>> {
    let (pm, bar) = (found.open(reading())?, Bar::new());
    let report = check(&pm, &AllCpus, &|progress| bar.show(progress));
    let findings = report.with_context(|| slots::shown(&found.paths))?.findings;
    Ok(findings.into_iter().map(|finding| finding.what).collect())
}
