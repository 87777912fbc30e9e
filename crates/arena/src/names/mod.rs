//! A map from name hashes to small values, at the same cost from ten entries to ten million.
//!
//! Extendible hashing: the hash's first `depth` bits choose a word of the directory, which names a
//! bucket; a bucket that fills up is split in two by the next bit, and only when it used all
//! `depth` bits already the directory is copied to twice its size. A table with one bucket has no
//! directory. Entries keep 14 bits of their hash, from a bit on that their bucket names (its
//! `base`): they serve as filter, and as next bits when it is split. When few are left, the
//! caller's `rehash` gives the whole hash again.
//!
//! Writers are serialised by the caller. Readers take no lock; their walk is bounded, every offset
//! is checked, and what they find while a writer is at work may be wrong, errors included: the
//! caller validates its sequence counter before it believes either. `reserve` alone may run outside
//! the counter's odd section: it leaves all that readers may hold as it was, and what it replaced
//! is freed by the next insertion or removal.
//!
//! A writer that dies in its odd section leaves a table that [`NameTable::clear`] can take apart,
//! to be filled again.

mod bucket;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::arena::Arena;
use crate::error::{ArenaError, BadOffset, Full};
use crate::off::{Off, high32, low32, to_usize};
use bucket::{Link, VALUE, VALUE_BITS};

/// Bits of hash that an entry keeps.
const TAG_BITS: u32 = 64 - VALUE_BITS;
/// Fewer left than this, and a split asks for the whole hashes.
const TAG_BITS_MIN: u32 = 6;
/// A directory of 2^32 words is beyond any segment; the tag's bits behind it end before the low
/// bits that choose the line.
const DEPTH_MAX: u32 = 32;
/// Free slots that `reserve` ensures.
const RESERVED: usize = 2;
/// Two buckets with no more entries than this between them become one: half a bucket.
const MERGE_MAX: usize = 28;

/// The root word leads to a directory, not to a bucket.
const ROOT_DIRECTORY: u64 = 1 << 63;
const BASE_SHIFT: u32 = 48;

/// A word that leads to a bucket: offset, in the low 6 bits how many bits of the hash its entries
/// share, from bit 48 on which bit their tags start with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BucketRef {
    off: Off,
    local: u32,
    base: u32,
}

impl BucketRef {
    fn decode(word: u64) -> Self {
        let off = Off::from_raw(word & ((1 << BASE_SHIFT) - 1) & !63);
        Self {
            off,
            local: (word & 63) as u32,
            base: (word >> BASE_SHIFT & 63) as u32,
        }
    }

    fn encode(self) -> u64 {
        self.off.raw() | u64::from(self.local) | u64::from(self.base) << BASE_SHIFT
    }

    /// A hash's tag, where entries hold it.
    fn tag(self, hash: u64) -> u64 {
        hash << self.base & !VALUE
    }
}

/// What the root word says.
#[derive(Debug, Clone, Copy)]
enum Root {
    Empty,
    Bucket(BucketRef),
    Directory { off: Off, depth: u32 },
}

/// The map whose two words the caller owns: the root, and the count of entries together with what
/// waits to be freed. Words of 0 are the empty map.
#[derive(Debug, Clone, Copy)]
pub struct NameTable<'a> {
    words: &'a [AtomicU64; 2],
}

impl<'a> NameTable<'a> {
    /// The map with these two words.
    #[must_use]
    pub fn new(words: &'a [AtomicU64; 2]) -> Self {
        Self { words }
    }

    /// Entries in the map.
    #[must_use]
    pub fn len(self) -> u64 {
        u64::from(low32(self.words[1].load(Acquire)))
    }

    /// True if there are no entries.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Looks for an entry with this hash whose value `matches`. That is asked about values with
    /// the same tag only, but also about ones of other hashes, and about stale ones when a writer
    /// is at work.
    ///
    /// # Errors
    /// [`BadOffset`]: damage, or a writer at work.
    #[inline]
    pub fn find(
        self,
        arena: &Arena,
        hash: u64,
        mut matches: impl FnMut(u64) -> bool,
    ) -> Result<Option<u64>, BadOffset> {
        let Some(found) = self.bucket(arena, hash)? else {
            return Ok(None);
        };
        bucket::find(
            arena,
            found.off,
            bucket::home_of(hash),
            found.tag(hash),
            &mut matches,
        )
    }

    /// Makes room for two entries of this hash, so that inserting them cannot fail until something
    /// is removed. Readers see no difference.
    ///
    /// `rehash` gives the hash of a value that was inserted before.
    ///
    /// # Errors
    /// [`ArenaError::Full`].
    pub fn reserve(
        self,
        arena: &Arena,
        hash: u64,
        rehash: &mut dyn FnMut(u64) -> u64,
    ) -> Result<(), ArenaError> {
        // Each turn makes a bucket, uses one bit more, or ends with a chain that is long enough.
        for _ in 0..=DEPTH_MAX + 1 {
            let Some(found) = self.bucket(arena, hash)? else {
                let off = arena.alloc(bucket::CLASS)?;
                self.publish_root(
                    BucketRef {
                        off,
                        local: 0,
                        base: 0,
                    }
                    .encode(),
                );
                continue;
            };
            if bucket::has_room(arena, found.off, bucket::home_of(hash), RESERVED)? {
                return Ok(());
            }
            if self.may_split(found) {
                self.split(arena, hash, found, rehash)?;
            } else {
                bucket::lengthen(arena, found.off)?;
            }
        }
        Err(self.full(arena))
    }

    /// Adds an entry. The same hash and value may be in the map several times.
    ///
    /// The hash's bits must all be well mixed; `rehash` gives the hash of a value that was inserted
    /// before.
    ///
    /// # Errors
    /// [`ArenaError::Full`], unless reserved; [`ArenaError::OutOfRange`] for a value that is 0 or
    /// has more than 50 bits.
    pub fn insert(
        self,
        arena: &Arena,
        hash: u64,
        value: u64,
        rehash: &mut dyn FnMut(u64) -> u64,
    ) -> Result<(), ArenaError> {
        check_value(value)?;
        if self.len() == u64::from(u32::MAX) {
            return Err(self.full(arena));
        }
        self.reserve(arena, hash, rehash)?;
        self.reclaim(arena)?;
        let home = bucket::home_of(hash);
        let Some(found) = self.bucket(arena, hash)? else {
            return Err(self.full(arena));
        };
        let Some(place) = bucket::free_place(arena, found.off, home)? else {
            return Err(self.full(arena));
        };
        place.fill(
            bucket::open(arena, found.off)?,
            home,
            found.tag(hash) | value,
        );
        self.set_len(self.len() + 1);
        Ok(())
    }

    /// Removes an entry; says whether it was there.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    pub fn remove(self, arena: &Arena, hash: u64, value: u64) -> Result<bool, BadOffset> {
        self.reclaim(arena)?;
        let Some(found) = self.bucket(arena, hash)? else {
            return Ok(false);
        };
        let entry = found.tag(hash) | value;
        let place = bucket::place_of(arena, found.off, bucket::home_of(hash), entry)?;
        let Some(place) = place.filter(|_| is_value(value)) else {
            return Ok(false);
        };
        place.clear(bucket::open(arena, found.off)?);
        self.set_len(self.len().saturating_sub(1));
        // Buckets with few entries are found by this: most of their lines are empty.
        if place.line_is_empty() {
            self.merge(arena, hash)?;
        }
        Ok(true)
    }

    /// Puts another value in the place of `old`, under the same hash; says whether that was there.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.  [`ArenaError::OutOfRange`] as for `insert`.
    pub fn replace(self, arena: &Arena, hash: u64, old: u64, new: u64) -> Result<bool, ArenaError> {
        check_value(new)?;
        self.reclaim(arena)?;
        let Some(found) = self.bucket(arena, hash)? else {
            return Ok(false);
        };
        let entry = found.tag(hash) | old;
        let place = bucket::place_of(arena, found.off, bucket::home_of(hash), entry)?;
        let Some(place) = place.filter(|_| is_value(old)) else {
            return Ok(false);
        };
        place.store(found.tag(hash) | new);
        Ok(true)
    }

    /// Gives the value of each entry to `visit`, in no order.
    ///
    /// # Errors
    /// [`BadOffset`]: damage, or a writer at work.
    pub fn for_each(self, arena: &Arena, visit: &mut dyn FnMut(u64)) -> Result<(), BadOffset> {
        self.for_each_bucket(arena, self.root(), &mut |found| {
            bucket::for_each(arena, found.off, &mut |_, entry| {
                visit(entry & VALUE);
                Ok(())
            })
        })
    }

    /// Removes all entries and frees all memory.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    pub fn clear(self, arena: &Arena) -> Result<(), BadOffset> {
        self.reclaim(arena)?;
        let root = self.root();
        self.publish_root(0);
        self.set_len(0);
        self.for_each_bucket(arena, root, &mut |found| {
            bucket::free(arena, found.off);
            Ok(())
        })?;
        if let Root::Directory { off, depth } = root {
            arena.free_table(depth, off);
        }
        Ok(())
    }

    #[inline]
    fn root(self) -> Root {
        let word = self.words[0].load(Acquire);
        if word & ROOT_DIRECTORY != 0 {
            // A damaged depth must not become a shift out of range.
            let depth = ((word & 63) as u32).clamp(1, DEPTH_MAX);
            Root::Directory {
                off: Off::from_raw(word & !(ROOT_DIRECTORY | 63)),
                depth,
            }
        } else if word != 0 {
            Root::Bucket(BucketRef::decode(word))
        } else {
            Root::Empty
        }
    }

    fn publish_root(self, word: u64) {
        self.words[0].store(word, Release);
    }

    fn set_len(self, len: u64) {
        let retired = self.words[1].load(Relaxed) & !u64::from(u32::MAX);
        self.words[1].store(retired | len, Release);
    }

    /// The bucket that a hash belongs to.
    #[inline]
    fn bucket(self, arena: &Arena, hash: u64) -> Result<Option<BucketRef>, BadOffset> {
        match self.root() {
            Root::Empty => Ok(None),
            Root::Bucket(found) => Ok(Some(found)),
            Root::Directory { off, depth } => {
                let word = arena.word(off.word(hash >> (64 - depth)))?;
                Ok(Some(BucketRef::decode(word.load(Acquire))))
            }
        }
    }

    fn depth(self) -> u32 {
        match self.root() {
            Root::Empty | Root::Bucket(_) => 0,
            Root::Directory { depth, .. } => depth,
        }
    }

    /// A directory has at most a word for every four entries: enough for well mixed hashes, and no
    /// lever for someone who finds names whose hashes collide; those get chains.
    fn may_split(self, found: BucketRef) -> bool {
        let depth = self.depth();
        let larger = 1_u64 << (depth + 1);
        let may_grow = depth < DEPTH_MAX && larger <= (self.len() / 4).max(2);
        found.local < DEPTH_MAX && (found.local < depth || may_grow)
    }

    /// Replaces a bucket by two, told apart by one bit more.
    fn split(
        self,
        arena: &Arena,
        hash: u64,
        old: BucketRef,
        rehash: &mut dyn FnMut(u64) -> u64,
    ) -> Result<(), ArenaError> {
        let local = old.local + 1;
        let keeps = old.base <= old.local && local + TAG_BITS_MIN <= old.base + TAG_BITS;
        let base = if keeps { old.base } else { local };
        let low = BucketRef {
            off: arena.alloc(bucket::CLASS)?,
            local,
            base,
        };
        let high = match arena.alloc(bucket::CLASS) {
            Ok(off) => BucketRef { off, ..low },
            Err(full) => {
                bucket::free(arena, low.off);
                return Err(full.into());
            }
        };
        let made = share_out(arena, old, low, high, rehash)
            .and_then(|()| self.replace_bucket(arena, hash, old, [low, high]));
        match made {
            Ok(directory) => self.retire(arena, old.off, directory)?,
            Err(e) => {
                bucket::free(arena, low.off);
                bucket::free(arena, high.off);
                return Err(e);
            }
        }
        Ok(())
    }

    /// Publishes the two halves of a bucket; gives the directory that this took out of use.
    fn replace_bucket(
        self,
        arena: &Arena,
        hash: u64,
        old: BucketRef,
        halves: [BucketRef; 2],
    ) -> Result<Option<(Off, u32)>, ArenaError> {
        let [low, high] = halves.map(BucketRef::encode);
        match self.root() {
            Root::Directory { off, depth } if old.local < depth => {
                let words = span(arena, off, depth, hash, old.local)?;
                let half = words.len() / 2;
                for (index, word) in words.iter().enumerate() {
                    word.store(if index < half { low } else { high }, Release);
                }
                Ok(None)
            }
            Root::Directory { off, depth } => {
                let from = arena.slice(off, 1 << depth)?;
                let made = arena.alloc_table(depth + 1)?;
                let to = arena.slice(made, 2 << depth)?;
                for (pair, word) in to.chunks_exact(2).zip(from) {
                    let word = word.load(Relaxed);
                    let pair_of = if word == old.encode() {
                        [low, high]
                    } else {
                        [word, word]
                    };
                    for (slot, word) in pair.iter().zip(pair_of) {
                        slot.store(word, Relaxed);
                    }
                }
                self.publish_root(made.raw() | u64::from(depth + 1) | ROOT_DIRECTORY);
                Ok(Some((off, depth)))
            }
            Root::Empty | Root::Bucket(_) => {
                let made = arena.alloc_table(1)?;
                let to = arena.slice(made, 2)?;
                for (slot, word) in to.iter().zip([low, high]) {
                    slot.store(word, Relaxed);
                }
                self.publish_root(made.raw() | 1 | ROOT_DIRECTORY);
                Ok(None)
            }
        }
    }

    /// Keeps a bucket, and a directory, for readers that may still hold them.
    fn retire(
        self,
        arena: &Arena,
        off: Off,
        directory: Option<(Off, u32)>,
    ) -> Result<(), BadOffset> {
        let bucket = bucket::open(arena, off)?;
        let now = self.words[1].load(Relaxed);
        bucket::set_link(bucket, Link::Retired, high32(now));
        if let Some((off, depth)) = directory {
            bucket::set_link(bucket, Link::DirectoryLog2, depth);
            bucket::set_link(bucket, Link::Directory, bucket::index_of_off(off));
        }
        let head = u64::from(bucket::index_of_off(off));
        self.words[1].store(head << 32 | u64::from(low32(now)), Release);
        Ok(())
    }

    /// Frees what is retired; the caller's counter is odd, so no reader that holds it is believed.
    #[inline]
    fn reclaim(self, arena: &Arena) -> Result<(), BadOffset> {
        if high32(self.words[1].load(Relaxed)) == 0 {
            Ok(())
        } else {
            self.reclaim_all(arena)
        }
    }

    #[cold]
    fn reclaim_all(self, arena: &Arena) -> Result<(), BadOffset> {
        let rounds = arena.used_bytes() / bucket::CLASS.bytes() + 1;
        for _ in 0..rounds {
            let now = self.words[1].load(Relaxed);
            let off = bucket::off_of_index(high32(now));
            if off.is_null() {
                return Ok(());
            }
            let bucket = bucket::open(arena, off)?;
            let next = u64::from(bucket::link(bucket, Link::Retired));
            let directory = bucket::off_of_index(bucket::link(bucket, Link::Directory));
            let log2 = bucket::link(bucket, Link::DirectoryLog2);
            self.words[1].store(next << 32 | u64::from(low32(now)), Release);
            arena.free_table(log2, directory);
            bucket::free(arena, off);
        }
        Ok(())
    }

    /// Joins the hash's bucket with its neighbour, as long as both together are half full at most.
    fn merge(self, arena: &Arena, hash: u64) -> Result<(), BadOffset> {
        // Each turn uses one bit less.
        for _ in 0..DEPTH_MAX {
            let Root::Directory {
                off: directory,
                depth,
            } = self.root()
            else {
                return Ok(());
            };
            let Some(kept) = self.bucket(arena, hash)? else {
                return Ok(());
            };
            if kept.local == 0 || kept.local > depth {
                return Ok(());
            }
            let Some(gone) = self.bucket(arena, hash ^ 1 << (64 - kept.local))? else {
                return Ok(());
            };
            if !can_join(arena, kept, gone)? {
                return Ok(());
            }
            let first = bucket::open(arena, kept.off)?;
            bucket::for_each::<BadOffset>(arena, gone.off, &mut |home, entry| {
                if let Some(place) = bucket::free_place(arena, kept.off, home)? {
                    place.fill(first, home, entry);
                }
                Ok(())
            })?;
            let joined = BucketRef {
                local: kept.local - 1,
                ..kept
            };
            for word in span(arena, directory, depth, hash, joined.local)? {
                word.store(joined.encode(), Release);
            }
            bucket::free(arena, gone.off);
            if joined.local == 0 {
                self.publish_root(joined.encode());
                arena.free_table(depth, directory);
            }
        }
        Ok(())
    }

    /// Gives each bucket to `visit`, once.
    fn for_each_bucket(
        self,
        arena: &Arena,
        root: Root,
        visit: &mut dyn FnMut(BucketRef) -> Result<(), BadOffset>,
    ) -> Result<(), BadOffset> {
        match root {
            Root::Empty => Ok(()),
            Root::Bucket(found) => visit(found),
            Root::Directory { off, depth } => {
                let mut index = 0;
                while index < 1_u64 << depth {
                    let word = arena.word(off.word(index))?.load(Acquire);
                    let found = BucketRef::decode(word);
                    visit(found)?;
                    index += 1 << depth.saturating_sub(found.local);
                    index &= u64::MAX << depth.saturating_sub(found.local);
                }
                Ok(())
            }
        }
    }

    fn full(self, arena: &Arena) -> ArenaError {
        let (asked, used, limit) = (bucket::CLASS.bytes(), arena.used_bytes(), arena.max_bytes());
        ArenaError::Full(Full { asked, used, limit })
    }
}

/// Copies the entries of `old` to the two halves by their next bit.
fn share_out(
    arena: &Arena,
    old: BucketRef,
    low: BucketRef,
    high: BucketRef,
    rehash: &mut dyn FnMut(u64) -> u64,
) -> Result<(), ArenaError> {
    bucket::for_each::<ArenaError>(arena, old.off, &mut |home, entry| {
        let (entry, bit) = if low.base == old.base {
            (entry, entry << (old.local - old.base) >> 63)
        } else {
            let hash = rehash(entry & VALUE);
            (low.tag(hash) | entry & VALUE, hash << old.local >> 63)
        };
        let half = if bit == 0 { low } else { high };
        let mut place = bucket::free_place(arena, half.off, home)?;
        if place.is_none() {
            bucket::lengthen(arena, half.off)?;
            place = bucket::free_place(arena, half.off, home)?;
        }
        if let Some(place) = place {
            place.fill(bucket::open(arena, half.off)?, home, entry);
        }
        Ok(())
    })
}

/// The words of the directory that share the hash's first `local` bits.
fn span(
    arena: &Arena,
    directory: Off,
    depth: u32,
    hash: u64,
    local: u32,
) -> Result<&[AtomicU64], BadOffset> {
    let words = arena.slice(directory, 1 << depth)?;
    let count = 1_u64 << (depth - local);
    let first = (hash >> (64 - depth)) & !(count - 1);
    let range = to_usize(first)..to_usize(first + count);
    Ok(words.get(range).unwrap_or_default())
}

/// True if two neighbours can share a bucket.
fn can_join(arena: &Arena, a: BucketRef, b: BucketRef) -> Result<bool, BadOffset> {
    if a.local != b.local || a.base != b.base || a.off == b.off {
        return Ok(false);
    }
    if bucket::is_chained(arena, a.off)? || bucket::is_chained(arena, b.off)? {
        return Ok(false);
    }
    let mut entries = 0;
    for found in [a, b] {
        bucket::for_each::<BadOffset>(arena, found.off, &mut |_, _| {
            entries += 1;
            Ok(())
        })?;
    }
    Ok(entries <= MERGE_MAX)
}

fn is_value(value: u64) -> bool {
    value != 0 && value <= VALUE
}

fn check_value(value: u64) -> Result<(), ArenaError> {
    if is_value(value) {
        Ok(())
    } else {
        Err(ArenaError::OutOfRange {
            what: "value",
            found: value,
            least: 1,
            greatest: VALUE,
        })
    }
}
