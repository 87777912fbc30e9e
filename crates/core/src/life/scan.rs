//! The scan after a crash: every inode's standing state, every page in use.
//!
//! Damage of an inode is noted and ends nothing: what becomes of the pool then is the caller's.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use novale_layout::{
    Attributes, COMMIT_OFFSETS, CommitLine, FIRST_FREE_PAGE, FileKind, INODE_SIZE,
    INODES_PER_CHUNK, Ino, LINE, PAGE, Pair, PmAddr, Seed,
};
use novale_pm::{Flushed, Pm, Purpose};

use crate::base::error::{Error, Result};
use crate::base::exec::{Executor, Progress};
use crate::base::extent::Extent;
use crate::inode::chunks::Chunks;
use crate::inode::state::{InodePlace, LogId};
use crate::log::Logged;
use crate::log::coverage::{Mapping, Mappings, resolve};
use crate::log::covered::{CoveredEnd, changed_lines};
use crate::log::pairs::{LoggedPairs, PartnerPages};
use crate::log::redo::{Owed, RedoFrom, Redone};
use crate::log::replay::{Fold, NameSaid, replay};
use crate::op::journal::Journal;
use crate::op::quota::Usage;
use crate::op::standing;
use crate::op::standing::Standing;
use crate::op::xattr_set::Xattrs;
use crate::pool::Pool;
use crate::pool::marks::{InodeMarks, PageMarks};
use crate::seeded::{self, Bug};

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
    /// Bytes that logs have, and that do not lie where they belong.
    pub(crate) owed: BTreeMap<Ino, Vec<Owed>>,
    /// Torn lines of inodes that bytes are owed to.
    pub(crate) torn_lines: Vec<PmAddr>,
    /// Inodes of which a page has two copies.
    pub(crate) paired: BTreeSet<Ino>,
    /// Inodes that can't be believed, and why.
    pub(crate) damaged: BTreeMap<Ino, Error>,
    /// Inodes of which the extended attributes can't be read, and why.
    pub(crate) bad_xattrs: BTreeMap<Ino, Error>,
    /// Numbers that directories name, and for which the inode directory has no place: their word is damaged, and
    /// what they own is not marked.
    pub(crate) unplaced: BTreeMap<Ino, Error>,
    /// Inodes put off for the last pass.
    torn: Vec<Ino>,
}

/// Marks what is in use whatever the inodes say.
pub(crate) fn mark_fixed(pool: &Pool, marks: &PageMarks, lanes: &[PmAddr]) -> Result<()> {
    for (header, _) in pool.slots_there() {
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
        let inos = self.chunks.placed(first..first + TASK_INODES);
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
                Err(error) if error.is_damage() => {
                    found.damaged.insert(ino, error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(pending)
    }

    /// Starts to bring the first lines of a log into the cache. Inodes lie one after the other, and
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
        match standing.torn() {
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
            // In a pool closed clean the last to store it was perhaps a repair, that died before its fence: all
            // else that its line needs was durable before.
            if standing.is_recent || crashed.is_none() {
                pending = pm.write_back_range(place.addr, INODE_SIZE, Purpose::Inode);
            }
        }
        if standing.line.nlink == 0 && !seeded::is_on(Bug::EndedLogWalked) {
            return Ok(pending);
        }
        if pass != Pass::Shared {
            self.inodes.mark(ino);
        }
        Ok(pending.and(self.scan_log(pass, ino, place, &standing, found)?))
    }

    /// Goes through the pages of an inode in use.
    fn scan_log(
        &self,
        pass: Pass,
        ino: Ino,
        place: &InodePlace,
        standing: &Standing,
        found: &mut ScanFound,
    ) -> Result<Flushed> {
        let identity = standing
            .identity
            .as_ref()
            .map_err(|error| Error::damaged_inode(ino, "identity line", place.addr, error))?;
        let id = LogId::in_place(ino, identity.generation, place);
        let line = &standing.line;
        let recent = pass != Pass::Shared && standing.is_recent;
        let mut log = ScannedLog {
            taking: Taking { pass, marks: self.pages, ino, taken: 0 },
            accepted: recent.then(|| Accepted::of(self.pm, line)),
            entries: 0,
            mappings: Mappings::default(),
            pairs: LoggedPairs::default(),
            xattr_root: identity.xattr_root,
            project: identity.project,
            chunks: self.chunks,
            unplaced: BTreeMap::new(),
        };
        replay(self.pm, &id, Some(identity.kind), line, &mut log)?;
        let ScannedLog {
            mut taking, accepted, entries, mappings, pairs, xattr_root, project, ..
        } = log;
        found.unplaced.extend(log.unplaced.into_values().map(|named| {
            let what = format!("it names inode {named}, for which the inode directory has no page");
            (named, Error::damaged_inode(ino, "names", place.addr, what))
        }));
        if identity.kind != FileKind::Directory {
            let (mut has_pairs, mut partners) = (false, PartnerPages::default());
            resolve(mappings.all(), &mut |first, extent| {
                for (_, pair) in pairs.of(first, extent) {
                    has_pairs |= pair.partner_page().is_some();
                    if let Some(addr) = partners.take(ino, pair)? {
                        taking.take(Extent { addr, pages: 1 })?;
                    }
                }
                taking.take(extent)
            })?;
            found.paired.extend(has_pairs.then_some(ino));
        }
        // They were durable before the line that names them was stored.
        match Xattrs::read(self.pm, &id, xattr_root) {
            Err(error) if error.is_damage() => drop(found.bad_xattrs.insert(ino, error)),
            read => read?.for_each_page(&mut |extent| taking.take(extent))?,
        }
        let mut pending = Flushed::none();
        // Of pages that are nobody else's: what entries map is written back once, whatever logs say.
        if let Some(accepted) = accepted {
            let (accepted, owed) = accepted.finish(&id, &mappings, line.size)?;
            pending = accepted;
            if !owed.is_empty() {
                found.torn_lines.extend(standing.torn_lines(place));
                found.owed.insert(ino, owed);
            }
        }
        found.log_entries += entries;
        if pass != Pass::Shared && project != 0 {
            let used = Usage { pages: taking.taken, inodes: 1 };
            found.projects.entry(project).or_default().add(used);
            if seeded::is_on(Bug::TreesCountedTwice) {
                found.projects.entry(project).or_default().add(used);
            }
        }
        Ok(pending)
    }
}

/// Bytes of a log page up to the tail's line, or all where the tail is in a later one.
fn up_to(tail: PmAddr, page: PmAddr) -> u64 {
    let behind = tail.raw().wrapping_add(LINE).wrapping_sub(page.raw());
    behind.min(PAGE)
}

/// What the scan of an inode's log comes to.
struct ScannedLog<'a> {
    taking: Taking<'a>,
    /// Where the line that stands is of the session that crashed.
    accepted: Option<Accepted<'a>>,
    entries: u64,
    mappings: Mappings,
    pairs: LoggedPairs,
    xattr_root: PmAddr,
    project: u32,
    chunks: &'a Chunks,
    /// Names of numbers that have no place, by their cookies.
    unplaced: BTreeMap<u64, Ino>,
}

/// What an inode has of the pool's pages.
struct Taking<'a> {
    pass: Pass,
    marks: &'a PageMarks,
    ino: Ino,
    /// Pages of the log, of the data and of extended attributes.
    taken: u64,
}

impl Taking<'_> {
    fn take(&mut self, extent: Extent) -> Result<()> {
        let Extent { addr, pages } = extent;
        let owner = || format!("inode {}", self.ino.get());
        self.taken += pages;
        match self.pass {
            Pass::Mark | Pass::Torn => self.marks.mark(addr, pages, &owner),
            Pass::Shared => self.marks.refuse_shared(addr, pages, &owner),
        }
    }
}

impl Fold for ScannedLog<'_> {
    fn page(&mut self, addr: PmAddr, _seq: u64) -> Result<()> {
        self.taking.take(Extent { addr, pages: 1 })?;
        if let Some(accepted) = &mut self.accepted {
            accepted.page(addr);
            // The next pointer to it may be collection's last store.
            accepted.write_back(addr, LINE, Purpose::Log);
        }
        Ok(())
    }

    fn entry(&mut self, at: &Logged<'_>) -> Result<()> {
        self.entries += 1;
        if let Some(accepted) = &mut self.accepted {
            accepted.entry(at);
        }
        Ok(())
    }

    fn map(&mut self, at: &Logged<'_>, first: u64, extent: Extent) -> Result<()> {
        self.mappings.push(Mapping::of(first, extent));
        self.pairs.map(first..first + extent.pages);
        if let Some(accepted) = &mut self.accepted {
            accepted.map(at, first, extent);
        }
        Ok(())
    }

    fn pair(&mut self, at: &Logged<'_>, pair: &Pair) -> Result<()> {
        if !seeded::is_on(Bug::PartnerForgotten) {
            self.pairs.pair(pair);
        }
        if let Some(accepted) = &mut self.accepted {
            accepted.pair(at, pair);
        }
        Ok(())
    }

    fn unmap(&mut self, _at: &Logged<'_>, pages: Range<u64>) -> Result<()> {
        if let Some(accepted) = &mut self.accepted {
            accepted.unmap(pages.clone());
        }
        self.pairs.map(pages.clone());
        self.mappings.push(Mapping::hole(pages));
        Ok(())
    }

    fn redo(&mut self, at: &Logged<'_>, from: RedoFrom<'_>) -> Result<()> {
        if let Some(accepted) = &mut self.accepted {
            accepted.redo(at, from)?;
        }
        Ok(())
    }

    fn attributes(&mut self, _at: &Logged<'_>, attributes: &Attributes) -> Result<()> {
        (self.xattr_root, self.project) = (attributes.xattr_root, attributes.project);
        Ok(())
    }

    fn name(&mut self, _at: &Logged<'_>, name: &NameSaid<'_>) -> Result<()> {
        if self.chunks.addr(name.ino).is_none() {
            self.unplaced.insert(name.cookie, name.ino);
        }
        Ok(())
    }

    fn unname(&mut self, _at: &Logged<'_>, cookie: u64) -> Result<()> {
        self.unplaced.remove(&cookie);
        Ok(())
    }
}

/// The log of an inode whose last client died: all of it written back, and its pages.
pub(crate) struct AcceptedLog {
    /// What the inode has, as recovery finds it, by raw address. Of an older entry that counts no more
    /// the pages may be what the dead operation has taken: they were freed, and given out again.
    pub(crate) pages: BTreeSet<u64>,
    /// Pages that were the inode's before a commit, and are not any more: by raw address.
    pub(crate) released: BTreeSet<u64>,
    pub(crate) pending: Flushed,
    /// Bytes to be stored where they belong, once what is pending is durable.
    pub(crate) owed: Vec<Owed>,
}

impl AcceptedLog {
    /// Reads the log; `commit` is the number of the commit whose pages to be freed are asked for.
    pub(crate) fn read(
        pm: &Pm,
        seed: Seed,
        ino: Ino,
        place: &InodePlace,
        standing: &Standing,
        commit: Option<u64>,
    ) -> Result<Self> {
        let identity = standing
            .identity
            .as_ref()
            .map_err(|error| Error::damaged_inode(ino, "identity line", place.addr, error))?;
        let id = LogId::new(seed, ino, identity.generation);
        let mut settled = Settled {
            accepted: Accepted::of(pm, &standing.line),
            mappings: Mappings::default(),
            pairs: LoggedPairs::default(),
            xattr_root: identity.xattr_root,
            id: &id,
            commit,
            log: Vec::new(),
            before: None,
        };
        replay(pm, &id, None, &standing.line, &mut settled)?;
        let mut pages = settled.mapped()?;
        pages.extend(&settled.log);
        let before = settled.before.take().unwrap_or_default();
        let released = before.difference(&pages).copied().collect();
        let Settled { accepted, mappings, .. } = settled;
        let (pending, owed) = accepted.finish(&id, &mappings, standing.line.size)?;
        Ok(Self { pages, released, pending, owed })
    }
}

/// What the log of an inode whose last client died comes to.
struct Settled<'a> {
    accepted: Accepted<'a>,
    mappings: Mappings,
    pairs: LoggedPairs,
    xattr_root: PmAddr,
    id: &'a LogId,
    /// The commit whose pages to be freed are asked for, and what the inode had before it, where it has
    /// entries: numbers never fall along a log.
    commit: Option<u64>,
    before: Option<BTreeSet<u64>>,
    /// The log's pages.
    log: Vec<u64>,
}

impl Settled<'_> {
    /// The pages of the file, the second copies that count and those of the extended attributes, as far
    /// as the log was read.
    fn mapped(&self) -> Result<BTreeSet<u64>> {
        let mut mapped = BTreeSet::new();
        Xattrs::read(self.accepted.pm, self.id, self.xattr_root)?.for_each_page(&mut |extent| {
            mapped.extend(extent.each_raw());
            Ok(())
        })?;
        resolve(self.mappings.all(), &mut |first, extent| -> Result<()> {
            mapped.extend(extent.each_raw());
            let partners = self.pairs.of(first, extent).filter_map(|(_, pair)| pair.partner_page());
            mapped.extend(partners.map(PmAddr::raw));
            Ok(())
        })?;
        Ok(mapped)
    }
}

impl Fold for Settled<'_> {
    fn page(&mut self, addr: PmAddr, _seq: u64) -> Result<()> {
        self.log.push(addr.raw());
        self.accepted.write_back(addr, PAGE, Purpose::Log);
        Ok(())
    }

    fn entry(&mut self, at: &Logged<'_>) -> Result<()> {
        let is_of = |commit| at.header.op_seq >= commit;
        if self.before.is_none() && self.commit.is_some_and(is_of) {
            self.before = Some(self.mapped()?);
        }
        Ok(())
    }

    fn map(&mut self, at: &Logged<'_>, first: u64, extent: Extent) -> Result<()> {
        self.mappings.push(Mapping::of(first, extent));
        self.pairs.map(first..first + extent.pages);
        self.accepted.map(at, first, extent);
        Ok(())
    }

    fn unmap(&mut self, _at: &Logged<'_>, pages: Range<u64>) -> Result<()> {
        self.mappings.push(Mapping::hole(pages.clone()));
        self.pairs.map(pages.clone());
        self.accepted.unmap(pages);
        Ok(())
    }

    fn redo(&mut self, at: &Logged<'_>, from: RedoFrom<'_>) -> Result<()> {
        self.accepted.redo(at, from)
    }

    fn pair(&mut self, at: &Logged<'_>, pair: &Pair) -> Result<()> {
        self.pairs.pair(pair);
        self.accepted.pair(at, pair);
        Ok(())
    }

    fn attributes(&mut self, _at: &Logged<'_>, attributes: &Attributes) -> Result<()> {
        self.xattr_root = attributes.xattr_root;
        Ok(())
    }

    fn name(&mut self, _at: &Logged<'_>, _name: &NameSaid<'_>) -> Result<()> {
        Ok(())
    }

    fn unname(&mut self, _at: &Logged<'_>, _cookie: u64) -> Result<()> {
        Ok(())
    }
}

/// What is written back of the line that stands, since the process that stored it may have died before
/// its fence.
struct Accepted<'a> {
    pm: &'a Pm,
    pending: Flushed,
    /// The line's operation, and how far its log goes.
    op_seq: u64,
    tail: PmAddr,
    /// The log's page before the one that is being read, and that one.
    page_before: PmAddr,
    page: PmAddr,
    /// Whether that one is written back.
    is_written: bool,
    /// What the operation has mapped, as far as it has not unmapped it.
    mapped: Mappings,
    end: Option<CoveredEnd>,
    redone: Redone,
}

impl<'a> Accepted<'a> {
    fn of(pm: &'a Pm, line: &CommitLine) -> Self {
        Self {
            pm,
            pending: Flushed::none(),
            op_seq: line.op_seq,
            tail: line.log_tail,
            page_before: PmAddr::NULL,
            page: PmAddr::NULL,
            is_written: false,
            mapped: Mappings::default(),
            end: CoveredEnd::of(line),
            redone: Redone::default(),
        }
    }

    #[track_caller]
    fn write_back(&mut self, addr: PmAddr, len: u64, purpose: Purpose) {
        let bugs = [Bug::AcceptedNotFlushed, Bug::SettledNotFlushed];
        if !addr.is_null() && !bugs.into_iter().any(seeded::is_on) {
            let pending = std::mem::replace(&mut self.pending, Flushed::none());
            self.pending = pending.and(self.pm.write_back_range(addr, len, purpose));
        }
    }

    fn page(&mut self, addr: PmAddr) {
        (self.page_before, self.page, self.is_written) = (self.page, addr, false);
    }

    /// An entry of the line that stands, with the link to its page: after the tail nothing is read.
    fn entry(&mut self, at: &Logged<'_>) {
        if at.header.op_seq == self.op_seq && !self.is_written {
            self.is_written = true;
            self.write_back(self.page_before, PAGE, Purpose::Log);
            self.write_back(self.page, up_to(self.tail, self.page), Purpose::Log);
        }
    }

    /// Pages that an entry maps.
    fn map(&mut self, at: &Logged<'_>, first: u64, extent: Extent) {
        if at.header.op_seq == self.op_seq {
            self.mapped.push(Mapping::of(first, extent));
        }
        if let Some(end) = &mut self.end {
            end.note(&Mapping::of(first, extent));
        }
    }

    /// Lines that an entry's operation stored to either copy of a page.
    fn pair(&mut self, at: &Logged<'_>, pair: &Pair) {
        if at.header.op_seq == self.op_seq && !seeded::is_on(Bug::AcceptedPairCached) {
            for (addr, len) in changed_lines(pair) {
                self.write_back(addr, len, Purpose::Data);
            }
        }
    }

    fn unmap(&mut self, pages: Range<u64>) {
        if !self.mapped.all().is_empty() {
            self.mapped.push(Mapping::hole(pages.clone()));
        }
        if let Some(end) = &mut self.end {
            end.note(&Mapping::hole(pages));
        }
    }

    fn redo(&mut self, at: &Logged<'_>, from: RedoFrom<'_>) -> Result<()> {
        if at.header.op_seq == self.op_seq
            && !seeded::is_on(Bug::RedoForgotten)
            && let Some(bytes) = from.load(self.pm)?
        {
            self.redone.push(bytes);
        }
        Ok(())
    }

    /// Writes back what the operation has mapped, the end of a file where the line was stored with it, and bytes that
    /// were redone. Says which were not.
    fn finish(
        mut self,
        id: &LogId,
        mappings: &Mappings,
        size: u64,
    ) -> Result<(Flushed, Vec<Owed>)> {
        let mapped = std::mem::take(&mut self.mapped);
        resolve(mapped.all(), &mut |_, extent| -> Result<()> {
            self.write_back(extent.addr, extent.pages * PAGE, Purpose::Data);
            Ok(())
        })?;
        let mut owed = Vec::new();
        for piece in self.redone.owed(id, mappings, size)? {
            // Bytes that lie there may lie in the cache alone.
            self.write_back(piece.at, piece.bytes.len() as u64, Purpose::Data);
            if !piece.is_there(self.pm)? {
                owed.push(piece);
            }
        }
        let end = self.end.take().filter(|_| !seeded::is_on(Bug::AcceptedEndCached));
        for (addr, len) in end.iter().flat_map(CoveredEnd::pieces) {
            self.write_back(addr, len, Purpose::Data);
        }
        Ok((self.pending, owed))
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
        self.owed.extend(other.owed);
        self.torn_lines.extend(other.torn_lines);
        self.paired.extend(other.paired);
        self.damaged.extend(other.damaged);
        self.bad_xattrs.extend(other.bad_xattrs);
        self.unplaced.extend(other.unplaced);
        self.torn.extend(other.torn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::empty;
    use novale_layout::{EntryHeader, EntryKind, FilePage, Partner};

    /// They may lie in the cache of a process that died alone, and the entry that has them goes.
    #[test]
    fn bytes_that_were_redone_already_are_written_back() {
        let pm = empty(1).into_pm();
        let id = LogId::new(Seed::pool(&[0; 16]), Ino::ROOT, 1);
        let page = PmAddr::new(0, 40 * PAGE);
        let mut mappings = Mappings::default();
        mappings.push(Mapping::of(0, Extent { addr: page, pages: 1 }));
        let finish = |bytes: &[u8]| {
            let before = pm.counters();
            let mut accepted = Accepted::of(&pm, &CommitLine::default());
            accepted.redone.push((70, bytes.to_vec()));
            let (pending, owed) = accepted.finish(&id, &mappings, PAGE).unwrap();
            pm.fence(pending).end();
            (owed.len(), (pm.counters() - before).write_backs())
        };
        // Bytes 70 to 170 are in two lines.
        let mut there = [0; 100];
        pm.load(page.add(70), &mut there).unwrap();
        assert_eq!(finish(&there), (0, 2));
        there[99] ^= 1;
        assert_eq!(finish(&there), (1, 2));
    }

    /// An image whose entries all mapped the same pages, made for it, kept a mount busy for hours.
    #[test]
    fn pages_are_written_back_once_however_many_entries_map_them() {
        const PAGES: u64 = 12;
        let pm = empty(1).into_pm();
        let id = LogId::new(Seed::pool(&[0; 16]), Ino::ROOT, 1);
        let extent = Extent { addr: PmAddr::new(0, 40 * PAGE), pages: PAGES };
        let header = EntryHeader { op_seq: 7, lines: 1, kind: EntryKind::Write };
        let mut accepted = Accepted::of(&pm, &CommitLine { op_seq: 7, ..CommitLine::default() });
        let before = pm.counters();
        accepted.page(PmAddr::new(0, 39 * PAGE));
        for _ in 0..50 {
            let at = Logged { addr: PmAddr::NULL, header, bytes: &[], opens: None };
            accepted.entry(&at);
            accepted.map(&at, 0, extent);
        }
        let (pending, _) = accepted.finish(&id, &Mappings::default(), PAGE).unwrap();
        pm.fence(pending).end();
        // With the log's page, which ends at the tail: the line has none.
        let of_log = up_to(PmAddr::NULL, PmAddr::new(0, 39 * PAGE)) / LINE;
        assert_eq!((pm.counters() - before).write_backs(), PAGES * PAGE / LINE + of_log);
    }

    /// What was its second copy may be in use elsewhere.
    #[test]
    fn a_second_copy_counts_no_more_when_its_page_has_moved_and_come_back() {
        let pm = empty(1).into_pm();
        let id = LogId::new(Seed::pool(&[0; 16]), Ino::ROOT, 1);
        let [home, elsewhere, partner] = [40, 41, 42].map(|page| PmAddr::new(0, page * PAGE));
        let mut settled = Settled {
            accepted: Accepted::of(&pm, &CommitLine::default()),
            mappings: Mappings::default(),
            pairs: LoggedPairs::default(),
            xattr_root: PmAddr::NULL,
            id: &id,
            commit: None,
            before: None,
            log: Vec::new(),
        };
        let header = EntryHeader { op_seq: 7, lines: 1, kind: EntryKind::Write };
        let at = Logged { addr: PmAddr::NULL, header, bytes: &[], opens: None };
        let extent = |addr| Extent { addr, pages: 1 };
        let own = Partner::own(partner);
        let pair = Pair { file_page: FilePage::new(0), home, partner: own, word: 1, changed: 1 };
        settled.map(&at, 0, extent(home)).unwrap();
        settled.pair(&at, &pair).unwrap();
        assert_eq!(settled.mapped().unwrap(), [home.raw(), partner.raw()].into());
        settled.map(&at, 0, extent(elsewhere)).unwrap();
        settled.map(&at, 0, extent(home)).unwrap();
        assert_eq!(settled.mapped().unwrap(), [home.raw()].into());
    }
}
