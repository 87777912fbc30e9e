//! What a mapping of a file's own pages is made of: what others of the file here are, or a new source.
//!
//! To have the kernel open or map a file whose own pages are mapped here might be to wait for oneself: it waits there for a
//! page that somebody has asked for, and that one until the file's pages are given up here. They are not while a thread is
//! inside this library ([`crate::maps::giving`]). So one thread at a time begins, and the others find its mapping.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use novale_core::{Fs, Ino};
use novale_posix::report::Why;

use crate::base::lock::{Held, Lock};
use crate::base::report;
use crate::fds::table::InUse;
use crate::maps::giving::{self, Anchor};
use crate::maps::{Source, hiding, some};
use crate::mounts::ctx;

/// Taken before the table's lock.
static BEGINNING: Lock<()> = Lock::new(());

/// What the pages of a file that is open as `fd` are mapped by, with a lock where that is new: until the table has a part
/// of it. Nothing where they can't be mapped so.
pub(crate) fn source(
    fs: &Fs,
    fd: i32,
    description: &InUse,
) -> Option<(Arc<Source>, Option<Held<'static, ()>>)> {
    let others = known(description);
    if !others.is_empty() {
        return chosen(&others, description).map(|of| (of, None));
    }
    let beginning = BEGINNING.lock();
    let others = known(description);
    let of = if others.is_empty() {
        new_source(fs, fd, description)?
    } else {
        chosen(&others, description)?
    };
    Some((of, Some(beginning)))
}

/// What others of the file's mappings here are of.
fn known(description: &InUse) -> Vec<Arc<Source>> {
    let generation = description.generation.load(Ordering::Relaxed);
    let file = (description.mount(), description.ino());
    let is_of = |of: &&Arc<Source>| of.generation == generation && of.can_give_way();
    some().map_or_else(Vec::new, |maps| maps.sources_of(file).filter(is_of).cloned().collect())
}

/// One that can be stored to where the file is open for that.
fn chosen(others: &[Arc<Source>], description: &InUse) -> Option<Arc<Source>> {
    let may_write = |source: &&Arc<Source>| {
        !description.writes() || source.anchor.as_ref().is_some_and(|anchor| anchor.writes)
    };
    others.iter().find(may_write).cloned()
}

/// Anchors a file that is not mapped here yet, and holds its pages.
fn new_source(fs: &Fs, fd: i32, description: &InUse) -> Option<Arc<Source>> {
    if !giving::can(description.mount()) || is_kernels(fs, description.ino()) {
        return None;
    }
    if !hiding::can_find() {
        report::because(Why::Sleepers);
        return None;
    }
    // Where no mount is served it stays: the kernel's mapping would show nothing.
    let anchor = Anchor::new(fd, description)?.or_anew(fs, description);
    let (ino, generation) = (description.ino(), description.generation.load(Ordering::Relaxed));
    let hold = if anchor.is_some() {
        fs.map_hold_giving_way(&ctx(), ino, generation).ok()??
    } else {
        fs.map_hold(&ctx(), ino, generation).ok()??
    };
    let mut source = Source::of(description, hold);
    source.anchor = anchor;
    Some(Arc::new(source))
}

fn is_kernels(fs: &Fs, ino: Ino) -> bool {
    let ctx = ctx();
    fs.is_mapped(&ctx, ino).unwrap_or(true) || fs.is_wanted(&ctx, ino).unwrap_or(true)
}

/// Before a fork, and before the table is locked for it.
pub(crate) fn before_fork() {
    BEGINNING.take();
}

/// Called in parent and child.
pub(crate) fn fork_done() {
    BEGINNING.give();
}
