//! Bytes changed without regard for what they are: flipped, torn, zeroed, noise.

use fastrand::Rng;
use novale_layout::{LINE, PAGE, PmAddr};
use novale_pm::Pm;

use super::values::{addr, number};
use super::{load, put};

/// Flips up to three bits of a line.
pub(super) fn bits(pm: &Pm, random: &mut Rng) -> Option<String> {
    let (at, _) = used_line(pm, random)?;
    let count = random.u32(1..4);
    for _ in 0..count {
        let byte = at.add(random.u64(0..LINE));
        let [old] = load(pm, byte)?;
        put(pm, byte, &[old ^ (1 << random.u32(0..8))]);
    }
    Some(format!("{count} bits of the line at {at}"))
}

/// Puts a number or an address in a word's place.
pub(super) fn word(pm: &Pm, random: &mut Rng) -> Option<String> {
    let (line, _) = used_line(pm, random)?;
    let at = line.add(random.u64(0..8) * 8);
    let old = pm.load_u64(at).ok()?;
    let new = if random.bool() {
        number(random, old)
    } else {
        addr(random, PmAddr::from_raw(old), pm.slot_len(0) / PAGE).raw()
    };
    put(pm, at, &new.to_le_bytes());
    Some(format!("the word at {at}: {old:#x} to {new:#x}"))
}

/// Erases a line, or puts another in its place.
pub(super) fn line(pm: &Pm, random: &mut Rng) -> Option<String> {
    let (from, line) = used_line(pm, random)?;
    let (to, _) = used_line(pm, random)?;
    if random.bool() {
        put(pm, to, &[0; 64]);
        return Some(format!("the line at {to} blank"));
    }
    put(pm, to, &line);
    Some(format!("the line at {from} copied to {to}"))
}

/// Some lines of a page are those of another, as a write that was cut off leaves them.
pub(super) fn torn(pm: &Pm, random: &mut Rng) -> Option<String> {
    let (to, from) = (used_line(pm, random)?.0.page(), used_line(pm, random)?.0.page());
    let lines = if random.u32(0..4) == 0 { u64::MAX } else { random.u64(..) };
    for line in (0..PAGE / LINE).filter(|line| lines >> line & 1 == 1) {
        let bytes = pm.load_line(from.add(line * LINE)).ok()?;
        put(pm, to.add(line * LINE), &bytes);
    }
    Some(format!("lines {lines:#x} of the page at {to} are those of {from}"))
}

/// Erases a page.
pub(super) fn zeroed(pm: &Pm, random: &mut Rng) -> Option<String> {
    let page = used_line(pm, random)?.0.page();
    put(pm, page, &[0; 4096]);
    Some(format!("the page at {page} zeroed"))
}

/// Fills the front of a page with random bytes.
pub(super) fn noise(pm: &Pm, random: &mut Rng) -> Option<String> {
    let page = used_line(pm, random)?.0.page();
    let mut bytes = [0; 4096];
    random.fill(&mut bytes);
    let len = *random.choice([64, 128, 1024, 4096].as_slice())?;
    put(pm, page, bytes.get(..len)?);
    Some(format!("{len} bytes of noise at {page}"))
}

/// A line that is not all zeros.
fn used_line(pm: &Pm, random: &mut Rng) -> Option<(PmAddr, [u8; 64])> {
    const TRIES: usize = 10_000;
    let slot = if random.u32(0..4) == 0 { random.u8(0..pm.slot_count()) } else { 0 };
    let all = pm.slot_len(slot) / PAGE;
    (0..TRIES).find_map(|_| {
        // Most of what is used lies in front.
        let pages = if random.bool() { all.min(64) } else { all };
        let at = PmAddr::new(slot, random.u64(0..pages * PAGE / LINE) * LINE);
        let line = pm.load_line(at).ok()?;
        (line != [0; 64]).then_some((at, line))
    })
}
