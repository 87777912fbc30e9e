//! Extended attributes by path and by descriptor.
//!
//! As in Linux, what a caller may not see is not there: `trusted.` attributes are the
//! administrator's, user 0. Attributes of a sticky directory are changed by its owner alone.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use novale_core::{Attr, Error as FsError, FileKind, SetXattr, XattrMode};

use crate::walk::Follow;
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
    /// Of an open file.
    File(&'a File),
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

impl Files {
    /// The value of an extended attribute, such as `user.note`.
    ///
    /// # Errors
    /// `ENODATA`, and those of [`novale_core::Fs::getxattr`].
    pub fn get_xattr<'a>(&self, at: impl Into<At<'a>>, name: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        let (attr, name) = (self.at(at.into())?, name.as_ref().as_bytes());
        if name.starts_with(TRUSTED) && !self.shared.owner.is_privileged() {
            return Err(FsError::NoAttribute.into());
        }
        Ok(self.fs().getxattr(attr.ino, name)?)
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
        let (attr, name) = (self.at(at.into())?, name.as_ref().as_bytes());
        self.may_change(&attr, name)?;
        let clear_set_gid =
            !self.shared.owner.is_privileged() && !self.shared.owner.is_in_group(&attr);
        let set = SetXattr { name, value, mode, clear_set_gid };
        Ok(self.fs().setxattr(&self.ctx(), attr.ino, &set)?)
    }

    /// The names of all extended attributes that the caller may see.
    ///
    /// # Errors
    /// Those of the walk and of [`novale_core::Fs::listxattr`].
    pub fn list_xattrs<'a>(&self, at: impl Into<At<'a>>) -> Result<Vec<OsString>> {
        let list = self.fs().listxattr(self.at(at.into())?.ino)?;
        let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        let shown =
            names.filter(|name| self.shared.owner.is_privileged() || !name.starts_with(TRUSTED));
        Ok(shown.map(|name| OsString::from_vec(name.to_vec())).collect())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `EPERM`, `ENODATA`, and others of [`novale_core::Fs::removexattr`].
    pub fn remove_xattr<'a>(&self, at: impl Into<At<'a>>, name: impl AsRef<OsStr>) -> Result<()> {
        let (attr, name) = (self.at(at.into())?, name.as_ref().as_bytes());
        self.may_change(&attr, name)?;
        Ok(self.fs().removexattr(&self.ctx(), attr.ino, name)?)
    }

    fn at(&self, at: At<'_>) -> Result<Attr> {
        match at {
            At::Path(path) => self.stat(path),
            At::Link(path) => self.find(path, Follow::No)?.existing(),
            At::Fd(fd) => self.fstat(fd),
            At::File(file) => file.attr(),
        }
    }

    /// The rules that are of attributes and not of files.
    fn may_change(&self, attr: &Attr, name: &[u8]) -> Result<()> {
        if self.shared.owner.is_privileged() {
            return Ok(());
        }
        if name.starts_with(TRUSTED) {
            return Err(FsError::NotPermitted("trusted attributes are the administrator's").into());
        }
        if name.starts_with(ACL) && !self.shared.owner.owns(attr) {
            return Err(FsError::NotPermitted("an ACL is changed by the file's owner").into());
        }
        let sticky = attr.kind == FileKind::Directory && attr.mode & STICKY != 0;
        if name.starts_with(USER) && sticky && !self.shared.owner.owns(attr) {
            return Err(FsError::NotPermitted("attributes of another's sticky directory").into());
        }
        Ok(())
    }
}
