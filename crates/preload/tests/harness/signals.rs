//! Signals to a task's process. The kernel gives them to the main thread where that takes them, which here waits for
//! the thread that runs the task and makes no call of its own.

#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]

use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, Ordering};

use super::support;

static KEPT: AtomicI32 = AtomicI32::new(0);

/// The main thread goes on with a signal blocked.
extern "C" fn block(_: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    unsafe { libc::sigaddset(&raw mut context.uc_sigmask, KEPT.load(Ordering::Relaxed)) };
}

/// Has a signal to the process come to any thread but the main one. Takes the handler of `SIGUSR2`.
pub(crate) fn keep_from_main_thread(signal: i32) {
    KEPT.store(signal, Ordering::Relaxed);
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = block as *const () as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    let none = std::ptr::null_mut();
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR2, &raw const action, none) }, 0);
    let main = unsafe { libc::getpid() };
    assert_ne!(main, unsafe { libc::gettid() }, "a task runs beside the main thread");
    assert_eq!(unsafe { libc::tgkill(main, main, libc::SIGUSR2) }, 0);
    let is_kept = || {
        let said = std::fs::read_to_string("/proc/self/status").unwrap();
        let blocked = said.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).unwrap();
        u64::from_str_radix(blocked, 16).unwrap() & 1 << (signal - 1) != 0
    };
    assert!(support::eventually(is_kept));
}
