//! What the program has stored to mappings of files' own pages: at the store nobody is told.
//!
//! `msync`, `fsync` and giving way write it back, and set the time of modification. So it is done here where parts
//! end: by `munmap`, by other mappings in their place, with the program. Whoever syncs the file later finds nothing
//! left to be written back; who syncs it before that does so for all who say that they store to its pages
//! ([`crate::maps::Source::to_store`]).

use std::ops::Range;

use crate::maps::{Maps, PAGE, Part};
use crate::mounts::{self, ctx};

/// Makes durable what the program may have stored to files' own pages, in parts that are about to end or have ended, and
/// sets the files' times of modification. With the parts' lock: another thread that syncs finds the parts, or all of it
/// durable. False where something is not.
pub(crate) fn note_stores<'a>(parts: impl IntoIterator<Item = &'a Part>) -> bool {
    let (ctx, mut good) = (ctx(), true);
    for part in parts.into_iter().filter(|part| part.stored && part.of.is_own()) {
        let Some(fs) = mounts::fs(part.of.mount) else {
            good = false;
            continue;
        };
        if part.of.is_there(fs) {
            let (first, pages) = (part.offset / PAGE, part.len.div_ceil(PAGE));
            // One time for all, which is one commit.
            good &= fs.map_flush(&ctx, part.of.ino, first, pages).is_ok();
        }
    }
    good
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
