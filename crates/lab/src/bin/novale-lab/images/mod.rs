//! `novale-lab images`: damaged pools until the time is up.
//!
//! The search runs in worker processes (`worker`), which say each recipe before they try it: one that
//! dies, hangs or wants too much memory is known by its last word.

mod worker;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use novale_lab::images::Recipe;
use serde::Serialize;

use super::{Verdict, seconds};

/// Damage pools in every way and see that each answer is an error that names place and structure.
///
/// Recipes that reach something new are kept and changed further; `--keep` writes them down.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Start no image later than this.
    #[arg(long, default_value_t = 60, value_parser = seconds())]
    seconds: u64,
    /// The seed of the first worker; the others follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Workers beside each other [default: the CPUs of this machine].
    #[arg(long)]
    threads: Option<u64>,
    /// Recipes to start from, a line each; with `--seconds 0` nothing else is tried.
    #[arg(long, value_name = "FILE")]
    corpus: Option<PathBuf>,
    /// Where the recipes go that reached something new.
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Be a worker: try images and say so on standard output.
    #[arg(long, hide = true)]
    worker: bool,
    /// The first worker of each thread takes more memory than it may, which must be found.
    #[arg(long, hide = true)]
    canary: bool,
}

/// No image takes longer than this, but for a hang.
const PATIENCE: Duration = Duration::from_secs(30);
/// A worker that died is replaced so often.
const DEATHS_MAX: u32 = 100;

/// What workers found.
#[derive(Debug, Default)]
struct Found {
    images: u64,
    opened: u64,
    shown: u64,
    messages: BTreeSet<String>,
    kept: Vec<String>,
    /// Branches that one worker met at most.
    edges: u64,
    violations: Vec<Violation>,
}

#[derive(Debug, Serialize)]
struct Violation {
    recipe: String,
    what: String,
}

#[derive(Serialize)]
struct Summary<'f> {
    images: u64,
    opened: u64,
    shown: u64,
    messages: usize,
    kept: usize,
    edges: u64,
    edges_counted: usize,
    violations: &'f [Violation],
    seconds: f64,
    seed: u64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    if args.worker {
        worker::run((args.seconds, args.seed), given(args)?, args.canary)?;
        return Ok(Verdict::Clean);
    }
    given(args)?;
    let cpus = || std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
    let threads = args.threads.unwrap_or_else(cpus).max(1);
    let (start, bar) = (Instant::now(), bar(args.seconds));
    let (tell, told) = channel();
    let mut found = Found::default();
    std::thread::scope(|scope| {
        for index in 0..threads {
            let tell = tell.clone();
            scope.spawn(move || watch(args, args.seed.wrapping_add(index), start, &tell));
        }
        drop(tell);
        for event in told {
            found.take_in(event);
            bar.set_position(start.elapsed().as_secs());
            let (images, bad) = (found.images, found.violations.len());
            let rate = images / start.elapsed().as_secs().max(1);
            bar.set_message(format!("{images} images, {rate} a second, {bad} violations"));
        }
    });
    bar.finish_and_clear();
    if let Some(path) = &args.keep {
        let lines = found.kept.join("\n") + "\n";
        std::fs::write(path, lines).with_context(|| format!("write {}", path.display()))?;
    }
    show(args, &found, start.elapsed())?;
    Ok(if found.violations.is_empty() { Verdict::Clean } else { Verdict::Violated })
}

/// The recipes to start from; blank lines and those with a `#` in front are none.
fn given(args: &Args) -> anyhow::Result<Vec<Recipe>> {
    let Some(path) = &args.corpus else { return Ok(Vec::new()) };
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.parse::<Recipe>().map_err(|why| anyhow::anyhow!("`{line}`: {why}")))
        .collect()
}

/// What a worker said, or what became of it.
enum Event {
    /// A line of its output.
    Said(worker::Word),
    /// It ended or was ended in the middle of a recipe.
    Lost { recipe: String, what: String },
}

impl Found {
    fn take_in(&mut self, event: Event) {
        match event {
            Event::Lost { recipe, what } => self.violations.push(Violation { recipe, what }),
            Event::Said(word) => match word {
                worker::Word::Try(_) => self.images += 1,
                worker::Word::Opened => self.opened += 1,
                worker::Word::Shown => self.shown += 1,
                worker::Word::Message(text) => drop(self.messages.insert(text)),
                worker::Word::Edges(count) => self.edges = self.edges.max(count),
                worker::Word::Kept(recipe) => self.kept.push(recipe),
                worker::Word::Wrong(recipe, what) => {
                    self.violations.push(Violation { recipe, what });
                }
            },
        }
    }
}

/// Runs one worker after the other until the time is up.
fn watch(args: &Args, seed: u64, start: Instant, tell: &Sender<Event>) {
    for death in 0..DEATHS_MAX {
        let left = args.seconds.saturating_sub(start.elapsed().as_secs());
        if death > 0 && left == 0 {
            return;
        }
        let seed = seed.wrapping_add(u64::from(death) << 32);
        let canary = args.canary && death == 0;
        let lost = match start_worker(args, (left, seed), canary) {
            Ok((child, output)) => follow(child, output, tell),
            Err(why) => Some(Event::Lost { recipe: String::new(), what: format!("{why:#}") }),
        };
        let Some(lost) = lost else { return };
        // The receiver lives as long as this thread.
        drop(tell.send(lost));
    }
}

fn start_worker(
    args: &Args,
    (seconds, seed): (u64, u64),
    canary: bool,
) -> anyhow::Result<(Child, BufReader<ChildStdout>)> {
    let mut command = Command::new(std::env::current_exe().context("the path of novale-lab")?);
    command.args(["images", "--worker", "--seconds", &seconds.to_string()]);
    command.args(["--seed", &seed.to_string()]);
    if canary {
        command.arg("--canary");
    }
    if let Some(corpus) = &args.corpus {
        command.arg("--corpus").arg(corpus);
    }
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().context("a worker's output")?;
    Ok((child, BufReader::new(output)))
}

/// Hands on what a worker says, until its end; says how it was lost, if it was.
fn follow(mut child: Child, output: BufReader<ChildStdout>, tell: &Sender<Event>) -> Option<Event> {
    let (hand_on, lines) = channel();
    let reader = std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            if hand_on.send(line).is_err() {
                return;
            }
        }
    });
    let mut trying = String::new();
    let hung = hear(&lines, &mut trying, tell);
    if hung {
        drop(child.kill());
    }
    let ended = child.wait();
    drop(lines);
    drop(reader.join());
    match ended {
        _ if hung => Some(Event::Lost { recipe: trying, what: format!("no end in {PATIENCE:?}") }),
        Ok(status) if status.success() => None,
        Ok(status) => Some(Event::Lost { recipe: trying, what: status.to_string() }),
        Err(why) => Some(Event::Lost { recipe: trying, what: why.to_string() }),
    }
}

/// Takes lines until there are no more (`false`), or until none comes in time.
fn hear(lines: &Receiver<String>, trying: &mut String, tell: &Sender<Event>) -> bool {
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                let Some(word) = worker::Word::parse(&line) else { continue };
                if let worker::Word::Try(recipe) = &word {
                    trying.clone_from(recipe);
                }
                drop(tell.send(Event::Said(word)));
            }
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
}

fn show(args: &Args, found: &Found, time: Duration) -> anyhow::Result<()> {
    if args.json {
        let summary = Summary {
            images: found.images,
            opened: found.opened,
            shown: found.shown,
            messages: found.messages.len(),
            kept: found.kept.len(),
            edges: found.edges,
            edges_counted: novale_edges::count(),
            violations: &found.violations,
            seconds: time.as_secs_f64(),
            seed: args.seed,
        };
        println!("{}", serde_json::to_string(&summary)?);
        return Ok(());
    }
    for violation in &found.violations {
        println!("{}\n  {}\n", violation.recipe, violation.what);
    }
    println!(
        "{} images in {} s: {} opened for writing, {} read-only; {} messages, {} recipes kept",
        found.images,
        time.as_secs(),
        found.opened,
        found.shown,
        found.messages.len(),
        found.kept.len()
    );
    if novale_edges::count() > 0 {
        println!("one worker reached {} of {} branches", found.edges, novale_edges::count());
    }
    println!("{} violations", found.violations.len());
    Ok(())
}

fn bar(seconds: u64) -> ProgressBar {
    let bar = ProgressBar::new(seconds);
    if let Ok(style) = ProgressStyle::with_template("{elapsed} {wide_bar} {msg}") {
        bar.set_style(style);
    }
    bar
}
