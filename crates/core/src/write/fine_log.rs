//! Overwrites by fine-grained redo logging, the baseline of LAWN (2.2): the bytes go to the file's log, a
//! commit makes them count, then they are stored over the old ones.
//!
//! Crash points. The entries are stored after the log's tail: a crash before the commit line leaves the
//! old bytes. After it the entries are of the line that stands, and recovery, or who settles for a dead
//! client, stores them where they belong. What is stored there is fenced before the lock is released, so
//! before any later line of the inode: entries of an older operation than the newest say nothing.
//!
//! Readers wait until the bytes lie in their places: they look nowhere else.

use arrayvec::ArrayVec;
use novale_layout::{Entry, PmAddr, Redo};
use novale_pm::{Flushed, Purpose};

use crate::base::error::Result;
use crate::fs::Fs;
use crate::inode::state::State;
use crate::inode::view::View;
use crate::op::call::Call;
use crate::op::file_tx::FileTx;
use crate::op::lock::Locked;
use crate::seeded::{self, Bug};
use crate::write::plan::{PagePiece, WritePlan, page_pieces};
use crate::write::small::PAGES_MAX;

/// Pieces of a write, each within a page, and where they belong.
pub(crate) type Homes<'a> = ArrayVec<(PmAddr, &'a [u8]), PAGES_MAX>;

impl Fs {
    /// Overwrites bytes of pages that the file has.
    pub(crate) fn write_fine_log(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        plan: &WritePlan,
        data: &[u8],
    ) -> Result<()> {
        let homes = self.homes(&locked.view, plan.offset, data)?;
        let entries: Vec<Entry> = redo_entries(plan.offset, data).collect();
        let mut tx = FileTx::begin(self, call, locked);
        tx.sum(plan.is_single);
        tx.strip()?;
        self.commit_then_store(tx, &entries, &homes, plan.end)
    }

    /// Commits a change whose bytes the entries have or name, then stores them where they belong.
    pub(crate) fn commit_then_store(
        &self,
        mut tx: FileTx<'_>,
        entries: &[Entry],
        homes: &Homes<'_>,
        end: u64,
    ) -> Result<()> {
        tx.room_for(entries)?;
        for entry in entries {
            tx.entry(entry);
        }
        tx.grow(end);
        tx.next().flags |= State::REDO;
        tx.commit(|_, _| {
            let stored = homes.iter().fold(Flushed::none(), |stored, (at, bytes)| {
                stored.and(self.pm.stream(*at, bytes, Purpose::Data))
            });
            if !seeded::is_on(Bug::RedoNotFenced) {
                self.pm.fence(stored).end();
            }
            Ok(())
        })
    }

    /// Where each piece of a write belongs.
    pub(crate) fn homes<'d>(
        &self,
        view: &View<'_>,
        offset: u64,
        data: &'d [u8],
    ) -> Result<Homes<'d>> {
        let mut homes = Homes::new();
        for PagePiece { file_page, from, bytes } in page_pieces(offset, data) {
            let page = self.page_addr(view, file_page)?.unwrap_or(PmAddr::NULL);
            homes.push((self.checked(page)?.add(from), bytes));
        }
        Ok(homes)
    }
}

/// The entries that hold bytes of the file from `offset` on.
pub(crate) fn redo_entries(mut offset: u64, mut data: &[u8]) -> impl Iterator<Item = Entry> {
    std::iter::from_fn(move || {
        let (redo, count) = (!data.is_empty()).then(|| Redo::first_of(offset, data))?;
        (offset, data) = (offset + count as u64, data.split_at(count).1);
        Some(Entry::Redo(redo))
    })
}

#[cfg(test)]
mod tests {
    use novale_arena::Arena;
    use novale_layout::{Ino, PAGE};
    use novale_pm::Pm;
    use novale_policy::UpdatePolicy;

    use super::*;
    use crate::base::exec::Serial;
    use crate::fixture::{CTX, MB, with_file};
    use crate::fs::OpenOptions;

    const NEW: [u8; 700] = [7; 700];
    /// Where it is written: across two pages.
    const AT: u64 = 3700;

    fn reopen(pm: Pm, read_only: bool) -> Fs {
        let update = Some(UpdatePolicy::FineLog);
        let options = OpenOptions { read_only, update, ..OpenOptions::default() };
        Fs::open(pm, Arena::anonymous(16 * MB).unwrap(), &options, &Serial, &|_| {}).unwrap()
    }

    fn home(fs: &Fs, ino: Ino, at: u64) -> PmAddr {
        let view = fs.views.find(fs.arena(), ino).unwrap().unwrap();
        fs.page_addr(&view, at / PAGE).unwrap().unwrap().add(at % PAGE)
    }

    fn read(fs: &Fs, ino: Ino, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert_eq!(fs.read(&CTX, ino, at, &mut bytes).unwrap(), len);
        bytes
    }

    /// A file of old bytes with new ones over them, of which some have not arrived where they belong.
    fn half_done() -> (Fs, Ino) {
        let (fs, ino) = with_file();
        fs.write(&CTX, ino, 0, &[1; 9000]).unwrap();
        let fs = reopen(fs.into_pm(), false);
        fs.write(&CTX, ino, AT, &NEW).unwrap();
        for at in [AT, AT + 600] {
            fs.pm.fence(fs.pm.stream(home(&fs, ino, at), &[1; 50], Purpose::Data)).end();
        }
        (fs, ino)
    }

    #[test]
    fn recovery_stores_what_the_log_has() {
        let (fs, ino) = half_done();
        let fs = reopen(fs.into_pm(), false);
        let expected = [vec![1; 10], NEW.to_vec(), vec![1; 10]].concat();
        assert_eq!(read(&fs, ino, AT - 10, 720), expected);
        fs.close().unwrap();
        assert!(crate::check(&fs.into_pm(), &Serial, &|_| {}).unwrap().findings.is_empty());
    }

    #[test]
    fn a_pool_that_is_shown_without_recovery_shows_what_the_log_has() {
        let (fs, ino) = half_done();
        let fs = reopen(fs.into_pm(), true);
        assert_eq!(read(&fs, ino, AT, 700), NEW);
        assert_eq!(read(&fs, ino, AT + 610, 100), [vec![7; 90], vec![1; 10]].concat());
        assert_eq!(read(&fs, ino, AT - 4, 8), [1, 1, 1, 1, 7, 7, 7, 7]);
        // Nothing was stored.
        let mut stored = [0; 50];
        fs.pm.load(home(&fs, ino, AT), &mut stored).unwrap();
        assert_eq!(stored, [1; 50]);
    }

    #[test]
    fn a_hole_is_filled_by_a_copy() {
        let (fs, ino) = half_done();
        fs.write(&CTX, ino, 20_000, &[2; 10]).unwrap();
        fs.write(&CTX, ino, 16_000, &NEW).unwrap();
        assert_eq!(read(&fs, ino, 16_000, 700), NEW);
        assert_eq!(fs.getattr(ino).unwrap().size, 20_010);
    }

    /// What a program stores in mapped pages is not taken back, though no commit follows it: the clock
    /// has not moved.
    #[test]
    fn what_a_mapping_stores_is_not_redone() {
        let (fs, ino) = half_done();
        let generation = fs.getattr(ino).unwrap().generation;
        let hold = fs.map_hold(&CTX, ino, generation).unwrap().unwrap();
        fs.map_pages(&CTX, hold, 0, 2).unwrap();
        drop(fs.pm.store(home(&fs, ino, AT), &[3; 20], Purpose::Data));
        fs.map_flush(&CTX, ino, 0, 2).unwrap();
        let fs = reopen(fs.into_pm(), false);
        assert_eq!(read(&fs, ino, AT, 20), [3; 20]);
    }
}
