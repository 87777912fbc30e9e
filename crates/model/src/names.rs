//! Operations on directories and names: look up, create, link, remove, list.

use std::collections::BTreeMap;

use crate::state::{Body, Model};
use crate::types::{Attr, Error, Ino, Kind, NAME_BYTES_MAX, NewInode, Result};

const SET_GID: u32 = 0o2000;

impl Model {
    /// The inode that `name` in `parent` names.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`], [`Error::Stale`] or those of a bad name.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        check_name(name)?;
        let entries = self.entries(parent)?;
        self.getattr(*entries.get(name).ok_or(Error::NotFound)?)
    }

    /// Makes an inode of any kind and names it.
    ///
    /// In a set-gid directory it takes the directory's group, and a new directory the bit too.
    ///
    /// # Errors
    /// [`Error::Exists`]; [`Error::NotFound`] where the parent was removed; [`Error::QuotaExceeded`];
    /// those of `lookup`.
    pub fn create(
        &mut self,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        now_ns: i64,
    ) -> Result<Attr> {
        self.check_vacant(parent, name)?;
        let ino = self.make(parent, new, now_ns)?;
        self.insert_entry(parent, name, ino);
        self.touch_contents(parent, now_ns);
        self.getattr(ino)
    }

    /// Makes a regular file without a name, held once; [`Model::link`] may give it one.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another kind; those of `create` but for names.
    pub fn create_unnamed(&mut self, parent: Ino, new: &NewInode, now_ns: i64) -> Result<Attr> {
        if new.kind != Kind::File {
            return Err(Error::Invalid);
        }
        self.entries(parent)?;
        self.check_not_removed(parent)?;
        let ino = self.make(parent, new, now_ns)?;
        let inode = self.inode_mut(ino)?;
        (inode.attr.nlink, inode.holds, inode.may_be_named) = (0, 1, true);
        self.getattr(ino)
    }

    /// A new inode with what it has of the directory that it is made in.
    fn make(&mut self, parent: Ino, new: &NewInode, now_ns: i64) -> Result<Ino> {
        let mut new = new.clone();
        let parent_attr = self.getattr(parent)?;
        if self.is_full(parent_attr.project) {
            return Err(Error::QuotaExceeded);
        }
        if parent_attr.mode & SET_GID != 0 {
            new.gid = parent_attr.gid;
            if new.kind == Kind::Directory {
                new.mode |= SET_GID;
            }
        }
        let attr = self.add(&new, parent, now_ns);
        self.inode_mut(attr.ino)?.attr.project = parent_attr.project;
        self.inherit(parent, attr.ino);
        Ok(attr.ino)
    }

    /// Gives an inode another name.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for a directory; [`Error::NotFound`] for an inode whose last name
    /// was removed; [`Error::OtherTree`]; those of `create`.
    pub fn link(
        &mut self,
        ino: Ino,
        new_parent: Ino,
        new_name: &[u8],
        now_ns: i64,
    ) -> Result<Attr> {
        check_name(new_name)?;
        let attr = self.getattr(ino)?;
        if attr.kind == Kind::Directory {
            return Err(Error::NotPermitted);
        }
        if attr.nlink == 0 && !self.inode(ino)?.may_be_named {
            return Err(Error::NotFound);
        }
        if attr.nlink == u32::MAX {
            return Err(Error::TooManyLinks);
        }
        self.check_vacant(new_parent, new_name)?;
        if self.getattr(new_parent)?.project != attr.project {
            return Err(Error::OtherTree);
        }
        self.sync(ino);
        self.insert_entry(new_parent, new_name, ino);
        self.inode_mut(ino)?.may_be_named = false;
        self.add_links(ino, 1);
        self.touch(ino, now_ns);
        self.touch_contents(new_parent, now_ns);
        self.getattr(ino)
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// [`Error::IsDirectory`]; those of `lookup`.
    pub fn unlink(&mut self, parent: Ino, name: &[u8], now_ns: i64) -> Result<()> {
        let attr = self.lookup(parent, name)?;
        if attr.kind == Kind::Directory {
            return Err(Error::IsDirectory);
        }
        self.remove_entry(parent, name);
        self.touch_contents(parent, now_ns);
        self.forget_name(attr.ino, now_ns);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Error::NotDirectory`], [`Error::NotEmpty`]; those of `lookup`.
    pub fn rmdir(&mut self, parent: Ino, name: &[u8], now_ns: i64) -> Result<()> {
        let attr = self.lookup(parent, name)?;
        if !self.entries(attr.ino)?.is_empty() {
            return Err(Error::NotEmpty);
        }
        self.remove_entry(parent, name);
        self.touch_contents(parent, now_ns);
        self.add_links(parent, -1);
        self.forget_name(attr.ino, now_ns);
        Ok(())
    }

    /// The names in a directory with what they name, in byte order.
    ///
    /// # Errors
    /// [`Error::NotDirectory`], [`Error::Stale`].
    pub fn readdir(&self, ino: Ino) -> Result<Vec<(Vec<u8>, Ino)>> {
        let entries = self.entries(ino)?;
        Ok(entries.iter().map(|(name, child)| (name.clone(), *child)).collect())
    }

    /// The directory that a directory is in (the root: itself).
    ///
    /// # Errors
    /// [`Error::NotDirectory`], [`Error::Stale`].
    pub fn parent(&self, ino: Ino) -> Result<Ino> {
        match self.inode(ino)?.body {
            Body::Directory { parent, .. } => Ok(parent),
            Body::File(_) | Body::Symlink(_) | Body::Other => Err(Error::NotDirectory),
        }
    }

    /// The entries of a directory.
    pub(crate) fn entries(&self, ino: Ino) -> Result<&BTreeMap<Vec<u8>, Ino>> {
        match &self.inode(ino)?.body {
            Body::Directory { entries, .. } => Ok(entries),
            Body::File(_) | Body::Symlink(_) | Body::Other => Err(Error::NotDirectory),
        }
    }

    pub(crate) fn insert_entry(&mut self, parent: Ino, name: &[u8], child: Ino) {
        if let Some(Body::Directory { entries, .. }) = self.body_mut(parent) {
            entries.insert(name.to_vec(), child);
        }
        if matches!(self.body_mut(child), Some(Body::Directory { .. })) {
            self.add_links(parent, 1);
            self.set_parent(child, parent);
        }
    }

    pub(crate) fn remove_entry(&mut self, parent: Ino, name: &[u8]) {
        if let Some(Body::Directory { entries, .. }) = self.body_mut(parent) {
            entries.remove(name);
        }
    }

    /// What happens to an inode that lost a name: a directory loses its "." with it.
    pub(crate) fn forget_name(&mut self, ino: Ino, now_ns: i64) {
        let is_directory = matches!(self.body_mut(ino), Some(Body::Directory { .. }));
        self.add_links(ino, if is_directory { -2 } else { -1 });
        self.touch(ino, now_ns);
        self.drop_if_unused(ino);
    }

    pub(crate) fn set_parent(&mut self, ino: Ino, new_parent: Ino) {
        if let Some(Body::Directory { parent, .. }) = self.body_mut(ino) {
            *parent = new_parent;
        }
    }

    fn body_mut(&mut self, ino: Ino) -> Option<&mut Body> {
        self.inodes.get_mut(&ino).map(|inode| &mut inode.body)
    }

    /// Whether a new name can be made there.
    fn check_vacant(&self, parent: Ino, name: &[u8]) -> Result<()> {
        check_name(name)?;
        let entries = self.entries(parent)?;
        if entries.contains_key(name) {
            return Err(Error::Exists);
        }
        self.check_not_removed(parent)
    }

    pub(crate) fn check_not_removed(&self, directory: Ino) -> Result<()> {
        if self.getattr(directory)?.nlink == 0 { Err(Error::NotFound) } else { Ok(()) }
    }
}

pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() || name.contains(&0) || name.contains(&b'/') {
        return Err(Error::InvalidName);
    }
    Ok(())
}
