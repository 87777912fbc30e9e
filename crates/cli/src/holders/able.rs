//! Whether processes that have a pool open will be able to open the file of a slot that is to be added, by the kernel's
//! word on them as they are. They do so themselves, when they next do something in the pool. Where the kernel does not
//! say, the answer is no.
//!
//! Asked by the command before anything is changed, and by the daemon under the lock under which clients come and go.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

use crate::holders::users;

/// Capabilities by which permissions are passed over: for all, and for looking and searching.
const DAC_OVERRIDE: u64 = 1 << 1;
const DAC_READ_SEARCH: u64 = 1 << 2;
const SEARCH: u32 = 0o1;
const READ_AND_WRITE: u32 = 0o6;
/// Address space that a process is to have left beyond the slot.
const SPARE_BYTES: u64 = 64 << 20;
/// Descriptors that it is to have left.
const SPARE_DESCRIPTORS: u64 = 2;

/// A process that may not be able to, and why.
#[derive(Debug)]
pub(crate) struct Unable {
    pub(crate) process: u32,
    pub(crate) why: String,
}

impl std::fmt::Display for Unable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} {}", users::with_name(self.process), self.why)
    }
}

/// The file of a slot, and where it is to be found; one that is yet to be made is its folder with a length.
#[derive(Debug)]
pub(crate) struct ComingFile<'a> {
    pub(crate) path: &'a Path,
    pub(crate) found: Metadata,
    pub(crate) bytes: u64,
    /// Whose owner and mode it gets, where it is yet to be made.
    pub(crate) like: Option<Metadata>,
}

/// Those of the processes that may not be able to open the file; this one is not asked.
pub(crate) fn unable(processes: &[u32], file: &ComingFile<'_>) -> Vec<Unable> {
    let others = processes.iter().filter(|process| **process != std::process::id());
    let judged = others.map(|process| (*process, judge(*process, file)));
    judged.filter_map(|(process, able)| Some(Unable { process, why: able.err()? })).collect()
}

/// Why one may not, in words that go on after its name.
fn judge(process: u32, file: &ComingFile<'_>) -> Result<(), String> {
    let unknown = |_| "does not let anybody look at what it may open".to_owned();
    let tasks = fs::read_dir(format!("/proc/{process}/task")).map_err(unknown)?;
    let mut has_looked = false;
    for task in tasks.flatten().map(|task| task.path()) {
        // What it has open, all of its threads have.
        let has_room = if has_looked { Ok(()) } else { has_room(&task, file.bytes) };
        match has_room.and_then(|()| judge_task(&task, file)) {
            Err(_) if has_ended(&task) => {}
            judged => {
                judged?;
                has_looked = true;
            }
        }
    }
    Ok(())
}

/// Whether a task has ended: it opens nothing any more. A first thread that has is there as long as others are, and
/// shows neither what it had open nor where its root was.
fn has_ended(task: &Path) -> bool {
    let status = fs::read_to_string(task.join("status"));
    status
        .map_or(true, |status| field(&status, "State").is_none_or(|it| it.starts_with(['Z', 'X'])))
}

fn judge_task(task: &Path, file: &ComingFile<'_>) -> Result<(), String> {
    let own = Path::new("/proc/thread-self");
    let same =
        |name: &str| fs::read_link(task.join(name)).ok() == fs::read_link(own.join(name)).ok();
    if !same("ns/user") {
        return Err("is in another user namespace".to_owned());
    }
    let label = |of: &Path| fs::read(of.join("attr/current")).ok();
    if label(task) != label(own) {
        return Err("is under other rules of a security module".to_owned());
    }
    let [found, ours] = [task, own].map(|of| fs::read_to_string(of.join("status")));
    let unknown = |_| "does not let anybody look at what it may open".to_owned();
    let (found, ours) = (found.map_err(unknown)?, ours.map_err(unknown)?);
    let filters = |text: &str| [field(text, "Seccomp"), field(text, "Seccomp_filters")];
    if filters(&found) != filters(&ours) {
        return Err("is under a filter of system calls".to_owned());
    }
    let user = User::of(&found).ok_or("does not say whose rights it has")?;
    reaches(task, &user, file)
}

/// The value of a field of `/proc/PID/status`.
fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(|value| value.trim().to_owned())
}

/// Whose rights a task has when it opens files.
struct User {
    id: u32,
    groups: Vec<u32>,
    capabilities: u64,
}

impl User {
    fn of(status: &str) -> Option<Self> {
        // Real, effective, saved, and that for files.
        let last = |name: &str| field(status, name)?.split_whitespace().nth(3)?.parse().ok();
        let more = field(status, "Groups")?;
        let more = more.split_whitespace().flat_map(str::parse);
        let groups = std::iter::once(last("Gid")?).chain(more).collect();
        let capabilities = u64::from_str_radix(&field(status, "CapEff")?, 16).ok()?;
        Some(Self { id: last("Uid")?, groups, capabilities })
    }

    /// Whether it may do all that is asked, by the bits of the file's mode alone.
    fn may(&self, asked: u32, of: &Metadata, has_acl: bool) -> bool {
        let by_capability = self.capabilities & DAC_OVERRIDE != 0
            || asked == SEARCH && self.capabilities & DAC_READ_SEARCH != 0;
        let shift = if self.id == of.uid() {
            6
        } else if has_acl {
            // Who else may is said in it.
            return by_capability;
        } else if self.groups.contains(&of.gid()) {
            3
        } else {
            0
        };
        by_capability || of.mode() >> shift & asked == asked
    }
}

/// Whether a task finds the file at its path, by its own root and mounts, and may open it.
fn reaches(task: &Path, user: &User, file: &ComingFile<'_>) -> Result<(), String> {
    let shown = file.path.display();
    let elsewhere = || format!("does not find {shown} where it is here");
    let mut at = task.join("root");
    let mut there = fs::metadata(at.join(".")).map_err(|_| elsewhere())?;
    for component in file.path.components() {
        let Component::Normal(name) = component else { continue };
        if !there.is_dir() || !user.may(SEARCH, &there, has_acl(&at)) {
            return Err(format!("may not look for {shown}"));
        }
        at.push(name);
        there = fs::symlink_metadata(&at).map_err(|_| elsewhere())?;
    }
    if (there.dev(), there.ino()) != (file.found.dev(), file.found.ino()) {
        return Err(elsewhere());
    }
    if !there.is_dir() {
        let may = user.may(READ_AND_WRITE, &there, has_acl(&at));
        return if may { Ok(()) } else { Err(format!("may not open {shown}")) };
    }
    let may_open = file.like.as_ref().is_none_or(|like| user.may(READ_AND_WRITE, like, false));
    if may_open && user.may(SEARCH, &there, has_acl(&at)) {
        return Ok(());
    }
    Err(format!("may not open what is made in {shown}"))
}

fn has_acl(at: &Path) -> bool {
    rustix::fs::getxattr(at, "system.posix_acl_access", &mut [0u8; 0][..]).is_ok()
}

/// Whether the process of a task has a descriptor and address space left.
fn has_room(of: &Path, bytes: u64) -> Result<(), String> {
    let unknown = |_| "does not let anybody look at what it has open".to_owned();
    let limits = fs::read_to_string(of.join("limits")).map_err(unknown)?;
    let soft = |name: &str| -> Option<u64> {
        let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let open = fs::read_dir(of.join("fd")).map_err(unknown)?.count() as u64;
    if soft("Max open files").is_some_and(|most| open + SPARE_DESCRIPTORS > most) {
        return Err("has no descriptor left".to_owned());
    }
    let Some(most) = soft("Max address space") else { return Ok(()) };
    let status = fs::read_to_string(of.join("status")).map_err(unknown)?;
    let used = field(&status, "VmSize")
        .and_then(|size| size.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024));
    match used {
        Some(used) if used + bytes + SPARE_BYTES <= most => Ok(()),
        _ => Err("has no address space left".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: u32, groups: &[u32], capabilities: u64) -> User {
        User { id, groups: groups.to_vec(), capabilities }
    }

    #[test]
    fn rights_are_those_of_the_first_class_that_a_user_is_in() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let set = |mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            fs::set_permissions(file.path(), mode).unwrap();
            fs::metadata(file.path()).unwrap()
        };
        let (of, other) = (set(0o600), |of: &Metadata| of.uid() + 1);
        assert!(user(of.uid(), &[], 0).may(READ_AND_WRITE, &of, true));
        assert!(!user(other(&of), &[of.gid()], 0).may(READ_AND_WRITE, &of, false));
        assert!(user(other(&of), &[], DAC_OVERRIDE).may(READ_AND_WRITE, &of, true));
        assert!(!user(other(&of), &[], DAC_READ_SEARCH).may(READ_AND_WRITE, &of, false));
        let of = set(0o066);
        assert!(!user(of.uid(), &[of.gid()], 0).may(READ_AND_WRITE, &of, false));
        assert!(user(other(&of), &[3, of.gid()], 0).may(READ_AND_WRITE, &of, false));
        assert!(!user(other(&of), &[of.gid()], 0).may(READ_AND_WRITE, &of, true));
        let of = set(0o006);
        assert!(user(other(&of), &[of.gid() + 1], 0).may(READ_AND_WRITE, &of, false));
        assert!(!user(other(&of), &[of.gid()], 0).may(READ_AND_WRITE, &of, false));
    }

    /// A program that had become another user was refused only once the slot was made, and not named.
    #[test]
    fn what_is_yet_to_be_made_is_of_those_who_have_the_other_slots() {
        let (folder, slot) =
            (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
        let path = folder.path().canonicalize().unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        fs::set_permissions(&path, mode).unwrap();
        let found = fs::metadata(&path).unwrap();
        let own = found.uid();
        let like = Some(fs::metadata(slot.path()).unwrap());
        let coming = ComingFile { path: &path, found, bytes: 1, like };
        let reaches = |user: &User| reaches(Path::new("/proc/thread-self"), user, &coming);
        reaches(&user(own, &[], 0)).unwrap();
        reaches(&user(own + 1, &[], DAC_OVERRIDE)).unwrap();
        let refused = reaches(&user(own + 1, &[], 0)).unwrap_err();
        assert!(refused.contains("may not open"), "{refused}");
    }

    /// The first thread of a process that has ended, as by `pthread_exit` in `main`, was taken for one elsewhere.
    #[test]
    fn a_process_whose_first_thread_has_ended_is_judged_by_the_others() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().canonicalize().unwrap();
        let found = fs::metadata(&path).unwrap();
        let script = "import ctypes, os, platform, sys, threading\n\
            def go_on():\n sys.stdin.read()\n os._exit(0)\n\
            threading.Thread(target=go_on).start()\n\
            exit = {'x86_64': 60}.get(platform.machine(), 93)\n\
            ctypes.CDLL(None).syscall(ctypes.c_long(exit), ctypes.c_long(0))";
        let mut python = std::process::Command::new("python3");
        python.args(["-c", script]).stdin(std::process::Stdio::piped());
        let mut child = python.spawn().unwrap();
        let first = format!("/proc/{0}/task/{0}", child.id());
        while !has_ended(Path::new(&first)) {
            std::thread::yield_now();
        }
        let coming = |bytes| ComingFile { path: &path, found: found.clone(), bytes, like: None };
        judge(child.id(), &coming(1)).unwrap();
        let (process, limit) = (rustix::process::Pid::from_child(&child), 1 << 40);
        let limit = rustix::process::Rlimit { current: Some(limit), maximum: Some(limit) };
        rustix::process::prlimit(Some(process), rustix::process::Resource::As, limit).unwrap();
        let refused = judge(child.id(), &coming(1 << 41)).unwrap_err();
        assert!(refused.contains("no address space left"), "{refused}");
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn what_a_process_finds_and_may_is_told_of_itself() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().canonicalize().unwrap();
        let coming = |path, bytes| ComingFile {
            path,
            found: fs::metadata(file.path()).unwrap(),
            bytes,
            like: None,
        };
        judge(std::process::id(), &coming(&path, 1)).unwrap();
        let refused = judge(std::process::id(), &coming(Path::new("/dev/null"), 1)).unwrap_err();
        assert!(refused.contains("does not find /dev/null"), "{refused}");
        assert!(judge(u32::MAX, &coming(&path, 1)).is_err());
    }
}
