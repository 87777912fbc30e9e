//! A slot that is lost for good: the others are made to name nothing of it, so that another can have its place
//! (docs/DESIGN.md, "A slot that is lost is replaced").
//!
//! Comes in: a pool with one slot that is not there, and that nobody has open. Goes out: a pool closed clean in
//! which no word, log or lane names that slot, which says so itself as long as no other has its place.
//!
//! Crash points. The mark in slot 0's state line comes first, durably: from then on nobody writes the pool, nor
//! with the lost slot should it come back. Each step after it is one of a repair, which is begun again where it was
//! cut off; the rise of the session makes the lost slot an old copy.

use std::collections::BTreeMap;

use novale_layout::{
    INODES_PER_CHUNK, INODES_PER_PAGE, JOURNAL_OFFSETS, JOURNAL_RECORD_BYTES, JournalRecord, PAGE,
    PmAddr, WORDS_PER_PAGE,
};
use novale_pm::{Flushed, Pm, Purpose};

use crate::base::error::{Error, Result};
use crate::base::extent::Extent;
use crate::life::open::refuse_without_root;
use crate::life::slots::set_given_up;
use crate::offline::check::{check, missing_slot};
use crate::offline::repair::gather::{Gathered, gather};
use crate::offline::repair::{Help, Repair, RepairReport};
use crate::op::journal::lane_pages;
use crate::pool::Pool;

/// The inode pages of chunks whose tables are lost, by the chunks' numbers.
type Adopted = BTreeMap<u64, Vec<PmAddr>>;

/// A table that is lost: the word that names it, and the number of its chunk.
struct LostTable {
    word: PmAddr,
    chunk: u64,
}

/// Has the slots that are there name nothing of the one that is not: what lay there is given up, and the rest is a
/// sound pool, but for the place of that slot. `new_pages` are those of the slot that is to take the place.
///
/// # Errors
/// [`Error::BadPool`] where slot 0, or several, are not there, where the new one is too short for what names the
/// lost one, and as for a repair; the same call goes on where it was cut off.
pub fn give_up_slot(pm: &Pm, new_pages: u64, help: &mut Help<'_>) -> Result<RepairReport> {
    refuse_without_root(pm, true)?;
    let absent = pm.absent_slots();
    let lost = u8::try_from(absent.trailing_zeros()).unwrap_or(u8::MAX);
    if absent.count_ones() != 1 {
        return Err(Error::BadPool(format!(
            "{} slots are not there: one alone can be given up",
            absent.count_ones()
        )));
    }
    let mut this = Repair::new(pm, help);
    let mut pool = Pool::read(pm)?;
    pool.check_features()?;
    pool.check_numbers()?;
    if pool.given_up().is_none() {
        pool.check_writable()?;
    }
    let (all, adopted) = this.gather_all(&pool)?;
    let beyond = all.beyond(this.pm);
    if let Some(first) = beyond.first() {
        return Err(Error::BadPool(format!("slot {lost} can't be given up: {first}")));
    }
    let needed = all.absent_pages() + 1;
    if new_pages < needed {
        return Err(Error::BadPool(format!(
            "the new slot has {new_pages} pages, and the lost one had {needed} at least: give a longer one"
        )));
    }
    if pool.given_up() == Some(lost) {
        // Who stored the mark may have died before its fence.
        pm.fence(pool.write_back(pm)).end();
    } else {
        set_given_up(pm, &pool, lost)?;
        pool = Pool::read(pm)?;
    }
    let pages_held = this.held(&all)?;
    this.copies(&mut pool)?;
    this.make_tables(&pool, &all, &adopted)?;
    let all = this.gather(&pool)?;
    let all = this.restore_words(&pool, all)?;
    this.give_up_inode_pages(&all, lost);
    let all = this.gather(&pool)?;
    this.mend(&mut pool, all, &pages_held)?;
    let changes = this.changes;
    let mut left = check(pm, help.exec, help.progress)?;
    // That it is missing is no damage of the others.
    left.findings.retain(|finding| finding.what != missing_slot(lost));
    match left.findings.first() {
        Some(found) => {
            Err(Error::BadPool(format!("slot {lost} is not yet given up: {}", found.what)))
        }
        None => Ok(RepairReport { changes, left, ..RepairReport::default() }),
    }
}

impl Repair<'_, '_> {
    /// All of the pool, with the inodes of tables that are lost: their pages prove whose they are.
    fn gather_all(&mut self, pool: &Pool) -> Result<(Gathered, Adopted)> {
        let all = self.gather(pool)?;
        let tables = self.lost_tables(&all);
        if tables.is_empty() {
            return Ok((all, Adopted::new()));
        }
        let count = usize::try_from(WORDS_PER_PAGE).unwrap_or(usize::MAX);
        let mut adopted: Adopted =
            tables.iter().map(|table| (table.chunk, vec![PmAddr::NULL; count])).collect();
        let blocks = INODES_PER_CHUNK / INODES_PER_PAGE;
        for (block, pages) in all.unmarked_blocks(self.pm, pool) {
            // Of two pages of the same numbers it is not known which is theirs.
            let [page] = pages.as_slice() else { continue };
            let chunk = adopted.get_mut(&(block / blocks));
            let index = usize::try_from(block % blocks).unwrap_or(usize::MAX);
            if let Some(place) = chunk.and_then(|pages| pages.get_mut(index)) {
                *place = *page;
            }
        }
        let all = gather(self.pm, pool, &adopted, self.help.exec, self.help.progress)?;
        Ok((all, adopted))
    }

    /// The tables that are in the slot which is not there.
    fn lost_tables(&self, all: &Gathered) -> Vec<LostTable> {
        let mut tables = Vec::new();
        for (number, upper) in (0..).zip(all.chunks.upper_pages()) {
            for index in 0..WORDS_PER_PAGE {
                let word = upper.add(index * 8);
                let named = self.pm.load_u64(word).map_or(PmAddr::NULL, PmAddr::from_raw);
                if !named.is_null() && self.pm.is_absent(named.slot()) {
                    tables.push(LostTable { word, chunk: number * WORDS_PER_PAGE + index });
                }
            }
        }
        tables
    }

    /// Makes tables anew that are lost: each is durable before the word that names it changes.
    fn make_tables(&mut self, pool: &Pool, all: &Gathered, adopted: &Adopted) -> Result<()> {
        for LostTable { word, chunk } in self.lost_tables(all) {
            let pages = adopted.get(&chunk).map(Vec::as_slice).unwrap_or_default();
            let table = self.writer(pool, all).take_page()?;
            self.pm.fence(self.pm.stream_zero(table, PAGE, Purpose::Inode)).end();
            let words = (0..).zip(pages).filter(|(_, page)| !page.is_null());
            let named = words.fold(Flushed::none(), |pending, (index, page)| {
                let word = self.pm.store_u64(table.add(index * 8), page.raw(), Purpose::Inode);
                pending.and(self.pm.write_back(word))
            });
            self.pm.fence(named).end();
            self.store_word(word, table);
            let found = pages.iter().filter(|page| !page.is_null()).count();
            let what = format!(
                "the table of chunk {chunk} was lost: made anew of the {found} pages of inodes that were found"
            );
            self.changed(word, what);
        }
        Ok(())
    }

    /// Takes out the words of tables that name pages of inodes in a slot that is not there.
    fn give_up_inode_pages(&mut self, all: &Gathered, lost: u8) {
        let mut given_up = 0_u64;
        for chunk in all.chunks.iter() {
            for (index, page) in (0..).zip(&chunk.pages) {
                if !page.is_null() && page.slot() == lost {
                    self.store_word(chunk.table.add(index * 8), PmAddr::NULL);
                    given_up += 1;
                }
            }
        }
        if given_up > 0 {
            let numbers = given_up * INODES_PER_PAGE;
            self.lost(
                PmAddr::NULL,
                format!("{given_up} pages of inodes were in slot {lost}: their {numbers} numbers are given up"),
            );
        }
    }

    /// Gives lanes new pages that had theirs in a slot that is not there, or in a page that a file has, too: recovery
    /// erases what is no record there, and that may be the file's bytes. What is a record counts in the new page as
    /// it did.
    pub(super) fn move_lanes(&mut self, pool: &Pool, all: &Gathered) -> Result<()> {
        let table = pool.superblock.roots.lane_table;
        let pages = lane_pages(self.pm, pool.superblock.lane_count)?;
        for (lane, page) in (0..).zip(pages) {
            let is_absent = self.pm.is_absent(page.slot());
            if !is_absent && !all.is_shared(Extent { addr: page, pages: 1 }) {
                continue;
            }
            let page_new = self.writer(pool, all).take_page()?;
            let zeroed = self.pm.stream_zero(page_new, PAGE, Purpose::Journal);
            self.pm.fence(zeroed).end();
            if !is_absent {
                self.copy_records(pool, page, page_new)?;
            }
            self.store_word(table.add(lane * 8), page_new);
            if is_absent {
                self.lost(page, format!("the journal of lane {lane} was lost: it is empty"));
            } else {
                let what = format!("the page of lane {lane} is another's, too: it has a new one");
                self.changed(page, what);
            }
        }
        Ok(())
    }

    /// Copies what is a record, durably, from one page of a lane to another.
    fn copy_records(&self, pool: &Pool, from: PmAddr, to: PmAddr) -> Result<()> {
        let mut copied = Flushed::none();
        for offset in JOURNAL_OFFSETS {
            let mut bytes = [0; JOURNAL_RECORD_BYTES];
            self.pm.load(from.add(offset), &mut bytes)?;
            if JournalRecord::decode(&bytes, pool.seed).is_ok() {
                copied = copied.and(self.pm.stream(to.add(offset), &bytes, Purpose::Journal));
            }
        }
        self.pm.fence(copied).end();
        Ok(())
    }
}
