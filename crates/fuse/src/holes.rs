//! Where a file has data, and where it has none.

use std::ops::Range;

use novale_core::{Error, Fs, Ino, Result, Seek};

/// The hole that a seek has passed over, or found.
pub(crate) fn hole_of(
    fs: &Fs,
    (ino, offset, what): (Ino, u64, Seek),
    found: &Result<u64>,
) -> Result<Option<Range<u64>>> {
    let hole = match (what, found) {
        (Seek::Data, Ok(at)) => offset..*at,
        (Seek::Data, Err(Error::NoSuchOffset)) => offset..fs.getattr(ino)?.size,
        (Seek::Hole, Ok(at)) => match data_from(fs, ino, *at)? {
            Some(next) => *at..next,
            None => *at..fs.getattr(ino)?.size,
        },
        (Seek::Hole | Seek::Data, Err(_)) => return Ok(None),
    };
    Ok(Some(hole).filter(|hole| !hole.is_empty()))
}

/// Where the next data lies from an offset on.
pub(crate) fn data_from(fs: &Fs, ino: Ino, offset: u64) -> Result<Option<u64>> {
    match fs.seek(ino, offset, Seek::Data) {
        Err(Error::NoSuchOffset) => Ok(None),
        at => at.map(Some),
    }
}
