//! The inode: an identity line, two commit lines, and a volatile line, 256 bytes.

mod commit;
mod identity;

pub use commit::CommitLine;
pub use identity::{IDENTITY_VERSION, IdentityLine};
pub(crate) use {commit::RawCommitLine, identity::RawIdentityLine};

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::transmute;

use crate::{Ino, PAGE, Seed};

/// Bytes of an inode.
pub const INODE_SIZE: u64 = 256;
/// Inodes of a chunk.
pub const INODES_PER_CHUNK: u64 = 8192;
/// Inodes of a page.
pub const INODES_PER_PAGE: u64 = PAGE / INODE_SIZE;
/// The identity line, in bytes from the start of the inode.
pub const IDENTITY_OFFSET: u64 = 0;
/// The two commit lines, likewise.
pub const COMMIT_OFFSETS: [u64; 2] = [64, 128];
/// The volatile line, likewise.
pub const VOLATILE_OFFSET: u64 = 192;
/// In the volatile line, the hint of a directory's parent.
pub const VOLATILE_PARENT_OFFSET: u64 = 24;

const PAGE_BYTES: usize = 4096;
const INODE_BYTES: usize = 256;
const _: () = assert!(PAGE_BYTES as u64 == PAGE && INODE_BYTES as u64 == INODE_SIZE);

/// The bytes of a page of inodes of which none was written; `seed_of` tells the seed of the lines of each.
#[must_use]
pub fn never_written_inodes(seed_of: impl Fn(u64) -> Seed) -> [u8; PAGE_BYTES] {
    let mut page = [0; PAGE_BYTES];
    for (index, inode) in (0..).zip(page.chunks_exact_mut(INODE_BYTES)) {
        let seed = seed_of(index);
        let [identity, first, second, _volatile] = inode.as_chunks_mut::<64>().0 else { continue };
        *identity = IdentityLine::never_written(seed);
        *first = CommitLine::never_written(seed);
        *second = *first;
    }
    page
}

raw! {
    struct RawVolatileLine, "Volatile line", 64 {
        0 atime_ns: I64,
        8 atime_seq: U64,
        16 generation: U32,
        20 pad: U32,
        24 parent: U64,
        32 reserved: [u8; 32],
    }
}

/// What may be lost: the access time that relatime keeps, and a directory's parent. It has no
/// checksum.
///
/// It is stored as three ordered 8-byte words: `atime_ns`, `generation`, `atime_seq`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VolatileLine {
    /// Last access, ns since 1970.
    pub atime_ns: i64,
    /// The `op_seq` of the newest attributes entry when it was stored (0: none). The line counts
    /// while no attributes entry is newer.
    pub atime_seq: u64,
    /// The inode's generation: an earlier use of the number left the line as it was.
    pub generation: u32,
    /// Of a directory: the one that is likely to name it; [`Ino::NULL`] where that is not known.
    pub parent: Ino,
}

impl VolatileLine {
    /// The bytes to store.
    #[inline]
    #[must_use]
    pub fn encode(&self) -> [u8; 64] {
        transmute!(RawVolatileLine {
            atime_ns: self.atime_ns.into(),
            atime_seq: self.atime_seq.into(),
            generation: self.generation.into(),
            pad: U32::ZERO,
            parent: self.parent.get().into(),
            reserved: [0; 32],
        })
    }

    /// Takes bytes that were read back; any are allowed.
    #[inline]
    #[must_use]
    pub fn decode(bytes: &[u8; 64]) -> Self {
        let raw: RawVolatileLine = transmute!(*bytes);
        Self {
            atime_ns: raw.atime_ns.get(),
            atime_seq: raw.atime_seq.get(),
            generation: raw.generation.get(),
            parent: Ino::new(raw.parent.get()),
        }
    }
}
