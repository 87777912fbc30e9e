//! Access control lists: the value of the two ACL attributes, as Linux hands it to programs.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

use crate::LayoutError;
use crate::error::check;

/// The version of the bytes that Linux and this crate know.
const ACL_VERSION: u32 = 2;
/// Of entries that name no user or group.
const NO_ID: u32 = u32::MAX;

const LIST: &str = "access control list";
const ENTRY: &str = "access control list entry";

raw! {
    struct RawAclHeader, "Access control list header", 4 {
        0 version: U32,
    }
}

raw! {
    struct RawAclEntry, "Access control list entry", 8 {
        0 tag: U16,
        2 perm: U16,
        4 id: U32,
    }
}

/// Whose permissions an entry is about, in the order that a list has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum AclTag {
    /// The file's owner.
    Owner = 0x01,
    /// A user by number.
    User = 0x02,
    /// The file's group.
    Group = 0x04,
    /// A group by number.
    NamedGroup = 0x08,
    /// The most that users and groups by number, and the file's group, get.
    Mask = 0x10,
    /// Everybody else.
    Other = 0x20,
}

impl AclTag {
    /// Every tag, in the order of a list.
    pub const ALL: [Self; 6] =
        [Self::Owner, Self::User, Self::Group, Self::NamedGroup, Self::Mask, Self::Other];

    /// The number that is stored.
    #[must_use]
    pub const fn to_u16(self) -> u16 {
        self as u16
    }

    /// Whether its entries name a user or group.
    #[must_use]
    pub const fn is_named(self) -> bool {
        matches!(self, Self::User | Self::NamedGroup)
    }
}

/// An entry of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AclEntry {
    /// Whose permissions.
    pub tag: AclTag,
    /// Read, write and execute: 0 to 0o7.
    pub perm: u16,
    /// The user or group, where the tag names one; else `u32::MAX`.
    pub id: u32,
}

/// The bytes of a list.
#[must_use]
pub fn encode_acl(entries: &[AclEntry]) -> Vec<u8> {
    let mut bytes = RawAclHeader { version: ACL_VERSION.into() }.as_bytes().to_vec();
    for entry in entries {
        let raw = RawAclEntry {
            tag: entry.tag.to_u16().into(),
            perm: entry.perm.into(),
            id: if entry.tag.is_named() { entry.id } else { NO_ID }.into(),
        };
        bytes.extend_from_slice(raw.as_bytes());
    }
    bytes
}

/// Checks the bytes of a list, entry by entry.
///
/// # Errors
/// [`LayoutError::Field`]: the first thing that is wrong.
pub fn decode_acl(bytes: &[u8]) -> Result<Vec<AclEntry>, LayoutError> {
    let len = bytes.len() as u64;
    let short = LayoutError::Field {
        structure: LIST,
        field: "length",
        expected: "4 bytes and 8 for each entry",
        found: len,
    };
    let (header, mut rest) = RawAclHeader::read_from_prefix(bytes).map_err(|_| short)?;
    let version = header.version.get();
    check(version == ACL_VERSION, LIST, "version", "2", version.into())?;
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let (raw, behind) = RawAclEntry::read_from_prefix(rest).map_err(|_| short)?;
        entries.push(decode_entry(raw)?);
        rest = behind;
    }
    Ok(entries)
}

fn decode_entry(raw: RawAclEntry) -> Result<AclEntry, LayoutError> {
    let number = raw.tag.get();
    let Some(tag) = AclTag::ALL.into_iter().find(|tag| tag.to_u16() == number) else {
        let expected = "a known tag";
        return Err(LayoutError::Field {
            structure: ENTRY,
            field: "tag",
            expected,
            found: number.into(),
        });
    };
    let (perm, id) = (raw.perm.get(), raw.id.get());
    check(perm <= 0o7, ENTRY, "perm", "0 to 7", perm.into())?;
    check(!tag.is_named() || id != NO_ID, ENTRY, "id", "a user or group", id.into())?;
    Ok(AclEntry { tag, perm, id: if tag.is_named() { id } else { NO_ID } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_those_of_linux() {
        let entries = [
            AclEntry { tag: AclTag::Owner, perm: 6, id: NO_ID },
            AclEntry { tag: AclTag::User, perm: 4, id: 0x0102_0304 },
        ];
        let bytes = encode_acl(&entries);
        let expected = [2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 4, 3, 2, 1];
        assert_eq!(bytes, expected);
        assert_eq!(decode_acl(&bytes).unwrap(), entries);
        assert_eq!(decode_acl(&bytes[..4]).unwrap(), []);
    }

    #[test]
    fn what_is_no_list_is_refused_by_name() {
        let good = encode_acl(&[AclEntry { tag: AclTag::User, perm: 4, id: 7 }]);
        let field = |bytes: &[u8]| match decode_acl(bytes) {
            Err(LayoutError::Field { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        for len in (0..good.len()).filter(|len| *len != 4) {
            assert_eq!(field(&good[..len]), "length", "{len}");
        }
        for (at, byte, name) in [(0, 1, "version"), (4, 3, "tag"), (6, 8, "perm")] {
            let mut bytes = good.clone();
            bytes[at] = byte;
            assert_eq!(field(&bytes), name);
        }
        let mut bytes = good;
        bytes[8..].fill(0xff);
        assert_eq!(field(&bytes), "id");
    }
}
