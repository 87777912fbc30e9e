//! What `novale run --report` is told: of each call on a mount's file whether it was served here, and why
//! not ([`novale_posix::report`]).
//!
//! The decisions stay where they are. Behind each call it is asked whether it was about a file of a mount,
//! and, of one that the kernel makes, what the process and the file are like. What can't be seen so
//! is noted where it is decided ([`because`]). Without a report all this is one look at a pointer.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use novale_posix::report::{BYTES, CALLS_MAX, Counters, Event, WORDS, Why};

use crate::entry::Outcome;
use crate::guard::{self, PathBuffer};
use crate::paths::{self, descriptor};
use crate::state::{self, Rights};
use crate::sys::{Args, Ret, sys};
use crate::table::{self, MAPPED, SHARED};
use crate::thread::current;
use crate::{kernel, mounts};

/// Where a call names the file that it is about.
#[derive(Clone, Copy)]
enum Of {
    /// These arguments are descriptors; the call may use their positions.
    Descriptors(&'static [usize]),
    /// An argument is a path, from the working directory.
    Path(usize),
    /// A directory's descriptor and a path are arguments; an empty path names the descriptor's own file.
    PathAt(usize, usize),
}
use Of::{Descriptors, Path, PathAt};

/// What a call moves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moves {
    Nothing,
    /// As many bytes as it returns.
    Result,
    /// As many bytes as an argument says, where it succeeds.
    Argument(usize),
}

struct Call {
    number: i64,
    name: &'static str,
    of: Of,
    moves: Moves,
}

macro_rules! calls {
    ($($number:ident $of:expr, $moves:expr;)*) => {
        &[$(Call { number: libc::$number, name: stringify!($number), of: $of, moves: $moves }),*]
    };
}

/// The calls that are counted.
const CALLS: &[Call] = calls! {
    SYS_read Descriptors(&[0]), Moves::Result;
    SYS_write Descriptors(&[0]), Moves::Result;
    SYS_pread64 Descriptors(&[0]), Moves::Result;
    SYS_pwrite64 Descriptors(&[0]), Moves::Result;
    SYS_readv Descriptors(&[0]), Moves::Result;
    SYS_writev Descriptors(&[0]), Moves::Result;
    SYS_preadv Descriptors(&[0]), Moves::Result;
    SYS_pwritev Descriptors(&[0]), Moves::Result;
    SYS_preadv2 Descriptors(&[0]), Moves::Result;
    SYS_pwritev2 Descriptors(&[0]), Moves::Result;
    SYS_sendfile Descriptors(&[0, 1]), Moves::Result;
    SYS_copy_file_range Descriptors(&[0, 2]), Moves::Result;
    SYS_splice Descriptors(&[0, 2]), Moves::Result;
    SYS_mmap Descriptors(&[4]), Moves::Argument(1);
    SYS_lseek Descriptors(&[0]), Moves::Nothing;
    SYS_fsync Descriptors(&[0]), Moves::Nothing;
    SYS_fdatasync Descriptors(&[0]), Moves::Nothing;
    SYS_sync_file_range Descriptors(&[0]), Moves::Nothing;
    SYS_syncfs Descriptors(&[0]), Moves::Nothing;
    SYS_ftruncate Descriptors(&[0]), Moves::Nothing;
    SYS_fallocate Descriptors(&[0]), Moves::Nothing;
    SYS_fadvise64 Descriptors(&[0]), Moves::Nothing;
    SYS_readahead Descriptors(&[0]), Moves::Nothing;
    SYS_getdents Descriptors(&[0]), Moves::Nothing;
    SYS_getdents64 Descriptors(&[0]), Moves::Nothing;
    SYS_close Descriptors(&[0]), Moves::Nothing;
    SYS_dup Descriptors(&[0]), Moves::Nothing;
    SYS_dup2 Descriptors(&[0]), Moves::Nothing;
    SYS_dup3 Descriptors(&[0]), Moves::Nothing;
    SYS_fcntl Descriptors(&[0]), Moves::Nothing;
    SYS_flock Descriptors(&[0]), Moves::Nothing;
    SYS_ioctl Descriptors(&[0]), Moves::Nothing;
    SYS_fchdir Descriptors(&[0]), Moves::Nothing;
    SYS_fchmod Descriptors(&[0]), Moves::Nothing;
    SYS_fchown Descriptors(&[0]), Moves::Nothing;
    SYS_fstat Descriptors(&[0]), Moves::Nothing;
    SYS_fstatfs Descriptors(&[0]), Moves::Nothing;
    SYS_fsetxattr Descriptors(&[0]), Moves::Nothing;
    SYS_fgetxattr Descriptors(&[0]), Moves::Nothing;
    SYS_flistxattr Descriptors(&[0]), Moves::Nothing;
    SYS_fremovexattr Descriptors(&[0]), Moves::Nothing;
    SYS_open Path(0), Moves::Nothing;
    SYS_creat Path(0), Moves::Nothing;
    SYS_openat PathAt(0, 1), Moves::Nothing;
    SYS_openat2 PathAt(0, 1), Moves::Nothing;
    SYS_stat Path(0), Moves::Nothing;
    SYS_lstat Path(0), Moves::Nothing;
    SYS_newfstatat PathAt(0, 1), Moves::Nothing;
    SYS_statx PathAt(0, 1), Moves::Nothing;
    SYS_access Path(0), Moves::Nothing;
    SYS_faccessat PathAt(0, 1), Moves::Nothing;
    SYS_faccessat2 PathAt(0, 1), Moves::Nothing;
    SYS_truncate Path(0), Moves::Nothing;
    SYS_chmod Path(0), Moves::Nothing;
    SYS_fchmodat PathAt(0, 1), Moves::Nothing;
    SYS_chown Path(0), Moves::Nothing;
    SYS_lchown Path(0), Moves::Nothing;
    SYS_fchownat PathAt(0, 1), Moves::Nothing;
    SYS_utimensat PathAt(0, 1), Moves::Nothing;
    SYS_mknod Path(0), Moves::Nothing;
    SYS_mknodat PathAt(0, 1), Moves::Nothing;
    SYS_mkdir Path(0), Moves::Nothing;
    SYS_mkdirat PathAt(0, 1), Moves::Nothing;
    SYS_rmdir Path(0), Moves::Nothing;
    SYS_unlink Path(0), Moves::Nothing;
    SYS_unlinkat PathAt(0, 1), Moves::Nothing;
    SYS_rename Path(0), Moves::Nothing;
    SYS_renameat PathAt(0, 1), Moves::Nothing;
    SYS_renameat2 PathAt(0, 1), Moves::Nothing;
    SYS_link Path(0), Moves::Nothing;
    SYS_linkat PathAt(0, 1), Moves::Nothing;
    SYS_symlink Path(1), Moves::Nothing;
    SYS_symlinkat PathAt(1, 2), Moves::Nothing;
    SYS_readlink Path(0), Moves::Nothing;
    SYS_readlinkat PathAt(0, 1), Moves::Nothing;
    SYS_statfs Path(0), Moves::Nothing;
    SYS_setxattr Path(0), Moves::Nothing;
    SYS_lsetxattr Path(0), Moves::Nothing;
    SYS_getxattr Path(0), Moves::Nothing;
    SYS_lgetxattr Path(0), Moves::Nothing;
    SYS_listxattr Path(0), Moves::Nothing;
    SYS_llistxattr Path(0), Moves::Nothing;
    SYS_removexattr Path(0), Moves::Nothing;
    SYS_lremovexattr Path(0), Moves::Nothing;
};
const _: () = assert!(CALLS.len() <= CALLS_MAX);

/// Calls that begin at the position of their descriptor.
const AT_POSITION: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_sendfile,
    libc::SYS_copy_file_range,
    libc::SYS_splice,
];

/// The report's memory; null without one.
static COUNTERS: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());

/// Takes the report that is named, by a path of `novale run`'s.
pub(crate) fn begin(path: Option<&[u8]>) {
    let Some(path) = path else { return };
    let path = [path, b"\0"].concat();
    let flags = libc::O_RDWR | libc::O_CLOEXEC;
    let fd = sys!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0);
    if fd < 0 {
        return;
    }
    let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
    sys!(libc::SYS_fstat, fd, found.as_mut_ptr());
    // SAFETY: zeroes are a valid value, which the kernel has filled.
    let has_size = unsafe { found.assume_init() }.st_size == BYTES as i64;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let mapped =
        if has_size { sys!(libc::SYS_mmap, 0, BYTES, access, libc::MAP_SHARED, fd, 0) } else { -1 };
    sys!(libc::SYS_close, fd);
    let Ok(at) = u64::try_from(mapped) else { return };
    COUNTERS.store(at as *mut AtomicU64, Ordering::Release);
    match counters() {
        Some(counters) => {
            for (index, call) in CALLS.iter().enumerate() {
                counters.name_call(index, call.name.trim_start_matches("SYS_"));
            }
        }
        None => COUNTERS.store(std::ptr::null_mut(), Ordering::Release),
    }
}

/// Whether there is a report.
#[inline]
pub(crate) fn is_on() -> bool {
    !COUNTERS.load(Ordering::Relaxed).is_null()
}

fn counters() -> Option<Counters<'static>> {
    let at = COUNTERS.load(Ordering::Acquire);
    if at.is_null() {
        return None;
    }
    // SAFETY: a mapping of so many words, for as long as the program runs; any bits are valid.
    Counters::new(unsafe { std::slice::from_raw_parts(at, WORDS) })
}

/// Something has happened to the process as a whole.
pub(crate) fn event(event: Event) {
    if let Some(counters) = counters() {
        counters.event(event);
    }
}

/// A program is started that does not load this library. Takes no memory.
pub(crate) fn program(path: u64) {
    let Some(counters) = counters() else { return };
    let mut room = [0; 128];
    let mut len = 0;
    for (at, to) in (path..).zip(&mut room) {
        match guard::load::<u8>(at) {
            None | Some(0) => break,
            Some(byte) => *to = byte,
        }
        len += 1;
    }
    counters.program(room.get(..len).unwrap_or_default());
}

/// Notes why the kernel makes the calling thread's call, or a part of it.
pub(crate) fn because(why: Why) {
    if is_on() {
        current().why.store(why as u32 + 1, Ordering::Relaxed);
    }
}

/// What was noted since the call began, and no more.
fn noted() -> Option<Why> {
    let noted = current().why.swap(0, Ordering::Relaxed).checked_sub(1)?;
    Why::ALL.get(usize::try_from(noted).ok()?).copied()
}

fn find(number: i64) -> Option<(usize, &'static Call)> {
    CALLS.iter().enumerate().find(|(_, call)| call.number == number)
}

/// Has a call served, and counts it where it is about a file of a mount.
#[cold]
pub(crate) fn counted(number: i64, args: &Args, serve: impl FnOnce() -> Outcome) -> Outcome {
    let (Some(counters), Some((index, call))) = (counters(), find(number)) else { return serve() };
    // By a descriptor that the call may end.
    let why_file = call.why_file(args);
    noted();
    let outcome = serve();
    let noted = noted();
    let Some(why) = why_file.or_else(|| call.why_path(args)) else { return outcome };
    match outcome {
        Outcome::Done(result) => {
            let way = noted.map_or(Ok(()), Err);
            counters.call(index, way);
            counters.bytes(index, way, call.moved(args, result));
            outcome
        }
        Outcome::Kernel | Outcome::Look => {
            let why = noted.unwrap_or(why);
            counters.call(index, Err(why));
            if call.moves == Moves::Result {
                because(why);
                return Outcome::Look;
            }
            counters.bytes(index, Err(why), call.moved(args, 0));
            outcome
        }
        Outcome::Lend | Outcome::Share => outcome,
    }
}

/// Counts what the kernel has made of a call; `is_found` where it has opened a file of a mount by a path
/// from outside.
pub(crate) fn looked(number: i64, came: i32, is_found: bool) {
    let (Some(counters), Some((index, call))) = (counters(), find(number)) else { return };
    match noted() {
        Some(why) => counters.bytes(index, Err(why), call.moved(&[0; 6], Ret::from(came))),
        None if is_found => counters.call(index, Err(Why::Outside)),
        None => {}
    }
}

impl Call {
    /// Why the kernel makes the call, if it does, where it names a file of a mount by a descriptor.
    fn why_file(&self, args: &Args) -> Option<Why> {
        let (at, of_own) = match self.of {
            Descriptors(at) => (at, true),
            PathAt(dir, path) if guard::load::<u8>(*args.get(path)?) == Some(0) => {
                (&[dir][..], false)
            }
            Path(_) | PathAt(..) => return None,
        };
        let why = |at: &usize| {
            let file = table::get(descriptor(*args.get(*at)?))?;
            let is_mapped = file.is(MAPPED) || self.number == libc::SYS_mmap;
            Some(if kernel::needs_all() {
                Why::Asynchronous
            } else if of_own && is_mapped {
                Why::Mapped
            } else if file.is(SHARED) && AT_POSITION.contains(&self.number) {
                Why::Shared
            } else if state::rights() == Rights::Kernel {
                Why::Rights
            } else {
                Why::Call
            })
        };
        // Of two files the one that has a reason of its own.
        let whys = at.iter().filter_map(why);
        whys.reduce(|first, next| if first == Why::Call { next } else { first })
    }

    /// Likewise, where it does so by a path.
    fn why_path(&self, args: &Args) -> Option<Why> {
        let (dir, path) = match self.of {
            Descriptors(_) => return None,
            Path(path) => (libc::AT_FDCWD as u64, *args.get(path)?),
            PathAt(dir, path) => (*args.get(dir)?, *args.get(path)?),
        };
        let mut buffer = PathBuffer::new();
        if let Some(place) = paths::place(dir, path, &mut buffer) {
            let is_judged = place.rights == Rights::Kernel;
            return Some(if is_judged { Why::Rights } else { Why::Call });
        }
        let (mount, _) = mounts::of_path(buffer.load(path)?)?;
        (!kernel::has_all() && mounts::fs(mount).is_none()).then_some(Why::Unjoined)
    }

    /// The bytes that it has moved.
    fn moved(&self, args: &Args, result: Ret) -> u64 {
        match self.moves {
            Moves::Nothing => 0,
            Moves::Result => u64::try_from(result).unwrap_or(0),
            Moves::Argument(_) if (-4095..0).contains(&result) => 0,
            Moves::Argument(at) => args.get(at).copied().unwrap_or(0),
        }
    }
}
