//! Mending a damaged pool: what can be mended without a guess, and on demand what can't.
//!
//! Comes in: a pool that nobody else has open, and how far to go. Goes out: each change, and what is
//! left. Called by `novale check --repair`, and on a scratch mapping for its dry run. The steps, and
//! why a crash between any two of them loses nothing, are in docs/DESIGN.md, "Repair": `gather` reads
//! everything, `tables` and `words` put the inode directory right, `salvage` gives each damaged inode a
//! state that stands, `tree` decides on names and links, `amend` carries that out, `write` has the
//! stores. Never in here: an allocation while anything is damaged of which the owner is not known, but
//! what a salvage needs.

mod amend;
mod gather;
mod lost;
mod names;
mod salvage;
mod tables;
mod tree;
mod words;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use novale_layout::{Ino, PmAddr, PoolState, RoFeature, Roots};
use novale_pm::{Flushed, Pm, Purpose};

use crate::base::error::Result;
use crate::base::exec::{Executor, Progress};
use crate::life::{open, saved};
use crate::offline::check::{CheckReport, check, features_of};
use crate::offline::repair::gather::{Gathered, gather};
pub use crate::offline::repair::lost::give_up_slot;
use crate::pool::Pool;
use crate::seeded::{self, Bug};

/// Rounds of salvaging: an inode may be cut at its log first, and lose its attributes then.
const ROUNDS_MAX: usize = 8;

/// How far a repair goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Only what needs no guess and loses nothing. A pool with other damage is left as it is.
    Safe,
    /// Damaged inodes too: what can be read of them is kept, the rest is given up.
    Salvage,
}

/// A change of a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Where the structure lies; null where it has no one place.
    pub at: PmAddr,
    /// What was wrong, and what was done.
    pub what: String,
    /// It gave something up, or was a guess.
    pub is_loss: bool,
}

/// What a repair did.
#[derive(Debug, Clone, Default)]
pub struct RepairReport {
    /// The changes, in order.
    pub changes: Vec<Change>,
    /// Of the damage that keeps a [`Effort::Safe`] repair from changing anything: each in words.
    pub needs_salvage: Vec<String>,
    /// Damage that no repair can do anything about, and that keeps it from changing anything.
    pub beyond: Vec<String>,
    /// What a check finds after the repair.
    pub left: CheckReport,
}

/// A piece of a damaged inode, to be kept elsewhere before anything is given up.
#[derive(Debug)]
pub struct SavedPiece<'a> {
    /// Whose it is.
    pub ino: Ino,
    /// Where it lies.
    pub at: PmAddr,
    /// What is there, as it is.
    pub bytes: &'a [u8],
}

/// What a repair asks of its caller.
pub struct Help<'a> {
    /// Runs tasks.
    pub exec: &'a dyn Executor,
    /// Is told how far a pass is.
    pub progress: &'a (dyn Fn(Progress) + Sync),
    /// Keeps a piece elsewhere, durably; an error ends the repair before anything is given up.
    pub keep: &'a mut dyn FnMut(&SavedPiece<'_>) -> std::result::Result<(), String>,
    /// The time, ns since 1970: of a lost+found that is made.
    pub now_ns: i64,
    /// Who repairs, user and group: what others may have no right to any more becomes theirs.
    pub owner: (u32, u32),
}

impl std::fmt::Debug for Help<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Help").field("now_ns", &self.now_ns).finish_non_exhaustive()
    }
}

/// Mends a pool. A pool that a check finds sound is not touched.
///
/// # Errors
/// [`crate::Error::BadPool`] and [`crate::Error::Damaged`] where too little can be read to repair the
/// rest; [`crate::Error::NoSpace`] where a repair needs more pages than are free: it can be run again
/// then, as after a crash; [`crate::Error::NotKept`] where a piece could not be kept.
pub fn repair(pm: &Pm, effort: Effort, help: &mut Help<'_>) -> Result<RepairReport> {
    let before = check(pm, help.exec, help.progress)?;
    let mut this = Repair::new(pm, help);
    if before.findings.is_empty() {
        return Ok(RepairReport { left: before, ..RepairReport::default() });
    }
    let mut pool = Pool::read(pm)?;
    pool.check_writable()?;
    pool.check_numbers()?;
    // Who stored the lines that stand may have died before its fence.
    pm.fence(pool.write_back(pm)).end();
    // Where the tables are follows from the format: the superblock says it again.
    pool.superblock.roots = Roots::fixed();
    let all = this.gather(&pool)?;
    let all = this.restore_tables(&pool, all)?;
    let all = this.restore_words(&pool, all)?;
    let beyond = all.beyond(this.pm);
    let mut needs_salvage: Vec<String> = all.damage().map(ToString::to_string).collect();
    needs_salvage.extend(words::wrong_words(pm, &pool, &all).into_iter().map(|word| {
        let (first, last) = (word.first, word.last());
        format!("word {} of the inode directory names no inodes {first} to {last}", word.at)
    }));
    if !beyond.is_empty() || (effort == Effort::Safe && !needs_salvage.is_empty()) {
        let changes = this.changes;
        let left = if changes.is_empty() { before } else { check(pm, help.exec, help.progress)? };
        return Ok(RepairReport { changes, needs_salvage, beyond, left });
    }
    // Before any store: a file may have what is a copy's place, by a header that says so.
    let pages_held = this.held(&all)?;
    this.copies(&mut pool)?;
    let rest = check(pm, this.help.exec, this.help.progress)?;
    if !rest.findings.is_empty() {
        this.mend(&mut pool, all, &pages_held)?;
    }
    let changes = this.changes;
    let left = check(pm, help.exec, help.progress)?;
    Ok(RepairReport { changes, left, ..RepairReport::default() })
}

/// What pages of files held when a repair began.
type HeldPages = BTreeMap<(Ino, u64), Vec<u8>>;

struct Repair<'a, 'h> {
    pm: &'a Pm,
    changes: Vec<Change>,
    help: &'a mut Help<'h>,
    /// Where the pieces lay that were kept elsewhere, before anything was stored there.
    kept: BTreeSet<PmAddr>,
    /// The inodes whose state may be an older one: one of their lines was torn, or they were cut at damage.
    older: BTreeSet<Ino>,
}

impl<'a, 'h> Repair<'a, 'h> {
    fn new(pm: &'a Pm, help: &'a mut Help<'h>) -> Self {
        Self { pm, changes: Vec::new(), help, kept: BTreeSet::new(), older: BTreeSet::new() }
    }
}

impl Repair<'_, '_> {
    fn gather(&mut self, pool: &Pool) -> Result<Gathered> {
        gather(self.pm, pool, &BTreeMap::new(), self.help.exec, self.help.progress)
    }

    fn changed(&mut self, at: PmAddr, what: impl Into<String>) {
        self.changes.push(Change { at, what: what.into(), is_loss: false });
    }

    fn lost(&mut self, at: PmAddr, what: impl Into<String>) {
        self.changes.push(Change { at, what: what.into(), is_loss: true });
    }

    /// Rewrites copies. What a header says of its slot's length may lead to another copy.
    fn copies(&mut self, pool: &mut Pool) -> Result<()> {
        for _ in 0..ROUNDS_MAX {
            for bad in &pool.bad_copies {
                let (at, what) = (bad.at, format!("{bad}; rewritten from it"));
                self.changes.push(Change { at, what, is_loss: false });
            }
            if pool.bad_copies.is_empty() {
                break;
            }
            pool.repair_copies(self.pm);
            *pool = Pool::read(self.pm)?;
        }
        if Pool::read(self.pm)?.superblock.roots != Roots::fixed() {
            pool.set_roots(self.pm);
            let what = "the superblock names no tables but those that there are";
            self.changed(PmAddr::new(0, 0), what);
        }
        Ok(())
    }

    /// The steps after the copies, each of which leaves a pool that the whole can be run on again.
    fn mend(&mut self, pool: &mut Pool, mut all: Gathered, held: &HeldPages) -> Result<()> {
        all.write_back(self.pm, self.help.exec, self.help.progress);
        let torn = all.inodes.values().filter(|inode| inode.is_torn);
        self.older.extend(torn.map(|inode| inode.ino));
        let root = pool.state.saved_root;
        if pool.is_clean() && !root.is_null() {
            // From here on each opening scans, and with damage refuses to write.
            pool.write_state(self.pm, saved::without(pool));
            self.changed(root, "the saved allocator is left out: the next opening scans");
        }
        for _ in 0..ROUNDS_MAX {
            if !self.salvage(pool, &mut all)? {
                break;
            }
            all = self.gather(pool)?;
        }
        if let Some(error) = all.damage().next() {
            return Err(error.clone());
        }
        self.move_lanes(pool, &all)?;
        self.recover(pool, &all)?;
        let mut all = self.gather(pool)?;
        self.separate(pool, &mut all, held)?;
        self.amend(pool, &mut all)?;
        self.say_features(pool, &all);
        let clean = PoolState { flags: PoolState::CLEAN, ..pool.state };
        if seeded::is_on(Bug::RepairLineNotFenced) {
            // The fences by which a session begins would make the lines durable.
            pool.write_state(self.pm, clean);
            return Ok(());
        }
        pool.next_session(self.pm, Flushed::none(), clean)
    }

    /// Lets the superblock say which features inodes use.
    fn say_features(&mut self, pool: &mut Pool, all: &Gathered) {
        let used = all
            .inodes
            .values()
            .map(|inode| features_of(inode.xattr_root(), inode.project()) | inode.features);
        let unsaid = used.fold(0, |all, one| all | one) & !pool.superblock.features_ro_compat;
        for feature in RoFeature::ALL {
            if unsaid & feature.bit() != 0 {
                pool.set_feature(self.pm, feature);
                let what = format!("the superblock says that the feature {feature:?} is used");
                self.changed(PmAddr::new(0, 0), what);
            }
        }
    }

    /// What recovery does to a pool after a crash: the session that begins is one in which lines may
    /// be torn. Pages with two owners, which recovery refuses, are no hindrance: nothing is allocated
    /// before both have been read.
    fn recover(&mut self, pool: &mut Pool, all: &Gathered) -> Result<()> {
        let was_clean = pool.is_clean();
        let installed = open::settle_for_repair(
            self.pm,
            pool,
            &all.entangled,
            self.help.exec,
            self.help.progress,
        )?;
        if !was_clean {
            self.changed(PmAddr::NULL, "recovered, as the next mount would have done");
        }
        pool.raise_session(self.pm, installed)
    }

    /// Writes a word of the inode directory, durably.
    fn store_word(&self, at: PmAddr, word: PmAddr) {
        let stored = self.pm.store_u64(at, word.raw(), Purpose::Inode);
        self.pm.fence(self.pm.write_back(stored)).end();
    }
}
