//! What a directory shows of itself and of all below it.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use novale_model::Kind;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, Stat, flistxattr, openat, readlinkat, seek, statat,
};
use rustix::io::Errno;

use super::directory::{is_comparable, xattr};

/// Attributes that two file systems show alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// What it is.
    pub kind: Kind,
    /// Permission, set-id and sticky bits.
    pub mode: u32,
    /// Names.
    pub nlink: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device.
    pub rdev: u64,
    /// Bytes; 0 for a directory.
    pub size: u64,
}

impl Meta {
    pub(super) fn of(stat: &Stat) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink,
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::CharacterDevice => Kind::CharDevice,
            FileType::BlockDevice => Kind::BlockDevice,
            FileType::RegularFile | FileType::Unknown => Kind::File,
        };
        let size = if kind == Kind::Directory { 0 } else { stat.st_size.unsigned_abs() };
        Self {
            kind,
            mode: stat.st_mode & 0o7777,
            nlink: stat.st_nlink,
            uid: stat.st_uid,
            gid: stat.st_gid,
            rdev: stat.st_rdev,
            size,
        }
    }
}

/// What one path shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Attributes.
    pub meta: Meta,
    /// A file's bytes up to its last other than zero, or a symlink's target.
    pub bytes: Vec<u8>,
    /// Extended attributes of a file or directory, of names that every file system has.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path of the same inode.
    pub first_path: Vec<u8>,
    /// mtime and ctime, ns since 1970.
    pub times: (i64, i64),
}

/// A tree beyond this many paths runs in circles.
const PATHS_MAX: usize = 100_000;

/// Bytes read of a file at most: sizes beyond are compared, bytes beyond are not.
const READ_BYTES_MAX: u64 = 8 << 20;

/// All paths below a directory with what they show, the directory itself as "".
///
/// # Errors
/// What the system calls say.
pub fn look_at_all(root: &OwnedFd) -> Result<BTreeMap<Vec<u8>, Shown>, Errno> {
    let mut waiting = BTreeSet::from([Vec::new()]);
    let mut shown = BTreeMap::new();
    let mut first_paths: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for _ in 0..PATHS_MAX {
        let Some(path) = waiting.pop_first() else {
            break;
        };
        let place: &[u8] = if path.is_empty() { b"." } else { &path };
        let stat = statat(root, place, AtFlags::SYMLINK_NOFOLLOW)?;
        let meta = Meta::of(&stat);
        let bytes = match meta.kind {
            Kind::Directory => {
                let names = list(&open(root, place, OFlags::DIRECTORY)?, usize::MAX)?;
                let prefix = if path.is_empty() { Vec::new() } else { [&path[..], b"/"].concat() };
                waiting.extend(names.into_iter().map(|name| [&prefix[..], &name].concat()));
                Vec::new()
            }
            Kind::Symlink => readlinkat(root, place, Vec::new())?.into_bytes(),
            Kind::File => read_all(&open(root, place, OFlags::NOFOLLOW)?, meta.size)?,
            Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => Vec::new(),
        };
        let first_path = first_paths.entry(stat.st_ino).or_insert_with(|| path.clone()).clone();
        let times = (
            stat.st_mtime * SECOND_NS + nanoseconds(stat.st_mtime_nsec),
            stat.st_ctime * SECOND_NS + nanoseconds(stat.st_ctime_nsec),
        );
        let xattrs = match meta.kind {
            Kind::File | Kind::Directory => xattrs(&open(root, place, OFlags::NOFOLLOW)?)?,
            Kind::Symlink | Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
                BTreeMap::new()
            }
        };
        shown.insert(path, Shown { meta, bytes, xattrs, first_path, times });
    }
    Ok(shown)
}

/// The attributes of an open inode that are compared.
fn xattrs(fd: &OwnedFd) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Errno> {
    let mut list = vec![0; 1 << 16];
    let len = flistxattr(fd, &mut list[..])?;
    let names = list.get(..len).unwrap_or_default().split(|byte| *byte == 0);
    let names = names.filter(|name| is_comparable(name));
    names.map(|name| Ok((name.to_vec(), xattr(fd, name)?))).collect()
}

const SECOND_NS: i64 = 1_000_000_000;

fn nanoseconds(part: u64) -> i64 {
    i64::try_from(part).unwrap_or(0)
}

/// The names in a directory in byte order, read with a buffer for about `at_a_time` short ones.
///
/// # Errors
/// What the system calls say.
pub(super) fn list(fd: &OwnedFd, at_a_time: usize) -> Result<Vec<Vec<u8>>, Errno> {
    /// The longest entry that the kernel returns, and more.
    const ENTRY_BYTES_MAX: usize = 300;
    const SHORT_ENTRY_BYTES: usize = 32;
    seek(fd, rustix::fs::SeekFrom::Start(0))?;
    let len = at_a_time.saturating_mul(SHORT_ENTRY_BYTES).clamp(ENTRY_BYTES_MAX, 1 << 16);
    let mut buffer = vec![MaybeUninit::uninit(); len];
    let mut entries = RawDir::new(fd, &mut buffer);
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        names.push(entry?.file_name().to_bytes().to_vec());
        if names.len() > PATHS_MAX {
            return Err(Errno::LOOP);
        }
    }
    names.sort_unstable();
    for dot in [&b"."[..], b".."] {
        // Both sides must list them once; the rest of the names is compared as it is.
        names.binary_search_by(|name| name.as_slice().cmp(dot)).map_err(|_| Errno::NOENT)?;
        names.retain(|name| name != dot);
    }
    Ok(names)
}

fn open(root: &OwnedFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    openat(root, path, flags | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

fn read_all(fd: &OwnedFd, size: u64) -> Result<Vec<u8>, Errno> {
    let len = usize::try_from(size.min(READ_BYTES_MAX)).unwrap_or(0);
    let mut bytes = vec![0; len];
    let mut done = 0;
    // Each turn reads at least a byte or ends.
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pread(fd, rest, done as u64)? {
            0 => break,
            read => done += read,
        }
    }
    bytes.truncate(done);
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(used);
    Ok(bytes)
}
