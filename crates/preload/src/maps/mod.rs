//! What this process has mapped of Novale's files without the kernel's page cache.
//!
//! A mapping is in parts, each a piece of the address space that shows one piece of a file: as it was
//! made, or what `munmap` and `mremap` have left of it. It shows the file's own pages in the pool,
//! which stay where they are as long as it holds the file (`Fs::map_hold`), or a replica
//! ([`crate::maps::replicas`]). It may be longer than its file ([`crate::maps::growing`]). All of the
//! address space that the kernel changes while there are any parts is changed under one lock, so that the
//! table never lags behind.

pub(crate) mod asked;
pub(crate) mod beginning;
pub(crate) mod foreign;
pub(crate) mod giving;
pub(crate) mod growing;
pub(crate) mod held;
pub(crate) mod hiding;
pub(crate) mod lost;
pub(crate) mod nudge;
pub(crate) mod openings;
pub(crate) mod replicas;
pub(crate) mod sleepers;
pub(crate) mod table;
pub(crate) mod times;

use std::ops::{Deref, Range};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};

use novale_core::{Error, Fs, HoldId, Ino, MappedRun, Seek, SourceRun};

use crate::base::classes::{self, MAPS};
use crate::base::guard;
use crate::base::left;
use crate::base::lock::{Held, Lock};
use crate::base::sys::{Ret, fail, sys};
use crate::fds::table::InUse;
use crate::maps::asked::Asked;
use crate::maps::giving::Anchor;
use crate::maps::growing::Shown;
use crate::maps::openings::Opening;
use crate::maps::replicas::{Aside, Base};
use crate::maps::table::Table;
use crate::mounts::{self, MOUNTS_MAX, ctx, helper};
use crate::numbers::{self, limits};

pub(crate) const PAGE: u64 = 4096;
/// Pieces of the pool that one mapping shows at most, and all of a process: each takes a place in the
/// kernel's list, which ends at 65,530.
pub(crate) const RUNS_MAX: usize = 8192;
const ALL_RUNS_MAX: usize = 32_768;
/// Bytes of holes in what is mapped, at most: each gets its pages, and programs map what they may never
/// touch.
const HOLES_MAX: u64 = 16 << 20;

/// What a program's mappings of files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The kernel's pages, but of files whose own pages somebody has mapped.
    Kernel,
    /// The file's own pages, where that is possible.
    Own,
    /// Replicas that `msync` publishes.
    Atomic,
}

/// By mount.
static MODES: [AtomicU32; MOUNTS_MAX] = [const { AtomicU32::new(0) }; MOUNTS_MAX];

/// Takes what `novale run` was told: a word for each mount.
///
/// # Safety
/// No thread of the program runs yet.
#[inline]
pub(crate) unsafe fn begin(words: Option<&[u8]>) {
    // SAFETY: as the caller says.
    unsafe { guard::set_show(growing::show) };
    if let Some(words) = words.filter(|words| !words.is_empty()) {
        set_modes(words);
    }
}

#[cold]
fn set_modes(words: &[u8]) {
    let words = words.split(|byte| *byte == b';');
    for (mode, word) in MODES.iter().zip(words) {
        let said = match word {
            b"dax" => Mode::Own,
            b"atomic" => Mode::Atomic,
            _ => Mode::Kernel,
        };
        mode.store(said as u32, Ordering::Relaxed);
    }
    for mount in (0..mounts::all().len()).filter(|mount| self::mode(*mount) == Mode::Own) {
        helper::begin(mount);
    }
}

/// What mappings of a mount's files are.
pub(crate) fn mode(mount: usize) -> Mode {
    let mode = MODES.get(mount).map_or(0, |mode| mode.load(Ordering::Relaxed));
    let all = [Mode::Kernel, Mode::Own, Mode::Atomic];
    all.into_iter().find(|known| *known as u32 == mode).unwrap_or(Mode::Kernel)
}

/// What a mapping is of; ends when its last part does.
pub(crate) struct Source {
    pub(crate) mount: usize,
    pub(crate) ino: Ino,
    pub(crate) generation: u32,
    /// Keeps the file, and the places of its pages where they are mapped themselves.
    hold: Lock<Option<HoldId>>,
    /// What a replica was made of.
    pub(crate) base: Option<Base>,
    /// Where the file's own pages are mapped, what the kernel's mapping can be made of in their place.
    pub(crate) anchor: Option<Anchor>,
    /// The kernel's mapping has taken their place.
    given: AtomicBool,
    /// Parts of it may be stored to, or were; the hold says so too. Set with the hold's lock.
    stores: AtomicBool,
}

impl Source {
    fn of(description: &InUse, hold: HoldId) -> Self {
        Self {
            mount: description.mount(),
            ino: description.ino(),
            generation: description.generation.load(Ordering::Relaxed),
            hold: Lock::new(Some(hold)),
            base: None,
            anchor: None,
            given: AtomicBool::new(false),
            stores: AtomicBool::new(false),
        }
    }

    fn take(&self, fs: &Fs) -> Result<Option<HoldId>, Error> {
        let (ctx, ino) = (ctx(), self.ino);
        let taken = if self.base.is_some() {
            fs.open_hold(&ctx, ino, self.generation)
        } else if self.anchor.is_some() && !self.has_way(fs) {
            self.hold_staying(fs)
        } else if self.anchor.is_some() && giving::can(self.mount) {
            fs.map_hold_giving_way(&ctx, ino, self.generation)
        } else {
            fs.map_hold(&ctx, ino, self.generation)
        }?;
        self.said_to_store(fs, taken)
    }

    /// A hold that says what is so of the parts: that they may be stored to.
    fn said_to_store(&self, fs: &Fs, taken: Option<HoldId>) -> Result<Option<HoldId>, Error> {
        let stores = self.stores.load(Ordering::Relaxed);
        taken.map(|hold| if stores { fs.hold_to_write(hold) } else { Ok(hold) }).transpose()
    }

    /// Says that the program may store to its pages, before it can: whoever syncs the file writes them back then, and
    /// nobody runs it. False where that can't be said.
    pub(crate) fn to_store(&self) -> bool {
        let mut hold = self.hold.lock();
        if self.stores.load(Ordering::Relaxed) {
            return true;
        }
        if let Some(held) = *hold {
            let said = mounts::fs(self.mount).and_then(|fs| fs.hold_to_write(held).ok());
            let Some(said) = said else { return false };
            *hold = Some(said);
        }
        self.stores.store(true, Ordering::Relaxed);
        STORED_TO.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Says that nobody stores to its pages any more, and what was stored is durable. Where it is held again, it is said
    /// anew that it may be stored to.
    pub(crate) fn is_stored(&self) {
        let mut hold = self.hold.lock();
        if let (Some(held), Some(fs)) = (*hold, mounts::fs(self.mount)) {
            *hold = fs.hold_to_read(held).ok().or(*hold);
        }
    }

    /// Whether the kernel's mapping, where one can be made, would show anything.
    pub(crate) fn has_way(&self, fs: &Fs) -> bool {
        self.anchor.as_ref().is_some_and(|anchor| anchor.is_served(fs))
    }

    fn hold_staying(&self, fs: &Fs) -> Result<Option<HoldId>, Error> {
        let hold = fs.map_hold_staying(&ctx(), self.ino, self.generation)?;
        self.anchor.iter().filter(|_| hold.is_some()).for_each(Anchor::leave);
        Ok(hold)
    }

    /// Gives way no more, as far as that is possible now: another hold takes the place of the one that does.
    pub(crate) fn stay(&self, fs: &Fs) {
        let mut hold = self.hold.lock();
        if let Some(before) = *hold
            && let Ok(Some(new)) = self.hold_staying(fs).and_then(|new| self.said_to_store(fs, new))
        {
            *hold = Some(new);
            fs.open_release(&ctx(), before).unwrap_or_default();
        }
    }

    /// Holds the file where that was not possible before. False where it is no more: its number may be another's.
    fn hold_again(&self) -> Result<bool, Ret> {
        let mut hold = self.hold.lock();
        if hold.is_none() {
            let fs = mounts::fs(self.mount).ok_or(fail(libc::EIO))?;
            *hold = self.take(fs).map_err(|error| fail(novale_posix::errno(&error)))?;
        }
        Ok(hold.is_some())
    }

    /// Whether the file is there, held or not.
    pub(crate) fn is_there(&self, fs: &Fs) -> bool {
        let has_number = || fs.getattr(self.ino).is_ok_and(|of| of.generation == self.generation);
        self.hold().is_some() || has_number()
    }

    /// Whether the kernel's mapping has taken the place of the file's own pages.
    pub(crate) fn is_given(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    pub(crate) fn set_given(&self) {
        self.given.store(true, Ordering::Release);
    }

    /// Whether it shows the file's own pages.
    pub(crate) fn is_own(&self) -> bool {
        self.base.is_none() && !self.is_given()
    }

    /// Whether it shows the file's own pages, and can show the kernel's instead.
    pub(crate) fn can_give_way(&self) -> bool {
        let gives = |anchor: &Anchor| !anchor.is_left();
        self.is_own() && self.anchor.as_ref().is_some_and(gives) && self.hold.lock().is_some()
    }

    pub(crate) fn hold(&self) -> Option<HoldId> {
        *self.hold.lock()
    }

    /// Gives the hold up, as there is nothing left to hold.
    pub(crate) fn give_up(&self, fs: &Fs) {
        if let Some(hold) = self.hold.lock().take() {
            fs.open_release(&ctx(), hold).unwrap_or_default();
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.lock().take() {
            mounts::release(self.mount, hold);
        }
        if *self.stores.get_mut() {
            STORED_TO.fetch_sub(1, Ordering::Release);
        }
    }
}

/// A piece of the address space.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// Where in the file it begins, in bytes.
    pub(crate) offset: u64,
    /// What is stored there is for the file.
    pub(crate) shared: bool,
    pub(crate) access: u64,
    /// The program may have stored to the file there: it was writable at some time.
    pub(crate) stored: bool,
    /// It may be made writable: the file is open for that.
    pub(crate) writes: bool,
    /// How much of the file it shows.
    pub(crate) shown: Shown,
    pub(crate) of: Arc<Source>,
    pub(crate) by: Arc<Opening>,
}

impl Part {
    fn end(&self) -> u64 {
        self.start + self.len
    }

    /// Whether another part goes on where this one ends, and differs in nothing else.
    fn goes_on_in(&self, next: &Self) -> bool {
        let like = |part: &Self| (part.shared, part.access, part.stored, part.writes, part.shown);
        (next.start, next.offset) == (self.end(), self.offset + self.len)
            && like(self) == like(next)
            && Arc::ptr_eq(&self.of, &next.of)
            && Arc::ptr_eq(&self.by, &next.by)
    }

    /// Whether it has to be known once it is the kernel's, who would let it be stored to, and to the file: it is private,
    /// or of a descriptor that can't write, where the anchor is of one that can.
    pub(crate) fn stays(&self) -> bool {
        let can_write = || self.of.anchor.as_ref().is_some_and(|anchor| anchor.writes);
        !self.shared || !self.writes && can_write()
    }

    /// Whether the file may get pages that belong there and are not shown yet.
    pub(crate) fn lacks(&self) -> bool {
        self.of.is_own() && self.shown.is_less_than(self.offset + self.len)
    }

    /// The piece of it that lies at a range of addresses.
    pub(crate) fn piece(&self, range: &Range<u64>) -> Option<Self> {
        let (common, offset) = self.within(range)?;
        let len = common.end - common.start;
        Some(Self { start: common.start, len, offset, ..self.clone() })
    }

    /// The pages of the file that it lies over.
    pub(crate) fn pages(&self) -> (&Source, Range<u64>) {
        let first = self.offset / PAGE;
        (&self.of, first..first + self.len.div_ceil(PAGE))
    }

    /// What lies in a range of addresses: addresses, and where that is in the file.
    pub(crate) fn within(&self, range: &Range<u64>) -> Option<(Range<u64>, u64)> {
        let common = self.start.max(range.start)..self.end().min(range.end);
        let offset = self.offset + common.start.saturating_sub(self.start);
        (!common.is_empty()).then_some((common, offset))
    }
}

/// All parts, counted.
pub(crate) struct Maps(Table);

impl Deref for Maps {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.0
    }
}

static MAPS_HERE: Lock<Maps> = Lock::new(Maps(Table::new()));
/// Sources whose pages may be stored to, or were: until their parts have ended, and what was stored is durable.
static STORED_TO: AtomicUsize = AtomicUsize::new(0);
/// How many there are, and of those the replicas, for a look without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static REPLICAS: AtomicUsize = AtomicUsize::new(0);
/// Pieces of the pool in them, at most.
static PIECES: AtomicUsize = AtomicUsize::new(0);

/// The table, where there is anything in it.
pub(crate) fn some() -> Option<Held<'static, Maps>> {
    are_some().then(|| MAPS_HERE.lock())
}

/// The table, whatever is in it.
pub(crate) fn lock() -> Held<'static, Maps> {
    MAPS_HERE.lock()
}

/// Whether any part is a replica, or about to be one.
pub(crate) fn has_replicas() -> bool {
    REPLICAS.load(Ordering::Acquire) > 0
}

/// The table, where any part is a replica. Whoever is making one has the table.
pub(crate) fn with_replicas() -> Option<Held<'static, Maps>> {
    has_replicas().then(lock)
}

/// Counts a replica before its file is read. Who has changed the file before sees the count ([`with_replicas_now`]), or
/// the change is read. With the table's lock.
fn count_coming_replica() {
    REPLICAS.fetch_add(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
}

/// As [`with_replicas`], after a file of a mount was changed.
pub(crate) fn with_replicas_now(mount: usize) -> Option<Held<'static, Maps>> {
    if mode(mount) != Mode::Atomic {
        return None;
    }
    fence(Ordering::SeqCst);
    with_replicas()
}

impl Maps {
    /// Has more shown in the parts that begin there, and notes it.
    pub(crate) fn show_more(&mut self, starts: &[u64], show: impl FnMut(&mut Part)) {
        self.0.show_more(starts, show);
        self.count();
    }

    /// Whether something of a range of addresses is shown by this library, and nothing by the kernel in its place.
    pub(crate) fn are_own(&self, range: &Range<u64>) -> bool {
        self.overlaps(range) && !self.within(range).any(|part| part.of.is_given())
    }

    /// Forgets what lies in a range, which the kernel has unmapped; what ends with it, the caller drops
    /// without the lock.
    #[must_use]
    pub(crate) fn forget(&mut self, range: &Range<u64>) -> Vec<Part> {
        let ended = self.take_out(range);
        self.count();
        ended
    }

    /// The same of several ranges, as one with a part that has come for them.
    #[must_use]
    pub(crate) fn replace(&mut self, ranges: &[Option<Range<u64>>], by: Option<Part>) -> Vec<Part> {
        let ended = ranges.iter().flatten().flat_map(|range| self.take_out(range)).collect();
        if let Some(part) = by {
            self.add(part);
        }
        self.count();
        ended
    }

    /// As [`Maps::forget`], not counted yet: a replica that is coming is counted before it is a part.
    fn take_out(&mut self, range: &Range<u64>) -> Vec<Part> {
        self.0.take_out(range)
    }

    /// Forgets what is not mapped any more in a range, after a call that has failed.
    #[must_use]
    pub(crate) fn forget_gone(&mut self, range: &Range<u64>) -> Vec<Part> {
        let pieces = self.pieces_in(range);
        let gone = pieces.iter().flat_map(|piece| gone(&(piece.start..piece.end())));
        gone.flat_map(|gone| self.forget(&gone)).collect()
    }

    /// Forgets the parts of a source that the kernel's mapping has taken the place of, but for those that stay
    /// ([`Part::stays`]).
    #[must_use]
    pub(crate) fn forget_given(&mut self, source: &Arc<Source>) -> Vec<Part> {
        let given = self.0.take_out_given(source, |part| !part.stays());
        self.count();
        given
    }

    /// Notes what may be done with a range from now on.
    pub(crate) fn set_access(&mut self, range: &Range<u64>, access: u64) {
        self.0.set_access(range, access);
        self.count();
    }

    /// Notes that a range may have become writable in part, by a call that has failed.
    pub(crate) fn may_be_stored_to(&mut self, range: &Range<u64>) {
        self.0.may_be_stored_to(range);
    }

    pub(crate) fn add(&mut self, part: Part) {
        if self.len() == 0 {
            let _one = numbers::lock();
            classes::watch(MAPS, true);
        }
        self.0.add(part);
        self.count();
    }

    /// Says to those who look without the lock how many there are.
    fn count(&self) {
        REPLICAS.store(self.replicas(), Ordering::Release);
        PIECES.store(self.pieces(), Ordering::Relaxed);
        growing::set_lacking(self.lacking());
        COUNT.store(self.len(), Ordering::Release);
    }
}

/// What was put at addresses, from the first one on.
struct Put {
    /// As far as it goes: less than was asked for where something has failed.
    len: u64,
    shown: Shown,
    of: Arc<Source>,
}

/// Whether something is mapped at each of these addresses.
pub(crate) fn is_in_use(at: u64, len: u64) -> bool {
    // The kernel looks for that, and does nothing more.
    sys!(libc::SYS_msync, at, len, libc::MS_ASYNC) == 0
}

/// What of a range is not mapped.
fn gone(range: &Range<u64>) -> Vec<Range<u64>> {
    let pages = (range.end - range.start) / PAGE;
    if pages == 0 || is_in_use(range.start, pages * PAGE) {
        return Vec::new();
    }
    if pages == 1 {
        return vec![range.clone()];
    }
    let half = range.start + pages / 2 * PAGE;
    [gone(&(range.start..half)), gone(&(half..range.end))].concat()
}

/// Maps the file's own pages; nothing where that is not possible, or they could not be given up again
/// when a kernel is to map the file.
pub(crate) fn map_own(fd: i32, description: &InUse, asked: &Asked) -> Option<Ret> {
    // What a program stores to its own copy is in no way to be kept.
    if !asked.shared() && asked.writes() {
        return None;
    }
    // The kernel may keep pages of what is mapped by calls that are not seen here.
    if left::FILES.is_begun() {
        return None;
    }
    let fs = mounts::fs(description.mount())?;
    let (of, beginning) = beginning::source(fs, fd, description)?;
    let mapped = put_own(fs, &of, asked, Opening::of(description))?;
    drop(beginning);
    grew(&of, asked);
    Some(mapped)
}

/// As [`map_own`], for good: where the kernel's pages can't be had.
pub(crate) fn map_own_for_good(description: &InUse, asked: &Asked) -> Option<Ret> {
    let fs = mounts::fs(description.mount())?;
    let generation = description.generation.load(Ordering::Relaxed);
    let hold = fs.map_hold(&ctx(), description.ino(), generation).ok()??;
    let of = Arc::new(Source::of(description, hold));
    show_own(fs, &of, asked, Opening::of(description))
}

/// Maps pages of a file that is held.
fn show_own(fs: &Fs, of: &Arc<Source>, asked: &Asked, by: Arc<Opening>) -> Option<Ret> {
    let mapped = put_own(fs, of, asked, by)?;
    grew(of, asked);
    Some(mapped)
}

/// Another thread may have made a file longer before its mapping was known.
fn grew(of: &Source, asked: &Asked) {
    growing::grew(of.mount, of.ino, asked.offset + asked.len);
}

/// Maps pages as far as the file goes.
fn put_own(fs: &Fs, of: &Arc<Source>, asked: &Asked, by: Arc<Opening>) -> Option<Ret> {
    if asked.shared() && asked.writes() && !of.to_store() {
        return None;
    }
    let hold = (*of.hold.lock())?;
    let runs = runs(fs, hold, &asked.range())?;
    let mapped = place(asked, by, |start| {
        let (shown, len) = show(fs, asked, &runs, start);
        Some(Put { len, shown, of: of.clone() })
    });
    giving::is_known(fs, of);
    mapped
}

/// Maps a replica of the file.
pub(crate) fn map_replica(description: &InUse, asked: &Asked) -> Option<Ret> {
    let fs = mounts::fs(description.mount())?;
    let generation = description.generation.load(Ordering::Relaxed);
    let hold = fs.open_hold(&ctx(), description.ino(), generation).ok()??;
    show_replica(fs, Source::of(description, hold), asked, &Origin::Opened(description))
}

/// What a replica comes from.
enum Origin<'a> {
    Opened(&'a InUse),
    Moved(&'a Part),
}

/// Maps a replica of a file that is held, with what another one has that is not published.
fn show_replica(fs: &Fs, source: Source, asked: &Asked, origin: &Origin<'_>) -> Option<Ret> {
    // What is not shown ends without the lock.
    let mut source = Some(source);
    let by = match origin {
        Origin::Opened(description) => Opening::of(description),
        Origin::Moved(part) => part.by.clone(),
    };
    place(asked, by, |start| {
        count_coming_replica();
        let ino = source.as_ref()?.ino;
        // What a thread closes meanwhile that it has not opened must not be the base's number.
        let (base, aside) = limits::opening(|| {
            let (base, file) = Base::empty((asked.offset, asked.len))?;
            Some((base, Aside::of(&file, asked)?))
        })?;
        base.read(fs, ino)?;
        if let Origin::Moved(part) = origin {
            aside.carry(part, &base)?;
        }
        aside.put(start, asked, fs.getattr(ino).ok()?.size)?;
        let mut source = source.take()?;
        source.base = Some(base);
        Some(Put { len: asked.len, shown: Shown::ALL, of: Arc::new(source) })
    })
}

/// Where the pages of a range of a file lie, as far as the file goes; nothing where they are in too many
/// pieces.
pub(crate) fn runs(fs: &Fs, hold: HoldId, range: &Range<u64>) -> Option<Vec<MappedRun>> {
    if !has_few_holes(fs, hold.ino(), range) {
        return None;
    }
    let (first, pages) = (range.start / PAGE, (range.end - range.start) / PAGE);
    let runs = fs.map_pages(&ctx(), hold, first, pages).ok()?;
    let room = ALL_RUNS_MAX.saturating_sub(PIECES.load(Ordering::Relaxed));
    (runs.len() <= RUNS_MAX.min(room)).then_some(runs)
}

/// Where the bytes of a mapped file from one to another lie in the pool.
pub(crate) fn source_runs(fs: &Fs, hold: HoldId, bytes: Range<u64>) -> Option<Vec<SourceRun>> {
    let first = bytes.start / PAGE;
    let pages = bytes.end.div_ceil(PAGE) - first;
    let runs = fs.map_pages(&ctx(), hold, first, pages).ok()?;
    Some(runs.iter().map(|run| run.bytes(&bytes)).collect())
}

/// Whether little space is taken to fill the holes in a range of a file.
fn has_few_holes(fs: &Fs, ino: Ino, range: &Range<u64>) -> bool {
    if range.end - range.start <= HOLES_MAX {
        return true;
    }
    let Ok(attr) = fs.getattr(ino) else { return true };
    let (mut from, end, mut holes) = (range.start, range.end.min(attr.size), 0);
    // Ends: each turn goes on after a hole.
    for _ in 0..RUNS_MAX {
        let Ok(hole) = fs.seek(ino, from, Seek::Hole) else { return true };
        if hole >= end {
            return true;
        }
        let data = fs.seek(ino, hole, Seek::Data).unwrap_or(end).min(end);
        holes += data - hole;
        if holes > HOLES_MAX {
            return false;
        }
        from = data;
    }
    false
}

/// Puts pages of the pool at addresses, and nothing where the file has none yet. Returns how far it came, too, in bytes.
fn show(fs: &Fs, asked: &Asked, runs: &[MappedRun], start: u64) -> (Shown, u64) {
    let Range { start: from, end } = asked.range();
    let put = show_runs(fs, asked, runs, start);
    let shown = Shown::new(from).with(runs.get(..put).unwrap_or_default());
    let len = shown.end - from;
    if put < runs.len() {
        return (shown, len);
    }
    let behind = || growing::put_nothing(start + len, end - shown.end, asked.access);
    let is_whole = shown.end >= end || behind().is_some();
    (shown, if is_whole { asked.len } else { len })
}

/// Puts pages of the pool where they belong in a mapping that begins at `start`. Returns how many of the runs are there.
fn show_runs(fs: &Fs, asked: &Asked, runs: &[MappedRun], start: u64) -> usize {
    let kind = if asked.shared() { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
    let flags = asked.flags_of_piece(kind);
    let put = |run: &&MappedRun| {
        let Some(file) = fs.pm().slot_file(run.addr.slot()) else { return false };
        let to = start + (run.file_page * PAGE - asked.offset);
        let (len, fd, from) = (run.pages * PAGE, file.as_raw_fd(), run.addr.byte());
        sys!(libc::SYS_mmap, to, len, asked.access, flags, fd, from) >= 0
    };
    runs.iter().take_while(put).count()
}

/// Shows more of the file in a part.
pub(crate) fn show_behind(fs: &Fs, part: &Part, runs: &[MappedRun]) -> Option<()> {
    let asked = Asked::of_part(part, (0, 0), part.len);
    (show_runs(fs, &asked, runs, part.start) == runs.len()).then_some(())
}

/// Chooses addresses, has something put there, and notes it. What was there before has ended. Where not all of it can
/// be put there, what was is taken away again, and nothing else.
fn place(asked: &Asked, by: Arc<Opening>, put: impl FnOnce(u64) -> Option<Put>) -> Option<Ret> {
    let mut maps = MAPS_HERE.lock();
    let reserved = match asked.may_lock().and_then(|()| asked.reserve()) {
        Ok(reserved) => reserved,
        Err(failed) => return Some(failed),
    };
    let start = reserved.start;
    let range = start..start + asked.len;
    let unpublished = lost::in_ranges(&maps, [&range]);
    let put = put(start);
    let done = put.as_ref().map_or(0, |put| put.len);
    let (is_whole, own) = (done == asked.len, done.max(reserved.len));
    // What can't be taken away again, as at a limit of the kernel's list, is held for as long as it is there.
    let stays = is_whole || own > 0 && sys!(libc::SYS_munmap, start, own) != 0;
    let mut ended = maps.take_out(&(start..start + done));
    if !is_whole {
        // What the kernel has failed to put there may have ended what was.
        ended.extend(maps.forget_gone(&range));
    }
    if let Some(Put { len, shown, of }) = put.filter(|put| stays && put.len > 0) {
        let Asked { offset, access, file_writes: writes, .. } = *asked;
        let (shared, stored) = (asked.shared(), asked.shared() && asked.writes() || asked.stored);
        maps.add(Part { start, len, offset, shared, access, stored, writes, shown, of, by });
    } else {
        maps.count();
    }
    times::note_stores(&ended);
    drop(maps);
    if is_whole {
        unpublished.tell();
    }
    drop(ended);
    is_whole.then_some(start.cast_signed())
}

/// Maps what a part shows at another place, or more of it.
pub(crate) fn map_again(part: &Part, place_at: (u64, i32), len: u64) -> Option<Ret> {
    let fs = mounts::fs(part.of.mount)?;
    let asked = Asked::of_part(part, place_at, len);
    if part.of.base.is_none() {
        return show_own(fs, &part.of, &asked, part.by.clone());
    }
    let hold = fs.open_hold(&ctx(), part.of.ino, part.of.generation).ok()??;
    let Source { mount, ino, generation, .. } = *part.of;
    let (hold, given, stores) =
        (Lock::new(Some(hold)), AtomicBool::new(false), AtomicBool::new(false));
    let source = Source { mount, ino, generation, hold, base: None, anchor: None, given, stores };
    show_replica(fs, source, &asked, &Origin::Moved(part))
}

/// Writes back what was stored in mapped pages of a range of addresses; false where that fails.
pub(crate) fn flush(maps: &Maps, range: &Range<u64>) -> bool {
    let pieces: Vec<Part> = maps
        .within(range)
        .filter_map(|part| part.piece(range))
        .filter(|part| part.shared)
        .collect();
    times::write_back(pieces.iter().filter(|part| part.of.is_own()).map(Part::pages))
}

/// Writes back what this process has stored in its mappings of a file.
pub(crate) fn flush_file(mount: usize, ino: Ino) -> bool {
    if STORED_TO.load(Ordering::Acquire) == 0 {
        return true;
    }
    // A thread that has taken parts out has the lock until what was stored there is durable.
    let maps = lock();
    // Their access may have been taken away since.
    times::note_stores(maps.sources_of((mount, ino)).flat_map(|of| maps.of_source(of)))
}

/// The process is about to end.
pub(crate) fn end() {
    if let Some(maps) = some() {
        lost::in_ranges(&maps, [&(0..u64::MAX)]).tell();
        if are_in_use() {
            times::note_stores(maps.parts());
        } else {
            times::end_stores(&maps);
        }
    }
    lost::tell_rest();
}

/// Whether anything is mapped here.
pub(crate) fn are_some() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

/// Whether another thread may still store to what is mapped.
pub(crate) fn are_in_use() -> bool {
    COUNT.load(Ordering::Acquire) > 0 && helper::has_other_threads()
}
