//! `novale run --report`: a program run as a child, and the table of the calls that it and all that it
//! started have made, direct and through the mount.
//!
//! The programs count in a memory that they open by this process' descriptor; nothing is left of it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context, Result, anyhow};
use novale_fuse::start_thread;
use novale_posix::report::{BYTES, Counted, Event, MAGIC, Report, WORDS, Why};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use zerocopy::IntoBytes;

use crate::base::size::show_size;

/// Names the memory to the programs.
const VARIABLE: &str = "NOVALE_REPORT";
/// Handed on to the program. Those of the terminal, which goes to both, only don't end this one.
const HANDED_ON: [i32; 4] = [SIGHUP, SIGTERM, SIGUSR1, SIGUSR2];
const OF_TERMINAL: [i32; 2] = [SIGINT, SIGQUIT];
/// The table on standard error.
const SHOWN: &str = "-";

/// Runs a command and reports; ends as it does. The inner error is that it could not be started.
pub(crate) fn run(mut command: Command, to: &Path) -> Result<io::Result<ExitCode>> {
    // What can't be written is said before anything is run.
    let file = if to == Path::new(SHOWN) {
        None
    } else {
        Some(File::create(to).with_context(|| to.display().to_string())?)
    };
    let memory = memory().context("memory for the report")?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
    command.env(VARIABLE, path);
    // What is ignored stays so, here and in the program.
    let mut caught = HANDED_ON.into_iter().chain(OF_TERMINAL).collect::<Vec<_>>();
    caught.retain(|signal| !novale_pm::is_ignored(*signal));
    let signals = Signals::new(caught).context("signals")?;
    // What the program has blocked waits there.
    novale_pm::unblock(&HANDED_ON);
    let mut child = match novale_pm::spawn_as_given(&mut command) {
        Ok(child) => child,
        Err(error) => return Ok(Err(error)),
    };
    if let Err(error) = hand_on(signals, child.id()) {
        // No signal would come to it.
        child.kill().and_then(|()| child.wait()).map(drop).unwrap_or_default();
        return Err(error);
    }
    let status = child.wait().context("waiting for the program")?;
    let report = read(&memory).context("reading the report")?;
    match file {
        Some(file) => {
            let facts = ReportFacts::of(&report);
            let written = serde_json::to_writer_pretty(&file, &facts);
            written.with_context(|| to.display().to_string())?;
        }
        None => show(&report),
    }
    Ok(Ok(end_as(status)))
}

/// A report that nobody can make shorter, which would kill who counts in it.
fn memory() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(rustix::fs::memfd_create("novale-report", flags)?);
    file.set_len(BYTES as u64)?;
    file.write_all_at(MAGIC.as_bytes(), 0)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

fn read(memory: &File) -> Result<Report> {
    let mut words = vec![0_u64; WORDS];
    memory.read_exact_at(words.as_mut_bytes(), 0)?;
    Report::read(&words).ok_or_else(|| anyhow!("a program has written over it"))
}

/// Hands signals on to the program until this one ends.
fn hand_on(mut signals: Signals, pid: u32) -> Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("the program's number")?;
    // By the number alone one might come to another process beyond its end.
    let program = rustix::process::pidfd_open(pid, PidfdFlags::empty()).context("pidfd_open")?;
    let hand_on = move || {
        for number in signals.forever().filter(|number| HANDED_ON.contains(number)) {
            if let Some(signal) = Signal::from_named_raw(number) {
                // It may have ended.
                rustix::process::pidfd_send_signal(&program, signal).unwrap_or_default();
            }
        }
    };
    start_thread("novale-signals", hand_on)?;
    Ok(())
}

/// Ends as the program did, also where a signal ended it.
fn end_as(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        // Its core is the one to look at.
        let none = Rlimit { current: Some(0), maximum: Some(0) };
        rustix::process::setrlimit(Resource::Core, none).unwrap_or_default();
        signal_hook::low_level::emulate_default_handler(signal).unwrap_or_default();
    }
    status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// The report, as JSON shows it.
#[derive(Debug, Serialize)]
struct ReportFacts<'a> {
    programs_begun: u64,
    /// They began more confined than `novale run` was, or confined themselves.
    confined: u64,
    moved_to_other_paths: u64,
    direct: Sum,
    mount: Sum,
    calls: Vec<CallFacts<'a>>,
    not_served: Vec<ProgramFacts<'a>>,
}

#[derive(Debug, Serialize)]
struct CallFacts<'a> {
    call: &'a str,
    direct: bool,
    why: Option<&'static str>,
    calls: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct ProgramFacts<'a> {
    program: &'a str,
    starts: u64,
}

#[derive(Debug, Default, Serialize)]
struct Sum {
    calls: u64,
    bytes: u64,
}

impl Sum {
    fn of<'a>(calls: impl Iterator<Item = &'a Counted>) -> Self {
        let add = |sum: Self, counted: &Counted| Self {
            calls: sum.calls + counted.calls,
            bytes: sum.bytes + counted.bytes,
        };
        calls.fold(Self::default(), add)
    }
}

impl<'a> ReportFacts<'a> {
    fn of(report: &'a Report) -> Self {
        let call = |counted: &'a Counted| CallFacts {
            call: &counted.name,
            direct: counted.why.is_none(),
            why: counted.why.map(Why::text),
            calls: counted.calls,
            bytes: counted.bytes,
        };
        let program =
            |(program, starts): &'a (String, u64)| ProgramFacts { program, starts: *starts };
        Self {
            programs_begun: report.count(Event::Began),
            confined: report.count(Event::BeganConfined) + report.count(Event::Confined),
            moved_to_other_paths: report.count(Event::Moved),
            direct: Sum::of(report.calls.iter().filter(|call| call.why.is_none())),
            mount: Sum::of(report.calls.iter().filter(|call| call.why.is_some())),
            calls: report.calls.iter().map(call).collect(),
            not_served: report.programs.iter().map(program).collect(),
        }
    }
}

fn show(report: &Report) {
    let facts = ReportFacts::of(report);
    let (direct, mount) = (&facts.direct, &facts.mount);
    let shown = |sum: &Sum| format!("{} calls, {}", sum.calls, show_size(sum.bytes));
    remark!("novale: direct: {}; through the mount: {}", shown(direct), shown(mount));
    if !facts.calls.is_empty() {
        remark!("{:<16} {:>12} {:>12}  way", "call", "calls", "bytes");
    }
    for call in &facts.calls {
        let bytes = if call.bytes > 0 { show_size(call.bytes) } else { String::new() };
        let way = call.why.map_or_else(|| "direct".to_owned(), |why| format!("mount: {why}"));
        remark!("{:<16} {:>12} {bytes:>12}  {way}", call.call, call.calls);
    }
    if facts.programs_begun + facts.confined == 0 {
        remark!("No program loaded the library: all that was done went through the mount.");
    }
    for program in &facts.not_served {
        let times = if program.starts == 1 { "time" } else { "times" };
        let ProgramFacts { program, starts } = program;
        remark!("{program}, started {starts} {times}, can't load the library: it used the mount");
    }
    let unnamed = report.count(Event::Unnamed);
    if unnamed > 0 {
        remark!("Further programs that can't load the library: {unnamed} starts");
    }
    if facts.confined > 0 {
        remark!("Programs that confined themselves, and used the mount: {}", facts.confined);
    }
    if facts.moved_to_other_paths > 0 {
        let moved = facts.moved_to_other_paths;
        remark!("Processes that changed their root or mounts, and used the mount by path: {moved}");
    }
}
