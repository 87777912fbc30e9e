//! The kernel's integers to the core's types and back: what every transport needs.

use novale_core::{Fallocate, FileKind, RenameMode, Seek, XattrMode};

use crate::{Errno, Reply};

/// The kind in the type bits of a mode, as `mknod` gets it.
pub(crate) fn kind_of_mode(mode: u32) -> Reply<FileKind> {
    let kind =
        if mode & libc::S_IFMT == 0 { Some(FileKind::File) } else { FileKind::from_mode(mode) };
    kind.ok_or(Errno(libc::EINVAL))
}

/// The flags of `renameat2`. Whiteouts belong to overlay file systems' lower layers.
pub(crate) fn rename_mode(flags: u32) -> Reply<RenameMode> {
    match flags {
        0 => Ok(RenameMode::Replace),
        libc::RENAME_NOREPLACE => Ok(RenameMode::NoReplace),
        libc::RENAME_EXCHANGE => Ok(RenameMode::Exchange),
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// The mode of `fallocate`.
pub(crate) fn fallocate_mode(mode: i32) -> Reply<Fallocate> {
    novale_posix::fallocate_mode(mode).map_err(|error| Errno(novale_posix::errno(&error)))
}

/// The `whence` of an `lseek` that the kernel does not answer itself.
pub(crate) fn seek_kind(whence: i32) -> Reply<Seek> {
    match whence {
        libc::SEEK_DATA => Ok(Seek::Data),
        libc::SEEK_HOLE => Ok(Seek::Hole),
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// The flags of `setxattr`.
pub(crate) fn xattr_mode(flags: i32) -> Reply<XattrMode> {
    novale_posix::xattr_mode(flags).map_err(|error| Errno(novale_posix::errno(&error)))
}
