//! Positions: where a seek leads, and where a write goes.

use novale_core::{Ctx, Error, Fs, Ino, Result, Seek};

/// What a seek counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    /// The start of the file.
    Start(u64),
    /// The present position.
    Current(i64),
    /// The end of the file.
    End(i64),
    /// The next stored byte at or after an offset.
    Data(u64),
    /// The next hole at or after an offset.
    Hole(u64),
}

impl Whence {
    /// What a call of lseek(2) with these arguments asks for.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an unknown `whence` and a position before the start;
    /// [`Error::NoSuchOffset`] for data or a hole there.
    pub fn of_call(given: i64, whence: i32) -> Result<Self> {
        let start = u64::try_from(given);
        match whence {
            libc::SEEK_SET => Ok(Self::Start(start.map_err(|_| BEFORE_START)?)),
            libc::SEEK_CUR => Ok(Self::Current(given)),
            libc::SEEK_END => Ok(Self::End(given)),
            libc::SEEK_DATA => Ok(Self::Data(start.map_err(|_| Error::NoSuchOffset)?)),
            libc::SEEK_HOLE => Ok(Self::Hole(start.map_err(|_| Error::NoSuchOffset)?)),
            _ => Err(Error::Invalid("no such place to seek from")),
        }
    }
}

const BEFORE_START: Error = Error::Invalid("a position before the start or above 2^63 - 1");

/// Where a seek from `position` leads in a file.
///
/// # Errors
/// [`Error::Invalid`] before the start; those of [`Fs::seek`].
pub fn sought(fs: &Fs, ino: Ino, position: u64, whence: Whence) -> Result<u64> {
    let to = match whence {
        Whence::Start(to) => Some(to),
        Whence::Current(by) => position.checked_add_signed(by),
        Whence::End(by) => fs.getattr(ino)?.size.checked_add_signed(by),
        Whence::Data(from) => Some(fs.seek(ino, from, Seek::Data)?),
        Whence::Hole(from) => Some(fs.seek(ino, from, Seek::Hole)?),
    };
    to.filter(|to| i64::try_from(*to).is_ok()).ok_or(BEFORE_START)
}

/// Where a write goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// To an offset in bytes.
    Offset(u64),
    /// After what the file holds at that moment (`O_APPEND`, `RWF_APPEND`).
    End,
}

/// What a write has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// How many bytes.
    pub bytes: usize,
    /// Where they end in the file, which is where a position goes.
    pub end: u64,
}

/// Writes bytes to a file.
///
/// # Errors
/// Those of [`Fs::write`] and [`Fs::append`].
pub fn write(fs: &Fs, ctx: &Ctx, ino: Ino, to: Target, bytes: &[u8]) -> Result<Written> {
    let (offset, bytes) = match to {
        Target::Offset(offset) => (offset, fs.write(ctx, ino, offset, bytes)?),
        Target::End => (fs.append(ctx, ino, bytes)?, bytes.len()),
    };
    Ok(Written { bytes, end: offset + bytes as u64 })
}

/// The same, durable when it returns in any mode, with all that was written to the file before (`O_DSYNC`,
/// `RWF_DSYNC`).
///
/// # Errors
/// Those of [`Fs::write_durable`].
pub fn write_durable(fs: &Fs, ctx: &Ctx, ino: Ino, to: Target, bytes: &[u8]) -> Result<Written> {
    let offset = match to {
        Target::Offset(offset) => Some(offset),
        Target::End => None,
    };
    let offset = fs.write_durable(ctx, ino, offset, bytes)?;
    Ok(Written { bytes: bytes.len(), end: offset + bytes.len() as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_lseek_is_told_or_refused() {
        let told = |given, whence| Whence::of_call(given, whence).unwrap();
        assert_eq!(told(7, libc::SEEK_SET), Whence::Start(7));
        assert_eq!(told(-7, libc::SEEK_CUR), Whence::Current(-7));
        assert_eq!(told(-7, libc::SEEK_END), Whence::End(-7));
        assert_eq!(told(0, libc::SEEK_DATA), Whence::Data(0));
        assert_eq!(told(9, libc::SEEK_HOLE), Whence::Hole(9));
        let refused = |given, whence| crate::errno(&Whence::of_call(given, whence).unwrap_err());
        assert_eq!(refused(-1, libc::SEEK_SET), libc::EINVAL);
        assert_eq!(refused(-1, libc::SEEK_DATA), libc::ENXIO);
        assert_eq!(refused(-1, libc::SEEK_HOLE), libc::ENXIO);
        assert_eq!(refused(0, 99), libc::EINVAL);
    }
}
