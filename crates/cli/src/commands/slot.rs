//! `novale slot`: the slots of a pool, one by one.

mod change;
mod in_use;
mod lost;
mod mapped;
mod status;
mod stranger;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use novale_fuse::{KIND, MountEntry, MountTable};

use crate::base::args::SlotCommand;
use crate::base::out::shown_path;
use crate::holders::facts::SlotFile;
use crate::holders::{ask, holder};
use crate::mounts::leaving::finish;

pub(crate) fn run(command: &SlotCommand) -> Result<()> {
    match command {
        SlotCommand::Status(args) => status::run(args),
        SlotCommand::Add(args) => change::add(args),
        SlotCommand::Remove(args) => change::remove(args),
        SlotCommand::Replace(args) => change::replace(args),
        SlotCommand::Finish { slots, .. } => finish_for_daemon(slots),
    }
}

/// As the last of a daemon, whose process this is: it was started as /proc/self/exe, and is called that.
fn finish_for_daemon(slots: &[PathBuf]) -> Result<()> {
    rustix::thread::set_name(c"novale").context("naming the process")?;
    finish(slots, |pool| Ok(holder::try_lock(pool).ok())).map(drop)
}

/// The slots that were named: by themselves, or by the directory on which their pool is mounted.
fn named(given: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let [only] = given else { return Ok(given.to_vec()) };
    // A path that a mount serves is not looked at before: its daemon may be stuck.
    let dir = std::path::absolute(only).context("the directory's path")?;
    let table = MountTable::read().context("/proc/self/mountinfo")?;
    let mount = table.top(&dir).filter(|mount| mount.kind == KIND);
    if let Some(mount) = mount {
        // Its user has said what it is of: any pool.
        if !mount.is_believed() {
            bail!("{} is another user's mount: name the slots of its pool", dir.display());
        }
        let slots = ask::slots_of(mount);
        refuse_others(mount, &slots)?;
        return Ok(slots);
    }
    if let Some(mount) = table.of_kind(KIND).find(|mount| dir.starts_with(&mount.target)) {
        bail!(
            "{} lies in the pool that is mounted on {}: name that directory",
            dir.display(),
            shown_path(&mount.target)
        );
    }
    if dir.is_dir() {
        bail!(
            "{} is a directory on which no pool is mounted: name the slots that the pool has, or the directory that \
             it is mounted on",
            dir.display()
        );
    }
    Ok(given.to_vec())
}

/// Refuses a mount where another file has come to the path of one of its slots: that one's pool would be changed, and
/// not the one that is mounted.
fn refuse_others(mount: &MountEntry, slots: &[PathBuf]) -> Result<()> {
    let facts = ask::ask(mount, ask::ANSWER_MAX).ok().and_then(|said| said.facts);
    // Of a pool with a slot missing not all are told.
    let Some(facts) = facts.filter(|facts| facts.slot_files.len() == slots.len()) else {
        return Ok(());
    };
    let is_another = |path: &&PathBuf| {
        let there = fs::metadata(path).map(|there| SlotFile::of(&there));
        there.is_ok_and(|there| !facts.slot_files.contains(&there))
    };
    match slots.iter().find(is_another) {
        None => Ok(()),
        Some(path) => bail!(
            "{}: another file is at {} by now than the slot that is mounted: put that back, or name the slots",
            shown_path(&mount.target),
            path.display()
        ),
    }
}
