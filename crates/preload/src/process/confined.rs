//! Programs that confine themselves (Landlock, seccomp), that lock all their memory or limit their address space,
//! whose threads no longer share their descriptors, that share their memory or their descriptors with another
//! process, or load a library whose calls are not seen (Go): from then on everything is the kernel's.
//!
//! Such a rule binds the system calls that a process makes, and here none are made. So before a program
//! lays one on itself,
//! 1. all that it opens is the kernel's, and all that it has open is handed over and forgotten here;
//! 2. this library's own threads end, its mappings become the kernel's, and its pools are left;
//! 3. its calls no longer come here, but for those of processes and signals, which need it.
//!
//! To lock all memory (`mlockall`) is not to lock the pool and the arena, which may be all that the machine has
//! and more than the process may lock. Nor do they count where a program limits its address space
//! (`RLIMIT_AS`), nor this library's tables where it limits what it stores to (`RLIMIT_DATA`): it could map nothing more.
//!
//! The rule may be one thread's alone: everything is given up for the whole process. A child of fork has
//! what its parent had, nothing. The programs that it starts are not told to load this library, which may
//! need calls that the rule forbids them; those that a program starts which does not run directly compare
//! themselves with what `novale run` was (`novale_posix::confinement`).

use std::sync::atomic::{AtomicBool, Ordering};

use novale_posix::report::Event;

use crate::base::sys::{Args, Served, fail, sys};
use crate::base::{classes, report};
use crate::fds::quiet::{self, Quiet};
use crate::fds::table;
use crate::fds::{forget, kernel};
use crate::maps::{self, giving, hiding};
use crate::mounts::{self, helper};
use crate::numbers::limits;

const MODE_STRICT: u64 = libc::SECCOMP_SET_MODE_STRICT as u64;
const MODE_FILTER: u64 = libc::SECCOMP_SET_MODE_FILTER as u64;
/// Calls that go on to come here: of processes, whose children share this library's memory, and of
/// signals, whose handlers are wrapped.
const STAY: &[i64] = &[
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
];
/// Also where the files' own pages stay mapped.
const STAY_WITH_MAPPINGS: &[i64] = &[
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_mprotect,
    libc::SYS_pkey_mprotect,
    libc::SYS_madvise,
    libc::SYS_exit_group,
];

/// What `prctl` takes from the calling thread for the programs that it starts: this library's own thread must
/// not keep it.
const LESSENS: &[i32] =
    &[libc::PR_SET_NO_NEW_PRIVS, libc::PR_SET_SECUREBITS, libc::PR_CAPBSET_DROP];

static CONFINED: AtomicBool = AtomicBool::new(false);

/// Whether the process has confined itself.
pub(crate) fn is() -> bool {
    CONFINED.load(Ordering::Relaxed)
}

/// `landlock_restrict_self`, `seccomp`, `prctl`, `mlockall`: gives up everything before the kernel lays a rule on the
/// process, which may fail all the same.
pub(crate) fn before_rule(number: i64, args: &Args) -> Served {
    if number == libc::SYS_prctl && LESSENS.contains(&(args[0] as i32)) {
        let call = || sys!(number, args[0], args[1], args[2], args[3], args[4], args[5]);
        let made = quiet::outside(|| helper::without(call));
        giving::give_unattended();
        return Some(made.unwrap_or(fail(libc::EAGAIN)));
    }
    if number == libc::SYS_prctl && args[0] as i32 == libc::PR_SET_DUMPABLE {
        let call = || sys!(number, args[0], args[1], args[2], args[3], args[4], args[5]);
        return Some(hiding::by(number, args, call));
    }
    if !lays_a_rule(number, args) || is() {
        return None;
    }
    if leave_everything() { None } else { Some(fail(libc::EAGAIN)) }
}

/// Before a thread gets descriptors of its own, apart from those of others: here a number is one file's in all
/// threads. False where everything can't be given up.
pub(crate) fn before_own_descriptors(is_alone: impl FnOnce() -> bool) -> bool {
    is() || is_alone() || leave_everything()
}

/// Before calls that are not seen here, and may close numbers of libc's: of a process that shares this one's memory
/// and goes on beside it, or its descriptors, or of a library that makes them without libc. False where everything
/// can't be given up.
pub(crate) fn before_unseen_calls() -> bool {
    is() || leave_everything()
}

/// Before the program limits its address space, or what it stores to of that, to so many bytes. A limit that leaves
/// room for as much again as there is now, pools and arenas included, is none for those. False where everything can't
/// be given up.
pub(crate) fn before_limit_of_memory(resource: u32, bytes: u64) -> bool {
    is() || limits::leaves_room(resource, bytes, 0) || leave_everything()
}

/// Gives up everything, for the whole process; false where that can't be.
fn leave_everything() -> bool {
    kernel::elsewhere();
    kernel::give_all();
    // Before others are kept out, for which it may wait.
    if !quiet::outside(helper::end_for_good) {
        return false;
    }
    let quiet = Quiet::of_call();
    // A thread that is inside for ever could go on there.
    if !quiet.wait(quiet::PATIENCE) {
        return false;
    }
    give_up();
    report::event(Event::Confined);
    true
}

/// Programs ask which filters there may be by giving none: that is no rule.
fn lays_a_rule(number: i64, args: &Args) -> bool {
    let [first, second, third, ..] = *args;
    match number {
        libc::SYS_prctl if first as i32 == libc::PR_SET_SECCOMP => {
            second != u64::from(libc::SECCOMP_MODE_FILTER) || third != 0
        }
        libc::SYS_prctl => false,
        libc::SYS_seccomp => match first {
            MODE_STRICT => true,
            MODE_FILTER => third != 0,
            _ => false,
        },
        _ => true,
    }
}

/// No other thread is inside.
fn give_up() {
    // What another thread has opened since.
    kernel::hand_over_all();
    // What could not be handed over stays a placeholder, which can do nothing.
    forget::close_range(0, u32::MAX, || 0, |_| ());
    kernel::forget_originals();
    for mount in 0..mounts::all().len() {
        _ = giving::give_all(mount);
    }
    let mut stay = STAY.to_vec();
    if maps::are_some() {
        stay.extend(STAY_WITH_MAPPINGS);
    } else {
        mounts::leave_for_good();
    }
    table::release();
    CONFINED.store(true, Ordering::Release);
    classes::keep_only(&stay);
}
