//! Copy-on-write: a write goes to whole new pages, which one commit maps (NOVA 4.4).
//!
//! Crash points. Pages and entries are stored behind the log's tail: a crash before the commit
//! line frees them. Single-fence form: the line counts only with entries and data that match its
//! checksum. Behind the line the new pages stand, and only then the old ones are freed.
//!
//! User memory is never touched under the inode's lock. A small write is copied first ([`crate::write::small`]).
//! Of a large one whole pages go straight from the user's memory to their new place before the lock is
//! taken, and the ends of one that is not page-aligned to a buffer that is filled up under it. It takes
//! the two-fence form: its bytes may change while they are read, so a checksum of them means nothing.

use novale_layout::{FileKind, Ino, PAGE, PmAddr};
use novale_pm::{Flushed, Purpose};
use novale_policy::WriteShape;

use crate::base::error::{Error, Result};
use crate::base::extent::{Extents, pages_touched};
use crate::base::types::Ctx;
use crate::fs::Fs;
use crate::inode::view::View;
use crate::log::FILE_PAGES_MAX;
use crate::map::fill::{Bytes, InPlace};
use crate::map::resolve::live_bytes;
use crate::op::call::{Call, OpKind};
use crate::op::file_tx::{FileTx, Taken};
use crate::op::lock::{Locked, regular};
use crate::op::pages::need;
use crate::seeded::{self, Bug};
use crate::space::Need;
use crate::write::small::{At, SMALL_BYTES_MAX};

const PAGE_BYTES: usize = 4096;
/// Greatest length of a file, in bytes.
pub(crate) const FILE_BYTES_MAX: u64 = FILE_PAGES_MAX * PAGE;
/// Optimistic tries of an append before it copies the data and takes the lock first.
const APPEND_TRIES: usize = 4;
/// Largest write that is checked for being an overwrite, in pages.
const OVERWRITE_PAGES_MAX: u64 = 512;

/// A file that is to be written, and its view where that was found without a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundFile<'a> {
    pub(crate) ino: Ino,
    pub(crate) view: Option<View<'a>>,
}

/// A page that the write covers in part, with the written bytes in place.
struct Partial {
    bytes: [u8; PAGE_BYTES],
    from: usize,
    to: usize,
}

/// New pages of a write, the whole ones stored.
struct Prepared<'a> {
    offset: u64,
    len: u64,
    taken: Taken<'a>,
    head: Option<Box<Partial>>,
    tail: Option<Box<Partial>>,
}

impl Prepared<'_> {
    fn first_page(&self) -> u64 {
        self.offset / PAGE
    }

    fn pages(&self) -> u64 {
        pages_touched(self.offset, self.len)
    }
}

fn in_page(offset: u64) -> usize {
    usize::try_from(offset % PAGE).unwrap_or(0)
}

impl Fs {
    /// Writes `data` at `offset`; holes before it read as zeros. All of it or nothing.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::NoMemory`] and [`Error::TooLarge`] before anything changed;
    /// [`Error::Invalid`] and [`Error::IsDirectory`] for what is no regular file.
    pub fn write(&self, ctx: &Ctx, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        if let Some((first, rest)) = data.split_at_checked(PAGE_BYTES)
            && !rest.is_empty()
            && seeded::is_on(Bug::WriteInTwo)
        {
            let written = self.write(ctx, ino, offset, first)?;
            return Ok(written + self.write(ctx, ino, offset + PAGE, rest)?);
        }
        self.may_append(ctx, data.len())?;
        let call = self.begin(OpKind::Write, ctx)?;
        let (file, size) = self.find_file(&call, ino)?;
        if data.is_empty() {
            return Ok(0);
        }
        let method = self.policy.decide(&WriteShape { offset, len: data.len() as u64, size });
        if data.len() <= SMALL_BYTES_MAX {
            let at = At::Offset(offset);
            return self.write_small(&call, file, (at, method), data).map(|_| data.len());
        }
        self.copy_on_write(&call, file, offset, data)
    }

    /// A regular file, and its size just now.
    fn find_file(&self, call: &Call<'_>, ino: Ino) -> Result<(FoundFile<'_>, u64)> {
        let mut size_of = |view: &View<'_>, kind: FileKind| regular(kind).map(|()| view.size());
        let view = self.views.find(self.arena(), ino)?;
        if let Some(view) = view
            && let Some(size) = Self::read_of(&view, ino, &mut size_of)?
        {
            return Ok((FoundFile { ino, view: Some(view) }, size));
        }
        let size = self.read_view(call, ino, size_of)?;
        Ok((FoundFile { ino, view: None }, size))
    }

    /// A write that is not small.
    fn copy_on_write(
        &self,
        call: &Call<'_>,
        file: FoundFile<'_>,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        let ino = file.ino;
        if file.view.is_some_and(|view| view.is_dax()) {
            return self.write_mapped(call, ino, At::Offset(offset), data).map(|_| data.len());
        }
        let prepared = self.prepare(call, ino, offset, data)?;
        let locked = self.lock_file(call, ino)?;
        if locked.view.is_dax() {
            drop(locked);
            drop(prepared);
            return self.write_mapped(call, ino, At::Offset(offset), data).map(|_| data.len());
        }
        self.write_locked(&locked, prepared)?;
        Ok(data.len())
    }

    /// Writes `data` at the end of the file, wherever that is by then; returns that offset.
    ///
    /// # Errors
    /// As [`Fs::write`].
    pub fn append(&self, ctx: &Ctx, ino: Ino, data: &[u8]) -> Result<u64> {
        self.may_append(ctx, data.len())?;
        let call = self.begin(OpKind::Write, ctx)?;
        let (file, end) = self.find_file(&call, ino)?;
        if data.is_empty() {
            return Ok(end);
        }
        if data.len() <= SMALL_BYTES_MAX {
            let shape = WriteShape { offset: end, len: data.len() as u64, size: end };
            return self.write_small(&call, file, (At::End(end), self.policy.decide(&shape)), data);
        }
        for _ in 0..APPEND_TRIES {
            let offset = self.read_view(&call, ino, |view, _| Ok(view.size()))?;
            let prepared = self.prepare(&call, ino, offset, data)?;
            let locked = self.lock_file(&call, ino)?;
            if locked.view.size() == offset && !locked.view.is_dax() {
                self.write_locked(&locked, prepared)?;
                return Ok(offset);
            }
        }
        // Others append all the time, or somebody has it mapped.
        self.write_mapped(&call, ino, At::End(0), data)
    }

    /// Writes with the lock held all the time, over a copy, so that no user memory is touched
    /// meanwhile: in place where somebody has the file mapped. Returns where that was.
    fn write_mapped(&self, call: &Call<'_>, ino: Ino, at: At, data: &[u8]) -> Result<u64> {
        let data = data.to_vec();
        let locked = self.lock_file(call, ino)?;
        let offset = match at {
            At::Offset(offset) => offset,
            At::End(_) => locked.view.size(),
        };
        if locked.view.is_dax() {
            self.write_in_place(call, &locked, offset, &data)?;
            return Ok(offset);
        }
        let prepared = self.prepare(call, ino, offset, &data)?;
        self.write_locked(&locked, prepared)?;
        Ok(offset)
    }

    /// Writes to a file that somebody has mapped.
    pub(crate) fn write_in_place(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(Error::TooLarge)?;
        let bytes = Bytes::Given(data);
        let change = InPlace { offset, end, bytes, fills: true, extends: true };
        self.change_in_place(call, locked, &change)
    }

    pub(crate) fn check_file(&self, call: &Call<'_>, ino: Ino) -> Result<()> {
        regular(self.read_view(call, ino, |_, kind| Ok(kind))?)
    }

    /// Locks a regular file. It was one before, but without the lock: a number that was removed
    /// meanwhile may be a directory's by now, and its index would get file pages.
    pub(crate) fn lock_file<'a>(&'a self, call: &'a Call<'_>, ino: Ino) -> Result<Locked<'a>> {
        let locked = self.lock(call, ino)?;
        self.check_data(&locked.view, locked.kind)?;
        Ok(locked)
    }

    /// Takes new pages and stores what the write covers whole.
    fn prepare<'a>(
        &'a self,
        call: &'a Call<'_>,
        ino: Ino,
        offset: u64,
        data: &[u8],
    ) -> Result<Prepared<'a>> {
        let len = data.len() as u64;
        let end = offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(Error::TooLarge)?;
        let pages = pages_touched(offset, len);
        let need = self.write_need(call, ino, offset / PAGE, pages)?;
        let taken = Taken::take(self, call, pages, need)?;
        let mut prepared = Prepared { offset, len, taken, head: None, tail: None };
        let head_len = match in_page(offset) {
            0 if len >= PAGE => 0,
            from => data.len().min(PAGE_BYTES - from),
        };
        let (head, rest) = data.split_at(head_len);
        let (whole, tail) = rest.split_at(rest.len() / PAGE_BYTES * PAGE_BYTES);
        prepared.head = partial(head, in_page(offset));
        prepared.tail = partial(tail, 0);
        debug_assert!(tail.is_empty() || in_page(end) == tail.len());
        self.store_whole(&mut prepared.taken, u64::from(head_len > 0), whole);
        Ok(prepared)
    }

    /// Stores whole pages of data from the `first`th new page on.
    fn store_whole(&self, taken: &mut Taken<'_>, first: u64, data: &[u8]) {
        let (mut skip, mut rest) = (first, data);
        let mut pending = Flushed::none();
        for extent in taken.extents.iter() {
            if skip >= extent.pages {
                skip -= extent.pages;
                continue;
            }
            let room = usize::try_from((extent.pages - skip) * PAGE).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at(rest.len().min(room));
            if now.is_empty() {
                break;
            }
            pending = pending.and(self.pm.stream(extent.addr.add(skip * PAGE), now, Purpose::Data));
            (skip, rest) = (0, later);
        }
        taken.also(pending);
    }

    /// Overwrites may use the reserve: they give back as much as they take.
    fn write_need(&self, call: &Call<'_>, ino: Ino, first: u64, pages: u64) -> Result<Need> {
        if pages > OVERWRITE_PAGES_MAX || self.allocator.is_roomy(self.arena())? {
            return Ok(Need::Growth);
        }
        let arena = self.arena();
        let mapped = self.read_view(call, ino, |view, _| {
            for page in first..first + pages {
                if view.index().get(arena, page)? == 0 {
                    return Ok(false);
                }
            }
            Ok(true)
        })?;
        Ok(need(mapped))
    }

    /// Fills the partial pages up, commits and publishes.
    fn write_locked(&self, locked: &Locked<'_>, mut prepared: Prepared<'_>) -> Result<()> {
        let (offset, first_page) = (prepared.offset, prepared.first_page());
        self.fill_partials(&locked.view, &mut prepared)?;
        let mut tx = FileTx::with(prepared.taken, locked);
        tx.room_to_map(first_page)?;
        tx.zero_gap_before(offset)?;
        self.commit_written(tx, first_page, offset + prepared.len, &[])
    }

    /// Maps the new pages from `first_page` on, commits and publishes them.
    pub(crate) fn commit_written(
        &self,
        mut tx: FileTx<'_>,
        first_page: u64,
        end: u64,
        sums: &[u32],
    ) -> Result<()> {
        tx.map_taken(first_page, sums);
        tx.grow(end);
        let view = tx.view();
        tx.commit(|taken, freed| self.map_extents(&view, first_page, taken, freed))
    }

    /// Maps the new pages from `page` on; what they replace goes to `freed`.
    pub(crate) fn map_extents(
        &self,
        view: &View<'_>,
        mut page: u64,
        extents: &Extents,
        freed: &mut Extents,
    ) -> Result<()> {
        let (arena, index) = (self.arena(), view.index());
        let mut mapped = view.data_pages();
        for extent in extents.iter() {
            let pages = page..page + extent.pages;
            mapped += extent.pages;
            index.replace_range(arena, pages, extent.addr.raw(), PAGE, &mut |_, old| {
                mapped -= 1;
                freed.push_page(PmAddr::from_raw(old));
            })?;
            page += extent.pages;
        }
        view.set_data_pages(mapped);
        Ok(())
    }

    /// Fills the pages that the write covers in part with the file's bytes around it, and stores
    /// them.
    fn fill_partials(&self, view: &View<'_>, prepared: &mut Prepared<'_>) -> Result<()> {
        let last = prepared.pages() - 1;
        let parts = [(0, prepared.head.take()), (last, prepared.tail.take())];
        for (index, part) in parts {
            let Some(mut part) = part else { continue };
            self.fill(view, prepared.first_page() + index, &mut part)?;
            let addr = prepared.taken.page(index);
            let stored = if seeded::is_on(Bug::EdgeNotFlushed) {
                seeded::stream_but_a_line(&self.pm, addr, &part.bytes, part.from / 64 * 64)
            } else {
                self.pm.stream(addr, &part.bytes, Purpose::Data)
            };
            prepared.taken.also(stored);
        }
        Ok(())
    }

    /// Fills a partial page: the file's bytes up to its end, zeros behind it.
    fn fill(&self, view: &View<'_>, file_page: u64, part: &mut Partial) -> Result<()> {
        let live = live_bytes(view, file_page);
        let Some(addr) = self.page_addr(view, file_page)?.filter(|_| live > 0) else {
            return Ok(());
        };
        let (before, rest) = part.bytes.split_at_mut(part.from);
        let count = before.len().min(live);
        self.pm.load(addr, before.get_mut(..count).unwrap_or_default())?;
        let behind = rest.get_mut(part.to - part.from..).unwrap_or_default();
        if live > part.to {
            let behind = behind.get_mut(..live - part.to).unwrap_or_default();
            self.pm.load(addr.add(part.to as u64), behind)?;
        }
        Ok(())
    }

    /// Whoever raises the end of the file zeroes the bytes between the old end and what it writes,
    /// as far as the old last page holds others, and makes sure of the zeros that it holds. They are
    /// dead until the commit, so they change in place.
    ///
    /// No certificate is needed first: what the last commit's checksum covers of a page that it maps
    /// are zeros behind the end of the file. Others lie there only since a later commit has cut the
    /// file, and that one covers no page.
    pub(crate) fn zero_gap(&self, locked: &Locked<'_>, to: u64) -> Result<Option<Flushed>> {
        let gap = self.zero_last_page(locked, to)?;
        match self.zero_reserved(locked, to)? {
            Some(reserved) => Ok(Some(gap.unwrap_or_else(Flushed::none).and(reserved))),
            None => Ok(gap),
        }
    }

    fn zero_last_page(&self, locked: &Locked<'_>, to: u64) -> Result<Option<Flushed>> {
        let size = locked.view.size();
        let from = in_page(size);
        if from == 0 || to <= size || seeded::is_on(Bug::GapNotZeroed) {
            return Ok(None);
        }
        let Some(addr) = self.page_addr(&locked.view, size / PAGE)? else { return Ok(None) };
        let len = usize::try_from((to - size).min(PAGE - size % PAGE)).unwrap_or(0);
        let mut bytes = [0; PAGE_BYTES];
        let gap = bytes.get_mut(..len).unwrap_or_default();
        self.pm.load(addr.add(from as u64), gap)?;
        if gap.iter().all(|byte| *byte == 0) {
            // Zeros that are seen need not be durable: whoever stored them may have died before its
            // fence, and nothing committed made recovery look at them.
            let shown = self.pm.write_back_range(addr.add(from as u64), len as u64, Purpose::Data);
            return Ok(Some(shown));
        }
        Ok(Some(self.pm.stream_zero(addr.add(from as u64), len as u64, Purpose::Data)))
    }
}

/// A page that `data` covers in part, from byte `from` on; none where there is no data.
fn partial(data: &[u8], from: usize) -> Option<Box<Partial>> {
    if data.is_empty() {
        return None;
    }
    let to = from + data.len();
    let mut part = Box::new(Partial { bytes: [0; PAGE_BYTES], from, to });
    if let Some(place) = part.bytes.get_mut(from..to) {
        place.copy_from_slice(data);
    }
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::exec::Serial;
    use crate::base::types::{Fallocate, Node};
    use crate::fixture::{CTX, MB, with_file};
    use crate::write::range::copy::Place;

    /// A page of the file that can't be read ended an operation in its middle, and the new pages and
    /// the room in the log that it had taken were nobody's until the next recovery.
    #[test]
    fn what_was_taken_goes_back_when_an_old_page_cannot_be_read() {
        type Try = fn(&Fs, Ino) -> Result<()>;
        let tries: [Try; 7] = [
            |fs, ino| fs.write(&CTX, ino, 100, &[2; 100]).map(drop),
            |fs, ino| fs.write(&CTX, ino, 100, &vec![2; 20_000]).map(drop),
            |fs, ino| fs.write(&CTX, ino, 40_000, &[2; 100]).map(drop),
            |fs, ino| fs.fallocate(&CTX, ino, Fallocate::ZeroRange, 100, 9000),
            |fs, ino| fs.fallocate(&CTX, ino, Fallocate::Extend, 8192, 9000),
            |fs, ino| fs.fallocate(&CTX, ino, Fallocate::PunchHole, 100, 100),
            |fs, ino| {
                let place = |offset| Place { ino, offset };
                fs.copy_range(&CTX, place(0), place(MB), 3000).map(drop)
            },
        ];
        for (index, attempt) in tries.into_iter().enumerate() {
            let (fs, ino) = with_file();
            fs.write(&CTX, ino, 0, &[1; 3000]).unwrap();
            // The log is to need a page for the next entry, so that room is taken as well.
            let mode = |mode| crate::SetAttr { mode: Some(mode), ..crate::SetAttr::default() };
            for step in 0..61 {
                fs.setattr(&CTX, Node::current(ino), &mode(0o600 + step)).unwrap();
            }
            let view = fs.views.find(fs.arena(), ino).unwrap().unwrap();
            let page = view.index().set(fs.arena(), 0, PmAddr::new(9, 0).raw()).unwrap();
            let taken = || {
                let spare = view.spare();
                let pages = fs.allocator.pages_free(fs.arena()).unwrap();
                (pages + spare.1, view.log_pages())
            };
            let before = taken();
            let said = attempt(&fs, ino).unwrap_err().to_string();
            assert!(said.contains("damaged pool: address"), "{index}: {said}");
            assert_eq!(taken(), before, "{index}");
            view.index().set(fs.arena(), 0, page).unwrap();
            fs.close().unwrap();
            let found = crate::check(&fs.into_pm(), &Serial, &|_| {}).unwrap().findings;
            assert!(found.is_empty(), "{index}: {found:?}");
        }
    }
}
