//! The library's front door: operations by path, in the manner of `std::fs`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use novale_core::{
    Attr, Ctx, DirEntry, Error as FsError, FileKind, Fs, HoldId, Ino, Mode, NewInode, Node,
    RenameMode, SetAttr, StatFs, Unnamed, UpdatePolicy,
};

use crate::hold::{lookup_open, open_same};
use crate::owner::Owner;
use crate::room::with_room;
use crate::shared::Shared;
use crate::table::{Fd, Table};
use crate::walk::{Follow, Found, anew, walk};
use crate::{Error, File, OpenOptions, Result, by_number, wall_clock_ns};

/// One entry of a directory listing; `.` and `..` are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: OsString,
    /// The inode it names.
    pub ino: Ino,
    /// That inode's kind.
    pub kind: FileKind,
}

impl From<&DirEntry<'_>> for Entry {
    fn from(entry: &DirEntry<'_>) -> Self {
        let name = OsStr::from_bytes(entry.name).to_owned();
        Self { name, ino: entry.ino, kind: entry.kind }
    }
}

/// A file system with paths and descriptors, usable from many threads.
///
/// Paths start at the pool's root, with or without a leading slash. The name [`by_number::DIRECTORY`] there is the
/// daemon's of a shared mount: nobody makes it (`EPERM`). New inodes belong to the user
/// and group given with [`Files::owner`], 0 and 0 at first.
pub struct Files {
    pub(crate) shared: Arc<Shared>,
    pub(crate) table: Table,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").field("owner", &self.shared.owner).finish_non_exhaustive()
    }
}

impl Files {
    /// Puts paths and descriptors on an open file system, with the system's clock.
    #[must_use]
    pub fn new(fs: Arc<Fs>) -> Self {
        Self::with_clock(fs, wall_clock_ns)
    }

    /// The same with a clock of the caller's, in nanoseconds since 1970, so that a run replays.
    #[must_use]
    pub fn with_clock(fs: Arc<Fs>, clock: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        let (owner, process) = (Owner::default(), std::process::id());
        let shared = Shared { fs, clock: Arc::new(clock), owner, process };
        Self { shared: Arc::new(shared), table: Table::default() }
    }

    /// Sets who owns the inodes made from here on, and for whom set-id bits fall.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        Arc::make_mut(&mut self.shared).owner = Owner { uid, gid };
        self
    }

    /// The file system below.
    #[must_use]
    pub fn fs(&self) -> &Fs {
        &self.shared.fs
    }

    pub(crate) fn ctx(&self) -> Ctx {
        self.shared.ctx()
    }

    pub(crate) fn find<'p>(
        &self,
        path: &'p (impl AsRef<OsStr> + ?Sized),
        follow: Follow,
    ) -> Result<Found<'p>> {
        walk(self.fs(), &self.ctx(), path.as_ref().as_bytes(), follow)
    }

    fn new_inode(&self, kind: FileKind, mode: u32) -> NewInode<'static> {
        let Owner { uid, gid } = self.shared.owner;
        NewInode { kind, mode: mode & 0o7777, uid, gid, rdev: 0, target: b"" }
    }

    /// Opens a file or a directory and gives it a descriptor; [`Files::open_file`] needs none.
    ///
    /// # Errors
    /// `EMFILE`, and those of [`Files::open_file`].
    pub fn open(&self, path: impl AsRef<OsStr>, options: &OpenOptions) -> Result<Fd> {
        self.table.insert(self.open_file(path, options)?)
    }

    /// Opens a file or a directory.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT`, `ENOTDIR`, `EISDIR` (a directory to be written), `ELOOP`, and those of the
    /// file system.
    pub fn open_file(&self, path: impl AsRef<OsStr>, options: &OpenOptions) -> Result<File> {
        let ((attr, hold), was_there) = anew(|| self.open_held(path.as_ref(), options))?;
        let file = File::new(self.shared.clone(), hold, options);
        check_kind(&attr, options)?;
        // One that is empty gets new times, too.
        if options.truncate && was_there {
            let empty = SetAttr { size: Some(0), ..SetAttr::default() };
            self.shared.set_attr(&attr, &empty)?;
        }
        Ok(file)
    }

    /// The inode to open, made where the options say so, and held once; and whether it was there before.
    fn open_held(&self, path: &OsStr, options: &OpenOptions) -> Result<((Attr, HoldId), bool)> {
        if options.unnamed {
            return Ok((self.make_unnamed(path, options)?, false));
        }
        let stay = options.no_follow || options.create_new;
        let found = self.find(&path, if stay { Follow::No } else { Follow::Yes })?;
        let ctx = self.ctx();
        if let Some(attr) = found.attr {
            if options.create_new {
                return Err(FsError::Exists.into());
            }
            let held = match &found.name {
                Some(name) if !stay && attr.kind != FileKind::Symlink => {
                    lookup_open(self.fs(), &ctx, found.parent, name)?
                }
                _ => self.held(&ctx, &attr)?,
            };
            return Ok((held, true));
        }
        if !options.create && !options.create_new {
            return Err(FsError::NotFound.into());
        }
        if found.slash {
            return Err(FsError::IsDirectory.into());
        }
        let new = self.new_inode(FileKind::File, options.mode);
        let name = found.new_name()?;
        match with_room(self.fs(), || self.fs().create_held(&ctx, found.parent, name, &new, 0)) {
            // Made by another since it was looked for: that is what is opened.
            Err(FsError::Exists) if !options.create_new => Err(FsError::Stale.into()),
            made => Ok((made?, false)),
        }
    }

    /// A file without a name.
    fn make_unnamed(&self, path: &OsStr, options: &OpenOptions) -> Result<(Attr, HoldId)> {
        if !options.write {
            return Err(FsError::Invalid("a file without a name that is not to be written").into());
        }
        let dir = self.find(&path, Follow::Yes)?.existing()?;
        let new = self.new_inode(FileKind::File, options.mode);
        let how = Unnamed { may_be_named: !options.create_new, umask: 0 };
        let make = || self.fs().create_unnamed_held(&self.ctx(), dir.node(), &new, how);
        Ok(with_room(self.fs(), make)?)
    }

    /// Gives an open file a further name, or one that was opened without any its first.
    ///
    /// # Errors
    /// `ENOENT` for a file whose last name was removed, `EXDEV` for one of another pool, those of the
    /// walk and of [`Fs::link`].
    pub fn link_file(&self, file: &File, path: impl AsRef<OsStr>) -> Result<()> {
        if !Arc::ptr_eq(&self.shared.fs, &file.shared().fs) {
            return Err(Error::OtherPool);
        }
        anew(|| {
            let found = self.find(&path, Follow::No)?;
            let name = found.new_name_of_any()?;
            let node = Node::current(file.ino());
            with_room(self.fs(), || self.fs().link(&self.ctx(), node, found.parent, name))?;
            Ok(())
        })
    }

    fn held(&self, ctx: &Ctx, found: &Attr) -> Result<(Attr, HoldId), FsError> {
        open_same(self.fs(), ctx, found.ino, found.generation)?.ok_or(FsError::Stale)
    }

    /// Attributes of what a path names, the end of a final symbolic link.
    ///
    /// # Errors
    /// Those of the walk.
    pub fn stat(&self, path: impl AsRef<OsStr>) -> Result<Attr> {
        anew(|| self.find(&path, Follow::Yes)?.existing())
    }

    /// Attributes of what a path names, a final symbolic link itself.
    ///
    /// # Errors
    /// Those of the walk.
    pub fn lstat(&self, path: impl AsRef<OsStr>) -> Result<Attr> {
        anew(|| self.find(&path, Follow::No)?.existing())
    }

    /// Whether a path leads somewhere; a failing walk counts as no.
    #[must_use]
    pub fn exists(&self, path: impl AsRef<OsStr>) -> bool {
        self.stat(path).is_ok()
    }

    /// Changes attributes of what a path names, following a final symbolic link. A change of owner or
    /// size takes set-id bits away, whatever `changes` says of them.
    ///
    /// # Errors
    /// Those of the walk and of [`Fs::setattr`].
    pub fn set_attr(&self, path: impl AsRef<OsStr>, changes: &SetAttr) -> Result<Attr> {
        anew(|| Ok(self.shared.set_attr(&self.stat(&path)?, changes)?))
    }

    /// As [`Files::set_attr`], of a final symbolic link itself.
    ///
    /// # Errors
    /// Those of the walk and of [`Fs::setattr`].
    pub fn set_link_attr(&self, path: impl AsRef<OsStr>, changes: &SetAttr) -> Result<Attr> {
        anew(|| Ok(self.shared.set_attr(&self.lstat(&path)?, changes)?))
    }

    /// The write methods that a path's file takes, or of a directory what is made in it: its own choice,
    /// or the pool's.
    ///
    /// # Errors
    /// Those of the walk.
    pub fn method(&self, path: impl AsRef<OsStr>) -> Result<UpdatePolicy> {
        let fs = &self.shared.fs;
        anew(|| Ok(fs.update_of(self.stat(&path)?.ino)?.unwrap_or_else(|| fs.update_policy())))
    }

    /// The same of when writes become durable.
    ///
    /// # Errors
    /// Those of the walk.
    pub fn mode(&self, path: impl AsRef<OsStr>) -> Result<Mode> {
        let fs = &self.shared.fs;
        let own = anew(|| Ok(fs.mode_of(self.stat(&path)?.ino)?))?;
        Ok(fs.mode_of_writes().map_or(Mode::Strict, |pools| own.unwrap_or(pools)))
    }

    /// Chooses the write methods of a file, or of what is made in a directory from now on; `None`: the
    /// pool's.
    ///
    /// # Errors
    /// `EINVAL` for what is neither; those of [`Files::set_attr`].
    pub fn set_method(&self, path: impl AsRef<OsStr>, method: Option<UpdatePolicy>) -> Result<()> {
        self.choose(path, &SetAttr { update: Some(method), ..SetAttr::default() })
    }

    /// Chooses when the writes of a file, or of what is made in a directory from now on, become durable,
    /// in a pool that was made or opened with a mode ([`crate::MakePool::mode`]); `None`: as the pool says.
    ///
    /// # Errors
    /// Those of [`Files::set_method`].
    pub fn set_mode(&self, path: impl AsRef<OsStr>, mode: Option<Mode>) -> Result<()> {
        self.choose(path, &SetAttr { mode_of_writes: Some(mode), ..SetAttr::default() })
    }

    fn choose(&self, path: impl AsRef<OsStr>, changes: &SetAttr) -> Result<()> {
        anew(|| {
            let attr = self.stat(&path)?;
            if !matches!(attr.kind, FileKind::File | FileKind::Directory) {
                let why = "only files and directories have a method and a mode of writes";
                return Err(FsError::Invalid(why).into());
            }
            Ok(self.shared.set_attr(&attr, changes)?)
        })
        .map(drop)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// Those of the walk and of [`Fs::create`].
    pub fn create_dir(&self, path: impl AsRef<OsStr>, mode: u32) -> Result<Attr> {
        let new = self.new_inode(FileKind::Directory, mode);
        anew(|| {
            let found = self.find(&path, Follow::No)?;
            let name = found.new_name_of_any()?;
            Ok(with_room(self.fs(), || self.fs().create(&self.ctx(), found.parent, name, &new))?)
        })
    }

    /// Makes a FIFO, a socket, a device (`rdev` its number) or an empty file.
    ///
    /// # Errors
    /// Those of the walk and of [`Fs::create`].
    pub fn make_node(
        &self,
        path: impl AsRef<OsStr>,
        kind: FileKind,
        mode: u32,
        rdev: u32,
    ) -> Result<Attr> {
        self.make(path.as_ref(), &NewInode { rdev, ..self.new_inode(kind, mode) })
    }

    /// Makes a symbolic link at `path` that holds `target`.
    ///
    /// # Errors
    /// Those of the walk and of [`Fs::create`].
    pub fn symlink(&self, target: impl AsRef<OsStr>, path: impl AsRef<OsStr>) -> Result<Attr> {
        let target = target.as_ref().as_bytes();
        self.make(path.as_ref(), &NewInode { target, ..self.new_inode(FileKind::Symlink, 0o777) })
    }

    fn make(&self, path: &OsStr, new: &NewInode<'_>) -> Result<Attr> {
        anew(|| {
            let found = self.find(&path, Follow::No)?;
            let name = found.new_name()?;
            Ok(with_room(self.fs(), || self.fs().create(&self.ctx(), found.parent, name, new))?)
        })
    }

    /// What a symbolic link holds.
    ///
    /// # Errors
    /// Those of the walk; `EINVAL` for what is no symbolic link.
    pub fn read_link(&self, path: impl AsRef<OsStr>) -> Result<OsString> {
        anew(|| Ok(OsString::from_vec(self.fs().readlink(self.lstat(&path)?.node())?)))
    }

    /// Gives an inode one more name; a symbolic link is linked itself.
    ///
    /// # Errors
    /// Those of the walk and of [`Fs::link`].
    pub fn hard_link(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> Result<Attr> {
        anew(|| {
            let attr = self.lstat(&from)?;
            let found = self.find(&to, Follow::No)?;
            let (node, name) = (attr.node(), found.new_name()?);
            Ok(with_room(self.fs(), || self.fs().link(&self.ctx(), node, found.parent, name))?)
        })
    }

    /// Removes a name that is no directory's.
    ///
    /// # Errors
    /// Those of the walk and of [`Fs::unlink`].
    pub fn remove_file(&self, path: impl AsRef<OsStr>) -> Result<()> {
        anew(|| {
            let found = self.find(&path, Follow::No)?;
            Ok(self.fs().unlink(&self.ctx(), found.parent, found.name()?)?)
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of the walk and of [`Fs::rmdir`].
    pub fn remove_dir(&self, path: impl AsRef<OsStr>) -> Result<()> {
        anew(|| {
            let found = self.find(&path, Follow::No)?;
            Ok(self.fs().rmdir(&self.ctx(), found.parent, found.name()?)?)
        })
    }

    /// Renames, replacing what stands at `to`.
    ///
    /// # Errors
    /// Those of the walk and of [`Fs::rename`].
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> Result<()> {
        self.rename_with(from, to, RenameMode::Replace)
    }

    /// Renames with a choice of what happens to what stands at `to`.
    ///
    /// # Errors
    /// Those of the walk and of [`Fs::rename`].
    pub fn rename_with(
        &self,
        from: impl AsRef<OsStr>,
        to: impl AsRef<OsStr>,
        mode: RenameMode,
    ) -> Result<()> {
        anew(|| {
            let old = self.find(&from, Follow::No)?;
            let source = old.existing()?;
            let new = self.find(&to, Follow::No)?;
            if new.slash && new.attr.is_none() && source.kind != FileKind::Directory {
                return Err(FsError::NotDirectory.into());
            }
            let (name, new_name) = (old.name()?, new.name()?);
            by_number::refuse_new(new.parent.ino, new_name)?;
            if mode == RenameMode::Exchange {
                by_number::refuse_new(old.parent.ino, name)?;
            }
            let (fs, ctx) = (self.fs(), || self.ctx());
            let rename = || fs.rename(&ctx(), old.parent, name, new.parent, new_name, mode);
            Ok(with_room(fs, rename)?)
        })
    }

    /// The entries of a directory, in the order of their cookies.
    ///
    /// # Errors
    /// Those of the walk and of [`Fs::readdir`].
    pub fn read_dir(&self, path: impl AsRef<OsStr>) -> Result<Vec<Entry>> {
        anew(|| {
            let attr = self.stat(&path)?;
            let mut entries = Vec::new();
            self.fs().readdir(&self.ctx(), attr.node(), 0, &mut |entry| {
                entries.push(Entry::from(entry));
                true
            })?;
            Ok(entries)
        })
    }

    /// Space and inodes.
    ///
    /// # Errors
    /// Those of [`Fs::statfs`].
    pub fn stat_fs(&self) -> Result<StatFs> {
        Ok(self.fs().statfs()?)
    }
}

fn check_kind(attr: &Attr, options: &OpenOptions) -> Result<()> {
    match attr.kind {
        FileKind::Directory if options.write || options.truncate || options.create => {
            Err(FsError::IsDirectory.into())
        }
        FileKind::Directory => Ok(()),
        _ if options.directory => Err(FsError::NotDirectory.into()),
        FileKind::Symlink => Err(Error::IsSymlink),
        FileKind::File => Ok(()),
        FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
            Err(FsError::Unsupported("a FIFO, socket or device is opened through the kernel")
                .into())
        }
    }
}
