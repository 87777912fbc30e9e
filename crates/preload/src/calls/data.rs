//! Reading, writing and positions.

use std::borrow::Cow;

use novale_core::{Error, Fallocate, Fs, Node, Place, SetAttr, UpdatePolicy};
use novale_posix::report::Why;
use novale_posix::{Target, Whence, Written};

use crate::base::sys::{Args, Ret, Served, fail, sys};
use crate::base::{guard, report};
use crate::calls::memory::{
    Bytes, MOST, Refused, checked_length, errno, gathered, given, pieces, put_out, room, total,
};
use crate::calls::written;
use crate::fds::kernel;
use crate::fds::table::{self, DIRECTORY, InUse, MAPPED, SHARED};
use crate::maps::{self, foreign, growing, replicas};
use crate::mounts::state::Rights;
use crate::mounts::{self, ctx, state};
use crate::paths::{descriptor, keeps_set_id};

/// Buffers up to this many bytes are probed whole; of a longer one only what the file can fill.
const PROBED: usize = 64 << 10;
/// A flag of `pwritev2` since Linux 6.9: not at the end, although the file was opened with `O_APPEND`.
const RWF_NOAPPEND: i32 = 0x20;

/// Where a call reads or writes.
#[derive(Clone, Copy)]
enum At {
    Position,
    Offset(u64),
}

/// How a call writes, beside where.
#[derive(Clone, Copy, Default)]
struct How {
    append: Append,
    /// Durable when it returns, in mode buffered too.
    durable: bool,
}

/// Whether a call writes at the end, wherever that is.
#[derive(Clone, Copy, Default)]
enum Append {
    /// If the file was opened so.
    #[default]
    AsOpened,
    Always,
    Never,
}

impl Append {
    fn new(always: bool, never: bool) -> Self {
        if always {
            Self::Always
        } else if never {
            Self::Never
        } else {
            Self::AsOpened
        }
    }
}

/// A regular file in use, with its file system.
pub(crate) struct File {
    fd: i32,
    pub(crate) description: InUse,
    pub(crate) fs: &'static Fs,
}

/// The regular file of a descriptor, unless all of it is the kernel's.
pub(crate) fn file(fd: u64) -> Option<File> {
    let fd = descriptor(fd);
    let description = table::get(fd)?;
    if description.is(DIRECTORY | MAPPED) {
        if state::has_size_limit() {
            kernel::know_end(fd, &description);
        }
        return None;
    }
    let fs = mounts::fs(description.mount())?;
    Some(File { fd, description, fs })
}

impl File {
    /// To be called once the thread has been outside: meanwhile the pool may have been left, and joined anew.
    pub(crate) fn renew(&mut self) -> Option<()> {
        self.fs = mounts::fs(self.description.mount())?;
        Some(())
    }

    /// Where the next call without an offset begins.
    pub(crate) fn position(&self) -> Option<u64> {
        let position = self.description.offset.lock();
        if !self.description.is(SHARED) {
            return Some(*position);
        }
        let ask = |fd| sys!(libc::SYS_lseek, fd, 0, libc::SEEK_CUR);
        u64::try_from(table::with_number(self.fd, &self.description, ask)?).ok()
    }

    /// Sets that.
    pub(crate) fn set_position(&self, to: u64) {
        let mut position = self.description.offset.lock();
        *position = to;
        if self.description.is(SHARED) {
            kernel::set_position(self.fd, &self.description, to.cast_signed());
        }
    }

    /// Reads into memory of this library's; nothing where the kernel has to do it.
    pub(crate) fn read_into(&self, offset: u64, buf: &mut [u8]) -> Served {
        match self.read_bytes(offset, buf).map_err(Refused::from) {
            Ok(bytes) => Some(bytes as Ret),
            Err(Refused::With(failed)) => Some(failed),
            Err(Refused::ByKernel(_)) => None,
        }
    }

    /// Reads, and has the access recorded unless the file is open with `O_NOATIME`.
    fn read_bytes(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        let ino = self.description.ino();
        if self.description.flags() & libc::O_NOATIME != 0 {
            return self.fs.peek(&ctx(), ino, offset, buf);
        }
        self.fs.read(&ctx(), ino, offset, buf)
    }

    /// Copies, and has the access recorded as [`File::read_bytes`] does.
    pub(crate) fn copy_bytes(&self, from: Place, to: Place, len: u64) -> Result<u64, Error> {
        let maps = maps::with_replicas();
        let copied = if self.description.flags() & libc::O_NOATIME != 0 {
            self.fs.copy_range_peeking(&ctx(), from, to, len)?
        } else {
            self.fs.copy_range(&ctx(), from, to, len)?
        };
        let (file, range) = ((self.description.mount(), to.ino), to.offset..to.offset + copied);
        replicas::changed(maps, self.fs, file, &range);
        Ok(copied)
    }

    fn read(&self, at: u64, len: u64, offset: u64) -> Result<usize, Refused> {
        if !guard::are_a_programs(at, len) {
            return Err(errno(libc::EFAULT));
        }
        let len = checked_length(len, offset)?;
        let len = if len <= PROBED {
            len
        } else {
            let attr = self.fs.getattr(self.description.ino())?;
            let left = attr.size.saturating_sub(offset);
            len.min(usize::try_from(left).unwrap_or(len).max(1))
        };
        if foreign::may_go(at, len as u64) {
            return self.read_and_copy(at, len, offset);
        }
        let Some(buf) = guard::writable_part(at, len) else { return self.read_nowhere(offset) };
        Ok(self.read_bytes(offset, buf)?)
    }

    /// Reads to memory that others can take away meanwhile.
    #[cold]
    fn read_and_copy(&self, at: u64, len: usize, offset: u64) -> Result<usize, Refused> {
        let mut bytes = room(len)?;
        bytes.resize(len, 0);
        let done = self.read_bytes(offset, &mut bytes)?;
        put_out(&[(at, len)], bytes.get(..done).unwrap_or_default())
    }

    /// Without memory to read to: beyond the end there is nothing to be put there.
    #[cold]
    fn read_nowhere(&self, offset: u64) -> Result<usize, Refused> {
        let size = self.fs.getattr(self.description.ino())?.size;
        if offset < size { Err(errno(libc::EFAULT)) } else { Ok(0) }
    }

    /// Whether all writes of the file are durable when they return, in any mode.
    fn syncs(&self) -> bool {
        self.description.flags() & libc::O_DSYNC != 0 || mounts::syncs(self.description.mount())
    }

    /// Where a replica shows the file nothing is moved in it: what is stored there and not published yet has its place.
    fn fallocate(&self, mode: Fallocate, offset: u64, len: u64) -> Result<(), Refused> {
        let ino = self.description.ino();
        let file = (self.description.mount(), ino);
        let maps = maps::with_replicas().filter(|maps| replicas::are_of(maps, file));
        let moves = matches!(mode, Fallocate::CollapseRange | Fallocate::InsertRange);
        if maps.is_some() && moves {
            return Err(Error::Pinned.into());
        }
        if let Some(why) = self.left_to_kernel() {
            return Err(Refused::ByKernel(why));
        }
        self.fs.fallocate(&ctx(), ino, mode, offset, len)?;
        replicas::changed(maps, self.fs, file, &written::of_fallocate(mode, offset, len));
        Ok(())
    }

    /// Until the replicas show it, where there are any, no other thread makes the file longer: what the program stores
    /// there stays.
    fn truncate(&self, size: u64) -> Result<(), Error> {
        let ino = self.description.ino();
        let file = (self.description.mount(), ino);
        let maps = maps::with_replicas().filter(|maps| replicas::are_of(maps, file));
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.fs.setattr(&ctx(), Node::current(ino), &set)?;
        replicas::cut(maps, self.fs, file, size);
        Ok(())
    }

    fn write(&self, bytes: &[u8], to: Target, durable: bool) -> Result<Written, Refused> {
        let ino = self.description.ino();
        if let Target::Offset(offset) = to
            && !durable
            && let Some(written) = self.write_from_mapping(bytes, offset)
        {
            return Ok(written?);
        }
        let maps = maps::with_replicas();
        let write = if durable { novale_posix::write_durable } else { novale_posix::write };
        let written = write(self.fs, &ctx(), ino, to, bytes)?;
        let (file, start) = ((self.description.mount(), ino), written.end - written.bytes as u64);
        let bytes = bytes.get(..written.bytes).unwrap_or_default();
        match maps {
            Some(maps) => replicas::wrote(&maps, file, start, bytes),
            None => replicas::changed(None, self.fs, file, &(start..written.end)),
        }
        Ok(written)
    }

    /// Writes bytes that lie in a file's own pages, mapped here, by where they lie, if the file is to be
    /// written so (ZCL).
    fn write_from_mapping(&self, bytes: &[u8], offset: u64) -> Option<Result<Written, Error>> {
        let (fs, ino) = (self.fs, self.description.ino());
        if !maps::are_some() || maps::has_replicas() {
            return None;
        }
        let policy = fs.update_of(ino).ok()?.unwrap_or(fs.update_policy());
        if policy != UpdatePolicy::Zcl {
            return None;
        }
        // Held until it is written: no mapping gives way, and no page gets another place.
        let maps = maps::some()?;
        let start = bytes.as_ptr().addr() as u64;
        let range = start..start + bytes.len() as u64;
        let part = maps.around(&range)?;
        if part.of.mount != self.description.mount() || !part.of.is_own() {
            return None;
        }
        let (_, from) = part.within(&range)?;
        let source = maps::source_runs(fs, part.of.hold()?, from..from + bytes.len() as u64)?;
        let written = fs.write_from(&ctx(), ino, offset, bytes, &source);
        Some(written.map(|bytes| Written { bytes, end: offset + bytes as u64 }))
    }

    /// Why the kernel makes the calls that change the file's bytes, where it does: it judges how large a file
    /// may be, and takes set-id bits away where who writes may not keep them, whoever opened the file.
    pub(crate) fn left_to_kernel(&self) -> Option<Why> {
        if state::has_size_limit() {
            return Some(Why::SizeLimit);
        }
        let rights = state::rights();
        if rights == Rights::All {
            return None;
        }
        let mode = self.fs.mode_bits_of(self.description.ino()).ok()?;
        (!keeps_set_id(rights, mode)).then_some(Why::Rights)
    }

    /// The file may go to `end` now: this process' mappings of it show that.
    pub(crate) fn grew(&self, end: u64) {
        growing::grew(self.description.mount(), self.description.ino(), end);
    }
}

/// What a call on a file gives back. Nobody has its position locked.
fn served(file: &File, result: Result<Ret, Refused>) -> Served {
    match result {
        Ok(value) | Err(Refused::With(value)) => Some(value),
        Err(Refused::ByKernel(why)) => {
            report::because(why);
            let taken = kernel::take_shared(file.fd, &file.description);
            if why == Why::Rights {
                // By the mode that it knows it takes set-id bits away, or does not.
                kernel::know_length(file.fd, &file.description);
            }
            if why == Why::SizeLimit {
                // What is appended begins for it where it knows the end to be.
                kernel::know_end(file.fd, &file.description);
            }
            if taken { None } else { Some(fail(libc::EIO)) }
        }
    }
}

/// What `read` and its kin have in common.
fn read_with(fd: u64, at: At, read: impl FnOnce(&File, u64) -> Result<usize, Refused>) -> Served {
    let file = file(fd)?;
    if matches!(at, At::Offset(offset) if offset > i64::MAX as u64) {
        return Some(fail(libc::EINVAL));
    }
    if !file.description.reads() {
        return Some(fail(libc::EBADF));
    }
    let done = match at {
        At::Offset(offset) => read(&file, offset),
        At::Position => {
            let mut position = file.description.offset.lock();
            if file.description.is(SHARED) {
                return None;
            }
            read(&file, *position).inspect(|bytes| *position += *bytes as u64)
        }
    };
    served(&file, done.map(|bytes| bytes as Ret))
}

/// What `write` and its kin have in common.
fn write_with<'a>(
    fd: u64,
    at: At,
    how: How,
    bytes: impl FnOnce() -> Result<Bytes<'a>, Refused>,
) -> Served {
    let Some(file) = file(fd) else {
        know_end_of_given(fd);
        return None;
    };
    write_file(&file, at, how, bytes)
}

/// Before the kernel appends by a descriptor that is all its own, as where a user has given the file set-id bits:
/// it moves the position to behind where it knows the end to be.
#[cold]
fn know_end_of_given(fd: u64) {
    let fd = descriptor(fd);
    if let Some(description) = table::get(fd).filter(|found| found.is(MAPPED)) {
        kernel::know_flags(fd, &description);
        if description.appends() {
            kernel::know_end(fd, &description);
        }
    }
}

/// Writes bytes of this library's at a file's position.
pub(crate) fn write_to(file: &File, bytes: &[u8]) -> Served {
    write_file(file, At::Position, How::default(), || Ok(Cow::Borrowed(bytes)))
}

fn write_file<'a>(
    file: &File,
    at: At,
    how: How,
    bytes: impl FnOnce() -> Result<Bytes<'a>, Refused>,
) -> Served {
    if matches!(at, At::Offset(offset) if offset > i64::MAX as u64) {
        return Some(fail(libc::EINVAL));
    }
    if !file.description.writes() {
        return Some(fail(libc::EBADF));
    }
    let bytes = match bytes() {
        Ok(bytes) => bytes,
        Err(refused) => return served(file, Err(refused)),
    };
    let bytes = bytes.as_ref();
    if matches!(at, At::Offset(offset) if offset + bytes.len() as u64 > i64::MAX as u64) {
        return Some(fail(libc::EINVAL));
    }
    kernel::know_flags(file.fd, &file.description);
    let append = match how.append {
        Append::AsOpened => file.description.appends(),
        Append::Always => true,
        Append::Never => false,
    };
    let durable = how.durable || file.syncs();
    if bytes.is_empty() {
        return Some(0);
    }
    if let Some(why) = file.left_to_kernel() {
        return served(file, Err(Refused::ByKernel(why)));
    }
    let to = |offset| if append { Target::End } else { Target::Offset(offset) };
    let done = match at {
        At::Offset(offset) => file.write(bytes, to(offset), durable),
        At::Position => {
            let mut position = file.description.offset.lock();
            let is_beyond = *position + bytes.len() as u64 > i64::MAX as u64;
            if is_beyond && !append && !file.description.is(SHARED) {
                return Some(fail(libc::EINVAL));
            }
            if !file.description.is(SHARED) {
                file.write(bytes, to(*position), durable).inspect(|written| *position = written.end)
            } else if append {
                // The position belongs to others too; where it does not count, it is only moved.
                file.write(bytes, Target::End, durable).inspect(|written| {
                    let end = written.end.cast_signed();
                    kernel::set_position(file.fd, &file.description, end);
                })
            } else {
                return None;
            }
        }
    };
    if let Ok(written) = &done {
        file.grew(written.end);
    }
    served(file, done.map(|written| written.bytes as Ret))
}

/// `read(fd, buf, len)`.
pub(crate) fn read(args: &Args) -> Served {
    let [fd, at, len, ..] = *args;
    read_with(fd, At::Position, |file, offset| file.read(at, len, offset))
}

/// `pread64(fd, buf, len, offset)`.
pub(crate) fn pread(args: &Args) -> Served {
    let [fd, at, len, offset, ..] = *args;
    read_with(fd, At::Offset(offset), |file, offset| file.read(at, len, offset))
}

/// `write(fd, buf, len)`.
pub(crate) fn write(args: &Args) -> Served {
    let [fd, at, len, ..] = *args;
    write_with(fd, At::Position, How::default(), || given(at, len, 0))
}

/// `pwrite64(fd, buf, len, offset)`.
pub(crate) fn pwrite(args: &Args) -> Served {
    let [fd, at, len, offset, ..] = *args;
    write_with(fd, At::Offset(offset), How::default(), || given(at, len, offset))
}

/// Reads into pieces as one read, so that no write is seen in part.
fn read_pieces(file: &File, pieces: &[(u64, usize)], offset: u64) -> Result<usize, Refused> {
    if let [(at, len)] = *pieces {
        return file.read(at, len as u64, offset);
    }
    let total = checked_length(total(pieces), offset)?;
    let attr = file.fs.getattr(file.description.ino())?;
    let left = usize::try_from(attr.size.saturating_sub(offset)).unwrap_or(MOST);
    let total = total.min(left);
    let mut bytes = room(total)?;
    bytes.resize(total, 0);
    let done = file.read_bytes(offset, &mut bytes)?;
    put_out(pieces, bytes.get(..done).unwrap_or_default())
}

fn readv_at(fd: u64, (at, count): (u64, u64), place: At) -> Served {
    read_with(fd, place, |file, offset| {
        let pieces = pieces(at, count).map_err(Refused::With)?;
        read_pieces(file, &pieces, offset)
    })
}

fn writev_at(fd: u64, (at, count): (u64, u64), place: At, how: How) -> Served {
    write_with(fd, place, how, || {
        let pieces = pieces(at, count).map_err(Refused::With)?;
        if let At::Offset(offset) = place {
            checked_length(total(&pieces), offset)?;
        }
        gathered(&pieces)
    })
}

/// `readv(fd, iov, count)`.
pub(crate) fn readv(args: &Args) -> Served {
    let [fd, at, count, ..] = *args;
    readv_at(fd, (at, count), At::Position)
}

/// `preadv(fd, iov, count, low, high)`, and `preadv2` with flags after it.
pub(crate) fn preadv(args: &Args, has_flags: bool) -> Served {
    let [fd, at, count, offset, _, flags] = *args;
    let flags = if has_flags { flags } else { 0 };
    let place = if has_flags && offset == u64::MAX { At::Position } else { At::Offset(offset) };
    let known = (libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC) as u64;
    if flags & !known != 0 {
        return with_flags_of_kernel(fd, place, false);
    }
    readv_at(fd, (at, count), place)
}

/// `writev(fd, iov, count)`.
pub(crate) fn writev(args: &Args) -> Served {
    let [fd, at, count, ..] = *args;
    writev_at(fd, (at, count), At::Position, How::default())
}

/// `pwritev(fd, iov, count, low, high)`, and `pwritev2` with flags after it.
pub(crate) fn pwritev(args: &Args, has_flags: bool) -> Served {
    let [fd, at, count, offset, _, flags] = *args;
    let flags = if has_flags { flags } else { 0 };
    let place = if has_flags && offset == u64::MAX { At::Position } else { At::Offset(offset) };
    let known = libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_APPEND;
    let has = |flag: i32| flags & flag as u64 != 0;
    let by_kernel = || if has(RWF_NOAPPEND) { appended_by_kernel(fd) } else { None };
    if flags & !((known | RWF_NOAPPEND) as u64) != 0 {
        return with_flags_of_kernel(fd, place, has(libc::RWF_APPEND)).or_else(by_kernel);
    }
    let durable = has(libc::RWF_DSYNC) || has(libc::RWF_SYNC);
    let append = match (has(libc::RWF_APPEND), has(RWF_NOAPPEND)) {
        (true, true) => {
            let writes = file(fd)?.description.writes();
            let is_negative = matches!(place, At::Offset(offset) if offset > i64::MAX as u64);
            // With nothing to write they are not looked at.
            let is_nothing = || pieces(at, count).is_ok_and(|pieces| pieces.is_empty());
            if writes && !is_negative && is_nothing() {
                return Some(0);
            }
            return Some(fail(if writes || is_negative { libc::EINVAL } else { libc::EBADF }));
        }
        (append, never) => Append::new(append, never),
    };
    writev_at(fd, (at, count), place, How { append, durable }).or_else(by_kernel)
}

/// What is not to be appended is not left to the kernel where the file is open to append: the mount is not told, and
/// would append it.
#[cold]
fn appended_by_kernel(fd: u64) -> Served {
    let fd = descriptor(fd);
    let description = table::get(fd)?;
    kernel::know_flags(fd, &description);
    let is_appended = description.appends() && description.writes() && !description.is(DIRECTORY);
    is_appended.then(|| fail(libc::EOPNOTSUPP))
}

/// Flags that are not known here: the kernel judges them, and reads or writes from the position that it knows
/// and moves it. Where it is to append it has to know the end.
#[cold]
fn with_flags_of_kernel(fd: u64, place: At, append: bool) -> Served {
    let file = file(fd)?;
    let is_taken = match place {
        At::Position => kernel::take_shared(file.fd, &file.description),
        At::Offset(_) => kernel::take(&file.description),
    };
    if !is_taken {
        return Some(fail(libc::EIO));
    }
    if append || file.description.appends() {
        kernel::know_end(file.fd, &file.description);
    }
    None
}

/// Whether a directory is open for more than to start from.
fn is_listed(directory: &InUse) -> bool {
    directory.is(DIRECTORY) && !directory.is_path()
}

/// `lseek(fd, offset, whence)`.
pub(crate) fn lseek(args: &Args) -> Served {
    let [fd, offset, whence, ..] = *args;
    if let Some(directory) = table::get(descriptor(fd)).filter(is_listed) {
        return super::directories::seek(&directory, offset.cast_signed(), whence as i32);
    }
    let description = table::get(descriptor(fd)).filter(|found| !found.is(DIRECTORY))?;
    // The kernel may have an old idea of where a file ends, no matter whose the position is.
    let is_from_end = whence as i32 == libc::SEEK_END;
    let tells_length = !matches!(whence as i32, libc::SEEK_SET | libc::SEEK_CUR);
    if description.is(MAPPED) && !is_from_end {
        return None;
    }
    let fs = mounts::fs(description.mount())?;
    let failed = |error| Some(fail(novale_posix::errno(&error)));
    let whence = match Whence::of_call(offset.cast_signed(), whence as i32) {
        Ok(whence) => whence,
        Err(error) => return failed(error),
    };
    let mut position = description.offset.lock();
    let is_shared = description.is(SHARED);
    if is_shared && !is_from_end {
        return None;
    }
    let sought = match novale_posix::sought(fs, description.ino(), *position, whence) {
        Ok(to) if is_shared => kernel::set_position(descriptor(fd), &description, to.cast_signed()),
        Ok(to) => {
            *position = to;
            Some(to.cast_signed())
        }
        Err(error) => failed(error),
    };
    drop(position);
    if tells_length {
        kernel::before_told(descriptor(fd), &description, fs);
    }
    sought
}

/// `fsync(fd)`, `fdatasync(fd)`: what was written, by this program or another, is durable already or now,
/// and what they have stored in mapped pages now.
pub(crate) fn sync(args: &Args) -> Served {
    if let Some(directory) = table::get(descriptor(args[0])).filter(is_listed) {
        let done = mounts::fs(directory.mount())?.sync(&ctx(), directory.ino());
        return Some(done.map_or_else(|error| fail(novale_posix::errno(&error)), |()| 0));
    }
    let file = file(args[0])?;
    if !maps::flush_file(file.description.mount(), file.description.ino()) {
        return Some(fail(libc::EIO));
    }
    // What others have stored in the kernel's pages, it writes back.
    let done = match file.fs.is_mapped(&ctx(), file.description.ino()) {
        Ok(true) => return served(&file, Err(Refused::ByKernel(Why::Mapped))),
        _ => file.fs.sync_beside(&ctx(), file.description.ino()),
    };
    served(&file, done.map(|()| 0).map_err(Into::into))
}

/// `syncfs(fd)`: what is buffered of the pool's files, or was stored to pages of them; what the kernel has of mapped ones
/// it writes back itself.
pub(crate) fn sync_all(args: &Args) -> Served {
    let description = table::get(descriptor(args[0]))?;
    let done = mounts::fs(description.mount())?.sync_all(&ctx());
    let is_path = description.is_path();
    drop(description);
    match done {
        Err(error) if !is_path => Some(fail(novale_posix::errno(&error))),
        _ => other(args),
    }
}

/// `sync_file_range(fd, offset, len, flags)`.
pub(crate) fn sync_range(args: &Args) -> Served {
    let [fd, offset, len, flags, ..] = *args;
    let description = table::get(descriptor(fd))?;
    if description.is_path() {
        return None;
    }
    drop(description);
    let known = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    let end = offset.cast_signed().checked_add(len.cast_signed());
    let good = i64::try_from(offset).is_ok_and(|offset| end.is_some_and(|end| end >= offset));
    if good && flags as u32 & !known == 0 { sync(args) } else { Some(fail(libc::EINVAL)) }
}

/// `ftruncate(fd, size)`.
pub(crate) fn truncate(args: &Args) -> Served {
    let file = file(args[0])?;
    let size = args[1];
    if !file.description.writes() || size > i64::MAX as u64 {
        return Some(fail(libc::EINVAL));
    }
    if let Some(why) = file.left_to_kernel() {
        return served(&file, Err(Refused::ByKernel(why)));
    }
    let done = file.truncate(size);
    if done.is_ok() {
        file.grew(size);
    }
    served(&file, done.map(|()| 0).map_err(Into::into))
}

/// `fallocate(fd, mode, offset, len)`.
pub(crate) fn fallocate(args: &Args) -> Served {
    let [fd, mode, offset, len, ..] = *args;
    let file = file(fd)?;
    let (start, bytes) = (offset.cast_signed(), len.cast_signed());
    if start < 0 || bytes <= 0 {
        return Some(fail(libc::EINVAL));
    }
    if !file.description.writes() {
        // The kernel has modes that are not known here, and asks for the right to write after those.
        drop(file);
        return other(args);
    }
    let mode = match novale_posix::fallocate_mode(mode as i32) {
        Ok(mode) => mode,
        Err(error) => return Some(fail(novale_posix::errno(&error))),
    };
    if start.checked_add(bytes).is_none() {
        return Some(fail(libc::EFBIG));
    }
    let done = file.fallocate(mode, offset, len);
    if done.is_ok() {
        file.grew(offset + len);
    }
    served(&file, done.map(|()| 0))
}

/// `posix_fadvise(fd, offset, len, advice)`: memory needs none.
pub(crate) fn advise(args: &Args) -> Served {
    let [fd, _, len, advice, ..] = *args;
    let known = (libc::POSIX_FADV_NORMAL..=libc::POSIX_FADV_NOREUSE).contains(&(advice as i32));
    file(fd).map(|_| if known && len.cast_signed() >= 0 { 0 } else { fail(libc::EINVAL) })
}

/// `readahead(fd, ..)`: memory is as near as it can be.
pub(crate) fn readahead(args: &Args) -> Served {
    file(args[0]).map(|file| if file.description.reads() { 0 } else { fail(libc::EBADF) })
}

/// Any call on a descriptor that has no way of its own here: the kernel's, on its own description of the
/// file.
pub(crate) fn other(args: &Args) -> Served {
    let description = table::get(descriptor(args[0]))?;
    if description.is(DIRECTORY) || kernel::take(&description) {
        None
    } else {
        Some(fail(libc::EIO))
    }
}
