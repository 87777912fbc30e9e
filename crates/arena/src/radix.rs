//! A map from numbers to words: 64-way nodes, as high as its greatest key needs.
//!
//! The root word is 0 (empty), a value for key 0 alone (bit 62 set), or a node: its offset, the
//! height in the low 6 bits, bit 63. A node is a line of header and 64 slots; word 0 of the header
//! has a bit for each slot in use. A slot that holds something always has its bit; a bit may stand
//! without its slot only after a writer has died in between, or while a stale node is read.
//!
//! Writers are serialised by the caller. Readers take no lock: each word is read once, every offset
//! is checked, no walk is longer than the height. What a reader finds while a writer is at work may
//! be wrong, errors included; the caller validates its sequence counter before it believes either.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::alloc::Class;
use crate::arena::Arena;
use crate::error::{ArenaError, BadOffset};
use crate::off::{Off, at, to_usize};

/// Bits of a key; greater keys are refused.
const KEY_BITS: u32 = 48;
/// The greatest key.
const KEY_MAX: u64 = (1 << KEY_BITS) - 1;
/// Bits of a key that a level decides.
const LEVEL_BITS: u32 = 6;
/// Levels that all keys need.
const HEIGHT_MAX: u32 = KEY_BITS / LEVEL_BITS;

/// Words of a node, header included.
const NODE_WORDS: usize = 72;
/// The first slot's word.
const SLOTS: usize = 8;
const NODE: Class = Class::internal(131, 72);

/// The root word is a node.
const ROOT_NODE: u64 = 1 << 63;
/// The root word is key 0's value.
const ROOT_VALUE: u64 = 1 << 62;

type Node<'a> = &'a [AtomicU64; NODE_WORDS];

/// What a root word says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Root {
    Empty,
    Value(u64),
    Node { off: Off, height: u32 },
}

impl Root {
    fn decode(word: u64) -> Self {
        if word & ROOT_NODE != 0 {
            let height = (word & 63) as u32;
            // A damaged height must not lead a walk beyond its bound.
            let height = height.clamp(1, HEIGHT_MAX);
            Self::Node {
                off: Off::from_raw(word & !(ROOT_NODE | 63)),
                height,
            }
        } else if word & ROOT_VALUE != 0 {
            Self::Value(word & !ROOT_VALUE)
        } else {
            Self::Empty
        }
    }

    fn encode(self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Value(value) => value | ROOT_VALUE,
            Self::Node { off, height } => off.raw() | u64::from(height) | ROOT_NODE,
        }
    }
}

/// The map whose root is a word that the caller owns; a word of 0 is the empty map.
#[derive(Debug, Clone, Copy)]
pub struct Radix<'a> {
    root: &'a AtomicU64,
}

impl<'a> Radix<'a> {
    /// The map with this root word.
    #[must_use]
    pub fn new(root: &'a AtomicU64) -> Self {
        Self { root }
    }

    /// True if nothing is mapped or reserved.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.root() == Root::Empty
    }

    /// The value at `key`; 0 if there is none.
    ///
    /// # Errors
    /// [`BadOffset`]: damage, or a writer at work.
    #[inline]
    pub fn get(self, arena: &Arena, key: u64) -> Result<u64, BadOffset> {
        match self.root() {
            Root::Empty => Ok(0),
            Root::Value(value) => Ok(if key == 0 { value } else { 0 }),
            Root::Node { off, height } => {
                if !covers(height, key) {
                    return Ok(0);
                }
                let mut off = off;
                for level in (1..height).rev() {
                    let child = slot(node(arena, off)?, key, level).load(Acquire);
                    if child == 0 {
                        return Ok(0);
                    }
                    off = Off::from_raw(child);
                }
                Ok(slot(node(arena, off)?, key, 0).load(Acquire))
            }
        }
    }

    /// Makes all nodes that `count` keys from `key` on need, so that setting them cannot fail until
    /// something is removed. Readers see no difference. A single key 0 gets no node: its value must
    /// be below 2^62.
    ///
    /// # Errors
    /// [`ArenaError::Full`]; [`ArenaError::OutOfRange`] for keys above 2^48 - 1.
    pub fn reserve(self, arena: &Arena, key: u64, count: u64) -> Result<(), ArenaError> {
        if count == 0 {
            return Ok(());
        }
        let last = last_key(key, count)?;
        if last == 0 && !matches!(self.root(), Root::Node { .. }) {
            return Ok(());
        }
        self.grow(arena, last)?;
        for first in (key & !63..=last).step_by(64) {
            self.leaf(arena, first)?;
        }
        Ok(())
    }

    /// Maps `key` to `value` and gives the value before, 0 if there was none.
    ///
    /// # Errors
    /// [`ArenaError::Full`], unless reserved; [`ArenaError::OutOfRange`] for a value of 0 or a key
    /// above 2^48 - 1.
    #[inline]
    pub fn set(self, arena: &Arena, key: u64, value: u64) -> Result<u64, ArenaError> {
        check_value(value)?;
        let inline = key == 0 && value < ROOT_VALUE;
        match self.root() {
            Root::Empty if inline => {
                self.publish(Root::Value(value));
                return Ok(0);
            }
            Root::Value(old) if inline => {
                self.publish(Root::Value(value));
                return Ok(old);
            }
            Root::Empty | Root::Value(_) | Root::Node { .. } => {}
        }
        last_key(key, 1)?;
        let leaf = self.leaf(arena, key)?;
        let slot = slot(leaf, key, 0);
        let old = slot.load(Relaxed);
        mark(leaf, 1 << index(key, 0));
        slot.store(value, Release);
        Ok(old)
    }

    /// Maps `count` keys from `key` on to values that start at `first_value` and rise by `stride`:
    /// an extent. All or nothing.
    ///
    /// # Errors
    /// As [`Radix::set`].
    pub fn set_range(
        self,
        arena: &Arena,
        key: u64,
        count: u64,
        first_value: u64,
        stride: u64,
    ) -> Result<(), ArenaError> {
        self.replace_range(
            arena,
            key..key.saturating_add(count),
            first_value,
            stride,
            &mut |_, _| (),
        )
    }

    /// As [`Radix::set_range`], with each key and value that was there before given to `replaced`.
    ///
    /// # Errors
    /// As [`Radix::set`].
    pub fn replace_range(
        self,
        arena: &Arena,
        keys: std::ops::Range<u64>,
        first_value: u64,
        stride: u64,
        replaced: &mut dyn FnMut(u64, u64),
    ) -> Result<(), ArenaError> {
        check_value(first_value)?;
        if keys.end <= keys.start {
            return Ok(());
        }
        self.reserve(arena, keys.start, keys.end - keys.start)?;
        let mut value = first_value;
        let mut key = keys.start;
        if keys.end == 1 && !matches!(self.root(), Root::Node { .. }) {
            let old = self.set(arena, 0, value)?;
            if old != 0 {
                replaced(0, old);
            }
            return Ok(());
        }
        while key < keys.end {
            let end = keys.end.min((key | 63) + 1);
            let leaf = self.leaf(arena, key)?;
            mark(leaf, bits(index(key, 0), index(end - 1, 0)));
            for key in key..end {
                let slot = slot(leaf, key, 0);
                let old = slot.load(Relaxed);
                slot.store(value, Release);
                value = value.wrapping_add(stride);
                if old != 0 {
                    replaced(key, old);
                }
            }
            key = end;
        }
        Ok(())
    }

    /// Removes `key` and gives its value, 0 if there was none. Nodes that this empties are freed,
    /// reserved ones among them.
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

    /// Removes all keys in `from..to`, giving each with its value to `removed`, in order. Nodes
    /// that this empties are freed, reserved ones among them.
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
                    let range = Range {
                        arena,
                        first: from,
                        last: end - 1,
                    };
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
                    self.publish(Root::Node {
                        off: Off::from_raw(child),
                        height: height - 1,
                    });
                }
                _ => return Ok(()),
            }
            arena.free(NODE, off);
        }
        Ok(())
    }

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

    /// The smallest key at or above `from` that is not mapped.
    ///
    /// # Errors
    /// [`BadOffset`]: damage, or a writer at work.
    pub fn next_gap(self, arena: &Arena, from: u64) -> Result<u64, BadOffset> {
        let (off, height) = match self.root() {
            Root::Empty => return Ok(from),
            Root::Value(_) => return Ok(from.max(1)),
            Root::Node { off, height } => (off, height),
        };
        let mut key = from;
        for _ in 0..=rounds_max(arena) {
            if !covers(height, key) {
                return Ok(key);
            }
            let mut at = off;
            for level in (1..height).rev() {
                let child = slot(node(arena, at)?, key, level).load(Acquire);
                if child == 0 {
                    return Ok(key);
                }
                at = Off::from_raw(child);
            }
            let used = node(arena, at)?[0].load(Acquire);
            let free = !used & bits(index(key, 0), 63);
            if free != 0 {
                return Ok((key & !63) + u64::from(free.trailing_zeros()));
            }
            key = (key | 63) + 1;
        }
        Ok(key)
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

    /// Removes everything and frees all nodes.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    pub fn clear(self, arena: &Arena) -> Result<(), BadOffset> {
        self.remove_range(arena, 0, KEY_MAX + 1, &mut |_, _| ())
    }

    #[inline]
    fn root(self) -> Root {
        Root::decode(self.root.load(Acquire))
    }

    #[inline]
    fn publish(self, root: Root) {
        self.root.store(root.encode(), Release);
    }

    /// Makes the tree high enough for `key`; gives the root node and the height.
    fn grow(self, arena: &Arena, key: u64) -> Result<(Off, u32), ArenaError> {
        for _ in 0..=HEIGHT_MAX {
            let root = self.root();
            if let Root::Node { off, height } = root
                && covers(height, key)
            {
                return Ok((off, height));
            }
            let made = arena.alloc(NODE)?;
            let new = node(arena, made)?;
            let (child, height) = match root {
                Root::Empty => (0, height_of(key)),
                Root::Value(value) => (value, 1),
                Root::Node { off, height } => (off.raw(), height + 1),
            };
            new[0].store(u64::from(child != 0), Relaxed);
            new[SLOTS].store(child, Relaxed);
            self.publish(Root::Node { off: made, height });
        }
        // No key needs more levels than the loop has made.
        Err(out_of_range("key", key, 0, KEY_MAX))
    }

    /// The leaf for `key`, made with all nodes above it where they were missing.
    #[inline]
    fn leaf<'n>(self, arena: &'n Arena, key: u64) -> Result<Node<'n>, ArenaError> {
        let (mut off, height) = match self.root() {
            Root::Node { off, height } if covers(height, key) => (off, height),
            Root::Empty | Root::Value(_) | Root::Node { .. } => self.grow(arena, key)?,
        };
        for level in (1..height).rev() {
            let above = node(arena, off)?;
            let slot = slot(above, key, level);
            let mut child = slot.load(Relaxed);
            if child == 0 {
                child = arena.alloc(NODE)?.raw();
                mark(above, 1 << index(key, level));
                slot.store(child, Release);
            }
            off = Off::from_raw(child);
        }
        Ok(node(arena, off)?)
    }
}

/// Keys `first` to `last` of a tree, to be removed.
struct Range<'a> {
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
            let emptied =
                level == 0 || held == 0 || self.remove(child, level - 1, base, removed)?;
            if !emptied {
                continue;
            }
            // The slot first: a slot in use always has its bit.
            slot.store(0, Release);
            node[0].store(node[0].load(Relaxed) & !(1 << index), Release);
            if held != 0 && level == 0 {
                removed(base, held);
            } else {
                self.arena.free(NODE, child);
            }
        }
        Ok(node[0].load(Relaxed) == 0)
    }
}

/// Looks for the first mapped key at or above `key` on the way down to it; else gives the first key
/// behind the node that it ran out of.
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

#[inline]
fn node(arena: &Arena, off: Off) -> Result<Node<'_>, BadOffset> {
    arena.block::<NODE_WORDS>(off)
}

/// Which slot of a node at `level` leads to `key`; leaves are at level 0.
#[inline]
fn index(key: u64, level: u32) -> usize {
    to_usize(key >> (LEVEL_BITS * level) & 63)
}

#[inline]
fn slot(node: Node<'_>, key: u64, level: u32) -> &AtomicU64 {
    at(node, SLOTS + index(key, level))
}

/// Says in the header that these slots are in use.
#[inline]
fn mark(node: Node<'_>, slots: u64) {
    node[0].store(node[0].load(Relaxed) | slots, Relaxed);
}

/// Ones from bit `from` to bit `to`, both below 64; none if `from` is above `to`.
#[inline]
fn bits(from: usize, to: usize) -> u64 {
    (u64::MAX << (from & 63)) & (u64::MAX >> (63 - (to & 63)))
}

/// Keys that a tree of this height, or a node's slot at this level, leads to.
#[inline]
fn key_count(height: u32) -> u64 {
    1 << (LEVEL_BITS * height)
}

#[inline]
fn covers(height: u32, key: u64) -> bool {
    key < key_count(height)
}

fn height_of(key: u64) -> u32 {
    (u64::BITS - key.leading_zeros())
        .div_ceil(LEVEL_BITS)
        .max(1)
}

/// No map has more nodes than the segment has room for.
fn rounds_max(arena: &Arena) -> u64 {
    arena.used_bytes() / NODE.bytes() + u64::from(HEIGHT_MAX)
}

fn last_key(key: u64, count: u64) -> Result<u64, ArenaError> {
    let last = key.saturating_add(count - 1);
    if last <= KEY_MAX {
        Ok(last)
    } else {
        Err(out_of_range("key", last, 0, KEY_MAX))
    }
}

fn check_value(value: u64) -> Result<(), ArenaError> {
    if value != 0 {
        Ok(())
    } else {
        Err(out_of_range("value", 0, 1, u64::MAX))
    }
}

#[cold]
fn out_of_range(what: &'static str, found: u64, least: u64, greatest: u64) -> ArenaError {
    ArenaError::OutOfRange {
        what,
        found,
        least,
        greatest,
    }
}
