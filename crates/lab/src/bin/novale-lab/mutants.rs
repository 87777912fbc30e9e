//! `novale-lab mutants`: each store, write-back and fence taken away in turn.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use novale_lab::mutants::{ALIKE_MAX, Call, Kept, Options, Report, Score, run_until};
use serde::Serialize;

use super::progress::Progress;
use super::stop::Stop;
use super::{Verdict, at_most, beside, seconds, threads};

/// Leave out each store, write-back and fence of the product, and swap neighbours: is it noticed?
///
/// A survivor was tried often enough and changed nothing that anything saw. A mutant that made no
/// difference to the memory at 100 places is the same as the original. One that the time did not
/// decide is undecided, and no more is known of it.
///
/// Exit code: 0 if all are decided and none survived unexplained, 1 if one did or something is wrong,
/// 3 if some are undecided or not all runs or trials were made, 128 and its number for a signal that
/// ended it.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// No run starts later than this; all mutants are settled sooner on a quick machine.
    #[arg(long, default_value_t = 240, value_parser = seconds())]
    seconds: u64,
    /// End behind so many trials, which are the same on any machine if there is one thread; in any time
    /// up to --seconds.
    #[arg(long, value_name = "N", value_parser = at_most())]
    trials: Option<u64>,
    /// Seed of the random runs and images.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs beside each other [default: the CPUs of this machine].
    #[arg(long, value_parser = beside())]
    threads: Option<usize>,
    /// Make those fixed runs alone whose names have this in them ("mapped files"), until the time is up.
    #[arg(long)]
    only: Option<String>,
    /// Keep what is caught in this file, and begin with what it has: a mutant is caught as before where
    /// the functions that it changes and the lab are unchanged.
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Tell how each mutant was caught.
    #[arg(long)]
    all: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Summary {
    #[serde(flatten)]
    score: Score,
    same_as_original: usize,
    looks_for_same: u32,
    pm_mutants: usize,
    pm_caught: usize,
    pm_calls: usize,
    survivors: Vec<String>,
    undecided: Vec<String>,
    calls: usize,
    unreached: Vec<String>,
    violations: usize,
    seconds: f64,
    seed: u64,
    threads: usize,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let options = Options {
        time: Duration::from_secs(args.seconds),
        trials_max: args.trials.unwrap_or(u64::MAX),
        threads: threads(args.threads),
        seed: args.seed,
        only: args.only.clone(),
        kept: kept(args)?,
    };
    let stop = Stop::on_signals()?;
    let progress = Progress::new(Some(args.seconds));
    let start = progress.start();
    let report = run_until(stop.asked(), &options, &|score| progress.show(|| told(score)));
    progress.end();
    if let Some(path) = &args.keep {
        let mut kept = options.kept;
        kept.add(&report);
        kept.write(path)?;
    }
    if args.json {
        say!("{}", serde_json::to_string(&summary(args, &report, start.elapsed()))?);
    } else {
        tell(args, &report, start.elapsed());
    }
    let verdict = Verdict::of(!report.is_clean(), &stop);
    let is_enough = args.trials.is_some_and(|trials| report.score.trials >= trials);
    Ok(verdict.or_incomplete(!is_enough && !report.is_complete()))
}

/// What the file of earlier runs has, where one is named.
fn kept(args: &Args) -> anyhow::Result<Kept> {
    let Some(path) = &args.keep else { return Ok(Kept::default()) };
    Kept::read(path).with_context(|| format!("{} has no kept mutants", path.display()))
}

fn told(score: Score) -> String {
    let Score { mutants, caught, trials, .. } = score;
    format!("{caught} of {mutants} mutants caught in {trials} trials")
}

fn summary(args: &Args, report: &Report, time: Duration) -> Summary {
    let unreached = report.reach.unreached.iter().chain(&report.pm.unreached);
    let unreached = unreached.chain(report.reach.excused.iter().map(|(call, _)| call));
    Summary {
        score: report.score,
        same_as_original: report.original.len(),
        looks_for_same: ALIKE_MAX,
        pm_mutants: report.pm.mutants.len(),
        pm_caught: report.pm.caught(),
        pm_calls: report.pm.calls.len(),
        survivors: report
            .survivors
            .iter()
            .map(ToString::to_string)
            .chain(report.pm.survivors().map(ToString::to_string))
            .collect(),
        undecided: report.undecided.iter().map(ToString::to_string).collect(),
        calls: report.reach.calls.len(),
        unreached: unreached.map(|call| format!("{}:{}", call.file.display(), call.line)).collect(),
        violations: report.broken.len()
            + report.pm.broken.len()
            + report.wrongly_explained().count(),
        seconds: time.as_secs_f64(),
        seed: args.seed,
        threads: threads(args.threads),
    }
}

/// Names the calls that were not reached, a line a file.
pub(super) fn tell_unreached(calls: &[Call]) {
    for calls in calls.chunk_by(|a, b| a.file == b.file) {
        let places = calls.iter().map(|call| format!("{} {}", call.line, call.method));
        let places = places.collect::<Vec<_>>().join(", ");
        let file = calls.first().map(|call| call.file.display());
        say!("not reached in {}: {places}", file.map_or_else(String::new, |file| file.to_string()));
    }
}

fn tell(args: &Args, report: &Report, time: Duration) {
    if args.all {
        for (mutant, fate) in &report.fates {
            let Some([plan, cut, what]) = &fate.caught else { continue };
            let what = what.lines().next().unwrap_or_default();
            say!("caught: {mutant}\n  {plan}: {cut}\n  {what}");
        }
        for (mutant, caught) in &report.pm.mutants {
            if let Some(what) = caught {
                say!("caught: {mutant}\n  {what}");
            }
        }
        for (mutant, why) in &report.explained {
            say!("needless: {mutant}\n  {why}");
        }
    }
    for broken in report.broken.iter().chain(&report.pm.broken) {
        say!("wrong without any mutant: {broken}");
    }
    for (mutant, fate) in report.wrongly_explained() {
        say!("caught, but listed as needless: {mutant}: {:?}", fate.caught);
    }
    tell_unreached(&report.reach.unreached);
    tell_unreached(&report.pm.unreached);
    for (call, why) in &report.reach.excused {
        say!("not reached: {}:{} {}: {why}", call.file.display(), call.line, call.method);
    }
    let tries = |mutant| report.fates.get(mutant).map_or(0, |fate| fate.tries);
    for mutant in &report.survivors {
        say!("survived {} tries: {mutant}", tries(mutant));
    }
    for mutant in report.pm.survivors() {
        say!("survived: {mutant}");
    }
    let alike = |mutant| report.fates.get(mutant).map_or(0, |fate| fate.alike);
    for mutant in &report.undecided {
        let (tries, alike) = (tries(mutant), alike(mutant));
        say!("undecided behind {tries} tries and {alike} without a difference: {mutant}");
    }
    let (score, same) = (report.score, report.original.len());
    let undecided = report.undecided.len();
    let counted = (score.mutants - same - score.needless - undecided).max(1);
    say!(
        "{} of {counted} mutants caught, {} of them in earlier runs, {} % (besides them {} needless, {same} that made no difference \
         at {ALIKE_MAX} places, and {undecided} undecided); {} of {} calls reached; {:.0} s",
        score.caught,
        score.kept,
        score.caught * 100 / counted,
        score.needless,
        report.reach.reached(),
        report.reach.calls.len(),
        time.as_secs_f64(),
    );
    let pm = &report.pm;
    say!(
        "pm: {} of {} mutants caught; {} of {} calls reached",
        pm.caught(),
        pm.mutants.len(),
        pm.calls.len() - pm.unreached.len(),
        pm.calls.len()
    );
    if !report.all_runs {
        say!("not all runs were made in the time");
    }
}
