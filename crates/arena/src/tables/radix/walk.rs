//! Finding the next key or gap of the radix map.

use std::sync::atomic::Ordering::Acquire;

use super::node::{
    HEIGHT_MAX, KEY_MAX, NODE, Root, SLOTS, bits, covers, index, key_count, node, slot,
};
use super::{Radix, leaf_of};
use crate::base::error::BadOffset;
use crate::base::off::{Off, at};
use crate::memory::arena::Arena;

impl Radix<'_> {
    /// The smallest key at or above `from` that is mapped, with its value.
    ///
    /// # Errors
    /// [`BadOffset`]: damage, or a writer at work.
    pub fn next(self, arena: &Arena, from: u64) -> Result<Option<(u64, u64)>, BadOffset> {
        let (off, height) = match self.root() {
            Root::Empty => return Ok(None),
            Root::Value(value) => return Ok((from == 0).then_some((0, value))),
            Root::Node { off, height } => (off, height),
        };
        let mut key = from;
        // Each round goes past the end of one node, so a true map needs no more than it has nodes.
        for _ in 0..=rounds_max(arena) {
            if !covers(height, key) {
                return Ok(None);
            }
            match next_below(arena, off, height, key)? {
                Ok(found) => return Ok(Some(found)),
                Err(after) => key = after,
            }
        }
        Ok(None)
    }

    /// The smallest key at or above `from` and below `stop` that is not mapped; `stop` where there is
    /// none. What lies from `stop` on is not looked at: a map may be long.
    ///
    /// # Errors
    /// [`BadOffset`]: damage, or a writer at work.
    pub fn next_gap(self, arena: &Arena, from: u64, stop: u64) -> Result<u64, BadOffset> {
        let (off, height) = match self.root() {
            Root::Empty => return Ok(from.min(stop)),
            Root::Value(_) => return Ok(from.max(1).min(stop)),
            Root::Node { off, height } => (off, height),
        };
        let mut key = from;
        for _ in 0..=rounds_max(arena) {
            if key >= stop || !covers(height, key) {
                break;
            }
            let Some(leaf) = leaf_of(arena, off, height, key)? else { break };
            // Not by the header: it counts reserved slots as used.
            let end = ((key | 63) + 1).min(stop);
            if let Some(gap) = (key..end).find(|key| slot(leaf, *key, 0).load(Acquire) == 0) {
                return Ok(gap);
            }
            key = end;
        }
        Ok(key.min(stop))
    }

    /// Gives all keys and values to `visit`, in order of the keys.
    ///
    /// # Errors
    /// [`BadOffset`]: damage, or a writer at work.
    pub fn for_each(self, arena: &Arena, visit: &mut dyn FnMut(u64, u64)) -> Result<(), BadOffset> {
        let mut from = 0;
        while let Some((key, value)) = self.next(arena, from)? {
            visit(key, value);
            from = key + 1;
        }
        Ok(())
    }
}

/// Looks for the first mapped key at or above `key` on the way down to it; else gives the first key
/// after the node that it ran out of.
#[inline]
fn next_below(
    arena: &Arena,
    root: Off,
    height: u32,
    mut key: u64,
) -> Result<Result<(u64, u64), u64>, BadOffset> {
    let mut off = root;
    for level in (0..height).rev() {
        let node = node(arena, off)?;
        let mut left = node[0].load(Acquire) & bits(index(key, level), 63);
        // At most 64 turns: each takes a bit away.
        let held = loop {
            if left == 0 {
                let span = key_count(level + 1);
                return Ok(Err((key / span + 1) * span));
            }
            let held = at(node, SLOTS + left.trailing_zeros() as usize).load(Acquire);
            if held != 0 {
                break held;
            }
            left &= left - 1;
        };
        let found = left.trailing_zeros() as usize;
        if found != index(key, level) {
            let span = key_count(level);
            key = (key / (span * 64) * 64 + found as u64) * span;
        }
        if level == 0 {
            return Ok(Ok((key, held)));
        }
        off = Off::from_raw(held);
    }
    Ok(Err(KEY_MAX + 1))
}

/// No map has more nodes than the segment has room for.
fn rounds_max(arena: &Arena) -> u64 {
    arena.used_bytes() / NODE.bytes() + u64::from(HEIGHT_MAX)
}
