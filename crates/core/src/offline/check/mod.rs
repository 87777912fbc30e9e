//! Verification of a pool, read-only: every inode's lines and log, every page accounted for exactly
//! once, names against link counts, reachability from the root, the saved allocator.
//!
//! A pool that was not closed clean is judged as recovery would leave it.

mod missing;
mod names;
mod saved;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use novale_layout::{
    Attributes, CommitLine, FileKind, INODES_PER_CHUNK, Ino, Pair, PmAddr, RoFeature, Roots, Seed,
};
use novale_pm::Pm;

use crate::base::error::{Error, Result};
use crate::base::exec::{Executor, Progress};
use crate::base::extent::Extent;
use crate::inode::chunks::Chunks;
use crate::inode::media;
use crate::inode::state::{InodePlace, LogId};
use crate::life::open::refuse_without_root;
use crate::life::scan;
use crate::log::Logged;
use crate::log::coverage::{Mapping, Mappings, resolve};
use crate::log::pairs::{LoggedPairs, PartnerPages, feature_of};
use crate::log::redo::{RedoFrom, Redone};
use crate::log::replay::{Fold, NameSaid, replay};
use crate::offline::check::missing::Missing;
pub(crate) use crate::offline::check::missing::missing_slot;
use crate::op::journal::Journal;
use crate::op::quota::{Usage, stored_limits};
use crate::op::standing::Standing;
use crate::op::xattr_set::Xattrs;
use crate::op::{journal, standing};
use crate::pool::Pool;
use crate::pool::copies::BadCopy;
use crate::pool::marks::PageMarks;

/// Inodes of one task.
const TASK_INODES: u64 = 256;
/// Findings kept; more are only counted.
const FINDINGS_MAX: usize = 10_000;

/// Something that contradicts the format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where it lies; null where no one place is at fault.
    pub at: PmAddr,
    /// What is wrong.
    pub what: String,
}

/// What a check found.
#[derive(Debug, Clone, Default)]
pub struct CheckReport {
    /// What is wrong, the first 10,000.
    pub findings: Vec<Finding>,
    /// Findings beyond those.
    pub findings_left_out: u64,
    /// The pool was closed clean; otherwise it was judged as recovery would leave it.
    pub clean: bool,
    /// Inodes in use.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Names in all directories.
    pub names: u64,
    /// Log entries read.
    pub log_entries: u64,
    /// Pages in use.
    pub pages_used: u64,
    /// Pages in all.
    pub pages: u64,
    /// What each directory tree with a number of its own uses.
    pub projects: BTreeMap<u32, Usage>,
}

/// What the second pass needs of an inode.
struct SeenInode {
    generation: u32,
    kind: FileKind,
    nlink: u32,
}

/// A live name: directory, and what it says of its inode.
struct NameSeen {
    dir: Ino,
    ino: Ino,
    generation: u32,
    kind: FileKind,
    /// The name itself, where a slot is missing.
    name: Box<[u8]>,
}

#[derive(Default)]
struct Inventory {
    inodes: HashMap<Ino, SeenInode>,
    names: Vec<NameSeen>,
    /// Inodes that can't be read: of which kind they are, and what they name, is not known.
    damaged: BTreeSet<Ino>,
    /// Those of which something is in a slot that is missing.
    lost: BTreeMap<Ino, Missing>,
    findings: Vec<Finding>,
    log_entries: u64,
    /// What directory trees with a quota use.
    projects: BTreeMap<u32, Usage>,
    /// Bits of the features that inodes use.
    features: u64,
}

struct Checker<'a> {
    pm: &'a Pm,
    seed: Seed,
    session: u32,
    journal: &'a Journal,
    chunks: &'a Chunks,
    pages: &'a PageMarks,
    clean: bool,
}

/// Checks a pool. Nothing is changed.
///
/// # Errors
/// [`Error::BadPool`] and [`Error::Damaged`] where too little can be read to check the rest; all
/// else is a finding.
pub fn check(
    pm: &Pm,
    exec: &dyn Executor,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<CheckReport> {
    let pool = Pool::read(pm)?;
    refuse_without_root(pm, true)?;
    let (seed, session) = (pool.seed, pool.state.session);
    let lanes = journal::lane_pages(pm, pool.superblock.lane_count)?;
    let pages = pool.no_pages();
    let mut gathered = Inventory::default();
    let bad_copy = |bad: &BadCopy| Finding { at: bad.at, what: bad.to_string() };
    // Of the superblock a crash may have cut a change of features off.
    let damaged = |bad: &&BadCopy| pool.is_clean() || !bad.is_of_superblock();
    gathered.findings.extend(pool.bad_copies.iter().filter(damaged).map(bad_copy));
    if let Err(error) = scan::mark_fixed(&pool, &pages, &lanes) {
        gathered.findings.push(finding(&error));
    }
    let chunks = Chunks::read(pm, Roots::fixed().inode_directory, &pages)?;
    let chunks = chunks.of_pool(&pool.superblock);
    let mut journal = Journal::read(pm, seed, &lanes)?;
    journal.judge(pm, seed, session, &|ino| chunks.place(seed, ino))?;
    let numbers = [pool.check_numbers(), Journal::check_numbers(&journal.last_seq, &lanes)];
    gathered.findings.extend(numbers.iter().filter_map(|all| all.as_ref().err()).map(finding));
    let lost = chunks.lost().iter().map(|lost| &lost.why);
    gathered.findings.extend(lost.chain(journal.doubts()).map(finding));
    if !pool.is_clean() {
        gathered.findings.extend(journal.lost().iter().map(finding));
    }
    let checker = Checker {
        pm,
        seed,
        session,
        journal: &journal,
        chunks: &chunks,
        pages: &pages,
        clean: pool.is_clean(),
    };
    checker.inodes(exec, progress, &mut gathered);
    names::check(&mut gathered);
    missing::check(pm, &mut gathered);
    let mut findings = std::mem::take(&mut gathered.findings);
    findings.extend(unsaid_features(&pool, gathered.features));
    findings.extend(wrong_roots(&pool));
    findings.extend(saved::check(pm, &pool, chunks.len(), &pages, &gathered));
    let kept = findings.len().min(FINDINGS_MAX);
    let left_out = (findings.len() - kept) as u64;
    findings.truncate(kept);
    let is_dir = |seen: &&SeenInode| seen.kind == FileKind::Directory;
    Ok(CheckReport {
        findings,
        findings_left_out: left_out,
        clean: pool.is_clean(),
        inodes: gathered.inodes.len() as u64,
        directories: gathered.inodes.values().filter(is_dir).count() as u64,
        names: gathered.names.len() as u64,
        log_entries: gathered.log_entries,
        pages_used: pages.used(),
        pages: pool.slots.iter().map(|(header, _)| header.pages).sum(),
        projects: gathered.projects,
    })
}

fn finding(error: &Error) -> Finding {
    let at =
        if let Error::Damaged { at, .. } | Error::Lost(at) = error { *at } else { PmAddr::NULL };
    Finding { at, what: error.to_string() }
}

/// Tables that the superblock names elsewhere than they are, or though there are none.
fn wrong_roots(pool: &Pool) -> Option<Finding> {
    let roots = pool.superblock.roots;
    (roots != Roots::fixed()).then(|| Finding {
        at: PmAddr::new(0, 0),
        what: format!("superblock: it names tables that there are not: {roots:?}"),
    })
}

/// Bits of the features that an inode uses, as far as its attributes tell.
pub(crate) fn features_of(xattr_root: PmAddr, project: u32) -> u64 {
    let xattrs = if xattr_root.is_null() { 0 } else { RoFeature::Xattrs.bit() };
    let trees = if project == 0 { 0 } else { RoFeature::Trees.bit() };
    xattrs | trees
}

/// Features that inodes use, and of which the superblock does not say so.
fn unsaid_features(pool: &Pool, used: u64) -> impl Iterator<Item = Finding> {
    let unsaid = used & !pool.superblock.features_ro_compat;
    let unsaid = RoFeature::ALL.into_iter().filter(move |feature| unsaid & feature.bit() != 0);
    unsaid.map(|feature| Finding {
        at: PmAddr::new(0, 0),
        what: format!("inodes use the feature {feature:?}, of which the superblock does not know"),
    })
}

impl Checker<'_> {
    fn inodes(
        &self,
        exec: &dyn Executor,
        progress: &(dyn Fn(Progress) + Sync),
        all: &mut Inventory,
    ) {
        let total = self.chunks.len() as u64 * INODES_PER_CHUNK;
        let done = AtomicU64::new(0);
        let shared = Mutex::new(std::mem::take(all));
        exec.run(usize::try_from(total / TASK_INODES).unwrap_or(usize::MAX), &|task| {
            let first = task as u64 * TASK_INODES;
            let mut block = Inventory::default();
            for ino in self.chunks.placed(first..first + TASK_INODES) {
                if let Err(error) = self.inode(ino, &mut block) {
                    self.found(ino, &error, &mut block);
                    block.damaged.insert(ino);
                }
            }
            let done = done.fetch_add(TASK_INODES, Ordering::Relaxed) + TASK_INODES;
            progress(Progress { what: "checking inodes", done, total });
            let mut all = shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            all.inodes.extend(block.inodes);
            all.names.extend(block.names);
            all.damaged.extend(block.damaged);
            all.lost.extend(block.lost);
            all.findings.extend(block.findings);
            all.log_entries += block.log_entries;
            all.features |= block.features;
            for (project, used) in block.projects {
                all.projects.entry(project).or_default().add(used);
            }
        });
        *all = shared.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Tasks end in any order; the report does not show it.
        all.findings.sort_by_key(|finding| finding.at);
    }

    /// Notes what is wrong with an inode.
    fn found(&self, ino: Ino, error: &Error, all: &mut Inventory) {
        if let Error::Lost(at) = error
            && self.pm.is_absent(at.slot())
        {
            all.lost.insert(ino, Missing { slot: at.slot(), pages: None });
        } else {
            all.findings.push(finding(error));
        }
    }

    /// The session whose lines are asked for what they cover. Where that may be in a slot that is missing, it is
    /// not asked for in a pool that was closed.
    fn crashed(&self) -> Option<u32> {
        (!self.clean || self.pm.absent_slots() == 0).then_some(self.session)
    }

    /// Notes pages of a file where their slot is missing.
    fn note_missing(&self, ino: Ino, extent: Extent, all: &mut Inventory) {
        let slot = extent.addr.slot();
        if self.pm.is_absent(slot) {
            all.lost.entry(ino).or_insert(Missing { slot, pages: Some(0) }).add(extent.pages);
        }
    }

    /// What the log of an inode will have said, before it is read.
    fn log_of(&self, ino: Ino, xattr_root: PmAddr, project: u32) -> CheckedLog<'_> {
        CheckedLog {
            marks: self.pages,
            ino,
            entries: 0,
            page_seq: 0,
            pages: 0,
            features: 0,
            mappings: Mappings::default(),
            pairs: LoggedPairs::default(),
            owed_by: None,
            redone: Redone::default(),
            xattr_root,
            project,
            names: BTreeMap::new(),
            keeps_names: self.pm.absent_slots() != 0,
            shared_cookies: BTreeSet::new(),
        }
    }

    fn inode(&self, ino: Ino, all: &mut Inventory) -> Result<()> {
        let Some(place) = self.chunks.place(self.seed, ino) else { return Ok(()) };
        let standing = standing::decide(self.pm, self.crashed(), self.journal, ino, &place)?;
        let Some(standing) = standing else { return Ok(()) };
        if self.clean {
            refuse_unclean(ino, &place, &standing)?;
        }
        if standing.line.nlink == 0 {
            return media::check_numbers(ino, &place, standing.line.op_seq, 0);
        }
        let line = standing.line;
        refuse_future(ino, &place, &line, self.session)?;
        let identity = standing
            .identity
            .map_err(|error| Error::damaged_inode(ino, "identity line", place.addr, error))?;
        let (generation, kind) = (identity.generation, identity.kind);
        all.inodes.insert(ino, SeenInode { generation, kind, nlink: line.nlink });
        let id = LogId::new(self.seed, ino, generation);
        let owner = || format!("inode {}", ino.get());
        let mut log = self.log_of(ino, identity.xattr_root, identity.project);
        // What recovery would carry out.
        log.owed_by =
            (!self.clean && line.session == self.session).then_some((self.pm, line.op_seq));
        replay(self.pm, &id, Some(kind), &line, &mut log)?;
        log.redone.owed(&id, &log.mappings, line.size)?;
        all.log_entries += log.entries;
        let (page_seq, mut pages) = (log.page_seq, log.pages);
        let mut partners = PartnerPages::default();
        resolve(log.mappings.all(), &mut |first, extent| {
            for (_, pair) in log.pairs.of(first, extent) {
                // Some of the page is in its second copy; where the first one is missing, that is noted below.
                if !self.pm.is_absent(extent.addr.slot())
                    && let Some(addr) = pair.partner_page().filter(|_| pair.word != 0)
                {
                    self.note_missing(ino, Extent { addr, pages: 1 }, all);
                }
                if let Some(page) = partners.take(ino, pair)? {
                    pages += 1;
                    self.pages.mark(page, 1, &owner)?;
                }
            }
            pages += extent.pages;
            self.note_missing(ino, extent, all);
            self.pages.mark(extent.addr, extent.pages, &owner)
        })?;
        let xattrs = Xattrs::read(self.pm, &id, log.xattr_root)?;
        xattrs.for_each_page(&mut |extent| {
            pages += extent.pages;
            self.pages.mark(extent.addr, extent.pages, &owner)
        })?;
        xattrs
            .check_values(self.pm, &id)
            .and_then(|()| xattrs.check_acls(self.pm, &id, kind))
            .unwrap_or_else(|error| self.found(ino, &error, all));
        if ino == Ino::ROOT
            && let Err(error) = stored_limits(self.pm, &id, &xattrs)
        {
            self.found(ino, &error, all);
        }
        all.features |= features_of(log.xattr_root, log.project) | log.features;
        all.count(log.project, pages);
        media::check_numbers(ino, &place, line.op_seq, page_seq)
            .unwrap_or_else(|error| all.findings.push(finding(&error)));
        if kind == FileKind::Directory {
            log.names(ino, place.addr, line.size, all);
        }
        Ok(())
    }
}

impl Inventory {
    /// Counts an inode with so many pages for its directory tree.
    fn count(&mut self, project: u32, pages: u64) {
        if project != 0 {
            self.projects.entry(project).or_default().add(Usage { pages, inodes: 1 });
        }
    }
}

/// Refuses what closing a pool leaves nowhere.
pub(crate) fn refuse_unclean(ino: Ino, place: &InodePlace, standing: &Standing) -> Result<()> {
    if let Some(error) = standing.torn() {
        return Err(Error::damaged_inode(ino, "commit lines", place.addr, error));
    }
    if standing.by_record {
        return Err(standing::only_in_record(ino, place));
    }
    // What a file without names had may be another's by now.
    if standing.rejected > 0 && standing.line.nlink > 0 {
        let what = "what its data checksum covers has changed";
        return Err(Error::damaged_inode(ino, "commit lines", place.addr, what));
    }
    Ok(())
}

/// Refuses a line of a session that has not begun: its checksum would be asked for in that one, when
/// what it covers has changed.
pub(crate) fn refuse_future(
    ino: Ino,
    place: &InodePlace,
    line: &CommitLine,
    session: u32,
) -> Result<()> {
    if line.session <= session {
        return Ok(());
    }
    let found = format!("of session {}, the pool's is {session}", line.session);
    Err(Error::damaged_inode(ino, "commit lines", place.addr, found))
}

/// What a log comes to.
struct CheckedLog<'a> {
    marks: &'a PageMarks,
    ino: Ino,
    entries: u64,
    /// The number of the last page, and how many there are.
    page_seq: u64,
    pages: u64,
    /// The bits of those that its entries use.
    features: u64,
    mappings: Mappings,
    pairs: LoggedPairs,
    /// The operation whose bytes recovery stores where they belong, and what it reads them from.
    owed_by: Option<(&'a Pm, u64)>,
    redone: Redone,
    /// The extended attributes of the newest attributes entry.
    xattr_root: PmAddr,
    project: u32,
    names: BTreeMap<u64, (NameSeen, Vec<u8>)>,
    /// Names are told with what they name.
    keeps_names: bool,
    /// Cookies that two names have.
    shared_cookies: BTreeSet<u64>,
}

impl Fold for CheckedLog<'_> {
    fn page(&mut self, addr: PmAddr, seq: u64) -> Result<()> {
        (self.page_seq, self.pages) = (seq, self.pages + 1);
        self.marks.mark(addr, 1, &|| format!("inode {}", self.ino.get()))
    }

    fn entry(&mut self, _at: &Logged<'_>) -> Result<()> {
        self.entries += 1;
        Ok(())
    }

    fn map(&mut self, _at: &Logged<'_>, first: u64, extent: Extent) -> Result<()> {
        self.mappings.push(Mapping::of(first, extent));
        self.pairs.map(first..first + extent.pages);
        Ok(())
    }

    fn pair(&mut self, _at: &Logged<'_>, pair: &Pair) -> Result<()> {
        self.features |= feature_of(pair);
        self.pairs.pair(pair);
        Ok(())
    }

    fn unmap(&mut self, _at: &Logged<'_>, pages: Range<u64>) -> Result<()> {
        self.pairs.map(pages.clone());
        self.mappings.push(Mapping::hole(pages));
        Ok(())
    }

    fn redo(&mut self, at: &Logged<'_>, from: RedoFrom<'_>) -> Result<()> {
        self.features |= from.feature();
        if let Some((pm, op_seq)) = self.owed_by
            && at.header.op_seq == op_seq
            && let Some(bytes) = from.load(pm)?
        {
            self.redone.push(bytes);
        }
        Ok(())
    }

    fn attributes(&mut self, _at: &Logged<'_>, attributes: &Attributes) -> Result<()> {
        (self.xattr_root, self.project) = (attributes.xattr_root, attributes.project);
        Ok(())
    }

    fn name(&mut self, _at: &Logged<'_>, said: &NameSaid<'_>) -> Result<()> {
        let NameSaid { ino, generation, kind, cookie, name } = *said;
        let seen = NameSeen { dir: Ino::NULL, ino, generation, kind, name: Box::default() };
        if self.names.insert(cookie, (seen, name.as_bytes().to_vec())).is_some() {
            self.shared_cookies.insert(cookie);
        }
        Ok(())
    }

    fn unname(&mut self, _at: &Logged<'_>, cookie: u64) -> Result<()> {
        self.names.remove(&cookie);
        self.shared_cookies.remove(&cookie);
        Ok(())
    }
}

impl CheckedLog<'_> {
    /// Hands a directory's live names on.
    fn names(self, dir: Ino, at: PmAddr, counted: u64, all: &mut Inventory) {
        let found = self.names.len() as u64;
        if counted != found {
            let what =
                format!("directory {} counts {counted} names, its log has {found}", dir.get());
            all.findings.push(Finding { at, what });
        }
        for cookie in &self.shared_cookies {
            let what = format!("directory {} has two names of cookie {cookie}", dir.get());
            all.findings.push(Finding { at, what });
        }
        let mut once = HashSet::new();
        for (seen, name) in self.names.into_values() {
            if !once.insert(name.clone()) {
                let name = String::from_utf8_lossy(&name).into_owned();
                let what = format!("directory {} has the name {name:?} twice", dir.get());
                all.findings.push(Finding { at, what });
            }
            let name = if self.keeps_names { name.into() } else { Box::default() };
            all.names.push(NameSeen { dir, name, ..seen });
        }
    }
}
