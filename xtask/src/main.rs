//! `cargo xtask`: the checks of Novale's own source tree that no lint makes.

#![allow(clippy::print_stdout, reason = "a command-line program")]

use std::path::Path;
use std::process::ExitCode;

mod header;
mod rooms;
mod tidy;

const USAGE: &str = "\
Usage: cargo xtask tidy|header|rooms [CHECKOUT]

tidy    check lengths, forbidden calls, crate arrows and the paths named in docs
header  make novale.h of the declarations in crates/capi
rooms   count the files of core by room, and the largest circle of them, here or in another checkout";

fn main() -> anyhow::Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
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
