//! Slots that fail while they are mapped: a file cut short, a memory that reports an error.
//!
//! An access to such a page raises SIGBUS. The handler marks the slot as failed and puts a private page in
//! the place of the one that is gone, so that the access goes through: what is stored there is lost, and
//! what is loaded are zeros. So nothing that a thread did may be acknowledged once [`Health`] has changed
//! since it began, and nothing is loaded from a slot that has failed any more.
//!
//! A fault comes at the instruction that causes it, before the next one of its thread. A thread that asks
//! before it stores the word that commits has lost nothing that the word leads to. Another thread may load
//! zeros from the new page without a fault of its own: the slot is marked first, which it sees by then.

use std::cell::Cell;
use std::io;
use std::ptr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};
use std::sync::{Once, OnceLock};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use super::places::Places;
use crate::counters::SLOTS_MAX;
use crate::given::{disposition, unblock};
use crate::{PAGE, to_usize};

thread_local! {
    /// What the thread has stored to failed slots, and the faults that it had. It has no destructor, so
    /// the handler can count in it.
    static LOST: Cell<u64> = const { Cell::new(0) };
}

/// How a thread finds the slots: while it stays the same, nothing that the thread has stored or loaded
/// meanwhile was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Health {
    /// A bit for each slot that has failed.
    pub failed: u64,
    /// Rises with each access of this thread that was lost.
    lost: u64,
}

/// Where a slot is mapped: the part of it that every access needs.
#[derive(Debug)]
pub(crate) struct Range {
    base: AtomicPtr<u8>,
    len: AtomicU64,
    load_len: AtomicU64,
    store_len: AtomicU64,
    /// Bytes that are replaced at once, a power of two.
    unit: AtomicU64,
}

impl Range {
    const fn none() -> Self {
        Self {
            base: AtomicPtr::new(ptr::null_mut()),
            len: AtomicU64::new(0),
            load_len: AtomicU64::new(0),
            store_len: AtomicU64::new(0),
            unit: AtomicU64::new(PAGE),
        }
    }

    #[inline(always)]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.load(Relaxed)
    }

    /// Bytes that are mapped.
    #[inline(always)]
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Relaxed)
    }

    /// Bytes that may be loaded as they are: 0 where loads are delayed, and of a slot that has failed.
    #[inline(always)]
    pub(crate) fn load_len(&self) -> u64 {
        self.load_len.load(Relaxed)
    }

    /// Bytes that may be stored: 0 when read-only, and of a slot that has failed.
    #[inline(always)]
    pub(crate) fn store_len(&self) -> u64 {
        self.store_len.load(Relaxed)
    }

    /// Has every load take the slow way.
    pub(crate) fn delay_loads(&self) {
        self.load_len.store(0, Relaxed);
    }
}

/// The mappings of a pool, where the handler finds them. It stays for ever, for the handler may look at it
/// while the pool is dropped; another pool takes it over then.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub(crate) slots: [Range; SLOTS_MAX],
    failed: AtomicU64,
    /// A bit for each slot that others have mapped, and this process can't map.
    lacking: AtomicU64,
    is_taken: AtomicBool,
}

static MAPPED: Places<Mapped> = Places::none();

impl Mapped {
    /// One that no pool has.
    pub(crate) fn take() -> &'static Self {
        let free = MAPPED.all().find(|mapped| !mapped.is_taken.swap(true, SeqCst));
        free.unwrap_or_else(|| {
            MAPPED.add(Self {
                slots: [const { Range::none() }; SLOTS_MAX],
                failed: AtomicU64::new(0),
                lacking: AtomicU64::new(0),
                is_taken: AtomicBool::new(true),
            })
        })
    }

    /// Enters a slot's mapping.
    pub(crate) fn enter(&self, slot: usize, mapping: &super::Slot, is_read_only: bool) {
        let Some(range) = self.slots.get(slot) else { return };
        let len = mapping.len();
        range.unit.store(mapping.unit(), Relaxed);
        range.base.store(mapping.base(), Relaxed);
        range.load_len.store(len, Relaxed);
        range.store_len.store(if is_read_only { 0 } else { len }, Relaxed);
        range.len.store(len, SeqCst);
        if mapping.is_absent() {
            self.fail(1 << slot);
        }
    }

    /// Gives it up, before the slots are unmapped.
    pub(crate) fn leave(&self) {
        for range in &self.slots {
            range.len.store(0, SeqCst);
            range.load_len.store(0, Relaxed);
            range.store_len.store(0, Relaxed);
        }
        self.failed.store(0, SeqCst);
        self.lacking.store(0, SeqCst);
        self.is_taken.store(false, SeqCst);
    }

    #[inline(always)]
    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// Marks slots as failed, by their bits: nothing is loaded from them from now on.
    pub(crate) fn fail(&self, slots: u64) {
        self.failed.fetch_or(slots, SeqCst);
        for (index, range) in self.slots.iter().enumerate() {
            if slots >> index & 1 != 0 {
                range.load_len.store(0, SeqCst);
                range.store_len.store(0, SeqCst);
            }
        }
    }

    #[inline(always)]
    pub(crate) fn lacking(&self) -> u64 {
        self.lacking.load(Relaxed)
    }

    /// Marks slots as ones that can't be mapped.
    pub(crate) fn lack(&self, slots: u64) {
        self.lacking.fetch_or(slots, SeqCst);
    }

    #[inline]
    pub(crate) fn health(&self) -> Health {
        let failed = self.failed();
        let lost = if failed | self.lacking() == 0 { 0 } else { LOST.get() };
        Health { failed, lost }
    }

    /// The slot that has what lies at `at`.
    fn slot_at(&self, at: usize) -> Option<usize> {
        self.slots.iter().position(|range| {
            let from = range.base().addr();
            (from..from.saturating_add(to_usize(range.len()))).contains(&at)
        })
    }

    /// Puts private memory in the place of what lies at `at`, and marks its slot; says whether it is in
    /// one.
    fn replace(&self, at: usize) -> bool {
        let hit = self.slot_at(at);
        let Some((slot, range)) = hit.and_then(|slot| Some((slot, self.slots.get(slot)?))) else {
            return false;
        };
        self.fail(1 << slot);
        count_lost();
        let unit = to_usize(range.unit.load(Relaxed));
        let first = range.base().map_addr(|_| at & !(unit - 1));
        // A device may end within a unit.
        let end = range.base().addr().saturating_add(to_usize(range.len()));
        let len = unit.min(end.saturating_sub(first.addr()));
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the unit is a part of this pool's own mapping, whose bytes nobody has any more; the
        // pool outlives the access that faulted.
        unsafe { mmap_anonymous(first.cast(), len, ProtFlags::READ | ProtFlags::WRITE, flags) }
            .is_ok()
    }
}

/// Counts an access of this thread that was lost.
pub(crate) fn count_lost() {
    LOST.set(LOST.get() + 1);
}

/// For who handles SIGBUS: whether the address that was touched is a pool's. Then its slot is marked as
/// failed, and the instruction can be run again.
#[must_use]
pub fn slot_failed_at(at: usize) -> bool {
    MAPPED.all().any(|mapped| mapped.replace(at))
}

/// What was done on SIGBUS before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Handles SIGBUS in this process, once: a fault in a pool marks its slot, any other one goes to the
/// handler that there was. A handler that the process sets later takes the place of this one, and should call
/// [`slot_failed_at`].
///
/// The calling thread blocks SIGBUS no more, nor do those that it starts from then on: the kernel ends a process at a
/// fault whose signal is blocked, and a mask is inherited from who starts a program.
///
/// # Errors
/// Those of `sigaction`.
pub fn survive_failing_slots() -> io::Result<()> {
    static ONCE: Once = Once::new();
    let mut result = Ok(());
    ONCE.call_once(|| result = install());
    unblock(&[libc::SIGBUS]);
    result
}

/// How a process ends at the first fault in a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending {
    /// What it says on standard error.
    pub words: &'static str,
    /// And on standard output.
    pub answer: &'static str,
    /// With which code.
    pub code: u8,
}

/// How it is to end, where that is asked for.
static ENDING: OnceLock<Ending> = OnceLock::new();

/// Has this process end at the first fault in a pool: for one that changes a pool by steps that rest on one another,
/// which stops where a killed one would, and one that reads it and would say what it has not found. What is asked for
/// first counts.
///
/// # Errors
/// Those of `sigaction`.
pub fn end_at_failing_slots(ending: Ending) -> io::Result<()> {
    ENDING.get_or_init(|| ending);
    survive_failing_slots()
}

/// Ends the process where a slot has what lies at `at`, and that is asked for.
fn end_if_asked(at: usize) {
    let Some(&Ending { words, answer, code }) = ENDING.get() else { return };
    if !MAPPED.all().any(|mapped| mapped.slot_at(at).is_some()) {
        return;
    }
    for (to, text) in [(1, answer), (2, words)] {
        // SAFETY: the bytes are those of a text; a handler may call this.
        let _said = unsafe { libc::write(to, text.as_ptr().cast(), text.len()) };
    }
    // SAFETY: ends the process at once, as a handler may.
    unsafe { libc::_exit(code.into()) }
}

fn install() -> io::Result<()> {
    let mut action = disposition(libc::SIGBUS)?;
    // Before the handler can run.
    let before = *BEFORE.get_or_init(|| action);
    action.sa_sigaction = on_fault as *const () as usize;
    action.sa_flags = before.sa_flags | libc::SA_SIGINFO | libc::SA_ONSTACK;
    action.sa_flags &= !libc::SA_RESETHAND;
    // SAFETY: the handler touches nothing but atomics, a word of its thread and the kernel.
    match unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands it over, valid while the handler runs.
    let info_of = unsafe { &*info };
    // One that somebody sends has no address.
    if info_of.si_code > 0 {
        // SAFETY: it is of a fault then.
        let at = unsafe { info_of.si_addr() }.addr();
        end_if_asked(at);
        if slot_failed_at(at) {
            return;
        }
    }
    let before = BEFORE.get().map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    match before {
        libc::SIG_IGN if info_of.si_code <= 0 => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // The instruction faults again, and a signal that was sent is sent again.
            // SAFETY: the default action, which ends the process.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
            if info_of.si_code <= 0 {
                // SAFETY: as above.
                unsafe { libc::raise(signal) };
            }
        }
        handler => {
            // SAFETY: the process has given this address as a handler; one of a single argument ignores
            // the other two.
            let handler = unsafe { (&raw const handler).cast::<Handler>().read() };
            handler(signal, info, context);
        }
    }
}
