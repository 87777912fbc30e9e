//! Which mutant is on: one, by the environment, or none. Written into the copy of `arena` that holds
//! mutants (`cargo xtask decisions`); no part of xtask.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Not looked at yet.
const UNREAD: u32 = u32::MAX;
/// None is on, and each that is asked for is noted.
const NOTING: u32 = u32::MAX - 1;

static CHOSEN: AtomicU32 = AtomicU32::new(UNREAD);
static NOTED: [AtomicBool; "COUNT".len()] = [const { AtomicBool::new(false) }; "COUNT".len()];
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
    if !NOTED[id as usize].swap(true, Relaxed) {
        let open = || OpenOptions::new().write(true).open(std::env::var_os("NOVALE_MUTANTS_NOTED")?).ok();
        if let Some(file) = NOTES.get_or_init(open) {
            file.write_all_at(&[1], u64::from(id)).expect("note a mutant");
        }
    }
    false
}
