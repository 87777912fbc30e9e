//! What the kernel may keep, and for how long.
//!
//! Where the daemon is the pool's only client, every change comes through the kernel, which keeps its
//! own caches right: it drops or updates attributes of both directories and of the victim at create,
//! link, unlink and rename (link count, times), takes the attributes of every reply to `setattr` and
//! `link`, marks size, blocks and times unknown after a write or fallocate, and access time after a
//! read it sent. Names, attributes and pages may therefore stay for a day, and absent names too
//! (compilers look for many).
//!
//! A *shared* file system has other clients, which change it without the kernel: then it may keep
//! nothing at all. Files are read and written past its pages, also by programs that only read; what
//! is mapped goes through pages that `mmap` itself drops first.
//!
//! Two things happen behind the kernel's back, and each has its way out:
//! - A write, truncation or `O_TRUNC` by an unprivileged caller clears set-id bits here, not there.
//!   So the attributes of a file with set-id bits are never kept: the kernel asks again before it
//!   checks permissions, and so before every exec.
//! - A read served from the page cache does not reach us, so the access time stands still. Under
//!   `relatime` it must rise with the first read after a change and once a day: a file whose access
//!   time is due loses its cached pages when it is opened, and its first read comes here. Under
//!   `strictatime` files bypass the page cache.

use std::time::Duration;

use novale_core::{Attr, FileKind};
use novale_posix::SET_ID;

use crate::{OpenRequest, Opened};

/// When access times change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Atime {
    /// At the first read after a change, and once a day.
    #[default]
    Relative,
    /// Never.
    Never,
    /// At every read.
    Always,
}

impl Atime {
    pub(crate) const ALL: [Self; 3] = [Self::Relative, Self::Never, Self::Always];
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const DAY_NS: i64 = 24 * 60 * 60 * 1_000_000_000;

/// How long the kernel may keep what it is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keeps {
    /// The service is not told of every change by the kernel.
    shared: bool,
}

impl Keeps {
    pub(crate) fn new(shared: bool) -> Self {
        Self { shared }
    }

    /// Names, found or absent.
    pub(crate) fn entry(self) -> Duration {
        if self.shared { Duration::ZERO } else { DAY }
    }

    /// Attributes.
    pub(crate) fn attr(self, attr: &Attr) -> Duration {
        let set_id = attr.kind == FileKind::File && attr.mode & SET_ID != 0;
        if set_id || self.shared { Duration::ZERO } else { DAY }
    }
}

/// What an open file of a shared file system may keep.
pub(crate) const SHARED: Opened = Opened { keep_cache: false, direct_io: true };

/// What an open file may keep.
pub(crate) fn opened(atime: Atime, attr: &Attr, open: OpenRequest, now_ns: i64) -> Opened {
    let keep_cache = match atime {
        Atime::Never => true,
        Atime::Relative => !open.read || !relatime_due(attr, now_ns),
        Atime::Always => false,
    };
    Opened { keep_cache, direct_io: open.direct || atime == Atime::Always }
}

/// Whether a read now would change the access time, as `relatime_need_update` in Linux.
fn relatime_due(attr: &Attr, now_ns: i64) -> bool {
    attr.atime_ns <= attr.mtime_ns
        || attr.atime_ns <= attr.ctime_ns
        || now_ns.saturating_sub(attr.atime_ns) >= DAY_NS
}

#[cfg(test)]
mod tests {
    use super::{Atime, DAY_NS, Keeps, OpenRequest, opened};
    use novale_core::{Attr, FileKind, Ino};
    use std::time::Duration;

    fn attr() -> Attr {
        Attr {
            ino: Ino::new(7),
            generation: 1,
            kind: FileKind::File,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime_ns: 20,
            mtime_ns: 10,
            ctime_ns: 10,
            project: 0,
            birth_ns: 0,
        }
    }

    #[test]
    fn attributes_of_set_id_files_are_never_kept() {
        let keeps = Keeps::new(false);
        assert!(keeps.attr(&attr()) > Duration::from_secs(3600));
        assert_eq!(keeps.attr(&Attr { mode: 0o4755, ..attr() }), Duration::ZERO);
        assert_eq!(keeps.attr(&Attr { mode: 0o2644, ..attr() }), Duration::ZERO);
        let directory = Attr { kind: FileKind::Directory, mode: 0o2755, ..attr() };
        assert!(keeps.attr(&directory) > Duration::from_secs(3600));
        let shared = Keeps::new(true);
        assert_eq!((shared.attr(&directory), shared.entry()), (Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn pages_are_dropped_only_when_a_read_must_be_seen() {
        let open = |read| OpenRequest { read, ..OpenRequest::default() };
        let keeps = |atime, attr: Attr, read, now| opened(atime, &attr, open(read), now).keep_cache;
        assert!(keeps(Atime::Relative, attr(), true, 30));
        assert!(!keeps(Atime::Relative, Attr { mtime_ns: 20, ..attr() }, true, 30));
        assert!(keeps(Atime::Relative, Attr { mtime_ns: 20, ..attr() }, false, 30));
        assert!(!keeps(Atime::Relative, attr(), true, 20 + DAY_NS));
        assert!(keeps(Atime::Never, Attr { ctime_ns: 99, ..attr() }, true, 20 + DAY_NS));
        assert!(opened(Atime::Always, &attr(), open(true), 30).direct_io);
    }
}
