//! Every copy and streaming store against a plain loop, at every alignment, on the edge of what is
//! mapped: a byte read or stored outside of the range faults or shows.

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use super::{Cpu, WriteBackKind, portable};

const PAGE: usize = 4096;
const FILL: u8 = 0xee;

/// Two pages between two that fault.
struct Guarded {
    base: *mut u8,
}

impl Guarded {
    fn new() -> Self {
        let flags = MapFlags::PRIVATE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base =
            unsafe { mmap_anonymous(std::ptr::null_mut(), 4 * PAGE, ProtFlags::empty(), flags) };
        let base = base.unwrap().cast::<u8>();
        let inner = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the two pages in the middle of the mapping.
        unsafe { mprotect(base.wrapping_add(PAGE).cast(), 2 * PAGE, inner) }.unwrap();
        Self { base }
    }

    /// The accessible bytes.
    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: two readable, writable pages that only `self` refers to.
        unsafe { std::slice::from_raw_parts_mut(self.base.wrapping_add(PAGE), 2 * PAGE) }
    }

    /// The pointer to accessible byte `at`.
    fn at(&self, at: usize) -> *mut u8 {
        self.base.wrapping_add(PAGE + at)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which nothing refers to any more.
        unsafe { munmap(self.base.cast(), 4 * PAGE) }.unwrap();
    }
}

/// A copy under test: destination, source, length.
type Copy<'a> = &'a dyn Fn(*mut u8, *const u8, usize);

/// Runs `copy` for `len` bytes at the given places of the accessible pages and checks the result.
fn check(to: &mut Guarded, from: &Guarded, [dst, src, len]: [usize; 3], copy: Copy<'_>) {
    to.bytes().fill(FILL);
    copy(to.at(dst), from.at(src), len);
    let bytes = to.bytes();
    for (index, &byte) in bytes.iter().enumerate() {
        let expected =
            if (dst..dst + len).contains(&index) { pattern(src + index - dst) } else { FILL };
        assert_eq!(byte, expected, "byte {index} after a copy of {len} from {src} to {dst}");
    }
}

/// Source byte `index`: no two neighbours alike, never `FILL`.
fn pattern(index: usize) -> u8 {
    u8::try_from(index % 199).unwrap()
}

/// Checks `copy` for lengths that are multiples of `unit`, destinations aligned to `unit`, sources
/// at any place, at both ends of what is mapped.
fn check_all(unit: usize, copy: Copy<'_>) {
    let mut to = Guarded::new();
    let mut from = Guarded::new();
    for (index, byte) in from.bytes().iter_mut().enumerate() {
        *byte = pattern(index);
    }
    let mut lens: Vec<usize> = (0..=300).chain([511, 512, 513, 1023, 4095, 4096, 4097]).collect();
    lens.retain(|len| len % unit == 0);
    for len in lens {
        let end = 2 * PAGE - len;
        for skew in 0..=64 {
            let dst = (skew * unit) % 128;
            check(&mut to, &from, [dst, skew, len], copy);
            check(&mut to, &from, [end - end.min(dst), end - end.min(skew), len], copy);
        }
    }
}

/// What the CPU can do, and without its widest stores.
fn cpus() -> Vec<Cpu> {
    let narrow =
        Cpu { write_back: super::write_back_kinds().first().copied(), wide: false, streams: true };
    let wide = Cpu { wide: super::has_wide(), ..narrow };
    vec![narrow, wide]
}

#[test]
fn copies_into_the_pool_store_their_range_only() {
    for cpu in cpus() {
        check_all(1, &|dst, src, len| {
            // SAFETY: `check` gives valid, separate ranges, here and in all tests below.
            unsafe { super::copy_in(cpu, dst, src, len) };
        });
    }
}

#[test]
fn copies_out_of_the_pool_read_their_range_only() {
    for cpu in cpus() {
        check_all(1, &|dst, src, len| {
            // SAFETY: as above.
            unsafe { super::copy_out(cpu, dst, src, len) };
        });
    }
}

#[test]
fn streamed_words_store_their_range_only() {
    for cpu in cpus() {
        check_all(8, &|dst, src, len| {
            // SAFETY: as above; `dst` is aligned to 8.
            unsafe { super::stream_words(cpu, dst, src, len / 8) };
        });
    }
}

#[test]
fn streamed_lines_store_their_range_only() {
    for cpu in cpus() {
        check_all(64, &|dst, src, len| {
            if len == 64 {
                // SAFETY: as above; `dst` is aligned to 64.
                unsafe { super::stream_line(cpu, dst, src) };
            } else if len > 0 {
                // SAFETY: as above; at least one line.
                unsafe { super::stream_lines(cpu, dst, src, len / 64) };
            }
        });
    }
}

#[test]
fn the_portable_copies_do_what_those_of_this_cpu_do() {
    let cpu = Cpu {
        write_back: Some(WriteBackKind::Portable),
        wide: portable::has_wide(),
        streams: true,
    };
    check_all(1, &|dst, src, len| {
        // SAFETY: as above.
        unsafe { portable::copy_in(cpu, dst, src, len) };
    });
    check_all(1, &|dst, src, len| {
        // SAFETY: as above.
        unsafe { portable::copy_out(cpu, dst, src, len) };
    });
    check_all(8, &|dst, src, len| {
        // SAFETY: as above; `dst` is aligned to 8.
        unsafe { portable::stream_words(cpu, dst, src, len / 8) };
    });
    check_all(64, &|dst, src, len| {
        // SAFETY: as above; `dst` is aligned to 64.
        unsafe { portable::stream_lines(cpu, dst, src, len / 64) };
    });
}

#[test]
fn every_write_back_that_the_cpu_has_keeps_the_contents() {
    let mut memory = Guarded::new();
    let mut expected: Vec<u8> = (0..2 * PAGE).map(pattern).collect();
    memory.bytes().copy_from_slice(&expected);
    for kind in super::write_back_kinds() {
        // An instruction that the CPU lacks would kill the test with SIGILL.
        // SAFETY: all lines of the accessible pages.
        unsafe { super::write_back_lines(kind, memory.at(0), 2 * PAGE / 64) };
        super::fence();
        assert_eq!(memory.bytes(), expected, "after {kind:?}");
        expected.rotate_left(1);
        memory.bytes().copy_from_slice(&expected);
    }
}

#[test]
fn words_are_loaded_and_stored_at_once_by_every_module() {
    let memory = Guarded::new();
    let word = memory.at(2 * PAGE - 8);
    // SAFETY: the last 8 accessible bytes, aligned.
    unsafe { super::store_u64(word, 0x0123_4567_89ab_cdef) };
    // SAFETY: as above.
    assert_eq!(unsafe { portable::load_u64(word) }, 0x0123_4567_89ab_cdef);
    // SAFETY: as above.
    unsafe { portable::store_u64(word, 5) };
    // SAFETY: as above.
    assert_eq!(unsafe { super::load_u64(word) }, 5);
    super::prefetch(word);
    portable::prefetch(word);
    // A prefetch of what is not mapped does not fault.
    super::prefetch(memory.at(2 * PAGE));
}
