//! `novale-lab bugs`: known bugs, switched on one by one.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use novale_lab::bugs::{BUGS, Fate, SeededBug, Tried, find, named, run_canary, run_one};
use novale_lab::campaign::{Campaign, Rates};
use serde::Serialize;

use super::progress::Progress;
use super::stop::Stop;
use super::{Verdict, beside, seconds};

/// Switch known bugs on, one by one: is each found by the sequence kept for it?
///
/// A signal ends it after the bug that is being tried, with a report of those that were.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A bug by its name; may be given several times [default: all].
    #[arg(long, value_name = "NAME")]
    bug: Vec<String>,
    /// Run the sequence of this file instead of those that are kept.
    #[arg(long)]
    file: Option<PathBuf>,
    /// Look for new sequences instead, so long for each bug.
    #[arg(long, value_name = "SECONDS", value_parser = seconds(), conflicts_with_all = ["canary", "file"])]
    find: Option<u64>,
    /// Look in this workload alone; may be given several times.
    #[arg(long, value_name = "NAME")]
    workload: Vec<String>,
    /// Where new sequences go.
    #[arg(long, value_name = "DIR", default_value = "crates/lab/bugs")]
    out: PathBuf,
    /// Sequences beside each other when looking for new ones.
    #[arg(long, default_value_t = 2, value_parser = beside())]
    threads: usize,
    /// Seed of the search.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run a sequence with no bug switched on: it must be missed, and the command fail.
    #[arg(long)]
    canary: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Summary {
    bugs: Vec<BugSummary>,
    caught: usize,
    /// A signal came before.
    untried: usize,
    /// Crash states of the sequences without their bugs.
    crash_states: u64,
    /// Bugs that were missed, and sequences that fail without theirs.
    violations: usize,
    seconds: f64,
    /// The sequences have seeds of their own.
    seed: u64,
}

#[derive(Serialize)]
struct BugSummary {
    name: &'static str,
    from: &'static str,
    caught: bool,
    found: String,
    seconds: f64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let mut bugs: Vec<SeededBug> = BUGS.to_vec();
    if !args.bug.is_empty() {
        let find = |name: &String| named(name).with_context(|| format!("no bug `{name}`"));
        bugs = args.bug.iter().map(find).collect::<anyhow::Result<_>>()?;
    }
    let stop = Stop::on_signals()?;
    if let Some(seconds) = args.find {
        return find_all(args, &bugs, Duration::from_secs(seconds), &stop);
    }
    if args.canary {
        bugs.truncate(1);
    }
    let read =
        |file: &PathBuf| std::fs::read_to_string(file).with_context(|| file.display().to_string());
    let file = args.file.as_ref().map(read).transpose()?;
    let run = if args.canary { run_canary } else { run_one };
    let (mut all, mut crash_states) = (Vec::new(), 0);
    let progress = Progress::new(None);
    for bug in bugs.iter().take_while(|_| stop.code().is_none()) {
        let tried = run(bug, file.as_deref().unwrap_or(bug.sequence));
        if args.json {
            progress.show(|| format!("{} of {} bugs tried", all.len() + 1, bugs.len()));
        } else {
            tell(bug, &tried);
        }
        crash_states += tried.crash_states;
        all.push(summary(bug, &tried));
    }
    let caught = all.iter().filter(|bug| bug.caught).count();
    progress.end();
    let (violations, seed) = (all.len() - caught, args.seed);
    let seconds = all.iter().map(|bug| bug.seconds).sum();
    let verdict = Verdict::of(violations > 0, &stop);
    let untried = bugs.len() - all.len();
    if args.json {
        let bugs = all;
        let summary = Summary { bugs, caught, untried, crash_states, violations, seconds, seed };
        say!("{}", serde_json::to_string(&summary)?);
    } else {
        say!("{caught} of {} seeded bugs caught, {seconds:.1} s", all.len());
        if untried > 0 {
            say!("{untried} more were not tried");
        }
    }
    Ok(verdict)
}

fn summary(bug: &SeededBug, tried: &Tried) -> BugSummary {
    let found = match &tried.fate {
        Fate::Caught(what) | Fate::Broken(what) => first_line(what).to_owned(),
        Fate::Missed => String::new(),
    };
    BugSummary {
        name: bug.name,
        from: bug.from,
        caught: matches!(tried.fate, Fate::Caught(_)),
        found,
        seconds: tried.time.as_secs_f64(),
    }
}

fn tell(bug: &SeededBug, tried: &Tried) {
    let (name, from, what) = (bug.name, bug.from, bug.what);
    let seconds = tried.time.as_secs_f64();
    match &tried.fate {
        Fate::Caught(found) => {
            say!("caught {name}, {seconds:.1} s ({from}: {what})\n  {}", first_line(found));
        }
        Fate::Missed => say!("MISSED {name} ({from}: {what})"),
        Fate::Broken(why) => say!("BROKEN {name}: without the bug: {why}"),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn find_all(
    args: &Args,
    bugs: &[SeededBug],
    time: Duration,
    stop: &Stop,
) -> anyhow::Result<Verdict> {
    let campaign = Campaign {
        workloads: super::run::chosen(&args.workload)?,
        seed: args.seed,
        sequences: None,
        time,
        threads: args.threads,
        rates: Rates::default(),
        violations_max: 1,
    };
    let mut missed = 0;
    for bug in bugs.iter().take_while(|_| stop.code().is_none()) {
        let Some(text) = find(bug, &campaign, stop.asked()) else {
            missed += 1;
            say!("no sequence for {}", bug.name);
            continue;
        };
        let path = args.out.join(format!("{}.txt", bug.name));
        std::fs::write(&path, &text).with_context(|| format!("write {}", path.display()))?;
        say!("{}: {}", path.display(), first_line(&text));
    }
    // What a signal cut short was not missed.
    Ok(Verdict::of(missed > 0 && stop.code().is_none(), stop))
}
