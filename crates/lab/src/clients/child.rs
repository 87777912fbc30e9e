//! Processes that were started: waiting for their end, and what they had to say.

use std::io::Read;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// No process takes longer for one thing, but for a hang.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for the end; none where there is none in time, and the process was killed.
pub(super) fn wait(child: &mut Child) -> Result<Option<ExitStatus>, String> {
    let start = Instant::now();
    while start.elapsed() <= PATIENCE {
        if let Some(status) = child.try_wait().map_err(|why| why.to_string())? {
            return Ok(Some(status));
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    let _ended = child.kill();
    Ok(None)
}

/// What an ended process wrote to standard error.
pub(super) fn said(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _read = stderr.read_to_string(&mut text);
    }
    text
}
