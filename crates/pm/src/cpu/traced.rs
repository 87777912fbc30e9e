//! The instructions of this CPU, each noted before it is executed: no counter or observer can tell
//! whether a write-back or fence that was counted was executed too. And, on request, one of them left
//! out, cut short or moved after the next one: what this crate would do without it.
//!
//! For this crate's tests and the lab (feature `lab`). Trace and mutation are a thread's own.

use std::cell::{Cell, RefCell};
use std::panic::Location;

use super::{Cpu, WriteBackKind, native};

pub(crate) use native::{copy_out, has_wide, load_line, load_u64, prefetch, write_back_kinds};

/// An instruction, or a loop of one, with the address and length of what it stores or writes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executed {
    /// Stores through the cache.
    Store {
        /// Its first byte in this process.
        at: usize,
        /// So many.
        len: usize,
    },
    /// Stores past the cache.
    Stream {
        /// Its first byte in this process.
        at: usize,
        /// So many.
        len: usize,
    },
    /// Writes lines back.
    WriteBack {
        /// Their first byte in this process.
        at: usize,
        /// Bytes, whole lines.
        len: usize,
    },
    /// Completes this thread's write-backs and streaming stores.
    Fence,
}

/// What is changed of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum How {
    /// It is not executed.
    Removed,
    /// Its first byte, word or line is left out, where it has several.
    WithoutFirst,
    /// Its last byte, word or line is left out, where it has several.
    WithoutLast,
    /// What it streams goes to the cache, and is not written back.
    Cached,
    /// It is executed after the thread's next one.
    Behind,
}

/// Which executions of a place in one call are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Which {
    /// Every one.
    Each,
    /// The first since the trace began.
    First,
    /// All but the first.
    Later,
}

/// A change of one instruction in the source of this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mutation {
    /// The place in the source.
    pub site: &'static Location<'static>,
    /// Which of its executions.
    pub which: Which,
    /// What.
    pub how: How,
}

/// An instruction that was executed, with its place in the source.
pub type Noted = (Executed, &'static Location<'static>);

#[derive(Default)]
struct State {
    trace: Vec<Noted>,
    mutation: Option<Mutation>,
    /// Executions of the mutation's place.
    met: u32,
    delayed: Option<Delayed>,
}

/// An instruction that waits for the next one, with its site and a copy of the bytes that it stores.
struct Delayed {
    instruction: Instruction,
    site: &'static Location<'static>,
    bytes: Vec<u8>,
}

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    static STATE: RefCell<State> = RefCell::new(State::default());
}

/// Executes `call` with one instruction changed, or none, and returns what was executed.
pub fn traced(mutation: Option<Mutation>, call: impl FnOnce()) -> Vec<Noted> {
    STATE.set(State { mutation, ..State::default() });
    IS_ON.set(true);
    call();
    IS_ON.set(false);
    STATE.take().trace
}

/// One call of this module.
#[derive(Clone, Copy)]
enum Instruction {
    Word { dst: *mut u8, value: u64 },
    Bytes { cpu: Cpu, dst: *mut u8, src: *const u8, len: usize },
    StreamWords { cpu: Cpu, dst: *mut u8, src: *const u8, count: usize },
    StreamLines { cpu: Cpu, dst: *mut u8, src: *const u8, count: usize },
    WriteBack { kind: WriteBackKind, dst: *mut u8, count: usize },
    Fence,
}

/// Notes and executes an instruction, or what the mutation makes of it.
///
/// # Safety
/// As the native function.
#[cold]
#[inline(never)]
unsafe fn execute(instruction: Instruction, site: &'static Location<'static>) {
    let (how, waiting) = STATE.with_borrow_mut(|state| (state.how(site), state.delayed.take()));
    let changed = match how {
        None => Some(instruction),
        Some(How::Behind) => {
            STATE.with_borrow_mut(|state| state.delayed = Some(Delayed::new(instruction, site)));
            None
        }
        Some(how) => instruction.changed(how),
    };
    if let Some(changed) = changed {
        // SAFETY: the same contract: a part of the same range.
        unsafe { changed.note_and_execute(site) };
    }
    if let Some(Delayed { instruction, site, bytes }) = waiting {
        // SAFETY: its destination was valid when it was called, and the pool is mapped still; its
        // source is the copy, which lives until here.
        unsafe { instruction.note_and_execute(site) };
        drop(bytes);
    }
}

impl State {
    /// What is to be changed at this place now.
    fn how(&mut self, site: &'static Location<'static>) -> Option<How> {
        let mutation = self.mutation.filter(|mutation| mutation.site == site)?;
        self.met += 1;
        let is_meant = match mutation.which {
            Which::Each => true,
            Which::First => self.met == 1,
            Which::Later => self.met > 1,
        };
        is_meant.then_some(mutation.how)
    }
}

impl Delayed {
    fn new(instruction: Instruction, site: &'static Location<'static>) -> Self {
        let (mut instruction, mut bytes) = (instruction, Vec::new());
        if let Instruction::Bytes { src, len, .. } = &mut instruction {
            bytes = vec![0; *len];
            // SAFETY: `src` is valid for `len` bytes by the contract of the call, which has not
            // returned yet; `bytes` has as many.
            unsafe { std::ptr::copy_nonoverlapping(*src, bytes.as_mut_ptr(), *len) };
            *src = bytes.as_ptr();
        }
        Self { instruction, site, bytes }
    }
}

impl Instruction {
    /// What is left of it; nothing, where it has one unit or goes whole.
    fn changed(self, how: How) -> Option<Self> {
        let cut = |dst: *mut u8, src: *const u8, count: usize, unit: usize| {
            let at = if how == How::WithoutFirst { unit } else { 0 };
            let left = count.checked_sub(1).filter(|left| *left > 0);
            left.map(|left| (dst.wrapping_add(at), src.wrapping_add(at), left))
        };
        match (self, how) {
            (_, How::Removed) | (Self::Word { .. } | Self::Fence, _) => None,
            (Self::StreamWords { cpu, dst, src, count }, How::Cached) => {
                Some(Self::Bytes { cpu, dst, src, len: count * 8 })
            }
            (Self::StreamLines { cpu, dst, src, count }, How::Cached) => {
                Some(Self::Bytes { cpu, dst, src, len: count * 64 })
            }
            (Self::Bytes { cpu, dst, src, len }, _) => {
                cut(dst, src, len, 1).map(|(dst, src, len)| Self::Bytes { cpu, dst, src, len })
            }
            (Self::StreamWords { cpu, dst, src, count }, _) => cut(dst, src, count, 8)
                .map(|(dst, src, count)| Self::StreamWords { cpu, dst, src, count }),
            (Self::StreamLines { cpu, dst, src, count }, _) => cut(dst, src, count, 64)
                .map(|(dst, src, count)| Self::StreamLines { cpu, dst, src, count }),
            (Self::WriteBack { kind, dst, count }, _) => {
                cut(dst, dst, count, 64).map(|(dst, _, count)| Self::WriteBack { kind, dst, count })
            }
        }
    }

    fn executed(self) -> Executed {
        match self {
            Self::Word { dst, .. } => Executed::Store { at: dst.addr(), len: 8 },
            Self::Bytes { dst, len, .. } => Executed::Store { at: dst.addr(), len },
            Self::StreamWords { dst, count, .. } => {
                assert_eq!(dst.addr() % 8, 0, "streamed words are aligned");
                Executed::Stream { at: dst.addr(), len: count * 8 }
            }
            Self::StreamLines { dst, count, .. } => {
                assert_eq!(dst.addr() % 64, 0, "streamed lines are aligned");
                Executed::Stream { at: dst.addr(), len: count * 64 }
            }
            Self::WriteBack { dst, count, .. } => {
                let is_whole = dst.addr().is_multiple_of(64) && count > 0;
                assert!(is_whole, "whole lines, at least one");
                Executed::WriteBack { at: dst.addr(), len: count * 64 }
            }
            Self::Fence => Executed::Fence,
        }
    }

    /// # Safety
    /// As the native function.
    unsafe fn note_and_execute(self, site: &'static Location<'static>) {
        STATE.with_borrow_mut(|state| state.trace.push((self.executed(), site)));
        match self {
            // SAFETY: the same contract, as in all arms.
            Self::Word { dst, value } => unsafe { native::store_u64(dst, value) },
            // SAFETY: as above.
            Self::Bytes { cpu, dst, src, len } => unsafe { native::copy_in(cpu, dst, src, len) },
            // SAFETY: as above.
            Self::StreamWords { cpu, dst, src, count } => unsafe {
                native::stream_words(cpu, dst, src, count);
            },
            // SAFETY: as above; a line that is streamed alone is one of a loop of one.
            Self::StreamLines { cpu, dst, src, count } => unsafe {
                native::stream_lines(cpu, dst, src, count);
            },
            // SAFETY: as above.
            Self::WriteBack { kind, dst, count } => unsafe {
                native::write_back_lines(kind, dst, count);
            },
            Self::Fence => native::fence(),
        }
    }
}

/// # Safety
/// As the native one; here and below.
#[inline(always)]
#[track_caller]
pub(crate) unsafe fn store_u64(dst: *mut u8, value: u64) {
    if IS_ON.get() {
        // SAFETY: the same contract.
        return unsafe { execute(Instruction::Word { dst, value }, Location::caller()) };
    }
    // SAFETY: the same contract.
    unsafe { native::store_u64(dst, value) };
}

/// # Safety
/// As the native one.
#[inline(always)]
#[track_caller]
pub(crate) unsafe fn copy_in(cpu: Cpu, dst: *mut u8, src: *const u8, len: usize) {
    if IS_ON.get() {
        let instruction = Instruction::Bytes { cpu, dst, src, len };
        // SAFETY: the same contract.
        return unsafe { execute(instruction, Location::caller()) };
    }
    // SAFETY: the same contract.
    unsafe { native::copy_in(cpu, dst, src, len) };
}

/// # Safety
/// As the native one.
#[inline(always)]
#[track_caller]
pub(crate) unsafe fn stream_words(cpu: Cpu, dst: *mut u8, src: *const u8, count: usize) {
    if IS_ON.get() {
        let instruction = Instruction::StreamWords { cpu, dst, src, count };
        // SAFETY: the same contract.
        return unsafe { execute(instruction, Location::caller()) };
    }
    // SAFETY: the same contract.
    unsafe { native::stream_words(cpu, dst, src, count) };
}

/// # Safety
/// As the native one.
#[inline(always)]
#[track_caller]
pub(crate) unsafe fn stream_line(cpu: Cpu, dst: *mut u8, src: *const u8) {
    if IS_ON.get() {
        let instruction = Instruction::StreamLines { cpu, dst, src, count: 1 };
        // SAFETY: the same contract.
        return unsafe { execute(instruction, Location::caller()) };
    }
    // SAFETY: the same contract.
    unsafe { native::stream_line(cpu, dst, src) };
}

/// # Safety
/// As the native one.
#[inline(always)]
#[track_caller]
pub(crate) unsafe fn stream_lines(cpu: Cpu, dst: *mut u8, src: *const u8, count: usize) {
    if IS_ON.get() {
        let instruction = Instruction::StreamLines { cpu, dst, src, count };
        // SAFETY: the same contract.
        return unsafe { execute(instruction, Location::caller()) };
    }
    // SAFETY: the same contract.
    unsafe { native::stream_lines(cpu, dst, src, count) };
}

/// # Safety
/// As the native one.
#[inline(always)]
#[track_caller]
pub(crate) unsafe fn write_back_lines(kind: WriteBackKind, dst: *mut u8, count: usize) {
    if IS_ON.get() {
        let instruction = Instruction::WriteBack { kind, dst, count };
        // SAFETY: the same contract.
        return unsafe { execute(instruction, Location::caller()) };
    }
    // SAFETY: the same contract.
    unsafe { native::write_back_lines(kind, dst, count) };
}

#[inline(always)]
#[track_caller]
pub(crate) fn fence() {
    if IS_ON.get() {
        // SAFETY: a fence has no operands.
        return unsafe { execute(Instruction::Fence, Location::caller()) };
    }
    native::fence();
}
