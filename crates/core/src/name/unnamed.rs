//! Files that are made without a name (`O_TMPFILE`), and may get one later.
//!
//! Such a file is to media what a held file is whose last name was removed: its commit lines have no
//! links, so its number and its pages are free to recovery, whatever its log says. A name comes by
//! [`Fs::link`].
//!
//! Crash points. The identity line, the pages of inherited attributes, and a journal record of the file
//! alone, its line without links and log, after one fence. Before and after it the number is free, so
//! that it is all the same which of them a crash keeps. The line comes by a record since a number
//! that was never used has no other line to fall back on: torn by a crash, it would be damage. It is
//! there for the writes to fall back on, for a client that reads the inode again while it is held, and
//! for the numbers: what an earlier use of them left is older. Writes commit as ever, in lines without
//! links. The first name is one journal record, of the directory and of the file with one link, under an
//! op_seq above all of its own lines: before the record is durable there is neither name nor file, after
//! it both. All that the file's line in the record needs was durable before: each commit of the file
//! after its own fence, the identity line after the one here.

use std::sync::atomic::Ordering;

use novale_arena::{HoldSlot, Phase};
use novale_layout::{FileKind, Ino, JournalKind};

use crate::base::error::{Error, Result};
use crate::base::types::{Attr, Ctx, NewInode, Node, Unnamed};
use crate::fs::Fs;
use crate::inode::media;
use crate::inode::state::State;
use crate::inode::view::View;
use crate::inode::words::ParentWord;
use crate::log::covered::no_entries_crc;
use crate::map::hold::HoldId;
use crate::name::create::{Fresh, new_inode};
use crate::op::call::{Call, OpKind};
use crate::op::commit::{Owing, Part};
use crate::op::lock::Locked;
use crate::op::quota::UsageChange;
use crate::seeded::{self, Bug};

impl Fs {
    /// Makes a regular file without a name, held once: it goes with its last [`Fs::release`], unless
    /// [`Fs::link`] has given it a name. It counts for the tree of `dir` and has what is inherited
    /// there, as if it were made in it.
    ///
    /// # Errors
    /// [`Error::NotFound`] when `dir` was removed and is held, [`Error::Stale`] when it is gone,
    /// [`Error::NotDirectory`], [`Error::NoSpace`],
    /// [`Error::QuotaExceeded`], [`Error::Invalid`] for another kind; nothing is changed then.
    pub fn create_unnamed(
        &self,
        ctx: &Ctx,
        dir: Node,
        new: &NewInode<'_>,
        how: Unnamed,
    ) -> Result<Attr> {
        self.make_unnamed(ctx, dir, new, how, None)
    }

    /// As [`Fs::create_unnamed`], with a hold as [`Fs::open_hold`] takes one in place of the one that is nobody's: it
    /// ends with its client.
    ///
    /// # Errors
    /// Those of [`Fs::create_unnamed`]; [`Error::NoMemory`].
    pub fn create_unnamed_held(
        &self,
        ctx: &Ctx,
        dir: Node,
        new: &NewInode<'_>,
        how: Unnamed,
    ) -> Result<(Attr, HoldId)> {
        let slot = self.take_slot(ctx)?;
        match self.make_unnamed(ctx, dir, new, how, Some(slot)) {
            Ok(attr) => Ok((attr, HoldId::new(&self.client.info(), attr.ino, slot))),
            Err(error) => {
                self.give_slot(ctx, slot);
                Err(error)
            }
        }
    }

    fn make_unnamed(
        &self,
        ctx: &Ctx,
        dir: Node,
        new: &NewInode<'_>,
        how: Unnamed,
        slot: Option<HoldSlot>,
    ) -> Result<Attr> {
        if new.kind != FileKind::File {
            return Err(Error::Invalid("only regular files are made without a name"));
        }
        let new = NewInode { rdev: 0, ..*new };
        let call = self.begin(OpKind::Create, ctx)?;
        let ino = self.inodes.take(&self.env(&call), &self.pm, self.seed)?;
        let result = self.create_unnamed_numbered(&call, dir, ino, &new, how, slot);
        if let Err(why) = &result {
            self.give_number(&call, ino, why)?;
        }
        result
    }

    fn create_unnamed_numbered(
        &self,
        call: &Call<'_>,
        dir: Node,
        ino: Ino,
        new: &NewInode<'_>,
        how: Unnamed,
        slot: Option<HoldSlot>,
    ) -> Result<Attr> {
        if ino == dir.ino {
            // Unless it has been removed since, and its number is free.
            self.lock_node(call, dir)?;
            return Err(media::called_free(ino, &self.place(ino)?));
        }
        let (dir, fresh) = self.lock_with_fresh(call, dir, ino)?;
        let held = slot.is_none().into();
        let attr = self.create_unnamed_locked(call, &dir, &fresh, (new, how, held))?;
        if let Some(slot) = slot {
            // What is noted of a hold counts for the one inode that is locked. Nobody comes to the file before.
            drop(dir);
            self.note_hold(call, &fresh.view, HoldId::new(&self.client.info(), ino, slot))?;
        }
        Ok(attr)
    }

    /// Makes the file, with so many holds that are nobody's.
    fn create_unnamed_locked(
        &self,
        call: &Call<'_>,
        dir: &Locked<'_>,
        fresh: &Fresh<'_>,
        (new, how, held): (&NewInode<'_>, Unnamed, u64),
    ) -> Result<Attr> {
        let ino = fresh.ino;
        if dir.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        if dir.view.nlink() == 0 {
            return Err(Error::NotFound);
        }
        self.allow(call, dir.view.project(), 0, 1)?;
        let (mode, xattrs) = self.inherit(call, dir, new.kind, new.mode & 0o7777, how.umask)?;
        let (attrs, change, pending) = new_inode(call, dir, fresh, new, mode, xattrs.set, None);
        let lane = match self.allocator.journal_lane(self.arena(), &call.op, call.hint) {
            Ok(lane) => lane,
            Err(error) => return self.unready_xattrs(call, &xattrs).and(Err(error)),
        };
        // Nothing fails from here on: what is stored past the cache is fenced before it can go.
        let identity = change.identity.unwrap_or([0; 64]);
        let inherited = self.store_inherited(&fresh.id, &xattrs, fresh.next.op_seq);
        let pending = pending.and(inherited);
        let pending = pending.and(change.place.store_identity(&self.pm, &identity));
        let nlink = u32::from(seeded::is_on(Bug::UnnamedLinked));
        let next = State { nlink, ..change.next };
        let mut parts = [Part {
            ino,
            place: change.place,
            next,
            crc: no_entries_crc(change.place.seed, next.op_seq),
            identity: None,
        }];
        // One fence in either form: until it has a name, any part of the file may be lost.
        let owed = Owing { pending, single: true };
        self.commit_many(call, &lane, JournalKind::Create, &mut parts, owed)?.end();
        drop(lane);
        let view = &fresh.view;
        view.publish(|| {
            let [part] = &parts;
            view.set_state(&part.next);
            view.set_attrs(&attrs, 0);
            view.set_birth_ns(call.now_ns);
            view.set_atime_ns(call.now_ns);
            view.set_may_be_named(how.may_be_named);
            view.holds().store(held, Ordering::Relaxed);
            view.set_identity(ino, fresh.id.generation, new.kind, true);
        });
        call.op.clear_notes();
        call.op.set_phase(Phase::Published);
        self.note_kept();
        self.count(attrs.project, UsageChange::whole(view))?;
        self.check_slots(call)?;
        Ok(view.attr(new.kind))
    }
}

impl View<'_> {
    /// Whether an inode without a name may get one, as one that was made without may, once. Said in
    /// the word for a parent, which a file has not: it is its own.
    pub(crate) fn may_be_named(&self) -> bool {
        self.parent() == self.ino()
    }

    /// Says of a file whether it may get its first name.
    pub(crate) fn set_may_be_named(&self, may: bool) {
        self.set_parent(if may { self.as_parent() } else { ParentWord::NONE });
    }
}
