//! Names outside of all mounts that lead into one: by a symbolic link, by a bind mount of it, from a
//! directory that the kernel has open there.
//!
//! What such a name leads to is the kernel's to say, each time: others may change it at any moment, and
//! the kernel may refuse the way there. So nothing that is remembered here is believed. Remembered is which
//! beginning of a path is worth a question, and of which folders none is; the question itself is one look by
//! the kernel at that beginning, or, of a link that leads deeper into a mount, at the link. Neither asks
//! the daemon.
//!
//! Comes in: a path that leads into no mount as it is written. Goes out: a mount, where the path goes on in
//! it, and what is left of it.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use novale_core::{Ino, Node};
use novale_posix::Start;

use crate::base::guard::PATH_MAX;
use crate::base::lock::Lock;
use crate::base::settings;
use crate::base::sys::sys;
use crate::mounts::facts::{self, Seen, look};
use crate::mounts::state;
use crate::mounts::{self, OtherMount};
use crate::paths::{leads_to_descriptors, spelling};

/// Beginnings of paths that are remembered.
const WAYS: usize = 8;
/// Bytes of one; longer ones are the kernel's.
const WAY_BYTES: usize = 256;
/// Links outside of mounts that are followed one after the other; the kernel goes on with more.
const LINKS_MAX: usize = 8;
/// Folders that are remembered to lead into no mount, for so many seconds and the rest of the next.
const ELSEWHERE: usize = 256;
const ELSEWHERE_SECONDS: u64 = 1;
/// Bits of a word of [`NOWHERE`] that say when it was stored.
const SECONDS: u64 = (1 << 20) - 1;

/// Where a path goes on in a mount.
pub(crate) struct Entered<'a> {
    pub(crate) mount: usize,
    pub(crate) start: Start,
    pub(crate) path: Cow<'a, [u8]>,
    pub(crate) other_mount: Option<OtherMount>,
    /// The path is not one that leads there as it is written: the next moment it may lead elsewhere.
    pub(crate) from_outside: bool,
}

/// How the beginning of a path leads into a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leads {
    /// What it leads to is in the mount: the root of one, or an open directory.
    There,
    /// It is a symbolic link to what lies deeper in a mount: to look at that would ask the daemon.
    Link,
}

struct Known {
    dir: i32,
    way: Leads,
    len: usize,
    path: [u8; WAY_BYTES],
}

struct Table {
    known: [Option<Known>; WAYS],
    next: usize,
}

static TABLE: Lock<Table> = Lock::new(Table { known: [const { None }; WAYS], next: 0 });
/// Those of [`TABLE`], for a look without the lock.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Folders that lead into no mount: the upper bits of a hash, and when that was found.
static NOWHERE: [AtomicU64; ELSEWHERE] = [const { AtomicU64::new(0) }; ELSEWHERE];
/// A part of each hash: what was found before counts no more when it changes.
static EPOCH: AtomicU32 = AtomicU32::new(0);

/// Where a path from a directory goes on in a mount, if it leads into one; with `follow` also where its last
/// name is what leads there. Only where the program's user asks for it: a question about a folder of a file
/// system that hangs keeps other threads from starting programs, and a link that is replaced while a
/// relative one behind it is read may lead to where no moment led.
pub(crate) fn enter(dir: i32, path: &[u8], follow: bool) -> Option<Entered<'_>> {
    if !settings::serves_outside() {
        return None;
    }
    let mut path = Cow::Borrowed(path);
    for _ in 0..LINKS_MAX {
        let (len, way) = find(dir, &path, follow)?;
        if way == Leads::There {
            if let Some((mount, seen)) = seen_inside(dir, path.get(..len)?) {
                return start_there(mount, &seen, path, len);
            }
            // Another beginning may lead there by now.
            forget(dir, path.get(..len)?);
            continue;
        }
        let followed = substitute(dir, path.get(..len)?, path.get(len..)?)?;
        let written = followed.starts_with(b"/").then(|| spelling::written(&followed)).flatten();
        if let Some((mount, rest)) = written {
            let (start, path) = (Start::Whole(Node::ROOT), Cow::Owned(rest.to_vec()));
            return Some(Entered { mount, start, path, other_mount: None, from_outside: true });
        }
        path = Cow::Owned(followed);
    }
    None
}

/// The directory of a mount that the beginning of a path leads to, as the kernel shows it.
fn seen_inside(dir: i32, beginning: &[u8]) -> Option<(usize, Seen)> {
    let seen = look(dir, &ended(beginning), 0).filter(|seen| seen.is_directory)?;
    Some((mounts::of_seen(&seen)?, seen))
}

/// Where a path goes on whose beginning leads to a directory that the kernel keeps.
fn start_there<'a>(
    mount: usize,
    seen: &Seen,
    path: Cow<'a, [u8]>,
    len: usize,
) -> Option<Entered<'a>> {
    let other_mount = mounts::seen_by(mount, seen).ok()?;
    let node = mounts::fs(mount)?.getattr(Ino::new(seen.ino)).ok()?.node();
    let start = if other_mount.is_some() { Start::Part(node) } else { Start::Whole(node) };
    let path = match path {
        _ if len > 0 && path.len() == len => Cow::Borrowed(&b"/"[..]),
        Cow::Borrowed(path) => Cow::Borrowed(path.get(len..)?),
        Cow::Owned(path) => Cow::Owned(path.get(len..)?.to_vec()),
    };
    Some(Entered { mount, start, path, other_mount, from_outside: true })
}

/// A path as the kernel wants it.
fn ended(path: &[u8]) -> Vec<u8> {
    [path, b"\0"].concat()
}

/// The beginning of a path that may lead into a mount.
fn find(dir: i32, path: &[u8], follow: bool) -> Option<(usize, Leads)> {
    if let Some(found) = recall(dir, path, follow) {
        return Some(found);
    }
    let folder = folder(path);
    let is_relative = !path.starts_with(b"/");
    if is_relative && let Some(found) = ask(dir, b"") {
        return Some(found);
    }
    if folder.is_empty() { None } else { ask(dir, folder) }
}

/// A path up to the last of its names, without the slashes between.
fn folder(path: &[u8]) -> &[u8] {
    let is_name = |byte: &u8| *byte != b'/';
    let end = path.iter().rposition(is_name).map_or(0, |at| at + 1);
    let names = path.get(..end).unwrap_or_default();
    let slash = names.iter().rposition(|byte| *byte == b'/');
    let folder = slash.and_then(|at| names.get(..at)).unwrap_or_default();
    let end = folder.iter().rposition(is_name).map_or(0, |at| at + 1);
    folder.get(..end).unwrap_or_default()
}

/// What is remembered of a path's beginning.
fn recall(dir: i32, path: &[u8], follow: bool) -> Option<(usize, Leads)> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let table = TABLE.lock();
    let fits = |known: &&Known| {
        let rest = known.path.get(..known.len).and_then(|known| path.strip_prefix(known));
        let goes_on =
            rest.is_some_and(|rest| known.len == 0 || has_name(rest) || follow && rest.is_empty());
        goes_on && known.dir == dir && (known.len > 0) | !path.starts_with(b"/")
    };
    table.known.iter().flatten().find(fits).map(|known| (known.len, known.way))
}

/// Whether a name comes after the beginning of a path.
fn has_name(rest: &[u8]) -> bool {
    rest.starts_with(b"/") && rest.iter().any(|byte| *byte != b'/')
}

fn remember(dir: i32, beginning: &[u8], way: Leads) {
    let mut path = [0; WAY_BYTES];
    let Some(to) = path.get_mut(..beginning.len()) else { return };
    to.copy_from_slice(beginning);
    let mut table = TABLE.lock();
    let next = table.next;
    table.next = (next + 1) % WAYS;
    if let Some(place) = table.known.get_mut(next) {
        *place = Some(Known { dir, way, len: beginning.len(), path });
    }
    COUNT.store(1, Ordering::Release);
}

/// Forgets what leads into no mount any more.
fn forget(dir: i32, beginning: &[u8]) {
    let mut table = TABLE.lock();
    let is_it = |known: &Known| known.dir == dir && known.path.get(..known.len) == Some(beginning);
    for place in &mut table.known {
        if place.as_ref().is_some_and(is_it) {
            *place = None;
        }
    }
}

/// Whether a folder leads into a mount, and by which of its beginnings, unless that was asked a moment ago.
fn ask(dir: i32, folder: &[u8]) -> Option<(usize, Leads)> {
    let (word, hash) = word_of(dir, folder)?;
    let now = seconds();
    let known = word.load(Ordering::Relaxed);
    let age = now.wrapping_sub(known) & SECONDS;
    if known & !SECONDS == hash && age <= ELSEWHERE_SECONDS {
        return None;
    }
    let found = look_for(dir, folder);
    match found {
        Some((len, way)) => remember(dir, folder.get(..len)?, way),
        None => word.store(hash | now & SECONDS, Ordering::Relaxed),
    }
    found
}

fn seconds() -> u64 {
    (mounts::ctx().now_ns / 1_000_000_000).cast_unsigned()
}

/// The word for a folder, and what stands in its upper bits.
fn word_of(dir: i32, folder: &[u8]) -> Option<(&'static AtomicU64, u64)> {
    let mut hasher = std::hash::DefaultHasher::new();
    (dir, EPOCH.load(Ordering::Relaxed), folder).hash(&mut hasher);
    let hash = hasher.finish();
    let word = NOWHERE.get(usize::try_from(hash & SECONDS).ok()? % ELSEWHERE)?;
    Some((word, hash & !SECONDS))
}

/// Asks the kernel whether a folder leads into a mount, and by which of its beginnings.
fn look_for(dir: i32, folder: &[u8]) -> Option<(usize, Leads)> {
    let is_inside = |seen: &Seen| mounts::of_seen(seen).is_some();
    look(dir, &ended(folder), 0).filter(is_inside)?;
    if folder.is_empty() {
        return Some((0, Leads::There));
    }
    let ends = folder.iter().enumerate().filter(|(at, byte)| **byte == b'/' && *at > 0);
    for len in ends.map(|(at, _)| at).chain([folder.len()]) {
        let beginning = ended(folder.get(..len)?);
        let seen = look(dir, &beginning, libc::AT_SYMLINK_NOFOLLOW)?;
        if is_inside(&seen) {
            return Some((len, Leads::There));
        }
        let Some(target) = (if seen.is_link { look(dir, &beginning, 0) } else { None }) else {
            continue;
        };
        if is_inside(&target) {
            // The kernel itself goes by what has no text (`/proc/PID/cwd`).
            let is_there = target.is_root || seen.size == 0;
            return Some((len, if is_there { Leads::There } else { Leads::Link }));
        }
    }
    None
}

/// The path with a symbolic link's text in its place, if it is one that the kernel follows.
fn substitute(dir: i32, link: &[u8], rest: &[u8]) -> Option<Vec<u8>> {
    let Some((target, owner)) = read_link(dir, link) else {
        forget(dir, link);
        return None;
    };
    // At the end of a path the kernel may refuse to follow another user's (`fs.protected_symlinks`).
    if rest.is_empty() && owner != state::owner().0 {
        return None;
    }
    let folder = link.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let before = if target.starts_with(b"/") { &[][..] } else { link.get(..folder)? };
    let path = [before, &target, rest].concat();
    (path.len() < PATH_MAX && !leads_to_descriptors(&path)).then_some(path)
}

/// The text of a symbolic link, and whose it is. It is looked at before its text is read and after that, and
/// is one and the same: by no descriptor, which other threads of the program would find in their way.
///
/// Links lie in mounts in which the kernel follows them, and so do all mounts above: who can lead a path from
/// one mount to another for a moment, without being able to make a link where it is followed, can do so in a
/// mount above alone.
fn read_link(dir: i32, link: &[u8]) -> Option<(Vec<u8>, u32)> {
    let link = ended(link);
    let look_at = || look(dir, &link, libc::AT_SYMLINK_NOFOLLOW);
    let seen = look_at().filter(|seen| seen.is_link && seen.size > 0)?;
    let mut text = vec![0; PATH_MAX];
    let len = sys!(libc::SYS_readlinkat, dir, link.as_ptr(), text.as_mut_ptr(), text.len());
    text.truncate(usize::try_from(len).ok().filter(|len| *len < PATH_MAX)?);
    let is_same = look_at() == Some(seen) && text.len() as u64 == seen.size;
    (is_same && facts::are_texts_followed(seen.mount)).then_some((text, seen.owner))
}

/// The kernel has opened something in a mount by a path: what leads there is remembered, where that is a
/// link or a directory.
pub(crate) fn opened(dir: i32, path: &[u8]) {
    if !settings::serves_outside() || find(dir, path, true).is_some() || path.is_empty() {
        return;
    }
    if let Some((len, way)) = look_for(dir, path)
        && let Some(beginning) = path.get(..len)
    {
        let is_directory = || look(dir, &ended(beginning), 0).is_some_and(|seen| seen.is_directory);
        if way == Leads::Link || is_directory() {
            remember(dir, beginning, way);
        }
    }
}

/// The working directory, or a directory that is open, may be another one now.
pub(crate) fn changed() {
    EPOCH.fetch_add(1, Ordering::Relaxed);
}

/// Keeps other threads out while the process forks.
pub(crate) fn before_fork() {
    TABLE.take();
}

/// Called in parent and child.
pub(crate) fn fork_done() {
    TABLE.give();
}

#[cfg(test)]
mod tests {
    use super::folder;

    #[test]
    fn a_folder_is_what_comes_before_the_last_name() {
        assert_eq!(folder(b"a/b/c"), b"a/b");
        assert_eq!(folder(b"/a//b///"), b"/a");
        assert_eq!(folder(b"/a"), b"");
        assert_eq!(folder(b"a//"), b"");
        assert_eq!(folder(b"//"), b"");
    }
}
