//! Slots: one header, never changed, and two alternating state lines.

use zerocopy::little_endian::{U32, U64};
use zerocopy::transmute;

use crate::error::{check, check_crc};
use crate::number::decode_seq;
use crate::{Crc32c, FORMAT_VERSION, LayoutError, PmAddr, SESSION_LIMIT, Seed};

/// The most slots of a pool.
pub const MAX_SLOTS: u8 = 64;
/// Bytes of a slot header.
pub const SLOT_HEADER_BYTES: usize = 128;
/// The slot header, in bytes from the start of the slot's first and of its last page.
pub const SLOT_HEADER_OFFSET: u64 = 2048;
/// The slot's state lines, in bytes from the start of its first page.
pub const SLOT_STATE_OFFSETS: [u64; 2] = [3072, 3136];
/// The page of a slot that holds its wear lines.
pub const WEAR_PAGE: u64 = 1;
/// The page of a slot that holds its bad-page list.
pub const BAD_PAGE_LIST_PAGE: u64 = 2;
/// The page of slot 0 that is the root of the inode directory.
pub const INODE_DIRECTORY_PAGE: u64 = 3;
/// The page of slot 0 that is the lane table.
pub const LANE_TABLE_PAGE: u64 = 4;
/// The first page of every slot that the allocator owns; the last page of a slot is its replica.
pub const FIRST_FREE_PAGE: u64 = 8;

/// The least pages of a slot: its own in front, one to allocate, the replica.
pub const SLOT_PAGES_MIN: u64 = FIRST_FREE_PAGE + 2;
/// The most pages of a slot: those that an address can name.
pub const SLOT_PAGES_MAX: u64 = 1 << 36;

const HEADER: &str = "slot header";
const STATE: &str = "slot state line";
pub(crate) const MAGIC: [u8; 8] = *b"NovaSlot";

raw! {
    struct RawSlotHeader, "Slot header", 128 {
        0 magic: U64,
        8 version: U32,
        12 crc: U32,
        16 pool_uuid: [u8; 16],
        32 slot_uuid: [u8; 16],
        48 index: u8,
        49 kind: u8,
        50 pad: [u8; 6],
        56 pages: U64,
        64 endurance: U64,
        72 wear_offset: U64,
        80 bad_pages_offset: U64,
        88 state_offset: U64,
        96 reserved: [u8; 32],
    }
}

/// What a slot is, written once by mkfs, with a replica in the slot's last page.
///
/// It has no seed: it names its pool itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotHeader {
    /// The pool.
    pub pool_uuid: [u8; 16],
    /// The slot.
    pub slot_uuid: [u8; 16],
    /// The slot's number in addresses, 0 to 63.
    pub index: u8,
    /// The kind of memory, as mkfs found it; informative.
    pub kind: u8,
    /// Pages of the slot, the replica page included.
    pub pages: u64,
    /// Writes that a cell endures, 0: unknown.
    pub endurance: u64,
    /// The wear lines, in bytes from the start of the slot.
    pub wear_offset: u64,
    /// The bad-page list, likewise.
    pub bad_pages_offset: u64,
    /// The two state lines, likewise.
    pub state_offset: u64,
}

impl SlotHeader {
    /// In the place of that of a slot which is not there: without pages.
    #[must_use]
    pub fn absent(index: u8) -> Self {
        Self {
            pool_uuid: [0; 16],
            slot_uuid: [0; 16],
            index,
            kind: 0,
            pages: 0,
            endurance: 0,
            wear_offset: 0,
            bad_pages_offset: 0,
            state_offset: 0,
        }
    }

    /// The bytes to store.
    #[must_use]
    pub fn encode(&self) -> [u8; SLOT_HEADER_BYTES] {
        let mut raw = RawSlotHeader {
            magic: u64::from_le_bytes(MAGIC).into(),
            version: FORMAT_VERSION.into(),
            crc: U32::ZERO,
            pool_uuid: self.pool_uuid,
            slot_uuid: self.slot_uuid,
            index: self.index,
            kind: self.kind,
            pad: [0; 6],
            pages: self.pages.into(),
            endurance: self.endurance.into(),
            wear_offset: self.wear_offset.into(),
            bad_pages_offset: self.bad_pages_offset.into(),
            state_offset: self.state_offset.into(),
            reserved: [0; 32],
        };
        let bytes: [u8; SLOT_HEADER_BYTES] = transmute!(raw);
        raw.crc = header_checksum(&bytes).into();
        transmute!(raw)
    }

    /// Checks bytes that were read back.
    ///
    /// # Errors
    /// [`LayoutError::Blank`] when all are zero, else the first thing that is wrong.
    pub fn decode(bytes: &[u8; SLOT_HEADER_BYTES]) -> Result<Self, LayoutError> {
        if bytes == &[0; SLOT_HEADER_BYTES] {
            return Err(LayoutError::Blank);
        }
        let raw: RawSlotHeader = transmute!(*bytes);
        let magic = raw.magic.get();
        check(magic == u64::from_le_bytes(MAGIC), HEADER, "magic", "NovaSlot", magic)?;
        let version = raw.version.get();
        check(version == FORMAT_VERSION, HEADER, "version", "1", version.into())?;
        check_crc(HEADER, header_checksum(bytes), raw.crc.get())?;
        check(raw.index < MAX_SLOTS, HEADER, "index", "0 to 63", raw.index.into())?;
        let pages = raw.pages.get();
        let pages_ok = (SLOT_PAGES_MIN..=SLOT_PAGES_MAX).contains(&pages);
        check(pages_ok, HEADER, "pages", "10 to 2^36", pages)?;
        Ok(Self {
            pool_uuid: raw.pool_uuid,
            slot_uuid: raw.slot_uuid,
            index: raw.index,
            kind: raw.kind,
            pages,
            endurance: raw.endurance.get(),
            wear_offset: raw.wear_offset.get(),
            bad_pages_offset: raw.bad_pages_offset.get(),
            state_offset: raw.state_offset.get(),
        })
    }
}

fn header_checksum(bytes: &[u8; SLOT_HEADER_BYTES]) -> u32 {
    let mut crc = Crc32c::new();
    crc.update(&bytes[..12]);
    crc.update(&bytes[16..]);
    crc.finish()
}

raw! {
    struct RawSlotState, "Slot state line", 64 {
        0 seq: U64,
        8 session: U64,
        16 flags: U32,
        20 evacuation_state: U32,
        24 evacuation_progress: U64,
        32 bad_page_root: U64,
        40 reserved: [u8; 20],
        60 crc: U32,
    }
}

/// What changes of a slot; the newer of two lines that validates counts.
///
/// The seed is pool, address of the slot's first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotState {
    /// Rises with each write of a state line.
    pub seq: u64,
    /// The pool's session that the slot took part in.
    pub session: u64,
    /// None yet.
    pub flags: u32,
    /// Whether the slot is in use: 0, is being emptied, or [`SlotState::HANDED_ON`].
    pub evacuation_state: u32,
    /// Of a slot that was handed on, the first 8 bytes of the name of the one that takes its place.
    pub evacuation_progress: u64,
    /// The first page of a long bad-page list, or null.
    pub bad_page_root: PmAddr,
}

impl SlotState {
    /// In `evacuation_state`: no page is taken in the slot.
    pub const LEAVING: u32 = 1;
    /// In `evacuation_state`: another slot takes this one's place, or has taken it.
    pub const HANDED_ON: u32 = 2;
    /// In `evacuation_state`: as [`Self::LEAVING`], and it was emptied: it goes when nobody uses the pool.
    pub const EMPTIED: u32 = 3;

    /// Of a slot that is leaving, the number of the one that is to go, whose place it takes unless that is itself;
    /// where that is known.
    #[must_use]
    pub fn goes(&self) -> Option<u8> {
        let is_leaving = [Self::LEAVING, Self::EMPTIED].contains(&self.evacuation_state);
        let number = self.evacuation_progress.checked_sub(1).filter(|_| is_leaving)?;
        u8::try_from(number).ok().filter(|number| *number < MAX_SLOTS)
    }

    /// `evacuation_progress` of a slot that leaves for this one to go.
    #[must_use]
    pub fn going_word(slot: u8) -> u64 {
        u64::from(slot) + 1
    }

    /// Of a slot that was handed on, how the name of the one begins that takes its place.
    #[must_use]
    pub fn heir(&self) -> Option<[u8; 8]> {
        let is_handed_on = self.evacuation_state == Self::HANDED_ON && self.given_up().is_none();
        is_handed_on.then(|| self.evacuation_progress.to_le_bytes())
    }

    /// Of slot 0, the number of a slot that is lost, and that the others are being rid of: the pool is not written.
    /// No name begins so.
    #[must_use]
    pub fn given_up(&self) -> Option<u8> {
        let is_so = self.evacuation_state == Self::HANDED_ON;
        let number = self.evacuation_progress.checked_sub(1).filter(|_| is_so)?;
        u8::try_from(number).ok().filter(|number| *number < MAX_SLOTS)
    }

    /// `evacuation_progress` of a slot that is handed on to the one of this name.
    #[must_use]
    pub fn heir_word(name: &[u8; 16]) -> u64 {
        u64::from_le_bytes(name.first_chunk().copied().unwrap_or_default())
    }

    /// Whether bytes that are refused may have been the line after this one: not where none was written after the
    /// first, nor where they say that they are older.
    #[must_use]
    pub fn may_precede(&self, refused: &[u8; 64]) -> bool {
        let raw: RawSlotState = transmute!(*refused);
        let is_older = (1..self.seq).contains(&raw.seq.get())
            && (1..=self.session).contains(&raw.session.get());
        !is_older && (self.seq > 1 || refused != &[0; 64])
    }

    /// The bytes to store.
    #[must_use]
    pub fn encode(&self, seed: Seed) -> [u8; 64] {
        let raw = RawSlotState {
            seq: self.seq.into(),
            session: self.session.into(),
            flags: self.flags.into(),
            evacuation_state: self.evacuation_state.into(),
            evacuation_progress: self.evacuation_progress.into(),
            bad_page_root: self.bad_page_root.raw().into(),
            reserved: [0; 20],
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
        let raw: RawSlotState = transmute!(*bytes);
        seed.check_sealed(bytes, STATE)?;
        let session = raw.session.get();
        let session_ok = session <= u64::from(SESSION_LIMIT);
        check(session_ok, STATE, "session", "at most 2^31", session)?;
        Ok(Self {
            seq: decode_seq(raw.seq.get(), STATE, "seq")?,
            session,
            flags: raw.flags.get(),
            evacuation_state: raw.evacuation_state.get(),
            evacuation_progress: raw.evacuation_progress.get(),
            bad_page_root: PmAddr::decode_page(raw.bad_page_root.get(), STATE, "bad_page_root")?,
        })
    }
}
