//! A word about whom a command waits for that goes through a mount.
//!
//! The kernel has it wait for as long as the mount's daemon does not answer, which may be for ever: one that was
//! stopped answers when it goes on. So the command goes on waiting, and says for what.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use novale_fuse::{KIND, MountEntry, MountTable};

use crate::base::out::shown_path;
use crate::holders::{ask, holder};
use crate::pools::slots::split_source;

/// Longer than this a command does not wait without a look at who answers.
const QUIET_MAX: Duration = Duration::from_secs(3);

/// Does something with paths in mounts. While it lasts, says on standard error which of their daemons do not
/// answer, once.
pub(crate) fn patiently<T>(paths: &[&Path], work: impl FnOnce() -> T) -> T {
    let (end, ended) = channel();
    // As they are spelled: to follow them is what may not come back.
    let paths: Vec<PathBuf> =
        paths.iter().filter_map(|path| std::path::absolute(path).ok()).collect();
    // Without a thread nothing is said. One that is just asking is not waited for.
    drop(thread::Builder::new().spawn(move || watch(&paths, &ended)));
    let done = work();
    drop(end);
    done
}

/// The same with what finds a pool by the paths that are given.
pub(crate) fn patiently_by<T>(paths: &[PathBuf], find: impl FnOnce(&[PathBuf]) -> T) -> T {
    let given: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    patiently(&given, || find(paths))
}

fn watch(paths: &[PathBuf], ended: &Receiver<()>) {
    while ended.recv_timeout(QUIET_MAX) == Err(RecvTimeoutError::Timeout) {
        let stuck = stuck(paths);
        // What went on meanwhile was not waited for.
        if ended.try_recv() == Err(TryRecvError::Disconnected) {
            return;
        }
        for mount in &stuck {
            remark!("novale: {}: waiting for {}", shown_path(&mount.target), whom(mount));
        }
        if !stuck.is_empty() {
            return;
        }
    }
}

/// The mounts that paths lead into and that do not answer. A link may lead from one that is in none into any.
fn stuck(paths: &[PathBuf]) -> Vec<MountEntry> {
    let Ok(table) = MountTable::read() else { return Vec::new() };
    let mut found: Vec<MountEntry> = Vec::new();
    for path in paths {
        let leads_there = |entry: &&MountEntry| path.starts_with(&entry.target);
        let is_there = table.of_kind(KIND).any(|entry| leads_there(&entry));
        let those = table.of_kind(KIND).filter(|entry| !is_there || leads_there(entry));
        found.extend(those.cloned());
    }
    found.sort_by(|one, other| one.target.cmp(&other.target));
    found.dedup_by(|one, other| one.target == other.target);
    found.retain(|entry| ask::ask(entry, ask::ANSWER_MAX).is_err());
    found
}

/// The daemon of a mount, as far as it is known.
fn whom(mount: &MountEntry) -> String {
    // What another user's mount is said to be of may be a path that never answers.
    let slots = if mount.is_believed() { split_source(&mount.source) } else { Vec::new() };
    match slots.first().and_then(|slot| holder::holder(slot)) {
        Some(daemon) if is_stopped(daemon.pid) => {
            format!(
                "process {pid}, its daemon, which is stopped (kill -CONT {pid})",
                pid = daemon.pid
            )
        }
        Some(daemon) => format!("process {}, its daemon, which does not answer", daemon.pid),
        None => "its daemon, which does not answer".to_owned(),
    }
}

fn is_stopped(pid: u32) -> bool {
    // The state stands after the name, which may have anything in it.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
}
