//! The integers that system calls take, as the core's types.

use novale_core::{Error, Fallocate, XattrMode};

/// What the flags of `fallocate(2)` ask for.
///
/// # Errors
/// [`Error::Unsupported`] for what ext4 and XFS refuse so: flags that do not go together (a hole that
/// may change the size, a collapse that may not), and those not known here, such as
/// `FALLOC_FL_UNSHARE_RANGE`, since no two files share pages.
pub fn fallocate_mode(flags: i32) -> Result<Fallocate, Error> {
    const KEEP_SIZE: i32 = libc::FALLOC_FL_KEEP_SIZE;
    const PUNCH_HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP_SIZE;
    const ZERO_KEEP_SIZE: i32 = libc::FALLOC_FL_ZERO_RANGE | KEEP_SIZE;
    match flags {
        0 => Ok(Fallocate::Extend),
        KEEP_SIZE => Ok(Fallocate::KeepSize),
        PUNCH_HOLE => Ok(Fallocate::PunchHole),
        libc::FALLOC_FL_ZERO_RANGE => Ok(Fallocate::ZeroRange),
        ZERO_KEEP_SIZE => Ok(Fallocate::ZeroRangeKeepSize),
        libc::FALLOC_FL_COLLAPSE_RANGE => Ok(Fallocate::CollapseRange),
        libc::FALLOC_FL_INSERT_RANGE => Ok(Fallocate::InsertRange),
        _ => Err(Error::Unsupported("these flags of fallocate")),
    }
}

/// What the flags of `setxattr(2)` ask for.
///
/// # Errors
/// [`Error::Invalid`] for flags that there are not.
pub fn xattr_mode(flags: i32) -> Result<XattrMode, Error> {
    const BOTH: i32 = libc::XATTR_CREATE | libc::XATTR_REPLACE;
    match flags {
        0 => Ok(XattrMode::Any),
        libc::XATTR_CREATE => Ok(XattrMode::Create),
        libc::XATTR_REPLACE => Ok(XattrMode::Replace),
        BOTH => Ok(XattrMode::Neither),
        _ => Err(Error::Invalid("these flags of setxattr")),
    }
}
