//! libc's text with all its sites replaced, kept in a file by the build, and mapped over the text of each
//! program: to write to some sixty pages of it had the kernel copy them one by one, in each process that
//! is started and, as page tables, in each that forks.
//!
//! The file has the sites' own code, in [`CODE_BYTES`], then the text up to its last site, and in the end how long
//! that is. What comes after stays as the loader has mapped it: there are the functions for strings, which every
//! program has used by then. The code is mapped a fixed
//! distance below the text, so that the jumps between them are the same in every process, and after a
//! page with the words that are each process' own. Where something is in the way, or the file can't be
//! made, believed ([`kept`]) or mapped, the text is written to ([`patch::all`]).

use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use arrayvec::ArrayVec;

use crate::base::sys::{Fd, sys};
use crate::base::{classes, thread};
use crate::text::sites::Sites;
use crate::text::{kept, patch};

const PAGE: u64 = 4096;
/// Bytes for the code of all sites: 300 take less than half.
const CODE_BYTES: u64 = 64 << 10;
/// From the words and the code up to the text: farther than libraries lie from each other, and in reach.
const DISTANCE: u64 = 1 << 30;
/// Bytes after the text, which say how long it is.
const TRAILER_BYTES: u64 = 8;
/// Numbers of system calls that count.
const NUMBERS: u16 = 512;
/// What the code is made by: another version makes another file.
const MAKERS: [&[u8]; 3] =
    [include_bytes!("image.rs"), include_bytes!("patch.rs"), include_bytes!("sites.rs")];
const MADE_BY: u64 = digest(digest(digest(SEED, MAKERS[0]), MAKERS[1]), MAKERS[2]);
/// All that its bytes depend on, beside the text.
#[expect(clippy::indexing_slicing, reason = "all of them are below, or it does not compile")]
const MADE_OF: u64 = {
    let mut state = digest(MADE_BY, &thread::BORROWED.to_le_bytes());
    let mut number = 0;
    while number < NUMBERS {
        if classes::BY_NUMBER[number as usize] != 0 {
            state = digest(state, &number.to_le_bytes());
        }
        number += 1;
    }
    state
};

/// FNV-1a, of 64 bits.
const SEED: u64 = 0xcbf2_9ce4_8422_2325;

const fn digest(mut state: u64, mut bytes: &[u8]) -> u64 {
    while let [first, rest @ ..] = bytes {
        state = (state ^ *first as u64).wrapping_mul(0x0100_0000_01b3);
        bytes = rest;
    }
    state
}

/// A text of a library in this process.
pub(crate) struct Text<'a> {
    /// Where the library is loaded.
    pub(crate) base: u64,
    pub(crate) range: Range<u64>,
    pub(crate) build: &'a [u8],
    /// The library's file, and where in it the text begins.
    pub(crate) file: (&'a [u8], u64),
}

impl Text<'_> {
    /// What is mapped, whole pages.
    fn pages(&self) -> Range<u64> {
        self.range.start & !(PAGE - 1)..self.range.end.next_multiple_of(PAGE)
    }

    /// Bytes of all of it.
    fn len(&self) -> u64 {
        self.pages().end - self.pages().start
    }

    /// Bytes of the text in an image of so many bytes; `None` where it is none of this text.
    #[inline]
    fn len_in(&self, file: &Fd, bytes: u64) -> Option<u64> {
        let len = bytes.checked_sub(CODE_BYTES + TRAILER_BYTES)?;
        let mut said = 0u64;
        let (to, at) = (&raw mut said, bytes - TRAILER_BYTES);
        let got = sys!(libc::SYS_pread64, file.number(), to, TRAILER_BYTES, at);
        let is_whole = got == TRAILER_BYTES.cast_signed() && u64::from_le(said) == len;
        (is_whole && len > 0 && len <= self.len() && len.is_multiple_of(PAGE)).then_some(len)
    }

    /// Where the words are; the code is after their page.
    fn words(&self) -> Option<u64> {
        self.pages().start.checked_sub(DISTANCE)
    }

    /// What names the file; `None` where a build's number is longer than any.
    #[inline]
    fn name(&self) -> Option<ArrayVec<u8, 64>> {
        let mut name = ArrayVec::new();
        name.try_extend_from_slice(self.build).ok()?;
        name.try_extend_from_slice(&MADE_OF.to_le_bytes()).ok()?;
        Some(name)
    }
}

/// Maps the image over a text whose code nobody runs; false where it stays as it is. `sites` are looked
/// for only where the image is to be made.
#[inline]
pub(crate) fn map(text: &Text<'_>, sites: impl FnOnce() -> Sites) -> bool {
    let Some(name) = text.name() else { return false };
    let there = || {
        let (file, bytes) = kept::image(&name)?;
        let len = text.len_in(&file, bytes)?;
        Some((file, len))
    };
    let mut found = there();
    if found.is_none() {
        kept::keep_image(&name, || make(text, &sites())).unwrap_or_default();
        found = there();
    }
    found.is_some_and(|(file, len)| put(text, &file, len).is_some())
}

#[unsafe(link_section = ".text.novale_start")]
fn put(text: &Text<'_>, file: &Fd, len: u64) -> Option<()> {
    let words = text.words()?;
    let map = |at: u64, bytes: u64, access: i32, flags: i32, fd: i32, offset: u64| {
        let flags = flags | libc::MAP_PRIVATE;
        let made = sys!(libc::SYS_mmap, at, bytes, access, flags, i64::from(fd), offset);
        u64::try_from(made).ok()
    };
    let there = libc::MAP_FIXED_NOREPLACE;
    let (data, code) = (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ | libc::PROT_EXEC);
    let fd = file.number();
    let undo = |made: u64, bytes: u64| sys!(libc::SYS_munmap, made, bytes);
    // A kernel that does not know the flag takes the address for a wish.
    let own = map(words, PAGE, data, there | libc::MAP_ANONYMOUS, -1, 0)?;
    let sites = map(words + PAGE, CODE_BYTES, code, there, fd, 0);
    // In two steps: the text must not be gone where it can't be mapped.
    let fresh = map(0, len, code, 0, fd, CODE_BYTES);
    if (own, sites, fresh.is_some()) == (words, Some(words + PAGE), true)
        && let Some(fresh) = fresh
    {
        // SAFETY: a fresh page.
        unsafe { patch::write_words(words) };
        let to = text.pages().start;
        let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        if sys!(libc::SYS_mremap, fresh, len, len, how, to) == to.cast_signed() {
            patch::set_spare(words);
            return Some(());
        }
    }
    undo(own, PAGE);
    sites.inspect(|made| _ = undo(*made, CODE_BYTES));
    fresh.inspect(|made| _ = undo(*made, len));
    None
}

/// The image's bytes; `None` where the text is not as the library's file has it, which a debugger's
/// breakpoints see to.
#[cold]
fn make(text: &Text<'_>, sites: &Sites) -> Option<Vec<u8>> {
    let (pages, words) = (text.pages(), text.words()?);
    let len = usize::try_from(text.len()).ok()?;
    // SAFETY: the text is mapped for as long as nobody unloads it, which takes the loader.
    let here = unsafe { std::slice::from_raw_parts(pages.start as *const u8, len) };
    let (path, offset) = text.file;
    let mut bytes = vec![0; usize::try_from(CODE_BYTES).ok()?];
    let code_len = bytes.len();
    bytes.resize(code_len + len, 0);
    let library = File::open(Path::new(OsStr::from_bytes(path))).ok()?;
    let within = usize::try_from(text.range.start - pages.start).ok()?;
    let wanted = usize::try_from(text.range.end - text.range.start).ok()?;
    let kept = bytes.get_mut(code_len + within..code_len + within + wanted)?;
    library.read_exact_at(kept, offset).ok()?;
    if here.get(within..within + wanted)? != kept {
        return None;
    }
    let (code, texts) = bytes.split_at_mut(code_len);
    let (mut at, mut end) = (0, 0);
    for site in sites.iter() {
        let start = text.base + u64::from(site.start);
        let from = usize::try_from(start.checked_sub(pages.start)?).ok()?;
        let over = texts.get_mut(from..from + usize::from(site.len))?;
        let own = words + PAGE + at as u64;
        let Some(new) = patch::replacement(start, over, site, own, words) else { continue };
        code.get_mut(at..at + new.code.len())?.copy_from_slice(&new.code);
        over.copy_from_slice(&new.over);
        at += new.code.len();
        end = end.max(from + usize::from(site.len));
    }
    let kept = end.next_multiple_of(usize::try_from(PAGE).ok()?).min(len);
    bytes.truncate(code_len + kept);
    bytes.extend_from_slice(&(kept as u64).to_le_bytes());
    (at > 0).then_some(bytes)
}
