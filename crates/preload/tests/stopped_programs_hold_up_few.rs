//! Promise: a direct program that is stopped in the middle of an operation holds up who needs the same inode, and
//! nobody else, however many wait.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]

#[allow(unused_macros, reason = "its test is written out")]
mod harness;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use harness::support::{Scratch, eventually, novale};
use harness::{append, is_whole, stop_holding, task};
use rustix::process::{Pid, Signal, kill_process};

/// More than the threads that the daemon is given.
const WRITERS: usize = 12;

/// Each thread of the mount's daemon waited for it, and none was left for other files.
#[test]
fn many_wait_through_the_mount() {
    let Some(scratch) = Scratch::for_mount("many_wait_through_the_mount") else { return };
    let slot = scratch.pool();
    novale(&["mount", "-o", "direct,threads=4", &slot, &scratch.dir()]).ok();
    let (held, other) = (scratch.in_dir("held"), scratch.in_dir("other"));
    fs::write(&other, "text").unwrap();
    let mut busy = task(&scratch, "is_busy").spawn().unwrap();
    assert!(eventually(|| fs::metadata(&held).is_ok_and(|held| held.len() > 0)));
    let process = Pid::from_child(&busy);
    let first = stop_holding(process, &held);
    let others = (1..WRITERS).map(|_| append(&held));
    let writers: Vec<_> = std::iter::once(first).chain(others).collect();
    // All of them have asked by then.
    std::thread::sleep(Duration::from_millis(300));
    let mut reads = Command::new("cat").arg(&other).stdout(Stdio::piped()).spawn().unwrap();
    let is_served = eventually(|| reads.try_wait().unwrap().is_some());
    kill_process(process, Signal::CONT).unwrap();
    busy.kill().unwrap();
    busy.wait().unwrap();
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    assert_eq!(reads.wait_with_output().unwrap().stdout, b"text");
    assert!(is_served, "all wait");
    is_whole(&scratch, &slot);
}

mod tasks {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;

    use super::harness::PLACE;

    #[test]
    #[ignore = "a task of another test"]
    fn is_busy() {
        let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
        let held = File::create(place.join("held")).unwrap();
        loop {
            held.write_all_at(&[1; 10_000], 0).unwrap();
        }
    }
}
