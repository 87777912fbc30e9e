//! Names outside of all mounts that lead into one: by a symbolic link, by a bind mount of it, from a
//! directory that the kernel has open there.
//!
//! That such a name leads into a mount is learnt from the kernel, when it has opened or shown something there:
//! of folders elsewhere nobody is asked. Which beginning of the path it was is remembered; what that leads to
//! is the kernel's to say, each time: others may change it at any moment, and the kernel may refuse the way
//! there. The question is one look by the kernel at that beginning, or, of a link that leads deeper into a
//! mount, at the link. Neither asks the daemon.
//!
//! A path is followed in the order of its names, as the kernel does it, which also takes its time: what it
//! finds in a folder it goes on from there. What would have to be found in the same folder by a second way to
//! it is the kernel's.
//!
//! The folders are anybody's, and a file system there may hang: a thread that asks is not inside meanwhile
//! ([`quiet::outside`]), and has no lock.
//!
//! Comes in: a path that leads into no mount as it is written. Goes out: a mount, where the path goes on in
//! it, and what is left of it.

use std::borrow::Cow;

use novale_core::{Ino, Node};
use novale_posix::Start;

use crate::base::guard::PATH_MAX;
use crate::base::settings;
use crate::base::sys::sys;
use crate::fds::quiet;
use crate::mounts::facts::{self, Facts, Seen};
use crate::mounts::state;
use crate::mounts::{self, OtherMount};
use crate::paths::ways::{self, Leads, ends, forget, recall, remember};
use crate::paths::{leads_to_descriptors, spelling};

/// Links outside of mounts that are followed one after the other; the kernel goes on with more.
const LINKS_MAX: usize = 8;
/// Times that a beginning is looked at which leads elsewhere when it is looked at again.
const ATTEMPTS: usize = 4;

/// Where a path goes on in a mount.
pub(crate) struct Entered<'a> {
    pub(crate) mount: usize,
    pub(crate) start: Start,
    pub(crate) path: Cow<'a, [u8]>,
    pub(crate) other_mount: Option<OtherMount>,
    /// The path is not one that leads there as it is written: the next moment it may lead elsewhere.
    pub(crate) from_outside: bool,
}

/// Where a path from a directory goes on in a mount, if it is known to lead into one; with `follow` also where
/// its last name is what leads there.
pub(crate) fn enter(dir: i32, path: &[u8], follow: bool) -> Option<Entered<'_>> {
    if !settings::serves_outside() {
        return None;
    }
    let mut path = Cow::Borrowed(path);
    let mut link: Option<Vec<u8>> = None;
    for _ in 0..LINKS_MAX {
        let Some((len, way)) = recall(dir, &path, follow) else {
            // What a link leads to by now is not known.
            if let Some(link) = &link {
                forget(dir, link);
            }
            return None;
        };
        let (beginning, rest) = path.split_at_checked(len)?;
        match way {
            Leads::ByKernel => return None,
            Leads::There => match there(dir, beginning) {
                Ok((mount, start, other_mount)) => {
                    let path = rest_from(path, len)?;
                    return Some(Entered { mount, start, path, other_mount, from_outside: true });
                }
                Err(Nowhere::ByKernel) => return None,
                // Another beginning may lead there by now.
                Err(Nowhere::Elsewhere) => forget(dir, beginning),
            },
            Leads::Link => {
                let followed = substitute(dir, beginning, rest)?;
                if let Some((mount, rest)) = as_written(&followed) {
                    let (start, path) = (Start::Whole(Node::ROOT), Cow::Owned(rest.to_vec()));
                    return Some(Entered {
                        mount,
                        start,
                        path,
                        other_mount: None,
                        from_outside: true,
                    });
                }
                link = Some(beginning.to_vec());
                path = Cow::Owned(followed);
            }
        }
    }
    None
}

/// The mount that an absolute path leads into as it is written.
fn as_written(path: &[u8]) -> spelling::LedTo<'_> {
    path.starts_with(b"/").then(|| spelling::written(path)).flatten()
}

/// Looks at what a path leads to; no file system on its way keeps other threads waiting.
fn look(dir: i32, path: &[u8], flags: i32) -> Option<Seen> {
    let path = ended(path);
    quiet::outside(|| facts::look(dir, &path, flags))
}

/// A path as the kernel wants it.
fn ended(path: &[u8]) -> Vec<u8> {
    [path, b"\0"].concat()
}

/// Why a beginning leads to no directory of a mount from which calls are served.
enum Nowhere {
    Elsewhere,
    ByKernel,
}

/// The directory of a mount that the beginning of a path leads to, as the kernel shows it.
fn there(dir: i32, beginning: &[u8]) -> Result<(usize, Start, Option<OtherMount>), Nowhere> {
    for _ in 0..ATTEMPTS {
        let seen = look(dir, beginning, 0).filter(|seen| seen.is_directory);
        let seen = seen.ok_or(Nowhere::Elsewhere)?;
        let mount = mounts::of_seen(&seen).ok_or(Nowhere::Elsewhere)?;
        let other_mount = mounts::seen_by(mount, &seen).map_err(|_| Nowhere::ByKernel)?;
        let ino = Ino::new(seen.ino);
        // Of the root of the mount that is known one look has told all.
        if other_mount.is_none() && ino == Ino::ROOT {
            return Ok((mount, Start::Whole(Node::ROOT), None));
        }
        let fs = mounts::fs(mount).ok_or(Nowhere::ByKernel)?;
        let node = fs.getattr(ino).map_err(|_| Nowhere::ByKernel)?.node();
        // Who has the number is what was seen, if that is seen once more; one that is gone by the time that it
        // is used is looked for again.
        if look(dir, beginning, 0).is_some_and(|now| now.is(&seen)) {
            let is_whole = other_mount.is_none();
            let start = if is_whole { Start::Whole(node) } else { Start::Part(node) };
            return Ok((mount, start, other_mount));
        }
    }
    Err(Nowhere::ByKernel)
}

/// What is left of a path after its beginning.
fn rest_from(path: Cow<'_, [u8]>, len: usize) -> Option<Cow<'_, [u8]>> {
    Some(match path {
        _ if len > 0 && path.len() == len => Cow::Borrowed(&b"/"[..]),
        Cow::Borrowed(path) => Cow::Borrowed(path.get(len..)?),
        Cow::Owned(path) => Cow::Owned(path.get(len..)?.to_vec()),
    })
}

/// Whether there is a name in a path.
fn has_name(path: &[u8]) -> bool {
    path.iter().any(|byte| *byte != b'/')
}

/// The path with a symbolic link's text in the link's place, if it is one that the kernel follows.
fn substitute(dir: i32, link: &[u8], rest: &[u8]) -> Option<Vec<u8>> {
    let Some((text, owner)) = read_link(dir, link) else {
        forget(dir, link);
        return None;
    };
    // At the end of a path the kernel may refuse to follow another user's (`fs.protected_symlinks`).
    if !has_name(rest) && owner != state::owner().0 {
        return None;
    }
    let followed = [&from_folder(link, &text)?, rest].concat();
    (followed.len() < PATH_MAX && !leads_to_descriptors(&followed)).then_some(followed)
}

/// A link's text as a path from where the link's path starts. Of a relative one the folder would be found by
/// its names once more, which may lead to another one by then, unless there are none, or the whole path is
/// believed as it is written.
fn from_folder<'a>(link: &[u8], text: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    let folder = link.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let folder = link.get(..folder)?;
    if text.starts_with(b"/") || folder.is_empty() {
        return Some(Cow::Borrowed(text));
    }
    let path = [folder, text].concat();
    (!has_name(folder) || as_written(&path).is_some()).then_some(Cow::Owned(path))
}

/// The text of a symbolic link, and whose it is. It is looked at before its text is read and after that, and
/// is one and the same: by no descriptor, which other threads of the program would find in their way.
///
/// Links lie in mounts in which the kernel follows them, and so do all mounts above: who can lead a path from
/// one mount to another for a moment, without being able to make a link where it is followed, can do so in a
/// mount above alone.
fn read_link(dir: i32, link: &[u8]) -> Option<(Vec<u8>, u32)> {
    let look_at = || look(dir, link, libc::AT_SYMLINK_NOFOLLOW);
    let seen = look_at().filter(|seen| seen.is_link && seen.size > 0)?;
    let path = ended(link);
    let mut text = vec![0; PATH_MAX];
    let read = || sys!(libc::SYS_readlinkat, dir, path.as_ptr(), text.as_mut_ptr(), text.len());
    let len = quiet::outside(read);
    text.truncate(usize::try_from(len).ok().filter(|len| *len < PATH_MAX)?);
    let is_same = look_at() == Some(seen) && text.len() as u64 == seen.size;
    (is_same && facts::are_texts_followed(seen.mount)).then_some((text, seen.owner))
}

/// The kernel has opened or shown something in a mount by a path: what leads there is remembered, of links that
/// lead to links each.
pub(crate) fn learn(dir: i32, path: &[u8]) {
    if !settings::serves_outside() || leads_to_descriptors(path) {
        return;
    }
    let mut path = Cow::Borrowed(path);
    for _ in 0..LINKS_MAX {
        if recall(dir, &path, true).is_some() || as_written(&path).is_some() {
            return;
        }
        let Some((len, way)) = look_for(dir, &path) else { return };
        let Some((beginning, rest)) = path.split_at_checked(len) else { return };
        remember(dir, beginning, way);
        if way != Leads::Link {
            return;
        }
        let Some(followed) = substitute(dir, beginning, rest) else { return };
        path = Cow::Owned(followed);
    }
}

/// A directory that is open, or the working one, lies in a mount.
pub(crate) fn learn_directory(dir: i32) {
    if settings::serves_outside() {
        remember(dir, b"", Leads::There);
    }
}

/// Asks the kernel by which of its beginnings a path leads into a mount.
fn look_for(dir: i32, path: &[u8]) -> Option<(usize, Leads)> {
    let is_inside = |seen: &Seen| mounts::of_seen(seen).is_some();
    let is_there = |seen: &Seen| if seen.is_directory { Leads::There } else { Leads::ByKernel };
    if !path.starts_with(b"/") && look(dir, b"", 0).is_some_and(|seen| is_inside(&seen)) {
        return Some((0, Leads::There));
    }
    for len in ends(path).chain([path.len()]) {
        let beginning = path.get(..len)?;
        let seen = look(dir, beginning, libc::AT_SYMLINK_NOFOLLOW)?;
        if is_inside(&seen) {
            return Some((len, is_there(&seen)));
        }
        let target = if seen.is_link { look(dir, beginning, 0) } else { None };
        let Some(target) = target.filter(is_inside) else { continue };
        // The kernel itself goes by links of processes (`/proc/PID/cwd`), whatever is their text.
        let is_of_process = || Facts::of(seen.mount).is_some_and(|of| of.is_of_processes());
        if target.is_root || is_of_process() {
            return Some((len, is_there(&target)));
        }
        let text = read_link(dir, beginning);
        let is_followed = text.is_some_and(|(text, _)| from_folder(beginning, &text).is_some());
        return Some((len, if is_followed { Leads::Link } else { Leads::ByKernel }));
    }
    None
}

/// Keeps other threads out while the process forks.
pub(crate) fn before_fork() {
    ways::before_fork();
}

/// Called in parent and child.
pub(crate) fn fork_done() {
    ways::fork_done();
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::from_folder;

    #[test]
    fn relative_links_are_followed_where_no_name_leads_to_their_folder() {
        let followed = |link: &[u8], text: &[u8]| from_folder(link, text).map(Cow::into_owned);
        assert_eq!(followed(b"/srv/link", b"/mnt/d"), Some(b"/mnt/d".to_vec()));
        assert_eq!(followed(b"link", b"../mnt/d"), Some(b"../mnt/d".to_vec()));
        assert_eq!(followed(b"/link", b"mnt/d"), Some(b"/mnt/d".to_vec()));
        assert_eq!(followed(b"/srv/link", b"../mnt/d"), None);
        assert_eq!(followed(b"srv/link", b"../mnt/d"), None);
    }
}
