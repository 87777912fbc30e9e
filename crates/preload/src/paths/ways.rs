//! Beginnings of paths that have led into a mount from outside: which are worth a question, and which are the
//! kernel's. Nothing here is believed: where one leads is asked each time.
//!
//! They are found by a hash, without the lock where there is none.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::base::lock::Lock;
use crate::mounts;

/// Beginnings that are remembered: so many sets of so many.
const SETS: usize = 64;
const WAYS: usize = 4;
/// Bytes of one; longer ones are the kernel's.
const WAY_BYTES: usize = 256;
/// How long one is left to the kernel without a look at what it has become.
const LEFT_NS: i64 = 1_000_000_000;
/// An odd number without a pattern, for hashes.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// How the beginning of a path leads into a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leads {
    /// What it leads to is in the mount: the root of one, or an open directory.
    There,
    /// It is a symbolic link to what lies deeper in a mount: to look at that would ask the daemon.
    Link,
    /// In a way that is followed by the kernel alone.
    ByKernel,
}

struct Known {
    dir: i32,
    way: Leads,
    since_ns: i64,
    len: usize,
    path: [u8; WAY_BYTES],
}

impl Known {
    fn is(&self, dir: i32, beginning: &[u8]) -> bool {
        self.dir == dir && self.path.get(..self.len) == Some(beginning)
    }

    fn counts(&self) -> bool {
        self.way != Leads::ByKernel || mounts::ctx().now_ns - self.since_ns < LEFT_NS
    }
}

/// Beginnings whose hashes fall into one set.
#[derive(Default)]
struct Set {
    known: [Option<Known>; WAYS],
    next: usize,
}

/// No sets before there is one to remember.
static TABLE: Lock<Vec<Set>> = Lock::new(Vec::new());
/// Parts of the hashes of those in [`TABLE`], for a look without the lock; 0 where there is none.
static TAGS: [[AtomicU32; WAYS]; SETS] = [const { [const { AtomicU32::new(0) }; WAYS] }; SETS];
/// Whether there are any.
static ARE_SOME: AtomicBool = AtomicBool::new(false);

/// What is remembered of a path's beginning, its length first; with `follow` also of the whole path.
pub(super) fn recall(dir: i32, path: &[u8], follow: bool) -> Option<(usize, Leads)> {
    if !ARE_SOME.load(Ordering::Acquire) {
        return None;
    }
    let is_relative = !path.starts_with(b"/");
    let whole = follow.then_some(path.len()).filter(|len| *len > 0);
    let mut lens = is_relative.then_some(0).into_iter().chain(ends(path)).chain(whole);
    lens.find_map(|len| Some((len, known(dir, path.get(..len)?)?)))
}

/// Where names in a path end that a slash follows.
pub(super) fn ends(path: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let slashes = path.iter().enumerate().filter(|(at, byte)| **byte == b'/' && *at > 0);
    slashes.map(|(at, _)| at)
}

/// How a beginning leads into a mount, if that is remembered.
fn known(dir: i32, beginning: &[u8]) -> Option<Leads> {
    let (set, tag) = set_of(dir, beginning);
    if !TAGS.get(set)?.iter().any(|there| there.load(Ordering::Acquire) == tag) {
        return None;
    }
    let table = TABLE.lock();
    let mut all = table.get(set)?.known.iter().flatten();
    let known = all.find(|known| known.is(dir, beginning))?;
    known.counts().then_some(known.way)
}

pub(super) fn remember(dir: i32, beginning: &[u8], way: Leads) {
    let mut path = [0; WAY_BYTES];
    let Some(to) = path.get_mut(..beginning.len()) else { return };
    to.copy_from_slice(beginning);
    let new = Known { dir, way, since_ns: mounts::ctx().now_ns, len: beginning.len(), path };
    let (set, tag) = set_of(dir, beginning);
    let mut table = TABLE.lock();
    table.resize_with(SETS, Set::default);
    let (Some(set), Some(tags)) = (table.get_mut(set), TAGS.get(set)) else { return };
    let is_it = |place: &Option<Known>| place.as_ref().is_some_and(|it| it.is(dir, beginning));
    let at = set.known.iter().position(is_it).unwrap_or(set.next);
    set.next = (at + 1) % WAYS;
    if let (Some(place), Some(there)) = (set.known.get_mut(at), tags.get(at)) {
        *place = Some(new);
        there.store(tag, Ordering::Release);
    }
    ARE_SOME.store(true, Ordering::Release);
}

/// Forgets what leads into no mount any more.
pub(super) fn forget(dir: i32, beginning: &[u8]) {
    let (set, _) = set_of(dir, beginning);
    let mut table = TABLE.lock();
    let (Some(set), Some(tags)) = (table.get_mut(set), TAGS.get(set)) else { return };
    for (place, tag) in set.known.iter_mut().zip(tags) {
        if place.as_ref().is_some_and(|known| known.is(dir, beginning)) {
            *place = None;
            tag.store(0, Ordering::Release);
        }
    }
}

/// The set that a beginning belongs to, and its tag there.
fn set_of(dir: i32, beginning: &[u8]) -> (usize, u32) {
    let (words, rest) = beginning.as_chunks::<8>();
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    let words = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
    let spread = |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(SPREAD);
    let hash = words.fold(u64::from(dir.cast_unsigned()), spread);
    let hash = spread(hash ^ hash >> 32, beginning.len() as u64);
    ((hash >> 32) as usize % SETS, (hash >> 16) as u32 | 1)
}

/// Keeps other threads out while the process forks.
pub(super) fn before_fork() {
    TABLE.take();
}

/// Called in parent and child.
pub(super) fn fork_done() {
    TABLE.give();
}

#[cfg(test)]
mod tests {
    use super::{Leads, forget, recall, remember};

    /// Eight were remembered at a time: with nine links in turn each call asked anew.
    #[test]
    fn fifty_beginnings_are_remembered_at_once() {
        let link = |at: i32| format!("/srv/link-{at}").into_bytes();
        (0..50).for_each(|at| remember(-100, &link(at), Leads::Link));
        let found = |dir, at| recall(dir, &[&link(at)[..], b"/file"].concat(), false);
        for at in 0..50 {
            assert_eq!(found(-100, at), Some((link(at).len(), Leads::Link)));
            assert_eq!(found(3, at), None);
        }
        assert_eq!(recall(-100, &link(7), false), None);
        assert_eq!(recall(-100, &link(7), true), Some((link(7).len(), Leads::Link)));
        forget(-100, &link(7));
        assert_eq!(found(-100, 7), None);
    }
}
