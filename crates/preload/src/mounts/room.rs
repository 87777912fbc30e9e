//! Calls that find no room are made again while files that were removed are on their way out: the
//! kernel gives up one that it knew a moment after it was told.

use novale_core::{Fs, RoomTurn, Short};
use novale_posix::again_with_room;

use crate::base::sys::{Served, fail};
use crate::mounts;

/// Where a call has found no room, if it has failed for that.
fn short(served: Served) -> Option<Short> {
    match served {
        Some(error) if error == fail(libc::ENOSPC) => Some(Short::Pool),
        Some(error) if error == fail(libc::EDQUOT) => Some(Short::Tree),
        _ => None,
    }
}

/// Whether a call has failed for want of room.
pub(crate) fn is_wanted(served: Served) -> bool {
    short(served).is_some()
}

/// Where room is on its way.
fn turns() -> Vec<(&'static Fs, RoomTurn)> {
    let here = (0..mounts::all().len()).filter_map(mounts::here);
    here.filter_map(|fs| fs.room_turn().map(|turn| (fs, turn))).collect()
}

/// Does what may find no room, again where some is on its way. What has failed so has changed nothing.
pub(crate) fn with_room(mut call: impl FnMut() -> Served) -> Served {
    let served = call();
    if is_wanted(served) { again(call) } else { served }
}

/// Makes a call again that has found no room and changed nothing.
#[cold]
pub(crate) fn again(call: impl FnMut() -> Served) -> Served {
    again_with_room(turns, |served| short(*served), call)
}
