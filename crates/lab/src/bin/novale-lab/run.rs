//! `novale-lab run`: power cuts until the time is up.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use novale_core::seeded::switch;
use novale_lab::bugs::named;
use novale_lab::campaign::{
    Campaign, Rates, Report, Turn, Violation, WORKLOADS, Workload, print_replay,
};
use novale_lab::crash::CrashSummary;
use novale_lab::mutants::{Call, Reach};
use serde::Serialize;

use super::mutants;
use super::progress::Progress;
use super::stop::Stop;
use super::{Verdict, at_most, beside, seconds, threads};

/// Cut the power in sequences of operations and see what is recovered.
///
/// Each violation leaves a file for `replay`, its sequence made short.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// No sequence starts later than this.
    #[arg(long, default_value_t = 60, value_parser = seconds())]
    seconds: u64,
    /// So many sequences of each workload, in any time up to --seconds: the same work on any machine.
    #[arg(long, value_name = "N", value_parser = at_most())]
    sequences: Option<u64>,
    /// The first seed; the others follow. The same seeds make the same sequences.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A workload as `list` names it; may be given several times [default: all].
    #[arg(long, value_name = "NAME")]
    workload: Vec<String>,
    /// Sequences beside each other [default: the CPUs of this machine].
    #[arg(long, value_parser = beside())]
    threads: Option<usize>,
    /// Use and empty one in so many recovered pools, 0 for none [default: as the workload says].
    #[arg(long, value_name = "N")]
    used_one_in: Option<u64>,
    /// Cut one in so many recoveries too, 0 for none [default: as the workload says].
    #[arg(long, value_name = "N")]
    nested_one_in: Option<u64>,
    /// End when so many violations are found.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = at_most())]
    violations: u64,
    /// Switch a seeded bug on, as `bugs` names it: the exit code is 1 if it is found.
    #[arg(long, value_name = "NAME")]
    bug: Option<String>,
    /// Where files for `replay` go.
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let campaign = Campaign {
        workloads: chosen(&args.workload)?,
        seed: args.seed,
        sequences: args.sequences,
        time: Duration::from_secs(args.seconds),
        threads: threads(args.threads),
        violations_max: usize::try_from(args.violations).unwrap_or(usize::MAX),
        rates: Rates { used_one_in: args.used_one_in, nested_one_in: args.nested_one_in },
    };
    switch_bug(args.bug.as_deref())?;
    // Before the run: what it finds must not be lost at its end.
    ensure!(args.out.is_dir(), "{} is no directory", args.out.display());
    tempfile::tempfile_in(&args.out).with_context(|| format!("write to {}", args.out.display()))?;
    let stop = Stop::on_signals()?;
    let (progress, files) = (Progress::new(Some(args.seconds)), Mutex::new(Vec::new()));
    let start = progress.start();
    let report = campaign.run_until(stop.asked(), &|report| {
        progress.show(|| told(start, report));
        // At once: what is found is kept even if the run is ended.
        let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, violation) in report.violations.iter().enumerate().skip(files.len()) {
            files.push(save(&args.out, number, violation));
        }
    });
    progress.end();
    let files = files.into_inner().unwrap_or_else(PoisonError::into_inner);
    let passed = report.passed.iter().copied();
    let reach = Reach::of(passed).map_err(|why| eprintln!("novale-lab: core's source: {why}"));
    let reach = reach.unwrap_or_default();
    let summary = Summary::of(&campaign, (&report, &reach), start.elapsed(), files);
    if args.json {
        say!("{}", serde_json::to_string(&summary)?);
    } else {
        tell((&report, &reach), &summary);
    }
    let is_open = report.incomplete().next().is_some();
    Ok(Verdict::of(!report.is_clean(), &stop).or_incomplete(is_open))
}

pub(super) fn chosen(names: &[String]) -> anyhow::Result<Vec<Workload>> {
    if names.is_empty() {
        return Ok(WORKLOADS.to_vec());
    }
    let find = |name: &String| {
        Workload::named(name)
            .with_context(|| format!("no workload `{name}`; `novale-lab list` names them"))
    };
    names.iter().map(find).collect()
}

/// Switches a seeded bug on for as long as this process lasts.
pub(super) fn switch_bug(name: Option<&str>) -> anyhow::Result<()> {
    if let Some(name) = name {
        let seeded = named(name).with_context(|| format!("no bug `{name}`"))?;
        switch(Some(seeded.bug));
    }
    Ok(())
}

/// What `--json` prints.
#[derive(Serialize)]
struct Summary {
    crash_states: u64,
    violations: usize,
    seconds: f64,
    seed: u64,
    threads: usize,
    states_per_second_per_thread: f64,
    states_by_bytes: u64,
    sequences: u64,
    #[serde(flatten)]
    seen: CrashSummary,
    places: usize,
    /// Stores, write-backs and fences in core's source, those that were passed, and the others.
    points: usize,
    points_passed: usize,
    points_not_passed: Vec<String>,
    branches: usize,
    branches_run: usize,
    workloads: Vec<Turn>,
    /// Workloads that were to see a collector at work and saw none.
    idle: Vec<&'static str>,
    replay_files: Vec<Saved>,
}

/// Where a violation's file for `replay` is; its text, where it could not be written.
#[derive(Serialize)]
#[serde(untagged)]
enum Saved {
    At(PathBuf),
    Not { error: String, replay: String },
}

impl Summary {
    fn of(
        campaign: &Campaign,
        (report, reach): (&Report, &Reach),
        time: Duration,
        files: Vec<Saved>,
    ) -> Self {
        let call = |call: &Call| format!("{}:{}", call.file.display(), call.line);
        let mut branches_run = 0;
        novale_edges::take(&mut |_, _| branches_run += 1);
        let threads = u32::try_from(campaign.threads).unwrap_or(1);
        Self {
            crash_states: report.crash_states,
            violations: report.violations.len(),
            seconds: time.as_secs_f64(),
            seed: campaign.seed,
            threads: campaign.threads,
            states_per_second_per_thread: rate(report, time) / f64::from(threads),
            states_by_bytes: report.states_by_bytes,
            sequences: report.sequences,
            seen: report.summary,
            places: report.places,
            points: reach.calls.len(),
            points_passed: reach.reached(),
            points_not_passed: reach.unreached.iter().map(call).collect(),
            branches: novale_edges::count(),
            branches_run,
            workloads: report.turns.clone(),
            idle: report.idle().map(|turn| turn.name).collect(),
            replay_files: files,
        }
    }
}

fn tell((report, reach): (&Report, &Reach), summary: &Summary) {
    for (violation, file) in report.violations.iter().zip(&summary.replay_files) {
        say!("{}: {}", violation.workload, violation.failure);
        match file {
            Saved::At(path) => say!("in {}\n", path.display()),
            Saved::Not { error, replay } => say!("not saved, {error}:\n{replay}"),
        }
    }
    for turn in &summary.workloads {
        let (name, cases, seconds) = (turn.name, turn.cases, turn.time.as_secs());
        let share = |in_all: u64| format!(" of {in_all} ({} %)", cases * 100 / in_all.max(1));
        let in_all = turn.cases_in_all.map(share).unwrap_or_default();
        say!("{name:14} {cases}{in_all} sequences, {seconds} s");
    }
    for turn in report.incomplete() {
        let wanted = turn.wanted.unwrap_or_default();
        say!("incomplete: {} of {wanted} sequences of {}", turn.cases, turn.name);
    }
    mutants::tell_unreached(&reach.unreached);
    say!(
        "{} of {} stores, write-backs and fences of core's source were passed, in {} pairs",
        summary.points_passed,
        summary.points,
        summary.places
    );
    if summary.branches > 0 {
        say!("{} of {} branches ran", summary.branches_run, summary.branches);
    }
    for turn in report.idle() {
        say!("{}: no collector ran in {} sequences", turn.name, turn.cases);
    }
    say!(
        "{} crash states as recovery sees them, {:.0} a second a thread ({} by their bytes); {} \
         recoveries were cut",
        summary.crash_states,
        summary.states_per_second_per_thread,
        summary.states_by_bytes,
        summary.seen.recoveries_cut
    );
    let seen = &summary.seen;
    if seen.together > 0 {
        say!(
            "{} operations were in flight together; {} clients died among them, {} of these were \
             settled for by one in flight, and {} died as they settled",
            seen.together,
            seen.deaths,
            seen.settled_in_flight,
            seen.settlers_died
        );
    }
    say!("{} violations", summary.violations);
}

fn save(folder: &Path, number: usize, violation: &Violation) -> Saved {
    let name = format!("{}-{}-{number}.txt", violation.workload, violation.case.options.seed);
    let path = folder.join(name);
    let text = print_replay(&violation.case, &violation.failure.to_string());
    match std::fs::write(&path, &text) {
        Ok(()) => Saved::At(path),
        Err(why) => Saved::Not { error: format!("write {}: {why}", path.display()), replay: text },
    }
}

fn told(start: Instant, report: &Report) -> String {
    let (images, found) = (report.crash_states, report.violations.len());
    let rate = rate(report, start.elapsed());
    format!("{images} crash states, {rate:.0} a second, {found} violations")
}

/// Crash states a second.
#[expect(clippy::cast_precision_loss, reason = "shown to be read, and far below 2^52")]
fn rate(report: &Report, time: Duration) -> f64 {
    report.crash_states as f64 / time.as_secs_f64().max(0.001)
}
