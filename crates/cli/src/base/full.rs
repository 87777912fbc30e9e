//! What index and buffer of an open pool lie in, and whether it is that which is full: the arena says how much it may
//! take, and not that its file system has no more.

use novale_arena::ArenaError;
use novale_core::Error;
use novale_posix::join::JoinError;

/// Where arenas lie.
const FOLDER: &str = "/dev/shm";
/// An arena that can't grow by as much has no room, whatever is left.
const LEAST: u64 = 2 << 20;

/// What is full, and what to do about it.
pub(crate) fn folder() -> Option<String> {
    let space = rustix::fs::statvfs(FOLDER).ok()?;
    (space.f_bavail.saturating_mul(space.f_frsize) < LEAST).then(|| {
        format!(
            "{FOLDER} is full: remove other files there, or let it have more (mount -o remount,size=SIZE {FOLDER})"
        )
    })
}

/// The same where something failed for want of room in an arena.
pub(crate) fn folder_after(error: &anyhow::Error) -> Option<String> {
    let lacks_room = error.chain().any(|cause| {
        let (core, arena) = match cause.downcast_ref() {
            Some(JoinError::Core(why) | JoinError::LeftBehind { source: why, .. }) => {
                (Some(why), None)
            }
            Some(JoinError::Arena(why)) => (None, Some(why)),
            _ => (cause.downcast_ref(), cause.downcast_ref()),
        };
        matches!(core, Some(Error::NoMemory)) || matches!(arena, Some(ArenaError::Full(_)))
    });
    if lacks_room { folder() } else { None }
}
