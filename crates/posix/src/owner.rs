//! For whom a library user acts.

use novale_core::{Attr, ClearSetId};

use crate::set_id::{set_id_to_clear, set_id_to_clear_with_owner};

/// The user and group that own new inodes, and for whom set-id bits fall.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Owner {
    /// Whether it is the administrator.
    pub(crate) fn is_privileged(self) -> bool {
        self.uid == 0
    }

    /// Whether it owns an inode.
    pub(crate) fn owns(self, attr: &Attr) -> bool {
        self.uid == attr.uid
    }

    /// Whether it is in an inode's group.
    pub(crate) fn is_in_group(self, attr: &Attr) -> bool {
        self.gid == attr.gid
    }

    /// The set-id bits that its change of contents takes from a file.
    pub(crate) fn clears(self, attr: &Attr) -> ClearSetId {
        set_id_to_clear(self.is_privileged(), self.is_in_group(attr))
    }

    /// The set-id bits that its change of a file's owner takes.
    pub(crate) fn clears_with_owner(self, attr: &Attr) -> ClearSetId {
        set_id_to_clear_with_owner(self.is_privileged(), self.is_in_group(attr))
    }
}
