//! The service's types to `fuser`'s and back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, TimeOrNow};
use novale_core::{Attr, FileKind, Ino};

use crate::service::{Errno, Listed, Opened, Time};

/// What `stat` gives as the best size of a read or write, in bytes.
pub(crate) const BLOCK_BYTES: u32 = 4096;

pub(crate) fn ino(number: INodeNo) -> Ino {
    Ino::new(number.0)
}

pub(crate) fn errno(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.0)
}

pub(crate) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

pub(crate) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino.get()),
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime_ns),
        mtime: system_time(attr.mtime_ns),
        ctime: system_time(attr.ctime_ns),
        crtime: system_time(attr.birth_ns),
        kind: file_type(attr.kind),
        perm: u16::try_from(attr.mode & 0o7777).unwrap_or_default(),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// What is listed of a name whose inode can't be read: its number and its kind.
pub(crate) fn unread_attr(entry: &Listed) -> FileAttr {
    bare_attr(INodeNo(entry.ino.get()), file_type(entry.kind))
}

/// A number and a kind, and nothing else.
pub(crate) fn bare_attr(ino: INodeNo, kind: FileType) -> FileAttr {
    FileAttr {
        ino,
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// An inode's generation as the kernel gets it. It takes the root for one of generation 0 from the
/// start, and before Linux 6.9 gives the whole mount up when a look-up of `..` says otherwise.
pub(crate) fn generation(attr: &Attr) -> Generation {
    Generation(if attr.ino == Ino::ROOT { 0 } else { attr.generation.into() })
}

/// A file needs no handle: the kernel holds its inode as long as it is open.
const NO_HANDLE: FileHandle = FileHandle(0);
/// Of a file that is open with `O_NOATIME`: a copy brings no flags.
pub(crate) const NO_ACCESS: FileHandle = FileHandle(1);

/// The handle of a file that is opened with these flags.
pub(crate) fn file_handle(flags: i32) -> FileHandle {
    if flags & libc::O_NOATIME == 0 { NO_HANDLE } else { NO_ACCESS }
}

pub(crate) fn opened_flags(opened: Opened) -> FopenFlags {
    let mut flags = FopenFlags::empty();
    flags.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keep_cache);
    flags.set(FopenFlags::FOPEN_DIRECT_IO, opened.direct_io);
    flags
}

pub(crate) fn time(time: TimeOrNow) -> Time {
    match time {
        TimeOrNow::Now => Time::Now,
        TimeOrNow::SpecificTime(time) => Time::At(requested_ns(time)),
    }
}

fn system_time(ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    if ns >= 0 { UNIX_EPOCH + distance } else { UNIX_EPOCH - distance }
}

/// The nanoseconds that the kernel asked for, as near as 64 bits can tell them (1677 to 2262).
fn requested_ns(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => {
            let ns = i128::try_from(before.duration().as_nanos()).map_or(i128::MIN, |ns| -ns);
            i64::try_from(ns).unwrap_or(i64::MIN)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{requested_ns, system_time};
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn a_time_before_1970_is_the_same() {
        assert_eq!(requested_ns(UNIX_EPOCH - Duration::from_millis(1_500)), -1_500_000_000);
        assert_eq!(requested_ns(UNIX_EPOCH - Duration::new(2, 0)), -2_000_000_000);
        assert_eq!(
            requested_ns(UNIX_EPOCH - Duration::from_secs(i64::MAX.unsigned_abs())),
            i64::MIN
        );
    }

    #[test]
    fn times_after_1970_survive_both_ways() {
        let ns = 1_700_000_000_123_456_789;
        assert_eq!(requested_ns(system_time(ns)), ns);
        assert_eq!(system_time(-1), UNIX_EPOCH - Duration::from_nanos(1));
    }
}
