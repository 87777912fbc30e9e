//! The saved allocator: its chain page by page, and what it says in sum.

use std::collections::HashSet;

use novale_layout::{PmAddr, SavedPageHeader, Structure};

use crate::life::saved;
use crate::offline::dump::shown::Shown;
use crate::offline::dump::{Dump, DumpLimits};
use crate::pool::Pool;

/// The allocator's state as a clean close saved it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SavedDump {
    /// Whether an opening takes it, and why not.
    pub verdict: String,
    /// The headers of its pages, along the chain.
    pub pages: Vec<Shown>,
    /// Pages that are left out, since they are too many.
    pub left_out: u64,
    /// Pages that it calls used, of each slot; none where it is not taken.
    pub pages_used: Vec<u64>,
    /// Inode numbers that it calls used, number 0 among them.
    pub inodes_used: u64,
}

impl Dump<'_> {
    /// The saved allocator.
    #[must_use]
    pub fn saved(&self, limits: DumpLimits) -> SavedDump {
        let mut dump = SavedDump::default();
        let Some(state) = self.state else {
            dump.verdict = "none can be found: no state line stands".into();
            return dump;
        };
        if state.saved_root.is_null() {
            dump.verdict = "none: the next opening scans".into();
            return dump;
        }
        self.saved_pages(state.saved_root, limits, &mut dump);
        let pool = match Pool::read(self.pm) {
            Ok(pool) => pool,
            Err(error) => {
                dump.verdict = format!("not looked into: {error}");
                return dump;
            }
        };
        match saved::read(self.pm, &pool, self.chunks.len()) {
            Ok(Some(saved)) => {
                let taken = if self.is_clean() { "taken" } else { "not taken: the pool is in use" };
                dump.verdict = taken.into();
                let words = |slot: usize, pages: u64| {
                    // Bits after a slot's end are set, and are no pages.
                    let bits = |word: u64| u64::MAX >> (64 - (pages - word * 64).min(64));
                    let of = |word| (saved.page_word(slot, word) & bits(word)).count_ones();
                    (0..pages.div_ceil(64)).map(|word| u64::from(of(word))).sum()
                };
                let slots = pool.slots.iter().enumerate();
                dump.pages_used =
                    slots.map(|(slot, (header, _))| words(slot, header.pages)).collect();
                dump.inodes_used = saved.inodes_used(self.chunks.len());
            }
            Ok(None) => dump.verdict = "none: the next opening scans".into(),
            Err(error) => dump.verdict = format!("refused, the next opening scans: {error}"),
        }
        dump
    }

    fn saved_pages(&self, root: PmAddr, limits: DumpLimits, dump: &mut SavedDump) {
        let (mut page, mut seen) = (root, HashSet::new());
        while !page.is_null() {
            let seeded = self.seed.addr(page);
            let decode = |line: &[u8; 64]| SavedPageHeader::decode(line, seeded);
            let (mut shown, _) = self.line(Structure::SavedPage, page, decode);
            let next = shown.number("next").map_or(PmAddr::NULL, PmAddr::from_raw);
            let is_circle = !seen.insert(page);
            if is_circle {
                shown.note("the chain comes back to this page: a circle");
            }
            let ends = is_circle || shown.refused.is_some();
            if dump.pages.len() < limits.items {
                dump.pages.push(shown);
            } else {
                dump.left_out += 1;
            }
            page = if ends { PmAddr::NULL } else { next };
        }
    }

    /// Whether the saved allocator, where there is one, calls a page used.
    pub(super) fn saved_says(&self, page: PmAddr) -> Option<bool> {
        let pool = Pool::read(self.pm).ok().filter(Pool::is_clean)?;
        let saved = saved::read(self.pm, &pool, self.chunks.len()).ok().flatten()?;
        let number = page.byte() / novale_layout::PAGE;
        let word = saved.page_word(page.slot().into(), number / 64);
        Some(word >> (number % 64) & 1 == 1)
    }

    /// The place of a page in the chain of the saved allocator.
    pub(super) fn saved_index(&self, page: PmAddr) -> Option<u64> {
        let mut dump = SavedDump::default();
        let limits = DumpLimits { items: usize::MAX, ..DumpLimits::default() };
        self.saved_pages(self.state?.saved_root, limits, &mut dump);
        let index = dump.pages.iter().position(|shown| shown.at == page)?;
        u64::try_from(index).ok()
    }
}
