//! What the core asks its callers for and has no means to find out: the time and where they run.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::time::{ClockId, clock_gettime};

static NEXT_HINT: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static HINT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// A small number that is the calling thread's own, counted from 0 in order of first use.
#[must_use]
pub fn thread_hint() -> u32 {
    HINT.with(|hint| {
        hint.get().unwrap_or_else(|| {
            let new = NEXT_HINT.fetch_add(1, Ordering::Relaxed);
            hint.set(Some(new));
            new
        })
    })
}

/// The wall clock in nanoseconds since 1970, negative before; good until the year 2262. It is the coarse
/// one, by which the kernel stamps files too: one client's stamps must not be older than those that
/// another has made before.
#[must_use]
pub fn wall_clock_ns() -> i64 {
    let now = clock_gettime(ClockId::CLOCK_REALTIME_COARSE);
    // Every kernel since 2.6.32 has it.
    now.map_or(0, |now| now.tv_sec().saturating_mul(1_000_000_000).saturating_add(now.tv_nsec()))
}

/// User and group of this process, as new files of its own get them.
#[must_use]
pub fn process_owner() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::thread_hint;

    #[test]
    fn a_thread_keeps_its_hint_and_shares_it_with_none() {
        let mine = thread_hint();
        let other = std::thread::spawn(thread_hint).join().unwrap();
        assert_eq!(mine, thread_hint());
        assert_ne!(mine, other);
    }
}
