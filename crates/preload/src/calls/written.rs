//! What the kernel writes for this process to a file that it shows in replicas: whose position others have too, or
//! whose length the kernel has to judge. The replicas show it before the call returns.

use std::ops::Range;

use novale_core::Fallocate;
use novale_posix::fallocate_mode;

use crate::base::guard;
use crate::base::sys::{Args, sys};
use crate::fds::table::{self, DIRECTORY, InUse};
use crate::maps::{self, Mode, replicas};
use crate::mounts;
use crate::paths::descriptor;

/// Where a call changes a file.
#[derive(Clone, Copy)]
enum Written {
    /// Before the position that there is behind it.
    Position,
    /// From there on, unless it is appended.
    Offset(u64),
    /// Before the offset that stands at an address behind it.
    Before(u64),
    /// At the file's end.
    End,
    /// In that range, whatever it returns.
    Range(u64, u64),
    /// From a new end on.
    Cut(u64),
}

/// The bytes of a file that `fallocate` changes: none where it only has room made.
pub(crate) fn of_fallocate(mode: Fallocate, start: u64, len: u64) -> Range<u64> {
    match mode {
        Fallocate::Extend | Fallocate::KeepSize => start..start,
        Fallocate::PunchHole | Fallocate::ZeroRange | Fallocate::ZeroRangeKeepSize => {
            start..start.saturating_add(len)
        }
        Fallocate::CollapseRange | Fallocate::InsertRange => start..u64::MAX,
    }
}

/// The descriptor that a call writes by, and where it writes.
fn target(number: i64, args: &Args) -> Option<(i32, Written)> {
    let [first, second, third, fourth, _, flags] = *args;
    let (fd, place) = match number {
        libc::SYS_write | libc::SYS_writev | libc::SYS_sendfile => (first, Written::Position),
        libc::SYS_pwritev2 if flags & libc::RWF_APPEND as u64 != 0 => (first, Written::End),
        libc::SYS_pwritev2 if fourth == u64::MAX => (first, Written::Position),
        libc::SYS_pwrite64 | libc::SYS_pwritev | libc::SYS_pwritev2 => {
            (first, Written::Offset(fourth))
        }
        libc::SYS_copy_file_range | libc::SYS_splice if fourth == 0 => (third, Written::Position),
        libc::SYS_copy_file_range | libc::SYS_splice => (third, Written::Before(fourth)),
        libc::SYS_fallocate => {
            let changed = of_fallocate(fallocate_mode(second as i32).ok()?, third, fourth);
            (first, Written::Range(changed.start, changed.end))
        }
        libc::SYS_ftruncate => (first, Written::Cut(second)),
        _ => return None,
    };
    Some((descriptor(fd), place))
}

/// Whether a call that the kernel makes changes a file that may be shown in replicas.
pub(crate) fn is_to_replicas(number: i64, args: &Args) -> bool {
    let may_show = |file: InUse| !file.is(DIRECTORY) && maps::mode(file.mount()) == Mode::Atomic;
    maps::has_replicas()
        && target(number, args).is_some_and(|(fd, _)| table::get(fd).is_some_and(may_show))
}

/// Has replicas show what the kernel has made of a call, so many bytes where it writes.
pub(crate) fn show(number: i64, args: &Args, bytes: u64) -> Option<()> {
    if !maps::has_replicas() {
        return None;
    }
    let (fd, place) = target(number, args)?;
    let file = table::get(fd).filter(|file| !file.is(DIRECTORY))?;
    let fs = mounts::fs(file.mount())?;
    let size = || fs.getattr(file.ino()).ok().map(|attr| attr.size);
    let ends_at = |end: u64| end.saturating_sub(bytes)..end;
    let range = match place {
        Written::Offset(_) if file.appends() => ends_at(size()?),
        Written::Offset(start) => start..start.saturating_add(bytes),
        Written::Before(at) => ends_at(guard::load::<u64>(at)?),
        Written::End => ends_at(size()?),
        Written::Position => {
            let ask = |fd| sys!(libc::SYS_lseek, fd, 0, libc::SEEK_CUR);
            ends_at(u64::try_from(table::with_number(fd, &file, ask)?).ok()?)
        }
        Written::Range(start, end) => start..end,
        Written::Cut(size) => {
            replicas::cut(None, fs, (file.mount(), file.ino()), size);
            return Some(());
        }
    };
    replicas::changed(None, fs, (file.mount(), file.ino()), &range);
    Some(())
}
