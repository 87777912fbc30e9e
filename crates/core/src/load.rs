//! Lazy rebuild: an inode's view is made from its log when it is first used (NOVA 4.7).
//!
//! By then recovery has run: what the newer commit line says stands, and is durable. Where it ran
//! without storing anything, [`Unrecovered`] has what it would have stored.

use std::sync::atomic::Ordering;

use novale_arena::Arena;
use novale_layout::{
    Attributes, COMMIT_OFFSETS, CommitLine, DentryRef, Entry, FileKind, IDENTITY_OFFSET,
    IdentityLine, Ino, LayoutError, PAGE, PmAddr, SEQ_RISE_LIMIT, VOLATILE_OFFSET, VolatileLine,
};
use novale_pm::Pm;

use crate::commit::InodePlace;
use crate::dir;
use crate::error::{Error, Result};
use crate::log::{self, Item, LogId};
use crate::parent::ParentWord;
use crate::recover::unrecovered::Unrecovered;
use crate::view::{Attrs, State, View};
use crate::xattr::set::XattrSet;

/// Generations of a number that a session is not expected to use up, as a power of two.
const GENERATIONS_LOG2: u32 = 12;

/// An inode's lines as they lie on media, checked one by one.
#[derive(Debug)]
pub(crate) struct MediaInode {
    pub(crate) identity: Result<IdentityLine, LayoutError>,
    pub(crate) lines: [Result<CommitLine, LayoutError>; 2],
    pub(crate) volatile: VolatileLine,
}

impl MediaInode {
    pub(crate) fn read(pm: &Pm, place: &InodePlace) -> Result<Self> {
        Ok(Self::decode(&Self::lines(pm, place)?, place))
    }

    /// An inode's lines, unchecked.
    #[inline]
    pub(crate) fn lines(pm: &Pm, place: &InodePlace) -> Result<[[u8; 64]; 4]> {
        let line = |offset: u64| pm.load_line(place.addr.add(offset));
        let [first, second] = COMMIT_OFFSETS;
        Ok([line(IDENTITY_OFFSET)?, line(first)?, line(second)?, line(VOLATILE_OFFSET)?])
    }

    /// Checks [`MediaInode::lines`].
    #[allow(clippy::inline_always, reason = "what it returns is 350 bytes, made where it stays")]
    #[inline(always)]
    pub(crate) fn decode(
        [identity, first, second, volatile]: &[[u8; 64]; 4],
        place: &InodePlace,
    ) -> Self {
        Self {
            identity: IdentityLine::decode(identity, place.seed),
            lines: [CommitLine::decode(first, place.seed), CommitLine::decode(second, place.seed)],
            volatile: VolatileLine::decode(volatile),
        }
    }

    /// The line with that number, where it validates.
    pub(crate) fn line(&self, slot: u8) -> Option<&CommitLine> {
        self.lines.get(usize::from(slot))?.as_ref().ok()
    }

    /// The newest line that validates and its number.
    pub(crate) fn newest(&self) -> Option<(&CommitLine, u8)> {
        match &self.lines {
            [Ok(first), Ok(second)] if first.op_seq > second.op_seq => Some((first, 0)),
            [_, Ok(second)] => Some((second, 1)),
            [Ok(first), Err(_)] => Some((first, 0)),
            [Err(_), Err(_)] => None,
        }
    }

    /// What is wrong with a line that is neither blank nor valid: torn by a crash that recovery has
    /// not seen yet, or damaged.
    pub(crate) fn torn_line(&self) -> Option<LayoutError> {
        let errors = self.lines.iter().filter_map(|line| line.err());
        errors.into_iter().find(|error| *error != LayoutError::Blank)
    }

    /// What no crash can have left: a line that is absurd though its checksum is right, or two lines
    /// of one number that differ, so that neither is the newer.
    pub(crate) fn contradiction(&self) -> Option<String> {
        if let [Ok(first), Ok(second)] = &self.lines {
            let differ = first.op_seq == second.op_seq && first != second;
            return differ.then(|| format!("two of op_seq {:#x} that differ", first.op_seq));
        }
        let mut errors = self.lines.iter().filter_map(|line| line.err());
        let absurd = errors.find(|error| matches!(error, LayoutError::Field { .. }))?;
        Some(absurd.to_string())
    }

    /// Never used: both lines are blank.
    pub(crate) fn is_blank(&self) -> bool {
        matches!(&self.lines, [Err(LayoutError::Blank), Err(LayoutError::Blank)])
    }
}

/// Reads the commit state of an inode number that is to be used (again): the state that its next
/// commit goes on from, and the generation that was last in use.
pub(crate) fn free_inode(
    pm: &Pm,
    place: &InodePlace,
    ino: Ino,
    session: u32,
) -> Result<(State, u32)> {
    let media = MediaInode::read(pm, place)?;
    // An identity line that was torn with the create that stored it tells no generation; one above
    // those that earlier sessions can have given is as good as the next.
    let unknown = if media.is_blank() { 0 } else { session.saturating_mul(1 << GENERATIONS_LOG2) };
    let generation = media.identity.as_ref().map_or(unknown, |identity| identity.generation);
    if let Some((line, slot)) = media.newest() {
        if line.nlink != 0 {
            return Err(called_free(ino, place));
        }
        return Ok((State::of_line(line, slot), generation));
    }
    if media.is_blank() {
        // A number that was never used starts above all that an earlier use of these pages
        // could have left behind.
        let op_seq = u64::from(session) << 32;
        let blank = State { op_seq, ..State::of_line(&CommitLine::default(), 1) };
        return Ok((blank, generation));
    }
    Err(Error::damaged_inode(ino, "commit lines", place.addr, "neither validates"))
}

/// Refuses an inode with a number that can't be counted on from.
#[inline]
pub(crate) fn check_numbers(
    ino: Ino,
    place: &InodePlace,
    op_seq: u64,
    page_seq: u64,
) -> Result<()> {
    if op_seq < SEQ_RISE_LIMIT && page_seq < SEQ_RISE_LIMIT {
        return Ok(());
    }
    let found = format!("op_seq {op_seq:#x}, log pages up to {page_seq:#x}: all used up");
    Err(Error::damaged_inode(ino, "numbers", place.addr, found))
}

/// The error of a number in use that the allocator handed out as free.
pub(crate) fn called_free(ino: Ino, place: &InodePlace) -> Error {
    Error::damaged_inode(ino, "commit lines", place.addr, "in use, but the allocator calls it free")
}

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
        let names = dir::index_names(pm, arena, view)?;
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
            dir::mark_removed(arena, view, cookie)
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

/// Reads the name entry at `addr` and hands it to `with`.
pub(crate) fn with_dentry<T>(
    pm: &Pm,
    addr: PmAddr,
    with: impl FnOnce(&DentryRef<'_>) -> T,
) -> Result<T> {
    let mut bytes = [0; novale_layout::ENTRY_BYTES_MAX];
    let first = pm.load_line(addr)?;
    let damaged = |error: LayoutError| Error::damaged("dentry", addr, error);
    let (lines, _) = DentryRef::peek(&first).map_err(damaged)?;
    let len = usize::from(lines) * first.len();
    if let Some(place) = bytes.get_mut(..first.len()) {
        place.copy_from_slice(&first);
    }
    if let Some(rest) = bytes.get_mut(first.len()..len) {
        pm.load(addr.add(first.len() as u64), rest)?;
    }
    let dentry = DentryRef::decode(bytes.get(..len).unwrap_or_default()).map_err(damaged)?;
    Ok(with(&dentry))
}
