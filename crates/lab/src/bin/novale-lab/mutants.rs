//! `novale-lab mutants`: each store, write-back and fence taken away in turn.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use novale_lab::mutants::{Options, Report, Score, run as try_mutants};
use serde::Serialize;

use super::{Verdict, seconds};

/// Leave out each store, write-back and fence of the product, and swap neighbours: is it noticed?
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// No run starts later than this; all mutants are settled sooner on a quick machine.
    #[arg(long, default_value_t = 240, value_parser = seconds())]
    seconds: u64,
    /// Seed of the random runs and images.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs beside each other [default: the CPUs of this machine].
    #[arg(long)]
    threads: Option<usize>,
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
    mutants: usize,
    caught: usize,
    needless: usize,
    same_as_original: usize,
    survivors: Vec<String>,
    undecided: Vec<String>,
    calls: usize,
    unreached: Vec<String>,
    violations: usize,
    trials: u64,
    seconds: f64,
    seed: u64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let threads = args.threads.or_else(|| Some(std::thread::available_parallelism().ok()?.get()));
    let options = Options {
        time: Duration::from_secs(args.seconds),
        threads: threads.unwrap_or(1),
        seed: args.seed,
    };
    let (start, bar) = (Instant::now(), ProgressBar::new(args.seconds));
    if let Ok(style) = ProgressStyle::with_template("{elapsed} {wide_bar} {msg}") {
        bar.set_style(style);
    }
    let report = try_mutants(&options, &|score| show(&bar, start, score));
    bar.finish_and_clear();
    if args.json {
        println!("{}", serde_json::to_string(&summary(args, &report, start.elapsed()))?);
    } else {
        tell(args, &report, start.elapsed());
    }
    Ok(if report.is_clean() { Verdict::Clean } else { Verdict::Violated })
}

fn show(bar: &ProgressBar, start: Instant, score: Score) {
    bar.set_position(start.elapsed().as_secs());
    let Score { mutants, caught, trials, .. } = score;
    bar.set_message(format!("{caught} of {mutants} mutants caught in {trials} trials"));
}

fn summary(args: &Args, report: &Report, time: Duration) -> Summary {
    let score = report.score;
    let unreached = report.unreached.iter().chain(report.excused.iter().map(|(call, _)| call));
    Summary {
        mutants: score.mutants,
        caught: score.caught,
        needless: score.needless,
        same_as_original: report.original.len(),
        survivors: report.survivors.iter().map(ToString::to_string).collect(),
        undecided: report.undecided.iter().map(ToString::to_string).collect(),
        calls: report.calls.len(),
        unreached: unreached.map(|call| format!("{}:{}", call.file.display(), call.line)).collect(),
        violations: report.broken.len() + report.wrongly_explained().count(),
        trials: score.trials,
        seconds: time.as_secs_f64(),
        seed: args.seed,
    }
}

fn tell(args: &Args, report: &Report, time: Duration) {
    if args.all {
        for (mutant, fate) in &report.fates {
            let Some([plan, cut, what]) = &fate.caught else { continue };
            let what = what.lines().next().unwrap_or_default();
            println!("caught: {mutant}\n  {plan}: {cut}\n  {what}");
        }
        for (mutant, why) in &report.explained {
            println!("needless: {mutant}\n  {why}");
        }
    }
    for broken in &report.broken {
        println!("wrong without any mutant: {broken}");
    }
    for (mutant, fate) in report.wrongly_explained() {
        println!("caught, but listed as needless: {mutant}: {:?}", fate.caught);
    }
    for call in &report.unreached {
        println!("not reached: {}:{} {}", call.file.display(), call.line, call.method);
    }
    for (call, why) in &report.excused {
        println!("not reached: {}:{} {}: {why}", call.file.display(), call.line, call.method);
    }
    let tries = |mutant| report.fates.get(mutant).map_or(0, |fate| fate.tries);
    for mutant in &report.survivors {
        println!("survived {} tries: {mutant}", tries(mutant));
    }
    for mutant in &report.undecided {
        println!("not caught in {} tries, when the time was up: {mutant}", tries(mutant));
    }
    let (score, same) = (report.score, report.original.len());
    let counted = (score.mutants - same - score.needless).max(1);
    let reached = report.calls.len() - report.unreached.len() - report.excused.len();
    println!(
        "{} of {counted} mutants caught, {} % ({} needless and {same} the same as the original besides); \
         {reached} of {} calls reached; {:.0} s",
        score.caught,
        score.caught * 100 / counted,
        score.needless,
        report.calls.len(),
        time.as_secs_f64(),
    );
}
