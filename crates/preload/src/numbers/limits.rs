//! The limit of descriptors, and numbers out of the program's way.

use crate::base::lock::Lock;
use crate::base::sys::sys;
use crate::numbers::words;

/// Numbers of this library's own descriptors begin at the limit, which is raised by so much meanwhile.
const BEYOND_LIMIT: u64 = 128;
/// Where they have to be below it, they are by so much, or from a quarter of it on where it is small.
const BELOW_LIMIT: u64 = 128;
/// Where the limit is far away: the kernel's own table grows with the highest number.
const DENSE: u64 = 4096;

/// The one who changes the limit of descriptors.
static LIMITS: Lock<()> = Lock::new(());

/// Makes descriptors of this library's, given the number from which on they are: above those that the
/// program may have, as a descriptor stays valid when the limit is lowered below it. Where the limit is
/// far away, or may not be raised for the moment, they are below it: programs look at the lowest ones.
pub(crate) fn out_of_the_way<T>(make: impl FnOnce(u32) -> T) -> T {
    let _one = LIMITS.lock();
    let mut limit = [0u64; 2];
    sys!(libc::SYS_getrlimit, libc::RLIMIT_NOFILE, limit.as_mut_ptr());
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

/// Makes a call of the program's that may change its limits, while this library does not.
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
