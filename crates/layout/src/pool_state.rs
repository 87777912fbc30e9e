//! The pool's two alternating state lines: what changes of a pool.

use zerocopy::little_endian::{U32, U64};
use zerocopy::transmute;

use crate::error::check;
use crate::number::decode_seq;
use crate::{LayoutError, PmAddr, SESSION_LIMIT, Seed};

/// The pool's state lines, in bytes from the start of page 0 of slot 0.
pub const POOL_STATE_OFFSETS: [u64; 2] = [1024, 1088];

const STATE: &str = "pool state line";

raw! {
    struct RawPoolState, "Pool state line", 64 {
        0 seq: U64,
        8 session: U32,
        12 flags: U32,
        16 saved_root: U64,
        24 saved_bytes: U64,
        32 saved_crc: U32,
        36 pad: U32,
        40 wear_summary: U64,
        48 reserved: [u8; 12],
        60 crc: U32,
    }
}

/// What changes of a pool; the newer of two lines that validates counts.
///
/// The seed is pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolState {
    /// Rises with each write of a state line.
    pub seq: u64,
    /// Rises with each mount for writing.
    pub session: u32,
    /// [`PoolState::CLEAN`].
    pub flags: u32,
    /// The first page of the saved allocator, or null.
    pub saved_root: PmAddr,
    /// Bytes of the saved allocator's payload, all pages together.
    pub saved_bytes: u64,
    /// The CRC32C of that payload, in order.
    pub saved_crc: u32,
    /// The greatest wear of a slot, in lines written a page.
    pub wear_summary: u64,
}

impl PoolState {
    /// The pool was unmounted in order and not opened for writing since.
    pub const CLEAN: u32 = 1;

    /// The bytes to store.
    #[must_use]
    pub fn encode(&self, seed: Seed) -> [u8; 64] {
        let raw = RawPoolState {
            seq: self.seq.into(),
            session: self.session.into(),
            flags: self.flags.into(),
            saved_root: self.saved_root.raw().into(),
            saved_bytes: self.saved_bytes.into(),
            saved_crc: self.saved_crc.into(),
            pad: U32::ZERO,
            wear_summary: self.wear_summary.into(),
            reserved: [0; 12],
            crc: U32::ZERO,
        };
        seed.seal(transmute!(raw))
    }

    /// Checks bytes that were read back.
    ///
    /// # Errors
    /// [`LayoutError::Blank`] when all are zero, else the first thing that is wrong.
    pub fn decode(bytes: &[u8; 64], seed: Seed) -> Result<Self, LayoutError> {
        if bytes == &[0; 64] {
            return Err(LayoutError::Blank);
        }
        let raw: RawPoolState = transmute!(*bytes);
        seed.check_sealed(bytes, STATE)?;
        let session = raw.session.get();
        check(session < SESSION_LIMIT, STATE, "session", "below 2^31", session.into())?;
        Ok(Self {
            seq: decode_seq(raw.seq.get(), STATE, "seq")?,
            session,
            flags: raw.flags.get(),
            saved_root: PmAddr::decode_page(raw.saved_root.get(), STATE, "saved_root")?,
            saved_bytes: raw.saved_bytes.get(),
            saved_crc: raw.saved_crc.get(),
            wear_summary: raw.wear_summary.get(),
        })
    }
}
