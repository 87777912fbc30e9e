//! Promise: a program uses no pool in the place of another one's mount.
//!
//! Where the mounts and their pools are, the environment says, of the moment in which `novale run` was
//! called. A pool that others kept open was used at its path also when another one was mounted there. Under
//! `--strict` a program ends that can't use the pool; it went through the mount.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

mod harness;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use harness::support::{ends, facts, novale};
use harness::{direct, is_whole, mounted};
use novale_posix::join::join;
use rustix::process::{Pid, Signal, kill_process};

/// It took the others for dead, which seemed to have begun at other times, and their locks away.
#[test]
fn who_begins_in_another_time_namespace_does_not_join() {
    let Some((scratch, slot)) = mounted("another_time_namespace") else { return };
    let moved = ["--time", "--boottime", "1000", "--fork", "--"];
    let there = Command::new("unshare").args(moved).arg("true").output();
    if !there.is_ok_and(|output| output.status.success()) {
        println!("skipped: no time namespaces here");
        return;
    }
    let file = scratch.in_dir("file");
    let makes = ["sh", "-c", "echo made > \"$0\""];
    let mut strict = direct(&scratch, Path::new("unshare"));
    let output = strict.args(moved).args(makes).arg(&file).output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(125) && why.contains("of another time namespace"),
        "{why}"
    );
    let mut run = Command::new("unshare");
    run.args(moved).arg(harness::support::program());
    let output = run.args(["run", "--strict", "--mount", &scratch.dir(), "true"]).output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(125) && why.contains("of another time namespace"),
        "{why}"
    );
    harness::succeeds(&without_strict(&strict).output().unwrap());
    assert_eq!(fs::read(&file).unwrap(), b"made\n");
    is_whole(&scratch, &slot);
}

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

/// What a script mounts below a mount, or makes read-only, the programs come to that it starts then: they went on
/// below it, at what it hides.
#[test]
fn what_was_mounted_before_a_program_began_it_comes_to() {
    let Some((scratch, slot)) = mounted("what_was_mounted_before") else { return };
    let dir = scratch.dir();
    let says = |is_strict: bool, script: &str| {
        let strict = direct(&scratch, Path::new("sh"));
        let mut shell = if is_strict { strict } else { without_strict(&strict) };
        let output = shell.args(["-c", script]).current_dir(&dir).output().unwrap();
        let why = String::from_utf8(output.stderr).unwrap();
        (String::from_utf8(output.stdout).unwrap(), why)
    };
    let below = "mkdir -p below; echo hidden > below/f; mount -t tmpfs none below; ls below; \
         sh -c 'echo shown > below/g'; cat below/g; umount below; cat below/f";
    assert_eq!(says(false, below), ("shown\nhidden\n".into(), String::new()));
    let frozen =
        "mount -o remount,bind,ro .; sh -c 'echo more >> below/f' 2> /dev/null || echo refused
         mount -o remount,bind,rw .; cat below/f";
    assert_eq!(says(false, frozen), ("refused\nhidden\n".into(), String::new()));
    // Where all is to be direct it is said, and ends the program where that is not what can take it away.
    for (before, after, code, expected) in [
        ("mount -t tmpfs none below", "umount below", 0, "something else is mounted below it"),
        ("mount -o remount,bind,ro .", "mount -o remount,bind,rw .", 125, "it is read-only"),
    ] {
        let (said, why) = says(true, &format!("{before}; ls below; echo $?; {after}"));
        assert_eq!(said, format!("{code}\n"), "{why}");
        assert!(why.contains(expected), "{why}");
    }
    is_whole(&scratch, &slot);
}

/// A mount went under a program that used it, and the kernel gave its device's number to the next one: what
/// was opened there was read from the first pool, and written to it.
#[test]
fn where_another_mount_has_the_number_by_now_it_is_the_kernels() {
    the_number_is_anothers("where_another_mount_has_the_number", |dir, daemon| {
        novale(&["umount", "--lazy", dir]).ok();
        ends(daemon)
    });
}

/// The daemon was killed, and nobody had settled for it: the arena said of the next mount that it was the dead
/// one's.
#[test]
fn where_another_mount_has_a_dead_ones_number_it_is_the_kernels() {
    the_number_is_anothers("where_another_mount_has_a_dead", |dir, daemon| {
        let pid = i32::try_from(daemon).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        let is_dead = ends(daemon);
        assert!(Command::new("umount").args(["-l", dir]).status().unwrap().success());
        is_dead
    });
}

/// Takes a mount away under a program that has used it, and has another pool's get its number.
fn the_number_is_anothers(name: &str, take_away: impl Fn(&str, u64) -> bool) {
    let Some((scratch, slot)) = mounted(name) else { return };
    let (dir, other) = (scratch.dir(), scratch.slot("other"));
    novale(&["mkfs", "--size", "16M", &other]).ok();
    let elsewhere = Path::new(&dir).parent().unwrap().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let elsewhere = elsewhere.to_str().unwrap();
    fs::write(scratch.in_dir("file"), b"the first pool's\n").unwrap();
    let known = fs::metadata(scratch.in_dir("file")).unwrap();
    let mut shell = without_strict(&direct(&scratch, Path::new("sh")));
    let script = "[ -e \"$0/file\" ]; echo ready; read go; read line <\"$1/file\"; echo \"$line\"; \
                  echo written >\"$1/file\"";
    shell.args(["-c", script, &dir, elsewhere]);
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(shell.stdout.take().unwrap());
    let mut text = String::new();
    said.read_line(&mut text).unwrap();
    let daemon = facts(&slot).get("used_by").and_then(serde_json::Value::as_u64).unwrap();
    let is_free = take_away(&dir, daemon);
    // The kernel gives out the lowest number: what is free below is taken before.
    let mut fillers = 0;
    let found = loop {
        novale(&["mount", &other, elsewhere]).ok();
        fs::write(format!("{elsewhere}/file"), b"the second's\n").unwrap();
        let found = fs::metadata(format!("{elsewhere}/file")).unwrap();
        if found.dev() >= known.dev() || fillers == FILLERS_MAX {
            break found;
        }
        novale(&["umount", elsewhere]).ok();
        mount_filler(&dir);
        fillers += 1;
    };
    shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
    said.read_to_string(&mut text).unwrap();
    shell.wait().unwrap();
    for _ in 0..fillers {
        assert!(Command::new("umount").arg(&dir).status().unwrap().success());
    }
    if is_free && (found.dev(), found.ino()) != (known.dev(), known.ino()) {
        println!("skipped: {name}: another one has it");
    }
    assert_eq!(text, "ready\nthe second's\n");
    assert_eq!(fs::read(format!("{elsewhere}/file")).unwrap(), b"written\n");
    novale(&["umount", elsewhere]).ok();
    novale(&["mount", "-o", "direct", &slot, &dir]).ok();
    assert_eq!(fs::read(scratch.in_dir("file")).unwrap(), b"the first pool's\n");
    is_whole(&scratch, &slot);
}

/// Numbers that are looked for at most.
const FILLERS_MAX: u32 = 64;

fn mount_filler(at: &str) {
    let mounted = Command::new("mount").args(["-t", "tmpfs", "none", at]).status().unwrap();
    assert!(mounted.success());
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
