//! Quotas of directory trees: what the inodes of a tree use together, and what they may.
//!
//! An inode counts for at most one tree. The tree is a number among its attributes, the *project*,
//! which a new inode has from its parent. What counts for the tree that it lies in can't be moved or
//! linked into another one; the top of a tree, which lies outside of it, can be moved.
//!
//! Counts live in the arena, one block a tree, and are changed where the views are, after the fence
//! of each commit. A clean close saves them with the allocator; after a crash the scan counts anew. A
//! death in between leaves them a little wrong until then, as it does the allocator's. Limits are
//! looked at before anything is taken, so what runs at the same moment may exceed them together. They
//! are kept in an attribute of the root directory, so that a change of them commits as that does.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use novale_arena::{Arena, AtomicU64, Class, Off, Radix};
use novale_layout::{
    FileKind, PmAddr, QUOTA_BYTES, QuotaLimit, RoFeature, XATTR_VALUE_BYTES_MAX, XattrNamespace,
};
use novale_pm::Pm;

use crate::base::error::{Error, Result};
use crate::base::types::{Ctx, Ino, SetAttr, StatFs};
use crate::fs::Fs;
use crate::inode::state::LogId;
use crate::inode::view::View;
use crate::op::call::{Call, OpKind};
use crate::op::xattr_set::{Xattrs, value_bytes};

/// Words of a tree's block.
const PAGES: usize = 0;
const INODES: usize = 1;
const PAGES_MAX: usize = 2;
const INODES_MAX: usize = 3;
const BLOCK_WORDS: usize = 8;
const BLOCK: Class = Class::new(10, 8);

/// Trees with limits: an attribute's value has room for no more.
const LIMITS_MAX: usize = XATTR_VALUE_BYTES_MAX as usize / QUOTA_BYTES;

// Words of the table.
const LOCK: u64 = 0;
const ROOT: u64 = 1;

/// What a tree uses, or may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Pages of 4096 bytes: data, logs and extended attributes, as `st_blocks` has them.
    pub pages: u64,
    /// Inodes, the tree's own directory among them.
    pub inodes: u64,
}

impl Usage {
    pub(crate) fn add(&mut self, other: Self) {
        self.pages += other.pages;
        self.inodes += other.inodes;
    }
}

/// A tree's quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quota {
    /// What it uses.
    pub used: Usage,
    /// What it may use; 0 is no limit.
    pub limit: Usage,
}

/// The counts of all trees that have any: one table in the arena.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Projects {
    table: Off,
}

impl Projects {
    pub(crate) fn create(arena: &Arena, used: &BTreeMap<u32, Usage>) -> Result<Self> {
        let projects = Self { table: arena.alloc_table(BLOCK_WORDS.ilog2())? };
        for (project, used) in used {
            let block = projects.add(arena, *project)?;
            block[PAGES].store(used.pages, Ordering::Relaxed);
            block[INODES].store(used.inodes, Ordering::Relaxed);
        }
        Ok(projects)
    }

    /// The table that another client has made.
    pub(crate) fn attach(table: u64) -> Self {
        Self { table: Off::from_raw(table) }
    }

    /// Where the table is in the arena.
    pub(crate) fn place(self) -> u64 {
        self.table.raw()
    }

    fn radix(self, arena: &Arena) -> Result<Radix<'_>> {
        Ok(Radix::new(arena.word(self.table.add(ROOT * 8))?))
    }

    fn find(self, arena: &Arena, project: u32) -> Result<Option<&[AtomicU64; BLOCK_WORDS]>> {
        let off = self.radix(arena)?.get(arena, project.into())?;
        if off == 0 { Ok(None) } else { Ok(Some(arena.block(Off::from_raw(off))?)) }
    }

    /// Makes a block; the caller has the table's lock.
    fn add(self, arena: &Arena, project: u32) -> Result<&[AtomicU64; BLOCK_WORDS]> {
        let off = arena.alloc(BLOCK)?;
        if let Err(error) = self.radix(arena)?.set(arena, project.into(), off.raw()) {
            arena.free(BLOCK, off);
            return Err(error.into());
        }
        Ok(arena.block(off)?)
    }

    /// Every tree that has been counted.
    pub(crate) fn all(self, arena: &Arena) -> Result<BTreeMap<u32, Quota>> {
        let mut all = BTreeMap::new();
        let mut damaged = Ok(());
        self.radix(arena)?.for_each(arena, &mut |project, off| {
            let block = arena.block::<BLOCK_WORDS>(Off::from_raw(off));
            match (u32::try_from(project), block) {
                (Ok(project), Ok(block)) => drop(all.insert(project, quota(block))),
                (_, Err(error)) => damaged = Err(error),
                (Err(_), _) => {}
            }
        })?;
        damaged?;
        Ok(all)
    }
}

fn quota(block: &[AtomicU64; BLOCK_WORDS]) -> Quota {
    // After a death a count may be below 0 for a while.
    let word = |index: usize| {
        let count = block.get(index).map_or(0, |word| word.load(Ordering::Relaxed));
        count.cast_signed().max(0).cast_unsigned()
    };
    Quota {
        used: Usage { pages: word(PAGES), inodes: word(INODES) },
        limit: Usage { pages: word(PAGES_MAX), inodes: word(INODES_MAX) },
    }
}

fn set_limit(block: &[AtomicU64; BLOCK_WORDS], limit: Usage) {
    block[PAGES_MAX].store(limit.pages, Ordering::Relaxed);
    block[INODES_MAX].store(limit.inodes, Ordering::Relaxed);
}

/// The limits among the root directory's attributes.
pub(crate) fn stored_limits(pm: &Pm, root: &LogId, xattrs: &Xattrs) -> Result<Vec<QuotaLimit>> {
    let Some(value) = xattrs.get(XattrNamespace::Quotas, b"") else { return Ok(Vec::new()) };
    let bytes = value_bytes(pm, root, value)?;
    QuotaLimit::decode_all(&bytes)
        .map_err(|error| Error::damaged_inode(root.ino, "quotas", PmAddr::NULL, error))
}

/// A change of what a tree uses.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UsageChange {
    pub(crate) pages: i64,
    pub(crate) inodes: i64,
}

impl UsageChange {
    /// An inode with all of its pages.
    pub(crate) fn whole(view: &View<'_>) -> Self {
        Self { pages: view.pages().cast_signed(), inodes: 1 }
    }

    /// The reverse.
    pub(crate) fn back(self) -> Self {
        Self { pages: -self.pages, inodes: -self.inodes }
    }
}

/// What an inode counts for its tree before a change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    tree: u32,
    whole: UsageChange,
}

impl Counted {
    pub(crate) fn of(view: &View<'_>) -> Self {
        // Nobody asks what counts for no tree.
        let tree = view.project();
        let whole = if tree == 0 { UsageChange::default() } else { UsageChange::whole(view) };
        Self { tree, whole }
    }
}

impl View<'_> {
    /// Whether a tree hangs from this inode, a directory, and has its number.
    pub(crate) fn is_top(&self, kind: FileKind) -> bool {
        kind == FileKind::Directory && u64::from(self.project()) == self.ino().get()
    }
}

impl Fs {
    /// What every directory tree uses and may use, by its number.
    ///
    /// # Errors
    /// [`Error::BadArena`] when the arena is damaged.
    pub fn quotas(&self) -> Result<BTreeMap<u32, Quota>> {
        self.projects.all(self.arena())
    }

    /// The tree that an inode counts for, and its quota; `None` where it counts for none.
    ///
    /// # Errors
    /// [`Error::Stale`] for an inode that is not in use, [`Error::BadArena`].
    pub fn quota_of(&self, ino: Ino) -> Result<Option<(u32, Quota)>> {
        let project = self.read_view(0, ino, |view, _| Ok(view.project()))?;
        if project == 0 {
            return Ok(None);
        }
        Ok(Some((project, self.quota_by_number(project)?)))
    }

    /// A tree's use and limits.
    pub(crate) fn quota_by_number(&self, project: u32) -> Result<Quota> {
        Ok(self.projects.find(self.arena(), project)?.map(quota).unwrap_or_default())
    }

    /// Limits what a directory tree may use; a limit of 0 is none. What it uses already stays. Limits of trees whose
    /// directory was removed go.
    ///
    /// # Errors
    /// [`Error::Invalid`] for tree 0, [`Error::NoSpace`], also for more than 2,730 trees with limits;
    /// nothing is changed then.
    pub fn set_quota(&self, ctx: &Ctx, project: u32, limit: Usage) -> Result<()> {
        if project == 0 {
            return Err(Error::Invalid("0 is no directory tree"));
        }
        self.use_feature(ctx, RoFeature::Xattrs)?;
        self.use_feature(ctx, RoFeature::Trees)?;
        let call = self.begin(OpKind::Attributes, ctx)?;
        let root = self.lock(&call, Ino::ROOT)?;
        let mut xattrs = self.xattrs_of_locked(&root)?;
        let stored = stored_limits(&self.pm, &root.id, &xattrs)?;
        let (kept, gone) = self.sort_limits(&call, stored)?;
        let mut limits: Vec<QuotaLimit> =
            kept.into_iter().filter(|other| other.project != project).collect();
        if limit != Usage::default() {
            let at = limits.partition_point(|other| other.project < project);
            let Usage { pages: pages_max, inodes: inodes_max } = limit;
            limits.insert(at, QuotaLimit { project, pages_max, inodes_max });
        }
        if limits.len() > LIMITS_MAX {
            return Err(Error::NoSpace);
        }
        let bytes = QuotaLimit::encode_all(&limits);
        let block = self.block_of(&call, project)?;
        if bytes.is_empty() {
            xattrs.remove(XattrNamespace::Quotas, b"");
        } else {
            xattrs.set(XattrNamespace::Quotas, b"", &bytes);
        }
        self.set_locked(&call, &root, &SetAttr::default(), Some(xattrs))?;
        for gone in gone.iter().filter(|gone| gone.project != project) {
            if let Some(block) = self.projects.find(self.arena(), gone.project)? {
                set_limit(block, Usage::default());
            }
        }
        set_limit(block, limit);
        Ok(())
    }

    /// Limits of trees, and limits of which the tree is gone: its directory was removed, and nothing counts for it.
    fn sort_limits(
        &self,
        call: &Call<'_>,
        limits: Vec<QuotaLimit>,
    ) -> Result<(Vec<QuotaLimit>, Vec<QuotaLimit>)> {
        let (mut kept, mut gone) = (Vec::new(), Vec::new());
        for limit in limits {
            let top = Ino::new(limit.project.into());
            let is_top = match self.read_view(call, top, |view, kind| Ok(view.is_top(kind))) {
                Err(Error::Stale | Error::NotFound) => false,
                Err(error) if error.is_damage() => true,
                found => found?,
            };
            let is_there = is_top || self.quota_by_number(limit.project)?.used.inodes > 0;
            if is_there { kept.push(limit) } else { gone.push(limit) }
        }
        Ok((kept, gone))
    }

    /// Refuses where as many other trees as can be are limited.
    pub(crate) fn may_limit(&self, ctx: &Ctx, project: u32) -> Result<()> {
        let call = self.begin_read(OpKind::Load, ctx)?;
        let root = self.lock(&call, Ino::ROOT)?;
        let stored = stored_limits(&self.pm, &root.id, &self.xattrs_of_locked(&root)?)?;
        let (kept, _) = self.sort_limits(&call, stored)?;
        let others = kept.iter().filter(|other| other.project != project).count();
        if others < LIMITS_MAX { Ok(()) } else { Err(Error::NoSpace) }
    }

    /// Takes the limits over that the root directory has; nobody else is at work.
    pub(crate) fn load_limits(&self) -> Result<()> {
        match self.load_stored_limits() {
            // What is only read needs no limits.
            Err(error) if self.options.read_only && error.is_damage() => Ok(()),
            loaded => loaded,
        }
    }

    fn load_stored_limits(&self) -> Result<()> {
        let call = self.begin_read(OpKind::Load, &Ctx { now_ns: 0, hint: 0 })?;
        let root = self.lock(&call, Ino::ROOT)?;
        let xattrs = self.xattrs_of_locked(&root)?;
        for limit in stored_limits(&self.pm, &root.id, &xattrs)? {
            let block = self.block_of(&call, limit.project)?;
            let QuotaLimit { pages_max: pages, inodes_max: inodes, .. } = limit;
            set_limit(block, Usage { pages, inodes });
        }
        Ok(())
    }

    /// Space and inodes as the inode's tree has them: what is left of its limits, where that is less
    /// than what is left of the pool.
    ///
    /// # Errors
    /// [`Error::Stale`] for an inode that is not in use, [`Error::BadArena`].
    pub fn statfs_of(&self, ino: Ino) -> Result<StatFs> {
        let mut all = self.statfs()?;
        let Some((_, Quota { used, limit })) = self.quota_of(ino)? else { return Ok(all) };
        if limit.pages > 0 {
            let left = limit.pages.saturating_sub(used.pages);
            all.pages = all.pages.min(limit.pages);
            all.pages_free = all.pages_free.min(left);
            all.pages_available = all.pages_available.min(left);
        }
        if limit.inodes > 0 {
            all.inodes = used.inodes;
            all.inodes_free = all.inodes_free.min(limit.inodes.saturating_sub(used.inodes));
        }
        Ok(all)
    }

    /// Refuses what would exceed a tree's limits, and makes its block, so that counting can't fail.
    pub(crate) fn allow(
        &self,
        call: &Call<'_>,
        project: u32,
        pages: u64,
        inodes: u64,
    ) -> Result<()> {
        if project == 0 {
            return Ok(());
        }
        let Quota { used, limit } = quota(self.block_of(call, project)?);
        let over = |used: u64, more: u64, limit: u64| {
            more > 0 && limit > 0 && used.saturating_add(more) > limit
        };
        if over(used.pages, pages, limit.pages) || over(used.inodes, inodes, limit.inodes) {
            return Err(Error::QuotaExceeded);
        }
        Ok(())
    }

    /// A tree's block, made where there is none.
    fn block_of(&self, call: &Call<'_>, project: u32) -> Result<&[AtomicU64; BLOCK_WORDS]> {
        let (arena, projects) = (self.arena(), self.projects);
        if let Some(block) = projects.find(arena, project)? {
            return Ok(block);
        }
        let _guard = call.op.lock(projects.table.add(LOCK * 8))?;
        match projects.find(arena, project)? {
            Some(block) => Ok(block),
            None => projects.add(arena, project),
        }
    }

    /// Refuses a write to a file's pages that would exceed its tree's limit.
    pub(crate) fn allow_write(
        &self,
        call: &Call<'_>,
        view: &View<'_>,
        first: u64,
        pages: u64,
    ) -> Result<()> {
        let project = view.project();
        if project == 0 {
            return Ok(());
        }
        let (mut growth, arena) = (0, self.arena());
        for page in first..first + pages {
            growth += u64::from(view.index().get(arena, page)? == 0);
        }
        self.allow(call, project, growth, 0)
    }

    /// Counts what a commit has made of an inode that counted as `before`.
    #[inline]
    pub(crate) fn recount(&self, before: Counted, view: &View<'_>) -> Result<()> {
        let now = Counted::of(view);
        if now.tree == before.tree {
            if now.tree == 0 {
                return Ok(());
            }
            let pages = now.whole.pages - before.whole.pages;
            return self.count(now.tree, UsageChange { pages, inodes: 0 });
        }
        self.count(before.tree, before.whole.back())?;
        self.count(now.tree, now.whole)
    }

    /// Counts for a tree what has been committed.
    pub(crate) fn count(&self, project: u32, change: UsageChange) -> Result<()> {
        if project == 0 {
            return Ok(());
        }
        if let Some(block) = self.projects.find(self.arena(), project)? {
            block[PAGES].fetch_add(change.pages.cast_unsigned(), Ordering::Relaxed);
            block[INODES].fetch_add(change.inodes.cast_unsigned(), Ordering::Relaxed);
        }
        Ok(())
    }
}
