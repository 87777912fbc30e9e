//! Descriptors handed over to the kernel, for all that is not served here.
//!
//! A number in the table is at first a placeholder in the kernel: a descriptor that can do nothing,
//! so that whatever overlooks this library fails and does not go wrong. To *take* a description is to
//! open its file through the mount, by its inode number, and to put that over all its numbers. From then
//! on the kernel can do anything with it; this library goes on to read and write it directly. Once
//! another process may have it too, the position is the kernel's.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use novale_core::{Fs, Ino};
use novale_posix::by_number;

use crate::base::guard::PATH_MAX;
use crate::base::left;
use crate::base::lock::Lock;
use crate::base::say::say;
use crate::base::settings::{self, Variable};
use crate::base::sys::{Ret, fail, sys};
use crate::fds::quiet::{BRIEFLY, Quiet};
use crate::fds::table::{self, DIRECTORY, IN_KERNEL, InUse, MAPPED, SHARED};
use crate::fds::{forget, locks, quiet, shown};
use crate::mounts::again::{self, There};
use crate::mounts::kept;
use crate::mounts::places::{self, NoPath};
use crate::mounts::{self, Mount, ctx};
use crate::numbers::{self, limits, words};

/// Flags of `open` that the kernel's description has too.
const KEPT: i32 = libc::O_ACCMODE
    | libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_DSYNC
    | libc::O_SYNC
    | libc::O_DIRECT
    | libc::O_NOFOLLOW
    | libc::O_NOATIME;
/// And of `open` of a directory.
const DIRECTORIES: i32 = libc::O_DIRECTORY | libc::O_PATH;
/// Looks for a removed directory whose name among the numbers others take away.
const ATTEMPTS: u32 = 8;
/// What is said of a directory whose path is longer than a path may be.
const DEEP: Ret = fail(libc::ENAMETOOLONG);
/// What is said where the mount is gone that a file or a directory was opened in.
const GONE: Ret = fail(libc::ESTALE);
/// Openings of what others close meanwhile.
const OPENINGS: u32 = 64;
/// Times that the kernel is asked for a file's length, at most.
const LOOKS: u32 = 8;

/// How long a thread of the program waits for others to give way.
const PATIENCE_NS: i64 = 6_000_000_000;
const TICK: Duration = Duration::from_millis(100);

pub(super) static TAKING: Lock<()> = Lock::new(());
/// The kernel may have mapped a file of a mount in this process.
static MAPS: AtomicBool = AtomicBool::new(false);
/// Leaves all paths to the kernel from now on.
pub(crate) fn elsewhere() {
    numbers::stop();
    left::leave_paths();
    // Where the program has another root by now, a path that starts there leads out of it.
    let _taking = TAKING.lock();
    for mount in mounts::all() {
        close(&mount.root);
        close(&mount.former_root);
    }
}

/// Closes what placeholders are duplicates of, for a process that makes none any more.
pub(crate) fn forget_originals() {
    let _taking = TAKING.lock();
    for mount in mounts::all() {
        close(&mount.original);
    }
}

/// Closes a descriptor of this library's, if there is one.
fn close(kept: &AtomicI32) {
    let fd = kept.swap(0, Ordering::AcqRel);
    if fd != 0 {
        words::forget_internal(fd);
        sys!(libc::SYS_close, fd);
        numbers::freed_any();
    }
}

/// Makes every file the kernel's from now on.
pub(crate) fn give_all() {
    numbers::stop();
    left::FILES.begin();
    take_all(SHARED);
}

/// As [`give_all`], before a call after which the kernel may do something with any file without another call:
/// those too that other threads are opening at this moment. Of several threads that make such a call each waits for
/// that.
pub(crate) fn give_all_at_once() {
    give_all();
    let quiet = Quiet::of_call();
    // A thread that stays inside has found the file that it opens the kernel's, or waits for another process.
    quiet.wait(BRIEFLY);
    take_all(SHARED);
    drop(quiet);
    left::FILES.end();
}

/// As [`give_all_at_once`], before the kernel may close a number, and give it to another file, without another
/// call: by the number nothing is served any more. What could not be handed over stays a placeholder.
pub(crate) fn leave_numbers() {
    if left::NUMBERS.is_done() {
        return;
    }
    give_all_at_once();
    left::NUMBERS.begin();
    // It ends a read by such a call where it was last told that the file does.
    hand_over_all();
    forget::forget_the_kernels();
    left::NUMBERS.end();
}

/// A new placeholder: the lowest free number.
pub(crate) fn placeholder(mount: usize) -> Ret {
    let original = match original(mount) {
        Ok(original) => original,
        Err(failed) => return failed,
    };
    let made = numbers::take(|| sys!(libc::SYS_fcntl, original, libc::F_DUPFD_CLOEXEC, 0));
    // Where there may be none at all, the kernel takes the lowest of them for a wrong one.
    if made == fail(libc::EINVAL) { fail(libc::EMFILE) } else { made }
}

/// The descriptor that placeholders of a mount are duplicates of: it can't be read or written, nor be
/// where a path starts.
fn original(mount: usize) -> Result<i32, Ret> {
    let Some(known) = mounts::all().get(mount) else { return Err(fail(libc::EIO)) };
    let there = || Some(known.original.load(Ordering::Acquire)).filter(|fd| *fd != 0);
    if let Some(fd) = there() {
        return Ok(fd);
    }
    let _taking = TAKING.lock();
    locks::look_once();
    if let Some(fd) = there() {
        return Ok(fd);
    }
    let path = [known.target.as_slice(), b"\0"].concat();
    // It keeps the mount from going; but calls would start from it as from a directory.
    let root = keep_root(&path)?;
    let link = keep(|| {
        let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        sys!(libc::SYS_openat, libc::AT_FDCWD, c"/proc/thread-self/exe".as_ptr(), flags, 0)
    });
    if link.is_ok() {
        known.root.store(root, Ordering::Release);
    }
    // In a call that was on its way here when all paths were left.
    if left::has_all() {
        close(&known.root);
    }
    let original = link.unwrap_or(root);
    known.original.store(original, Ordering::Release);
    Ok(original)
}

/// Opens what lies at a mount point, a path with a NUL.
fn keep_root(path: &[u8]) -> Result<i32, Ret> {
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    keep(|| sys!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0))
}

/// Whether the pool is mounted at its mount point. Where that is another mount than before, since a daemon was killed,
/// its root is kept from here on; the first one's stays, as the working directory may be in that mount.
pub(super) fn is_there(mount: usize) -> bool {
    let (Some(there), Some(known)) = (again::there(mount), mounts::all().get(mount)) else {
        return false;
    };
    if there == There::Next
        && let Ok(root) = keep_root(&[known.target.as_slice(), b"\0"].concat())
    {
        // Something else may have been put there since it was looked at.
        if again::own_inode(mount, root.into()) != Some(Ino::ROOT) {
            close(&AtomicI32::new(root));
            return false;
        }
        let before = known.root.swap(root, Ordering::AcqRel);
        let former = &known.former_root;
        if former.compare_exchange(0, before, Ordering::AcqRel, Ordering::Acquire).is_err() {
            close(&AtomicI32::new(before));
        }
        if left::has_all() {
            close(&known.root);
        }
    }
    true
}

/// Makes a call by a path below a mount's root: from the descriptor that keeps the mount, whatever lies at the mount
/// point by now. Where that leads nowhere any more, by the mount point, if `there` finds the pool there.
fn below(
    (mount, target): (usize, &[u8]),
    path: &[u8],
    there: fn(usize) -> bool,
    call: impl Fn(i32, &[u8]) -> Ret,
) -> Ret {
    let root = mounts::all().get(mount).map_or(0, |known| known.root.load(Ordering::Acquire));
    let done = if root == 0 { GONE } else { call(root, &[path, b"\0"].concat()) };
    if !is_gone(done) {
        return done;
    }
    if !there(mount) {
        return GONE;
    }
    let done = call(libc::AT_FDCWD, &[target, b"/", path, b"\0"].concat());
    if done == GONE { fail(libc::ENOENT) } else { done }
}

/// Whether an answer says that a mount is not there any more: of one whose daemon is dead, too.
fn is_gone(answer: Ret) -> bool {
    [libc::ESTALE, libc::ENOTCONN, libc::ECONNABORTED, libc::EBADF].map(fail).contains(&answer)
}

/// Opens a descriptor where this library's own are. Another thread of the program that closes numbers
/// which it has not opened may close this one before it is there: it is opened again then.
fn keep(open: impl Fn() -> Ret) -> Result<i32, Ret> {
    let mut kept = fail(libc::EBADF);
    for _ in 0..OPENINGS {
        kept = limits::out_of_the_way(|high| {
            let fd = open();
            if fd < 0 {
                return fd;
            }
            let high = sys!(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, high);
            i32::try_from(high).into_iter().filter(|high| *high >= 0).for_each(words::set_internal);
            sys!(libc::SYS_close, fd);
            high
        });
        numbers::freed_any();
        if kept != fail(libc::EBADF) {
            break;
        }
    }
    i32::try_from(kept).ok().filter(|kept| *kept >= 0).ok_or(kept)
}

/// Takes a description; false when the mount does not open it.
pub(crate) fn take(description: &InUse) -> bool {
    if description.is(IN_KERNEL) {
        return true;
    }
    // The kernel waits for a page of the file that another one has asked for, until all who have it mapped have given way:
    // this process, too.
    quiet::beside_giving(|| {
        let _taking = TAKING.lock();
        take_alone(description)
    })
}

/// The same by the one thread that takes any.
fn take_alone(description: &InUse) -> bool {
    let Some(mount) = mounts::all().get(description.mount()) else { return false };
    // Another thread may close the number that the kernel opens the file on first.
    description.is(IN_KERNEL)
        || limits::opening(|| (0..OPENINGS).find_map(|_| try_take(mount, description)))
            == Some(true)
}

/// Takes all that is open of a file, and notes something of it before another thread takes any: what that one has
/// opened to hand it over it keeps or has closed.
pub(crate) fn take_file(file: (usize, Ino), note: impl FnOnce()) {
    let _taking = TAKING.lock();
    table::each(&mut |_, other| {
        if locks::file_of(other) == file {
            take_alone(other);
        }
    });
    note();
}

/// Takes a description once; nothing where what the kernel has opened was closed by somebody else.
fn try_take(mount: &Mount, description: &InUse) -> Option<bool> {
    let mut fd = open(&mount.target, description);
    if fd == fail(libc::EMFILE) {
        numbers::clear();
        fd = open(&mount.target, description);
    }
    let in_place = fd == fail(libc::EMFILE) && !description.is(DIRECTORY);
    if in_place {
        fd = open_in_place(&mount.target, mount.original.load(Ordering::Acquire), description);
    }
    let Ok(real) = u32::try_from(fd) else {
        // That a directory is too deep is told by what then needs it.
        if fd != DEEP || settings::is_strict() || settings::value(Variable::Verbose).is_some() {
            say(&format!("a descriptor can't be handed to the kernel: error {}", -fd));
        }
        return Some(false);
    };
    let numbers = numbers::lock();
    let (mut is_closed, mut is_refused) = (false, false);
    table::each_of(description, |fd, stays| {
        let put = put_over(real, fd, stays);
        // One beyond a limit that another process has lowered stays a placeholder.
        is_closed |= put == fail(libc::EBADF) && sys!(libc::SYS_fcntl, real, libc::F_GETFD) < 0;
        is_refused |= is_filters(put);
    });
    if is_closed {
        return None;
    }
    if is_refused {
        say("a descriptor can't be handed to the kernel: a filter refuses dup3 and dup2");
        drop(numbers);
        if !in_place {
            sys!(libc::SYS_close, real);
            numbers::freed_any();
        }
        return Some(false);
    }
    description.set(IN_KERNEL);
    drop(numbers);
    if !in_place && !locks::keeps(locks::file_of(description), real) {
        sys!(libc::SYS_close, real);
    }
    numbers::freed_any();
    Some(true)
}

/// Puts a file of the kernel's at a number; a filter may refuse one way, without which a program that another thread
/// starts in this moment has it open. Over itself there is nothing to put.
fn put_over(real: u32, fd: i32, stays: bool) -> Ret {
    let flags = if stays { 0 } else { libc::O_CLOEXEC };
    let put = sys!(libc::SYS_dup3, real, fd, flags);
    if !is_filters(put) {
        return put;
    }
    let put = sys!(libc::SYS_dup2, real, fd);
    if put >= 0 && !stays {
        sys!(libc::SYS_fcntl, fd, libc::F_SETFD, libc::FD_CLOEXEC);
    }
    put
}

/// Whether it is a filter of calls that has answered.
fn is_filters(answer: Ret) -> bool {
    [libc::EPERM, libc::EACCES, libc::ENOSYS].map(fail).contains(&answer)
}

fn open(target: &[u8], description: &InUse) -> Ret {
    if description.is(DIRECTORY) {
        return open_directory(target, description);
    }
    let fd = open_file(target, description, is_there);
    if fd < 0 {
        numbers::freed_any();
    }
    fd
}

/// Opens a file once more, by the mount that is there now, for as long as that is used.
pub(crate) fn with_anew<T>(description: &InUse, used: impl FnOnce(i32) -> T) -> Option<T> {
    let mount = mounts::all().get(description.mount())?;
    let open_anew = || {
        let _taking = TAKING.lock();
        limits::opening(|| {
            let real = u32::try_from(open(&mount.target, description)).ok()?;
            let result = used(real.cast_signed());
            if !locks::keeps(locks::file_of(description), real) {
                sys!(libc::SYS_close, real);
            }
            numbers::freed_any();
            Some(result)
        })
    };
    quiet::beside_giving(open_anew)
}

/// Opens a file through the mount, by its inode number.
fn open_file(target: &[u8], file: &InUse, there: fn(usize) -> bool) -> Ret {
    // With it the kernel refuses to open a file that another process has a lease on, and does not wait for that one.
    let flags = file.flags() & KEPT & !libc::O_NONBLOCK | libc::O_CLOEXEC;
    let name = shown::name_by_number(file);
    let fd = open_by_number(locks::file_of(file), target, &name, (flags, there));
    if fd >= 0 && file.flags() & libc::O_NONBLOCK != 0 {
        sys!(libc::SYS_fcntl, fd, libc::F_SETFL, file.flags() & table::CHANGING);
    }
    fd
}

/// Opens the file that the mount has by a name among the numbers. What lies at that name in another mount, or where
/// none is any more, is not the file: another pool's with the same number, or whatever a link there leads to.
pub(super) fn open_by_number(
    (mount, ino): (usize, Ino),
    target: &[u8],
    name: &[u8],
    (flags, there): (i32, fn(usize) -> bool),
) -> Ret {
    let path = [by_number::DIRECTORY.as_bytes(), b"/", name].concat();
    below((mount, target), &path, there, |dir, path| {
        let fd = sys!(libc::SYS_openat, dir, path.as_ptr(), flags, 0);
        if fd < 0 {
            return fd;
        }
        // Of one that another thread has closed by now the caller finds that.
        if again::own_inode(mount, fd) != Some(ino) && sys!(libc::SYS_close, fd) == 0 {
            return GONE;
        }
        // The kernel would remember the name, and with it the inode, when it is closed and removed.
        sys!(libc::SYS_unlinkat, dir, path.as_ptr(), 0);
        fd
    })
}

/// Opens a file that the kernel has by its number once more, by a path: for the kernel to start as a program, which
/// would be shown the number as its own path. No other thread is inside.
pub(crate) fn by_path(fd: i32) -> Option<i32> {
    let ((mount, ino), path) = shown::file_by_number(fd)?;
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let opened = keep(|| sys!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0)).ok()?;
    // Others may have put another file there.
    if again::own_inode(mount, opened.into()) != Some(ino) {
        close(&AtomicI32::new(opened));
        return None;
    }
    Some(opened)
}

/// Closes what [`by_path`] has opened.
pub(crate) fn close_by_path(fd: i32) {
    close(&AtomicI32::new(fd));
}

/// Opens a file in the place of its own placeholder, where the program has no number left: an error, or
/// the number, which is the file's lowest.
fn open_in_place(target: &[u8], original: i32, file: &InUse) -> Ret {
    let _numbers = numbers::lock();
    let mut lowest = None;
    table::each_of(file, |fd, stays| _ = lowest.get_or_insert((fd, stays)));
    let Some((fd, stays)) = lowest else { return fail(libc::EMFILE) };
    sys!(libc::SYS_close, fd);
    // Another mount would be looked for by who may take a number.
    let opened = open_file(target, file, again::is_there_still);
    let source = if opened < 0 { i64::from(original) } else { opened };
    if opened != i64::from(fd) {
        // It is free, unless another thread makes a descriptor without libc at this moment.
        sys!(libc::SYS_fcntl, source, libc::F_DUPFD_CLOEXEC, fd);
    }
    if opened >= 0 && opened != i64::from(fd) {
        sys!(libc::SYS_close, opened);
    }
    sys!(libc::SYS_fcntl, fd, libc::F_SETFD, if stays { 0 } else { libc::FD_CLOEXEC });
    if opened < 0 { opened } else { i64::from(fd) }
}

/// Opens a directory through the mount, which has it at one place only: by the path that it has now, with the
/// flags that it was opened with, which the next program may ask for.
fn open_directory(target: &[u8], directory: &InUse) -> Ret {
    let gone = fail(libc::ENOENT);
    let Some(fs) = mounts::fs(directory.mount()) else { return gone };
    let asked = directory.flags() & (KEPT | DIRECTORIES);
    // Without one of these what lies there by then may be anything: it is looked at first.
    let is_safe = asked & DIRECTORIES != 0;
    let plain = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    for look in 0..places::LOOKS {
        places::pause_before(look);
        let path = match places::path(fs, &mounts::ctx(), directory.node()) {
            Err(NoPath::Deep) => return DEEP,
            Err(NoPath::Moved) if places::is_removed(fs, directory.node()) => {
                return open_removed(target, directory, asked);
            }
            Err(NoPath::Moved) => continue,
            Ok(path) => path,
        };
        if target.len() + path.len() >= PATH_MAX {
            return DEEP;
        }
        let path = path.strip_prefix(b"/").unwrap_or(b".");
        let open = |flags| {
            let same = |dir, path: &[u8]| open_same(directory, dir, path, flags);
            below((directory.mount(), target), path, is_there, same)
        };
        let fd = open(if is_safe { asked } else { plain | libc::O_PATH });
        // None of these passes as others move directories.
        if is_safe && fd >= 0 || is_gone(fd) || fd == fail(libc::EMFILE) {
            return fd;
        }
        if fd < 0 {
            continue;
        }
        let mut again = open_same(directory, fd as i32, b".\0", asked);
        sys!(libc::SYS_close, fd);
        numbers::freed_any();
        // Who may not search it can't start from it.
        if again < 0 {
            again = open(plain);
        }
        if again >= 0 {
            return again;
        }
    }
    gone
}

/// Opens a directory that was removed while it is open, by its number.
fn open_removed(target: &[u8], directory: &InUse, asked: i32) -> Ret {
    let name = by_number::name(directory.ino(), directory.generation.load(Ordering::Relaxed));
    let path = [by_number::DIRECTORY.as_bytes(), b"/", name.as_bytes()].concat();
    let at = (directory.mount(), target);
    let same = |dir, path: &[u8]| open_same(directory, dir, path, asked | libc::O_DIRECTORY);
    let open = |_| Some(below(at, &path, is_there, same)).filter(|fd| *fd >= 0);
    // Who does the same may take the name away before it is opened.
    let fd = (0..ATTEMPTS).find_map(open);
    // It is removed to the kernel, too, which makes nothing in it.
    let remove =
        |dir, path: &[u8]| sys!(libc::SYS_unlinkat, dir, path.as_ptr(), libc::AT_REMOVEDIR);
    if fd.is_some() {
        below(at, &path, again::is_there_still, remove);
    }
    fd.unwrap_or(fail(libc::ENOENT))
}

/// Opens a path, with a NUL, that leads to a directory: an error where it does not, or not any more, [`GONE`] where it
/// leads out of the mount.
fn open_same(directory: &InUse, dir: i32, path: &[u8], flags: i32) -> Ret {
    let fd = sys!(libc::SYS_openat, dir, path.as_ptr(), flags | libc::O_CLOEXEC, 0);
    if fd < 0 {
        return fd;
    }
    let found = again::own_inode(directory.mount(), fd);
    if found == Some(directory.ino()) {
        return fd;
    }
    // Another thread may have closed it.
    let is_elsewhere = sys!(libc::SYS_close, fd) == 0 && found.is_none();
    numbers::freed_any();
    if is_elsewhere { GONE } else { fail(libc::ENOENT) }
}

/// Takes the directory that a call of the kernel's starts from, if it is one served here.
pub(crate) fn take_directory(fd: i32) {
    if let Some(directory) = table::get(fd).filter(|found| found.is(DIRECTORY)) {
        take(&directory);
    }
}

/// Takes what a call of the kernel's is about, if it is served here.
pub(crate) fn take_any(fd: i32) {
    if let Some(description) = table::get(fd) {
        take(&description);
    }
}

/// Takes a description whose position the kernel is to know, here `fd`'s.
pub(crate) fn take_shared(fd: i32, description: &InUse) -> bool {
    if !take(description) {
        return false;
    }
    let offset = description.offset.lock();
    // Another thread may have closed this one, and have its number for another file.
    if !description.is(SHARED) && set_position(fd, description, offset.cast_signed()).is_some() {
        description.set(SHARED);
    }
    true
}

/// Gives a description to the kernel, which serves it from here on.
pub(crate) fn give(fd: i32, description: &InUse) -> bool {
    let taken = take_shared(fd, description);
    if taken {
        description.set(MAPPED);
    }
    taken
}

/// Takes a description to be mapped. The kernel serves it from here on; it must know its length, which
/// it asks for when it needs to know it, but not for a page of a mapping.
pub(crate) fn map(fd: i32, description: &InUse) -> bool {
    // Who may not join the pool (any more) leaves it to the mount's daemon to say that the kernel maps it.
    let (mount, ino) = (description.mount(), description.ino());
    let marked = ask(mount, ino).unwrap_or(true);
    let taken = marked && give(fd, description) && keep_asked(mount, ino);
    if taken {
        know_length(fd, description);
    }
    taken
}

/// As [`map`], of a file that is open by a descriptor of the kernel's own. Where it can't be said, the kernel says so of
/// each page.
pub(crate) fn tell_mapping(fd: i32, (mount, ino): (usize, Ino)) {
    if ask(mount, ino) == Some(true) {
        keep_asked(mount, ino);
        know_length_of(fd, (mount, ino));
    }
}

/// Says it once more when the kernel has the file open: the end of an opening before may have taken it back.
fn keep_asked(mount: usize, ino: Ino) -> bool {
    let Some(fs) = mounts::fs(mount) else { return true };
    match fs.keep_mapped(&ctx(), ino) {
        Err(novale_core::Error::Pinned) => ask(mount, ino).unwrap_or(true),
        kept => kept.is_ok(),
    }
}

/// Has all who have a file's own pages mapped give way, this process too, and says that the kernel maps
/// it; false where that is not possible, `None` where the process has no pool to say it in. Who waits is outside:
/// what the caller knew of the pool is over.
pub(crate) fn ask(mount: usize, ino: Ino) -> Option<bool> {
    has_mapped();
    let until = ctx().now_ns + PATIENCE_NS;
    let fs = mounts::fs(mount)?;
    let mut turn = fs.mappings_turn();
    let mut asked = fs.ask_to_map(&ctx(), ino);
    // Ends when the time is up.
    while matches!(asked, Ok(false)) {
        let kept = kept::keep(mount)?;
        quiet::outside(move || kept.wait_for_mappings(turn, TICK));
        if ctx().now_ns > until {
            return Some(false);
        }
        let fs = mounts::fs(mount)?;
        turn = fs.mappings_turn();
        asked = fs.has_way_to_map(&ctx(), ino);
    }
    Some(asked.unwrap_or(false))
}

/// Has the kernel know the length of a file that its mapping has just been put in the place of another:
/// it asks for it when a path leads to the file, and not for a page of a mapping, which it would say lies
/// beyond the end.
pub(crate) fn tell_length(mount: usize, ino: Ino, generation: u32) {
    let Some(known) = mounts::all().get(mount) else { return };
    let name = by_number::name(ino, generation);
    let path = [by_number::DIRECTORY.as_bytes(), b"/", name.as_bytes()].concat();
    below((mount, &known.target), &path, again::is_there_still, |dir, path| {
        // Twice: see `know_length_of`.
        ask_length(dir, path.as_ptr(), 0);
        let told = ask_length(dir, path.as_ptr(), 0);
        if told == 0 {
            sys!(libc::SYS_unlinkat, dir, path.as_ptr(), 0);
        }
        told
    });
}

fn ask_length(dir: i32, path: *const u8, flags: i32) -> Ret {
    let mut found = std::mem::MaybeUninit::<libc::statx>::uninit();
    let flags = flags | libc::AT_STATX_FORCE_SYNC;
    sys!(libc::SYS_statx, dir, path, flags, libc::STATX_SIZE, found.as_mut_ptr())
}

/// Has the kernel learn how long a file is, and its mode with that: see [`know_length_of`].
pub(crate) fn know_length(fd: i32, description: &InUse) {
    know_length_of(fd, (description.mount(), description.ino()));
}

/// Has the kernel learn how long the file is that a descriptor leads to. What it is told while it has been told something
/// else in the meantime, it drops: an answer that was on its way since before the file grew may come in between, by a look
/// at one of the file's names in another process. Whatever it takes after the first answer is newer than this question, so
/// it is asked twice, and until its own idea is as long as the file was.
pub(super) fn know_length_of(fd: i32, (mount, ino): (usize, Ino)) {
    let Ok(known) = mounts::fs(mount).map_or(Ok(0), |fs| fs.getattr(ino).map(|attr| attr.size))
    else {
        return;
    };
    for look in 0..LOOKS {
        length(fd, libc::AT_STATX_FORCE_SYNC);
        if look > 0 && length(fd, libc::AT_STATX_DONT_SYNC) >= known {
            break;
        }
    }
}

/// As [`know_length`], before a call that moves bytes of the file no further than to the end that the kernel knows
/// of: where that is the end, as in the middle of many such calls, nobody is asked.
pub(crate) fn know_end(fd: i32, description: &InUse) {
    let known = mounts::fs(description.mount()).map(|fs| fs.getattr(description.ino()));
    let is_known = |size| matches!(&known, Some(Ok(attr)) if attr.size == size);
    if !description.is(DIRECTORY) && !is_known(length(fd, libc::AT_STATX_DONT_SYNC)) {
        know_length(fd, description);
    }
}

/// The kernel has a file mapped in this process, or is about to.
pub(crate) fn has_mapped() {
    MAPS.store(true, Ordering::Relaxed);
}

/// Whether the kernel may have a file mapped in this process: what the process is told of the file's length it may use
/// there at once, and the kernel has to know of it before.
pub(crate) fn may_have_mapped(fs: &Fs, ino: Ino) -> bool {
    MAPS.load(Ordering::Relaxed) && fs.is_mapped(&ctx(), ino).unwrap_or(false)
}

/// Before the program uses what it is told of a file's length: the kernel knows of that much, where it may have the file
/// mapped here. A write through the mount makes the file longer before the kernel has its answer.
pub(crate) fn before_told(fd: i32, description: &InUse, fs: &Fs) {
    if may_have_mapped(fs, description.ino()) && take(description) {
        know_end(fd, description);
    }
}

/// How long the kernel says that a file is.
fn length(fd: i32, sync: i32) -> u64 {
    let mut found = std::mem::MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_EMPTY_PATH | sync;
    sys!(libc::SYS_statx, fd, c"".as_ptr(), flags, libc::STATX_SIZE, found.as_mut_ptr());
    // SAFETY: zeroes are a valid value, which the kernel has filled.
    unsafe { found.assume_init() }.stx_size
}

/// Learns the flags of a description that another process may have changed, which has it too.
#[inline]
pub(crate) fn know_flags(fd: i32, description: &InUse) {
    if description.is(SHARED) {
        let ask = |fd| sys!(libc::SYS_fcntl, fd, libc::F_GETFL, 0);
        if let Some(flags @ 0..) = table::with_number(fd, description, ask) {
            description.change_flags(flags as i32);
        }
    }
}

/// Moves the position that the kernel has of a description.
pub(crate) fn set_position(fd: i32, description: &InUse, to: i64) -> Option<Ret> {
    table::with_number(fd, description, |fd| sys!(libc::SYS_lseek, fd, to, libc::SEEK_SET))
}

/// Takes a description and tells the kernel the position, for a call of its own that counts from there.
pub(crate) fn take_at_position(fd: i32, description: &InUse) -> bool {
    if !take(description) {
        return false;
    }
    let offset = description.offset.lock();
    if !description.is(SHARED) {
        set_position(fd, description, offset.cast_signed());
    }
    true
}

/// Takes all descriptions, for good with [`SHARED`]: what has them then may append by the kernel, which moves the
/// position to where it knows the end to be.
pub(crate) fn take_all(state: u32) {
    numbers::clear();
    table::each(&mut |fd, description| {
        if state == SHARED {
            if take_shared(fd, description) && description.appends() {
                know_end(fd, description);
            }
        } else {
            take(description);
        }
    });
}

/// As [`take_all`] with [`SHARED`], before the kernel alone serves what has the files: a page of a mapping is beyond
/// the end to it that this library has moved since.
pub(crate) fn hand_over_all() {
    take_all(SHARED);
    table::each(&mut |fd, description| know_end(fd, description));
}

/// Keeps other threads out while the process forks.
pub(crate) fn before_fork() {
    TAKING.take();
}

/// Called in parent and child.
pub(crate) fn fork_done() {
    TAKING.give();
}
