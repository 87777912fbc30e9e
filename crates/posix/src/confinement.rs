//! What the kernel forbids a process beside its user's rights, in words that can be compared.
//!
//! A program that runs directly makes calls that nobody but itself sees. So it compares what it is
//! confined by with what `novale run` was, and leaves all to the kernel where anything differs: filters
//! of system calls, Landlock, other mounts or users in its namespaces, another root.

use std::ffi::CStr;
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
pub const USERS: &CStr = c"/proc/thread-self/ns/user";
/// Inside which mounts paths mean what they mean, where the kernel does not number these for good.
const MOUNTS: &CStr = c"/proc/thread-self/ns/mnt";
/// Asks `statx` for the number of a mount that is never given twice (Linux 6.8): the mounts of a namespace are
/// its own.
pub const NUMBER_FOR_GOOD: u32 = 0x4000;
/// Bytes of a link in `/proc`, as a rule.
const LINK: usize = 128;
/// Bytes of all words, with room to spare.
const BYTES: usize = 384;

/// What confines a process, as the kernel says it.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Who lays rules on itself without the administrator's rights has given up getting more by a program
    /// first.
    pub no_new_privs: bool,
    /// How many filters of system calls there are, in the kernel's words; `None` without any.
    pub filters: Option<&'a str>,
    /// What the link [`USERS`] leads to.
    pub users: &'a [u8],
    /// The root directory, where it can be seen.
    pub root: Option<Root<'a>>,
    /// What the administrator is told who mounts nothing.
    pub mounting: Mounting,
}

/// The root directory, and in whose mounts it is.
#[derive(Debug, Clone, Copy)]
pub struct Root<'a> {
    /// Major and minor number.
    pub device: [u32; 2],
    /// Its inode.
    pub inode: u64,
    /// The mount's number, or where the link to the mounts leads.
    pub mount: Result<u64, &'a [u8]>,
}

/// What the administrator is told who mounts nothing of no kind: Landlock, which it can lay on itself without
/// a promise, refuses it before that is looked at.
#[derive(Debug, Clone, Copy)]
pub enum Mounting {
    /// The process has not the administrator's rights.
    NotAsked,
    /// There are filters: nothing is tried, since one may end the process.
    NotTried,
    /// The error number, 0 for none.
    Said(u32),
}

/// Words with a comma after each, put together in place and without the machinery of `format!`: each page of it
/// that is touched costs every program that starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Words {
    room: [u8; BYTES],
    len: usize,
}

#[expect(
    clippy::inline_always,
    reason = "a program that starts puts them together, in code that stands in one place"
)]
impl Words {
    /// The words.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.room.get(..self.len).unwrap_or_default()
    }

    /// The words, which are text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    #[inline(always)]
    fn add(&mut self, word: &[u8]) {
        for byte in word.iter().copied().chain([b',']) {
            if let Some(to) = self.room.get_mut(self.len) {
                *to = byte;
                self.len += 1;
            }
        }
    }

    #[inline(always)]
    fn add_number(&mut self, number: u64) {
        let mut unit = 1;
        while number / unit >= 10 {
            unit *= 10;
        }
        while unit > 0 {
            if let Some(to) = self.room.get_mut(self.len) {
                *to = b'0' + (number / unit % 10) as u8;
                self.len += 1;
            }
            unit /= 10;
        }
        self.add(b"");
    }
}

#[expect(clippy::inline_always, reason = "as above")]
impl Facts<'_> {
    /// The facts as words.
    #[inline(always)]
    #[must_use]
    pub fn words(&self) -> Words {
        let mut all = Words { room: [0; BYTES], len: 0 };
        all.add(if self.no_new_privs { b"1" } else { b"0" });
        all.add(self.filters.unwrap_or_default().as_bytes());
        all.add(self.users);
        if let Some(root) = self.root {
            let [major, minor] = root.device;
            for number in [major.into(), minor.into(), root.inode] {
                all.add_number(number);
            }
            match root.mount {
                Ok(number) => all.add_number(number),
                Err(link) => all.add(link),
            }
        }
        match self.mounting {
            Mounting::NotAsked => all.add(b"none"),
            Mounting::NotTried | Mounting::Said(0) => all.add(b""),
            Mounting::Said(error) => all.add_number(error.into()),
        }
        all
    }
}

/// What this process is confined by: words of the kernel's without a meaning of their own.
#[must_use]
pub fn confinement() -> Words {
    let is_filtered = secure_computing_mode() != Ok(SecureComputingMode::Disabled);
    let filters = is_filtered.then(filters);
    let (users, mounts) = (link(USERS), link(MOUNTS));
    Facts {
        no_new_privs: no_new_privs().unwrap_or(true),
        filters: filters.as_deref(),
        users: &users,
        root: root(&mounts),
        mounting: if is_filtered { Mounting::NotTried } else { mounting() },
    }
    .words()
}

fn link(path: &CStr) -> Vec<u8> {
    let mut room = [MaybeUninit::uninit(); LINK];
    let read = readlinkat_raw(CWD, path, &mut room);
    let text = read.map(|(text, _)| &*text).unwrap_or_default();
    text.to_vec()
}

fn root(mounts: &[u8]) -> Option<Root<'_>> {
    let number_for_good = StatxFlags::from_bits_retain(NUMBER_FOR_GOOD);
    let root = statx(CWD, "/", AtFlags::empty(), StatxFlags::INO | number_for_good).ok()?;
    let has_number = root.stx_mask & NUMBER_FOR_GOOD != 0;
    Some(Root {
        device: [root.stx_dev_major, root.stx_dev_minor],
        inode: root.stx_ino,
        mount: if has_number { Ok(root.stx_mnt_id) } else { Err(mounts) },
    })
}

/// How many filters of system calls there are, in the kernel's words.
fn filters() -> String {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix(FILTERS));
    count.map_or_else(|| "unknown".to_owned(), |count| count.trim().to_owned())
}

fn mounting() -> Mounting {
    let all = capabilities(None).map(|all| all.effective);
    if !all.is_ok_and(|all| all.contains(CapabilitySet::SYS_ADMIN)) {
        return Mounting::NotAsked;
    }
    let (no_path, no_words) = (None::<&str>, MsFlags::empty());
    match mount(no_path, "/", no_path, no_words, no_path) {
        Ok(()) => Mounting::Said(0),
        Err(error) => Mounting::Said(error as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES, Facts, Mounting, Root, Words, confinement};

    #[test]
    fn numbers_are_as_they_are_written() {
        let mut words = Words { room: [0; BYTES], len: 0 };
        for number in [0, 9, 10, 1_234, u64::MAX] {
            words.add_number(number);
        }
        assert_eq!(words.as_str(), "0,9,10,1234,18446744073709551615,");
    }

    #[test]
    fn the_longest_facts_fit() {
        let longest = "x".repeat(super::LINK);
        let root = Root { device: [u32::MAX; 2], inode: u64::MAX, mount: Ok(u64::MAX) };
        let facts = Facts {
            no_new_privs: true,
            filters: Some("4294967295"),
            users: longest.as_bytes(),
            root: Some(root),
            mounting: Mounting::Said(u32::MAX),
        };
        assert!(facts.words().as_str().ends_with(",4294967295,"));
        let root = Some(Root { mount: Err(longest.as_bytes()), ..root });
        assert!(Facts { root, ..facts }.words().as_str().ends_with(",4294967295,"));
    }

    #[test]
    fn a_process_is_confined_as_it_was_before() {
        assert_eq!(confinement(), confinement());
        assert!(!confinement().as_str().contains(['=', ';']));
    }
}
