//! A change of one file as a value: the pages it takes, what it stores, the entries that it appends, and
//! the commit that makes all of it the file's.
//!
//! The steps, in this order; those up to `room` can fail:
//! 1. [`FileTx::take`] takes pages, which no commit names yet, and [`FileTx::also`] notes what was
//!    streamed to them.
//! 2. [`FileTx::change_attrs`] and [`FileTx::strip`] take the pages of changed extended attributes.
//! 3. [`FileTx::room`] takes the log pages for the entries.
//! 4. [`FileTx::map`], [`FileTx::entry`] and [`FileTx::cover_end`] append entries after the log's tail.
//! 5. [`FileTx::commit`] makes the commit line durable, shows the change to readers and frees what fell
//!    out of use.
//!
//! The way back of every change is here alone. A transaction that is dropped before its commit fences
//! what it streamed, then gives all pages back: a client that gets them next must not be overtaken by its
//! stores. A panic gives nothing back: what stands then is judged as after a death.
//!
//! Crash points. Pages, attribute chains and entries lie where nothing leads before the commit line is
//! durable ([`crate::op::commit`]): a crash frees them. With a data checksum the line counts only if all
//! that it covers has arrived.
//!
//! What changes a file's contents takes `security.capability` away, for any caller
//! ([`FileTx::strip`]): the commit has an attributes entry for that. The pages of the attributes that
//! stay are in no data checksum. A file without capabilities costs one load.

use std::ops::Range;

use novale_layout::{Entry, PAGE, Pair, PmAddr};
use novale_pm::{Flushed, Purpose};

use crate::base::error::Result;
use crate::base::extent::{Extent, Extents, page_at};
use crate::fs::Fs;
use crate::inode::state::{Attrs, State};
use crate::inode::view::View;
use crate::log::covered::covered_crc;
use crate::log::entries::{attributes_entry, write_end, write_entry};
use crate::log::{Appended, Appender, LogRoom};
use crate::op::call::Call;
use crate::op::commit::Rest;
use crate::op::lock::Locked;
use crate::op::xattr_set::{ReadyXattrs, Xattrs};
use crate::seeded::{self, Bug};
use crate::space::{Need, Wanted};

/// New pages of an operation that no commit names yet, and what was streamed to them. Dropped, they are
/// fenced and go back.
pub(crate) struct Taken<'a> {
    fs: &'a Fs,
    call: &'a Call<'a>,
    pub(crate) extents: Extents,
    pending: Flushed,
    /// A commit names them.
    is_named: bool,
}

impl<'a> Taken<'a> {
    /// None so far.
    pub(crate) fn none(fs: &'a Fs, call: &'a Call<'a>) -> Self {
        Self { fs, call, extents: Extents::default(), pending: Flushed::none(), is_named: false }
    }

    /// Exactly so many pages.
    pub(crate) fn take(fs: &'a Fs, call: &'a Call<'a>, pages: u64, need: Need) -> Result<Self> {
        let extents = fs.take_pages(call, Wanted::again(pages), need)?;
        Ok(Self { fs, call, extents, pending: Flushed::none(), is_named: false })
    }

    /// Where the page with that number among them lies.
    pub(crate) fn page(&self, index: u64) -> PmAddr {
        page_at(&self.extents, index)
    }

    /// Notes what was streamed to them.
    pub(crate) fn also(&mut self, flushed: Flushed) {
        let pending = std::mem::replace(&mut self.pending, Flushed::none());
        self.pending = pending.and(flushed);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.is_named && !self.extents.is_empty() && !std::thread::panicking() {
            // A fence completes all that this thread has streamed, no matter who had the token of it.
            self.fs.pm.fence(Flushed::none()).end();
            // What fails here is the arena, and the next operation says so.
            let _damage = self.fs.give(self.call, &self.extents);
        }
    }
}

/// A change of one file that is being made; see the head of this module.
pub(crate) struct FileTx<'a> {
    fs: &'a Fs,
    call: &'a Call<'a>,
    file: &'a Locked<'a>,
    taken: Taken<'a>,
    /// What the commit line will say.
    next: State,
    /// Pages that the commit frees.
    freed: Extents,
    attrs: Option<Box<NewAttrs>>,
    log: Option<Appender<'a>>,
    /// Pages that its entries map or take out, of a file with pairs: those end.
    ended_pairs: Range<u64>,
    /// The same, where they do not follow.
    more_ended_pairs: Vec<Range<u64>>,
    /// The checksum of the end of the file, where the line's is of that.
    end_crc: Option<u32>,
    /// The line's checksum is of bytes of the file, beside the entries.
    sums_data: bool,
    /// The line rests on something that was stored.
    has_rest: bool,
    /// The commit takes the single-fence form.
    is_single: bool,
}

/// Attributes that the commit changes, by an entry.
struct NewAttrs {
    attrs: Attrs,
    atime_ns: i64,
    xattrs: Option<ReadyXattrs>,
}

impl<'a> FileTx<'a> {
    /// Begins a change of a file whose lock is held, in the two-fence form.
    #[inline]
    pub(crate) fn begin(fs: &'a Fs, call: &'a Call<'a>, file: &'a Locked<'a>) -> Self {
        Self::with(Taken::none(fs, call), file)
    }

    /// As [`FileTx::begin`], with pages that were taken and stored to before the file was locked.
    #[inline]
    pub(crate) fn with(taken: Taken<'a>, file: &'a Locked<'a>) -> Self {
        Self {
            fs: taken.fs,
            call: taken.call,
            file,
            next: file.next_state(),
            freed: Extents::default(),
            attrs: None,
            log: None,
            ended_pairs: 0..0,
            more_ended_pairs: Vec::new(),
            end_crc: None,
            sums_data: false,
            has_rest: !taken.extents.is_empty(),
            is_single: false,
            taken,
        }
    }

    /// When the change is made.
    pub(crate) fn now_ns(&self) -> i64 {
        self.call.now_ns
    }

    /// The view of the file.
    pub(crate) fn view(&self) -> View<'a> {
        self.file.view
    }

    /// Takes exactly so many new pages, which the caller is going to store to.
    #[inline]
    pub(crate) fn take(&mut self, pages: u64, need: Need) -> Result<()> {
        self.taken.extents = self.fs.take_pages(self.call, Wanted::again(pages), need)?;
        Ok(())
    }

    /// The same of one slot, where it has room.
    pub(crate) fn take_in(&mut self, slot: u8, pages: u64) -> Result<()> {
        self.taken.extents = self.fs.take_pages_in(self.call, slot, pages)?;
        Ok(())
    }

    /// The pages that were taken.
    pub(crate) fn extents(&self) -> &Extents {
        &self.taken.extents
    }

    /// Where the new page with that number lies.
    pub(crate) fn page(&self, index: u64) -> PmAddr {
        self.taken.page(index)
    }

    /// Notes what was streamed, or written back: the commit rests on it.
    #[inline]
    pub(crate) fn also(&mut self, flushed: Flushed) {
        self.has_rest = true;
        self.taken.also(flushed);
    }

    /// Streams bytes of the file.
    pub(crate) fn stream(&mut self, at: PmAddr, bytes: &[u8]) {
        self.also(self.fs.pm.stream(at, bytes, Purpose::Data));
    }

    /// Zeroes pages.
    pub(crate) fn stream_zero(&mut self, at: PmAddr, len: u64) {
        self.also(self.fs.pm.stream_zero(at, len, Purpose::Data));
    }

    /// Zeroes what lies between the old end of the file and `to`. What is stored in place is in no
    /// data checksum.
    pub(crate) fn zero_gap(&mut self, to: u64) -> Result<()> {
        if let Some(gap) = self.fs.zero_gap(self.file, to)? {
            self.also(gap);
            self.is_single = false;
        }
        Ok(())
    }

    /// As [`FileTx::zero_gap`], before a write at `offset`: a page that it replaces has zeros there.
    #[inline]
    pub(crate) fn zero_gap_before(&mut self, offset: u64) -> Result<()> {
        if offset / PAGE == self.file.view.size() / PAGE { Ok(()) } else { self.zero_gap(offset) }
    }

    /// Chooses the form: single-fence, unless something that no checksum covers belongs to the change.
    #[inline]
    pub(crate) fn sum(&mut self, is_single: bool) {
        self.is_single = is_single;
    }

    /// Whether the commit takes the single-fence form, as far as is known.
    pub(crate) fn is_single(&self) -> bool {
        self.is_single
    }

    /// What changes contents takes file capabilities away.
    #[inline]
    pub(crate) fn strip(&mut self) -> Result<()> {
        let Some(xattrs) = self.fs.without_capability(self.file)? else { return Ok(()) };
        let view = &self.file.view;
        self.change_attrs(view.attrs(), view.atime_ns(), Some(xattrs))?;
        self.is_single = false;
        Ok(())
    }

    /// Changes attributes, and the extended ones where `xattrs` says what they will be.
    pub(crate) fn change_attrs(
        &mut self,
        mut attrs: Attrs,
        atime_ns: i64,
        xattrs: Option<Xattrs>,
    ) -> Result<()> {
        let xattrs = xattrs.map(|xattrs| self.fs.ready_xattrs(self.call, xattrs)).transpose()?;
        if let Some(ready) = &xattrs {
            attrs.xattrs = ready.set;
            self.is_single &= !ready.has_pages() || seeded::is_on(Bug::XattrsNotFenced);
        }
        self.attrs = Some(Box::new(NewAttrs { attrs, atime_ns, xattrs }));
        Ok(())
    }

    /// Takes the log pages for so many entries of a line each, beside that of the attributes.
    #[inline]
    pub(crate) fn room(&mut self, entries: usize, need: Need) -> Result<()> {
        let lines = entries + usize::from(self.attrs.is_some());
        self.room_of((0..lines).map(|_| 1), need)
    }

    /// Takes the log pages for entries of so many lines each.
    #[inline]
    fn room_of(&mut self, lines: impl Iterator<Item = u64>, need: Need) -> Result<()> {
        let (fs, file) = (self.fs, self.file);
        let env = fs.env(self.call);
        let room = LogRoom::make(&env, &file.view, lines, need)?;
        let (view, op_seq) = (&file.view, self.next.op_seq);
        self.log = Some(Appender::new(&fs.pm, file.id, fs.session, view, op_seq, room));
        Ok(())
    }

    /// As [`FileTx::room`], for these entries.
    pub(crate) fn room_for(&mut self, entries: &[Entry]) -> Result<()> {
        let attrs = std::iter::repeat_n(1, usize::from(self.attrs.is_some()));
        self.room_of(entries.iter().map(|entry| entry.lines() as u64).chain(attrs), Need::Release)
    }

    /// Room for the new pages to be mapped from `first_page` on: in the log, in the index and in the
    /// quota of the file's tree.
    #[inline]
    pub(crate) fn room_to_map(&mut self, first_page: u64) -> Result<()> {
        let (view, pages) = (&self.file.view, self.taken.extents.pages());
        self.fs.allow_write(self.call, view, first_page, pages)?;
        self.strip()?;
        self.room(self.taken.extents.len(), Need::Release)?;
        self.fs.room_in_index(view, first_page, pages)
    }

    /// Room in the log and in the index for runs of pages, each with its first page in the file.
    pub(crate) fn room_for_runs(&mut self, runs: &[(u64, Extent)], need: Need) -> Result<()> {
        self.room(runs.len(), need)?;
        for (page, extent) in runs {
            self.fs.room_in_index(&self.file.view, *page, extent.pages)?;
        }
        Ok(())
    }

    /// Appends the entry of the attributes, behind all others.
    #[inline]
    fn store_attrs(&mut self) {
        if let Some(new) = self.attrs.as_deref() {
            self.has_rest = true;
            if let Some(xattrs) = &new.xattrs {
                let stored = xattrs.store(&self.fs.pm, &self.file.id, self.next.op_seq);
                self.taken.also(stored);
            }
            if let Some(log) = &mut self.log {
                log.push(&Entry::Attributes(attributes_entry(&new.attrs, new.atime_ns)));
            }
        }
    }

    /// Appends an entry.
    pub(crate) fn entry(&mut self, entry: &Entry) {
        self.has_rest = true;
        if let Entry::Write { file_page, count, .. } = *entry {
            self.ends_pairs(file_page.get()..write_end(file_page.get(), count));
        }
        if let Some(log) = &mut self.log {
            log.push(entry);
        }
    }

    /// Notes pages of the file whose pairs end with the commit.
    #[inline]
    fn ends_pairs(&mut self, pages: Range<u64>) {
        if !self.file.view.has_pairs() {
            return;
        }
        if self.ended_pairs.is_empty() {
            self.ended_pairs = pages;
        } else if self.ended_pairs.end == pages.start {
            self.ended_pairs.end = pages.end;
        } else {
            self.more_ended_pairs.push(pages);
        }
    }

    /// Appends the entry of a page with two copies; `sum` is of the lines that were stored.
    pub(crate) fn pair(&mut self, pair: &Pair, sum: u32) {
        self.entry(&Entry::Pair(*pair));
        self.sums_data = true;
        if let Some(log) = self.log.as_mut().filter(|_| self.is_single) {
            log.cover_page(sum);
        }
    }

    /// Appends the entry that maps pages; their checksums follow, where the form has them.
    pub(crate) fn map(&mut self, file_page: u64, extent: Extent, sums: &[u32]) {
        self.entry(&write_entry(file_page, extent));
        self.sums_data = true;
        if let Some(log) = self.log.as_mut().filter(|_| self.is_single) {
            for sum in sums {
                log.cover_page(*sum);
            }
        }
    }

    /// Appends the entries that map the new pages from `file_page` on, with their checksums.
    #[inline]
    pub(crate) fn map_taken(&mut self, mut file_page: u64, mut sums: &[u32]) {
        (self.has_rest, self.sums_data) = (true, self.sums_data || !sums.is_empty());
        self.ends_pairs(file_page..file_page + self.taken.extents.pages());
        let Some(log) = &mut self.log else { return };
        for extent in self.taken.extents.iter() {
            log.push(&write_entry(file_page, extent));
            let pages = usize::try_from(extent.pages).unwrap_or(usize::MAX).min(sums.len());
            let (now, later) = sums.split_at(pages);
            now.iter().filter(|_| self.is_single).for_each(|sum| log.cover_page(*sum));
            (file_page, sums) = (file_page + extent.pages, later);
        }
    }

    /// The line's checksum is of the end of the file, from where `flags` say.
    pub(crate) fn cover_end(&mut self, crc: u32, flags: u16) {
        if self.is_single {
            (self.end_crc, self.next.flags) = (Some(crc), flags);
        }
    }

    /// What the commit line will say.
    pub(crate) fn next(&mut self) -> &mut State {
        &mut self.next
    }

    /// The file ends at `end` at least, and has changed now.
    #[inline]
    pub(crate) fn grow(&mut self, end: u64) {
        self.next.size = self.next.size.max(end);
        (self.next.mtime_ns, self.next.ctime_ns) = (self.call.now_ns, self.call.now_ns);
    }

    /// The commit frees these pages as well.
    pub(crate) fn free(&mut self, extents: &Extents) {
        extents.iter().for_each(|extent| self.freed.push(extent));
    }

    /// Commits, once: nothing is left to be done with the transaction then. `show` shows readers what
    /// became of the pages: it gets those that were taken, and adds those that fell out of use. An error
    /// is of the view: the change is durable.
    ///
    /// Where it lies: a transaction that is moved is loaded in wider pieces than it was stored in, and
    /// such a load waits until all that was streamed before is on its way.
    pub(crate) fn commit(
        &mut self,
        show: impl FnOnce(&Extents, &mut Extents) -> Result<()>,
    ) -> Result<()> {
        let (fs, call, file) = (self.fs, self.call, self.file);
        let appended = self.commit_and_keep(show)?;
        if let Some(appended) = &appended {
            fs.collect_if_grown(call, file, appended);
        }
        Ok(())
    }

    /// As [`FileTx::commit`], where recovery needs the entries until a later commit of the file: the
    /// caller has the log collected after that.
    pub(crate) fn commit_and_keep(
        &mut self,
        show: impl FnOnce(&Extents, &mut Extents) -> Result<()>,
    ) -> Result<Option<Appended>> {
        self.store_attrs();
        let (fs, call, file) = (self.fs, self.call, self.file);
        let (view, op_seq) = (&file.view, self.next.op_seq);
        let mut pending = std::mem::replace(&mut self.taken.pending, Flushed::none());
        let mut appended = self.log.as_mut().map(|log| {
            self.end_crc.iter().for_each(|sum| log.cover_page(*sum));
            log.finish()
        });
        let mut crc = 0;
        if let Some(appended) = &mut appended {
            Locked::apply_log(&mut self.next, appended);
            let entries = std::mem::replace(&mut appended.pending, Flushed::none());
            (pending, crc) = (pending.and(entries), appended.crc);
        }
        if seeded::is_on(Bug::MappedPagesSummed) && view.is_dax() {
            self.is_single = true;
            crc = covered_crc(&fs.pm, &file.id, &self.next.line(fs.session, None))?;
        }
        if self.is_single && !self.sums_data && self.end_crc.is_none() {
            self.next.flags |= State::NO_DATA;
        }
        let rest =
            if self.has_rest { Rest::new(self.is_single, pending, crc) } else { Rest::Nothing };
        // From here on the pages are the file's, or the commit's to free.
        self.taken.is_named = true;
        let new = self.attrs.take();
        let more_ended = std::mem::take(&mut self.more_ended_pairs);
        let ended_pairs = [self.ended_pairs.clone()].into_iter().chain(more_ended);
        let (taken, freed) = (&self.taken.extents, &mut self.freed);
        let mut show = Some(show);
        let early = seeded::is_on(Bug::ReplacedFreedEarly) && self.next.flags & State::REDO == 0;
        if let Some(show) = show.take_if(|_| early) {
            view.publish(|| show(taken, freed))?;
            fs.give(call, &std::mem::take(freed))?;
        }
        fs.commit(call, file, &mut self.next, rest, || {
            if let Some(appended) = &appended {
                appended.publish(view);
            }
            if let Some(new) = &new {
                view.set_attrs(&new.attrs, view.rdev());
                view.set_atime_ns(new.atime_ns);
                view.set_attr_seq(op_seq);
            }
            show.map_or(Ok(()), |show| show(taken, freed))?;
            for pages in ended_pairs {
                view.end_pairs(fs.arena(), pages, |partner| {
                    if !seeded::is_on(Bug::PartnerLost) {
                        freed.push_page(partner);
                    }
                })?;
            }
            Ok(())
        })?;
        if let Some(xattrs) = new.and_then(|new| new.xattrs) {
            self.free(&xattrs.freed);
        }
        fs.give(call, &self.freed)?;
        Ok(appended)
    }
}

impl Drop for FileTx<'_> {
    fn drop(&mut self) {
        let has_none = self.log.is_none() && self.attrs.is_none() && !self.has_rest;
        if self.taken.is_named || has_none || std::thread::panicking() {
            return;
        }
        // Also what was stored to pages that the file has.
        self.fs.pm.fence(Flushed::none()).end();
        // What fails here is the arena, and the next operation says so.
        if let Some(log) = self.log.take() {
            let _damage = log.give_back(&self.fs.env(self.call));
        }
        if let Some(xattrs) = self.attrs.take().and_then(|new| new.xattrs) {
            let _damage = self.fs.unready_xattrs(self.call, &xattrs);
        }
    }
}
