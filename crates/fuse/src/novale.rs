//! The service over `novale_core::Fs`: each request looks up, calls the core once and returns.
//!
//! The kernel names inodes by number. It holds each one that it names, so that no number is used again
//! under it: [`Node::current`] is the one that it means.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use novale_core::{
    Attr, Ctx, Error, Fallocate, FileKind, Fs, Ino, Judged, NewInode, Node, Place, RenameMode,
    RoomTurn, Seek, SetAttr, SetXattr, Short, StatFs, XattrMode,
};
use novale_posix::{Changer, SET_ID, errno, hold_same, lookup_held, thread_hint, wall_clock_ns};

use crate::by_number;
use crate::cache::{self, Atime};
use crate::calling;
use crate::gate::Gate;
use crate::groups;
use crate::holes;
use crate::late::Late;
use crate::mapped::OpenFiles;
use crate::method;
use crate::readdir::Listings;
use crate::service::{
    Caller, Changes, Errno, Listed, OpenRequest, Opened, ReadFrom, Reply, Service, Sought, Time,
};
use crate::stores::{AtOffset, Now, OldStores, Stores};
use crate::tree;

const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
const ACL_PREFIX: &[u8] = b"system.posix_acl_";
const USER_PREFIX: &[u8] = b"user.";
const TRUSTED_PREFIX: &[u8] = b"trusted.";
const SET_GID: u32 = 0o2000;

/// The attribute of every inode of a mount in which its daemon tells what it knows of the mount; in no
/// list, and for root and the daemon's own user alone. The kernel leads who asks to who serves the
/// mount, and nobody else can answer.
pub const FACTS: &str = "system.novale.mount";

/// The same of the paths of all slots, in the pool's order, with a zero byte between: also those that came since.
pub const SLOTS: &str = novale_posix::join::SLOTS_TOLD;

/// What is told of a mount.
type Facts = Box<dyn Fn() -> Vec<u8> + Send + Sync>;

/// What is told of an error that no caller is to blame for: damage, or a bug.
type Report = Box<dyn Fn(&Error) + Send + Sync>;

/// How a file system is served.
#[derive(Default)]
pub struct Settings {
    /// The access times that the file system was opened with; `Never` when it is read-only.
    pub atime: Atime,
    /// There are no access control lists: `EOPNOTSUPP` for the caller.
    pub no_acl: bool,
    /// There are no attributes of users.
    pub no_user_xattr: bool,
    /// Others have the file system open too, and the kernel may keep nothing.
    pub shared: bool,
    /// Called for each damage that a request meets; the request itself fails with `EUCLEAN` or `EIO`.
    pub report: Option<Report>,
    /// The value of [`FACTS`], made when it is asked for.
    pub facts: Option<Facts>,
    /// The value of [`SLOTS`].
    pub slots: Option<Facts>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("atime", &self.atime)
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}

/// A Novale file system as a [`Service`].
pub struct Novale {
    pub(crate) fs: Arc<Fs>,
    pub(crate) gate: Gate,
    pub(crate) settings: Settings,
    open_files: OpenFiles,
    pub(crate) late: Arc<Late>,
    stores: Stores,
    pub(crate) listings: Listings,
    /// An [`Atime`]; at first that of the settings.
    atime: AtomicU8,
}

impl fmt::Debug for Novale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Novale").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Novale {
    /// Serves an open file system.
    #[must_use]
    pub fn new(fs: Arc<Fs>, settings: Settings) -> Self {
        let atime = AtomicU8::new(settings.atime as u8);
        if settings.shared {
            fs.add_mount();
        }
        Self {
            fs,
            gate: Gate::new(),
            settings,
            open_files: OpenFiles::default(),
            late: Arc::default(),
            stores: Stores::default(),
            listings: Listings::default(),
            atime,
        }
    }

    /// When reads change access times from now on; of files that are open, when they are opened again
    /// as far as the kernel's cache is concerned.
    pub fn set_atime(&self, atime: Atime) {
        self.fs.set_atime(match atime {
            Atime::Relative => novale_core::Atime::Relatime,
            Atime::Never => novale_core::Atime::Noatime,
            Atime::Always => novale_core::Atime::Strict,
        });
        self.atime.store(atime as u8, Ordering::Relaxed);
    }

    /// Makes all durable that was written to any file.
    pub(crate) fn write_back_all(&self) -> novale_core::Result<()> {
        self.late.wait_for_all();
        self.fs.sync_all(&Self::ctx())
    }

    fn atime(&self) -> Atime {
        let atime = self.atime.load(Ordering::Relaxed);
        Atime::ALL.into_iter().find(|known| *known as u8 == atime).unwrap_or_default()
    }

    /// Refuses opens from now on with `ESHUTDOWN`; what is open goes on.
    pub fn drain(&self) {
        self.gate.drain();
    }

    /// Refuses every request from now on with `ESHUTDOWN`, waits for those that run, and closes the
    /// file system clean.
    ///
    /// # Errors
    /// Those of [`Fs::close`].
    pub fn close(&self) -> Result<(), Error> {
        self.late.end_all();
        self.gate.close();
        self.fs.close()
    }

    fn told(caller: Caller, what: Option<&Facts>) -> Reply<Vec<u8>> {
        let may = caller.uid == 0 || caller.uid == rustix::process::geteuid().as_raw();
        what.filter(|_| may).map(|facts| facts()).ok_or(Errno(libc::ENODATA))
    }

    /// Whether the mount's options hide an attribute.
    fn hides(&self, name: &[u8]) -> bool {
        self.settings.no_acl && name.starts_with(ACL_PREFIX)
            || self.settings.no_user_xattr && name.starts_with(USER_PREFIX)
    }

    fn refuse_hidden(&self, name: &[u8]) -> Reply<()> {
        if self.hides(name) { Err(Errno(libc::EOPNOTSUPP)) } else { Ok(()) }
    }

    pub(crate) fn ctx() -> Ctx {
        Ctx { now_ns: wall_clock_ns(), hint: thread_hint() }
    }

    pub(crate) fn fail(&self, error: &Error) -> Errno {
        if let (Error::Damaged { .. } | Error::Lost(_) | Error::BadArena(_), Some(report)) =
            (error, &self.settings.report)
        {
            report(error);
        }
        Errno(errno(error))
    }

    pub(crate) fn done<T>(&self, result: Result<T, Error>) -> Reply<T> {
        result.map_err(|error| self.fail(&error))
    }

    /// Holds an inode that was made or found just now, for the kernel.
    pub(crate) fn held(&self, ctx: &Ctx, attr: &Attr) -> Reply<Attr> {
        let held = self.done(hold_same(&self.fs, ctx, attr.ino, attr.generation))?;
        held.ok_or(Errno(libc::ESTALE))
    }

    /// Gives up holds. The kernel does not wait for an answer, so an error only goes to the report.
    pub(crate) fn give_back(&self, ctx: &Ctx, ino: Ino, holds: u64) {
        self.done(self.fs.release(ctx, ino, holds)).unwrap_or_default();
    }

    fn opened(&self, ctx: &Ctx, attr: &Attr, open: OpenRequest) -> Opened {
        if open.stores {
            self.stores.opened(attr.ino, open.stores_beside());
        }
        if self.settings.shared {
            self.open_files.opened(attr.ino);
            return cache::SHARED;
        }
        cache::opened(self.atime(), attr, open, ctx.now_ns)
    }

    /// The kernel has the file open once less.
    fn no_more_open(&self, ino: Ino) -> Reply<()> {
        self.done(self.open_files.ended((&self.fs, &self.gate), &Self::ctx(), ino, &self.late))
    }

    /// What a file handle's inode number leads to, `.` or `..`.
    fn lookup_dots(&self, ino: Ino, name: &[u8]) -> Reply<Attr> {
        let ino =
            if name == b"." { ino } else { self.done(self.fs.parent(Node::current(ino)))?.ino };
        let attr = self.done(self.fs.getattr(ino))?;
        self.held(&Self::ctx(), &attr)
    }

    /// Takes the set-id bits that a writer may not keep alive.
    fn drop_set_id_of(&self, ctx: &Ctx, writer: Option<Caller>, ino: Ino) -> Reply<()> {
        let Some(caller) = writer else { return Ok(()) };
        let attr = self.done(self.fs.getattr(ino))?;
        let changer = of_contents(caller, true, &attr);
        self.done(changer.before_write(&self.fs, ctx, &attr))
    }

    /// Takes the set-id bits that a change of contents takes for which the kernel takes those away that it knows of: a
    /// direct program may have given others since.
    fn drop_unseen_set_id(&self, ctx: &Ctx, caller: Caller, ino: Ino) -> Reply<()> {
        let attr = self.done(self.fs.getattr(ino))?;
        if attr.mode & SET_ID == 0 {
            return Ok(());
        }
        self.done(changer(caller, &attr).before_write(&self.fs, ctx, &attr))
    }

    fn read_from(&self, file: ReadFrom, offset: u64, buf: &mut [u8]) -> Reply<usize> {
        if file.is_access {
            self.done(self.fs.read(&Self::ctx(), file.ino, offset, buf))
        } else {
            self.peek(file.ino, offset, buf)
        }
    }

    /// The file as it is, which no access time tells of.
    fn peek(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Reply<usize> {
        self.done(self.fs.peek(&Self::ctx(), ino, offset, buf))
    }

    /// Writes so many bytes at an offset, or at the end of a file, by a call that writes all or nothing.
    fn store_all(
        &self,
        without_fsetid: Option<Caller>,
        ino: Ino,
        (offset, len): (Option<u64>, usize),
        write: impl Fn(&Ctx) -> novale_core::Result<u64>,
    ) -> Reply<usize> {
        let _pass = self.enter(&[ino])?;
        let ctx = Self::ctx();
        self.drop_set_id_of(&ctx, without_fsetid, ino)?;
        let start = || match offset {
            Some(offset) => Ok(offset),
            None => self.done(self.fs.getattr(ino)).map(|attr| attr.size),
        };
        let peek = |at: u64, buf: &mut [u8]| self.peek(ino, at, buf);
        let write = &mut || self.done(write(&ctx)).map(|_at| len);
        self.stores.write(ino, (&start, len), &peek, write)
    }

    fn truncate(&self, ctx: &Ctx, caller: Caller, open: OpenRequest, attr: Attr) -> Reply<Attr> {
        let changes = SetAttr { size: Some(0), ..SetAttr::default() };
        let by = of_contents(caller, open.kills_set_id, &attr);
        self.done(self.fs.setattr(ctx, attr.node(), &by.changing(&changes)))
    }
}

/// What an open is told that was to make a file, since the kernel knew of nothing by that name, and
/// finds what somebody else has made meanwhile. Of what it thinks was made the kernel asks no rights: it is to
/// look again, as it does when it is told that this is stale.
fn made_meanwhile(kind: FileKind) -> Errno {
    Errno(if kind == FileKind::Directory { libc::EISDIR } else { libc::ESTALE })
}

/// What a caller is to a file whose contents it changes, of whom the kernel has told whether it has the right to
/// keep set-id bits alive.
fn of_contents(caller: Caller, kills_set_id: bool, attr: &Attr) -> Changer {
    Changer { has_fsetid: !kills_set_id, is_in_group: is_in_group(caller, attr) }
}

/// What a caller is to an inode whose set-id bits may fall by a change of owner.
fn changer(caller: Caller, attr: &Attr) -> Changer {
    // It is looked for where it matters.
    let has_fsetid =
        if attr.mode & SET_ID == 0 { caller.uid == 0 } else { groups::has_fsetid(caller) };
    Changer { has_fsetid, is_in_group: is_in_group(caller, attr) }
}

/// Whether a caller may take set-id bits by a change of owner: who may change the mode. The kernel does not ask that,
/// since it leaves the bits to us; for a bare request, which changes nothing else, it asks no rights at all. It makes
/// one also for who changes the file's bytes.
fn may_take_set_id(caller: Caller, attr: &Attr, is_bare: bool) -> bool {
    caller.uid == attr.uid
        || groups::capable(caller, groups::CAP_FOWNER).unwrap_or(caller.uid == 0 || !is_bare)
        || is_bare && calling::changes_contents(caller.pid)
}

/// Whether a caller is in a file's group, where that is asked for: a set-gid bit is no program's.
fn is_in_group(caller: Caller, attr: &Attr) -> bool {
    attr.mode & 0o2010 != SET_GID || groups::has(caller, attr.gid)
}

fn time_ns(ctx: &Ctx, time: Time) -> i64 {
    match time {
        Time::Now => ctx.now_ns,
        Time::At(ns) => ns,
    }
}

impl Service for Novale {
    fn lookup(&self, parent: Ino, name: &[u8]) -> Reply<Option<Attr>> {
        let _pass = self.gate.enter()?;
        if self.is_named_virtual(parent, name) {
            return Ok(Some(by_number::attr()));
        }
        if self.is_virtual(parent) {
            return self.lookup_by_number(&Self::ctx(), name);
        }
        if matches!(name, b"." | b"..") {
            return self.lookup_dots(parent, name).map(Some);
        }
        match lookup_held(&self.fs, &Self::ctx(), Node::current(parent), name) {
            Err(Error::NotFound) => Ok(None),
            found => self.done(found).map(Some),
        }
    }

    fn forget(&self, ino: Ino, holds: u64) {
        if self.is_virtual(ino) {
            return;
        }
        self.late.error(ino).unwrap_or_default();
        if let Ok(_pass) = self.gate.enter() {
            self.give_back(&Self::ctx(), ino, holds);
        }
    }

    fn getattr(&self, ino: Ino) -> Reply<Attr> {
        let _pass = self.gate.enter()?;
        if self.is_virtual(ino) {
            return Ok(by_number::attr());
        }
        self.done(self.fs.getattr(ino))
    }

    fn setattr(&self, caller: Caller, ino: Ino, changes: &Changes) -> Reply<Attr> {
        let _pass = self.enter(&[ino])?;
        let ctx = Self::ctx();
        let Changes { mode, uid, gid, size, atime, mtime, kills_set_id } = *changes;
        let set = SetAttr {
            mode,
            uid,
            gid,
            size,
            atime_ns: atime.map(|time| time_ns(&ctx, time)),
            mtime_ns: mtime.map(|time| time_ns(&ctx, time)),
            ..SetAttr::default()
        };
        // The kernel leaves set-id bits to us (HANDLE_KILLPRIV_V2): a change of owner clears them,
        // and so does a request that changes nothing, which is how chown(-1, -1) and fallocate say it.
        let nothing = mode.is_none() && size.is_none() && atime.is_none() && mtime.is_none();
        let set = if nothing || uid.is_some() || gid.is_some() || size.is_some() {
            let attr = self.done(self.fs.getattr(ino))?;
            let by = match size {
                Some(_) => of_contents(caller, kills_set_id, &attr),
                None => changer(caller, &attr),
            };
            let is_bare = nothing && uid.is_none() && gid.is_none();
            let owns = size.is_none() && by.owning_takes(&attr);
            if owns && !may_take_set_id(caller, &attr, is_bare) {
                return Err(Errno(libc::EPERM));
            }
            if nothing { by.owning(&set) } else { by.changing(&set) }
        } else {
            set
        };
        self.done(self.fs.setattr(&ctx, Node::current(ino), &set))
    }

    fn readlink(&self, ino: Ino) -> Reply<Vec<u8>> {
        let _pass = self.enter(&[ino])?;
        self.done(self.fs.readlink(Node::current(ino)))
    }

    fn make(&self, parent: Ino, name: &[u8], new: &NewInode<'_>, umask: u32) -> Reply<Attr> {
        let _pass = self.enter_new_name(parent, name)?;
        let ctx = Self::ctx();
        let parent = Node::current(parent);
        let made = self.done(self.fs.create_with_umask(&ctx, parent, name, new, umask))?;
        self.held(&ctx, &made)
    }

    fn create(
        &self,
        parent: Ino,
        name: &[u8],
        (new, umask): (&NewInode<'_>, u32),
        open: OpenRequest,
    ) -> Reply<(Attr, Opened)> {
        let _pass = self.gate.enter_to_open()?;
        self.refuse_new_name(parent, name)?;
        let (ctx, parent) = (Self::ctx(), Node::current(parent));
        let attr = match self.fs.create_with_umask(&ctx, parent, name, new, umask) {
            Ok(made) => self.held(&ctx, &made)?,
            Err(Error::Exists) if !open.exclusive => {
                let attr = self.done(lookup_held(&self.fs, &ctx, parent, name))?;
                if !open.is_an_owners(new.uid, &attr) {
                    self.give_back(&ctx, attr.ino, 1);
                    return Err(made_meanwhile(attr.kind));
                }
                let caller = Caller { uid: new.uid, gid: new.gid, pid: 0 };
                let emptied = open.truncate.then(|| self.truncate(&ctx, caller, open, attr));
                // Of what it is not told to have found the kernel gives nothing back.
                let opened = emptied.unwrap_or(Ok(attr));
                opened.inspect_err(|_| self.give_back(&ctx, attr.ino, 1))?
            }
            Err(error) => return Err(self.fail(&error)),
        };
        Ok((attr, self.opened(&ctx, &attr, open)))
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Reply<Attr> {
        let _pass = self.enter_new_name(parent, name)?;
        self.refuse_virtual(&[ino])?;
        let ctx = Self::ctx();
        let (node, parent) = (Node::current(ino), Node::current(parent));
        let linked = self.done(self.fs.link(&ctx, node, parent, name))?;
        self.held(&ctx, &linked)
    }

    fn unlink(&self, parent: Ino, name: &[u8], judged: Judged) -> Reply<()> {
        if self.is_virtual(parent) {
            return by_number::forget(name);
        }
        let _pass = self.enter_name(parent, name)?;
        let parent = Node::current(parent);
        self.done(self.fs.remove_judged(&Self::ctx(), parent, name, false, judged))
    }

    fn rmdir(&self, parent: Ino, name: &[u8], judged: Judged) -> Reply<()> {
        if self.is_virtual(parent) {
            return by_number::forget(name);
        }
        let _pass = self.enter_name(parent, name)?;
        let parent = Node::current(parent);
        self.done(self.fs.remove_judged(&Self::ctx(), parent, name, true, judged))
    }

    fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        judged: [Judged; 2],
    ) -> Reply<()> {
        let _pass = self.enter_name(from.0, from.1)?;
        self.refuse_new_name(to.0, to.1)?;
        if mode == RenameMode::Exchange {
            self.refuse_new_name(from.0, from.1)?;
        }
        let [from, to] = [from, to].map(|(parent, name)| (Node::current(parent), name));
        self.done(self.fs.rename_judged(&Self::ctx(), from, to, mode, judged))
    }

    fn open(&self, caller: Caller, ino: Ino, open: OpenRequest) -> Reply<Opened> {
        let _pass = self.enter_to_open(&[ino])?;
        let ctx = Self::ctx();
        let mut attr = self.done(self.fs.getattr(ino))?;
        if open.truncate {
            attr = self.truncate(&ctx, caller, open, attr)?;
        }
        Ok(self.opened(&ctx, &attr, open))
    }

    fn opendir(&self, ino: Ino) -> Reply<u64> {
        let _pass = self.gate.enter_to_open()?;
        let is_directory =
            self.is_virtual(ino) || self.done(self.fs.getattr(ino))?.kind == FileKind::Directory;
        if is_directory { Ok(self.listings.opened()) } else { Err(Errno(libc::ENOTDIR)) }
    }

    fn closedir(&self, handle: u64) {
        self.listings.closed(handle);
    }

    fn read(&self, file: ReadFrom, offset: u64, buf: &mut [u8]) -> Reply<usize> {
        let _pass = self.enter(&[file.ino])?;
        self.read_from(file, offset, buf)
    }

    fn read_cached(&self, file: ReadFrom, offset: u64, buf: &mut [u8]) -> Reply<usize> {
        let _pass = self.enter(&[file.ino])?;
        let read = |at: u64, buf: &mut [u8]| self.read_from(file, at, buf);
        self.stores.read(file.ino, (offset, buf), &read)
    }

    fn write(
        &self,
        without_fsetid: Option<Caller>,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
    ) -> Reply<usize> {
        let _pass = self.enter(&[ino])?;
        let ctx = Self::ctx();
        self.drop_set_id_of(&ctx, without_fsetid, ino)?;
        let at: (AtOffset<'_>, usize) = (&|| Ok(offset), bytes.len());
        let peek = |at: u64, buf: &mut [u8]| self.peek(ino, at, buf);
        let write = &mut || self.done(self.fs.write(&ctx, ino, offset, bytes));
        self.stores.write(ino, at, &peek, write)
    }

    fn write_back(
        &self,
        without_fsetid: Option<Caller>,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
    ) -> Reply<usize> {
        let _pass = self.enter_beside_late(&[ino])?;
        let ctx = Self::ctx();
        self.drop_set_id_of(&ctx, without_fsetid, ino)?;
        let peek = |at: u64, buf: &mut [u8]| self.peek(ino, at, buf);
        let write = &mut |bytes: &[u8]| self.done(self.fs.write(&ctx, ino, offset, bytes));
        self.stores.write_back(ino, (offset, bytes), &peek, write)
    }

    fn late(&self) -> &Arc<Late> {
        &self.late
    }

    fn append(&self, without_fsetid: Option<Caller>, ino: Ino, bytes: &[u8]) -> Reply<usize> {
        let append = |ctx: &Ctx| self.fs.append(ctx, ino, bytes);
        self.store_all(without_fsetid, ino, (None, bytes.len()), append)
    }

    fn write_durable(
        &self,
        without_fsetid: Option<Caller>,
        ino: Ino,
        offset: Option<u64>,
        bytes: &[u8],
    ) -> Reply<usize> {
        let write = |ctx: &Ctx| self.fs.write_durable(ctx, ino, offset, bytes);
        self.store_all(without_fsetid, ino, (offset, bytes.len()), write)
    }

    fn durable_at_return(&self) -> bool {
        self.fs.mode_of_writes().is_none()
    }

    fn is_shared(&self) -> bool {
        self.settings.shared
    }

    fn may_run(&self, ino: Ino) -> Reply<()> {
        if !self.done(self.fs.is_held_to_write(ino))? {
            return Ok(());
        }
        // What was marked for this program alone is not mapped.
        self.open_files.opened(ino);
        self.no_more_open(ino)?;
        Err(Errno(libc::ETXTBSY))
    }

    fn maps(&self, ino: Ino, asks: bool) -> Reply<bool> {
        self.open_files.before_mapping(ino);
        let _pass = self.enter(&[ino])?;
        if asks {
            return self.done(self.fs.ask_to_map(&Self::ctx(), ino));
        }
        self.done(self.fs.has_way_to_map(&Self::ctx(), ino))
    }

    fn mappings_turn(&self) -> u32 {
        self.fs.mappings_turn()
    }

    fn wait_for_mappings(&self, turn: u32, timeout: Duration) {
        self.fs.wait_for_mappings(turn, timeout);
    }

    fn room_turn(&self) -> Option<RoomTurn> {
        self.fs.room_turn()
    }

    fn wait_for_room(&self, turn: RoomTurn, short: Short, timeout: Duration) {
        self.fs.wait_for_room(turn, short, timeout);
    }

    fn closed(&self, ino: Ino, open: OpenRequest) {
        if self.settings.shared {
            self.no_more_open(ino).unwrap_or_default();
        }
        // Behind what is written back late, which goes by what is known of the stores.
        if open.stores {
            self.stores.ended(ino);
        }
    }

    fn fsync(&self, ino: Ino) -> Reply<()> {
        let _pass = self.enter(&[ino])?;
        let late = self.late.error(ino);
        self.done(self.fs.sync(&Self::ctx(), ino)).and(late)
    }

    fn readdir(
        &self,
        directory: (Ino, u64),
        after: u64,
        take: &mut dyn FnMut(&Listed) -> bool,
    ) -> Reply<()> {
        let _pass = self.gate.enter()?;
        if self.is_virtual(directory.0) {
            by_number::list(after, take);
            return Ok(());
        }
        self.list(directory, after, take)
    }

    fn readdirplus(
        &self,
        directory: (Ino, u64),
        after: u64,
        take: &mut dyn FnMut(&Listed, Option<&Attr>) -> bool,
    ) -> Reply<()> {
        let _pass = self.enter(&[directory.0])?;
        self.list_with_attributes(directory, after, take)
    }

    fn statfs(&self, ino: Ino) -> Reply<StatFs> {
        let _pass = self.gate.enter()?;
        let ino = if self.is_virtual(ino) { Ino::ROOT } else { ino };
        self.done(self.fs.statfs_of(ino))
    }

    fn fallocate(
        &self,
        caller: Caller,
        ino: Ino,
        mode: Fallocate,
        offset: u64,
        len: u64,
    ) -> Reply<Option<u64>> {
        let _pass = self.enter(&[ino])?;
        self.drop_unseen_set_id(&Self::ctx(), caller, ino)?;
        let mut change =
            |end: u64| self.done(self.fs.fallocate(&Self::ctx(), ino, mode, offset, end - offset));
        let bytes = offset..offset.saturating_add(len);
        let zeros = [Fallocate::PunchHole, Fallocate::ZeroRange, Fallocate::ZeroRangeKeepSize];
        if !zeros.contains(&mode) {
            return change(bytes.end).map(|()| None);
        }
        let read = &|at: u64, buf: &mut [u8]| self.peek(ino, at, buf);
        let data = &|from| self.done(holes::data_from(&self.fs, ino, from));
        self.stores.erase(ino, &bytes, &Now { read, data }, &mut change)
    }

    fn may_have_stores(&self, ino: Ino) -> bool {
        self.stores.may_store(ino)
    }

    fn pages_are_dropped(&self, ino: Ino, bytes: &Range<u64>, writes: u64) {
        self.stores.dropped(ino, bytes, writes);
    }

    fn is_erased(&self, ino: Ino, bytes: &Range<u64>) {
        self.stores.erased(ino, bytes);
    }

    fn old_stores(&self) -> Option<OldStores> {
        self.stores.old()
    }

    fn getxattr(&self, caller: Caller, ino: Ino, name: &[u8]) -> Reply<Vec<u8>> {
        let _pass = self.gate.enter()?;
        if name == FACTS.as_bytes() {
            return Self::told(caller, self.settings.facts.as_ref());
        }
        if name == SLOTS.as_bytes() {
            return Self::told(caller, self.settings.slots.as_ref());
        }
        if self.is_virtual(ino) {
            return Err(Errno(libc::ENODATA));
        }
        self.refuse_hidden(name)?;
        if let Some(which) = tree::Which::named(name) {
            return self.done(tree::get(&self.fs, ino, which));
        }
        if let Some(choice) = method::Choice::named(name) {
            return self.done(method::get(&self.fs, ino, choice));
        }
        self.done(self.fs.getxattr(Node::current(ino), name))
    }

    fn setxattr(
        &self,
        caller: Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Reply<()> {
        let _pass = self.enter(&[ino])?;
        self.refuse_hidden(name)?;
        if let Some(which) = tree::Which::named(name) {
            return self.done(tree::set(&self.fs, &Self::ctx(), ino, which, value));
        }
        if let Some(choice) = method::Choice::named(name) {
            let (ctx, value) = (Self::ctx(), Some((value, mode)));
            return self.done(method::set(&self.fs, &ctx, caller, ino, choice, value));
        }
        let clear_set_gid = name == ACL_ACCESS && {
            let attr = self.done(self.fs.getattr(ino))?;
            attr.mode & SET_GID != 0 && !groups::has(caller, attr.gid)
        };
        let set = SetXattr { name, value, mode, clear_set_gid };
        self.done(self.fs.setxattr(&Self::ctx(), Node::current(ino), &set))
    }

    fn listxattr(&self, caller: Caller, ino: Ino) -> Reply<Vec<u8>> {
        let _pass = self.gate.enter()?;
        if self.is_virtual(ino) {
            return Ok(Vec::new());
        }
        let names = self.done(self.fs.listxattr(Node::current(ino)))?;
        // Those that only the administrator may see the kernel leaves to us.
        let is_seen = |name: &&[u8]| {
            (caller.uid == 0 || !name.starts_with(TRUSTED_PREFIX)) && !self.hides(name)
        };
        let each = names.split_inclusive(|byte| *byte == 0);
        Ok(each.filter(is_seen).flatten().copied().collect())
    }

    fn removexattr(&self, caller: Caller, ino: Ino, name: &[u8]) -> Reply<()> {
        let _pass = self.enter(&[ino])?;
        self.refuse_hidden(name)?;
        if let Some(which) = tree::Which::named(name) {
            return self.done(tree::remove(&self.fs, &Self::ctx(), ino, which));
        }
        if let Some(choice) = method::Choice::named(name) {
            return self.done(method::set(&self.fs, &Self::ctx(), caller, ino, choice, None));
        }
        self.done(self.fs.removexattr(&Self::ctx(), Node::current(ino), name))
    }

    fn copy_range(
        &self,
        caller: Caller,
        from: Place,
        to: Place,
        len: u64,
        is_access: bool,
    ) -> Reply<u64> {
        let _pass = self.enter(&[from.ino, to.ino])?;
        // After the copy the kernel drops its pages with all that was stored to them meanwhile; what
        // it is refused it reads and writes.
        if self.stores.may_store(to.ino) {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let ctx = Self::ctx();
        self.drop_unseen_set_id(&ctx, caller, to.ino)?;
        self.done(if is_access {
            self.fs.copy_range(&ctx, from, to, len)
        } else {
            self.fs.copy_range_peeking(&ctx, from, to, len)
        })
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek, dropped: &Range<u64>) -> Reply<Sought> {
        let _pass = self.enter(&[ino])?;
        let found = self.fs.seek(ino, offset, what);
        if self.stores.may_store(ino)
            && let Some(hole) = self.done(holes::hole_of(&self.fs, (ino, offset, what), &found))?
            && !(dropped.start <= hole.start && hole.end <= dropped.end)
            && self.stores.may_store_in(ino, &hole)
        {
            return Ok(Sought::After(hole));
        }
        self.done(found).map(Sought::At)
    }
}
