//! What a descriptor leads to, as `/proc/self/fd/N` is to show it: the path of an open file.
//!
//! Invariants: the name by which a file was opened is noted beside its description, and read by
//! who has that in use; where it leads now is asked of the file system. A file that is
//! handed to the kernel takes its note along in the name by which the kernel opens it, so that programs
//! that inherit the descriptor find it too.

use std::sync::atomic::{AtomicU64, Ordering};

use novale_core::{FileKind, Ino, Node};
use novale_posix::by_number::{self, DIRECTORY, SEPARATOR};

use crate::base::guard::PATH_MAX;
use crate::base::left;
use crate::base::sys::sys;
use crate::fds::table::{self, IN_KERNEL, InUse};
use crate::mounts::{self, ctx, places};
use crate::numbers::words;

/// Bytes of a name in the kernel.
const NAME_MAX: usize = 255;
/// Bytes of a name that is noted; of a longer one only the directory is.
const NOTED_MAX: usize = 247;
/// What the kernel shows of the path of a file that has lost its name.
const DELETED: &[u8] = b" (deleted)";

/// A note's memory, all zeroes at first.
#[repr(C)]
struct Note {
    /// Where the name is; 0 without a name.
    parent: AtomicU64,
    len: u8,
    name: [u8; NOTED_MAX],
}

const _: () = assert!(std::mem::size_of::<Note>() == 256);

/// A name and the directory that had it when the file was opened.
pub(crate) struct Noted {
    parent: Ino,
    name: Vec<u8>,
}

static NOTES: AtomicU64 = AtomicU64::new(0);

/// Bytes of the notes' memory.
pub(crate) const BYTES: usize = words::DESCRIPTORS * NOTE_BYTES;
pub(crate) const NOTE_BYTES: usize = std::mem::size_of::<Note>();

/// Says where the memory of notes is: [`BYTES`], zeroes, the same each time.
pub(crate) fn set_notes(notes: u64) {
    NOTES.store(notes, Ordering::Relaxed);
}

fn slot(index: u32) -> *mut Note {
    let notes = NOTES.load(Ordering::Relaxed) as *mut Note;
    notes.wrapping_add(index as usize)
}

/// Notes by what name a file is opened, before any descriptor leads to its description.
pub(crate) fn note(index: u32, name: Option<(Ino, &[u8])>) {
    let note = slot(index);
    let (parent, name) = name.map_or((0, &[][..]), |(parent, name)| (parent.get(), name));
    let name = if name.len() <= NOTED_MAX { name } else { &[] };
    // SAFETY: the slab has a note for each description, and nobody else uses this one yet.
    let note = unsafe { &mut *note };
    *note.parent.get_mut() = parent;
    note.len = name.len() as u8;
    if let Some(to) = note.name.get_mut(..name.len()) {
        to.copy_from_slice(name);
    }
}

fn noted(description: &InUse) -> Option<Noted> {
    // SAFETY: the note of a description in use changes in its atomic word alone.
    let note = unsafe { &*slot(description.index) };
    let parent = note.parent.load(Ordering::Relaxed);
    let name = note.name.get(..usize::from(note.len))?;
    (parent != 0).then(|| Noted { parent: Ino::new(parent), name: name.to_vec() })
}

/// This process has moved a file to another directory.
pub(crate) fn moved(ino: Ino, to: Ino) {
    table::each(&mut |_, description| {
        if description.ino() == ino && noted(description).is_some() {
            // SAFETY: as in `noted`.
            unsafe { &*slot(description.index) }.parent.store(to.get(), Ordering::Relaxed);
        }
    });
}

/// The name below [`DIRECTORY`] by which the kernel opens a file.
pub(crate) fn name_by_number(file: &InUse) -> Vec<u8> {
    let generation = file.generation.load(Ordering::Relaxed);
    let plain = by_number::name(file.ino(), generation);
    let Some(Noted { parent, name }) = noted(file) else { return plain.into_bytes() };
    let separator = char::from(SEPARATOR);
    let mut full = format!("{plain}{separator}{}{separator}", parent.get()).into_bytes();
    let noted_at = full.len();
    full.extend(name);
    if full.len() > NAME_MAX {
        full.truncate(noted_at);
    }
    full
}

/// The inode and the note in what the kernel shows of a file that was handed to it.
fn parse(shown: &[u8]) -> Option<(usize, Ino, Noted)> {
    let shown = shown.strip_suffix(DELETED).unwrap_or(shown);
    let (mount, rest) = mounts::of_path(shown)?;
    let name = rest.strip_prefix(b"/")?.strip_prefix(DIRECTORY.as_bytes())?.strip_prefix(b"/")?;
    let mut parts = name.splitn(3, |byte| *byte == SEPARATOR);
    let (inode, parent, name) = (parts.next()?, parts.next()?, parts.next()?);
    let inode = inode.split(|byte| *byte == b'.').next()?;
    let number = |digits| Some(Ino::new(std::str::from_utf8(digits).ok()?.parse().ok()?));
    Some((mount, number(inode)?, Noted { parent: number(parent)?, name: name.to_vec() }))
}

/// What a link to a descriptor reads as; `None` where the kernel knows it.
pub(crate) fn target(fd: i32) -> Option<Vec<u8>> {
    if left::has_all() || words::is_internal(fd) {
        return None;
    }
    if let Some(description) = table::get(fd) {
        let known = path(description.mount(), description.ino(), noted(&description));
        // Of one that the kernel has opened by another's number the name is in what the kernel shows.
        if known.is_some() || !description.is(IN_KERNEL) {
            return known;
        }
    }
    let (mount, ino, noted) = by_number(fd)?;
    path(mount, ino, Some(noted))
}

/// What the kernel has opened by its number, as it shows that itself.
fn by_number(fd: i32) -> Option<(usize, Ino, Noted)> {
    let link = format!("/proc/thread-self/fd/{fd}\0");
    let mut shown = [0u8; PATH_MAX];
    let len = sys!(libc::SYS_readlink, link.as_ptr(), shown.as_mut_ptr(), shown.len());
    parse(shown.get(..usize::try_from(len).ok()?)?)
}

/// The file that the kernel has opened by its number, and a path, with a NUL, that leads to it where it has one.
pub(crate) fn file_by_number(fd: i32) -> Option<((usize, Ino), Vec<u8>)> {
    let (mount, ino, _) = by_number(fd)?;
    let mut path = target(fd)?;
    path.push(0);
    Some(((mount, ino), path))
}

/// The path of an inode that somebody has open; `None` where it is not found, or was never known.
fn path(mount: usize, ino: Ino, noted: Option<Noted>) -> Option<Vec<u8>> {
    let (fs, ctx) = (mounts::fs(mount)?, ctx());
    let target = mounts::all().get(mount)?.target.as_slice();
    let attr = fs.getattr(ino).ok()?;
    let is_directory = attr.kind == FileKind::Directory;
    if is_directory && attr.nlink > 0 {
        return Some([target, &places::found(fs, &ctx, attr.node())?].concat());
    }
    let Noted { parent, name } = noted?;
    // Noted is the number alone: what is found there counts where it is the inode.
    let parent = Node::current(parent);
    let below = |name: &[u8]| Some([target, &places::found(fs, &ctx, parent)?, name].concat());
    let there = fs.lookup(&ctx, parent, &name);
    if there.is_ok_and(|there| there.ino == ino) {
        return below(&[b"/", name.as_slice()].concat());
    }
    if attr.nlink == 0 && !name.is_empty() {
        return below(&[b"/", name.as_slice(), DELETED].concat());
    }
    below(&places::name_of(fs, &ctx, parent, ino)?)
}
