//! Changes of where lines of pages with two copies are current: they are stored to the copies in which they
//! will be, and entries that say so commit. Writes to slots ([`crate::write::lawn`]) are made so, and lines
//! of slots go back to their pages.

use std::ops::Range;

use arrayvec::ArrayVec;
use novale_layout::{FileKind, FilePage, Ino, LINE, PAGE, Pair, Partner, PmAddr};
use novale_pm::Purpose;

use crate::base::error::Result;
use crate::base::lines::{places, set_runs};
use crate::base::types::Ctx;
use crate::fs::Fs;
use crate::inode::pairs::{GROUP, Paired, pair_count};
use crate::inode::slots::{oldest_first, surplus};
use crate::inode::view::View;
use crate::op::call::{Call, OpKind};
use crate::op::file_tx::FileTx;
use crate::op::lock::Locked;
use crate::seeded::{self, Bug};
use crate::space::Need;

const PAGE_BYTES: usize = 4096;
const LINE_BYTES: usize = 64;
/// Pages that one commit changes at most: those of a sub-zone.
const CHANGES_MAX: usize = 64;

/// What an operation changes of the copies of a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineChange<'d> {
    pub(crate) file_page: u64,
    pub(crate) home: PmAddr,
    /// What the page had.
    pub(crate) old: Option<Paired>,
    /// Where its second copies will be.
    pub(crate) to: ChangedTo,
    /// The lines that are stored, and those that will be current in the second copies.
    pub(crate) changed: u64,
    pub(crate) word: u64,
    /// What is written to it, from this byte of the page on.
    pub(crate) bytes: &'d [u8],
    pub(crate) from: u64,
}

/// Where second copies of a page's lines will be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ChangedTo {
    /// There; also where none will be.
    Partner(Partner),
    /// In slots of a page that is taken, with this shift.
    Taken(u64, u32),
}

impl LineChange<'_> {
    /// The lines in slots go back to their page.
    pub(crate) fn back(file_page: u64, home: PmAddr, old: Paired) -> Self {
        let to = ChangedTo::Partner(old.partner);
        Self {
            file_page,
            home,
            old: Some(old),
            to,
            changed: old.word,
            word: 0,
            bytes: &[],
            from: 0,
        }
    }
}

impl Fs {
    /// Writes back what the sub-zones of all files have that have grown, the least recently written lines
    /// first; says of how many pages of files that were. Any client may call it, at any time.
    ///
    /// # Errors
    /// [`Error::BadArena`](crate::Error::BadArena): damage. What is wrong with a file is told to those who use it.
    pub fn write_slots_back(&self, ctx: &Ctx) -> Result<u64> {
        self.check_open()?;
        if self.options.read_only || pair_count(self.arena()) == 0 {
            return Ok(0);
        }
        let mut files = Vec::new();
        self.views.visit_some(self.arena(), usize::MAX, &mut |view| {
            if view.kind() == Some(FileKind::File) && view.has_pairs() {
                files.push(view.ino());
            }
            false
        })?;
        files.sort_unstable();
        // A round begins and ends in the same shard of views.
        files.dedup();
        let written = files.into_iter().map(|ino| self.write_file_back(ctx, ino).unwrap_or(0));
        Ok(written.sum())
    }

    /// Writes back what is too much of a file's sub-zones, a commit for each.
    fn write_file_back(&self, ctx: &Ctx, ino: Ino) -> Result<u64> {
        let (mut from, mut written) = (0, 0);
        // Each turn goes on after a group of pages. The lock is held for one of them.
        loop {
            let call = self.begin(OpKind::Write, ctx)?;
            let locked = self.lock(&call, ino)?;
            let view = &locked.view;
            let Some(page) = view.next_pair(self.arena(), from)? else { return Ok(written) };
            from = page / GROUP * GROUP + GROUP;
            let op_seq = view.state().op_seq + 1;
            let surplus = surplus(oldest_first(view, self.arena(), page, op_seq)?);
            if !surplus.is_empty() {
                self.store_back(&call, &locked, &surplus)?;
                written += surplus.len() as u64;
            }
        }
    }

    /// Stores lines that slots have to their pages, by a commit that changes nothing else. It has no data
    /// checksum.
    pub(crate) fn store_back(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        pages: &[(u64, Paired)],
    ) -> Result<()> {
        let view = &locked.view;
        let mut changes = Vec::with_capacity(pages.len());
        for (page, pair) in pages {
            let home = self.page_addr(view, *page)?.unwrap_or(PmAddr::NULL);
            changes.push(LineChange::back(*page, self.checked(home)?, *pair));
        }
        let mut tx = FileTx::begin(self, call, locked);
        self.change_lines(&mut tx, view, &changes, false, None)
    }

    /// Stores changed lines to the copies in which they will be current, and commits: a write that ends at
    /// `end`, or one that leaves the file's bytes as they are.
    pub(crate) fn change_lines(
        &self,
        tx: &mut FileTx<'_>,
        view: &View<'_>,
        changes: &[LineChange<'_>],
        is_summed: bool,
        end: Option<u64>,
    ) -> Result<()> {
        let mut stored: ArrayVec<(Pair, u32), CHANGES_MAX> = ArrayVec::new();
        for change in changes {
            stored.push(self.store_lines(tx, view, change, is_summed)?);
        }
        if end.is_some() {
            tx.strip()?;
        }
        tx.room(stored.len(), Need::Release)?;
        for (pair, sum) in &stored {
            tx.pair(pair, *sum);
        }
        if let Some(end) = end {
            tx.grow(end);
        }
        let op_seq = tx.next().op_seq;
        tx.commit(|_, freed| {
            let pairs = stored.iter().map(|(pair, _)| {
                (pair.file_page.get(), Paired::new(pair.partner, pair.word, op_seq))
            });
            view.set_pairs(self.arena(), pairs, |page| {
                if !seeded::is_on(Bug::SlotPageLost) {
                    freed.push_page(page);
                }
            })
        })
    }

    /// Stores the changed lines of a page; returns the entry that says so and, where it is asked for, the
    /// lines' checksum.
    fn store_lines(
        &self,
        tx: &mut FileTx<'_>,
        view: &View<'_>,
        change: &LineChange<'_>,
        is_summed: bool,
    ) -> Result<(Pair, u32)> {
        let LineChange { file_page, home, to, changed, word, .. } = *change;
        let partner = match to {
            ChangedTo::Partner(partner) => partner,
            ChangedTo::Taken(index, shift) => Partner::slots(tx.page(index), shift),
        };
        self.checked(partner.page())?;
        let mut lines: ArrayVec<u8, PAGE_BYTES> = ArrayVec::new();
        for run in set_runs(changed) {
            let first = lines.len();
            self.add_lines(view, change, run.clone(), &mut lines)?;
            for (at, bytes) in places(home, partner, word, run.clone()) {
                let [from, to] = [bytes.start, bytes.end].map(|at| first + in_page(at - run.start));
                let bytes = lines.get(from..to).unwrap_or_default();
                tx.also(if seeded::is_on(Bug::SlotCached) {
                    seeded::stream_but_a_line(&self.pm, at, bytes, 0)
                } else {
                    self.pm.stream(at, bytes, Purpose::Data)
                });
            }
        }
        // After the stores: they drain meanwhile.
        let sum = if is_summed { novale_crc::append(0, &lines) } else { 0 };
        Ok((Pair { file_page: FilePage::new(file_page), home, partner, word, changed }, sum))
    }

    /// Adds what lines of a page will hold: what is written to it, what it has before and after that, and
    /// zeros beyond the end of the file.
    fn add_lines(
        &self,
        view: &View<'_>,
        change: &LineChange<'_>,
        run: Range<u64>,
        lines: &mut ArrayVec<u8, PAGE_BYTES>,
    ) -> Result<()> {
        let LineChange { file_page, home, old, bytes: new, from, .. } = *change;
        let to = from + new.len() as u64;
        let (partner, word) = old.map_or((Partner::own(home), 0), |old| (old.partner, old.word));
        let live = view.size().saturating_sub(file_page * PAGE).min(PAGE).max(to);
        let (mut at, mut room) = (run.start, [0; LINE_BYTES]);
        // Each turn goes on by a byte at least.
        while at < run.end {
            let line_end = (at / LINE + 1) * LINE;
            let end = if (from..to).contains(&at) {
                let end = to.min(run.end);
                add(lines, new.get(in_page(at - from)..in_page(end - from)).unwrap_or_default());
                end
            } else if at >= live {
                add(lines, [0; LINE_BYTES].get(..in_page(line_end - at)).unwrap_or_default());
                line_end
            } else {
                let end = line_end.min(live).min(if at < from { from } else { PAGE });
                let bytes = room.get_mut(..in_page(end - at)).unwrap_or_default();
                self.load_runs(home, partner, word, at..end, bytes)?;
                add(lines, bytes);
                end
            };
            at = end;
        }
        Ok(())
    }
}

/// Adds bytes to a page's lines, of which a page has room for all.
fn add(lines: &mut ArrayVec<u8, PAGE_BYTES>, bytes: &[u8]) {
    let _fits = lines.try_extend_from_slice(bytes);
}

/// A place in a page.
fn in_page(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}
