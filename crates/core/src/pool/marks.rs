//! Which pages and inode numbers are in use, as found on media.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use novale_layout::{INODES_PER_CHUNK, Ino, PAGE, PmAddr};

use crate::base::error::{Error, Result};

/// Of a slot's pages those whose bits are a piece for a task: 256 MB.
const PIECE_WORDS: usize = 1024;

/// A bit for each page of each slot that is there, set by many threads at once.
#[derive(Debug)]
pub(crate) struct PageMarks {
    slots: Vec<SlotBits>,
    pages: Vec<u64>,
    /// Pages marked more than once: none in a sound pool, so that their bits are made when needed.
    shared: OnceLock<Vec<SlotBits>>,
}

/// A bit for each page of a slot. Those of a piece are made when the first of its pages is marked: what of a large pool
/// is empty takes nothing, nor does a pool that was closed clean, of which the saved allocator is read.
#[derive(Debug)]
struct SlotBits {
    pieces: Vec<OnceLock<Box<[AtomicU64]>>>,
    /// Words of all of them.
    words: usize,
}

impl SlotBits {
    fn new(pages: u64) -> Self {
        let words = usize::try_from(pages.div_ceil(512) * 8).unwrap_or(usize::MAX);
        let pieces = (0..words.div_ceil(PIECE_WORDS)).map(|_| OnceLock::new()).collect();
        Self { pieces, words }
    }

    /// The word that has the bit of a page, to be changed.
    fn made(&self, page: u64) -> Option<&AtomicU64> {
        let index = usize::try_from(page / 64).ok().filter(|index| *index < self.words)?;
        let piece = self.pieces.get(index / PIECE_WORDS)?;
        let len = (self.words - index / PIECE_WORDS * PIECE_WORDS).min(PIECE_WORDS);
        let words = piece.get_or_init(|| (0..len).map(|_| AtomicU64::new(0)).collect());
        words.get(index % PIECE_WORDS)
    }

    /// What a word says; none where there is no such word.
    fn word(&self, index: usize) -> Option<u64> {
        let piece = self.pieces.get(index / PIECE_WORDS).filter(|_| index < self.words)?;
        let word = piece.get().and_then(|words| words.get(index % PIECE_WORDS));
        Some(word.map_or(0, |word| word.load(Ordering::Relaxed)))
    }

    /// The pieces that were made, by the number of their first word.
    fn made_pieces(&self) -> impl Iterator<Item = (u64, &[AtomicU64])> {
        let pieces = (0..).step_by(PIECE_WORDS).zip(&self.pieces);
        pieces.filter_map(|(first, piece)| Some((first, &**piece.get()?)))
    }
}

fn clear_bits(pages: &[u64]) -> Vec<SlotBits> {
    pages.iter().map(|pages| SlotBits::new(*pages)).collect()
}

/// The word of `page` of a slot, to be changed.
fn word_of(bits: &[SlotBits], slot: u8, page: u64) -> Option<&AtomicU64> {
    bits.get(usize::from(slot))?.made(page)
}

impl PageMarks {
    pub(crate) fn new(pages: Vec<u64>) -> Self {
        Self { slots: clear_bits(&pages), pages, shared: OnceLock::new() }
    }

    /// Marks pages as in use by `owner`. A page marked before has two owners, which is an error once
    /// all of them are marked.
    pub(crate) fn mark(&self, addr: PmAddr, pages: u64, owner: &dyn Fn() -> String) -> Result<()> {
        let first = addr.byte() / PAGE;
        let limit = self.limit(addr);
        // How many pages a slot has that is not there is not known.
        if limit == Some(0) && addr.is_page_aligned() {
            return Ok(());
        }
        let limit = limit.unwrap_or(0);
        if !addr.is_page_aligned() || first.checked_add(pages).is_none_or(|end| end > limit) {
            let found = format!("{pages} pages beyond the slot's {limit}");
            return Err(Error::damaged(owner(), addr, found));
        }
        let mut shared = None;
        let (mut page, end) = (first, first + pages);
        while page < end {
            // As many as the word has, at once.
            let count = (64 - page % 64).min(end - page);
            let bits = u64::MAX >> (64 - count) << (page % 64);
            let Some(word) = word_of(&self.slots, addr.slot(), page) else { break };
            let before = word.fetch_or(bits, Ordering::Relaxed) & bits;
            if before != 0 {
                let twice = self.shared.get_or_init(|| clear_bits(&self.pages));
                if let Some(word) = word_of(twice, addr.slot(), page) {
                    word.fetch_or(before, Ordering::Relaxed);
                }
                let at = page / 64 * 64 + u64::from(before.trailing_zeros());
                shared = shared.or(Some(PmAddr::new(addr.slot(), at * PAGE)));
            }
            page += count;
        }
        shared.map_or(Ok(()), |at| Err(two_owners(at, owner)))
    }

    /// Pages of the slot; 0 of one that is not there.
    fn limit(&self, addr: PmAddr) -> Option<u64> {
        self.pages.get(usize::from(addr.slot())).copied()
    }

    /// Whether pages lie in a slot; in one that is not there any do.
    pub(crate) fn contains(&self, addr: PmAddr, pages: u64) -> bool {
        let limit = self.limit(addr).map_or(0, |limit| if limit == 0 { u64::MAX } else { limit });
        let end = (addr.byte() / PAGE).checked_add(pages);
        addr.is_page_aligned() && end.is_some_and(|end| end <= limit)
    }

    /// Whether any page has two owners.
    pub(crate) fn any_shared(&self) -> bool {
        self.shared.get().is_some()
    }

    /// Refuses pages that were marked more than once, when all is marked.
    pub(crate) fn refuse_shared(
        &self,
        addr: PmAddr,
        pages: u64,
        owner: &dyn Fn() -> String,
    ) -> Result<()> {
        let Some(twice) = self.shared.get() else { return Ok(()) };
        let first = addr.byte() / PAGE;
        let of_slot = twice.get(usize::from(addr.slot()));
        let is_shared = |page: &u64| {
            let word = usize::try_from(page / 64).ok().and_then(|index| of_slot?.word(index));
            word.is_some_and(|word| word >> (page % 64) & 1 != 0)
        };
        match (first..first.saturating_add(pages)).find(is_shared) {
            Some(page) => Err(two_owners(PmAddr::new(addr.slot(), page * PAGE), owner)),
            None => Ok(()),
        }
    }

    /// A word of a slot's bits.
    pub(crate) fn word(&self, slot: usize, index: u64) -> u64 {
        let bits = self.slots.get(slot);
        bits.and_then(|bits| bits.word(usize::try_from(index).ok()?)).unwrap_or(u64::MAX)
    }

    /// All pages that may be in use, in pieces for tasks.
    pub(crate) fn pieces(&self) -> Vec<MarkedPiece<'_>> {
        let mut pieces = Vec::new();
        for (slot, bits) in (0..).zip(&self.slots) {
            let made = bits.made_pieces();
            pieces.extend(made.map(|(first, words)| MarkedPiece { slot, first, words }));
        }
        pieces
    }

    /// How many pages are in use.
    pub(crate) fn used(&self) -> u64 {
        let words = self.slots.iter().flat_map(SlotBits::made_pieces).flat_map(|(_, words)| words);
        words.map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }
}

/// Bits of adjacent pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MarkedPiece<'a> {
    slot: u8,
    /// The number of the first word.
    first: u64,
    words: &'a [AtomicU64],
}

impl MarkedPiece<'_> {
    /// The pages in use.
    pub(crate) fn used_pages(&self) -> impl Iterator<Item = PmAddr> + '_ {
        (self.first..).zip(self.words).flat_map(move |(index, word)| {
            let word = word.load(Ordering::Relaxed);
            let used = (0..64).filter(move |bit| word >> bit & 1 != 0);
            used.map(move |bit| PmAddr::new(self.slot, (index * 64 + bit) * PAGE))
        })
    }
}

fn two_owners(at: PmAddr, owner: &dyn Fn() -> String) -> Error {
    Error::damaged(owner(), at, "a page that has another owner too")
}

/// A bit for each inode number of each chunk.
#[derive(Debug)]
pub(crate) struct InodeMarks {
    /// Made when the first number of a chunk is marked.
    chunks: Vec<OnceLock<Vec<AtomicU64>>>,
}

impl InodeMarks {
    pub(crate) fn new(chunks: usize) -> Self {
        Self { chunks: (0..chunks).map(|_| OnceLock::new()).collect() }
    }

    /// Marks a number. Those of a word are one thread's: a task has 256 of them.
    pub(crate) fn mark(&self, ino: Ino) {
        let words = || (0..INODES_PER_CHUNK / 64).map(|_| AtomicU64::new(0)).collect();
        let word =
            usize::try_from(ino.chunk()).ok().and_then(|chunk| self.chunks.get(chunk)).and_then(
                |chunk| chunk.get_or_init(words).get(usize::try_from(ino.index() / 64).ok()?),
            );
        if let Some(word) = word {
            let marked = word.load(Ordering::Relaxed) | 1 << (ino.index() % 64);
            word.store(marked, Ordering::Relaxed);
        }
    }

    pub(crate) fn word(&self, chunk: usize, index: usize) -> u64 {
        let words = self.chunks.get(chunk).and_then(OnceLock::get);
        let word = words.and_then(|words| words.get(index));
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    pub(crate) fn used(&self) -> u64 {
        let words = self.chunks.iter().filter_map(OnceLock::get).flatten();
        words.map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_have_each_page_in_use_once() {
        let a_piece = PIECE_WORDS as u64 * 64;
        let marks = PageMarks::new(vec![2 * a_piece + 100, 70]);
        let page = |slot, page: u64| PmAddr::new(slot, page * PAGE);
        let mut used = vec![page(0, 0), page(0, 2 * a_piece + 99), page(1, 3), page(1, 69)];
        for addr in &used {
            marks.mark(*addr, 1, &String::new).unwrap();
        }
        marks.mark(page(0, a_piece - 2), 4, &String::new).unwrap();
        used.splice(1..1, (0..4).map(|index| page(0, a_piece - 2 + index)));
        let pieces = marks.pieces();
        assert_eq!(pieces.len(), 4);
        assert_eq!([0, 1].map(|slot| marks.word(slot, 2 * a_piece / 64 + 2)), [0, u64::MAX]);
        assert_eq!(pieces.iter().flat_map(MarkedPiece::used_pages).collect::<Vec<_>>(), used);
        assert_eq!(marks.used(), used.len() as u64);
    }

    #[test]
    fn pieces_without_a_page_in_use_take_nothing() {
        let a_piece = PIECE_WORDS as u64 * 64;
        let marks = PageMarks::new(vec![100 * a_piece]);
        marks.mark(PmAddr::new(0, 50 * a_piece * PAGE), 1, &String::new).unwrap();
        assert_eq!(marks.pieces().len(), 1);
        assert_eq!([0, 50 * a_piece / 64].map(|index| marks.word(0, index)), [0, 1]);
        assert_eq!(marks.used(), 1);
        marks.mark(PmAddr::new(0, 50 * a_piece * PAGE), 1, &String::new).unwrap_err();
        assert!(marks.any_shared());
        let at = |page| PmAddr::new(0, page * PAGE);
        marks.refuse_shared(at(49 * a_piece), a_piece, &String::new).unwrap();
        marks.refuse_shared(at(49 * a_piece), a_piece + 1, &String::new).unwrap_err();
    }
}
