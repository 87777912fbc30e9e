//! The model's state: inodes by number, each with its body.

use std::collections::{BTreeMap, BTreeSet};

use crate::contents::Contents;
use crate::types::{Atime, Attr, Error, Ino, Kind, NewInode, Result};

/// A file system in plain collections.
///
/// Every operation that fails leaves it as it was. Each takes the time in ns since 1970.
#[derive(Debug, Clone)]
pub struct Model {
    pub(crate) inodes: BTreeMap<Ino, Inode>,
    pub(crate) atime: Atime,
    /// Inodes that directory trees may have.
    pub(crate) limits: BTreeMap<u32, u64>,
    next: u64,
    /// Whether writes within a file change it in place.
    pub(crate) overwrites_in_place: bool,
    /// Whether a crash may take writes back.
    pub(crate) buffers: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Inode {
    pub(crate) attr: Attr,
    pub(crate) body: Body,
    /// Extended attributes by their whole names.
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Open files and the like that keep the inode when its last name is gone.
    pub(crate) holds: u64,
    /// Those of them that have the file's own pages mapped.
    pub(crate) maps: u64,
    /// Writes that have changed it in place.
    pub(crate) in_place_writes: u64,
    /// Made without a name: it may get one, once.
    pub(crate) may_be_named: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Body {
    File(Contents),
    Directory { entries: BTreeMap<Vec<u8>, Ino>, parent: Ino },
    Symlink(Vec<u8>),
    Other,
}

impl Model {
    /// An empty file system whose root directory has these attributes.
    #[must_use]
    pub fn new(mode: u32, uid: u32, gid: u32, now_ns: i64, atime: Atime) -> Self {
        let mut model = Self {
            inodes: BTreeMap::new(),
            atime,
            limits: BTreeMap::new(),
            next: Ino::ROOT.0,
            overwrites_in_place: false,
            buffers: false,
        };
        let root = NewInode { kind: Kind::Directory, mode, uid, gid, rdev: 0, target: Vec::new() };
        model.add(&root, Ino::ROOT, now_ns);
        model
    }

    /// The attributes of an inode.
    ///
    /// # Errors
    /// [`Error::Stale`] for one that does not exist (any more).
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        Ok(self.inode(ino)?.attr)
    }

    /// Keeps an inode beyond its last name, until it is released as often as it was held.
    ///
    /// # Errors
    /// [`Error::Stale`] for one that does not exist.
    pub fn hold(&mut self, ino: Ino) -> Result<()> {
        self.inode_mut(ino)?.holds += 1;
        Ok(())
    }

    /// Takes back `count` holds; the inode ends here if it has neither names nor holds left.
    pub fn release(&mut self, ino: Ino, count: u64) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.holds = inode.holds.saturating_sub(count);
        }
        self.drop_if_unused(ino);
    }

    /// Takes back all holds, as a remount does: open files do not outlive it.
    pub fn release_all(&mut self) {
        self.inodes.values_mut().for_each(|inode| (inode.holds, inode.maps) = (0, 0));
        self.inodes.retain(|_, inode| inode.attr.nlink > 0);
    }

    /// Limits the inodes of the directory tree that an inode counts for, 0: not at all. Changes the
    /// root's ctime.
    ///
    /// # Errors
    /// [`Error::Invalid`] for one that counts for none.
    pub fn limit(&mut self, ino: Ino, inodes: u64, now_ns: i64) -> Result<()> {
        let project = self.getattr(ino)?.project;
        if project == 0 {
            return Err(Error::Invalid);
        }
        // Those of which nothing is left go.
        let there: BTreeSet<u32> = self.inodes.values().map(|inode| inode.attr.project).collect();
        self.limits.retain(|project, _| there.contains(project));
        self.limits.insert(project, inodes);
        self.limits.retain(|_, limit| *limit > 0);
        self.touch(Ino::ROOT, now_ns);
        Ok(())
    }

    /// The limits of directory trees that have any.
    #[must_use]
    pub fn limits(&self) -> &BTreeMap<u32, u64> {
        &self.limits
    }

    pub(crate) fn is_full(&self, project: u32) -> bool {
        let Some(limit) = self.limits.get(&project) else { return false };
        let members = self.inodes.values().filter(|inode| inode.attr.project == project);
        members.count() as u64 >= *limit
    }

    /// Number of inodes, the root directory and held ones without a name included.
    #[must_use]
    pub fn inode_count(&self) -> usize {
        self.inodes.len()
    }

    pub(crate) fn inode(&self, ino: Ino) -> Result<&Inode> {
        self.inodes.get(&ino).ok_or(Error::Stale)
    }

    pub(crate) fn inode_mut(&mut self, ino: Ino) -> Result<&mut Inode> {
        self.inodes.get_mut(&ino).ok_or(Error::Stale)
    }

    /// Makes an inode; names it nowhere.
    pub(crate) fn add(&mut self, new: &NewInode, parent: Ino, now_ns: i64) -> Attr {
        let ino = Ino(self.next);
        self.next += 1;
        let body = match new.kind {
            Kind::File => Body::File(Contents::default()),
            Kind::Directory => Body::Directory { entries: BTreeMap::new(), parent },
            Kind::Symlink => Body::Symlink(new.target.clone()),
            Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => Body::Other,
        };
        let is_device = matches!(new.kind, Kind::CharDevice | Kind::BlockDevice);
        let attr = Attr {
            ino,
            kind: new.kind,
            mode: new.mode,
            nlink: if new.kind == Kind::Directory { 2 } else { 1 },
            uid: new.uid,
            gid: new.gid,
            rdev: if is_device { new.rdev } else { 0 },
            project: 0,
            size: if new.kind == Kind::Symlink { new.target.len() as u64 } else { 0 },
            atime_ns: now_ns,
            mtime_ns: now_ns,
            ctime_ns: now_ns,
            birth_ns: now_ns,
        };
        let xattrs = BTreeMap::new();
        let inode = Inode {
            attr,
            body,
            xattrs,
            holds: 0,
            maps: 0,
            in_place_writes: 0,
            may_be_named: false,
        };
        self.inodes.insert(ino, inode);
        attr
    }

    pub(crate) fn drop_if_unused(&mut self, ino: Ino) {
        let unused = |inode: &Inode| inode.attr.nlink == 0 && inode.holds == 0;
        if self.inodes.get(&ino).is_some_and(unused) {
            self.inodes.remove(&ino);
        }
    }

    /// Sets ctime, as every change of an inode does.
    pub(crate) fn touch(&mut self, ino: Ino, now_ns: i64) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.attr.ctime_ns = now_ns;
        }
        self.change_earlier(ino, now_ns);
    }

    /// Sets mtime and ctime, as every change of an inode's contents does.
    pub(crate) fn touch_contents(&mut self, ino: Ino, now_ns: i64) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.attr.mtime_ns = now_ns;
            inode.attr.ctime_ns = now_ns;
        }
    }

    pub(crate) fn add_links(&mut self, ino: Ino, change: i32) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.attr.nlink = inode.attr.nlink.saturating_add_signed(change);
        }
    }
}
