//! The saved allocator: pages chained at a clean unmount, each opening with a header line.

use zerocopy::little_endian::{U32, U64};
use zerocopy::transmute;

use crate::error::{check, check_crc};
use crate::{Crc32c, LayoutError, PmAddr, Seed};

/// The payload, in bytes from the start of its page.
pub const SAVED_PAYLOAD_OFFSET: u64 = 64;
/// Payload bytes of a page.
pub const SAVED_PAYLOAD_BYTES_MAX: u32 = 4096 - 64;

const SAVED: &str = "saved page header";

raw! {
    struct RawSavedPageHeader, "Saved page header", 64 {
        0 next: U64,
        8 page_index: U32,
        12 payload_bytes: U32,
        16 crc: U32,
        20 reserved: [u8; 44],
    }
}

/// The head of a page of the saved allocator.
///
/// The seed is pool, address of the page. The payload has its checksum in the pool state line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavedPageHeader {
    /// The next page of the chain, or null.
    pub next: PmAddr,
    /// 0 for the first page, then rising by one.
    pub page_index: u32,
    /// Bytes of payload after the header, at most 4032.
    pub payload_bytes: u32,
}

impl SavedPageHeader {
    /// The bytes to store.
    #[must_use]
    pub fn encode(&self, seed: Seed) -> [u8; 64] {
        let mut raw = RawSavedPageHeader {
            next: self.next.raw().into(),
            page_index: self.page_index.into(),
            payload_bytes: self.payload_bytes.into(),
            crc: U32::ZERO,
            reserved: [0; 44],
        };
        let bytes: [u8; 64] = transmute!(raw);
        raw.crc = checksum(&bytes, seed).into();
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
        let raw: RawSavedPageHeader = transmute!(*bytes);
        check_crc(SAVED, checksum(bytes, seed), raw.crc.get())?;
        let payload_bytes = raw.payload_bytes.get();
        let fits = payload_bytes <= SAVED_PAYLOAD_BYTES_MAX;
        check(fits, SAVED, "payload_bytes", "at most 4032", payload_bytes.into())?;
        Ok(Self {
            next: PmAddr::decode_page(raw.next.get(), SAVED, "next")?,
            page_index: raw.page_index.get(),
            payload_bytes,
        })
    }
}

fn checksum(bytes: &[u8; 64], seed: Seed) -> u32 {
    let mut crc = Crc32c::seeded(seed);
    crc.update(&bytes[..16]);
    crc.update(&bytes[20..]);
    crc.finish()
}

/// The words of a bitmap as the bytes of a saved page's payload.
#[must_use]
pub fn encode_words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The words in a saved page's payload; a rest of fewer than 8 bytes is left out.
pub fn decode_words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_little_endian_and_a_rest_is_left_out() {
        let bytes = encode_words(&[0x0102_0304_0506_0708, u64::MAX]);
        assert_eq!(bytes[..9], [8, 7, 6, 5, 4, 3, 2, 1, 0xff]);
        let words: Vec<u64> = decode_words(&bytes[..15]).collect();
        assert_eq!(words, [0x0102_0304_0506_0708]);
    }
}
