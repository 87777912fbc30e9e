//! Taking pairs apart: pages with two copies are copied into one, by a commit that changes nothing else;
//! lines that lie in slots are stored to their pages.
//!
//! What moves pages, or shows them to a mapping, knows of one copy alone and calls this first. So does
//! who needs the room, and who drops a view or closes the pool: in a pool that is in use, pairs are of
//! files whose views are loaded, and of those that a crash left.

use std::ops::Range;
use std::sync::atomic::Ordering;

use novale_layout::{FileKind, Ino, PmAddr};

use crate::base::error::{Error, Result};
use crate::base::extent::{Extent, Extents};
use crate::base::types::Ctx;
use crate::fs::Fs;
use crate::inode::pairs::pair_count;
use crate::log::FILE_PAGES_MAX;
use crate::op::call::{Call, OpKind};
use crate::op::file_tx::FileTx;
use crate::op::lock::Locked;
use crate::space::Need;

const PAGE_BYTES: usize = 4096;
/// Pages that one commit copies at most.
const PAGES_A_COMMIT: usize = 64;

impl Fs {
    /// Copies the pages of a range that have two copies.
    pub(crate) fn unpair(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        pages: Range<u64>,
    ) -> Result<()> {
        let mut most = PAGES_A_COMMIT;
        while locked.view.has_pairs() {
            let (mut paired, mut from) = (Vec::new(), pages.start);
            while paired.len() < most
                && let Some(page) = locked.view.next_pair(self.arena(), from)?
                && page < pages.end
            {
                paired.push(page);
                from = page + 1;
            }
            if paired.is_empty() {
                return Ok(());
            }
            match self.unpair_some(call, locked, &paired) {
                // A copy of one page gives two back.
                Err(Error::NoSpace) if most > 1 => most /= 2,
                unpaired => unpaired?,
            }
        }
        Ok(())
    }

    /// Copies all pages of a file that have two copies.
    pub(crate) fn unpair_all(&self, call: &Call<'_>, locked: &Locked<'_>) -> Result<()> {
        self.unpair(call, locked, 0..FILE_PAGES_MAX)
    }

    /// Takes the pairs of some pages apart.
    fn unpair_some(&self, call: &Call<'_>, locked: &Locked<'_>, pages: &[u64]) -> Result<()> {
        let (mut copied, mut in_slots) = (Vec::new(), Vec::new());
        for page in pages {
            match locked.view.pair(self.arena(), *page)? {
                Some(pair) if pair.partner.is_shared() => in_slots.push((*page, pair)),
                Some(_) => copied.push(*page),
                None => {}
            }
        }
        if !in_slots.is_empty() {
            self.store_back(call, locked, &in_slots)?;
        }
        if copied.is_empty() { Ok(()) } else { self.copy_pairs(call, locked, &copied) }
    }

    /// Crash points: the copies and their entries lie after the log's tail until the line counts. It has
    /// no data checksum: the form is the two-fence one.
    fn copy_pairs(&self, call: &Call<'_>, locked: &Locked<'_>, pages: &[u64]) -> Result<()> {
        let view = &locked.view;
        let mut tx = FileTx::begin(self, call, locked);
        tx.take(pages.len() as u64, Need::Release)?;
        let mut bytes = Box::new([0; PAGE_BYTES]);
        for (index, page) in (0..).zip(pages) {
            bytes.fill(0);
            self.load_page(view, *page, &mut bytes[..])?;
            tx.stream(tx.page(index), &bytes[..]);
        }
        tx.room(pages.len(), Need::Release)?;
        let copies: Vec<PmAddr> = (0..pages.len() as u64).map(|index| tx.page(index)).collect();
        for (page, addr) in pages.iter().zip(&copies) {
            tx.map(*page, Extent { addr: *addr, pages: 1 }, &[]);
        }
        tx.commit(|_, freed| {
            pages.iter().zip(&copies).try_for_each(|(page, addr)| {
                let mut copy = Extents::default();
                copy.push_page(*addr);
                self.map_extents(view, *page, &copy, freed)
            })
        })
    }

    /// Copies the pages of a file that have two copies, if it still has any. Where there is no room for
    /// a copy they stay.
    pub(crate) fn unpair_file(&self, hint: u32, ino: Ino) -> Result<()> {
        let call = self.call(OpKind::Write, &Ctx { now_ns: 0, hint });
        let unpaired = self.lock(&call, ino).and_then(|locked| self.unpair_all(&call, &locked));
        match unpaired {
            // Removed meanwhile, with its pairs.
            Err(Error::NoSpace | Error::NotFound | Error::Stale) => Ok(()),
            unpaired => unpaired,
        }
    }

    /// Takes all pairs apart, in the name of a client that finds no room and has no lock; says whether
    /// any went.
    pub(crate) fn unpair_for_room(&self) -> bool {
        let before = pair_count(self.arena());
        if before == 0 || self.options.read_only {
            return false;
        }
        let mut paired = Vec::new();
        let visited = self.views.visit_some(self.arena(), usize::MAX, &mut |view| {
            if view.kind() == Some(FileKind::File) && view.has_pairs() {
                paired.push(view.ino());
            }
            false
        });
        for ino in paired {
            // What is wrong with a file is told to those who use it: here there is one who wants room.
            let _damage = self.unpair_file(0, ino);
        }
        let now = pair_count(self.arena());
        let is_in_vain = visited.is_err() || now >= before;
        self.in_vain.pairs.store(if is_in_vain { now } else { 0 }, Ordering::Relaxed);
        !is_in_vain
    }
}
