//! The `novale` program: pools made, mounted, unmounted, looked at, looked into and checked.
//!
//! Comes in: a command line, or mount(8)'s when called `mount.fuse.novale`. Each command is a file
//! that turns arguments into calls of the libraries and says what came of it. Standard output has
//! the facts, standard error everything else; 0 is success, 1 failure, 2 a wrong call, and `check`
//! has codes of its own. Never here: what a user of the libraries would want.

/// Prints a line of facts. Where nobody takes it, that is an error of the command.
macro_rules! say {
    ($($line:tt)*) => { $crate::print(format_args!($($line)*)) };
}

/// Tells a person something, if one listens: a closed standard error ends nothing.
macro_rules! remark {
    ($($line:tt)*) => { $crate::mutter(format_args!($($line)*)) };
}

mod again;
mod args;
mod ask;
mod background;
mod check;
mod daemon;
mod dump;
mod elsewhere;
mod facts;
mod held_slots;
mod helper;
mod holder;
mod info;
mod install;
mod manual;
mod memory;
mod mkfs;
mod mount;
mod progress;
mod quota;
mod remount;
mod report;
mod run;
mod servers;
mod size;
mod slot_files;
mod slots;
mod target;
mod umount;
mod voice;
mod words;

use std::ffi::OsStr;
use std::fmt::Arguments;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;

use args::{Cli, Command};

/// The name under which mount(8) calls.
const HELPER_NAME: &str = "mount.fuse.novale";

fn main() -> ExitCode {
    let called = std::env::args_os().next().unwrap_or_default();
    if Path::new(&called).file_name() == Some(OsStr::new(HELPER_NAME)) {
        return helper::main();
    }
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return wrong_call(&error),
    };
    let json = command.json();
    let done = match command {
        Command::Mkfs(args) => mkfs::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Mount(args) => mount::run(&args),
        Command::Umount(args) => Ok(umount::run(&args)),
        Command::Run(args) => run::run(&args),
        Command::Info(args) => info::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Check(args) => return check::run(&args),
        Command::Dump(args) => dump::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Quota(command) => quota::run(&command).map(|()| ExitCode::SUCCESS),
        Command::InstallHelper(args) => install::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Ask(args) => ask::answer(&args.dir).map(|()| ExitCode::SUCCESS),
        Command::Manual(args) => manual::run(&args.dir).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        fail(&error, json);
        ExitCode::FAILURE
    })
}

/// Says what is wrong with a call, or what was asked for: help, the version. `check` has fsck's codes.
fn wrong_call(error: &clap::Error) -> ExitCode {
    let _unheard = error.print();
    let is_check = std::env::args_os().nth(1).is_some_and(|word| word == "check");
    match error.exit_code() {
        0 => ExitCode::SUCCESS,
        _ if is_check => ExitCode::from(check::WRONG_CALL),
        code => ExitCode::from(u8::try_from(code).unwrap_or(2)),
    }
}

/// Says why a command failed; whoever asked for JSON gets an object with `error` too.
fn fail(error: &anyhow::Error, json: bool) {
    if json {
        let _unheard = say!("{}", serde_json::json!({ "error": in_words(error) }));
    }
    tell(error);
}

fn tell(error: &anyhow::Error) {
    remark!("novale: {}", in_words(error));
}

fn print(line: Arguments<'_>) -> anyhow::Result<()> {
    writeln!(std::io::stdout().lock(), "{line}").context("writing to standard output")
}

fn mutter(line: Arguments<'_>) {
    let _unheard = writeln!(std::io::stderr().lock(), "{line}");
}

/// An error with all that led to it, on one line. Some errors say their cause themselves.
fn in_words(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if words.is_empty() {
            words = cause;
        } else if !words.contains(&cause) {
            words.push_str(": ");
            words.push_str(&cause);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    #[test]
    fn a_cause_is_said_once() {
        let error = anyhow!("no such device").context("/dev/x: open: no such device").context("a");
        assert_eq!(super::in_words(&error), "a: /dev/x: open: no such device");
    }
}
