//! `novale check --repair`: what a repair would do, on a scratch mapping of the slots; the question;
//! and the repair itself.

use std::fs::{DirBuilder, File};
use std::io::{IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use novale_core::Error;
use novale_core::repair::{Effort, Help, RepairReport, SavedPiece, repair};
use novale_pm::PmOptions;
use novale_posix::process_owner;
use rustix::fs::{Mode, OFlags, openat};
use serde::Serialize;

use super::{CANNOT_RUN, CLEAN, CheckFacts, ERRORS_LEFT, REPAIRED, WRONG_CALL, facts, place, show};
use crate::base::args::{CheckArgs, EffortArg};
use crate::base::progress::{AllCpus, Bar};
use crate::holders::holder;
use crate::holders::patience::patiently_by;
use crate::pools::locked::follow;
use crate::pools::{remaining, slots};

/// What a repair did, as JSON shows it.
#[derive(Debug, Serialize)]
struct Done {
    dry_run: bool,
    changes: Vec<ChangeFacts>,
    needs_salvage: Vec<String>,
    beyond_repair: Vec<String>,
    left: CheckFacts,
}

#[derive(Debug, Serialize)]
struct ChangeFacts {
    what: String,
    at: Option<String>,
    gives_up: bool,
}

pub(super) fn run(args: &CheckArgs, effort: EffortArg) -> Result<u8> {
    if effort == EffortArg::Salvage && args.save.is_none() && !args.dry_run {
        remark!("novale: --repair=salvage needs --save DIR, where it keeps what it gives up");
        return Ok(WRONG_CALL);
    }
    let effort = match effort {
        EffortArg::Safe => Effort::Safe,
        EffortArg::Salvage => Effort::Salvage,
    };
    let found = patiently_by(&args.slots, remaining::find_whole)?;
    let lock = holder::lock(&found.paths)?;
    if found.arena()?.has_left_behind()? && !args.dry_run {
        bail!(
            "{}: programs that were killed have left bytes that are not in the pool yet: mount it once, which \
             writes them back, and repair it then",
            slots::shown(&found.paths)
        );
    }
    let only = lock.files()?;
    let trial = PmOptions { scratch: true, only: only.clone(), ..PmOptions::default() };
    let planned = once(&found.paths, trial, effort, &mut |_| Ok(()))
        .with_context(|| slots::shown(&found.paths))?;
    if planned.changes.is_empty() || args.dry_run {
        let code = code(&planned, args.dry_run);
        print(planned, true, args.json)?;
        return Ok(code);
    }
    if !args.yes && !may(&planned)? {
        return Ok(CANNOT_RUN);
    }
    let mut keep = |piece: &SavedPiece<'_>| match &args.save {
        Some(dir) => save(dir, piece).map_err(|error| format!("{error:#}")),
        None => Ok(()),
    };
    let real = PmOptions { only, ..PmOptions::default() };
    let done =
        once(&found.paths, real, effort, &mut keep).with_context(|| slots::shown(&found.paths))?;
    let code = code(&done, false);
    print(done, false, args.json)?;
    Ok(code)
}

fn once(
    paths: &[PathBuf],
    options: PmOptions,
    effort: Effort,
    keep: &mut dyn FnMut(&SavedPiece<'_>) -> Result<(), String>,
) -> Result<RepairReport> {
    let pm = slots::open(paths, options)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let bar = Bar::new();
    let mut help = Help {
        exec: &AllCpus,
        progress: &|progress| bar.show(progress),
        keep,
        now_ns: i64::try_from(now.as_nanos()).unwrap_or(i64::MAX),
        owner: process_owner(),
    };
    let done = repair(&pm, effort, &mut help);
    if let Err(error @ Error::NoSpace) = &done {
        bail!(
            "{error}: files that have pages of others get copies of their own, for which too few pages are free; copy \
             all that can be read from a mount with -o ro, and mount the pool for writing no more before that: to \
             remove or change one of these files takes pages from others"
        );
    }
    Ok(done?)
}

fn code(report: &RepairReport, dry_run: bool) -> u8 {
    let is_whole = report.left.findings.is_empty();
    match (report.changes.is_empty(), is_whole) {
        (true, true) => CLEAN,
        (false, true) if !dry_run => REPAIRED,
        _ => ERRORS_LEFT,
    }
}

/// Asks whether to do what was planned.
fn may(planned: &RepairReport) -> Result<bool> {
    let (input, errors) = (std::io::stdin(), std::io::stderr());
    if !input.is_terminal() || !errors.is_terminal() {
        bail!("nobody can be asked: --dry-run shows what a repair would do, --yes does it");
    }
    for change in &planned.changes {
        remark!("{}", words(&change.what, change.is_loss));
    }
    write!(errors.lock(), "Do this to the pool? [y/N] ").context("asking")?;
    let mut answer = String::new();
    input.read_line(&mut answer).context("the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn words(what: &str, gives_up: bool) -> String {
    format!("{}: {what}", if gives_up { "gives up" } else { "mends" })
}

/// Keeps a piece as a file named after its inode and place. What an earlier repair has kept under that name stays, and the
/// piece gets a number.
fn save(dir: &Path, piece: &SavedPiece<'_>) -> Result<()> {
    let own = rustix::process::geteuid().as_raw();
    let shown = || dir.display().to_string();
    let whole = std::path::absolute(dir).with_context(shown)?;
    // Nothing is made where another user's link leads by now; what is kept is kept where none leads later, either.
    if let Some(there) = whole.ancestors().find(|path| path.symlink_metadata().is_ok()) {
        follow(there)?;
    }
    DirBuilder::new().recursive(true).mode(0o700).create(&whole).with_context(shown)?;
    let opened = follow(&whole)?;
    let folder = opened.metadata().with_context(shown)?;
    if ![0, own].contains(&folder.uid()) || folder.mode() & 0o1002 == 0o002 {
        bail!(
            "{}: others may write there, and what is kept is of all users: name another one",
            shown()
        );
    }
    let name = format!("inode-{}-slot-{}-{:#x}", piece.ino, piece.at.slot(), piece.at.byte());
    let names = std::iter::once(name.clone()).chain((2..).map(|number| format!("{name}.{number}")));
    for name in names {
        let path = dir.join(&name);
        if save_as(&opened, &name, piece.bytes).with_context(|| path.display().to_string())? {
            break;
        }
    }
    Ok(())
}

/// Writes a file, durably; false where there is one with other bytes.
fn save_as(folder: &impl AsFd, name: &str, bytes: &[u8]) -> Result<bool> {
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?);
    let found = file.metadata()?;
    if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() || found.nlink() > 1 {
        bail!("it is no file of an earlier call: name another folder");
    }
    // A call that was cut off has left a part of it.
    let mut there = Vec::new();
    (&mut file).take(bytes.len() as u64 + 1).read_to_end(&mut there)?;
    let Some(rest) = bytes.strip_prefix(there.as_slice()) else { return Ok(false) };
    file.write_all(rest)?;
    file.sync_all()?;
    Ok(true)
}

fn print(report: RepairReport, dry_run: bool, json: bool) -> Result<()> {
    let change = |change: novale_core::repair::Change| ChangeFacts {
        what: change.what,
        at: place(change.at),
        gives_up: change.is_loss,
    };
    let done = Done {
        dry_run,
        changes: report.changes.into_iter().map(change).collect(),
        needs_salvage: report.needs_salvage,
        beyond_repair: report.beyond,
        left: facts(report.left),
    };
    if json {
        return say!("{}", serde_json::to_string_pretty(&done)?);
    }
    for change in &done.changes {
        say!("{}", words(&change.what, change.gives_up))?;
    }
    for what in &done.needs_salvage {
        say!("needs --repair=salvage: {what}")?;
    }
    for what in &done.beyond_repair {
        say!("beyond repair: {what}")?;
    }
    if done.dry_run && !done.changes.is_empty() {
        say!("nothing was changed; a check behind this repair would say:")?;
    }
    show(&done.left)
}
