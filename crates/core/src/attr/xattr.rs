//! Extended attributes: reading, setting, removing.
//!
//! The attributes of an inode are a set of pages that never change ([`crate::op::xattr_set`]); a change
//! makes a new set and commits it by an attributes entry. Nothing of them is kept in DRAM but where they
//! lie. Who may see or change which attribute is for the callers: the kernel decides it for users of a
//! mount. What an ACL says of permission bits, and what new inodes inherit, is kept here
//! ([`crate::base::acl`]).

use novale_layout::{
    FileKind, RoFeature, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XattrNamespace,
    XattrPageHeader, is_xattr_name,
};
use novale_pm::Flushed;

use crate::base::acl::Acl;
use crate::base::error::{Error, Result};
use crate::base::types::{Ctx, Node, SetAttr, SetXattr, XattrMode};
use crate::fs::Fs;
use crate::inode::state::LogId;
use crate::inode::view::View;
use crate::op::call::{Call, OpKind};
use crate::op::lock::Locked;
use crate::op::xattr_set::{ReadyXattrs, Xattrs, value_bytes};

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const STICKY: u32 = 0o1000;

impl Fs {
    /// The value of an extended attribute; its name has the namespace's prefix (`user.`, `trusted.`,
    /// `security.`), or is `system.posix_acl_access` or `system.posix_acl_default`.
    ///
    /// # Errors
    /// [`Error::NoAttribute`]; [`Error::NameRange`] and [`Error::Unsupported`] for what is no name of
    /// an attribute; [`Error::Damaged`], also for the bytes of an ACL that are none; [`Error::Stale`].
    pub fn getxattr(&self, node: Node, name: &[u8]) -> Result<Vec<u8>> {
        let (namespace, name) = parse(name)?;
        self.read_node(0, node, |view, kind| {
            let (id, xattrs) = self.xattrs_of(view)?;
            let value = xattrs.get(namespace, name).ok_or(Error::NoAttribute)?;
            if !namespace.has_names() {
                xattrs.check_acls(&self.pm, &id, kind)?;
            }
            value_bytes(&self.pm, &id, value)
        })
    }

    /// The names of all extended attributes, each with its prefix and ended by a NUL.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn listxattr(&self, node: Node) -> Result<Vec<u8>> {
        self.read_node(0, node, |view, _| Ok(self.xattrs_of(view)?.1.names()))
    }

    /// Sets an extended attribute, of up to 65,536 bytes. An access ACL sets the permission bits as
    /// well, in the same commit, and is stored where these do not say all of it; an ACL without
    /// entries is removed. Of an ACL the mode is not asked, as in Linux.
    ///
    /// # Errors
    /// [`Error::Exists`] and [`Error::NoAttribute`] where the mode says so; [`Error::NameRange`],
    /// [`Error::Unsupported`] and [`Error::Invalid`] for what is no name of an attribute, or no ACL;
    /// [`Error::NotPermitted`] for `user.` on what is neither file nor directory, [`Error::Denied`]
    /// for a default ACL of what is no directory; [`Error::ValueTooLong`]; [`Error::NoSpace`], also
    /// where the names of the inode come to more than 64 KB, or its records to more than 1 MB.
    /// Nothing is changed then.
    pub fn setxattr(&self, ctx: &Ctx, node: Node, set: &SetXattr<'_>) -> Result<()> {
        let (namespace, name) = parse(set.name)?;
        if set.value.len() > XATTR_VALUE_BYTES_MAX as usize {
            return Err(Error::ValueTooLong);
        }
        let acl = if namespace.has_names() { None } else { Acl::decode(set.value)? };
        if acl.is_none() && !namespace.has_names() {
            // A list of no entries is none, as in Linux.
            return self.removexattr(ctx, node, set.name);
        }
        self.use_feature(ctx, RoFeature::Xattrs)?;
        let call = self.begin(OpKind::Attributes, ctx)?;
        let locked = self.lock_node(&call, node)?;
        check_kind(namespace, locked.kind)?;
        let mut xattrs = self.xattrs_of_locked(&locked)?;
        let (project, mut changes) = (locked.view.project(), SetAttr::default());
        if namespace.has_names() {
            match (set.mode, xattrs.get(namespace, name)) {
                (XattrMode::Create | XattrMode::Neither, Some(_)) => return Err(Error::Exists),
                (XattrMode::Replace | XattrMode::Neither, None) => return Err(Error::NoAttribute),
                _ => {}
            }
            xattrs.set(namespace, name, set.value);
            self.allow(&call, project, xattrs.growth(), 0)?;
            return self.set_locked(&call, &locked, &changes, Some(xattrs));
        }
        let mut stored = acl.as_ref();
        if let Some(acl) = acl.as_ref().filter(|_| namespace == XattrNamespace::AclAccess) {
            let (bits, is_mode) = acl.mode();
            let kept =
                if set.clear_set_gid { SET_UID | STICKY } else { SET_UID | SET_GID | STICKY };
            changes.mode = Some(locked.view.attrs().mode & kept | bits);
            stored = stored.filter(|_| !is_mode);
        }
        let is_new_set = match stored {
            Some(acl) => {
                xattrs.set(namespace, name, &acl.encode());
                self.allow(&call, project, xattrs.growth(), 0)?;
                true
            }
            None => xattrs.remove(namespace, name),
        };
        self.set_locked(&call, &locked, &changes, is_new_set.then_some(xattrs))
    }

    /// Removes an extended attribute; an ACL that is not there is removed as well, as in Linux.
    ///
    /// # Errors
    /// [`Error::NoAttribute`], and those of [`Fs::setxattr`] for names.
    pub fn removexattr(&self, ctx: &Ctx, node: Node, name: &[u8]) -> Result<()> {
        let (namespace, name) = parse(name)?;
        let call = self.begin(OpKind::Attributes, ctx)?;
        let locked = self.lock_node(&call, node)?;
        if namespace == XattrNamespace::AclDefault && locked.kind != FileKind::Directory {
            return Ok(());
        }
        check_kind(namespace, locked.kind)?;
        let mut xattrs = self.xattrs_of_locked(&locked)?;
        let was_there = xattrs.remove(namespace, name);
        if !was_there && namespace.has_names() {
            return Err(Error::NoAttribute);
        }
        self.set_locked(&call, &locked, &SetAttr::default(), was_there.then_some(xattrs))
    }

    pub(crate) fn xattrs_of(&self, view: &View<'_>) -> Result<(LogId, Xattrs)> {
        let id = self.log_id(view.ino(), view.generation());
        let xattrs = self.read_xattrs(&id, view)?;
        Ok((id, xattrs))
    }

    pub(crate) fn xattrs_of_locked(&self, locked: &Locked<'_>) -> Result<Xattrs> {
        self.read_xattrs(&locked.id, &locked.view)
    }

    fn read_xattrs(&self, id: &LogId, view: &View<'_>) -> Result<Xattrs> {
        let xattrs = Xattrs::read(&self.pm, id, view.xattrs().root);
        xattrs.map_err(|error| self.lost_or(error))
    }

    /// What a change of an inode makes of its extended attributes, where that is not the same: file
    /// capabilities go with a change of owner, size or contents, and an access ACL follows the
    /// permission bits.
    pub(crate) fn follow(&self, locked: &Locked<'_>, change: Follow) -> Result<Option<Xattrs>> {
        let drops =
            change.drops_capability && locked.view.has_xattr(XattrPageHeader::HAS_CAPABILITY);
        let has_acl = || locked.view.has_xattr(XattrPageHeader::HAS_ACL_ACCESS);
        let mode = change.mode.filter(|_| has_acl());
        if !drops && mode.is_none() {
            return Ok(None);
        }
        let mut xattrs = self.xattrs_of_locked(locked)?;
        if drops {
            xattrs.remove_capability();
        }
        if let Some(mode) = mode
            && let Some(acl) = self.acl_of(locked, &xattrs, XattrNamespace::AclAccess)?
        {
            xattrs.set(XattrNamespace::AclAccess, b"", &acl.with_mode(mode).encode());
        }
        Ok(Some(xattrs))
    }

    /// The extended attributes that a change of contents leaves, where they are not the same.
    pub(crate) fn without_capability(&self, locked: &Locked<'_>) -> Result<Option<Xattrs>> {
        self.follow(locked, Follow { drops_capability: true, mode: None })
    }

    fn acl_of(
        &self,
        locked: &Locked<'_>,
        xattrs: &Xattrs,
        namespace: XattrNamespace,
    ) -> Result<Option<Acl>> {
        let Some(value) = xattrs.get(namespace, b"") else { return Ok(None) };
        let bytes = value_bytes(&self.pm, &locked.id, value)?;
        Acl::decode(&bytes).map_err(|error| {
            let at = locked.view.xattrs().root;
            Error::damaged_inode(locked.id.ino, "access control list", at, error)
        })
    }

    /// What a new inode has of its directory: its mode, and pages for its extended attributes. The
    /// umask counts where the directory has no default ACL.
    pub(crate) fn inherit(
        &self,
        call: &Call<'_>,
        dir: &Locked<'_>,
        kind: FileKind,
        mode: u32,
        umask: u32,
    ) -> Result<(u32, ReadyXattrs)> {
        if kind == FileKind::Symlink {
            return Ok((mode, ReadyXattrs::default()));
        }
        let has_acl = !self.options.ignore_default_acls
            && dir.view.has_xattr(XattrPageHeader::HAS_ACL_DEFAULT);
        let of_dir = if has_acl { self.xattrs_of_locked(dir)? } else { Xattrs::default() };
        let Some(default) = self.acl_of(dir, &of_dir, XattrNamespace::AclDefault)? else {
            return Ok((mode & !(umask & 0o777), ReadyXattrs::default()));
        };
        let mut xattrs = Xattrs::default();
        if kind == FileKind::Directory {
            xattrs.set(XattrNamespace::AclDefault, b"", &default.encode());
        }
        let (access, mode) = default.inherited(mode);
        if !access.mode().1 {
            xattrs.set(XattrNamespace::AclAccess, b"", &access.encode());
        }
        Ok((mode, self.ready_xattrs(call, xattrs)?))
    }

    /// Stores the extended attributes of a new inode, whose identity line will name them. They are in
    /// no checksum: before the record that makes the inode is stored the caller fences them.
    pub(crate) fn store_inherited(&self, id: &LogId, xattrs: &ReadyXattrs, op_seq: u64) -> Flushed {
        if xattrs.has_pages() { xattrs.store(&self.pm, id, op_seq) } else { Flushed::none() }
    }
}

/// What changes of an inode, as far as its extended attributes follow.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Follow {
    /// Owner, size or contents.
    pub(crate) drops_capability: bool,
    /// The permission bits that it will have.
    pub(crate) mode: Option<u32>,
}

/// Splits a name into its namespace and the rest.
fn parse(name: &[u8]) -> Result<(XattrNamespace, &[u8])> {
    if name.is_empty() || name.len() > XATTR_NAME_BYTES_MAX {
        return Err(Error::NameRange);
    }
    for namespace in XattrNamespace::ALL {
        if !namespace.has_names() && name == namespace.prefix() {
            return Ok((namespace, b""));
        }
        if !namespace.has_names() {
            continue;
        }
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
    if namespace == XattrNamespace::AclDefault && kind != FileKind::Directory {
        return Err(Error::Denied("a default ACL is for directories"));
    }
    if namespace == XattrNamespace::AclAccess && kind == FileKind::Symlink {
        return Err(Error::Unsupported("an ACL of a symbolic link"));
    }
    Ok(())
}
