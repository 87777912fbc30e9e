//! What a repair works on: every inode with its state and all that its log says, as far as it can be
//! read, and every page that any of them owns.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use novale_layout::{
    Attributes, CommitLine, FIRST_FREE_PAGE, FileKind, INODES_PER_CHUNK, IdentityLine, Ino, PAGE,
    Pair, PmAddr, Seed,
};
use novale_pm::{Flushed, Pm, Purpose};

use crate::base::error::{Error, Result};
use crate::base::exec::{Executor, Progress};
use crate::base::extent::Extent;
use crate::base::lines::places;
use crate::inode::chunks::Chunks;
use crate::inode::media;
use crate::inode::media::MediaInode;
use crate::inode::state::{InodePlace, LogId};
use crate::life::scan;
use crate::log::Logged;
use crate::log::coverage::{Mapping, Mappings, resolve};
use crate::log::pairs::{LoggedPairs, feature_of};
use crate::log::redo::{Owed, RedoFrom, Redone};
use crate::log::replay::{Fold, NameSaid, replay};
use crate::offline::check::{refuse_future, refuse_unclean};
use crate::offline::repair::names::GatheredNames;
use crate::op::journal::Journal;
use crate::op::quota::stored_limits;
use crate::op::xattr_set::Xattrs;
use crate::op::{journal, standing};
use crate::pool::Pool;
use crate::pool::marks::PageMarks;

/// Inodes of one task.
const TASK_INODES: u64 = 256;

/// All of a pool.
pub(super) struct Gathered {
    /// Pages that a slot which is not there had at least, by what logs name of it.
    absent_pages: AtomicU64,
    pub(super) chunks: Chunks,
    pub(super) journal: Journal,
    pub(super) marks: PageMarks,
    /// The pages of the pool itself, lanes and the inode directory among them.
    structure: PageMarks,
    /// The inodes in use, and those that are damaged.
    pub(super) inodes: BTreeMap<Ino, Inode>,
    /// Those that map a page which another has, too.
    pub(super) sharing: BTreeSet<Ino>,
    /// Those, and those that have one in their log or attributes.
    pub(super) entangled: BTreeSet<Ino>,
    /// The session whose lines are asked for what they cover, and that which crashed. Where that may be in a slot
    /// that is not there, it is not asked for in a pool that was closed.
    asked: Option<u32>,
    crashed: Option<u32>,
}

/// An inode.
#[derive(Debug)]
pub(super) struct Inode {
    pub(super) ino: Ino,
    pub(super) place: InodePlace,
    pub(super) identity: Option<IdentityLine>,
    /// The state that stands, or that a repair goes on from.
    pub(super) line: CommitLine,
    /// Which of the inode's own lines says so.
    pub(super) slot: Option<u8>,
    /// One of its own lines does not validate, and nothing says that it was not stored.
    pub(super) is_torn: bool,
    /// The greatest `op_seq` that was seen of it.
    pub(super) op_seq_max: u64,
    /// The `page_seq` of the last log page read.
    pub(super) page_seq: u64,
    /// The last line that was read of the log, a page's header or an entry's; null: none.
    pub(super) read_to: PmAddr,
    /// The newest attributes entry.
    pub(super) attributes: Option<Attributes>,
    /// Its extended attributes could be read, and none gives rights.
    pub(super) is_xattr_harmless: bool,
    /// Bits of the features that its log's entries use.
    pub(super) features: u64,
    /// The pages of its log and of its extended attributes.
    pub(super) own_pages: Vec<Extent>,
    pub(super) names: GatheredNames,
    pub(super) mappings: Mappings,
    pub(super) pairs: LoggedPairs,
    /// What its newest operation has for pages of it that are there, and recovery would store in them.
    pub(super) owed: Vec<Owed>,
    /// Its own lines that do not validate.
    pub(super) torn_lines: Vec<PmAddr>,
    pub(super) damage: Option<Damage>,
}

/// A log that is being gathered.
struct GatheredLog<'a> {
    marks: &'a PageMarks,
    absent: Absent<'a>,
    inode: &'a mut Inode,
    /// The line is of the session that crashed: bytes of its operation may not lie where they belong.
    is_recent: bool,
    redone: Redone,
}

/// What logs name of a slot that is not there.
#[derive(Clone, Copy)]
struct Absent<'a> {
    pm: &'a Pm,
    pages: &'a AtomicU64,
}

impl Absent<'_> {
    fn see(&self, addr: PmAddr, pages: u64) {
        if self.pm.is_absent(addr.slot()) {
            let end = (addr.byte() / PAGE).saturating_add(pages);
            self.pages.fetch_max(end, Ordering::Relaxed);
        }
    }
}

impl Fold for GatheredLog<'_> {
    fn page(&mut self, addr: PmAddr, seq: u64) -> Result<()> {
        let (ino, page) = (self.inode.ino, Extent { addr, pages: 1 });
        self.inode.page_seq = seq;
        self.inode.own_pages.push(page);
        self.absent.see(addr, 1);
        mark(self.marks, page, &|| format!("inode {}", ino.get()))?;
        self.inode.read_to = addr;
        Ok(())
    }

    fn map(&mut self, at: &Logged<'_>, first: u64, extent: Extent) -> Result<()> {
        let Extent { addr, pages } = extent;
        if !self.marks.contains(addr, pages) {
            let found = format!("{pages} pages at {addr}, beyond the slot");
            return Err(Error::damaged_inode(self.inode.ino, "write entry", at.addr, found));
        }
        self.absent.see(addr, pages);
        self.inode.read_to = at.last_line();
        self.inode.mappings.push(Mapping::of(first, extent));
        self.inode.pairs.map(first..first + pages);
        Ok(())
    }

    fn pair(&mut self, at: &Logged<'_>, pair: &Pair) -> Result<()> {
        for page in [Some(pair.home), pair.partner_page()].into_iter().flatten() {
            if !self.marks.contains(page, 1) {
                let found = format!("a copy at {page}, beyond the slot");
                return Err(Error::damaged_inode(self.inode.ino, "pair entry", at.addr, found));
            }
            self.absent.see(page, 1);
        }
        self.inode.read_to = at.last_line();
        self.inode.features |= feature_of(pair);
        self.inode.pairs.pair(pair);
        Ok(())
    }

    fn unmap(&mut self, at: &Logged<'_>, pages: Range<u64>) -> Result<()> {
        self.inode.read_to = at.last_line();
        self.inode.pairs.map(pages.clone());
        self.inode.mappings.push(Mapping::hole(pages));
        Ok(())
    }

    fn redo(&mut self, at: &Logged<'_>, from: RedoFrom<'_>) -> Result<()> {
        if let RedoFrom::Pool(source) = from {
            let end = (source.from.byte() + u64::from(source.length)).div_ceil(PAGE);
            self.absent.see(source.from, end - source.from.byte() / PAGE);
        }
        if self.is_recent
            && at.header.op_seq == self.inode.line.op_seq
            && let Some(bytes) = from.load(self.absent.pm)?
        {
            self.redone.push(bytes);
        }
        self.inode.read_to = at.last_line();
        self.inode.features |= from.feature();
        Ok(())
    }

    fn attributes(&mut self, at: &Logged<'_>, attributes: &Attributes) -> Result<()> {
        self.absent.see(attributes.xattr_root, 1);
        self.inode.read_to = at.last_line();
        self.inode.attributes = Some(*attributes);
        Ok(())
    }

    fn name(&mut self, at: &Logged<'_>, name: &NameSaid<'_>) -> Result<()> {
        self.inode.read_to = at.last_line();
        self.inode.names.add(name);
        Ok(())
    }

    fn unname(&mut self, at: &Logged<'_>, cookie: u64) -> Result<()> {
        self.inode.read_to = at.last_line();
        self.inode.names.remove(cookie);
        Ok(())
    }
}

/// What keeps an inode from being believed.
#[derive(Debug, Clone)]
pub(super) enum Damage {
    /// Nothing says what stands.
    NoState(Error),
    /// A state stands, and something contradicts it.
    Doubted(Error),
    Identity(Error),
    /// The log, after `read_to`.
    Log(Error),
    Xattrs(Error),
    /// Pages of data, runs of them in the file, are in a slot that is not there.
    Data(Error, Vec<LostRun>),
}

/// Pages of a file of which a copy is in a slot that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LostRun {
    pub(super) first: u64,
    pub(super) pages: u64,
    /// Where all that counts of the page is, in another slot; null where some of it is lost.
    pub(super) kept: PmAddr,
}

impl Damage {
    pub(super) fn error(&self) -> &Error {
        match self {
            Self::NoState(error)
            | Self::Doubted(error)
            | Self::Identity(error)
            | Self::Log(error)
            | Self::Xattrs(error)
            | Self::Data(error, _) => error,
        }
    }

    /// Whether it is that of a slot which is not there.
    pub(super) fn is_absence(&self) -> bool {
        matches!(self.error(), Error::Lost(_))
    }
}

impl Inode {
    pub(super) fn kind(&self) -> Option<FileKind> {
        self.identity.as_ref().map(|identity| identity.kind)
    }

    pub(super) fn generation(&self) -> u32 {
        self.identity.as_ref().map_or(0, |identity| identity.generation)
    }

    /// The first page of its extended attributes, or null.
    pub(super) fn xattr_root(&self) -> PmAddr {
        let first = self.identity.map_or(PmAddr::NULL, |identity| identity.xattr_root);
        self.attributes.map_or(first, |attributes| attributes.xattr_root)
    }

    /// The directory tree that it counts for, or 0.
    pub(super) fn project(&self) -> u32 {
        let first = self.identity.map_or(0, |identity| identity.project);
        self.attributes.map_or(first, |attributes| attributes.project)
    }

    /// Its numbers can't be counted on from: it is not changed any more.
    pub(super) fn is_used_up(&self) -> bool {
        media::check_numbers(self.ino, &self.place, self.op_seq_max, self.page_seq).is_err()
    }

    /// In use, as far as its lines say.
    pub(super) fn is_in_use(&self) -> bool {
        self.line.nlink > 0
    }

    /// The pages of the file that have two copies in the end.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (u64, &Pair)> {
        let extents = self.extents().into_iter();
        extents.flat_map(|(first, extent)| self.pairs.of(first, extent))
    }

    /// The current bytes of a page of the file that lies at `home`.
    pub(super) fn page_bytes(&self, pm: &Pm, file_page: u64, home: PmAddr) -> Result<Vec<u8>> {
        let mut bytes = vec![0; 4096];
        pm.load(home, &mut bytes)?;
        for (_, pair) in self.pairs.of(file_page, Extent { addr: home, pages: 1 }) {
            for (at, run) in places(home, pair.partner, pair.word, 0..PAGE) {
                let [from, to] =
                    [run.start, run.end].map(|byte| usize::try_from(byte).unwrap_or(usize::MAX));
                pm.load(at, bytes.get_mut(from..to).unwrap_or_default())?;
            }
        }
        for owed in self.owed.iter().filter(|owed| owed.offset / PAGE == file_page) {
            let from = usize::try_from(owed.offset % PAGE).unwrap_or(usize::MAX);
            let place = from..from.saturating_add(owed.bytes.len());
            if let Some(place) = bytes.get_mut(place) {
                place.copy_from_slice(&owed.bytes);
            }
        }
        Ok(bytes)
    }

    /// The pages of the file of which a copy is in a slot that is not there, and where that is.
    fn pages_in(&self, pm: &Pm) -> Vec<(PmAddr, LostRun)> {
        let mut lost = Vec::new();
        for (first, extent) in self.extents() {
            if pm.is_absent(extent.addr.slot()) {
                let run = LostRun { first, pages: extent.pages, kept: PmAddr::NULL };
                lost.push((extent.addr, run));
                continue;
            }
            for (page, pair) in self.pairs.of(first, extent) {
                let partner = pair.partner_page().filter(|page| pm.is_absent(page.slot()));
                // No line of it is in the second copy.
                let kept = if pair.word == 0 { pair.home } else { PmAddr::NULL };
                lost.extend(partner.map(|at| (at, LostRun { first: page, pages: 1, kept })));
            }
        }
        lost
    }

    /// The pages that the log maps in the end, second copies among them.
    fn copies(&self) -> impl Iterator<Item = Extent> {
        let pages = self.pairs().filter_map(|(_, pair)| pair.partner_page());
        let partners: BTreeSet<u64> = pages.map(PmAddr::raw).collect();
        let page = |raw| Extent { addr: PmAddr::from_raw(raw), pages: 1 };
        let partners = partners.into_iter().map(page);
        let homes = self.extents().into_iter().map(|(_, extent)| extent);
        homes.chain(partners)
    }

    /// The pages that the log maps in the end.
    pub(super) fn extents(&self) -> Vec<(u64, Extent)> {
        let mut extents = Vec::new();
        let all: Result<(), std::convert::Infallible> =
            resolve(self.mappings.all(), &mut |file_page, extent| {
                extents.push((file_page, extent));
                Ok(())
            });
        match all {
            Ok(()) => extents,
        }
    }
}

/// Reads a pool; `adopted` are the pages of inodes of chunks whose tables are lost.
pub(super) fn gather(
    pm: &Pm,
    pool: &Pool,
    adopted: &BTreeMap<u64, Vec<PmAddr>>,
    exec: &dyn Executor,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Gathered> {
    let (seed, session) = (pool.seed, pool.state.session);
    let lanes = journal::lane_pages(pm, pool.superblock.lane_count)?;
    let marks = pool.no_pages();
    scan::mark_fixed(pool, &marks, &lanes)?;
    let chunks = Chunks::read(pm, pool.superblock.roots.inode_directory, &marks)?;
    let mut chunks = chunks.of_pool(&pool.superblock);
    for (number, pages) in adopted {
        chunks.adopt(*number, pages, &marks)?;
    }
    let structure = pool.no_pages();
    scan::mark_fixed(pool, &structure, &lanes)?;
    Chunks::read(pm, pool.superblock.roots.inode_directory, &structure)?;
    let mut journal = Journal::read(pm, seed, &lanes)?;
    journal.judge(pm, seed, session, &|ino| chunks.place(seed, ino))?;
    let mut all = Gathered {
        chunks,
        journal,
        marks,
        structure,
        inodes: BTreeMap::new(),
        sharing: BTreeSet::new(),
        entangled: BTreeSet::new(),
        asked: (!pool.is_clean() || pm.absent_slots() == 0).then_some(session),
        crashed: (!pool.is_clean()).then_some(session),
        absent_pages: AtomicU64::new(0),
    };
    let total = all.chunks.len() as u64 * INODES_PER_CHUNK;
    let found = Mutex::new(BTreeMap::new());
    exec.run(usize::try_from(total / TASK_INODES).unwrap_or(usize::MAX), &|task| {
        let first = task as u64 * TASK_INODES;
        let mut block = Vec::new();
        for ino in all.chunks.placed(first..first + TASK_INODES) {
            let Some(place) = all.chunks.place(seed, ino) else { continue };
            block.extend(all.inode(pm, pool, ino, place).map(|inode| (ino, inode)));
        }
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        found.extend(block);
        progress(Progress { what: "reading inodes", done: first + TASK_INODES, total });
    });
    all.inodes = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.miss_root(pool);
    all.find_sharing();
    all.find_older();
    Ok(all)
}

impl Gathered {
    /// A root directory that was never written is one that was lost.
    fn miss_root(&mut self, pool: &Pool) {
        let Some(place) = self.chunks.place(pool.seed, Ino::ROOT) else { return };
        self.inodes.entry(Ino::ROOT).or_insert_with(|| {
            let error = Error::damaged_inode(Ino::ROOT, "", place.addr, "not in use");
            blank(Ino::ROOT, place, Damage::NoState(error))
        });
    }

    /// Writes back, durably, all pages that somebody has: who stored them may have died before its fence,
    /// another repair among them. What a commit of a repair rests on is what was read, and it has no data
    /// checksum.
    pub(super) fn write_back(
        &self,
        pm: &Pm,
        exec: &dyn Executor,
        progress: &(dyn Fn(Progress) + Sync),
    ) {
        let pieces = self.marks.pieces();
        let (total, done) = (pieces.len() as u64, AtomicU64::new(0));
        exec.run(pieces.len(), &|task| {
            let Some(piece) = pieces.get(task) else { return };
            let written = piece.used_pages().fold(Flushed::none(), |pending, page| {
                pending.and(pm.write_back_range(page, PAGE, Purpose::Other))
            });
            // Here, since a fence is for what its own thread has written back.
            pm.fence(written).end();
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            progress(Progress { what: "making durable what was read", done, total });
        });
    }

    /// Every number that names or records speak of has a place, and every place its inodes.
    pub(super) fn is_whole(&self) -> bool {
        let place = |ino: Ino| self.chunks.place(Seed::pool(&[0; 16]), ino).is_some();
        let mut names = self.inodes.values().flat_map(|inode| &inode.names.list);
        self.chunks.lost().is_empty()
            && self.journal.doubtful().next().is_none()
            && place(Ino::ROOT)
            && names.all(|name| place(name.ino))
            && !self.inodes.values().any(|inode| matches!(inode.damage, Some(Damage::NoState(_))))
    }

    /// An inode that is in use or damaged.
    fn inode(&self, pm: &Pm, pool: &Pool, ino: Ino, place: InodePlace) -> Option<Inode> {
        let media = match MediaInode::read(pm, &place) {
            Ok(media) => media,
            Err(error) => return Some(blank(ino, place, Damage::NoState(error))),
        };
        let decided = standing::decide(pm, self.asked, &self.journal, ino, &place);
        let standing = match decided {
            Ok(None) => return None,
            Ok(Some(standing)) => standing,
            Err(error) => return Some(self.without_state(pm, ino, place, &media, error)),
        };
        let unclean = pool.is_clean().then(|| refuse_unclean(ino, &place, &standing).err());
        let future = refuse_future(ino, &place, &standing.line, pool.state.session).err();
        let unclean = unclean.flatten().or(future.filter(|_| standing.line.nlink > 0));
        if standing.line.nlink == 0 && unclean.is_none() {
            return None;
        }
        let own = media.lines.iter().position(|line| *line == Ok(standing.line));
        let own = own.and_then(|slot| u8::try_from(slot).ok());
        let (line, slot) = match (&unclean, media.newest()) {
            // Its log is there, and a mount shows what it says.
            (Some(_), Some((line, slot))) if standing.rejected > 0 => (*line, Some(slot)),
            _ => (standing.line, own),
        };
        let mut inode = Inode {
            ino,
            place,
            identity: media.identity.as_ref().ok().copied(),
            line,
            slot,
            // What a record says was not torn before, but where both lines are: then it may be of long before.
            is_torn: media.torn_line().is_some()
                && !(standing.by_record && media.newest().is_some()),
            op_seq_max: self.op_seq_max(&media, ino),
            page_seq: 0,
            read_to: PmAddr::NULL,
            attributes: None,
            is_xattr_harmless: false,
            features: 0,
            own_pages: Vec::new(),
            names: GatheredNames::default(),
            mappings: Mappings::default(),
            pairs: LoggedPairs::default(),
            owed: Vec::new(),
            torn_lines: standing.torn_lines(&place).collect(),
            damage: unclean.map(Damage::Doubted),
        };
        if inode.is_in_use() {
            let found = self.read(pm, &mut inode, media.identity);
            inode.damage = first_to_mend(inode.damage, found);
        }
        Some(inode)
    }

    /// An inode of which it can't be told what stands, with what its newest line says.
    fn without_state(
        &self,
        pm: &Pm,
        ino: Ino,
        place: InodePlace,
        media: &MediaInode,
        error: Error,
    ) -> Inode {
        let mut inode = blank(ino, place, Damage::NoState(error));
        inode.identity = media.identity.as_ref().ok().copied();
        inode.op_seq_max = self.op_seq_max(media, ino);
        inode.torn_lines = standing::torn_lines(media.torn_lines(), &place).collect();
        if let Some((line, slot)) = media.newest() {
            (inode.line, inode.slot) = (*line, Some(slot));
            if inode.is_in_use() {
                let found = self.read(pm, &mut inode, media.identity);
                inode.damage = first_to_mend(inode.damage, found);
            }
        }
        inode
    }

    fn op_seq_max(&self, media: &MediaInode, ino: Ino) -> u64 {
        let own = media.lines.iter().flatten().map(|line| line.op_seq);
        let recorded = self.journal.of(ino).iter().map(|(_, line)| line.op_seq);
        own.chain(recorded).max().unwrap_or(0)
    }

    /// Reads the log and marks what it owns.
    fn read(
        &self,
        pm: &Pm,
        inode: &mut Inode,
        identity: std::result::Result<IdentityLine, novale_layout::LayoutError>,
    ) -> Result<(), Damage> {
        let (ino, at) = (inode.ino, inode.place.addr);
        let wrong = |error| Damage::Identity(Error::damaged_inode(ino, "identity line", at, error));
        let identity = identity.map_err(wrong)?;
        let id = LogId::in_place(ino, identity.generation, &inode.place);
        let line = inode.line;
        let owner = || format!("inode {}", ino.get());
        let absent = Absent { pm, pages: &self.absent_pages };
        let (is_recent, redone) = (Some(line.session) == self.crashed, Redone::default());
        let mut log = GatheredLog { marks: &self.marks, absent, inode, is_recent, redone };
        let walked = replay(pm, &id, Some(identity.kind), &line, &mut log);
        // All that is older than the newest operation was read where one of its entries was.
        let owed = log.redone.owed(&id, &inode.mappings, line.size);
        inode.names.settle();
        for extent in inode.copies() {
            mark(&self.marks, extent, &owner).map_err(Damage::Log)?;
        }
        let is_there = |owed: &Owed| !pm.is_absent(owed.at.slot());
        inode.owed.extend(owed.iter().flatten().filter(|owed| is_there(owed)).cloned());
        let xattrs = self.read_xattrs(pm, inode, &id, identity.kind);
        walked.map_err(Damage::Log)?;
        owed.map_err(Damage::Doubted)?;
        xattrs.map_err(Damage::Xattrs)?;
        let lost = inode.pages_in(pm);
        match lost.first() {
            Some((at, _)) => {
                let runs = lost.iter().map(|(_, run)| *run).collect();
                Err(Damage::Data(Error::Lost(*at), runs))
            }
            None => Ok(()),
        }
    }

    /// Reads the extended attributes that the log says, as far as that was read, and marks their pages.
    fn read_xattrs(&self, pm: &Pm, inode: &mut Inode, id: &LogId, kind: FileKind) -> Result<()> {
        let xattrs = Xattrs::read(pm, id, inode.xattr_root())?;
        xattrs.for_each_page(&mut |extent| {
            inode.own_pages.push(extent);
            mark(&self.marks, extent, &|| format!("inode {}", id.ino.get()))
        })?;
        xattrs.check_values(pm, id)?;
        xattrs.check_acls(pm, id, kind)?;
        if id.ino == Ino::ROOT {
            stored_limits(pm, id, &xattrs)?;
        }
        inode.is_xattr_harmless = !xattrs.give_rights();
        Ok(())
    }

    /// Notes the inodes that map a page that has another owner.
    fn find_sharing(&mut self) {
        if !self.marks.any_shared() {
            return;
        }
        let maps = |inode: &&Inode| inode.copies().any(|extent| self.is_shared(extent));
        let has = |inode: &&Inode| inode.own_pages.iter().any(|extent| self.is_shared(*extent));
        let sharing: BTreeSet<Ino> =
            self.inodes.values().filter(maps).map(|inode| inode.ino).collect();
        let owning = self.inodes.values().filter(has).map(|inode| inode.ino);
        self.entangled = owning.chain(sharing.iter().copied()).collect();
        self.sharing = sharing;
    }

    /// Notes the inodes of which one line is torn, and what the other one names is another's by now: it is an older one
    /// then, and no crash has torn the newer. Where nothing contradicts it, nobody can tell.
    fn find_older(&mut self) {
        let sharing = &self.sharing;
        for inode in self.inodes.values_mut().filter(|inode| inode.is_torn && inode.is_in_use()) {
            let why = match &inode.damage {
                Some(Damage::Xattrs(error)) => error.to_string(),
                None if sharing.contains(&inode.ino) => "others have its pages".to_owned(),
                _ => continue,
            };
            let found = format!("one is torn, the other may be an old one: {why}");
            let error = Error::damaged_inode(inode.ino, "commit lines", inode.place.addr, found);
            inode.damage = Some(Damage::Doubted(error));
        }
    }

    /// The pages that nobody has, but for holes of a slot's file.
    pub(super) fn unmarked<'a>(
        &'a self,
        pm: &'a Pm,
        pool: &'a Pool,
    ) -> impl Iterator<Item = PmAddr> + 'a {
        pool.slots_there().flat_map(move |(header, _)| {
            let free = move |page: &u64| {
                self.marks.word(header.index.into(), page / 64) >> (page % 64) & 1 == 0
            };
            let (mut at, end) = (FIRST_FREE_PAGE * PAGE, (header.pages - 1) * PAGE);
            let data = std::iter::from_fn(move || {
                let found = pm.data_from(header.index, at).filter(|found| found.start < end)?;
                at = found.end;
                Some(found.start / PAGE..found.end.min(end) / PAGE)
            });
            let pages = data.flatten().filter(free);
            pages.map(|page| PmAddr::new(header.index, page * PAGE))
        })
    }

    /// The pages that nobody has and that have inodes in them, by the blocks of 16 numbers of those.
    pub(super) fn unmarked_blocks(&self, pm: &Pm, pool: &Pool) -> BTreeMap<u64, Vec<PmAddr>> {
        let mut found: BTreeMap<u64, Vec<PmAddr>> = BTreeMap::new();
        for page in self.unmarked(pm, pool) {
            for block in media::blocks_in(pm, pool.seed, page) {
                found.entry(block).or_default().push(page);
            }
        }
        found
    }

    /// Pages that a slot which is not there had at least, but for its last.
    pub(super) fn absent_pages(&self) -> u64 {
        self.absent_pages.load(Ordering::Relaxed)
    }

    /// The pages that a file maps and of which another has a copy too, each with its place in the file.
    pub(super) fn shared_pages(&self, inode: &Inode) -> Vec<(u64, PmAddr)> {
        let extents = inode.extents();
        let pages = extents.iter().flat_map(|(file_page, extent)| {
            (0..extent.pages).map(move |page| (file_page + page, extent.addr.add(page * PAGE)))
        });
        let is_shared = |addr| self.is_shared(Extent { addr, pages: 1 });
        let by_partner: BTreeSet<u64> = inode
            .pairs()
            .filter(|(_, pair)| pair.partner_page().is_some_and(is_shared))
            .map(|(page, _)| page)
            .collect();
        pages.filter(|(page, addr)| is_shared(*addr) || by_partner.contains(page)).collect()
    }

    /// Whether any page of an extent is one of the pool's own.
    fn is_of_the_pool(&self, extent: Extent) -> bool {
        let first = extent.addr.byte() / PAGE;
        (first..first + extent.pages).any(|page| {
            self.structure.word(extent.addr.slot().into(), page / 64) >> (page % 64) & 1 == 1
        })
    }

    /// Whether any page of an extent has several owners.
    pub(super) fn is_shared(&self, extent: Extent) -> bool {
        self.marks.refuse_shared(extent.addr, extent.pages, &String::new).is_err()
    }

    /// Damage that nothing can be done about, with its place.
    pub(super) fn beyond(&self, pm: &Pm) -> Vec<String> {
        let seed = Seed::pool(&[0; 16]);
        let mut beyond = Vec::new();
        if self.chunks.place(seed, Ino::ROOT).is_none() {
            beyond.push("the page of the root directory is not to be found".to_owned());
        }
        let tables = self.chunks.lost().iter().filter(|lost| lost.is_of_tables());
        beyond.extend(tables.map(|lost| lost.why.to_string()));
        // Nobody knows what the pool has in a slot that is not there, and nothing is stored to it.
        let is_own =
            |extent: &Extent| !pm.is_absent(extent.addr.slot()) && self.is_of_the_pool(*extent);
        let in_place = self.inodes.values().filter(|inode| inode.own_pages.iter().any(is_own));
        beyond.extend(in_place.map(|inode| {
            format!("inode {}: its log or attributes lie in a page of the pool's own", inode.ino)
        }));
        let worn = self.inodes.values().filter(|inode| inode.is_used_up());
        let worn = worn.filter_map(|inode| inode.damage.as_ref());
        beyond.extend(worn.map(|damage| format!("{}; its numbers are used up", damage.error())));
        beyond
    }

    /// What can't be mended without a guess or a loss, with its place.
    pub(super) fn damage(&self) -> impl Iterator<Item = &Error> {
        let inodes = self.inodes.values().filter_map(|inode| inode.damage.as_ref());
        inodes.map(Damage::error).chain(self.journal.doubts())
    }
}

/// Marks pages. That one has another owner is no error here: [`Gathered::sharing`] has it.
fn mark(marks: &PageMarks, extent: Extent, owner: &dyn Fn() -> String) -> Result<()> {
    match marks.mark(extent.addr, extent.pages, owner) {
        Err(error) if marks.refuse_shared(extent.addr, extent.pages, owner).is_ok() => Err(error),
        _ => Ok(()),
    }
}

/// Which damage of an inode is mended first: without its identity line the log can't be read, and where the log ends
/// says which line to write.
fn first_to_mend(doubt: Option<Damage>, found: Result<(), Damage>) -> Option<Damage> {
    match found {
        Err(found @ (Damage::Identity(_) | Damage::Log(_))) => Some(found),
        found => doubt.or(found.err()),
    }
}

/// An inode of which nothing is known.
fn blank(ino: Ino, place: InodePlace, damage: Damage) -> Inode {
    Inode {
        ino,
        place,
        identity: None,
        line: CommitLine::default(),
        slot: None,
        is_torn: true,
        op_seq_max: 0,
        page_seq: 0,
        read_to: PmAddr::NULL,
        attributes: None,
        is_xattr_harmless: false,
        features: 0,
        own_pages: Vec::new(),
        names: GatheredNames::default(),
        mappings: Mappings::default(),
        pairs: LoggedPairs::default(),
        owed: Vec::new(),
        torn_lines: Vec::new(),
        damage: Some(damage),
    }
}
