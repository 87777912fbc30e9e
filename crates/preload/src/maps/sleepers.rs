//! Threads that sleep on a futex in memory that is about to be another.
//!
//! The kernel finds who sleeps on a word of shared memory by the file and the place in it. When a mapping
//! becomes another file's, wakes by the same address no longer reach those who sleep already, such as
//! in a mutex that processes share. So they are woken by the old place, look at the word again, as
//! they must be prepared to at any time, and sleep by the new one.

use novale_core::{Fs, HoldId};
use std::os::fd::AsRawFd;

use crate::base::sys::sys;
use crate::maps::{PAGE, Part};
use crate::numbers;

/// Bytes of directory entries that are read at once.
const LISTED: usize = 4096;
/// In an entry: where its length is, and where its name begins.
const LENGTH_AT: usize = 16;
const NAME_AT: usize = 19;

/// The addresses of the futexes that threads of this process sleep on.
pub(crate) fn futexes() -> Vec<u64> {
    let mut found = Vec::new();
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let path = c"/proc/self/task";
    let folder = sys!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0);
    if folder < 0 {
        return found;
    }
    let mut entries = vec![0_u8; LISTED];
    loop {
        let got = sys!(libc::SYS_getdents64, folder, entries.as_mut_ptr(), LISTED);
        let Some(mut rest) = usize::try_from(got).ok().and_then(|got| entries.get(..got)) else {
            break;
        };
        if rest.is_empty() {
            break;
        }
        while let Some((name, next)) = entry(rest) {
            found.extend(futex_of(folder, name));
            rest = next;
        }
    }
    numbers::close_low(folder as i32);
    found
}

/// The name of the first directory entry, and the entries after it.
fn entry(entries: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = entries.get(LENGTH_AT..LENGTH_AT + 2)?.try_into().ok()?;
    let (entry, next) = entries.split_at_checked(usize::from(u16::from_le_bytes(len)))?;
    let name = entry.get(NAME_AT..)?;
    let end = name.iter().position(|byte| *byte == 0)?;
    Some((name.get(..end)?, next))
}

/// The futex that a thread sleeps on: of a thread that sleeps in a call, the kernel shows its number and
/// its arguments.
fn futex_of(folder: i64, thread: &[u8]) -> Option<u64> {
    let path = [thread, b"/syscall\0"].concat();
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let fd = sys!(libc::SYS_openat, folder, path.as_ptr(), flags, 0);
    if fd < 0 {
        return None;
    }
    let mut text = [0_u8; 256];
    let got = sys!(libc::SYS_read, fd, text.as_mut_ptr(), text.len());
    numbers::close_low(fd as i32);
    let text = std::str::from_utf8(text.get(..usize::try_from(got).ok()?)?).ok()?;
    let mut words = text.split_ascii_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let address = words.next()?.strip_prefix("0x")?;
    (number == libc::SYS_futex).then_some(())?;
    u64::from_str_radix(address, 16).ok()
}

/// Wakes who sleeps on one of these addresses by where it was in the pool, while its pages are held.
pub(crate) fn wake(fs: &Fs, hold: HoldId, part: &Part, futexes: &[u64]) {
    for address in futexes {
        let Some((common, offset)) = part.within(&(*address..*address + 1)) else { continue };
        let (page, within) = (offset / PAGE, common.start % PAGE);
        let runs = fs.map_pages(&crate::mounts::ctx(), hold, page, 1);
        let Some(at) = runs.ok().and_then(|runs| Some(runs.first()?.addr)) else { continue };
        let Some(file) = fs.pm().slot_file(at.slot()) else { continue };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (fd, from) = (file.as_raw_fd(), at.byte());
        let shown = sys!(libc::SYS_mmap, 0, PAGE, access, libc::MAP_SHARED, fd, from);
        let Ok(shown) = u64::try_from(shown) else { continue };
        sys!(libc::SYS_futex, shown + within, libc::FUTEX_WAKE, i32::MAX);
        sys!(libc::SYS_munmap, shown, PAGE);
    }
}
