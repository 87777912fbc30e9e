//! What is mapped when the process becomes two, or another program.
//!
//! A child of `fork` has the same mappings, and is another client: its parent waits until it holds the
//! files itself. Where the parent has ended before, the child is shown anew what the files have by then. Where
//! it can't hold a file, its mappings of it become inaccessible: what they show may go to another one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::sys::{Ret, sys};
use crate::fds::holds;
use crate::maps::asked::Asked;
use crate::maps::growing::Shown;
use crate::maps::{
    COUNT, MAPS_HERE, Maps, Part, Source, beginning, giving, growing, replicas, runs, show, some,
    times,
};
use crate::mounts;
use crate::numbers;

/// Says to a parent that its child holds what both have mapped, and what the kernel has not got of what both have open.
pub(crate) struct Gate {
    /// A pipe; negative where there was no descriptor for it: then the parent does not wait.
    ends: [i32; 2],
    parent: Ret,
}

/// Before a fork: how the child will say that it is ready; nothing where it has nothing to say. Keeps
/// other threads out of the table.
pub(crate) fn before_fork() -> Option<Gate> {
    let is_needed = holds::are_needed();
    beginning::before_fork();
    MAPS_HERE.take();
    if COUNT.load(Ordering::Relaxed) == 0 && !is_needed {
        return None;
    }
    let mut ends = [-1; 2];
    sys!(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC);
    Some(Gate { ends, parent: sys!(libc::SYS_getpid) })
}

/// Called in parent and child.
pub(crate) fn fork_done() {
    MAPS_HERE.give();
    beginning::fork_done();
}

impl Gate {
    /// In the parent: waits until the child is ready, or gone.
    pub(crate) fn wait(self) {
        let [read, write] = self.ends;
        numbers::close_low(write);
        let mut byte = 0_u8;
        while sys!(libc::SYS_read, read, &raw mut byte, 1) == -i64::from(libc::EINTR) {}
        numbers::close_low(read);
    }

    /// In the child: takes its own holds, and tells the parent.
    pub(crate) fn pass(self) {
        let mut maps = MAPS_HERE.lock();
        // The holds are the parent's.
        maps.parts().for_each(|part| *part.of.hold.lock() = None);
        let (mut ended, given) = hold_all(&mut maps);
        // What a parent held that has ended, or has not waited, may have been given to others before it was held here.
        // To a child that is made as its parent's sibling this one looks the same.
        if self.ends[0] < 0 || sys!(libc::SYS_getppid) != self.parent {
            shut(maps.parts());
            show_again(&mut maps);
        }
        for source in maps.sources(|source| source.base.is_some()) {
            if !replicas::make_own(&maps, &source) {
                ended.extend(maps.close(&source));
            }
        }
        drop(maps);
        drop(ended);
        holds::renew();
        // Not by closing alone: a child of another thread may have the end as well.
        let [_, write] = self.ends;
        sys!(libc::SYS_write, write, c"".as_ptr(), 1);
        for end in self.ends {
            numbers::close_low(end);
        }
        // Others may have to give way for that, the parent among them.
        giving::say_mapped(&given);
    }
}

/// Holds what is mapped and not held. What can't be, since a kernel is to map the file, becomes the
/// kernel's, or else is shut. Returns what ends by that, and what has become the kernel's, whose length it has to be
/// told.
#[must_use]
fn hold_all(maps: &mut Maps) -> (Vec<Part>, Vec<Arc<Source>>) {
    let (mut ended, mut given) = (Vec::new(), Vec::new());
    for source in maps.sources(|source| source.is_own() || source.base.is_some()) {
        let mut hold = source.hold.lock();
        if hold.is_none() {
            *hold = mounts::fs(source.mount).and_then(|fs| source.take(fs).ok()?);
        }
        // A replica stays what it is: without a hold it is of no file.
        let stays = hold.is_some() || source.base.is_some();
        drop(hold);
        if stays {
            continue;
        }
        if giving::swap(mounts::fs(source.mount), maps, &source) {
            ended.extend(maps.forget_given(&source));
            given.push(source);
        } else {
            let end = |part: &mut Part| {
                shut(std::slice::from_ref(part));
                // What its file's number gets is not for it.
                part.shown = Shown::ALL;
            };
            let its: Vec<u64> = maps.of_source(&source).map(|part| part.start).collect();
            maps.show_more(&its, end);
        }
    }
    (ended, given)
}

/// Makes the file's own pages inaccessible where they are mapped.
pub(crate) fn shut<'a>(parts: impl IntoIterator<Item = &'a Part>) {
    close(parts.into_iter().filter(|part| part.of.is_own()));
}

/// Makes parts inaccessible, whatever they show.
fn close<'a>(parts: impl Iterator<Item = &'a Part>) {
    for part in parts {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        sys!(libc::SYS_mmap, part.start, part.len, libc::PROT_NONE, flags, u64::MAX, 0);
    }
}

impl Maps {
    /// Makes all that is mapped of a source inaccessible, and forgets it.
    #[must_use]
    fn close(&mut self, source: &Arc<Source>) -> Vec<Part> {
        let parts: Vec<Part> = self.of_source(source).cloned().collect();
        close(parts.iter());
        parts.iter().flat_map(|part| self.forget(&(part.start..part.end()))).collect()
    }
}

/// Before the process leaves its pools, to be another program: what it has mapped it holds no longer.
pub(crate) fn suspend() {
    if let Some(maps) = some() {
        // Nobody stores to them from here on.
        shut(maps.parts());
        times::end_stores(&maps);
        maps.parts().for_each(|part| *part.of.hold.lock() = None);
    }
}

/// The process has stayed the program that it was.
pub(crate) fn resume() {
    let Some(mut maps) = some() else { return };
    let (ended, given) = hold_all(&mut maps);
    show_again(&mut maps);
    drop(maps);
    drop(ended);
    giving::say_mapped(&given);
}

/// Shows what was shut, as the files are now.
fn show_again(maps: &mut Maps) {
    let own: Vec<u64> =
        maps.parts().filter(|part| part.of.is_own()).map(|part| part.start).collect();
    maps.show_more(&own, |part| {
        let again = || {
            let (fs, hold) = (mounts::fs(part.of.mount)?, (*part.of.hold.lock())?);
            let asked = Asked::of_part(part, (part.start, libc::MAP_FIXED), part.len);
            let (shown, len) = show(fs, &asked, &runs(fs, hold, &asked.range())?, part.start);
            (len == part.len).then_some(shown)
        };
        // What can't be shown again stays shut.
        part.shown = again().unwrap_or(Shown::ALL);
    });
    growing::changed();
}
