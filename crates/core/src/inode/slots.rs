//! A sub-zone of a file, as its view has it: the pages whose slots the second copies of lines of up to 64
//! pages of the file lie in, and who of these has which slots.
//!
//! It is made of the pairs of those pages when it is needed, and nothing else is kept of it.

use arrayvec::ArrayVec;
use novale_arena::Arena;
use novale_layout::{Partner, PmAddr};
use novale_policy::{SlotLines, ZoneUse};

use crate::base::error::Result;
use crate::inode::pairs::{GROUP, Paired};
use crate::inode::view::View;
use crate::seeded::{self, Bug};

const PAGES: usize = 64;
const _: () = assert!(PAGES as u64 == GROUP);

/// A page of slots; one that is to be taken has an index in the place of an address.
#[derive(Debug, Clone, Copy)]
struct SlotPage {
    page: SlotsIn,
    /// A bit a slot: its line is current, or will be.
    used: u64,
}

/// Which page slots are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotsIn {
    /// One that the file has.
    Page(PmAddr),
    /// That with this number among those which a write takes.
    Taken(u64),
}

/// The pages of a sub-zone.
#[derive(Debug)]
pub(crate) struct Zone {
    /// Of whose pages of the file; none yet.
    group: Option<u64>,
    pages: ArrayVec<SlotPage, PAGES>,
}

/// The pages of a file that have lines in slots of a sub-zone.
pub(crate) type Sharers = ArrayVec<(u64, Paired), PAGES>;

/// The pages that share a page's sub-zone, the least recently written first; `op_seq` is the number of the
/// file's next operation.
pub(crate) fn oldest_first<'a>(
    view: &View<'a>,
    arena: &'a Arena,
    page: u64,
    op_seq: u64,
) -> Result<Sharers> {
    let pairs = view.pairs_around(arena, page)?;
    let mut sharers: Sharers = pairs.filter(|(_, pair)| pair.partner.is_shared()).collect();
    sharers.sort_unstable_by_key(|(page, pair)| (u64::MAX - pair.age(op_seq), *page));
    Ok(sharers)
}

/// Those of them whose lines are to be written back in the background.
pub(crate) fn surplus(mut sharers: Sharers) -> Vec<(u64, Paired)> {
    let mut surplus = Vec::new();
    let usage = |sharers: &Sharers| {
        let mut zone = Zone::none();
        sharers.iter().for_each(|(_, pair)| zone.note_pair(pair));
        zone.usage()
    };
    // Each turn takes one of up to 64 out.
    while usage(&sharers).is_grown() {
        surplus.extend(sharers.pop_at(0));
    }
    surplus
}

impl Zone {
    /// One without pages, of no file.
    pub(crate) fn none() -> Self {
        Self { group: None, pages: ArrayVec::new() }
    }

    /// Looks what a page's sub-zone has, unless this is it.
    pub(crate) fn look<'a>(&mut self, view: &View<'a>, arena: &'a Arena, page: u64) -> Result<()> {
        if !self.is_of(page) {
            (self.group, self.pages) = (Some(page / GROUP), ArrayVec::new());
            for (_, pair) in view.pairs_around(arena, page)? {
                if pair.partner.is_shared() {
                    self.note_pair(&pair);
                }
            }
        }
        Ok(())
    }

    fn note_pair(&mut self, pair: &Paired) {
        self.note(SlotsIn::Page(pair.partner.page()), pair.partner.slots_of(pair.word));
    }

    /// Whether a page of the file is one of those that share it.
    pub(crate) fn is_of(&self, page: u64) -> bool {
        self.group == Some(page / GROUP)
    }

    fn note(&mut self, page: SlotsIn, slots: u64) {
        match self.pages.iter_mut().find(|known| known.page == page) {
            Some(known) => known.used |= slots,
            // Each of up to 64 pages has slots in one page.
            None => {
                let _fits = self.pages.try_push(SlotPage { page, used: slots });
            }
        }
    }

    /// How full it is.
    pub(crate) fn usage(&self) -> ZoneUse {
        let used = self.pages.iter().map(|page| page.used.count_ones()).sum();
        ZoneUse { pages: u32::try_from(self.pages.len()).unwrap_or(u32::MAX), used }
    }

    /// Takes further slots of the page in which a page of the file has lines already; says whether they
    /// were free.
    pub(crate) fn take_beside(&mut self, partner: Partner, lines: u64) -> bool {
        let slots = partner.slots_of(lines);
        let page = SlotsIn::Page(partner.page());
        let used = self.pages.iter().find(|known| known.page == page).map_or(0, |page| page.used);
        let is_free = used & slots == 0 || seeded::is_on(Bug::SlotTakenTwice);
        if is_free {
            self.note(page, slots);
        }
        is_free
    }

    /// Takes slots for lines of a page of the file: the page that they are in, and their shift. `fresh` is
    /// the number of the next page that may be taken. None where there is no room.
    pub(crate) fn take(
        &mut self,
        lines: u64,
        slot: SlotLines,
        fresh: u64,
    ) -> Option<(SlotsIn, u32)> {
        let usage = self.usage();
        let fits = |page: &SlotPage| Some((page.page, slot.shift(page.used, lines)?));
        let is_roomy = |page: &&SlotPage| usage.is_roomy(page.used.count_ones());
        let taken = self.pages.iter().filter(is_roomy).find_map(fits);
        let taken = taken
            .or_else(|| usage.may_grow().then_some((SlotsIn::Taken(fresh), slot.shift(0, lines)?)));
        if let Some((page, shift)) = taken {
            self.note(page, lines.rotate_left(shift));
        }
        taken
    }
}
