//! What the kernel forbids a process beside its user's rights, in words that can be compared.
//!
//! A program that runs directly makes calls that nobody but itself sees. So it compares what it is
//! confined by with what `novale run` was, and leaves all to the kernel where anything differs: filters
//! of system calls, Landlock, other mounts or users in its namespaces, another root.

use std::fs;
use std::mem::MaybeUninit;

use nix::mount::{MsFlags, mount};
use rustix::fs::{AtFlags, CWD, StatxFlags, readlinkat_raw, statx};
use rustix::thread::{
    CapabilitySet, SecureComputingMode, capabilities, no_new_privs, secure_computing_mode,
};

/// How many filters of system calls there are, where there are some.
const FILTERS: &str = "Seccomp_filters:";
/// Of which users owners are. To look into `/proc` is what costs most here.
const USERS: &str = "/proc/self/ns/user";
/// Inside which mounts paths mean what they mean, where the kernel does not number these for good.
const MOUNTS: &str = "/proc/self/ns/mnt";
/// The number of a mount that is never given twice (Linux 6.8): the mounts of a namespace are its own.
const NUMBER_FOR_GOOD: StatxFlags = StatxFlags::from_bits_retain(0x4000);
/// Bytes of the words, as a rule.
const BYTES: usize = 128;

/// Words with a comma after each, put together without the machinery of `format!`: each of its pages that is
/// touched costs every program that starts.
struct Words(String);

impl Words {
    fn add(&mut self, word: &str) {
        self.0.push_str(word);
        self.0.push(',');
    }

    fn add_number(&mut self, mut number: u64) {
        let start = self.0.len();
        loop {
            let digit = b'0' + (number % 10) as u8;
            self.0.insert(start, char::from(digit));
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.0.push(',');
    }

    fn add_link(&mut self, path: &str) {
        let mut room = [MaybeUninit::uninit(); BYTES];
        let read = readlinkat_raw(CWD, path, &mut room);
        let text = read.map(|(text, _)| &*text).unwrap_or_default();
        self.add(std::str::from_utf8(text).unwrap_or_default());
    }

    /// The root directory, and in whose mounts it is.
    fn add_root(&mut self) {
        let asked = StatxFlags::INO | NUMBER_FOR_GOOD;
        let Ok(root) = statx(CWD, "/", AtFlags::empty(), asked) else { return };
        for number in [root.stx_dev_major, root.stx_dev_minor] {
            self.add_number(number.into());
        }
        self.add_number(root.stx_ino);
        if root.stx_mask & NUMBER_FOR_GOOD.bits() != 0 {
            self.add_number(root.stx_mnt_id);
        } else {
            self.add_link(MOUNTS);
        }
    }
}

/// What this process is confined by: words of the kernel's without a meaning of their own. Each program asks
/// before it runs, so by as few calls as can be.
#[must_use]
pub fn confinement() -> String {
    let mut all = Words(String::with_capacity(BYTES));
    // Who lays rules on itself without the administrator's rights has given up getting more by a program
    // first.
    all.add(if no_new_privs().unwrap_or(true) { "1" } else { "0" });
    let is_filtered = secure_computing_mode() != Ok(SecureComputingMode::Disabled);
    all.add(&if is_filtered { filters() } else { String::new() });
    all.add_link(USERS);
    all.add_root();
    // Where there are filters nothing is tried: one may end the process.
    if is_filtered {
        all.add("");
    } else {
        add_mounting(&mut all);
    }
    all.0
}

/// How many filters of system calls there are, in the kernel's words.
fn filters() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix(FILTERS));
    count.map_or_else(|| "unknown".to_owned(), |count| count.trim().to_owned())
}

/// What the administrator is told who mounts nothing of no kind: Landlock, which it can lay on itself without
/// a promise, refuses it before that is looked at.
fn add_mounting(words: &mut Words) {
    let all = capabilities(None).map(|all| all.effective);
    if !all.is_ok_and(|all| all.contains(CapabilitySet::SYS_ADMIN)) {
        words.add("none");
        return;
    }
    let (no_path, no_words) = (None::<&str>, MsFlags::empty());
    match mount(no_path, "/", no_path, no_words, no_path) {
        Ok(()) => words.add(""),
        Err(error) => words.add_number((error as u32).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Words, confinement};

    #[test]
    fn numbers_are_as_they_are_written() {
        let mut words = Words(String::new());
        for number in [0, 10, 1_234, u64::MAX] {
            words.add_number(number);
        }
        assert_eq!(words.0, "0,10,1234,18446744073709551615,");
    }

    #[test]
    fn a_process_is_confined_as_it_was_before() {
        assert_eq!(confinement(), confinement());
        assert!(!confinement().contains(['=', ';']));
    }
}
