//! Making, linking and removing names.

use novale_arena::{HoldSlot, LockGuard};
use novale_layout::{FileKind, IDENTITY_VERSION, IdentityLine, Ino, JournalKind, PAGE, PmAddr};
use novale_pm::{Flushed, Purpose};

use crate::base::error::{Error, Result};
use crate::base::extent::Extent;
use crate::base::types::{Attr, Ctx, Judged, NewInode, Node};
use crate::fs::Fs;
use crate::inode::dir_index::FoundName;
use crate::inode::media;
use crate::inode::state::{Attrs, InodePlace, LogId, State};
use crate::inode::view::{View, ViewSeen};
use crate::inode::words::{ParentWord, XattrSet};
use crate::log::covered::no_entries_crc;
use crate::log::entries::write_entry;
use crate::log::{Appender, LogRoom, page_crc};
use crate::map::hold::HoldId;
use crate::name::dir;
use crate::name::dir::Stale;
use crate::name::transaction::{Add, DirChange, Few, InodeChange, Ready, few};
use crate::op::call::{Call, OpKind};
use crate::op::lock::Locked;
use crate::op::quota::UsageChange;
use crate::op::{commit, load};
use crate::seeded::{self, Bug};
use crate::space::{Need, Wanted};

/// Of such a directory's names only owners take any away.
const STICKY: u32 = 0o1000;
/// How often an operation looks its names up again because they changed before it had the locks.
pub(crate) const NAME_TRIES: usize = 1 << 16;
const SET_GID: u32 = 0o2000;
const TARGET_BYTES_MAX: usize = 4095;
const PAGE_BYTES: usize = 4096;

/// An inode number that is being given to a new inode, its lock held.
pub(crate) struct Fresh<'a> {
    pub(crate) ino: Ino,
    pub(crate) view: View<'a>,
    place: InodePlace,
    pub(crate) id: LogId,
    pub(crate) next: State,
    _guard: LockGuard<'a>,
}

/// A symlink's target, stored: the state that the commit takes over, the checksum of its entry, and
/// what its fence waits for.
pub(crate) type Target = (State, u32, Flushed);

/// Finds an inode among those locked.
pub(crate) fn among<'a, 'b>(locks: &'b [Locked<'a>], node: Node) -> Result<&'b Locked<'a>> {
    let locked = locks.iter().find(|locked| locked.view.ino() == node.ino).ok_or(Error::Stale)?;
    locked.check_is(node)?;
    Ok(locked)
}

/// What is made in a directory, and what the directory's view said when the name was not there.
struct Making<'a> {
    name: &'a [u8],
    seen: ViewSeen,
    new: &'a NewInode<'a>,
    umask: u32,
}

impl Fs {
    /// Makes an inode of any kind and its first name.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotFound`] when `parent` was removed and is held, [`Error::Stale`]
    /// when it is gone, [`Error::NoSpace`], [`Error::NameTooLong`], [`Error::InvalidName`]; nothing is
    /// changed then.
    pub fn create(&self, ctx: &Ctx, parent: Node, name: &[u8], new: &NewInode<'_>) -> Result<Attr> {
        self.create_with_umask(ctx, parent, name, new, 0)
    }

    /// As [`Fs::create`], without the permissions in `umask` where the directory has no default ACL.
    ///
    /// # Errors
    /// Those of [`Fs::create`].
    pub fn create_with_umask(
        &self,
        ctx: &Ctx,
        parent: Node,
        name: &[u8],
        new: &NewInode<'_>,
        umask: u32,
    ) -> Result<Attr> {
        self.with_memory(|| self.make(ctx, parent, name, new, umask, None))
    }

    /// As [`Fs::create_with_umask`], with a hold of the new inode as [`Fs::open_hold`] takes one: what is
    /// opened as it is made needs no look-up of what was made.
    ///
    /// # Errors
    /// Those of [`Fs::create`]; [`Error::NoMemory`].
    pub fn create_held(
        &self,
        ctx: &Ctx,
        parent: Node,
        name: &[u8],
        new: &NewInode<'_>,
        umask: u32,
    ) -> Result<(Attr, HoldId)> {
        let slot = self.take_slot(ctx)?;
        let made = self.with_memory(|| self.make(ctx, parent, name, new, umask, Some(slot)));
        match made {
            Ok(attr) => Ok((attr, HoldId::new(&self.client.info(), attr.ino, slot))),
            Err(error) => {
                self.give_slot(ctx, slot);
                Err(error)
            }
        }
    }

    fn make(
        &self,
        ctx: &Ctx,
        parent: Node,
        name: &[u8],
        new: &NewInode<'_>,
        umask: u32,
        slot: Option<HoldSlot>,
    ) -> Result<Attr> {
        dir::check_name(name)?;
        if new.target.len() > TARGET_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        if (new.kind == FileKind::Symlink) == new.target.is_empty() {
            return Err(Error::Invalid("a target belongs to a symlink"));
        }
        let call = self.begin(OpKind::Create, ctx)?;
        let (found, seen) = self.find_name_in(&call, parent, name)?;
        if found.is_some() {
            return Err(Error::Exists);
        }
        let ino = self.inodes.take(&self.env(&call), &self.pm, self.seed)?;
        let making = Making { name, seen, new, umask };
        let result = self.create_numbered(&call, parent, ino, &making, slot);
        if let Err(why) = &result {
            self.give_number(&call, ino, why)?;
        }
        result
    }

    fn create_numbered(
        &self,
        call: &Call<'_>,
        parent: Node,
        ino: Ino,
        making: &Making<'_>,
        slot: Option<HoldSlot>,
    ) -> Result<Attr> {
        if ino == parent.ino {
            // Unless it has been removed since, and its number is free.
            self.lock_node(call, parent)?;
            return Err(media::called_free(ino, &self.place(ino)?));
        }
        let (dir, fresh) = self.lock_with_fresh(call, parent, ino)?;
        let attr = self.create_locked(call, &dir, &fresh, making)?;
        if let Some(slot) = slot {
            // What is noted of a hold counts for the one inode that is locked.
            drop(dir);
            self.note_hold(call, &fresh.view, HoldId::new(&self.client.info(), ino, slot))?;
        }
        Ok(attr)
    }

    fn create_locked(
        &self,
        call: &Call<'_>,
        dir: &Locked<'_>,
        fresh: &Fresh<'_>,
        making: &Making<'_>,
    ) -> Result<Attr> {
        let Making { name, seen, new, umask } = *making;
        let ino = fresh.ino;
        if dir.view.seen() != seen && self.find_locked(dir, name)?.is_some() {
            return Err(Error::Exists);
        }
        // The root's link count never falls to 0.
        if dir.view.nlink() == 0 {
            return Err(Error::NotFound);
        }
        let is_dir = new.kind == FileKind::Directory;
        let project = dir.view.project();
        // For the name, which may take a page of the directory, or for the target.
        self.allow(call, project, 1, 1)?;
        let changes = [DirChange {
            dir,
            removes: Few::new(),
            adds: few([Add { name, ino, generation: fresh.id.generation, kind: new.kind }]),
            subdirs: i32::from(is_dir),
        }];
        let (mode, xattrs) = self.inherit(call, dir, new.kind, new.mode & 0o7777, umask)?;
        let (ready, target) = match self.ready_new(call, &changes, fresh, new.target) {
            Ok(ready) => ready,
            Err(error) => return self.unready_xattrs(call, &xattrs).and(Err(error)),
        };
        let mut inherited = self.store_inherited(&fresh.id, &xattrs, fresh.next.op_seq);
        if xattrs.has_pages() && self.is_single(0) {
            // The other form has a fence before the record.
            self.pm.fence(std::mem::replace(&mut inherited, Flushed::none())).end();
        }
        let (attrs, inode, pending) = new_inode(call, dir, fresh, new, mode, xattrs.set, target);
        let mut pending = pending.and(inherited);
        if is_dir {
            pending = pending.and(self.store_parent(&fresh.place, dir.view.ino()));
        }
        self.commit_names(call, JournalKind::Create, &changes, ready, &[inode], pending)?;
        let view = &fresh.view;
        view.publish(|| {
            view.set_attrs(&attrs, new.rdev);
            view.set_birth_ns(call.now_ns);
            view.set_atime_ns(call.now_ns);
            view.set_parent(if is_dir { dir.view.as_parent() } else { ParentWord::NONE });
            view.set_identity(ino, fresh.id.generation, new.kind, true);
        });
        if new.kind == FileKind::File {
            self.expect_as_before(&dir.view, view, call.now_ns);
        }
        self.count(project, UsageChange::whole(view))?;
        self.check_slots(call)?;
        Ok(view.attr(new.kind))
    }

    /// Room for a new inode's name, and a symlink's target stored.
    fn ready_new(
        &self,
        call: &Call<'_>,
        changes: &[DirChange<'_>],
        fresh: &Fresh<'_>,
        target: &[u8],
    ) -> Result<(Few<Ready>, Option<Target>)> {
        let ready = self.ready(call, changes)?;
        match self.store_target(call, fresh, target) {
            Ok(target) => Ok((ready, target)),
            Err(error) => self.unready(call, ready).and(Err(error)),
        }
    }

    /// Locks a directory and a number for a new inode, in the order of inode numbers.
    pub(crate) fn lock_with_fresh<'a>(
        &'a self,
        call: &'a Call<'_>,
        dir: Node,
        ino: Ino,
    ) -> Result<(Locked<'a>, Fresh<'a>)> {
        if ino < dir.ino {
            let fresh = self.lock_fresh(call, ino)?;
            return Ok((self.lock_node(call, dir)?, fresh));
        }
        let dir = self.lock_node(call, dir)?;
        Ok((dir, self.lock_fresh(call, ino)?))
    }

    fn lock_fresh<'a>(&'a self, call: &'a Call<'_>, ino: Ino) -> Result<Fresh<'a>> {
        let place = self.place(ino)?;
        let (view, guard) = self.lock_view(call, ino, None, true)?;
        if view.kind().is_some() {
            return Err(media::called_free(ino, &place));
        }
        // A number used since this pool was opened has its last state in its view.
        if view.op_seq() == 0 {
            let (last, generation) = media::free_inode(&self.pm, &place, ino, self.session)?;
            view.set_state(&last);
            view.set_identity(ino, generation, FileKind::File, false);
        }
        let (last, generation) = (view.state(), view.generation());
        media::check_numbers(ino, &place, last.op_seq, 0)?;
        load::reset(self.arena(), &view)?;
        let next = State {
            op_seq: if seeded::is_on(Bug::NumbersAnew) {
                State { op_seq: 0, ..last }.next_op_seq(self.session)
            } else {
                last.next_op_seq(self.session)
            },
            log_head: PmAddr::NULL,
            log_tail: PmAddr::NULL,
            size: 0,
            mtime_ns: 0,
            ctime_ns: 0,
            nlink: 1,
            slot: last.slot,
            flags: 0,
        };
        // The log is appended to from this state on.
        view.publish(|| {
            view.set_state(&State { nlink: 0, op_seq: last.op_seq, ..next });
        });
        let id = self.log_id(ino, generation.wrapping_add(1).max(1));
        Ok(Fresh { ino, view, place, id, next, _guard: guard })
    }

    /// Stores a symlink's target: a page and the entry that maps it.
    fn store_target(
        &self,
        call: &Call<'_>,
        fresh: &Fresh<'_>,
        target: &[u8],
    ) -> Result<Option<Target>> {
        if target.is_empty() {
            return Ok(None);
        }
        let (view, arena) = (&fresh.view, self.arena());
        view.index().reserve(arena, 0, 1)?;
        let env = self.env(call);
        let room = LogRoom::make(&env, view, std::iter::once(1), Need::Growth)?;
        let page =
            match self.allocator.take(arena, &call.op, call.hint, Wanted::once(1), Need::Growth) {
                Ok(extent) => extent.addr,
                Err(error) => {
                    room.give_back(&env)?;
                    return Err(error);
                }
            };
        let mut bytes = [0; PAGE_BYTES];
        if let Some(place) = bytes.get_mut(..target.len()) {
            place.copy_from_slice(target);
        }
        let stored = self.pm.stream(page, &bytes, Purpose::Data);
        let mut next = fresh.next;
        let mut writer = Appender::new(&self.pm, fresh.id, self.session, view, next.op_seq, room);
        writer.push(&write_entry(0, Extent { addr: page, pages: 1 }));
        writer.cover_page(page_crc(&bytes));
        let mut appended = writer.finish();
        Locked::apply_log(&mut next, &appended);
        next.size = target.len() as u64;
        let pending = std::mem::replace(&mut appended.pending, Flushed::none());
        // Nobody reads the view before the commit: it is not loaded.
        appended.publish(view);
        view.index().set(arena, 0, page.raw())?;
        view.set_data_pages(1);
        debug_assert_eq!(page.byte() % PAGE, 0);
        Ok(Some((next, appended.crc, pending.and(stored))))
    }

    /// Gives an inode a further name, or one that was made without ([`Fs::create_unnamed`]) its first.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for a directory, [`Error::Exists`], [`Error::TooManyLinks`],
    /// [`Error::QuotaExceeded`], [`Error::NotFound`] for an inode whose last name was removed; [`Error::Stale`] when it or
    /// `parent` is gone.
    pub fn link(&self, ctx: &Ctx, node: Node, parent: Node, name: &[u8]) -> Result<Attr> {
        self.with_memory(|| self.link_once(ctx, node, parent, name))
    }

    fn link_once(&self, ctx: &Ctx, node: Node, parent: Node, name: &[u8]) -> Result<Attr> {
        dir::check_name(name)?;
        let call = self.begin(OpKind::Link, ctx)?;
        let ino = node.ino;
        let locks = self.lock_all(&call, &[ino, parent.ino])?;
        let (inode, dir) = (among(&locks, node)?, among(&locks, parent)?);
        if inode.kind == FileKind::Directory {
            return Err(Error::NotPermitted("a directory has one name"));
        }
        let nlink = inode.view.nlink();
        let may_be_named = nlink > 0 || inode.view.may_be_named();
        if !may_be_named || (dir.kind == FileKind::Directory && dir.view.nlink() == 0) {
            return Err(Error::NotFound);
        }
        if nlink == u32::MAX {
            return Err(Error::TooManyLinks);
        }
        if self.find_locked(dir, name)?.is_some() {
            return Err(Error::Exists);
        }
        if inode.view.project() != dir.view.project() {
            return Err(Error::OtherTree);
        }
        self.allow(&call, dir.view.project(), 1, 0)?;
        self.flush(&call, inode)?;
        let changes = [DirChange {
            dir,
            removes: Few::new(),
            adds: few([Add { name, ino, generation: inode.id.generation, kind: inode.kind }]),
            subdirs: 0,
        }];
        if seeded::is_on(Bug::LinkCountInPlace) {
            commit::raise_links_in_place(&self.pm, self.session, &inode.place, &inode.view.state());
        }
        let ready = self.ready(&call, &changes)?;
        let change = InodeChange::links(inode, ctx.now_ns, nlink + 1);
        self.commit_names(&call, JournalKind::Link, &changes, ready, &[change], Flushed::none())?;
        if nlink == 0 {
            self.note_named();
        }
        inode.view.set_may_be_named(false);
        self.check_slots(&call)?;
        Ok(inode.view.attr(inode.kind))
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsDirectory`]; [`Error::Stale`] when `parent` is gone.
    pub fn unlink(&self, ctx: &Ctx, parent: Node, name: &[u8]) -> Result<()> {
        self.with_memory(|| self.remove(ctx, parent, name, (false, None))).map(drop)
    }

    /// As [`Fs::unlink`], or [`Fs::rmdir`] of a directory, for a kernel that has judged what the name led to.
    ///
    /// # Errors
    /// Those of [`Fs::unlink`] and [`Fs::rmdir`]; [`Error::Stale`] where the directory is sticky and the name leads to something
    /// else by now.
    pub fn remove_judged(
        &self,
        ctx: &Ctx,
        parent: Node,
        name: &[u8],
        directory: bool,
        judged: Judged,
    ) -> Result<()> {
        self.with_memory(|| self.remove(ctx, parent, name, (directory, judged))).map(drop)
    }

    /// As [`Fs::unlink`], or [`Fs::rmdir`] of a directory, for a client without a kernel: says whether a kernel may
    /// know the inode, by this name among others ([`Fs::is_known_to_kernel`]).
    ///
    /// # Errors
    /// Those of [`Fs::unlink`] and [`Fs::rmdir`].
    pub fn remove_besides_kernel(
        &self,
        ctx: &Ctx,
        parent: Node,
        name: &[u8],
        directory: bool,
    ) -> Result<bool> {
        let removed = self.with_memory(|| self.remove(ctx, parent, name, (directory, None)))?;
        Ok(removed.is_some_and(|ino| self.is_known_to_kernel(ctx, ino).is_ok_and(|known| known)))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`], [`Error::NotEmpty`]; [`Error::Stale`] when
    /// `parent` is gone.
    pub fn rmdir(&self, ctx: &Ctx, parent: Node, name: &[u8]) -> Result<()> {
        self.with_memory(|| self.remove(ctx, parent, name, (true, None))).map(drop)
    }

    /// Removes a name; says which inode it was of where that is held.
    fn remove(
        &self,
        ctx: &Ctx,
        parent: Node,
        name: &[u8],
        (directory, judged): (bool, Judged),
    ) -> Result<Option<Ino>> {
        dir::check_name(name)?;
        let call = self.begin(OpKind::Unlink, ctx)?;
        let mut stale = Stale::default();
        for _ in 0..NAME_TRIES {
            let (found, seen) = self.find_name_in(&call, parent, name)?;
            let found = found.ok_or(Error::NotFound)?;
            let locks = match self.lock_all(&call, &[parent.ino, found.ino]) {
                Ok(locks) => locks,
                // Removed by another meanwhile, or a parent that is gone.
                Err(Error::Stale) => {
                    stale.meet(&found)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let dir = among(&locks, parent)?;
            let same = dir.view.seen() == seen;
            let now = if same { Some(found) } else { self.find_locked(dir, name)? };
            match now {
                Some(now) if now.ino == found.ino => {
                    let inode = among(&locks, now.node())?;
                    now.check(dir, inode)?;
                    is_as_judged(dir, judged, Some(now.ino))?;
                    self.remove_locked(&call, dir, name, now, inode, directory)?;
                    return Ok(is_held(inode).then_some(now.ino));
                }
                _ => {}
            }
        }
        Err(Error::NotFound)
    }

    fn remove_locked(
        &self,
        call: &Call<'_>,
        dir: &Locked<'_>,
        name: &[u8],
        found: FoundName,
        inode: &Locked<'_>,
        directory: bool,
    ) -> Result<()> {
        let is_dir = inode.kind == FileKind::Directory;
        match (directory, is_dir) {
            (true, false) => return Err(Error::NotDirectory),
            (false, true) => return Err(Error::IsDirectory),
            (true, true) if inode.view.size() != 0 => return Err(Error::NotEmpty),
            _ => {}
        }
        let changes = [DirChange {
            dir,
            removes: few([(name, found)]),
            adds: Few::new(),
            subdirs: -i32::from(is_dir),
        }];
        let ready = self.ready(call, &changes)?;
        let change = unlinked(inode, call.now_ns);
        let gone = change.next.nlink == 0;
        self.commit_names(call, JournalKind::Unlink, &changes, ready, &[change], Flushed::none())?;
        // What a line that is lost still names is freed by the next opening.
        self.check_slots(call)?;
        self.reclaim_if(call, inode, gone)
    }

    /// Gives a number back that no inode was made of. One that is not free after all is kept out of use,
    /// or each create would meet it.
    pub(crate) fn give_number(&self, call: &Call<'_>, ino: Ino, why: &Error) -> Result<()> {
        if why.is_damage() && self.lock_fresh(call, ino).is_err() {
            return Ok(());
        }
        self.inodes.give(&self.env(call), ino)
    }

    /// Frees an inode that has lost its last name, unless it is held. The commit is durable, so a log
    /// that can't be read does not make the operation fail: closing the pool frees what is left, or the
    /// next opening.
    pub(crate) fn reclaim_if(&self, call: &Call<'_>, inode: &Locked<'_>, gone: bool) -> Result<()> {
        match (gone, is_held(inode)) {
            (true, false) => match self.reclaim(call, inode) {
                Err(error) if error.is_damage() => Ok(()),
                reclaimed => reclaimed,
            },
            (true, true) => {
                self.note_kept();
                Ok(())
            }
            (false, _) => Ok(()),
        }
    }
}

/// Refuses to go on where a kernel has judged something else, and what a name leads to counts for who may take it
/// away: in a sticky directory.
pub(super) fn is_as_judged(dir: &Locked<'_>, judged: Judged, now: Option<Ino>) -> Result<()> {
    let is_other = judged.is_some_and(|judged| judged != now);
    if is_other && dir.view.mode_bits() & STICKY != 0 { Err(Error::Stale) } else { Ok(()) }
}

fn is_held(inode: &Locked<'_>) -> bool {
    inode.view.holds().load(std::sync::atomic::Ordering::Relaxed) > 0
}

/// A new inode's attributes, and its share of the commit with its identity line.
pub(crate) fn new_inode<'a>(
    call: &Call<'_>,
    dir: &Locked<'_>,
    fresh: &Fresh<'a>,
    new: &NewInode<'_>,
    mut mode: u32,
    xattrs: XattrSet,
    target: Option<Target>,
) -> (Attrs, InodeChange<'a>, Flushed) {
    let parent = dir.view.attrs();
    let inherits = parent.mode & SET_GID != 0;
    let is_dir = new.kind == FileKind::Directory;
    if inherits && is_dir {
        mode |= SET_GID;
    }
    let attrs = Attrs {
        mode,
        uid: new.uid,
        gid: if inherits { parent.gid } else { new.gid },
        flags: 0,
        project: parent.project,
        policy: if is_dir || new.kind == FileKind::File { parent.policy } else { 0 },
        xattrs,
    };
    let line = IdentityLine {
        version: IDENTITY_VERSION,
        kind: new.kind,
        policy: attrs.policy,
        ino: fresh.ino,
        generation: fresh.id.generation,
        mode: attrs.mode,
        uid: attrs.uid,
        gid: attrs.gid,
        birth_ns: call.now_ns,
        rdev: new.rdev,
        flags: attrs.flags,
        project: attrs.project,
        xattr_root: attrs.xattrs.root,
    };
    let none = (fresh.next, no_entries_crc(fresh.id.seed, fresh.next.op_seq), Flushed::none());
    let (mut next, crc, pending) = target.unwrap_or(none);
    next.nlink = if is_dir { 2 } else { 1 };
    next.mtime_ns = call.now_ns;
    next.ctime_ns = call.now_ns;
    let identity = Some(line.encode(fresh.place.seed));
    let (view, place) = (fresh.view, fresh.place);
    (attrs, InodeChange { view, place, next, crc, identity }, pending)
}

/// An inode with one name less; a directory has none then.
pub(crate) fn unlinked<'a>(inode: &Locked<'a>, now_ns: i64) -> InodeChange<'a> {
    let nlink = inode.view.nlink();
    let left = if inode.kind == FileKind::Directory { 0 } else { nlink.saturating_sub(1) };
    InodeChange::links(inode, now_ns, left)
}
