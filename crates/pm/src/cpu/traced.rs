//! The instructions of this CPU, each noted before it is executed: no counter or observer can
//! tell whether a write-back or fence that was counted was executed too.

use std::cell::RefCell;

use super::{Cpu, WriteBackKind, native};

pub(crate) use native::{copy_out, has_wide, load_line, load_u64, prefetch, write_back_kinds};

/// An instruction, or a loop of one, with the address and length of what it stores or writes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Executed {
    Store { at: usize, len: usize },
    Stream { at: usize, len: usize },
    WriteBack { at: usize, len: usize },
    Fence,
}

thread_local! {
    static TRACE: RefCell<Vec<Executed>> = const { RefCell::new(Vec::new()) };
}

/// What this thread has executed since the last call.
pub(crate) fn take_trace() -> Vec<Executed> {
    TRACE.take()
}

fn note(executed: Executed) {
    TRACE.with_borrow_mut(|trace| trace.push(executed));
}

/// # Safety
/// As the native one; here and below.
pub(crate) unsafe fn store_u64(dst: *mut u8, value: u64) {
    note(Executed::Store { at: dst.addr(), len: 8 });
    // SAFETY: the same contract.
    unsafe { native::store_u64(dst, value) };
}

/// # Safety
/// As the native one.
pub(crate) unsafe fn copy_in(cpu: Cpu, dst: *mut u8, src: *const u8, len: usize) {
    note(Executed::Store { at: dst.addr(), len });
    // SAFETY: the same contract.
    unsafe { native::copy_in(cpu, dst, src, len) };
}

/// # Safety
/// As the native one.
pub(crate) unsafe fn stream_words(cpu: Cpu, dst: *mut u8, src: *const u8, count: usize) {
    assert_eq!(dst.addr() % 8, 0, "streamed words are aligned");
    note(Executed::Stream { at: dst.addr(), len: count * 8 });
    // SAFETY: the same contract.
    unsafe { native::stream_words(cpu, dst, src, count) };
}

/// # Safety
/// As the native one.
pub(crate) unsafe fn stream_line(cpu: Cpu, dst: *mut u8, src: *const u8) {
    assert_eq!(dst.addr() % 64, 0, "a streamed line is aligned");
    note(Executed::Stream { at: dst.addr(), len: 64 });
    // SAFETY: the same contract.
    unsafe { native::stream_line(cpu, dst, src) };
}

/// # Safety
/// As the native one.
pub(crate) unsafe fn stream_lines(cpu: Cpu, dst: *mut u8, src: *const u8, count: usize) {
    assert_eq!(dst.addr() % 64, 0, "streamed lines are aligned");
    note(Executed::Stream { at: dst.addr(), len: count * 64 });
    // SAFETY: the same contract.
    unsafe { native::stream_lines(cpu, dst, src, count) };
}

/// # Safety
/// As the native one.
pub(crate) unsafe fn write_back_lines(kind: WriteBackKind, dst: *mut u8, count: usize) {
    assert!(dst.addr().is_multiple_of(64) && count > 0, "whole lines, at least one");
    note(Executed::WriteBack { at: dst.addr(), len: count * 64 });
    // SAFETY: the same contract.
    unsafe { native::write_back_lines(kind, dst, count) };
}

pub(crate) fn fence() {
    note(Executed::Fence);
    native::fence();
}
