//! What the kernel asks of a file system, as plain calls with plain results.
//!
//! Transports know the FUSE protocol and call this; implementations know the file system and never
//! see a protocol. Names and data are bytes; inode 1 is the root; an inode that a call returns as an
//! entry is held until [`Service::forget`] gives it back.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use novale_core::{
    Attr, Fallocate, FileKind, Ino, Judged, NewInode, Place, RenameMode, RoomTurn, Seek, Short,
    StatFs, XattrMode,
};

use crate::late::Late;
use crate::stores::OldStores;

/// An errno, positive as in `<errno.h>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

/// The result of a request.
pub type Reply<T> = Result<T, Errno>;

/// On whose behalf the kernel asks.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    /// File system user.
    pub uid: u32,
    /// File system group.
    pub gid: u32,
    /// The thread's number, by which its other groups are found.
    pub pid: u32,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// When the request is served.
    Now,
    /// Nanoseconds since 1970.
    At(i64),
}

/// Attributes to set; `None` leaves one as it is. All `None` is `chown(-1, -1)`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Changes {
    /// Permission, set-id and sticky bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<Time>,
    /// Modification time.
    pub mtime: Option<Time>,
    /// The caller has no right to keep set-id bits alive by a change of the length (`CAP_FSETID`).
    pub kills_set_id: bool,
}

/// What is read.
#[derive(Debug, Clone, Copy)]
pub struct ReadFrom {
    /// The file.
    pub ino: Ino,
    /// Whether it is an access, by the mount's rule for those; not of what is open with `O_NOATIME`.
    pub is_access: bool,
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "flags of open(2)")]
pub struct OpenRequest {
    /// For reading.
    pub read: bool,
    /// For writing, where every write can come to the service as the caller made it: through the page
    /// cache the kernel may cut one in two, at a page that is not cached.
    pub direct: bool,
    /// For reading and writing, so that a mapping of it can be stored to.
    pub stores: bool,
    /// Emptied on the way (`O_TRUNC`).
    pub truncate: bool,
    /// Who empties it has no right to keep set-id bits alive (`CAP_FSETID`).
    pub kills_set_id: bool,
    /// For `create`: it must be new (`O_EXCL`).
    pub exclusive: bool,
}

impl OpenRequest {
    /// Whether the file can be mapped to be stored to, and what is written to it goes past the pages
    /// of that mapping.
    #[must_use]
    pub fn stores_beside(&self) -> bool {
        self.stores && self.direct
    }

    /// Whether it asks for no more of a file than the owner's bits allow its owner, who it is.
    #[must_use]
    pub(crate) fn is_an_owners(self, uid: u32, attr: &Attr) -> bool {
        let writes = self.stores || !self.read || self.truncate;
        let wanted = if self.read { 0o400 } else { 0 } | if writes { 0o200 } else { 0 };
        attr.kind == FileKind::File && attr.uid == uid && attr.mode & wanted == wanted
    }
}

/// What the kernel may do with an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// Pages cached from an earlier open stay valid.
    pub keep_cache: bool,
    /// Every read and write comes to the service.
    pub direct_io: bool,
}

/// What a seek of data or a hole has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sought {
    /// Where it is.
    At(u64),
    /// A hole of which a mapping may have stored to pages: the kernel has to drop those first.
    After(Range<u64>),
}

/// One entry of a directory listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Where the next listing goes on.
    pub cookie: u64,
    /// The inode.
    pub ino: Ino,
    /// That inode's generation.
    pub generation: u32,
    /// That inode's kind.
    pub kind: FileKind,
    /// The name.
    pub name: Vec<u8>,
}

/// A file system that the kernel can ask. Calls come from many threads at once.
///
/// # Errors
/// Every call fails with the errno that the system call is to return: those of POSIX, and
/// `ESHUTDOWN` once the service is being shut down.
#[expect(clippy::missing_errors_doc, reason = "said once for all calls")]
pub trait Service: Send + Sync + 'static {
    /// Finds a name and holds its inode; `None`: no such name, which the kernel may remember.
    /// `.` and `..` are found too, also below what is no directory (`.`): file handles need it.
    fn lookup(&self, parent: Ino, name: &[u8]) -> Reply<Option<Attr>>;
    /// Gives back that many holds.
    fn forget(&self, ino: Ino, holds: u64);
    /// Reads attributes.
    fn getattr(&self, ino: Ino) -> Reply<Attr>;
    /// Changes attributes, and clears set-id bits where such a change must.
    fn setattr(&self, caller: Caller, ino: Ino, changes: &Changes) -> Reply<Attr>;
    /// Reads a symbolic link.
    fn readlink(&self, ino: Ino) -> Reply<Vec<u8>>;
    /// Makes an inode of any kind and holds it. The umask counts where the directory has no default
    /// ACL.
    fn make(&self, parent: Ino, name: &[u8], new: &NewInode<'_>, umask: u32) -> Reply<Attr>;
    /// Makes a file unless it exists, holds it and opens it; with a umask as for [`Service::make`].
    fn create(
        &self,
        parent: Ino,
        name: &[u8],
        new: (&NewInode<'_>, u32),
        open: OpenRequest,
    ) -> Reply<(Attr, Opened)>;
    /// Gives an inode one more name and holds it once more.
    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Reply<Attr>;
    /// Removes a name that is no directory's.
    fn unlink(&self, parent: Ino, name: &[u8], judged: Judged) -> Reply<()>;
    /// Removes an empty directory.
    fn rmdir(&self, parent: Ino, name: &[u8], judged: Judged) -> Reply<()>;
    /// Renames.
    fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        judged: [Judged; 2],
    ) -> Reply<()>;
    /// Opens a file.
    fn open(&self, caller: Caller, ino: Ino, open: OpenRequest) -> Reply<Opened>;
    /// Opens a directory, under a number that its readers name until [`Service::closedir`].
    fn opendir(&self, ino: Ino) -> Reply<u64>;
    /// A directory that was opened is so no longer.
    fn closedir(&self, handle: u64);
    /// Fills `buf` from `offset`; less only at the end of the file.
    fn read(&self, file: ReadFrom, offset: u64, buf: &mut [u8]) -> Reply<usize>;
    /// The same for a page of the kernel's cache.
    fn read_cached(&self, file: ReadFrom, offset: u64, buf: &mut [u8]) -> Reply<usize>;
    /// Writes; a writer is named where he may not keep set-id bits alive.
    fn write(
        &self,
        without_fsetid: Option<Caller>,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
    ) -> Reply<usize>;
    /// Writes pages of the kernel's cache back that a mapping has stored to; a writer is named as in
    /// [`Service::write`]. What was written since the kernel read them stays.
    fn write_back(
        &self,
        without_fsetid: Option<Caller>,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
    ) -> Reply<usize>;
    /// What is written back of a shared file system, and when it is answered.
    fn late(&self) -> &Arc<Late>;
    /// Whether every call has made its effect durable when it returns: fsync has nothing to do then,
    /// and the kernel is told so once instead of asking each time.
    fn durable_at_return(&self) -> bool;
    /// Whether others than the kernel change the file system, so that the kernel may keep nothing that
    /// it was told.
    fn is_shared(&self) -> bool;
    /// The kernel reads a page of a mapping of a shared file system's file. False while programs have
    /// the file's own pages mapped; `asks` has them give way.
    fn maps(&self, ino: Ino, asks: bool) -> Reply<bool>;
    /// Whether a file that the kernel has mapped to run it may be run: not while a program has it open
    /// for writing that the kernel knows nothing of.
    fn may_run(&self, ino: Ino) -> Reply<()>;
    /// What [`Service::wait_for_mappings`] is to be told, before [`Service::maps`] is asked.
    fn mappings_turn(&self) -> u32;
    /// Sleeps until somebody has given way since `turn`; `timeout` at most.
    fn wait_for_mappings(&self, turn: u32, timeout: Duration);
    /// What [`Service::wait_for_room`] is to be told, before what found no room is tried again; none
    /// where no room is on its way.
    fn room_turn(&self) -> Option<RoomTurn>;
    /// Sleeps until a removed file is gone that somebody held; `timeout` at most.
    fn wait_for_room(&self, turn: RoomTurn, short: Short, timeout: Duration);
    /// A file that was opened so is open no longer, and what was mapped through it is not.
    fn closed(&self, ino: Ino, open: OpenRequest);
    /// Writes at the end of a file, wherever that is by now; a writer is named as in
    /// [`Service::write`].
    fn append(&self, without_fsetid: Option<Caller>, ino: Ino, bytes: &[u8]) -> Reply<usize>;
    /// Writes at an offset, or at the end of a file, what is to be durable when this returns in any mode; a
    /// writer is named as in [`Service::write`].
    fn write_durable(
        &self,
        without_fsetid: Option<Caller>,
        ino: Ino,
        offset: Option<u64>,
        bytes: &[u8],
    ) -> Reply<usize> {
        let written = match offset {
            Some(offset) => self.write(without_fsetid, ino, offset, bytes),
            None => self.append(without_fsetid, ino, bytes),
        }?;
        self.fsync(ino).map(|()| written)
    }
    /// Makes a file or directory durable.
    fn fsync(&self, ino: Ino) -> Reply<()>;
    /// Lists entries of an open directory after a cookie, `.` and `..` first, until `take` says that
    /// it has no room. Those made since it was last read from the start are not among them.
    fn readdir(
        &self,
        directory: (Ino, u64),
        after: u64,
        take: &mut dyn FnMut(&Listed) -> bool,
    ) -> Reply<()>;
    /// The same with attributes; each entry taken, but for `.` and `..`, is held. One whose inode can't be read has
    /// none, and is not held.
    fn readdirplus(
        &self,
        directory: (Ino, u64),
        after: u64,
        take: &mut dyn FnMut(&Listed, Option<&Attr>) -> bool,
    ) -> Reply<()>;
    /// Space and inodes, within the limits of the inode's directory tree.
    fn statfs(&self, ino: Ino) -> Reply<StatFs>;
    /// Reserves space for a range, or changes it in another way. Where the kernel has to drop its pages before it is
    /// answered, says until where, and [`Service::pages_are_dropped`] is called then; of the range behind that nothing
    /// is changed yet. Before the answer to all of it comes [`Service::is_erased`].
    fn fallocate(
        &self,
        caller: Caller,
        ino: Ino,
        mode: Fallocate,
        offset: u64,
        len: u64,
    ) -> Reply<Option<u64>>;
    /// Whether the kernel may have pages of a file that mappings have stored to.
    fn may_have_stores(&self, ino: Ino) -> bool;
    /// The kernel has dropped its pages of a range, and written back what was stored to them, since so many writes
    /// to the file; `u64::MAX` where none could come meanwhile.
    fn pages_are_dropped(&self, ino: Ino, bytes: &Range<u64>, writes: u64);
    /// A range was erased whose pages the kernel had to drop, and that is answered now.
    fn is_erased(&self, ino: Ino, bytes: &Range<u64>);
    /// Files of which the kernel is to drop its pages, with their writes, since much is kept beside what is stored.
    fn old_stores(&self) -> Option<OldStores>;
    /// The value of an extended attribute.
    fn getxattr(&self, caller: Caller, ino: Ino, name: &[u8]) -> Reply<Vec<u8>>;
    /// Sets an extended attribute; the kernel has checked that the caller may. An access ACL of a
    /// caller that is not in the file's group clears set-gid.
    fn setxattr(
        &self,
        caller: Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Reply<()>;
    /// The names of the extended attributes that the caller may see, each ended by a NUL.
    fn listxattr(&self, caller: Caller, ino: Ino) -> Reply<Vec<u8>>;
    /// Removes an extended attribute; the kernel has checked that the caller may.
    fn removexattr(&self, caller: Caller, ino: Ino, name: &[u8]) -> Reply<()>;
    /// Copies bytes from one file to another, or within one; returns how many. Whether it is an access is as with
    /// [`ReadFrom`].
    fn copy_range(
        &self,
        caller: Caller,
        from: Place,
        to: Place,
        len: u64,
        is_access: bool,
    ) -> Reply<u64>;
    /// Finds data or a hole. The kernel has dropped its pages of a range since it was first asked.
    fn seek(&self, ino: Ino, offset: u64, what: Seek, dropped: &Range<u64>) -> Reply<Sought>;
}
