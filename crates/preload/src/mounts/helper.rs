//! A thread of this library's own in the program's process, one for each mount.
//!
//! The kernel makes it, and the program's libc does not know of it: it counts among no threads that a
//! program could wait for, and goes when the last of those ends the process. It blocks all signals. What
//! thread-local storage it needs, the loader has made before the program started; a child of `fork`
//! starts it anew in the same memory, since it may allocate nothing there.

use std::arch::asm;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::base::sys::{Ret, sys};
use crate::base::thread::{self, current};
use crate::mounts::MOUNTS_MAX;

const SIGSET_BYTES: u64 = 8;
/// Shares all that threads share; gets storage of its own.
const FLAGS: i32 = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_SETTLS;

/// What a mount's thread does, again and again.
pub(crate) type Attend = fn(usize);
static ATTEND: OnceLock<Attend> = OnceLock::new();

/// By mount: where the thread's storage is, which is its thread pointer too; 0 for none.
static STORAGE: [AtomicU64; MOUNTS_MAX] = [const { AtomicU64::new(0) }; MOUNTS_MAX];
/// The top of its stack.
static STACK: [AtomicU64; MOUNTS_MAX] = [const { AtomicU64::new(0) }; MOUNTS_MAX];
/// Mounts whose thread runs in this process, as bits.
static RUNNING: AtomicU32 = AtomicU32::new(0);

/// What stands at a thread pointer in libc's own form, as far as this library's code may look.
#[repr(C)]
struct Head {
    own: u64,
    vector: u64,
    also_own: u64,
    _others: [u64; 2],
    stack_guard: u64,
    pointer_guard: u64,
}

/// Makes storage for a mount's thread, while the program does not run yet: the loader's memory may be the
/// program's, in which a signal could come at any time later.
pub(crate) fn begin(mount: usize) {
    let Some(word) = STORAGE.get(mount) else { return };
    // SAFETY: the name is a string; the loader's tables are complete.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_allocate_tls".as_ptr()) };
    if found.is_null() {
        return;
    }
    // SAFETY: glibc's own threads are made by this function, which has had this form since 2.3.
    let allocate =
        unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn(u64) -> u64>(found) };
    let made = allocate(0);
    if made == 0 {
        return;
    }
    let here: *const Head;
    // SAFETY: reads the thread pointer, nothing else.
    unsafe { asm!("mov {0}, qword ptr fs:[0]", out(reg) here, options(nostack, readonly)) };
    // SAFETY: the calling thread's own, set up by libc.
    let here = unsafe { &*here };
    // SAFETY: made just now for a thread's whole head, and nobody else's.
    let head = unsafe { &mut *(made as *mut Head) };
    (head.own, head.also_own) = (made, made);
    (head.stack_guard, head.pointer_guard) = (here.stack_guard, here.pointer_guard);
    word.store(made, Ordering::Release);
}

/// How many such threads there are.
pub(crate) fn count() -> u64 {
    u64::from(RUNNING.load(Ordering::Acquire).count_ones())
}

/// In a child, which has none.
pub(crate) fn after_fork() {
    RUNNING.store(0, Ordering::Relaxed);
}

/// Starts a mount's thread unless it runs; false where that is not possible.
pub(crate) fn start(mount: usize, attend: Attend) -> bool {
    ATTEND.get_or_init(|| attend);
    let bit = 1_u32 << (mount % MOUNTS_MAX);
    if RUNNING.load(Ordering::Acquire) & bit != 0
        || RUNNING.fetch_or(bit, Ordering::AcqRel) & bit != 0
    {
        return true;
    }
    let started = start_alone(mount).is_some();
    if !started {
        RUNNING.fetch_and(!bit, Ordering::AcqRel);
    }
    started
}

/// The same by one thread, that has found it not running.
fn start_alone(mount: usize) -> Option<()> {
    let storage = STORAGE.get(mount)?.load(Ordering::Acquire);
    let stack = STACK.get(mount).filter(|_| storage != 0)?;
    if stack.load(Ordering::Relaxed) == 0 {
        stack.store(thread::new_stack()?, Ordering::Relaxed);
    }
    let top = stack.load(Ordering::Relaxed);
    let (all, mut before) = (u64::MAX, 0_u64);
    let set = libc::SIG_SETMASK;
    sys!(libc::SYS_rt_sigprocmask, set, &raw const all, &raw mut before, SIGSET_BYTES);
    // SAFETY: the stack is this thread's alone, and the storage a thread's; nobody runs on them.
    let made = unsafe { clone(top, storage, mount as u64) };
    sys!(libc::SYS_rt_sigprocmask, set, &raw const before, 0, SIGSET_BYTES);
    (made > 0).then_some(())
}

/// Makes the thread, which begins in [`run`] with `mount`.
///
/// # Safety
/// `stack` is the top of a stack and `storage` thread-local storage that nobody uses.
unsafe fn clone(stack: u64, storage: u64, mount: u64) -> Ret {
    let made: Ret;
    // SAFETY: the kernel's convention; the new thread uses its own stack alone, and never comes back.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "and rsp, -64",
            "call {run}",
            "ud2",
            "2:",
            run = sym run,
            inlateout("rax") libc::SYS_clone => made,
            in("rdi") FLAGS as u64, in("rsi") stack, in("rdx") 0_u64, in("r10") 0_u64,
            in("r8") storage, in("r12") mount,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    made
}

extern "C" fn run(mount: u64) -> ! {
    // What libc is asked to do here, the kernel does.
    current().depth.store(1, Ordering::Relaxed);
    loop {
        // A bug of this library must not unwind out of the thread.
        let attend = || ATTEND.get().map(|attend| attend(usize::try_from(mount).unwrap_or(0)));
        std::panic::catch_unwind(attend).unwrap_or_default();
    }
}

/// Whether the program has more threads than the calling one.
pub(crate) fn has_other_threads() -> bool {
    let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let got = sys!(libc::SYS_stat, c"/proc/self/task".as_ptr(), found.as_mut_ptr());
    // SAFETY: zeroes are a valid value, which the kernel has filled.
    let found = unsafe { found.assume_init() };
    // A folder for each thread, itself and the one above.
    got != 0 || found.st_nlink != 3 + count()
}
