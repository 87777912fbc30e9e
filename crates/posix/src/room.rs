//! Operations that find no room are tried again while removed files are on their way out: a mount's
//! kernel gives one up a moment after its program was told that it is closed and removed.

use std::time::Duration;

use novale_core::{Error, Fs, Result, RoomTurn};

/// How long one waits for a removed file to be given up: some of them somebody has open.
pub const ROOM_PATIENCE: Duration = Duration::from_millis(250);
/// How often an operation is tried again, each time something has gone.
const ATTEMPTS: u32 = 16;

fn is_full<T>(done: &Result<T>) -> bool {
    matches!(done, Err(Error::NoSpace | Error::QuotaExceeded))
}

/// Does what may find no room, again where some is on its way. What has failed so has changed nothing.
pub(crate) fn with_room<T>(fs: &Fs, mut operation: impl FnMut() -> Result<T>) -> Result<T> {
    let done = operation();
    let turn = || fs.room_turn().map(|turn| (fs, turn));
    if is_full(&done) { again_with_room(turn, is_full, operation) } else { done }
}

/// Does again what has found no room and changed nothing, as long as `turn` names a file system where
/// room is on its way.
#[cold]
pub fn again_with_room<'a, T>(
    turn: impl Fn() -> Option<(&'a Fs, RoomTurn)>,
    is_full: impl Fn(&T) -> bool,
    mut operation: impl FnMut() -> T,
) -> T {
    for _ in 0..ATTEMPTS {
        // Before it is tried: what goes meanwhile is not missed.
        let turn = turn();
        let done = operation();
        let Some((fs, turn)) = turn.filter(|_| is_full(&done)) else { return done };
        if !fs.wait_for_room(turn, ROOM_PATIENCE) {
            return done;
        }
    }
    operation()
}
