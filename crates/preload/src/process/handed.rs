//! Copies of what `execve` is handed: the path, the lists and their strings.
//!
//! The files' own pages are inaccessible by the time that the kernel makes the call ([`crate::maps::held::suspend`]), and
//! what it is handed may lie in them. So where any are mapped, all of it is copied before. What can't be read stays
//! where it is: the kernel says so. What is longer than the kernel takes is copied up to there, and one byte more.

use crate::base::guard::{self, PathBuffer};
use crate::base::sys::{Ret, fail, sys};
use crate::maps::{self, Source};

const PAGE: u64 = 4096;
/// Bytes of a string at most, with its end, as in Linux.
const STRING_MAX: usize = 32 * PAGE as usize;
/// More than the 6 MB of strings and lists that Linux takes at most.
const ROOM: usize = 8 << 20;
const ENTRY: usize = size_of::<u64>();

/// The copies, for as long as it lives.
pub(crate) struct Copies {
    at: u64,
    used: usize,
}

impl Copies {
    /// Copies the path and the lists where the files' own pages are mapped, and has the call handed these.
    pub(crate) fn of(path: &mut u64, lists: [&mut u64; 2]) -> Result<Option<Self>, Ret> {
        let are_own = maps::some().is_some_and(|maps| !maps.sources(Source::is_own).is_empty());
        if !are_own {
            return Ok(None);
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // What is shared does not count as the program's data, of which it may have no more.
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let made = sys!(libc::SYS_mmap, 0, ROOM, access, flags, u64::MAX, 0);
        let mut copies = Self { at: u64::try_from(made).map_err(|_| made)?, used: 0 };
        let too_much = fail(libc::E2BIG);
        *path = copies.string(*path).ok_or(too_much)?;
        for list in lists {
            *list = copies.list(*list).ok_or(too_much)?;
        }
        Ok(Some(copies))
    }

    /// Where a list is to be read, with all of its strings; `None` where there is no room.
    fn list(&mut self, at: u64) -> Option<u64> {
        // The kernel takes no list for an empty one.
        if at == 0 {
            return Some(at);
        }
        let begin = self.used;
        loop {
            let next = at.checked_add((self.used - begin) as u64);
            let Some(entry) = next.and_then(guard::load::<u64>) else {
                self.used = begin;
                return Some(at);
            };
            self.put(&entry.to_le_bytes())?;
            if entry == 0 {
                break;
            }
        }
        for entry in (begin..self.used - ENTRY).step_by(ENTRY) {
            let entry = self.at + entry as u64;
            let copy = self.string(guard::load(entry)?)?;
            guard::store(entry, &copy).then_some(())?;
        }
        Some(self.at + begin as u64)
    }

    /// Where a string is to be read; `None` where there is no room.
    fn string(&mut self, at: u64) -> Option<u64> {
        let begin = self.used;
        let mut buffer = PathBuffer::new();
        while self.used - begin <= STRING_MAX {
            let next = at.checked_add((self.used - begin) as u64);
            // Nothing behind the page where it ends.
            let on_page = next.map_or(0, |next| (PAGE - next % PAGE) as usize);
            let found = buffer.load_bytes(next.unwrap_or(0), on_page);
            let end = found.iter().position(|byte| *byte == 0);
            if end.is_none() && (found.len() < on_page || on_page == 0) {
                self.used = begin;
                return Some(at);
            }
            self.put(end.and_then(|end| found.get(..=end)).unwrap_or(found))?;
            if end.is_some() {
                break;
            }
        }
        Some(self.at + begin as u64)
    }

    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let has_room = bytes.len() <= ROOM - self.used;
        let is_put = has_room && guard::copy_out(self.at + self.used as u64, bytes) == bytes.len();
        self.used += bytes.len();
        is_put.then_some(())
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        sys!(libc::SYS_munmap, self.at, ROOM);
    }
}
