//! What the kernel tells of processes by their memory (`cmdline`, `maps`), asked so that none of them holds up the
//! caller.
//!
//! The kernel waits for the lock of that memory, which a process of any user can keep for good: by a fault in a file of
//! a FUSE mount that does not answer. So threads ask. They end with the caller: who waits for that lock can be killed.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use crate::holders::ask::ANSWER_MAX;

/// After so long without an answer one thread more asks for those that are left.
const STEP: Duration = Duration::from_millis(20);

/// A file of a process' folder in `/proc`; empty where it can't be read.
pub(crate) fn read(process: u32, name: &str) -> Vec<u8> {
    fs::read(Path::new("/proc").join(process.to_string()).join(name)).unwrap_or_default()
}

/// What a look at each of the processes has told, in their order; those that keep it waiting are left out.
pub(crate) fn each<T: Send + 'static>(
    processes: Vec<u32>,
    look: impl Fn(u32) -> T + Send + Sync + 'static,
) -> Vec<(u32, T)> {
    let end = Instant::now() + ANSWER_MAX;
    let (tell, told) = channel();
    let work = Arc::new((processes, AtomicUsize::new(0), look));
    let mut found = Vec::new();
    let mut is_quiet = true;
    while found.len() < work.0.len() && Instant::now() < end {
        if is_quiet && work.1.load(Ordering::Relaxed) < work.0.len() {
            let (work, tell) = (Arc::clone(&work), tell.clone());
            let ask = move || {
                let (processes, next, look) = &*work;
                let take = || {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    Some((place, *processes.get(place)?))
                };
                while let Some((place, process)) = take() {
                    // Nobody hears it once the time is over.
                    if tell.send((place, process, look(process))).is_err() {
                        return;
                    }
                }
            };
            // Without a thread nothing is told.
            drop(thread::Builder::new().spawn(ask));
        }
        let answer = told.recv_timeout(STEP);
        is_quiet = answer.is_err();
        found.extend(answer);
    }
    found.sort_unstable_by_key(|(place, ..)| *place);
    found.into_iter().map(|(_, process, told)| (process, told)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use super::{each, read};

    #[test]
    fn processes_that_do_not_answer_hold_up_none_of_the_others() {
        let (end, ended) = channel::<()>();
        let ended = Mutex::new(ended);
        let look = move |process: u32| {
            if process.is_multiple_of(2) {
                // Until the test has ended.
                drop(ended.lock().map(|ended| ended.recv()));
            }
            process + 1
        };
        assert_eq!(each(vec![4, 3, 2, 7, 6, 5], look), [(3, 4), (7, 8), (5, 6)]);
        drop(end);
    }

    #[test]
    fn what_all_tell_comes_in_their_order() {
        let own = std::process::id();
        let lines = each(vec![own, u32::MAX, own], |process| read(process, "cmdline"));
        let [(_, first), (_, none), (_, again)] = &lines[..] else { panic!("{lines:?}") };
        assert!(!first.is_empty() && first == again && none.is_empty());
        assert!(each(Vec::new(), |process| process).is_empty());
    }
}
