//! The page that an operation record keeps from one operation to the next. A file that is
//! overwritten page by page frees one for each that it takes: here it needs no lane for either.
//!
//! The page is in the record's lasting word, which belongs to the operation that has claimed the
//! record, so no lock guards it. It changes by one store: a page is noted as taken before it leaves
//! the word, so that one which is noted and still there was not taken; and a page gets there once
//! nothing durable names it. The pages of a client that has left, or died, stay for the next one in
//! its slot. Closing the pool empties all words, as nobody else is at work then.

use std::sync::atomic::Ordering;

use novale_arena::{Arena, Op, Owner};
use novale_layout::PmAddr;

use crate::base::error::Result;
use crate::base::extent::Extent;

/// Whether a record keeps this page.
pub(super) fn has(arena: &Arena, owner: Owner, page: PmAddr) -> Result<bool> {
    let word = arena.lasting_word(owner)?;
    Ok(word.is_some_and(|word| word.load(Ordering::Relaxed) == page.raw()))
}

/// Takes the page that the operation's record keeps, where it may be taken. It is noted before it is taken.
pub(super) fn take(op: &Op<'_>, may: impl Fn(PmAddr) -> Result<bool>) -> Result<Option<Extent>> {
    let word = op.lasting_word();
    let page = word.load(Ordering::Relaxed);
    if page == 0 || !may(PmAddr::from_raw(page))? {
        return Ok(None);
    }
    op.note_taken(page, 1)?;
    word.store(0, Ordering::Release);
    Ok(Some(Extent { addr: PmAddr::from_raw(page), pages: 1 }))
}

/// Lets go of the page that the operation's record keeps, where it is one that `leaves`. Whoever dies before
/// it is given back has lost it.
pub(super) fn let_go(op: &Op<'_>, leaves: impl Fn(PmAddr) -> bool) -> Option<PmAddr> {
    let word = op.lasting_word();
    let page = PmAddr::from_raw(word.load(Ordering::Relaxed));
    if page.is_null() || !leaves(page) {
        return None;
    }
    word.store(0, Ordering::Release);
    Some(page)
}

/// Whether the operation's record keeps no page.
pub(super) fn has_room(op: &Op<'_>) -> bool {
    op.lasting_word().load(Ordering::Relaxed) == 0
}

/// Keeps a freed page; the operation's record has room for it.
pub(super) fn put(op: &Op<'_>, page: PmAddr) {
    debug_assert!(has_room(op), "a page is lost where the record keeps one");
    op.lasting_word().store(page.raw(), Ordering::Release);
}

/// Number of pages that records keep.
pub(super) fn count(arena: &Arena) -> Result<u64> {
    let mut pages = 0;
    arena.lasting_words(&mut |word| pages += u64::from(word.load(Ordering::Relaxed) != 0))?;
    Ok(pages)
}

/// Empties all records; nobody else is at work.
pub(super) fn drain(arena: &Arena) -> Result<Vec<PmAddr>> {
    let mut pages = Vec::new();
    arena.lasting_words(&mut |word| match word.swap(0, Ordering::Relaxed) {
        0 => {}
        page => pages.push(PmAddr::from_raw(page)),
    })?;
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use novale_arena::PidInfo;

    use super::*;

    #[test]
    fn each_record_keeps_one_page_for_its_next_operation() {
        let arena = Arena::anonymous(16 << 20).unwrap();
        let client = arena.attach(PidInfo::current()).unwrap();
        let page = |index: u64| PmAddr::new(0, index * 4096);
        let (one, two) = (client.op(1, 1), client.op(1, 2));
        let any = |_| Ok(true);
        assert_eq!(take(&one, any).unwrap(), None);
        assert!(has_room(&one));
        put(&one, page(10));
        assert!(!has_room(&one), "a second page goes elsewhere");
        assert_eq!(take(&two, any).unwrap(), None, "another record's page");
        put(&two, page(12));
        assert_eq!(count(&arena).unwrap(), 2);
        assert!(has(&arena, one.owner(), page(10)).unwrap());
        assert!(!has(&arena, one.owner(), page(12)).unwrap());
        drop(one);
        let next = client.op(1, 1);
        assert_eq!(take(&next, |_| Ok(false)).unwrap(), None, "not from there");
        let taken = take(&next, any).unwrap();
        assert_eq!(taken, Some(Extent { addr: page(10), pages: 1 }));
        let noted = arena.records(&client.info()).unwrap();
        assert!(noted.iter().any(|record| {
            record.taken.iter().any(|taken| taken.addr_raw == page(10).raw() && taken.pages == 1)
        }));
        drop((two, next));
        drop(client);
        let later = arena.attach(PidInfo::current()).unwrap();
        assert!(has(&arena, later.op(1, 2).owner(), page(12)).unwrap(), "the slot's next client");
        assert_eq!(drain(&arena).unwrap(), [page(12)]);
        assert_eq!(count(&arena).unwrap(), 0);
    }
}
