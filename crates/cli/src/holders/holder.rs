//! Who uses a pool.
//!
//! The one who has a pool open keeps flock(2) locks on the files of all its slots: exclusive ones to
//! make, check or open it, shared ones where it is open for others to join (`novale_posix::join`). The
//! kernel drops them with the last descriptor, so a dead process holds none, and closing other
//! descriptors of the file does not (as it would with POSIX record locks). `/proc/locks` names the
//! process. Looking takes no lock, so it disturbs nobody.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use novale_arena::Arena;
use novale_fuse::{KIND, MountEntry, MountTable};
use novale_posix::join::{JoinError, Joined};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::base::out::shown_path;
use crate::holders::ask;
use crate::holders::facts::SlotFile;
use crate::holders::{servers, users};
use crate::pools::locked::PoolLock;
use crate::pools::slots::{Found, split_source};

/// How long a daemon that no longer serves a mount is given to close its pool.
pub(crate) const CLOSING_MAX: Duration = Duration::from_secs(10);
/// How often the one who waits for that looks whether it serves a mount.
const MOUNTED_STEP: Duration = Duration::from_millis(100);
/// How often the one who waits for that looks.
const CLOSING_STEP: Duration = Duration::from_millis(10);
/// Looks at the kernel's list of locks before a file counts as locked by nobody.
const LOOKS: usize = 32;

/// A process, held on to so that its number cannot become another's.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    handle: OwnedFd,
}

impl Process {
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let number = Pid::from_raw(i32::try_from(pid).ok()?)?;
        Some(Self { pid, handle: pidfd_open(number, PidfdFlags::empty()).ok()? })
    }

    /// Waits until the process has ended; false when the time is over.
    pub(crate) fn wait(&self, limit: Duration) -> Result<bool> {
        let limit = Timespec::try_from(limit).context("a time too long to wait")?;
        let mut ended = [PollFd::new(&self.handle, PollFlags::IN)];
        Ok(poll(&mut ended, Some(&limit)).context("waiting for a process")? > 0)
    }

    /// Asks the process to end.
    pub(crate) fn end(&self) -> Result<()> {
        pidfd_send_signal(&self.handle, Signal::TERM).context("SIGTERM")
    }

    /// Whether it is another user's, as far as that can be seen.
    fn is_anothers(&self) -> bool {
        servers::user_of(self.pid).is_some_and(|user| user != rustix::process::geteuid().as_raw())
    }

    /// The program's name and number, for messages.
    pub(crate) fn shown(&self) -> String {
        format!("process {}", users::with_name(self.pid))
    }
}

/// Takes the locks of a pool's slots, waiting for a daemon that is just closing it.
pub(crate) fn lock(slots: &[PathBuf]) -> Result<PoolLock> {
    let lock = |slot: &PathBuf| Ok((slot.clone(), lock_slot(slot)?));
    Ok(PoolLock::new(slots.iter().map(lock).collect::<Result<_>>()?))
}

/// The arena of those who have a pool open; none where nobody has.
///
/// A file that this user cannot use as one does not say that somebody has: anybody may make one. As for who opens the
/// pool, the slots' locks say it then. That of the first one is taken for a moment, or waited for as [`lock`] does.
pub(crate) fn arena_in_use(found: &Found) -> Result<Option<Arena>> {
    let name = found.arena()?;
    let refused = match name.open() {
        Ok(arena) => return Ok(Some(arena)),
        Err(JoinError::NotOpen) => return Ok(None),
        Err(error) => error,
    };
    let first = found.paths.first().context("a pool has a slot")?;
    let locked = lock(std::slice::from_ref(first));
    // One who was opening it then may have made it since.
    match (name.usable()?, locked, refused) {
        (Some(arena), ..) => Ok(Some(arena)),
        // What another build or container has left goes with a mount, which says so.
        (None, Ok(_), _) if !name.is_unreadable() => Ok(None),
        (None, Err(in_use), refused @ JoinError::Foreign { .. }) => match holder(first) {
            Some(holder) if holder.is_anothers() => Err(anyhow!(
                "{} is in use by {}, another user's: make this call as that user, or when nobody has the pool open",
                first.display(),
                holder.shown()
            )),
            _ => Err(anyhow!("{refused}; {in_use}")),
        },
        (None, _, refused) => Err(refused.into()),
    }
}

/// Opens a pool or joins those who have it open, waiting for one who is just closing it.
pub(crate) fn while_closing(
    slots: &[PathBuf],
    mut open: impl FnMut() -> Result<Joined, JoinError>,
) -> Result<Joined> {
    let deadline = Instant::now() + CLOSING_MAX;
    let mut was_mounted = false;
    loop {
        let refused = match open() {
            // The last one removes what others join by before it lets go of the slots.
            Err(
                error @ (JoinError::NotOpen
                | JoinError::Changing
                | JoinError::NotShared { .. }
                | JoinError::Foreign { .. }),
            ) => error,
            done => return done.with_context(|| crate::pools::slots::shown(slots)),
        };
        let first = slots.first().context("a pool has a slot")?;
        let holder = holder(first);
        // Else another user has taken the name, and this user's own arena is not there yet, or not any more.
        let is_anothers = || holder.as_ref().map_or_else(|| is_held(first), Process::is_anothers);
        if matches!(refused, JoinError::Foreign { .. }) && is_anothers() {
            return Err(refused).with_context(|| crate::pools::slots::shown(slots));
        }
        let closes = matches!(refused, JoinError::Changing) || mounts_of(first)?.is_empty();
        if Instant::now() >= deadline || !closes && was_mounted {
            return Err(in_use(first, holder.as_ref()));
        }
        if !closes {
            // One who was opening it when this one was refused may have mounted it since, for others to join.
            was_mounted = true;
            continue;
        }
        match holder {
            // It may close the pool without ending.
            Some(holder) => holder.wait(CLOSING_STEP).map(drop)?,
            // The one who held it has let go of it.
            None => std::thread::yield_now(),
        }
    }
}

/// Takes the locks of a pool's slots if they are free now.
pub(crate) fn try_lock(slots: &[PathBuf]) -> Result<PoolLock> {
    let slots = slots.iter().map(|slot| {
        let file = open_slot(slot)?;
        if !take(slot, &file)? {
            bail!("{} is in use", slot.display());
        }
        Ok((slot.clone(), file))
    });
    Ok(PoolLock::new(slots.collect::<Result<_>>()?))
}

fn lock_slot(slot: &Path) -> Result<File> {
    let file = open_slot(slot)?;
    if take(slot, &file)? {
        return Ok(file);
    }
    let holder = holder(slot);
    // Where programs share it, none of them is about to close it.
    let is_daemon = |holder: &Process| servers::is_server(holder.pid);
    let shared = take_shared(&file) && holder.as_ref().is_none_or(|holder| !is_daemon(holder));
    if let Some(holder) = &holder
        && !shared
    {
        wait_unless_mounted(slot, holder)?;
    }
    if take(slot, &file)? {
        return Ok(file);
    }
    let error = in_use(slot, holder.as_ref());
    let can_join = shared && !holder.as_ref().is_some_and(Process::is_anothers);
    Err(if can_join { anyhow!("{error}, or mount it beside them with -o direct") } else { error })
}

/// Waits for one who closes the pool to end. One who opens it goes on to have it, once it has mounted it.
fn wait_unless_mounted(slot: &Path, holder: &Process) -> Result<()> {
    let deadline = Instant::now() + CLOSING_MAX;
    while mounts_of(slot)?.is_empty() && Instant::now() < deadline {
        if holder.wait(MOUNTED_STEP)? {
            break;
        }
    }
    Ok(())
}

/// Whether others share it.
fn take_shared(file: &File) -> bool {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockShared).is_ok()
}

/// A slot as [`lock`] opens it, without a lock, beside those who have it.
pub(crate) fn beside(slot: &Path) -> Result<PoolLock> {
    let opened = PoolLock::new(vec![(slot.to_owned(), open_slot(slot)?)]);
    opened.files()?;
    Ok(opened)
}

/// Lets others share a slot that is locked.
pub(crate) fn let_share(slot: &Path, lock: &PoolLock) -> Result<()> {
    // The kernel gives the lock up before it takes the other.
    if take_shared(lock.file(slot)?) { Ok(()) } else { Err(in_use(slot, holder(slot).as_ref())) }
}

fn open_slot(slot: &Path) -> Result<File> {
    // A FIFO would wait for its other end; what is no slot is refused when it is mapped.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(slot, flags, Mode::empty());
    Ok(File::from(file.with_context(|| slot.display().to_string())?))
}

/// Locks a slot; false when somebody else has it locked.
fn take(slot: &Path, file: &File) -> Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error).with_context(|| format!("locking {}", slot.display())),
    }
}

fn in_use(slot: &Path, holder: Option<&Process>) -> anyhow::Error {
    let whose = if holder.is_some_and(Process::is_anothers) { ", another user's" } else { "" };
    let by = holder.map_or_else(|| "another process".to_owned(), Process::shown) + whose;
    let mounted = mounts_of(slot).unwrap_or_default();
    match mounted.first() {
        Some(mount) => {
            let target = shown_path(&mount.target);
            anyhow!(
                "{} is in use by {by}, mounted at {target}: unmount it first (novale umount {target})",
                slot.display()
            )
        }
        None => anyhow!("{} is in use by {by}: wait until it has finished", slot.display()),
    }
}

/// Whether somebody has a slot open: a process of another pid namespace is in no list. Of one that nobody has
/// open the lock is taken for a moment.
pub(crate) fn is_held(slot: &Path) -> bool {
    open_slot(slot).and_then(|file| take(slot, &file)).is_ok_and(|is_free| !is_free)
}

/// The process that has a slot open, if one has; of several the one that serves a mount.
pub(crate) fn holder(slot: &Path) -> Option<Process> {
    let mut holders = holders_of(&fs::metadata(slot).ok()?);
    let daemon = || holders.iter().position(|holder| servers::is_server(holder.pid));
    let daemon = if holders.len() > 1 { daemon() } else { None };
    (!holders.is_empty()).then(|| holders.swap_remove(daemon.unwrap_or(0)))
}

/// The process that has an open file locked, if one has.
pub(crate) fn holder_of(file: &File) -> Option<Process> {
    holders_of(&file.metadata().ok()?).into_iter().next()
}

/// The list leaves a lock out at times, where others come and go while it is read.
fn holders_of(metadata: &fs::Metadata) -> Vec<Process> {
    let mut looks = (0..LOOKS).map(|_| listed_holders(metadata));
    looks.find(|holders| !holders.is_empty()).unwrap_or_default()
}

fn listed_holders(metadata: &fs::Metadata) -> Vec<Process> {
    let table = fs::read_to_string("/proc/locks").unwrap_or_default();
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    let place = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
    let here = flock_holders(&table).filter(|(_, at)| *at == place);
    here.filter_map(|(pid, _)| Process::of(pid)).collect()
}

/// Process and place (`device:inode`) of each line like `3: FLOCK  ADVISORY  WRITE 811 00:1b:9 0 EOF`.
fn flock_holders(table: &str) -> impl Iterator<Item = (u32, &str)> {
    table.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1).filter(|field| *field != "->");
        (fields.next()? == "FLOCK").then_some(())?;
        let pid = fields.nth(2)?.parse().ok()?;
        Some((pid, fields.next()?))
    })
}

/// All Novale mounts of a slot, also when it was moved since.
pub(crate) fn mounts_of(slot: &Path) -> Result<Vec<MountEntry>> {
    let which = |path: &Path| fs::metadata(path).ok().map(|metadata| SlotFile::of(&metadata));
    let slot_file = which(slot);
    let same = |other: &PathBuf| slot_file.is_some() && which(other) == slot_file;
    let table = MountTable::read().context("/proc/self/mountinfo")?;
    let holder = holder(slot);
    let served = holder.as_ref().map(|daemon| servers::devices_of(daemon.pid)).unwrap_or_default();
    // What others' mounts are said to be of may be a path that never answers.
    let named =
        |entry: &&MountEntry| entry.is_believed() && split_source(&entry.source).iter().any(same);
    let shows = |entry: &&MountEntry| served.contains(&entry.device) || named(entry);
    let mut mounts: Vec<MountEntry> = table.of_kind(KIND).filter(shows).cloned().collect();
    if mounts.is_empty() && holder.is_some() && served.is_empty() {
        // The kernel does not say what the holder serves.
        let says_so = |entry: &&MountEntry| {
            let said = ask::ask(entry, ask::ANSWER_MAX).unwrap_or_default();
            let files = said.facts.map(|facts| facts.slot_files).unwrap_or_default();
            slot_file.is_some_and(|slot| files.contains(&slot))
        };
        let asked = table.of_kind(KIND).filter(|entry| entry.is_believed());
        mounts = asked.filter(says_so).cloned().collect();
    }
    Ok(mounts)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::atomic::{AtomicBool, Ordering};

    use novale_posix::join::JoinError;
    use rustix::fs::{FlockOperation, flock};

    use super::{flock_holders, holders_of, while_closing};

    /// Under many programs that lock and unlock, a pool in use seemed to be nobody's now and then: a
    /// test did not find the daemon that it had stopped, and waited for it.
    #[test]
    fn who_has_a_file_locked_is_found_while_others_lock_and_unlock() {
        let file = tempfile::tempfile().unwrap();
        flock(&file, FlockOperation::LockExclusive).unwrap();
        let is_over = AtomicBool::new(false);
        let others = || {
            let other = tempfile::NamedTempFile::new().unwrap();
            while !is_over.load(Ordering::Relaxed) {
                let again = || File::open(other.path()).unwrap();
                let open: Vec<File> = (0..20).map(|_| again()).collect();
                for file in &open {
                    flock(file, FlockOperation::LockShared).unwrap();
                }
            }
        };
        let mut missed = 0;
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(others);
            }
            for _ in 0..3000 {
                missed += u32::from(holders_of(&file.metadata().unwrap()).is_empty());
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(missed, 0);
    }

    #[test]
    fn only_flock_lines_count_waiting_ones_too() {
        let table = "1: POSIX  ADVISORY  READ 5433 08:01:7864448 128 128\n\
                     2: FLOCK  ADVISORY  WRITE 2001 00:1b:705 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 2002 00:1b:705 0 EOF\n";
        let holders: Vec<_> = flock_holders(table).collect();
        assert_eq!(holders, [(2001, "00:1b:705"), (2002, "00:1b:705")]);
    }

    /// Who mounted the pool while its last user left it was refused now and then.
    #[test]
    fn who_comes_as_the_last_one_leaves_tries_again() {
        let slot = tempfile::NamedTempFile::new().unwrap();
        let path = slot.path().to_owned();
        let [foreign, last] = [path.clone(), path.clone()];
        let mut refusals = vec![
            JoinError::LeftToWrite { path: last },
            // A name that another user has taken, where the own arena is gone.
            JoinError::Foreign { path: foreign },
            JoinError::NotOpen,
        ];
        let refused = while_closing(&[path], || Err(refusals.pop().unwrap())).unwrap_err();
        assert!(matches!(refused.downcast(), Ok(JoinError::LeftToWrite { .. })));
    }
}
