//! A program's signal handlers, kept from running while their thread is inside this library.
//!
//! A handler that reads or writes while its thread has a lock of the file system would wait for
//! itself. So each handler that a program installs is wrapped: a signal that comes inside is noted,
//! all others are blocked on return, and on the way out it is queued again and the old mask set.
//! The kernel then delivers it as if it had come a little later. What an instruction has caused is not
//! put off.
//!
//! The kernel may have several come at once, one on the other: each is put off before the one that it has
//! interrupted is looked at. The first of them is noted, the others are queued again at once.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::guard;
use crate::base::lock::Lock;
use crate::base::sys::{Args, Ret, fail, sys};
use crate::base::thread::{self, BORROWED, FAULTS, SHARED, Thread, current};
use crate::maps::{self, growing, nudge};
use crate::process::place::ShownPlace;
use crate::process::{exec_call, masks};

const SIGNALS: usize = 65;
/// What is blocked, as the kernel tells it, where all signals are but those of faults.
const BLOCKED: u64 = !(FAULTS | 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1));
pub(super) const SIGSET_BYTES: u64 = 8;
/// What is there may not be touched so, as the kernel tells it.
const SEGV_ACCERR: i32 = 2;
/// The kernel's flag that says that there is a way back from a handler; libc sets it always.
const SA_RESTORER: u64 = 0x0400_0000;

/// `struct sigaction` as the kernel has it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Action {
    handler: u64,
    flags: u64,
    restorer: u64,
    mask: u64,
}

/// What the program has asked for, for signals whose handlers are wrapped.
struct Wrapped {
    handler: AtomicU64,
    flags: AtomicU64,
    restorer: AtomicU64,
    mask: AtomicU64,
}

#[unsafe(link_section = ".novale_data")]
static WRAPPED: [Wrapped; SIGNALS] = [const {
    Wrapped {
        handler: AtomicU64::new(0),
        flags: AtomicU64::new(0),
        restorer: AtomicU64::new(0),
        mask: AtomicU64::new(0),
    }
}; SIGNALS];
static CHANGING: Lock<()> = Lock::new(());

impl Wrapped {
    fn action(&self) -> Action {
        Action {
            handler: self.handler.load(Ordering::Acquire),
            flags: self.flags.load(Ordering::Relaxed),
            restorer: self.restorer.load(Ordering::Relaxed),
            mask: self.mask.load(Ordering::Relaxed),
        }
    }

    /// The action for a signal that has come: a handler that is used once is taken, by one thread.
    fn take(&self) -> Action {
        loop {
            let action = self.action();
            let is_once = action.flags & libc::SA_RESETHAND as u64 != 0;
            if !is_once || !is_handler(action.handler) {
                return action;
            }
            let (once, none) = (action.handler, libc::SIG_DFL as u64);
            let taken =
                self.handler.compare_exchange(once, none, Ordering::AcqRel, Ordering::Relaxed);
            if taken.is_ok() {
                return action;
            }
        }
    }

    fn set(&self, action: &Action) {
        self.flags.store(action.flags, Ordering::Relaxed);
        self.restorer.store(action.restorer, Ordering::Relaxed);
        self.mask.store(action.mask, Ordering::Relaxed);
        self.handler.store(action.handler, Ordering::Release);
    }
}

/// Faults come to this library in any case: a bad pointer in a call is one.
fn is_always_ours(signal: usize) -> bool {
    signal == libc::SIGSEGV as usize || signal == libc::SIGBUS as usize
}

/// Signals that an instruction may cause.
fn may_be_a_fault(signal: i32) -> bool {
    matches!(
        signal,
        libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGTRAP | libc::SIGSYS
    )
}

fn is_handler(handler: u64) -> bool {
    handler != libc::SIG_DFL as u64 && handler != libc::SIG_IGN as u64
}

/// Takes the handlers of faults. Before any thread of the program runs.
pub(crate) fn begin() {
    masks::begin();
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        let mut old = Action::default();
        let got = sys!(libc::SYS_rt_sigaction, signal, 0, &raw mut old, SIGSET_BYTES);
        if let (0, Some(wrapped)) =
            (got, usize::try_from(signal).ok().and_then(|at| WRAPPED.get(at)))
        {
            wrapped.set(&old);
            install(signal, &old);
        }
    }
}

/// Gives the kernel our handler in the program's place. It blocks no fault: that is [`masks`]'s.
fn install(signal: i32, asked: &Action) -> Ret {
    let own = novale_restorer as *const () as u64;
    let restorer = if asked.flags & SA_RESTORER != 0 { asked.restorer } else { own };
    let kept = asked.flags & !(libc::SA_RESETHAND as u64);
    // Without a handler of the program's none is to be noticed.
    let own_flags = (libc::SA_ONSTACK | libc::SA_RESTART) as u64;
    let unseen = if is_handler(asked.handler) { 0 } else { own_flags };
    let fault = if masks::bit(signal) & FAULTS == 0 { 0 } else { libc::SA_NODEFER as u64 };
    let action = Action {
        handler: novale_arrived as *const () as u64,
        flags: kept | libc::SA_SIGINFO as u64 | SA_RESTORER | unseen | fault,
        restorer,
        mask: asked.mask & !FAULTS,
    };
    sys!(libc::SYS_rt_sigaction, signal, &raw const action, 0, SIGSET_BYTES)
}

std::arch::global_asm!(
    ".text",
    ".globl novale_restorer",
    "novale_restorer:",
    "mov eax, 15",
    "syscall",
    // Another signal's handler may lie on this one, which has not begun then. What unwinds passes by here, and
    // not by the first instruction of a function of Rust's, where nothing unwinds as that sees it.
    ".globl novale_arrived",
    ".hidden novale_arrived",
    ".type novale_arrived, @function",
    "novale_arrived:",
    ".cfi_startproc",
    "mov rcx, qword ptr [rip + novale_thread@GOTTPOFF]",
    "inc dword ptr fs:[rcx + 68]",
    "cmp dword ptr fs:[rcx + 68], {most}",
    "jbe {arrived}",
    // The stack has no room for what is done here, and each fault of that starts at its top once more: it ends by one.
    "mov eax, {action}",
    "mov edi, {fault}",
    "lea rsi, [rip + {default}]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    "xor eax, eax",
    "mov dword ptr [rax], eax",
    "ud2",
    ".cfi_endproc",
    most = const ARRIVING_MAX,
    action = const libc::SYS_rt_sigaction,
    fault = const libc::SIGSEGV,
    default = sym DEFAULT,
    arrived = sym arrived,
);

/// As many signals as can come one on the other, and faults of this library's own code that are mended
/// ([`guard::fixup`]).
const ARRIVING_MAX: u32 = 100;
static DEFAULT: Action = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };

unsafe extern "C" {
    fn novale_restorer();
    pub(super) fn novale_arrived();
}

/// `rt_sigaction`, asked for by the program.
pub(crate) fn action(args: &Args) -> Option<Ret> {
    let [signal, new, old, bytes, ..] = *args;
    let at = usize::try_from(signal).ok()?;
    let wrapped = WRAPPED.get(at).filter(|_| at > 0 && bytes == SIGSET_BYTES)?;
    if at == libc::SIGKILL as usize || at == libc::SIGSTOP as usize {
        return None;
    }
    let asked = if new == 0 { None } else { Some(guard::load::<Action>(new)?) };
    let changing = CHANGING.lock();
    let mut before = wrapped.action();
    let ours = is_handler(before.handler) || is_always_ours(at);
    if !ours {
        let mut in_kernel = Action::default();
        let got = sys!(libc::SYS_rt_sigaction, signal, 0, &raw mut in_kernel, SIGSET_BYTES);
        if got != 0 {
            return Some(got);
        }
        // A handler that is used once may be taken by now, and the kernel not told yet.
        if in_kernel.handler != novale_arrived as *const () as u64 {
            before = in_kernel;
        }
    }
    if let Some(asked) = asked {
        let signal = i32::try_from(signal).ok()?;
        let done = if is_handler(asked.handler) || is_always_ours(at) {
            wrapped.set(&asked);
            install(signal, &asked)
        } else {
            let done = sys!(libc::SYS_rt_sigaction, signal, new, 0, SIGSET_BYTES);
            wrapped.set(&Action::default());
            done
        };
        if done != 0 {
            return Some(done);
        }
    }
    drop(changing);
    if old != 0 && !guard::store(old, &before) {
        return Some(fail(libc::EFAULT));
    }
    Some(0)
}

/// Blocks all signals, as if one had been put off: a call was made on the program's alternate stack. Runs
/// on that stack.
#[cold]
pub(crate) extern "C" fn novale_block() {
    let thread = current();
    let before = set_mask(u64::MAX);
    // One may just have been put off, and knows the mask.
    if thread.pending.load(Ordering::Relaxed) == 0 {
        thread.mask.store(before, Ordering::Relaxed);
        thread.pending.store(1, Ordering::Relaxed);
    }
}

/// Blocks these signals and no others; returns which were blocked.
pub(super) fn set_mask(mask: u64) -> u64 {
    let mut before = 0_u64;
    let set = libc::SIG_SETMASK;
    sys!(libc::SYS_rt_sigprocmask, set, &raw const mask, &raw mut before, SIGSET_BYTES);
    before
}

/// The program's alternate stack, set aside while a call that was made on it is served: it may be small,
/// so the library runs on its own, and the kernel would start at the top of the other again for a signal
/// that comes meanwhile, over the frames of who has called. From before the change of stacks until after
/// the change back all signals are blocked ([`novale_block`]); in between those of faults are not.
pub(crate) struct SetAside(Option<libc::stack_t>);

impl SetAside {
    /// For a call made where `at` is.
    #[inline]
    pub(crate) fn new(at: u64) -> Self {
        let [start, bytes] = &current().alternate;
        let is_on_it =
            at.wrapping_sub(start.load(Ordering::Relaxed)) < bytes.load(Ordering::Relaxed);
        Self(if is_on_it { set_aside() } else { None })
    }
}

impl Drop for SetAside {
    #[inline]
    fn drop(&mut self) {
        if let Some(stack) = &self.0 {
            set_mask(u64::MAX);
            sys!(libc::SYS_sigaltstack, &raw const *stack, 0);
        }
    }
}

/// None where the kernel says that it is in use: for lack of memory the library runs on it then.
#[cold]
fn set_aside() -> Option<libc::stack_t> {
    let none =
        libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
    let mut before = none;
    let done = sys!(libc::SYS_sigaltstack, &raw const none, &raw mut before);
    set_mask(!FAULTS);
    (done == 0).then_some(before)
}

/// `sigaltstack`: where it is must be known for calls that are made on it. The kernel says so: what the program gave may
/// be where the former one was stored, and counts also where that could not be.
pub(crate) fn alternate_stack(args: &Args) -> Ret {
    let done = sys!(libc::SYS_sigaltstack, args[0], args[1]);
    let mut now =
        libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
    if args[0] != 0 && sys!(libc::SYS_sigaltstack, 0, &raw mut now) == 0 {
        let enabled = now.ss_flags & libc::SS_DISABLE == 0;
        let size = if enabled { now.ss_size as u64 } else { 0 };
        let [at, bytes] = &current().alternate;
        at.store(now.ss_sp as u64, Ordering::Relaxed);
        bytes.store(size, Ordering::Relaxed);
    }
    done
}

/// The handler that the kernel knows, for every signal that the program has one for.
extern "C" fn arrived(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // Of the call that it comes in; the handler makes others.
    let written_from = current().written_from();
    handle(signal, info, context.cast());
    current().set_written_from(written_from);
    current().arriving.store(0, Ordering::Relaxed);
}

fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    if nudge::is_one(signal, info) {
        return;
    }
    let thread = current();
    // SAFETY: the kernel hands both over, valid while the handler runs.
    let code = unsafe { (*info).si_code };
    // Of memory that has failed, and was not touched yet, the kernel tells as one process does another.
    let is_told = signal == libc::SIGBUS && code == libc::BUS_MCEERR_AO;
    let caused = may_be_a_fault(signal) && code > 0 && !is_told;
    if caused {
        if signal == libc::SIGBUS && is_of_a_slot(info) {
            return;
        }
        // SAFETY: as above.
        let registers = unsafe { &mut (*context).uc_mcontext.gregs };
        let rip = libc::REG_RIP as usize;
        let at = registers.get(rip).and_then(|at| usize::try_from(*at).ok()).unwrap_or(0);
        if let (Some(to), Some(at)) = (guard::fixup(at), registers.get_mut(rip)) {
            *at = to as i64;
            return;
        }
        if signal == libc::SIGBUS && code == libc::BUS_ADRERR && is_shown_now(thread, info) {
            return;
        }
        if signal == libc::SIGSEGV && code == SEGV_ACCERR && is_open_again(thread, info) {
            return;
        }
        if masks::bit(signal) & FAULTS != 0 && is_in_own_code(thread) {
            end_by(signal);
            return;
        }
    } else if thread.depth.load(Ordering::Relaxed) == 1 && can_wait(thread, signal) {
        // SAFETY: as above.
        unsafe { put_off(thread, signal, info, context) };
        return;
    }
    if !masks::keeps(signal, caused, info, context) {
        pass_on(signal, caused, info, context);
    }
}

/// Of a signal that was put off since the calling thread came inside, whether its handler lets calls go on
/// (`SA_RESTART`). `None` where none was.
pub(crate) fn come() -> Option<bool> {
    let signal = current().signal.load(Ordering::Relaxed);
    let wrapped = WRAPPED.get(signal as usize).filter(|_| signal != 0)?;
    Some(wrapped.flags.load(Ordering::Relaxed) & libc::SA_RESTART as u64 != 0)
}

/// Whether all signals are blocked until the calling thread is outside, so that none can end what it waits for.
pub(crate) fn are_blocked() -> bool {
    current().pending.load(Ordering::Relaxed) != 0
}

/// Whether a signal that came inside can be put off: of faults, which nothing blocks, one at most.
fn can_wait(thread: &Thread, signal: i32) -> bool {
    let is_fault = masks::bit(signal) & FAULTS != 0;
    let comes_again = is_fault && thread.pending.load(Ordering::Relaxed) != 0;
    !comes_again && !exec_call::handles_inside(thread)
}

/// Whether what an instruction has caused is this library's, in the middle of a call: a handler of the program's could
/// jump out of it, and what is locked, half done or noted of the thread would stay so.
fn is_in_own_code(thread: &Thread) -> bool {
    let is_inside = thread.depth.load(Ordering::Relaxed) & !(BORROWED | SHARED) != 0;
    is_inside && !exec_call::handles_inside(thread)
}

/// Whether what was touched is a slot's that has failed: the call that did it will say so.
fn is_of_a_slot(info: *mut libc::siginfo_t) -> bool {
    // SAFETY: the kernel hands it over, valid while the handler runs.
    let info = unsafe { &*info };
    // SAFETY: it has filled it for a fault, which has an address.
    novale_posix::slot_failed_at(unsafe { info.si_addr() }.addr())
}

/// Whether what an instruction of the program has touched beyond the end of what a mapping shows is the
/// file's by now, and shown: it is run again.
fn is_shown_now(thread: &Thread, info: *mut libc::siginfo_t) -> bool {
    growing::is_used() && is_there(thread, info, growing::touched)
}

/// Whether what it has touched was shut for another thread that was about to start a program, and is open again.
fn is_open_again(thread: &Thread, info: *mut libc::siginfo_t) -> bool {
    maps::are_some() && is_there(thread, info, growing::touched_shut)
}

fn is_there(
    thread: &Thread,
    info: *mut libc::siginfo_t,
    touched: extern "C" fn(u64) -> bool,
) -> bool {
    if thread.depth.load(Ordering::Relaxed) != 0 {
        return false;
    }
    // SAFETY: the kernel hands it over, valid while the handler runs.
    let info = unsafe { &*info };
    // SAFETY: it has filled it for a fault, which has an address.
    let at = unsafe { info.si_addr() };
    // Nobody waits for this thread in there, as in a call; no signal need be put off.
    let before = set_mask(u64::MAX);
    let again = thread::on_own_stack(touched, at as u64);
    set_mask(before);
    again
}

/// Notes a signal, and lets the interrupted code go on with all signals blocked but those of faults.
///
/// # Safety
/// `info` and `context` are the kernel's for this signal.
unsafe fn put_off(
    thread: &Thread,
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    // From here on no other comes, whose notes would be mixed with these.
    set_mask(!FAULTS);
    let before = masks::interrupted(context).swap(!FAULTS, Ordering::Relaxed);
    // Of several it is the last to come here that was the first to come, and knows what was blocked.
    let is_first = thread.pending.swap(1, Ordering::Relaxed) == 0;
    if is_first || before & BLOCKED != BLOCKED {
        thread.mask.store(before, Ordering::Relaxed);
    }
    // SAFETY: the kernel's context, valid while the handler runs.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    if let Some(at) = registers.get_mut(libc::REG_RIP as usize) {
        *at = exec_call::goes_on_at(at.cast_unsigned()).cast_signed();
    }
    // SAFETY: a siginfo_t is 128 bytes, 16 words.
    let info = unsafe { info.cast::<[u64; 16]>().read() };
    if thread.signal.load(Ordering::Relaxed) != 0 {
        return queue(signal.cast_unsigned(), &info);
    }
    for (word, value) in thread.info.iter().zip(info) {
        word.store(value, Ordering::Relaxed);
    }
    thread.signal.store(signal.cast_unsigned(), Ordering::Relaxed);
}

/// How often a signal is queued again where no more may be queued: others take what room there is.
const QUEUE_ATTEMPTS: u32 = 1000;

/// Has a signal come to the calling thread once more, which has it blocked. Where no more may be queued
/// (`RLIMIT_SIGPENDING`), it comes as one by `kill`, without what was sent with it, and is one with others of its
/// number that come so.
fn queue(signal: u32, info: &[u64; 16]) {
    const CODE: u64 = 0xffff_ffff;
    if !is_queued(signal, info) {
        let mut sent = *info;
        // `si_code`, the third word of 32 bits; 0 is SI_USER.
        sent[1] &= !CODE;
        is_queued(signal, &sent);
    }
}

/// The same where there is room for it.
fn is_queued(signal: u32, info: &[u64; 16]) -> bool {
    let (process, this) = (sys!(libc::SYS_getpid), sys!(libc::SYS_gettid));
    sys!(libc::SYS_rt_tgsigqueueinfo, process, this, signal, info.as_ptr()) == 0
}

/// Queues the signal that was put off; it stays blocked until the entry sets the old mask. Runs on
/// the program's stack.
#[cold]
pub(crate) extern "C" fn novale_queue_again() {
    let thread = current();
    let signal = thread.signal.swap(0, Ordering::Relaxed);
    if signal == 0 {
        return;
    }
    let mut info = [0; 16];
    for (to, from) in info.iter_mut().zip(&thread.info) {
        *to = from.load(Ordering::Relaxed);
    }
    let mask = thread.mask.load(Ordering::Relaxed);
    for _ in 0..QUEUE_ATTEMPTS {
        if is_queued(signal, &info) {
            return;
        }
        // Those come first that have the room, as far as this thread is outside.
        if thread.depth.load(Ordering::Relaxed) == 0 {
            set_mask(mask);
            set_mask(!FAULTS);
            thread.mask.store(mask, Ordering::Relaxed);
        }
    }
    queue(signal, &info);
}

/// A program's handler.
type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::ucontext_t);

/// Does what the program has asked for. What an instruction has caused can't be ignored.
fn pass_on(
    signal: i32,
    is_caused: bool,
    info: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    let Some(wrapped) = usize::try_from(signal).ok().and_then(|at| WRAPPED.get(at)) else { return };
    let action = wrapped.take();
    if !is_handler(action.handler) {
        if is_caused || action.handler == libc::SIG_DFL as u64 && may_be_a_fault(signal) {
            end_by(signal);
        } else if action.handler == libc::SIG_DFL as u64 {
            // Another thread has just taken the handler, or set it back: what the kernel does now. That thread may
            // not have told it yet, and in the child of a fork it is not there.
            reset(signal, wrapped, &action);
            // SAFETY: a siginfo_t is 128 bytes, 16 words; the kernel has filled it.
            queue(signal.cast_unsigned(), &unsafe { info.cast::<[u64; 16]>().read() });
        }
        return;
    }
    if action.flags & libc::SA_RESETHAND as u64 != 0
        && !is_always_ours(usize::try_from(signal).unwrap_or(0))
    {
        reset(signal, wrapped, &action);
    }
    // SAFETY: the program has given this address as a handler; one of a single argument ignores the
    // other two.
    let handler = unsafe { std::mem::transmute::<u64, Handler>(action.handler) };
    let own = if action.flags & libc::SA_NODEFER as u64 == 0 { masks::bit(signal) } else { 0 };
    let shown = ShownPlace::begin(context);
    masks::while_handled(context, action.mask | own, || handler(signal, info, context));
    if let Some(shown) = shown {
        shown.end();
    }
}

/// Has the kernel do for a signal what it does by default, after its handler was taken, unless another thread has
/// set something else since.
#[cold]
fn reset(signal: i32, wrapped: &Wrapped, taken: &Action) {
    // No other signal comes meanwhile, whose handler would wait for this thread.
    let before = set_mask(u64::MAX);
    let changing = CHANGING.lock();
    let mut now = Action::default();
    sys!(libc::SYS_rt_sigaction, signal, 0, &raw mut now, SIGSET_BYTES);
    let is_ours = now.handler == novale_arrived as *const () as u64;
    if is_ours && !is_handler(wrapped.handler.load(Ordering::Acquire)) {
        // As the kernel has it: the handler alone is another one.
        let reset = Action { handler: libc::SIG_DFL as u64, ..*taken };
        sys!(libc::SYS_rt_sigaction, signal, &raw const reset, 0, SIGSET_BYTES);
    }
    drop(changing);
    set_mask(before);
}

/// Ends the process by a signal: the instruction is run again, or the signal sent again.
pub(super) fn end_by(signal: i32) {
    let default = Action::default();
    sys!(libc::SYS_rt_sigaction, signal, &raw const default, 0, SIGSET_BYTES);
    sys!(libc::SYS_tgkill, sys!(libc::SYS_getpid), sys!(libc::SYS_gettid), signal);
}

/// Keeps other threads from changing handlers while the process forks.
pub(crate) fn before_fork() {
    CHANGING.take();
}

/// Called in parent and child.
pub(crate) fn fork_done() {
    CHANGING.give();
}
