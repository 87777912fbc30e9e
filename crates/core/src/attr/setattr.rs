//! Changes of attributes and of a file's length.
//!
//! One commit: an attributes entry where mode, owner or access time change, a hole entry where
//! pages fall beyond the new end, and the commit line with size, times and link count. A crash
//! leaves all of it or nothing.

use novale_layout::{FileKind, PAGE, PmAddr, RoFeature};
use novale_policy::{Mode, UpdatePolicy};

use crate::attr::xattr::Follow;
use crate::base::error::{Error, Result};
use crate::base::extent::Extents;
use crate::base::types::{Attr, ClearSetId, Ctx, Node, SetAttr};
use crate::fs::Fs;
use crate::inode::state::Attrs;
use crate::inode::view::View;
use crate::log::FILE_PAGES_MAX;
use crate::log::entries::hole_to_end;
use crate::op::call::{Call, OpKind};
use crate::op::file_tx::FileTx;
use crate::op::lock::Locked;
use crate::op::xattr_set::Xattrs;
use crate::seeded::{self, Bug};
use crate::space::Need;
use crate::write::plan::FILE_BYTES_MAX;

impl Fs {
    /// Changes attributes; truncates or extends where `size` is given.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::NoSpace`] before anything changed; [`Error::Invalid`] for the
    /// size of what is no regular file; [`Error::Stale`].
    pub fn setattr(&self, ctx: &Ctx, node: Node, set: &SetAttr) -> Result<Attr> {
        if set.project.is_some_and(|project| project != 0) {
            self.use_feature(ctx, RoFeature::Trees)?;
        }
        let kind = if set.size.is_some() { OpKind::Truncate } else { OpKind::Attributes };
        let call = self.begin(kind, ctx)?;
        let locked = self.lock_node(&call, node)?;
        if set.size.is_some() || set.mtime_ns.is_some() || set.project.is_some() {
            self.flush(&call, &locked)?;
        }
        if let Some(size) = set.size {
            self.check_data(&locked.view, locked.kind)?;
            if size > FILE_BYTES_MAX {
                return Err(Error::TooLarge);
            }
            self.unpark_below(&call, &locked, size)?;
        }
        if let Some(project) = set.project.filter(|project| *project != locked.view.project()) {
            self.allow(&call, project, 0, 0)?;
        }
        // What takes set-id bits away takes these, too, whether there are any bits or not. Directories keep theirs.
        let takes = set.clear_set_id != ClearSetId::Nothing;
        let changes = set.size.is_some() || set.uid.is_some() || set.gid.is_some();
        let drops_capability = locked.kind != FileKind::Directory && (changes || takes);
        let xattrs = self.follow(&locked, Follow { drops_capability, mode: set.mode })?;
        self.set_locked(&call, &locked, set, xattrs)?;
        Ok(locked.view.attr(locked.kind))
    }

    /// Changes attributes, and extended ones where `xattrs` says what they will be.
    pub(crate) fn set_locked(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        set: &SetAttr,
        xattrs: Option<Xattrs>,
    ) -> Result<()> {
        let (view, arena) = (&locked.view, self.arena());
        let attrs = new_attrs(view.attrs(), set, locked.kind);
        let first_dead = set.size.map(|size| size.div_ceil(PAGE));
        let cuts = first_dead.map_or(Ok(None), |page| view.index().next(arena, page))?.is_some();
        first_dead.map_or(Ok(()), |page| self.park_room(view, page))?;
        let mut tx = FileTx::begin(self, call, locked);
        tx.sum(self.is_single(0));
        if attrs != view.attrs() || set.atime_ns.is_some() || xattrs.is_some() {
            tx.change_attrs(attrs, set.atime_ns.unwrap_or(view.atime_ns()), xattrs)?;
        }
        tx.room(usize::from(cuts), Need::Release)?;
        if let Some(size) = set.size {
            tx.zero_gap(size)?;
        }
        if let Some(page) = first_dead.filter(|_| cuts) {
            tx.entry(&hole_to_end(page));
        }
        let next = tx.next();
        next.ctime_ns = call.now_ns;
        if seeded::is_on(Bug::BufferedSizeCommitted) {
            next.size = view.seen_size();
        }
        if let Some(size) = set.size {
            (next.size, next.mtime_ns) = (size, call.now_ns);
        }
        next.mtime_ns = set.mtime_ns.unwrap_or(next.mtime_ns);
        let op_seq = next.op_seq;
        let early = seeded::is_on(Bug::FreedEarly);
        if let Some(page) = first_dead.filter(|_| cuts && early) {
            self.give_early(call, view, page)?;
        }
        tx.commit(|_, freed| {
            let cut = first_dead.filter(|_| cuts && !seeded::is_on(Bug::CutPagesStay));
            let freed = if early { &mut Extents::default() } else { freed };
            cut.map_or(Ok(()), |page| self.cut_index(view, op_seq, page, freed))
        })
    }

    /// Takes the pages from `page` on out of a file's index; they go to `freed`.
    fn cut_index(
        &self,
        view: &View<'_>,
        op_seq: u64,
        page: u64,
        freed: &mut Extents,
    ) -> Result<()> {
        view.set_cut(op_seq, page);
        let (mut cut, mut parked) = (0, Ok(()));
        view.index().remove_range(self.arena(), page, FILE_PAGES_MAX, &mut |page, addr| {
            match self.park(view, page, addr) {
                Ok(true) => {}
                Ok(false) => freed.push_page(PmAddr::from_raw(addr)),
                Err(error) => parked = Err(error),
            }
            cut += 1;
        })?;
        view.set_data_pages(view.data_pages() - cut);
        parked
    }

    /// [`Bug::FreedEarly`]: gives the pages back that a truncation will cut.
    fn give_early(&self, call: &Call<'_>, view: &View<'_>, from: u64) -> Result<()> {
        let mut cut = Extents::default();
        view.index().for_each(self.arena(), &mut |page, addr| {
            if page >= from {
                cut.push_page(PmAddr::from_raw(addr));
            }
        })?;
        self.give(call, &cut)
    }
}

impl View<'_> {
    /// What is told of the inode.
    pub(crate) fn attr(&self, kind: FileKind) -> Attr {
        let state = self.state();
        let attrs = self.attrs();
        let (size, (mtime_ns, ctime_ns)) = if self.is_buffered() {
            (self.seen_size(), self.seen_times())
        } else {
            (state.size, (state.mtime_ns, state.ctime_ns))
        };
        Attr {
            ino: self.ino(),
            generation: self.generation(),
            kind,
            mode: attrs.mode,
            nlink: state.nlink,
            uid: attrs.uid,
            gid: attrs.gid,
            rdev: self.rdev(),
            project: attrs.project,
            size: if kind == FileKind::Directory { size.saturating_mul(64) } else { size },
            // What is only buffered counts: a file without blocks is one hole to who copies it.
            blocks: (self.pages() + self.buffer_counts().0) * 8,
            atime_ns: self.atime_ns(),
            mtime_ns,
            ctime_ns,
            birth_ns: self.birth_ns(),
        }
    }
}

fn new_attrs(old: Attrs, set: &SetAttr, kind: FileKind) -> Attrs {
    let mut attrs = old;
    attrs.mode = set.mode.map_or(old.mode, |mode| mode & 0o7777);
    attrs.uid = set.uid.unwrap_or(old.uid);
    attrs.gid = set.gid.unwrap_or(old.gid);
    attrs.project = set.project.unwrap_or(old.project);
    let policy = set.update.map(|update| update.map_or(0, UpdatePolicy::number));
    let policy = policy.unwrap_or(Mode::without(old.policy));
    // One that only a newer program knows stays, too.
    let mode = old.policy - Mode::without(old.policy);
    let mode = set.mode_of_writes.map_or(mode, |mode| mode.map_or(0, Mode::bits));
    attrs.policy = policy | mode;
    if kind != FileKind::Directory {
        attrs.mode &= !set.clear_set_id.taken_from(attrs.mode);
    }
    attrs
}
