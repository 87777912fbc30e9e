//! The page that an operation record keeps from one operation to the next. A file that is
//! overwritten page by page frees one for each that it takes: here it needs no lane for either.
//!
//! A record's word belongs to the operation that has claimed the record, so no lock guards it. It
//! changes by one store: a page is noted as taken before it leaves the word, so that one which is
//! noted and still there was not taken; and a page gets there once nothing durable names it. The
//! pages of a client that has left, or died, stay for the next one in its slot. Closing the pool
//! empties all words, as nobody else is at work then.

use std::sync::atomic::{AtomicU64, Ordering};

use novale_arena::{Arena, Off, Op, Owner};
use novale_layout::PmAddr;

use crate::error::{Error, Result};
use crate::extent::Extent;

/// A word for each client slot: where its table lies, 0 before its first page is kept.
const SLOTS_LOG2: u32 = 8;
const SLOTS: u32 = 1 << SLOTS_LOG2;
/// A table has a line for each record of the client: two threads never share one.
const RECORDS: u32 = 64;
const LINE_WORDS: u32 = 8;
const TABLE_LOG2: u32 = (RECORDS * LINE_WORDS).ilog2();

/// The kept pages of all clients.
#[derive(Debug)]
pub(super) struct Kept {
    slots: Off,
}

impl Kept {
    pub(super) fn create(arena: &Arena) -> Result<Self> {
        Ok(Self { slots: arena.alloc_table(SLOTS_LOG2)? })
    }

    /// The words that another client has made.
    pub(super) fn attach(slots: u64) -> Self {
        Self { slots: Off::from_raw(slots) }
    }

    /// Where the words are in the arena.
    pub(super) fn place(&self) -> u64 {
        self.slots.raw()
    }

    /// Whether a record keeps this page.
    pub(super) fn has(&self, arena: &Arena, owner: Owner, page: PmAddr) -> Result<bool> {
        let table = self.slot(arena, owner.slot())?.load(Ordering::Acquire);
        if table == 0 {
            return Ok(false);
        }
        Ok(Self::word(arena, table, owner.record())?.load(Ordering::Relaxed) == page.raw())
    }

    /// The table of a client slot, where there is one.
    fn slot<'a>(&self, arena: &'a Arena, slot: u32) -> Result<&'a AtomicU64> {
        Ok(arena.word(self.slots.word(u64::from(slot % SLOTS)))?)
    }

    fn word(arena: &Arena, table: u64, record: u32) -> Result<&AtomicU64> {
        let index = record % RECORDS * LINE_WORDS;
        Ok(arena.word(Off::from_raw(table).word(u64::from(index)))?)
    }

    /// Takes the page that the operation's record keeps. It is noted before it is taken.
    pub(super) fn take(&self, arena: &Arena, op: &Op<'_>) -> Result<Option<Extent>> {
        let owner = op.owner();
        let table = self.slot(arena, owner.slot())?.load(Ordering::Acquire);
        if table == 0 {
            return Ok(None);
        }
        let word = Self::word(arena, table, owner.record())?;
        let page = word.load(Ordering::Relaxed);
        if page == 0 {
            return Ok(None);
        }
        op.note_taken(page, 1)?;
        word.store(0, Ordering::Release);
        Ok(Some(Extent { addr: PmAddr::from_raw(page), pages: 1 }))
    }

    /// Keeps a freed page, if the operation's record has none; says whether. Giving a page back
    /// needs no memory, so where there is none for a table, nothing is kept.
    pub(super) fn put(&self, arena: &Arena, op: &Op<'_>, page: PmAddr) -> Result<bool> {
        let table = match self.table(arena, op.owner()) {
            Ok(table) => table,
            Err(Error::NoMemory) => return Ok(false),
            Err(error) => return Err(error),
        };
        let word = Self::word(arena, table, op.owner().record())?;
        if word.load(Ordering::Relaxed) != 0 {
            return Ok(false);
        }
        word.store(page.raw(), Ordering::Release);
        Ok(true)
    }

    /// The table of the owner's client, made where there is none.
    fn table(&self, arena: &Arena, owner: Owner) -> Result<u64> {
        let slot = self.slot(arena, owner.slot())?;
        let known = slot.load(Ordering::Acquire);
        if known != 0 {
            return Ok(known);
        }
        let made = arena.alloc_table(TABLE_LOG2)?;
        match slot.compare_exchange(0, made.raw(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(made.raw()),
            Err(other) => {
                arena.free_table(TABLE_LOG2, made);
                Ok(other)
            }
        }
    }

    /// Visits the words of all records that may keep a page.
    pub(super) fn for_each(
        &self,
        arena: &Arena,
        visit: &mut dyn FnMut(&AtomicU64) -> Result<()>,
    ) -> Result<()> {
        for slot in 0..SLOTS {
            let table = self.slot(arena, slot)?.load(Ordering::Acquire);
            if table == 0 {
                continue;
            }
            for record in 0..RECORDS {
                visit(Self::word(arena, table, record)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use novale_arena::PidInfo;

    use super::*;

    fn pages(arena: &Arena, kept: &Kept) -> Vec<u64> {
        let mut pages = Vec::new();
        kept.for_each(arena, &mut |word| {
            pages.extend(Some(word.load(Ordering::Relaxed)).filter(|page| *page != 0));
            Ok(())
        })
        .unwrap();
        pages
    }

    #[test]
    fn each_record_keeps_one_page_for_its_next_operation() {
        let arena = Arena::anonymous(16 << 20).unwrap();
        let client = arena.attach(PidInfo::current()).unwrap();
        let kept = Kept::create(&arena).unwrap();
        let page = |index: u64| PmAddr::new(0, index * 4096);
        let (one, two) = (client.op(1, 1), client.op(1, 2));
        assert_eq!(kept.take(&arena, &one).unwrap(), None);
        assert!(kept.put(&arena, &one, page(10)).unwrap());
        assert!(!kept.put(&arena, &one, page(11)).unwrap(), "a second page goes elsewhere");
        assert_eq!(kept.take(&arena, &two).unwrap(), None, "another record's page");
        assert!(kept.put(&arena, &two, page(12)).unwrap());
        assert_eq!(pages(&arena, &kept), [page(10).raw(), page(12).raw()]);
        drop(one);
        let next = client.op(1, 1);
        let taken = kept.take(&arena, &next).unwrap();
        assert_eq!(taken, Some(Extent { addr: page(10), pages: 1 }));
        let noted = arena.records(&client.info()).unwrap();
        assert!(noted.iter().any(|record| {
            record.taken.iter().any(|taken| taken.addr_raw == page(10).raw() && taken.pages == 1)
        }));
        assert_eq!(pages(&arena, &kept), [page(12).raw()]);
    }
}
