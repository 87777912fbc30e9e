//! Log collection (NOVA 4.6), as a pass over windows of at most 16 log pages, two windows each time
//! that a log grows. The tail's page is never in a window, and the inode's lock is held.
//!
//! Thorough: a window less than half live is copied into new pages. Fast: of another window the
//! longest run of pages that hold only dead entries is cut out, without copying.
//!
//! An entry that cancels others (a delete, a hole) may go only with all that it cancels, which lies
//! before it in the log. A window at the head takes everything before its end along, so there all
//! cancelling entries go. Elsewhere a delete goes when its dentry has gone before it, which the
//! directory's index says, or goes in the same window or run. A hole goes when nothing can depend on
//! it: each of its pages is mapped again, by a write that overrides what is older too, or lies in a
//! later hole of the same window. What is kept keeps its order and its op_seq, and of a write only
//! the pieces that still map the file: a dropped hole or write must not uncover them. A piece that
//! looks alive, since its pages came back to the same places, is dead all the same where a later hole
//! to the end of the file lies between: the newest such hole is known of every file ([`View::cut`]).
//! Without that a file whose pages move to and fro would have each move alive. A pair entry is kept if it
//! is the newest of its page, which is mapped where it says; dead ones say nothing, whatever goes before.
//!
//! Crash argument. The new pages and, after the head, a certificate (the newest commit's checksum
//! may cover entries in the window) are fenced. Then one store switches: the commit line with the
//! new head, or the 8-byte link of the page before the window, whose end stays; either way the log
//! reads the same before and after it. After that fence the old pages are freed.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering;

use novale_arena::Arena;
use novale_layout::{
    Attributes, DentryRef, ENTRY_BYTES_MAX, EntryHeader, EntryKind, FileKind, LOG_ENTRY_LINES,
    LOG_NEXT_OFFSET, LogLink, LogPageHeader, PAGE, Pair, PmAddr, Seed,
};
use novale_pm::{Flushed, Purpose};

use crate::base::error::Result;
use crate::base::extent::{Extent, Extents, page_at};
use crate::base::types::GcStats;
use crate::fs::Fs;
use crate::gc::needed::{Pieces, depends_on};
use crate::inode::dir_index;
use crate::inode::view::View;
use crate::log::entries::write_entry;
use crate::log::redo::RedoFrom;
use crate::log::replay::{Fold, NameSaid, say};
use crate::log::{Appended, FILE_PAGES_MAX, Item, Logged, Until, page_of};
use crate::op::call::Call;
use crate::op::commit;
use crate::op::commit::Rest;
use crate::op::lock::Locked;
use crate::op::quota::Counted;
use crate::seeded::Bug;
use crate::space::{Need, Wanted};
use crate::{log, seeded};

/// Most pages that one step looks at.
const WINDOW_PAGES_MAX: usize = 16;
/// A shorter log is left alone.
const LOG_PAGES_MIN: u64 = 3;
/// Steps for each growth of a log by up to as many pages as one step looks at.
const STEPS_A_GROWTH: u64 = 2;
const LINE_BYTES: usize = 64;
const _: () = assert!(log::GROWTH_PAGES_MAX <= WINDOW_PAGES_MAX as u64);

/// A page of the window.
struct WindowPage {
    addr: PmAddr,
    seq: u64,
    kept: Vec<Kept>,
    /// The bytes of the entries that are copied as they are.
    bytes: Vec<u8>,
    /// Cookies of the names added that are dead.
    dead_adds: Vec<u64>,
    /// Cookies of the names deleted whose dentries are in the log.
    deletes: Vec<u64>,
    /// Holds a live write, name or attributes entry.
    live: bool,
    /// Holds a hole that is needed.
    holes: bool,
}

/// An entry to be kept. Small, unlike an [`Entry`], since a window has up to a thousand.
#[derive(Clone, Copy)]
struct Kept {
    op_seq: u64,
    what: What,
    /// Where its bytes lie in the window page's; empty for a piece, which is encoded anew.
    from: u32,
    lines: u32,
}

/// What is kept.
#[derive(Clone, Copy)]
enum What {
    /// What is left of a write.
    Piece {
        file_page: u64,
        addr: PmAddr,
        count: u32,
    },
    /// The file's pages from `first` to before `end`.
    Hole {
        first: u64,
        end: u64,
    },
    Attributes,
    /// What is said of a page with two copies.
    Pair,
    /// A name, by where its dentry lies now.
    Dentry(PmAddr),
    Delete {
        cookie: u64,
    },
}

/// What becomes of the dentries in the pages that the list loses.
#[derive(Default)]
struct Dentries {
    /// Copied, from here to there.
    moved: Vec<(PmAddr, PmAddr)>,
    /// Cookies of removed names whose dentries go.
    gone: Vec<u64>,
}

/// New pages of a log, stored.
struct Stored {
    pending: Flushed,
    /// Where names moved.
    moved: Vec<(PmAddr, PmAddr)>,
    /// The line of the last entry.
    tail: PmAddr,
}

/// What changes in the list of pages.
struct Switch {
    /// The page whose successor changes; null: the head does.
    before: PmAddr,
    /// The link there so far, which says where that page ends.
    link: LogLink,
    /// The page that follows it from now on.
    first: PmAddr,
    /// Pages that the list loses.
    reclaimed: u64,
    /// After which page the next step starts.
    cursor: PmAddr,
}

/// Where a window lies.
struct Span {
    /// The page before it; null when it starts at the head.
    before: PmAddr,
    pages: Vec<PmAddr>,
    /// The page after it.
    end: PmAddr,
}

struct Window {
    /// The page before it; null when it starts at the head.
    before: PmAddr,
    pages: Vec<WindowPage>,
    /// The page after it.
    end: PmAddr,
}

impl Fs {
    /// Pages reclaimed by log collection.
    #[must_use]
    pub fn gc_stats(&self) -> GcStats {
        GcStats {
            fast_pages: self.gc.fast.load(Ordering::Relaxed),
            thorough_pages: self.gc.thorough.load(Ordering::Relaxed),
        }
    }

    /// Takes collection steps if the append that was just committed took new pages: twice as many
    /// pages are looked at as a log takes at once, or what each pass leaves would never be seen again.
    /// What fails here does not fail the operation, which is durable: a log that can't be read is told
    /// by a client that needs what it says.
    pub(crate) fn collect_if_grown(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        appended: &Appended,
    ) {
        // Most growths are one window's pages at most; many entries at once can take more.
        let growths = appended.grown_pages().div_ceil(WINDOW_PAGES_MAX as u64);
        for _ in 0..growths * STEPS_A_GROWTH {
            if self.collect_step(call, locked).is_err() {
                return;
            }
        }
    }

    /// Looks at the next window and reclaims what it can of it.
    pub(crate) fn collect_step(&self, call: &Call<'_>, locked: &Locked<'_>) -> Result<()> {
        let view = &locked.view;
        if view.log_pages() < LOG_PAGES_MIN {
            return self.shorten(call, locked);
        }
        let Some(span) = self.span(locked)? else {
            view.set_gc_cursor(PmAddr::NULL);
            return Ok(());
        };
        if locked.kind == FileKind::Directory && self.is_mostly_named(locked, &span)? {
            span.skip(view);
            return Ok(());
        }
        let mut window = self.window(locked, &span)?;
        window
            .drop_overridden(|from, to| Ok(view.index().next_gap(self.arena(), from, to)? < to))?;
        window.drop_cancelled();
        let pages = window.pages.len() as u64;
        let live_lines: u64 = window.kept().map(|kept| u64::from(kept.lines)).sum();
        let needed = needed_pages(window.kept().map(|kept| u64::from(kept.lines)));
        if needed < pages && live_lines * 2 <= pages * LOG_ENTRY_LINES {
            return self.rewrite(call, locked, &window, needed);
        }
        if let Some((first, count)) = window.dead_run() {
            return self.cut_out(call, locked, &window, first, count);
        }
        span.skip(view);
        Ok(())
    }

    /// Writes a log that is too short for windows anew, where the pool is so full that it has grown by pages of
    /// the reserve, and takes fewer then. So overwrites on a full pool do not use the reserve up.
    fn shorten(&self, call: &Call<'_>, locked: &Locked<'_>) -> Result<()> {
        let pages = locked.view.log_pages();
        if pages < 2 || self.allocator.is_roomy(self.arena())? {
            return Ok(());
        }
        self.rewrite_in(call, locked, pages - 1)
    }

    /// Writes all of a log anew, in pages of its own. What is live of it is kept in its order; after the
    /// switch nothing leads to the old pages.
    pub(crate) fn rewrite_log(&self, call: &Call<'_>, locked: &Locked<'_>) -> Result<()> {
        self.rewrite_in(call, locked, u64::MAX)
    }

    /// The same, where it takes no more than `pages_max` pages.
    fn rewrite_in(&self, call: &Call<'_>, locked: &Locked<'_>, pages_max: u64) -> Result<()> {
        let (view, id) = (&locked.view, &locked.id);
        let state = view.state();
        if state.log_tail.is_null() {
            return Ok(());
        }
        let mut pages = Vec::new();
        log::pages(&self.pm, id, state.log_head, state.log_tail, &mut |page| pages.push(page))?;
        let span = Span { before: PmAddr::NULL, pages, end: PmAddr::NULL };
        let mut window = self.window_until(locked, &span, Until::Line(state.log_tail))?;
        window.drop_overridden(|_, _| Ok(false))?;
        window.drop_cancelled();
        let needed = needed_pages(window.kept().map(|kept| u64::from(kept.lines)));
        if needed > pages_max {
            return Ok(());
        }
        let extents = self.take_pages(call, Wanted::once(needed), Need::Release)?;
        let Stored { pending, moved, tail } = self.store_pages(locked, &window, &extents);
        let gone = window.pages.iter().flat_map(|page| &page.dead_adds).copied().collect();
        let mut freed = Extents::default();
        window.pages.iter().for_each(|page| freed.push_page(page.addr));
        let spare = view.spare();
        view.set_spare(Extent::default());
        self.allocator.give_extent(self.arena(), &call.op, spare)?;
        let last_seq = window.pages.first().map_or(0, |page| page.seq) + needed.saturating_sub(1);
        let mut next = locked.next_state();
        next.log_head = if needed == 0 { PmAddr::NULL } else { page_at(&extents, 0) };
        next.log_tail = tail;
        self.gc.thorough.fetch_add(freed.pages().saturating_sub(needed), Ordering::Relaxed);
        note_dead(call, &freed);
        call.op.forget_commits();
        let rest = if seeded::is_on(Bug::MovedLogNamedEarly) {
            Rest::Nothing
        } else {
            Rest::Durable(self.pm.fence(pending))
        };
        self.commit(call, locked, &mut next, rest, || {
            view.set_log_pages(needed);
            view.set_gc_cursor(PmAddr::NULL);
            view.set_tail_page_seq(last_seq);
            self.publish_dentries(view, &Dentries { moved, gone })
        })?;
        self.give(call, &freed)
    }

    /// The window after the cursor; none when the tail's page follows it.
    fn span(&self, locked: &Locked<'_>) -> Result<Option<Span>> {
        let (view, id) = (&locked.view, &locked.id);
        let state = view.state();
        let tail_page = page_of(state.log_tail);
        let before = view.gc_cursor();
        let mut at = state.log_head;
        if !before.is_null() {
            at = log::decode_header(&self.pm.load_line(before)?, id, before)?.next.next();
        }
        let mut pages = Vec::with_capacity(WINDOW_PAGES_MAX);
        while at != tail_page && pages.len() < WINDOW_PAGES_MAX {
            pages.push(at);
            at = log::decode_header(&self.pm.load_line(at)?, id, at)?.next.next();
        }
        Ok((!pages.is_empty()).then_some(Span { before, pages, end: at }))
    }

    /// Whether nothing of a directory's window can go: most of its lines are names that live, and each
    /// page has one. So it is wherever a directory grows, and this look costs a tenth of sorting all
    /// entries in. What it can't read it leaves to that.
    fn is_mostly_named(&self, locked: &Locked<'_>, span: &Span) -> Result<bool> {
        let (view, arena) = (&locked.view, self.arena());
        let mut live_lines = 0;
        let mut bytes = [0; 4096];
        for page in &span.pages {
            self.pm.load(*page, &mut bytes)?;
            let header = log::decode_header(&bytes, &locked.id, *page)?;
            let used = log::used_bytes(&bytes, header);
            let (lines, _) = used.as_chunks::<LINE_BYTES>();
            let (before, mut line) = (live_lines, 1);
            while let Some(Ok(header)) = lines.get(line).map(EntryHeader::peek) {
                if header.kind == EntryKind::DentryAdd {
                    let rest = used.get(line * LINE_BYTES..).unwrap_or_default();
                    let Ok(dentry) = DentryRef::decode(rest) else { return Ok(false) };
                    let at = page.add((line * LINE_BYTES) as u64);
                    if dir_index::dentry_of(arena, view, dentry.cookie())?
                        == dir_index::Dentry::Named(at)
                    {
                        live_lines += u64::from(header.lines);
                    }
                }
                line += usize::from(header.lines);
            }
            if live_lines == before {
                return Ok(false);
            }
        }
        Ok(live_lines * 2 > span.pages.len() as u64 * LOG_ENTRY_LINES)
    }

    /// Reads a window.
    fn window(&self, locked: &Locked<'_>, span: &Span) -> Result<Window> {
        self.window_until(locked, span, Until::Page(span.end))
    }

    fn window_until(&self, locked: &Locked<'_>, span: &Span, until: Until) -> Result<Window> {
        let (view, arena, id) = (&locked.view, self.arena(), &locked.id);
        let first = span.pages.first().copied().unwrap_or(span.end);
        let mut pages: Vec<WindowPage> = Vec::with_capacity(span.pages.len());
        log::walk_range(&self.pm, id, first, until, &mut |item| {
            match item {
                Item::Page { addr, seq } => pages.push(WindowPage::new(addr, seq)),
                Item::Entry(at, entry) => {
                    if let Some(page) = pages.last_mut() {
                        say(&at, entry, &mut Sorting { view, arena, page })?;
                    }
                }
            }
            Ok(())
        })?;
        Ok(Window { before: span.before, pages, end: span.end })
    }

    /// Copies what is kept into new pages and puts them in the window's place.
    fn rewrite(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        window: &Window,
        needed: u64,
    ) -> Result<()> {
        // Before any page is taken, since it may fail.
        let link = self.link_of(locked, window.before)?;
        let Ok(extents) = self.take_pages(call, Wanted::once(needed), Need::Release) else {
            // Collection can wait; a full pool is no reason for the operation to fail.
            return Ok(());
        };
        let Stored { pending, moved, .. } = self.store_pages(locked, window, &extents);
        let gone = window.pages.iter().flat_map(|page| &page.dead_adds).copied().collect();
        let first = if needed == 0 { window.end } else { page_at(&extents, 0) };
        let last = needed.checked_sub(1).map_or(window.before, |last| page_at(&extents, last));
        let mut freed = Extents::default();
        for page in &window.pages {
            freed.push_page(page.addr);
        }
        let reclaimed = window.pages.len() as u64 - needed;
        let counter = if needed == 0 { &self.gc.fast } else { &self.gc.thorough };
        counter.fetch_add(reclaimed, Ordering::Relaxed);
        let place = Switch { before: window.before, link, first, reclaimed, cursor: last };
        note_dead(call, &freed);
        self.switch(call, locked, &place, pending, &Dentries { moved, gone })?;
        self.give(call, &freed)
    }

    /// Cuts `count` dead pages from the `first`th on out of the list.
    fn cut_out(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        window: &Window,
        first: usize,
        count: usize,
    ) -> Result<()> {
        let addr_of = |index: usize| window.pages.get(index).map(|page| page.addr);
        let before = first
            .checked_sub(1)
            .map_or(window.before, |index| addr_of(index).unwrap_or(PmAddr::NULL));
        let behind = addr_of(first + count).unwrap_or(window.end);
        let link = self.link_of(locked, before)?;
        let mut freed = Extents::default();
        let mut dentries = Dentries::default();
        for page in window.pages.iter().skip(first).take(count) {
            freed.push_page(page.addr);
            dentries.gone.extend(&page.dead_adds);
        }
        self.gc.fast.fetch_add(count as u64, Ordering::Relaxed);
        let reclaimed = count as u64;
        let place = Switch { before, link, first: behind, reclaimed, cursor: before };
        note_dead(call, &freed);
        self.switch(call, locked, &place, Flushed::none(), &dentries)?;
        self.give(call, &freed)
    }

    /// Stores the new pages, the last one linked to the window's end.
    fn store_pages(&self, locked: &Locked<'_>, window: &Window, extents: &Extents) -> Stored {
        let pages = extents.pages();
        let first_seq = window.pages.first().map_or(0, |page| page.seq);
        let mut pending = Flushed::none();
        let mut moved = Vec::new();
        let mut tail = PmAddr::NULL;
        let kept = window.pages.iter().flat_map(|page| page.kept.iter().map(move |k| (page, k)));
        let mut kept = kept.peekable();
        for index in 0..pages {
            let page = page_at(extents, index);
            let mut image = Vec::with_capacity(4096);
            image.extend_from_slice(&[0; LINE_BYTES]);
            while let Some((from, item)) =
                kept.next_if(|(_, item)| image.len() + item.lines as usize * 64 <= 4096)
            {
                if let What::Dentry(from) = item.what {
                    moved.push((from, page.add(image.len() as u64)));
                }
                from.append_to(item, locked.id.seed, &mut image);
            }
            tail = page.add((image.len() - LINE_BYTES) as u64);
            let next = if index + 1 == pages { window.end } else { page_at(extents, index + 1) };
            let is_last = next.is_null();
            let header = LogPageHeader {
                ino: locked.id.ino,
                generation: locked.id.generation,
                session: self.session,
                page_seq: first_seq + index,
                next: if is_last { LogLink::NONE } else { log::link_behind(tail, next) },
            };
            if let Some(line) = image.first_chunk_mut() {
                *line = header.encode(locked.id.seed.addr(page));
            }
            pending = pending.and(self.pm.stream(page, &image, Purpose::Log));
        }
        Stored { pending, moved, tail }
    }

    /// The link behind a page of the log; none where there is no page.
    fn link_of(&self, locked: &Locked<'_>, page: PmAddr) -> Result<LogLink> {
        if page.is_null() {
            return Ok(LogLink::NONE);
        }
        Ok(log::decode_header(&self.pm.load_line(page)?, &locked.id, page)?.next)
    }

    /// Makes `first` follow `before` (or the head), then shows the new shape to readers.
    fn switch(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        &Switch { before, link, first, reclaimed, cursor }: &Switch,
        pending: Flushed,
        dentries: &Dentries,
    ) -> Result<()> {
        let view = &locked.view;
        // From here on the log does not say any more what the inode had before an earlier commit.
        call.op.forget_commits();
        let publish = || -> Result<()> {
            view.set_log_pages(view.log_pages() - reclaimed);
            view.set_gc_cursor(cursor);
            self.publish_dentries(view, dentries)
        };
        if before.is_null() {
            let mut next = locked.next_state();
            next.log_head = first;
            let rest = Rest::Durable(self.pm.fence(pending));
            return self.commit(call, locked, &mut next, rest, publish);
        }
        // The page before the window ends where it did.
        let past = link.with_next(first);
        let mut state = locked.next_state();
        let line = if seeded::is_on(Bug::NoCertificate) {
            Flushed::none()
        } else {
            commit::certificate(&self.pm, self.session, &locked.place, &mut state)
        };
        self.pm.fence(pending.and(line)).end();
        self.check_slots(call)?;
        let word = self.pm.store_u64(before.add(LOG_NEXT_OFFSET), past.raw(), Purpose::Log);
        if seeded::is_on(Bug::SkipNotFenced) {
            drop(word);
        } else {
            self.pm.fence(self.pm.write_back(word)).end();
        }
        // Where the word is lost, the log still leads through the pages.
        self.check_slots(call)?;
        let before = Counted::of(view);
        let published = view.publish(|| {
            view.set_state(&state);
            publish()
        });
        published.and(self.recount(before, view))
    }

    /// Shows what became of the names in pages that a list has lost.
    fn publish_dentries(&self, view: &View<'_>, dentries: &Dentries) -> Result<()> {
        let arena = self.arena();
        for cookie in &dentries.gone {
            view.index().remove(arena, *cookie)?;
        }
        dentries
            .moved
            .iter()
            .try_for_each(|(from, to)| dir_index::move_dentry(&self.pm, arena, view, *from, *to))
    }
}

impl Span {
    /// There is nothing to gain: the next step goes on after the window.
    fn skip(&self, view: &View<'_>) {
        let last = self.pages.last().copied().unwrap_or(PmAddr::NULL);
        let at_tail = self.end == page_of(view.log_tail());
        view.set_gc_cursor(if at_tail { PmAddr::NULL } else { last });
    }
}

impl Window {
    fn kept(&self) -> impl Iterator<Item = &Kept> {
        self.pages.iter().flat_map(|page| &page.kept)
    }

    /// Drops the holes that nothing depends on (`has_gap` says whether any of a range of file pages
    /// is not mapped), and what a later entry says again: a page that was cut off and came back to
    /// the same place looks alive in each of its entries.
    fn drop_overridden(&mut self, has_gap: impl Fn(u64, u64) -> Result<bool>) -> Result<()> {
        let mut holes: Vec<Range<u64>> = Vec::new();
        let mut pieces = Pieces::for_count(self.kept().count());
        // After this page the window has a later hole to the end of the file.
        let mut cut_from = u64::MAX;
        for page in self.pages.iter_mut().rev() {
            for index in (0..page.kept.len()).rev() {
                let needed = match page.kept.get(index).map(|kept| kept.what) {
                    Some(What::Piece { file_page, addr, count }) => {
                        let first = file_page < cut_from && pieces.insert((file_page, addr, count));
                        page.live |= first;
                        first
                    }
                    Some(What::Hole { first, end }) => {
                        let hole = first..end;
                        if end == FILE_PAGES_MAX {
                            cut_from = cut_from.min(first);
                        }
                        let needed = depends_on(&hole, &holes, &has_gap)?
                            && !seeded::is_on(Bug::MoveUncovers);
                        page.holes |= needed;
                        holes.extend(needed.then_some(hole));
                        needed
                    }
                    None
                    | Some(What::Attributes | What::Pair | What::Dentry(_) | What::Delete { .. }) => {
                        true
                    }
                };
                if !needed {
                    page.kept.remove(index);
                }
            }
        }
        Ok(())
    }

    /// Drops the cancelling entries that go with all that they cancel.
    fn drop_cancelled(&mut self) {
        let at_head = self.before.is_null() || seeded::is_on(Bug::CollectionResurrects);
        let mut dead: BTreeSet<u64> = BTreeSet::new();
        for page in &mut self.pages {
            dead.extend(&page.dead_adds);
            page.kept.retain(|kept| match kept.what {
                What::Piece { .. } | What::Attributes | What::Pair | What::Dentry(_) => true,
                What::Hole { .. } => !at_head,
                What::Delete { cookie } => !(at_head || dead.contains(&cookie)),
            });
        }
    }

    /// The longest run of pages that can go as they are: all their entries are dead, and what they
    /// cancel goes with them.
    fn dead_run(&self) -> Option<(usize, usize)> {
        let mut best: Option<(usize, usize)> = None;
        let mut first = 0;
        let mut adds: BTreeSet<u64> = BTreeSet::new();
        for (index, page) in self.pages.iter().enumerate() {
            adds.extend(&page.dead_adds);
            let prefix = self.before.is_null() && first == 0;
            let whole = !page.live
                && (prefix
                    || (!page.holes && page.deletes.iter().all(|cookie| adds.contains(cookie))));
            if !whole {
                (first, adds) = (index + 1, BTreeSet::new());
                continue;
            }
            let count = index + 1 - first;
            if best.is_none_or(|(_, longest)| count > longest) {
                best = Some((first, count));
            }
        }
        best
    }
}

impl WindowPage {
    fn new(addr: PmAddr, seq: u64) -> Self {
        Self {
            addr,
            seq,
            kept: Vec::new(),
            bytes: Vec::new(),
            dead_adds: Vec::new(),
            deletes: Vec::new(),
            live: false,
            holes: false,
        }
    }

    /// Keeps an entry as it is.
    fn keep(&mut self, at: &Logged<'_>, what: What) {
        // A page's bytes fit into 32 bits.
        let from = u32::try_from(self.bytes.len()).unwrap_or(0);
        self.bytes.extend_from_slice(at.bytes);
        let (op_seq, lines) = (at.header.op_seq, u32::from(at.header.lines));
        self.kept.push(Kept { op_seq, what, from, lines });
    }

    /// Appends one of the page's kept entries to the image of a new page.
    fn append_to(&self, kept: &Kept, seed: Seed, image: &mut Vec<u8>) {
        if let What::Piece { file_page, addr, count } = kept.what {
            let entry = write_entry(file_page, Extent { addr, pages: u64::from(count) });
            let mut bytes = [0; ENTRY_BYTES_MAX];
            let len = entry.encode(kept.op_seq, seed, &mut bytes);
            image.extend_from_slice(bytes.get(..len).unwrap_or_default());
        } else {
            let bytes = self.bytes.get(kept.from as usize..).unwrap_or_default();
            image.extend_from_slice(bytes.get(..kept.lines as usize * 64).unwrap_or_default());
        }
    }
}

/// Sorts a page's entries into what is kept, and notes what cancels and is cancelled.
struct Sorting<'a> {
    view: &'a View<'a>,
    arena: &'a Arena,
    page: &'a mut WindowPage,
}

impl Fold for Sorting<'_> {
    fn map(&mut self, at: &Logged<'_>, first: u64, extent: Extent) -> Result<()> {
        let op_seq = at.header.op_seq;
        let extent = uncut(self.view, op_seq, first, extent);
        live_pieces(self.view, self.arena, first, extent, |what| {
            self.page.kept.push(Kept { op_seq, what, from: 0, lines: 1 });
        })
    }

    fn unmap(&mut self, at: &Logged<'_>, pages: Range<u64>) -> Result<()> {
        self.page.keep(at, What::Hole { first: pages.start, end: pages.end });
        Ok(())
    }

    fn redo(&mut self, _at: &Logged<'_>, _from: RedoFrom<'_>) -> Result<()> {
        // The bytes lie where they belong, durably, and a newer line comes before the window goes.
        Ok(())
    }

    fn pair(&mut self, at: &Logged<'_>, pair: &Pair) -> Result<()> {
        // Of each page the newest entry counts alone, until the page is mapped anew.
        let newest = self.view.newest_pair(self.arena, pair.file_page.get())?;
        let newest = newest
            .filter(|newest| newest.page().is_some() || !seeded::is_on(Bug::EndedSlotsDropped));
        if newest.is_some_and(|newest| newest.is_by(at.header.op_seq)) {
            self.page.live = true;
            self.page.keep(at, What::Pair);
        }
        Ok(())
    }

    fn attributes(&mut self, at: &Logged<'_>, _attributes: &Attributes) -> Result<()> {
        if at.header.op_seq == self.view.attr_seq() {
            self.page.live = true;
            self.page.keep(at, What::Attributes);
        }
        Ok(())
    }

    fn name(&mut self, at: &Logged<'_>, said: &NameSaid<'_>) -> Result<()> {
        let found = dir_index::dentry_of(self.arena, self.view, said.cookie)?;
        if found == dir_index::Dentry::Named(at.addr) {
            self.page.live = true;
            self.page.keep(at, What::Dentry(at.addr));
        } else {
            self.page.dead_adds.push(said.cookie);
        }
        Ok(())
    }

    fn unname(&mut self, at: &Logged<'_>, cookie: u64) -> Result<()> {
        let found = dir_index::dentry_of(self.arena, self.view, cookie)?;
        if found != dir_index::Dentry::Gone {
            self.page.deletes.push(cookie);
            self.page.keep(at, What::Delete { cookie });
        }
        Ok(())
    }
}

/// What a later cut of the file leaves of a write. The pages after it may be mapped again just as the
/// write says, since they moved back or came back, but by a later entry.
fn uncut(view: &View<'_>, op_seq: u64, first_page: u64, extent: Extent) -> Extent {
    let (cut_seq, from) = view.cut();
    let own = seeded::is_on(Bug::MoveCutsItself);
    if op_seq > cut_seq || op_seq == cut_seq && !own {
        return extent;
    }
    Extent { pages: extent.pages.min(from.saturating_sub(first_page)), ..extent }
}

/// Gives the pieces of a write that the file still maps to `keep`.
fn live_pieces(
    view: &View<'_>,
    arena: &Arena,
    first_page: u64,
    extent: Extent,
    mut keep: impl FnMut(What),
) -> Result<()> {
    let (mut step, mut alive) = (0, 0);
    let mut end = |step: u64, alive: u64| {
        let first = step - alive;
        let (file_page, addr) = (first_page + first, extent.addr.add(first * PAGE));
        let count = u32::try_from(alive).unwrap_or(u32::MAX);
        keep(What::Piece { file_page, addr, count });
    };
    // Of a run that starts elsewhere no page is where the write put it.
    while step < extent.pages {
        let (page, left) = (first_page + step, extent.pages - step);
        let (addr, pages) = view.index().run(arena, page, left, PAGE)?;
        if addr == extent.addr.add(step * PAGE).raw() {
            alive += pages;
        } else if alive > 0 {
            end(step, alive);
            alive = 0;
        }
        step += pages;
    }
    if alive > 0 {
        end(step, alive);
    }
    Ok(())
}

/// Notes log pages that a switch takes out, as pages that were taken: who settles gives back what no log
/// names, and these are named until the switch stands. Without room for the note they may be lost.
fn note_dead(call: &Call<'_>, dead: &Extents) {
    for extent in dead.iter() {
        let pages = u32::try_from(extent.pages).unwrap_or(u32::MAX);
        let _noted = call.op.note_taken(extent.addr.raw(), pages);
    }
}

/// Pages that entries of these sizes (in lines) fill.
fn needed_pages(lines: impl Iterator<Item = u64>) -> u64 {
    let mut left = 0;
    let mut pages = 0;
    for count in lines {
        if count > left {
            pages += 1;
            left = LOG_ENTRY_LINES;
        }
        left -= count;
    }
    pages
}

#[cfg(test)]
mod tests;
