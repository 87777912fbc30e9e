//! Faults that a program has blocked, kept out of the kernel's mask.
//!
//! A fault whose signal the kernel finds blocked ends the process, and this library needs its own: a bad
//! pointer is an error of the call, a slot that fails one of its operations, and pages of a mapping are
//! shown when they are touched. So what a thread blocks of SIGSEGV and SIGBUS is noted, and blocked in the
//! kernel only from when on somebody has sent one: it waits there as it would have. A fault of the
//! program's own ends it, as before.

use std::sync::atomic::{AtomicU64, Ordering};

use super::signals::{SIGSET_BYTES, end_by, set_mask};
use crate::base::guard;
use crate::base::sys::{Args, Ret, fail, sys};
use crate::base::thread::{FAULTS, Thread, current};

/// Takes what the program begins with.
pub(super) fn begin() {
    let before = block(0);
    if before & FAULTS != 0 {
        current().blocked.store(before & FAULTS, Ordering::Relaxed);
        set_mask(before & !FAULTS);
    }
}

/// Has the kernel block these signals too; returns which were blocked.
fn block(signals: u64) -> u64 {
    let (set, mut before) = (libc::SIG_BLOCK, 0_u64);
    sys!(libc::SYS_rt_sigprocmask, set, &raw const signals, &raw mut before, SIGSET_BYTES);
    before
}

/// Blocks all but the faults, as if a signal had been put off: on the way out the thread's `mask` is set.
/// A fault that was sent and waits goes on waiting.
pub(super) fn block_all(thread: &Thread) {
    let before = block(!FAULTS);
    // One may just have been put off, and knows the mask.
    if thread.pending.load(Ordering::Relaxed) == 0 {
        thread.mask.store(before, Ordering::Relaxed);
        thread.pending.store(1, Ordering::Relaxed);
    }
}

/// `rt_sigprocmask`: left to the kernel where no fault is blocked, nor to be.
pub(crate) fn change(args: &Args) -> Option<Ret> {
    let [how, set, old, bytes, ..] = *args;
    let thread = current();
    let blocked = thread.blocked.load(Ordering::Relaxed);
    if bytes != SIGSET_BYTES {
        return None;
    }
    let how = how as i32;
    let asked = if set == 0 { None } else { Some(guard::load::<u64>(set)?) };
    let blocks = asked.is_some_and(|set| set & FAULTS != 0) && how != libc::SIG_UNBLOCK;
    if blocked == 0 && !blocks {
        return None;
    }
    block_all(thread);
    let in_kernel = thread.mask.load(Ordering::Relaxed);
    let before = in_kernel | blocked;
    let after = match (asked, how) {
        (None, _) => before,
        (Some(set), libc::SIG_BLOCK) => before | set,
        (Some(set), libc::SIG_UNBLOCK) => before & !set,
        (Some(set), libc::SIG_SETMASK) => set,
        _ => return Some(fail(libc::EINVAL)),
    };
    thread.blocked.store(after & FAULTS, Ordering::Relaxed);
    thread.mask.store(after & (in_kernel | !FAULTS), Ordering::Relaxed);
    if old != 0 && !guard::store(old, &before) {
        return Some(fail(libc::EFAULT));
    }
    Some(0)
}

/// The next program begins with the signals blocked that this one has blocked itself, of which the kernel
/// knows some.
pub(super) fn for_next_program(in_kernel: u64) -> u64 {
    in_kernel | current().blocked.load(Ordering::Relaxed)
}

/// Whether the program has blocked signals that the kernel has not.
pub(super) fn differ(thread: &Thread) -> bool {
    thread.blocked.load(Ordering::Relaxed) != 0
}

/// Keeps signals from coming until the call has ended, the child of a fork included; true where one was
/// noted before that.
pub(crate) fn before_fork() -> bool {
    let thread = current();
    block_all(thread);
    thread.signal.load(Ordering::Relaxed) != 0
}

/// In the child of a fork: the signal that was noted is its parent's.
pub(crate) fn forget_noted() {
    current().signal.store(0, Ordering::Relaxed);
}

/// What the kernel would not have had arrive: true where it was a blocked fault, and is dealt with.
pub(super) fn keeps(
    signal: i32,
    is_caused: bool,
    info: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) -> bool {
    let bit = bit(signal) & current().blocked.load(Ordering::Relaxed);
    if bit == 0 {
        return false;
    }
    if is_caused {
        end_by(signal);
        return true;
    }
    // It waits in the kernel, for this thread or for any.
    block(bit);
    let process = sys!(libc::SYS_getpid);
    // SAFETY: the kernel hands it over, valid while the handler runs.
    if unsafe { (*info).si_code } == libc::SI_TKILL {
        sys!(libc::SYS_rt_tgsigqueueinfo, process, sys!(libc::SYS_gettid), signal, info);
    } else {
        sys!(libc::SYS_rt_sigqueueinfo, process, signal, info);
    }
    interrupted(context).fetch_or(bit, Ordering::Relaxed);
    true
}

/// Calls a program's handler with the faults blocked that are to be: by it, and for it.
pub(super) fn while_handled(
    context: *mut libc::ucontext_t,
    for_handler: u64,
    handler: impl FnOnce(),
) {
    let blocked = &current().blocked;
    let before = blocked.load(Ordering::Relaxed);
    let mask = interrupted(context);
    let in_kernel = mask.fetch_or(before, Ordering::Relaxed);
    blocked.store(before | for_handler & FAULTS, Ordering::Relaxed);
    current().arriving.store(0, Ordering::Relaxed);
    handler();
    // A handler may change what is blocked behind it.
    let after = mask.fetch_and(in_kernel | !FAULTS, Ordering::Relaxed);
    blocked.store(after & FAULTS, Ordering::Relaxed);
}

/// The bit of a signal in a mask.
pub(super) fn bit(signal: i32) -> u64 {
    1_u64.checked_shl(signal.cast_unsigned().wrapping_sub(1)).unwrap_or(0)
}

/// The mask of what a signal has interrupted, which is set when its handler returns.
pub(super) fn interrupted(context: *mut libc::ucontext_t) -> &'static AtomicU64 {
    // SAFETY: the kernel's context, valid while the handler runs.
    let set = unsafe { &raw mut (*context).uc_sigmask };
    // SAFETY: the kernel's mask is the first word of the set, and nobody keeps the reference longer.
    unsafe { AtomicU64::from_ptr(set.cast::<u64>()) }
}
