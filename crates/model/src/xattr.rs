//! Extended attributes and access control lists.

use crate::state::Model;
use crate::types::{Error, Ino, Kind, Result, XattrMode};

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
const CAPABILITY: &[u8] = b"security.capability";
const NAME_BYTES_MAX: usize = 255;
const VALUE_BYTES_MAX: usize = 65_536;

/// Entries of a list: tag, permissions, user or group.
type Acl = Vec<(u8, u8, [u8; 4])>;

const OWNER: u8 = 1;
const USER: u8 = 2;
const GROUP: u8 = 4;
const NAMED_GROUP: u8 = 8;
const MASK: u8 = 16;
const OTHER: u8 = 32;

impl Model {
    /// The value of an extended attribute.
    ///
    /// # Errors
    /// [`Error::NoAttribute`]; [`Error::NameRange`], [`Error::Unsupported`] and [`Error::Invalid`]
    /// for what is no attribute's name.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        check_name(name)?;
        self.inode(ino)?.xattrs.get(name).cloned().ok_or(Error::NoAttribute)
    }

    /// The names of all extended attributes, in order.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(self.inode(ino)?.xattrs.keys().cloned().collect())
    }

    /// Sets an extended attribute. An access list sets the permission bits, and is kept only where
    /// they do not say all of it; a list without entries is removed. Of a list the mode is not asked.
    ///
    /// # Errors
    /// Those of `getxattr`; [`Error::ValueTooLong`], [`Error::Exists`]; [`Error::NotPermitted`],
    /// [`Error::Denied`] and [`Error::Unsupported`] for what this kind of inode can't have.
    pub fn setxattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        now_ns: i64,
    ) -> Result<()> {
        check_name(name)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::ValueTooLong);
        }
        let is_acl = name == ACCESS || name == DEFAULT;
        let acl = if is_acl { parse(value).ok_or(Error::Invalid)? } else { Vec::new() };
        if is_acl && acl.is_empty() {
            return self.removexattr(ino, name, now_ns);
        }
        let inode = self.inode_mut(ino)?;
        check_kind(inode.attr.kind, name)?;
        match (mode, inode.xattrs.contains_key(name)) {
            _ if is_acl => {}
            (XattrMode::Create, true) => return Err(Error::Exists),
            (XattrMode::Replace, false) => return Err(Error::NoAttribute),
            _ => {}
        }
        let mut kept = Some(value);
        if name == ACCESS {
            inode.attr.mode = inode.attr.mode & 0o7000 | bits_of(&acl);
            kept = kept.filter(|_| acl.len() > 3);
        }
        match kept {
            Some(value) => {
                inode.xattrs.insert(name.to_vec(), value.to_vec());
            }
            None => {
                inode.xattrs.remove(name);
            }
        }
        self.touch(ino, now_ns);
        Ok(())
    }

    /// Removes an extended attribute; a list that is not there as well.
    ///
    /// # Errors
    /// Those of `getxattr`.
    pub fn removexattr(&mut self, ino: Ino, name: &[u8], now_ns: i64) -> Result<()> {
        check_name(name)?;
        let inode = self.inode_mut(ino)?;
        if name == DEFAULT && inode.attr.kind != Kind::Directory {
            return Ok(());
        }
        check_kind(inode.attr.kind, name)?;
        if inode.xattrs.remove(name).is_none() && name != ACCESS && name != DEFAULT {
            return Err(Error::NoAttribute);
        }
        self.touch(ino, now_ns);
        Ok(())
    }

    /// File capabilities go with a change of owner, size or contents; directories keep theirs.
    pub(crate) fn drop_capability(&mut self, ino: Ino) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.xattrs.remove(CAPABILITY);
        }
    }

    /// The access list follows the permission bits.
    pub(crate) fn follow_mode(&mut self, ino: Ino, mode: u32) {
        let Some(inode) = self.inodes.get_mut(&ino) else { return };
        let Some(value) = inode.xattrs.get_mut(ACCESS) else { return };
        let mut acl = parse(value).unwrap_or_default();
        let has_mask = acl.iter().any(|entry| entry.0 == MASK);
        for entry in &mut acl {
            if let Some(shift) = shift_of(entry.0, has_mask) {
                entry.1 = three_bits(mode >> shift);
            }
        }
        *value = bytes_of(&acl);
    }

    /// Gives a new inode what its directory's default list says.
    pub(crate) fn inherit(&mut self, parent: Ino, ino: Ino) {
        let Some(default) = self.inodes.get(&parent).and_then(|dir| dir.xattrs.get(DEFAULT)) else {
            return;
        };
        let default = default.clone();
        let Some(inode) = self.inodes.get_mut(&ino) else { return };
        if inode.attr.kind == Kind::Symlink {
            return;
        }
        let mut acl = parse(&default).unwrap_or_default();
        let has_mask = acl.iter().any(|entry| entry.0 == MASK);
        for entry in &mut acl {
            if let Some(shift) = shift_of(entry.0, has_mask) {
                entry.1 &= three_bits(inode.attr.mode >> shift);
            }
        }
        inode.attr.mode = inode.attr.mode & 0o7000 | bits_of(&acl);
        if acl.len() > 3 {
            inode.xattrs.insert(ACCESS.to_vec(), bytes_of(&acl));
        }
        if inode.attr.kind == Kind::Directory {
            inode.xattrs.insert(DEFAULT.to_vec(), default);
        }
    }
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(Error::NameRange);
    }
    if name == ACCESS || name == DEFAULT {
        return Ok(());
    }
    let prefixes = [&b"user."[..], b"trusted.", b"security."];
    let rest = prefixes.into_iter().find_map(|prefix| name.strip_prefix(prefix));
    match rest.ok_or(Error::Unsupported)? {
        [] => Err(Error::Invalid),
        rest if rest.contains(&0) => Err(Error::Invalid),
        _ => Ok(()),
    }
}

fn check_kind(kind: Kind, name: &[u8]) -> Result<()> {
    let is_plain = matches!(kind, Kind::File | Kind::Directory);
    if name.starts_with(b"user.") && !is_plain {
        return Err(Error::NotPermitted);
    }
    if name == DEFAULT && kind != Kind::Directory {
        return Err(Error::Denied);
    }
    if name == ACCESS && kind == Kind::Symlink {
        return Err(Error::Unsupported);
    }
    Ok(())
}

fn three_bits(mode: u32) -> u8 {
    u8::try_from(mode & 0o7).unwrap_or(0)
}

/// Where in a mode the bits of an entry are, if they are there.
fn shift_of(tag: u8, has_mask: bool) -> Option<u32> {
    match tag {
        OWNER => Some(6),
        MASK => Some(3),
        GROUP if !has_mask => Some(3),
        OTHER => Some(0),
        _ => None,
    }
}

fn bits_of(acl: &Acl) -> u32 {
    let has_mask = acl.iter().any(|entry| entry.0 == MASK);
    let shifted =
        acl.iter().filter_map(|entry| Some(u32::from(entry.1) << shift_of(entry.0, has_mask)?));
    shifted.sum()
}

/// The entries of a valid list, none of an empty one.
fn parse(bytes: &[u8]) -> Option<Acl> {
    let entries = bytes.strip_prefix(&[2, 0, 0, 0])?;
    let (entries, rest) = entries.as_chunks::<8>();
    let mut acl = Acl::new();
    for [tag, zero, perm, none, id @ ..] in entries {
        if *zero != 0 || *none != 0 || *perm > 7 {
            return None;
        }
        let is_named = matches!(*tag, USER | NAMED_GROUP);
        if is_named && *id == [0xff; 4] {
            return None;
        }
        acl.push((*tag, *perm, if is_named { *id } else { [0xff; 4] }));
    }
    let count = |tag| acl.iter().filter(|entry| entry.0 == tag).count();
    let known = [OWNER, USER, GROUP, NAMED_GROUP, MASK, OTHER].map(count);
    let named = count(USER) + count(NAMED_GROUP);
    let is_whole = [OWNER, GROUP, OTHER].iter().all(|tag| count(*tag) == 1)
        && count(MASK) <= 1
        && (named == 0 || count(MASK) == 1)
        && known.iter().sum::<usize>() == acl.len()
        && acl.is_sorted_by_key(|entry| entry.0);
    (rest.is_empty() && (acl.is_empty() || is_whole)).then_some(acl)
}

fn bytes_of(acl: &Acl) -> Vec<u8> {
    let entries = acl.iter().map(|(tag, perm, id)| [&[*tag, 0, *perm, 0][..], id].concat());
    std::iter::once(vec![2, 0, 0, 0]).chain(entries).flatten().collect()
}
