//! Where data leads into a text: tables of jumps (`switch`), addresses of labels and of functions. No instruction
//! that is a branch tells of these.
//!
//! Compilers make such tables in two ways: of distances from the table, whose address an instruction takes, or of
//! addresses, which stand in the file as they are or among its relocations.

use std::collections::HashSet;
use std::ops::Range;

use arrayvec::ArrayVec;

use crate::base::sys::sys;

/// Entries of a table that are looked at.
const ENTRIES_MAX: usize = 64 << 10;
/// Bytes of a text that is decoded at most, and of all the others that lead into it: 0.8 s, once.
pub(crate) const TEXT_MAX: usize = 128 << 20;
/// Parts of one library at most; more are not looked at.
const PARTS_MAX: usize = 16;

type Header = libc::Elf64_Phdr;

/// Where the data of a library is.
#[derive(Debug)]
pub(crate) enum Data {
    /// In memory, loaded by these headers.
    Loaded(&'static [Header]),
    /// In a file that is being loaded, by its headers.
    File(u64, Vec<Header>),
}

/// A part of a library: its address as the file has it, and its bytes.
type Part<'a> = (u64, &'a [u8]);

/// What is looked for: the addresses of one text for which `is_near` is true.
pub(crate) struct Wanted<'a, F> {
    pub(crate) text: Range<u64>,
    pub(crate) is_near: F,
    /// Addresses that instructions take: of tables, if they lead into the text.
    pub(crate) tables: &'a HashSet<u64>,
}

impl Data {
    pub(crate) fn headers(&self) -> &[Header] {
        match self {
            Self::Loaded(headers) => headers,
            Self::File(_, headers) => headers,
        }
    }

    /// Hands over each part of the library, which is loaded at `base`, that is executed and is not the text at
    /// `own`: its jumps lead into that text too. False where one can't be looked at, or to do so takes too long.
    #[cold]
    #[must_use]
    pub(crate) fn others(&self, base: u64, own: u64, mut each: impl FnMut(u64, &[u8])) -> bool {
        let is_other = |header: &&Header| header.p_flags & libc::PF_X != 0 && header.p_vaddr != own;
        let mut others = parts(self.headers()).filter(is_other).peekable();
        if others.peek().is_none() {
            return true;
        }
        let all = || parts(self.headers()).filter(is_other);
        let bytes = all().fold(0_u64, |sum, header| sum.saturating_add(header.p_filesz));
        // What is executed only is not to be read.
        if bytes > TEXT_MAX as u64 || all().any(|header| header.p_flags & libc::PF_R == 0) {
            return false;
        }
        match self {
            Self::Loaded(_) => others.for_each(|header| {
                let (start, bytes) = loaded(base, header);
                each(start, bytes);
            }),
            Self::File(fd, _) => {
                let Some(file) = Mapped::new(*fd) else { return false };
                for header in others {
                    let Some((start, bytes)) = file.part(header) else { return false };
                    each(start, bytes);
                }
            }
        }
        true
    }

    /// Adds what of the wanted addresses the data leads to. The library is loaded at `base`. False where not all of
    /// it can be looked at.
    #[cold]
    #[must_use]
    pub(crate) fn lead(
        &self,
        base: u64,
        wanted: &Wanted<'_, impl Fn(u64) -> bool>,
        to: &mut HashSet<u64>,
    ) -> bool {
        match self {
            Self::Loaded(headers) => {
                let is_readable = |header: &&Header| header.p_flags & libc::PF_R != 0;
                let readable = || parts(headers).filter(is_readable);
                let all: ArrayVec<Part<'_>, PARTS_MAX> =
                    readable().map(|header| loaded(base, header)).take(PARTS_MAX).collect();
                search(&all, headers, base, wanted, to);
                all.len() == readable().count()
            }
            Self::File(fd, headers) => {
                let Some(file) = Mapped::new(*fd) else { return false };
                let all: ArrayVec<Part<'_>, PARTS_MAX> =
                    parts(headers).filter_map(|header| file.part(header)).take(PARTS_MAX).collect();
                search(&all, headers, 0, wanted, to);
                all.len() == parts(headers).count()
            }
        }
    }
}

fn parts(headers: &[Header]) -> impl Iterator<Item = &Header> {
    headers.iter().filter(|header| header.p_type == libc::PT_LOAD)
}

/// Whether an address is in a part that is executed.
fn is_executed(headers: &[Header], at: u64) -> bool {
    let holds = |header: &Header| at.wrapping_sub(header.p_vaddr) < header.p_filesz;
    parts(headers).any(|header| header.p_flags & libc::PF_X != 0 && holds(header))
}

/// A part of a library that is loaded at `base`.
fn loaded<'a>(base: u64, header: &Header) -> Part<'a> {
    let len = usize::try_from(header.p_filesz).unwrap_or(0);
    let at = (base + header.p_vaddr) as *const u8;
    // SAFETY: the segment is mapped, to be read, for as long as nobody unloads it.
    (header.p_vaddr, unsafe { std::slice::from_raw_parts(at, len) })
}

/// A file that is mapped to be looked at.
struct Mapped {
    at: u64,
    len: u64,
}

impl Mapped {
    fn new(fd: u64) -> Option<Self> {
        let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
        if sys!(libc::SYS_fstat, fd, found.as_mut_ptr()) != 0 {
            return None;
        }
        // SAFETY: zeroes are a valid value, which the kernel has filled.
        let len = u64::try_from(unsafe { found.assume_init() }.st_size).ok()?;
        let at = sys!(libc::SYS_mmap, 0, len, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0);
        Some(Self { at: u64::try_from(at).ok()?, len })
    }

    fn bytes(&self) -> &[u8] {
        let len = usize::try_from(self.len).unwrap_or(0);
        // SAFETY: so many bytes are mapped for as long as this lives; the loader relies on the file just so.
        unsafe { std::slice::from_raw_parts(self.at as *const u8, len) }
    }

    /// What a header says of the file; `None` where the file has less.
    fn part(&self, header: &Header) -> Option<Part<'_>> {
        let start = usize::try_from(header.p_offset).ok()?;
        let end = start.checked_add(usize::try_from(header.p_filesz).ok()?)?;
        Some((header.p_vaddr, self.bytes().get(start..end)?))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        sys!(libc::SYS_munmap, self.at, self.len);
    }
}

/// Looks for what is wanted in the parts of a library that has these headers.
fn search(
    parts: &[Part<'_>],
    headers: &[Header],
    base: u64,
    wanted: &Wanted<'_, impl Fn(u64) -> bool>,
    to: &mut HashSet<u64>,
) {
    let is_wanted = |at: &u64| wanted.text.contains(at) && (wanted.is_near)(*at);
    for (start, bytes) in parts {
        let aligned = usize::try_from(start.next_multiple_of(8) - start).unwrap_or(0);
        let (words, _) = bytes.get(aligned..).unwrap_or_default().as_chunks::<8>();
        let words = words.iter().map(|word| u64::from_le_bytes(*word));
        // The loader has added where the library is, or has not yet.
        to.extend(words.flat_map(|word| [word, word.wrapping_sub(base)]).filter(is_wanted));
    }
    for table in wanted.tables {
        let rest = parts.iter().find_map(|(start, bytes)| {
            bytes.get(usize::try_from(table.checked_sub(*start)?).ok()?..)
        });
        let (distances, _) = rest.unwrap_or_default().as_chunks::<4>();
        let targets = distances
            .iter()
            .take(ENTRIES_MAX)
            .map(|distance| table.wrapping_add_signed(i64::from(i32::from_le_bytes(*distance))));
        // Entries that lead to another text, as of what seldom runs, stand between those that lead to this one.
        let is_entry = |at: &u64| wanted.text.contains(at) || is_executed(headers, *at);
        to.extend(targets.take_while(is_entry).filter(is_wanted));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// To read what is executed only may be a fault, and to decode hundreds of megabytes takes seconds.
    #[test]
    fn a_text_that_cannot_be_looked_at_is_not() {
        let (executed, len) = (libc::PF_R | libc::PF_X, TEXT_MAX as u64 / 2);
        let header = |flags, at, bytes| {
            // SAFETY: zeroes are a valid value.
            let zeroes: Header = unsafe { std::mem::zeroed() };
            let (p_type, p_flags) = (libc::PT_LOAD, flags);
            Header { p_type, p_flags, p_vaddr: at, p_filesz: bytes, ..zeroes }
        };
        let memory = vec![0_u8; 2 * TEXT_MAX];
        let own = header(executed, 1 << 40, len);
        for (others, is_looked_at) in [
            (vec![], true),
            (vec![header(executed, 0, len), header(executed, len, len)], true),
            (vec![header(executed, 0, len), header(executed, len, len + 1)], false),
            (vec![header(libc::PF_X, 0, 8)], false),
            (vec![header(libc::PF_R, 0, 4 * len)], true),
        ] {
            let data = Data::Loaded([vec![own], others].concat().leak());
            let is_whole = data.others(memory.as_ptr() as u64, 1 << 40, |_, _| ());
            assert_eq!(is_whole, is_looked_at);
        }
    }
}
