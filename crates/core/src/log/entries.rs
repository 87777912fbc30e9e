//! Entries of logs: made, checked and read one by one.

use novale_layout::{Attributes, Entry, FilePage, PmAddr};

use crate::base::extent::Extent;
use crate::inode::state::Attrs;
use crate::log::FILE_PAGES_MAX;

/// The entry that maps an extent.
pub(crate) fn write_entry(file_page: u64, extent: Extent) -> Entry {
    Entry::Write {
        file_page: FilePage::new(file_page),
        addr: extent.addr,
        // A count of u32::MAX pages is 16 TB in one piece.
        count: u32::try_from(extent.pages).unwrap_or(u32::MAX),
        snapshot_epoch: 0,
    }
}

/// The entry that drops all pages from `page` on.
pub(crate) fn hole_to_end(page: u64) -> Entry {
    Entry::Write {
        file_page: FilePage::new(page),
        addr: PmAddr::NULL,
        count: u32::MAX,
        snapshot_epoch: 0,
    }
}

/// The entry that holds these attributes.
pub(crate) fn attributes_entry(attrs: &Attrs, atime_ns: i64) -> Attributes {
    Attributes {
        mode: attrs.mode,
        uid: attrs.uid,
        gid: attrs.gid,
        flags: attrs.flags,
        project: attrs.project,
        policy: attrs.policy,
        xattr_root: attrs.xattrs.root,
        atime_ns,
    }
}

/// The file page after the last one that a write entry is about.
pub(crate) fn write_end(first: u64, count: u32) -> u64 {
    if count == u32::MAX { FILE_PAGES_MAX } else { first + u64::from(count) }
}
