//! Recognises what a device or file holds already, so that mkfs does not overwrite it unasked.

/// The name of the format that the first bytes (up to 2 MB) of a device or file show, if known.
#[must_use]
pub fn known_signature(first_bytes: &[u8]) -> Option<&'static str> {
    SIGNATURES
        .iter()
        .find(|(offset, magic, _)| {
            first_bytes
                .get(*offset..)
                .is_some_and(|bytes| bytes.starts_with(magic))
        })
        .map(|(_, _, name)| *name)
}

/// (offset, bytes there, name), the more telling first: an MBR's mark is on many file systems too.
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (0, &crate::pool::MAGIC, "Novale"),
    (1080, b"\x53\xef", "ext2/3/4"),
    (0, b"XFSB", "XFS"),
    (65600, b"_BHRfS_M", "Btrfs"),
    (4086, b"SWAPSPACE2", "swap"),
    (4086, b"SWAP-SPACE", "swap"),
    (0, b"LUKS\xba\xbe", "LUKS"),
    (536, b"LVM2 001", "LVM"),
    (512, b"EFI PART", "GPT"),
    (0, b"hsqs", "squashfs"),
    (0, b"\x1f\x8b", "gzip"),
    (0, b"\x7fELF", "ELF"),
    (0, b"SQLite format 3\0", "SQLite"),
    (0, b"\x89PNG\r\n\x1a\n", "PNG"),
    (0, b"%PDF-", "PDF"),
    (0, b"PK\x03\x04", "zip"),
    (510, b"\x55\xaa", "MBR"),
];
