//! Calls after which this process may not find its threads that sleep.
//!
//! Who sleeps on a futex is found by what the kernel shows of each thread in `/proc` ([`crate::maps::sleepers`]). It
//! shows that to nobody but root once a process has changed its user or group, or has asked for it (`PR_SET_DUMPABLE`),
//! and where the root directory or what is mounted is another one there may be no `/proc`. So what is mapped becomes
//! the kernel's before such a call, while all can be found, and nothing of a file's own pages is mapped during it.
//! After it each mapping asks anew: a call may have changed nothing, or another one have changed it back.

use std::sync::atomic::Ordering;

use crate::base::sys::{Args, Ret, sys};
use crate::maps::{self, Mode, giving, sleepers};
use crate::mounts::{self, helper};

/// Whether threads of this process that will sleep are going to be found.
pub(crate) fn can_find() -> bool {
    helper::hiding().is_none_or(|calls| calls.load(Ordering::SeqCst) == 0) && sleepers::are_shown()
}

/// Makes a call of the program's, and has everything given way before where it may hide those who sleep. The caller has
/// no lock of this library's.
pub(crate) fn by<T>(number: i64, args: &Args, call: impl FnOnce() -> T) -> T {
    let mounts = 0..mounts::all().len();
    let calls = helper::hiding().filter(|_| {
        mounts.clone().any(|mount| maps::mode(mount) == Mode::Own) && may_hide(number, args)
    });
    let Some(calls) = calls else { return call() };
    // Who has not seen this is inside, and waited for.
    calls.fetch_add(1, Ordering::SeqCst);
    giving::give_mounts(mounts);
    let result = call();
    calls.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Whether a call may keep this process from looking at its own threads.
fn may_hide(number: i64, args: &Args) -> bool {
    let is_other = |id: u64, now: Ret| id as u32 != u32::MAX && Ret::from(id as u32) != now;
    let is_other_user = |id| is_other(id, sys!(libc::SYS_geteuid));
    let is_other_group = |id| is_other(id, sys!(libc::SYS_getegid));
    let [first, second, ..] = *args;
    match number {
        libc::SYS_setuid | libc::SYS_setfsuid => is_other_user(first),
        libc::SYS_setreuid | libc::SYS_setresuid => is_other_user(second),
        libc::SYS_setgid | libc::SYS_setfsgid => is_other_group(first),
        libc::SYS_setregid | libc::SYS_setresgid => is_other_group(second),
        // What shows them to root is a capability.
        libc::SYS_capset => sys!(libc::SYS_prctl, libc::PR_GET_DUMPABLE, 0, 0, 0, 0) != 1,
        libc::SYS_prctl => first as i32 == libc::PR_SET_DUMPABLE && second == 0,
        libc::SYS_chroot
        | libc::SYS_pivot_root
        | libc::SYS_setns
        | libc::SYS_mount
        | libc::SYS_umount2
        | libc::SYS_move_mount => true,
        _ => false,
    }
}
