//! What the core asks its callers for and has no means to find out: the time and where they run.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

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

/// The wall clock in nanoseconds since 1970, negative before; good until the year 2262.
#[must_use]
pub fn wall_clock_ns() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
    }
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
