//! `sendfile` and `copy_file_range`: the bytes of files are moved here. The kernel would need both files
//! for it, and their positions, and where a file's own pages are mapped it would map them itself to read
//! them.
//!
//! What is served is what both calls are made for: files on both sides. Whatever may wait for others, a
//! pipe or a socket, the kernel moves, so that a signal ends it, and what goes by files elsewhere that are open with
//! `O_DIRECT`, by its rules of alignment. Where mappings show files' own pages the kernel's reading would end that: there
//! the bytes are moved here, but for `O_DIRECT`, and who has to wait is outside meanwhile, and hears of signals. What
//! cannot work is refused, as it would be.

use std::cell::Cell;

use novale_core::{Error, Place};

use crate::base::guard;
use crate::base::sys::{Args, RESTART, Ret, Served, fail, sys};
use crate::calls::data::{self, File};
use crate::calls::descriptors;
use crate::calls::written;
use crate::fds::table::{self, DIRECTORY, InUse, MAPPED, SHARED};
use crate::fds::{kernel, quiet};
use crate::maps::{self, Mode};
use crate::mounts;
use crate::paths::descriptor;
use crate::process::signals;

/// Bytes that are read at once.
const CHUNK: u64 = 256 << 10;
/// The same where they are a message by themselves, as Linux makes them.
const MESSAGE: u64 = 64 << 10;
/// Bytes that one call moves at most, as in Linux.
const MOST: u64 = 0x7fff_f000;
/// How long a thread that waits for who reads goes without a look whether a signal has come, which ends the wait but
/// for one that comes in the moment before it.
const LOOK_NS: i64 = 50_000_000;
/// What the kernel calls file systems that a daemon serves: it copies between two of them.
const FUSE: i64 = 0x6573_5546;

/// What tells a file from all others, but for one that is made with its inode where it is not known when. Openings of
/// one device are alike.
#[derive(PartialEq, Eq)]
struct FileMark {
    kind: u32,
    device: u64,
    inode: u64,
    born: (i64, u32),
}

/// What another file system has of a descriptor.
struct Foreign {
    fd: u64,
    is: FileMark,
    flags: i32,
    /// Another mount of a daemon's.
    is_fuse: bool,
}

/// What bytes are moved to.
enum Out<'a> {
    /// A file of a mount, and its number.
    Ours(&'a mut File, u64),
    /// A file of another file system, and its position.
    File(Foreign, Cell<Ret>),
    /// What may wait for others, and whether it does.
    Stream(Foreign, bool),
}

impl FileMark {
    /// `None` where there is no such descriptor; no file system is asked for what it has told before.
    fn of(fd: u64) -> Option<Self> {
        let mut found = std::mem::MaybeUninit::<libc::statx>::zeroed();
        let (here, flags) = (c"".as_ptr(), libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC);
        let mask = libc::STATX_TYPE | libc::STATX_INO | libc::STATX_BTIME;
        if sys!(libc::SYS_statx, fd, here, flags, mask, found.as_mut_ptr()) != 0 {
            // It may be refused: by a rule, or a kernel that has no such call.
            return Self::without_birth(fd);
        }
        // SAFETY: zeroes are a valid value, which the kernel has filled; what it does not tell stays zero.
        let found = unsafe { found.assume_init() };
        Some(Self {
            kind: u32::from(found.stx_mode) & libc::S_IFMT,
            device: libc::makedev(found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            born: (found.stx_btime.tv_sec, found.stx_btime.tv_nsec),
        })
    }

    fn without_birth(fd: u64) -> Option<Self> {
        let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
        if sys!(libc::SYS_fstat, fd, found.as_mut_ptr()) != 0 {
            return None;
        }
        // SAFETY: zeroes are a valid value, which the kernel has filled.
        let found = unsafe { found.assume_init() };
        let kind = found.st_mode & libc::S_IFMT;
        Some(Self { kind, device: found.st_dev, inode: found.st_ino, born: (0, 0) })
    }
}

impl Foreign {
    /// `None` where there is no such descriptor.
    fn of(fd: i32) -> Option<Self> {
        let fd = fd as u64;
        let mut space = std::mem::MaybeUninit::<libc::statfs>::zeroed();
        let is = FileMark::of(fd)?;
        let flags = sys!(libc::SYS_fcntl, fd, libc::F_GETFL, 0);
        let told = sys!(libc::SYS_fstatfs, fd, space.as_mut_ptr());
        if flags < 0 {
            return None;
        }
        // SAFETY: zeroes are a valid value, which the kernel has filled.
        let space = unsafe { space.assume_init() };
        let is_fuse = told == 0 && space.f_type == FUSE;
        Some(Self { fd, is, flags: flags as i32, is_fuse })
    }

    /// Whether the number leads to the same file still: another thread may have closed it, and opened another one.
    fn is_there(&self) -> bool {
        FileMark::of(self.fd).is_some_and(|now| now == self.is)
    }

    fn is_regular(&self) -> bool {
        self.is.kind == libc::S_IFREG
    }

    fn is_aligned(&self) -> bool {
        self.is_regular() && self.flags & libc::O_DIRECT != 0
    }

    fn reads(&self) -> bool {
        table::reads(self.flags)
    }

    fn into_target<'a>(self) -> Out<'a> {
        let waits = self.flags & libc::O_NONBLOCK == 0;
        if self.is_regular() {
            let at = Cell::new(position(self.fd));
            Out::File(self, at)
        } else {
            Out::Stream(self, waits)
        }
    }
}

fn position(fd: u64) -> Ret {
    sys!(libc::SYS_lseek, fd, 0, libc::SEEK_CUR)
}

/// What two files that bytes are to go between say to it, as the kernel looks at them for copies:
/// `Ok(false)` where they are of two file systems, so that it can't be.
pub(crate) fn are_on_one_mount(from: i32, to: i32) -> Result<bool, Served> {
    let (source, target) = (Side::of(from)?, Side::of(to)?);
    may_go_between(&source, &target)?;
    source.is_on_mount_of(&target).ok_or(None)
}

/// As [`are_on_one_mount`], for clones: whether they are of two file systems is looked at first.
pub(crate) fn may_be_cloned(from: i32, to: i32) -> Result<bool, Served> {
    let (source, target) = (Side::of(from)?, Side::of(to)?);
    if source.is_path() || target.is_path() {
        return Err(Some(fail(libc::EBADF)));
    }
    let is_on_mount = source.is_on_mount_of(&target);
    if is_on_mount != Some(false) {
        may_go_between(&source, &target)?;
    }
    is_on_mount.ok_or(None)
}

fn may_go_between(source: &Side, target: &Side) -> Result<(), Served> {
    if source.is_path() || target.is_path() {
        return Err(Some(fail(libc::EBADF)));
    }
    let sides = [source, target];
    if sides.iter().any(|side| side.is_directory()) {
        return Err(Some(fail(libc::EISDIR)));
    }
    if sides.iter().any(|side| !side.is_regular()) {
        return Err(Some(fail(libc::EINVAL)));
    }
    if source.reads() && target.writes() { Ok(()) } else { Err(Some(fail(libc::EBADF))) }
}

enum Side {
    Ours(InUse),
    Foreign(Foreign),
}

impl Side {
    fn of(fd: i32) -> Result<Self, Served> {
        if let Some(ours) = table::get(fd) {
            kernel::know_flags(fd, &ours);
            return Ok(Self::Ours(ours));
        }
        Foreign::of(fd).map(Self::Foreign).ok_or(Some(fail(libc::EBADF)))
    }

    /// `None` where only the kernel can say.
    fn is_on_mount_of(&self, other: &Self) -> Option<bool> {
        match (self, other) {
            (Self::Ours(one), Self::Ours(other)) => Some(one.mount() == other.mount()),
            // One that came past this library is of the mount too: the kernel's to do.
            (Self::Ours(ours), Self::Foreign(other)) | (Self::Foreign(other), Self::Ours(ours)) => {
                let is_apart = other.is.device != mounts::device(ours.mount()) && !other.is_fuse;
                is_apart.then_some(false)
            }
            (Self::Foreign(_), Self::Foreign(_)) => None,
        }
    }

    fn is_path(&self) -> bool {
        match self {
            Self::Ours(file) => file.is_path(),
            Self::Foreign(other) => other.flags & libc::O_PATH != 0,
        }
    }

    fn is_directory(&self) -> bool {
        match self {
            Self::Ours(file) => file.is(DIRECTORY),
            Self::Foreign(other) => other.is.kind == libc::S_IFDIR,
        }
    }

    fn is_regular(&self) -> bool {
        match self {
            Self::Ours(file) => !file.is(DIRECTORY),
            Self::Foreign(other) => other.is_regular(),
        }
    }

    fn flags(&self) -> i32 {
        match self {
            Self::Ours(file) => file.flags(),
            Self::Foreign(other) => other.flags,
        }
    }

    fn reads(&self) -> bool {
        table::reads(self.flags())
    }

    /// Whether it can be written where the caller says.
    fn writes(&self) -> bool {
        table::writes(self.flags()) && self.flags() & libc::O_APPEND == 0
    }
}

/// `copy_file_range(in, in_offset, out, out_offset, count, flags)`.
pub(crate) fn copy_file_range(args: &Args) -> Served {
    let [from, from_at, to, to_at, _, flags] = *args;
    let (source, target) = (descriptor(from), descriptor(to));
    let is_ours = |fd| table::get(fd).is_some();
    if !is_ours(source) && !is_ours(target) {
        return None;
    }
    if flags != 0 {
        let are_open = Side::of(source).is_ok_and(|side| !side.is_path())
            && Side::of(target).is_ok_and(|side| !side.is_path());
        return Some(fail(if are_open { libc::EINVAL } else { libc::EBADF }));
    }
    let copied = match are_on_one_mount(source, target) {
        Ok(false) => Some(fail(libc::EXDEV)),
        Ok(true) => copy(args),
        Err(served) => served,
    };
    copied.or_else(|| descriptors::of_two(&[(from, from_at), (to, to_at)]))
}

/// The same between files of one mount.
fn copy(args: &Args) -> Served {
    let [from, from_at, to, to_at, count, _] = *args;
    let plain = |fd| data::file(fd).filter(|file| !file.description.is(SHARED));
    let (source, target) = (plain(from)?, plain(to)?);
    if target.left_to_kernel().is_some() {
        return None;
    }
    let start = |file: &File, at| match at {
        0 => Ok(*file.description.offset.lock()),
        _ => guard::load::<u64>(at).ok_or(fail(libc::EFAULT)),
    };
    let starts = start(&source, from_at).and_then(|one| Ok((one, start(&target, to_at)?)));
    let (start, to_start) = match starts {
        Ok(starts) => starts,
        Err(failed) => return Some(failed),
    };
    if start.checked_add(count).is_none() || to_start.checked_add(count).is_none() {
        return Some(fail(libc::EOVERFLOW));
    }
    if start > i64::MAX as u64 || to_start > i64::MAX as u64 {
        return Some(fail(libc::EINVAL));
    }
    // Nothing is copied to where no byte can be, not even nothing.
    if to_start == i64::MAX as u64 {
        return Some(fail(libc::EFBIG));
    }
    let size = source.fs.getattr(source.description.ino()).map_or(0, |attr| attr.size);
    let count = count.min(MOST).min(size.saturating_sub(start));
    let place = |file: &File, offset| Place { ino: file.description.ino(), offset };
    let (one, other) = (place(&source, start), place(&target, to_start));
    let copied = match source.copy_bytes(one, other, count) {
        Ok(copied) => copied,
        Err(Error::Mapped) => return None,
        Err(error) => return Some(fail(novale_posix::errno(&error))),
    };
    target.grew(to_start + copied);
    for (file, at, end) in [(&source, from_at, start + copied), (&target, to_at, to_start + copied)]
    {
        if at == 0 {
            file.set_position(end);
        } else if !guard::store(at, &end) {
            return Some(fail(libc::EFAULT));
        }
    }
    Some(copied.cast_signed())
}

/// Whether `sendfile` moves to a file that is served here.
pub(crate) fn is_to_a_mount(args: &Args) -> bool {
    table::get(descriptor(args[0])).is_some()
}

/// `sendfile(out, in, offset, count)`.
pub(crate) fn sendfile(args: &Args) -> Served {
    let [out, from, at, ..] = *args;
    send(args).or_else(|| descriptors::of_two(&[(out, 0), (from, at)]))
}

/// The same where it is served.
fn send(args: &Args) -> Served {
    let [out, from, at, count, ..] = *args;
    let (mut source, mut target) = (data::file(from), data::file(out));
    if source.is_none() && target.is_none() {
        return None;
    }
    let apart = |fd| table::get(descriptor(fd)).is_some_and(|found| found.is(DIRECTORY | MAPPED));
    if apart(out) || apart(from) {
        return None;
    }
    let foreign = |ours: &Option<File>, fd| match ours {
        Some(_) => None,
        None => Foreign::of(descriptor(fd)),
    };
    let (other_source, other_target) = (foreign(&source, from), foreign(&target, out));
    // What it takes without its pages is to be aligned, as the kernel does it.
    if [&other_source, &other_target].into_iter().flatten().any(Foreign::is_aligned) {
        return None;
    }
    let is_served = match (&source, &other_source) {
        (Some(source), _) => {
            let is_file = other_target.as_ref().is_some_and(Foreign::is_regular);
            target.is_some() || is_file || maps::mode(source.description.mount()) != Mode::Kernel
        }
        // Where its position is asked for, it is the kernel's to move, and where it can't be read, to refuse.
        (None, Some(other)) => at != 0 && other.is_regular() && other.reads(),
        (None, None) => false,
    };
    if !is_served {
        return None;
    }
    let given = if at == 0 { None } else { guard::load::<u64>(at) };
    if at != 0 && given.is_none() {
        return Some(fail(libc::EFAULT));
    }
    if source.as_ref().is_some_and(|source| !source.description.reads()) {
        return Some(fail(libc::EBADF));
    }
    let start = match (&source, given) {
        (_, Some(start)) => start,
        (Some(source), None) => source.position()?,
        (None, None) => return None,
    };
    if !is_range(start, count) {
        return Some(fail(libc::EINVAL));
    }
    let mut to = match (&mut target, other_target) {
        (Some(target), _) => Out::Ours(target, out),
        (None, Some(other)) => other.into_target(),
        (None, None) => return None,
    };
    if let Some(refused) = to.refuses() {
        return Some(refused);
    }
    let moved =
        transfer(&mut to, (source.as_mut(), other_source.as_ref(), start), count.min(MOST))?;
    let end = start + u64::try_from(moved).unwrap_or(0);
    match source {
        Some(_) if at == 0 && moved <= 0 => {}
        Some(mut source) if at == 0 => match source.renew() {
            Some(()) => source.set_position(end),
            // The pools were left meanwhile, and the number is the kernel's since.
            None => _ = sys!(libc::SYS_lseek, from, end, libc::SEEK_SET),
        },
        _ if !guard::store(at, &end) => return Some(fail(libc::EFAULT)),
        _ => {}
    }
    Some(moved)
}

/// Whether the kernel takes so many bytes for a range of a file.
fn is_range(start: u64, count: u64) -> bool {
    let most = i64::MAX as u64;
    start <= most && count <= most && start + count <= most
}

/// Moves bytes until there are no more, or no more are taken; nothing where the kernel has to do it.
fn transfer(
    out: &mut Out<'_>,
    (mut source, other, start): (Option<&mut File>, Option<&Foreign>, u64),
    count: u64,
) -> Served {
    let chunk = if out.keeps_messages() { MESSAGE } else { CHUNK };
    let room = usize::try_from(chunk.min(count)).unwrap_or(0);
    let mut buffer: Vec<u8> = Vec::new();
    // A program may have no memory left, of which only the kernel has no need.
    buffer.try_reserve_exact(room).ok()?;
    buffer.resize(room, 0);
    let mut done = 0;
    while done < count {
        // It may have been outside since.
        let mut is_renewed = || source.as_mut().is_none_or(|source| source.renew().is_some());
        if done > 0 && !(is_renewed() && out.renew()) {
            break;
        }
        let len = usize::try_from(chunk.min(count - done)).unwrap_or(0);
        let room = buffer.get_mut(..len).unwrap_or_default();
        let got = match (&mut source, other) {
            (Some(source), _) => source.read_into(start + done, room),
            // It was looked at just before the call's first bytes.
            (None, Some(other)) if done == 0 || other.is_there() => {
                Some(sys!(libc::SYS_pread64, other.fd, room.as_mut_ptr(), len, start + done))
            }
            (None, _) => Some(RESTART),
        };
        let put = got.and_then(|got| match usize::try_from(got) {
            Ok(got) if got > 0 => out.put(buffer.get(..got).unwrap_or_default(), done > 0),
            _ => Some(got),
        });
        let bytes = put.unwrap_or(0);
        if bytes <= 0 {
            // What was moved counts; of an error the next call hears.
            return if done > 0 { Some(done.cast_signed()) } else { put };
        }
        done += bytes.cast_unsigned();
        if Some(bytes) < got {
            break;
        }
    }
    Some(done.cast_signed())
}

impl Out<'_> {
    /// As [`File::renew`]; false where it is not there any more.
    fn renew(&mut self) -> bool {
        match self {
            Self::Ours(target, _) => target.renew().is_some(),
            Self::File(..) | Self::Stream(..) => true,
        }
    }

    /// Whether what is written at once is read at once: of all sockets but streams.
    fn keeps_messages(&self) -> bool {
        let Self::Stream(other, _) = self else { return false };
        let (mut kind, mut bytes) = (libc::SOCK_STREAM, size_of::<i32>() as u32);
        let (of, what, at) = (libc::SOL_SOCKET, libc::SO_TYPE, &raw mut kind);
        let is_socket = other.is.kind == libc::S_IFSOCK;
        is_socket
            && sys!(libc::SYS_getsockopt, other.fd, of, what, at, &raw mut bytes) == 0
            && kind != libc::SOCK_STREAM
    }

    /// What the call fails with where nothing is sent to what was opened so.
    fn refuses(&self) -> Option<Ret> {
        let flags = match self {
            Self::Ours(target, fd) => {
                kernel::know_flags(descriptor(*fd), &target.description);
                target.description.flags()
            }
            // A pipe has no other end to append to.
            Self::Stream(pipe, _) if pipe.is.kind == libc::S_IFIFO => pipe.flags & !libc::O_APPEND,
            Self::File(other, _) | Self::Stream(other, _) => other.flags,
        };
        if !table::writes(flags) || flags & libc::O_PATH != 0 {
            return Some(fail(libc::EBADF));
        }
        (flags & libc::O_APPEND != 0).then_some(fail(libc::EINVAL))
    }

    /// Writes bytes to it; the call is made again, or ends short, where another file has its number by now. The first of
    /// a call go without a look: to a file system that numbers its files anew each time none would ever be written.
    fn put(&self, bytes: &[u8], has_begun: bool) -> Served {
        match self {
            // The kernel would read the source by pages of its own, and a file that it has those of is not published.
            Self::Ours(target, fd) => data::write_to(target, bytes).or_else(|| {
                if !maps::has_replicas() {
                    return None;
                }
                let now = table::get(descriptor(*fd)).map(|now| now.index);
                // Another file may have the number since, and is sent to as any other.
                let is_its = now == Some(target.description.index);
                Some(if is_its { written::by_kernel(*fd, bytes) } else { RESTART })
            }),
            Self::File(other, at) => Some(quiet::outside(|| {
                // The same file may have been opened anew.
                if has_begun && !(other.is_there() && position(other.fd) == at.get()) {
                    return RESTART;
                }
                let put = sys!(libc::SYS_write, other.fd, bytes.as_ptr(), bytes.len());
                // One that has none stays without.
                let moved = if at.get() < 0 { 0 } else { put.max(0) };
                at.set(at.get() + moved);
                put
            })),
            Self::Stream(other, waits) => send_all(other, *waits, bytes, has_begun),
        }
    }
}

/// Writes to a pipe, a socket or a device: as much as it takes at once where it is not to be waited for, else all of
/// it, unless a signal comes. Nothing where the kernel is to wait.
fn send_all(to: &Foreign, waits: bool, bytes: &[u8], mut has_begun: bool) -> Served {
    let (fd, mut done, mut has_waited) = (to.fd, 0, false);
    let ended = loop {
        if has_begun && !to.is_there() {
            break Some(RESTART);
        }
        has_begun = true;
        let put = put_at_once(fd, bytes.get(done..).unwrap_or_default());
        if let Some(more) = usize::try_from(put).ok().filter(|more| *more > 0) {
            done += more;
            has_waited = false;
            if done >= bytes.len() {
                break None;
            }
            continue;
        }
        let is_full = put == fail(libc::EAGAIN) && waits;
        // What can't be asked not to wait, or says that it has room and has none, goes by rules of its own.
        if is_full && has_waited || put == fail(libc::EOPNOTSUPP) {
            break None;
        }
        if !is_full {
            break Some(put);
        }
        match wait_for_reader(to) {
            Ok(()) => has_waited = true,
            Err(ended) => break ended,
        }
    };
    if done > 0 { Some(done as Ret) } else { ended }
}

/// Writes what can be written without waiting.
fn put_at_once(fd: u64, bytes: &[u8]) -> Ret {
    let part = [bytes.as_ptr() as u64, bytes.len() as u64];
    sys!(libc::SYS_pwritev2, fd, part.as_ptr(), 1, u64::MAX, 0, libc::RWF_NOWAIT)
}

/// Waits until something can be written. `Err` is what the call returns if it has done nothing yet, where a signal has
/// come, or another file has the number by now, or it is the kernel that has to wait: only so long, or on the program's
/// stack for handlers, where all signals are blocked.
fn wait_for_reader(to: &Foreign) -> Result<(), Served> {
    let fd = to.fd;
    if signals::come().is_none() && (signals::are_blocked() || waits_only_so_long(fd)) {
        return Err(None);
    }
    let mut asked = libc::pollfd { fd: descriptor(fd), events: libc::POLLOUT, revents: 0 };
    loop {
        if let Some(goes_on) = signals::come() {
            return Err(Some(if goes_on { RESTART } else { fail(libc::EINTR) }));
        }
        let limit = libc::timespec { tv_sec: 0, tv_nsec: LOOK_NS };
        let poll = || sys!(libc::SYS_ppoll, &raw mut asked, 1, &raw const limit, 0, 0);
        let found = quiet::outside(poll);
        if found != 0 && found != fail(libc::EINTR) {
            return Ok(());
        }
        // It may be one that nobody ever reads.
        if !to.is_there() {
            return Err(Some(RESTART));
        }
    }
}

/// Whether it is a socket to which nobody waits longer than a time that the program has set.
fn waits_only_so_long(fd: u64) -> bool {
    let mut limit = [0_i64; 2];
    let mut bytes = size_of_val(&limit) as u32;
    let (of, what, at) = (libc::SOL_SOCKET, libc::SO_SNDTIMEO, limit.as_mut_ptr());
    sys!(libc::SYS_getsockopt, fd, of, what, at, &raw mut bytes) == 0 && limit != [0; 2]
}
