//! A pool's slots mapped in its order, whatever the order in which they are named.

use std::path::PathBuf;

use novale_core::identify_slot;
use novale_pm::{Pm, PmOptions, SlotSpec};

use super::JoinError;

/// Maps the slots of a pool and puts them in order. Slots that do not belong together are refused by
/// the one who reads the pool next.
pub(super) fn open(
    paths: &[PathBuf],
    options: &PmOptions,
) -> Result<(Pm, Vec<PathBuf>), JoinError> {
    let pm = map(paths, options)?;
    let mut numbers = Vec::with_capacity(paths.len());
    for slot in 0..pm.slot_count() {
        numbers.push(identify_slot(&pm, slot)?.1);
    }
    if numbers.is_sorted() {
        return Ok((pm, paths.to_vec()));
    }
    drop(pm);
    let mut sorted: Vec<(u8, &PathBuf)> = numbers.into_iter().zip(paths).collect();
    sorted.sort_by_key(|(number, _)| *number);
    let sorted: Vec<PathBuf> = sorted.into_iter().map(|(_, path)| path.clone()).collect();
    Ok((map(&sorted, options)?, sorted))
}

fn map(paths: &[PathBuf], options: &PmOptions) -> Result<Pm, JoinError> {
    let specs: Vec<SlotSpec> = paths.iter().map(SlotSpec::new).collect();
    Ok(Pm::open(&specs, options)?)
}
