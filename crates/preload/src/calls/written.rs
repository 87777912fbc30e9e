//! What the kernel writes for this process to a file that it shows in replicas: whose position others have too, or
//! whose length the kernel has to judge. The replicas show it before the call returns.
//!
//! Where such a call has written, its position tells, from where it was before to where it is behind it. That it was
//! moved otherwise meanwhile, by another thread or process, is not seen: a program that has it so does not know itself
//! where it writes.

use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use novale_core::{Fallocate, Fs};
use novale_posix::fallocate_mode;

use crate::base::guard;
use crate::base::sys::{Args, Ret, sys};
use crate::base::thread::current;
use crate::fds::quiet;
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

/// Where a call has written that has moved a position, or a file's end.
#[derive(Debug, PartialEq, Eq)]
enum Moved {
    /// Just there.
    Over(Range<u64>),
    /// Somewhere there, and so have others.
    Within(Range<u64>),
    Anywhere,
}

impl Moved {
    /// Of so many bytes, and what was moved from here to there.
    fn of(bytes: u64, from: Option<u64>, to: Option<u64>) -> Self {
        let (Some(from), Some(to)) = (from, to) else { return Self::Anywhere };
        match to.checked_sub(from) {
            Some(len) if len == bytes => Self::Over(from..to),
            Some(len) if len > bytes => Self::Within(from..to),
            _ => Self::Anywhere,
        }
    }
}

/// Tells what a call moves as it writes, a position or a file's end, from all others. Never 0.
fn moved_by(file: &InUse, place: Written) -> u64 {
    // By the file too: a position of the kernel's may have several descriptions here, one for each number it came by.
    let of_position = u64::from(matches!(place, Written::Position));
    (file.mount() as u64) << 48 | file.ino().get() << 1 | of_position
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

/// Where a call writes by a description that may be open to append.
fn place_in(file: &InUse, place: Written) -> Written {
    let is_moved = matches!(place, Written::Position | Written::Offset(_)) && file.appends();
    if is_moved { Written::End } else { place }
}

/// Where the position is, or a file's end.
fn now(fs: &Fs, (fd, file): (i32, &InUse), place: Written) -> Option<u64> {
    match place {
        Written::Position => {
            let ask = |fd| sys!(libc::SYS_lseek, fd, 0, libc::SEEK_CUR);
            u64::try_from(table::with_number(fd, file, ask)?).ok()
        }
        Written::End => fs.getattr(file.ino()).ok().map(|attr| attr.size),
        Written::Offset(_) | Written::Before(_) | Written::Range(..) | Written::Cut(_) => None,
    }
}

/// The file of a descriptor, where it may be shown in replicas.
fn shown(fd: i32) -> Option<InUse> {
    let may_show = |file: &InUse| !file.is(DIRECTORY) && maps::mode(file.mount()) == Mode::Atomic;
    table::get(fd).filter(may_show)
}

/// Whether the kernel writes by a call.
pub(crate) fn writes(number: i64, args: &Args) -> bool {
    target(number, args).is_some()
}

/// Whether a call may wait for others.
fn waits(number: i64) -> bool {
    matches!(number, libc::SYS_splice | libc::SYS_sendfile)
}

/// Whether a call that the kernel makes changes a file that may be shown in replicas. From where on is noted then; where
/// there is no replica, only if the call may wait: one that comes meanwhile has no older stores otherwise.
pub(crate) fn is_to_replicas(number: i64, args: &Args) -> bool {
    let found = target(number, args).and_then(|(fd, place)| Some((fd, place, shown(fd)?)));
    let Some((fd, place, file)) = found else { return false };
    let is_noted = waits(number) || maps::has_replicas();
    let note = is_noted.then(|| start((fd, &file), place_in(&file, place))).flatten();
    current().set_written_from(note.unwrap_or_default());
    true
}

/// What a call of this thread moves as it writes, and from where on.
fn start((fd, file): (i32, &InUse), place: Written) -> Option<[u64; 2]> {
    let start = now(mounts::fs(file.mount())?, (fd, file), place)?;
    Some([moved_by(file, place), start])
}

/// From where on a call of this thread writes, as it was noted.
fn noted(moved: u64) -> Option<u64> {
    let [of, from] = current().written_from();
    current().set_written_from([0; 2]);
    (of == moved).then_some(from)
}

/// Has replicas show what the kernel has made of a call, so many bytes where it writes.
pub(crate) fn show(number: i64, args: &Args, bytes: u64) -> Option<()> {
    // The first one may have come meanwhile, and have read what was there before.
    fence(Ordering::SeqCst);
    if !maps::has_replicas() {
        return None;
    }
    let (fd, place) = target(number, args)?;
    let file = table::get(fd).filter(|file| !file.is(DIRECTORY))?;
    let fs = mounts::fs(file.mount())?;
    let of = (file.mount(), file.ino());
    let range = match place_in(&file, place) {
        Written::Offset(start) => start..start.saturating_add(bytes),
        Written::Before(at) => {
            let end = guard::load::<u64>(at)?;
            end.saturating_sub(bytes)..end
        }
        Written::Range(start, end) => start..end,
        Written::Cut(size) => {
            replicas::cut(None, fs, of, size);
            return Some(());
        }
        place @ (Written::Position | Written::End) => {
            let to = now(fs, (fd, &file), place);
            match Moved::of(bytes, noted(moved_by(&file, place)), to) {
                Moved::Over(range) => range,
                Moved::Within(range) => {
                    replicas::changed_within(fs, of, &range);
                    return Some(());
                }
                Moved::Anywhere => {
                    replicas::changed_anywhere(fs, of);
                    return Some(());
                }
            }
        }
    };
    replicas::changed(None, fs, of, &range);
    Some(())
}

/// Has the kernel write bytes of this library's where it has the position, and replicas show them.
pub(crate) fn by_kernel(fd: u64, bytes: &[u8]) -> Ret {
    let args = [fd, bytes.as_ptr() as u64, bytes.len() as u64, 0, 0, 0];
    let is_shown = is_to_replicas(libc::SYS_write, &args);
    let done = quiet::outside(|| sys!(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()));
    if let (true, Ok(bytes)) = (is_shown, u64::try_from(done)) {
        show(libc::SYS_write, &args, bytes).unwrap_or_default();
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_known_where_it_was_not_moved_back() {
        assert_eq!(Moved::of(8, Some(0), Some(8)), Moved::Over(0..8));
        assert_eq!(Moved::of(8, Some(0), Some(24)), Moved::Within(0..24));
        for (from, to) in
            [(Some(16), Some(8)), (Some(8), Some(8)), (None, Some(8)), (Some(8), None)]
        {
            assert_eq!(Moved::of(8, from, to), Moved::Anywhere);
        }
    }
}
