//! Calls that find no room are made again while files that were removed are on their way out: the
//! kernel gives up one that it knew a moment after it was told.

use std::time::Duration;

use novale_core::{Fs, RoomTurn};

use crate::base::sys::{Served, fail};
use crate::mounts;

/// How long one waits for a removed file to be given up: some of them a program has open.
const PATIENCE: Duration = Duration::from_millis(250);
/// How often a call is made again, each time something has gone.
const ATTEMPTS: u32 = 16;

/// Whether a call has failed for want of room, in the pool or in the limits of a directory tree.
pub(crate) fn is_wanted(served: Served) -> bool {
    served == Some(fail(libc::ENOSPC)) || served == Some(fail(libc::EDQUOT))
}

/// Where room is on its way.
fn turn() -> Option<(&'static Fs, RoomTurn)> {
    (0..mounts::all().len()).find_map(|mount| {
        let fs = mounts::here(mount)?;
        fs.room_turn().map(|turn| (fs, turn))
    })
}

/// Makes a call again that has found no room and changed nothing.
#[cold]
pub(crate) fn again(mut call: impl FnMut() -> Served) -> Served {
    for _ in 0..ATTEMPTS {
        // Before the call: what goes meanwhile is not missed.
        let turn = turn();
        let served = call();
        let Some((fs, turn)) = turn.filter(|_| is_wanted(served)) else { return served };
        if !fs.wait_for_room(turn, PATIENCE) {
            return served;
        }
    }
    call()
}
