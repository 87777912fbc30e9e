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
mod resize;

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::arena::Arena;
use crate::error::{ArenaError, BadOffset, Full};
use crate::off::{Off, low32};
use crate::word::AtomicU64;
use bucket::{BucketRef, VALUE};

/// A directory of 2^32 words is beyond any segment; the tag's bits behind it end before the low
/// bits that choose the line.
const DEPTH_MAX: u32 = 32;
/// Free slots that `reserve` ensures.
const RESERVED: usize = 2;

/// The root word leads to a directory, not to a bucket.
const ROOT_DIRECTORY: u64 = 1 << 63;

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
            let Some(found) = self.bucket(arena, hash)? else {
                let off = arena.alloc(bucket::CLASS)?;
                self.publish_root(BucketRef { off, local: 0, base: 0 }.encode());
                continue;
            };
            if bucket::has_room(arena, found.off, bucket::home_of(hash), slots)? {
                return Ok(());
            }
            if self.may_split(found) {
                self.split(arena, hash, found, rehash)?;
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
        self.make_room(arena, hash, 1, rehash)?;
        self.reclaim(arena)?;
        let home = bucket::home_of(hash);
        let Some(found) = self.bucket(arena, hash)? else {
            return Err(full(arena));
        };
        let Some(place) = bucket::free_place(arena, found.off, home)? else {
            return Err(full(arena));
        };
        place.fill(bucket::open(arena, found.off)?, home, found.tag(hash) | value);
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
        Self::for_each_bucket(arena, self.root(), &mut |found| {
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
        Self::for_each_bucket(arena, root, &mut |found| {
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
            Root::Directory { off: Off::from_raw(word & !(ROOT_DIRECTORY | 63)), depth }
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

    /// Gives each bucket to `visit`, once.
    fn for_each_bucket(
        arena: &Arena,
        root: Root,
        visit: &mut dyn FnMut(BucketRef) -> Result<(), BadOffset>,
    ) -> Result<(), BadOffset> {
        let (off, depth) = match root {
            Root::Empty => return Ok(()),
            Root::Bucket(found) => return visit(found),
            Root::Directory { off, depth } => (off, depth),
        };
        let mut index = 0;
        while index < 1_u64 << depth {
            let word = arena.word(off.word(index))?.load(Acquire);
            let found = BucketRef::decode(word);
            visit(found)?;
            // The words behind that share this bucket are skipped.
            let unused = depth.saturating_sub(found.local);
            index = ((index >> unused) + 1) << unused;
        }
        Ok(())
    }
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
