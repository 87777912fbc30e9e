//! Threads that sleep on a futex in memory that is about to be another.
//!
//! The kernel finds who sleeps on a word of shared memory by the file and the place in it. When a mapping
//! becomes another file's, wakes by the same address no longer reach those who sleep already, such as
//! in a mutex that processes share. So they are woken by the old place, look at the word again, as
//! they must be prepared to at any time, and sleep by the new one.

use std::ops::Range;
use std::os::fd::AsRawFd;

use novale_core::{Fs, HoldId};

use crate::base::guard;
use crate::base::sys::{Args, Fd, sys};
use crate::maps::{PAGE, Part, nudge};
use crate::numbers::{self, limits};

/// Bytes of directory entries that are read at once.
const LISTED: usize = 4096;
/// In an entry: where its length is, and where its name begins.
const LENGTH_AT: usize = 16;
const NAME_AT: usize = 19;

/// Calls of Linux 5.16 and 6.7.
const FUTEX_WAITV: i64 = 449;
const FUTEX_WAIT: i64 = 455;
/// An operation of Linux 5.14.
const FUTEX_LOCK_PI2: i32 = 13;
/// Words that one thread sleeps on at most, and bytes that say so of each: its address is the second word of those.
const WORDS_MAX: u64 = 128;
const WORD_BYTES: usize = 24;

/// A thread of this process that sleeps on futexes.
struct Sleeper {
    thread: i32,
    /// Where they are; none where that can't be told.
    words: Vec<u64>,
    wakes: Wakes,
}

/// What has a thread look at a word again.
enum Wakes {
    /// A wake-up at that word.
    Word,
    /// That its call is made anew: the kernel refuses to wake who waits for a lock with priority inheritance.
    Call,
}

/// The threads of this process that sleep on futexes.
pub(crate) struct Sleepers {
    folder: i64,
    all: Vec<Sleeper>,
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        if self.folder >= 0 {
            numbers::close_low(self.folder as i32);
        }
    }
}

impl Sleepers {
    /// Those that there are now.
    pub(crate) fn now() -> Self {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let path = c"/proc/self/task";
        let folder = sys!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0);
        let mut found = Self { folder, all: Vec::new() };
        if folder < 0 {
            return found;
        }
        let mut entries = vec![0_u8; LISTED];
        loop {
            let got = sys!(libc::SYS_getdents64, folder, entries.as_mut_ptr(), LISTED);
            let Some(mut rest) = usize::try_from(got).ok().and_then(|got| entries.get(..got))
            else {
                break;
            };
            if rest.is_empty() {
                break;
            }
            while let Some((name, next)) = entry(rest) {
                found.all.extend(sleeper(folder, name));
                rest = next;
            }
        }
        found
    }

    /// Has those look again that sleep in a part, by where it was in the pool, while its pages are held.
    pub(crate) fn wake(&self, fs: &Fs, hold: HoldId, part: &Part) {
        for sleeper in &self.all {
            let is_there = |address: &&u64| word_in(part, **address).is_some();
            let mut words = sleeper.words.iter().filter(is_there);
            match sleeper.wakes {
                Wakes::Word => words.for_each(|address| wake(fs, hold, part, *address)),
                Wakes::Call if sleeper.words.is_empty() || words.next().is_some() => {
                    nudge::send(self.folder, sleeper.thread);
                }
                Wakes::Call => {}
            }
        }
    }
}

/// Whether the kernel shows what threads of this process sleep in.
pub(crate) fn are_shown() -> bool {
    limits::opening(|| {
        let path = c"/proc/thread-self/syscall";
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let file = Fd::new(sys!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0));
        let mut byte = 0_u8;
        file.is_some_and(|file| sys!(libc::SYS_read, file.number(), &raw mut byte, 1) == 1)
    })
}

/// The name of the first directory entry, and the entries after it.
fn entry(entries: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = entries.get(LENGTH_AT..LENGTH_AT + 2)?.try_into().ok()?;
    let (entry, next) = entries.split_at_checked(usize::from(u16::from_le_bytes(len)))?;
    let name = entry.get(NAME_AT..)?;
    let end = name.iter().position(|byte| *byte == 0)?;
    Some((name.get(..end)?, next))
}

/// A thread, if it sleeps on futexes: of one that sleeps in a call, the kernel shows its number and its
/// arguments.
fn sleeper(folder: i64, name: &[u8]) -> Option<Sleeper> {
    let path = [name, b"/syscall\0"].concat();
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let fd = sys!(libc::SYS_openat, folder, path.as_ptr(), flags, 0);
    if fd < 0 {
        return None;
    }
    let mut text = [0_u8; 256];
    let got = sys!(libc::SYS_read, fd, text.as_mut_ptr(), text.len());
    numbers::close_low(fd as i32);
    let text = str::from_utf8(text.get(..usize::try_from(got).ok()?)?).ok()?;
    let mut said = text.split_ascii_whitespace();
    let number: i64 = said.next()?.parse().ok()?;
    let mut args = [0; 6];
    for arg in &mut args {
        *arg = u64::from_str_radix(said.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    let (words, wakes) = sleeps_on(number, &args)?;
    Some(Sleeper { thread: str::from_utf8(name).ok()?.parse().ok()?, words, wakes })
}

/// What a call sleeps on. What is one process' own is known by its address, which stays.
fn sleeps_on(number: i64, args: &Args) -> Option<(Vec<u64>, Wakes)> {
    let [first, second, .., fifth, _] = *args;
    match number {
        libc::SYS_futex => {
            let flags = libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME;
            let is_private = second as i32 & libc::FUTEX_PRIVATE_FLAG != 0;
            match second as i32 & !flags {
                _ if is_private => None,
                libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => Some((vec![first], Wakes::Word)),
                libc::FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => Some((vec![first], Wakes::Call)),
                // It may be at the second one already.
                libc::FUTEX_WAIT_REQUEUE_PI => Some((vec![first, fifth], Wakes::Call)),
                _ => None,
            }
        }
        FUTEX_WAIT => Some((vec![first], Wakes::Word)),
        FUTEX_WAITV => Some(match listed(first, second) {
            Some(words) => (words, Wakes::Word),
            None => (Vec::new(), Wakes::Call),
        }),
        _ => None,
    }
}

/// The addresses in a list of the program's that one thread sleeps on, as far as that can be read without waiting: for
/// a page of a file of a mount this process might be the one to be waited for.
fn listed(at: u64, count: u64) -> Option<Vec<u64>> {
    let len = usize::try_from(count.min(WORDS_MAX)).ok()? * WORD_BYTES;
    let start = at & !(PAGE - 1);
    let range = start..at.checked_add(len as u64)?;
    let mut are_there = [0_u8; (WORDS_MAX as usize * WORD_BYTES).div_ceil(PAGE as usize) + 1];
    let pages = usize::try_from((range.end - start).div_ceil(PAGE)).ok()?;
    let known = sys!(libc::SYS_mincore, start, range.end - start, are_there.as_mut_ptr());
    if known != 0 || are_there.get(..pages)?.iter().any(|page| page & 1 == 0) {
        return None;
    }
    let bytes = guard::copied_now(at, len)?;
    let words = bytes.chunks_exact(WORD_BYTES).filter_map(|word| word.get(8..)?.first_chunk());
    Some(words.map(|word| u64::from_le_bytes(*word)).collect())
}

/// Where a word is in a part. An address of the program's may be any.
fn word_in(part: &Part, address: u64) -> Option<(Range<u64>, u64)> {
    part.within(&(address..address.checked_add(1)?))
}

/// Wakes who sleeps on a word of a part, by where it was in the pool.
fn wake(fs: &Fs, hold: HoldId, part: &Part, address: u64) {
    let Some((common, offset)) = word_in(part, address) else { return };
    let (page, within) = (offset / PAGE, common.start % PAGE);
    let runs = fs.map_pages(&crate::mounts::ctx(), hold, page, 1);
    let Some(at) = runs.ok().and_then(|runs| Some(runs.first()?.addr)) else { return };
    let Some(file) = fs.pm().slot_file(at.slot()) else { return };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let (fd, from) = (file.as_raw_fd(), at.byte());
    let shown = sys!(libc::SYS_mmap, 0, PAGE, access, libc::MAP_SHARED, fd, from);
    let Ok(shown) = u64::try_from(shown) else { return };
    sys!(libc::SYS_futex, shown + within, libc::FUTEX_WAKE, i32::MAX);
    sys!(libc::SYS_munmap, shown, PAGE);
}
