//! Write entries: pages of the file that lie at pages of the pool, or nowhere.

use zerocopy::little_endian::{U32, U64};
use zerocopy::transmute;

use super::header::{EntryKind, LINE_BYTES, RawEntryHeader, raw_header};
use crate::error::check;
use crate::{Entry, FilePage, LayoutError, PAGE, PmAddr};

const WRITE: &str = "write entry";
const SLOT_BYTES_MAX: u64 = 1 << 48;

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
pub(crate) fn decode(line: &[u8; LINE_BYTES]) -> Result<Entry, LayoutError> {
    let raw: RawWrite = transmute!(*line);
    let file_page = FilePage::decode(raw.file_page.get(), WRITE)?;
    let addr = PmAddr::decode_page(raw.addr.get(), WRITE, "addr")?;
    let count = raw.count.get();
    let pages = u64::from(count);
    check(count != 0, WRITE, "count", "at least 1", 0)?;
    if addr.is_null() {
        let ends = count == u32::MAX || file_page.get() + pages <= FilePage::LIMIT;
        check(ends, WRITE, "count", "an end below file page 2^52", pages)?;
    } else {
        let ends = file_page.get() + pages <= FilePage::LIMIT
            && addr.byte() + pages * PAGE <= SLOT_BYTES_MAX;
        check(
            ends,
            WRITE,
            "count",
            "an end below file page 2^52 and byte 2^48",
            pages,
        )?;
    }
    Ok(Entry::Write {
        file_page,
        addr,
        count,
        snapshot_epoch: raw.snapshot_epoch.get(),
    })
}
