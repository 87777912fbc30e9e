//! Giving way: mappings of a file's own pages become the kernel's where a kernel is to map the file.
//!
//! A program that only has the mount can be shown the kernel's pages alone, and what is in those others
//! do not see. So when the page cache is to read a page of such a file (`Fs::ask_to_map`), its reader
//! waits until nobody has the file's own pages mapped any more. Each process that has is woken through
//! the arena, and its helper ([`crate::mounts::helper`])
//! 1. waits until no thread is inside this library: a call may be copying from or to the mapping, with
//!    a lock of the very file;
//! 2. moves a mapping of the kernel's over each part, as `mremap` does it: whatever another thread
//!    stores goes to the file's own pages before, or waits for the page cache after it;
//! 3. writes back and fences what was stored before, since a later `msync` is the kernel's and knows
//!    nothing of it;
//! 4. wakes threads that sleep on a futex in the mapping, which is another one now;
//! 5. gives the hold up.
//!
//! The page cache reads the file's pages when the last has done so: nobody sees a page in two versions.
//!
//! The kernel's mapping is made of an *anchor*: one page of the file, mapped when the first mapping of
//! the file is made, at an address of this library's, inaccessible and so never read. The kernel
//! makes longer ones of it without a descriptor, a permission or the file system's being asked: to map
//! the file anew would have it wait for the very page that is being waited for.
//!
//! An anchor is of the mount that it was made by. Where that one's daemon is dead, a mapping of it would show
//! nothing ever: the file's own pages stay then, by a hold that does not give way, and the kernel of another mount is
//! refused (`Fs::map_hold_staying`).
//!
//! Before Linux 6.6 the kernel maps files of a shared mount for one process alone (`MAP_PRIVATE`). There is
//! no anchor then, and who asks for a shared mapping gets the file's own pages for good.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use novale_core::Fs;

use crate::base::sys::{fail, sys};
use crate::fds::kernel;
use crate::fds::quiet;
use crate::fds::reader::Reader;
use crate::fds::table::{self, InUse};
use crate::maps::sleepers::Sleepers;
use crate::maps::{self, Maps, PAGE, Part, Source, foreign, growing, held};
use crate::mounts::{self, again, ctx, helper};
use crate::numbers;

/// How long the helper sleeps at most: a wake-up that a dead client owed is made good then.
const SLEEP: Duration = Duration::from_secs(10);
/// The same after an attempt that a thread inside a call has stopped.
const SOON: Duration = Duration::from_millis(5);

/// What is known of the kernel: bits, since a mount of another kind could say otherwise.
static KERNEL: AtomicU32 = AtomicU32::new(0);
const MAPS: u32 = 1;
const REFUSES: u32 = 2;

/// A page of a file in the kernel's way, inaccessible.
pub(crate) struct Anchor {
    at: u64,
    /// Of the mount; 0 where a filter has kept that from being told.
    device: u64,
    /// The mount has gone, and the hold is one that stays.
    is_left: AtomicBool,
    /// The program may store to what is mapped of it.
    pub(crate) writes: bool,
}

impl Drop for Anchor {
    fn drop(&mut self) {
        sys!(libc::SYS_munmap, self.at, PAGE);
    }
}

impl Anchor {
    /// Maps a page of a file that is open as `fd`, which goes to the kernel for it.
    pub(crate) fn new(fd: i32, description: &InUse) -> Option<Self> {
        if !kernel::take(description) {
            return None;
        }
        let _numbers = numbers::lock();
        if !table::leads_to(fd, description) {
            return None;
        }
        Self::of_file(fd, description)
    }

    /// One of a mount that is served, if there is one: this, or another one of the same file.
    pub(crate) fn or_anew(self, fs: &Fs, description: &InUse) -> Option<Self> {
        if self.is_served(fs) {
            return Some(self);
        }
        kernel::with_anew(description, |fd| Self::of_file(fd, description))?
            .filter(|anchor| anchor.is_served(fs))
    }

    fn of_file(fd: i32, description: &InUse) -> Option<Self> {
        let flags = libc::MAP_SHARED;
        let at = sys!(libc::SYS_mmap, 0, PAGE, libc::PROT_NONE, flags, fd, 0);
        let known = if at == fail(libc::ENODEV) { REFUSES } else { MAPS };
        KERNEL.fetch_or(known, Ordering::Relaxed);
        let at = u64::try_from(at).ok()?;
        let (device, is_left) = (again::device_by(fd), AtomicBool::new(false));
        Some(Self { at, device, is_left, writes: description.writes() })
    }

    /// Whether the mount is served that it was made by. The number is nobody else's: it keeps the mount.
    pub(crate) fn is_served(&self, fs: &Fs) -> bool {
        self.device == 0 || again::serves(fs, self.device)
    }

    /// Whether it is of no use any more, and the hold one that stays.
    pub(crate) fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Acquire)
    }

    /// Notes that the hold is one that stays.
    pub(crate) fn leave(&self) {
        self.is_left.store(true, Ordering::Release);
    }

    /// Has the kernel read the page, by which the mount's daemon learns that the kernel maps the file: for a process that
    /// has no pool to say it in.
    fn have_read(&self) {
        if sys!(libc::SYS_mprotect, self.at, PAGE, libc::PROT_READ) == 0 {
            sys!(libc::SYS_madvise, self.at, PAGE, libc::MADV_POPULATE_READ);
            sys!(libc::SYS_mprotect, self.at, PAGE, libc::PROT_NONE);
        }
    }

    /// A mapping of the kernel's of what a part shows, somewhere else.
    fn shadow(&self, part: &Part) -> Option<u64> {
        let len = part.offset.checked_add(part.len)?;
        let made = sys!(libc::SYS_mremap, self.at, 0, len, libc::MREMAP_MAYMOVE);
        let made = u64::try_from(made).ok()?;
        if part.offset > 0 {
            sys!(libc::SYS_munmap, made, part.offset);
        }
        let at = made + part.offset;
        // A private part's stores would be the file's: it can be read alone.
        let kept = if part.shared { u64::MAX } else { !(libc::PROT_WRITE as u64) };
        if sys!(libc::SYS_mprotect, at, part.len, part.access & kept) != 0 {
            sys!(libc::SYS_munmap, at, part.len);
            return None;
        }
        Some(at)
    }
}

/// Whether the kernel maps no file of a mount that others share, but private: so before Linux 6.6.
pub(crate) fn kernel_refuses(fd: i32, description: &InUse) -> bool {
    if KERNEL.load(Ordering::Relaxed) == 0 {
        drop(Anchor::new(fd, description));
    }
    KERNEL.load(Ordering::Relaxed) == REFUSES
}

/// Puts the kernel's mappings in the place of all parts of a source; false, and nothing done, where the
/// kernel has no room for them, or the mount is not served any more, as far as the pool can be asked: not by a child of
/// fork that could not join it.
pub(crate) fn swap(fs: Option<&Fs>, maps: &Maps, source: &Arc<Source>) -> bool {
    let is_served = |anchor: &&Anchor| fs.is_none_or(|fs| anchor.is_served(fs));
    let Some(anchor) = source.anchor.as_ref().filter(is_served) else { return false };
    let parts = || maps.of_source(source);
    let mut shadows = Vec::new();
    for part in parts() {
        let Some(at) = anchor.shadow(part) else {
            for (part, at) in parts().zip(shadows) {
                sys!(libc::SYS_munmap, at, part.len);
            }
            return false;
        };
        shadows.push(at);
    }
    for (part, at) in parts().zip(shadows) {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        foreign::note(&(part.start..part.start + part.len));
        if sys!(libc::SYS_mremap, at, part.len, part.len, flags, part.start) < 0 {
            // What it shows may be another file's soon.
            held::shut(std::slice::from_ref(part));
        }
    }
    source.set_given();
    kernel::has_mapped();
    growing::changed();
    true
}

/// One turn of a helper: gives way where it is asked to, and sleeps until it may be asked again.
pub(crate) fn attend(mount: usize) {
    let joins = mounts::joins();
    let Some(fs) = mounts::here(mount) else {
        // The process is about to be another program, or to end.
        if !helper::is_to_end() {
            mounts::wait_for_join(joins);
        }
        return;
    };
    let turn = fs.mappings_turn();
    // Who says so wakes after it: here, or by the turn.
    if helper::is_to_end() {
        return;
    }
    let done = give_way(mount);
    fs.wait_for_mappings(turn, if done { SLEEP } else { SOON });
}

/// The sources of a mount that can give way.
fn able(maps: &Maps, mount: usize) -> Vec<Arc<Source>> {
    maps.sources(|source| source.mount == mount && source.can_give_way())
}

/// Those of them that are to give way: of files that a kernel is to map, or of a mount that has gone.
fn wanted(fs: &Fs, mut sources: Vec<Arc<Source>>) -> Vec<Arc<Source>> {
    let is_wanted = |source: &Source| fs.is_wanted(&ctx(), source.ino).unwrap_or(false);
    let mut looked = (0, true);
    let mut is_dead = |anchor: &Anchor| {
        if looked.0 != anchor.device {
            looked = (anchor.device, anchor.is_served(fs));
        }
        !looked.1
    };
    sources.retain(|of| is_wanted(of) || of.anchor.as_ref().is_some_and(&mut is_dead));
    sources
}

/// Gives way for each file of a mount that a kernel is to map; false where that has to be tried again.
fn give_way(mount: usize) -> bool {
    let quiet = quiet::Quiet::new();
    // Nobody leaves the pool from here on.
    let Some(fs) = mounts::here(mount) else { return false };
    // A thread that is inside may need the table with a file's lock.
    let Some(sources) = maps::some().map(|maps| able(&maps, mount)) else { return true };
    if wanted(fs, sources).is_empty() {
        return true;
    }
    if !quiet.wait_to_give(quiet::BRIEFLY) {
        return false;
    }
    let Some(mut maps) = maps::some() else { return true };
    let mut done = true;
    let (mut given, mut ended) = (Vec::new(), Vec::new());
    // Others may have come since: who waits for one of them keeps the kernel from telling the length of any.
    for source in wanted(fs, able(&maps, mount)) {
        if swap(Some(fs), &maps, &source) {
            // One that was about to sleep at the first look does so at the second.
            wake_sleepers(fs, &maps, &source);
            flush(fs, &maps, &source);
            wake_sleepers(fs, &maps, &source);
            source.give_up(fs);
            ended.extend(maps.forget_given(&source));
            given.push(source);
        } else {
            let has_way = source.has_way(fs);
            if !has_way {
                source.stay(fs);
            }
            done &= !has_way;
        }
    }
    // The kernel may wait there for a page that it has asked for, until all who have its file mapped have given way.
    for source in &given {
        tell_length(source);
    }
    drop(maps);
    drop(ended);
    done
}

/// Makes all mappings of a mount's files the kernel's that can be, no matter who wants them, and says which these are.
/// No other thread is inside, and the caller keeps them out.
pub(crate) fn give_all(mount: usize) -> Vec<Arc<Source>> {
    let (mut given, mut ended) = (Vec::new(), Vec::new());
    let (Some(fs), Some(mut maps)) = (mounts::here(mount), maps::some()) else { return given };
    for source in maps.sources(|source| source.mount == mount && source.can_give_way()) {
        if swap(Some(fs), &maps, &source) {
            flush(fs, &maps, &source);
            wake_sleepers(fs, &maps, &source);
            source.give_up(fs);
            // Nobody has asked for it, so that nobody else says that the kernel maps it. Where others hold it, it is said
            // when they have given way.
            fs.ask_to_map(&ctx(), source.ino).unwrap_or_default();
            ended.extend(maps.forget_given(&source));
            given.push(source);
        } else if !source.has_way(fs) {
            source.stay(fs);
        }
    }
    for source in &given {
        tell_length(source);
    }
    drop(maps);
    drop(ended);
    given
}

/// The same of several mounts, by who is outside, and says then that the kernel maps these files.
pub(crate) fn give_mounts(mounts: impl IntoIterator<Item = usize>) {
    let mut mounts = mounts.into_iter().peekable();
    if mounts.peek().is_none() {
        return;
    }
    let quiet = quiet::Quiet::of_call();
    let are_out = quiet.wait_to_give(quiet::PATIENCE);
    let given: Vec<_> = if are_out { mounts.flat_map(give_all).collect() } else { Vec::new() };
    drop(quiet);
    say_mapped(&given);
}

/// The same for the mounts whose helper can't be made again after a call, so that nobody would give way.
pub(crate) fn give_unattended() {
    give_mounts(helper::take_lost());
}

/// Has it said that the kernel maps files whose mappings have become the kernel's unasked, so that all who make them
/// longer do so by the kernel from now on, and has the kernel know the lengths that they have.
pub(crate) fn say_mapped(given: &[Arc<Source>]) {
    for source in given {
        if kernel::ask(source.mount, source.ino).is_none()
            && let Some(anchor) = &source.anchor
        {
            anchor.have_read();
        }
        tell_length(source);
    }
}

/// Has the kernel know the length of a file whose mapping is the kernel's now.
fn tell_length(source: &Source) {
    kernel::tell_length(source.mount, source.ino, source.generation);
}

/// Makes durable what was stored in a source's parts while they showed the file's own pages.
fn flush(fs: &Fs, maps: &Maps, source: &Arc<Source>) {
    for part in maps.of_source(source).filter(|part| part.shared) {
        if part.writes {
            let (first, pages) = (part.offset / PAGE, part.len / PAGE);
            // What fails here, damage and a closed pool, fails everywhere.
            fs.map_flush(&ctx(), source.ino, first, pages).unwrap_or_default();
        }
    }
}

/// Wakes threads of this process that sleep on a futex in a source's parts: from now on it is another
/// one.
fn wake_sleepers(fs: &Fs, maps: &Maps, source: &Arc<Source>) {
    let Some(hold) = source.hold() else { return };
    let sleepers = Sleepers::now();
    for part in maps.of_source(source).filter(|part| part.shared) {
        sleepers.wake(fs, hold, part);
    }
}

/// Has the helper look at a source of which there is a mapping now. It may have been asked to give way since the file was
/// held, and has found none. As long as there is one, others are made of the same source: it would sleep on meanwhile.
pub(crate) fn is_known(fs: &Fs, source: &Source) {
    if source.anchor.is_some() && fs.is_wanted(&ctx(), source.ino).unwrap_or(true) {
        fs.wake_for_mappings();
    }
}

/// Whether this process can give way where it is asked to.
pub(crate) fn can(mount: usize) -> bool {
    helper::start(mount, attend)
}

/// Puts the kernel's private mapping of an open file over a piece of a part that is to be stored to.
pub(crate) fn map_private(part: &Part, reader: &Reader) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let Part { start, len, access, offset, .. } = *part;
    foreign::note(&(start..start + len));
    sys!(libc::SYS_mmap, start, len, access, flags, reader.fd(), offset) >= 0
}

/// Puts a copy in the process' own memory over a piece of a part that is private, and about to be stored
/// to: the file does not see that.
pub(crate) fn copy(part: &Part) -> Result<(), i64> {
    let none = fail(libc::ENOMEM);
    if sys!(libc::SYS_mprotect, part.start, part.len, libc::PROT_READ) != 0 {
        return Err(none);
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let made = sys!(libc::SYS_mmap, 0, part.len, access, flags, u64::MAX, 0);
    let made = u64::try_from(made).map_err(|_| none)?;
    let len = usize::try_from(part.len).map_err(|_| none)?;
    let bytes = crate::base::guard::readable_now(part.start, len);
    let copied = bytes
        .zip(crate::base::guard::writable_now(made, len))
        .map(|(from, to)| to.copy_from_slice(from));
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    if copied.is_none() || sys!(libc::SYS_mremap, made, part.len, part.len, flags, part.start) < 0 {
        sys!(libc::SYS_munmap, made, part.len);
        return Err(none);
    }
    Ok(())
}
