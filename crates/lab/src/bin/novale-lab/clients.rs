//! `novale-lab clients`: processes that share a pool, killed at any time.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use novale_lab::clients::{CallsReport, Hunt, HuntReport, fail_calls, work as work_in};
use serde::Serialize;

use super::stop::Stop;
use super::{Verdict, seconds};

/// Kill processes that work on one pool, at any instant, and see what the survivors find.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// No death later than this.
    #[arg(long, default_value_t = 60, value_parser = seconds())]
    seconds: u64,
    /// The seed of everything but the instants.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Processes at a time.
    #[arg(long, default_value_t = 3)]
    processes: usize,
    /// Deaths at most [default: what the time allows].
    #[arg(long)]
    deaths: Option<u64>,
    /// Let each system call of a client fail in turn instead (by strace).
    #[arg(long)]
    calls: bool,
    /// The program `novale`: its mount is a client too, and may be killed (as root).
    #[arg(long, value_name = "NOVALE")]
    mount: Option<PathBuf>,
    /// A folder in memory for the pool and the arena.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    memory: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Summary {
    deaths: u64,
    deaths_of_daemons: u64,
    deaths_in_operation: u64,
    operations_found_done: u64,
    operations_acknowledged: u64,
    ended: u64,
    stopped_and_continued: u64,
    rounds: u64,
    violations: u32,
    violation: Option<String>,
    seconds: f64,
    seed: u64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    // Before there is a folder that must not stay behind.
    let stop = Stop::on_signals()?;
    let folder = tempfile::Builder::new()
        .prefix("novale-lab-")
        .tempdir_in(&args.memory)
        .with_context(|| format!("a folder in {}", args.memory.display()))?;
    let program = std::env::current_exe().context("this program's own path")?;
    if args.calls {
        return run_calls(args, (&program, &["client-worker"]), folder.path(), &stop);
    }
    let hunt = Hunt {
        worker: (&program, &["client-worker"]),
        folder: folder.path(),
        novale: args.mount.as_deref(),
        processes: args.processes.max(1),
        time: Duration::from_secs(args.seconds),
        deaths_max: args.deaths.unwrap_or(u64::MAX),
        seed: args.seed,
        stop: stop.asked(),
    };
    let style = ProgressStyle::with_template("{elapsed_precise} {bar:30} {msg}")?;
    let bar = ProgressBar::new(args.seconds).with_style(style);
    let start = Instant::now();
    let latest = std::cell::Cell::new(HuntReport::default());
    let result = hunt.run(&|report| {
        latest.set(*report);
        let seconds = start.elapsed().as_secs();
        bar.set_position(seconds);
        let rate = report.deaths / seconds.max(1);
        bar.set_message(format!("{} deaths, {rate} a second", report.deaths));
    });
    bar.finish_and_clear();
    let report = *result.as_ref().unwrap_or(&latest.get());
    let summary = Summary {
        deaths: report.deaths,
        deaths_of_daemons: report.daemons,
        deaths_in_operation: report.in_operation,
        operations_found_done: report.found_done,
        operations_acknowledged: report.operations,
        ended: report.ended,
        stopped_and_continued: report.stopped,
        rounds: report.rounds,
        violations: u32::from(result.is_err()),
        violation: result.err(),
        seconds: start.elapsed().as_secs_f64(),
        seed: args.seed,
    };
    if args.json {
        println!("{}", serde_json::to_string(&summary)?);
    } else {
        tell(&summary);
    }
    Ok(Verdict::of(summary.violation.is_some(), &stop))
}

/// What `--calls --json` prints.
#[derive(Serialize)]
struct CallsSummary {
    kinds: u64,
    calls_failed: u64,
    clients_ended: u64,
    clients_without_memory: u64,
    clients_went_on: u64,
    violations: u32,
    violation: Option<String>,
    seconds: f64,
    seed: u64,
}

fn run_calls(
    args: &Args,
    worker: (&Path, &[&str]),
    folder: &Path,
    stop: &Stop,
) -> anyhow::Result<Verdict> {
    let bar = ProgressBar::new_spinner();
    let start = Instant::now();
    let latest = std::cell::Cell::new(CallsReport::default());
    let result = fail_calls(worker, folder, args.seed, stop.asked(), &|report| {
        latest.set(*report);
        bar.set_message(format!("{} system calls failed", report.failed));
        bar.tick();
    });
    bar.finish_and_clear();
    let report = *result.as_ref().unwrap_or(&latest.get());
    let summary = CallsSummary {
        kinds: report.kinds,
        calls_failed: report.failed,
        clients_ended: report.ended,
        clients_without_memory: report.without_memory,
        clients_went_on: report.went_on,
        violations: u32::from(result.is_err()),
        violation: result.err(),
        seconds: start.elapsed().as_secs_f64(),
        seed: args.seed,
    };
    if args.json {
        println!("{}", serde_json::to_string(&summary)?);
    } else {
        println!(
            "{} system calls of {} kinds failed in {:.0} s: {} clients ended with a message, {} for \
             want of memory, {} went on",
            summary.calls_failed,
            summary.kinds,
            summary.seconds,
            summary.clients_ended,
            summary.clients_without_memory,
            summary.clients_went_on
        );
        if let Some(violation) = &summary.violation {
            println!("violation: {violation}");
        }
    }
    Ok(Verdict::of(summary.violation.is_some(), stop))
}

fn tell(summary: &Summary) {
    println!(
        "{} deaths of workers and {} of daemons in {:.0} s, {} of them in an operation ({} found done); {} stopped and \
         continued; {} ended by themselves",
        summary.deaths,
        summary.deaths_of_daemons,
        summary.seconds,
        summary.deaths_in_operation,
        summary.operations_found_done,
        summary.stopped_and_continued,
        summary.ended
    );
    println!(
        "{} operations acknowledged by the dead, all found; the pool closed and checked {} times",
        summary.operations_acknowledged, summary.rounds
    );
    if let Some(violation) = &summary.violation {
        println!("violation: {violation}");
    }
}

/// A process that works on a pool (started by `clients`).
#[derive(Debug, clap::Args)]
pub(super) struct WorkerArgs {
    folder: PathBuf,
    name: String,
    seed: u64,
    operations: u64,
    die_at: u64,
    #[arg(long)]
    mounted: bool,
}

pub(super) fn work(args: WorkerArgs) -> anyhow::Result<Verdict> {
    // Nobody is left behind, however the program that started this one ends.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .context("ending with the program that started this")?;
    let WorkerArgs { folder, name, seed, operations, die_at, mounted } = args;
    work_in(&novale_lab::clients::WorkerArgs { folder, name, seed, operations, die_at, mounted })
        .map_err(|why| anyhow!(why))?;
    Ok(Verdict::Clean)
}
