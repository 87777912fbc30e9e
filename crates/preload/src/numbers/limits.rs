//! The limit of descriptors, and numbers out of the program's way; limits of memory.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::base::classes::{self, CLOSES};
use crate::base::lock::Lock;
use crate::base::sys::{Fd, limit_of, sys};
use crate::numbers::words;

/// Numbers of this library's own descriptors begin at the limit, which is raised by so much meanwhile.
const BEYOND_LIMIT: u64 = 128;
/// Where they have to be below it, they are by so much, or from a quarter of it on where it is small.
const BELOW_LIMIT: u64 = 128;
/// Where the limit is not told: below what it mostly is.
const UNTOLD: u32 = 512;
/// Where the limit is far away: the kernel's own table grows with the highest number.
const DENSE: u64 = 4096;

/// How long a thread that closes a number waits for others that open something of this library's, in
/// seconds: one of them may have been killed, in a child that shares this memory. It is not waited for again.
const PATIENCE_S: i64 = 2;

/// Bytes of `/proc/PID/statm` at most, its places for all that is mapped and for what may be stored to, and its unit.
const STATM_MAX: usize = 128;
const ALL_AT: usize = 0;
const DATA_AT: usize = 5;
const PAGE: u64 = 4096;

/// How many threads are opening something of this library's: a futex.
static OPENINGS: AtomicU32 = AtomicU32::new(0);
/// The one who changes the limit of descriptors.
static LIMITS: Lock<()> = Lock::new(());

/// Whether the process may map so much more and has room for as much again as it has then.
pub(crate) fn leave_room(more: u64) -> bool {
    let leaves =
        |resource| limit_of(resource).is_none_or(|[soft, _]| leaves_room(resource, soft, more));
    leaves(libc::RLIMIT_AS) && leaves(libc::RLIMIT_DATA)
}

/// The same of a limit of the address space, or of what is stored to.
pub(crate) fn leaves_room(resource: u32, limit: u64, more: u64) -> bool {
    limit == libc::RLIM_INFINITY || limit / 2 >= mapped(resource).saturating_add(more)
}

/// Bytes that are in use of what is limited; where that is not told, all.
fn mapped(resource: u32) -> u64 {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let path = c"/proc/thread-self/statm".as_ptr();
    let mut room = [0; STATM_MAX];
    let open = || sys!(libc::SYS_openat, libc::AT_FDCWD, path, flags, 0);
    let read = |file: &Fd| sys!(libc::SYS_read, file.number(), room.as_mut_ptr(), STATM_MAX);
    let got = Fd::new(open()).as_ref().map(read).and_then(|len| usize::try_from(len).ok());
    let text = got.and_then(|len| std::str::from_utf8(room.get(..len)?).ok());
    let at = if resource == libc::RLIMIT_AS { ALL_AT } else { DATA_AT };
    let pages = text.and_then(|text| text.split(' ').nth(at)?.parse::<u64>().ok());
    pages.map_or(u64::MAX, |pages| pages.saturating_mul(PAGE))
}

/// Makes descriptors of this library's, given the number from which on they are: above those that the
/// program may have, as a descriptor stays valid when the limit is lowered below it. Where the limit is
/// far away, is not told, or may not be raised for the moment, they are below it: programs look at the
/// lowest ones.
pub(crate) fn out_of_the_way<T>(make: impl FnOnce(u32) -> T) -> T {
    let _one = LIMITS.lock();
    opening(|| make_above(make))
}

fn make_above<T>(make: impl FnOnce(u32) -> T) -> T {
    let Some(limit) = limit_of(libc::RLIMIT_NOFILE) else { return make(UNTOLD) };
    let [soft, hard] = limit;
    let raised = [soft.saturating_add(BEYOND_LIMIT), hard.max(soft.saturating_add(BEYOND_LIMIT))];
    if soft <= DENSE && sys!(libc::SYS_setrlimit, libc::RLIMIT_NOFILE, raised.as_ptr()) == 0 {
        let result = make(u32::try_from(soft).unwrap_or(0));
        sys!(libc::SYS_setrlimit, libc::RLIMIT_NOFILE, limit.as_ptr());
        return result;
    }
    let soft = soft.min(words::DESCRIPTORS as u64);
    let high = if soft > 2 * BELOW_LIMIT { soft - BELOW_LIMIT } else { soft / 4 };
    make(u32::try_from(high.min(DENSE)).unwrap_or(0))
}

/// Opens something of this library's. The kernel gives it the lowest number that is free, and other threads
/// of the program may close numbers that they have not opened: they wait until it has its own.
pub(crate) fn opening<T>(open: impl FnOnce() -> T) -> T {
    classes::watch(CLOSES, true);
    OPENINGS.fetch_add(1, Ordering::SeqCst);
    let opened = open();
    let less = |count: u32| count.checked_sub(1);
    if OPENINGS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) == Ok(1) {
        let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        sys!(libc::SYS_futex, OPENINGS.as_ptr(), wake, i32::MAX);
    }
    opened
}

/// As [`opening`], where other threads may not close whole ranges either. Not around what joins a pool.
pub(crate) fn undisturbed<T>(open: impl FnOnce() -> T) -> T {
    let _one = LIMITS.lock();
    opening(open)
}

/// Before the kernel closes a number that the program names. One that was about to be closed may be closed
/// all the same: who opens looks whether it was.
#[inline]
pub(crate) fn wait_for_openings() {
    if OPENINGS.load(Ordering::SeqCst) != 0 {
        wait();
    }
}

#[cold]
fn wait() {
    let limit = libc::timespec { tv_sec: PATIENCE_S, tv_nsec: 0 };
    let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    loop {
        let now = OPENINGS.load(Ordering::SeqCst);
        if now == 0 {
            return;
        }
        let woken = sys!(libc::SYS_futex, OPENINGS.as_ptr(), wait, now, &raw const limit);
        if woken == -i64::from(libc::ETIMEDOUT) {
            OPENINGS.store(0, Ordering::SeqCst);
            return;
        }
    }
}

/// In the child of a fork: the others that were opening something are in the parent.
pub(crate) fn after_fork() {
    OPENINGS.store(0, Ordering::SeqCst);
}

/// Makes a call of the program's that may change its limits, or closes many numbers, while this library
/// neither changes them nor opens what it keeps.
pub(crate) fn change_limits<T>(call: impl FnOnce() -> T) -> T {
    let _one = LIMITS.lock();
    call()
}

/// Keeps other threads out while the process forks.
pub(crate) fn before_fork() {
    LIMITS.take();
}

/// Called in parent and child.
pub(crate) fn fork_done() {
    LIMITS.give();
}
