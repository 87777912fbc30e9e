//! Which pages and inode numbers are in use, as found on media.

use std::sync::atomic::{AtomicU64, Ordering};

use novale_layout::{INODES_PER_CHUNK, Ino, PAGE, PmAddr};

use crate::error::{Error, Result};

/// A bit for each page of each slot, set by many threads at once.
#[derive(Debug)]
pub(crate) struct PageMarks {
    slots: Vec<Vec<AtomicU64>>,
    pages: Vec<u64>,
}

impl PageMarks {
    pub(crate) fn new(pages: Vec<u64>) -> Self {
        let slots = pages
            .iter()
            .map(|pages| (0..pages.div_ceil(512) * 8).map(|_| AtomicU64::new(0)).collect())
            .collect();
        Self { slots, pages }
    }

    /// Marks pages as in use by `owner`. A page marked before has two owners.
    pub(crate) fn mark(&self, addr: PmAddr, pages: u64, owner: &dyn Fn() -> String) -> Result<()> {
        let slot = usize::from(addr.slot());
        let first = addr.byte() / PAGE;
        let limit = self.pages.get(slot).copied().unwrap_or(0);
        if !addr.is_page_aligned() || first + pages > limit {
            return Err(Error::damaged(
                owner(),
                addr,
                format!("{pages} pages beyond the slot's {limit}"),
            ));
        }
        let Some(words) = self.slots.get(slot) else {
            return Ok(());
        };
        for page in first..first + pages {
            let word = usize::try_from(page / 64).ok().and_then(|index| words.get(index));
            let Some(word) = word else { continue };
            let bit = 1 << (page % 64);
            if word.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
                let at = PmAddr::new(addr.slot(), page * PAGE);
                return Err(Error::damaged(owner(), at, "a page that has another owner too"));
            }
        }
        Ok(())
    }

    /// A word of a slot's bits.
    pub(crate) fn word(&self, slot: usize, index: u64) -> u64 {
        let words = self.slots.get(slot);
        let word = words.and_then(|words| words.get(usize::try_from(index).ok()?));
        word.map_or(u64::MAX, |word| word.load(Ordering::Relaxed))
    }

    /// Pages in use.
    pub(crate) fn used(&self) -> u64 {
        let words = self.slots.iter().flatten();
        words.map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }
}

/// A bit for each inode number of each chunk.
#[derive(Debug)]
pub(crate) struct InodeMarks {
    chunks: Vec<Vec<AtomicU64>>,
}

impl InodeMarks {
    pub(crate) fn new(chunks: usize) -> Self {
        let words = INODES_PER_CHUNK / 64;
        let chunk = || (0..words).map(|_| AtomicU64::new(0)).collect();
        Self { chunks: (0..chunks).map(|_| chunk()).collect() }
    }

    pub(crate) fn mark(&self, ino: Ino) {
        let word = usize::try_from(ino.chunk())
            .ok()
            .and_then(|chunk| self.chunks.get(chunk))
            .and_then(|words| words.get(usize::try_from(ino.index() / 64).ok()?));
        if let Some(word) = word {
            word.fetch_or(1 << (ino.index() % 64), Ordering::Relaxed);
        }
    }

    pub(crate) fn word(&self, chunk: usize, index: usize) -> u64 {
        let word = self.chunks.get(chunk).and_then(|words| words.get(index));
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    pub(crate) fn used(&self) -> u64 {
        let words = self.chunks.iter().flatten();
        words.map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }
}
