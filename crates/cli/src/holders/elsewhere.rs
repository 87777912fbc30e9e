//! Copies of a mount in other mount namespaces, which keep its daemon at work when it is unmounted
//! here.
//!
//! A namespace lives for as long as a thread is in it, something has a descriptor of it, or it is bound to a file.
//! Of one that no thread is in the kernel shows no mount table: who might keep such ones is named.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use novale_fuse::MountTable;

use crate::base::out::shown_path;
use crate::holders::servers::processes;
use crate::holders::users;

/// Threads of a namespace that are asked for its mounts: one may have changed its root, and see few.
const ASKED_MAX: usize = 8;
/// Namespaces, and processes of each, that are named.
const SHOWN_MAX: usize = 3;
/// How the name of a mount namespace begins, and the file system that has it.
const NAMESPACE: &str = "mnt:[";
const NAMESPACES: &str = "nsfs";

/// The mount namespaces that there are, as far as the caller may look into processes.
#[derive(Debug)]
pub(crate) struct Namespaces {
    own: Option<OsString>,
    /// By name; the processes of each, with a thread of theirs that is in it.
    others: BTreeMap<OsString, BTreeMap<u32, u32>>,
}

/// A mount namespace with a copy.
#[derive(Debug)]
pub(crate) struct Copy {
    target: PathBuf,
    processes: Vec<u32>,
}

/// What keeps mount namespaces that no process is seen in, the youngest first: these are no older than the mount.
#[derive(Debug)]
pub(crate) struct Keepers {
    processes: Vec<u32>,
    files: Vec<PathBuf>,
}

impl Namespaces {
    /// Looks at each thread: one of a process may be in another namespace than the others.
    pub(crate) fn look() -> Self {
        let name = |task: &Path| Some(fs::read_link(task.join("ns/mnt")).ok()?.into_os_string());
        let own = name(Path::new("/proc/thread-self"));
        let mut others: BTreeMap<OsString, BTreeMap<u32, u32>> = BTreeMap::new();
        for pid in processes() {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            for task in tasks {
                if let Some(other) = name(&task.path()).filter(|other| Some(other) != own.as_ref())
                    && let Some(thread) = number(&task.file_name())
                {
                    others.entry(other).or_default().entry(pid).or_insert(thread);
                }
            }
        }
        Self { own, others }
    }

    /// The other ones that have a mount with this device number.
    pub(crate) fn copies(&self, device: (u32, u32)) -> Vec<Copy> {
        let copy = |tasks: &BTreeMap<u32, u32>| {
            let target = tasks.values().take(ASKED_MAX).find_map(|thread| {
                Some(MountTable::of_process(*thread).ok()?.of_device(device)?.target.clone())
            })?;
            Some(Copy { target, processes: tasks.keys().copied().collect() })
        };
        self.others.values().filter_map(copy).collect()
    }

    /// Who has a descriptor of a namespace that no process is seen in, and where one is bound in this namespace.
    pub(crate) fn keepers(&self) -> Keepers {
        let is_left = |name: &OsStr| {
            name.as_encoded_bytes().starts_with(NAMESPACE.as_bytes())
                && self.own.as_deref() != Some(name)
                && !self.others.contains_key(name)
        };
        let has_one = |pid: &u32| {
            let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            // Not followed: what is behind another one may never answer.
            open.into_iter().any(|descriptor| {
                fs::read_link(descriptor.path()).is_ok_and(|to| is_left(to.as_os_str()))
            })
        };
        let mut others: Vec<u32> = processes().filter(|pid| *pid != std::process::id()).collect();
        others.sort_unstable_by(|one, other| other.cmp(one));
        others.retain(has_one);
        let table = MountTable::read().ok();
        let bound = table.iter().flat_map(|table| table.of_kind(NAMESPACES));
        let bound = bound.filter(|entry| is_left(entry.root.as_os_str()));
        let mut files: Vec<PathBuf> = bound.map(|entry| entry.target.clone()).collect();
        files.reverse();
        Keepers { processes: others, files }
    }
}

fn number(name: &OsStr) -> Option<u32> {
    name.to_str()?.parse().ok()
}

/// Who has the copies, in words.
pub(crate) fn shown(copies: &[Copy]) -> String {
    let copies: Vec<String> = copies.iter().map(Copy::shown).collect();
    first(&copies, "namespaces").join(", and ")
}

impl Copy {
    fn shown(&self) -> String {
        format!("at {} for {}", shown_path(&self.target), named(&self.processes))
    }
}

impl Keepers {
    /// Where such namespaces are; none where none is seen.
    pub(crate) fn shown(&self) -> Option<String> {
        let mut words = Vec::new();
        if !self.processes.is_empty() {
            words.push(format!("open in {}", named(&self.processes)));
        }
        let files: Vec<String> = self.files.iter().map(|file| shown_path(file)).collect();
        if !files.is_empty() {
            words.push(format!("mounted at {}", first(&files, "places").join(", ")));
        }
        (!words.is_empty()).then(|| words.join(", and "))
    }
}

/// Processes by number and name.
fn named(processes: &[u32]) -> String {
    let many = if processes.len() > 1 { "processes" } else { "process" };
    let named = processes.iter().take(SHOWN_MAX).copied().map(users::with_name);
    let named: Vec<String> = named.collect();
    let more = processes.len().saturating_sub(SHOWN_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{many} {}{more}", named.join(", "))
}

/// As many as are named, and how many more there are.
fn first(words: &[String], what: &str) -> Vec<String> {
    let mut first: Vec<String> = words.iter().take(SHOWN_MAX).cloned().collect();
    let more = words.len().saturating_sub(SHOWN_MAX);
    if more > 0 {
        first.push(format!("{more} {what} more"));
    }
    first
}
