//! Mapping files: the pool's own pages, replicas, or the kernel's.

use std::ops::Range;
use std::sync::Arc;

use novale_core::Fallocate;

use crate::base::guard;
use crate::base::sys::{Args, Ret, Served, fail, sys};
use crate::fds::kernel;
use crate::fds::reader::Reader;
use crate::fds::table::{self, DIRECTORY, InUse, MAPPED};
use crate::maps::asked::Asked;
use crate::maps::replicas::MADV_DONTNEED_LOCKED;
use crate::maps::{self, Mode, PAGE, Part, Source, giving, lost, openings, replicas, times};
use crate::mounts::{self, again, ctx, room};
use crate::numbers::{limits, words};
use crate::paths::descriptor;
use crate::process::confined;

/// Leaves the mapping where it was, and empty.
const KEEPS: i32 = libc::MREMAP_DONTUNMAP;
/// Parts that a call takes at most.
const PARTS_MAX: u64 = 1024;
/// Since Linux 6.13, of files since 6.15: addresses that are not to be used. What gives way would be usable there.
const MADV_GUARD_INSTALL: i32 = 102;
/// Huge pages of any machine are a multiple of this.
const HUGE_AT_LEAST: u64 = 64 << 10;
/// Flags of `mremap`.
const REMAPS: i32 = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | KEEPS;

/// A range of whole pages, as the kernel takes it; nothing where it refuses it.
fn pages(at: u64, len: u64) -> Option<Range<u64>> {
    let len = len.checked_next_multiple_of(PAGE)?;
    (at.is_multiple_of(PAGE) && len > 0).then_some(at..at.checked_add(len)?)
}

/// `mmap(at, len, access, flags, fd, offset)`.
pub(crate) fn mmap(args: &Args) -> Served {
    let [at, len, _, flags, fd, _] = *args;
    if flags & libc::MAP_ANONYMOUS as u64 == 0 {
        let fd = descriptor(fd);
        if let Some(description) = table::get(fd) {
            return map_file(fd, &description, args);
        }
        ask_for(fd);
    }
    if flags & libc::MAP_FIXED as u64 == 0 {
        return None;
    }
    // It may take the place of what is mapped here.
    unmap(&pages(at, len)?, || {
        sys!(libc::SYS_mmap, args[0], args[1], args[2], args[3], args[4], args[5])
    })
}

/// Has all give way who have the own pages mapped of what a descriptor of the kernel's leads to, before the kernel maps
/// it. Whoever touches a page of that waits for them, and for this process among them: it may be inside by then, or have
/// the table, as here where the pages are to be there at once.
fn ask_for(fd: i32) {
    let is_own = |mount: &usize| maps::mode(*mount) == Mode::Own;
    if confined::is() || words::is_internal(fd) || !(0..mounts::all().len()).any(|at| is_own(&at)) {
        return;
    }
    if let Some((mount, ino)) = again::served(fd).filter(|(mount, _)| is_own(mount)) {
        // Where they can't, the kernel says so page by page.
        kernel::ask(mount, ino);
    }
}

fn map_file(fd: i32, description: &InUse, args: &Args) -> Served {
    if description.is(DIRECTORY) {
        kernel::take(description);
        return None;
    }
    if Asked::is_synced(args) {
        return Some(fail(libc::EOPNOTSUPP));
    }
    let asked = Asked::of(args).filter(|_| !description.is(MAPPED));
    let asked = asked.map(|asked| asked.of_file(description.writes()));
    if let Some(asked) = &asked
        && maps::mode(description.mount()) != Mode::Kernel
        && !asked.is_allowed(description)
    {
        return Some(fail(libc::EACCES));
    }
    let mapped = match maps::mode(description.mount()) {
        Mode::Own => asked.as_ref().and_then(|asked| maps::map_own(fd, description, asked)),
        Mode::Atomic => asked.as_ref().and_then(|asked| maps::map_replica(description, asked)),
        Mode::Kernel => None,
    };
    if mapped.is_some() {
        openings::keep(fd, description);
        return mapped;
    }
    let shared = asked.as_ref().is_some_and(Asked::shared);
    if !(shared && giving::kernel_refuses(fd, description)) && kernel::map(fd, description) {
        return mmap_by_kernel(args);
    }
    // The kernel can't, somebody has the file's own pages mapped who can't give way, or there is no mount
    // any more.
    let own = asked.and_then(|asked| maps::map_own_for_good(description, &asked));
    openings::keep(fd, description);
    Some(own.unwrap_or_else(|| fail(why_unmapped(description.mount()))))
}

/// What keeps a file from being mapped in any way: a slot that has failed, with what is to be flushed first, or the kernel.
fn why_unmapped(mount: usize) -> i32 {
    let has_failed = mounts::fs(mount).is_some_and(|fs| fs.failed_slots() != 0);
    if has_failed { libc::EIO } else { libc::ENODEV }
}

/// The kernel maps it, maybe in the place of what is mapped here.
fn mmap_by_kernel(args: &Args) -> Served {
    if args[3] & libc::MAP_FIXED as u64 == 0 {
        return None;
    }
    unmap(&pages(args[0], args[1])?, || {
        sys!(libc::SYS_mmap, args[0], args[1], args[2], args[3], args[4], args[5])
    })
}

/// Makes a call that unmaps a range; nothing where nothing of it is mapped here.
fn unmap(range: &Range<u64>, call: impl FnOnce() -> Ret) -> Served {
    unmap_but(range, 0, call)
}

/// The same where the first bytes of the range are elsewhere now.
fn unmap_but(range: &Range<u64>, moved: u64, call: impl FnOnce() -> Ret) -> Served {
    let mut maps = maps::some().filter(|maps| maps.overlaps(range))?;
    let lost = range.start.saturating_add(moved)..range.end;
    let unpublished = lost::in_ranges(&maps, [&lost]);
    let result = call();
    let ended = if result < 0 { maps.forget_gone(range) } else { maps.forget(range) };
    times::note_stores_at(&lost, &ended);
    drop(maps);
    if result >= 0 {
        unpublished.tell();
    }
    drop(ended);
    Some(result)
}

/// `munmap(at, len)`.
pub(crate) fn munmap(args: &Args) -> Served {
    let [at, len, ..] = *args;
    unmap(&pages(at, len)?, || sys!(libc::SYS_munmap, at, len))
}

/// `mremap(at, len, new_len, flags, to)`: the kernel would go on after a piece of the pool with what
/// lies there, so what moves or grows is mapped anew.
pub(crate) fn mremap(args: &Args) -> Served {
    let [at, len, new_len, flags, to, _] = *args;
    let flags = flags as i32;
    if len == 0 {
        return remap_twice(args);
    }
    let (old, new_len) = (pages(at, len)?, new_len.checked_next_multiple_of(PAGE)?);
    let part = {
        let maps = maps::some()?;
        if maps.overlaps(&old) {
            maps.around(&old)
        } else {
            drop(maps);
            return land(args);
        }
    };
    let moves = flags & libc::MREMAP_MAYMOVE != 0;
    let fixed = flags & libc::MREMAP_FIXED != 0;
    let lands_on_itself =
        fixed && pages(to, new_len).is_none_or(|new| new.start < old.end && old.start < new.end);
    if new_len == 0
        || flags & !REMAPS != 0
        || fixed && !moves
        || flags & KEEPS != 0
        || lands_on_itself
    {
        return Some(fail(libc::EINVAL));
    }
    if !fixed && new_len <= old.end - old.start {
        return Some(shrink(&old, new_len));
    }
    // As the kernel says of what lies in several of its mappings.
    let Some(mut part) = part else { return Some(fail(libc::EFAULT)) };
    if !moves {
        return Some(fail(libc::ENOMEM));
    }
    part.offset += old.start - part.start;
    (part.start, part.len) = (old.start, old.end - old.start);
    let place = if fixed { (to, libc::MAP_FIXED) } else { (0, 0) };
    let Some(mapped) = maps::map_again(&part, place, new_len) else {
        return Some(mremap_by_kernel(&part, args));
    };
    if mapped >= 0 {
        unmap_but(&old, new_len, || sys!(libc::SYS_munmap, old.start, old.end - old.start));
    }
    Some(mapped)
}

/// The kernel moves what is not mapped here, or maps it twice: what it lands on may be mapped here.
fn land(args: &Args) -> Served {
    let [at, len, new_len, flags, to, _] = *args;
    let lands = flags & libc::MREMAP_FIXED as u64 != 0;
    let range = pages(to, new_len).filter(|_| lands)?;
    unmap(&range, || sys!(libc::SYS_mremap, at, len, new_len, flags, to))
}

/// Unmaps the end of a range, whatever lies there: pieces with an access of their own are parts of their own.
fn shrink(old: &Range<u64>, new_len: u64) -> Ret {
    // The kernel says whether something is mapped where it begins, and changes nothing.
    let found = sys!(libc::SYS_mremap, old.start, PAGE, PAGE, 0);
    let rest = old.start + new_len..old.end;
    if found < 0 || rest.is_empty() {
        return found;
    }
    let by_kernel = || sys!(libc::SYS_munmap, rest.start, rest.end - rest.start);
    match unmap(&rest, by_kernel).unwrap_or_else(by_kernel) {
        0 => found,
        failed => failed,
    }
}

/// A second mapping of the same bytes: the kernel's to make, of its own pages alone.
fn remap_twice(args: &Args) -> Served {
    let here = pages(args[0], 1)?;
    let part = {
        let maps = maps::some()?;
        maps.around(&here)
    };
    let Some(mut part) = part else { return land(args) };
    if !is_given(&part) {
        return Some(fail(libc::EINVAL));
    }
    part.offset += here.start - part.start;
    Some(mremap_by_kernel(&part, args))
}

/// Whether a mapping is the kernel's by now, after it has been asked for.
fn is_given(part: &Part) -> bool {
    let asks = || kernel::ask(part.of.mount, part.of.ino) == Some(true);
    part.of.is_given() || part.of.can_give_way() && asks()
}

/// The kernel moves a mapping, once it is the kernel's, or makes a second one. It moves a replica as well, which is memory
/// that it has: of a file that the kernel has pages of, none can be read for another one.
fn mremap_by_kernel(part: &Part, args: &Args) -> Ret {
    let [at, len, new_len, flags, to, _] = *args;
    let is_replica = part.of.base.is_some();
    let kept = new_len.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
    let may_move = if is_replica { kept <= part.len } else { is_given(part) };
    if !may_move {
        return fail(libc::ENOMEM);
    }
    let fixed = flags & libc::MREMAP_FIXED as u64 != 0;
    let (old, onto) = (pages(at, len), pages(to, new_len).filter(|_| fixed));
    let mut maps = maps::lock();
    let is_it = |now: Part| Arc::ptr_eq(&now.of, &part.of);
    let is_there = || maps.around(&(part.start..part.start + part.len)).is_some_and(is_it);
    if is_replica && !is_there() {
        return fail(libc::ENOMEM);
    }
    let cut = old.clone().map(|old| old.start.saturating_add(kept)..old.end);
    let lost = [&onto, &cut].into_iter().flatten();
    let unpublished = lost::in_ranges(&maps, lost);
    let moved = sys!(libc::SYS_mremap, at, len, new_len, flags, to);
    let ended = if let Ok(start) = u64::try_from(moved) {
        let there = Part { start, len: kept, ..part.clone() };
        let stays = is_replica || part.stays();
        maps.replace(&[old, pages(start, new_len)], stays.then_some(there))
    } else {
        onto.iter().flat_map(|range| maps.forget_gone(range)).collect()
    };
    times::note_stores(&ended);
    drop(maps);
    if moved >= 0 {
        unpublished.tell();
    }
    drop(ended);
    moved
}

/// `mprotect(at, len, access)`, and `pkey_mprotect` with a key after it.
pub(crate) fn protect(number: i64, args: &Args) -> Served {
    let [at, len, access, ..] = *args;
    let range = pages(at, len)?;
    if access & libc::PROT_EXEC as u64 != 0 && !may_execute(&range) {
        return Some(fail(libc::EACCES));
    }
    let private = if access & libc::PROT_WRITE as u64 != 0 { private(&range) } else { Vec::new() };
    if private.is_empty() {
        return protect_known(number, args, &[]);
    }
    limits::opening(|| {
        let readers: Vec<Reader> = private
            .iter()
            .filter_map(|of| Reader::open((of.mount, of.ino), of.generation))
            .collect();
        protect_known(number, args, &readers)
    })
}

/// What private mappings in a range are of, which are the kernel's now as far as they can be: what the program
/// stores there is its own, and what it gives up again (`MADV_DONTNEED`) shows the file.
fn private(range: &Range<u64>) -> Vec<Arc<Source>> {
    let mut sources: Vec<Arc<Source>> = Vec::new();
    for part in pieces(range).into_iter().filter(|part| !part.shared) {
        if !sources.iter().any(|known| Arc::ptr_eq(known, &part.of)) && is_given(&part) {
            sources.push(part.of);
        }
    }
    sources
}

/// Changes the access of a range. Private mappings that become writable are the kernel's, of a file that is open for
/// it, or else copies.
fn protect_known(number: i64, args: &Args, readers: &[Reader]) -> Served {
    let [at, len, access, key, ..] = *args;
    let range = pages(at, len)?;
    let mut maps = maps::some().filter(|maps| maps.overlaps(&range))?;
    let stores = access & libc::PROT_WRITE as u64 != 0;
    let mut pieces = maps.pieces_in(&range);
    if stores && pieces.iter().any(|part| part.shared && !part.writes) {
        return Some(fail(libc::EACCES));
    }
    pieces.retain(|part| part.of.base.is_none());
    let mut ended = Vec::new();
    for part in pieces.iter().filter(|part| stores && !part.shared) {
        let reader = readers.iter().find(|reader| reader.is_of(part.of.mount, part.of.ino));
        if !reader.is_some_and(|reader| giving::map_private(part, reader))
            && let Err(failed) = copy(part)
        {
            return Some(failed);
        }
        ended.extend(maps.forget(&(part.start..part.start + part.len)));
    }
    let mut to_store = pieces.iter().filter(|part| stores && part.shared && part.of.is_own());
    if !to_store.all(|part| part.of.to_store()) {
        return Some(fail(libc::ENOMEM));
    }
    let done = sys!(number, at, len, access, key);
    if done == 0 {
        maps.set_access(&range, access);
    } else if stores {
        maps.may_be_stored_to(&range);
    }
    drop(maps);
    drop((pieces, ended));
    Some(done)
}

/// Puts a copy over a private piece. What is beyond the end of the file stays so: whether a private mapping shows what
/// the file gets later nobody says.
fn copy(part: &Part) -> Result<(), i64> {
    let shown = part.offset..part.shown.end.min(part.offset + part.len);
    let copied = Part { len: shown.end.saturating_sub(shown.start), ..part.clone() };
    if copied.len == 0 { Ok(()) } else { giving::copy(&copied) }
}

/// Calls on memory, of whatever is mapped there.
pub(crate) fn of_memory(number: i64, args: &Args) -> Served {
    match number {
        libc::SYS_madvise => madvise(args),
        libc::SYS_process_madvise => advise_parts(args),
        libc::SYS_mseal => seal(args),
        libc::SYS_remap_file_pages => rearrange(args),
        _ => attach(args),
    }
}

/// Whether what is stored in a range goes with an advice, but for what a file has of it.
fn gives_up(advice: i32) -> bool {
    matches!(advice, libc::MADV_DONTNEED | MADV_DONTNEED_LOCKED)
}

/// `madvise(at, len, advice)`: what the kernel would do to the pool's file or to a replica, or hides from a child
/// without this library's knowing it. All else is as good for the pool's pages as for its own.
fn madvise(args: &Args) -> Served {
    let [at, len, advice, ..] = *args;
    let advice = advice as i32;
    if gives_up(advice) {
        return give_up_all_but_replicas(&pages(at, len)?, advice);
    }
    if !matches!(advice, libc::MADV_REMOVE | libc::MADV_DONTFORK | MADV_GUARD_INSTALL) {
        return None;
    }
    let range = pages(at, len)?;
    if advice != libc::MADV_REMOVE {
        if !replicas_in(&range, |_| true).is_empty() {
            return Some(fail(libc::EINVAL));
        }
        // A child finds something else at these addresses, which must not be replaced when they give way.
        return give(&range);
    }
    remove(&pieces(&range), range.end - range.start)
}

/// Gives up what is stored in a range. Of a shared mapping the file has it; of a replica that is shared nothing but
/// the replica has it, before it is published.
fn give_up_all_but_replicas(range: &Range<u64>, advice: i32) -> Served {
    let kept = replicas_in(range, |part| part.shared);
    if kept.is_empty() {
        return None;
    }
    let starts = std::iter::once(range.start).chain(kept.iter().map(|kept| kept.end));
    let ends = kept.iter().map(|kept| kept.start).chain(std::iter::once(range.end));
    let mut done = 0;
    for (start, end) in starts.zip(ends).filter(|(start, end)| start < end) {
        let result = sys!(libc::SYS_madvise, start, end - start, advice);
        // As the kernel goes on behind what is not mapped, and says so in the end.
        done = if result == 0 { done } else { result };
        if result != 0 && result != fail(libc::ENOMEM) {
            break;
        }
    }
    Some(done)
}

/// The addresses in a range that are those of replicas, as far as they are chosen, in order.
fn replicas_in(range: &Range<u64>, is_chosen: impl Fn(&Part) -> bool) -> Vec<Range<u64>> {
    if !maps::has_replicas() {
        return Vec::new();
    }
    let Some(maps) = maps::some() else { return Vec::new() };
    let replicas = maps.within(range).filter(|part| part.of.base.is_some() && is_chosen(part));
    replicas.filter_map(|part| Some(part.within(range)?.0)).collect()
}

/// `process_madvise(process, parts, count, advice, flags)`: of the process itself the kernel takes any advice (Linux
/// 6.13). What [`madvise`] looks at is not for what is mapped here, as in kernels before.
fn advise_parts(args: &Args) -> Served {
    let [_, parts, count, advice, ..] = *args;
    let advice = advice as i32;
    let is_for_replicas =
        gives_up(advice) || matches!(advice, libc::MADV_DONTFORK | MADV_GUARD_INSTALL);
    let is_for_pieces =
        matches!(advice, libc::MADV_REMOVE | libc::MADV_DONTFORK | MADV_GUARD_INSTALL);
    if !(is_for_pieces || is_for_replicas && maps::has_replicas()) {
        return None;
    }
    let each =
        (0..count.min(PARTS_MAX)).map_while(|part| guard::load::<[u64; 2]>(parts + 16 * part));
    let mut ranges = each.filter_map(|[at, len]| pages(at, len));
    let is_here = |range: Range<u64>| {
        is_for_pieces && !pieces(&range).is_empty()
            || is_for_replicas
                && !replicas_in(&range, |part| part.shared || !gives_up(advice)).is_empty()
    };
    ranges.any(is_here).then(|| fail(libc::EINVAL))
}

/// `mseal(at, len, flags)`: what is sealed can't be replaced when it has to give way, so it does before.
fn seal(args: &Args) -> Served {
    let [at, len, ..] = *args;
    give(&pages(at, len)?)
}

/// `remap_file_pages(at, len, 0, page, flags)`: of the pool's pages the kernel would show those of other files, as it
/// counts from the pool's beginning.
fn rearrange(args: &Args) -> Served {
    let [at, len, ..] = *args;
    // As far as the kernel looks, which takes addresses within pages.
    let range = pages(at & !(PAGE - 1), len.max(1))?;
    if !replicas_in(&range, |_| true).is_empty() {
        return Some(fail(libc::EINVAL));
    }
    give(&range)
}

/// `shmat(segment, at, flags)`, which may put memory in the place of what is mapped, as much as the segment has in whole
/// pages of its own.
fn attach(args: &Args) -> Served {
    let [segment, at, flags, ..] = *args;
    if flags & libc::SHM_REMAP as u64 == 0 || !maps::are_some() {
        return None;
    }
    // SAFETY: plain words, which the kernel fills in.
    let mut known: libc::shmid_ds = unsafe { std::mem::zeroed() };
    if sys!(libc::SYS_shmctl, segment, libc::IPC_STAT, &raw mut known) != 0 {
        // Who may not read the segment may not attach it.
        return None;
    }
    let at = if flags & libc::SHM_RND as u64 == 0 { at } else { at & !(PAGE - 1) };
    let asked = known.shm_segsz as u64;
    let may_be_huge = at.is_multiple_of(HUGE_AT_LEAST);
    let len = match may_be_huge.then(|| len_of_segment(segment, flags, asked)) {
        None => asked,
        Some(Ok(len)) => len,
        Some(Err(failed)) => return Some(failed),
    };
    unmap(&pages(at, len)?, || sys!(libc::SYS_shmat, args[0], args[1], args[2]))
}

/// What the kernel maps of a segment: whole pages, whose size (`SHM_HUGETLB`) it does not tell. Of what is attached for a
/// moment it unmaps whole ones alone.
fn len_of_segment(segment: u64, flags: u64, asked: u64) -> Result<u64, Ret> {
    let elsewhere = flags & !((libc::SHM_REMAP | libc::SHM_RND) as u64);
    let attached = sys!(libc::SYS_shmat, segment, 0, elsewhere);
    let start = u64::try_from(attached).map_err(|_| attached)?;
    let mut page = PAGE;
    while sys!(libc::SYS_munmap, start, page) == fail(libc::EINVAL) {
        page *= 2;
    }
    let len = asked.next_multiple_of(page);
    if len > page {
        sys!(libc::SYS_munmap, start + page, len - page);
    }
    Ok(len)
}

/// Makes the files' own pages in a range the kernel's, before it does something to them that this library would
/// undo. An error where some do not become so.
fn give(range: &Range<u64>) -> Served {
    (!gives_way(range)).then(|| fail(libc::EINVAL))
}

/// Makes the files' own pages in a range the kernel's; false where some do not become so.
pub(super) fn gives_way(range: &Range<u64>) -> bool {
    pieces(range).iter().all(is_given)
}

/// What is mapped in a range of the files' own pages.
fn pieces(range: &Range<u64>) -> Vec<Part> {
    let Some(maps) = maps::some() else { return Vec::new() };
    let pieces = maps.pieces_in(range).into_iter();
    pieces.filter(|part| part.of.base.is_none()).collect()
}

/// Makes holes of what mappings show, in their files.
fn remove(pieces: &[Part], len: u64) -> Served {
    if pieces.is_empty() {
        return None;
    }
    if pieces.iter().any(|part| !part.shared || !part.writes) {
        return Some(fail(libc::EACCES));
    }
    if pieces.iter().map(|part| part.len).sum::<u64>() != len {
        // Something else lies between.
        return Some(fail(libc::EINVAL));
    }
    for part in pieces {
        let fs = mounts::fs(part.of.mount)?;
        if !part.of.is_there(fs) {
            continue;
        }
        let hole = Fallocate::PunchHole;
        let done = fs.fallocate(&ctx(), part.of.ino, hole, part.offset, part.len);
        if let Err(error) = done {
            return Some(fail(novale_posix::errno(&error)));
        }
    }
    Some(0)
}

/// What is executed is the kernel's, which knows whether the mount allows it: what is mapped here gives way.
/// False where it does not.
fn may_execute(range: &Range<u64>) -> bool {
    let Some(maps) = maps::some() else { return true };
    let pieces = maps.pieces_in(range);
    drop(maps);
    pieces.iter().filter(|part| part.of.can_give_way()).all(is_given)
}

/// `msync(at, len, flags)`.
pub(crate) fn msync(args: &Args) -> Served {
    let [at, len, flags, ..] = *args;
    let range = pages(at, len)?;
    let maps = maps::some().filter(|maps| maps.overlaps(&range))?;
    if maps.around(&range).is_some_and(|part| part.of.is_given()) {
        return None;
    }
    let known = libc::MS_ASYNC | libc::MS_INVALIDATE | libc::MS_SYNC;
    let both = libc::MS_ASYNC | libc::MS_SYNC;
    let flags = flags as i32;
    if flags & !known != 0 || flags & both == both {
        return Some(fail(libc::EINVAL));
    }
    // The kernel says whether all of it is mapped, which it may say once all that is has been written.
    let is_one = maps.around(&range).is_some();
    let known = if is_one { 0 } else { sys!(libc::SYS_msync, at, len, args[2]) };
    if known != 0 && known != fail(libc::ENOMEM) {
        return Some(known);
    }
    if !maps::flush(&maps, &range) {
        return Some(fail(libc::EIO));
    }
    drop(maps);
    // Room comes from others, who may need what is mapped.
    let published = room::with_room(|| publish(&range));
    published.map(|result| if result == 0 { known } else { result })
}

/// Publishes what replicas in a range have.
fn publish(range: &Range<u64>) -> Served {
    let Some(maps) = maps::some() else { return Some(0) };
    match replicas::publish(&maps, range) {
        Ok(()) => Some(0),
        Err(failed) => Some(failed),
    }
}
