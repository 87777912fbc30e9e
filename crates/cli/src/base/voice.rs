//! What a daemon has to say while it serves: on standard error, and in the background, where that
//! leads nowhere, to the system's log.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const SYSTEM_LOG: &str = "/dev/log";
/// Facility daemon, severity error.
const PRIORITY: u8 = 3 * 8 + 3;
/// More messages than this within [`WINDOW`] are only counted: one damaged file can be read often.
const MESSAGES_MAX: u32 = 30;
const WINDOW: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Voice {
    system: Option<UnixDatagram>,
    recent: Mutex<Recent>,
}

#[derive(Debug)]
struct Recent {
    since: Instant,
    said: u32,
    left_out: u32,
}

impl Voice {
    /// `to_system`: also to the system's log, if there is one.
    pub(crate) fn new(to_system: bool) -> Self {
        let system = if to_system { connect(Path::new(SYSTEM_LOG)) } else { None };
        let recent = Recent { since: Instant::now(), said: 0, left_out: 0 };
        Self { system, recent: Mutex::new(recent) }
    }

    /// Says something, unless too much was said lately.
    pub(crate) fn say(&self, text: &str) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.since.elapsed() >= WINDOW {
            if recent.left_out > 0 {
                self.put(&format!("{} messages were left out", recent.left_out));
            }
            *recent = Recent { since: Instant::now(), said: 0, left_out: 0 };
        }
        if recent.said == MESSAGES_MAX {
            recent.left_out += 1;
            return;
        }
        recent.said += 1;
        self.put(text);
    }

    fn put(&self, text: &str) {
        remark!("novale: {text}");
        self.send(text);
    }

    /// Says to the system's log alone what is told on standard error elsewhere.
    pub(crate) fn send(&self, text: &str) {
        let Some(system) = &self.system else { return };
        let line = format!("<{PRIORITY}>novale[{}]: {text}", std::process::id());
        // A log that takes nothing must not keep the mount from being served.
        system.send(line.as_bytes()).map(drop).unwrap_or_default();
    }
}

fn connect(path: &Path) -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    socket.connect(path).ok()?;
    Some(socket)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::{MESSAGES_MAX, Voice, connect};

    #[test]
    fn the_system_log_hears_the_first_messages_of_a_flood() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = UnixDatagram::bind(&path).unwrap();
        log.set_nonblocking(true).unwrap();
        let voice = Voice { system: connect(&path), ..Voice::new(false) };
        let mut heard = Vec::new();
        for number in 0..3 * MESSAGES_MAX {
            voice.say(&format!("damage {number}"));
            let mut line = [0; 100];
            while let Ok(len) = log.recv(&mut line) {
                heard.push(String::from_utf8_lossy(&line[..len]).into_owned());
            }
        }
        assert_eq!(heard.len(), MESSAGES_MAX as usize);
        let first = format!("<27>novale[{}]: damage 0", std::process::id());
        assert_eq!(heard.first(), Some(&first));
    }
}
