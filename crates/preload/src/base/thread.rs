//! What each thread keeps: whether it is inside this library, its stack there, a signal put off.
//!
//! The block is thread-local storage of the initial-exec kind, so that the entry can reach it through
//! the segment register alone. A thread starts with zeroes.

use std::arch::{asm, global_asm};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::base::sys::sys;

/// A thread's block. The entry's assembler knows the offsets, which a constant below checks.
#[repr(C)]
pub(crate) struct Thread {
    /// 1 while the thread is inside; [`BORROWED`] while a child uses this thread's memory, and [`SHARED`]
    /// from when on one may. Calls made meanwhile go to the kernel as they are.
    pub(crate) depth: AtomicU32,
    /// 1 while all signals are blocked for one that was put off; `mask` is to be set again.
    pub(crate) pending: AtomicU32,
    /// Top of the stack that the library runs on; 0 before the first call.
    pub(crate) stack: AtomicU64,
    /// The program's alternate stack for signals: start and bytes, 0 when it has none.
    pub(crate) alternate: [AtomicU64; 2],
    /// The signal mask to be set again.
    pub(crate) mask: AtomicU64,
    /// The mask to be set again when a child no longer uses this memory, and in the child.
    pub(crate) lent_mask: AtomicU64,
    /// Where the call goes on that makes such a child, in both.
    pub(crate) lent_from: AtomicU64,
    /// 1 until the child's first call.
    pub(crate) is_lent: AtomicU32,
    /// The signal put off, as the kernel told it, 0 if none; then 128 bytes of `siginfo_t`.
    pub(crate) signal: AtomicU32,
    /// 1 while handlers run though the thread is inside ([`crate::process::exec_call`]).
    pub(crate) handles_inside: AtomicU32,
    /// Signals that have come, one on the other, before the program's handler of the last was called.
    pub(crate) arriving: AtomicU32,
    pub(crate) info: [AtomicU64; 16],
    /// The description in use plus 1; [`crate::fds`] reads it from other threads.
    pub(crate) hazard: AtomicU64,
    /// A small number of the thread's own plus 1.
    pub(crate) hint: AtomicU64,
    /// Room for a description that the thread has ended last, plus 1.
    spare: AtomicU64,
    /// Why the kernel makes the call, plus 1, as [`crate::base::report`] is told; 0 where nobody has
    /// said.
    pub(crate) why: AtomicU32,
    /// Attempts of the call that starts another program which signals have ended, one after the other.
    pub(crate) exec_attempts: AtomicU32,
    /// Attempts of a call on a path that was stale to the kernel, one after the other.
    pub(crate) stale_attempts: AtomicU32,
    /// What is to be called when the thread ends, and with what; nulls after the last.
    ends: [[AtomicU64; 2]; ENDS],
    /// The environment made for a child's next program: start and bytes ([`crate::process::exec`]).
    pub(crate) given: [AtomicU64; 2],
    /// The address of the last fault after which an instruction was run again without anything having
    /// been done for it, and a number of that time.
    pub(crate) fault: [AtomicU64; 2],
    /// Signals of faults that the program has blocked ([`crate::process::masks`]).
    pub(crate) blocked: AtomicU64,
    /// What the kernel moves as it writes for the thread, and from where on ([`crate::calls`]).
    written_from: [AtomicU64; 2],
}

const _: () = {
    assert!(std::mem::offset_of!(Thread, depth) == 0);
    assert!(std::mem::offset_of!(Thread, pending) == 4);
    assert!(std::mem::offset_of!(Thread, stack) == 8);
    assert!(std::mem::offset_of!(Thread, alternate) == 16);
    assert!(std::mem::offset_of!(Thread, mask) == 32);
    assert!(std::mem::offset_of!(Thread, lent_mask) == 40);
    assert!(std::mem::offset_of!(Thread, lent_from) == 48);
    assert!(std::mem::offset_of!(Thread, is_lent) == 56);
    assert!(std::mem::offset_of!(Thread, arriving) == 68);
    assert!(std::mem::size_of::<Thread>() <= 576);
};

/// The bit of `depth` that says that the memory is in use by a child made by `vfork`.
pub(crate) const BORROWED: u32 = 1 << 31;
/// The bit of `depth` that says that a process with this block as its own was started, and that this
/// thread went on beside it. Nobody tells when that ends.
pub(crate) const SHARED: u32 = 1 << 30;

/// Thread-local values of this library that have something to do when a thread ends, at most.
const ENDS: usize = 16;

// What the compiler's start files would have: what thread-local values name their library by.
global_asm!(
    ".section .data.rel.ro.novale_handle,\"aw\",@progbits",
    ".balign 8",
    ".weak __dso_handle",
    ".hidden __dso_handle",
    "__dso_handle:",
    ".quad 0",
    ".text",
);

global_asm!(
    ".text",
    ".globl __cxa_thread_atexit_impl",
    ".hidden __cxa_thread_atexit_impl",
    "__cxa_thread_atexit_impl:",
    "jmp {at_end}",
    at_end = sym at_end,
);

/// What Rust's thread-local values ask for in libc's place, whose own function takes memory of the
/// program's: a thread that a signal has interrupted in there waits for a lock that the one which asks
/// has. One that finds no room is not dropped.
extern "C" fn at_end(call: u64, with: u64, _: u64) -> i32 {
    let ends = &current().ends;
    if let Some([to_call, argument]) =
        ends.iter().find(|[call, _]| call.load(Ordering::Relaxed) == 0)
    {
        argument.store(with, Ordering::Relaxed);
        to_call.store(call, Ordering::Relaxed);
    }
    0
}

/// Bytes of the stack that calls are served on; memory is taken as it is used.
pub(crate) const STACK_BYTES: usize = 512 << 10;
const GUARD_BYTES: usize = 4096;

global_asm!(
    ".section .tbss.novale_thread,\"awT\",@nobits",
    ".balign 64",
    ".globl novale_thread",
    ".type novale_thread, @object",
    ".size novale_thread, 576",
    "novale_thread:",
    ".zero 576",
    ".text",
);

/// The calling thread's block.
#[inline]
pub(crate) fn current() -> &'static Thread {
    let block: *const Thread;
    // SAFETY: reads the thread pointer and the block's offset from it, nothing else.
    unsafe {
        asm!("mov {0}, qword ptr fs:[0]", "add {0}, qword ptr [rip + novale_thread@GOTTPOFF]",
            out(reg) block, options(nostack, readonly));
    }
    // SAFETY: 576 zeroed bytes, aligned, are a valid block; it lives as long as the thread, and
    // nobody keeps the reference longer.
    unsafe { &*block }
}

/// Where the memory is that libc has made for the calling thread: its own address is its first word.
pub(crate) fn block() -> u64 {
    let block;
    // SAFETY: reads the thread pointer, nothing else.
    unsafe { asm!("mov {0}, qword ptr fs:[0]", out(reg) block, options(nostack, readonly)) };
    block
}

/// Signals of faults, as a mask.
pub(crate) const FAULTS: u64 = 1 << (libc::SIGSEGV - 1) | 1 << (libc::SIGBUS - 1);

/// Of a thread of this library's own, which has all signals blocked for good: its faults come. One that is sent
/// to the process is another thread's.
pub(crate) fn let_own_faults_in() {
    let thread = current();
    thread.blocked.store(FAULTS, Ordering::Relaxed);
    thread.pending.store(1, Ordering::Relaxed);
    let (set, mask) = (libc::SIG_SETMASK, !FAULTS);
    sys!(libc::SYS_rt_sigprocmask, set, &raw const mask, 0, size_of::<u64>());
}

/// Stacks of threads that have ended, as a list through their topmost words.
static SPARE_STACKS: crate::base::lock::Lock<Vec<u64>> = crate::base::lock::Lock::new(Vec::new());

impl Thread {
    /// Gives the stack back, as the last thing that a thread does. Called on the program's stack.
    pub(crate) fn give_stack(&self) {
        let top = self.stack.swap(0, Ordering::Relaxed);
        if top != 0 {
            SPARE_STACKS.lock().push(top);
        }
    }

    /// What is noted of where the kernel begins to write.
    pub(crate) fn written_from(&self) -> [u64; 2] {
        self.written_from.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    pub(crate) fn set_written_from(&self, note: [u64; 2]) {
        let words = self.written_from.iter().zip(note);
        words.for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    }

    /// Does what thread-local values have to do when the thread ends, the newest first.
    pub(crate) fn end(&self) {
        for [call, with] in self.ends.iter().rev() {
            let (call, with) = (call.swap(0, Ordering::Relaxed), with.load(Ordering::Relaxed));
            if call != 0 {
                // SAFETY: registered for this by Rust, as a function of one pointer.
                let call = unsafe { std::mem::transmute::<u64, extern "C" fn(u64)>(call) };
                call(with);
            }
        }
    }

    /// In the child of a fork: what thread-local values would do when the thread ends concerns what was
    /// the parent's, which another thread may have had locked.
    pub(crate) fn forget_ends(&self) {
        self.ends.iter().for_each(|[call, _]| call.store(0, Ordering::Relaxed));
    }

    /// Exchanges the room for a description that the thread keeps, 0 for none.
    pub(crate) fn swap_spare(&self, new: u32) -> u32 {
        let old = self.spare.load(Ordering::Relaxed);
        self.spare.store(u64::from(new), Ordering::Relaxed);
        u32::try_from(old).unwrap_or(0)
    }

    /// A small number that is the thread's own.
    pub(crate) fn hint(&self) -> u32 {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let mut hint = self.hint.load(Ordering::Relaxed);
        if hint == 0 {
            hint = u64::from(NEXT.fetch_add(1, Ordering::Relaxed));
            self.hint.store(hint, Ordering::Relaxed);
        }
        u32::try_from(hint).unwrap_or(0)
    }
}

/// Gives the calling thread a stack, and returns its top; 0 without memory for one, so that the thread
/// stays on the program's.
pub(crate) extern "C" fn take_stack() -> u64 {
    let spare = SPARE_STACKS.lock().pop();
    let top = spare.or_else(new_stack).unwrap_or(0);
    current().stack.store(top, Ordering::Relaxed);
    top
}

/// The top of a new stack.
pub(crate) fn new_stack() -> Option<u64> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    let base = sys!(libc::SYS_mmap, 0, STACK_BYTES, access, flags, u64::MAX, 0);
    let base = u64::try_from(base).ok()?;
    sys!(libc::SYS_mprotect, base, GUARD_BYTES, libc::PROT_NONE);
    // A line is left free, so that the entry may align downwards.
    base.checked_add(STACK_BYTES as u64 - 64)
}

global_asm!(
    ".text",
    // rdi: what to call, rsi: its argument, rdx: the top of a stack
    "novale_call_on:",
    "push rbp",
    "mov rbp, rsp",
    "mov rsp, rdx",
    "and rsp, -64",
    "mov rax, rdi",
    "mov rdi, rsi",
    "call rax",
    "mov rsp, rbp",
    "pop rbp",
    "ret",
);

unsafe extern "C" {
    fn novale_call_on(call: extern "C" fn(u64) -> bool, with: u64, stack: u64) -> bool;
}

/// Calls something on the stack that the calling thread has for this library, which it must not be in.
pub(crate) fn on_own_stack(call: extern "C" fn(u64) -> bool, with: u64) -> bool {
    let mut stack = current().stack.load(Ordering::Relaxed);
    if stack == 0 {
        stack = take_stack();
    }
    if stack == 0 {
        return call(with);
    }
    // SAFETY: the stack is this thread's alone, and nobody runs on it while it is not inside.
    unsafe { novale_call_on(call, with, stack) }
}

/// What the library does itself outside of a call of the program: calls made meanwhile go to the
/// kernel, and signals wait.
pub(crate) struct Inside(&'static Thread);

impl Inside {
    pub(crate) fn new() -> Self {
        let thread = current();
        thread.depth.fetch_add(1, Ordering::Relaxed);
        Self(thread)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.depth.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Keeps other threads from the list of stacks while the process forks.
pub(crate) fn before_fork() {
    SPARE_STACKS.take();
}

/// Called in parent and child.
pub(crate) fn fork_done() {
    SPARE_STACKS.give();
}
