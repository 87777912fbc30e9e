//! What this library asks libc for by name is libc's own, whatever the program has of that name.
//!
//! The loader looks for a name in the program first, then in what is preloaded, and in libc last. ISO C leaves names
//! like `read` and `close` to programs, and libc itself does not go by them. So before anything else is called, each
//! import that leads elsewhere is looked up in libc's own table.
//!
//! Three kinds stay as they are. Names that begin with `_` are not the program's. `malloc` and its like are called by
//! libc by name, too, and what it allocates (`realpath`) is freed here. What other libraries have is not libc's.

use std::arch::asm;
use std::ffi::c_char;
use std::ops::Range;

use crate::base::sys::sys;

const PAGE: u64 = 4096;

const DT_PLTRELSZ: u64 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_JMPREL: u64 = 23;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_VERSYM: u64 = 0x6fff_fff0;
const DT_RELACOUNT: u64 = 0x6fff_fff9;
const DT_VERDEF: u64 = 0x6fff_fffc;
const DT_VERNEED: u64 = 0x6fff_fffe;

const R_X86_64_64: u64 = 1;
const R_X86_64_GLOB_DAT: u64 = 6;
const R_X86_64_JUMP_SLOT: u64 = 7;

const STT_FUNC: u8 = 2;
/// A function that says which function is to be called.
const STT_GNU_IFUNC: u8 = 10;

/// The bit of a symbol's version that says whether it is found without one.
const HIDDEN: u16 = 1 << 15;

const LIBC: &[u8] = b"libc.so.6";

/// What has to come from one heap, libc's own use of it included.
const HEAP: [&[u8]; 9] = [
    b"malloc",
    b"free",
    b"realloc",
    b"calloc",
    b"posix_memalign",
    b"aligned_alloc",
    b"memalign",
    b"reallocarray",
    b"malloc_usable_size",
];

/// The loader's description of what is loaded (`struct r_debug`), as far as it is read.
#[repr(C)]
struct Debug {
    _version: i32,
    first: *const Map,
}

/// What the loader tells of one that is loaded (`struct link_map`).
#[repr(C)]
struct Map {
    base: u64,
    name: *const c_char,
    dynamic: u64,
    next: *const Map,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    _other: u8,
    section: u16,
    value: u64,
    _size: u64,
}

/// A library whose versions are needed (`Elf64_Verneed`).
#[derive(Clone, Copy)]
#[repr(C)]
struct Needed {
    _version: u16,
    _count: u16,
    file: u32,
    first: u32,
    next: u32,
}

/// A version that is needed of it (`Elf64_Vernaux`).
#[derive(Clone, Copy)]
#[repr(C)]
struct NeededVersion {
    hash: u32,
    _flags: u16,
    number: u16,
    name: u32,
    next: u32,
}

/// A version that a library has (`Elf64_Verdef`).
#[derive(Clone, Copy)]
#[repr(C)]
struct Defined {
    _version: u16,
    _flags: u16,
    number: u16,
    _count: u16,
    hash: u32,
    first: u32,
    next: u32,
}

/// An address that the loader has stored here, of a symbol.
struct Import {
    place: u64,
    value: u64,
    symbol: u64,
    added: u64,
}

/// What an import asks for of libc: where the name is, that of its version, and what this one is found by.
struct Sought {
    name: u64,
    version: u64,
    hash: u32,
}

unsafe extern "C" {
    #[link_name = "_r_debug"]
    static DEBUG: Debug;
}

/// Has the imports lead to libc. Nothing that it runs is an import, but for functions like `memcpy` and `strlen` where
/// the compiler puts them: their names are not the program's.
#[unsafe(link_section = ".text.novale_start")]
pub(crate) fn bind() {
    let Some((own, libc)) = both() else { return };
    let functions = libc.range();
    let mut imports = Writable(None);
    own.each_import(|import| {
        if functions.contains(&import.value) {
            return;
        }
        let found = own.sought(import.symbol).and_then(|sought| libc.find(&sought));
        let Some(there) = found.filter(|there| *there != import.value) else { return };
        if imports.covers(&own, import.place) {
            // SAFETY: the loader has stored such an address there, and it may be written to now.
            unsafe { (import.place as *mut u64).write(there.wrapping_add(import.added)) };
        }
    });
}

/// This library and libc, as the loader has them.
#[unsafe(link_section = ".text.novale_start")]
fn both() -> Option<(Linked, Linked)> {
    let here: u64;
    // SAFETY: takes the address of what the linker puts into each library.
    unsafe {
        asm!(".hidden _DYNAMIC", "lea {}, [rip + _DYNAMIC]", out(reg) here,
            options(nomem, nostack, preserves_flags));
    }
    let (mut own, mut libc) = (None, None);
    // SAFETY: the loader has it ready before it runs anything.
    let mut next = unsafe { DEBUG.first };
    // SAFETY: a list of the loader's, which ends with a null; nothing in it goes while a program starts.
    while let Some(map) = unsafe { next.as_ref() } {
        if map.dynamic == here {
            own = Some(Linked::new(map));
        } else if libc.is_none() && ends_with_libc(map.name as u64) {
            libc = Some(Linked::new(map));
        }
        next = map.next;
    }
    Some((own?, libc?))
}

/// What is at an address that the loader or a loaded library tells.
#[inline]
fn read<T: Copy>(at: u64) -> T {
    // SAFETY: the loader has read the same table, to bring in what it tells of, and unloads neither this library
    // nor libc.
    unsafe { (at as *const T).read_unaligned() }
}

/// Whether a string is this one. Unlike a comparison of slices it is no call.
#[inline]
fn is(mut at: u64, text: &[u8]) -> bool {
    for byte in text {
        if read::<u8>(at) != *byte {
            return false;
        }
        at += 1;
    }
    read::<u8>(at) == 0
}

#[inline]
fn are_same(one: u64, other: u64) -> bool {
    let mut at = 0;
    loop {
        let byte: u8 = read(one + at);
        if byte != read(other + at) {
            return false;
        }
        if byte == 0 {
            return true;
        }
        at += 1;
    }
}

/// Whether a path's last part is libc's name.
#[unsafe(link_section = ".text.novale_start")]
fn ends_with_libc(path: u64) -> bool {
    let (mut at, mut last) = (path, path);
    loop {
        let byte: u8 = read(at);
        at += 1;
        if byte == b'/' {
            last = at;
        }
        if byte == 0 {
            return is(last, LIBC);
        }
    }
}

/// Where what a library's dynamic part tells of is.
struct Linked {
    base: u64,
    names: u64,
    symbols: u64,
    relocations: Range<u64>,
    jumps: Range<u64>,
    hash: u64,
    versions: u64,
    defined: u64,
    needed: u64,
}

impl Linked {
    #[unsafe(link_section = ".text.novale_start")]
    fn new(map: &Map) -> Self {
        let base = map.base;
        // The loader has added where the library is, or has not.
        let there = |value: u64| if value < base { base + value } else { value };
        let (mut relocations, mut bytes, mut relative) = (0, 0, 0);
        let (mut jumps, mut bytes_of_jumps) = (0, 0);
        let mut object = Self {
            base,
            names: 0,
            symbols: 0,
            relocations: 0..0,
            jumps: 0..0,
            hash: 0,
            versions: 0,
            defined: 0,
            needed: 0,
        };
        let mut at = map.dynamic;
        loop {
            let [tag, value]: [u64; 2] = read(at);
            at += 16;
            match tag {
                0 => break,
                DT_STRTAB => object.names = there(value),
                DT_SYMTAB => object.symbols = there(value),
                DT_RELA => relocations = there(value),
                DT_RELASZ => bytes = value,
                DT_RELACOUNT => relative = value * size_of::<Relocation>() as u64,
                DT_JMPREL => jumps = there(value),
                DT_PLTRELSZ => bytes_of_jumps = value,
                DT_GNU_HASH => object.hash = there(value),
                DT_VERSYM => object.versions = there(value),
                DT_VERDEF => object.defined = there(value),
                DT_VERNEED => object.needed = there(value),
                _ => {}
            }
        }
        object.relocations = relocations + relative..relocations + bytes;
        object.jumps = jumps..jumps + bytes_of_jumps;
        object
    }

    /// Hands over the imports, but for those that need not be anywhere, and are not.
    #[inline]
    fn each_import(&self, mut each: impl FnMut(Import)) {
        for table in [&self.relocations, &self.jumps] {
            let mut at = table.start;
            while at < table.end {
                let Relocation { offset, info, addend } = read(at);
                at += size_of::<Relocation>() as u64;
                let added = match info & u64::from(u32::MAX) {
                    R_X86_64_64 => addend,
                    R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT => 0,
                    _ => continue,
                };
                let place = self.base + offset;
                let value = read::<u64>(place).wrapping_sub(added);
                if value != 0 {
                    each(Import { place, value, symbol: info >> 32, added });
                }
            }
        }
    }

    fn symbol(&self, number: u64) -> Symbol {
        read(self.symbols + number * size_of::<Symbol>() as u64)
    }

    fn version_of(&self, number: u64) -> u16 {
        read::<u16>(self.versions + number * 2) & !HIDDEN
    }

    fn headers(&self) -> impl Iterator<Item = libc::Elf64_Phdr> {
        let head: libc::Elf64_Ehdr = read(self.base);
        let first = self.base + head.e_phoff;
        let size = size_of::<libc::Elf64_Phdr>() as u64;
        (0..u64::from(head.e_phnum)).map(move |number| read(first + number * size))
    }

    /// Where all of it is.
    #[unsafe(link_section = ".text.novale_start")]
    fn range(&self) -> Range<u64> {
        let mut end = self.base;
        for header in self.headers() {
            if header.p_type == libc::PT_LOAD {
                end = end.max(self.base + header.p_vaddr + header.p_memsz);
            }
        }
        self.base..end
    }

    /// The pages that the loader has made read-only once they were relocated.
    #[cold]
    fn read_only(&self) -> Range<u64> {
        for header in self.headers() {
            if header.p_type == libc::PT_GNU_RELRO {
                let start = self.base + header.p_vaddr;
                let end = start + header.p_memsz;
                return start & !(PAGE - 1)..end & !(PAGE - 1);
            }
        }
        0..0
    }

    /// What an import asks for; `None` for one that is to stay as it is.
    #[unsafe(link_section = ".text.novale_start")]
    fn sought(&self, number: u64) -> Option<Sought> {
        let symbol = self.symbol(number);
        let name = self.names + u64::from(symbol.name);
        // What is of the library itself is no import.
        if symbol.section != 0 || read::<u8>(name) == b'_' {
            return None;
        }
        for kept in HEAP {
            if is(name, kept) {
                return None;
            }
        }
        let (version, hash) = self.version_of_libc(self.version_of(number))?;
        Some(Sought { name, version, hash })
    }

    /// Where the name of a version is that has a number here, and its hash, where it is one of libc's.
    #[cold]
    fn version_of_libc(&self, number: u16) -> Option<(u64, u32)> {
        let mut library = self.needed;
        while library != 0 {
            let needed: Needed = read(library);
            let mut at = library + u64::from(needed.first);
            while is(self.names + u64::from(needed.file), LIBC) {
                let version: NeededVersion = read(at);
                if version.number & !HIDDEN == number {
                    return Some((self.names + u64::from(version.name), version.hash));
                }
                if version.next == 0 {
                    break;
                }
                at += u64::from(version.next);
            }
            library = if needed.next == 0 { 0 } else { library + u64::from(needed.next) };
        }
        None
    }

    /// The number here of a version that another library asks for.
    #[cold]
    fn number_of(&self, sought: &Sought) -> Option<u16> {
        let mut at = self.defined;
        while at != 0 {
            let defined: Defined = read(at);
            // The first of its names is its own, the others are those that it follows on.
            let name = self.names + u64::from(read::<u32>(at + u64::from(defined.first)));
            if defined.hash == sought.hash && are_same(name, sought.version) {
                return Some(defined.number & !HIDDEN);
            }
            at = if defined.next == 0 { 0 } else { at + u64::from(defined.next) };
        }
        None
    }

    /// The address of the function that is asked for.
    #[cold]
    fn find(&self, sought: &Sought) -> Option<u64> {
        let version = self.number_of(sought)?;
        if self.hash == 0 {
            return None;
        }
        let [buckets, first, words, _]: [u32; 4] = read(self.hash);
        let (start, bytes) = (self.hash + 16 + u64::from(words) * 8, u64::from(buckets) * 4);
        let hash = hash_of(sought.name);
        let mut number: u32 = read(start + u64::from(hash.checked_rem(buckets)?) * 4);
        while number >= first {
            let kept: u32 = read(start + bytes + u64::from(number - first) * 4);
            if kept | 1 == hash | 1 {
                let symbol = self.symbol(number.into());
                let is_it = symbol.section != 0
                    && self.version_of(number.into()) == version
                    && are_same(self.names + u64::from(symbol.name), sought.name);
                if is_it {
                    return self.function(&symbol);
                }
            }
            // The last of those with this remainder.
            if kept & 1 != 0 {
                break;
            }
            number += 1;
        }
        None
    }

    #[cold]
    fn function(&self, symbol: &Symbol) -> Option<u64> {
        let at = self.base + symbol.value;
        match symbol.info & 0xf {
            STT_FUNC => Some(at),
            STT_GNU_IFUNC => {
                // SAFETY: the symbol says that it is such a function; the loader has called it for libc's own sake.
                let choose: extern "C" fn() -> u64 = unsafe { std::mem::transmute(at) };
                Some(choose())
            }
            _ => None,
        }
    }
}

/// The hash of a name by which GNU's tables are sorted.
#[cold]
fn hash_of(mut name: u64) -> u32 {
    let mut hash: u32 = 5381;
    loop {
        let byte: u8 = read(name);
        if byte == 0 {
            return hash;
        }
        hash = hash.wrapping_mul(33).wrapping_add(byte.into());
        name += 1;
    }
}

/// The pages that are read-only otherwise, once they may be written to.
struct Writable(Option<Range<u64>>);

impl Writable {
    /// Whether an address may be stored to, which is seen to.
    #[cold]
    fn covers(&mut self, own: &Linked, place: u64) -> bool {
        let pages = own.read_only();
        if self.0.is_some() || !pages.contains(&place) {
            return true;
        }
        let (len, access) = (pages.end - pages.start, libc::PROT_READ | libc::PROT_WRITE);
        let is_open = sys!(libc::SYS_mprotect, pages.start, len, access) == 0;
        if is_open {
            self.0 = Some(pages);
        }
        is_open
    }
}

impl Drop for Writable {
    #[inline]
    fn drop(&mut self) {
        if let Some(pages) = &self.0 {
            let len = pages.end - pages.start;
            sys!(libc::SYS_mprotect, pages.start, len, libc::PROT_READ);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::ffi::CStr;

    /// What is looked up in libc's table is what the loader has found there.
    #[test]
    fn libc_has_each_import_where_the_loader_found_it() {
        let (own, libc) = both().unwrap();
        let functions = libc.range();
        let mut found = 0;
        own.each_import(|import| {
            let Some(sought) = own.sought(import.symbol) else { return };
            let Some(there) = libc.find(&sought) else { return };
            assert!(functions.contains(&there));
            assert_eq!(there, import.value);
            found += 1;
        });
        assert!(found > 40, "{found}");
    }

    #[test]
    fn names_are_found_in_the_version_that_is_asked_for_alone() {
        let (_, libc) = both().unwrap();
        let find = |name: &'static CStr, version: &'static CStr| {
            // As the ABI says of versions.
            let mix = |hash: u32, byte: &u8| {
                let mixed = (hash << 4).wrapping_add((*byte).into());
                let high = mixed & 0xf000_0000;
                (mixed ^ high >> 24) & !high
            };
            let hash = version.to_bytes().iter().fold(0, mix);
            let (name, version) = (name.as_ptr() as u64, version.as_ptr() as u64);
            libc.find(&Sought { name, version, hash })
        };
        for (name, of) in [(c"memcpy", c"GLIBC_2.14"), (c"memcpy", c"GLIBC_2.2.5")] {
            // SAFETY: looks for a name.
            let there = unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), of.as_ptr()) };
            assert_eq!(find(name, of), Some(there as u64), "{of:?}");
        }
        assert_eq!(find(c"memcpy", c"GLIBC_2.3"), None);
        assert_eq!(find(c"memcpy", c"GLIBC_0"), None);
        assert_eq!(find(c"no_function_of_libc", c"GLIBC_2.2.5"), None);
        assert_eq!(find(c"environ", c"GLIBC_2.2.5"), None);
    }
}
