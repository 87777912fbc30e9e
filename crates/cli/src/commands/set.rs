//! `novale set`, and what `novale info` says of files: how they are written.
//!
//! Through the mount, by the attributes that it keeps for this (`novale_fuse`, `method.rs`).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;
use serde::Serialize;

use crate::base::args::SetArgs;

const OWN: &str = "system.novale.method";
const DEFAULT: &str = "system.novale.default";
/// Room for the name of any method.
const NAME_BYTES_MAX: usize = 64;

/// How a file is written, as JSON shows it.
#[derive(Debug, Serialize)]
pub(crate) struct FileFacts {
    path: String,
    /// The file's own method, or that of what is made in the directory.
    own_method: Option<String>,
    /// That of its mount.
    mount_method: String,
}

pub(crate) fn run(args: &SetArgs) -> Result<()> {
    for path in &args.paths {
        let set = match args.method.0 {
            Some(method) => {
                setxattr(path, OWN, method.policy().name().as_bytes(), XattrFlags::empty())
            }
            None => removexattr(path, OWN),
        };
        match set {
            // There was no choice to take away.
            Err(Errno::NODATA) => {}
            // The answer of every other file system.
            Err(Errno::OPNOTSUPP) => anyhow::bail!("{}: not in a Novale mount", path.display()),
            set => set.with_context(|| format!("{}: choose a method", path.display()))?,
        }
    }
    Ok(())
}

/// What is said of paths in mounts; none where the first is something else.
pub(crate) fn chosen(paths: &[PathBuf]) -> Result<Option<Vec<FileFacts>>> {
    let Some(first) = paths.first() else { return Ok(None) };
    if get(first, DEFAULT).unwrap_or_default().is_none() {
        return Ok(None);
    }
    paths.iter().map(|path| facts(path)).collect::<Result<_>>().map(Some)
}

fn facts(path: &Path) -> Result<FileFacts> {
    let shown = || format!("{}: look for its method", path.display());
    let mount_method = get(path, DEFAULT).with_context(shown)?;
    Ok(FileFacts {
        path: path.display().to_string(),
        own_method: get(path, OWN).with_context(shown)?,
        mount_method: mount_method
            .with_context(|| format!("{}: not in a Novale mount", path.display()))?,
    })
}

/// An attribute's text; none where it is not there, as on other file systems.
fn get(path: &Path, name: &str) -> Result<Option<String>, Errno> {
    let mut value = vec![0; NAME_BYTES_MAX];
    match getxattr(path, name, &mut value) {
        Ok(len) => {
            value.truncate(len);
            Ok(Some(String::from_utf8_lossy(&value).into_owned()))
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn show(files: &[FileFacts], json: bool) -> Result<()> {
    if json {
        return say!("{}", serde_json::to_string_pretty(files)?);
    }
    for file in files {
        match &file.own_method {
            Some(own) => say!("{}: written by {own}, its own choice", file.path)?,
            None => say!("{}: written by {}, the mount's choice", file.path, file.mount_method)?,
        }
    }
    Ok(())
}
