//! Programs that are run directly: a test runs its own program again, under `novale run`, to do one of
//! its tasks.

#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "a call that std has no form of")]

#[path = "../../../cli/tests/support/mod.rs"]
pub(crate) mod support;

pub(crate) mod calls;
pub(crate) mod replicas;
pub(crate) mod signals;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use support::{Scratch, Stopped, facts, novale, program};

/// Where a task finds the mount point.
pub(crate) const PLACE: &str = "NOVALE_TEST_PLACE";

/// A shared mount of a fresh pool.
pub(crate) fn mounted(test: &str) -> Option<(Scratch, String)> {
    let scratch = Scratch::for_mount(test)?;
    let slot = scratch.pool();
    novale(&["mount", "-o", "direct", &slot, &scratch.dir()]).ok();
    Some((scratch, slot))
}

/// The library as it was built last: cargo leaves it in one place for tests, in the other for users.
pub(crate) fn library() -> PathBuf {
    let program = program();
    let folder = program.parent().unwrap();
    let places =
        ["libnovale_preload.so", "deps/libnovale_preload.so"].map(|name| folder.join(name));
    let made = |path: &PathBuf| fs::metadata(path).and_then(|file| file.modified()).ok();
    places.into_iter().filter(|path| path.exists()).max_by_key(made).unwrap()
}

/// A command that has a program run directly.
pub(crate) fn direct(scratch: &Scratch, what: &Path) -> Command {
    let mut command = Command::new(program());
    command.env("NOVALE_PRELOAD", library()).env(PLACE, scratch.dir());
    command.args(["run", "--strict", "--mount", &scratch.dir(), "--"]).arg(what);
    command
}

/// Runs one of the tasks directly. It ends with the thread that starts it: the test may fail before it ends it.
pub(crate) fn task(scratch: &Scratch, name: &str) -> Command {
    let mut command = direct(scratch, &std::env::current_exe().unwrap());
    command.args(["--exact", &format!("tasks::{name}"), "--ignored", "--nocapture"]);
    command.stdin(Stdio::null());
    let ends_too = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
    // SAFETY: it makes one system call.
    unsafe { command.pre_exec(ends_too) };
    command
}

pub(crate) fn succeeds(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Unmounts, as soon as no program that another test starts at this moment has a copy of what is open
/// here, and checks the pool. A namespace that somebody makes meanwhile has a copy of the mount, which
/// goes here at once and there with the namespace: the pool is free by then, and no earlier.
pub(crate) fn is_whole(scratch: &Scratch, slot: &str) {
    let mut said = Vec::new();
    let is_free = support::eventually(|| {
        let gone = novale(&["umount", &scratch.dir()]);
        let is_free = gone.code == 0 || novale(&["check", slot]).code == 0;
        if !said.contains(&gone.err) {
            said.push(gone.err);
        }
        is_free
    });
    assert!(is_free, "{}", said.concat());
    novale(&["check", slot]).ok();
}

/// Runs a task while the daemon is stopped: it succeeds only where nothing needs the kernel's way.
pub(crate) fn runs_without_the_daemon(name: &str) {
    let Some((scratch, slot)) = mounted(name) else { return };
    fs::create_dir(scratch.in_dir("d")).unwrap();
    let daemon = Stopped::daemon_of(&slot);
    let mut running =
        task(&scratch, name).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // One that waits for the daemon would wait for ever.
    let ended = support::eventually(|| running.try_wait().unwrap().is_some());
    if !ended {
        running.kill().unwrap();
    }
    let pid = daemon.0;
    drop(daemon);
    let output = running.wait_with_output().unwrap();
    assert!(ended, "it waits for the daemon, or for itself");
    succeeds(&output);
    let user = || facts(&slot).get("used_by").and_then(serde_json::Value::as_u64);
    assert!(support::eventually(|| user() == Some(pid)));
    is_whole(&scratch, &slot);
}

/// Runs a task with `--map=dax`, and checks the pool after it.
pub(crate) fn maps_own_pages(name: &str) {
    let Some((scratch, slot)) = mounted(name) else { return };
    let mut command = Command::new(program());
    command.env("NOVALE_PRELOAD", library()).env(PLACE, scratch.dir());
    command.args(["run", "--strict", "--map=dax", "--mount", &scratch.dir(), "--"]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("tasks::{name}"), "--ignored", "--nocapture"]);
    succeeds(&command.output().unwrap());
    is_whole(&scratch, &slot);
}

/// Runs a task with the daemon at work, and checks the pool after it.
pub(crate) fn runs_with_the_daemon(name: &str) {
    let Some((scratch, slot)) = mounted(name) else { return };
    succeeds(&task(&scratch, name).output().unwrap());
    is_whole(&scratch, &slot);
}

/// Stops a program while it has a file's lock, which it takes all the time. Returns a process that appends to the
/// file, and waits for that.
pub(crate) fn stop_holding(process: Pid, held: &Path) -> Child {
    stop_while(process, || append(held))
}

/// Stops a program while another process waits for it, which is returned.
pub(crate) fn stop_while(process: Pid, waits: impl Fn() -> Child) -> Child {
    let stop = |_| {
        kill_process(process, Signal::STOP).unwrap();
        let mut waits = waits();
        let mut has_ended = || {
            std::thread::sleep(Duration::from_millis(10));
            waits.try_wait().unwrap().is_some()
        };
        if !(0..20).any(|_| has_ended()) {
            return Some(waits);
        }
        kill_process(process, Signal::CONT).unwrap();
        std::thread::yield_now();
        None
    };
    // It has the lock most of the time.
    (0..1000).find_map(stop).unwrap()
}

/// Appends to a file, in another process.
pub(crate) fn append(file: &Path) -> Child {
    let mut append = Command::new("sh");
    append.args(["-c", "echo text >> \"$0\""]).arg(file).stdin(Stdio::null()).spawn().unwrap()
}

/// Waits for a child of this process; its status.
pub(crate) fn exits_with(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: the status is this function's own.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

/// Blocks all signals in the calling thread, as programs do in threads that are to handle none; returns
/// what was blocked.
pub(crate) fn block_all_signals() -> libc::sigset_t {
    // SAFETY: plain words, which the calls fill in.
    let (mut all, mut before) = unsafe { std::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>() };
    // SAFETY: it lives here.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: both live here.
    let done = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before) };
    assert_eq!(done, 0);
    before
}

/// Whether a thread is in a call of the kernel's.
pub(crate) fn is_in_call(thread: i32, number: i64) -> bool {
    let call = fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).unwrap();
    call.starts_with(&format!("{number} "))
}

#[allow(unused_macros, reason = "each test file uses its own part")]
macro_rules! promises {
    ($($(#[$doc:meta])* $name:ident: $how:ident $task:ident;)*) => {
        $(#[test] fn $name() { $how(stringify!($task)); })*
    };
}
