//! The killers: each test of arena, core and the lab by itself, each seeded bug's sequence, and short
//! runs of the lab. What each costs, and which mutants it reaches.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::check::cargo;
use super::child::{End, run};
use super::options::Options;

/// Tests of the lab's that need more than arena and core, or look at something else.
const LEFT_OUT: &[&str] = &[
    "faults_are_found_and_shrunk",
    "model_agrees_with_linux",
    "mount_agrees",
    "the_command_tells",
    "the_program_tells_damage",
];
/// Tests over many operations, or kinds of damage, which are run by shares of them.
const SHARED: &[&str] = &[
    "answers_to_damage_stay: of_each_pool_and_kind",
    "refusals_change_nothing: of_every_operation",
    "clients_die_at_each_store: and_are_settled_for",
    "clients_die_at_each_store: and_are_settled_for_in_the_two_fence_form",
    "clients_die_at_each_store: and_the_power_fails_then",
    "clients_die_at_each_store: and_are_settled_for_between_stores_to_the_arena",
    "clients_die_at_each_store: and_the_power_fails_then_behind_a_death_in_the_arena",
    "clients_die_at_each_store: while_their_writes_are_buffered",
    "clients_die_at_each_store: and_are_settled_for_while_their_writes_are_buffered",
    "clients_die_at_each_store: and_so_does_who_settles_for_them",
    "clients_die_at_each_store: while_they_overwrite",
    "clients_die_at_each_store: while_a_log_grows_and_is_collected",
    "refusals_change_nothing: of_overwrites_by_each_method",
    "slots_survive_power_cuts: by_cuts_deaths_and_cuts_behind_them",
    "survives_power_cuts: in_short_sequences",
    "survives_power_cuts: in_random_sequences",
    "survives_power_cuts: in_trees_with_limits_and_on_a_full_pool",
    "survives_power_cuts: when_each_thread_fences_for_itself",
    "survives_power_cuts: when_recovery_follows_recovery",
    "survives_power_cuts: by_every_method_of_writes",
    "survives_power_cuts: with_several_operations_in_flight_together",
    "survives_power_cuts: while_logs_are_collected",
];
/// So many: one operation each, and of tests of fewer some shares are empty.
const SHARES: usize = 36;
/// Those of them whose operations die at each of their stores; it takes minutes where the power fails then, and
/// others are run as in CI.
const AT_EACH: &str = "and_are_settled_for";

/// Sequences of each workload, and their first seeds.
const RUNS: [(u64, u64); 1] = [(1, 5)];

/// Said of a killer that takes more CPU seconds than were asked for.
const TOO_DEAR: &str = "takes more CPU seconds than ";

/// A program that says whether something is wrong.
#[derive(Debug, Clone)]
pub(super) struct Killer {
    pub(super) name: String,
    /// The name in few letters.
    pub(super) short: String,
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
    /// A share of a test's operations.
    share: Option<String>,
    /// CPU time without a mutant.
    pub(super) cost: Duration,
    /// Mutants that it reaches, and how often it evaluates each: once is 1, twice is 2, four times 3.
    pub(super) reached: BTreeMap<usize, u8>,
}

impl Killer {
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.folder);
        command.envs(self.share.iter().map(|share| ("NOVALE_LAB_SHARE", share)));
        if self.name.contains(AT_EACH) {
            command.env("NOVALE_LAB_EACH", "1");
        }
        command
    }
}

/// Builds the copy at `tree` and lists what can be run of what is asked for.
pub(super) fn built(tree: &Path, options: &Options) -> anyhow::Result<Vec<Killer>> {
    let output = cargo(tree, "test")
        .args(["--no-run", "-p", "novale-arena", "-p", "novale-core", "-p", "novale-lab"])
        .output()
        .context("run cargo test")?;
    if !output.status.success() {
        bail!("the copy's tests do not build: {}", String::from_utf8_lossy(&output.stderr));
    }
    let mut killers = Vec::new();
    for line in output.stdout.split(|byte| *byte == b'\n') {
        let Ok(value) = serde_json::from_slice::<Value>(line) else { continue };
        let text = |at: &str| value.pointer(at).and_then(Value::as_str);
        let Some(program) = text("/executable").map(PathBuf::from) else { continue };
        let name = text("/target/name").unwrap_or_default();
        let folder = Path::new(text("/manifest_path").unwrap_or_default()).parent().unwrap_or(tree);
        let is_test = value.pointer("/profile/test") == Some(&Value::Bool(true));
        if is_test && !LEFT_OUT.contains(&name) {
            killers.extend(tests(name, &program, folder)?);
        } else if !is_test && name == "novale-lab" {
            killers.extend(sequences(&program, folder)?);
        }
    }
    killers.retain(|killer| options.asks(&killer.name));
    // Short ones first: where the machine is busy, much is known soon.
    killers.sort_by_key(|killer| killer.name.starts_with("run ") || killer.folder.ends_with("lab"));
    Ok(killers)
}

fn tests(name: &str, program: &Path, folder: &Path) -> anyhow::Result<Vec<Killer>> {
    let listed = Command::new(program).args(["--list", "--format", "terse"]).output()?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let tests = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    let mut killers = Vec::new();
    for test in tests {
        let whole = format!("{name}: {test}");
        let arguments = ["--exact", test, "--test-threads=1"];
        if !SHARED.contains(&whole.as_str()) {
            killers.push(killer(whole, program, folder, &arguments));
            continue;
        }
        for number in 0..SHARES {
            let share = format!("{number}/{SHARES}");
            let one = killer(format!("{whole} {share}"), program, folder, &arguments);
            killers.push(Killer { share: Some(share), ..one });
        }
    }
    Ok(killers)
}

fn sequences(program: &Path, folder: &Path) -> anyhow::Result<Vec<Killer>> {
    let mut killers = Vec::new();
    for file in std::fs::read_dir(folder.join("bugs"))? {
        let path = file?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let path = path.to_string_lossy();
        // A damaged pool to be repaired is no sequence to be replayed.
        let is_repair = name.starts_with("repair-");
        let arguments: &[&str] =
            if is_repair { &["bugs", "--bug", &name] } else { &["replay", &path] };
        killers.push(killer(format!("replay {name}"), program, folder, arguments));
    }
    let listed = Command::new(program).arg("list").output()?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    for workload in listed.lines().filter_map(|line| line.split_whitespace().next()) {
        for (sequences, seed) in RUNS {
            let text = format!(
                "run --workload {workload} --sequences {sequences} --seed {seed} --threads 1 \
                 --violations 1"
            );
            let arguments: Vec<&str> = text.split_whitespace().collect();
            // It leaves a file where it runs.
            let folder = program.parent().unwrap_or(folder);
            killers.push(killer(text.clone(), program, folder, &arguments));
        }
    }
    Ok(killers)
}

fn killer(name: String, program: &Path, folder: &Path, arguments: &[&str]) -> Killer {
    Killer {
        short: format!("{:08x}", xxh3_64(name.as_bytes()) >> 32),
        name,
        program: program.to_owned(),
        arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        folder: folder.to_owned(),
        share: None,
        cost: Duration::ZERO,
        reached: BTreeMap::new(),
    }
}

/// Runs each killer without a mutant, and keeps those that are content then. What is known of this build
/// is in `notes`.
pub(super) fn measured(
    killers: &[Killer],
    count: usize,
    build: u64,
    folder: &Path,
    options: &Options,
) -> anyhow::Result<Vec<Killer>> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::fs::create_dir_all(folder.join("reached"))?;
    let worker = &|number: usize| -> anyhow::Result<()> {
        while let Some(killer) = killers.get(next.fetch_add(1, Ordering::Relaxed)) {
            let key = xxh3_64(format!("{build:x} {}", killer.name).as_bytes());
            let known = folder.join(format!("reached/{key:016x}"));
            let scratch = folder.join(format!("scratch/{number}"));
            let mut text = std::fs::read_to_string(&known).unwrap_or_default();
            let too_dear = text.strip_prefix(TOO_DEAR).and_then(|than| than.parse().ok());
            if text.is_empty() || too_dear.is_some_and(|than: u64| than < options.killer) {
                let notes = folder.join(format!("notes{number}"));
                text = measure(killer, count, &notes, &scratch, options.killer)?;
                std::fs::write(&known, &text)?;
            }
            let found = read(killer, &text, options.killer);
            done.lock().unwrap_or_else(PoisonError::into_inner).push(found);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..options.threads).map(|number| scope.spawn(move || worker(number))).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|_| bail!("a worker panicked")))
    })?;
    let mut kept: Vec<Killer> = Vec::new();
    for found in done.into_inner().unwrap_or_else(PoisonError::into_inner) {
        match found {
            Ok(killer) => kept.push(killer),
            Err(why) => eprintln!("left out: {why}"),
        }
    }
    kept.sort_by(|a, b| (a.cost, &a.name).cmp(&(b.cost, &b.name)));
    Ok(kept)
}

/// Its cost and what it reaches, or why it is no killer, as text.
fn measure(
    killer: &Killer,
    count: usize,
    notes: &Path,
    scratch: &Path,
    seconds: u64,
) -> anyhow::Result<String> {
    let file = std::fs::File::create(notes)?;
    file.set_len(count as u64 + 1)?;
    let mut command = killer.command();
    command.env("NOVALE_MUTANTS_NOTED", std::path::absolute(notes)?);
    let (end, cost) = run(&mut command, scratch, Duration::from_secs(seconds))?;
    if cost > Duration::from_secs(seconds) {
        return Ok(format!("{TOO_DEAR}{seconds}"));
    }
    if end != End::Passed {
        return Ok(format!("{end:?}"));
    }
    let mut text = format!("{}\n", cost.as_millis());
    for (id, level) in std::fs::read(notes)?.iter().enumerate() {
        if *level != 0 {
            write!(text, "{id}:{level} ")?;
        }
    }
    Ok(text)
}

fn read(killer: &Killer, text: &str, seconds: u64) -> Result<Killer, String> {
    let (cost, reached) =
        text.split_once('\n').ok_or_else(|| format!("{}: {text}", killer.name))?;
    let mut killer = killer.clone();
    killer.cost = Duration::from_millis(cost.parse().unwrap_or(0));
    if killer.cost > Duration::from_secs(seconds) {
        return Err(format!("{}: {TOO_DEAR}{seconds}", killer.name));
    }
    let pair = |text: &str| {
        let (id, level) = text.split_once(':')?;
        Some((id.parse().ok()?, level.parse().ok()?))
    };
    killer.reached = reached.split_whitespace().filter_map(pair).collect();
    Ok(killer)
}
