//! What the kernel forbids a process beside its user's rights, in words that can be compared.
//!
//! A program that runs directly makes calls that nobody but itself sees. So it compares what it is
//! confined by with what `novale run` was, and leaves all to the kernel where anything differs: filters
//! of system calls, Landlock, other mounts or users in its namespaces, another root.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;

use nix::mount::{MsFlags, mount};

/// Lines of `/proc/self/status` that say so. Who lays rules on itself without the administrator's rights
/// has given up getting more by a program (`no_new_privs`) first.
const LINES: [&str; 3] = ["NoNewPrivs:", "Seccomp:", "Seccomp_filters:"];
/// Inside which mounts and for which users paths and owners mean what they mean here.
const NAMESPACES: [&str; 2] = ["/proc/self/ns/mnt", "/proc/self/ns/user"];
/// The capability to mount, as a bit of the effective set.
const SYS_ADMIN: u64 = 1 << 21;

/// What this process is confined by: words of the kernel's without a meaning of their own.
#[must_use]
pub fn confinement() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut all = String::new();
    let mut add = |word: &str| write!(all, "{word},").unwrap_or_default();
    for name in LINES {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        add(line.unwrap_or_default().trim());
    }
    for path in NAMESPACES {
        let link = fs::read_link(path).unwrap_or_default();
        add(&link.to_string_lossy());
    }
    let root = fs::metadata("/").map(|root| (root.dev(), root.ino()));
    add(&format!("{:?}", root.ok()));
    add(&mounting(&status));
    all
}

/// What the administrator is told who mounts nothing of no kind: Landlock, which it can lay on itself without
/// a promise, refuses it before that is looked at. Where there are filters of system calls nothing is
/// tried: one may end the process.
fn mounting(status: &str) -> String {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let capabilities = field("CapEff:").and_then(|set| u64::from_str_radix(set, 16).ok());
    let may = capabilities.unwrap_or_default() & SYS_ADMIN != 0;
    if !may || field("Seccomp:") != Some("0") {
        return "none".to_owned();
    }
    let (no_path, no_words) = (None::<&str>, MsFlags::empty());
    match mount(no_path, "/", no_path, no_words, no_path) {
        Ok(()) => String::new(),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::confinement;

    #[test]
    fn a_process_is_confined_as_it_was_before() {
        assert_eq!(confinement(), confinement());
        assert!(!confinement().contains(['=', ';']));
    }
}
