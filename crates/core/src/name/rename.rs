//! Renaming and exchanging.
//!
//! Moving a directory to another parent takes the pool's rename lock first, so that no two moves
//! can make a circle; then the inodes are locked by number, and the names looked up again.

use novale_layout::{FileKind, Ino, JournalKind};
use novale_pm::Flushed;

use crate::base::error::{Error, Result};
use crate::base::types::{Ctx, Judged, Node, RenameMode};
use crate::fs::Fs;
use crate::inode::dir_index::FoundName;
use crate::name::create::{NAME_TRIES, among, is_as_judged, unlinked};
use crate::name::dir;
use crate::name::dir::Stale;
use crate::name::transaction::{Add, DirChange, Few, InodeChange, few};
use crate::op::call::{Call, OpKind};
use crate::op::lock::Locked;
use crate::seeded::{self, Bug};

/// Directories between one and the root, at most.
const DEPTH_MAX: usize = 1 << 20;

/// A name in a directory.
#[derive(Debug, Clone, Copy)]
struct Side<'a> {
    parent: Node,
    name: &'a [u8],
    judged: Judged,
}

/// The two names of a rename as they were looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pair {
    from: FoundName,
    to: Option<FoundName>,
}

impl Pair {
    fn is_as_judged(
        self,
        (old, from): (&Locked<'_>, Side<'_>),
        (new, to): (&Locked<'_>, Side<'_>),
    ) -> Result<()> {
        is_as_judged(old, from.judged, Some(self.from.ino))?;
        is_as_judged(new, to.judged, self.to.map(|target| target.ino))
    }
}

/// How a try to rename ended.
enum Tried {
    Done,
    /// Another operation changed the names before the locks were held.
    Changed,
    /// An inode was not in use any more.
    Gone,
}

/// A name of a directory and what it leads to, both locked.
#[derive(Clone, Copy)]
struct Named<'a> {
    dir: &'a Locked<'a>,
    name: &'a [u8],
    found: FoundName,
    inode: &'a Locked<'a>,
}

impl Fs {
    /// Gives what `name` in `parent` leads to the name `new_name` in `new_parent`.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Exists`] with [`RenameMode::NoReplace`],
    /// [`Error::NotDirectory`], [`Error::IsDirectory`] or [`Error::NotEmpty`] for what can't be
    /// replaced, [`Error::Invalid`] for a directory moved below itself, [`Error::NoSpace`];
    /// [`Error::Stale`] when a parent is gone.
    pub fn rename(
        &self,
        ctx: &Ctx,
        parent: Node,
        name: &[u8],
        new_parent: Node,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        let (from, to) = ((parent, name), (new_parent, new_name));
        self.rename_judged(ctx, from, to, mode, [None; 2])
    }

    /// As [`Fs::rename`], for a kernel that has judged what the two names led to.
    ///
    /// # Errors
    /// Those of [`Fs::rename`]; [`Error::Stale`] where one of them leads to something else by now, in a
    /// sticky directory.
    pub fn rename_judged(
        &self,
        ctx: &Ctx,
        (parent, name): (Node, &[u8]),
        (new_parent, new_name): (Node, &[u8]),
        mode: RenameMode,
        judged: [Judged; 2],
    ) -> Result<()> {
        dir::check_name(name)?;
        dir::check_name(new_name)?;
        let [from, to] = [(parent, name, judged[0]), (new_parent, new_name, judged[1])]
            .map(|(parent, name, judged)| Side { parent, name, judged });
        self.with_memory(|| self.rename_once(ctx, from, to, mode))
    }

    fn rename_once(&self, ctx: &Ctx, from: Side<'_>, to: Side<'_>, mode: RenameMode) -> Result<()> {
        let call = self.begin(OpKind::Rename, ctx)?;
        let mut stale = [Stale::default(), Stale::default()];
        for _ in 0..NAME_TRIES {
            let pair = self.find_pair(&call, from, to)?;
            match self.rename_found(&call, from, to, pair, mode)? {
                Tried::Done => return Ok(()),
                Tried::Changed => {}
                Tried::Gone => {
                    for (stale, found) in stale.iter_mut().zip([Some(pair.from), pair.to]) {
                        let gone = |found: &FoundName| {
                            matches!(self.lock(&call, found.ino), Err(Error::Stale))
                        };
                        found.filter(gone).map_or(Ok(()), |found| stale.meet(&found))?;
                    }
                }
            }
        }
        Err(Error::NotFound)
    }

    fn find_pair(&self, call: &Call<'_>, from: Side<'_>, to: Side<'_>) -> Result<Pair> {
        let found = self.find_name(call, from.parent, from.name)?.ok_or(Error::NotFound)?;
        Ok(Pair { from: found, to: self.find_name(call, to.parent, to.name)? })
    }

    /// Renames, unless the names changed before the locks were held.
    fn rename_found(
        &self,
        call: &Call<'_>,
        from: Side<'_>,
        to: Side<'_>,
        pair: Pair,
        mode: RenameMode,
    ) -> Result<Tried> {
        match (mode, pair.to) {
            (RenameMode::NoReplace, Some(_)) => return Err(Error::Exists),
            (RenameMode::Exchange, None) => return Err(Error::NotFound),
            _ => {}
        }
        let is_dir = |found: FoundName| found.kind == FileKind::Directory;
        let moves_dir =
            is_dir(pair.from) || (mode == RenameMode::Exchange && pair.to.is_some_and(is_dir));
        let across = from.parent.ino != to.parent.ino;
        let _moving =
            if moves_dir && across { Some(call.op.lock(self.rename_lock)?) } else { None };
        if across && is_dir(pair.from) && self.is_below(call, to.parent, pair.from.ino)? {
            return Err(Error::Invalid("a directory can't be moved below itself"));
        }
        if across
            && let Some(target) =
                pair.to.filter(|target| mode == RenameMode::Exchange && is_dir(*target))
            && self.is_below(call, from.parent, target.ino)?
        {
            return Err(Error::Invalid("a directory can't be moved below itself"));
        }
        let mut inos = vec![from.parent.ino, to.parent.ino, pair.from.ino];
        inos.extend(pair.to.map(|target| target.ino));
        let locks = match self.lock_all(call, &inos) {
            Ok(locks) => locks,
            Err(Error::Stale) => return Ok(Tried::Gone),
            Err(error) => return Err(error),
        };
        let old = among(&locks, from.parent)?;
        let new = among(&locks, to.parent)?;
        let now = (self.find_locked(old, from.name)?, self.find_locked(new, to.name)?);
        if now != (Some(pair.from), pair.to) {
            return Ok(Tried::Changed);
        }
        pair.is_as_judged((old, from), (new, to))?;
        if pair.to.is_some_and(|target| target.ino == pair.from.ino) {
            // Two names of one inode: nothing to do, but only now are they known to be two.
            return Ok(Tried::Done);
        }
        if new.view.nlink() == 0 {
            return Err(Error::NotFound);
        }
        let moved = among(&locks, pair.from.node())?;
        let first = Named { dir: old, name: from.name, found: pair.from, inode: moved };
        let named = |found: FoundName| {
            let inode = among(&locks, found.node())?;
            Ok::<_, Error>(Named { dir: new, name: to.name, found, inode })
        };
        let target = pair.to.map(named).transpose()?;
        pair.from.check(old, moved)?;
        target.map_or(Ok(()), |target| target.found.check(new, target.inode))?;
        stay_in_tree(moved, old, new)?;
        let target_inode = target.as_ref().map(|target| target.inode);
        self.flush_renamed(call, moved, target_inode, mode)?;
        match (mode, target) {
            (RenameMode::Exchange, Some(target)) => {
                stay_in_tree(target.inode, new, old)?;
                self.exchange(call, first, target)?;
            }
            _ => self.replace(call, first, new, to.name, target)?,
        }
        Ok(Tried::Done)
    }

    /// The file that a name leads to from now on is not to be older than what it led to.
    fn flush_renamed(
        &self,
        call: &Call<'_>,
        moved: &Locked<'_>,
        target: Option<&Locked<'_>>,
        mode: RenameMode,
    ) -> Result<()> {
        let Some(target) = target.filter(|_| !seeded::is_on(Bug::RenameNotFlushed)) else {
            return Ok(());
        };
        self.flush(call, moved)?;
        if mode == RenameMode::Exchange { self.flush(call, target) } else { Ok(()) }
    }

    /// Whether `ino` is `above` or lies below it.
    fn is_below(&self, call: &Call<'_>, node: Node, above: Ino) -> Result<bool> {
        let mut at = node;
        for _ in 0..DEPTH_MAX {
            if at.ino == above {
                return Ok(true);
            }
            if at.ino == Ino::ROOT {
                return Ok(false);
            }
            at = self.parent_by(call, at)?;
        }
        Err(Error::damaged_inode(
            node.ino,
            "parents",
            self.place(node.ino)?.addr,
            "they run in a circle",
        ))
    }

    fn replace(
        &self,
        call: &Call<'_>,
        from: Named<'_>,
        new: &Locked<'_>,
        new_name: &[u8],
        victim: Option<Named<'_>>,
    ) -> Result<()> {
        let Named { dir: old, name, found, inode: moved } = from;
        let is_dir = i32::from(moved.kind == FileKind::Directory);
        let mut victim_dir = 0;
        if let Some(Named { inode: victim, .. }) = victim {
            match (moved.kind == FileKind::Directory, victim.kind == FileKind::Directory) {
                (true, false) => return Err(Error::NotDirectory),
                (false, true) => return Err(Error::IsDirectory),
                (true, true) if victim.view.size() != 0 => return Err(Error::NotEmpty),
                (true, true) => victim_dir = 1,
                (false, false) => {}
            }
        }
        let add = add_of(new_name, moved);
        let mut removes = few([(name, found)]);
        let victim_name = victim.map(|victim| (victim.name, victim.found));
        let changes = if old.view.off() == new.view.off() {
            removes.extend(victim_name);
            few([DirChange { dir: old, removes, adds: few([add]), subdirs: -victim_dir }])
        } else {
            few([
                DirChange {
                    dir: old,
                    removes,
                    adds: Few::new(),
                    subdirs: if seeded::is_on(Bug::ParentKeepsCount) { 0 } else { -is_dir },
                },
                DirChange {
                    dir: new,
                    removes: few(victim_name),
                    adds: few([add]),
                    subdirs: is_dir - victim_dir,
                },
            ])
        };
        let mut changes = &changes[..];
        if let [apart, _] = changes
            && seeded::is_on(Bug::RenameInTwo)
        {
            let apart = std::slice::from_ref(apart);
            let ready = self.ready(call, apart)?;
            self.commit_names(call, JournalKind::Rename, apart, ready, &[], Flushed::none())?;
            changes = changes.get(1..).unwrap_or_default();
        }
        let ready = self.ready(call, changes)?;
        let mut inodes = few([InodeChange::links(moved, call.now_ns, moved.view.nlink())]);
        inodes.extend(victim.map(|victim| unlinked(victim.inode, call.now_ns)));
        let gone = inodes.get(1).is_some_and(|victim| victim.next.nlink == 0);
        let across = old.view.off() != new.view.off();
        let pending = self.store_parents(&[(moved, new)], across);
        self.commit_names(call, JournalKind::Rename, changes, ready, &inodes, pending)?;
        if is_dir == 1 {
            moved.view.set_parent(new.view.as_parent());
        }
        self.check_slots(call)?;
        match victim {
            Some(victim) => self.reclaim_if(call, victim.inode, gone),
            None => Ok(()),
        }
    }

    /// Stores the hints of directories that get another parent, where that is `across` directories.
    fn store_parents(&self, places: &[(&Locked<'_>, &Locked<'_>)], across: bool) -> Flushed {
        let moves =
            |(inode, _): &&(&Locked<'_>, &Locked<'_>)| across && inode.kind == FileKind::Directory;
        places.iter().filter(moves).fold(Flushed::none(), |pending, (inode, parent)| {
            pending.and(self.store_parent(&inode.place, parent.view.ino()))
        })
    }

    fn exchange(&self, call: &Call<'_>, from: Named<'_>, to: Named<'_>) -> Result<()> {
        let Named { dir: old, name, found: first_found, inode: first } = from;
        let Named { dir: new, name: new_name, found: second_found, inode: second } = to;
        let is_dir = |inode: &Locked<'_>| i32::from(inode.kind == FileKind::Directory);
        let shift = is_dir(second) - is_dir(first);
        let (first_remove, second_remove) = ((name, first_found), (new_name, second_found));
        let (first_add, second_add) = (add_of(new_name, first), add_of(name, second));
        let changes = if old.view.off() == new.view.off() {
            let (removes, adds) =
                (few([first_remove, second_remove]), few([first_add, second_add]));
            few([DirChange { dir: old, removes, adds, subdirs: 0 }])
        } else {
            few([
                DirChange {
                    dir: old,
                    removes: few([first_remove]),
                    adds: few([second_add]),
                    subdirs: shift,
                },
                DirChange {
                    dir: new,
                    removes: few([second_remove]),
                    adds: few([first_add]),
                    subdirs: -shift,
                },
            ])
        };
        let ready = self.ready(call, &changes)?;
        let inodes =
            [first, second].map(|inode| InodeChange::links(inode, call.now_ns, inode.view.nlink()));
        let places = [(first, new), (second, old)];
        let pending = self.store_parents(&places, old.view.off() != new.view.off());
        self.commit_names(call, JournalKind::Exchange, &changes, ready, &inodes, pending)?;
        for (inode, parent) in places {
            if inode.kind == FileKind::Directory {
                inode.view.set_parent(parent.view.as_parent());
            }
        }
        self.check_slots(call)
    }
}

/// Refuses to move what counts for its directory's tree to a directory of another one, and to move or rename what does not
/// count for it: who goes through a tree that begins or ends to count finds it by its name. The top of a tree may be
/// moved anywhere.
fn stay_in_tree(moved: &Locked<'_>, old: &Locked<'_>, new: &Locked<'_>) -> Result<()> {
    let project = moved.view.project();
    let stays = [old, new].iter().all(|dir| dir.view.project() == project);
    if stays || moved.view.is_top(moved.kind) { Ok(()) } else { Err(Error::OtherTree) }
}

fn add_of<'a>(name: &'a [u8], inode: &Locked<'_>) -> Add<'a> {
    Add { name, ino: inode.view.ino(), generation: inode.id.generation, kind: inode.kind }
}
