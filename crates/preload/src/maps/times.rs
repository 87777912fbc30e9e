//! Times of files that the program stores to in mappings of their own pages: at the store nobody is told.
//!
//! `msync`, `fsync` and giving way set the time of modification as they write back. Here it is set where parts
//! end: by `munmap`, by other mappings in their place, with the program.

use novale_core::Ino;

use crate::maps::Part;
use crate::mounts::{self, ctx};

/// Sets the time of modification of files whose own pages the program may have stored to, in parts that are about to
/// end or have ended. The parts' lock may be held, as while they are flushed.
pub(crate) fn note_stores(parts: &[Part]) {
    let mut noted: Vec<(usize, Ino)> = Vec::new();
    for part in parts.iter().filter(|part| part.stored && part.of.is_own()) {
        let file = (part.of.mount, part.of.ino);
        if noted.contains(&file) {
            continue;
        }
        if let Some(fs) = mounts::fs(file.0).filter(|fs| part.of.is_there(fs)) {
            noted.push(file);
            // Of no pages. What fails here, damage and a closed pool, fails everywhere.
            fs.map_flush(&ctx(), file.1, 0, 0).unwrap_or_default();
        }
    }
}
