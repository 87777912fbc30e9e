//! The pairs of a file: what its view has of pages with two copies.
//!
//! A radix map has the partner of each such page, and beside it the word. In the bits of a word that no
//! partner uses there is the number of the operation whose entry says so, as far as it fits. A page
//! without a partner has one copy, and a word of 0, so that a reader who needs but the home copy looks at
//! the word alone: those of eight pages are in a line. Without a pair the map is empty, and a reader looks
//! at its root.
//!
//! Pages of which the partners are slots share the page that these lie in. Nothing counts the sharers: they
//! are among the 64 pages that have a node of the map together, where who needs to know looks. A page of
//! which no slot has a line any more stays in the map, without a partner, as long as an older entry may say
//! otherwise: collection keeps of each page the entry that is known here.

use std::ops::Range;
use std::sync::atomic::Ordering;

use novale_arena::{Arena, AtomicU64, Known, PairRef, Radix};
use novale_layout::{Partner, PmAddr};

use crate::base::error::{Error, Result};
use crate::inode::view::View;

/// The bits of a partner's word that are not of [`Partner`]: five below the address of a page, and eight
/// above the byte.
const OP_LOW_SHIFT: u32 = 7;
const OP_LOW_BITS: u32 = 5;
const OP_LOW: u64 = ((1 << OP_LOW_BITS) - 1) << OP_LOW_SHIFT;
const OP_HIGH_SHIFT: u32 = 48;
const OP_HIGH: u64 = 0xff << OP_HIGH_SHIFT;
/// How many operations are told apart.
const OPS: u64 = 1 << (OP_LOW_BITS + 8);
/// Pairs at most: closing the pool takes them apart.
pub(crate) const PAIRS_MAX: u64 = 1 << 18;

/// The partner in its word.
fn partner_of(word: u64) -> Partner {
    Partner::from_raw(word & !(OP_LOW | OP_HIGH))
}

/// Pages of a file that may share the page of their partners: those whose numbers begin alike.
pub(crate) const GROUP: u64 = 64;

/// So many pages of a range are looked at one by one; of a longer one those are found that are in the map.
const SHORT: u64 = 16;

/// The word of the arena's root block that counts the pairs of all views.
const COUNT: usize = 31;

/// What a view has of a page with two copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paired {
    pub(crate) partner: Partner,
    /// A bit a line: set, it is current in the partner.
    pub(crate) word: u64,
    /// What is kept of the number of the operation whose entry says so.
    op: u64,
}

/// The bits of an operation's number that are kept, where they are kept.
fn kept(op_seq: u64) -> u64 {
    op_seq << OP_LOW_SHIFT & OP_LOW | op_seq >> OP_LOW_BITS << OP_HIGH_SHIFT & OP_HIGH
}

impl Paired {
    pub(crate) fn new(partner: Partner, word: u64, op_seq: u64) -> Self {
        Self { partner, word, op: kept(op_seq) }
    }

    fn load(pair: PairRef<'_>) -> Option<Self> {
        Self::of(pair.value.load(Ordering::Relaxed), pair.word.load(Ordering::Relaxed))
    }

    /// What the map has of a page; none where that is nothing.
    fn of(value: u64, word: u64) -> Option<Self> {
        let op = value & (OP_LOW | OP_HIGH);
        (value != 0).then(|| Self { partner: partner_of(value), word, op })
    }

    /// The page of which lines are current; none where the newest entry says that no slot has any.
    pub(crate) fn page(&self) -> Option<PmAddr> {
        (self.word != 0 || !self.partner.is_shared()).then(|| self.partner.page())
    }

    /// The page, if it is one that pages of the file share.
    fn shared_page(&self) -> Option<PmAddr> {
        self.page().filter(|_| self.partner.is_shared())
    }

    /// Whether it is the entry of that operation, among those that a log has of the page, which says so.
    /// Of thousands of writes of the page another one may seem to be, too.
    pub(crate) fn is_by(&self, op_seq: u64) -> bool {
        self.op == kept(op_seq)
    }

    /// How many operations of the file have come since, before that of this number; as far as they are
    /// told apart.
    pub(crate) fn age(&self, op_seq: u64) -> u64 {
        let op = self.op >> OP_HIGH_SHIFT << OP_LOW_BITS | (self.op & OP_LOW) >> OP_LOW_SHIFT;
        op_seq.wrapping_sub(op) % OPS
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
    /// Where the second copies are; nowhere where there are none.
    #[inline]
    pub(crate) fn partner(&self) -> Partner {
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
        Ok(self.newest_pair(arena, page)?.filter(|pair| pair.page().is_some()))
    }

    /// What the newest pair entry of a page says, also where that is that it has one copy.
    #[inline]
    pub(crate) fn newest_pair(&self, arena: &'a Arena, page: u64) -> Result<Option<Paired>> {
        Ok(self.pairs().pair(arena, page)?.and_then(Paired::load))
    }

    /// The pages with two copies among the 64 around one: those that may share a partner's page with it.
    pub(crate) fn pairs_around(
        &self,
        arena: &'a Arena,
        page: u64,
    ) -> Result<impl Iterator<Item = (u64, Paired)>> {
        let pairs = self.pairs().pairs_around(arena, page)?;
        Ok(pairs.filter_map(|(page, pair)| {
            Paired::load(pair).filter(|pair| pair.page().is_some()).map(|pair| (page, pair))
        }))
    }

    /// The slots of a page that lines of pages around one are current in.
    #[inline]
    pub(crate) fn slots_used(&self, arena: &'a Arena, page: u64, slots: PmAddr) -> Result<u64> {
        let pairs = self.pairs().pairs_around(arena, page)?;
        Ok(pairs.fold(0, |used, (_, PairRef { value, word })| {
            let partner = partner_of(value.load(Ordering::Relaxed));
            let is_there = partner.is_shared() && partner.page() == slots;
            used | if is_there { partner.slots_of(word.load(Ordering::Relaxed)) } else { 0 }
        }))
    }

    /// Whether another page than this one has slots in a partner's page.
    fn is_shared_by_others(&self, arena: &'a Arena, page: u64, shared: PmAddr) -> Result<bool> {
        Ok(self
            .pairs_around(arena, page)?
            .any(|(other, pair)| other != page && pair.shared_page() == Some(shared)))
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
    pub(crate) fn next_pair(&self, arena: &'a Arena, mut from: u64) -> Result<Option<u64>> {
        // Each turn goes on after a page of the map.
        while let Some((page, _)) = self.pairs().next(arena, from)? {
            if self.pair(arena, page)?.is_some() {
                return Ok(Some(page));
            }
            from = page + 1;
        }
        Ok(None)
    }

    /// How many pages from `page` on, at most `most`, have one copy each.
    #[inline]
    pub(crate) fn pages_before_pair(&self, arena: &'a Arena, page: u64, most: u64) -> Result<u64> {
        if most <= 1 || !self.has_pairs() {
            return Ok(most);
        }
        Ok(self
            .next_pair(arena, page)?
            .map_or(most, |next| most.min(next.saturating_sub(page).max(1))))
    }

    /// The partners' pages of all pages that have two copies, each once.
    pub(crate) fn for_each_partner(
        &self,
        arena: &'a Arena,
        mut each: impl FnMut(PmAddr),
    ) -> Result<()> {
        let (mut from, mut seen, mut seen_of) = (0, Vec::new(), 0);
        while let Some(page) = self.next_pair(arena, from)? {
            from = page + 1;
            if page / GROUP != seen_of {
                (seen_of, seen) = (page / GROUP, Vec::new());
            }
            let Some(pair) = self.pair(arena, page)? else { continue };
            let partner = pair.partner.page();
            if !pair.partner.is_shared() {
                each(partner);
            } else if !seen.contains(&partner) {
                seen.push(partner);
                each(partner);
            }
        }
        Ok(())
    }

    /// Whether a page of the file has two copies.
    pub(crate) fn is_paired(&self, arena: &'a Arena) -> Result<bool> {
        Ok(self.has_pairs() && self.next_pair(arena, 0)?.is_some())
    }

    /// Room for a page's new pair, as long as memory is left for others: [`View::set_pair`] does not fail then.
    pub(crate) fn reserve_pair(&self, arena: &Arena, page: u64) -> Result<()> {
        Ok(self.pairs().sparing().reserve(arena, page, 1)?)
    }

    /// The same of one that is there already, in a file that is loaded.
    pub(crate) fn reserve_known_pair(&self, arena: &Arena, page: u64) -> Result<()> {
        Ok(self.pairs().reserve(arena, page, 1)?)
    }

    /// Notes what a page's newest entry says; a partner's page that is new counts as a page of data.
    /// Gives the page that none of the file's has lines in any more.
    pub(crate) fn set_pair(
        &self,
        arena: &'a Arena,
        page: u64,
        paired: &Paired,
    ) -> Result<Option<PmAddr>> {
        let Some(pair) = self.pairs().pair(arena, page)? else {
            return Err(Error::BadArena(format!("no room for the pair of page {page}")));
        };
        let old = Paired::load(pair).and_then(|old| old.page().map(|page| (page, old)));
        pair.word.store(paired.word, Ordering::Relaxed);
        pair.value.store(paired.partner.raw() | paired.op, Ordering::Relaxed);
        let new = paired.page();
        count(arena, i64::from(new.is_some()) - i64::from(old.is_some()));
        if old.map(|(page, _)| page) == new {
            return Ok(None);
        }
        let is_held = |partner: &Paired| match partner.shared_page() {
            Some(shared) => self.is_shared_by_others(arena, page, shared),
            None => Ok(false),
        };
        if new.is_some() && !is_held(paired)? {
            self.set_data_pages(self.data_pages() + 1);
        }
        let Some((gone, old)) = old else { return Ok(None) };
        if is_held(&old)? {
            return Ok(None);
        }
        self.set_data_pages(self.data_pages().saturating_sub(1));
        Ok(Some(gone))
    }

    /// As [`View::set_pair`] of several pages, which change at once: `ended` gets the pages that none of
    /// the file's has lines in any more when all are set.
    pub(crate) fn set_pairs(
        &self,
        arena: &'a Arena,
        pairs: impl Iterator<Item = (u64, Paired)>,
        mut ended: impl FnMut(PmAddr),
    ) -> Result<()> {
        let mut left = Vec::new();
        for (page, paired) in pairs {
            left.extend(self.set_pair(arena, page, &paired)?.map(|partner| (page, partner)));
        }
        for (page, partner) in left {
            // Another one may have come to it since.
            if !self.is_shared_by_others(arena, page, partner)? {
                ended(partner);
            }
        }
        Ok(())
    }

    /// Forgets what is said of pages; `ended` gets the partners' pages that none of the file's has lines
    /// in any more.
    pub(crate) fn end_pairs(
        &self,
        arena: &'a Arena,
        pages: Range<u64>,
        mut ended: impl FnMut(PmAddr),
    ) -> Result<()> {
        if !self.has_pairs() {
            return Ok(());
        }
        let (mut from, mut pairs) = (pages.start, 0);
        let is_short = pages.end.saturating_sub(pages.start) <= SHORT;
        // Each turn goes on after a page of the map.
        while from < pages.end {
            let page = if is_short {
                from
            } else {
                match self.pairs().next(arena, from)? {
                    Some((page, _)) if page < pages.end => page,
                    _ => break,
                }
            };
            from = page + 1;
            let (value, word) = self.pairs().remove_pair(arena, page)?;
            if let Some(gone) = Paired::of(value, word).filter(|old| old.page().is_some()) {
                pairs += 1;
                self.end_partner(arena, page, &gone)?.into_iter().for_each(&mut ended);
            }
        }
        if !is_short {
            // What an operation had reserved that died: no walk finds it.
            self.pairs().remove_range(arena, pages.start, pages.end, &mut |_, _| ())?;
        }
        if pairs > 0 {
            count(arena, -pairs);
        }
        Ok(())
    }

    /// Takes note that a page has no lines in its partner any more; gives the page that none has any in.
    fn end_partner(&self, arena: &'a Arena, page: u64, old: &Paired) -> Result<Option<PmAddr>> {
        let gone = old.partner.page();
        if old.partner.is_shared() && self.is_shared_by_others(arena, page, gone)? {
            return Ok(None);
        }
        self.set_data_pages(self.data_pages().saturating_sub(1));
        Ok(Some(gone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{CTX, with_file};
    use crate::log::FILE_PAGES_MAX;
    use crate::op::call::OpKind;

    /// An operation that died had reserved room for a pair. It stayed in a view that was dropped, and a
    /// directory that got the number later took it for the count of its names.
    #[test]
    fn what_is_reserved_ends_as_well() {
        let (fs, ino) = with_file();
        let call = fs.begin(OpKind::Write, &CTX).unwrap();
        let locked = fs.lock_file(&call, ino).unwrap();
        let view = &locked.view;
        for pages in [70..71, 60..60 + SHORT, 0..FILE_PAGES_MAX] {
            view.reserve_pair(fs.arena(), 70).unwrap();
            assert!(view.has_pairs());
            view.publish(|| view.end_pairs(fs.arena(), pages.clone(), |_| ())).unwrap();
            assert!(!view.has_pairs(), "{pages:?}");
        }
    }

    #[test]
    fn an_operation_is_known_by_bits_that_no_partner_has() {
        let partner = Partner::slots(PmAddr::new(u8::MAX, (1 << 48) - 4096), 63);
        for bit in 0..13 {
            let pair = Paired::new(partner, 0, 1 << bit);
            assert_eq!(partner_of(partner.raw() | pair.op), partner);
            assert!(pair.is_by(1 << bit) && !pair.is_by(0), "bit {bit}");
            assert_eq!(pair.age((1 << bit) + 5), 5, "bit {bit}");
        }
        assert_eq!(Paired::new(partner, 0, u64::MAX).age(OPS + 2), 3);
    }
}
