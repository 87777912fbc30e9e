//! `novale-lab run`: power cuts until the time is up.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use novale_lab::campaign::{Campaign, Report, Violation, WORKLOADS, Workload, print_replay};
use serde::Serialize;

use super::Verdict;

/// Cut the power in sequences of operations and see what is recovered.
///
/// Each violation leaves a file for `replay`, its sequence made short.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// No sequence starts later than this.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The first seed; the others follow. The same seeds make the same sequences.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A workload as `list` names it; may be given several times [default: all].
    #[arg(long, value_name = "NAME")]
    workload: Vec<String>,
    /// Sequences beside each other [default: the CPUs of this machine].
    #[arg(long)]
    threads: Option<usize>,
    /// Where files for `replay` go.
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let threads = args.threads.or_else(|| Some(std::thread::available_parallelism().ok()?.get()));
    let campaign = Campaign {
        workloads: chosen(&args.workload)?,
        seed: args.seed,
        time: Duration::from_secs(args.seconds),
        threads: threads.unwrap_or(1),
    };
    let (start, bar) = (Instant::now(), bar(args.seconds));
    let report = campaign.run(&|report| show(&bar, start, report));
    bar.finish_and_clear();
    let files: Vec<PathBuf> = report
        .violations
        .iter()
        .enumerate()
        .map(|(number, violation)| save(&args.out, number, violation))
        .collect::<anyhow::Result<_>>()?;
    tell(args, &report, start.elapsed(), &files)?;
    Ok(if report.violations.is_empty() { Verdict::Clean } else { Verdict::Violated })
}

fn chosen(names: &[String]) -> anyhow::Result<Vec<Workload>> {
    if names.is_empty() {
        return Ok(WORKLOADS.to_vec());
    }
    let find = |name: &String| {
        let found = WORKLOADS.iter().find(|workload| workload.name == *name);
        found
            .copied()
            .with_context(|| format!("no workload `{name}`; `novale-lab list` names them"))
    };
    names.iter().map(find).collect()
}

/// What `--json` prints.
#[derive(Serialize)]
struct Summary {
    crash_states: u64,
    violations: usize,
    seconds: f64,
    seed: u64,
    sequences: u64,
    states_per_second: f64,
    replay_files: Vec<PathBuf>,
}

fn tell(args: &Args, report: &Report, time: Duration, files: &[PathBuf]) -> anyhow::Result<()> {
    let rate = rate(report, time);
    if args.json {
        let summary = Summary {
            crash_states: report.crash_states,
            violations: report.violations.len(),
            seconds: time.as_secs_f64(),
            seed: args.seed,
            sequences: report.sequences,
            states_per_second: rate,
            replay_files: files.to_vec(),
        };
        println!("{}", serde_json::to_string(&summary)?);
        return Ok(());
    }
    for (violation, file) in report.violations.iter().zip(files) {
        println!("{}: {}\nin {}\n", violation.workload, violation.failure, file.display());
    }
    let (images, found) = (report.crash_states, report.violations.len());
    println!("{images} crash states in {} sequences, {rate:.0} a second", report.sequences);
    println!("{found} violations");
    Ok(())
}

fn save(folder: &Path, number: usize, violation: &Violation) -> anyhow::Result<PathBuf> {
    let name = format!("{}-{}-{number}.txt", violation.workload, violation.case.options.seed);
    let path = folder.join(name);
    let text = print_replay(&violation.case, &violation.failure.to_string());
    std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

fn bar(seconds: u64) -> ProgressBar {
    let bar = ProgressBar::new(seconds);
    if let Ok(style) = ProgressStyle::with_template("{elapsed} {wide_bar} {msg}") {
        bar.set_style(style);
    }
    bar
}

fn show(bar: &ProgressBar, start: Instant, report: &Report) {
    bar.set_position(start.elapsed().as_secs());
    let (images, found) = (report.crash_states, report.violations.len());
    let rate = rate(report, start.elapsed());
    bar.set_message(format!("{images} crash states, {rate:.0} a second, {found} violations"));
}

/// Crash states a second.
#[expect(clippy::cast_precision_loss, reason = "shown to be read, and far below 2^52")]
fn rate(report: &Report, time: Duration) -> f64 {
    report.crash_states as f64 / time.as_secs_f64().max(0.001)
}
