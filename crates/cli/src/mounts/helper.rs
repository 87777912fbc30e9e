//! The mount helper: mount(8) runs `mount.fuse.novale SOURCE DIR [-sfnvrw] [-o OPTIONS] [-t TYPE]`.
//!
//! Exit codes are mount(8)'s: 1 for a wrong call, 32 for a mount that failed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use crate::base::args::MountArgs;
use crate::base::buffer::BufferArgs;
use crate::base::out::tell;
use crate::base::target;
use crate::base::words::Words;
use crate::mounts::mount;
use crate::pools::remaining;
use crate::pools::slots::{self, split_source};

const WRONG_CALL: u8 = 1;
const MOUNT_FAILED: u8 = 32;

/// Mounts a Novale pool for mount(8).
#[derive(Debug, Parser)]
#[command(name = "mount.fuse.novale", version)]
#[expect(clippy::struct_excessive_bools, reason = "mount(8) defines these flags")]
struct HelperArgs {
    /// The slots, separated by colons; by those that a slash follows where it begins with one.
    source: OsString,
    /// The mount point.
    dir: PathBuf,
    /// Mount options.
    #[arg(short = 'o')]
    options: Vec<String>,
    /// Pass over unknown options.
    #[arg(short = 's')]
    sloppy: bool,
    /// Check everything, mount nothing.
    #[arg(short = 'f')]
    fake: bool,
    /// Do not write /etc/mtab, which nobody does any more.
    #[arg(short = 'n')]
    no_mtab: bool,
    /// Say what is done.
    #[arg(short = 'v')]
    verbose: bool,
    /// Read-only, as -o ro.
    #[arg(short = 'r')]
    read_only: bool,
    /// For writing, as -o rw.
    #[arg(short = 'w')]
    read_write: bool,
    /// The type, which is ours.
    #[arg(short = 't')]
    kind: Option<String>,
    /// A mount namespace, which mount(8) has entered already.
    #[arg(short = 'N')]
    namespace: Option<String>,
}

pub(crate) fn main() -> ExitCode {
    let args = match HelperArgs::try_parse() {
        Ok(args) => args,
        Err(error) => {
            error.print().unwrap_or_default();
            return ExitCode::from(if error.use_stderr() { WRONG_CALL } else { 0 });
        }
    };
    run(args).unwrap_or_else(|error| {
        tell(&error);
        ExitCode::from(MOUNT_FAILED)
    })
}

fn run(args: HelperArgs) -> Result<ExitCode> {
    novale_posix::survive_failing_slots().context("handling SIGBUS")?;
    let mut words = args.options.join(",");
    if args.read_only {
        words.push_str(",ro");
    }
    if args.read_write {
        words.push_str(",rw");
    }
    if args.sloppy {
        let known: Vec<&str> = words.split(',').filter(|word| Words::parse(word).is_ok()).collect();
        words = known.join(",");
    }
    let is_remount = Words::parse(&words)?.options.remount;
    if args.verbose {
        let how = if args.fake { "would mount" } else { "mounting" };
        say!("novale: {how} {} on {}", args.source.display(), args.dir.display())?;
    }
    let mut paths = split_source(&args.source);
    if args.fake {
        if is_remount {
            novale_fuse::find(&args.dir)?;
        } else {
            slots::refuse_unnamed(&slots::absolute(&paths)?)?;
            if Words::parse(&words)?.options.read_only {
                remaining::find(&paths)?;
            } else {
                remaining::find_whole(&paths)?;
            }
            target::check(&args.dir)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    paths.push(args.dir);
    let failed = mount::run(&mount_args(paths, words))?;
    Ok(if failed == ExitCode::SUCCESS { failed } else { ExitCode::from(MOUNT_FAILED) })
}

fn mount_args(paths: Vec<PathBuf>, words: String) -> MountArgs {
    MountArgs {
        options: vec![words],
        foreground: false,
        grace: None,
        threads: None,
        form: None,
        method: None,
        placement: None,
        lawn_slot: None,
        mode: None,
        buffer: None,
        buffer_rules: BufferArgs::default(),
        device: None,
        populate: false,
        direct: false,
        map: None,
        arena_max: None,
        index_memory: None,
        pace: None,
        cold_after: None,
        log: None,
        quiet: false,
        daemon: false,
        paths,
    }
}
