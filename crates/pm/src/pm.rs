//! The pool's slots as one address space: opened, bounds-checked, counted.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use novale_layout::PmAddr;

use crate::ahead::Asked;
use crate::counters::{Registry, SLOTS_MAX};
use crate::cpu::{self, Cpu};
use crate::device::{Device, DeviceError, Model};
use crate::observer::Both;
use crate::slot::Slot;
use crate::slot::failure::{Health, Mapped, Range, count_lost};
use crate::window::Windows;
use crate::{
    CountSource, Counters, Observer, OutOfRange, PAGE, PmError, PmOptions, SlotKind, SlotLock,
    SlotMemory, SlotSpec, to_usize,
};

/// A pool's slots, mapped: the only way to its bytes.
///
/// Shared by reference between threads; the labels that stores return stay on their thread. The
/// files must not be made shorter while they are mapped: an access beyond their end kills a process
/// that has not asked to survive it ([`survive_failing_slots`](crate::survive_failing_slots)).
pub struct Pm {
    /// Where the slots are mapped, of all that there may be.
    mapped: &'static Mapped,
    pub(crate) cpu: Cpu,
    pub(crate) registry: Registry,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// The memory that is emulated; an observer too.
    model: Option<Arc<Model>>,
    /// Which pages were mapped ahead, by slot.
    pub(crate) asked: Box<[Option<Asked>]>,
    /// What programs have mapped once more.
    pub(crate) windows: Arc<Windows>,
    read_only: bool,
    /// Keeps the mappings alive that `mapped` points into.
    slots: Box<[Slot]>,
    /// Slots that came since, in their order.
    added: Box<[OnceLock<Slot>; SPARE_SLOTS]>,
}

/// Slots that can be added to a pool while it is mapped ([`Pm::adopt`]): threads count for so many more.
pub const SPARE_SLOTS: usize = 4;

// SAFETY: the pointers are to mappings that `slots` owns and that are not tied to a thread; all
// access through them is by atomics or opaque assembly, which may race.
unsafe impl Send for Pm {}
// SAFETY: as above.
unsafe impl Sync for Pm {}

impl std::fmt::Debug for Pm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pm")
            .field("slots", &self.slots)
            .field("added", &self.added)
            .field("cpu", &self.cpu)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

impl Drop for Pm {
    fn drop(&mut self) {
        self.mapped.leave();
    }
}

impl Pm {
    /// Opens and maps `slots`, in their order.
    ///
    /// # Errors
    /// [`PmError`] says which slot cannot be used and why; nothing stays mapped then.
    pub fn open(slots: &[SlotSpec], options: &PmOptions) -> Result<Self, PmError> {
        check_count(slots.len())?;
        let mut opened: Vec<Slot> = Vec::with_capacity(slots.len());
        for spec in slots {
            let slot = Slot::open(spec, options)?;
            if let Some(first) = opened.iter().position(|o| o.is_same_file(&slot)) {
                return Err(PmError::Duplicate { path: spec.path.clone(), first });
            }
            opened.push(slot);
        }
        if !options.read_only && !options.scratch && options.lock != SlotLock::Held {
            for (slot, spec) in opened.iter().zip(slots) {
                slot.lock(&spec.path, options.lock)?;
            }
        }
        Self::new(opened, options)
    }

    /// As [`Pm::open`], read-only and without locks, with slots that are not there: every access to
    /// one of those is out of range.
    ///
    /// # Errors
    /// As [`Pm::open`].
    pub fn open_some(slots: &[Option<SlotSpec>]) -> Result<Self, PmError> {
        Self::open_there(slots, &PmOptions { read_only: true, ..PmOptions::default() })
    }

    /// The same as the options say, also to be written to; the caller has locked the slots that are there.
    ///
    /// # Errors
    /// As [`Pm::open`].
    pub fn open_there(slots: &[Option<SlotSpec>], options: &PmOptions) -> Result<Self, PmError> {
        check_count(slots.len())?;
        let slots: Result<Vec<Slot>, PmError> = slots
            .iter()
            .map(|spec| {
                spec.as_ref().map_or_else(|| Slot::absent(options), |s| Slot::open(s, options))
            })
            .collect();
        Self::new(slots?, options)
    }

    /// Lets others join ([`SlotLock::Shared`]), once what they need to find is there.
    ///
    /// # Errors
    /// [`PmError::InUse`] where somebody else took a slot alone meanwhile: the kernel gives a lock up
    /// before it takes the other. Nothing may be stored any more then.
    pub fn share(&self) -> Result<(), PmError> {
        self.all_slots().try_for_each(|slot| slot.lock(Path::new("a slot"), SlotLock::Shared))
    }

    /// Adds a slot, mapped alone in `new`, behind the last. Nothing is stored to it. Callers do so one after the
    /// other. Returns its number; none where there is no place for it ([`Pm::can_adopt`]), or `new` has several.
    #[must_use]
    pub fn adopt(&self, mut new: Self) -> Option<u8> {
        let index = usize::from(self.slot_count());
        if !self.can_adopt() || self.lacking() != 0 || new.read_only || new.slots.len() != 1 {
            return None;
        }
        let place = self.added.get(index - self.slots.len())?;
        let slot = std::mem::take(&mut new.slots).into_iter().next()?;
        let slot = place.get_or_init(|| slot);
        self.mapped.enter(index, slot, false);
        if self.model.as_ref().is_some_and(|model| model.delays_loads())
            && let Some(range) = self.mapped.slots.get(index)
        {
            range.delay_loads();
        }
        u8::try_from(index).ok()
    }

    /// Whether a slot more can be added: up to [`SPARE_SLOTS`], to what is mapped for writing.
    #[must_use]
    pub fn can_adopt(&self) -> bool {
        let index = usize::from(self.slot_count());
        !self.read_only && index < SLOTS_MAX && index - self.slots.len() < SPARE_SLOTS
    }

    fn slot(&self, slot: u8) -> Option<&Slot> {
        let (slot, count) = (usize::from(slot), self.slots.len());
        match slot.checked_sub(count) {
            Some(added) => self.added.get(added)?.get(),
            None => self.slots.get(slot),
        }
    }

    fn all_slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().chain(self.added.iter().map_while(OnceLock::get))
    }

    /// A number that stands for the slots' files, in their order: the same in all processes that have these
    /// open, and another one where a copy lies in the place of one of them.
    #[must_use]
    pub fn files(&self) -> u64 {
        let mix =
            |sum: u64, word: u64| (sum ^ word).rotate_left(29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.all_slots().fold(0, |sum, slot| {
            let (system, inode) = slot.identity().unwrap_or_default();
            mix(mix(sum, system), inode)
        })
    }

    /// Maps zeroed private memory, one slot for each length (bytes), for tests and embedding.
    ///
    /// # Errors
    /// As [`Pm::open`]: lengths below a page or above an address, too many slots, no memory.
    pub fn anonymous(lens: &[u64], options: &PmOptions) -> Result<Self, PmError> {
        check_count(lens.len())?;
        let slots: Result<Vec<Slot>, PmError> =
            lens.iter().map(|&len| Slot::anonymous(len, options)).collect();
        Self::new(slots?, options)
    }

    fn new(slots: Vec<Slot>, options: &PmOptions) -> Result<Self, PmError> {
        let eadr = options.eadr.unwrap_or(false);
        let cpu = Cpu::choose(options.write_back, eadr)?;
        let mapped = Mapped::take();
        for (index, slot) in slots.iter().enumerate() {
            mapped.enter(index, slot, options.read_only);
        }
        Ok(Self {
            mapped,
            cpu,
            registry: Registry::new(counted(slots.len()), eadr),
            observer: options.observer.clone(),
            model: None,
            asked: slots.iter().map(|slot| Asked::of(slot, options)).collect(),
            windows: Arc::default(),
            read_only: options.read_only,
            slots: slots.into_boxed_slice(),
            added: Box::default(),
        })
    }

    /// Slots, 1 to 64.
    #[must_use]
    pub fn slot_count(&self) -> u8 {
        u8::try_from(self.all_slots().count()).unwrap_or(u8::MAX)
    }

    /// Bytes of `slot`, a multiple of 4096; 0 when there is no such slot.
    #[must_use]
    pub fn slot_len(&self, slot: u8) -> u64 {
        self.slot(slot).map_or(0, Slot::len)
    }

    /// What `slot` is.
    ///
    /// # Panics
    /// When there is no such slot.
    #[must_use]
    pub fn slot_kind(&self, slot: u8) -> SlotKind {
        match self.slot(slot) {
            Some(found) => found.kind,
            None => no_slot(slot),
        }
    }

    /// What memory the bytes of `slot` are in.
    ///
    /// # Panics
    /// When there is no such slot.
    #[must_use]
    pub fn slot_memory(&self, slot: u8) -> SlotMemory {
        match self.slot(slot) {
            Some(found) => found.memory(),
            None => no_slot(slot),
        }
    }

    /// The open file of `slot`; `None` for private memory, or when there is no such slot.
    #[must_use]
    pub fn slot_file(&self, slot: u8) -> Option<&File> {
        self.slot(slot).and_then(|found| found.file.as_ref())
    }

    /// The next bytes of a slot from `from` on that are no hole of its file, in whole pages. Holes are zeros, and to
    /// read them by the mapping takes memory of a tmpfs.
    #[must_use]
    pub fn data_from(&self, slot: u8, from: u64) -> Option<std::ops::Range<u64>> {
        self.slot(slot)?.data_from(from)
    }

    /// Which slots have failed, and whether this thread has lost anything by it.
    #[inline]
    #[must_use]
    pub fn health(&self) -> Health {
        self.mapped.health()
    }

    /// Marks slots as failed, by their bits: somebody else has found them so. Nothing is loaded from them
    /// any more, and what is stored to them counts as lost.
    pub fn set_failed(&self, slots: u64) {
        self.mapped.fail(slots);
    }

    fn has_failed(&self, slot: u8) -> bool {
        (self.mapped.failed() | self.lacking()).checked_shr(slot.into()).unwrap_or(0) & 1 != 0
    }

    /// Marks slots that others have added and that can't be mapped here, by their bits: what is loaded there is
    /// lost, and what is stored goes nowhere and counts as lost.
    pub fn lack(&self, slots: u64) {
        self.mapped.lack(slots);
    }

    /// A bit for each slot that was marked by [`Pm::lack`].
    #[inline]
    #[must_use]
    pub fn lacking(&self) -> u64 {
        self.mapped.lacking()
    }

    /// Whether a slot was marked by [`Pm::lack`].
    #[inline]
    #[must_use]
    pub fn lacks(&self, slot: u8) -> bool {
        self.lacking().checked_shr(slot.into()).unwrap_or(0) & 1 != 0
    }

    /// File system and inode of a slot's file; none of private memory.
    #[must_use]
    pub fn slot_identity(&self, slot: u8) -> Option<(u64, u64)> {
        self.slot(slot)?.identity()
    }

    /// A bit for each slot that was not there when the pool was opened ([`Pm::open_some`]).
    #[must_use]
    pub fn absent_slots(&self) -> u64 {
        let absent = self.slots.iter().enumerate().filter(|(_, slot)| slot.is_absent());
        absent.fold(0, |slots, (slot, _)| slots | 1 << slot)
    }

    /// Whether a slot was not there when the pool was opened.
    #[must_use]
    pub fn is_absent(&self, slot: u8) -> bool {
        self.slot(slot).is_some_and(Slot::is_absent)
    }

    /// Whether `len` bytes from `addr` lie in one slot, or may lie in one that is not there: to load those is
    /// to find them lost.
    #[must_use]
    pub fn may_hold(&self, addr: PmAddr, len: u64) -> bool {
        let is_away = || self.is_absent(addr.slot()) || self.lacks(addr.slot());
        self.contains(addr, len) || (addr.reserved_bits_clear() && is_away())
    }

    /// Whether stores are refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The write-back instruction in use; `None` under eADR.
    #[must_use]
    pub fn write_back_kind(&self) -> Option<crate::WriteBackKind> {
        self.cpu.write_back
    }

    /// Whether `len` bytes from `addr` lie in one slot.
    #[inline]
    #[must_use]
    pub fn contains(&self, addr: PmAddr, len: u64) -> bool {
        self.mapped_ptr(addr, len).is_ok()
    }

    /// What all threads have stored, written back and fenced since the pool was opened.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.registry.counters()
    }

    /// What the calling thread has stored, written back and fenced since its first access.
    #[must_use]
    pub fn thread_counters(&self) -> Counters {
        self.registry.thread_counters()
    }

    /// Has all threads count in words that `source` gives from now on, or in this process' own; what was
    /// counted so far is added to those of the calling thread.
    pub fn set_count_source(&mut self, source: Option<CountSource>) {
        self.registry = self.registry.moved(source);
    }

    /// Counts from 0 on again.
    pub fn restart_counts(&mut self) {
        self.registry = Registry::new(counted(self.slots.len()), self.cpu.write_back.is_none());
    }

    /// Counts that somebody has asked for `bytes` to be stored; `kind` (below [`ASKED_KINDS`]) means what
    /// the caller says.
    ///
    /// [`ASKED_KINDS`]: crate::ASKED_KINDS
    #[inline]
    pub fn count_asked(&self, kind: usize, bytes: u64) {
        self.registry.shard().asked(kind, 1, bytes);
    }

    /// As [`Pm::count_asked`], of two counts of any meaning.
    pub fn count_two(&self, kind: usize, first: u64, second: u64) {
        self.registry.shard().asked(kind, first, second);
    }

    /// Emulates a memory from now on, until this is dropped.
    ///
    /// # Errors
    /// [`DeviceError::NoFlush`].
    pub fn set_model(&mut self, model: Model) -> Result<(), DeviceError> {
        if let Some(kind) = model.device().flush {
            let chosen = Cpu::choose(Some(kind), self.cpu.write_back.is_none());
            let chosen = chosen.map_err(|error| DeviceError::NoFlush(error.to_string()))?;
            self.cpu = Cpu { streams: false, ..chosen };
        }
        let model = Arc::new(model);
        if model.delays_loads() {
            self.mapped.slots.iter().for_each(Range::delay_loads);
        }
        self.observer = Some(match self.observer.take() {
            None => model.clone(),
            Some(observer) => Arc::new(Both(observer, model.clone())),
        });
        self.model = Some(model);
        Ok(())
    }

    /// The memory that is emulated: what is measured is that one's, then, and should say so.
    #[must_use]
    pub fn device(&self) -> Option<&Device> {
        self.model.as_ref().map(|model| model.device())
    }

    /// The pointer to `len` bytes that are about to be loaded.
    #[inline(always)]
    pub(crate) fn load_ptr(&self, addr: PmAddr, len: u64) -> Result<*const u8, OutOfRange> {
        match self.mapped.slots.get(usize::from(addr.slot())) {
            Some(range)
                if addr.reserved_bits_clear()
                    && len <= range.load_len()
                    && addr.byte() <= range.load_len() - len =>
            {
                Ok(range.base().wrapping_add(to_usize(addr.byte())))
            }
            _ => self.delayed_ptr(addr, len),
        }
    }

    /// The same of bytes in a page, from byte `from` of it on, which are not beyond its end.
    #[inline(always)]
    pub(crate) fn load_ptr_in_page(
        &self,
        page: PmAddr,
        from: u64,
        len: u64,
    ) -> Result<*const u8, OutOfRange> {
        match self.mapped.slots.get(usize::from(page.slot())) {
            Some(range)
                if page.reserved_bits_clear()
                    && PAGE <= range.load_len()
                    && page.byte() <= range.load_len() - PAGE =>
            {
                Ok(range.base().wrapping_add(to_usize(page.byte() + from)))
            }
            _ => {
                self.mapped_ptr(page, PAGE)?;
                self.delayed_ptr(page.add(from), len)
            }
        }
    }

    /// The pointer to bytes that are not there, or of a memory whose loads take time.
    #[cold]
    #[inline(never)]
    fn delayed_ptr(&self, addr: PmAddr, len: u64) -> Result<*const u8, OutOfRange> {
        let found = self.mapped_ptr(addr, len)?;
        if self.has_failed(addr.slot()) {
            return Err(OutOfRange { addr, len, is_lost: true });
        }
        if let Some(model) = &self.model {
            model.loaded(addr, len);
        }
        Ok(found)
    }

    /// The pointer to `len` mapped bytes.
    #[inline(always)]
    pub(crate) fn mapped_ptr(&self, addr: PmAddr, len: u64) -> Result<*const u8, OutOfRange> {
        match self.mapped.slots.get(usize::from(addr.slot())) {
            Some(range)
                if addr.reserved_bits_clear()
                    && len <= range.len()
                    && addr.byte() <= range.len() - len =>
            {
                Ok(range.base().wrapping_add(to_usize(addr.byte())))
            }
            _ => Err(OutOfRange { addr, len, is_lost: self.has_failed(addr.slot()) }),
        }
    }

    /// The pointer to `len` writable bytes; none where they go nowhere ([`Pm::lack`]).
    #[inline(always)]
    #[track_caller]
    pub(crate) fn store_ptr(&self, addr: PmAddr, len: u64) -> Option<*mut u8> {
        match self.mapped.slots.get(usize::from(addr.slot())) {
            // Looked at once: it is 0 as soon as another thread finds that the slot has failed.
            Some(range)
                if addr.reserved_bits_clear()
                    && range
                        .store_len()
                        .checked_sub(len)
                        .is_some_and(|last| addr.byte() <= last) =>
            {
                Some(range.base().wrapping_add(to_usize(addr.byte())))
            }
            _ => self.lost_ptr(addr, len),
        }
    }

    /// The pointer to bytes of a slot that has failed, where stores are lost.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn lost_ptr(&self, addr: PmAddr, len: u64) -> Option<*mut u8> {
        if self.lacks(addr.slot()) {
            count_lost();
            return None;
        }
        match self.mapped_ptr(addr, len) {
            Ok(found) if !self.read_only && self.has_failed(addr.slot()) => {
                count_lost();
                Some(found.cast_mut())
            }
            _ => self.refuse("store", addr, len),
        }
    }

    /// Counts what another thread has stored to a slot that is lacking here, and that was to be written back.
    #[cold]
    pub(crate) fn count_lacking(&self, addr: PmAddr) -> bool {
        let lacks = self.lacks(addr.slot());
        if lacks {
            count_lost();
        }
        lacks
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    #[allow(clippy::panic, reason = "an access to where no slot is, is a bug of the caller")]
    pub(crate) fn refuse(&self, what: &str, addr: PmAddr, len: u64) -> ! {
        let is_mapped = self.contains(addr, len);
        assert!(!is_mapped, "{what} of {len} bytes at {addr}: the pool is mapped read-only");
        panic!(
            "{what} of {len} bytes at {addr} (raw {:#018x}) is outside of the pool: slot {} of {} \
             has {} bytes",
            addr.raw(),
            addr.slot(),
            self.slot_count(),
            self.slot_len(addr.slot())
        );
    }
}

/// Slots for which threads count in a pool that is mapped with so many.
fn counted(slots: usize) -> usize {
    (slots + SPARE_SLOTS).min(SLOTS_MAX)
}

fn check_count(found: usize) -> Result<(), PmError> {
    if (1..=SLOTS_MAX).contains(&found) {
        Ok(())
    } else {
        Err(PmError::SlotCount { found, allowed: SLOTS_MAX })
    }
}

#[cold]
#[track_caller]
#[allow(clippy::panic, reason = "asking for a slot that was never given is a bug of the caller")]
fn no_slot(slot: u8) -> ! {
    panic!("the pool has no slot {slot}");
}

/// Refuses an address that an access of `align` bytes cannot take.
#[inline(always)]
#[track_caller]
pub(crate) fn assert_aligned(addr: PmAddr, align: u64) {
    assert!(addr.byte().is_multiple_of(align), "store at {addr} is not aligned to {align} bytes");
}

impl Cpu {
    /// The instructions to use: `wanted`, or the best; none under eADR.
    fn choose(wanted: Option<crate::WriteBackKind>, eadr: bool) -> Result<Self, PmError> {
        let kinds = cpu::write_back_kinds();
        let best = kinds.first().copied().unwrap_or(crate::WriteBackKind::Portable);
        let kind = wanted.unwrap_or(best);
        if !kinds.contains(&kind) {
            return Err(PmError::WriteBackUnsupported { wanted: kind, best });
        }
        let write_back = (!eadr).then_some(kind);
        Ok(Self { write_back, wide: cpu::has_wide(), streams: !eadr })
    }
}
