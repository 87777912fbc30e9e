//! Lazy rebuild: an inode's view is made from its log when it is first used (NOVA 4.7).
//!
//! By then recovery has run: what the newer commit line says stands, and is durable. Where it ran
//! without storing anything, [`Unrecovered`] has what it would have stored.

use std::sync::atomic::Ordering;

use novale_arena::Arena;
use novale_layout::{Attributes, CommitLine, Entry, FileKind, PAGE, PmAddr};
use novale_pm::Pm;

use crate::base::error::{Error, Result};
use crate::inode::dir_index;
use crate::inode::media::MediaInode;
use crate::inode::state::{Attrs, InodePlace, LogId, State};
use crate::inode::view::View;
use crate::inode::words::{ParentWord, XattrSet};
use crate::log;
use crate::log::Item;
use crate::op::unrecovered::Unrecovered;

/// Loads an inode into its view. The caller holds its lock. Fails with [`Error::Stale`] for one
/// that is not in use.
pub(crate) fn load(
    pm: &Pm,
    arena: &Arena,
    view: &View<'_>,
    (pool, unrecovered): (&InodePlace, &Unrecovered),
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
    let id = id_of(identity.generation);
    let parent = view.parent_word();
    reset(arena, view)?;
    if identity.kind == FileKind::Directory || line.nlink == 0 {
        // Known since an earlier look-up, though the view was dropped meanwhile; of a file without a
        // name, whether it may get one.
        view.set_parent(parent);
    }
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
    rebuild(pm, arena, view, (&id, identity.kind), line, &mut attrs)?;
    attrs.xattrs = XattrSet::read(pm, &id, attrs.xattrs.root)?;
    if identity.kind == FileKind::Directory {
        let names = dir_index::index_names(pm, arena, view)?;
        if names != line.size {
            let found = format!("{names} names, its commit line counts {}", line.size);
            return Err(Error::damaged_inode(ino, "log", line.log_head, found));
        }
    }
    view.set_state(&State::of_line(line, slot));
    view.set_attrs(&attrs, identity.rdev);
    view.set_birth_ns(identity.birth_ns);
    let volatile = media.volatile;
    if volatile.generation == identity.generation && volatile.atime_seq >= view.attr_seq() {
        view.set_atime_ns(volatile.atime_ns);
    }
    view.set_identity(ino, identity.generation, identity.kind, true);
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
    }
    view.set_data_pages(0);
    view.set_log_pages(0);
    view.set_spare(PmAddr::NULL, 0);
    view.set_gc_cursor(PmAddr::NULL);
    view.set_attr_seq(0);
    view.set_parent(ParentWord::NONE);
    view.set_next_cookie(0);
    view.set_cut(0, 0);
    view.set_tail_page_seq(0);
    Ok(())
}

/// Replays the log into the view's indexes.
fn rebuild(
    pm: &Pm,
    arena: &Arena,
    view: &View<'_>,
    (id, kind): (&LogId, FileKind),
    line: &CommitLine,
    attrs: &mut Attrs,
) -> Result<()> {
    let mut data_pages = 0_u64;
    let (mut pages, mut last) = (0, PmAddr::NULL);
    log::walk(pm, id, line.log_head, line.log_tail, &mut |item| {
        match item {
            Item::Page { addr, seq } => {
                view.set_log_pages(view.log_pages() + 1);
                view.set_tail_page_seq(seq);
                // Collection goes on behind any page but the tail's, each as likely: from the head each
                // time, it would never come to the rest of a log whose view is dropped often.
                if pages > 0 && scattered(line.op_seq, pages).is_multiple_of(pages + 1) {
                    view.set_gc_cursor(last);
                }
                (pages, last) = (pages + 1, addr);
            }
            Item::Entry { addr, header, entry, .. } => {
                log::check_entry((id.ino, kind, line.op_seq), addr, &header, entry)?;
                if let Entry::Attributes(new) = entry {
                    *attrs = attrs_of(new);
                    view.set_atime_ns(new.atime_ns);
                    view.set_attr_seq(header.op_seq);
                }
                if let Entry::Write { file_page, addr, count: u32::MAX, .. } = entry
                    && addr.is_null()
                {
                    view.set_cut(header.op_seq, file_page.get());
                }
                replay(arena, view, addr, entry, &mut data_pages)?;
            }
        }
        Ok(())
    })?;
    view.set_data_pages(data_pages);
    Ok(())
}

/// A number that looks random, the same for the same two.
fn scattered(op_seq: u64, index: u64) -> u64 {
    let mixed = (op_seq ^ index << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 33
}

/// Replays one entry of an index.
fn replay(
    arena: &Arena,
    view: &View<'_>,
    at: PmAddr,
    entry: &Entry,
    data_pages: &mut u64,
) -> Result<()> {
    let index = view.index();
    match *entry {
        Entry::Write { file_page, addr, count, .. } => {
            let first = file_page.get();
            let end = log::write_end(first, count);
            if addr.is_null() {
                return Ok(index.remove_range(arena, first, end, &mut |_, _| *data_pages -= 1)?);
            }
            *data_pages += u64::from(count);
            Ok(index.replace_range(arena, first..end, addr.raw(), PAGE, &mut |_, _| {
                *data_pages -= 1;
            })?)
        }
        Entry::DentryAdd { cookie, .. } => {
            view.set_next_cookie(view.next_cookie().max(cookie + 1));
            index.set(arena, cookie, at.raw())?;
            Ok(())
        }
        Entry::DentryDelete { cookie, .. } => {
            // A cookie comes back only when nothing in the log speaks of it any more.
            view.set_next_cookie(view.next_cookie().max(cookie + 1));
            dir_index::mark_removed(arena, view, cookie)
        }
        // Words are refused before.
        Entry::Attributes(_) | Entry::Words(_) => Ok(()),
    }
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
