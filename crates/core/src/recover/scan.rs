//! The scan after a crash: every inode's standing state, every page in use.
//!
//! The same scan, changing nothing, is what `check` builds on.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use novale_layout::{
    Entry, FIRST_FREE_PAGE, FileKind, INODE_SIZE, INODES_PER_CHUNK, Ino, LINE, PAGE, PmAddr, Seed,
};
use novale_pm::{Pm, Purpose};

use super::chunks::Chunks;
use super::coverage::{Mapping, resolve};
use super::journal::Journal;
use super::marks::{InodeMarks, PageMarks};
use super::standing::{self, Standing};
use crate::commit::InodePlace;
use crate::error::{Error, Result};
use crate::exec::{Executor, Progress};
use crate::extent::Extent;
use crate::log::{self, Item, LogId};
use crate::pool::Pool;

/// Inodes of one task.
const TASK_INODES: u64 = 256;

/// What a scan works on.
pub(crate) struct Scan<'a> {
    pub(crate) pm: &'a Pm,
    pub(crate) seed: Seed,
    pub(crate) session: u32,
    pub(crate) journal: &'a Journal,
    pub(crate) chunks: &'a Chunks,
    pub(crate) pages: &'a PageMarks,
    pub(crate) inodes: &'a InodeMarks,
    /// What recovery accepts it writes back: the process that stored it may have died first.
    pub(crate) write_back: bool,
}

/// What a scan found that has to be stored.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Own lines to install: place, slot, line.
    pub(crate) installs: Vec<(InodePlace, u8, novale_layout::CommitLine)>,
    pub(crate) lines_rejected: u64,
    pub(crate) log_entries: u64,
}

/// Marks what is in use whatever the inodes say.
pub(crate) fn mark_fixed(
    pool: &Pool,
    marks: &PageMarks,
    lanes: &[PmAddr],
    chunks: &Chunks,
) -> Result<()> {
    for (header, _) in &pool.slots {
        let name = || format!("slot {}'s own pages", header.index);
        marks.mark(PmAddr::new(header.index, 0), FIRST_FREE_PAGE, &name)?;
        marks.mark(PmAddr::new(header.index, (header.pages - 1) * PAGE), 1, &name)?;
    }
    for page in lanes {
        marks.mark(*page, 1, &|| "a lane's page".into())?;
    }
    for page in chunks.directory_pages() {
        marks.mark(page, 1, &|| "a page of the inode directory".into())?;
    }
    for page in chunks.inode_pages() {
        marks.mark(page, 1, &|| "a page of inodes".into())?;
    }
    Ok(())
}

impl Scan<'_> {
    /// Scans all inodes through `exec`. The first damage found ends it.
    pub(crate) fn run(
        &self,
        exec: &dyn Executor,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Found> {
        let total = self.chunks.len() as u64 * INODES_PER_CHUNK;
        let done = AtomicU64::new(0);
        let found = Mutex::new(Ok(Found::default()));
        exec.run(usize::try_from(total / TASK_INODES).unwrap_or(usize::MAX), &|task| {
            let first = task as u64 * TASK_INODES;
            let result = self.scan_block(first);
            let done = done.fetch_add(TASK_INODES, Ordering::Relaxed) + TASK_INODES;
            progress(Progress { what: "scanning inodes", done, total });
            let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match (found.as_mut(), result) {
                (Ok(all), Ok(block)) => all.merge(block),
                (Ok(_), Err(error)) => *found = Err(error),
                (Err(_), _) => {}
            }
        });
        found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn scan_block(&self, first: u64) -> Result<Found> {
        let mut found = Found::default();
        // A write-back counts only with a fence of the thread that issued it.
        let mut pending = novale_pm::Flushed::none();
        for number in first.max(1)..first + TASK_INODES {
            let ino = Ino::new(number);
            let Some(place) = self.chunks.place(self.seed, ino) else { continue };
            let standing =
                standing::decide(self.pm, self.seed, self.session, self.journal, ino, &place)?;
            let Some(standing) = standing else { continue };
            found.lines_rejected += u64::from(standing.rejected);
            for (slot, line) in (0..).zip(standing.install) {
                found.installs.extend(line.map(|line| (place, slot, line)));
            }
            if self.write_back && standing.is_recent {
                let flushed = self.pm.write_back_range(place.addr, INODE_SIZE, Purpose::Inode);
                pending = pending.and(flushed);
            }
            if standing.line.nlink > 0 {
                self.inodes.mark(ino);
                let (entries, flushed) = self.scan_inode(ino, &place, &standing)?;
                found.log_entries += entries;
                pending = pending.and(flushed);
            }
        }
        self.pm.fence(pending).end();
        Ok(found)
    }

    /// Marks an inode's pages; returns the number of its log's entries.
    fn scan_inode(
        &self,
        ino: Ino,
        place: &InodePlace,
        standing: &Standing,
    ) -> Result<(u64, novale_pm::Flushed)> {
        let identity = standing
            .identity
            .as_ref()
            .map_err(|error| Error::damaged_inode(ino, "identity line", place.addr, error))?;
        let id = LogId::new(self.seed, ino, identity.generation);
        let line = &standing.line;
        let recent = self.write_back && standing.is_recent;
        let mut accepted = Accepted { pm: self.pm, pending: novale_pm::Flushed::none() };
        let (mut page_before, mut page) = (PmAddr::NULL, PmAddr::NULL);
        let mut mappings = Vec::new();
        let mut entries = 0;
        let owner = || format!("inode {}", ino.get());
        log::walk(self.pm, &id, line.log_head, line.log_tail, &mut |item| {
            match item {
                Item::Page { addr, .. } => {
                    self.pages.mark(addr, 1, &owner)?;
                    (page_before, page) = (page, addr);
                    if recent {
                        // The next pointer to it may be collection's last store.
                        accepted.write_back(addr, LINE, Purpose::Log);
                    }
                }
                Item::Entry { addr: at, header, entry, .. } => {
                    entries += 1;
                    log::check_entry((ino, identity.kind, line.op_seq), at, &header, entry)?;
                    let newest = recent && header.op_seq == line.op_seq;
                    if newest {
                        // With the blank lines that end a page.
                        accepted.write_back(page_before, PAGE, Purpose::Log);
                        accepted.write_back(page, PAGE, Purpose::Log);
                    }
                    if let Entry::Write { file_page, addr, count, .. } = *entry {
                        let first = file_page.get();
                        let end = log::write_end(first, count);
                        mappings.push(Mapping { first, end, addr });
                        if newest {
                            accepted.write_back(addr, u64::from(count) * PAGE, Purpose::Data);
                        }
                    }
                }
            }
            Ok(())
        })?;
        let pending = accepted.pending;
        if identity.kind != FileKind::Directory {
            resolve(&mappings, &mut |_, extent: Extent| {
                self.pages.mark(extent.addr, extent.pages, &owner)
            })?;
        }
        Ok((entries, pending))
    }
}

/// What is written back, since the process that stored it may have died before its fence.
struct Accepted<'a> {
    pm: &'a Pm,
    pending: novale_pm::Flushed,
}

impl Accepted<'_> {
    fn write_back(&mut self, addr: PmAddr, len: u64, purpose: Purpose) {
        if !addr.is_null() {
            let pending = std::mem::replace(&mut self.pending, novale_pm::Flushed::none());
            self.pending = pending.and(self.pm.write_back_range(addr, len, purpose));
        }
    }
}

impl Found {
    fn merge(&mut self, other: Self) {
        self.installs.extend(other.installs);
        self.lines_rejected += other.lines_rejected;
        self.log_entries += other.log_entries;
    }
}
