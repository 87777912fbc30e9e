//! Atomic mappings (NOVA 4.5): what a program stores is in a replica of its own until `msync` publishes
//! it, all changes of a file in one commit.
//!
//! The replica is a private mapping of a file in memory, the *base*, that has what the file held: the
//! kernel copies a page when the program first stores to it. A page that differs from the base is
//! one that the program has changed. Publishing writes what differs to the file, and then to the base;
//! what is stored meanwhile is found the next time. A write of this process to the file goes to
//! base and replica as well, of a private mapping to the base alone.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use novale_core::{Error, Fs, Ino, Piece};

use crate::base::guard;
use crate::base::lock::Held;
use crate::base::sys::{Ret, fail, sys};
use crate::maps::asked::Asked;
use crate::maps::{self, Maps, PAGE, Part, Source};
use crate::mounts::{self, ctx};
use crate::numbers::{self, limits};

const PAGE_BYTES: usize = 4096;
/// Since Linux 5.18: `MADV_DONTNEED` for locked pages, too.
pub(crate) const MADV_DONTNEED_LOCKED: i32 = 24;

/// A file in memory without a name.
pub(crate) struct Memory(i32);

impl Memory {
    /// So many zeros.
    fn new(len: u64) -> Option<Self> {
        let made = sys!(libc::SYS_memfd_create, c"novale".as_ptr(), libc::MFD_CLOEXEC);
        let memory = Self::of(made)?;
        (sys!(libc::SYS_ftruncate, memory.fd(), len) == 0).then_some(memory)
    }

    /// What the kernel has returned a number for, or an error.
    pub(crate) fn of(made: Ret) -> Option<Self> {
        Some(Self(i32::try_from(made).ok().filter(|fd| *fd >= 0)?))
    }

    pub(crate) fn fd(&self) -> i32 {
        self.0
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        numbers::close_low(self.0);
    }
}

/// What a replica was made of, and what was published since.
pub(crate) struct Base {
    start: u64,
    len: u64,
    /// Where in the file it begins.
    offset: u64,
}

impl Drop for Base {
    fn drop(&mut self) {
        sys!(libc::SYS_munmap, self.start, self.len);
    }
}

impl Base {
    /// For the bytes `offset..offset + len` of a file: memory of its own, with zeros in it.
    pub(crate) fn empty((offset, len): (u64, u64)) -> Option<(Self, Memory)> {
        let memory = Memory::new(len)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let start = sys!(libc::SYS_mmap, 0, len, access, libc::MAP_SHARED, memory.fd(), 0);
        Some((Self { start: u64::try_from(start).ok()?, len, offset }, memory))
    }

    /// Reads the file's bytes, as far as it goes.
    pub(crate) fn read(&self, fs: &Fs, ino: Ino) -> Option<()> {
        let bytes = self.bytes(&(self.offset..self.offset + self.len))?;
        fs.read(&ctx(), ino, self.offset, bytes).ok().map(|_| ())
    }

    /// The same bytes in another file, in memory that the calling process shares with no other.
    fn copied(&self) -> Option<Memory> {
        let (memory, mut done) = (Memory::new(self.len)?, 0);
        // Ends: each turn copies something.
        while done < self.len {
            let (from, left) = (self.start + done, self.len - done);
            let copied = sys!(libc::SYS_pwrite64, memory.fd(), from, left, done);
            done += u64::try_from(copied).ok().filter(|copied| *copied > 0)?;
        }
        Some(memory)
    }

    /// The bytes of a range of the file.
    #[expect(
        clippy::mut_from_ref,
        reason = "shared memory, changed under the lock of the mappings"
    )]
    fn bytes(&self, range: &Range<u64>) -> Option<&mut [u8]> {
        let from = range.start.checked_sub(self.offset)?;
        let len = range.end.checked_sub(range.start)?;
        if from.checked_add(len)? > self.len {
            return None;
        }
        let (at, len) = ((self.start + from) as *mut u8, usize::try_from(len).ok()?);
        // SAFETY: inside of the base, which is mapped as long as `self` lives; who has the lock of the
        // mappings uses it, one at a time.
        Some(unsafe { std::slice::from_raw_parts_mut(at, len) })
    }
}

/// A replica that is not at its place yet.
pub(crate) struct Aside {
    at: u64,
    len: u64,
}

impl Drop for Aside {
    fn drop(&mut self) {
        if self.len > 0 {
            sys!(libc::SYS_munmap, self.at, self.len);
        }
    }
}

impl Aside {
    /// Maps what is to be the base, and is read before it may be touched: the kernel copies pages as they are at that
    /// moment (`MAP_POPULATE`, `MAP_LOCKED`, `mlockall`).
    pub(crate) fn of(base: &Memory, asked: &Asked) -> Option<Self> {
        let flags = libc::MAP_PRIVATE | asked.flags & libc::MAP_NORESERVE;
        let at = sys!(libc::SYS_mmap, 0, asked.len, libc::PROT_NONE, flags, base.fd(), 0);
        Some(Self { at: u64::try_from(at).ok()?, len: asked.len })
    }

    fn protect(&self, access: u64) -> Option<()> {
        (sys!(libc::SYS_mprotect, self.at, self.len, access) == 0).then_some(())
    }

    /// Stores what is not published yet of another replica of the same place in the file. This one has a base of its
    /// own.
    pub(crate) fn carry(&self, part: &Part, base: &Base) -> Option<()> {
        let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        self.protect(access)?;
        for change in changes(part, &(part.start..part.start + part.len.min(self.len))) {
            let Some(page) = base.bytes(&(change.offset..change.offset + PAGE)) else { continue };
            store(access, self.at + (change.offset - part.offset), &change.over(page));
        }
        Some(())
    }

    /// Puts it in the place of whatever is there. The file has so many bytes.
    pub(crate) fn put(mut self, start: u64, asked: &Asked, size: u64) -> Option<()> {
        self.protect(asked.access)?;
        let (len, flags) = (self.len, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
        let locks = asked.flags & libc::MAP_LOCKED != 0;
        // What is in the place of something else by then can't be refused.
        if locks && sys!(libc::SYS_mlock2, self.at, len, libc::MLOCK_ONFAULT) != 0 {
            return None;
        }
        if sys!(libc::SYS_mremap, self.at, len, len, flags, start) < 0 {
            return None;
        }
        // Nothing is aside any more.
        self.len = 0;
        let populates = libc::MAP_POPULATE | libc::MAP_NONBLOCK;
        if locks || asked.flags & populates == libc::MAP_POPULATE {
            let writes = asked.access & libc::PROT_WRITE as u64 != 0;
            let advice = if writes { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
            // A copy of what is behind the end of the file would not show what the file gets there.
            let there = size.next_multiple_of(PAGE).saturating_sub(asked.offset).min(len);
            sys!(libc::SYS_madvise, start, there, advice);
        }
        Some(())
    }
}

/// A page that was changed.
struct Change {
    /// Where in the file it begins.
    offset: u64,
    /// What the base has of it.
    old: Vec<u8>,
    /// What the replica has of it, as far as it counts.
    new: Vec<u8>,
}

impl Change {
    /// The bytes that were changed. What lies between two pieces may be newer in another replica, too.
    fn pieces(&self) -> impl Iterator<Item = Piece<'_>> + Clone {
        Piece::changed(self.offset, &self.old, &self.new)
    }

    fn is_none(&self) -> bool {
        self.pieces().next().is_none()
    }

    /// Its place in the file.
    fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.new.len() as u64
    }

    /// What a page of the file is with the bytes that were changed.
    fn over(&self, page: &[u8]) -> Vec<u8> {
        let mut page = page.to_vec();
        for piece in self.pieces() {
            let from = usize::try_from(piece.offset - self.offset).unwrap_or(usize::MAX);
            let rest = page.get_mut(from..).unwrap_or_default();
            rest.iter_mut().zip(piece.bytes).for_each(|(byte, new)| *byte = *new);
        }
        page
    }
}

/// What of a page differs from the base.
fn change_of(part: &Part, base: &Base, at: u64, offset: u64) -> Option<Change> {
    let old = base.bytes(&(offset..offset + PAGE))?;
    let mut page = [0; PAGE_BYTES];
    let own = (page.as_mut_ptr() as u64, PAGE);
    let reached = || reach(part.access, libc::SYS_process_vm_readv, at, own);
    let now =
        guard::readable_now(at, PAGE_BYTES).or_else(|| reached().then_some(page.as_slice()))?;
    if old == now {
        return None;
    }
    let change = Change { offset, old: old.to_vec(), new: now.to_vec() };
    (!change.is_none()).then_some(change)
}

/// All that was changed in a part, as far as a range of addresses goes.
fn changes(part: &Part, range: &Range<u64>) -> Vec<Change> {
    let (Some(base), Some((common, offset))) = (&part.of.base, part.within(range)) else {
        return Vec::new();
    };
    let stored = stored_to(&common);
    let each = (0..).zip((common.start..common.end).step_by(PAGE_BYTES));
    let changed = each.filter(|(index, _)| stored.get(*index).copied().unwrap_or(true));
    changed.filter_map(|(_, at)| change_of(part, base, at, offset + (at - common.start))).collect()
}

/// Which pages of a range the kernel has made copies of; nothing where it does not tell.
fn stored_to(range: &Range<u64>) -> Vec<bool> {
    const OF_A_FILE: u64 = 1 << 61;
    const THERE: u64 = 3 << 62;
    let path = c"/proc/thread-self/pagemap";
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let pages = usize::try_from((range.end - range.start) / PAGE).unwrap_or(0);
    let mut words = vec![0_u64; pages];
    let from = range.start / PAGE * 8;
    let got = limits::opening(|| {
        let fd = sys!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0);
        if fd < 0 {
            return fd;
        }
        let got = sys!(libc::SYS_pread64, fd, words.as_mut_ptr(), pages * 8, from);
        numbers::close_low(fd as i32);
        got
    });
    if usize::try_from(got).ok() != Some(pages * 8) {
        return Vec::new();
    }
    words.into_iter().map(|word| word & THERE != 0 && word & OF_A_FILE == 0).collect()
}

/// Moves bytes from or to a replica that the program may not read or store to at this moment. The kernel does it, to
/// which the thread's protection keys do not matter.
fn reach(access: u64, call: i64, at: u64, (own, len): (u64, u64)) -> bool {
    let (start, end) = (at / PAGE * PAGE, (at + len).next_multiple_of(PAGE));
    let all = access | (libc::PROT_READ | libc::PROT_WRITE) as u64;
    if sys!(libc::SYS_mprotect, start, end - start, all) != 0 {
        return false;
    }
    let [here, there] = [[own, len], [at, len]];
    let process = sys!(libc::SYS_getpid);
    let moved = sys!(call, process, here.as_ptr(), 1, there.as_ptr(), 1, 0);
    sys!(libc::SYS_mprotect, start, end - start, access);
    moved == len.cast_signed()
}

/// Stores to a replica of this access.
fn store(access: u64, at: u64, bytes: &[u8]) {
    if let Some(to) = guard::writable_now(at, bytes.len()) {
        to.copy_from_slice(bytes);
        return;
    }
    let own = (bytes.as_ptr() as u64, bytes.len() as u64);
    reach(access, libc::SYS_process_vm_writev, at, own);
}

/// Publishes what was changed in a range of addresses: each file's changes in one commit.
pub(crate) fn publish(maps: &Maps, range: &Range<u64>) -> Result<(), Ret> {
    let replicas = maps.within(range).filter(|part| part.shared && part.of.base.is_some());
    let mut files: Vec<(usize, Ino)> = Vec::new();
    for part in replicas {
        if !part.of.hold_again()? {
            show_of_gone(maps, range, part);
        } else if !files.contains(&file_of(part)) {
            files.push(file_of(part));
        }
    }
    files.into_iter().try_for_each(|file| publish_file(maps, range, file))
}

/// Shows what was changed in a replica of a file that is no more in the others of it, which are all that there is of it.
fn show_of_gone(maps: &Maps, range: &Range<u64>, gone: &Part) {
    let is_of_it =
        |part: &&Part| part.of.generation == gone.of.generation && part.of.hold().is_none();
    for change in changes(gone, range) {
        let all = || maps.replicas_of(file_of(gone), change.range()).filter(is_of_it);
        show_to_others(all(), gone, &change);
        put_all(all(), &change);
    }
}

fn publish_file(maps: &Maps, range: &Range<u64>, file: (usize, Ino)) -> Result<(), Ret> {
    let Some(fs) = mounts::fs(file.0) else { return Err(fail(libc::EIO)) };
    let failed = |error: Error| fail(novale_posix::errno(&error));
    let size = fs.getattr(file.1).map_err(failed)?.size;
    let mut found: Vec<Change> = Vec::new();
    let is_of_it = |part: &&Part| file_of(part) == file && part.shared && is_of_file(&part.of);
    for part in maps.within(range).filter(is_of_it) {
        for mut change in changes(part, range) {
            // What lies beyond the end of the file is no part of it.
            let left = usize::try_from(size.saturating_sub(change.offset)).unwrap_or(usize::MAX);
            change.new.truncate(left);
            if !change.is_none() {
                // Before the others' changes are looked for, which may be of the same bytes.
                show_to_others(of_file(maps, file, change.range()), part, &change);
                found.push(change);
            }
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    let pieces = found.iter().flat_map(Change::pieces);
    fs.publish(&ctx(), file.1, pieces).map_err(failed)?;
    // Only now: of what could not be published nothing is in the file, whose bytes the bases are. What lay behind an end
    // that is new since is not there either, and in the bases until the file's bytes are shown at its place.
    for change in &found {
        put_all(of_file(maps, file, change.range()), change);
    }
    Ok(())
}

/// Shows what is about to be published of one replica in the others of the file.
fn show_to_others<'a>(all: impl Iterator<Item = &'a Part>, from: &Part, change: &Change) {
    for part in all.filter(|part| !Arc::ptr_eq(&part.of, &from.of)) {
        change.pieces().for_each(|piece| show_stored(part, &piece));
    }
}

/// Puts what is published into the bases of a file's replicas.
fn put_all<'a>(all: impl Iterator<Item = &'a Part>, change: &Change) {
    for part in all {
        change.pieces().for_each(|piece| put(part, &piece));
    }
}

fn file_of(part: &Part) -> (usize, Ino) {
    (part.of.mount, part.of.ino)
}

/// Puts bytes of the file into a part's base, as far as it has their place.
fn put(part: &Part, piece: &Piece<'_>) {
    let Some(Piece { offset, bytes }) = within(part, piece) else { return };
    let range = offset..offset + bytes.len() as u64;
    if let Some(to) = part.of.base.as_ref().and_then(|base| base.bytes(&range)) {
        to.copy_from_slice(bytes);
    }
}

/// This process has written to a file: its replicas show it.
pub(crate) fn wrote(maps: &Maps, file: (usize, Ino), offset: u64, bytes: &[u8]) {
    for part in of_file(maps, file, offset..offset + bytes.len() as u64) {
        show(part, &Piece { offset, bytes });
    }
}

/// Whether the process has a replica of a file.
pub(crate) fn are_of(maps: &Maps, file: (usize, Ino)) -> bool {
    maps.sources_of(file).any(|source| is_of_file(source))
}

/// Whether it is a replica, and of a file: what is not held may be of one that had the number before.
fn is_of_file(source: &Source) -> bool {
    source.base.is_some() && source.hold().is_some()
}

/// The replicas of a file that have something of a range of it.
fn of_file(maps: &Maps, file: (usize, Ino), bytes: Range<u64>) -> impl Iterator<Item = &Part> {
    maps.replicas_of(file, bytes).filter(|part| is_of_file(&part.of))
}

/// Of bytes of the file those that have a place in a part.
fn within<'b>(part: &Part, &Piece { offset, bytes }: &Piece<'b>) -> Option<Piece<'b>> {
    let end = offset + bytes.len() as u64;
    let range = part.offset.max(offset)..(part.offset + part.len).min(end);
    let from = usize::try_from(range.start - offset).ok()?;
    let to = usize::try_from(range.end.checked_sub(offset)?).ok()?;
    let bytes = bytes.get(from..to)?;
    (!range.is_empty()).then_some(Piece { offset: range.start, bytes })
}

/// Shows bytes of the file in a replica, as far as it has their place.
fn show(part: &Part, piece: &Piece<'_>) {
    put(part, piece);
    show_stored(part, piece);
}

/// Stores bytes to a replica alone, as far as it has their place: a page that the kernel has copied does not show the
/// base. Of a private mapping it is the program's own.
fn show_stored(part: &Part, piece: &Piece<'_>) {
    let Some(Piece { offset, bytes }) = within(part, piece).filter(|_| part.shared) else { return };
    let at = part.start + (offset - part.offset);
    if guard::readable_now(at, bytes.len()).is_none_or(|shown| shown != bytes) {
        store(part.access, at, bytes);
    }
}

/// This process has changed bytes of a file that it had not at hand: its replicas show what is there now. One that came
/// after the caller had looked for them, as without the table, may have read what was there before.
pub(crate) fn changed(
    maps: Option<Held<'_, Maps>>,
    fs: &Fs,
    file: (usize, Ino),
    range: &Range<u64>,
) {
    let Some(maps) = maps.or_else(|| maps::with_replicas_now(file.0)) else { return };
    show_range(&maps, fs, file, range, show);
}

/// This process has changed bytes somewhere in a range of a file: its replicas show what they had not seen there, over
/// what was stored too. To be called where its writes alone were there in the range, as far as is known.
pub(crate) fn changed_within(fs: &Fs, file: (usize, Ino), range: &Range<u64>) {
    let Some(maps) = maps::with_replicas_now(file.0) else { return };
    show_range(&maps, fs, file, range, show_unseen);
}

/// This process has changed bytes somewhere in a file: its replicas show what they had not seen, but where it was stored
/// to, since that may be of another process, and older.
pub(crate) fn changed_anywhere(fs: &Fs, file: (usize, Ino)) {
    let Some(maps) = maps::with_replicas_now(file.0) else { return };
    show_range(&maps, fs, file, &(0..u64::MAX), show_around);
}

/// This process has given a file another end: its replicas show nothing behind it. What they have before the end that
/// there is now may be stored since, where another thread has made the file longer again.
pub(crate) fn cut(maps: Option<Held<'_, Maps>>, fs: &Fs, file: (usize, Ino), size: u64) {
    let Some(maps) = maps.or_else(|| maps::with_replicas_now(file.0)) else { return };
    let end = fs.getattr(file.1).map_or(size, |attr| attr.size.max(size));
    show_range(&maps, fs, file, &(size..end), show_around);
    show_range(&maps, fs, file, &(end..u64::MAX), show);
    let from = end.next_multiple_of(PAGE);
    for part in of_file(&maps, file, from..u64::MAX).filter(|part| !part.shared) {
        drop_copies(part, from);
    }
}

/// Has a private mapping lose what was stored to its pages from there on in the file, as in Linux where they are cut off.
fn drop_copies(part: &Part, from: u64) {
    let at = part.start + from.saturating_sub(part.offset).min(part.len);
    let len = part.end() - at;
    if len > 0 {
        // An older kernel has no such advice, and locked pages keep what was stored.
        if sys!(libc::SYS_madvise, at, len, MADV_DONTNEED_LOCKED) == fail(libc::EINVAL) {
            sys!(libc::SYS_madvise, at, len, libc::MADV_DONTNEED);
        }
    }
}

/// Has each replica of a file show what is there now of a range, in pieces of a page at most.
fn show_range(
    maps: &Maps,
    fs: &Fs,
    file: (usize, Ino),
    range: &Range<u64>,
    show: fn(&Part, &Piece<'_>),
) {
    for part in of_file(maps, file, range.clone()) {
        let end = range.end.min(part.offset + part.len);
        let mut at = range.start.max(part.offset);
        while at < end {
            let stop = (at / PAGE * PAGE + PAGE).min(end);
            let mut page = [0; PAGE_BYTES];
            let len = usize::try_from(stop - at).unwrap_or(0);
            let bytes = page.get_mut(..len).unwrap_or_default();
            if fs.peek(&ctx(), file.1, at, bytes).is_ok() {
                show(part, &Piece { offset: at, bytes });
            }
            at = stop;
        }
    }
}

/// Shows of a page's bytes those that the base has otherwise.
fn show_unseen(part: &Part, &Piece { offset, bytes }: &Piece<'_>) {
    let range = offset..offset + bytes.len() as u64;
    let Some(old) = part.of.base.as_ref().and_then(|base| base.bytes(&range)) else { return };
    let old = old.to_vec();
    Piece::changed(offset, &old, bytes).for_each(|piece| show(part, &piece));
}

/// Shows a page's bytes around those that were stored, until the last moment: the program may be storing there.
fn show_around(part: &Part, piece: &Piece<'_>) {
    let start = piece.offset / PAGE * PAGE;
    let (end, at) = (piece.offset + piece.bytes.len() as u64, part.start + (start - part.offset));
    let Some(base) = &part.of.base else { return };
    if base.bytes(&(piece.offset..end)).is_none_or(|old| old == piece.bytes) {
        return;
    }
    let page = || base.bytes(&(start..start + PAGE)).map(|page| page.to_vec());
    let (old, stored) = (page(), change_of(part, base, at, start));
    put(part, piece);
    let (Some(old), Some(new)) = (old, page()) else { return };
    let (now, shown) = match stored {
        Some(change) => (change.new.clone(), change.over(&new)),
        None => (old, new),
    };
    for piece in Piece::changed(start, &now, &shown) {
        let from = usize::try_from(piece.offset - start).unwrap_or(usize::MAX);
        exchange(part, now.get(from..).unwrap_or_default(), &piece);
    }
}

/// As [`show_stored`], in place of what was there: a byte that the program has changed since stays. Where this thread may not
/// store at the moment (`mprotect`, a protection key), it does not.
fn exchange(part: &Part, was: &[u8], piece: &Piece<'_>) {
    let at = part.start + (piece.offset - part.offset);
    let shown = guard::readable_now(at, piece.bytes.len());
    if !part.shared || shown.is_some_and(|shown| shown == piece.bytes) {
        return;
    }
    let Some(to) = guard::writable_now(at, piece.bytes.len()) else {
        return show_stored(part, piece);
    };
    for ((byte, was), new) in to.iter_mut().zip(was).zip(piece.bytes) {
        // SAFETY: a byte of the program's memory, which no other reference leads to here.
        let byte = unsafe { AtomicU8::from_ptr(byte) };
        _ = byte.compare_exchange(*was, *new, Ordering::SeqCst, Ordering::Relaxed);
    }
}

/// In the child of a fork: gives it bases of its own, and replicas of those. Without memory, or a descriptor for it, they
/// stay its parent's. False where the kernel does not map what was made: some are half the parent's then.
pub(crate) fn make_own(maps: &Maps, source: &Arc<Source>) -> bool {
    let Some(base) = &source.base else { return true };
    let Some(memory) = base.copied() else { return true };
    let writes = libc::PROT_READ | libc::PROT_WRITE;
    let mut good = true;
    for part in maps.of_source(source) {
        let changes = changes(part, &(part.start..part.end()));
        let (flags, from) = (libc::MAP_PRIVATE | libc::MAP_FIXED, part.offset - base.offset);
        let (at, len) = (part.start, part.len);
        good &= sys!(libc::SYS_mmap, at, len, writes, flags, memory.fd(), from) >= 0;
        for change in &changes {
            for Piece { offset, bytes } in change.pieces() {
                store(part.access, at + (offset - part.offset), bytes);
            }
        }
        sys!(libc::SYS_mprotect, at, len, part.access);
    }
    let (at, len, flags) = (base.start, base.len, libc::MAP_SHARED | libc::MAP_FIXED);
    good && sys!(libc::SYS_mmap, at, len, writes, flags, memory.fd(), 0) >= 0
}

/// How many pages of a part in a range were changed and not published.
pub(crate) fn changed_pages(part: &Part, range: &Range<u64>) -> usize {
    changes(part, range).len()
}
