//! Files whose own pages programs have mapped (DAX): their stores go straight to the pool.
//!
//! A client says so by a hold (`map::hold`), which counts in the upper half of the view's word for
//! holds as well. As long as there is one:
//! - *A page of the file keeps its address.* Writes, zeroing and punching change it in place; what a
//!   truncation cuts off is *parked*: in no log, free to nobody, and the same page again where the
//!   file grows there. The last such hold frees what is parked. Nothing else moves data: collection
//!   copies entries; collapsing and inserting are refused.
//! - *No data checksum covers a page of the file*, whose bytes change after it: the first hold makes a
//!   certificate durable before it counts, and commits that map pages take the two-fence form.
//! - *No kernel may map the file*, and where one has it mapped there is no such hold: what is stored
//!   in the one kind of mapping would not be seen in the other. A kernel that is to map it waits until
//!   the last one is given up ([`Fs::ask_to_map`]), where all of them can be.
//!
//! Crash points. New pages of a write are stored after the log's tail, as always, and what is stored
//! in place is written back, after one fence; then the commit line. So size, times and map are all
//! or nothing; bytes that were the file's before are the new or the old ones, by units of 8, as
//! those that a program stores itself. A crash frees what is parked, which no log names.
//!
//! Death. A page is taken out of what is parked before the commit that maps it, and put there after
//! the one that cuts it off: who dies between loses it until the pool is opened again, and it is never
//! two things. What a dead client was storing in place may be there in part, as after a crash.

use std::ops::Range;
use std::sync::atomic::Ordering;

use novale_arena::Radix;
use novale_layout::{Ino, PAGE, PmAddr};
use novale_pm::{Flushed, Purpose};

use crate::base::error::{Error, Result};
use crate::base::extent::{ByteRange, Extent, Extents, match_extents};
use crate::base::types::{Ctx, SourceRun};
use crate::fs::Fs;
use crate::inode::view::View;
use crate::inode::words::DAX_HOLD;
use crate::log::FILE_PAGES_MAX;
use crate::map::hold::HoldId;
use crate::op::call::{Call, OpKind};
use crate::op::commit::Rest;
use crate::op::file_tx::FileTx;
use crate::op::lock::{Locked, regular};
use crate::op::pages::need;
use crate::seeded::{self, Bug};
use crate::space::Need;

const PAGE_BYTES: usize = 4096;

/// Pages of a file that lie one after the other in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappedRun {
    /// The first page of the file.
    pub file_page: u64,
    /// Where it lies.
    pub addr: PmAddr,
    /// How many pages.
    pub pages: u64,
}

impl MappedRun {
    /// Whether a range of the file has bytes in it.
    #[must_use]
    pub fn touches(&self, range: &Range<u64>) -> bool {
        let start = self.file_page * PAGE;
        start < range.end && range.start < start + self.pages * PAGE
    }

    /// Where those of its bytes lie that are in a range of the file; it has some.
    #[must_use]
    pub fn bytes(&self, range: &Range<u64>) -> SourceRun {
        let start = self.file_page * PAGE;
        let (from, to) = (start.max(range.start), (start + self.pages * PAGE).min(range.end));
        SourceRun { addr: self.addr.add(from - start), len: to - from }
    }
}

/// What is stored in place.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bytes<'a> {
    /// These, as many as the range has.
    Given(&'a [u8]),
    Zeros,
}

impl Bytes<'_> {
    /// Those from `from` to `to`.
    fn piece(self, from: u64, to: u64) -> Self {
        match self {
            Self::Given(bytes) => {
                let [from, to] = [from, to].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
                Self::Given(bytes.get(from..to).unwrap_or_default())
            }
            Self::Zeros => Self::Zeros,
        }
    }
}

/// A range of a file that changes in place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InPlace<'a> {
    pub(crate) offset: u64,
    pub(crate) end: u64,
    pub(crate) bytes: Bytes<'a>,
    /// Holes in the range get pages.
    pub(crate) fills: bool,
    /// The size rises to cover the range.
    pub(crate) extends: bool,
}

/// What one does who has a file's own pages mapped when a kernel is to map the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Yields {
    Gives,
    /// Has the kernel refused, which nobody has asked for yet.
    Fixed,
    /// The same, whoever has asked.
    Stays,
}

/// The pages that are to fill holes.
pub(crate) struct NewPages {
    /// Each run with its first page in the file.
    pub(crate) runs: Vec<(u64, Extent)>,
    /// Those that were parked, by their pages in the file.
    parked: Vec<u64>,
}

impl<'a> View<'a> {
    /// Whether somebody has the file's own pages mapped.
    #[inline]
    pub(crate) fn is_dax(&self) -> bool {
        self.holds().load(Ordering::Relaxed) >= DAX_HOLD
    }

    /// Of a file: the pages that are not its any more, by where they were, and may be mapped.
    fn parked(&self) -> Radix<'a> {
        Radix::new(self.parked_word())
    }

    /// Whether pages of the file are parked.
    pub(crate) fn has_parked(&self) -> bool {
        !self.was_directory() && !self.parked().is_empty()
    }
}

impl Fs {
    /// Holds a file whose own pages the caller maps, until [`Fs::open_release`] or the end of the
    /// client: see `map::fill` in the source for what that keeps from happening. `None` when the
    /// inode is gone, or its number another generation's.
    ///
    /// # Errors
    /// [`Error::Mapped`] where a kernel has it mapped, or is about to; [`Error::ReadOnly`];
    /// [`Error::Invalid`] and [`Error::IsDirectory`] for what is no regular file; [`Error::NoMemory`].
    pub fn map_hold(&self, ctx: &Ctx, ino: Ino, generation: u32) -> Result<Option<HoldId>> {
        self.hold_pages(ctx, ino, generation, Yields::Fixed)
    }

    /// As [`Fs::map_hold`], by a caller who gives way: who sees by [`Fs::wait_for_mappings`] and
    /// [`Fs::is_wanted`] that a kernel is to map the file, and gives the hold up then.
    ///
    /// # Errors
    /// As [`Fs::map_hold`].
    pub fn map_hold_giving_way(
        &self,
        ctx: &Ctx,
        ino: Ino,
        generation: u32,
    ) -> Result<Option<HoldId>> {
        self.hold_pages(ctx, ino, generation, Yields::Gives)
    }

    /// As [`Fs::map_hold`], by a caller who shows the file's own pages already and can't give way any more. It is
    /// granted while a kernel waits for them, too, which is refused then; who waits is woken.
    ///
    /// # Errors
    /// As [`Fs::map_hold`]; [`Error::Mapped`] only where a kernel has it mapped.
    pub fn map_hold_staying(&self, ctx: &Ctx, ino: Ino, generation: u32) -> Result<Option<HoldId>> {
        let hold = self.hold_pages(ctx, ino, generation, Yields::Stays)?;
        self.arena().next_mappings_turn();
        Ok(hold)
    }

    fn hold_pages(
        &self,
        ctx: &Ctx,
        ino: Ino,
        generation: u32,
        yields: Yields,
    ) -> Result<Option<HoldId>> {
        let call = self.begin(OpKind::Attributes, ctx)?;
        self.take_hold(&call, ino, generation, |locked| {
            regular(locked.kind)?;
            let view = &locked.view;
            if view.is_mapped() || view.is_wanted() && yields != Yields::Stays {
                return Err(Error::Mapped);
            }
            self.flush(&call, locked)?;
            // A mapping shows one copy of a page.
            self.unpair_all(&call, locked)?;
            if !locked.view.is_dax() {
                // A mapping shows what lies beyond the end, too: an append that did not commit, or what
                // a truncation has left.
                let page_end = locked.view.size().next_multiple_of(PAGE);
                if let Some(gap) = self.zero_gap(locked, page_end)? {
                    self.pm.fence(gap).end();
                }
            }
            if locked.view.is_summed() && !seeded::is_on(Bug::MapNotCertified) {
                // What the checksum covers is about to change.
                self.commit(&call, locked, &mut locked.next_state(), Rest::Nothing, || Ok(()))?;
            }
            locked.view.note_fixed(yields != Yields::Gives);
            Ok(())
        })
    }

    /// Where the pages of a file lie of which the caller has a [`Fs::map_hold`]: `pages` from `first` on,
    /// as far as the file goes. Holes among them get zeroed pages first, in a commit. They lie there
    /// until the hold is given up.
    ///
    /// # Errors
    /// [`Error::Invalid`] without such a hold; [`Error::NoSpace`] and others of
    /// [`Fs::fallocate`](Self::fallocate).
    pub fn map_pages(
        &self,
        ctx: &Ctx,
        hold: HoldId,
        first: u64,
        pages: u64,
    ) -> Result<Vec<MappedRun>> {
        let call = self.begin(OpKind::Write, ctx)?;
        let locked = self.lock_file(&call, hold.ino())?;
        if !locked.view.is_dax() {
            return Err(Error::Invalid("pages of a file that is not held to be mapped"));
        }
        let stop = first.saturating_add(pages).min(locked.view.size().div_ceil(PAGE));
        if first >= stop {
            return Ok(Vec::new());
        }
        if locked.view.index().next_gap(self.arena(), first, stop)? < stop {
            let range = ByteRange { offset: first * PAGE, end: stop * PAGE };
            self.allocate(&call, &locked, range, false)?;
        }
        let mut runs = Vec::new();
        let mut page = first;
        while page < stop {
            let (addr, pages) = locked.view.index().run(self.arena(), page, stop - page, PAGE)?;
            runs.push(MappedRun { file_page: page, addr: PmAddr::from_raw(addr), pages });
            page += pages;
        }
        Ok(runs)
    }

    /// Changes bytes of a file that somebody has mapped, in place; pages that it has not yet are new
    /// ones, in one commit with the size.
    pub(crate) fn change_in_place(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        change: &InPlace<'_>,
    ) -> Result<()> {
        let InPlace { offset, end, fills, extends, .. } = *change;
        let view = &locked.view;
        let (first, stop) = (offset / PAGE, end.div_ceil(PAGE));
        if extends {
            self.unpark_below(call, locked, end)?;
        }
        let old = self.pages_in(view, first, stop)?;
        let holes = if fills { self.holes(locked, first, stop)? } else { Vec::new() };
        let pages = holes.iter().map(|(_, pages)| pages).sum();
        self.allow(call, view.project(), pages, 0)?;
        let mut tx = FileTx::begin(self, call, locked);
        let new_pages = self.pages_for(&mut tx, &holes)?;
        tx.strip()?;
        tx.room_for_runs(&new_pages.runs, need(new_pages.runs.is_empty()))?;
        tx.zero_gap(offset)?;
        // Readers wait until the commit: they see none of it before it is durable.
        view.publish_begin();
        tx.also(self.store_old(&old, change));
        for (page, extent) in &new_pages.runs {
            tx.also(self.store_new(*page, *extent, change));
            tx.map(*page, *extent, &[]);
        }
        tx.grow(if extends { end } else { 0 });
        let unparked = self.unpark_new(view, &new_pages);
        tx.commit(|_, _| self.show_new(view, &new_pages))?;
        unparked
    }

    /// The pages that a file has from one to another, each with where it lies.
    fn pages_in(&self, view: &View<'_>, first: u64, stop: u64) -> Result<Vec<(u64, PmAddr)>> {
        let mut pages = Vec::new();
        let mut next = view.index().next(self.arena(), first)?;
        while let Some((page, addr)) = next.filter(|(page, _)| *page < stop) {
            pages.push((page, self.checked(PmAddr::from_raw(addr))?));
            next = view.index().next(self.arena(), page + 1)?;
        }
        Ok(pages)
    }

    /// Zeroes what a file that grows to `to` has reserved after its last page: a client that mapped it
    /// when the file was longer may have stored there, in this session or before a crash. None where
    /// there is nothing.
    pub(crate) fn zero_reserved(&self, locked: &Locked<'_>, to: u64) -> Result<Option<Flushed>> {
        let (first, end) = (locked.view.size().div_ceil(PAGE), to.div_ceil(PAGE));
        if end <= first || seeded::is_on(Bug::CutPagesStay) {
            return Ok(None);
        }
        let mut pending = None;
        for (_, addr) in self.pages_in(&locked.view, first, end)? {
            let zeroed = self.pm.stream_zero(addr, PAGE, Purpose::Data);
            pending = Some(pending.unwrap_or_else(Flushed::none).and(zeroed));
        }
        Ok(pending)
    }

    /// The address of a page, once it is known to be one.
    pub(crate) fn checked(&self, addr: PmAddr) -> Result<PmAddr> {
        if self.allocator.is_lost(self.arena(), addr) {
            return Err(Error::Lost(addr));
        }
        if self.pm.contains(addr, PAGE) {
            return Ok(addr);
        }
        Err(Error::damaged("address", addr, "a page of a file outside of the pool"))
    }

    /// Stores what lies in pages that the file has.
    fn store_old(&self, old: &[(u64, PmAddr)], change: &InPlace<'_>) -> Flushed {
        let InPlace { offset, end, bytes, .. } = *change;
        let mut pending = Flushed::none();
        for (page, addr) in old {
            let (from, to) = within(*page, offset, end);
            let at = addr.add(from - page * PAGE);
            pending = pending.and(match bytes.piece(from - offset, to - offset) {
                Bytes::Given(bytes) if seeded::is_on(Bug::InPlaceCached) => {
                    seeded::stream_but_a_line(&self.pm, at, bytes, 0)
                }
                Bytes::Given(bytes) => self.pm.stream(at, bytes, Purpose::Data),
                Bytes::Zeros => self.pm.stream_zero(at, to - from, Purpose::Data),
            });
        }
        pending
    }

    /// Stores new pages: the bytes of the change, and zeros around them.
    fn store_new(&self, first: u64, extent: Extent, change: &InPlace<'_>) -> Flushed {
        let InPlace { offset, end, bytes, .. } = *change;
        let Bytes::Given(_) = bytes else {
            return self.pm.stream_zero(extent.addr, extent.pages * PAGE, Purpose::Data);
        };
        let mut pending = Flushed::none();
        for step in 0..extent.pages {
            let page = first + step;
            let (from, to) = within(page, offset, end);
            let mut room = [0; PAGE_BYTES];
            if let Bytes::Given(bytes) = bytes.piece(from - offset, to - offset) {
                let start = usize::try_from(from - page * PAGE).unwrap_or(0);
                if let Some(place) = room.get_mut(start..start + bytes.len()) {
                    place.copy_from_slice(bytes);
                }
            }
            let at = extent.addr.add(step * PAGE);
            pending = pending.and(self.pm.stream(at, &room, Purpose::Data));
        }
        pending
    }

    /// Pages for holes: those that are parked there, new ones elsewhere.
    pub(crate) fn pages_for(&self, tx: &mut FileTx<'_>, holes: &[(u64, u64)]) -> Result<NewPages> {
        let view = &tx.view();
        let mut new_pages = NewPages { runs: Vec::new(), parked: Vec::new() };
        if view.is_dax() && view.has_parked() {
            for page in holes.iter().flat_map(|(page, pages)| *page..page + pages) {
                if view.parked().get(self.arena(), page)? != 0 {
                    new_pages.parked.push(page);
                }
            }
        }
        let pages: u64 = holes.iter().map(|(_, pages)| pages).sum();
        let new = pages - new_pages.parked.len() as u64;
        tx.take(new, Need::Growth)?;
        if new_pages.parked.is_empty() {
            new_pages.runs = match_extents(holes, tx.extents());
            return Ok(new_pages);
        }
        new_pages.runs = self.in_order(view, holes, &new_pages.parked, tx.extents())?;
        Ok(new_pages)
    }

    /// The pages for holes, where some of them are parked.
    fn in_order(
        &self,
        view: &View<'_>,
        holes: &[(u64, u64)],
        parked: &[u64],
        taken: &Extents,
    ) -> Result<Vec<(u64, Extent)>> {
        let taken = taken.iter();
        let mut taken = taken
            .flat_map(|extent| (0..extent.pages).map(move |page| extent.addr.add(page * PAGE)));
        let mut kept = parked.iter().copied().peekable();
        let mut runs: Vec<(u64, Extent)> = Vec::new();
        for page in holes.iter().flat_map(|(page, pages)| *page..page + pages) {
            let addr = match kept.next_if_eq(&page) {
                Some(_) => PmAddr::from_raw(view.parked().get(self.arena(), page)?),
                None => taken.next().unwrap_or(PmAddr::NULL),
            };
            match runs.last_mut() {
                Some((first, run)) if *first + run.pages == page && run.end() == addr => {
                    run.pages += 1;
                }
                _ => runs.push((page, Extent { addr, pages: 1 })),
            }
        }
        Ok(runs)
    }

    /// Takes pages that are about to be mapped out of what is parked: before the commit, so that a
    /// page is never both.
    pub(crate) fn unpark_new(&self, view: &View<'_>, new_pages: &NewPages) -> Result<()> {
        for page in &new_pages.parked {
            view.parked().remove(self.arena(), *page)?;
        }
        Ok(())
    }

    /// Maps new pages.
    pub(crate) fn show_new(&self, view: &View<'_>, new_pages: &NewPages) -> Result<()> {
        let mut pages = 0;
        for (page, extent) in &new_pages.runs {
            view.index().set_range(self.arena(), *page, extent.pages, extent.addr.raw(), PAGE)?;
            pages += extent.pages;
        }
        view.set_data_pages(view.data_pages() + pages);
        Ok(())
    }

    /// Gives a file that grows to `size` bytes back what is parked below, zeroed: a client that has it
    /// mapped sees the file there. In a commit of its own, which only reserves it beyond the end: nobody
    /// sees it, and it changes neither times nor capabilities.
    pub(crate) fn unpark_below(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        size: u64,
    ) -> Result<()> {
        let (view, stop) = (&locked.view, size.div_ceil(PAGE));
        if !view.is_dax() || !view.has_parked() {
            return Ok(());
        }
        let mut next = view.parked().next(self.arena(), 0)?;
        while let Some((first, _)) = next.filter(|(first, _)| *first < stop) {
            let end = view.parked().next_gap(self.arena(), first, stop)?;
            let holes = self.holes(locked, first, end)?;
            self.allow(call, view.project(), holes.iter().map(|(_, pages)| pages).sum(), 0)?;
            let mut tx = FileTx::begin(self, call, locked);
            let new_pages = self.pages_for(&mut tx, &holes)?;
            let size = seeded::is_on(Bug::UnparkedSeen).then(|| view.size());
            self.fill_holes(tx, size, &new_pages)?;
            next = view.parked().next(self.arena(), end)?;
        }
        Ok(())
    }

    /// Makes room to park what the file has from a page on, where it is mapped.
    pub(crate) fn park_room(&self, view: &View<'_>, page: u64) -> Result<()> {
        if !view.is_dax() {
            return Ok(());
        }
        let (arena, index) = (self.arena(), view.index());
        let mut next = index.next(arena, page)?;
        while let Some((first, _)) = next {
            let end = index.next_gap(arena, first, FILE_PAGES_MAX)?;
            view.parked().reserve(arena, first, end - first)?;
            next = index.next(arena, end)?;
        }
        Ok(())
    }

    /// Parks a page that is not the file's any more, or says that it is to be freed.
    pub(crate) fn park(&self, view: &View<'_>, page: u64, addr: u64) -> Result<bool> {
        if !view.is_dax() || seeded::is_on(Bug::ParkedFreed) {
            return Ok(false);
        }
        view.parked().set(self.arena(), page, addr)?;
        Ok(true)
    }

    /// Frees what is parked: nobody has it mapped any more.
    pub(crate) fn unpark(&self, call: &Call<'_>, view: &View<'_>) -> Result<()> {
        let mut freed = Extents::default();
        self.take_parked(view, &mut freed)?;
        self.give(call, &freed)
    }

    /// Moves what is parked to `freed`.
    pub(crate) fn take_parked(&self, view: &View<'_>, freed: &mut Extents) -> Result<()> {
        if view.has_parked() {
            view.parked().for_each(self.arena(), &mut |_, addr| {
                freed.push_page(PmAddr::from_raw(addr));
            })?;
            view.parked().clear(self.arena())?;
        }
        Ok(())
    }
}

/// The bytes of a range that lie in a page: from where to where, in the file.
fn within(page: u64, offset: u64, end: u64) -> (u64, u64) {
    let Range { start, end: stop } = page * PAGE..(page + 1) * PAGE;
    (offset.max(start), end.min(stop))
}
