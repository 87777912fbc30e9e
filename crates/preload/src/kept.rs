//! Tables of the sites of system calls, kept in files by the build of what they are of.
//!
//! `novale run` names the folder once for all that it starts, whatever becomes of their `HOME`. A
//! table is believed of the administrator and of the process' own user alone: it says where code is
//! written to.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::sites::{JUMP_BYTES, Site};
use crate::sys::sys;

/// The form of the file; another one is made anew.
const FORMAT: u8 = 2;
/// Bytes of one site in the file.
const ENTRY: usize = 8;

static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Says where tables are kept; without a folder each is made again.
pub(crate) fn begin(folder: Option<&[u8]>) {
    if let Some(folder) = folder.filter(|folder| folder.starts_with(b"/")) {
        FOLDER.get_or_init(|| PathBuf::from(OsStr::from_bytes(folder)));
    }
}

/// The table of a build as it was kept.
pub(crate) fn read(build: &[u8]) -> Option<Vec<Site>> {
    known(&file(FOLDER.get()?, build)?)
}

/// Keeps the table of a build, where there is a place for it.
pub(crate) fn write(build: &[u8], all: &[Site]) {
    let Some(file) = FOLDER.get().and_then(|folder| file(folder, build)) else { return };
    keep(&file, all).unwrap_or_default();
}

fn file(folder: &Path, build: &[u8]) -> Option<PathBuf> {
    if build.is_empty() {
        return None;
    }
    let mut name = b"calls-".to_vec();
    for byte in build {
        let digit = |half: u8| b"0123456789abcdef".get(usize::from(half)).copied();
        name.extend([digit(byte >> 4)?, digit(byte & 15)?]);
    }
    Some(folder.join(OsStr::from_bytes(&name)))
}

/// The table in a file; `None` where there is none that can be believed.
fn known(file: &Path) -> Option<Vec<Site>> {
    let mut file = File::open(file).ok()?;
    let found = file.metadata().ok()?;
    let user = sys!(libc::SYS_geteuid) as u32;
    if (found.uid() != 0 && found.uid() != user) || found.mode() & 0o022 != 0 {
        return None;
    }
    let mut bytes = Vec::with_capacity(usize::try_from(found.len()).ok()? + 1);
    file.read_to_end(&mut bytes).ok()?;
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
    // Whoever reads it meanwhile sees a whole one.
    let fresh = file.with_extension(std::process::id().to_string());
    fs::write(&fresh, &bytes).ok()?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o644)).ok()?;
    fs::rename(&fresh, file).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_table_is_read_again_and_a_foreign_one_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path(), b"\x01\xfe").unwrap();
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
