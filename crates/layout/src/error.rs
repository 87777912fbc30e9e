//! The one error of this crate: what was decoded, what was expected, what was found.

/// Why bytes were refused.
///
/// It is `Copy` and holds no heap memory: refusing a torn line is ordinary work in recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Never written, or erased: every byte is zero, or in a line of an inode every one but for the
    /// checksum, which is right. This is no damage.
    #[error("blank: never written, or erased")]
    Blank,
    /// The bytes are torn, damaged, or belong to another pool, inode, generation or place.
    #[error("{structure}: checksum: expected {expected:#010x}, found {found:#010x}")]
    Checksum {
        /// The structure that was decoded.
        structure: &'static str,
        /// The checksum of the bytes.
        expected: u32,
        /// The checksum that is stored with them.
        found: u32,
    },
    /// A field holds what the format does not allow.
    #[error("{structure}: {field}: expected {expected}, found {found:#x}")]
    Field {
        /// The structure that was decoded.
        structure: &'static str,
        /// Its field.
        field: &'static str,
        /// What the format allows there.
        expected: &'static str,
        /// The value that is stored.
        found: u64,
    },
}

/// Refuses a field unless `ok`.
#[inline]
pub(crate) fn check(
    ok: bool,
    structure: &'static str,
    field: &'static str,
    expected: &'static str,
    found: u64,
) -> Result<(), LayoutError> {
    if ok { Ok(()) } else { Err(LayoutError::Field { structure, field, expected, found }) }
}

/// Refuses a structure whose stored checksum is not the one of its bytes.
#[inline]
pub(crate) fn check_crc(
    structure: &'static str,
    expected: u32,
    found: u32,
) -> Result<(), LayoutError> {
    if expected == found {
        Ok(())
    } else {
        Err(LayoutError::Checksum { structure, expected, found })
    }
}
