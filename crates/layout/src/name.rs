//! Names of directory entries.

use std::fmt;

use crate::LayoutError;
use crate::error::check;

/// The longest name in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// A name of 1 to 255 bytes, none of them NUL or a slash, neither `.` nor `..`, kept inline.
#[derive(Clone, Copy)]
pub struct Name {
    bytes: [u8; NAME_BYTES_MAX],
    len: u8,
}

impl Name {
    /// Takes a name.
    ///
    /// # Errors
    /// [`LayoutError::Field`] when it is empty, longer than 255 bytes, holds a NUL or a slash, or is
    /// `.` or `..`.
    pub fn new(name: &[u8]) -> Result<Self, LayoutError> {
        check_name(name)?;
        let mut bytes = [0; NAME_BYTES_MAX];
        let (text, _) = bytes.split_at_mut(name.len());
        text.copy_from_slice(name);
        let len = u8::try_from(name.len()).unwrap_or(u8::MAX);
        Ok(Self { bytes, len })
    }

    /// The bytes of the name.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&self.bytes)
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
    check(len_ok, "name", "length", "1 to 255", u64::try_from(len).unwrap_or(u64::MAX))?;
    let refused = name.iter().find(|byte| matches!(byte, 0 | b'/'));
    let byte = refused.copied().unwrap_or(0).into();
    check(refused.is_none(), "name", "byte", "neither NUL nor a slash", byte)?;
    let dots = matches!(name, b"." | b"..");
    check(!dots, "name", "dots", "neither . nor ..", u64::try_from(len).unwrap_or(u64::MAX))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_1_to_255_bytes_of_anything_but_nul_and_slash() {
        assert_eq!(Name::new(b"a").unwrap().as_bytes(), b"a");
        let longest = [0xff; NAME_BYTES_MAX];
        assert_eq!(Name::new(&longest).unwrap().as_bytes(), longest);
        assert_eq!(Name::new(b"...").unwrap().as_bytes(), b"...");
        for (name, field) in [
            (&b""[..], "length"),
            (&[b'x'; 256], "length"),
            (b"a/b", "byte"),
            (b"a\0", "byte"),
            (b".", "dots"),
            (b"..", "dots"),
        ] {
            let error = Name::new(name).unwrap_err();
            assert!(matches!(error, LayoutError::Field { field: f, .. } if f == field), "{error}");
        }
    }

    #[test]
    fn names_are_equal_by_their_bytes() {
        assert_eq!(Name::new(b"abc").unwrap(), Name::new(b"abc").unwrap());
        assert_ne!(Name::new(b"abc").unwrap(), Name::new(b"ab").unwrap());
    }
}
