//! Which mutant is on: one, by the environment, or none. Written into the copy of `arena` that holds
//! mutants (`cargo xtask decisions`); no part of xtask.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Not looked at yet.
const UNREAD: u32 = u32::MAX;
/// None is on, and each that is asked for is noted.
const NOTING: u32 = u32::MAX - 1;

static CHOSEN: AtomicU32 = AtomicU32::new(UNREAD);
static COUNTS: [AtomicU32; "COUNT".len()] = [const { AtomicU32::new(0) }; "COUNT".len()];
static NOTES: OnceLock<Option<File>> = OnceLock::new();

/// Whether the mutant is on.
#[inline(always)]
pub fn on(id: u32) -> bool {
    let chosen = CHOSEN.load(Relaxed);
    chosen == id || (chosen >= NOTING && looked(chosen, id))
}

#[cold]
fn looked(chosen: u32, id: u32) -> bool {
    if chosen == UNREAD {
        let number = std::env::var("NOVALE_MUTANT").ok().and_then(|text| text.parse().ok());
        let noting = std::env::var_os("NOVALE_MUTANTS_NOTED").is_some();
        CHOSEN.store(number.unwrap_or(if noting { NOTING } else { 0 }), Relaxed);
        return on(id);
    }
    // Other threads may count at the same time: what is lost by that does not matter.
    let count = COUNTS[id as usize].load(Relaxed).saturating_add(1);
    COUNTS[id as usize].store(count, Relaxed);
    if count.is_power_of_two() {
        note(id, 1 + count.ilog2() as u8);
    }
    false
}

/// Notes how often it was asked for, in powers of two, where no other process has noted more.
fn note(id: u32, level: u8) {
    let open = || {
        let path = std::env::var_os("NOVALE_MUTANTS_NOTED")?;
        OpenOptions::new().read(true).write(true).open(path).ok()
    };
    let Some(file) = NOTES.get_or_init(open) else { return };
    let mut noted = [0];
    file.read_exact_at(&mut noted, u64::from(id)).expect("read what is noted of a mutant");
    if noted[0] < level {
        file.write_all_at(&[level], u64::from(id)).expect("note a mutant");
    }
}
