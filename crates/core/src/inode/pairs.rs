//! The pairs of a file: what its view has of pages with two copies.
//!
//! A radix map has the partner of each such page, and beside it the word. In the bits of a partner that no
//! page's address uses there is the number of the operation whose entry says so, as far as it fits. A page
//! without a partner has one copy, and a word of 0, so that a reader who needs but the home copy looks at
//! the word alone: those of eight pages are in a line. Without a pair the map is empty, and a reader looks
//! at its root.

use std::ops::Range;
use std::sync::atomic::Ordering;

use novale_arena::{Arena, AtomicU64, Known, PairRef, Radix};
use novale_layout::PmAddr;

use crate::base::error::{Error, Result};
use crate::inode::view::View;

/// The bits of a partner's word that are not of its address: the lowest 12, and eight above the byte.
const OP_LOW: u64 = 0xfff;
const OP_HIGH: u64 = 0xff << OP_HIGH_SHIFT;
const OP_HIGH_SHIFT: u32 = 48;
/// Pairs at most: closing the pool takes them apart.
pub(crate) const PAIRS_MAX: u64 = 1 << 18;

/// The address in a partner's word.
fn partner_of(word: u64) -> PmAddr {
    PmAddr::from_raw(word & !(OP_LOW | OP_HIGH))
}

/// The word of the arena's root block that counts the pairs of all views.
const COUNT: usize = 31;

/// What a view has of a page with two copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paired {
    pub(crate) partner: PmAddr,
    /// A bit a line: set, it is current in the partner.
    pub(crate) word: u64,
    /// What is kept of the number of the operation whose entry says so.
    op: u64,
}

/// The bits of an operation's number that are kept, where they are kept.
fn kept(op_seq: u64) -> u64 {
    op_seq & OP_LOW | op_seq << (OP_HIGH_SHIFT - OP_LOW.count_ones()) & OP_HIGH
}

impl Paired {
    pub(crate) fn new(partner: PmAddr, word: u64, op_seq: u64) -> Self {
        Self { partner, word, op: kept(op_seq) }
    }

    /// Whether it is the entry of that operation, among those that a log has of the page, which says so.
    /// Of a million writes of the page another one may seem to be, too.
    pub(crate) fn is_by(&self, op_seq: u64) -> bool {
        self.op == kept(op_seq)
    }
}

/// What a reader finds of a page that may have two copies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PairPlace<'a> {
    /// The first copy; null for a hole.
    pub(crate) home: PmAddr,
    partner: &'a AtomicU64,
    /// 0 where the page has one copy.
    pub(crate) word: u64,
}

impl PairPlace<'_> {
    /// The second copy; null where there is none.
    #[inline]
    pub(crate) fn partner(&self) -> PmAddr {
        partner_of(self.partner.load(Ordering::Relaxed))
    }
}

/// How many pairs all views have that are loaded. A death between a change and its count leaves it wrong
/// by that.
pub(crate) fn pair_count(arena: &Arena) -> u64 {
    // Below 0 after such a death.
    arena.root()[COUNT].load(Ordering::Relaxed).cast_signed().max(0).cast_unsigned()
}

fn count(arena: &Arena, change: i64) {
    arena.root()[COUNT].fetch_add(change.cast_unsigned(), Ordering::Relaxed);
}

impl<'a> View<'a> {
    fn pairs(&self) -> Radix<'a> {
        Radix::of_pairs(self.pairs_word(), self.index_word())
    }

    /// Whether a page of the file may have two copies.
    #[inline]
    pub(crate) fn has_pairs(&self) -> bool {
        !self.pairs().is_empty()
    }

    /// What there is of a page that has two copies.
    #[inline]
    pub(crate) fn pair(&self, arena: &'a Arena, page: u64) -> Result<Option<Paired>> {
        let Some(PairRef { value, word }) = self.pairs().pair(arena, page)? else {
            return Ok(None);
        };
        let partner = value.load(Ordering::Relaxed);
        let (op, word) = (partner & (OP_LOW | OP_HIGH), word.load(Ordering::Relaxed));
        Ok((partner != 0).then(|| Paired { partner: partner_of(partner), word, op }))
    }

    /// Where a page lies, and where it is said of it whether it has two copies, by one walk; none where
    /// that is not known: in a file that had few pages when the pair was made.
    #[inline]
    pub(crate) fn known_page_and_pair(&self, arena: Known<'a>, page: u64) -> Option<PairPlace<'a>> {
        let (home, PairRef { value, word }) = self.index().known_page_and_pair(arena, page)?;
        let (home, word) = (PmAddr::from_raw(home), word.load(Ordering::Relaxed));
        Some(PairPlace { home, partner: value, word })
    }

    /// Asks for what [`View::pair`] looks at to be brought into the cache, as far as it is known where
    /// that is.
    #[inline]
    pub(crate) fn ask_for_pair(&self, arena: Known<'a>, page: u64) {
        if let Some((_, pair)) = self.index().known_page_and_pair(arena, page) {
            pair.prefetch();
        }
    }

    /// As [`View::known_page_and_pair`] of a page that may have two copies, by a walk for each.
    #[inline(never)]
    pub(crate) fn known_apart(&self, arena: Known<'a>, page: u64) -> Option<PairPlace<'a>> {
        let PairRef { value, word } = self.pairs().known_pair(arena, page)??;
        let home = PmAddr::from_raw(self.index().known_page(arena, page)?);
        Some(PairPlace { home, partner: value, word: word.load(Ordering::Relaxed) })
    }

    /// The first page from `from` on that has two copies.
    pub(crate) fn next_pair(&self, arena: &Arena, from: u64) -> Result<Option<u64>> {
        Ok(self.pairs().next(arena, from)?.map(|(page, _)| page))
    }

    /// How many pages from `page` on, at most `most`, have one copy each.
    #[inline]
    pub(crate) fn pages_before_pair(&self, arena: &Arena, page: u64, most: u64) -> Result<u64> {
        if most <= 1 || !self.has_pairs() {
            return Ok(most);
        }
        Ok(self
            .next_pair(arena, page)?
            .map_or(most, |next| most.min(next.saturating_sub(page).max(1))))
    }

    /// The partners of all pages that have two copies.
    pub(crate) fn for_each_partner(
        &self,
        arena: &Arena,
        mut each: impl FnMut(PmAddr),
    ) -> Result<()> {
        Ok(self.pairs().for_each(arena, &mut |_, value| each(partner_of(value)))?)
    }

    /// Whether a page of the file has two copies.
    pub(crate) fn is_paired(&self, arena: &Arena) -> Result<bool> {
        Ok(self.has_pairs() && self.next_pair(arena, 0)?.is_some())
    }

    /// Room for a page's pair: [`View::set_pair`] does not fail then.
    pub(crate) fn reserve_pair(&self, arena: &Arena, page: u64) -> Result<()> {
        Ok(self.pairs().reserve(arena, page, 1)?)
    }

    /// Notes what a page's newest entry says; the partner of one that is new counts as a page of data.
    pub(crate) fn set_pair(&self, arena: &'a Arena, page: u64, paired: &Paired) -> Result<()> {
        let Some(PairRef { value, word }) = self.pairs().pair(arena, page)? else {
            return Err(Error::BadArena(format!("no room for the pair of page {page}")));
        };
        word.store(paired.word, Ordering::Relaxed);
        let before = value.load(Ordering::Relaxed);
        value.store(paired.partner.raw() | paired.op, Ordering::Relaxed);
        if before == 0 {
            self.set_data_pages(self.data_pages() + 1);
            count(arena, 1);
        }
        Ok(())
    }

    /// Forgets the pairs of pages; `ended` gets the partners.
    pub(crate) fn end_pairs(
        &self,
        arena: &Arena,
        pages: Range<u64>,
        mut ended: impl FnMut(PmAddr),
    ) -> Result<()> {
        if !self.has_pairs() {
            return Ok(());
        }
        let mut partners = 0;
        self.pairs().remove_range(arena, pages.start, pages.end, &mut |_, value| {
            partners += 1;
            ended(partner_of(value));
        })?;
        self.set_data_pages(self.data_pages().saturating_sub(partners));
        count(arena, -partners.cast_signed());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_known_by_bits_that_no_page_has() {
        let partner = PmAddr::new(u8::MAX, (1 << 48) - 4096);
        for bit in 0..20 {
            let pair = Paired::new(partner, 0, 1 << bit);
            assert_eq!(partner_of(partner.raw() | pair.op), partner);
            assert!(pair.is_by(1 << bit) && !pair.is_by(0), "bit {bit}");
        }
    }
}
