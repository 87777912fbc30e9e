//! How who started this process has set its signals and standard descriptors, and a program that is started with just
//! that.
//!
//! Rust's run-time opens `/dev/null` for each standard descriptor that is closed, and ignores SIGPIPE, before `main`.
//! So what was given is noted before: by a program that says [`note_what_is_given!`](crate::note_what_is_given).
//! Nothing is noted in one that does not, and its programs begin as its run-time has them begin.

use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::{io, ptr};

/// Has the program that says this, once, note what it is given before its run-time begins.
#[macro_export]
macro_rules! note_what_is_given {
    () => {
        #[expect(
            unsafe_code,
            reason = "the function makes system calls, and asks nothing of a run-time"
        )]
        #[used]
        #[unsafe(link_section = ".init_array")]
        static NOTE: extern "C" fn() = $crate::note_given;
    };
}

/// Bytes of a set of signals, as the kernel has it.
const SET_BYTES: usize = size_of::<u64>();
/// Those that this process sets otherwise: its run-time the one, [`keep_ended_children`] the other.
const CHANGED: [i32; 2] = [libc::SIGPIPE, libc::SIGCHLD];
/// Of those that do not queue; for the others this process has no handlers.
const LAST_SIGNAL: i32 = 31;
/// Standard descriptors.
const STANDARD: std::ops::Range<i32> = 0..3;

/// Sets of signals, and of descriptors, by bits.
#[derive(Debug)]
struct Given {
    closed: u8,
    /// Of [`CHANGED`].
    ignored: u64,
    blocked: u64,
    /// Sent before the process began.
    pending: u64,
}

static GIVEN: OnceLock<Given> = OnceLock::new();

fn set_of(signals: &[i32]) -> u64 {
    signals.iter().fold(0, |set, signal| set | 1 << (signal - 1))
}

/// Notes what this process is given: for [`note_what_is_given!`](crate::note_what_is_given).
pub extern "C" fn note_given() {
    // SAFETY: asks only.
    let is_closed = |fd: &i32| unsafe { libc::fcntl(*fd, libc::F_GETFD) } < 0;
    let closed = STANDARD.filter(is_closed).fold(0, |closed, fd| closed | 1 << fd);
    let ignored = CHANGED.into_iter().filter(|signal| is_ignored(*signal));
    let ignored = ignored.fold(0, |set, signal| set | set_of(&[signal]));
    let blocked = change_mask(libc::SIG_BLOCK, 0);
    GIVEN.get_or_init(|| Given { closed, ignored, blocked, pending: pending() });
}

/// Whether this process ignores a signal: one that it has set nothing for was ignored by who started it.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    disposition(signal).is_ok_and(|action| action.sa_sigaction == libc::SIG_IGN)
}

/// Has children of this process stay, when they have ended, until they are waited for: also where who started it
/// ignored SIGCHLD, by which waiting for them fails.
pub fn keep_ended_children() {
    if is_ignored(libc::SIGCHLD) {
        set(libc::SIGCHLD, libc::SIG_DFL);
    }
}

/// Has programs that this process starts from now on have none of its descriptors but the standard ones: for one that
/// outlives who started this process, and would keep open what that one has left open by chance. Linux before 5.11 leaves
/// them.
pub fn keep_descriptors() {
    let (first, last, close_on_exec) = (STANDARD.end, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
    // SAFETY: closes nothing here.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, close_on_exec) };
}

/// Has this thread, and those that it starts from now on, take signals that who started it may have blocked: for who
/// handles them.
pub fn unblock(signals: &[i32]) {
    change_mask(libc::SIG_UNBLOCK, set_of(signals));
}

/// Becomes a program that begins with signals and standard descriptors as they were given to this process. Comes back
/// only where there is nothing to run.
pub fn exec_as_given(command: &mut Command) -> io::Error {
    hand_on(command);
    command.exec()
}

/// Starts a program that begins so. A signal for which this process has a handler has the default action there: one
/// that is to stay ignored gets none ([`is_ignored`]).
///
/// # Errors
/// Those of starting it.
pub fn spawn_as_given(command: &mut Command) -> io::Result<Child> {
    hand_on(command);
    // One that comes before the program begins is the program's, and this process' handlers are in its way.
    let blocked = change_mask(libc::SIG_BLOCK, GIVEN.get().map_or(0, |_| !0));
    let child = command.spawn();
    change_mask(libc::SIG_SETMASK, blocked);
    child
}

fn hand_on(command: &mut Command) {
    let give_all = || {
        GIVEN.get().into_iter().for_each(give);
        Ok(())
    };
    // SAFETY: it makes system calls alone, takes no lock and asks for no memory.
    unsafe { command.pre_exec(give_all) };
}

/// In the process that becomes the program.
fn give(given: &Given) {
    let is_in = |set: u64, signal: i32| set & set_of(&[signal]) != 0;
    let of_children = libc::SIGCHLD;
    if is_in(given.blocked, of_children) && !is_in(given.pending, of_children) {
        forget_own_children();
    }
    (1..=LAST_SIGNAL)
        .filter(|signal| is_handled(*signal))
        .for_each(|signal| set(signal, libc::SIG_DFL));
    let ignored = CHANGED.into_iter().filter(|signal| is_in(given.ignored, *signal));
    ignored.for_each(|signal| set(signal, libc::SIG_IGN));
    change_mask(libc::SIG_SETMASK, given.blocked);
    for fd in STANDARD.filter(|fd| given.closed & 1 << fd != 0) {
        // SAFETY: nobody uses it from here on; it was opened in the place of a closed one.
        unsafe { libc::close(fd) };
    }
}

/// Takes the blocked SIGCHLD of children that this process had; leaves one where another child has ended, which was
/// there before.
fn forget_own_children() {
    let set = set_of(&[libc::SIGCHLD]);
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let at_once = &raw const at_once;
    let none = ptr::null_mut::<libc::siginfo_t>();
    // SAFETY: waits for nothing; all that it is given lives here.
    let taken = unsafe {
        libc::syscall(libc::SYS_rt_sigtimedwait, &raw const set, none, at_once, SET_BYTES)
    };
    // SAFETY: all bits zero are a value of it.
    let mut ended: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: waits for nothing, takes nothing, and fills in what lives here.
    let is_known = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut ended, how) } == 0;
    // SAFETY: of such a call it is the child's number, or none.
    if taken > 0 && is_known && unsafe { ended.si_pid() } != 0 {
        // SAFETY: it is blocked.
        unsafe { libc::raise(libc::SIGCHLD) };
    }
}

/// What this process does on a signal.
pub(crate) fn disposition(signal: i32) -> io::Result<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: asks only; the kernel fills in what there is.
    if unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was filled in.
    Ok(unsafe { action.assume_init() })
}

fn is_handled(signal: i32) -> bool {
    let is_own =
        |action: libc::sigaction| ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
    disposition(signal).is_ok_and(is_own)
}

/// Has a signal ignored, or its default action.
fn set(signal: i32, handler: libc::sighandler_t) {
    // SAFETY: no handler is set.
    unsafe { libc::signal(signal, handler) };
}

/// Changes which signals this thread blocks; those that it did.
fn change_mask(how: i32, set: u64) -> u64 {
    let mut before = 0_u64;
    // SAFETY: reads and fills in what lives here. It fails on nothing but bad arguments.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const set, &raw mut before, SET_BYTES)
    };
    before
}

fn pending() -> u64 {
    let mut set = 0_u64;
    // SAFETY: fills in what lives here.
    unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut set, SET_BYTES) };
    set
}
