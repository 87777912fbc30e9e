//! Whether a program is one that the dynamic linker puts a library into which is built for glibc: told
//! from the first pages of its file. Nothing here takes memory, for who looks in a child that has its
//! parent's.

use std::ffi::CStr;

/// Why a program can't have such a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// Its dynamic linker is another one, musl's or one of 32 bits.
    OtherLoader,
    /// Its libc is an older one than the library is built for.
    OldLibc,
    /// A run-time of its own has to be loaded before all others, `AddressSanitizer`'s or one of its kind.
    Sanitizer,
}

/// Bytes of the start of a file that are looked at; program headers stand there.
const HEAD_BYTES: usize = 1024;
/// Headers of one program at most.
const HEADERS_MAX: usize = 32;
/// Entries of the dynamic section at most.
const ENTRIES_MAX: usize = 256;
/// Bytes read of a name.
const NAME_BYTES: usize = LINE_BYTES;
/// The dynamic linker of glibc.
const LOADER: &[u8] = b"ld-linux-x86-64.so.2";
/// What the dynamic linker defines of each glibc from 2.35 on, the first that has all that the library needs.
const VERSION: &[u8] = b"\0GLIBC_2.35\0";
/// Bytes of a dynamic linker's strings that are looked at at once.
const STRINGS_BYTES: usize = 1024;
/// Run-times that have to be the first library of a program.
const SANITIZERS: [&[u8]; 4] = [b"libasan.so", b"libhwasan.so", b"libtsan.so", b"liblsan.so"];

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;
const DT_FLAGS_1: u64 = 0x6fff_fffb;
const DF_1_PIE: u64 = 0x0800_0000;
const X86_64: u64 = 62;

/// What the first bytes of a file make of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// It is no program, or none that can be told.
    Other,
    /// It can have the library if this dynamic linker's libc can: see [`is_old_libc`].
    Linked(Interpreter),
    /// It is linked statically, and loads no library.
    Static,
    /// It can't.
    Unfit(Unfit),
    /// A script, run by this program.
    Script(Interpreter),
}

/// Bytes of a script's first line that the kernel looks at, and of a dynamic linker's path.
const LINE_BYTES: usize = 256;

/// The path of the program that runs a script, or of a program's dynamic linker, without memory of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interpreter([u8; LINE_BYTES]);

impl Interpreter {
    fn new(path: &[u8]) -> Option<Self> {
        let mut bytes = [0; LINE_BYTES];
        bytes.get_mut(..LINE_BYTES - 1)?.get_mut(..path.len())?.copy_from_slice(path);
        Some(Self(bytes))
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }
}

/// Looks at a program's file. `read` fills a buffer from an offset on, and returns how many bytes it
/// got.
pub fn kind(mut read: impl FnMut(&mut [u8], u64) -> usize) -> Kind {
    let mut head = [0; HEAD_BYTES];
    let got = read(&mut head, 0);
    let head = head.get(..got).unwrap_or_default();
    if let Some(line) = head.strip_prefix(b"#!") {
        return script(line).map_or(Kind::Other, Kind::Script);
    }
    of_program(head, &mut read).unwrap_or(Kind::Other)
}

/// Whether a file is the dynamic linker of a glibc that lacks what the library needs. `read` is as for [`kind`].
pub fn is_old_libc(mut read: impl FnMut(&mut [u8], u64) -> usize) -> bool {
    let mut head = [0; HEAD_BYTES];
    let got = read(&mut head, 0);
    let headers = Headers::of(head.get(..got).unwrap_or_default());
    headers.and_then(|headers| Dynamic::of(&headers, &mut read)?.has_version(&mut read))
        == Some(false)
}

/// The program named by a script's first line.
fn script(line: &[u8]) -> Option<Interpreter> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t' | 0));
    Interpreter::new(words.find(|word| !word.is_empty())?)
}

fn of_program(head: &[u8], read: &mut impl FnMut(&mut [u8], u64) -> usize) -> Option<Kind> {
    head.strip_prefix(b"\x7fELF")?;
    if head.get(4..6)? != [2, 1] || number(head, 18, 2)? != X86_64 {
        return Some(Kind::Unfit(Unfit::OtherLoader));
    }
    let headers = Headers::of(head)?;
    let Some(interpreter) = headers.of_kind(PT_INTERP) else {
        let dynamic = Dynamic::of(&headers, read).filter(Dynamic::is_library);
        let is_old = dynamic.is_some_and(|dynamic| dynamic.has_version(read) == Some(false));
        return Some(if is_old { Kind::Unfit(Unfit::OldLibc) } else { Kind::Static });
    };
    // As a rule it stands after the headers.
    let mut name = [0; NAME_BYTES];
    let near =
        usize::try_from(interpreter.offset).ok().and_then(|at| head.get(at..at + NAME_BYTES));
    let loader = match near {
        Some(near) => near.split(|byte| *byte == 0).next().unwrap_or_default(),
        None => string(&mut name, read, interpreter.offset),
    };
    if loader.rsplit(|byte| *byte == b'/').next() != Some(LOADER) {
        return Some(Kind::Unfit(Unfit::OtherLoader));
    }
    // The compiler puts such a run-time before all others.
    let mut first = [0; NAME_BYTES];
    let dynamic = Dynamic::of(&headers, read);
    let first = dynamic.and_then(|dynamic| {
        let at = dynamic.strings_at?.saturating_add(dynamic.value(DT_NEEDED)?);
        Some(string(&mut first, read, at))
    });
    if first.is_some_and(|first| SANITIZERS.iter().any(|name| first.starts_with(name))) {
        return Some(Kind::Unfit(Unfit::Sanitizer));
    }
    Interpreter::new(loader).map(Kind::Linked)
}

/// The program headers of a file.
struct Headers {
    all: [Header; HEADERS_MAX],
    count: usize,
}

impl Headers {
    fn of(head: &[u8]) -> Option<Self> {
        let (at, bytes) = (number(head, 32, 8)?, number(head, 54, 2)?);
        let count = usize::try_from(number(head, 56, 2)?).ok()?.min(HEADERS_MAX);
        let mut all = [Header::default(); HEADERS_MAX];
        for (index, to) in all.iter_mut().take(count).enumerate() {
            let at = usize::try_from(at.checked_add(bytes * index as u64)?).ok()?;
            *to = Header::of(head.get(at..)?)?;
        }
        Some(Self { all, count })
    }

    fn of_kind(&self, kind: u32) -> Option<&Header> {
        self.iter().find(|header| header.kind == kind)
    }

    fn iter(&self) -> impl Iterator<Item = &Header> {
        self.all.iter().take(self.count)
    }

    /// Where the file has what is loaded at an address.
    fn place(&self, address: u64) -> Option<u64> {
        let holds = |header: &&Header| {
            header.kind == PT_LOAD && address.wrapping_sub(header.address) < header.bytes
        };
        let segment = self.iter().find(holds)?;
        segment.offset.checked_add(address - segment.address)
    }
}

/// What the dynamic linker is told of a file.
struct Dynamic {
    entries: [u8; ENTRIES_MAX * 16],
    /// Where its strings are in the file.
    strings_at: Option<u64>,
}

impl Dynamic {
    fn of(headers: &Headers, read: &mut impl FnMut(&mut [u8], u64) -> usize) -> Option<Self> {
        let section = headers.of_kind(PT_DYNAMIC)?;
        let mut entries = [0; ENTRIES_MAX * 16];
        let len = usize::try_from(section.bytes).unwrap_or(0).min(entries.len());
        let got = read(entries.get_mut(..len)?, section.offset);
        // What was not read ends them.
        entries.get_mut(got.min(len)..)?.fill(0);
        let mut found = Self { entries, strings_at: None };
        found.strings_at = found.value(DT_STRTAB).and_then(|address| headers.place(address));
        Some(found)
    }

    /// The first entry of a kind.
    fn value(&self, tag: u64) -> Option<u64> {
        let entries = self.entries.chunks_exact(16);
        let mut entries = entries.map_while(|entry| {
            let (tag, value) = (number(entry, 0, 8)?, number(entry, 8, 8)?);
            (tag != DT_NULL).then_some((tag, value))
        });
        entries.find(|entry| entry.0 == tag).map(|entry| entry.1)
    }

    /// Whether it is of a library, which a dynamic linker is too, and not of a program.
    fn is_library(&self) -> bool {
        self.value(DT_FLAGS_1).unwrap_or(0) & DF_1_PIE == 0
    }

    /// Whether [`VERSION`] is among its strings, if it has any.
    fn has_version(&self, read: &mut impl FnMut(&mut [u8], u64) -> usize) -> Option<bool> {
        let mut at = self.strings_at?;
        let end = at.checked_add(self.value(DT_STRSZ)?)?;
        let mut room = [0; STRINGS_BYTES];
        while at < end {
            let got = read(&mut room, at).min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let strings = room.get(..got).unwrap_or_default();
            if strings.windows(VERSION.len()).any(|here| here == VERSION) {
                return Some(true);
            }
            if got < room.len() {
                break;
            }
            // What lies over the end is seen whole next.
            at += (room.len() - VERSION.len()) as u64;
        }
        Some(false)
    }
}

/// A string of the file, up to a NUL.
fn string<'a>(
    room: &'a mut [u8; NAME_BYTES],
    read: &mut impl FnMut(&mut [u8], u64) -> usize,
    at: u64,
) -> &'a [u8] {
    let got = read(room, at);
    let got = room.get(..got).unwrap_or_default();
    got.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// What is needed of a program header.
#[derive(Debug, Clone, Copy, Default)]
struct Header {
    kind: u32,
    offset: u64,
    address: u64,
    bytes: u64,
}

impl Header {
    fn of(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            kind: u32::try_from(number(bytes, 0, 4)?).ok()?,
            offset: number(bytes, 8, 8)?,
            address: number(bytes, 16, 8)?,
            bytes: number(bytes, 32, 8)?,
        })
    }
}

/// A number of so many bytes, the lowest first.
fn number(from: &[u8], at: usize, bytes: usize) -> Option<u64> {
    let bytes = from.get(at..at.checked_add(bytes)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_of(bytes: &[u8], room: &mut [u8], at: u64) -> usize {
        let from = bytes.get(usize::try_from(at).unwrap()..).unwrap_or_default();
        let len = from.len().min(room.len());
        room[..len].copy_from_slice(&from[..len]);
        len
    }

    fn of(bytes: &[u8]) -> Kind {
        kind(|room, at| read_of(bytes, room, at))
    }

    /// An ELF file with a loader, one segment, and one library that is needed.
    fn elf(loader: &str, library: &str) -> Vec<u8> {
        const BASE: u64 = 0x40_0000;
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(64, 0);
        file[18] = 62;
        (file[32], file[54], file[56]) = (64, 56, 3);
        let (strings, dynamic) = (512_u64, 700_u64);
        for (kind, offset, bytes) in [(3_u32, 400_u64, 64_u64), (1, 0, 1024), (2, dynamic, 48)] {
            let words = [offset, BASE + offset, 0, bytes, bytes, 0];
            file.extend(kind.to_le_bytes().into_iter().chain([0; 4]));
            file.extend(words.into_iter().flat_map(u64::to_le_bytes));
        }
        file.resize(1024, 0);
        file[400..400 + loader.len()].copy_from_slice(loader.as_bytes());
        file[513..513 + library.len()].copy_from_slice(library.as_bytes());
        let entries = [5, BASE + strings, 1, 1, 0, 0].map(u64::to_le_bytes).concat();
        file[700..748].copy_from_slice(&entries);
        file
    }

    #[test]
    fn programs_of_glibc_are_fit_and_those_of_others_are_not() {
        let glibc = "/lib64/ld-linux-x86-64.so.2";
        let long =
            "/nix/store/0123456789abcdef0123456789abcdef-glibc-2.38-44/lib/ld-linux-x86-64.so.2";
        for glibc in [glibc, long] {
            let Kind::Linked(by) = of(&elf(glibc, "libc.so.6")) else { panic!("{glibc}") };
            assert_eq!(by.path().to_bytes(), glibc.as_bytes());
        }
        assert_eq!(of(&elf(glibc, "libasan.so.8")), Kind::Unfit(Unfit::Sanitizer));
        let musl = elf("/lib/ld-musl-x86_64.so.1", "libc.so");
        assert_eq!(of(&musl), Kind::Unfit(Unfit::OtherLoader));
        let mut narrow = elf("/lib/ld-linux.so.2", "libc.so.6");
        narrow[4] = 1;
        assert_eq!(of(&narrow), Kind::Unfit(Unfit::OtherLoader));
    }

    /// A dynamic linker, whose strings have the versions of its libc.
    fn loader(version: &str) -> Vec<u8> {
        let mut file = elf("", "");
        // No program header says that there is another one; its strings end where the dynamic section begins.
        file[64] = 0;
        file[513..513 + version.len()].copy_from_slice(version.as_bytes());
        let entries = [5, 0x40_0000 + 512, 10, 180, 0, 0].map(u64::to_le_bytes).concat();
        file[700..748].copy_from_slice(&entries);
        file
    }

    fn is_old(bytes: &[u8]) -> bool {
        is_old_libc(|room, at| read_of(bytes, room, at))
    }

    #[test]
    fn a_libc_that_is_too_old_is_told_by_its_dynamic_linker() {
        assert!(!is_old(&loader("GLIBC_2.34\0GLIBC_2.35")));
        assert!(is_old(&loader("GLIBC_2.34\0GLIBC_2.3")));
        // Started by itself, with a program as its argument.
        assert_eq!(of(&loader("GLIBC_2.34")), Kind::Unfit(Unfit::OldLibc));
        assert_eq!(of(&loader("GLIBC_2.35")), Kind::Static);
        for nothing in [&b""[..], b"text", b"\x7fELF\x02\x01"] {
            assert!(!is_old(nothing));
        }
        // Strings that lie over the end of a piece.
        let mut long = loader("GLIBC_2.35");
        long.resize(6000, 0);
        for at in 2030..2050 {
            let mut long = long.clone();
            long[513..523].fill(b'x');
            long[at..at + 10].copy_from_slice(b"GLIBC_2.35");
            long[716 + 8..716 + 16].copy_from_slice(&5000_u64.to_le_bytes());
            assert!(!is_old(&long), "{at}");
        }
    }

    #[test]
    fn scripts_name_their_program_and_other_files_are_nothing_to_tell() {
        let Kind::Script(interpreter) = of(b"#! /bin/sh -e\nexit") else { panic!("a script") };
        assert_eq!(interpreter.path(), c"/bin/sh");
        for other in [&b"#!\n"[..], b"", b"text", b"\x7fELF", b"\x7fELF\x02\x01"] {
            assert_eq!(of(other), Kind::Other);
        }
        let whole = elf("/lib64/ld-linux-x86-64.so.2", "libc.so.6");
        // A name that lies beyond any file.
        let mut beyond = whole.clone();
        beyond[724..732].fill(0xff);
        assert!(matches!(of(&beyond), Kind::Linked(_)));
        // Cut off anywhere, it is looked at as far as it goes.
        for len in 0..whole.len() {
            let _kind = of(&whole[..len]);
        }
    }
}
