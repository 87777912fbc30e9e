//! The `novale-lab` program: crash states and damage made on purpose, and what Novale makes of them.
//!
//! Each command is a file here with its arguments (`Args`) and a function `run`, and a line in
//! [`Command`] and in `main`. Standard output has the facts, standard error everything else. The exit
//! code is 0 if nothing was found, 1 for a violation, 2 for a command line or file that makes no
//! sense and for output that nobody takes, 3 if the time was up before all of what was asked for by its
//! number was done, or all mutants were decided, 128 and its number for a signal that ended it before
//! anything was found. Never here: what a test would
//! want to call; that is in the library.

#![allow(clippy::print_stderr, reason = "a program's output is what it is for")]

/// Prints a line of facts.
macro_rules! say {
    ($($line:tt)*) => { $crate::print(format_args!($($line)*)) };
}

mod bugs;
mod clients;
mod images;
mod list;
mod mutants;
mod progress;
mod replay;
mod run;
mod stop;

use std::fmt::Arguments;
use std::io::Write;
use std::process::ExitCode;

use clap::builder::RangedU64ValueParser;
use clap::{Parser, Subcommand};

use self::stop::Stop;

/// Novale's crash lab: power cuts, dead clients and damaged pools, by the thousand.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:
  novale-lab run --seconds 60            cut the power for a minute, in all workloads
  novale-lab run --workload pairs --json only the pairs of operations; one JSON object
  novale-lab images --seconds 60         damage pools for a minute
  novale-lab clients --seconds 60        kill processes that share a pool, for a minute
  novale-lab mutants --seconds 240       take each store, write-back and fence away
  novale-lab replay failure.txt          run a failure's sequence again"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Images(images::Args),
    Mutants(mutants::Args),
    Bugs(bugs::Args),
    List(list::Args),
    Clients(clients::Args),
    #[command(hide = true)]
    ClientWorker(clients::WorkerArgs),
    Replay(replay::Args),
}

const SECONDS_MAX: u64 = 10 * 366 * 24 * 60 * 60;
/// More than any machine has CPUs for.
const COUNT_MAX: u64 = 4096;

/// The exit code of what the time did not do.
const INCOMPLETE: u8 = 3;

/// Seconds that a command may take: one at least, up to ten years.
fn seconds() -> RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..=SECONDS_MAX)
}

/// The same where none is possible.
fn seconds_or_none() -> RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(..=SECONDS_MAX)
}

/// How many threads or processes there are beside each other.
fn beside() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=COUNT_MAX)
}

/// A number of what is found, after which it ends.
fn at_most() -> RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..)
}

/// The CPUs of this machine, where no number was given.
fn threads(given: Option<usize>) -> usize {
    let cpus = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    given.unwrap_or_else(cpus)
}

/// What a command found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Clean,
    Violated,
    /// Nothing found, but not all of it was done or decided in the time.
    Incomplete,
    /// Ended early with nothing found, with this exit code.
    Stopped(u8),
}

impl Verdict {
    fn of(violated: bool, stop: &Stop) -> Self {
        match stop.code() {
            _ if violated => Self::Violated,
            Some(code) => Self::Stopped(code),
            None => Self::Clean,
        }
    }

    /// The same, if all was done that was asked for.
    fn or_incomplete(self, is_open: bool) -> Self {
        let is_incomplete = is_open && self == Self::Clean;
        if is_incomplete {
            eprintln!("novale-lab: incomplete: the time was up before all of it was done");
        }
        if is_incomplete { Self::Incomplete } else { self }
    }
}

fn main() -> ExitCode {
    let found = match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Images(args) => images::run(&args),
        Command::Bugs(args) => bugs::run(&args),
        Command::Mutants(args) => mutants::run(&args),
        Command::Clients(args) => clients::run(&args),
        Command::ClientWorker(args) => clients::work(args),
        Command::List(args) => Ok(list::run(&args)),
        Command::Replay(args) => replay::run(&args),
    };
    match found {
        Ok(Verdict::Clean) => ExitCode::SUCCESS,
        Ok(Verdict::Violated) => ExitCode::from(1),
        Ok(Verdict::Incomplete) => ExitCode::from(INCOMPLETE),
        Ok(Verdict::Stopped(code)) => ExitCode::from(code),
        Err(error) => {
            eprintln!("novale-lab: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Where nobody takes the facts, there is nothing left to do.
fn print(line: Arguments<'_>) {
    if let Err(error) = writeln!(std::io::stdout().lock(), "{line}") {
        eprintln!("novale-lab: writing to standard output: {error}");
        std::process::exit(2);
    }
}
