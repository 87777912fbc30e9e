//! Lazy rebuild: an inode's view is made from its log when it is first used (NOVA 4.7).
//!
//! By then recovery has run: what the newer commit line says stands, and is durable. Where it ran
//! without storing anything, [`Unrecovered`] has what it would have stored.

use std::ops::Range;
use std::sync::atomic::Ordering;

use novale_arena::Arena;
use novale_layout::{
    Attributes, CommitLine, FileKind, IdentityLine, PAGE, Pair, PmAddr, VolatileLine,
};
use novale_pm::Pm;

use crate::base::error::{Error, Result};
use crate::base::extent::Extent;
use crate::inode::dir_index;
use crate::inode::media::MediaInode;
use crate::inode::pairs::Paired;
use crate::inode::state::{Attrs, InodePlace, LogId, State};
use crate::inode::view::View;
use crate::inode::words::{ParentWord, XattrSet};
use crate::log::redo::RedoFrom;
use crate::log::replay::{Fold, NameSaid, replay};
use crate::log::{FILE_PAGES_MAX, Logged};
use crate::op::unrecovered::Unrecovered;
use crate::seeded::{self, Bug};

/// Loads an inode into its view. The caller holds its lock. Fails with [`Error::Stale`] for one
/// that is not in use.
pub(crate) fn load(
    pm: &Pm,
    arena: &Arena,
    view: &View<'_>,
    pool: &InodePlace,
    unrecovered: &Unrecovered,
    id_of: &dyn Fn(u32) -> LogId,
) -> Result<()> {
    let ino = view.ino();
    let media = MediaInode::read(pm, pool)?;
    if let Some(found) = media.contradiction() {
        return Err(Error::damaged_inode(ino, "commit lines", pool.addr, found));
    }
    let standing = unrecovered.line(pool).map(|line| (line, 0));
    let Some((line, slot)) = standing.or(media.newest()) else {
        if media.is_blank() {
            return Err(Error::Stale);
        }
        return Err(Error::damaged_inode(ino, "commit lines", pool.addr, "neither validates"));
    };
    // One without names is there while it is held: its view may have been dropped.
    if line.nlink == 0 && view.holds().load(Ordering::Relaxed) == 0 {
        return Err(Error::Stale);
    }
    if let Some(error) = media.torn_line().filter(|_| unrecovered.torn_is_damage()) {
        // Recovery leaves none: the newest state may be lost, and its pages be another's.
        return Err(Error::damaged_inode(ino, "commit lines", pool.addr, error));
    }
    let identity = media
        .identity
        .map_err(|error| Error::damaged_inode(ino, "identity line", pool.addr, error))?;
    let parent = view.parent_word();
    reset(arena, view)?;
    if !seeded::is_on(Bug::LoadMarkedLate) {
        // What a load has left that ends midway, by an error or a death, is taken away by its kind.
        view.set_identity(ino, identity.generation, identity.kind, false);
    }
    if identity.kind == FileKind::Directory || line.nlink == 0 {
        // Known since an earlier look-up, though the view was dropped meanwhile; of a file without a
        // name, whether it may get one.
        view.set_parent(parent);
    }
    let is_overlaid = unrecovered.owes(ino);
    let volatile = media.volatile;
    let only_reads = unrecovered.only_reads();
    let said = Said { identity, line, slot, volatile, is_overlaid, only_reads };
    let filled = fill(pm, arena, view, &id_of(identity.generation), &said);
    if filled.is_err() {
        // Others may want the memory that it has taken.
        forget(arena, view)?;
    }
    filled
}

/// What an inode's lines say.
struct Said<'a> {
    identity: IdentityLine,
    /// The line that stands, and where it lies.
    line: &'a CommitLine,
    slot: u8,
    volatile: VolatileLine,
    /// Some bytes are not those of the pages.
    is_overlaid: bool,
    /// Nobody writes to the pool.
    only_reads: bool,
}

/// Fills an empty view, and makes it readable.
fn fill(pm: &Pm, arena: &Arena, view: &View<'_>, id: &LogId, said: &Said<'_>) -> Result<()> {
    let Said { identity, line, volatile, .. } = said;
    let mut attrs = Attrs {
        mode: identity.mode & 0o7777,
        uid: identity.uid,
        gid: identity.gid,
        flags: identity.flags,
        project: identity.project,
        policy: identity.policy,
        xattrs: XattrSet { root: identity.xattr_root, ..XattrSet::default() },
    };
    view.set_atime_ns(identity.birth_ns);
    let has_redo = rebuild(pm, arena, view, id, identity.kind, line, &mut attrs)?;
    attrs.xattrs = match XattrSet::read(pm, id, attrs.xattrs.root) {
        // Who asks for them is refused, and nothing is stored that would lack them. An ACL may be among
        // them: who goes by one asks for it, and lets in the owner alone where it can't be read.
        Err(error) if said.only_reads && error.is_damage() => attrs.xattrs,
        read => read?,
    };
    if identity.kind == FileKind::Directory {
        let names = dir_index::index_names(pm, arena, view)?;
        if names != line.size {
            let found = format!("{names} names, its commit line counts {}", line.size);
            return Err(Error::damaged_inode(view.ino(), "log", line.log_head, found));
        }
    }
    let mut state = State::of_line(line, said.slot);
    state.flags |= if has_redo { State::REDO } else { 0 };
    view.set_state(&state);
    view.set_attrs(&attrs, identity.rdev);
    view.set_birth_ns(identity.birth_ns);
    if volatile.generation == identity.generation && volatile.atime_seq >= view.attr_seq() {
        view.set_atime_ns(volatile.atime_ns);
    }
    view.set_identity(view.ino(), identity.generation, identity.kind, !said.is_overlaid);
    if said.is_overlaid {
        view.set_loaded_beneath();
    }
    Ok(())
}

/// Drops what a view has of its inode, but for what it alone knows. The caller has its lock, and has
/// seen to its spare pages.
pub(crate) fn forget(arena: &Arena, view: &View<'_>) -> Result<()> {
    view.publish(|| {
        let parent = view.parent_word();
        view.set_unloaded();
        reset(arena, view)?;
        view.set_parent(parent);
        // The number's next use reads from media where its last one ended.
        view.set_state(&State { op_seq: 0, ..view.state() });
        Ok(())
    })
}

/// Empties a view for another use of its inode number.
pub(crate) fn reset(arena: &Arena, view: &View<'_>) -> Result<()> {
    view.index().clear(arena)?;
    // Of a file the words hold what is parked, which stays until nobody has it mapped.
    if view.was_directory() {
        view.names().clear(arena)?;
    } else {
        view.end_pairs(arena, 0..FILE_PAGES_MAX, |_| ())?;
    }
    view.set_data_pages(0);
    view.set_log_pages(0);
    view.set_spare(Extent::default());
    view.set_gc_cursor(PmAddr::NULL);
    view.set_attr_seq(0);
    view.set_parent(ParentWord::NONE);
    view.set_next_cookie(0);
    view.set_cut(0, 0);
    view.set_tail_page_seq(0);
    view.forget_verdict();
    Ok(())
}

/// Replays the log into the view's indexes. Says whether the newest operation has redo entries.
fn rebuild(
    pm: &Pm,
    arena: &Arena,
    view: &View<'_>,
    id: &LogId,
    kind: FileKind,
    line: &CommitLine,
    attrs: &mut Attrs,
) -> Result<bool> {
    let last = PmAddr::NULL;
    let op_seq = line.op_seq;
    let has_redo = false;
    let mut rebuild =
        Rebuild { arena, view, op_seq, attrs, has_redo, data_pages: 0, log_pages: 0, last };
    replay(pm, id, Some(kind), line, &mut rebuild)?;
    view.set_data_pages(view.data_pages() + rebuild.data_pages);
    view.set_log_pages(rebuild.log_pages);
    Ok(rebuild.has_redo)
}

/// A log on its way into a view's indexes.
struct Rebuild<'a> {
    arena: &'a Arena,
    view: &'a View<'a>,
    /// The newest operation of the inode.
    op_seq: u64,
    attrs: &'a mut Attrs,
    /// The newest operation has redo entries.
    has_redo: bool,
    /// Pages that the file maps so far; partners the view counts itself.
    data_pages: u64,
    /// Pages of the log so far, and the last of them.
    log_pages: u64,
    last: PmAddr,
}

impl Fold for Rebuild<'_> {
    fn page(&mut self, addr: PmAddr, seq: u64) -> Result<()> {
        let (view, pages) = (self.view, self.log_pages);
        view.set_tail_page_seq(seq);
        // Collection goes on after any page but the tail's, each as likely: from the head each
        // time, it would never come to the rest of a log whose view is dropped often.
        if pages > 0 && scattered(self.op_seq, pages).is_multiple_of(pages + 1) {
            view.set_gc_cursor(self.last);
        }
        (self.log_pages, self.last) = (pages + 1, addr);
        Ok(())
    }

    fn map(&mut self, _at: &Logged<'_>, first: u64, extent: Extent) -> Result<()> {
        let (index, data_pages) = (self.view.index(), &mut self.data_pages);
        *data_pages += extent.pages;
        let (pages, addr) = (first..first + extent.pages, extent.addr.raw());
        index.replace_range(self.arena, pages.clone(), addr, PAGE, &mut |_, _| *data_pages -= 1)?;
        if seeded::is_on(Bug::PairOutlivesPage) {
            return Ok(());
        }
        self.view.end_pairs(self.arena, pages, |_| ())
    }

    fn unmap(&mut self, at: &Logged<'_>, pages: Range<u64>) -> Result<()> {
        if pages.end == FILE_PAGES_MAX {
            self.view.set_cut(at.header.op_seq, pages.start);
        }
        let (index, data_pages) = (self.view.index(), &mut self.data_pages);
        index.remove_range(self.arena, pages.start, pages.end, &mut |_, _| *data_pages -= 1)?;
        self.view.end_pairs(self.arena, pages, |_| ())
    }

    fn pair(&mut self, at: &Logged<'_>, pair: &Pair) -> Result<()> {
        let Pair { file_page, home, partner, word, .. } = *pair;
        let page = file_page.get();
        if self.view.index().get(self.arena, page)? != home.raw() {
            return self.view.end_pairs(self.arena, page..page + 1, |_| ());
        }
        self.view.reserve_known_pair(self.arena, page)?;
        let paired = Paired::new(partner, word, at.header.op_seq);
        self.view.set_pair(self.arena, page, &paired).map(|_freed_long_ago| ())
    }

    fn redo(&mut self, at: &Logged<'_>, _from: RedoFrom<'_>) -> Result<()> {
        // The bytes lie where they belong since recovery, or since the operation ended.
        self.has_redo = at.header.op_seq == self.op_seq;
        Ok(())
    }

    fn attributes(&mut self, at: &Logged<'_>, attributes: &Attributes) -> Result<()> {
        *self.attrs = attrs_of(attributes);
        self.view.set_atime_ns(attributes.atime_ns);
        self.view.set_attr_seq(at.header.op_seq);
        Ok(())
    }

    fn name(&mut self, at: &Logged<'_>, name: &NameSaid<'_>) -> Result<()> {
        self.view.set_next_cookie(self.view.next_cookie().max(name.cookie + 1));
        self.view.index().set(self.arena, name.cookie, at.addr.raw())?;
        Ok(())
    }

    fn unname(&mut self, _at: &Logged<'_>, cookie: u64) -> Result<()> {
        // A cookie comes back only when nothing in the log speaks of it any more.
        self.view.set_next_cookie(self.view.next_cookie().max(cookie + 1));
        dir_index::mark_removed(self.arena, self.view, cookie)
    }
}

/// A number that looks random, the same for the same two.
fn scattered(op_seq: u64, index: u64) -> u64 {
    let mixed = (op_seq ^ index << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 33
}

fn attrs_of(entry: &Attributes) -> Attrs {
    Attrs {
        mode: entry.mode,
        uid: entry.uid,
        gid: entry.gid,
        flags: entry.flags,
        project: entry.project,
        policy: entry.policy,
        xattrs: XattrSet { root: entry.xattr_root, ..XattrSet::default() },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use novale_arena::AtomicU64;
    use novale_pm::PmOptions;

    use super::*;
    use crate::base::types::{NewInode, Node};
    use crate::fixture::{CTX, FILE, MB, NONE, open_refusing};
    use crate::op::call::OpKind;
    use crate::{MkfsOptions, mkfs};

    const NAMES: u64 = 300;

    fn name(number: u64) -> Vec<u8> {
        format!("name {number}").into_bytes()
    }

    /// Memory is refused in the middle of a directory's first load. What had been entered by then stayed, and
    /// the next load entered all again: a removed name led to its file by the second entry.
    #[test]
    fn what_a_first_load_has_entered_that_ends_midway_is_taken_away() {
        let granted = Arc::new(AtomicU64::new(NONE));
        let pm = Pm::anonymous(&[8 * MB], &PmOptions::default()).unwrap();
        mkfs(&pm, &MkfsOptions::numbered(1, 1)).unwrap();
        let mut fs = open_refusing(pm, &granted, false);
        let new = NewInode { kind: FileKind::Directory, ..FILE };
        let dir = fs.create(&CTX, Node::ROOT, b"d", &new).unwrap().ino;
        let node = Node::current(dir);
        for number in 0..NAMES {
            fs.create(&CTX, node, &name(number), &FILE).unwrap();
        }
        for refused in 0..NAMES {
            fs.close().unwrap();
            fs = open_refusing(fs.into_pm(), &granted, false);
            granted.store(refused, Ordering::Relaxed);
            let call = fs.begin_read(OpKind::Load, &CTX).unwrap();
            let loaded = fs.lock(&call, dir).map(drop);
            drop(call);
            if granted.swap(NONE, Ordering::Relaxed) != NONE {
                assert!(refused > 20, "a load asks for memory {refused} times");
                return;
            }
            assert!(matches!(loaded, Err(Error::NoMemory)), "allocation {refused}: {loaded:?}");
            fs.unlink(&CTX, node, &name(refused)).unwrap();
            let found = fs.lookup(&CTX, node, &name(refused)).map(drop);
            assert!(matches!(found, Err(Error::NotFound)), "allocation {refused}: {found:?}");
            let view = fs.views.find(fs.arena(), dir).unwrap().unwrap();
            assert_eq!(view.names().len(), view.size(), "allocation {refused}");
        }
        panic!("a load asks for more memory than it has names");
    }
}
