//! Directories: the indexes over a directory's log, look-up and listing.
//!
//! Two indexes: by the hash of a name, to the place of its dentry in the log; and by cookie, in the
//! order of making, for listing. Names are compared with the dentry on media, so a name costs the
//! arena no copy. The second keeps a removed name, marked, for as long as its dentry is in the log:
//! collection must keep the entry that removes it just as long.

use novale_arena::Arena;
use novale_layout::{FileKind, Ino, PmAddr};
use novale_pm::Pm;

use crate::error::{Error, Result};
use crate::fs::{By, Fs, Locked, OpKind};
use crate::load::with_dentry;
use crate::namespace::among;
use crate::types::{Attr, Ctx, DirEntry, Node};
use crate::view::{Seen, View};

/// Names handed to a listing between two validations.
const LIST_BATCH: usize = 64;
/// How often a look-up follows a name whose inode went away meanwhile.
const LOOKUP_TRIES: usize = 64;
const NAME_BYTES_MAX: usize = 255;
const SLOT_SHIFT: u64 = 42;
/// Marks the place of a dentry whose name is removed.
const REMOVED: u64 = 1;

/// The hash of a name in a directory.
pub(crate) fn name_hash(directory: Ino, name: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(name, directory.get())
}

/// A dentry's address in the 50 bits that a name table keeps: slot, and the number of the line.
pub(crate) fn pack(addr: PmAddr) -> u64 {
    (u64::from(addr.slot()) << SLOT_SHIFT) | (addr.byte() / 64)
}

fn unpack(value: u64) -> PmAddr {
    let slot = u8::try_from(value >> SLOT_SHIFT).unwrap_or(u8::MAX);
    PmAddr::new(slot, (value & ((1 << SLOT_SHIFT) - 1)) * 64)
}

/// What the log holds of a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dentry {
    /// No dentry.
    Gone,
    /// That of a removed name.
    Removed,
    /// That of a name, here.
    Named(PmAddr),
}

/// Looks a cookie up.
pub(crate) fn dentry_of(arena: &Arena, view: &View<'_>, cookie: u64) -> Result<Dentry> {
    Ok(match view.index().get(arena, cookie)? {
        0 => Dentry::Gone,
        word if word & REMOVED != 0 => Dentry::Removed,
        word => Dentry::Named(PmAddr::from_raw(word)),
    })
}

/// Marks a cookie's name as removed; its dentry stays in the log for now.
pub(crate) fn mark_removed(arena: &Arena, view: &View<'_>, cookie: u64) -> Result<()> {
    let word = view.index().get(arena, cookie)?;
    if word != 0 {
        view.index().set(arena, cookie, word | REMOVED)?;
    }
    Ok(())
}

/// The next name from a cookie on.
pub(crate) fn next_name(
    arena: &Arena,
    view: &View<'_>,
    from: u64,
) -> Result<Option<(u64, PmAddr)>> {
    let mut from = from;
    while let Some((cookie, word)) = view.index().next(arena, from)? {
        if word & REMOVED == 0 {
            return Ok(Some((cookie, PmAddr::from_raw(word))));
        }
        from = cookie + 1;
    }
    Ok(None)
}

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) at: PmAddr,
    pub(crate) ino: Ino,
    pub(crate) cookie: u64,
    pub(crate) generation: u32,
    pub(crate) kind: FileKind,
}

impl Found {
    /// The inode that has the number now: whether it is the one that is named, [`Found::check`] says.
    pub(crate) fn node(&self) -> Node {
        Node::current(self.ino)
    }

    /// The name is damaged: its inode is not in use, or is another one.
    pub(crate) fn dangling(&self) -> Error {
        let (ino, generation, kind) = (self.ino.get(), self.generation, self.kind);
        let found =
            format!("it names inode {ino}, {kind:?} of generation {generation}: not in use");
        Error::damaged("dentry", self.at, found)
    }

    /// Refuses the name where the inode, whose lock is held with the directory's, is another one, or a
    /// directory that has a name elsewhere: directories would run in a circle.
    pub(crate) fn check(&self, dir: &Locked<'_>, inode: &Locked<'_>) -> Result<()> {
        if (inode.id.generation, inode.kind) != (self.generation, self.kind) {
            return Err(self.dangling());
        }
        let (here, parent) = (dir.view.ino(), inode.view.parent());
        if self.kind != FileKind::Directory || parent == Ino::NULL || parent == here {
            return Ok(());
        }
        let (ino, parent) = (self.ino.get(), parent.get());
        let found = format!("it names directory {ino}, which directory {parent} names already");
        Err(Error::damaged("dentry", self.at, found))
    }
}

/// Tells a name that somebody removes again and again from one that leads nowhere. An inode is gone
/// only when its name is: the same name, found again behind that, is damaged.
#[derive(Debug, Default)]
pub(crate) struct Stale(Option<u64>);

impl Stale {
    /// The inode that a name led to was not in use.
    pub(crate) fn meet(&mut self, found: &Found) -> Result<()> {
        if self.0 == Some(found.cookie) {
            return Err(found.dangling());
        }
        self.0 = Some(found.cookie);
        Ok(())
    }
}

/// Looks a name up in a directory's view. Without the lock, the caller validates the view.
pub(crate) fn find(pm: &Pm, arena: &Arena, view: &View<'_>, name: &[u8]) -> Result<Option<Found>> {
    let mut found = None;
    view.names().find(arena, name_hash(view.ino(), name), |value| {
        let at = unpack(value);
        // A dentry that makes no sense is one that moved: the view will not validate.
        let matched = with_dentry(pm, at, |dentry| {
            (dentry.name() == name).then(|| Found {
                at,
                ino: dentry.ino(),
                cookie: dentry.cookie(),
                generation: dentry.generation(),
                kind: dentry.kind(),
            })
        });
        found = matched.ok().flatten();
        found.is_some()
    })?;
    Ok(found)
}

/// The hash of the name at `value`, for tables that grow; a name that can't be read hashes to 0.
fn hash_at(pm: &Pm, directory: Ino, value: u64) -> u64 {
    with_dentry(pm, unpack(value), |dentry| name_hash(directory, dentry.name())).unwrap_or(0)
}

/// Fills the name table of a directory whose cookie index was rebuilt; returns the number of names.
pub(crate) fn index_names(pm: &Pm, arena: &Arena, view: &View<'_>) -> Result<u64> {
    let ino = view.ino();
    let mut result = Ok(0);
    view.index().for_each(arena, &mut |_, word| {
        let Ok(count) = result else { return };
        if word & REMOVED != 0 {
            return;
        }
        let at = PmAddr::from_raw(word);
        result = with_dentry(pm, at, |dentry| name_hash(ino, dentry.name())).and_then(|hash| {
            view.names().insert(arena, hash, pack(at), &mut |value| hash_at(pm, ino, value))?;
            Ok(count + 1)
        });
    })?;
    result
}

/// The inodes that a directory names.
pub(crate) fn inos(pm: &Pm, arena: &Arena, view: &View<'_>) -> Result<Vec<Ino>> {
    let mut inos = Vec::new();
    let mut from = 0;
    while let Some((cookie, at)) = next_name(arena, view, from)? {
        let found = with_dentry(pm, at, |dentry| (dentry.ino(), dentry.cookie()))?;
        inos.push(found.0);
        debug_assert_eq!(found.1, cookie);
        from = cookie + 1;
    }
    Ok(inos)
}

/// Makes sure that adding a name with this cookie can't fail.
pub(crate) fn reserve(
    pm: &Pm,
    arena: &Arena,
    view: &View<'_>,
    name: &[u8],
    cookie: u64,
) -> Result<()> {
    let ino = view.ino();
    view.index().reserve(arena, cookie, 1)?;
    let hash = name_hash(ino, name);
    view.names().reserve(arena, hash, &mut |value| hash_at(pm, ino, value))?;
    Ok(())
}

/// Enters a name; room for it was reserved.
pub(crate) fn add(
    pm: &Pm,
    arena: &Arena,
    view: &View<'_>,
    name: &[u8],
    cookie: u64,
    at: PmAddr,
) -> Result<()> {
    let ino = view.ino();
    view.index().set(arena, cookie, at.raw())?;
    let hash = name_hash(ino, name);
    view.names().insert(arena, hash, pack(at), &mut |value| hash_at(pm, ino, value))?;
    view.set_next_cookie(view.next_cookie().max(cookie + 1));
    Ok(())
}

/// Removes a name.
pub(crate) fn remove(arena: &Arena, view: &View<'_>, name: &[u8], found: &Found) -> Result<()> {
    mark_removed(arena, view, found.cookie)?;
    view.names().remove(arena, name_hash(view.ino(), name), pack(found.at))?;
    Ok(())
}

/// Follows a dentry that collection has copied.
pub(crate) fn move_dentry(
    pm: &Pm,
    arena: &Arena,
    view: &View<'_>,
    from: PmAddr,
    to: PmAddr,
) -> Result<()> {
    let ino = view.ino();
    let (hash, cookie) =
        with_dentry(pm, to, |dentry| (name_hash(ino, dentry.name()), dentry.cookie()))?;
    view.names().replace(arena, hash, pack(from), pack(to))?;
    view.index().set(arena, cookie, to.raw())?;
    Ok(())
}

/// A name of 1 to 255 bytes without a slash or NUL.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::NameTooLong);
    }
    if name.is_empty()
        || name == b"."
        || name == b".."
        || name.iter().any(|byte| matches!(byte, 0 | b'/'))
    {
        return Err(Error::InvalidName);
    }
    Ok(())
}

impl Fs {
    /// The inode that a name in `parent` leads to.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`], [`Error::NameTooLong`],
    /// [`Error::InvalidName`]; [`Error::Stale`] when `parent` is gone.
    pub fn lookup(&self, ctx: &Ctx, parent: Node, name: &[u8]) -> Result<Attr> {
        let mut stale = Stale::default();
        for _ in 0..LOOKUP_TRIES {
            let found = self.find_name(ctx.hint, parent, name)?.ok_or(Error::NotFound)?;
            let shown = self.read_view(ctx.hint, found.ino, |view, kind| {
                let is_dir = kind == FileKind::Directory;
                Ok((view.attr(kind), !is_dir || view.parent() == parent.ino))
            });
            match shown {
                Ok((attr, in_place))
                    if (attr.generation, attr.kind) == (found.generation, found.kind) =>
                {
                    if in_place {
                        return Ok(attr);
                    }
                    // Its parent is not known yet, or it is being moved, or damaged: the locks tell.
                    self.check_found(ctx, parent, name)?;
                }
                // It was removed between the two steps, or its number is used again.
                Ok(_) | Err(Error::Stale) => stale.meet(&found)?,
                Err(error) => return Err(error),
            }
        }
        Err(Error::NotFound)
    }

    /// Checks a name, if it is there, with its directory and its inode locked; notes which directory
    /// names it.
    fn check_found(&self, ctx: &Ctx, parent: Node, name: &[u8]) -> Result<()> {
        let call = self.begin_read(OpKind::Load, ctx)?;
        let Some(found) = self.find_name(&call, parent, name)? else { return Ok(()) };
        let locks = match self.lock_all(&call, &[parent.ino, found.ino]) {
            Ok(locks) => locks,
            Err(Error::Stale) => return Ok(()),
            Err(error) => return Err(error),
        };
        let dir = among(&locks, parent)?;
        match self.find_locked(dir, name)? {
            Some(now) if now.ino == found.ino => {
                let inode = among(&locks, now.node())?;
                now.check(dir, inode)?;
                inode.view.note_parent(dir.view.as_parent());
            }
            _ => {}
        }
        Ok(())
    }

    /// Looks a name up without locks.
    pub(crate) fn find_name<'c>(
        &self,
        by: impl Into<By<'c>>,
        parent: Node,
        name: &[u8],
    ) -> Result<Option<Found>> {
        self.find_name_in(by, parent, name).map(|(found, _)| found)
    }

    /// As [`Fs::find_name`], with the state of the directory that this was found in.
    pub(crate) fn find_name_in<'c>(
        &self,
        by: impl Into<By<'c>>,
        parent: Node,
        name: &[u8],
    ) -> Result<(Option<Found>, Seen)> {
        check_name(name)?;
        self.read_node(by, parent, |view, kind| {
            if kind != FileKind::Directory {
                return Err(Error::NotDirectory);
            }
            Ok((find(&self.pm, self.arena(), view, name)?, view.seen()))
        })
    }

    /// The cookie that no name of a directory is above at this moment; all that are made later are.
    ///
    /// # Errors
    /// [`Error::NotDirectory`], [`Error::Stale`].
    pub fn last_cookie(&self, ctx: &Ctx, node: Node) -> Result<u64> {
        self.read_node(ctx.hint, node, |view, kind| {
            let is_directory = kind == FileKind::Directory;
            if is_directory { Ok(view.next_cookie() - 1) } else { Err(Error::NotDirectory) }
        })
    }

    /// Lists a directory's names behind the one with `after_cookie` (0: from the start), in the
    /// order of their making, until `each` returns `false`. `.` and `..` are not among them.
    /// Names that go meanwhile may or may not be seen, names that come are not, so that it ends
    /// whatever others make; all others are seen once.
    ///
    /// # Errors
    /// [`Error::NotDirectory`], [`Error::Stale`].
    pub fn readdir(
        &self,
        ctx: &Ctx,
        node: Node,
        after_cookie: u64,
        each: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let mut from = after_cookie.saturating_add(1);
        let end = self.last_cookie(ctx, node)?;
        let mut batch: Vec<(Found, Vec<u8>)> = Vec::new();
        loop {
            self.read_node(ctx.hint, node, |view, kind| {
                if kind != FileKind::Directory {
                    return Err(Error::NotDirectory);
                }
                batch.clear();
                let mut at = from;
                while batch.len() < LIST_BATCH {
                    let next = next_name(self.arena(), view, at)?;
                    let Some((cookie, addr)) = next.filter(|(cookie, _)| *cookie <= end) else {
                        break;
                    };
                    // One that can't be read has moved; the view will not validate then.
                    batch.push(with_dentry(&self.pm, addr, |dentry| {
                        let found = Found {
                            at: addr,
                            ino: dentry.ino(),
                            cookie,
                            generation: dentry.generation(),
                            kind: dentry.kind(),
                        };
                        (found, dentry.name().to_vec())
                    })?);
                    at = cookie + 1;
                }
                Ok(())
            })?;
            for (found, name) in &batch {
                let Found { ino, cookie, generation, kind, .. } = *found;
                if !each(&DirEntry { cookie, ino, generation, kind, name }) {
                    return Ok(());
                }
                from = cookie + 1;
            }
            if batch.len() < LIST_BATCH {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dentry_place_survives_packing() {
        for addr in
            [PmAddr::new(0, 64), PmAddr::new(63, 4096 * 7 + 128), PmAddr::new(255, (1 << 48) - 64)]
        {
            assert_eq!(unpack(pack(addr)), addr);
            assert!(pack(addr) < 1 << 50);
        }
    }

    #[test]
    fn names_with_slashes_dots_alone_or_too_long_are_refused() {
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            assert!(matches!(check_name(name), Err(Error::InvalidName)));
        }
        assert!(matches!(check_name(&[b'a'; 256]), Err(Error::NameTooLong)));
        assert!(check_name(&[b'a'; 255]).is_ok());
        assert!(check_name(b"...").is_ok());
    }
}
