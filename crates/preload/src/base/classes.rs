//! Which system calls come into this library: what the entry looks at before anything else.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Numbers of system calls that may be looked at.
pub(crate) const NUMBERS: usize = 512;

/// How a call is told apart, by its number: bits, none of them for what is always the kernel's. Ours if
/// its first argument is a descriptor that the table knows.
pub(crate) const DESCRIPTOR: u8 = 1;
/// Looked at in every case.
pub(crate) const ALWAYS: u8 = 2;
/// Makes the kernel give out a descriptor: looked at while [`watch`] says so.
pub(crate) const CREATES: u8 = 4;
/// Makes the kernel free one: likewise.
pub(crate) const CLOSES: u8 = 8;
/// Changes the address space: likewise.
pub(crate) const MAPS: u8 = 16;
/// Ends the process: likewise.
pub(crate) const ENDS: u8 = 32;

/// What is known of each number's calls.
pub(crate) static CLASSES: [AtomicU8; NUMBERS] = [const { AtomicU8::new(0) }; NUMBERS];
/// Where the descriptor table is: 32-bit words, 0 for descriptors of the kernel alone.
pub(crate) static TABLE: AtomicU64 = AtomicU64::new(0);

/// Calls of the kernel's that are looked at nevertheless: [`CREATES`], [`CLOSES`], [`MAPS`], [`ENDS`].
pub(crate) static WATCHED: AtomicU32 = AtomicU32::new(0);

/// Says how calls of a number are told apart, beside what was said already.
pub(crate) fn add_class(number: i64, class: u8) {
    if let Some(entry) = usize::try_from(number).ok().and_then(|number| CLASSES.get(number)) {
        entry.fetch_or(class, Ordering::Relaxed);
    }
}

/// Leaves all calls to the kernel from now on, without a look, but for these numbers'.
pub(crate) fn keep_only(numbers: &[i64]) {
    for (number, class) in CLASSES.iter().enumerate() {
        if !numbers.contains(&(number as i64)) {
            class.store(0, Ordering::Relaxed);
        }
    }
}

/// Whether calls of a number are of a class.
pub(crate) fn is_of(number: i64, class: u8) -> bool {
    let entry = usize::try_from(number).ok().and_then(|number| CLASSES.get(number));
    entry.is_some_and(|entry| entry.load(Ordering::Relaxed) & class != 0)
}

/// Looks at calls of a class from now on, or no longer. One thread at a time for each class.
pub(crate) fn watch(class: u8, on: bool) {
    if on {
        WATCHED.fetch_or(u32::from(class), Ordering::Relaxed);
    } else {
        WATCHED.fetch_and(!u32::from(class), Ordering::Relaxed);
    }
}

/// Whether calls of a number need to come here.
pub(crate) fn is_wanted(number: u16) -> bool {
    CLASSES.get(usize::from(number)).is_some_and(|class| class.load(Ordering::Relaxed) != 0)
}

/// Says where the descriptor table is.
pub(crate) fn set_table(at: u64) {
    TABLE.store(at, Ordering::Relaxed);
}

/// The common entry of all sites.
pub(crate) fn address() -> u64 {
    novale_entry as *const () as u64
}

unsafe extern "C" {
    fn novale_entry();
}
