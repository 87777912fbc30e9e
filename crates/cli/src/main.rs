//! The `novale` program: pools made, mounted, unmounted, looked at, looked into and checked.
//!
//! Comes in: a command line, or mount(8)'s when called `mount.fuse.novale`. Each command is a file
//! that turns arguments into calls of the libraries and says what came of it. Standard output has
//! the facts, standard error everything else; 0 is success, 1 failure, 2 a wrong call, and `check`
//! has codes of its own. Never here: what a user of the libraries would want.

/// Prints a line of facts. Where nobody takes it, that is an error of the command.
macro_rules! say {
    ($($line:tt)*) => { $crate::base::out::print(format_args!($($line)*)) };
}

/// Tells a person something, if one listens: a closed standard error ends nothing.
macro_rules! remark {
    ($($line:tt)*) => { $crate::base::out::mutter(format_args!($($line)*)) };
}

mod base;
mod commands;
mod holders;
mod mounts;
mod pools;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::base::args::{Cli, Command};
use crate::base::out::fail;
use crate::commands::{
    check, dump, failing, info, install, manual, mkfs, quota, run, set, slot, stats, wear,
};
use crate::holders::ask;
use crate::mounts::{helper, mount, umount};

/// The name under which mount(8) calls.
const HELPER_NAME: &str = "mount.fuse.novale";

novale_pm::note_what_is_given!();

fn main() -> ExitCode {
    novale_pm::keep_ended_children();
    let called = std::env::args_os().next().unwrap_or_default();
    if Path::new(&called).file_name() == Some(OsStr::new(HELPER_NAME)) {
        return helper::main();
    }
    let command = match Cli::try_parse_from(words()) {
        Ok(cli) => cli.command,
        Err(error) => return wrong_call(&error),
    };
    let json = command.json();
    if let Err(error) = failing::end_at_failing(&command) {
        return fail(&error, json);
    }
    let done = match command {
        Command::Mkfs(args) => mkfs::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Mount(args) => mount::run(&args),
        Command::Umount(args) => Ok(umount::run(&args)),
        Command::Run(args) => run::run(&args),
        Command::Info(args) => info::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Set(args) => set::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Stats(args) => stats::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Wear(args) => wear::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Check(args) => return check::run(&args),
        Command::Dump(args) => dump::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Slot(command) => slot::run(&command).map(|()| ExitCode::SUCCESS),
        Command::Quota(command) => quota::run(&command).map(|()| ExitCode::SUCCESS),
        Command::InstallHelper(args) => install::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Ask(args) => ask::answer(&args.dir).map(|()| ExitCode::SUCCESS),
        Command::Manual(args) => manual::run(&args.dir).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| fail(&error, json))
}

/// The words of the command line. Where help is asked for by a command, it is not asked for by a word as well.
fn words() -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let is_help = |at: usize| words.get(at).is_some_and(|word| word == "help");
    let has_commands = || {
        let cli = Cli::command();
        let command = words.get(1).and_then(|word| cli.find_subcommand(word));
        command.is_some_and(clap::Command::has_subcommands)
    };
    if is_help(1) || is_help(2) && has_commands() {
        words.retain(|word| word != "--help" && word != "-h");
    }
    words
}

/// Says what is wrong with a call, or what was asked for: help, the version. `check` has fsck's codes.
fn wrong_call(error: &clap::Error) -> ExitCode {
    let _unheard = error.print();
    let words: Vec<_> = std::env::args_os().skip(1).take_while(|word| word != "--").collect();
    let is = |command: &str| words.first().is_some_and(|word| word == command);
    let is_check = is("check");
    // What stands behind `run` may be its program's.
    if error.exit_code() != 0 && !is("run") && words.iter().any(|word| word == "--json") {
        let why = error.to_string();
        let why = why.strip_prefix("error: ").unwrap_or(&why).trim_end();
        let _unheard = say!("{}", serde_json::json!({ "error": why }));
    }
    match error.exit_code() {
        0 => ExitCode::SUCCESS,
        _ if is_check => ExitCode::from(check::WRONG_CALL),
        code => ExitCode::from(u8::try_from(code).unwrap_or(2)),
    }
}
