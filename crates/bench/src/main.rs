//! What Novale's operations cost: lines and fences, nanoseconds, next to the limit of the same run.
//!
//! Each file of `mod` level is one benchmark with a `run` that returns a [`report::Report`], or what
//! several of them share: `place` (memory and pools), `bed` (a pool prepared for one thread),
//! `writer` (one that is written by one method), `target` (the library or a mounted folder), `workload`
//! (Filebench's), `trace` and `replay` (recorded calls), `stats` (times), `report` (tables), `plot`
//! (figures). Nothing here is used by the product.

mod adl;
mod aging;
mod attach;
mod bed;
mod calls;
mod capacity;
mod directory;
mod filebench;
mod hinfs;
mod hinfs_model;
mod hinfs_trace;
mod killed;
mod lawn;
mod limit;
mod lines;
mod methods;
mod micro;
mod mount;
mod nova;
mod ops;
mod place;
mod plot;
mod progress;
mod recovery;
mod replay;
mod report;
mod shapes;
mod stats;
mod target;
mod threads;
mod trace;
mod wasa;
mod workload;
mod writer;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use novale_pm::Device;
use place::Place;

/// Bytes that one operation's share of a round moves, at most.
const ROUND_BYTES_MAX: u64 = 64 << 20;
const OPS_MIN: u64 = 50;
/// What a mount's daemon says of it.
const FACTS: &str = "system.novale.mount";

/// Measures what Novale costs, next to the bare memory of the same run.
///
/// Without a command: limit, ops, lines, threads and recovery, one after the other.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The memory limit: durable random stores and random loads, 64 B to 1 MB.
    Limit,
    /// Single operations of the library on one thread, both commit forms, next to the limit.
    Ops,
    /// Lines stored, lines written back and fences of each operation, both commit forms.
    Lines,
    /// Overwrites of 64 B to 4 KB by each write method, next to the limit: time and lines.
    Methods,
    /// The figures of ADL and ZCL (4a, 4c, table 2): sequential writes and traces by each method.
    Adl(adl::Options),
    /// The figures of LAWN (5, 6 and 8): random reads, writes and mixes of both by each method.
    Lawn(lawn::Options),
    /// The figures of WASA (2 to 4, 11 to 17): how even slots are worn, how long they last, and what it takes.
    Wasa(wasa::Options),
    /// Figures of `HiNFS` (4, 7, 8, 10 to 13): its workloads on its memory, with and without the write buffer.
    Hinfs(hinfs::Options),
    /// Operations a second of 1, 2, 4, ... threads: own files, one file, own and one directory.
    Threads,
    /// The library beside the figures of NOVA's kernel module, with the goal of half of them.
    Nova,
    /// NOVA's microbenchmark (5.2): create, append, fsync, unlink of 10,000 files.
    Micro {
        /// Folders to measure beside the library, on mounts of any kind.
        dirs: Vec<PathBuf>,
        /// Leave the library out.
        #[arg(long)]
        no_library: bool,
    },
    /// NOVA's macrobenchmarks (5.3): fileserver, webproxy, webserver, varmail.
    Filebench(filebench::Options),
    /// NOVA's test of collection (5.4): a fileserver on a pool that is 95 % full.
    Aging(aging::Options),
    /// One directory from ten entries to ten million.
    Directory(directory::Options),
    /// Opening a pool (5.5): closed clean and after a death, by dataset.
    Recovery(recovery::Options),
    /// What a pool's size, slots and lanes cost before it has a file: tables in DRAM, what closing saves, opening.
    Capacity(capacity::Options),
    /// Joining a pool of 100,000 files that others have open, and leaving it.
    Attach,
    /// System calls of one thread and of many in DIRS: what they take of a CPU, and how often they wait.
    ///
    /// Under `novale run` it measures direct access.
    Calls {
        /// Folders of the file systems to measure.
        #[arg(required = true)]
        dirs: Vec<PathBuf>,
    },
    /// System calls in DIR, on a mount, next to the bare memory and to the same calls in OTHERS.
    ///
    /// Under `novale run` it measures direct access.
    Mount {
        /// A folder on a Novale mount.
        dir: PathBuf,
        /// Folders to compare with.
        #[arg(default_value = "/dev/shm")]
        others: Vec<PathBuf>,
        /// Open files in OTHERS with `O_DSYNC`: their writes are durable when they return, as ours are.
        #[arg(long)]
        durable: bool,
    },
    /// What `adl --recovery` kills.
    #[command(hide = true)]
    KilledWriter(killed::Writer),
}

/// What all benchmarks take.
#[derive(Debug, Clone, Args)]
struct Common {
    /// Print JSON, one object for each benchmark.
    #[arg(long, global = true)]
    json: bool,
    /// Rounds; figures are medians over them, with the least and the greatest.
    #[arg(long, global = true, default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Operations a round of each kind; fewer of large ones.
    #[arg(long, global = true, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..))]
    ops: u64,
    /// MB of the file, and of the bare memory, that is accessed at random.
    #[arg(long, global = true, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    file_mb: u64,
    /// Most threads; as many as this machine has CPUs.
    #[arg(long, global = true, value_parser = clap::value_parser!(u16).range(1..=512))]
    threads: Option<u16>,
    /// How long each measurement of many threads takes, in ms.
    #[arg(long, global = true, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    millis: u64,
    /// Files: of the pool that is recovered (20,000), of a round of `micro` (10,000).
    #[arg(long, global = true, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    files: Option<u64>,
    /// Put slots into files in this folder (removed in the end) instead of private memory.
    #[arg(long, global = true, value_name = "DIR")]
    slots_in: Option<PathBuf>,
    /// Stay on 4 KB pages.
    #[arg(long, global = true)]
    small_pages: bool,
    /// Emulate a slower memory: dram (none), stt-ram, pcm, hinfs, optane, cxl, or own values
    /// (`novale mount --help` has them). Of a mount, which has its own, only the bare memory beside it.
    #[arg(long, global = true, value_name = "DEVICE")]
    device: Option<Device>,
    /// Measure only the operations whose name contains this.
    #[arg(long, global = true, value_name = "TEXT")]
    only: Option<String>,
}

impl Common {
    fn place(&self) -> Place {
        Place { folder: self.slots_in.clone(), small_pages: self.small_pages, device: self.device }
    }

    fn threads(&self) -> Result<usize> {
        match self.threads {
            Some(threads) => Ok(usize::from(threads)),
            None => Ok(std::thread::available_parallelism()?.get()),
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|text| name.contains(text))
    }
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let common = &cli.common;
    let all = [limit::run, ops::run, lines::run, threads::run];
    let report = match &cli.command {
        None => {
            all.iter().try_for_each(|run| run(common)?.print(common.json))?;
            recovery::run(common, &recovery::Options::default())
        }
        Some(Command::Limit) => limit::run(common),
        Some(Command::Ops) => ops::run(common),
        Some(Command::Lines) => lines::run(common),
        Some(Command::Methods) => methods::run(common),
        Some(Command::Adl(options)) => return print(common, &adl::run(common, options)?),
        Some(Command::Lawn(options)) => return print(common, &lawn::run(common, options)?),
        Some(Command::Wasa(options)) => return print(common, &wasa::run(common, options)?),
        Some(Command::Hinfs(options)) => return print(common, &hinfs::run(common, options)?),
        Some(Command::Threads) => threads::run(common),
        Some(Command::Nova) => nova::run(common),
        Some(Command::Micro { dirs, no_library }) => micro::run(common, dirs, *no_library),
        Some(Command::Filebench(options)) => filebench::run(common, options),
        Some(Command::Aging(options)) => aging::run(common, options),
        Some(Command::Directory(options)) => directory::run(common, options),
        Some(Command::Attach) => attach::run(common),
        Some(Command::Capacity(options)) => capacity::run(common, options),
        Some(Command::Calls { dirs }) => calls::run(common, dirs),
        Some(Command::Recovery(options)) => recovery::run(common, options),
        Some(Command::KilledWriter(writer)) => return killed::write_until_killed(writer),
        Some(Command::Mount { dir, others, durable }) => mount::run(common, dir, others, *durable),
    };
    let mut report = report?;
    let dirs = cli.command.iter().flat_map(Command::dirs);
    let models = dirs.filter_map(|dir| Some(format!("{}: {}", dir.display(), mounts_device(dir)?)));
    let models: Vec<String> = models.collect();
    if !models.is_empty() {
        report.setup.push(("models of memory", models.join("; ")));
    }
    report.print(common.json)
}

impl Command {
    /// The folders that it measures.
    fn dirs(&self) -> impl Iterator<Item = &PathBuf> {
        let (one, others) = match self {
            Self::Mount { dir, others, .. } => (Some(dir), others.as_slice()),
            Self::Micro { dirs, .. } | Self::Calls { dirs } => (None, dirs.as_slice()),
            Self::Filebench(options) => (None, options.dirs.as_slice()),
            Self::Limit
            | Self::Ops
            | Self::Lines
            | Self::Methods
            | Self::Adl(_)
            | Self::Lawn(_)
            | Self::Wasa(_)
            | Self::Hinfs(_)
            | Self::Threads
            | Self::Nova
            | Self::Aging(_)
            | Self::Directory(_)
            | Self::Recovery(_)
            | Self::KilledWriter(_)
            | Self::Capacity(_)
            | Self::Attach => (None, [].as_slice()),
        };
        one.into_iter().chain(others)
    }
}

/// The memory that the Novale mount of a folder emulates, as its daemon says.
fn mounts_device(dir: &Path) -> Option<String> {
    let mut value = vec![0; 1 << 16];
    let len = rustix::fs::getxattr(dir, FACTS, &mut value[..]).ok()?;
    let facts: serde_json::Value = serde_json::from_slice(value.get(..len)?).ok()?;
    let device = facts.get("device")?.as_str()?;
    (!device.is_empty()).then(|| device.to_owned())
}

/// Prints the reports of a paper's figures.
fn print(common: &Common, reports: &[report::Report]) -> Result<()> {
    reports.iter().try_for_each(|report| report.print(common.json))
}

/// The circumstances that every report tells.
fn setup(common: &Common) -> Vec<(&'static str, String)> {
    vec![
        ("memory", common.place().describe()),
        (
            "rounds",
            format!(
                "{}, interleaved; up to {} operations each, over {} MB",
                common.rounds, common.ops, common.file_mb
            ),
        ),
    ]
}

/// How many operations of `bytes` bytes a round has.
fn count_for(ops: u64, bytes: u64) -> u64 {
    ops.min((ROUND_BYTES_MAX / bytes.max(1)).max(OPS_MIN))
}

/// A size as people write it.
fn bytes_text(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 20 => format!("{} MB", bytes >> 20),
        _ if bytes >= 1 << 10 => format!("{} KB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}
