//! Room that is on its way: of inodes without names that somebody still holds.
//!
//! A file that was removed keeps its pages until the last who holds it gives it up. Of a kernel that is
//! a moment later than its program's `close` or `unlink` has returned, so that who fills a file system
//! to the last page, removes a file and writes the next one would meet a full one. A client that finds no
//! room therefore asks whether some is on its way, and tries again when it has come.
//!
//! Two words of the arena count the inodes that stayed so, and those of them that have gone since. They
//! are a hint: a client that dies between a change and its count leaves them wrong, and one may hold a
//! removed file for as long as it likes. So nobody waits for longer than he says, and nobody again
//! where it was in vain and no further inode has lost its names since.
//!
//! Pages with two copies ([`crate::write::paired`]) are room as well, at once: a copy of each goes back. So are pages
//! that are reserved for what is buffered ([`crate::write::buffered`]): as many as each file may take at most, which are
//! several times what it takes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use novale_arena::AtomicU64;

use crate::base::types::Ctx;
use crate::fs::Fs;
use crate::inode::pairs::pair_count;
use crate::map::write_back::WriteBack;

// Words of the arena's root block.
const KEPT: usize = 28;
const FREED: usize = 29;
/// Those who sleep until the word before changes, dead ones included.
const SLEEPERS: usize = 30;

/// Where somebody stands who waits for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoomTurn {
    kept: u64,
    freed: u32,
    /// Free pages that are neither of the reserve nor reserved.
    available: u64,
}

/// Where there is too little room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Short {
    /// In the pool.
    Pool,
    /// In the limits of a directory tree, of which no file is buffered.
    Tree,
}

/// The half of a word that a sleeper compares.
fn low(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0)
}

impl Fs {
    fn kept(&self) -> &AtomicU64 {
        &self.arena().root()[KEPT]
    }

    fn freed(&self) -> &AtomicU64 {
        &self.arena().root()[FREED]
    }

    fn sleepers(&self) -> &AtomicU64 {
        &self.arena().root()[SLEEPERS]
    }

    /// An inode without names stays, since it is held.
    pub(crate) fn note_kept(&self) {
        self.kept().fetch_add(1, Ordering::Relaxed);
    }

    /// One that stayed so has got a name.
    pub(crate) fn note_named(&self) {
        self.kept().fetch_sub(1, Ordering::Relaxed);
    }

    /// One that stayed so is gone, and its pages are free.
    pub(crate) fn note_freed(&self) {
        self.freed().fetch_add(1, Ordering::AcqRel);
        if self.sleepers().load(Ordering::Relaxed) != 0 {
            novale_arena::wake_all(self.freed());
        }
    }

    /// What [`Fs::wait_for_room`] is to be told, before one tries again; none where no room is on its
    /// way, as far as is known.
    #[must_use]
    pub fn room_turn(&self) -> Option<RoomTurn> {
        let freed = self.freed().load(Ordering::Acquire);
        let kept = self.kept().load(Ordering::Relaxed);
        let in_vain = self.in_vain.kept.load(Ordering::Relaxed) == kept;
        let turn = RoomTurn { kept, freed: low(freed), available: self.available() };
        let pairs = pair_count(self.arena());
        let in_vain_now = self.in_vain.pairs.load(Ordering::Relaxed);
        let is_paired = pairs > 0 && pairs != in_vain_now;
        let reserved = self.reserved_for_buffer();
        let is_buffered = reserved > 0 && reserved != self.in_vain.reserved.load(Ordering::Relaxed);
        let may_change = !self.options.read_only;
        (kept != freed && !in_vain || (is_paired || is_buffered) && may_change).then_some(turn)
    }

    /// Pages that are reserved for what is buffered; none where the arena can't tell.
    fn reserved_for_buffer(&self) -> u64 {
        self.allocator.pages_reserved(self.arena()).unwrap_or(0)
    }

    fn available(&self) -> u64 {
        let free = self.allocator.pages_unclaimed(self.arena()).unwrap_or(0);
        free.saturating_sub(self.allocator.reserve() + self.reserved_for_buffer())
    }

    /// Writes back all that is buffered; says whether anything was.
    fn flush_for_room(&self) -> bool {
        let before = self.reserved_for_buffer();
        if before == 0 || self.options.read_only {
            return false;
        }
        // What is wrong with a file is told to those who use it: here there is one who wants room.
        let written = self.write_back(&Ctx { now_ns: 0, hint: 0 }, WriteBack::ALL);
        let files = written.map_or(0, |written| written.files);
        let is_in_vain = files == 0 && self.reserved_for_buffer() == before;
        self.in_vain.reserved.store(if is_in_vain { before } else { 0 }, Ordering::Relaxed);
        files > 0
    }

    /// Writes back what is buffered, or takes pages with two copies apart, unless others have made room in such a way
    /// since `turn`; where there is nothing of that, sleeps until an inode that was held has
    /// gone since `turn`, `timeout` at most. Says whether there is room. The caller has no lock.
    pub fn wait_for_room(&self, turn: RoomTurn, short: Short, timeout: Duration) -> bool {
        let has_grown = || self.available() > turn.available;
        let of_pool = || self.flush_for_room() || has_grown();
        if short == Short::Pool && of_pool() || self.unpair_for_room() {
            return true;
        }
        let freed = self.freed();
        self.sleepers().fetch_add(1, Ordering::AcqRel);
        novale_arena::sleep_while(freed, turn.freed, timeout);
        self.sleepers().fetch_sub(1, Ordering::AcqRel);
        let came = freed.load(Ordering::Acquire);
        let came = low(came) != turn.freed;
        if !came {
            self.in_vain.kept.store(turn.kept, Ordering::Relaxed);
        }
        came
    }
}
