//! Writes, erasing and write-back of a file's pages, in the orders that the kernel may choose.

use std::cell::RefCell;

use super::*;

const INO: Ino = Ino::new(7);

/// A file that the kernel has open for reading and writing.
struct File {
    ino: Ino,
    stores: Arc<Stores>,
    bytes: RefCell<Vec<u8>>,
}

impl File {
    fn new(len: usize) -> Self {
        let stores = Arc::new(Stores::default());
        Self::of(&stores, INO, len)
    }

    fn of(stores: &Arc<Stores>, ino: Ino, len: usize) -> Self {
        stores.opened(ino, true);
        Self { ino, stores: Arc::clone(stores), bytes: RefCell::new(vec![0; len]) }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> usize {
        let bytes = self.bytes.borrow();
        let from = bytes.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
        let len = from.len().min(buf.len());
        buf[..len].copy_from_slice(&from[..len]);
        len
    }

    fn put(&self, offset: u64, bytes: &[u8]) -> usize {
        let at = usize::try_from(offset).unwrap();
        self.bytes.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        bytes.len()
    }

    /// A page as the kernel gets it.
    fn cached(&self, page: u64) -> Vec<u8> {
        let mut buf = vec![0; PAGE_BYTES];
        let read = |at: u64, buf: &mut [u8]| Ok(self.read_at(at, buf));
        self.stores.read(self.ino, (page * PAGE, &mut buf), &read).unwrap();
        buf
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        let read = |at: u64, buf: &mut [u8]| Ok(self.read_at(at, buf));
        let at: (AtOffset<'_>, usize) = (&|| Ok(offset), bytes.len());
        let write = &mut || Ok(self.put(offset, bytes));
        self.stores.write(self.ino, at, &read, write).unwrap();
    }

    fn write_back(&self, page: u64, bytes: &[u8]) {
        let read = |at: u64, buf: &mut [u8]| Ok(self.read_at(at, buf));
        let write = &mut |merged: &[u8]| Ok(self.put(page * PAGE, merged));
        self.stores.write_back(self.ino, (page * PAGE, bytes), &read, write).unwrap();
    }

    /// Until where the kernel has to drop pages.
    fn erase(&self, bytes: Range<u64>) -> Option<u64> {
        let read = &|at: u64, buf: &mut [u8]| Ok(self.read_at(at, buf));
        let len = self.bytes.borrow().len() as u64;
        let data = &|at: u64| Ok(Some(at).filter(|at| *at < len));
        let erase = &mut |end: u64| {
            let bytes = bytes.start..end.min(len);
            let zeros = usize::try_from(bytes.end.saturating_sub(bytes.start)).unwrap();
            self.put(bytes.start, &vec![0; zeros]);
            Ok(())
        };
        self.stores.erase(self.ino, &bytes, &Now { read, data }, erase).unwrap()
    }

    fn byte(&self, at: usize) -> u8 {
        self.bytes.borrow()[at]
    }
}

#[test]
fn what_is_erased_stays_so_beside_a_store_to_the_page() {
    let file = File::new(3 * PAGE_BYTES);
    assert_eq!(file.erase(0..PAGE), None);
    file.write(0, &[5; 3 * PAGE_BYTES]);
    let mut page = file.cached(1);
    page[3000] = 9;
    assert_eq!(file.erase(PAGE + 1000..2 * PAGE + 8), Some(2 * PAGE + 8));
    file.write_back(1, &page);
    assert_eq!([999, 1000, 3000].map(|at| file.byte(4096 + at)), [5, 0, 0]);
    // Read again it is the kernel's: a store of what it had once is a store.
    file.stores.dropped(INO, &(PAGE + 1000..2 * PAGE + 8), u64::MAX);
    let mut page = file.cached(1);
    assert_eq!((page[999], page[1000], page[3000]), (5, 0, 0));
    file.stores.erased(INO, &(PAGE + 1000..2 * PAGE + 8));
    page[1000] = 5;
    file.write_back(1, &page);
    assert_eq!(file.byte(4096 + 1000), 5);
}

/// The kernel makes zeros of the pages that it has when it is answered, and takes them for clean: what was stored there
/// last is gone, and what was stored before that, and written back as it dropped its pages, was left.
#[test]
fn of_stores_beside_an_erasing_no_earlier_one_is_left() {
    let file = File::new(3 * PAGE_BYTES);
    file.write(0, &[5; 3 * PAGE_BYTES]);
    let mut page = file.cached(1);
    page[100..104].copy_from_slice(&[7, 7, 7, 7]);
    let erased = PAGE + 101..3 * PAGE;
    assert_eq!(file.erase(erased.clone()), Some(3 * PAGE));
    file.write_back(1, &page);
    file.stores.dropped(INO, &erased, u64::MAX);
    // Read and stored to again, and written back once more before it is answered.
    let mut page = file.cached(1);
    page[99..104].copy_from_slice(&[8; 5]);
    file.write_back(1, &page);
    assert_eq!([99, 100, 101, 103].map(|at| file.byte(4096 + at)), [8, 8, 0, 0]);
    file.stores.erased(INO, &erased);
    page[102] = 9;
    file.write_back(1, &page);
    assert_eq!([100, 102].map(|at| file.byte(4096 + at)), [8, 9]);
}

/// A file of one page and a long hole: what is known of it is bounded, and nothing is lost of the page.
#[test]
fn of_holes_without_an_end_not_all_is_known() {
    let file = File::new(PAGE_BYTES);
    for group in 0..GROUPS_MAX as u64 + 10 {
        file.cached(group * 512);
    }
    let pages = file.stores.pages(INO).unwrap();
    let is_any = |pages: &Pages| pages.kernels.is_empty() && pages.any;
    assert!(is_any(&locked(&pages)));
    let mut page = file.cached(0);
    page[3000] = 9;
    file.write(8, &[5; 8]);
    file.write_back(0, &page);
    assert_eq!([7, 8, 15, 16, 3000].map(|at| file.byte(at)), [0, 5, 5, 0, 9]);
    assert!(file.stores.may_store_in(INO, &(0..i64::MAX as u64)));
    assert_eq!(file.erase(0..i64::MAX as u64), Some(i64::MAX as u64));
    file.stores.dropped(INO, &(0..i64::MAX as u64), u64::MAX);
    assert!(locked(&pages).replaced.is_empty());
}

/// The pages in the middle came back with what they had before, where a mapping stored to them in that moment.
#[test]
fn of_more_pages_than_can_be_kept_a_part_is_erased_at_a_time() {
    let pages = ERASED_MAX as u64 + 2;
    let end = i64::MAX as u64;
    for knows_all in [true, false] {
        let file = File::new((ERASED_MAX + 2) * PAGE_BYTES);
        file.write(0, &vec![5; (ERASED_MAX + 2) * PAGE_BYTES]);
        (0..pages).for_each(|page| _ = file.cached(page));
        locked(&file.stores.pages(INO).unwrap()).any |= !knows_all;
        let first = (ERASED_MAX as u64) * PAGE;
        assert_eq!(file.erase(PAGE / 2..end), Some(first));
        let store = |page: u64| {
            let mut stale = [5; PAGE_BYTES];
            stale[3000] = 9;
            file.write_back(page, &stale);
            [0, 2048, 3000].map(|byte| file.byte(usize::try_from(page * PAGE).unwrap() + byte))
        };
        assert_eq!([0, 1, pages / 2].map(store), [[5, 0, 0], [0; 3], [0; 3]]);
        assert_eq!(file.byte(ERASED_MAX * PAGE_BYTES), 5, "nothing is changed behind it");
        file.stores.dropped(INO, &(0..first), u64::MAX);
        assert_eq!(file.erase(first..end), Some(end));
        assert_eq!(store(pages - 1), [0; 3]);
    }
}

/// The kernel makes a request of each MB of a call, and drops its pages after the last one.
#[test]
fn of_a_long_write_all_is_kept_until_the_next() {
    const LEN: usize = 64 * PAGE_BYTES;
    const REQUESTS: usize = 20;
    let file = File::new(REQUESTS * LEN);
    let pages = (REQUESTS * LEN / PAGE_BYTES) as u64;
    (0..pages).for_each(|page| _ = file.cached(page));
    for at in 0..REQUESTS {
        file.write((at * LEN) as u64, &vec![5; LEN]);
    }
    let mut stale = [0; PAGE_BYTES];
    stale[7] = 9;
    file.write_back(1, &stale);
    assert_eq!([6, 7, 8].map(|byte| file.byte(PAGE_BYTES + byte)), [5, 9, 5]);
    for _ in 0..LATEST {
        file.write(0, &[6; 8]);
    }
    let known = file.stores.pages(INO).unwrap();
    assert!(locked(&known).replaced.len() <= KEPT_MAX);
}

#[test]
fn what_is_stored_to_is_among_the_pages_that_were_read() {
    let file = File::new(3 * PAGE_BYTES);
    let may = |bytes: Range<u64>| file.stores.may_store_in(INO, &bytes);
    assert!(!file.stores.may_store(INO) && !may(0..u64::MAX));
    file.cached(1);
    assert!(file.stores.may_store(INO) && may(0..u64::MAX) && may(PAGE + 5..PAGE + 6));
    assert!(!may(0..PAGE) && !may(2 * PAGE..u64::MAX) && !may(600 * PAGE..u64::MAX));
    // Pages that writes go through are not known.
    let other = Ino::new(8);
    file.stores.opened(other, false);
    assert!(file.stores.may_store(other) && file.stores.may_store_in(other, &(0..1)));
    file.stores.ended(other);
    assert!(!file.stores.may_store(other) && !file.stores.may_store_in(other, &(0..1)));
}

#[test]
fn pieces_cover_a_range_page_by_page() {
    let all: Vec<_> = pieces(4000, 5000).collect();
    assert_eq!(all, [(0, 4000..4096), (1, 0..4096), (2, 0..808)]);
    assert_eq!(pieces(4096, 0).count(), 0);
}

#[test]
fn bits_are_those_of_the_range() {
    assert_eq!((bits(&(0..4096), 63), bits(&(64..65), 0)), (u64::MAX, 0));
    assert_eq!((bits(&(3..5), 0), bits(&(63..66), 1)), (0b11000, 0b11));
}

#[test]
fn a_write_and_a_store_to_one_page_are_both_kept() {
    let file = File::new(3 * PAGE_BYTES);
    let mut page = file.cached(1);
    page[3000] = 9;
    file.write(PAGE + 1000, &[1; 8]);
    file.write_back(1, &page);
    assert_eq!((file.byte(4096 + 1000), file.byte(4096 + 3000)), (1, 9));
    // Written back once more before the kernel drops it.
    page[3001] = 8;
    file.write_back(1, &page);
    assert_eq!((file.byte(4096 + 1007), file.byte(4096 + 3001)), (1, 8));
}

#[test]
fn a_store_to_the_very_bytes_of_a_write_counts_and_so_does_the_next() {
    let file = File::new(PAGE_BYTES);
    let mut page = file.cached(0);
    file.write(10, &[1]);
    page[10] = 2;
    file.write_back(0, &page);
    assert_eq!(file.byte(10), 2);
    // Back to what the page had before the write.
    page[10] = 0;
    file.write_back(0, &page);
    assert_eq!(file.byte(10), 0);
}

#[test]
fn a_page_that_is_read_again_is_the_kernels_as_it_is() {
    let file = File::new(PAGE_BYTES);
    file.cached(0);
    file.write(10, &[1]);
    let mut page = file.cached(0);
    assert_eq!(page[10], 1);
    page[10] = 0;
    file.write_back(0, &page);
    assert_eq!(file.byte(10), 0, "a store of the older byte is a store");
}

/// 5 MB were kept of each file that somebody had open and wrote to no more.
#[test]
fn what_is_kept_of_all_files_is_bounded() {
    const PAGES: usize = 256;
    let stores = Arc::new(Stores::default());
    let files = (8..308).map(Ino::new).map(|ino| File::of(&stores, ino, PAGES * PAGE_BYTES));
    let files: Vec<File> = files.collect();
    let mut dropped = 0;
    for file in &files {
        (0..PAGES as u64).for_each(|page| _ = file.cached(page));
        file.write(0, &vec![5; PAGES * PAGE_BYTES]);
        let Some(old) = stores.old() else { continue };
        assert!(stores.old().is_none(), "one at a time");
        // Those of longest ago; what is written meanwhile stays.
        assert!(old.files.iter().all(|(ino, _)| *ino != file.ino));
        let (again, _) = *old.files.first().unwrap();
        let again = files.iter().find(|file| file.ino == again).unwrap();
        again.write(0, &[6; 8]);
        for (ino, writes) in &old.files {
            stores.dropped(*ino, &(0..u64::MAX), *writes);
        }
        dropped += old.files.len() as u64;
        assert_eq!(locked(&stores.pages(again.ino).unwrap()).replaced.len(), 1);
        again.write_back(0, &[0; PAGE_BYTES]);
        assert_eq!([7, 8].map(|byte| again.byte(byte)), [6, 5]);
        assert!(stores.totals.replaced.load(Relaxed) <= KEPT_IN_ALL / 2 + PAGES);
    }
    assert!(dropped > 100, "{dropped} files");
    // What can't be dropped is not asked for with each write.
    let kept = stores.totals.replaced.load(Relaxed);
    stores.totals.replaced.fetch_add(2 * KEPT_IN_ALL, Relaxed);
    drop(stores.old().unwrap());
    assert!(stores.old().is_none());
    stores.totals.replaced.store(kept, Relaxed);
    for file in &files {
        stores.ended(file.ino);
    }
    assert_eq!(stores.totals.replaced.load(Relaxed), 0);
    assert_eq!(stores.totals.groups.load(Relaxed), 0);
}

#[test]
fn what_is_kept_is_bounded_and_goes_with_the_last_open_file() {
    let pages = 4000;
    let file = File::new(pages * PAGE_BYTES);
    for page in 0..pages as u64 {
        file.cached(page);
        file.write(page * PAGE, &[1; 16]);
    }
    let known = file.stores.pages(INO).unwrap();
    assert!(locked(&known).replaced.len() <= KEPT_MAX);
    assert!(file.stores.may_store(INO));
    file.stores.ended(INO);
    assert!(file.stores.pages(INO).is_none() && !file.stores.may_store(INO));
}
