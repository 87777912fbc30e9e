//! The stores of a repair: entries after a log's tail, and a commit line in the place of the one that
//! does not stand. Two fences a commit, as every operation in the two-fence form.
//!
//! Crash points. Before the line is durable the old one stands, and what was stored after the tail
//! and into free pages means nothing. After it the new one stands. After recovery a record in the
//! journal comes first: a line that a crash tears could be taken for a newer state that was lost, of
//! an inode that shares pages, and a new inode has no other line.

use novale_layout::{
    COMMIT_OFFSETS, CommitLine, ENTRY_BYTES_MAX, Entry, FIRST_FREE_PAGE, JOURNAL_OFFSETS,
    JournalKind, JournalLines, JournalRecord, LINE, LINES_PER_PAGE, LOG_NEXT_OFFSET, LogLink,
    LogPageHeader, PAGE, PmAddr,
};
use novale_pm::{Flushed, Pm, Purpose};

use crate::base::error::{Error, Result};
use crate::inode::state::LogId;
use crate::log::redo::Owed;
use crate::log::{link_behind, page_of};
use crate::offline::repair::gather::Inode;
use crate::op::journal::{Journal, lane_pages};
use crate::pool::Pool;
use crate::pool::marks::PageMarks;
use crate::seeded::{self, Bug};

/// Writes to a pool that nobody else has open.
pub(super) struct Writer<'a> {
    pub(super) pm: &'a Pm,
    pub(super) session: u32,
    marks: &'a PageMarks,
    /// Pages of each slot.
    slots: Vec<u64>,
    /// Where the search for a free page goes on.
    at: (usize, u64),
}

impl<'a> Writer<'a> {
    pub(super) fn new(pm: &'a Pm, session: u32, marks: &'a PageMarks, slots: Vec<u64>) -> Self {
        Self { pm, session, marks, slots, at: (0, FIRST_FREE_PAGE) }
    }

    /// A page that nobody owns.
    pub(super) fn take_page(&mut self) -> Result<PmAddr> {
        while let Some(pages) = self.slots.get(self.at.0) {
            let (slot, page) = self.at;
            if page >= *pages {
                self.at = (slot + 1, FIRST_FREE_PAGE);
                continue;
            }
            self.at.1 = page + 1;
            if self.marks.word(slot, page / 64) >> (page % 64) & 1 == 0 {
                let addr = PmAddr::new(u8::try_from(slot).unwrap_or(u8::MAX), page * PAGE);
                self.marks.mark(addr, 1, &|| "a repair".to_owned())?;
                return Ok(addr);
            }
        }
        Err(Error::NoSpace)
    }

    /// Commits `entries` after an inode's log, and what `change` makes of its line.
    pub(super) fn commit(
        &mut self,
        inode: &mut Inode,
        entries: &[Entry],
        pending: Flushed,
        change: impl FnOnce(&mut CommitLine),
    ) -> Result<()> {
        let line = self.prepare(inode, entries, pending, change)?;
        self.install(inode, line);
        Ok(())
    }

    /// The same after a record, in a pool that recovery has seen to: no other record is needed any
    /// more.
    pub(super) fn commit_recorded(
        &mut self,
        pool: &Pool,
        inode: &mut Inode,
        entries: &[Entry],
        pending: Flushed,
        change: impl FnOnce(&mut CommitLine),
    ) -> Result<()> {
        let line = self.prepare(inode, entries, pending, change)?;
        self.record(pool, inode, line)?;
        self.install(inode, line);
        Ok(())
    }

    /// Makes all durable that the new line rests on.
    fn prepare(
        &mut self,
        inode: &mut Inode,
        entries: &[Entry],
        pending: Flushed,
        change: impl FnOnce(&mut CommitLine),
    ) -> Result<CommitLine> {
        self.carry_out(inode);
        let op_seq = (inode.op_seq_max + 1).max(u64::from(self.session) << 32);
        let mut line =
            CommitLine { op_seq, flags: 0, data_crc: 0, session: self.session, ..inode.line };
        let pending = self.append(inode, &mut line, entries)?.and(pending);
        change(&mut line);
        self.pm.fence(pending).end();
        Ok(line)
    }

    /// Stores what the newest operation's entries have for the file's pages, durably, and before it zeros over
    /// torn lines, as recovery does: the line that comes supersedes the entries.
    fn carry_out(&self, inode: &mut Inode) {
        if inode.owed.is_empty() {
            return;
        }
        let zeroed = inode.torn_lines.drain(..).fold(Flushed::none(), |zeroed, at| {
            zeroed.and(self.pm.stream_zero(at, LINE, Purpose::Commit))
        });
        self.pm.fence(zeroed).end();
        let stored =
            inode.owed.drain(..).fold(Flushed::none(), |stored, Owed { at, bytes, .. }| {
                stored.and(self.pm.stream(at, &bytes, Purpose::Data))
            });
        self.pm.fence(stored).end();
    }

    /// Stores a record of the first lane, durably, over the older of its two.
    fn record(&self, pool: &Pool, inode: &Inode, line: CommitLine) -> Result<()> {
        let all = lane_pages(self.pm, pool.superblock.lane_count)?;
        let first = all.get(..1).unwrap_or_default();
        let journal = Journal::read(self.pm, pool.seed, first)?;
        Journal::check_numbers(&journal.last_seq, first)?;
        let mut lines = JournalLines::new();
        lines
            .push(inode.ino, line)
            .map_err(|error| Error::damaged_inode(inode.ino, "record", inode.place.addr, error))?;
        for (page, last) in first.iter().zip(&journal.last_seq) {
            let record = JournalRecord {
                lane_seq: last + 1,
                session: self.session,
                lane: 0,
                kind: JournalKind::Other,
                data_crc: None,
                identity_mask: 0,
                lines,
            };
            let (bytes, len) = record.encode(pool.seed);
            let [even, odd] = JOURNAL_OFFSETS;
            let at = page.add(if record.lane_seq.is_multiple_of(2) { even } else { odd });
            let bytes = bytes.get(..len).unwrap_or_default();
            self.pm.fence(self.pm.stream(at, bytes, Purpose::Journal)).end();
        }
        Ok(())
    }

    /// Stores entries after the tail of `line`, which goes with them.
    fn append(
        &mut self,
        inode: &mut Inode,
        line: &mut CommitLine,
        entries: &[Entry],
    ) -> Result<Flushed> {
        let id = LogId::in_place(inode.ino, inode.generation(), &inode.place);
        let (mut pending, mut is_page_new) = (Flushed::none(), false);
        for entry in entries {
            let mut bytes = [0; ENTRY_BYTES_MAX];
            let len = entry.encode(line.op_seq, id.seed, &mut bytes);
            let bytes = bytes.get(..len).unwrap_or_default();
            let tail = line.log_tail;
            let left = if tail.is_null() { 0 } else { lines_behind(tail) };
            let mut at = if tail.is_null() { tail } else { PmAddr::from_raw(tail.raw() + LINE) };
            if (len as u64) > left * LINE {
                if std::mem::replace(&mut is_page_new, true) {
                    // Its header was streamed, and has the word that names the next page.
                    self.pm.fence(std::mem::replace(&mut pending, Flushed::none())).end();
                }
                let (page, linked) = self.link_page(inode, &id, line)?;
                pending = pending.and(linked);
                at = page.add(LINE);
            }
            pending = pending.and(self.pm.stream(at, bytes, Purpose::Log));
            line.log_tail = at.add(len as u64 - LINE);
        }
        Ok(pending)
    }

    /// A new page after the log's last one.
    fn link_page(
        &mut self,
        inode: &mut Inode,
        id: &LogId,
        line: &mut CommitLine,
    ) -> Result<(PmAddr, Flushed)> {
        let page = self.take_page()?;
        inode.page_seq += 1;
        let header = LogPageHeader {
            ino: id.ino,
            generation: id.generation,
            session: self.session,
            page_seq: inode.page_seq,
            next: LogLink::NONE,
        };
        let stored = self.pm.stream(page, &header.encode(id.seed.addr(page)), Purpose::Log);
        if line.log_tail.is_null() {
            line.log_head = page;
            return Ok((page, stored));
        }
        let next = page_of(line.log_tail).add(LOG_NEXT_OFFSET);
        let leads = link_behind(line.log_tail, page);
        let linked = self.pm.store_u64(next, leads.raw(), Purpose::Log);
        Ok((page, stored.and(self.pm.write_back(linked))))
    }

    /// Makes `line` the state of an inode: durably, in the place of a line that does not stand, and
    /// of both where none does.
    pub(super) fn install(&mut self, inode: &mut Inode, line: CommitLine) {
        let bytes = line.encode(inode.place.seed);
        for (slot, offset) in (0..).zip(COMMIT_OFFSETS) {
            if inode.slot != Some(slot) {
                let at = inode.place.addr.add(offset);
                let stored = self.pm.stream(at, &bytes, Purpose::Commit);
                if !seeded::is_on(Bug::RepairLineNotFenced) {
                    self.pm.fence(stored).end();
                }
            }
        }
        // Of two lines written either stands.
        inode.slot = Some(inode.slot.map_or(0, |slot| slot ^ 1));
        inode.op_seq_max = inode.op_seq_max.max(line.op_seq);
        inode.line = line;
    }
}

/// Lines left in the tail's page.
fn lines_behind(tail: PmAddr) -> u64 {
    LINES_PER_PAGE - 1 - tail.byte() % PAGE / LINE
}
