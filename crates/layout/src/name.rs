//! Names of directory entries.

use std::fmt;

use crate::LayoutError;
use crate::error::check;

/// The longest name in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// A name of 1 to 255 bytes, none of them NUL or a slash, kept inline.
#[derive(Clone, Copy)]
pub struct Name {
    bytes: [u8; NAME_BYTES_MAX],
    len: u8,
}

impl Name {
    /// Takes a name.
    ///
    /// # Errors
    /// [`LayoutError::Field`] when it is empty, longer than 255 bytes, or holds a NUL or a slash.
    pub fn new(name: &[u8]) -> Result<Self, LayoutError> {
        check_name(name)?;
        let mut bytes = [0; NAME_BYTES_MAX];
        for (to, from) in bytes.iter_mut().zip(name) {
            *to = *from;
        }
        let len = u8::try_from(name.len()).unwrap_or(u8::MAX);
        Ok(Self { bytes, len })
    }

    /// The bytes of the name.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes
            .get(..usize::from(self.len))
            .unwrap_or(&self.bytes)
    }

    /// The length in bytes, 1 to 255.
    #[inline]
    #[must_use]
    pub fn len_u8(&self) -> u8 {
        self.len
    }
}

/// Refuses what is no name.
pub(crate) fn check_name(name: &[u8]) -> Result<(), LayoutError> {
    let len = name.len();
    let len_ok = (1..=NAME_BYTES_MAX).contains(&len);
    check(
        len_ok,
        "name",
        "length",
        "1 to 255",
        u64::try_from(len).unwrap_or(u64::MAX),
    )?;
    match name.iter().find(|&&byte| byte == 0 || byte == b'/') {
        None => Ok(()),
        Some(&byte) => check(
            false,
            "name",
            "byte",
            "neither NUL nor a slash",
            u64::from(byte),
        ),
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Name {}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({:?})", self.as_bytes().escape_ascii().to_string())
    }
}
