//! `novale mount`: the options checked, then served from here or from the background.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::base::args::MountArgs;
use crate::base::target;
use crate::base::words::Words;
use crate::mounts::{again, background, daemon, remount};
use crate::pools::slots;

/// What to mount where, with all paths absolute.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) args: MountArgs,
    pub(crate) words: Words,
    pub(crate) slots: Vec<PathBuf>,
    pub(crate) target: PathBuf,
}

pub(crate) fn run(args: &MountArgs) -> Result<ExitCode> {
    let words = Words::parse(&args.options.join(","))?;
    let Some((target, given)) = args.paths.split_last() else { bail!("name a directory") };
    if words.options.remount {
        remount::run(args, &words, target)?;
        return Ok(ExitCode::SUCCESS);
    }
    let request = request(given, target, args, words)?;
    if request.args.foreground || request.args.daemon {
        daemon::run(&request)?;
        return Ok(ExitCode::SUCCESS);
    }
    loop {
        if again::run(&request)? {
            return Ok(ExitCode::SUCCESS);
        }
        // It ends without one where another has mounted the pool meanwhile.
        if let Some(code) = background::start(&request)? {
            return Ok(code);
        }
    }
}

fn request(given: &[PathBuf], target: &Path, args: &MountArgs, words: Words) -> Result<Request> {
    if given.is_empty() {
        bail!("{} is the only path: name the pool's slots, then a directory", target.display());
    }
    let target = target::prepare(target)?;
    let mut args = args.clone();
    words.complete(&mut args);
    args.buffer_rules.rules()?;
    // The daemon leaves the directory that it was started in.
    args.log = args.log.map(std::path::absolute).transpose().context("the log's path")?;
    let slots = slots::absolute(given)?;
    slots::refuse_unnamed(&slots)?;
    Ok(Request { args, words, slots, target })
}
