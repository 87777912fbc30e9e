//! Asking a mount what its daemon may never answer.
//!
//! Who asks waits in the kernel, and can't be killed there once the daemon has read the request. So a
//! thread of its own asks, and it may outlive its limit; it ends when the connection does.

use std::io;
use std::sync::mpsc::channel;
use std::time::Duration;

use nix::sched::CloneFlags;

use crate::threads::start_thread;

/// What a thread answers that was asked; `None` where it has not within the limit.
///
/// The thread has none of the process's descriptors. One that shared the FUSE device of the mount that
/// it asks would keep the connection of a killed daemon alive, and the connection its answer away.
pub(crate) fn ask<T: Send + 'static>(
    name: &str,
    limit: Duration,
    question: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Option<T>> {
    let (answered, answer) = channel();
    let asking = move || {
        // Where a sandbox refuses it, asking is still better than not to know.
        leave_descriptors().unwrap_or_default();
        // Nobody listens any more to one that is late.
        answered.send(question()).unwrap_or_default();
    };
    start_thread(name, asking)?;
    Ok(answer.recv_timeout(limit).ok())
}

/// Gives this thread a table of descriptors of its own, an empty one.
fn leave_descriptors() -> io::Result<()> {
    nix::sched::unshare(CloneFlags::CLONE_FILES)?;
    let names = std::fs::read_dir("/proc/thread-self/fd")?.flatten().map(|entry| entry.file_name());
    let numbers = names.filter_map(|name| name.to_str()?.parse::<i32>().ok());
    for number in numbers.collect::<Vec<_>>() {
        // The one that the list was read with is closed already.
        nix::unistd::close(number).unwrap_or_default();
    }
    Ok(())
}
