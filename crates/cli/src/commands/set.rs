//! `novale set`, and what `novale info` says of files: how they are written.
//!
//! Through the mount, by the attributes that it keeps for this (`novale_fuse`, `method.rs`).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use novale_core::Mode;
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;
use serde::Serialize;

use crate::base::args::SetArgs;
use crate::base::out::{on_one_line, tell};
use crate::holders::patience::patiently;

const OWN: &str = "system.novale.method";
const DEFAULT: &str = "system.novale.default";
const OWN_MODE: &str = "system.novale.mode";
const DEFAULT_MODE: &str = "system.novale.default-mode";
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
    /// When its writes become durable, by its own choice or that of what is made in the directory.
    own_mode: Option<String>,
    /// By that of its mount; none of a mount without a mode, where all are durable at once.
    mount_mode: Option<String>,
}

pub(crate) fn run(args: &SetArgs) -> Result<()> {
    let paths: Vec<&Path> = args.paths.iter().map(PathBuf::as_path).collect();
    patiently(&paths, || choose_all(args))
}

/// Goes on behind a path that can't be chosen for, as chmod(1) does. The last error is the command's.
fn choose_all(args: &SetArgs) -> Result<()> {
    let mut failed = None;
    for path in &args.paths {
        if let Err(error) = choose_both(path, args)
            && let Some(before) = failed.replace(error)
        {
            tell(&before);
        }
    }
    failed.map_or(Ok(()), Err)
}

fn choose_both(path: &Path, args: &SetArgs) -> Result<()> {
    if let Some(method) = args.method {
        choose(path, OWN, method.0.map(|method| method.policy().name()))?;
    }
    if let Some(mode) = args.mode {
        choose(path, OWN_MODE, mode.0.map(|mode| mode.mode().name()))?;
    }
    Ok(())
}

fn choose(path: &Path, attribute: &str, name: Option<&str>) -> Result<()> {
    let set = match name {
        Some(name) => setxattr(path, attribute, name.as_bytes(), XattrFlags::empty()),
        None => removexattr(path, attribute),
    };
    match set {
        // There was no choice to take away.
        Err(Errno::NODATA) => Ok(()),
        // The answer of every other file system.
        Err(Errno::OPNOTSUPP) => anyhow::bail!("{}: not in a Novale mount", path.display()),
        Err(Errno::INVAL) if !is_written(path) => Err(no_choice(path)),
        set => {
            set.with_context(|| format!("{}: how it is written can't be chosen", path.display()))
        }
    }
}

fn no_choice(path: &Path) -> anyhow::Error {
    let path = path.display();
    anyhow::anyhow!("{path}: only files and directories have a choice of how they are written")
}

/// Whether a path is of a file with bytes, or of a directory, in which such may be made.
fn is_written(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() || metadata.is_dir())
}

/// Whether a path is in a mount.
pub(crate) fn is_in_mount(path: &Path) -> bool {
    get(path, DEFAULT).is_ok_and(|found| found.is_some())
}

/// What is said of paths in mounts; none where the first is something else.
pub(crate) fn chosen(paths: &[PathBuf]) -> Result<Option<Vec<FileFacts>>> {
    let Some(first) = paths.first() else { return Ok(None) };
    if !is_in_mount(first) {
        return Ok(None);
    }
    paths.iter().map(|path| facts(path)).collect::<Result<_>>().map(Some)
}

fn facts(path: &Path) -> Result<FileFacts> {
    let shown = || format!("{}: look for its method", path.display());
    if !is_written(path) {
        return Err(no_choice(path));
    }
    let mount_method = get(path, DEFAULT).with_context(shown)?;
    Ok(FileFacts {
        path: path.display().to_string(),
        own_method: get(path, OWN).with_context(shown)?,
        mount_method: mount_method
            .with_context(|| format!("{}: not in a Novale mount", path.display()))?,
        own_mode: get(path, OWN_MODE).with_context(shown)?,
        mount_mode: get(path, DEFAULT_MODE).with_context(shown)?,
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
        let path = on_one_line(&file.path);
        match &file.own_method {
            Some(own) => say!("{path}: written by {own}, its own choice")?,
            None => say!("{path}: written by {}, the mount's default", file.mount_method)?,
        }
        match (&file.own_mode, &file.mount_mode) {
            (Some(own), Some(_)) => say!("{path}: {own}, its own choice")?,
            (None, Some(mode)) => say!("{path}: {mode}, the mount's default")?,
            (Some(own), None) if own == Mode::Strict.name() => {
                say!("{path}: strict, its own choice")?;
            }
            (Some(own), None) => say!(
                "{path}: strict, for the mount has no mode; its own choice, {own}, counts in one that has \
                 (-o mode=strict or buffered)"
            )?,
            (None, None) => say!("{path}: strict, for the mount has no mode")?,
        }
    }
    Ok(())
}
