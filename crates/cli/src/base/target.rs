//! The directory to mount on.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use novale_fuse::detach_dead;

/// The directory's own path; mounts there whose daemons are gone are detached, and that is said.
pub(crate) fn prepare(target: &Path) -> Result<PathBuf> {
    let dead = detach_dead(target)?;
    if dead > 0 {
        let shown = target.display();
        remark!("novale: {shown}: the daemon of an earlier mount is gone; detached the dead mount");
    }
    check(target)
}

/// Refuses what is no directory to mount on; returns the directory's own path.
pub(crate) fn check(target: &Path) -> Result<PathBuf> {
    let shown =
        || format!("cannot mount on {}: it has to be a directory that is there", target.display());
    let path = target.canonicalize().with_context(shown)?;
    if !path.is_dir() {
        bail!("cannot mount on {}: not a directory", target.display());
    }
    Ok(path)
}
