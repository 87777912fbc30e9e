//! Operations that find no room are tried again while removed files are on their way out: a mount's
//! kernel gives one up a moment after its program was told that it is closed and removed.

use std::time::Duration;

use novale_core::{Error, Fs, Result, RoomTurn, Short};

/// How long one waits for a removed file to be given up: some of them somebody has open.
pub const ROOM_PATIENCE: Duration = Duration::from_millis(250);
/// How often an operation is tried again, each time something has gone.
const ATTEMPTS: u32 = 16;

fn short<T>(done: &Result<T>) -> Option<Short> {
    match done {
        Err(Error::NoSpace) => Some(Short::Pool),
        Err(Error::QuotaExceeded) => Some(Short::Tree),
        _ => None,
    }
}

/// Does what may find no room, again where some is on its way. What has failed so has changed nothing.
pub(crate) fn with_room<T>(fs: &Fs, mut operation: impl FnMut() -> Result<T>) -> Result<T> {
    let done = operation();
    let turns = || fs.room_turn().into_iter().map(|turn| (fs, turn)).collect();
    if short(&done).is_some() { again_with_room(turns, short, operation) } else { done }
}

/// Does again what has found no room and changed nothing, as long as room is on its way in one of the file systems
/// that `turns` names.
#[cold]
pub fn again_with_room<'a, T>(
    turns: impl Fn() -> Vec<(&'a Fs, RoomTurn)>,
    short: impl Fn(&T) -> Option<Short>,
    mut operation: impl FnMut() -> T,
) -> T {
    for _ in 0..ATTEMPTS {
        // Before it is tried: what goes meanwhile is not missed.
        let before = turns();
        let done = operation();
        let Some(short) = short(&done) else { return done };
        // Others may have taken room since that they can give up.
        let turns = if before.is_empty() { turns() } else { before };
        // Each of them: nobody knows of which one there is too little.
        let mut has_come = false;
        for (fs, turn) in turns {
            let patience = if has_come { Duration::ZERO } else { ROOM_PATIENCE };
            has_come |= fs.wait_for_room(turn, short, patience);
        }
        if !has_come {
            return done;
        }
    }
    operation()
}
