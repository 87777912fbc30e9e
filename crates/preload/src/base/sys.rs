//! System calls made by this library itself: its own instruction, which nobody patches.

use std::arch::asm;
use std::ffi::c_long;
use std::sync::atomic::AtomicI32;

/// What a system call returned: a value, or an error number negated, as the kernel gives it.
pub(crate) type Ret = i64;

/// What a call gives back: its result, or nothing where the kernel is to do it.
pub(crate) type Served = Option<Ret>;

/// The result of a call that was left for a signal with nothing done, and is to be made again once that is handled:
/// what the kernel calls `ERESTARTSYS` is no result of a call to a program.
pub(crate) const RESTART: Ret = fail(512);

/// What is to happen with a call.
pub(crate) enum Outcome {
    /// It is done, with this result.
    Done(Ret),
    /// The kernel does it.
    Kernel,
    /// The kernel does it, and the dispatcher sees what came of it, unless it has failed.
    Look,
    /// The kernel does it, and a child uses this thread's memory until its parent goes on.
    Lend,
    /// The kernel does it, and a child uses this thread's memory beside it.
    Share,
    /// The signals that have come are handled, and then the call is made again.
    Again,
}

/// The six arguments of a system call, as they stand in registers.
pub(crate) type Args = [u64; 6];

/// Makes a system call.
///
/// # Safety
/// As the call with these arguments asks.
#[inline]
pub(crate) unsafe fn call(number: c_long, args: Args) -> Ret {
    let result: i64;
    // SAFETY: the kernel's convention; it changes rcx, r11 and what the arguments point to.
    unsafe {
        asm!("syscall", inlateout("rax") number => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// A system call with numbers alone, or with pointers that the caller vouches for by this library's
/// own types.
macro_rules! sys {
    ($number:expr $(, $arg:expr)*) => {{
        let given: &[u64] = &[$($arg as u64),*];
        let mut args = [0u64; 6];
        args.iter_mut().zip(given).for_each(|(to, from)| *to = *from);
        // SAFETY: every use in this crate passes numbers, pointers to live values of its own, or a
        // program's own arguments, which the kernel checks.
        unsafe { $crate::base::sys::call($number, args) }
    }};
}
pub(crate) use sys;

/// What a resource is limited to, and to what the limit may rise; none where a filter of the process
/// forbids to ask.
pub(crate) fn limit_of(resource: u32) -> Option<[u64; 2]> {
    let mut limit = [0u64; 2];
    let there = limit.as_mut_ptr();
    let is_told = sys!(libc::SYS_getrlimit, resource, there) == 0
        || sys!(libc::SYS_prlimit64, 0, resource, 0, there) == 0;
    is_told.then_some(limit)
}

/// A descriptor of this library's own for a moment.
pub(crate) struct Fd(i32);

impl Fd {
    /// What a call has opened.
    #[inline]
    pub(crate) fn new(opened: Ret) -> Option<Self> {
        i32::try_from(opened).ok().filter(|fd| *fd >= 0).map(Self)
    }

    #[inline]
    pub(crate) fn number(&self) -> i32 {
        self.0
    }
}

impl Drop for Fd {
    #[inline]
    fn drop(&mut self) {
        sys!(libc::SYS_close, self.0);
    }
}

/// A failed call's error number, negated.
#[inline]
pub(crate) const fn fail(errno: i32) -> Ret {
    -(errno as Ret)
}

/// Where the calling thread's `errno` is. libc sets it for this library's calls too, and a call of the
/// program's that succeeds leaves it as it was.
#[inline]
pub(crate) fn errno() -> &'static AtomicI32 {
    // SAFETY: asks libc for a place of the calling thread's.
    let at = unsafe { libc::__errno_location() };
    // SAFETY: it lives as long as the thread, and nobody keeps the reference longer.
    unsafe { AtomicI32::from_ptr(at) }
}
