//! POSIX access control lists: pure functions over their entries, as POSIX 1003.1e draft 17 and Linux
//! (`fs/posix_acl.c`) have them.

use novale_layout::{AclEntry, AclTag, decode_acl, encode_acl};

use crate::base::error::{Error, Result};

/// A valid list: owner, group and other once each, named users and groups between them, and a mask
/// where there are any of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acl(Vec<AclEntry>);

impl Acl {
    /// Reads a list; none for one without entries.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what is no valid list.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        let entries = decode_acl(bytes).map_err(|_| Error::Invalid("no access control list"))?;
        if entries.is_empty() {
            return Ok(None);
        }
        let acl = Self(entries);
        if acl.is_valid() {
            Ok(Some(acl))
        } else {
            Err(Error::Invalid("an access control list that lacks entries, or has them twice"))
        }
    }

    /// The bytes of the list.
    pub(crate) fn encode(&self) -> Vec<u8> {
        encode_acl(&self.0)
    }

    fn is_valid(&self) -> bool {
        let count = |tag| self.0.iter().filter(|entry| entry.tag == tag).count();
        let in_order = self.0.is_sorted_by_key(|entry| entry.tag);
        let once =
            [AclTag::Owner, AclTag::Group, AclTag::Other].into_iter().all(|tag| count(tag) == 1);
        let named = count(AclTag::User) + count(AclTag::NamedGroup);
        let masks = count(AclTag::Mask);
        in_order && once && masks <= 1 && (named == 0 || masks == 1)
    }

    /// The permission bits that stand for the list, and whether they say all of it.
    pub(crate) fn mode(&self) -> (u32, bool) {
        let perm = |tag| {
            let entry = self.0.iter().find(|entry| entry.tag == tag);
            entry.map_or(0, |entry| u32::from(entry.perm))
        };
        let group = perm(self.group_tag());
        (perm(AclTag::Owner) << 6 | group << 3 | perm(AclTag::Other), self.0.len() == 3)
    }

    /// The list after a change of the permission bits: a mask stands for the group's.
    pub(crate) fn with_mode(mut self, mode: u32) -> Self {
        let group = self.group_tag();
        for entry in &mut self.0 {
            if let Some(bits) = bits_of(entry.tag, group, mode) {
                entry.perm = bits;
            }
        }
        self
    }

    /// What a new inode gets of its directory's default list, where its maker asks for `mode`: its
    /// own list, and its mode. Neither allows what the other does not.
    pub(crate) fn inherited(mut self, mode: u32) -> (Self, u32) {
        let group = self.group_tag();
        for entry in &mut self.0 {
            if let Some(bits) = bits_of(entry.tag, group, mode) {
                entry.perm &= bits;
            }
        }
        let (bits, _) = self.mode();
        (self, mode & !0o777 | bits)
    }

    /// The entry that the group's permission bits stand for.
    fn group_tag(&self) -> AclTag {
        let has_mask = self.0.iter().any(|entry| entry.tag == AclTag::Mask);
        if has_mask { AclTag::Mask } else { AclTag::Group }
    }
}

/// The bits of a mode that an entry stands for, if it stands for any.
fn bits_of(tag: AclTag, group: AclTag, mode: u32) -> Option<u16> {
    let shift = match tag {
        AclTag::Owner => 6,
        AclTag::Other => 0,
        tag if tag == group => 3,
        AclTag::User | AclTag::Group | AclTag::NamedGroup | AclTag::Mask => return None,
    };
    // Three bits fit.
    Some(u16::try_from(mode >> shift & 0o7).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(tag: AclTag, perm: u16, id: u32) -> AclEntry {
        AclEntry { tag, perm, id }
    }

    fn plain() -> Vec<AclEntry> {
        let none = u32::MAX;
        vec![
            entry(AclTag::Owner, 6, none),
            entry(AclTag::Group, 4, none),
            entry(AclTag::Other, 0, none),
        ]
    }

    fn named() -> Vec<AclEntry> {
        let none = u32::MAX;
        vec![
            entry(AclTag::Owner, 7, none),
            entry(AclTag::User, 6, 1000),
            entry(AclTag::Group, 4, none),
            entry(AclTag::Mask, 5, none),
            entry(AclTag::Other, 1, none),
        ]
    }

    fn acl(entries: &[AclEntry]) -> Acl {
        Acl::decode(&encode_acl(entries)).unwrap().unwrap()
    }

    #[test]
    fn a_list_has_each_entry_that_it_needs_once_and_in_order() {
        for good in [plain(), named()] {
            assert_eq!(acl(&good).encode(), encode_acl(&good));
        }
        assert_eq!(Acl::decode(&encode_acl(&[])).unwrap(), None);
        let mut bad = vec![vec![plain()[1], plain()[0], plain()[2]]];
        for index in [0, 2, 3, 4] {
            let (mut without, mut twice) = (named(), named());
            without.remove(index);
            twice.insert(index, twice[index]);
            bad.extend([without, twice]);
        }
        for entries in bad {
            let refused = Acl::decode(&encode_acl(&entries));
            assert!(matches!(refused, Err(Error::Invalid(_))), "{entries:?}");
        }
    }

    #[test]
    fn a_mask_stands_for_the_groups_bits() {
        assert_eq!(acl(&plain()).mode(), (0o640, true));
        assert_eq!(acl(&named()).mode(), (0o751, false));
        assert_eq!(acl(&plain()).with_mode(0o4123).mode(), (0o123, true));
        let changed = acl(&named()).with_mode(0o600);
        assert_eq!(changed.mode(), (0o600, false));
        assert_eq!(changed.0[2].perm, 4, "the group's own bits stay");
    }

    #[test]
    fn neither_maker_nor_default_list_gives_more_than_the_other() {
        let (list, mode) = acl(&named()).inherited(0o2666);
        assert_eq!((list.mode(), mode), ((0o640, false), 0o2640));
        let (list, mode) = acl(&plain()).inherited(0o777);
        assert_eq!((list.mode(), mode), ((0o640, true), 0o640));
    }
}
