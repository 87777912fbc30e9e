//! Holds of a process that has become another client: the child of a fork, and one that has left its pools to be another
//! program and stays the one that it was. What the kernel has open it needs no hold of. What could not be handed over,
//! as the mount's daemon is dead, is held by nobody for that client: it may go, and its number be another file's.

use std::sync::atomic::Ordering;

use novale_core::HoldId;

use crate::fds::forget;
use crate::fds::table::{self, IN_KERNEL, InUse};
use crate::mounts::{self, ctx};

/// Whether there is a file that the kernel has not got.
pub(crate) fn are_needed() -> bool {
    let mut are = false;
    table::each(&mut |_, description| are |= !description.is(IN_KERNEL));
    are
}

/// Forgets the holds of the client that the process was, and holds what the kernel has not got. What is gone by then
/// is at no number any more: the kernel has a placeholder there, which can do nothing. No other thread is inside.
pub(crate) fn renew() {
    table::each(&mut |_, description| *description.hold.lock() = None);
    let mut lost = Vec::new();
    table::each(&mut |fd, description| {
        if !description.is(IN_KERNEL) {
            let mut hold = description.hold.lock();
            *hold = hold.or_else(|| take(description));
            if hold.is_none() {
                lost.push(fd);
            }
        }
    });
    lost.into_iter().for_each(forget::forget_number);
}

fn take(description: &InUse) -> Option<HoldId> {
    let fs = mounts::fs(description.mount())?;
    let generation = description.generation.load(Ordering::Relaxed);
    let hold = fs.open_hold(&ctx(), description.ino(), generation).ok()??;
    if description.writes() { fs.hold_to_write(hold).ok() } else { Some(hold) }
}
