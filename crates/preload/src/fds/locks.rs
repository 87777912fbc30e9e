//! Files on which the process has locks as a process (`F_SETLK`). The kernel gives them all up when any
//! descriptor of the file is closed, also one that this library alone has had for a moment. So from the
//! first lock on, what is opened to hand such a file to the kernel stays open until the program itself
//! closes a descriptor of it.

use std::sync::atomic::{AtomicUsize, Ordering};

use novale_core::Ino;

use crate::base::lock::Lock;
use crate::base::sys::sys;
use crate::fds::kernel;
use crate::fds::table::{self, Closed, InUse};
use crate::numbers::{self, words};

struct Locked {
    file: (usize, Ino),
    /// This library's own descriptors of it.
    kept: Vec<i32>,
}

static FILES: Lock<Vec<Locked>> = Lock::new(Vec::new());
/// How many there are.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn file_of(description: &InUse) -> (usize, Ino) {
    (description.mount(), description.ino())
}

/// The program is about to lock a file: what else it has open of it goes to the kernel before.
pub(crate) fn before_locking(description: &InUse) {
    let file = file_of(description);
    if COUNT.load(Ordering::Acquire) > 0 && FILES.lock().iter().any(|locked| locked.file == file) {
        return;
    }
    table::each(&mut |_, other| {
        if file_of(other) == file {
            kernel::take(other);
        }
    });
    let mut files = FILES.lock();
    files.push(Locked { file, kept: Vec::new() });
    COUNT.store(files.len(), Ordering::Release);
}

/// Keeps a descriptor that was opened to hand a file over; false where it may be closed.
pub(crate) fn keeps(description: &InUse, fd: u32) -> bool {
    if COUNT.load(Ordering::Acquire) == 0 {
        return false;
    }
    let (file, mut files) = (file_of(description), FILES.lock());
    let Some(locked) = files.iter_mut().find(|locked| locked.file == file) else { return false };
    words::set_internal(fd.cast_signed());
    locked.kept.push(fd.cast_signed());
    true
}

/// Makes the program's call that closes a descriptor. Its file's locks go with it.
pub(crate) fn close(fd: i32) -> i64 {
    let Closed { result, file } = table::close(fd);
    if file.is_none() || COUNT.load(Ordering::Acquire) == 0 {
        return result;
    }
    let mut files = FILES.lock();
    let (gone, left): (Vec<_>, Vec<_>) =
        files.drain(..).partition(|locked| Some(locked.file) == file);
    *files = left;
    COUNT.store(files.len(), Ordering::Release);
    drop(files);
    for kept in gone.iter().flat_map(|locked| &locked.kept) {
        words::forget_internal(*kept);
        sys!(libc::SYS_close, *kept);
        numbers::freed_any();
    }
    result
}

/// Keeps other threads from the list while the process forks.
pub(crate) fn before_fork() {
    FILES.take();
}

/// Called in parent and child.
pub(crate) fn fork_done() {
    FILES.give();
}
