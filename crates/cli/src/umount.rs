//! `novale umount`: takes a mount away and waits for its daemon to close the pool.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use novale_fuse::{MountEntry, MountError, Unmount, find, unmount};

use crate::args::UmountArgs;
use crate::holder::{self, Process};
use crate::progress::spin;
use crate::slots::{self, split_source};

/// Longest time that closing a pool may take before this command gives up on seeing it.
const CLOSE_MAX: Duration = Duration::from_secs(600);

pub(crate) fn run(args: &UmountArgs) -> Result<()> {
    let how = match (args.lazy, args.force) {
        (true, _) => Unmount::Lazily,
        (_, true) => Unmount::ByForce,
        _ => Unmount::Politely,
    };
    args.dirs.iter().try_for_each(|dir| one(dir, how))
}

fn one(target: &Path, how: Unmount) -> Result<()> {
    let entry = match find(target) {
        Ok(entry) => entry,
        Err(error) => return not_mounted(target, error),
    };
    let slots = split_source(&entry.source);
    // Held on to before the mount goes: afterwards its number might be another process's.
    let daemon = slots.first().and_then(|slot| holder::holder(slot));
    unmount(target, how).map_err(explain)?;
    match daemon {
        None => {
            let shown = target.display();
            eprintln!("novale: {shown}: its daemon is gone; detached the dead mount");
        }
        Some(_) if how == Unmount::Lazily => {}
        Some(daemon) => close(&daemon, &entry, &slots)?,
    }
    Ok(())
}

fn explain(error: MountError) -> anyhow::Error {
    if matches!(error, MountError::Busy { .. }) {
        return anyhow!("{error}; close them, or give --lazy or --force");
    }
    error.into()
}

/// Somebody else unmounted: the daemon may still be closing the pool, which is waited for.
fn not_mounted(target: &Path, error: MountError) -> Result<()> {
    let path = std::path::absolute(target).context("the mount point's path")?;
    let path = path.canonicalize().unwrap_or(path);
    let Some(daemon) = holder::daemon_of(&path) else { return Err(error.into()) };
    wait(&daemon, target)
}

/// Waits for the daemon, and looks whether it left the pool clean.
fn close(daemon: &Process, entry: &MountEntry, slots: &[PathBuf]) -> Result<()> {
    wait(daemon, &entry.target)?;
    let read_only = entry.super_options.split(',').any(|word| word == "ro");
    let clean = slots::find(slots).map_or(true, |found| found.info.clean);
    if !clean && !read_only {
        bail!("the pool was not closed clean: the next mount recovers it");
    }
    Ok(())
}

fn wait(daemon: &Process, target: &Path) -> Result<()> {
    let ended = spin("waiting for the pool to be closed", || daemon.wait(CLOSE_MAX))?;
    if !ended {
        bail!(
            "{}: process {} still has the pool open after {} s",
            target.display(),
            daemon.pid,
            CLOSE_MAX.as_secs()
        );
    }
    Ok(())
}
