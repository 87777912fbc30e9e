//! Taking keys out of the radix map, and freeing the nodes that this empties.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::node::{
    HEIGHT_MAX, KEY_MAX, PARENT_WORDS, PairsLeaf, Root, SLOTS, beside, bits, covers, index,
    key_count, node, run_word, slot,
};
use super::{PairRef, Radix, forget_run, leaf_at, leaf_of, note_twin, pair_in};
use crate::base::error::BadOffset;
use crate::base::off::{Off, at, to_usize};
use crate::memory::arena::Arena;

impl Radix<'_> {
    /// Removes `key`, or its reservation, and gives its value, 0 if there was none. Nodes that
    /// this empties are freed.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    pub fn remove(self, arena: &Arena, key: u64) -> Result<u64, BadOffset> {
        let mut old = 0;
        self.remove_range(arena, key, key.saturating_add(1), &mut |_, value| {
            old = value;
        })?;
        Ok(old)
    }

    /// Removes a key of a map of pairs, or its reservation, and gives its value and the word beside it, 0
    /// where there was none. As [`Radix::remove`], at the price of finding it where its node stays.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    pub fn remove_pair(self, arena: &Arena, key: u64) -> Result<(u64, u64), BadOffset> {
        let Root::Node { off, height } = self.root() else { return Ok((0, 0)) };
        if !covers(height, key) {
            return Ok((0, 0));
        }
        let Some(leaf) = leaf_at(arena, off, height, key)? else { return Ok((0, 0)) };
        let leaf: PairsLeaf<'_> = arena.block(leaf)?;
        let PairRef { value, word } = pair_in(leaf, key);
        let old = (value.load(Relaxed), word.load(Relaxed));
        // The slot first: a slot in use always has its bit.
        value.store(0, Release);
        word.store(0, Release);
        let left = leaf[0].load(Relaxed) & !(1 << index(key, 0));
        leaf[0].store(left, Release);
        if left == 0 {
            self.remove_range(arena, key, key.saturating_add(1), &mut |_, _| ())?;
        }
        Ok(old)
    }

    /// Removes all keys in `from..to`, and reservations, giving each key with its value to
    /// `removed`, in order. Nodes that this empties are freed.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    pub fn remove_range(
        self,
        arena: &Arena,
        from: u64,
        to: u64,
        removed: &mut dyn FnMut(u64, u64),
    ) -> Result<(), BadOffset> {
        match self.root() {
            Root::Empty => {}
            Root::Value(value) => {
                if from == 0 && to > 0 {
                    self.publish(Root::Empty);
                    removed(0, value);
                }
            }
            Root::Node { off, height } => {
                let end = to.min(key_count(height));
                if from < end {
                    let range = Range { map: self, arena, first: from, last: end - 1 };
                    range.remove(off, height - 1, 0, removed)?;
                    self.shrink(arena)?;
                }
            }
        }
        Ok(())
    }

    /// Frees a root that is empty, and roots that have but one child, for the first keys.
    fn shrink(self, arena: &Arena) -> Result<(), BadOffset> {
        for _ in 0..HEIGHT_MAX {
            let Root::Node { off, height } = self.root() else {
                return Ok(());
            };
            let root = node(arena, off)?;
            let child = root[SLOTS].load(Relaxed);
            match root[0].load(Relaxed) {
                0 => self.publish(Root::Empty),
                1 if height > 1 && child != 0 => {
                    self.publish(Root::Node { off: Off::from_raw(child), height: height - 1 });
                }
                _ => return Ok(()),
            }
            if height == 1 {
                self.forget_leaf(arena, 0)?;
            }
            arena.free(self.class_of(height - 1), off);
        }
        Ok(())
    }

    /// Has the map of pages that this belongs to forget where the leaf for `key` is, before that goes.
    fn forget_leaf(self, arena: &Arena, key: u64) -> Result<(), BadOffset> {
        self.pages.map_or(Ok(()), |pages| note_twin(arena, pages, key, Off::NULL))
    }

    /// Takes a key's value away and keeps its node, so that readers who do not validate what they
    /// find never meet a node that is used again. For maps that are not of pages: no leaf is a run.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    pub fn vacate(self, arena: &Arena, key: u64) -> Result<(), BadOffset> {
        match self.root() {
            Root::Value(_) if key == 0 => self.publish(Root::Empty),
            Root::Node { off, height } if covers(height, key) => {
                if let Some(leaf) = leaf_of(arena, off, height, key)? {
                    slot(leaf, key, 0).store(0, Release);
                }
            }
            Root::Empty | Root::Value(_) | Root::Node { .. } => {}
        }
        Ok(())
    }

    /// Removes everything and frees all nodes.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    pub fn clear(self, arena: &Arena) -> Result<(), BadOffset> {
        self.remove_range(arena, 0, KEY_MAX + 1, &mut |_, _| ())
    }
}

/// Keys `first` to `last` of a tree, to be removed.
struct Range<'a> {
    map: Radix<'a>,
    arena: &'a Arena,
    first: u64,
    last: u64,
}

impl Range<'_> {
    /// Removes the range's part of the node at `off`, whose first key is `base`; says whether the
    /// node is empty then. Calls itself once a level, at most.
    fn remove(
        &self,
        off: Off,
        level: u32,
        base: u64,
        removed: &mut dyn FnMut(u64, u64),
    ) -> Result<bool, BadOffset> {
        let node = node(self.arena, off)?;
        let span = key_count(level);
        let from = self.first.saturating_sub(base) / span;
        let to = ((self.last - base) / span).min(63);
        let mut left = node[0].load(Relaxed) & bits(to_usize(from), to_usize(to));
        while left != 0 {
            let index = left.trailing_zeros();
            left &= left - 1;
            let base = base + u64::from(index) * span;
            let slot = at(node, SLOTS + index as usize);
            let held = slot.load(Relaxed);
            let child = Off::from_raw(held);
            if level == 1 {
                forget_run(Some(run_word(self.arena.block::<PARENT_WORDS>(off)?, base)));
            }
            let emptied =
                level == 0 || held == 0 || self.remove(child, level - 1, base, removed)?;
            if !emptied {
                continue;
            }
            // The slot first: a slot in use always has its bit.
            slot.store(0, Release);
            if level == 0 && self.map.pages.is_some() {
                beside(self.arena.block(off)?, base).store(0, Release);
            }
            node[0].store(node[0].load(Relaxed) & !(1 << index), Release);
            if held != 0 && level == 0 {
                removed(base, held);
            } else {
                if level == 1 {
                    self.map.forget_leaf(self.arena, base)?;
                }
                self.arena.free(self.map.class_of(level.saturating_sub(1)), child);
            }
        }
        Ok(node[0].load(Relaxed) == 0)
    }
}
