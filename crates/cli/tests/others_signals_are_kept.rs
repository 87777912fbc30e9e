//! Promise: what who starts `novale` has closed, ignored or blocked keeps it from nothing, and is what `novale run`
//! starts its program with.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests stop at what fails")]

mod support;

use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use support::{Outcome, Scratch, alone, ends, eventually, facts, novale, program, signal_daemon};

const EIO: i32 = 5;

/// What `env` is to do with signals, and the program by it.
fn by_env(signals: &[&str], arguments: &[&str]) -> Outcome {
    let mut command = Command::new("env");
    command.args(signals).arg(program()).args(arguments);
    Outcome::of(&command.output().unwrap())
}

/// Whether `env` of this machine can do that.
fn can_block(test: &str) -> bool {
    let is_able = Command::new("env").args(["--block-signal=BUS", "true"]).status();
    let is_able = is_able.is_ok_and(|status| status.success());
    if !is_able {
        println!("skipped: {test}: env(1) blocks no signals");
    }
    is_able
}

/// Lines of `/proc/self/status` about what is set for signals.
const SHOW: [&str; 4] = ["grep", "-E", "^(ShdPnd|SigBlk|SigIgn)", "/proc/self/status"];

/// A daemon was ended by the first access to a slot that was cut, and could not be told to end.
#[test]
fn a_daemon_started_with_signals_blocked_handles_them() {
    let Some(scratch) = Scratch::for_mount("a_daemon_started_with") else { return };
    if !can_block("a_daemon_started_with_signals_blocked_handles_them") {
        return;
    }
    let _alone = alone();
    let (slot, dir) = (scratch.pool(), scratch.dir());
    let blocked = "--block-signal=BUS,TERM,INT,HUP";
    by_env(&[blocked], &["mount", &slot, &dir]).ok();
    let pid = signal_daemon(&slot, Signal::TERM);
    assert!(ends(pid) && !scratch.is_mounted(), "SIGTERM ends it");
    by_env(&[blocked], &["mount", &slot, &dir]).ok();
    fs::write(scratch.in_dir("file"), vec![7; 1 << 20]).unwrap();
    let pid = facts(&slot)["used_by"].as_u64().unwrap();
    OpenOptions::new().write(true).open(&slot).unwrap().set_len(8192).unwrap();
    for name in ["one", "other"] {
        // ECONNABORTED and ENOTCONN are the kernel's, of a mount whose daemon is gone.
        let error = fs::write(scratch.in_dir(name), vec![7; 1 << 20]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(EIO));
    }
    assert!(fs::exists(format!("/proc/{pid}")).unwrap(), "the daemon lives");
}

/// Who mounts a pool while it has a lock by `flock` of its shell had it until the unmount.
#[test]
fn a_daemon_keeps_nothing_else_open() {
    let Some(scratch) = Scratch::for_mount("a_daemon_keeps_nothing_else_open") else { return };
    let _alone = alone();
    let (slot, lock) = (scratch.pool(), scratch.slot("lock"));
    let mut sh = Command::new("sh");
    sh.args(["-c", "exec 9>\"$1\"; exec \"$0\" mount \"$2\" \"$3\""]).arg(program());
    let mounted = sh.args([&lock, &slot, &scratch.dir()]).status().unwrap();
    assert!(mounted.success());
    let daemon = facts(&slot)["used_by"].as_u64().unwrap();
    let open = fs::read_dir(format!("/proc/{daemon}/fd")).unwrap().map(|fd| fd.unwrap().path());
    let open: Vec<PathBuf> = open.filter_map(|fd| fs::read_link(fd).ok()).collect();
    assert!(open.contains(&PathBuf::from(&slot)), "{open:?}");
    assert!(!open.contains(&PathBuf::from(&lock)), "{open:?}");
}

/// A daemon that is to outlive its terminal.
#[test]
fn a_hangup_that_is_ignored_ends_no_daemon() {
    let Some(scratch) = Scratch::for_mount("a_hangup_that_is_ignored") else { return };
    let _alone = alone();
    let (slot, dir) = (scratch.pool(), scratch.dir());
    by_env(&["--ignore-signal=HUP,TERM"], &["mount", &slot, &dir]).ok();
    let pid = signal_daemon(&slot, Signal::HUP);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
    assert_eq!((caught & 1, caught >> 14 & 1), (0, 1), "SIGTERM is handled, SIGHUP is not");
    signal_daemon(&slot, Signal::TERM);
    assert!(ends(pid));
}

/// The program had the default for signals that were ignored, and `--report` no word of its end.
#[test]
fn a_program_begins_with_the_signals_that_were_set() {
    if !can_block("a_program_begins_with_the_signals_that_were_set") {
        return;
    }
    let ignored = "--ignore-signal=HUP,INT,QUIT,PIPE,TERM,CHLD,USR1";
    let signals = [ignored, "--block-signal=BUS,USR2,CHLD"];
    let without = Command::new("env").args(signals).args(SHOW).output().unwrap();
    let without = Outcome::of(&without).ok();
    let ran =
        |report: &[&str]| by_env(&signals, &[&["run"], report, &["--"], &SHOW[..]].concat()).ok();
    assert_eq!(ran(&[]), without);
    assert_eq!(ran(&["--report"]), without);
    let ended = by_env(&[ignored], &["run", "--report", "sh", "-c", "exit 7"]);
    assert!(ended.code == 7 && ended.err.contains("direct: 0 calls"), "{}", ended.err);
    // What is not ignored is not ignored.
    let plain =
        Outcome::of(&Command::new("env").args(["--default-signal"]).args(SHOW).output().unwrap());
    assert_eq!(
        by_env(&["--default-signal"], &[&["run", "--"], &SHOW[..]].concat()).ok(),
        plain.ok()
    );
}

/// A signal that was blocked at the start did not come to the program that waits for it.
#[test]
fn a_blocked_signal_is_handed_on() {
    if !can_block("a_blocked_signal_is_handed_on") {
        return;
    }
    let mut command = Command::new("env");
    command.arg("--block-signal=TERM").arg(program()).args(["run", "--report", "sleep", "60"]);
    let mut novale = command.stderr(Stdio::null()).spawn().unwrap();
    let pid = novale.id();
    let children = || fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let child = || children().trim().parse::<u32>().ok();
    let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    assert!(eventually(|| child().is_some_and(|pid| name(pid) == "sleep\n")));
    let number = rustix::process::Pid::from_child(&novale);
    rustix::process::kill_process(number, Signal::TERM).unwrap();
    let child = child().unwrap();
    let pending = || {
        let status = fs::read_to_string(format!("/proc/{child}/status")).unwrap();
        status.contains("ShdPnd:\t0000000000004000")
    };
    let came = eventually(pending);
    let number = rustix::process::Pid::from_raw(child.try_into().unwrap()).unwrap();
    rustix::process::kill_process(number, Signal::KILL).unwrap();
    novale.wait().unwrap();
    assert!(came);
}

/// A program found a SIGCHLD of a child that it never had.
#[test]
fn no_child_of_novale_is_told_to_the_program() {
    let Some(scratch) = Scratch::for_mount("no_child_of_novale") else { return };
    if !can_block("no_child_of_novale_is_told_to_the_program") {
        return;
    }
    let _alone = alone();
    let (slot, dir) = (scratch.pool(), scratch.dir());
    novale(&["mount", "-o", "direct", &slot, &dir]).ok();
    let shown = by_env(&["--block-signal=CHLD"], &[&["run", "--"], &SHOW[..]].concat()).ok();
    assert!(shown.contains("ShdPnd:\t0000000000000000\nSigBlk:\t0000000000010000"), "{shown}");
}

/// What a program wrote went to /dev/null, and it said that all was well.
#[test]
fn closed_descriptors_stay_closed() {
    for report in [&[][..], &["--report"]] {
        let ran = |closed: &str| {
            let shown = "/proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2";
            let script = format!("exec \"$0\" run \"$@\" -- readlink {shown} {closed}");
            let mut sh = Command::new("sh");
            sh.args(["-c", &script]).arg(program()).args(report).stdin(Stdio::null());
            Outcome::of(&sh.output().unwrap())
        };
        assert_eq!(ran("").out.lines().count(), 3);
        // One number less each.
        assert_eq!(ran("<&-").out.lines().count(), 2);
        assert_eq!(ran("2>&-").out.lines().count(), 2);
        assert_eq!(ran("<&- 2>&-").out.lines().count(), 1);
        assert_eq!(ran(">&-").code, 1, "readlink can't write");
    }
}
