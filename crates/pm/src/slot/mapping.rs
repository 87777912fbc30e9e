//! One mapping at an aligned address, and its pages.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ptr;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::{PAGE, to_usize};

/// Bytes populated a call, so that progress could be told between calls.
const STEP_BYTES: usize = 64 << 20;

/// A range of mapped memory; unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    base: *mut u8,
    len: usize,
}

// SAFETY: the range is not tied to a thread; all access to it is through raw pointers whose
// users (the rest of this crate) only make racing-safe accesses.
unsafe impl Send for Mapping {}
// SAFETY: as above; the methods themselves only ask the kernel.
unsafe impl Sync for Mapping {}

/// Whom the stores to a file's mapping reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    /// The file.
    Plain,
    /// The file on a DAX file system (`MAP_SYNC`).
    Sync,
    /// This process alone.
    Scratch,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `place` and belongs to this value alone; `Pm` gives no
        // pointer into it that outlives itself.
        // If the kernel refuses, the range stays in use until the process ends.
        let _unmapped = unsafe { munmap(self.base.cast(), self.len) };
    }
}

impl Mapping {
    /// Maps the first `len` bytes of `file`.
    pub(super) fn of_file(
        file: &File,
        len: u64,
        align: u64,
        read_only: bool,
        share: Share,
    ) -> Result<Self, Errno> {
        let flags = match share {
            Share::Plain => MapFlags::SHARED,
            Share::Sync => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
            Share::Scratch => MapFlags::PRIVATE | MapFlags::NORESERVE,
        };
        let len = to_usize(len);
        Self::place(len, to_usize(align), |at| {
            // SAFETY: `at` is the start of `len` bytes that `place` reserved for this; replacing
            // a reservation affects nobody.
            unsafe { mmap(at, len, protection(read_only), flags | MapFlags::FIXED, file, 0) }
        })
        .inspect(Self::leave_out_of_cores)
    }

    /// Whether the file is on a DAX file system, which takes `MAP_SYNC`. Asked with a mapping of its
    /// own: some file systems refuse only when a fixed mapping has replaced what was there.
    pub(super) fn takes_sync(file: &File) -> bool {
        let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
        let page = to_usize(PAGE);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapped = unsafe { mmap(ptr::null_mut(), page, ProtFlags::READ, flags, file, 0) };
        // SAFETY: just that mapping, which nothing has seen.
        mapped.is_ok_and(|at| unsafe { munmap(at, page) }.is_ok())
    }

    /// Maps `len` bytes of zeroed private memory.
    pub(super) fn anonymous(len: u64, align: u64, read_only: bool) -> Result<Self, Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let len = to_usize(len);
        Self::place(len, to_usize(align), |at| {
            // SAFETY: as in `of_file`.
            unsafe { mmap_anonymous(at, len, protection(read_only), flags) }
        })
    }

    /// Reserves `len` bytes at a multiple of `align` and lets `map` fill them.
    fn place(
        len: usize,
        align: usize,
        map: impl FnOnce(*mut c_void) -> Result<*mut c_void, Errno>,
    ) -> Result<Self, Errno> {
        let total = len.checked_add(align).ok_or(Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let reserved =
            unsafe { mmap_anonymous(ptr::null_mut(), total, ProtFlags::empty(), flags) }?;
        let head = reserved.cast::<u8>().align_offset(align);
        let at = reserved.cast::<u8>().wrapping_add(head);
        trim(reserved.cast(), head)?;
        trim(at.wrapping_add(len), align - head)?;
        // A fixed mapping that fails may have taken the reservation away already, and another
        // thread's memory may lie there by now: after a failure the range is left alone.
        map(at.cast())?;
        Ok(Self { base: at, len })
    }

    pub(super) fn base(&self) -> *mut u8 {
        self.base
    }

    pub(super) fn len(&self) -> u64 {
        self.len as u64
    }

    /// A core file of a process has none of it, whatever its filter takes: it is of all users' files.
    fn leave_out_of_cores(&self) {
        // SAFETY: the range is this mapping; the advice does not change its contents.
        unsafe { madvise(self.base.cast(), self.len, Advice::LinuxDontDump) }.ok();
    }

    /// Asks for 2 MB pages; a kernel or file system without them changes nothing.
    pub(super) fn advise_huge(&self) {
        // SAFETY: the range is this mapping; the advice does not change its contents.
        unsafe { madvise(self.base.cast(), self.len, Advice::LinuxHugepage) }.ok();
    }

    /// Faults every page in.
    pub(super) fn populate(&self, read_only: bool) -> io::Result<()> {
        let advice = if read_only { Advice::LinuxPopulateRead } else { Advice::LinuxPopulateWrite };
        for start in (0..self.len).step_by(STEP_BYTES) {
            let len = STEP_BYTES.min(self.len - start);
            let at = self.base.wrapping_add(start);
            // SAFETY: within this mapping; populating keeps the contents.
            match unsafe { madvise(at.cast(), len, advice) } {
                Ok(()) => {}
                // Linux before 5.14.
                Err(Errno::INVAL) => touch(at, len),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Puts 2 MB pages of zeros where the tmpfs's `file` mapped here has none, until the kernel refuses
    /// one. It makes them of a hole around a single page in a seventh of the time that 512 pages take,
    /// however the tmpfs is mounted. Contents stay.
    pub(super) fn fill_with_large_pages(&self, file: &File) {
        let large = to_usize(super::MAP_ALIGN);
        for start in (0..self.len / large * large).step_by(large) {
            let first = fallocate(file, FallocateFlags::KEEP_SIZE, start as u64, PAGE);
            let at = self.base.wrapping_add(start);
            // SAFETY: within this mapping; the contents stay the same.
            let is_refused =
                || unsafe { libc::madvise(at.cast(), large, libc::MADV_COLLAPSE) } != 0;
            if first.is_err() || is_refused() {
                return;
            }
        }
    }

    /// Moves the pages into 2 MB pages now, where the kernel can (about 3 s a GB).
    pub(super) fn collapse(&self) {
        for start in (0..self.len).step_by(STEP_BYTES) {
            let at = self.base.wrapping_add(start);
            let len = STEP_BYTES.min(self.len - start);
            // SAFETY: within this mapping; the contents stay the same.
            let result = unsafe { libc::madvise(at.cast(), len, libc::MADV_COLLAPSE) };
            // Without huge pages for this file every further step would fail as well.
            if result != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
                return;
            }
        }
    }
}

fn protection(read_only: bool) -> ProtFlags {
    if read_only { ProtFlags::READ } else { ProtFlags::READ | ProtFlags::WRITE }
}

/// Gives back `len` bytes of a reservation.
fn trim(at: *mut u8, len: usize) -> Result<(), Errno> {
    if len == 0 {
        return Ok(());
    }
    // SAFETY: a part of the reservation that `place` made and that nothing uses.
    unsafe { munmap(at.cast(), len) }
}

/// Reads a byte of each page.
fn touch(at: *const u8, len: usize) {
    for offset in (0..len).step_by(to_usize(PAGE)) {
        // SAFETY: within a mapping that is readable; volatile, so that it happens.
        unsafe { at.wrapping_add(offset).read_volatile() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of `mapping` that are in memory.
    fn resident(mapping: &Mapping) -> usize {
        let mut pages = vec![0; mapping.len / to_usize(PAGE)];
        // SAFETY: one byte for each page of the mapping.
        let result = unsafe { libc::mincore(mapping.base.cast(), mapping.len, pages.as_mut_ptr()) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        pages.iter().filter(|&&page| page & 1 == 1).count()
    }

    #[test]
    fn mappings_are_aligned() {
        for align in [4096, 2 << 20, 1 << 30] {
            for len in [4096, 12288, (2 << 20) + 4096] {
                let mapping = Mapping::anonymous(len, align, false).unwrap();
                assert_eq!(mapping.base.addr() % to_usize(align), 0, "{len} at {align}");
                assert_eq!(mapping.len(), len);
            }
        }
    }

    /// An address space has 128 TB: a terabyte left behind each time would end this early.
    #[test]
    fn mappings_leave_no_address_space_behind() {
        for round in 0..300 {
            let mapping = Mapping::anonymous(1 << 40, 2 << 20, true);
            assert!(mapping.is_ok(), "round {round}: {mapping:?}");
            drop(mapping);
            // What is cut off a reservation for the alignment is given back too.
            let aligned = Mapping::anonymous(4096, 1 << 40, true);
            assert!(aligned.is_ok(), "round {round}: {aligned:?}");
        }
        let unmappable = File::open("/dev/shm").unwrap();
        let error = Mapping::of_file(&unmappable, 4096, 2 << 20, true, Share::Plain).unwrap_err();
        assert_eq!(error, Errno::NODEV);
        assert_eq!(Mapping::anonymous(1 << 62, 2 << 20, true).unwrap_err(), Errno::NOMEM);
    }

    #[test]
    fn populating_faults_every_page_in() {
        let len = 4 << 20;
        for read_only in [false, true] {
            let mapping = Mapping::anonymous(len, 2 << 20, read_only).unwrap();
            assert_eq!(resident(&mapping), 0);
            mapping.populate(read_only).unwrap();
            if !read_only {
                assert_eq!(resident(&mapping), to_usize(len / PAGE));
            }
            touch(mapping.base, mapping.len);
        }
        let mapping = Mapping::anonymous(len, 2 << 20, false).unwrap();
        mapping.advise_huge();
        mapping.populate(false).unwrap();
        mapping.collapse();
        assert_eq!(resident(&mapping), to_usize(len / PAGE));
    }
}
