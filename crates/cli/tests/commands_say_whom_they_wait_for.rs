//! Promise: a command that goes through a mount whose daemon does not answer says so, goes on waiting, and
//! does what it was asked for as soon as the daemon goes on.

#![allow(clippy::unwrap_used, reason = "a test panics")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use support::{Scratch, Stopped, alone, novale, program};

#[test]
fn commands_on_paths_of_a_mount_whose_daemon_is_stopped() {
    let Some(scratch) = Scratch::for_mount("commands_on_paths") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let path = scratch.in_dir("file").display().to_string();
    fs::write(&path, b"x").unwrap();
    let tree = scratch.in_dir("tree").display().to_string();
    fs::create_dir(&tree).unwrap();
    let inner = scratch.in_dir("inner").display().to_string();
    novale(&["mkfs", "--quiet", "--size", "16M", &inner]).ok();
    for words in [
        &["info", path.as_str()][..],
        &["set", "--method", "cow", &path],
        &["quota", "set", "--space", "1M", &tree],
        &["quota", "show", &tree],
        &["quota", "clear", &tree],
        &["wear", &inner],
        &["check", &inner],
        &["dump", &inner, "superblock"],
    ] {
        let stopped = Stopped::daemon_of(&slot);
        let mut command = Command::new(program());
        command.args(words).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut running = command.spawn().unwrap();
        let mut said = BufReader::new(running.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.contains(&format!("{}: waiting for process", scratch.dir())), "{line}");
        assert!(line.contains(&format!("kill -CONT {}", stopped.0)), "{line}");
        assert!(running.try_wait().unwrap().is_none(), "{words:?} waits no longer");
        drop(stopped);
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        assert!(running.wait().unwrap().success(), "{words:?}: {rest}");
        assert_eq!(rest, "", "{words:?}");
    }
    novale(&["umount", &scratch.dir()]).ok();
}
