//! Numbers that are forgotten: the kernel closes them, or keeps them for itself.

use std::sync::atomic::Ordering;

use novale_core::Ino;

use crate::base::sys::Ret;
use crate::fds::table::{IN_KERNEL, drop_reference, slot};
use crate::numbers;
use crate::numbers::words::{HIGHEST, INHERITED, STOCKED, UNSEEN, forget, index_of, word};

/// Forgets all descriptors from `first` to `last`, which the kernel closes; `closed` is told of their files.
pub(crate) fn close_range(
    first: u32,
    last: u32,
    close: impl FnOnce() -> Ret,
    mut closed: impl FnMut((usize, Ino)),
) -> Ret {
    let last = last.min(HIGHEST.load(Ordering::Relaxed).max(INHERITED.cast_unsigned() - 1));
    let words = || (first..=last).filter_map(|fd| word(fd.cast_signed()));
    for word in words() {
        let numbers = numbers::lock();
        let before = word.load(Ordering::Acquire);
        if index_of(before).is_some() {
            // Placeholders count as such until they are closed.
            word.store(STOCKED, Ordering::Release);
        } else if before == UNSEEN {
            word.store(0, Ordering::Release);
        }
        drop(numbers);
        drop_reference(before).into_iter().for_each(&mut closed);
    }
    let result = close();
    (first..=last).for_each(|fd| forget(fd.cast_signed()));
    result
}

/// Forgets a number, which stays the kernel's.
pub(super) fn forget_number(fd: i32) {
    let Some(word) = word(fd) else { return };
    let numbers = numbers::lock();
    let before = word.swap(0, Ordering::AcqRel);
    drop(numbers);
    drop_reference(before);
}

/// Forgets all numbers that the kernel has the file for.
pub(crate) fn forget_the_kernels() {
    let last = HIGHEST.load(Ordering::SeqCst).max(INHERITED.cast_unsigned() - 1);
    for word in (0..=last).filter_map(|fd| word(fd.cast_signed())) {
        let numbers = numbers::lock();
        let before = word.load(Ordering::SeqCst);
        let is_the_kernels = before == UNSEEN
            || index_of(before)
                .is_some_and(|index| slot(index).state.load(Ordering::Relaxed) & IN_KERNEL != 0);
        if is_the_kernels {
            word.store(0, Ordering::Release);
        }
        drop(numbers);
        if is_the_kernels {
            drop_reference(before);
        }
    }
}
