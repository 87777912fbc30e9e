//! Flushing: what a file has in the write buffer goes to the pool, in one commit.
//!
//! All of it goes at once, under the inode's lock: so what the pool has of a file is always what some
//! first part of its writes left, however often it is flushed. A page that has none in the pool gets a new
//! one, of which the lines up to the end of the file are stored; one of which few lines are newer gets
//! them by its second copy ([`crate::write::paired`] has that protocol), another one is copied. The page in
//! which the file ended stays where only what lies after that end is newer, as for an append.
//!
//! Crash points. Those of the methods, in the two-fence form. New pages, partners, lines in the copies in
//! which they are not current, entries after the log's tail; fence; the line; fence. Before the line is
//! durable the file is as it was. Only then the view's bit falls, with the counter odd, by which readers
//! stop to look into the buffer, and the blocks are given back.
//!
//! Death. What the buffer has is newer than what the pool has or the same, so as long as the bit is set
//! both together are the file: a client that dies before it falls has changed nothing that is seen.

use std::ops::Range;

use novale_arena::Arena;
use novale_layout::{FilePage, Ino, LINE, PAGE, Pair, Partner, PmAddr, RoFeature};

use crate::base::error::{Error, Result};
use crate::base::extent::{Extents, match_extents};
use crate::base::lines::line_runs;
use crate::base::types::Ctx;
use crate::fs::Fs;
use crate::inode::buffer::Block;
use crate::inode::pairs::{PAIRS_MAX, Paired, pair_count};
use crate::inode::view::View;
use crate::op::call::{Call, OpKind};
use crate::op::counted::Buffering;
use crate::op::file_tx::FileTx;
use crate::op::lock::Locked;
use crate::seeded::{self, Bug};
use crate::space::Need;

const PAGE_BYTES: usize = 4096;
const LINE_BYTES: usize = 64;
/// Of a page with so many newer lines at most, these alone are stored.
const PAIR_LINES_MAX: u32 = 32;

/// How the blocks of a file get to the pool.
#[derive(Default)]
struct FlushPlan<'a> {
    /// To pages of their own.
    pages: Vec<Block<'a>>,
    /// To the copies of pages in which their lines are not current: the first copy, and the second, where
    /// there is one already.
    lines: Vec<(Block<'a>, PmAddr, Option<Paired>)>,
    /// Beyond the end of the file, to the page in which it lies.
    tail: Option<(Block<'a>, PmAddr)>,
}

impl FlushPlan<'_> {
    fn new_partners(&self) -> u64 {
        self.lines.iter().filter(|(_, _, pair)| pair.is_none()).count() as u64
    }

    /// Runs of pages that get new ones.
    fn runs(&self) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for page in self.pages.iter().map(Block::page) {
            match runs.last_mut() {
                Some((first, count)) if *first + *count == page => *count += 1,
                _ => runs.push((page, 1)),
            }
        }
        runs
    }
}

/// Pages that a flush has taken of what is reserved for it, until that is given up.
struct FlushTaken<'a> {
    fs: &'a Fs,
    pages: u64,
}

impl<'a> FlushTaken<'a> {
    fn note(fs: &'a Fs, pages: u64) -> Result<Self> {
        fs.allocator.begin_flush(fs.arena(), pages)?;
        Ok(Self { fs, pages })
    }
}

impl Drop for FlushTaken<'_> {
    fn drop(&mut self) {
        // What fails here is the arena, and the next operation says so.
        let _damage = self.fs.allocator.end_flush(self.fs.arena(), self.pages);
    }
}

impl Fs {
    /// Makes durable what the file has in the buffer. Its lock is held.
    #[inline]
    pub(crate) fn flush(&self, call: &Call<'_>, locked: &Locked<'_>) -> Result<()> {
        if locked.view.is_buffered() && !seeded::is_on(Bug::DirectPastBuffered) {
            self.flush_blocks(call, locked).map(drop)
        } else {
            Ok(())
        }
    }

    /// Makes durable what this file's callers were told; in strict mode it is already. So is what was stored to pages of
    /// it that clients have mapped, or had, where these said that they may ([`Fs::hold_to_write`]).
    ///
    /// # Errors
    /// [`Error::Stale`] for an inode that is not in use. Where what is buffered can't be stored, it stays
    /// buffered, and the next call tries again.
    pub fn sync(&self, ctx: &Ctx, ino: Ino) -> Result<()> {
        self.sync_stored(ctx, ino, true)
    }

    /// As [`Fs::sync`], by a client that has written back what it has stored to mapped pages itself, which is less than
    /// all pages of the file.
    ///
    /// # Errors
    /// As [`Fs::sync`].
    pub fn sync_beside(&self, ctx: &Ctx, ino: Ino) -> Result<()> {
        self.sync_stored(ctx, ino, false)
    }

    /// The two of them: what this client has stored to mapped pages is made durable with `own`.
    fn sync_stored(&self, ctx: &Ctx, ino: Ino, own: bool) -> Result<()> {
        let ask =
            |view: &View<'_>, _| Ok((view.is_buffered(), view.tally().writes > 0, view.is_dax()));
        let (is_buffered, is_written, is_dax) = self.read_view(ctx.hint, ino, ask)?;
        if is_dax {
            self.sync_stores(ctx, ino, own)?;
        }
        if is_buffered && !seeded::is_on(Bug::SyncNotFlushed) {
            let call = self.begin(OpKind::Write, ctx)?;
            let locked = self.lock(&call, ino)?;
            // Others may have flushed it since it was asked.
            let lines =
                if locked.view.is_buffered() { self.flush_blocks(&call, &locked)? } else { 0 };
            return self.judge(&locked.view, lines, ctx.now_ns);
        }
        match self.views.find(self.arena(), ino)? {
            Some(view) if is_written => self.judge(&view, 0, ctx.now_ns),
            _ => Ok(()),
        }
    }

    /// As [`Fs::flush`], of a file without its lock, which it takes, and whose next sync has nothing to do with
    /// what is flushed here. Returns whether it did: not where somebody has the lock and it does not wait, nor
    /// where nothing is buffered any more.
    pub(crate) fn flush_early(&self, ctx: &Ctx, ino: Ino, waits: bool) -> Result<bool> {
        let call = self.begin(OpKind::Write, ctx)?;
        let locked = if waits { Some(self.lock(&call, ino)?) } else { self.try_lock(&call, ino)? };
        let Some(locked) = locked.filter(|locked| locked.view.is_buffered()) else {
            return Ok(false);
        };
        self.flush_blocks(&call, &locked)?;
        locked.view.restart_tally();
        Ok(true)
    }

    /// Flushes a file that has something in the buffer; returns how many lines that were.
    #[cold]
    fn flush_blocks(&self, call: &Call<'_>, locked: &Locked<'_>) -> Result<u64> {
        let view = &locked.view;
        let lines = view.buffered_lines(self.arena())?;
        self.count_buffering(Buffering::WrittenBack, [1, lines]);
        let mut plan = self.flush_plan(view, true)?;
        if seeded::is_on(Bug::FlushInTwo) && plan.pages.len() > 1 {
            let pages = vec![plan.pages.remove(0)];
            self.store_blocks(call, locked, &FlushPlan { pages, ..FlushPlan::default() })?;
        }
        let flushed = match plan
            .lines
            .iter()
            .try_for_each(|(block, ..)| view.reserve_pair(self.arena(), block.page()))
        {
            Ok(()) => self.store_blocks(call, locked, &plan),
            Err(error) => Err(error),
        };
        if flushed.is_err() {
            for (block, ..) in &plan.lines {
                self.unreserve(view, block.page())?;
            }
        }
        let _taken = match flushed {
            Err(Error::NoMemory | Error::NoSpace) if !plan.lines.is_empty() => {
                // Copies give back the pages that they take, and need no memory for pairs.
                self.store_blocks(call, locked, &self.flush_plan(view, false)?)?
            }
            flushed => flushed?,
        };
        self.give_buffer(view).map(|()| lines)
    }

    fn flush_plan<'a>(&'a self, view: &View<'a>, with_pairs: bool) -> Result<FlushPlan<'a>> {
        let arena: &Arena = self.arena();
        let mut plan = FlushPlan::default();
        let pairs_max = PAIRS_MAX.min(self.allocator.pages_unclaimed(arena)?);
        let mut partners_left = pairs_max.saturating_sub(pair_count(arena));
        let may_pair =
            with_pairs && self.is_used(RoFeature::Pairs) && self.allocator.is_roomy(arena)?;
        let mut next = view.next_block(arena, 0)?;
        while let Some(block) = next {
            let page = block.page();
            next = view.next_block(arena, page + 1)?;
            let pair = view.pair(arena, page)?;
            // What lies after the end of the file in its last page, and further on, is nobody's.
            let is_inside = page < view.size() / PAGE;
            // Slots that a flush needs might be in use.
            let has_slots = pair.is_some_and(|pair| pair.partner.is_shared());
            let is_few = !has_slots && block.mask().count_ones() <= PAIR_LINES_MAX;
            match self.page_addr(view, page)? {
                Some(home)
                    if may_pair && is_few && is_inside && (pair.is_some() || partners_left > 0) =>
                {
                    partners_left -= u64::from(pair.is_none());
                    plan.lines.push((block, self.checked(home)?, pair));
                }
                Some(_) => match self.page_to_append_to(view, &block)? {
                    Some(home) => plan.tail = Some((block, home)),
                    None => plan.pages.push(block),
                },
                None => plan.pages.push(block),
            }
        }
        Ok(plan)
    }

    /// The page in which the file ends, where that may change beyond the end and a block of it has nothing
    /// else that is newer.
    fn page_to_append_to(&self, view: &View<'_>, block: &Block<'_>) -> Result<Option<PmAddr>> {
        let (page, from) = (view.size() / PAGE, view.size() % PAGE);
        let lines_before = (1 << (from / LINE)) - 1;
        let is_beyond = block.page() == page && from > 0 && view.seen_size() > view.size();
        if !is_beyond || block.mask() & lines_before != 0 {
            return Ok(None);
        }
        let Some(home) = self.page_of_end(view)? else { return Ok(None) };
        let (mut old, mut new) = ([0; LINE_BYTES], [0; LINE_BYTES]);
        let (start, len) = (from / LINE * LINE, in_page(from % LINE));
        let [old, new] = [&mut old, &mut new].map(|line| line.get_mut(..len).unwrap_or_default());
        if block.mask() & (lines_before + 1) != 0 {
            self.pm.load(home.add(start), old)?;
            block.copy_out(start, new)?;
        }
        Ok((old == new).then_some(home))
    }

    fn store_blocks(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        plan: &FlushPlan<'_>,
    ) -> Result<FlushTaken<'_>> {
        let (arena, view) = (self.arena(), &locked.view);
        let (size, (mtime_ns, ctime_ns)) = (view.seen_size(), view.seen_times());
        if seeded::is_on(Bug::FlushedEarly) {
            view.set_unbuffered();
        }
        let mut tx = FileTx::begin(self, call, locked);
        let copies = plan.pages.len() as u64;
        let pages = copies + plan.new_partners();
        tx.take(pages, Need::Flush)?;
        let taken = FlushTaken::note(self, pages)?;
        let runs = match_extents(&plan.runs(), tx.extents());
        for (index, block) in (0..).zip(&plan.pages) {
            let at = tx.page(index);
            self.store_block(&mut tx, block, at, 0..size)?;
        }
        if let Some((block, home)) = &plan.tail {
            self.store_block(&mut tx, block, *home, view.size()..size)?;
        }
        let mut pairs = Vec::with_capacity(plan.lines.len());
        let mut next_partner = copies;
        for (block, home, pair) in &plan.lines {
            let partner = pair.map_or_else(|| tx.page(next_partner), |pair| pair.partner.page());
            next_partner += u64::from(pair.is_none());
            let word = pair.map_or(0, |pair| pair.word);
            pairs.push(store_lines(&mut tx, block, [*home, self.checked(partner)?], word)?);
        }
        for (page, extent) in &runs {
            view.index().reserve(arena, *page, extent.pages)?;
        }
        tx.room(runs.len() + pairs.len(), Need::Flush)?;
        let last = view.size() / PAGE;
        if plan.tail.is_some() || plan.pages.iter().any(|block| block.page() == last) {
            if let Some(zeroed) = self.zero_reserved(locked, size)? {
                tx.also(zeroed);
            }
        } else {
            tx.zero_gap(size)?;
        }
        for (page, extent) in &runs {
            tx.map(*page, *extent, &[]);
        }
        for pair in &pairs {
            tx.pair(pair, 0);
        }
        let next = tx.next();
        (next.size, next.mtime_ns, next.ctime_ns) = (size, mtime_ns, ctime_ns);
        let op_seq = next.op_seq;
        tx.commit(|_, freed| {
            for (page, extent) in &runs {
                let mut extents = Extents::default();
                extents.push(*extent);
                self.map_extents(view, *page, &extents, freed)?;
            }
            for pair in &pairs {
                let paired = Paired::new(pair.partner, pair.word, op_seq);
                let _has_its_own = view.set_pair(arena, pair.file_page.get(), &paired)?;
            }
            view.set_unbuffered();
            Ok(())
        })?;
        Ok(taken)
    }

    /// Stores what of a page is among these bytes of the file, as it is seen, to the page at `home`, and
    /// the end of its last line, which is nobody's.
    fn store_block(
        &self,
        tx: &mut FileTx<'_>,
        block: &Block<'_>,
        home: PmAddr,
        stored: Range<u64>,
    ) -> Result<()> {
        let view = tx.view();
        let mut bytes = [0; PAGE_BYTES];
        if block.mask() != u64::MAX {
            self.load_page(&view, block.page(), &mut bytes)?;
        }
        for run in line_runs(block.mask(), 0..PAGE).filter(|run| run.in_partner) {
            let lines = in_page(run.bytes.start)..in_page(run.bytes.end);
            block.copy_out(run.bytes.start, bytes.get_mut(lines).unwrap_or_default())?;
        }
        let [from, end] = [stored.start, stored.end]
            .map(|byte| byte.saturating_sub(block.page() * PAGE).min(PAGE));
        let at = home.add(from);
        let end = end.next_multiple_of(LINE);
        let bytes = bytes.get(in_page(from)..in_page(end)).unwrap_or_default();
        if seeded::is_on(Bug::FlushLineCached) {
            tx.also(seeded::stream_but_a_line(&self.pm, at, bytes, 0));
        } else {
            tx.stream(at, bytes);
        }
        Ok(())
    }
}

/// Stores the lines of a block to the copies in which they are not current; returns the entry that
/// says so.
fn store_lines(
    tx: &mut FileTx<'_>,
    block: &Block<'_>,
    [home, partner]: [PmAddr; 2],
    word: u64,
) -> Result<Pair> {
    let changed = block.mask();
    let word = if seeded::is_on(Bug::PairInPlace) { word } else { word ^ changed };
    for run in line_runs(changed, 0..PAGE).filter(|run| run.in_partner) {
        let mut lines = [0; PAGE_BYTES];
        let lines = lines.get_mut(..in_page(run.bytes.end - run.bytes.start));
        let lines = lines.unwrap_or_default();
        block.copy_out(run.bytes.start, lines)?;
        for copy in line_runs(word, run.bytes.clone()) {
            let [from, to] =
                [copy.bytes.start, copy.bytes.end].map(|at| in_page(at - run.bytes.start));
            let at = if copy.in_partner { partner } else { home }.add(copy.bytes.start);
            tx.stream(at, lines.get(from..to).unwrap_or_default());
        }
    }
    let partner = Partner::own(partner);
    Ok(Pair { file_page: FilePage::new(block.page()), home, partner, word, changed })
}

/// A place in a page.
fn in_page(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}
