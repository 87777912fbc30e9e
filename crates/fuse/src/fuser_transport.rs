//! The transport over `/dev/fuse` with the `fuser` crate: each request becomes one call of the
//! service, each result one reply.
//!
//! What is asked of the kernel, and why: parallel look-ups and listings (the core takes them);
//! listings with attributes when they pay; cached symbolic links (a link never
//! changes); file handles (`.` and `..` are looked up); set-id bits left to us (without it each write
//! asks for security.capability first); ACLs checked by the kernel, and umasks left to us, since they
//! do not count where a directory has a default ACL; mmap of files that bypass the cache. Not asked for: the
//! write-back cache (a write must be durable when it returns) and locks (flock and fcntl stay the
//! kernel's own, local to the mount).

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Config, CopyFileRangeFlags, FileHandle, Filesystem, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, Notifier, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, Session, SessionACL, TimeOrNow,
    WriteFlags,
};
use novale_core::{Attr, FileKind, Judged, NewInode, Place};

use crate::aside::Aside;
use crate::cache::Keeps;
use crate::fuser_convert::{
    BLOCK_BYTES, NO_ACCESS, bare_attr, errno, file_attr, file_handle, file_type, generation, ino,
    opened_flags, time, unread_attr,
};
use crate::fuser_drops::{Drops, drop_old, is_after_stores};
use crate::fuser_names::Names;
use crate::fuser_writes::{Begun, Writing};
use crate::looked::Looked;
use crate::room::{Room, is_full, with_room};
use crate::service::{Caller, Changes, Errno, OpenRequest, ReadFrom, Reply, Service};
use crate::threads::not_started;
use crate::transport::{Connection, Transport};
use crate::wire::{fallocate_mode, kind_of_mode, rename_mode, seek_kind, xattr_mode};

/// The kernel's own flag of an open that is to run a program.
const FMODE_EXEC: i32 = 0x20;
/// The longest write, and the longest read, in bytes.
const MAX_WRITE_BYTES: u32 = 1 << 20;
/// Read-aheads and the like that may be under way at once.
const BACKGROUND_MAX: u16 = 64;
/// Longest name, in bytes.
const NAME_BYTES_MAX: u32 = 255;
/// By this the kernel takes a name from a listing, and asks for its inode when that is wanted.
const NO_NODE: INodeNo = INodeNo(0);

/// Without `FUSE_ATOMIC_O_TRUNC`: a file would be emptied as it is opened, before the kernel asks whether the
/// caller may do that, which Landlock may forbid it.
const WANTED: InitFlags = InitFlags::FUSE_PARALLEL_DIROPS
    .union(InitFlags::FUSE_DO_READDIRPLUS)
    .union(InitFlags::FUSE_READDIRPLUS_AUTO)
    .union(InitFlags::FUSE_CACHE_SYMLINKS)
    .union(InitFlags::FUSE_EXPORT_SUPPORT)
    .union(InitFlags::FUSE_HANDLE_KILLPRIV_V2)
    .union(InitFlags::FUSE_DONT_MASK)
    .union(InitFlags::FUSE_ASYNC_DIO)
    .union(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);

/// `/dev/fuse`, read by a number of threads, each with a descriptor of its own.
#[derive(Debug, Clone, Copy)]
pub struct FuserTransport {
    /// Threads that serve, at least 1.
    pub threads: usize,
    /// The kernel checks access control lists.
    pub acl: bool,
}

impl Transport for FuserTransport {
    fn connect(
        &self,
        device: OwnedFd,
        service: Arc<dyn Service>,
    ) -> io::Result<Box<dyn Connection>> {
        let mut config = Config::default();
        config.n_threads = Some(self.threads.max(1));
        config.clone_fd = true;
        // Who may ask is the kernel's decision, by allow_other: fuser need not repeat it.
        let notifier = Arc::new(OnceLock::new());
        let aside = Arc::new(Aside::new(service.clone()));
        let session = Session::from_fd(
            Adapter {
                notifier: notifier.clone(),
                keeps: Keeps::new(service.is_shared()),
                looked: service.is_shared().then(Looked::default),
                names: Names::new(&notifier, &aside),
                aside,
                room: Room::new(service.clone()),
                service,
                acl: self.acl,
                maps_direct: false,
            },
            device,
            SessionACL::All,
            config,
        )?;
        notifier.get_or_init(|| session.notifier());
        Ok(Box::new(FuserConnection(session)))
    }
}

struct FuserConnection(Session<Adapter>);

impl Connection for FuserConnection {
    fn serve(self: Box<Self>) -> io::Result<()> {
        // The device is read again where it says so; of a thread it is the last word.
        let is_thread = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        self.0.run().map_err(|error| if is_thread(&error) { not_started(&error) } else { error })
    }
}

struct Adapter {
    service: Arc<dyn Service>,
    /// What waits for programs to give way that have a file's own pages mapped.
    aside: Arc<Aside>,
    /// What waits for removed files to go.
    room: Room,
    acl: bool,
    keeps: Keeps,
    /// Where the kernel is not told of every change.
    looked: Option<Looked>,
    names: Names,
    /// The kernel can map a file whose reads and writes all come to the service.
    maps_direct: bool,
    /// By which the kernel is told; there once the session is.
    notifier: Arc<OnceLock<Notifier>>,
}

thread_local! {
    /// What the last reads of this thread went through; grows to the longest read.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn reply_empty(reply: ReplyEmpty, result: Reply<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

fn reply_attr(keeps: Keeps, reply: ReplyAttr, result: Reply<Attr>) {
    match result {
        Ok(attr) => reply.attr(&keeps.attr(&attr), &file_attr(&attr)),
        Err(error) => reply.error(errno(error)),
    }
}

fn reply_entry(keeps: Keeps, reply: ReplyEntry, result: Reply<Attr>) {
    match result {
        Ok(attr) => reply.entry_with_ttls(
            &keeps.attr(&attr),
            &keeps.entry(),
            &file_attr(&attr),
            generation(&attr),
        ),
        Err(error) => reply.error(errno(error)),
    }
}

/// A value or a list: its length where the kernel asks with no room, `ERANGE` with too little.
fn reply_xattr(reply: ReplyXattr, size: u32, result: Reply<Vec<u8>>) {
    // Values and lists have at most 64 KB.
    let len = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    match result {
        Ok(bytes) if size == 0 => reply.size(len(&bytes)),
        Ok(bytes) if len(&bytes) > size => reply.error(errno(Errno(libc::ERANGE))),
        Ok(bytes) => reply.data(&bytes),
        Err(error) => reply.error(errno(error)),
    }
}

/// Reads by one of the service's ways, and answers.
fn read(read: impl FnOnce(&mut [u8]) -> Reply<usize>, size: u32, reply: ReplyData) {
    READ_BUFFER.with_borrow_mut(|buffer| {
        let size = usize::try_from(size).unwrap_or_default();
        if buffer.len() < size {
            buffer.resize(size, 0);
        }
        let buffer = buffer.get_mut(..size).unwrap_or_default();
        match read(buffer) {
            Ok(bytes) => reply.data(buffer.get(..bytes).unwrap_or_default()),
            Err(error) => reply.error(errno(error)),
        }
    });
}

fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), pid: request.pid() }
}

fn new_inode<'a>(request: &Request, kind: FileKind, mode: u32) -> NewInode<'a> {
    let Caller { uid, gid, .. } = caller(request);
    NewInode { kind, mode: mode & 0o7777, uid, gid, rdev: 0, target: b"" }
}

impl Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let acl = if self.acl { InitFlags::FUSE_POSIX_ACL } else { InitFlags::empty() };
        let mut wanted = (WANTED | acl) & config.capabilities();
        if self.service.is_shared() {
            // Attributes that can't be kept need not be listed.
            wanted -= InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO;
        }
        self.maps_direct = wanted.contains(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        let set = config
            .add_capabilities(wanted)
            .map_err(|_| ())
            .and_then(|()| config.set_max_write(MAX_WRITE_BYTES).map_err(|_| ()))
            .and_then(|_| config.set_max_background(BACKGROUND_MAX).map_err(|_| ()));
        set.map(drop).map_err(|()| io::Error::other("the kernel's FUSE refuses the settings"))
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.service.lookup(ino(parent), name.as_bytes());
        if let (Some(looked), Ok(found)) = (&self.looked, &found) {
            let found = found.as_ref().map(|attr| attr.ino);
            looked.told(request.pid(), ino(parent), name.as_bytes(), found);
            self.names.told(parent, name);
        }
        match found.transpose() {
            Some(found) => reply_entry(self.keeps, reply, found),
            None => self.reply_absent(reply),
        }
    }

    fn forget(&self, _: &Request, node: INodeNo, nlookup: u64) {
        self.service.forget(ino(node), nlookup);
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply_attr(self.keeps, reply, self.service.getattr(ino(node)));
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        kills_set_id: bool,
        reply: ReplyAttr,
    ) {
        let mode = mode.map(|mode| mode & 0o7777);
        let (atime, mtime) = (atime.map(time), mtime.map(time));
        let changes = Changes { mode, uid, gid, size, atime, mtime, kills_set_id };
        let (caller, file) = (caller(request), ino(node));
        if !is_after_stores(&changes) || !self.service.may_have_stores(file) {
            return reply_attr(self.keeps, reply, self.service.setattr(caller, file, &changes));
        }
        let (service, keeps) = (self.service.clone(), self.keeps);
        Drops::new(&self.service, node, &self.notifier).before(0..u64::MAX, move || {
            reply_attr(keeps, reply, service.setattr(caller, file, &changes));
        });
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        match self.service.readlink(ino(node)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        match kind_of_mode(mode) {
            Ok(kind) => {
                let new = NewInode { rdev, ..new_inode(request, kind, mode) };
                self.make((parent, name), new, umask, reply);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        self.make((parent, name), new_inode(request, FileKind::Directory, mode), umask, reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (parent, name) = (ino(parent), name.as_bytes().to_vec());
        let target = target.as_os_str().as_bytes().to_vec();
        let new = new_inode(request, FileKind::Symlink, 0o777);
        let keeps = self.keeps;
        self.room.make(
            move |service| service.make(parent, &name, &NewInode { target: &target, ..new }, 0),
            move |made| reply_entry(keeps, reply, made),
        );
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        kills_set_id: bool,
        reply: ReplyCreate,
    ) {
        let new = new_inode(request, FileKind::File, mode);
        let open = OpenRequest { kills_set_id, ..self.open_request(flags) };
        let (parent, name, keeps) = (ino(parent), name.as_bytes().to_vec(), self.keeps);
        self.room.make(
            move |service| service.create(parent, &name, (&new, umask), open),
            move |created| match created {
                Ok((attr, opened)) => reply.created(
                    &keeps.attr(&attr),
                    &file_attr(&attr),
                    generation(&attr),
                    file_handle(flags),
                    opened_flags(opened),
                ),
                Err(error) => reply.error(errno(error)),
            },
        );
    }

    fn link(&self, _: &Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (node, parent, name) = (ino(node), ino(parent), name.as_bytes().to_vec());
        let keeps = self.keeps;
        self.room.make(
            move |service| service.link(node, parent, &name),
            move |linked| reply_entry(keeps, reply, linked),
        );
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let judged = self.judged(request, parent, name);
        self.names.removed(parent, name);
        reply_empty(reply, self.service.unlink(ino(parent), name.as_bytes(), judged));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let judged = self.judged(request, parent, name);
        self.names.removed(parent, name);
        reply_empty(reply, self.service.rmdir(ino(parent), name.as_bytes(), judged));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let judged = [(parent, name), (new_parent, new_name)]
            .map(|(parent, name)| self.judged(request, parent, name));
        let (parent, name) = (ino(parent), name.as_bytes().to_vec());
        let (new_parent, new_name) = (ino(new_parent), new_name.as_bytes().to_vec());
        let rename = move |service: &dyn Service| {
            let mode = rename_mode(flags.bits())?;
            service.rename((parent, &name), (new_parent, &new_name), mode, judged)
        };
        self.room.make(rename, move |renamed| reply_empty(reply, renamed));
    }

    fn open(
        &self,
        request: &Request,
        node: INodeNo,
        flags: OpenFlags,
        kills_set_id: bool,
        reply: ReplyOpen,
    ) {
        let (caller, node) = (caller(request), ino(node));
        let open = OpenRequest { kills_set_id, ..self.open_request(flags.0) };
        let service = self.service.clone();
        let answer =
            move |ready: Reply<()>| match ready.and_then(|()| service.open(caller, node, open)) {
                Ok(opened) => reply.opened(file_handle(flags.0), opened_flags(opened)),
                Err(error) => reply.error(errno(error)),
            };
        // A program that is run: nobody is to write to it from here on, before a page of it is read.
        if flags.0 & FMODE_EXEC != 0 && self.service.is_shared() {
            let service = self.service.clone();
            let runs = move |ready: Reply<()>| answer(ready.and_then(|()| service.may_run(node)));
            self.aside.when_mapped(node, runs);
        } else {
            answer(Ok(()));
        }
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let node = ino(node);
        let file = ReadFrom { ino: node, is_access: flags.0 & libc::O_NOATIME == 0 };
        // A read that comes from a call has an owner; the page cache has none.
        if owner.is_some() {
            return read(|buf| self.service.read(file, offset, buf), size, reply);
        }
        if !self.service.is_shared() {
            return read(|buf| self.service.read_cached(file, offset, buf), size, reply);
        }
        let service = self.service.clone();
        self.aside.when_mapped(node, move |ready| match ready {
            Ok(()) => read(|buf| service.read_cached(file, offset, buf), size, reply),
            Err(error) => reply.error(errno(error)),
        });
    }

    fn write(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let kills = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let without_fsetid = kills.then(|| caller(request));
        // Where the end is only the service knows, if others append too; a mapped page that is
        // written back has its place.
        let cached = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let appends = self.service.is_shared() && flags.0 & libc::O_APPEND != 0;
        let syncs = !self.service.durable_at_return() && flags.0 & libc::O_DSYNC != 0;
        let drops = cached.then(|| Drops::new(&self.service, node, &self.notifier));
        let node = ino(node);
        let write = move |service: &dyn Service, data: &[u8]| match (cached, appends) {
            (true, _) => service.write_back(without_fsetid, node, offset, data),
            (false, _) if syncs => {
                let offset = (!appends).then_some(offset);
                service.write_durable(without_fsetid, node, offset, data)
            }
            (false, true) => service.append(without_fsetid, node, data),
            (false, false) => service.write(without_fsetid, node, offset, data),
        };
        let bytes = offset..offset.saturating_add(data.len() as u64);
        let writing = Writing { reply: Some(reply), bytes, drops };
        let begun = if cached && self.service.is_shared() {
            let (service, late) = (self.service.clone(), self.service.late());
            let in_room = move |data: &[u8]| with_room(&*service, |service| write(service, data));
            let Some(now) = late.begin(node, data, || Box::new(in_room), Box::new(writing)) else {
                return;
            };
            Begun::Late(late.clone(), now)
        } else {
            Begun::Plain(writing)
        };
        let written = write(&*self.service, data);
        if !is_full(&written) {
            begun.end(written);
        } else if begun.may_wait() {
            let data = data.to_vec();
            self.room
                .again(move |service| write(service, &data), move |written| begun.end(written));
        } else {
            begun.end(with_room(&*self.service, |service| write(service, data)));
        }
        if let Some(old) = self.service.old_stores() {
            drop_old(&self.service, &self.notifier, old);
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // "Not implemented" tells the kernel, once, that a close has nothing to do.
        reply_empty(reply, Err(Errno(libc::ENOSYS)));
    }

    fn release(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        flags: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.service.closed(ino(node), self.open_request(flags.0));
        reply.ok();
    }

    /// Answered where there is nothing to do, too. The kernel writes back dirty mapped pages before it asks, and says
    /// nothing where nobody was there to take them: so who is told that they are durable is told by an answer.
    fn fsync(&self, _: &Request, node: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply_empty(reply, self.service.fsync(ino(node)));
    }

    /// "Not implemented" tells the kernel once that there is never anything to do.
    fn fsyncdir(&self, _: &Request, node: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let done = if self.service.durable_at_return() {
            Err(Errno(libc::ENOSYS))
        } else {
            self.service.fsync(ino(node))
        };
        reply_empty(reply, done);
    }

    fn opendir(&self, _: &Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.service.opendir(ino(node)) {
            Ok(handle) => reply.opened(FileHandle(handle), fuser::FopenFlags::empty()),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.service.closedir(handle.0);
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.service.readdir((ino(node), handle.0), offset, &mut |entry| {
            let name = OsStr::from_bytes(&entry.name);
            let number = INodeNo(entry.ino.get());
            !reply.add(number, entry.cookie, file_type(entry.kind), name)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.service.readdirplus((ino(node), handle.0), offset, &mut |entry, attr| {
            let name = OsStr::from_bytes(&entry.name);
            let Some(attr) = attr else {
                let (attr, never) = (unread_attr(entry), Duration::ZERO);
                return !reply.add(NO_NODE, entry.cookie, name, &never, &attr, Generation(0));
            };
            let number = INodeNo(entry.ino.get());
            let generation = generation(attr);
            let timeout = self.keeps.attr(attr);
            !reply.add(number, entry.cookie, name, &timeout, &file_attr(attr), generation)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn statfs(&self, _: &Request, node: INodeNo, reply: ReplyStatfs) {
        match self.service.statfs(ino(node)) {
            Ok(space) => reply.statfs(
                space.pages,
                space.pages_free,
                space.pages_available,
                space.inodes.saturating_add(space.inodes_free),
                space.inodes_free,
                BLOCK_BYTES,
                NAME_BYTES_MAX,
                BLOCK_BYTES,
            ),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn fallocate(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let file = ino(node);
        let drops = Drops::new(&self.service, node, &self.notifier);
        let end = offset.saturating_add(length);
        let caller = caller(request);
        let from = move |service: &dyn Service, at: u64| match end - at {
            0 if at > offset => Ok(None),
            left => service.fallocate(caller, file, fallocate_mode(mode)?, at, left),
        };
        self.room.make(
            move |service| from(service, offset),
            move |done| match done {
                Ok(Some(end)) => {
                    drops.part_by_part(offset..end, from, |done| reply_empty(reply, done));
                }
                Ok(None) => reply.ok(),
                Err(error) => reply.error(errno(error)),
            },
        );
    }

    fn getxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let value = self.service.getxattr(caller(request), ino(node), name.as_bytes());
        reply_xattr(reply, size, value);
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let (node, caller) = (ino(node), caller(request));
        let (name, value) = (name.as_bytes().to_vec(), value.to_vec());
        self.room.make(
            move |service| service.setxattr(caller, node, &name, &value, xattr_mode(flags)?),
            move |set| reply_empty(reply, set),
        );
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        reply_xattr(reply, size, self.service.listxattr(caller(request), ino(node)));
    }

    fn removexattr(&self, request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.service.removexattr(caller(request), ino(node), name.as_bytes());
        reply_empty(reply, removed);
    }

    fn copy_file_range(
        &self,
        request: &Request,
        from: INodeNo,
        handle: FileHandle,
        from_offset: u64,
        to: INodeNo,
        _: FileHandle,
        to_offset: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let from = Place { ino: ino(from), offset: from_offset };
        let to = Place { ino: ino(to), offset: to_offset };
        let caller = caller(request);
        self.room.make(
            move |service| service.copy_range(caller, from, to, len, handle != NO_ACCESS),
            move |copied| match copied {
                // No more than a call of the core copies.
                Ok(copied) => reply.written(u32::try_from(copied).unwrap_or(u32::MAX)),
                Err(error) => reply.error(errno(error)),
            },
        );
    }

    fn lseek(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let answer = |found: Reply<u64>| match found {
            Ok(offset) => reply.offset(i64::try_from(offset).unwrap_or(i64::MAX)),
            Err(error) => reply.error(errno(error)),
        };
        let asked = seek_kind(whence).and_then(|what| {
            let offset = u64::try_from(offset).map_err(|_| Errno(libc::ENXIO))?;
            Ok((offset, what))
        });
        match asked {
            Ok(asked) => Drops::new(&self.service, node, &self.notifier).seek(asked, answer),
            Err(error) => answer(Err(error)),
        }
    }
}

impl Adapter {
    /// Makes an inode without a target.
    fn make(
        &self,
        (parent, name): (INodeNo, &OsStr),
        new: NewInode<'static>,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let (parent, name, keeps) = (ino(parent), name.as_bytes().to_vec(), self.keeps);
        self.room.make(
            move |service| service.make(parent, &name, &new, umask),
            move |made| reply_entry(keeps, reply, made),
        );
    }

    /// What the kernel has judged that a name leads to, in the call that it asks for. Of root it allows all.
    fn judged(&self, request: &Request, parent: INodeNo, name: &OsStr) -> Judged {
        if request.uid() == 0 {
            return None;
        }
        self.looked.as_ref()?.judged(request.pid(), ino(parent), name.as_bytes())
    }

    /// A name that is absent: inode 0, remembered as long as one that is there.
    fn reply_absent(&self, reply: ReplyEntry) {
        let none = bare_attr(NO_NODE, file_type(FileKind::File));
        reply.entry(&self.keeps.entry(), &none, Generation(0));
    }

    fn open_request(&self, flags: i32) -> OpenRequest {
        let mode = OpenFlags(flags).acc_mode();
        OpenRequest {
            read: mode != OpenAccMode::O_WRONLY,
            // A file that can't be read can't be mapped either.
            direct: mode == OpenAccMode::O_WRONLY
                || mode == OpenAccMode::O_RDWR && self.maps_direct,
            stores: mode == OpenAccMode::O_RDWR,
            truncate: flags & libc::O_TRUNC != 0,
            kills_set_id: false,
            exclusive: flags & libc::O_EXCL != 0,
        }
    }
}
