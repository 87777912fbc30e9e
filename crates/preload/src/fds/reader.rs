//! A file that is open in the kernel for this library alone, to be read, where the program may have no descriptor of it.

use novale_core::Ino;
use novale_posix::by_number;

use crate::base::sys::sys;
use crate::fds::{kernel, locks};
use crate::mounts;
use crate::numbers;

/// A file that is open for reading through the mount, where the program may have no descriptor of it any more.
/// To be used within `limits::opening`.
pub(crate) struct Reader {
    file: (usize, Ino),
    fd: u32,
}

impl Reader {
    pub(crate) fn open((mount, ino): (usize, Ino), generation: u32) -> Option<Self> {
        let target = &mounts::all().get(mount)?.target;
        let name = by_number::name(ino, generation);
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let fd = kernel::open_by_number(
            (mount, ino),
            target,
            name.as_bytes(),
            (flags, kernel::is_there),
        );
        let fd = u32::try_from(fd).ok()?;
        kernel::know_length_of(fd.cast_signed(), (mount, ino));
        Some(Self { file: (mount, ino), fd })
    }

    pub(crate) fn is_of(&self, mount: usize, ino: Ino) -> bool {
        self.file == (mount, ino)
    }

    pub(crate) fn fd(&self) -> i32 {
        self.fd.cast_signed()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // A thread that has its first lock on the file does so before or after this.
        let _taking = kernel::TAKING.lock();
        if !locks::keeps(self.file, self.fd) {
            sys!(libc::SYS_close, self.fd);
        }
        numbers::freed_any();
    }
}
