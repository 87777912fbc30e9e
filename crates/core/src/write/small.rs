//! Small writes: the user's bytes are copied once, then all is done under the inode's lock, in the
//! single-fence form where the mount allows it. Appends are in [`crate::write::append`].
//!
//! Why a copy. No user memory is touched under a lock, and taking a lock waits for streaming stores,
//! so that stores before it would pay the way to the memory twice. And the checksum of a
//! single-fence commit must be of the bytes stored: the caller's may change while they are written.
//! Pages that the write covers whole are summed while they are copied.

use std::mem::MaybeUninit;

use novale_layout::{LINE, PAGE, PmAddr};
use novale_pm::Purpose;
use novale_policy::Method;

use crate::base::error::{Error, Result};
use crate::base::extent::pages_touched;
use crate::fs::Fs;
use crate::inode::view::View;
use crate::log::page_crc;
use crate::op::call::Call;
use crate::op::file_tx::FileTx;
use crate::op::lock::Locked;
use crate::op::pages::need;
use crate::seeded::{self, Bug};
use crate::space::Need;
use crate::write::cow::{FILE_BYTES_MAX, FoundFile};

const PAGE_BYTES: usize = 4096;
/// Longest write that goes this way, in bytes.
pub(crate) const SMALL_BYTES_MAX: usize = 8192;
/// Pages that it touches at most.
const PAGES_MAX: usize = SMALL_BYTES_MAX / PAGE_BYTES + 1;

/// Room for the copy: stores of whole lines.
#[repr(align(64))]
struct CopyBuffer([MaybeUninit<u8>; SMALL_BYTES_MAX]);

/// Where a write goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum At {
    /// To this byte.
    Offset(u64),
    /// To the end of the file, which was here lately.
    End(u64),
}

/// A write whose bytes nobody else changes any more.
struct Copied<'a> {
    offset: u64,
    data: &'a [u8],
    /// The checksums of the first pages, where they are known.
    sums: &'a [u32],
}

impl Fs {
    /// Writes up to [`SMALL_BYTES_MAX`] bytes where `at` says; returns where that was.
    pub(crate) fn write_small(
        &self,
        call: &Call<'_>,
        file: FoundFile<'_>,
        (at, method): (At, Method),
        data: &[u8],
    ) -> Result<u64> {
        let (At::Offset(expected) | At::End(expected)) = at;
        let appends = method == Method::Append;
        self.ask_for_ends(&file, expected, data.len() as u64, appends);
        let mut room = CopyBuffer([MaybeUninit::uninit(); SMALL_BYTES_MAX]);
        let mut sums = [0; PAGES_MAX];
        // An append is summed as a whole on the way, whole pages where it is pages that they will be.
        let chunk = if appends { data.len() } else { PAGE_BYTES };
        let is_summed = appends || expected % PAGE == 0;
        let len = data.len() as u64;
        let summed = if appends { len } else { pages_touched(expected, len) * PAGE };
        let is_summed = is_summed && self.is_single(summed);
        let chunks = if is_summed { data.len() / chunk } else { 0 };
        let sums = sums.get_mut(..chunks).unwrap_or_default();
        let data = novale_crc::copy(data, &mut room.0, chunk, sums);
        let Some(data) = data else { return Err(Error::TooLarge) };
        let locked = self.lock_found(call, file.ino, file.view)?;
        self.check_data(&locked.view, locked.kind)?;
        let offset = match at {
            At::Offset(offset) => offset,
            At::End(_) => locked.view.size(),
        };
        if locked.view.is_dax() {
            return self.write_in_place(call, &locked, offset, data).map(|()| offset);
        }
        if appends && offset == locked.view.size() {
            let sum = sums.first().copied();
            self.append_copied(call, &locked, (offset, data), sum)?;
            return Ok(offset);
        }
        let sums = if offset % PAGE == 0 && !appends { &*sums } else { &[] };
        self.write_copy(call, &locked, &Copied { offset, data, sums })?;
        Ok(offset)
    }

    /// Asks the memory for the pages that a write covers in part, whose bytes are needed around it; of
    /// an append for the line that it begins in.
    fn ask_for_ends(&self, file: &FoundFile<'_>, offset: u64, len: u64, appends: bool) {
        let Some(view) = file.view else { return };
        if appends {
            let addr = view.index().get(self.arena(), offset / PAGE).unwrap_or(0);
            if addr != 0 && !offset.is_multiple_of(LINE) {
                self.pm.prefetch(PmAddr::from_raw(addr).add(offset % PAGE));
            }
            return;
        }
        let end = offset.saturating_add(len);
        let head = (!offset.is_multiple_of(PAGE) || len < PAGE).then_some(offset / PAGE);
        let is_tail = !end.is_multiple_of(PAGE) && Some(end / PAGE) != head;
        let tail = is_tail.then_some(end / PAGE);
        for page in head.into_iter().chain(tail) {
            if let Ok(addr) = view.index().get(self.arena(), page)
                && addr != 0
            {
                self.pm.prefetch_range(PmAddr::from_raw(addr), PAGE);
            }
        }
    }

    fn write_copy(&self, call: &Call<'_>, locked: &Locked<'_>, copied: &Copied<'_>) -> Result<()> {
        let Copied { offset, data, .. } = *copied;
        let view = &locked.view;
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        let Some(end) = end else { return Err(Error::TooLarge) };
        let first_page = offset / PAGE;
        let pages = pages_touched(offset, data.len() as u64);
        let mut tx = FileTx::begin(self, call, locked);
        tx.take(pages, self.small_need(view, first_page, pages)?)?;
        // The stores come before all that needs no address of theirs: they are on their way meanwhile.
        let is_single = self.is_single(pages * PAGE);
        let sums = self.store_pages_of(&mut tx, copied, is_single)?;
        tx.sum(is_single);
        tx.room_to_map(first_page)?;
        tx.zero_gap_before(offset)?;
        self.commit_written(tx, first_page, end, &sums)
    }

    /// Overwrites may use the reserve: they give back as much as they take.
    pub(crate) fn small_need(&self, view: &View<'_>, first: u64, pages: u64) -> Result<Need> {
        let arena = self.arena();
        if self.allocator.is_roomy(arena)? {
            return Ok(Need::Growth);
        }
        for page in first..first + pages {
            if view.index().get(arena, page)? == 0 {
                return Ok(Need::Growth);
            }
        }
        Ok(need(true))
    }

    /// Streams all pages of a write, those at its ends filled up with the file's bytes around it;
    /// returns their checksums where asked for.
    fn store_pages_of(
        &self,
        tx: &mut FileTx<'_>,
        copied: &Copied<'_>,
        checksums: bool,
    ) -> Result<[u32; PAGES_MAX]> {
        let Copied { offset, data, sums } = *copied;
        let mut crcs = [0; PAGES_MAX];
        let mut sums = sums.iter();
        let mut rest = data;
        let mut from = usize::try_from(offset % PAGE).unwrap_or(0);
        for (index, crc) in (0..).zip(&mut crcs) {
            if rest.is_empty() {
                break;
            }
            let (piece, later) = rest.split_at(rest.len().min(PAGE_BYTES - from));
            let mut page;
            let bytes = if piece.len() == PAGE_BYTES {
                piece
            } else {
                page = [0; PAGE_BYTES];
                self.fill_page(&tx.view(), offset / PAGE + index, (from, piece), &mut page)?;
                &page[..]
            };
            let at = tx.page(index);
            let stored = if seeded::is_on(Bug::StreamTailCached) {
                seeded::stream_but_a_line(&self.pm, at, bytes, PAGE_BYTES - 64)
            } else {
                self.pm.stream(at, bytes, Purpose::Data)
            };
            tx.also(stored);
            if checksums {
                // Behind the stores: they drain meanwhile.
                *crc = sums.next().copied().unwrap_or_else(|| page_crc(bytes));
            }
            (rest, from) = (later, 0);
        }
        Ok(crcs)
    }

    /// Puts a page of zeros together: the file's bytes up to its end, `piece` from byte `from` on.
    fn fill_page(
        &self,
        view: &View<'_>,
        file_page: u64,
        (from, piece): (usize, &[u8]),
        page: &mut [u8; PAGE_BYTES],
    ) -> Result<()> {
        self.load_page(view, file_page, page)?;
        if let Some(place) = page.get_mut(from..from + piece.len()) {
            place.copy_from_slice(piece);
        }
        Ok(())
    }
}
