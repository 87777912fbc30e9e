//! The inode directory put right: words that name another's page go, and those that were lost come
//! back from the pages themselves.
//!
//! A page of inodes is known by its identity lines: each has its number in it, under a checksum of
//! the pool and that number, and its place follows from the number. Such pages are never given back,
//! so one that nobody names has lost its word.
//!
//! Crash points. Each word is one store of eight bytes.

use novale_layout::{INODES_PER_CHUNK, INODES_PER_PAGE, PmAddr};
use novale_pm::Pm;

use crate::base::error::Result;
use crate::base::extent::Extent;
use crate::inode::media::{blocks_in, is_of_block};
use crate::offline::repair::Repair;
use crate::offline::repair::gather::Gathered;
use crate::pool::Pool;

/// Rounds: a word that goes may let another come.
const ROUNDS_MAX: usize = 4;

/// A word of a chunk's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) at: PmAddr,
    /// The page that it names; null where it names none, or none that there is.
    pub(super) page: PmAddr,
    /// It is neither null nor a page.
    is_garbage: bool,
    /// The first of the numbers whose page it names.
    pub(super) first: u64,
}

impl Word {
    pub(super) fn last(&self) -> u64 {
        self.first + (INODES_PER_PAGE - 1)
    }

    fn block(&self) -> u64 {
        self.first / INODES_PER_PAGE
    }

    /// It names a page that is there, and that is not its own by anything in it.
    fn leads_elsewhere(&self, pm: &Pm, pool: &Pool) -> bool {
        let page = self.page;
        let is_there = !page.is_null() && !pm.is_absent(page.slot());
        is_there && !is_of_block(pm, pool.seed, page, self.block())
    }
}

impl Repair<'_, '_> {
    /// Puts words right for which there is proof; returns what the pool is then.
    pub(super) fn restore_words(&mut self, pool: &Pool, mut all: Gathered) -> Result<Gathered> {
        for _ in 0..ROUNDS_MAX {
            let is_whole = all.is_whole() && self.pm.absent_slots() == 0;
            let elsewhere = |word: &Word| word.leads_elsewhere(self.pm, pool);
            // Of a pool that has zeros for what was never written, a free page is as good as one of inodes.
            let is_right = wrong_words(self.pm, pool, &all).is_empty()
                && !words(self.pm, &all).iter().any(elsewhere);
            if is_whole && is_right {
                break;
            }
            let mut edits = self.foreign(pool, &all);
            if edits.is_empty() {
                edits = self.orphans(pool, &all);
            }
            if edits.is_empty() {
                break;
            }
            for (word, page) in edits {
                self.store_word(word.at, page);
                let (first, last, was) = (word.first, word.last(), word.page);
                let what = if page.is_null() {
                    format!(
                        "inodes {first} to {last}: {was} is another page's, their word taken out"
                    )
                } else {
                    format!("inodes {first} to {last}: their page {page} is found, and named again")
                };
                self.changed(word.at, what);
            }
            all = self.gather(pool)?;
        }
        Ok(all)
    }

    /// Words that name a page with inodes of other numbers, and none of their own.
    fn foreign(&self, pool: &Pool, all: &Gathered) -> Vec<(Word, PmAddr)> {
        let named = words(self.pm, all).into_iter().filter(|word| !word.page.is_null());
        let foreign = named.filter(|word| {
            let blocks = blocks_in(self.pm, pool.seed, word.page);
            !blocks.is_empty() && !blocks.contains(&word.block())
        });
        foreign.map(|word| (word, PmAddr::NULL)).collect()
    }

    /// Words that name no page, or one that is not theirs by anything in it, and the one page that is theirs.
    fn orphans(&self, pool: &Pool, all: &Gathered) -> Vec<(Word, PmAddr)> {
        let found = all.unmarked_blocks(self.pm, pool);
        let wrong = wrong_words(self.pm, pool, all);
        let words = words(self.pm, all).into_iter();
        let unnamed = words.filter(|word| {
            let is_other = || wrong.contains(word) || word.leads_elsewhere(self.pm, pool);
            word.page.is_null() || is_other()
        });
        let only = unnamed.filter_map(|word| match found.get(&word.block()).map(Vec::as_slice) {
            Some([page]) => Some((word, *page)),
            _ => None,
        });
        only.collect()
    }

    /// Takes out words that name no page, and such as name a page of another's without any inode:
    /// their numbers are given up. Says whether there were any.
    pub(super) fn give_up_words(&mut self, pool: &Pool, all: &Gathered) -> bool {
        let words = wrong_words(self.pm, pool, all);
        for word in &words {
            self.store_word(word.at, PmAddr::NULL);
            let (first, last, page) = (word.first, word.last(), word.page);
            let what =
                format!("the word of inodes {first} to {last} ({page}) leads to none: taken out");
            self.lost(word.at, what);
        }
        !words.is_empty()
    }
}

/// Words that lead to no inodes, for which there is no page either.
pub(super) fn wrong_words(pm: &Pm, pool: &Pool, all: &Gathered) -> Vec<Word> {
    let wrong = |word: &Word| {
        let is_shared = !word.page.is_null() && all.is_shared(Extent { addr: word.page, pages: 1 });
        let has_none = || blocks_in(pm, pool.seed, word.page).is_empty();
        word.first != 0 && (word.is_garbage || (is_shared && has_none()))
    };
    words(pm, all).into_iter().filter(wrong).collect()
}

/// All words of the tables that are known.
fn words(pm: &Pm, all: &Gathered) -> Vec<Word> {
    let mut words = Vec::new();
    for (number, chunk) in (0..).zip(all.chunks.iter()).filter(|(_, chunk)| !chunk.table.is_null())
    {
        for (index, page) in (0..).zip(&chunk.pages) {
            let at = chunk.table.add(index * 8);
            let is_garbage = page.is_null() && pm.load_u64(at).is_ok_and(|word| word != 0);
            let first = number * INODES_PER_CHUNK + index * INODES_PER_PAGE;
            words.push(Word { at, page: *page, is_garbage, first });
        }
    }
    words
}
