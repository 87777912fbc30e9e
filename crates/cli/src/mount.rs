//! `novale mount`: the options checked, then served from here or from the background.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use novale_fuse::MountOptions;

use crate::args::MountArgs;
use crate::{background, daemon, remount, slots, target};

/// What to mount where, with all paths absolute.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) args: MountArgs,
    pub(crate) words: String,
    pub(crate) options: MountOptions,
    pub(crate) slots: Vec<PathBuf>,
    pub(crate) target: PathBuf,
}

pub(crate) fn run(args: &MountArgs) -> Result<ExitCode> {
    let words = args.options.join(",");
    let options = MountOptions::parse(&words)
        .map_err(|error| anyhow!("{error} (`novale mount --help` lists what there is)"))?;
    let Some((target, given)) = args.paths.split_last() else { bail!("name a directory") };
    if options.remount {
        remount::run(args, &words, target)?;
        return Ok(ExitCode::SUCCESS);
    }
    let request = request(given, target, args, words, options)?;
    if request.args.foreground || request.args.daemon {
        daemon::run(&request)?;
        return Ok(ExitCode::SUCCESS);
    }
    background::start(&request)
}

fn request(
    given: &[PathBuf],
    target: &Path,
    args: &MountArgs,
    words: String,
    options: MountOptions,
) -> Result<Request> {
    if given.is_empty() {
        bail!("{} is the only path: name the pool's slots, then a directory", target.display());
    }
    let target = target::prepare(target)?;
    Ok(Request { args: args.clone(), words, options, slots: slots::absolute(given)?, target })
}
