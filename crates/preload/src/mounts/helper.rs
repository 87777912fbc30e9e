//! A thread of this library's own in the program's process, one for each mount.
//!
//! The kernel makes it, and the program's libc does not know of it: it counts among no threads that a
//! program could wait for, and goes when the last of those ends the process. It blocks all signals. What
//! thread-local storage it needs, the loader has made before the program started; a child of `fork`
//! starts it anew in the same memory, since it may allocate nothing there.
//!
//! To the kernel each thread has a user, capabilities, namespaces and rules of its own, and this one those of
//! the thread that has made it. It must not keep what the program gives up: who has taken the program over
//! could have it back from a thread in the same memory. So it ends before such a call, and another one is
//! made after it ([`without`]).

use std::arch::asm;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::base::sys::{Fd, Ret, fail, sys};
use crate::base::thread::{self, current};
use crate::mounts::{self, MOUNTS_MAX};

const SIGSET_BYTES: u64 = 8;
/// Bytes of `/proc/PID/stat` up to its state, at most.
const STAT_BYTES: usize = 64;
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

/// What a process has of such threads. A child, which has none of them, finds zeroes here, however it was
/// made.
#[repr(C)]
pub(crate) struct Helpers {
    /// Mounts whose thread runs in this process, as bits.
    running: AtomicU32,
    /// Calls under way for which there may be no such thread.
    away: AtomicU32,
    /// Mounts whose thread is to be made after them, as bits.
    wanted: AtomicU32,
    /// Mounts whose thread ended for a call and could not be made again, as bits.
    lost: AtomicU32,
    /// Calls under way after which threads that sleep may not be found ([`crate::maps::hiding`]).
    hiding: AtomicU32,
    /// By mount: the thread's number; 0 before it is known.
    number: [AtomicU32; MOUNTS_MAX],
}

/// How often a thread is looked for that is to end, and how long it is waited in between.
const LOOKS: u32 = 100_000;
const BETWEEN: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };

/// The thread of the program's that was the last to begin to end, where there are helpers.
static ENDING: AtomicU32 = AtomicU32::new(0);

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
    // SAFETY: the calling thread's own, set up by libc.
    let here = unsafe { &*(thread::block() as *const Head) };
    // SAFETY: made just now for a thread's whole head, and nobody else's.
    let head = unsafe { &mut *(made as *mut Head) };
    (head.own, head.also_own) = (made, made);
    (head.stack_guard, head.pointer_guard) = (here.stack_guard, here.pointer_guard);
    word.store(made, Ordering::Release);
}

/// How many such threads there are.
pub(crate) fn count() -> u64 {
    mounts::helpers()
        .map_or(0, |helpers| u64::from(helpers.running.load(Ordering::Acquire).count_ones()))
}

/// Starts a mount's thread unless it runs; false where that is not possible.
pub(crate) fn start(mount: usize, attend: Attend) -> bool {
    ATTEND.get_or_init(|| attend);
    let Some(helpers) = mounts::helpers() else { return false };
    if is_to_end() {
        helpers.wanted.fetch_or(bit(mount), Ordering::AcqRel);
        return true;
    }
    start_once(helpers, mount)
}

fn bit(mount: usize) -> u32 {
    1 << (mount % MOUNTS_MAX)
}

/// Starts a mount's thread unless it runs.
fn start_once(helpers: &Helpers, mount: usize) -> bool {
    let (running, bit) = (&helpers.running, bit(mount));
    if running.load(Ordering::Acquire) & bit != 0
        || running.fetch_or(bit, Ordering::AcqRel) & bit != 0
    {
        return true;
    }
    let started = start_alone(helpers, mount).is_some();
    if !started {
        running.fetch_and(!bit, Ordering::AcqRel);
    }
    started
}

/// The same by one thread, that has found it not running.
fn start_alone(helpers: &Helpers, mount: usize) -> Option<()> {
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
    helpers.number.get(mount)?.store(u32::try_from(made).unwrap_or(0), Ordering::Release);
    (made > 0).then_some(())
}

/// Whether such threads are to end, and none is made.
pub(crate) fn is_to_end() -> bool {
    mounts::helpers().is_some_and(|helpers| helpers.away.load(Ordering::SeqCst) > 0)
}

/// Calls under way after which threads that sleep may not be found; nothing where no thread of this library's can run.
pub(crate) fn hiding() -> Option<&'static AtomicU32> {
    mounts::helpers().map(|helpers| &helpers.hiding)
}

/// Makes a call that takes something from the calling thread while there is no thread of this library's own:
/// those that come after it have what it has left. `None` where one does not end. The caller is not inside:
/// one that is about to end may wait for all who are.
pub(crate) fn without<T>(call: impl FnOnce() -> T) -> Option<T> {
    // Without memory for what is known of them there are none.
    let Some(helpers) = mounts::helpers() else { return Some(call()) };
    helpers.away.fetch_add(1, Ordering::SeqCst);
    let result = end_all(helpers).then(call);
    if helpers.away.fetch_sub(1, Ordering::SeqCst) == 1 {
        let wanted = helpers.wanted.swap(0, Ordering::AcqRel);
        // A child of fork that has joined nothing needs none.
        let is_wanted = |mount: &usize| wanted >> mount & 1 != 0 && mounts::here(*mount).is_some();
        for mount in (0..MOUNTS_MAX).filter(is_wanted) {
            // In a process whose children get numbers of their own, or at a limit, there can be none.
            if !start_once(helpers, mount) {
                helpers.lost.fetch_or(bit(mount), Ordering::AcqRel);
            }
        }
    }
    result
}

/// The mounts whose thread has ended for a call and could not be made again, each once.
pub(crate) fn take_lost() -> impl Iterator<Item = usize> {
    let lost = mounts::helpers().map_or(0, |helpers| helpers.lost.swap(0, Ordering::AcqRel));
    (0..MOUNTS_MAX).filter(move |mount| lost & bit(*mount) != 0)
}

/// Ends all of them for good; false where one stays. Called as [`without`] is.
pub(crate) fn end_for_good() -> bool {
    mounts::helpers().is_none_or(|helpers| {
        helpers.away.fetch_add(1, Ordering::SeqCst);
        end_all(helpers)
    })
}

fn end_all(helpers: &Helpers) -> bool {
    count() == 0 || (0..MOUNTS_MAX).all(|mount| end(helpers, mount))
}

/// Ends a mount's thread, and waits until it is none of the process' any more.
fn end(helpers: &Helpers, mount: usize) -> bool {
    let Some(number) = helpers.number.get(mount) else { return true };
    let bit = bit(mount);
    let between = BETWEEN;
    for _ in 0..LOOKS {
        if helpers.running.load(Ordering::Acquire) & bit == 0 {
            return true;
        }
        let known = number.load(Ordering::Acquire);
        let itself = sys!(libc::SYS_getpid);
        if known != 0 && sys!(libc::SYS_tgkill, itself, known, 0) == fail(libc::ESRCH) {
            number.store(0, Ordering::Release);
            helpers.wanted.fetch_or(bit, Ordering::AcqRel);
            helpers.running.fetch_and(!bit, Ordering::AcqRel);
            return true;
        }
        mounts::wake_helper(mount);
        sys!(libc::SYS_nanosleep, &raw const between, 0);
    }
    false
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
    thread::let_own_faults_in();
    while !is_to_end() {
        // A bug of this library must not unwind out of the thread.
        let attend = || ATTEND.get().map(|attend| attend(usize::try_from(mount).unwrap_or(0)));
        std::panic::catch_unwind(attend).unwrap_or_default();
    }
    // What the thread has of its own stays as it is for the next one, which goes on with it.
    loop {
        sys!(libc::SYS_exit, 0);
    }
}

/// Whether the program has more threads than the calling one.
pub(crate) fn has_other_threads() -> bool {
    let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let got = sys!(libc::SYS_stat, c"/proc/self/task".as_ptr(), found.as_mut_ptr());
    // SAFETY: zeroes are a valid value, which the kernel has filled.
    let found = unsafe { found.assume_init() };
    // A folder for each thread, itself and the one above.
    let known = 3 + count();
    got != 0 || found.st_nlink != known + u64::from(found.st_nlink > known && has_first_ended())
}

/// Whether the program has no thread but the calling one, which is about to end. Of those that end at once each
/// waits for the one before: they would see each other.
pub(crate) fn is_last_to_end() -> bool {
    let own = sys!(libc::SYS_gettid) as u32;
    // Another thread may have got the number of the one before in the meantime: it is waited for only so long.
    for _ in 0..LOOKS {
        let before = ENDING.load(Ordering::Acquire);
        let is_over = before == own || has_ended(before);
        if is_over
            && ENDING.compare_exchange(before, own, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            break;
        }
        sys!(libc::SYS_sched_yield);
    }
    !has_other_threads()
}

/// Whether a thread of this process has ended, or is none of them.
fn has_ended(thread: u32) -> bool {
    let process = sys!(libc::SYS_getpid);
    sys!(libc::SYS_tgkill, process, thread, 0) != 0
        || i64::from(thread) == process && has_first_ended()
}

/// Whether the process' first thread has ended: it is counted until the process has.
fn has_first_ended() -> bool {
    let process = sys!(libc::SYS_getpid);
    if process == sys!(libc::SYS_gettid) {
        return false;
    }
    let path = format!("/proc/self/task/{process}/stat\0");
    let mut text = [0_u8; STAT_BYTES];
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let file = Fd::new(sys!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0));
    let read = |file: &Fd| sys!(libc::SYS_read, file.number(), text.as_mut_ptr(), STAT_BYTES);
    let len = file.as_ref().map(read).and_then(|len| usize::try_from(len).ok());
    let text = text.get(..len.unwrap_or(0)).unwrap_or_default();
    // After the name, which may have any bytes in it.
    let state = text.iter().rposition(|byte| *byte == b')').and_then(|at| text.get(at + 2));
    matches!(state, Some(b'Z' | b'X'))
}
