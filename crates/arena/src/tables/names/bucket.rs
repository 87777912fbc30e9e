//! Buckets: 8 lines of a header word and 7 slots, and chains of them where hashes collide.
//!
//! An entry is one word: 14 bits of its hash, 50 bits of value, 0 when free. The hash's low 3 bits
//! choose its home line; where that is full the entry goes to another line of the chain, and the
//! home line's header counts it, so that most look-ups end after one line. A line's header:
//! bits 0 to 20 the home lines of the entries in its slots, bits 21 to 31 how many entries that
//! belong here lie elsewhere (sticky at the greatest), bits 32 to 63, by line, the next bucket of
//! the chain (line 0) and what a retired bucket needs (lines 1 to 3).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::base::error::{BadOffset, Full};
use crate::base::off::{LINE, Off, high32, low32, to_usize};
use crate::base::word::AtomicU64;
use crate::memory::alloc::{BUCKET, Class};
use crate::memory::arena::Arena;

/// Words of a bucket.
const WORDS: usize = 64;
/// Lines of a bucket.
const LINES: usize = 8;
pub(super) const CLASS: Class = BUCKET;

/// Bits of an entry that hold its value.
pub(super) const VALUE_BITS: u32 = 50;
pub(super) const VALUE: u64 = (1 << VALUE_BITS) - 1;

const HOME_BITS: usize = 3;
const AWAY_SHIFT: u32 = 21;
const AWAY_MAX: u64 = (1 << 11) - 1;

/// Which header's upper half holds what.
#[derive(Debug, Clone, Copy)]
pub(super) enum Link {
    /// The next bucket of the chain.
    Next = 0,
    /// The bucket that was retired before this one.
    Retired = 1,
    /// The directory that was retired with this bucket.
    Directory = 2,
    /// That directory's size, as a power of two.
    DirectoryLog2 = 3,
}

const BASE_SHIFT: u32 = 48;

/// A word that leads to a bucket: offset, in the low 6 bits how many bits of the hash its entries
/// share, from bit 48 on which bit their tags start with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BucketRef {
    pub(super) off: Off,
    pub(super) local: u32,
    pub(super) base: u32,
}

impl BucketRef {
    pub(super) fn decode(word: u64) -> Self {
        let off = Off::from_raw(word & ((1 << BASE_SHIFT) - 1) & !63);
        Self { off, local: (word & 63) as u32, base: (word >> BASE_SHIFT & 63) as u32 }
    }

    pub(super) fn encode(self) -> u64 {
        self.off.raw() | u64::from(self.local) | u64::from(self.base) << BASE_SHIFT
    }

    /// A hash's tag, where entries hold it.
    pub(super) fn tag(self, hash: u64) -> u64 {
        hash << self.base & !VALUE
    }
}

/// A bucket's words, as lines.
pub(super) type Bucket<'a> = &'a [[AtomicU64; 8]];

/// A slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    bucket: Bucket<'a>,
    line: usize,
    slot: usize,
}

pub(super) fn open(arena: &Arena, off: Off) -> Result<Bucket<'_>, BadOffset> {
    Ok(arena.block::<WORDS>(off)?.as_chunks::<8>().0)
}

/// The home line of a hash.
#[inline]
pub(super) fn home_of(hash: u64) -> usize {
    to_usize(hash % LINES as u64)
}

/// Looks in the chain at `off` for an entry with this tag (in place, at the top) that `matches`.
#[inline]
pub(super) fn find(
    arena: &Arena,
    off: Off,
    home: usize,
    tag: u64,
    matches: &mut impl FnMut(u64) -> bool,
) -> Result<Option<u64>, BadOffset> {
    let bucket = open(arena, off)?;
    let Some(line) = bucket.get(home) else {
        return Ok(None);
    };
    let away = line[0].load(Acquire) >> AWAY_SHIFT & AWAY_MAX;
    if let Some(value) = find_in_line(line, tag, matches) {
        return Ok(Some(value));
    }
    if away == 0 { Ok(None) } else { find_away(arena, off, home, tag, matches) }
}

#[inline]
fn find_in_line(
    line: &[AtomicU64; 8],
    tag: u64,
    matches: &mut impl FnMut(u64) -> bool,
) -> Option<u64> {
    let [_, slots @ ..] = line;
    for slot in slots {
        let entry = slot.load(Acquire);
        let value = entry & VALUE;
        if entry & !VALUE == tag && value != 0 && matches(value) {
            return Some(value);
        }
    }
    None
}

#[cold]
fn find_away(
    arena: &Arena,
    off: Off,
    home: usize,
    tag: u64,
    matches: &mut impl FnMut(u64) -> bool,
) -> Result<Option<u64>, BadOffset> {
    for (first, bucket) in chain(arena, off) {
        for (index, line) in bucket?.iter().enumerate() {
            // The home line was looked at before.
            if first && index == home {
                continue;
            }
            if let Some(value) = find_in_line(line, tag, matches) {
                return Ok(Some(value));
            }
        }
    }
    Ok(None)
}

/// The buckets of a chain, each with whether it is the first. No chain is longer than the segment
/// has room for, whatever a reader finds that meets a writer.
fn chain(arena: &Arena, off: Off) -> impl Iterator<Item = (bool, Result<Bucket<'_>, BadOffset>)> {
    let mut next = off;
    let rounds = arena.used_bytes() / CLASS.bytes() + 1;
    (0..rounds).map_while(move |round| {
        if next.is_null() {
            return None;
        }
        let bucket = open(arena, next);
        next = bucket.map_or(Off::NULL, |b| off_of_index(link(b, Link::Next)));
        Some((round == 0, bucket))
    })
}

/// All slots of a chain, from the home line on.
fn places(
    arena: &Arena,
    off: Off,
    home: usize,
) -> impl Iterator<Item = Result<Place<'_>, BadOffset>> {
    chain(arena, off).flat_map(move |(_, bucket)| {
        let places = (0..LINES * 7).map(move |index| {
            bucket.map(|bucket| {
                let line = (home + index / 7) % LINES;
                Place { bucket, line, slot: 1 + index % 7 }
            })
        });
        // One error is enough to stop the caller.
        places.take(if bucket.is_ok() { LINES * 7 } else { 1 })
    })
}

impl<'a> Place<'a> {
    fn words(&self) -> Option<(&'a AtomicU64, &'a AtomicU64)> {
        let line = self.bucket.get(self.line)?;
        Some((line.first()?, line.get(self.slot)?))
    }

    /// The entry; 0 if the slot is free.
    pub(super) fn load(&self) -> u64 {
        self.words().map_or(0, |(_, slot)| slot.load(Relaxed))
    }

    /// Puts another entry of the same home line, or none, in the place of this one.
    pub(super) fn store(&self, entry: u64) {
        if let Some((_, slot)) = self.words() {
            slot.store(entry, Release);
        }
    }

    /// The home line of the entry in it.
    fn home(&self) -> usize {
        let shift = (self.slot - 1) * HOME_BITS;
        self.words().map_or(0, |(header, _)| to_usize(header.load(Relaxed) >> shift & 7))
    }

    fn is_away(&self, first: Bucket<'_>) -> bool {
        !std::ptr::eq(self.bucket, first) || self.line != self.home()
    }

    /// Fills a free slot of the chain whose first bucket is `first`.
    pub(super) fn fill(&self, first: Bucket<'_>, home: usize, entry: u64) {
        let Some((header, _)) = self.words() else {
            return;
        };
        let shift = (self.slot - 1) * HOME_BITS;
        let homes = header.load(Relaxed) & !(7 << shift) | (home as u64) << shift;
        header.store(homes, Relaxed);
        if self.is_away(first) {
            // Before the entry: a reader that needs it must know to look beyond the home line.
            change_away(first, home, |away| away + 1);
        }
        self.store(entry);
    }

    /// Frees a slot.
    pub(super) fn clear(&self, first: Bucket<'_>) {
        self.store(0);
        if self.is_away(first) {
            change_away(first, self.home(), |away| away.saturating_sub(1));
        }
    }

    /// True if the line has no entry left.
    pub(super) fn line_is_empty(&self) -> bool {
        let line = self.bucket.get(self.line);
        line.is_some_and(|l| l.iter().skip(1).all(|slot| slot.load(Relaxed) == 0))
    }
}

/// Changes how many entries of a home line lie elsewhere; at the greatest count it stays.
fn change_away(first: Bucket<'_>, home: usize, change: impl Fn(u64) -> u64) {
    let Some(header) = first.get(home).and_then(|line| line.first()) else {
        return;
    };
    let now = header.load(Relaxed);
    let away = now >> AWAY_SHIFT & AWAY_MAX;
    if away < AWAY_MAX {
        let rest = now & !(AWAY_MAX << AWAY_SHIFT);
        header.store(rest | change(away) << AWAY_SHIFT, Release);
    }
}

/// The lines of a bucket with their numbers, the home line first.
fn lines_from(bucket: Bucket<'_>, home: usize) -> impl Iterator<Item = (usize, &[AtomicU64; 8])> {
    let (before, from) = bucket.split_at_checked(home).unwrap_or((&[], bucket));
    (home..).zip(from).chain((0..).zip(before))
}

/// The place of exactly this entry.
pub(super) fn place_of(
    arena: &Arena,
    off: Off,
    home: usize,
    entry: u64,
) -> Result<Option<Place<'_>>, BadOffset> {
    for (_, bucket) in chain(arena, off) {
        let bucket = bucket?;
        for (line, words) in lines_from(bucket, home) {
            let [_, slots @ ..] = words;
            if let Some(slot) = slots.iter().position(|slot| slot.load(Relaxed) == entry) {
                return Ok(Some(Place { bucket, line, slot: slot + 1 }));
            }
        }
    }
    Ok(None)
}

/// A free slot, in the home line if possible.
pub(super) fn free_place(
    arena: &Arena,
    off: Off,
    home: usize,
) -> Result<Option<Place<'_>>, BadOffset> {
    place_of(arena, off, home, 0)
}

/// True if the chain has at least `wanted` free slots.
pub(super) fn has_room(
    arena: &Arena,
    off: Off,
    home: usize,
    wanted: usize,
) -> Result<bool, BadOffset> {
    let mut free = 0;
    for (_, bucket) in chain(arena, off) {
        for (_, [_, slots @ ..]) in lines_from(bucket?, home) {
            free += slots.iter().filter(|slot| slot.load(Relaxed) == 0).count();
            if free >= wanted {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Gives each entry of the chain, with its home line, to `visit`.
pub(super) fn for_each<E: From<BadOffset>>(
    arena: &Arena,
    off: Off,
    visit: &mut dyn FnMut(usize, u64) -> Result<(), E>,
) -> Result<(), E> {
    for place in places(arena, off, 0) {
        let place = place?;
        let entry = place.load();
        if entry != 0 {
            visit(place.home(), entry)?;
        }
    }
    Ok(())
}

/// Adds an empty bucket to the end of the chain.
pub(super) fn lengthen(arena: &Arena, off: Off) -> Result<(), crate::ArenaError> {
    let made = arena.alloc(CLASS)?;
    for (_, bucket) in chain(arena, off) {
        let bucket = bucket?;
        if link(bucket, Link::Next) == 0 {
            set_link(bucket, Link::Next, index_of_off(made));
            return Ok(());
        }
    }
    arena.free(CLASS, made);
    Err(Full { asked: CLASS.bytes(), used: arena.used_bytes(), limit: arena.max_bytes() }.into())
}

/// True if there is more than one bucket in the chain.
pub(super) fn is_chained(arena: &Arena, off: Off) -> Result<bool, BadOffset> {
    Ok(link(open(arena, off)?, Link::Next) != 0)
}

/// Gives all buckets of the chain back.
pub(super) fn free(arena: &Arena, off: Off) {
    let mut next = off;
    let rounds = arena.used_bytes() / CLASS.bytes() + 1;
    for _ in 0..rounds {
        let Ok(bucket) = open(arena, next) else {
            return;
        };
        let freed = next;
        next = off_of_index(link(bucket, Link::Next));
        arena.free(CLASS, freed);
    }
}

/// The upper half of a header.
pub(super) fn link(bucket: Bucket<'_>, link: Link) -> u32 {
    let header = bucket.get(link as usize).and_then(|line| line.first());
    header.map_or(0, |h| high32(h.load(Acquire)))
}

pub(super) fn set_link(bucket: Bucket<'_>, link: Link, value: u32) {
    if let Some(header) = bucket.get(link as usize).and_then(|line| line.first()) {
        let low = u64::from(low32(header.load(Relaxed)));
        header.store(u64::from(value) << 32 | low, Release);
    }
}

/// Offsets in the upper half of a header count lines.
pub(super) fn off_of_index(index: u32) -> Off {
    Off::from_raw(u64::from(index) * LINE)
}

pub(super) fn index_of_off(off: Off) -> u32 {
    low32(off.raw() / LINE)
}
