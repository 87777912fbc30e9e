//! Ends a test that hangs, with the case that it hangs in: a harness would only wait.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What runs, and since when.
type Case = Arc<Mutex<(String, Instant)>>;

/// Watches one case after the other, until it is dropped.
#[derive(Debug)]
pub struct Watchdog {
    case: Case,
}

impl Watchdog {
    /// No case is allowed to take longer than `patience`.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        let case = Case::new(Mutex::new(("the start".to_owned(), Instant::now())));
        let watched = Arc::downgrade(&case);
        std::thread::spawn(move || {
            while let Some(case) = watched.upgrade() {
                let (name, since) = case.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if since.elapsed() > patience {
                    tell_and_abort(&name, patience);
                }
                drop(case);
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        Self { case }
    }

    /// The next case begins.
    pub fn begin(&self, name: String) {
        *self.case.lock().unwrap_or_else(PoisonError::into_inner) = (name, Instant::now());
    }
}

#[allow(clippy::print_stderr, reason = "the process ends here, and someone has to say why")]
fn tell_and_abort(name: &str, patience: Duration) -> ! {
    eprintln!("no end after {patience:?}: {name}");
    std::process::abort()
}
