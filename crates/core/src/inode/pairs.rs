//! The pairs of a file: what its view has of pages with two copies.
//!
//! A radix map has four keys for each such page: the partner, the operation whose entry says so, and the
//! two halves of the word, which may be 0 as no value of the map may. Without a pair the map is empty,
//! and a reader looks at its root alone.

use std::ops::Range;
use std::sync::atomic::Ordering;

use novale_arena::{Arena, Radix};
use novale_layout::PmAddr;

use crate::base::error::Result;
use crate::inode::view::View;

const KEYS_A_PAGE: u64 = 4;
const PARTNER: u64 = 0;
const OP_SEQ: u64 = 1;
const LOW: u64 = 2;
const HIGH: u64 = 3;
/// Set in each half of a word.
const HALF: u64 = 1 << 32;
/// The word of the arena's root block that counts the pairs of all views.
const COUNT: usize = 31;

/// What a view has of a page with two copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paired {
    pub(crate) partner: PmAddr,
    /// A bit a line: set, it is current in the partner.
    pub(crate) word: u64,
    /// The operation whose entry says so.
    pub(crate) op_seq: u64,
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
        Radix::new(self.pairs_word())
    }

    /// Whether a page of the file may have two copies.
    #[inline]
    pub(crate) fn has_pairs(&self) -> bool {
        !self.pairs().is_empty()
    }

    /// What there is of a page that has two copies.
    #[inline]
    pub(crate) fn pair(&self, arena: &Arena, page: u64) -> Result<Option<Paired>> {
        if !self.has_pairs() {
            return Ok(None);
        }
        let get = |key| self.pairs().get(arena, page * KEYS_A_PAGE + key);
        let partner = get(PARTNER)?;
        if partner == 0 {
            return Ok(None);
        }
        let word = get(LOW)? & (HALF - 1) | get(HIGH)? << 32;
        Ok(Some(Paired { partner: PmAddr::from_raw(partner), word, op_seq: get(OP_SEQ)? }))
    }

    /// The first page from `from` on that has two copies.
    pub(crate) fn next_pair(&self, arena: &Arena, from: u64) -> Result<Option<u64>> {
        let next = self.pairs().next(arena, from * KEYS_A_PAGE)?;
        Ok(next.map(|(key, _)| key / KEYS_A_PAGE))
    }

    /// The partners of all pages that have two copies.
    pub(crate) fn for_each_partner(
        &self,
        arena: &Arena,
        mut each: impl FnMut(PmAddr),
    ) -> Result<()> {
        Ok(self.pairs().for_each(arena, &mut |key, value| {
            if key % KEYS_A_PAGE == PARTNER {
                each(PmAddr::from_raw(value));
            }
        })?)
    }

    /// Room for a page's pair: [`View::set_pair`] does not fail then.
    pub(crate) fn reserve_pair(&self, arena: &Arena, page: u64) -> Result<()> {
        Ok(self.pairs().reserve(arena, page * KEYS_A_PAGE, KEYS_A_PAGE)?)
    }

    /// Notes what a page's newest entry says; the partner of one that is new counts as a page of data.
    pub(crate) fn set_pair(&self, arena: &Arena, page: u64, paired: &Paired) -> Result<()> {
        let Paired { partner, word, op_seq } = *paired;
        let set = |key, value| self.pairs().set(arena, page * KEYS_A_PAGE + key, value);
        set(OP_SEQ, op_seq)?;
        set(LOW, word & (HALF - 1) | HALF)?;
        set(HIGH, word >> 32 | HALF)?;
        if set(PARTNER, partner.raw())? == 0 {
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
        let keys = pages.start * KEYS_A_PAGE..pages.end * KEYS_A_PAGE;
        let mut partners = 0;
        self.pairs().remove_range(arena, keys.start, keys.end, &mut |key, value| {
            if key % KEYS_A_PAGE == PARTNER {
                partners += 1;
                ended(PmAddr::from_raw(value));
            }
        })?;
        self.set_data_pages(self.data_pages().saturating_sub(partners));
        count(arena, -partners.cast_signed());
        Ok(())
    }
}
