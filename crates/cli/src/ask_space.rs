//! What a live mount says of its space, asked so that a stuck daemon holds up nobody.
//!
//! Whoever asks such a daemon may wait in the kernel and cannot be killed, and a process with a
//! thread that waits so does not end. So a child asks: this program once more. When it does not
//! answer in time it is left behind, and ends as soon as the daemon answers or dies.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use novale_core::Space;
use novale_layout::PAGE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

/// How long a daemon is waited for where nothing hangs on the answer.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(2);
/// More than any answer has.
const BYTES_MAX: u64 = 1 << 10;

/// No answer in time.
#[derive(Debug)]
pub(crate) struct Stuck;

/// What the child prints.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    pages_available: u64,
    inodes: u64,
}

/// What the mount says. Nothing is told to whom the mount is not for: zeroes, to root too, of a
/// user's mount.
pub(crate) fn ask(target: &Path, limit: Duration) -> Result<Option<Space>, Stuck> {
    // Without a child nothing is asked.
    let Ok(mut child) = spawn(target) else { return Ok(None) };
    let Some(mut output) = child.stdout.take() else { return Ok(None) };
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
    Ok(answer.map(|Answer { pages_available, inodes }| Space { pages_available, inodes }))
}

/// In the child.
pub(crate) fn answer(target: &Path) -> Result<()> {
    let space = rustix::fs::statvfs(target).context("statvfs")?;
    if space.f_blocks == 0 {
        return Ok(());
    }
    let pages_available = space.f_bavail.saturating_mul(space.f_frsize) / PAGE;
    let inodes = space.f_files.saturating_sub(space.f_ffree);
    say!("{}", serde_json::to_string(&Answer { pages_available, inodes })?)
}

fn spawn(target: &Path) -> std::io::Result<Child> {
    Command::new("/proc/self/exe")
        .arg0("novale")
        .args(["ask-space", "--"])
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
            Err(rustix::io::Errno::INTR) => {}
            ready => return ready.is_ok_and(|ready| ready > 0),
        }
    }
}
