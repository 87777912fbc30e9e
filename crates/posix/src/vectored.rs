//! Several buffers as one operation: gathered before a write, scattered after a read.

use std::io::{IoSlice, IoSliceMut};

use novale_core::Error as FsError;

use crate::Result;

/// So many zeros, in memory that is not touched before they are written to.
pub(crate) fn zeros(len: usize) -> Result<Vec<u8>> {
    drop(room(Some(len))?);
    Ok(vec![0; len])
}

/// Room for `len` bytes, which a caller may have made more than there is.
fn room(len: Option<usize>) -> Result<Vec<u8>> {
    let len = len.filter(|len| isize::try_from(*len).is_ok());
    let len = len.ok_or(FsError::Invalid("more than 2^63 - 1 bytes"))?;
    let mut all = Vec::new();
    all.try_reserve_exact(len).map_err(|_| FsError::NoMemory)?;
    Ok(all)
}

fn total(lens: impl Iterator<Item = usize>) -> Option<usize> {
    lens.into_iter().try_fold(0usize, usize::checked_add)
}

/// Hands all buffers to one write.
pub(crate) fn write(
    bufs: &[IoSlice<'_>],
    write: impl FnOnce(&[u8]) -> Result<usize>,
) -> Result<usize> {
    let mut filled = bufs.iter().filter(|buf| !buf.is_empty());
    if let (Some(only), None) = (filled.next(), filled.next()) {
        return write(only);
    }
    let mut all = room(total(bufs.iter().map(|buf| buf.len())))?;
    for buf in bufs {
        all.extend_from_slice(buf);
    }
    write(&all)
}

/// Fills the buffers, one after the other, from one read.
pub(crate) fn read(
    bufs: &mut [IoSliceMut<'_>],
    read: impl FnOnce(&mut [u8]) -> Result<usize>,
) -> Result<usize> {
    let mut wanted = bufs.iter_mut().filter(|buf| !buf.is_empty());
    if let (Some(only), None) = (wanted.next(), wanted.next()) {
        return read(only);
    }
    let len = total(bufs.iter().map(|buf| buf.len()));
    let mut all = room(len)?;
    all.resize(len.unwrap_or(0), 0);
    let bytes = read(&mut all)?;
    let mut rest = all.get(..bytes).unwrap_or_default();
    for buf in bufs {
        let (now, later) = rest.split_at(rest.len().min(buf.len()));
        if let Some(start) = buf.get_mut(..now.len()) {
            start.copy_from_slice(now);
        }
        rest = later;
    }
    Ok(bytes)
}
