//! `novale check`: reads all of a pool and counts what is wrong; `repair` mends it on demand.

mod repair;

use std::process::ExitCode;

use anyhow::{Context, Result};
use novale_core::{CheckReport, check};
use novale_pm::PmOptions;
use serde::Serialize;

use crate::base::args::CheckArgs;
use crate::base::out::fail;
use crate::base::progress::{AllCpus, Bar};
use crate::holders::holder;
use crate::holders::patience::patiently_by;
use crate::pools::{remaining, slots};

const CLEAN: u8 = 0;
const REPAIRED: u8 = 1;
const ERRORS_LEFT: u8 = 4;
pub(crate) const CANNOT_RUN: u8 = 8;
/// The exit code of a call that is wrong.
pub(crate) const WRONG_CALL: u8 = 16;

/// What was found, as JSON shows it.
#[derive(Debug, Serialize)]
struct CheckFacts {
    errors: Vec<ErrorFacts>,
    errors_left_out: u64,
    clean: bool,
    inodes: u64,
    directories: u64,
    names: u64,
    log_entries: u64,
    pages_used: u64,
    pages: u64,
}

#[derive(Debug, Serialize)]
struct ErrorFacts {
    what: String,
    /// `slot:0xoffset`, or nothing where no one place is at fault.
    at: Option<String>,
}

pub(crate) fn run(args: &CheckArgs) -> ExitCode {
    let code = match args.repair {
        None => verify(args).and_then(|facts| {
            print(&facts, args.json)?;
            Ok(if facts.errors.is_empty() { CLEAN } else { ERRORS_LEFT })
        }),
        Some(effort) => repair::run(args, effort),
    };
    ExitCode::from(code.unwrap_or_else(|error| {
        fail(&error, args.json);
        CANNOT_RUN
    }))
}

fn verify(args: &CheckArgs) -> Result<CheckFacts> {
    let found = patiently_by(&args.slots, remaining::find)?;
    let _lock = holder::lock(&found.paths)?;
    for slot in &found.left_out {
        remark!("novale: {slot}");
    }
    let pm = found.open(PmOptions { read_only: true, ..PmOptions::default() })?;
    let bar = Bar::new();
    let report = check(&pm, &AllCpus, &|progress| bar.show(progress));
    Ok(facts(report.with_context(|| slots::shown(&found.paths))?))
}

fn facts(report: CheckReport) -> CheckFacts {
    let errors = report
        .findings
        .into_iter()
        .map(|finding| ErrorFacts { at: place(finding.at), what: finding.what });
    CheckFacts {
        errors: errors.collect(),
        errors_left_out: report.findings_left_out,
        clean: report.clean,
        inodes: report.inodes,
        directories: report.directories,
        names: report.names,
        log_entries: report.log_entries,
        pages_used: report.pages_used,
        pages: report.pages,
    }
}

/// An address, where there is one place.
fn place(at: novale_layout::PmAddr) -> Option<String> {
    (!at.is_null()).then(|| at.to_string())
}

fn print(facts: &CheckFacts, json: bool) -> Result<()> {
    if json { say!("{}", serde_json::to_string_pretty(facts)?) } else { show(facts) }
}

fn show(facts: &CheckFacts) -> Result<()> {
    for error in &facts.errors {
        match &error.at {
            Some(at) => say!("error: {} (at {at})", error.what)?,
            None => say!("error: {}", error.what)?,
        }
    }
    if !facts.clean {
        say!("the pool was not closed clean; it was checked as the next mount will recover it")?;
    }
    say!(
        "{} inodes ({} directories), {} names, {} log entries, {} of {} pages used",
        facts.inodes,
        facts.directories,
        facts.names,
        facts.log_entries,
        facts.pages_used,
        facts.pages
    )?;
    match facts.errors.len() as u64 + facts.errors_left_out {
        0 => say!("no errors"),
        count => say!("{count} errors"),
    }
}
