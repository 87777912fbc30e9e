//! Parallel work and its progress, handed in by the caller.

/// Runs independent tasks; recovery and checking work through it.
pub trait Executor {
    /// Runs `task(0)` to `task(tasks - 1)` in any order, in parallel or not, and returns when
    /// all are done.
    fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync));
}

/// One task after the other, on the caller's thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct Serial;

impl Executor for Serial {
    fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        (0..tasks).for_each(task);
    }
}

/// How far a long pass is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done, such as "scanning inodes".
    pub what: &'static str,
    /// Steps done.
    pub done: u64,
    /// Steps in all.
    pub total: u64,
}
