//! Tables of the sites of system calls, and images of texts, kept in files by the build of what they are
//! of, and by which of its texts.
//!
//! `novale run` names the folder once for all that it starts, whatever becomes of their `HOME`. A file
//! is believed of the administrator and of the process' own user alone: it says where code is written to,
//! or is code.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use arrayvec::ArrayVec;

use crate::base::settings::{self, Variable};
use crate::base::sys::{Fd, limit_of, sys};
use crate::text::sites::{Site, Sites};

/// The form of the file, and by which rules its sites were chosen; another one is made anew.
const FORMAT: u8 = 9;
/// Bytes of one site in the file.
pub(crate) const ENTRY: usize = 8;
/// Bytes of a table at most.
const TABLE_MAX: usize = 1 << 20;
/// What names begin with.
const TABLE: &[u8] = b"calls-";
const IMAGE: &[u8] = b"text-";

/// Bytes of a file's path at most.
const PATH_MAX: usize = 512;
/// Bytes of a table that needs no memory but the stack's.
const SMALL: usize = 512;

/// Where tables are kept; without a folder each is made again.
fn folder() -> Option<&'static [u8]> {
    settings::value(Variable::Cache).filter(|folder| folder.starts_with(b"/"))
}

/// Whether a table is kept by this key.
#[cold]
pub(crate) fn has_place(key: &[u8]) -> bool {
    !key.is_empty() && folder().is_some()
}

/// The table of a text as it was kept by this key; `None` without one.
#[unsafe(link_section = ".text.novale_start")]
pub(crate) fn read(key: &[u8]) -> Option<Sites> {
    known(&file(folder()?, TABLE, key)?)
}

/// Keeps the table of a text by its key, where it has one and there is a place for it.
#[cold]
pub(crate) fn write(key: &[u8], all: &[Site]) {
    let Some(file) = folder().and_then(|folder| file(folder, TABLE, key)) else { return };
    keep(&file, all).unwrap_or_default();
}

/// The image of this name, and its length.
#[inline]
pub(crate) fn image(name: &[u8]) -> Option<(Fd, u64)> {
    believed(&file(folder()?, IMAGE, name)?)
}

/// Keeps an image, which is made only where there is a place for it.
#[cold]
pub(crate) fn keep_image(name: &[u8], make: impl FnOnce() -> Option<Vec<u8>>) -> Option<()> {
    put(&file(folder()?, IMAGE, name)?, |file| {
        write_all(file, &make()?)?;
        // Code must not come back from a power cut as zeroes.
        file.sync_all().ok()
    })
}

/// A file's path, with its end.
struct Name(ArrayVec<u8, PATH_MAX>);

impl Name {
    fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.0.split_last().map_or(&[], |(_, path)| path)))
    }
}

#[unsafe(link_section = ".text.novale_start")]
fn file(folder: &[u8], kind: &[u8], key: &[u8]) -> Option<Name> {
    let mut name = ArrayVec::new();
    for part in [folder, b"/", kind] {
        name.try_extend_from_slice(part).ok()?;
    }
    for byte in key {
        for half in [byte >> 4, byte & 15] {
            name.try_push(half + if half < 10 { b'0' } else { b'a' - 10 }).ok()?;
        }
    }
    name.try_push(0).ok()?;
    (!key.is_empty()).then_some(Name(name))
}

/// A file that can be believed, and its length. Each program comes here a few times before it runs: by as
/// few calls as can be.
#[unsafe(link_section = ".text.novale_start")]
fn believed(Name(path): &Name) -> Option<(Fd, u64)> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let file = Fd::new(sys!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0))?;
    let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let got = sys!(libc::SYS_fstat, file.number(), found.as_mut_ptr());
    // SAFETY: zeroes are a valid value, which the kernel has filled.
    let found = unsafe { found.assume_init() };
    let is_ours = found.st_uid == 0 || found.st_uid == sys!(libc::SYS_geteuid) as u32;
    let is_whole = found.st_mode & libc::S_IFMT == libc::S_IFREG && found.st_mode & 0o022 == 0;
    let len = u64::try_from(found.st_size).ok().filter(|_| got == 0 && is_ours && is_whole)?;
    Some((file, len))
}

/// The table in a file; `None` where there is none that can be believed.
#[unsafe(link_section = ".text.novale_start")]
fn known(file: &Name) -> Option<Sites> {
    let (file, len) = believed(file)?;
    let len = usize::try_from(len).ok().filter(|len| *len <= TABLE_MAX)?;
    if len > SMALL {
        return known_large(&file, len);
    }
    let mut room = [0; SMALL];
    let bytes = room.get_mut(..len)?;
    let mut all = ArrayVec::new();
    for entry in entries(read_all(&file, bytes)?)? {
        all.try_push(site(entry)?).ok()?;
    }
    Some(Sites::Few(all))
}

#[cold]
fn known_large(file: &Fd, len: usize) -> Option<Sites> {
    let mut bytes = vec![0; len];
    entries(read_all(file, &mut bytes)?)?.map(site).collect::<Option<Vec<Site>>>().map(Sites::Many)
}

#[inline]
fn read_all<'a>(file: &Fd, bytes: &'a mut [u8]) -> Option<&'a [u8]> {
    let got = sys!(libc::SYS_pread64, file.number(), bytes.as_mut_ptr(), bytes.len(), 0);
    (usize::try_from(got) == Ok(bytes.len())).then_some(&*bytes)
}

/// The entries of a table; `None` where it is none.
#[inline]
fn entries(table: &[u8]) -> Option<std::slice::ChunksExact<'_, u8>> {
    let (format, entries) = table.split_first()?;
    (*format == FORMAT && entries.len().is_multiple_of(ENTRY)).then(|| entries.chunks_exact(ENTRY))
}

/// The site that an entry names.
#[inline]
pub(crate) fn site(entry: &[u8]) -> Option<Site> {
    let [a, b, c, d, len, at, low, high] = *entry else { return None };
    let (start, number) = (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([low, high]));
    let number = (number != u16::MAX).then_some(number);
    let site = Site { start, len, at, number };
    (u16::from(at) + 2 <= u16::from(len)).then_some(site)
}

/// The entry of a site.
pub(crate) fn entry(site: &Site) -> [u8; ENTRY] {
    let [a, b, c, d] = site.start.to_le_bytes();
    let [low, high] = site.number.unwrap_or(u16::MAX).to_le_bytes();
    [a, b, c, d, site.len, site.at, low, high]
}

fn keep(file: &Name, all: &[Site]) -> Option<()> {
    let mut bytes = vec![FORMAT];
    bytes.extend(all.iter().flat_map(entry));
    put(file, |file| write_all(file, &bytes))
}

/// Writes to a new file what this process may write to one: the kernel ends who writes more.
fn write_all(file: &mut File, bytes: &[u8]) -> Option<()> {
    let limit = limit_of(libc::RLIMIT_FSIZE).map_or(u64::MAX, |[limit, _]| limit);
    if bytes.len() as u64 <= limit { file.write_all(bytes).ok() } else { None }
}

/// Puts a file there, all at once for the one who reads it.
fn put(file: &Name, make: impl FnOnce(&mut File) -> Option<()>) -> Option<()> {
    let file = file.path();
    let fresh = file.with_extension(std::process::id().to_string());
    // What lies there was left by a killed process, or leads where somebody else wants it to. Nobody else opens it
    // before it is what it is to be, whatever the program's umask: who has it open for writing writes to it for ever.
    let create = || File::options().write(true).create_new(true).mode(0o600).open(&fresh);
    let again = || fs::remove_file(&fresh).and_then(|()| create());
    let mut open = create().or_else(|_| again()).ok()?;
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

    /// With the program's umask alone another user could open it for writing before its mode was set.
    #[test]
    fn what_is_kept_is_its_owners_alone_until_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let name = file(folder.path().as_os_str().as_bytes(), TABLE, b"\x01\xfe").unwrap();
        let mode = |file: &fs::Metadata| file.permissions().mode() & 0o777;
        put(&name, |fresh| {
            assert_eq!(mode(&fresh.metadata().unwrap()), 0o600);
            fresh.write_all(b"kept").ok()
        });
        assert_eq!(mode(&fs::metadata(name.path()).unwrap()), 0o644);
    }

    #[test]
    fn a_kept_table_is_read_again_and_a_foreign_one_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let name = file(folder.path().as_os_str().as_bytes(), TABLE, b"\x01\xfe").unwrap();
        let file = name.path();
        assert!(file.ends_with("calls-01fe"));
        let site = Site { start: 7, len: 9, at: 5, number: Some(2) };
        let sites = [site, Site { number: None, ..site }];
        assert!(known(&name).is_none());
        let many = vec![site; 1000];
        for sites in [&sites[..], &many, &[]] {
            keep(&name, sites).unwrap();
            assert_eq!(known(&name).unwrap().to_vec(), sites);
        }
        // A name that somebody else has taken leads to no file of his choice.
        let (fresh, other) =
            (file.with_extension(std::process::id().to_string()), file.with_extension("other"));
        fs::write(&other, "another's").unwrap();
        std::os::unix::fs::symlink(&other, &fresh).unwrap();
        keep(&name, &sites).unwrap();
        assert_eq!(known(&name).unwrap().to_vec(), sites);
        assert_eq!(fs::read(&other).unwrap(), b"another's");
        fs::set_permissions(file, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(known(&name).is_none(), "others could write it");
        fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
        for wrong in [&[FORMAT, 255, 255, 255, 255, 7, 6, 0, 0][..], &[FORMAT + 1], &[FORMAT, 1]] {
            fs::write(file, wrong).unwrap();
            assert!(known(&name).is_none());
        }
    }
}
