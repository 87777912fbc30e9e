//! Extended attributes: reading, setting, removing.
//!
//! The attributes of an inode are a set of pages that never change ([`set`]); a change makes a new set
//! and commits it by an attributes entry. Nothing of them is kept in DRAM but where they lie. Who may
//! see or change which attribute is for the callers: the kernel decides it for users of a mount.

pub(crate) mod set;

use novale_layout::{
    FileKind, Ino, PAGE, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XattrNamespace,
    XattrPageHeader, is_xattr_name,
};

use crate::error::{Error, Result};
use crate::fs::{Fs, Locked, OpKind};
use crate::log::LogId;
use crate::types::{Ctx, SetAttr, XattrMode};
use crate::view::View;
use set::{Xattrs, value_bytes};

impl Fs {
    /// The value of an extended attribute; its name has the namespace's prefix (`user.`, `trusted.`,
    /// `security.`).
    ///
    /// # Errors
    /// [`Error::NoAttribute`]; [`Error::NameRange`] and [`Error::Unsupported`] for what is no name of
    /// an attribute; [`Error::Stale`].
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let (namespace, name) = parse(name)?;
        self.read_view(0, ino, |view, _| {
            let (id, xattrs) = self.xattrs_of(view)?;
            let value = xattrs.get(namespace, name).ok_or(Error::NoAttribute)?;
            value_bytes(&self.pm, &id, value)
        })
    }

    /// The names of all extended attributes, each with its prefix and ended by a NUL.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<u8>> {
        self.read_view(0, ino, |view, _| Ok(self.xattrs_of(view)?.1.names()))
    }

    /// Sets an extended attribute, of up to 65,536 bytes.
    ///
    /// # Errors
    /// [`Error::Exists`] and [`Error::NoAttribute`] where `mode` says so; [`Error::NameRange`],
    /// [`Error::Unsupported`] and [`Error::Invalid`] for what is no name of an attribute;
    /// [`Error::NotPermitted`] for `user.` on what is neither file nor directory;
    /// [`Error::ValueTooLong`]; [`Error::NoSpace`], also where the names of the inode come to more
    /// than 64 KB, or its records to more than 1 MB. Nothing is changed then.
    pub fn setxattr(
        &self,
        ctx: &Ctx,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let (namespace, name) = parse(name)?;
        if value.len() > XATTR_VALUE_BYTES_MAX as usize {
            return Err(Error::ValueTooLong);
        }
        let call = self.begin(OpKind::Attributes, ctx)?;
        let locked = self.lock(&call, ino)?;
        check_kind(namespace, locked.kind)?;
        let mut xattrs = self.xattrs_of_locked(&locked)?;
        match (mode, xattrs.get(namespace, name)) {
            (XattrMode::Create, Some(_)) => return Err(Error::Exists),
            (XattrMode::Replace, None) => return Err(Error::NoAttribute),
            _ => {}
        }
        // At most a page more than the value, for the chain.
        let pages = (value.len() as u64).div_ceil(PAGE) + 1;
        self.allow(&call, locked.view.project(), pages, 0)?;
        xattrs.set(namespace, name, value);
        self.set_locked(&call, &locked, &SetAttr::default(), Some(xattrs))
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`Error::NoAttribute`], and those of [`Fs::setxattr`] for names.
    pub fn removexattr(&self, ctx: &Ctx, ino: Ino, name: &[u8]) -> Result<()> {
        let (namespace, name) = parse(name)?;
        let call = self.begin(OpKind::Attributes, ctx)?;
        let locked = self.lock(&call, ino)?;
        check_kind(namespace, locked.kind)?;
        let mut xattrs = self.xattrs_of_locked(&locked)?;
        if !xattrs.remove(namespace, name) {
            return Err(Error::NoAttribute);
        }
        self.set_locked(&call, &locked, &SetAttr::default(), Some(xattrs))
    }

    fn xattrs_of(&self, view: &View<'_>) -> Result<(LogId, Xattrs)> {
        let id = self.log_id(view.ino(), view.generation());
        let xattrs = Xattrs::read(&self.pm, &id, view.xattrs().root)?;
        Ok((id, xattrs))
    }

    fn xattrs_of_locked(&self, locked: &Locked<'_>) -> Result<Xattrs> {
        Xattrs::read(&self.pm, &locked.id, locked.view.xattrs().root)
    }

    /// The attributes that a change of owner, size or contents leaves, where they are not the same:
    /// file capabilities go with it.
    pub(crate) fn without_capability(&self, locked: &Locked<'_>) -> Result<Option<Xattrs>> {
        if !locked.view.has_xattr(XattrPageHeader::HAS_CAPABILITY) {
            return Ok(None);
        }
        let mut xattrs = self.xattrs_of_locked(locked)?;
        xattrs.remove_capability();
        Ok(Some(xattrs))
    }
}

/// Splits a name into its namespace and the rest.
fn parse(name: &[u8]) -> Result<(XattrNamespace, &[u8])> {
    if name.is_empty() || name.len() > XATTR_NAME_BYTES_MAX {
        return Err(Error::NameRange);
    }
    let namespaces = XattrNamespace::ALL.into_iter().filter(|one| one.has_names());
    for namespace in namespaces {
        if let Some(rest) = name.strip_prefix(namespace.prefix()) {
            let valid = is_xattr_name(namespace, rest);
            let error =
                Error::Invalid("an attribute's name that ends with its prefix, or has a NUL");
            return valid.then_some((namespace, rest)).ok_or(error);
        }
    }
    Err(Error::Unsupported("attributes of this namespace"))
}

/// Refuses attributes that an inode of this kind can't have.
fn check_kind(namespace: XattrNamespace, kind: FileKind) -> Result<()> {
    let is_plain = matches!(kind, FileKind::File | FileKind::Directory);
    if namespace == XattrNamespace::User && !is_plain {
        return Err(Error::NotPermitted("user attributes are for files and directories"));
    }
    Ok(())
}
