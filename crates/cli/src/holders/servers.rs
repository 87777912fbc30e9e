//! Which processes serve mounts: the kernel's word, by their descriptors of the FUSE device.
//!
//! What is seen is what the caller may see of other processes: its own, and all of them for root.
//! Kernels before 6.16 do not say which mount a descriptor serves; there a daemon's own word counts
//! (`facts.rs`).

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use novale_fuse::{MountEntry, MountTable};
use novale_posix::SET_ID;
use rustix::fs::{AtFlags, StatxFlags};

use crate::holders::facts::{Facts, pid_namespace};
use crate::holders::holder::Process;
use crate::holders::in_time;

/// How the FUSE device's name ends.
const DEVICE: &[u8] = b"/fuse";
/// A daemon's name, and the words of which one is in its command line.
const NAME: &[u8] = b"novale\n";
const SERVING: [&[u8]; 3] = [b"--daemon", b"--foreground", b"-f"];
/// The line of a descriptor's description that names the mount.
const CONNECTION: &str = "fuse_connection:";
/// Where the kernel lists the connections to FUSE servers, by their mounts' device numbers.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";
/// Bits of a minor device number in the kernel.
const MINOR_BITS: u32 = 20;

/// Whether a process serves some mount.
pub(crate) fn is_server(pid: u32) -> bool {
    fuse_descriptors(pid).next().is_some()
}

/// The device numbers of the mounts that a process serves.
pub(crate) fn devices_of(pid: u32) -> Vec<(u32, u32)> {
    let mut devices: Vec<(u32, u32)> = fuse_descriptors(pid)
        .filter_map(|descriptor| fs::read_to_string(descriptor).ok())
        .filter_map(|described| device_in(&described))
        .collect();
    devices.sort_unstable();
    devices.dedup();
    devices
}

/// Whether the kernel still has a mount that a process serves, wherever that is mounted.
pub(crate) fn has_mount(pid: u32, device: (u32, u32)) -> bool {
    let devices = devices_of(pid);
    let (serves, is_told) = (devices.contains(&device), !devices.is_empty());
    // Where the kernel's list of connections can be seen: the process has the device for a moment longer.
    let table = MountTable::read().ok();
    let mut lists = table.iter().flat_map(|table| table.of_kind("fusectl"));
    let list = lists.find(|list| list.target == Path::new(CONNECTIONS));
    match list {
        Some(list) => {
            let number = u64::from(device.0) << MINOR_BITS | u64::from(device.1);
            (serves || !is_told && is_server(pid)) && list.target.join(number.to_string()).exists()
        }
        None => serves,
    }
}

/// The process that serves a mount, of the user who made it; `facts` are what its daemon says.
pub(crate) fn server_of(mount: &MountEntry, facts: Option<&Facts>) -> Option<Process> {
    let said = facts.filter(|facts| facts.pid_namespace == pid_namespace()).map(|facts| facts.pid);
    if let Some(pid) = said {
        let process = Process::of(pid)?;
        let devices = devices_of(pid);
        // On an older kernel all of its mounts are unknown.
        if devices.is_empty() || devices.contains(&mount.device) {
            return Some(process);
        }
    }
    let owner = mount.owner()?;
    processes().filter(|pid| user_of(*pid) == Some(owner)).find_map(|pid| {
        let process = Process::of(pid)?;
        devices_of(pid).contains(&mount.device).then_some(process)
    })
}

/// The daemon of the caller's that was started to mount on a directory, whether or not it is mounted
/// there now.
pub(crate) fn started_for(target: &Path) -> Option<Process> {
    let is_one = |pid: &u32| is_named(*pid) && is_callers(Path::new(&format!("/proc/{pid}")));
    let found: Vec<Process> = processes().filter(is_one).filter_map(Process::of).collect();
    let numbers = found.iter().map(|process| process.pid).collect();
    let lines = in_time::each(numbers, |pid| in_time::read(pid, "cmdline"));
    let it = lines.into_iter().find(|(pid, line)| mounts_on(*pid, line, target))?.0;
    found.into_iter().find(|process| process.pid == it)
}

fn is_named(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name == NAME)
}

/// Whether a process was started to mount on a directory, by its command line.
fn mounts_on(pid: u32, line: &[u8], target: &Path) -> bool {
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    // The last word is followed by a zero too.
    let (dir, is_one) = match words.as_slice() {
        // While it closes the pool it has the FUSE device no more.
        [_, b"mount", .., dir, _] => (dir, words.iter().any(|word| SERVING.contains(word))),
        // What it becomes to take out a slot that was emptied.
        [_, b"slot", b"finish", b"--of", dir, ..] => (dir, true),
        _ => return false,
    };
    let here = fs::read_link(format!("/proc/{pid}/cwd"));
    is_one && here.is_ok_and(|here| here.join(OsStr::from_bytes(dir)) == target)
}

/// The numbers of all processes that can be seen.
pub(crate) fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether a process, by its folder in `/proc`, is the caller's in all, and of a program that whoever runs it gives no other rights: a set-uid
/// program has its name and words from anybody, and which user `/proc` shows as the owner of a process is root for one
/// that may not be looked into.
pub(crate) fn is_callers(process: &Path) -> bool {
    let me = rustix::process::geteuid().as_raw();
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    // Real, effective, saved, and that for files.
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let users = users.map(|users| users.split_whitespace().map(str::parse::<u32>));
    users.is_some_and(|mut users| users.all(|user| user == Ok(me))) && has_no_set_id(process)
}

/// By what the kernel has of the program's file, which may be in a mount that does not answer.
fn has_no_set_id(process: &Path) -> bool {
    let flags = AtFlags::STATX_DONT_SYNC;
    let exe = rustix::fs::statx(rustix::fs::CWD, process.join("exe"), flags, StatxFlags::MODE);
    exe.is_ok_and(|exe| u32::from(exe.stx_mode) & SET_ID == 0)
}

/// The user whose a process is, as `/proc` shows it: root's where nobody may look into it.
pub(crate) fn user_of(pid: u32) -> Option<u32> {
    Some(fs::metadata(format!("/proc/{pid}")).ok()?.uid())
}

/// The descriptions of a process' descriptors of the FUSE device.
fn fuse_descriptors(pid: u32) -> impl Iterator<Item = PathBuf> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    open.filter(|link| {
        // Not looked at any closer: after another one may be a mount that does not answer.
        fs::read_link(link.path()).is_ok_and(|to| to.as_os_str().as_bytes().ends_with(DEVICE))
    })
    .map(move |link| Path::new(&format!("/proc/{pid}/fdinfo")).join(link.file_name()))
}

fn device_in(described: &str) -> Option<(u32, u32)> {
    let number = described.lines().find_map(|line| line.strip_prefix(CONNECTION))?;
    let number: u32 = number.trim().parse().ok()?;
    Some((number >> MINOR_BITS, number & ((1 << MINOR_BITS) - 1)))
}

#[cfg(test)]
mod tests {
    use super::device_in;

    #[test]
    fn a_description_names_the_mount() {
        let described = "pos:\t0\nflags:\t02000002\nmnt_id:\t26\nino:\t84\nfuse_connection:\t53\n";
        assert_eq!(device_in(described), Some((0, 53)));
        assert_eq!(device_in("pos:\t0\nflags:\t02000002\n"), None);
    }
}
