//! Promise: a program uses no pool in the place of another one's mount.
//!
//! Where the mounts and their pools are, the environment says, of the moment in which `novale run` was
//! called. A pool that others kept open was used at its path also when another one was mounted there. Under
//! `--strict` a program ends that can't use the pool; it went through the mount.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]

mod harness;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use harness::support::{ends, facts, novale};
use harness::{direct, is_whole, mounted};
use novale_posix::join::join;

#[test]
fn where_another_pool_is_mounted_by_now_the_mount_serves_it() {
    let Some((scratch, slot)) = mounted("where_another_pool_is_mounted") else { return };
    let (dir, other) = (scratch.dir(), scratch.slot("other"));
    novale(&["mkfs", "--size", "16M", &other]).ok();
    fs::write(scratch.in_dir("file"), b"the first pool's").unwrap();
    let joined = join(&[PathBuf::from(&slot)]).unwrap();
    for (is_remounted, is_strict) in [(false, true), (true, true), (true, false)] {
        let mut shell = direct(&scratch, Path::new("sh"));
        if !is_strict {
            shell = without_strict(&shell);
        }
        shell.args(["-c", "echo ready; read go; exec cat \"$0/file\"", &dir]);
        let pipes = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut shell = pipes.spawn().unwrap();
        let mut said = BufReader::new(shell.stdout.take().unwrap());
        let mut text = String::new();
        said.read_line(&mut text).unwrap();
        if is_remounted {
            remount(&slot, &dir, &other);
            fs::write(scratch.in_dir("file"), b"the second's").unwrap();
        }
        shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
        said.read_to_string(&mut text).unwrap();
        let mut why = String::new();
        shell.stderr.take().unwrap().read_to_string(&mut why).unwrap();
        let ends = is_remounted && is_strict;
        let code = shell.wait().unwrap().code();
        assert_eq!(code, Some(if ends { 125 } else { 0 }), "{why}");
        let expected = match (is_remounted, is_strict) {
            (false, _) => "the first pool's",
            (true, true) => "",
            (true, false) => "the second's",
        };
        assert_eq!(
            (text.as_str(), why.contains("another pool is mounted")),
            (&*format!("ready\n{expected}"), is_remounted),
            "{why}"
        );
        if is_remounted && is_strict {
            remount(&other, &dir, &slot);
        }
    }
    joined.close().unwrap();
    drop(joined);
    is_whole(&scratch, &other);
}

/// Mounts another pool in the place of the one that is there.
fn remount(there: &str, dir: &str, other: &str) {
    let daemon = facts(there).get("used_by").and_then(serde_json::Value::as_u64).unwrap();
    novale(&["umount", "--lazy", dir]).ok();
    // It may not, where another namespace has a copy: then the next mount has another number.
    let _is_gone = ends(daemon);
    novale(&["mount", "-o", "direct", other, dir]).ok();
}

/// The same command without `--strict`.
fn without_strict(strict: &Command) -> Command {
    let mut command = Command::new(strict.get_program());
    command.args(strict.get_args().filter(|argument| *argument != "--strict"));
    for (name, value) in strict.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command
}
