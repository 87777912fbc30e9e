//! Which directory names a directory.
//!
//! A directory's names are the truth, and the arena notes the parent that a look-up passed. A caller
//! that comes by an inode number alone (a file handle of NFS, say, after a new mount) has passed
//! none. For it each directory keeps a hint beside its access time, stored ahead of the commit that
//! names the directory and made durable by the same fence. The hint is believed only where the
//! directory that it points to has the name; otherwise all directories are searched.
//!
//! Crash points: none. A hint whose commit did not come points to what does not name the directory,
//! and one of an earlier use of the number fails by the generation.

use novale_layout::{
    DentryRef, FileKind, IDENTITY_OFFSET, INODES_PER_CHUNK, IdentityLine, Ino, VOLATILE_OFFSET,
    VOLATILE_PARENT_OFFSET, VolatileLine,
};
use novale_pm::{Flushed, Purpose};

use crate::base::error::{Error, Result};
use crate::base::types::{Ctx, Node};
use crate::fs::Fs;
use crate::inode::dir_index::{next_name, with_dentry};
use crate::inode::state::InodePlace;
use crate::inode::view::View;
use crate::inode::words::ParentWord;
use crate::op::call::{By, OpKind};

/// Names that are compared between two validations.
const STEP: usize = 4096;

impl View<'_> {
    /// What is noted of this inode as a parent.
    pub(crate) fn as_parent(&self) -> ParentWord {
        ParentWord::new(self.ino(), self.generation())
    }
}

impl Fs {
    /// A directory's parent; the root's is itself.
    ///
    /// # Errors
    /// [`Error::NotDirectory`]; [`Error::NotFound`] for a directory that was removed before its parent
    /// was known, or whose parent was removed after it; [`Error::Stale`].
    pub fn parent(&self, node: Node) -> Result<Node> {
        self.parent_by(0, node)
    }

    /// As [`Fs::parent`]. No inode is locked by the caller, unless the parent is noted.
    pub(crate) fn parent_by<'c>(&self, by: impl Into<By<'c>>, node: Node) -> Result<Node> {
        if node.ino == Ino::ROOT {
            return Ok(node);
        }
        let by = by.into();
        let (parent, generation, nlink) = self.read_node(by, node, |view, kind| {
            if kind != FileKind::Directory {
                return Err(Error::NotDirectory);
            }
            Ok((view.parent_word(), view.generation(), view.nlink()))
        })?;
        if parent != ParentWord::NONE {
            return self.noted(by, parent);
        }
        let sought = Node::new(node.ino, generation);
        let found = if nlink == 0 { None } else { self.find_parent(by, sought)? };
        let parent = self.with_lock(by, sought, |view| {
            if let Some(found) = found {
                view.note_parent(found);
            }
            view.parent_word()
        })?;
        self.noted(by, parent)
    }

    /// The parent that is noted, while it is there.
    fn noted(&self, by: By<'_>, parent: ParentWord) -> Result<Node> {
        if parent == ParentWord::NONE {
            return Err(Error::NotFound);
        }
        match self.read_view(by, parent.ino(), |view, _| Ok(view.generation())) {
            Ok(generation) if parent.is_of(generation) => Ok(Node::new(parent.ino(), generation)),
            Ok(_) | Err(Error::Stale) => Err(Error::NotFound),
            Err(error) => Err(error),
        }
    }

    /// Notes the directory in which a listing showed `node`, a directory: a caller that goes on to
    /// it without a look-up would leave its parent unknown.
    ///
    /// # Errors
    /// [`Error::Stale`] for an inode that is not in use.
    pub fn note_parent(&self, node: Node, parent: Node) -> Result<()> {
        if self.read_node(0, node, |view, _| Ok(view.parent() != Ino::NULL))? {
            return Ok(());
        }
        let parent = self.read_node(0, parent, |view, _| Ok(view.as_parent()))?;
        self.with_lock(By::Hint(0), node, |view| view.note_parent(parent))
    }

    /// Runs `change` on an inode's view under its lock: without it the block may be another's by then.
    fn with_lock<T>(
        &self,
        by: By<'_>,
        node: Node,
        change: impl FnOnce(&View<'_>) -> T,
    ) -> Result<T> {
        match by {
            By::Call(call) => Ok(change(&self.lock_node(call, node)?.view)),
            By::Hint(hint) => {
                let call = self.begin_read(OpKind::Load, &Ctx { now_ns: 0, hint })?;
                let locked = self.lock_node(&call, node)?;
                Ok(change(&locked.view))
            }
        }
    }

    /// Stores the hint of a directory that is about to be named by `parent`.
    pub(crate) fn store_parent(&self, place: &InodePlace, parent: Ino) -> Flushed {
        let at = place.addr.add(VOLATILE_OFFSET + VOLATILE_PARENT_OFFSET);
        self.pm.write_back(self.pm.store_u64(at, parent.get(), Purpose::Inode))
    }

    /// By the hint, or else by a search through all directories. One that is moved meanwhile may be
    /// missed, and its parent is known when that is done.
    fn find_parent(&self, by: By<'_>, sought: Node) -> Result<Option<ParentWord>> {
        let line = self.place(sought.ino)?.addr.add(VOLATILE_OFFSET);
        let hint = VolatileLine::decode(&self.pm.load_line(line)?).parent;
        if hint.is_valid()
            && let Some(parent) = self.names(by, hint, sought)?
        {
            return Ok(Some(parent));
        }
        let arena = self.arena();
        for chunk in 0..self.inodes.chunk_count(arena)? {
            for index in 0..INODES_PER_CHUNK {
                let (word, bit) = (usize::try_from(index / 64).unwrap_or_default(), index % 64);
                if self.inodes.word(arena, chunk, word)? & (1 << bit) == 0 {
                    continue;
                }
                let dir = Ino::new(chunk * INODES_PER_CHUNK + index);
                if self.is_directory(dir)
                    && let Some(parent) = self.names(by, dir, sought)?
                {
                    return Ok(Some(parent));
                }
            }
        }
        Ok(None)
    }

    /// Whether an inode's place says that it is, or was, a directory. Numbers that are taken and have
    /// no place or nothing in it yet are none.
    fn is_directory(&self, ino: Ino) -> bool {
        let Ok(place) = self.place(ino) else { return false };
        let line = self.pm.load_line(place.addr.add(IDENTITY_OFFSET));
        let identity = line.ok().and_then(|line| IdentityLine::decode(&line, place.seed).ok());
        identity.is_some_and(|identity| identity.kind == FileKind::Directory)
    }

    /// The directory with this number, if it is one and has a name of the inode. What can't be read
    /// names nothing.
    fn names(&self, by: By<'_>, dir: Ino, sought: Node) -> Result<Option<ParentWord>> {
        let mut from = 0;
        // Cookies only rise, so that this ends with the directory.
        loop {
            let step = self.read_view(by, dir, |view, kind| {
                if kind != FileKind::Directory {
                    return Err(Error::NotDirectory);
                }
                let mut at = from;
                for _ in 0..STEP {
                    let Some((cookie, addr)) = next_name(self.arena(), view, at)? else {
                        return Ok((None, None));
                    };
                    let is_sought = |named: &DentryRef<'_>| {
                        named.ino() == sought.ino && sought.is_of(named.generation())
                    };
                    if with_dentry(&self.pm, addr, is_sought)? {
                        return Ok((Some(view.as_parent()), None));
                    }
                    at = cookie + 1;
                }
                Ok((None, Some(at)))
            });
            match step {
                Ok((_, Some(next))) => from = next,
                Ok((found, None)) => return Ok(found),
                Err(
                    Error::Stale | Error::NotDirectory | Error::Damaged { .. } | Error::Lost(_),
                ) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
    }
}
