//! Whether the program is confined as `novale run` was ([`novale_posix::confinement`]).
//!
//! Each program that starts asks, so the ordinary case, without filters of system calls, is asked for here by
//! the library's own calls, but for whose users there are: that takes the kernel longest, and is asked for when
//! a pool is joined. All other cases are left to the one that asks for everything.

use std::ffi::CStr;

use novale_posix::confinement::{self, Facts, Mounting, NUMBER_FOR_GOOD, Root, Words};
use novale_posix::report::Event;

use crate::base::report;
use crate::base::settings::{self, Variable};
use crate::base::sys::sys;

/// Bytes of a link in `/proc` at most.
const LINK_MAX: usize = 128;
/// The word, of those that are told, that says whose users there are.
const USERS_AT: usize = 2;
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;
const SYS_ADMIN: u32 = 1 << 21;

/// What `novale run` was confined by.
#[inline]
fn begun() -> &'static [u8] {
    settings::value(Variable::Begun).unwrap_or_default()
}

/// Whose users there were for `novale run`.
#[inline]
fn begun_users() -> &'static [u8] {
    begun().split(|byte| *byte == b',').nth(USERS_AT).unwrap_or_default()
}

/// Whether the program is confined as the one was that named the mounts, as far as that is asked at the start.
#[inline]
pub(crate) fn is_as_begun() -> bool {
    if let Some(words) = ordinary(begun_users()) {
        return words.as_bytes() == begun();
    }
    confinement::confinement().as_bytes() == begun()
}

/// Whether valgrind runs the program: it sees calls here change the stack under the program, and reports each of them
/// as an error of the program's. The instructions, which do nothing elsewhere, are its own way of being asked
/// (`RUNNING_ON_VALGRIND` of `valgrind.h`).
#[inline]
pub(crate) fn is_in_valgrind() -> bool {
    const RUNNING_ON_VALGRIND: u64 = 0x1001;
    let request = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
    let mut answer: u64 = 0;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: turns a register all the way round, and exchanges one with itself.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inout("rdx") answer,
            options(nostack)
        );
    }
    answer != 0
}

/// Whether the users are those that there were for `novale run`: asked before a pool is joined, in each process,
/// since the call that makes one may give it others.
pub(crate) fn has_its_users() -> bool {
    let mut room = [0; LINK_MAX];
    let is_same = link(confinement::USERS, &mut room) == Some(begun_users());
    if !is_same {
        report::event(Event::BeganConfined);
    }
    is_same
}

/// What the process is confined by, with these users; `None` where that is not an ordinary case.
#[unsafe(link_section = ".text.novale_start")]
fn ordinary(users: &[u8]) -> Option<Words> {
    let no_new_privs = sys!(libc::SYS_prctl, libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
    let filters = sys!(libc::SYS_prctl, libc::PR_GET_SECCOMP, 0, 0, 0, 0);
    if (no_new_privs, filters) != (0, 0) {
        return None;
    }
    let (root, mounting) = (root()?, mounting()?);
    Some(Facts { no_new_privs: false, filters: None, users, root: Some(root), mounting }.words())
}

#[inline]
fn link<'a>(path: &CStr, room: &'a mut [u8; LINK_MAX]) -> Option<&'a [u8]> {
    let (path, to) = (path.as_ptr(), room.as_mut_ptr());
    let len = sys!(libc::SYS_readlinkat, libc::AT_FDCWD, path, to, LINK_MAX);
    room.get(..usize::try_from(len).ok()?)
}

#[inline]
fn root() -> Option<Root<'static>> {
    let mask = libc::STATX_INO | NUMBER_FOR_GOOD;
    let mut found = std::mem::MaybeUninit::<libc::statx>::zeroed();
    let (root, to) = (c"/".as_ptr(), found.as_mut_ptr());
    let got = sys!(libc::SYS_statx, libc::AT_FDCWD, root, 0, mask, to);
    // SAFETY: zeroes are a valid value, which the kernel has filled.
    let found = unsafe { found.assume_init() };
    let is_known = got == 0 && found.stx_mask & NUMBER_FOR_GOOD != 0;
    is_known.then_some(Root {
        device: [found.stx_dev_major, found.stx_dev_minor],
        inode: found.stx_ino,
        mount: Ok(found.stx_mnt_id),
    })
}

#[inline]
fn mounting() -> Option<Mounting> {
    let header = [CAPABILITY_VERSION_3, 0];
    // Effective, permitted and inheritable, of the lower 32 and of the upper.
    let mut sets = [0u32; 6];
    if sys!(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) != 0 {
        return None;
    }
    if sets[0] & SYS_ADMIN == 0 {
        return Some(Mounting::NotAsked);
    }
    let said = sys!(libc::SYS_mount, 0, c"/".as_ptr(), 0, 0, 0);
    u32::try_from(-said).ok().map(Mounting::Said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_asking_say_the_same() {
        let mut room = [0; LINK_MAX];
        let users = link(confinement::USERS, &mut room).unwrap();
        if let Some(words) = ordinary(users) {
            assert_eq!(words.as_bytes(), confinement::confinement().as_bytes());
            assert_eq!(words.as_bytes().split(|byte| *byte == b',').nth(USERS_AT), Some(users));
        }
    }
}
