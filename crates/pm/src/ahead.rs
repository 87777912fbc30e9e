//! Pages that a process maps before it stores to them.
//!
//! What a tmpfs has in memory a process maps as it touches it. A store to a page that it has not
//! touched maps this page alone, for 1.2 us in the kernel; a load maps all 16 pages around it that
//! are there, for 0.27 us each, and for storing as well, since the mapping is shared. So who is about
//! to store to pages loads a byte of each window of 16 first, once. (`MADV_POPULATE_READ` takes 0.41 us
//! a page, `MADV_POPULATE_WRITE` 0.93: Linux 6.18.)

use std::sync::atomic::{AtomicU64, Ordering};

use novale_layout::PmAddr;

use crate::slot::Slot;
use crate::{Pm, PmOptions, SlotKind, cpu, to_usize};

/// Bytes that the kernel maps at a load, where it was not told otherwise (`fault_around_bytes`).
const WINDOW: u64 = 64 << 10;

/// A bit for each window of a slot: whether this process has asked for it.
#[derive(Debug)]
pub(crate) struct Asked(Box<[AtomicU64]>);

impl Asked {
    /// None for a slot where it does not help: memory that is mapped already, that is no file in
    /// memory (a load of private memory maps a page of zeros in its place; DAX has large pages), or
    /// that is not stored to.
    pub(crate) fn of(slot: &Slot, options: &PmOptions) -> Option<Self> {
        let helps = slot.kind == SlotKind::File
            && !(options.read_only || options.scratch || options.populate);
        helps.then(|| Self::blank(to_usize(slot.len().div_ceil(WINDOW * 64))))
    }

    /// All bits clear. The memory is not touched: a large slot costs nothing to open.
    fn blank(words: usize) -> Self {
        let words: *mut [u64] = Box::into_raw(vec![0; words].into_boxed_slice());
        // SAFETY: the box was just taken apart; an atomic word has the size, the alignment and the
        // values of a plain one.
        Self(unsafe { Box::from_raw(words as *mut [AtomicU64]) })
    }

    /// Whether this is the first call for `window`; that of one which is not there is no first one.
    #[inline]
    fn is_first(&self, window: u64) -> bool {
        let bit = 1 << (window % 64);
        self.0.get(to_usize(window / 64)).is_some_and(|word| {
            word.load(Ordering::Relaxed) & bit == 0
                && word.fetch_or(bit, Ordering::Relaxed) & bit == 0
        })
    }
}

impl Pm {
    /// Has `len` bytes from `addr` mapped before they are stored to, where this process has not touched
    /// them yet and it is cheaper so. Changes nothing; an address outside is ignored.
    #[inline]
    pub fn expect_stores(&self, addr: PmAddr, len: u64) {
        let Some(Some(asked)) = self.asked.get(usize::from(addr.slot())) else { return };
        let Ok(base) = self.mapped_ptr(addr, len.max(1)) else { return };
        let first = addr.byte() / WINDOW;
        for window in first..(addr.byte() + len).div_ceil(WINDOW) {
            if asked.is_first(window) {
                let offset = (window * WINDOW).saturating_sub(addr.byte());
                let word = base.wrapping_add(to_usize(offset)).map_addr(|at| at & !7);
                // SAFETY: `load_ptr` found `len` mapped bytes, at least one, and a window after the
                // first one begins within them; the word around a byte is in its page.
                let _mapped = unsafe { cpu::load_u64(word) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_new_once() {
        let asked = Asked::blank(2);
        for window in [0, 63, 64, 127] {
            assert!(asked.is_first(window), "{window}");
            assert!(!asked.is_first(window), "{window}");
        }
        assert!(!asked.is_first(128), "there is none");
    }
}
