//! `novale install-helper`: the link by which mount(8) finds this program.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::HELPER_NAME;
use crate::base::args::InstallArgs;

/// Where mount(8) looks for helpers; one of them is a link to the other on most systems.
const LOOKED_AT: [&str; 2] = ["/sbin", "/usr/sbin"];

pub(crate) fn run(args: &InstallArgs) -> Result<()> {
    let program = std::env::current_exe().context("finding this program")?;
    let link = args.dir.join(HELPER_NAME);
    if let Some(old) = what_is_there(&link)? {
        if old == program {
            say!("{} is this program already", link.display())?;
            return Ok(());
        }
        if !args.force {
            bail!("{} is there already, for {}: give --force", link.display(), old.display());
        }
        fs::remove_file(&link).with_context(|| format!("replacing {}", link.display()))?;
    }
    symlink(&program, &link).with_context(|| {
        format!("linking {} (as root, or with --dir to a directory of yours)", link.display())
    })?;
    say!("linked {} to {}", link.display(), program.display())?;
    if is_looked_at(&args.dir) {
        say!("now works: mount -t fuse.novale SLOT[:SLOT...] DIR")?;
    } else {
        say!("mount(8) does not look in {}: it finds helpers in /sbin", args.dir.display())?;
    }
    Ok(())
}

/// Whether mount(8) finds helpers in a directory.
fn is_looked_at(dir: &Path) -> bool {
    let dir = dir.canonicalize().ok();
    LOOKED_AT.iter().any(|other| dir.is_some() && fs::canonicalize(other).ok() == dir)
}

/// Where a link leads, or the path itself where it is none.
fn what_is_there(link: &Path) -> Result<Option<PathBuf>> {
    match fs::symlink_metadata(link) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| link.display().to_string()),
        Ok(found) if found.is_symlink() => Ok(Some(fs::read_link(link)?)),
        Ok(_) => Ok(Some(link.to_owned())),
    }
}
