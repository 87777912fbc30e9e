//! Directories that are open: their listings, and where they are found again through the mount.

use std::sync::atomic::Ordering;

use novale_core::{DirEntry, Fs, Node};
use novale_posix::Span;

use crate::base::guard;
use crate::base::sys::{Args, Ret, Served, fail};
use crate::fds::table::{self, DIRECTORY, InUse, SHARED};
use crate::maps::foreign;
use crate::mounts::{self, ctx};
use crate::paths::{descriptor, refused};

/// Bytes of `struct linux_dirent64` before the name.
const HEAD: usize = 19;
/// Bytes of a listing that one call returns at most; programs ask for 32 KB.
const MOST: usize = 1 << 20;

/// `getdents64(fd, buf, len)`.
pub(crate) fn list(args: &Args) -> Served {
    let [fd, at, len, ..] = *args;
    let directory = table::get(descriptor(fd))?;
    if directory.is_path() {
        return None;
    }
    if !directory.is(DIRECTORY) {
        return Some(fail(libc::ENOTDIR));
    }
    let fs = mounts::fs(directory.mount())?;
    let mut position = directory.offset.lock();
    if directory.is(SHARED) {
        return None;
    }
    let len = usize::try_from(len as u32).unwrap_or(0).min(MOST);
    let span = Span { after: *position, end: directory.end.load(Ordering::Relaxed) };
    let span = match span.fixed(fs, &ctx(), directory.node()) {
        Ok(span) => span,
        Err(error) => return refused(&error),
    };
    directory.end.store(span.end, Ordering::Relaxed);
    let filled = if foreign::may_go(at, len as u64) {
        fill_and_copy(fs, directory.node(), span, (at, len))
    } else {
        // As many entries as there is memory for; that there is too little is told where one is to be put.
        let to = guard::writable_part(at, len).unwrap_or_default();
        let refusal = if to.len() < len { libc::EFAULT } else { libc::EINVAL };
        fill(fs, directory.node(), span, to, refusal)
    };
    match filled {
        Ok((bytes, end)) => {
            *position = end;
            Some(bytes)
        }
        Err(served) => served,
    }
}

/// `getdents(fd, buf, len)`, which programs make no more: a directory's listing is the kernel's.
pub(crate) fn list_old(args: &Args) -> Served {
    let file = table::get(descriptor(args[0])).filter(|found| !found.is(DIRECTORY))?;
    if file.is_path() { None } else { Some(fail(libc::ENOTDIR)) }
}

/// As [`fill`], for memory that others can take away meanwhile.
#[cold]
fn fill_and_copy(
    fs: &Fs,
    node: Node,
    span: Span,
    (at, asked): (u64, usize),
) -> Result<(Ret, u64), Served> {
    let mut len = asked;
    loop {
        let mut to = Vec::new();
        to.try_reserve_exact(len).map_err(|_| Some(fail(libc::ENOMEM)))?;
        to.resize(len, 0);
        let refusal = if len < asked { libc::EFAULT } else { libc::EINVAL };
        let (bytes, end) = fill(fs, node, span, &mut to, refusal)?;
        let used = to.get(..usize::try_from(bytes).unwrap_or(0)).unwrap_or_default();
        let copied = guard::copy_out(at, used);
        if copied == used.len() {
            return Ok((bytes, end));
        }
        // Those entries that there is memory for.
        len = copied;
    }
}

/// Entries of a span, as many as there is room for: their bytes, and the last one's cookie. Where there is
/// room for none, the call is refused so.
fn fill(
    fs: &Fs,
    node: Node,
    span: Span,
    to: &mut [u8],
    refusal: i32,
) -> Result<(Ret, u64), Served> {
    let attr = fs.getattr(node.ino).map_err(|error| refused(&error))?;
    if attr.nlink == 0 {
        return Err(Some(fail(libc::ENOENT)));
    }
    let (mut used, mut end, mut is_full) = (0, span.after, false);
    let listed = novale_posix::list(fs, &ctx(), node, span, &mut |entry| {
        let room = to.get_mut(used..).unwrap_or_default();
        let bytes = put(entry, room);
        used += bytes;
        is_full = bytes == 0;
        if !is_full {
            end = entry.cookie;
        }
        !is_full
    });
    listed.map_err(|error| refused(&error))?;
    if used == 0 && is_full {
        return Err(Some(fail(refusal)));
    }
    Ok((used as Ret, end))
}

/// Puts an entry into a program's buffer; 0 bytes where there is no room for it.
fn put(entry: &DirEntry<'_>, to: &mut [u8]) -> usize {
    let bytes = (HEAD + entry.name.len() + 1).next_multiple_of(8);
    let Some(to) = to.get_mut(..bytes) else { return 0 };
    let (head, name) = to.split_at_mut(HEAD);
    let parts: [&[u8]; 4] = [
        &entry.ino.get().to_le_bytes(),
        &entry.cookie.to_le_bytes(),
        &(bytes as u16).to_le_bytes(),
        &[entry.kind.dirent_type()],
    ];
    let mut rest = head;
    for part in parts {
        let (now, after) = rest.split_at_mut(part.len());
        now.copy_from_slice(part);
        rest = after;
    }
    let (now, end) = name.split_at_mut(entry.name.len());
    now.copy_from_slice(entry.name);
    end.fill(0);
    bytes
}

/// `lseek` of a directory: its positions are cookies.
pub(crate) fn seek(directory: &InUse, given: i64, whence: i32) -> Served {
    let mut position = directory.offset.lock();
    if directory.is(SHARED) {
        return None;
    }
    let to = match whence {
        libc::SEEK_SET => given,
        libc::SEEK_CUR => position.cast_signed().saturating_add(given),
        _ => return Some(fail(libc::EINVAL)),
    };
    let Ok(new) = u64::try_from(to) else { return Some(fail(libc::EINVAL)) };
    *position = new;
    Some(to)
}
