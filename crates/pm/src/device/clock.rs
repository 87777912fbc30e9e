//! Ticks of the processor's counter, which goes on at one rate and is the same on all of its cores.

use std::time::{Duration, Instant};

use super::DeviceError;

/// How long the counter is compared with the machine's clock.
const COMPARED: Duration = Duration::from_millis(5);

/// Ticks of a microsecond.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate(u64);

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(super) fn now() -> u64 {
    // SAFETY: RDTSC reads a counter, and all of x86-64 have it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(super) fn now() -> u64 {
    0
}

/// Whether the counter has one rate, whatever the processor does (CPUID leaf `0x8000_0007`, EDX, bit 8).
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn is_steady() -> bool {
    const LEAF: u32 = 0x8000_0007;
    let greatest = std::arch::x86_64::__cpuid(0x8000_0000).eax;
    greatest >= LEAF && std::arch::x86_64::__cpuid(LEAF).edx & (1 << 8) != 0
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn is_steady() -> bool {
    false
}

impl Rate {
    /// Compares the counter with the machine's clock.
    pub(super) fn measured() -> Result<Self, DeviceError> {
        if !is_steady() {
            return Err(DeviceError::NoClock);
        }
        let (begun, first) = (Instant::now(), now());
        while begun.elapsed() < COMPARED {
            std::hint::spin_loop();
        }
        let (took, last) = (begun.elapsed(), now());
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let rate = last.saturating_sub(first).saturating_mul(1000) / took.max(1);
        if rate == 0 { Err(DeviceError::NoClock) } else { Ok(Self(rate)) }
    }

    pub(super) fn ticks(self, ns: u64) -> u64 {
        ns.saturating_mul(self.0) / 1000
    }

    pub(super) fn ns(self, ticks: u64) -> u64 {
        ticks.saturating_mul(1000) / self.0
    }
}

/// Ticks by which a wait is too long on the mean: a look at the counter where it begins, and half of one
/// where it ends.
pub(super) fn overrun() -> u64 {
    const LOOKS: u64 = 1000;
    let begun = now();
    let last = (0..LOOKS).fold(begun, |last, _| last.max(now()));
    (last - begun) * 3 / (2 * LOOKS)
}

/// Spins until a moment.
#[inline]
pub(super) fn wait_until(end: u64) {
    while now() < end {
        std::hint::spin_loop();
    }
}
