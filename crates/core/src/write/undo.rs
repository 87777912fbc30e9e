//! Overwrites by adaptive differential logging (ADL, "Copy-on-Write with Adaptive Differential Logging"
//! 3.1 and 4.1): a page that is written up to half changes in place, under an undo log; the others are
//! copied.
//!
//! The undo log is made of redo entries: they hold the bytes that the pages have. A commit of its own makes
//! them count, and changes nothing. As long as its line stands, recovery, or who settles for a dead client,
//! stores those bytes where they belong. The paper's states of an entry, and the stores that set them, are
//! not needed: the line of the write itself ends the undo log.
//!
//! Crash points. (1) Entries with the old bytes, and a line: before it counts nothing else has changed.
//! (2) The new bytes in place, copies, and the entries that map them; fence. (3) The write's own line;
//! fence. Until that line counts, the first one stands: the old bytes are stored again, and nothing leads
//! to the copies. After it the entries of (1) are of an older operation, and say nothing.
//!
//! No data checksum that recovery may ask for covers what changes in place: that of the first line is of
//! its entries alone, and the line before it is not asked any more.
//!
//! Readers wait from the first store in place until (3) is durable.

use arrayvec::ArrayVec;
use novale_layout::{Entry, PAGE, PmAddr};
use novale_pm::Purpose;
use novale_policy::Method;

use crate::base::error::Result;
use crate::fs::Fs;
use crate::inode::state::State;
use crate::inode::view::View;
use crate::log::Appended;
use crate::op::call::Call;
use crate::op::file_tx::FileTx;
use crate::op::lock::Locked;
use crate::seeded::{self, Bug};
use crate::write::fine_log::redo_entries;
use crate::write::plan::{PagePiece, WritePlan, page_pieces};
use crate::write::small::PAGES_MAX;

const PAGE_BYTES: usize = 4096;
/// Bytes that a processor stores at once.
const UNIT: u64 = 8;
/// How much longer what is logged of a piece may be than the piece: less than a unit at each end.
const BOTH_ENDS: usize = 16;
/// Bytes of a page that are written in place, at most.
const HALF_PAGE: usize = PAGE_BYTES / 2;

/// A piece of a write, and where it goes in place; none: its page is copied.
type Parts<'d> = ArrayVec<(PagePiece<'d>, Option<PmAddr>), PAGES_MAX>;

/// The pages of a write that are copied. They lie side by side: only the first and the last of three may
/// change in place.
#[derive(Debug, Clone, Copy)]
struct Copies {
    first: u64,
    count: u64,
}

impl Copies {
    fn of(parts: &Parts<'_>, plan: &WritePlan) -> Self {
        let mut copied = parts.iter().filter(|(_, home)| home.is_none());
        let count = copied.clone().count() as u64;
        let first = copied.next().map_or(plan.first_page(), |(piece, _)| piece.file_page);
        Self { first, count }
    }
}

impl Fs {
    /// Overwrites bytes of the file; says how.
    pub(crate) fn write_undo(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        plan: &WritePlan,
        data: &[u8],
    ) -> Result<Method> {
        let mut parts = Parts::new();
        for piece in page_pieces(plan.offset, data) {
            let home = self.page_addr(&locked.view, piece.file_page)?;
            let home = home.filter(|_| piece.bytes.len() <= HALF_PAGE);
            parts.push((piece, home.map(|page| self.checked(page)).transpose()?));
        }
        if parts.iter().all(|(_, home)| home.is_none()) {
            return self.write_copied(call, locked, plan, data);
        }
        // What the write could fail for is asked before its log is stored.
        let copies = Copies::of(&parts, plan);
        if copies.count > 0 && !self.allocator.is_roomy(self.arena())? {
            return self.write_copied(call, locked, plan, data);
        }
        self.allow_write(call, &locked.view, copies.first, copies.count)?;
        let logged = if seeded::is_on(Bug::UndoNotLogged) {
            None
        } else {
            self.log_old_bytes(call, locked, plan, &parts)?
        };
        if let Some(logged) = logged.as_ref().filter(|_| seeded::is_on(Bug::UndoCollected)) {
            self.collect_if_grown(call, locked, logged);
        }
        let written = self.write_over(call, locked, plan, &parts, copies);
        // Also of a write that has failed: its log is of no use.
        if let Some(logged) = &logged {
            self.collect_if_grown(call, locked, logged);
        }
        written.map(|()| Method::Undo)
    }

    /// Commits what the parts that change in place hold now.
    fn log_old_bytes(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        plan: &WritePlan,
        parts: &Parts<'_>,
    ) -> Result<Option<Appended>> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut room = [0; HALF_PAGE + BOTH_ENDS];
        for (piece, home) in parts {
            let Some(home) = home else { continue };
            let (from, to) = logged_of(piece, locked.view.size());
            let len = usize::try_from(to - from).unwrap_or(0);
            let old = room.get_mut(..len).unwrap_or_default();
            self.pm.load(home.add(from % PAGE), old)?;
            entries.extend(redo_entries(from, old));
        }
        let mut tx = FileTx::begin(self, call, locked);
        tx.sum(plan.is_single);
        tx.room_for(&entries)?;
        for entry in &entries {
            tx.entry(entry);
        }
        tx.next().flags |= State::REDO;
        tx.commit_and_keep(|_, _| Ok(()))
    }

    /// Stores the new bytes, those of copied pages to new ones, and commits.
    fn write_over(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        plan: &WritePlan,
        parts: &Parts<'_>,
        copies: Copies,
    ) -> Result<()> {
        let view = &locked.view;
        let Copies { first: first_copied, count } = copies;
        let mut others = parts.iter().filter(|(_, home)| home.is_none()).map(|(piece, _)| piece);
        let mut tx = FileTx::begin(self, call, locked);
        if count > 0 {
            tx.take(count, self.need_of(view, first_copied, count)?)?;
        }
        others.try_for_each(|piece| self.copy_page(&mut tx, view, piece, first_copied))?;
        tx.room_to_map(first_copied)?;
        view.publish_begin();
        for (piece, home) in parts {
            let Some(home) = home else { continue };
            let at = home.add(piece.from);
            tx.also(if seeded::is_on(Bug::UndoneCached) {
                seeded::stream_but_a_line(&self.pm, at, piece.bytes, 0)
            } else {
                self.pm.stream(at, piece.bytes, Purpose::Data)
            });
        }
        self.commit_written(&mut tx, first_copied, plan.end, &[])
    }

    /// Streams a page with the new bytes in it to that of the new ones which takes its place.
    fn copy_page(
        &self,
        tx: &mut FileTx<'_>,
        view: &View<'_>,
        piece: &PagePiece<'_>,
        first_copied: u64,
    ) -> Result<()> {
        let mut page = [0; PAGE_BYTES];
        let from = usize::try_from(piece.from).unwrap_or(0);
        self.fill_page(view, piece.file_page, from, piece.bytes, &mut page)?;
        tx.stream(tx.page(piece.file_page - first_copied), &page);
        Ok(())
    }
}

/// The bytes of a file of `size` bytes that are logged of a piece: whole units. A process that has died
/// may have stored a unit to its mapping that nobody has written back. If a part of it came back from the
/// log, and the rest did not, the unit were torn.
fn logged_of(piece: &PagePiece<'_>, size: u64) -> (u64, u64) {
    let (from, to) = (piece.offset(), piece.offset() + piece.bytes.len() as u64);
    (from - from % UNIT, to.next_multiple_of(UNIT).min(size.max(to)))
}

#[cfg(test)]
mod tests {
    use novale_arena::Arena;
    use novale_layout::{Ino, RoFeature};
    use novale_pm::Pm;
    use novale_policy::{UpdatePolicy, WriteShape};

    use super::*;
    use crate::base::exec::Serial;
    use crate::fixture::{CTX, MB, with_file};
    use crate::fs::OpenOptions;

    fn reopen(pm: Pm) -> Fs {
        let options = OpenOptions { update: Some(UpdatePolicy::Adl), ..OpenOptions::default() };
        Fs::open(pm, Arena::anonymous(16 * MB).unwrap(), &options, &Serial, &|_| {}).unwrap()
    }

    fn home(fs: &Fs, ino: Ino, page: u64) -> PmAddr {
        let view = fs.views.find(fs.arena(), ino).unwrap().unwrap();
        fs.page_addr(&view, page).unwrap().unwrap()
    }

    fn filled() -> (Fs, Ino) {
        let (fs, ino) = with_file();
        fs.write(&CTX, ino, 0, &[1; 4 * PAGE_BYTES]).unwrap();
        let fs = reopen(fs.into_pm());
        fs.use_feature(&CTX, RoFeature::Redo).unwrap();
        fs.getattr(ino).unwrap();
        (fs, ino)
    }

    #[test]
    fn pages_are_copied_where_more_than_half_is_written() {
        let (fs, ino) = filled();
        let homes = [0, 1, 2].map(|page| home(&fs, ino, page));
        // Half of the first, all of the second, and more than half of the third.
        fs.write(&CTX, ino, 2048, &[2; 2048 + 4096]).unwrap();
        fs.write(&CTX, ino, 8192, &[3; 2049]).unwrap();
        let moved = [0, 1, 2].map(|page| home(&fs, ino, page));
        assert_eq!([0, 1, 2].map(|page| moved[page] != homes[page]), [false, true, true]);
        let mut bytes = vec![0; 4 * PAGE_BYTES];
        fs.read(&CTX, ino, 0, &mut bytes).unwrap();
        let expected =
            [vec![1; 2048], vec![2; 2048 + 4096], vec![3; 2049], vec![1; 2047 + 4096]].concat();
        assert_eq!(bytes, expected);
    }

    /// A write that failed left its log: a full pool lost its reserve to it, and a tree went beyond its
    /// limits.
    #[test]
    fn a_write_that_fails_leaves_nothing() {
        let (fs, ino) = filled();
        let set = crate::SetAttr { size: Some(8 * 4096), ..crate::SetAttr::default() };
        fs.setattr(&CTX, crate::Node::current(ino), &set).unwrap();
        let new = crate::NewInode {
            kind: novale_layout::FileKind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            rdev: 0,
            target: b"",
        };
        let root = crate::Node::current(Ino::ROOT);
        let filler = fs.create(&CTX, root, b"filler", &new).unwrap().ino;
        while fs.append(&CTX, filler, &[3; PAGE_BYTES]).is_ok() {}
        let before = fs.statfs_of(Ino::ROOT).unwrap().pages_free;
        // The end of a page that is there, and the start of a hole.
        for _ in 0..100 {
            fs.write(&CTX, ino, 4 * 4096 - 1000, &[4; 1100]).unwrap_err();
        }
        assert_eq!(fs.statfs_of(Ino::ROOT).unwrap().pages_free, before);
        let mut end = [0; 1000];
        fs.read(&CTX, ino, 4 * 4096 - 1000, &mut end).unwrap();
        assert_eq!(end, [1; 1000]);
        fs.write(&CTX, ino, 100, &[5; 100]).unwrap();
    }

    #[test]
    fn the_log_does_not_grow_for_ever() {
        let (fs, ino) = filled();
        for round in (0..=u8::MAX).cycle().take(1000) {
            fs.write(&CTX, ino, 100, &[round; 2000]).unwrap();
        }
        let view = fs.views.find(fs.arena(), ino).unwrap().unwrap();
        assert!(view.log_pages() < 50, "{}", view.log_pages());
    }

    /// The log of the old bytes counts, and of the new ones some have arrived. The units at both ends come
    /// back whole.
    #[test]
    fn recovery_stores_the_old_bytes() {
        let (fs, ino) = filled();
        {
            let call = fs.begin(crate::op::call::OpKind::Write, &CTX).unwrap();
            let locked = fs.lock_file(&call, ino).unwrap();
            let mut parts = Parts::new();
            for piece in page_pieces(4003, &[2; 200]) {
                parts.push((piece, Some(home(&fs, ino, piece.file_page))));
            }
            let plan = fs
                .plan(WriteShape {
                    offset: 4003,
                    len: 200,
                    size: 16_384,
                    is_mapped: false,
                    own: None,
                    has_source: false,
                })
                .unwrap();
            fs.log_old_bytes(&call, &locked, &plan, &parts).unwrap();
            for (at, len) in [(4000, 96), (4096, 112)] {
                let home = home(&fs, ino, at / PAGE).add(at % PAGE);
                fs.pm.fence(fs.pm.stream(home, &[2; 112][..len], Purpose::Data)).end();
            }
        }
        let fs = reopen(fs.into_pm());
        let mut bytes = vec![0; 4 * PAGE_BYTES];
        fs.read(&CTX, ino, 0, &mut bytes).unwrap();
        assert_eq!(bytes, vec![1; 4 * PAGE_BYTES]);
        fs.close().unwrap();
        assert!(crate::check(&fs.into_pm(), &Serial, &|_| {}).unwrap().findings.is_empty());
    }
}
