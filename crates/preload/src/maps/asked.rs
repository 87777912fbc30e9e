//! What a call asks to be mapped, and the addresses for it.

use std::ops::Range;

use crate::base::sys::{Args, Ret, fail, sys};
use crate::fds::table::InUse;
use crate::maps::{PAGE, Part};

/// Flags of `mmap` that may stand beside the kind of mapping.
const KNOWN: i32 = libc::MAP_TYPE
    | PLACED
    | libc::MAP_POPULATE
    | libc::MAP_NORESERVE
    | libc::MAP_LOCKED
    | libc::MAP_NONBLOCK
    | libc::MAP_STACK
    | libc::MAP_DENYWRITE
    | libc::MAP_SYNC;
/// What `mprotect` takes. `mmap` passes over all else.
const ACCESS: i32 = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC | PROT_SEM;
/// Memory for atomic instructions, where that is different.
const PROT_SEM: i32 = 8;
/// Those that say where.
const PLACED: i32 = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE;

/// What a call asks to be mapped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    at: u64,
    pub(crate) len: u64,
    pub(crate) access: u64,
    pub(crate) flags: i32,
    pub(crate) offset: u64,
    /// The file is open for writing.
    pub(crate) file_writes: bool,
    /// What it shows may have been stored to before, and is not written back.
    pub(crate) stored: bool,
}

impl Asked {
    /// What is asked for; nothing where the kernel is to say what is wrong with it.
    pub(crate) fn of(args: &Args) -> Option<Self> {
        let [at, len, access, flags, _, offset] = *args;
        let len = len.checked_next_multiple_of(PAGE).filter(|len| *len > 0)?;
        let flags = flags as i32;
        let kind = flags & libc::MAP_TYPE;
        let is_known =
            matches!(kind, libc::MAP_SHARED | libc::MAP_PRIVATE | libc::MAP_SHARED_VALIDATE)
                && flags & !KNOWN == 0;
        let good = is_known && offset % PAGE == 0 && offset.checked_add(len).is_some();
        let access = access & ACCESS as u64;
        let executes = access & libc::PROT_EXEC as u64 != 0;
        let asked = Self { at, len, access, flags, offset, file_writes: false, stored: false };
        (good && !executes).then_some(asked)
    }

    /// Whether it is asked that stores are durable without a call (`MAP_SYNC`), as they are in no mapping of a FUSE mount
    /// nor in one that may become one of it.
    pub(crate) fn is_synced(args: &Args) -> bool {
        let flags = args[3] as i32;
        flags & libc::MAP_TYPE == libc::MAP_SHARED_VALIDATE && flags & libc::MAP_SYNC != 0
    }

    /// The same mapping elsewhere, and of another length.
    pub(crate) fn of_part(part: &Part, (at, flags): (u64, i32), len: u64) -> Self {
        let kind = if part.shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        let Part { access, offset, writes: file_writes, stored, .. } = *part;
        Self { at, len, access, flags: flags | kind, offset, file_writes, stored }
    }

    /// The same, of a file that is open for writing, or not.
    pub(crate) fn of_file(self, file_writes: bool) -> Self {
        Self { file_writes, ..self }
    }

    pub(crate) fn shared(&self) -> bool {
        self.flags & libc::MAP_TYPE != libc::MAP_PRIVATE
    }

    /// Of the file, in bytes.
    pub(crate) fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.len
    }

    pub(crate) fn writes(&self) -> bool {
        self.access & libc::PROT_WRITE as u64 != 0
    }

    pub(crate) fn is_allowed(&self, description: &InUse) -> bool {
        description.reads() && (!self.shared() || !self.writes() || description.writes())
    }

    /// Chooses the addresses, and reserves them. What may be replaced (`MAP_FIXED`) stays until something else is put
    /// there: other threads, which may know it, find the one or the other. Nothing is reserved then.
    pub(crate) fn reserve(&self) -> Result<Addresses, Ret> {
        let replaces = self.flags & PLACED == libc::MAP_FIXED;
        let placed = if replaces { libc::MAP_FIXED_NOREPLACE } else { self.flags & PLACED };
        let reserved = self.map_nothing(self.at, placed);
        if replaces && reserved == fail(libc::EEXIST) {
            return Ok(Addresses { start: self.at, len: 0 });
        }
        let start = u64::try_from(reserved).map_err(|_| reserved)?;
        Ok(Addresses { start, len: self.len })
    }

    /// Whether so much more may be locked, as far as it is to be. To be asked first: what is put there piece by piece
    /// is in the place of something else by the time that the kernel refuses one.
    pub(crate) fn may_lock(&self) -> Result<(), Ret> {
        if self.flags & libc::MAP_LOCKED != 0 {
            let locked = self.map_nothing(0, libc::MAP_LOCKED);
            let start = u64::try_from(locked).map_err(|_| locked)?;
            sys!(libc::SYS_munmap, start, self.len);
        }
        Ok(())
    }

    /// Maps memory that can't be touched.
    fn map_nothing(&self, at: u64, flags: i32) -> Ret {
        let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        sys!(libc::SYS_mmap, at, self.len, libc::PROT_NONE, flags, u64::MAX, 0)
    }

    /// The flags for a piece of it that is put where addresses are reserved.
    pub(crate) fn flags_of_piece(&self, kind: i32) -> i32 {
        let kept = libc::MAP_POPULATE | libc::MAP_NORESERVE | libc::MAP_LOCKED;
        kind | libc::MAP_FIXED | self.flags & kept
    }
}

/// Addresses for a mapping.
pub(crate) struct Addresses {
    pub(crate) start: u64,
    /// As far as nothing was there.
    pub(crate) len: u64,
}
