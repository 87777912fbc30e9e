//! Where a signal has come, as a program's handler is shown it.
//!
//! While its thread waits in the kernel, or is on its way back to the program, it is in code of this library
//! ([`crate::text::patch`], the entry) that no unwinder knows: what unwinds from a handler (`pthread_cancel`, which
//! runs destructors by it, or who writes a backtrace) would stop there. So the handler is shown the place in
//! the program's own text, and the registers as they are there.

use std::sync::atomic::{AtomicI64, Ordering};

use super::signals;
use crate::text::patch;

const FLAGS: [i32; 1] = [libc::REG_EFL];
const PLACE: [i32; 3] = [libc::REG_RIP, libc::REG_RSP, libc::REG_RBP];
/// What the entry gives back from its frame, in this order: the call's number or its result, and its arguments.
const GIVEN_BACK: [i32; 7] = [
    libc::REG_RAX,
    libc::REG_RDI,
    libc::REG_RSI,
    libc::REG_RDX,
    libc::REG_R10,
    libc::REG_R8,
    libc::REG_R9,
];
/// From the entry's frame pointer: where those are, where the address after the `syscall` is, the flags where they are
/// kept, how far up the program's stack was, and whether the call is the kernel's to make yet.
const GIVEN_BACK_AT: u64 = 8;
const RETURNS_AT: u64 = 64;
const FLAGS_AT: u64 = 72;
const STACK_AT: u64 = 80 + 128;
const LEFT_BELOW: u64 = 264;
/// Bytes of a `syscall`.
const SYSCALL_BYTES: u64 = 2;

unsafe extern "C" {
    /// In both entries, where signals come that were put off.
    fn novale_signals_come();
    fn novale_signals_come_keeping();
}

/// Instruction, stack and frame pointer.
type Place = [i64; 3];

/// A place, and what is shown in its stead. Nothing is done when it is dropped: an unwinder that is not this
/// library's own may pass by.
#[derive(Clone, Copy)]
pub(super) struct ShownPlace {
    context: *mut libc::ucontext_t,
    real: Place,
    shown: Place,
    /// The entry's frame, where it is an entry that has been interrupted, and whether that keeps flags.
    frame: Option<(u64, bool)>,
}

impl ShownPlace {
    /// Shows the program's place in a signal's context, and its registers, where that is in code of this library.
    pub(super) fn begin(context: *mut libc::ucontext_t) -> Option<Self> {
        let registers = registers(context, PLACE);
        let real = registers.map(load);
        let [rip, rsp, rbp] = real;
        let at = rip.cast_unsigned();
        // Of signals that come at once the kernel puts each on the one before, whose handler has not begun: what
        // unwinds passes by that one's context too.
        if at == signals::novale_arrived as *const () as u64 {
            let [below] = self::registers(context, [libc::REG_RDX]).map(load);
            return Self::begin(below as *mut libc::ucontext_t);
        }
        let keeps = at == novale_signals_come_keeping as *const () as u64;
        if !keeps && at != novale_signals_come as *const () as u64 {
            let shown = [patch::original(at)?.cast_signed(), rsp, rbp];
            set(registers, shown);
            return Some(Self { context, real, shown, frame: None });
        }
        let frame = rbp.cast_unsigned();
        set(self::registers(context, GIVEN_BACK), given_back(frame).map(load));
        if keeps {
            set(self::registers(context, FLAGS), [flags(frame)].map(load));
        }
        let shown = of_caller(frame);
        set(registers, shown);
        Some(Self { context, real, shown, frame: Some((frame, keeps)) })
    }

    /// The thread goes on where it was, unless the handler has chosen another place; with what the handler has put
    /// in its registers.
    pub(super) fn end(self) {
        let registers = registers(self.context, PLACE);
        if registers.map(load) != self.shown {
            return;
        }
        if let Some((frame, keeps)) = self.frame {
            set(given_back(frame), self::registers(self.context, GIVEN_BACK).map(load));
            if keeps {
                set([flags(frame)], self::registers(self.context, FLAGS).map(load));
            }
        }
        set(registers, self.real);
    }
}

fn load(word: &AtomicI64) -> i64 {
    word.load(Ordering::Relaxed)
}

fn set<const N: usize>(words: [&AtomicI64; N], values: [i64; N]) {
    for (word, value) in words.iter().zip(values) {
        word.store(value, Ordering::Relaxed);
    }
}

fn registers<const N: usize>(
    context: *mut libc::ucontext_t,
    which: [i32; N],
) -> [&'static AtomicI64; N] {
    // SAFETY: the kernel's context, valid while the handler runs.
    let all = unsafe { &raw mut (*context).uc_mcontext.gregs };
    which.map(|at| {
        // SAFETY: all of them are registers of the context.
        let register = unsafe { all.cast::<i64>().add(at as usize) };
        // SAFETY: as above; nobody keeps the reference longer.
        unsafe { AtomicI64::from_ptr(register) }
    })
}

/// Where the entry keeps [`GIVEN_BACK`].
fn given_back(frame: u64) -> [&'static AtomicI64; 7] {
    [0, 1, 2, 3, 4, 5, 6].map(|index| {
        let at = (frame + GIVEN_BACK_AT + 8 * index) as *mut i64;
        // SAFETY: the entry's frame, in which they are at these places, as long as the handler runs.
        unsafe { AtomicI64::from_ptr(at) }
    })
}

/// Where the entry that keeps the flags has them.
fn flags(frame: u64) -> &'static AtomicI64 {
    // SAFETY: that entry's frame, in which they are at this place, as long as the handler runs.
    unsafe { AtomicI64::from_ptr((frame + FLAGS_AT) as *mut i64) }
}

/// Where the caller of the entry goes on: at its `syscall` where the kernel is to make the call, else after it.
fn of_caller(frame: u64) -> Place {
    // SAFETY: the entry's frame, in which it is at this place.
    let returns_to = unsafe { ((frame + RETURNS_AT) as *const u64).read() };
    // SAFETY: as above.
    let left = unsafe { ((frame - LEFT_BELOW) as *const u64).read() };
    // SAFETY: as above.
    let callers = unsafe { (frame as *const i64).read() };
    let at = returns_to - if left == 0 { 0 } else { SYSCALL_BYTES };
    let at = patch::original(at).unwrap_or(at);
    [at.cast_signed(), (frame + STACK_AT).cast_signed(), callers]
}
