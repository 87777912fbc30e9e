//! The program's memory that calls read to and write from, and how much of it.

use std::borrow::Cow;

use novale_posix::report::Why;

use crate::base::guard;
use crate::base::sys::{Ret, fail};
use crate::maps::foreign;
use crate::paths::left_to_kernel;

/// Bytes that one call moves at most, as in Linux.
pub(super) const MOST: usize = 0x7fff_f000;
const IOV_MAX: u64 = 1024;

/// Why a call is not done here.
#[derive(Debug, Clone, Copy)]
pub(super) enum Refused {
    /// The error that it returns.
    With(Ret),
    /// The kernel makes this call: it has the file mapped, by another process perhaps, or has a say in it
    /// ([`crate::calls::data::File::left_to_kernel`]).
    ByKernel(Why),
}

impl From<novale_core::Error> for Refused {
    fn from(error: novale_core::Error) -> Self {
        let refused = || Self::With(fail(novale_posix::errno(&error)));
        left_to_kernel(&error).map_or_else(refused, Self::ByKernel)
    }
}

pub(super) fn errno(errno: i32) -> Refused {
    Refused::With(fail(errno))
}

/// What is to be written.
pub(super) type Bytes<'a> = Cow<'a, [u8]>;

pub(super) fn given<'a>(at: u64, len: u64, offset: u64) -> Result<Bytes<'a>, Refused> {
    if !guard::are_a_programs(at, len) {
        return Err(errno(libc::EFAULT));
    }
    let len = checked_length(len, offset)?;
    if foreign::may_go(at, len as u64) {
        return gathered(&[(at, len)]);
    }
    guard::readable_part(at, len).map(Cow::Borrowed).ok_or(errno(libc::EFAULT))
}

fn length(len: u64) -> usize {
    usize::try_from(len).unwrap_or(MOST).min(MOST)
}

/// How much is read at most of what is asked for; no memory is longer than an offset may be.
pub(super) fn checked_length(len: u64, offset: u64) -> Result<usize, Refused> {
    match offset.checked_add(len) {
        Some(end) if i64::try_from(end).is_ok() => Ok(length(len)),
        _ if len > i64::MAX as u64 => Err(errno(libc::EFAULT)),
        _ => Err(errno(libc::EINVAL)),
    }
}

/// The pieces of a vectored call: address and length of each.
pub(super) fn pieces(at: u64, count: u64) -> Result<Vec<(u64, usize)>, Ret> {
    if count > IOV_MAX {
        return Err(fail(libc::EINVAL));
    }
    let mut all = Vec::new();
    let (mut total, mut are_good) = (0usize, true);
    for index in 0..count {
        let [start, len] = guard::load::<[u64; 2]>(at + index * 16).ok_or(fail(libc::EFAULT))?;
        if len > i64::MAX as u64 {
            return Err(fail(libc::EINVAL));
        }
        if !guard::are_a_programs(start, len) {
            are_good = false;
        }
        let len = length(len).min(MOST - total);
        total += len;
        if len > 0 {
            all.push((start, len));
        }
    }
    // Lengths are looked at first, in all of them.
    if are_good { Ok(all) } else { Err(fail(libc::EFAULT)) }
}

pub(super) fn total(pieces: &[(u64, usize)]) -> u64 {
    pieces.iter().map(|(_, len)| *len as u64).sum()
}

/// Room for so many bytes. A program may have none left, of which only the kernel has no need.
pub(super) fn room(bytes: usize) -> Result<Vec<u8>, Refused> {
    let mut room = Vec::new();
    room.try_reserve_exact(bytes).map_err(|_| Refused::ByKernel(Why::Mapped))?;
    Ok(room)
}

/// The bytes of all pieces, in one; those before the first that can't be read.
pub(super) fn gathered<'a>(pieces: &[(u64, usize)]) -> Result<Bytes<'a>, Refused> {
    let mut all = room(pieces.iter().map(|(_, len)| len).sum())?;
    for (at, len) in pieces {
        if guard::append(&mut all, *at, *len) < *len {
            return if all.is_empty() { Err(errno(libc::EFAULT)) } else { Ok(all.into()) };
        }
    }
    Ok(all.into())
}

/// Copies to all pieces what was read, until there is no more, or no room that can be written: how much.
pub(super) fn put_out(pieces: &[(u64, usize)], bytes: &[u8]) -> Result<usize, Refused> {
    let mut rest = bytes;
    for (at, len) in pieces {
        let (piece, after) = rest.split_at(rest.len().min(*len));
        let copied = guard::copy_out(*at, piece);
        if copied < piece.len() {
            let moved = bytes.len() - rest.len() + copied;
            return if moved > 0 { Ok(moved) } else { Err(errno(libc::EFAULT)) };
        }
        rest = after;
    }
    Ok(bytes.len())
}
