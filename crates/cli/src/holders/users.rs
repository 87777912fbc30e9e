//! Programs that have something of a mount open, which keep it from being unmounted. No path of the mount is looked
//! at: its daemon may not answer.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use novale_fuse::MountEntry;

use crate::base::out::on_one_line;
use crate::holders::in_time;
use crate::holders::servers::processes;

/// Programs that are named.
const SHOWN_MAX: usize = 5;
/// Words of a command of this program that say what it does: `slot status`.
const WORDS: usize = 2;
/// What it calls itself.
const OWN_NAME: &str = "novale";

/// The programs that keep a mount busy, in words, as far as the caller may look into them; none where none is seen.
pub(crate) fn shown(mount: &MountEntry) -> Option<String> {
    let users = users(mount);
    let mut words = names(users.iter().take(SHOWN_MAX).copied().collect());
    if users.len() > SHOWN_MAX {
        words.push(format!("{} more", users.len() - SHOWN_MAX));
    }
    let many = if users.len() > 1 { "processes" } else { "process" };
    (!words.is_empty()).then(|| format!("{many} {}", words.join(", ")))
}

fn users(mount: &MountEntry) -> Vec<u32> {
    let (mut users, others): (Vec<u32>, Vec<u32>) =
        processes().partition(|pid| has_open(*pid, mount));
    let device = mount.device;
    let mapped = in_time::each(others, move |pid| {
        maps(&String::from_utf8_lossy(&in_time::read(pid, "maps")), device)
    });
    users.extend(mapped.into_iter().filter(|(_, maps)| *maps).map(|(pid, _)| pid));
    users.sort_unstable();
    users
}

fn has_open(pid: u32, mount: &MountEntry) -> bool {
    let leads_in = |link: &Path| fs::read_link(link).is_ok_and(|to| to.starts_with(&mount.target));
    let of = |name: &str| Path::new("/proc").join(pid.to_string()).join(name);
    let open = fs::read_dir(of("fd")).into_iter().flatten().flatten();
    ["cwd", "root"].iter().any(|name| leads_in(&of(name)))
        || open.into_iter().any(|descriptor| leads_in(&descriptor.path()))
}

/// Whether a file of a device is mapped, by lines like `7f00-7f10 rw-s 00000000 00:35 17 /mnt/file`.
fn maps(table: &str, (major, minor): (u32, u32)) -> bool {
    let device = format!("{major:02x}:{minor:02x}");
    table.lines().any(|line| line.split_whitespace().nth(3) == Some(&device))
}

/// A process' number and name, as it calls itself: on one line, whatever that is.
pub(crate) fn with_name(pid: u32) -> String {
    format!("{pid} ({})", on_one_line(&name_of(pid)))
}

fn name_of(pid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned()
}

/// Numbers and names; of this program also which of its commands it is, where that is told in time.
fn names(processes: Vec<u32>) -> Vec<String> {
    let names: Vec<(u32, String)> = processes.into_iter().map(|pid| (pid, name_of(pid))).collect();
    let own = names.iter().filter(|(_, name)| name == OWN_NAME).map(|(pid, _)| *pid).collect();
    let lines: BTreeMap<u32, Vec<u8>> =
        in_time::each(own, |pid| in_time::read(pid, "cmdline")).into_iter().collect();
    let name = |(pid, name): (u32, String)| {
        let line = String::from_utf8_lossy(lines.get(&pid).map_or(&[][..], Vec::as_slice));
        let command = line.split('\0').skip(1).take(WORDS);
        let words: Vec<&str> = [name.as_str()].into_iter().chain(command).collect();
        format!("{pid} ({})", on_one_line(&words.join(" ")))
    };
    names.into_iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::maps;

    #[test]
    fn a_file_that_is_mapped_is_known_by_its_device() {
        let table = "7f00-7f10 r--p 00000000 fe:00 12 /usr/lib/libc.so.6\n\
                     7f20-7f30 rw-s 00000000 00:35 17 /mnt/a file\n";
        assert!(maps(table, (0, 0x35)));
        assert!(!maps(table, (0, 0x36)));
        assert!(!maps("7f20-7f30 rw-p 00000000 00:00 0\n", (0, 0x35)));
    }
}
