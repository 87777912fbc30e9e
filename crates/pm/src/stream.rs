//! Stores past the caches: the cheapest way to durable bytes that are not read back at once.
//!
//! A range is split at line boundaries. Whole lines, and edge lines made of whole 8-byte units,
//! are streamed; an edge line with other bytes is stored plainly and written back. Nothing
//! outside of the range is read or stored, so neighbours may change meanwhile.

use std::panic::Location;

use novale_layout::PmAddr;

use crate::pm::assert_aligned;
use crate::store::tell_store;
use crate::{
    Flushed, LINE, Observer, OutOfRange, PAGE, Pm, Purpose, StoreKind, cpu, lines_touched, to_usize,
};

/// Under eADR, shorter streams are plain stores: a cached store is durable, a trip to memory is
/// not needed. From about here on, reading the lines to store to them costs more (`limit`: 2 KB
/// 129 ns stored, 144 streamed; 4 KB 258 and 193).
const EADR_STREAM_BYTES_MIN: u64 = 3072;

/// A page of zeros to stream from.
#[repr(align(64))]
struct Zeros([u8; 4096]);

static ZEROS: Zeros = Zeros([0; 4096]);

impl Pm {
    /// Stores one line past the caches.
    ///
    /// # Panics
    /// When `addr` is not in a slot or not aligned to 64.
    #[inline]
    #[track_caller]
    pub fn stream_line(&self, addr: PmAddr, line: &[u8; 64], purpose: Purpose) -> Flushed {
        assert_aligned(addr, LINE);
        self.stream(addr, line, purpose)
    }

    /// Stores `bytes` past the caches, any length at any place: until the fence, a crash keeps
    /// any subset of their aligned 8-byte units.
    ///
    /// # Panics
    /// When they are not all in one slot.
    #[inline]
    #[track_caller]
    pub fn stream(&self, addr: PmAddr, bytes: &[u8], purpose: Purpose) -> Flushed {
        let len = bytes.len() as u64;
        let Some(dst) = self.store_ptr(addr, len) else { return Flushed::new() };
        if let Some(observer) = &self.observer {
            self.tell_stream(observer.as_ref(), addr, bytes, purpose, Location::caller());
        }
        // SAFETY: `store_ptr` found `len` writable bytes at `dst`; `bytes` is not in the pool.
        unsafe { self.stream_raw(addr, dst, bytes.as_ptr(), len, purpose) };
        Flushed::new()
    }

    /// Stores `len` zero bytes past the caches, as [`Pm::stream`] does.
    ///
    /// # Panics
    /// When they are not all in one slot.
    #[track_caller]
    pub fn stream_zero(&self, addr: PmAddr, len: u64, purpose: Purpose) -> Flushed {
        if self.store_ptr(addr, len).is_none() {
            return Flushed::new();
        }
        let mut flushed = Flushed::none();
        let mut done = 0;
        while done < len {
            let step = up_to_page_end(addr.byte() + done, len - done);
            let zeros = ZEROS.0.get(..step).unwrap_or(&ZEROS.0);
            flushed = flushed.and(self.stream(addr.add(done), zeros, purpose));
            done += step as u64;
        }
        flushed
    }

    /// Copies `len` bytes from `src` to `dst` past the caches, as [`Pm::stream`] does.
    ///
    /// # Errors
    /// [`OutOfRange`] when the bytes at `src` are not all in one slot; nothing is stored then.
    ///
    /// # Panics
    /// When the bytes at `dst` are not all in one slot, or the ranges overlap.
    #[track_caller]
    pub fn stream_copy(
        &self,
        dst: PmAddr,
        src: PmAddr,
        len: u64,
        purpose: Purpose,
    ) -> Result<Flushed, OutOfRange> {
        let from = self.load_ptr(src, len)?;
        let Some(to) = self.store_ptr(dst, len) else { return Ok(Flushed::new()) };
        let apart = dst.slot() != src.slot() || dst.byte().abs_diff(src.byte()) >= len;
        assert!(apart, "copy of {len} bytes from {src} to {dst}: the ranges overlap");
        if let Some(observer) = &self.observer {
            if observer.sees_bytes() {
                return self.stream_copy_told(dst, src, len, purpose);
            }
            observer.write_back(dst, len, purpose, Location::caller());
        }
        // SAFETY: `store_ptr` and `load_ptr` found `len` bytes each, and they are apart.
        unsafe { self.stream_raw(dst, to, from, len, purpose) };
        Ok(Flushed::new())
    }

    /// `stream_copy` by way of private memory, which the observer can be shown.
    #[cold]
    #[track_caller]
    fn stream_copy_told(
        &self,
        dst: PmAddr,
        src: PmAddr,
        len: u64,
        purpose: Purpose,
    ) -> Result<Flushed, OutOfRange> {
        let mut page = [0; 4096];
        let mut flushed = Flushed::none();
        let mut done = 0;
        while done < len {
            let step = up_to_page_end(dst.byte() + done, len - done);
            let bytes = page.get_mut(..step).unwrap_or_default();
            self.load(src.add(done), bytes)?;
            flushed = flushed.and(self.stream(dst.add(done), bytes, purpose));
            done += step as u64;
        }
        Ok(flushed)
    }

    /// Streams `len` bytes from `src` to `dst`, the pointer of `addr`.
    ///
    /// # Safety
    /// `src` is valid for reading and `dst` for writing `len` bytes; they do not overlap.
    #[inline]
    unsafe fn stream_raw(
        &self,
        addr: PmAddr,
        dst: *mut u8,
        src: *const u8,
        len: u64,
        purpose: Purpose,
    ) {
        let is_whole = (addr.byte() | len).is_multiple_of(LINE) && len > 0;
        if !is_whole || !self.cpu.streams {
            // SAFETY: the same contract.
            return unsafe { self.stream_parts(addr, dst, src, len, purpose) };
        }
        if len == LINE {
            // SAFETY: 64 bytes each by the contract; `dst` is aligned as `addr` is.
            unsafe { cpu::stream_line(self.cpu, dst, src) };
        } else {
            // SAFETY: whole lines by the contract, at least one; `dst` is aligned as `addr` is.
            unsafe { cpu::stream_lines(self.cpu, dst, src, to_usize(len / LINE)) };
        }
        self.count_streamed(addr, len, purpose);
    }

    /// The general case of `stream_raw`: edges, nothing, eADR, or all through the caches.
    ///
    /// # Safety
    /// As `stream_raw`.
    #[inline(never)]
    unsafe fn stream_parts(
        &self,
        addr: PmAddr,
        dst: *mut u8,
        src: *const u8,
        len: u64,
        purpose: Purpose,
    ) {
        for part in Part::split(addr.byte(), len) {
            let to = dst.wrapping_add(to_usize(part.offset));
            let from = src.wrapping_add(to_usize(part.offset));
            let at = addr.add(part.offset);
            match self.manner(part, len) {
                Manner::Nothing => {}
                Manner::Lines => {
                    let lines = to_usize(part.len / LINE);
                    // SAFETY: whole lines of both ranges, at least one; `to` is aligned as `at`.
                    unsafe { cpu::stream_lines(self.cpu, to, from, lines) };
                    self.count_streamed(at, part.len, purpose);
                }
                Manner::Words => {
                    let words = to_usize(part.len / 8);
                    // SAFETY: units of one line of both ranges; `to` is aligned as `at`.
                    unsafe { cpu::stream_words(self.cpu, to, from, words) };
                    self.count_streamed(at, part.len, purpose);
                }
                Manner::Plain => {
                    // SAFETY: a part of both ranges.
                    unsafe { cpu::copy_in(self.cpu, to, from, to_usize(part.len)) };
                    self.count_stored(at, part.len, purpose);
                    // SAFETY: lines that hold bytes of the range are mapped.
                    unsafe { self.write_back_part(at, to, part.len, purpose) };
                }
            }
        }
    }

    /// Writes the lines back that hold `len` bytes, at least one, from `dst`, the pointer of `addr`.
    ///
    /// # Safety
    /// The bytes are mapped.
    unsafe fn write_back_part(&self, addr: PmAddr, dst: *mut u8, len: u64, purpose: Purpose) {
        if let Some(kind) = self.cpu.write_back {
            let line = dst.wrapping_sub(to_usize(addr.byte() % LINE));
            let lines = lines_touched(addr.byte(), len);
            // SAFETY: mappings are whole pages; `Cpu::choose` checked the instruction.
            unsafe { cpu::write_back_lines(kind, line, to_usize(lines)) };
            self.registry.shard().written_back(purpose, addr.slot(), lines);
        }
    }

    #[inline(always)]
    fn count_streamed(&self, addr: PmAddr, len: u64, purpose: Purpose) {
        self.registry.shard().streamed(purpose, addr.slot(), addr.byte(), len);
    }

    /// How `part` of a stream of `total` bytes is stored.
    #[inline]
    fn manner(&self, part: Part, total: u64) -> Manner {
        let is_eadr = self.cpu.write_back.is_none();
        if part.len == 0 {
            Manner::Nothing
        } else if !self.cpu.streams && (!is_eadr || total < EADR_STREAM_BYTES_MIN) {
            Manner::Plain
        } else if part.is_whole_lines {
            Manner::Lines
        } else if part.is_whole_words {
            Manner::Words
        } else {
            Manner::Plain
        }
    }

    /// Tells the observer of the parts of a stream, as `stream_parts` stores them.
    #[cold]
    #[inline(never)]
    fn tell_stream(
        &self,
        observer: &dyn Observer,
        addr: PmAddr,
        bytes: &[u8],
        purpose: Purpose,
        site: &'static Location<'static>,
    ) {
        let total = bytes.len() as u64;
        for part in Part::split(addr.byte(), total) {
            let range = to_usize(part.offset)..to_usize(part.offset + part.len);
            let at = addr.add(part.offset);
            let bytes = bytes.get(range).unwrap_or_default();
            match self.manner(part, total) {
                Manner::Nothing => {}
                Manner::Lines | Manner::Words => {
                    tell_store(observer, at, bytes, StoreKind::Streaming, purpose, site);
                }
                Manner::Plain => {
                    tell_store(observer, at, bytes, StoreKind::Plain, purpose, site);
                    if self.cpu.write_back.is_some() {
                        observer.write_back(at, part.len, purpose, site);
                    }
                }
            }
        }
    }
}

/// How a part of a stream is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// The part is empty.
    Nothing,
    /// Streaming stores of whole lines.
    Lines,
    /// Streaming stores of 8-byte units of one line.
    Words,
    /// Plain stores, which are written back but for eADR: a part of one line, or all.
    Plain,
}

/// A part of a range: in one line, or whole lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    /// From the start of the range, bytes.
    offset: u64,
    /// Bytes; 0 for a part that the range does not have.
    len: u64,
    is_whole_lines: bool,
    /// Begins and ends at an 8-byte unit.
    is_whole_words: bool,
}

impl Part {
    /// Splits `len` bytes from `byte`: the edge in the first line, whole lines, the edge in the
    /// last line.
    #[inline]
    fn split(byte: u64, len: u64) -> [Self; 3] {
        let head = (byte.wrapping_neg() % LINE).min(len);
        let lines = (len - head) / LINE * LINE;
        let tail = len - head - lines;
        let part = |offset, len, is_whole_lines| Self {
            offset,
            len,
            is_whole_lines,
            is_whole_words: ((byte + offset) | len).is_multiple_of(8),
        };
        [part(0, head, false), part(head, lines, true), part(head + lines, tail, false)]
    }
}

/// At most `left` bytes from byte `byte`, in one page.
fn up_to_page_end(byte: u64, left: u64) -> usize {
    to_usize((PAGE - byte % PAGE).min(left))
}
