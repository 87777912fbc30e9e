//! Mappings that are longer than their file: what the file gets there is shown as it grows.
//!
//! A part shows the file's own pages up to the file's last one. The addresses after it belong to the
//! mapping too, and show a file without a byte: who touches them gets SIGBUS, as beyond the end of any
//! mapped file. Pages that the file gets are shown there
//! - before the call returns, when this process makes the file longer;
//! - when this process asks how long the file is, hands a call such an address, or touches it, when
//!   others have made it longer: the handler of SIGBUS ([`crate::process::signals`]) has the pages shown
//!   and the instruction run again. What is beyond the end all the same is the program's own SIGBUS.
//!
//! What is shown once stays: a page that a truncation cuts off keeps its place as long as the file is
//! held (`Fs::map_hold`), and is the file's again where it grows. What can't be shown, since it is in too
//! many pieces or holes, has the mapping give way to the kernel's.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use novale_core::{Fs, Ino, MappedRun};

use crate::base::sys::sys;
use crate::base::thread::{self, current};
use crate::fds::{kernel, quiet};
use crate::maps::replicas::Memory;
use crate::maps::{self, Maps, PAGE, Part, RUNS_MAX};
use crate::mounts;

/// How much of its file a part shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Where in the file it ends, in bytes.
    pub(crate) end: u64,
    /// The address in the pool after the last page.
    next: u64,
    /// Pieces of the pool, at most.
    pub(crate) pieces: usize,
}

impl Shown {
    /// There is no more to show.
    pub(crate) const ALL: Self = Self { end: u64::MAX, next: 0, pieces: 0 };

    /// Nothing yet, from a place in the file on.
    pub(crate) fn new(from: u64) -> Self {
        Self { end: from, next: 0, pieces: 0 }
    }

    /// With runs that follow in the file.
    pub(crate) fn with(self, runs: &[MappedRun]) -> Self {
        runs.iter().fold(self, |shown, run| Self {
            end: (run.file_page + run.pages) * PAGE,
            next: run.addr.add(run.pages * PAGE).raw(),
            pieces: shown.pieces + usize::from(run.addr.raw() != shown.next),
        })
    }

    pub(crate) fn is_less_than(self, end: u64) -> bool {
        self.end < end
    }
}

/// Parts that do not show all of what their file may get, for a look without the lock.
static LACKING: AtomicUsize = AtomicUsize::new(0);
/// There was such a part.
static USED: AtomicBool = AtomicBool::new(false);
/// Counts what has changed about what is mapped, from 1 on.
static CHANGES: AtomicU64 = AtomicU64::new(1);
/// A page beyond the end of a file without a byte, inaccessible; 0 before there is one. Set with the
/// mappings' lock.
static NOTHING: AtomicU64 = AtomicU64::new(0);

/// Notes how many parts do not show all of what their file may get.
pub(crate) fn set_lacking(parts: usize) {
    LACKING.store(parts, Ordering::Release);
    if parts > 0 {
        USED.store(true, Ordering::Release);
    }
}

/// Whether the program may have touched such a part.
pub(crate) fn is_used() -> bool {
    USED.load(Ordering::Acquire)
}

/// Something else is at some address now.
pub(crate) fn changed() {
    CHANGES.fetch_add(1, Ordering::Release);
}

fn nothing() -> Option<u64> {
    let known = NOTHING.load(Ordering::Relaxed);
    if known != 0 {
        return Some(known);
    }
    let made = sys!(libc::SYS_memfd_create, c"novale".as_ptr(), libc::MFD_CLOEXEC);
    let memory = Memory::of(made)?;
    let at = sys!(libc::SYS_mmap, 0, PAGE, libc::PROT_NONE, libc::MAP_SHARED, memory.fd(), 0);
    drop(memory);
    let at = u64::try_from(at).ok()?;
    NOTHING.store(at, Ordering::Relaxed);
    Some(at)
}

/// Puts addresses there that give SIGBUS. With the mappings' lock.
pub(crate) fn put_nothing(at: u64, len: u64, access: u64) -> Option<()> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // Of a length of nothing a second mapping is made.
    let put = sys!(libc::SYS_mremap, nothing()?, 0, len, flags, at);
    if put >= 0 && sys!(libc::SYS_mprotect, at, len, access) != 0 {
        sys!(libc::SYS_munmap, at, len);
        return None;
    }
    (put >= 0).then_some(())
}

/// Shows what parts of a file lack; false where that is not possible.
fn grow(maps: &mut Maps, fs: &Fs, (mount, ino): (usize, Ino), to: u64) -> bool {
    let mut good = true;
    let lacking = maps.lacking_of((mount, ino), to);
    maps.show_more(&lacking, |part| match grown(fs, part) {
        Some(shown) => part.shown = shown,
        None => good = false,
    });
    good
}

/// Shows what a part lacks.
fn grown(fs: &Fs, part: &Part) -> Option<Shown> {
    let from = part.shown.end.max(part.offset);
    let runs = maps::runs(fs, part.of.hold()?, &(from..part.offset + part.len))?;
    let shown = part.shown.with(&runs);
    if runs.is_empty() || shown.pieces > RUNS_MAX {
        return runs.is_empty().then_some(part.shown);
    }
    maps::show_behind(fs, part, &runs)?;
    changed();
    Some(shown)
}

/// A file may go to `to` now: what is mapped of it here shows that. Not with a lock that another thread
/// waits for inside: all threads may have to come out.
#[inline]
pub(crate) fn grew(mount: usize, ino: Ino, to: u64) {
    if LACKING.load(Ordering::Acquire) > 0 {
        show_grown(mount, ino, to);
    }
}

#[cold]
fn show_grown(mount: usize, ino: Ino, to: u64) {
    let Some(fs) = mounts::fs(mount) else { return };
    let good = grow(&mut maps::lock(), fs, (mount, ino), to);
    if !good {
        give_way((mount, ino));
    }
}

/// Has the kernel map a file of which more can't be shown. Where that is not possible either, what is
/// beyond stays as it is.
fn give_way(file: (usize, Ino)) {
    if kernel::ask(file.0, file.1) != Some(true) {
        let mut maps = maps::lock();
        let lacking = maps.lacking_of(file, u64::MAX);
        maps.show_more(&lacking, |part| part.shown = Shown::ALL);
    }
}

/// Shows what there is by now at addresses that a call was given; false where that is nothing new.
#[cold]
pub(crate) fn show(at: u64, len: usize) -> bool {
    if LACKING.load(Ordering::Acquire) == 0 {
        return false;
    }
    let before = CHANGES.load(Ordering::Acquire);
    let Some(end) = at.checked_add(len as u64) else { return false };
    let mut maps = maps::lock();
    let files = lacking(&maps, &(at..end));
    for file in files {
        if let Some(fs) = mounts::fs(file.0) {
            grow(&mut maps, fs, file, u64::MAX);
        }
    }
    CHANGES.load(Ordering::Acquire) != before
}

/// The files of the parts at a range of addresses that do not show all of it.
fn lacking(maps: &Maps, range: &Range<u64>) -> Vec<(usize, Ino)> {
    let is_lacking = |part: &&Part| {
        let within = part.within(range).filter(|_| part.lacks());
        within.is_some_and(|(there, offset)| {
            part.shown.is_less_than(offset + (there.end - there.start))
        })
    };
    maps.within(range).filter(is_lacking).map(|part| (part.of.mount, part.of.ino)).collect()
}

/// The program has touched an address, and got SIGBUS; true where that was not to be, or is not so any
/// more. For a thread that is not inside.
pub(crate) extern "C" fn touched(at: u64) -> bool {
    let _depth = thread::Inside::new();
    let _inside = quiet::Serving::new(quiet::Calls::Any);
    // A bug of this library must not unwind into the program.
    std::panic::catch_unwind(|| is_there_now(at)).unwrap_or(false)
}

/// The program has touched an address that may not be touched so; true where that was a mapping's, which was shut
/// for a thread that started a program, in vain ([`crate::maps::held::suspend`]). That one keeps all others out until it is open
/// again. For a thread that is not inside.
pub(crate) extern "C" fn touched_shut(at: u64) -> bool {
    let _depth = thread::Inside::new();
    let _inside = quiet::Serving::new(quiet::Calls::Any);
    let page = at..at.saturating_add(1);
    let is_mapped = maps::lock().overlaps(&page);
    is_mapped && is_first(at)
}

fn is_there_now(at: u64) -> bool {
    let page = at..at.saturating_add(1);
    let mut maps = maps::lock();
    let Some(file) = lacking(&maps, &page).first().copied() else {
        drop(maps);
        return is_first(at);
    };
    let Some(fs) = mounts::fs(file.0) else { return false };
    let good = grow(&mut maps, fs, file, u64::MAX);
    let is_shown = lacking(&maps, &page).is_empty();
    drop(maps);
    if !good {
        give_way(file);
    }
    // The kernel says what is beyond the end of its own mapping.
    is_shown || !good && is_first(at)
}

/// Whether this thread has touched an address for the first time since anything was mapped in another's
/// place: another thread may have had it shown, or the kernel's mapping may have come there, after the
/// fault.
fn is_first(at: u64) -> bool {
    let changes = CHANGES.load(Ordering::Acquire);
    let [address, time] = &current().fault;
    let is_again = (address.load(Ordering::Relaxed), time.load(Ordering::Relaxed)) == (at, changes);
    address.store(at, Ordering::Relaxed);
    time.store(changes, Ordering::Relaxed);
    !is_again
}
