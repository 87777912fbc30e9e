//! Extended attributes by path and by descriptor.
//!
//! As in Linux, what a caller may not see is not there: `trusted.` attributes are the
//! administrator's, user 0. Attributes of a sticky directory are changed by its owner alone.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use novale_core::{Attr, Error as FsError, FileKind, SetXattr, XattrMode};

use crate::room::with_room;
use crate::shared::Shared;
use crate::walk::{Follow, anew};
use crate::{Fd, File, Files, Result};

const STICKY: u32 = 0o1000;
const TRUSTED: &[u8] = b"trusted.";
const USER: &[u8] = b"user.";
const ACL: &[u8] = b"system.posix_acl_";

/// Whose attributes.
#[derive(Debug, Clone, Copy)]
pub enum At<'a> {
    /// Of what a path names, the end of a final symbolic link.
    Path(&'a OsStr),
    /// Of what a path names, a final symbolic link itself.
    Link(&'a OsStr),
    /// Of an open file, by its descriptor.
    Fd(Fd),
}

impl<'a, P: AsRef<OsStr> + ?Sized> From<&'a P> for At<'a> {
    fn from(path: &'a P) -> Self {
        At::Path(path.as_ref())
    }
}

impl From<Fd> for At<'_> {
    fn from(fd: Fd) -> Self {
        At::Fd(fd)
    }
}

impl Shared {
    fn get_xattr(&self, attr: &Attr, name: &OsStr) -> Result<Vec<u8>> {
        let name = name.as_bytes();
        if name.starts_with(TRUSTED) && !self.owner.is_privileged() {
            return Err(FsError::NoAttribute.into());
        }
        Ok(self.fs.getxattr(attr.node(), name)?)
    }

    fn set_xattr(&self, attr: &Attr, name: &OsStr, value: &[u8], mode: XattrMode) -> Result<()> {
        let name = name.as_bytes();
        self.may_change(attr, name)?;
        let clear_set_gid = !self.owner.is_privileged() && !self.owner.is_in_group(attr);
        let set = SetXattr { name, value, mode, clear_set_gid };
        Ok(with_room(&self.fs, || self.fs.setxattr(&self.ctx(), attr.node(), &set))?)
    }

    fn list_xattrs(&self, attr: &Attr) -> Result<Vec<OsString>> {
        let list = self.fs.listxattr(attr.node())?;
        let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        let shown = names.filter(|name| self.owner.is_privileged() || !name.starts_with(TRUSTED));
        Ok(shown.map(|name| OsString::from_vec(name.to_vec())).collect())
    }

    fn remove_xattr(&self, attr: &Attr, name: &OsStr) -> Result<()> {
        let name = name.as_bytes();
        self.may_change(attr, name)?;
        Ok(self.fs.removexattr(&self.ctx(), attr.node(), name)?)
    }

    /// The rules that are of attributes and not of files.
    fn may_change(&self, attr: &Attr, name: &[u8]) -> Result<()> {
        if self.owner.is_privileged() {
            return Ok(());
        }
        if name.starts_with(TRUSTED) {
            return Err(FsError::NotPermitted("trusted attributes are the administrator's").into());
        }
        if name.starts_with(ACL) && !self.owner.owns(attr) {
            return Err(FsError::NotPermitted("an ACL is changed by the file's owner").into());
        }
        let sticky = attr.kind == FileKind::Directory && attr.mode & STICKY != 0;
        if name.starts_with(USER) && sticky && !self.owner.owns(attr) {
            return Err(FsError::NotPermitted("attributes of another's sticky directory").into());
        }
        Ok(())
    }
}

impl Files {
    /// The value of an extended attribute, such as `user.note`.
    ///
    /// # Errors
    /// `ENODATA`, and those of [`novale_core::Fs::getxattr`].
    pub fn get_xattr<'a>(&self, at: impl Into<At<'a>>, name: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        let (at, name) = (at.into(), name.as_ref());
        anew(|| self.shared.get_xattr(&self.at(at)?, name))
    }

    /// Sets an extended attribute, of up to 65,536 bytes.
    ///
    /// # Errors
    /// `EPERM`, `EEXIST`, `ENODATA`, and others of [`novale_core::Fs::setxattr`].
    pub fn set_xattr<'a>(
        &self,
        at: impl Into<At<'a>>,
        name: impl AsRef<OsStr>,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let (at, name) = (at.into(), name.as_ref());
        anew(|| self.shared.set_xattr(&self.at(at)?, name, value, mode))
    }

    /// The names of all extended attributes that the caller may see.
    ///
    /// # Errors
    /// Those of the walk and of [`novale_core::Fs::listxattr`].
    pub fn list_xattrs<'a>(&self, at: impl Into<At<'a>>) -> Result<Vec<OsString>> {
        let at = at.into();
        anew(|| self.shared.list_xattrs(&self.at(at)?))
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `EPERM`, `ENODATA`, and others of [`novale_core::Fs::removexattr`].
    pub fn remove_xattr<'a>(&self, at: impl Into<At<'a>>, name: impl AsRef<OsStr>) -> Result<()> {
        let (at, name) = (at.into(), name.as_ref());
        anew(|| self.shared.remove_xattr(&self.at(at)?, name))
    }

    fn at(&self, at: At<'_>) -> Result<Attr> {
        match at {
            At::Path(path) => self.stat(path),
            At::Link(path) => self.find(&path, Follow::No)?.existing(),
            At::Fd(fd) => self.fstat(fd),
        }
    }
}

impl File {
    /// As [`Files::get_xattr`].
    ///
    /// # Errors
    /// As there.
    pub fn get_xattr(&self, name: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        self.shared().get_xattr(&self.attr()?, name.as_ref())
    }

    /// As [`Files::set_xattr`].
    ///
    /// # Errors
    /// As there.
    pub fn set_xattr(&self, name: impl AsRef<OsStr>, value: &[u8], mode: XattrMode) -> Result<()> {
        self.shared().set_xattr(&self.attr()?, name.as_ref(), value, mode)
    }

    /// As [`Files::list_xattrs`].
    ///
    /// # Errors
    /// As there.
    pub fn list_xattrs(&self) -> Result<Vec<OsString>> {
        self.shared().list_xattrs(&self.attr()?)
    }

    /// As [`Files::remove_xattr`].
    ///
    /// # Errors
    /// As there.
    pub fn remove_xattr(&self, name: impl AsRef<OsStr>) -> Result<()> {
        self.shared().remove_xattr(&self.attr()?, name.as_ref())
    }
}
