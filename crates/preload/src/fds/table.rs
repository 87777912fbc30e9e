//! Which of a program's descriptors are Novale's, and the open file descriptions after them.
//!
//! Invariants: the kernel has each number in the table too, as a placeholder or as the file itself
//! through the mount, so numbers never clash; a word of the table is cleared before the kernel may
//! give the number out again. Descriptions lie in memory that is used for nothing else; one is used
//! again only when no thread is using it (its hazard says which it uses).

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use novale_core::{HoldId, Ino, Node};

use crate::base::heap::Reserved;
use crate::base::left;
use crate::base::lock::Lock;
use crate::base::said::Said;
use crate::base::sys::{Ret, fail, sys};
use crate::base::thread::current;
use crate::fds::{forget, quiet, shown};
use crate::numbers::words::{
    DESCRIPTORS, HIGHEST, INTERNAL, STAYS, STOCKED, UNSEEN, index_of, note_number, word, word_of,
    word_to_set,
};
use crate::numbers::{self, limits, words};

/// Threads with a hazard of their own.
const HAZARDS: usize = 1024;
/// Descriptions, then the notes beside them ([`shown`]).
static SLAB: Reserved = Reserved::new();
/// 1 while there are retired descriptions.
static RETIRED: AtomicU32 = AtomicU32::new(0);
static FREE: Lock<Free> =
    Lock::new(Free { slots: Vec::new(), fresh: 0, is_over: false, retired: Vec::new() });

struct Free {
    slots: Vec<u32>,
    /// Those that were ever given out.
    fresh: u32,
    /// No more are, since what they would lie in is given back.
    is_over: bool,
    /// Of no descriptor any more, but maybe in use by a thread.
    retired: Vec<u32>,
}

/// The file itself stands of the number in the kernel too.
pub(crate) const IN_KERNEL: u32 = 1;
/// Another process may have it too: the position is the kernel's.
pub(crate) const SHARED: u32 = 2;
/// It is a directory.
pub(crate) const DIRECTORY: u32 = 4;
/// Flags of an open file that change, for all who have it.
pub(crate) const CHANGING: i32 =
    libc::O_APPEND | libc::O_NONBLOCK | libc::O_DIRECT | libc::O_NOATIME;
/// The kernel maps it, or takes set-id bits away with a write: every call is the kernel's.
pub(crate) const MAPPED: u32 = 8;
/// This very opening has made it.
pub(crate) const CREATED: u32 = 16;
/// The kernel has opened it by another mount of the pool than the one that is known: what depends on the mount
/// is the kernel's.
pub(crate) const BY_OTHER_MOUNT: u32 = 32;
/// There may be a lock or more that goes with it, and not with the process.
pub(crate) const LOCKED: u32 = 64;

/// An open file.
#[repr(C, align(64))]
pub(crate) struct Description {
    ino: AtomicU64,
    pub(crate) generation: AtomicU32,
    /// Descriptors of this process.
    references: AtomicU32,
    /// Flags of `open`, as `F_GETFL` shows them.
    pub(crate) flags: AtomicU32,
    /// [`IN_KERNEL`] and others.
    pub(crate) state: AtomicU32,
    mount: AtomicU32,
    /// Tells it from all others that were mapped; 0 where it was not ([`crate::maps::openings`]).
    pub(crate) mapped_as: AtomicU32,
    /// The position in bytes, where it is not the kernel's.
    pub(crate) offset: Lock<u64>,
    /// Of a directory, the cookie at which its listing ends; 0 before it is read.
    pub(crate) end: AtomicU64,
    /// This process' hold of the inode; without one it is the kernel's.
    pub(super) hold: Lock<Option<HoldId>>,
}

/// What a new description says.
pub(crate) struct New<'a> {
    pub(crate) ino: Ino,
    pub(crate) generation: u32,
    pub(crate) flags: i32,
    pub(crate) state: u32,
    pub(crate) mount: usize,
    pub(crate) hold: Option<HoldId>,
    /// The descriptor stays when another program is run.
    pub(crate) stays: bool,
    /// The directory and the name by which it was found, where that is for `/proc/self/fd` to show.
    pub(crate) name: Option<(Ino, &'a [u8])>,
}

/// Whether what was opened with these flags can be read. With both bits of the mode it can be neither read nor
/// written, though its rights were asked for both: it is for `ioctl` (open(2)).
pub(crate) fn reads(flags: i32) -> bool {
    matches!(flags & libc::O_ACCMODE, libc::O_RDONLY | libc::O_RDWR)
}

pub(crate) fn writes(flags: i32) -> bool {
    matches!(flags & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR)
}

impl Description {
    pub(crate) fn ino(&self) -> Ino {
        Ino::new(self.ino.load(Ordering::Relaxed))
    }

    /// The inode, which the description holds.
    pub(crate) fn node(&self) -> Node {
        Node::new(self.ino(), self.generation.load(Ordering::Relaxed))
    }

    pub(crate) fn mount(&self) -> usize {
        self.mount.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn flags(&self) -> i32 {
        self.flags.load(Ordering::Relaxed).cast_signed()
    }

    pub(crate) fn is(&self, state: u32) -> bool {
        self.state.load(Ordering::Relaxed) & state != 0
    }

    /// Takes over the flags that change.
    pub(crate) fn change_flags(&self, new: i32) {
        let flags = self.flags() & !CHANGING | new & CHANGING;
        self.flags.store(flags.cast_unsigned(), Ordering::Relaxed);
    }

    pub(crate) fn set(&self, state: u32) {
        self.state.fetch_or(state, Ordering::Relaxed);
    }

    pub(crate) fn reads(&self) -> bool {
        reads(self.flags())
    }

    pub(crate) fn writes(&self) -> bool {
        writes(self.flags())
    }

    /// Whether it is open to start from alone (`O_PATH`): what else is asked of it the kernel refuses.
    pub(crate) fn is_path(&self) -> bool {
        self.flags() & libc::O_PATH != 0
    }

    pub(crate) fn appends(&self) -> bool {
        self.flags() & libc::O_APPEND != 0
    }
}

/// What a number leads to that the program has from its parent, told by who knows the mounts.
pub(crate) type Inherited = fn(i32) -> Option<New<'static>>;
#[unsafe(link_section = ".novale_data")]
static INHERITED_FILE: Said<Inherited> = Said::new();

/// Bytes of the descriptions' memory.
const BYTES: usize = DESCRIPTORS * std::mem::size_of::<Description>();

/// Takes the function that tells of what a program has from its parent.
///
/// # Safety
/// As for [`Said::say`].
pub(crate) unsafe fn begin(inherited: Inherited) {
    // SAFETY: as the caller says.
    unsafe { INHERITED_FILE.say(inherited) };
}

pub(super) fn slot(index: u32) -> &'static Description {
    let slab = SLAB.get().unwrap_or(0) as *const Description;
    // SAFETY: indexes come from `take_slot`, which has reserved the memory, and are below DESCRIPTORS;
    // zeroes are a valid description; what was used of the memory is never unmapped.
    let slot = unsafe { slab.add(index as usize) };
    // SAFETY: as above.
    unsafe { &*slot }
}

/// What a thread is using, in a line of its own.
#[repr(align(64))]
pub(super) struct Hazard {
    /// The description plus 1.
    word: AtomicU32,
    /// What the thread does while it serves a call ([`crate::fds::quiet::Calls`]).
    pub(super) inside: AtomicU32,
    /// 1 where a description that the thread uses has lost its last descriptor: it ends with the call.
    is_last: AtomicU32,
}

impl Hazard {
    const fn new() -> Self {
        Self { word: AtomicU32::new(0), inside: AtomicU32::new(0), is_last: AtomicU32::new(0) }
    }

    fn uses(&self, index: u32) -> bool {
        self.word.load(Ordering::Acquire) == index + 1
    }
}

#[unsafe(link_section = ".novale_tables")]
pub(super) static HAZARD: [Hazard; HAZARDS] = [const { Hazard::new() }; HAZARDS];
static HAZARD_FREE: Lock<Vec<u32>> = Lock::new(Vec::new());
/// Hazards that were ever given out.
pub(super) static NAMED: AtomicU32 = AtomicU32::new(0);
/// Threads beyond those that have a hazard of their own, inside a call.
pub(super) static UNNAMED: AtomicU32 = AtomicU32::new(0);

pub(super) fn my_hazard() -> Option<&'static Hazard> {
    let thread = current();
    let mut own = thread.hazard.load(Ordering::Relaxed);
    if own == 0 {
        let mut free = HAZARD_FREE.lock();
        let index = free.pop().or_else(|| {
            let next = NAMED.load(Ordering::Relaxed);
            ((next as usize) < HAZARDS).then(|| NAMED.fetch_add(1, Ordering::SeqCst))
        })?;
        own = u64::from(index) + 1;
        thread.hazard.store(own, Ordering::Relaxed);
    }
    HAZARD.get(usize::try_from(own - 1).ok()?)
}

/// Gives up the calling thread's hazard and its room for a description, since it ends.
pub(crate) fn give_hazard() {
    let own = current().hazard.swap(0, Ordering::Relaxed);
    if let Some(index) = own.checked_sub(1).and_then(|index| u32::try_from(index).ok()) {
        HAZARD_FREE.lock().push(index);
    }
    if let Some(index) = current().swap_spare(0).checked_sub(1) {
        FREE.lock().slots.push(index);
    }
}

/// A description in use by the calling thread.
pub(crate) struct InUse {
    description: &'static Description,
    pub(crate) index: u32,
    hazard: Option<&'static AtomicU32>,
}

impl Deref for InUse {
    type Target = Description;

    fn deref(&self) -> &Description {
        self.description
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        hide(self.hazard);
        // Who counts among the unnamed may have been waited for as any of them.
        if self.hazard.is_none()
            && RETIRED.load(Ordering::Relaxed) != 0
            && let Some(own) = my_hazard()
        {
            own.is_last.store(1, Ordering::Relaxed);
        }
    }
}

/// Says what the calling thread is at, in a word of its own, or by a count of those without one.
#[inline]
pub(super) fn show(own: Option<&AtomicU32>, value: u32) {
    match own {
        Some(own) => own.swap(value, Ordering::SeqCst),
        None => UNNAMED.fetch_add(1, Ordering::SeqCst),
    };
}

/// Takes back what [`show`] has said.
#[inline]
pub(super) fn hide(own: Option<&AtomicU32>) {
    match own {
        Some(own) => own.store(0, Ordering::Release),
        None => {
            UNNAMED.fetch_sub(1, Ordering::Release);
        }
    }
}

/// The description of a descriptor; `None` for the kernel's.
pub(crate) fn get(fd: i32) -> Option<InUse> {
    let word = word(fd)?;
    let mut found = word.load(Ordering::Acquire);
    if found == UNSEEN {
        found = first_seen(fd, word);
    }
    let index = named(found)?;
    // A call that uses two names one; the other one is covered like those of unnamed threads.
    let hazard = my_hazard().map(|hazard| &hazard.word);
    let hazard = hazard.filter(|hazard| hazard.load(Ordering::Relaxed) == 0);
    show(hazard, index + 1);
    let mut in_use = InUse { description: slot(index), index, hazard };
    loop {
        let now = word.load(Ordering::SeqCst);
        if now == found {
            return Some(in_use);
        }
        found = now;
        in_use.index = named(now)?;
        in_use.description = slot(in_use.index);
        if hazard.is_some() {
            show(hazard, in_use.index + 1);
        }
    }
}

/// Looks at a number when it is first used: it may lead to a file of a mount, opened by another program.
#[cold]
fn first_seen(fd: i32, word: &AtomicU32) -> u32 {
    let is_left = left::has_all() || left::NUMBERS.is_begun();
    let inherited = INHERITED_FILE.get().filter(|_| !is_left);
    let new = inherited.and_then(|inherited| inherited(fd));
    let seen = new.and_then(|new| {
        let index = take_slot()?;
        describe(index, &new);
        note_number(fd);
        Some(word_of(index, new.stays))
    });
    // Who closes the number meanwhile, or puts something else after it, changes the word.
    let seen = seen.unwrap_or(0);
    match word.compare_exchange(UNSEEN, seen, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => seen,
        Err(now) => {
            index_of(seen).into_iter().for_each(give_slot);
            now
        }
    }
}

/// As [`index_of`]; a number in stock is closed for good, since somebody looks at it, and who is closing
/// one is waited for.
fn named(word: u32) -> Option<u32> {
    if word == STOCKED {
        numbers::settle();
    }
    index_of(word)
}

/// Puts a new description of a descriptor that was given out just now; false when there is no
/// room, or it is left to the kernel.
pub(crate) fn insert(fd: i32, new: &New<'_>) -> bool {
    let is_left = || new.state & IN_KERNEL != 0 && left::NUMBERS.is_begun();
    if is_left() {
        return false;
    }
    let (Some(word), Some(index)) = (word_to_set(fd), take_slot()) else { return false };
    describe(index, new);
    note_number(fd);
    word.store(word_of(index, new.stays), Ordering::SeqCst);
    // Who leaves them to the kernel at this moment may have looked at the word before.
    if is_left() {
        forget::forget_the_kernels();
    }
    true
}

/// Makes a description in a slot that nobody leads to yet.
fn describe(index: u32, new: &New<'_>) {
    let description = slot(index);
    description.ino.store(new.ino.get(), Ordering::Relaxed);
    description.generation.store(new.generation, Ordering::Relaxed);
    description.references.store(1, Ordering::Relaxed);
    description.flags.store(new.flags.cast_unsigned(), Ordering::Relaxed);
    description.state.store(new.state, Ordering::Relaxed);
    description.mount.store(u32::try_from(new.mount).unwrap_or(0), Ordering::Relaxed);
    description.mapped_as.store(0, Ordering::Relaxed);
    // SAFETY: the slot was taken here, and no descriptor leads to it yet.
    unsafe { description.offset.set_alone(0) };
    description.end.store(0, Ordering::Relaxed);
    // SAFETY: as above.
    unsafe { description.hold.set_alone(new.hold) };
    shown::note(index, new.name);
}

/// Whether there is memory for descriptions, which is reserved for good if there is.
pub(crate) fn has_memory() -> bool {
    const ALL: usize = BYTES + shown::BYTES;
    if SLAB.get().is_none() && !limits::leave_room(ALL as u64) {
        return false;
    }
    let slab = SLAB.get_or_reserve(ALL);
    slab.inspect(|slab| shown::set_notes(slab + BYTES as u64)).is_some()
}

/// Gives back the memory of descriptions that were never used, and of their notes, since none will be: all that
/// is opened from now on is the kernel's.
pub(crate) fn release() {
    let mut free = FREE.lock();
    let used = free.fresh as usize;
    free.is_over = true;
    SLAB.release(used * std::mem::size_of::<Description>()..BYTES);
    SLAB.release(BYTES + used * shown::NOTE_BYTES..BYTES + shown::BYTES);
}

/// Room for a description: the one that this thread has ended last, or any.
fn take_slot() -> Option<u32> {
    if let Some(own) = current().swap_spare(0).checked_sub(1) {
        return Some(own);
    }
    if !has_memory() {
        return None;
    }
    let mut free = FREE.lock();
    free.slots.pop().or_else(|| {
        let fresh = !free.is_over && (free.fresh as usize) < DESCRIPTORS - 2;
        fresh.then(|| {
            free.fresh += 1;
            free.fresh - 1
        })
    })
}

fn give_slot(index: u32) {
    if let Some(other) = current().swap_spare(index + 1).checked_sub(1) {
        FREE.lock().slots.push(other);
    }
}

/// Has the kernel duplicate `fd`, over another number where that is said, and lets the duplicate share
/// the description that `fd` leads to, if any. All numbers are locked meanwhile: nobody closes the
/// number, gives it to another file or puts the file itself over its descriptors before the duplicate is
/// among them. A placeholder that stands for nothing is not duplicated.
pub(crate) fn duplicate(
    fd: i32,
    over: Option<i32>,
    stays: bool,
    by_kernel: impl Fn() -> Ret,
) -> Closed {
    // What came from another program is known by then.
    [Some(fd), over].into_iter().flatten().for_each(|fd| drop(get(fd)));
    let mut numbers = numbers::lock();
    let found = |fd| word(fd).map_or(0, |word| word.load(Ordering::Acquire));
    let from = found(fd);
    numbers.clear();
    if matches!(from, INTERNAL | STOCKED) {
        return Closed::nothing(fail(libc::EBADF));
    }
    if over.is_some_and(|over| from == 0 && found(over) == 0) {
        if sys!(libc::SYS_fcntl, fd, libc::F_GETFD, 0) < 0 {
            return Closed::nothing(fail(libc::EBADF));
        }
        // What the kernel closes there may take its time, and wait for a thread of this process.
        drop(numbers);
        let made = by_kernel();
        // Not one that was closed, and opened here, meanwhile.
        let is_right = found(fd) == 0;
        return if is_right {
            Closed::nothing(made)
        } else {
            duplicate(fd, over, stays, by_kernel)
        };
    }
    let named = index_of(from);
    if let (Some(index), Some(over)) = (named, over.filter(|over| found(*over) == 0))
        && let Some(word) = word_to_set(over)
    {
        // Who uses the number meanwhile uses the file: the kernel would show him the placeholder.
        slot(index).references.fetch_add(1, Ordering::Relaxed);
        note_number(over);
        word.store(word_of(index, stays), Ordering::Release);
        let made = by_kernel();
        let before = if made < 0 { word.swap(0, Ordering::AcqRel) } else { 0 };
        drop(numbers);
        drop_reference(before);
        return Closed::nothing(made);
    }
    let made = by_kernel();
    let find = if named.is_some() { word_to_set } else { word };
    let Some(word) = i32::try_from(made).ok().and_then(find) else { return Closed::nothing(made) };
    let before = match named {
        Some(index) => {
            slot(index).references.fetch_add(1, Ordering::Relaxed);
            note_number(made as i32);
            word.swap(word_of(index, stays), Ordering::AcqRel)
        }
        None if over.is_some() => word.swap(0, Ordering::AcqRel),
        None => 0,
    };
    drop(numbers);
    Closed { result: made, file: drop_reference(before) }
}

/// What came of a call that closes a descriptor, or puts another one in its place.
pub(crate) struct Closed {
    pub(crate) result: Ret,
    /// The mount and the inode of the file that the descriptor was of.
    pub(crate) file: Option<(usize, Ino)>,
}

impl Closed {
    fn nothing(result: Ret) -> Self {
        Self { result, file: None }
    }
}

/// `close`: a placeholder goes into stock if it can, all else is the kernel's to close.
pub(crate) fn close(fd: i32) -> Closed {
    let Some(word) = word(fd) else { return Closed::nothing(close_in_kernel(fd)) };
    let mut numbers = numbers::lock();
    let old = word.load(Ordering::Acquire);
    if matches!(old, INTERNAL | STOCKED) {
        return Closed::nothing(fail(libc::EBADF));
    }
    let is_placeholder =
        index_of(old).is_some_and(|old| slot(old).state.load(Ordering::Relaxed) & IN_KERNEL == 0);
    if is_placeholder {
        word.store(STOCKED, Ordering::Release);
        let result = numbers.end(fd);
        drop(numbers);
        return Closed { result, file: drop_reference(old) };
    }
    word.store(0, Ordering::Release);
    drop(numbers);
    let file = drop_reference(old);
    Closed { result: close_in_kernel(fd), file }
}

fn close_in_kernel(fd: i32) -> Ret {
    let result = quiet::outside(|| sys!(libc::SYS_close, fd));
    numbers::freed(fd);
    result
}

/// Closes a descriptor of this library's, which may take its time.
pub(crate) fn close_kept(fd: i32) {
    words::forget_internal(fd);
    quiet::outside(|| sys!(libc::SYS_close, fd));
}

/// Takes back a number that got no file.
pub(crate) fn give_back(fd: i32) {
    numbers::lock().end(fd);
}

/// Whether a descriptor stays when another program is run; `None` where the kernel knows.
pub(crate) fn stays(fd: i32, description: &InUse) -> Option<bool> {
    let _numbers = numbers::lock();
    let found = word(fd)?.load(Ordering::Acquire);
    let known = index_of(found) == Some(description.index) && !description.is(IN_KERNEL);
    known.then_some(found & STAYS != 0)
}

/// Says whether a descriptor stays when another program is run; false where the kernel must be told.
pub(crate) fn set_stays(fd: i32, description: &InUse, stays: bool) -> bool {
    let _numbers = numbers::lock();
    let Some(word) = word(fd) else { return false };
    let found = word.load(Ordering::Acquire);
    let known = index_of(found) == Some(description.index) && !description.is(IN_KERNEL);
    if known {
        word.store(found & !STAYS | if stays { STAYS } else { 0 }, Ordering::Release);
    }
    known
}

/// Visits the descriptors of a description, while all numbers are locked.
pub(crate) fn each_of(description: &InUse, mut visit: impl FnMut(i32, bool)) {
    for fd in 0..=HIGHEST.load(Ordering::Relaxed).cast_signed() {
        let found = word(fd).map_or(0, |word| word.load(Ordering::Acquire));
        if index_of(found) == Some(description.index) {
            visit(fd, found & STAYS != 0);
        }
    }
}

/// Whether a descriptor leads to a description still, while numbers are locked.
pub(crate) fn leads_to(fd: i32, description: &InUse) -> bool {
    word(fd).is_some_and(|word| index_of(word.load(Ordering::Acquire)) == Some(description.index))
}

/// Has the kernel do something with a descriptor of a description: `fd` or, where another thread has put
/// something else after that, any other one. It stays one meanwhile, so the call must not wait for
/// others. `None` without any.
pub(crate) fn with_number<T>(
    fd: i32,
    description: &InUse,
    call: impl FnOnce(i32) -> T,
) -> Option<T> {
    let _numbers = numbers::lock();
    let mut found = leads_to(fd, description).then_some(fd);
    if found.is_none() {
        each_of(description, |other, _| _ = found.get_or_insert(other));
    }
    found.map(call)
}

/// A descriptor has gone; tells the mount and the inode of its file.
pub(super) fn drop_reference(word: u32) -> Option<(usize, Ino)> {
    let index = index_of(word)?;
    let file = (slot(index).mount(), slot(index).ino());
    if slot(index).references.fetch_sub(1, Ordering::AcqRel) == 1 {
        retire(index);
    }
    Some(file)
}

/// Ends a description that no descriptor has any more, if no thread is using it; otherwise who is does at the end of
/// its call, or a later call.
fn retire(index: u32) {
    fence(Ordering::SeqCst);
    if is_in_use(index) {
        FREE.lock().retired.push(index);
        RETIRED.store(1, Ordering::Relaxed);
        let users = named_hazards().filter(|hazard| hazard.uses(index));
        users.for_each(|hazard| hazard.is_last.store(1, Ordering::Release));
    } else {
        end(index);
    }
    if RETIRED.load(Ordering::Relaxed) != 0 {
        end_retired();
    }
}

/// Ends what this thread has used last, at the end of its call.
#[inline]
pub(super) fn end_used() {
    if let Some(own) = my_hazard()
        && own.is_last.load(Ordering::Relaxed) != 0
    {
        own.is_last.store(0, Ordering::Relaxed);
        end_retired();
    }
}

#[cold]
fn end_retired() {
    let ended: Vec<u32> = {
        let mut free = FREE.lock();
        let (in_use, ended): (Vec<u32>, Vec<u32>) =
            std::mem::take(&mut free.retired).into_iter().partition(|index| is_in_use(*index));
        RETIRED.store(u32::from(!in_use.is_empty()), Ordering::Relaxed);
        free.retired = in_use;
        ended
    };
    ended.into_iter().for_each(end);
}

fn end(index: u32) {
    let description = slot(index);
    // SAFETY: no descriptor and no thread has it.
    if let Some(hold) = unsafe { description.hold.take_alone() } {
        crate::mounts::release(description.mount(), hold);
    }
    give_slot(index);
}

fn is_in_use(index: u32) -> bool {
    let is_used = || named_hazards().any(|hazard| hazard.uses(index));
    UNNAMED.load(Ordering::Acquire) != 0 || is_used()
}

fn named_hazards() -> impl Iterator<Item = &'static Hazard> {
    HAZARD.iter().take(NAMED.load(Ordering::SeqCst) as usize)
}

/// All descriptors in the table, with their descriptions.
pub(crate) fn each(visit: &mut dyn FnMut(i32, &InUse)) {
    for fd in 0..=HIGHEST.load(Ordering::Relaxed).cast_signed() {
        let is_known = word(fd).is_some_and(|word| word.load(Ordering::Relaxed) != UNSEEN);
        if let Some(in_use) = is_known.then(|| get(fd)).flatten() {
            visit(fd, &in_use);
        }
    }
}

/// In the child of a fork: no other thread is left, and the holds are the parent's, those of descriptions
/// that wait for their end included.
pub(crate) fn after_fork() {
    let own = current().hazard.load(Ordering::Relaxed);
    // The others are zeroes, and a store would have the kernel copy their pages.
    let named = NAMED.load(Ordering::Relaxed) as usize;
    for (index, hazard) in HAZARD.iter().take(named).enumerate() {
        if index as u64 + 1 != own {
            hazard.word.store(0, Ordering::Relaxed);
            hazard.inside.store(0, Ordering::Relaxed);
        }
    }
    let own = u32::try_from(own).unwrap_or(0);
    NAMED.store(own, Ordering::Relaxed);
    *HAZARD_FREE.lock() = (1..own).map(|before| before - 1).collect();
    UNNAMED.store(unnamed_here(), Ordering::Relaxed);
    let fresh = FREE.lock().fresh;
    for description in (0..fresh).map(slot) {
        // SAFETY: there is no other thread.
        unsafe { description.offset.reset() };
        // SAFETY: as above.
        unsafe { description.hold.reset() };
        // SAFETY: as above.
        unsafe { description.hold.set_alone(None) };
    }
}

/// 1 where this thread is inside, and counts among those without a hazard.
pub(super) fn unnamed_here() -> u32 {
    let own = my_hazard();
    u32::from(own.is_none_or(|own| own.inside.load(Ordering::Relaxed) == 0))
}

/// Keeps other threads out of the tables while the process forks.
pub(crate) fn before_fork() {
    FREE.take();
    HAZARD_FREE.take();
}

/// Called in parent and child.
pub(crate) fn fork_done() {
    HAZARD_FREE.give();
    FREE.give();
}
