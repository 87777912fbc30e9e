//! Bytes in the segment: copies in, out and from one place to another.
//!
//! Others may read and write the same bytes meanwhile: each copy is of aligned words, each as it is at
//! some moment. Who reads without a lock learns from a sequence counter whether they belong together.

use std::sync::atomic::Ordering::Relaxed;

use crate::base::error::BadOffset;
use crate::base::off::Off;
use crate::base::word::{AtomicU64, copy_happens, machine_words};
use crate::memory::arena::Arena;

const WORD_BYTES: usize = 8;

impl Arena {
    /// Copies `bytes` to the place at `off`, `from` bytes after it; `off` is a multiple of 64. The words in
    /// which they begin and end keep their other bytes: nobody else changes those meanwhile.
    ///
    /// # Errors
    /// [`BadOffset`] where they are not wholly inside; nothing is changed then.
    pub fn put_bytes(&self, off: Off, from: usize, bytes: &[u8]) -> Result<(), BadOffset> {
        let words = machine_words(self.slice(off, words_of(from + bytes.len()))?);
        if !copy_happens() {
            return Ok(());
        }
        let head = bytes.len().min(from.next_multiple_of(WORD_BYTES) - from);
        let (head, rest) = bytes.split_at(head);
        let (whole, tail) = rest.as_chunks::<WORD_BYTES>();
        merge(words.get(from / WORD_BYTES), from % WORD_BYTES, head);
        let first = from.div_ceil(WORD_BYTES);
        for (word, bytes) in words.iter().skip(first).zip(whole) {
            word.store(u64::from_le_bytes(*bytes), Relaxed);
        }
        merge(words.get(first + whole.len()), 0, tail);
        Ok(())
    }

    /// Copies bytes out, from `from` bytes after `off` on; `off` is a multiple of 64.
    ///
    /// # Errors
    /// [`BadOffset`] where they are not wholly inside.
    pub fn get_bytes(&self, off: Off, from: usize, into: &mut [u8]) -> Result<(), BadOffset> {
        let words = machine_words(self.slice(off, words_of(from + into.len()))?);
        let head = into.len().min(from.next_multiple_of(WORD_BYTES) - from);
        let (head, rest) = into.split_at_mut(head);
        let (whole, tail) = rest.as_chunks_mut::<WORD_BYTES>();
        extract(words.get(from / WORD_BYTES), from % WORD_BYTES, head);
        let first = from.div_ceil(WORD_BYTES);
        for (word, bytes) in words.iter().skip(first).zip(whole.iter_mut()) {
            *bytes = word.load(Relaxed).to_le_bytes();
        }
        extract(words.get(first + whole.len()), 0, tail);
        Ok(())
    }
}

/// Copies words from one place to another.
pub fn copy_words(from: &[AtomicU64], to: &[AtomicU64]) {
    if copy_happens() {
        for (from, to) in machine_words(from).iter().zip(machine_words(to)) {
            to.store(from.load(Relaxed), Relaxed);
        }
    }
}

/// How many words bytes from a word's start on take.
fn words_of(bytes: usize) -> u64 {
    bytes.div_ceil(WORD_BYTES) as u64
}

/// Puts bytes into a word, from byte `at` of it on.
fn merge(word: Option<&std::sync::atomic::AtomicU64>, at: usize, bytes: &[u8]) {
    let Some(word) = word.filter(|_| !bytes.is_empty()) else { return };
    let mut now = word.load(Relaxed).to_le_bytes();
    if let Some(place) = now.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
    word.store(u64::from_le_bytes(now), Relaxed);
}

/// Takes bytes out of a word, from byte `at` of it on.
fn extract(word: Option<&std::sync::atomic::AtomicU64>, at: usize, into: &mut [u8]) {
    let Some(word) = word.filter(|_| !into.is_empty()) else { return };
    let now = word.load(Relaxed).to_le_bytes();
    if let Some(bytes) = now.get(at..at + into.len()) {
        into.copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_their_neighbours_stay() {
        let arena = Arena::anonymous(64 << 20).unwrap();
        for from in 0..20 {
            for len in 0..40 {
                let off = arena.alloc_table(4).unwrap();
                let bytes: Vec<u8> = (1..=len).collect();
                let mut expected = [0xee; 128];
                arena.put_bytes(off, 0, &expected).unwrap();
                arena.put_bytes(off, from, &bytes).unwrap();
                expected[from..from + bytes.len()].copy_from_slice(&bytes);
                let mut found = [0; 128];
                arena.get_bytes(off, 0, &mut found).unwrap();
                assert_eq!(found, expected, "{from} {len}");
                let mut part = vec![0; bytes.len()];
                arena.get_bytes(off, from, &mut part).unwrap();
                assert_eq!(part, bytes, "{from} {len}");
                arena.free_table(4, off);
            }
        }
    }

    #[test]
    fn what_is_not_inside_is_refused() {
        let arena = Arena::anonymous(64 << 20).unwrap();
        let last = Off::from_raw((64 << 20) - 64);
        assert!(arena.put_bytes(last, 60, &[1; 8]).is_err());
        assert!(arena.get_bytes(last, 64, &mut [0; 1]).is_err());
    }
}
