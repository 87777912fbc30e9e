//! What can go wrong: with the slots, when they are opened; with an address, when it is read.

use std::io;
use std::path::PathBuf;

use novale_layout::PmAddr;

use crate::WriteBackKind;

/// Why a pool's slots cannot be opened. Messages say the path, what was found and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PmError {
    /// Nothing has that name.
    #[error("{}: does not exist: correct the path, or create the pool first", path.display())]
    Missing {
        /// The slot.
        path: PathBuf,
    },
    /// The caller may not open it.
    #[error(
        "{}: permission denied for {}: run as its owner, or change its mode{}",
        path.display(),
        if *read_only { "reading" } else { "reading and writing" },
        if *read_only { "" } else { ", or open the pool read-only" }
    )]
    Permission {
        /// The slot.
        path: PathBuf,
        /// Whether only reading was asked.
        read_only: bool,
    },
    /// Another process, or another opening in this one, has it open.
    #[error("{}: is in use: close it there first (`novale info` names the process)", path.display())]
    InUse {
        /// The slot.
        path: PathBuf,
    },
    /// It is not something that can be mapped as a slot.
    #[error("{}: is {found}: {advice}", path.display())]
    NotASlot {
        /// The slot.
        path: PathBuf,
        /// What it is, with its article.
        found: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// A character device that sysfs does not know as a DAX device.
    #[error(
        "{}: is character device {major}:{minor}, not a DAX device ({sysfs}: {detail}): \
         give a device of `ndctl create-namespace --mode=devdax` or `daxctl list`",
        path.display()
    )]
    NotDax {
        /// The slot.
        path: PathBuf,
        /// Its device number.
        major: u32,
        /// Its device number.
        minor: u32,
        /// The file that should have told more.
        sysfs: String,
        /// What it told.
        detail: String,
    },
    /// Less than a page.
    #[error(
        "{}: has {found} bytes, a slot needs at least {needed}; if it was one, restore all of it from a copy, for one \
         that is made longer lacks what lay there",
        path.display()
    )]
    TooSmall {
        /// The slot.
        path: PathBuf,
        /// Its length, bytes.
        found: u64,
        /// The least length, bytes.
        needed: u64,
    },
    /// More than an address can name.
    #[error("{}: has {found} bytes, a slot has at most {allowed}: make it smaller", path.display())]
    TooLarge {
        /// The slot.
        path: PathBuf,
        /// Its length, bytes.
        found: u64,
        /// The greatest length, bytes.
        allowed: u64,
    },
    /// The file has holes and its file system has no room to fill them.
    #[error(
        "{}: is sparse and its file system has no room for all of it ({needed} bytes missing, \
         {available} available): free space, or make the file smaller",
        path.display()
    )]
    NoSpace {
        /// The slot.
        path: PathBuf,
        /// Bytes that are not allocated yet.
        needed: u64,
        /// Bytes that the file system has left.
        available: u64,
    },
    /// The file has holes and its file system cannot fill them.
    #[error(
        "{}: has holes and its file system cannot allocate them ({source}): write the file full \
         first, or put it elsewhere",
        path.display()
    )]
    Holes {
        /// The slot.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// Longer than the address space, or what is left of it.
    #[error(
        "{}: cannot be mapped, {len} bytes ({source}): make it smaller (truncate -s), or raise the \
         limit of address space (ulimit -v)",
        path.display()
    )]
    Unmappable {
        /// The slot.
        path: PathBuf,
        /// Its length, bytes.
        len: u64,
        /// What the system said.
        source: io::Error,
    },
    /// Two slots are one file.
    #[error("{}: is the same file as slot {first}: give each slot once", path.display())]
    Duplicate {
        /// The second slot.
        path: PathBuf,
        /// The slot that has it already.
        first: usize,
    },
    /// A pool has 1 to 64 slots.
    #[error("{found} slots given: a pool has 1 to {allowed}")]
    SlotCount {
        /// Slots given.
        found: usize,
        /// Slots possible.
        allowed: usize,
    },
    /// The CPU lacks the instruction that was asked for.
    #[error("this CPU has no {wanted:?}: leave the choice open, or take {best:?}")]
    WriteBackUnsupported {
        /// The one asked for.
        wanted: WriteBackKind,
        /// The best that the CPU has.
        best: WriteBackKind,
    },
    /// Another system call failed.
    #[error("{}: {action}: {source}", path.display())]
    Io {
        /// The slot.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// An address that names no bytes of the pool, or not aligned as the access needs.
///
/// Addresses come from the media, so this is an operating error: damage, not a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}",
    match is_lost {
        true => format!("slot {} has failed: {len} bytes at {addr} can't be read", addr.slot()),
        false => format!("{len} bytes at {addr} are not within a slot of the pool, or not aligned"),
    }
)]
pub struct OutOfRange {
    /// First byte asked for.
    pub addr: PmAddr,
    /// Bytes asked for.
    pub len: u64,
    /// They lie in a slot that has failed, or is not there.
    pub is_lost: bool,
}
