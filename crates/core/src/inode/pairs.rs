//! The pairs of a file: what its view has of pages with two copies.
//!
//! A radix map has a row of four keys for each such page: the partner, the operation whose entry says so,
//! and the halves of the word; a row without a partner is none. Without a pair the map is empty, and a
//! reader looks at its root alone.
//!
//! Leaves are used again for other maps, and a reader that comes late takes what it finds for the address
//! of a page. So no value is one that can't be an address and some bytes: halves and numbers have 32 bits.

use std::ops::Range;
use std::sync::atomic::Ordering;

use novale_arena::{Arena, Radix};
use novale_layout::PmAddr;

use crate::base::error::{Error, Result};
use crate::inode::view::View;

const KEYS_A_PAGE: u64 = 4;

/// Whether a key is that of a partner.
fn is_partner(key: u64) -> bool {
    key.is_multiple_of(KEYS_A_PAGE)
}

/// The word of the arena's root block that counts the pairs of all views.
const COUNT: usize = 31;

/// What a view has of a page with two copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paired {
    pub(crate) partner: PmAddr,
    /// A bit a line: set, it is current in the partner.
    pub(crate) word: u64,
    /// The operation whose entry says so, by the low half of its number.
    op: u64,
}

/// The low half of a word.
fn low(word: u64) -> u64 {
    word & u64::from(u32::MAX)
}

impl Paired {
    pub(crate) fn new(partner: PmAddr, word: u64, op_seq: u64) -> Self {
        Self { partner, word, op: low(op_seq) }
    }

    /// Whether it is the entry of that operation, among those that a log has of the page, which says so.
    pub(crate) fn is_by(&self, op_seq: u64) -> bool {
        self.op == low(op_seq)
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
        Radix::new(self.pairs_word())
    }

    /// Whether a page of the file may have two copies.
    #[inline]
    pub(crate) fn has_pairs(&self) -> bool {
        !self.pairs().is_empty()
    }

    /// What there is of a page that has two copies.
    #[inline]
    pub(crate) fn pair(&self, arena: &'a Arena, page: u64) -> Result<Option<Paired>> {
        let Some(row) = self.pairs().row(arena, page * KEYS_A_PAGE)? else { return Ok(None) };
        let [partner, op, first, second] = row;
        let partner = PmAddr::from_raw(partner.load(Ordering::Relaxed));
        let [op, first, second] = [op, first, second].map(|value| value.load(Ordering::Relaxed));
        let word = first | second << 32;
        Ok((!partner.is_null()).then_some(Paired { partner, word, op }))
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
            if is_partner(key) {
                each(PmAddr::from_raw(value));
            }
        })?)
    }

    /// Whether a page of the file has two copies.
    pub(crate) fn is_paired(&self, arena: &Arena) -> Result<bool> {
        Ok(self.has_pairs() && self.next_pair(arena, 0)?.is_some())
    }

    /// Room for a page's pair: [`View::set_pair`] does not fail then.
    pub(crate) fn reserve_pair(&self, arena: &Arena, page: u64) -> Result<()> {
        Ok(self.pairs().reserve(arena, page * KEYS_A_PAGE, KEYS_A_PAGE)?)
    }

    /// Notes what a page's newest entry says; the partner of one that is new counts as a page of data.
    pub(crate) fn set_pair(&self, arena: &'a Arena, page: u64, paired: &Paired) -> Result<()> {
        let Some(row) = self.pairs().row(arena, page * KEYS_A_PAGE)? else {
            return Err(Error::BadArena(format!("no room for the pair of page {page}")));
        };
        let [partner, op, first, second] = row;
        op.store(paired.op, Ordering::Relaxed);
        first.store(low(paired.word), Ordering::Relaxed);
        second.store(paired.word >> 32, Ordering::Relaxed);
        if partner.load(Ordering::Relaxed) == 0 {
            partner.store(paired.partner.raw(), Ordering::Relaxed);
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
            if is_partner(key) {
                partners += 1;
                ended(PmAddr::from_raw(value));
            }
        })?;
        self.set_data_pages(self.data_pages().saturating_sub(partners));
        count(arena, -partners.cast_signed());
        Ok(())
    }
}
