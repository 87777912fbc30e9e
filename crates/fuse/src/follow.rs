//! A mount's flags as they are now: the kernel tells no FUSE daemon of a remount.
//!
//! It does tell the one who polls the mount table that something in it has changed, so a thread looks at
//! the mount's own line then: access times go by what that says, and what was buffered is written back where
//! nothing may be written from then on.

use std::fs::File;
use std::sync::Weak;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::mount_table::MountTable;
use crate::threads::start_thread;
use crate::{Atime, MountEntry, Novale};

/// How long the thread may outlive its mount.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Follows the flags of the mount with a device number until the service is gone or the mount is.
pub(crate) fn follow(device: (u32, u32), service: Weak<Novale>) -> std::io::Result<()> {
    let table = File::open("/proc/self/mountinfo")?;
    let limit = Timespec::try_from(LOOK_AGAIN).map_err(std::io::Error::other)?;
    let look = move || {
        let table = MountTable::read().ok()?;
        table.of_device(device).map(|entry| (atime(entry), entry.is_read_only()))
    };
    // Here and not in the thread, which may come to it after the first remount.
    let Some(mut last) = look() else { return Ok(()) };
    let watch = move || {
        // Ends with the service.
        while let Some(service) = service.upgrade() {
            let Some(now) = look() else { return };
            let (atime, is_read_only) = now;
            if now != last {
                service.set_atime(atime);
            }
            if is_read_only && !last.1 {
                // What fails stays buffered, and is tried again by the rules of write-back.
                service.write_back_all().unwrap_or_default();
            }
            last = now;
            drop(service);
            let changed = &mut [PollFd::new(&table, PollFlags::PRI)];
            // Nothing, a change or a signal: each is a reason to look.
            poll(changed, Some(&limit)).map(drop).unwrap_or_default();
        }
    };
    start_thread("novale-flags", watch).map(drop)
}

/// What the flags ask of access times; none change where nothing may be written.
fn atime(entry: &MountEntry) -> Atime {
    let is_here = entry.options.split(',').any(|word| word == "ro");
    if is_here || entry.is_read_only() { Atime::Never } else { entry.atime() }
}
