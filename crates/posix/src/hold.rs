//! A look-up whose inode can't be removed and reused before the caller holds it.

use novale_core::{Attr, Ctx, Error, Fs, HoldId, Ino, Node, Result};

/// Attempts before a name that changes hands all the time is given up.
const ATTEMPTS: u32 = 16;

/// Looks a name up and holds its inode: the caller owes one [`Fs::release`].
///
/// The core's look-up holds nothing, so the inode may be freed and its number reused between the
/// two calls; the generation, read again once held, tells.
///
/// # Errors
/// Those of [`Fs::lookup`]; [`Error::Stale`] when the name pointed to a new inode at every attempt.
pub fn lookup_held(fs: &Fs, ctx: &Ctx, parent: Node, name: &[u8]) -> Result<Attr> {
    lookup_by(fs, ctx, parent, name, hold_same)
}

/// Looks a name up until `hold` finds what it led to still there.
fn lookup_by<T>(
    fs: &Fs,
    ctx: &Ctx,
    parent: Node,
    name: &[u8],
    hold: impl Fn(&Fs, &Ctx, Ino, u32) -> Result<Option<T>>,
) -> Result<T> {
    for _ in 0..ATTEMPTS {
        let found = fs.lookup(ctx, parent, name)?;
        if let Some(held) = hold(fs, ctx, found.ino, found.generation)? {
            return Ok(held);
        }
    }
    Err(Error::Stale)
}

/// Holds an inode that was found just now, and returns its attributes; `None` when it is gone or its
/// number belongs to a newer generation. The caller owes one [`Fs::release`] for `Some`.
///
/// # Errors
/// Those of [`Fs::hold`] and [`Fs::getattr`] that do not say that the inode is gone.
pub fn hold_same(fs: &Fs, ctx: &Ctx, ino: Ino, generation: u32) -> Result<Option<Attr>> {
    match fs.hold(ino) {
        Ok(()) => {}
        Err(Error::NotFound | Error::Stale) => return Ok(None),
        Err(error) => return Err(error),
    }
    match fs.getattr(ino) {
        Ok(now) if now.generation == generation => Ok(Some(now)),
        Ok(_) | Err(Error::NotFound | Error::Stale) => fs.release(ctx, ino, 1).map(|()| None),
        Err(error) => fs.release(ctx, ino, 1).and(Err(error)),
    }
}

/// As [`lookup_held`], with a hold that ends with the client ([`Fs::open_hold`]).
///
/// # Errors
/// As [`lookup_held`].
pub(crate) fn lookup_open(fs: &Fs, ctx: &Ctx, parent: Node, name: &[u8]) -> Result<(Attr, HoldId)> {
    lookup_by(fs, ctx, parent, name, open_same)
}

/// As [`hold_same`], with such a hold.
///
/// # Errors
/// As [`hold_same`].
pub(crate) fn open_same(
    fs: &Fs,
    ctx: &Ctx,
    ino: Ino,
    generation: u32,
) -> Result<Option<(Attr, HoldId)>> {
    let Some(hold) = fs.open_hold(ctx, ino, generation)? else { return Ok(None) };
    match fs.getattr(ino) {
        Ok(now) => Ok(Some((now, hold))),
        Err(error) => fs.open_release(ctx, hold).and(Err(error)),
    }
}
