//! Identity lines: what an inode is.

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::transmute;

use crate::error::{check, check_crc};
use crate::{FileKind, Ino, LayoutError, PmAddr, Seed};

/// The version of identity lines that this crate writes and reads.
pub const IDENTITY_VERSION: u16 = 1;

const IDENTITY: &str = "identity line";
const STATE_NEVER_WRITTEN: u8 = 0;
const STATE_LIVE: u8 = 1;

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

    /// The bytes of a line that was never written: zeros, and the checksum that they have there.
    #[must_use]
    pub fn never_written(seed: Seed) -> [u8; 64] {
        let mut bytes = [0; 64];
        let crc = seed.checksum(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The inode number that a line names, unchecked: to ask for its checksum.
    #[inline]
    #[must_use]
    pub fn peek_ino(bytes: &[u8; 64]) -> Ino {
        let raw: RawIdentityLine = transmute!(*bytes);
        Ino::new(raw.ino.get())
    }

    /// Checks bytes that were read back.
    ///
    /// # Errors
    /// [`LayoutError::Blank`] when they are [`IdentityLine::never_written`], else the first thing that
    /// is wrong.
    #[inline]
    pub fn decode(bytes: &[u8; 64], seed: Seed) -> Result<Self, LayoutError> {
        let raw: RawIdentityLine = transmute!(*bytes);
        check_crc(IDENTITY, seed.checksum(&bytes[4..]), raw.crc.get())?;
        if raw.state == STATE_NEVER_WRITTEN && bytes.ends_with(&[0; 60]) {
            return Err(LayoutError::Blank);
        }
        let version = raw.version.get();
        check(version == IDENTITY_VERSION, IDENTITY, "version", "1", version.into())?;
        check(raw.state == STATE_LIVE, IDENTITY, "state", "1", raw.state.into())?;
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
