//! Vector registers of a call that is no function's: whoever makes one by an instruction of its own has the
//! kernel's word that it keeps all registers but two.
//!
//! What serves the call uses some of them, and functions of libc use those that this machine has: the upper
//! halves, those of 512 bits, masks. They are put on the stack around it, by the instruction that stores
//! what is in use alone where there is one.

use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::arch::{asm, global_asm};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Parts of a processor's state, as its instructions name them: xmm, ymm, masks, the upper halves of zmm0 to
/// zmm15, zmm16 to zmm31.
const VECTORS: u32 = 1 << 1 | YMM | WIDE;
const YMM: u32 = 1 << 2;
const WIDE: u32 = 1 << 5 | 1 << 6 | 1 << 7;

/// What FXSAVE stores, and the head of what XSAVE does.
const LEGACY_BYTES: u64 = 512;
const HEAD_BYTES: u64 = 64;
/// What is behind that in the compact form.
const YMM_BYTES: u64 = 256;
const WIDE_BYTES: u64 = 64 + 512 + 1024;

/// Bytes for what is stored.
static BYTES: AtomicU64 = AtomicU64::new(LEGACY_BYTES);
/// The parts that are stored; 0 for FXSAVE.
static PARTS: AtomicU32 = AtomicU32::new(0);
/// Not 0 where they are stored in the compact form.
static IS_COMPACT: AtomicU32 = AtomicU32::new(0);

/// Asks the processor what it has. Before the first such call is replaced: to ask takes microseconds in a virtual
/// machine, and few programs make one.
#[cold]
pub(crate) fn begin() {
    const HAS_XSAVE: u32 = 1 << 27;
    const HAS_XSAVEC: u32 = 1 << 1;
    const LEAF: u32 = 13;
    if PARTS.load(Ordering::Relaxed) != 0 || __cpuid(1).ecx & HAS_XSAVE == 0 {
        return;
    }
    let enabled: u32;
    // SAFETY: the kernel has enabled the instruction, which reads a register of the processor's.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") enabled, out("edx") _, options(nomem, nostack));
    }
    let parts = enabled & VECTORS;
    let is_compact = __cpuid_count(LEAF, 1).eax & HAS_XSAVEC != 0;
    let bytes = if !is_compact {
        u64::from(__cpuid_count(LEAF, 0).ebx)
    } else if parts & WIDE != 0 {
        LEGACY_BYTES + HEAD_BYTES + YMM_BYTES + WIDE_BYTES
    } else {
        LEGACY_BYTES + HEAD_BYTES + YMM_BYTES
    };
    BYTES.store(bytes, Ordering::Relaxed);
    IS_COMPACT.store(is_compact.into(), Ordering::Relaxed);
    PARTS.store(parts, Ordering::Relaxed);
}

global_asm!(
    ".text",
    // r11: what to call, with up to four arguments in their registers
    ".globl novale_keeping",
    ".hidden novale_keeping",
    ".type novale_keeping, @function",
    "novale_keeping:",
    "push rbp",
    "mov rbp, rsp",
    "push rbx",
    "sub rsp, qword ptr [rip + {bytes}]",
    "and rsp, -64",
    "mov eax, dword ptr [rip + {parts}]",
    "test eax, eax",
    "jz 2f",
    "mov rbx, rdx",
    "xor edx, edx",
    // The head: not all of it is stored, and what is loaded has to have zeroes there.
    "mov qword ptr [rsp + 512], rdx",
    "mov qword ptr [rsp + 520], rdx",
    "mov qword ptr [rsp + 528], rdx",
    "mov qword ptr [rsp + 536], rdx",
    "mov qword ptr [rsp + 544], rdx",
    "mov qword ptr [rsp + 552], rdx",
    "mov qword ptr [rsp + 560], rdx",
    "mov qword ptr [rsp + 568], rdx",
    "cmp dword ptr [rip + {is_compact}], 0",
    "je 3f",
    "xsavec64 [rsp]",
    "jmp 4f",
    "2:",
    "fxsave64 [rsp]",
    "call r11",
    "fxrstor64 [rsp]",
    "jmp 5f",
    "3:",
    "xsave64 [rsp]",
    "4:",
    // Baseline code waits for the upper halves wherever it stores to the lower ones.
    "test eax, {ymm}",
    "jz 6f",
    "vzeroupper",
    "6:",
    "mov rdx, rbx",
    "call r11",
    "mov rbx, rax",
    "mov eax, dword ptr [rip + {parts}]",
    "xor edx, edx",
    "xrstor64 [rsp]",
    "mov rax, rbx",
    "5:",
    "lea rsp, [rbp - 8]",
    "pop rbx",
    "pop rbp",
    "ret",
    bytes = sym BYTES,
    parts = sym PARTS,
    is_compact = sym IS_COMPACT,
    ymm = const YMM,
);
