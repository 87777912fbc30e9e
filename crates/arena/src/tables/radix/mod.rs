//! A map from numbers to words: 64-way nodes, as high as its greatest key needs.
//!
//! The root word is 0 (empty), a value for key 0 alone (bit 62 set), or a node: its offset, the
//! height in the low 6 bits, bit 63. A node is a line of header and 64 slots; word 0 of the header
//! has a bit for each slot in use or reserved: a slot that holds something always has its bit, so a
//! node whose header is 0 is empty and can go, and nodes with reserved slots stay. A node above leaves
//! also says of each which is a *run*, 64 pages one after the other, so that finding one of them takes
//! no look at the leaf; a client that changes a leaf takes that back first.
//!
//! Writers are serialised by the caller. Readers take no lock: each word is read once, every offset
//! is checked, no walk is longer than the height. What a reader finds while a writer is at work may
//! be wrong, errors included; the caller validates its sequence counter before it believes either.

mod node;
mod remove;
mod walk;

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::base::error::{ArenaError, BadOffset, Full};
use crate::base::off::Off;
use crate::base::word::{AtomicU64, prefetch};
use crate::memory::alloc::Class;
use crate::memory::arena::Arena;
use crate::memory::segment::Known;
use node::{
    HEIGHT_MAX, KEY_MAX, Node, PARENT_WORDS, PairsLeaf, Parent, ROOT_NODE, ROOT_VALUE, RUN_STRIDE,
    Root, SLOTS, beside, bits, class_above, class_of_leaf, covers, height_of, in_run, index, mark,
    node, run_word, slot, twin_word,
};

/// A value and the word beside it, in a map of pairs.
#[derive(Debug, Clone, Copy)]
pub struct PairRef<'a> {
    /// The value; 0: there is none.
    pub value: &'a AtomicU64,
    /// The word.
    pub word: &'a AtomicU64,
}

impl PairRef<'_> {
    /// Asks for both to be brought into the cache.
    #[inline]
    pub fn prefetch(self) {
        prefetch(self.value);
        prefetch(self.word);
    }
}

/// The map whose root is a word that the caller owns; a word of 0 is the empty map.
#[derive(Debug, Clone, Copy)]
pub struct Radix<'a> {
    root: &'a AtomicU64,
    /// Of a map of pairs: the root of the map of pages that it belongs to.
    pages: Option<&'a AtomicU64>,
    is_sparing: bool,
}

impl<'a> Radix<'a> {
    /// The map with this root word. A reader that comes late may find a node that is used again, for
    /// another map or for any other block: it must be able to take any word for a value, unless the map
    /// keeps its nodes ([`Radix::vacate`]).
    #[must_use]
    pub fn new(root: &'a AtomicU64) -> Self {
        Self { root, pages: None, is_sparing: false }
    }

    /// The same with a word of any value beside each value ([`Radix::pair`]), 0 where there is no value.
    /// It has keys of a map of pages, which knows where its leaves are, so that one walk finds both.
    #[must_use]
    pub fn of_pairs(root: &'a AtomicU64, pages: &'a AtomicU64) -> Self {
        Self { root, pages: Some(pages), is_sparing: false }
    }

    /// The same map, which grows as long as memory is left for others: the last eighth of what is fresh is not for it.
    #[must_use]
    pub fn sparing(self) -> Self {
        Self { is_sparing: true, ..self }
    }

    fn make_node(self, arena: &Arena, level: u32) -> Result<Off, Full> {
        let class = self.class_of(level);
        if self.is_sparing { arena.alloc_sparing(class) } else { arena.alloc(class) }
    }

    fn class_of(self, level: u32) -> Class {
        if level == 0 { class_of_leaf(self.pages.is_some()) } else { class_above(level) }
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
    #[inline(always)]
    pub fn get(self, arena: &Arena, key: u64) -> Result<u64, BadOffset> {
        match self.known(arena.known(), key) {
            Some(value) => Ok(value),
            None => self.get_checked(arena, key),
        }
    }

    /// As [`Radix::get`], as far as this process knows the segment; none beyond, and for what is bad.
    #[inline(always)]
    #[must_use]
    pub fn known(self, arena: Known<'_>, key: u64) -> Option<u64> {
        let root = self.root.load(Acquire);
        if root & ROOT_NODE == 0 {
            let is_here = key == 0 && root & ROOT_VALUE != 0;
            return Some(if is_here { root & !ROOT_VALUE } else { 0 });
        }
        let height = (root & 63) as u32;
        if height > HEIGHT_MAX || !covers(height, key) {
            return None;
        }
        let mut at = root & !ROOT_NODE;
        // As many turns as the tree is high: at most 8.
        for level in (0..height).rev() {
            let node: Node<'_> = arena.block(Off::from_raw(at))?;
            at = slot(node, key, level).load(Acquire);
            if at == 0 {
                break;
            }
        }
        Some(at)
    }

    /// As [`Radix::known`], in a map of pages: quicker where they lie one after the other.
    #[inline(always)]
    #[must_use]
    pub fn known_page(self, arena: Known<'_>, key: u64) -> Option<u64> {
        let root = self.root.load(Acquire);
        let height = (root & 63) as u32;
        if root & ROOT_NODE == 0 || !(2..=HEIGHT_MAX).contains(&height) || !covers(height, key) {
            return self.known(arena, key);
        }
        let mut at = root & !ROOT_NODE;
        for level in (2..height).rev() {
            let node: Node<'_> = arena.block(Off::from_raw(at))?;
            at = slot(node, key, level).load(Acquire);
            if at == 0 {
                return Some(0);
            }
        }
        let parent: Parent<'_> = arena.block(Off::from_raw(at))?;
        let run = run_word(parent, key).load(Acquire);
        if run != 0 {
            return Some(in_run(run, key));
        }
        let leaf = slot(parent, key, 1).load(Acquire);
        if leaf == 0 {
            return Some(0);
        }
        let leaf: Node<'_> = arena.block(Off::from_raw(leaf))?;
        Some(slot(leaf, key, 0).load(Acquire))
    }

    /// As [`Radix::known_page`], and what a map of pairs that belongs to this one has at the key; none
    /// also where this map does not know where that is.
    #[inline(always)]
    #[must_use]
    pub fn known_page_and_pair(self, arena: Known<'a>, key: u64) -> Option<(u64, PairRef<'a>)> {
        let root = self.root.load(Acquire);
        let mut level = (root & 63) as u32;
        if root & ROOT_NODE == 0 || !(2..=HEIGHT_MAX).contains(&level) || !covers(level, key) {
            return None;
        }
        let mut at = root & !ROOT_NODE;
        while level > 2 {
            level -= 1;
            let node: Node<'_> = arena.block(Off::from_raw(at))?;
            at = slot(node, key, level).load(Acquire);
        }
        let parent: Parent<'_> = arena.block(Off::from_raw(at))?;
        let twin = twin_word(parent, key).load(Acquire);
        let pair = pair_in(arena.block(Off::from_raw(twin))?, key);
        // It is needed once the word has come, in another line.
        prefetch(pair.value);
        let run = run_word(parent, key).load(Acquire);
        if run != 0 {
            return Some((in_run(run, key), pair));
        }
        let leaf: Node<'_> = arena.block(Off::from_raw(slot(parent, key, 1).load(Acquire)))?;
        Some((slot(leaf, key, 0).load(Acquire), pair))
    }

    /// The value at `key`, and how many keys from there on, at most `most`, have values that rise by
    /// `stride` each, or none where `key` has none. There may be more.
    ///
    /// # Errors
    /// [`BadOffset`]: damage, or a writer at work.
    #[inline]
    pub fn run(
        self,
        arena: &Arena,
        key: u64,
        most: u64,
        stride: u64,
    ) -> Result<(u64, u64), BadOffset> {
        let (mut off, height) = match self.root() {
            Root::Value(value) if key == 0 => return Ok((value, 1)),
            Root::Node { off, height } if covers(height, key) => (off, height),
            Root::Empty | Root::Value(_) | Root::Node { .. } => return Ok((0, most)),
        };
        let in_leaf = most.min(64 - key % 64);
        for level in (1..height).rev() {
            if level == 1 && stride == RUN_STRIDE {
                let parent = arena.block::<PARENT_WORDS>(off)?;
                let first = run_word(parent, key).load(Acquire);
                if first != 0 {
                    return Ok(run_of_leaves(parent, first, key, most));
                }
            }
            off = Off::from_raw(slot(node(arena, off)?, key, level).load(Acquire));
            if off.is_null() {
                return Ok((0, in_leaf));
            }
        }
        let leaf = node(arena, off)?;
        let first = slot(leaf, key, 0).load(Acquire);
        let stride = if first == 0 { 0 } else { stride };
        let goes_on = |step: &u64| {
            let next = slot(leaf, key + *step, 0).load(Acquire);
            next == first.wrapping_add(*step * stride)
        };
        Ok((first, 1 + (1..in_leaf).take_while(goes_on).count() as u64))
    }

    #[cold]
    fn get_checked(self, arena: &Arena, key: u64) -> Result<u64, BadOffset> {
        match self.root() {
            Root::Value(value) if key == 0 => Ok(value),
            Root::Node { off, height } if covers(height, key) => {
                let leaf = leaf_of(arena, off, height, key)?;
                Ok(leaf.map_or(0, |leaf| slot(leaf, key, 0).load(Acquire)))
            }
            Root::Empty | Root::Value(_) | Root::Node { .. } => Ok(0),
        }
    }

    /// The value at `key` and the word beside it, in a map of pairs, to be read or changed in place; none
    /// where they have no node. What a reader finds there while a writer is at work may be wrong. A
    /// writer reserves the key first.
    ///
    /// # Errors
    /// [`BadOffset`]: damage, or a writer at work.
    #[inline]
    pub fn pair(self, arena: &'a Arena, key: u64) -> Result<Option<PairRef<'a>>, BadOffset> {
        match self.known_pair(arena.known(), key) {
            Some(pair) => Ok(pair),
            None => self.pair_checked(arena, key),
        }
    }

    /// As [`Radix::pair`], as far as this process knows the segment; none beyond, and for what is bad.
    #[inline]
    #[must_use]
    pub fn known_pair(self, arena: Known<'a>, key: u64) -> Option<Option<PairRef<'a>>> {
        let root = self.root.load(Acquire);
        if root & ROOT_NODE == 0 {
            return Some(None);
        }
        let mut height = (root & 63) as u32;
        if height == 0 || height > HEIGHT_MAX || !covers(height, key) {
            return None;
        }
        let mut at = root & !ROOT_NODE;
        // As many turns as the tree is high: at most 8.
        while height > 1 {
            height -= 1;
            let node: Node<'_> = arena.block(Off::from_raw(at))?;
            at = slot(node, key, height).load(Acquire);
            if at == 0 {
                return Some(None);
            }
        }
        Some(Some(pair_in(arena.block(Off::from_raw(at))?, key)))
    }

    /// As [`Radix::pair`], of the 64 keys around `key` that share a node; none where there is no node.
    ///
    /// # Errors
    /// [`BadOffset`]: damage, or a writer at work.
    pub fn pairs_around(
        self,
        arena: &'a Arena,
        key: u64,
    ) -> Result<impl Iterator<Item = (u64, PairRef<'a>)>, BadOffset> {
        let leaf = match self.root() {
            Root::Node { off, height } if covers(height, key) => leaf_at(arena, off, height, key)?,
            Root::Empty | Root::Value(_) | Root::Node { .. } => None,
        };
        let leaf: Option<PairsLeaf<'_>> = leaf.map(|leaf| arena.block(leaf)).transpose()?;
        let keys = (key & !63)..=(key | 63);
        Ok(leaf
            .into_iter()
            .flat_map(move |leaf| keys.clone().map(move |key| (key, pair_in(leaf, key)))))
    }

    #[cold]
    fn pair_checked(self, arena: &'a Arena, key: u64) -> Result<Option<PairRef<'a>>, BadOffset> {
        let Root::Node { off, height } = self.root() else { return Ok(None) };
        if !covers(height, key) {
            return Ok(None);
        }
        let Some(leaf) = leaf_at(arena, off, height, key)? else { return Ok(None) };
        Ok(Some(pair_in(arena.block(leaf)?, key)))
    }

    /// Makes all nodes that `count` keys from `key` on need, so that setting these keys cannot fail
    /// until they are removed themselves. Readers see no difference. A lone key 0 in a map without
    /// nodes gets none, but in a map of pairs: it is to be set next, to a value below 2^62.
    ///
    /// # Errors
    /// [`ArenaError::Full`]; [`ArenaError::OutOfRange`] for keys above 2^48 - 1.
    pub fn reserve(self, arena: &Arena, key: u64, count: u64) -> Result<(), ArenaError> {
        if count == 0 {
            return Ok(());
        }
        let last = last_key(key, count)?;
        if last == 0 && self.pages.is_none() && !matches!(self.root(), Root::Node { .. }) {
            return Ok(());
        }
        if !matches!(self.root(), Root::Node { height, .. } if covers(height, last)) {
            self.grow(arena, last)?;
        }
        let mut first = key;
        while first <= last {
            let end = last.min(first | 63);
            mark(self.leaf(arena, first)?.0, bits(index(first, 0), index(end, 0)));
            if let Some(pages) = self.pages
                && let Root::Node { off, height } = self.root()
                && let Some(leaf) = leaf_at(arena, off, height, first)?
            {
                note_twin(arena, pages, first, leaf)?;
            }
            first = end + 1;
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
        let (leaf, run) = self.leaf(arena, key)?;
        forget_run(run);
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
        if count == 0 {
            return Ok(());
        }
        let keys = key..last_key(key, count)? + 1;
        self.replace_range(arena, keys, first_value, stride, &mut |_, _| ())
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
        if keys.end == 1 && !matches!(self.root(), Root::Node { .. }) {
            let old = self.set(arena, 0, first_value)?;
            report(0, old, replaced);
            return Ok(());
        }
        let last = last_key(keys.start, keys.end - keys.start)?;
        // In a single leaf nothing can fail once that is there.
        if keys.start / 64 != last / 64 {
            self.reserve(arena, keys.start, keys.end - keys.start)?;
        }
        let mut value = first_value;
        let mut key = keys.start;
        while key < keys.end {
            let end = keys.end.min((key | 63) + 1);
            let (leaf, run) = self.leaf(arena, key)?;
            forget_run(run);
            mark(leaf, bits(index(key, 0), index(end - 1, 0)));
            for key in key..end {
                let slot = slot(leaf, key, 0);
                let old = slot.load(Relaxed);
                slot.store(value, Release);
                value = value.wrapping_add(stride);
                report(key, old, replaced);
            }
            // Told once, by a client that fills it up, as a file mostly grows.
            if stride == RUN_STRIDE && end.is_multiple_of(64) {
                note_run(leaf, run);
            }
            key = end;
        }
        Ok(())
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
            let (child, height) = match root {
                Root::Empty => (0, height_of(key)),
                Root::Value(value) => (value, 1),
                Root::Node { off, height } => (off.raw(), height + 1),
            };
            let made = self.make_node(arena, height - 1)?;
            let new = node(arena, made)?;
            new[0].store(u64::from(child != 0), Relaxed);
            new[SLOTS].store(child, Relaxed);
            self.publish(Root::Node { off: made, height });
        }
        // No key needs more levels than the loop has made.
        Err(out_of_range("key", key, 0, KEY_MAX))
    }

    /// The leaf for `key`, made with all nodes above it where they were missing, and the word of its
    /// run, where there is a node above it.
    #[inline]
    fn leaf(self, arena: &Arena, key: u64) -> Result<(Node<'_>, Option<&AtomicU64>), ArenaError> {
        let (mut off, height) = match self.root() {
            Root::Node { off, height } if covers(height, key) => (off, height),
            Root::Empty | Root::Value(_) | Root::Node { .. } => self.grow(arena, key)?,
        };
        let mut run = None;
        for level in (1..height).rev() {
            let above = node(arena, off)?;
            let slot = slot(above, key, level);
            let mut child = slot.load(Relaxed);
            if child == 0 {
                child = self.make_node(arena, level - 1)?.raw();
                mark(above, 1 << index(key, level));
                slot.store(child, Release);
            }
            if level == 1 {
                run = Some(run_word(arena.block::<PARENT_WORDS>(off)?, key));
            }
            off = Off::from_raw(child);
        }
        Ok((node(arena, off)?, run))
    }
}

/// The leaf for `key`, which the tree is high enough for; none if it does not exist.
#[inline]
fn leaf_of(arena: &Arena, root: Off, height: u32, key: u64) -> Result<Option<Node<'_>>, BadOffset> {
    leaf_at(arena, root, height, key)?.map(|off| node(arena, off)).transpose()
}

/// Where it is.
#[inline]
fn leaf_at(arena: &Arena, root: Off, height: u32, key: u64) -> Result<Option<Off>, BadOffset> {
    let mut off = root;
    for level in (1..height).rev() {
        let child = slot(node(arena, off)?, key, level).load(Acquire);
        if child == 0 {
            return Ok(None);
        }
        off = Off::from_raw(child);
    }
    Ok(Some(off))
}

/// Says in a map of pages where the leaf of its map of pairs is that has the same keys as that for `key`;
/// not where there is no node to say it.
fn note_twin(arena: &Arena, pages: &AtomicU64, key: u64, twin: Off) -> Result<(), BadOffset> {
    let Root::Node { mut off, height } = Root::decode(pages.load(Acquire)) else { return Ok(()) };
    if height < 2 || !covers(height, key) {
        return Ok(());
    }
    for level in (2..height).rev() {
        off = Off::from_raw(slot(node(arena, off)?, key, level).load(Acquire));
        if off.is_null() {
            return Ok(());
        }
    }
    twin_word(arena.block::<PARENT_WORDS>(off)?, key).store(twin.raw(), Release);
    Ok(())
}

#[inline]
fn pair_in(leaf: PairsLeaf<'_>, key: u64) -> PairRef<'_> {
    PairRef { value: slot(leaf, key, 0), word: beside(leaf, key) }
}

/// The value at `key`, in a run that begins with `first`, and how many keys from there on, at most
/// `most`, follow it in this run and those after it.
#[inline]
fn run_of_leaves(parent: Parent<'_>, first: u64, key: u64, most: u64) -> (u64, u64) {
    let (value, mut count) = (in_run(first, key), 64 - key % 64);
    // At most 64 turns: further leaves of this node.
    while count < most && index(key + count, 1) != 0 {
        let next = run_word(parent, key + count).load(Acquire);
        if next != value.wrapping_add(count * RUN_STRIDE) {
            break;
        }
        count += 64;
    }
    (value, count.min(most))
}

/// Says that a leaf is no run, before it changes.
#[inline]
fn forget_run(run: Option<&AtomicU64>) {
    if let Some(run) = run
        && run.load(Relaxed) != 0
    {
        run.store(0, Release);
    }
}

/// Says of a leaf whether it is a run.
fn note_run(leaf: Node<'_>, run: Option<&AtomicU64>) {
    let Some(run) = run else { return };
    let first = slot(leaf, 0, 0).load(Relaxed);
    if first != 0 && (1..64).all(|key| slot(leaf, key, 0).load(Relaxed) == in_run(first, key)) {
        run.store(first, Release);
    }
}

fn report(key: u64, old: u64, replaced: &mut dyn FnMut(u64, u64)) {
    if old != 0 {
        replaced(key, old);
    }
}

fn last_key(key: u64, count: u64) -> Result<u64, ArenaError> {
    let last = key.saturating_add(count - 1);
    if last <= KEY_MAX { Ok(last) } else { Err(out_of_range("key", last, 0, KEY_MAX)) }
}

fn check_value(value: u64) -> Result<(), ArenaError> {
    if value != 0 { Ok(()) } else { Err(out_of_range("value", 0, 1, u64::MAX)) }
}

#[cold]
fn out_of_range(what: &'static str, found: u64, least: u64, greatest: u64) -> ArenaError {
    ArenaError::OutOfRange { what, found, least, greatest }
}
