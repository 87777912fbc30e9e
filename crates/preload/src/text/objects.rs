//! What is loaded into the process, and makes system calls: libc, other libraries, the program.
//!
//! At the start all that is there is looked at; later whatever the loader maps to be executed, by
//! its own `mmap`, which is replaced for this. In libc all calls are replaced; elsewhere those
//! whose number stands beside them, and that concern files: data in a text has none, and how a program
//! makes threads, handles signals and ends without libc is its own. A Go program's calls stay as they
//! are: it makes them on stacks that are too small, and all others without a number beside them. So where
//! one is beside C (cgo, a library in Go) everything is the kernel's: what libc has opened is read and
//! closed by calls that are not seen, and the number leads to another file then.

use std::ffi::{CStr, c_int, c_void};
use std::io::Write;
use std::ops::Range;

use arrayvec::ArrayVec;
use novale_posix::report::Event;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::base::sys::{Args, Fd, Served, fail, sys};
use crate::base::{classes, report};
use crate::text::data::{Data, TEXT_MAX};
use crate::text::image::{self, BUILD_MAX, Text, Trailer};
use crate::text::kept;
use crate::text::patch::{self, Entry};
use crate::text::sites::{self, Site, Sites};

const PAGE: u64 = 4096;
/// Bytes of a name, and of what the loader reads first of a library's dynamic part.
const HEAD_BYTES: usize = 4096;
/// Texts of one library at most.
const TEXTS_MAX: usize = 8;

/// Whether calls of a number are libc's own way to make threads and processes, handle signals, and end.
#[inline]
fn is_of_libc(number: u16) -> bool {
    matches!(
        i64::from(number),
        libc::SYS_clone
            | libc::SYS_clone3
            | libc::SYS_fork
            | libc::SYS_vfork
            | libc::SYS_exit
            | libc::SYS_exit_group
            | libc::SYS_rt_sigaction
            | libc::SYS_rt_sigprocmask
            | libc::SYS_sigaltstack
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Libc,
    /// The dynamic linker: what it maps is looked at, and nothing else of it.
    Loader,
    Other,
}

/// Bytes of a text without a build's number from which on a table of its sites is kept.
const CONTENTS_MIN: u64 = 1 << 20;

/// What the table of a text is kept by.
type Key = ArrayVec<u8, { BUILD_MAX + 16 }>;

/// What is needed of one that is loaded.
#[derive(Debug)]
struct Object {
    kind: Kind,
    base: u64,
    /// Addresses of what is executed.
    texts: ArrayVec<Range<u64>, TEXTS_MAX>,
    build: ArrayVec<u8, BUILD_MAX>,
    /// What nothing is replaced in: one of more texts than are looked at, or whose text is written to.
    is_left: bool,
    is_go: bool,
    /// Of libc where in its file the text begins.
    offset: Option<u64>,
    /// Of what is loaded its file; empty for the program.
    path: &'static CStr,
    data: Data,
}

/// What is seen here of the system calls of a program that starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replaced {
    /// None: libc's can't be replaced, or a part of the program is Go, and the mount serves everything.
    None,
    /// All but some that concern files, and can't be replaced.
    Part,
    All,
}

/// Replaces the system calls of all that is loaded.
#[inline]
pub(crate) fn begin() -> Replaced {
    let mut found = Loaded { first: ArrayVec::new(), others: Vec::new() };
    // SAFETY: the callback keeps to the rules and `found` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(take_down), (&raw mut found).cast()) };
    let all = || found.first.iter().chain(&found.others);
    if all().any(|object| object.is_go) {
        report::event(Event::Confined);
        return Replaced::None;
    }
    let loader = all().find(|object| object.kind == Kind::Loader);
    let (mut replaced, mut image) = (0, None);
    for object in all().filter(|object| object.kind == Kind::Libc) {
        image = by_image(object, loader);
        replaced += if image.is_some() { 1 } else { object.replace(&object.sites()).0 };
    }
    let mut seen = if replaced > 0 { Replaced::All } else { Replaced::None };
    if replaced > 0 {
        for object in all().filter(|object| object.kind != Kind::Libc) {
            let beside = image.filter(|_| object.kind == Kind::Loader);
            let beside = beside.and_then(|image| image.sites(&object.build));
            let sites = beside.unwrap_or_else(|| object.sites());
            let (_, is_whole) = object.replace(&sites);
            if !is_whole || object.is_unseen(&sites) {
                seen = Replaced::Part;
            }
        }
    }
    patch::close_spare();
    seen
}

/// What is loaded when the program starts.
struct Loaded {
    /// As many as most programs have.
    first: ArrayVec<Object, 6>,
    others: Vec<Object>,
}

#[unsafe(link_section = ".text.novale_start")]
unsafe extern "C" fn take_down(
    info: *mut libc::dl_phdr_info,
    _: usize,
    found: *mut c_void,
) -> c_int {
    // SAFETY: `begin` passes its own value.
    let found = unsafe { &mut *found.cast::<Loaded>() };
    // SAFETY: the loader hands over a valid description.
    let Some(object) = (unsafe { look(info) }) else { return 0 };
    if let Err(object) = found.first.try_push(object) {
        found.others.push(object.element());
    }
    0
}

/// `mmap`: the kernel's, and what the loader has brought in to be executed is looked at before it runs: where that
/// is Go, a second libc, or makes calls that can't be replaced, `leave` is to leave everything to the kernel, or says
/// that it can't.
pub(crate) fn mmap(args: &Args, leave: fn() -> bool) -> Served {
    let [_, len, access, flags, fd, offset] = *args;
    let is_text = access & libc::PROT_EXEC as u64 != 0
        && flags & (libc::MAP_ANONYMOUS | libc::MAP_SHARED) as u64 == 0;
    if !is_text {
        return None;
    }
    let at = sys!(libc::SYS_mmap, args[0], len, access, flags, fd, offset);
    if let Ok(start) = u64::try_from(at)
        && let Some(object) = of_file(fd, offset, start..start.saturating_add(len))
    {
        let sites = object.sites();
        let is_left = object.is_go || is_libc(fd) || object.is_unseen(&sites);
        let is_seen = !is_left && object.replace(&sites).1;
        if !is_seen && !leave() {
            sys!(libc::SYS_munmap, at, len);
            return Some(fail(libc::EAGAIN));
        }
    }
    Some(at)
}

/// What the headers say of all but this library and the kernel's own.
///
/// # Safety
/// The loader hands over the description, and unloads nothing that stands in it meanwhile.
#[unsafe(link_section = ".text.novale_start")]
unsafe fn look(info: *const libc::dl_phdr_info) -> Option<Object> {
    // SAFETY: as the caller says.
    let info = unsafe { &*info };
    // SAFETY: the loader's table has so many entries.
    let headers =
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let name = if info.dlpi_name.is_null() {
        c""
    } else {
        // SAFETY: a string of the loader's.
        unsafe { CStr::from_ptr(info.dlpi_name) }
    };
    let base = info.dlpi_addr;
    let mut object = Object::new(kind(name.to_bytes(), base), base, Data::Loaded(headers));
    object.path = name;
    for header in headers {
        let start = base + header.p_vaddr;
        if is_text(header) {
            if object.kind == Kind::Libc {
                object.offset = Some(header.p_offset);
            }
            object.is_left |= is_written(header);
            object.add_text(start..start + header.p_filesz);
        }
        if header.p_type == libc::PT_NOTE {
            let len = usize::try_from(header.p_memsz).unwrap_or(0);
            // SAFETY: the segment is mapped.
            object.note(unsafe { std::slice::from_raw_parts(start as *const u8, len) });
        }
    }
    let own = classes::address();
    // SAFETY: asks for a number.
    let kernels = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    let is_own = object.texts.iter().any(|text| text.contains(&own));
    (base != kernels && !is_own).then_some(object)
}

#[inline]
fn kind(name: &[u8], base: u64) -> Kind {
    // SAFETY: asks for a number.
    let loader = unsafe { libc::getauxval(libc::AT_BASE) };
    if name.ends_with(b"/libc.so.6") {
        Kind::Libc
    } else if loader != 0 && loader == base {
        Kind::Loader
    } else {
        Kind::Other
    }
}

fn is_text(header: &libc::Elf64_Phdr) -> bool {
    header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0
}

/// Whether the program may write to a text itself.
fn is_written(header: &libc::Elf64_Phdr) -> bool {
    is_text(header) && header.p_flags & libc::PF_W != 0
}

/// A library of which a part was mapped just now; `None` for what is none.
fn of_file(fd: u64, offset: u64, mapped: Range<u64>) -> Option<Object> {
    let headers = headers(fd)?;
    let text =
        headers.iter().find(|header| is_text(header) && header.p_offset & !(PAGE - 1) == offset)?;
    let base = mapped.start.checked_sub(text.p_vaddr & !(PAGE - 1))?;
    let start = base + text.p_vaddr;
    let end = (start + text.p_filesz).min(mapped.end);
    let mut object = Object::new(Kind::Other, base, Data::File(fd, headers.clone()));
    object.add_text(start..end.max(start));
    // The loader has yet to write to it, and would do so behind what was replaced.
    let is_left = |header: &libc::Elf64_Phdr| is_written(header) || writes_to_text(fd, header);
    object.is_left |= headers.iter().any(is_left);
    for note in headers.iter().filter(|header| header.p_type == libc::PT_NOTE) {
        object.note(&read(fd, note.p_offset, note.p_filesz).unwrap_or_default());
    }
    Some(object)
}

/// So many bytes of a file, where it has them, a text may be as long, and there is memory for them.
fn read(fd: u64, offset: u64, len: u64) -> Option<Vec<u8>> {
    let wanted = usize::try_from(len).ok().filter(|len| *len <= TEXT_MAX)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(wanted).ok()?;
    let got = sys!(libc::SYS_pread64, fd, bytes.as_mut_ptr(), wanted, offset);
    if u64::try_from(got) != Ok(len) {
        return None;
    }
    // SAFETY: there is room for so many, and the kernel has filled them.
    unsafe { bytes.set_len(wanted) };
    Some(bytes)
}

/// Whether a part of a file says that the loader writes to its text (`DT_TEXTREL`).
fn writes_to_text(fd: u64, header: &libc::Elf64_Phdr) -> bool {
    const DT_TEXTREL: u64 = 22;
    const DT_FLAGS: u64 = 30;
    const DF_TEXTREL: u64 = 4;
    if header.p_type != libc::PT_DYNAMIC {
        return false;
    }
    let mut entries = [[0_u64; 2]; HEAD_BYTES / 16];
    let bytes = header.p_filesz.min(HEAD_BYTES as u64);
    sys!(libc::SYS_pread64, fd, entries.as_mut_ptr(), bytes, header.p_offset);
    let says = |[tag, value]: &[u64; 2]| {
        *tag == DT_TEXTREL || (*tag == DT_FLAGS && value & DF_TEXTREL != 0)
    };
    entries.iter().any(says)
}

/// Whether a file is a libc, which would be the program's second one (`dlmopen`): its processes and threads
/// begin unseen.
fn is_libc(fd: u64) -> bool {
    let (mut path, mut name) = ([0_u8; 64], [0_u8; HEAD_BYTES]);
    if write!(&mut path[..], "/proc/thread-self/fd/{fd}\0").is_err() {
        return false;
    }
    let got = sys!(libc::SYS_readlink, path.as_ptr(), name.as_mut_ptr(), name.len());
    let name = usize::try_from(got).ok().and_then(|len| name.get(..len)).unwrap_or_default();
    let name = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name == b"libc.so.6" || (name.starts_with(b"libc-2.") && name.ends_with(b".so"))
}

/// The program headers of an ELF file of this machine's kind, wherever they stand in it: who changes a library puts
/// longer ones at its end.
fn headers(fd: u64) -> Option<Vec<libc::Elf64_Phdr>> {
    const ELF_64_LITTLE: &[u8] = b"\x7fELF\x02\x01";
    let mut head = [0_u8; std::mem::size_of::<libc::Elf64_Ehdr>()];
    sys!(libc::SYS_pread64, fd, head.as_mut_ptr(), head.len(), 0);
    let half = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
    if !head.starts_with(ELF_64_LITTLE) || half(18)? != libc::EM_X86_64 {
        return None;
    }
    let at = u64::from_le_bytes(head.get(32..40)?.try_into().ok()?);
    let bytes = std::mem::size_of::<libc::Elf64_Phdr>();
    if usize::from(half(54)?) != bytes {
        return None;
    }
    let all = read(fd, at, bytes as u64 * u64::from(half(56)?))?;
    // SAFETY: a chunk has the bytes of a header, of which any are valid.
    let read = |one: &[u8]| unsafe { one.as_ptr().cast::<libc::Elf64_Phdr>().read_unaligned() };
    Some(all.chunks_exact(bytes).map(read).collect())
}

impl Object {
    #[inline]
    fn new(kind: Kind, base: u64, data: Data) -> Self {
        let (texts, build) = (ArrayVec::new(), ArrayVec::new());
        let (is_left, is_go, offset, path): (_, _, _, &CStr) = (false, false, None, c"");
        Self { kind, base, texts, build, is_left, is_go, offset, path, data }
    }

    #[inline]
    fn add_text(&mut self, text: Range<u64>) {
        self.is_left |= self.texts.try_push(text).is_err();
    }

    /// Takes down what ELF notes say: the build's number, and whose program it is.
    #[unsafe(link_section = ".text.novale_start")]
    fn note(&mut self, mut notes: &[u8]) {
        const NT_GNU_BUILD_ID: u32 = 3;
        loop {
            let word = |at: usize| {
                let bytes: [u8; 4] = notes.get(at..at + 4)?.try_into().ok()?;
                usize::try_from(u32::from_le_bytes(bytes)).ok()
            };
            let (Some(name), Some(value), Some(kind)) = (word(0), word(4), word(8)) else { return };
            let at = 12 + name.next_multiple_of(4);
            let owner = notes.get(12..12 + name).unwrap_or_default();
            if kind == NT_GNU_BUILD_ID as usize && owner == b"GNU\0" {
                let build = notes.get(at..at + value).unwrap_or_default();
                self.build = ArrayVec::try_from(build).unwrap_or_default();
            }
            self.is_go |= owner == b"Go\0\0";
            let Some(rest) = notes.get(at + value.next_multiple_of(4)..) else { return };
            notes = rest;
        }
    }

    #[inline]
    fn is_wanted(&self, site: &Site) -> bool {
        let Some(number) = site.number else { return self.kind == Kind::Libc };
        match self.kind {
            Kind::Libc => classes::is_wanted(number),
            Kind::Loader => i64::from(number) == libc::SYS_mmap,
            Kind::Other => !is_of_libc(number) && classes::is_wanted(number),
        }
    }

    /// The sites of a text that are to be replaced.
    #[unsafe(link_section = ".text.novale_start")]
    fn wanted(&self, mut all: Sites, text: &Range<u64>) -> Sites {
        let is_there = |site: &Site| {
            let start = self.base + u64::from(site.start);
            text.contains(&start) && start + u64::from(site.len) <= text.end
        };
        all.retain(|site| !site.is_left() && self.is_wanted(site) && is_there(site));
        all
    }

    /// Where system calls are, as it was kept or found now.
    #[unsafe(link_section = ".text.novale_start")]
    fn sites(&self) -> Sites {
        let Some((first, others)) = self.texts.split_first() else {
            return Sites::Many(Vec::new());
        };
        let mut all = self.sites_of(first);
        for text in others {
            all = Sites::Many([&*all, &*self.sites_of(text)].concat());
        }
        all
    }

    /// Each text has a table: the loader maps one after the other.
    #[unsafe(link_section = ".text.novale_start")]
    fn sites_of(&self, text: &Range<u64>) -> Sites {
        let key = if self.build.is_empty() { self.contents(text) } else { self.key(text) };
        kept::read(&key).unwrap_or_else(|| Sites::Many(self.find(text, &key)))
    }

    /// What stands for a text: the build, and which of its texts it is.
    #[unsafe(link_section = ".text.novale_start")]
    fn key(&self, text: &Range<u64>) -> Key {
        let mut key = Key::new();
        key.extend(self.build.iter().copied());
        key.extend((text.start - self.base).to_le_bytes());
        key.extend((text.end - text.start).to_le_bytes());
        key
    }

    /// What stands for a text of a build without a number, of one that takes long to look through: what it is. Nothing
    /// stands for others.
    #[cold]
    fn contents(&self, text: &Range<u64>) -> Key {
        let len = text.end - text.start;
        if !(CONTENTS_MIN..=TEXT_MAX as u64).contains(&len) {
            return Key::new();
        }
        // Sites are told by where they are.
        let digest = xxh3_128_with_seed(bytes_of(text), text.start - self.base);
        digest.to_le_bytes().into_iter().collect()
    }

    /// Whether it makes calls that are to be replaced and can't be.
    #[unsafe(link_section = ".text.novale_start")]
    fn is_unseen(&self, all: &Sites) -> bool {
        let is_unseen = |site: &Site| (self.is_left || site.is_left()) && self.is_wanted(site);
        self.kind == Kind::Other && all.iter().any(is_unseen)
    }

    /// Replaces those of its sites that are to be; returns how many, and whether these are all.
    #[unsafe(link_section = ".text.novale_start")]
    fn replace(&self, all: &Sites) -> (usize, bool) {
        if all.is_empty() || self.is_left {
            return (0, all.is_empty());
        }
        let entry = if self.kind == Kind::Other { Entry::Keeping } else { Entry::Plain };
        let (mut replaced, mut wanted) = (0, 0);
        for text in &self.texts {
            let sites = self.wanted(all.clone(), text);
            replaced += patch::all(self.base, (text.start, text.end), &sites, entry);
            wanted += sites.len();
        }
        (replaced, replaced == wanted)
    }

    /// Looks for sites in a text as its file has it: with a debugger's breakpoints in it other instructions are seen, and
    /// what is kept is believed by every program from then on. What can't be compared is kept by what it is.
    #[cold]
    fn find(&self, text: &Range<u64>, key: &[u8]) -> Vec<Site> {
        let here = bytes_of(text);
        // The file is read for what is kept.
        if !kept::has_place(key) && self.kind != Kind::Libc && !sites::may_call(here) {
            return Vec::new();
        }
        let file = self.in_file(text);
        // A program that the dynamic linker was called with has that one's file here.
        let is_its_own = file.is_some() && !self.path.is_empty();
        let there = file.filter(|there| image::is_same(here, there));
        if let Some(there) = there {
            let (all, is_known) = self.found(text, &there);
            if is_known && (all.is_empty() || self.are_others_same(text)) {
                kept::write(key, &all);
            }
            return all;
        }
        // What was written to may be different each time, and so may others that jump into it.
        let is_told = self.texts.len() == 1 && !self.is_left && !is_its_own;
        let own = if is_told { self.contents(text) } else { Key::new() };
        if let Some(kept) = kept::read(&own) {
            return kept.to_vec();
        }
        let (all, is_known) = self.found(text, here);
        if is_known {
            kept::write(&own, &all);
        }
        all
    }

    /// The sites in the bytes of a text, and whether its data could be looked at.
    #[cold]
    fn found(&self, text: &Range<u64>, bytes: &[u8]) -> (Vec<Site>, bool) {
        let is_looked_at =
            bytes.len() <= TEXT_MAX && (self.kind == Kind::Libc || sites::may_call(bytes));
        match u32::try_from(text.start - self.base) {
            Ok(offset) if is_looked_at => sites::find(bytes, (self.base, offset), &self.data),
            _ => (Vec::new(), true),
        }
    }

    /// Whether the other texts, which are looked at where they are loaded, are exactly what the file has.
    #[cold]
    fn are_others_same(&self, text: &Range<u64>) -> bool {
        let is_same = |other: &Range<u64>| {
            self.in_file(other).is_some_and(|there| bytes_of(other) == there.as_slice())
        };
        self.texts.iter().filter(|other| *other != text).all(is_same)
    }

    /// A text as its file has it.
    #[cold]
    fn in_file(&self, text: &Range<u64>) -> Option<Vec<u8>> {
        let start = text.start - self.base;
        let is_it = |header: &&libc::Elf64_Phdr| is_text(header) && header.p_vaddr == start;
        let offset = self.data.headers().iter().find(is_it)?.p_offset;
        let len = text.end - text.start;
        match &self.data {
            Data::File(fd, _) => read(*fd, offset, len),
            Data::Loaded(_) => {
                let path = if self.path.is_empty() { c"/proc/self/exe" } else { self.path };
                let flags = libc::O_RDONLY | libc::O_CLOEXEC;
                let opened = sys!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0);
                let file = Fd::new(opened)?;
                read(file.number().cast_unsigned().into(), offset, len)
            }
        }
    }
}

fn bytes_of(text: &Range<u64>) -> &'static [u8] {
    let len = usize::try_from(text.end - text.start).unwrap_or(0);
    // SAFETY: the text is mapped for as long as nobody unloads it, which takes the loader.
    unsafe { std::slice::from_raw_parts(text.start as *const u8, len) }
}

/// Maps libc's image over its text.
#[inline]
fn by_image(object: &Object, loader: Option<&Object>) -> Option<Trailer> {
    let (false, Some(offset), [text]) = (object.is_left, object.offset, object.texts.as_slice())
    else {
        return None;
    };
    let (base, range, build) = (object.base, text.clone(), object.build.as_slice());
    image::map(
        &Text { base, range, build, file: (object.path.to_bytes(), offset) },
        || object.wanted(object.sites(), text),
        || match (loader, loader.map(|loader| loader.texts.as_slice())) {
            (Some(loader), Some([text])) => {
                (loader.build.clone(), loader.wanted(loader.sites(), text).to_vec())
            }
            _ => (ArrayVec::new(), Vec::new()),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn libc_here() -> Object {
        unsafe extern "C" fn keep(
            info: *mut libc::dl_phdr_info,
            _: usize,
            to: *mut c_void,
        ) -> c_int {
            // SAFETY: the loader hands over a valid description.
            let found = unsafe { look(info) };
            // SAFETY: the caller below passes its own value.
            let to = unsafe { &mut *to.cast::<Option<Object>>() };
            *to = to.take().or(found.filter(|object| object.kind == Kind::Libc));
            0
        }
        let mut found: Option<Object> = None;
        // SAFETY: the callback keeps to the rules and `found` outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(keep), (&raw mut found).cast()) };
        found.unwrap()
    }

    #[test]
    fn nearly_all_calls_of_this_libc_are_found_and_no_two_overlap() {
        let libc = libc_here();
        assert!(!libc.build.is_empty());
        let mut sites = libc.sites().to_vec();
        sites.sort_by_key(|site| site.start);
        assert!(sites.len() > 300, "{}", sites.len());
        for two in sites.windows(2) {
            let [one, next] = two else { continue };
            assert!(one.start + u32::from(one.len) <= next.start, "{one:?} {next:?}");
        }
        for number in [libc::SYS_openat, libc::SYS_read, libc::SYS_pwrite64, libc::SYS_mmap] {
            let number = u16::try_from(number).unwrap();
            assert!(sites.iter().any(|site| site.number == Some(number)), "{number}");
        }
    }

    #[test]
    fn notes_tell_the_build_and_the_language() {
        let mut object = libc_here();
        object.build.clear();
        let mut notes = [4u32, 3, 3].map(u32::to_le_bytes).concat();
        notes.extend_from_slice(b"GNU\0abc\0");
        notes.extend([4u32, 1, 4].map(u32::to_le_bytes).concat());
        notes.extend_from_slice(b"Go\0\0x\0\0\0");
        object.note(&notes);
        assert_eq!((object.build.as_slice(), object.is_go), (&b"abc"[..], true));
    }
}
