//! Where this process has files mapped that others can cut short, so that what lies there can't be touched any more:
//! files of other file systems, and of a mount in the kernel's pages.
//!
//! The kernel tells a call by `EFAULT`, or by how much it has moved, that memory it is handed goes away meanwhile. Here
//! bytes of such a mapping are copied by guarded instructions ([`crate::base::guard`]), before the file system has any
//! lock or after it.
//!
//! What is noted may be more than there is: what is unmapped stays until something else is mapped there, and where there
//! are many ranges those next to each other are one, with what lies between. It is never less, but for what was mapped
//! before this library began, as the program's own text and data, and by a process that shares its memory with another
//! one, whose calls are the kernel's.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use novale_posix::report::Why;

use crate::base::lock::Lock;
use crate::base::report;
use crate::base::sys::{Args, Ret, Served, sys};
use crate::fds::{quiet, table};
use crate::maps::{self, PAGE};
use crate::numbers::words;
use crate::paths::descriptor;

/// Ranges that are told apart.
const MOST: usize = 32;

/// Apart from each other, in order.
static NOTED: Lock<Vec<Range<u64>>> = Lock::new(Vec::new());
/// The same for those who look without the lock.
#[unsafe(link_section = ".novale_data")]
static SHOWN: [[AtomicU64; 2]; MOST] = [const { [AtomicU64::new(0), AtomicU64::new(0)] }; MOST];
#[unsafe(link_section = ".novale_data")]
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Odd while they are changed.
#[unsafe(link_section = ".novale_data")]
static VERSION: AtomicU32 = AtomicU32::new(0);

/// Whether others may take away what lies there. Who calls has the addresses from the program, which has them from a
/// call that came back: they are noted by then.
#[inline]
pub(crate) fn may_go(at: u64, len: u64) -> bool {
    COUNT.load(Ordering::Acquire) != 0 && is_noted(&(at..at.saturating_add(len)))
}

fn is_noted(range: &Range<u64>) -> bool {
    let version = VERSION.load(Ordering::Acquire);
    let overlaps = |[start, end]: &[AtomicU64; 2]| {
        start.load(Ordering::Relaxed) < range.end && range.start < end.load(Ordering::Relaxed)
    };
    let is_found = SHOWN.iter().take(COUNT.load(Ordering::Relaxed)).any(overlaps);
    fence(Ordering::Acquire);
    // While they are changed it may be.
    is_found || !version.is_multiple_of(2) || VERSION.load(Ordering::Relaxed) != version
}

fn change(edit: impl FnOnce(&mut Vec<Range<u64>>)) {
    let mut noted = NOTED.lock();
    edit(&mut noted);
    let version = VERSION.load(Ordering::Relaxed);
    VERSION.store(version.wrapping_add(1), Ordering::Relaxed);
    fence(Ordering::Release);
    for ([start, end], range) in SHOWN.iter().zip(noted.iter()) {
        start.store(range.start, Ordering::Relaxed);
        end.store(range.end, Ordering::Relaxed);
    }
    COUNT.store(noted.len(), Ordering::Release);
    VERSION.store(version.wrapping_add(2), Ordering::Release);
}

/// Notes that a file which others can cut short is mapped there.
pub(crate) fn note(range: &Range<u64>) {
    if !range.is_empty() {
        change(|noted| add(noted, range));
    }
}

/// Adds a range; where there are too many, the two that are nearest to each other become one.
fn add(all: &mut Vec<Range<u64>>, range: &Range<u64>) {
    let touches = |known: &Range<u64>| known.start <= range.end && range.start <= known.end;
    let touching = || all.iter().filter(|known| touches(known));
    let start = touching().map(|known| known.start).min().unwrap_or(range.start).min(range.start);
    let end = touching().map(|known| known.end).max().unwrap_or(range.end).max(range.end);
    all.retain(|known| !touches(known));
    let at = all.partition_point(|known| known.start < start);
    all.insert(at, start..end);
    if all.len() > MOST {
        let gaps = all.iter().zip(all.iter().skip(1)).map(|(one, next)| next.start - one.end);
        let nearest = gaps.enumerate().min_by_key(|(_, gap)| *gap).map_or(0, |(at, _)| at);
        let next = all.remove(nearest + 1);
        if let Some(one) = all.get_mut(nearest) {
            one.end = next.end;
        }
    }
}

/// Takes out what is something else now. Where that makes too many of them, it stays.
fn take_out(all: &mut Vec<Range<u64>>, range: &Range<u64>) {
    let rest: Vec<Range<u64>> = all
        .iter()
        .flat_map(|known| {
            let (before, after) = (known.end.min(range.start), known.start.max(range.end));
            [known.start..before, after..known.end]
        })
        .filter(|rest| !rest.is_empty())
        .collect();
    if rest.len() <= MOST {
        *all = rest;
    }
}

/// What is mapped where a call of the program's has come back with success.
fn came(range: &Range<u64>, is_foreign: bool) {
    if is_foreign && !maps::some().is_some_and(|maps| maps.are_own(range)) {
        note(range);
    } else if may_go(range.start, range.end - range.start) {
        change(|noted| take_out(noted, range));
    }
}

/// The addresses that a mapping has come to, if it has.
fn mapped(result: Ret, len: u64) -> Option<Range<u64>> {
    let start = u64::try_from(result).ok()?;
    Some(start..start.saturating_add(len.saturating_add(PAGE - 1) & !(PAGE - 1)))
}

/// `mmap(at, len, access, flags, fd, offset)`, which somebody else serves, or the kernel.
pub(crate) fn mmap(args: &Args, serve: impl FnOnce() -> Served) -> Served {
    let [at, len, access, flags, fd, offset] = *args;
    let is_foreign = flags & libc::MAP_ANONYMOUS as u64 == 0;
    if !is_foreign && COUNT.load(Ordering::Relaxed) == 0 {
        return serve();
    }
    if is_foreign && flags & libc::MAP_FIXED as u64 != 0 {
        // Other threads may know the addresses.
        note(&mapped(at.cast_signed(), len)?);
    }
    let map = || sys!(libc::SYS_mmap, at, len, access, flags, fd, offset);
    let by_kernel = || {
        if !is_foreign {
            return map();
        }
        if table::get(descriptor(fd)).is_some() {
            report::because_at_least(Why::Mapped);
        }
        // It may read all of the file first (`MAP_POPULATE`).
        quiet::outside(map)
    };
    let served = match serve() {
        // It fails.
        None if is_foreign && words::is_internal(descriptor(fd)) => return None,
        served => served.unwrap_or_else(by_kernel),
    };
    if let Some(range) = mapped(served, len) {
        came(&range, is_foreign);
    }
    Some(served)
}

/// `mremap(at, len, new_len, flags, to)`, likewise.
pub(crate) fn mremap(args: &Args, serve: impl FnOnce() -> Served) -> Served {
    let [at, len, new_len, flags, to, _] = *args;
    // What is mapped here may become the kernel's by it.
    if COUNT.load(Ordering::Relaxed) == 0 && !maps::are_some() {
        return serve();
    }
    let is_foreign = || may_go(at, len.max(PAGE));
    // Before, since others may be given the old addresses at once, and after it, as it may have become the kernel's.
    let was_foreign = is_foreign();
    if was_foreign && flags & libc::MREMAP_FIXED as u64 != 0 {
        note(&mapped(to.cast_signed(), new_len)?);
    }
    let by_kernel = || sys!(libc::SYS_mremap, at, len, new_len, flags, to);
    let served = serve().unwrap_or_else(by_kernel);
    if let Some(range) = mapped(served, new_len) {
        came(&range, was_foreign || is_foreign());
    }
    Some(served)
}

/// Keeps other threads from changing it while the process forks.
pub(crate) fn before_fork() {
    NOTED.take();
}

/// Called in parent and child.
pub(crate) fn fork_done() {
    NOTED.give();
}

#[cfg(test)]
mod tests {
    use super::{MOST, add, take_out};

    #[test]
    fn ranges_are_never_less_than_there_is() {
        let mut all = Vec::new();
        let ranges: Vec<_> =
            (0..2 * MOST as u64).map(|at| at * 100 + at % 7..at * 100 + 50).collect();
        for range in ranges.iter().rev() {
            add(&mut all, range);
        }
        assert_eq!(all.len(), MOST);
        let covers = |all: &[std::ops::Range<u64>], at| all.iter().any(|range| range.contains(&at));
        assert!(
            ranges.iter().all(|range| covers(&all, range.start) && covers(&all, range.end - 1))
        );
        assert!(all.is_sorted_by(|one, next| one.end < next.start));
        add(&mut all, &(0..50_000));
        assert_eq!(all.as_slice(), std::slice::from_ref(&(0..50_000)));
        take_out(&mut all, &(10..20));
        assert_eq!(all, [0..10, 20..50_000]);
        add(&mut all, &(10..12));
        take_out(&mut all, &(5..60_000));
        assert_eq!(all.as_slice(), std::slice::from_ref(&(0..5)));
    }
}
