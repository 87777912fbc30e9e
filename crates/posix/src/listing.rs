//! A directory's listing as programs see it: `.` and `..` in front, the core's entries after.
//!
//! Positions are the same for every client: the one who goes on where another one has stopped, as the
//! kernel does with a directory that a program had open without it, gets what is left.

use novale_core::{Ctx, DirEntry, Error, FileKind, Fs, Node, Result};

/// Cookies of `.` and `..`; the core's start at 16 and stay below 2^63.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

/// `.` and `..` of a directory, as far as they come after a cookie.
///
/// # Errors
/// Those of [`Fs::parent`], but for a directory that was removed before anybody asked for its parent,
/// or whose parent is gone: its own number stands in.
pub fn list_dots(fs: &Fs, node: Node, after: u64) -> Result<Vec<DirEntry<'static>>> {
    let dot = |cookie, ino, name| DirEntry {
        cookie,
        ino,
        generation: 0,
        kind: FileKind::Directory,
        name,
    };
    let mut dots = Vec::new();
    if after < DOT {
        dots.push(dot(DOT, node.ino, &b"."[..]));
    }
    if after < DOT_DOT {
        let parent = match fs.parent(node) {
            Err(Error::NotFound) => node,
            parent => parent?,
        };
        dots.push(dot(DOT_DOT, parent.ino, b".."));
    }
    Ok(dots)
}

/// Where the core's entries go on after a cookie of a listing.
#[must_use]
pub fn after_dots(after: u64) -> u64 {
    if after <= DOT_DOT { 0 } else { after }
}

/// Which entries of a directory a reader that has it open is to see yet.
///
/// Entries that come while it is read have cookies above all others: a reader that moved each entry
/// it sees would never come to an end. So the end is fixed with the first read from the start, which
/// `rewinddir` leads to again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// Those after this cookie; 0 is the start.
    pub after: u64,
    /// None above this one; 0 where that is not fixed yet.
    pub end: u64,
}

impl Span {
    /// The same with its end fixed: as the directory is now, where that is due.
    ///
    /// # Errors
    /// Those of [`Fs::last_cookie`].
    pub fn fixed(self, fs: &Fs, ctx: &Ctx, node: Node) -> Result<Self> {
        if self.after != 0 && self.end != 0 {
            return Ok(self);
        }
        Ok(Self { end: fs.last_cookie(ctx, node)?, ..self })
    }
}

/// Lists what a span of a directory has until `each` returns `false`.
///
/// # Errors
/// Those of [`list_dots`] and [`Fs::readdir`].
pub fn list(
    fs: &Fs,
    ctx: &Ctx,
    node: Node,
    span: Span,
    each: &mut dyn FnMut(&DirEntry<'_>) -> bool,
) -> Result<()> {
    for dot in list_dots(fs, node, span.after)? {
        if !each(&dot) {
            return Ok(());
        }
    }
    fs.readdir(ctx, node, after_dots(span.after), &mut |entry| {
        entry.cookie <= span.end && each(entry)
    })
}
