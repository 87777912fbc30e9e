//! Where a directory is at this moment.

use novale_core::{Ctx, Fs, Ino, Node};

use crate::base::guard::PATH_MAX;

/// The path of a directory below its mount point, as it is at this moment; `None` for one that was
/// removed, or is too deep for the kernel.
pub(crate) fn path(fs: &Fs, ctx: &Ctx, node: Node) -> Option<Vec<u8>> {
    let mut path = Vec::new();
    let mut at = node;
    while at.ino != Ino::ROOT && path.len() < PATH_MAX {
        let parent = fs.parent(at).ok()?;
        path.splice(..0, name_of(fs, ctx, parent, at.ino)?);
        at = parent;
    }
    (path.len() < PATH_MAX).then_some(path)
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
