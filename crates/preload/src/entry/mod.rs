//! The way from a system call of the program into this library and back.
//!
//! Comes in: the call's number and arguments in their registers, the address after the `syscall`
//! in r11, the program's stack. A few instructions decide that the kernel is to do it, for all but
//! the calls that [`classes`] names; then nothing else has been touched. The others save what libc
//! expects to find unchanged, mark the thread as inside, and go on on a stack of this library's own,
//! since a program's may be small.
//!
//! There are two of it. libc's calls are functions, which keep neither flags nor vector registers but for what
//! its own code has in them. Any other code may have values there around its instruction, since the kernel keeps
//! them: calls of such code come in by the second one, which does ([`crate::base::vectors`]).

pub(crate) mod counted;
pub(crate) mod dispatch;

use std::arch::global_asm;
use std::sync::atomic::Ordering;

use crate::base::classes;
use crate::base::sys::{Args, Outcome, errno, fail, sys};
use crate::base::thread::{BORROWED, FAULTS, SHARED, current};
use crate::fds::quiet;
use crate::numbers::words;
use crate::process::signals::SetAside;

/// What the entry has saved, in its order on the stack.
#[repr(C)]
struct Frame {
    number: u64,
    rdi: u64,
    rsi: u64,
    rdx: u64,
    r10: u64,
    r8: u64,
    r9: u64,
}

/// The bit of a call's number by which it comes again, made by the kernel: its result, which is not
/// negative or [`STALE`], stands above the number.
const LOOKED_AT: u64 = 1 << 63;
/// The bit by which it comes again since it was stale.
const STALE_BEFORE: u64 = 1 << 62;
/// ESTALE as such a result, whose sign is lost.
pub(crate) const STALE: i32 = -libc::ESTALE & i32::MAX;

/// What is blocked until a child that uses this memory has made its first call: all but what its own instructions
/// bring about.
const LENT_MASK: u64 = !(FAULTS
    | 1 << (libc::SIGILL - 1)
    | 1 << (libc::SIGTRAP - 1)
    | 1 << (libc::SIGFPE - 1)
    | 1 << (libc::SIGSYS - 1));

/// Serves a call. Returns 0 when it is done, its result in the frame, 1 when the kernel is to do it, 2 when
/// what comes of that is to be looked at, 3 when it is to be made again, and 4 when a child is to use this thread's
/// block.
extern "C" fn serve_frame(frame: &mut Frame) -> u64 {
    let Frame { number, rdi, rsi, rdx, r10, r8, r9 } = *frame;
    let args: Args = [rdi, rsi, rdx, r10, r8, r9];
    let made = number & LOOKED_AT != 0;
    let (number, came) = if made { (number as u32 as u64, number >> 32) } else { (number, 0) };
    let was_stale = !made && number & STALE_BEFORE != 0;
    let number = number & !STALE_BEFORE;
    // For a call that is to be made again.
    frame.number = if made { number | STALE_BEFORE } else { number };
    if !made && !was_stale && current().stale_attempts.load(Ordering::Relaxed) != 0 {
        current().stale_attempts.store(0, Ordering::Relaxed);
    }
    let number = i64::try_from(number).unwrap_or(-1);
    let _set_aside = SetAside::new(&raw const *frame as u64);
    let (errno, before) = (errno(), errno().load(Ordering::Relaxed));
    let mut result = fail(libc::EIO);
    // What `catch_unwind` hands on goes through memory: one word does, of which each load finds its
    // store. Wider ones would wait for all that a write has streamed.
    let outcome = || {
        if made {
            dispatch::look(number, &args, came as i32 & i32::MAX)
        } else {
            dispatch::serve(number, &args)
        }
    };
    let serve = std::panic::AssertUnwindSafe(|| match outcome() {
        Outcome::Done(done) => {
            result = done;
            0
        }
        Outcome::Kernel => 1,
        Outcome::Look => 2,
        Outcome::Lend => lend(),
        Outcome::Share => {
            current().depth.store(SHARED, Ordering::Relaxed);
            1
        }
        Outcome::Again => 3,
    });
    // A bug of this library must not unwind into libc.
    let left_to_kernel = std::panic::catch_unwind(serve).unwrap_or(0);
    errno.store(before, Ordering::Relaxed);
    if left_to_kernel == 0 {
        frame.number = result.cast_unsigned();
    }
    left_to_kernel
}

/// Has a child use this thread's block, from the call that makes it on: with no handler in between, whose calls would
/// be the child's. A signal that was put off comes first.
#[cold]
fn lend() -> u64 {
    let thread = current();
    let (blocked, old) = (LENT_MASK, thread.lent_mask.as_ptr());
    sys!(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, &raw const blocked, old, size_of::<u64>());
    if thread.pending.load(Ordering::Relaxed) != 0 {
        if thread.signal.load(Ordering::Relaxed) != 0 {
            quiet::end_own_lending();
            return 3;
        }
        // A call on the alternate stack: all signals are blocked until the way out, which sets this mask.
        let before = thread.mask.load(Ordering::Relaxed);
        thread.lent_mask.store(before, Ordering::Relaxed);
        thread.mask.store(before | LENT_MASK, Ordering::Relaxed);
    }
    // A child that a fault ends in this memory counts none away.
    thread.arriving.store(0, Ordering::Relaxed);
    thread.is_lent.store(1, Ordering::Relaxed);
    thread.depth.store(BORROWED, Ordering::Relaxed);
    4
}

global_asm!(
    // Back to the program's registers, all but r11, which has the address after the call.
    ".macro novale_out keeps",
    "pop r11",
    ".if \\keeps",
    "popfq",
    "lea rsp, [rsp + 128]",
    ".else",
    "lea rsp, [rsp + 136]",
    ".endif",
    ".endm",
    ".macro novale_call to, keeps",
    "and rsp, -64",
    "cld",
    ".if \\keeps",
    "mov r11, qword ptr [rip + \\to\\()@GOTPCREL]",
    "call novale_keeping",
    ".else",
    "call \\to",
    ".endif",
    ".endm",
    ".macro novale_make_entry name, come, keeps",
    ".balign 64",
    ".globl \\name",
    ".hidden \\name",
    ".type \\name, @function",
    "\\name:",
    // Leave the red zone alone. rcx and r11 are free: the call would destroy them.
    ".if \\keeps",
    "lea rsp, [rsp - 128]",
    "pushfq",
    ".else",
    "lea rsp, [rsp - 136]",
    ".endif",
    "push r11",
    "cmp rax, {numbers}",
    "jae 9f",
    "mov rcx, qword ptr [rip + novale_thread@GOTTPOFF]",
    "cmp dword ptr fs:[rcx], 0",
    "jne 8f",
    "lea r11, [rip + {classes}]",
    "movzx r11d, byte ptr [r11 + rax]",
    "test r11d, r11d",
    "jz 9f",
    "test r11d, {always}",
    "jnz 2f",
    "test r11d, {descriptor}",
    "jz 5f",
    "mov ecx, edi",
    "cmp ecx, {low_numbers}",
    "jae 12f",
    "lea r11, [rip + {low}]",
    "cmp dword ptr [r11 + 4 * rcx], 0",
    "jne 2f",
    "lea r11, [rip + {classes}]",
    "movzx r11d, byte ptr [r11 + rax]",
    "5:",
    "test r11d, dword ptr [rip + {watched}]",
    "jz 9f",
    "2:",
    "push r9",
    "push r8",
    "push r10",
    "push rdx",
    "push rsi",
    "push rdi",
    "push rax",
    "mov rdi, rsp",
    "push rbp",
    "mov rbp, rsp",
    "sub rsp, 272",
    ".if \\keeps == 0",
    "movups [rbp - 256], xmm0",
    "movups [rbp - 240], xmm1",
    "movups [rbp - 224], xmm2",
    "movups [rbp - 208], xmm3",
    "movups [rbp - 192], xmm4",
    "movups [rbp - 176], xmm5",
    "movups [rbp - 160], xmm6",
    "movups [rbp - 144], xmm7",
    "movups [rbp - 128], xmm8",
    "movups [rbp - 112], xmm9",
    "movups [rbp - 96], xmm10",
    "movups [rbp - 80], xmm11",
    "movups [rbp - 64], xmm12",
    "movups [rbp - 48], xmm13",
    "movups [rbp - 32], xmm14",
    "movups [rbp - 16], xmm15",
    ".endif",
    "mov rcx, qword ptr [rip + novale_thread@GOTTPOFF]",
    "mov dword ptr fs:[rcx], 1",
    "mov rsi, rsp",
    "sub rsi, qword ptr fs:[rcx + 16]",
    "cmp rsi, qword ptr fs:[rcx + 24]",
    "jae 7f",
    "novale_call {block}, \\keeps",
    "lea rdi, [rbp + 8]",
    "mov rax, qword ptr [rdi]",
    "mov rcx, qword ptr [rip + novale_thread@GOTTPOFF]",
    "lea rsp, [rbp - 272]",
    "7:",
    // A thread that is about to end stays on the program's stack, and so does a call about stacks, and those
    // of its mask before the first other one.
    "cmp eax, {exit}",
    "je 3f",
    "cmp eax, {alternate}",
    "je 3f",
    "mov rsi, qword ptr fs:[rcx + 8]",
    "test rsi, rsi",
    "jnz 6f",
    "cmp eax, {mask}",
    "je 3f",
    // A thread's first call: of the program's stack, which may be small, it takes next to nothing, or, where vectors
    // are kept, room for those.
    "novale_call {take_stack}, \\keeps",
    "lea rdi, [rbp + 8]",
    "mov rsi, rax",
    "test rsi, rsi",
    "6:",
    "cmovnz rsp, rsi",
    "3:",
    "novale_call {serve}, \\keeps",
    "mov qword ptr [rbp - 264], rax",
    "lea rsp, [rbp - 272]",
    "mov rcx, qword ptr [rip + novale_thread@GOTTPOFF]",
    // Outside again, but for a thread whose block a child uses.
    "and dword ptr fs:[rcx], {lent}",
    "cmp dword ptr fs:[rcx + 4], 0",
    "je 4f",
    // A signal was put off, and all are blocked: it is queued again, and with the old mask it comes.
    "mov dword ptr fs:[rcx + 4], 0",
    "novale_call {queue_again}, \\keeps",
    "mov rcx, qword ptr [rip + novale_thread@GOTTPOFF]",
    "mov rsi, fs:[0]",
    "lea rsi, [rsi + rcx + 32]",
    "mov eax, 14",
    "mov edi, 2",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    ".globl \\come",
    ".hidden \\come",
    "\\come:",
    "4:",
    ".if \\keeps == 0",
    "movups xmm0, [rbp - 256]",
    "movups xmm1, [rbp - 240]",
    "movups xmm2, [rbp - 224]",
    "movups xmm3, [rbp - 208]",
    "movups xmm4, [rbp - 192]",
    "movups xmm5, [rbp - 176]",
    "movups xmm6, [rbp - 160]",
    "movups xmm7, [rbp - 144]",
    "movups xmm8, [rbp - 128]",
    "movups xmm9, [rbp - 112]",
    "movups xmm10, [rbp - 96]",
    "movups xmm11, [rbp - 80]",
    "movups xmm12, [rbp - 64]",
    "movups xmm13, [rbp - 48]",
    "movups xmm14, [rbp - 32]",
    "movups xmm15, [rbp - 16]",
    ".endif",
    "mov rdx, qword ptr [rbp - 264]",
    "mov rsp, rbp",
    "pop rbp",
    "mov rcx, rdx",
    "pop rax",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop r10",
    "pop r8",
    "pop r9",
    "cmp ecx, 1",
    "je 9f",
    "ja 11f",
    "10:",
    "novale_out \\keeps",
    "jmp r11",
    // All calls of a child that uses this memory are the kernel's; by its first it lets threads in, and signals,
    // and of a program that it starts the environment may have to be another one. It is on a stack of its parent's
    // making, which may be small: it takes its parent's stack in this library, which is free while the parent waits.
    "8:",
    "cmp dword ptr fs:[rcx], {borrowed}",
    "jne 9f",
    "cmp eax, {execute}",
    "je 14f",
    "cmp dword ptr fs:[rcx + 56], 0",
    "je 9f",
    "14:",
    "push rdi",
    "push rsi",
    "push rdx",
    "push r10",
    "push r8",
    "push r9",
    "push rbp",
    "mov rbp, rsp",
    "sub rsp, 512",
    "and rsp, -64",
    "fxsave64 [rsp]",
    "mov r8, rsp",
    "mov r9, qword ptr fs:[rcx + 8]",
    // A handler of the program's, which may run in the middle of that, stays where it is.
    "mov r10, r9",
    "sub r10, rsp",
    "cmp r10, {stack_bytes}",
    "cmovb r9, rsp",
    "test r9, r9",
    "cmovnz rsp, r9",
    "mov rcx, rax",
    "and rsp, -64",
    "sub rsp, 64",
    "mov qword ptr [rsp], r8",
    "novale_call {call_lent}, \\keeps",
    "mov rsp, qword ptr [rsp]",
    "fxrstor64 [rsp]",
    "mov rsp, rbp",
    "pop rbp",
    "pop r9",
    "pop r8",
    "pop r10",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "test rax, rax",
    "jns 9f",
    "novale_out \\keeps",
    "jmp r11",
    // The kernel makes the call here, outside of the library; what came of it is looked at.
    "11:",
    "cmp ecx, 3",
    "je 2b",
    "ja 15f",
    "push rax",
    "syscall",
    "pop rcx",
    "cmp rax, {stale}",
    "je 13f",
    "test rax, rax",
    "js 10b",
    "13:",
    "shl rax, 32",
    "or rax, rcx",
    "bts rax, 63",
    "jmp 2b",
    // A number beyond those whose words are the library's own memory.
    "12:",
    "cmp ecx, {descriptors}",
    "jae 5b",
    "cmp qword ptr [rip + {high}], 0",
    "je 5b",
    "shl rcx, 2",
    "add rcx, qword ptr [rip + {high}]",
    "cmp dword ptr [rcx], 0",
    "jne 2b",
    "jmp 5b",
    // To the kernel: the syscall stands just before what follows it.
    "9:",
    "novale_out \\keeps",
    "lea rcx, [r11 - 2]",
    "jmp rcx",
    // A child gets this thread's block, and goes on at the site, maybe on a stack of its own: nothing of this one's is
    // used on the way. Whoever comes back with a number, or an error, has made it, and has its block again, and its mask,
    // which comes last: a handler may make a process as well.
    "15:",
    "novale_out \\keeps",
    "mov rcx, qword ptr [rip + novale_thread@GOTTPOFF]",
    "mov qword ptr fs:[rcx + 48], r11",
    "syscall",
    "mov rcx, qword ptr [rip + novale_thread@GOTTPOFF]",
    "mov r11, qword ptr fs:[rcx + 48]",
    "test rax, rax",
    "jz 16f",
    "and dword ptr fs:[rcx], {not_borrowed}",
    "lea rsp, [rsp - 128]",
    "push r11",
    "push rax",
    "push rdi",
    "push rsi",
    "push rdx",
    "push r10",
    "mov rsi, fs:[0]",
    "lea rsi, [rsi + rcx + 40]",
    "mov eax, {mask}",
    "mov edi, 2",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    "pop r10",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "pop rax",
    "pop r11",
    "lea rsp, [rsp + 128]",
    "16:",
    "jmp r11",
    ".endm",
    // Where the start is: the page is there already when a program that does nothing else ends.
    ".section .text.novale_start,\"ax\",@progbits",
    "novale_make_entry novale_entry, novale_signals_come, 0",
    ".text",
    "novale_make_entry novale_entry_keeping, novale_signals_come_keeping, 1",
    numbers = const classes::NUMBERS,
    classes = sym classes::CLASSES,
    watched = sym classes::WATCHED,
    always = const classes::ALWAYS,
    descriptor = const classes::DESCRIPTOR,
    low = sym words::LOW,
    high = sym classes::HIGH_TABLE,
    low_numbers = const classes::LOW_NUMBERS,
    descriptors = const words::DESCRIPTORS,
    stale = const -libc::ESTALE,
    exit = const libc::SYS_exit,
    alternate = const libc::SYS_sigaltstack,
    mask = const libc::SYS_rt_sigprocmask,
    execute = const libc::SYS_execve,
    call_lent = sym crate::process::exec::novale_call_lent,
    borrowed = const BORROWED as i32,
    not_borrowed = const !BORROWED as i32,
    lent = const (BORROWED | SHARED) as i32,
    stack_bytes = const crate::base::thread::STACK_BYTES as i32,
    serve = sym serve_frame,
    block = sym crate::process::signals::novale_block,
    take_stack = sym crate::base::thread::take_stack,
    queue_again = sym crate::process::signals::novale_queue_again,
);
