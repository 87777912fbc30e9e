//! What the program has stored to mappings of files' own pages: at the store nobody is told.
//!
//! `msync`, `fsync` and giving way write it back, and set the time of modification. So it is done here where parts
//! end: by `munmap`, by other mappings in their place, with the program. Whoever syncs the file later finds nothing
//! left to be written back; who syncs it before that does so for all who say that they store to its pages
//! ([`crate::maps::Source::to_store`]).

use std::collections::BTreeMap;
use std::ops::Range;

use crate::maps::{Maps, Part, Source};
use crate::mounts::{self, ctx};

/// Makes durable what was stored to pages of files, ranges of these in pages, and sets the times of modification: with
/// one time for all of a file, and each page once, however often it is mapped. False where something is not.
pub(crate) fn write_back<'a>(pieces: impl IntoIterator<Item = (&'a Source, Range<u64>)>) -> bool {
    let mut files = BTreeMap::<_, (&Source, Vec<Range<u64>>)>::new();
    for (of, pages) in pieces {
        let known = files.entry((of.mount, of.ino, of.generation)).or_insert((of, Vec::new()));
        known.1.push(pages);
    }
    let (ctx, mut good) = (ctx(), true);
    for (of, mut ranges) in files.into_values() {
        let Some(fs) = mounts::fs(of.mount) else {
            good = false;
            continue;
        };
        if !of.is_there(fs) {
            continue;
        }
        ranges.sort_unstable_by_key(|pages| pages.start);
        let mut joined = Vec::<Range<u64>>::new();
        for pages in ranges {
            match joined.last_mut() {
                Some(last) if pages.start <= last.end => last.end = last.end.max(pages.end),
                _ => joined.push(pages),
            }
        }
        for Range { start, end } in joined {
            good &= fs.map_flush(&ctx, of.ino, start, end - start).is_ok();
        }
    }
    good
}

/// Makes durable what the program may have stored to files' own pages, in parts that are about to end or have ended, and
/// sets the files' times of modification. With the parts' lock: another thread that syncs finds the parts, or all of it
/// durable. False where something is not.
pub(crate) fn note_stores<'a>(parts: impl IntoIterator<Item = &'a Part>) -> bool {
    write_back(parts.into_iter().filter(|part| part.stored && part.of.is_own()).map(Part::pages))
}

/// The same of what has ended at a range of addresses alone: the rest is elsewhere now.
pub(crate) fn note_stores_at(range: &Range<u64>, parts: &[Part]) {
    let pieces: Vec<Part> = parts.iter().filter_map(|part| part.piece(range)).collect();
    note_stores(&pieces);
}

/// The same of all parts, to which nobody can store any more, before the process leaves its pools. These need not write
/// back whole files then.
pub(crate) fn end_stores(maps: &Maps) {
    if note_stores(maps.parts()) {
        for part in maps.parts() {
            part.of.is_stored();
        }
    }
}
