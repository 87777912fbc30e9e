//! Files on which the process has locks as a process (`F_SETLK`). The kernel gives them all up when any
//! descriptor of the file is closed, also one that this library alone has had for a moment. So from the
//! first lock on, what is opened to hand such a file to the kernel stays open until the program itself
//! closes a descriptor of it. Both stay when another program is run, which looks for the locks before the first time
//! that it hands a file over.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use novale_core::Ino;

use crate::base::lock::Lock;
use crate::base::sys::{Fd, Ret, sys};
use crate::fds::kernel;
use crate::fds::table::{self, Closed, DIRECTORY, IN_KERNEL, InUse};
use crate::mounts;
use crate::numbers::{self, words};

struct Locked {
    file: (usize, Ino),
    /// This library's own descriptors of it.
    kept: Vec<i32>,
}

static FILES: Lock<Vec<Locked>> = Lock::new(Vec::new());
/// How many there are.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Whether it is known which files this program has locks on since before it began.
static HAS_LOOKED: AtomicBool = AtomicBool::new(false);

pub(crate) fn file_of(description: &InUse) -> (usize, Ino) {
    (description.mount(), description.ino())
}

/// The program is about to lock a file: what else it has open of it goes to the kernel before.
pub(crate) fn before_locking(description: &InUse) {
    before_locking_file(file_of(description));
}

/// As [`before_locking`], by a descriptor that is not served: one from the program's parent, beyond those that are
/// looked at.
pub(crate) fn before_locking_in_kernel(fd: i32) {
    in_kernel(fd).into_iter().for_each(before_locking_file);
}

/// The file of a mount that a descriptor of the kernel's leads to.
fn in_kernel(fd: i32) -> Option<(usize, Ino)> {
    mounts::of_descriptor(fd)
        .filter(|found| !found.is_directory)
        .map(|found| (found.mount, found.ino))
}

fn before_locking_file(file: (usize, Ino)) {
    if COUNT.load(Ordering::Acquire) > 0 && FILES.lock().iter().any(|locked| locked.file == file) {
        return;
    }
    kernel::take_file(file, || note(file));
}

fn note(file: (usize, Ino)) {
    let mut files = FILES.lock();
    if files.iter().all(|locked| locked.file != file) {
        files.push(Locked { file, kept: Vec::new() });
        COUNT.store(files.len(), Ordering::Release);
    }
}

/// Notes the files that this program has locks on from the one before it. It has to come before this library opens
/// anything to hand a file over, which would be taken for a descriptor that was inherited. Without a call of libc that
/// allocates: the program may be about to fork.
pub(crate) fn look_once() {
    if !HAS_LOOKED.swap(true, Ordering::AcqRel) {
        look();
    }
}

#[cold]
fn look() {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let path = c"/proc/self/fd".as_ptr();
    let Some(folder) = Fd::new(sys!(libc::SYS_openat, libc::AT_FDCWD, path, flags, 0)) else {
        return;
    };
    let mut room = [0_u8; 2048];
    loop {
        let (at, bytes) = (room.as_mut_ptr(), room.len());
        let got = sys!(libc::SYS_getdents64, folder.number(), at, bytes);
        let Some(mut rest) = usize::try_from(got).ok().and_then(|got| room.get(..got)) else {
            return;
        };
        if rest.is_empty() {
            return;
        }
        while let Some((fd, after)) = next_number(rest) {
            fd.into_iter().for_each(look_at);
            rest = after;
        }
    }
}

/// The number that an entry of `/proc/self/fd` names, and what comes after it.
fn next_number(entries: &[u8]) -> Option<(Option<i32>, &[u8])> {
    let len = u16::from_le_bytes(entries.get(16..18)?.try_into().ok()?);
    let (entry, after) = entries.split_at_checked(len.into())?;
    let name = entry.get(19..)?.split(|byte| *byte == 0).next()?;
    let number = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
    Some((number, after))
}

fn look_at(fd: i32) {
    // The kernel tells of the process' locks by the descriptors that they were made with, and their duplicates: one
    // of these is open as long as there is a lock. Only what has one is looked up: other numbers may be this
    // library's own, of another thread.
    let said = std::fs::read(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
    if !said.windows(5).any(|word| word == b"POSIX") {
        return;
    }
    let served = table::get(fd).map(|found| (!found.is(DIRECTORY)).then(|| file_of(&found)));
    served.unwrap_or_else(|| in_kernel(fd)).into_iter().for_each(note);
}

/// Keeps a descriptor that was opened to hand a file over; false where it may be closed.
pub(crate) fn keeps(file: (usize, Ino), fd: u32) -> bool {
    if COUNT.load(Ordering::Acquire) == 0 {
        return false;
    }
    let mut files = FILES.lock();
    let Some(locked) = files.iter_mut().find(|locked| locked.file == file) else { return false };
    words::set_internal(fd.cast_signed());
    locked.kept.push(fd.cast_signed());
    true
}

/// A descriptor has gone, by a call that has not come back yet: its file's locks go with it.
pub(crate) fn closed(Closed { result, file }: Closed) -> Ret {
    file.into_iter().for_each(forget);
    result
}

/// All locks of a file are gone; what the kernel has not seen closed, as a placeholder, goes here.
pub(crate) fn forget(file: (usize, Ino)) {
    if COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    let mut files = FILES.lock();
    let Some(at) = files.iter().position(|locked| locked.file == file) else { return };
    let gone = files.swap_remove(at);
    COUNT.store(files.len(), Ordering::Release);
    drop(files);
    unlock(file);
    close(gone.kept);
}

fn close(kept: Vec<i32>) {
    for fd in kept {
        words::forget_internal(fd);
        sys!(libc::SYS_close, fd);
        numbers::freed_any();
    }
}

/// Gives up the locks of a file, by any descriptor that the kernel has of it: without one there are none.
fn unlock(file: (usize, Ino)) {
    let (l_type, l_whence) = (libc::F_UNLCK as i16, libc::SEEK_SET as i16);
    let all = libc::flock { l_type, l_whence, l_start: 0, l_len: 0, l_pid: 0 };
    let mut is_done = false;
    table::each(&mut |fd, other| {
        if !is_done && file_of(other) == file && other.is(IN_KERNEL) {
            let unlock = |fd| sys!(libc::SYS_fcntl, fd, libc::F_SETLK, &raw const all);
            is_done = table::with_number(fd, other, unlock).is_some();
        }
    });
}

/// What is kept open stays when another program is run, or no longer does. Closed there it would end the locks, unless
/// the call closes a descriptor of the program's that does so anyhow. The kernel has all descriptors by then. So does what
/// mappings keep, each with its file.
pub(crate) fn set_kept_stay(stay: bool, of_mappings: &[((usize, Ino), i32)]) {
    if COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    let mut ended = Vec::new();
    table::each(&mut |fd, description| {
        if sys!(libc::SYS_fcntl, fd, libc::F_GETFD) & i64::from(libc::FD_CLOEXEC) != 0 {
            ended.push(file_of(description));
        }
    });
    for locked in FILES.lock().iter().filter(|locked| !ended.contains(&locked.file)) {
        let of_mappings = of_mappings.iter().filter(|(file, _)| *file == locked.file);
        for kept in locked.kept.iter().chain(of_mappings.map(|(_, kept)| kept)) {
            sys!(libc::SYS_fcntl, *kept, libc::F_SETFD, if stay { 0 } else { libc::FD_CLOEXEC });
        }
    }
}

/// Keeps other threads from the list while the process forks.
pub(crate) fn before_fork() {
    FILES.take();
}

/// Called in parent and child.
pub(crate) fn fork_done() {
    FILES.give();
}

/// In the child, which has none of its parent's locks: nothing is kept for them.
pub(crate) fn after_fork() {
    let files = std::mem::take(&mut *FILES.lock());
    COUNT.store(0, Ordering::Release);
    for locked in files {
        close(locked.kept);
    }
}
