//! The bytes of one file: whole pages by number, absent ones reading as zeros, and a length.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::buffered::Earlier;

/// Bytes in a page; a choice of the model's own, invisible from outside.
pub const PAGE_BYTES: usize = 4096;

const PAGE: u64 = PAGE_BYTES as u64;

static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// A file's length and its bytes.
///
/// Invariant: no byte at or beyond the length is other than 0, so that extending needs no work.
/// Two are equal when they read the same, whatever was stored or left a hole.
#[derive(Clone, Default)]
pub struct Contents {
    size: u64,
    pages: BTreeMap<u64, Vec<u8>>,
    /// By units of eight bytes: what a crash may bring back.
    pub(crate) loose: BTreeMap<u64, BTreeSet<[u8; 8]>>,
    /// What the file was before writes that a crash may take back, the oldest first.
    pub(crate) earlier: Vec<Earlier>,
    /// Access times that a crash may bring back: a read waits for nothing to be durable.
    pub(crate) accesses: BTreeSet<i64>,
}

impl Contents {
    /// The length in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The bytes from `offset`, at most `len` and none beyond the end.
    #[must_use]
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let available = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut out = vec![0; len.min(available)];
        for (part, page, at) in parts(offset, out.len()) {
            if let (Some(stored), Some(to)) = (self.pages.get(&page), out.get_mut(part.clone()))
                && let Some(from) = stored.get(at..at + part.len())
            {
                to.copy_from_slice(from);
            }
        }
        out
    }

    /// Puts `bytes` at `offset`; a gap beyond the old end reads as zeros.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.put(offset, bytes);
        self.settle(offset, offset.saturating_add(bytes.len() as u64));
    }

    pub(crate) fn put(&mut self, offset: u64, bytes: &[u8]) {
        for (part, page, at) in parts(offset, bytes.len()) {
            let stored = self.pages.entry(page).or_insert_with(|| vec![0; PAGE_BYTES]);
            if let (Some(to), Some(from)) = (stored.get_mut(at..at + part.len()), bytes.get(part)) {
                to.copy_from_slice(from);
            }
        }
        self.size = self.size.max(offset.saturating_add(bytes.len() as u64));
    }

    /// Cuts or extends to `size` bytes.
    pub fn truncate(&mut self, size: u64) {
        self.size = size;
        let pages = self.pages.split_off(&size.div_ceil(PAGE));
        drop(pages);
        let kept = usize::try_from(size % PAGE).unwrap_or(0);
        if kept > 0
            && let Some(tail) =
                self.pages.get_mut(&(size / PAGE)).and_then(|page| page.get_mut(kept..))
        {
            tail.fill(0);
        }
        drop(self.loose.split_off(&size.div_ceil(8)));
        self.settle(size, size.div_ceil(8).saturating_mul(8));
    }

    /// Makes the bytes `from..to` zeros, as far as the length goes.
    pub fn zero(&mut self, from: u64, to: u64) {
        for (page, bytes) in self.pages.range_mut(from / PAGE..) {
            let start = page * PAGE;
            if start >= to {
                break;
            }
            for (byte, at) in bytes.iter_mut().zip(start..) {
                if at >= from && at < to {
                    *byte = 0;
                }
            }
        }
        self.settle(from, to);
    }

    /// Takes `len` bytes at `offset` out, both whole pages.
    pub fn collapse(&mut self, offset: u64, len: u64) {
        let behind = self.pages.split_off(&((offset + len) / PAGE));
        drop(self.pages.split_off(&(offset / PAGE)));
        self.pages.extend(behind.into_iter().map(|(page, bytes)| (page - len / PAGE, bytes)));
        let behind = self.loose.split_off(&((offset + len) / 8));
        drop(self.loose.split_off(&(offset / 8)));
        self.loose.extend(behind.into_iter().map(|(unit, olds)| (unit - len / 8, olds)));
        self.size -= len;
    }

    /// Puts `len` zeros in at `offset`, both whole pages.
    pub fn insert(&mut self, offset: u64, len: u64) {
        let behind = self.pages.split_off(&(offset / PAGE));
        self.pages.extend(behind.into_iter().map(|(page, bytes)| (page + len / PAGE, bytes)));
        let behind = self.loose.split_off(&(offset / 8));
        self.loose.extend(behind.into_iter().map(|(unit, olds)| (unit + len / 8, olds)));
        self.size += len;
    }

    /// Whether all bytes in `from..to` are zeros (bytes beyond the end are).
    #[must_use]
    pub fn is_zero(&self, from: u64, to: u64) -> bool {
        let pages = self.pages.range(from / PAGE..);
        pages.take_while(|(page, _)| **page * PAGE < to).all(|(page, bytes)| {
            let start = page * PAGE;
            bytes.iter().zip(start..).all(|(byte, at)| *byte == 0 || at < from || at >= to)
        })
    }

    /// The numbers of the pages that are not known to be zeros.
    pub(crate) fn page_numbers(&self) -> impl Iterator<Item = u64> {
        self.pages.keys().copied()
    }

    /// The pages that hold a byte other than 0, ascending.
    fn nonzero_pages(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let pages = self.pages.iter().map(|(page, bytes)| (*page, bytes.as_slice()));
        // Compared as a whole: byte by byte it was a third of the crash lab's time.
        pages.filter(|(_, bytes)| *bytes != ZEROS)
    }

    /// The offset of the first byte in which the two differ, the shorter one read as zeros.
    #[must_use]
    pub fn first_difference(&self, other: &Self) -> Option<u64> {
        let numbers = self.pages.keys().chain(other.pages.keys());
        let mut numbers: Vec<u64> = numbers.copied().collect();
        numbers.sort_unstable();
        let zeros = vec![0; PAGE_BYTES];
        numbers.iter().find_map(|number| {
            let a = self.pages.get(number).unwrap_or(&zeros);
            let b = other.pages.get(number).unwrap_or(&zeros);
            let at = a.iter().zip(b).position(|(a, b)| a != b)?;
            Some(number * PAGE + at as u64)
        })
    }
}

/// Splits `offset..offset + len` at page borders: (range of the buffer, page, offset in the page).
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (std::ops::Range<usize>, u64, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let place = offset + done as u64;
        let at = usize::try_from(place % PAGE).unwrap_or(0);
        let end = len.min(done + PAGE_BYTES - at);
        let part = done..end;
        done = end;
        Some((part, place / PAGE, at))
    })
}

impl PartialEq for Contents {
    fn eq(&self, other: &Self) -> bool {
        self.size == other.size && self.nonzero_pages().eq(other.nonzero_pages())
    }
}

impl Eq for Contents {}

impl Hash for Contents {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.size.hash(state);
        self.nonzero_pages().for_each(|page| page.hash(state));
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages: Vec<u64> = self.nonzero_pages().map(|(page, _)| page).collect();
        write!(f, "{} bytes, pages not zero: {pages:?}", self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_reads_as_zeros_and_the_end_cuts_a_read() {
        let mut contents = Contents::default();
        contents.write(4094, b"abcd");
        assert_eq!(contents.size(), 4098);
        assert_eq!(contents.read(4092, 100), b"\0\0abcd");
        assert_eq!(contents.read(4098, 1), b"");
        assert_eq!(contents.read(u64::MAX, 1), b"");
    }

    #[test]
    fn bytes_cut_off_do_not_come_back() {
        let mut contents = Contents::default();
        contents.write(0, &[7; 10_000]);
        contents.truncate(4100);
        contents.truncate(9000);
        assert_eq!(contents.read(4096, 8), [7, 7, 7, 7, 0, 0, 0, 0]);
        assert!(contents.is_zero(4100, 9000));
        assert!(!contents.is_zero(4099, 9000));
        contents.truncate(4096);
        contents.truncate(4097);
        assert_eq!(contents.read(4096, 1), [0]);
    }

    #[test]
    fn ranges_are_zeroed_taken_out_and_put_in() {
        let bytes: Vec<u8> =
            (0..20_000_u32).map(|at| u8::try_from(at % 251 + 1).unwrap()).collect();
        let mut contents = Contents::default();
        contents.write(0, &bytes);
        let mut expected = bytes.clone();
        contents.zero(4000, 9000);
        expected[4000..9000].fill(0);
        contents.zero(19_999, 90_000);
        expected[19_999] = 0;
        assert_eq!(contents.read(0, 30_000), expected);
        contents.collapse(4096, 8192);
        expected.drain(4096..12_288);
        assert_eq!(contents.read(0, 30_000), expected);
        contents.insert(8192, 4096);
        expected.splice(8192..8192, [0; 4096]);
        assert_eq!(contents.read(0, 30_000), expected);
    }

    #[test]
    fn equality_is_of_what_is_read() {
        let mut stored = Contents::default();
        stored.write(0, &[0; 5000]);
        let mut hole = Contents::default();
        hole.truncate(5000);
        assert_eq!(stored, hole);
        hole.write(4999, &[1]);
        assert_ne!(stored, hole);
        assert_eq!(stored.first_difference(&hole), Some(4999));
    }

    #[test]
    fn far_offsets_cost_one_page() {
        let mut contents = Contents::default();
        contents.write(1 << 60, b"x");
        assert_eq!(contents.size(), (1 << 60) + 1);
        assert!(contents.is_zero(0, 1 << 60));
        assert_eq!(contents.read((1 << 60) - 1, 9), b"\0x");
    }
}
