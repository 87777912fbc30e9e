//! The index of a directory in its view: cookies and names, each with the address of its dentry.

use novale_arena::Arena;
use novale_layout::{DentryRef, FileKind, Ino, LayoutError, PmAddr};
use novale_pm::Pm;

use crate::base::error::{Error, Result};
use crate::inode::view::View;

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

const SLOT_SHIFT: u64 = 42;

/// Marks the place of a dentry whose name is removed.
const REMOVED: u64 = 1;

/// The hash of a name in a directory. Who makes names does not know the arena's part of the seed: with
/// it he could choose thousands that share one hash, of which each would be looked for among all.
fn name_hash(arena: &Arena, directory: Ino, name: &[u8]) -> u64 {
    let seed = arena.hash_seed().wrapping_add(directory.get());
    xxhash_rust::xxh3::xxh3_64_with_seed(name, seed)
}

/// A dentry's address in the 50 bits that a name table keeps: slot, and the number of the line.
pub(crate) fn pack(addr: PmAddr) -> u64 {
    (u64::from(addr.slot()) << SLOT_SHIFT) | (addr.byte() / 64)
}

pub(crate) fn unpack(value: u64) -> PmAddr {
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
pub(crate) struct FoundName {
    pub(crate) at: PmAddr,
    pub(crate) ino: Ino,
    pub(crate) cookie: u64,
    pub(crate) generation: u32,
    pub(crate) kind: FileKind,
}

/// Looks a name up in a directory's view. Without the lock, the caller validates the view.
pub(crate) fn find(
    pm: &Pm,
    arena: &Arena,
    view: &View<'_>,
    name: &[u8],
) -> Result<Option<FoundName>> {
    let mut found = Ok(None);
    view.names().find(arena, name_hash(arena, view.ino(), name), |value| {
        let at = unpack(value);
        // Without the lock a dentry that makes no sense is one that moved: the view will not validate.
        found = with_dentry(pm, at, |dentry| {
            (dentry.name() == name).then(|| FoundName {
                at,
                ino: dentry.ino(),
                cookie: dentry.cookie(),
                generation: dentry.generation(),
                kind: dentry.kind(),
            })
        });
        !matches!(found, Ok(None))
    })?;
    found
}

/// The hash of the name at `value`, for tables that grow; a name that can't be read hashes to 0.
fn hash_at(pm: &Pm, arena: &Arena, directory: Ino, value: u64) -> u64 {
    with_dentry(pm, unpack(value), |dentry| name_hash(arena, directory, dentry.name())).unwrap_or(0)
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
        result =
            with_dentry(pm, at, |dentry| name_hash(arena, ino, dentry.name())).and_then(|hash| {
                view.names()
                    .insert(arena, hash, pack(at), &mut |value| hash_at(pm, arena, ino, value))?;
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
    let hash = name_hash(arena, ino, name);
    view.names().reserve(arena, hash, &mut |value| hash_at(pm, arena, ino, value))?;
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
    let hash = name_hash(arena, ino, name);
    view.names().insert(arena, hash, pack(at), &mut |value| hash_at(pm, arena, ino, value))?;
    view.set_next_cookie(view.next_cookie().max(cookie + 1));
    Ok(())
}

/// Removes a name.
pub(crate) fn remove(arena: &Arena, view: &View<'_>, name: &[u8], found: &FoundName) -> Result<()> {
    mark_removed(arena, view, found.cookie)?;
    view.names().remove(arena, name_hash(arena, view.ino(), name), pack(found.at))?;
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
        with_dentry(pm, to, |dentry| (name_hash(arena, ino, dentry.name()), dentry.cookie()))?;
    view.names().replace(arena, hash, pack(from), pack(to))?;
    view.index().set(arena, cookie, to.raw())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The first bytes of what xxh3 mixes into a name: a name that begins with them and the seed makes
    /// a product 0, whatever its next 8 bytes are.
    const MIXED_IN: u64 = 0xbe4b_a423_396c_feb8;

    fn hashes(arena: &Arena, directory: Ino) -> usize {
        let names = (0..1000_u64).map(|number| {
            let first = MIXED_IN.wrapping_add(directory.get()).to_le_bytes();
            [first.as_slice(), format!("{number:08}").as_bytes(), &[b'x'; 16]].concat()
        });
        names.map(|name| name_hash(arena, directory, &name)).collect::<HashSet<_>>().len()
    }

    // A user of a mount made 20,000 names of one hash in a directory, each of which took as long to look
    // up, or to remove, as thousands of others.
    #[test]
    fn names_of_one_hash_cannot_be_chosen() {
        let arena = Arena::anonymous(1 << 21).unwrap();
        let directory = Ino::new(7);
        assert_eq!(hashes(&arena, directory), 1, "without a seed they can");
        arena.draw_hash_seed();
        assert_eq!(hashes(&arena, directory), 1000);
    }
}
