//! What the kernel forbids a process beside its user's rights, in words that can be compared.
//!
//! A program that runs directly makes calls that nobody but itself sees. So it compares what it is
//! confined by with what `novale run` was, and leaves all to the kernel where anything differs: filters
//! of system calls, Landlock, other mounts or users in its namespaces, another root.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;

use nix::mount::{MsFlags, mount};
use rustix::thread::{
    CapabilitySet, SecureComputingMode, capabilities, no_new_privs, secure_computing_mode,
};

/// How many filters of system calls there are, where there are some.
const FILTERS: &str = "Seccomp_filters:";
/// Inside which mounts and for which users paths and owners mean what they mean here.
const NAMESPACES: [&str; 2] = ["/proc/self/ns/mnt", "/proc/self/ns/user"];

/// What this process is confined by: words of the kernel's without a meaning of their own. Each program asks
/// before it runs, so by as few calls as can be.
#[must_use]
pub fn confinement() -> String {
    let mut all = String::new();
    let mut add = |word: &str| write!(all, "{word},").unwrap_or_default();
    // Who lays rules on itself without the administrator's rights has given up getting more by a program
    // first.
    add(if no_new_privs().unwrap_or(true) { "1" } else { "0" });
    let is_filtered = secure_computing_mode() != Ok(SecureComputingMode::Disabled);
    add(&if is_filtered { filters() } else { String::new() });
    for path in NAMESPACES {
        let link = fs::read_link(path).unwrap_or_default();
        add(&link.to_string_lossy());
    }
    if let Ok(root) = fs::metadata("/") {
        add(&format!("{}:{}", root.dev(), root.ino()));
    }
    // Where there are filters nothing is tried: one may end the process.
    add(&if is_filtered { String::new() } else { mounting() });
    all
}

/// How many filters of system calls there are, in the kernel's words.
fn filters() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix(FILTERS));
    count.map_or_else(|| "unknown".to_owned(), |count| count.trim().to_owned())
}

/// What the administrator is told who mounts nothing of no kind: Landlock, which it can lay on itself without
/// a promise, refuses it before that is looked at.
fn mounting() -> String {
    let all = capabilities(None).map(|all| all.effective);
    if !all.is_ok_and(|all| all.contains(CapabilitySet::SYS_ADMIN)) {
        return "none".to_owned();
    }
    let (no_path, no_words) = (None::<&str>, MsFlags::empty());
    match mount(no_path, "/", no_path, no_words, no_path) {
        Ok(()) => String::new(),
        Err(error) => (error as i32).to_string(),
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
