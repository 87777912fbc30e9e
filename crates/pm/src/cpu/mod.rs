//! The instructions: copies that may race, streaming stores, write-backs, fences.
//!
//! One sibling module an architecture; what a CPU of it can do is found once, when a pool is
//! opened, and kept as a [`Cpu`]. Every function here works on raw pointers whose validity the
//! caller has checked; none forms a reference into the pool.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use x86_64 as native;

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod aarch64;
#[cfg(all(target_arch = "aarch64", not(miri)))]
use aarch64 as native;

#[cfg(any(test, miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[cfg_attr(test, allow(dead_code, reason = "in tests beside the module of this CPU"))]
mod portable;
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
use portable as native;

#[cfg(not(any(test, feature = "lab")))]
pub(crate) use native::*;

#[cfg(any(test, feature = "lab"))]
pub(crate) mod traced;
#[cfg(any(test, feature = "lab"))]
pub(crate) use traced::{
    copy_in, copy_out, fence, has_wide, load_line, load_u64, prefetch, store_u64, stream_line,
    stream_lines, stream_words, write_back_kinds, write_back_lines,
};

#[cfg(test)]
mod tests;

/// The instruction that writes a line back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WriteBackKind {
    /// x86-64 `clwb`: the line stays in the cache.
    Clwb,
    /// x86-64 `clflushopt`: the line is evicted.
    ClflushOpt,
    /// x86-64 `clflush`: evicted, and ordered among themselves; what LAWN and `HiNFS` measured.
    Clflush,
    /// aarch64 `dc cvap`: to the point of persistence.
    DcCvap,
    /// aarch64 `dc cvac`: to the point of coherence, where there is no `dc cvap`.
    DcCvac,
    /// No such instruction is known for this machine: a write-back does nothing.
    Portable,
}

/// What the CPU can do and how it is to be used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpu {
    /// `None` under eADR: nothing is written back.
    pub(crate) write_back: Option<WriteBackKind>,
    /// Whole lines are streamed by one 64-byte store.
    pub(crate) wide: bool,
    /// Long stores go past the caches; else through them, and are written back. Not under eADR.
    pub(crate) streams: bool,
}
