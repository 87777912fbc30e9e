//! Attributes entries: all attributes of an inode at once.

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::transmute;

use super::header::{EntryKind, LINE_BYTES, RawEntryHeader, raw_header};
use crate::error::check;
use crate::{LayoutError, PmAddr};

const ATTRIBUTES: &str = "attributes entry";
const MODE_MAX: u32 = 0o7777;

raw! {
    struct RawAttributes, "Attributes entry", 64 {
        0 header: RawEntryHeader,
        16 mode: U32,
        20 uid: U32,
        24 gid: U32,
        28 flags: U32,
        32 project: U32,
        36 policy: u8,
        37 pad: [u8; 3],
        40 xattr_root: U64,
        48 atime_ns: I64,
        56 reserved: [u8; 8],
    }
}

/// An inode's attributes, all of them; the newest entry takes the place of the identity line's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Permission, set-id and sticky bits, 0 to 0o7777: no type bits.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Attribute flags, as `chattr` has them.
    pub flags: u32,
    /// The project for quota.
    pub project: u32,
    /// The update policy, 0: the mount's.
    pub policy: u8,
    /// The page with extended attributes, or null.
    pub xattr_root: PmAddr,
    /// Last access, ns since 1970.
    pub atime_ns: i64,
}

impl Attributes {
    pub(crate) fn encode(&self, op_seq: u64) -> [u8; LINE_BYTES] {
        transmute!(RawAttributes {
            header: raw_header(EntryKind::Attributes, 1, op_seq),
            mode: self.mode.into(),
            uid: self.uid.into(),
            gid: self.gid.into(),
            flags: self.flags.into(),
            project: self.project.into(),
            policy: self.policy,
            pad: [0; 3],
            xattr_root: self.xattr_root.raw().into(),
            atime_ns: self.atime_ns.into(),
            reserved: [0; 8],
        })
    }

    pub(crate) fn decode(line: &[u8; LINE_BYTES]) -> Result<Self, LayoutError> {
        let raw: RawAttributes = transmute!(*line);
        let mode = raw.mode.get();
        check(mode <= MODE_MAX, ATTRIBUTES, "mode", "0 to 0o7777", mode.into())?;
        Ok(Self {
            mode,
            uid: raw.uid.get(),
            gid: raw.gid.get(),
            flags: raw.flags.get(),
            project: raw.project.get(),
            policy: raw.policy,
            xattr_root: PmAddr::decode_page(raw.xattr_root.get(), ATTRIBUTES, "xattr_root")?,
            atime_ns: raw.atime_ns.get(),
        })
    }
}
