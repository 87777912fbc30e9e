//! What a live mount says of itself, asked so that a stuck daemon holds up nobody.
//!
//! The caller such a daemon may wait in the kernel and cannot be killed, and a process with a
//! thread that waits so does not end. So a child asks: this program once more. When it does not
//! answer in time it is left behind, and ends as soon as the daemon answers or dies.

use std::ffi::OsString;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use novale_core::Space;
use novale_fuse::{FACTS, MountEntry, SLOTS};
use novale_layout::PAGE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::holders::facts::Facts;
use crate::holders::holder;
use crate::pools::slots::split_source;

/// How long a daemon is waited for where nothing hangs on the answer.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(2);
/// More than any answer has.
const BYTES_MAX: u64 = 1 << 20;
/// The longest value that an attribute may have.
const FACTS_BYTES_MAX: usize = 1 << 16;

/// No answer in time.
#[derive(Debug)]
pub(crate) struct Stuck;

/// What a mount says; what is not said is none.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// The kernel says that nobody serves it any more.
    pub(crate) is_dead: bool,
    /// Nothing is told to whom the mount is not for: to root too, of a user's mount.
    pub(crate) space: Option<Space>,
    /// Of mounts that are believed alone.
    pub(crate) facts: Option<Facts>,
    /// All slots of the pool, of such mounts too; none where it does not say.
    pub(crate) slots: Vec<PathBuf>,
}

/// What the child prints.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Answer {
    device: (u32, u32),
    is_dead: bool,
    /// Pages available and inodes.
    space: Option<(u64, u64)>,
    facts: Option<Facts>,
    /// The slots' paths, which may be no texts.
    slots: Vec<Vec<u8>>,
}

/// What the mount says.
pub(crate) fn ask(mount: &MountEntry, limit: Duration) -> Result<Said, Stuck> {
    // Without a child nothing is asked.
    let Ok(mut child) = spawn(&mount.target) else { return Ok(Said::default()) };
    let Some(mut output) = child.stdout.take() else { return Ok(Said::default()) };
    if !is_readable(&output, limit) {
        // Not waited for: it may not end before the daemon does.
        child.kill().unwrap_or_default();
        return Err(Stuck);
    }
    let mut text = Vec::new();
    // It is written at once, so that reading it to its end waits for nothing.
    let read = output.by_ref().take(BYTES_MAX).read_to_end(&mut text);
    child.wait().map(drop).unwrap_or_default();
    let answer = read.ok().and_then(|_| serde_json::from_slice::<Answer>(&text).ok());
    // Another mount may lie there by now.
    let answer = answer.filter(|answer| answer.device == mount.device).unwrap_or_default();
    let space = answer.space.map(|(pages_available, inodes)| Space { pages_available, inodes });
    let facts = answer.facts.filter(|_| mount.is_believed());
    let slots = answer.slots.into_iter().filter(|_| mount.is_believed());
    let slots = slots.map(|path| PathBuf::from(OsString::from_vec(path))).collect();
    Ok(Said { is_dead: answer.is_dead, space, facts, slots })
}

/// What the mount of a pool says of which this is a slot.
pub(crate) fn facts_of_pool(slot: &Path) -> Option<(MountEntry, Facts)> {
    let mount = holder::mounts_of(slot).ok()?.into_iter().next()?;
    let facts = ask(&mount, ANSWER_MAX).unwrap_or_default().facts?;
    Some((mount, facts))
}

/// The slots of the pool that is mounted: as its daemon says, to which some may have been added; by what the mount
/// was made of, where it says nothing. None of a mount that is not believed.
pub(crate) fn slots_of(mount: &MountEntry) -> Vec<PathBuf> {
    if !mount.is_believed() {
        return Vec::new();
    }
    let made_of = split_source(&mount.source);
    let said = ask(mount, ANSWER_MAX).unwrap_or_default().slots;
    if said.len() > made_of.len() { said } else { made_of }
}

/// In the child.
pub(crate) fn answer(target: &Path) -> Result<()> {
    // Neither asks the daemon.
    let place = rustix::fs::open(target, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let place = place.context("opening the mount")?;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(&place, "", flags, StatxFlags::empty()).context("statx")?;
    let mut answer =
        Answer { device: (found.stx_dev_major, found.stx_dev_minor), ..Answer::default() };
    let mut value = vec![0; FACTS_BYTES_MAX];
    let path_of = || format!("/proc/self/fd/{}", place.as_raw_fd());
    // First: of the space of a mount that is not for the caller, nobody is asked.
    match rustix::fs::getxattr(path_of(), FACTS, &mut value[..]) {
        Err(Errno::NOTCONN | Errno::CONNABORTED) => answer.is_dead = true,
        Ok(len) => answer.facts = serde_json::from_slice(value.get(..len).unwrap_or(&[])).ok(),
        Err(_) => {}
    }
    if let Ok(len) = rustix::fs::getxattr(path_of(), SLOTS, &mut value[..]) {
        let paths = value.get(..len).unwrap_or(&[]).split(|byte| *byte == 0);
        answer.slots = paths.filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect();
    }
    if !answer.is_dead
        && let Ok(space) = rustix::fs::fstatvfs(&place)
        && space.f_blocks > 0
    {
        let available = space.f_bavail.saturating_mul(space.f_frsize) / PAGE;
        answer.space = Some((available, space.f_files.saturating_sub(space.f_ffree)));
    }
    say!("{}", serde_json::to_string(&answer)?)
}

fn spawn(target: &Path) -> std::io::Result<Child> {
    Command::new("/proc/self/exe")
        .arg0("novale")
        .args(["ask", "--"])
        .arg(target)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
}

/// Whether there is something to read, or the other end is closed, before the time is over.
fn is_readable(output: &std::process::ChildStdout, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else { return false };
        match poll(&mut [PollFd::new(output, PollFlags::IN)], Some(&left)) {
            // A signal that stopped this program and let it go on; the time left bounds the loop.
            Err(Errno::INTR) => {}
            ready => return ready.is_ok_and(|ready| ready > 0),
        }
    }
}
