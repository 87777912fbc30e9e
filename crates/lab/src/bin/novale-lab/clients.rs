//! `novale-lab clients`: processes that share a pool, killed at any time.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use novale_lab::clients::{
    CallsReport, Failed, Hunt, HuntReport, fail_calls, keep_pool, work as work_in,
};
use serde::Serialize;

use super::progress::Progress;
use super::stop::Stop;
use super::{Verdict, at_most, beside, seconds};

/// Kill processes that work on one pool, at any instant, and see what the survivors find.
///
/// Of a violation the pool is kept as it was then, for `novale check`, and what was found, with the
/// seed. The seed draws what each process does, and when it kills itself; at which instant the others
/// are stopped, killed or have the CPU is chance, so the same seed may take another way.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// No death later than this.
    #[arg(long, default_value_t = 60, value_parser = seconds())]
    seconds: u64,
    /// The seed of everything but the instants.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Processes at a time.
    #[arg(long, default_value_t = 3, value_parser = beside())]
    processes: usize,
    /// So many deaths, in any time up to --seconds [default: what the time allows].
    #[arg(long, value_parser = at_most())]
    deaths: Option<u64>,
    /// Let each system call of a client fail in turn instead (by strace).
    #[arg(long)]
    calls: bool,
    /// The program `novale`: its mount is a client too, and may be killed (as root). Some workers use
    /// it, others are served in their own process by `novale run`.
    #[arg(long, value_name = "NOVALE")]
    mount: Option<PathBuf>,
    /// A folder in memory for the pool and the arena.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    memory: PathBuf,
    /// Where what shows a violation goes.
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Summary<R> {
    #[serde(flatten)]
    report: R,
    violations: u32,
    violation: Option<String>,
    /// What is kept of it.
    files: Vec<PathBuf>,
    seconds: f64,
    seed: u64,
    processes: usize,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    // Before there is a folder that must not stay behind.
    let stop = Stop::on_signals()?;
    ensure!(args.out.is_dir(), "{} is no directory", args.out.display());
    if let Some(novale) = &args.mount {
        ensure!(novale.is_file(), "no program {}", novale.display());
        ensure!(rustix::process::geteuid().is_root(), "--mount is for root");
    }
    let folder = tempfile::Builder::new()
        .prefix("novale-lab-")
        .tempdir_in(&args.memory)
        .with_context(|| format!("a folder in {}", args.memory.display()))?;
    let program = std::env::current_exe().context("this program's own path")?;
    let worker: (&Path, &[&str]) = (&program, &["client-worker"]);
    if args.calls {
        return run_calls(args, worker, folder.path(), &stop);
    }
    let hunt = Hunt {
        worker,
        folder: folder.path(),
        novale: args.mount.as_deref(),
        processes: args.processes,
        time: Duration::from_secs(args.seconds),
        deaths_max: args.deaths.unwrap_or(u64::MAX),
        seed: args.seed,
        stop: stop.asked(),
    };
    let progress = Progress::new(Some(args.seconds));
    let start = progress.start();
    let latest = Cell::new(HuntReport::default());
    let result = hunt.run(&|report| {
        latest.set(*report);
        let rate = report.deaths / start.elapsed().as_secs().max(1);
        progress.show(|| format!("{} deaths, {rate} a second", report.deaths));
    });
    progress.end();
    let report = *result.as_ref().unwrap_or(&latest.get());
    let found = conclude(args, (report, result.err()), (folder.path(), start), &stop, tell_hunt)?;
    Ok(found.or_incomplete(args.deaths.is_some_and(|deaths| report.deaths < deaths)))
}

fn run_calls(
    args: &Args,
    worker: (&Path, &[&str]),
    folder: &Path,
    stop: &Stop,
) -> anyhow::Result<Verdict> {
    let progress = Progress::new(None);
    let start = progress.start();
    let latest = Cell::new(CallsReport::default());
    let result = fail_calls(worker, folder, args.seed, stop.asked(), &|report| {
        latest.set(*report);
        progress.show(|| format!("{} system calls failed", report.failed));
    });
    progress.end();
    let report = *result.as_ref().unwrap_or(&latest.get());
    conclude(args, (report, result.err()), (folder, start), stop, tell_calls)
}

/// Says what was done, and found; keeps what shows it.
fn conclude<R: Serialize>(
    args: &Args,
    (report, failed): (R, Option<Failed>),
    (folder, start): (&Path, Instant),
    stop: &Stop,
    tell: fn(&Summary<R>),
) -> anyhow::Result<Verdict> {
    let violation = match failed {
        Some(Failed::Unable(why)) => bail!(why),
        Some(Failed::Violation(what)) => Some(what),
        None => None,
    };
    let files = match &violation {
        Some(what) => keep(args, folder, what)?,
        None => Vec::new(),
    };
    let seconds = start.elapsed().as_secs_f64();
    let violations = u32::from(violation.is_some());
    let (seed, processes) = (args.seed, args.processes);
    let summary = Summary { report, violations, violation, files, seconds, seed, processes };
    if args.json {
        say!("{}", serde_json::to_string(&summary)?);
    } else {
        tell(&summary);
        if let Some(what) = &summary.violation {
            say!("violation: {what}");
        }
        for file in &summary.files {
            say!("kept: {}", file.display());
        }
    }
    Ok(Verdict::of(summary.violation.is_some(), stop))
}

/// Writes down how the violation was found, and copies the pool as it is now.
fn keep(args: &Args, folder: &Path, what: &str) -> anyhow::Result<Vec<PathBuf>> {
    let name = |kind: &str| args.out.join(format!("clients-seed-{}.{kind}", args.seed));
    let (told, pool) = (name("txt"), name("pool"));
    let mount = args.mount.as_deref().map(|path| format!(" --mount {}", path.display()));
    let calls = if args.calls { " --calls" } else { "" };
    let text = format!(
        "novale-lab clients --seed {} --processes {}{calls}{}\n{what}\n",
        args.seed,
        args.processes,
        mount.unwrap_or_default()
    );
    std::fs::write(&told, text).with_context(|| format!("write {}", told.display()))?;
    match keep_pool(folder, &pool) {
        Ok(()) => Ok(vec![told, pool]),
        Err(why) => {
            eprintln!("novale-lab: the pool was not kept in {}: {why}", pool.display());
            Ok(vec![told])
        }
    }
}

fn tell_hunt(summary: &Summary<HuntReport>) {
    let report = &summary.report;
    say!(
        "{} deaths of workers ({} of them served directly) and {} of daemons in {:.0} s, {} of them in an \
         operation ({} found done); {} stopped and continued; {} ended by themselves",
        report.deaths,
        report.direct,
        report.daemons,
        summary.seconds,
        report.in_operation,
        report.found_done,
        report.stopped,
        report.ended
    );
    let found = if summary.violation.is_none() { ", all found" } else { "" };
    say!(
        "{} operations acknowledged by the dead{found}; the pool closed and checked {} times",
        report.operations,
        report.rounds
    );
}

fn tell_calls(summary: &Summary<CallsReport>) {
    let report = &summary.report;
    say!(
        "{} system calls of {} kinds failed in {:.0} s: {} clients ended with a message, {} for want of \
         memory, {} went on",
        report.failed,
        report.kinds,
        summary.seconds,
        report.ended,
        report.without_memory,
        report.went_on
    );
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
