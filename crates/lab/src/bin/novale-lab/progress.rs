//! How far a command has come, on standard error: a bar on a terminal, elsewhere a line now and then.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// A line at the first news, and one so often from then on.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Progress of a command.
#[derive(Debug)]
pub(super) struct Progress {
    start: Instant,
    seconds: Option<u64>,
    /// None where there is no terminal.
    bar: Option<ProgressBar>,
    next_line: Mutex<Duration>,
}

impl Progress {
    /// Of a command that takes so many seconds, if that is known.
    pub(super) fn new(seconds: Option<u64>) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| bar(seconds));
        Self { start: Instant::now(), seconds, bar, next_line: Mutex::new(Duration::ZERO) }
    }

    /// When it began.
    pub(super) fn start(&self) -> Instant {
        self.start
    }

    /// Shows what `message` says, if it is time for that.
    pub(super) fn show(&self, message: impl FnOnce() -> String) {
        let elapsed = self.start.elapsed();
        if let Some(bar) = &self.bar {
            bar.set_position(elapsed.as_secs());
            bar.set_message(message());
            return;
        }
        let mut next_line = self.next_line.lock().unwrap_or_else(PoisonError::into_inner);
        if elapsed >= *next_line {
            *next_line = elapsed + LINE_EVERY;
            let of = self.seconds.map(|seconds| format!(" of {seconds}")).unwrap_or_default();
            eprintln!("novale-lab: {}{of} s: {}", elapsed.as_secs(), message());
        }
    }

    /// Takes the bar away.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(seconds: Option<u64>) -> ProgressBar {
    let (bar, template) = match seconds {
        Some(seconds) => (ProgressBar::new(seconds), "{elapsed} {wide_bar} {msg}"),
        None => (ProgressBar::new_spinner(), "{elapsed} {spinner} {msg}"),
    };
    // The template is a good one; without it the bar is a plain one.
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
