//! `novale-lab images`: damaged pools until the time is up.
//!
//! The search runs in worker processes (`worker`), which say each recipe before they try it: one that
//! dies, hangs or wants too much memory is known by its last word.

mod worker;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use novale_lab::images::Recipe;
use serde::Serialize;

use super::progress::Progress;
use super::stop::Stop;
use super::{INCOMPLETE, Verdict, at_most, beside, seconds_or_none, threads};

/// Damage pools in every way and see that each answer is an error that names place and structure.
///
/// Recipes that reach something new are kept and changed further; `--keep` writes them down.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Start no image later than this; 0 for the recipes of a corpus alone.
    #[arg(long, default_value_t = 60, value_parser = seconds_or_none())]
    seconds: u64,
    /// So many images of each worker behind the corpus, the same on any machine, in any time up to
    /// --seconds.
    #[arg(long, value_name = "N", value_parser = at_most())]
    images: Option<u64>,
    /// The seed of the first worker; the others follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Workers beside each other [default: the CPUs of this machine].
    #[arg(long, value_parser = beside())]
    threads: Option<usize>,
    /// Recipes to start from, a line each; with `--seconds 0` nothing else is tried.
    #[arg(long, value_name = "FILE")]
    corpus: Option<PathBuf>,
    /// Where the recipes go that reached something new.
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Where the recipes go that were answered wrongly: a file for `--seconds 0 --corpus FILE`.
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
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
const PATIENCE: Duration = Duration::from_secs(120);
/// So often is looked for a signal while no line comes.
const LOOK: Duration = Duration::from_millis(100);
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
    /// The time was up before a worker had tried all of its images.
    is_late: bool,
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
    violations: usize,
    found: &'f [Violation],
    /// The recipes of the violations.
    file: Option<PathBuf>,
    seconds: f64,
    seed: u64,
    threads: usize,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    if args.worker {
        return worker::run((args.seconds, args.seed), args.images, given(args)?, args.canary);
    }
    ensure!(
        args.seconds > 0 || args.corpus.is_some(),
        "--seconds 0 tries nothing but the recipes of a corpus: name one with --corpus FILE"
    );
    given(args)?;
    // Before the search: what it finds must not be lost at its end.
    ensure!(args.out.is_dir(), "{} is no directory", args.out.display());
    let stop = Stop::on_signals()?;
    let progress = Progress::new(Some(args.seconds).filter(|seconds| *seconds > 0));
    let start = progress.start();
    let (tell, told) = channel();
    let mut found = Found::default();
    std::thread::scope(|scope| {
        for index in (0..).take(threads(args.threads)) {
            let (tell, stop) = (tell.clone(), stop.asked().clone());
            scope.spawn(move || watch(args, args.seed.wrapping_add(index), start, (&tell, &stop)));
        }
        drop(tell);
        for event in told {
            found.take_in(event);
            progress.show(|| found.told(start));
        }
    });
    progress.end();
    if let Some(path) = &args.keep {
        let lines = found.kept.join("\n") + "\n";
        std::fs::write(path, lines).with_context(|| format!("write {}", path.display()))?;
    }
    let file = save(args, &found.violations)?;
    show(args, &found, file, start.elapsed())?;
    Ok(Verdict::of(!found.violations.is_empty(), &stop).or_incomplete(found.is_late))
}

/// Writes the recipes that were answered wrongly into a file that `--corpus` reads.
fn save(args: &Args, violations: &[Violation]) -> anyhow::Result<Option<PathBuf>> {
    if violations.is_empty() {
        return Ok(None);
    }
    let path = args.out.join(format!("images-seed-{}.txt", args.seed));
    let case = |one: &Violation| {
        let what = one.what.replace('\n', "\n# ");
        format!("# {what}\n{}\n", one.recipe)
    };
    let text: String = violations.iter().map(case).collect();
    std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    Ok(Some(path))
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
    /// It had not the time for all.
    Late,
}

impl Found {
    fn told(&self, start: Instant) -> String {
        let (images, bad) = (self.images, self.violations.len());
        let rate = images / start.elapsed().as_secs().max(1);
        format!("{images} images, {rate} a second, {bad} violations")
    }

    fn take_in(&mut self, event: Event) {
        match event {
            Event::Late => self.is_late = true,
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

/// Runs one worker after the other until the time is up, or it is asked to stop.
fn watch(args: &Args, seed: u64, start: Instant, (tell, stop): (&Sender<Event>, &AtomicBool)) {
    for death in 0..DEATHS_MAX {
        let left = args.seconds.saturating_sub(start.elapsed().as_secs());
        if death > 0 && (left == 0 || stop.load(Ordering::Relaxed)) {
            return;
        }
        let seed = seed.wrapping_add(u64::from(death) << 32);
        let canary = args.canary && death == 0;
        let lost = match start_worker(args, (left, seed), canary) {
            Ok((child, output)) => follow(child, output, (tell, stop)),
            Err(why) => Some(Event::Lost { recipe: String::new(), what: format!("{why:#}") }),
        };
        let Some(lost) = lost else { return };
        let is_late = matches!(lost, Event::Late);
        // The receiver lives as long as this thread.
        drop(tell.send(lost));
        if is_late {
            return;
        }
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
    if let Some(images) = args.images {
        command.args(["--images", &images.to_string()]);
    }
    if canary {
        command.arg("--canary");
    }
    if let Some(corpus) = &args.corpus {
        command.arg("--corpus").arg(corpus);
    }
    // What a terminal sends is for the search, which ends them.
    command.process_group(0);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().context("a worker's output")?;
    Ok((child, BufReader::new(output)))
}

/// Hands on what a worker says, until its end; says how it was lost, if it was.
fn follow(
    mut child: Child,
    output: BufReader<ChildStdout>,
    (tell, stop): (&Sender<Event>, &AtomicBool),
) -> Option<Event> {
    let (hand_on, lines) = channel();
    let reader = std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            if hand_on.send(line).is_err() {
                return;
            }
        }
    });
    let mut trying = String::new();
    let heard = hear(&lines, &mut trying, (tell, stop));
    if heard != Heard::Ended {
        drop(child.kill());
    }
    let ended = child.wait();
    drop(lines);
    drop(reader.join());
    match ended {
        _ if heard == Heard::Stopped => None,
        _ if heard == Heard::Hung => {
            Some(Event::Lost { recipe: trying, what: format!("no end in {PATIENCE:?}") })
        }
        Ok(status) if status.success() => None,
        Ok(status) if status.code() == Some(INCOMPLETE.into()) => Some(Event::Late),
        Ok(status) => Some(Event::Lost { recipe: trying, what: status.to_string() }),
        Err(why) => Some(Event::Lost { recipe: trying, what: why.to_string() }),
    }
}

/// How a worker's lines ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// There are no more.
    Ended,
    /// None came in time.
    Hung,
    /// Somebody asked for the end.
    Stopped,
}

/// Takes lines until there are no more, none comes in time, or a signal came.
fn hear(
    lines: &Receiver<String>,
    trying: &mut String,
    (tell, stop): (&Sender<Event>, &AtomicBool),
) -> Heard {
    let mut last = Instant::now();
    loop {
        if stop.load(Ordering::Relaxed) {
            return Heard::Stopped;
        }
        match lines.recv_timeout(LOOK) {
            Ok(line) => {
                last = Instant::now();
                let Some(word) = worker::Word::parse(&line) else { continue };
                if let worker::Word::Try(recipe) = &word {
                    trying.clone_from(recipe);
                }
                drop(tell.send(Event::Said(word)));
            }
            Err(RecvTimeoutError::Timeout) if last.elapsed() < PATIENCE => {}
            Err(RecvTimeoutError::Timeout) => return Heard::Hung,
            Err(RecvTimeoutError::Disconnected) => return Heard::Ended,
        }
    }
}

fn show(args: &Args, found: &Found, file: Option<PathBuf>, time: Duration) -> anyhow::Result<()> {
    if args.json {
        let summary = Summary {
            images: found.images,
            opened: found.opened,
            shown: found.shown,
            messages: found.messages.len(),
            kept: found.kept.len(),
            edges: found.edges,
            edges_counted: novale_edges::count(),
            violations: found.violations.len(),
            found: &found.violations,
            file,
            seconds: time.as_secs_f64(),
            seed: args.seed,
            threads: threads(args.threads),
        };
        say!("{}", serde_json::to_string(&summary)?);
        return Ok(());
    }
    for violation in &found.violations {
        say!("{}\n  {}\n", violation.recipe, violation.what);
    }
    say!(
        "{} images in {} s: {} opened for writing, {} read-only; {} messages, {} recipes kept",
        found.images,
        time.as_secs(),
        found.opened,
        found.shown,
        found.messages.len(),
        found.kept.len()
    );
    if novale_edges::count() > 0 {
        say!("one worker reached {} of {} branches", found.edges, novale_edges::count());
    }
    say!("{} violations", found.violations.len());
    if let Some(file) = file {
        say!("again: novale-lab images --seconds 0 --corpus {}", file.display());
    }
    Ok(())
}
