//! Stores into the pool, write-backs and fences.
//!
//! An address outside of the pool, or not aligned as the store needs, is a bug of the caller and
//! panics: addresses that come from the media are checked before they get here. So is a store to
//! a read-only pool.

use std::panic::Location;

use novale_layout::PmAddr;

use crate::pm::assert_aligned;
use crate::{
    Dirty, Durable, Flushed, LINE, Observer, OutOfRange, PAGE, Pm, Purpose, StoreEvent, StoreKind,
    cpu, lines_touched, to_usize,
};

/// Under eADR, shorter streams are plain stores: they need no trip to memory.
const EADR_STREAM_BYTES_MIN: u64 = 1024;

/// A page of zeros to stream from.
#[repr(align(64))]
struct Zeros([u8; 4096]);
static ZEROS: Zeros = Zeros([0; 4096]);

type Site = &'static Location<'static>;

/// A range split at line boundaries: bytes of the first line, whole lines, bytes of the last line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Parts {
    head: u64,
    lines: u64,
    tail: u64,
}

impl Parts {
    #[inline(always)]
    fn of(byte: u64, len: u64) -> Self {
        let head = (byte.wrapping_neg() % LINE).min(len);
        Self {
            head,
            lines: (len - head) / LINE,
            tail: (len - head) % LINE,
        }
    }
}

/// Whether part of a line can be streamed: it is made of whole 8-byte units.
#[inline(always)]
fn is_whole_words(byte: u64, len: u64) -> bool {
    (byte | len).is_multiple_of(8)
}

impl Pm {
    /// Stores a word at once, after every earlier store of this thread (release), in this
    /// machine's byte order.
    ///
    /// # Panics
    /// When `addr` is not in a slot or not aligned to 8.
    #[inline]
    #[track_caller]
    pub fn store_u64(&self, addr: PmAddr, value: u64, purpose: Purpose) -> Dirty {
        let dst = self.store_ptr(addr, 8);
        assert_aligned(addr, 8);
        if let Some(observer) = &self.observer {
            #[allow(
                clippy::host_endian_bytes,
                reason = "the bytes as this machine stores them"
            )]
            let bytes = value.to_ne_bytes();
            told(
                observer.as_ref(),
                addr,
                &bytes,
                StoreKind::Ordered,
                purpose,
                Location::caller(),
            );
        }
        // SAFETY: `store_ptr` found 8 writable bytes, and they are aligned.
        unsafe { cpu::store_u64(dst, value) };
        self.count_stored(addr, 8, purpose);
        Dirty::new(addr, 8, purpose)
    }

    /// Stores a line by eight 8-byte stores in ascending order: a crash keeps a prefix of them.
    ///
    /// # Panics
    /// When `addr` is not in a slot or not aligned to 64.
    #[inline]
    #[track_caller]
    pub fn store_line(&self, addr: PmAddr, line: &[u8; 64], purpose: Purpose) -> Dirty {
        let dst = self.store_ptr(addr, LINE);
        assert_aligned(addr, LINE);
        if let Some(observer) = &self.observer {
            told(
                observer.as_ref(),
                addr,
                line,
                StoreKind::Ordered,
                purpose,
                Location::caller(),
            );
        }
        let (words, _) = line.as_chunks::<8>();
        for (index, word) in words.iter().enumerate() {
            #[allow(clippy::host_endian_bytes, reason = "bytes are moved, not interpreted")]
            let value = u64::from_ne_bytes(*word);
            // SAFETY: word `index` of the 64 writable, aligned bytes that `store_ptr` found.
            unsafe { cpu::store_u64(dst.wrapping_add(index * 8), value) };
        }
        self.count_stored(addr, LINE, purpose);
        Dirty::new(addr, LINE, purpose)
    }

    /// Stores `bytes`, in no order; until they are durable, a crash keeps any subset of their
    /// aligned 8-byte units.
    ///
    /// # Panics
    /// When they are not all in one slot.
    #[inline]
    #[track_caller]
    pub fn store(&self, addr: PmAddr, bytes: &[u8], purpose: Purpose) -> Dirty {
        let len = bytes.len() as u64;
        let dst = self.store_ptr(addr, len);
        if let Some(observer) = &self.observer {
            told(
                observer.as_ref(),
                addr,
                bytes,
                StoreKind::Plain,
                purpose,
                Location::caller(),
            );
        }
        // SAFETY: `store_ptr` found `len` writable bytes; `bytes` is not in the pool.
        unsafe { cpu::copy_in(dst, bytes.as_ptr(), bytes.len()) };
        self.count_stored(addr, len, purpose);
        Dirty::new(addr, len, purpose)
    }

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

    /// Stores `bytes` past the caches: whole lines and 8-byte units by streaming stores; a line
    /// at either end with other bytes by plain stores and a write-back. Neighbours of the range
    /// are neither read nor stored.
    ///
    /// # Panics
    /// When they are not all in one slot.
    #[inline]
    #[track_caller]
    pub fn stream(&self, addr: PmAddr, bytes: &[u8], purpose: Purpose) -> Flushed {
        let dst = self.store_ptr(addr, bytes.len() as u64);
        if let Some(observer) = &self.observer {
            self.tell_stream(observer.as_ref(), addr, bytes, purpose, Location::caller());
        }
        // SAFETY: `store_ptr` found as many writable bytes at `dst`; `bytes` is not in the pool.
        unsafe { self.stream_raw(addr, dst, bytes.as_ptr(), bytes.len() as u64, purpose) }
    }

    /// Stores `len` zero bytes past the caches, as [`Pm::stream`] does.
    ///
    /// # Panics
    /// When they are not all in one slot.
    #[track_caller]
    pub fn stream_zero(&self, addr: PmAddr, len: u64, purpose: Purpose) -> Flushed {
        self.store_ptr(addr, len);
        let mut flushed = Flushed::none();
        let mut done = 0;
        while done < len {
            let at = addr.add(done);
            let step = (PAGE - at.byte() % PAGE).min(len - done);
            let zeros = ZEROS.0.get(..to_usize(step)).unwrap_or(&ZEROS.0);
            flushed = flushed.and(self.stream(at, zeros, purpose));
            done += step;
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
        let to = self.store_ptr(dst, len);
        let apart = dst.byte().abs_diff(src.byte()) >= len;
        assert!(
            dst.slot() != src.slot() || apart,
            "copy of {len} bytes from {src} to {dst}"
        );
        if let Some(observer) = &self.observer {
            return self.stream_copy_told(observer.as_ref(), dst, src, len, purpose);
        }
        // SAFETY: `store_ptr` and `load_ptr` found `len` bytes each, and they are apart.
        Ok(unsafe { self.stream_raw(dst, to, from, len, purpose) })
    }

    /// Starts the write-back of what was stored.
    #[inline]
    #[track_caller]
    pub fn write_back(&self, dirty: Dirty) -> Flushed {
        self.write_back_range(dirty.addr, dirty.len, dirty.purpose)
    }

    /// Starts the write-back of every line that `len` bytes from `addr` touch, whoever stored
    /// them: a fence completes its own thread's write-backs only, so what depends on another
    /// thread's stores writes them back again.
    ///
    /// # Panics
    /// When they are not all in one slot.
    #[inline]
    #[track_caller]
    pub fn write_back_range(&self, addr: PmAddr, len: u64, purpose: Purpose) -> Flushed {
        let Ok(src) = self.load_ptr(addr, len) else {
            self.refuse_store(addr, len)
        };
        let Some(kind) = self.cpu.write_back else {
            return Flushed::new();
        };
        if len == 0 {
            return Flushed::new();
        }
        if let Some(observer) = &self.observer {
            observer.write_back(addr, len, purpose, Location::caller());
        }
        let lines = lines_touched(addr.byte(), len);
        let first = src.cast_mut().wrapping_sub(to_usize(addr.byte() % LINE));
        // SAFETY: the lines that hold mapped bytes are mapped, because slots are whole pages;
        // `Cpu::choose` checked the instruction.
        unsafe { cpu::write_back_lines(kind, first, to_usize(lines)) };
        self.registry
            .shard()
            .written_back(purpose, addr.slot(), lines);
        Flushed::new()
    }

    /// Waits until this thread's write-backs and streaming stores are durable.
    #[inline]
    #[track_caller]
    pub fn fence(&self, _flushed: Flushed) -> Durable {
        if let Some(observer) = &self.observer {
            observer.fence(Location::caller());
        }
        cpu::fence();
        self.registry.shard().fenced();
        Durable::new()
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
    ) -> Flushed {
        let whole = (addr.byte() | len).is_multiple_of(LINE);
        if !whole || self.cpu.write_back.is_none() {
            // SAFETY: the same contract.
            unsafe { self.stream_parts(addr, dst, src, len, purpose) };
            return Flushed::new();
        }
        let lines = len / LINE;
        if lines == 1 {
            // SAFETY: 64 bytes each by the contract; `dst` is aligned as `addr` is.
            unsafe { cpu::stream_line(self.cpu, dst, src) };
        } else {
            // SAFETY: `64 * lines` bytes each by the contract; `dst` is aligned as `addr` is.
            unsafe { cpu::stream_lines(self.cpu, dst, src, to_usize(lines)) };
        }
        self.registry
            .shard()
            .streamed(purpose, addr.slot(), lines, len);
        Flushed::new()
    }

    /// The general case of `stream_raw`: edges, or eADR.
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
        if self.streams_plainly(len) {
            // SAFETY: the same contract.
            unsafe { cpu::copy_in(dst, src, to_usize(len)) };
            self.count_stored(addr, len, purpose);
            return;
        }
        let parts = Parts::of(addr.byte(), len);
        let (lines_at, tail_at) = (parts.head, len - parts.tail);
        // SAFETY: the first bytes of both ranges, all in one line.
        unsafe { self.stream_edge(addr, dst, src, parts.head, purpose) };
        let to = dst.wrapping_add(to_usize(lines_at));
        let from = src.wrapping_add(to_usize(lines_at));
        // SAFETY: the whole lines of the range.
        unsafe { cpu::stream_lines(self.cpu, to, from, to_usize(parts.lines)) };
        let bytes = parts.lines * LINE;
        self.registry
            .shard()
            .streamed(purpose, addr.slot(), parts.lines, bytes);
        let to = dst.wrapping_add(to_usize(tail_at));
        let from = src.wrapping_add(to_usize(tail_at));
        if parts.tail > 0 {
            // SAFETY: the last bytes of both ranges, all in one line.
            unsafe { self.stream_edge(addr.add(tail_at), to, from, parts.tail, purpose) };
        }
    }

    /// Streams part of a line, or stores it and writes the line back.
    ///
    /// # Safety
    /// As `stream_raw`; the bytes at `dst` are in one line.
    unsafe fn stream_edge(
        &self,
        addr: PmAddr,
        dst: *mut u8,
        src: *const u8,
        len: u64,
        purpose: Purpose,
    ) {
        if len == 0 {
            return;
        }
        let shard = self.registry.shard();
        if is_whole_words(addr.byte(), len) {
            // SAFETY: the same contract; `dst` is aligned as `addr` is.
            unsafe { cpu::stream_words(self.cpu, dst, src, to_usize(len / 8)) };
            shard.streamed(purpose, addr.slot(), 1, len);
            return;
        }
        // SAFETY: the same contract.
        unsafe { cpu::copy_in(dst, src, to_usize(len)) };
        self.count_stored(addr, len, purpose);
        if let Some(kind) = self.cpu.write_back {
            let line = dst.wrapping_sub(to_usize(addr.byte() % LINE));
            // SAFETY: the line that holds `dst` is mapped; `Cpu::choose` checked the instruction.
            unsafe { cpu::write_back_lines(kind, line, 1) };
            shard.written_back(purpose, addr.slot(), 1);
        }
    }

    /// Whether a stream of `len` bytes is better a plain store: caches persist and it is short.
    #[inline(always)]
    fn streams_plainly(&self, len: u64) -> bool {
        self.cpu.write_back.is_none() && len < EADR_STREAM_BYTES_MIN
    }

    #[inline(always)]
    fn count_stored(&self, addr: PmAddr, len: u64, purpose: Purpose) {
        let lines = lines_touched(addr.byte(), len);
        let shard = self.registry.shard();
        shard.stored(purpose, lines, len);
        if self.cpu.write_back.is_none() {
            shard.sent(addr.slot(), lines);
        }
    }

    /// Tells the observer the parts of a stream, as `stream_raw` stores them.
    #[cold]
    #[inline(never)]
    fn tell_stream(
        &self,
        observer: &dyn Observer,
        addr: PmAddr,
        bytes: &[u8],
        purpose: Purpose,
        site: Site,
    ) {
        let len = bytes.len() as u64;
        if self.streams_plainly(len) {
            told(observer, addr, bytes, StoreKind::Plain, purpose, site);
            return;
        }
        let parts = Parts::of(addr.byte(), len);
        let (head, rest) = bytes.split_at(to_usize(parts.head));
        let (lines, tail) = rest.split_at(to_usize(parts.lines * LINE));
        let mut at = addr.byte();
        for (part, is_edge) in [(head, true), (lines, false), (tail, true)] {
            let part_len = part.len() as u64;
            if part_len == 0 {
                continue;
            }
            let addr = PmAddr::new(addr.slot(), at);
            at += part_len;
            if !is_edge || is_whole_words(addr.byte(), part_len) {
                told(observer, addr, part, StoreKind::Streaming, purpose, site);
                continue;
            }
            told(observer, addr, part, StoreKind::Plain, purpose, site);
            if self.cpu.write_back.is_some() {
                observer.write_back(addr, part_len, purpose, site);
            }
        }
    }

    /// `stream_copy` by way of a page of private memory, which the observer can be shown.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn stream_copy_told(
        &self,
        observer: &dyn Observer,
        dst: PmAddr,
        src: PmAddr,
        len: u64,
        purpose: Purpose,
    ) -> Result<Flushed, OutOfRange> {
        let mut bytes = vec![0; to_usize(len)];
        self.load(src, &mut bytes)?;
        let to = self.store_ptr(dst, len);
        self.tell_stream(observer, dst, &bytes, purpose, Location::caller());
        // SAFETY: `store_ptr` found `len` writable bytes; `bytes` is private.
        Ok(unsafe { self.stream_raw(dst, to, bytes.as_ptr(), len, purpose) })
    }
}

/// Tells the observer of one store.
#[cold]
#[inline(never)]
fn told(
    observer: &dyn Observer,
    addr: PmAddr,
    bytes: &[u8],
    kind: StoreKind,
    purpose: Purpose,
    site: Site,
) {
    if !bytes.is_empty() {
        observer.store(StoreEvent {
            addr,
            bytes,
            kind,
            purpose,
            site,
        });
    }
}
