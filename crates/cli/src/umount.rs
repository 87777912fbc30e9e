//! `novale umount`: takes a mount away and waits for its daemon to close the pool.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use novale_fuse::{KIND, MountEntry, MountError, MountTable, Unmount, find, unmount};

use crate::args::UmountArgs;
use crate::ask_space::{self, Stuck};
use crate::holder::{self, Process};
use crate::kept_arena::{KeptArena, arena_of};
use crate::progress::spin;
use crate::record::{self, Record, Seen};
use crate::slots::{self, split_source};
use crate::tell;

/// Longest time that closing a pool may take before this command gives up on seeing it.
const CLOSE_MAX: Duration = Duration::from_secs(600);
/// The same for one that was cut off.
const FORCED_MAX: Duration = Duration::from_secs(60);
/// How long a daemon may take to answer before it counts as stuck.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Longer than this it does not wait without a word.
const QUIET_MAX: Duration = Duration::from_secs(5);

/// Unmounts all; what fails keeps none of the others from being unmounted.
pub(crate) fn run(args: &UmountArgs) -> ExitCode {
    let how = match (args.lazy, args.force) {
        (true, _) => Unmount::Lazily,
        (_, true) => Unmount::ByForce,
        _ => Unmount::Politely,
    };
    let mut code = ExitCode::SUCCESS;
    for dir in &args.dirs {
        if let Err(error) = one(dir, how) {
            tell(&error);
            code = ExitCode::FAILURE;
        }
    }
    code
}

fn one(target: &Path, how: Unmount) -> Result<()> {
    let entry = match find(target) {
        Ok(entry) => entry,
        Err(error) => return not_mounted(target, error),
    };
    // Held on to before the mount goes: afterwards its number might be another process's.
    let daemon = Daemon::of(&entry);
    let seen = record::of_device(entry.device).map(|seen| seen.record);
    if let (Some(daemon), Unmount::Politely) = (&daemon, how) {
        daemon.answers(&entry)?;
        daemon.has_it_alone(&entry, seen.as_ref())?;
    }
    if daemon.is_none() {
        // As long as the mount is there, its number is no other's, and neither is the record.
        record::forget(entry.device);
    }
    unmount(target, how).map_err(|error| explain(error, &entry))?;
    match daemon {
        None => {
            let shown = target.display();
            match seen.and_then(|record| record.arena) {
                Some(arena) => arena.remove(),
                None => remove_arena(&split_source(&entry.source)),
            }
            remark!("novale: {shown}: its daemon is gone; detached the dead mount");
        }
        Some(_) if how == Unmount::Lazily => {}
        Some(daemon) => {
            let limit = if how == Unmount::ByForce { FORCED_MAX } else { CLOSE_MAX };
            daemon.close(target, limit)?;
        }
    }
    Ok(())
}

/// Removes the arena of a pool whose daemon is gone and has left no record, unless it is in use
/// again.
fn remove_arena(slots: &[PathBuf]) {
    // Where the pool was moved or is damaged, it stays until the pool's next mount or the next boot.
    let Ok(found) = slots::find(slots) else { return };
    let Ok(_lock) = holder::try_lock(&found.paths) else { return };
    if let Ok(arena) = arena_of(&found) {
        arena.remove().unwrap_or_default();
    }
}

fn explain(error: MountError, entry: &MountEntry) -> anyhow::Error {
    let owner = entry.super_options.split(',').find_map(|word| word.strip_prefix("user_id="));
    let me = rustix::process::geteuid().as_raw().to_string();
    if let (MountError::Fusermount(_), Some(owner)) = (&error, owner)
        && owner != me
    {
        let whose = if owner == "0" { "root".to_owned() } else { format!("user {owner}") };
        let target = entry.target.display();
        return anyhow!("{target} is the mount of {whose}: unmount it as {whose}, or as root");
    }
    if matches!(error, MountError::Busy { .. }) {
        return anyhow!("{error}; close them, or give --lazy or --force");
    }
    error.into()
}

/// Somebody else unmounted: the daemon may still be closing the pool, which is waited for.
fn not_mounted(target: &Path, error: MountError) -> Result<()> {
    let path = std::path::absolute(target).context("the mount point's path")?;
    let path = path.canonicalize().unwrap_or(path);
    let found = record::of_target(&path).and_then(|seen| Some((seen.daemon()?, seen)));
    let Some((process, seen)) = found else { return Err(error.into()) };
    Daemon { process, device: seen.device, closed: Closed::Record(seen) }.close(target, CLOSE_MAX)
}

/// A mount's daemon.
struct Daemon {
    process: Process,
    /// The mount's, which all mounts of the same daemon have.
    device: (u32, u32),
    closed: Closed,
}

/// By what it is seen, afterwards, that the pool was closed.
enum Closed {
    /// The mount's record, which the daemon removes.
    Record(Seen),
    /// The pool, for a daemon whose record cannot be seen from here.
    Pool { slots: Vec<PathBuf>, read_only: bool },
}

impl Daemon {
    fn of(entry: &MountEntry) -> Option<Self> {
        let device = entry.device;
        if let Some(seen) = record::of_device(entry.device) {
            return Some(Self { process: seen.daemon()?, device, closed: Closed::Record(seen) });
        }
        let slots = split_source(&entry.source);
        let process = slots.first().and_then(|slot| holder::holder(slot))?;
        // One that serves other mounts has a dead daemon's pool.
        if !record::devices_of(process.pid).is_empty() {
            return None;
        }
        let read_only = entry.super_options.split(',').any(|word| word == "ro");
        Some(Self { process, device, closed: Closed::Pool { slots, read_only } })
    }

    /// Refuses to go on with one that does not answer: umount(2) may wait for it without end, and
    /// can't be killed then.
    fn answers(&self, entry: &MountEntry) -> Result<()> {
        let shown = entry.target.display();
        ask_space::ask(&entry.target, ANSWER_MAX).map(drop).map_err(|Stuck| {
            anyhow!(
                "{shown}: its daemon, process {}, has not answered for {} s; --force cuts it off, \
                 and what was written to mapped files last may be lost",
                self.process.pid,
                ANSWER_MAX.as_secs()
            )
        })
    }

    /// Refuses while programs use the pool directly: as with open files, the mount is busy. Other
    /// daemons have mounts of their own.
    fn has_it_alone(&self, entry: &MountEntry, record: Option<&Record>) -> Result<()> {
        let clients = record.and_then(|record| record.arena.as_ref()).map(KeptArena::clients);
        let clients = clients.unwrap_or_default().into_iter();
        let is_program =
            |pid: &u32| *pid != self.process.pid && record::devices_of(*pid).is_empty();
        let programs: Vec<String> = clients.filter(is_program).map(|pid| pid.to_string()).collect();
        if programs.is_empty() {
            return Ok(());
        }
        bail!(
            "{}: busy: used directly by process {}; end them, or give --lazy or --force, with which \
             they keep the pool open",
            entry.target.display(),
            programs.join(", ")
        )
    }

    /// Waits for the daemon, and looks whether it left the pool clean.
    fn close(&self, target: &Path, limit: Duration) -> Result<()> {
        self.wait(target, limit)?;
        let clean = match &self.closed {
            Closed::Record(seen) => seen.is_closed(),
            Closed::Pool { slots, read_only } => {
                *read_only || slots::find(slots).map_or(true, |found| found.info.clean)
            }
        };
        if !clean {
            bail!("the pool was not closed clean: the next mount recovers it");
        }
        Ok(())
    }

    fn wait(&self, target: &Path, limit: Duration) -> Result<()> {
        let (process, shown) = (&self.process, target.display());
        let table = MountTable::read().context("/proc/self/mountinfo")?;
        // A bind mount of it, say: the kernel lets go of the daemon with the last one.
        if let Some(other) = table.of_kind(KIND).find(|entry| entry.device == self.device) {
            let other = other.target.display();
            bail!(
                "{shown} is unmounted, but the pool stays open: it is mounted at {other} too \
                 (novale umount {other})"
            );
        }
        let what = "waiting for the pool to be closed";
        if spin(what, || process.wait(QUIET_MAX))? {
            return Ok(());
        }
        remark!("novale: {shown}: waiting for process {} to close the pool", process.pid);
        if !spin(what, || process.wait(limit))? {
            let (pid, seconds) = (process.pid, limit.as_secs());
            bail!(
                "{shown}: process {pid} still has the pool open after {seconds} s; if it is stuck, \
                 kill -9 {pid} ends it, and the next mount recovers the pool"
            );
        }
        Ok(())
    }
}
