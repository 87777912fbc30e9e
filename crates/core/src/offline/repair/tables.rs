//! The upper levels of the inode directory put right: words that should name a page of the second level
//! or the table of a chunk.
//!
//! A table is known by the pages that it names, each by its identity lines; a page of the second level by
//! its tables. Such pages are never given back, so one that nobody names has lost its word. A word that
//! leads to no such page, where there is none, goes.
//!
//! Crash points. Each word is one store of eight bytes.

use std::collections::BTreeMap;
use std::ops::Range;

use novale_layout::{PAGE, PmAddr, Seed, WORDS_PER_PAGE, decode_page_word};
use novale_pm::Pm;

use crate::base::error::Result;
use crate::inode::chunks::words_in_use;
use crate::inode::media::{blocks_in, is_of_block};
use crate::offline::repair::Repair;
use crate::offline::repair::gather::Gathered;
use crate::pool::Pool;

/// Rounds: a page of the second level that is found has tables in it.
const ROUNDS_MAX: usize = 4;

/// What a word of the upper levels should name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NamedPages {
    /// The page of the second level with this number.
    Second(u64),
    /// The table of this chunk.
    Table(u64),
}

/// Which level a page is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Second,
    Table,
}

impl NamedPages {
    fn level(self) -> Level {
        match self {
            Self::Second(_) => Level::Second,
            Self::Table(_) => Level::Table,
        }
    }

    fn number(self) -> u64 {
        match self {
            Self::Second(number) | Self::Table(number) => number,
        }
    }
}

/// A page by what it proves to be.
type Proved = (PmAddr, NamedPages);

impl Repair<'_, '_> {
    /// Puts the words of the upper levels right for which there is proof; returns what the pool is then.
    pub(super) fn restore_tables(&mut self, pool: &Pool, mut all: Gathered) -> Result<Gathered> {
        for _ in 0..ROUNDS_MAX {
            // Behind the last word that is not null nothing is told as lost but by the names that lead there.
            if all.is_whole() && self.last_bare_words(pool, &all)?.is_empty() {
                break;
            }
            let edits = self.table_edits(pool, &all)?;
            if edits.is_empty() {
                break;
            }
            for (at, names, page) in edits {
                self.store_word(at, page);
                let what = match (names, page.is_null()) {
                    (NamedPages::Second(index), false) => {
                        format!("page {index} of the inode directory is found, and named again")
                    }
                    (NamedPages::Table(chunk), false) => {
                        format!("the table of chunk {chunk} is found, and named again")
                    }
                    (_, true) => {
                        "a word of the inode directory leads to no table: taken out".into()
                    }
                };
                self.changed(at, what);
            }
            all = self.gather(pool)?;
        }
        Ok(all)
    }

    /// Words to store: place, what they are to name, and the page, or null.
    fn table_edits(
        &self,
        pool: &Pool,
        all: &Gathered,
    ) -> Result<Vec<(PmAddr, NamedPages, PmAddr)>> {
        let (pm, seed) = (self.pm, pool.seed);
        let root = pool.superblock.roots.inode_directory;
        let (blocks, tables) = (BTreeMap::new(), BTreeMap::new());
        let mut sayings = Sayings { pm, seed, blocks, tables };
        let proved = sayings.proved_pages(pool, all);
        let mut places: Vec<(PmAddr, NamedPages)> = (0..WORDS_PER_PAGE)
            .map(|index| (root.add(index * 8), NamedPages::Second(index)))
            .collect();
        for index in 0..WORDS_PER_PAGE {
            let page = page_of(pm, root.add(index * 8));
            // One whose words are all damaged is known by the word that names it: the first, which each
            // pool has. What another word names may be anything else, and no inode page is one.
            let is_found = proved.iter().any(|(_, proved)| *proved == NamedPages::Second(index));
            let known = page.filter(|page| match sayings.says(*page, Level::Second) {
                Some(number) => number == index,
                None => index == 0 && !is_found && sayings.blocks_in(*page).is_empty(),
            });
            if let Some(page) = known {
                let tables = (0..WORDS_PER_PAGE).map(|table| {
                    (page.add(table * 8), NamedPages::Table(index * WORDS_PER_PAGE + table))
                });
                places.extend(tables);
            }
        }
        let stray = self.stray_tables(pool, all)?;
        let mut edits = Vec::new();
        let mut before = 0;
        for (at, names) in places {
            let word = pm.load_u64(at)?;
            let is_first = names.number() % WORDS_PER_PAGE == 0;
            let is_behind_the_end = std::mem::replace(&mut before, word) == 0 && !is_first;
            let named = page_of(pm, at);
            let mut says = |page| sayings.says(page, names.level());
            if named.is_some_and(|page| says(page) == Some(names.number())) {
                continue;
            }
            let mut found = proved.iter().filter(|(_, proved)| *proved == names);
            match (found.next(), found.next()) {
                (Some((page, _)), None) => edits.push((at, names, *page)),
                (None, _)
                    if word != 0
                        && (named.is_none() || is_behind_the_end || stray.contains(&at)) =>
                {
                    edits.push((at, names, PmAddr::NULL));
                }
                _ => {}
            }
        }
        Ok(edits)
    }

    /// The last words of their pages, not the first, that lead to pages of which nothing is the directory's, and
    /// for whose numbers there is no page of inodes elsewhere.
    fn stray_tables(&self, pool: &Pool, all: &Gathered) -> Result<Vec<PmAddr>> {
        let bare = self.last_bare_words(pool, all)?;
        if bare.is_empty() {
            return Ok(Vec::new());
        }
        let found = all.unmarked_blocks(self.pm, pool);
        let stray =
            bare.into_iter().filter(|(_, blocks)| found.range(blocks.clone()).next().is_none());
        Ok(stray.map(|(at, _)| at).collect())
    }

    /// Those words, each with the blocks of inodes that it should lead to.
    fn last_bare_words(&self, pool: &Pool, all: &Gathered) -> Result<Vec<(PmAddr, Range<u64>)>> {
        let (pm, seed) = (self.pm, pool.seed);
        let root = pool.superblock.roots.inode_directory;
        let span = WORDS_PER_PAGE * WORDS_PER_PAGE;
        let mut bare = Vec::new();
        let second = words_in_use(pm, root)?;
        if let Some((index, last)) = (0..).zip(&second).skip(1).last()
            && page_of(pm, last.at).is_some_and(|page| !has_tables(pm, seed, page, index * span))
        {
            bare.push((last.at, index * span..(index + 1) * span));
        }
        for (number, page) in (0..).zip(all.chunks.upper_pages()) {
            let tables = words_in_use(pm, page)?;
            let Some((index, last)) = (0..).zip(&tables).skip(1).last() else { continue };
            let first = number * span + index * WORDS_PER_PAGE;
            // One that is all zeros is a new one.
            let is_bare = |table: &PmAddr| {
                !has_inodes(pm, seed, *table, first)
                    && words_in_use(pm, *table).is_ok_and(|words| !words.is_empty())
            };
            if page_of(pm, last.at).as_ref().is_some_and(is_bare) {
                bare.push((last.at, first..first + WORDS_PER_PAGE));
            }
        }
        Ok(bare)
    }
}

/// Whether a word of a page leads to a table with inodes of its own numbers, from this block on.
fn has_tables(pm: &Pm, seed: Seed, page: PmAddr, first: u64) -> bool {
    (0..WORDS_PER_PAGE).any(|index| {
        let table = page_of(pm, page.add(index * 8));
        table.is_some_and(|table| has_inodes(pm, seed, table, first + index * WORDS_PER_PAGE))
    })
}

/// Whether a word of a table leads to inodes of its own numbers, from this block on.
fn has_inodes(pm: &Pm, seed: Seed, table: PmAddr, first: u64) -> bool {
    (0..WORDS_PER_PAGE).any(|index| {
        let page = page_of(pm, table.add(index * 8));
        page.is_some_and(|page| is_of_block(pm, seed, page, first + index))
    })
}

/// What pages of the directory say of themselves by what they name. A page that others name is asked once:
/// words may lead to one page again and again, on each level.
struct Sayings<'p> {
    pm: &'p Pm,
    seed: Seed,
    /// By page, the blocks of inodes that it has.
    blocks: BTreeMap<PmAddr, Vec<u64>>,
    /// By page, the number of the table that it is.
    tables: BTreeMap<PmAddr, Option<u64>>,
}

impl Sayings<'_> {
    /// Pages that nobody names, and that prove to be of the upper levels.
    fn proved_pages(&mut self, pool: &Pool, all: &Gathered) -> Vec<Proved> {
        let mut proved = Vec::new();
        for at in all.unmarked(self.pm, pool) {
            let table = self.says(at, Level::Table).map(NamedPages::Table);
            let names = table.or_else(|| self.says(at, Level::Second).map(NamedPages::Second));
            proved.extend(names.map(|names| (at, names)));
        }
        proved
    }

    /// The number of a table or a page of the second level, as what its words name says; words that lead
    /// nowhere say nothing. None where they say nothing, or different things.
    fn says(&mut self, page: PmAddr, level: Level) -> Option<u64> {
        let mut number = None;
        for index in 0..WORDS_PER_PAGE {
            let Some(named) = page_of(self.pm, page.add(index * 8)) else { continue };
            let of_words = match level {
                Level::Table => self.blocks_in(named),
                Level::Second => self.table(named).into_iter().collect(),
            };
            for said in of_words.iter().filter(|said| **said % WORDS_PER_PAGE == index) {
                let said = said / WORDS_PER_PAGE;
                if *number.get_or_insert(said) != said {
                    return None;
                }
            }
        }
        number
    }

    fn blocks_in(&mut self, page: PmAddr) -> Vec<u64> {
        let (pm, seed) = (self.pm, self.seed);
        self.blocks.entry(page).or_insert_with(|| blocks_in(pm, seed, page)).clone()
    }

    fn table(&mut self, page: PmAddr) -> Option<u64> {
        if let Some(known) = self.tables.get(&page) {
            return *known;
        }
        let says = self.says(page, Level::Table);
        self.tables.insert(page, says);
        says
    }
}

/// The page that a word names, where it lies in the pool.
fn page_of(pm: &Pm, at: PmAddr) -> Option<PmAddr> {
    let page = decode_page_word(pm.load_u64(at).ok()?).ok()?;
    (!page.is_null() && pm.contains(page, PAGE)).then_some(page)
}
