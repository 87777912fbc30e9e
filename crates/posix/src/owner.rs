//! For whom a library user acts.

use novale_core::Attr;

use crate::set_id::Changer;

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

    /// What it is to an inode whose set-id bits may fall.
    pub(crate) fn changer(self, attr: &Attr) -> Changer {
        Changer { has_fsetid: self.is_privileged(), is_in_group: self.is_in_group(attr) }
    }
}
