//! Overwrites by slots: LAWN's alternate writing, in the form that its paper has published, a zone of slots
//! beside the pages (LAWN 4), atomic for the whole write.
//!
//! The slots are lines of pages of the file's own. Up to 64 pages of it share such pages: a sub-zone. A
//! write stores each line that it touches to a free slot where the page has the current one, and to the
//! page where a slot has it; pair entries, the paper's descriptors, commit with the inode. Each byte is
//! stored once. In its entry a page says which of its lines are in slots, of one page, and by how many
//! places they are moved round there. A line whose place there is not free makes the page move: its lines
//! in slots go back to it, and the new ones to other slots, by the same commit.
//!
//! Crash points: those of [`crate::write::paired`], by which pages of their own are written; a slot is free
//! while no page of the file has its current line there. (1) Lines to slots that are free, and over lines of
//! pages of which slots have the current ones; the entries; in the single-fence form the commit line too.
//! Fence. (2) In the two-fence form the line; fence. Until the line counts what was current stays so, and
//! nothing of it was stored over. What it ends, slots among them, is used again by later operations of the
//! inode alone, which begin when it is durable. An operation that is refused, or whose client dies, has
//! stored to nothing that was current before it.
//!
//! Slots of pages that are mapped anew, cut off or removed are free by that: their entries count while the
//! page lies where they say. A page that has no line in a slot any more has an entry that says so, and
//! keeps it, so that no older one counts again when collection has been there.

use arrayvec::ArrayVec;
use novale_layout::Partner;
use novale_policy::{Method, SlotLines};

use crate::base::error::{Error, Result};
use crate::base::lines::line_mask;
use crate::fs::Fs;
use crate::inode::pairs::{PAIRS_MAX, Paired, pair_count};
use crate::inode::slots::{SlotsIn, Zone, oldest_first};
use crate::inode::view::View;
use crate::map::slots::{ChangedTo, LineChange};
use crate::op::call::Call;
use crate::op::file_tx::FileTx;
use crate::op::lock::Locked;
use crate::seeded::{self, Bug};
use crate::space::Need;
use crate::write::paired::{PagePart, PageParts};
use crate::write::plan::{PagePiece, WritePlan};
use crate::write::small::PAGES_MAX;

/// Pages that a write changes: its own, and one that is written back for each.
const CHANGED_MAX: usize = 2 * PAGES_MAX;

impl<'d> LineChange<'d> {
    /// A page of the file is written, its lines in slots where there are any free.
    fn write(part: &PagePart<'d>, slot: SlotLines, zone: &mut Zone, fresh: u64) -> Option<Self> {
        let lines = lines_of(part, slot);
        let word = part.pair.map_or(0, |old| old.word);
        let to_slots = lines & !word;
        let kept = part
            .pair
            .filter(|old| !old.partner.is_shared() || zone.take_beside(old.partner, to_slots));
        if let Some(old) = kept {
            return Some(Self::beside(part, lines, old));
        }
        let to = match zone.take(to_slots, slot, fresh)? {
            (SlotsIn::Page(page), shift) => ChangedTo::Partner(Partner::slots(page, shift)),
            (SlotsIn::Taken(index), shift) => ChangedTo::Taken(index, shift),
        };
        Some(Self::of(part, to, lines | word, to_slots))
    }

    /// It is written, its lines where it has second copies of some already.
    fn beside(part: &PagePart<'d>, lines: u64, old: Paired) -> Self {
        let is_in_place = seeded::is_on(Bug::SlotInPlace);
        let word = if is_in_place { old.word } else { old.word ^ lines };
        Self::of(part, ChangedTo::Partner(old.partner), lines, word)
    }

    fn of(part: &PagePart<'d>, to: ChangedTo, changed: u64, word: u64) -> Self {
        let PagePart { piece, home, pair: old } = *part;
        let PagePiece { file_page, from, bytes } = piece;
        Self { file_page, home, old, to, changed, word, bytes, from }
    }
}

/// The lines that a write stores of a page.
fn lines_of(part: &PagePart<'_>, slot: SlotLines) -> u64 {
    let PagePiece { from, bytes, .. } = &part.piece;
    slot.whole(line_mask(&(*from..from + bytes.len() as u64)))
}

/// The changes of a write, and how many pages it takes.
struct Changes<'d> {
    changes: ArrayVec<LineChange<'d>, CHANGED_MAX>,
    fresh: u64,
}

impl Fs {
    /// Overwrites bytes of pages that the file has by slots, or copies the pages where there are none
    /// free; says which. What has a partner of its own is written as ever.
    pub(crate) fn write_to_slots(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        plan: &WritePlan,
        data: &[u8],
        parts: &PageParts<'_>,
    ) -> Result<Method> {
        let view = &locked.view;
        let Some(Changes { changes, fresh }) = self.find_slots(view, parts)? else {
            return self.write_copied(call, locked, plan, data);
        };
        if fresh > 0 && !self.may_take_slots(call, view, fresh)? {
            return self.write_copied(call, locked, plan, data);
        }
        let reserved =
            parts.iter().try_for_each(|part| view.reserve_pair(self.arena(), part.piece.file_page));
        let written = reserved.and_then(|()| {
            let mut tx = FileTx::begin(self, call, locked);
            if fresh > 0 && tx.take(fresh, Need::Growth).is_err() {
                return Ok(false);
            }
            tx.sum(plan.is_single);
            self.change_lines(&mut tx, view, &changes, plan.is_single, Some(plan.end))?;
            Ok(true)
        });
        if !matches!(written, Ok(true)) {
            // Or readers would look for pairs, of which there are none.
            for part in parts {
                self.unreserve(view, part.piece.file_page)?;
            }
        }
        match written {
            Ok(true) => Ok(Method::Lawn),
            Ok(false) | Err(Error::NoMemory) => self.write_copied(call, locked, plan, data),
            Err(error) => Err(error),
        }
    }

    /// Where the lines of a write go; none where there is no room for some.
    fn find_slots<'d>(
        &self,
        view: &View<'_>,
        parts: &PageParts<'d>,
    ) -> Result<Option<Changes<'d>>> {
        let (arena, slot) = (self.arena(), self.options.slot_lines);
        let mut found = Changes { changes: ArrayVec::new(), fresh: 0 };
        if let [part] = parts.as_slice()
            && let Some(change) = self.find_slots_beside(view, part)?
        {
            found.changes.push(change);
            return Ok(Some(found));
        }
        let mut zone = Zone::none();
        for (index, part) in parts.iter().enumerate() {
            let page = part.piece.file_page;
            zone.look(view, arena, page)?;
            let change = LineChange::write(part, slot, &mut zone, found.fresh);
            let Some(change) = change else { return Ok(None) };
            if let ChangedTo::Taken(index, _) = change.to {
                found.fresh = found.fresh.max(index + 1);
            }
            found.changes.push(change);
            let is_last = parts.get(index + 1).is_none_or(|next| !zone.is_of(next.piece.file_page));
            if is_last && zone.usage().is_short() {
                self.write_oldest_back(view, page, parts, &mut found.changes)?;
            }
        }
        Ok(Some(found))
    }

    /// As [`Fs::find_slots`] of one page that has lines in slots already, if those of the write are free
    /// there: asks only for slots of that page, of which the others have few.
    fn find_slots_beside<'d>(
        &self,
        view: &View<'_>,
        part: &PagePart<'d>,
    ) -> Result<Option<LineChange<'d>>> {
        let Some(old) = part.pair.filter(|old| old.partner.is_shared()) else { return Ok(None) };
        let lines = lines_of(part, self.options.slot_lines);
        let to_slots = old.partner.slots_of(lines & !old.word);
        let used = view.slots_used(self.arena(), part.piece.file_page, old.partner.page())?;
        let is_free = used & to_slots == 0 || seeded::is_on(Bug::SlotTakenTwice);
        Ok(is_free.then(|| LineChange::beside(part, lines, old)))
    }

    /// Adds that the least recently written slots of a sub-zone are written back by the same commit.
    #[cold]
    fn write_oldest_back(
        &self,
        view: &View<'_>,
        page: u64,
        parts: &PageParts<'_>,
        changes: &mut ArrayVec<LineChange<'_>, CHANGED_MAX>,
    ) -> Result<()> {
        let is_written = |page: u64| parts.iter().any(|part| part.piece.file_page == page);
        let mut others =
            oldest_first(view, self.arena(), page, view.state().op_seq + 1)?.into_iter();
        if let Some((page, old)) = others.find(|(page, _)| !is_written(*page))
            && let Some(home) = self.page_addr(view, page)?
        {
            changes.push(LineChange::back(page, self.checked(home)?, old));
        }
        Ok(())
    }

    /// Whether so many pages may be taken for slots.
    fn may_take_slots(&self, call: &Call<'_>, view: &View<'_>, fresh: u64) -> Result<bool> {
        let arena = self.arena();
        // Each page may become one with a second copy.
        if pair_count(arena) + CHANGED_MAX as u64 > PAIRS_MAX || !self.allocator.is_roomy(arena)? {
            return Ok(false);
        }
        match self.allow(call, view.project(), fresh, 0) {
            Err(Error::QuotaExceeded) => Ok(false),
            allowed => allowed.map(|()| true),
        }
    }
}
