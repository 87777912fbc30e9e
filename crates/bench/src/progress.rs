//! How far a long benchmark is: drawn on terminals only, on standard error.

use indicatif::ProgressBar;

/// A bar that goes when it is dropped.
#[derive(Debug)]
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// A bar of `steps` steps of what is named.
    pub(crate) fn new(what: &'static str, steps: u64) -> Self {
        Self(ProgressBar::new(steps).with_message(what))
    }

    /// One step is done.
    pub(crate) fn step(&self) {
        self.0.inc(1);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
