//! Ends a test that hangs, with the case that it hangs in: a harness would only wait.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Watches one case after the other, until it is dropped.
#[derive(Debug)]
pub struct Watchdog {
    cases: Sender<String>,
}

impl Watchdog {
    /// No case is allowed to take longer than `patience`.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        let (cases, begun) = channel();
        std::thread::spawn(move || watch(&begun, patience));
        Self { cases }
    }

    /// The next case begins.
    pub fn begin(&self, name: String) {
        // The watching thread ends only with this sender, or the process.
        self.cases.send(name).unwrap_or_default();
    }
}

fn watch(begun: &Receiver<String>, patience: Duration) {
    let mut case = "the start".to_owned();
    loop {
        match begun.recv_timeout(patience) {
            Ok(next) => case = next,
            Err(RecvTimeoutError::Timeout) => tell_and_abort(&case, patience),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[allow(clippy::print_stderr, reason = "the process ends here, and someone has to say why")]
fn tell_and_abort(name: &str, patience: Duration) -> ! {
    eprintln!("no end after {patience:?}: {name}");
    std::process::abort()
}
