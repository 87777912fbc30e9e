//! Copy-on-write: a write goes to whole new pages, which one commit maps (NOVA 4.4).
//!
//! Crash points. Pages and entries are stored after the log's tail: a crash before the commit
//! line frees them. Single-fence form: the line counts only with entries and data that match its
//! checksum. After the line the new pages stand, and only then the old ones are freed.
//!
//! User memory is never touched under the inode's lock. A small write is copied first
//! ([`crate::write::small`]). Of a large one whole pages go straight from the user's memory to their new
//! place before the lock is taken, and the ends of one that is not page-aligned to a buffer that is
//! filled up under it. It takes the two-fence form: its bytes may change while they are read, so a
//! checksum of them means nothing.

use novale_layout::{Ino, PAGE, PmAddr};
use novale_pm::{Flushed, Purpose};
use novale_policy::Method;

use crate::base::error::Result;
use crate::base::extent::Extents;
use crate::fs::Fs;
use crate::inode::view::View;
use crate::op::call::Call;
use crate::op::file_tx::{FileTx, Taken};
use crate::op::lock::Locked;
use crate::seeded::{self, Bug};
use crate::write::plan::{At, WritePlan};

const PAGE_BYTES: usize = 4096;
const LINE_BYTES: usize = 64;
/// Tries to prepare a write without the lock before it is made over a copy.
const TRIES: usize = 4;

/// A page that the write covers in part, with the written bytes in place.
struct Partial {
    bytes: [u8; PAGE_BYTES],
    from: usize,
    to: usize,
}

/// New pages of a write, the whole ones stored.
struct Prepared<'a> {
    plan: WritePlan,
    taken: Taken<'a>,
    head: Option<Box<Partial>>,
    tail: Option<Box<Partial>>,
}

fn in_page(offset: u64) -> usize {
    usize::try_from(offset % PAGE).unwrap_or(0)
}

impl Fs {
    /// A write that is not small.
    pub(crate) fn write_large(
        &self,
        call: &Call<'_>,
        ino: Ino,
        at: At,
        mut plan: WritePlan,
        data: &[u8],
    ) -> Result<u64> {
        for _ in 0..TRIES {
            if plan.method == Method::InPlace {
                break;
            }
            let prepared = self.prepare(call, ino, plan, data)?;
            let locked = self.lock_file(call, ino)?;
            let changed = self.plan_again(&locked.view, at, &plan)?;
            let now = changed.unwrap_or(plan);
            if now.offset == plan.offset && now.method != Method::InPlace {
                self.write_locked(&locked, prepared)?;
                self.count_written(now.method.into(), data.len() as u64);
                return Ok(now.offset);
            }
            plan = now;
        }
        // In place, or beyond an end that others move all the time: over a copy, since no user memory is
        // touched under the lock.
        let data = data.to_vec();
        let locked = self.lock_file(call, ino)?;
        let plan = self.plan_again(&locked.view, at, &plan)?.unwrap_or(plan);
        if plan.method == Method::InPlace {
            self.write_in_place(call, &locked, plan.offset, &data)?;
        } else {
            let prepared = self.prepare(call, ino, plan, &data)?;
            self.write_locked(&locked, prepared)?;
        }
        self.count_written(plan.method.into(), data.len() as u64);
        Ok(plan.offset)
    }

    /// Takes new pages and stores what the write covers whole.
    fn prepare<'a>(
        &'a self,
        call: &'a Call<'_>,
        ino: Ino,
        plan: WritePlan,
        data: &[u8],
    ) -> Result<Prepared<'a>> {
        let pages = plan.pages();
        let need =
            self.read_view(call, ino, |view, _| self.need_of(view, plan.first_page(), pages))?;
        let taken = Taken::take(self, call, pages, need)?;
        let mut prepared = Prepared { plan, taken, head: None, tail: None };
        let head_len = match in_page(plan.offset) {
            0 if data.len() >= PAGE_BYTES => 0,
            from => data.len().min(PAGE_BYTES - from),
        };
        let (head, rest) = data.split_at(head_len);
        let (whole, tail) = rest.split_at(rest.len() / PAGE_BYTES * PAGE_BYTES);
        prepared.head = partial(head, in_page(plan.offset));
        prepared.tail = partial(tail, 0);
        debug_assert!(tail.is_empty() || in_page(plan.end) == tail.len());
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

    /// Fills the partial pages up, commits and publishes.
    fn write_locked(&self, locked: &Locked<'_>, mut prepared: Prepared<'_>) -> Result<()> {
        self.fill_partials(&locked.view, &mut prepared)?;
        let WritePlan { offset, end, .. } = prepared.plan;
        let mut tx = FileTx::with(prepared.taken, locked);
        tx.room_to_map(offset / PAGE)?;
        tx.zero_gap_before(offset)?;
        self.commit_written(&mut tx, offset / PAGE, end, &[])
    }

    /// Maps the new pages from `first_page` on, commits and publishes them.
    pub(crate) fn commit_written(
        &self,
        tx: &mut FileTx<'_>,
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
        let last = prepared.plan.pages() - 1;
        let parts = [(0, prepared.head.take()), (last, prepared.tail.take())];
        for (index, part) in parts {
            let Some(mut part) = part else { continue };
            self.fill(view, prepared.plan.first_page() + index, &mut part)?;
            let addr = prepared.taken.page(index);
            // What lies after the end of the file is nobody's: a file whose own pages are mapped is not
            // written here.
            let is_end = index == last && prepared.plan.end >= view.size();
            let to = if is_end { part.to.next_multiple_of(LINE_BYTES) } else { PAGE_BYTES };
            let bytes = part.bytes.get(..to).unwrap_or_default();
            let stored = if seeded::is_on(Bug::EdgeNotFlushed) {
                seeded::stream_but_a_line(
                    &self.pm,
                    addr,
                    bytes,
                    part.from / LINE_BYTES * LINE_BYTES,
                )
            } else {
                self.pm.stream(addr, bytes, Purpose::Data)
            };
            prepared.taken.also(stored);
        }
        Ok(())
    }

    /// Fills a partial page: the file's bytes up to its end, zeros after it.
    fn fill(&self, view: &View<'_>, file_page: u64, part: &mut Partial) -> Result<()> {
        let mut old = [0; PAGE_BYTES];
        self.load_page(view, file_page, &mut old)?;
        for around in [0..part.from, part.to..PAGE_BYTES] {
            let bytes = old.get(around.clone()).unwrap_or_default();
            part.bytes.get_mut(around).unwrap_or_default().copy_from_slice(bytes);
        }
        Ok(())
    }

    /// A client that raises the end of the file zeroes the bytes between the old end and what it writes,
    /// as far as the old last page holds others, and makes sure of the zeros that it holds. They are
    /// dead until the commit, so they change in place.
    ///
    /// No certificate is needed first: what the last commit's checksum covers of a page that it maps
    /// are zeros beyond the end of the file. Others lie there since a later commit has cut the file, or
    /// where a page was stored up to the end alone: neither line covers a page.
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
        let gap = from as u64..(to - size / PAGE * PAGE).min(PAGE);
        let mut zeroed = Flushed::none();
        self.each_current(&locked.view, size / PAGE, addr, gap, |at, len| {
            let piece = self.zero_piece(at, len)?;
            zeroed = std::mem::replace(&mut zeroed, Flushed::none()).and(piece);
            Ok(())
        })?;
        Ok(Some(zeroed))
    }

    /// Zeroes bytes within a page.
    fn zero_piece(&self, at: PmAddr, len: u64) -> Result<Flushed> {
        let mut bytes = [0; PAGE_BYTES];
        let old = bytes.get_mut(..usize::try_from(len).unwrap_or(0)).unwrap_or_default();
        self.pm.load(at, old)?;
        if old.iter().all(|byte| *byte == 0) {
            // Zeros that are seen need not be durable: a client that stored them may have died before its
            // fence, and nothing committed made recovery look at them.
            return Ok(self.pm.write_back_range(at, len, Purpose::Data));
        }
        Ok(self.pm.stream_zero(at, len, Purpose::Data))
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
                (pages + spare.pages, view.log_pages())
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
