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
use crate::fs::Fs;
use crate::inode::view::View;
use crate::log::page_crc;
use crate::op::call::Call;
use crate::op::file_tx::FileTx;
use crate::op::lock::Locked;
use crate::seeded::{self, Bug};
use crate::write::plan::{At, FoundFile, WriteBytes, WritePlan};

const PAGE_BYTES: usize = 4096;
/// Longest write that goes this way, in bytes.
pub(crate) const SMALL_BYTES_MAX: usize = 8192;
/// Pages that it touches at most.
pub(crate) const PAGES_MAX: usize = SMALL_BYTES_MAX / PAGE_BYTES + 1;

/// Room for the copy: stores of whole lines.
#[repr(align(64))]
struct CopyBuffer([MaybeUninit<u8>; SMALL_BYTES_MAX]);

/// A write whose bytes nobody else changes any more.
struct Copied<'a> {
    data: &'a [u8],
    /// The checksums of the first pages, where they are known.
    sums: &'a [u32],
}

impl Fs {
    /// Writes up to [`SMALL_BYTES_MAX`] bytes where `at` says; returns where that was. `expected` is how
    /// it would have been made before the file was locked.
    pub(crate) fn write_small(
        &self,
        call: &Call<'_>,
        file: FoundFile<'_>,
        at: At,
        expected: &WritePlan,
        written: &WriteBytes<'_>,
    ) -> Result<u64> {
        let data = written.data;
        self.ask_for_ends(&file, expected);
        let mut room = CopyBuffer([MaybeUninit::uninit(); SMALL_BYTES_MAX]);
        let mut sums = [0; PAGES_MAX];
        // An append is summed as a whole on the way, whole pages where it is pages that they will be.
        let (chunk, is_summed) = match expected.method {
            Method::Append => (data.len(), expected.is_single),
            Method::CopyOnWrite => {
                (PAGE_BYTES, expected.is_single && expected.offset.is_multiple_of(PAGE))
            }
            Method::InPlace
            | Method::FineLog
            | Method::Paired
            | Method::Lawn
            | Method::Undo
            | Method::Source => (data.len(), false),
        };
        let chunks = if is_summed { data.len() / chunk } else { 0 };
        let sums = sums.get_mut(..chunks).unwrap_or_default();
        let data = novale_crc::copy(data, &mut room.0, chunk, sums);
        let Some(data) = data else { return Err(Error::TooLarge) };
        let locked = self.lock_found(call, file.ino, file.view)?;
        self.check_data(&locked.view, locked.kind)?;
        self.flush(call, &locked)?;
        let changed = self.plan_again(&locked.view, at, expected)?;
        let plan = changed.as_ref().unwrap_or(expected);
        // Of a write that is made otherwise what was summed is of no use, but of an append elsewhere.
        let is_of_use =
            changed.is_none() || (plan.method, expected.method) == (Method::Append, Method::Append);
        let sums = if is_of_use { &*sums } else { &[] };
        let mut made = plan.method;
        match plan.method {
            Method::CopyOnWrite => self.write_copy(call, &locked, plan, &Copied { data, sums })?,
            Method::Append => {
                self.write_append(call, &locked, plan, data, sums.first().copied())?;
            }
            Method::InPlace => self.write_in_place(call, &locked, plan.offset, data)?,
            Method::FineLog => self.write_fine_log(call, &locked, plan, data)?,
            Method::Paired | Method::Lawn => {
                made = self.write_paired(call, &locked, plan, data)?;
            }
            Method::Undo => made = self.write_undo(call, &locked, plan, data)?,
            Method::Source => {
                let copied = WriteBytes { data, ..*written };
                made = self.write_from_source(call, &locked, plan, &copied)?;
            }
        }
        self.count_written(made.into(), data.len() as u64);
        Ok(plan.offset)
    }

    /// Asks the memory for the pages that a write covers in part, whose bytes are needed around it; of
    /// an append, and of a write to paired pages, for the lines that it begins or ends in, and for what
    /// is known of the pairs.
    fn ask_for_ends(&self, file: &FoundFile<'_>, plan: &WritePlan) {
        let Some(view) = file.view else { return };
        let WritePlan { offset, end, .. } = *plan;
        let has_lines = matches!(plan.method, Method::Paired | Method::Lawn);
        if view.has_pairs() && plan.method != Method::Append {
            for page in plan.first_page()..plan.first_page() + plan.pages() {
                view.ask_for_pair(self.arena().known(), page);
            }
        }
        if has_lines || plan.method == Method::Append {
            let ends = [offset, if has_lines { end } else { 0 }];
            for at in ends.into_iter().filter(|at| !at.is_multiple_of(LINE)) {
                let addr = view.index().get(self.arena(), at / PAGE).unwrap_or(0);
                // Found without the lock: it may be any word.
                if addr != 0
                    && let Some(at) = PmAddr::from_raw(addr).checked_add(at % PAGE)
                {
                    self.pm.prefetch(at);
                }
            }
            return;
        }
        let head = (!offset.is_multiple_of(PAGE) || end - offset < PAGE).then_some(offset / PAGE);
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

    /// Copies the pages of a write that was to be made otherwise; says so.
    #[cold]
    pub(crate) fn write_copied(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        plan: &WritePlan,
        data: &[u8],
    ) -> Result<Method> {
        self.write_copy(call, locked, &self.as_copy(plan)?, &Copied { data, sums: &[] })?;
        Ok(Method::CopyOnWrite)
    }

    fn write_copy(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        plan: &WritePlan,
        copied: &Copied<'_>,
    ) -> Result<()> {
        let (first_page, pages) = (plan.first_page(), plan.pages());
        let mut tx = FileTx::begin(self, call, locked);
        tx.take(pages, self.need_of(&locked.view, first_page, pages)?)?;
        // The stores come before all that needs no address of theirs: they are on their way meanwhile.
        let sums = self.store_pages_of(&mut tx, plan, copied)?;
        tx.sum(plan.is_single);
        tx.room_to_map(first_page)?;
        tx.zero_gap_before(plan.offset)?;
        self.commit_written(&mut tx, first_page, plan.end, &sums)
    }

    /// Streams all pages of a write, those at its ends filled up with the file's bytes around it;
    /// returns their checksums where asked for.
    fn store_pages_of(
        &self,
        tx: &mut FileTx<'_>,
        plan: &WritePlan,
        copied: &Copied<'_>,
    ) -> Result<[u32; PAGES_MAX]> {
        let Copied { data, sums } = *copied;
        let mut crcs = [0; PAGES_MAX];
        let mut sums = sums.iter();
        let mut rest = data;
        let mut from = usize::try_from(plan.offset % PAGE).unwrap_or(0);
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
                self.fill_page(&tx.view(), plan.first_page() + index, from, piece, &mut page)?;
                &page[..]
            };
            let at = tx.page(index);
            let stored = if seeded::is_on(Bug::StreamTailCached) {
                seeded::stream_but_a_line(&self.pm, at, bytes, PAGE_BYTES - 64)
            } else {
                self.pm.stream(at, bytes, Purpose::Data)
            };
            tx.also(stored);
            if plan.is_single {
                // After the stores: they drain meanwhile.
                *crc = sums.next().copied().unwrap_or_else(|| page_crc(bytes));
            }
            (rest, from) = (later, 0);
        }
        Ok(crcs)
    }

    /// Puts a page of zeros together: the file's bytes up to its end, `piece` from byte `from` on.
    pub(crate) fn fill_page(
        &self,
        view: &View<'_>,
        file_page: u64,
        from: usize,
        piece: &[u8],
        page: &mut [u8; PAGE_BYTES],
    ) -> Result<()> {
        self.load_page(view, file_page, page)?;
        if let Some(place) = page.get_mut(from..from + piece.len()) {
            place.copy_from_slice(piece);
        }
        Ok(())
    }
}
