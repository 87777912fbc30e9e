//! Where a directory is at this moment.

use novale_core::{Ctx, Fs, Ino, Node};

use crate::base::guard::PATH_MAX;
use crate::base::sys::sys;

/// Looks for a directory that others move meanwhile: for a second and more.
pub(crate) const LOOKS: u32 = 5000;
const LOOKS_AT_ONCE: u32 = 8;
/// The pause before each of the others.
const PAUSE_NS: i64 = 200_000;

/// Why a directory has no path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPath {
    /// It is too deep for the kernel.
    Deep,
    /// It was removed, or it or one above it is moved while it is looked for.
    Moved,
}

/// The path of a directory below its mount point, as it is at this moment.
pub(crate) fn path(fs: &Fs, ctx: &Ctx, node: Node) -> Result<Vec<u8>, NoPath> {
    let mut path = Vec::new();
    let mut at = node;
    while at.ino != Ino::ROOT && path.len() < PATH_MAX {
        let parent = fs.parent(at).map_err(|_| NoPath::Moved)?;
        path.splice(..0, name_of(fs, ctx, parent, at.ino).ok_or(NoPath::Moved)?);
        at = parent;
    }
    if path.len() < PATH_MAX { Ok(path) } else { Err(NoPath::Deep) }
}

/// As [`path`], looked for again while it is moved; `None` for one that was removed or is too deep.
pub(crate) fn found(fs: &Fs, ctx: &Ctx, node: Node) -> Option<Vec<u8>> {
    for look in 0..LOOKS {
        pause_before(look);
        match path(fs, ctx, node) {
            Err(NoPath::Moved) if !is_removed(fs, node) => {}
            found => return found.ok(),
        }
    }
    None
}

/// Whether a directory has no name any more.
pub(crate) fn is_removed(fs: &Fs, node: Node) -> bool {
    fs.getattr_of(node).map_or(true, |attr| attr.nlink == 0)
}

/// Leaves the processor to those who move things, before a look that is not among the first.
pub(crate) fn pause_before(look: u32) {
    if look >= LOOKS_AT_ONCE {
        let pause = libc::timespec { tv_sec: 0, tv_nsec: PAUSE_NS };
        sys!(libc::SYS_nanosleep, &raw const pause, 0);
    }
}

/// A name of an inode in a directory, with the slash before it.
pub(crate) fn name_of(fs: &Fs, ctx: &Ctx, parent: Node, ino: Ino) -> Option<Vec<u8>> {
    let mut name = None;
    let listed = fs.readdir(ctx, parent, 0, &mut |entry| {
        if entry.ino == ino {
            name = Some([b"/", entry.name].concat());
        }
        name.is_none()
    });
    listed.ok().and(name)
}
