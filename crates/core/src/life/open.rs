//! Opening a pool (NOVA 4.7).
//!
//! Closed clean: the allocator's saved state is read, and nothing else, but in a pool that is to have lines in
//! the place of zeros. Otherwise, in this order:
//! journal records are judged; every inode's standing state is decided and its log scanned, in
//! parallel, for the pages in use; what is accepted is written back; rejected records are erased, then
//! own lines installed where they do not say what stands; then the session rises, and the free lists
//! are built. Nothing is allocated before that. A crash in between repeats it: each step
//! leaves a pool that the same rules read the same way.
//!
//! Read-only: the same is decided and nothing stored. What recovery would have installed is kept in
//! memory, as is what is damaged; the rest can be read. For writing, damage refuses the pool.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};

use novale_arena::{Arena, PidInfo};
use novale_layout::{
    COMMIT_OFFSETS, FileKind, Ino, JOURNAL_RECORD_BYTES, LINE, PAGE, PmAddr, RoFeature,
};
use novale_pm::{Flushed, Health, Pm, Purpose};

use crate::base::error::{Error, Result};
use crate::base::exec::{Executor, Progress};
use crate::base::extent::Extent;
use crate::base::types::{Ctx, GcCounters, OpenReport};
use crate::fs::{Fs, InVain, OpenOptions};
use crate::inode::buffer::{self, WriteBuffer};
use crate::inode::chunks::Chunks;
use crate::inode::numbers::Inodes;
use crate::inode::view::Views;
use crate::life::attach::Leaving;
use crate::life::scan::{Scan, ScanFound};
use crate::life::wear;
use crate::life::{attach, saved, scan};
use crate::log::redo::Owed;
use crate::op::call::{Call, OpKind};
use crate::op::journal;
use crate::op::journal::Journal;
use crate::op::quota::Projects;
use crate::op::unrecovered::Unrecovered;
use crate::pool::marks::{InodeMarks, PageMarks};
use crate::pool::{Pool, nothing_lost};
use crate::seeded::{self, Bug};
use crate::space::Allocator;

impl Fs {
    /// Opens a pool and builds its view in `arena`, which must be fresh.
    ///
    /// # Errors
    /// [`Error::BadPool`] and [`Error::Damaged`] say what was found, [`Error::Unrecoverable`] that the
    /// pool can be opened read-only; nothing is changed then.
    /// [`Error::NoMemory`] when the arena is too small.
    #[expect(clippy::needless_pass_by_value, reason = "the file system takes the arena over")]
    pub fn open(
        mut pm: Pm,
        arena: Arena,
        options: &OpenOptions,
        exec: &dyn Executor,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Self> {
        // What measured the memory is not the pool's work.
        pm.restart_counts();
        let health = pm.health();
        let mut pool = Pool::read(&pm)?;
        refuse_without_root(&pm, options.read_only || pm.is_read_only())?;
        let lanes = journal::lane_pages(&pm, pool.superblock.lane_count)?;
        let mut opened = survey(&pm, &pool, &lanes, exec, progress)?;
        let read_only = options.read_only || pm.is_read_only();
        let options = OpenOptions { read_only, ..*options };
        let unrecovered = if read_only {
            opened.unrecovered()
        } else {
            opened.refuse_damage()?;
            pool.check_writable()?;
            pool.check_numbers()?;
            Journal::check_numbers(&opened.last_seq, &lanes)?;
            if opened.chunks.takes_zeros() {
                opened.chunks.say_unwritten(&pm, pool.seed)?;
                nothing_lost(&pm, health)?;
                pool.set_feature(&pm, RoFeature::Unwritten);
            }
            pool.repair_copies(&pm);
            if seeded::is_on(Bug::SessionFirst) {
                pool.raise_session(&pm, Flushed::none())?;
                pm.fence(repair(&pm, &pool, &opened)).end();
            } else {
                let installed = repair(&pm, &pool, &opened);
                nothing_lost(&pm, health)?;
                pool.raise_session(&pm, installed)?;
            }
            Unrecovered::default()
        };
        build(pm, &arena, &options, unrecovered, &pool, &lanes, &opened)
    }
}

/// Refuses a pool with a slot missing to who would write, and one without its first slot to all.
pub(crate) fn refuse_without_root(pm: &Pm, read_only: bool) -> Result<()> {
    let absent = pm.absent_slots();
    if absent & 1 != 0 {
        return Err(Error::BadPool(
            "slot 0 is missing, and with it the table of all inodes: nothing can be found without it; restore it"
                .into(),
        ));
    }
    if absent != 0 && !read_only {
        let slot = absent.trailing_zeros();
        return Err(Error::BadPool(format!(
            "slot {slot} is missing: the pool can be opened read-only"
        )));
    }
    Ok(())
}

/// What was found before anything is changed.
pub(crate) struct Opened {
    report: OpenReport,
    pub(crate) chunks: Chunks,
    pub(crate) pages: PageMarks,
    inodes: InodeMarks,
    saved: Option<saved::Saved>,
    last_seq: Vec<u64>,
    found: ScanFound,
    /// Records that can't be judged, or not be taken whole: why.
    doubts: Vec<Error>,
    rejected_records: Vec<PmAddr>,
    torn_records: Vec<PmAddr>,
}

impl Opened {
    /// What the view needs, where nothing of this is stored.
    fn unrecovered(&mut self) -> Unrecovered {
        let lines = self.found.installs.iter().map(|(place, _, line)| (place.addr, *line));
        let damaged = std::mem::take(&mut self.found.damaged);
        let owed = std::mem::take(&mut self.found.owed);
        let lost = self.chunks.lost().to_vec();
        Unrecovered::new(self.report.clean, lines.collect(), damaged, lost, owed)
            .taking_zeros(self.chunks.takes_zeros())
    }

    /// The first damaged place that was found, and how many there are.
    fn damage(&self) -> (Option<&Error>, u64) {
        let ScanFound { damaged, bad_xattrs, unplaced, .. } = &self.found;
        let lost = self.chunks.lost();
        let is_lost = |ino: &Ino| lost.iter().any(|lost| lost.has(*ino));
        let unplaced = unplaced.iter().filter(|(ino, _)| !is_lost(ino)).map(|(_, error)| error);
        let bad_xattrs = bad_xattrs.iter().filter(|(ino, _)| !damaged.contains_key(ino));
        let inodes = damaged.values().chain(bad_xattrs.map(|(_, error)| error));
        let places = lost.iter().map(|lost| &lost.why).chain(&self.doubts);
        let mut all = places.chain(inodes).chain(unplaced);
        let first = all.next();
        (first, u64::from(first.is_some()) + all.count() as u64)
    }

    /// What a damaged inode owns is not known: its pages would be called free and given to others.
    pub(crate) fn refuse_damage(&self) -> Result<()> {
        match self.damage() {
            (Some(first), count) => {
                Err(Error::Unrecoverable { first: Box::new(first.clone()), count })
            }
            (None, _) => Ok(()),
        }
    }
}

/// Reads what stands. Nothing is stored; what is accepted after a crash is written back, so that
/// nothing that is read from now on can be lost.
pub(crate) fn survey(
    pm: &Pm,
    pool: &Pool,
    lanes: &[PmAddr],
    exec: &dyn Executor,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Opened> {
    let (seed, session) = (pool.seed, pool.state.session);
    let root = pool.superblock.roots.inode_directory;
    let pages = pool.no_pages();
    scan::mark_fixed(pool, &pages, lanes)?;
    let chunks = Chunks::read(pm, root, &pages)?.of_pool(&pool.superblock);
    let mut journal = Journal::read(pm, seed, lanes)?;
    let clean = pool.is_clean();
    // A saved state that is damaged is as good as none: the logs say the same. Where a copy will be
    // rewritten, the scan must tell that its page is nobody's: a header may lead into a file.
    let saved = if clean && pool.bad_copies.is_empty() && pm.absent_slots() == 0 {
        saved::read(pm, pool, chunks.len()).unwrap_or(None)
    } else {
        None
    };
    // Zeros say of no page that it has inodes, and lines are stored there: the scan must tell that it is nobody's, the
    // saved state that no others are hidden by the word that names it. So where numbers in use have no page.
    let is_believed = |saved: &saved::Saved| !chunks.takes_zeros() && saved.has_places(&chunks);
    let (saved, compared) =
        if saved.as_ref().is_some_and(is_believed) { (saved, None) } else { (None, saved) };
    let mut opened = Opened {
        report: OpenReport { clean, from_saved: saved.is_some(), ..OpenReport::default() },
        pages,
        inodes: InodeMarks::new(if saved.is_some() { 0 } else { chunks.len() }),
        saved,
        last_seq: journal.last_seq.clone(),
        found: ScanFound::default(),
        doubts: Vec::new(),
        rejected_records: Vec::new(),
        torn_records: Vec::new(),
        chunks,
    };
    if opened.saved.is_none() {
        journal.judge(pm, seed, session, &|ino| opened.chunks.place(seed, ino))?;
        let scan = Scan {
            pm,
            seed,
            crashed: (!clean).then_some(session),
            journal: &journal,
            chunks: &opened.chunks,
            pages: &opened.pages,
            inodes: &opened.inodes,
        };
        opened.found = scan.run(exec, progress)?;
        // A pool that was closed clean and says nothing of its pages is one whose slots were being changed, or
        // that was being repaired: who moved a page may have died before the fence of the word that names it
        // now, who erased a record before that of its zeros.
        let named = opened.chunks.write_back(pm, root);
        let table = pool.superblock.roots.lane_table;
        let rest = match clean {
            // Of a damaged pool it may lie nowhere.
            true if !pm.contains(table, PAGE) => Flushed::none(),
            true => lanes.iter().chain([&table]).fold(Flushed::none(), |pending, page| {
                pending.and(pm.write_back_range(*page, PAGE, Purpose::Other))
            }),
            false => journal.write_back(pm, session),
        };
        pm.fence(named.and(rest)).end();
        opened.doubts = journal.doubts().cloned().collect();
        let compared = compared.map(|saved| saved.check_pages(pool, &opened.pages));
        opened.doubts.extend(compared.and_then(Result::err));
        if !clean {
            opened.doubts.extend_from_slice(journal.lost());
        }
        let rejected = journal.records.iter().filter(|record| !record.good);
        opened.rejected_records = rejected.map(|record| record.at).collect();
        opened.torn_records.clone_from(&journal.torn);
    }
    opened.count();
    Ok(opened)
}

impl Opened {
    /// Counts for the report what was found.
    fn count(&mut self) {
        let (_, damaged) = self.damage();
        self.report = OpenReport {
            inodes: self.inodes.used(),
            pages_used: self.pages.used(),
            log_entries: self.found.log_entries,
            lines_installed: self.found.installs.len() as u64,
            lines_rejected: self.found.lines_rejected,
            records_rejected: self.rejected_records.len() as u64,
            damaged,
            ..self.report
        };
    }
}

/// Makes media say by its own lines what stands, so that the next session needs no judgement. The
/// own lines are durable with the caller's next fence.
///
/// Rejected records go first and durably: a certificate has the op_seq of the record that it
/// replaces, and a recovery cut off between the two would take it for the proof that the record had
/// been committed. Without the record the pool reads as if it had never arrived. Torn ones go as well:
/// a later record in the same place, torn in its turn, may bring just what they lack, when what they
/// rest on is long another's. The state lines are
/// written back by then as well: the process that stored them may have died before its fence, and the
/// session's new ones take the place of the older two.
fn repair(pm: &Pm, pool: &Pool, opened: &Opened) -> Flushed {
    let cached = seeded::is_on(Bug::StateLinesCached);
    let mut pending = if cached { Flushed::none() } else { pool.write_back(pm) };
    let stay = seeded::is_on(Bug::RejectedRecordStays);
    let torn_stay = seeded::is_on(Bug::TornRecordStays);
    let rejected = opened.rejected_records.iter().filter(|_| !stay);
    for at in rejected.chain(opened.torn_records.iter().filter(|_| !torn_stay)) {
        pending = pending.and(pm.stream_zero(*at, JOURNAL_RECORD_BYTES as u64, Purpose::Journal));
    }
    for at in &opened.found.torn_lines {
        pending = pending.and(pm.stream_zero(*at, LINE, Purpose::Commit));
    }
    if !opened.found.torn_lines.is_empty() {
        pm.fence(std::mem::replace(&mut pending, Flushed::none())).end();
    }
    // A certificate supersedes the entries that have these bytes.
    for Owed { at, bytes, .. } in opened.found.owed.values().flatten() {
        pending = pending.and(pm.stream(*at, bytes, Purpose::Data));
    }
    let mut pending = if seeded::is_on(Bug::RecordsErasedLate) {
        pending
    } else {
        pm.fence(pending).end();
        Flushed::none()
    };
    for (place, slot, line) in &opened.found.installs {
        let [first, second] = COMMIT_OFFSETS;
        let at = place.addr.add(if *slot == 0 { first } else { second });
        pending = pending.and(pm.stream(at, &line.encode(place.seed), Purpose::Commit));
    }
    pending
}

/// What recovery stores, for a repair, which has seen to all damage but that of inodes that share
/// pages with others.
pub(crate) fn settle_for_repair(
    pm: &Pm,
    pool: &Pool,
    sharing: &BTreeSet<Ino>,
    exec: &dyn Executor,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Flushed> {
    let lanes = journal::lane_pages(pm, pool.superblock.lane_count)?;
    let mut opened = survey(pm, pool, &lanes, exec, progress)?;
    let ScanFound { damaged, bad_xattrs, unplaced, .. } = &mut opened.found;
    for inodes in [damaged, bad_xattrs] {
        inodes.retain(|ino, _| !sharing.contains(ino));
    }
    // The names go: what they named was looked for before.
    unplaced.clear();
    opened.refuse_damage()?;
    Journal::check_numbers(&opened.last_seq, &lanes)?;
    Ok(repair(pm, pool, &opened))
}

fn build(
    pm: Pm,
    arena: &Arena,
    options: &OpenOptions,
    unrecovered: Unrecovered,
    pool: &Pool,
    lanes: &[PmAddr],
    opened: &Opened,
) -> Result<Fs> {
    attach::begin(arena, pool.leaving())?;
    arena.set_wanted_bytes(options.index_bytes.unwrap_or(arena.max_bytes() / 4 * 3));
    let pages: Vec<u64> = pool.slots.iter().map(|(header, _)| header.pages).collect();
    let wear = wear::create(&pm, arena, pool, options.placement)?;
    let allocator = Allocator::create(arena, &pages, pool.superblock.lane_count, wear)?;
    let inodes = Inodes::create(arena, pool.superblock.roots.inode_directory)?;
    let views = Views::create(arena)?;
    let used = opened.saved.as_ref().map_or(&opened.found.projects, |saved| &saved.projects);
    let projects = Projects::create(arena, used)?;
    let mut report = opened.report;
    let saved = opened.saved.as_ref();
    allocator.install(arena, &|slot, index| match saved {
        Some(saved) => saved.page_word(slot, index),
        None => opened.pages.word(slot, index),
    })?;
    install_chunks(arena, &inodes, opened)?;
    if saved.is_some() {
        report.inodes = inodes.used(arena, &allocator)?.saturating_sub(1);
        // What is free of a slot that leaves is not used.
        report.pages_used = pages.iter().sum::<u64>() - allocator.ranges.free_pages(arena)?;
    }
    let client = arena.attach(PidInfo::current())?;
    let mode = pool.mode(options.mode);
    let blocks = blocks_max(arena, options);
    let buffer = WriteBuffer::create(arena, blocks, options.buffer_rules, mode.is_some())?;
    let mut fs = Fs {
        pm,
        client,
        allocator,
        inodes,
        views,
        projects,
        rename_lock: arena.alloc_table(3)?,
        seed: pool.seed,
        session: pool.state.session,
        options: *options,
        update: pool.update(options.update),
        mode,
        buffer,
        summed_bytes_max: options.summed_bytes_max(),
        report,
        unrecovered,
        gc: GcCounters::default(),
        closed: AtomicBool::new(false),
        atime: AtomicU8::new(options.atime as u8),
        features: AtomicU64::new(pool.superblock.features_ro_compat),
        refuses_mapped: AtomicBool::new(false),
        in_vain: InVain::default(),
        settling: std::sync::Mutex::new(()),
        writing_back: std::sync::Mutex::new(()),
        passes: crate::fs::Passes::default(),
    };
    fs.count_for_all();
    // Slots that are not there count as failed.
    fs.health();
    fs.install_lanes(lanes, &opened.last_seq)?;
    fs.getattr(Ino::ROOT)?;
    fs.load_limits()?;
    fs.load_paired(&opened.found.paired);
    fs.announce();
    Ok(fs)
}

/// Tells the table of inode numbers where each chunk's pages are, and which numbers are in use.
fn install_chunks(arena: &Arena, inodes: &Inodes, opened: &Opened) -> Result<()> {
    let saved = opened.saved.as_ref();
    for (number, chunk) in opened.chunks.iter().enumerate() {
        if chunk.table.is_null() {
            continue;
        }
        inodes.install(arena, number as u64, chunk.table, &chunk.pages, &|index| match saved {
            Some(saved) => saved.inode_word(number, index),
            None => opened.inodes.word(number, index),
        })?;
    }
    Ok(())
}

impl Fs {
    fn install_lanes(&self, pages: &[PmAddr], last_seq: &[u64]) -> Result<()> {
        let ctx = Ctx { now_ns: self.options.now_ns, hint: 0 };
        let call = self.begin_read(OpKind::Manage, &ctx)?;
        for ((index, page), seq) in (0..).zip(pages).zip(last_seq) {
            self.allocator.lock_lane(self.arena(), &call.op, index)?.set_journal(*page, *seq);
        }
        Ok(())
    }

    /// Closes the pool in order: what clients hold goes back to the allocator, whose state is
    /// saved, and the pool is marked clean. Every later call fails with [`Error::Closed`]; calls
    /// in flight must have returned. While other clients are attached this one only leaves, and so it does where
    /// bytes are buffered for a slot that has failed: the next opening writes them back, if the slot has come. What the
    /// pool's windows show ends first ([`Pm::end_windows`](novale_pm::Pm::end_windows)).
    ///
    /// # Errors
    /// [`Error::Closed`] when it is closed already; others leave the pool unclean, to be recovered
    /// at the next opening. [`Error::NoMemory`] where a window can't be ended: this client has all that
    /// it held until its process ends.
    pub fn close(&self) -> Result<()> {
        use std::sync::atomic::Ordering;
        if self.failed_slots() | self.pm.lacking() != 0 && !self.options.read_only {
            // What is buffered for the other slots; closing ends at the first thing that is lost.
            self.sync_all(&Ctx { now_ns: 0, hint: 0 }).unwrap_or_default();
        }
        if self.closed.swap(true, Ordering::AcqRel) {
            return Err(Error::Closed);
        }
        // A step of emptying a slot that is under way; the next one finds the pool closed.
        drop(self.passes.step.lock().unwrap_or_else(PoisonError::into_inner));
        if self.options.read_only {
            return Ok(());
        }
        let left = self.leave()?;
        if left == Leaving::Others {
            return Ok(());
        }
        // One may have failed since.
        if self.failed_slots() != 0 || left == Leaving::Waiting {
            self.pm.fence(self.store_wear()?).end();
            // It is not closed clean: what the slot had is lost, and no saved state may say otherwise.
            return self.lost(Health::default());
        }
        let call = self.call(OpKind::Manage, &Ctx { now_ns: 0, hint: 0 });
        let op = &call.op;
        self.give_back_views(&call)?;
        if !seeded::is_on(Bug::LaneNumbersStay) {
            self.inodes.drain(self.arena(), &self.allocator, op)?;
        }
        self.allocator.drain(self.arena(), op)?;
        self.allocator.drain_kept(self.arena(), op)?;
        let mut pool = Pool::read(&self.pm)?;
        let (state, mut pending) = if self.has_settled() {
            // The allocator may not know all free pages: the next opening finds them by its scan.
            (saved::without(&pool), Flushed::none())
        } else {
            saved::write(self, op, &pool)?
        };
        // The own lines after the last record of each lane are still in the caches.
        for lane in 0..self.allocator.lane_count() {
            let lane = self.allocator.lock_lane(self.arena(), op, lane)?;
            for addr in lane.own_lines() {
                pending = pending.and(self.pm.write_back_range(addr, LINE, Purpose::Commit));
            }
        }
        if self.has_settled() {
            // Of a client that died in a change of features.
            pool.repair_copies(&self.pm);
            pending = pending.and(pool.write_back(&self.pm));
        }
        self.pm.fence(pending.and(self.store_wear()?)).end();
        self.check_slots(&call)?;
        pool.next_session(&self.pm, Flushed::none(), state)
    }

    /// Whether anything is buffered of a file that has a name.
    pub(crate) fn has_buffered(&self) -> Result<bool> {
        let mut has_some = false;
        self.views.for_each(self.arena(), &mut |view| {
            has_some |= view.is_owed();
            Ok(())
        })?;
        Ok(has_some)
    }

    /// Makes durable what is buffered, for the client that leaves last. Where that fails for a file, it is done
    /// for the others all the same.
    pub(crate) fn flush_all(&self, call: &Call<'_>) -> Result<()> {
        let mut failed = None;
        self.views.for_each(self.arena(), &mut |view| {
            if view.is_owed() {
                match self.lock(call, view.ino()) {
                    // A slot failed as it was made, and is back without it: it was never there.
                    Err(Error::Stale) => {
                        view.set_unbuffered();
                        self.give_buffer(&view)?;
                    }
                    locked => {
                        let flushed = locked.and_then(|locked| self.flush(call, &locked));
                        failed = failed.take().or(flushed.err());
                    }
                }
            }
            Ok(())
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Frees what only the view holds: spare log pages, and files without names.
    fn give_back_views(&self, call: &Call<'_>) -> Result<()> {
        self.views.for_each(self.arena(), &mut |view| {
            if view.kind().is_none() && !view.is_buffered() {
                return Ok(());
            }
            let ino = view.ino();
            if view.nlink() == 0 {
                let locked = self.lock(call, ino)?;
                return self.reclaim(call, &locked);
            }
            if view.kind() == Some(FileKind::File) && view.has_pairs() {
                let locked = self.lock(call, ino)?;
                match self.unpair_all(call, &locked) {
                    // They stay, where there is no room for a copy.
                    Ok(()) | Err(Error::NoSpace | Error::NoMemory) => {}
                    Err(error) => return Err(error),
                }
            }
            let spare = view.spare();
            view.set_spare(Extent::default());
            self.allocator.give_extent(self.arena(), &call.op, spare)
        })
    }

    /// Loads the files whose pages a crash left with two copies, so that these are known.
    fn load_paired(&self, inos: &BTreeSet<Ino>) {
        for ino in inos {
            // What can't be read is told to those who use it.
            let _damage = self.read_view(0, *ino, |_, _| Ok(()));
        }
    }
}

/// Blocks of the write buffer at most.
fn blocks_max(arena: &Arena, options: &OpenOptions) -> u64 {
    options.buffer_bytes.unwrap_or(arena.max_bytes() / 4) / buffer::BLOCK_BYTES
}
