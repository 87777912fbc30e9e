//! A pool that is mounted, mounted on a second directory: as of any file system, it is the same one
//! there, served by the same daemon. A second daemon would have a kernel's view of its own: locks would not
//! count between the two, nor would writes and mappings of a file meet.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use novale_arena::Arena;
use novale_core::{Mode, mount_served, mounts_served};
use novale_fuse::{Atime, KIND, MountEntry, MountError, MountTable, mount_again};
use novale_posix::join::ArenaFile;
use rustix::fs::{FlockOperation, flock};
use rustix::io::retry_on_intr;

use crate::base::args::ModeArg;
use crate::base::out::shown_path;
use crate::base::words::{DIRECT, QUIET, asked};
use crate::holders::ask::{self, Stuck};
use crate::holders::facts::Facts;
use crate::holders::holder::{self, CLOSING_MAX, Process};
use crate::mounts::mount::Request;
use crate::mounts::remount::{cannot_change, for_the_next_mount};
use crate::pools::slots;

/// How long a daemon may take to answer before it counts as stuck.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// How often another mount is looked for where the one that was found goes before it is shown.
const TRIES: u32 = 16;

/// How long a daemon waits for another one's turn before it says so.
const TURN_SILENT: Duration = Duration::from_secs(3);

/// Shows a pool that the caller has mounted in another directory too; false where it is not mounted, or
/// not so as it is asked for, which is refused as a pool in use is.
pub(crate) fn run(request: &Request) -> Result<bool> {
    // In the foreground it is a daemon that is asked for.
    if request.args.foreground || !can_show() {
        return Ok(false);
    }
    let Ok(found) = slots::find(&request.slots) else { return Ok(false) };
    let Ok(arena) = found.arena()?.open() else { return Ok(false) };
    let mut tries = TRIES;
    loop {
        let others = Served::here(&arena)?;
        let Some((mount, facts)) = mount_of(&arena)? else {
            if request.args.direct {
                refuse_beside(&others).with_context(|| slots::shown(&found.paths))?;
            }
            return Ok(false);
        };
        tries -= 1;
        match show(request, &found.paths, (&mount, &facts)) {
            // It has been unmounted since it was found.
            Err(error) if tries > 0 && is_gone(&error) => {}
            shown => return shown,
        }
    }
}

fn is_gone(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(MountError::NotMounted { .. }))
}

/// Shows a mount of the pool; false where it is not so as it is asked for.
fn show(request: &Request, slots: &[PathBuf], found: (&MountEntry, &Facts)) -> Result<bool> {
    let (mount, facts) = found;
    let lacks_direct = request.args.direct && !has(facts, DIRECT);
    if lacks_direct || facts.read_only != request.words.options.read_only {
        return Ok(false);
    }
    // Whoever asks for durable writes goes by it.
    let asked = request.args.mode.map(ModeArg::mode);
    if asked == Some(Mode::Strict) && facts.mode.starts_with(Mode::Buffered.name()) {
        bail!(
            "{} is mounted at {} with mode=buffered: unmount it first, and mount it with mode=strict",
            slots::shown(slots),
            shown_path(&mount.target)
        );
    }
    // Of a pool without a mode every write is durable.
    if request.words.options.sync && !mount.is_sync() && !facts.mode.is_empty() {
        let target = shown_path(&mount.target);
        bail!(
            "{} is mounted at {target} without sync: remount it first (novale mount -o remount,sync {target})",
            slots::shown(slots)
        );
    }
    mount_again(&request.words.options, mount, &request.target)?;
    cannot_change(&request.target, &not_so(request, found));
    Ok(true)
}

/// The turn of a daemon that starts: until it is dropped, no other one mounts the pool. Two that come at once
/// see no mount of each other.
#[derive(Debug)]
pub(crate) struct Turn(Arena);

impl Turn {
    /// Waits for the turn, by the kernel's lock on the arena, which is the caller's alone.
    pub(crate) fn take(arena: &ArenaFile) -> Result<Self> {
        let arena = arena.open()?;
        let file = arena.file().context("the arena's file")?;
        if flock(file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let _told = tell_of_waiting(holder::holder_of(file));
            retry_on_intr(|| flock(file, FlockOperation::LockExclusive))
                .context("locking the arena")?;
        }
        Ok(Self(arena))
    }

    /// Whether the pool has been mounted meanwhile, so that a daemon in the background has nothing to serve.
    pub(crate) fn is_served(&self, request: &Request) -> Result<bool> {
        Ok(request.args.daemon && can_show() && !Served::here(&self.0)?.is_empty())
    }
}

/// Says whom this one waits for, where that lasts: until what is returned is dropped.
fn tell_of_waiting(holder: Option<Process>) -> Sender<()> {
    let (waits, ended) = channel();
    let tell = move || {
        if ended.recv_timeout(TURN_SILENT) == Err(RecvTimeoutError::Timeout) {
            let holder = holder.map_or_else(|| "another process".to_owned(), |it| it.shown());
            remark!("novale: waiting for {holder}, which is just mounting this pool");
        }
    };
    // Where no thread can be had, it waits without a word.
    drop(thread::Builder::new().spawn(tell));
    waits
}

/// Who is not root can't show a mount elsewhere.
fn can_show() -> bool {
    rustix::process::geteuid().is_root()
}

/// A mount that a living daemon serves here: it is in this mount namespace, or the daemon is.
struct Served {
    pid: u32,
    device: (u32, u32),
}

impl Served {
    fn here(arena: &Arena) -> Result<Vec<Self>> {
        let living = mounts_served(arena).filter(|(client, _)| !arena.is_dead_client(client));
        let all =
            living.map(|(client, served)| Self { pid: client.process.pid, device: served.device });
        // Those that serve none yet, or none any more, have no number.
        let mut all: Vec<Self> = all.filter(|served| served.device != (0, 0)).collect();
        // Read after it, it has what they have mounted.
        let table = MountTable::read().context("/proc/self/mountinfo")?;
        all.retain(|served| table.of_device(served.device).is_some() || is_here(served.pid));
        Ok(all)
    }

    /// What keeps its mount from being shown, and what to do about that; nothing where it has just ended.
    fn why(&self) -> Result<Option<String>> {
        let table = MountTable::read().context("/proc/self/mountinfo")?;
        if let Some(whole) = table.whole(self.device) {
            let target = shown_path(&whole.target);
            return Ok(Some(format!("another mount hides it at {target}: unmount that one first")));
        }
        if let Some(part) = table.of_device(self.device) {
            let target = shown_path(&part.target);
            return Ok(Some(format!(
                "a part of it alone is mounted, at {target}: unmount that first"
            )));
        }
        let process = Process::of(self.pid);
        if process.is_none_or(|process| process.wait(CLOSING_MAX).unwrap_or(false)) {
            return Ok(None);
        }
        let open = "it was taken away while files are open there (umount --lazy), or is still in another mount \
                    namespace: end the programs that have them, or cut them off by `novale umount --force` with the \
                    directory that it was mounted on";
        Ok(Some(open.to_owned()))
    }
}

/// Whether a process is in this mount namespace.
fn is_here(pid: u32) -> bool {
    let namespace =
        |pid: &str| -> Option<PathBuf> { fs::read_link(format!("/proc/{pid}/ns/mnt")).ok() };
    namespace(&pid.to_string()).is_some_and(|other| namespace("self") == Some(other))
}

/// Refuses a daemon beside others here, whose mounts can't be shown.
fn refuse_beside(others: &[Served]) -> Result<()> {
    for served in others {
        if let Some(why) = served.why()? {
            bail!(
                "process {} has it mounted, and that mount can't be shown in a second directory: {why}. \
                 --foreground has it served by another process too, and locks don't count between the two",
                served.pid
            );
        }
    }
    Ok(())
}

/// Whether a word asks for what the daemon runs with.
fn has(facts: &Facts, word: &str) -> bool {
    facts.daemon_words.iter().any(|runs| runs == word)
}

/// What is asked for, by words or arguments, and is not so in the mount that is shown.
fn not_so(request: &Request, (mount, facts): (&MountEntry, &Facts)) -> Vec<String> {
    fn name(word: &str) -> Option<&str> {
        word.split('=').next()
    }
    let mut late = for_the_next_mount(&request.words, facts);
    let is_word =
        |asked: &String| request.words.daemon.iter().any(|word| name(word) == name(asked));
    let arguments = asked(&request.args).into_iter().filter(|asked| !is_word(asked));
    late.extend(arguments.filter(|asked| asked != QUIET && !has(facts, asked)));
    // The daemon goes by the first mount.
    let atime = request.words.options.atime.filter(|asked| *asked != mount.atime());
    late.extend(atime.map(|asked| spelled(asked).to_owned()));
    if mount.is_read_only() && !request.words.options.read_only {
        late.push("rw".to_owned());
    }
    late
}

fn spelled(atime: Atime) -> &'static str {
    match atime {
        Atime::Never => "noatime",
        Atime::Relative => "relatime",
        Atime::Always => "strictatime",
    }
}

/// The caller's own mount of all of a pool: its arena says so, in which the daemon lives.
fn mount_of(arena: &Arena) -> Result<Option<(MountEntry, Facts)>> {
    let table = MountTable::read().context("/proc/self/mountinfo")?;
    let own = |entry: &&MountEntry| {
        entry.is_own()
            && entry.root == Path::new("/")
            && mount_served(arena, entry.device).is_some()
            && table.top(&entry.target) == Some(*entry)
    };
    for mount in table.of_kind(KIND).filter(own) {
        let said = ask::ask(mount, ANSWER_MAX).map_err(|Stuck| {
            anyhow!(
                "it is mounted at {}, and its daemon has not answered for {} s",
                shown_path(&mount.target),
                ANSWER_MAX.as_secs()
            )
        })?;
        // A directory above it may be hidden.
        if let Some(facts) = said.facts {
            return Ok(Some((mount.clone(), facts)));
        }
    }
    Ok(None)
}
