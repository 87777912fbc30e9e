//! Whether a program is one that the dynamic linker puts a library into which is built for glibc: told
//! from the first pages of its file. Nothing here takes memory, for who looks in a child that has its
//! parent's.

use std::ffi::CStr;

/// Why a program can't have such a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// Its dynamic linker is another one, musl's or one of 32 bits.
    OtherLoader,
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
const NAME_BYTES: usize = 64;
/// The dynamic linker of glibc.
const LOADER: &[u8] = b"ld-linux-x86-64.so.2";
/// Run-times that have to be the first library of a program.
const SANITIZERS: [&[u8]; 4] = [b"libasan.so", b"libhwasan.so", b"libtsan.so", b"liblsan.so"];

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const X86_64: u64 = 62;

/// What the first bytes of a file make of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a box takes memory")]
pub enum Kind {
    /// It can have the library; or it is no program at all.
    Fit,
    /// It is linked statically, and loads no library.
    Static,
    /// It can't.
    Unfit(Unfit),
    /// A script, run by this program.
    Script(Interpreter),
}

/// Bytes of a script's first line that the kernel looks at.
const LINE_BYTES: usize = 256;

/// The path of the program that runs a script, without memory of its own.
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
        return script(line).map_or(Kind::Fit, Kind::Script);
    }
    of_program(head, &mut read).unwrap_or(Kind::Fit)
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
    let mut headers = [Header::default(); HEADERS_MAX];
    let (at, bytes) = (number(head, 32, 8)?, number(head, 54, 2)?);
    let count = usize::try_from(number(head, 56, 2)?).ok()?.min(HEADERS_MAX);
    for (index, to) in headers.iter_mut().take(count).enumerate() {
        let at = usize::try_from(at.checked_add(bytes * index as u64)?).ok()?;
        *to = Header::of(head.get(at..)?)?;
    }
    let headers = headers.get(..count)?;
    let of_kind = |kind| headers.iter().find(move |header| header.kind == kind);
    let mut name = [0; NAME_BYTES];
    let Some(interpreter) = of_kind(PT_INTERP) else { return Some(Kind::Static) };
    // As a rule it stands after the headers.
    let near =
        usize::try_from(interpreter.offset).ok().and_then(|at| head.get(at..at + NAME_BYTES));
    let loader = match near {
        Some(near) => near.split(|byte| *byte == 0).next().unwrap_or_default(),
        None => string(&mut name, read, interpreter.offset),
    };
    if loader.rsplit(|byte| *byte == b'/').next() != Some(LOADER) {
        return Some(Kind::Unfit(Unfit::OtherLoader));
    }
    let is_sanitized = first_library_is_sanitizer(headers, of_kind(PT_DYNAMIC)?, read);
    is_sanitized.then_some(Kind::Unfit(Unfit::Sanitizer))
}

/// Looks at what is needed first: the compiler puts such a run-time before all others.
fn first_library_is_sanitizer(
    headers: &[Header],
    dynamic: &Header,
    read: &mut impl FnMut(&mut [u8], u64) -> usize,
) -> bool {
    let mut entries = [0; ENTRIES_MAX * 16];
    let len = usize::try_from(dynamic.bytes).unwrap_or(0).min(entries.len());
    let Some(room) = entries.get_mut(..len) else { return false };
    let got = read(room, dynamic.offset);
    let entries = entries.get(..got.min(len)).unwrap_or_default().chunks_exact(16);
    let entries = entries.map_while(|entry| {
        let (tag, value) = (number(entry, 0, 8)?, number(entry, 8, 8)?);
        (tag != DT_NULL).then_some((tag, value))
    });
    let of_tag = |tag| entries.clone().find(move |entry| entry.0 == tag).map(|entry| entry.1);
    let (Some(needed), Some(names)) = (of_tag(DT_NEEDED), of_tag(DT_STRTAB)) else { return false };
    let holds = |header: &&Header| {
        header.kind == PT_LOAD && names.wrapping_sub(header.address) < header.bytes
    };
    let Some(segment) = headers.iter().find(holds) else { return false };
    let at = (segment.offset + (names - segment.address)).saturating_add(needed);
    let mut name = [0; NAME_BYTES];
    let name = string(&mut name, read, at);
    SANITIZERS.iter().any(|sanitizer| name.starts_with(sanitizer))
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

    fn of(bytes: &[u8]) -> Kind {
        kind(|room, at| {
            let from = bytes.get(usize::try_from(at).unwrap()..).unwrap_or_default();
            let len = from.len().min(room.len());
            room[..len].copy_from_slice(&from[..len]);
            len
        })
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
        assert_eq!(of(&elf(glibc, "libc.so.6")), Kind::Fit);
        assert_eq!(of(&elf(glibc, "libasan.so.8")), Kind::Unfit(Unfit::Sanitizer));
        let musl = elf("/lib/ld-musl-x86_64.so.1", "libc.so");
        assert_eq!(of(&musl), Kind::Unfit(Unfit::OtherLoader));
        let mut narrow = elf("/lib/ld-linux.so.2", "libc.so.6");
        narrow[4] = 1;
        assert_eq!(of(&narrow), Kind::Unfit(Unfit::OtherLoader));
    }

    #[test]
    fn scripts_name_their_program_and_other_files_are_nothing_to_tell() {
        let Kind::Script(interpreter) = of(b"#! /bin/sh -e\nexit") else { panic!("a script") };
        assert_eq!(interpreter.path(), c"/bin/sh");
        for other in [&b"#!\n"[..], b"", b"text", b"\x7fELF", b"\x7fELF\x02\x01"] {
            assert_eq!(of(other), Kind::Fit);
        }
        let whole = elf("/lib64/ld-linux-x86-64.so.2", "libc.so.6");
        // Cut off anywhere, it is looked at as far as it goes.
        for len in 0..whole.len() {
            let _kind = of(&whole[..len]);
        }
    }
}
