//! Which branches of the program ran, where it was compiled to count them; nothing otherwise.
//!
//! `scripts/edges.sh` compiles the crates under test with one byte a branch, which LLVM's pass
//! counts up ("8-bit counters" of `SanitizerCoverage`). Each object file hands the bytes' place in
//! by a constructor, before `main`: the same place each time, since the linker puts them together.

#![allow(unsafe_code, reason = "the counters are the compiler's, handed in as two pointers")]

use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

static FIRST: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Takes the counters' place from the compiler's constructors.
// SAFETY: nothing else has this name, which the pass calls with two pointers.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(first: *mut u8, end: *mut u8) {
    FIRST.store(first, Ordering::Relaxed);
    COUNT.store(end.addr().saturating_sub(first.addr()), Ordering::Release);
}

fn counters() -> &'static [AtomicU8] {
    let count = COUNT.load(Ordering::Acquire);
    let first = FIRST.load(Ordering::Relaxed).cast::<AtomicU8>();
    if count == 0 {
        return &[];
    }
    // SAFETY: the constructor was given the bounds of a section of the program's own writable data,
    // which is there for ever. Others change it by stores that are not atomic, of the thread that
    // calls: see `take`.
    unsafe { std::slice::from_raw_parts(first, count) }
}

/// How many branches are counted: 0 where the program was compiled without counters.
#[must_use]
pub fn count() -> usize {
    counters().len()
}

/// Hands each branch that ran since the last call to `visit`, by its number, with how often it ran
/// (modulo 256), and starts again from 0. To be called where nothing that is counted runs in another
/// thread.
pub fn take(visit: &mut dyn FnMut(usize, u8)) {
    for (index, counter) in counters().iter().enumerate() {
        if counter.load(Ordering::Relaxed) != 0 {
            visit(index, counter.swap(0, Ordering::Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ran_is_told_once() {
        assert_eq!(count(), 0);
        let counters = Box::leak(Box::new([0_u8; 64]));
        let bounds = counters.as_mut_ptr_range();
        __sanitizer_cov_8bit_counters_init(bounds.start, bounds.end);
        assert_eq!(count(), 64);
        for (index, times) in [(3, 1), (40, 255)] {
            super::counters()[index].store(times, Ordering::Relaxed);
        }
        let mut seen = Vec::new();
        take(&mut |index, times| seen.push((index, times)));
        assert_eq!(seen, [(3, 1), (40, 255)]);
        take(&mut |index, _| panic!("{index} did not run"));
    }
}
