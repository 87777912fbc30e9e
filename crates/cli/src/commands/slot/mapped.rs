//! Files whose own pages programs have mapped, which a slot that leaves waits for: which they are, and who is to
//! close them. The mount's daemon knows them by their numbers; their names are looked for in the mount, as far as
//! the caller may see them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::Result;
use novale_fuse::MountEntry;
use serde::Serialize;

use crate::base::out::on_one_line;
use crate::holders::ask;
use crate::holders::facts::MappedFile;
use crate::holders::users;
use crate::pools::slots::Found;

/// Names that are looked at.
const NAMES_MAX: u64 = 1 << 20;

/// A file that is waited for, as JSON shows it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct WaitedFor {
    inode: u64,
    /// Where it was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    processes: Vec<u32>,
}

/// Those that a mount of the pool says.
pub(super) fn waited_for(found: &Found) -> Vec<WaitedFor> {
    let Some(first) = found.paths.first() else { return Vec::new() };
    let Some((mount, facts)) = ask::facts_of_pool(first) else { return Vec::new() };
    let files = facts.waited_for;
    let mut paths = paths_of(&mount, &files);
    let known = |MappedFile { inode, processes }| WaitedFor {
        inode,
        path: paths.remove(&inode).map(|path| path.display().to_string()),
        processes,
    };
    files.into_iter().map(known).collect()
}

/// A path of each file, by its number, as far as they are found.
fn paths_of(mount: &MountEntry, files: &[MappedFile]) -> BTreeMap<u64, PathBuf> {
    let (mut found, mut seen) = (BTreeMap::new(), 0);
    let device = |path: &Path| fs::symlink_metadata(path).map(|folder| folder.dev());
    let (mut folders, Ok(own)) = (vec![mount.target.clone()], device(&mount.target)) else {
        return found;
    };
    while let Some(folder) = folders.pop() {
        // One that is removed meanwhile, or not for the caller; or where something else is mounted.
        if found.len() == files.len() || device(&folder).ok() != Some(own) {
            continue;
        }
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            seen += 1;
            if seen > NAMES_MAX {
                return found;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            } else if files.iter().any(|file| file.inode == entry.ino()) {
                found.insert(entry.ino(), entry.path());
            }
        }
    }
    found
}

impl WaitedFor {
    pub(super) fn show(&self) -> Result<()> {
        let number = format!("inode {}", self.inode);
        let file = self.path.as_ref().map_or(number, |path| on_one_line(path));
        let by: Vec<String> = self.processes.iter().copied().map(users::with_name).collect();
        say!("          waits for {file}, mapped by process {}", by.join(", "))
    }
}
