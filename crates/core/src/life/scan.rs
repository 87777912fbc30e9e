//! The scan after a crash: every inode's standing state, every page in use.
//!
//! Damage of an inode is noted and ends nothing: what becomes of the pool then is the caller's.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use novale_layout::{
    COMMIT_OFFSETS, CommitLine, Entry, FIRST_FREE_PAGE, FileKind, INODE_SIZE, INODES_PER_CHUNK,
    Ino, LINE, PAGE, PmAddr, Seed,
};
use novale_pm::{Flushed, Pm, Purpose};

use crate::base::error::{Error, Result};
use crate::base::exec::{Executor, Progress};
use crate::base::extent::Extent;
use crate::inode::chunks::Chunks;
use crate::inode::state::{InodePlace, LogId};
use crate::log::Item;
use crate::log::coverage::{Mapping, Mappings, resolve};
use crate::log::covered::CoveredEnd;
use crate::op::journal::Journal;
use crate::op::quota::Usage;
use crate::op::standing;
use crate::op::standing::Standing;
use crate::op::xattr_set::Xattrs;
use crate::pool::Pool;
use crate::pool::marks::{InodeMarks, PageMarks};
use crate::seeded::Bug;
use crate::{log, seeded};

/// How far ahead the logs of inodes are brought into the cache.
const PREFETCH_INODES: u64 = 6;
/// Inodes of one task: whole words of marks.
const TASK_INODES: u64 = 256;
const _: () = assert!(TASK_INODES.is_multiple_of(64));

/// What a scan works on.
pub(crate) struct Scan<'a> {
    pub(crate) pm: &'a Pm,
    pub(crate) seed: Seed,
    /// The session that crashed; none in a pool that was closed clean, where nothing is torn.
    pub(crate) crashed: Option<u32>,
    pub(crate) journal: &'a Journal,
    pub(crate) chunks: &'a Chunks,
    pub(crate) pages: &'a PageMarks,
    pub(crate) inodes: &'a InodeMarks,
}

/// What a scan does with the pages that it meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Marks them. After a crash what is accepted is written back: the process that stored it may
    /// have died before its fence.
    Mark,
    /// Looks for those that were marked twice: the inode that was first is no better than the other.
    Shared,
    /// As `Mark`, for inodes with a line that does not validate, when all others are marked: if that
    /// line was not torn but damaged, an older state stands, whose pages may be another's by now.
    Torn,
}

/// What a scan found that has to be stored.
#[derive(Debug, Default)]
pub(crate) struct ScanFound {
    /// Own lines to install: place, slot, line.
    pub(crate) installs: Vec<(InodePlace, u8, novale_layout::CommitLine)>,
    pub(crate) lines_rejected: u64,
    pub(crate) log_entries: u64,
    /// What directory trees with a quota use.
    pub(crate) projects: BTreeMap<u32, Usage>,
    /// Inodes that can't be believed, and why.
    pub(crate) damaged: BTreeMap<Ino, Error>,
    /// Inodes put off for the last pass.
    torn: Vec<Ino>,
}

/// Marks what is in use whatever the inodes say.
pub(crate) fn mark_fixed(pool: &Pool, marks: &PageMarks, lanes: &[PmAddr]) -> Result<()> {
    for (header, _) in &pool.slots {
        let name = || format!("slot {}'s own pages", header.index);
        marks.mark(PmAddr::new(header.index, 0), FIRST_FREE_PAGE, &name)?;
        marks.mark(PmAddr::new(header.index, (header.pages - 1) * PAGE), 1, &name)?;
    }
    for page in lanes {
        marks.mark(*page, 1, &|| "a lane's page".into())?;
    }
    Ok(())
}

impl Scan<'_> {
    /// Scans all inodes through `exec`.
    pub(crate) fn run(
        &self,
        exec: &dyn Executor,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<ScanFound> {
        let mut found = self.pass(Pass::Mark, exec, progress)?;
        if self.pages.any_shared() {
            found.damaged.extend(self.pass(Pass::Shared, exec, progress)?.damaged);
        }
        let torn = std::mem::take(&mut found.torn);
        let pending = self.scan_inodes(Pass::Torn, torn.into_iter(), &mut found)?;
        self.pm.fence(pending).end();
        Ok(found)
    }

    fn pass(
        &self,
        pass: Pass,
        exec: &dyn Executor,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<ScanFound> {
        let total = self.chunks.len() as u64 * INODES_PER_CHUNK;
        let done = AtomicU64::new(0);
        let found = Mutex::new(Ok(ScanFound::default()));
        exec.run(usize::try_from(total / TASK_INODES).unwrap_or(usize::MAX), &|task| {
            let first = task as u64 * TASK_INODES;
            let result = self.scan_block(pass, first);
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

    fn scan_block(&self, pass: Pass, first: u64) -> Result<ScanFound> {
        let mut found = ScanFound::default();
        if !self.chunks.has_table(first) {
            return Ok(found);
        }
        let inos = (first.max(1)..first + TASK_INODES).map(Ino::new);
        let pending = self.scan_inodes(pass, inos, &mut found)?;
        // A write-back counts only with a fence of the thread that issued it.
        self.pm.fence(pending).end();
        Ok(found)
    }

    fn scan_inodes(
        &self,
        pass: Pass,
        inos: impl Iterator<Item = Ino>,
        found: &mut ScanFound,
    ) -> Result<Flushed> {
        let mut pending = Flushed::none();
        for ino in inos {
            self.prefetch_log(Ino::new(ino.get() + PREFETCH_INODES));
            let Some(place) = self.chunks.place(self.seed, ino) else { continue };
            match self.scan_inode(pass, ino, &place, found) {
                Ok(flushed) => pending = pending.and(flushed),
                Err(error @ Error::Damaged { .. }) => {
                    found.damaged.insert(ino, error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(pending)
    }

    /// Starts to bring the first lines of a log into the cache. Inodes lie one behind the other, and
    /// the CPU reads ahead by itself; their logs lie anywhere.
    fn prefetch_log(&self, ino: Ino) {
        let Some(inode) = self.chunks.addr(ino) else { return };
        for line in COMMIT_OFFSETS {
            let at = inode.add(line + CommitLine::LOG_HEAD_OFFSET);
            let Ok(word) = self.pm.load_u64(at) else { return };
            let head = CommitLine::log_head_hint(word);
            if !head.is_null() {
                self.pm.prefetch(head);
                self.pm.prefetch(head.add(LINE));
            }
        }
    }

    /// Decides an inode and goes through its pages.
    fn scan_inode(
        &self,
        pass: Pass,
        ino: Ino,
        place: &InodePlace,
        found: &mut ScanFound,
    ) -> Result<Flushed> {
        let (pm, crashed) = (self.pm, self.crashed);
        let standing = standing::decide(pm, crashed, self.journal, ino, place)?;
        let Some(standing) = standing else { return Ok(Flushed::none()) };
        if crashed.is_none() && standing.by_record {
            return Err(standing::only_in_record(ino, place));
        }
        match standing.torn {
            Some(error) if crashed.is_none() => {
                return Err(Error::damaged_inode(ino, "commit lines", place.addr, error));
            }
            Some(_) if pass != Pass::Torn => {
                found.torn.push(ino);
                return Ok(Flushed::none());
            }
            _ => {}
        }
        let mut pending = Flushed::none();
        if pass != Pass::Shared {
            found.lines_rejected += u64::from(standing.rejected);
            for (slot, line) in (0..).zip(standing.install) {
                found.installs.extend(line.map(|line| (*place, slot, line)));
            }
            if standing.is_recent {
                pending = pm.write_back_range(place.addr, INODE_SIZE, Purpose::Inode);
            }
        }
        if standing.line.nlink == 0 && !seeded::is_on(Bug::EndedLogWalked) {
            return Ok(pending);
        }
        if pass != Pass::Shared {
            self.inodes.mark(ino);
        }
        let log = self.scan_log(pass, ino, place, &standing)?;
        found.log_entries += log.entries;
        if pass != Pass::Shared && log.project != 0 {
            let used = Usage { pages: log.pages, inodes: 1 };
            found.projects.entry(log.project).or_default().add(used);
            if seeded::is_on(Bug::TreesCountedTwice) {
                found.projects.entry(log.project).or_default().add(used);
            }
        }
        Ok(pending.and(log.pending))
    }

    /// Goes through the pages of an inode in use.
    fn scan_log(
        &self,
        pass: Pass,
        ino: Ino,
        place: &InodePlace,
        standing: &Standing,
    ) -> Result<ScannedLog> {
        let identity = standing
            .identity
            .as_ref()
            .map_err(|error| Error::damaged_inode(ino, "identity line", place.addr, error))?;
        let id = LogId::in_place(ino, identity.generation, place);
        let line = &standing.line;
        let recent = pass != Pass::Shared && standing.is_recent;
        let mut accepted = Accepted { pm: self.pm, pending: Flushed::none() };
        let (mut page_before, mut page) = (PmAddr::NULL, PmAddr::NULL);
        let mut mappings = Mappings::default();
        let mut end = CoveredEnd::of(line).filter(|_| recent);
        let mut xattr_root = identity.xattr_root;
        let (mut entries, mut project, mut taken) = (0, identity.project, 0);
        let owner = || format!("inode {}", ino.get());
        let mut take = |addr: PmAddr, pages: u64| {
            taken += pages;
            match pass {
                Pass::Mark | Pass::Torn => self.pages.mark(addr, pages, &owner),
                Pass::Shared => self.pages.refuse_shared(addr, pages, &owner),
            }
        };
        log::walk(self.pm, &id, line.log_head, line.log_tail, &mut |item| {
            match item {
                Item::Page { addr, .. } => {
                    take(addr, 1)?;
                    (page_before, page) = (page, addr);
                    if recent {
                        // The next pointer to it may be collection's last store.
                        accepted.write_back(addr, LINE, Purpose::Log);
                    }
                }
                Item::Entry { addr: at, header, entry, .. } => {
                    entries += 1;
                    log::check_entry((ino, identity.kind, line.op_seq), at, &header, entry)?;
                    if recent && header.op_seq == line.op_seq {
                        accepted.write_entry_back((page_before, page), line.log_tail, entry);
                    }
                    if let Some(end) = &mut end {
                        end.note(entry);
                    }
                    if let Entry::Attributes(attributes) = entry {
                        xattr_root = attributes.xattr_root;
                        project = attributes.project;
                    }
                    if let Entry::Write { file_page, addr, count, .. } = *entry {
                        let first = file_page.get();
                        let end = log::write_end(first, count);
                        mappings.push(Mapping { first, end, addr });
                    }
                }
            }
            Ok(())
        })?;
        accepted.write_end_back(end.as_ref());
        if identity.kind != FileKind::Directory {
            resolve(mappings.all(), &mut |_, extent: Extent| take(extent.addr, extent.pages))?;
        }
        // They were durable before the line that names them was stored.
        if !xattr_root.is_null() {
            Xattrs::read(self.pm, &id, xattr_root)?
                .for_each_page(&mut |extent| take(extent.addr, extent.pages))?;
        }
        Ok(ScannedLog { entries, project, pages: taken, pending: accepted.pending })
    }
}

/// Bytes of a log page up to the tail's line, or all where the tail is in a later one.
fn up_to(tail: PmAddr, page: PmAddr) -> u64 {
    let behind = tail.raw().wrapping_add(LINE).wrapping_sub(page.raw());
    behind.min(PAGE)
}

/// What the scan of an inode's log found.
struct ScannedLog {
    entries: u64,
    project: u32,
    /// Pages of the log and of the data.
    pages: u64,
    pending: Flushed,
}

/// The log of an inode whose last client died: all of it written back, and its pages.
pub(crate) struct AcceptedLog {
    /// The log's pages, those that any entry maps, and those of the extended attributes, by raw
    /// address.
    pub(crate) pages: Vec<u64>,
    pub(crate) pending: novale_pm::Flushed,
}

impl AcceptedLog {
    pub(crate) fn read(
        pm: &Pm,
        seed: Seed,
        (ino, place): (Ino, &InodePlace),
        standing: &Standing,
    ) -> Result<Self> {
        let identity = standing
            .identity
            .as_ref()
            .map_err(|error| Error::damaged_inode(ino, "identity line", place.addr, error))?;
        let id = LogId::new(seed, ino, identity.generation);
        let line = &standing.line;
        let mut accepted = Accepted { pm, pending: novale_pm::Flushed::none() };
        let mut pages = Vec::new();
        let mut end = CoveredEnd::of(line);
        let mut xattr_root = identity.xattr_root;
        log::walk(pm, &id, line.log_head, line.log_tail, &mut |item| {
            if let (Some(end), Item::Entry { entry, .. }) = (&mut end, &item) {
                end.note(entry);
            }
            match item {
                Item::Page { addr, .. } => {
                    pages.push(addr.raw());
                    accepted.write_back(addr, PAGE, Purpose::Log);
                }
                Item::Entry { header, entry: Entry::Write { addr, count, .. }, .. }
                    if !addr.is_null() =>
                {
                    let count = u64::from(*count);
                    pages.extend((0..count).map(|page| addr.add(page * PAGE).raw()));
                    if header.op_seq == line.op_seq {
                        accepted.write_back(*addr, count * PAGE, Purpose::Data);
                    }
                }
                Item::Entry { entry: Entry::Attributes(attributes), .. } => {
                    xattr_root = attributes.xattr_root;
                }
                Item::Entry { .. } => {}
            }
            Ok(())
        })?;
        accepted.write_end_back(end.as_ref());
        Xattrs::read(pm, &id, xattr_root)?.for_each_page(&mut |extent| {
            pages.extend((0..extent.pages).map(|page| extent.addr.add(page * PAGE).raw()));
            Ok(())
        })?;
        Ok(Self { pages, pending: accepted.pending })
    }
}

/// What is written back, since the process that stored it may have died before its fence.
struct Accepted<'a> {
    pm: &'a Pm,
    pending: Flushed,
}

impl Accepted<'_> {
    #[track_caller]
    fn write_back(&mut self, addr: PmAddr, len: u64, purpose: Purpose) {
        let bugs = [Bug::AcceptedNotFlushed, Bug::SettledNotFlushed];
        if !addr.is_null() && !bugs.into_iter().any(seeded::is_on) {
            let pending = std::mem::replace(&mut self.pending, Flushed::none());
            self.pending = pending.and(self.pm.write_back_range(addr, len, purpose));
        }
    }

    /// Writes an entry of the line that stands back, with the blank lines that end a page (behind the
    /// tail nothing is read), and the pages that it maps.
    fn write_entry_back(&mut self, pages: (PmAddr, PmAddr), tail: PmAddr, entry: &Entry) {
        let (page_before, page) = pages;
        self.write_back(page_before, PAGE, Purpose::Log);
        self.write_back(page, up_to(tail, page), Purpose::Log);
        if let Entry::Write { addr, count, .. } = *entry {
            self.write_back(addr, u64::from(count) * PAGE, Purpose::Data);
        }
    }

    /// Writes the end of a file back, where the line that stands was stored with it.
    fn write_end_back(&mut self, end: Option<&CoveredEnd>) {
        if seeded::is_on(Bug::AcceptedEndCached) {
            return;
        }
        for (addr, len) in end.into_iter().flat_map(CoveredEnd::pieces) {
            self.write_back(addr, len, Purpose::Data);
        }
    }
}

impl ScanFound {
    fn merge(&mut self, other: Self) {
        self.installs.extend(other.installs);
        self.lines_rejected += other.lines_rejected;
        self.log_entries += other.log_entries;
        for (project, used) in other.projects {
            self.projects.entry(project).or_default().add(used);
        }
        self.damaged.extend(other.damaged);
        self.torn.extend(other.torn);
    }
}
