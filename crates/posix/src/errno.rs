//! The one table from the core's errors to the numbers that system calls return.

use novale_core::Error;
use novale_pm::PmError;

/// The errno that stands for an error of the core, positive as in `<errno.h>`.
///
/// Damage is `EUCLEAN`, as in ext4 and XFS, so that it is told from a failing device (`EIO`).
#[must_use]
pub fn errno(error: &Error) -> i32 {
    match error {
        Error::NotFound => libc::ENOENT,
        Error::Exists => libc::EEXIST,
        Error::NotDirectory => libc::ENOTDIR,
        Error::IsDirectory => libc::EISDIR,
        Error::NotEmpty => libc::ENOTEMPTY,
        Error::InvalidName | Error::Invalid(_) => libc::EINVAL,
        Error::NameTooLong => libc::ENAMETOOLONG,
        Error::NotPermitted(_) => libc::EPERM,
        Error::Denied(_) => libc::EACCES,
        Error::TooLarge => libc::EFBIG,
        Error::TooManyLinks => libc::EMLINK,
        Error::NoSpace => libc::ENOSPC,
        Error::QuotaExceeded => libc::EDQUOT,
        Error::OtherTree => libc::EXDEV,
        Error::NoMemory => libc::ENOMEM,
        Error::ReadOnly => libc::EROFS,
        Error::Stale => libc::ESTALE,
        Error::TooManyClients => libc::EUSERS,
        Error::Mapped | Error::Pinned | Error::OthersLive => libc::EBUSY,
        Error::NoSuchOffset => libc::ENXIO,
        Error::NoAttribute => libc::ENODATA,
        Error::NameRange => libc::ERANGE,
        Error::ValueTooLong => libc::E2BIG,
        Error::Unsupported(_) => libc::EOPNOTSUPP,
        Error::Damaged { .. } | Error::Unrecoverable { .. } | Error::BadPool(_) => libc::EUCLEAN,
        Error::Closed => libc::ESHUTDOWN,
        // And what later versions of the core may add.
        Error::Lost(_) | Error::BadArena(_) | _ => libc::EIO,
    }
}

/// The errno that stands for why slots can't be opened, positive as in `<errno.h>`.
pub(crate) fn pm_errno(error: &PmError) -> i32 {
    match error {
        PmError::Missing { .. } => libc::ENOENT,
        PmError::Permission { .. } => libc::EACCES,
        PmError::InUse { .. } => libc::EBUSY,
        PmError::NoSpace { .. } => libc::ENOSPC,
        PmError::NotASlot { .. }
        | PmError::NotDax { .. }
        | PmError::TooSmall { .. }
        | PmError::TooLarge { .. }
        | PmError::Duplicate { .. }
        | PmError::SlotCount { .. } => libc::EINVAL,
        PmError::Holes { source, .. }
        | PmError::Unmappable { source, .. }
        | PmError::Io { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        PmError::WriteBackUnsupported { .. } => libc::EOPNOTSUPP,
        // And what later versions may add.
        _ => libc::EIO,
    }
}
