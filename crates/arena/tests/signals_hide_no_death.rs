//! Promise: who waits for a lock of a dead client's learns of it, however often signals come.

#![allow(clippy::unwrap_used, unsafe_code, reason = "a test of signals stops at what fails")]

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use novale_arena::{Arena, Class, LockError, PidInfo};

/// No process has this number: Linux gives none above 2^22.
const GONE: PidInfo = PidInfo { pid: (1 << 22) + 1, start_time: 1 };
/// Signals, one a millisecond, after which no more come: many times as many as a waiter sleeps between
/// two looks.
const MOST: u32 = 1000;

static TIMER: AtomicPtr<libc::c_void> = AtomicPtr::new(ptr::null_mut());
static SIGNALS: AtomicU32 = AtomicU32::new(0);

/// Has the timer run so often, in ns; never where that is 0.
fn every(ns: i64) {
    let interval = libc::timespec { tv_sec: 0, tv_nsec: ns };
    let time = libc::itimerspec { it_interval: interval, it_value: interval };
    // SAFETY: the timer is there, and the time lives here. A handler may call this.
    let set = unsafe {
        libc::timer_settime(TIMER.load(Ordering::SeqCst), 0, &raw const time, ptr::null_mut())
    };
    assert_eq!(set, 0);
}

extern "C" fn on_signal(_: i32) {
    if SIGNALS.fetch_add(1, Ordering::SeqCst) + 1 == MOST {
        every(0);
    }
}

/// Signals for the calling thread alone.
fn begin() {
    // SAFETY: all zeros are an action.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = on_signal as *const () as usize;
    // SAFETY: the handler touches nothing but atomics and the kernel.
    let set = unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut()) };
    assert_eq!(set, 0);
    // SAFETY: all zeros are an event.
    let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = libc::SIGUSR1;
    // SAFETY: it asks only.
    event.sigev_notify_thread_id = unsafe { libc::gettid() };
    let mut timer = ptr::null_mut();
    // SAFETY: both live here, and the kernel fills the timer in.
    let made = unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
    assert_eq!(made, 0);
    TIMER.store(timer, Ordering::SeqCst);
    every(1_000_000);
}

/// Each signal counted as a wake-up, after which nobody asks: a program with a profiler waited for ever.
#[test]
fn a_death_is_learnt_of_between_signals() {
    let arena = Arena::anonymous(4 << 20).unwrap();
    let lock = arena.alloc(Class::new(1, 8)).unwrap();
    let dead = arena.attach(GONE).unwrap();
    let held = dead.op(1, 0);
    let _guard = held.lock(lock).unwrap();
    let living = arena.attach(PidInfo::current()).unwrap();
    let op = living.op(1, 0);
    begin();
    let refused = op.lock(lock).map(drop);
    every(0);
    assert!(matches!(refused, Err(LockError::OwnerDead(_))), "{refused:?}");
    let signals = SIGNALS.load(Ordering::SeqCst);
    assert!(signals < MOST, "it was learnt of when no more came");
}
