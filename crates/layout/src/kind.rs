//! The kinds of inodes, with numbers of our own that never change.

const TYPE_MASK: u32 = 0o170_000;

/// What an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileKind {
    /// A regular file.
    File = 1,
    /// A directory.
    Directory = 2,
    /// A symbolic link.
    Symlink = 3,
    /// A named pipe.
    Fifo = 4,
    /// A socket's name.
    Socket = 5,
    /// A character device.
    CharDevice = 6,
    /// A block device.
    BlockDevice = 7,
}

impl FileKind {
    /// Every kind, by number.
    pub const ALL: [Self; 7] = [
        Self::File,
        Self::Directory,
        Self::Symlink,
        Self::Fifo,
        Self::Socket,
        Self::CharDevice,
        Self::BlockDevice,
    ];

    /// The number that is stored, 1 to 7.
    #[inline]
    #[must_use]
    pub const fn to_u8(self) -> u8 {
        self as u8
    }

    /// The kind with that stored number.
    #[inline]
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::File,
            2 => Self::Directory,
            3 => Self::Symlink,
            4 => Self::Fifo,
            5 => Self::Socket,
            6 => Self::CharDevice,
            7 => Self::BlockDevice,
            _ => return None,
        })
    }

    /// The type bits of `st_mode` (`S_IFREG`, `S_IFDIR`, ...).
    #[inline]
    #[must_use]
    pub const fn mode_bits(self) -> u32 {
        match self {
            Self::File => 0o100_000,
            Self::Directory => 0o040_000,
            Self::Symlink => 0o120_000,
            Self::Fifo => 0o010_000,
            Self::Socket => 0o140_000,
            Self::CharDevice => 0o020_000,
            Self::BlockDevice => 0o060_000,
        }
    }

    /// The `d_type` of a directory's entry (`DT_REG`, `DT_DIR`, ...): the same bits, lower down.
    #[inline]
    #[must_use]
    pub const fn dirent_type(self) -> u8 {
        let [_, high, ..] = self.mode_bits().to_le_bytes();
        high >> 4
    }

    /// The kind that the type bits of an `st_mode` name.
    #[inline]
    #[must_use]
    pub const fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & TYPE_MASK {
            0o100_000 => Self::File,
            0o040_000 => Self::Directory,
            0o120_000 => Self::Symlink,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            0o020_000 => Self::CharDevice,
            0o060_000 => Self::BlockDevice,
            _ => return None,
        })
    }

    /// `mode` with its type bits replaced by this kind's.
    #[inline]
    #[must_use]
    pub const fn with_mode(self, mode: u32) -> u32 {
        (mode & !TYPE_MASK) | self.mode_bits()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn every_number_is_one_kind_or_none() {
        for number in 0..=u8::MAX {
            let kind = FileKind::from_u8(number);
            assert_eq!(kind.map(FileKind::to_u8), (1..=7).contains(&number).then_some(number));
        }
    }

    #[test]
    fn type_bits_and_permissions_do_not_mix() {
        for kind in FileKind::ALL {
            assert_eq!(FileKind::from_mode(kind.with_mode(0o177_777)), Some(kind));
            assert_eq!(kind.with_mode(0o7777) & 0o7777, 0o7777);
        }
        assert_eq!(FileKind::from_mode(0o644), None);
        assert_eq!(FileKind::from_mode(0o170_644), None);
    }

    /// The type bits are the kernel's, not our own: ask it.
    #[test]
    fn type_bits_are_those_of_stat() {
        let seen = |path: &std::path::Path| {
            let metadata = std::fs::symlink_metadata(path).unwrap();
            (FileKind::from_mode(metadata.mode()), metadata.file_type())
        };
        let (kind, _) = seen(&std::env::current_exe().unwrap());
        assert_eq!(kind, Some(FileKind::File));
        assert_eq!(seen("/".as_ref()).0, Some(FileKind::Directory));
        assert_eq!(seen("/proc/self".as_ref()).0, Some(FileKind::Symlink));
        let (kind, file_type) = seen("/dev/null".as_ref());
        assert!(file_type.is_char_device());
        assert_eq!(kind, Some(FileKind::CharDevice));
        let name = format!("novale-layout-kind-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let listener = UnixListener::bind(&path).unwrap();
        let (kind, _) = seen(&path);
        drop(listener);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(kind, Some(FileKind::Socket));
    }
}
