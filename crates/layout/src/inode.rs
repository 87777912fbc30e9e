//! The inode: an identity line, two commit lines, a volatile line.

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::transmute;

use crate::error::{check, check_crc};
use crate::{FileKind, Ino, LayoutError, PAGE, PmAddr, Seed};

/// Bytes of an inode.
pub const INODE_SIZE: u64 = 256;
/// Inodes of a chunk.
pub const INODES_PER_CHUNK: u64 = 8192;
/// Pages of a chunk.
pub const CHUNK_PAGES: u64 = INODES_PER_CHUNK * INODE_SIZE / PAGE;
/// The identity line, in bytes from the start of the inode.
pub const IDENTITY_OFFSET: u64 = 0;
/// The two commit lines, likewise.
pub const COMMIT_OFFSETS: [u64; 2] = [64, 128];
/// The volatile line, likewise.
pub const VOLATILE_OFFSET: u64 = 192;
/// The version of identity lines that this crate writes and reads.
pub const IDENTITY_VERSION: u16 = 1;

const IDENTITY: &str = "identity line";
const COMMIT: &str = "commit line";
const STATE_LIVE: u8 = 1;
const FLAGS_MASK: u64 = PAGE - 1;

raw! {
    struct RawIdentityLine, "Identity line", 64 {
        0 crc: U32,
        4 version: U16,
        6 state: u8,
        7 policy: u8,
        8 ino: U64,
        16 generation: U32,
        20 mode: U32,
        24 uid: U32,
        28 gid: U32,
        32 birth_ns: I64,
        40 rdev: U32,
        44 flags: U32,
        48 project: U32,
        52 reserved: U32,
        56 xattr_root: U64,
    }
}

/// What an inode is, written once a generation; later changes are [`crate::Attributes`] entries.
///
/// The seed is pool, ino.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdentityLine {
    /// [`IDENTITY_VERSION`].
    pub version: u16,
    /// The kind; it decides the type bits of the stored mode.
    pub kind: FileKind,
    /// The update policy, 0: the mount's.
    pub policy: u8,
    /// The inode's number.
    pub ino: Ino,
    /// Rises each time the number is used again.
    pub generation: u32,
    /// The full `st_mode`, type bits included.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Creation, ns since 1970.
    pub birth_ns: i64,
    /// The device number of a device, 0 for others.
    pub rdev: u32,
    /// Attribute flags, as `chattr` has them.
    pub flags: u32,
    /// The project for quota.
    pub project: u32,
    /// The page with extended attributes, or null.
    pub xattr_root: PmAddr,
}

impl IdentityLine {
    /// The bytes to store.
    #[must_use]
    pub fn encode(&self, seed: Seed) -> [u8; 64] {
        let mut raw = RawIdentityLine {
            crc: U32::ZERO,
            version: self.version.into(),
            state: STATE_LIVE,
            policy: self.policy,
            ino: self.ino.get().into(),
            generation: self.generation.into(),
            mode: self.kind.with_mode(self.mode).into(),
            uid: self.uid.into(),
            gid: self.gid.into(),
            birth_ns: self.birth_ns.into(),
            rdev: self.rdev.into(),
            flags: self.flags.into(),
            project: self.project.into(),
            reserved: U32::ZERO,
            xattr_root: self.xattr_root.raw().into(),
        };
        let bytes: [u8; 64] = transmute!(raw);
        raw.crc = seed.checksum(&bytes[4..]).into();
        transmute!(raw)
    }

    /// Checks bytes that were read back.
    ///
    /// # Errors
    /// [`LayoutError::Blank`] when all are zero, else the first thing that is wrong.
    pub fn decode(bytes: &[u8; 64], seed: Seed) -> Result<Self, LayoutError> {
        if bytes == &[0; 64] {
            return Err(LayoutError::Blank);
        }
        let raw: RawIdentityLine = transmute!(*bytes);
        check_crc(IDENTITY, seed.checksum(&bytes[4..]), raw.crc.get())?;
        let version = raw.version.get();
        check(
            version == IDENTITY_VERSION,
            IDENTITY,
            "version",
            "1",
            version.into(),
        )?;
        check(
            raw.state == STATE_LIVE,
            IDENTITY,
            "state",
            "1",
            raw.state.into(),
        )?;
        let mode = raw.mode.get();
        let Some(kind) = FileKind::from_mode(mode) else {
            return Err(LayoutError::Field {
                structure: IDENTITY,
                field: "mode",
                expected: "the type bits of a known kind",
                found: mode.into(),
            });
        };
        Ok(Self {
            version,
            kind,
            policy: raw.policy,
            ino: Ino::decode(raw.ino.get(), IDENTITY)?,
            generation: raw.generation.get(),
            mode,
            uid: raw.uid.get(),
            gid: raw.gid.get(),
            birth_ns: raw.birth_ns.get(),
            rdev: raw.rdev.get(),
            flags: raw.flags.get(),
            project: raw.project.get(),
            xattr_root: PmAddr::decode_page(raw.xattr_root.get(), IDENTITY, "xattr_root")?,
        })
    }
}

raw! {
    struct RawCommitLine, "Commit line", 64 {
        0 op_seq: U64,
        8 log_head: U64,
        16 log_tail: U64,
        24 size: U64,
        32 mtime_ns: I64,
        40 ctime_ns: I64,
        48 nlink: U32,
        52 session: U32,
        56 data_crc: U32,
        60 line_crc: U32,
    }
}

/// The state of an inode; the newest of its two lines that validates is the one that counts.
///
/// The seed is pool, ino. Its words are stored in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommitLine {
    /// The operation's number, which only rises, also when the inode is reused.
    pub op_seq: u64,
    /// The first log page, or null.
    pub log_head: PmAddr,
    /// [`CommitLine::HAS_DATA_CRC`] and [`CommitLine::ATTRS_IN_LOG`]; 12 bits.
    pub flags: u16,
    /// The last committed line of the log; null: the log is empty.
    pub log_tail: PmAddr,
    /// The length of the file in bytes.
    pub size: u64,
    /// Last change of the data, ns since 1970.
    pub mtime_ns: i64,
    /// Last change of the attributes, ns since 1970.
    pub ctime_ns: i64,
    /// Names of the inode; 0 ends it.
    pub nlink: u32,
    /// The session that wrote the line: `data_crc` counts in that session only.
    pub session: u32,
    /// The data checksum of a single-fence commit, where the flag says that there is one.
    pub data_crc: u32,
}

impl CommitLine {
    /// The line counts, in the session that crashed, only when `data_crc` is right.
    pub const HAS_DATA_CRC: u16 = 1;
    /// The log holds an attributes entry, which takes the place of the identity line's attributes.
    pub const ATTRS_IN_LOG: u16 = 2;

    /// The bytes to store.
    ///
    /// # Panics
    /// When `flags` has more than 12 bits.
    #[inline]
    #[must_use]
    pub fn encode(&self, seed: Seed) -> [u8; 64] {
        assert!(
            u64::from(self.flags) <= FLAGS_MASK,
            "the flags of a commit line have 12 bits"
        );
        let mut raw = RawCommitLine {
            op_seq: self.op_seq.into(),
            log_head: (self.log_head.raw() | u64::from(self.flags)).into(),
            log_tail: self.log_tail.raw().into(),
            size: self.size.into(),
            mtime_ns: self.mtime_ns.into(),
            ctime_ns: self.ctime_ns.into(),
            nlink: self.nlink.into(),
            session: self.session.into(),
            data_crc: self.data_crc.into(),
            line_crc: U32::ZERO,
        };
        let bytes: [u8; 64] = transmute!(raw);
        raw.line_crc = seed.checksum(&bytes[..60]).into();
        transmute!(raw)
    }

    /// Checks bytes that were read back.
    ///
    /// # Errors
    /// [`LayoutError::Blank`] when all are zero, [`LayoutError::Checksum`] when the line is torn,
    /// damaged or another inode's, [`LayoutError::Field`] when its addresses make no sense.
    #[inline]
    pub fn decode(bytes: &[u8; 64], seed: Seed) -> Result<Self, LayoutError> {
        let raw: RawCommitLine = transmute!(*bytes);
        let expected = seed.checksum(&bytes[..60]);
        let found = raw.line_crc.get();
        if expected != found {
            let blank = bytes == &[0; 64];
            let torn = LayoutError::Checksum {
                structure: COMMIT,
                expected,
                found,
            };
            return Err(if blank { LayoutError::Blank } else { torn });
        }
        let head = raw.log_head.get();
        let log_head = PmAddr::decode_page(head & !FLAGS_MASK, COMMIT, "log_head")?;
        let log_tail = PmAddr::from_raw(raw.log_tail.get());
        let tail_ok = log_tail.is_null()
            || (!log_head.is_null()
                && log_tail.is_line_aligned()
                && !log_tail.is_page_aligned()
                && log_tail.reserved_bits_clear());
        let expected = "a line behind the header of a log page, or 0";
        check(tail_ok, COMMIT, "log_tail", expected, log_tail.raw())?;
        let [low, high, ..] = head.to_le_bytes();
        Ok(Self {
            op_seq: raw.op_seq.get(),
            log_head,
            flags: u16::from_le_bytes([low, high & 0xf]),
            log_tail,
            size: raw.size.get(),
            mtime_ns: raw.mtime_ns.get(),
            ctime_ns: raw.ctime_ns.get(),
            nlink: raw.nlink.get(),
            session: raw.session.get(),
            data_crc: raw.data_crc.get(),
        })
    }

    /// Whether the line was written by a single-fence commit.
    #[inline]
    #[must_use]
    pub const fn has_data_crc(&self) -> bool {
        self.flags & Self::HAS_DATA_CRC != 0
    }
}

raw! {
    struct RawVolatileLine, "Volatile line", 64 {
        0 atime_ns: I64,
        8 atime_seq: U64,
        16 reserved: [u8; 48],
    }
}

/// What may be lost: the access time that relatime keeps. It has no checksum.
///
/// It is stored as two ordered 8-byte words, `atime_ns` first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VolatileLine {
    /// Last access, ns since 1970.
    pub atime_ns: i64,
    /// The op_seq of the newest attributes entry when it was stored (0: none). The line counts
    /// while no attributes entry is newer.
    pub atime_seq: u64,
}

impl VolatileLine {
    /// The bytes to store.
    #[inline]
    #[must_use]
    pub fn encode(&self) -> [u8; 64] {
        transmute!(RawVolatileLine {
            atime_ns: self.atime_ns.into(),
            atime_seq: self.atime_seq.into(),
            reserved: [0; 48],
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
        }
    }
}
