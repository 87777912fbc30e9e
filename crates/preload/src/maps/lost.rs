//! What was stored to atomic mappings and ends without `msync`: the program's user is told.
//!
//! A program that unmaps a mapping page by page loses something each time. So the first loss of a file is told at once,
//! and all later ones by one line when the process ends.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use novale_core::Ino;

use crate::base::lock::Lock;
use crate::base::say::say;
use crate::maps::{Maps, replicas};

/// Files that are told of at once, at most.
const TOLD_MAX: usize = 64;

/// Those that were.
static TOLD: Lock<Vec<(usize, Ino)>> = Lock::new(Vec::new());
/// Pages that are lost and not told of yet.
static MORE: AtomicUsize = AtomicUsize::new(0);

/// Pages that were changed and not published, by file.
#[must_use]
pub(crate) struct Lost(BTreeMap<(usize, Ino), usize>);

/// What is lost where ranges of addresses end.
pub(crate) fn in_ranges<'a>(maps: &Maps, ranges: impl IntoIterator<Item = &'a Range<u64>>) -> Lost {
    let mut lost = Lost(BTreeMap::new());
    if maps.replicas() == 0 {
        return lost;
    }
    for range in ranges {
        for part in maps.within(range).filter(|part| part.shared && part.of.base.is_some()) {
            let pages = replicas::changed_pages(part, range);
            if pages > 0 {
                *lost.0.entry((part.of.mount, part.of.ino)).or_default() += pages;
            }
        }
    }
    lost
}

impl Lost {
    /// It is lost now.
    pub(crate) fn tell(self) {
        for (file, pages) in self.0 {
            if is_first(file) {
                say_lost(pages, "");
            } else {
                MORE.fetch_add(pages, Ordering::Relaxed);
            }
        }
    }
}

/// The process ends: what was not told yet is told.
pub(crate) fn tell_rest() {
    let more = MORE.swap(0, Ordering::Relaxed);
    if more > 0 {
        say_lost(more, "more ");
    }
}

fn is_first(file: (usize, Ino)) -> bool {
    let mut told = TOLD.lock();
    let is_first = told.len() < TOLD_MAX && !told.contains(&file);
    if is_first {
        told.push(file);
    }
    is_first
}

fn say_lost(pages: usize, more: &str) {
    say(&format!(
        "{pages} {more}pages of an atomic mapping were changed behind the last msync: discarded"
    ));
}

/// In the child of a fork: what its parent has lost is not the child's to tell.
pub(crate) fn after_fork() {
    TOLD.lock().clear();
    MORE.store(0, Ordering::Relaxed);
}
