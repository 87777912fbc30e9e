//! Does a process still live? Its number alone does not say: numbers are reused.

use std::fs;

/// What names a process for good: its number and when it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PidInfo {
    /// The process number, below 2^30.
    pub pid: u32,
    /// Start in clock ticks since boot, field 22 of `/proc/PID/stat`; 0 if unknown.
    pub start_time: u64,
}

impl PidInfo {
    /// The calling process.
    #[must_use]
    pub fn current() -> Self {
        let pid = std::process::id();
        Self { pid, start_time: stat(pid).map_or(0, |s| s.start_time) }
    }

    /// True if the process is there and has not ended. A zombie has, unless other threads of it
    /// go on.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let Some(stat) = stat(self.pid) else {
            return false;
        };
        let same = self.start_time == 0 || stat.start_time == self.start_time;
        let ended = matches!(stat.state, 'Z' | 'X' | 'x') && stat.threads <= 1;
        same && !ended
    }
}

/// What tells this process' pid namespace from others; 0 where that can't be seen.
pub(crate) fn pid_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

struct Stat {
    state: char,
    threads: u64,
    start_time: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The second field is the program's name in parentheses, which may contain anything.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    // State is field 3, threads 20, start time 22 (proc_pid_stat(5)).
    let threads = fields.nth(16)?.parse().ok()?;
    let start_time = fields.nth(1)?.parse().ok()?;
    Some(Stat { state, threads, start_time })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calling_process_lives_and_another_start_time_does_not() {
        let me = PidInfo::current();
        assert!(me.start_time > 0);
        assert!(me.is_alive());
        assert!(!PidInfo { start_time: me.start_time + 1, ..me }.is_alive());
    }

    #[test]
    fn a_zombie_is_dead() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let info = PidInfo { pid, start_time: 0 };
        while stat(pid).unwrap().state != 'Z' {
            std::thread::yield_now();
        }
        assert!(!info.is_alive());
        child.wait().unwrap();
        assert!(!info.is_alive());
    }
}
