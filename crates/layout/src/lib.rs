//! Every structure that Novale keeps on media: its bytes, its checks, and nothing else.
//!
//! Each structure has a raw twin (`repr(C)`, little-endian, no padding) whose offsets are asserted
//! at compile time, and a checked public form. `encode` makes the bytes, `decode` refuses what is
//! damaged, torn or belongs elsewhere, and says which field it refused. No function here panics on
//! bytes that were read back. `docs/SPEC.md` describes the same bytes in prose; a test compares the
//! two. This crate does no I/O and holds no unsafe code.

#[macro_use]
mod raw;

mod acl;
mod addr;
mod checksum;
mod directory;
mod entry;
mod error;
mod fields;
mod inode;
mod journal;
mod kind;
mod log;
mod name;
mod number;
mod pair;
mod pool_state;
mod quota;
mod saved;
mod signature;
mod slot;
#[cfg(test)]
mod spec_test;
mod superblock;
mod wear;
mod xattr;

pub use acl::{AclEntry, AclTag, decode_acl, encode_acl};
pub use addr::PmAddr;
pub use checksum::{Crc32c, DataCrc, Seed};
pub use directory::{
    JOURNAL_OFFSETS, MAX_CHUNKS, MAX_LANES, WORDS_PER_PAGE, chunk_slot, decode_page_word,
    words_of_line,
};
pub use entry::{
    Attributes, DentryRef, ENTRY_BYTES_MAX, Entry, EntryHeader, EntryKind, Pair, Partner,
    REDO_BYTES_MAX, Redo, SOURCE_BYTES_MAX, Source,
};
pub use error::LayoutError;
pub use fields::{Field, Structure};
pub use inode::{
    COMMIT_OFFSETS, CommitLine, IDENTITY_OFFSET, IDENTITY_VERSION, INODE_SIZE, INODES_PER_CHUNK,
    INODES_PER_PAGE, IdentityLine, VOLATILE_OFFSET, VOLATILE_PARENT_OFFSET, VolatileLine,
    never_written_inodes,
};
pub use journal::{
    JOURNAL_LINES_MAX, JOURNAL_RECORD_BYTES, JournalKind, JournalLines, JournalRecord,
};
pub use kind::FileKind;
pub use log::{LOG_ENTRY_LINES, LOG_NEXT_OFFSET, LogLink, LogPageHeader};
pub use name::{NAME_BYTES_MAX, Name};
pub use number::{
    COOKIE_LIMIT, COOKIE_MIN, FilePage, INO_LIMIT, Ino, SEQ_LIMIT, SEQ_RISE_LIMIT, SESSION_LIMIT,
    SIZE_LIMIT,
};
pub use pair::PairLine;
pub use pool_state::{POOL_STATE_OFFSETS, PoolState};
pub use quota::{QUOTA_BYTES, QuotaLimit};
pub use saved::{
    SAVED_PAYLOAD_BYTES_MAX, SAVED_PAYLOAD_OFFSET, SavedPageHeader, decode_words, encode_words,
};
pub use signature::known_signature;
pub use slot::{
    BAD_PAGE_LIST_PAGE, FIRST_FREE_PAGE, INODE_DIRECTORY_PAGE, LANE_TABLE_PAGE, MAX_SLOTS,
    SLOT_HEADER_BYTES, SLOT_HEADER_OFFSET, SLOT_PAGES_MAX, SLOT_PAGES_MIN, SLOT_STATE_OFFSETS,
    SlotHeader, SlotState, WEAR_PAGE,
};
pub use superblock::{CHECKSUM_CRC32C, RoFeature, Roots, SUPERBLOCK_BYTES, Superblock};
pub use wear::WearLine;
pub use xattr::{
    XATTR_CHAIN_PAGES_MAX, XATTR_INLINE_BYTES_MAX, XATTR_LIST_BYTES_MAX, XATTR_NAME_BYTES_MAX,
    XATTR_PAYLOAD_BYTES_MAX, XATTR_PAYLOAD_OFFSET, XATTR_VALUE_BYTES_MAX, XattrExtent,
    XattrNamespace, XattrPageHeader, XattrRecord, XattrValue, is_xattr_name,
};

/// Bytes of a page, the unit of allocation.
pub const PAGE: u64 = 4096;
/// Bytes of a cache line, the unit of write-back.
pub const LINE: u64 = 64;
/// Cache lines of a page.
pub const LINES_PER_PAGE: u64 = PAGE / LINE;
/// The version of the format that this crate writes and reads.
pub const FORMAT_VERSION: u32 = 1;
