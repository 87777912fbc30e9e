//! Putting jumps over system calls, and the code that they lead to.
//!
//! Each site gets a few lines of its own near the text: the instructions that stood before its
//! `syscall`, a jump to its entry with the address of what follows in r11 (which a system
//! call destroys anyway), the `syscall` itself for what goes to the kernel, the instructions that
//! stood after it, and a jump back. What differs from process to process stands in words beside
//! them ([`WORDS_BYTES`]), so that they can be kept ([`crate::text::image`]).

use std::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;
use iced_x86::{Decoder, DecoderOptions, Mnemonic};

use crate::base::sys::sys;
use crate::base::{classes, guard, vectors};
use crate::text::sites::Site;

const PAGE: u64 = 4096;
/// `lea r11, [rip + 8]`, which is after the `syscall` below; `jmp qword ptr [rip + ..]` to the entry's word.
const TO_ENTRY: [u8; 9] = [0x4c, 0x8d, 0x1d, 6 + 2, 0, 0, 0, 0xff, 0x25];
/// How far a jump may lead, with room to spare.
const REACH: u64 = 0x7000_0000;
/// Bytes that one site's code takes at most.
pub(crate) const SITE_BYTES: usize = 96;
/// What a debugger puts over an instruction (`int3`). No site has one of its own.
pub(crate) const BREAKPOINT: u8 = 0xcc;
/// Bytes ahead of the code, of which the first two words are where the entries are.
const WORDS_BYTES: u64 = 64;

/// How sites are entered, by the offset of the word that leads there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// As functions, which keep neither flags nor vector registers.
    Plain = 0,
    /// As instructions, around which all is kept.
    Keeping = 8,
}

/// Replaces the sites of a library or program that is loaded at `base`. Nothing of it may run yet.
/// Returns how many were replaced; 0 where the kernel lets nobody write to code.
#[unsafe(link_section = ".text.novale_start")]
pub(crate) fn all(base: u64, text: (u64, u64), sites: &[Site], entry: Entry) -> usize {
    if sites.is_empty() {
        return 0;
    }
    if entry == Entry::Keeping {
        vectors::begin();
    }
    let Some(area) = area_near(text, sites.len()) else { return 0 };
    let (start, end) = (text.0 & !(PAGE - 1), text.1.next_multiple_of(PAGE));
    let open = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    if sys!(libc::SYS_mprotect, start, end - start, open) != 0 {
        area.give_back();
        return 0;
    }
    // SAFETY: the area is writable, and nobody else's.
    unsafe { write_words(area.start) };
    let (mut code, word) = (area.start + WORDS_BYTES, area.start + entry as u64);
    let mut done = 0;
    for site in sites {
        let at = base + u64::from(site.start);
        // SAFETY: the site lies in the text, which is mapped.
        let old = unsafe { std::slice::from_raw_parts(at as *const u8, usize::from(site.len)) };
        if let Some(new) = replacement(at, old, site, code, word) {
            // SAFETY: the area has so many writable bytes for the site.
            unsafe { copy(&new.code, code) };
            // SAFETY: the site is as long, writable now, and no other thread runs it.
            unsafe { copy(&new.over, at) };
            code += new.code.len() as u64;
            done += 1;
        }
    }
    let closed = libc::PROT_READ | libc::PROT_EXEC;
    sys!(libc::SYS_mprotect, start, end - start, closed);
    sys!(libc::SYS_mprotect, area.start, area.bytes, closed);
    note_area(area.start, area.bytes);
    done
}

/// Where code of sites is: start and bytes. Of what is loaded beyond so many it is not known.
#[unsafe(link_section = ".novale_data")]
static AREAS: [[AtomicU64; 2]; 16] = [const { [const { AtomicU64::new(0) }; 2] }; 16];

/// Notes where code of sites is, for [`original`].
#[inline]
pub(crate) fn note_area(start: u64, bytes: u64) {
    for [at, len] in &AREAS {
        let (free, set) = (0, Ordering::Release);
        match at.compare_exchange(free, start, set, Ordering::Relaxed) {
            Ok(_) => return len.store(bytes, Ordering::Release),
            Err(noted) if noted == start => return,
            Err(_) => {}
        }
    }
}

/// The instruction of a program's or a library's text that one in a site's code stands for; `None` where it is
/// in no such code. Nothing is locked or allocated: signal handlers ask.
#[cold]
pub(crate) fn original(at: u64) -> Option<u64> {
    let area = AREAS.iter().find_map(|[start, bytes]| {
        let start = start.load(Ordering::Acquire);
        let area = start..start + bytes.load(Ordering::Acquire);
        area.contains(&at).then_some(area)
    })?;
    // SAFETY: the area stays mapped, and is written to no more.
    let code = unsafe {
        std::slice::from_raw_parts(area.start as *const u8, (area.end - area.start) as usize)
    };
    let at = (at - area.start) as usize;
    let near = at.saturating_sub(SITE_BYTES)..(at + SITE_BYTES).min(code.len());
    near.filter(|lea| code.get(*lea..).is_some_and(|code| code.starts_with(&TO_ENTRY)))
        .find_map(|lea| original_by(code, area.start, (lea, at), guard::load::<[u8; 5]>))
}

/// As [`original`], by the place of the instruction that loads the address after the `syscall`; `None` where
/// that is of another site. `read` gives the bytes at an address, where they can be read.
fn original_by(
    code: &[u8],
    area: u64,
    (lea, at): (usize, usize),
    read: impl Fn(u64) -> Option<[u8; 5]>,
) -> Option<u64> {
    let syscall = lea + TO_ENTRY.len() + 4;
    let rest = code.get(syscall + 2..code.len().min(lea + SITE_BYTES))?;
    rest.windows(5).enumerate().find_map(|(index, jump)| {
        let back = syscall + 2 + index;
        let to = led_to(jump, area + back as u64)?;
        // What looks like a jump may be bytes of another instruction, and lead anywhere. To find that out costs a
        // fault for each address, and a timer may be faster than a hundred of them.
        read(to.checked_sub(5)?)?;
        // Where it leads back to is the end of a jump that leads here, and of what was left of the site.
        (5..=SITE_BYTES as u64).find_map(|len| {
            let site = to.checked_sub(len)?;
            let over = read(site)?;
            let start = usize::try_from(led_to(&over, site)?.checked_sub(area)?).ok()?;
            if start > lea || lea - start >= SITE_BYTES || !(start..back + 5).contains(&at) {
                return None;
            }
            let before = (lea - start) as u64;
            let after = |from: usize| site + before + 2 + (at - from) as u64;
            let tail = back - (len - before - 2) as usize;
            Some(match at {
                _ if at < lea => site + (at - start) as u64,
                _ if at <= syscall => site + before,
                _ if at < tail => site + before + 2,
                _ => after(tail),
            })
        })
    })
}

/// Where a jump leads that stands at `at`.
fn led_to(jump: &[u8], at: u64) -> Option<u64> {
    let [0xe9, distance @ ..] = jump else { return None };
    let distance = i32::from_le_bytes(distance.try_into().ok()?);
    Some((at + 5).wrapping_add_signed(distance.into()))
}

struct Area {
    start: u64,
    bytes: u64,
    is_spare: bool,
}

impl Area {
    /// Nothing was written to it.
    #[cold]
    fn give_back(self) {
        if self.is_spare {
            set_spare(self.start);
        } else {
            sys!(libc::SYS_munmap, self.start, self.bytes);
        }
    }
}

/// A page with words at its start that may be written to, until [`close_spare`]; 0 for none.
#[unsafe(link_section = ".novale_data")]
static SPARE: AtomicU64 = AtomicU64::new(0);

/// Leaves the rest of a page with words to the next library whose sites are replaced, while there is one thread.
#[inline]
pub(crate) fn set_spare(page: u64) {
    SPARE.store(page, Ordering::Relaxed);
}

/// The page is written to no longer.
#[inline]
pub(crate) fn close_spare() {
    let page = SPARE.swap(0, Ordering::Relaxed);
    if page != 0 {
        sys!(libc::SYS_mprotect, page, PAGE, libc::PROT_READ);
    }
}

/// The page that was left over, where it is in reach and has room.
#[inline]
fn spare(text: (u64, u64), bytes: u64) -> Option<Area> {
    let start = SPARE.load(Ordering::Relaxed);
    let reaches = text.1.max(start + PAGE) - text.0.min(start) <= REACH;
    (start != 0 && bytes <= PAGE && reaches).then(|| {
        SPARE.store(0, Ordering::Relaxed);
        Area { start, bytes: PAGE, is_spare: true }
    })
}

/// Memory for code that a jump from anywhere in the text reaches.
#[unsafe(link_section = ".text.novale_start")]
fn area_near(text: (u64, u64), sites: usize) -> Option<Area> {
    let bytes = ((sites * SITE_BYTES) as u64 + WORDS_BYTES).next_multiple_of(PAGE);
    if let Some(spare) = spare(text, bytes) {
        return Some(spare);
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // Where the kernel maps next, as a rule; below the text there is room, as it maps downwards.
    if let Ok(start) = u64::try_from(sys!(libc::SYS_mmap, 0, bytes, access, flags, u64::MAX, 0)) {
        if text.1.max(start + bytes) - text.0.min(start) <= REACH {
            return Some(Area { start, bytes, is_spare: false });
        }
        sys!(libc::SYS_munmap, start, bytes);
    }
    let flags = flags | libc::MAP_FIXED_NOREPLACE;
    for step in 1..4096u64 {
        let start = (text.0 & !(PAGE - 1)).checked_sub(step * (256 << 10))?;
        if text.1 - start > REACH {
            return None;
        }
        let at = sys!(libc::SYS_mmap, start, bytes, access, flags, u64::MAX, 0);
        if at == i64::try_from(start).ok()? {
            return Some(Area { start, bytes, is_spare: false });
        }
    }
    None
}

/// Code in the making.
struct Code {
    at: u64,
    bytes: ArrayVec<u8, SITE_BYTES>,
}

impl Code {
    #[inline]
    fn here(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    /// `None` where it gets too long.
    #[inline]
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        self.bytes.try_extend_from_slice(bytes).ok()
    }

    /// The four bytes that end an instruction which leads to `to`, where that is in reach.
    fn distance(&mut self, to: u64) -> Option<()> {
        let next = self.here() + 4;
        let distance = i32::try_from(i64::try_from(to).ok()? - i64::try_from(next).ok()?).ok()?;
        self.put(&distance.to_le_bytes())
    }

    /// A jump to `to`, which is in reach.
    fn jump(&mut self, to: u64) -> Option<()> {
        self.put(&[0xe9])?;
        self.distance(to)
    }
}

/// Writes what code refers to.
///
/// # Safety
/// There are [`WORDS_BYTES`] writable bytes at `to`.
pub(crate) unsafe fn write_words(to: u64) {
    let words = [classes::address(), classes::address_keeping()];
    // SAFETY: as the caller says.
    unsafe { (to as *mut [u64; 2]).write_unaligned(words) };
}

/// # Safety
/// There are as many writable bytes at `to`.
unsafe fn copy(bytes: &[u8], to: u64) {
    // SAFETY: as the caller says.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len()) };
}

/// What a site becomes.
pub(crate) struct Replacement {
    /// Its own code, at most [`SITE_BYTES`].
    pub(crate) code: ArrayVec<u8, SITE_BYTES>,
    /// What stands in its place, as long as it was.
    pub(crate) over: ArrayVec<u8, SITE_BYTES>,
}

/// What becomes of the site at `at`, with `old` in it, whose own code is at `code`, and the word that leads
/// to its entry at `word`. One with a debugger's breakpoint stays as it is: nobody knows of one in the site's code, and who
/// takes it away writes to where it was.
#[unsafe(link_section = ".text.novale_start")]
pub(crate) fn replacement(
    at: u64,
    old: &[u8],
    site: &Site,
    code: u64,
    word: u64,
) -> Option<Replacement> {
    let (before, rest) = old.split_at_checked(usize::from(site.at))?;
    if old.contains(&BREAKPOINT) && has_breakpoint(old) {
        return None;
    }
    let after = rest.strip_prefix(&[0x0f, 0x05])?;
    let mut made = Code { at: code, bytes: ArrayVec::new() };
    made.put(before)?;
    made.put(&TO_ENTRY)?;
    made.distance(word)?;
    made.put(&[0x0f, 0x05])?;
    made.put(after)?;
    made.jump(at + old.len() as u64)?;
    let mut over = Code { at, bytes: ArrayVec::new() };
    over.jump(code)?;
    // What no jump lies over stays: a program may go on there later, where a handler has seen it.
    over.put(old.get(over.bytes.len()..)?)?;
    Some(Replacement { code: made.bytes, over: over.bytes })
}

/// Whether an instruction is a breakpoint. The byte stands in others too.
#[cold]
fn has_breakpoint(site: &[u8]) -> bool {
    let mut all = Decoder::new(64, site, DecoderOptions::NONE).into_iter();
    all.any(|instruction| instruction.mnemonic() == Mnemonic::Int3)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// What is read and is not there is a fault: nearly a hundred of them at each signal took longer than a timer of a
    /// millisecond.
    #[test]
    fn bytes_that_look_like_a_jump_are_looked_after_once() {
        let jump = [0xe9, 0, 0, 0, 0x10];
        let code = [&TO_ENTRY[..], &[0; 4], &[0x0f, 0x05], &jump, &[0; 80]].concat();
        let looks = Cell::new(0);
        let read = |_| {
            looks.set(looks.get() + 1);
            None
        };
        assert_eq!(original_by(&code, 1 << 40, (0, TO_ENTRY.len() + 4), read), None);
        assert_eq!(looks.get(), 1);
    }

    /// One behind the first byte was copied to the site's code, where it ended the program.
    #[test]
    fn a_site_with_a_breakpoint_stays() {
        // mov edi, [rbp - 0x34]; xor eax, eax; syscall; mov edx, eax
        let whole = [0x8b, 0x7d, BREAKPOINT, 0x31, 0xc0, 0x0f, 0x05, 0x89, 0xc2];
        let site = Site { start: 0, len: 9, at: 5, number: Some(0) };
        let is_replaced =
            |site_of: &[u8]| replacement(1 << 40, site_of, &site, 1 << 40, 1 << 40).is_some();
        assert!(is_replaced(&whole));
        for at in [0, 3, 5, 7] {
            let mut broken = whole;
            broken[at] = BREAKPOINT;
            assert!(!is_replaced(&broken), "{at}");
        }
    }
}
