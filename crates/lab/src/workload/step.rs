//! One operation of a sequence.

use novale_model::{NewInode, RangeOp, RenameMode, SetAttr, XattrMode};

use super::bytes::fill_bytes;

/// Names below the root directory; none of them: the root itself. A name may be an invalid one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Path(pub Vec<Vec<u8>>);

impl Path {
    /// The path of an entry of this directory.
    #[must_use]
    pub fn join(&self, name: &[u8]) -> Self {
        let mut names = self.0.clone();
        names.push(name.to_vec());
        Self(names)
    }

    /// The directory's path and the last name; none of the root.
    pub fn split(&self) -> Option<(Self, &[u8])> {
        let (last, names) = self.0.split_last()?;
        Some((Self(names.to_vec()), last))
    }
}

/// What a step acts upon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// What a path names; the last name is not followed if it is a symlink.
    Path(Path),
    /// What a [`Step::Hold`] keeps, with or without a name left.
    Slot(u8),
}

impl Target {
    fn path_mut(&mut self) -> Option<&mut Path> {
        match self {
            Self::Path(path) => Some(path),
            Self::Slot(_) => None,
        }
    }
}

/// One operation; [`super::parse_steps`] shows its text form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make a file, directory, symlink, device, pipe or socket.
    Create {
        /// Where.
        path: Path,
        /// What.
        new: NewInode,
    },
    /// Give an inode another name.
    Link {
        /// The inode.
        target: Target,
        /// The new name.
        path: Path,
    },
    /// Remove a name of anything but a directory.
    Unlink(Path),
    /// Remove an empty directory.
    Rmdir(Path),
    /// Move or swap names.
    Rename {
        /// The old name.
        from: Path,
        /// The new name.
        to: Path,
        /// What becomes of an existing target.
        mode: RenameMode,
    },
    /// Do something with one inode.
    On {
        /// Which.
        target: Target,
        /// What.
        action: Action,
    },
    /// Copy bytes from one file to another, or within one.
    Copy {
        /// From which.
        from: Target,
        /// From there, in bytes.
        from_offset: u64,
        /// To which.
        to: Target,
        /// To there, in bytes.
        to_offset: u64,
        /// At most so many.
        len: u32,
    },
    /// Make a file without a name, and keep it in a slot; what was there is released.
    Unnamed {
        /// The directory that it is made in.
        dir: Path,
        /// What.
        new: NewInode,
        /// Where.
        slot: u8,
    },
    /// Keep what a path names in a slot, as an open file is; what was in the slot is released.
    Hold {
        /// What.
        path: Path,
        /// Where.
        slot: u8,
    },
    /// Map a file's own pages, and keep it in a slot; what was there is released.
    Map {
        /// Which file.
        target: Target,
        /// Where.
        slot: u8,
    },
    /// Empty a slot.
    Release(u8),
    /// Compare everything that there is.
    Compare,
    /// Close and open; all slots are emptied before.
    Remount,
    /// Die without closing and open; all slots are emptied by it.
    Die,
}

impl Step {
    /// The paths that it names.
    pub fn paths_mut(&mut self) -> Vec<&mut Path> {
        if let Self::Rename { from, to, .. } = self {
            return vec![from, to];
        }
        if let Self::Link { target, path } = self {
            return target.path_mut().into_iter().chain([path]).collect();
        }
        if let Self::Create { path, .. }
        | Self::Unlink(path)
        | Self::Rmdir(path)
        | Self::Hold { path, .. }
        | Self::Unnamed { dir: path, .. } = self
        {
            return vec![path];
        }
        self.targets_mut().into_iter().filter_map(Target::path_mut).collect()
    }

    /// What it acts upon by path or slot.
    pub fn targets_mut(&mut self) -> Vec<&mut Target> {
        if let Self::Copy { from, to, .. } = self {
            return vec![from, to];
        }
        if let Self::Link { target, .. } | Self::On { target, .. } | Self::Map { target, .. } = self
        {
            return vec![target];
        }
        Vec::new()
    }
}

/// What a step is to the one who runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// Nothing happens; the two sides are compared.
    Compares,
    /// The file system is closed in order and opened again.
    Remounts,
    /// Its process dies, and it is opened again.
    Dies,
    /// An operation.
    Operates,
}

impl Step {
    /// What it is to the one who runs it.
    pub fn kind(&self) -> StepKind {
        let apart = [Self::Compare, Self::Remount, Self::Die].into_iter();
        let kinds = [StepKind::Compares, StepKind::Remounts, StepKind::Dies];
        apart.zip(kinds).find(|(step, _)| step == self).map_or(StepKind::Operates, |(_, kind)| kind)
    }
}

/// The value of an extended attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Bytes: see [`super::fill_bytes`].
    Fill {
        /// So many.
        len: u32,
        /// These.
        fill: u32,
    },
    /// An access control list.
    Acl(Vec<AclEntry>),
}

/// An entry of an access control list, as it is stored; it may be an invalid one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AclEntry {
    /// 1 owner, 2 user, 4 group, 8 named group, 16 mask, 32 other.
    pub tag: u16,
    /// Read, write and execute.
    pub perm: u16,
    /// A user or group, else `u32::MAX`.
    pub id: u32,
}

impl Value {
    /// The bytes.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Fill { len, fill } => super::fill_bytes(*fill, *len as usize),
            Self::Acl(entries) => {
                let mut bytes = vec![2, 0, 0, 0];
                for entry in entries {
                    bytes.extend(entry.tag.to_le_bytes());
                    bytes.extend(entry.perm.to_le_bytes());
                    bytes.extend(entry.id.to_le_bytes());
                }
                bytes
            }
        }
    }
}

/// An operation on one inode, whatever its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Read the attributes.
    Stat,
    /// Change the attributes.
    Set(SetAttr),
    /// Read a symlink.
    Readlink,
    /// Read bytes.
    Read {
        /// From here, in bytes.
        offset: u64,
        /// At most so many.
        len: u32,
    },
    /// Write bytes.
    Write {
        /// From here, in bytes.
        offset: u64,
        /// So many.
        len: u32,
        /// These: see [`super::fill_bytes`].
        fill: u32,
    },
    /// Write bytes at the end.
    Append {
        /// So many.
        len: u32,
        /// These: see [`super::fill_bytes`].
        fill: u32,
    },
    /// Store bytes to mapped pages of the file, none beyond its end, and note the time.
    Store {
        /// From here, in bytes.
        offset: u64,
        /// So many.
        len: u32,
        /// These: see [`super::fill_bytes`].
        fill: u32,
    },
    /// Make durable what was stored in mapped pages.
    Flush {
        /// The first page.
        page: u64,
        /// So many.
        pages: u64,
    },
    /// Write bytes at several places at once, as an atomic mapping publishes.
    Scatter {
        /// From here, in bytes.
        offset: u64,
        /// So many at each place.
        len: u32,
        /// These, and those of the next numbers: see [`super::fill_bytes`].
        fill: u32,
        /// Places.
        count: u32,
        /// From each to the next, in bytes.
        apart: u64,
    },
    /// Reserve space.
    Allocate {
        /// Whether the size rises to cover the range.
        extend: bool,
        /// From here, in bytes.
        offset: u64,
        /// So many.
        len: u64,
    },
    /// Punch, zero, collapse or insert.
    Range {
        /// Which of them.
        how: RangeOp,
        /// From here, in bytes.
        offset: u64,
        /// So many.
        len: u64,
    },
    /// Find data or a hole.
    Seek {
        /// From here, in bytes.
        offset: u64,
        /// Data, or else a hole.
        data: bool,
    },
    /// Read a directory.
    List {
        /// Entries a call; the next call goes on from the last one's cookie.
        at_a_time: u32,
    },
    /// Set an extended attribute.
    SetXattr {
        /// Its name, with its prefix.
        name: Vec<u8>,
        /// Its value.
        value: Value,
        /// What becomes of one that is there.
        mode: XattrMode,
    },
    /// Read an extended attribute of that name.
    GetXattr(Vec<u8>),
    /// Remove an extended attribute of that name.
    RemoveXattr(Vec<u8>),
    /// List the names of the extended attributes.
    ListXattr,
    /// Limit the inodes of the directory tree that it counts for.
    Limit {
        /// So many; 0: any number.
        inodes: u64,
    },
    /// Find the parent of a directory.
    Parent,
    /// Make durable.
    Sync,
    /// Have the pool's last slot leave, and empty it as far as the others have room; or move pages alone.
    Leave {
        /// 1: it stays; 2: some pages of the first slot go there; 3: and back.
        stays: u8,
    },
}

impl Action {
    /// Whether it leaves bytes and attributes, but for the access time, as they were.
    pub fn only_looks(&self) -> bool {
        matches!(
            self,
            Self::Stat
                | Self::Readlink
                | Self::Read { .. }
                | Self::Seek { .. }
                | Self::List { .. }
                | Self::GetXattr(_)
                | Self::ListXattr
                | Self::Parent
                | Self::Sync
        )
    }
}

impl Action {
    /// The places and bytes of a scattered write; none of another action.
    pub fn pieces(&self) -> Vec<(u64, Vec<u8>)> {
        let Self::Scatter { offset, len, fill, count, apart } = self else { return Vec::new() };
        let piece = |index: u32| {
            let at = offset.saturating_add(apart.saturating_mul(u64::from(index)));
            (at, fill_bytes(fill.saturating_add(index), *len as usize))
        };
        (0..*count).map(piece).collect()
    }
}
