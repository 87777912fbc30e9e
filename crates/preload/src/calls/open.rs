//! Opening files.

use novale_core::{Attr, Error, FileKind, Fs, HoldId, Ino, NewInode, Node, SetAttr, Unnamed};
use novale_posix::report::Why;
use novale_posix::{Found, SET_ID};

use crate::base::guard::{self, PathBuffer};
use crate::base::sys::{Args, Ret, Served, fail, sys};
use crate::base::{left, report};
use crate::fds::kernel;
use crate::fds::table::{self, BY_OTHER_MOUNT, CREATED, DIRECTORY, IN_KERNEL, LOCKED, New, SHARED};
use crate::mounts::state::{self, Rights};
use crate::mounts::{self, OfMount};
use crate::numbers;
use crate::paths::outside;
use crate::paths::{Place, R, W, descriptor, keeps_set_id, left_to_kernel, place, refused};

/// Flags that a description keeps.
const KEPT: i32 =
    !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOCTTY | libc::O_CLOEXEC);
/// Flags that count beside `O_PATH`.
const PATH_FLAGS: i32 = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
/// Flags that mean something; `open` passes over others, `openat2` refuses them.
const KNOWN: i32 = libc::O_ACCMODE
    | KEPT_BY_KERNEL
    | libc::O_CREAT
    | libc::O_EXCL
    | libc::O_NOCTTY
    | libc::O_TRUNC
    | libc::O_CLOEXEC;
const KEPT_BY_KERNEL: i32 = libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_SYNC
    | libc::O_ASYNC
    | libc::O_DIRECT
    | LARGE_FILE
    | libc::O_DIRECTORY
    | libc::O_NOFOLLOW
    | libc::O_NOATIME
    | libc::O_PATH
    | libc::O_TMPFILE;
/// What tells a file without a name from the opening of a directory.
const TMPFILE: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;
/// What tells `O_SYNC` from `O_DSYNC`, which it implies.
const ALL_SYNC: i32 = libc::O_SYNC & !libc::O_DSYNC;
/// Bits of a mode.
const MODE: u64 = 0o7777;
/// A directory in which who made a name may take it away alone; one that a group or everybody may write.
const STICKY: u32 = 0o1000;
const WRITABLE: u32 = 0o022;
/// The kernel's own flag for large files, which `F_GETFL` shows.
const LARGE_FILE: i32 = 0o100_000;

/// `open(path, flags, mode)`.
pub(crate) fn open(args: &Args) -> Served {
    let [path, flags, mode, ..] = *args;
    open_at(libc::AT_FDCWD as u64, path, flags as i32, mode as u32)
}

/// `creat(path, mode)`.
pub(crate) fn creat(args: &Args) -> Served {
    let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
    open_at(libc::AT_FDCWD as u64, args[0], flags, args[1] as u32)
}

/// `openat(dir, path, flags, mode)`.
pub(crate) fn openat(args: &Args) -> Served {
    let [dir, path, flags, mode, ..] = *args;
    open_at(dir, path, flags as i32, mode as u32)
}

/// `openat2(dir, path, how, size)`: with restrictions on the walk it is the kernel's.
pub(crate) fn openat2(args: &Args) -> Served {
    let [dir, path, how, size, ..] = *args;
    if size != 24 {
        return None;
    }
    let [flags, mode, resolve] = guard::load::<[u64; 3]>(how)?;
    let makes = flags & (libc::O_CREAT | TMPFILE) as u64 != 0;
    let known = if flags & libc::O_PATH as u64 != 0 { PATH_FLAGS } else { KNOWN };
    let allowed = if makes { MODE } else { 0 };
    // The kernel refuses these, or judges the walk.
    if resolve != 0 || flags & !(known as u64) != 0 || mode & !allowed != 0 {
        return None;
    }
    open_at(dir, path, flags as i32, mode as u32)
}

fn open_at(dir: u64, path: u64, flags: i32, mode: u32) -> Served {
    let mut buffer = PathBuffer::new();
    let follow = flags & libc::O_NOFOLLOW == 0 && flags & EXCLUSIVE != EXCLUSIVE;
    let place = place(dir, path, &mut buffer, follow)?;
    // The kernel shows by which mount something was opened, and from where `..` leads out of it. What it
    // has opened is served from then on.
    if place.other_mount.is_some() {
        report::because(Why::Outside);
        return None;
    }
    // What it opens by a path from outside is looked at wherever it lies.
    let by_kernel = || {
        let adopts = !place.from_outside && !may_wait(&place, flags);
        adopts.then(|| adopt(&place, dir, path, flags, mode))
    };
    let both = libc::O_DIRECTORY | libc::O_CREAT;
    let flags = known(flags);
    let unnamed = flags & TMPFILE != 0;
    // A file with a slash after its name the kernel has its own word for.
    let is_folders = flags & libc::O_CREAT != 0 && place.has_slash();
    let special = is_folders || flags & both == both || unnamed && flags & libc::O_DIRECTORY == 0;
    if special || place.rights == Rights::Kernel || left::FILES.is_begun() {
        return by_kernel();
    }
    let open = if unnamed { open_unnamed } else { open_found };
    match open(&place, flags, mode) {
        Opened::By(served) => served,
        Opened::ByKernel => by_kernel(),
        Opened::Gone => Some(fail(libc::ESTALE)),
    }
}

/// Flags as the kernel takes them: it passes over others, and one of them implies another.
fn known(flags: i32) -> i32 {
    let flags = flags & if flags & libc::O_PATH != 0 { PATH_FLAGS } else { KNOWN };
    if flags & ALL_SYNC == 0 { flags } else { flags | libc::O_DSYNC }
}

/// Whether opening may wait for somebody else, as that of a FIFO does, or what is opened lies outside
/// the mount. The program itself asks the kernel then: from in here no signal could end the wait.
fn may_wait(place: &Place<'_>, flags: i32) -> bool {
    let waits = |kind| !matches!(kind, FileKind::File | FileKind::Directory | FileKind::Symlink);
    match place.walk_unasked(flags & libc::O_NOFOLLOW == 0) {
        Ok(found) => found.attr.is_some_and(|attr| waits(attr.kind)),
        Err(served) => served.is_none(),
    }
}

/// What came of one attempt.
enum Opened {
    By(Served),
    ByKernel,
    /// What the name stood for was removed meanwhile, or somebody else has made it: it is to be looked
    /// for again.
    Gone,
}

fn open_found(place: &Place<'_>, flags: i32, mode: u32) -> Opened {
    let refuse = |errno| Opened::By(Some(fail(errno)));
    let follow = flags & libc::O_NOFOLLOW == 0;
    // What must not be there is looked for by who makes it.
    let exclusive = flags & EXCLUSIVE == EXCLUSIVE;
    let found = match if exclusive { place.walk_to_name() } else { place.walk(follow) } {
        Ok(found) => found,
        Err(None) => return Opened::ByKernel,
        // The slash may stand in a link: what is to be made with one is a directory, whatever is there.
        Err(Some(failed))
            if [libc::ENOTDIR, libc::ELOOP].map(fail).contains(&failed)
                && flags & libc::O_CREAT != 0 =>
        {
            return Opened::ByKernel;
        }
        Err(served) => return Opened::By(served),
    };
    match found.attr {
        Some(_) if exclusive => return refuse(libc::EEXIST),
        Some(attr) if attr.kind == FileKind::Directory => {
            let changes = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC;
            return open_directory(place, &found, flags, flags & changes != 0);
        }
        Some(_) if flags & libc::O_DIRECTORY != 0 => return refuse(libc::ENOTDIR),
        Some(_) if flags & libc::O_PATH != 0 => return Opened::ByKernel,
        Some(attr) if attr.kind == FileKind::Symlink => return refuse(libc::ELOOP),
        Some(attr) if attr.kind != FileKind::File => return Opened::ByKernel,
        // Who writes to a program that runs is told so by the kernel, which has it mapped; who has a
        // lease of a file is told of all that open it.
        Some(attr) if place.fs.is_mapped(&place.ctx, attr.ino).is_ok_and(|mapped| mapped) => {
            return Opened::ByKernel;
        }
        Some(attr) if flags & libc::O_CREAT != 0 && is_protected(place, found.parent, &attr) => {
            return Opened::ByKernel;
        }
        None if flags & libc::O_CREAT == 0 => return refuse(libc::ENOENT),
        None if found.slash => return refuse(libc::EISDIR),
        _ => {}
    }
    let may = match &found.attr {
        Some(attr) => may_open(place, attr, flags),
        None => may_create(place, found.parent, flags, mode),
    };
    if let Err(served) = may {
        return served.map_or(Opened::ByKernel, |result| Opened::By(Some(result)));
    }
    let fd = kernel::placeholder(place.mount);
    if fd < 0 {
        return Opened::By(Some(fd));
    }
    let (held, state) = match found.attr {
        Some(attr) => (hold(place, &attr, flags), 0),
        None => (create(place, &found, flags, mode).map(Some), CREATED),
    };
    if let Ok(Some((attr, held))) = held {
        let mut new = description(place.mount, &attr, flags, state, Some(held));
        new.name = found.name.as_deref().map(|name| (found.parent.ino, name));
        return Opened::By(insert(fd, &new));
    }
    table::give_back(fd as i32);
    match held {
        Ok(_) => Opened::Gone,
        Err(error) if left_to_kernel(&error).is_some() => Opened::ByKernel,
        Err(Error::Exists) if flags & libc::O_EXCL == 0 => Opened::Gone,
        Err(error) => Opened::By(refused(&error)),
    }
}

/// Whether the kernel may refuse to open this file for whom it would have been made: one of another
/// user's in a sticky directory that others may write (`fs.protected_regular`).
fn is_protected(place: &Place<'_>, parent: Node, attr: &Attr) -> bool {
    if attr.uid == state::owner().0 {
        return false;
    }
    let is_open = |dir: Attr| dir.mode & STICKY != 0 && dir.mode & WRITABLE != 0;
    let is_others = |dir: Attr| dir.uid != attr.uid && is_open(dir);
    place.fs.getattr_of(parent).map_or(true, is_others)
}

/// The bits that opening with these flags needs.
fn bits(flags: i32) -> u32 {
    let empties = if flags & libc::O_TRUNC != 0 { W } else { 0 };
    empties
        | match flags & libc::O_ACCMODE {
            _ if flags & libc::O_PATH != 0 => 0,
            libc::O_RDONLY => R,
            libc::O_WRONLY => W,
            _ => R | W,
        }
}

/// Leaves it to the kernel to open what the user may not open as its owner, and to take set-id bits away
/// from what is written.
fn may_open(place: &Place<'_>, attr: &Attr, flags: i32) -> Result<(), Served> {
    let bits = bits(flags);
    let is_kept = bits & W == 0 || keeps_set_id(place.rights, attr.mode);
    if is_kept { place.may(attr, bits) } else { Err(None) }
}

/// Leaves it to the kernel to make what it would not open again for the user, to hand it over, and
/// what is to have a group's rights.
fn may_create(place: &Place<'_>, parent: Node, flags: i32, mode: u32) -> Result<(), Served> {
    let (bits, given) = (bits(flags), (mode & !state::umask()) >> 6);
    if place.rights != Rights::All && (mode & SET_ID != 0 || given & bits != bits) {
        return Err(None);
    }
    place.may_change(parent)
}

/// Opens a directory, to list it or to start from it.
fn open_directory(place: &Place<'_>, found: &Found<'_>, flags: i32, changes: bool) -> Opened {
    let Some(attr) = &found.attr else { return Opened::Gone };
    if changes {
        return Opened::By(Some(fail(libc::EISDIR)));
    }
    if flags & libc::O_DIRECT != 0 {
        return Opened::ByKernel;
    }
    if let Err(served) = place.may(attr, bits(flags)) {
        return served.map_or(Opened::ByKernel, |result| Opened::By(Some(result)));
    }
    let fd = kernel::placeholder(place.mount);
    if fd < 0 {
        return Opened::By(Some(fd));
    }
    let held = place.fs.open_hold(&place.ctx, attr.ino, attr.generation);
    if let Ok(Some(held)) = held {
        let mut new = description(place.mount, attr, flags, DIRECTORY, Some(held));
        new.name = found.name.as_deref().map(|name| (found.parent.ino, name));
        return Opened::By(insert(fd, &new));
    }
    table::give_back(fd as i32);
    held.map_or_else(|error| Opened::By(refused(&error)), |_| Opened::Gone)
}

/// Opens a file without a name, in the directory that the path leads to (`O_TMPFILE`).
fn open_unnamed(place: &Place<'_>, flags: i32, mode: u32) -> Opened {
    let refuse = |errno| Opened::By(Some(fail(errno)));
    if flags & libc::O_ACCMODE == libc::O_RDONLY {
        return refuse(libc::EINVAL);
    }
    let dir = match place.walk(flags & libc::O_NOFOLLOW == 0) {
        Ok(found) => found.attr,
        Err(None) => return Opened::ByKernel,
        Err(served) => return Opened::By(served),
    };
    let Some(dir) = dir else { return refuse(libc::ENOENT) };
    if dir.kind != FileKind::Directory {
        return refuse(libc::ENOTDIR);
    }
    if let Err(served) = may_create(place, dir.node(), flags, mode) {
        return served.map_or(Opened::ByKernel, |result| Opened::By(Some(result)));
    }
    let fd = kernel::placeholder(place.mount);
    if fd < 0 {
        return Opened::By(Some(fd));
    }
    let how = Unnamed { may_be_named: flags & libc::O_EXCL == 0, umask: state::umask() };
    let held = place.fs.create_unnamed_held(&place.ctx, dir.node(), &new_file(mode), how);
    match held.and_then(|(attr, held)| Ok((attr, hold_as_opened(place.fs, held, flags)?))) {
        Ok((attr, held)) => {
            let mut new = description(place.mount, &attr, flags, CREATED, Some(held));
            let name = format!("#{}", attr.ino.get());
            new.name = Some((dir.ino, name.as_bytes()));
            Opened::By(insert(fd, &new))
        }
        Err(error) => {
            table::give_back(fd as i32);
            Opened::By(refused(&error))
        }
    }
}

fn new_file(mode: u32) -> NewInode<'static> {
    let (uid, gid) = state::owner();
    NewInode { kind: FileKind::File, mode: mode & 0o7777, uid, gid, rdev: 0, target: b"" }
}

/// Holds a file, and empties it where that is asked for.
fn hold(place: &Place<'_>, attr: &Attr, flags: i32) -> Result<Option<(Attr, HoldId)>, Error> {
    let (fs, ctx) = (place.fs, &place.ctx);
    let Some(hold) = fs.open_hold(ctx, attr.ino, attr.generation)? else { return Ok(None) };
    let hold = hold_as_opened(fs, hold, flags)?;
    let ready = (|| {
        // Who writes to a program that runs is told so by the kernel, which has it mapped.
        if table::writes(flags) && fs.is_mapped(ctx, attr.ino)? {
            return Err(Error::Mapped);
        }
        // One that is empty gets new times, too, and loses its capabilities.
        if flags & libc::O_TRUNC != 0 {
            fs.setattr(ctx, attr.node(), &SetAttr { size: Some(0), ..SetAttr::default() })?;
        }
        Ok(())
    })();
    if let Err(error) = ready {
        fs.open_release(ctx, hold)?;
        return Err(error);
    }
    Ok(Some((*attr, hold)))
}

/// Says of a hold what its file is open for.
fn hold_as_opened(fs: &Fs, hold: HoldId, flags: i32) -> Result<HoldId, Error> {
    if table::writes(flags) { fs.hold_to_write(hold) } else { Ok(hold) }
}

const EXCLUSIVE: i32 = libc::O_CREAT | libc::O_EXCL;

fn create(
    place: &Place<'_>,
    found: &Found<'_>,
    flags: i32,
    mode: u32,
) -> Result<(Attr, HoldId), Error> {
    let name = found.name.as_deref().ok_or(Error::Exists)?;
    let new = new_file(mode);
    let (attr, hold) =
        place.fs.create_held(&place.ctx, found.parent, name, &new, state::umask())?;
    Ok((attr, hold_as_opened(place.fs, hold, flags)?))
}

fn description(
    mount: usize,
    attr: &Attr,
    flags: i32,
    state: u32,
    hold: Option<HoldId>,
) -> New<'static> {
    let stays = flags & libc::O_CLOEXEC == 0;
    let large = if flags & libc::O_PATH != 0 { 0 } else { LARGE_FILE };
    let flags = flags & KEPT | large;
    let Attr { ino, generation, .. } = *attr;
    New { ino, generation, flags, state, mount, hold, stays, name: None }
}

fn insert(fd: Ret, new: &New<'_>) -> Served {
    let number = i32::try_from(fd).unwrap_or(-1);
    if table::insert(number, new) {
        return Some(fd);
    }
    if let Some(hold) = new.hold {
        mounts::release(new.mount, hold);
    }
    if new.state & IN_KERNEL != 0 {
        return Some(fd);
    }
    table::give_back(number);
    Some(fail(libc::EMFILE))
}

/// Lets the kernel open it, with all its checks, and serves what can be served from then on. The inode
/// can't go away, since the kernel holds it.
fn adopt(place: &Place<'_>, dir: u64, path: u64, flags: i32, mode: u32) -> Ret {
    report::because(if left::FILES.is_begun() {
        Why::Asynchronous
    } else if place.rights != Rights::All {
        Why::Rights
    } else {
        Why::Call
    });
    numbers::clear();
    kernel::take_directory(descriptor(dir));
    let fd = sys!(libc::SYS_openat, descriptor(dir), path, flags, mode);
    if fd < 0 || flags & libc::O_PATH != 0 {
        return fd;
    }
    if let Some(ino) = mounts::inode_of(place.mount, fd) {
        serve_opened(place.mount, (fd, known(flags)), ino, 0);
    }
    fd
}

/// Serves what the kernel has opened, where it can be served.
fn serve_opened(mount: usize, (fd, flags): (Ret, i32), ino: Ino, state: u32) -> Option<()> {
    insert(fd, &opened(mount, flags, ino, state)?).map(drop)
}

/// What the kernel has opened, where it can be served; `state` says what else is so.
fn opened(mount: usize, flags: i32, ino: Ino, state: u32) -> Option<New<'static>> {
    let attr = mounts::fs(mount)?.getattr(ino).ok()?;
    let mut state = state | IN_KERNEL;
    if attr.kind == FileKind::Directory {
        state |= DIRECTORY;
    } else if attr.kind != FileKind::File || flags & libc::O_PATH != 0 {
        return None;
    }
    if left::FILES.is_begun() {
        state |= SHARED;
    }
    // The kernel takes the bits away with the first write.
    let writes = table::writes(flags);
    if writes && !keeps_set_id(state::rights(), attr.mode) {
        return None;
    }
    Some(description(mount, &attr, flags, state, None))
}

/// The kernel has opened something outside of the mounts, as far as the path told: by a symbolic link, a
/// bind mount or `/proc` it may lie in one all the same.
pub(crate) fn found(number: i64, args: &Args, fd: i32) -> Option<()> {
    let flags = known(match number {
        libc::SYS_open => args[1] as i32,
        libc::SYS_creat => libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC,
        libc::SYS_openat => args[2] as i32,
        _ => guard::load::<u64>(args[2])? as i32,
    });
    let found = mounts::of_descriptor(fd)?;
    let (dir, path) = match number {
        libc::SYS_open | libc::SYS_creat => (libc::AT_FDCWD, args[0]),
        _ => (descriptor(args[0]), args[1]),
    };
    PathBuffer::new().load(path).into_iter().for_each(|path| outside::learn(dir, path));
    let writes = table::writes(flags) && flags & libc::O_PATH == 0;
    // By another mount of the same pool `..` may lead elsewhere, and it may be there to be read alone.
    if !found.is_at_target && (found.is_directory || !writes && !may_be_changed(fd)) {
        if found.is_directory {
            outside::learn_directory(fd);
        }
        return None;
    }
    serve_opened(found.mount, (Ret::from(fd), flags), found.ino, by_mount(&found))
}

/// What the state of a file says of the mount that the kernel has opened it by.
fn by_mount(found: &OfMount) -> u32 {
    if found.is_at_target { 0 } else { BY_OTHER_MOUNT }
}

/// What has come from another process or program, which may have it too: served as far as that needs no
/// position.
pub(crate) fn inherited(fd: i32) -> Option<New<'static>> {
    let found = mounts::of_descriptor(fd)?;
    let flags = i32::try_from(sys!(libc::SYS_fcntl, fd, libc::F_GETFL)).ok()?;
    let of_number = sys!(libc::SYS_fcntl, fd, libc::F_GETFD);
    let writes = table::writes(flags);
    let is_at_target = found.is_at_target;
    if flags < 0 || !is_at_target && (found.is_directory || !writes && !may_be_changed(fd)) {
        return None;
    }
    let closes = of_number & i64::from(libc::FD_CLOEXEC) != 0;
    let flags = flags | if closes { libc::O_CLOEXEC } else { 0 };
    opened(found.mount, flags, found.ino, SHARED | LOCKED | by_mount(&found))
}

/// A descriptor has come in a message.
pub(crate) fn received(fd: i32) {
    if let Some(new) = inherited(fd) {
        insert(Ret::from(fd), &new);
    }
}

/// Whether what lies of a descriptor may be changed, as far as its mount goes.
fn may_be_changed(fd: i32) -> bool {
    let flags = libc::AT_EMPTY_PATH;
    sys!(libc::SYS_faccessat2, fd, c"".as_ptr(), libc::W_OK, flags) == 0
}
