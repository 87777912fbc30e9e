//! Numbers that break what does not check them.

use fastrand::Rng;
use novale_layout::{Ino, PAGE, PmAddr};

/// A number near a border, or near the old one.
pub(super) fn number(random: &mut Rng, old: u64) -> u64 {
    match random.u32(0..12) {
        0 => 0,
        1 => 1,
        2 => u64::MAX >> random.u32(0..3),
        3 => i64::MAX.cast_unsigned(),
        4 => 1 << random.u32(0..64),
        5 => (1 << random.u32(1..64)) - 1,
        6 => old.wrapping_add(1),
        7 => old.wrapping_sub(1),
        8 => old ^ (1 << random.u32(0..64)),
        9 => random.u64(0..10_000),
        _ => random.u64(..),
    }
}

pub(super) fn short(random: &mut Rng, old: u32) -> u32 {
    let number = number(random, u64::from(old));
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0)
}

pub(super) fn time(random: &mut Rng, old: i64) -> i64 {
    number(random, old.cast_unsigned()).cast_signed()
}

/// An address in the pool, at its border, in a slot that is not there, or unaligned.
pub(super) fn addr(random: &mut Rng, old: PmAddr, pages: u64) -> PmAddr {
    let page = |index: u64| PmAddr::new(0, index * PAGE);
    match random.u32(0..10) {
        0 => PmAddr::NULL,
        1 => page(pages),
        2 => page(pages.saturating_sub(1)),
        3 => PmAddr::new(random.u8(1..64), PAGE * 9),
        4 => page((old.byte() / PAGE + 1) % (1 << 36)),
        5 => page((old.byte() / PAGE).saturating_sub(1)),
        6 => page(random.u64(0..12)),
        7 => PmAddr::new(0, old.byte() ^ (64 << random.u32(0..6))),
        _ => page(random.u64(0..pages)),
    }
}

pub(super) fn ino(random: &mut Rng, old: Ino) -> Ino {
    match random.u32(0..6) {
        0 => Ino::ROOT,
        1 => Ino::new(old.get() + 1),
        2 => Ino::new(random.u64(1..70)),
        3 => Ino::new(random.u64(1..1 << 40)),
        4 => Ino::new((1 << 40) - 1),
        _ => Ino::new(old.get().saturating_sub(1).max(1)),
    }
}
