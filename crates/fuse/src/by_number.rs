//! `.novale`, a directory in the root of a shared mount in which inodes are found by number.
//!
//! A program that has a file open without the kernel, and then does what only the kernel can do with
//! it (pass the descriptor on, lock or map the file), opens `.novale/INO.GENERATION` for that: the
//! same inode, whatever its names are by then, and whether it has one. After a colon the name may go on
//! with anything: the kernel shows it where it shows what a descriptor leads to. The directory is the
//! daemon's user's alone, as the arena is, since names and their permissions are passed by. It is on no
//! media and in no listing; nothing can be made or changed in it, and what is removed is the kernel's
//! memory of a name alone. A directory is found so once it was removed: the kernel allows it one place only.

use novale_core::{Attr, Ctx, FileKind, Ino};
use novale_layout::INO_LIMIT;
use novale_posix::by_number::{self, parse};
use novale_posix::hold_same;

use crate::gate::Pass;
use crate::novale::Novale;
use crate::service::{Errno, Listed, Reply};

/// The number, which no inode can have.
const INO: Ino = Ino::new(INO_LIMIT);

/// Whether an inode's number is the directory's.
pub(crate) fn is_directory(ino: Ino) -> bool {
    ino == INO
}

/// The directory itself.
pub(crate) fn attr() -> Attr {
    Attr {
        ino: INO,
        generation: 0,
        kind: FileKind::Directory,
        mode: 0o700,
        nlink: 2,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        rdev: 0,
        project: 0,
        size: 0,
        blocks: 0,
        atime_ns: 0,
        mtime_ns: 0,
        ctime_ns: 0,
        birth_ns: 0,
    }
}

/// Removes a name: the inode stays what it is, and the kernel drops the name, which would keep the inode
/// for it long after the file was closed and removed.
pub(crate) fn forget(name: &[u8]) -> Reply<()> {
    if parse(name).is_some() { Ok(()) } else { Err(Errno(libc::EPERM)) }
}

impl Novale {
    /// Whether an inode is the directory of inodes by number.
    pub(crate) fn is_virtual(&self, ino: Ino) -> bool {
        self.settings.shared && ino == INO
    }

    /// Whether a name leads to it.
    pub(crate) fn is_named_virtual(&self, parent: Ino, name: &[u8]) -> bool {
        let here = name == b"." && parent == INO;
        self.settings.shared && (by_number::is_directory(parent, name) || here)
    }

    /// Refuses what can't be done to it.
    pub(crate) fn refuse_virtual(&self, inos: &[Ino]) -> Reply<()> {
        if inos.iter().any(|ino| self.is_virtual(*ino)) { Err(Errno(libc::EPERM)) } else { Ok(()) }
    }

    /// Refuses what can't be done to its name, or in it.
    pub(crate) fn refuse_name(&self, parent: Ino, name: &[u8]) -> Reply<()> {
        if self.is_named_virtual(parent, name) {
            return Err(Errno(libc::EPERM));
        }
        self.refuse_virtual(&[parent])
    }

    /// Refuses to make its name, also where the mount has no such directory, or what can't be done in it.
    pub(crate) fn refuse_new_name(&self, parent: Ino, name: &[u8]) -> Reply<()> {
        self.done(by_number::refuse_new(parent, name))?;
        self.refuse_name(parent, name)
    }

    /// Lets a request on inodes in, once what was written back to them is done.
    pub(crate) fn enter(&self, inos: &[Ino]) -> Reply<Pass<'_>> {
        self.late.wait(inos);
        self.enter_beside_late(inos)
    }

    /// Lets what is written back to inodes in.
    pub(crate) fn enter_beside_late(&self, inos: &[Ino]) -> Reply<Pass<'_>> {
        self.refuse_virtual(inos)?;
        self.gate.enter()
    }

    /// Lets a request that opens an inode in.
    pub(crate) fn enter_to_open(&self, inos: &[Ino]) -> Reply<Pass<'_>> {
        self.refuse_virtual(inos)?;
        self.gate.enter_to_open()
    }

    /// Lets a request that takes a name away in.
    pub(crate) fn enter_name(&self, parent: Ino, name: &[u8]) -> Reply<Pass<'_>> {
        self.refuse_name(parent, name)?;
        self.gate.enter()
    }

    /// Lets a request that makes a name in.
    pub(crate) fn enter_new_name(&self, parent: Ino, name: &[u8]) -> Reply<Pass<'_>> {
        self.refuse_new_name(parent, name)?;
        self.gate.enter()
    }

    /// Finds an inode by number, and holds it for the kernel.
    pub(crate) fn lookup_by_number(&self, ctx: &Ctx, name: &[u8]) -> Reply<Option<Attr>> {
        if name == b".." {
            let root = self.done(self.fs.getattr(Ino::ROOT))?;
            return self.held(ctx, &root).map(Some);
        }
        let Some((ino, generation)) = parse(name) else { return Ok(None) };
        let Some(held) = self.done(hold_same(&self.fs, ctx, ino, generation))? else {
            return Ok(None);
        };
        if held.kind == FileKind::Directory && held.nlink != 0 {
            self.give_back(ctx, ino, 1);
            return Ok(None);
        }
        Ok(Some(held))
    }
}

/// What is listed in the directory.
pub(crate) fn list(after: u64, take: &mut dyn FnMut(&Listed) -> bool) {
    let dots: [(u64, Ino, &[u8]); 2] = [(1, INO, b"."), (2, Ino::ROOT, b"..")];
    for (cookie, ino, name) in dots.into_iter().filter(|(cookie, ..)| *cookie > after) {
        let kind = FileKind::Directory;
        if !take(&Listed { cookie, ino, generation: 0, kind, name: name.to_vec() }) {
            return;
        }
    }
}
