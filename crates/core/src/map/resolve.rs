//! Where the current bytes of a file are.
//!
//! The rest of core asks here and nowhere else for the address of a page of a file, and for the old bytes
//! around a part of a page that is written. A method that keeps newer bytes beside a page's place is
//! overlaid here: of a page with two copies the lines that are current in the second; over both the lines
//! in the write buffer, for readers. Who changes a file's pages flushes it before, and finds them newest.

use std::ops::Range;

use novale_layout::{PAGE, Partner, PmAddr};
use novale_pm::Pm;

use crate::base::error::{Error, Result};
use crate::base::extent::pages_touched;
use crate::base::lines::{one_copy, places};
use crate::fs::Fs;
use crate::inode::pairs::{PairPlace, Paired};
use crate::inode::view::View;

impl Fs {
    /// Where a page of a file lies; none for a hole. Of a page with two copies it is the first.
    #[allow(clippy::inline_always, reason = "what it returns is made where it stays")]
    #[inline(always)]
    pub(crate) fn page_addr(&self, view: &View<'_>, page: u64) -> Result<Option<PmAddr>> {
        let addr = PmAddr::from_raw(view.index().get(self.arena(), page)?);
        Ok(Some(addr).filter(|addr| !addr.is_null()))
    }

    /// Fills the start of `page_bytes`, which are zeros, with what the file has of a page: none of it in
    /// a hole, nor beyond the end of the file. What lies there in the pool is nobody's.
    #[inline]
    pub(crate) fn load_page(
        &self,
        view: &View<'_>,
        page: u64,
        page_bytes: &mut [u8],
    ) -> Result<()> {
        let live = live_bytes(view, page);
        match self.page_addr(view, page)? {
            Some(home) if live > 0 => {
                let bytes = page_bytes.get_mut(..live).unwrap_or_default();
                match view.pair(self.arena(), page)? {
                    Some(Paired { partner, word, .. }) => {
                        self.load_runs(home, partner, word, 0..live as u64, bytes)
                    }
                    None => Ok(self.pm.load(home, bytes)?),
                }
            }
            _ => Ok(()),
        }
    }

    /// Loads current bytes of a page that may have two copies; at once where they lie in one, as they
    /// mostly do. By a branch, not by a choice of the address: so a CPU that guesses right begins to load
    /// before the word has come.
    #[inline]
    pub(crate) fn load_of_pair(
        &self,
        pair: &PairPlace<'_>,
        bytes: Range<u64>,
        into: &mut [u8],
    ) -> Result<()> {
        let partner = pair.partner();
        match one_copy(pair.word, &bytes) {
            Some(false) => Ok(self.pm.load_in_page(pair.home, bytes.start, into)?),
            Some(true) if !partner.is_shared() => {
                Ok(self.pm.load_in_page(partner.page(), bytes.start, into)?)
            }
            Some(true) | None => self.load_runs(pair.home, partner, pair.word, bytes, into),
        }
    }

    /// Loads bytes of a page run by run, each from the copy that has it.
    #[inline(never)]
    pub(crate) fn load_runs(
        &self,
        home: PmAddr,
        partner: Partner,
        word: u64,
        bytes: Range<u64>,
        into: &mut [u8],
    ) -> Result<()> {
        let mut copying = Copying::begin(&self.pm, into);
        copying.add_runs(home, partner, word, bytes)?;
        copying.end()
    }

    /// Calls `each` with the place and length of each run of current bytes of a page that lies at `home`.
    pub(crate) fn each_current(
        &self,
        view: &View<'_>,
        page: u64,
        home: PmAddr,
        bytes: Range<u64>,
        mut each: impl FnMut(PmAddr, u64) -> Result<()>,
    ) -> Result<()> {
        let Some(pair) = view.pair(self.arena(), page)? else {
            return each(home.add(bytes.start), bytes.end - bytes.start);
        };
        places(home, pair.partner, pair.word, bytes)
            .try_for_each(|(at, bytes)| each(at, bytes.end - bytes.start))
    }

    /// Copies a file's bytes out; the caller validates the view afterwards.
    pub(crate) fn copy_out(
        &self,
        view: &View<'_>,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        if view.is_buffered() {
            self.copy_out_buffered(view, offset, buffer)
        } else {
            self.copy_out_pages(view, offset, buffer)
        }
    }

    /// As [`Fs::copy_out`], of a file with newer lines in the write buffer.
    #[inline(never)]
    fn copy_out_buffered(&self, view: &View<'_>, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let left = view.seen_size().saturating_sub(offset);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let bytes = buffer.get_mut(..count).unwrap_or_default();
        let committed = self.copy_out_pages(view, offset, bytes)?;
        bytes.get_mut(committed..).unwrap_or_default().fill(0);
        view.lay_buffered(self.arena(), offset, bytes)?;
        Ok(count)
    }

    /// As [`Fs::copy_out`], without what is in the write buffer.
    fn copy_out_pages(&self, view: &View<'_>, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let left = view.size().saturating_sub(offset);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let read = buffer.get_mut(..count).unwrap_or_default();
        let mut copying = Copying::begin(&self.pm, read);
        let (mut at, end) = (offset, offset + count as u64);
        while at < end {
            at = match self.copy_of_pair(view, at..end, &mut copying)? {
                Some(next) => next,
                None => self.copy_piece(view, at..end, &mut copying)?,
            };
        }
        copying.end()?;
        self.unrecovered.lay_over(view.ino(), offset, read);
        Ok(count)
    }

    /// Copies the first of some bytes out, as far as the page goes, where it is at hand what there is of
    /// that page and of its pair; gives where the others begin.
    #[inline]
    fn copy_of_pair(
        &self,
        view: &View<'_>,
        Range { start, end }: Range<u64>,
        copying: &mut Copying<'_>,
    ) -> Result<Option<u64>> {
        if !view.has_pairs() {
            return Ok(None);
        }
        let (arena, page, from) = (self.arena().known(), start / PAGE, start % PAGE);
        let pair = view.known_page_and_pair(arena, page).or_else(|| view.known_apart(arena, page));
        let Some(pair) = pair.filter(|pair| !pair.home.is_null()) else { return Ok(None) };
        let to = PAGE.min(from + (end - start));
        if one_copy(pair.word, &(from..to)) == Some(false) {
            copying.add(place_in(pair.home, from)?, to - from)?;
        } else {
            copying.add_runs(pair.home, pair.partner(), pair.word, from..to)?;
        }
        Ok(Some(start + (to - from)))
    }

    /// Copies the first of some bytes out: of pages that lie one after the other at once, of one with two
    /// copies alone. Gives where the others begin.
    fn copy_piece(
        &self,
        view: &View<'_>,
        Range { start, end }: Range<u64>,
        copying: &mut Copying<'_>,
    ) -> Result<u64> {
        let (arena, page, from) = (self.arena(), start / PAGE, start % PAGE);
        let pair = view.pair(arena, page)?;
        let most = match pair {
            Some(_) => 1,
            None => view.pages_before_pair(arena, page, pages_touched(start, end - start))?,
        };
        let (first, pages) = view.index().run(arena, page, most, PAGE)?;
        let now = (pages * PAGE - from).min(end - start);
        let home = PmAddr::from_raw(first);
        match pair {
            _ if home.is_null() => copying.zero(now)?,
            Some(Paired { partner, word, .. }) => {
                copying.add_runs(home, partner, word, from..from + now)?;
            }
            None => copying.add(place_in(home, from)?, now)?,
        }
        Ok(start + now)
    }
}

/// Bytes that are copied out of the pool, piece by piece. Pieces that lie one after the other are copied as
/// one. A piece is copied when the next one is known, whose first lines are asked for before: the processor
/// itself asks for lines that follow those which it has seen, and a piece that lies elsewhere begins anew.
struct Copying<'a> {
    pm: &'a Pm,
    into: &'a mut [u8],
    /// The piece that is to be copied next.
    at: PmAddr,
    len: u64,
}

/// So many bytes of a piece are asked for.
const AHEAD: u64 = 512;

impl<'a> Copying<'a> {
    fn begin(pm: &'a Pm, into: &'a mut [u8]) -> Self {
        Self { pm, into, at: PmAddr::NULL, len: 0 }
    }

    /// The next bytes lie there.
    #[inline]
    fn add(&mut self, at: PmAddr, len: u64) -> Result<()> {
        if self.len > 0 && self.at.checked_add(self.len) == Some(at) {
            self.len += len;
            return Ok(());
        }
        // The last piece of all is copied at once.
        if self.len > 0 || len < self.into.len() as u64 {
            self.pm.prefetch_range(at, len.min(AHEAD));
        }
        self.copy()?;
        (self.at, self.len) = (at, len);
        Ok(())
    }

    /// The next bytes are the current ones of a page with two copies.
    #[inline]
    fn add_runs(
        &mut self,
        home: PmAddr,
        partner: Partner,
        word: u64,
        bytes: Range<u64>,
    ) -> Result<()> {
        place_in(home, PAGE - 1)?;
        places(home, partner, word, bytes)
            .try_for_each(|(at, bytes)| self.add(at, bytes.end - bytes.start))
    }

    /// So many bytes are zeros.
    fn zero(&mut self, len: u64) -> Result<()> {
        self.copy()?;
        self.room(len).fill(0);
        Ok(())
    }

    fn end(mut self) -> Result<()> {
        self.copy()
    }

    fn copy(&mut self) -> Result<()> {
        let (at, len) = (self.at, std::mem::take(&mut self.len));
        if len > 0 {
            let pm = self.pm;
            pm.load(at, self.room(len))?;
        }
        Ok(())
    }

    /// Where the next bytes go.
    #[inline]
    fn room(&mut self, len: u64) -> &'a mut [u8] {
        let into = std::mem::take(&mut self.into);
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(into.len());
        let (now, later) = into.split_at_mut(len);
        self.into = later;
        now
    }
}

/// The address of a byte of a page, as a reader finds the page: the block that leads there may be another's
/// by now, and any word.
#[inline]
fn place_in(page: PmAddr, from: u64) -> Result<PmAddr> {
    page.checked_add(from).ok_or_else(|| {
        Error::damaged("address", page, format_args!("no byte {from} from there on"))
    })
}

/// How many bytes from a page's start on are the file's.
#[inline]
pub(crate) fn live_bytes(view: &View<'_>, page: u64) -> usize {
    let live = view.size().saturating_sub(page * PAGE).min(PAGE);
    usize::try_from(live).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use novale_arena::{Class, Off};
    use novale_pm::{PmOptions, Purpose};

    use super::*;
    use crate::base::types::Ctx;
    use crate::fixture::{CTX, with_file};

    /// Each line of a page with two copies was copied by itself, and each page, wherever it lay.
    #[test]
    fn pieces_that_follow_are_copied_as_one() {
        let pm = Pm::anonymous(&[64 * PAGE], &PmOptions::default()).unwrap();
        let page = |index: u64| PmAddr::new(0, index * PAGE);
        for index in 0..8 {
            let bytes = [u8::try_from(index).unwrap(); 4096];
            pm.fence(pm.stream(page(index), &bytes, Purpose::Data)).end();
        }
        let mut into = vec![9; 3 * 4096 + 200];
        let mut copying = Copying::begin(&pm, &mut into);
        copying.add(page(2).add(4000), 96).unwrap();
        copying.add(page(3), PAGE).unwrap();
        assert_eq!((copying.at, copying.len), (page(2).add(4000), 96 + PAGE));
        copying.add(page(3), 64).unwrap();
        assert_eq!((copying.at, copying.len), (page(3), 64), "it does not follow itself");
        copying.zero(40).unwrap();
        copying.add(page(5), 2 * PAGE).unwrap();
        assert_eq!(copying.into.len(), 2 * 4096, "what is known last is copied last");
        copying.end().unwrap();
        let expected = [(96, 2), (4096, 3), (64, 3), (40, 0), (4096, 5), (4096, 6)];
        let expected = expected.map(|(len, byte)| vec![byte; len]).concat();
        assert!(into == expected);
    }

    /// Pages with one copy and with two, some of which lie one after the other, and holes; files of a page
    /// and of several nodes of the index.
    #[test]
    fn a_read_of_many_pages_finds_the_bytes_of_both_copies() {
        let mut random = fastrand::Rng::with_seed(15);
        for pages in [1, 3, 60, 130] {
            let (fs, ino) = with_file();
            let ctx = Ctx { now_ns: 2, ..CTX };
            let len = pages * 4096 - 100;
            let mut held = vec![0; len];
            for step in 0..6 * pages {
                // Whole pages, and parts of one or of two.
                let (at, count) = match step % 3 {
                    0 => (random.usize(0..pages) * 4096, 4096 * random.usize(1..3)),
                    _ => (random.usize(0..len), random.usize(1..700)),
                };
                let count = count.min(len - at);
                let bytes: Vec<u8> = (0..count).map(|_| random.u8(1..)).collect();
                fs.write(&ctx, ino, at as u64, &bytes).unwrap();
                held.get_mut(at..at + count).unwrap().copy_from_slice(&bytes);
            }
            let size = usize::try_from(fs.getattr(ino).unwrap().size).unwrap();
            held.truncate(size);
            for _ in 0..200 {
                let at = random.usize(0..size);
                let mut read = vec![7; random.usize(1..size + 50)];
                let count = fs.read(&ctx, ino, at as u64, &mut read).unwrap();
                assert_eq!(count, read.len().min(size - at));
                assert!(read.get(..count) == held.get(at..at + count), "{count} bytes at {at}");
                assert!(read.iter().skip(count).all(|byte| *byte == 7));
            }
        }
    }

    /// A reader may stand at a node of the index while it is given back, and lent to what stores any words
    /// there: it panicked at a word that is no address. It fails, and who reads without the lock tries again.
    #[test]
    fn a_read_fails_at_words_that_are_no_addresses() {
        let (fs, ino) = with_file();
        let held: Vec<u8> = (0..=250).cycle().take(4 * 4096).collect();
        fs.write(&CTX, ino, 0, &held).unwrap();
        let arena = fs.arena();
        let view = fs.views.find(arena, ino).unwrap().unwrap();
        let lent = |word: u64| {
            let off = arena.alloc(Class::new(100, 200)).unwrap();
            arena.slice(off, 200).unwrap().iter().for_each(|place| place.store(word, Relaxed));
            off
        };
        let root = |off: Off, height: u64| 1 << 63 | off.raw() | height;
        let index = view.index_word().load(Relaxed);
        let empty = lent(0);
        for word in
            [u64::MAX, PmAddr::SLOT_BYTES_MAX - PAGE, PmAddr::SLOT_BYTES_MAX - 1, 1 << 55 | 5]
        {
            let node = lent(word);
            let pairs = [0, root(empty, 1), root(node, 1), root(node, 2)];
            for (height, pairs) in
                [1, 2].into_iter().flat_map(|high| pairs.map(|pairs| (high, pairs)))
            {
                view.index_word().store(root(node, height), Relaxed);
                view.pairs_word().store(pairs, Relaxed);
                for (from, len) in [(0, 10), (10, 64), (10, 4096), (4000, 200), (0, 3 * 4096)] {
                    // Errors all of them, but where the words of a block lead to a block that is read.
                    let _any = fs.read(&CTX, ino, from, &mut vec![0; len]);
                }
                if height == 1 && pairs == 0 {
                    let read = fs.read(&CTX, ino, 10, &mut vec![0; 4096]);
                    assert!(matches!(read, Err(Error::Damaged { .. })), "{word:#x}: {read:?}");
                }
            }
        }
        view.index_word().store(index, Relaxed);
        view.pairs_word().store(0, Relaxed);
        let mut read = vec![0; held.len()];
        assert_eq!(fs.read(&CTX, ino, 0, &mut read).unwrap(), held.len());
        assert!(read == held);
    }
}
