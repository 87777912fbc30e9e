//! More threads where all of them wait inside the filesystem.
//!
//! Not part of the published crate: see README.md.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// For so long all threads are busy, and none has finished a request, before there is another one.
const PATIENCE: Duration = Duration::from_millis(100);
/// The same where there are such already: what comes waits too.
const PATIENCE_AGAIN: Duration = Duration::from_millis(10);
/// So many more at most.
const SPARE_MAX: usize = 256;
/// A finished request, in the upper half of the state.
const FINISHED: u64 = 1 << 32;

/// How many threads wait for a request, and how many requests have been finished, in a lower and an upper half.
pub(crate) struct Crew {
    state: AtomicU64,
    /// Threads that there always are.
    least: u32,
    watch: Mutex<Watch>,
    changed: Condvar,
    /// Whether all of them could be made, once that is known.
    is_whole: Mutex<Option<bool>>,
    known: Condvar,
}

#[derive(Default)]
struct Watch {
    /// Who watches is to be woken when no thread waits for a request any more.
    is_asleep: bool,
    has_ended: bool,
}

impl Crew {
    pub(crate) fn new(threads: usize) -> Self {
        let least = u32::try_from(threads).unwrap_or(u32::MAX);
        Self {
            state: AtomicU64::new(least.into()),
            least,
            watch: Mutex::default(),
            changed: Condvar::new(),
            is_whole: Mutex::default(),
            known: Condvar::new(),
        }
    }

    /// Waits until all threads have been made that there always are. Whether that is so: none serves otherwise.
    pub(crate) fn is_whole(&self) -> bool {
        let mut is_whole = self.is_whole.lock();
        loop {
            match *is_whole {
                Some(is_whole) => return is_whole,
                None => self.known.wait(&mut is_whole),
            }
        }
    }

    /// Says whether all of them have been made.
    pub(crate) fn tell_whole(&self, is_whole: bool) {
        *self.is_whole.lock() = Some(is_whole);
        self.known.notify_all();
    }

    /// A thread has a request, or ends.
    pub(crate) fn begin(&self) {
        if self.state.fetch_sub(1, Ordering::SeqCst) as u32 == 1 && self.watch.lock().is_asleep {
            self.changed.notify_one();
        }
    }

    /// It has finished it. Whether there are more threads without one than there are to be.
    pub(crate) fn finish(&self) -> bool {
        self.state.fetch_add(FINISHED + 1, Ordering::SeqCst) as u32 >= self.least
    }

    /// Until [`Crew::end`], makes a thread each time when all have been busy for a while; comes back when those have
    /// ended.
    pub(crate) fn watch(&self, mut make: impl FnMut() -> io::Result<JoinHandle<io::Result<()>>>) {
        let mut made = Vec::new();
        let mut watch = self.watch.lock();
        while !watch.has_ended {
            made.retain(|thread: &JoinHandle<_>| !thread.is_finished());
            watch.is_asleep = true;
            let before = self.state.load(Ordering::SeqCst);
            if before as u32 != 0 {
                self.changed.wait(&mut watch);
                continue;
            }
            watch.is_asleep = false;
            let patience = if made.is_empty() { PATIENCE } else { PATIENCE_AGAIN };
            let is_over = self.changed.wait_for(&mut watch, patience).timed_out();
            let are_waiting = is_over && self.state.load(Ordering::SeqCst) == before;
            if are_waiting && made.len() < SPARE_MAX {
                self.state.fetch_add(1, Ordering::SeqCst);
                match make() {
                    Ok(thread) => made.push(thread),
                    Err(_) => drop(self.state.fetch_sub(1, Ordering::SeqCst)),
                }
            }
        }
        drop(watch);
        drop(make);
        for thread in made {
            // What it says of the device, the others say too.
            let _ended = thread.join();
        }
    }

    pub(crate) fn end(&self) {
        self.watch.lock().has_ended = true;
        self.changed.notify_one();
    }
}
