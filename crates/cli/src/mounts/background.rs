//! Serving from the background: this program once more, as a daemon, and waiting until it is ready.
//!
//! The daemon's standard output is a pipe to here. It says [`READY`] and leaves the terminal, or
//! [`SERVED`] and ends, or says what is wrong on standard error and ends.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use novale_posix::by_number::DIRECTORY;
use rustix::fs::{Mode, OFlags};

use crate::mounts::mount::Request;

/// What the daemon says once the mount can be used.
const READY: &str = "ready";
/// What it says where another one has the pool mounted.
const SERVED: &str = "served";

/// Starts the daemon; returns when the mount can be used, or with the daemon's own exit code; without one when it
/// has ended because another one has the pool mounted.
pub(crate) fn start(request: &Request) -> Result<Option<ExitCode>> {
    // A log that can't be written is said before anything is mounted.
    request.args.log.as_deref().map(open_log).transpose()?;
    let mut child = spawn(request).context("starting the daemon")?;
    let mut said = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut said).context("listening to the daemon")?;
    }
    if said.trim_end() == READY {
        // The kernel knows the directory of numbers by then, and need not lock the root directory for it when a program
        // has its first file handed over: any user may hold that lock, by a listing into memory that does not answer.
        let _known = request.target.join(DIRECTORY).symlink_metadata();
        return Ok(Some(ExitCode::SUCCESS));
    }
    let status = child.wait().context("waiting for the daemon")?;
    if said.trim_end() == SERVED && status.success() {
        return Ok(None);
    }
    failed(status).map(Some)
}

fn spawn(request: &Request) -> std::io::Result<Child> {
    let args = &request.args;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("novale").args(["mount", "--daemon"]);
    if let Some(form) = args.form.and_then(|form| form.to_possible_value()) {
        command.arg("--form").arg(form.get_name());
    }
    if let Some(method) = args.method {
        command.arg("--method").arg(method.policy().name());
    }
    if let Some(placement) = args.placement {
        command.arg("--placement").arg(placement.placement().name());
    }
    if let Some(slot) = args.lawn_slot {
        command.arg("--lawn-slot").arg(slot.bytes().to_string());
    }
    if let Some(mode) = args.mode {
        command.arg("--mode").arg(mode.mode().name());
    }
    if let Some(bytes) = args.buffer {
        command.arg("--buffer").arg(bytes.to_string());
    }
    for (key, value) in args.buffer_rules.words().iter().filter_map(|word| word.split_once('=')) {
        command.arg(format!("--{}", key.replace('_', "-"))).arg(value);
    }
    if let Some(device) = args.device {
        command.arg("--device").arg(device.spelled());
    }
    if let Some(seconds) = args.grace {
        command.arg("--grace").arg(seconds.to_string());
    }
    if !request.words.mount.is_empty() {
        command.arg("-o").arg(&request.words.mount);
    }
    if let Some(threads) = args.threads {
        command.arg("--threads").arg(threads.to_string());
    }
    if args.populate {
        command.arg("--populate");
    }
    if args.direct {
        command.arg("--direct");
    }
    if args.quiet {
        command.arg("--quiet");
    }
    if let Some(map) = args.map.and_then(|map| map.to_possible_value()) {
        command.arg("--map").arg(map.get_name());
    }
    if let Some(bytes) = args.arena_max {
        command.arg("--arena-max").arg(bytes.to_string());
    }
    if let Some(bytes) = args.index_memory {
        command.arg("--index-memory").arg(bytes.to_string());
    }
    if let Some(bytes) = args.pace {
        command.arg("--pace").arg(bytes.to_string());
    }
    if let Some(seconds) = args.cold_after {
        command.arg("--cold-after").arg(seconds.to_string());
    }
    if let Some(log) = &args.log {
        command.arg("--log").arg(log);
    }
    command.arg("--").args(&request.slots).arg(&request.target);
    novale_pm::keep_descriptors();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
}

/// The daemon ended before it was ready; it has said why, unless it was killed.
fn failed(status: ExitStatus) -> Result<ExitCode> {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(0), _) => bail!("the daemon ended before the mount was ready"),
        (Some(code), _) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(1))),
        (None, signal) => bail!("the daemon was killed by signal {}", signal.unwrap_or_default()),
    }
}

/// In the daemon: says that the mount can be used, and leaves the terminal behind.
pub(crate) fn ready(log: Option<&Path>) -> Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .context("/dev/null")?;
    // Refused to the leader of a process group, which only one started by hand is: it stays.
    rustix::process::setsid().ok();
    std::env::set_current_dir("/").context("/")?;
    let errors = log.map(open_log).transpose()?;
    answer(READY)?;
    rustix::stdio::dup2_stdout(&null).context("standard output")?;
    match errors {
        Some(log) => rustix::stdio::dup2_stderr(&log).context("the log")?,
        None => rustix::stdio::dup2_stderr(&null).context("standard error")?,
    }
    Ok(())
}

/// In the daemon: says that another one has the pool mounted.
pub(crate) fn served() -> Result<()> {
    answer(SERVED)
}

/// In the daemon: says that the mount can be used, which is another one's.
pub(crate) fn shown() -> Result<()> {
    answer(READY)
}

fn answer(word: &str) -> Result<()> {
    let mut output = std::io::stdout();
    writeln!(output, "{word}").and_then(|()| output.flush()).context("answering")
}

fn open_log(path: &Path) -> Result<std::fs::File> {
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    file.with_context(|| format!("the log {}", path.display()))
}
