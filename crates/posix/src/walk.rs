//! From a path to an inode, component by component.
//!
//! Invariants: every path starts at the root, with or without a leading slash; each turn of the
//! loop takes a component or follows one of at most [`SYMLINKS_MAX`] links, so a walk ends.

use std::borrow::Cow;
use std::ops::Range;

use novale_core::{Attr, Ctx, Error as FsError, FileKind, Fs, Ino, Node};

use crate::{Error, Result, by_number};

/// The bit by which an owner may search a directory.
const SEARCH: u32 = 1;
/// The bits of a directory in which everybody makes names, and takes away its own alone.
const STICKY_AND_OPEN: u32 = 0o1002;
/// The user whom no permission stops.
const ADMINISTRATOR: u32 = 0;
/// Walks before a path whose directories are replaced all the time is given up.
const ATTEMPTS: u32 = 16;
/// Symbolic links followed on one walk, as in Linux.
pub(crate) const SYMLINKS_MAX: u32 = 40;
/// Bytes in a path, without the final NUL that C wants.
pub(crate) const PATH_BYTES_MAX: usize = 4095;

/// What happens with the very last name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follow {
    /// It is looked up, and a symbolic link followed.
    Yes,
    No,
    /// It is not looked up where no slash follows it.
    Unseen,
}

/// Where a path begins below a mount, and how far up it may go.
#[derive(Debug, Clone, Copy)]
pub enum Start {
    /// A directory of a mount that shows all of the file system: the path may go up to the root.
    Whole(Node),
    /// One of a mount that shows a part of it, whose root is not known: the path may not go up.
    Part(Node),
}

impl Start {
    fn node(self) -> Node {
        match self {
            Self::Whole(node) | Self::Part(node) => node,
        }
    }

    /// Whether `..` of a directory is somebody else's to find.
    fn ends_at(self, directory: Node) -> bool {
        match self {
            Self::Whole(_) => directory.ino == Ino::ROOT,
            Self::Part(_) => true,
        }
    }
}

/// Where a path ends.
#[derive(Debug)]
pub struct Found<'p> {
    /// The directory that holds, or would hold, `name`.
    pub parent: Node,
    /// The last component; `None` for `.`, `..` and the root, which are no names.
    pub name: Option<Cow<'p, [u8]>>,
    /// The inode at the end; `None` where only that is missing.
    pub attr: Option<Attr>,
    /// A slash follows the last component: it must be, or become, a directory.
    pub slash: bool,
}

impl Found<'_> {
    /// The same, whatever becomes of the path.
    #[must_use]
    pub fn into_owned(self) -> Found<'static> {
        let Self { parent, name, attr, slash } = self;
        Found { parent, name: name.map(|name| Cow::Owned(name.into_owned())), attr, slash }
    }

    /// The inode at the end, or "not found".
    pub(crate) fn existing(&self) -> Result<Attr> {
        self.attr.ok_or(Error::Fs(FsError::NotFound))
    }

    /// The last component, which must be a name.
    pub(crate) fn name(&self) -> Result<&[u8]> {
        self.name.as_deref().ok_or(Error::NotAName)
    }

    /// The last component, where a new inode that is no directory may be made.
    pub(crate) fn new_name(&self) -> Result<&[u8]> {
        if self.attr.is_none() && self.slash {
            return Err(FsError::NotFound.into());
        }
        self.new_name_of_any()
    }

    /// The last component, where a new name of anything may be made.
    pub(crate) fn new_name_of_any(&self) -> Result<&[u8]> {
        let name = self.name.as_deref().ok_or(Error::Fs(FsError::Exists))?;
        by_number::refuse_new(self.parent.ino, name)?;
        Ok(name)
    }
}

/// Walks, and does something where the walk has ended; again where a directory or an inode that the walk
/// had found was removed before it could be used. Who sees that so often is told that there is none.
pub(crate) fn anew<T>(mut walk: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..ATTEMPTS {
        match walk() {
            Err(Error::Fs(FsError::Stale)) => {}
            done => return done,
        }
    }
    Err(FsError::NotFound.into())
}

/// Walks a path from the root, which is its own parent.
pub(crate) fn walk<'p>(fs: &Fs, ctx: &Ctx, path: &'p [u8], follow: Follow) -> Result<Found<'p>> {
    walk_by(fs, ctx, None, path, (follow, Anybody))
}

/// Walks a path below a mount from a directory in it, for the administrator.
///
/// # Errors
/// [`Error::Leaves`] where it goes above where it may ([`Start`]), and at another user's link in a sticky directory that
/// everybody may write, unless that user owns the directory too: the kernel is to judge it
/// (`fs.protected_symlinks`). [`Error::LeavesTo`] where it follows a symbolic link that starts with a
/// slash: the rest need not be this file system's. [`FsError::Stale`] where a directory went away under
/// the walk, which is to begin again. Those of the walk.
pub fn walk_from<'p>(
    fs: &Fs,
    ctx: &Ctx,
    from: Start,
    path: &'p [u8],
    follow: bool,
) -> Result<Found<'p>> {
    let follow = if follow { Follow::Yes } else { Follow::No };
    walk_by(fs, ctx, Some(from), path, (follow, Administrator))
}

/// As [`walk_from`], for an operation that looks the last name up itself: [`Found::attr`] is none there
/// whether there is such a name or not. With a slash after it, and for what is no name, it is as
/// elsewhere.
///
/// # Errors
/// Those of [`walk_from`].
pub fn walk_to_name<'p>(fs: &Fs, ctx: &Ctx, from: Start, path: &'p [u8]) -> Result<Found<'p>> {
    walk_by(fs, ctx, Some(from), path, (Follow::Unseen, Administrator))
}

/// As [`walk_from`], as far as the directories and the links on the way are `user`'s, and the bits for
/// owners let it through: what these allow is allowed, whatever else there is.
///
/// # Errors
/// [`Error::Leaves`] also at the first directory or link that is not: somebody else is to judge. Those of
/// [`walk_from`].
pub fn walk_own<'p>(
    fs: &Fs,
    ctx: &Ctx,
    from: Start,
    path: &'p [u8],
    (follow, user): (bool, u32),
) -> Result<Found<'p>> {
    let follow = if follow { Follow::Yes } else { Follow::No };
    walk_by(fs, ctx, Some(from), path, (follow, Owner(user)))
}

/// As [`walk_to_name`], through what is `user`'s own.
///
/// # Errors
/// Those of [`walk_own`].
pub fn walk_own_to_name<'p>(
    fs: &Fs,
    ctx: &Ctx,
    from: Start,
    path: &'p [u8],
    user: u32,
) -> Result<Found<'p>> {
    walk_by(fs, ctx, Some(from), path, (Follow::Unseen, Owner(user)))
}

/// Whether a user may do with an inode what these bits allow (4 to read, 2 to write, 1 to search or run),
/// since it owns it: what these allow is allowed, whatever else there is.
#[must_use]
pub fn may_as_owner(user: u32, attr: &Attr, bits: u32) -> bool {
    attr.uid == user && attr.mode >> 6 & bits == bits
}

/// Who walks.
trait Walker {
    /// Whether directories and links are looked at.
    const IS_ASKED: bool;
    /// Whether the walk may go through a directory or a link.
    fn may_pass(&self, attr: &Attr) -> bool;
    /// Whether a link may be followed whatever directory it lies in.
    fn may_follow(&self, link: &Attr) -> bool;
}

/// One whom nothing stops: a caller of the library, which knows no users.
struct Anybody;

impl Walker for Anybody {
    const IS_ASKED: bool = false;

    fn may_pass(&self, _: &Attr) -> bool {
        true
    }

    fn may_follow(&self, _: &Attr) -> bool {
        true
    }
}

/// A program of the administrator's, whom the kernel protects from links of others alone.
struct Administrator;

impl Walker for Administrator {
    const IS_ASKED: bool = false;

    fn may_pass(&self, _: &Attr) -> bool {
        true
    }

    fn may_follow(&self, link: &Attr) -> bool {
        link.uid == ADMINISTRATOR
    }
}

/// A user in what is its own.
struct Owner(u32);

impl Walker for Owner {
    const IS_ASKED: bool = true;

    fn may_pass(&self, attr: &Attr) -> bool {
        attr.kind == FileKind::Symlink && attr.uid == self.0 || may_as_owner(self.0, attr, SEARCH)
    }

    fn may_follow(&self, link: &Attr) -> bool {
        link.uid == self.0
    }
}

fn walk_by<'p, W: Walker>(
    fs: &Fs,
    ctx: &Ctx,
    below_mount: Option<Start>,
    path: &'p [u8],
    (follow, walker): (Follow, W),
) -> Result<Found<'p>> {
    check_path(path)?;
    let mut path = Cow::Borrowed(path);
    let mut from = 0;
    let mut at = below_mount.map_or(Node::ROOT, Start::node);
    let mut links = 0;
    loop {
        let (name, after) = split(path.get(from..).unwrap_or_default());
        let last = after.iter().all(|byte| *byte == b'/');
        let slash = last && !after.is_empty();
        from = path.len() - after.len();
        let is_mounts = below_mount.is_some() && by_number::is_directory(at.ino, name);
        let is_asked = W::IS_ASKED && !name.is_empty();
        if is_mounts || is_asked && !walker.may_pass(&fs.getattr_of(at)?) {
            return Err(Error::Leaves);
        }
        if matches!(name, b"" | b"." | b"..") {
            if name == b".." {
                if below_mount.is_some_and(|start| start.ends_at(at)) {
                    return Err(Error::Leaves);
                }
                at = fs.parent(at)?;
            }
            if last {
                let attr = Some(fs.getattr_of(at)?);
                return Ok(Found { parent: at, name: None, attr, slash: true });
            }
            continue;
        }
        let is_unseen = last && !slash && follow == Follow::Unseen;
        let found = if is_unseen { Err(FsError::NotFound) } else { fs.lookup(ctx, at, name) };
        let attr = match found {
            Ok(attr) => attr,
            Err(FsError::NotFound) if last => {
                let name = Some(last_name(&path, from - name.len()..from));
                return Ok(Found { parent: at, name, attr: None, slash });
            }
            Err(error) => return Err(error.into()),
        };
        if attr.kind == FileKind::Symlink && (!last || slash || follow == Follow::Yes) {
            links += 1;
            let mut target = link_target(fs, (&attr, at), links, &walker)?;
            let is_absolute = target.starts_with(b"/");
            target.extend_from_slice(after);
            if is_absolute {
                if below_mount.is_some() {
                    return Err(Error::LeavesTo(target));
                }
                at = Node::ROOT;
            }
            path = target.into();
            from = 0;
            continue;
        }
        if attr.kind != FileKind::Directory && (!last || slash) {
            return Err(FsError::NotDirectory.into());
        }
        if last {
            let name = Some(last_name(&path, from - name.len()..from));
            return Ok(Found { parent: at, name, attr: Some(attr), slash });
        }
        at = attr.node();
    }
}

/// Whether another user's link is one that the kernel may have nobody follow: who made it may have put it
/// in the place of a name that others use.
fn is_protected(link: &Attr, directory: &Attr) -> bool {
    directory.mode & STICKY_AND_OPEN == STICKY_AND_OPEN && directory.uid != link.uid
}

/// Where a symbolic link in a directory leads, the so many-th of a walk.
fn link_target(
    fs: &Fs,
    (link, directory): (&Attr, Node),
    links: u32,
    walker: &impl Walker,
) -> Result<Vec<u8>> {
    let follows = walker.may_follow(link) || !is_protected(link, &fs.getattr_of(directory)?);
    if !follows || !walker.may_pass(link) {
        return Err(Error::Leaves);
    }
    if links > SYMLINKS_MAX {
        return Err(Error::TooManySymlinks(SYMLINKS_MAX));
    }
    let target = fs.readlink(link.node())?;
    check_path(&target)?;
    Ok(target)
}

/// A part of the path: of the caller's, or of what a symbolic link has put in its place.
fn last_name<'p>(path: &Cow<'p, [u8]>, at: Range<usize>) -> Cow<'p, [u8]> {
    match path {
        Cow::Borrowed(path) => path.get(at).unwrap_or_default().into(),
        Cow::Owned(path) => path.get(at).unwrap_or_default().to_vec().into(),
    }
}

fn check_path(path: &[u8]) -> Result<()> {
    if path.is_empty() {
        return Err(FsError::NotFound.into());
    }
    if path.len() > PATH_BYTES_MAX {
        return Err(Error::PathTooLong { found: path.len(), limit: PATH_BYTES_MAX });
    }
    if path.contains(&0) {
        return Err(FsError::InvalidName.into());
    }
    Ok(())
}

/// The first component without the slashes before it, and what follows, from its slash on.
fn split(rest: &[u8]) -> (&[u8], &[u8]) {
    let start = rest.iter().position(|byte| *byte != b'/').unwrap_or(rest.len());
    let (_, tail) = rest.split_at(start);
    let end = tail.iter().position(|byte| *byte == b'/').unwrap_or(tail.len());
    tail.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn components_come_without_their_slashes() {
        assert_eq!(split(b"//a//b"), (&b"a"[..], &b"//b"[..]));
        assert_eq!(split(b"a"), (&b"a"[..], &b""[..]));
        assert_eq!(split(b"///"), (&b""[..], &b""[..]));
    }
}
