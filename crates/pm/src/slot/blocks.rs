//! Makes sure that every block of an ordinary file exists, before stores go to its mapping.
//!
//! A store to a hole of a full file system kills the process with SIGBUS; here it is an error.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, fstatfs, fstatvfs, seek};
use rustix::io::Errno;

use super::io_error;
use super::mapping::Mapping;
use crate::{PAGE, PmError, SlotMemory};

/// Bytes a call, so that a signal costs one step only.
const STEP_BYTES: u64 = 64 << 20;

/// How often a step that a signal interrupted is tried.
const TRIES_MAX: u32 = 1000;

// `f_type` of file systems in memory (`linux/magic.h`).
const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

/// What memory an ordinary file's bytes are in; where the kernel does not say, that of which less is
/// promised than of any file's.
pub(super) fn memory(file: &File) -> SlotMemory {
    match fstatfs(file).ok().and_then(|found| u64::try_from(found.f_type).ok()) {
        Some(RAMFS_MAGIC) => SlotMemory::Ramfs,
        Some(HUGETLBFS_MAGIC) => SlotMemory::Hugetlbfs,
        Some(TMPFS_MAGIC) | None => SlotMemory::Tmpfs,
        Some(_) => SlotMemory::PageCache,
    }
}

/// Bytes of the pages that a mapping of an ordinary file is made of, at least.
pub(super) fn page_bytes(file: &File) -> u64 {
    let huge = fstatfs(file).ok().filter(|on| u64::try_from(on.f_type) == Ok(HUGETLBFS_MAGIC));
    let bytes = huge.and_then(|on| u64::try_from(on.f_bsize).ok());
    bytes.filter(|bytes| bytes.is_power_of_two()).unwrap_or(PAGE)
}

/// Allocates what is missing of the first `len` bytes; the length of the file stays. `large` gets room
/// for a file of tmpfs that nobody has stored to yet, as far as it can.
pub(super) fn ensure(
    path: &Path,
    file: &File,
    len: u64,
    large: Option<&Mapping>,
) -> Result<(), PmError> {
    let metadata = file.metadata().map_err(io_error(path, "stat"))?;
    let missing = len.saturating_sub(metadata.blocks().saturating_mul(512));
    // Only on tmpfs does the block count speak of data alone; elsewhere a hole may hide behind
    // blocks of metadata, and asking is cheap because files are extents.
    let magic = fstatfs(file).map_err(io_error(path, "statfs"))?.f_type;
    let in_memory = u64::try_from(magic) == Ok(TMPFS_MAGIC);
    // Of a tmpfs only what has been touched is data, though it is allocated.
    let is_blank = || seek(file, SeekFrom::Data(0)) == Err(Errno::NXIO);
    let large = large.filter(|_| in_memory && is_blank());
    if missing == 0 && in_memory && large.is_none() {
        return Ok(());
    }
    let room = fstatvfs(file).map_err(io_error(path, "statvfs"))?;
    let available = room.f_bavail.saturating_mul(room.f_frsize);
    let no_space = || PmError::NoSpace { path: path.into(), needed: missing, available };
    // Asked first, so that a file that cannot fit does not fill the file system on the way.
    if !fits(missing, available, room.f_blocks) {
        return Err(no_space());
    }
    if let Some(mapping) = large {
        mapping.fill_with_large_pages(file);
    }
    for start in (0..len).step_by(crate::to_usize(STEP_BYTES)) {
        match allocate(file, start, STEP_BYTES.min(len - start)) {
            Ok(()) => {}
            Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => return Err(no_space()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return refuse_holes(path, file, len),
            Err(e) => return Err(io_error(path, "allocate its blocks")(e)),
        }
    }
    Ok(())
}

/// The next bytes from `from` on, below `len`, that are no hole of the file. Where the file system can't tell, all of
/// them are.
pub(super) fn data_from(file: &File, from: u64, len: u64) -> Option<Range<u64>> {
    let found = match seek(file, SeekFrom::Data(from)) {
        Ok(start) => {
            let end = seek(file, SeekFrom::Hole(start)).unwrap_or(len).min(len);
            start - start % PAGE..end.next_multiple_of(PAGE)
        }
        Err(Errno::NXIO) => return None,
        Err(_) => from..len,
    };
    (found.start < found.end.min(len)).then_some(found)
}

/// Whether `missing` bytes fit into `available`; a file system of 0 blocks is a tmpfs without limit.
fn fits(missing: u64, available: u64, blocks: u64) -> bool {
    missing <= available || blocks == 0
}

/// One step, tried again when a signal interrupts it.
fn allocate(file: &File, start: u64, len: u64) -> Result<(), Errno> {
    for _ in 1..TRIES_MAX {
        match fallocate(file, FallocateFlags::KEEP_SIZE, start, len) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
    fallocate(file, FallocateFlags::KEEP_SIZE, start, len)
}

/// Where blocks cannot be allocated ahead: a file without holes is fine.
fn refuse_holes(path: &Path, file: &File, len: u64) -> Result<(), PmError> {
    match seek(file, SeekFrom::Hole(0)) {
        Ok(hole) if hole >= len => Ok(()),
        Ok(_) => {
            Err(PmError::Holes { path: path.into(), source: io::Error::from(Errno::OPNOTSUPP) })
        }
        Err(e) => Err(PmError::Holes { path: path.into(), source: e.into() }),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn without_allocation_only_a_file_without_holes_will_do() {
        let mut named = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        let path = named.path().to_path_buf();
        let file = named.as_file_mut();
        file.write_all(&[1; 8192]).unwrap();
        refuse_holes(&path, file, 8192).unwrap();
        file.set_len(12288).unwrap();
        refuse_holes(&path, file, 8192).unwrap();
        let error = refuse_holes(&path, file, 12288).unwrap_err().to_string();
        assert!(error.contains("has holes and its file system cannot allocate them"), "{error}");
    }

    #[test]
    fn a_file_in_memory_is_told_from_one_on_a_medium() {
        let in_memory = tempfile::tempfile_in("/dev/shm").unwrap();
        assert_eq!(memory(&in_memory), SlotMemory::Tmpfs);
        // What is never in memory alone.
        assert_eq!(memory(&File::open("/proc/self/stat").unwrap()), SlotMemory::PageCache);
    }

    #[test]
    fn what_is_missing_fits_or_not() {
        assert!(fits(4096, 4096, 1));
        assert!(!fits(4097, 4096, 1));
        assert!(fits(0, 0, 1), "a full file system holds what it has");
        assert!(fits(4097, 0, 0), "no limit");
    }

    /// Longer than a step, and not a multiple of it.
    #[test]
    fn every_step_up_to_the_last_byte_is_allocated() {
        let named = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        let len = STEP_BYTES + 3 * 4096;
        named.as_file().set_len(len).unwrap();
        ensure(named.path(), named.as_file(), len, None).unwrap();
        assert_eq!(named.as_file().metadata().unwrap().blocks() * 512, len);
        // A file that has all its blocks is left alone.
        ensure(named.path(), named.as_file(), len, None).unwrap();
    }
}
