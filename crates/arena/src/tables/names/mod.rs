//! A map from name hashes to small values, at the same cost from ten entries to ten million.
//!
//! Extendible hashing in levels: the hash's first bits choose a word of the directory, which names a
//! bucket; a bucket that fills up is split in two by the next bit, and only when it used all of the
//! directory's bits already that is copied to twice its size. A directory has 12 bits at most: where
//! a bucket would need more, its word names a directory of the next level, for the bits after. So
//! nothing takes longer than copying 32 KB, however large the table. A table with one bucket has no
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
mod resize;

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::base::error::{ArenaError, BadOffset, Full};
use crate::base::off::{Off, low32};
use crate::base::word::AtomicU64;
use crate::memory::arena::Arena;
use bucket::{BucketRef, VALUE};

/// Bits of the hash that choose a bucket, at most: the tag's bits after them end before the low bits
/// that choose the line.
const DEPTH_MAX: u32 = 32;
/// Bits that one directory decides, at most.
const LEVEL_BITS: u32 = 12;
/// Directories on the way to a bucket, at most: each decides a bit at least.
const LEVELS_MAX: usize = DEPTH_MAX as usize;
/// Free slots that `reserve` ensures.
const RESERVED: usize = 2;

/// A word leads to a directory, not to a bucket.
const DIRECTORY: u64 = 1 << 63;

/// What the root word, or a word of a directory, says.
#[derive(Debug, Clone, Copy)]
enum Node {
    Empty,
    Bucket(BucketRef),
    Directory { off: Off, depth: u32 },
}

impl Node {
    #[inline]
    fn decode(word: u64) -> Self {
        if word & DIRECTORY != 0 {
            // A damaged depth must not become a shift out of range.
            let depth = ((word & 63) as u32).clamp(1, LEVEL_BITS);
            Self::Directory { off: Off::from_raw(word & !(DIRECTORY | 63)), depth }
        } else if word != 0 {
            Self::Bucket(BucketRef::decode(word))
        } else {
            Self::Empty
        }
    }
}

/// A directory on the way to a hash's bucket.
#[derive(Debug, Clone, Copy)]
struct Level {
    off: Off,
    /// Bits that it decides.
    depth: u32,
    /// Bits that the directories above it decide.
    above: u32,
    /// The word that names it; null for the root word.
    named_by: Off,
}

impl Level {
    /// The offset of the word for a hash.
    #[inline]
    fn word(&self, hash: u64) -> Off {
        self.off.word((hash << self.above) >> (64 - self.depth))
    }
}

/// The way to a hash's bucket.
#[derive(Debug, Clone, Copy)]
struct Path {
    /// The directory that names it; none where the root word does.
    level: Option<Level>,
    bucket: BucketRef,
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
        let Some(Path { bucket: found, .. }) = self.path(arena, hash)? else {
            return Ok(None);
        };
        bucket::find(arena, found.off, bucket::home_of(hash), found.tag(hash), &mut matches)
    }

    /// Makes room for two entries of this hash, so that inserting them cannot fail, whatever is
    /// removed or replaced before. Readers see no difference.
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
        self.make_room(arena, hash, RESERVED, rehash)
    }

    fn make_room(
        self,
        arena: &Arena,
        hash: u64,
        slots: usize,
        rehash: &mut dyn FnMut(u64) -> u64,
    ) -> Result<(), ArenaError> {
        // Each turn makes a bucket, uses one bit more, or ends with a chain that is long enough.
        for _ in 0..=DEPTH_MAX + 1 {
            let Some(path) = self.path(arena, hash)? else {
                let off = arena.alloc(bucket::CLASS)?;
                self.publish_root(BucketRef { off, local: 0, base: 0 }.encode());
                continue;
            };
            let found = path.bucket;
            if bucket::has_room(arena, found.off, bucket::home_of(hash), slots)? {
                return Ok(());
            }
            if self.may_split(path) {
                self.split(arena, hash, path, rehash)?;
            } else {
                bucket::lengthen(arena, found.off)?;
            }
        }
        Err(full(arena))
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
            return Err(full(arena));
        }
        self.reclaim(arena)?;
        // Mostly room was made before.
        if !self.fill(arena, hash, value)? {
            self.make_room(arena, hash, 1, rehash)?;
            self.reclaim(arena)?;
            if !self.fill(arena, hash, value)? {
                return Err(full(arena));
            }
        }
        self.set_len(self.len() + 1);
        Ok(())
    }

    /// Puts an entry into a free slot of its bucket; says whether there was one.
    fn fill(self, arena: &Arena, hash: u64, value: u64) -> Result<bool, ArenaError> {
        let home = bucket::home_of(hash);
        let Some(found) = self.bucket(arena, hash)? else { return Ok(false) };
        let Some(place) = bucket::free_place(arena, found.off, home)? else { return Ok(false) };
        place.fill(bucket::open(arena, found.off)?, home, found.tag(hash) | value);
        Ok(true)
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
        for_each_bucket(arena, self.root_word(), &mut |found| {
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
        let root = self.root_word();
        self.publish_root(0);
        self.set_len(0);
        for_each_bucket(arena, root, &mut |found| {
            bucket::free(arena, found.off);
            Ok(())
        })?;
        free_directories(arena, root, 0)
    }

    #[inline]
    fn root_word(self) -> u64 {
        self.words[0].load(Acquire)
    }

    fn publish_root(self, word: u64) {
        self.words[0].store(word, Release);
    }

    fn set_len(self, len: u64) {
        let retired = self.words[1].load(Relaxed) & !u64::from(u32::MAX);
        self.words[1].store(retired | len, Release);
    }

    /// The way to the bucket that a hash belongs to.
    #[inline]
    fn path(self, arena: &Arena, hash: u64) -> Result<Option<Path>, BadOffset> {
        let (mut word, mut named_by) = (self.root_word(), Off::NULL);
        let (mut level, mut above) = (None, 0);
        for _ in 0..=LEVELS_MAX {
            match Node::decode(word) {
                Node::Empty => return Ok(None),
                Node::Bucket(bucket) => return Ok(Some(Path { level, bucket })),
                Node::Directory { off, depth } => {
                    let next = Level { off, depth, above, named_by };
                    named_by = next.word(hash);
                    (level, above) = (Some(next), (above + depth).min(63));
                    word = arena.word(named_by)?.load(Acquire);
                }
            }
        }
        // Directories in a circle: damage, or a writer at work.
        Ok(None)
    }

    #[inline]
    fn bucket(self, arena: &Arena, hash: u64) -> Result<Option<BucketRef>, BadOffset> {
        Ok(self.path(arena, hash)?.map(|path| path.bucket))
    }
}

/// Gives each bucket below a word to `visit`, once.
fn for_each_bucket(
    arena: &Arena,
    word: u64,
    visit: &mut dyn FnMut(BucketRef) -> Result<(), BadOffset>,
) -> Result<(), BadOffset> {
    for_each_below(arena, word, 0, visit)
}

/// As [`for_each_bucket`], where the directories above decide `above` bits. Calls itself once a level.
fn for_each_below(
    arena: &Arena,
    word: u64,
    above: u32,
    visit: &mut dyn FnMut(BucketRef) -> Result<(), BadOffset>,
) -> Result<(), BadOffset> {
    let (off, depth) = match Node::decode(word) {
        Node::Empty => return Ok(()),
        Node::Bucket(found) => return visit(found),
        Node::Directory { off, depth } => (off, depth),
    };
    let mut index = 0;
    while index < 1_u64 << depth && above < DEPTH_MAX {
        let word = arena.word(off.word(index))?.load(Acquire);
        // The words after that share a bucket are skipped.
        let unused = match Node::decode(word) {
            Node::Bucket(found) => (above + depth).saturating_sub(found.local).min(depth),
            Node::Empty | Node::Directory { .. } => 0,
        };
        for_each_below(arena, word, above + depth, visit)?;
        index = ((index >> unused) + 1) << unused;
    }
    Ok(())
}

/// Gives back the directories below a word. Calls itself once a level.
fn free_directories(arena: &Arena, word: u64, above: u32) -> Result<(), BadOffset> {
    let Node::Directory { off, depth } = Node::decode(word) else { return Ok(()) };
    if above < DEPTH_MAX {
        for word in arena.slice(off, 1 << depth)? {
            free_directories(arena, word.load(Acquire), above + depth)?;
        }
    }
    arena.free_table(depth, off);
    Ok(())
}

fn full(arena: &Arena) -> ArenaError {
    let (asked, used, limit) = (bucket::CLASS.bytes(), arena.used_bytes(), arena.max_bytes());
    ArenaError::Full(Full { asked, used, limit })
}

fn is_value(value: u64) -> bool {
    value != 0 && value <= VALUE
}

fn check_value(value: u64) -> Result<(), ArenaError> {
    if is_value(value) {
        Ok(())
    } else {
        Err(ArenaError::OutOfRange { what: "value", found: value, least: 1, greatest: VALUE })
    }
}
