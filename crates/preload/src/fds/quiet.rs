//! Who is inside, serving a call, and keeping all others out of the library for a while.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::base::heap;
use crate::base::lock::Lock;
use crate::base::sys::{fail, sys};
use crate::base::thread::current;
use crate::fds::table::{
    HAZARD, Hazard, NAMED, UNNAMED, end_used, hide, my_hazard, show, unnamed_here,
};

/// [`ALL`] while no thread may begin a call, since the process is about to end or to be another program, [`NUMBERS`]
/// while none may begin one that changes what is at a number; with [`WAITED_FOR`] where one sleeps until it may, and
/// with [`LENT`] where a child that uses this memory lets them in.
static QUIET: AtomicU32 = AtomicU32::new(0);
const ALL: u32 = Calls::Any as u32 | NUMBERS;
const NUMBERS: u32 = Calls::Numbers as u32;
const WAITED_FOR: u32 = 4;
const LENT: u32 = 8;
/// Beside [`ALL`]: those are kept out until mappings have been given up here. In a thread's own word: it waits in the kernel
/// for somebody who may wait for just that.
const GIVES: u32 = 16;
/// How long a thread waits for such a child, which lets in who waits by its first call, in ns.
const LENT_NS: i64 = 50_000_000;
/// The thread that keeps the others out.
static QUIETER: AtomicU64 = AtomicU64::new(0);
/// Looks at a thread that is inside before it is taken for one that will stay there: ten seconds and more. It
/// may be in a long write, or get no processor.
pub(crate) const PATIENCE: u32 = 100_000;
/// For what can be put off or left to others: a tenth of a second and more.
pub(crate) const BRIEFLY: u32 = 1000;
/// Looks without sleeping in between.
const LOOKS: u32 = 8;
/// Between two looks, in ns. Who only yields is run on before a thread that has used up its time.
const NAP_NS: i64 = 50_000;

/// What calls do, as bits.
#[derive(Clone, Copy)]
pub(crate) enum Calls {
    /// They leave what is at each number as it is.
    Any = 1,
    /// They open, duplicate or close.
    Numbers = 2,
}

/// A call of the program being served.
pub(crate) struct Serving(Option<&'static AtomicU32>);

impl Serving {
    #[inline]
    pub(crate) fn new(calls: Calls) -> Self {
        let own = my_hazard().map(|hazard| &hazard.inside);
        come_in(own, calls as u32);
        heap::tend();
        Self(own)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        end_used();
        hide(self.0);
    }
}

/// Says that this thread is inside, as soon as nobody else keeps out who makes calls of that kind.
#[inline]
fn come_in(own: Option<&AtomicU32>, kind: u32) {
    loop {
        show(own, kind);
        let now = QUIET.load(Ordering::SeqCst);
        // Who has no hazard does not say what it is at.
        if now == 0 || now & kind == 0 && own.is_some() {
            return;
        }
        if is_own() {
            // Its child is done, or there is none.
            end_lending();
            return;
        }
        hide(own);
        wait_for_end(now);
    }
}

/// Sleeps until nobody keeps threads out any more; they are let in by who has waited long enough for a child.
#[cold]
fn wait_for_end(now: u32) {
    let (waited_for, order) = (now | WAITED_FOR, Ordering::SeqCst);
    if now != waited_for && QUIET.compare_exchange(now, waited_for, order, order).is_err() {
        return;
    }
    let limit = libc::timespec { tv_sec: 0, tv_nsec: LENT_NS };
    let limit = if now & LENT == 0 { std::ptr::null() } else { &raw const limit };
    let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let woken = sys!(libc::SYS_futex, QUIET.as_ptr(), wait, waited_for, limit);
    if woken == fail(libc::ETIMEDOUT) {
        end_lending();
    }
}

/// Lets threads in again, for a child that uses this thread's memory.
pub(crate) fn end_own_lending() {
    if is_own() {
        end_lending();
    }
}

/// Whether it is this thread that keeps the others out.
fn is_own() -> bool {
    QUIETER.load(Ordering::Relaxed) == this_thread()
}

/// Lets threads in that a child of `vfork` keeps out.
fn end_lending() {
    let is_lent = |now: u32| (now & LENT != 0).then_some(0);
    if let Ok(before) = QUIET.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_lent) {
        wake(before);
    }
}

/// Wakes who waits. Who is alone makes no call for that: a filter may forbid it.
fn wake(before: u32) {
    if before & WAITED_FOR != 0 {
        let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        sys!(libc::SYS_futex, QUIET.as_ptr(), wake, i32::MAX);
    }
}

/// What tells the calling thread from all others.
fn this_thread() -> u64 {
    std::ptr::from_ref(current()) as u64
}

/// Makes a call that may wait for others: meanwhile this thread is not inside. It comes in again when nobody
/// keeps threads out, so it has no lock of this library's; and a pool that it was in may have been left.
pub(crate) fn outside<T>(call: impl FnOnce() -> T) -> T {
    let own = my_hazard().map(|hazard| &hazard.inside);
    // One that had no hazard when it came in may have one by now.
    let own = own.filter(|own| own.load(Ordering::Relaxed) != 0);
    let kind = own.map_or(Calls::Numbers as u32, |own| own.load(Ordering::Relaxed));
    hide(own);
    let result = call();
    come_in(own, kind);
    result
}

/// Makes calls of the kernel's that may wait for this process to give way to its mappings, by who may have locks that
/// one needs for them: for who gives way, and nobody else, this thread is not inside. It has no lock that is needed there,
/// and what it knew of mappings is over. It goes on when nobody is giving way.
pub(crate) fn beside_giving<T>(call: impl FnOnce() -> T) -> T {
    let own = my_hazard().map(|hazard| &hazard.inside);
    let Some(own) = own.filter(|own| own.load(Ordering::Relaxed) & ALL != 0) else { return call() };
    let kind = own.load(Ordering::Relaxed);
    show(Some(own), kind | GIVES);
    let result = call();
    loop {
        show(Some(own), kind);
        let now = QUIET.load(Ordering::SeqCst);
        if now & GIVES == 0 || kind & GIVES != 0 {
            return result;
        }
        show(Some(own), kind | GIVES);
        wait_for_end(now);
    }
}

/// One thread at a time keeps the others out.
static QUIETING: Lock<()> = Lock::new(());

/// While there is one, nobody else keeps threads out, nor forks, nor leaves the pools.
pub(crate) struct Quiet {
    /// Threads without a hazard that are inside rightly: the caller, perhaps.
    unnamed: u32,
    is_lent: bool,
}

impl Quiet {
    /// For a thread of this library's own, which is not inside.
    pub(crate) fn new() -> Self {
        QUIETING.take();
        Self { unnamed: 0, is_lent: false }
    }

    /// For a thread that serves a call: the one who keeps threads out now may wait for it.
    pub(crate) fn of_call() -> Self {
        outside(|| QUIETING.take());
        Self { unnamed: unnamed_here(), is_lent: false }
    }

    /// Waits until no other thread is inside, and keeps them out until the end; false when one stays for so
    /// many looks.
    pub(crate) fn wait(&self, patience: u32) -> bool {
        self.wait_for(ALL, patience)
    }

    /// As [`Quiet::wait`], but for those who wait in the kernel, perhaps for the caller ([`beside_giving`]).
    pub(crate) fn wait_to_give(&self, patience: u32) -> bool {
        self.wait_for(ALL | GIVES, patience)
    }

    /// As [`Quiet::wait`], for those who change what is at a number.
    pub(crate) fn wait_for_numbers(&self, patience: u32) -> bool {
        self.wait_for(NUMBERS, patience)
    }

    fn wait_for(&self, kinds: u32, patience: u32) -> bool {
        // A child that uses this memory, of another thread, has no descriptors of its own yet.
        loop {
            let now = QUIET.load(Ordering::SeqCst);
            if now & LENT == 0 || is_own() {
                break;
            }
            wait_for_end(now);
        }
        // Before it is said that threads are kept out, so that a child that lets them in is nobody's any more.
        QUIETER.store(this_thread(), Ordering::Relaxed);
        let keep_out = |now: u32| Some(now & WAITED_FOR | kinds);
        _ = QUIET.fetch_update(Ordering::SeqCst, Ordering::SeqCst, keep_out);
        let own = my_hazard().map(std::ptr::from_ref);
        for look in 0..patience {
            let named = NAMED.load(Ordering::SeqCst) as usize;
            let inside = |hazard: &Hazard| {
                let word = hazard.inside.load(Ordering::Acquire);
                let is_beside = word & kinds & GIVES != 0;
                Some(std::ptr::from_ref(hazard)) != own && word & kinds != 0 && !is_beside
            };
            let unnamed = UNNAMED.load(Ordering::Acquire) > self.unnamed;
            if !unnamed && !HAZARD.iter().take(named).any(inside) {
                return true;
            }
            if look < LOOKS {
                sys!(libc::SYS_sched_yield);
            } else {
                let nap = libc::timespec { tv_sec: 0, tv_nsec: NAP_NS };
                let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
                let now = QUIET.load(Ordering::Relaxed);
                sys!(libc::SYS_futex, QUIET.as_ptr(), wait, now, &raw const nap);
            }
        }
        false
    }

    /// Keeps them out until a child that uses this memory makes a call: from then on it has descriptors of
    /// its own. Another one may keep them out, or fork, meanwhile.
    pub(crate) fn lend(mut self) {
        self.is_lent = true;
    }
}

impl Drop for Quiet {
    /// Lets threads in again, or leaves that to a child: who sleeps already waits for it from now on, and not for
    /// ever.
    fn drop(&mut self) {
        if self.is_lent {
            wake(QUIET.fetch_or(LENT, Ordering::SeqCst));
        } else {
            QUIETER.store(0, Ordering::Relaxed);
            wake(QUIET.swap(0, Ordering::SeqCst));
        }
        QUIETING.give();
    }
}
