//! Directory trees begin and end.
//!
//! What lies in a directory counts for the same tree as that does, but for the tops of trees. A tree begins or ends
//! with the number of its top, one commit; then what lies in it is gone through, directory by directory, and each inode
//! that counts for something else takes the number of the directory that it lies in, a commit each under the locks of
//! both.
//!
//! *Nothing is passed by, whatever is renamed meanwhile.* A directory has its number before what is in it is listed: from
//! then on only what has that number comes into it, and what has another one keeps its name there until it is reached
//! ([`Error::OtherTree`]). A directory that has taken the number is gone on with by its own, not by a name, wherever it
//! is moved. So what does not count yet is always below something that is still to be listed.
//!
//! Crash points: each commit. A tree is limited once all of it counts, so a top without a limit may be one of which a crash
//! has left something out: when it is called for again, all directories of its number are gone through. At an end all
//! directories of the pool are, where anything counts for the number still.

use std::sync::{MutexGuard, PoisonError};

use novale_layout::{FileKind, Ino, RoFeature};

use crate::base::error::{Error, Result};
use crate::base::types::{Ctx, DirEntry, Node, SetAttr};
use crate::fs::Fs;
use crate::inode::view::View;
use crate::name::create::among;
use crate::op::call::{Call, OpKind};
use crate::op::lock::Locked;
use crate::op::quota::{Quota, Usage};

/// How often the directory that a top lies in is sought again, as it is moved.
const TRIES: usize = 1 << 10;

impl Fs {
    /// Makes a directory the top of a tree of its own with all that is below it, but for other trees, and limits what
    /// that may use; a limit of 0 is none. The tree's number is the directory's. A file with names in several trees
    /// counts for the one that was last made.
    ///
    /// # Errors
    /// [`Error::NotDirectory`], [`Error::Stale`]; [`Error::NoSpace`], also where so many trees are limited as can be, and
    /// [`Error::NoMemory`]: where it is a tree by then, it has no limit, and the same call goes on with it.
    pub fn begin_tree(&self, ctx: &Ctx, top: Node, limit: Usage) -> Result<()> {
        self.use_feature(ctx, RoFeature::Trees)?;
        let _one = self.one_tree();
        let (own, project) = self.numbers_of(ctx, top)?;
        let is_top = project == own;
        if !is_top || self.quota_by_number(own)?.limit == Usage::default() {
            if limit != Usage::default() {
                self.may_limit(ctx, own)?;
            }
            let waiting = if is_top {
                self.each_of(ctx, |found| found.kind == FileKind::Directory && found.tree == own)?
            } else {
                // What another tree of this number has left is none of this one's.
                self.end_limits(ctx, own)?;
                self.end_remains(ctx, own, project)?;
                self.setattr(ctx, top, &counting_for(own))?;
                vec![top.ino]
            };
            self.count_below(ctx, waiting, None)?;
        }
        self.set_quota(ctx, own, limit)
    }

    /// Takes the limits of a directory's tree away, and has what counts for it count for the tree that the directory
    /// lies in.
    ///
    /// # Errors
    /// [`Error::NoAttribute`] where there is no such tree, and nothing that is left of one; as [`Fs::begin_tree`].
    pub fn end_tree(&self, ctx: &Ctx, top: Node) -> Result<()> {
        let _one = self.one_tree();
        let (own, project) = self.numbers_of(ctx, top)?;
        let is_top = project == own;
        if !is_top && self.quota_by_number(own)? == Quota::default() {
            return Err(Error::NoAttribute);
        }
        self.end_limits(ctx, own)?;
        if is_top {
            self.leave_tree(ctx, top)?;
            self.count_below(ctx, vec![top.ino], Some(own))?;
        }
        let around = self.numbers_of(ctx, top)?.1;
        self.end_remains(ctx, own, around)
    }

    /// Who begins or ends a tree is alone with it in its process, which is the mount's: one that goes on with what another
    /// one is at would take for counted what that one has still to go into. (So it may be where two daemons have a pool, and
    /// one of them dies in the middle.)
    fn one_tree(&self) -> MutexGuard<'_, ()> {
        self.passes.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_limits(&self, ctx: &Ctx, tree: u32) -> Result<()> {
        if self.quota_by_number(tree)?.limit == Usage::default() {
            return Ok(());
        }
        self.set_quota(ctx, tree, Usage::default())
    }

    /// The number of the tree that hangs from a directory, or may, and of the one that it counts for.
    fn numbers_of(&self, ctx: &Ctx, top: Node) -> Result<(u32, u32)> {
        self.read_node(ctx.hint, top, |view, kind| {
            if kind != FileKind::Directory {
                return Err(Error::NotDirectory);
            }
            let own = u32::try_from(view.ino().get())
                .map_err(|_| Error::Invalid("its number is none that a tree may have"))?;
            Ok((own, view.project()))
        })
    }

    /// Has the top of a tree count for what it lies in.
    fn leave_tree(&self, ctx: &Ctx, top: Node) -> Result<()> {
        for _ in 0..TRIES {
            let above = self.parent(top)?;
            let call = self.begin(OpKind::Attributes, ctx)?;
            let locks = self.lock_all(&call, &[top.ino, above.ino])?;
            let (dir, holder) = (among(&locks, top)?, among(&locks, above)?);
            if top.ino == Ino::ROOT {
                return self.count_for(&call, dir, 0);
            }
            if dir.view.parent_word() == holder.view.as_parent() {
                return self.count_for(&call, dir, holder.view.project());
            }
        }
        Err(Error::Invalid("it is moved all the time"))
    }

    /// Gives what lies in directories the number of what it lies in, and so on with the directories that are changed; of
    /// a tree alone where one is named. What is damaged stays as it is.
    fn count_below(&self, ctx: &Ctx, mut waiting: Vec<Ino>, of: Option<u32>) -> Result<()> {
        while let Some(dir) = waiting.pop() {
            let mut failed = Ok(());
            let listed = self.readdir(ctx, Node::current(dir), 0, &mut |entry| {
                match self.with_memory(|| self.count_entry(ctx, dir, entry, of)) {
                    Ok(true) if entry.kind == FileKind::Directory => waiting.push(entry.ino),
                    Ok(_) => {}
                    Err(error) => failed = unless_out_of_reach(Err(error)),
                }
                failed.is_ok()
            });
            failed?;
            unless_out_of_reach(listed)?;
        }
        Ok(())
    }

    /// Gives what a directory names, the top of a tree left aside, the directory's number; says whether that is new.
    fn count_entry(
        &self,
        ctx: &Ctx,
        dir: Ino,
        entry: &DirEntry<'_>,
        of: Option<u32>,
    ) -> Result<bool> {
        let is_wrong = |view: &View<'_>, kind, number| {
            let project = view.project();
            project != number && of.is_none_or(|of| of == project) && !view.is_top(kind)
        };
        let number = self.read_view(ctx.hint, dir, |view, _| Ok(view.project()))?;
        if !self.read_node(ctx.hint, entry.node(), |view, kind| Ok(is_wrong(view, kind, number)))? {
            return Ok(false);
        }
        let call = self.begin(OpKind::Attributes, ctx)?;
        let locks = self.lock_all(&call, &[dir, entry.ino])?;
        let (holder, held) = (among(&locks, Node::current(dir))?, among(&locks, entry.node())?);
        let number = holder.view.project();
        let is_there = self.find_locked(holder, entry.name)?.is_some_and(|at| at.ino == entry.ino);
        if !is_there || !is_wrong(&held.view, held.kind, number) {
            return Ok(false);
        }
        self.count_for(&call, held, number)?;
        Ok(true)
    }

    fn count_for(&self, call: &Call<'_>, locked: &Locked<'_>, project: u32) -> Result<()> {
        self.flush(call, locked)?;
        self.allow(call, project, 0, 0)?;
        self.set_locked(call, locked, &counting_for(project), None)
    }

    /// Ends what still counts for a tree that has no top, as far as the count says that there is any: what has no name,
    /// which is to count for `around`, and what a call that did not end has left, wherever it was moved with the directory
    /// that it lies in.
    fn end_remains(&self, ctx: &Ctx, tree: u32, around: u32) -> Result<()> {
        for sought in [Sought::Nameless, Sought::Named, Sought::Nameless] {
            if self.quota_by_number(tree)?.used.inodes == 0 {
                break;
            }
            match sought {
                Sought::Nameless => self.end_nameless(ctx, tree, around)?,
                Sought::Named => {
                    let all = self.each_of(ctx, |found| found.kind == FileKind::Directory)?;
                    self.count_below(ctx, all, Some(tree))?;
                }
            }
        }
        Ok(())
    }

    fn end_nameless(&self, ctx: &Ctx, tree: u32, around: u32) -> Result<()> {
        let is_left = |found: Found| found.tree == tree && !found.has_name;
        for ino in self.each_of(ctx, is_left)? {
            unless_out_of_reach(self.with_memory(|| {
                let call = self.begin(OpKind::Attributes, ctx)?;
                let locked = self.lock(&call, ino)?;
                let still = is_left(Found::of(&locked.view, locked.kind));
                if still { self.count_for(&call, &locked, around) } else { Ok(()) }
            }))?;
        }
        Ok(())
    }

    /// The inodes of the pool that are such; what is damaged is not.
    fn each_of(&self, ctx: &Ctx, is_such: impl Fn(Found) -> bool) -> Result<Vec<Ino>> {
        let mut all = Vec::new();
        self.each_inode_of(0..u64::MAX, &mut |ino| {
            match self.read_view(ctx.hint, ino, |view, kind| Ok(Found::of(view, kind))) {
                Ok(found) if is_such(found) => all.push(ino),
                Ok(_) => {}
                Err(error) => unless_out_of_reach(Err(error))?,
            }
            Ok(true)
        })?;
        Ok(all)
    }
}

/// What is sought through all of the pool. A file may lose its name meanwhile.
#[derive(Debug, Clone, Copy)]
enum Sought {
    Nameless,
    Named,
}

/// What is asked of an inode that is looked for.
#[derive(Debug, Clone, Copy)]
struct Found {
    kind: FileKind,
    tree: u32,
    has_name: bool,
}

impl Found {
    fn of(view: &View<'_>, kind: FileKind) -> Self {
        Self { kind, tree: view.project(), has_name: view.nlink() > 0 }
    }
}

fn counting_for(tree: u32) -> SetAttr {
    SetAttr { project: Some(tree), ..SetAttr::default() }
}

/// Nothing where the inode is gone by now, or damaged; one that is lost with its slot ends the call, which is made again
/// once the slot is back.
fn unless_out_of_reach(result: Result<()>) -> Result<()> {
    match result {
        Err(Error::Stale | Error::NotFound | Error::NotDirectory | Error::Damaged { .. }) => Ok(()),
        result => result,
    }
}
