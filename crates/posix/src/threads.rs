//! An executor for programs that bring none: recovery on all CPUs, by threads that end with it.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, available_parallelism, scope};

use novale_core::Executor;

/// Runs tasks on as many threads as there are CPUs, the caller's among them.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllCpus;

impl Executor for AllCpus {
    fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let work = || {
            // Ends: each turn takes one of the tasks.
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= tasks {
                    return;
                }
                task(index);
            }
        };
        let others = available_parallelism().map_or(1, NonZero::get).min(tasks).saturating_sub(1);
        scope(|scope| {
            for _ in 0..others {
                // Where the system has no thread left, there are fewer.
                if Builder::new().spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn each_task_runs_once() {
        for tasks in [0, 1, 2, 1000] {
            let ran = Mutex::new(vec![0; tasks]);
            AllCpus.run(tasks, &|index| ran.lock().unwrap()[index] += 1);
            assert!(ran.into_inner().unwrap().iter().all(|times| *times == 1));
        }
    }
}
