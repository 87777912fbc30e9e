//! How far long work is, drawn on a terminal once it has taken a while; and the threads that do it.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use novale_core::{Executor, Progress};
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Work shorter than this shows nothing.
const QUIET: Duration = Duration::from_millis(500);
const TICK: Duration = Duration::from_millis(100);

/// Recovery's and check's tasks on all CPUs.
#[derive(Debug)]
pub(crate) struct AllCpus;

impl Executor for AllCpus {
    fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        // Where no threads can be had, this one does it all.
        static THREADS: LazyLock<Option<ThreadPool>> =
            LazyLock::new(|| ThreadPoolBuilder::new().build().ok());
        match &*THREADS {
            Some(threads) => threads.install(|| (0..tasks).into_par_iter().for_each(task)),
            None => (0..tasks).for_each(task),
        }
    }
}

/// A bar for the passes of one long piece of work. indicatif draws on terminals only.
pub(crate) struct Bar {
    start: Instant,
    drawn: Mutex<Option<(&'static str, ProgressBar)>>,
}

impl Bar {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), drawn: Mutex::new(None) }
    }

    /// Moves the bar; each new pass gets one of its own.
    pub(crate) fn show(&self, progress: Progress) {
        if self.start.elapsed() < QUIET {
            return;
        }
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        let bar = match drawn.take() {
            Some((what, bar)) if what == progress.what => bar,
            previous => {
                if let Some((_, bar)) = previous {
                    bar.finish_and_clear();
                }
                bar_for(progress)
            }
        };
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        *drawn = Some((progress.what, bar));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        let drawn = self.drawn.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bar)) = drawn {
            bar.finish_and_clear();
        }
    }
}

fn bar_for(progress: Progress) -> ProgressBar {
    let bar = ProgressBar::new(progress.total);
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {percent}% {eta}") {
        bar.set_style(style);
    }
    bar.set_message(progress.what);
    bar
}

/// Runs work of unknown length beside a spinner.
pub(crate) fn spin<T>(what: &'static str, work: impl FnOnce() -> T) -> T {
    let spinner = ProgressBar::new_spinner().with_message(what);
    let spinner = &spinner;
    thread::scope(|scope| {
        let (end, ended) = channel::<()>();
        let turn = move || {
            while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                spinner.tick();
            }
            spinner.finish_and_clear();
        };
        // Without a thread for it, nothing is shown.
        let _turning = thread::Builder::new().spawn_scoped(scope, turn);
        let done = work();
        drop(end);
        done
    })
}
