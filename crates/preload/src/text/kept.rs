//! Tables of the sites of system calls, and images of texts, kept in files by the build of what they are
//! of.
//!
//! `novale run` names the folder once for all that it starts, whatever becomes of their `HOME`. A file
//! is believed of the administrator and of the process' own user alone: it says where code is written to,
//! or is code.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::base::sys::sys;
use crate::text::sites::{JUMP_BYTES, Site};

/// The form of the file; another one is made anew.
const FORMAT: u8 = 2;
/// Bytes of one site in the file.
const ENTRY: usize = 8;
/// Bytes of a table at most.
const TABLE_MAX: usize = 1 << 20;
/// What names begin with.
const TABLE: &[u8] = b"calls-";
const IMAGE: &[u8] = b"text-";

static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Says where tables are kept; without a folder each is made again.
pub(crate) fn begin(folder: Option<&[u8]>) {
    if let Some(folder) = folder.filter(|folder| folder.starts_with(b"/")) {
        FOLDER.get_or_init(|| PathBuf::from(OsStr::from_bytes(folder)));
    }
}

/// The table of a build as it was kept.
pub(crate) fn read(build: &[u8]) -> Option<Vec<Site>> {
    known(&file(FOLDER.get()?, TABLE, build)?)
}

/// Keeps the table of a build, where there is a place for it.
pub(crate) fn write(build: &[u8], all: &[Site]) {
    let Some(file) = FOLDER.get().and_then(|folder| file(folder, TABLE, build)) else { return };
    keep(&file, all).unwrap_or_default();
}

/// The image of this name, of so many bytes.
pub(crate) fn image(name: &[u8], len: u64) -> Option<File> {
    let (file, bytes) = believed(&file(FOLDER.get()?, IMAGE, name)?)?;
    (bytes == len).then_some(file)
}

/// Keeps an image, which is made only where there is a place for it.
pub(crate) fn keep_image(name: &[u8], make: impl FnOnce() -> Option<Vec<u8>>) -> Option<()> {
    put(&file(FOLDER.get()?, IMAGE, name)?, |file| {
        file.write_all(&make()?).ok()?;
        // Code must not come back from a power cut as zeroes.
        file.sync_all().ok()
    })
}

fn file(folder: &Path, kind: &[u8], build: &[u8]) -> Option<PathBuf> {
    if build.is_empty() {
        return None;
    }
    let mut name = kind.to_vec();
    for byte in build {
        let digit = |half: u8| b"0123456789abcdef".get(usize::from(half)).copied();
        name.extend([digit(byte >> 4)?, digit(byte & 15)?]);
    }
    Some(folder.join(OsStr::from_bytes(&name)))
}

/// A file that can be believed, and its length. Each program comes here a few times before it runs: by as
/// few calls as can be.
fn believed(file: &Path) -> Option<(File, u64)> {
    let file = File::open(file).ok()?;
    let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let got = sys!(libc::SYS_fstat, file.as_raw_fd(), found.as_mut_ptr());
    // SAFETY: zeroes are a valid value, which the kernel has filled.
    let found = unsafe { found.assume_init() };
    let is_ours = found.st_uid == 0 || found.st_uid == sys!(libc::SYS_geteuid) as u32;
    let is_whole = found.st_mode & libc::S_IFMT == libc::S_IFREG && found.st_mode & 0o022 == 0;
    let len = u64::try_from(found.st_size).ok().filter(|_| got == 0 && is_ours && is_whole)?;
    Some((file, len))
}

/// The table in a file; `None` where there is none that can be believed.
fn known(file: &Path) -> Option<Vec<Site>> {
    let (file, len) = believed(file)?;
    let mut bytes = vec![0; usize::try_from(len).ok().filter(|len| *len <= TABLE_MAX)?];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let (format, entries) = bytes.split_first()?;
    if *format != FORMAT || !entries.len().is_multiple_of(ENTRY) {
        return None;
    }
    entries.chunks_exact(ENTRY).map(site).collect()
}

fn site(entry: &[u8]) -> Option<Site> {
    let [a, b, c, d, len, at, low, high] = *entry else { return None };
    let (start, number) = (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([low, high]));
    let fits = usize::from(len) >= JUMP_BYTES && u16::from(at) + 2 <= u16::from(len);
    let number = (number != u16::MAX).then_some(number);
    fits.then_some(Site { start, len, at, number })
}

fn keep(file: &Path, all: &[Site]) -> Option<()> {
    let mut bytes = vec![FORMAT];
    for site in all {
        bytes.extend_from_slice(&site.start.to_le_bytes());
        bytes.extend_from_slice(&[site.len, site.at]);
        bytes.extend_from_slice(&site.number.unwrap_or(u16::MAX).to_le_bytes());
    }
    put(file, |file| file.write_all(&bytes).ok())
}

/// Puts a file there, all at once for the one who reads it.
fn put(file: &Path, make: impl FnOnce(&mut File) -> Option<()>) -> Option<()> {
    let fresh = file.with_extension(std::process::id().to_string());
    let mut open = File::create(&fresh).ok()?;
    let done = make(&mut open).and_then(|()| {
        open.set_permissions(fs::Permissions::from_mode(0o644)).ok()?;
        fs::rename(&fresh, file).ok()
    });
    if done.is_none() {
        fs::remove_file(&fresh).unwrap_or_default();
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_table_is_read_again_and_a_foreign_one_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path(), TABLE, b"\x01\xfe").unwrap();
        assert!(file.ends_with("calls-01fe"));
        let site = Site { start: 7, len: 9, at: 5, number: Some(2) };
        let sites = [site, Site { number: None, ..site }];
        assert_eq!(known(&file), None);
        for sites in [&sites[..], &[]] {
            keep(&file, sites).unwrap();
            assert_eq!(known(&file).unwrap(), sites);
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(known(&file), None, "others could write it");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        for wrong in [&[FORMAT, 255, 255, 255, 255, 7, 6, 0, 0][..], &[FORMAT + 1], &[FORMAT, 1]] {
            fs::write(&file, wrong).unwrap();
            assert_eq!(known(&file), None);
        }
    }
}
