//! The table of descriptors: a word for each number, which the entry looks at too.
//!
//! A word is cleared before the kernel may give the number out again. The words of the lowest numbers are the
//! library's own memory; those of the others, which few programs have, get theirs when one of them is set.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::base::classes::{HIGH_TABLE, LOW_NUMBERS};

/// Descriptors that may be Novale's: numbers below this.
pub(crate) const DESCRIPTORS: usize = 1 << 20;
/// A word of the table for a descriptor of this library's, which the program must not know.
pub(crate) const INTERNAL: u32 = u32::MAX;
/// One for a number with a placeholder in the kernel that is no descriptor of the program's: in stock, about
/// to get a file, or being closed. Only who has the numbers locked makes it one of nobody's (0).
pub(crate) const STOCKED: u32 = u32::MAX - 1;
/// One for a number that the program may have from its parent, and that was not used yet.
pub(crate) const UNSEEN: u32 = u32::MAX - 2;
/// Numbers below this may be from the parent: programs are given the lowest ones.
pub(crate) const INHERITED: i32 = 64;
/// Words of open files: the description plus 1, and whether the descriptor stays when another program
/// is run. The latter counts as long as the kernel has a placeholder there, which goes in any case.
const INDEX: u32 = (1 << 21) - 1;
pub(crate) const STAYS: u32 = 1 << 30;

/// The words of the lowest numbers; a program begins with those of [`UNSEEN`].
#[expect(clippy::indexing_slicing, reason = "all of them are below, or it does not compile")]
#[unsafe(link_section = ".novale_tables")]
pub(crate) static LOW: [AtomicU32; LOW_NUMBERS] = {
    let mut all = [const { AtomicU32::new(0) }; LOW_NUMBERS];
    let mut number = 0;
    while number < INHERITED as usize {
        all[number] = AtomicU32::new(UNSEEN);
        number += 1;
    }
    all
};
/// The highest of this library's own descriptors, far above the program's.
static HIGHEST_INTERNAL: AtomicU32 = AtomicU32::new(0);
/// The highest of the program's that was ever in the table.
pub(crate) static HIGHEST: AtomicU32 = AtomicU32::new(0);

/// The word of a number; `None` beyond the table, and where no word like it was ever set.
pub(crate) fn word(fd: i32) -> Option<&'static AtomicU32> {
    let index = usize::try_from(fd).ok().filter(|fd| *fd < DESCRIPTORS)?;
    LOW.get(index).or_else(|| high(HIGH_TABLE.get()?, index))
}

/// The word of a number that is to be set; `None` beyond the table, and without memory for it.
pub(crate) fn word_to_set(fd: i32) -> Option<&'static AtomicU32> {
    let index = usize::try_from(fd).ok().filter(|fd| *fd < DESCRIPTORS)?;
    LOW.get(index).or_else(|| high(HIGH_TABLE.get_or_reserve(DESCRIPTORS * 4)?, index))
}

fn high(table: u64, index: usize) -> Option<&'static AtomicU32> {
    let table = table as *const AtomicU32;
    // SAFETY: the table has a word for each number and is never unmapped.
    let word = unsafe { table.add(index) };
    // SAFETY: as above; any bits are valid.
    unsafe { word.as_ref() }
}

/// The description that a word names.
pub(crate) fn index_of(word: u32) -> Option<u32> {
    if matches!(word, INTERNAL | STOCKED | UNSEEN) { None } else { (word & INDEX).checked_sub(1) }
}

/// The word that names a description.
pub(crate) fn word_of(index: u32, stays: bool) -> u32 {
    (index + 1) | if stays { STAYS } else { 0 }
}

/// Whether a descriptor is this library's own.
pub(crate) fn is_internal(fd: i32) -> bool {
    word(fd).is_some_and(|word| word.load(Ordering::Relaxed) == INTERNAL)
}

/// Keeps a descriptor of this library's from the program.
pub(crate) fn set_internal(fd: i32) {
    if let Some(word) = word_to_set(fd) {
        word.store(INTERNAL, Ordering::Release);
        HIGHEST_INTERNAL.fetch_max(fd.cast_unsigned(), Ordering::Relaxed);
    }
}

/// A descriptor of this library's is closed.
pub(crate) fn forget_internal(fd: i32) {
    if let Some(word) = word(fd) {
        word.store(0, Ordering::Release);
    }
}

/// A number of the program's is in the table from now on.
pub(crate) fn note_number(fd: i32) {
    let number = fd.cast_unsigned();
    if HIGHEST.load(Ordering::Relaxed) < number {
        HIGHEST.fetch_max(number, Ordering::Relaxed);
    }
}

/// A number with a placeholder is about to get a file: nobody else has a descriptor by it.
pub(crate) fn reserve_number(fd: i32) {
    if let Some(word) = word_to_set(fd) {
        word.store(STOCKED, Ordering::Release);
    }
}

/// A placeholder was closed, with the numbers locked since before. Somebody else may have the number by now.
pub(crate) fn forget(fd: i32) {
    if let Some(word) = word(fd) {
        // Where it is another's, there is nothing to forget.
        let _another =
            word.compare_exchange(STOCKED, 0, Ordering::AcqRel, Ordering::Relaxed).is_err();
    }
}

/// This library's own descriptors, in order.
pub(crate) fn internal() -> Vec<i32> {
    let all = 0..=HIGHEST_INTERNAL.load(Ordering::Relaxed).cast_signed();
    all.filter(|fd| is_internal(*fd)).collect()
}
