//! Writes by descriptor beside stores to a mapping of the same page.
//!
//! Files that are open for writing bypass the kernel's page cache, which drops the pages of a write
//! before and after it. A page that is mapped may come back in between: read before the write is
//! applied, stored to, and written back after it, as a whole, with the old bytes in the place of those
//! of the write. So of a page that the kernel has read, what a write replaces in it is kept, and of a
//! page that is written back the bytes that are still the old ones are nobody's stores: the write's
//! stay. Both are whole then, and the kernel reads the page anew, which ends this.
//!
//! Why that suffices. Only a mapping that can be stored to is written back, and it is of a file that
//! the kernel has open for reading and writing: of others nothing is kept. Mapping such a file drops
//! its pages, so those that the kernel has were read since it was opened. When a page is read again,
//! the kernel has let go of the one before, and has written it back where it was stored to: what is
//! kept of it is of no use any more. A byte that was stored to, seen by its being another than the old
//! one, is the mapping's from there on, whatever it becomes. What a write keeps is of no use either
//! once the kernel has dropped its pages after it, which it does before the file's next write; so the
//! oldest are forgotten where there are many. A long write is several requests here, each of which begins
//! where the one before ended: what follows so is taken for one write.
//!
//! Erasing (`fallocate`) leaves the kernel its pages: it makes zeros in them itself, once it is answered,
//! and takes them for clean. So what is erased is kept in the same way, and the kernel is told to drop its
//! pages before it is answered, for which it writes back what was stored to them: what it reads from then
//! on is what the file has. Of more pages than can be kept a part is erased and dropped at a time. What is written back
//! of erased bytes until it is answered was stored beside the erasing, and counts as stored before it: a later store to
//! them may be in a page that the kernel then makes zeros of, and the earlier one must not be what is left.
//!
//! Not covered: writes that the kernel itself makes beside each other (`io_uring`, `libaio`). It drops
//! the pages when such a write begins, and so may show the old bytes in a mapping.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};

use novale_core::Ino;

use crate::locked::locked;
use crate::service::Reply;

const PAGE: u64 = 4096;
const PAGE_BYTES: usize = 4096;
/// Pages of a file of which old bytes are kept, beyond those of its latest writes: 2 MB.
const KEPT_MAX: usize = 512;
/// Groups of 512 pages of a file of which the kernel's pages are known, 8 GB where all are used: of a file of more it may
/// have any. A hole costs the kernel's user no room, and each group costs the daemon some.
const GROUPS_MAX: usize = 4096;
/// The same of all files: 75 MB. Beyond it the kernel is to drop its pages of those that nobody has written to for
/// longest, which need none then.
const KEPT_IN_ALL: usize = 16 << 10;
/// Groups of all files: some 100 MB.
const GROUPS_IN_ALL: usize = 1 << 20;
/// A file's latest requests to write, of which the old bytes are kept in any case, beside those of its latest write:
/// each has 257 pages at most.
const LATEST: u64 = 8;
/// Pages that are erased at a time: 4 MB.
const ERASED_MAX: usize = 1024;

/// The files that the kernel has open for reading and writing.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    files: Mutex<HashMap<u64, Open>>,
    totals: Arc<Totals>,
}

/// What is kept of all files, as each has counted it last.
#[derive(Debug, Default)]
struct Totals {
    replaced: AtomicUsize,
    groups: AtomicUsize,
    /// Writes to files of which something is kept.
    writes: AtomicU64,
    /// Some files' pages are being dropped ([`OldStores`]).
    is_dropping: AtomicBool,
    /// What was left then that could not be forgotten: it is tried again when there is an eighth more.
    left: AtomicUsize,
}

/// Files that nobody has written to for long, each with its latest write: what is kept of that one and of those before
/// is of no use once the kernel has dropped its pages ([`Stores::dropped`]). While there are such, no others are named.
#[derive(Debug)]
pub struct OldStores {
    pub(crate) files: Vec<(Ino, u64)>,
    totals: Arc<Totals>,
}

impl Drop for OldStores {
    fn drop(&mut self) {
        self.totals.left.store(self.totals.replaced.load(Relaxed), Relaxed);
        self.totals.is_dropping.store(false, Release);
    }
}

#[derive(Debug, Default)]
struct Open {
    count: u64,
    /// None where writes go through the pages themselves (kernels that can't map files whose writes bypass them):
    /// nothing is known of them then.
    pages: Option<Arc<Mutex<Pages>>>,
}

/// What is known of a file's pages.
#[derive(Debug, Default)]
struct Pages {
    /// Those that the kernel may have, a bit each, by their number's part above 512.
    kernels: HashMap<u64, [u64; 8]>,
    /// It may have any, and no bit is kept.
    any: bool,
    /// What writes have replaced in those.
    replaced: BTreeMap<u64, Replaced>,
    /// Requests to write so far.
    writes: u64,
    /// Where the latest one ended.
    end: u64,
    /// The first one of which the kernel may have made the latest call, with those behind it.
    call: u64,
    /// What was replaced before this one is forgotten.
    forgotten: u64,
    /// What was erased by calls that are not answered yet.
    erased: Vec<Range<u64>>,
    totals: Arc<Totals>,
    /// What of it stands in the totals: pages and groups.
    counted: [usize; 2],
    /// The latest write among those to all files.
    latest: u64,
}

impl Drop for Pages {
    fn drop(&mut self) {
        (self.replaced, self.kernels) = Default::default();
        self.count();
    }
}

/// What writes have replaced in a page since the kernel has read it.
#[derive(Debug)]
struct Replaced {
    old: Box<[u8; PAGE_BYTES]>,
    /// Which of its bytes count.
    counts: [u64; PAGE_BYTES / 64],
    /// The latest of the requests.
    write: u64,
}

impl Replaced {
    fn new() -> Self {
        Self { old: Box::new([0; PAGE_BYTES]), counts: [0; PAGE_BYTES / 64], write: 0 }
    }

    /// Keeps these bytes of the page as it is now, but for those that are kept already.
    fn keep(&mut self, bytes: &Range<usize>, now: &[u8; PAGE_BYTES]) {
        let (old, _) = self.old.as_chunks_mut::<64>();
        let words = self.counts.iter_mut().zip(old).zip(now.as_chunks::<64>().0);
        for (index, ((counts, old), now)) in words.enumerate() {
            let fresh = bits(bytes, index) & !*counts;
            *counts |= fresh;
            if fresh == u64::MAX {
                *old = *now;
                continue;
            }
            for (bit, (old, now)) in old.iter_mut().zip(now).enumerate() {
                if fresh >> bit & 1 != 0 {
                    *old = *now;
                }
            }
        }
    }

    /// The bytes that still count, of those in a range.
    fn counting(&self, bytes: &Range<usize>) -> Vec<usize> {
        let words = self.counts.iter().enumerate();
        let there = words.map(|(index, counts)| (index, bits(bytes, index) & counts));
        let each = |(index, bits): (usize, u64)| {
            (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| index * 64 + bit)
        };
        there.filter(|(_, bits)| *bits != 0).flat_map(each).collect()
    }

    fn forget(&mut self, byte: usize) {
        if let Some(word) = self.counts.get_mut(byte / 64) {
            *word &= !(1 << (byte % 64));
        }
    }
}

/// A range's bits in the word of so many bytes.
fn bits(bytes: &Range<usize>, index: usize) -> u64 {
    let first = index * 64;
    let from = bytes.start.saturating_sub(first).min(64);
    let to = bytes.end.saturating_sub(first).min(64);
    let below = |bit: usize| if bit == 64 { u64::MAX } else { (1 << bit) - 1 };
    below(to) & !below(from)
}

/// A page and a range of its bytes.
type Piece = (u64, Range<usize>);

/// The numbers of the pages that a range of bytes has parts of.
fn pages(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / PAGE..bytes.end.div_ceil(PAGE)
}

/// The groups that a range of pages has parts of.
fn groups(pages: &Range<u64>) -> Range<u64> {
    pages.start / 512..pages.end.div_ceil(512)
}

/// The pages of a group whose bits are set.
fn in_group(group: u64, words: [u64; 8]) -> impl Iterator<Item = u64> {
    let is_set =
        move |at: &usize| words.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 != 0);
    (0..512).filter(is_set).map(move |at| group * 512 + at as u64)
}

/// The same with the range of bytes in each.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let bytes = offset..offset.saturating_add(len as u64);
    pages(&bytes).map(move |page| (page, in_page(page, &bytes)))
}

/// Which bytes of a page are in a range that it has a part of.
fn in_page(page: u64, bytes: &Range<u64>) -> Range<usize> {
    let start = page * PAGE;
    let at = |at: u64| usize::try_from(at.min(PAGE)).unwrap_or(PAGE_BYTES);
    at(bytes.start.saturating_sub(start))..at(bytes.end.saturating_sub(start))
}

/// Reads a file's bytes into a buffer, from an offset on.
pub(crate) type ReadAt<'a> = &'a dyn Fn(u64, &mut [u8]) -> Reply<usize>;

/// A file as it is.
pub(crate) struct Now<'a> {
    pub(crate) read: ReadAt<'a>,
    /// Where its next data lies from an offset on, if there is any.
    pub(crate) data: &'a dyn Fn(u64) -> Reply<Option<u64>>,
}

/// The first pages of a range that are no holes, so many at most: a hole is zeros before it is erased, too.
fn with_data(bytes: &Range<u64>, now: &Now<'_>, most: usize) -> Reply<Vec<u64>> {
    let (mut found, mut at) = (Vec::new(), bytes.start);
    while found.len() < most
        && let Some(next) = (now.data)(at)?.filter(|next| *next < bytes.end)
    {
        found.push(next / PAGE);
        at = (next / PAGE + 1) * PAGE;
    }
    Ok(found)
}

/// Says where a write begins.
pub(crate) type AtOffset<'a> = &'a dyn Fn() -> Reply<u64>;

/// A page of the file as it is, zeros beyond its end.
fn page_now(read: ReadAt<'_>, page: u64) -> Reply<[u8; PAGE_BYTES]> {
    let mut now = [0; PAGE_BYTES];
    let bytes = read(page * PAGE, &mut now)?;
    now.iter_mut().skip(bytes).for_each(|byte| *byte = 0);
    Ok(now)
}

impl Pages {
    /// The word of a page's bit, and the bit.
    fn place(page: u64) -> (u64, usize, u64) {
        (page / 512, usize::try_from(page % 512 / 64).unwrap_or(0), 1 << (page % 64))
    }

    fn has_some(&self) -> bool {
        self.any || !self.kernels.is_empty()
    }

    fn has(&self, page: u64) -> bool {
        let (group, word, bit) = Self::place(page);
        let words = self.kernels.get(&group);
        self.any || words.and_then(|words| words.get(word)).is_some_and(|word| word & bit != 0)
    }

    /// Brings the totals up to date.
    fn count(&mut self) {
        let totals = [&self.totals.replaced, &self.totals.groups];
        let now = [self.replaced.len(), self.kernels.len()];
        for (total, (now, counted)) in totals.into_iter().zip(now.into_iter().zip(self.counted)) {
            total.fetch_add(now.wrapping_sub(counted), Relaxed);
        }
        self.counted = now;
    }

    fn set(&mut self, page: u64, is_kernels: bool) {
        let (group, word, bit) = Self::place(page);
        let is_full =
            self.kernels.len() == GROUPS_MAX || self.totals.groups.load(Relaxed) >= GROUPS_IN_ALL;
        self.any |= is_full && !self.kernels.contains_key(&group);
        if self.any {
            self.kernels = HashMap::new();
            return;
        }
        if let Some(word) = self.kernels.entry(group).or_default().get_mut(word) {
            *word = if is_kernels { *word | bit } else { *word & !bit };
        }
    }

    /// The kernel has read these pages as they are.
    fn are_read(&mut self, offset: u64, len: usize) {
        for (page, _) in pieces(offset, len) {
            self.replaced.remove(&page);
        }
    }

    /// Keeps what a write is about to replace.
    fn keep(&mut self, offset: u64, len: usize, read: ReadAt<'_>) -> Reply<()> {
        self.writes += 1;
        if offset != self.end {
            self.call = self.writes;
        }
        for (page, bytes) in pieces(offset, len) {
            if self.has(page) {
                self.keep_piece(page, &bytes, read)?;
            }
        }
        Ok(())
    }

    /// The pages of a range that the kernel may have, in no order; the range may be as long as a file can be, and all of
    /// it be among them.
    fn known(&self, bytes: &Range<u64>) -> impl Iterator<Item = u64> {
        let pages = pages(bytes);
        let all = if self.any { pages.clone() } else { 0..0 };
        let groups = groups(&pages);
        let those = self.kernels.iter().filter(move |(group, _)| groups.contains(group));
        let each = |(group, words): (&u64, &[u64; 8])| in_group(*group, *words);
        those.flat_map(each).filter(move |page| pages.contains(page)).chain(all)
    }

    /// The first ones of these, so many at most, in order, where they are known.
    fn first_known(&self, bytes: &Range<u64>, most: usize) -> Vec<u64> {
        let pages = pages(bytes);
        let within = groups(&pages);
        let mut groups: Vec<u64> =
            self.kernels.keys().copied().filter(|group| within.contains(group)).collect();
        groups.sort_unstable();
        let words = |group: &u64| self.kernels.get(group).map(|words| (*group, *words));
        let each = groups.iter().filter_map(words);
        let all = each.flat_map(|(group, words)| in_group(group, words));
        all.filter(|page| pages.contains(page)).take(most).collect()
    }

    /// Keeps what is erased of a range, or of a first part of it; where that ends.
    fn keep_erased(&mut self, bytes: &Range<u64>, now: &Now<'_>) -> Reply<u64> {
        self.writes += 1;
        self.call = self.writes;
        let mut known = if self.any {
            with_data(bytes, now, ERASED_MAX + 1)?
        } else {
            self.first_known(bytes, ERASED_MAX + 1)
        };
        let end = known.get(ERASED_MAX).map_or(bytes.end, |page| page * PAGE);
        known.truncate(ERASED_MAX);
        let part = bytes.start..end;
        let mut each = known.into_iter();
        each.try_for_each(|page| self.keep_piece(page, &in_page(page, &part), now.read))?;
        Ok(end)
    }

    fn keep_piece(&mut self, page: u64, bytes: &Range<usize>, read: ReadAt<'_>) -> Reply<()> {
        let now = page_now(read, page)?;
        let replaced = self.replaced.entry(page).or_insert_with(Replaced::new);
        replaced.write = self.writes;
        replaced.keep(bytes, &now);
        Ok(())
    }

    /// Forgets what was replaced long ago; the kernel has dropped those pages.
    fn forget_oldest(&mut self) {
        let until = self.call.min((self.writes + 1).saturating_sub(LATEST));
        if self.replaced.len() <= KEPT_MAX || until == self.forgotten {
            return;
        }
        self.forgotten = until;
        let oldest = |replaced: &Replaced| replaced.write < until;
        let pages: Vec<u64> =
            self.replaced.iter().filter(|(_, it)| oldest(it)).map(|(page, _)| *page).collect();
        for page in pages {
            self.replaced.remove(&page);
            self.set(page, false);
        }
    }

    /// What is written back with the bytes of later writes in it; none where there are none.
    fn merged(&mut self, offset: u64, bytes: &[u8], read: ReadAt<'_>) -> Reply<Option<Vec<u8>>> {
        let mut merged: Option<Vec<u8>> = None;
        for (page, range) in pieces(offset, bytes.len()) {
            let Some(replaced) = self.replaced.get_mut(&page) else { continue };
            let now = page_now(read, page)?;
            let merged = merged.get_or_insert_with(|| bytes.to_vec());
            for byte in replaced.counting(&range) {
                let at = usize::try_from(page * PAGE + byte as u64 - offset).unwrap_or(usize::MAX);
                if bytes.get(at) != replaced.old.get(byte) {
                    replaced.forget(byte);
                } else if let (Some(to), Some(from)) = (merged.get_mut(at), now.get(byte)) {
                    *to = *from;
                }
            }
        }
        for (page, range) in self.erased_pieces(offset, bytes.len()) {
            let now = page_now(read, page)?;
            let merged = merged.get_or_insert_with(|| bytes.to_vec());
            let at =
                usize::try_from(page * PAGE + range.start as u64 - offset).unwrap_or(usize::MAX);
            let to = merged.get_mut(at..at.saturating_add(range.len()));
            if let (Some(to), Some(from)) = (to, now.get(range)) {
                to.copy_from_slice(from);
            }
        }
        Ok(merged)
    }

    /// The pieces of so many bytes that are erased by calls which are not answered yet.
    fn erased_pieces(&self, offset: u64, len: usize) -> Vec<Piece> {
        let end = offset.saturating_add(len as u64);
        let within = |erased: &Range<u64>| erased.start.max(offset)..erased.end.min(end);
        let ranges = self.erased.iter().map(within).filter(|range| !range.is_empty());
        let each = |range: Range<u64>| {
            pieces(range.start, usize::try_from(range.end - range.start).unwrap_or(0))
        };
        ranges.flat_map(each).collect()
    }
}

impl Stores {
    /// The kernel has a file open for reading and writing, once more; whether writes bypass its pages is the same
    /// each time.
    pub(crate) fn opened(&self, ino: Ino, bypasses: bool) {
        let mut files = locked(&self.files);
        let open = files.entry(ino.get()).or_default();
        open.count += 1;
        if bypasses {
            open.pages.get_or_insert_with(|| {
                let mut pages = Pages::default();
                pages.totals = Arc::clone(&self.totals);
                Arc::new(Mutex::new(pages))
            });
        }
    }

    /// Once less, and what was mapped through that is not.
    pub(crate) fn ended(&self, ino: Ino) {
        let mut files = locked(&self.files);
        let Some(open) = files.get_mut(&ino.get()) else { return };
        open.count -= 1;
        if open.count == 0 {
            files.remove(&ino.get());
        }
    }

    fn pages(&self, ino: Ino) -> Option<Arc<Mutex<Pages>>> {
        locked(&self.files).get(&ino.get()).and_then(|open| open.pages.clone())
    }

    /// Whether the kernel may have pages of a file that are stored to.
    pub(crate) fn may_store(&self, ino: Ino) -> bool {
        self.may_have(ino, Pages::has_some)
    }

    /// Whether it may have such of a range.
    pub(crate) fn may_store_in(&self, ino: Ino, bytes: &Range<u64>) -> bool {
        self.may_have(ino, |pages| pages.known(bytes).next().is_some())
    }

    fn may_have(&self, ino: Ino, has: impl FnOnce(&Pages) -> bool) -> bool {
        let pages = match locked(&self.files).get(&ino.get()) {
            None => return false,
            Some(open) => open.pages.clone(),
        };
        pages.is_none_or(|pages| has(&locked(&pages)))
    }

    /// The page cache reads.
    pub(crate) fn read(
        &self,
        ino: Ino,
        (offset, buf): (u64, &mut [u8]),
        read: ReadAt<'_>,
    ) -> Reply<usize> {
        let Some(pages) = self.pages(ino) else { return read(offset, buf) };
        let before = {
            let mut pages = locked(&pages);
            // From here on writes keep what they replace.
            pieces(offset, buf.len()).for_each(|(page, _)| pages.set(page, true));
            pages.writes
        };
        let mut bytes = read(offset, buf)?;
        let mut pages = locked(&pages);
        if pages.writes != before {
            bytes = read(offset, buf)?;
        }
        pages.are_read(offset, buf.len());
        pages.count();
        Ok(bytes)
    }

    /// A write by a descriptor, past the page cache, at the offset that `at` says.
    pub(crate) fn write(
        &self,
        ino: Ino,
        (at, len): (AtOffset<'_>, usize),
        read: ReadAt<'_>,
        write: &mut dyn FnMut() -> Reply<usize>,
    ) -> Reply<usize> {
        let Some(pages) = self.pages(ino) else { return write() };
        let mut pages = locked(&pages);
        if !pages.has_some() {
            pages.writes += 1;
            return write();
        }
        pages.latest = self.totals.writes.fetch_add(1, Relaxed);
        let offset = at()?;
        pages.keep(offset, len, read)?;
        let written = write();
        // One that fails may be made again, or be the last of its call.
        pages.end = offset + written.as_ref().map_or(0, |bytes| *bytes as u64);
        pages.forget_oldest();
        pages.count();
        written
    }

    /// The files whose pages the kernel is to drop, where much is kept of all together.
    pub(crate) fn old(&self) -> Option<OldStores> {
        let (totals, kept) = (&self.totals, self.totals.replaced.load(Relaxed));
        let is_much = kept > KEPT_IN_ALL && kept > totals.left.load(Relaxed) / 8 * 9;
        if !is_much || totals.is_dropping.swap(true, Acquire) {
            return None;
        }
        let open: Vec<_> = {
            let files = locked(&self.files);
            files.iter().filter_map(|(ino, open)| Some((*ino, open.pages.clone()?))).collect()
        };
        // One that is in use is being written to.
        let known = |(ino, pages): (u64, Arc<Mutex<Pages>>)| {
            let pages = pages.try_lock().ok()?;
            let kept = pages.replaced.len();
            (kept > 0).then_some((pages.latest, kept, (Ino::new(ino), pages.writes)))
        };
        let mut by_age: Vec<_> = open.into_iter().filter_map(known).collect();
        by_age.sort_unstable_by_key(|(latest, ..)| *latest);
        let mut surplus = kept - KEPT_IN_ALL / 2;
        let is_old = |(_, kept, file): (u64, usize, (Ino, u64))| {
            let is_wanted = surplus > 0;
            surplus = surplus.saturating_sub(kept);
            is_wanted.then_some(file)
        };
        let files = by_age.into_iter().map_while(is_old).collect();
        Some(OldStores { files, totals: Arc::clone(totals) })
    }

    /// Bytes of a range become zeros past the page cache, or those of a first part of it. Says where the part ends of
    /// which the kernel has to drop its pages, if there are any: see [`Stores::dropped`], and then [`Stores::erased`].
    pub(crate) fn erase(
        &self,
        ino: Ino,
        bytes: &Range<u64>,
        now: &Now<'_>,
        erase: &mut dyn FnMut(u64) -> Reply<()>,
    ) -> Reply<Option<u64>> {
        let Some(pages) = self.pages(ino) else { return erase(bytes.end).map(|()| None) };
        let mut pages = locked(&pages);
        let end = pages.keep_erased(bytes, now)?;
        pages.count();
        erase(end)?;
        let is_known = pages.known(&(bytes.start..end)).next().is_some();
        let has_to_drop = is_known || end < bytes.end;
        if has_to_drop {
            pages.erased.push(bytes.start..end);
        }
        Ok(has_to_drop.then_some(end))
    }

    /// The call that has erased these bytes, in parts of which the kernel had to drop its pages, is about to be answered.
    pub(crate) fn erased(&self, ino: Ino, bytes: &Range<u64>) {
        let Some(pages) = self.pages(ino) else { return };
        let is_other = |part: &Range<u64>| part.start < bytes.start || part.end > bytes.end;
        locked(&pages).erased.retain(is_other);
    }

    /// The kernel has dropped its pages of a range, and written back what was stored to them, since so many writes to
    /// the file.
    pub(crate) fn dropped(&self, ino: Ino, bytes: &Range<u64>, writes: u64) {
        let Some(pages) = self.pages(ino) else { return };
        let mut pages = locked(&pages);
        let within = self::pages(bytes);
        pages.replaced.retain(|page, it| !within.contains(page) || it.write > writes);
        pages.count();
    }

    /// Pages are written back that a mapping has stored to.
    pub(crate) fn write_back(
        &self,
        ino: Ino,
        (offset, bytes): (u64, &[u8]),
        read: ReadAt<'_>,
        write: &mut dyn FnMut(&[u8]) -> Reply<usize>,
    ) -> Reply<usize> {
        let Some(pages) = self.pages(ino) else { return write(bytes) };
        let mut pages = locked(&pages);
        let merged = pages.merged(offset, bytes, read)?;
        write(merged.as_deref().unwrap_or(bytes))
    }
}

#[cfg(test)]
mod tests;
