//! Where a library or a program makes system calls: found by decoding its text once, kept in a file
//! from then on ([`crate::text::kept`]).
//!
//! A site is a few whole instructions, at least five bytes, of which one is `syscall` and none
//! depends on where it stands; nothing jumps into its middle, as far as the text and the library's data tell, and
//! there is no padding in it. They are replaced by a jump ([`crate::text::patch`]).

use std::collections::{HashSet, VecDeque};
use std::ops::Deref;

use arrayvec::ArrayVec;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind,
    Register,
};

use crate::text::data::{Data, Wanted};
use crate::text::patch::BREAKPOINT;

/// Bytes of a jump with a 32-bit distance.
pub(crate) const JUMP_BYTES: usize = 5;
/// Instructions looked at on either side of a `syscall`.
const NEIGHBOURS: usize = 4;
/// Instructions back to the one that sets the call's number.
const NUMBER_SEARCH: usize = 12;

/// One place, relative to where its library is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Site {
    /// Offset of the first byte replaced.
    pub(crate) start: u32,
    /// Bytes replaced.
    pub(crate) len: u8,
    /// Offset of the `syscall` after `start`.
    pub(crate) at: u8,
    /// The call's number; `None` where it is known only when it runs.
    pub(crate) number: Option<u16>,
}

/// Sites of one table.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "it lives on the stack of a program that starts")]
pub(crate) enum Sites {
    /// As many as most that are loaded have, without memory of their own.
    Few(ArrayVec<Site, 64>),
    Many(Vec<Site>),
}

impl Site {
    /// Whether no jump can take its place.
    #[inline]
    pub(crate) fn is_left(&self) -> bool {
        usize::from(self.len) < JUMP_BYTES
    }
}

impl Sites {
    /// Leaves out all but those of which `stays` is true.
    #[inline]
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(&Site) -> bool) {
        match self {
            Self::Few(all) => all.retain(|site| stays(site)),
            Self::Many(all) => all.retain(stays),
        }
    }
}

impl Deref for Sites {
    type Target = [Site];

    #[inline]
    fn deref(&self) -> &[Site] {
        match self {
            Self::Few(all) => all,
            Self::Many(all) => all,
        }
    }
}

/// Bytes of a block of addresses: targets of jumps are noted near system calls alone.
const BLOCK: u64 = 64;
/// Bytes before a `syscall` in which its number is set, as a rule.
const NEAR: usize = 64;
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Whether a text that is not libc's may make a system call whose number stands in it. The two bytes
/// of the instruction are in other ones and in data by chance too. A debugger's breakpoint hides nothing.
pub(crate) fn may_call(text: &[u8]) -> bool {
    let is_call = |two: &[u8]| matches!(two, [0x0f | BREAKPOINT, 0x05]);
    let calls = text.windows(2).enumerate().filter(|(_, two)| is_call(two));
    calls.map(|(at, _)| at).any(|at| {
        let before = text.get(at.saturating_sub(NEAR)..at).unwrap_or_default();
        // mov eax, NUMBER, and push NUMBER; mov rax, NUMBER as an assembler has it; xor eax, eax in both its forms,
        // and push of a small number
        let set = |five: &[u8]| matches!(five, [0xb8 | 0x68 | BREAKPOINT, _, 0 | 1, 0, 0]);
        let set_wide =
            |seven: &[u8]| matches!(seven, [0x48 | BREAKPOINT, 0xc7, 0xc0, _, 0 | 1, 0, 0]);
        let short = |two: &[u8]| matches!(two, [0x31 | 0x33 | BREAKPOINT, 0xc0] | [0x6a, 0..=0x7f]);
        before.windows(5).any(set)
            || before.windows(7).any(set_wide)
            || before.windows(2).any(short)
    })
}

fn each_syscall(text: &[u8]) -> impl Iterator<Item = usize> {
    text.windows(2).enumerate().filter(|(_, two)| *two == SYSCALL).map(|(at, _)| at)
}

/// Finds the sites in `text`, which is loaded at `base + offset` of a library with this data, in their order. Of a
/// `syscall` that no jump can take the place of there is one that is left ([`Site::is_left`]), where its number is
/// known. False with those that are left alone, where the data can't be looked at.
pub(crate) fn find(text: &[u8], (base, offset): (u64, u32), data: &Data) -> (Vec<Site>, bool) {
    let start = u64::from(offset);
    let mut led = Led { near: near(text, start), targets: HashSet::new(), tables: HashSet::new() };
    let calls = calls(text, start, &mut led);
    let mut is_known = true;
    if !calls.is_empty() {
        // What seldom runs is put apart by some linkers, and jumps back.
        is_known = data.others(base, start, |start, text| {
            let decoder = Decoder::with_ip(64, text, start, DecoderOptions::NONE);
            decoder.into_iter().for_each(|instruction| led.note(&instruction));
        });
        let text = start..start + text.len() as u64;
        let Led { near, targets, tables } = &mut led;
        let is_near = |at: u64| near.contains(&(at / BLOCK));
        is_known &= data.lead(base, &Wanted { text, is_near, tables }, targets);
    }
    let mut free_from = if is_known { 0 } else { u64::MAX };
    let mut next = |call: &Call| {
        let found = site(&call.around, call.index, &led.targets, free_from)?;
        free_from = free_from.max(u64::from(found.start) + u64::from(found.len));
        Some(found)
    };
    (calls.iter().filter_map(&mut next).collect(), is_known)
}

/// Where code leads, near the system calls of a text.
struct Led {
    /// Blocks.
    near: HashSet<u64>,
    targets: HashSet<u64>,
    /// Addresses that instructions take, wherever.
    tables: HashSet<u64>,
}

impl Led {
    fn note(&mut self, instruction: &Instruction) {
        let is_near = |at: &u64| self.near.contains(&(at / BLOCK));
        self.targets.extend(branch_target(instruction).filter(is_near));
        if let Some(taken) = taken_address(instruction) {
            self.targets.extend(Some(taken).filter(is_near));
            self.tables.insert(taken);
        }
    }
}

/// The blocks near the system calls of a text.
fn near(text: &[u8], start: u64) -> HashSet<u64> {
    let blocks = each_syscall(text).map(|at| (start + at as u64) / BLOCK);
    blocks.flat_map(|block| block.saturating_sub(2)..=block + 2).collect()
}

/// The system calls of a text, which is decoded for this, and where its code leads.
fn calls(text: &[u8], start: u64, led: &mut Led) -> Vec<Call> {
    let mut calls = Vec::new();
    // The last few instructions; those around each call.
    let mut recent: VecDeque<Instruction> = VecDeque::new();
    let mut open: Option<Call> = None;
    for instruction in &mut Decoder::with_ip(64, text, start, DecoderOptions::NONE) {
        led.note(&instruction);
        if let Some(mut call) = open.take() {
            call.around.push(instruction);
            if call.around.len() <= call.index + NEIGHBOURS {
                open = Some(call);
            } else {
                calls.push(call);
            }
        }
        recent.push_back(instruction);
        if recent.len() > NUMBER_SEARCH {
            recent.pop_front();
        }
        if instruction.mnemonic() == Mnemonic::Syscall {
            calls.extend(open.take());
            open = Some(Call { index: recent.len() - 1, around: recent.iter().copied().collect() });
        }
    }
    calls.extend(open);
    calls
}

/// A `syscall` with the instructions around it.
struct Call {
    around: Vec<Instruction>,
    /// Where in them it stands.
    index: usize,
}

fn branch_target(instruction: &Instruction) -> Option<u64> {
    let near = matches!(
        instruction.op0_kind(),
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
    );
    near.then(|| instruction.near_branch_target())
}

/// The address that an instruction takes: of a label, or of a table, as before a jump by one.
fn taken_address(instruction: &Instruction) -> Option<u64> {
    let mnemonic = instruction.mnemonic();
    if mnemonic == Mnemonic::Lea {
        let relative = instruction.is_ip_rel_memory_operand();
        return relative.then(|| instruction.ip_rel_memory_address());
    }
    let may_be = mnemonic == Mnemonic::Mov || mnemonic == Mnemonic::Push;
    let last = instruction.op_count().checked_sub(1).filter(|_| may_be)?;
    instruction.try_immediate(last).ok()
}

/// The run of instructions around a `syscall` that is best replaced by a jump, none of it before `free_from`.
fn site(all: &[Instruction], index: usize, targets: &HashSet<u64>, free_from: u64) -> Option<Site> {
    // Those before come first: what is after may be a place to return to. And a program that was interrupted in
    // the call may go on later where its handler saw it: at the `syscall`, or after it. These places stay where
    // the jump ends before them.
    let ends_before = [JUMP_BYTES, JUMP_BYTES - SYSCALL.len(), 0];
    let fitting = runs(all, index)
        .filter(|(run, _)| run.first().is_some_and(|first| first.ip() >= free_from));
    let fitting: ArrayVec<Site, { (NEIGHBOURS + 1) * (NEIGHBOURS + 1) }> =
        fitting.filter_map(|(run, before)| fits(run, before, targets)).collect();
    let shortest = |least: usize| {
        let has_least = |site: &&Site| usize::from(site.at) >= least;
        fitting.iter().filter(has_least).min_by_key(|site| site.len)
    };
    let number = number(all, index, targets);
    if let Some(site) = ends_before.iter().find_map(|least| shortest(*least)) {
        return Some(Site { number, ..*site });
    }
    let start = u32::try_from(all.get(index)?.ip()).ok()?;
    number.map(|_| Site { start, len: SYSCALL.len() as u8, at: 0, number })
}

/// The runs of instructions around a `syscall`, each with how many of them stand before it.
fn runs(all: &[Instruction], index: usize) -> impl Iterator<Item = (&[Instruction], usize)> {
    let befores = (0..=NEIGHBOURS).filter(move |before| *before <= index);
    befores.flat_map(move |before| {
        let run = move |after: usize| Some((all.get(index - before..=index + after)?, before));
        (0..=NEIGHBOURS).map_while(run)
    })
}

fn fits(run: &[Instruction], before: usize, targets: &HashSet<u64>) -> Option<Site> {
    let (first, last, syscall) = (run.first()?, run.last()?, run.get(before)?);
    let len = usize::try_from(last.next_ip() - first.ip()).ok()?;
    let whole = run.windows(2).all(|two| matches!(two, [a, b] if a.next_ip() == b.ip()));
    let others = run.iter().enumerate().all(|(at, one)| at == before || moves(one));
    let entered = run.iter().skip(1).any(|one| targets.contains(&one.ip()) || is_entry(one));
    let padded = run.iter().any(is_padding);
    (len >= JUMP_BYTES && whole && others && !entered && !padded).then_some(Site {
        start: u32::try_from(first.ip()).ok()?,
        len: u8::try_from(len).ok()?,
        at: u8::try_from(syscall.ip() - first.ip()).ok()?,
        number: None,
    })
}

/// Whether an instruction says that jumps lead to it whose targets no instruction tells.
fn is_entry(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Endbr64
}

/// Whether an instruction is there for the sake of the next one's address: somebody comes in behind it, by a
/// symbol or a pointer that the text does not tell, and nobody may come by itself.
fn is_padding(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3 | Mnemonic::Hlt)
}

/// Whether an instruction does the same wherever it stands.
fn moves(instruction: &Instruction) -> bool {
    instruction.flow_control() == FlowControl::Next
        && !instruction.is_invalid()
        && !instruction.is_ip_rel_memory_operand()
        && instruction.mnemonic() != Mnemonic::Syscall
}

/// The number in eax where what stands just before sets it, one instruction or two (`push`, `pop`), and nothing
/// jumps in between.
fn number(all: &[Instruction], index: usize, targets: &HashSet<u64>) -> Option<u16> {
    let mut is_popped = false;
    for back in 0..NUMBER_SEARCH {
        let here = all.get(index.checked_sub(back)?)?;
        if back > 0 {
            let set = if is_popped { pushed(here) } else { set(here) };
            if set.is_some() {
                return set;
            }
            let is_pop = here.mnemonic() == Mnemonic::Pop && here.op0_register() == Register::RAX;
            let is_changed = if is_popped { uses_stack(here) } else { is_to_eax(here) && !is_pop };
            if is_changed || here.flow_control() != FlowControl::Next {
                return None;
            }
            is_popped |= is_pop;
        }
        if targets.contains(&here.ip()) {
            return None;
        }
    }
    None
}

/// Whether an instruction names the register of the number first.
fn is_to_eax(instruction: &Instruction) -> bool {
    instruction.op_count() > 0
        && instruction.op0_kind() == OpKind::Register
        && matches!(
            instruction.op0_register(),
            Register::EAX | Register::RAX | Register::AX | Register::AL
        )
}

/// The number that an instruction puts in eax.
fn set(instruction: &Instruction) -> Option<u16> {
    let mnemonic = instruction.mnemonic();
    if !is_to_eax(instruction) {
        return None;
    }
    if mnemonic == Mnemonic::Xor && instruction.op1_register() == instruction.op0_register() {
        return Some(0);
    }
    let is_whole = matches!(
        instruction.op1_kind(),
        OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64
    );
    let is_set = mnemonic == Mnemonic::Mov && is_whole;
    is_set.then(|| u16::try_from(instruction.immediate(1)).ok())?
}

/// The number that an instruction puts on the stack, as a whole word.
fn pushed(instruction: &Instruction) -> Option<u16> {
    let is_whole =
        matches!(instruction.op0_kind(), OpKind::Immediate8to64 | OpKind::Immediate32to64);
    let is_pushed = instruction.mnemonic() == Mnemonic::Push && is_whole;
    is_pushed.then(|| u16::try_from(instruction.immediate(0)).ok())?
}

/// Whether another word may be on top of the stack after an instruction, or something else in it.
fn uses_stack(instruction: &Instruction) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let used = factory.info(instruction).used_registers();
    used.iter().any(|used| used.register().full_register() == Register::RSP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &[&[u8]]) -> Vec<Site> {
        find(&code.concat(), (0, 0), &Data::Loaded(&[])).0
    }

    const RET: &[u8] = &[0xc3];
    const SYSCALL_RET: &[u8] = &[0x0f, 0x05, 0xc3];
    const XOR_EAX: &[u8] = &[0x31, 0xc0];
    const NOP: &[u8] = &[0x0f, 0x1f, 0x00];
    const ENDBR: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];

    /// A jump over the end of the padding and the first bytes of a function of four bytes: who called the function
    /// went on in the middle of the jump.
    #[test]
    fn padding_is_no_part_of_a_site() {
        let left = |start| [Site { start, len: 2, at: 0, number: Some(0) }];
        assert_eq!(found(&[RET, NOP, XOR_EAX, SYSCALL_RET]), left(6));
        // It was a site of the padding alone: no call was served.
        assert_eq!(found(&[RET, NOP, NOP, XOR_EAX, SYSCALL_RET]), left(9));
        // A call that does not come back, and the next function.
        assert_eq!(found(&[RET, XOR_EAX, &SYSCALL, NOP, XOR_EAX, RET]), left(3));
        assert_eq!(found(&[RET, XOR_EAX, &SYSCALL, ENDBR, XOR_EAX, RET]), left(3));
        let whole = Site { start: 1, len: 8, at: 6, number: Some(0) };
        assert_eq!(found(&[RET, ENDBR, XOR_EAX, SYSCALL_RET]), [whole]);
    }

    #[test]
    fn nothing_is_replaced_where_the_data_is_not_known() {
        let code = [XOR_EAX, XOR_EAX, SYSCALL_RET].concat();
        let left = Site { start: 4, len: 2, at: 0, number: Some(0) };
        assert_eq!(find(&code, (0, 0), &Data::File(u64::MAX, Vec::new())), (vec![left], false));
        assert!(!found(&[&code])[0].is_left());
    }

    #[test]
    fn no_two_sites_overlap_and_what_has_no_room_is_left() {
        const CLOSE: &[u8] = &[0xb8, 3, 0, 0, 0];
        // lea rsi, [rip + 4096], which can't be moved; mov ebp, eax
        let (lea, mov): (&[u8], &[u8]) = (&[0x48, 0x8d, 0x35, 0, 16, 0, 0], &[0x89, 0xc5]);
        let read = Site { start: 7, len: 6, at: 2, number: Some(0) };
        let close = Site { start: 13, len: 7, at: 5, number: Some(3) };
        let apart = found(&[lea, XOR_EAX, &SYSCALL, mov, CLOSE, SYSCALL_RET]);
        assert_eq!(apart, [read, close]);
        let read = Site { start: 9, len: 7, at: 0, number: Some(0) };
        let left = Site { start: 16, len: 2, at: 0, number: Some(3) };
        let close_by = found(&[lea, XOR_EAX, &SYSCALL, CLOSE, SYSCALL_RET]);
        assert_eq!(close_by, [read, left]);
        assert!(left.is_left() && !read.is_left());
    }

    #[test]
    fn a_number_beside_a_call_is_seen_however_it_is_set() {
        let wide: &[u8] = &[0x48, 0xc7, 0xc0, 18, 0, 0, 0];
        for (set, number) in [(wide, 18), (&[0xb8, 17, 0, 0, 0], 17)] {
            let code = [set, SYSCALL_RET].concat();
            assert!(may_call(&code));
            assert_eq!(numbers(&code), [Some(number)]);
        }
        assert!(!may_call(SYSCALL_RET));
        for code in [&[BREAKPOINT, 17, 0, 0, 0, 0x0f, 0x05][..], &[0x31, 0xc0, BREAKPOINT, 0x05]] {
            assert!(may_call(code));
        }
    }

    /// The numbers of the calls in a text that is loaded behind what is pushed here, which would lead into it.
    fn numbers(code: &[u8]) -> Vec<Option<u16>> {
        let (sites, is_known) = find(code, (0, 4096), &Data::Loaded(&[]));
        assert!(is_known);
        sites.iter().map(|site| site.number).collect()
    }

    /// Compilers for size set numbers by way of the stack, other instructions in between.
    #[test]
    fn a_number_that_is_pushed_and_popped_is_seen_where_nothing_else_comes_between() {
        const POP: &[u8] = &[0x58];
        let (short, long): (&[u8], &[u8]) = (&[0x6a, 3], &[0x68, 17, 1, 0, 0]);
        // movsxd rdi, edi; mov [rsi], rdx
        let (wider, store): (&[u8], &[u8]) = (&[0x48, 0x63, 0xff], &[0x48, 0x89, 0x16]);
        for (push, number) in [(short, 3), (long, 273)] {
            for between in [&[], wider, store] {
                let code = [push, between, POP, wider, SYSCALL_RET].concat();
                assert!(may_call(&code));
                assert_eq!(numbers(&code), [Some(number)], "{between:x?}");
            }
        }
        // push rdi; pop rcx; mov [rsp], rdi; add rsp, 8; jmp to the next one; call it
        let others: [&[u8]; 6] = [
            &[0x57],
            &[0x59],
            &[0x48, 0x89, 0x3c, 0x24],
            &[0x48, 0x83, 0xc4, 8],
            &[0xeb, 0],
            &[0xe8, 0, 0, 0, 0],
        ];
        for other in others {
            let code = [short, other, POP, wider, SYSCALL_RET].concat();
            assert_eq!(numbers(&code), [None], "{other:x?}");
        }
        // push -1; push of a word of two bytes; pop into another register, and of two bytes
        for set in [&[0x6a, 0xff, 0x58][..], &[0x66, 0x6a, 3, 0x58], &[0x6a, 3, 0x59]] {
            assert_eq!(numbers(&[set, wider, SYSCALL_RET].concat()), [None], "{set:x?}");
        }
        assert_eq!(numbers(&[short, &[0x66, 0x58], wider, SYSCALL_RET].concat()), [None]);
        // A jump to the pop comes with another word.
        let led = [short, POP, wider, SYSCALL_RET, &[0xeb, 0xf7]].concat();
        assert_eq!(numbers(&led), [None]);
    }
}
