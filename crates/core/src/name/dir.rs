//! Directories: the indexes over a directory's log, look-up and listing.
//!
//! Two indexes: by the hash of a name, to the place of its dentry in the log; and by cookie, in the
//! order of making, for listing. Names are compared with the dentry on media, so a name costs the
//! arena no copy. The second keeps a removed name, marked, for as long as its dentry is in the log:
//! collection must keep the entry that removes it just as long.

use novale_layout::{FileKind, Ino};

use crate::base::error::{Error, Result};
use crate::base::types::{Attr, Ctx, DirEntry, Node};
use crate::fs::Fs;
use crate::inode::dir_index::{FoundName, find, next_name, with_dentry};
use crate::inode::view::ViewSeen;
use crate::name::create::among;
use crate::op::call::{By, OpKind};
use crate::op::lock::Locked;

/// Names handed to a listing between two validations.
const LIST_BATCH: usize = 64;
/// How often a look-up follows a name whose inode went away meanwhile.
const LOOKUP_TRIES: usize = 64;
const NAME_BYTES_MAX: usize = 255;

impl FoundName {
    /// The inode that has the number now: whether it is the one that is named, [`FoundName::check`] says.
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
/// only when its name is: the same name, found again after that, is damaged.
#[derive(Debug, Default)]
pub(crate) struct Stale(Option<u64>);

impl Stale {
    /// The inode that a name led to was not in use.
    pub(crate) fn meet(&mut self, found: &FoundName) -> Result<()> {
        if self.0 == Some(found.cookie) {
            return Err(found.dangling());
        }
        self.0 = Some(found.cookie);
        Ok(())
    }
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
    ) -> Result<Option<FoundName>> {
        self.find_name_in(by, parent, name).map(|(found, _)| found)
    }

    /// As [`Fs::find_name`], with the state of the directory that this was found in.
    pub(crate) fn find_name_in<'c>(
        &self,
        by: impl Into<By<'c>>,
        parent: Node,
        name: &[u8],
    ) -> Result<(Option<FoundName>, ViewSeen)> {
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

    /// Lists a directory's names after the one with `after_cookie` (0: from the start), in the
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
        let mut batch: Vec<(FoundName, Vec<u8>)> = Vec::new();
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
                        let found = FoundName {
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
                let FoundName { ino, cookie, generation, kind, .. } = *found;
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
    use novale_layout::PmAddr;

    use super::*;
    use crate::inode::dir_index::{pack, unpack};

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
