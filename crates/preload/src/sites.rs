//! Where libc makes system calls: found by decoding its text once, kept in a file from then on.
//!
//! A site is a few whole instructions, at least five bytes, of which one is `syscall` and none
//! depends on where it stands; nothing in libc jumps into its middle. They are replaced by a jump
//! ([`crate::patch`]).

use std::collections::HashSet;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// Bytes of a jump with a 32-bit distance.
pub(crate) const JUMP_BYTES: usize = 5;
/// Instructions looked at on either side of a `syscall`.
const NEIGHBOURS: usize = 4;
/// Instructions back to the one that sets the call's number.
const NUMBER_SEARCH: usize = 12;

/// One place in libc, relative to where it is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Site {
    /// Offset of the first byte replaced.
    pub(crate) start: u32,
    /// Bytes replaced.
    pub(crate) len: u8,
    /// Offset of the `syscall` behind `start`.
    pub(crate) at: u8,
    /// The call's number; `None` where it is known only when it runs.
    pub(crate) number: Option<u16>,
}

/// What was found in a text.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) sites: Vec<Site>,
    /// System calls that no jump can take the place of.
    pub(crate) missed: usize,
}

/// Finds the sites in `text`, which is loaded at `base + offset`.
pub(crate) fn find(text: &[u8], offset: u32) -> Found {
    let mut decoder = Decoder::with_ip(64, text, u64::from(offset), DecoderOptions::NONE);
    let all: Vec<Instruction> = decoder.iter().collect();
    let targets: HashSet<u64> = all.iter().filter_map(branch_target).collect();
    let mut found = Found::default();
    for (index, instruction) in all.iter().enumerate() {
        if instruction.mnemonic() == Mnemonic::Syscall {
            match site(&all, index, &targets) {
                Some(site) => found.sites.push(site),
                None => found.missed += 1,
            }
        }
    }
    found
}

fn branch_target(instruction: &Instruction) -> Option<u64> {
    let near = matches!(
        instruction.op0_kind(),
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
    );
    near.then(|| instruction.near_branch_target())
}

/// The shortest run of instructions around a `syscall` that a jump fits over.
fn site(all: &[Instruction], index: usize, targets: &HashSet<u64>) -> Option<Site> {
    let syscall = all.get(index)?;
    // Those before come first: what is behind may be a place to return to.
    for before in 0..=NEIGHBOURS {
        for after in 0..=NEIGHBOURS {
            let first = index.checked_sub(before)?;
            let Some(run) = all.get(first..=index + after) else { break };
            if let Some(site) = fits(run, before, targets) {
                let number = number(all, index, targets);
                return Some(Site { number, ..site });
            }
            if run.len() > 1 && !run.last().is_some_and(|last| last == syscall || moves(last)) {
                break;
            }
        }
    }
    None
}

fn fits(run: &[Instruction], before: usize, targets: &HashSet<u64>) -> Option<Site> {
    let (first, last, syscall) = (run.first()?, run.last()?, run.get(before)?);
    let len = usize::try_from(last.next_ip() - first.ip()).ok()?;
    let whole = run.windows(2).all(|two| matches!(two, [a, b] if a.next_ip() == b.ip()));
    let others = run.iter().enumerate().all(|(at, one)| at == before || moves(one));
    let entered = run.iter().skip(1).any(|one| targets.contains(&one.ip()));
    (len >= JUMP_BYTES && whole && others && !entered).then_some(Site {
        start: u32::try_from(first.ip()).ok()?,
        len: u8::try_from(len).ok()?,
        at: u8::try_from(syscall.ip() - first.ip()).ok()?,
        number: None,
    })
}

/// Whether an instruction does the same wherever it stands.
fn moves(instruction: &Instruction) -> bool {
    instruction.flow_control() == FlowControl::Next
        && !instruction.is_invalid()
        && !instruction.is_ip_rel_memory_operand()
        && instruction.mnemonic() != Mnemonic::Syscall
}

/// The number in eax where one instruction just before sets it, and nothing jumps in between.
fn number(all: &[Instruction], index: usize, targets: &HashSet<u64>) -> Option<u16> {
    for back in 0..NUMBER_SEARCH {
        let here = all.get(index.checked_sub(back)?)?;
        if back > 0 {
            let to_eax = here.op_count() > 0
                && here.op0_kind() == OpKind::Register
                && matches!(
                    here.op0_register(),
                    Register::EAX | Register::RAX | Register::AX | Register::AL
                );
            let sets = here.mnemonic() == Mnemonic::Mov && here.op1_kind() != OpKind::Register;
            if to_eax
                && sets
                && matches!(
                    here.op1_kind(),
                    OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64
                )
            {
                return u16::try_from(here.immediate(1)).ok();
            }
            if to_eax
                && here.mnemonic() == Mnemonic::Xor
                && here.op1_register() == here.op0_register()
            {
                return Some(0);
            }
            if to_eax || here.flow_control() != FlowControl::Next {
                return None;
            }
        }
        if targets.contains(&here.ip()) {
            return None;
        }
    }
    None
}
