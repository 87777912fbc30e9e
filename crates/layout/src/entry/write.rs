//! Write entries: pages of the file that lie at pages of the pool, or nowhere.

use zerocopy::little_endian::{U32, U64};
use zerocopy::transmute;

use super::header::{EntryKind, LINE_BYTES, RawEntryHeader, raw_header};
use crate::error::check;
use crate::{FilePage, LayoutError, PAGE, PmAddr};

const WRITE: &str = "write entry";
const SLOT_BYTES_MAX: u64 = 1 << 48;
/// The count of a hole that reaches to the end of the file.
const TO_END: u32 = u32::MAX;

raw! {
    struct RawWrite, "Write entry", 64 {
        0 header: RawEntryHeader,
        16 file_page: U64,
        24 addr: U64,
        32 count: U32,
        36 snapshot_epoch: U32,
        40 reserved: [u8; 24],
    }
}

#[inline]
pub(crate) fn encode(
    op_seq: u64,
    file_page: FilePage,
    addr: PmAddr,
    count: u32,
    snapshot_epoch: u32,
) -> [u8; LINE_BYTES] {
    transmute!(RawWrite {
        header: raw_header(EntryKind::Write, 1, op_seq),
        file_page: file_page.get().into(),
        addr: addr.raw().into(),
        count: count.into(),
        snapshot_epoch: snapshot_epoch.into(),
        reserved: [0; 24],
    })
}

#[inline]
pub(crate) fn decode(line: &[u8; LINE_BYTES]) -> Result<(FilePage, PmAddr, u32, u32), LayoutError> {
    let raw: RawWrite = transmute!(*line);
    let file_page = FilePage::decode(raw.file_page.get(), WRITE)?;
    let addr = PmAddr::decode_page(raw.addr.get(), WRITE, "addr")?;
    let count = raw.count.get();
    let pages = u64::from(count);
    let in_file = file_page.get() + pages <= FilePage::LIMIT;
    let (ends, expected) = if addr.is_null() {
        (in_file || count == TO_END, "an end below file page 2^52, or 2^32 - 1")
    } else {
        let in_slot = addr.byte() + pages * PAGE <= SLOT_BYTES_MAX;
        (in_file && in_slot && count != TO_END, "an end below file page 2^52 and byte 2^48")
    };
    check(count != 0, WRITE, "count", "at least 1", 0)?;
    check(ends, WRITE, "count", expected, pages)?;
    Ok((file_page, addr, count, raw.snapshot_epoch.get()))
}
