//! Copies of a mount in other mount namespaces, which keep its daemon at work when it is unmounted
//! here.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use novale_fuse::MountTable;

use crate::base::out::shown_path;
use crate::holders::servers::processes;
use crate::holders::users;

/// Processes of a namespace that are asked for its mounts: one may have changed its root, and see few.
const ASKED_MAX: usize = 8;
/// Namespaces, and processes of each, that are named.
const SHOWN_MAX: usize = 3;

/// A mount namespace with a copy.
#[derive(Debug)]
pub(crate) struct Copy {
    target: PathBuf,
    processes: Vec<u32>,
}

/// The other namespaces that have a mount with this device number, as far as the caller may look into
/// their processes; of one that no process is in nothing is seen.
pub(crate) fn copies(device: (u32, u32)) -> Vec<Copy> {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let own = namespace("self");
    let mut others: BTreeMap<PathBuf, Vec<u32>> = BTreeMap::new();
    for pid in processes() {
        if let Some(other) = namespace(&pid.to_string()).filter(|other| Some(other) != own.as_ref())
        {
            others.entry(other).or_default().push(pid);
        }
    }
    let copy = |processes: Vec<u32>| {
        let target = processes.iter().take(ASKED_MAX).find_map(|pid| {
            Some(MountTable::of_process(*pid).ok()?.of_device(device)?.target.clone())
        })?;
        Some(Copy { target, processes })
    };
    others.into_values().filter_map(copy).collect()
}

/// Who has the copies, in words.
pub(crate) fn shown(copies: &[Copy]) -> String {
    let mut words: Vec<String> = copies.iter().take(SHOWN_MAX).map(Copy::shown).collect();
    if copies.len() > SHOWN_MAX {
        words.push(format!("{} namespaces more", copies.len() - SHOWN_MAX));
    }
    words.join(", and ")
}

impl Copy {
    fn shown(&self) -> String {
        let first = self.processes.iter().take(SHOWN_MAX).copied();
        let first: Vec<String> = first.map(users::with_name).collect();
        let more = self.processes.len().saturating_sub(SHOWN_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let many = if self.processes.len() > 1 { "processes" } else { "process" };
        format!("at {} for {many} {}{more}", shown_path(&self.target), first.join(", "))
    }
}
