//! Where a signal has come, as a program's handler is shown it.
//!
//! While its thread waits in the kernel, or is on its way back to the program, it is in code of this library
//! ([`crate::text::patch`], the entry) that no unwinder knows: what unwinds from a handler (`pthread_cancel`, which
//! runs destructors by it, or who writes a backtrace) would stop there. So the handler is shown the place in
//! the program's own text, and the registers as they are there.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::text::patch;

const RIP: usize = libc::REG_RIP as usize;
const RSP: usize = libc::REG_RSP as usize;
const RBP: usize = libc::REG_RBP as usize;
/// From the entry's frame pointer: where the address after the `syscall` is, and how far up the program's stack was.
const RETURNS_AT: u64 = 64;
const STACK_AT: u64 = 72 + 128;

unsafe extern "C" {
    /// In the entry, where signals come that were put off.
    fn novale_signals_come();
}

/// Instruction, stack and frame pointer.
type Place = [i64; 3];

/// A place, and what is shown in its stead. Nothing is done when it is dropped: an unwinder that is not this
/// library's own may pass by.
#[derive(Clone, Copy)]
pub(super) struct ShownPlace {
    real: Place,
    shown: Place,
}

impl ShownPlace {
    /// Shows the program's place in a signal's context, where that is in code of this library.
    pub(super) fn begin(context: *mut libc::ucontext_t) -> Option<Self> {
        let registers = registers(context);
        let real = registers.map(|register| register.load(Ordering::Relaxed));
        let shown = in_program(real)?;
        set(registers, shown);
        Some(Self { real, shown })
    }

    /// The thread goes on where it was, unless the handler has chosen another place.
    pub(super) fn end(self, context: *mut libc::ucontext_t) {
        let registers = registers(context);
        if registers.map(|register| register.load(Ordering::Relaxed)) == self.shown {
            set(registers, self.real);
        }
    }
}

fn set(registers: [&AtomicI64; 3], place: Place) {
    for (register, value) in registers.iter().zip(place) {
        register.store(value, Ordering::Relaxed);
    }
}

fn registers(context: *mut libc::ucontext_t) -> [&'static AtomicI64; 3] {
    // SAFETY: the kernel's context, valid while the handler runs.
    let all = unsafe { &raw mut (*context).uc_mcontext.gregs };
    [RIP, RSP, RBP].map(|at| {
        // SAFETY: all three are registers of the context.
        let register = unsafe { all.cast::<i64>().add(at) };
        // SAFETY: as above; nobody keeps the reference longer.
        unsafe { AtomicI64::from_ptr(register) }
    })
}

fn in_program([rip, rsp, rbp]: Place) -> Option<Place> {
    let at = rip.cast_unsigned();
    if at != novale_signals_come as *const () as u64 {
        return Some([patch::original(at)?.cast_signed(), rsp, rbp]);
    }
    let frame = rbp.cast_unsigned();
    // SAFETY: the entry's frame, in which it is at this place.
    let returns_to = unsafe { ((frame + RETURNS_AT) as *const u64).read() };
    // SAFETY: as above.
    let callers = unsafe { (frame as *const i64).read() };
    let at = patch::original(returns_to).unwrap_or(returns_to);
    Some([at.cast_signed(), (frame + STACK_AT).cast_signed(), callers])
}
