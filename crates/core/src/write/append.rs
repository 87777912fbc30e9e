//! Small appends: in place as far as the file's last page goes, in new pages beyond; one commit of the
//! size makes both the file's (docs/DESIGN.md, "Appends in place").
//!
//! Crash points. What lies beyond the end of the file is nobody's: a crash before the commit line
//! leaves bytes there that no read returns, in a new last page is what the memory held before, and a
//! client that raises the end over them later zeroes them first. Single-fence form: the line counts only
//! with the bytes from the old end to the new one as its checksum says. No checksum that recovery may
//! still ask for covers them before: where the line that stands has summed pages whole, the page is
//! copied instead, and from then on it has not. So is a last page in which a write begins elsewhere.

use novale_layout::{CommitLine, DataCrc, PAGE, PmAddr, RoFeature};
use novale_pm::{Flushed, Purpose};

use crate::base::error::Result;
use crate::base::types::Ctx;
use crate::fs::Fs;
use crate::inode::view::View;
use crate::op::call::Call;
use crate::op::commit::Rest;
use crate::op::file_tx::FileTx;
use crate::op::lock::Locked;
use crate::seeded::{self, Bug};
use crate::write::plan::WritePlan;
use crate::write::small::SMALL_BYTES_MAX;

const PAGE_BYTES: usize = 4096;
const LINE_BYTES: usize = 64;
/// Bytes of the unit in which what is covered begins.
const UNIT: usize = 8;

/// Bytes that go beyond the end of a file, or from the start of its last page on, which is copied.
struct Append<'a> {
    offset: u64,
    end: u64,
    data: &'a [u8],
    /// The page in which they begin, where that stays.
    page: Option<PmAddr>,
    /// Their checksum, where it is known.
    sum: Option<u32>,
    /// Whether the commit takes the single-fence form.
    single: bool,
}

/// The bytes of an append that go into the page in which the file ends, and where.
#[derive(Clone, Copy)]
struct Inside<'a> {
    at: PmAddr,
    bytes: &'a [u8],
}

fn in_page(offset: u64) -> usize {
    usize::try_from(offset % PAGE).unwrap_or(0)
}

impl Fs {
    /// Has the superblock say that data checksums may be of the end of a file, before a write of so
    /// many bytes that may be an append: it has no lock yet.
    #[inline]
    pub(crate) fn may_append(&self, ctx: &Ctx, len: usize) -> Result<()> {
        if len == 0 || len > SMALL_BYTES_MAX || !self.is_single(len as u64) {
            return Ok(());
        }
        self.use_feature(ctx, RoFeature::Appends)
    }

    /// Appends bytes that nobody else changes any more, or writes them beyond the end from elsewhere in the
    /// last page on; `sum` is their checksum, where it is known.
    pub(crate) fn write_append(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        plan: &WritePlan,
        data: &[u8],
        sum: Option<u32>,
    ) -> Result<()> {
        let view = &locked.view;
        let WritePlan { offset, end, is_single: single, .. } = *plan;
        let from = in_page(offset);
        let page = if from == 0 || offset != view.size() { None } else { self.page_of_end(view)? };
        if from == 0 || page.is_some() {
            let append = Append { offset, end, data, page, sum, single };
            return self.store_append(call, locked, &append);
        }
        let mut whole = vec![0; from + data.len()];
        let (old, new) = whole.split_at_mut(from);
        let offset = offset - from as u64;
        self.copy_out(view, offset, old)?;
        new.copy_from_slice(data);
        let append = Append { offset, end, data: &whole, page: None, sum: None, single };
        self.store_append(call, locked, &append)
    }

    /// The page in which a file ends, where bytes beyond the end may change; none where it is a hole,
    /// has two copies, or the standing checksum covers them.
    pub(crate) fn page_of_end(&self, view: &View<'_>) -> Result<Option<PmAddr>> {
        let is_summed = view.sums_pages() && !seeded::is_on(Bug::AppendOverSummed);
        let page = view.size() / PAGE;
        match self.page_addr(view, page)? {
            // With two copies the end of the file may be in either, and it is copied into one.
            Some(addr) if !is_summed && view.pair(self.arena(), page)?.is_none() => {
                self.checked(addr).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn store_append(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        append: &Append<'_>,
    ) -> Result<()> {
        let Append { offset, end, data, page, .. } = *append;
        let view = &locked.view;
        let from = in_page(offset);
        let room = if page.is_some() { PAGE_BYTES - from } else { 0 };
        let (inside, beyond) = data.split_at(data.len().min(room));
        let first_page = offset.div_ceil(PAGE);
        let sum = if append.single { Some(self.end_sum(append)?) } else { None };
        let inside = page.map(|page| Inside { at: page.add(from as u64), bytes: inside });
        if let Some(inside) = inside
            && beyond.is_empty()
            && self.without_capability(locked)?.is_none()
        {
            return self.append_inside(call, locked, inside, end, sum);
        }
        let mut tx = FileTx::begin(self, call, locked);
        if !beyond.is_empty() {
            let pages = beyond.len().div_ceil(PAGE_BYTES) as u64;
            tx.take(pages, self.need_of(view, first_page, pages)?)?;
        }
        // The stores come before all that needs no address of theirs: they are on their way meanwhile.
        self.store_beyond(&mut tx, beyond);
        if let Some(inside) = inside {
            tx.also(self.store_inside(inside));
        }
        tx.sum(append.single);
        tx.room_to_map(first_page)?;
        if let Some((crc, flags)) = sum {
            tx.cover_end(crc, flags);
        }
        self.commit_written(&mut tx, first_page, end, &[])
    }

    /// Appends where the file's last page has room for all of it: nothing but the size says so, and
    /// nothing is taken that could have to go back.
    fn append_inside(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        inside: Inside<'_>,
        end: u64,
        sum: Option<(u32, u16)>,
    ) -> Result<()> {
        let pending = self.store_inside(inside);
        let mut next = locked.next_state();
        (next.size, next.mtime_ns, next.ctime_ns) = (end, call.now_ns, call.now_ns);
        let rest = if let Some((crc, flags)) = sum {
            next.flags = flags;
            let mut covered = DataCrc::new(locked.id.seed, next.op_seq);
            if !seeded::is_on(Bug::DataNotSummed) {
                covered.crc(crc);
            }
            Rest::Checksummed(pending, covered.finish())
        } else {
            Rest::Pending(pending)
        };
        self.commit(call, locked, &mut next, rest, || Ok(()))
    }

    /// Streams what goes beyond the end in place.
    fn store_inside(&self, inside: Inside<'_>) -> Flushed {
        let Inside { at, bytes } = inside;
        if seeded::is_on(Bug::AppendNotFlushed) {
            return seeded::stream_but_a_line(&self.pm, at, bytes, 0);
        }
        self.pm.stream(at, bytes, Purpose::Data)
    }

    /// Streams what goes to new pages: of the last one the lines up to the end of the file, and what lies
    /// after them is nobody's. A file whose own pages are mapped is not written here.
    fn store_beyond(&self, tx: &mut FileTx<'_>, beyond: &[u8]) {
        for (index, piece) in (0..).zip(beyond.chunks(PAGE_BYTES)) {
            let at = tx.page(index);
            let (lines, rest) = piece.split_at(piece.len() / LINE_BYTES * LINE_BYTES);
            let mut last = [0; LINE_BYTES];
            for (place, byte) in last.iter_mut().zip(rest) {
                *place = *byte;
            }
            let end = if rest.is_empty() { &[] } else { &last[..] };
            let parts = [(at, lines), (at.add(lines.len() as u64), end)];
            for (at, bytes) in parts.into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
                tx.also(if seeded::is_on(Bug::StreamTailCached) {
                    seeded::stream_but_a_line(&self.pm, at, bytes, bytes.len() - LINE_BYTES)
                } else {
                    self.pm.stream(at, bytes, Purpose::Data)
                });
            }
        }
    }

    /// The checksum of an append, with what the unit in which it begins has before it, and the flags of
    /// the line that say from where on.
    fn end_sum(&self, append: &Append<'_>) -> Result<(u32, u16)> {
        let Append { offset, end, data, page, sum, .. } = *append;
        let (flags, start) = CommitLine::end_flags(offset, end);
        let before = usize::try_from(offset - start).unwrap_or(0);
        let crc = match (page, sum) {
            (Some(page), _) if before > 0 => {
                let mut unit = [0; UNIT];
                let bytes = unit.get_mut(..before).unwrap_or_default();
                self.pm.load(page.add(start % PAGE), bytes)?;
                novale_crc::append(novale_crc::append(0, bytes), data)
            }
            (_, Some(sum)) => sum,
            (_, None) => novale_crc::append(0, data),
        };
        Ok((crc, flags))
    }
}

#[cfg(test)]
mod tests {
    use novale_layout::Ino;

    use super::*;
    use crate::base::exec::Serial;
    use crate::base::types::{Fallocate, Node, SetAttr};
    use crate::fixture::{CTX, open, with_file};
    use crate::write::range::copy::Place;
    use crate::write::range::scattered::Piece;

    fn contents(fs: &Fs, ino: Ino) -> Vec<u8> {
        let size = usize::try_from(fs.getattr(ino).unwrap().size).unwrap();
        let mut bytes = vec![1; size];
        assert_eq!(fs.read(&CTX, ino, 0, &mut bytes).unwrap(), size);
        bytes
    }

    fn page(fs: &Fs, ino: Ino, page: u64) -> PmAddr {
        let view = fs.views.find(fs.arena(), ino).unwrap().unwrap();
        PmAddr::from_raw(view.index().get(fs.arena(), page).unwrap())
    }

    /// Stores beyond the end of the file, as an append whose commit line did not arrive.
    fn leave_behind(fs: &Fs, ino: Ino) {
        let len = fs.getattr(ino).unwrap().size % PAGE;
        let at = page(fs, ino, 0).add(len);
        let left = vec![0xee; PAGE_BYTES - in_page(len)];
        fs.pm.fence(fs.pm.stream(at, &left, Purpose::Data)).end();
    }

    /// The line of a change of attributes has a checksum, of an entry alone, and was taken for one of pages.
    #[test]
    fn an_append_after_a_change_of_attributes_goes_to_the_page_that_is_there() {
        let (fs, ino) = with_file();
        let mode = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
        let chmod = |to| fs.setattr(&CTX, Node::current(ino), &mode(to)).map(drop).unwrap();
        fs.append(&CTX, ino, &[1; 100]).unwrap();
        let first = page(&fs, ino, 0);
        chmod(0o600);
        fs.append(&CTX, ino, &[2; 100]).unwrap();
        assert_eq!(page(&fs, ino, 0), first);
        assert_eq!(contents(&fs, ino), [[1; 100], [2; 100]].concat());
    }

    #[test]
    fn what_an_append_left_behind_is_shown_by_nothing_that_raises_the_end() {
        type Try = fn(&Fs, Ino);
        let tries: [Try; 12] = [
            |fs, ino| {
                let size = Some(9000);
                fs.setattr(&CTX, Node::current(ino), &SetAttr { size, ..SetAttr::default() })
                    .unwrap();
            },
            |fs, ino| assert_eq!(fs.write(&CTX, ino, 200, &[2; 10]).unwrap(), 10),
            |fs, ino| assert_eq!(fs.write(&CTX, ino, 5000, &[2; 10]).unwrap(), 10),
            |fs, ino| assert_eq!(fs.write(&CTX, ino, 200, &[2; 9000]).unwrap(), 9000),
            |fs, ino| assert_eq!(fs.write(&CTX, ino, 5000, &[2; 9000]).unwrap(), 9000),
            |fs, ino| fs.fallocate(&CTX, ino, Fallocate::Extend, 0, 9000).unwrap(),
            |fs, ino| fs.fallocate(&CTX, ino, Fallocate::ZeroRange, 50, 3000).unwrap(),
            |fs, ino| fs.fallocate(&CTX, ino, Fallocate::ZeroRange, 5000, 3000).unwrap(),
            |fs, ino| {
                let place = |offset| Place { ino, offset };
                assert_eq!(fs.copy_range(&CTX, place(0), place(300), 50).unwrap(), 50);
            },
            |fs, ino| {
                let place = |offset| Place { ino, offset };
                assert_eq!(fs.copy_range(&CTX, place(0), place(6000), 50).unwrap(), 50);
            },
            |fs, ino| {
                fs.write_scattered(&CTX, ino, &[Piece { offset: 9000, bytes: &[2; 50] }]).unwrap();
            },
            |fs, ino| fs.fallocate(&CTX, ino, Fallocate::InsertRange, 0, 4096).unwrap(),
        ];
        for (index, attempt) in tries.into_iter().enumerate() {
            let (fs, ino) = with_file();
            fs.append(&CTX, ino, &[2; 100]).unwrap();
            leave_behind(&fs, ino);
            attempt(&fs, ino);
            let size = Some(fs.getattr(ino).unwrap().size + 5000);
            fs.setattr(&CTX, Node::current(ino), &SetAttr { size, ..SetAttr::default() }).unwrap();
            assert!(contents(&fs, ino).iter().all(|byte| *byte != 0xee), "{index}");
            fs.close().unwrap();
            let found = crate::check(&fs.into_pm(), &Serial, &|_| {}).unwrap().findings;
            assert!(found.is_empty(), "{index}: {found:?}");
        }
    }

    #[test]
    fn a_mapping_shows_zeros_where_an_append_left_bytes_behind() {
        let (fs, ino) = with_file();
        fs.append(&CTX, ino, &[2; 100]).unwrap();
        leave_behind(&fs, ino);
        let generation = fs.getattr(ino).unwrap().generation;
        let hold = fs.map_hold(&CTX, ino, generation).unwrap().unwrap();
        let [run] = fs.map_pages(&CTX, hold, 0, 1).unwrap()[..] else { panic!("one page") };
        let mut shown = [1; PAGE_BYTES];
        fs.pm.load(run.addr, &mut shown).unwrap();
        assert_eq!(shown[..100], [2; 100]);
        assert_eq!(shown[100..], [0; PAGE_BYTES - 100]);
    }

    /// Where appends begin, and how much they are, around all borders; the pages that were there stay,
    /// and a power cut keeps all of it.
    #[test]
    fn pages_stay_where_they_are_and_recovery_believes_each_append() {
        for start in [1, 7, 8, 63, 64, 100, 4088, 4095] {
            for len in [1, 7, 8, 9, 64, 500, 4000, 4096, 5000, SMALL_BYTES_MAX] {
                let (fs, ino) = with_file();
                fs.append(&CTX, ino, &vec![1; start]).unwrap();
                let first = page(&fs, ino, 0);
                fs.append(&CTX, ino, &vec![2; len]).unwrap();
                assert_eq!(page(&fs, ino, 0), first, "{start} {len}");
                let expected = [vec![1; start], vec![2; len]].concat();
                assert_eq!(contents(&fs, ino), expected, "{start} {len}");
                // As a power cut after it: the checksum is asked for.
                let fs = open(fs.into_pm());
                assert_eq!(fs.opened().lines_rejected, 0, "{start} {len}");
                assert_eq!(contents(&fs, ino), expected, "{start} {len}");
                fs.close().unwrap();
                let found = crate::check(&fs.into_pm(), &Serial, &|_| {}).unwrap().findings;
                assert!(found.is_empty(), "{start} {len}: {found:?}");
            }
        }
    }

    #[test]
    fn a_page_that_a_checksum_covers_whole_is_copied_once() {
        let (fs, ino) = with_file();
        fs.append(&CTX, ino, &[1; 300]).unwrap();
        fs.write(&CTX, ino, 10, &[2; 10]).unwrap();
        let overwritten = page(&fs, ino, 0);
        fs.append(&CTX, ino, &[3; 300]).unwrap();
        let copied = page(&fs, ino, 0);
        assert_ne!(copied, overwritten);
        fs.append(&CTX, ino, &[4; 300]).unwrap();
        assert_eq!(page(&fs, ino, 0), copied);
        let expected = [&[1; 10][..], &[2; 10], &[1; 280], &[3; 300], &[4; 300]].concat();
        let fs = open(fs.into_pm());
        assert_eq!(fs.opened().lines_rejected, 0);
        assert_eq!(contents(&fs, ino), expected);
    }

    /// Of the last bytes one did not arrive: the append is not there, and the one before is.
    #[test]
    fn an_append_of_which_a_byte_is_missing_is_not_there() {
        for (start, len, missing) in [(100, 64, 100), (100, 64, 163), (4090, 5000, 5000)] {
            let (fs, ino) = with_file();
            fs.append(&CTX, ino, &vec![1; start]).unwrap();
            fs.append(&CTX, ino, &vec![2; len]).unwrap();
            let at = page(&fs, ino, missing / PAGE).add(missing % PAGE);
            fs.pm.fence(fs.pm.stream(at, &[9], Purpose::Data)).end();
            let fs = open(fs.into_pm());
            assert_eq!(fs.opened().lines_rejected, 1);
            assert_eq!(contents(&fs, ino), vec![1; start]);
        }
    }
}
