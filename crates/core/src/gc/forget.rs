//! Dropping views that nobody has used lately, when the arena holds more than is wanted.
//!
//! CLOCK eviction: each operation that begins under pressure, before it has any lock, sweeps a few views
//! and drops the contents (page index, name table) of those not used since the last sweep, or of others
//! where there are none. One before which memory was refused sweeps many. The next user builds them again
//! from the log. The block goes too, unless the inode is held or is a directory, whose parent the block
//! alone knows.
//!
//! Readers have no lock: they see the counter move, or a block that is another inode's or nobody's.
//! Blocks are used again for views alone, keep their counter and their lock word, and say whose they
//! are only when they can be found. A client that locked a block that had been dropped sees that it is
//! not what it sought, and seeks again.
//!
//! Death. The record says that the operation loads, and nothing else. Until the number is taken off the
//! block, settling finds an inode that was locked, judges it and drops the rest of its view; from then
//! on a lock like any other. A block that is in the tables and nobody's is given its number by the next
//! who looks for it; one that is in no table and not given back is lost until the arena goes.

use std::sync::atomic::Ordering;

use novale_arena::Op;
use novale_layout::{FileKind, Ino};

use crate::base::error::Result;
use crate::base::extent::Extent;
use crate::fs::Fs;
use crate::inode::view::{VIEW_CLASS, View};
use crate::op::call::OpKind;
use crate::op::load;
use crate::space::failed::{failed_slots, is_lost};

/// Views that one operation looks at, at most.
const VIEWS_A_STEP: usize = 32;
/// Views of which one operation drops the contents, at most.
const DROPS_A_STEP: usize = 8;
/// Views that one looks at after memory was refused, at most, and which part of all memory it gives back then.
const VIEWS_AT_ONCE: usize = 1024;
const FREED_PART: u64 = 64;
/// What the index of an inode takes for each page that it names, about: a word in a node of 64.
const INDEX_BYTES_A_PAGE: u64 = 9;

/// How far one goes.
struct Sweep {
    /// Views that are looked at, at most.
    views: usize,
    /// Those that are dropped, at most.
    drops: usize,
    /// Bytes that are wanted.
    bytes: u64,
    /// Those that were used lately go, too.
    used_too: bool,
}

/// What became of a view that was to be dropped.
enum Forgotten {
    /// About how many bytes it gave back; 0: it stays.
    Bytes(u64),
    /// It stays as long as the file has pairs.
    Paired(Ino),
}

impl Fs {
    /// Drops some views, those that nobody has used lately first. What can't be dropped now stays: a
    /// caller that comes to read has no use for the reason.
    #[cold]
    pub(crate) fn forget_some(&self, hint: u32) {
        // Pairs are of files that are loaded: the next round drops these.
        for ino in self.forget_unpaired(hint) {
            // Who needs the file is told what is wrong with it.
            let _damage = self.unpair_file(hint, ino);
        }
    }

    /// Drops views that nobody has used lately, after memory was refused: what is free may be of other kinds of blocks.
    #[cold]
    pub(crate) fn forget_unused(&self, hint: u32) {
        let bytes = self.arena().max_bytes() / FREED_PART;
        let sweep = Sweep { views: VIEWS_AT_ONCE, drops: usize::MAX, bytes, used_too: false };
        let mut paired = Vec::new();
        self.forget_round(&self.op(OpKind::Load, hint), &sweep, &mut paired);
        for ino in paired {
            let _damage = self.unpair_file(hint, ino);
        }
    }

    /// Drops some views, but for files with pairs, which it returns. Its record is free afterwards: what
    /// takes pairs apart has one of its own.
    fn forget_unpaired(&self, hint: u32) -> Vec<Ino> {
        let op = self.op(OpKind::Load, hint);
        // Where all have been used since the hand came by, some go all the same: what is taken beyond
        // what is wanted would rise for ever.
        let mut paired = Vec::new();
        let bytes = self.arena().pressure();
        let mut sweep = Sweep { views: VIEWS_A_STEP, drops: DROPS_A_STEP, bytes, used_too: false };
        if self.forget_round(&op, &sweep, &mut paired) == 0 && paired.is_empty() {
            sweep.used_too = true;
            self.forget_round(&op, &sweep, &mut paired);
        }
        paired
    }

    /// Looks at some views and drops of them what is asked for; returns how many. Files with pairs stay,
    /// and go to `paired`.
    fn forget_round(&self, op: &Op<'_>, sweep: &Sweep, paired: &mut Vec<Ino>) -> usize {
        let (mut dropped, mut freed) = (0, 0);
        let _stopped = self.views.visit_some(self.arena(), sweep.views, &mut |view| {
            if view.take_touched() && !sweep.used_too {
                return false;
            }
            match self.forget_view(op, &view) {
                Ok(Forgotten::Bytes(bytes)) => {
                    dropped += usize::from(bytes > 0);
                    freed += bytes;
                    dropped == sweep.drops || freed >= sweep.bytes
                }
                Ok(Forgotten::Paired(ino)) => {
                    paired.push(ino);
                    paired.len() >= DROPS_A_STEP
                }
                Err(_) => true,
            }
        });
        dropped
    }

    /// Whether a view has pairs that are to be known as long as the pool is written to.
    fn keeps_pairs(&self, view: &View<'_>) -> Result<bool> {
        let is_file = view.kind() == Some(FileKind::File);
        Ok(is_file && !self.options.read_only && view.is_paired(self.arena())?)
    }

    fn is_in_failed_slot(&self, ino: Ino) -> Result<bool> {
        let arena = self.arena();
        Ok(failed_slots(arena) != 0 && is_lost(arena, self.place(ino)?.addr))
    }

    /// Drops a view that nobody has locked.
    fn forget_view(&self, op: &Op<'_>, view: &View<'_>) -> Result<Forgotten> {
        const STAYS: Forgotten = Forgotten::Bytes(0);
        let ino = view.ino();
        let Some(_guard) = op.try_lock(view.lock_off())? else { return Ok(STAYS) };
        if !ino.is_valid() || view.ino() != ino || view.is_buffered() {
            return Ok(STAYS);
        }
        let held = view.holds().load(Ordering::Relaxed) > 0;
        let mut bytes = 0;
        if view.kind().is_some() {
            // One without names goes with its last hold, and what is parked with the last mapping. Where a commit has
            // met the failure of its slot the view alone says which.
            if view.nlink() == 0 || view.has_parked() || self.is_in_failed_slot(ino)? {
                return Ok(STAYS);
            }
            if self.keeps_pairs(view)? {
                return Ok(Forgotten::Paired(ino));
            }
            let spare = view.spare();
            if spare.pages > 0 {
                view.set_spare(Extent::default());
                self.allocator.give_extent(self.arena(), op, spare)?;
            }
            let names = if view.was_directory() { view.names().len() } else { 0 };
            bytes += (view.data_pages() + names * 2) * INDEX_BYTES_A_PAGE;
            load::forget(self.arena(), view)?;
            bytes += 1;
        }
        if !held && !view.was_directory() {
            if view.has_old_blocks() {
                self.give_buffer(view)?;
            }
            self.views.remove(self.arena(), op, ino, view)?;
            bytes += VIEW_CLASS.bytes();
        }
        Ok(Forgotten::Bytes(bytes))
    }
}
