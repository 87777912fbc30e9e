//! libc's text with all its sites replaced, kept in a file by the build, and mapped over the text of each
//! program: to write to some sixty pages of it had the kernel copy them one by one, in each process that
//! is started and, as page tables, in each that forks.
//!
//! The file has the sites' own code, in [`CODE_BYTES`], then the text up to its last site, and in the end what it
//! says of itself ([`Trailer`]): how long that is, and where the dynamic linker beside it has its sites, which
//! saves each program a file. What comes after stays as the loader has mapped it: there are the functions for strings, which every
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

use crate::base::classes;
use crate::base::sys::{Fd, sys};
use crate::text::kept::{self, ENTRY};
use crate::text::patch::{self, BREAKPOINT};
use crate::text::sites::{Site, Sites};

const PAGE: u64 = 4096;
/// Bytes for the code of all sites: 300 take less than half.
const CODE_BYTES: u64 = 64 << 10;
/// From the words and the code up to the text: farther than libraries lie from each other, and in reach.
const DISTANCE: u64 = 1 << 30;
/// Sites of the dynamic linker that an image tells of, at most.
const BESIDE_MAX: usize = 6;
/// Bytes of a build's number at most: none is longer than a digest. A longer one counts as none.
pub(crate) const BUILD_MAX: usize = 48;
/// How a program ends whose libc is gone.
const UNABLE: i32 = 125;
/// Numbers of system calls that count.
const NUMBERS: u16 = 512;
/// What the code is made by: another version makes another file.
const MAKERS: [&[u8]; 6] = [
    include_bytes!("image.rs"),
    include_bytes!("patch.rs"),
    include_bytes!("sites.rs"),
    include_bytes!("data.rs"),
    include_bytes!("objects.rs"),
    include_bytes!("kept.rs"),
];
const MADE_BY: u64 = {
    let [a, b, c, d, e, f] = MAKERS;
    digest(digest(digest(digest(digest(digest(SEED, a), b), c), d), e), f)
};
/// All that its bytes depend on, beside the text.
#[expect(clippy::indexing_slicing, reason = "all of them are below, or it does not compile")]
const MADE_OF: u64 = {
    let mut state = MADE_BY;
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

    /// What an image of so many bytes says of itself; `None` where it is none of this text.
    #[inline]
    fn trailer(&self, file: &Fd, bytes: u64) -> Option<Trailer> {
        let len = bytes.checked_sub(CODE_BYTES + TRAILER_BYTES)?;
        let mut said = Trailer::default();
        let (to, at) = (&raw mut said, bytes - TRAILER_BYTES);
        let got = sys!(libc::SYS_pread64, file.number(), to, TRAILER_BYTES, at);
        let is_whole = got == TRAILER_BYTES.cast_signed() && u64::from_le_bytes(said.len) == len;
        (is_whole && len > 0 && len <= self.len() && len.is_multiple_of(PAGE)).then_some(said)
    }

    /// Where the words are; the code is after their page.
    fn words(&self) -> Option<u64> {
        self.pages().start.checked_sub(DISTANCE)
    }

    /// What names the file; `None` for a build without a number, which may be any.
    #[inline]
    fn name(&self) -> Option<ArrayVec<u8, 64>> {
        if self.build.is_empty() {
            return None;
        }
        let mut name = ArrayVec::new();
        name.try_extend_from_slice(self.build).ok()?;
        name.try_extend_from_slice(&MADE_OF.to_le_bytes()).ok()?;
        Some(name)
    }
}

/// The end of an image.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Trailer {
    /// Bytes of the text, the lowest first.
    len: [u8; ENTRY],
    /// The build of the dynamic linker that the image was made beside, its number's bytes first; zeroes for none.
    beside: [[u8; ENTRY]; 8],
    /// Its sites that are to be replaced, as in a table; zeroes for none.
    sites: [[u8; ENTRY]; BESIDE_MAX],
}

const TRAILER_BYTES: u64 = std::mem::size_of::<Trailer>() as u64;
const _: () = assert!(TRAILER_BYTES == 120);

impl Trailer {
    /// `None` where the dynamic linker's build or sites find no room.
    fn new(len: u64, build: &[u8], sites: &[Site]) -> Option<Self> {
        let mut made = Self { len: len.to_le_bytes(), ..Self::default() };
        let (head, room) = made.beside.as_flattened_mut().split_first_mut()?;
        *head = u8::try_from(build.len()).ok()?;
        room.get_mut(..build.len())?.copy_from_slice(build);
        for (to, site) in made.sites.get_mut(..sites.len())?.iter_mut().zip(sites) {
            *to = kept::entry(site);
        }
        Some(made)
    }

    /// The sites of the dynamic linker of this build, as far as the image tells of it.
    #[inline]
    pub(crate) fn sites(&self, build: &[u8]) -> Option<Sites> {
        let (head, room) = self.beside.as_flattened().split_first()?;
        let is_same = usize::from(*head) == build.len() && !build.is_empty();
        let is_known = is_same && room.get(..build.len()) == Some(build);
        is_known
            .then(|| Sites::Few(self.sites.iter().map_while(|entry| kept::site(entry)).collect()))
    }

    fn bytes(&self) -> impl Iterator<Item = u8> {
        let (beside, sites) = (self.beside.into_iter().flatten(), self.sites.into_iter().flatten());
        self.len.into_iter().chain(beside).chain(sites)
    }
}

/// Maps the image over a text whose code nobody runs, and returns what it says; `None` where the text stays as
/// it is. `sites` are looked for only where the image is to be made, and so are those of the dynamic linker
/// with the number of its build, `beside`.
#[inline]
pub(crate) fn map(
    text: &Text<'_>,
    sites: impl FnOnce() -> Sites,
    beside: impl FnOnce() -> Beside,
) -> Option<Trailer> {
    let name = text.name()?;
    let there = || {
        let (file, bytes) = kept::image(&name)?;
        let trailer = text.trailer(&file, bytes)?;
        Some((file, trailer))
    };
    let mut found = there();
    if found.is_none() {
        kept::keep_image(&name, || make(text, &sites(), &beside())).unwrap_or_default();
        found = there();
    }
    let (file, trailer) = found?;
    put(text, &file, u64::from_le_bytes(trailer.len))?;
    Some(trailer)
}

/// The dynamic linker: the number of its build, and its sites that are to be replaced.
pub(crate) type Beside = (ArrayVec<u8, BUILD_MAX>, Vec<Site>);

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
    // The text must not be gone where the file can't be mapped: here it is tried.
    let sites = map(words + PAGE, CODE_BYTES, code, there, fd, 0);
    if (own, sites) == (words, Some(words + PAGE)) {
        // SAFETY: a fresh page.
        unsafe { patch::write_words(words) };
        let to = text.pages().start;
        if map(to, len, code, libc::MAP_FIXED, fd, CODE_BYTES) == Some(to) {
            patch::set_spare(words);
            patch::note_area(words + PAGE, CODE_BYTES);
            return Some(());
        }
        put_back(text);
    }
    undo(own, PAGE);
    sites.inspect(|made| _ = undo(*made, CODE_BYTES));
    None
}

/// Maps the text of the library's own file again, which a kernel without memory for the image may have taken
/// away. Without it nothing can run.
#[cold]
fn put_back(text: &Text<'_>) {
    let (path, offset) = text.file;
    let (to, within) = (text.pages().start, text.range.start % PAGE);
    let mut name: ArrayVec<u8, { libc::PATH_MAX as usize }> = ArrayVec::new();
    let is_named =
        name.try_extend_from_slice(path).and_then(|()| name.try_extend_from_slice(b"\0"));
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let file = Fd::new(sys!(libc::SYS_openat, libc::AT_FDCWD, name.as_ptr(), flags, 0));
    let mapped = file.filter(|_| is_named.is_ok()).map(|file| {
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_FIXED);
        sys!(libc::SYS_mmap, to, text.len(), access, flags, file.number(), offset - within)
    });
    if mapped != Some(to.cast_signed()) {
        sys!(libc::SYS_exit_group, UNABLE);
    }
}

/// Whether a text is what its file has, but for a debugger's breakpoints.
#[cold]
pub(crate) fn is_same(text: &[u8], file: &[u8]) -> bool {
    let mut both = text.iter().zip(file);
    let is_like = |(here, there): (&u8, &u8)| here == there || *here == BREAKPOINT;
    // Mostly it is, and bytes that are compared at once take a tenth.
    text == file || (text.len() == file.len() && both.all(is_like))
}

/// The image's bytes; `None` where the library's file is another one by now.
#[cold]
fn make(text: &Text<'_>, sites: &Sites, (build, beside): &Beside) -> Option<Vec<u8>> {
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
    if !is_same(here.get(within..within + wanted)?, kept) {
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
    // A dynamic linker that it has no room for has a table of its own.
    let trailer = Trailer::new(kept as u64, build, beside);
    bytes.extend(trailer.or_else(|| Trailer::new(kept as u64, &[], &[]))?.bytes());
    (at > 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_tells_of_the_dynamic_linker_that_it_was_made_beside() {
        let site = Site { start: 7, len: 9, at: 5, number: Some(9) };
        let sites = [site, Site { start: 70, ..site }];
        let said = Trailer::new(4096, b"build", &sites).unwrap();
        assert_eq!(said.sites(b"build").unwrap().to_vec(), sites);
        assert!(said.sites(b"other").is_none() && said.sites(b"buil").is_none());
        assert!(Trailer::new(4096, &[], &[]).unwrap().sites(&[]).is_none());
        assert!(Trailer::new(4096, &[1; BUILD_MAX], &[site; BESIDE_MAX]).is_some());
        assert!(Trailer::new(4096, b"build", &[site; BESIDE_MAX + 1]).is_none());
        let bytes: Vec<u8> = said.bytes().collect();
        assert_eq!(bytes.len() as u64, TRAILER_BYTES);
        assert_eq!(bytes[..8], 4096_u64.to_le_bytes());
    }
}
