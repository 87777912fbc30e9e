//! Growing and shrinking the name table: one bucket into two, two into one.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::bucket::{self, BucketRef, Link, VALUE, VALUE_BITS};
use super::{DEPTH_MAX, DIRECTORY, LEVEL_BITS, Level, NameTable, Node, Path};
use crate::base::error::{ArenaError, BadOffset};
use crate::base::off::{Off, high32, low32, to_usize};
use crate::base::word::AtomicU64;
use crate::memory::arena::Arena;

/// Bits of hash that an entry keeps.
const TAG_BITS: u32 = 64 - VALUE_BITS;
/// Fewer left than this, and a split asks for the whole hashes.
const TAG_BITS_MIN: u32 = 6;
/// Two buckets with no more entries than this between them become one: half a bucket.
const MERGE_MAX: usize = 28;

impl NameTable<'_> {
    /// Directories have at most a word for every four entries: enough for well mixed hashes, and no
    /// lever for someone who finds names whose hashes collide; those get chains.
    pub(super) fn may_split(self, path: Path) -> bool {
        let local = path.bucket.local;
        let bits = path.level.map_or(0, |level| level.above + level.depth);
        let may_grow = local < DEPTH_MAX && 2_u64 << local <= (self.len() / 4).max(2);
        local < bits || may_grow
    }

    /// Replaces a bucket by two, told apart by one bit more.
    pub(super) fn split(
        self,
        arena: &Arena,
        hash: u64,
        path: Path,
        rehash: &mut dyn FnMut(u64) -> u64,
    ) -> Result<(), ArenaError> {
        let old = path.bucket;
        let local = old.local + 1;
        let keeps = old.base <= old.local && local + TAG_BITS_MIN <= old.base + TAG_BITS;
        let base = if keeps { old.base } else { local };
        let low = BucketRef { off: arena.alloc(bucket::CLASS)?, local, base };
        let high = match arena.alloc(bucket::CLASS) {
            Ok(off) => BucketRef { off, ..low },
            Err(full) => {
                bucket::free(arena, low.off);
                return Err(full.into());
            }
        };
        let made = share_out(arena, old, low, high, rehash)
            .and_then(|()| self.replace_bucket(arena, hash, path, [low, high]));
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
        path: Path,
        halves: [BucketRef; 2],
    ) -> Result<Option<(Off, u32)>, ArenaError> {
        let new = halves.map(BucketRef::encode);
        let local = path.bucket.local;
        match path.level {
            Some(level) if local < level.above + level.depth => {
                publish_halves(span(arena, &level, hash, local)?, new);
                Ok(None)
            }
            Some(level) if level.depth < LEVEL_BITS => {
                let Level { off: from, depth, named_by, .. } = level;
                let larger =
                    Level { off: arena.alloc_table(depth + 1)?, depth: depth + 1, ..level };
                let to = arena.slice(larger.off, 2 << depth)?;
                for (pair, word) in to.chunks_exact(2).zip(arena.slice(from, 1 << depth)?) {
                    fill(pair, word.load(Relaxed));
                }
                publish_halves(span(arena, &larger, hash, local)?, new);
                self.name_directory(arena, named_by, &larger)?;
                Ok(Some((from, depth)))
            }
            // A bucket alone, or one that has used all bits of the greatest directory.
            full => {
                let off = arena.alloc_table(1)?;
                let named_by = full.map_or(Off::NULL, |level| level.word(hash));
                let next = Level { off, depth: 1, above: local, named_by };
                publish_halves(arena.slice(off, 2)?, new);
                self.name_directory(arena, named_by, &next)?;
                Ok(None)
            }
        }
    }

    /// Lets a word, or the root for none, name a directory.
    fn name_directory(self, arena: &Arena, at: Off, level: &Level) -> Result<(), BadOffset> {
        self.store(arena, at, level.off.raw() | u64::from(level.depth) | DIRECTORY)
    }

    fn store(self, arena: &Arena, at: Off, word: u64) -> Result<(), BadOffset> {
        if at.is_null() {
            self.publish_root(word);
        } else {
            arena.word(at)?.store(word, Release);
        }
        Ok(())
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
    pub(super) fn reclaim(self, arena: &Arena) -> Result<(), BadOffset> {
        if high32(self.words[1].load(Relaxed)) == 0 { Ok(()) } else { self.reclaim_all(arena) }
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
    pub(super) fn merge(self, arena: &Arena, hash: u64) -> Result<(), BadOffset> {
        // Each turn uses one bit less.
        for _ in 0..DEPTH_MAX {
            let Some(Path { level: Some(level), bucket: kept }) = self.path(arena, hash)? else {
                return Ok(());
            };
            if kept.local <= level.above || kept.local > level.above + level.depth {
                return Ok(());
            }
            let beside = level.word(hash ^ 1 << (64 - kept.local));
            let Node::Bucket(gone) = Node::decode(arena.word(beside)?.load(Relaxed)) else {
                return Ok(());
            };
            if !can_join(arena, kept, gone)? {
                return Ok(());
            }
            move_entries(arena, gone, kept)?;
            let joined = BucketRef { local: kept.local - 1, ..kept };
            fill(span(arena, &level, hash, joined.local)?, joined.encode());
            bucket::free(arena, gone.off);
            if joined.local == level.above {
                self.store(arena, level.named_by, joined.encode())?;
                arena.free_table(level.depth, level.off);
            }
        }
        Ok(())
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
        // After a merge the tags may start after the bit that is needed now.
        let in_tag = low.base == old.base && old.base <= old.local;
        let (entry, bit) = if in_tag {
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

/// Copies the entries of one bucket to another, which has room for them.
fn move_entries(arena: &Arena, from: BucketRef, to: BucketRef) -> Result<(), BadOffset> {
    let first = bucket::open(arena, to.off)?;
    bucket::for_each(arena, from.off, &mut |home, entry| {
        if let Some(place) = bucket::free_place(arena, to.off, home)? {
            place.fill(first, home, entry);
        }
        Ok(())
    })
}

/// The words of a directory that share the hash's first `local` bits.
fn span<'a>(
    arena: &'a Arena,
    level: &Level,
    hash: u64,
    local: u32,
) -> Result<&'a [AtomicU64], BadOffset> {
    let words = arena.slice(level.off, 1 << level.depth)?;
    let unused = (level.above + level.depth).saturating_sub(local).min(level.depth);
    let count = 1_u64 << unused;
    let first = (hash << level.above) >> (64 - level.depth) & !(count - 1);
    Ok(words.get(to_usize(first)..to_usize(first + count)).unwrap_or_default())
}

fn publish_halves(words: &[AtomicU64], new: [u64; 2]) {
    for (half, new) in words.chunks((words.len() / 2).max(1)).zip(new) {
        fill(half, new);
    }
}

fn fill(words: &[AtomicU64], new: u64) {
    for word in words {
        word.store(new, Release);
    }
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
