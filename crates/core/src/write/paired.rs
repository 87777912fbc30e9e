//! Overwrites by paired pages: LAWN's alternate writing, atomic for the whole write.
//!
//! A page that is overwritten in part has a second copy, its *partner*, and a word says of each line in
//! which of the two it is current. A write stores the lines that it touches to the other copy, and an
//! entry with the new word commits with the inode: each byte is stored once, and nothing of the rest of
//! the page. A partner is made with a page's first such write, and ends when the page is mapped anew.
//!
//! Crash points. (1) Lines to the copies in which they are not current, and the entries after the log's
//! tail; in the single-fence form the commit line too. Fence. (2) In the two-fence form the line; fence.
//! Until the line counts the old words stand, and what (1) stored is current for nobody. Single-fence: the
//! line counts only with the stored lines as its checksum says. No checksum that recovery may still ask
//! for covers what is stored over: that of the line that stands is of lines that are current, or of a
//! home page that has no partner yet, whose lines go to the partner first.
//!
//! Readers see the new words after the fence. What they read of the other copies meanwhile they do not
//! believe, since the view's counter has moved.

use arrayvec::ArrayVec;
use novale_layout::{FilePage, LINE, PAGE, Pair, Partner, PmAddr};
use novale_pm::Purpose;
use novale_policy::Method;

use crate::base::error::{Error, Result};
use crate::base::lines::{line_mask, line_runs};
use crate::fs::Fs;
use crate::inode::pairs::{PAIRS_MAX, Paired, pair_count};
use crate::inode::view::View;
use crate::op::call::Call;
use crate::op::file_tx::FileTx;
use crate::op::lock::Locked;
use crate::seeded::{self, Bug};
use crate::space::Need;
use crate::write::plan::{PagePiece, WritePlan, page_pieces};
use crate::write::small::PAGES_MAX;

const PAGE_BYTES: usize = 4096;
const LINE_BYTES: usize = 64;

/// What a write changes of one page.
pub(crate) struct PagePart<'d> {
    pub(crate) piece: PagePiece<'d>,
    pub(crate) home: PmAddr,
    /// None: the page has no partner yet.
    pub(crate) pair: Option<Paired>,
}

pub(crate) type PageParts<'d> = ArrayVec<PagePart<'d>, PAGES_MAX>;

impl PagePart<'_> {
    fn has_slots(&self) -> bool {
        self.pair.is_some_and(|pair| pair.partner.is_shared())
    }
}

impl Fs {
    /// Overwrites bytes of the file by paired pages, or copies the pages where one is a hole or may have
    /// no partner; says which.
    pub(crate) fn write_paired(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        plan: &WritePlan,
        data: &[u8],
    ) -> Result<Method> {
        let view = &locked.view;
        let mut parts = PageParts::new();
        if !self.find_parts(view, plan.offset, data, &mut parts)? || self.is_worn(call, &parts)? {
            return self.write_copied(call, locked, plan, data);
        }
        if plan.method == Method::Lawn || parts.iter().any(PagePart::has_slots) {
            return self.write_to_slots(call, locked, plan, data, &parts);
        }
        if !self.may_have_partners(call, view, &parts)? {
            return self.write_copied(call, locked, plan, data);
        }
        let fresh = || parts.iter().filter(|part| part.pair.is_none()).map(|part| part.piece);
        let reserved =
            fresh().try_for_each(|piece| view.reserve_pair(self.arena(), piece.file_page));
        let written = reserved.and_then(|()| self.store_paired(call, locked, plan, &parts));
        if !matches!(written, Ok(true)) {
            // Or readers would look for pairs, of which there are none.
            for piece in fresh() {
                self.unreserve(view, piece.file_page)?;
            }
        }
        match written {
            Ok(true) => Ok(Method::Paired),
            // A copy takes no memory for pairs, and gives the page that it takes back.
            Ok(false) | Err(Error::NoMemory) => self.write_copied(call, locked, plan, data),
            Err(error) => Err(error),
        }
    }

    /// Takes the room for a pair back that was not made.
    #[cold]
    pub(crate) fn unreserve(&self, view: &View<'_>, page: u64) -> Result<()> {
        if view.newest_pair(self.arena(), page)?.is_some() {
            return Ok(());
        }
        view.publish(|| view.end_pairs(self.arena(), page..page + 1, |_| ()))
    }

    /// Stores the parts, for which pairs there is room, and commits; not where there is no page for a
    /// partner.
    fn store_paired(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        plan: &WritePlan,
        parts: &PageParts<'_>,
    ) -> Result<bool> {
        let view = &locked.view;
        let fresh = parts.iter().filter(|part| part.pair.is_none()).count() as u64;
        let mut tx = FileTx::begin(self, call, locked);
        if fresh > 0 && tx.take(fresh, Need::Growth).is_err() {
            return Ok(false);
        }
        // The stores come before all that needs no address of theirs: they are on their way meanwhile.
        let mut stored: ArrayVec<(Pair, u32), PAGES_MAX> = ArrayVec::new();
        let mut taken = 0;
        for part in parts {
            let partner = part.pair.map_or_else(|| tx.page(taken), |pair| pair.partner.page());
            taken += u64::from(part.pair.is_none());
            let partner = self.checked(partner)?;
            stored.push(self.store_part(&mut tx, view, part, partner, plan.is_single)?);
        }
        tx.sum(plan.is_single);
        tx.strip()?;
        tx.room(stored.len(), Need::Release)?;
        for (pair, sum) in &stored {
            tx.pair(pair, *sum);
        }
        tx.grow(plan.end);
        let op_seq = tx.next().op_seq;
        tx.commit(|_, _| {
            stored.iter().try_for_each(|(pair, _)| {
                let paired = Paired::new(pair.partner, pair.word, op_seq);
                let _has_its_own = view.set_pair(self.arena(), pair.file_page.get(), &paired)?;
                Ok(())
            })
        })?;
        Ok(true)
    }

    /// Puts down what a write changes, page by page; says whether none of them is a hole.
    fn find_parts<'d>(
        &self,
        view: &View<'_>,
        offset: u64,
        data: &'d [u8],
        parts: &mut PageParts<'d>,
    ) -> Result<bool> {
        for piece in page_pieces(offset, data) {
            let Some(home) = self.page_addr(view, piece.file_page)? else { return Ok(false) };
            let pair = view.pair(self.arena(), piece.file_page)?;
            parts.push(PagePart { piece, home: self.checked(home)?, pair });
        }
        Ok(true)
    }

    /// Whether a page lies where the memory is worn more than elsewhere: a copy leaves it.
    #[inline]
    fn is_worn(&self, call: &Call<'_>, parts: &PageParts<'_>) -> Result<bool> {
        let (arena, allocator) = (self.arena(), &self.allocator);
        allocator.look_at_wear(arena, call.hint, 1)?;
        let hot = allocator.wear.hot_slots(arena)?;
        Ok(hot != 0 && parts.iter().any(|part| hot >> part.home.slot() & 1 != 0))
    }

    /// Whether there is room for the partners that a write needs: they never have more pages than are
    /// free, and of a tree none beyond its limits.
    fn may_have_partners(
        &self,
        call: &Call<'_>,
        view: &View<'_>,
        parts: &PageParts<'_>,
    ) -> Result<bool> {
        let fresh = parts.iter().filter(|part| part.pair.is_none()).count() as u64;
        if fresh == 0 {
            return Ok(true);
        }
        let arena = self.arena();
        let pairs_max = PAIRS_MAX.min(self.allocator.pages_unclaimed(arena)?);
        if pair_count(arena) + fresh > pairs_max || !self.allocator.is_roomy(arena)? {
            return Ok(false);
        }
        match self.allow(call, view.project(), fresh, 0) {
            Err(Error::QuotaExceeded) => Ok(false),
            allowed => allowed.map(|()| true),
        }
    }

    /// Stores what a write changes of a page; returns the entry that says so and, where it is asked for,
    /// the checksum of the lines.
    fn store_part(
        &self,
        tx: &mut FileTx<'_>,
        view: &View<'_>,
        part: &PagePart<'_>,
        partner: PmAddr,
        is_summed: bool,
    ) -> Result<(Pair, u32)> {
        let PagePart { piece: PagePiece { file_page, from, bytes }, home, .. } = *part;
        let to = from + bytes.len() as u64;
        let word = part.pair.map_or(0, |pair| pair.word);
        let start = from / LINE * LINE;
        let mut lines: ArrayVec<u8, PAGE_BYTES> = ArrayVec::new();
        self.add_current(&mut lines, part, start..from)?;
        add(&mut lines, bytes);
        // Beyond the end of the file a line has zeros.
        let end = to.next_multiple_of(LINE);
        let live = end.min(view.size() - file_page * PAGE).max(to);
        self.add_current(&mut lines, part, to..live)?;
        let dead = usize::try_from(end - live).unwrap_or(0);
        add(&mut lines, [0; LINE_BYTES].get(..dead).unwrap_or_default());
        let changed = line_mask(&(from..to));
        let flip = if seeded::is_on(Bug::PairInPlace) { 0 } else { changed };
        let word = word ^ flip;
        for run in line_runs(word, start..end) {
            let [first, last] = [run.bytes.start, run.bytes.end]
                .map(|byte| usize::try_from(byte - start).unwrap_or(usize::MAX));
            let copy = if run.in_partner { partner } else { home };
            let (at, bytes) = (copy.add(run.bytes.start), lines.get(first..last));
            let bytes = bytes.unwrap_or_default();
            tx.also(if seeded::is_on(Bug::PairLineCached) {
                seeded::stream_but_a_line(&self.pm, at, bytes, 0)
            } else {
                self.pm.stream(at, bytes, Purpose::Data)
            });
        }
        // After the stores: they drain meanwhile.
        let sum = if is_summed { novale_crc::append(0, &lines) } else { 0 };
        let partner = Partner::own(partner);
        Ok((Pair { file_page: FilePage::new(file_page), home, partner, word, changed }, sum))
    }

    /// Adds current bytes of a page, which lie in one line.
    #[inline]
    fn add_current(
        &self,
        lines: &mut ArrayVec<u8, PAGE_BYTES>,
        part: &PagePart<'_>,
        bytes: std::ops::Range<u64>,
    ) -> Result<()> {
        let len = usize::try_from(bytes.end.saturating_sub(bytes.start)).unwrap_or(0);
        if len == 0 {
            return Ok(());
        }
        let copy = match part.pair {
            Some(pair) if pair.word >> (bytes.start / LINE) & 1 == 1 => pair.partner.page(),
            _ => part.home,
        };
        let mut line = [0; LINE_BYTES];
        let line = line.get_mut(..len).unwrap_or_default();
        self.pm.load(copy.add(bytes.start), line)?;
        add(lines, line);
        Ok(())
    }
}

/// Adds bytes to a page's lines, of which a page has room for all.
fn add(lines: &mut ArrayVec<u8, PAGE_BYTES>, bytes: &[u8]) {
    let _fits = lines.try_extend_from_slice(bytes);
}
