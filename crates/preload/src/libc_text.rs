//! libc as it is loaded: where its text is, which build it is, and the table of its sites.

use std::ffi::{CStr, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};

use crate::entry;
use crate::patch;
use crate::sites::{self, Site};

/// The form of the table's file; another one is made anew.
const FORMAT: u8 = 1;
/// Bytes of one site in the file.
const ENTRY: usize = 8;

/// What is needed of a loaded library.
#[derive(Debug, Default)]
struct Loaded {
    base: u64,
    /// Start and end of the text, as addresses.
    text: (u64, u64),
    build: Vec<u8>,
}

/// Replaces libc's system calls; false where that can't be done, and the mount serves everything.
///
/// The table is kept in the folder `cache`, where there is one.
pub(crate) fn patch(cache: Option<PathBuf>) -> bool {
    let Some(libc) = find() else { return false };
    let file = cache.and_then(|cache| file(&cache, &libc));
    let all = file.as_deref().and_then(|file| known(file, &libc)).unwrap_or_else(|| {
        let all = decode(&libc);
        file.as_deref().and_then(|file| keep(file, &all)).unwrap_or_default();
        all
    });
    let wanted = |site: &Site| site.number.is_none_or(entry::is_wanted);
    let sites: Vec<Site> = all.into_iter().filter(wanted).collect();
    patch::all(libc.base, libc.text, &sites) > 0
}

fn find() -> Option<Loaded> {
    let mut found = Loaded::default();
    // SAFETY: the callback keeps to the rules and `found` outlives the call.
    let got = unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    (got == 1).then_some(found)
}

/// Takes down libc's headers; 1 ends the search.
unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: the loader hands over a valid description.
    let info = unsafe { &*info };
    if info.dlpi_name.is_null() {
        return 0;
    }
    // SAFETY: a string of the loader's.
    let name = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
    if !name.ends_with(b"/libc.so.6") {
        return 0;
    }
    // SAFETY: `find` passes its own value.
    let found = unsafe { &mut *found.cast::<Loaded>() };
    found.base = info.dlpi_addr;
    // SAFETY: the loader's table has so many entries.
    let headers =
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    for header in headers {
        let start = found.base + header.p_vaddr;
        if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0 {
            found.text = (start, start + header.p_memsz);
        }
        if header.p_type == libc::PT_NOTE {
            let len = usize::try_from(header.p_memsz).unwrap_or(0);
            // SAFETY: the segment is mapped.
            let notes = unsafe { std::slice::from_raw_parts(start as *const u8, len) };
            found.build = build_id(notes).unwrap_or(std::mem::take(&mut found.build));
        }
    }
    1
}

/// The build's number among ELF notes.
fn build_id(mut notes: &[u8]) -> Option<Vec<u8>> {
    const NT_GNU_BUILD_ID: u32 = 3;
    loop {
        let word = |at: usize| {
            let bytes: [u8; 4] = notes.get(at..at + 4)?.try_into().ok()?;
            Some(u32::from_le_bytes(bytes))
        };
        let (name, value, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
        let at = 12 + name.next_multiple_of(4);
        if kind == NT_GNU_BUILD_ID && notes.get(12..16)? == b"GNU\0" {
            return notes.get(at..at + value).map(<[u8]>::to_vec);
        }
        notes = notes.get(at + value.next_multiple_of(4)..)?;
    }
}

fn decode(libc: &Loaded) -> Vec<Site> {
    let (start, end) = libc.text;
    let len = usize::try_from(end - start).unwrap_or(0);
    // SAFETY: the text is mapped for as long as the program runs.
    let text = unsafe { std::slice::from_raw_parts(start as *const u8, len) };
    let offset = u32::try_from(start - libc.base).unwrap_or(0);
    sites::find(text, offset).sites
}

/// Where the table of this build is kept.
fn file(cache: &Path, libc: &Loaded) -> Option<PathBuf> {
    if libc.build.is_empty() {
        return None;
    }
    let build: Vec<String> = libc.build.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(cache.join("novale").join(format!("calls-{}", build.concat())))
}

/// The table as it was kept; `None` where it was not, or does not fit this text.
fn known(file: &Path, libc: &Loaded) -> Option<Vec<Site>> {
    let bytes = fs::read(file).ok()?;
    let (format, entries) = bytes.split_first()?;
    if *format != FORMAT || entries.is_empty() || !entries.len().is_multiple_of(ENTRY) {
        return None;
    }
    entries.chunks_exact(ENTRY).map(|entry| site(libc, entry)).collect()
}

fn site(libc: &Loaded, entry: &[u8]) -> Option<Site> {
    let [a, b, c, d, len, at, low, high] = *entry else { return None };
    let (start, number) = (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([low, high]));
    let first = libc.base + u64::from(start);
    let inside = first >= libc.text.0 && first + u64::from(len) <= libc.text.1;
    let fits = usize::from(len) >= sites::JUMP_BYTES && at + 2 <= len;
    (inside && fits).then_some(Site {
        start,
        len,
        at,
        number: (number != u16::MAX).then_some(number),
    })
}

/// Keeps the table; without a place for it, it is made again each time.
fn keep(file: &Path, all: &[Site]) -> Option<()> {
    let mut bytes = vec![FORMAT];
    for site in all {
        bytes.extend_from_slice(&site.start.to_le_bytes());
        bytes.extend_from_slice(&[site.len, site.at]);
        bytes.extend_from_slice(&site.number.unwrap_or(u16::MAX).to_le_bytes());
    }
    // Whoever reads it meanwhile sees a whole one.
    let fresh = file.with_extension(std::process::id().to_string());
    fs::create_dir_all(file.parent()?).ok()?;
    fs::write(&fresh, &bytes).ok()?;
    fs::rename(&fresh, file).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_all_calls_of_this_libc_are_found_and_no_two_overlap() {
        let libc = find().unwrap();
        assert!(!libc.build.is_empty());
        let mut sites = decode(&libc);
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
    fn a_kept_table_is_read_again_and_a_foreign_one_is_not_taken() {
        let libc = find().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path(), &libc).unwrap();
        let sites = decode(&libc);
        keep(&file, &sites).unwrap();
        assert_eq!(known(&file, &libc).unwrap(), sites);
        fs::write(&file, [FORMAT, 255, 255, 255, 255, 7, 0, 0, 0]).unwrap();
        assert_eq!(known(&file, &libc), None);
        fs::write(&file, [FORMAT + 1]).unwrap();
        assert_eq!(known(&file, &libc), None);
    }
}
