//! Extended attributes: a chain of pages with records, each page opening with a header line.
//!
//! The pages of an inode's attributes never change: a change makes new ones. The payloads of a chain
//! are one sequence of records, which may cross from a page to the next. A long value has pages of
//! its own, which its record names, so that changing one attribute leaves the other values alone.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes, transmute};

use crate::error::check;
use crate::number::decode_seq;
use crate::{Ino, LayoutError, PAGE, PmAddr, Seed};

/// The payload, in bytes from the start of its page.
pub const XATTR_PAYLOAD_OFFSET: u64 = 64;
/// Payload bytes of a page.
pub const XATTR_PAYLOAD_BYTES_MAX: u32 = 4096 - 64;
/// Pages of a chain at most.
pub const XATTR_CHAIN_PAGES_MAX: u32 = 256;
/// Longest value, in bytes, as in Linux.
pub const XATTR_VALUE_BYTES_MAX: u32 = 65_536;
/// Longest value that lies in its record, in bytes.
pub const XATTR_INLINE_BYTES_MAX: u32 = 1024;
/// Longest name, in bytes, with its namespace's prefix, as in Linux.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Bytes of all names of an inode together, each with its prefix and a NUL, as in Linux.
pub const XATTR_LIST_BYTES_MAX: usize = 65_536;

const HEADER: &str = "extended attribute page header";
const RECORD: &str = "extended attribute record";
const RECORD_BYTES: usize = 16;
const EXTENT_BYTES: usize = 16;
/// Extents of a value at most: one for each of its pages.
const VALUE_EXTENTS_MAX: usize = 16;

raw! {
    struct RawXattrPageHeader, "Extended attribute page header", 64 {
        0 ino: U64,
        8 generation: U32,
        12 page_index: U32,
        16 next: U64,
        24 op_seq: U64,
        32 payload_bytes: U32,
        36 payload_crc: U32,
        40 pages: U32,
        44 summary: U32,
        48 reserved: [u8; 12],
        60 crc: U32,
    }
}

raw! {
    struct RawXattrRecord, "Extended attribute record", 16 {
        0 namespace: u8,
        1 name_length: u8,
        2 extents: u8,
        3 pad: u8,
        4 value_length: U32,
        8 value_crc: U32,
        12 reserved: U32,
    }
}

raw! {
    struct RawXattrExtent, "Extended attribute extent", 16 {
        0 addr: U64,
        8 count: U32,
        12 reserved: U32,
    }
}

/// Whose attributes they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum XattrNamespace {
    /// `user.`: anybody's who may write the file.
    User = 1,
    /// `trusted.`: the administrator's.
    Trusted = 2,
    /// `security.`: security modules', and file capabilities.
    Security = 3,
    /// `system.posix_acl_access`, which has no more of a name.
    AclAccess = 4,
    /// `system.posix_acl_default`, which has no more of a name.
    AclDefault = 5,
    /// The limits of directory trees, of the root directory: no user's, and without a name.
    Quotas = 6,
}

impl XattrNamespace {
    /// Every namespace, by number.
    pub const ALL: [Self; 6] = [
        Self::User,
        Self::Trusted,
        Self::Security,
        Self::AclAccess,
        Self::AclDefault,
        Self::Quotas,
    ];

    /// The number that is stored.
    #[must_use]
    pub const fn to_u8(self) -> u8 {
        self as u8
    }

    /// The namespace with that stored number.
    #[must_use]
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|namespace| namespace.to_u8() == number)
    }

    /// How its names begin; of an ACL it is all of the name.
    #[must_use]
    pub const fn prefix(self) -> &'static [u8] {
        match self {
            Self::User => b"user.",
            Self::Trusted => b"trusted.",
            Self::Security => b"security.",
            Self::AclAccess => b"system.posix_acl_access",
            Self::AclDefault => b"system.posix_acl_default",
            Self::Quotas => b"",
        }
    }

    /// Whether its names go on after the prefix.
    #[must_use]
    pub const fn has_names(self) -> bool {
        matches!(self, Self::User | Self::Trusted | Self::Security)
    }
}

/// The head of a page of an inode's extended attributes.
///
/// The seed is pool, ino, generation, address of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XattrPageHeader {
    /// The inode whose attributes they are.
    pub ino: Ino,
    /// That inode's generation.
    pub generation: u32,
    /// 0 for the first page of the chain, then rising by one.
    pub page_index: u32,
    /// The next page of the chain, or null.
    pub next: PmAddr,
    /// The operation that stored the chain; the same in all its pages.
    pub op_seq: u64,
    /// Bytes of payload after the header, 1 to 4032.
    pub payload_bytes: u32,
    /// CRC32C of those bytes, without a seed.
    pub payload_crc: u32,
    /// Pages of the chain and of the values; the same in all pages of the chain.
    pub pages: u32,
    /// Which attributes that the file system itself asks for are among them: the `HAS_` bits. The
    /// same in all pages of the chain.
    pub summary: u32,
}

impl XattrPageHeader {
    /// There is `security.capability`.
    pub const HAS_CAPABILITY: u32 = 1;
    /// There is `system.posix_acl_access`.
    pub const HAS_ACL_ACCESS: u32 = 2;
    /// There is `system.posix_acl_default`.
    pub const HAS_ACL_DEFAULT: u32 = 4;
    const SUMMARY_MASK: u32 = 7;

    /// The bytes to store.
    #[must_use]
    pub fn encode(&self, seed: Seed) -> [u8; 64] {
        let raw = RawXattrPageHeader {
            ino: self.ino.get().into(),
            generation: self.generation.into(),
            page_index: self.page_index.into(),
            next: self.next.raw().into(),
            op_seq: self.op_seq.into(),
            payload_bytes: self.payload_bytes.into(),
            payload_crc: self.payload_crc.into(),
            pages: self.pages.into(),
            summary: self.summary.into(),
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
        let raw: RawXattrPageHeader = transmute!(*bytes);
        seed.check_sealed(bytes, HEADER)?;
        let payload_bytes = raw.payload_bytes.get();
        let fits = (1..=XATTR_PAYLOAD_BYTES_MAX).contains(&payload_bytes);
        check(fits, HEADER, "payload_bytes", "1 to 4032", payload_bytes.into())?;
        let summary = raw.summary.get();
        let known = summary & !Self::SUMMARY_MASK == 0;
        check(known, HEADER, "summary", "no bits but 0 to 2", summary.into())?;
        let pages = raw.pages.get();
        check((1..1 << 28).contains(&pages), HEADER, "pages", "1 to 2^28 - 1", pages.into())?;
        Ok(Self {
            ino: Ino::decode(raw.ino.get(), HEADER)?,
            generation: raw.generation.get(),
            page_index: raw.page_index.get(),
            next: PmAddr::decode_page(raw.next.get(), HEADER, "next")?,
            op_seq: decode_seq(raw.op_seq.get(), HEADER, "op_seq")?,
            payload_bytes,
            payload_crc: raw.payload_crc.get(),
            pages,
            summary,
        })
    }
}

/// Adjacent pages that hold a part of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XattrExtent {
    /// The first page's address.
    pub addr: PmAddr,
    /// Pages, from 1.
    pub count: u32,
}

/// A value: short ones lie in the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum XattrValue {
    /// The bytes, at most [`XATTR_INLINE_BYTES_MAX`].
    Inline(Vec<u8>),
    /// Bytes in pages of their own.
    Paged {
        /// Bytes.
        len: u32,
        /// Their CRC32C, without a seed.
        crc: u32,
        /// Where they lie, in order; as many pages as the bytes need.
        extents: Vec<XattrExtent>,
    },
}

/// An attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XattrRecord {
    /// The namespace.
    pub namespace: XattrNamespace,
    /// The name without the namespace's prefix; empty for an ACL.
    pub name: Vec<u8>,
    /// The value.
    pub value: XattrValue,
}

/// Whether a name (without its prefix) can be one of the namespace.
#[must_use]
pub fn is_xattr_name(namespace: XattrNamespace, name: &[u8]) -> bool {
    name.is_empty() != namespace.has_names()
        && namespace.prefix().len() + name.len() <= XATTR_NAME_BYTES_MAX
        && !name.contains(&0)
}

impl XattrRecord {
    /// Appends the bytes to store. Lengths that the format does not allow must not get here.
    ///
    /// # Panics
    /// When name, value or extents are longer than a record says.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (value_length, value_crc, extents) = match &self.value {
            XattrValue::Inline(bytes) => {
                (u32::try_from(bytes.len()).unwrap_or(u32::MAX), 0, &[][..])
            }
            XattrValue::Paged { len, crc, extents } => (*len, *crc, &extents[..]),
        };
        let fits = self.name.len() <= XATTR_NAME_BYTES_MAX
            && value_length <= XATTR_VALUE_BYTES_MAX
            && extents.len() <= VALUE_EXTENTS_MAX;
        assert!(fits, "an extended attribute longer than its record can say");
        let short = |len: usize| u8::try_from(len).unwrap_or(u8::MAX);
        let (name_length, count) = (short(self.name.len()), short(extents.len()));
        let raw = RawXattrRecord {
            namespace: self.namespace.to_u8(),
            name_length,
            extents: count,
            pad: 0,
            value_length: value_length.into(),
            value_crc: value_crc.into(),
            reserved: U32::ZERO,
        };
        out.extend_from_slice(raw.as_bytes());
        out.extend_from_slice(&self.name);
        if let XattrValue::Inline(bytes) = &self.value {
            out.extend_from_slice(bytes);
        }
        for extent in extents {
            let raw = RawXattrExtent {
                addr: extent.addr.raw().into(),
                count: extent.count.into(),
                reserved: U32::ZERO,
            };
            out.extend_from_slice(raw.as_bytes());
        }
    }

    /// Bytes that the record takes.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        let behind = match &self.value {
            XattrValue::Inline(bytes) => bytes.len(),
            XattrValue::Paged { extents, .. } => extents.len() * EXTENT_BYTES,
        };
        RECORD_BYTES + self.name.len() + behind
    }

    /// Checks the first record of bytes that were read back; returns it and the bytes after it.
    ///
    /// # Errors
    /// [`LayoutError::Field`]: the first thing that is wrong.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), LayoutError> {
        let left = bytes.len() as u64;
        let short = |field| LayoutError::Field {
            structure: RECORD,
            field,
            expected: "no more than the payload holds",
            found: left,
        };
        let (raw, rest) = RawXattrRecord::read_from_prefix(bytes).map_err(|_| short("length"))?;
        let Some(namespace) = XattrNamespace::from_u8(raw.namespace) else {
            let found = raw.namespace.into();
            let expected = "a known namespace";
            return Err(LayoutError::Field {
                structure: RECORD,
                field: "namespace",
                expected,
                found,
            });
        };
        let (name, rest) =
            rest.split_at_checked(raw.name_length.into()).ok_or_else(|| short("name_length"))?;
        let fits = is_xattr_name(namespace, name);
        check(fits, RECORD, "name", "a name of its namespace", raw.name_length.into())?;
        let (value, rest) = if raw.extents == 0 {
            inline_value(&raw, rest, &short)?
        } else {
            paged_value(&raw, rest, &short)?
        };
        Ok((Self { namespace, name: name.to_vec(), value }, rest))
    }
}

type Decoded<'a> = Result<(XattrValue, &'a [u8]), LayoutError>;

fn inline_value<'a>(
    raw: &RawXattrRecord,
    rest: &'a [u8],
    short: &dyn Fn(&'static str) -> LayoutError,
) -> Decoded<'a> {
    let len = raw.value_length.get();
    let fits = len <= XATTR_INLINE_BYTES_MAX;
    check(fits, RECORD, "value_length", "at most 1024 in the record", len.into())?;
    let (value, rest) = rest.split_at_checked(len as usize).ok_or_else(|| short("value_length"))?;
    Ok((XattrValue::Inline(value.to_vec()), rest))
}

fn paged_value<'a>(
    raw: &RawXattrRecord,
    mut rest: &'a [u8],
    short: &dyn Fn(&'static str) -> LayoutError,
) -> Decoded<'a> {
    let len = raw.value_length.get();
    let fits = len <= XATTR_VALUE_BYTES_MAX;
    check(fits, RECORD, "value_length", "at most 65536", len.into())?;
    let mut extents = Vec::new();
    let mut pages = 0_u64;
    for _ in 0..raw.extents {
        let (extent, behind) =
            RawXattrExtent::read_from_prefix(rest).map_err(|_| short("extents"))?;
        let count = extent.count.get();
        let addr = PmAddr::decode_page(extent.addr.get(), RECORD, "addr")?;
        check(!addr.is_null(), RECORD, "addr", "the address of a page", 0)?;
        pages += u64::from(count);
        let fits = count > 0 && pages <= u64::from(XATTR_VALUE_BYTES_MAX) / PAGE;
        check(fits, RECORD, "count", "1 to 16 pages in all", count.into())?;
        extents.push(XattrExtent { addr, count });
        rest = behind;
    }
    let needed = u64::from(len).div_ceil(PAGE);
    check(pages == needed, RECORD, "count", "as many pages as the value needs", pages)?;
    Ok((XattrValue::Paged { len, crc: raw.value_crc.get(), extents }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &[u8], value: XattrValue) -> XattrRecord {
        XattrRecord { namespace: XattrNamespace::User, name: name.to_vec(), value }
    }

    fn paged(len: u32, counts: &[u32]) -> XattrValue {
        let extents = (1..)
            .zip(counts)
            .map(|(index, count)| XattrExtent { addr: PmAddr::new(1, index << 20), count: *count });
        XattrValue::Paged { len, crc: 7, extents: extents.collect() }
    }

    #[test]
    fn records_follow_each_other() {
        let acl = XattrRecord {
            namespace: XattrNamespace::AclAccess,
            name: Vec::new(),
            value: XattrValue::Inline(vec![2, 0, 0, 0]),
        };
        let records = [
            record(b"a", XattrValue::Inline(Vec::new())),
            record(&[b'n'; 250], XattrValue::Inline(vec![1; 1024])),
            record(b"long", paged(65_536, &[1, 15])),
            acl,
        ];
        let mut bytes = Vec::new();
        for record in &records {
            let before = bytes.len();
            record.encode(&mut bytes);
            assert_eq!(bytes.len() - before, record.encoded_bytes());
        }
        let mut rest = &bytes[..];
        for record in &records {
            let (decoded, behind) = XattrRecord::decode(rest).unwrap();
            assert_eq!(&decoded, record);
            rest = behind;
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn what_no_record_says_is_refused() {
        let field = |bytes: &[u8]| match XattrRecord::decode(bytes) {
            Err(LayoutError::Field { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        let bytes_of = |record: XattrRecord| {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            bytes
        };
        let good = bytes_of(record(b"name", XattrValue::Inline(vec![1; 9])));
        for len in 0..good.len() {
            assert!(XattrRecord::decode(&good[..len]).is_err(), "{len}");
        }
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        assert_eq!(field(&with(0, 0)), "namespace");
        assert_eq!(field(&with(0, 7)), "namespace");
        assert_eq!(field(&with(0, 4)), "name");
        assert_eq!(field(&with(1, 0)), "name");
        assert_eq!(field(&with(16, 0)), "name");
        assert_eq!(field(&with(5, 5)), "value_length");
        for (value, fails) in [
            (paged(4096, &[2]), "count"),
            (paged(4097, &[1]), "count"),
            (paged(4096, &[0, 1]), "count"),
            (paged(65_536, &[16, 1]), "count"),
        ] {
            assert_eq!(field(&bytes_of(record(b"n", value))), fails);
        }
        let mut long = bytes_of(record(b"n", paged(65_536, &[16])));
        long[4] += 1;
        assert_eq!(field(&long), "value_length");
    }

    #[test]
    fn a_header_counts_in_its_place_alone() {
        let header = XattrPageHeader {
            ino: Ino::new(9),
            generation: 3,
            page_index: 1,
            next: PmAddr::NULL,
            op_seq: 77,
            payload_bytes: 4032,
            payload_crc: 5,
            pages: 2,
            summary: XattrPageHeader::HAS_CAPABILITY,
        };
        let seed = |page: u64| {
            let pool = Seed::pool(&[3; 16]).ino(Ino::new(9)).generation(3);
            pool.addr(PmAddr::new(0, page * PAGE))
        };
        let bytes = header.encode(seed(8));
        assert_eq!(XattrPageHeader::decode(&bytes, seed(8)), Ok(header));
        let moved = XattrPageHeader::decode(&bytes, seed(9));
        assert!(matches!(moved, Err(LayoutError::Checksum { .. })));
        for bad in [
            XattrPageHeader { payload_bytes: 4033, ..header },
            XattrPageHeader { payload_bytes: 0, ..header },
            XattrPageHeader { summary: 8, ..header },
            XattrPageHeader { pages: 0, ..header },
            XattrPageHeader { next: PmAddr::from_raw(64), ..header },
        ] {
            let refused = XattrPageHeader::decode(&bad.encode(seed(8)), seed(8));
            assert!(matches!(refused, Err(LayoutError::Field { .. })), "{bad:?}");
        }
    }
}
