//! Operations that find no room are tried again while removed files are on their way out: a mount's
//! kernel gives one up a moment after its program was told that it is closed and removed.

use std::time::Duration;

use novale_core::{Error, Fs, Result};

/// How long one waits for a removed file to be given up: some of them somebody has open.
const PATIENCE: Duration = Duration::from_millis(250);
/// How often an operation is tried again, each time something has gone.
const ATTEMPTS: u32 = 16;

fn is_full<T>(done: &Result<T>) -> bool {
    matches!(done, Err(Error::NoSpace | Error::QuotaExceeded))
}

/// Does what may find no room, again where some is on its way. What has failed so has changed nothing.
pub(crate) fn with_room<T>(fs: &Fs, mut operation: impl FnMut() -> Result<T>) -> Result<T> {
    let done = operation();
    if is_full(&done) { again(fs, operation) } else { done }
}

#[cold]
fn again<T>(fs: &Fs, mut operation: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..ATTEMPTS {
        // Before it is tried: what goes meanwhile is not missed.
        let turn = fs.room_turn();
        let done = operation();
        let Some(turn) = turn.filter(|_| is_full(&done)) else { return done };
        if !fs.wait_for_room(turn, PATIENCE) {
            return done;
        }
    }
    operation()
}
