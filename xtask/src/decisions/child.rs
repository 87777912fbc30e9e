//! A killer's process, within limits: of CPU time, of memory, and it may not stand still.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitId, WaitIdOptions, kill_process_group,
    pidfd_open, prlimit, waitid,
};

/// Memory that a process may write to and share with none.
const MEMORY_BYTES: u64 = 3 << 30;
/// How often a process is looked at.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };
/// Looks without CPU time and without a process that wants any, in a row, that are a hang.
const STILL: u32 = 30;
/// However busy the machine is.
const WALL: Duration = Duration::from_secs(1200);

/// How a process ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum End {
    Passed,
    /// It says that something is wrong, or died of it.
    Failed(String),
    /// It took more CPU time than it may, or stood still.
    Hung(&'static str),
    /// The machine did not come to it.
    Undecided,
}

/// Runs `command` in `scratch`, for at most so much CPU time; says how much it took.
pub(super) fn run(
    command: &mut Command,
    scratch: &Path,
    cpu_max: Duration,
) -> anyhow::Result<(End, Duration)> {
    if scratch.exists() {
        std::fs::remove_dir_all(scratch).context("clear a scratch folder")?;
    }
    std::fs::create_dir_all(scratch)?;
    let output = File::create(scratch.join("output"))?;
    command.env("TMPDIR", scratch).env("RUST_BACKTRACE", "0").stdin(Stdio::null());
    command.stdout(output.try_clone()?).stderr(output).process_group(0);
    let mut child = command.spawn().with_context(|| format!("start {command:?}"))?;
    let pid = Pid::from_child(&child);
    let limit = |amount| Rlimit { current: Some(amount), maximum: Some(amount) };
    // A process that has ended already needs none.
    let _ended = prlimit(Some(pid), Resource::Data, limit(MEMORY_BYTES));
    // For those that outlive this program.
    let _ended = prlimit(Some(pid), Resource::Cpu, limit(cpu_max.as_secs() + 60));
    let (hung, cpu) = watch(&child, pid, cpu_max)?;
    // What it started ends with it.
    let _none_left = kill_process_group(pid, Signal::KILL);
    let status = child.wait()?;
    Ok((hung.unwrap_or_else(|| ended(status)), cpu))
}

fn ended(status: ExitStatus) -> End {
    match (status.success(), status.signal()) {
        (true, _) => End::Passed,
        (_, Some(signal)) => End::Failed(format!("signal {signal}")),
        _ => End::Failed("failed".to_owned()),
    }
}

/// Waits for the end, or for a limit.
fn watch(child: &Child, pid: Pid, cpu_max: Duration) -> anyhow::Result<(Option<End>, Duration)> {
    let fd = pidfd_open(pid, PidfdFlags::empty()).context("watch a process")?;
    let (start, mut last, mut still) = (Instant::now(), Duration::ZERO, 0);
    loop {
        let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&LOOK))?;
        let (cpu, wants) = used(child.id());
        if ready > 0 {
            waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
            return Ok((None, cpu));
        }
        still = if wants || cpu != last { 0 } else { still + 1 };
        last = cpu;
        let end = match () {
            () if cpu > cpu_max => End::Hung("took too much CPU time"),
            () if still >= STILL => End::Hung("stood still"),
            () if start.elapsed() > WALL => End::Undecided,
            () => continue,
        };
        return Ok((Some(end), cpu));
    }
}

/// CPU time of a group's processes and of those that they waited for, and whether one of them runs or
/// would like to.
fn used(group: u32) -> (Duration, bool) {
    let (mut ticks, mut wants) = (0, false);
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let name = process.file_name();
        if !name.as_encoded_bytes().first().is_some_and(u8::is_ascii_digit) {
            continue;
        }
        let Ok(stat) = std::fs::read_to_string(process.path().join("stat")) else { continue };
        // After the name: state, parent, group; the times are the 12th to the 15th.
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        if number(2) == Some(u64::from(group)) {
            ticks += (11..15).filter_map(number).sum::<u64>();
            wants |= matches!(fields.first(), Some(&("R" | "D")));
        }
    }
    (Duration::from_millis(ticks * 10), wants)
}
