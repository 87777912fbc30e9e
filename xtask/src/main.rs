//! `cargo xtask`: the checks of Novale's own source tree that no lint makes.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::path::Path;
use std::process::ExitCode;

mod decisions;
mod header;
mod rooms;
mod tidy;

const USAGE: &str = "\
Usage: cargo xtask tidy|header|rooms [CHECKOUT]|decisions [--help]

tidy    check lengths, forbidden calls, crate arrows and the paths named in docs
header  make novale.h of the declarations in crates/capi
rooms   count the files of core by room, and the largest circle of them, here or in another checkout
decisions  change decisions of core and arena, one at a time, and see which tests notice";

fn main() -> anyhow::Result<ExitCode> {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if(|command| command == "decisions").is_some() {
        if arguments.peek().is_some_and(|word| word == "--help") {
            println!("{}", decisions::USAGE);
            return Ok(ExitCode::SUCCESS);
        }
        decisions::run(workspace_root(), &decisions::Options::parse(arguments)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (Some(command), place, None) = (arguments.next(), arguments.next(), arguments.next())
    else {
        println!("{USAGE}");
        return Ok(ExitCode::from(2));
    };
    if place.is_some() && command != "rooms" {
        println!("{USAGE}");
        return Ok(ExitCode::from(2));
    }
    match command.as_str() {
        "tidy" => tidy_tree(),
        "header" => {
            header::write(workspace_root())?;
            Ok(ExitCode::SUCCESS)
        }
        "rooms" => {
            rooms::print(place.as_deref().map_or(workspace_root(), Path::new))?;
            Ok(ExitCode::SUCCESS)
        }
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        other => {
            println!("no such command: {other}\n\n{USAGE}");
            Ok(ExitCode::from(2))
        }
    }
}

fn tidy_tree() -> anyhow::Result<ExitCode> {
    let report = tidy::check(workspace_root())?;
    for note in &report.notes {
        println!("note: {note}");
    }
    for finding in &report.findings {
        println!("{finding}");
    }
    println!(
        "tidy: {} files, {} findings, {} notes",
        report.files,
        report.findings.len(),
        report.notes.len()
    );
    Ok(if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The folder that holds the workspace's Cargo.toml.
fn workspace_root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}
