//! The last step of `execve`: the program's signal mask is set, and the kernel makes the call.
//!
//! The next program inherits the mask that is set at this moment, so it must be the program's own. From
//! then on a signal can come, and noting it would block all others again, in the next program too, which
//! would never learn of the one that was noted. So a signal that comes before the `syscall` instruction
//! ends the attempt: the call returns to the program's side of the entry, where the handler runs, and is
//! made again from its start, as if the signal had come a moment earlier.
//!
//! Where signals come faster than an attempt takes, this alone would never end: after [`ATTEMPTS`] of them
//! handlers run here, in the middle of the call.
//!
//! In a program that has confined itself the kernel makes this call and no other: a filter may forbid those.
//! The mask is the program's as long as no signal was noted, and where one was, the attempt ends.

use std::arch::global_asm;
use std::sync::atomic::{AtomicU32, Ordering};

use super::signals::{SIGSET_BYTES, novale_queue_again};
use super::{confined, masks};
use crate::base::sys::{Args, Ret};
use crate::base::thread::{Thread, current};

/// Attempts that signals may end, one after the other.
const ATTEMPTS: u32 = 16;
/// What the last step returns where a signal has ended it: no call of the kernel's does.
const ENDED: Ret = 1;

global_asm!(
    ".text",
    // rdi: whether a signal was noted, rsi: as below
    "novale_exec_plainly:",
    "push rbx",
    "mov rbx, rsi",
    "novale_exec_plainly_from:",
    "cmp dword ptr [rdi], 0",
    "jne novale_exec_ended",
    "jmp novale_exec_from",
    "novale_exec_plainly_end:",
    // rdi: the mask, rsi: the call's number and its arguments
    "novale_exec_call:",
    "push rbx",
    "mov rbx, rsi",
    "mov rsi, rdi",
    "mov eax, {set_mask}",
    "mov edi, {how}",
    "xor edx, edx",
    "mov r10d, {bytes}",
    "syscall",
    "novale_exec_from:",
    "mov rdi, qword ptr [rbx + 8]",
    "mov rsi, qword ptr [rbx + 16]",
    "mov rdx, qword ptr [rbx + 24]",
    "mov r10, qword ptr [rbx + 32]",
    "mov r8, qword ptr [rbx + 40]",
    "mov r9, qword ptr [rbx + 48]",
    "mov rax, qword ptr [rbx]",
    "novale_exec_at:",
    "syscall",
    "pop rbx",
    "ret",
    "novale_exec_ended:",
    "mov eax, {ended}",
    "pop rbx",
    "ret",
    set_mask = const libc::SYS_rt_sigprocmask,
    how = const libc::SIG_SETMASK,
    bytes = const SIGSET_BYTES,
    ended = const ENDED,
);

unsafe extern "C" {
    fn novale_exec_call(mask: &u64, call: &[u64; 7]) -> Ret;
    fn novale_exec_plainly(is_noted: &AtomicU32, call: &[u64; 7]) -> Ret;
    fn novale_exec_plainly_from();
    fn novale_exec_plainly_end();
    fn novale_exec_from();
    fn novale_exec_at();
    fn novale_exec_ended();
}

/// Has the kernel make the call with the program's mask; `None` where a signal has ended the attempt. After
/// it all signals are blocked, and the mask is set on the way out.
pub(crate) fn exec(number: i64, args: &Args) -> Option<Ret> {
    let thread = current();
    let call = words(number, args);
    if confined::is() && !masks::differ(thread) {
        // SAFETY: both live here; the call is the program's.
        let result = unsafe { novale_exec_plainly(&thread.pending, &call) };
        if result != ENDED {
            return Some(result);
        }
    }
    masks::block_all(thread);
    let mask = thread.mask.load(Ordering::Relaxed);
    let is_last = thread.exec_attempts.fetch_add(1, Ordering::Relaxed) >= ATTEMPTS;
    if is_last {
        novale_queue_again();
        thread.handles_inside.store(1, Ordering::Relaxed);
    } else if thread.signal.load(Ordering::Relaxed) != 0 {
        return None;
    }
    // SAFETY: both live here; the mask and the call are the program's.
    let result = unsafe { novale_exec_call(&masks::for_next_program(mask), &call) };
    masks::block_all(thread);
    // Without the faults that the program has blocked, which the next one would have found so.
    thread.mask.store(mask, Ordering::Relaxed);
    thread.handles_inside.store(0, Ordering::Relaxed);
    if result == ENDED {
        return None;
    }
    thread.exec_attempts.store(0, Ordering::Relaxed);
    Some(result)
}

/// The call's number and its arguments.
fn words(number: i64, args: &Args) -> [u64; 7] {
    let mut call = [number.cast_unsigned(); 7];
    let (_, of_args) = call.split_at_mut(1);
    of_args.copy_from_slice(args);
    call
}

/// Where a thread goes on after a signal that was noted: behind the call where it is about to make it.
pub(super) fn goes_on_at(at: u64) -> u64 {
    let places = [novale_exec_plainly_from, novale_exec_plainly_end, novale_exec_from];
    let [plainly, end, from] = places.map(|place| place as *const () as u64);
    let [last, ended] = [novale_exec_at, novale_exec_ended].map(|place| place as *const () as u64);
    let is_about_to = (plainly..end).contains(&at) || (from..=last).contains(&at);
    if is_about_to { ended } else { at }
}

/// Whether the thread handles signals though it is inside.
pub(super) fn handles_inside(thread: &Thread) -> bool {
    thread.handles_inside.load(Ordering::Relaxed) != 0
}
