//! What a commit line's data checksum covers (docs/SPEC.md, "Data checksum"): the new entries, and of
//! the data either the pages that they map, or the bytes at the end of the file, whatever entry maps
//! them, so that an append can store beyond the end in place without an entry of its own.

use std::ops::Range;

use arrayvec::ArrayVec;
use novale_layout::{Attributes, CommitLine, DataCrc, Ino, PAGE, Pair, PmAddr, Seed};
use novale_pm::Pm;

use crate::base::error::{Error, Result};
use crate::base::extent::Extent;
use crate::base::lines::{places, set_runs};
use crate::inode::state::{LogId, State};
use crate::inode::view::View;
use crate::log::Logged;
use crate::log::coverage::Mapping;
use crate::log::redo::RedoFrom;
use crate::log::replay::{Fold, NameSaid, replay};
use crate::seeded::Bug;
use crate::{log, seeded};

const PAGE_BYTES: usize = 4096;
/// Pages in which the end that a line covers lies, at most.
const END_PAGES_MAX: usize = (CommitLine::END_BYTES_MAX / PAGE) as usize + 2;

impl View<'_> {
    /// Whether recovery may look at bytes of the file, or change them, as the newest operation has left
    /// them: its line has a data checksum, or its entries are to be redone. Then a certificate comes
    /// before they change in place.
    pub(crate) fn is_summed(&self) -> bool {
        self.line_flags() & (CommitLine::HAS_DATA_CRC | State::REDO) != 0
    }

    /// Whether it may be of whole pages: also of what lies in them beyond the end of the file. It is not where
    /// an operation of this session is known to have summed none.
    pub(crate) fn sums_pages(&self) -> bool {
        self.line_flags() == CommitLine::HAS_DATA_CRC
    }
}

/// The checksum of all that a line covers.
pub(crate) fn covered_crc(pm: &Pm, id: &LogId, line: &CommitLine) -> Result<u32> {
    let mut summing = Summing {
        pm,
        op_seq: line.op_seq,
        crc: DataCrc::new(id.seed, line.op_seq),
        end: CoveredEnd::of(line),
        ino: id.ino,
        pages: 0,
        sums_data: !seeded::is_on(Bug::DataNotSummed),
    };
    replay(pm, id, None, line, &mut summing)?;
    let Summing { mut crc, end, sums_data, .. } = summing;
    if let Some(end) = end.filter(|_| sums_data) {
        crc.crc(end.crc(pm, id)?);
    }
    Ok(crc.finish())
}

/// Sums what a line covers.
struct Summing<'a> {
    pm: &'a Pm,
    op_seq: u64,
    crc: DataCrc,
    end: Option<CoveredEnd>,
    ino: Ino,
    /// Pages that were covered so far.
    pages: u64,
    sums_data: bool,
}

impl Summing<'_> {
    /// Covers pages as well, where a line may cover so many.
    fn count(&mut self, at: &Logged<'_>, pages: u64) -> Result<()> {
        self.pages = self.pages.saturating_add(pages);
        if self.pages > CommitLine::SUMMED_PAGES_MAX {
            let found = format!("its data checksum covers {} pages and more", self.pages);
            return Err(Error::damaged_inode(self.ino, "log", at.addr, found));
        }
        Ok(())
    }
}

impl Fold for Summing<'_> {
    fn entry(&mut self, at: &Logged<'_>) -> Result<()> {
        if at.header.op_seq == self.op_seq {
            log::cover_entry(&mut self.crc, at.opens, at.bytes);
        }
        Ok(())
    }

    fn map(&mut self, at: &Logged<'_>, first: u64, extent: Extent) -> Result<()> {
        match &mut self.end {
            Some(end) => end.note(&Mapping::of(first, extent)),
            None if at.header.op_seq == self.op_seq && self.sums_data => {
                self.count(at, extent.pages)?;
                cover_pages(self.pm, &mut self.crc, extent)?;
            }
            None => {}
        }
        Ok(())
    }

    fn unmap(&mut self, _at: &Logged<'_>, pages: Range<u64>) -> Result<()> {
        if let Some(end) = &mut self.end {
            end.note(&Mapping::hole(pages));
        }
        Ok(())
    }

    fn pair(&mut self, at: &Logged<'_>, pair: &Pair) -> Result<()> {
        if at.header.op_seq == self.op_seq && self.sums_data {
            self.count(at, 1)?;
            self.crc.crc(changed_crc(self.pm, pair)?);
        }
        Ok(())
    }

    fn attributes(&mut self, _at: &Logged<'_>, _attributes: &Attributes) -> Result<()> {
        Ok(())
    }

    fn redo(&mut self, _at: &Logged<'_>, _from: RedoFrom<'_>) -> Result<()> {
        Ok(())
    }

    fn name(&mut self, _at: &Logged<'_>, _name: &NameSaid<'_>) -> Result<()> {
        Ok(())
    }

    fn unname(&mut self, _at: &Logged<'_>, _cookie: u64) -> Result<()> {
        Ok(())
    }
}

/// Adds the pages that a write maps: the checksum of each.
fn cover_pages(pm: &Pm, crc: &mut DataCrc, extent: Extent) -> Result<()> {
    let mut page = [0; PAGE_BYTES];
    for index in 0..extent.pages {
        pm.load(extent.addr.add(index * PAGE), &mut page)?;
        crc.crc(log::page_crc(&page));
    }
    Ok(())
}

/// Where the lines lie that a pair entry's operation stored, in order, and how many bytes.
pub(crate) fn changed_lines(pair: &Pair) -> impl Iterator<Item = (PmAddr, u64)> {
    let Pair { home, partner, word, changed, .. } = *pair;
    let runs = set_runs(changed).flat_map(move |bytes| places(home, partner, word, bytes));
    runs.map(|(at, bytes)| (at, bytes.end - bytes.start))
}

/// Their checksum, without a seed.
fn changed_crc(pm: &Pm, pair: &Pair) -> Result<u32> {
    let (mut sum, mut page) = (0, [0; PAGE_BYTES]);
    for (at, len) in changed_lines(pair) {
        let len = usize::try_from(len).unwrap_or(0);
        let bytes = page.get_mut(..len).unwrap_or_default();
        pm.load(at, bytes)?;
        sum = novale_crc::append(sum, bytes);
    }
    Ok(sum)
}

/// The bytes at the end of a file that its line's data checksum covers, and where they lie: what the
/// log's entries say one after the other.
#[derive(Debug)]
pub(crate) struct CoveredEnd {
    bytes: Range<u64>,
    pages: ArrayVec<PmAddr, END_PAGES_MAX>,
}

impl CoveredEnd {
    /// Of a line whose checksum covers such; before any entry of the log was noted.
    pub(crate) fn of(line: &CommitLine) -> Option<Self> {
        let bytes = line.summed_end()?;
        let pages = bytes.start / PAGE..bytes.end.div_ceil(PAGE);
        Some(Self { pages: pages.take(END_PAGES_MAX).map(|_| PmAddr::NULL).collect(), bytes })
    }

    /// Takes in what the log's next entry says of where pages lie.
    pub(crate) fn note(&mut self, mapping: &Mapping) {
        for (page, place) in (self.bytes.start / PAGE..).zip(&mut self.pages) {
            if (mapping.first..mapping.end).contains(&page) {
                let step = (page - mapping.first) * PAGE;
                *place = if mapping.addr.is_null() { PmAddr::NULL } else { mapping.addr.add(step) };
            }
        }
    }

    /// Where the bytes lie, one after the other; null for those in a hole.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (PmAddr, u64)> {
        (self.bytes.start / PAGE..).zip(&self.pages).map(|(page, addr)| {
            let from = self.bytes.start.max(page * PAGE);
            let to = self.bytes.end.min((page + 1) * PAGE);
            let at = if addr.is_null() { *addr } else { addr.add(from - page * PAGE) };
            (at, to - from)
        })
    }

    /// Their checksum, without a seed.
    fn crc(&self, pm: &Pm, id: &LogId) -> Result<u32> {
        let (mut sum, mut page) = (0, [0; PAGE_BYTES]);
        for (at, len) in self.pieces() {
            if at.is_null() {
                let found = "the end of the file, which its data checksum covers, is a hole";
                return Err(Error::damaged_inode(id.ino, "log", at, found));
            }
            let len = usize::try_from(len).unwrap_or(0);
            let bytes = page.get_mut(..len).unwrap_or_default();
            pm.load(at, bytes)?;
            sum = novale_crc::append(sum, bytes);
        }
        Ok(sum)
    }
}

/// The record's checksum over all that its lines cover (docs/SPEC.md, "Data checksum").
pub(crate) fn record_crc<'a>(
    pool: Seed,
    lines: impl Iterator<Item = (Ino, u64, u32)>,
    identities: impl Iterator<Item = &'a [u8; 64]>,
) -> u32 {
    let mut crc = DataCrc::record(pool);
    for (ino, op_seq, entries_crc) in lines {
        crc.line(ino, op_seq);
        crc.crc(entries_crc);
    }
    for identity in identities {
        crc.bytes(identity);
    }
    crc.finish()
}

/// The checksum of a line that has no new entries. The seed is that of the inode's log; for a line
/// that ends the inode the one without a generation, since the next use of the number may have
/// stored its identity line when the record is judged.
pub(crate) fn no_entries_crc(seed: Seed, op_seq: u64) -> u32 {
    DataCrc::new(seed, op_seq).finish()
}
