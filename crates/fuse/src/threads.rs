//! The threads of a daemon, and what is said where one can't be had.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread.
///
/// # Errors
/// It could not be started; the error says so, and where to look.
pub fn start_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(work).map_err(|error| not_started(&error))
}

/// The same error in words that name the thread: the kernel's are those of a call that is to be made again.
pub(crate) fn not_started(error: &io::Error) -> io::Error {
    let words = format!(
        "a thread could not be started ({error}): see the limits of processes and tasks (ulimit -u, pids.max)"
    );
    io::Error::new(error.kind(), words)
}
