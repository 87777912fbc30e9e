//! Nodes and root words of the radix map: where the bits and slots lie.

use std::sync::atomic::Ordering::Relaxed;

use crate::base::error::BadOffset;
use crate::base::off::{Off, at, to_usize};
use crate::base::word::AtomicU64;
use crate::memory::alloc::{Class, INDEX_NODE, INDEX_PAIRS, INDEX_PARENT};
use crate::memory::arena::Arena;

/// Bits of a key; greater keys are refused.
pub(super) const KEY_BITS: u32 = 48;
/// The greatest key.
pub(super) const KEY_MAX: u64 = (1 << KEY_BITS) - 1;
/// Bits of a key that a level decides.
pub(super) const LEVEL_BITS: u32 = 6;
/// Levels that all keys need.
pub(super) const HEIGHT_MAX: u32 = KEY_BITS / LEVEL_BITS;

/// Words of a node, header included.
pub(super) const NODE_WORDS: usize = 72;
/// The first slot's word.
pub(super) const SLOTS: usize = 8;
pub(super) const NODE: Class = INDEX_NODE;
/// Nodes above leaves have a further word for each slot, of the leaf that it leads to: its first value
/// where all 64 are there and rise by [`RUN_STRIDE`] each; 0 where they don't, or nobody has looked.
/// And one of where the leaf of a map of pairs is that has the same keys; 0 where there is none, or none
/// was noted.
pub(super) const PARENT_WORDS: usize = NODE_WORDS + 128;
const PARENT: Class = INDEX_PARENT;
const RUNS: usize = NODE_WORDS;
const TWINS: usize = RUNS + 64;
/// What values that lie one after the other rise by: the bytes of a page.
pub(super) const RUN_STRIDE: u64 = 4096;

/// The root word is a node.
pub(super) const ROOT_NODE: u64 = 1 << 63;
/// The root word is key 0's value.
pub(super) const ROOT_VALUE: u64 = 1 << 62;

pub(super) type Node<'a> = &'a [AtomicU64; NODE_WORDS];
/// A node above leaves: a node, the words of their runs, and those of their twins.
pub(super) type Parent<'a> = &'a [AtomicU64; PARENT_WORDS];

/// A leaf with a word beside each value.
const PAIRS: Class = INDEX_PAIRS;
pub(super) type PairsLeaf<'a> = &'a [AtomicU64; PAIRS_WORDS];
pub(super) const PAIRS_WORDS: usize = NODE_WORDS + 64;

/// What block a leaf is, with a word beside each value or without.
pub(super) const fn class_of_leaf(has_words: bool) -> Class {
    if has_words { PAIRS } else { NODE }
}

/// The word beside a value.
#[inline]
pub(super) fn beside(leaf: PairsLeaf<'_>, key: u64) -> &AtomicU64 {
    at(leaf, NODE_WORDS + index(key, 0))
}

/// What block a node of this level above leaves is.
pub(super) const fn class_above(level: u32) -> Class {
    if level == 1 { PARENT } else { NODE }
}

/// The word that says of the leaf for `key` whether it is a run.
#[inline(always)]
pub(super) fn run_word(parent: Parent<'_>, key: u64) -> &AtomicU64 {
    at(parent, RUNS + index(key, 1))
}

/// The word that says of the leaf for `key` where that of a map of pairs is.
#[inline(always)]
pub(super) fn twin_word(parent: Parent<'_>, key: u64) -> &AtomicU64 {
    at(parent, TWINS + index(key, 1))
}

/// The value at `key` in a run that begins with `first`.
#[inline(always)]
pub(super) fn in_run(first: u64, key: u64) -> u64 {
    first.wrapping_add((key & 63) * RUN_STRIDE)
}

/// What a root word says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Root {
    Empty,
    Value(u64),
    Node { off: Off, height: u32 },
}

impl Root {
    pub(super) fn decode(word: u64) -> Self {
        if word & ROOT_NODE != 0 {
            let height = (word & 63) as u32;
            // A damaged height must not lead a walk beyond its bound.
            let height = height.clamp(1, HEIGHT_MAX);
            Self::Node { off: Off::from_raw(word & !(ROOT_NODE | 63)), height }
        } else if word & ROOT_VALUE != 0 {
            Self::Value(word & !ROOT_VALUE)
        } else {
            Self::Empty
        }
    }

    pub(super) fn encode(self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Value(value) => value | ROOT_VALUE,
            Self::Node { off, height } => off.raw() | u64::from(height) | ROOT_NODE,
        }
    }
}

#[inline]
pub(super) fn node(arena: &Arena, off: Off) -> Result<Node<'_>, BadOffset> {
    arena.block::<NODE_WORDS>(off)
}

/// Which slot of a node at `level` leads to `key`; leaves are at level 0.
#[inline(always)]
pub(super) fn index(key: u64, level: u32) -> usize {
    to_usize(key >> (LEVEL_BITS * level) & 63)
}

#[inline(always)]
pub(super) fn slot<const WORDS: usize>(
    node: &[AtomicU64; WORDS],
    key: u64,
    level: u32,
) -> &AtomicU64 {
    at(node, SLOTS + index(key, level))
}

/// Says in the header that these slots are in use.
#[inline]
pub(super) fn mark(node: Node<'_>, slots: u64) {
    node[0].store(node[0].load(Relaxed) | slots, Relaxed);
}

/// Ones from bit `from` to bit `to`, both below 64; none if `from` is above `to`.
#[inline]
pub(super) fn bits(from: usize, to: usize) -> u64 {
    (u64::MAX << (from & 63)) & (u64::MAX >> (63 - (to & 63)))
}

/// Keys that a tree of this height, or a node's slot at this level, leads to.
#[inline(always)]
pub(super) fn key_count(height: u32) -> u64 {
    1 << (LEVEL_BITS * height)
}

#[inline(always)]
pub(super) fn covers(height: u32, key: u64) -> bool {
    key < key_count(height)
}

pub(super) fn height_of(key: u64) -> u32 {
    (u64::BITS - key.leading_zeros()).div_ceil(LEVEL_BITS).max(1)
}
