//! Which of a program's descriptors are Novale's, and the open file descriptions behind them.
//!
//! Invariants: the kernel has each number in the table too, as a placeholder or as the file itself
//! through the mount, so numbers never clash; a word of the table is cleared before the kernel may
//! give the number out again. Descriptions lie in memory that is used for nothing else; one is used
//! again only when no thread is using it (its hazard says which it uses).

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use novale_core::{HoldId, Ino};

use crate::lock::Lock;
use crate::sys::sys;
use crate::thread::current;

/// Descriptors that may be Novale's: numbers below this.
pub(crate) const DESCRIPTORS: usize = 1 << 20;
/// Threads with a hazard of their own.
const HAZARDS: usize = 1024;
/// A word of the table for a descriptor of this library's, which the program must not know.
const INTERNAL: u32 = u32::MAX;

static TABLE: AtomicU64 = AtomicU64::new(0);
static SLAB: AtomicU64 = AtomicU64::new(0);
/// Above every descriptor that was ever in the table.
static HIGHEST: AtomicU32 = AtomicU32::new(0);
static FREE: Lock<Free> = Lock::new(Free { slots: Vec::new(), fresh: 0, retired: Vec::new() });

struct Free {
    slots: Vec<u32>,
    fresh: u32,
    /// Of no descriptor any more, but maybe in use by a thread.
    retired: Vec<u32>,
}

/// The file itself stands behind the number in the kernel too.
pub(crate) const IN_KERNEL: u32 = 1;
/// Another process may have it too: the position is the kernel's.
pub(crate) const SHARED: u32 = 2;
/// It is a directory.
pub(crate) const DIRECTORY: u32 = 4;
/// The kernel maps it: its pages are the kernel's, and so is every call.
pub(crate) const MAPPED: u32 = 8;

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
    /// The position in bytes, where it is not the kernel's.
    pub(crate) offset: Lock<u64>,
    /// This process' hold of the inode; without one it is the kernel's.
    hold: Lock<Option<HoldId>>,
}

/// What a new description says.
pub(crate) struct New {
    pub(crate) ino: Ino,
    pub(crate) generation: u32,
    pub(crate) flags: i32,
    pub(crate) state: u32,
    pub(crate) mount: usize,
    pub(crate) hold: Option<HoldId>,
}

impl Description {
    pub(crate) fn ino(&self) -> Ino {
        Ino::new(self.ino.load(Ordering::Relaxed))
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

    pub(crate) fn set(&self, state: u32) {
        self.state.fetch_or(state, Ordering::Relaxed);
    }

    pub(crate) fn reads(&self) -> bool {
        self.flags() & libc::O_ACCMODE != libc::O_WRONLY
    }

    pub(crate) fn writes(&self) -> bool {
        self.flags() & libc::O_ACCMODE != libc::O_RDONLY
    }

    pub(crate) fn appends(&self) -> bool {
        self.flags() & libc::O_APPEND != 0
    }
}

/// Reserves the memory of table and descriptions; false without it.
pub(crate) fn begin() -> bool {
    let table = reserve(DESCRIPTORS * 4);
    let slab = reserve(DESCRIPTORS * std::mem::size_of::<Description>());
    let (Some(table), Some(slab)) = (table, slab) else { return false };
    TABLE.store(table, Ordering::Relaxed);
    SLAB.store(slab, Ordering::Relaxed);
    crate::entry::set_table(table);
    true
}

fn reserve(bytes: usize) -> Option<u64> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let at = sys!(libc::SYS_mmap, 0, bytes, access, flags, u64::MAX, 0);
    u64::try_from(at).ok()
}

fn word(fd: i32) -> Option<&'static AtomicU32> {
    let index = usize::try_from(fd).ok().filter(|fd| *fd < DESCRIPTORS)?;
    let table = TABLE.load(Ordering::Relaxed) as *const AtomicU32;
    if table.is_null() {
        return None;
    }
    // SAFETY: the table has so many words and is never unmapped.
    let word = unsafe { table.add(index) };
    // SAFETY: as above; any bits are valid.
    Some(unsafe { &*word })
}

fn slot(index: u32) -> &'static Description {
    let slab = SLAB.load(Ordering::Relaxed) as *const Description;
    // SAFETY: indexes come from `insert` and are below DESCRIPTORS; zeroes are a valid description;
    // the memory is never unmapped.
    let slot = unsafe { slab.add(index as usize) };
    // SAFETY: as above.
    unsafe { &*slot }
}

/// What a thread is using, in a line of its own.
#[repr(align(64))]
struct Hazard {
    /// The description plus 1.
    word: AtomicU32,
    /// 1 while the thread serves a call.
    inside: AtomicU32,
}

static HAZARD: [Hazard; HAZARDS] =
    [const { Hazard { word: AtomicU32::new(0), inside: AtomicU32::new(0) } }; HAZARDS];
static HAZARD_FREE: Lock<(Vec<u16>, u16)> = Lock::new((Vec::new(), 0));
/// Threads beyond those that have a hazard of their own, inside a call.
static UNNAMED: AtomicU32 = AtomicU32::new(0);

fn my_hazard() -> Option<&'static Hazard> {
    let thread = current();
    let mut own = thread.hazard.load(Ordering::Relaxed);
    if own == 0 {
        let mut free = HAZARD_FREE.lock();
        let index = free.0.pop().or_else(|| {
            let next = free.1;
            (usize::from(next) < HAZARDS).then(|| {
                free.1 += 1;
                next
            })
        })?;
        own = u64::from(index) + 1;
        thread.hazard.store(own, Ordering::Relaxed);
    }
    HAZARD.get(usize::try_from(own - 1).ok()?)
}

/// Gives up the calling thread's hazard, since it ends.
pub(crate) fn give_hazard() {
    let own = current().hazard.swap(0, Ordering::Relaxed);
    if let Some(index) = own.checked_sub(1).and_then(|index| u16::try_from(index).ok()) {
        HAZARD_FREE.lock().0.push(index);
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
        match self.hazard {
            Some(hazard) => hazard.store(0, Ordering::Release),
            None => {
                UNNAMED.fetch_sub(1, Ordering::Release);
            }
        }
    }
}

/// The description of a descriptor; `None` for the kernel's.
pub(crate) fn get(fd: i32) -> Option<InUse> {
    let word = word(fd)?;
    let mut found = word.load(Ordering::Acquire);
    if found == 0 || found == INTERNAL {
        return None;
    }
    // A call that uses two names one; the other one is covered like those of unnamed threads.
    let hazard = my_hazard().map(|hazard| &hazard.word);
    let hazard = hazard.filter(|hazard| hazard.load(Ordering::Relaxed) == 0);
    if hazard.is_none() {
        UNNAMED.fetch_add(1, Ordering::SeqCst);
    }
    loop {
        if let Some(hazard) = hazard {
            hazard.swap(found, Ordering::SeqCst);
        }
        let now = word.load(Ordering::SeqCst);
        if now == found {
            return Some(InUse { description: slot(found - 1), index: found - 1, hazard });
        }
        if now == 0 || now == INTERNAL {
            match hazard {
                Some(hazard) => hazard.store(0, Ordering::Release),
                None => {
                    UNNAMED.fetch_sub(1, Ordering::Release);
                }
            }
            return None;
        }
        found = now;
    }
}

/// Whether a descriptor is this library's own.
pub(crate) fn is_internal(fd: i32) -> bool {
    word(fd).is_some_and(|word| word.load(Ordering::Relaxed) == INTERNAL)
}

/// Keeps a descriptor of this library's from the program.
pub(crate) fn set_internal(fd: i32) {
    if let Some(word) = word(fd) {
        word.store(INTERNAL, Ordering::Release);
        HIGHEST.fetch_max(fd.cast_unsigned(), Ordering::Relaxed);
    }
}

/// A descriptor of this library's is closed.
pub(crate) fn forget_internal(fd: i32) {
    if let Some(word) = word(fd) {
        word.store(0, Ordering::Release);
    }
}

/// Puts a new description behind a descriptor that the kernel has just given out; false when there
/// is no room.
pub(crate) fn insert(fd: i32, new: &New) -> bool {
    let Some(word) = word(fd) else { return false };
    let index = {
        let mut free = FREE.lock();
        match free.slots.pop() {
            Some(index) => index,
            None if (free.fresh as usize) < DESCRIPTORS - 2 => {
                free.fresh += 1;
                free.fresh - 1
            }
            None => return false,
        }
    };
    let description = slot(index);
    description.ino.store(new.ino.get(), Ordering::Relaxed);
    description.generation.store(new.generation, Ordering::Relaxed);
    description.references.store(1, Ordering::Relaxed);
    description.flags.store(new.flags.cast_unsigned(), Ordering::Relaxed);
    description.state.store(new.state, Ordering::Relaxed);
    description.mount.store(u32::try_from(new.mount).unwrap_or(0), Ordering::Relaxed);
    *description.offset.lock() = 0;
    *description.hold.lock() = new.hold;
    HIGHEST.fetch_max(fd.cast_unsigned(), Ordering::Relaxed);
    word.store(index + 1, Ordering::Release);
    true
}

/// Lets `fd`, which the kernel has made a duplicate just now, share `other`'s description.
pub(crate) fn share(other: &InUse, fd: i32) {
    if let Some(word) = word(fd) {
        other.references.fetch_add(1, Ordering::Relaxed);
        HIGHEST.fetch_max(fd.cast_unsigned(), Ordering::Relaxed);
        let before = word.swap(other.index + 1, Ordering::AcqRel);
        drop_reference(before);
    }
}

/// Forgets a descriptor, before the kernel closes it or makes it another's.
pub(crate) fn remove(fd: i32) {
    if let Some(word) = word(fd) {
        if word.load(Ordering::Relaxed) == INTERNAL {
            return;
        }
        drop_reference(word.swap(0, Ordering::AcqRel));
    }
}

fn drop_reference(word: u32) {
    let Some(index) = word.checked_sub(1).filter(|_| word != INTERNAL) else { return };
    if slot(index).references.fetch_sub(1, Ordering::AcqRel) == 1 {
        retire(index);
    }
}

/// Ends descriptions that no descriptor has any more, as far as no thread is using them.
fn retire(index: u32) {
    fence(Ordering::SeqCst);
    let ended: Vec<u32> = {
        let mut free = FREE.lock();
        free.retired.push(index);
        let (in_use, ended) =
            std::mem::take(&mut free.retired).into_iter().partition(|index| is_in_use(*index));
        free.retired = in_use;
        ended
    };
    for index in ended {
        let description = slot(index);
        if let Some(hold) = description.hold.lock().take() {
            crate::mounts::release(description.mount(), hold);
        }
        FREE.lock().slots.push(index);
    }
}

fn is_in_use(index: u32) -> bool {
    let named = usize::from(HAZARD_FREE.lock().1);
    let by = |hazard: &Hazard| hazard.word.load(Ordering::Acquire) == index + 1;
    UNNAMED.load(Ordering::Acquire) != 0 || HAZARD.iter().take(named).any(by)
}

/// All descriptors in the table, with their descriptions.
pub(crate) fn each(visit: &mut dyn FnMut(i32, &InUse)) {
    for fd in 0..=HIGHEST.load(Ordering::Relaxed).cast_signed() {
        if let Some(in_use) = get(fd) {
            visit(fd, &in_use);
        }
    }
}

/// In the child of a fork: no other thread is left, and the holds are the parent's.
pub(crate) fn after_fork() {
    let own = current().hazard.load(Ordering::Relaxed);
    for (index, hazard) in HAZARD.iter().enumerate() {
        if index as u64 + 1 != own {
            hazard.word.store(0, Ordering::Relaxed);
            hazard.inside.store(0, Ordering::Relaxed);
        }
    }
    UNNAMED.store(0, Ordering::Relaxed);
    each(&mut |_, description| *description.hold.lock() = None);
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

/// This library's own descriptors, in order.
pub(crate) fn internal() -> Vec<i32> {
    let all = 0..=HIGHEST.load(Ordering::Relaxed).cast_signed();
    all.filter(|fd| is_internal(*fd)).collect()
}

/// Forgets all descriptors from `first` to `last`, which the kernel has closed.
pub(crate) fn remove_range(first: u32, last: u32) {
    let last = last.min(HIGHEST.load(Ordering::Relaxed));
    (first..=last).for_each(|fd| remove(fd.cast_signed()));
}

/// Set while no thread may begin a call, since the process is about to end or to be another program.
static QUIET: AtomicU32 = AtomicU32::new(0);
/// Looks at a thread that is inside before it is taken for one that will stay there.
const PATIENCE: u32 = 100_000;

/// A call of the program being served.
pub(crate) struct Inside(Option<&'static Hazard>);

impl Inside {
    #[inline]
    pub(crate) fn new() -> Self {
        loop {
            let hazard = my_hazard();
            match hazard {
                Some(hazard) => {
                    hazard.inside.swap(1, Ordering::SeqCst);
                }
                None => {
                    UNNAMED.fetch_add(1, Ordering::SeqCst);
                }
            }
            let inside = Self(hazard);
            if QUIET.load(Ordering::SeqCst) == 0 {
                return inside;
            }
            drop(inside);
            sys!(
                libc::SYS_futex,
                QUIET.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                1,
                0
            );
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        match self.0 {
            Some(hazard) => hazard.inside.store(0, Ordering::Release),
            None => {
                UNNAMED.fetch_sub(1, Ordering::Release);
            }
        }
    }
}

/// Makes a call that may wait for others: meanwhile this thread is not inside.
pub(crate) fn outside<T>(call: impl FnOnce() -> T) -> T {
    let hazard = my_hazard();
    if let Some(hazard) = hazard {
        hazard.inside.store(0, Ordering::Release);
    }
    let result = call();
    if let Some(hazard) = hazard {
        hazard.inside.swap(1, Ordering::SeqCst);
    }
    result
}

/// Waits until no other thread is inside, and keeps them out; false when one stays.
pub(crate) fn quiet() -> bool {
    QUIET.store(1, Ordering::SeqCst);
    let own = my_hazard().map(std::ptr::from_ref);
    for _ in 0..PATIENCE {
        let named = usize::from(HAZARD_FREE.lock().1);
        let inside = |hazard: &Hazard| {
            Some(std::ptr::from_ref(hazard)) != own && hazard.inside.load(Ordering::Acquire) != 0
        };
        let unnamed = UNNAMED.load(Ordering::Acquire) > u32::from(own.is_none());
        if !unnamed && !HAZARD.iter().take(named).any(inside) {
            return true;
        }
        sys!(libc::SYS_sched_yield);
    }
    false
}

/// Lets threads in again.
pub(crate) fn go_on() {
    QUIET.store(0, Ordering::SeqCst);
    let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    sys!(libc::SYS_futex, QUIET.as_ptr(), wake, i32::MAX);
}
