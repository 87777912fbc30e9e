//! Opening files without a number of the program's: a thread that has descriptors of its own does so, for as long as
//! the one that wants it waits.
//!
//! The kernel gives the lowest number that is free, and other threads may count on one that they know to be free, by
//! `dup2`, or close what they find at one. Nobody may be kept from that by who waits for a lock in the middle of an
//! operation, which is when other clients are looked at.

use std::arch::asm;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::base::sys::{Ret, sys};

/// A thread whose maker waits until it has ended, with its maker's block.
const FLAGS: i32 = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_VFORK;
const SIGSET_BYTES: usize = size_of::<u64>();

/// Calls `look`, by such a thread. Where none can be made (a limit, or a process whose children get numbers of another
/// namespace) the calling one does.
pub(super) fn apart(mut look: &mut dyn FnMut()) {
    // A signal of the process' is for other threads.
    let (all, mut before) = (u64::MAX, 0_u64);
    let set = libc::SIG_SETMASK;
    sys!(libc::SYS_rt_sigprocmask, set, &raw const all, &raw mut before, SIGSET_BYTES);
    // SAFETY: it is called once, while this thread waits, and has ended when this comes back.
    let made = unsafe { lend_to_thread(&raw mut look as u64) };
    sys!(libc::SYS_rt_sigprocmask, set, &raw const before, 0, SIGSET_BYTES);
    if made < 0 {
        look();
    }
}

/// Makes the thread, which begins in [`run`] on this one's stack, below what is in use; comes back when it has ended.
///
/// # Safety
/// `look` is the address of a reference to a function that may be called.
unsafe fn lend_to_thread(look: u64) -> Ret {
    let made: Ret;
    // SAFETY: the kernel's convention. Below the stack pointer is nothing that this thread needs, which does not run
    // before the other one has ended.
    unsafe {
        asm!(
            "lea rsi, [rsp - 256]",
            "and rsi, -64",
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call {run}",
            "ud2",
            "2:",
            run = sym run,
            inlateout("rax") libc::SYS_clone => made,
            in("rdi") FLAGS as u64, in("rdx") 0_u64, in("r10") 0_u64, in("r8") 0_u64, in("r12") look,
            lateout("rsi") _, lateout("rcx") _, lateout("r11") _,
        );
    }
    made
}

extern "C" fn run(look: u64) -> ! {
    // A table of its own, with none of the program's files: those are not closed with it.
    sys!(libc::SYS_close_range, 0, u32::MAX, libc::CLOSE_RANGE_UNSHARE);
    // SAFETY: as the maker says, who waits.
    let look = unsafe { &mut *(look as *mut &mut dyn FnMut()) };
    // A bug of this library must not unwind out of the thread.
    catch_unwind(AssertUnwindSafe(look)).unwrap_or_default();
    loop {
        sys!(libc::SYS_exit, 0);
    }
}
