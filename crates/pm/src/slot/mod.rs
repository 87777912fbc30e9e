//! A pool's slots: found, checked, sized, mapped and faulted in.
//!
//! `Slot::open` is the way for a path: what is there (`source`), how long it is, whether all its
//! blocks exist (`blocks`), then the mapping and its pages (`mapping`). Only `Pm::open` calls it. What
//! the memory survives is asked for later (`blocks`, `provider`). `forks` keeps locks from children.

mod blocks;
pub(crate) mod failure;
pub(crate) mod forks;
mod mapping;
mod places;
mod provider;
mod source;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use forks::{Entered, between_forks};
use mapping::{Mapping, Share};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use source::Source;

use crate::{PAGE, PmError, PmOptions, SlotKind, SlotLock, SlotMemory, SlotSpec};

/// The greatest length of a slot, bytes: an address has 48 bits for the byte.
const SLOT_BYTES_MAX: u64 = 1 << 48;

/// Alignment of a mapping, bytes, so that 2 MB pages fit.
const MAP_ALIGN: u64 = 2 << 20;

/// One slot, mapped for as long as this lives.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) kind: SlotKind,
    /// Where the file is locked; before the file, which is closed after it.
    _entered: Option<Entered>,
    pub(crate) file: Option<File>,
    /// Which file this is, to find one given twice; `None` for private memory.
    identity: Option<(u64, u64)>,
    /// Bytes of the pages that its mapping is made of, at least: what a mapping that takes a part of it over
    /// must be made of too.
    unit: u64,
    /// Nothing of it can be reached.
    is_absent: bool,
    /// The process that has locked it here; 0 where none has.
    locked_by: AtomicU32,
    mapping: Mapping,
}

impl Drop for Slot {
    /// The lock goes with the file's last descriptor, of which a child of `fork` has one for as long as it
    /// lives. It is given up here, but not by such a child.
    fn drop(&mut self) {
        let is_own = *self.locked_by.get_mut() == process::id();
        if let Some(file) = self.file.as_ref().filter(|_| is_own) {
            // Where it can't be, the descriptor's end does it.
            rustix::fs::flock(file, FlockOperation::Unlock).unwrap_or_default();
        }
    }
}

impl Slot {
    /// Opens and maps the slot at `spec`.
    pub(crate) fn open(spec: &SlotSpec, options: &PmOptions) -> Result<Self, PmError> {
        let path = spec.path.as_path();
        let reads_alone = options.read_only || options.scratch;
        let source = Source::open(path, reads_alone, options)?;
        let len = checked_len(path, source.len)?;
        let align = source.align.max(MAP_ALIGN);
        let kind = match source.is_regular {
            true if Mapping::takes_sync(&source.file) => SlotKind::DaxFile,
            true => SlotKind::File,
            false => SlotKind::DaxDevice,
        };
        let sync = kind == SlotKind::DaxFile;
        let share = match (options.scratch, sync) {
            (true, _) => Share::Scratch,
            (false, true) => Share::Sync,
            (false, false) => Share::Plain,
        };
        let mapping = Mapping::of_file(&source.file, len, align, options.read_only, share)
            .map_err(unmapped(path, len))?;
        // Who opened the pool for those that join it has seen to that.
        if source.is_regular && !reads_alone && options.lock != SlotLock::Shared {
            blocks::ensure(path, &source.file, len, options.hugepages.then_some(&mapping))?;
        }
        prepare(&mapping, options).map_err(io_error(path, "fault its pages in"))?;
        let identity = Some(source.identity);
        let locked_by = AtomicU32::new(0);
        let unit = source.align.max(PAGE);
        let is_locked = !reads_alone && options.lock != SlotLock::Held;
        let (entered, file) = if is_locked {
            let (entered, file) = apart(&source, path, options)?;
            (Some(entered), file)
        } else {
            (None, source.file)
        };
        Ok(Self {
            kind,
            _entered: entered,
            file: Some(file),
            identity,
            unit,
            is_absent: false,
            locked_by,
            mapping,
        })
    }

    /// Locks the slot, or changes its lock; the lock goes with the slot in this process, and else with the
    /// file's last descriptor.
    pub(crate) fn lock(&self, path: &Path, lock: SlotLock) -> Result<(), PmError> {
        let Some(file) = &self.file else { return Ok(()) };
        let operation = match lock {
            SlotLock::Held => return Ok(()),
            SlotLock::Exclusive => FlockOperation::NonBlockingLockExclusive,
            SlotLock::Shared => FlockOperation::NonBlockingLockShared,
        };
        match rustix::fs::flock(file, operation) {
            Ok(()) => {
                self.locked_by.store(process::id(), Relaxed);
                Ok(())
            }
            Err(Errno::WOULDBLOCK) => Err(PmError::InUse { path: path.to_owned() }),
            Err(error) => Err(io_error(path, "lock")(error)),
        }
    }

    /// `len` bytes of zeroed private memory.
    pub(crate) fn anonymous(len: u64, options: &PmOptions) -> Result<Self, PmError> {
        let path = Path::new("(private memory)");
        let len = checked_len(path, len)?;
        let mapping =
            Mapping::anonymous(len, MAP_ALIGN, options.read_only).map_err(io_error(path, "map"))?;
        prepare(&mapping, options).map_err(io_error(path, "fault its pages in"))?;
        let kind = SlotKind::Anonymous;
        let locked_by = AtomicU32::new(0);
        let (file, identity, unit) = (None, None, PAGE);
        Ok(Self {
            kind,
            _entered: None,
            file,
            identity,
            unit,
            is_absent: false,
            locked_by,
            mapping,
        })
    }

    /// In the place of a slot that is not there.
    pub(crate) fn absent(options: &PmOptions) -> Result<Self, PmError> {
        let mut slot = Self::anonymous(PAGE, options)?;
        slot.is_absent = true;
        Ok(slot)
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.mapping.base()
    }

    pub(crate) fn len(&self) -> u64 {
        if self.is_absent { 0 } else { self.mapping.len() }
    }

    /// Bytes that are replaced at once where its memory is gone, a power of two.
    pub(crate) fn unit(&self) -> u64 {
        self.unit
    }

    /// Whether it stands in the place of a slot that is not there.
    pub(crate) fn is_absent(&self) -> bool {
        self.is_absent
    }

    /// See [`Pm::data_from`](crate::Pm::data_from).
    pub(crate) fn data_from(&self, from: u64) -> Option<Range<u64>> {
        match (&self.file, self.kind) {
            (Some(file), SlotKind::File | SlotKind::DaxFile) => {
                blocks::data_from(file, from, self.len())
            }
            _ => (from < self.len()).then(|| from..self.len()),
        }
    }

    /// What memory its bytes are in.
    pub(crate) fn memory(&self) -> SlotMemory {
        match (self.kind, &self.file) {
            (SlotKind::DaxFile, Some(file)) => provider::memory(file, SlotMemory::DaxFile),
            (SlotKind::DaxDevice, Some(file)) => provider::memory(file, SlotMemory::DaxDevice),
            (SlotKind::File, Some(file)) => blocks::memory(file),
            (_, None) | (SlotKind::Anonymous, _) => SlotMemory::Private,
        }
    }

    /// File system and inode of its file; none of private memory.
    pub(crate) fn identity(&self) -> Option<(u64, u64)> {
        self.identity
    }

    /// Whether both are one file.
    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        self.identity.is_some() && self.identity == other.identity
    }
}

/// The file that a slot is locked by. Its mapping, which a child of `fork` has too, is of another opening and keeps no
/// lock.
fn apart(source: &Source, path: &Path, options: &PmOptions) -> Result<(Entered, File), PmError> {
    between_forks(|| {
        let file = source.again(path, options)?;
        let entered = Entered::of(&file).map_err(io_error(path, "stat"))?;
        Ok((entered, file))
    })
}

/// `found` rounded down to whole pages, or why a slot cannot have that length.
fn checked_len(path: &Path, found: u64) -> Result<u64, PmError> {
    let len = found - found % PAGE;
    if len == 0 {
        return Err(PmError::TooSmall { path: path.into(), found, needed: PAGE });
    }
    if len > SLOT_BYTES_MAX {
        return Err(PmError::TooLarge { path: path.into(), found, allowed: SLOT_BYTES_MAX });
    }
    Ok(len)
}

/// Huge pages and populating, as the options say.
fn prepare(mapping: &Mapping, options: &PmOptions) -> io::Result<()> {
    if options.hugepages {
        mapping.advise_huge();
    }
    if options.populate {
        mapping.populate(options.read_only)?;
    }
    if options.hugepages && options.populate {
        mapping.collapse();
    }
    Ok(())
}

/// A closure that says why a slot of `len` bytes is not mapped.
fn unmapped(path: &Path, len: u64) -> impl FnOnce(Errno) -> PmError {
    let path = PathBuf::from(path);
    move |error| match error {
        Errno::NOMEM => PmError::Unmappable { path, len, source: error.into() },
        _ => PmError::Io { path, action: "map", source: error.into() },
    }
}

/// A closure that makes a [`PmError::Io`] for `path`.
fn io_error<E: Into<io::Error>>(path: &Path, action: &'static str) -> impl FnOnce(E) -> PmError {
    let path = PathBuf::from(path);
    move |source| PmError::Io { path, action, source: source.into() }
}
