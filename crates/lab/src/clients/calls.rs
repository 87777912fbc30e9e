//! Every system call that a client makes fails in turn, by strace: the client must end with a message,
//! or go on, and the one who is left finds what it had acknowledged, and a pool in order.

use std::collections::BTreeMap;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use novale_core::Fs;
use rustix::process::Signal;
use serde::Serialize;

use super::child::{said, wait};
use super::failed::Failed;
use super::field::{Count, Field};
use super::judge::{close_and_check, empty_and_remove, judge, make_directory};
use super::worker::SHARED;

/// Operations of a worker.
const OPERATIONS: u64 = 60;
/// Calls of one kind that fail, at most.
const OF_ONE_KIND_MAX: u64 = 24;
/// Calls that can't fail, or without which a process can't start or end.
const SURE: [&str; 6] = ["execve", "exit", "exit_group", "rt_sigreturn", "getpid", "gettid"];

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CallsReport {
    /// Kinds of system calls that the clients make themselves.
    pub kinds: u64,
    /// Calls that failed.
    #[serde(rename = "calls_failed")]
    pub failed: u64,
    /// Clients that ended with a message for it.
    #[serde(rename = "clients_ended")]
    pub ended: u64,
    /// Clients that the language's run-time ended, as there was no memory.
    #[serde(rename = "clients_without_memory")]
    pub without_memory: u64,
    /// Clients that went on.
    #[serde(rename = "clients_went_on")]
    pub went_on: u64,
}

/// Fails the calls of the worker that `(program, arguments)` starts, one by one, in an empty folder
/// on a tmpfs, until all have or `stop` says so; `progress` is told after each.
///
/// # Errors
/// What was found wrong, or that strace can't be used.
pub fn fail_calls(
    worker: (&Path, &[&str]),
    folder: &Path,
    seed: u64,
    stop: &AtomicBool,
    progress: &dyn Fn(&CallsReport),
) -> Result<CallsReport, Failed> {
    let field = Field::at(folder);
    field.has_room()?;
    let fs = field.open(2).map_err(Failed::Unable)?;
    make_directory(&fs, SHARED)?;
    let mut trial = Trial { worker, field: &field, fs: &fs, seed, made: 0 };
    let mut report = CallsReport::default();
    let idle = trial.calls(&["--version"]).map_err(Failed::Unable)?;
    let all = trial.worker_calls()?;
    for (kind, count) in &all {
        // What starting a process takes is not the client's.
        let first = idle.get(kind).copied().unwrap_or(0) + 1;
        report.kinds += u64::from(first <= *count);
        for number in (first..=*count).take(usize::try_from(OF_ONE_KIND_MAX).unwrap_or(0)) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            trial
                .fail(kind, number, &mut report)
                .map_err(|why| format!("{kind} number {number} failed: {why}"))?;
            progress(&report);
        }
    }
    if report.failed == 0 && !stop.load(Ordering::Relaxed) {
        return Err(Failed::Unable("no call of the worker could be made to fail".to_owned()));
    }
    close_and_check(fs, &field, None)?;
    Ok(report)
}

struct Trial<'t> {
    worker: (&'t Path, &'t [&'t str]),
    field: &'t Field,
    fs: &'t Fs,
    seed: u64,
    made: u64,
}

impl Trial<'_> {
    /// A worker's name, its count, and the command that runs it under strace.
    fn prepare(&mut self, strace: &[&str]) -> Result<(String, Count, Command), String> {
        self.made += 1;
        let name = format!("w{}", self.made);
        make_directory(self.fs, name.as_bytes())?;
        let count =
            Count::create(&self.field.folder().join(&name)).map_err(|why| why.to_string())?;
        let mut command = Command::new("strace");
        command
            .args(["-f", "-qq"])
            .args(strace)
            .arg(self.worker.0)
            .args(self.worker.1)
            .arg(self.field.folder())
            .args([name.clone(), self.seed.to_string(), OPERATIONS.to_string(), "0".to_owned()]);
        Ok((name, count, command))
    }

    fn calls(&self, arguments: &[&str]) -> Result<BTreeMap<String, u64>, String> {
        let trace = self.field.folder().join("trace");
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o"]).arg(&trace).arg(self.worker.0).args(arguments);
        traced(&mut command, &trace)
    }

    fn worker_calls(&mut self) -> Result<BTreeMap<String, u64>, String> {
        let trace = self.field.folder().join("trace");
        let (name, _count, mut command) = self.prepare(&["-o", &trace.to_string_lossy()])?;
        let calls = traced(&mut command, &trace)?;
        empty_and_remove(self.fs, &name)?;
        Ok(calls)
    }

    fn fail(&mut self, kind: &str, number: u64, report: &mut CallsReport) -> Result<(), String> {
        let error = if matches!(kind, "mmap" | "brk" | "mremap") { "ENOMEM" } else { "EIO" };
        let trace = format!("trace={kind}");
        let inject = format!("inject={kind}:error={error}:when={number}");
        let (name, count, mut command) =
            self.prepare(&["-o", "/dev/null", "-e", &trace, "-e", &inject])?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|why| format!("strace: {why}"))?;
        let Some(status) = wait(&mut child)? else { return Err("it hangs".to_owned()) };
        let said = said(&mut child);
        report.failed += 1;
        match (status.code(), status.signal()) {
            _ if said.contains("panicked at") => return Err(said),
            (Some(0), _) => report.went_on += 1,
            (Some(_), _) if !said.trim().is_empty() => report.ended += 1,
            (_, Some(signal))
                if signal == Signal::ABORT.as_raw() && said.contains("memory allocation of") =>
            {
                report.without_memory += 1;
            }
            _ => return Err(format!("{status}, {said:?}")),
        }
        let (begun, done) = count.read().map_err(|why| why.to_string())?;
        self.fs.settle_dead().map_err(|why| format!("settling: {why}"))?;
        judge(self.fs, &name, self.seed, (begun, done))?;
        empty_and_remove(self.fs, &name)
    }
}

/// Runs a command under strace and counts its calls by name.
fn traced(command: &mut Command, trace: &Path) -> Result<BTreeMap<String, u64>, String> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status.map_err(|why| format!("strace: {why} (apt-get install strace)"))?;
    if !status.success() {
        return Err(format!("strace ended with {status}"));
    }
    let text = std::fs::read_to_string(trace).map_err(|why| why.to_string())?;
    let mut calls = BTreeMap::new();
    for line in text.lines() {
        // "1234 openat(AT_FDCWD, ..." in each line, or "<... openat resumed>" of one seen before.
        let call = line.split_once(' ').map_or(line, |(_, call)| call.trim_start());
        let Some((name, _)) = call.split_once('(') else { continue };
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if is_name && !SURE.contains(&name) {
            *calls.entry(name.to_owned()).or_insert(0) += 1;
        }
    }
    Ok(calls)
}
