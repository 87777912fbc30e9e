//! The fields of every structure by name and place, for the one who shows bytes as they lie on media.

use crate::EntryKind;
use crate::acl::{RawAclEntry, RawAclHeader};
use crate::entry::{
    RawAttributes, RawDentryAdd, RawDentryDelete, RawEntryHeader, RawPair, RawRedo, RawSource,
    RawWrite,
};
use crate::inode::{RawCommitLine, RawIdentityLine, RawVolatileLine};
use crate::journal::{RawJournalHeader, RawJournalInos};
use crate::log::RawLogPageHeader;
use crate::pair::RawPairLine;
use crate::pool_state::RawPoolState;
use crate::quota::RawQuota;
use crate::saved::RawSavedPageHeader;
use crate::slot::{RawSlotHeader, RawSlotState};
use crate::superblock::RawSuperblock;
use crate::wear::RawWear;
use crate::xattr::{RawXattrExtent, RawXattrPageHeader, RawXattrRecord};

/// A field of a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Its name in `docs/SPEC.md`.
    pub name: &'static str,
    /// Bytes from the start of the structure.
    pub offset: usize,
    /// Its bytes: an integer where there are 1, 2, 4 or 8.
    pub bytes: usize,
}

impl Field {
    /// Its bytes in those of a structure; none where they end before it.
    #[must_use]
    pub fn of<'a>(&self, structure: &'a [u8]) -> Option<&'a [u8]> {
        structure.get(self.offset..self.offset + self.bytes)
    }

    /// Its number, of a field of up to 8 bytes; of a longer one its words of 8 bytes.
    #[must_use]
    pub fn numbers(&self, structure: &[u8]) -> Vec<u64> {
        let words = self.of(structure).unwrap_or_default().chunks(8);
        let number =
            |word: &[u8]| word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        words.map(number).collect()
    }
}

/// A raw structure that lists its fields.
pub(crate) trait Listed {
    /// Its heading in the document.
    const TITLE: &str;
    /// Its fields, in order.
    const FIELDS: &[Field];
}

macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident: $raw:ty,)+) => {
        /// A structure on media.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Structure {
            $($(#[$doc])* $name,)+
        }

        impl Structure {
            /// Every structure.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Its heading in `docs/SPEC.md`.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => <$raw>::TITLE,)+ }
            }

            /// Its bytes.
            #[must_use]
            pub const fn bytes(self) -> usize {
                match self { $(Self::$name => size_of::<$raw>(),)+ }
            }

            /// Its fields, in order and without gaps.
            #[must_use]
            pub const fn fields(self) -> &'static [Field] {
                match self { $(Self::$name => <$raw>::FIELDS,)+ }
            }
        }
    };
}

structures! {
    /// [`crate::Superblock`].
    Superblock: RawSuperblock,
    /// [`crate::PoolState`].
    PoolState: RawPoolState,
    /// [`crate::SlotHeader`].
    SlotHeader: RawSlotHeader,
    /// [`crate::SlotState`].
    SlotState: RawSlotState,
    /// [`crate::WearLine`].
    Wear: RawWear,
    /// [`crate::IdentityLine`].
    Identity: RawIdentityLine,
    /// [`crate::CommitLine`].
    Commit: RawCommitLine,
    /// [`crate::VolatileLine`].
    Volatile: RawVolatileLine,
    /// [`crate::LogPageHeader`].
    LogPage: RawLogPageHeader,
    /// [`crate::EntryHeader`].
    EntryHeader: RawEntryHeader,
    /// [`crate::Entry::Write`].
    Write: RawWrite,
    /// [`crate::Entry::Pair`].
    Pair: RawPair,
    /// [`crate::Entry::Attributes`].
    Attributes: RawAttributes,
    /// [`crate::Entry::DentryAdd`].
    DentryAdd: RawDentryAdd,
    /// [`crate::Entry::DentryDelete`].
    DentryDelete: RawDentryDelete,
    /// [`crate::Entry::Redo`].
    Redo: RawRedo,
    /// [`crate::Entry::Source`].
    Source: RawSource,
    /// [`crate::PairLine`].
    PairLine: RawPairLine,
    /// The first line of a [`crate::JournalRecord`].
    JournalHeader: RawJournalHeader,
    /// The second line of a [`crate::JournalRecord`] of more than four inodes.
    JournalInos: RawJournalInos,
    /// [`crate::QuotaLimit`].
    Quota: RawQuota,
    /// [`crate::SavedPageHeader`].
    SavedPage: RawSavedPageHeader,
    /// [`crate::XattrPageHeader`].
    XattrPage: RawXattrPageHeader,
    /// [`crate::XattrRecord`], without its name and value.
    XattrRecord: RawXattrRecord,
    /// [`crate::XattrExtent`].
    XattrExtent: RawXattrExtent,
    /// The first bytes of an access control list.
    AclHeader: RawAclHeader,
    /// [`crate::AclEntry`].
    AclEntry: RawAclEntry,
}

impl Structure {
    /// The structure of a kind of log entry.
    #[must_use]
    pub const fn of_entry(kind: EntryKind) -> Self {
        match kind {
            EntryKind::Write => Self::Write,
            EntryKind::Pair => Self::Pair,
            EntryKind::Attributes => Self::Attributes,
            EntryKind::DentryAdd => Self::DentryAdd,
            EntryKind::DentryDelete => Self::DentryDelete,
            EntryKind::Redo => Self::Redo,
            EntryKind::Source => Self::Source,
        }
    }
}
