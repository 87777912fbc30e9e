//! From the path arguments of a call to a place in a mount, if they lead into one: as they are written, in any
//! spelling (`spelling.rs`), or from outside, by links and bind mounts (`outside.rs`; `ways.rs` remembers them).
//!
//! Comes in: a directory and a path, from what serves calls. Never here: what a call does at the place.

pub(crate) mod outside;
pub(crate) mod spelling;
mod ways;

use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use novale_core::{Attr, Ctx, FileKind, Fs, Ino, Node};
use novale_posix::report::Why;
use novale_posix::{
    Error, Found, SET_ID, Start, may_as_owner, walk_from, walk_own, walk_own_to_name, walk_to_name,
};

use crate::base::classes::OF_KERNELS_PATHS;
use crate::base::guard::{self, PATH_MAX, PathBuffer};
use crate::base::lock::Lock;
use crate::base::sys::{Args, Ret, Served, fail, sys};
use crate::base::{left, report};
use crate::fds::{kernel, quiet, table};
use crate::mounts::state::{self, Rights};
use crate::mounts::{self, OtherMount};
use crate::paths::outside::Entered;
use crate::paths::spelling::From;

/// Where a path starts, below a mount.
pub(crate) struct Place<'a> {
    pub(crate) mount: usize,
    pub(crate) fs: &'static Fs,
    pub(crate) ctx: Ctx,
    pub(crate) rights: Rights,
    /// The other mount of the pool that the path has led to: where that does not show, the calls are the
    /// kernel's.
    pub(crate) other_mount: Option<OtherMount>,
    /// What the kernel does with the same path may be about something else.
    pub(crate) from_outside: bool,
    start: Start,
    /// The path from `start` on.
    path: Cow<'a, [u8]>,
}

/// The working directory, as far as it is known: one of [`CWD_UNKNOWN`], [`CWD_KERNEL`], or a mount
/// plus 2.
static CWD: AtomicU32 = AtomicU32::new(CWD_UNKNOWN);
static CWD_INO: AtomicU64 = AtomicU64::new(0);
static CWD_GENERATION: AtomicU32 = AtomicU32::new(0);
/// How often it has become another one, perhaps; what was found before that is noted no more.
static MOVES: AtomicU32 = AtomicU32::new(0);
static NOTING: Lock<()> = Lock::new(());
/// Looks at a working directory that is moved meanwhile, before it is left to the kernel.
const ATTEMPTS: u32 = 16;
/// Symbolic links followed on one walk, as in Linux.
const SYMLINKS_MAX: u32 = 40;
const CWD_UNKNOWN: u32 = 0;
const CWD_KERNEL: u32 = 1;

/// Calls under way that change which directory is the working one.
static MOVING: AtomicU32 = AtomicU32::new(0);

/// Makes a call that may lead relative paths elsewhere. It may wait for a file system that hangs.
pub(crate) fn move_by(call: impl FnOnce() -> Ret) -> Ret {
    MOVING.fetch_add(1, Ordering::Relaxed);
    let result = quiet::outside(call);
    moved();
    MOVING.fetch_sub(1, Ordering::Relaxed);
    result
}

/// Makes a call that may lead all paths elsewhere, and calls `leave` if it has. It may wait as well. What is
/// open is handed over before, by paths that mean what they did; what others open meanwhile is the kernel's.
pub(crate) fn leave_by(call: impl FnOnce() -> Ret, leave: impl FnOnce()) -> Ret {
    left::leaving();
    {
        let quiet = quiet::Quiet::of_call();
        quiet.wait(quiet::PATIENCE);
        kernel::take_all(0);
    }
    let result = quiet::outside(call);
    if result == 0 {
        leave();
    }
    left::has_left();
    result
}

/// In the child of a fork: of a call that another thread was making at that moment nobody tells what it did.
pub(crate) fn after_fork() {
    if MOVING.swap(0, Ordering::Relaxed) > 0 {
        moved();
    }
    if left::forget_leaving() {
        kernel::elsewhere();
    }
}

/// The working directory may be another one now.
fn moved() {
    let _noting = NOTING.lock();
    MOVES.fetch_add(1, Ordering::SeqCst);
    CWD.store(CWD_UNKNOWN, Ordering::Release);
}

/// Keeps other threads out while the process forks.
pub(crate) fn before_fork() {
    NOTING.take();
    spelling::before_fork();
    outside::before_fork();
}

/// Called in parent and child.
pub(crate) fn fork_done() {
    NOTING.give();
    outside::fork_done();
    spelling::fork_done();
}

/// The place that a path argument names; `None` where it is the kernel's, which also says what is
/// wrong with a bad one.
/// With `follow` a symbolic link that is its last name counts as what that leads to.
pub(crate) fn place(
    dir: u64,
    path: u64,
    buffer: &mut PathBuffer,
    follow: bool,
) -> Option<Place<'_>> {
    if left::has_all() {
        return None;
    }
    let (dir, path) = spelling::plain(dir, buffer.load(path)?);
    let Entered { mount, start, path, other_mount, from_outside } = if path.starts_with(b"/") {
        if leads_to_descriptors(path) {
            kernel::take_all(0);
            return None;
        }
        let outside = || outside::enter(libc::AT_FDCWD, path, follow);
        spelling::written(path).map(from_root).or_else(outside)?
    } else if let Some((mount, start)) = directory(descriptor(dir)) {
        inside(mount, start, path)
    } else {
        let dir = descriptor(dir);
        let from = if dir == libc::AT_FDCWD { From::Cwd } else { From::Descriptor(dir) };
        spelling::enter(from, path).map(from_root).or_else(|| outside::enter(dir, path, follow))?
    };
    let fs = mounts::fs(mount)?;
    let mut rights = state::rights();
    // A mount that the user can't come to is closed to it here, too.
    if rights != Rights::All && mounts::device(mount) == 0 {
        rights = Rights::Kernel;
    }
    Some(Place { mount, fs, ctx: mounts::ctx(), rights, other_mount, from_outside, start, path })
}

/// Where a path goes on from a directory of a mount that is known here.
fn inside(mount: usize, start: Node, path: &[u8]) -> Entered<'_> {
    let start = Start::Whole(start);
    Entered { mount, start, path: path.into(), other_mount: None, from_outside: false }
}

/// Where a path goes on that has come to a mount point, which itself is the root.
fn from_root((mount, rest): (usize, &[u8])) -> Entered<'_> {
    inside(mount, Node::ROOT, if rest.is_empty() { b"/" } else { rest })
}

/// A descriptor argument: the kernel looks at its lower half.
pub(crate) fn descriptor(argument: u64) -> i32 {
    argument as u32 as i32
}

/// Whether a path names a descriptor, which must then be what it seems to be.
fn leads_to_descriptors(path: &[u8]) -> bool {
    let in_proc = path.starts_with(b"/proc/") && path.windows(4).any(|part| part == b"/fd/");
    in_proc || path.starts_with(b"/dev/fd/") || path.starts_with(b"/dev/std")
}

/// Before a call that is the kernel's: where its path, or its socket's address, names a descriptor, that is what it
/// seems to be.
pub(crate) fn take_named(number: i64, args: &Args) {
    let mut buffer = PathBuffer::new();
    let path = match number {
        libc::SYS_utime
        | libc::SYS_utimes
        | libc::SYS_mknod
        | libc::SYS_acct
        | libc::SYS_swapon
        | libc::SYS_swapoff => buffer.load(args[0]),
        libc::SYS_fanotify_mark => buffer.load(args[4]),
        libc::SYS_bind | libc::SYS_connect => socket_path(&mut buffer, args[1], args[2]),
        // The name and its length come first.
        libc::SYS_sendmsg => guard::load::<[u64; 2]>(args[1])
            .and_then(|[name, len]| socket_path(&mut buffer, name, u64::from(len as u32))),
        // Those on a directory and a path.
        other if OF_KERNELS_PATHS.contains(&other) => buffer.load(args[1]),
        _ => None,
    };
    if path.is_some_and(leads_to_descriptors) {
        kernel::take_all(0);
    }
}

/// The path in a socket's address of so many bytes, where that is one.
fn socket_path(buffer: &mut PathBuffer, at: u64, len: u64) -> Option<&[u8]> {
    const PATH_AT: usize = std::mem::offset_of!(libc::sockaddr_un, sun_path);
    let len = usize::try_from(len).ok()?.min(size_of::<libc::sockaddr_un>());
    let bytes = buffer.load_bytes(at, len);
    let (family, path) = bytes.split_at_checked(PATH_AT)?;
    (family == (libc::AF_UNIX as libc::sa_family_t).to_le_bytes()).then_some(path)
}

/// The descriptor of this process that a path names.
pub(crate) fn named_descriptor(path: &[u8]) -> Option<i32> {
    if !path.starts_with(b"/proc/") && !path.starts_with(b"/dev/fd/") {
        return None;
    }
    let own = format!("/proc/{}/fd/", sys!(libc::SYS_getpid));
    let folders = ["/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/", &own];
    let number = folders.iter().find_map(|folder| path.strip_prefix(folder.as_bytes()))?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// The directory that a descriptor, or `AT_FDCWD`, stands for.
fn directory(dir: i32) -> Option<(usize, Node)> {
    if dir == libc::AT_FDCWD {
        return working_directory();
    }
    let directory = table::get(dir)?;
    directory.is(table::DIRECTORY).then(|| (directory.mount(), directory.node()))
}

fn working_directory() -> Option<(usize, Node)> {
    // While this stays so many, what is noted is all of one.
    let before = MOVES.load(Ordering::Acquire);
    match CWD.load(Ordering::Acquire) {
        CWD_KERNEL => None,
        CWD_UNKNOWN => find_working_directory(),
        mount => {
            let ino = Ino::new(CWD_INO.load(Ordering::Acquire));
            let node = Node::new(ino, CWD_GENERATION.load(Ordering::Acquire));
            if MOVES.load(Ordering::Acquire) != before {
                return find_working_directory();
            }
            Some((usize::try_from(mount - 2).ok()?, node))
        }
    }
}

/// By the kernel's name of it. While a directory on that path is moved, to the kernel or to the pool, the name leads
/// elsewhere to one of them: the directory is the one that the kernel is in, or this is asked again.
#[cold]
fn find_working_directory() -> Option<(usize, Node)> {
    let before = MOVES.load(Ordering::SeqCst);
    let mut path = [0u8; PATH_MAX];
    for _ in 0..ATTEMPTS {
        let len = sys!(libc::SYS_getcwd, path.as_mut_ptr(), path.len());
        let named = usize::try_from(len).ok().and_then(|len| path.get(..len));
        let Some((mount, attr)) = named.and_then(directory_named) else { break };
        if !spelling::is_working_directory(mount, attr.ino) {
            sys!(libc::SYS_sched_yield);
            continue;
        }
        let _noting = NOTING.lock();
        if MOVES.load(Ordering::SeqCst) == before {
            CWD_INO.store(attr.ino.get(), Ordering::Relaxed);
            CWD_GENERATION.store(attr.generation, Ordering::Relaxed);
            CWD.store(u32::try_from(mount).ok()? + 2, Ordering::Release);
        }
        return Some((mount, attr.node()));
    }
    let len = sys!(libc::SYS_getcwd, path.as_mut_ptr(), path.len());
    let named = usize::try_from(len).ok().and_then(|len| path.get(..len));
    let outside = spelling::working_directory_outside(named);
    let _noting = NOTING.lock();
    if MOVES.load(Ordering::SeqCst) == before {
        spelling::note_working_directory(outside);
        CWD.store(CWD_KERNEL, Ordering::Release);
    }
    None
}

/// The directory that the kernel names, with a NUL after its path, in a mount's pool.
fn directory_named(path: &[u8]) -> Option<(usize, Attr)> {
    let (mount, rest) = mounts::of_path(path.strip_suffix(b"\0")?)?;
    let rest = if rest.is_empty() { b"/" } else { rest };
    let start = Start::Whole(Node::ROOT);
    let found = walk_from(mounts::fs(mount)?, &mounts::ctx(), start, rest, true).ok()?;
    found.attr.filter(|attr| attr.kind == FileKind::Directory).map(|attr| (mount, attr))
}

impl Place<'_> {
    /// To be called once another path has been followed: meanwhile the pool may have been left, and joined
    /// anew.
    pub(crate) fn renew(&mut self) -> Result<(), Served> {
        self.fs = mounts::fs(self.mount).ok_or(None)?;
        Ok(())
    }

    /// Walks to the end of the path. `Err` is what the call returns, or nothing for the kernel's.
    pub(crate) fn walk(&self, follow: bool) -> Result<Found<'_>, Served> {
        if self.rights == Rights::Kernel {
            return Err(None);
        }
        self.by_links(|start, path| match self.rights {
            Rights::Own(user) => walk_own(self.fs, &self.ctx, start, path, (follow, user)),
            Rights::All | Rights::Kernel => walk_from(self.fs, &self.ctx, start, path, follow),
        })
    }

    /// Walks, and goes on where a symbolic link with a path from the process' root leads into the same
    /// mount: by as many as the kernel follows, which says what is wrong with more.
    fn by_links(
        &self,
        walk: impl for<'p> Fn(Start, &'p [u8]) -> Result<Found<'p>, Error>,
    ) -> Result<Found<'_>, Served> {
        let mut error = match walk(self.start, &self.path) {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        for _ in 0..SYMLINKS_MAX {
            let Error::LeavesTo(path) = &error else { break };
            // From another mount of the pool it leads out of that.
            let entered = spelling::written(path).filter(|_| self.other_mount.is_none());
            let same = entered.filter(|(mount, _)| *mount == self.mount);
            let Entered { start, path, .. } = from_root(same.ok_or(None)?);
            match walk(start, &path).map(Found::into_owned) {
                Ok(found) => return Ok(found),
                Err(next) => error = next,
            }
        }
        Err(failed(&error))
    }

    /// As [`Place::walk`], whatever the permissions on the way: not to be used but to leave a call to
    /// the kernel.
    pub(crate) fn walk_unasked(&self, follow: bool) -> Result<Found<'_>, Served> {
        self.by_links(|start, path| walk_from(self.fs, &self.ctx, start, path, follow))
    }

    /// Whether a slash ends the path.
    pub(crate) fn has_slash(&self) -> bool {
        self.path.ends_with(b"/")
    }

    /// As [`Place::walk`], without a look at a last name that no slash follows.
    pub(crate) fn walk_to_name(&self) -> Result<Found<'_>, Served> {
        if self.rights == Rights::Kernel {
            return Err(None);
        }
        self.by_links(|start, path| match self.rights {
            Rights::Own(user) => walk_own_to_name(self.fs, &self.ctx, start, path, user),
            Rights::All | Rights::Kernel => walk_to_name(self.fs, &self.ctx, start, path),
        })
    }

    /// Leaves it to the kernel to make, remove or move names in a directory that the walk came to, unless
    /// it may be done here.
    pub(crate) fn may_change(&self, directory: Node) -> Result<(), Served> {
        if self.rights == Rights::All {
            return Ok(());
        }
        let attr = self.fs.getattr_of(directory).map_err(|error| refused(&error))?;
        self.may(&attr, W | X)
    }

    /// Leaves what needs these bits of an inode to the kernel, unless it may be done here.
    pub(crate) fn may(&self, attr: &Attr, bits: u32) -> Result<(), Served> {
        may(self.rights, attr, bits)
    }
}

/// Bits for an owner's rights.
pub(crate) const R: u32 = 4;
pub(crate) const W: u32 = 2;
pub(crate) const X: u32 = 1;

/// Leaves what needs an owner's rights to an inode, and these of its bits, to the kernel, unless it may be
/// done here.
pub(crate) fn may(rights: Rights, attr: &Attr, bits: u32) -> Result<(), Served> {
    let has = match rights {
        Rights::All => true,
        Rights::Own(user) => may_as_owner(user, attr, bits),
        Rights::Kernel => false,
    };
    if has {
        return Ok(());
    }
    report::because(Why::Rights);
    Err(None)
}

/// Whether changes of an inode's contents leave its set-id bits alone: of the others the kernel takes them.
pub(crate) fn keeps_set_id(rights: Rights, mode: u32) -> bool {
    rights == Rights::All || mode & SET_ID == 0
}

/// What a call returns for an error of the walk or of the file system.
pub(crate) fn failed(error: &Error) -> Served {
    if matches!(error, Error::Leaves | Error::LeavesTo(_)) {
        None
    } else {
        Some(fail(error.errno()))
    }
}

/// As [`failed`], for an error of the file system itself.
pub(crate) fn refused(error: &novale_core::Error) -> Served {
    match left_to_kernel(error) {
        Some(why) => {
            report::because(why);
            None
        }
        None => Some(fail(novale_posix::errno(error))),
    }
}

/// Why the kernel makes a call that the file system has refused here, where it does.
pub(crate) fn left_to_kernel(error: &novale_core::Error) -> Option<Why> {
    // A file that the kernel has mapped is changed through the kernel.
    if matches!(error, novale_core::Error::Mapped) {
        return Some(Why::Mapped);
    }
    // The memory that clients share is a file, too, and grows no further in such a process: the daemon
    // has it grow.
    let grows = !matches!(error, novale_core::Error::NoMemory) || !state::has_size_limit();
    (!grows).then_some(Why::SizeLimit)
}
