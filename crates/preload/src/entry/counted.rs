//! What calls count as in a report (`novale run --report`), and why the kernel makes one.

use novale_posix::report::{CALLS_MAX, Why};

use crate::base::guard::{self, PathBuffer};
use crate::base::left;
use crate::base::report::{because, counters, noted};
use crate::base::sys::{Args, Outcome, Ret};
use crate::fds::table::{self, MAPPED, SHARED};
use crate::mounts;
use crate::mounts::state::{self, Rights};
use crate::paths::{self, descriptor};

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

struct CountedCall {
    number: i64,
    name: &'static str,
    of: Of,
    moves: Moves,
}

macro_rules! calls {
    ($($number:ident $of:expr, $moves:expr;)*) => {
        &[$(CountedCall { number: libc::$number, name: stringify!($number), of: $of, moves: $moves }),*]
    };
}

/// The calls that are counted.
const CALLS: &[CountedCall] = calls! {
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

/// Names the calls in the report.
pub(crate) fn begin() {
    let Some(counters) = counters() else { return };
    for (index, call) in CALLS.iter().enumerate() {
        counters.name_call(index, call.name.trim_start_matches("SYS_"));
    }
}

fn find(number: i64) -> Option<(usize, &'static CountedCall)> {
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
    let why = why_file.or_else(|| call.why_path(args)).or(noted);
    let Some(why) = why else { return outcome };
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
        Outcome::Lend | Outcome::Share | Outcome::Again => outcome,
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

impl CountedCall {
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
            Some(if left::FILES.is_begun() {
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
        if let Some(place) = paths::place(dir, path, &mut buffer, false) {
            let is_judged = place.rights == Rights::Kernel;
            return Some(if is_judged { Why::Rights } else { Why::Call });
        }
        let (mount, _) = mounts::of_path(buffer.load(path)?)?;
        (!left::has_all() && mounts::fs(mount).is_none()).then_some(Why::Unjoined)
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
