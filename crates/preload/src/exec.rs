//! Programs that this process starts and that can't load this library: its name is taken out of what
//! they are told to preload. Their loader would say of it that it is of another kind, or is not there,
//! and some would not start.
//!
//! This runs in children made by `vfork` too, in their parent's memory and on a stack of its making: it
//! takes no lock, and little stack. What is made for the next program lies in a mapping of its own, which the
//! parent's thread gives back with its next one.

use std::sync::atomic::Ordering;

use novale_posix::program::{self, Kind};

use crate::guard;
use crate::kernel;
use crate::sys::{Ret, sys};
use crate::thread::current;

/// How this library's file is called, wherever it is.
const OWN_NAME: &[u8] = b"libnovale_preload.so";
const VARIABLE: &[u8; 11] = b"LD_PRELOAD=";
/// Bytes of the variable's value at most, with its end.
const VALUE_MAX: usize = 4096;
/// Strings of an environment at most.
const ENTRIES_MAX: usize = 1 << 20;
/// Scripts that are run by scripts, as in the kernel.
const SCRIPTS_MAX: usize = 5;
const PAGE: usize = 4096;

/// `execve` of a child in its parent's memory; comes back where that fails.
pub(crate) extern "C" fn novale_execute_lent(path: u64, words: u64, environment: u64) -> Ret {
    let changed = Changed::of(libc::AT_FDCWD as u64, path, environment);
    let given = changed.as_ref().map_or(environment, |changed| changed.environment);
    sys!(libc::SYS_execve, path, words, given)
}

/// An environment in place of the program's own, for as long as it lives.
pub(crate) struct Changed {
    pub(crate) environment: u64,
}

impl Changed {
    /// What the program at `path` is to be told; `None` where it is what it was told.
    pub(crate) fn of(dir: u64, path: u64, environment: u64) -> Option<Self> {
        let (entry, count) = find(environment)?;
        let can_load = fits(dir, path) && is_there(entry);
        if can_load {
            return None;
        }
        // Of a child that has become another program.
        give_back();
        let bytes = ((count + 1) * 8 + VALUE_MAX).next_multiple_of(PAGE);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let made = sys!(libc::SYS_mmap, 0, bytes, access, flags, u64::MAX, 0);
        let made = u64::try_from(made).ok()?;
        let given = &current().given;
        given[1].store(bytes as u64, Ordering::Relaxed);
        given[0].store(made, Ordering::Relaxed);
        // SAFETY: a fresh mapping of so many bytes, zeroes.
        let room = unsafe { std::slice::from_raw_parts_mut(made as *mut u8, bytes) };
        let (value, list) = room.split_at_mut(VALUE_MAX);
        let kept = rest(entry, value)?;
        let mut to = list.chunks_exact_mut(8);
        for index in 0..count {
            let here: u64 = guard::load(environment + 8 * index as u64)?;
            let here = if here != entry {
                here
            } else if kept {
                made
            } else {
                continue;
            };
            to.next()?.copy_from_slice(&here.to_le_bytes());
        }
        Some(Self { environment: made + VALUE_MAX as u64 })
    }
}

/// Gives back what was made for a child of this thread.
pub(crate) fn give_back() {
    let [at, bytes] = &current().given;
    let (at, bytes) = (at.swap(0, Ordering::Relaxed), bytes.load(Ordering::Relaxed));
    if at != 0 {
        sys!(libc::SYS_munmap, at, bytes);
    }
}

/// Where the variable is that names this library, and how many strings there are.
fn find(environment: u64) -> Option<(u64, usize)> {
    let mut found = None;
    for index in 0..ENTRIES_MAX {
        let entry: u64 = guard::load(environment.checked_add(8 * index as u64)?)?;
        if entry == 0 {
            return found.map(|found| (found, index));
        }
        // A shorter string may end where memory does: it is another one.
        if found.is_none() && guard::load::<[u8; VARIABLE.len()]>(entry).as_ref() == Some(VARIABLE)
        {
            found = Some(entry);
        }
    }
    None
}

/// Visits each of the variable's libraries; `None` where one is too long, or `visit` says so.
fn each(entry: u64, mut visit: impl FnMut(&[u8]) -> Option<()>) -> Option<()> {
    let mut value = [0u8; VALUE_MAX / 4];
    let mut len = 0;
    for at in entry + VARIABLE.len() as u64.. {
        let byte: u8 = guard::load(at)?;
        if !matches!(byte, 0 | b':' | b' ') {
            *value.get_mut(len)? = byte;
            len += 1;
            continue;
        }
        let library = value.get(..len)?;
        if !library.is_empty() {
            visit(library)?;
        }
        if byte == 0 {
            break;
        }
        len = 0;
    }
    Some(())
}

fn is_own(library: &[u8]) -> bool {
    library.rsplit(|byte| *byte == b'/').next() == Some(OWN_NAME)
}

/// Puts the variable without this library into `room`; false where nothing is left of it.
fn rest(entry: u64, room: &mut [u8]) -> Option<bool> {
    let mut len = 0;
    let mut put = |bytes: &[u8]| {
        // The end stays a NUL.
        let room = room.get_mut(..VALUE_MAX - 1)?;
        room.get_mut(len..len + bytes.len())?.copy_from_slice(bytes);
        len += bytes.len();
        Some(())
    };
    put(VARIABLE)?;
    let mut some = false;
    each(entry, |library| {
        if is_own(library) {
            return Some(());
        }
        if some {
            put(b":")?;
        }
        some = true;
        put(library)
    })?;
    Some(some)
}

/// Whether the loader will find this library, which is a question where paths lead elsewhere by now.
fn is_there(entry: u64) -> bool {
    let mut there = true;
    let look = |library: &[u8]| {
        if is_own(library) && kernel::has_all() {
            let mut path = [0u8; VALUE_MAX / 4];
            path.get_mut(..library.len())?.copy_from_slice(library);
            let last = path.len() - 1;
            *path.get_mut(last)? = 0;
            let (at, reads) = (path.as_ptr(), libc::R_OK);
            there = sys!(libc::SYS_faccessat, libc::AT_FDCWD, at, reads) == 0;
        }
        Some(())
    };
    each(entry, look);
    there
}

/// Whether a program loads what it is told to preload, as far as its file says.
fn fits(dir: u64, path: u64) -> bool {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut fd = sys!(libc::SYS_openat, dir, path, flags, 0);
    for _ in 0..SCRIPTS_MAX {
        if fd < 0 {
            break;
        }
        let read = |room: &mut [u8], at: u64| {
            let got = sys!(libc::SYS_pread64, fd, room.as_mut_ptr(), room.len(), at);
            usize::try_from(got).unwrap_or(0)
        };
        let kind = program::kind(read);
        sys!(libc::SYS_close, fd);
        match kind {
            Kind::Fit => break,
            Kind::Unfit(_) => return false,
            Kind::Script(by) => {
                let path = by.path().as_ptr();
                fd = sys!(libc::SYS_openat, libc::AT_FDCWD, path, flags, 0);
            }
        }
    }
    true
}
