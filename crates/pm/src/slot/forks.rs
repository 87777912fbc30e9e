//! Slots' descriptors in children of `fork`.
//!
//! A lock of `flock` goes with the last descriptor and the last mapping of its opening, and a child has those of its
//! parent: where the parent is killed, or starts another program, its slots stay locked by a child that does not use
//! them. So a slot is locked by an opening that is not mapped. Its descriptor is entered here before that, and a
//! child puts one that can do nothing in its place. The number stays taken, for the child's copy of the slot closes it.
//!
//! A fork is counted as it begins and as it has ended. What was opened meanwhile may be in the child without being
//! entered there, and is opened once more. Forks wait for nothing: who opens a slot may have what another thread's
//! fork waits for.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Once;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::DupFlags;
use rustix::thread::{Timespec, nanosleep};

use super::places::Places;

/// Forks that have begun, and such as have ended.
static BEGUN: AtomicU32 = AtomicU32::new(0);
static ENDED: AtomicU32 = AtomicU32::new(0);

/// How often a slot is opened while others fork, a millisecond after the last time.
const TRIES: u32 = 1000;
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// Of an entry that nobody has; that is being written, or is a parent's.
const FREE: i32 = -1;
const TAKEN: i32 = -2;

/// A place for a descriptor, where a child finds it without a lock.
#[derive(Debug)]
struct Entry {
    descriptor: AtomicI32,
    /// Which file it leads to: the program may have closed it, and have another one by its number.
    device: AtomicU64,
    inode: AtomicU64,
}

static ENTRIES: Places<Entry> = Places::none();

impl Entry {
    /// One that nobody else has.
    fn take() -> &'static Self {
        let free =
            |entry: &&Self| entry.descriptor.compare_exchange(FREE, TAKEN, SeqCst, Relaxed).is_ok();
        ENTRIES.all().find(free).unwrap_or_else(|| {
            ENTRIES.add(Self {
                descriptor: AtomicI32::new(TAKEN),
                device: AtomicU64::new(0),
                inode: AtomicU64::new(0),
            })
        })
    }

    /// In a child: puts what can do nothing in the place of its duplicate.
    fn give_up(&self, nothing: &OwnedFd) {
        let descriptor = self.descriptor.swap(TAKEN, SeqCst);
        if descriptor < 0 {
            return;
        }
        // SAFETY: the number is looked at and given to another file, and not closed here. Where the program has
        // closed it, it leads nowhere or to another file, which is left.
        let mut parents = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(descriptor) });
        let file = (self.device.load(Relaxed), self.inode.load(Relaxed));
        if rustix::fs::fstat(&*parents).is_ok_and(|there| (there.st_dev, there.st_ino) == file) {
            // Where it can't be, it stays locked until the child ends.
            rustix::io::dup3(nothing, &mut parents, DupFlags::CLOEXEC).unwrap_or_default();
        }
    }
}

/// A descriptor that children of `fork` do without, as long as this lives.
#[derive(Debug)]
pub(super) struct Entered(&'static Entry);

impl Entered {
    /// Enters the descriptor of a file that is not locked yet.
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let there = rustix::fs::fstat(file)?;
        let entry = Entry::take();
        entry.device.store(there.st_dev, Relaxed);
        entry.inode.store(there.st_ino, Relaxed);
        entry.descriptor.store(file.as_raw_fd(), SeqCst);
        Ok(Self(entry))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.descriptor.store(FREE, SeqCst);
    }
}

/// Opens and enters something while nobody forks. After a second of forks it is as it comes: a child that was made
/// in the moment between the two has a duplicate.
pub(super) fn between_forks<T, E>(mut open: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let mut tries = 1;
    loop {
        let (ended, begun) = (ENDED.load(SeqCst), BEGUN.load(SeqCst));
        let opened = open()?;
        let forks = BEGUN.load(SeqCst);
        if (ended, forks) == (begun, begun) || tries >= TRIES {
            return Ok(opened);
        }
        drop(opened);
        tries += 1;
        // A signal only makes it shorter.
        let _rest = nanosleep(&PAUSE);
    }
}

/// Counts a fork, which [`fork_ended`] ends in the parent and [`forked`] in the child: for who makes forks itself,
/// and else a part of [`unlock_in_children`].
pub fn fork_begins() {
    BEGUN.fetch_add(1, SeqCst);
}

/// See [`fork_begins`].
pub fn fork_ended() {
    ENDED.fetch_add(1, SeqCst);
}

/// See [`fork_begins`]: the child gives up its part in the locks of slots that its parent has mapped.
pub fn forked() {
    // No other thread is left whose fork could end.
    ENDED.store(BEGUN.load(SeqCst), SeqCst);
    if ENTRIES.all().all(|entry| entry.descriptor.load(SeqCst) < 0) {
        return;
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    if let Ok(nothing) = rustix::fs::openat(CWD, c"/", flags, Mode::empty()) {
        ENTRIES.all().for_each(|entry| entry.give_up(&nothing));
    }
}

extern "C" fn begins() {
    fork_begins();
}

extern "C" fn ended() {
    fork_ended();
}

extern "C" fn in_child() {
    forked();
}

/// Has children that this process makes by `fork` give up their part in the locks of its slots, from now on and once
/// for all: where the process is killed, or starts another program, others can open the pool while they live.
/// Children that are made without libc's `fork` are not seen.
pub fn unlock_in_children() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handlers touch nothing but atomics and the kernel, as a child of any thread may. Where there is
        // no memory for them, children keep their part until they end.
        unsafe { libc::pthread_atfork(Some(begins), Some(ended), Some(in_child)) };
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child that was made between the two had a duplicate of the descriptor, and nothing was entered there.
    #[test]
    fn what_is_opened_while_a_fork_goes_on_is_opened_once_more() {
        let mut opened = 0;
        // One that goes on from before.
        fork_begins();
        let open = |opened: &mut i32| {
            *opened += 1;
            match opened {
                1 | 3 => fork_ended(),
                2 => fork_begins(),
                // One that begins and ends meanwhile.
                4 => {
                    fork_begins();
                    fork_ended();
                }
                _ => {}
            }
            Ok::<_, io::Error>(*opened)
        };
        assert_eq!(between_forks(|| open(&mut opened)).unwrap(), 5);
        assert_eq!(between_forks(|| open(&mut opened)).unwrap(), 6);
    }

    /// It may be another file's by then.
    #[test]
    fn a_number_that_leads_elsewhere_by_now_is_left() {
        let nothing = OwnedFd::from(File::open("/").unwrap());
        let [own, other] = [(); 2].map(|()| tempfile::tempfile().unwrap());
        let inode = |file: &File| rustix::fs::fstat(file).unwrap().st_ino;
        let (entered, before) = (Entered::of(&own).unwrap(), inode(&other));
        entered.0.descriptor.store(other.as_raw_fd(), SeqCst);
        entered.0.give_up(&nothing);
        assert_eq!(inode(&other), before);
        let entered = Entered::of(&own).unwrap();
        entered.0.give_up(&nothing);
        assert_ne!(inode(&own), before);
        assert_eq!(inode(&own), rustix::fs::fstat(&nothing).unwrap().st_ino);
    }
}
