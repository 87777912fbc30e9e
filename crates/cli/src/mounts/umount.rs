//! `novale umount`: takes mounts away and waits for their daemons to close the pools.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use novale_fuse::{KIND, MountEntry, MountError, MountTable, Unmount, find, unmount};
use novale_posix::join::remove_arenas_of_dead;

use crate::base::args::UmountArgs;
use crate::base::out::{shown_path, tell};
use crate::base::progress::spin;
use crate::holders::ask::{self, Stuck};
use crate::holders::elsewhere::{self, Namespaces};
use crate::holders::facts::Facts;
use crate::holders::held_slots::HeldSlots;
use crate::holders::holder::{self, Process};
use crate::holders::servers::{self, server_of, started_for};
use crate::holders::users;
use crate::pools::remaining;
use crate::pools::slots::split_source;

/// Longest time that closing a pool may take before this command gives up on seeing it.
const CLOSE_MAX: Duration = Duration::from_secs(600);
/// The same for one that was cut off.
const FORCED_MAX: Duration = Duration::from_secs(60);
/// How long a daemon may take to answer before it counts as stuck.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long another mount namespace may have the mount before this command gives up: programs that
/// come and go have one, too.
const ELSEWHERE_MAX: Duration = Duration::from_secs(30);
/// What closing a small pool takes; after it a copy of the mount elsewhere is looked for.
const SOON: Duration = Duration::from_millis(300);
/// Longer than this it does not wait without a word.
const QUIET_MAX: Duration = Duration::from_secs(5);

/// Unmounts all; what fails keeps none of the others from being unmounted. Daemons are waited for when
/// all mounts are gone: two of them may be of one.
pub(crate) fn run(args: &UmountArgs) -> ExitCode {
    let how = match (args.lazy, args.force) {
        (true, _) => Unmount::Lazily,
        (_, true) => Unmount::ByForce,
        _ => Unmount::Politely,
    };
    let limit = if args.force { FORCED_MAX } else { CLOSE_MAX };
    let gone: Vec<Result<Option<Daemon>>> = args.dirs.iter().map(|dir| one(dir, how)).collect();
    let mut code = ExitCode::SUCCESS;
    for (dir, gone) in args.dirs.iter().zip(gone) {
        let closed =
            gone.and_then(|daemon| daemon.map_or(Ok(()), |daemon| daemon.close(dir, limit)));
        if let Err(error) = closed {
            tell(&error);
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// Takes a mount away; returns its daemon where that is to be waited for.
fn one(target: &Path, how: Unmount) -> Result<Option<Daemon>> {
    let entry = match find(target) {
        Ok(entry) => entry,
        Err(error) => return not_mounted(target, how, error).map(Some),
    };
    let limit = if how == Unmount::Politely { ANSWER_MAX } else { ask::ANSWER_MAX };
    let said = ask::ask(&entry, limit);
    let shown = shown_path(target);
    if said.as_ref().is_ok_and(|said| said.is_dead) {
        unmount(&entry, how).map_err(|error| explain(error, &entry))?;
        clear_away(&entry);
        remark!("novale: {shown}: its daemon is gone; detached the dead mount");
        return Ok(None);
    }
    let facts = said.as_ref().ok().and_then(|said| said.facts.as_ref());
    // Held on to before the mount goes: afterwards its number might be another process's.
    let daemon = Daemon::of(&entry, facts, how);
    if how == Unmount::Politely {
        said.as_ref().map(drop).map_err(|Stuck| is_stuck(&entry, daemon.as_ref()))?;
        facts.map_or(Ok(()), |facts| has_it_alone(&entry, facts))?;
    }
    unmount(&entry, how).map_err(|error| explain(error, &entry))?;
    if how == Unmount::Lazily {
        return Ok(None);
    }
    if daemon.is_none() {
        remark!(
            "novale: {shown} is unmounted; its daemon can't be seen from here, and closes the pool \
             by itself"
        );
    }
    Ok(daemon)
}

/// Removes the arena of a pool whose daemon is gone, unless the pool is in use again. That of another
/// user stays until the pool's next mount.
fn clear_away(entry: &MountEntry) {
    if !entry.is_own() {
        return;
    }
    remove_arenas_of_dead(entry.device);
    // One of another build, or that says nothing of the mount. Where the pool was moved or is damaged,
    // it stays until the pool's next mount or the next boot.
    let Ok(found) = remaining::find(&split_source(&entry.source)) else { return };
    let Ok(_lock) = holder::try_lock(&found.paths) else { return };
    if let Ok(arena) = found.arena()
        && arena.is_done_with().is_ok_and(|is_done| is_done)
    {
        arena.remove().unwrap_or_default();
    }
}

/// umount(2) may wait for a daemon that does not answer without end, and can't be killed then.
fn is_stuck(entry: &MountEntry, daemon: Option<&Daemon>) -> anyhow::Error {
    let process = daemon.map_or_else(String::new, |daemon| format!(", process {},", daemon.pid()));
    anyhow!(
        "{}: its daemon{process} has not answered for {} s; --force cuts it off, and what was written \
         to mapped files last may be lost",
        shown_path(&entry.target),
        ANSWER_MAX.as_secs()
    )
}

/// Refuses while programs use the pool directly: as with open files, the mount is busy. Other daemons
/// have mounts of their own.
fn has_it_alone(entry: &MountEntry, facts: &Facts) -> Result<()> {
    if facts.programs.is_empty() {
        return Ok(());
    }
    let programs: Vec<String> = facts.programs.iter().map(ToString::to_string).collect();
    bail!(
        "{}: busy: used directly by process {}; end them, or give --lazy or --force, with which \
         they keep the pool open",
        shown_path(&entry.target),
        programs.join(", ")
    )
}

fn explain(error: MountError, entry: &MountEntry) -> anyhow::Error {
    if let (MountError::Fusermount(_), Some(owner)) = (&error, entry.owner())
        && !entry.is_own()
    {
        let target = shown_path(&entry.target);
        return match owner {
            0 => anyhow!("{target} is the mount of root: unmount it as root"),
            _ => anyhow!(
                "{target} is the mount of user {owner}: unmount it as user {owner}, or as root"
            ),
        };
    }
    if matches!(error, MountError::Busy { .. }) {
        let by = users::shown(entry).map_or_else(String::new, |by| format!(" ({by})"));
        return anyhow!("{error}{by}; close them, or give --lazy or --force");
    }
    if matches!(error, MountError::OwnRoot { .. }) {
        return anyhow!("{error}: unmount it from outside, or give --lazy or --force");
    }
    error.into()
}

/// Somebody else unmounted: the daemon may still be closing the pool, which is waited for, or a copy
/// of the mount elsewhere keeps it at work, which ends by force.
fn not_mounted(target: &Path, how: Unmount, error: MountError) -> Result<Daemon> {
    let path = std::path::absolute(target).context("the mount point's path")?;
    let path = path.canonicalize().unwrap_or(path);
    let Some(process) = started_for(&path) else { return Err(error.into()) };
    let devices = servers::devices_of(process.pid);
    if how == Unmount::ByForce {
        let cut = devices.iter().map(|device| novale_fuse::cut(*device));
        if !cut.fold(false, |any, cut| any | cut.is_ok()) && servers::is_server(process.pid) {
            // Where the kernel's switch is out of reach, the daemon cuts off itself.
            process.end().context("ending the daemon")?;
        }
    }
    let held = HeldSlots::of(&process);
    Ok(Daemon {
        process,
        device: devices.first().copied(),
        source: None,
        held,
        failed: Vec::new(),
        is_buffered: false,
        was_cut: how == Unmount::ByForce,
    })
}

/// A mount's daemon.
struct Daemon {
    process: Process,
    /// The mount's, which all mounts of the same daemon have; when it is gone, a mount of another pool may get it.
    device: Option<(u32, u32)>,
    /// What it is mounted from.
    source: Option<OsString>,
    /// By which it is seen afterwards that the pool was closed.
    held: Option<HeldSlots>,
    /// Slots that have failed under it.
    failed: Vec<u8>,
    /// Whether it may have bytes that are not in the pool yet.
    is_buffered: bool,
    /// No mount keeps it at work.
    was_cut: bool,
}

impl Daemon {
    /// Who serves a mount: known by its own answer and the kernel's, or by the locks of the pool that
    /// is where it was.
    fn of(entry: &MountEntry, facts: Option<&Facts>, how: Unmount) -> Option<Self> {
        let process = server_of(entry, facts).or_else(|| {
            let slots = entry.is_believed().then(|| split_source(&entry.source))?;
            let process = holder::holder(slots.first()?)?;
            // One that serves other mounts has a dead daemon's pool.
            servers::devices_of(process.pid).is_empty().then_some(process)
        })?;
        // What another user's daemon has open is not looked at.
        let held = if entry.is_believed() { HeldSlots::of(&process) } else { None };
        let was_cut = how == Unmount::ByForce;
        let (device, source) = (Some(entry.device), Some(entry.source.clone()));
        let failed = facts.map(|facts| facts.failed_slots.clone()).unwrap_or_default();
        let is_buffered = facts.is_some_and(|facts| !facts.mode.is_empty());
        Some(Self { process, device, source, held, failed, is_buffered, was_cut })
    }

    fn pid(&self) -> u32 {
        self.process.pid
    }

    /// Waits for the daemon, and looks whether it left the pool clean.
    fn close(&self, target: &Path, limit: Duration) -> Result<()> {
        self.wait(target, limit)?;
        if let Some(slot) = self.failed.first() {
            if *slot == 0 {
                let kept = if self.is_buffered {
                    "; what was only buffered is kept until the machine is restarted, and the next mount writes it \
                     there, if slot 0 is the same file then: a copy in another file goes without it"
                } else {
                    ""
                };
                bail!(
                    "slot 0 has failed under the mount, and the pool was not closed clean: nothing of it can be read \
                     before slot 0 can{kept}"
                );
            }
            if self.is_buffered {
                bail!(
                    "slot {slot} has failed under the mount, and the pool was not closed clean; what was only buffered is \
                     kept until the machine is restarted, and the next mount that has this slot again writes it there. \
                     Where it is lost, `novale slot replace --lost --force` gives that up, and its place to another slot"
                );
            }
            bail!(
                "slot {slot} has failed under the mount, and the pool was not closed clean: what lies there is lost; \
                 `novale check` names the files, `novale mount -o ro` shows the others, `novale slot replace --lost` \
                 gives its place to another slot"
            );
        }
        if let Some(left) = self.held.as_ref().and_then(HeldSlots::left_open) {
            bail!("the pool was {}", left.in_words());
        }
        Ok(())
    }

    fn wait(&self, target: &Path, limit: Duration) -> Result<()> {
        let shown = shown_path(target);
        // A bind mount of it, say: the kernel lets go of the daemon with the last one.
        if let Some(other) = self.other_mount()? {
            let other = shown_path(&other);
            bail!(
                "{shown} is unmounted, but the pool stays open: it is mounted at {other} too \
                 (novale umount {other})"
            );
        }
        let what = "waiting for the pool to be closed";
        if spin(what, || self.process.wait(SOON))? || self.ends_elsewhere(target)? {
            return Ok(());
        }
        if spin(what, || self.process.wait(QUIET_MAX))? {
            return Ok(());
        }
        let pid = self.pid();
        let is_kept = self.device.is_some_and(|device| servers::has_mount(pid, device));
        let kept = if is_kept && !self.was_cut {
            format!(", whose mount is still in use (novale umount --force {shown} ends that)")
        } else {
            String::new()
        };
        remark!("novale: {shown}: waiting for process {pid} to close the pool{kept}");
        if !spin(what, || self.process.wait(limit))? {
            let seconds = limit.as_secs();
            bail!(
                "{shown}: process {pid} still has the pool open after {seconds} s; if it is stuck, \
                 kill -9 {pid} ends it, and the next mount recovers the pool"
            );
        }
        Ok(())
    }

    /// Another place of this namespace where it is mounted.
    fn other_mount(&self) -> Result<Option<PathBuf>> {
        if self.was_cut {
            return Ok(None);
        }
        let table = MountTable::read().context("/proc/self/mountinfo")?;
        let is_it = |entry: &&MountEntry| {
            Some(entry.device) == self.device
                && self.source.as_ref().is_none_or(|source| *source == entry.source)
        };
        let other = table.of_kind(KIND).find(is_it);
        Ok(other.map(|entry| entry.target.clone()))
    }

    /// Says that another namespace has the mount, if one has, and gives it some time; true where the
    /// daemon has ended then. It is not waited for any longer, which may be for ever.
    fn ends_elsewhere(&self, target: &Path) -> Result<bool> {
        let Some(who) = self.kept_elsewhere() else { return Ok(false) };
        let shown = shown_path(target);
        remark!(
            "novale: {shown} is unmounted, but another mount namespace has the mount too, {who}: \
             waiting {} s for it; novale umount --force {shown} ends it there, and what is open fails",
            ELSEWHERE_MAX.as_secs()
        );
        let what = "waiting for the other mount namespace";
        if spin(what, || self.process.wait(ELSEWHERE_MAX))? {
            return Ok(true);
        }
        let Some(who) = self.kept_elsewhere() else { return Ok(false) };
        bail!(
            "{shown}: the pool stays open: another mount namespace still has the mount, {who}; \
             novale umount --force {shown} ends it there"
        )
    }

    /// Who has the mount in another namespace, in words.
    fn kept_elsewhere(&self) -> Option<String> {
        let device = self.device.filter(|_| !self.was_cut)?;
        let namespaces = Namespaces::look();
        let copies = namespaces.copies(device);
        if !copies.is_empty() {
            return Some(elsewhere::shown(&copies));
        }
        if !servers::has_mount(self.pid(), device) {
            return None;
        }
        let keepers = namespaces.keepers();
        match keepers.shown() {
            Some(place) => Some(format!("one that no process is in (such a one is {place})")),
            // Not unmounted by this command: open files may keep what was unmounted lazily.
            None if self.source.is_none() => None,
            None => Some("one that no process is seen in".to_owned()),
        }
    }
}
